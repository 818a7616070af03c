//! The rule "rows": reductions and element-wise functions that go through the same groups are one kernel.
//!
//! The kernel compiler says which do: the same fusion that GPUs' kernels are made of. It sees reductions and
//! element-wise functions that are computed in `f32`, and everything else as opaque. Nodes that are one kernel there are
//! one here if rows are faster: see [`rows`](crate::rows).
//!
//! Left as they are: normalization and pooling nodes, whose own kernels are as fast and compute in `f64`; Euclidean
//! norms, whose squares may exceed `f32`; numbers that `f32` does not hold; and element-wise functions behind a matrix
//! product, which are its epilogue.

use hipdnn_engine_kernel::fuse::{FusionGroup, fuse};
use hipdnn_engine_kernel::ir::op::{Opaque, Work as Lowered};
use hipdnn_engine_kernel::lower::lower_node;
use hipdnn_schemas::{Graph, Operation, ReductionMode, TensorUid};

use super::{NodeList, Remark, Rule};
use crate::rows;
use crate::work::Work;
use hipdnn_cpu_pointwise::{ComputeType, Storage};

/// Fuses what goes through the same groups. Works are those of single nodes, or of several where `nodes` says so.
pub(super) fn apply(graph: &Graph, works: &mut [Option<Work>], nodes: &mut [NodeList], remarks: &mut Vec<Remark>) {
    let is_candidate = candidates(graph, works, nodes);
    if !is_candidate.contains(&true) {
        return;
    }
    let lowered = (0..works.len()).map(|index| {
        let known = is_candidate[index].then(|| lower_node(graph, index).ok()).flatten();
        known.unwrap_or_else(|| Lowered::Opaque(opaque(graph, works, index)))
    });
    for fusion_group in fuse(graph, lowered.collect()) {
        let FusionGroup::Groups(groups) = fusion_group else { continue };
        let (Some(last), true) = (groups.nodes.last().copied(), groups.nodes.len() > 1) else { continue };
        let work = match &groups.work.kernels[..] {
            [kernel] => rows::bind(graph, kernel),
            _ => Err("its groups are too few for threads to share"),
        };
        match work {
            Err(reason) => remarks.push(Remark { rule: Rule::Rows, nodes: groups.nodes.into(), refused: Some(reason) }),
            Ok(work) => {
                for node in &groups.nodes {
                    works[*node] = None;
                }
                works[last] = Some(Work::Node(work));
                nodes[last] = groups.nodes.into();
                remarks.push(Remark { rule: Rule::Rows, nodes: nodes[last].clone(), refused: None });
            }
        }
    }
}

/// True for nodes that are reductions or element-wise functions in `f32`, and linked to a reduction by others of them.
fn candidates(graph: &Graph, works: &[Option<Work>], nodes: &[NodeList]) -> Vec<bool> {
    let is_known = |index: usize| {
        let Some(work) = works[index].as_ref().filter(|_| nodes[index].len() == 1) else { return false };
        match work {
            Work::Pointwise(work) => work.program.compute_type == ComputeType::F32,
            Work::Node(_) => is_reduction(graph, index),
            Work::Convolution(_) | Work::Matmul(_) => false,
        }
    };
    let mut is_found = vec![false; works.len()];
    let mut ahead: Vec<usize> =
        (0..works.len()).filter(|index| is_reduction(graph, *index) && is_known(*index)).collect();
    while let Some(index) = ahead.pop() {
        if std::mem::replace(&mut is_found[index], true) {
            continue;
        }
        let operation = &graph.nodes()[index].operation;
        let before = operation.inputs().into_iter().filter_map(|uid| graph.producer(uid));
        let behind = operation.outputs().into_iter().flat_map(|uid| graph.consumers(uid).iter().copied());
        ahead.extend(before.chain(behind).filter(|index| is_known(*index)));
    }
    is_found
}

/// True for reductions of numbers that `f32` holds.
fn is_reduction(graph: &Graph, index: usize) -> bool {
    let Operation::Reduction(node) = &graph.nodes()[index].operation else { return false };
    let storage = |uid: TensorUid| Storage::of(graph.tensor(uid).data_type());
    node.mode != ReductionMode::Norm2
        && storage(node.input).is_some_and(|storage| storage.is_single() && !storage.is_whole())
}

/// Node as the kernel compiler sees it where it has no kernel for it, or the engine a better one.
fn opaque(graph: &Graph, works: &[Option<Work>], index: usize) -> Opaque {
    let operation = &graph.nodes()[index].operation;
    let has_epilogue = matches!(works[index], Some(Work::Matmul(_)));
    Opaque { node: index, inputs: operation.inputs(), outputs: operation.outputs(), has_epilogue }
}
