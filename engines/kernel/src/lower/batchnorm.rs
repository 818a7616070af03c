//! Batch normalization: see [`hipdnn_engine_core::ops::batchnorm`].

use hipdnn_engine_core::{Declined, ops::batchnorm};
use hipdnn_schemas::{Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, Graph};

use super::normalization::{formula, lower};
use crate::ir::op::Work;

/// Lowers an inference node that takes the inverse deviation.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn inference(graph: &Graph, index: usize, node: &BatchnormInference) -> Result<Work, Declined> {
    formula(graph, index, &batchnorm::inference(graph, index, node)?)
}

/// Lowers an inference node that takes the variance.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn inference_with_variance(
    graph: &Graph,
    index: usize,
    node: &BatchnormInferenceVarianceExt,
) -> Result<Work, Declined> {
    formula(graph, index, &batchnorm::inference_with_variance(graph, index, node)?)
}

/// Lowers a training node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn training(graph: &Graph, index: usize, node: &Batchnorm) -> Result<Work, Declined> {
    lower(graph, index, &batchnorm::training(graph, index, node)?)
}

/// Lowers a backward node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &BatchnormBackward) -> Result<Work, Declined> {
    lower(graph, index, &batchnorm::backward(graph, index, node)?)
}

#[cfg(test)]
mod tests {
    use super::{Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt};
    use crate::emit::grouped::Input;
    use crate::fuse::fuse;
    use crate::legalize::{Dispatch, LegalizeOptions, Value, legalize};
    use crate::lower::lower;
    use crate::lower::testing::{compare, declined};
    use DataType::{BFloat16, Double, Float, Half};
    use hipdnn_engine_cpu::nodes::testing::noise;
    use hipdnn_schemas::{
        Convolution, DataType, GraphBuilder, Operation, Pointwise, PointwiseMode, TensorDef, TensorUid, TensorValue,
    };

    /// Name, extents, strides of x, extents of parameters.
    type Shape = (&'static str, &'static [i64], &'static [i64], &'static [i64]);

    const SHAPES: &[Shape] = &[
        ("channels first", &[3, 5, 4, 3], &[60, 12, 3, 1], &[5]),
        ("channels last", &[2, 7, 3, 3], &[63, 1, 21, 7], &[1, 7, 1, 1]),
        ("sliced, channels leading", &[2, 3, 4, 5], &[1000, 200, 22, 3], &[3, 1]),
        ("one element a channel", &[1, 6, 1, 1], &[6, 1, 1, 1], &[1, 6, 1, 1]),
        ("one channel", &[4, 1, 3, 5], &[15, 15, 5, 1], &[1]),
        ("no image", &[9, 4], &[4, 1], &[1, 4]),
        ("as many channels as images", &[5, 5], &[5, 1], &[5, 1]),
        ("a volume", &[2, 3, 2, 3, 2], &[36, 12, 6, 2, 1], &[1, 3, 1, 1, 1]),
    ];

    fn scalar(uid: i64, how: usize) -> TensorDef {
        match how % 3 {
            0 => TensorDef::new(uid, Double, &[1]).with_value(TensorValue::Float64(0.125)),
            1 => TensorDef::new(uid, Float, &[1, 1]).with_value(TensorValue::Float32(0.25)),
            // In memory.
            _ => TensorDef::new(uid, Float, &[1, 1, 1, 1]),
        }
    }

    /// Deviations and scalars are above zero.
    fn fill(uid: i64, i: usize) -> f64 {
        let value = noise(i + 131 * uid as usize);
        if uid >= 20 { value.abs() + 0.1 } else { 2.0 * value + 0.75 }
    }

    fn tensors(shape: &Shape, types: [DataType; 3], how: usize) -> Vec<TensorDef> {
        let (_, dims, strides, per_channel) = *shape;
        let mut tensors = vec![
            TensorDef::new(0, types[0], dims).strided(strides),
            TensorDef::new(1, types[0], dims),
            TensorDef::new(2, types[1], dims).strided(strides),
            scalar(25, how),
            scalar(26, how + 1),
        ];
        tensors.extend((3..14).chain(20..25).map(|uid| TensorDef::new(uid, types[2], per_channel)));
        tensors
    }

    const TYPES: [[DataType; 3]; 2] = [[Float; 3], [Half, BFloat16, Float]];

    /// Training, with optional operands by the bits of a number.
    fn training(present: usize) -> Operation {
        let optional = |uid: i64, bit: usize| (present & bit != 0).then_some(TensorUid(uid));
        Operation::Batchnorm(Batchnorm {
            x: TensorUid(0),
            scale: TensorUid(3),
            bias: TensorUid(4),
            epsilon: TensorUid(25),
            peer_stats: vec![],
            prev_running_mean: optional(5, 1),
            prev_running_variance: optional(20, 2),
            momentum: optional(26, 1),
            y: TensorUid(2),
            mean: optional(6, 2),
            inv_variance: optional(7, 1),
            next_running_mean: optional(8, 1),
            next_running_variance: optional(9, 2),
        })
    }

    #[test]
    fn training_is_what_the_host_engine_computes() {
        for (turn, shape) in SHAPES.iter().enumerate() {
            for (types, present) in TYPES.iter().flat_map(|types| [0, 1, 2, 3].map(|present| (*types, present))) {
                let what = format!("{}, {types:?}, operands {present}", shape.0);
                compare(&what, training(present), tensors(shape, types, turn + present), fill);
            }
        }
    }

    #[test]
    fn members_that_are_no_finite_numbers_spread_in_parts_as_in_the_whole() {
        const CHANNELS: usize = 7;
        let shape = SHAPES.iter().find(|shape| shape.2[1] == 1).expect("a shape has its channels last");
        assert_eq!(shape.1[1], CHANNELS as i64);
        let special = |uid: i64, i: usize| {
            let first = i < CHANNELS;
            // Of 18 places of a channel one in the second part of each.
            let later = i / CHANNELS == 7;
            match i % CHANNELS {
                _ if uid != 0 => fill(uid, i),
                1 if first => f64::INFINITY,
                2 if later => f64::INFINITY,
                3 if first => f64::NAN,
                4 if later => f64::NAN,
                5 if first => f64::INFINITY,
                5 if later => f64::NEG_INFINITY,
                6 if first => f64::NEG_INFINITY,
                6 if later => f64::INFINITY,
                _ => fill(uid, i),
            }
        };
        for types in TYPES {
            compare(&format!("{types:?}"), training(3), tensors(shape, types, 0), special);
        }
    }

    #[test]
    fn inference_is_what_the_host_engine_computes() {
        for (turn, shape) in SHAPES.iter().enumerate() {
            for types in TYPES {
                let (x, mean, scale, bias, y) = (TensorUid(0), TensorUid(5), TensorUid(3), TensorUid(4), TensorUid(2));
                let (variance, epsilon) = (TensorUid(20), TensorUid(25));
                let node = BatchnormInference { x, mean, inv_variance: variance, scale, bias, y };
                compare(shape.0, Operation::BatchnormInference(node), tensors(shape, types, turn), fill);
                let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, y, epsilon };
                compare(shape.0, Operation::BatchnormInferenceVarianceExt(node), tensors(shape, types, turn), fill);
            }
        }
    }

    #[test]
    fn inference_behind_a_convolution_is_one_kernel_with_what_follows() {
        for with_variance in [false, true] {
            let mut graph = GraphBuilder::new("").compute(Float);
            let image = |uid: i64| TensorDef::new(uid, Float, &[2, 4, 6, 6]);
            let [x, w] = [image(0), TensorDef::new(1, Float, &[4, 4, 1, 1])].map(|tensor| graph.tensor(tensor));
            let [convolved, normal] = [2, 3].map(|uid| graph.tensor(image(uid).intermediate()));
            let y = graph.tensor(image(4));
            // Parameters have a dimension less than images, and run along another one.
            let [mean, second, scale, bias] = [5, 6, 7, 8].map(|uid| graph.tensor(TensorDef::new(uid, Float, &[4])));
            graph.convolution_fwd(x, w, convolved, Convolution::new(2));
            let operation = if with_variance {
                let epsilon = TensorDef::new(9, Float, &[1]).with_value(TensorValue::Float32(0.5));
                let (epsilon, variance) = (graph.tensor(epsilon), second);
                let (x, y) = (convolved, normal);
                let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, y, epsilon };
                Operation::BatchnormInferenceVarianceExt(node)
            } else {
                let (x, y, inv_variance) = (convolved, normal, second);
                Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y })
            };
            graph.node("", operation);
            graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, normal, y));
            let graph = graph.build().unwrap();
            let fusion_groups = fuse(&graph, lower(&graph).unwrap());
            let legalized = legalize(&graph, &fusion_groups, LegalizeOptions::default(), &|_| Ok(())).unwrap();
            let [Dispatch::Convolution(convolution), Dispatch::Kernel(map)] = &legalized.dispatches[..] else {
                panic!("{legalized:?}")
            };
            // The convolution writes to where the result belongs.
            assert_eq!((convolution.y, &map.writes[..]), (Value::Tensor(y), &[Value::Tensor(y)][..]));
            let (inputs, program, _) = map.kernel.elementwise().unwrap();
            assert_eq!(program.len(), if with_variance { 7 } else { 5 });
            for input in inputs {
                let Input::Tensor { tensor, access, .. } = input else { continue };
                let want = if map.reads[*tensor] == Value::Tensor(y) { [144, 36, 6, 1] } else { [0, 1, 0, 0] };
                assert_eq!(access.strides, want, "{input:?}");
            }
        }
    }

    #[test]
    fn gradients_are_what_the_host_engine_computes() {
        for (turn, shape) in SHAPES.iter().enumerate() {
            for (types, saved) in TYPES.iter().flat_map(|types| [true, false].map(|saved| (*types, saved))) {
                let node = BatchnormBackward {
                    dy: TensorUid(1),
                    x: TensorUid(0),
                    mean: saved.then_some(TensorUid(5)),
                    inv_variance: saved.then_some(TensorUid(20)),
                    scale: TensorUid(3),
                    peer_stats: vec![],
                    dx: TensorUid(2),
                    dscale: TensorUid(6),
                    dbias: TensorUid(7),
                };
                compare(shape.0, Operation::BatchnormBackward(node), tensors(shape, types, turn), fill);
            }
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let training = || Batchnorm::new(TensorUid(0), TensorUid(3), TensorUid(4), TensorUid(25), TensorUid(2));
        let backward = || BatchnormBackward {
            dy: TensorUid(1),
            x: TensorUid(0),
            mean: None,
            inv_variance: None,
            scale: TensorUid(3),
            peer_stats: vec![],
            dx: TensorUid(2),
            dscale: TensorUid(6),
            dbias: TensorUid(7),
        };
        let inference = BatchnormInference {
            x: TensorUid(0),
            mean: TensorUid(5),
            inv_variance: TensorUid(20),
            scale: TensorUid(3),
            bias: TensorUid(4),
            y: TensorUid(2),
        };
        let five = TensorUid(5);
        let cases = [
            (
                Operation::Batchnorm(Batchnorm { peer_stats: vec![five], ..training() }),
                [Float; 3],
                Float,
                "peer_stats_tensor_uid: expected none, got 5",
            ),
            (
                Operation::Batchnorm(Batchnorm { next_running_mean: Some(five), ..training() }),
                [Float; 3],
                Float,
                "next_running_mean_tensor_uid: expected none where there is no previous one to go on from, got 5",
            ),
            (
                Operation::Batchnorm(training()),
                [Double, Float, Float],
                Float,
                "x (tensor 0): expected float, half or bfloat16, got double",
            ),
            (
                Operation::Batchnorm(training()),
                [Float; 3],
                Double,
                "compute_data_type: expected float for operands of these types, got double",
            ),
            (
                Operation::BatchnormBackward(BatchnormBackward { peer_stats: vec![five], ..backward() }),
                [Float; 3],
                Float,
                "peer_stats_tensor_uid: expected none, got 5",
            ),
            (
                Operation::BatchnormBackward(BatchnormBackward { mean: Some(five), ..backward() }),
                [Float; 3],
                Float,
                "mean_tensor_uid: expected none without inv_variance, got 5",
            ),
            (
                Operation::BatchnormBackward(BatchnormBackward { inv_variance: Some(five), ..backward() }),
                [Float; 3],
                Float,
                "inv_variance_tensor_uid: expected none without mean, got 5",
            ),
            (
                Operation::BatchnormInference(inference.clone()),
                [Float; 3],
                Double,
                "compute_data_type: expected float for operands of these types, got double",
            ),
            (
                Operation::BatchnormInference(inference),
                [Float, Float, Double],
                Float,
                "mean (tensor 5): expected float, half or bfloat16, got double",
            ),
        ];
        for (operation, types, compute, want) in cases {
            let reason = declined(&operation, &tensors(&SHAPES[0], types, 0), compute);
            assert!(reason.starts_with("node 0 (Batchnorm") && reason.contains(want), "{reason}");
        }
    }
}
