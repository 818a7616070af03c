//! Pooling along the last dimension, row by row: by way of a row of reduced columns in memory, but for windows of two rows and columns
//! side by side, whose columns have one result each and are reduced in registers.

use std::ops::Range;

use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd, first as first_lanes};

use super::fold::Fold;
use super::{Elements, Part, Windows, put};

/// Number of columns of the image whose reductions are kept together.
pub(super) const COLUMNS: usize = 512;

/// Number of rows of results whose columns are reduced before the first is made of them: a vector that begins within another
/// one waits until that is stored.
const ROWS: usize = 4;

/// Number of results that are computed together; `None` for windows too wide.
pub(super) fn lanes(windows: &Windows) -> Option<usize> {
    let (window, stride) = (windows.window[2], windows.stride[2]);
    (window <= COLUMNS / 2).then(|| (COLUMNS - window) / stride + 1)
}

/// Rows of windows of one channel each, whose columns are contiguous: the elements of each column of the windows are combined
/// first, neighboring columns then.
pub(super) struct ColumnRows<'a> {
    pub(super) part: Part<'a>,
    /// Number of results whose columns are kept together.
    pub(super) lanes: usize,
}

/// Columns of neighboring results, counted from the padding's first.
struct Lanes {
    /// The first result, and their number.
    first: usize,
    count: usize,
    /// Columns of the windows.
    columns: Range<usize>,
    /// Columns inside of the image.
    inside: Range<usize>,
}

/// Rows of the windows of a row of results.
#[derive(Clone, Copy)]
struct Rows {
    /// Elements inside of the image, from the first column of the lanes that is inside on.
    window: Elements,
    /// First result, and the stride between results.
    to: *mut f32,
    step: usize,
    depth: usize,
    height: usize,
}

impl ColumnRows<'_> {
    /// Calls `each` with some columns and some of the rows, at most [`ROWS`].
    #[inline(always)]
    fn each(&self, mut each: impl FnMut(&Lanes, &[Rows])) {
        let Part { windows, x: image, y: results, rows } = &self.part;
        let Windows { large, small, channels, .. } = windows;
        let [depth, height, width] = windows.output;
        let [.., stride_z, stride_y, _] = large.0;
        let (window, stride, pad) = (windows.window[2], windows.stride[2], windows.pad[2]);
        let mut w = 0;
        while w < width {
            let count = self.lanes.min(width - w);
            let begin = w * stride;
            let end = begin + (count - 1) * stride + window;
            let inside = pad.clamp(begin, end);
            let inside = inside..(pad + windows.input[2]).min(end).max(inside);
            let lanes = Lanes { first: w, count, columns: begin..end, inside };
            let window = Elements { first: std::ptr::null(), counts: [0; 3], strides: [0; 3] };
            let mut group = [Rows { window, to: std::ptr::null_mut(), step: 0, depth: 0, height: 0 }; ROWS];
            let (mut held, mut row) = (0, rows.start);
            while row < rows.end {
                // The image's plane, whose places are found once for its rows.
                let (first, plane) = (row % height, row / height);
                let (d, n, c) = (plane % depth, plane / depth / channels, plane / depth % channels);
                let (depths, z) = windows.taps(0, d);
                let x = large.offset([n, c, z, 0, lanes.inside.start.saturating_sub(pad)]);
                let (x, y) = (image.wrapping_add(x), small.offset([n, c, d, 0, w]));
                let y = results.wrapping_add(y);
                let count = (height - first).min(rows.end - row);
                for h in first..first + count {
                    let (heights, top) = windows.taps(1, h);
                    let counts = [depths.len(), heights.len(), 1];
                    let first = x.wrapping_add(top * stride_y);
                    let window = Elements { first, counts, strides: [stride_z, stride_y, 0] };
                    let to = y.wrapping_add(h * small.0[3]);
                    group[held] = Rows { window, to, step: small.0[4], depth: d, height: h };
                    held += 1;
                    if held == ROWS {
                        each(&lanes, &group);
                        held = 0;
                    }
                }
                row += count;
            }
            if held > 0 {
                each(&lanes, &group[..held]);
            }
            w += count;
        }
    }
}

/// Reductions of rows of windows.
pub(super) struct Folded<'a, F> {
    pub(super) rows: ColumnRows<'a>,
    pub(super) fold: F,
}

impl<F: Fold> Kernel for Folded<'_, F> {
    type Output = ();
    const ALIGNED: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Folded { rows, mut fold } = self;
        let windows = rows.part.windows;
        // Vectors are read beyond the last column, whose lanes no result is made of.
        let mut columns = [[fold.around(); COLUMNS + 2 * MAX_LANES]; ROWS];
        let shape = (windows.window[2], windows.stride[2]);
        rows.each(
            #[inline(always)]
            |lanes, group| {
                // Windows inside of the image.
                let is_small = shape == (2, 2) && windows.window[..2] == [1, 2];
                let is_whole = is_small && lanes.inside == lanes.columns;
                let in_registers = |rows: &Rows| is_whole && rows.window.counts[..2] == [1, 2] && rows.step == 1;
                for (rows, columns) in group.iter().zip(&mut columns) {
                    if in_registers(rows) {
                        continue;
                    }
                    let cut = fold.is_cut(windows, &rows.window);
                    let Lanes { columns: all, inside, .. } = lanes;
                    let left = inside.start - all.start;
                    // SAFETY: the columns inside of the image are those from the first on, in each of the rows; there is room behind
                    // them for the last vector, which may have more lanes.
                    unsafe {
                        reduce_columns(s, &fold, &rows.window, inside.len(), cut, columns.as_mut_ptr().add(left));
                    }
                    columns[..left].fill(fold.around());
                    columns[left + inside.len()..all.len()].fill(fold.around());
                }
                for (rows, columns) in group.iter().zip(&columns) {
                    let factors =
                        fold.factors(windows, &rows.window, [rows.depth, rows.height, lanes.first], lanes.count);
                    let (from, count, to) = (Reduced(columns.as_ptr()), lanes.count, (rows.to, rows.step));
                    // SAFETY: the results are the output's, in a row of this unit; where columns are reduced in registers, all of them are
                    // inside of the image, and of fewer than a vector of results no others are read.
                    unsafe {
                        match shape {
                            (2, 2) if in_registers(rows) => {
                                let from = OfTwoRows { first: rows.window.first, stride: rows.window.strides[1] };
                                if count < S::LANES {
                                    let from = Few { rows: from, len: lanes.columns.len() };
                                    slide::<S, F, _, 2, 2>(s, &fold, factors, from, count, to);
                                } else {
                                    slide::<S, F, _, 2, 2>(s, &fold, factors, from, count, to);
                                }
                            }
                            (2, 2) => slide::<S, F, _, 2, 2>(s, &fold, factors, from, count, to),
                            (3, 1) => slide::<S, F, _, 3, 1>(s, &fold, factors, from, count, to),
                            (3, 2) => slide::<S, F, _, 3, 2>(s, &fold, factors, from, count, to),
                            _ => fold_of_columns(s, &fold, factors, columns, lanes.count, shape, to),
                        }
                    }
                }
            },
        );
    }
}

/// Reduces each of `len` columns, from the value around the image if rows are cut off.
///
/// # Safety
/// The elements of so many columns can be read; as many values and a vector can be written.
#[inline(always)]
pub(super) unsafe fn reduce_columns<S: Simd, F: Fold>(
    s: S,
    fold: &F,
    elements: &Elements,
    len: usize,
    cut: bool,
    to: *mut f32,
) {
    let (first, stride) = (elements.first, elements.strides[1]);
    // SAFETY: the caller's promise.
    unsafe {
        match elements.counts {
            [1, 2, _] if !cut => join::<S, F, 2>(s, fold, first, stride, len, to),
            [1, 3, _] if !cut => join::<S, F, 3>(s, fold, first, stride, len, to),
            [1, 5, _] if !cut => join::<S, F, 5>(s, fold, first, stride, len, to),
            _ => {
                let start = s.splat(if cut { fold.around() } else { fold.neutral() });
                let mut i = 0;
                while i < len {
                    let mask = s.mask(first_lanes(S::LANES.min(len - i)));
                    let mut value = start;
                    elements.each(
                        #[inline(always)]
                        |row| value = fold.join(s, value, s.load_masked(mask, row.wrapping_add(i))),
                    );
                    s.store(to.add(i), value);
                    i += S::LANES;
                }
            }
        }
    }
}

/// Reduces `H` rows, column by column.
///
/// # Safety
/// The rows can be read, `len` elements of each; `len` values and a vector can be written.
#[inline(always)]
unsafe fn join<S: Simd, F: Fold, const H: usize>(
    s: S,
    fold: &F,
    first: *const f32,
    stride: usize,
    len: usize,
    to: *mut f32,
) {
    let mut i = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while i + S::LANES <= len {
            let mut value = s.load(first.add(i));
            for h in 1..H {
                value = fold.join(s, value, s.load(first.wrapping_add(h * stride + i)));
            }
            s.store(to.add(i), value);
            i += S::LANES;
        }
        if i < len {
            let mask = s.mask(first_lanes(len - i));
            let mut value = s.load_masked(mask, first.add(i));
            for h in 1..H {
                value = fold.join(s, value, s.load_masked(mask, first.wrapping_add(h * stride + i)));
            }
            s.store(to.add(i), value);
        }
    }
}

/// Columns of windows, reduced.
trait Columns: Copy {
    /// Those of a vector from a column on.
    ///
    /// # Safety
    /// These columns exist.
    unsafe fn at<S: Simd, F: Fold>(self, s: S, fold: &F, column: usize) -> S::V;
}

/// Columns that have been reduced before.
#[derive(Clone, Copy)]
struct Reduced(*const f32);

impl Columns for Reduced {
    #[inline(always)]
    unsafe fn at<S: Simd, F: Fold>(self, s: S, _: &F, column: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load(self.0.wrapping_add(column)) }
    }
}

/// Columns of two rows of the image.
#[derive(Clone, Copy)]
struct OfTwoRows {
    first: *const f32,
    stride: usize,
}

impl Columns for OfTwoRows {
    #[inline(always)]
    unsafe fn at<S: Simd, F: Fold>(self, s: S, fold: &F, column: usize) -> S::V {
        let row = self.first.wrapping_add(column);
        // SAFETY: the caller's promise, for each of the rows.
        unsafe { fold.join(s, s.load(row), s.load(row.wrapping_add(self.stride))) }
    }
}

/// The first columns of two rows, fewer than those of a vector of windows.
#[derive(Clone, Copy)]
struct Few {
    rows: OfTwoRows,
    len: usize,
}

impl Columns for Few {
    #[inline(always)]
    unsafe fn at<S: Simd, F: Fold>(self, s: S, fold: &F, column: usize) -> S::V {
        let mask = s.mask(first_lanes(self.len.saturating_sub(column).min(S::LANES)));
        let row = self.rows.first.wrapping_add(column);
        // SAFETY: the mask's lanes are columns of both rows.
        unsafe { fold.join(s, s.load_masked(mask, row), s.load_masked(mask, row.wrapping_add(self.rows.stride))) }
    }
}

/// Reduces `W` neighboring columns, from every `STRIDE`th on: one or two.
///
/// # Safety
/// The columns of the windows exist, and if the results are fewer than a vector's lanes, as many as those of so many, unless they are
/// [`Few`]; so do factors, and a vector behind them, where the fold has any. The results can be written, `step` apart, which nobody
/// else uses.
#[inline(always)]
unsafe fn slide<S: Simd, F: Fold, C: Columns, const W: usize, const STRIDE: usize>(
    s: S,
    fold: &F,
    factors: *const f32,
    columns: C,
    count: usize,
    (to, step): (*mut f32, usize),
) {
    let mut w = 0;
    loop {
        let from = w * STRIDE;
        // SAFETY: the columns that are read are those of a vector of windows; the caller answers for the results and their factors.
        unsafe {
            let value = if STRIDE == 1 {
                let mut value = columns.at(s, fold, from);
                for tap in 1..W {
                    value = fold.join(s, value, columns.at(s, fold, from + tap));
                }
                value
            } else {
                let [low, high] = [columns.at(s, fold, from), columns.at(s, fold, from + S::LANES)];
                let (even, odd) = s.unzip(low, high);
                let mut value = fold.join(s, even, odd);
                if W > 2 {
                    let [low, high] = [columns.at(s, fold, from + 1), columns.at(s, fold, from + 1 + S::LANES)];
                    value = fold.join(s, value, s.unzip(low, high).1);
                }
                value
            };
            let value = F::finish(s, value, factors.wrapping_add(w));
            if step == 1 && count - w >= S::LANES {
                s.store(to.add(w), value);
            } else {
                put(s, value, S::LANES.min(count - w), to.add(w * step), step);
            }
        }
        w += S::LANES;
        if w >= count {
            return;
        }
        // The last vector ends with the last result, some of which are then computed twice.
        if step == 1 && count - w < S::LANES {
            w = count - S::LANES;
        }
    }
}

/// Reduces `window` neighboring columns, from every `stride`th on.
///
/// # Safety
/// The columns of `lanes` results are in front of the last two vectors' room; where the fold has factors, so many and a vector can be read;
/// the results can be written, which nobody else uses.
#[inline(always)]
unsafe fn fold_of_columns<S: Simd, F: Fold>(
    s: S,
    fold: &F,
    factors: *const f32,
    columns: &[f32; COLUMNS + 2 * MAX_LANES],
    lanes: usize,
    (window, stride): (usize, usize),
    (to, step): (*mut f32, usize),
) {
    let mut w = 0;
    while w < lanes {
        let len = S::LANES.min(lanes - w);
        let from = columns.as_ptr().wrapping_add(w * stride);
        // SAFETY: the first column of each result is within `columns`; a vector from there, or two where every second column
        // is taken, end within it.
        unsafe {
            let value = match stride {
                1 => {
                    let (mut value, mut tap) = (s.load(from), 1);
                    while tap < window {
                        value = fold.join(s, value, s.load(from.add(tap)));
                        tap += 1;
                    }
                    value
                }
                2 => {
                    let (mut value, mut tap) = (s.splat(fold.neutral()), 0);
                    while tap < window {
                        let (even, odd) = s.unzip(s.load(from.add(tap)), s.load(from.add(tap + S::LANES)));
                        value = fold.join(s, value, even);
                        if tap + 1 < window {
                            value = fold.join(s, value, odd);
                        }
                        tap += 2;
                    }
                    value
                }
                _ => {
                    let mut results = [fold.neutral(); MAX_LANES];
                    let mut lane = 0;
                    while lane < len {
                        let mut tap = 0;
                        while tap < window {
                            results[lane] = fold.join_scalars(results[lane], from.add(lane * stride + tap).read());
                            tap += 1;
                        }
                        lane += 1;
                    }
                    s.load(results.as_ptr())
                }
            };
            let value = F::finish(s, value, factors.wrapping_add(w));
            put(s, value, len, to.add(w * step), step);
        }
        w += len;
    }
}
