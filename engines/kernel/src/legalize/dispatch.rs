//! Dispatches and their operands.

use hipdnn_schemas::{DataType, Extents, TensorUid};

use super::Stored;
use crate::convolution::ConvolutionProblem;
use crate::emit::Element;
use crate::emit::grouped::{Access, Bound, Grouped, Input, Pass, Store};

/// One kernel launch, or one convolution of MIOpen.
#[derive(Debug, Clone, PartialEq)]
pub enum Dispatch {
    /// Convolution.
    Convolution(ConvolutionDispatch),
    /// Kernel of our own.
    Kernel(KernelDispatch),
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

/// Kernel and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelDispatch {
    /// Purpose for the log.
    pub purpose: String,
    /// Kernel.
    pub kernel: Grouped,
    /// Memory of each input tensor.
    pub reads: Vec<Value>,
    /// Memory of each output tensor.
    pub writes: Vec<Value>,
    /// Values of its scalars, in the order in which the passes have them.
    pub scalars: Vec<Number>,
}

/// Scalar that is the same for all elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Constant of the graph.
    Known(f64),
    /// Number that the caller's host memory holds when the plan is executed.
    Host(TensorUid, DataType),
}

impl Number {
    /// Scalar argument; what the caller holds is put in at launch.
    pub(super) fn input(self) -> Input {
        Input::Scalar(if let Number::Known(number) = self { number } else { 0.0 })
    }
}

/// Operand of a copy.
pub(super) enum Source {
    /// Number that every element gets.
    Number(Number),
    /// Tensor, with its access along the dimensions of the copy; what lies outside of it is 0.
    Memory(Value, DataType, Access),
}

impl KernelDispatch {
    /// Copy to every element of a tensor.
    pub(super) fn copy(purpose: String, dims: Vec<usize>, from: Source, to: Stored) -> KernelDispatch {
        let (mut reads, mut elements, mut scalars) = (Vec::new(), Vec::new(), Vec::new());
        let input = match from {
            Source::Number(number) => {
                scalars.push(number);
                number.input()
            }
            Source::Memory(value, data_type, access) => {
                reads.push(value);
                elements.push(element(data_type));
                Input::Tensor { tensor: 0, access, pad_value: 0.0 }
            }
        };
        let store = Store { slot: 0, tensor: 0, access: to.view.access() };
        let pass = Pass::PerMember { inputs: vec![input], program: Vec::new(), stores: vec![store] };
        let writes = vec![element(to.view.data_type)];
        let kernel = Grouped { groups: Vec::new(), members: dims, reads: elements, writes, passes: vec![pass] };
        KernelDispatch { purpose, kernel, reads, writes: vec![to.value], scalars }
    }
}

/// Element type in kernels.
pub(super) fn element(data_type: DataType) -> Element {
    Element::of(data_type).expect("lowered types have kernels")
}

/// Buffer that dispatches read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// Tensor of the caller.
    Tensor(TensorUid),
    /// Temporary in the workspace, by its index in [`Legalized::temporaries`].
    Temporary(usize),
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

impl View {
    /// Access along its dimensions.
    pub(super) fn access(&self) -> Access {
        Access { offset: self.offset, strides: self.strides.clone(), bounds: Vec::new() }
    }

    /// Access along dimensions in which the tensor is a window: (begin, extent) of each.
    pub(super) fn access_within(&self, window: impl Iterator<Item = (usize, usize)>) -> Access {
        let rank = self.strides.len();
        let bounds = window.zip(&self.strides).enumerate().map(|(d, ((begin, extent), stride))| {
            let mut steps = vec![0; rank];
            steps[d] = 1;
            Bound { offset: -(begin as i64), steps, divisor: 1, extent: extent as u64, stride: *stride }
        });
        Access { offset: self.offset, strides: vec![0; rank], bounds: bounds.collect() }
    }
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
    pub(super) fn strides(self, dims: &[usize]) -> Extents {
        let dims: Extents = dims.iter().map(|extent| *extent as i64).collect();
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
