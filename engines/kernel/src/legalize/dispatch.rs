//! Dispatches and their operands.

use hipdnn_schemas::{DataType, TensorUid};

use super::GroupedDispatch;
use crate::convolution::ConvolutionProblem;
use crate::emit::Op;

/// One kernel launch, or one convolution of MIOpen.
#[derive(Debug, Clone, PartialEq)]
pub enum Dispatch {
    /// Convolution.
    Convolution(ConvolutionDispatch),
    /// Element-wise kernel.
    Elementwise(ElementwiseDispatch),
    /// Kernel over groups.
    Grouped(GroupedDispatch),
}

/// Convolution and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionDispatch {
    /// Index of the node in the graph.
    pub node: usize,
    /// Problem for MIOpen.
    pub problem: ConvolutionProblem,
    /// Input, or its gradient.
    pub x: Value,
    /// Filter, or its gradient.
    pub w: Value,
    /// Output, or its gradient.
    pub y: Value,
    /// Bias of each channel, where its addition is fused with the convolution.
    pub bias: Option<Value>,
}

/// Element-wise kernel and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementwiseDispatch {
    /// Purpose for the log.
    pub purpose: String,
    /// Extents of the result.
    pub dims: Vec<usize>,
    /// Inputs.
    pub inputs: Vec<Input>,
    /// Operations in order; the last one's result is written, or the first input if there is none.
    pub program: Vec<Op>,
    /// Output buffer.
    pub output: Value,
    /// Layout of the output.
    pub view: View,
}

/// Buffer that dispatches read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// Tensor of the caller.
    Tensor(TensorUid),
    /// Temporary in the workspace, by its index in [`Legalized::temporaries`].
    Temporary(usize),
}

/// Operand of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Tensor in memory.
    Memory(MemoryInput),
    /// Constant.
    Literal(f64),
    /// Scalar that the caller's host memory holds when the plan is executed.
    Scalar(TensorUid, DataType),
    /// Index along that dimension of the result.
    Index(usize),
}

/// Tensor operand of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryInput {
    /// Buffer.
    pub value: Value,
    /// Layout along the dimensions of the result; strides are 0 where it is broadcast.
    pub view: View,
    /// Window of the operand in the result, (begin, extent) for each dimension; values outside are 0.
    pub window: Option<Vec<(usize, usize)>>,
}

/// Strided layout of elements in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Element type.
    pub data_type: DataType,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Offset of the first element, in elements.
    pub offset: i64,
}

/// Memory order of dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The last dimension is innermost.
    ChannelsFirst,
    /// The channels are innermost.
    ChannelsLast,
}

impl Layout {
    /// Strides of a packed tensor.
    pub(super) fn strides(self, dims: &[usize]) -> Vec<i64> {
        let dims: Vec<i64> = dims.iter().map(|extent| *extent as i64).collect();
        match self {
            Layout::ChannelsFirst => hipdnn_schemas::packed_strides(&dims),
            Layout::ChannelsLast => hipdnn_schemas::channels_last_strides(&dims),
        }
    }
}

/// True if two lists of strides reach the same elements; strides of extent 1 are ignored.
pub fn same_strides(dims: &[usize], a: &[i64], b: &[i64]) -> bool {
    dims.iter().zip(a.iter().zip(b)).all(|(extent, (a, b))| *extent == 1 || a == b)
}
