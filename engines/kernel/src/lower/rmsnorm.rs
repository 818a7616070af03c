//! RMS normalization: see [`hipdnn_engine_core::ops::rmsnorm`].

use hipdnn_engine_core::{Declined, ops::rmsnorm};
use hipdnn_schemas::{Graph, RmsNorm, RmsNormBackward};

use super::normalization::lower;
use crate::ir::op::Work;

/// Lowers a forward node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn forward(graph: &Graph, index: usize, node: &RmsNorm) -> Result<Work, Declined> {
    lower(graph, index, &rmsnorm::forward(graph, index, node)?)
}

/// Lowers a backward node.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &RmsNormBackward) -> Result<Work, Declined> {
    lower(graph, index, &rmsnorm::backward(graph, index, node)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lower::testing::{compare, compare_with_definition, declined};
    use DataType::{BFloat16, Double, Float, Half};
    use hipdnn_engine_cpu::nodes::testing::noise;
    use hipdnn_schemas::{DataType, NormFwdPhase, Operation, TensorDef, TensorUid, TensorValue};

    /// Name, extents, strides of x, extents of the scale, first dimension of a row.
    type Shape = (&'static str, &'static [i64], &'static [i64], &'static [i64], usize);

    const SHAPES: &[Shape] = &[
        ("rows", &[7, 33], &[33, 1], &[1, 33], 1),
        ("channels of 1×1 images", &[6, 20, 1, 1], &[20, 1, 1, 1], &[1, 20, 1, 1], 1),
        ("images", &[3, 4, 5, 2], &[40, 10, 2, 1], &[1, 4, 5, 2], 1),
        ("rows of images, channels last", &[3, 7, 5, 6], &[210, 1, 42, 7], &[1, 1, 5, 6], 2),
        ("one image: never the first dimension", &[1, 8], &[8, 1], &[1, 8], 1),
        ("sliced", &[4, 3, 5], &[200, 40, 7], &[1, 3, 5], 1),
    ];

    const TYPES: [[DataType; 3]; 2] = [[Float; 3], [Half, Float, BFloat16]];

    fn tensors(shape: &Shape, types: [DataType; 3]) -> Vec<TensorDef> {
        let (_, dims, strides, affine, first) = *shape;
        let statistics = [dims[..first].to_vec(), vec![1; dims.len() - first]].concat();
        let mut tensors = vec![
            TensorDef::new(0, types[0], dims).strided(strides),
            TensorDef::new(1, types[0], dims),
            TensorDef::new(2, types[1], dims),
            TensorDef::new(8, types[2], &statistics),
            TensorDef::new(9, Float, &[1]).with_value(TensorValue::Float32(0.03)),
        ];
        tensors.extend([3, 4, 5, 6].map(|uid| TensorDef::new(uid, types[2], affine)));
        tensors
    }

    /// Inverses are above zero.
    fn fill(uid: i64, i: usize) -> f64 {
        let value = noise(i + 131 * uid as usize);
        if uid == 8 { value.abs() + 0.1 } else { 2.0 * value - 0.25 }
    }

    fn node(present: bool) -> RmsNorm {
        RmsNorm {
            x: TensorUid(0),
            scale: TensorUid(3),
            epsilon: TensorUid(9),
            y: TensorUid(2),
            bias: present.then_some(TensorUid(4)),
            inv_rms: present.then_some(TensorUid(8)),
            forward_phase: NormFwdPhase::Training,
        }
    }

    fn gradient(present: bool) -> RmsNormBackward {
        RmsNormBackward {
            dy: TensorUid(1),
            x: TensorUid(0),
            scale: TensorUid(3),
            inv_rms: TensorUid(8),
            dx: TensorUid(2),
            dscale: TensorUid(5),
            dbias: present.then_some(TensorUid(6)),
        }
    }

    #[test]
    fn results_and_gradients_are_what_the_host_engine_computes() {
        for (shape, types) in SHAPES.iter().flat_map(|shape| TYPES.map(|types| (shape, types))) {
            for present in [true, false] {
                compare(shape.0, Operation::RmsNorm(node(present)), tensors(shape, types), fill);
                compare(shape.0, Operation::RmsNormBackward(gradient(present)), tensors(shape, types), fill);
            }
        }
    }

    #[test]
    fn rows_are_divided_by_the_root_of_their_mean_square() {
        for shape in SHAPES {
            let (what, dims, _, affine, _) = *shape;
            let row = affine.iter().product::<i64>() as usize;
            let definition = |inputs: &BTreeMap<i64, Vec<f64>>| {
                let [x, scale, bias, epsilon] = [0, 3, 4, 9].map(|uid| &inputs[&uid]);
                let root =
                    |row: &[f64]| (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + epsilon[0]).sqrt();
                let roots: Vec<f64> = x.chunks(row).map(root).collect();
                let y = x.iter().enumerate().map(|(i, x)| x / roots[i / row] * scale[i % row] + bias[i % row]);
                BTreeMap::from([(2, y.collect()), (8, roots.iter().map(|root| 1.0 / root).collect())])
            };
            assert_eq!(dims.iter().product::<i64>() as usize % row, 0, "{what}");
            let tensors = tensors(shape, [Float; 3]);
            compare_with_definition(what, Operation::RmsNorm(node(true)), tensors, fill, definition);
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let columns: Shape = ("", &[4, 6], &[6, 1], &[4, 1], 1);
        for (operation, shape, types, compute, want) in [
            (
                Operation::RmsNorm(node(true)),
                SHAPES[0],
                [Double, Float, Float],
                Float,
                "x (tensor 0): expected float, half or bfloat16, got double",
            ),
            (
                Operation::RmsNorm(node(true)),
                SHAPES[0],
                [Float; 3],
                Double,
                "compute_data_type: expected float for operands of these types, got double",
            ),
            (
                Operation::RmsNormBackward(gradient(true)),
                SHAPES[0],
                [Float; 3],
                Double,
                "compute_data_type: expected float for operands of these types, got double",
            ),
            (
                Operation::RmsNorm(node(false)),
                columns,
                [Float; 3],
                Float,
                "scale (tensor 3): expected extents of ones and then the last of [4, 6], got [4, 1]",
            ),
            (
                Operation::RmsNormBackward(gradient(false)),
                columns,
                [Float; 3],
                Float,
                "scale (tensor 3): expected extents of ones and then the last of [4, 6], got [4, 1]",
            ),
        ] {
            let reason = declined(&operation, &tensors(&shape, types), compute);
            assert!(reason.starts_with("node 0 (RMSNorm") && reason.contains(want), "{reason}");
        }
    }
}
