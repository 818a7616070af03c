//! Kernels over groups of elements: reductions, and everything that needs one before it can go on.
//!
//! The elements that are worked on are numbered by two lists of loops: those that number groups, and those that number the
//! members of a group. Each group is gone through in phases: one combines something over all members, one computes something
//! once, one writes something for every member. What a phase finds out about the group, all phases behind it can read. So a
//! normalisation, which needs a mean, then a variance, then writes every element, is one launch.

use super::element::Element;
use super::program::Op;

/// Work over groups of elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// Extents of the loops that number groups.
    pub groups: Vec<usize>,
    /// Extents of the loops that number a group's members. None of them: one member.
    pub members: Vec<usize>,
    /// Types of the tensors that are read, in the order in which their addresses are given at launch.
    pub reads: Vec<Element>,
    /// Types of the tensors that are written, likewise.
    pub writes: Vec<Element>,
    /// What is done, in order.
    pub phases: Vec<Phase>,
}

/// A part of what is done with a group.
///
/// Slots of its program are numbered: first all values that phases before it have left behind, then its inputs, then the
/// results of its operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// The program runs for every member; folds combine slots over them. Each fold leaves a value behind
    /// ([`FoldMode::FirstGreatest`] two).
    Fold {
        /// What the program starts from.
        inputs: Vec<Input>,
        /// What is computed for a member.
        program: Vec<Op>,
        /// What is combined.
        folds: Vec<Fold>,
    },
    /// The program runs once.
    Once {
        /// What the program starts from; strides along members mean nothing here.
        inputs: Vec<Input>,
        /// What is computed.
        program: Vec<Op>,
        /// Slots that are left behind, in order.
        keep: Vec<usize>,
        /// What is written.
        stores: Vec<Store>,
    },
    /// The program runs for every member, and what it computes is written.
    Each {
        /// What the program starts from.
        inputs: Vec<Input>,
        /// What is computed.
        program: Vec<Op>,
        /// What is written.
        stores: Vec<Store>,
    },
}

/// Something that is combined over the members of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// How.
    pub mode: FoldMode,
    /// What.
    pub slot: usize,
}

/// How values are combined. The order of sums and products is fixed by the shapes alone.
#[derive(Clone, Debug, PartialEq)]
pub enum FoldMode {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The least one; NaN if there is one.
    Least,
    /// The greatest one; NaN if there is one.
    Greatest,
    /// The greatest one (the first NaN if there is one), and behind it the value of the slot `at` for the first member in
    /// the order of the loops that has it.
    FirstGreatest {
        /// The slot whose value is left behind too.
        at: usize,
    },
}

/// What fills a slot before a program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An element of a tensor.
    Tensor {
        /// Which of [`Grouped::reads`].
        tensor: usize,
        /// Which element.
        access: Access,
        /// What it is where the access leaves the tensor.
        outside: f64,
    },
    /// 1 where the access stays within the tensor, else 0. Nothing is read.
    Inside(Access),
    /// The index of a loop: of the groups, or behind those of the members.
    Index {
        /// Which loop.
        axis: usize,
    },
    /// The same value everywhere; it may be replaced for a launch.
    Scalar(f64),
    /// A constant of the program: kernels for other values are other kernels.
    Literal(f64),
}

/// Where an element lies: at `offset + Σ index · stride + Σ bound's index · bound's stride`, in elements. All lists of steps
/// have an entry for every loop: first those of the groups, then those of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Of the element of all indices 0.
    pub offset: i64,
    /// For each loop.
    pub strides: Vec<i64>,
    /// Dimensions of the tensor that may be left.
    pub bounds: Vec<Bound>,
}

/// A dimension of a tensor whose index is `(offset + Σ index · step) / divisor`. Where that is not a whole number from 0 to
/// `extent - 1` the access leaves the tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// In front of the division.
    pub offset: i64,
    /// For each loop.
    pub steps: Vec<i64>,
    /// At least 1.
    pub divisor: u64,
    /// Of the dimension.
    pub extent: u64,
    /// Distance of neighbours along the dimension, in elements.
    pub stride: i64,
}

/// A slot that is written. No two elements that are written lie in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Which.
    pub slot: usize,
    /// Which of [`Grouped::writes`].
    pub tensor: usize,
    /// Where; without bounds. Strides along members mean nothing where the program runs once.
    pub access: Access,
}
