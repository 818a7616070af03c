//! Pooling of `f32`, several rows of results in a call: vectors run along the channels where these are contiguous, else along the
//! last dimension. There rows that padding keeps at their length are reduced as one, others each by itself.
//!
//! The maximum is found in `f32`. Sums of channels are kept in `f64`, those along the last dimension in `f32`.

mod channels;
mod columns;
mod fold;
mod same;

use std::ops::Range;

use hipdnn_cpu_simd::isa::{Isa, MAX_LANES, Simd};
use hipdnn_cpu_threads::Pool;

use channels::ChannelRows;
use columns::{ColumnRows, Folded};
use fold::{Greatest, Mean};
use same::SameRows;

/// Number of elements below which waking another thread costs more than it saves.
pub const PER_UNIT: usize = 16 * 1024;

/// Reduction of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Maximum; zeros around the image count if that is set.
    Max {
        /// True if the zeros around the image count.
        zeros: bool,
    },
    /// Average; zeros around the image count if that is set.
    Average {
        /// True if the zeros around the image count.
        zeros: bool,
    },
}

impl Mode {
    /// True for the maximum, whose result is one of the elements.
    pub fn is_greatest(self) -> bool {
        matches!(self, Mode::Max { .. })
    }
}

/// Strides of (batch, channel, depth, height, width), in elements.
#[derive(Clone, Copy, Debug)]
pub struct Strides(pub [usize; 5]);

impl Strides {
    /// Offset of an element.
    pub fn offset(&self, at: [usize; 5]) -> usize {
        at.iter().zip(self.0).map(|(i, stride)| i * stride).sum()
    }
}

/// Windows over images of three spatial dimensions: `large` is the image, `small` has an element for each window.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Reduction of their elements.
    pub mode: Mode,
    /// Number of images.
    pub batch: usize,
    /// Number of channels of an image.
    pub channels: usize,
    /// Strides of the image.
    pub large: Strides,
    /// Strides of the results.
    pub small: Strides,
    /// Extents of the image.
    pub input: [usize; 3],
    /// Number of windows along each dimension.
    pub output: [usize; 3],
    /// Extents of a window.
    pub window: [usize; 3],
    /// Distance between windows.
    pub stride: [usize; 3],
    /// Padding before the image.
    pub pad: [usize; 3],
}

impl Windows {
    /// Taps of a window along an axis that are inside of the image, and the place of the first of them.
    #[inline]
    pub fn taps(&self, axis: usize, output: usize) -> (Range<usize>, usize) {
        let begin = output * self.stride[axis];
        let first = self.pad[axis].saturating_sub(begin).min(self.window[axis]);
        let last = (self.input[axis] + self.pad[axis]).saturating_sub(begin).min(self.window[axis]);
        (first..last.max(first), (begin + first).saturating_sub(self.pad[axis]))
    }

    /// Windows along an axis that have this place of the image.
    pub fn covering(&self, axis: usize, place: usize) -> Range<usize> {
        let padded = place + self.pad[axis];
        let first = (padded + 1).saturating_sub(self.window[axis]).div_ceil(self.stride[axis]);
        let last = (padded / self.stride[axis] + 1).min(self.output[axis]);
        first..last.max(first)
    }

    /// Divisor of a sum over a window: a product over the axes.
    pub fn divisor(&self, at: [usize; 3]) -> f64 {
        (0..3).map(|axis| self.divisor_of(axis, at[axis])).product()
    }

    /// Factor of the divisor for an axis.
    pub fn divisor_of(&self, axis: usize, at: usize) -> f64 {
        match self.mode {
            Mode::Max { .. } => 1.0,
            Mode::Average { zeros: true } => self.window[axis] as f64,
            // A window wholly outside sums nothing: whatever it is divided by gives 0.
            Mode::Average { zeros: false } => self.taps(axis, at).0.len().max(1) as f64,
        }
    }

    /// Vectorized axis of a pooling in `f32`; `None` if it is not computed here. Sums along the last dimension are kept in
    /// `f32` if that is wide enough.
    pub fn axis(&self, single: bool) -> Option<Axis> {
        let [_, channel, .., column] = self.large.0;
        if self.channels > 1 && channel == 1 {
            return Some(Axis::Channels);
        }
        if column != 1 || !(self.mode.is_greatest() || single) {
            return None;
        }
        same::is_same(self).then_some(Axis::Same).or(columns::lanes(self).map(Axis::Columns))
    }

    /// Reduces all windows, with vectors along that axis.
    ///
    /// # Safety
    /// The axis is what [`Windows::axis`] gave; windows have at least one element along each dimension, and a distance of one. `x` has
    /// the elements of the image, `y` those of the results, which nobody else uses.
    pub unsafe fn reduce(&self, isa: Isa, axis: Axis, pool: &Pool, x: *const f32, y: *mut f32) {
        let [depth, height, width] = self.output;
        let taps: usize = (0..3).map(|axis| self.window[axis].min(self.input[axis])).product();
        let (planes, of_row) = match axis {
            Axis::Channels => (self.batch, width * self.channels),
            Axis::Columns(_) | Axis::Same => (self.batch * self.channels, width),
        };
        let rows = planes * depth * height;
        // Units along columns begin with memory of their own to fill.
        let per_unit = if axis == Axis::Channels { PER_UNIT } else { 4 * PER_UNIT };
        let group = (per_unit / of_row.saturating_mul(taps).max(1)).max(1);
        let tensors = Tensors { x, y };
        // The closure has a reference to the whole value, so that its promise about threads is what is checked.
        let tensors = &tensors;
        pool.run(rows.div_ceil(group), &|unit| {
            let part =
                Part { windows: self, x: tensors.x, y: tensors.y, rows: unit * group..((unit + 1) * group).min(rows) };
            match (axis, self.mode) {
                (Axis::Channels, _) => isa.run(ChannelRows(part)),
                (Axis::Same, Mode::Max { zeros }) => isa.run(SameRows { part, fold: Greatest { zeros } }),
                (Axis::Same, Mode::Average { .. }) => isa.run(SameRows { part, fold: Mean::default() }),
                (Axis::Columns(lanes), Mode::Max { zeros }) => {
                    isa.run(Folded { rows: ColumnRows { part, lanes }, fold: Greatest { zeros } });
                }
                (Axis::Columns(lanes), Mode::Average { .. }) => {
                    isa.run(Folded { rows: ColumnRows { part, lanes }, fold: Mean::default() });
                }
            }
        });
    }
}

/// Vectorized axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The channels.
    Channels,
    /// The last dimension, with the number of results that are computed together.
    Columns(usize),
    /// The last dimension, of several rows at once.
    Same,
}

/// Addresses of a run, shared with the threads that work on it.
struct Tensors {
    x: *const f32,
    y: *mut f32,
}

// SAFETY: the image is only read, and each element of the results is written by one thread.
unsafe impl Sync for Tensors {}

/// Rows of results, counted over all images, of which those along the channels have all channels. Its maker has been promised the
/// memory of their windows and of the results.
struct Part<'a> {
    windows: &'a Windows,
    x: *const f32,
    y: *mut f32,
    rows: Range<usize>,
}

/// Elements of a window that are inside of the image, in one channel.
#[derive(Clone, Copy)]
struct Elements {
    first: *const f32,
    counts: [usize; 3],
    strides: [usize; 3],
}

impl Elements {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Extents of the image and of windows, their distance, and the padding before and behind the image.
    type Shape = [[usize; 3]; 5];

    /// Windows over images of rows one behind the other, or of contiguous channels.
    fn windows(mode: Mode, last: bool, [input, window, stride, before, behind]: Shape) -> Windows {
        let output = std::array::from_fn(|i| (input[i] + before[i] + behind[i] - window[i]) / stride[i] + 1);
        let (batch, channels) = (2, 3);
        let strides = |[d, h, w]: [usize; 3]| {
            Strides(if last {
                [d * h * w * channels, 1, h * w * channels, w * channels, channels]
            } else {
                [channels * d * h * w, d * h * w, h * w, w, 1]
            })
        };
        let (large, small) = (strides(input), strides(output));
        Windows { mode, batch, channels, large, small, input, output, window, stride, pad: before }
    }

    /// Result of a window by loops in `f64`, and the sum of magnitudes.
    fn expected(windows: &Windows, x: &[f32], at: [usize; 5]) -> (f64, f64) {
        let (mut greatest, mut sum, mut size, mut inside) = (f64::NEG_INFINITY, 0.0, 0.0, 0);
        let [n, c, place @ ..] = at;
        let [depth, height, width] = windows.window;
        for tap in (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| [z, y, x]))) {
            let place: [Option<usize>; 3] = std::array::from_fn(|i| {
                let padded = place[i] * windows.stride[i] + tap[i];
                padded.checked_sub(windows.pad[i]).filter(|place| *place < windows.input[i])
            });
            let value = match place {
                [Some(z), Some(y), Some(column)] => {
                    inside += 1;
                    f64::from(x[windows.large.offset([n, c, z, y, column])])
                }
                _ if windows.mode == (Mode::Max { zeros: false }) => continue,
                _ => 0.0,
            };
            greatest = if value > greatest || value.is_nan() { value } else { greatest };
            (sum, size) = (sum + value, size + value.abs());
        }
        let count =
            if windows.mode == (Mode::Average { zeros: true }) { depth * height * width } else { inside.max(1) };
        if windows.mode.is_greatest() { (greatest, 0.0) } else { (sum / count as f64, size / count as f64) }
    }

    #[test]
    fn every_set_reduces_windows_as_loops_do() {
        let shapes: [Shape; 12] = [
            [[1, 5, 70], [1, 2, 2], [1, 2, 3], [0; 3], [0; 3]],
            [[1, 5, 70], [1, 2, 2], [1, 1, 1], [0; 3], [0; 3]],
            [[1, 5, 37], [1, 2, 2], [1, 2, 2], [0; 3], [0; 3]],
            [[1, 4, 13], [1, 2, 2], [1, 2, 2], [0; 3], [0; 3]],
            [[1, 6, 70], [1, 2, 2], [1, 2, 2], [0, 0, 1], [0, 0, 1]],
            [[1, 6, 45], [1, 3, 3], [1, 2, 2], [0, 1, 1], [0, 1, 1]],
            [[1, 4, 20], [1, 3, 3], [1, 1, 1], [0; 3], [0; 3]],
            [[1, 9, 21], [1, 3, 3], [1, 1, 1], [0, 1, 1], [0, 1, 1]],
            [[1, 7, 19], [1, 5, 5], [1, 1, 1], [0, 2, 2], [0, 2, 2]],
            [[1, 6, 33], [1, 2, 4], [1, 1, 1], [0, 1, 1], [0, 0, 2]],
            [[3, 4, 17], [3, 3, 3], [1, 1, 1], [1, 1, 1], [1, 1, 1]],
            [[1, 20, 300], [1, 3, 7], [1, 2, 1], [0, 1, 3], [0, 1, 3]],
        ];
        let modes = [true, false].map(|zeros| [Mode::Max { zeros }, Mode::Average { zeros }]).concat();
        let mut axes = std::collections::HashSet::new();
        for shape in shapes {
            let [input, window, ..] = shape;
            for (mode, last) in modes.iter().flat_map(|mode| [(*mode, false), (*mode, true)]) {
                let windows = windows(mode, last, shape);
                let len = |extents: [usize; 3]| windows.batch * windows.channels * extents.iter().product::<usize>();
                let mut x: Vec<f32> = (0..len(input)).map(|i| ((i * 7919) % 1009) as f32 * 0.01 - 6.0).collect();
                // Windows without a number, and with both infinities.
                (x[7], x[40], x[41]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
                let axis = windows.axis(true).unwrap();
                axes.insert(std::mem::discriminant(&axis));
                for isa in Isa::of_vectors() {
                    let mut y = vec![f32::NAN; len(windows.output)];
                    let pool = Pool::new(2);
                    // SAFETY: the vectors have all elements of the image and of the results.
                    unsafe { windows.reduce(isa, axis, &pool, x.as_ptr(), y.as_mut_ptr()) };
                    let [depth, height, width] = windows.output;
                    for i in 0..len(windows.output) {
                        let (rest, w, h) = (i / width / height, i % width, i / width % height);
                        let at = [rest / depth / windows.channels, rest / depth % windows.channels, rest % depth, h, w];
                        let (want, size) = expected(&windows, &x, at);
                        let got = f64::from(y[windows.small.offset(at)]);
                        // As many sums, the product with an inverse and its rounding.
                        let terms = 3 + window.iter().product::<usize>();
                        let bound = terms as f64 * f64::from(f32::EPSILON) / 2.0 * size;
                        let same = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= bound;
                        assert!(same, "{isa} {axis:?} {mode:?} {window:?} at {at:?}: expected {want}, got {got}");
                    }
                }
            }
        }
        assert_eq!(axes.len(), 3, "channels, columns and rows of the same length");
    }
}
