//! Graphs of one node, and what is read of normalizations, for tests.

use hipdnn_schemas::{DataType, Graph, GraphBuilder, Operation, TensorDef, TensorUid};

use super::normalization::{Normalization, Slot};
use crate::Declined;

/// Tensors of a node under test: uid, extents and type.
#[derive(Clone)]
pub(crate) struct Tensors(Vec<TensorDef>);

impl Tensors {
    /// Packed tensors of `f32`, by uid and extents.
    pub(crate) fn new(tensors: &[(i64, &[i64])]) -> Tensors {
        Tensors(tensors.iter().map(|(uid, dims)| TensorDef::new(*uid, DataType::Float, dims)).collect())
    }

    /// The same with another one in the place of a tensor.
    pub(crate) fn with(&self, uid: i64, data_type: DataType, dims: &[i64]) -> Tensors {
        let mut tensors = self.clone();
        let place = tensors.0.iter_mut().find(|tensor| tensor.uid == TensorUid(uid)).expect("a tensor of that uid");
        *place = TensorDef::new(uid, data_type, dims);
        tensors
    }

    /// The same with another type of a tensor.
    pub(crate) fn typed(&self, uid: i64, data_type: DataType) -> Tensors {
        let tensor = self.0.iter().find(|tensor| tensor.uid == TensorUid(uid)).expect("a tensor of that uid");
        self.with(uid, data_type, &tensor.dims.clone())
    }

    /// Graph of one node with these tensors, which computes in `f32`.
    pub(crate) fn graph(&self, operation: Operation) -> Graph {
        self.graph_in(DataType::Float, operation)
    }

    /// Graph of one node with these tensors, which computes in that type.
    pub(crate) fn graph_in(&self, compute: DataType, operation: Operation) -> Graph {
        let mut graph = GraphBuilder::new("").compute(compute);
        for tensor in &self.0 {
            graph.tensor(tensor.clone());
        }
        graph.node("", operation);
        graph.build().expect("a valid graph")
    }
}

/// Reason of an answer, without the node; nothing where it is yes.
pub(crate) fn reason<T>(answer: Result<T, Declined>) -> String {
    let Err(declined) = answer else { return String::new() };
    let message = declined.to_string();
    let (node, reason) = message.split_once(": ").expect("a node and what is wrong with it");
    assert!(node.starts_with("node 0 ("), "expected the node that is declined, got {message}");
    reason.to_string()
}

/// Operands that are read, or those that are written: role, uid, and the dimension of `x` that each of the tensor's own
/// is, `-` where it is none.
pub(crate) fn operands(node: &Normalization, is_written: bool) -> Vec<(Slot, i64, String)> {
    let operands = node.operands.iter().filter(|operand| operand.is_written == is_written);
    let axes =
        |axes: &[Option<usize>]| axes.iter().map(|axis| axis.map_or("-".into(), |axis| axis.to_string())).collect();
    operands.map(|operand| (operand.slot, operand.tensor.0, axes(&operand.axes))).collect()
}

/// The same as [`operands`], from text.
pub(crate) fn wanted(operands: &[(Slot, i64, &str)]) -> Vec<(Slot, i64, String)> {
    operands.iter().map(|(slot, uid, axes)| (*slot, *uid, axes.to_string())).collect()
}

/// Types of operands by uid and role: holds that each of `numbers` is declined unless it is a float of 32 or 16 bits,
/// and that each of `scalars` may be a double besides.
pub(crate) fn assert_types<T>(
    tensors: &Tensors,
    operation: &Operation,
    read: impl Fn(&Graph) -> Result<T, Declined>,
    numbers: &[(i64, &str)],
    scalars: &[(i64, &str)],
) {
    use DataType::{BFloat16, Double, Float, Half, Int8, Int32};
    for (operands, taken, wanted) in [
        (numbers, &[Float, Half, BFloat16][..], "float, half or bfloat16"),
        (scalars, &[Float, Half, BFloat16, Double], "float, half, bfloat16 or double"),
    ] {
        for (uid, role) in operands {
            for data_type in [Float, Half, BFloat16, Double, Int8, Int32] {
                let graph = tensors.typed(*uid, data_type).graph(operation.clone());
                let want = match taken.contains(&data_type) {
                    true => String::new(),
                    false => format!("{role} (tensor {uid}): expected {wanted}, got {data_type}"),
                };
                assert_eq!(reason(read(&graph)), want);
            }
        }
    }
}
