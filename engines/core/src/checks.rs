//! Checks that every engine makes: features of the graph, types and sizes.

use hipdnn_schemas::{DataType, Graph, Pointwise, PointwiseMode, Tensor, TensorUid};

use super::{Declined, NodeLabel, TensorLabel};

/// Declines graphs with features that no engine here supports.
pub fn check_graph(graph: &Graph) -> Result<(), Declined> {
    graph.tensors().iter().try_for_each(|tensor| check_tensor(graph, tensor))
}

fn check_tensor(graph: &Graph, tensor: &Tensor) -> Result<(), Declined> {
    let label = || TensorLabel::of(graph, tensor.uid());
    if tensor.ragged().is_some() {
        return Err(Declined::Ragged { tensor: label() });
    }
    let bytes = element_bytes(tensor.data_type());
    if !tensor.is_virtual() && tensor.alignment() % bytes as i64 != 0 {
        return Err(Declined::Alignment { tensor: label(), alignment: tensor.alignment(), wanted: bytes });
    }
    Ok(())
}

/// Size of an element in bytes, 1 for types smaller than that: the alignment of its address.
pub fn element_bytes(data_type: DataType) -> usize {
    (data_type.bits().expect("a checked tensor has a type") as usize / 8).max(1)
}

/// Declines a node whose compute type is none of these.
pub fn check_compute_type(graph: &Graph, index: usize, types: &[DataType]) -> Result<(), Declined> {
    let data_type = graph.nodes()[index].compute_data_type;
    if types.contains(&data_type) {
        return Ok(());
    }
    Err(Declined::ComputeType { node: NodeLabel::of(graph, index), data_type, wanted: list(types) })
}

/// Declines a node whose operand has a type that is none of these; `role` is the operand's name in the wire format.
pub fn check_type(
    graph: &Graph,
    index: usize,
    role: &'static str,
    uid: TensorUid,
    types: &[DataType],
) -> Result<(), Declined> {
    let data_type = graph.tensor(uid).data_type();
    if types.contains(&data_type) {
        return Ok(());
    }
    let (node, tensor) = (NodeLabel::of(graph, index), TensorLabel::of(graph, uid));
    Err(Declined::ElementType { node, role, tensor, data_type, wanted: list(types) })
}

/// Declines a quantity above its limit.
pub fn check_size(graph: &Graph, index: usize, what: &'static str, came: u128, most: u128) -> Result<(), Declined> {
    if came <= most {
        return Ok(());
    }
    Err(Declined::Size { node: NodeLabel::of(graph, index), what, came, most })
}

/// Declines a softplus whose beta is 0 or not finite.
pub fn check_softplus(graph: &Graph, index: usize, p: &Pointwise) -> Result<(), Declined> {
    match (p.mode, p.softplus_beta) {
        (PointwiseMode::SoftplusFwd | PointwiseMode::SoftplusBwd, Some(beta)) if beta == 0.0 || !beta.is_finite() => {
            let (attribute, wanted) = ("softplus_beta", "a finite number other than 0");
            Err(Declined::Attribute { node: NodeLabel::of(graph, index), attribute, value: beta.to_string(), wanted })
        }
        _ => Ok(()),
    }
}

/// `a, b or c`.
fn list(types: &[DataType]) -> String {
    let names: Vec<&str> = types.iter().map(|t| t.json_name()).collect();
    match names.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".to_string(),
    }
}

#[cfg(test)]
mod tests;
