//! From a node's operands to a [`Normalization`].

use std::sync::Arc;

use hipdnn_schemas::{DataType, Graph, TensorUid};

use super::{Affine, Normalization, SLOTS, Scalar, Slot, Source, Task, View};
use crate::engine::checks::{check_compute_type, check_type};
use crate::engine::host::applicability::Work;
use crate::engine::host::nodes::NodeWork;
use crate::engine::host::pointwise::Storage;
use crate::engine::{Declined, NodeLabel, TensorLabel};

/// Types of tensors, in any mix.
pub const TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types that a normalisation may ask to be computed in; all are computed in `f64`.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Types of scalars.
pub const SCALARS: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Collects a node's operands.
pub struct Lowering<'g> {
    graph: &'g Graph,
    index: usize,
    name: &'static str,
    work: Normalization,
    inputs: Vec<TensorUid>,
    outputs: Vec<TensorUid>,
}

impl<'g> Lowering<'g> {
    /// Begins with `x`, of which the marked dimensions number elements of a group.
    ///
    /// # Errors
    /// If the engine has not the type of `x` or of the computation.
    pub fn new(
        graph: &'g Graph,
        index: usize,
        name: &'static str,
        task: Task,
        x: TensorUid,
        reduced: impl Fn(usize) -> bool,
    ) -> Result<Lowering<'g>, Declined> {
        check_compute_type(graph, index, COMPUTE)?;
        let dims = graph.tensor(x).dims();
        let work = Normalization {
            task,
            dims: dims.to_vec(),
            reduced: (0..dims.len()).map(reduced).collect(),
            affine: Affine::PerElement,
            centred: true,
            given: false,
            views: [const { None }; SLOTS],
            sources: Vec::new(),
            results: Vec::new(),
            epsilon: Scalar::Fixed(0.0),
            momentum: Scalar::Fixed(0.0),
        };
        let mut lowering = Lowering { graph, index, name, work, inputs: Vec::new(), outputs: Vec::new() };
        lowering.input(Slot::X, "x", x, |_| true)?;
        Ok(lowering)
    }

    /// What is not an operand.
    pub fn work(&mut self) -> &mut Normalization {
        &mut self.work
    }

    /// Whether that dimension of `x` numbers elements of a group.
    pub fn is_reduced(&self, axis: usize) -> bool {
        self.work.reduced[axis]
    }

    /// Adds what is read; `along` says which dimensions of `x` the operand has.
    ///
    /// # Errors
    /// If the engine has not its type or shape.
    pub fn input(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        self.operand(slot, role, uid, along)?;
        self.work.sources.push(Source::Operand(slot));
        self.inputs.push(uid);
        Ok(())
    }

    /// Adds what is written.
    ///
    /// # Errors
    /// As [`Lowering::input`].
    pub fn output(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        self.operand(slot, role, uid, along)?;
        self.work.results.push(slot);
        self.outputs.push(uid);
        Ok(())
    }

    fn operand(
        &mut self,
        slot: Slot,
        role: &'static str,
        uid: TensorUid,
        along: impl Fn(usize) -> bool,
    ) -> Result<(), Declined> {
        check_type(self.graph, self.index, role, uid, TYPES)?;
        let tensor = self.graph.tensor(uid);
        let storage = Storage::of(tensor.data_type()).expect("the types of the table have a storage");
        // Clients leave out the dimensions that an operand has not, or give them the extent 1: [C] and [1, C, 1, 1] are one.
        let own = || tensor.dims().iter().zip(tensor.strides()).filter(|(extent, _)| **extent > 1);
        let wanted = || self.work.dims.iter().copied().enumerate().filter(|(axis, extent)| *extent > 1 && along(*axis));
        if !own().map(|(extent, _)| *extent).eq(wanted().map(|(_, extent)| extent)) {
            return Err(Declined::Shape {
                node: NodeLabel::of(self.graph, self.index),
                role,
                tensor: TensorLabel::of(self.graph, uid),
                dims: tensor.dims().to_vec(),
                wanted: format!("{:?} and ones", wanted().map(|(_, extent)| extent).collect::<Vec<_>>()),
            });
        }
        let mut strides = vec![0; self.work.dims.len()];
        for ((axis, _), (_, stride)) in wanted().zip(own()) {
            strides[axis] = *stride;
        }
        self.work.views[slot as usize] = Some(View { storage, strides });
        Ok(())
    }

    /// Adds epsilon or the momentum.
    ///
    /// # Errors
    /// If the engine has not its type.
    pub fn scalar(&mut self, source: Source, role: &'static str, uid: TensorUid) -> Result<(), Declined> {
        check_type(self.graph, self.index, role, uid, SCALARS)?;
        let storage = Storage::of(self.graph.tensor(uid).data_type());
        let scalar = Scalar::Read(storage.expect("the types of the table have a storage"));
        match source {
            Source::Epsilon => self.work.epsilon = scalar,
            Source::Momentum => self.work.momentum = scalar,
            Source::Operand(_) => unreachable!("operands are not scalars"),
        }
        self.work.sources.push(source);
        self.inputs.push(uid);
        Ok(())
    }

    /// The reason that an attribute or operand is not one that the engine takes.
    pub fn attribute(&self, attribute: &'static str, value: impl ToString, wanted: &'static str) -> Declined {
        Declined::Attribute { node: NodeLabel::of(self.graph, self.index), attribute, value: value.to_string(), wanted }
    }

    /// The work.
    pub fn finish(self) -> Work {
        Work::Node(NodeWork {
            name: self.name,
            inputs: self.inputs.into_iter().map(Some).collect(),
            outputs: self.outputs.into_iter().map(Some).collect(),
            recipe: Arc::new(self.work),
        })
    }
}
