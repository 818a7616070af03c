//! Layer normalization: statistics over the last dimensions.

use hipdnn_schemas::{Layernorm, LayernormBackward};

use super::Step;
use super::batchnorm::{gradient, inverse_deviation, moments, normalize};
use crate::array::Array;
use crate::number::{Arithmetic, Number};

/// The size of a row: the product of the last `count` extents.
fn row(dims: &[usize], count: i64) -> usize {
    dims[dims.len() - count as usize..].iter().product()
}

pub(super) fn forward(step: &mut Step, node: &Layernorm) -> Result<(), String> {
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let (scale, bias) = (step.operand(node.scale)?, step.operand(node.bias)?);
    let epsilon = step.operand(node.epsilon)?.scalar();
    let row = row(&x.dims, node.normalized_dim_count);
    let statistics: Vec<(Number, Number)> = x
        .data
        .chunks(row)
        .map(|row| {
            let (mean, variance) = moments(a, row);
            (mean, inverse_deviation(a, variance, epsilon))
        })
        .collect();
    let y = x.data.iter().enumerate().map(|(i, x)| {
        let (mean, inv) = statistics[i / row];
        normalize(a, *x, mean, inv, scale.data[i % row], Some(bias.data[i % row]))
    });
    let y = Array { dims: x.dims.clone(), data: y.collect() };
    step.write(node.y, y);
    if let Some(uid) = node.mean {
        step.write_list(uid, statistics.iter().map(|(mean, _)| *mean).collect());
    }
    if let Some(uid) = node.inv_variance {
        step.write_list(uid, statistics.iter().map(|(_, inv)| *inv).collect());
    }
    Ok(())
}

pub(super) fn backward(step: &mut Step, node: &LayernormBackward) -> Result<(), String> {
    let a = step.arithmetic;
    let (x, dy, scale) = (step.operand(node.x)?, step.operand(node.dy)?, step.operand(node.scale)?);
    let row = row(&x.dims, node.normalized_dim_count);
    let statistics: Vec<(Number, Number)> = match (step.optional(node.mean)?, step.optional(node.inv_variance)?) {
        (Some(mean), Some(inv)) => mean.data.into_iter().zip(inv.data).collect(),
        (None, None) => {
            let epsilon = step.optional(node.epsilon)?.ok_or("neither statistics nor epsilon are given")?.scalar();
            let of_row = |row: &[Number]| {
                let (mean, variance) = moments(a, row);
                (mean, inverse_deviation(a, variance, epsilon))
            };
            x.data.chunks(row).map(of_row).collect()
        }
        _ => return Err("mean and inv_variance come together or not at all".into()),
    };
    let one = Number::exact(1.0);
    let normal: Vec<Number> = x
        .data
        .iter()
        .enumerate()
        .map(|(i, x)| normalize(a, *x, statistics[i / row].0, statistics[i / row].1, one, None))
        .collect();
    let scaled: Vec<Number> = dy.data.iter().enumerate().map(|(i, dy)| a.mul(*dy, scale.data[i % row])).collect();
    let count = Number::exact(row as f64);
    let mut dx = Vec::with_capacity(x.data.len());
    for (r, (normal, scaled)) in normal.chunks(row).zip(scaled.chunks(row)).enumerate() {
        let (mut dot, mut plain) = (a.sum(), a.sum());
        for (normal, scaled) in normal.iter().zip(scaled) {
            dot.push_product(*normal, *scaled);
            plain.push(*scaled);
        }
        let (dot, plain) = (a.div(dot.finish(), count), a.div(plain.finish(), count));
        let inv = statistics[r].1;
        dx.extend(normal.iter().zip(scaled).map(|(normal, scaled)| gradient(a, *scaled, *normal, plain, dot, inv)));
    }
    step.write(node.dx, Array { dims: x.dims.clone(), data: dx });
    step.write_list(node.dscale, columns(a, row, dy.data.iter().copied().zip(normal)));
    if let Some(uid) = node.dbias {
        step.write_list(uid, columns(a, row, dy.data.iter().map(|dy| (*dy, one))));
    }
    Ok(())
}

/// Sums of products over everything that has the same place in its row.
pub(super) fn columns(a: Arithmetic, row: usize, products: impl Iterator<Item = (Number, Number)>) -> Vec<Number> {
    let mut sums = vec![a.sum(); row];
    for (i, (left, right)) in products.enumerate() {
        sums[i % row].push_product(left, right);
    }
    sums.into_iter().map(|sum| sum.finish()).collect()
}
