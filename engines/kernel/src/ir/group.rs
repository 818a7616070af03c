//! Kernels over groups of elements, as the graph has them: those of [`emit::grouped`](crate::emit::grouped), over
//! tensors and their dimensions instead of addresses and strides.
//!
//! A node becomes one kernel or several, with memory of its own between them.

use std::sync::Arc;

use hipdnn_schemas::{DataType, TensorUid, Uids};
use smallvec::{SmallVec, smallvec};

use crate::emit::Op;
use crate::emit::grouped::{Fold, ReduceOp};

/// Kernels of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupWork {
    /// Index of the node in the graph.
    pub node: usize,
    /// Name for the log.
    pub name: &'static str,
    /// Temporaries between the kernels.
    pub locals: Vec<Local>,
    /// Kernels in order.
    pub kernels: Vec<GroupKernel>,
    /// Element type of partial results, where groups are cut into parts.
    pub partial: DataType,
}

impl GroupWork {
    /// Input tensors of the graph without duplicates, in the order in which they are read.
    pub fn inputs(&self) -> Uids {
        let inputs = self.passes().flat_map(Pass::inputs).filter_map(|input| match input {
            Input::Element { of, .. } => of.tensor(),
            _ => None,
        });
        each_once(inputs)
    }

    /// Output tensors of the graph without duplicates, in the order in which they are written.
    pub fn outputs(&self) -> Uids {
        each_once(self.passes().flat_map(Pass::stores).filter_map(|store| store.to.tensor()))
    }

    fn passes(&self) -> impl Iterator<Item = &Pass> {
        self.kernels.iter().flat_map(|kernel| &kernel.passes)
    }
}

fn each_once(tensors: impl Iterator<Item = TensorUid>) -> Uids {
    let mut list = Uids::new();
    for tensor in tensors {
        if !list.contains(&tensor) {
            list.push(tensor);
        }
    }
    list
}

impl Pass {
    /// Inputs of its program.
    pub fn inputs(&self) -> &[Input] {
        match self {
            Pass::Reduce { inputs, .. } | Pass::PerGroup { inputs, .. } | Pass::PerMember { inputs, .. } => inputs,
        }
    }

    /// Operations of its program.
    pub fn program(&self) -> &[Op] {
        match self {
            Pass::Reduce { program, .. } | Pass::PerGroup { program, .. } | Pass::PerMember { program, .. } => program,
        }
    }

    /// Number of values that it leaves behind.
    pub fn leaves(&self) -> usize {
        match self {
            Pass::Reduce { folds, .. } => folds.iter().map(|fold| fold.mode.leaves()).sum(),
            Pass::PerGroup { keep, .. } => keep.len(),
            Pass::PerMember { .. } => 0,
        }
    }

    /// True if it reads a slot.
    pub fn reads_slot(&self, slot: usize) -> bool {
        let folded = match self {
            Pass::Reduce { folds, .. } => {
                folds.iter().any(|fold| fold.slot == slot || matches!(fold.mode, ReduceOp::ArgMax { at } if at == slot))
            }
            Pass::PerGroup { keep, .. } => keep.contains(&slot),
            Pass::PerMember { .. } => false,
        };
        folded
            || self.program().iter().any(|op| op.operands().contains(&slot))
            || self.stores().iter().any(|store| store.slot == slot)
    }

    /// Stores.
    pub fn stores(&self) -> &[Store] {
        match self {
            Pass::Reduce { .. } => &[],
            Pass::PerGroup { stores, .. } | Pass::PerMember { stores, .. } => stores,
        }
    }
}

impl Operand {
    /// Uid, if it is a tensor of the graph.
    pub fn tensor(self) -> Option<TensorUid> {
        match self {
            Operand::Tensor(uid) => Some(uid),
            Operand::Local(_) => None,
        }
    }
}

/// Temporary between the kernels of a node: a packed tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// Extents.
    pub dims: Vec<usize>,
    /// Element type.
    pub data_type: DataType,
}

/// Kernel over groups.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKernel {
    /// Extents of the loops that number groups.
    pub groups: Vec<usize>,
    /// Extents of the loops that number a group's members.
    pub members: Vec<usize>,
    /// Passes of a group, in order.
    pub passes: Vec<Pass>,
}

/// Pass over a group: see [`emit::grouped::Pass`](crate::emit::grouped::Pass); slots are numbered as there.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the kernels' pass has the same fields")]
pub enum Pass {
    Reduce { inputs: Vec<Input>, program: Vec<Op>, folds: Vec<Fold> },
    PerGroup { inputs: Vec<Input>, program: Vec<Op>, keep: Vec<usize>, stores: Vec<Store> },
    PerMember { inputs: Vec<Input>, program: Vec<Op>, stores: Vec<Store> },
}

/// Source of a slot that is filled before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Element of a tensor, which may also be a number that the graph or the caller's host memory holds.
    Element {
        /// Tensor or temporary.
        of: Operand,
        /// Index map of the element.
        at: IndexMap,
        /// Padding value, where the indices leave the tensor.
        pad_value: f64,
    },
    /// In-bounds predicate: 1 where the indices stay within the tensor's extents, else 0.
    InBounds {
        /// Extents of the tensor.
        dims: Vec<usize>,
        /// Index map.
        at: IndexMap,
    },
    /// Index of a loop: of the groups, or behind those of the members.
    Index(usize),
    /// Constant of the node's definition.
    Literal(f64),
    /// Number that follows from shapes: kernels for other ones should be the same kernels.
    Number(f64),
}

/// Tensor or temporary that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// Tensor of the graph.
    Tensor(TensorUid),
    /// Index into [`GroupWork::locals`].
    Local(usize),
}

/// Index map: an affine index for each dimension of a tensor. Kernels that fusion makes share those of the nodes.
pub type IndexMap = Arc<[AffineExpr]>;

/// Affine index along a dimension: `(offset + Σ index of a loop · step) / divisor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffineExpr {
    /// Offset before the division.
    pub offset: i64,
    /// Step of each loop: first those of the groups, then those of the members.
    pub steps: SmallVec<[i64; 6]>,
    /// Divisor, at least 1; a remainder means out of bounds.
    pub divisor: u64,
}

impl AffineExpr {
    /// Index that is always 0, in a nest of that many loops.
    pub fn fixed(loops: usize) -> AffineExpr {
        AffineExpr { offset: 0, steps: smallvec![0; loops], divisor: 1 }
    }

    /// Index of one loop in a nest of that many.
    pub fn along(loops: usize, which: usize) -> AffineExpr {
        let mut line = AffineExpr::fixed(loops);
        line.steps[which] = 1;
        line
    }

    /// The index without the steps of loops of extent 1: equal ones are at equal places.
    pub fn plain(&self, loops: &[usize]) -> AffineExpr {
        let steps = self.steps.iter().zip(loops).map(|(step, extent)| if *extent == 1 { 0 } else { *step }).collect();
        AffineExpr { steps, ..*self }
    }
}

/// Store of a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Index map of the element.
    pub slot: usize,
    /// Destination.
    pub to: Operand,
    /// Index map of the element.
    pub at: IndexMap,
}
