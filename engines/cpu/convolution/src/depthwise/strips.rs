//! Depthwise sums of a strip, a vector of columns of some output rows: a walk down the rows of the input, each of which is loaded
//! once, for all kernel rows that look at it.
//!
//! The sums of the output rows that look at the same input row are in registers: one begins with its first kernel row, and is stored
//! behind its last.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use hipdnn_cpu_simd::isa::{Simd, first};
use hipdnn_cpu_simd::scratch;

/// Values of a cache line.
pub(super) const LINE: usize = scratch::LINE / size_of::<f32>();

/// Maximum number of loads of a row.
const MOST_LOADS: usize = 7;

/// Places, from the first tap's column on, of the loads of a row for a kernel of `taps` columns of stride 1 or 2: one for each tap, or
/// two that follow each other for each pair of taps.
pub(super) fn loads(taps: usize, stride: usize, lanes: usize) -> impl Iterator<Item = usize> {
    (0..taps + stride - 1).map(move |load| if stride == 1 { load } else { load / 2 * 2 + load % 2 * lanes })
}

/// Columns of the input that a strip looks at.
pub(super) struct Columns {
    /// Address of the first tap's column in row 0, stride between rows, and number of rows.
    pub(super) at: *const f32,
    pub(super) line: usize,
    pub(super) height: usize,
    /// Distance of the value to prefetch from the first tap's column; 0 for none.
    pub(super) ahead: usize,
    /// Mask of each load, see [`loads`]; null if all that the taps look at is inside of the image.
    pub(super) masks: *const u32,
}

/// Rows of a strip.
pub(super) struct Rows {
    /// Row of the input that the first kernel row looks at for the first output row, which may be outside of the image.
    pub(super) top: isize,
    /// Number of output rows.
    pub(super) count: usize,
    /// Destination of the first one, and stride between rows.
    pub(super) to: *mut f32,
    pub(super) pitch: usize,
}

/// Vectors of the weights, row by row, of the bias, and of the clamp bounds of the biased sums.
pub(super) struct Factors<V> {
    pub(super) weights: *const f32,
    pub(super) bias: V,
    pub(super) clamp: (V, V),
}

impl Columns {
    /// Writes a strip's biased and clamped sums.
    ///
    /// # Safety
    /// In the rows of the image that the strip looks at, the columns of the masks' lanes, without masks all that the taps look at, can
    /// be read, and so can a vector for each weight; there is a mask for each load of [`loads`]; a vector can be written for each
    /// output row.
    #[inline(always)]
    pub(super) unsafe fn walk<S: Simd, const W: usize, const SH: usize, const SW: usize>(
        &self,
        s: S,
        factors: &Factors<S::V>,
        rows: Rows,
    ) {
        if self.masks.is_null() {
            // SAFETY: the caller's duty is the same.
            unsafe { self.walk_masked::<S, W, SH, SW>(s, factors, rows, None) };
            return;
        }
        let mut masks = [s.mask(0); MOST_LOADS];
        for load in 0..W + SW - 1 {
            // SAFETY: there is a mask for each load.
            masks[load] = s.mask(unsafe { *self.masks.wrapping_add(load) });
        }
        // The compiler would make vectors from the bits in every row.
        let masks = std::hint::black_box(masks);
        // SAFETY: the caller's duty is the same.
        unsafe { self.walk_masked::<S, W, SH, SW>(s, factors, rows, Some(&masks)) };
    }

    /// # Safety
    /// As for [`Columns::walk`].
    #[inline(always)]
    unsafe fn walk_masked<S: Simd, const W: usize, const SH: usize, const SW: usize>(
        &self,
        s: S,
        factors: &Factors<S::V>,
        rows: Rows,
        masks: Option<&[S::M; MOST_LOADS]>,
    ) {
        // Number of output rows that begin before one is complete, of which the first is the last of the sums.
        let depth = (W - 1) / SH;
        let mut kept = [[s.splat(0.0); W]; W];
        for weight in 0..kept_weights::<S, W>() {
            // SAFETY: there is a vector for each weight.
            kept[weight / W][weight % W] = unsafe { s.load(factors.weights.wrapping_add(weight * S::LANES)) };
        }
        let begun = [factors.bias, s.splat(0.0)];
        let mut sums = [begun; W];
        let top = rows.top;
        let mut x = self.at.wrapping_offset(top.wrapping_mul(self.line as isize));
        let mut to = rows.to;
        // A step are the rows of the input that an output row looks at before the next one does; the first row completes a sum.
        let steps = rows.count + depth;
        let height = self.height as isize;
        let inside = |input: isize| input >= 0 && input < height;
        macro_rules! step {
            ($checked:literal $step:expr) => {
                let input = top + ($step * SH) as isize;
                if !$checked || inside(input) {
                    // SAFETY: the caller's duty, the row being inside of the image.
                    unsafe {
                        add::<S, W, SH, 0>(s, &self.load::<S, W, SW>(s, x, masks), &kept, factors.weights, &mut sums)
                    };
                }
                self.prefetch::<S, SW>(s, x);
                x = x.wrapping_add(self.line);
                if !$checked || $step >= depth {
                    let (low, high) = factors.clamp;
                    let [sum, other] = sums[depth];
                    let sum = if chains::<S>() == 2 { s.add(sum, other) } else { sum };
                    // SAFETY: the caller's duty.
                    unsafe { s.store(to, ordered::<S, SW>(s, s.min(high, s.max(low, sum)))) };
                    to = to.wrapping_add(rows.pitch);
                }
                if SH == 2 {
                    if !$checked || ($step + 1 < steps && inside(input + 1)) {
                        // SAFETY: the caller's duty, the row being inside of the image.
                        unsafe {
                            add::<S, W, SH, 1>(
                                s,
                                &self.load::<S, W, SW>(s, x, masks),
                                &kept,
                                factors.weights,
                                &mut sums,
                            )
                        };
                    }
                    self.prefetch::<S, SW>(s, x);
                    x = x.wrapping_add(self.line);
                }
                sums = shifted::<S, W>(&sums, begun);
            };
        }
        // Steps of whole rows that complete a sum.
        let begin = ((-top).max(0) as usize).div_ceil(SH).max(depth).min(steps);
        let end = (((height - top).max(0) as usize) / SH).min(steps + 1 - SH).max(begin);
        let mut step = 0;
        while step < begin {
            step!(true step);
            step += 1;
        }
        // Two in a round, with half the branches.
        while S::LANES == 16 && SH * SW == 1 && step + 2 <= end {
            step!(false step);
            step!(false step + 1);
            step += 2;
        }
        while step < end {
            step!(false step);
            step += 1;
        }
        while step < steps {
            step!(true step);
            step += 1;
        }
    }

    /// Asks for the strip's columns of the row that is `ahead` of one whose first tap's address is given.
    #[inline(always)]
    fn prefetch<S: Simd, const SW: usize>(&self, s: S, x: *const f32) {
        // A request for a line that has come costs less than a branch beside each step of a cache line.
        if S::LANES * SW == LINE || self.ahead > 0 {
            for column in (0..SW * S::LANES).step_by(LINE) {
                s.prefetch(x.wrapping_add(self.ahead + column));
            }
        }
    }

    /// Loads the values of the taps of a row, from the first one's address on.
    ///
    /// # Safety
    /// As for [`Columns::walk`], the row being inside of the image.
    #[inline(always)]
    unsafe fn load<S: Simd, const W: usize, const SW: usize>(
        &self,
        s: S,
        x: *const f32,
        masks: Option<&[S::M; MOST_LOADS]>,
    ) -> [S::V; W] {
        let mut values = [s.splat(0.0); W];
        for tap in 0..W {
            let p = x.wrapping_add(tap);
            // SAFETY: the caller's duty.
            unsafe {
                match (SW, masks) {
                    (1, None) => values[tap] = s.load(p),
                    (1, Some(masks)) => values[tap] = s.load_masked(masks[tap], p),
                    // An odd tap is loaded with the one before it.
                    _ if tap % 2 == 1 => {}
                    // Two vectors have a place behind those of the last tap.
                    (_, None) if tap + 1 == W => values[tap] = s.load_even_unordered(first(S::LANES), p),
                    _ => {
                        let next = p.wrapping_add(S::LANES);
                        let (even, odd) = match masks {
                            None => s.unzip_unordered(s.load(p), s.load(next)),
                            Some(masks) => {
                                s.unzip_unordered(s.load_masked(masks[tap], p), s.load_masked(masks[tap + 1], next))
                            }
                        };
                        values[tap] = even;
                        if tap + 1 < W {
                            values[tap + 1] = odd;
                        }
                    }
                }
            }
        }
        values
    }
}

/// Number of weights, the first ones, that are loaded once for a strip: of those that find no register the compiler makes copies on the
/// stack, across the ends of cache lines in most processes, as with eight lanes of a few of nine.
const fn kept_weights<S: Simd, const W: usize>() -> usize {
    match (S::LANES, W) {
        (_, 3) => 9,
        (16, 5) => 10,
        (16, 7) | (8, 5) => 5,
        _ => 0,
    }
}

/// Adds the products of a row's values to the sums of the output rows that look at it, the row being the `PHASE`th of a step.
///
/// # Safety
/// A vector can be read for each weight.
#[inline(always)]
unsafe fn add<S: Simd, const W: usize, const SH: usize, const PHASE: usize>(
    s: S,
    values: &[S::V; W],
    kept: &[[S::V; W]; W],
    weights: *const f32,
    sums: &mut [[S::V; 2]; W],
) {
    macro_rules! kernel_rows {
        ($($r:literal)+) => { $(
            if $r < W && $r % SH == PHASE {
                for tap in 0..W {
                    let number = $r * W + tap;
                    let weight = match number < kept_weights::<S, W>() {
                        true => kept[$r][tap],
                        // SAFETY: the caller's duty.
                        false => unsafe { s.load(weights.wrapping_add(number * S::LANES)) },
                    };
                    let sum = &mut sums[$r / SH][$r % chains::<S>()];
                    *sum = s.fma(values[tap], weight, *sum);
                }
            }
        )+ };
    }
    kernel_rows!(0 1 2 3 4 5 6);
}

/// Chains of additions of an output: with sixteen lanes one of them is too long for the instructions that a CPU has in flight.
const fn chains<S: Simd>() -> usize {
    if S::LANES == 16 { 2 } else { 1 }
}

/// Sums moved on by one, a new one first.
#[inline(always)]
fn shifted<S: Simd, const W: usize>(sums: &[[S::V; 2]; W], begun: [S::V; 2]) -> [[S::V; 2]; W] {
    let mut moved = [begun; W];
    macro_rules! places {
        ($($place:literal)+) => { $(
            if $place < W {
                moved[$place] = sums[$place - 1];
            }
        )+ };
    }
    places!(1 2 3 4 5 6);
    moved
}

/// Sums in the order of their places.
#[inline(always)]
fn ordered<S: Simd, const SW: usize>(s: S, sums: S::V) -> S::V {
    if SW == 1 { sums } else { s.ordered(sums) }
}
