//! Reductions: see [`hipdnn_engine_core::ops::reduction`].

use hipdnn_engine_core::Declined;
use hipdnn_engine_core::ops::{NUMBERS, reduction};
use hipdnn_schemas::{DataType, Graph, PointwiseMode, Reduction, ReductionMode};

use super::build::{Combine, Kernel, Loops};
use super::check_digits;
use crate::ir::group::{GroupWork, Operand};
use crate::ir::op::Work;

/// Lowers a reduction.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn lower(graph: &Graph, index: usize, node: &Reduction) -> Result<Work, Declined> {
    reduction::check(graph, index, node, NUMBERS)?;
    // One of the elements has no more digits than they have.
    if !matches!(node.mode, ReductionMode::Min | ReductionMode::Max | ReductionMode::AbsMax) {
        check_digits(graph, index, [node.input], node.output)?;
    }
    let [input, output] = [node.input, node.output].map(|uid| graph.tensor(uid));
    let axes: Vec<Option<usize>> = (0..input.rank()).map(Some).collect();
    let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..input.rank()).partition(|axis| output.dims()[*axis] == 1);
    let extents = |axes: &[usize]| axes.iter().map(|axis| input.dims()[*axis]).collect::<Vec<_>>();
    let members = extents(&reduced);
    let count = members.iter().product::<usize>() as f64;
    let loops = Loops::new(kept.iter().chain(&reduced).copied());
    let mut kernel = Kernel::new(extents(&kept), members);
    let result = kernel.fold(|body| {
        let x = body.element(Operand::Tensor(node.input), loops.at(&axes));
        vec![match node.mode {
            ReductionMode::Add | ReductionMode::Average => Combine::Sum(x),
            ReductionMode::Norm1 => Combine::Sum(body.op(PointwiseMode::Abs, &[x])),
            ReductionMode::Norm2 => Combine::Sum(body.mul(x, x)),
            ReductionMode::Mul => Combine::Product(x),
            ReductionMode::MulNoZeros => {
                let (zero, one) = (body.literal(0.0), body.literal(1.0));
                let is_zero = body.op(PointwiseMode::CmpEq, &[x, zero]);
                Combine::Product(body.select(is_zero, one, x))
            }
            ReductionMode::Min => Combine::Min(x),
            ReductionMode::Max => Combine::Max(x),
            ReductionMode::AbsMax => Combine::Max(body.op(PointwiseMode::Abs, &[x])),
            ReductionMode::Unset => unreachable!("a checked reduction has a mode"),
        }]
    })[0];
    kernel.once(|body| {
        let result = match node.mode {
            ReductionMode::Average => {
                let count = body.number(count);
                body.div(result, count)
            }
            ReductionMode::Norm2 => body.op(PointwiseMode::Sqrt, &[result]),
            _ => result,
        };
        // The output's dimensions that are reduced have one place.
        let places: Vec<Option<usize>> = axes.iter().map(|axis| axis.filter(|axis| !reduced.contains(axis))).collect();
        body.store(result, Operand::Tensor(node.output), loops.at(&places));
        []
    });
    let partial = partial_type(node.mode, input.data_type(), output.data_type());
    let kernels = vec![kernel.finish()];
    Ok(Work::Groups(GroupWork { node: index, name: "reduction", locals: Vec::new(), kernels, partial }))
}

/// Element type of partial results of a split reduction: it loses nothing that an unsplit reduction would not.
fn partial_type(mode: ReductionMode, input: DataType, output: DataType) -> DataType {
    use ReductionMode::*;
    let is_product = matches!(mode, Mul | MulNoZeros);
    let is_sum = matches!(mode, Add | Average | Norm1 | Norm2);
    match input {
        // Products of parts may be large and small where the whole one is neither.
        _ if is_product => DataType::Double,
        DataType::Double | DataType::Int32 => DataType::Double,
        _ if output == DataType::Double => DataType::Double,
        DataType::Int8 | DataType::UInt8 if is_sum => DataType::Int64,
        _ => DataType::Float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::lower as lowered;
    use crate::lower::split_reduction::split;
    use crate::lower::testing::{compare, declined, graph, work};
    use DataType::{BFloat16, Double, Float, Half, Int8, Int32, Int64, UInt8};
    use hipdnn_engine_cpu::nodes::testing::noise;
    use hipdnn_schemas::{Operation, TensorDef, TensorUid};

    fn node(mode: ReductionMode) -> Operation {
        Operation::Reduction(Reduction { mode, input: TensorUid(0), output: TensorUid(1), is_deterministic: true })
    }

    fn modes() -> impl Iterator<Item = ReductionMode> {
        ReductionMode::ALL.iter().copied().filter(|mode| *mode != ReductionMode::Unset)
    }

    #[test]
    fn every_mode_is_what_the_host_engine_computes() {
        // What, extents, strides of the input, extents of the output, strides of the output.
        type Case<'a> = (&'a str, &'a [i64], &'a [i64], &'a [i64], &'a [i64]);
        let cases: [Case<'_>; 8] = [
            ("everything", &[3, 5, 7], &[35, 7, 1], &[1, 1, 1], &[1, 1, 1]),
            ("rows", &[3, 5, 33], &[165, 33, 1], &[3, 5, 1], &[5, 1, 1]),
            ("columns", &[9, 5, 7], &[35, 7, 1], &[1, 5, 7], &[35, 7, 1]),
            ("all but channels, channels last", &[4, 3, 5, 6], &[90, 1, 18, 3], &[1, 3, 1, 1], &[3, 1, 1, 1]),
            ("the middle", &[4, 33, 5], &[165, 5, 1], &[4, 1, 5], &[5, 5, 1]),
            ("a slice, to a padded output", &[4, 6, 5], &[400, 30, 2], &[4, 1, 5], &[40, 40, 3]),
            ("nothing", &[4, 5], &[5, 1], &[4, 5], &[1, 4]),
            ("one element", &[1, 1], &[1, 1], &[1, 1], &[1, 1]),
        ];
        for (mode, (what, dims, strides, to, to_strides)) in modes().flat_map(|mode| cases.map(|case| (mode, case))) {
            let tensors =
                vec![TensorDef::new(0, Float, dims).strided(strides), TensorDef::new(1, Float, to).strided(to_strides)];
            // Zeros among them.
            let fill = |_, i: usize| if i % 7 == 3 { 0.0 } else { noise(i) * 1.5 };
            compare(&format!("{mode} of {what}"), node(mode), tensors, fill);
        }
    }

    #[test]
    fn types_differ() {
        let types = [
            (Half, Float),
            (Float, BFloat16),
            (Double, Double),
            (Int32, Int32),
            (Int8, Int32),
            (UInt8, Half),
            (Int32, Int8),
        ];
        for (mode, (from, to)) in modes().flat_map(|mode| types.map(|types| (mode, types))) {
            let tensors = vec![TensorDef::new(0, from, &[3, 5]), TensorDef::new(1, to, &[3, 1])];
            // Products of five stay whole where they are of whole numbers.
            compare(&format!("{mode} of {from} to {to}"), node(mode), tensors, |_, i| (i * 7 % 5) as f64);
        }
    }

    #[test]
    fn values_that_are_no_numbers_are_seen() {
        for (what, values) in [
            ("a NaN", [1.0, f64::NAN, -3.0, 0.0]),
            ("infinities", [f64::INFINITY, 1.0, f64::NEG_INFINITY, 2.0]),
            ("minus infinity", [f64::NEG_INFINITY; 4]),
            ("zeros", [0.0, -0.0, 0.0, 0.0]),
        ] {
            for mode in modes() {
                let tensors = vec![TensorDef::new(0, Float, &[2, 4]), TensorDef::new(1, Float, &[2, 1])];
                compare(&format!("{mode} of {what}"), node(mode), tensors, |_, i| values[i % 4]);
            }
        }
    }

    #[test]
    fn few_groups_of_many_members_are_cut() {
        // Extents of the input and the output, how many kernels there are, and how many groups the first has.
        type Case<'a> = (&'a [i64], &'a [i64], usize, usize);
        let cases: [Case<'_>; 6] = [
            (&[64, 1 << 20], &[64, 1], 2, 64 * 16),
            (&[1 << 26], &[1], 2, 1024),
            (&[1, 1 << 17], &[1, 1], 2, 32),
            (&[16, 3, 256, 256], &[1, 3, 1, 1], 2, 3 * 16 * 16),
            (&[2048, 1 << 17], &[2048, 1], 1, 2048),
            (&[1, 1 << 16], &[1, 1], 1, 1),
        ];
        for (dims, to, kernels, groups) in cases {
            let tensors = [TensorDef::new(0, Float, dims), TensorDef::new(1, Float, to)];
            let work = split(work(&node(ReductionMode::Add), &tensors));
            assert_eq!(work.kernels.len(), kernels, "{dims:?}");
            assert_eq!(work.kernels[0].groups.iter().product::<usize>(), groups, "{dims:?}");
        }
    }

    #[test]
    fn parts_lose_nothing() {
        for (mode, from, to, want) in [
            (ReductionMode::Add, Float, Float, Float),
            (ReductionMode::Add, Half, Double, Double),
            (ReductionMode::Add, Int8, Int32, Int64),
            (ReductionMode::Norm2, UInt8, Float, Int64),
            (ReductionMode::Norm2, Int32, Float, Double),
            (ReductionMode::Mul, Float, Float, Double),
            (ReductionMode::MulNoZeros, Int8, Float, Double),
            (ReductionMode::Max, Int8, Int8, Float),
        ] {
            let tensors = [TensorDef::new(0, from, &[1 << 17]), TensorDef::new(1, to, &[1])];
            let locals: Vec<DataType> =
                split(work(&node(mode), &tensors)).locals.iter().map(|local| local.data_type).collect();
            assert_eq!(locals, [want], "{mode} of {from} to {to}");
        }
    }

    #[test]
    fn one_of_the_elements_is_found_in_any_type() {
        for (mode, is_taken) in [
            (ReductionMode::Max, true),
            (ReductionMode::Min, true),
            (ReductionMode::AbsMax, true),
            (ReductionMode::Mul, false),
        ] {
            let tensors = [TensorDef::new(0, Float, &[3, 5]), TensorDef::new(1, Half, &[3, 1])];
            assert_eq!(lowered(&graph(&node(mode), &tensors, Double)).is_ok(), is_taken, "{mode}");
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        for (types, compute, want) in [
            (
                [Int64, Float],
                Float,
                "in (tensor 0): expected float, half, bfloat16, double, int32, int8 or uint8, got int64",
            ),
            (
                [Float, DataType::Boolean],
                Float,
                "out (tensor 1): expected float, half, bfloat16, double, int32, int8 or uint8, got boolean",
            ),
            ([Float, Float], Double, "compute_data_type: expected float for operands of these types, got double"),
            ([Int8, Int32], Int32, "compute_data_type: expected float for operands of these types, got int32"),
            ([Float, Float], Int64, "compute_data_type: expected float, half, bfloat16, double or int32, got int64"),
        ] {
            let tensors = [TensorDef::new(0, types[0], &[3, 5]), TensorDef::new(1, types[1], &[3, 1])];
            let reason = declined(&node(ReductionMode::Add), &tensors, compute);
            assert!(reason.starts_with("node 0 (Reduction)") && reason.contains(want), "{reason}");
        }
    }
}
