//! Normalization of groups of elements: the common kernel of batch, layer and RMS normalization.
//!
//! Every operand is a view along the dimensions of `x`, which are kept or reduced: its stride is 0 where it repeats, so that
//! a scale for each channel and a scale for each element of a row are the same to the code.
//!
//! Memory is walked in *lines*, runs along the dimension of `x` with the smallest stride. Where that is a reduced
//! dimension a line lies within a group; where it is a kept one (channels last), neighbors of a line belong to
//! neighboring groups. The lines of a group or of such a set of groups are a *block*, and long blocks are cut into
//! *segments*, whose sums are joined. What is cut where depends on the shape alone: results are the same on any number of
//! threads.
//!
//! Statistics and gradients are computed in `f64`. So are elements that are normalized, unless they are `f32` in lines and the
//! node asks for no wider type: then they are in `f32`, around a mean of twice its digits. Sums of squares are taken around a value of the data, of no more
//! than [`AROUND`] elements, and joined by the update formula of Chan, Golub and LeVeque, so that a large mean costs no digits.

pub mod lowering;
#[cfg(test)]
pub(crate) mod tests;

pub use hipdnn_engine_core::ops::normalization::{Affine, SLOTS, Slot, Task};

use super::{LibraryKernel, Recipe};
use hipdnn_cpu_kernels::norm_lines::{
    self as line, AROUND, Around, Averages, GivenRows, Gradient, Normalized, Parameters, Spread, Statistics, Target,
    join_moments,
};
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;

/// Maximum number of elements of a line within a group.
const ROW: usize = 512;

/// The same where lines are read and written where they lie: twice as much stays in the first cache.
const LONG_ROW: usize = 4096;

/// Maximum number of elements of a line across groups.
const LANES: usize = 128;

/// Number of elements of a segment, about.
const SEGMENT: usize = 64 * 1024;

/// Number of blocks from which on none is cut: a block that one thread goes through several times stays in its cache.
const MANY: usize = 64;

/// Number of elements below which waking another thread costs more than it saves.
const PER_UNIT: usize = 16 * 1024;

/// Strides of an operand along the dimensions of `x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element type in memory.
    pub storage: Storage,
    /// Stride of each dimension, in elements; 0 repeats.
    pub strides: Vec<usize>,
}

/// Index in [`Places`] of the mean and deviation that the kernel keeps for each group, strided like an operand.
const KEPT: usize = SLOTS;

/// A [normalization](hipdnn_engine_core::ops::normalization::Normalization) of tensors that lie in memory.
#[derive(Clone, Debug)]
pub struct Normalization {
    /// Forward or backward pass.
    pub task: Task,
    /// Extents of `x`.
    pub dims: Vec<usize>,
    /// True for each dimension of `x` that numbers elements of a group.
    pub reduced: Vec<bool>,
    /// Elements that share an element of scale and bias.
    pub affine: Affine,
    /// True if the mean is subtracted; without that a group is divided by its root mean square.
    pub centered: bool,
    /// True if [`Slot::Mean`] and the deviation are read, instead of computed (and written where they have a view).
    pub given: bool,
    /// True if elements are normalized in `f64` too, not only their statistics computed.
    pub double: bool,
    /// Views of the operands, by [`Slot`].
    pub views: [Option<View>; SLOTS],
    /// Source of each input, in their order.
    pub sources: Vec<Source>,
    /// Operand of each output, in their order.
    pub results: Vec<Slot>,
    /// Epsilon.
    pub epsilon: Scalar,
    /// Momentum of running statistics.
    pub momentum: Scalar,
}

/// Scalar operand of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Value known when the plan is built.
    Fixed(f64),
    /// Value read when it runs.
    Read(Storage),
}

impl Scalar {
    /// Value of the scalar.
    ///
    /// # Safety
    /// If it is to be read, `address` has a readable, aligned value of its type.
    unsafe fn get(self, address: *const u8) -> f64 {
        match self {
            Scalar::Fixed(value) => value,
            Scalar::Read(storage) => {
                let mut value = [0.0];
                // SAFETY: the caller's promise.
                unsafe { storage.load_wide(address, 0, 1, &mut value) };
                value[0]
            }
        }
    }
}

/// Source of one of a kernel's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An operand.
    Operand(Slot),
    /// The scalar epsilon.
    Epsilon,
    /// The scalar momentum.
    Momentum,
}

impl Recipe for Normalization {
    fn kernel(&self, _threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(NormalizationKernel::new(self))
    }
}

/// Kernel of a [`Normalization`].
#[derive(Clone, Debug)]
pub struct NormalizationKernel {
    sources: Vec<Source>,
    results: Vec<Slot>,
    task: Task,
    affine: Affine,
    centered: bool,
    given: bool,
    double: bool,
    storage: [Option<Storage>; SLOTS],
    epsilon: Scalar,
    momentum: Scalar,
    /// Number of groups.
    groups: usize,
    /// Number of elements of a group.
    count: usize,
    walk: Walk,
    /// Walk with the kinds of dimensions exchanged, for gradients of a scale that is shared by groups.
    across: Option<Walk>,
}

/// Dimension: its extent, and its stride for each operand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dim {
    extent: usize,
    strides: Places,
}

/// Stride or offset for each operand, in its elements.
type Places = [usize; SLOTS + 1];

/// Walk over the lines of a tensor.
#[derive(Clone, Debug)]
struct Walk {
    /// Dimensions that number blocks, and those that number the lines of a block; outermost first.
    blocks: Vec<Dim>,
    steps: Vec<Dim>,
    /// Dimension that lines run along.
    inner: Dim,
    /// True if a line goes across groups.
    lanes: bool,
    /// Maximum number of elements of a line.
    most: usize,
    /// Number of lines that lie behind each other along the inner dimension.
    pieces: usize,
    /// Number of segments that a block is cut into.
    segments: usize,
}

/// Line: its offset for each operand, and its length.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: Places,
    len: usize,
}

impl Walk {
    /// Walk in lines of at most `row` elements within a group.
    fn new(dims: &[Dim], reduced: &[bool], row: usize) -> Walk {
        let pick = |kind: bool| {
            let mut picked: Vec<Dim> =
                dims.iter().zip(reduced).filter(|(d, r)| **r == kind && d.extent > 1).map(|(d, _)| d.clone()).collect();
            // The order of elements in a sum is ours to choose: that of memory.
            picked.sort_by_key(|dim| std::cmp::Reverse(dim.strides[Slot::X as usize]));
            join(picked)
        };
        let (mut kept, mut reduced) = (pick(false), pick(true));
        let step = |dims: &[Dim]| dims.last().map_or(usize::MAX, |dim| dim.strides[Slot::X as usize]);
        let lanes = step(&kept) < step(&reduced);
        let inner = if lanes { kept.pop() } else { reduced.pop() };
        let inner = inner.unwrap_or(Dim { extent: 1, strides: [0; SLOTS + 1] });
        let most = if lanes { LANES } else { row };
        let pieces = inner.extent.div_ceil(most);
        let mut walk = Walk { blocks: kept, steps: reduced, inner, lanes, most, pieces, segments: 1 };
        if walk.block_count() < MANY {
            walk.segments = (walk.step_count() * walk.inner.extent.min(most)).div_ceil(SEGMENT).min(walk.step_count());
        }
        walk
    }

    /// True if lines are within groups, and forward passes compute them from memory to memory.
    fn is_in_memory(&self, storage: &[Option<Storage>; SLOTS]) -> bool {
        let lies = |slot: Slot, strides: &[usize]| match storage[slot as usize] {
            Some(storage) => storage == Storage::F32 && strides.contains(&self.inner.strides[slot as usize]),
            None => true,
        };
        let parameters = [Slot::Scale, Slot::Bias].into_iter().all(|slot| lies(slot, &[0, 1]));
        !self.lanes && lies(Slot::X, &[1]) && lies(Slot::Out, &[1]) && parameters
    }

    fn block_count(&self) -> usize {
        self.blocks.iter().map(|d| d.extent).product::<usize>() * if self.lanes { self.pieces } else { 1 }
    }

    fn step_count(&self) -> usize {
        self.steps.iter().map(|d| d.extent).product::<usize>() * if self.lanes { 1 } else { self.pieces }
    }

    /// Number of sums that a block keeps at once.
    fn width(&self) -> usize {
        if self.lanes { self.most.min(self.inner.extent) } else { 1 }
    }

    /// Line of a block's step.
    fn line(&self, block: usize, step: usize) -> Line {
        // Divisions take longer than short lines.
        let (block, step, piece) = match (self.pieces, self.lanes) {
            (1, _) => (block, step, 0),
            (pieces, true) => (block / pieces, step, block % pieces),
            (pieces, false) => (block, step / pieces, step % pieces),
        };
        let start = piece * self.most;
        let mut at = [0; SLOTS + 1];
        advance(&mut at, &self.blocks, block);
        advance(&mut at, &self.steps, step);
        for (at, stride) in at.iter_mut().zip(&self.inner.strides) {
            *at += start * stride;
        }
        Line { at, len: self.most.min(self.inner.extent - start) }
    }

    /// Steps of a segment.
    fn steps_of(&self, segment: usize) -> std::ops::Range<usize> {
        let steps = self.step_count();
        steps * segment / self.segments..steps * (segment + 1) / self.segments
    }

    /// Number of `f64` values of the sums of all segments, `each` for one sum.
    fn partial_len(&self, each: usize) -> usize {
        if self.segments == 1 { 0 } else { self.block_count() * self.segments * self.width() * each }
    }

    /// Number of blocks that a thread takes at once, if it takes whole ones.
    fn blocks_per_unit(&self) -> usize {
        (PER_UNIT / (self.step_count() * self.inner.extent.min(self.most)).max(1)).max(1)
    }
}

/// Adds to `at` the offsets of an index within dimensions.
fn advance(at: &mut Places, dims: &[Dim], mut index: usize) {
    for (place, dim) in dims.iter().enumerate().rev() {
        // What is left is an index of the outermost dimension.
        let i = if place == 0 { index } else { index % dim.extent };
        index = if place == 0 { 0 } else { index / dim.extent };
        for (at, stride) in at.iter_mut().zip(&dim.strides) {
            *at += i * stride;
        }
    }
}

/// Joins neighboring dimensions that every operand steps through without a gap.
fn join(dims: Vec<Dim>) -> Vec<Dim> {
    let mut joined: Vec<Dim> = Vec::with_capacity(dims.len());
    for dim in dims {
        match joined.last_mut() {
            Some(last) if last.strides.iter().zip(&dim.strides).all(|(a, b)| *a == b * dim.extent) => {
                *last = Dim { extent: last.extent * dim.extent, strides: dim.strides };
            }
            _ => joined.push(dim),
        }
    }
    joined
}

impl NormalizationKernel {
    /// Makes the kernel of a normalization.
    ///
    /// # Panics
    /// If a view has not one stride for each dimension of `x`, or an operand that the task needs is missing.
    pub fn new(work: &Normalization) -> NormalizationKernel {
        let rank = work.dims.len();
        assert_eq!(work.reduced.len(), rank, "one kind for each dimension");
        let needed: &[Slot] = match work.task {
            Task::Forward => &[Slot::X, Slot::Out],
            Task::Backward => &[Slot::X, Slot::Dy, Slot::Out, Slot::Scale],
        };
        for slot in needed {
            assert!(work.views[*slot as usize].is_some(), "{slot:?} of {:?}", work.task);
        }
        for view in work.views.iter().flatten() {
            assert_eq!(view.strides.len(), rank, "one stride for each dimension");
        }
        let mut dims: Vec<Dim> = work
            .dims
            .iter()
            .enumerate()
            .map(|(axis, extent)| {
                let mut strides = [0; SLOTS + 1];
                for (stride, view) in strides.iter_mut().zip(&work.views) {
                    *stride = view.as_ref().map_or(0, |view| view.strides[axis]);
                }
                Dim { extent: *extent, strides }
            })
            .collect();
        let (mut groups, mut count) = (1, 1);
        for (dim, reduced) in dims.iter_mut().zip(&work.reduced).rev() {
            if *reduced {
                count *= dim.extent;
            } else {
                dim.strides[KEPT] = groups;
                groups *= dim.extent;
            }
        }
        let exchanged: Vec<bool> = work.reduced.iter().map(|reduced| !reduced).collect();
        let across = work.task == Task::Backward && work.affine == Affine::PerElement;
        let storage: [Option<Storage>; SLOTS] =
            std::array::from_fn(|i| work.views[i].as_ref().map(|view| view.storage));
        let mut walk = Walk::new(&dims, &work.reduced, ROW);
        if work.task == Task::Forward && walk.is_in_memory(&storage) {
            walk = Walk::new(&dims, &work.reduced, LONG_ROW);
        }
        NormalizationKernel {
            sources: work.sources.clone(),
            results: work.results.clone(),
            task: work.task,
            affine: work.affine,
            centered: work.centered,
            given: work.given,
            double: work.double,
            storage,
            epsilon: work.epsilon,
            momentum: work.momentum,
            groups,
            count,
            walk,
            across: across.then(|| Walk::new(&dims, &exchanged, ROW)),
        }
    }

    /// Scratch memory in `f64` values: the moments of each group, its sums for the gradient, and the sums of segments,
    /// which are used one after the other.
    fn scratch_len(&self) -> usize {
        let across = self.across.as_ref().map_or(0, |walk| walk.partial_len(2));
        let sums = if self.task == Task::Backward { 2 } else { 0 };
        self.groups * (2 + sums) + self.walk.partial_len(3).max(across)
    }
}

impl LibraryKernel for NormalizationKernel {
    fn scratch_bytes(&self) -> usize {
        self.scratch_len() * size_of::<f64>()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let mut operands = [std::ptr::null_mut(); SLOTS];
        let (mut epsilon, mut momentum) = (std::ptr::null(), std::ptr::null());
        for (source, address) in self.sources.iter().zip(inputs) {
            match source {
                Source::Operand(slot) => operands[*slot as usize] = address.cast_mut(),
                Source::Epsilon => epsilon = *address,
                Source::Momentum => momentum = *address,
            }
        }
        for (slot, address) in self.results.iter().zip(outputs) {
            operands[*slot as usize] = *address;
        }
        // SAFETY: the caller's promise about scalars.
        let (epsilon, momentum) = unsafe { (self.epsilon.get(epsilon), self.momentum.get(momentum)) };
        let scratch = scratch.cast::<f64>();
        let run = &Run {
            kernel: self,
            isa: Isa::best(),
            operands,
            epsilon,
            momentum,
            mean: scratch,
            inverse: scratch.wrapping_add(self.groups),
            sums: scratch.wrapping_add(2 * self.groups),
            partials: scratch.wrapping_add(self.groups * if self.task == Task::Backward { 4 } else { 2 }),
        };
        let walk = &self.walk;
        let blocks = walk.block_count();
        if walk.segments == 1 {
            let per_unit = walk.blocks_per_unit();
            pool.run(blocks.div_ceil(per_unit), &|unit| {
                let blocks = unit * per_unit..((unit + 1) * per_unit).min(blocks);
                // SAFETY: the caller's promise; no other unit has these blocks.
                unsafe {
                    if !run.given_in_memory(walk, blocks.clone()) {
                        let buffers = &mut None;
                        blocks.for_each(|block| run.whole(walk, block, buffers));
                    }
                }
            });
        } else {
            let units = blocks * walk.segments;
            let each = |unit: usize| (unit / walk.segments, unit % walk.segments);
            if !self.given {
                pool.run(units, &|unit| {
                    let (block, segment) = each(unit);
                    // SAFETY: the caller's promise; no other unit has this segment of the block.
                    unsafe { run.store_moments(walk, block, segment, &run.moments(walk, block, segment, &mut None)) };
                });
            }
            // SAFETY: the caller's promise; each unit has a block, of which the moments of all segments are stored.
            pool.run(blocks, &|block| unsafe {
                run.finish_moments(walk, &walk.line(block, 0), &run.joined_moments(walk, block));
            });
            if self.task == Task::Backward {
                pool.run(units, &|unit| {
                    let (block, segment) = each(unit);
                    // SAFETY: the caller's promise; no other unit has this segment, and the moments of groups are
                    // complete.
                    unsafe {
                        run.store_sums(
                            walk,
                            block,
                            segment,
                            &run.gradient_sums(walk, block, segment, &mut Buffers::new()),
                        )
                    };
                });
                // SAFETY: the caller's promise; each unit has a block, of which the sums of all segments are stored.
                pool.run(blocks, &|block| unsafe { run.finish_sums(walk, block, &run.joined_sums(walk, block)) });
            }
            pool.run(units, &|unit| {
                let (block, segment) = each(unit);
                // SAFETY: the caller's promise; no other unit has this segment, and moments and sums of groups are
                // complete.
                unsafe { run.apply(walk, block, segment, &mut None) };
            });
        }
        let Some(walk) = &self.across else { return };
        let blocks = walk.block_count();
        if walk.segments == 1 {
            let per_unit = walk.blocks_per_unit();
            pool.run(blocks.div_ceil(per_unit), &|unit| {
                let buffers = &mut Buffers::new();
                for block in unit * per_unit..((unit + 1) * per_unit).min(blocks) {
                    // SAFETY: the caller's promise; no other unit has this block, and the moments of groups are
                    // complete.
                    unsafe { run.finish_across(walk, block, &run.across_sums(walk, block, 0, buffers)) };
                }
            });
        } else {
            pool.run(blocks * walk.segments, &|unit| {
                let (block, segment) = (unit / walk.segments, unit % walk.segments);
                // SAFETY: the caller's promise; no other unit has this segment of the block, and the moments of groups
                // are complete.
                unsafe {
                    run.store_sums(walk, block, segment, &run.across_sums(walk, block, segment, &mut Buffers::new()))
                };
            });
            // SAFETY: the caller's promise; each unit has a block, of which the sums across groups of all segments are
            // stored.
            pool.run(blocks, &|block| unsafe { run.finish_across(walk, block, &run.joined_sums(walk, block)) });
        }
    }
}

/// State of a run, shared with the threads that work on it.
struct Run<'a> {
    kernel: &'a NormalizationKernel,
    isa: Isa,
    operands: [*mut u8; SLOTS],
    epsilon: f64,
    momentum: f64,
    /// Mean of each group, and the inverse of its deviation.
    mean: *mut f64,
    inverse: *mut f64,
    /// Averages of the gradient of each group, one after the other.
    sums: *mut f64,
    /// Partial sums of segments.
    partials: *mut f64,
}

// SAFETY: inputs are only read; results and scratch memory of a block or segment are written by the one unit that computes
// it, and read by others only in later jobs of the pool.
unsafe impl Sync for Run<'_> {}

/// Moments of the groups of a block: number of elements, means, and the sums of squares around those.
struct Moments {
    count: f64,
    mean: [f64; LANES],
    squares: [f64; LANES],
}

impl Moments {
    const NONE: Moments = Moments { count: 0.0, mean: [0.0; LANES], squares: [0.0; LANES] };

    /// Joins the moments of `count` elements more to those of group `lane`; [`Moments::count`] is left to the caller.
    fn join(&mut self, lane: usize, count: f64, mean: f64, squares: f64) {
        let of_lane = [self.count, self.mean[lane], self.squares[lane]];
        (self.mean[lane], self.squares[lane]) = join_moments(of_lane, [count, mean, squares]);
    }
}

/// Two sums for each group of a block.
struct Pairs([f64; LANES], [f64; LANES]);

/// Maximum length of a line.
const LINE: usize = ROW;

/// Buffers of a thread: elements of a line of each operand, and statistics of their groups. Clearing them takes as long as
/// normalizing some thousand elements: they are made where elements don't lie as they are computed with.
struct Buffers {
    x: [f32; LINE],
    /// Gradient of the output; in a forward task the bias.
    dy: [f32; LINE],
    /// Scale of each element of the line; in a backward task ones if the scale is for a whole group.
    weight: [f32; LINE],
    /// Scale of each element's group in a backward task; ones if the scale is for each element of a group.
    factor: [f32; LINE],
    out: [f32; LINE],
    mean: [f64; LINE],
    inverse: [f64; LINE],
    averages: [[f64; LINE]; 2],
}

impl Buffers {
    fn new() -> Buffers {
        Buffers {
            x: [0.0; LINE],
            dy: [0.0; LINE],
            weight: [1.0; LINE],
            factor: [1.0; LINE],
            out: [0.0; LINE],
            mean: [0.0; LINE],
            inverse: [0.0; LINE],
            averages: [[0.0; LINE]; 2],
        }
    }
}

impl Run<'_> {
    /// Computes all results of a block that is not cut, except those that groups share.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the block.
    unsafe fn whole(&self, walk: &Walk, block: usize, buffers: &mut Option<Buffers>) {
        // SAFETY: the caller's promise; each step uses what the one before has written.
        unsafe {
            let line = walk.line(block, 0);
            if walk.lanes {
                let moments = if self.kernel.given { Moments::NONE } else { self.moments(walk, block, 0, buffers) };
                self.finish_moments(walk, &line, &moments);
            } else {
                let (count, mean, squares) =
                    if self.kernel.given { (0.0, 0.0, 0.0) } else { self.moments_of_group(walk, block, 0, buffers) };
                self.finish_group(walk, &line, 0, [count, mean, squares]);
            }
            if self.kernel.task == Task::Backward {
                let buffers = buffers.get_or_insert_with(Buffers::new);
                self.finish_sums(walk, block, &self.gradient_sums(walk, block, 0, buffers));
            }
            if walk.step_count() == 1 && self.apply_in_memory(walk, &line) {
                return;
            }
            self.apply(walk, block, 0, buffers);
        }
    }

    /// Computes the results of blocks whose statistics are given, if all of it is `f32`, and a block is one row from memory to
    /// memory with one value of each parameter.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the blocks.
    unsafe fn given_in_memory(&self, walk: &Walk, blocks: std::ops::Range<usize>) -> bool {
        let kernel = self.kernel;
        let Some(rows) = walk.blocks.last().filter(|_| kernel.given && kernel.task == Task::Forward) else {
            return false;
        };
        let of_rows = [Slot::Mean, Slot::Inverse, Slot::Variance, Slot::Scale, Slot::Bias];
        let stride = rows.strides[Slot::Mean as usize];
        let is_single = |slot: Slot| kernel.storage[slot as usize] == Some(Storage::F32);
        let is_of_row = |slot: &Slot| {
            let of = |dim: &Dim| dim.strides[*slot as usize];
            kernel.storage[*slot as usize].is_none() || (is_single(*slot) && of(&walk.inner) == 0 && of(rows) == stride)
        };
        let lies = |slot: Slot| is_single(slot) && walk.inner.strides[slot as usize] == 1;
        let serves = !walk.lanes && walk.steps.is_empty() && lies(Slot::X) && lies(Slot::Out) && is_single(Slot::Mean);
        if !serves || !of_rows.iter().all(is_of_row) {
            return false;
        }
        let mut block = blocks.start;
        while block < blocks.end {
            // Rows are apart alike within the innermost dimension of blocks.
            let count = (rows.extent - block % rows.extent).min(blocks.end - block);
            let line = walk.line(block, 0);
            let address = |slot: Slot| self.operands[slot as usize].cast::<f32>().wrapping_add(line.at[slot as usize]);
            let given = |slot: Slot| kernel.storage[slot as usize].map(|_| address(slot).cast_const());
            let spread = match (given(Slot::Inverse), given(Slot::Variance)) {
                (Some(inverse), _) => Spread::Inverse(inverse),
                (None, Some(variance)) => Spread::Variance(variance, self.epsilon),
                (None, None) => return false,
            };
            let given_rows = GivenRows {
                rows: count,
                len: walk.inner.extent,
                x: (address(Slot::X), rows.strides[Slot::X as usize]),
                y: (address(Slot::Out), rows.strides[Slot::Out as usize]),
                mean: address(Slot::Mean),
                spread,
                scale: given(Slot::Scale),
                bias: given(Slot::Bias),
                stride,
                double: kernel.double,
            };
            // SAFETY: the rows lie within the views, whose memory is there and aligned for its type; the result is no other
            // operand's memory, and nobody else writes these rows.
            unsafe { given_rows.run(self.isa) };
            block += count;
        }
        true
    }

    /// Loads the elements of an operand along a line; `values` stay as they are where there is no such operand.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], for a line of the walk.
    unsafe fn load(&self, walk: &Walk, slot: Slot, line: &Line, values: &mut [f32; LINE]) {
        let i = slot as usize;
        if let Some(storage) = self.kernel.storage[i] {
            let stride = walk.inner.strides[i];
            // SAFETY: the line lies within the view, whose memory is there.
            unsafe { storage.load(self.isa, self.operands[i], line.at[i], stride, &mut values[..line.len]) };
        }
    }

    /// Address of an operand's elements along a line, if they are `f32` side by side.
    fn first_single(&self, walk: &Walk, slot: Slot, line: &Line) -> Option<*mut f32> {
        let i = slot as usize;
        let lies = self.kernel.storage[i] == Some(Storage::F32) && (walk.inner.strides[i] == 1 || line.len == 1);
        lies.then(|| self.operands[i].cast::<f32>().wrapping_add(line.at[i]))
    }

    /// Elements of an operand along a line where they lie, if they are `f32` side by side.
    ///
    /// # Safety
    /// As [`Run::load`]; nobody writes them.
    unsafe fn singles<'v>(&self, walk: &Walk, slot: Slot, line: &Line) -> Option<&'v [f32]> {
        let first = self.first_single(walk, slot, line)?;
        // SAFETY: the line lies within the view, whose memory is there, aligned for its type.
        Some(unsafe { std::slice::from_raw_parts(first, line.len) })
    }

    /// Scale or bias of a line, `absent` if there is none; `None` if its elements are neither one nor where they can
    /// be used.
    ///
    /// # Safety
    /// As [`Run::load`]; nobody writes them.
    unsafe fn parameters<'v>(&self, walk: &Walk, slot: Slot, line: &Line, absent: f64) -> Option<Parameters<'v>> {
        if self.kernel.storage[slot as usize].is_none() {
            return Some(Parameters::Same(absent));
        }
        // SAFETY: the caller's promise.
        unsafe {
            if walk.inner.strides[slot as usize] == 0 {
                return self.get(walk, slot, line, 0).map(Parameters::Same);
            }
            self.singles(walk, slot, line).map(Parameters::Each)
        }
    }

    /// Computes the results of a line of one group from memory to memory, if it is `f32` and its elements lie side by
    /// side.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], nobody else writes the line, and the moments of its group are settled.
    unsafe fn apply_in_memory(&self, walk: &Walk, line: &Line) -> bool {
        if self.kernel.task != Task::Forward || walk.inner.strides[KEPT] != 0 {
            return false;
        }
        // SAFETY: the caller's promise; the result is no other operand's memory, and only this line's is written.
        unsafe {
            let (Some(x), Some(y)) = (self.singles(walk, Slot::X, line), self.first_single(walk, Slot::Out, line))
            else {
                return false;
            };
            let scale = self.parameters(walk, Slot::Scale, line, 1.0);
            let (Some(scale), Some(bias)) = (scale, self.parameters(walk, Slot::Bias, line, 0.0)) else {
                return false;
            };
            let y = std::slice::from_raw_parts_mut(y, line.len);
            let (mean, inverse) = (self.mean.add(line.at[KEPT]).read(), self.inverse.add(line.at[KEPT]).read());
            let double = self.kernel.double;
            self.isa.run(Normalized { x, y, mean, inverse, scale, bias, double });
        }
        true
    }

    /// Writes an element of an operand, if there is one; `lane` is the place along the line.
    ///
    /// # Safety
    /// As [`Run::load`], for an operand that is a result, and nobody else writes the element.
    unsafe fn put(&self, walk: &Walk, slot: Slot, line: &Line, lane: usize, value: f64) {
        let i = slot as usize;
        if let Some(storage) = self.kernel.storage[i] {
            let offset = line.at[i] + lane * walk.inner.strides[i];
            // SAFETY: the element lies within the view, whose memory is there.
            unsafe { storage.store(self.isa, &[value as f32], self.operands[i], offset, 1) };
        }
    }

    /// Loads an element of an operand; `None` if that is absent.
    ///
    /// # Safety
    /// As [`Run::load`].
    unsafe fn get(&self, walk: &Walk, slot: Slot, line: &Line, lane: usize) -> Option<f64> {
        let i = slot as usize;
        let storage = self.kernel.storage[i]?;
        let mut value = [0f32];
        let offset = line.at[i] + lane * walk.inner.strides[i];
        if storage == Storage::F32 {
            // SAFETY: the element lies within the view, whose memory is there, aligned for its type.
            return Some(f64::from(unsafe { self.operands[i].cast::<f32>().add(offset).read() }));
        }
        // SAFETY: the element lies within the view, whose memory is there.
        unsafe { storage.load(self.isa, self.operands[i], offset, 1, &mut value) };
        Some(f64::from(value[0]))
    }

    /// Loads values that the kernel keeps for the groups of a line.
    ///
    /// # Safety
    /// `from` has a written value for each group.
    unsafe fn kept(&self, walk: &Walk, line: &Line, from: *const f64, values: &mut [f64; LINE]) {
        let stride = walk.inner.strides[KEPT];
        for (lane, value) in values[..line.len].iter_mut().enumerate() {
            // SAFETY: the place is the number of a group.
            *value = unsafe { from.add(line.at[KEPT] + lane * stride).read() };
        }
    }

    /// Computes the moments of a segment of one group: the number of elements, their mean, and the sum of squares around it.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`].
    unsafe fn moments_of_group(
        &self,
        walk: &Walk,
        block: usize,
        segment: usize,
        buffers: &mut Option<Buffers>,
    ) -> (f64, f64, f64) {
        let mut all = (0.0, 0.0, 0.0);
        for step in walk.steps_of(segment) {
            let line = walk.line(block, step);
            // SAFETY: the caller's promise.
            let values = unsafe { self.singles(walk, Slot::X, &line) }.unwrap_or_else(|| {
                let x = &mut buffers.get_or_insert_with(Buffers::new).x;
                // SAFETY: the caller's promise.
                unsafe { self.load(walk, Slot::X, &line, x) };
                &x[..line.len]
            });
            let (mean, squares) = line::moments(self.isa, values, self.kernel.centered);
            let count = line.len as f64;
            let (joined, around) = join_moments([all.0, all.1, all.2], [count, mean, squares]);
            all = (all.0 + count, joined, around);
        }
        all
    }

    /// Computes the moments of a segment.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`].
    unsafe fn moments(&self, walk: &Walk, block: usize, segment: usize, buffers: &mut Option<Buffers>) -> Moments {
        let mut moments = Moments::NONE;
        if !walk.lanes {
            // SAFETY: the caller's promise.
            (moments.count, moments.mean[0], moments.squares[0]) =
                unsafe { self.moments_of_group(walk, block, segment, buffers) };
            return moments;
        }
        let x = &mut buffers.get_or_insert_with(Buffers::new).x;
        let steps = walk.steps_of(segment);
        let mut base = [0f64; LANES];
        let mut first = steps.start;
        while first < steps.end {
            let last = (first + AROUND).min(steps.end);
            let (mut sums, mut squares) = ([0f64; LANES], [0f64; LANES]);
            let mut len = 0;
            for step in first..last {
                let line = walk.line(block, step);
                len = line.len;
                // SAFETY: the caller's promise.
                unsafe { self.load(walk, Slot::X, &line, x) };
                if step == first && self.kernel.centered {
                    for (base, x) in base.iter_mut().zip(&x[..len]) {
                        *base = f64::from(line::base_of(*x));
                    }
                }
                let mut around =
                    Around { base: &mut base[..len], sums: &mut sums[..len], squares: &mut squares[..len] };
                around.add(self.isa, &x[..len]);
            }
            let count = (last - first) as f64;
            for lane in 0..len {
                if self.kernel.centered {
                    let (average, squares) = line::around_mean(count, sums[lane], squares[lane]);
                    moments.join(lane, count, base[lane] + average, squares);
                } else {
                    moments.join(lane, count, 0.0, squares[lane]);
                }
            }
            moments.count += count;
            first = last;
        }
        moments
    }

    /// Address of a segment's partial sums, `each` values for a group.
    fn partial(&self, walk: &Walk, block: usize, segment: usize, each: usize) -> *mut f64 {
        self.partials.wrapping_add((block * walk.segments + segment) * walk.width() * each)
    }

    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the segment.
    unsafe fn store_moments(&self, walk: &Walk, block: usize, segment: usize, moments: &Moments) {
        let place = self.partial(walk, block, segment, 3);
        for lane in 0..walk.width() {
            // SAFETY: the scratch memory has three values for each group of each segment.
            unsafe {
                place.add(3 * lane).write(moments.count);
                place.add(3 * lane + 1).write(moments.mean[lane]);
                place.add(3 * lane + 2).write(moments.squares[lane]);
            }
        }
    }

    /// Combines the moments of a block's segments.
    ///
    /// # Safety
    /// The moments of all segments have been stored, unless they are given.
    unsafe fn joined_moments(&self, walk: &Walk, block: usize) -> Moments {
        let mut moments = Moments::NONE;
        if self.kernel.given {
            return moments;
        }
        for segment in 0..walk.segments {
            let place = self.partial(walk, block, segment, 3);
            let mut count = 0.0;
            for lane in 0..walk.width() {
                // SAFETY: `store_moments` has written them.
                let [n, mean, squares] = unsafe { place.add(3 * lane).cast::<[f64; 3]>().read() };
                moments.join(lane, n, mean, squares);
                count = n;
            }
            moments.count += count;
        }
        moments
    }

    /// Computes mean and deviation of the groups of a block, whose first line is given, and writes the results that follow
    /// from them.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the block.
    unsafe fn finish_moments(&self, walk: &Walk, line: &Line, moments: &Moments) {
        for lane in 0..if walk.lanes { line.len } else { 1 } {
            // SAFETY: the caller's promise.
            unsafe {
                self.finish_group(walk, line, lane, [moments.count, moments.mean[lane], moments.squares[lane]]);
            }
        }
    }

    /// Computes mean and deviation of a group, and writes the results that follow from them.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the group.
    unsafe fn finish_group(&self, walk: &Walk, line: &Line, lane: usize, [count, mean, squares]: [f64; 3]) {
        // SAFETY: the caller's promise; the place is the number of a group.
        unsafe {
            let (mean, inverse) = if self.kernel.given {
                let inverse = self.get(walk, Slot::Inverse, line, lane).unwrap_or_else(|| {
                    let variance = self.get(walk, Slot::Variance, line, lane).unwrap_or(0.0);
                    1.0 / (variance + self.epsilon).sqrt()
                });
                (self.get(walk, Slot::Mean, line, lane).unwrap_or(0.0), inverse)
            } else {
                let variance = squares / count;
                let inverse = 1.0 / (variance + self.epsilon).sqrt();
                self.put(walk, Slot::Mean, line, lane, mean);
                self.put(walk, Slot::Inverse, line, lane, inverse);
                let blend = |old: f64, new: f64| (1.0 - self.momentum) * old + self.momentum * new;
                if let Some(old) = self.get(walk, Slot::PrevMean, line, lane) {
                    self.put(walk, Slot::NextMean, line, lane, blend(old, mean));
                }
                if let Some(old) = self.get(walk, Slot::PrevVariance, line, lane) {
                    // The running variance is the unbiased one.
                    let unbiased = if count > 1.0 { squares / (count - 1.0) } else { variance };
                    self.put(walk, Slot::NextVariance, line, lane, blend(old, unbiased));
                }
                (mean, inverse)
            };
            let group = line.at[KEPT] + lane * walk.inner.strides[KEPT];
            self.mean.add(group).write(mean);
            self.inverse.add(group).write(inverse);
        }
    }

    /// Computes the sums for the gradient of a segment's groups.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and the moments of the groups are settled.
    unsafe fn gradient_sums(&self, walk: &Walk, block: usize, segment: usize, buffers: &mut Buffers) -> Pairs {
        // A scale for the whole group is left out here: the sums are then the gradients of scale and bias.
        // SAFETY: the caller's promise.
        unsafe { self.pairs(walk, block, segment, self.kernel.affine == Affine::PerElement, buffers) }
    }

    /// Computes the sums for gradients of a scale that groups share.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], for the exchanged walk, and the moments of all groups are settled.
    unsafe fn across_sums(&self, walk: &Walk, block: usize, segment: usize, buffers: &mut Buffers) -> Pairs {
        // SAFETY: the caller's promise.
        unsafe { self.pairs(walk, block, segment, false, buffers) }
    }

    /// # Safety
    /// As [`LibraryKernel::run`], and the moments of the groups are settled.
    unsafe fn pairs(&self, walk: &Walk, block: usize, segment: usize, weighted: bool, buffers: &mut Buffers) -> Pairs {
        let mut pairs = Pairs([0.0; LANES], [0.0; LANES]);
        let Buffers { x, dy, weight, mean, inverse, .. } = buffers;
        for step in walk.steps_of(segment) {
            let line = walk.line(block, step);
            let len = line.len;
            // SAFETY: the caller's promise.
            unsafe {
                self.load(walk, Slot::X, &line, x);
                self.load(walk, Slot::Dy, &line, dy);
                if weighted {
                    self.load(walk, Slot::Scale, &line, weight);
                }
            }
            // SAFETY: the caller's promise.
            let statistics = unsafe { self.statistics(walk, &line, mean, inverse) };
            let into = if walk.lanes {
                Target::Each(&mut pairs.0[..len], &mut pairs.1[..len])
            } else {
                Target::One(&mut pairs.0[0], &mut pairs.1[0])
            };
            line::sums(self.isa, &x[..len], &dy[..len], &weight[..len], statistics, into);
        }
        pairs
    }

    /// Statistics of the groups of a line: means and inverse deviations.
    ///
    /// # Safety
    /// They are settled.
    unsafe fn statistics<'b>(
        &self,
        walk: &Walk,
        line: &Line,
        mean: &'b mut [f64; LINE],
        inverse: &'b mut [f64; LINE],
    ) -> Statistics<'b> {
        // SAFETY: the caller's promise; the place is the number of a group.
        unsafe {
            if walk.inner.strides[KEPT] == 0 {
                let group = line.at[KEPT];
                return Statistics::Same { mean: self.mean.add(group).read(), inverse: self.inverse.add(group).read() };
            }
            self.kept(walk, line, self.mean, mean);
            self.kept(walk, line, self.inverse, inverse);
        }
        Statistics::Each { mean: &mean[..line.len], inverse: &inverse[..line.len] }
    }

    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the segment.
    unsafe fn store_sums(&self, walk: &Walk, block: usize, segment: usize, pairs: &Pairs) {
        let place = self.partial(walk, block, segment, 2);
        for lane in 0..walk.width() {
            // SAFETY: the scratch memory has two values for each group of each segment.
            unsafe {
                place.add(2 * lane).write(pairs.0[lane]);
                place.add(2 * lane + 1).write(pairs.1[lane]);
            }
        }
    }

    /// # Safety
    /// The sums of all segments of the block have been stored.
    unsafe fn joined_sums(&self, walk: &Walk, block: usize) -> Pairs {
        let mut pairs = Pairs([0.0; LANES], [0.0; LANES]);
        for segment in 0..walk.segments {
            let place = self.partial(walk, block, segment, 2);
            for lane in 0..walk.width() {
                // SAFETY: `store_sums` has written them.
                let [a, b] = unsafe { place.add(2 * lane).cast::<[f64; 2]>().read() };
                pairs.0[lane] += a;
                pairs.1[lane] += b;
            }
        }
        pairs
    }

    /// Keeps the averages of the gradient of the groups of a block, and writes the gradients of their scales.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else works on the block.
    unsafe fn finish_sums(&self, walk: &Walk, block: usize, pairs: &Pairs) {
        let line = walk.line(block, 0);
        let count = self.kernel.count as f64;
        for lane in 0..if walk.lanes { line.len } else { 1 } {
            let (a, b) = (pairs.0[lane], pairs.1[lane]);
            let group = line.at[KEPT] + lane * walk.inner.strides[KEPT];
            // SAFETY: the place is the number of a group; the rest is the caller's promise.
            unsafe {
                self.sums.add(group).write(if self.kernel.centered { a / count } else { 0.0 });
                self.sums.add(self.kernel.groups + group).write(b / count);
                if self.kernel.affine == Affine::PerGroup {
                    self.put(walk, Slot::Dbias, &line, lane, a);
                    self.put(walk, Slot::Dscale, &line, lane, b);
                }
            }
        }
    }

    /// Writes the gradients of scales that groups share.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], for the exchanged walk, and nobody else works on the block.
    unsafe fn finish_across(&self, walk: &Walk, block: usize, pairs: &Pairs) {
        let line = walk.line(block, 0);
        for lane in 0..if walk.lanes { line.len } else { 1 } {
            // SAFETY: the caller's promise.
            unsafe {
                self.put(walk, Slot::Dbias, &line, lane, pairs.0[lane]);
                self.put(walk, Slot::Dscale, &line, lane, pairs.1[lane]);
            }
        }
    }

    /// Computes and writes the result of a segment.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`]; mean, deviation and averages of the groups are settled, and nobody else works on
    /// the segment.
    unsafe fn apply(&self, walk: &Walk, block: usize, segment: usize, buffers: &mut Option<Buffers>) {
        for step in walk.steps_of(segment) {
            let line = walk.line(block, step);
            let len = line.len;
            // SAFETY: the caller's promise.
            if unsafe { self.apply_in_memory(walk, &line) } {
                continue;
            }
            let Buffers { x, dy, weight, factor, out, mean, inverse, averages: [a, b] } =
                buffers.get_or_insert_with(Buffers::new);
            // SAFETY: the caller's promise.
            let statistics = unsafe {
                self.load(walk, Slot::X, &line, x);
                self.statistics(walk, &line, mean, inverse)
            };
            let result = match self.kernel.task {
                Task::Forward => {
                    // SAFETY: the caller's promise.
                    unsafe {
                        self.load(walk, Slot::Scale, &line, weight);
                        self.load(walk, Slot::Bias, &line, dy);
                    }
                    line::apply(self.isa, &mut x[..len], statistics, &weight[..len], &dy[..len]);
                    &*x
                }
                Task::Backward => {
                    let scale = if self.kernel.affine == Affine::PerElement { &mut *weight } else { &mut *factor };
                    // SAFETY: the caller's promise.
                    unsafe {
                        self.load(walk, Slot::Scale, &line, scale);
                        self.load(walk, Slot::Dy, &line, dy);
                    }
                    let second = self.sums.wrapping_add(self.kernel.groups);
                    let averages = match statistics {
                        // SAFETY: the place is the number of a group.
                        Statistics::Same { .. } => unsafe {
                            let group = line.at[KEPT];
                            Averages::Same(self.sums.add(group).read(), second.add(group).read())
                        },
                        Statistics::Each { .. } => {
                            // SAFETY: the averages of all groups of the line are settled.
                            unsafe {
                                self.kept(walk, &line, self.sums, a);
                                self.kept(walk, &line, second, b);
                            }
                            Averages::Each(&a[..len], &b[..len])
                        }
                    };
                    let gradient = Gradient {
                        x: &x[..len],
                        dy: &dy[..len],
                        weight: &weight[..len],
                        factor: &factor[..len],
                        dx: &mut out[..len],
                    };
                    line::gradient(self.isa, gradient, statistics, averages);
                    &*out
                }
            };
            let i = Slot::Out as usize;
            if let Some(storage) = self.kernel.storage[i] {
                // SAFETY: the line lies within the view, which no other unit writes here.
                unsafe {
                    storage.store(self.isa, &result[..len], self.operands[i], line.at[i], walk.inner.strides[i]);
                }
            }
        }
    }
}
