//! Matrix products in `f32`: `c[m][n] = Σ a(k, m)·b(k, n)` with factors that are gathered from anywhere.
//!
//! A unit of work is a block of the result. For some of the sum at a time the right factor is gathered into panels,
//! unless it comes in panels, or too few rows meet it to pay for that; the left one is read by rows where it lies so,
//! else it is gathered too. The partial sums add up in `f32`, in the result itself where that takes them, which then
//! finishes them tile by tile. Long sums of small results are cut into parts of a size that does not depend on the number
//! of threads, which are added in order.

mod on_tiles;
mod tile;

use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};
use hipdnn_cpu_simd::scratch::lines;
use hipdnn_cpu_threads::Pool;

use on_tiles::OnTiles;
use tile::{Job, LINE, PANEL, Width};

/// Number of products that are summed between two gatherings.
pub const DEPTH: usize = 256;

/// Maximum number of panels of columns that are gathered at a time.
const PANELS: usize = 8;

/// About how many rows at most a block has, of whose left side the second-level cache holds [`DEPTH`] places of the sum.
const ROWS: usize = 224;

/// The same of a block that passes its left side once: a strip has all of its columns.
const TALL: usize = 512;

/// Values of panels that stay near while tiles of rows pass: a tile's rows of the result are written by longer runs.
const STRIP: usize = 64 * DEPTH;

/// Maximum number of panels of columns of a block on a set that gathers rows of the left side: once for all of them.
const WIDE: usize = 4 * PANELS;

/// Number of panels of columns of a block of which long sums are cut into parts.
const PANELS_OF_PARTS: usize = 4;

/// Number of products of a block that are worth another thread.
const WORTH: usize = 1 << 17;

/// Number of blocks, as small as they are cut, below which long sums are cut into parts.
const FEW: usize = 16;

/// Numbers of tiles of rows and of panels to which blocks are cut for more threads.
const LEAST_TILES: usize = 2;
const LEAST_PANELS: usize = 2;

/// Number of blocks for each thread, so that the last ones to finish are small.
const EACH: usize = 4;

/// Minimum number of products of a part.
const PART: usize = 4 * DEPTH;

/// Maximum number of columns of a panel.
const MAX_WIDTH: usize = PANEL * MAX_LANES;

/// Maximum number of values that a sink is given at a time.
pub const MAX_COLUMNS: usize = PANELS * MAX_WIDTH;

/// Minimum numbers of rows of a block, of places of the sum and of columns that matrix tiles are worth.
const TILE_ROWS: usize = 96;
const TILE_DEPTH: usize = 48;
const TILE_COLUMNS: usize = 24;

/// Number of tiles of rows up to which the right side is read where it lies: to gather it takes as long as to
/// multiply it by a tile or two.
const FEW_TILES: usize = 2;

/// Number of columns of a panel of the right side, on an instruction set.
pub fn width(isa: Isa) -> usize {
    PANEL * isa.lanes()
}

/// Factor of a product: values by place in the sum and place in the result.
pub trait Factor: Sync {
    /// Writes the values of `depth` places of the sum from `k` on, for `count` places of the result from `j` on: those of
    /// a place in the sum side by side, `width` apart from the next; what lies behind `count` of them stays as it is.
    /// `depth` is at most [`DEPTH`].
    ///
    /// # Safety
    /// The places exist; `to` has room for `depth · width` values.
    unsafe fn gather(&self, batch: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32);

    /// Address of the value at a place in the sum and a place in the result, and its strides along both, if it is an
    /// `f32` in memory and so are all others.
    ///
    /// # Safety
    /// The places exist.
    unsafe fn in_place(&self, batch: usize, k: usize, j: usize) -> Option<(*const f32, [usize; 2])> {
        let _ = (batch, k, j);
        None
    }

    /// Address of all values of a right side in panels of [`width`] columns, the same for every batch, zeros behind
    /// the last column: a panel has the values of a place in the sum side by side, then those of the next.
    fn panels(&self) -> Option<*const f32> {
        None
    }
}

/// Destination of results.
pub trait Sink: Sync {
    /// Takes the values of row `row` from `column` on, at most [`MAX_COLUMNS`]; they may be changed. `spare` is that of
    /// [`Results::Rows`], with nothing in it.
    ///
    /// # Safety
    /// The place is in the result, and no other thread gives one of it.
    unsafe fn put(&self, batch: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]);

    /// Takes a block of rows and columns, the first and the number of each, from an address with a stride between rows; the values
    /// may be changed.
    ///
    /// # Safety
    /// As [`Sink::put`], for each row, whose values nobody else uses.
    unsafe fn put_block(
        &self,
        batch: usize,
        rows: (usize, usize),
        columns: (usize, usize),
        (values, pitch): (*mut f32, usize),
        spare: &mut [f32],
    ) {
        for i in 0..rows.1 {
            // SAFETY: the row is within the block.
            let values = unsafe { std::slice::from_raw_parts_mut(values.add(i * pitch), columns.1) };
            for (at, values) in values.chunks_mut(MAX_COLUMNS).enumerate() {
                // SAFETY: the caller's promise.
                unsafe { self.put(batch, rows.0 + i, columns.0 + at * MAX_COLUMNS, values, spare) };
            }
        }
    }

    /// Address of a value of the result and the stride between rows, of a sink of [`Results::InPlace`].
    ///
    /// # Safety
    /// The place is in the result.
    unsafe fn in_place(&self, batch: usize, row: usize, column: usize) -> (*mut f32, usize) {
        unreachable!("batch {batch}, row {row}, column {column} of a sink that takes no sums in place")
    }

    /// Finishes whole sums in place: those of rows and columns, the first and the number of each.
    ///
    /// # Safety
    /// The places are in the result and have their sums, and no other thread works on them.
    unsafe fn finish(&self, batch: usize, rows: (usize, usize), columns: (usize, usize)) {
        let _ = (batch, rows, columns);
    }
}

/// Mode in which a [`Sink`] takes results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// As `f32` whose columns lie side by side: sums are computed there ([`Sink::in_place`]) and finished there
    /// ([`Sink::finish`]). Those of several parts of the sum are put.
    InPlace,
    /// By rows ([`Sink::put`]).
    Rows {
        /// Number of values that the sink has room for to work with.
        spare: usize,
    },
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
    /// Number of rows of a block, and of panels of columns.
    block: usize,
    panels: usize,
    /// Number of parts of the sum, and of the products of each.
    parts: usize,
    part: usize,
    results: Results,
}

impl Product {
    /// Plans a product of `batch` results of `rows` by `columns`, sums of `depth` products, for at most `threads`
    /// workers.
    pub fn new(isa: Isa, threads: usize, batch: usize, sizes: [usize; 3], results: Results) -> Product {
        let [rows, columns, depth] = sizes;
        let (threads, width, tall) = (threads.max(1), width(isa), tile::tallest(isa.lanes()));
        let all = columns.div_ceil(width).max(1);
        // Rows in blocks of about one size.
        let block_of = |blocks: usize| rows.div_ceil(blocks.max(1)).next_multiple_of(tall).min(rows.max(1));
        let count = |block: usize, panels: usize| batch * rows.div_ceil(block) * all.div_ceil(panels);
        let most = if tile::wants_panels(isa.lanes()) { WIDE } else { PANELS };
        let most_rows = match results {
            // On matrix tiles the right side is split once for all rows of a block.
            _ if isa.splits_f32() => 2 * ROWS,
            // The left side is read once.
            Results::InPlace if columns * depth.min(DEPTH) <= STRIP => TALL,
            // As many as the left side has values of long sums: the right side is gathered once for all of them.
            Results::InPlace => ROWS * DEPTH / depth.clamp(1, DEPTH),
            // The block itself is in the cache.
            Results::Rows { .. } => ROWS,
        };
        let (mut block, mut panels) = (block_of(rows.div_ceil(most_rows)), most.min(all));
        // Columns first, as rows are not gathered once more for them where they are read as they lie.
        while count(block, panels) < threads * EACH && threads > 1 && block * panels * width * depth >= 2 * WORTH {
            match (panels > LEAST_PANELS, block > LEAST_TILES * tall) {
                (true, _) => panels = panels.div_ceil(2),
                (_, true) => block = (block / 2).next_multiple_of(tall),
                _ => break,
            }
        }
        // Parts decide about bits, so that they follow from the sizes alone.
        let least = batch * rows.div_ceil(LEAST_TILES * tall) * all.div_ceil(LEAST_PANELS);
        let blocks = if least >= FEW { least } else { batch * rows.div_ceil(ROWS) * all.div_ceil(PANELS_OF_PARTS) };
        let (parts, part) = Product::parts(blocks, depth);
        if parts > 1 {
            (block, panels) = (block_of(rows.div_ceil(ROWS)), PANELS_OF_PARTS.min(all));
        }
        Product { isa, threads, batch, rows, columns, depth, block, panels, parts, part, results }
    }

    /// Number of parts of sums of `depth` products for so many blocks of the result, and of the products of each.
    fn parts(blocks: usize, depth: usize) -> (usize, usize) {
        let parts = if blocks >= FEW { 1 } else { (depth / PART).clamp(1, FEW.div_ceil(blocks.max(1))) };
        let part = depth.div_ceil(parts).next_multiple_of(DEPTH);
        (depth.div_ceil(part).max(1), part)
    }

    fn width(&self) -> usize {
        width(self.isa)
    }

    /// Columns of a block.
    fn pitch(&self) -> usize {
        self.panels * self.width()
    }

    /// `f32` values of a block of the result.
    fn block_len(&self) -> usize {
        self.block * self.pitch()
    }

    /// True if sums are computed where the sink has them.
    fn is_in_place(&self) -> bool {
        self.results == Results::InPlace && self.parts == 1
    }

    /// Scratch of the sink, in `f32` values.
    fn spare(&self) -> usize {
        match self.results {
            Results::InPlace => 0,
            Results::Rows { spare } => spare,
        }
    }

    /// Values of a block in a worker's scratch memory.
    fn kept_len(&self) -> usize {
        if self.is_in_place() { 0 } else { self.block_len() }
    }

    /// Scratch of a worker, in `f32` values: the block, panels of both factors, their terms on matrix tiles, the sink's.
    fn slot(&self) -> usize {
        self.kept_len() + self.panels_len() + if self.on_tiles() { OnTiles::len(self.block) } else { 0 } + self.spare()
    }

    /// Panels of both factors, in `f32` values.
    fn panels_len(&self) -> usize {
        (self.left_len() + self.panels.min(PANELS) * self.width() * DEPTH).next_multiple_of(LINE)
    }

    /// Panels of the left side, in `f32` values.
    fn left_len(&self) -> usize {
        (self.block * self.gathered()).next_multiple_of(LINE)
    }

    /// Maximum number of places of the sum that are gathered at a time.
    fn gathered(&self) -> usize {
        self.depth.min(DEPTH)
    }

    /// True if blocks are multiplied on matrix tiles: they have rows and places of the sum enough to split the right side for.
    fn on_tiles(&self) -> bool {
        self.isa.splits_f32() && self.block >= TILE_ROWS && self.depth >= TILE_DEPTH && self.columns >= TILE_COLUMNS
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
            let panels = slot.wrapping_add(self.kept_len());
            let (batch, (row, _), (column, _)) = self.place(unit);
            let (sums, in_place) = match (self.is_in_place(), self.parts) {
                // SAFETY: the unit's place is in the result.
                (true, _) => (unsafe { sink.in_place(batch, row, column) }, Some(sink)),
                (false, 1) => ((slot, self.pitch()), None),
                (false, _) => ((kept.cast::<f32>(), self.pitch()), None),
            };
            self.isa.run(Unit { product: self, a, b, unit, part, sums, in_place, panels });
            if self.parts == 1 && in_place.is_none() {
                // SAFETY: the block has been computed; units are of different places.
                unsafe { self.put(sink, unit, slot, slot) };
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
                let (_, (_, rows), (_, columns)) = self.place(unit);
                for part in 1..self.parts {
                    for i in (0..rows).map(|row| row * self.pitch()) {
                        // SAFETY: every part is a block of its own, whose rows and columns have been computed.
                        let [to, from] = unsafe {
                            [sums, kept(part)].map(|block| std::slice::from_raw_parts_mut(block.add(i), columns))
                        };
                        to.iter_mut().zip(from).for_each(|(sum, value)| *sum += *value);
                    }
                }
                // SAFETY: the block has the sums of all parts; units are of different places, and the slot is the
                // worker's.
                unsafe { self.put(sink, unit, sums, slot) };
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
    unsafe fn put(&self, sink: &dyn Sink, unit: usize, sums: *mut f32, slot: *mut f32) {
        let spare = slot.wrapping_add(self.slot() - self.spare());
        // SAFETY: the last part of the worker's scratch memory.
        let spare = unsafe { std::slice::from_raw_parts_mut(spare, self.spare()) };
        let (batch, (row, rows), (column, columns)) = self.place(unit);
        // SAFETY: the caller's promise.
        unsafe { sink.put_block(batch, (row, rows), (column, columns), (sums, self.pitch()), spare) };
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
    /// Sums of the block, and the stride between its rows.
    sums: (*mut f32, usize),
    /// The sink, if the sums are its.
    in_place: Option<&'a dyn Sink>,
    /// Panels of `a`, panels of `b`.
    panels: *mut f32,
}

impl Kernel for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let product = self.product;
        let (batch, (row, rows), (column, columns)) = product.place(self.unit);
        let width = PANEL * S::LANES;
        let (start, end) = (self.part * product.part, product.depth.min((self.part + 1) * product.part));
        let (sums, to) = self.sums;
        let (a_panels, b_panels) = (self.panels, self.panels.wrapping_add(product.left_len()));
        // SAFETY: the factors' places are the product's.
        let (left, right) = unsafe { (self.a.in_place(batch, start, row), self.b.in_place(batch, start, column)) };
        let takes = |of_result: usize| product.on_tiles() || tile::takes_rows(S::LANES, of_result);
        let left = left.filter(|(_, [of_sum, of_result])| *of_sum == 1 && takes(*of_result));
        let tiles = Tiles::of(rows, tile::tallest(S::LANES));
        let pairs = !product.on_tiles() && tiles.tallest() <= tile::tallest_of_two(S::LANES);
        let ready = self.b.panels();
        let right = right.filter(|(_, [_, of_result])| *of_result == 1 && tiles.count <= FEW_TILES && ready.is_none());
        // Columns that are read where they lie: whole panels.
        let placed = if right.is_some() { columns / width * width } else { 0 };
        let mut on_tiles = (product.on_tiles() && left.is_some())
            .then(|| OnTiles::new(product.isa, rows, self.panels.wrapping_add(product.panels_len())));
        let mut k = start;
        // SAFETY: the panels have room for `DEPTH` steps of the block's rows and of `PANELS` whole panels, or all that it has, the
        // block for all of its rows and columns; the factors' places are the product's, and panels that come ready are whole.
        unsafe {
            while k < end {
                let depth = DEPTH.min(end - k);
                let finished = self.in_place.filter(|_| k + depth == end);
                if left.is_none() {
                    for (i, count) in tiles.each() {
                        self.a.gather(
                            batch,
                            (k, depth),
                            (row + i, count),
                            count,
                            a_panels.wrapping_add(i * product.gathered()),
                        );
                    }
                }
                if let (Some(on_tiles), Some((a, [_, of_result]))) = (&mut on_tiles, left) {
                    on_tiles.split(s, a.wrapping_add(k - start), of_result, depth);
                }
                let mut j = 0;
                // Columns up to here, from `group` on, are gathered.
                let (mut group, mut gathered) = (0, 0);
                while j < columns {
                    if j == gathered {
                        (group, gathered) = (j, (j + PANELS * width).min(columns));
                        let mut i = if ready.is_some() { gathered } else { placed.max(group) };
                        while i < gathered {
                            let (count, to) = (width.min(columns - i), b_panels.wrapping_add((i - group) * DEPTH));
                            if count < width {
                                // Places that the panel has and the result has not: numbers, so that none of them is slow.
                                to.write_bytes(0, width * depth);
                            }
                            self.b.gather(batch, (k, depth), (column + i, count), width, to);
                            i += width;
                        }
                    }
                    // Address of the panel, strides between places of the sum and between panels, and columns that
                    // lie so.
                    let (b, pitch, panel, until) = match (ready, right) {
                        (Some(panels), _) => {
                            let at = (column + j) * product.depth + k * width;
                            (panels.wrapping_add(at), width, width * product.depth, gathered)
                        }
                        (None, Some((b, [pitch, _]))) if j < placed => {
                            (b.wrapping_add((k - start) * pitch + j), pitch, width, placed.min(gathered))
                        }
                        _ => (b_panels.wrapping_add((j - group) * DEPTH).cast_const(), width, width * DEPTH, gathered),
                    };
                    if let Some(on_tiles) = &on_tiles {
                        let count = until - j;
                        on_tiles.multiply(s, (b, pitch, panel), [depth, count], (sums.wrapping_add(j), to), k != start);
                        if let Some(sink) = finished {
                            sink.finish(batch, (row, rows), (column + j, count));
                        }
                        j += count;
                        continue;
                    }
                    let widest = if pairs { 2 * width } else { width };
                    let strip = (STRIP / depth).next_multiple_of(widest).min(until - j);
                    // Panels that come ready are larger than caches: the next ones are fetched beside the first tiles of these.
                    let (then_j, then_k) = if j + strip < columns { (j + strip, k) } else { (0, k + depth) };
                    let ahead = ready
                        .filter(|_| then_k < end)
                        .map(|panels| panels.wrapping_add((column + then_j) * product.depth + then_k * width));
                    for (tile, (i, height)) in tiles.each().enumerate() {
                        let (a, of_row) = match left {
                            Some((a, [_, of_result])) => (a.wrapping_add(i * of_result + k - start), of_result),
                            None => (a_panels.wrapping_add(i * product.gathered()).cast_const(), 1),
                        };
                        let mut at = 0;
                        while at < strip {
                            let (size, count) = match strip - at {
                                rest if pairs && rest > width => (Width::Two, rest.min(2 * width)),
                                rest if rest > S::LANES => (Width::One, rest.min(width)),
                                rest => (Width::Half, rest),
                            };
                            let c = sums.wrapping_add(i * to + j + at);
                            let b = b.wrapping_add(at / width * panel);
                            // A line for each step of a tile: so many tiles have a panel's.
                            let next = match ahead {
                                Some(ahead) if tile * LINE < width => {
                                    ahead.wrapping_add(at * product.depth + tile * LINE * depth)
                                }
                                _ => std::ptr::null(),
                            };
                            let add = k != start;
                            let job = Job { depth, a, row: of_row, b, pitch, panel, c, to, columns: count, add, next };
                            tile::function::<S>(height, size, left.is_none())(s, &job);
                            at += count;
                        }
                        if let Some(sink) = finished {
                            sink.finish(batch, (row + i, height), (column + j, strip));
                        }
                    }
                    j += strip;
                }
                k += depth;
            }
        }
    }
}

/// Rows of a block in tiles of about one height.
#[derive(Clone, Copy)]
struct Tiles {
    rows: usize,
    count: usize,
}

impl Tiles {
    fn of(rows: usize, tall: usize) -> Tiles {
        Tiles { rows, count: rows.div_ceil(tall) }
    }

    fn tallest(self) -> usize {
        self.rows.div_ceil(self.count.max(1))
    }

    /// First row and height of each tile: the taller ones come first.
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = (usize, usize)> {
        let (low, taller) = (self.rows / self.count.max(1), self.rows % self.count.max(1));
        (0..self.count).map(move |tile| (tile * low + tile.min(taller), low + usize::from(tile < taller)))
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

    /// The same of the left side in memory, by rows so far apart.
    struct Rows {
        values: Vec<f32>,
        batch: usize,
        pitch: usize,
    }

    impl Rows {
        fn new([batch, rows, depth]: [usize; 3], pitch: usize) -> Rows {
            let mut values = vec![f32::NAN; batch * rows * pitch];
            for (i, row) in values.chunks_mut(pitch).enumerate() {
                for (k, value) in row[..depth].iter_mut().enumerate() {
                    *value = number(0, i / rows, k, i % rows);
                }
            }
            Rows { values, batch: rows * pitch, pitch }
        }
    }

    impl Factor for Rows {
        unsafe fn gather(&self, batch: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { Numbers(0).gather(batch, k, j, width, to) };
        }

        unsafe fn in_place(&self, batch: usize, k: usize, j: usize) -> Option<(*const f32, [usize; 2])> {
            let at = batch * self.batch + j * self.pitch + k;
            Some((self.values.as_ptr().wrapping_add(at), [1, self.pitch]))
        }
    }

    /// Results, sizes, and how they are taken.
    struct Result(UnsafeCell<Vec<f32>>, [usize; 3], Results);
    // SAFETY: each place is written by one thread.
    unsafe impl Sync for Result {}

    impl Sink for Result {
        unsafe fn put(&self, batch: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]) {
            let [_, rows, columns] = self.1;
            if let Results::Rows { spare: len } = self.2 {
                assert_eq!(spare.len(), len);
            }
            spare.fill(f32::NAN);
            for (i, value) in values.iter().enumerate() {
                assert!(row < rows && column + i < columns);
                // SAFETY: the place is in the vector, and this thread's.
                unsafe {
                    let to = (*self.0.get()).as_mut_ptr().add((batch * rows + row) * columns + column + i);
                    assert!(to.read().is_nan(), "a result came twice");
                    to.write(*value + FINISHED);
                }
            }
        }

        unsafe fn in_place(&self, batch: usize, row: usize, column: usize) -> (*mut f32, usize) {
            assert_eq!(self.2, Results::InPlace);
            let [_, rows, columns] = self.1;
            assert!(row < rows && column < columns);
            // SAFETY: the place is in the vector.
            (unsafe { (*self.0.get()).as_mut_ptr().add((batch * rows + row) * columns + column) }, columns)
        }

        unsafe fn finish(&self, batch: usize, rows: (usize, usize), columns: (usize, usize)) {
            for (i, j) in (0..rows.1).flat_map(|i| (0..columns.1).map(move |j| (rows.0 + i, columns.0 + j))) {
                // SAFETY: the place is in the vector, and this thread's.
                unsafe { *self.in_place(batch, i, j).0 += FINISHED };
            }
        }
    }

    /// Summand that a sink adds to each sum, once.
    const FINISHED: f32 = 0.5;

    #[test]
    fn long_sums_of_small_results_are_work_for_many_threads() {
        for (isa, sizes) in Isa::of_vectors().flat_map(|isa| {
            [[196, 128, 16_384], [84, 64, 16_384], [64, 147, 50_000], [128, 768, 3072]].map(|sizes| (isa, sizes))
        }) {
            for results in [Results::InPlace, Results::Rows { spare: 0 }] {
                let product = Product::new(isa, 16, 1, sizes, results);
                let items = product.units() * product.parts;
                assert!(items >= FEW, "{isa} {sizes:?} {results:?}: {items} items");
                let one = Product::new(isa, 1, 1, sizes, results);
                assert_eq!(
                    (product.parts, product.part),
                    (one.parts, one.part),
                    "{isa} {sizes:?}: parts decide about bits"
                );
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
            (1, [17, 601, 300]),
        ];
        // The left side gathered, and by rows: side by side, and a page apart.
        let ways = [(1, None), (3, None), (1, Some(1)), (3, Some(1)), (1, Some(1024))];
        let results = [Results::Rows { spare: 5 }, Results::InPlace];
        for (isa, results) in Isa::available().flat_map(|isa| results.map(|results| (isa, results))) {
            let cases = sizes.into_iter().flat_map(|size| ways.map(|way| (way, size)));
            for ((threads, apart), (batch, [rows, columns, depth])) in cases {
                let in_rows = apart.map(|apart| Rows::new([batch, rows, depth], depth.next_multiple_of(apart)));
                let left: &dyn Factor = in_rows.as_ref().map_or(&Numbers(0), |rows| rows);
                let product = Product::new(isa, threads, batch, [rows, columns, depth], results);
                let mut scratch = hipdnn_cpu_simd::scratch::AlignedBuffer::new(product.scratch_bytes() / 4);
                scratch.fill(f32::NAN);
                let values = UnsafeCell::new(vec![f32::NAN; batch * rows * columns]);
                let result = Result(values, [batch, rows, columns], results);
                // SAFETY: the numbers have every place, and the scratch memory is as large as it should be.
                unsafe {
                    product.run(&Pool::new(3), left, &Numbers(1), &result, scratch.as_mut_ptr().cast());
                }
                for (i, got) in result.0.into_inner().into_iter().enumerate() {
                    let (b, m, n) = (i / (rows * columns), i / columns % rows, i % columns);
                    // Magnitudes of at most 25·20 000, which f32 holds exactly.
                    let want: f32 = (0..depth).map(|k| number(0, b, k, m) * number(1, b, k, n)).sum();
                    let what = format!("{isa} {batch}×{rows}×{columns}×{depth} {apart:?} {results:?} at {b} {m} {n}");
                    assert_eq!(got, want + FINISHED, "{what}");
                }
            }
        }
    }
}
