//! Normalisation of groups of elements: what batch, layer and RMS normalisation have in common.
//!
//! The dimensions of `x` are of two kinds. The *kept* ones number the groups, each of which has one mean and one deviation;
//! the *reduced* ones number the elements of a group. Batch normalisation keeps the channels, layer and RMS normalisation
//! keep the leading dimensions.

use hipdnn_schemas::{DataType, Graph, TensorUid};

use crate::engine::checks::{check_compute_type, check_type};
use crate::engine::{Declined, NodeLabel, TensorLabel};

/// Types of tensors, in any mix.
pub const TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types that a normalisation may ask to be computed in.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Types of scalars.
pub const SCALARS: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// The operands that a normalisation can have.
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
    /// The variance itself, where the node has that.
    Variance,
    PrevMean,
    PrevVariance,
    NextMean,
    NextVariance,
    Dscale,
    Dbias,
}

/// How many operands there can be.
pub const SLOTS: usize = 14;

/// What is summed over a group besides its moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `out = (x - mean) · inverse · scale + bias`.
    Forward,
    /// With `x̂ = (x - mean) · inverse` and `g = dy · scale`: `out = inverse · (g - avg(g) - x̂ · avg(g · x̂))`; `dscale` and
    /// `dbias` are the sums of `dy · x̂` and `dy` over all that shares an element of the scale.
    Backward,
}

/// What shares an element of scale and bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affine {
    /// The elements of a group: strides along reduced dimensions are 0.
    PerGroup,
    /// The same element of every group: strides along kept dimensions are 0.
    PerElement,
}

/// A normalisation as its node describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// What it is, for messages.
    pub name: &'static str,
    /// What is computed.
    pub task: Task,
    /// Extents of `x`.
    pub dims: Vec<usize>,
    /// For each dimension of `x` whether it numbers elements of a group.
    pub reduced: Vec<bool>,
    /// What shares an element of scale and bias.
    pub affine: Affine,
    /// Whether the mean is subtracted; without that a group is divided by its root mean square.
    pub centred: bool,
    /// Whether [`Slot::Mean`] and the deviation are read, instead of computed (and written where they are operands).
    pub given: bool,
    /// The operands, `x` first, each at most once.
    pub operands: Vec<Operand>,
    /// What stands for epsilon.
    pub epsilon: Scalar,
    /// What stands for the momentum of running statistics.
    pub momentum: Scalar,
}

/// A tensor that a normalisation reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What it is to the normalisation.
    pub slot: Slot,
    /// Which tensor.
    pub tensor: TensorUid,
    /// For each dimension of the tensor that has more than one place the dimension of `x` that it runs along.
    pub axes: Vec<Option<usize>>,
    /// Whether it is a result.
    pub is_written: bool,
}

/// A number that a normalisation needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Known from the node.
    Fixed(f64),
    /// The only element of a tensor.
    Tensor(TensorUid),
}

impl Normalization {
    /// An operand, if the node has it.
    pub fn operand(&self, slot: Slot) -> Option<&Operand> {
        self.operands.iter().find(|operand| operand.slot == slot)
    }
}

/// Collects a node's operands.
pub(super) struct Reader<'g> {
    graph: &'g Graph,
    index: usize,
    node: Normalization,
}

impl<'g> Reader<'g> {
    /// Begins with `x`, of which the marked dimensions number elements of a group.
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
            centred: true,
            given: false,
            operands: Vec::new(),
            epsilon: Scalar::Fixed(0.0),
            momentum: Scalar::Fixed(0.0),
        };
        let mut reader = Reader { graph, index, node };
        reader.input(Slot::X, "x", x, |_| true)?;
        Ok(reader)
    }

    /// What is not an operand.
    pub(super) fn node(&mut self) -> &mut Normalization {
        &mut self.node
    }

    /// Adds what is read; `along` says which dimensions of `x` the operand has.
    pub(super) fn input(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        self.operand(slot, role, uid, along, false)
    }

    /// Adds what is written; `along` as for [`Reader::input`].
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
        // Clients leave out the dimensions that an operand has not, or give them the extent 1: [C] and [1, C, 1, 1] are one.
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

    /// Adds statistics that are given, mean and inverse deviation together; whether they are.
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
            (Some(mean), None) => return Err(self.attribute("mean_tensor_uid", mean, "inv_variance as well")),
            (None, Some(inv)) => return Err(self.attribute("inv_variance_tensor_uid", inv, "mean as well")),
        }
        self.node.given = true;
        Ok(true)
    }

    /// A scalar: epsilon or the momentum.
    pub(super) fn scalar(&self, role: &'static str, uid: TensorUid) -> Result<Scalar, Declined> {
        check_type(self.graph, self.index, role, uid, SCALARS)?;
        Ok(Scalar::Tensor(uid))
    }

    /// The reason that an attribute or operand is not one that engines take.
    pub(super) fn attribute(&self, attribute: &'static str, value: impl ToString, wanted: &'static str) -> Declined {
        Declined::Attribute { node: NodeLabel::of(self.graph, self.index), attribute, value: value.to_string(), wanted }
    }

    /// The normalisation.
    pub(super) fn finish(self) -> Normalization {
        self.node
    }
}
