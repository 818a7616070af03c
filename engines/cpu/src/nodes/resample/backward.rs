//! Gradient of pooling: each place of the image takes its part of the windows that have it.

use super::{LANES, Pooling};
use crate::nodes::LibraryKernel;
use hipdnn_cpu_threads::Pool;

#[derive(Debug)]
pub(super) struct Recipe(pub(super) Pooling);

impl crate::nodes::Recipe for Recipe {
    fn kernel(&self, _threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(Kernel(self.0.clone()))
    }
}

#[derive(Debug)]
struct Kernel(Pooling);

/// Addresses of a run, shared with the threads that work on it.
struct Addresses {
    dy: *const u8,
    index: *const u8,
    dx: *mut u8,
}

// SAFETY: the inputs are only read, and each place of the output is written by one thread.
unsafe impl Sync for Addresses {}

impl LibraryKernel for Kernel {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _: *mut u8) {
        let pooling = &self.0;
        let addresses = Addresses { dy: inputs[0], index: inputs[1], dx: outputs[0] };
        let addresses = &addresses;
        let along_channels = pooling.along_channels();
        pooling.walk(pool, pooling.windows.input, (along_channels, LANES), 2, |at, lanes| {
            // SAFETY: the places are the image's, for which the caller answers, and no other thread has them.
            unsafe {
                match along_channels {
                    true => self.channels(addresses, at, lanes),
                    false => self.places(addresses, at, lanes),
                }
            }
        });
    }
}

impl Kernel {
    /// Computes one place, for `lanes` channels.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`]; the places are the image's and no other thread writes them.
    unsafe fn channels(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut sums = [0f64; LANES];
        let mut gradients = [0f64; LANES];
        let mut indices = [0i64; LANES];
        let (gradients, indices) = (&mut gradients[..lanes], &mut indices[..lanes]);
        let place = ((d * pooling.windows.input[1] + h) * pooling.windows.input[2] + w) as i64;
        for z in pooling.windows.covering(0, d) {
            for y in pooling.windows.covering(1, h) {
                for x in pooling.windows.covering(2, w) {
                    let (small, at) = (&pooling.windows.small, [n, c, z, y, x]);
                    // SAFETY: the windows are places of dy and of the indices.
                    unsafe { pooling.small.load_wide(addresses.dy, small.offset(at), small.0[1], gradients) };
                    if let Some(index) = &pooling.index {
                        // SAFETY: the index tensor has an element for each one of dy, of which the window is a place.
                        unsafe {
                            index.storage.load_whole(
                                addresses.index,
                                index.strides.offset(at),
                                index.strides.0[1],
                                indices,
                            );
                        }
                        for ((sum, gradient), index) in sums.iter_mut().zip(&*gradients).zip(&*indices) {
                            if *index == place {
                                *sum += gradient;
                            }
                        }
                    } else {
                        let divisor = pooling.windows.divisor([z, y, x]);
                        for (sum, gradient) in sums.iter_mut().zip(&*gradients) {
                            *sum += gradient / divisor;
                        }
                    }
                }
            }
        }
        let large = &pooling.windows.large;
        let offset = large.offset([n, c, d, h, w]);
        // SAFETY: the caller's promise.
        unsafe { pooling.large.store_wide(&sums[..lanes], addresses.dx, offset, large.0[1]) };
    }

    /// Computes `lanes` neighboring places of a channel.
    ///
    /// # Safety
    /// As for [`Kernel::channels`].
    unsafe fn places(&self, addresses: &Addresses, [n, c, d, h, w]: [usize; 5], lanes: usize) {
        let pooling = &self.0;
        let mut sums = [0f64; LANES];
        let mut gradients = [0f64; LANES];
        let mut indices = [0i64; LANES];
        let row = ((d * pooling.windows.input[1] + h) * pooling.windows.input[2]) as i64;
        let windows = pooling.windows.covering(2, w).start..pooling.windows.covering(2, w + lanes - 1).end;
        for z in pooling.windows.covering(0, d) {
            for y in pooling.windows.covering(1, h) {
                let of_row = pooling.windows.divisor_of(0, z) * pooling.windows.divisor_of(1, y);
                for first in windows.clone().step_by(LANES) {
                    let count = LANES.min(windows.end - first);
                    let (small, at) = (&pooling.windows.small, [n, c, z, y, first]);
                    let gradients = &mut gradients[..count];
                    // SAFETY: the windows are places of dy and of the indices.
                    unsafe { pooling.small.load_wide(addresses.dy, small.offset(at), small.0[4], gradients) };
                    if let Some(index) = &pooling.index {
                        // SAFETY: the index tensor has an element for each one of dy, of which the windows are places.
                        unsafe {
                            let (offset, step) = (index.strides.offset(at), index.strides.0[4]);
                            index.storage.load_whole(addresses.index, offset, step, &mut indices[..count]);
                        }
                    }
                    for (i, gradient) in gradients.iter().enumerate() {
                        // The window's places: those inside of the image and among the lanes.
                        let (taps, begin) = pooling.windows.taps(2, first + i);
                        let low = begin.clamp(w, w + lanes);
                        let high = (begin + taps.len()).clamp(w, w + lanes);
                        if pooling.index.is_some() {
                            if let Ok(place) = usize::try_from(indices[i] - row)
                                && (low..high).contains(&place)
                            {
                                sums[place - w] += gradient;
                            }
                        } else {
                            let gradient = gradient / (of_row * pooling.windows.divisor_of(2, first + i));
                            sums[low - w..high - w].iter_mut().for_each(|sum| *sum += gradient);
                        }
                    }
                }
            }
        }
        let large = &pooling.windows.large;
        let offset = large.offset([n, c, d, h, w]);
        // SAFETY: the caller's promise.
        unsafe { pooling.large.store_wide(&sums[..lanes], addresses.dx, offset, large.0[4]) };
    }
}
