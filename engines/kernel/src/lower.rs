//! Lowering, from a graph to a list of works, one for each node, or the reason for which the GPU engine declines the
//! graph.
//!
//! The conditions here are those of the plan's steps, not MIOpen's: tensors that MIOpen does not take are copied into a
//! layout that it does. The tables here decide, and `SUPPORT.md` is made from them.

pub mod batchnorm;
mod build;
mod digits;
#[cfg(test)]
pub(crate) mod interpret;
pub mod layernorm;
mod normalization;
pub mod reduction;
pub mod resample;
pub mod rmsnorm;
pub(crate) mod shifted;
pub(crate) mod split_reduction;
mod statistics;
#[cfg(test)]
mod testing;

use hipdnn_engine_core::checks::{check_compute_type, check_graph, check_size, check_softplus, check_type};
use hipdnn_engine_core::ops::convolution::Direction;
use hipdnn_engine_core::ops::pointwise::Parameters;
use hipdnn_engine_core::{Declined, NodeLabel, TensorLabel};
use hipdnn_schemas::{
    Convolution as Geometry, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, DataType, Graph, Operation, PointwiseMode,
    TensorUid, TensorValue,
};

use self::digits::check_digits;
use crate::emit::Op;
use crate::ir::elementwise::{Argument, ElementwiseOp};
use crate::ir::op::{Convolution, Work};

macro_rules! operations {
    ($($variant:ident $table:literal: $lower:path,)*) => {
        /// Operations that the kernel compiler has, by the names of their attribute tables.
        pub const OPERATIONS: &[&str] = &[$($table),*];

        /// Lowers a node of a graph, with each group in one piece.
        ///
        /// # Errors
        /// If there is no kernel for the node, with the reason.
        pub fn lower_whole(graph: &Graph, index: usize) -> Result<Work, Declined> {
            match &graph.nodes()[index].operation {
                $(Operation::$variant(node) => $lower(graph, index, node),)*
                _ => Err(Declined::Operation { node: NodeLabel::of(graph, index) }),
            }
        }
    };
}

// The engines read this table: the GPU engine has these operations, the CPU engine those of them that it has no kernel
// of its own for.
operations! {
    ConvolutionFwd "ConvolutionFwdAttributes": convolution_forward,
    ConvolutionBwd "ConvolutionBwdAttributes": convolution_data,
    ConvolutionWrw "ConvolutionWrwAttributes": convolution_weights,
    Pointwise "PointwiseAttributes": check_pointwise,
    BatchnormInference "BatchnormInferenceAttributes": batchnorm::inference,
    BatchnormInferenceVarianceExt "BatchnormInferenceAttributesVarianceExt": batchnorm::inference_with_variance,
    Batchnorm "BatchnormAttributes": batchnorm::training,
    BatchnormBackward "BatchnormBackwardAttributes": batchnorm::backward,
    Layernorm "LayernormAttributes": layernorm::forward,
    LayernormBackward "LayernormBackwardAttributes": layernorm::backward,
    RmsNorm "RMSNormAttributes": rmsnorm::forward,
    RmsNormBackward "RMSNormBackwardAttributes": rmsnorm::backward,
    Reduction "ReductionAttributes": reduction::lower,
    ResampleFwd "ResampleFwdAttributes": resample::forward,
    ResampleBwd "ResampleBwdAttributes": resample::backward,
}

/// Element types of a convolution's operands and result, in any mix.
pub const CONVOLUTION_TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Compute types of a convolution: MIOpen has no other for the types above.
pub const CONVOLUTION_COMPUTE: &[DataType] = &[DataType::Float];

/// Ranks of a convolution's tensors: one to three dimensions are spatial.
pub const CONVOLUTION_RANKS: std::ops::RangeInclusive<usize> = 3..=5;

/// Largest extent of a convolution, paddings included: MIOpen's numbers are 32 bits wide.
pub const CONVOLUTION_NUMBERS: u128 = i32::MAX as u128;

/// Limit of the elements of a convolution's tensors, paddings included: bytes of a few of them together do not
/// overflow.
pub const CONVOLUTION_ELEMENTS: u128 = 1 << 40;

/// Element types of a pointwise node's operands and result, in any mix.
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
];

/// Compute types of a pointwise node. Kernels compute in `f32`, which has every value of the shorter ones, and in `f64`
/// where their operands have more digits: a node that asks for double has to have such operands, or a result of that
/// type.
pub const POINTWISE_COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Integer types that a node which only moves them may compute in `int32`: every value of the shorter ones is exact in
/// `f32`, and of the longest in `f64`, in which kernels compute where one is an operand.
pub const COPIED_WHOLE: &[DataType] = &[DataType::Int32, DataType::Int8, DataType::UInt8];

/// Lowers a graph: works in the order of its nodes. Groups stay whole: legalization cuts what fusion makes of them.
///
/// # Errors
/// If the engine declines the graph, with the first reason.
pub fn lower(graph: &Graph) -> Result<Vec<Work>, Declined> {
    check_graph(graph)?;
    (0..graph.nodes().len()).map(|index| lower_whole(graph, index)).collect()
}

/// Lowers a node of a graph, with the groups of its kernels in parts where they are few and have many members.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn lower_node(graph: &Graph, index: usize) -> Result<Work, Declined> {
    Ok(match lower_whole(graph, index)? {
        Work::Groups(work) => Work::Groups(split_reduction::split(work)),
        work => work,
    })
}

fn convolution_forward(graph: &Graph, index: usize, c: &ConvolutionFwd) -> Result<Work, Declined> {
    let tensors = [("x", c.x), ("w", c.w), ("y", c.y)];
    check_convolution(graph, index, Direction::Forward, tensors, &c.convolution)
}

fn convolution_data(graph: &Graph, index: usize, c: &ConvolutionBwd) -> Result<Work, Declined> {
    let tensors = [("dx", c.dx), ("w", c.w), ("dy", c.dy)];
    check_convolution(graph, index, Direction::BackwardData, tensors, &c.convolution)
}

fn convolution_weights(graph: &Graph, index: usize, c: &ConvolutionWrw) -> Result<Work, Declined> {
    let tensors = [("x", c.x), ("dw", c.dw), ("dy", c.dy)];
    check_convolution(graph, index, Direction::BackwardWeights, tensors, &c.convolution)
}

fn check_convolution(
    graph: &Graph,
    index: usize,
    direction: Direction,
    tensors: [(&'static str, TensorUid); 3],
    geometry: &Geometry,
) -> Result<Work, Declined> {
    check_compute_type(graph, index, CONVOLUTION_COMPUTE)?;
    for (role, uid) in tensors {
        check_type(graph, index, role, uid, CONVOLUTION_TYPES)?;
        let rank = graph.tensor(uid).rank();
        if !CONVOLUTION_RANKS.contains(&rank) {
            let (node, tensor) = (NodeLabel::of(graph, index), TensorLabel::of(graph, uid));
            return Err(Declined::Rank { node, role, tensor, rank, wanted: "3 to 5" });
        }
    }
    let [x, w, y] = tensors.map(|(_, uid)| uid);
    check_sizes(graph, index, [x, w, y], geometry)?;
    Ok(Work::Convolution(Convolution { node: index, direction, x, w, y, geometry: geometry.clone() }))
}

fn check_sizes(graph: &Graph, index: usize, [x, w, y]: [TensorUid; 3], geometry: &Geometry) -> Result<(), Declined> {
    let limit = |what, came, most| check_size(graph, index, what, came, most);
    for uid in [x, w, y] {
        for extent in graph.tensor(uid).dims() {
            limit("an extent", *extent as u128, CONVOLUTION_NUMBERS)?;
        }
        limit("elements", graph.tensor(uid).elements() as u128, CONVOLUTION_ELEMENTS)?;
    }
    let x = graph.tensor(x);
    let mut padded = x.dims()[0] as u128 * x.dims()[1] as u128;
    for (axis, extent) in x.dims()[2..].iter().enumerate() {
        let padding = geometry.pre_padding[axis] as u128 + geometry.post_padding[axis] as u128;
        limit("an extent with padding", *extent as u128 + padding, CONVOLUTION_NUMBERS)?;
        padded = padded.saturating_mul(*extent as u128 + padding);
    }
    limit("elements with padding", padded, CONVOLUTION_ELEMENTS)
}

/// True for an identity over integers that asks for `int32`: it has nothing to compute.
fn copies_whole_numbers(graph: &Graph, position: usize, p: &hipdnn_schemas::Pointwise) -> bool {
    p.mode == PointwiseMode::Identity
        && graph.nodes()[position].compute_data_type == DataType::Int32
        && [p.in_0, p.out_0].iter().all(|uid| COPIED_WHOLE.contains(&graph.tensor(*uid).data_type()))
}

/// Declines an int64 scalar that `f64`, in which programs keep their constants, does not have.
fn check_scalar(graph: &Graph, position: usize, uid: TensorUid) -> Result<(), Declined> {
    match graph.tensor(uid).value() {
        Some(TensorValue::Int64(value)) if value.unsigned_abs() > 1 << f64::MANTISSA_DIGITS => {
            Err(Declined::Attribute {
                node: NodeLabel::of(graph, position),
                attribute: "an int64 scalar",
                value: value.to_string(),
                wanted: "a magnitude of at most 2⁵³",
            })
        }
        _ => Ok(()),
    }
}

fn check_pointwise(graph: &Graph, position: usize, p: &hipdnn_schemas::Pointwise) -> Result<Work, Declined> {
    let copies = copies_whole_numbers(graph, position, p);
    if !copies {
        check_compute_type(graph, position, POINTWISE_COMPUTE)?;
    }
    check_softplus(graph, position, p)?;
    let index = (p.mode == PointwiseMode::GenIndex).then(|| {
        let axis = p.axis.expect("a checked node of this mode has an axis");
        usize::try_from(axis).expect("a checked axis is a dimension")
    });
    let operands = [("in_0", Some(p.in_0)), ("in_1", p.in_1), ("in_2", p.in_2)];
    // Of the operand of an index only its extents would matter, which are the result's.
    let count = if index.is_some() { 0 } else { p.mode.operands() };
    let mut inputs = Vec::with_capacity(count);
    for (role, uid) in operands.into_iter().take(count) {
        let uid = uid.expect("a checked pointwise node has its mode's operands");
        check_type(graph, position, role, uid, POINTWISE_TYPES)?;
        check_scalar(graph, position, uid)?;
        inputs.push(uid);
    }
    check_type(graph, position, "out_0", p.out_0, POINTWISE_TYPES)?;
    if !copies {
        check_digits(graph, position, inputs.iter().copied(), p.out_0)?;
    }
    let op = Op::Pointwise { mode: p.mode, parameters: Parameters::of(p), operands: (0..count).collect() };
    Ok(Work::Pointwise(ElementwiseOp {
        node: position,
        inputs: inputs.into_iter().map(Argument::new).collect(),
        // The index alone is the result.
        program: if index.is_some() { Vec::new() } else { vec![op] },
        index,
        output: p.out_0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::{ConvMode, GraphBuilder, TensorDef};

    /// Convolution graph of the three tensors in forward roles, after a change.
    fn convolution(direction: Direction, change: impl FnOnce(&mut [TensorDef; 3], &mut Geometry)) -> GraphBuilder {
        let f = DataType::Float;
        let mut geometry = Geometry::new(2);
        let mut tensors = [
            TensorDef::new(0, f, &[2, 4, 9, 9]),
            TensorDef::new(1, f, &[6, 4, 3, 3]),
            TensorDef::new(2, f, &[2, 6, 7, 7]),
        ];
        change(&mut tensors, &mut geometry);
        let mut graph = GraphBuilder::new("case").compute(f);
        let [x, w, y] = tensors.map(|tensor| graph.tensor(tensor));
        let convolution = geometry;
        graph.node(
            "",
            match direction {
                Direction::Forward => Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }),
                Direction::BackwardData => Operation::ConvolutionBwd(ConvolutionBwd { dy: y, w, dx: x, convolution }),
                Direction::BackwardWeights => {
                    Operation::ConvolutionWrw(ConvolutionWrw { x, dy: y, dw: w, convolution })
                }
            },
        );
        graph
    }

    type Change = fn(&mut [TensorDef; 3], &mut Geometry);

    fn set_dims(tensor: &mut TensorDef, dims: &[i64]) {
        *tensor = TensorDef::new(tensor.uid.0, tensor.data_type, dims);
    }

    #[test]
    fn convolutions_of_all_directions_are_taken_or_declined_with_the_reason() {
        let half = |t: &mut [TensorDef; 3]| t.iter_mut().for_each(|tensor| tensor.data_type = DataType::Half);
        assert!(lower(&convolution(Direction::Forward, |t, _| half(t)).build().unwrap()).is_ok());
        let cases: [(&str, Change, Option<&str>); 12] = [
            ("plain", |_, _| (), None),
            ("flipped", |_, g| g.mode = ConvMode::Convolution, None),
            ("groups", |t, _| set_dims(&mut t[1], &[6, 2, 3, 3]), None),
            ("mixed types", |t, _| (t[0].data_type, t[2].data_type) = (DataType::Half, DataType::BFloat16), None),
            ("channels last", |t, _| t.iter_mut().for_each(|t| *t = t.clone().channels_last()), None),
            ("strided", |t, _| t.iter_mut().for_each(|t| t.strides.iter_mut().for_each(|s| *s *= 3)), None),
            (
                "one dimension, padded on one side",
                |t, g| {
                    *g = Geometry { post_padding: vec![2], ..Geometry::new(1) };
                    set_dims(&mut t[0], &[2, 4, 9]);
                    set_dims(&mut t[1], &[6, 4, 3]);
                    set_dims(&mut t[2], &[2, 6, 9]);
                },
                None,
            ),
            (
                "three dimensions",
                |t, g| {
                    *g = Geometry::new(3);
                    set_dims(&mut t[0], &[2, 4, 5, 9, 9]);
                    set_dims(&mut t[1], &[6, 4, 3, 3, 3]);
                    set_dims(&mut t[2], &[2, 6, 3, 7, 7]);
                },
                None,
            ),
            (
                "four dimensions",
                |t, g| {
                    *g = Geometry::new(4);
                    set_dims(&mut t[0], &[1, 1, 3, 3, 3, 3]);
                    set_dims(&mut t[1], &[1, 1, 3, 3, 3, 3]);
                    set_dims(&mut t[2], &[1, 1, 1, 1, 1, 1]);
                },
                Some("expected 3 to 5 dimensions, got 6"),
            ),
            ("double", |t, _| t[1].data_type = DataType::Double, Some("expected float, half or bfloat16, got double")),
            ("misaligned", |t, _| t[0].alignment = 2, Some("expected an alignment to a multiple of 4 bytes, got 2")),
            (
                "huge padding",
                |t, g| {
                    (g.pre_padding[0], g.post_padding[0]) = (1 << 30, 1 << 30);
                    set_dims(&mut t[2], &[2, 6, (1 << 31) + 7, 7]);
                },
                Some("an extent: expected at most 2147483647"),
            ),
        ];
        for direction in Direction::ALL {
            for (what, change, want) in &cases {
                let graph = convolution(direction, change).build().unwrap_or_else(|error| panic!("{what}: {error}"));
                match (lower(&graph), want) {
                    (Ok(works), None) => {
                        let [Work::Convolution(work)] = &works[..] else { panic!("{what}: {works:?}") };
                        assert_eq!((work.x.0, work.w.0, work.y.0, work.direction), (0, 1, 2, direction), "{what}");
                        assert_eq!(graph.producer(work.output()), Some(0), "{what} {direction:?}");
                        assert!(work.inputs().iter().all(|uid| graph.consumers(*uid) == [0]), "{what} {direction:?}");
                    }
                    (Err(declined), Some(want)) => {
                        assert!(declined.to_string().contains(want), "{what} {direction:?}: {declined}");
                    }
                    (got, want) => panic!("{what} {direction:?}: expected {want:?}, got {got:?}"),
                }
            }
        }
    }

    #[test]
    fn other_reasons_to_decline() {
        let mut compute = convolution(Direction::Forward, |_, _| ());
        compute.def_mut().compute_data_type = DataType::Half;
        let pointwise = |change: fn(&mut hipdnn_schemas::Pointwise)| {
            let mut graph = GraphBuilder::new("case").compute(DataType::Float);
            let a = graph.tensor(TensorDef::new(0, DataType::Float, &[4]));
            let b = graph.tensor(TensorDef::new(1, DataType::Float, &[4]));
            let mut node = hipdnn_schemas::Pointwise::unary(PointwiseMode::SoftplusFwd, a, b);
            change(&mut node);
            graph.pointwise(node);
            graph
        };
        let mut ragged = pointwise(|_| ());
        let offsets = ragged.tensor(TensorDef::new(9, DataType::Int32, &[5]));
        ragged.def_mut().tensors[0].ragged = Some(hipdnn_schemas::Ragged { offset: offsets, multiplier: 1 });
        let mut double = pointwise(|_| ());
        double.def_mut().compute_data_type = DataType::Double;
        let mut wide = double.clone();
        wide.def_mut().tensors[0].data_type = DataType::Int32;
        assert!(lower(&wide.build().unwrap()).is_ok());
        let mut integer = pointwise(|_| ());
        integer.def_mut().tensors[1].data_type = DataType::Int4;
        let mut matmul = GraphBuilder::new("case").compute(DataType::Float);
        let [a, b, c] = [0, 1, 2].map(|uid| matmul.tensor(TensorDef::new(uid, DataType::Float, &[4, 4])));
        matmul.node("product", Operation::Matmul(hipdnn_schemas::Matmul { a, b, c }));
        let mut custom = GraphBuilder::new("case").compute(DataType::Float);
        let [a, b] = [0, 1].map(|uid| custom.tensor(TensorDef::new(uid, DataType::Float, &[4])));
        custom.node(
            "",
            Operation::CustomOp(hipdnn_schemas::CustomOp {
                custom_op_id: "mine".to_string(),
                inputs: vec![a],
                outputs: vec![b],
                data: Vec::new(),
            }),
        );
        for (graph, want) in [
            (compute, "compute_data_type: expected float, got half"),
            (pointwise(|p| p.softplus_beta = Some(0.0)), "softplus_beta: expected a finite number other than 0, got 0"),
            (double, "compute_data_type: expected float for operands of these types, got double"),
            (ragged, "tensor 0 is ragged"),
            (
                integer,
                "out_0 (tensor 1): expected float, half, bfloat16, double, int32, int64, int8, uint8 or boolean, got int4",
            ),
            (matmul, "node 0 (Matmul \"product\"): the engine does not have this operation"),
            (custom, "node 0 (CustomOp): the engine does not have this operation"),
        ] {
            let declined = lower(&graph.build().unwrap()).unwrap_err().to_string();
            assert!(declined.contains(want), "expected {want}, got {declined}");
        }
    }

    #[test]
    fn int64_scalars_are_those_that_programs_can_hold() {
        let sum = |value: i64| {
            let mut graph = GraphBuilder::new("case").compute(DataType::Double);
            let scalar = TensorDef::new(1, DataType::Int64, &[1]).with_value(TensorValue::Int64(value));
            let [a, c] = [0, 2].map(|uid| graph.tensor(TensorDef::new(uid, DataType::Int64, &[4])));
            let b = graph.tensor(scalar);
            let mut node = hipdnn_schemas::Pointwise::unary(PointwiseMode::Add, a, c);
            node.in_1 = Some(b);
            graph.pointwise(node);
            lower(&graph.build().unwrap()).map_err(|declined| declined.to_string())
        };
        for value in [0, -5, 1 << 53, -(1 << 53)] {
            assert!(sum(value).is_ok(), "{value}");
        }
        for value in [(1 << 53) + 1, -(1 << 53) - 1, i64::MIN, i64::MAX] {
            let declined = sum(value).unwrap_err();
            assert!(
                declined.contains(&format!("an int64 scalar: expected a magnitude of at most 2⁵³, got {value}")),
                "{declined}"
            );
        }
    }

    #[test]
    fn copies_of_whole_numbers_may_ask_for_them() {
        use DataType::{Float, Int8, Int32, Int64, UInt8};
        let copy = |mode: PointwiseMode, from: DataType, to: DataType, compute: DataType| {
            let mut graph = GraphBuilder::new("case").compute(compute);
            let x = graph.tensor(TensorDef::new(0, from, &[4]));
            let y = graph.tensor(TensorDef::new(1, to, &[4]));
            graph.pointwise(hipdnn_schemas::Pointwise::unary(mode, x, y));
            lower(&graph.build().unwrap()).map_err(|declined| declined.to_string())
        };
        for (from, to) in [(Int32, Int32), (Int8, Int8), (UInt8, UInt8), (UInt8, Int32), (Int32, Int8)] {
            assert!(copy(PointwiseMode::Identity, from, to, Int32).is_ok(), "{from} to {to}");
        }
        for (mode, from, to, compute) in [
            (PointwiseMode::Abs, Int32, Int32, Int32),
            (PointwiseMode::Identity, Int64, Int64, Int64),
            (PointwiseMode::Identity, Int64, Int64, Int32),
            (PointwiseMode::Identity, Float, Int32, Int32),
        ] {
            let declined = copy(mode, from, to, compute).unwrap_err();
            assert!(
                declined.contains(&format!(
                    "compute_data_type: expected float, half, bfloat16 or double, got {}",
                    compute.json_name()
                )),
                "{declined}"
            );
        }
    }

    #[test]
    fn every_pointwise_mode_is_lowered() {
        for &mode in PointwiseMode::ALL.iter().filter(|mode| mode.operands() > 0) {
            let mut graph = GraphBuilder::new("case").compute(DataType::Float);
            let uids = [0, 1, 2, 3].map(|uid| graph.tensor(TensorDef::new(uid, DataType::Half, &[4, 2])));
            let mut node = hipdnn_schemas::Pointwise::unary(mode, uids[0], uids[3]);
            node.in_1 = (mode.operands() > 1).then_some(uids[1]);
            node.in_2 = (mode.operands() > 2).then_some(uids[2]);
            node.axis = (mode == PointwiseMode::GenIndex).then_some(0);
            graph.pointwise(node);
            let works = lower(&graph.build().unwrap()).unwrap();
            let [Work::Pointwise(work)] = &works[..] else { panic!("{mode}: {works:?}") };
            let arguments: Vec<Argument> = uids[..mode.operands()].iter().copied().map(Argument::new).collect();
            match mode {
                PointwiseMode::GenIndex => assert_eq!((&work.inputs[..], work.index), (&[][..], Some(0))),
                _ => assert_eq!((&work.inputs, work.index), (&arguments, None), "{mode}"),
            }
        }
    }
}
