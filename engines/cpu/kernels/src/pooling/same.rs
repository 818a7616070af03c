//! Pooling along the last dimension with padding that keeps the rows' length. Rows that follow each other in memory are reduced as one:
//! column by column, and then neighboring columns. What that makes of columns of two rows is written over.

use std::ops::Range;

use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd};

use super::columns::{COLUMNS, reduce_columns};
use super::fold::Fold;
use super::{Elements, Part, Windows};

/// Number of columns of several rows whose reductions are kept together.
const KEPT: usize = 2048;

/// Maximum extent of a window: that of the room around the columns that are kept.
const WIDEST: usize = 32;

/// True if windows reduce rows to rows of the same length, one behind the other in memory.
pub(super) fn is_same(windows: &Windows) -> bool {
    let Windows { large, small, input, output, window, stride, pad, .. } = windows;
    let [[.., of_large, _], [.., of_small, column]] = [large.0, small.0];
    let width = input[2];
    let fits = window[2] <= width.min(WIDEST) && pad[2] < window[2] && width <= COLUMNS;
    let is_whole = (of_large == width && of_small == width) || output[1] == 1;
    stride[2] == 1 && output[2] == width && column == 1 && fits && is_whole
}

/// Rows of windows of one channel each.
pub(super) struct SameRows<'a, F> {
    pub(super) part: Part<'a>,
    pub(super) fold: F,
}

impl<F: Fold> Kernel for SameRows<'_, F> {
    type Output = ();
    const ALIGNED: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let SameRows { part: Part { windows, x, y, rows }, mut fold } = self;
        let Windows { large, small, channels, .. } = windows;
        let ([depth, height, width], [.., stride_z, stride_y, _]) = (windows.output, large.0);
        let mut kept = [fold.around(); WIDEST + KEPT + WIDEST + MAX_LANES];
        let mut row = rows.start;
        while row < rows.end {
            let (h, plane) = (row % height, row / height);
            let (d, n, c) = (plane % depth, plane / depth / channels, plane / depth % channels);
            let [(depths, z), (heights, top)] = [windows.taps(0, d), windows.taps(1, h)];
            // Rows with as many elements inside of the image, each a row of it further down.
            let (mut count, most) = (1, (KEPT / width).min(height - h).min(rows.end - row));
            while count < most && windows.taps(1, h + count) == (heights.clone(), top + count) {
                count += 1;
            }
            let from = x.wrapping_add(large.offset([n, c, z, top, 0]));
            let elements =
                Elements { first: from, counts: [depths.len(), heights.len(), 1], strides: [stride_z, stride_y, 0] };
            let factors = fold.factors(windows, &elements, [d, h, 0], width);
            let to = y.wrapping_add(small.offset([n, c, d, h, 0]));
            // SAFETY: so many rows of the image and of the results follow each other, and the results are this unit's.
            unsafe {
                let cut = fold.is_cut(windows, &elements);
                let columns = kept.as_mut_ptr().add(WIDEST);
                reduce_columns(s, &fold, &elements, count * width, cut, columns);
                let rows = Rows { columns, count, width, pad: windows.pad[2], window: windows.window[2] };
                match rows.window {
                    2 => rows.across::<S, F, 2>(s, &fold, factors, to),
                    3 => rows.across::<S, F, 3>(s, &fold, factors, to),
                    5 => rows.across::<S, F, 5>(s, &fold, factors, to),
                    _ => rows.across::<S, F, 0>(s, &fold, factors, to),
                }
                rows.edges(&fold, factors, to);
            }
            row += count;
        }
    }
}

/// Reduced columns of rows, one behind the other.
struct Rows {
    columns: *const f32,
    count: usize,
    width: usize,
    pad: usize,
    /// Number of neighboring columns that a result is made of.
    window: usize,
}

impl Rows {
    /// Reduces neighboring columns for all results, those at the edges of rows wrongly; `W` is their number if that is not 0.
    ///
    /// # Safety
    /// There are columns of all rows, with room for [`WIDEST`] before and that and a vector behind them, and factors of a row where the
    /// fold has any; the results can be written, which nobody else uses.
    #[inline(always)]
    unsafe fn across<S: Simd, F: Fold, const W: usize>(&self, s: S, fold: &F, factors: *const f32, to: *mut f32) {
        let (window, len) = (if W > 0 { W } else { self.window }, self.count * self.width);
        // SAFETY: the caller's promise; the window of a result begins at most its extent before it.
        unsafe {
            // The factor of all results that are not at an edge.
            let factor = if F::SCALES { factors.add(self.pad).read() } else { 1.0 };
            let factor = s.splat(factor);
            let mut i = 0;
            while i < len {
                let from = self.columns.wrapping_add(i).wrapping_sub(self.pad);
                let mut value = s.load(from);
                for tap in 1..window {
                    value = fold.join(s, value, s.load(from.add(tap)));
                }
                if F::SCALES {
                    value = s.mul(value, factor);
                }
                if i + S::LANES <= len {
                    s.store(to.add(i), value);
                } else {
                    s.store_first(len - i, to.add(i), value);
                }
                i += S::LANES;
            }
        }
    }

    /// Reduces neighboring columns for the results at the edges of rows.
    ///
    /// # Safety
    /// As [`Rows::across`].
    #[inline(always)]
    unsafe fn edges<F: Fold>(&self, fold: &F, factors: *const f32, to: *mut f32) {
        let Rows { columns, count, width, pad, window } = *self;
        let after = window - 1 - pad;
        // SAFETY: the caller's promise.
        unsafe {
            for row in 0..count {
                let (columns, to) = (columns.add(row * width), to.add(row * width));
                for at in 0..pad {
                    let value = Rows::edge(fold, fold.around(), columns, 0..at + window - pad);
                    to.add(at).write(F::finish_scalar(value, factors.wrapping_add(at)));
                }
                for at in width - after..width {
                    let value =
                        fold.join_scalars(Rows::edge(fold, fold.neutral(), columns, at - pad..width), fold.around());
                    to.add(at).write(F::finish_scalar(value, factors.wrapping_add(at)));
                }
            }
        }
    }

    /// Reduction of a value and of the columns of a window that are inside of the image.
    ///
    /// # Safety
    /// The columns can be read.
    #[inline(always)]
    unsafe fn edge<F: Fold>(fold: &F, mut value: f32, columns: *const f32, inside: Range<usize>) -> f32 {
        for column in inside {
            // SAFETY: the caller's promise.
            value = fold.join_scalars(value, unsafe { columns.add(column).read() });
        }
        value
    }
}
