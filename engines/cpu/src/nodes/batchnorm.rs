//! Batch normalization: see [`hipdnn_engine_core::ops::batchnorm`].

use hipdnn_engine_core::{Declined, ops::batchnorm};
use hipdnn_schemas::{Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, Graph};

use super::normalization::lowering::lower as lowered;
use crate::work::Work;

/// Lowers an inference that is given the inverse deviation.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_inference(graph: &Graph, index: usize, node: &BatchnormInference) -> Result<Work, Declined> {
    Ok(lowered(graph, batchnorm::inference(graph, index, node)?))
}

/// Lowers an inference that is given the variance.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_inference_with_variance(
    graph: &Graph,
    index: usize,
    node: &BatchnormInferenceVarianceExt,
) -> Result<Work, Declined> {
    Ok(lowered(graph, batchnorm::inference_with_variance(graph, index, node)?))
}

/// Lowers a training step.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_training(graph: &Graph, index: usize, node: &Batchnorm) -> Result<Work, Declined> {
    Ok(lowered(graph, batchnorm::training(graph, index, node)?))
}

/// Lowers a gradient.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_backward(graph: &Graph, index: usize, node: &BatchnormBackward) -> Result<Work, Declined> {
    Ok(lowered(graph, batchnorm::backward(graph, index, node)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::normalization::tests::{Groups, approx, approx_normalized, types};
    use crate::nodes::testing::{Bench, noise, packed};
    use DataType::{BFloat16, Double, Float, Half};
    use hipdnn_schemas::{DataType, Operation, TensorDef, TensorUid, TensorValue};

    /// Case: name, extents, strides of x, strides of y.
    type Shape = (&'static str, [i64; 4], [i64; 4], [i64; 4]);

    const SHAPES: &[Shape] = &[
        ("channels first", [3, 5, 7, 9], [315, 63, 9, 1], [315, 63, 9, 1]),
        ("channels last", [3, 5, 7, 9], [315, 1, 45, 5], [315, 1, 45, 5]),
        ("from one to the other", [2, 19, 5, 6], [570, 30, 6, 1], [570, 1, 114, 19]),
        ("many channels last", [2, 261, 2, 3], [1566, 1, 783, 261], [1566, 1, 783, 261]),
        ("1×1 images", [9, 33, 1, 1], [33, 1, 1, 1], [33, 1, 7, 7]),
        ("one element a channel", [1, 6, 1, 1], [6, 1, 1, 1], [6, 1, 1, 1]),
        ("one channel", [4, 1, 3, 5], [15, 15, 5, 1], [15, 15, 5, 1]),
        ("sliced", [2, 3, 4, 5], [1000, 200, 22, 3], [700, 200, 21, 2]),
        ("cut into segments", [2, 2, 200, 201], [80_400, 40_200, 201, 1], [80_400, 40_200, 201, 1]),
        ("cut, channels last", [2, 3, 111, 200], [66_600, 1, 600, 3], [66_600, 1, 600, 3]),
    ];

    const TYPES: &[(DataType, DataType, DataType)] =
        &[(Float, Float, Float), (Half, Half, Float), (BFloat16, Float, BFloat16), (Float, Half, Half)];

    fn channel(uid: i64, data_type: DataType, dims: &[i64; 4]) -> TensorDef {
        TensorDef::new(uid, data_type, &[1, dims[1], 1, 1])
    }

    #[test]
    fn training_gives_result_statistics_and_running_statistics() {
        for (what, dims, strides, out_strides) in SHAPES {
            for (x_type, y_type, parameters) in types(TYPES, dims) {
                let per_channel = |uid| channel(uid, *parameters, dims);
                let mut bench = Bench::new(
                    Operation::Batchnorm(Batchnorm {
                        x: TensorUid(0),
                        scale: TensorUid(1),
                        bias: TensorUid(2),
                        epsilon: TensorUid(3),
                        peer_stats: vec![],
                        prev_running_mean: Some(TensorUid(4)),
                        prev_running_variance: Some(TensorUid(5)),
                        momentum: Some(TensorUid(6)),
                        y: TensorUid(7),
                        mean: Some(TensorUid(8)),
                        inv_variance: Some(TensorUid(9)),
                        next_running_mean: Some(TensorUid(10)),
                        next_running_variance: Some(TensorUid(11)),
                    }),
                    vec![
                        TensorDef::new(0, *x_type, dims).strided(strides),
                        per_channel(1),
                        // Clients leave dimensions out, too.
                        TensorDef::new(2, *parameters, &[dims[1]]),
                        TensorDef::new(3, Double, &[1]).with_value(TensorValue::Float64(1e-3)),
                        per_channel(4),
                        per_channel(5),
                        TensorDef::new(6, Float, &[1]).with_value(TensorValue::Float32(0.25)),
                        TensorDef::new(7, *y_type, dims).strided(out_strides),
                        per_channel(8),
                        per_channel(9),
                        per_channel(10),
                        per_channel(11),
                    ],
                );
                let x = bench.fill(0, |i| noise(i) * 3.0 + 1.5);
                let [scale, bias] = [1, 2].map(|uid| bench.fill(uid, |i| noise(i + 77 * uid as usize) + 0.5));
                let old_mean = bench.fill(4, |i| noise(i + 5));
                let old_variance = bench.fill(5, |i| noise(i + 6).abs() + 0.1);
                let groups = Groups::new(&x, dims, |axis| axis != 1);
                let n = groups.count() as f64;
                let channel_of = |i: usize| groups.group(i);
                for threads in [1, 3] {
                    let got = bench.run(threads);
                    let statistics = groups.statistics(1e-3, true);
                    let want = x.iter().enumerate().map(|(i, x)| {
                        let c = channel_of(i);
                        (x - statistics[c].mean) * statistics[c].inverse * scale[c] + bias[c]
                    });
                    approx_normalized(
                        &got[&7],
                        want,
                        *y_type,
                        |i| statistics[channel_of(i)].weight * scale[channel_of(i)].abs(),
                        what,
                    );
                    approx(&got[&8], statistics.iter().map(|s| s.mean), *parameters, |c| statistics[c].size, what);
                    approx(
                        &got[&9],
                        statistics.iter().map(|s| s.inverse),
                        *parameters,
                        |c| statistics[c].inverse,
                        what,
                    );
                    let means = statistics.iter().zip(&old_mean).map(|(s, old)| 0.75 * old + 0.25 * s.mean);
                    approx(&got[&10], means, *parameters, |c| statistics[c].size, what);
                    let bessel = if n > 1.0 { n / (n - 1.0) } else { 1.0 };
                    let variances =
                        statistics.iter().zip(&old_variance).map(|(s, old)| 0.75 * old + 0.25 * s.variance * bessel);
                    approx(&got[&11], variances, *parameters, |c| statistics[c].variance, what);
                }
            }
        }
    }

    #[test]
    fn inference_takes_either_form_of_the_deviation() {
        for (what, dims, strides, out_strides) in SHAPES {
            for with_variance in [false, true] {
                let (x, mean, scale, bias, y) = (TensorUid(0), TensorUid(1), TensorUid(3), TensorUid(4), TensorUid(6));
                let operation = if with_variance {
                    let (variance, epsilon) = (TensorUid(2), TensorUid(5));
                    let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, epsilon, y };
                    Operation::BatchnormInferenceVarianceExt(node)
                } else {
                    let node = BatchnormInference { x, mean, inv_variance: TensorUid(2), scale, bias, y };
                    Operation::BatchnormInference(node)
                };
                let mut tensors = vec![
                    TensorDef::new(0, Float, dims).strided(strides),
                    channel(1, Float, dims),
                    channel(2, Float, dims),
                    channel(3, Float, dims),
                    channel(4, Float, dims),
                    TensorDef::new(6, Float, dims).strided(out_strides),
                ];
                if with_variance {
                    tensors.push(TensorDef::new(5, Float, &[1]).with_value(TensorValue::Float32(0.125)));
                }
                let mut bench = Bench::new(operation, tensors);
                let x = bench.fill(0, noise);
                let [mean, deviation, scale, bias] =
                    [1, 2, 3, 4].map(|uid| bench.fill(uid, |i| noise(i + 31 * uid as usize).abs() + 0.25));
                let groups = Groups::new(&x, dims, |axis| axis != 1);
                let got = bench.run(2);
                let inverse = |c: usize| if with_variance { 1.0 / (deviation[c] + 0.125).sqrt() } else { deviation[c] };
                let want = x.iter().enumerate().map(|(i, x)| {
                    let c = groups.group(i);
                    (x - mean[c]) * inverse(c) * scale[c] + bias[c]
                });
                approx_normalized(&got[&6], want, Float, |_| 4.0, what);
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_formula_with_and_without_saved_statistics() {
        for (what, dims, strides, out_strides) in SHAPES {
            for (saved, (x_type, y_type, parameters)) in
                [true, false].iter().flat_map(|s| types(TYPES, dims).iter().map(move |t| (*s, *t)))
            {
                let uid = |uid| saved.then_some(TensorUid(uid));
                let node = BatchnormBackward {
                    dy: TensorUid(0),
                    x: TensorUid(1),
                    mean: uid(2),
                    inv_variance: uid(3),
                    scale: TensorUid(4),
                    peer_stats: vec![],
                    dx: TensorUid(5),
                    dscale: TensorUid(6),
                    dbias: TensorUid(7),
                };
                let mut tensors = vec![
                    TensorDef::new(0, y_type, dims).strided(out_strides),
                    TensorDef::new(1, x_type, dims).strided(strides),
                    channel(4, parameters, dims),
                    TensorDef::new(5, x_type, dims).strided(&packed(dims)),
                    channel(6, parameters, dims),
                    channel(7, parameters, dims),
                ];
                if saved {
                    tensors.extend([channel(2, Float, dims), channel(3, Float, dims)]);
                }
                let mut bench = Bench::new(Operation::BatchnormBackward(node), tensors);
                let dy = bench.fill(0, |i| noise(i + 3));
                let x = bench.fill(1, |i| noise(i) * 2.0 - 0.5);
                let scale = bench.fill(4, |i| noise(i + 9) + 1.5);
                let groups = Groups::new(&x, dims, |axis| axis != 1);
                let mut statistics = groups.statistics(1e-5, true);
                if saved {
                    let mean = bench.fill(2, |c| statistics[c].mean);
                    let inverse = bench.fill(3, |c| statistics[c].inverse);
                    for (c, statistics) in statistics.iter_mut().enumerate() {
                        (statistics.mean, statistics.inverse) = (mean[c], inverse[c]);
                    }
                }
                let n = groups.count() as f64;
                let normal = |i: usize| {
                    let s = &statistics[groups.group(i)];
                    (x[i] - s.mean) * s.inverse
                };
                let channels = statistics.len();
                let (mut dbias, mut dscale, mut size) = (vec![0.0; channels], vec![0.0; channels], vec![0.0; channels]);
                for (i, dy) in dy.iter().enumerate() {
                    let c = groups.group(i);
                    dbias[c] += dy;
                    dscale[c] += dy * normal(i);
                    size[c] += dy.abs() * (1.0 + normal(i).abs());
                }
                for threads in [1, 3] {
                    let got = bench.run(threads);
                    let want = dy.iter().enumerate().map(|(i, dy)| {
                        let c = groups.group(i);
                        scale[c] * statistics[c].inverse * (dy - dbias[c] / n - normal(i) * dscale[c] / n)
                    });
                    let weight = |i: usize| {
                        let c = groups.group(i);
                        scale[c].abs() * statistics[c].inverse * (dy[i].abs() + size[c] / n * (1.0 + normal(i).abs()))
                    };
                    approx(&got[&5], want, x_type, weight, what);
                    approx(&got[&6], dscale.iter().copied(), parameters, |c| size[c], what);
                    approx(&got[&7], dbias.iter().copied(), parameters, |c| size[c], what);
                }
            }
        }
    }

    #[test]
    fn extreme_values_stay_in_their_channel() {
        let (nan, inf, large) = (f64::NAN, f64::INFINITY, 3e38);
        // Of each channel the values, what they become, and the mean.
        let channels: [([f64; 4], [f64; 4], f64); 8] = [
            ([nan, 1.0, 2.0, 3.0], [nan; 4], nan),
            ([1.0, 2.0, inf, 3.0], [nan; 4], inf),
            ([inf, 1.0, 2.0, inf], [nan; 4], inf),
            ([-inf, inf, 2.0, 3.0], [nan; 4], nan),
            ([large, -large, large, -large], [3.0, -1.0, 3.0, -1.0], 0.0),
            ([7.0; 4], [1.0; 4], 7.0),
            ([1e-38, -1e-38, 1e-38, -1e-38], [1.0; 4], 0.0),
            ([0.0, 2.0, 0.0, 2.0], [-1.0, 3.0, -1.0, 3.0], 1.0),
        ];
        let dims = [2, 8, 1, 2];
        for strides in [[16, 2, 2, 1], [16, 1, 16, 8]] {
            let node = Batchnorm {
                mean: Some(TensorUid(5)),
                ..Batchnorm::new(TensorUid(0), TensorUid(1), TensorUid(2), TensorUid(3), TensorUid(4))
            };
            let mut bench = Bench::new(
                Operation::Batchnorm(node),
                vec![
                    TensorDef::new(0, Float, &dims).strided(&strides),
                    channel(1, Float, &dims),
                    channel(2, Float, &dims),
                    TensorDef::new(3, Double, &[1]).with_value(TensorValue::Float64(1e-30)),
                    TensorDef::new(4, Float, &dims),
                    channel(5, Float, &dims),
                ],
            );
            bench.fill(0, |i| channels[i / 2 % 8].0[i / 16 * 2 + i % 2]);
            bench.fill(1, |_| 2.0);
            bench.fill(2, |_| 1.0);
            let got = bench.run(1);
            let want = (0..32).map(|i| channels[i / 2 % 8].1[i / 16 * 2 + i % 2]);
            approx_normalized(&got[&4], want, Float, |_| 1.0, "extreme values");
            approx(&got[&5], channels.iter().map(|c| c.2), Float, |_| 0.0, "means of extreme values");
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let dims = [2, 3, 4, 5];
        let base = || Batchnorm::new(TensorUid(0), TensorUid(1), TensorUid(2), TensorUid(3), TensorUid(7));
        let tensors = |x: DataType| {
            vec![
                TensorDef::new(0, x, &dims),
                channel(1, Float, &dims),
                channel(2, Float, &dims),
                TensorDef::new(3, Float, &[1]).with_value(TensorValue::Float32(1e-5)),
                channel(4, Float, &dims),
                TensorDef::new(7, x, &dims),
            ]
        };
        for (node, x, want) in [
            (
                Batchnorm { peer_stats: vec![TensorUid(4)], ..base() },
                Float,
                "peer_stats_tensor_uid: expected none, got 4",
            ),
            (
                Batchnorm { next_running_mean: Some(TensorUid(4)), ..base() },
                Float,
                "next_running_mean_tensor_uid: expected none where there is no previous one to go on from, got 4",
            ),
            (base(), Double, "x (tensor 0): expected float, half or bfloat16, got double"),
        ] {
            let reason = Bench::declined(Operation::Batchnorm(node), tensors(x));
            assert!(reason.contains(want) && reason.starts_with("node 0 (Batchnorm)"), "{reason}");
        }
    }
}
