//! Which graphs the host engine takes: graph → list of works, one for each node, or the reason why not.
//!
//! The tables here decide, and `SUPPORT.md` is made from them.

use hipdnn_schemas::{ConvolutionFwd, DataType, Graph, Operation, Pointwise, PointwiseMode, Tensor, TensorUid};

use super::activation::Activation;
use super::convolution::Element;
use super::fuse::fold::Fold;
use super::nodes::matmul::MatmulWork;
use super::nodes::{self, NodeWork};
use super::pointwise::{Domain, Function, Parameters, Program, Storage};
use crate::engine::checks::{check_compute_type, check_graph, check_size, check_softplus, check_type};
use crate::engine::{Declined, NodeLabel, TensorLabel};

macro_rules! operations {
    ($($variant:ident $table:literal: $lower:path,)*) => {
        /// The operations that the engine has, by the names of their attribute tables.
        pub const OPERATIONS: &[&str] = &[$($table),*];

        fn lower_node(graph: &Graph, index: usize) -> Result<Work, Declined> {
            match &graph.nodes()[index].operation {
                $(Operation::$variant(node) => $lower(graph, index, node),)*
                _ => Err(Declined::Operation { node: NodeLabel::of(graph, index) }),
            }
        }
    };
}

operations! {
    ConvolutionFwd "ConvolutionFwdAttributes": check_convolution,
    ConvolutionBwd "ConvolutionBwdAttributes": nodes::convolution::lower_data,
    ConvolutionWrw "ConvolutionWrwAttributes": nodes::convolution::lower_weights,
    Pointwise "PointwiseAttributes": check_pointwise,
    BatchnormInference "BatchnormInferenceAttributes": nodes::batchnorm::lower_inference,
    BatchnormInferenceVarianceExt "BatchnormInferenceAttributesVarianceExt": nodes::batchnorm::lower_inference_with_variance,
    Batchnorm "BatchnormAttributes": nodes::batchnorm::lower_training,
    BatchnormBackward "BatchnormBackwardAttributes": nodes::batchnorm::lower_backward,
    Layernorm "LayernormAttributes": nodes::layernorm::lower,
    LayernormBackward "LayernormBackwardAttributes": nodes::layernorm::lower_backward,
    RmsNorm "RMSNormAttributes": nodes::rmsnorm::lower,
    RmsNormBackward "RMSNormBackwardAttributes": nodes::rmsnorm::lower_backward,
    Matmul "MatmulAttributes": nodes::matmul::lower,
    Sdpa "SdpaAttributes": nodes::sdpa::lower,
    BlockScaleDequantize "BlockScaleDequantizeAttributes": nodes::block_scale::lower_dequantize,
    BlockScaleQuantize "BlockScaleQuantizeAttributes": nodes::block_scale::lower_quantize,
    SdpaBackward "SdpaBackwardAttributes": nodes::sdpa::lower_backward,
    Reduction "ReductionAttributes": nodes::reduction::lower,
    ResampleFwd "ResampleFwdAttributes": nodes::resample::lower,
    ResampleBwd "ResampleBwdAttributes": nodes::resample::lower_backward,
}

/// Types of a convolution's input, filter and output, in any mix.
pub const CONVOLUTION_TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types that a convolution sums in.
pub const CONVOLUTION_COMPUTE: &[DataType] = &[DataType::Float];

/// Numbers of dimensions of a convolution's tensors: one to three of them are spatial.
pub const CONVOLUTION_RANKS: std::ops::RangeInclusive<usize> = 3..=5;

/// The largest extents with padding of (depth, height, width): planning makes tables of rows.
pub const CONVOLUTION_EXTENTS: [u128; 3] = [1 << 20, 1 << 20, 1 << 24];

/// The most taps of a filter: planning makes a table of them.
pub const CONVOLUTION_TAPS: u128 = 1 << 20;

/// The most elements of an image with padding, of all channels, and of all filters: sums of a few times as many bytes for
/// each thread do not overflow.
pub const CONVOLUTION_ELEMENTS: u128 = 1 << 40;

/// Types of a pointwise node's operands, in any mix.
pub const POINTWISE_TYPES: &[DataType] = &[
    DataType::Float,
    DataType::Half,
    DataType::BFloat16,
    DataType::Double,
    DataType::Int32,
    DataType::Int64,
    DataType::Int8,
    DataType::UInt8,
    DataType::Boolean,
    DataType::Fp8E4M3,
    DataType::Fp8E5M2,
    DataType::Fp8E4M3Fnuz,
    DataType::Fp8E5M2Fnuz,
    DataType::Fp6E2M3,
    DataType::Fp6E3M2,
    DataType::Fp4E2M1,
    DataType::Fp8E8M0,
];

/// Types of a pointwise node's result: the same without the last. Powers of two have no sign and no zero, and nobody says how
/// to round to them.
pub const POINTWISE_RESULTS: &[DataType] = POINTWISE_TYPES.split_at(POINTWISE_TYPES.len() - 1).0;

/// Types that a pointwise node may ask to be computed in: see [`domain`] for what it is computed in.
pub const POINTWISE_COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32, DataType::Int64];

/// How tensors of that type lie in a convolution's memory.
pub fn element(data_type: DataType) -> Option<Element> {
    match data_type {
        DataType::Float => Some(Element::F32),
        DataType::Half => Some(Element::F16),
        DataType::BFloat16 => Some(Element::BF16),
        _ => None,
    }
}

/// What is to be done for a node, and after fusing for several.
#[derive(Debug, Clone)]
pub enum Work {
    /// A convolution and what follows on its sums.
    Convolution(Convolution),
    /// An element-wise function.
    Pointwise(Elementwise),
    /// A matrix product and what follows on it.
    Matmul(MatmulWork),
    /// A node of any other kind.
    Node(NodeWork),
}

impl Work {
    /// The tensors that are read.
    pub fn reads(&self) -> Vec<TensorUid> {
        match self {
            Work::Convolution(c) => {
                [c.node.x, c.node.w].into_iter().chain(c.epilogue.iter().flat_map(Follow::tensors)).collect()
            }
            Work::Pointwise(p) => p.tensors().collect(),
            Work::Matmul(m) => m.reads(),
            Work::Node(n) => n.inputs.iter().copied().flatten().collect(),
        }
    }

    /// The tensors that are written.
    pub fn writes(&self) -> Vec<TensorUid> {
        match self {
            Work::Convolution(c) => vec![c.output],
            Work::Pointwise(p) => vec![p.output],
            Work::Matmul(m) => vec![m.output()],
            Work::Node(n) => n.outputs.iter().copied().flatten().collect(),
        }
    }

    /// What it does, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Convolution(_) => "convolution",
            Work::Pointwise(_) => "pointwise",
            Work::Matmul(_) => "matmul",
            Work::Node(n) => n.name,
        }
    }
}

/// A convolution and what follows on its sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// The node of the convolution itself.
    pub node: ConvolutionFwd,
    /// Where the result goes: the node's own output, or that of the last node fused into it.
    pub output: TensorUid,
    /// What follows, in order.
    pub epilogue: Vec<Follow>,
}

/// Element-wise functions of tensors, in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Elementwise {
    /// The functions.
    pub program: Program,
    /// The inputs of the program.
    pub inputs: Vec<Input>,
    /// The result.
    pub output: TensorUid,
}

impl Elementwise {
    /// The function, if there is but one and it is computed in `f32`.
    pub fn single(&self) -> Option<&Function> {
        match &self.program {
            Program { domain: Domain::Single, steps } if steps.len() == 1 => Some(&steps[0].function),
            _ => None,
        }
    }

    /// The tensors that are read.
    pub fn tensors(&self) -> impl Iterator<Item = TensorUid> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Tensor(uid) => Some(*uid),
            Input::Index(_) => None,
        })
    }
}

/// An input of element-wise functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A tensor that is broadcast to the output.
    Tensor(TensorUid),
    /// The index along that dimension of the output.
    Index(usize),
}

/// A step on a convolution's sums.
#[derive(Debug, Clone, PartialEq)]
pub enum Follow {
    /// An activation.
    Activation(Activation),
    /// A sum.
    Add(Operand),
    /// A product.
    Mul(Operand),
    /// A normalisation with given statistics.
    Fold(Fold),
}

/// The other side of a sum or product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// A tensor that is broadcast to the output.
    Tensor(TensorUid),
    /// A number known when the plan is built.
    Literal(f32),
}

/// Looks at a graph: works in the order of its nodes.
///
/// # Errors
/// The first reason for which the engine leaves the graph to others.
pub fn lower(graph: &Graph) -> Result<Vec<Work>, Declined> {
    check_graph(graph)?;
    (0..graph.nodes().len()).map(|index| lower_node(graph, index)).collect()
}

fn check_convolution(graph: &Graph, index: usize, c: &ConvolutionFwd) -> Result<Work, Declined> {
    check_convolution_operands(graph, index, [("x", c.x), ("w", c.w), ("y", c.y)], &c.convolution)?;
    Ok(Work::Convolution(Convolution { node: c.clone(), output: c.y, epilogue: Vec::new() }))
}

/// Declines what the kernels of convolutions, in any direction, do not take. The operands are those that have the places of
/// x, w and y in the forward convolution.
pub(super) fn check_convolution_operands(
    graph: &Graph,
    index: usize,
    operands: [(&'static str, TensorUid); 3],
    geometry: &hipdnn_schemas::Convolution,
) -> Result<(), Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, CONVOLUTION_COMPUTE)?;
    for (role, uid) in operands {
        check_type(graph, index, role, uid, CONVOLUTION_TYPES)?;
        let tensor = graph.tensor(uid);
        if !CONVOLUTION_RANKS.contains(&tensor.rank()) {
            let (rank, tensor) = (tensor.rank(), TensorLabel::of(graph, uid));
            return Err(Declined::Rank { node: node(), role, tensor, rank, wanted: "3 to 5" });
        }
        if overlaps(tensor) {
            return Err(Declined::Overlap {
                node: node(),
                role,
                tensor: TensorLabel::of(graph, uid),
                dims: tensor.dims().to_vec(),
                strides: tensor.strides().to_vec(),
            });
        }
    }
    let limit = |what, came, most| check_size(graph, index, what, came, most);
    let [x, w, _] = operands.map(|(_, uid)| graph.tensor(uid));
    let spatial = x.rank() - 2;
    let mut image = x.dims()[1] as u128;
    for axis in 0..spatial {
        let padding = geometry.pre_padding[axis] + geometry.post_padding[axis];
        let extent = x.dims()[2 + axis] as u128 + padding as u128;
        limit("an extent with padding", extent, CONVOLUTION_EXTENTS[3 - spatial + axis])?;
        image *= extent;
    }
    limit("taps of the filter", w.dims()[2..].iter().map(|d| *d as u128).product(), CONVOLUTION_TAPS)?;
    limit("elements of an image with padding", image, CONVOLUTION_ELEMENTS)?;
    limit("elements of the filter", w.elements() as u128, CONVOLUTION_ELEMENTS)
}

fn check_pointwise(graph: &Graph, index: usize, p: &Pointwise) -> Result<Work, Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, POINTWISE_COMPUTE)?;
    let function = Function::new(p.mode, &Parameters::of(p));
    let function = function.ok_or_else(|| Declined::Mode { node: node(), mode: p.mode })?;
    check_softplus(graph, index, p)?;
    let operands = [("in_0", Some(p.in_0)), ("in_1", p.in_1), ("in_2", p.in_2)];
    let mut inputs = Vec::with_capacity(function.operands());
    let mut storages = Vec::with_capacity(4);
    let mut check = |role, uid, types| {
        check_type(graph, index, role, uid, types)?;
        storages.push(Storage::of(graph.tensor(uid).data_type()).expect("the types of the table have a storage"));
        Ok::<(), Declined>(())
    };
    for (role, uid) in operands.into_iter().take(p.mode.operands()) {
        let uid = uid.expect("a checked pointwise node has its mode's operands");
        check(role, uid, POINTWISE_TYPES)?;
        inputs.push(Input::Tensor(uid));
    }
    check("out_0", p.out_0, POINTWISE_RESULTS)?;
    if p.mode == PointwiseMode::GenIndex {
        let axis = p.axis.and_then(|axis| usize::try_from(axis).ok());
        // What in_0 holds means nothing: indices are exact whatever its type.
        storages = vec![Storage::I64, storages[1]];
        inputs = vec![Input::Index(axis.expect("a checked gen_index node has an axis within its output"))];
    }
    let compute = graph.nodes()[index].compute_data_type;
    let domain = domain(&function, &storages, compute).ok_or_else(|| Declined::ComputeType {
        node: node(),
        data_type: compute,
        wanted: format!("a floating-point type for {} of these operands", p.mode),
    })?;
    Ok(Work::Pointwise(Elementwise { program: Program::single(domain, function), inputs, output: p.out_0 }))
}

/// What a function of these types is computed in: whole numbers if nothing else is there and the function keeps to them, or
/// if that is asked for; `f64` where an operand or the compute type has digits that `f32` has not; else `f32`. `None` if
/// whole numbers are asked for where they would not do.
fn domain(function: &Function, storages: &[Storage], compute: DataType) -> Option<Domain> {
    let whole = storages.iter().all(|storage| storage.is_whole());
    match compute {
        DataType::Int32 | DataType::Int64 => (whole && function.is_whole()).then_some(Domain::Whole),
        _ if whole && function.keeps_whole() => Some(Domain::Whole),
        DataType::Double => Some(Domain::Double),
        _ if storages.iter().all(|storage| storage.is_single()) => Some(Domain::Single),
        _ => Some(Domain::Double),
    }
}

/// Whether two elements may share a place: each stride has to step over all that the smaller ones reach.
fn overlaps(tensor: &Tensor) -> bool {
    let mut order: Vec<(usize, usize)> = tensor.strides().iter().copied().zip(tensor.dims().iter().copied()).collect();
    order.retain(|(_, extent)| *extent > 1);
    order.sort_unstable();
    let mut reach = 0;
    order.into_iter().any(|(stride, extent)| {
        let within = stride <= reach;
        reach += stride * (extent - 1);
        within
    })
}
