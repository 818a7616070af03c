//! Microkernel of tiles: some neighboring places of one or two output rows, with all of a range of channels.

use super::super::problem::Shape;
use super::super::row_tile::{RowAfter, clamp, finish};
use super::super::tile;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};

/// Arguments: neighboring tiles of an output row, or of two.
#[derive(Clone, Copy)]
pub(super) struct Tiles<'a> {
    /// Address of the first place's first tap in the first of the lines that are inside of the image, which may be a column
    /// outside of it; strides of lines and of columns. A line is a row of the input that kernel rows look at.
    pub(super) x: *const f32,
    pub(super) line: usize,
    pub(super) column: usize,
    /// Number of kernel rows, and lines that are inside of the image: the first row's kernel begins with line 0, a second row's
    /// with line 1.
    pub(super) kernel_rows: usize,
    pub(super) inside_rows: (usize, usize),
    /// Number of kernel columns, stride between places and dilation between taps.
    pub(super) columns: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// Address of the first tap's column in rows that are needed next; their stride and number.
    pub(super) ahead: *const f32,
    pub(super) ahead_line: usize,
    pub(super) ahead_lines: usize,
    /// Columns inside of the image, from `x` on.
    pub(super) inside: (isize, isize),
    /// Weights: for each tap those of a vector of channels; stride between vectors.
    pub(super) weights: *const f32,
    pub(super) panel: usize,
    /// Number of vectors of channels, and of lanes of each that are kept.
    pub(super) blocks: usize,
    pub(super) keep: usize,
    /// Number of places of each row.
    pub(super) count: usize,
    /// Bias of each channel, and clamp bounds of the biased sums.
    pub(super) bias: *const f32,
    pub(super) clamp: (f32, f32),
    /// Destination of the first place's channels, and strides between places and rows.
    pub(super) to: *mut f32,
    pub(super) to_place: usize,
    pub(super) to_line: usize,
    /// Epilogue behind bias and clamp, with the first channel's value in the first of its lists.
    pub(super) steps: &'a [tile::Step],
    pub(super) values: *const f32,
    /// Summand of the first place, added behind the steps, null for none; strides between places and rows.
    pub(super) summand: *const f32,
    pub(super) summand_place: usize,
    pub(super) summand_line: usize,
    /// Clamp bounds of the result.
    pub(super) last_clamp: (f32, f32),
}

impl Tiles<'_> {
    /// Moves on by so many channels, whose weights are so many values.
    #[inline(always)]
    pub(super) fn skip(&mut self, channels: usize, weights: usize) {
        self.x = self.x.wrapping_add(channels);
        self.ahead = self.ahead.wrapping_add(channels);
        self.weights = self.weights.wrapping_add(weights);
        self.bias = self.bias.wrapping_add(channels);
        self.to = self.to.wrapping_add(channels);
        self.values = self.values.wrapping_add(channels);
        if !self.summand.is_null() {
            self.summand = self.summand.wrapping_add(channels);
        }
    }
}

pub(super) type TilesFn<S> = unsafe fn(S, &Tiles<'_>);

/// Width and stride of the kernel, if there are tiles made for them, else zeros.
#[inline(always)]
pub(super) fn fixed(shape: &Shape) -> (usize, usize) {
    match (shape.kernel[2], shape.stride[2]) {
        size @ ((3 | 5, 1 | 2) | (7, 1)) if shape.dilation[2] == 1 => size,
        _ => (0, 0),
    }
}

/// Number of rows of a shape's tiles: two where the lines of a row are those of the next one but for one, and where there are registers
/// for as many sums and weights. Kernels of five columns gain nothing.
pub(super) fn rows(shape: &Shape, isa: Isa) -> usize {
    let overlap = (shape.stride[1], shape.dilation[1]) == (1, 1) && shape.kernel[1] > 1 && shape.output[1] > 1;
    if overlap && fixed(shape) == (3, 1) && isa.lanes() == 16 { 2 } else { 1 }
}

/// Function for a shape's tiles of so many rows and places; `whole` if all lanes of its vectors are kept.
pub(super) fn function<S: Simd>(shape: &Shape, rows: usize, places: usize, whole: bool) -> TilesFn<S> {
    macro_rules! among {
        ($($rows:literal $places:literal: $(($width:literal $stride:literal))+;)+) => {
            match (rows, places, fixed(shape), whole) {
                $($(
                    ($rows, $places, ($width, $stride), true) => enter::<S, $width, $stride, $rows, $places, true>,
                    ($rows, $places, ($width, $stride), false) => enter::<S, $width, $stride, $rows, $places, false>,
                )+)+
                _ => unreachable!("tiles are chosen among those there are"),
            }
        };
    }
    among! {
        1 7: (0 0) (3 1) (3 2) (5 1) (5 2) (7 1);
        1 8: (0 0) (3 1) (3 2) (5 1) (5 2) (7 1);
        2 7: (3 1);
        2 8: (3 1);
    }
}

/// # Safety
/// As in [`Tiles`]: the columns inside of the image, weights and lists can be read for all kept channels, and the places
/// written.
unsafe fn enter<S: Simd, const W: usize, const SW: usize, const R: usize, const P: usize, const WHOLE: bool>(
    s: S,
    tiles: &Tiles<'_>,
) {
    s.call(Run::<W, SW, R, P, WHOLE>(tiles));
}

struct Run<'a, const W: usize, const SW: usize, const R: usize, const P: usize, const WHOLE: bool>(&'a Tiles<'a>);

impl<const W: usize, const SW: usize, const R: usize, const P: usize, const WHOLE: bool> Kernel
    for Run<'_, W, SW, R, P, WHOLE>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tiles = self.0;
        let stride = if W > 0 { SW } else { tiles.stride };
        let mut place = 0;
        while place < tiles.count {
            let mut block = 0;
            while block < tiles.blocks {
                // SAFETY: the caller's duty.
                unsafe { self.tile(s, place, place * stride, block) };
                block += 1;
            }
            place += P;
        }
    }
}

impl<const W: usize, const SW: usize, const R: usize, const P: usize, const WHOLE: bool> Run<'_, W, SW, R, P, WHOLE> {
    /// Computes the tile of the places from `place` on, whose first tap is in column `left`, for a vector of channels.
    ///
    /// # Safety
    /// As of [`enter`].
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, place: usize, left: usize, block: usize) {
        let tiles = self.0;
        let channel = block * S::LANES;
        let kept = first(tiles.keep);
        let count = tiles.count - place;
        let inside = (tiles.inside.0 - left as isize, tiles.inside.1 - left as isize);
        let all_inside = W > 0 && inside.0 <= 0 && inside.1 >= ((P - 1) * SW + W) as isize;
        let left = left * tiles.column + channel;
        for line in 0..tiles.ahead_lines {
            let mut p = tiles.ahead.wrapping_add(line * tiles.ahead_line + left);
            for _ in 0..P * SW.max(1) {
                s.prefetch_far(p);
                p = p.wrapping_add(tiles.column);
            }
        }
        let mut sums = [[[s.splat(0.0)]; P]; R];
        // SAFETY: columns `inside` of the lines are in the image, and the lanes of `kept` are channels of it; panels of weights and
        // lists have whole vectors; the rest is the caller's duty.
        unsafe {
            let load = |p: *const f32| if WHOLE { s.load(p) } else { s.load_masked(s.mask(kept), p) };
            let (mut number, end) = tiles.inside_rows;
            let weights = tiles.weights.wrapping_add(block * tiles.panel);
            let mut line = tiles.x.wrapping_add(left);
            while number < end {
                if W > 0 {
                    // Rows of the tile that look at the line.
                    let (above, below) = (R > 1 && number > 0, number < tiles.kernel_rows);
                    let mut factors = [[s.splat(0.0); W]; R];
                    let mut row = 0;
                    while row < R {
                        let weights = weights.wrapping_add(number.wrapping_sub(row).wrapping_mul(W * S::LANES));
                        let looks = if row == 0 { below } else { above };
                        if looks {
                            let mut tap = 0;
                            while tap < W {
                                factors[row][tap] = s.load(weights.wrapping_add(tap * S::LANES));
                                tap += 1;
                            }
                        }
                        row += 1;
                    }
                    macro_rules! add {
                        ($rows:expr, $checked:literal) => {
                            sum_line::<S, W, SW, R, P, $checked>(
                                s,
                                load,
                                (line, tiles.column),
                                inside,
                                $rows,
                                &factors,
                                &mut sums,
                            )
                        };
                    }
                    match (above, below, all_inside) {
                        (false, _, true) => add!((0, 1), false),
                        (false, _, false) => add!((0, 1), true),
                        (true, true, true) => add!((0, R), false),
                        (true, true, false) => add!((0, R), true),
                        (true, false, true) => add!((1, R), false),
                        (true, false, false) => add!((1, R), true),
                    }
                } else {
                    let mut weights = weights.wrapping_add(number * tiles.columns * S::LANES);
                    for tap in 0..tiles.columns {
                        let factor = s.load(weights);
                        for (place, sum) in sums[0].iter_mut().enumerate() {
                            let t = (place * tiles.stride + tap * tiles.dilation) as isize;
                            if t >= inside.0 && t < inside.1 {
                                let value = load(line.wrapping_offset(t * tiles.column as isize));
                                sum[0] = s.fma(value, factor, sum[0]);
                            }
                        }
                        weights = weights.wrapping_add(S::LANES);
                    }
                }
                line = line.wrapping_add(tiles.line);
                number += 1;
            }
            // Only now: sums that begin with a large bias lose their own digits.
            let bias = s.load(tiles.bias.add(channel));
            for sum in sums.as_flattened_mut() {
                sum[0] = s.add(sum[0], bias);
            }
            clamp(s, tiles.clamp, sums.as_flattened_mut());
            if !tiles.steps.is_empty() {
                let after = RowAfter {
                    steps: tiles.steps,
                    values: tiles.values.wrapping_add(channel),
                    summand: std::ptr::null(),
                    row: 0,
                    clamp: tile::NO_CLAMP,
                };
                finish(s, S::LANES, &after, sums.as_flattened_mut());
            }
            if !tiles.summand.is_null() {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let from = tiles.summand.wrapping_add(row * tiles.summand_line + channel);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        if i < count {
                            sum[0] = s.add(sum[0], load(from.wrapping_add((place + i) * tiles.summand_place)));
                        }
                    }
                }
            }
            clamp(s, tiles.last_clamp, sums.as_flattened_mut());
            for (row, sums) in sums.into_iter().enumerate() {
                let to = tiles.to.wrapping_add(row * tiles.to_line + place * tiles.to_place + channel);
                for (i, [sum]) in sums.into_iter().enumerate() {
                    if i < count {
                        let to = to.wrapping_add(i * tiles.to_place);
                        if WHOLE {
                            s.store(to, sum);
                        } else {
                            s.store_first(tiles.keep, to, sum);
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of a line of `W` taps to the sums of `P` places, `SW` columns apart, of some of `R` rows, each with factors of its
/// own. `line` is the address of the first column and the distance between columns; `CHECKED`: only columns `inside` are the image's.
///
/// # Safety
/// The columns can be loaded, those inside if `CHECKED`.
#[inline(always)]
unsafe fn sum_line<S: Simd, const W: usize, const SW: usize, const R: usize, const P: usize, const CHECKED: bool>(
    s: S,
    load: impl Fn(*const f32) -> S::V,
    (line, column): (*const f32, usize),
    inside: (isize, isize),
    (begin, end): (usize, usize),
    factors: &[[S::V; W]; R],
    sums: &mut [[[S::V; 1]; P]; R],
) {
    let is_inside = |t: usize| !CHECKED || (t as isize) >= inside.0 && (t as isize) < inside.1;
    // A column is loaded once for all places that look at it. Spelled out: the compiler leaves a loop of so many
    // columns as it is where each may be outside of the image, with the sums in memory.
    macro_rules! columns {
        ($($t:literal)+) => { $(
            if $t < (P - 1) * SW + W && is_inside($t) {
                let value = load(line.wrapping_add($t * column));
                for row in begin..end {
                    for tap in 0..W {
                        if $t >= tap && ($t - tap) % SW.max(1) == 0 && ($t - tap) / SW.max(1) < P {
                            let sum = &mut sums[row][($t - tap) / SW.max(1)][0];
                            *sum = s.fma(value, factors[row][tap], *sum);
                        }
                    }
                }
            }
        )+ };
    }
    const { assert!((P - 1) * SW + W <= 19) };
    columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
}
