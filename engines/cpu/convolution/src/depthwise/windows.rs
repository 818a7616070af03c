//! Sums of depthwise rows whose input is loaded once: vectors of taps are windows over two neighboring vectors of a line.
//!
//! With a stride of two a line's vectors are pairs, of which one has the places of the last tap, the other those of the tap
//! before it; taps further left are windows over the same vector of the block before and of this one.

use super::rows::{BLOCK, MOST_LINES};
use hipdnn_cpu_simd::isa::{Simd, first};

/// Lines of the input that a block of output rows looks at.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    /// Addresses of the columns 0.
    pub(super) at: &'a [*const f32; MOST_LINES],
    /// Number of columns, and of those of padding before them.
    pub(super) width: usize,
    pub(super) left: usize,
}

/// Vectors of a line: of one, or two parts. The last is for the last tap.
type Parts<V> = [V; 2];

/// Vectors of all lines.
pub(super) type Vectors<V> = [Parts<V>; MOST_LINES];

impl Lines<'_> {
    /// Loads a vector of a line from a column on, which may be before the first; 0 outside of the line.
    ///
    /// # Safety
    /// Line `t` has `width` columns that can be read.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, t: usize, column: isize) -> S::V {
        let before = (-column).clamp(0, S::LANES as isize) as usize;
        let behind = (self.width as isize - column).clamp(0, S::LANES as isize) as usize;
        let mask = s.mask(first(behind) & !first(before));
        // SAFETY: the mask's lanes are columns of the line.
        unsafe { s.load_masked(mask, self.at[t].wrapping_offset(column)) }
    }

    /// Loads the vectors of a line for the outputs from column `q` on.
    ///
    /// # Safety
    /// As for [`Lines::load`].
    #[inline(always)]
    unsafe fn parts<S: Simd, const W: usize, const SW: usize>(&self, s: S, t: usize, q: isize) -> Parts<S::V> {
        let column = q * SW as isize + (W - SW) as isize - self.left as isize;
        // SAFETY: the caller's duty is the same.
        unsafe {
            match SW {
                1 => [s.splat(0.0), self.load(s, t, column)],
                _ => s.unzip(self.load(s, t, column), self.load(s, t, column + S::LANES as isize)).into(),
            }
        }
    }

    /// Vectors that stand before those of the outputs from column 0 on.
    ///
    /// # Safety
    /// The first `(BLOCK - 1) · SH + W` lines can be read.
    #[inline(always)]
    pub(super) unsafe fn before<S: Simd, const W: usize, const SH: usize, const SW: usize>(
        &self,
        s: S,
    ) -> Vectors<S::V> {
        let mut before = [[s.splat(0.0); 2]; MOST_LINES];
        for (t, parts) in before.iter_mut().enumerate().take((BLOCK - 1) * SH + W) {
            // SAFETY: the caller's duty.
            *parts = unsafe { self.parts::<S, W, SW>(s, t, -(S::LANES as isize)) };
        }
        before
    }

    /// Adds the products of a kernel of `W` by `W` taps to the sums of the outputs from column `q` on of each row, and moves
    /// `before` to the next vector's.
    ///
    /// `factors` are the `weights`, a vector of each.
    ///
    /// # Safety
    /// The first `(BLOCK - 1) · SH + W` lines can be read; there are `W²` weights.
    #[inline(always)]
    pub(super) unsafe fn sum<S: Simd, const W: usize, const SH: usize, const SW: usize>(
        &self,
        s: S,
        q: usize,
        weights: *const f32,
        factors: &[[S::V; W]; W],
        before: &mut Vectors<S::V>,
    ) -> [S::V; BLOCK] {
        // One chain of additions for each row leaves the multiply-adds of so many taps waiting.
        let split = W > 3 && SH == 1;
        let mut sums = [s.splat(0.0); BLOCK];
        let mut others = [s.splat(0.0); BLOCK];
        let mut parts = [[s.splat(0.0); 2]; MOST_LINES];
        for (t, parts) in parts.iter_mut().enumerate().take((BLOCK - 1) * SH + W) {
            // SAFETY: the caller's duty.
            *parts = unsafe { self.parts::<S, W, SW>(s, t, q as isize) };
        }
        macro_rules! add {
            ($($tap:literal)+) => { $(
                if $tap < W {
                    let sums = if split && $tap % 2 == 1 { &mut others } else { &mut sums };
                    // The factors of more taps are more than there are registers.
                    let column: [S::V; W] = match W {
                        3 => std::array::from_fn(|r| factors[r][$tap]),
                        // SAFETY: the caller's duty.
                        _ => std::array::from_fn(|r| unsafe { s.splat(*weights.add(r * W + $tap)) }),
                    };
                    add_tap::<S, W, SH, SW, $tap>(s, &column, before, &parts, sums);
                }
            )+ };
        }
        add!(0 1 2 3 4 5 6);
        *before = parts;
        if split {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = s.add(*sum, other);
            }
        }
        sums
    }
}

/// Adds the products of a kernel column, whose factors are given, to the sums.
#[inline(always)]
fn add_tap<S: Simd, const W: usize, const SH: usize, const SW: usize, const TAP: usize>(
    s: S,
    factors: &[S::V; W],
    before: &Vectors<S::V>,
    parts: &Vectors<S::V>,
    sums: &mut [S::V; BLOCK],
) {
    let (part, back) = (1 - (W - 1 - TAP) % SW, (W - 1 - TAP) / SW);
    // Spelled out: the compiler leaves a loop of so many lines as it is, with the sums in memory.
    macro_rules! lines {
        ($($t:literal)+) => { $(
            if $t < (BLOCK - 1) * SH + W {
                let value = if back == 0 { parts[$t][part] } else { s.window(before[$t][part], parts[$t][part], back) };
                for r in 0..W {
                    if $t >= r && ($t - r) % SH == 0 && ($t - r) / SH < BLOCK {
                        sums[($t - r) / SH] = s.fma(value, factors[r], sums[($t - r) / SH]);
                    }
                }
            }
        )+ };
    }
    lines!(0 1 2 3 4 5 6 7 8 9 10);
}
