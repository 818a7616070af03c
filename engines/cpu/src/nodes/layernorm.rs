//! Layer normalization: see [`hipdnn_engine_core::ops::layernorm`].

use hipdnn_engine_core::{Declined, ops::layernorm};
use hipdnn_schemas::{Graph, Layernorm, LayernormBackward};

use super::normalization::lowering::lower as lowered;
use crate::work::Work;

/// Lowers a forward pass.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &Layernorm) -> Result<Work, Declined> {
    Ok(lowered(graph, layernorm::forward(graph, index, node)?))
}

/// Lowers a gradient.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_backward(graph: &Graph, index: usize, node: &LayernormBackward) -> Result<Work, Declined> {
    Ok(lowered(graph, layernorm::backward(graph, index, node)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::normalization::tests::{Gradients, Groups, approx, approx_normalized, types};
    use crate::nodes::testing::{Bench, noise};
    use DataType::{BFloat16, Float, Half};
    use hipdnn_schemas::{DataType, NormFwdPhase, Operation, TensorDef, TensorUid, TensorValue};

    /// Case: name, extents, strides of x, number of normalized dimensions.
    type Shape = (&'static str, &'static [i64], &'static [i64], i64);

    const SHAPES: &[Shape] = &[
        ("rows", &[7, 33], &[33, 1], 1),
        ("long rows", &[3, 5, 1700], &[8500, 1700, 1], 1),
        ("many short rows", &[40, 50, 17], &[850, 17, 1], 1),
        ("images", &[3, 4, 5, 6], &[120, 30, 6, 1], 3),
        ("images, channels last", &[3, 4, 5, 6], &[120, 1, 24, 4], 3),
        ("the last dimension, channels last", &[3, 150, 5, 6], &[4500, 1, 900, 150], 1),
        ("everything", &[4, 5, 6], &[30, 6, 1], 3),
        ("a row of one", &[5, 1], &[1, 1], 1),
        ("one row", &[1, 4, 9], &[36, 9, 1], 2),
        ("sliced", &[4, 3, 5], &[200, 40, 7], 2),
        ("transposed", &[70, 3, 9], &[1, 630, 70], 2),
        ("one row in segments", &[2, 70_003], &[70_003, 1], 1),
        ("gradients of scales in segments", &[8001, 9], &[9, 1], 1),
    ];

    const TYPES: &[(DataType, DataType, DataType)] =
        &[(Float, Float, Float), (Half, Half, Half), (BFloat16, Float, Float), (Half, BFloat16, Float)];

    /// Extents of parameters and of statistics, with all dimensions or only their own.
    fn parts(dims: &[i64], count: i64, whole: bool) -> (Vec<i64>, Vec<i64>) {
        let first = dims.len() - count as usize;
        let (outer, inner) = dims.split_at(first);
        if whole || first == 0 {
            return ([vec![1; first], inner.to_vec()].concat(), [outer.to_vec(), vec![1; count as usize]].concat());
        }
        (inner.to_vec(), outer.to_vec())
    }

    #[test]
    fn forward_gives_result_and_statistics() {
        for (turn, (what, dims, strides, count)) in SHAPES.iter().enumerate() {
            for (x_type, y_type, parameters) in types(TYPES, dims) {
                let (inner, outer) = parts(dims, *count, turn % 2 == 0);
                let node = Layernorm {
                    x: TensorUid(0),
                    scale: TensorUid(1),
                    bias: TensorUid(2),
                    epsilon: TensorUid(3),
                    y: TensorUid(4),
                    normalized_dim_count: *count,
                    mean: (turn % 3 != 0).then_some(TensorUid(5)),
                    inv_variance: (turn % 3 != 1).then_some(TensorUid(6)),
                    forward_phase: NormFwdPhase::Training,
                };
                let mut bench = Bench::new(
                    Operation::Layernorm(node),
                    vec![
                        TensorDef::new(0, *x_type, dims).strided(strides),
                        TensorDef::new(1, *parameters, &inner),
                        TensorDef::new(2, *parameters, &inner),
                        TensorDef::new(3, Float, &[1]).with_value(TensorValue::Float32(0.5)),
                        TensorDef::new(4, *y_type, dims),
                        TensorDef::new(5, Float, &outer),
                        TensorDef::new(6, *parameters, &outer),
                    ],
                );
                let x = bench.fill(0, |i| noise(i) * 5.0 - 2.0);
                let [scale, bias] = [1, 2].map(|uid| bench.fill(uid, |i| noise(i + 100 * uid as usize)));
                let groups = Groups::new(&x, dims, |axis| axis >= dims.len() - *count as usize);
                let statistics = groups.statistics(0.5, true);
                for threads in [1, 2] {
                    let got = bench.run(threads);
                    let want = x.iter().enumerate().map(|(i, x)| {
                        let (group, element) = groups.split(i);
                        let s = &statistics[group];
                        (x - s.mean) * s.inverse * scale[element] + bias[element]
                    });
                    approx_normalized(&got[&4], want, *y_type, |i| statistics[groups.group(i)].weight, what);
                    if let Some(mean) = got.get(&5) {
                        approx(mean, statistics.iter().map(|s| s.mean), Float, |g| statistics[g].size, what);
                    }
                    if let Some(inverse) = got.get(&6) {
                        let want = statistics.iter().map(|s| s.inverse);
                        approx(inverse, want, *parameters, |g| statistics[g].inverse, what);
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_formula() {
        for (turn, (what, dims, strides, count)) in SHAPES.iter().enumerate() {
            for (x_type, y_type, parameters) in types(TYPES, dims) {
                let saved = turn % 2 == 0;
                let (inner, outer) = parts(dims, *count, turn % 3 == 0);
                let node = LayernormBackward {
                    dy: TensorUid(0),
                    x: TensorUid(1),
                    scale: TensorUid(2),
                    mean: saved.then_some(TensorUid(3)),
                    inv_variance: saved.then_some(TensorUid(4)),
                    epsilon: (!saved).then_some(TensorUid(5)),
                    dx: TensorUid(6),
                    dscale: TensorUid(7),
                    dbias: (turn % 4 != 3).then_some(TensorUid(8)),
                    normalized_dim_count: *count,
                };
                let mut bench = Bench::new(
                    Operation::LayernormBackward(node),
                    vec![
                        TensorDef::new(0, *y_type, dims),
                        TensorDef::new(1, *x_type, dims).strided(strides),
                        TensorDef::new(2, *parameters, &inner),
                        TensorDef::new(3, Float, &outer),
                        TensorDef::new(4, Float, &outer),
                        TensorDef::new(5, Float, &[1]).with_value(TensorValue::Float32(0.25)),
                        TensorDef::new(6, *x_type, dims).strided(strides),
                        TensorDef::new(7, *parameters, &inner),
                        TensorDef::new(8, *parameters, &inner),
                    ],
                );
                let dy = bench.fill(0, |i| noise(i + 11));
                let x = bench.fill(1, |i| noise(i) * 2.0 + 1.0);
                let scale = bench.fill(2, |i| noise(i + 5) + 0.75);
                let groups = Groups::new(&x, dims, |axis| axis >= dims.len() - *count as usize);
                let mut statistics = groups.statistics(0.25, true);
                if saved {
                    let mean = bench.fill(3, |g| statistics[g].mean);
                    let inverse = bench.fill(4, |g| statistics[g].inverse);
                    for (g, statistics) in statistics.iter_mut().enumerate() {
                        (statistics.mean, statistics.inverse) = (mean[g], inverse[g]);
                    }
                }
                let want = Gradients::new(&groups, &statistics, &dy, &scale, true);
                for threads in [1, 2] {
                    let got = bench.run(threads);
                    approx(&got[&6], want.dx.iter().copied(), *x_type, |i| want.dx_weight[i], what);
                    approx(&got[&7], want.dscale.iter().copied(), *parameters, |e| want.weight[e], what);
                    if let Some(dbias) = got.get(&8) {
                        approx(dbias, want.dbias.iter().copied(), *parameters, |e| want.weight[e], what);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let node = |scale: i64, mean: Option<i64>, epsilon: Option<i64>| {
            Operation::LayernormBackward(LayernormBackward {
                dy: TensorUid(0),
                x: TensorUid(1),
                scale: TensorUid(scale),
                mean: mean.map(TensorUid),
                inv_variance: None,
                epsilon: epsilon.map(TensorUid),
                dx: TensorUid(6),
                dscale: TensorUid(7),
                dbias: None,
                normalized_dim_count: 2,
            })
        };
        let tensors = || {
            vec![
                TensorDef::new(0, Float, &[2, 3, 4]),
                TensorDef::new(1, Float, &[2, 3, 4]),
                TensorDef::new(2, Float, &[3, 4]),
                TensorDef::new(3, Float, &[2]),
                TensorDef::new(4, Float, &[12]),
                TensorDef::new(6, Float, &[2, 3, 4]),
                TensorDef::new(7, Float, &[3, 4]),
            ]
        };
        for (operation, want) in [
            (node(2, None, None), "epsilon_tensor_uid: expected a tensor, as no statistics are given, got null"),
            (node(2, Some(3), None), "mean_tensor_uid: expected none without inv_variance, got 3"),
            (node(4, None, None), "scale (tensor 4): expected extents [3, 4] and ones, got [12]"),
        ] {
            let reason = Bench::declined(operation, tensors());
            assert!(reason.contains(want) && reason.starts_with("node 0 (LayernormBackward)"), "{reason}");
        }
    }
}
