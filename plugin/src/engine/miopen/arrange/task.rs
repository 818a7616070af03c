//! What is done: tasks and their operands.

use hipdnn_schemas::{DataType, TensorUid};

use super::GroupedTask;
use crate::engine::miopen::convolution::ConvolutionProblem;
use crate::engine::miopen::kernels::Op;

/// One launch, or what MIOpen makes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A convolution.
    Convolution(ConvolutionTask),
    /// An element-wise kernel.
    Map(MapTask),
    /// A kernel over groups.
    Grouped(GroupedTask),
}

/// A convolution and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionTask {
    /// Of which node of the graph.
    pub node: usize,
    /// What MIOpen is asked for.
    pub problem: ConvolutionProblem,
    /// The input, or its gradient.
    pub x: Value,
    /// The filter, or its gradient.
    pub w: Value,
    /// The output, or its gradient.
    pub y: Value,
    /// What is added for each channel, where that is one kernel with the convolution.
    pub bias: Option<Value>,
}

/// An element-wise kernel and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct MapTask {
    /// What it is for, for the log.
    pub purpose: String,
    /// Extents of the result.
    pub dims: Vec<usize>,
    /// What is read.
    pub inputs: Vec<Input>,
    /// What is computed; the last operation's result is written, or the first input if there is none.
    pub program: Vec<Op>,
    /// Where the result goes.
    pub output: Value,
    /// How it lies there.
    pub view: View,
}

/// Memory that tasks read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// A tensor of the caller.
    Tensor(TensorUid),
    /// A place in the workspace, by its index in [`Arrangement::temporaries`].
    Temporary(usize),
}

/// An operand of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// In memory.
    Memory(MemoryInput),
    /// A number.
    Literal(f64),
    /// A number that the caller's host memory holds when the plan is executed.
    Scalar(TensorUid, DataType),
    /// The index along that dimension of the result.
    Index(usize),
}

/// An operand of a kernel in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryInput {
    /// Where.
    pub value: Value,
    /// How it lies there, along the dimensions of the result; strides are 0 where it is broadcast.
    pub view: View,
    /// For each dimension where it begins in the result and how far it goes; it is 0 elsewhere.
    pub window: Option<Vec<(usize, usize)>>,
}

/// How elements lie in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Their type.
    pub data_type: DataType,
    /// Distance of neighbours along each dimension, in elements.
    pub strides: Vec<i64>,
    /// Where the first one is, in elements.
    pub offset: i64,
}

/// The two orders of dimensions in memory.
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

/// Strides that reach the same elements; those of single places mean nothing.
pub(in super::super) fn same_strides(dims: &[usize], a: &[i64], b: &[i64]) -> bool {
    dims.iter().zip(a.iter().zip(b)).all(|(extent, (a, b))| *extent == 1 || a == b)
}
