//! Constraints on a single tensor.

use smallvec::SmallVec;

use crate::{DataType, Tensor, TensorDef, TensorValue};

/// Maximum rank: more than any operation of the format has.
const MAX_RANK: usize = 8;

/// Maximum size: more than any address space holds (47 bits), so that no product of a few sizes with a small number
/// overflows.
const MAX_BYTES: u64 = 1 << 47;

pub(super) fn check(def: TensorDef) -> Result<Tensor, String> {
    let Some(bits) = def.data_type.bits() else {
        return Err("neither the tensor nor the graph has a data type for it".into());
    };
    let rank = def.dims.len();
    if rank == 0 || rank > MAX_RANK {
        return Err(format!("expected 1 to {MAX_RANK} dimensions, got {rank}"));
    }
    if def.strides.len() != rank {
        return Err(format!("expected {rank} strides, one for each dimension, got {}", def.strides.len()));
    }
    let mut dims = SmallVec::with_capacity(rank);
    let mut strides = SmallVec::with_capacity(rank);
    let mut elements = 1u64;
    let mut last = 0u64;
    for (i, (&dim, &stride)) in def.dims.iter().zip(&def.strides).enumerate() {
        let extent = usize::try_from(dim).ok().filter(|extent| *extent >= 1);
        let extent = extent.ok_or_else(|| format!("expected an extent of at least 1 in dimension {i}, got {dim}"))?;
        // The stride of an extent of 1 is never used; clients leave anything there.
        let step = if extent == 1 && stride < 0 { Some(0) } else { usize::try_from(stride).ok() };
        let step = step.ok_or_else(|| format!("expected a stride of at least 0 in dimension {i}, got {stride}"))?;
        let step = if extent == 1 { step.min(MAX_BYTES as usize) } else { step };
        elements = elements.saturating_mul(extent as u64);
        last = last.saturating_add((extent as u64 - 1).saturating_mul(step as u64));
        dims.push(extent);
        strides.push(step);
    }
    // The elements are bounded too: where strides are 0, more of them than bytes may be walked over.
    let most = MAX_BYTES * 8 / u64::from(bits);
    if elements > most || last >= most {
        let came = elements.max(last.saturating_add(1));
        return Err(format!("expected at most {most} elements of type {}, got {came}", def.data_type));
    }
    if def.alignment < 1 {
        return Err(format!("expected an alignment of at least 1 byte, got {}", def.alignment));
    }
    if let Some(ragged) = def.ragged {
        if ragged.offset == def.uid {
            return Err("it cannot be its own row offsets".into());
        }
        if ragged.multiplier < 1 {
            return Err(format!("expected a multiplier of row offsets of at least 1, got {}", ragged.multiplier));
        }
    }
    if let Some(value) = def.value
        && !fits(value, def.data_type)
    {
        return Err(format!("expected a value of type {}, got {value:?}", def.data_type));
    }
    if (def.value.is_some() || def.is_runtime_pass_by_value) && elements != 1 {
        return Err(format!("expected 1 element for a scalar passed by value, got {elements}"));
    }
    Ok(Tensor { def, dims, strides })
}

fn fits(value: TensorValue, data_type: DataType) -> bool {
    match value {
        TensorValue::Float32(_) => data_type == DataType::Float,
        TensorValue::Float16(_) => data_type == DataType::Half,
        TensorValue::BFloat16(_) => data_type == DataType::BFloat16,
        TensorValue::Int32(_) => data_type == DataType::Int32,
        TensorValue::Float64(_) => data_type == DataType::Double,
        TensorValue::Int64(_) => data_type == DataType::Int64,
        TensorValue::Bool(_) => data_type == DataType::Boolean,
        // One raw byte stands for any type of 8 bits.
        TensorValue::Float8(_) => data_type.bits() == Some(8),
    }
}

/// Checks the further constraints on a tensor that a node writes.
pub(super) fn check_written(tensor: &Tensor) -> Result<(), String> {
    if tensor.value().is_some() || tensor.is_runtime_pass_by_value() {
        return Err("it is a scalar passed by value, but a node writes it".into());
    }
    // Elements are apart if each stride steps over all that the smaller strides reach. Layouts exist that interleave
    // dimensions without touching an element twice; nobody writes them, and they are refused.
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|i| i);
    let order = &mut order[..tensor.rank()];
    order.sort_by_key(|&i| (tensor.strides()[i], std::cmp::Reverse(i)));
    let mut reach = 0;
    let mut below = None;
    for &i in order.iter() {
        let (extent, stride) = (tensor.dims()[i], tensor.strides()[i]);
        if extent == 1 {
            continue;
        }
        if stride == 0 {
            return Err(format!("stride 0 of dimension {i} overlaps itself"));
        }
        if let Some(other) = below
            && stride <= reach
        {
            return Err(format!("stride {stride} of dimension {i} overlaps dimension {other}"));
        }
        reach += (extent - 1) * stride;
        below = Some(i);
    }
    Ok(())
}
