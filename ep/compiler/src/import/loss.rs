//! Losses: the logarithm of the probability of each target.

use hipdnn_schemas::{DataType, PointwiseMode, ReductionMode};

use super::{Attribute, Declined, Importer, Operator, computes, declined};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    computes("NegativeLogLikelihoodLoss", negative_log_likelihood),
    computes("SoftmaxCrossEntropyLoss", cross_entropy),
];

fn negative_log_likelihood(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let y = loss(n, x)?;
    n.output(0, y);
    Ok(())
}

fn cross_entropy(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    if n.rank(x) < 2 {
        return declined(format!("expected at least 2 dimensions, got {}", n.rank(x)));
    }
    let logarithms = n.softmax(x, 1, true)?;
    let y = loss(n, logarithms)?;
    n.output(0, y);
    n.output(1, logarithms);
    Ok(())
}

/// The loss of [N, C, ...] at targets [N, ...], input 1, weighted by class with input 2.
fn loss(n: &mut Importer<'_>, x: ValueId) -> Result<ValueId, Declined> {
    let (dims, data_type) = (n.dims(x), n.data_type(x));
    if dims.len() < 2 || dims.contains(&0) {
        return declined(format!("expected [N, C, ...] with elements, got {dims:?}"));
    }
    let target = n.input(1)?;
    let (kind, shape) = (n.data_type(target), n.dims(target));
    let mut wanted = dims.clone();
    wanted.remove(1);
    if shape != wanted || !matches!(kind, DataType::Int32 | DataType::Int64) {
        return declined(format!("expected int32 or int64 targets of extents {wanted:?}, got {kind} of {shape:?}"));
    }
    let rank = dims.len();
    let mut column = dims.clone();
    column[1] = 1;
    let target = n.reshape(target, &column);
    let classes = n.indices(1, dims[1], rank, kind);
    let hit = n.binary_to(PointwiseMode::CmpEq, target, classes, DataType::Boolean)?;
    let zero = n.number(0.0, data_type, rank);
    let picked = n.select_to(hit, x, zero, data_type)?;
    let mut y = n.reduce(ReductionMode::Add, picked, &[1])?;
    y = n.apply(PointwiseMode::Neg, y)?;
    // The weight of each target; `None` if all are 1.
    let mut weights = None;
    if n.has_input(2) {
        let weight = n.float_input(2)?;
        if *n.dims(weight) != [dims[1]] {
            return declined(format!("expected {} weights, got extents {:?}", dims[1], n.dims(weight)));
        }
        let mut row = vec![1; rank];
        row[1] = dims[1];
        let weight = n.reshape(weight, &row);
        let own = n.select_to(hit, weight, zero, data_type)?;
        weights = Some(n.reduce(ReductionMode::Add, own, &[1])?);
    }
    if let Some(Attribute::Int(ignored)) = n.attribute("ignore_index") {
        let ignored = n.number(*ignored as f64, kind, rank);
        let keeps = n.binary_to(PointwiseMode::CmpNeq, target, ignored, DataType::Boolean)?;
        weights = Some(match weights {
            Some(weights) => n.select_to(keeps, weights, zero, data_type)?,
            None => n.converted(keeps, data_type)?,
        });
        y = n.select_to(keeps, y, zero, data_type)?;
    }
    if let Some(weights) = weights {
        y = n.binary(PointwiseMode::Mul, y, weights)?;
    }
    let all: Vec<usize> = (0..rank).collect();
    let y = match n.text("reduction") {
        "none" => return Ok(n.reshape(y, &wanted)),
        "sum" => n.reduce(ReductionMode::Add, y, &all)?,
        "" | "mean" => match weights {
            None => n.reduce(ReductionMode::Average, y, &all)?,
            Some(weights) => {
                let sum = n.reduce(ReductionMode::Add, y, &all)?;
                let weight = n.reduce(ReductionMode::Add, weights, &all)?;
                n.binary(PointwiseMode::Div, sum, weight)?
            }
        },
        other => return declined(format!("expected reduction none, sum or mean, got {other:?}")),
    };
    Ok(n.reshape(y, &[]))
}
