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
        (Some((bits, signed)), Some((room, sign))) if bits > room || (signed && !sign) => {
            return n.wrapped(x, to);
        }
        // hipDNN rounds to nearest where ONNX truncates.
        (None, Some(_)) => {
            let zero = n.number(0.0, from, dims.len());
            let below = n.apply(PointwiseMode::Floor, x)?;
            let above = n.apply(PointwiseMode::Ceil, x)?;
            let positive = n.binary_to(PointwiseMode::CmpGe, x, zero, DataType::Boolean)?;
            let whole = n.select(positive, below, above)?;
            if matches!(to, DataType::Int8 | DataType::UInt8) {
                let whole = n.converted(whole, DataType::Int32)?;
                return n.wrapped(whole, to);
            }
            whole
        }
        _ => x,
    };
    n.converted(x, to)
}

impl Importer<'_> {
    /// Whole numbers in a type of fewer bits, of which ONNX Runtime keeps the lowest ones where hipDNN saturates.
    pub(super) fn wrapped(&mut self, x: ValueId, to: DataType) -> Result<ValueId, Declined> {
        let (least, bits) = match to {
            DataType::UInt8 => (0, 8),
            DataType::Int8 => (-128, 8),
            DataType::Int32 => (i64::from(i32::MIN), 32),
            other => return declined(format!("whole numbers are not wrapped to {other}")),
        };
        let (rank, wide, modulus) = (self.rank(x), DataType::Int64, 1i64 << bits);
        let modulus_value = self.number(modulus as f64, wide, rank);
        // Quotients are cut to 0: what is left has the sign of the number, and is brought above the least one.
        let rest = |n: &mut Self, x| {
            let quotient = n.binary_to(PointwiseMode::Div, x, modulus_value, wide)?;
            let whole = n.binary_to(PointwiseMode::Mul, quotient, modulus_value, wide)?;
            n.binary_to(PointwiseMode::Sub, x, whole, wide)
        };
        let small = rest(self, x)?;
        let up = self.number((modulus - least) as f64, wide, rank);
        let above = self.binary_to(PointwiseMode::Add, small, up, wide)?;
        let within = rest(self, above)?;
        let least = self.number(least as f64, wide, rank);
        self.binary_to(PointwiseMode::Add, within, least, to)
    }

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
