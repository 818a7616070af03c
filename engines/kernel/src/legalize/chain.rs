//! Results of chains: where they are put, and in which type.

use hipdnn_engine_core::ops::pointwise::Parameters;
use hipdnn_schemas::{DataType, Graph, PointwiseMode, TensorUid};

use super::{Kind, Layout, Legalizer, Stored, View, same_strides, view};
use crate::emit::Op;
use crate::fuse::{Chain, FusionGroup};
use crate::ir::elementwise::ElementwiseOp;

impl Legalizer<'_> {
    /// Allocates a chain's virtual result, unless it has memory already.
    pub(super) fn place_chain(&mut self, chain: &Chain) {
        let output = self.graph.tensor(chain.output());
        if !output.is_virtual() || self.stored.contains_key(&output.uid()) {
            return;
        }
        // Packed, in the order that the graph has it in.
        let last = Layout::ChannelsLast.strides(output.dims());
        let strides = match same_strides(output.dims(), &view(output).strides, &last) {
            true => last,
            false => Layout::ChannelsFirst.strides(output.dims()),
        };
        let data_type = self.type_for_convolutions(chain).unwrap_or(output.data_type());
        let view = View { data_type, strides: strides.to_vec(), offset: 0 };
        let stored = Stored { value: self.temporary(output.elements(), data_type), view };
        self.stored.insert(output.uid(), stored);
    }

    /// 16-bit type that a float intermediate may be narrowed to, because all other operands have that type: the inputs
    /// of the chain, and the other operands of the convolutions that alone read the intermediate.
    fn type_for_convolutions(&self, chain: &Chain) -> Option<DataType> {
        let output = self.graph.tensor(chain.output());
        let inputs = || chain.inputs().iter().map(|argument| argument.tensor);
        let is_memory = |uid: &TensorUid| matches!(self.kind(*uid), Kind::Memory(_));
        let mut read = inputs().filter(is_memory).map(|uid| self.data_type(uid));
        let data_type = read.next().filter(|t| matches!(t, DataType::Half | DataType::BFloat16))?;
        let has = |uid: TensorUid| match self.kind(uid) {
            Kind::Memory(_) => true,
            Kind::Literal(number) => is_value(number, data_type),
            Kind::Scalar => false,
        };
        let is_wanted = |reader: &usize| match &self.fusion_groups[*reader] {
            FusionGroup::Convolution(work) => work
                .inputs()
                .iter()
                .all(|uid| *uid == output.uid() || (is_given(self.graph, *uid) && self.data_type(*uid) == data_type)),
            FusionGroup::Chain(_) | FusionGroup::Groups(_) | FusionGroup::Opaque(_) => false,
        };
        let readers = self.readers.get(&output.uid())?;
        let may_be_narrow = output.data_type() == DataType::Float
            && !self.options.strict_fp32
            && read.all(|t| t == data_type)
            && inputs().all(has)
            && chain.nodes().iter().all(|node| selects(node, data_type))
            && readers.iter().all(is_wanted);
        may_be_narrow.then_some(data_type)
    }
}

/// True if the tensor is a graph input: no node computes it.
fn is_given(graph: &Graph, uid: TensorUid) -> bool {
    graph.producer(uid).is_none()
}

/// True if the function's operand may be rounded to the 16-bit type that its result is rounded to: it brings back no
/// value that is too large for the type, and no digits that are too small, as sums and large factors do.
///
/// An ELU with an alpha above 1 enlarges what was too small for the type. Below half's range, where the operand becomes
/// minus infinity and the result 0, a softplus is at most `exp(-65504 beta) / beta`: nothing in the type from a beta of 0.01 on.
pub(super) fn keeps_range(node: &ElementwiseOp) -> bool {
    use PointwiseMode::*;
    every_op(node, |mode, parameters| match mode {
        Identity | Abs | Neg | Max | Min | SigmoidFwd | TanhFwd => true,
        EluFwd => parameters.elu_alpha.abs() <= 1.0,
        SoftplusFwd => parameters.softplus_beta >= 0.01,
        ReluFwd => [0.0, 1.0].contains(&parameters.relu_lower_clip_slope),
        _ => false,
    })
}

/// True if the result is always one of the operands, or their negative, or a bound that is exact in the 16-bit type: if
/// the operands are of that type, storing the result in it is lossless.
fn selects(node: &ElementwiseOp, data_type: DataType) -> bool {
    use PointwiseMode::*;
    every_op(node, |mode, parameters| match mode {
        Identity | Abs | Neg | Max | Min => true,
        ReluFwd => {
            parameters.relu_lower_clip_slope == 0.0
                && [parameters.relu_lower_clip, parameters.relu_upper_clip]
                    .iter()
                    .all(|bound| bound.abs() >= f32::MAX || is_value((*bound).into(), data_type))
        }
        _ => false,
    })
}

/// True if the node is a function of its operands alone (no index), and the predicate holds for every operation.
fn every_op(node: &ElementwiseOp, is_so: impl Fn(PointwiseMode, &Parameters) -> bool) -> bool {
    let holds = |op: &Op| match op {
        Op::Pointwise { mode, parameters, .. } => is_so(*mode, parameters),
        Op::Round { .. } => false,
    };
    node.index.is_none() && node.program.iter().all(holds)
}

/// True if the number is exact in the 16-bit type.
fn is_value(number: f64, data_type: DataType) -> bool {
    match data_type {
        DataType::Half => half::f16::from_f64(number).to_f64() == number,
        _ => half::bf16::from_f64(number).to_f64() == number,
    }
}
