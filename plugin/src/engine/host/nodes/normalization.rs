//! Normalisation of groups of elements: what batch, layer and RMS normalisation have in common.
//!
//! The dimensions of `x` are of two kinds. The *kept* ones number the groups, each of which has one mean and one deviation;
//! the *reduced* ones number the elements of a group. Batch normalisation keeps the channels, layer and RMS normalisation
//! keep the leading dimensions. Every operand is a view along these dimensions: its stride is 0 where it repeats, so that
//! a scale for each channel and a scale for each element of a row are the same to the code.
//!
//! Memory is walked in *lines*, runs along the dimension of `x` with the smallest stride. Where that is a reduced
//! dimension a line lies within a group; where it is a kept one (channels last), neighbours of a line belong to
//! neighbouring groups. The lines of a group or of such a set of groups are a *block*, and long blocks are cut into
//! *segments*, whose sums are joined. What is cut where depends on the shape alone: results are the same on any number of
//! threads.
//!
//! Between load and store everything is computed in `f64`. Sums of squares are taken around a value of the data or around
//! the mean of a line and joined by the update formula of Chan, Golub and LeVeque, so that a large mean costs no digits.

mod line;

use super::super::isa::Isa;
use super::super::pointwise::{Storage, View};
use super::super::threads::Pool;
use line::{Around, Statistics};

/// Elements of a line within a group.
const ROW: usize = 512;

/// Elements of a line across groups.
const LANES: usize = 128;

/// Lines across groups whose sums are taken around one value: the error of their squares grows with the square of this.
const AROUND: usize = 1024;

/// Elements of a segment, about.
const SEGMENT: usize = 64 * 1024;

/// With so many blocks nothing is cut: a block that one thread goes through several times stays in its cache.
const MANY: usize = 64;

/// Elements below which waking another thread costs more than it saves.
const PER_UNIT: usize = 16 * 1024;

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

/// The mean and deviation that the kernel keeps for each group lie along the dimensions like an operand.
const KEPT: usize = SLOTS;

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

/// A normalisation.
#[derive(Clone, Debug)]
pub struct Normalization {
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
    /// Where operands lie, by [`Slot`].
    pub views: [Option<View>; SLOTS],
    /// What stands for epsilon.
    pub epsilon: Scalar,
    /// What stands for the momentum of running statistics.
    pub momentum: Scalar,
}

/// A number that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Known when the plan is built.
    Fixed(f64),
    /// Read when it runs.
    Read(ScalarType),
}

/// The types of scalars that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum ScalarType {
    F32,
    F16,
    BF16,
    F64,
}

impl Scalar {
    /// The number.
    ///
    /// # Safety
    /// If it is to be read, `address` has a readable, aligned value of its type.
    unsafe fn get(self, address: *const u8) -> f64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Scalar::Fixed(value) => value,
                Scalar::Read(ScalarType::F32) => f64::from(address.cast::<f32>().read()),
                Scalar::Read(ScalarType::F16) => address.cast::<half::f16>().read().to_f64(),
                Scalar::Read(ScalarType::BF16) => address.cast::<half::bf16>().read().to_f64(),
                Scalar::Read(ScalarType::F64) => address.cast::<f64>().read(),
            }
        }
    }
}

/// The memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The operands, by [`Slot`]; null where there is none.
    pub operands: [*mut u8; SLOTS],
    /// Epsilon, if it is read.
    pub epsilon: *const u8,
    /// The momentum, if it is read.
    pub momentum: *const u8,
    /// [`NormalizationKernel::scratch_bytes`] bytes, a multiple of 8.
    pub scratch: *mut u8,
}

/// A [`Normalization`] ready to run.
#[derive(Clone, Debug)]
pub struct NormalizationKernel {
    task: Task,
    affine: Affine,
    centred: bool,
    storage: [Option<Storage>; SLOTS],
    epsilon: Scalar,
    momentum: Scalar,
    /// Number of groups.
    groups: usize,
    /// Number of elements of a group.
    count: usize,
    walk: Walk,
    /// The walk with the kinds of dimensions exchanged, for gradients of a scale that is shared by groups.
    across: Option<Walk>,
}

/// A dimension: how many places there are, and how far apart for each operand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dim {
    extent: usize,
    strides: Places,
}

/// A distance or an offset for each operand, in its elements.
type Places = [usize; SLOTS + 1];

/// The lines of a tensor.
#[derive(Clone, Debug)]
struct Walk {
    /// Dimensions that number blocks, and those that number the lines of a block; outermost first.
    blocks: Vec<Dim>,
    steps: Vec<Dim>,
    /// The dimension that lines run along.
    inner: Dim,
    /// Whether a line goes across groups.
    lanes: bool,
    /// Elements of a line at most.
    most: usize,
    /// Into how many segments a block is cut.
    segments: usize,
}

/// A line: where it begins for each operand, and its length.
#[derive(Clone, Copy, Debug)]
struct Line {
    at: Places,
    len: usize,
}

impl Walk {
    fn new(dims: &[Dim], reduced: &[bool]) -> Walk {
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
        let most = if lanes { LANES } else { ROW };
        let mut walk = Walk { blocks: kept, steps: reduced, inner, lanes, most, segments: 1 };
        if walk.block_count() < MANY {
            walk.segments = (walk.step_count() * walk.inner.extent.min(most)).div_ceil(SEGMENT).min(walk.step_count());
        }
        walk
    }

    /// Lines that lie behind each other along the inner dimension.
    fn pieces(&self) -> usize {
        self.inner.extent.div_ceil(self.most)
    }

    fn block_count(&self) -> usize {
        self.blocks.iter().map(|d| d.extent).product::<usize>() * if self.lanes { self.pieces() } else { 1 }
    }

    fn step_count(&self) -> usize {
        self.steps.iter().map(|d| d.extent).product::<usize>() * if self.lanes { 1 } else { self.pieces() }
    }

    /// Sums that a block keeps at once.
    fn width(&self) -> usize {
        if self.lanes { self.most.min(self.inner.extent) } else { 1 }
    }

    /// The line of a block's step.
    fn line(&self, block: usize, step: usize) -> Line {
        let pieces = self.pieces();
        let (block, step, piece) =
            if self.lanes { (block / pieces, step, block % pieces) } else { (block, step / pieces, step % pieces) };
        let start = piece * self.most;
        let mut at = [0; SLOTS + 1];
        advance(&mut at, &self.blocks, block);
        advance(&mut at, &self.steps, step);
        for (at, stride) in at.iter_mut().zip(&self.inner.strides) {
            *at += start * stride;
        }
        Line { at, len: self.most.min(self.inner.extent - start) }
    }

    /// The steps of a segment.
    fn steps_of(&self, segment: usize) -> std::ops::Range<usize> {
        let steps = self.step_count();
        steps * segment / self.segments..steps * (segment + 1) / self.segments
    }

    /// How many `f64` values the sums of all segments take, `each` for one sum.
    fn partial_len(&self, each: usize) -> usize {
        if self.segments == 1 { 0 } else { self.block_count() * self.segments * self.width() * each }
    }

    /// How many blocks a thread takes at once, if it takes whole ones.
    fn blocks_per_unit(&self) -> usize {
        (PER_UNIT / (self.step_count() * self.inner.extent.min(self.most)).max(1)).max(1)
    }
}

/// Adds the places of an index within dimensions.
fn advance(at: &mut Places, dims: &[Dim], mut index: usize) {
    for dim in dims.iter().rev() {
        let i = index % dim.extent;
        index /= dim.extent;
        for (at, stride) in at.iter_mut().zip(&dim.strides) {
            *at += i * stride;
        }
    }
}

/// Makes one dimension of neighbours that every operand steps through without a gap.
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
    /// Prepares a normalisation.
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
        NormalizationKernel {
            task: work.task,
            affine: work.affine,
            centred: work.centred,
            storage: std::array::from_fn(|i| work.views[i].as_ref().map(|view| view.storage)),
            epsilon: work.epsilon,
            momentum: work.momentum,
            groups,
            count,
            walk: Walk::new(&dims, &work.reduced),
            across: across.then(|| Walk::new(&dims, &exchanged)),
        }
    }

    /// Bytes of memory that a run works in, aligned for `f64`.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_len() * size_of::<f64>()
    }

    /// The moments of each group, its sums for the gradient, and the sums of segments, which are used one after the other.
    fn scratch_len(&self) -> usize {
        let across = self.across.as_ref().map_or(0, |walk| walk.partial_len(2));
        let sums = if self.task == Task::Backward { 2 } else { 0 };
        self.groups * (2 + sums) + self.walk.partial_len(3).max(across)
    }

    /// Normalises.
    ///
    /// # Safety
    /// Each operand that has a view has memory of that view: aligned for its storage, readable, for results writable and
    /// used by nobody else. `out` may be `x` or `dy` where their views are the same; no other operands overlap results.
    /// Scalars that are read and the scratch memory are there as [`Memory`] says.
    pub unsafe fn run(&self, isa: Isa, pool: &Pool, memory: &Memory) {
        // SAFETY: the caller's promise about scalars.
        let (epsilon, momentum) = unsafe { (self.epsilon.get(memory.epsilon), self.momentum.get(memory.momentum)) };
        let scratch = memory.scratch.cast::<f64>();
        let run = &Run {
            kernel: self,
            isa,
            operands: memory.operands,
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
                for block in unit * per_unit..((unit + 1) * per_unit).min(blocks) {
                    // SAFETY: the caller's promise; no other unit has this block.
                    unsafe { run.whole(walk, block) };
                }
            });
        } else {
            let units = blocks * walk.segments;
            let each = |unit: usize| (unit / walk.segments, unit % walk.segments);
            if !run.given() {
                pool.run(units, &|unit| {
                    let (block, segment) = each(unit);
                    // SAFETY: as above; no other unit has this segment of the block.
                    unsafe { run.store_moments(walk, block, segment, &run.moments(walk, block, segment)) };
                });
            }
            // SAFETY: as above; the sums of segments are complete.
            pool.run(blocks, &|block| unsafe { run.finish_moments(walk, block, &run.joined_moments(walk, block)) });
            if self.task == Task::Backward {
                pool.run(units, &|unit| {
                    let (block, segment) = each(unit);
                    // SAFETY: as above; the moments of groups are complete.
                    unsafe { run.store_sums(walk, block, segment, &run.gradient_sums(walk, block, segment)) };
                });
                // SAFETY: as above; the sums of segments are complete.
                pool.run(blocks, &|block| unsafe { run.finish_sums(walk, block, &run.joined_sums(walk, block)) });
            }
            pool.run(units, &|unit| {
                let (block, segment) = each(unit);
                // SAFETY: as above; moments and sums of groups are complete.
                unsafe { run.apply(walk, block, segment) };
            });
        }
        let Some(walk) = &self.across else { return };
        let blocks = walk.block_count();
        if walk.segments == 1 {
            let per_unit = walk.blocks_per_unit();
            pool.run(blocks.div_ceil(per_unit), &|unit| {
                for block in unit * per_unit..((unit + 1) * per_unit).min(blocks) {
                    // SAFETY: as above; the moments of groups are complete.
                    unsafe { run.finish_across(walk, block, &run.across_sums(walk, block, 0)) };
                }
            });
        } else {
            pool.run(blocks * walk.segments, &|unit| {
                let (block, segment) = (unit / walk.segments, unit % walk.segments);
                // SAFETY: as above.
                unsafe { run.store_sums(walk, block, segment, &run.across_sums(walk, block, segment)) };
            });
            // SAFETY: as above; the sums of segments are complete.
            pool.run(blocks, &|block| unsafe { run.finish_across(walk, block, &run.joined_sums(walk, block)) });
        }
    }
}
