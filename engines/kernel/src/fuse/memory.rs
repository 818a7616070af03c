//! Aliasing of callers' buffers, and its limits on fusing and moving fusion groups.

use std::collections::HashSet;

use hipdnn_schemas::{Graph, Tensor, TensorUid};

use super::places::same_places;
use super::vertical::elements_of;
use crate::ir::group::{GroupKernel, Pass};

/// True if the written tensor may alias the one that was read: a caller may have the result of an element-wise function
/// at the place of an operand with the same extents, strides and type.
pub fn may_share(graph: &Graph, read: TensorUid, written: TensorUid) -> bool {
    let (from, to) = (graph.tensor(read), graph.tensor(written));
    let is_given =
        |tensor: &Tensor| !tensor.is_virtual() && tensor.value().is_none() && !tensor.is_runtime_pass_by_value();
    read != written
        && is_given(from)
        && is_given(to)
        && from.dims() == to.dims()
        && from.strides() == to.strides()
        && from.data_type() == to.data_type()
}

/// True if a fusion group with these outputs, which reads `reads`, may overwrite one of the inputs.
pub(super) fn overwrites(graph: &Graph, inputs: &[TensorUid], outputs: &[TensorUid], reads: &[TensorUid]) -> bool {
    let is_overwritten = |uid: &TensorUid| outputs.iter().any(|output| may_share(graph, *uid, *output));
    inputs.iter().any(|uid| reads.contains(uid) && is_overwritten(uid))
}

/// True if in-place execution is safe where a caller has a result at the place of an operand of its functions: each
/// element of that operand is read by the group that writes it, before it does.
pub(super) fn is_apart(graph: &Graph, kernels: &[GroupKernel]) -> bool {
    // Kernels and passes in order.
    let passes: Vec<(usize, &GroupKernel, &Pass)> =
        kernels.iter().enumerate().flat_map(|(k, kernel)| kernel.passes.iter().map(move |p| (k, kernel, p))).collect();
    passes.iter().enumerate().all(|(number, (of, kernel, pass))| {
        let loops = [&kernel.groups[..], &kernel.members].concat();
        pass.stores().iter().filter_map(|store| Some((store.to.tensor()?, &store.at))).all(|(written, stored_at)| {
            let shared: HashSet<TensorUid> =
                elements_of(pass).map(|(uid, _)| uid).filter(|uid| may_share(graph, *uid, written)).collect();
            passes.iter().enumerate().all(|(other, (other_of, _, other_phase))| {
                elements_of(other_phase).filter(|(uid, _)| shared.contains(uid)).all(|(_, at)| {
                    other_of < of || (other_of == of && other <= number && same_places(at, stored_at, &loops))
                })
            })
        })
    })
}
