//! Conversions between element types.

use hipdnn_schemas::{DataType, Pointwise, PointwiseMode};
use hipdnn_sdk_bindings::ort::ElementType;

use super::{Declined, Importer, Operator, computes, data_type, declined};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[computes("Cast", cast), computes("CastLike", cast_like)];

fn cast(n: &mut Importer<'_>) -> Result<(), Declined> {
    let to = data_type(ElementType(n.int("to", 0) as _))?;
    let x = n.input(0)?;
    let y = convert(n, x, to)?;
    n.output(0, y);
    Ok(())
}

fn cast_like(n: &mut Importer<'_>) -> Result<(), Declined> {
    let like = n.input(1)?;
    let to = n.data_type(like);
    let x = n.input(0)?;
    let y = convert(n, x, to)?;
    n.output(0, y);
    Ok(())
}

/// Bits of whole numbers that a type holds, the sign not counted; `None` for floats.
fn whole_bits(data_type: DataType) -> Option<(u32, bool)> {
    Some(match data_type {
        DataType::Boolean => (1, false),
        DataType::UInt8 => (8, false),
        DataType::Int8 => (7, true),
        DataType::Int32 => (31, true),
        DataType::Int64 => (63, true),
        _ => return None,
    })
}

pub(super) fn convert(n: &mut Importer<'_>, x: ValueId, to: DataType) -> Result<ValueId, Declined> {
    let from = n.data_type(x);
    if from == to {
        return Ok(x);
    }
    let dims = n.dims(x);
    if to == DataType::Boolean {
        let zero = n.number(0.0, from, dims.len());
        return n.binary_to(PointwiseMode::CmpNeq, x, zero, to);
    }
    let x = match (whole_bits(from), whole_bits(to)) {
        // hipDNN saturates where ONNX Runtime wraps.
        (Some((bits, signed)), Some((room, sign))) if bits > room || (signed && !sign) => {
            return declined(format!(
                "{from} to {to} does not hold every number: hipDNN saturates, ONNX Runtime wraps"
            ));
        }
        // hipDNN rounds to nearest where ONNX truncates.
        (None, Some(_)) => {
            let zero = n.scalar(0.0, dims.len());
            let below = n.apply(PointwiseMode::Floor, x)?;
            let above = n.apply(PointwiseMode::Ceil, x)?;
            let positive = n.binary_to(PointwiseMode::CmpGe, x, zero, DataType::Boolean)?;
            n.select(positive, below, above)?
        }
        _ => x,
    };
    n.converted(x, to)
}

impl Importer<'_> {
    /// The value in another type, rounded to nearest, halves to even, and saturated.
    pub(super) fn converted(&mut self, x: ValueId, to: DataType) -> Result<ValueId, Declined> {
        let dims = self.dims(x);
        let y = self.emit(to, &dims, |y| {
            hipdnn_schemas::Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, x.uid(), y.uid()))
        })?;
        self.function.rounds(y);
        Ok(y)
    }
}
