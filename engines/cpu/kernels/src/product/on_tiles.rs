//! A block of a product on matrix tiles: rows of the left side are split into bf16 terms once for all columns, some panels of the
//! right side when their turn comes. All of these pass a pair of tiles of rows before the next one, so that results are written by long
//! runs of rows.

use super::{DEPTH, PANELS};
use hipdnn_cpu_simd::isa::{Isa, Simd, first};
use hipdnn_cpu_simd::tiles::{
    DEPTH as STEP, MAX_TERMS, Multiplier, Pairs, Range, Splitting, TILE, TILE_BYTES, TileProduct, Values, split_halves,
    split_right,
};

/// Rows, and columns, of a pair of tiles.
const PAIR: usize = 2 * TILE;
/// Steps of the sum between two splittings.
const STEPS: usize = DEPTH / STEP;
/// Bytes of a step's terms of a pair of tiles.
const PAIR_BYTES: usize = MAX_TERMS * 2 * TILE_BYTES;
/// Values from a row of sums to the next: no whole page, as rows would share sets of the first-level cache.
const PITCH: usize = PANELS * PAIR + TILE;

/// A block, and its scratch memory.
pub(super) struct OnTiles {
    isa: Isa,
    rows: usize,
    left: *mut u8,
    right: *mut u8,
    sums: *mut f32,
    kind: Values,
}

impl OnTiles {
    /// Size of the scratch memory of a block of `rows` rows, in `f32` values.
    pub(super) fn len(rows: usize) -> usize {
        (rows.div_ceil(PAIR) + PANELS) * STEPS * PAIR_BYTES / size_of::<f32>() + PAIR * PITCH
    }

    /// Makes the block. `scratch` has [`OnTiles::len`] values and begins on a cache line.
    pub(super) fn new(isa: Isa, rows: usize, scratch: *mut f32) -> OnTiles {
        let left = scratch.cast::<u8>();
        let right = left.wrapping_add(rows.div_ceil(PAIR) * STEPS * PAIR_BYTES);
        let sums = right.wrapping_add(PANELS * STEPS * PAIR_BYTES).cast();
        OnTiles { isa, rows, left, right, sums, kind: Values::Ordinary }
    }

    /// Splits the left side: `depth` values of each row, at most [`DEPTH`], rows `stride` values apart.
    ///
    /// # Safety
    /// The rows' values can be read; the scratch memory is this block's.
    #[inline(always)]
    pub(super) unsafe fn split<S: Simd>(&mut self, s: S, a: *const f32, stride: usize, depth: usize) {
        self.kind = SplitLeft { block: self, a, stride, depth }.split_by_kind::<S, MAX_TERMS>(s);
    }

    /// Multiplies the left side with some panels of columns, and adds to the result if `add`, else writes it. `right`: address of the
    /// first panel, distance of places of the sum, and of panels; `size`: places of the sum, and columns, at most [`PANELS`] panels';
    /// `result`: address, and distance of rows.
    ///
    /// # Safety
    /// Whole panels of [`PAIR`] columns can be read, and the block's rows of the result read and written.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd>(
        &self,
        s: S,
        (right, pitch, panel): (*const f32, usize, usize),
        [depth, columns]: [usize; 2],
        (to, stride): (*mut f32, usize),
        add: bool,
    ) {
        let mut kinds = [Values::Ordinary; PANELS];
        let panels = columns.div_ceil(PAIR);
        for (i, kind) in kinds.iter_mut().enumerate().take(panels) {
            let (from, to) = (right.wrapping_add(i * panel), self.right.wrapping_add(i * STEPS * PAIR_BYTES));
            *kind = SplitRight { from, pitch, depth, to }.split_by_kind::<S, MAX_TERMS>(s);
        }
        let multiplier = Multiplier::new(self.isa);
        let no_offset = 0;
        let mut row = 0;
        while row < self.rows {
            let count = PAIR.min(self.rows - row);
            for (i, kind) in kinds.iter().enumerate().take(panels) {
                let job = TileProduct {
                    taps: &raw const no_offset,
                    count: 1,
                    depth,
                    steps: depth.div_ceil(STEP),
                    a: self.left.wrapping_add(row / PAIR * STEPS * PAIR_BYTES),
                    row: 2 * STEP,
                    second: TILE_BYTES,
                    term: 2 * TILE_BYTES,
                    step: PAIR_BYTES,
                    order: Pairs::Halves,
                    b: self.right.wrapping_add(i * STEPS * PAIR_BYTES),
                    c: self.sums.wrapping_add(i * PAIR),
                    to: PITCH * size_of::<f32>(),
                };
                let size = (count.div_ceil(TILE), 2);
                // SAFETY: the terms of both sides, zeros behind the last place of the sum, and the scratch memory for the sums.
                unsafe { multiplier.run(s, &job, [MAX_TERMS; 2], [self.kind, *kind], size) };
            }
            for r in 0..count {
                let (from, to) = (self.sums.wrapping_add(r * PITCH), to.wrapping_add((row + r) * stride));
                let mut column = 0;
                while column < columns {
                    let lanes = S::LANES.min(columns - column);
                    // SAFETY: the sums of the row, and so many columns of the result.
                    unsafe {
                        let (sum, to) = (s.load(from.add(column)), to.add(column));
                        if add {
                            let before = s.load_masked(s.mask(first(lanes)), to);
                            s.store_first(lanes, to, s.add(before, sum));
                        } else {
                            s.store_first(lanes, to, sum);
                        }
                    }
                    column += S::LANES;
                }
            }
            row += PAIR;
        }
    }
}

/// Splitting of rows of the left side.
#[derive(Clone, Copy)]
struct SplitLeft<'a> {
    block: &'a OnTiles,
    a: *const f32,
    stride: usize,
    depth: usize,
}

impl Splitting for SplitLeft<'_> {
    #[inline(always)]
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values {
        let SplitLeft { block, a, stride, depth } = self;
        let mut range = Range::new(s);
        // A tile of rows before the next step: what is written lies in few pages then.
        for tile in (0..block.rows).step_by(TILE) {
            for step in 0..depth.div_ceil(STEP) {
                let k = step * STEP;
                let to = block.left.wrapping_add((tile / PAIR * STEPS + step) * PAIR_BYTES + tile % PAIR * 2 * STEP);
                for row in 0..TILE.min(block.rows - tile) {
                    let (from, to) =
                        (a.wrapping_add((tile + row) * stride + k), to.cast::<u16>().wrapping_add(row * STEP));
                    // SAFETY: masks end with the row's values; the scratch memory has room for the pair's terms.
                    unsafe {
                        if k + STEP <= depth {
                            let load = |i: usize| s.load(from.add(i));
                            split_halves::<S, T, HOW>(s, &mut range, load, to, TILE_BYTES);
                        } else {
                            let load = |i: usize| {
                                let lanes = depth.saturating_sub(k + i).min(S::LANES);
                                s.load_masked(s.mask(first(lanes)), from.wrapping_add(i))
                            };
                            split_halves::<S, T, HOW>(s, &mut range, load, to, TILE_BYTES);
                        }
                    }
                }
            }
        }
        range.kind(s)
    }
}

/// Splitting of a panel of the right side.
#[derive(Clone, Copy)]
struct SplitRight {
    from: *const f32,
    pitch: usize,
    depth: usize,
    to: *mut u8,
}

impl Splitting for SplitRight {
    #[inline(always)]
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values {
        let SplitRight { from, pitch, depth, to } = self;
        let mut range = Range::new(s);
        // SAFETY: the panel's places, `pitch` apart, and the scratch memory for their terms.
        unsafe {
            split_right::<S, T, HOW>(s, &mut range, Pairs::Halves, 2, depth, (from, pitch), to, PAIR_BYTES);
        }
        range.kind(s)
    }
}
