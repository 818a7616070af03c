//! Precision of kernels.

use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_schemas::{DataType, Graph, TensorUid};

/// Declines a compute type more precise than the kernels': these compute in `f32`, and in `f64` where a tensor in
/// memory that is read, or a result, has more digits than that. Scalars by value are computed with in the type of the
/// other operands.
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
