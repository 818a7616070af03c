//! Works: the operations of a graph, each of one node, and after fusion of several.

use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_schemas::{ConvolutionFwd, TensorUid, Uids};
use smallvec::{SmallVec, smallvec};

use crate::fuse::fold::Fold;
use crate::nodes::LibraryOp;
use crate::nodes::matmul::MatmulWork;
use hipdnn_cpu_pointwise::{ComputeType, Function, Program};

/// Operation of one node, and after fusion of several.
#[derive(Debug, Clone)]
pub enum Work {
    /// Convolution with its epilogue.
    Convolution(Convolution),
    /// Element-wise functions.
    Pointwise(Elementwise),
    /// Matrix product with its epilogue.
    Matmul(MatmulWork),
    /// Node of any other kind.
    Node(LibraryOp),
}

impl Work {
    /// Input tensors.
    pub fn reads(&self) -> Uids {
        match self {
            Work::Convolution(c) => {
                [c.node.x, c.node.w].into_iter().chain(c.epilogue.iter().flat_map(EpilogueOp::tensors)).collect()
            }
            Work::Pointwise(p) => p.tensors().collect(),
            Work::Matmul(m) => m.reads(),
            Work::Node(n) => n.inputs.iter().copied().flatten().collect(),
        }
    }

    /// Output tensors.
    pub fn writes(&self) -> Uids {
        match self {
            Work::Convolution(c) => smallvec![c.output],
            Work::Pointwise(p) => smallvec![p.output],
            Work::Matmul(m) => smallvec![m.output()],
            Work::Node(n) => n.outputs.iter().copied().flatten().collect(),
        }
    }

    /// Description for messages and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Convolution(_) => "convolution",
            Work::Pointwise(_) => "pointwise",
            Work::Matmul(_) => "matmul",
            Work::Node(n) => n.name,
        }
    }
}

/// Convolution with its epilogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// Node of the convolution itself.
    pub node: ConvolutionFwd,
    /// Output tensor: the node's own, or that of the last node fused into it.
    pub output: TensorUid,
    /// Epilogue, in order.
    pub epilogue: Vec<EpilogueOp>,
}

/// Element-wise functions of tensors, in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Elementwise {
    /// Program of the functions.
    pub program: Program,
    /// Inputs of the program.
    pub inputs: SmallVec<[Input; 4]>,
    /// Output tensor.
    pub output: TensorUid,
}

impl Elementwise {
    /// The function, if there is but one and it is computed in `f32`.
    pub fn single(&self) -> Option<&Function> {
        match &self.program {
            Program { compute_type: ComputeType::F32, steps } if steps.len() == 1 => Some(&steps[0].function),
            _ => None,
        }
    }

    /// Input tensors.
    pub fn tensors(&self) -> impl Iterator<Item = TensorUid> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Tensor(uid) => Some(*uid),
            Input::Index(_) => None,
        })
    }
}

/// Input of element-wise functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Tensor that is broadcast to the output.
    Tensor(TensorUid),
    /// Index along that dimension of the output.
    Index(usize),
}

/// Step of a convolution's epilogue.
#[derive(Debug, Clone, PartialEq)]
pub enum EpilogueOp {
    /// An activation.
    Activation(Activation),
    /// Sum with an operand.
    Add(Operand),
    /// Product with an operand.
    Mul(Operand),
    /// Normalization with given statistics.
    Fold(Fold),
}

/// Second operand of a sum or product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// Tensor that is broadcast to the output.
    Tensor(TensorUid),
    /// Number known when the plan is built.
    Literal(f32),
}

impl EpilogueOp {
    /// Number of operands.
    pub(crate) fn operands(&self) -> usize {
        match self {
            EpilogueOp::Activation(_) => 0,
            EpilogueOp::Add(_) | EpilogueOp::Mul(_) => 1,
            EpilogueOp::Fold(_) => 2,
        }
    }

    /// Tensor that is added or multiplied by.
    pub fn summand(&self) -> Option<TensorUid> {
        match self {
            EpilogueOp::Add(Operand::Tensor(uid)) | EpilogueOp::Mul(Operand::Tensor(uid)) => Some(*uid),
            _ => None,
        }
    }

    /// Input tensors of the step.
    pub fn tensors(&self) -> Uids {
        match self {
            EpilogueOp::Add(Operand::Tensor(uid)) | EpilogueOp::Mul(Operand::Tensor(uid)) => smallvec![*uid],
            EpilogueOp::Fold(fold) => fold.tensors(),
            _ => Uids::new(),
        }
    }
}
