//! Kernels over groups of elements: reductions, and everything that needs one before it can go on.
//!
//! The elements that are worked on are numbered by two lists of loops: those that number groups, and those that number the
//! members of a group. Each group is gone through in phases: one combines something over all members, one computes something
//! once, one writes something for every member. What a phase finds out about the group, all phases behind it can read. So a
//! normalisation, which needs a mean, then a variance, then writes every element, is one launch.
//!
//! A block's threads share its groups: many groups with a thread each, or a few with many threads each, which go through the
//! members in the order of memory and then combine what they have, pair by pair. Which it is follows from shapes and strides,
//! and so does the order of every sum: the same work gives the same bits.
//!
//! Values are numbers as in element-wise kernels. Sums and products of `f32` are kept in `f64` until all members are in; sums of
//! `f64` carry along what is rounded off. Whole numbers saturate with each member. A fold over no member leaves 0 for a sum, 1
//! for a product, +∞ for the least, -∞ for the greatest (of whole numbers: the limits of 64 bits), and -1 for where it is.

mod check;
mod folds;
mod layout;
mod mapping;
mod source;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::sync::Arc;

use super::element::Element;
use super::launch::{self, Grid, Launch};
use super::program::{Numbers, Op, Text, fits_single, is_whole};
use crate::engine::miopen::device::Device;
use crate::engine::miopen::store;
use crate::engine::payload::Entry;
use crate::error::Error;
use layout::Loops;
use mapping::Mapping;
use source::{FUNCTION, Part, Slot, Source, Target, Work};

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

/// A kernel for one [`Grouped`], ready to launch from any thread on any stream of its device.
#[derive(Debug)]
pub struct PreparedGrouped {
    /// `None` where there is nothing to do.
    kernel: Option<Launch>,
    device: Arc<Device>,
    /// How it works, in words.
    plan: String,
    reads: usize,
    writes: usize,
    scalars: usize,
}

/// Compiles a kernel, or takes it from this process's or the store's kernels, and fixes its arguments.
///
/// # Errors
/// If the work is not what its fields ask for, or the kernel does not compile or load.
pub fn prepare(device: &Arc<Device>, work: &Grouped, store: &store::Store) -> Result<PreparedGrouped, Error> {
    prepare_as(device, work, store, Choice::default())
}

/// Whether [`prepare`] has what it needs: the kernel in the store, or a compiler.
///
/// # Errors
/// As [`prepare`], without compiling or loading the kernel.
pub fn can_prepare(device: &Device, work: &Grouped, store: &store::Store) -> Result<(), Error> {
    match generate(work, Choice::default())? {
        Some(generated) => device.kernels().can_get(device, &generated.source.text, store),
        None => Ok(()),
    }
}

/// What [`generate`] otherwise chooses by the work.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    /// How threads share the work.
    mapping: Option<Mapping>,
    /// Indices of 64 bits even where 32 do.
    wide: bool,
}

fn prepare_as(
    device: &Arc<Device>,
    work: &Grouped,
    store: &store::Store,
    choice: Choice,
) -> Result<PreparedGrouped, Error> {
    let mut plan = "nothing to do".to_owned();
    let mut kernel = None;
    if let Some(Generated { source: Source { text, arguments, blocks }, numbers, mapping }) = generate(work, choice)? {
        let compiled = device.kernels().get(device, FUNCTION, &text, store)?;
        let grid = Grid { blocks, threads: mapping.threads() };
        let tensors = work.reads.len() + work.writes.len();
        kernel = Some(Launch::new(compiled, arguments, vec![0; tensors], numbers, grid));
        plan = format!("{} groups a block, {} thread(s) for each, {blocks} blocks", mapping.side, mapping.lanes);
    }
    let inputs = work.phases.iter().flat_map(|phase| phase.parts().inputs);
    let scalars = inputs.filter(|input| matches!(input, Input::Scalar(_))).count();
    let (reads, writes) = (work.reads.len(), work.writes.len());
    Ok(PreparedGrouped { kernel, device: device.clone(), plan, reads, writes, scalars })
}

/// What there is to compile and launch.
struct Generated {
    source: Source,
    numbers: Numbers,
    mapping: Mapping,
}

/// Bytes that a block shares, at most.
const MOST_SHARED: usize = 64 * 1024;

/// Places without doubles, and the bytes of an element in each.
#[derive(Default)]
struct Places {
    places: Vec<Access>,
    bytes: Vec<usize>,
}

impl Places {
    fn add(&mut self, access: Access, bytes: usize) -> usize {
        let place = self.places.iter().position(|place| *place == access).unwrap_or_else(|| {
            self.places.push(access);
            self.bytes.push(0);
            self.places.len() - 1
        });
        self.bytes[place] = self.bytes[place].max(bytes);
        place
    }
}

/// The kernel of some work; `None` if it has no group.
fn generate(work: &Grouped, choice: Choice) -> Result<Option<Generated>, Error> {
    check::check(work)?;
    let numbers = numbers(work);
    let (groups, loops) = (work.groups.len(), work.groups.len() + work.members.len());
    let mut places = Places::default();
    let mut program = Text::new(numbers);
    let mut phases = Vec::new();
    let mut kept = 0;
    for phase in &work.phases {
        let parts = phase.parts();
        // Where the program runs once, what belongs to members means nothing.
        let access = |access: &Access| {
            let mut access = access.clone();
            if !parts.members {
                access.strides[groups..].fill(0);
                access.bounds.iter_mut().for_each(|bound| bound.steps[groups..].fill(0));
            }
            access
        };
        let mut inputs = Vec::new();
        for input in parts.inputs {
            inputs.push(match *input {
                Input::Scalar(value) => Slot::Scalar(value),
                Input::Literal(value) => Slot::Literal(value),
                Input::Index { axis } => Slot::Index { place: places.add(index(loops, axis), 0) },
                Input::Inside(ref inside) => {
                    // Of the tensor's dimensions, not of its memory.
                    let mut inside = Access { offset: 0, strides: vec![0; loops], ..access(inside) };
                    inside.bounds.iter_mut().for_each(|bound| bound.stride = 0);
                    Slot::Inside { place: places.add(inside, 0) }
                }
                Input::Tensor { tensor, access: ref tensors, outside } => {
                    program.widen(work.reads[tensor]);
                    let place = places.add(access(tensors), work.reads[tensor].bytes());
                    Slot::Tensor { tensor, place, outside }
                }
            });
        }
        let statements = program.program(kept + inputs.len(), parts.program).map_err(Error::invalid_value)?;
        let mut stores = Vec::new();
        for store in parts.stores {
            program.narrow(work.writes[store.tensor]);
            let place = places.add(access(&store.access), work.writes[store.tensor].bytes());
            stores.push(Target { slot: store.slot, tensor: store.tensor, place });
        }
        let (folds, keep, members) = (parts.folds, parts.keep, parts.members);
        let leaves = parts.leaves();
        phases.push(Part { inputs, statements, kept, leaves, folds, keep, stores, members });
        kept += leaves;
    }
    let folds = || phases.iter().flat_map(|part| part.folds);
    let ordered = folds().any(|fold| matches!(fold.mode, FoldMode::FirstGreatest { .. }));
    let number = ordered.then(|| places.add(number(work), 0));
    if work.groups.contains(&0) {
        return Ok(None);
    }
    let loops = Loops::new(&work.groups, &work.members, places.places, &places.bytes);
    let too_large = || {
        let Grouped { groups, members, .. } = work;
        let text = format!("a kernel over groups {groups:?} of {members:?} would reach further than addresses do");
        Error::invalid_value(text)
    };
    let (Some((groups, members)), Some((reach, most))) = (loops.count(), loops.reach()) else {
        return Err(too_large());
    };
    let offsets = loops.places.iter().map(|place| place.offset.unsigned_abs());
    // Addresses have fewer bits than this, in bytes.
    if offsets.chain([groups, members, reach, most]).any(|number| number > 1 << 55) {
        return Err(too_large());
    }
    let mapping = choice.mapping.unwrap_or_else(|| Mapping::new(groups, members, loops.neighbours()));
    // Indices, their sums with a block, and offsets are then below 2³¹.
    let wide = choice.wide || groups.max(members).max(most) >= 1 << 30;
    let shared = |mapping: Mapping| {
        let bytes: usize = folds().map(|fold| fold.mode.bytes(numbers, wide)).sum();
        if mapping.lanes > 1 { bytes * mapping.threads() as usize } else { 0 }
    };
    let mut mapping = if shared(mapping) > MOST_SHARED / 2 { mapping.smaller() } else { mapping };
    // One thread by itself shares nothing.
    while shared(mapping) > MOST_SHARED {
        mapping.lanes /= 2;
    }
    let work = Work {
        loops: &loops,
        reads: &work.reads,
        writes: &work.writes,
        phases,
        number,
        numbers,
        mapping,
        fours: numbers == Numbers::Single && in_fours(&loops),
        groups,
        members,
        wide,
    };
    let source = Source::new(&work, program);
    launch::check_size(&source.arguments)?;
    Ok(Some(Generated { source, numbers, mapping }))
}

/// Whether members lie side by side in long rows.
fn in_fours(loops: &Loops) -> bool {
    let along_members = matches!(loops.neighbours(), (group, Some(1)) if group != Some(1));
    along_members && loops.extents.last().is_some_and(|inner| *inner >= 32)
}

/// The place whose offset is the index of a loop.
fn index(loops: usize, axis: usize) -> Access {
    Access { offset: 0, strides: (0..loops).map(|l| i64::from(l == axis)).collect(), bounds: Vec::new() }
}

/// The place whose offset is the number of a member in the order of the loops.
fn number(work: &Grouped) -> Access {
    let mut strides = vec![0; work.groups.len() + work.members.len()];
    let mut stride = 1i64;
    for (l, extent) in work.members.iter().enumerate().rev() {
        strides[work.groups.len() + l] = stride;
        // What overflows here is more members than can be counted.
        stride = stride.saturating_mul(i64::try_from(*extent).unwrap_or(i64::MAX));
    }
    Access { offset: 0, strides, bounds: Vec::new() }
}

fn numbers(work: &Grouped) -> Numbers {
    let parts = || work.phases.iter().map(Phase::parts);
    let whole = |input: &Input| match input {
        Input::Tensor { tensor, access, outside } => {
            work.reads[*tensor].is_whole() && (access.bounds.is_empty() || is_whole(*outside))
        }
        Input::Inside(_) | Input::Index { .. } => true,
        Input::Literal(value) => is_whole(*value),
        Input::Scalar(_) => false,
    };
    let keeps = |parts: check::Parts<'_>| parts.inputs.iter().all(whole) && parts.program.iter().all(Op::keeps_whole);
    if work.writes.iter().all(|element| element.is_whole()) && parts().all(keeps) {
        return Numbers::Whole;
    }
    let extents: Vec<usize> = work.groups.iter().chain(&work.members).copied().collect();
    let double = |input: &Input| match input {
        Input::Tensor { tensor, .. } => !work.reads[*tensor].fits_single(),
        Input::Index { axis } => !fits_single(extents[*axis]),
        Input::Inside(_) | Input::Scalar(_) | Input::Literal(_) => false,
    };
    if work.writes.contains(&Element::F64) || parts().any(|parts| parts.inputs.iter().any(double)) {
        return Numbers::Double;
    }
    Numbers::Single
}

impl PreparedGrouped {
    /// What is stored with a plan that launches it.
    pub(in crate::engine::miopen) fn entry(&self) -> Option<Entry> {
        self.kernel.as_ref().map(|launch| launch.compiled.entry(&self.device))
    }

    /// How its threads share the work, in words.
    pub fn describe(&self) -> &str {
        &self.plan
    }

    /// Launches it, with other values for every [`Input::Scalar`], in the order of the phases and their inputs, or with none:
    /// what is written is there when the stream gets there. Nothing is allocated and nothing waited for.
    ///
    /// # Safety
    /// `reads` has an address for each of [`Grouped::reads`] and `writes` one for each of [`Grouped::writes`], in order. Each
    /// is memory of the device with all the elements that the work reads and writes, aligned for them, until the stream has
    /// run the kernel. What is written overlaps what is read only where both are the same tensor with the same strides, no
    /// other group reads it, and no phase reads it that comes after the one that writes it. The stream is one of the device.
    ///
    /// # Errors
    /// If the number of addresses is wrong, the number of scalars is neither 0 nor theirs, or HIP refuses.
    pub unsafe fn launch_with(
        &self,
        stream: *mut c_void,
        reads: &[*const u8],
        writes: &[*mut u8],
        scalars: &[f64],
    ) -> Result<(), Error> {
        if (reads.len(), writes.len()) != (self.reads, self.writes) {
            return Err(Error::invalid_value(format!(
                "the kernel reads {} tensors and writes {}, came {} and {}",
                self.reads,
                self.writes,
                reads.len(),
                writes.len()
            )));
        }
        launch::check_scalars(self.scalars, scalars.len())?;
        let Some(launch) = &self.kernel else { return Ok(()) };
        let addresses = reads.iter().copied().chain(writes.iter().map(|address| address.cast_const()));
        // SAFETY: the caller's promise, with an address for each tensor.
        unsafe { launch.run(&self.device, stream, addresses, scalars) }
    }
}
