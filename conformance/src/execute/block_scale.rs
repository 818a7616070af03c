//! Blocks of elements with a common scale.

use hipdnn_schemas::{BlockScaleDequantize, BlockScaleQuantize};

use super::Step;
use crate::array::{Array, each_index};
use crate::format::Float;
use crate::number::{Number, ulp};

/// `y = x · scale`, or `x · 2^(−scale)`; the block sizes belong to the last dimensions.
pub(super) fn dequantize(step: &mut Step, node: &BlockScaleDequantize) -> Result<(), String> {
    let a = step.arithmetic;
    let (x, scale) = (step.operand(node.x)?, step.operand(node.scale)?);
    let rank = x.dims.len();
    if node.block_size.len() > rank {
        return Err(format!("expected at most {rank} block sizes, got {}", node.block_size.len()));
    }
    let leading = rank - node.block_size.len();
    let size = |axis: usize| if axis < leading { 1 } else { node.block_size[axis - leading] as usize };
    let wanted: Vec<usize> = (0..rank).map(|axis| x.dims[axis].div_ceil(size(axis))).collect();
    if scale.dims != wanted {
        return Err(format!("expected scales of extents {wanted:?}, got {:?}", scale.dims));
    }
    let y = Array::from_fn(&x.dims, |at| {
        let block: Vec<usize> = at.iter().enumerate().map(|(axis, i)| i / size(axis)).collect();
        let scale = scale.at(&block);
        let factor = match node.is_negative_scale {
            true => a.monotone(scale, ulp::EXP2, |scale| (-scale).exp2()),
            false => scale,
        };
        a.mul(x.at(at), factor)
    });
    step.write(node.y, y);
    Ok(())
}

/// `scale` is the greatest magnitude of the block over the largest number of y's type, rounded up to scale's type;
/// `y = x / scale`, and 0 where the scale is 0.
pub(super) fn quantize(step: &mut Step, node: &BlockScaleQuantize) -> Result<(), String> {
    if node.transpose {
        return Err("the executor does not transpose".into());
    }
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let rank = x.dims.len();
    let axis = node.axis.map_or(rank - 1, |axis| axis as usize);
    let block = node.block_size as usize;
    let mut blocks = x.dims.clone();
    blocks[axis] = blocks[axis].div_ceil(block);
    let scale_tensor = step.tensor(node.scale);
    if scale_tensor.dims() != blocks {
        return Err(format!("expected scales of extents {blocks:?}, got {:?}", scale_tensor.dims()));
    }
    let y_type = step.tensor(node.y).data_type();
    let largest = match (Float::of(y_type), crate::format::integer_range(y_type)) {
        (Some(float), _) => float.largest(),
        (_, Some((_, most))) => most,
        _ => return Err(format!("expected a number as type of y, got {y_type}")),
    };
    let scale_float = Float::of(scale_tensor.data_type())
        .ok_or_else(|| format!("expected a float as type of the scale, got {}", scale_tensor.data_type()))?;
    let is_exponent = scale_tensor.data_type() == hipdnn_schemas::DataType::Fp8E8M0;
    let mut greatest = Array::filled(&blocks, Number::exact(0.0));
    each_index(&x.dims, |at| {
        let mut of_block = at.to_vec();
        of_block[axis] /= block;
        let place = greatest.position(&of_block);
        let number = x.at(at);
        let magnitude = Number { value: number.value.abs(), error: number.error };
        greatest.data[place] = super::reduction::extreme([greatest.data[place], magnitude].into_iter(), f64::max);
    });
    let up = |value: f64| {
        // The exponent type has no zero: its smallest number stands for it.
        let value = if is_exponent { value.max(scale_float.smallest_normal()) } else { value };
        // Single and double precision scales are rounded to nearest.
        if scale_float.roundoff() <= 2f64.powi(-24) { value } else { scale_float.round_up(value) }
    };
    let scales: Vec<Number> = greatest
        .data
        .iter()
        .map(|greatest| {
            let quotient = a.div(*greatest, Number::exact(largest));
            if quotient.is_any() || !quotient.value.is_finite() {
                return Number::any();
            }
            Number::hull(Number::exact(up(quotient.low().max(0.0))), Number::exact(up(quotient.high())))
        })
        .collect();
    let scales = Array { dims: blocks, data: scales };
    let y = Array::from_fn(&x.dims, |at| {
        let mut of_block = at.to_vec();
        of_block[axis] /= block;
        let scale = scales.at(&of_block).stored(scale_tensor.data_type());
        if scale == Number::exact(0.0) { Number::exact(0.0) } else { a.div(x.at(at), scale) }
    });
    step.write(node.y, y);
    step.write(node.scale, scales);
    Ok(())
}
