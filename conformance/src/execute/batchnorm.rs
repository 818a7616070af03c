//! Batch normalization: statistics over everything but the channel, dimension 1.
//!
//! Engines compute `scale·(x − mean)·inv` as it stands, or as `x·a + b` with `a = scale·inv`, `b = bias − mean·a`; and the
//! variance as the mean of (x − mean)², or as the mean of x² less mean². The bounds admit both.

use hipdnn_schemas::{Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt};

use super::Step;
use crate::array::{Array, each_index};
use crate::number::{Arithmetic, Number, ulp};

/// `scale·(x − mean)·inv + bias`
pub(super) fn normalize(
    a: Arithmetic,
    x: Number,
    mean: Number,
    inv: Number,
    scale: Number,
    bias: Option<Number>,
) -> Number {
    let bias = bias.unwrap_or(Number::exact(0.0));
    let all = [x, mean, inv, scale, bias];
    if all.iter().any(|number| number.is_any()) {
        return Number::any();
    }
    let centered = x.value - mean.value;
    let value = scale.value * centered * inv.value + bias.value;
    if !value.is_finite() || all.iter().any(|number| !number.value.is_finite()) {
        // An infinity may meet another one in one form and not in the other.
        return if value.is_nan() && x.value.is_nan() { Number::exact(value) } else { Number::any() };
    }
    let slope = scale.magnitude() * inv.magnitude();
    let spread = centered.abs() + x.error + mean.error;
    let moved = slope * (x.error + mean.error)
        + spread * (scale.error * inv.magnitude() + inv.error * scale.magnitude())
        + bias.error;
    let magnitude = slope * (x.magnitude() + mean.magnitude()) + bias.magnitude();
    a.within(value, moved + a.gamma(5.0) * magnitude, 1.0)
}

/// `1/√(variance + epsilon)`
pub(super) fn inverse_deviation(a: Arithmetic, variance: Number, epsilon: Number) -> Number {
    let sum = a.add(variance, epsilon);
    if sum.error > 0.0 && sum.low() <= 0.0 {
        return Number::any();
    }
    a.monotone(sum, ulp::SQRT + ulp::DIVIDE, |v| 1.0 / v.sqrt())
}

/// Mean and variance of a group.
pub(super) fn moments(a: Arithmetic, group: &[Number]) -> (Number, Number) {
    let count = Number::exact(group.len() as f64);
    let mut sum = a.sum();
    group.iter().for_each(|x| sum.push(*x));
    let mean = a.div(sum.finish(), count);
    let mut squares = a.sum();
    let mut deviations = 0.0;
    let mut spread = 0.0;
    for x in group {
        squares.push_product(*x, *x);
        let deviation = x.value - mean.value;
        deviations += deviation * deviation;
        spread += 2.0 * (deviation.abs() + x.error) * x.error;
    }
    if mean.is_any() || !mean.value.is_finite() {
        let spoilt = if mean.is_any() { Number::any() } else { Number::exact(f64::NAN) };
        return (mean, spoilt);
    }
    let n = group.len() as f64;
    let squares = squares.finish();
    if squares.is_any() {
        return (mean, squares);
    }
    // Errors of the terms move both forms alike, by `spread`; the roundings of the second form are relative to x² and
    // mean², those of the first one smaller. The mean's own error e moves the first form by e², the second by 2·mean·e.
    let exact = deviations / n;
    let scale = squares.value / n + mean.value * mean.value;
    let e = mean.error;
    let error = spread / n + a.gamma(n + 4.0) * scale + 2.0 * mean.value.abs() * e + e * e;
    (mean, a.within(exact, error, 2.0))
}

fn channels(dims: &[usize]) -> usize {
    dims[1]
}

fn groups(array: &Array) -> Vec<Vec<Number>> {
    let mut groups = vec![Vec::new(); channels(&array.dims)];
    each_index(&array.dims, |at| groups[at[1]].push(array.at(at)));
    groups
}

fn apply(step: &mut Step, y: hipdnn_schemas::TensorUid, x: &Array, per_channel: impl Fn(usize, Number) -> Number) {
    let result = Array::from_fn(&x.dims, |at| per_channel(at[1], x.at(at)));
    step.write(y, result);
}

pub(super) fn inference(step: &mut Step, node: &BatchnormInference) -> Result<(), String> {
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let (mean, inv) = (step.operand(node.mean)?, step.operand(node.inv_variance)?);
    let (scale, bias) = (step.operand(node.scale)?, step.operand(node.bias)?);
    apply(step, node.y, &x, |c, x| normalize(a, x, mean.data[c], inv.data[c], scale.data[c], Some(bias.data[c])));
    Ok(())
}

pub(super) fn inference_with_variance(step: &mut Step, node: &BatchnormInferenceVarianceExt) -> Result<(), String> {
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let (mean, variance) = (step.operand(node.mean)?, step.operand(node.variance)?);
    let (scale, bias) = (step.operand(node.scale)?, step.operand(node.bias)?);
    let epsilon = step.operand(node.epsilon)?.scalar();
    let inv: Vec<Number> = variance.data.iter().map(|v| inverse_deviation(a, *v, epsilon)).collect();
    apply(step, node.y, &x, |c, x| normalize(a, x, mean.data[c], inv[c], scale.data[c], Some(bias.data[c])));
    Ok(())
}

pub(super) fn training(step: &mut Step, node: &Batchnorm) -> Result<(), String> {
    if !node.peer_stats.is_empty() {
        return Err("statistics of peers have no meaning within one process".into());
    }
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let (scale, bias) = (step.operand(node.scale)?, step.operand(node.bias)?);
    let epsilon = step.operand(node.epsilon)?.scalar();
    let groups = groups(&x);
    let moments: Vec<(Number, Number)> = groups.iter().map(|group| moments(a, group)).collect();
    let inv: Vec<Number> = moments.iter().map(|(_, variance)| inverse_deviation(a, *variance, epsilon)).collect();
    apply(step, node.y, &x, |c, x| normalize(a, x, moments[c].0, inv[c], scale.data[c], Some(bias.data[c])));
    if let Some(uid) = node.mean {
        step.write_list(uid, moments.iter().map(|(mean, _)| *mean).collect());
    }
    if let Some(uid) = node.inv_variance {
        step.write_list(uid, inv);
    }
    // next = (1 − momentum)·previous + momentum·current, the variance being the unbiased one.
    let momentum = step.optional(node.momentum)?.map(|momentum| momentum.scalar());
    let blend = |previous: Number, current: Number| -> Result<Number, String> {
        let momentum = momentum.ok_or("running statistics have no momentum")?;
        let keep = a.sub(Number::exact(1.0), momentum);
        Ok(a.add(a.mul(keep, previous), a.mul(momentum, current)))
    };
    if let Some(uid) = node.next_running_mean {
        let previous = step.optional(node.prev_running_mean)?.ok_or("next_running_mean without prev_running_mean")?;
        let next = moments.iter().zip(&previous.data).map(|((mean, _), p)| blend(*p, *mean));
        step.write_list(uid, next.collect::<Result<_, _>>()?);
    }
    if let Some(uid) = node.next_running_variance {
        let previous =
            step.optional(node.prev_running_variance)?.ok_or("next_running_variance without prev_running_variance")?;
        let count = groups[0].len() as f64;
        let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let next = moments.iter().zip(&previous.data).map(|((_, variance), p)| {
            let unbiased = a.within(variance.value * correction, variance.error * correction, 3.0);
            blend(*p, if variance.is_any() { *variance } else { unbiased })
        });
        step.write_list(uid, next.collect::<Result<_, _>>()?);
    }
    Ok(())
}

/// The epsilon of hipDNN's reference where the gradient has to compute the statistics itself.
const EPSILON: f64 = 1e-5;

pub(super) fn backward(step: &mut Step, node: &BatchnormBackward) -> Result<(), String> {
    if !node.peer_stats.is_empty() {
        return Err("statistics of peers have no meaning within one process".into());
    }
    let a = step.arithmetic;
    let (x, dy, scale) = (step.operand(node.x)?, step.operand(node.dy)?, step.operand(node.scale)?);
    let (x_groups, dy_groups) = (groups(&x), groups(&dy));
    let (mean, inv) = match (step.optional(node.mean)?, step.optional(node.inv_variance)?) {
        (Some(mean), Some(inv)) => (mean.data, inv.data),
        (None, None) => {
            let epsilon = a.operand(Number::exact(EPSILON));
            let moments: Vec<_> = x_groups.iter().map(|group| moments(a, group)).collect();
            let inv = moments.iter().map(|(_, variance)| inverse_deviation(a, *variance, epsilon)).collect();
            (moments.iter().map(|(mean, _)| *mean).collect(), inv)
        }
        _ => return Err("mean and inv_variance come together or not at all".into()),
    };
    let one = Number::exact(1.0);
    let mut sums = Vec::new();
    for c in 0..channels(&x.dims) {
        let (mut dot, mut plain) = (a.sum(), a.sum());
        // Σ dy·(x − mean)·inv, the factor inside or outside of the sum: the bound of the terms covers both.
        for (x, dy) in x_groups[c].iter().zip(&dy_groups[c]) {
            dot.push_product(normalize(a, *x, mean[c], inv[c], one, None), *dy);
            plain.push(*dy);
        }
        sums.push((dot.finish(), plain.finish()));
    }
    let count = Number::exact(x_groups[0].len() as f64);
    let dx = Array::from_fn(&x.dims, |at| {
        let c = at[1];
        let (dot, plain) = sums[c];
        let normal = normalize(a, x.at(at), mean[c], inv[c], one, None);
        gradient(a, dy.at(at), normal, a.div(plain, count), a.div(dot, count), a.mul(scale.data[c], inv[c]))
    });
    step.write(node.dx, dx);
    step.write_list(node.dscale, sums.iter().map(|(dot, _)| *dot).collect());
    step.write_list(node.dbias, sums.iter().map(|(_, plain)| *plain).collect());
    Ok(())
}

/// `factor·(dy − mean(dy) − normal·mean(dy·normal))`, or with the factor multiplied into each term.
pub(super) fn gradient(
    a: Arithmetic,
    dy: Number,
    normal: Number,
    plain: Number,
    dot: Number,
    factor: Number,
) -> Number {
    let mut sum = a.sum();
    sum.push(a.mul(factor, dy));
    let negative = |x: Number| Number { value: -x.value, error: x.error };
    sum.push(a.mul(factor, negative(plain)));
    sum.push(a.mul(factor, a.mul(normal, negative(dot))));
    sum.finish()
}
