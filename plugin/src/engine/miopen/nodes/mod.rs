//! Nodes that need sums or the like over elements, as kernels over groups: each kind has a module that looks at the node.

pub mod batchnorm;
mod build;
#[cfg(test)]
mod interpret;
pub mod layernorm;
mod normalization;
pub mod reduction;
pub mod resample;
pub mod rmsnorm;
mod split;
#[cfg(test)]
mod testing;

use hipdnn_schemas::{DataType, Graph, TensorUid};

use crate::engine::{Declined, NodeLabel};

/// Declines a node that asks for more digits than kernels compute with: these have `f32`, and `f64` where a tensor in memory
/// that is read, or a result, has more digits than that. Scalars by value have the digits of what else is computed.
pub(super) fn check_digits(
    graph: &Graph,
    index: usize,
    reads: impl IntoIterator<Item = TensorUid>,
    output: TensorUid,
) -> Result<(), Declined> {
    let data_type = graph.nodes()[index].compute_data_type;
    let is_wide = |uid: TensorUid| {
        let tensor = graph.tensor(uid);
        tensor.value().is_none()
            && !tensor.is_runtime_pass_by_value()
            && matches!(tensor.data_type(), DataType::Double | DataType::Int32 | DataType::Int64)
    };
    let asks = matches!(data_type, DataType::Double | DataType::Int32);
    if !asks || graph.tensor(output).data_type() == DataType::Double || reads.into_iter().any(is_wide) {
        return Ok(());
    }
    let wanted = "float for operands of these types".to_string();
    Err(Declined::ComputeType { node: NodeLabel::of(graph, index), data_type, wanted })
}
