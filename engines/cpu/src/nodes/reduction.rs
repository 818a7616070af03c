//! Reductions: elements combined along the dimensions in which the output has extent 1.
//!
//! Sums and products are kept in `f64`. A reduction to few elements is cut into parts of a fixed size, which are combined in
//! order: results do not depend on the number of threads.

use std::ops::Range;
use std::sync::Arc;

use hipdnn_cpu_kernels::extremes::{extreme, extremes_of_rows};
use hipdnn_cpu_kernels::sums::{self, ElementRows, add_rows};
use hipdnn_cpu_simd::isa::{Isa, Kernel as IsaKernel, Simd};
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::Declined;
use hipdnn_engine_core::ops::{NUMBERS_AND_FP8, reduction};
use hipdnn_schemas::{Graph, Reduction, ReductionMode, TensorUid};

use super::view::{TensorView, Walk};
use super::{LibraryKernel, LibraryOp, Recipe};
use crate::work::Work;
use hipdnn_cpu_pointwise::Storage;

/// Maximum number of outputs that are worked on together.
const COLUMNS: usize = 256;

/// Number of elements that are worth another thread: waking one costs as much as some ten thousand.
const WORTH: usize = 16 * 1024;

/// Number of elements of a row that are loaded at once, where they are not taken where they lie.
const ROW: usize = 512;

/// Maximum number of elements that are one piece of work: of a row, or of as many columns as are worked on together.
const PIECE: usize = 8 * 1024;

/// Number of elements of a part, where one output is made of several.
const PART: usize = 32 * 1024;

/// Maximum number of parts.
const MAX_PARTS: usize = 64;

/// Lowers a reduction.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &Reduction) -> Result<Work, Declined> {
    reduction::check(graph, index, node, NUMBERS_AND_FP8)?;
    Ok(Work::Node(work(graph, "reduction", node.mode, [node.input, node.output])))
}

/// Reduction of a tensor to another one, both of types of the table.
pub(super) fn work(
    graph: &Graph,
    name: &'static str,
    mode: ReductionMode,
    [input, output]: [TensorUid; 2],
) -> LibraryOp {
    let view = |uid| TensorView::of(graph.tensor(uid)).expect("the types of the table have a storage");
    let recipe = Arc::new(Reduce { mode, input: view(input), output: view(output) });
    LibraryOp { name, inputs: vec![Some(input)], outputs: vec![Some(output)], recipe }
}

/// A reduction: its mode, input and output.
#[derive(Debug)]
pub(super) struct Reduce {
    pub(super) mode: ReductionMode,
    pub(super) input: TensorView,
    /// Output, of as many dimensions as the input: those of extent 1 are reduced.
    pub(super) output: TensorView,
}

impl Recipe for Reduce {
    fn kernel(&self, _threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(Kernel::new(self))
    }
}

#[derive(Debug)]
struct Kernel {
    isa: Isa,
    fold: Fold,
    /// Divisor of a sum.
    divisor: f64,
    root: bool,
    from: Storage,
    to: Storage,
    /// The kept dimensions but the innermost, in the input and the output.
    kept: (Walk, Walk),
    /// The innermost kept dimension: extent, stride in the input and in the output.
    columns: (usize, usize, usize),
    /// Number of columns that are worked on together, and whether elements are read along them: those of a place in the
    /// reduced dimensions, which lie closer than those of a row.
    block: usize,
    along_columns: bool,
    /// The reduced dimensions but the innermost.
    reduced: Walk,
    /// The innermost reduced dimension: extent and stride.
    row: (usize, usize),
    /// Number of elements of a piece of a row but for the last, and of pieces of a row.
    piece: usize,
    pieces: usize,
    /// Number of pieces of a part, and of parts.
    pieces_of_part: usize,
    parts: usize,
}

impl Kernel {
    fn new(reduce: &Reduce) -> Kernel {
        let (input, output) = (&reduce.input, &reduce.output);
        let is_reduced = |axis: usize| output.dims[axis] == 1;
        let axes = 0..input.dims.len();
        let mut pairs: Vec<(usize, usize)> =
            axes.clone().filter(|a| is_reduced(*a)).map(|a| (input.dims[a], input.strides[a])).collect();
        // The order of a sum is free: memory's own is the fastest.
        pairs.retain(|(extent, _)| *extent > 1);
        pairs.sort_unstable_by_key(|(_, stride)| std::cmp::Reverse(*stride));
        let mut reduced = Walk::new(pairs);
        let count = reduced.len();
        let row = reduced.pop();
        let mut kept: Vec<usize> = axes.filter(|a| !is_reduced(*a)).collect();
        kept.sort_by_key(|a| std::cmp::Reverse(input.strides[*a]));
        let (outer, inner) = match kept.split_last() {
            Some((inner, outer)) => (outer, (input.dims[*inner], input.strides[*inner], output.strides[*inner])),
            None => (&[][..], (1, 0, 0)),
        };
        let walk = |view: &TensorView| Walk::apart(outer.iter().map(|a| (input.dims[*a], view.strides[*a])));
        let along_columns = row.0 == 1 || (inner.0 > 1 && inner.1 < row.1);
        let block = match along_columns {
            true => COLUMNS,
            false => (WORTH / (reduced.len() * row.0).max(1)).clamp(1, COLUMNS),
        };
        let together = if along_columns { inner.0.clamp(1, block) } else { 1 };
        let piece = PIECE.div_ceil(together);
        let pieces = row.0.div_ceil(piece);
        let all = reduced.len() * pieces;
        let kept = (walk(input), walk(output));
        let outputs = kept.0.len() * inner.0;
        // Where there are many outputs, each thread finds enough of them.
        let pieces_of_part = match outputs >= COLUMNS * 16 {
            true => all,
            false => (PART / (row.0.min(piece) * together)).max(all.div_ceil(MAX_PARTS)).max(1),
        };
        let (fold, divisor, root) = match reduce.mode {
            ReductionMode::Add => (Fold::Sum, 1.0, false),
            ReductionMode::Average => (Fold::Sum, count as f64, false),
            ReductionMode::Norm1 => (Fold::SumOfMagnitudes, 1.0, false),
            ReductionMode::Norm2 => (Fold::SumOfSquares, 1.0, true),
            ReductionMode::Mul => (Fold::Product, 1.0, false),
            ReductionMode::MulNoZeros => (Fold::ProductOfOthers, 1.0, false),
            ReductionMode::Min => (Fold::Least, 1.0, false),
            ReductionMode::Max => (Fold::Greatest, 1.0, false),
            ReductionMode::AbsMax => (Fold::GreatestMagnitude, 1.0, false),
            ReductionMode::Unset => unreachable!("a checked reduction has a mode"),
        };
        Kernel {
            isa: Isa::best(),
            fold,
            divisor,
            root,
            from: input.storage,
            to: output.storage,
            kept,
            columns: inner,
            block,
            along_columns,
            reduced,
            row,
            piece,
            pieces,
            pieces_of_part,
            parts: all.div_ceil(pieces_of_part),
        }
    }

    fn outputs(&self) -> usize {
        self.kept.0.len() * self.columns.0
    }

    fn all(&self) -> usize {
        self.reduced.len() * self.pieces
    }
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        if self.parts == 1 { 0 } else { self.parts * self.outputs() * size_of::<f64>() }
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let addresses = Addresses { input: inputs[0], output: outputs[0], parts: scratch.cast() };
        let addresses = &addresses;
        let chunks = self.columns.0.div_ceil(self.block);
        let blocks = self.kept.0.len() * chunks;
        let place = |block: usize| {
            let (outer, first) = (block / chunks, block % chunks * self.block);
            (outer, first, self.block.min(self.columns.0 - first))
        };
        // SAFETY: the block lies within the kept extents, for which the caller answers.
        let finish =
            |outer: usize, first: usize, sums: &mut [f64]| unsafe { self.finish(addresses, outer, first, sums) };
        if self.parts == 1 {
            let work = (self.block.min(self.columns.0) * self.reduced.len() * self.row.0).max(1);
            let group = (WORTH / work).max(1);
            pool.run(blocks.div_ceil(group), &|unit| {
                for block in unit * group..((unit + 1) * group).min(blocks) {
                    let (outer, first, len) = place(block);
                    let mut sums = [0f64; COLUMNS];
                    // SAFETY: the block lies within the kept extents, for which the caller answers; all pieces are
                    // summed.
                    unsafe { self.sum(addresses, outer, first, &mut sums[..len], 0..self.all()) };
                    finish(outer, first, &mut sums[..len]);
                }
            });
            return;
        }
        pool.run(blocks * self.parts, &|unit| {
            let (block, part) = (unit / self.parts, unit % self.parts);
            let (outer, first, len) = place(block);
            let pieces = part * self.pieces_of_part..((part + 1) * self.pieces_of_part).min(self.all());
            let mut sums = [0f64; COLUMNS];
            // SAFETY: the block lies within the kept extents; each block and part has its own place in the scratch
            // memory.
            unsafe {
                self.sum(addresses, outer, first, &mut sums[..len], pieces);
                let to = addresses.parts.add(part * self.outputs() + outer * self.columns.0 + first);
                to.copy_from_nonoverlapping(sums.as_ptr(), len);
            }
        });
        for block in 0..blocks {
            let (outer, first, len) = place(block);
            let mut sums = [0f64; COLUMNS];
            for part in 0..self.parts {
                let from = addresses.parts.wrapping_add(part * self.outputs() + outer * self.columns.0 + first);
                for (j, sum) in sums[..len].iter_mut().enumerate() {
                    // SAFETY: every part has been written.
                    let value = unsafe { from.add(j).read() };
                    *sum = if part == 0 { value } else { self.fold.join(*sum, value) };
                }
            }
            finish(outer, first, &mut sums[..len]);
        }
    }
}

/// Addresses of a run, shared with the threads that work on it.
struct Addresses {
    input: *const u8,
    output: *mut u8,
    parts: *mut f64,
}

// SAFETY: the input is only read; every output and every part is written by the one unit that computes it.
unsafe impl Sync for Addresses {}

impl Kernel {
    /// Combines the elements of these pieces for the columns from `first` on.
    ///
    /// # Safety
    /// The block lies within the kept dimensions and the pieces within the reduced ones; the input can be read.
    unsafe fn sum(&self, addresses: &Addresses, outer: usize, first: usize, sums: &mut [f64], pieces: Range<usize>) {
        let (_, step, _) = self.columns;
        let (extent, stride) = self.row;
        let base = self.kept.0.offset(outer) + first * step;
        sums.fill(self.fold.start());
        // Cleared once, if at all: rows may be much shorter.
        let mut room = None;
        // First element of a piece, and the range of its places in a row.
        let place = |piece: usize| {
            let start = piece % self.pieces * self.piece;
            (base + self.reduced.offset(piece / self.pieces), start..extent.min(start + self.piece))
        };
        let rows = |piece: usize| {
            let (base, places) = place(piece);
            let first = addresses.input.cast::<f32>().wrapping_add(base + places.start * stride);
            ElementRows { first, stride, count: places.len() }
        };
        match self.fold {
            Fold::Sum | Fold::SumOfSquares if self.along_columns && self.lies(step) => {
                for piece in pieces {
                    // SAFETY: the elements are those of the block in these places of the reduced dimensions.
                    unsafe { add_rows(self.isa, sums, rows(piece), self.fold == Fold::SumOfSquares) };
                }
                return;
            }
            Fold::Least | Fold::Greatest if self.along_columns && self.lies(step) => {
                let mut values = [self.fold.start() as f32; COLUMNS];
                let values = &mut values[..sums.len()];
                for piece in pieces {
                    // SAFETY: the elements are those of the block in these places of the reduced dimensions.
                    unsafe { extremes_of_rows(self.isa, values, rows(piece), self.fold == Fold::Greatest) };
                }
                return self.fold.columns(self.isa, sums, values);
            }
            _ => {}
        }
        for piece in pieces {
            let (base, Range { start, end }) = place(piece);
            if self.along_columns {
                for k in start..end {
                    // SAFETY: the elements are those of the block in one place of the reduced dimensions.
                    unsafe {
                        let values = self.load(addresses, base + k * stride, step, sums.len(), &mut room);
                        self.columns(sums, values);
                    }
                }
                continue;
            }
            let len = end - start;
            if self.lies(stride) && step == len && len > 0 {
                // Rows that follow each other.
                let from = addresses.input.cast::<f32>().wrapping_add(base + start * stride);
                // SAFETY: the elements are those of the block's columns; those of tensors are aligned, and nobody writes inputs.
                let values = unsafe { std::slice::from_raw_parts(from, sums.len() * len) };
                self.fold.rows(self.isa, sums, values);
                continue;
            }
            let most = if self.lies(stride) { self.piece } else { ROW };
            for (column, sum) in sums.iter_mut().enumerate() {
                for start in (start..end).step_by(most) {
                    let from = base + column * step + start * stride;
                    // SAFETY: the elements are those of the row from `start` on.
                    unsafe {
                        let values = self.load(addresses, from, stride, most.min(end - start), &mut room);
                        *sum = self.fold.join(*sum, self.row(values));
                    }
                }
            }
        }
    }

    /// True if elements of this stride are taken where they lie.
    fn lies(&self, stride: usize) -> bool {
        self.from == Storage::F32 && stride == 1
    }

    /// Reads elements: as `f32` where that has all their values. They are no more than [`ROW`], unless they are taken where
    /// they lie.
    ///
    /// # Safety
    /// The elements can be read.
    unsafe fn load<'r>(
        &self,
        addresses: &Addresses,
        offset: usize,
        stride: usize,
        len: usize,
        room: &'r mut Option<([f32; ROW], [f64; ROW])>,
    ) -> Elements<'r> {
        if self.lies(stride) {
            let from = addresses.input.cast::<f32>().wrapping_add(offset);
            // SAFETY: the caller's promise; elements of tensors are aligned, and nobody writes inputs.
            return Elements::Single(unsafe { std::slice::from_raw_parts(from, len) });
        }
        let room = room.get_or_insert_with(|| ([0.0; ROW], [0.0; ROW]));
        if self.from.is_single() {
            let values = &mut room.0[..len];
            // SAFETY: the caller's promise.
            unsafe { self.from.load(self.isa, addresses.input, offset, stride, values) };
            Elements::Single(values)
        } else {
            let values = &mut room.1[..len];
            // SAFETY: the caller's promise.
            unsafe { self.from.load_wide(addresses.input, offset, stride, values) };
            Elements::Wide(values)
        }
    }

    /// Combines each element into the sum beside it.
    fn columns(&self, sums: &mut [f64], values: Elements<'_>) {
        match values {
            Elements::Single(values) => self.fold.columns(self.isa, sums, values),
            Elements::Wide(values) => self.fold.columns(self.isa, sums, values),
        }
    }

    /// Combines a row.
    fn row(&self, values: Elements<'_>) -> f64 {
        match values {
            Elements::Single(values) => self.fold.row_of_singles(self.isa, values),
            Elements::Wide(values) => self.fold.row(self.isa, values),
        }
    }

    /// Writes the results of the columns from `first` on.
    ///
    /// # Safety
    /// The block lies within the kept dimensions; the output can be written and nobody else writes these.
    unsafe fn finish(&self, addresses: &Addresses, outer: usize, first: usize, sums: &mut [f64]) {
        for sum in sums.iter_mut() {
            *sum /= self.divisor;
            if self.root {
                *sum = sum.sqrt();
            }
        }
        let (_, _, step) = self.columns;
        // SAFETY: the caller's promise.
        unsafe { self.to.store_wide(sums, addresses.output, self.kept.1.offset(outer) + first * step, step) };
    }
}

/// Reduction operator. The minimum and the maximum of elements with a NaN among them is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    SumOfMagnitudes,
    SumOfSquares,
    Product,
    /// Product of elements that are not zero.
    ProductOfOthers,
    Least,
    Greatest,
    GreatestMagnitude,
}

/// Elements, in the type that they are widened to.
enum Elements<'a> {
    Single(&'a [f32]),
    Wide(&'a [f64]),
}

/// Number of sums that are kept side by side, so that they can be added as vectors.
const LANES: usize = 32;

/// Number of sums for the rest of a row.
const FEW_LANES: usize = 8;

impl Fold {
    /// Combines each value into the sum beside it.
    fn columns<V: Copy + Into<f64>>(self, isa: Isa, sums: &mut [f64], values: &[V]) {
        isa.run(Columns { fold: self, sums, values });
    }

    /// Combines a row of values that `f32` has: extremes are found without widening them.
    fn row_of_singles(self, isa: Isa, values: &[f32]) -> f64 {
        let mut result = [self.start()];
        if !values.is_empty() {
            isa.run(Rows { fold: self, sums: &mut result, values });
        }
        result[0]
    }

    /// Combines a row of values, in an order that follows from their number.
    fn row<V: Copy + Into<f64>>(self, isa: Isa, values: &[V]) -> f64 {
        isa.run(Row { fold: self, values })
    }

    /// Combines as many values of a row with each sum: first those of the first one. The order follows from their number.
    pub(crate) fn rows(self, isa: Isa, sums: &mut [f64], values: &[f32]) {
        if sums.len() == values.len() {
            self.columns(isa, sums, values);
        } else {
            isa.run(Rows { fold: self, sums, values });
        }
    }

    /// Identity of the operator.
    pub(crate) fn start(self) -> f64 {
        match self {
            Fold::Sum | Fold::SumOfMagnitudes | Fold::SumOfSquares | Fold::GreatestMagnitude => 0.0,
            Fold::Product | Fold::ProductOfOthers => 1.0,
            Fold::Least => f64::INFINITY,
            Fold::Greatest => f64::NEG_INFINITY,
        }
    }

    /// Combines two partial results.
    #[inline(always)]
    fn join(self, a: f64, b: f64) -> f64 {
        match self {
            Fold::Sum | Fold::SumOfMagnitudes | Fold::SumOfSquares => a + b,
            Fold::Product | Fold::ProductOfOthers => a * b,
            Fold::Least => least(a, b),
            Fold::Greatest | Fold::GreatestMagnitude => greatest(a, b),
        }
    }

    /// Runs loops with the operator's step, which folds an element into a partial result.
    #[inline(always)]
    fn run<L: Loops>(self, loops: L) -> L::Output {
        match self {
            Fold::Sum => loops.run(
                #[inline(always)]
                |s, v| s + v,
            ),
            Fold::SumOfMagnitudes => loops.run(
                #[inline(always)]
                |s, v| s + v.abs(),
            ),
            Fold::SumOfSquares => loops.run(
                #[inline(always)]
                |s, v| s + v * v,
            ),
            Fold::Product => loops.run(
                #[inline(always)]
                |s, v| s * v,
            ),
            Fold::ProductOfOthers => loops.run(
                #[inline(always)]
                |s, v| if v == 0.0 { s } else { s * v },
            ),
            Fold::Least => loops.run(least),
            Fold::Greatest => loops.run(greatest),
            Fold::GreatestMagnitude => loops.run(
                #[inline(always)]
                |s, v| greatest(s, v.abs()),
            ),
        }
    }
}

/// Loops that are compiled for each operator.
trait Loops {
    type Output;

    fn run(self, take: impl Fn(f64, f64) -> f64) -> Self::Output;
}

/// Combines each value into the sum beside it.
struct Columns<'a, V> {
    fold: Fold,
    sums: &'a mut [f64],
    values: &'a [V],
}

impl<V: Copy + Into<f64>> IsaKernel for Columns<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.fold.run(self);
    }
}

impl<V: Copy + Into<f64>> Loops for Columns<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self, take: impl Fn(f64, f64) -> f64) {
        for (sum, value) in self.sums.iter_mut().zip(self.values) {
            *sum = take(*sum, (*value).into());
        }
    }
}

/// Combines a row.
struct Row<'a, V> {
    fold: Fold,
    values: &'a [V],
}

impl<V: Copy + Into<f64>> IsaKernel for Row<'_, V> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f64 {
        self.fold.run(self)
    }
}

impl<V: Copy + Into<f64>> Loops for Row<'_, V> {
    type Output = f64;

    #[inline(always)]
    fn run(self, take: impl Fn(f64, f64) -> f64) -> f64 {
        let (whole, rest) = self.values.as_chunks::<LANES>();
        let mut sum = self.fold.start();
        let (few, rest) = rest.as_chunks::<FEW_LANES>();
        if !whole.is_empty() || !few.is_empty() {
            let mut lanes = [sum; LANES];
            for chunk in whole {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    *lane = take(*lane, (*value).into());
                }
            }
            for chunk in few {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    *lane = take(*lane, (*value).into());
                }
            }
            let mut len = LANES / 2;
            while len > 0 {
                for i in 0..len {
                    lanes[i] = self.fold.join(lanes[i], lanes[i + len]);
                }
                len /= 2;
            }
            sum = lanes[0];
        }
        for value in rest {
            sum = take(sum, (*value).into());
        }
        sum
    }
}

/// Combines the values of a row with its sum, of as many rows as there are sums.
struct Rows<'a> {
    fold: Fold,
    sums: &'a mut [f64],
    values: &'a [f32],
}

impl IsaKernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { fold, sums: results, values } = self;
        let len = values.len() / results.len();
        // Plain loops: what iterators call is compiled without the instruction set.
        for (sum, row) in results.iter_mut().zip(values.chunks_exact(len)) {
            *sum = match fold {
                Fold::Least => least(*sum, extreme::<S, false>(s, row).into()),
                Fold::Greatest => greatest(*sum, extreme::<S, true>(s, row).into()),
                Fold::Sum => *sum + sums::sum(s, row),
                Fold::SumOfSquares => *sum + sums::sum_of_squares(s, row),
                _ => fold.join(*sum, fold.run(Row { fold, values: row })),
            };
        }
    }
}

#[inline(always)]
fn least(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

#[inline(always)]
fn greatest(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_cpu_pointwise::Code;

    fn naive(mode: ReductionMode, values: &[f64]) -> f64 {
        let n = values.len() as f64;
        match mode {
            ReductionMode::Add => values.iter().sum(),
            ReductionMode::Average => values.iter().sum::<f64>() / n,
            ReductionMode::Mul => values.iter().product(),
            ReductionMode::MulNoZeros => values.iter().filter(|v| **v != 0.0).product(),
            ReductionMode::Min => values.iter().copied().reduce(f64::min).unwrap(),
            ReductionMode::Max => values.iter().copied().reduce(f64::max).unwrap(),
            ReductionMode::AbsMax => values.iter().map(|v| v.abs()).reduce(f64::max).unwrap(),
            ReductionMode::Norm1 => values.iter().map(|v| v.abs()).sum(),
            ReductionMode::Norm2 => values.iter().map(|v| v * v).sum::<f64>().sqrt(),
            ReductionMode::Unset => unreachable!(),
        }
    }

    fn run(reduce: &Reduce, pool: &Pool, input: *const u8, output: *mut u8) {
        let kernel = Kernel::new(reduce);
        let mut scratch = vec![0u64; kernel.scratch_bytes().div_ceil(8)];
        // SAFETY: the callers' memory is as large as the views.
        unsafe { kernel.run(pool, &[input], &[output], scratch.as_mut_ptr().cast()) };
    }

    #[test]
    fn every_mode_over_any_dimensions_is_what_a_loop_gives() {
        // (what, extents, strides of the input, extents of the output, strides of the output)
        type Case<'a> = (&'a str, &'a [usize], &'a [usize], &'a [usize], &'a [usize]);
        let cases: [Case<'_>; 9] = [
            ("everything", &[3, 5, 7], &[35, 7, 1], &[1, 1, 1], &[1, 1, 1]),
            ("rows", &[3, 5, 700], &[3500, 700, 1], &[3, 5, 1], &[5, 1, 1]),
            ("columns", &[9, 5, 300], &[1500, 300, 1], &[1, 5, 300], &[1500, 300, 1]),
            ("all but channels", &[4, 3, 5, 6], &[90, 30, 6, 1], &[1, 3, 1, 1], &[3, 1, 1, 1]),
            ("channels last", &[4, 3, 5, 6], &[90, 1, 18, 3], &[1, 3, 1, 1], &[3, 1, 1, 1]),
            ("the middle", &[4, 33, 5], &[165, 5, 1], &[4, 1, 5], &[5, 5, 1]),
            ("a slice, to a padded output", &[4, 6, 5], &[400, 30, 2], &[4, 1, 5], &[40, 40, 3]),
            ("nothing", &[4, 5], &[5, 1], &[4, 5], &[1, 4]),
            ("one element", &[1, 1], &[1, 1], &[1, 1], &[1, 1]),
        ];
        let modes = ReductionMode::ALL.iter().filter(|mode| **mode != ReductionMode::Unset);
        for (mode, (what, dims, strides, to, to_strides)) in modes.flat_map(|m| cases.map(|case| (*m, case))) {
            let input = TensorView { storage: Storage::F32, dims: dims.to_vec(), strides: strides.to_vec() };
            let output = TensorView { storage: Storage::F64, dims: to.to_vec(), strides: to_strides.to_vec() };
            let span = |d: &[usize], s: &[usize]| 1 + d.iter().zip(s).map(|(d, s)| (d - 1) * s).sum::<usize>();
            // Near 1, so that products stay in range, some zero and some negative.
            let memory: Vec<f32> = (0..span(dims, strides))
                .map(|i| [0.75, -1.25, 1.0, 0.0, 1.5][i * 7 % 11 % 5] + (i % 3) as f32 * 0.125)
                .collect();
            let walk = Walk::apart(dims.iter().copied().zip(strides.iter().copied()));
            let index = Walk::apart(to.iter().zip(to_strides).map(|(d, s)| (*d, *s)));
            let target = Walk::apart(
                dims.iter().zip(to.iter().zip(to_strides)).map(|(d, (t, s))| (*d, if *t == 1 { 0 } else { *s })),
            );
            let mut parts: std::collections::BTreeMap<usize, Vec<f64>> = Default::default();
            for n in 0..walk.len() {
                parts.entry(target.offset(n)).or_default().push(f64::from(memory[walk.offset(n)]));
            }
            for threads in [1, 3] {
                let mut got = vec![f64::NAN; span(to, to_strides)];
                let reduce = Reduce { mode, input: input.clone(), output: output.clone() };
                run(&reduce, &Pool::new(threads), memory.as_ptr().cast(), got.as_mut_ptr().cast());
                for n in 0..index.len() {
                    let at = index.offset(n);
                    let want = naive(mode, &parts[&at]);
                    // n roundings of half a unit in f64, of sums of magnitudes of at most 2 n.
                    let count = parts[&at].len() as f64;
                    let bound = count * f64::EPSILON * want.abs().max(2.0 * count);
                    assert!((got[at] - want).abs() <= bound, "{mode} {what}: {} for {want} at {at}", got[at]);
                    got[at] = f64::NAN;
                }
                assert!(got.iter().all(|v| v.is_nan()), "{mode} {what}: something was written between the elements");
            }
        }
    }

    #[test]
    fn large_reductions_are_cut_into_parts_whose_sum_is_exact() {
        let pool = Pool::new(3);
        for (what, dims, strides, to) in [
            ("one long row", [1, 1_000_003], [1_000_003, 1], [1, 1]),
            ("few columns", [300_007, 3], [3, 1], [1, 3]),
            ("a strided row", [2, 150_001], [1, 2], [2, 1]),
        ] {
            let input = TensorView { storage: Storage::I32, dims: dims.to_vec(), strides: strides.to_vec() };
            let output = TensorView { storage: Storage::I32, dims: to.to_vec(), strides: vec![to[1], 1] };
            let reduce = Reduce { mode: ReductionMode::Add, input, output };
            assert!(Kernel::new(&reduce).parts > 1, "{what}");
            let memory: Vec<i32> = (0..(dims[0] * dims[1]) as i32).map(|i| i % 1001 - 300).collect();
            let mut got = vec![0i32; to[0] * to[1]];
            run(&reduce, &pool, memory.as_ptr().cast(), got.as_mut_ptr().cast());
            let mut want = vec![0i32; to[0] * to[1]];
            for i in 0..dims[0] {
                for j in 0..dims[1] {
                    want[i % to[0] * to[1] + j % to[1]] += memory[i * strides[0] + j * strides[1]];
                }
            }
            assert_eq!(got, want, "{what}");
        }
    }

    #[test]
    fn nan_is_the_result_and_infinities_are_values() {
        let pool = Pool::new(1);
        let view = |dims: &[usize]| TensorView { storage: Storage::F32, dims: dims.to_vec(), strides: vec![1] };
        for (mode, values, want) in [
            (ReductionMode::Max, [1.0, f32::NAN, 3.0], f32::NAN),
            (ReductionMode::Min, [f32::NAN, 2.0, 3.0], f32::NAN),
            (ReductionMode::AbsMax, [1.0, 2.0, f32::NAN], f32::NAN),
            (ReductionMode::Max, [1.0, f32::NEG_INFINITY, 3.0], 3.0),
            (ReductionMode::Min, [f32::INFINITY; 3], f32::INFINITY),
            (ReductionMode::Max, [f32::NEG_INFINITY; 3], f32::NEG_INFINITY),
            (ReductionMode::Add, [f32::MAX, f32::MAX, -f32::MAX], f32::MAX),
            (ReductionMode::Norm2, [3e30, 4e30, 0.0], 5e30),
            (ReductionMode::MulNoZeros, [0.0, -0.0, 0.0], 1.0),
        ] {
            let mut got = 0f32;
            let reduce = Reduce { mode, input: view(&[3]), output: view(&[1]) };
            run(&reduce, &pool, values.as_ptr().cast(), (&raw mut got).cast());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{mode} of {values:?}: {got}");
        }
    }

    #[test]
    fn narrow_numbers_are_summed_exactly_and_rounded_once() {
        let pool = Pool::new(1);
        let view =
            |code, dims: &[usize]| TensorView { storage: Storage::Code(code), dims: dims.to_vec(), strides: vec![1] };
        for (from, to, codes, want) in [
            // 1, 1, 0.0625 in steps of 2⁻³ at 2: the last is dropped only once.
            (Code::E4M3, Code::E4M3, [0x38u8, 0x38, 0x18], 0x40u8),
            // 448 + 448 - 0.5 saturates.
            (Code::E4M3, Code::E4M3, [0x7E, 0x7E, 0xB0], 0x7E),
            // 448 + 448 + 1 is 896 in E5M2.
            (Code::E4M3, Code::E5M2, [0x7E, 0x7E, 0x38], 0x63),
            (Code::E5M2, Code::E5M2, [0x7C, 0x3C, 0x3C], 0x7B),
            (Code::E5M2Fnuz, Code::E4M3Fnuz, [0x80, 0x3C, 0x3C], 0x80),
        ] {
            let mut got = 0u8;
            let reduce = Reduce { mode: ReductionMode::Add, input: view(from, &[3]), output: view(to, &[1]) };
            run(&reduce, &pool, codes.as_ptr(), &raw mut got);
            assert_eq!(got, want, "{from:?} {codes:x?} to {to:?}: {got:#x}");
        }
    }
}
