//! Normalization by the root mean square, over the dimensions that the scale runs along.

use hipdnn_schemas::{RmsNorm, RmsNormBackward, TensorUid};

use super::Step;
use super::batchnorm::inverse_deviation;
use super::layernorm::columns;
use crate::array::Array;
use crate::number::Number;

/// The size of a row: the last extents of x that the scale shares.
///
/// # Errors
/// If the scale does not run along the last dimensions of x and only these.
fn row(step: &Step, x: TensorUid, scale: TensorUid) -> Result<usize, String> {
    let (x, scale) = (step.tensor(x).dims(), step.tensor(scale).dims());
    let shared = x.iter().zip(scale).rev().take_while(|(x, scale)| x == scale).count();
    let rest = x.len() - shared;
    if scale[..rest].iter().any(|extent| *extent != 1) || scale[rest..].iter().all(|extent| *extent == 1) {
        return Err(format!("expected a scale along the last dimensions of {x:?}, got {scale:?}"));
    }
    // A scale as large as x leaves the first dimension out: it is the batch.
    let first = if rest == 0 { 1 } else { rest };
    if rest == 0 && x[0] != 1 {
        return Err(format!("expected a scale that repeats along dimension 0 of {x:?}, got {scale:?}"));
    }
    Ok(x[first..].iter().product())
}

pub(super) fn forward(step: &mut Step, node: &RmsNorm) -> Result<(), String> {
    let a = step.arithmetic;
    let row = row(step, node.x, node.scale)?;
    let (x, scale) = (step.operand(node.x)?, step.operand(node.scale)?);
    let bias = step.optional(node.bias)?;
    let epsilon = step.operand(node.epsilon)?.scalar();
    let count = Number::exact(row as f64);
    let inv: Vec<Number> = x
        .data
        .chunks(row)
        .map(|row| {
            let mut squares = a.sum();
            row.iter().for_each(|x| squares.push_product(*x, *x));
            inverse_deviation(a, a.div(squares.finish(), count), epsilon)
        })
        .collect();
    let y = x.data.iter().enumerate().map(|(i, x)| {
        let y = a.mul(a.mul(*x, inv[i / row]), scale.data[i % row]);
        bias.as_ref().map_or(y, |bias| a.add(y, bias.data[i % row]))
    });
    let y = Array { dims: x.dims.clone(), data: y.collect() };
    step.write(node.y, y);
    if let Some(uid) = node.inv_rms {
        step.write_list(uid, inv);
    }
    Ok(())
}

/// `dx = inv·dy·scale − x·inv³·mean(dy·scale·x)`
pub(super) fn backward(step: &mut Step, node: &RmsNormBackward) -> Result<(), String> {
    let a = step.arithmetic;
    let row = row(step, node.x, node.scale)?;
    let (x, dy, scale) = (step.operand(node.x)?, step.operand(node.dy)?, step.operand(node.scale)?);
    let inv = step.operand(node.inv_rms)?;
    let count = Number::exact(row as f64);
    let mut dx = Vec::with_capacity(x.data.len());
    for (r, (x, dy)) in x.data.chunks(row).zip(dy.data.chunks(row)).enumerate() {
        let inv = inv.data[r];
        let scaled: Vec<Number> = dy.iter().zip(&scale.data).map(|(dy, scale)| a.mul(*dy, *scale)).collect();
        let mut dot = a.sum();
        x.iter().zip(&scaled).for_each(|(x, scaled)| dot.push_product(*x, *scaled));
        let mean = a.div(dot.finish(), count);
        let cubed = a.mul(a.mul(inv, inv), inv);
        dx.extend(x.iter().zip(&scaled).map(|(x, scaled)| a.sub(a.mul(*scaled, inv), a.mul(a.mul(*x, mean), cubed))));
    }
    step.write(node.dx, Array { dims: x.dims.clone(), data: dx });
    let normal = x.data.iter().enumerate().map(|(i, x)| a.mul(*x, inv.data[i / row]));
    let dscale = columns(a, row, dy.data.iter().copied().zip(normal));
    step.write_list(node.dscale, dscale);
    if let Some(uid) = node.dbias {
        step.write_list(uid, columns(a, row, dy.data.iter().map(|dy| (*dy, Number::exact(1.0)))));
    }
    Ok(())
}
