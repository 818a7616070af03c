//! Applicability: graph → list of works, one for each node, or the reason for which the engine declines it.
//!
//! The tables here decide, and `SUPPORT.md` is made from them.

use hipdnn_engine_core::checks::{check_compute_type, check_graph, check_softplus, check_type};
use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_schemas::{ConvolutionFwd, DataType, Graph, Operation, Pointwise, PointwiseMode};
use smallvec::{SmallVec, smallvec};

use super::geometry::check_convolution_operands;
use super::nodes;
use super::work::{Convolution, Elementwise, Input, Work};
use hipdnn_cpu_pointwise::{ComputeType, Function, Parameters, Program, Storage};

macro_rules! operations {
    ($($variant:ident $table:literal: $lower:path,)*) => {
        /// Operations that the engine has kernels of its own for, by the names of their attribute tables.
        const OWN: &[&str] = &[$($table),*];

        fn lower_node(graph: &Graph, index: usize) -> Result<Work, Declined> {
            match &graph.nodes()[index].operation {
                $(Operation::$variant(node) => $lower(graph, index, node),)*
                _ => nodes::compiled::lower(graph, index),
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

/// True for operations that the engine has, by the names of their attribute tables: its own, and those of the kernel
/// compiler.
pub fn has_operation(kind: &str) -> bool {
    OWN.contains(&kind) || hipdnn_engine_kernel::lower::OPERATIONS.contains(&kind)
}

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

/// Types of a pointwise node's result: the same without the last. Powers of two have no sign and no zero, and no
/// specification says how to round to them.
pub const POINTWISE_RESULTS: &[DataType] = POINTWISE_TYPES.split_at(POINTWISE_TYPES.len() - 1).0;

/// Compute types that a pointwise node may ask for: see [`compute_type`] for the numbers it is computed in.
pub const POINTWISE_COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32, DataType::Int64];

/// Lowers a graph to works, in the order of its nodes.
///
/// # Errors
/// First reason for which the engine declines the graph.
pub fn lower(graph: &Graph) -> Result<Vec<Work>, Declined> {
    check_graph(graph)?;
    (0..graph.nodes().len()).map(|index| lower_node(graph, index)).collect()
}

fn check_convolution(graph: &Graph, index: usize, c: &ConvolutionFwd) -> Result<Work, Declined> {
    check_convolution_operands(graph, index, [("x", c.x), ("w", c.w), ("y", c.y)], &c.convolution)?;
    Ok(Work::Convolution(Convolution { node: c.clone(), output: c.y, epilogue: Vec::new() }))
}

fn check_pointwise(graph: &Graph, index: usize, p: &Pointwise) -> Result<Work, Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, POINTWISE_COMPUTE)?;
    let function = Function::new(p.mode, &Parameters::of(p));
    let function = function.ok_or_else(|| Declined::Mode { node: node(), mode: p.mode })?;
    check_softplus(graph, index, p)?;
    let operands = [("in_0", Some(p.in_0)), ("in_1", p.in_1), ("in_2", p.in_2)];
    let mut inputs = SmallVec::new();
    let mut storages: SmallVec<[Storage; 4]> = SmallVec::new();
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
        storages = smallvec![Storage::I64, storages[1]];
        inputs = smallvec![Input::Index(axis.expect("a checked gen_index node has an axis within its output"))];
    }
    let compute = graph.nodes()[index].compute_data_type;
    let compute_type = compute_type(&function, &storages, compute).ok_or_else(|| Declined::ComputeType {
        node: node(),
        data_type: compute,
        wanted: format!("a floating-point type for {} of these operands", p.mode),
    })?;
    Ok(Work::Pointwise(Elementwise { program: Program::single(compute_type, function), inputs, output: p.out_0 }))
}

/// Compute type of a function of these operands: whole numbers if all operands are whole and the function keeps to
/// them, or if they are asked for; `f64` where an operand or the compute type has digits that `f32` has not; else
/// `f32`. `None` if whole numbers are asked for where they would not do.
fn compute_type(function: &Function, storages: &[Storage], compute: DataType) -> Option<ComputeType> {
    let whole = storages.iter().all(|storage| storage.is_whole());
    match compute {
        DataType::Int32 | DataType::Int64 => (whole && function.is_whole()).then_some(ComputeType::I64),
        _ if whole && function.keeps_whole() => Some(ComputeType::I64),
        DataType::Double => Some(ComputeType::F64),
        _ if storages.iter().all(|storage| storage.is_single()) => Some(ComputeType::F32),
        _ => Some(ComputeType::F64),
    }
}
