//! Element-wise functions: a small program for every element of a node's result.

use hipdnn_schemas::TensorUid;

use crate::emit::Op;

/// Element-wise function of tensors. Slots of its program are numbered: first its inputs, then the index if it has one,
/// then the results of its operations. The last slot is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementwiseOp {
    /// Index of the node in the graph.
    pub node: usize,
    /// Operands.
    pub inputs: Vec<Argument>,
    /// Dimension of the result whose index is an input too.
    pub index: Option<usize>,
    /// Operations in order.
    pub program: Vec<Op>,
    /// Result tensor.
    pub output: TensorUid,
}

/// Tensor operand of a formula.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// Uid of the tensor.
    pub tensor: TensorUid,
    /// Mapping of the tensor's dimensions to those of the result; `None` is the identity. Dimensions of extent 1 are
    /// broadcast, and so are tensors of one element, whatever their rank.
    pub axes: Option<Vec<usize>>,
}

impl Argument {
    /// Operand whose dimensions are those of the result.
    pub fn new(tensor: TensorUid) -> Argument {
        Argument { tensor, axes: None }
    }
}
