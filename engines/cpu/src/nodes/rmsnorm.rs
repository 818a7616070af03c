//! RMS normalization: see [`hipdnn_engine_core::ops::rmsnorm`].

use hipdnn_engine_core::{Declined, ops::rmsnorm};
use hipdnn_schemas::{Graph, RmsNorm, RmsNormBackward};

use super::normalization::lowering::lower as lowered;
use crate::work::Work;

/// Lowers a forward pass.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &RmsNorm) -> Result<Work, Declined> {
    Ok(lowered(graph, rmsnorm::forward(graph, index, node)?))
}

/// Lowers a gradient.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_backward(graph: &Graph, index: usize, node: &RmsNormBackward) -> Result<Work, Declined> {
    Ok(lowered(graph, rmsnorm::backward(graph, index, node)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::normalization::tests::{Gradients, Groups, approx, approx_normalized, types};
    use crate::nodes::testing::{Bench, noise};
    use DataType::{BFloat16, Float, Half};
    use hipdnn_schemas::{DataType, NormFwdPhase, Operation, TensorDef, TensorUid, TensorValue};

    /// Case: name, extents, strides of x, extents of the scale, the first dimension of a row.
    type Shape = (&'static str, &'static [i64], &'static [i64], &'static [i64], usize);

    const SHAPES: &[Shape] = &[
        ("rows", &[7, 33], &[33, 1], &[1, 33], 1),
        ("long rows", &[3, 5, 1700], &[8500, 1700, 1], &[1, 1, 1700], 2),
        ("channels of 1×1 images", &[6, 200, 1, 1], &[200, 1, 1, 1], &[1, 200, 1, 1], 1),
        ("images", &[3, 4, 5, 6], &[120, 30, 6, 1], &[1, 4, 5, 6], 1),
        ("rows of images, channels last", &[3, 140, 5, 6], &[4200, 1, 840, 140], &[1, 1, 5, 6], 2),
        ("one image: never the first dimension", &[1, 8], &[8, 1], &[1, 8], 1),
        ("sliced", &[4, 3, 5], &[200, 40, 7], &[1, 3, 5], 1),
        ("one row in segments", &[2, 70_001], &[70_001, 1], &[1, 70_001], 1),
    ];

    const TYPES: &[(DataType, DataType, DataType)] =
        &[(Float, Float, Float), (Half, Half, Half), (BFloat16, BFloat16, Float)];

    fn leading(dims: &[i64], first: usize) -> Vec<i64> {
        [dims[..first].to_vec(), vec![1; dims.len() - first]].concat()
    }

    #[test]
    fn forward_divides_rows_by_their_root_mean_square() {
        for (turn, (what, dims, strides, scale_dims, first)) in SHAPES.iter().enumerate() {
            for (x_type, y_type, parameters) in types(TYPES, dims) {
                let node = RmsNorm {
                    x: TensorUid(0),
                    scale: TensorUid(1),
                    epsilon: TensorUid(2),
                    bias: (turn % 2 == 0).then_some(TensorUid(3)),
                    y: TensorUid(4),
                    inv_rms: (turn % 3 != 2).then_some(TensorUid(5)),
                    forward_phase: NormFwdPhase::Training,
                };
                let mut bench = Bench::new(
                    Operation::RmsNorm(node),
                    vec![
                        TensorDef::new(0, *x_type, dims).strided(strides),
                        TensorDef::new(1, *parameters, scale_dims),
                        TensorDef::new(2, Float, &[1]).with_value(TensorValue::Float32(0.125)),
                        TensorDef::new(3, *parameters, scale_dims),
                        TensorDef::new(4, *y_type, dims).strided(strides),
                        TensorDef::new(5, Float, &leading(dims, *first)),
                    ],
                );
                let x = bench.fill(0, |i| noise(i) * 5.0 + 2.0);
                let scale = bench.fill(1, |i| noise(i + 50));
                let bias = if turn % 2 == 0 { bench.fill(3, |i| noise(i + 60)) } else { vec![0.0; scale.len()] };
                let groups = Groups::new(&x, dims, |axis| axis >= *first);
                let statistics = groups.statistics(0.125, false);
                for threads in [1, 2] {
                    let got = bench.run(threads);
                    let want = x.iter().enumerate().map(|(i, x)| {
                        let (group, element) = groups.split(i);
                        x * statistics[group].inverse * scale[element] + bias[element]
                    });
                    approx_normalized(&got[&4], want, *y_type, |i| statistics[groups.group(i)].weight, what);
                    if let Some(inverse) = got.get(&5) {
                        approx(inverse, statistics.iter().map(|s| s.inverse), Float, |g| statistics[g].inverse, what);
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_formula() {
        for (turn, (what, dims, strides, scale_dims, first)) in SHAPES.iter().enumerate() {
            for (x_type, y_type, parameters) in types(TYPES, dims) {
                let node = RmsNormBackward {
                    dy: TensorUid(0),
                    x: TensorUid(1),
                    scale: TensorUid(2),
                    inv_rms: TensorUid(3),
                    dx: TensorUid(4),
                    dscale: TensorUid(5),
                    dbias: (turn % 2 == 0).then_some(TensorUid(6)),
                };
                let mut bench = Bench::new(
                    Operation::RmsNormBackward(node),
                    vec![
                        TensorDef::new(0, *y_type, dims).strided(strides),
                        TensorDef::new(1, *x_type, dims),
                        TensorDef::new(2, *parameters, scale_dims),
                        TensorDef::new(3, Float, &leading(dims, *first)),
                        TensorDef::new(4, *x_type, dims),
                        TensorDef::new(5, *parameters, scale_dims),
                        TensorDef::new(6, *parameters, scale_dims),
                    ],
                );
                let dy = bench.fill(0, |i| noise(i + 11));
                let x = bench.fill(1, |i| noise(i) * 2.0 + 1.0);
                let scale = bench.fill(2, |i| noise(i + 5) + 0.75);
                let groups = Groups::new(&x, dims, |axis| axis >= *first);
                let mut statistics = groups.statistics(0.25, false);
                let inverse = bench.fill(3, |g| statistics[g].inverse);
                for (statistics, inverse) in statistics.iter_mut().zip(&inverse) {
                    statistics.inverse = *inverse;
                }
                let want = Gradients::new(&groups, &statistics, &dy, &scale, false);
                for threads in [1, 2] {
                    let got = bench.run(threads);
                    approx(&got[&4], want.dx.iter().copied(), *x_type, |i| want.dx_weight[i], what);
                    approx(&got[&5], want.dscale.iter().copied(), *parameters, |e| want.weight[e], what);
                    if let Some(dbias) = got.get(&6) {
                        approx(dbias, want.dbias.iter().copied(), *parameters, |e| want.weight[e], what);
                    }
                }
            }
        }
    }

    #[test]
    fn scales_of_other_shapes_are_declined() {
        for (scale, wanted) in [
            ([1, 3, 1, 1], "of ones and then the last of [2, 3, 4, 5]"),
            ([1, 3, 1, 5], "of ones and then the last of [2, 3, 4, 5]"),
            ([1, 1, 1, 1], "of ones and then the last of [2, 3, 4, 5]"),
        ] {
            let node = RmsNorm {
                x: TensorUid(0),
                scale: TensorUid(1),
                epsilon: TensorUid(2),
                bias: None,
                y: TensorUid(4),
                inv_rms: None,
                forward_phase: NormFwdPhase::Inference,
            };
            let tensors = vec![
                TensorDef::new(0, Float, &[2, 3, 4, 5]),
                TensorDef::new(1, Float, &scale),
                TensorDef::new(2, Float, &[1]).with_value(TensorValue::Float32(1e-5)),
                TensorDef::new(4, Float, &[2, 3, 4, 5]),
            ];
            let reason = Bench::declined(Operation::RmsNorm(node), tensors);
            let want = format!("scale (tensor 1): expected extents {wanted}, got {scale:?}");
            assert!(reason.contains(&want) && reason.starts_with("node 0 (RMSNorm)"), "{reason}");
        }
    }

    #[test]
    fn an_infinity_stays_in_its_place() {
        let node = RmsNorm {
            x: TensorUid(0),
            scale: TensorUid(1),
            epsilon: TensorUid(2),
            bias: None,
            y: TensorUid(4),
            inv_rms: Some(TensorUid(5)),
            forward_phase: NormFwdPhase::Training,
        };
        let mut bench = Bench::new(
            Operation::RmsNorm(node),
            vec![
                TensorDef::new(0, Float, &[2, 4]),
                TensorDef::new(1, Float, &[1, 4]),
                TensorDef::new(2, Float, &[1]).with_value(TensorValue::Float32(0.0)),
                TensorDef::new(4, Float, &[2, 4]),
                TensorDef::new(5, Float, &[2, 1]),
            ],
        );
        // The squares of the second row are beyond f32.
        let x = [1.0, f64::INFINITY, 2.0, 3.0, 3e30, -4e30, 0.0, 0.0];
        bench.fill(0, |i| x[i]);
        bench.fill(1, |_| 1.0);
        let got = bench.run(1);
        let (nan, far) = (f64::NAN, 2.5e30f64);
        approx_normalized(
            &got[&4],
            [0.0, nan, 0.0, 0.0, 3e30 / far, -4e30 / far, 0.0, 0.0],
            Float,
            |_| 1.0,
            "infinity",
        );
        approx(&got[&5], [0.0, 1.0 / far], Float, |_| 0.0, "infinity");
    }
}
