//! Pooling along rows: windows without indices, whose places are closest along the last dimension.
//!
//! The rows of a window are combined first, column by column, and neighboring columns then: both are walks over rows in
//! the first cache. The maximum of floats of up to 32 bits is found in `f32`; everything else is kept in `f64`.

use super::forward::Addresses;
use super::{LANES, Mode, Pooling};
use hipdnn_cpu_pointwise::Value;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};

/// Number of columns of the image that are worked on together.
const COLUMNS: usize = 256;

/// Accumulator type of sums and maxima.
trait Number: Value + std::ops::AddAssign + std::ops::Div<Output = Self> + PartialOrd {
    /// Initial value of a sum.
    const ZERO: Self;
    /// Initial value of a maximum.
    const LEAST: Self;

    fn of_divisor(divisor: f64) -> Self;

    /// Maximum of two, NaN if one is; of equal ones the first.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "only NaN is not equal to itself")]
    fn greater(self, other: Self) -> Self {
        if (other > self) | (other != other) { other } else { self }
    }
}

impl Number for f32 {
    const ZERO: f32 = 0.0;
    const LEAST: f32 = f32::NEG_INFINITY;

    fn of_divisor(divisor: f64) -> f32 {
        divisor as f32
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    const LEAST: f64 = f64::NEG_INFINITY;

    fn of_divisor(divisor: f64) -> f64 {
        divisor
    }
}

/// Number of neighboring places that are computed together; `None` if this kernel does not serve the pooling.
pub(super) fn lanes(pooling: &Pooling) -> Option<usize> {
    let [_, channel, .., column] = pooling.windows.large.0;
    let rows = pooling.index.is_none() && (pooling.windows.channels == 1 || column <= channel);
    let window = pooling.windows.window[2];
    (rows && window <= COLUMNS / 2).then(|| ((COLUMNS - window) / pooling.windows.stride[2] + 1).min(LANES))
}

/// Computes windows of one channel, for `lanes` neighboring places.
///
/// # Safety
/// As [`crate::nodes::LibraryKernel::run`]; the places are the output's and no other thread writes them.
pub(super) unsafe fn run(pooling: &Pooling, addresses: &Addresses, at: [usize; 5], lanes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match pooling.windows.mode.is_greatest() && pooling.large.is_single() {
            true => run_in::<f32>(pooling, addresses, at, lanes),
            false => run_in::<f64>(pooling, addresses, at, lanes),
        }
    }
}

/// # Safety
/// As [`run`].
unsafe fn run_in<T: Number>(pooling: &Pooling, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
    let isa = Isa::best();
    let greatest = pooling.windows.mode.is_greatest();
    let (window, stride, pad) = (pooling.windows.window[2], pooling.windows.stride[2], pooling.windows.pad[2]);
    // The columns of the windows, from a place that may be outside of the image, and those inside.
    let begin = w * stride;
    let span = (lanes - 1) * stride + window;
    let first = pad.max(begin);
    let last = (pad + pooling.windows.input[2]).min(begin + span).max(first);
    let start = if greatest { T::LEAST } else { T::ZERO };
    let (mut columns, mut row, mut values) = ([start; COLUMNS], [T::ZERO; COLUMNS], [start; LANES]);
    let (columns, row, values) = (&mut columns[..span], &mut row[..last - first], &mut values[..lanes]);
    let [(depth, z), (height, y)] = [pooling.windows.taps(0, d), pooling.windows.taps(1, h)];
    for z in z..z + depth.len() {
        for y in y..y + height.len() {
            if row.is_empty() {
                continue;
            }
            let offset = pooling.windows.large.offset([n, c, z, y, first - pad]);
            // SAFETY: the columns are inside of the image.
            unsafe { T::load(pooling.large, isa, addresses.x, offset, pooling.windows.large.0[4], row) };
            isa.run(Combine { to: &mut columns[first - begin..last - begin], from: row, greatest });
        }
    }
    isa.run(Slide { to: values, from: columns, window, stride, greatest });
    match pooling.windows.mode {
        Mode::Max { zeros: false } => {}
        Mode::Max { zeros: true } => {
            let outside = depth.len() < pooling.windows.window[0] || height.len() < pooling.windows.window[1];
            for (lane, value) in values.iter_mut().enumerate() {
                if outside || pooling.windows.taps(2, w + lane).0.len() < window {
                    *value = value.greater(T::ZERO);
                }
            }
        }
        Mode::Average { .. } => {
            let of_rows = pooling.windows.divisor_of(0, d) * pooling.windows.divisor_of(1, h);
            for (lane, value) in values.iter_mut().enumerate() {
                *value = *value / T::of_divisor(of_rows * pooling.windows.divisor_of(2, w + lane));
            }
        }
    }
    let Pooling { windows, small, .. } = pooling;
    // SAFETY: the caller's promise.
    unsafe { T::store(*small, isa, values, addresses.y, windows.small.offset([n, c, d, h, w]), windows.small.0[4]) };
}

/// Combines a row into the accumulators of the rows before it.
struct Combine<'a, T> {
    to: &'a mut [T],
    from: &'a [T],
    greatest: bool,
}

impl<T: Number> Kernel for Combine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let from = &self.from[..self.to.len()];
        combine::<T, 1>(self.to, from, 0, 1, self.greatest);
    }
}

/// Combines `window` neighboring columns from every `stride`th on.
struct Slide<'a, T> {
    to: &'a mut [T],
    from: &'a [T],
    window: usize,
    stride: usize,
    greatest: bool,
}

impl<T: Number> Kernel for Slide<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Slide { to, from, window, stride, greatest } = self;
        for tap in 0..window {
            match stride {
                1 => combine::<T, 1>(to, from, tap, 1, greatest),
                2 => combine::<T, 2>(to, from, tap, 2, greatest),
                _ => combine::<T, 0>(to, from, tap, stride, greatest),
            }
        }
    }
}

/// Combines `to[i]` with `from[tap + i · stride]`; `STRIDE` is the stride where that is known, else 0.
#[inline(always)]
fn combine<T: Number, const STRIDE: usize>(to: &mut [T], from: &[T], tap: usize, stride: usize, greatest: bool) {
    let stride = if STRIDE > 0 { STRIDE } else { stride };
    let from = &from[tap..][..(to.len() - 1) * stride + 1];
    if greatest {
        for i in 0..to.len() {
            to[i] = to[i].greater(from[i * stride]);
        }
    } else {
        for i in 0..to.len() {
            to[i] += from[i * stride];
        }
    }
}
