//! Layer normalization: see [`hipdnn_engine_core::ops::layernorm`].

use hipdnn_engine_core::{Declined, ops::layernorm};
use hipdnn_schemas::{Graph, Layernorm, LayernormBackward};

use super::normalization::lower;
use crate::ir::op::Work;

/// Lowers a forward node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn forward(graph: &Graph, index: usize, node: &Layernorm) -> Result<Work, Declined> {
    lower(graph, index, &layernorm::forward(graph, index, node)?)
}

/// Lowers a backward node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &LayernormBackward) -> Result<Work, Declined> {
    lower(graph, index, &layernorm::backward(graph, index, node)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::testing::{compare, declined};
    use DataType::{BFloat16, Double, Float, Half};
    use hipdnn_engine_cpu::nodes::testing::noise;
    use hipdnn_schemas::{DataType, NormFwdPhase, Operation, TensorDef, TensorUid, TensorValue};

    /// Name, extents, strides of x, number of normalized dimensions.
    type Shape = (&'static str, &'static [i64], &'static [i64], i64);

    const SHAPES: &[Shape] = &[
        ("rows", &[7, 13], &[13, 1], 1),
        ("images", &[3, 4, 5, 2], &[40, 10, 2, 1], 3),
        ("images, channels last", &[3, 4, 5, 2], &[40, 1, 8, 4], 3),
        ("the last dimension, channels last", &[2, 6, 3, 5], &[90, 1, 30, 6], 1),
        ("everything", &[4, 5, 6], &[30, 6, 1], 3),
        ("a row of one", &[5, 1], &[1, 1], 1),
        ("one row", &[1, 4, 9], &[36, 9, 1], 2),
        ("sliced", &[4, 3, 5], &[200, 40, 7], 2),
        ("transposed", &[10, 3, 9], &[1, 90, 10], 2),
    ];

    const TYPES: [[DataType; 3]; 2] = [[Float; 3], [BFloat16, Half, Float]];

    /// Tensors of x and dy, of the result, of scale, bias and their gradients, and of statistics; with all dimensions
    /// of x, or only those that they have.
    fn tensors(shape: &Shape, types: [DataType; 3], whole: bool) -> Vec<TensorDef> {
        let (_, dims, strides, count) = *shape;
        let (outer, inner) = dims.split_at(dims.len() - count as usize);
        let (mut affine, mut statistics) = (inner.to_vec(), outer.to_vec());
        if whole || outer.is_empty() {
            affine = [vec![1; outer.len()], inner.to_vec()].concat();
            statistics = [outer.to_vec(), vec![1; inner.len()]].concat();
        }
        let mut tensors = vec![
            TensorDef::new(0, types[0], dims).strided(strides),
            TensorDef::new(1, types[0], dims),
            TensorDef::new(2, types[1], dims).strided(strides),
            TensorDef::new(9, Double, &[1]).with_value(TensorValue::Float64(0.03)),
            TensorDef::new(10, Float, &[1, 1]),
        ];
        tensors.extend([3, 4, 5, 6].map(|uid| TensorDef::new(uid, types[2], &affine)));
        tensors.extend([7, 8].map(|uid| TensorDef::new(uid, types[2], &statistics)));
        tensors
    }

    /// Inverse deviations are above zero.
    fn fill(uid: i64, i: usize) -> f64 {
        let value = noise(i + 131 * uid as usize);
        if uid >= 8 { value.abs() + 0.1 } else { 2.0 * value - 0.25 }
    }

    fn cases() -> impl Iterator<Item = (&'static Shape, [DataType; 3], bool)> {
        SHAPES.iter().flat_map(|shape| TYPES.iter().flat_map(move |types| [true, false].map(|b| (shape, *types, b))))
    }

    fn node(count: i64, epsilon: i64, statistics: bool) -> Layernorm {
        Layernorm {
            x: TensorUid(0),
            scale: TensorUid(3),
            bias: TensorUid(4),
            epsilon: TensorUid(epsilon),
            y: TensorUid(2),
            normalized_dim_count: count,
            mean: statistics.then_some(TensorUid(7)),
            inv_variance: statistics.then_some(TensorUid(8)),
            forward_phase: if statistics { NormFwdPhase::Training } else { NormFwdPhase::Inference },
        }
    }

    fn gradient(count: i64, [mean, inv_variance, epsilon, dbias]: [Option<i64>; 4]) -> LayernormBackward {
        LayernormBackward {
            dy: TensorUid(1),
            x: TensorUid(0),
            scale: TensorUid(3),
            mean: mean.map(TensorUid),
            inv_variance: inv_variance.map(TensorUid),
            epsilon: epsilon.map(TensorUid),
            dx: TensorUid(2),
            dscale: TensorUid(5),
            dbias: dbias.map(TensorUid),
            normalized_dim_count: count,
        }
    }

    #[test]
    fn results_are_what_the_host_engine_computes() {
        for (shape, types, whole) in cases() {
            for statistics in [true, false] {
                let operation = Operation::Layernorm(node(shape.3, if whole { 9 } else { 10 }, statistics));
                compare(shape.0, operation, tensors(shape, types, whole), fill);
            }
        }
    }

    #[test]
    fn gradients_are_what_the_host_engine_computes() {
        for (shape, types, whole) in cases() {
            for operands in [
                [Some(7), Some(8), None, Some(6)],
                [None, None, Some(9), Some(6)],
                [None, None, Some(10), None],
                [Some(7), Some(8), Some(9), None],
            ] {
                let operation = Operation::LayernormBackward(gradient(shape.3, operands));
                compare(&format!("{} {operands:?}", shape.0), operation, tensors(shape, types, whole), fill);
            }
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let backward = |operands| Operation::LayernormBackward(gradient(1, operands));
        for (operation, types, compute, want) in [
            (
                Operation::Layernorm(node(1, 9, true)),
                [Float, Double, Float],
                Float,
                "y (tensor 2): expected float, half or bfloat16, got double",
            ),
            (
                Operation::Layernorm(node(1, 9, true)),
                [Float; 3],
                Double,
                "compute_data_type: expected float for operands of these types, got double",
            ),
            (
                backward([Some(7), None, None, None]),
                [Float; 3],
                Float,
                "mean_tensor_uid: expected none without inv_variance, got 7",
            ),
            (
                backward([None, Some(8), None, None]),
                [Float; 3],
                Float,
                "inv_variance_tensor_uid: expected none without mean, got 8",
            ),
            (
                backward([None; 4]),
                [Float; 3],
                Float,
                "epsilon_tensor_uid: expected a tensor, as no statistics are given, got null",
            ),
        ] {
            let reason = declined(&operation, &tensors(&SHAPES[0], types, true), compute);
            assert!(reason.starts_with("node 0 (Layernorm") && reason.contains(want), "{reason}");
        }
        let mut other = tensors(&SHAPES[3], [Float; 3], true);
        let scale = other.iter_mut().find(|tensor| tensor.uid.0 == 3).unwrap();
        *scale = TensorDef::new(3, Float, &[5, 1]);
        assert!(
            declined(&Operation::Layernorm(node(1, 9, true)), &other, DataType::Int32).contains("compute_data_type")
        );
        let mut other = tensors(&("", &[2, 6], &[6, 1], 1), [Float; 3], true);
        let scale = other.iter_mut().find(|tensor| tensor.uid.0 == 3).unwrap();
        *scale = TensorDef::new(3, Float, &[2, 3]);
        let reason = declined(&Operation::Layernorm(node(1, 9, true)), &other, Float);
        assert!(reason.contains("scale (tensor 3): expected extents [6] and ones, got [2, 3]"), "{reason}");
    }
}
