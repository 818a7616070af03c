//! Arithmetic, comparisons and choices of broadcast operands.

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode};

use super::{Declined, Importer, Operator, broadcast, computes, declined, is_float, is_whole};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    computes("Add", |n| arithmetic(n, PointwiseMode::Add)),
    computes("And", |n| logic(n, PointwiseMode::LogicalAnd)),
    computes("Div", |n| arithmetic(n, PointwiseMode::Div)),
    computes("Equal", |n| comparison(n, PointwiseMode::CmpEq)),
    computes("Greater", |n| comparison(n, PointwiseMode::CmpGt)),
    computes("GreaterOrEqual", |n| comparison(n, PointwiseMode::CmpGe)),
    computes("Less", |n| comparison(n, PointwiseMode::CmpLt)),
    computes("LessOrEqual", |n| comparison(n, PointwiseMode::CmpLe)),
    computes("Max", |n| variadic(n, PointwiseMode::Max, false)),
    computes("Mean", |n| variadic(n, PointwiseMode::Add, true)),
    computes("Min", |n| variadic(n, PointwiseMode::Min, false)),
    computes("Mod", modulo),
    computes("Mul", |n| arithmetic(n, PointwiseMode::Mul)),
    computes("Not", not),
    computes("Or", |n| logic(n, PointwiseMode::LogicalOr)),
    computes("Pow", pow),
    computes("Sub", |n| arithmetic(n, PointwiseMode::Sub)),
    computes("Sum", |n| variadic(n, PointwiseMode::Add, false)),
    computes("Where", select),
    computes("Xor", xor),
];

/// Two operands of one type, as tensors that broadcast.
fn pair(n: &mut Importer<'_>, accepts: fn(DataType) -> bool) -> Result<([ValueId; 2], DataType), Declined> {
    let ([a, mut b], data_type) = n.operands([0, 1], accepts)?;
    // Before the seventh operator set broadcasting was asked for, and had an axis.
    if n.since() < 7 && n.int("broadcast", 0) != 0 && n.attribute("axis").is_some() {
        let (dims, mut own) = (n.dims(a), n.dims(b));
        let axis = n.axis(n.int("axis", 0), dims.len())?;
        let Some(after) = dims.len().checked_sub(axis + own.len()) else {
            return declined(format!(
                "expected extents that broadcast to {dims:?} from dimension {axis} on, got {own:?}"
            ));
        };
        own.extend(vec![1; after]);
        b = n.reshape(b, &own);
    }
    Ok(([a, b], data_type))
}

fn is_number(data_type: DataType) -> bool {
    is_float(data_type) || is_whole(data_type)
}

fn arithmetic(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let ([a, b], data_type) = pair(n, is_number)?;
    let y = n.combined(mode, a, b, data_type)?;
    n.output(0, y);
    Ok(())
}

impl Importer<'_> {
    /// Sum, difference, product or quotient in a type. hipDNN saturates where ONNX Runtime wraps: numbers of 8 bits are
    /// computed in 32 and wrapped; of more bits what overflows is undefined in ONNX.
    fn combined(
        &mut self,
        mode: PointwiseMode,
        a: ValueId,
        b: ValueId,
        data_type: DataType,
    ) -> Result<ValueId, Declined> {
        if !matches!(data_type, DataType::Int8 | DataType::UInt8) {
            return self.binary_to(mode, a, b, data_type);
        }
        let wide = self.binary_to(mode, a, b, DataType::Int32)?;
        self.wrapped(wide, data_type)
    }
}

fn comparison(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let ([a, b], _) = pair(n, |data_type| is_number(data_type) || data_type == DataType::Boolean)?;
    let y = n.binary_to(mode, a, b, DataType::Boolean)?;
    n.output(0, y);
    Ok(())
}

/// Remainders of whole numbers: of the divisor's sign, or with `fmod` of the dividend's.
fn modulo(n: &mut Importer<'_>) -> Result<(), Declined> {
    let ([a, b], data_type) = pair(n, is_whole)?;
    let wide = if data_type == DataType::Int64 { DataType::Int64 } else { DataType::Int32 };
    let quotient = n.binary_to(PointwiseMode::Div, a, b, wide)?;
    let whole = n.binary_to(PointwiseMode::Mul, quotient, b, wide)?;
    if n.int("fmod", 0) != 0 {
        let y = n.binary_to(PointwiseMode::Sub, a, whole, data_type)?;
        n.output(0, y);
        return Ok(());
    }
    let rest = n.binary_to(PointwiseMode::Sub, a, whole, wide)?;
    // Where the rest is not 0 and of the other sign, one divisor more.
    let rank = n.rank(rest);
    let zero = n.number(0.0, wide, rank);
    let opposed = {
        let product = n.binary_to(PointwiseMode::Mul, rest, b, DataType::Int64)?;
        n.binary_to(PointwiseMode::CmpLt, product, zero, DataType::Boolean)?
    };
    let more = n.binary_to(PointwiseMode::Add, rest, b, wide)?;
    let y = n.select_to(opposed, more, rest, data_type)?;
    n.output(0, y);
    Ok(())
}

fn booleans(n: &mut Importer<'_>, count: usize) -> Result<Vec<ValueId>, Declined> {
    (0..count)
        .map(|index| {
            let id = n.input(index)?;
            match n.data_type(id) {
                DataType::Boolean => Ok(id),
                other => declined(format!("its input {index} is of another type: expected boolean, got {other}")),
            }
        })
        .collect()
}

fn logic(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let operands = booleans(n, 2)?;
    let y = n.binary_to(mode, operands[0], operands[1], DataType::Boolean)?;
    n.output(0, y);
    Ok(())
}

/// Booleans differ.
fn xor(n: &mut Importer<'_>) -> Result<(), Declined> {
    logic(n, PointwiseMode::CmpNeq)
}

fn not(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = booleans(n, 1)?[0];
    let y = n.apply(PointwiseMode::LogicalNot, x)?;
    n.output(0, y);
    Ok(())
}

/// A function of any number of operands, from the first to the last; divided by their number for a mean.
fn variadic(n: &mut Importer<'_>, mode: PointwiseMode, mean: bool) -> Result<(), Declined> {
    let count = n.node().inputs.len();
    // The extremes of whole numbers are exact; ONNX has no sums of them here.
    let extreme = matches!(mode, PointwiseMode::Max | PointwiseMode::Min);
    let mut y = if extreme { n.number_input(0)? } else { n.float_input(0)? };
    for index in 1..count {
        let operand = if extreme { n.number_input(index)? } else { n.float_input(index)? };
        y = n.binary(mode, y, operand)?;
    }
    if mean {
        y = n.with_number(PointwiseMode::Mul, y, 1.0 / count as f32)?;
    }
    n.output(0, y);
    Ok(())
}

/// Powers by the exponents that hipDNN has operations for.
fn pow(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let exponent = n.floats(1)?;
    let [exponent] = exponent[..] else {
        return declined(format!("expected one exponent, got {}", exponent.len()));
    };
    let data_type = n.data_type(x);
    let whole = matches!(data_type, DataType::Int32 | DataType::Int64) && [1.0, 2.0, 3.0, 4.0].contains(&exponent);
    if !is_float(data_type) && !whole {
        return declined(format!("{data_type} to the exponent {exponent} is not imported"));
    }
    let y = power(n, x, exponent)?;
    let dims = broadcast(&n.dims(x), &n.folded(1)?.map_or(Vec::new(), |folded| folded.dims))?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

/// `x` to one of the exponents ±0.5, 0.75, ±1, ±2, 3 and 4.
pub(super) fn power(n: &mut Importer<'_>, x: ValueId, exponent: f64) -> Result<ValueId, Declined> {
    match exponent {
        1.0 => Ok(x),
        2.0 => n.binary(PointwiseMode::Mul, x, x),
        3.0 => {
            let square = n.binary(PointwiseMode::Mul, x, x)?;
            n.binary(PointwiseMode::Mul, square, x)
        }
        4.0 => {
            let square = n.binary(PointwiseMode::Mul, x, x)?;
            n.binary(PointwiseMode::Mul, square, square)
        }
        0.5 => n.apply(PointwiseMode::Sqrt, x),
        0.75 => {
            let root = n.apply(PointwiseMode::Sqrt, x)?;
            let fourth = n.apply(PointwiseMode::Sqrt, root)?;
            n.binary(PointwiseMode::Mul, root, fourth)
        }
        -0.5 => n.apply(PointwiseMode::Rsqrt, x),
        -1.0 => n.apply(PointwiseMode::Reciprocal, x),
        -2.0 => {
            let square = n.binary(PointwiseMode::Mul, x, x)?;
            n.apply(PointwiseMode::Reciprocal, square)
        }
        other => declined(format!("hipDNN has no operation for the exponent {other}")),
    }
}

impl Importer<'_> {
    /// `predicate ? a : b`, broadcast as ONNX does.
    pub(super) fn select(&mut self, predicate: ValueId, a: ValueId, b: ValueId) -> Result<ValueId, Declined> {
        let data_type = self.common_type(a, b)?;
        self.select_to(predicate, a, b, data_type)
    }

    /// As [`Importer::select`], to that type.
    pub(super) fn select_to(
        &mut self,
        predicate: ValueId,
        a: ValueId,
        b: ValueId,
        data_type: DataType,
    ) -> Result<ValueId, Declined> {
        let exact = data_type == DataType::Int64 && self.data_type(predicate) == DataType::Boolean;
        let predicate = if exact { self.converted(predicate, DataType::Int32)? } else { predicate };
        let dims = broadcast(&self.dims(predicate), &broadcast(&self.dims(a), &self.dims(b))?)?;
        let [predicate, a, b] = [predicate, a, b].map(|id| self.ranked(id, dims.len()));
        self.emit(data_type, &dims, |y| {
            let binary = Pointwise::binary(PointwiseMode::BinarySelect, a.uid(), b.uid(), y.uid());
            Operation::Pointwise(Pointwise { in_2: Some(predicate.uid()), ..binary })
        })
    }
}

fn select(n: &mut Importer<'_>) -> Result<(), Declined> {
    let predicate = n.input(0)?;
    let ([a, b], data_type) = n.operands([1, 2], |data_type| is_number(data_type) || data_type == DataType::Boolean)?;
    let y = n.select_to(predicate, a, b, data_type)?;
    n.output(0, y);
    Ok(())
}
