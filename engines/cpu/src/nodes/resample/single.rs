//! Pooling of `f32` without indices, several rows of results in a call: vectors run along the channels where these are
//! contiguous, else along the last dimension.
//!
//! The maximum is found in `f32`. Sums of channels are kept in `f64`, those along the last dimension in `f32`: not for nodes that
//! ask for a wider type.

use std::ops::Range;

use super::forward::Addresses;
use super::{Mode, PER_UNIT, Pooling};
use crate::pointwise::Storage;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first as first_lanes};
use hipdnn_cpu_threads::Pool;

/// Number of columns of the image whose maxima are kept together.
const COLUMNS: usize = 512;

/// Number of rows of results whose columns are reduced before the first is made of them: a vector that begins within another
/// one waits until that is stored.
const ROWS: usize = 4;

/// Number of vectors of channels that are worked on together.
const VECTORS: usize = 4;

/// Number of sums of channels that are kept together.
const SUMS: usize = 32;

/// Vectorized axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// The channels.
    Channels,
    /// The last dimension, with the number of results that are computed together.
    Columns(usize),
}

/// Vectorized axis of a pooling; `None` if it is not computed here.
pub(super) fn axis(pooling: &Pooling) -> Option<Axis> {
    let Pooling { large, small, .. } = pooling;
    if pooling.index.is_some() || large.storage != Storage::F32 || small.storage != Storage::F32 {
        return None;
    }
    let [_, channel, .., column] = large.strides;
    if pooling.channels > 1 && channel == 1 {
        return Some(Axis::Channels);
    }
    let (window, stride) = (pooling.window[2], pooling.stride[2]);
    let is_single = matches!(pooling.mode, Mode::Max { .. }) || !pooling.double;
    let columns = column == 1 && window <= COLUMNS / 2 && is_single;
    columns.then(|| Axis::Columns((COLUMNS - window) / stride + 1))
}

/// Pools along that axis.
///
/// # Safety
/// As [`crate::nodes::LibraryKernel::run`].
pub(super) unsafe fn run(pooling: &Pooling, axis: Axis, pool: &Pool, addresses: &Addresses) {
    let isa = Isa::best();
    let [depth, height, width] = pooling.output;
    let taps: usize = (0..3).map(|axis| pooling.window[axis].min(pooling.input[axis])).product();
    let (planes, of_row) = match axis {
        Axis::Channels => (pooling.batch, width * pooling.channels),
        Axis::Columns(_) => (pooling.batch * pooling.channels, width),
    };
    let rows = planes * depth * height;
    // Units along columns begin with memory of their own to fill.
    let per_unit = if axis == Axis::Channels { PER_UNIT } else { 4 * PER_UNIT };
    let group = (per_unit / (of_row * taps).max(1)).max(1);
    pool.run(rows.div_ceil(group), &|unit| {
        let rows = unit * group..((unit + 1) * group).min(rows);
        match axis {
            Axis::Channels => isa.run(ChannelRows { pooling, addresses, rows }),
            Axis::Columns(lanes) => {
                let rows = ColumnRows { pooling, addresses, rows, lanes };
                match pooling.mode {
                    Mode::Max { zeros } => isa.run(Folded { rows, fold: Greatest { zeros } }),
                    Mode::Average { .. } => isa.run(Folded { rows, fold: Mean::default() }),
                }
            }
        }
    });
}

/// Elements of a window that are inside of the image, in one channel.
#[derive(Clone, Copy)]
struct Window {
    first: *const f32,
    counts: [usize; 3],
    strides: [usize; 3],
}

impl Window {
    /// Calls `take` with each element's address, in the order in which they lie.
    ///
    /// # Safety
    /// The elements are those of a tensor in memory.
    #[inline(always)]
    unsafe fn each(&self, mut take: impl FnMut(*const f32)) {
        let (mut plane, mut z) = (self.first, 0);
        while z < self.counts[0] {
            let (mut row, mut y) = (plane, 0);
            while y < self.counts[1] {
                let (mut place, mut x) = (row, 0);
                while x < self.counts[2] {
                    take(place);
                    place = place.wrapping_add(self.strides[2]);
                    x += 1;
                }
                row = row.wrapping_add(self.strides[1]);
                y += 1;
            }
            plane = plane.wrapping_add(self.strides[0]);
            z += 1;
        }
    }
}

/// Maximum of two, NaN if one is; of equal ones the first.
#[inline(always)]
fn greater<S: Simd>(s: S, one: S::V, other: S::V) -> S::V {
    // The larger, or the second where one is NaN: `one`, which is wrong only where `other` is the NaN.
    s.select(s.nan(other), other, s.max(other, one))
}

/// Rows of windows, of all channels, which are contiguous.
struct ChannelRows<'a> {
    pooling: &'a Pooling,
    addresses: &'a Addresses,
    rows: Range<usize>,
}

impl Kernel for ChannelRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (pooling, Pooling { large, small, channels, .. }) = (self.pooling, self.pooling);
        let [depth, height, width] = pooling.output;
        let [.., stride_z, stride_y, stride_x] = large.strides;
        let step = small.strides[1];
        let mut row = self.rows.start;
        while row < self.rows.end {
            let (h, rest) = (row % height, row / height);
            let (d, n) = (rest % depth, rest / depth);
            row += 1;
            let [(depths, z), (heights, y)] = [pooling.taps(0, d), pooling.taps(1, h)];
            let of_rows = pooling.divisor_of(0, d) * pooling.divisor_of(1, h);
            let mut w = 0;
            while w < width {
                let (widths, x) = pooling.taps(2, w);
                let counts = [depths.len(), heights.len(), widths.len()];
                let at = large.offset([n, 0, z, y, x]);
                let first = self.addresses.x.cast::<f32>().wrapping_add(at);
                let window = Window { first, counts, strides: [stride_z, stride_y, stride_x] };
                let to = self.addresses.y.cast::<f32>().wrapping_add(small.offset([n, 0, d, h, w]));
                // SAFETY: the window's places are inside of the image and the result's is the output's, for all channels;
                // the rows are this unit's.
                unsafe {
                    match pooling.mode {
                        Mode::Max { zeros } => {
                            let outside = zeros && counts != pooling.window;
                            greatest(s, &window, outside, *channels, to, step);
                        }
                        Mode::Average { .. } => {
                            average(&window, of_rows * pooling.divisor_of(2, w), *channels, to, step);
                        }
                    }
                }
                w += 1;
            }
        }
    }
}

/// Computes the maximum of a window, for each channel; 0 counts if something is outside of the image.
///
/// # Safety
/// The window's elements can be read for all channels, and `to`, `to + step`, … be written, which nobody else uses.
#[inline(always)]
unsafe fn greatest<S: Simd>(s: S, window: &Window, outside: bool, channels: usize, to: *mut f32, step: usize) {
    let mut c = 0;
    while c < channels {
        let mut values = [s.splat(f32::NEG_INFINITY); VECTORS];
        if c + VECTORS * S::LANES <= channels && step == 1 {
            // SAFETY: these channels exist, for which the caller answers.
            unsafe {
                window.each(
                    #[inline(always)]
                    |place| {
                        let mut v = 0;
                        while v < VECTORS {
                            values[v] = greater(s, values[v], s.load(place.add(c + v * S::LANES)));
                            v += 1;
                        }
                    },
                );
                let mut v = 0;
                while v < VECTORS {
                    let value = if outside { greater(s, values[v], s.splat(0.0)) } else { values[v] };
                    s.store(to.add(c + v * S::LANES), value);
                    v += 1;
                }
            }
            c += VECTORS * S::LANES;
            continue;
        }
        let len = S::LANES.min(channels - c);
        let mask = s.mask(first_lanes(len));
        let [mut value, ..] = values;
        // SAFETY: the mask's lanes are channels that exist, for which the caller answers.
        unsafe {
            window.each(
                #[inline(always)]
                |place| value = greater(s, value, s.load_masked(mask, place.add(c))),
            );
            if outside {
                value = greater(s, value, s.splat(0.0));
            }
            put(s, value, len, to.wrapping_add(c * step), step);
        }
        c += len;
    }
}

/// Writes the first lanes of a vector, each `step` behind the one before it.
///
/// # Safety
/// These places can be written.
#[inline(always)]
unsafe fn put<S: Simd>(s: S, value: S::V, len: usize, to: *mut f32, step: usize) {
    if step == 1 {
        // SAFETY: the caller's promise; only these lanes are written.
        return unsafe { s.store_first(len, to, value) };
    }
    let mut lanes = [0f32; MAX_LANES];
    // SAFETY: the array takes the widest vector; the caller answers for the places.
    unsafe {
        s.store(lanes.as_mut_ptr(), value);
        let mut lane = 0;
        while lane < len {
            to.add(lane * step).write(lanes[lane]);
            lane += 1;
        }
    }
}

/// Computes the sum of a window's elements over the divisor, for each channel.
///
/// # Safety
/// As [`greatest`].
#[inline(always)]
unsafe fn average(window: &Window, divisor: f64, channels: usize, to: *mut f32, step: usize) {
    let mut c = 0;
    while c < channels {
        let len = SUMS.min(channels - c);
        let mut sums = [0f64; SUMS];
        // SAFETY: these channels exist, for which the caller answers.
        unsafe {
            if len == SUMS {
                window.each(
                    #[inline(always)]
                    |place| {
                        for (i, sum) in sums.iter_mut().enumerate() {
                            *sum += f64::from(place.add(c + i).read());
                        }
                    },
                );
            } else {
                window.each(
                    #[inline(always)]
                    |place| {
                        for (i, sum) in sums[..len].iter_mut().enumerate() {
                            *sum += f64::from(place.add(c + i).read());
                        }
                    },
                );
            }
            let to = to.wrapping_add(c * step);
            if step == 1 {
                for (i, sum) in sums[..len].iter().enumerate() {
                    to.add(i).write((sum / divisor) as f32);
                }
            } else {
                for (i, sum) in sums[..len].iter().enumerate() {
                    to.add(i * step).write((sum / divisor) as f32);
                }
            }
        }
        c += len;
    }
}

/// Rows of windows of one channel each, whose columns are contiguous: the elements of each column of the windows are combined
/// first, neighboring columns then.
struct ColumnRows<'a> {
    pooling: &'a Pooling,
    addresses: &'a Addresses,
    rows: Range<usize>,
    /// Number of results whose columns are kept together.
    lanes: usize,
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
    window: Window,
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
        let (pooling, Pooling { large, small, channels, .. }) = (self.pooling, self.pooling);
        let [depth, height, width] = pooling.output;
        let [.., stride_z, stride_y, _] = large.strides;
        let (window, stride, pad) = (pooling.window[2], pooling.stride[2], pooling.pad[2]);
        let mut w = 0;
        while w < width {
            let count = self.lanes.min(width - w);
            let begin = w * stride;
            let end = begin + (count - 1) * stride + window;
            let inside = pad.clamp(begin, end);
            let inside = inside..(pad + pooling.input[2]).min(end).max(inside);
            let lanes = Lanes { first: w, count, columns: begin..end, inside };
            // Image, channel, depth and row of the results: counted, as quotients of each would take as long as a few vectors.
            let (row, rest) = (self.rows.start % height, self.rows.start / height);
            let (mut n, mut c, mut d, mut h) = (rest / depth / channels, rest / depth % channels, rest % depth, row);
            let window = Window { first: std::ptr::null(), counts: [0; 3], strides: [0; 3] };
            let mut group = [Rows { window, to: std::ptr::null_mut(), step: 0, depth: 0, height: 0 }; ROWS];
            let mut held = 0;
            for _ in self.rows.clone() {
                let [(depths, z), (heights, y)] = [pooling.taps(0, d), pooling.taps(1, h)];
                let first = large.offset([n, c, z, y, lanes.inside.start.saturating_sub(pad)]);
                let first = self.addresses.x.cast::<f32>().wrapping_add(first);
                let counts = [depths.len(), heights.len(), 1];
                let window = Window { first, counts, strides: [stride_z, stride_y, 0] };
                let to = self.addresses.y.cast::<f32>().wrapping_add(small.offset([n, c, d, h, w]));
                group[held] = Rows { window, to, step: small.strides[4], depth: d, height: h };
                held += 1;
                if held == ROWS {
                    each(&lanes, &group);
                    held = 0;
                }
                h += 1;
                if h == height {
                    (h, d) = (0, d + 1);
                }
                if d == depth {
                    (d, c) = (0, c + 1);
                }
                if c == *channels {
                    (c, n) = (0, n + 1);
                }
            }
            if held > 0 {
                each(&lanes, &group[..held]);
            }
            w += count;
        }
    }
}

/// Reduction of windows in `f32`.
trait Fold {
    /// Value of places around the image.
    fn around(&self) -> f32;

    /// Neutral element.
    fn neutral(&self) -> f32;

    /// Prepares for a row of results: those of `lanes`.
    fn begin(&mut self, pooling: &Pooling, lanes: &Lanes, rows: &Rows);

    /// Reduction of two values.
    fn join<S: Simd>(&self, s: S, one: S::V, other: S::V) -> S::V;

    /// The same of single values.
    fn join_scalars(&self, one: f32, other: f32) -> f32;

    /// Results of windows, from that number of the row on, of which some may be beyond its end.
    fn finish<S: Simd>(&self, s: S, value: S::V, first: usize) -> S::V;
}

/// Maximum.
struct Greatest {
    /// True if 0 counts where something is outside of the image.
    zeros: bool,
}

impl Fold for Greatest {
    #[inline(always)]
    fn around(&self) -> f32 {
        if self.zeros { 0.0 } else { f32::NEG_INFINITY }
    }

    #[inline(always)]
    fn neutral(&self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn begin(&mut self, _: &Pooling, _: &Lanes, _: &Rows) {}

    #[inline(always)]
    fn join<S: Simd>(&self, s: S, one: S::V, other: S::V) -> S::V {
        greater(s, one, other)
    }

    #[inline(always)]
    fn join_scalars(&self, one: f32, other: f32) -> f32 {
        if (other > one) | other.is_nan() { other } else { one }
    }

    #[inline(always)]
    fn finish<S: Simd>(&self, _: S, value: S::V, _: usize) -> S::V {
        value
    }
}

/// Sum over the number of elements.
struct Mean {
    /// Inverses of the numbers for the results of two kinds of rows: those cut off by the image's edge, and the others.
    inverses: [Inverses; 2],
    /// The row's.
    current: usize,
}

/// Inverses of the numbers of elements of a row's windows.
#[derive(Clone, Copy)]
struct Inverses {
    values: [f32; COLUMNS + MAX_LANES],
    /// First result, and the other axes' part of the numbers.
    filled: Option<(usize, f64)>,
}

impl Default for Mean {
    fn default() -> Mean {
        Mean { inverses: [Inverses { values: [0.0; COLUMNS + MAX_LANES], filled: None }; 2], current: 0 }
    }
}

impl Fold for Mean {
    #[inline(always)]
    fn around(&self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn neutral(&self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn begin(&mut self, pooling: &Pooling, lanes: &Lanes, rows: &Rows) {
        let of_rows = pooling.divisor_of(0, rows.depth) * pooling.divisor_of(1, rows.height);
        let wanted = Some((lanes.first, of_rows));
        if self.inverses[self.current].filled == wanted {
            return;
        }
        self.current = 1 - self.current;
        let Inverses { values, filled } = &mut self.inverses[self.current];
        if *filled != wanted {
            *filled = wanted;
            for (i, inverse) in values[..lanes.count].iter_mut().enumerate() {
                *inverse = (1.0 / (of_rows * pooling.divisor_of(2, lanes.first + i))) as f32;
            }
        }
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
    fn finish<S: Simd>(&self, s: S, value: S::V, first: usize) -> S::V {
        // SAFETY: behind the inverses of a row's results there is room for a vector.
        s.mul(value, unsafe { s.load(self.inverses[self.current].values[first..].as_ptr()) })
    }
}

/// Reductions of rows of windows.
struct Folded<'a, F> {
    rows: ColumnRows<'a>,
    fold: F,
}

impl<F: Fold> Kernel for Folded<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Folded { rows, mut fold } = self;
        let pooling = rows.pooling;
        // Vectors are read beyond the last column, whose lanes no result is made of.
        let mut columns = [[fold.around(); COLUMNS + 2 * MAX_LANES]; ROWS];
        let shape = (pooling.window[2], pooling.stride[2]);
        rows.each(
            #[inline(always)]
            |lanes, group| {
                for (rows, columns) in group.iter().zip(&mut columns) {
                    let cut = fold.around() != fold.neutral() && rows.window.counts[..2] != pooling.window[..2];
                    // SAFETY: the columns inside of the image are those from the first on, in each of the rows.
                    unsafe { fold_of_rows(s, &fold, &rows.window, lanes, cut, columns) };
                }
                for (rows, columns) in group.iter().zip(&columns) {
                    fold.begin(pooling, lanes, rows);
                    let (from, count, to) = (columns.as_ptr(), lanes.count, rows.to);
                    // SAFETY: the results are the output's, in a row of this unit.
                    unsafe {
                        match shape {
                            (2, 2) => slide::<S, F, 2, 2>(s, &fold, from, count, to, rows.step),
                            (3, 1) => slide::<S, F, 3, 1>(s, &fold, from, count, to, rows.step),
                            (3, 2) => slide::<S, F, 3, 2>(s, &fold, from, count, to, rows.step),
                            _ => fold_of_columns(s, &fold, columns, count, shape, to, rows.step),
                        }
                    }
                }
            },
        );
    }
}

/// Reduces each column, from the value around the image if rows are cut off.
///
/// # Safety
/// The rows can be read, as many elements of each as there are columns inside of the image.
#[inline(always)]
unsafe fn fold_of_rows<S: Simd, F: Fold>(
    s: S,
    fold: &F,
    rows: &Window,
    lanes: &Lanes,
    cut: bool,
    columns: &mut [f32; COLUMNS + 2 * MAX_LANES],
) {
    let Lanes { columns: all, inside, .. } = lanes;
    let left = inside.start - all.start;
    let (first, stride, to) = (rows.first, rows.strides[1], columns.as_mut_ptr().wrapping_add(left));
    // SAFETY: the caller's promise; there is room behind the columns for the last vector, which may have more lanes.
    unsafe {
        match rows.counts {
            [1, 2, _] if !cut => join::<S, F, 2>(s, fold, first, stride, inside.len(), to),
            [1, 3, _] if !cut => join::<S, F, 3>(s, fold, first, stride, inside.len(), to),
            _ => {
                let start = s.splat(if cut { fold.around() } else { fold.neutral() });
                let mut i = 0;
                while i < inside.len() {
                    let mask = s.mask(first_lanes(S::LANES.min(inside.len() - i)));
                    let mut value = start;
                    rows.each(
                        #[inline(always)]
                        |row| value = fold.join(s, value, s.load_masked(mask, row.wrapping_add(i))),
                    );
                    s.store(to.add(i), value);
                    i += S::LANES;
                }
            }
        }
    }
    columns[..left].fill(fold.around());
    columns[left + inside.len()..all.len()].fill(fold.around());
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

/// Reduces `W` neighboring columns, from every `STRIDE`th on: one or two.
///
/// # Safety
/// As [`fold_of_columns`].
#[inline(always)]
unsafe fn slide<S: Simd, F: Fold, const W: usize, const STRIDE: usize>(
    s: S,
    fold: &F,
    columns: *const f32,
    lanes: usize,
    to: *mut f32,
    step: usize,
) {
    let mut w = 0;
    loop {
        let from = columns.wrapping_add(w * STRIDE);
        // SAFETY: a vector from the last result's first column on, or two where every second column is taken, end within
        // the columns; the caller answers for the results.
        unsafe {
            let value = if STRIDE == 1 {
                let mut value = s.load(from);
                for tap in 1..W {
                    value = fold.join(s, value, s.load(from.add(tap)));
                }
                value
            } else {
                let (even, odd) = s.unzip(s.load(from), s.load(from.add(S::LANES)));
                let mut value = fold.join(s, even, odd);
                if W > 2 {
                    let third = from.add(2);
                    value = fold.join(s, value, s.unzip(s.load(third), s.load(third.add(S::LANES))).0);
                }
                value
            };
            let value = fold.finish(s, value, w);
            if step == 1 && lanes - w >= S::LANES {
                s.store(to.add(w), value);
            } else {
                put(s, value, S::LANES.min(lanes - w), to.add(w * step), step);
            }
        }
        w += S::LANES;
        if w >= lanes {
            return;
        }
        // The last vector ends with the last result, some of which are then computed twice.
        if step == 1 && lanes - w < S::LANES {
            w = lanes - S::LANES;
        }
    }
}

/// Reduces `window` neighboring columns, from every `stride`th on.
///
/// # Safety
/// The columns of `lanes` results are in front of the last two vectors' room; the results can be written, which nobody else
/// uses.
#[inline(always)]
unsafe fn fold_of_columns<S: Simd, F: Fold>(
    s: S,
    fold: &F,
    columns: &[f32; COLUMNS + 2 * MAX_LANES],
    lanes: usize,
    (window, stride): (usize, usize),
    to: *mut f32,
    step: usize,
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
            put(s, fold.finish(s, value, w), len, to.add(w * step), step);
        }
        w += len;
    }
}
