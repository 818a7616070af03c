//! Reductions: see [`crate::engine::nodes::reduction`].

use hipdnn_schemas::{DataType, Graph, PointwiseMode, Reduction, ReductionMode};

use super::build::{Combine, Kernel, Loops};
use super::check_digits;
use super::split::split;
use crate::engine::miopen::group::{GroupWork, Operand};
use crate::engine::miopen::lower::Work;
use crate::engine::{Declined, nodes::reduction};

/// Looks at a reduction.
///
/// # Errors
/// Why the engine does not take it.
pub fn lower(graph: &Graph, index: usize, node: &Reduction) -> Result<Work, Declined> {
    reduction::check(graph, index, node, reduction::TYPES)?;
    check_digits(graph, index, [node.input], node.output)?;
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
            ReductionMode::Min => Combine::Least(x),
            ReductionMode::Max => Combine::Greatest(x),
            ReductionMode::AbsMax => Combine::Greatest(body.op(PointwiseMode::Abs, &[x])),
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
    let is_wide =
        matches!(input.data_type(), DataType::Double | DataType::Int32) || output.data_type() == DataType::Double;
    let work = GroupWork { node: index, name: "reduction", locals: Vec::new(), kernels: vec![kernel.finish()] };
    Ok(Work::Groups(split(work, if is_wide { DataType::Double } else { DataType::Float })))
}
