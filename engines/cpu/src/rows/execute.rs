//! Execution of kernels in rows: blocks of groups on threads.

use std::sync::Arc;

use hipdnn_cpu_kernels::activation::{Operand, Row, falling_exponential_row, falling_exponential_sums};
use hipdnn_cpu_kernels::normalize::{Steps, normalize_row};
use hipdnn_cpu_kernels::softmax::{self, softmax_rows};
use hipdnn_cpu_kernels::sums::add_squares_from;
use hipdnn_cpu_simd::scratch::lines;
use hipdnn_cpu_threads::Pool;

use super::Rows;
use super::compile::{At, Chunk, MAX_VIEWS, Move, Pass, Softmax};
use super::nest::{Path, offset};
use super::values::Turns;
use crate::nodes::LibraryKernel;
use hipdnn_cpu_pointwise::{Placement, Value, copy};

/// Number of elements that are worth waking another thread for.
const PER_UNIT: usize = 8 * 1024;

/// A kernel for a number of threads, with the layout of a thread's scratch memory.
#[derive(Debug)]
pub(super) struct Kernel {
    rows: Arc<Rows>,
    workers: usize,
    /// Number of places in the loops of the members but for that of the lanes.
    points: usize,
    /// Bytes of the rows of members, of the rows of groups, of what passes leave behind, and of what is kept.
    bytes: [usize; 4],
    blocks_per_unit: usize,
}

impl Kernel {
    pub(super) fn new(rows: Arc<Rows>, workers: usize) -> Kernel {
        let (compiled, chunk) = (&rows.compiled, rows.compiled.chunk);
        let points = rows.nest.members.iter().product::<usize>();
        let of_block = points * chunk.together * rows.nest.lanes;
        let [of_members, of_groups] = compiled.rows;
        let bytes = [
            lines(of_members * chunk.elements() * size_of::<f32>()),
            lines(of_groups * chunk.together * size_of::<f64>()),
            lines(rows.left * chunk.together * size_of::<f64>()),
            lines(compiled.kept * of_block * size_of::<f32>()),
        ];
        Kernel { workers, points, bytes, blocks_per_unit: (PER_UNIT / of_block).max(1), rows }
    }
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.workers * self.bytes.iter().sum::<usize>()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let addresses = Addresses { inputs, outputs, scratch };
        // The whole value moves into the closure, so that its promise about threads is what is checked.
        let addresses = &addresses;
        let blocks = self.rows.blocks();
        pool.run_indexed(blocks.div_ceil(self.blocks_per_unit), self.workers, &|worker, unit| {
            let first = unit * self.blocks_per_unit;
            for number in first..(first + self.blocks_per_unit).min(blocks) {
                let block = Block::new(self, addresses, worker, number);
                // SAFETY: blocks are within the loops, for which the caller answers, and no other call has this worker's
                // scratch memory, nor writes elements of this block's groups.
                unsafe { block.run() };
            }
        });
    }
}

/// Addresses of a run, shared with the threads that work on it.
struct Addresses<'a> {
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
    scratch: *mut u8,
}

// SAFETY: inputs are only read, each element of an output is written by the one block that has its group, and each worker has
// a part of the scratch memory of its own.
unsafe impl Sync for Addresses<'_> {}

/// Groups that are worked on together.
struct Block<'a> {
    kernel: &'a Kernel,
    rows: &'a Rows,
    addresses: &'a Addresses<'a>,
    /// Number of groups.
    groups: usize,
    /// Offset of the block's first element in each view.
    offsets: [usize; MAX_VIEWS],
    of_members: *mut f32,
    of_groups: *mut f64,
    left: *mut f64,
    kept: *mut f32,
}

/// Part of the groups that is worked on: a place in the loops of the members, and lanes of all groups there.
#[derive(Clone, Copy)]
struct Part {
    point: usize,
    start: usize,
    lanes: usize,
}

/// Rows of a type, and the elements between two of them.
#[derive(Clone, Copy)]
struct Base<T> {
    rows: *mut T,
    pitch: usize,
}

impl<'a> Block<'a> {
    fn new(kernel: &'a Kernel, addresses: &'a Addresses<'a>, worker: usize, number: usize) -> Block<'a> {
        let rows = &*kernel.rows;
        let (nest, together) = (&rows.nest, rows.compiled.chunk.together);
        let blocks = nest.inner.div_ceil(together);
        let (outer, first) = (number / blocks, number % blocks * together);
        let mut offsets = [0; MAX_VIEWS];
        for (to, path) in offsets.iter_mut().zip(&nest.paths) {
            *to = path.offset + offset(&nest.groups, &path.groups, outer) + first * path.inner;
        }
        let [of_members, of_groups, left, _] = kernel.bytes;
        let scratch = addresses.scratch.wrapping_add(worker * kernel.bytes.iter().sum::<usize>());
        let at = |bytes: usize| scratch.wrapping_add(bytes);
        Block {
            kernel,
            rows,
            addresses,
            groups: together.min(nest.inner - first),
            offsets,
            of_members: at(0).cast(),
            of_groups: at(of_members).cast(),
            left: at(of_members + of_groups).cast(),
            kept: at(of_members + of_groups + left).cast(),
        }
    }

    /// Computes the groups.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`]; nobody else uses the worker's scratch memory or writes elements of these groups.
    unsafe fn run(&self) {
        if let Some(softmax) = self.rows.compiled.softmax {
            // SAFETY: the caller's promise.
            return unsafe { self.softmax(softmax) };
        }
        let (all, chunk) = (self.rows.nest.lanes, self.rows.compiled.chunk);
        for pass in &self.rows.compiled.passes {
            // SAFETY: the caller's promise for all members of the groups.
            unsafe {
                if pass.turns == Turns::PerGroup {
                    self.once(pass);
                    continue;
                }
                for (fold, _, left) in &pass.folds {
                    self.left(*left).fill(fold.start());
                }
                let base = Base { rows: self.of_members, pitch: chunk.elements() };
                self.compute(&pass.before, base, Part { point: 0, start: 0, lanes: 1 });
                for point in 0..self.kernel.points {
                    for start in (0..all).step_by(chunk.lanes) {
                        self.members(pass, base, Part { point, start, lanes: chunk.lanes.min(all - start) });
                    }
                }
            }
        }
    }

    /// Computes the groups of a softmax.
    ///
    /// # Safety
    /// As [`Block::run`].
    unsafe fn softmax(&self, Softmax { from, to }: Softmax) {
        let nest = &self.rows.nest;
        let (len, pitch) = (nest.lanes, [from, to].map(|view| nest.paths[view].inner));
        let base = Base { rows: self.of_members, pitch: self.rows.compiled.chunk.elements() };
        let part = Part { point: 0, start: 0, lanes: len };
        // SAFETY: the members of a group lie side by side in both tensors, and the caller vouches for the groups.
        unsafe {
            let (from, to) = (self.at(At::Memory(from), base, part), self.place(At::Output(to), base, part));
            softmax_rows(self.rows.isa, softmax::Rows { from, to, len, count: self.groups, pitch });
        }
    }

    /// Computes a pass for a part of the groups.
    ///
    /// # Safety
    /// As [`Block::run`], for that part.
    unsafe fn members(&self, pass: &Pass, base: Base<f32>, part: Part) {
        // SAFETY: the caller's promise; rows of values are not written while they are folded and stored.
        unsafe {
            self.compute(&pass.body, base, part);
            for (fold, at, left) in &pass.folds {
                if let Some(at) = at {
                    let row = std::slice::from_raw_parts(self.at(*at, base, part), self.len(part));
                    fold.rows(self.rows.isa, self.left(*left), row);
                }
            }
            for (at, view) in &pass.stores {
                let row = std::slice::from_raw_parts(self.at(*at, base, part), self.len(part));
                self.store(*view, row, part);
            }
        }
    }

    /// Number of elements of a part of a row.
    fn len(&self, part: Part) -> usize {
        self.groups * part.lanes
    }

    /// Computes a pass once for each group.
    ///
    /// # Safety
    /// As [`Block::run`].
    unsafe fn once(&self, pass: &Pass) {
        let base = Base { rows: self.of_groups, pitch: self.rows.compiled.chunk.together };
        let part = Part { point: 0, start: 0, lanes: 1 };
        // SAFETY: the caller's promise; rows of values are not written while they are kept and stored.
        unsafe {
            self.compute(&pass.before, base, part);
            for (at, left) in &pass.keep {
                let row = std::slice::from_raw_parts(self.at(*at, base, part), self.len(part));
                self.left(*left).copy_from_slice(row);
            }
            for (at, view) in &pass.stores {
                let row = std::slice::from_raw_parts(self.at(*at, base, part), self.len(part));
                self.store(*view, row, part);
            }
        }
    }

    /// Values that a pass leaves behind.
    ///
    /// # Safety
    /// Nothing else refers to them, and they are not used behind the block's run.
    unsafe fn left<'s>(&self, left: usize) -> &'s mut [f64] {
        // SAFETY: the worker's scratch memory has a row for each of these values, which nobody else uses.
        unsafe { std::slice::from_raw_parts_mut(self.left.add(left * self.rows.compiled.chunk.together), self.groups) }
    }

    /// Address of a part of a row of values.
    ///
    /// # Safety
    /// As [`Block::run`], for that part; `T` is `f32` for what is kept or in memory.
    unsafe fn at<T>(&self, at: At, base: Base<T>, part: Part) -> *const T {
        // SAFETY: rows are as many as the program has, kept values have a place for each member, and elements of a view are
        // within its tensor.
        unsafe {
            match at {
                At::Row(row) | At::Same(row) => base.rows.add(row * base.pitch).cast_const(),
                At::Kept(kept) => self.kept(kept, part).cast_const().cast(),
                At::Memory(view) | At::Shared(view) => {
                    let tensor = self.addresses.inputs[self.rows.views[view].tensor];
                    tensor.cast::<f32>().add(self.offset(view, part)).cast()
                }
                At::Output(_) => self.place(at, base, part).cast_const(),
            }
        }
    }

    /// Address of a part of a row that is written.
    fn place<T>(&self, at: At, base: Base<T>, part: Part) -> *mut T {
        match at {
            At::Row(row) => base.rows.wrapping_add(row * base.pitch),
            At::Kept(kept) => self.kept(kept, part).cast(),
            At::Output(view) => {
                let tensor = self.addresses.outputs[self.rows.views[view].tensor];
                tensor.cast::<f32>().wrapping_add(self.offset(view, part)).cast()
            }
            At::Memory(_) | At::Shared(_) | At::Same(_) => unreachable!("results are written to rows and outputs"),
        }
    }

    /// Address of kept values.
    fn kept(&self, kept: usize, part: Part) -> *mut f32 {
        let of_point = self.rows.compiled.chunk.together * self.rows.nest.lanes;
        self.kept.wrapping_add((kept * self.kernel.points + part.point) * of_point + part.start)
    }

    /// Offset of a part's first element in a view.
    fn offset(&self, view: usize, part: Part) -> usize {
        let (nest, path) = (&self.rows.nest, &self.rows.nest.paths[view]);
        self.offsets[view] + offset(&nest.members, &path.members, part.point) + part.start * path.lane
    }

    /// Writes values of a part.
    ///
    /// # Safety
    /// As [`Block::run`], for that part.
    unsafe fn store<T: Value>(&self, view: usize, values: &[T], part: Part) {
        let (offset, path) = (self.offset(view, part), &self.rows.nest.paths[view]);
        let view = &self.rows.views[view];
        let to = self.addresses.outputs[view.tensor];
        let isa = self.rows.isa;
        // SAFETY: the elements are those of a part of the loops, which are within the tensor, aligned for its type; blocks
        // and parts have different ones.
        unsafe {
            match self.stride(path, part) {
                Some(stride) => T::store(view.storage, isa, values, to, offset, stride),
                None => {
                    for (group, values) in values.chunks_exact(part.lanes).enumerate() {
                        T::store(view.storage, isa, values, to, offset + group * path.inner, path.lane);
                    }
                }
            }
        }
    }

    /// Reads elements of a part.
    ///
    /// # Safety
    /// As [`Block::run`], for that part.
    unsafe fn load<T: Value>(&self, view: usize, values: &mut [T], part: Part) {
        let (offset, path) = (self.offset(view, part), &self.rows.nest.paths[view]);
        let view = &self.rows.views[view];
        let from = self.addresses.inputs[view.tensor];
        let isa = self.rows.isa;
        // SAFETY: the elements are those of a part of the loops, which are within the tensor, aligned for its type.
        unsafe {
            match self.stride(path, part) {
                Some(stride) => T::load(view.storage, isa, from, offset, stride, values),
                None if path.lane == 0 => {
                    T::load(view.storage, isa, from, offset, path.inner, &mut values[..self.groups]);
                    spread(values, part.lanes);
                }
                None => {
                    for (group, values) in values.chunks_exact_mut(part.lanes).enumerate() {
                        T::load(view.storage, isa, from, offset + group * path.inner, path.lane, values);
                    }
                }
            }
        }
    }

    /// Stride of a part's elements along a path; `None` if they lie in no one distance from each other.
    fn stride(&self, path: &Path, part: Part) -> Option<usize> {
        Chunk { together: self.groups, lanes: part.lanes }.stride(path)
    }

    /// Runs instructions on a part.
    ///
    /// # Safety
    /// As [`Block::run`], for that part; `T` is `f32` for passes over members.
    unsafe fn compute<T: Value>(&self, moves: &[Move], base: Base<T>, part: Part) {
        let (isa, len) = (self.rows.isa, self.len(part));
        // SAFETY: rows are as many as the program has, each as long as a part; nothing refers to the row that is written.
        let row = |row: usize| unsafe { std::slice::from_raw_parts_mut(base.rows.add(row * base.pitch), len) };
        // SAFETY: `at` gives places of `len` elements in rows and tensors; compiled programs write no row that is an operand of
        // the same instruction.
        let read = |at: At| unsafe { std::slice::from_raw_parts(self.at(at, base, part), len) };
        for step in moves {
            match step {
                // SAFETY: the caller's promise.
                Move::Load { view, to } => unsafe { self.load(*view, row(*to), part) },
                Move::Number { number, to } => row(*to).fill(T::from_wide(*number)),
                Move::Carried { left, to } => {
                    // SAFETY: what passes leave behind is not written while another one reads it.
                    let left = unsafe { self.left(*left) };
                    T::repeat(isa, left, row(*to));
                }
                Move::Copy { from, to } => copy(read(*from), row(*to)),
                Move::Apply { function, operands, to, single } => {
                    let to = self.place(*to, base, part);
                    // SAFETY: places of operands are within the rows and tensors; the one that is written is an operand's
                    // own, if the function goes from rows to rows or the operand is its first, or none.
                    unsafe {
                        let [a, b, c] = operands.map(|operand| operand.map(|at| self.at(at, base, part)));
                        let first = a.unwrap_or(to.cast_const());
                        let operand = |which: usize, from| {
                            (from, operands[which].map_or(Placement::Row, |at| placement(at, part)))
                        };
                        let both = [operand(0, first), operand(1, b.unwrap_or(first))];
                        if T::apply_row(function, isa, to, both, len) {
                            continue;
                        }
                        let slice = |from: *const T| std::slice::from_raw_parts(from, len);
                        let row = std::slice::from_raw_parts_mut(to, len);
                        if !std::ptr::eq(first, to) {
                            copy(slice(first), row);
                        }
                        let apply = if *single { T::apply_single } else { T::apply };
                        apply(function, isa, row, b.map_or(&[], slice), c.map_or(&[], slice));
                    }
                }
                Move::Falling { operands: [x, y], to } => {
                    // SAFETY: such instructions are of passes over members, whose rows are `f32`; places are within the
                    // rows and tensors, and the one that is written is an operand's own or none.
                    unsafe {
                        let [from, falling] = [x, y].map(|at| self.at::<T>(*at, base, part).cast::<f32>());
                        let to = self.place(*to, base, part).cast();
                        falling_exponential_row(isa, Row { from, to, len }, placement(*y, part).operand(falling));
                    }
                }
                Move::FallingSum { operands: [x, y], to, left } => {
                    // SAFETY: rows of members are `f32` and have `len` places within their tensors; `y` has an element for
                    // each group, and what is left behind for each is nothing else's.
                    unsafe {
                        let [from, falling] = [x, y].map(|at| self.at::<T>(*at, base, part).cast::<f32>());
                        let to = self.place(*to, base, part).cast();
                        falling_exponential_sums(isa, Row { from, to, len }, falling, self.left(*left));
                    }
                }
                Move::Normalize { x, less, factor, divides, scale, summand, to } => {
                    let operand = |at: Option<At>, none: f32| match at {
                        // SAFETY: an operand has so many elements in `f32` as its placement says.
                        Some(at) => unsafe { placement(at, part).operand(self.at::<T>(at, base, part).cast()) },
                        None => Operand::Same(none),
                    };
                    let (less, factor) = (operand(*less, 0.0), operand(Some(*factor), 1.0));
                    let (scale, summand) = (operand(*scale, 1.0), operand(*summand, -0.0));
                    // SAFETY: rows of members are `f32` and have `len` places within their tensors; the one that is written
                    // is an operand's own or none.
                    unsafe {
                        let from = self.at::<T>(*x, base, part).cast();
                        let to = self.place(*to, base, part).cast();
                        let steps = Steps { less, factor, divides: *divides, scale, summand };
                        normalize_row(isa, Row { from, to, len }, steps);
                    }
                }
                Move::SquaresFrom { operands: [x, y], left } => {
                    // SAFETY: the row of members is `f32` and has `len` places within its tensor; `y` has an element for each
                    // group.
                    unsafe {
                        let [x, y] = [x, y].map(|at| self.at::<T>(*at, base, part).cast::<f32>());
                        let x = std::slice::from_raw_parts(x, len);
                        add_squares_from(isa, x, std::slice::from_raw_parts(y, self.groups), self.left(*left));
                    }
                }
                Move::Spread { row } => {
                    // SAFETY: rows are as many as the program has, each of `pitch` elements; nothing else refers to this one.
                    let all = unsafe { std::slice::from_raw_parts_mut(base.rows.add(row * base.pitch), base.pitch) };
                    let lanes = self.rows.compiled.chunk.lanes;
                    spread(&mut all[..self.groups * lanes], lanes);
                }
                Move::Round { row: to, storage } => T::round(*storage, isa, row(*to)),
                Move::Keep { row: from, kept } => {
                    // SAFETY: kept values have a place for each member, in scratch memory apart from all rows.
                    let to = unsafe { std::slice::from_raw_parts_mut(self.kept(*kept, part).cast::<T>(), len) };
                    copy(row(*from), to);
                }
            }
        }
    }
}

/// Placement of values along a part of a row.
fn placement(at: At, part: Part) -> Placement {
    match at {
        At::Same(_) => Placement::Each(part.lanes),
        At::Shared(_) => Placement::Again(part.lanes),
        At::Row(_) | At::Kept(_) | At::Memory(_) | At::Output(_) => Placement::Row,
    }
}

/// Repeats each of the first elements of a row so many times, in order.
fn spread<T: Copy>(row: &mut [T], times: usize) {
    for group in (0..row.len() / times).rev() {
        let value = row[group];
        row[group * times..(group + 1) * times].fill(value);
    }
}
