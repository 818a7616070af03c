//! Works over groups of elements, as the graph has them: what [`kernels::grouped`](super::kernels::grouped) computes, of
//! tensors and their dimensions instead of addresses and strides.
//!
//! A node becomes one kernel or several, with memory of its own between them.

use hipdnn_schemas::{DataType, TensorUid};

use super::kernels::Op;
use super::kernels::grouped::{Fold, FoldMode};

/// What a node becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupWork {
    /// The node's number in the graph.
    pub node: usize,
    /// What it is, for the log.
    pub name: &'static str,
    /// Memory between the kernels.
    pub locals: Vec<Local>,
    /// The kernels, in order.
    pub kernels: Vec<GroupKernel>,
}

impl GroupWork {
    /// The tensors of the graph that it reads, each once, in the order in which it does.
    pub fn inputs(&self) -> Vec<TensorUid> {
        let inputs = self.phases().flat_map(Phase::inputs).filter_map(|input| match input {
            Input::Element { of, .. } => of.tensor(),
            _ => None,
        });
        each_once(inputs)
    }

    /// The tensors of the graph that it writes, each once, in the order in which it does.
    pub fn outputs(&self) -> Vec<TensorUid> {
        each_once(self.phases().flat_map(Phase::stores).filter_map(|store| store.to.tensor()))
    }

    fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.kernels.iter().flat_map(|kernel| &kernel.phases)
    }
}

fn each_once(tensors: impl Iterator<Item = TensorUid>) -> Vec<TensorUid> {
    let mut list = Vec::new();
    for tensor in tensors {
        if !list.contains(&tensor) {
            list.push(tensor);
        }
    }
    list
}

impl Phase {
    /// What its program starts from.
    pub fn inputs(&self) -> &[Input] {
        match self {
            Phase::Fold { inputs, .. } | Phase::Once { inputs, .. } | Phase::Each { inputs, .. } => inputs,
        }
    }

    /// What it computes.
    pub fn program(&self) -> &[Op] {
        match self {
            Phase::Fold { program, .. } | Phase::Once { program, .. } | Phase::Each { program, .. } => program,
        }
    }

    /// How many values it leaves behind.
    pub fn leaves(&self) -> usize {
        match self {
            Phase::Fold { folds, .. } => folds.iter().map(|fold| fold.mode.leaves()).sum(),
            Phase::Once { keep, .. } => keep.len(),
            Phase::Each { .. } => 0,
        }
    }

    /// Whether it uses what is in a slot.
    pub fn reads_slot(&self, slot: usize) -> bool {
        let folded = match self {
            Phase::Fold { folds, .. } => folds
                .iter()
                .any(|fold| fold.slot == slot || matches!(fold.mode, FoldMode::FirstGreatest { at } if at == slot)),
            Phase::Once { keep, .. } => keep.contains(&slot),
            Phase::Each { .. } => false,
        };
        folded
            || self.program().iter().any(|op| op.operands().contains(&slot))
            || self.stores().iter().any(|store| store.slot == slot)
    }

    /// What it writes.
    pub fn stores(&self) -> &[Store] {
        match self {
            Phase::Fold { .. } => &[],
            Phase::Once { stores, .. } | Phase::Each { stores, .. } => stores,
        }
    }
}

impl Operand {
    /// The tensor of the graph that it is.
    pub fn tensor(self) -> Option<TensorUid> {
        match self {
            Operand::Tensor(uid) => Some(uid),
            Operand::Local(_) => None,
        }
    }
}

/// Memory between the kernels of a node: a packed tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// Its extents.
    pub dims: Vec<usize>,
    /// Its type.
    pub data_type: DataType,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKernel {
    /// Extents of the loops that number groups.
    pub groups: Vec<usize>,
    /// Extents of the loops that number a group's members.
    pub members: Vec<usize>,
    /// What is done with a group, in order.
    pub phases: Vec<Phase>,
}

/// See [`kernels::grouped::Phase`](super::kernels::grouped::Phase); slots are numbered as there.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the kernels' phase has the same fields")]
pub enum Phase {
    Fold { inputs: Vec<Input>, program: Vec<Op>, folds: Vec<Fold> },
    Once { inputs: Vec<Input>, program: Vec<Op>, keep: Vec<usize>, stores: Vec<Store> },
    Each { inputs: Vec<Input>, program: Vec<Op>, stores: Vec<Store> },
}

/// What fills a slot before a program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An element of a tensor, which may also be a number that the graph or the caller's host memory holds.
    Element {
        /// Of what.
        of: Operand,
        /// Which.
        at: At,
        /// What it is where the indices leave the tensor.
        outside: f64,
    },
    /// 1 where the indices stay within the tensor's extents, else 0.
    Inside {
        /// The extents.
        dims: Vec<usize>,
        /// The indices.
        at: At,
    },
    /// The index of a loop: of the groups, or behind those of the members.
    Index(usize),
    /// A constant of what the node means.
    Literal(f64),
    /// A number that follows from shapes: kernels for other ones should be the same kernels.
    Number(f64),
}

/// What a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// A tensor of the graph.
    Tensor(TensorUid),
    /// One of [`GroupWork::locals`].
    Local(usize),
}

/// An index for each dimension of a tensor.
pub type At = Vec<Line>;

/// The index along a dimension: `(offset + Σ index of a loop · step) / divisor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// In front of the division.
    pub offset: i64,
    /// For each loop: first those of the groups, then those of the members.
    pub steps: Vec<i64>,
    /// At least 1; what does not divide evenly is outside.
    pub divisor: u64,
}

impl Line {
    /// Always 0, with so many loops.
    pub fn fixed(loops: usize) -> Line {
        Line { offset: 0, steps: vec![0; loops], divisor: 1 }
    }

    /// The index of one of so many loops.
    pub fn along(loops: usize, which: usize) -> Line {
        let mut line = Line::fixed(loops);
        line.steps[which] = 1;
        line
    }
}

/// A slot that is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Which.
    pub slot: usize,
    /// Where.
    pub to: Operand,
    /// Which element.
    pub at: At,
}
