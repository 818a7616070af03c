//! Pooling.

use std::ops::Range;

use super::{LANES, Mode, Pooling};
use crate::engine::host::isa::{Isa, Kernel as IsaKernel, Simd};
use crate::engine::host::nodes::NodeKernel;
use crate::engine::host::threads::Pool;

#[derive(Debug)]
pub(super) struct Recipe(pub(super) Pooling);

impl crate::engine::host::nodes::Recipe for Recipe {
    fn kernel(&self, _threads: usize) -> Box<dyn NodeKernel> {
        Box::new(Kernel(self.0.clone()))
    }
}

#[derive(Debug)]
struct Kernel(Pooling);

/// The addresses of a run, shared with the threads that work on it.
struct Addresses {
    x: *const u8,
    y: *mut u8,
    index: *mut u8,
}

// SAFETY: the input is only read, and each place of the outputs is written by one thread.
unsafe impl Sync for Addresses {}

impl NodeKernel for Kernel {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _: *mut u8) {
        let pooling = &self.0;
        let addresses = Addresses { x: inputs[0], y: outputs[0], index: outputs[1] };
        let addresses = &addresses;
        let [depth, height, width] = pooling.output;
        let channels = if pooling.along_channels() { 1 } else { pooling.channels };
        let rows = pooling.batch * channels * depth * height;
        let of_row = width * (pooling.channels / channels) * pooling.window.iter().product::<usize>();
        let group = (16 * 1024 / of_row.max(1)).max(1);
        pool.run(rows.div_ceil(group), &|unit| {
            for row in unit * group..((unit + 1) * group).min(rows) {
                let (h, rest) = (row % height, row / height);
                let (d, rest) = (rest % depth, rest / depth);
                let (c, n) = (rest % channels, rest / channels);
                if pooling.along_channels() {
                    for w in 0..width {
                        for c in (0..pooling.channels).step_by(LANES) {
                            let lanes = LANES.min(pooling.channels - c);
                            // SAFETY: the places are the output's, for which the caller answers.
                            unsafe { self.channels(addresses, [n, c, d, h, w], lanes) };
                        }
                    }
                } else {
                    for w in (0..width).step_by(LANES) {
                        // SAFETY: as above.
                        unsafe { self.places(addresses, [n, c, d, h, w], LANES.min(width - w)) };
                    }
                }
            }
        });
    }
}

/// What windows have come to so far, side by side.
struct Lanes {
    isa: Isa,
    values: [f64; LANES],
    indices: [i64; LANES],
    candidates: [f64; LANES],
}

impl Lanes {
    fn new(mode: Mode) -> Lanes {
        let start = if mode.is_greatest() { f64::NEG_INFINITY } else { 0.0 };
        Lanes { isa: Isa::best(), values: [start; LANES], indices: [-1; LANES], candidates: [0.0; LANES] }
    }

    /// Adds the candidates of these lanes.
    fn add(&mut self, lanes: Range<usize>) {
        for (value, candidate) in self.values[lanes.clone()].iter_mut().zip(&self.candidates[lanes]) {
            *value += candidate;
        }
    }

    /// Compares with the candidates of these lanes, whose indices are `first`, `first + step`, …
    fn compare(&mut self, lanes: Range<usize>, first: i64, step: i64) {
        let (values, indices) = (&mut self.values[lanes.clone()], &mut self.indices[lanes.clone()]);
        self.isa.run(Compare { values, indices, candidates: &self.candidates[lanes], first, step });
    }

    /// Compares with zeros around the image.
    fn compare_zero(&mut self, lanes: Range<usize>) {
        for lane in lanes {
            if 0.0 > self.values[lane] {
                self.values[lane] = 0.0;
                self.indices[lane] = -1;
            }
        }
    }
}

struct Compare<'a> {
    values: &'a mut [f64],
    indices: &'a mut [i64],
    candidates: &'a [f64],
    first: i64,
    step: i64,
}

impl IsaKernel for Compare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut place = self.first;
        for ((value, index), candidate) in self.values.iter_mut().zip(self.indices).zip(self.candidates) {
            let greater = *candidate > *value;
            let first_nan = candidate.is_nan() & !value.is_nan();
            // Minus infinity is no greater than what a window begins with, but has a place.
            let first_of_all = (*index < 0) & (*candidate == f64::NEG_INFINITY) & (*value == f64::NEG_INFINITY);
            let take = greater | first_nan | first_of_all;
            *value = if take { *candidate } else { *value };
            *index = if take { place } else { *index };
            place += self.step;
        }
    }
}

impl Kernel {
    /// Windows of one place, for `lanes` channels.
    ///
    /// # Safety
    /// As [`NodeKernel::run`]; the places are the output's and no other thread writes them.
    unsafe fn channels(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut state = Lanes::new(pooling.mode);
        let step = pooling.large.strides[1];
        for_taps(pooling, [d, h, w], |place| match place {
            Some([z, y, x]) => {
                let offset = pooling.large.offset([n, c, z, y, x]);
                let candidates = &mut state.candidates[..lanes];
                // SAFETY: the place is inside of the image.
                unsafe { pooling.large.storage.load_wide(addresses.x, offset, step, candidates) };
                match pooling.mode {
                    Mode::Greatest { .. } => state.compare(0..lanes, flat(pooling, [z, y, x]), 0),
                    Mode::Average { .. } => state.add(0..lanes),
                }
            }
            None if pooling.mode == Mode::Greatest { zeros: true } => state.compare_zero(0..lanes),
            None => {}
        });
        let divisor = pooling.divisor([d, h, w]);
        state.values[..lanes].iter_mut().for_each(|value| *value /= divisor);
        // SAFETY: the caller's promise.
        unsafe { self.finish(addresses, [n, c, d, h, w], 1, &state, lanes) };
    }

    /// Windows of one channel, for `lanes` neighbouring places.
    ///
    /// # Safety
    /// As for [`Kernel::channels`].
    unsafe fn places(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut state = Lanes::new(pooling.mode);
        let (stride, pad, width) = (pooling.stride[2], pooling.pad[2], pooling.input[2]);
        let zeros = pooling.mode == Mode::Greatest { zeros: true };
        let step = stride * pooling.large.strides[4];
        for i in 0..pooling.window[0] {
            for j in 0..pooling.window[1] {
                let inside = |axis: usize, out: usize, tap: usize| {
                    (out * pooling.stride[axis] + tap)
                        .checked_sub(pooling.pad[axis])
                        .filter(|p| *p < pooling.input[axis])
                };
                let (Some(z), Some(y)) = (inside(0, d, i), inside(1, h, j)) else {
                    // As many zeros one after the other as the window is wide; one does the same.
                    if zeros {
                        state.compare_zero(0..lanes);
                    }
                    continue;
                };
                for k in 0..pooling.window[2] {
                    // Lanes whose place stride·w + k - pad is inside.
                    let low = pad.saturating_sub(k).div_ceil(stride).clamp(w, w + lanes) - w;
                    let high = (width + pad).saturating_sub(k).div_ceil(stride).clamp(w, w + lanes) - w;
                    if zeros {
                        state.compare_zero(0..low);
                        state.compare_zero(high.max(low)..lanes);
                    }
                    if low >= high {
                        continue;
                    }
                    let x = (w + low) * stride + k - pad;
                    let offset = pooling.large.offset([n, c, z, y, x]);
                    let candidates = &mut state.candidates[low..high];
                    // SAFETY: the places are inside of the image.
                    unsafe { pooling.large.storage.load_wide(addresses.x, offset, step, candidates) };
                    match pooling.mode {
                        Mode::Greatest { .. } => state.compare(low..high, flat(pooling, [z, y, x]), stride as i64),
                        Mode::Average { .. } => state.add(low..high),
                    }
                }
            }
        }
        if !pooling.mode.is_greatest() {
            for (lane, value) in state.values[..lanes].iter_mut().enumerate() {
                *value /= pooling.divisor([d, h, w + lane]);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.finish(addresses, [n, c, d, h, w], 4, &state, lanes) };
    }

    /// Writes the results of lanes along `axis`.
    ///
    /// # Safety
    /// As for [`Kernel::channels`].
    unsafe fn finish(&self, addresses: &Addresses, at: [usize; 5], axis: usize, state: &Lanes, lanes: usize) {
        let small = &self.0.small;
        // SAFETY: the caller's promise.
        unsafe {
            small.storage.store_wide(&state.values[..lanes], addresses.y, small.offset(at), small.strides[axis]);
            if let Some(index) = &self.0.index {
                let indices = &state.indices[..lanes];
                index.storage.store_whole(indices, addresses.index, index.offset(at), index.strides[axis]);
            }
        }
    }
}

/// The number of a place of the image.
fn flat(pooling: &Pooling, [z, y, x]: [usize; 3]) -> i64 {
    ((z * pooling.input[1] + y) * pooling.input[2] + x) as i64
}

/// Calls `f` for every tap of a window, in order, with its place if that is inside of the image.
fn for_taps(pooling: &Pooling, at: [usize; 3], mut f: impl FnMut(Option<[usize; 3]>)) {
    let inside = |axis: usize, tap: usize| {
        let place = (at[axis] * pooling.stride[axis] + tap).checked_sub(pooling.pad[axis])?;
        (place < pooling.input[axis]).then_some(place)
    };
    for i in 0..pooling.window[0] {
        let z = inside(0, i);
        for j in 0..pooling.window[1] {
            let y = inside(1, j);
            for k in 0..pooling.window[2] {
                f(match (z, y, inside(2, k)) {
                    (Some(z), Some(y), Some(x)) => Some([z, y, x]),
                    _ => None,
                });
            }
        }
    }
}
