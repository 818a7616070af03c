//! Nodes that the engine has no kernel of its own for: the kernel compiler's kernels, in rows.
//!
//! What such a node is, and what is declined of it, its lowering says for both engines; it needs no module here. Values
//! of members are `f32`, and what is summed or computed once for a group is `f64`: see [`rows`](crate::rows). So the
//! types are those that `f32` holds. Kernels that read windows or indices, or that have memory between them, are
//! declined.

use hipdnn_engine_core::checks::check_type;
use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_engine_kernel::ir::op::Work as Lowered;
use hipdnn_engine_kernel::lower::lower_whole;
use hipdnn_schemas::{DataType, Graph};

use crate::rows;
use crate::work::Work;

/// Types of the operands and results of these nodes, in any mix.
pub const TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Lowers a node by the kernel compiler.
///
/// # Errors
/// Reason for which the kernel compiler declines the node, or for which there are no rows for it.
pub fn lower(graph: &Graph, index: usize) -> Result<Work, Declined> {
    let Lowered::Groups(work) = lower_whole(graph, index)? else {
        return Err(Declined::Operation { node: NodeLabel::of(graph, index) });
    };
    let operation = &graph.nodes()[index].operation;
    for (role, uid) in operation.named_inputs().into_iter().chain(operation.named_outputs()) {
        let role = role.split_once("_tensor_uid").map_or(role, |(role, _)| role);
        check_type(graph, index, role, uid, TYPES)?;
    }
    let op = rows::bind_all(graph, work.name, &work.kernels).map_err(|reason| Declined::Kernel {
        purpose: format!("compute {}", NodeLabel::of(graph, index)),
        reason: reason.to_string(),
    })?;
    Ok(Work::Node(op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::testing::{Bench, noise};
    use DataType::{BFloat16, Double, Float, Half};
    use hipdnn_schemas::{
        Batchnorm, Layernorm, LayernormBackward, NormFwdPhase, Operation, Reduction, ReductionMode, RmsNormBackward,
        TensorDef, TensorUid, TensorValue,
    };

    const EPSILON: TensorValue = TensorValue::Float32(0.03);

    /// Compares a node by the kernel compiler with the engine's own kernel, on one thread and on three.
    fn compare(what: &str, operation: &Operation, tensors: &[TensorDef]) {
        let mut own = Bench::new(operation.clone(), tensors.to_vec());
        let mut compiled = Bench::compiled(operation.clone(), tensors.to_vec());
        for uid in operation.inputs() {
            let tensor = tensors.iter().find(|tensor| tensor.uid == uid).expect("an operand");
            if tensor.value.is_none() {
                let value = |i: usize| noise(i + 77 * uid.0 as usize) * 1.5 + 0.125;
                own.fill(uid.0, value);
                compiled.fill(uid.0, value);
            }
        }
        let (want, alone, shared) = (own.run(2), compiled.run(1), compiled.run(3));
        assert_eq!(alone, shared, "{what}: the same bits on any number of threads");
        assert!(alone.keys().eq(want.keys()) && !want.is_empty(), "{what}");
        for (uid, want) in &want {
            let data_type = tensors.iter().find(|tensor| tensor.uid.0 == *uid).expect("a result").data_type;
            let unit = [(Half, 2f64.powi(-11)), (BFloat16, 2f64.powi(-8))];
            let unit =
                unit.iter().find(|(short, _)| *short == data_type).map_or(2f64.powi(-20), |(_, unit)| unit * 2.0);
            for (i, (got, want)) in alone[uid].iter().zip(want).enumerate() {
                let near = (got - want).abs() <= unit * want.abs().max(1.0);
                assert!(near, "{what}, tensor {uid}, element {i}: {got} for {want}");
            }
        }
    }

    fn reduction(mode: ReductionMode) -> Operation {
        Operation::Reduction(Reduction { mode, input: TensorUid(0), output: TensorUid(1), is_deterministic: true })
    }

    /// Rows of any length, wherever they lie: also those that fusion leaves to kernels of their own.
    #[test]
    fn reductions_of_any_shape_are_those_of_the_own_kernels() {
        // What, extents, strides, extents of the result.
        type Case<'a> = (&'a str, &'a [i64], &'a [i64], &'a [i64]);
        let cases: [Case<'_>; 8] = [
            ("rows", &[5, 33], &[33, 1], &[5, 1]),
            ("short rows", &[100, 3], &[3, 1], &[100, 1]),
            ("columns", &[50, 7], &[7, 1], &[1, 7]),
            ("scattered", &[9, 50], &[300, 5], &[9, 1]),
            ("one group of many members", &[3, 70_000], &[70_000, 1], &[1, 1]),
            ("one member", &[6, 1], &[1, 1], &[6, 1]),
            ("one element", &[1, 1], &[1, 1], &[1, 1]),
            ("the middle", &[4, 33, 5], &[200, 6, 1], &[4, 1, 5]),
        ];
        for (what, dims, strides, to) in cases {
            for (from_type, to_type) in [(Float, Float), (Half, Float), (Float, BFloat16)] {
                let tensors = [TensorDef::new(0, from_type, dims).strided(strides), TensorDef::new(1, to_type, to)];
                for mode in [ReductionMode::Average, ReductionMode::Max, ReductionMode::Norm2] {
                    compare(&format!("{what}, {mode}"), &reduction(mode), &tensors);
                }
            }
        }
    }

    #[test]
    fn several_passes_and_results_are_those_of_the_own_kernels() {
        for layout in [&[1200, 100, 10, 1][..], &[1200, 1, 120, 12]] {
            let of_channels = |uid| TensorDef::new(uid, Float, &[1, 12, 1, 1]);
            let batchnorm = Batchnorm {
                prev_running_mean: Some(TensorUid(5)),
                prev_running_variance: Some(TensorUid(6)),
                momentum: Some(TensorUid(7)),
                mean: Some(TensorUid(8)),
                inv_variance: Some(TensorUid(9)),
                next_running_mean: Some(TensorUid(10)),
                next_running_variance: Some(TensorUid(11)),
                ..Batchnorm::new(TensorUid(0), TensorUid(1), TensorUid(2), TensorUid(3), TensorUid(4))
            };
            let mut tensors: Vec<TensorDef> = [1, 2, 5, 6, 8, 9, 10, 11].map(of_channels).into();
            tensors.extend([0, 4].map(|uid| TensorDef::new(uid, Float, &[3, 12, 10, 10]).strided(layout)));
            tensors.push(TensorDef::new(3, Float, &[1]).with_value(EPSILON));
            tensors.push(TensorDef::new(7, Float, &[1]).with_value(TensorValue::Float32(0.25)));
            compare("batch normalization", &Operation::Batchnorm(batchnorm), &tensors);
        }
        for dims in [[6, 300], [2, 5]] {
            let layernorm = Layernorm {
                x: TensorUid(0),
                scale: TensorUid(1),
                bias: TensorUid(2),
                epsilon: TensorUid(3),
                y: TensorUid(4),
                normalized_dim_count: 1,
                mean: Some(TensorUid(5)),
                inv_variance: Some(TensorUid(6)),
                forward_phase: NormFwdPhase::Training,
            };
            let mut tensors = vec![TensorDef::new(0, Half, &dims), TensorDef::new(4, BFloat16, &dims)];
            tensors.extend([1, 2].map(|uid| TensorDef::new(uid, Float, &[1, dims[1]])));
            tensors.extend([5, 6].map(|uid| TensorDef::new(uid, Float, &[dims[0], 1])));
            tensors.push(TensorDef::new(3, Float, &[1]).with_value(EPSILON));
            compare("layer normalization", &Operation::Layernorm(layernorm), &tensors);
        }
    }

    #[test]
    fn what_rows_do_not_compute_is_declined_with_the_reason() {
        let tensors = |data_type| vec![TensorDef::new(0, data_type, &[4, 6]), TensorDef::new(1, Float, &[4, 1])];
        let reason = Bench::not_compiled(reduction(ReductionMode::Add), tensors(Double));
        assert!(reason.ends_with("in (tensor 0): expected float, half or bfloat16, got double"), "{reason}");
        // Statistics that one kernel computes and another one reads are memory between them.
        let gradient = LayernormBackward {
            dy: TensorUid(0),
            x: TensorUid(1),
            scale: TensorUid(2),
            mean: None,
            inv_variance: None,
            epsilon: Some(TensorUid(6)),
            dx: TensorUid(4),
            dscale: TensorUid(5),
            dbias: None,
            normalized_dim_count: 1,
        };
        let mut tensors = gradients();
        tensors.push(TensorDef::new(6, Float, &[1]).with_value(EPSILON));
        let reason = Bench::not_compiled(Operation::LayernormBackward(gradient), tensors);
        assert_eq!(reason, "no kernel to compute node 0 (LayernormBackward): it has temporaries of its own");
    }

    fn gradients() -> Vec<TensorDef> {
        let mut tensors: Vec<TensorDef> = [0, 1, 4].map(|uid| TensorDef::new(uid, Float, &[9, 40])).into();
        tensors.extend([2, 5].map(|uid| TensorDef::new(uid, Float, &[1, 40])));
        tensors.push(TensorDef::new(3, Float, &[9, 1]));
        tensors
    }

    #[test]
    fn a_node_may_be_several_kernels() {
        let gradient = RmsNormBackward {
            dy: TensorUid(0),
            x: TensorUid(1),
            scale: TensorUid(2),
            inv_rms: TensorUid(3),
            dx: TensorUid(4),
            dscale: TensorUid(5),
            dbias: None,
        };
        compare("gradient of RMS normalization", &Operation::RmsNormBackward(gradient), &gradients());
    }
}
