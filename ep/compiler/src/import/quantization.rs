//! Quantization to whole numbers of 8 bits, and back.

use hipdnn_schemas::{DataType, PointwiseMode};

use super::{Declined, Importer, Operator, computes, data_type, declined, is_whole};
use crate::ir::ValueId;
use hipdnn_sdk_bindings::ort::ElementType;

pub(super) const OPERATORS: &[Operator] =
    &[computes("DequantizeLinear", dequantize), computes("QuantizeLinear", quantize)];

impl Importer<'_> {
    /// Input `index`, a scale or a zero point, so that it broadcasts to `x` of these extents: one for all, one for each
    /// place along the axis, or one for each block of places.
    fn granular(&mut self, index: usize, dims: &[i64]) -> Result<ValueId, Declined> {
        let id = self.input(index)?;
        let (shape, block) = (self.dims(id), self.int("block_size", 0));
        if self.function.value(id).elements() == 1 && shape.len() <= 1 {
            return Ok(self.reshape(id, &vec![1; dims.len()]));
        }
        let axis = self.axis(self.int("axis", 1), dims.len())?;
        if block == 0 {
            if *shape != [dims[axis]] {
                return declined(format!("expected {} parameters, got extents {shape:?}", dims[axis]));
            }
            let mut row = vec![1; dims.len()];
            row[axis] = dims[axis];
            return Ok(self.reshape(id, &row));
        }
        let mut blocks = dims.to_vec();
        blocks[axis] = if block > 0 { dims[axis] / block } else { 0 };
        if block < 0 || *shape != *blocks || blocks[axis] * block != dims[axis] || dims.len() + 1 > super::MAX_RANK {
            return declined(format!("expected blocks of {block} for parameters of {shape:?}, got {dims:?}"));
        }
        // Each one repeated for its block.
        let value = self.function.value(id);
        let (mut wide, mut strides) = (shape.clone(), value.strides.clone());
        wide.insert(axis + 1, block);
        strides.insert(axis + 1, 0);
        let repeated = self.function.view(id, &wide, &strides, 0);
        Ok(self.reshape(repeated, dims))
    }
}

/// `saturate(round(x / scale) + zero_point)`
fn quantize(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    let scale = n.granular(1, &dims)?;
    if n.data_type(x) != n.data_type(scale) || n.data_type(x) != DataType::Float {
        return declined(format!(
            "expected float and a scale of float, got {} and {}",
            n.data_type(x),
            n.data_type(scale)
        ));
    }
    let point = if n.has_input(2) { Some(n.granular(2, &dims)?) } else { None };
    let to = match (point, n.int("output_dtype", 0)) {
        (Some(point), _) => n.data_type(point),
        (None, 0) => DataType::UInt8,
        (None, other) => data_type(ElementType(other as _))?,
    };
    if !matches!(to, DataType::Int8 | DataType::UInt8) {
        return declined(format!("quantization to {to} is not imported"));
    }
    let ratio = n.binary(PointwiseMode::Div, x, scale)?;
    // Halves are rounded before the zero point is added: it may be odd.
    let near = n.converted(ratio, DataType::Int32)?;
    let y = match point {
        Some(point) => n.binary_to(PointwiseMode::Add, near, point, to)?,
        None => n.converted(near, to)?,
    };
    n.output(0, y);
    Ok(())
}

/// `(x - zero_point) · scale`
fn dequantize(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let (dims, from) = (n.dims(x), n.data_type(x));
    if !is_whole(from) || from == DataType::Int64 {
        return declined(format!("expected whole numbers of at most 32 bits, got {from}"));
    }
    let scale = n.granular(1, &dims)?;
    let to = n.data_type(scale);
    if !super::is_float(to) {
        return declined(format!("expected a floating-point scale, got {to}"));
    }
    let mut shifted = x;
    if n.has_input(2) {
        let point = n.granular(2, &dims)?;
        shifted = n.binary_to(PointwiseMode::Sub, x, point, DataType::Int32)?;
    }
    let y = n.binary_to(PointwiseMode::Mul, shifted, scale, to)?;
    n.output(0, y);
    Ok(())
}
