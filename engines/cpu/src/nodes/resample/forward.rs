//! Pooling.

use std::ops::Range;

use hipdnn_schemas::ReductionMode;

use super::{LANES, Mode, Pooling, rows};
use crate::nodes::LibraryKernel;
use crate::nodes::reduction::Reduce;
use crate::nodes::view::TensorView;
use hipdnn_cpu_kernels::pooling::{Strides, Windows};
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_simd::isa::{Isa, Kernel as IsaKernel, Simd};
use hipdnn_cpu_threads::Pool;

#[derive(Debug)]
pub(super) struct Recipe(pub(super) Pooling);

impl crate::nodes::Recipe for Recipe {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        match global(&self.0) {
            Some(reduce) => reduce.kernel(threads),
            None => Box::new(Kernel(self.0.clone())),
        }
    }
}

/// The reduction that a pooling with one window, which is the image, is.
fn global(pooling: &Pooling) -> Option<Reduce> {
    let Pooling { windows, large, small, index, .. } = pooling;
    let Windows { batch, channels, input, output, .. } = windows;
    let whole = windows.window == *input && *output == [1; 3] && windows.pad == [0; 3] && index.is_none();
    let view = |storage: &Storage, strides: &Strides, [depth, height, width]: [usize; 3]| TensorView {
        storage: *storage,
        dims: vec![*batch, *channels, depth, height, width],
        strides: strides.0.to_vec(),
    };
    whole.then(|| Reduce {
        mode: if windows.mode.is_greatest() { ReductionMode::Max } else { ReductionMode::Average },
        input: view(large, &windows.large, *input),
        output: view(small, &windows.small, *output),
    })
}

#[derive(Debug)]
struct Kernel(Pooling);

/// Addresses of a run, shared with the threads that work on it.
pub(super) struct Addresses {
    pub(super) x: *const u8,
    pub(super) y: *mut u8,
    index: *mut u8,
}

// SAFETY: the input is only read, and each place of the outputs is written by one thread.
unsafe impl Sync for Addresses {}

impl LibraryKernel for Kernel {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _: *mut u8) {
        let pooling = &self.0;
        let addresses = Addresses { x: inputs[0], y: outputs[0], index: outputs[1] };
        let addresses = &addresses;
        let is_single = [pooling.large, pooling.small] == [Storage::F32; 2] && pooling.index.is_none();
        if let Some(axis) = pooling.windows.axis(!pooling.double).filter(|_| is_single) {
            // SAFETY: the caller's promise about the tensors, which are `f32`.
            return unsafe { pooling.windows.reduce(Isa::best(), axis, pool, addresses.x.cast(), addresses.y.cast()) };
        }
        let taps = (0..3).map(|axis| pooling.windows.window[axis].min(pooling.windows.input[axis])).product();
        let of_rows = rows::lanes(pooling);
        let along_channels = of_rows.is_none() && pooling.along_channels();
        let (extents, most) = (pooling.windows.output, of_rows.unwrap_or(LANES));
        pooling.walk(pool, extents, (along_channels, most), taps, |at, lanes| {
            // SAFETY: the places are the output's, for which the caller answers, and no other thread has them.
            unsafe {
                match (of_rows.is_some(), along_channels) {
                    (true, _) => rows::run(pooling, addresses, at, lanes),
                    (false, true) => self.channels(addresses, at, lanes),
                    (false, false) => self.places(addresses, at, lanes),
                }
            }
        });
    }
}

/// Accumulators of windows, side by side.
struct Lanes {
    mode: Mode,
    isa: Isa,
    values: [f64; LANES],
    indices: [i64; LANES],
    candidates: [f64; LANES],
}

impl Lanes {
    fn new(mode: Mode) -> Lanes {
        let start = if mode.is_greatest() { f64::NEG_INFINITY } else { 0.0 };
        Lanes { mode, isa: Isa::best(), values: [start; LANES], indices: [-1; LANES], candidates: [0.0; LANES] }
    }

    /// Folds in the candidates of these lanes, whose indices are `first`, `first + step`, …
    fn take(&mut self, lanes: Range<usize>, first: i64, step: i64) {
        let (values, candidates) = (&mut self.values[lanes.clone()], &self.candidates[lanes.clone()]);
        if self.mode.is_greatest() {
            let indices = &mut self.indices[lanes];
            self.isa.run(Compare { values, indices, candidates, first, step });
        } else {
            values.iter_mut().zip(candidates).for_each(|(value, candidate)| *value += candidate);
        }
    }

    /// Folds in the padding around the image.
    fn outside(&mut self, lanes: Range<usize>) {
        if self.mode != (Mode::Max { zeros: true }) {
            return;
        }
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
    /// Computes windows of one place, for `lanes` channels.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`]; the places are the output's and no other thread writes them.
    unsafe fn channels(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut state = Lanes::new(pooling.windows.mode);
        let step = pooling.windows.large.0[1];
        let (taps, first) = pooling.windows.taps(2, w);
        self.for_rows([d, h], &mut state, lanes, |state, [z, y]| {
            if taps.start > 0 {
                state.outside(0..lanes);
            }
            for x in first..first + taps.len() {
                let offset = pooling.windows.large.offset([n, c, z, y, x]);
                let candidates = &mut state.candidates[..lanes];
                // SAFETY: the place is inside of the image.
                unsafe { pooling.large.load_wide(addresses.x, offset, step, candidates) };
                state.take(0..lanes, flat(pooling, [z, y, x]), 0);
            }
            if taps.end < pooling.windows.window[2] {
                state.outside(0..lanes);
            }
        });
        let divisor = pooling.windows.divisor([d, h, w]);
        state.values[..lanes].iter_mut().for_each(|value| *value /= divisor);
        // SAFETY: the caller's promise.
        unsafe { self.finish(addresses, [n, c, d, h, w], 1, &state, lanes) };
    }

    /// Computes windows of one channel, for `lanes` neighboring places.
    ///
    /// # Safety
    /// As for [`Kernel::channels`].
    unsafe fn places(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut state = Lanes::new(pooling.windows.mode);
        let (stride, pad, width) = (pooling.windows.stride[2], pooling.windows.pad[2], pooling.windows.input[2]);
        let step = stride * pooling.windows.large.0[4];
        // Taps that read inside of the image for one of the places: for the last of them first, for the first last.
        let begin = pooling.windows.taps(2, w + lanes - 1).0.start;
        let end = pooling.windows.taps(2, w).0.end.max(begin);
        self.for_rows([d, h], &mut state, lanes, |state, [z, y]| {
            if begin > 0 {
                state.outside(0..lanes);
            }
            for k in begin..end {
                // Lanes whose place stride·w + k - pad is inside.
                let low = pad.saturating_sub(k).div_ceil(stride).clamp(w, w + lanes) - w;
                let high = (width + pad).saturating_sub(k).div_ceil(stride).clamp(w, w + lanes) - w;
                state.outside(0..low);
                state.outside(high.max(low)..lanes);
                if low >= high {
                    continue;
                }
                let x = (w + low) * stride + k - pad;
                let offset = pooling.windows.large.offset([n, c, z, y, x]);
                let candidates = &mut state.candidates[low..high];
                // SAFETY: the places are inside of the image.
                unsafe { pooling.large.load_wide(addresses.x, offset, step, candidates) };
                state.take(low..high, flat(pooling, [z, y, x]), stride as i64);
            }
            if end < pooling.windows.window[2] {
                state.outside(0..lanes);
            }
        });
        if !pooling.windows.mode.is_greatest() {
            for (lane, value) in state.values[..lanes].iter_mut().enumerate() {
                *value /= pooling.windows.divisor([d, h, w + lane]);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.finish(addresses, [n, c, d, h, w], 4, &state, lanes) };
    }

    /// Calls `f` for the rows of a window that are inside of the image, in order. Padding is compared where it comes in
    /// that order, once for all of it that comes together.
    fn for_rows(&self, [d, h]: [usize; 2], state: &mut Lanes, lanes: usize, mut f: impl FnMut(&mut Lanes, [usize; 2])) {
        let pooling = &self.0;
        let [(depth, z), (height, y)] = [pooling.windows.taps(0, d), pooling.windows.taps(1, h)];
        if depth.start > 0 {
            state.outside(0..lanes);
        }
        for z in z..z + depth.len() {
            if height.start > 0 {
                state.outside(0..lanes);
            }
            for y in y..y + height.len() {
                f(state, [z, y]);
            }
            if height.end < pooling.windows.window[1] {
                state.outside(0..lanes);
            }
        }
        if depth.end < pooling.windows.window[0] {
            state.outside(0..lanes);
        }
    }

    /// Writes the results of lanes along `axis`.
    ///
    /// # Safety
    /// As for [`Kernel::channels`].
    unsafe fn finish(&self, addresses: &Addresses, at: [usize; 5], axis: usize, state: &Lanes, lanes: usize) {
        let Pooling { windows, small, .. } = &self.0;
        // SAFETY: the caller's promise.
        unsafe {
            small.store_wide(&state.values[..lanes], addresses.y, windows.small.offset(at), windows.small.0[axis]);
            if let Some(index) = &self.0.index {
                let indices = &state.indices[..lanes];
                index.storage.store_whole(indices, addresses.index, index.strides.offset(at), index.strides.0[axis]);
            }
        }
    }
}

/// Flat index of a place of the image.
fn flat(pooling: &Pooling, [z, y, x]: [usize; 3]) -> i64 {
    ((z * pooling.windows.input[1] + y) * pooling.windows.input[2] + x) as i64
}
