//! Semantics that batch, layer and RMS normalization share: normalization of groups of elements.
//!
//! The dimensions of `x` are of two kinds. The *kept* ones number the groups, each of which has one mean and one
//! deviation; the *reduced* ones number the elements of a group. Batch normalization keeps the channels, layer and RMS
//! normalization keep the leading dimensions.

use hipdnn_schemas::{DataType, Graph, TensorUid};

use crate::checks::{check_compute_type, check_type};
use crate::{Declined, NodeLabel, TensorLabel};

/// Types of tensors, in any mix.
pub const TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types that a normalization may ask to be computed in.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Types of scalars.
pub const SCALARS: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Role of an operand of a normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub enum Slot {
    X,
    /// `y` or `dx`.
    Out,
    Dy,
    Scale,
    Bias,
    Mean,
    /// 1 / √(variance + epsilon), or 1 / √(mean square + epsilon).
    Inverse,
    /// Variance, where the node has it instead of its inverse root.
    Variance,
    PrevMean,
    PrevVariance,
    NextMean,
    NextVariance,
    Dscale,
    Dbias,
}

/// Number of operand roles.
pub const SLOTS: usize = 14;

/// Direction of a normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `out = (x - mean) · inverse · scale + bias`.
    Forward,
    /// With `x̂ = (x - mean) · inverse` and `g = dy · scale`: `out = inverse · (g - avg(g) - x̂ · avg(g · x̂))`;
    /// `dscale` and `dbias` are the sums of `dy · x̂` and `dy` over all that shares an element of the scale.
    Backward,
}

/// Sharing of scale and bias between elements of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affine {
    /// One value for the elements of a group: strides along reduced dimensions are 0.
    PerGroup,
    /// One value for the same element of every group: strides along kept dimensions are 0.
    PerElement,
}

/// Normalization as its node describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// Name for messages.
    pub name: &'static str,
    /// Direction.
    pub task: Task,
    /// Extents of `x`.
    pub dims: Vec<usize>,
    /// Reduction mask over the dimensions of `x`: true for those that number the elements of a group.
    pub reduced: Vec<bool>,
    /// Sharing of scale and bias between elements of `x`.
    pub affine: Affine,
    /// True if the mean is subtracted; without that a group is divided by its root mean square.
    pub centered: bool,
    /// True if [`Slot::Mean`] and the deviation are read, instead of computed (and written where they are operands).
    pub given: bool,
    /// Type that the node asks to be computed in.
    pub compute: DataType,
    /// Operands, `x` first, each role at most once.
    pub operands: Vec<Operand>,
    /// Epsilon.
    pub epsilon: Scalar,
    /// Momentum of running statistics.
    pub momentum: Scalar,
}

/// Operand of a normalization, read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Role in the normalization.
    pub slot: Slot,
    /// Uid of the tensor.
    pub tensor: TensorUid,
    /// Mapping of the tensor's dimensions to those of `x`; `None` for dimensions of extent 1.
    pub axes: Vec<Option<usize>>,
    /// True if it is a result.
    pub is_written: bool,
}

/// Scalar parameter of a normalization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Constant of the node.
    Fixed(f64),
    /// Only element of a tensor.
    Tensor(TensorUid),
}

impl Normalization {
    /// Operand of that role, if the node has it.
    pub fn operand(&self, slot: Slot) -> Option<&Operand> {
        self.operands.iter().find(|operand| operand.slot == slot)
    }
}

/// Collector of a node's operands.
pub(super) struct Reader<'g> {
    graph: &'g Graph,
    index: usize,
    node: Normalization,
}

impl<'g> Reader<'g> {
    /// Reader that begins with `x`, of which the marked dimensions number elements of a group.
    pub(super) fn new(
        graph: &'g Graph,
        index: usize,
        name: &'static str,
        task: Task,
        x: TensorUid,
        reduced: impl Fn(usize) -> bool,
    ) -> Result<Reader<'g>, Declined> {
        check_compute_type(graph, index, COMPUTE)?;
        let dims = graph.tensor(x).dims();
        let node = Normalization {
            name,
            task,
            dims: dims.to_vec(),
            reduced: (0..dims.len()).map(reduced).collect(),
            affine: Affine::PerElement,
            centered: true,
            given: false,
            compute: graph.nodes()[index].compute_data_type,
            operands: Vec::new(),
            epsilon: Scalar::Fixed(0.0),
            momentum: Scalar::Fixed(0.0),
        };
        let mut reader = Reader { graph, index, node };
        reader.input(Slot::X, "x", x, |_| true)?;
        Ok(reader)
    }

    /// The normalization so far, for fields other than operands.
    pub(super) fn node(&mut self) -> &mut Normalization {
        &mut self.node
    }

    /// Adds an input; `along` is true for the dimensions of `x` that the operand has.
    pub(super) fn input(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        self.operand(slot, role, uid, along, false)
    }

    /// Adds an output; `along` as for [`Reader::input`].
    pub(super) fn output(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        self.operand(slot, role, uid, along, true)
    }

    fn operand(
        &mut self,
        slot: Slot,
        role: &'static str,
        tensor: TensorUid,
        along: impl Fn(usize) -> bool,
        is_written: bool,
    ) -> Result<(), Declined> {
        check_type(self.graph, self.index, role, tensor, TYPES)?;
        let own = self.graph.tensor(tensor).dims();
        // Clients leave out the dimensions that an operand has not, or give them the extent 1: [C] and [1, C, 1, 1] are
        // one.
        let wanted: Vec<(usize, usize)> =
            self.node.dims.iter().copied().enumerate().filter(|(axis, extent)| *extent > 1 && along(*axis)).collect();
        if !own.iter().filter(|extent| **extent > 1).eq(wanted.iter().map(|(_, extent)| extent)) {
            return Err(Declined::Shape {
                node: NodeLabel::of(self.graph, self.index),
                role,
                tensor: TensorLabel::of(self.graph, tensor),
                dims: own.to_vec(),
                wanted: format!("{:?} and ones", wanted.iter().map(|(_, extent)| extent).collect::<Vec<_>>()),
            });
        }
        let mut wanted = wanted.iter();
        let axes = own.iter().map(|extent| if *extent > 1 { wanted.next().map(|(axis, _)| *axis) } else { None });
        self.node.operands.push(Operand { slot, tensor, axes: axes.collect(), is_written });
        Ok(())
    }

    /// Adds statistics that are given, mean and inverse deviation together; returns true if there are any.
    pub(super) fn statistics(
        &mut self,
        mean: Option<TensorUid>,
        inv_variance: Option<TensorUid>,
        along: impl Fn(usize) -> bool,
    ) -> Result<bool, Declined> {
        match (mean, inv_variance) {
            (None, None) => return Ok(false),
            (Some(mean), Some(inv_variance)) => {
                self.input(Slot::Mean, "mean", mean, &along)?;
                self.input(Slot::Inverse, "inv_variance", inv_variance, &along)?;
            }
            (Some(mean), None) => return Err(self.attribute("mean_tensor_uid", mean, "none without inv_variance")),
            (None, Some(inv)) => return Err(self.attribute("inv_variance_tensor_uid", inv, "none without mean")),
        }
        self.node.given = true;
        Ok(true)
    }

    /// Scalar in a tensor: epsilon or the momentum.
    pub(super) fn scalar(&self, role: &'static str, uid: TensorUid) -> Result<Scalar, Declined> {
        check_type(self.graph, self.index, role, uid, SCALARS)?;
        Ok(Scalar::Tensor(uid))
    }

    /// Reason for declining an attribute or operand.
    pub(super) fn attribute(&self, attribute: &'static str, value: impl ToString, wanted: &'static str) -> Declined {
        Declined::Attribute { node: NodeLabel::of(self.graph, self.index), attribute, value: value.to_string(), wanted }
    }

    /// The finished normalization.
    pub(super) fn finish(self) -> Normalization {
        self.node
    }
}

#[cfg(test)]
mod tests;
