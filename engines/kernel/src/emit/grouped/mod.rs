//! Kernels over groups of elements: reductions, computations that depend on one, and element-wise functions.
//!
//! Elements are numbered by two lists of loops: those that number groups (parallel), and those that number the members
//! of a group (reduced). Each group goes through passes: a pass reduces over all members, computes once, or writes a
//! value for every member. Values that a pass leaves behind are inputs of all passes after it. So a normalization,
//! which needs a mean, then a variance, then writes every element, is one launch.
//!
//! A block's threads share its groups: many groups with a thread each, or a few with many threads each, which go
//! through the members in the order of memory and then combine their accumulators: pair by pair within a wave, then wave
//! by wave. A thread takes several members that are contiguous together, or, where groups are, a member of each of several
//! groups. The mapping follows from shapes and strides, and the order of every sum from these and the lanes of a wave:
//! the same work gives the same bits on devices whose waves have as many.
//!
//! A kernel of one pass that reduces nothing is element-wise: its loops are one list, ordered by the memory that is written, and
//! a thread takes one element, or several that lie together. Where operands lie together along another loop, a block takes a
//! tile of elements through shared memory. What such a kernel only moves has no type but its size.
//!
//! Sums and products of `f32` are kept in `f64` until all members are in; where members come from narrow elements, up
//! to eight, or the up to 32 that a lane keeps in registers or has of a column, are first added in `f32`, which overflows
//! where they do.
//! Sums of `f64` carry the rounding error along. Integers saturate with each member. A fold over no member leaves 0 for
//! a sum, 1 for a product, +∞ for the least, -∞ for the greatest (of integers: the limits of 64 bits), and -1 for its
//! index.

mod check;
mod folds;
mod layout;
mod mapping;
mod reuse;
mod schedule;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use hipdnn_engine_core::error::Error;
use hipdnn_schemas::PointwiseMode;

use super::element::Element;
use super::program::{ComputeType, Op, Results, Text, fits_single, is_whole};
use super::{KernelSource, check_size};
use check::Parts;
use layout::Loops;
pub use mapping::ThreadMap;
use reuse::{Reuse, Shortened};
use schedule::{Axis, Rows, Schedule, Tile, Vector};
use source::{Block, FUNCTION, Slot, Source, Target, Work};

/// Kernel over groups of elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// Extents of the loops that number groups.
    pub groups: Vec<usize>,
    /// Extents of the loops that number a group's members. An empty list is one member.
    pub members: Vec<usize>,
    /// Element types of the input tensors, in the order in which their addresses are given at launch.
    pub reads: Vec<Element>,
    /// Element types of the output tensors, likewise.
    pub writes: Vec<Element>,
    /// Passes in order.
    pub passes: Vec<Pass>,
}

/// One pass over a group.
///
/// Slots of its program are numbered: first all values that passes before it have left behind, then its inputs, then
/// the results of its operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Pass {
    /// Reduction: the program runs for every member; folds combine slots over them. Each fold leaves a value behind
    /// ([`ReduceOp::ArgMax`] two).
    Reduce {
        /// Inputs of the program.
        inputs: Vec<Input>,
        /// Operations for a member, in order.
        program: Vec<Op>,
        /// Reductions.
        folds: Vec<Fold>,
    },
    /// Scalar computation: the program runs once.
    PerGroup {
        /// Inputs of the program; strides along members are ignored.
        inputs: Vec<Input>,
        /// Operations in order.
        program: Vec<Op>,
        /// Slots that are left behind, in order.
        keep: Vec<usize>,
        /// Stores.
        stores: Vec<Store>,
    },
    /// Map: the program runs for every member, and its results are written.
    PerMember {
        /// Inputs of the program.
        inputs: Vec<Input>,
        /// Operations in order.
        program: Vec<Op>,
        /// Stores.
        stores: Vec<Store>,
    },
}

/// Reduction over the members of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// Operation.
    pub mode: ReduceOp,
    /// Slot that is reduced.
    pub slot: usize,
}

/// Reduction operation. The order of sums and products is fixed by shapes, strides and the lanes of the device's waves.
#[derive(Clone, Debug, PartialEq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Minimum; NaN if there is one.
    Min,
    /// Maximum; NaN if there is one.
    Max,
    /// Maximum (the first NaN if there is one) and argmax: behind it the value of the slot `at` for the first member,
    /// in the order of the loops, that has it.
    ArgMax {
        /// Slot whose value is left behind too.
        at: usize,
    },
}

/// Source of a slot that is filled before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Element of a tensor.
    Tensor {
        /// Index into [`Grouped::reads`].
        tensor: usize,
        /// Access of the element.
        access: Access,
        /// Padding value, where the access leaves the tensor.
        pad_value: f64,
    },
    /// In-bounds predicate: 1 where the access stays within the tensor, else 0. Nothing is read.
    InBounds(Access),
    /// Index of a loop: of the groups, or behind those of the members.
    Index {
        /// Number of the loop.
        axis: usize,
    },
    /// Scalar argument, which may be replaced for a launch.
    Scalar(f64),
    /// Constant of the program: kernels for other values are other kernels.
    Literal(f64),
}

/// Affine access: the element at `offset + Σ index · stride + Σ bound's index · bound's stride`, in elements. All lists
/// of steps have an entry for every loop: first those of the groups, then those of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Offset of the element of all indices 0.
    pub offset: i64,
    /// Stride along each loop.
    pub strides: Vec<i64>,
    /// Guards: dimensions of the tensor that an index may leave.
    pub bounds: Vec<Bound>,
}

/// Guarded dimension of a tensor, whose index is `(offset + Σ index · step) / divisor`. Where that is not a whole
/// number from 0 to `extent - 1` the access leaves the tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Offset before the division.
    pub offset: i64,
    /// Step along each loop.
    pub steps: Vec<i64>,
    /// Divisor, at least 1.
    pub divisor: u64,
    /// Extent of the dimension.
    pub extent: u64,
    /// Stride of the dimension, in elements.
    pub stride: i64,
}

/// Store of a slot. No two elements that are written share an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Slot that is written.
    pub slot: usize,
    /// Index into [`Grouped::writes`].
    pub tensor: usize,
    /// Access of the element; without bounds. Strides along members are ignored where the program runs once.
    pub access: Access,
}

/// Overrides of choices that otherwise follow from the work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// Mapping of threads to the work.
    pub mapping: Option<ThreadMap>,
    /// Forces 64-bit indices even where 32 bits are enough.
    pub wide: bool,
}

/// Generated source and its launch parameters.
struct Generated {
    source: Source,
    compute_type: ComputeType,
    mapping: ThreadMap,
    /// Mapping as text for the log.
    text: String,
}

/// Limit of a block's shared memory in bytes.
const MOST_SHARED: usize = 64 * 1024;

/// Accesses without duplicates, and the element size of each in bytes: also of those alone that are stored to.
#[derive(Default)]
struct Places {
    places: Vec<Access>,
    bytes: Vec<usize>,
    stored: Vec<usize>,
}

impl Places {
    fn add(&mut self, access: Access, bytes: usize) -> usize {
        let place = self.places.iter().position(|place| *place == access).unwrap_or_else(|| {
            self.places.push(access);
            self.bytes.push(0);
            self.stored.push(0);
            self.places.len() - 1
        });
        self.bytes[place] = self.bytes[place].max(bytes);
        place
    }

    fn add_stored(&mut self, access: Access, bytes: usize) -> usize {
        let place = self.add(access, bytes);
        self.stored[place] = self.stored[place].max(bytes);
        place
    }
}

/// Loops of a kernel without reductions, whose only pass runs for each element of its results; `None` for others.
fn elements(work: &Grouped) -> Option<Vec<usize>> {
    let once = vec![1; work.members.len()];
    match work.passes[..] {
        [Pass::PerGroup { .. }] => Some([&work.groups[..], &once].concat()),
        [Pass::PerMember { .. }] => Some([&work.groups[..], &work.members].concat()),
        _ => None,
    }
}

/// Generates the kernel of a work; `None` if it has no group.
fn generate(work: &Grouped, choice: Choice) -> Result<Option<Generated>, Error> {
    check::check(work)?;
    let reuse = Reuse::of(work).filter(|_| compute_type(work) == ComputeType::F32);
    generate_with(work, choice, reuse)
}

/// Generates the kernel of a work, where a value of members is computed once for two passes if lanes keep members.
fn generate_with(work: &Grouped, choice: Choice, reuse: Option<Reuse>) -> Result<Option<Generated>, Error> {
    let compute_type = compute_type(work);
    let (groups, loops) = (work.groups.len(), work.groups.len() + work.members.len());
    let mut places = Places::default();
    let mut program = Text::new(compute_type);
    let mut passes = Vec::new();
    let mut kept = 0;
    for (number, pass) in work.passes.iter().enumerate() {
        let parts = pass.parts();
        let shortened = reuse.filter(|reuse| reuse.to.0 == number).map(|reuse| reuse.shortened(&parts, kept));
        let (own_inputs, own_program, own_stores) = match &shortened {
            Some(Shortened { inputs, program, stores }) => (inputs.clone(), &program[..], &stores[..]),
            None => (parts.inputs.iter().collect(), parts.program, parts.stores),
        };
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
        for input in own_inputs {
            inputs.push(match *input {
                Input::Scalar(value) => Slot::Scalar(value),
                Input::Literal(value) => Slot::Literal(value),
                Input::Index { axis } => Slot::Index { place: places.add(index(loops, axis), 0) },
                Input::InBounds(ref inside) => {
                    // Of the tensor's dimensions, not of its memory.
                    let mut inside = Access { offset: 0, strides: vec![0; loops], ..access(inside) };
                    inside.bounds.iter_mut().for_each(|bound| bound.stride = 0);
                    Slot::InBounds { place: places.add(inside, 0) }
                }
                Input::Tensor { tensor, access: ref tensors, pad_value } => {
                    program.widen(work.reads[tensor]);
                    let place = places.add(access(tensors), work.reads[tensor].bytes());
                    Slot::Tensor { tensor, place, pad_value }
                }
            });
        }
        inputs.extend(shortened.as_ref().map(|_| Slot::Kept));
        let results = results(work, &parts, own_stores);
        let statements = program.program(kept + inputs.len(), own_program, &results).map_err(Error::invalid_value)?;
        let mut stores = Vec::new();
        for store in own_stores {
            program.narrow(work.writes[store.tensor]);
            let place = places.add_stored(access(&store.access), work.writes[store.tensor].bytes());
            stores.push(Target { slot: store.slot, tensor: store.tensor, place });
        }
        let (folds, keep, members) = (parts.folds, parts.keep, parts.members);
        let leaves = parts.leaves();
        let remembered = reuse.filter(|reuse| reuse.from.0 == number).map(|reuse| reuse.from.1);
        passes.push(Block { inputs, statements, kept, leaves, folds, keep, stores, members, remembered });
        kept += leaves;
    }
    let folds = || passes.iter().flat_map(|part| part.folds);
    let ordered = folds().any(|fold| matches!(fold.mode, ReduceOp::ArgMax { .. }));
    let number = ordered.then(|| places.add(number(work), 0));
    let elements = elements(work).filter(|_| choice.mapping.is_none());
    if elements.as_ref().unwrap_or(&work.groups).contains(&0) {
        return Ok(None);
    }
    let loops = match &elements {
        Some(extents) => Loops::elementwise(extents, places.places, &places.stored),
        None => Loops::new(&work.groups, &work.members, places.places, &places.bytes),
    };
    let too_large = || {
        let Grouped { groups, members, .. } = work;
        let text = format!("a kernel over groups {groups:?} of {members:?} would reach further than addresses do");
        Error::invalid_value(text)
    };
    let (Some((groups, members)), Some((reach, most))) = (loops.count(), loops.reach()) else {
        return Err(too_large());
    };
    let offsets = loops.places.iter().map(|place| place.offset.unsigned_abs());
    // Threads of an element-wise kernel are numbered through all groups, in vectors.
    let threads = elements.as_ref().map_or(0, |_| groups.saturating_mul(members.saturating_add(15)));
    // Addresses have fewer bits than this, in bytes.
    if offsets.chain([groups, members, threads, reach, most]).any(|number| number > 1 << 55) {
        return Err(too_large());
    }
    // Indices, their sums with a block, and offsets are then below 2³¹.
    let wide = choice.wide || groups.max(members).max(threads).max(most) >= 1 << 30;
    let vector = vector(&loops, &work.reads, &passes, compute_type, wide, elements.is_some());
    let rows =
        vector.filter(|_| elements.is_none()).and_then(|vector| rows(&loops, &work.reads, &passes, members, vector));
    // What is read once needs no registers that only large blocks have.
    let is_read_again = passes.iter().filter(|part| part.members).count() > 1;
    let most = if is_read_again { mapping::MANY_THREADS } else { mapping::THREADS };
    let lanes = rows.and_then(|rows| rows.lanes(groups, most));
    let mut mapping = match (&elements, choice.mapping, lanes) {
        (Some(_), ..) => ThreadMap::ELEMENTWISE,
        (None, Some(mapping), _) => mapping,
        (None, None, Some(lanes)) => ThreadMap::rows(groups, lanes),
        (None, None, None) => ThreadMap::new(groups, members, loops.neighbors(), vector),
    };
    let shared = |mapping: ThreadMap| {
        let buffers = folds::Buffers::new(passes.iter().map(|part| part.folds));
        let bytes = buffers.bytes(compute_type, wide) * groups_of_thread(vector) as usize;
        bytes * mapping.exchanged() as usize
    };
    if shared(mapping) > MOST_SHARED / 2 {
        mapping = mapping.smaller();
    }
    // One thread by itself shares nothing.
    while shared(mapping) > MOST_SHARED {
        mapping.lanes /= 2;
    }
    let residency = rows.filter(|_| !wide).and_then(|rows| rows.over(mapping.lanes));
    if residency.is_none() && reuse.is_some() {
        return generate_with(work, choice, None);
    }
    let along_members = vector.is_some_and(|vector| vector.axis == Axis::Members);
    let statements = statements(&passes);
    let is_unrolled =
        elements.is_none() && !wide && !along_members && schedule::is_unrolled(members, mapping.lanes, statements);
    let tile = match vector {
        Some(_) if elements.is_some() && !wide => {
            let reads = passes.iter().flat_map(|part| &part.inputs).filter_map(|slot| match *slot {
                Slot::Tensor { tensor, place, .. } => Some((&loops.places[place], work.reads[tensor].bytes())),
                _ => None,
            });
            Tile::of_elements(&loops, reads)
        }
        _ => None,
    };
    let work = Work {
        loops: &loops,
        reads: &work.reads,
        writes: &work.writes,
        passes,
        number,
        compute_type,
        schedule: Schedule { mapping, vector, tile, residency, is_unrolled },
        elementwise: elements.is_some(),
        groups,
        members,
        wide,
    };
    let source = Source::new(&work, program);
    check_size(&source.arguments)?;
    let ThreadMap { side, lanes, .. } = mapping;
    let text = match elements {
        Some(_) if tile.is_some() => "a block for each tile of elements".to_owned(),
        Some(_) => "a thread for each element or vector of them".to_owned(),
        None => {
            let groups = side * groups_of_thread(vector);
            let kept = residency.map_or(String::new(), |kept| format!(", {} step(s) in registers", kept.turns));
            format!("{groups} groups a block, {lanes} thread(s) for each, {} blocks{kept}", source.blocks)
        }
    };
    Ok(Some(Generated { source, compute_type, mapping, text }))
}

/// Uses of the slots of a pass, which has these stores.
fn results(work: &Grouped, parts: &Parts<'_>, stores: &[Store]) -> Results {
    let mut results = Results { others: parts.keep.to_vec(), ..Results::default() };
    for store in stores {
        let is_half = work.writes.get(store.tensor) == Some(&Element::F16);
        (if is_half { &mut results.halves } else { &mut results.others }).push(store.slot);
    }
    for fold in parts.folds {
        let is_sum = fold.mode == ReduceOp::Sum;
        (if is_sum { &mut results.sums } else { &mut results.others }).push(fold.slot);
        if let ReduceOp::ArgMax { at } = fold.mode {
            results.others.push(at);
        }
    }
    let Results { halves, sums, others } = &mut results;
    halves.retain(|slot| !others.contains(slot));
    sums.retain(|slot| !others.contains(slot));
    results
}

/// What several passes read of each member, if lanes may keep that in registers: plain operands, which no pass reads
/// beside guarded ones.
fn rows(loops: &Loops, reads: &[Element], passes: &[Block<'_>], members: u64, vector: Vector) -> Option<Rows> {
    if vector.axis == Axis::Groups || members == 0 {
        return None;
    }
    let places = &loops.places;
    let inputs = || passes.iter().filter(|part| part.members).flat_map(|part| &part.inputs);
    let mut of_members = inputs().filter_map(|slot| slot.place()).filter(|place| !places[*place].is_fixed(loops.split));
    if of_members.any(|place| !places[place].bounds.is_empty()) {
        return None;
    }
    let resident = source::resident(loops, passes);
    let mut bytes: usize = resident.iter().map(|(tensor, _)| reads[*tensor].bytes()).sum();
    // A value that is kept for a later pass has four bytes, in the place of the operands unless that pass reads these.
    if let Some(later) = passes.iter().find(|part| part.inputs.contains(&Slot::Kept)) {
        let is_read =
            |slot: &Slot| matches!(*slot, Slot::Tensor { tensor, place, .. } if resident.contains(&(tensor, place)));
        bytes = if later.inputs.iter().any(is_read) { bytes + 4 } else { bytes.max(4) };
    }
    let (width, extent) = (u64::from(vector.width), *loops.extents.last()?);
    let statements = statements(passes);
    let steps = members / extent * extent.div_ceil(width);
    let is_even = extent.is_multiple_of(width);
    (bytes > 0).then_some(Rows { steps, width, is_even, bytes: bytes as u64, statements })
}

/// Number of statements that are compiled for every member.
fn statements(passes: &[Block<'_>]) -> usize {
    passes.iter().filter(|part| part.members).map(|part| part.statements.lines().count()).sum()
}

/// Number of adjacent groups that one thread works on.
fn groups_of_thread(vector: Option<Vector>) -> u32 {
    vector.filter(|vector| vector.axis == Axis::Groups).map_or(1, |vector| vector.width)
}

/// Chooses what a thread takes together.
fn vector(
    loops: &Loops,
    reads: &[Element],
    passes: &[Block<'_>],
    compute_type: ComputeType,
    wide: bool,
    elements: bool,
) -> Option<Vector> {
    if matches!(compute_type, ComputeType::F64 | ComputeType::I64 | ComputeType::Bits(8)) {
        return None;
    }
    let statements = statements(passes);
    // Bytes that the pass with the most of them loads for a member.
    let loaded = |part: &Block<'_>| {
        let contiguous = part.inputs.iter().filter_map(|slot| match *slot {
            Slot::Tensor { tensor, place, .. } if loops.places[place].strides.last() == Some(&1) => {
                Some(reads[tensor].bytes())
            }
            _ => None,
        });
        contiguous.sum::<usize>()
    };
    let loaded = passes.iter().map(loaded).max().unwrap_or(0);
    if elements {
        return Vector::of_members(loops, statements, loaded, true);
    }
    match loops.neighbors() {
        (Some(1), Some(1)) | (None, None) => None,
        (_, Some(1)) => Vector::of_members(loops, statements, loaded, false).or_else(|| {
            let stored = passes.iter().flat_map(|part| &part.stores).map(|target| &loops.places[target.place]);
            let is_narrow = compute_type == ComputeType::F32
                && !wide
                && passes.iter().all(|part| !part.members || part.stores.is_empty());
            Vector::of_windows(loops, statements, stored).filter(|_| is_narrow)
        }),
        (Some(1), _) => {
            let folded = |part: &Block<'_>| part.folds.iter().map(|fold| fold.mode.bytes(compute_type, wide)).sum();
            let folded: usize = passes.iter().map(folded).max().unwrap_or(0);
            let left: usize = passes.iter().map(|part| part.leaves).sum();
            Vector::of_groups(loops, statements, folded, left)
        }
        _ => None,
    }
}

/// Access whose offset is the index of a loop.
fn index(loops: usize, axis: usize) -> Access {
    Access { offset: 0, strides: (0..loops).map(|l| i64::from(l == axis)).collect(), bounds: Vec::new() }
}

/// Access whose offset is the number of a member in the order of the loops.
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

/// Size of the elements of a kernel that only moves them as they are.
fn moved(work: &Grouped) -> Option<usize> {
    let [Pass::PerMember { inputs, program, .. } | Pass::PerGroup { inputs, program, .. }] = &work.passes[..] else {
        return None;
    };
    let [Input::Tensor { access, pad_value, .. }] = &inputs[..] else { return None };
    let identity = |op: &Op| matches!(op, Op::Pointwise { mode: PointwiseMode::Identity, .. });
    let [element] = work.reads[..] else { return None };
    // true may be any byte that is not 0, and is written as 1.
    let is_moved = element != Element::Boolean
        && work.writes.iter().all(|written| *written == element)
        && program.iter().all(identity)
        && (access.bounds.is_empty() || pad_value.to_bits() == 0);
    is_moved.then(|| element.bytes())
}

fn compute_type(work: &Grouped) -> ComputeType {
    if let Some(bytes) = moved(work) {
        return ComputeType::Bits(bytes);
    }
    let parts = || work.passes.iter().map(Pass::parts);
    let whole = |input: &Input| match input {
        Input::Tensor { tensor, access, pad_value } => {
            work.reads[*tensor].is_whole() && (access.bounds.is_empty() || is_whole(*pad_value))
        }
        Input::InBounds(_) | Input::Index { .. } => true,
        Input::Literal(value) => is_whole(*value),
        Input::Scalar(_) => false,
    };
    let keeps = |parts: check::Parts<'_>| parts.inputs.iter().all(whole) && parts.program.iter().all(Op::keeps_whole);
    if work.writes.iter().all(|element| element.is_whole()) && parts().all(keeps) {
        return ComputeType::I64;
    }
    let extents: Vec<usize> = work.groups.iter().chain(&work.members).copied().collect();
    let double = |input: &Input| match input {
        Input::Tensor { tensor, .. } => !work.reads[*tensor].fits_single(),
        Input::Index { axis } => !fits_single(extents[*axis]),
        Input::InBounds(_) | Input::Scalar(_) | Input::Literal(_) => false,
    };
    if work.writes.contains(&Element::F64) || parts().any(|parts| parts.inputs.iter().any(double)) {
        return ComputeType::F64;
    }
    ComputeType::F32
}

impl Grouped {
    /// [`Grouped::source`] with overrides.
    ///
    /// # Errors
    /// As [`Grouped::source`].
    pub fn source_with(&self, choice: Choice) -> Result<Option<KernelSource>, Error> {
        let Some(Generated { source, compute_type, mapping, text: described }) = generate(self, choice)? else {
            return Ok(None);
        };
        let Source { text, arguments, blocks } = source;
        Ok(Some(KernelSource {
            name: FUNCTION,
            text,
            arguments: arguments.bytes.into(),
            pointers: self.reads.len() + self.writes.len(),
            scalars: arguments.scalars.into(),
            double: compute_type == ComputeType::F64,
            blocks,
            threads: mapping.threads(),
            mapping: described,
        }))
    }
}

impl Grouped {
    /// Emits the kernel; `None` if there is nothing to do.
    ///
    /// # Errors
    /// If the work breaks the conditions of its fields.
    pub fn source(&self) -> Result<Option<KernelSource>, Error> {
        self.source_with(Choice::default())
    }

    /// Number of scalars that a launch may replace.
    pub fn scalars(&self) -> usize {
        let inputs = self.passes.iter().flat_map(|pass| pass.parts().inputs);
        inputs.filter(|input| matches!(input, Input::Scalar(_))).count()
    }

    /// Inputs, program and store of an element-wise kernel: one group, and a pass that writes each of its members.
    pub fn elementwise(&self) -> Option<(&[Input], &[Op], &Store)> {
        match &self.passes[..] {
            [Pass::PerMember { inputs, program, stores }] if self.groups.is_empty() => match &stores[..] {
                [store] => Some((inputs, program, store)),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if it writes what it reads, in another place or type.
    pub fn is_copy(&self) -> bool {
        self.elementwise().is_some_and(|(_, program, _)| program.is_empty())
    }
}
