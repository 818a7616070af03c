//! Reductions of windows in `f32`.

use hipdnn_cpu_simd::isa::{MAX_LANES, Simd};

use super::columns::COLUMNS;
use super::{Elements, Windows, greater};

/// Reduction of windows.
pub(super) trait Fold {
    /// True if results are multiplied by factors: those of [`Fold::factors`].
    const SCALES: bool;

    /// Value of places around the image.
    fn around(&self) -> f32;

    /// Neutral element.
    fn neutral(&self) -> f32;

    /// Reduction of two values.
    fn join<S: Simd>(&self, s: S, one: S::V, other: S::V) -> S::V;

    /// The same of single values.
    fn join_scalars(&self, one: f32, other: f32) -> f32;

    /// Address of the factors of a row of results: `count` of them, at most [`COLUMNS`], from that at a depth, height and column on,
    /// and room for a vector behind them. Their windows have planes and rows inside of the image as [`Elements`] counts. They stay
    /// until the next call.
    fn factors(&mut self, windows: &Windows, elements: &Elements, at: [usize; 3], count: usize) -> *const f32;

    /// True if the value around the image takes part in the reduction of columns, since the image's edge cuts planes or rows off.
    #[inline(always)]
    fn is_cut(&self, windows: &Windows, elements: &Elements) -> bool {
        self.around() != self.neutral() && elements.counts[..2] != windows.window[..2]
    }

    /// Results of windows, from that of the first of these factors on.
    ///
    /// # Safety
    /// Factors, where the fold has them, can be read: those of a vector.
    #[inline(always)]
    unsafe fn finish<S: Simd>(s: S, value: S::V, factors: *const f32) -> S::V {
        // SAFETY: the caller's promise.
        if Self::SCALES { s.mul(value, unsafe { s.load(factors) }) } else { value }
    }

    /// Result of a window.
    ///
    /// # Safety
    /// Factors, where the fold has them, can be read: this one.
    #[inline(always)]
    unsafe fn finish_scalar(value: f32, factor: *const f32) -> f32 {
        // SAFETY: the caller's promise.
        if Self::SCALES { value * unsafe { factor.read() } } else { value }
    }
}

/// Maximum.
pub(super) struct Greatest {
    /// True if 0 counts where something is outside of the image.
    pub(super) zeros: bool,
}

impl Fold for Greatest {
    const SCALES: bool = false;

    #[inline(always)]
    fn around(&self) -> f32 {
        if self.zeros { 0.0 } else { f32::NEG_INFINITY }
    }

    #[inline(always)]
    fn neutral(&self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn join<S: Simd>(&self, s: S, one: S::V, other: S::V) -> S::V {
        greater(s, one, other)
    }

    #[inline(always)]
    fn join_scalars(&self, one: f32, other: f32) -> f32 {
        if (other > one) | other.is_nan() { other } else { one }
    }

    #[inline(always)]
    fn factors(&mut self, _: &Windows, _: &Elements, _: [usize; 3], _: usize) -> *const f32 {
        std::ptr::null()
    }
}

/// Sum over the number of elements.
pub(super) struct Mean {
    /// Inverses of the numbers for the results of two kinds of rows: those cut off by the image's edge, and the others.
    inverses: [Inverses; 2],
    /// The last row's.
    current: usize,
}

/// Inverses of the numbers of elements of a row's windows.
#[derive(Clone, Copy)]
struct Inverses {
    values: [f32; COLUMNS + MAX_LANES],
    /// Number of planes and of rows of a window inside of the image, from which the factors of the axes follow; first result and
    /// number of results, 0 while there are none.
    filled: [usize; 4],
}

impl Default for Mean {
    fn default() -> Mean {
        Mean { inverses: [Inverses { values: [0.0; COLUMNS + MAX_LANES], filled: [0; 4] }; 2], current: 0 }
    }
}

impl Fold for Mean {
    const SCALES: bool = true;

    #[inline(always)]
    fn around(&self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn neutral(&self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn join<S: Simd>(&self, s: S, one: S::V, other: S::V) -> S::V {
        s.add(one, other)
    }

    #[inline(always)]
    fn join_scalars(&self, one: f32, other: f32) -> f32 {
        one + other
    }

    #[inline(always)]
    fn factors(&mut self, windows: &Windows, elements: &Elements, [d, h, w]: [usize; 3], count: usize) -> *const f32 {
        let [depths, heights, _] = elements.counts;
        // One by one: as vectors they would be read before they are written.
        let is_for = |[z, y, first, len]: [usize; 4]| (z == depths) & (y == heights) & (first == w) & (len == count);
        if !is_for(self.inverses[self.current].filled) {
            self.current = 1 - self.current;
        }
        let Inverses { values, filled } = &mut self.inverses[self.current];
        if !is_for(*filled) {
            *filled = [depths, heights, w, count];
            let of_rows = windows.divisor_of(0, d) * windows.divisor_of(1, h);
            for (i, inverse) in values[..count].iter_mut().enumerate() {
                *inverse = (1.0 / (of_rows * windows.divisor_of(2, w + i))) as f32;
            }
        }
        values.as_ptr()
    }
}
