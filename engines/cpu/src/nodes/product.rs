//! Matrix products in `f32`: `c[m][n] = Σ a(k, m)·b(k, n)` with factors that are gathered from anywhere.
//!
//! A unit of work is a block of the result. For some of the sum at a time both factors are gathered into panels, which the
//! convolution's register kernel multiplies; the partial sums add up in `f32`. Long sums of small results are cut into parts
//! of a size that does not depend on the number of threads, which are added in order.

use hipdnn_cpu_kernels::convolution::tile::{self, MAX_VECTORS, Tile};
use hipdnn_cpu_kernels::isa::{Isa, Kernel, Simd, first};
use hipdnn_cpu_kernels::scratch::lines;
use hipdnn_cpu_kernels::threads::Pool;

/// Number of products that are summed between two gatherings.
pub const DEPTH: usize = 256;

/// Maximum number of panels of columns, and about how many rows at most, of a block.
const PANELS: usize = 4;
const ROWS: usize = 224;

/// Number of products of a block that are worth another thread.
const WORTH: usize = 1 << 17;

/// Number of blocks below which they are made smaller, and long sums cut into parts.
const FEW: usize = 16;

/// Minimum number of products of a part.
const PART: usize = 4 * DEPTH;

/// Maximum number of columns of a panel.
const MAX_WIDTH: usize = MAX_VECTORS * hipdnn_cpu_kernels::isa::MAX_LANES;

/// Maximum size of the microkernel's tile, in values.
const TILE: usize = 14 * MAX_WIDTH;

/// Maximum number of values that a sink is given at a time.
pub const MAX_COLUMNS: usize = PANELS * MAX_WIDTH;

/// Factor of a product: values by place in the sum and place in the result.
pub trait Factor: Sync {
    /// Writes the values of `depth` places of the sum from `k` on, for `count` places of the result from `j` on: those of
    /// a place in the sum side by side, `width` apart from the next; what lies behind `count` of them stays as it is.
    /// `depth` is at most [`DEPTH`].
    ///
    /// # Safety
    /// The places exist; `to` has room for `depth · width` values.
    unsafe fn gather(&self, batch: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32);

    /// Address of the values from a place in the sum and a place in the result on, and the stride between places in the
    /// sum, if those of the result lie side by side in `f32`.
    ///
    /// # Safety
    /// The places exist.
    unsafe fn in_place(&self, batch: usize, k: usize, j: usize) -> Option<(*const f32, usize)> {
        let _ = (batch, k, j);
        None
    }
}

/// Destination of results.
pub trait Sink: Sync {
    /// Takes the values of row `row` from `column` on, at most [`MAX_COLUMNS`]; they may be changed. `spare` is the
    /// [`Product`]'s, with nothing in it.
    ///
    /// # Safety
    /// The place is in the result, and no other thread gives one of it.
    unsafe fn put(&self, batch: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]);
}

/// Sizes of a product, and its blocking.
#[derive(Clone, Debug)]
pub struct Product {
    isa: Isa,
    threads: usize,
    batch: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    /// Microkernel tile: rows and vectors.
    size: (usize, usize),
    /// Number of rows of a block, a multiple of the tile's, and of panels of columns.
    block: usize,
    panels: usize,
    /// Number of parts of the sum, and of the products of each.
    parts: usize,
    part: usize,
    /// Scratch of the sink, in `f32` values.
    spare: usize,
}

impl Product {
    /// Plans a product of `batch` results of `rows` by `columns`, sums of `depth` products, for at most `threads`
    /// workers. The sink gets room for `spare` values to work with.
    pub fn new(isa: Isa, threads: usize, batch: usize, [rows, columns, depth]: [usize; 3], spare: usize) -> Product {
        let lanes = isa.lanes();
        // Few rows: the tile that computes the fewest rows in vain.
        let size = *tile::sizes(lanes)
            .iter()
            .min_by_key(|(tall, vectors)| {
                let padded = rows.div_ceil(*tall) * tall * (columns.div_ceil(vectors * lanes) * vectors * lanes);
                // A step costs a load for each vector besides its products.
                padded / (tall * vectors) * (tall * vectors + vectors + tall / 4)
            })
            .expect("there are sizes");
        let mut block = ROWS.next_multiple_of(size.0).min(rows.next_multiple_of(size.0));
        let width = size.1 * lanes;
        let mut panels = PANELS.min(columns.div_ceil(width)).max(1);
        let count = |block: usize, panels: usize| batch * rows.div_ceil(block) * columns.div_ceil(panels * width);
        // Rows first: whole panels of columns are read where they are, if they lie as they should, but rows are gathered
        // once more for every cut between columns.
        while count(block, panels) < FEW && block * panels * width * depth >= 2 * WORTH {
            match (block > size.0, panels > 1) {
                (true, _) => block = (block / 2).next_multiple_of(size.0),
                (_, true) => panels = panels.div_ceil(2),
                _ => break,
            }
        }
        let blocks = count(block, panels);
        let parts = if blocks >= FEW { 1 } else { (depth / PART).clamp(1, FEW.div_ceil(blocks.max(1))) };
        let part = depth.div_ceil(parts).next_multiple_of(DEPTH);
        let parts = depth.div_ceil(part).max(1);
        let threads = threads.max(1);
        Product { isa, threads, batch, rows, columns, depth, size, block, panels, parts, part, spare }
    }

    fn width(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    /// Columns of a block.
    fn pitch(&self) -> usize {
        self.panels * self.width()
    }

    /// `f32` values of a block of the result.
    fn block_len(&self) -> usize {
        self.block * self.pitch()
    }

    /// Scratch of a worker, in `f32` values: the block, panels of both factors, a tile, the sink's.
    fn slot(&self) -> usize {
        self.block_len() + self.block * DEPTH + self.pitch() * DEPTH + TILE + self.spare
    }

    fn blocks(&self) -> (usize, usize) {
        (self.rows.div_ceil(self.block), self.columns.div_ceil(self.pitch()))
    }

    fn units(&self) -> usize {
        let (down, across) = self.blocks();
        self.batch * down * across
    }

    /// Scratch memory in bytes.
    pub fn scratch_bytes(&self) -> usize {
        let parts = if self.parts > 1 { self.parts * self.units() * lines(4 * self.block_len()) } else { 0 };
        self.threads * lines(4 * self.slot()) + parts
    }

    /// Multiplies.
    ///
    /// # Safety
    /// The factors have all places of the sum and the result; `scratch` begins on a cache line and has
    /// [`Product::scratch_bytes`] that nobody else uses.
    pub unsafe fn run(&self, pool: &Pool, a: &dyn Factor, b: &dyn Factor, sink: &dyn Sink, scratch: *mut u8) {
        let scratch = Scratch { slots: scratch, parts: scratch.wrapping_add(self.threads * lines(4 * self.slot())) };
        let scratch = &scratch;
        pool.run_indexed(self.units() * self.parts, self.threads, &|worker, unit| {
            let (unit, part) = (unit / self.parts, unit % self.parts);
            let slot = scratch.slots.wrapping_add(worker * lines(4 * self.slot())).cast::<f32>();
            let kept = scratch.parts.wrapping_add((unit * self.parts + part) * lines(4 * self.block_len()));
            let panels = slot.wrapping_add(self.block_len());
            let sums = if self.parts > 1 { kept.cast::<f32>() } else { slot };
            self.isa.run(Unit { product: self, a, b, unit, part, sums, panels });
            if self.parts == 1 {
                // SAFETY: the block has been computed; units are of different places.
                unsafe { self.finish(sink, unit, sums, slot) };
            }
        });
        if self.parts > 1 {
            pool.run_indexed(self.units(), self.threads, &|worker, unit| {
                let slot = scratch.slots.wrapping_add(worker * lines(4 * self.slot())).cast::<f32>();
                let kept = |part: usize| {
                    let offset = (unit * self.parts + part) * lines(4 * self.block_len());
                    scratch.parts.wrapping_add(offset).cast::<f32>()
                };
                let sums = kept(0);
                for part in 1..self.parts {
                    for i in 0..self.block_len() {
                        // SAFETY: every part is a whole block of its own.
                        unsafe { *sums.add(i) += kept(part).add(i).read() };
                    }
                }
                // SAFETY: the block has the sums of all parts; units are of different places, and the slot is the
                // worker's.
                unsafe { self.finish(sink, unit, sums, slot) };
            });
        }
    }

    /// Batch of a unit, and its rows and columns: the first and the number of each.
    fn place(&self, unit: usize) -> (usize, (usize, usize), (usize, usize)) {
        let (down, across) = self.blocks();
        let (column, rest) = (unit % across * self.pitch(), unit / across);
        let (row, batch) = (rest % down * self.block, rest / down);
        let rows = self.block.min(self.rows - row);
        (batch, (row, rows), (column, self.pitch().min(self.columns - column)))
    }

    /// # Safety
    /// `sums` is the block of the unit, of which no other thread gives a place to the sink; `slot` is the worker's.
    unsafe fn finish(&self, sink: &dyn Sink, unit: usize, sums: *mut f32, slot: *mut f32) {
        let spare = slot.wrapping_add(self.slot() - self.spare);
        // SAFETY: the last part of the worker's scratch memory.
        let spare = unsafe { std::slice::from_raw_parts_mut(spare, self.spare) };
        let (batch, (row, rows), (column, columns)) = self.place(unit);
        for i in 0..rows {
            // SAFETY: the row is within the block.
            let values = unsafe { std::slice::from_raw_parts_mut(sums.add(i * self.pitch()), columns) };
            // SAFETY: the caller's promise.
            unsafe { sink.put(batch, row + i, column, values, spare) };
        }
    }
}

/// Scratch memory of a run, of which each worker and each unit uses its own part.
struct Scratch {
    slots: *mut u8,
    parts: *mut u8,
}

// SAFETY: no two threads use the same part.
unsafe impl Sync for Scratch {}

struct Unit<'a> {
    product: &'a Product,
    a: &'a dyn Factor,
    b: &'a dyn Factor,
    unit: usize,
    part: usize,
    /// Sums of the block.
    sums: *mut f32,
    /// Panels of `a`, panels of `b`, a tile.
    panels: *mut f32,
}

impl Kernel for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let product = self.product;
        let (batch, (row, rows), (column, columns)) = product.place(self.unit);
        let (tall, width) = (product.size.0, product.width());
        let pitch = product.pitch();
        let function = tile::function::<S>(product.size);
        let a = self.panels;
        let b = a.wrapping_add(product.block * DEPTH);
        let spare = b.wrapping_add(pitch * DEPTH);
        let (start, end) = (self.part * product.part, product.depth.min((self.part + 1) * product.part));
        let mut k = start;
        // SAFETY: the panels have room for `DEPTH` steps of whole tiles, the block for all of them and `spare` for one; the
        // factors' places are the product's.
        unsafe {
            // Places that the last panels have and the result has not: numbers, so that none of them is slow.
            if rows % tall != 0 {
                a.add(rows / tall * tall * DEPTH).write_bytes(0, tall * DEPTH);
            }
            if columns % width != 0 {
                b.add(columns / width * width * DEPTH).write_bytes(0, width * DEPTH);
            }
            while k < end {
                let depth = DEPTH.min(end - k);
                let mut i = 0;
                while i < rows {
                    let count = tall.min(rows - i);
                    self.a.gather(batch, (k, depth), (row + i, count), tall, a.wrapping_add(i * DEPTH));
                    i += tall;
                }
                // Whole panels are read where they are, if they lie as they should.
                let in_place = self.b.in_place(batch, k, column);
                let mut j = if in_place.is_some() { columns / width * width } else { 0 };
                while j < columns {
                    let count = width.min(columns - j);
                    self.b.gather(batch, (k, depth), (column + j, count), width, b.wrapping_add(j * DEPTH));
                    j += width;
                }
                let mut j = 0;
                while j < columns {
                    let (b, step) = match in_place {
                        Some((b, step)) if j + width <= columns => (b.wrapping_add(j), step),
                        _ => (b.wrapping_add(j * DEPTH).cast_const(), width),
                    };
                    let mut i = 0;
                    while i < rows {
                        let sums = self.sums.wrapping_add(i * pitch + j);
                        let (to, row) = if k == start { (sums, pitch) } else { (spare, width) };
                        let mut job = Tile {
                            channels: depth,
                            taps: &[0],
                            step,
                            a: a.wrapping_add(i * DEPTH),
                            a_step: tall,
                            b,
                            bias: std::ptr::null(),
                            clamp: (f32::NEG_INFINITY, f32::INFINITY),
                            to: [to; MAX_VECTORS],
                            keep: [first(S::LANES); MAX_VECTORS],
                            row,
                            rows: tall,
                            next: std::ptr::null(),
                            after: None,
                        };
                        let mut v = 0;
                        while v < product.size.1 {
                            job.to[v] = to.wrapping_add(v * S::LANES);
                            v += 1;
                        }
                        function(s, &job);
                        if k != start {
                            let mut r = 0;
                            while r < tall {
                                let mut lane = 0;
                                while lane < width {
                                    let at = sums.wrapping_add(r * pitch + lane);
                                    s.store(at, s.add(s.load(at), s.load(spare.wrapping_add(r * width + lane))));
                                    lane += S::LANES;
                                }
                                r += 1;
                            }
                        }
                        i += tall;
                    }
                    j += width;
                }
                k += depth;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    /// Factor of values `place in the sum · 31 + place in the result`, small integers, so that sums are exact.
    struct Numbers(usize);

    fn number(which: usize, batch: usize, k: usize, j: usize) -> f32 {
        ((k * 31 + j * (7 + which) + batch * 3) % 11) as f32 - 5.0
    }

    impl Factor for Numbers {
        unsafe fn gather(&self, batch: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
            assert!(k.1 <= DEPTH && j.1 <= width && width <= MAX_WIDTH);
            for i in 0..k.1 {
                for lane in 0..j.1 {
                    let value = number(self.0, batch, k.0 + i, j.0 + lane);
                    // SAFETY: the test's products give room for `depth · width` values.
                    unsafe { to.add(i * width + lane).write(value) };
                }
            }
        }
    }

    struct Result(UnsafeCell<Vec<f32>>, [usize; 3]);
    // SAFETY: each place is written by one thread.
    unsafe impl Sync for Result {}

    impl Sink for Result {
        unsafe fn put(&self, batch: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]) {
            assert_eq!(spare.len(), 5);
            spare.fill(f32::NAN);
            let [_, rows, columns] = self.1;
            for (i, value) in values.iter().enumerate() {
                assert!(row < rows && column + i < columns);
                // SAFETY: the place is in the vector, and this thread's.
                unsafe {
                    let to = (*self.0.get()).as_mut_ptr().add((batch * rows + row) * columns + column + i);
                    assert!(to.read().is_nan(), "a result came twice");
                    to.write(*value);
                }
            }
        }
    }

    #[test]
    fn products_of_any_size_are_exact() {
        let sizes = [
            (1, [1, 1, 1]),
            (2, [3, 5, 7]),
            (1, [14, 32, 256]),
            (3, [15, 33, 257]),
            (1, [5, 200, 600]),
            (1, [300, 70, 513]),
            (1, [9, 27, 20_000]),
            (2, [1, 300, 40]),
        ];
        for isa in Isa::available() {
            for (threads, (batch, [rows, columns, depth])) in sizes.into_iter().flat_map(|s| [(1, s), (3, s)]) {
                let product = Product::new(isa, threads, batch, [rows, columns, depth], 5);
                let mut scratch = hipdnn_cpu_kernels::scratch::AlignedBuffer::new(product.scratch_bytes() / 4);
                scratch.fill(f32::NAN);
                let result = Result(UnsafeCell::new(vec![f32::NAN; batch * rows * columns]), [batch, rows, columns]);
                // SAFETY: the numbers have every place, and the scratch memory is as large as it should be.
                unsafe {
                    product.run(&Pool::new(3), &Numbers(0), &Numbers(1), &result, scratch.as_mut_ptr().cast());
                }
                for (i, got) in result.0.into_inner().into_iter().enumerate() {
                    let (b, m, n) = (i / (rows * columns), i / columns % rows, i % columns);
                    // Magnitudes of at most 25·20 000, which f32 holds exactly.
                    let want: f32 = (0..depth).map(|k| number(0, b, k, m) * number(1, b, k, n)).sum();
                    assert_eq!(got, want, "{isa} {batch}×{rows}×{columns}×{depth} at {b} {m} {n}");
                }
            }
        }
    }
}
