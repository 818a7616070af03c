//! Arithmetic, comparisons and choices of broadcast operands.

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode};

use super::{Declined, Importer, Operator, broadcast, computes, declined, is_float};
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
    computes("Mul", |n| arithmetic(n, PointwiseMode::Mul)),
    computes("Not", not),
    computes("Or", |n| logic(n, PointwiseMode::LogicalOr)),
    computes("Pow", pow),
    computes("Sub", |n| arithmetic(n, PointwiseMode::Sub)),
    computes("Sum", |n| variadic(n, PointwiseMode::Add, false)),
    computes("Where", select),
    computes("Xor", xor),
];

/// Both operands, of one floating-point type.
fn floats(n: &mut Importer<'_>) -> Result<(ValueId, ValueId), Declined> {
    // Before the seventh operator set broadcasting had an axis of its own.
    if n.since() < 7 && n.int("broadcast", 0) != 0 {
        return declined("broadcasting along an axis, as before operator set 7, is not imported");
    }
    let (a, b) = (n.operand(0)?, n.operand(1)?);
    for (index, id) in [a, b].into_iter().enumerate() {
        let data_type = n.data_type(id);
        if !is_float(data_type) {
            return declined(format!("its input {index} is of type {data_type}, expected float, half or bfloat16"));
        }
    }
    Ok((a, b))
}

fn arithmetic(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let (a, b) = floats(n)?;
    let y = n.binary(mode, a, b)?;
    n.output(0, y);
    Ok(())
}

fn comparison(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    if n.since() < 7 && n.int("broadcast", 0) != 0 {
        return declined("broadcasting along an axis, as before operator set 7, is not imported");
    }
    let (a, b) = (n.operand(0)?, n.operand(1)?);
    let y = n.binary_to(mode, a, b, DataType::Boolean)?;
    n.output(0, y);
    Ok(())
}

fn booleans(n: &mut Importer<'_>, count: usize) -> Result<Vec<ValueId>, Declined> {
    (0..count)
        .map(|index| {
            let id = n.input(index)?;
            match n.data_type(id) {
                DataType::Boolean => Ok(id),
                other => declined(format!("its input {index} is of type {other}, expected boolean")),
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
    let mut y = n.float_input(0)?;
    for index in 1..count {
        let operand = n.float_input(index)?;
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
    let x = n.float_input(0)?;
    let exponent = n.floats(1)?;
    let [exponent] = exponent[..] else {
        return declined(format!("expected one exponent, got {}", exponent.len()));
    };
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
    let (a, b) = (n.operand(1)?, n.operand(2)?);
    for id in [a, b] {
        let data_type = n.data_type(id);
        if !is_float(data_type) {
            return declined(format!("its choices are of type {data_type}, expected float, half or bfloat16"));
        }
    }
    let y = n.select(predicate, a, b)?;
    n.output(0, y);
    Ok(())
}
