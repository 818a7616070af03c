//! Operations of nodes.

use hipdnn_engine_core::ops::convolution::Direction;
use hipdnn_schemas::{Convolution as Geometry, TensorUid, Uids};

use super::elementwise::ElementwiseOp;
use super::group::GroupWork;

/// Operation of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Convolution, or one of its gradients.
    Convolution(Convolution),
    /// Element-wise function.
    Pointwise(ElementwiseOp),
    /// Kernels over groups of elements.
    Groups(GroupWork),
    /// Operation of which only the operands are known.
    Opaque(Opaque),
}

/// Operation that a back end has kernels of its own for. [`lower`](crate::lower::lower) makes none: a back end that asks
/// for the fusion of some nodes puts it in the place of each other one, and [`fuse`](crate::fuse::fuse) leaves it as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Opaque {
    /// Index of the node in the graph.
    pub node: usize,
    /// Operand tensors.
    pub inputs: Uids,
    /// Result tensors.
    pub outputs: Uids,
    /// True if the back end may have chains behind it in one kernel with it: then none is recomputed where it is read.
    pub has_epilogue: bool,
}

/// Convolution, or one of its gradients; the tensors have the places that they have in the forward one.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// Index of the node in the graph.
    pub node: usize,
    /// Direction: the tensor that is the result.
    pub direction: Direction,
    /// Input, or its gradient.
    pub x: TensorUid,
    /// Filter, or its gradient.
    pub w: TensorUid,
    /// Output, or its gradient.
    pub y: TensorUid,
    /// Paddings, strides, dilations, and the mode that flips the filter.
    pub geometry: Geometry,
}

impl Convolution {
    /// Result tensor.
    pub fn output(&self) -> TensorUid {
        match self.direction {
            Direction::Forward => self.y,
            Direction::BackwardData => self.x,
            Direction::BackwardWeights => self.w,
        }
    }

    /// Operand tensors.
    pub fn inputs(&self) -> [TensorUid; 2] {
        match self.direction {
            Direction::Forward => [self.x, self.w],
            Direction::BackwardData => [self.y, self.w],
            Direction::BackwardWeights => [self.x, self.y],
        }
    }
}
