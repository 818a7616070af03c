//! Pooling along contiguous channels.

use hipdnn_cpu_simd::isa::{Kernel, Simd, first as first_lanes};

use super::{Elements, Mode, Part, Windows, greater, put};

/// Number of vectors of channels that are worked on together.
const VECTORS: usize = 4;

/// Number of sums of channels that are kept together.
const SUMS: usize = 32;

/// Rows of windows, of all channels, which are contiguous.
pub(super) struct ChannelRows<'a>(pub(super) Part<'a>);

impl Kernel for ChannelRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ChannelRows(Part { windows, x: image, y: results, rows }) = self;
        let Windows { large, small, channels, .. } = windows;
        let [depth, height, width] = windows.output;
        let [.., stride_z, stride_y, stride_x] = large.0;
        let step = small.0[1];
        let mut row = rows.start;
        while row < rows.end {
            let (h, rest) = (row % height, row / height);
            let (d, n) = (rest % depth, rest / depth);
            row += 1;
            let [(depths, z), (heights, y)] = [windows.taps(0, d), windows.taps(1, h)];
            let of_rows = windows.divisor_of(0, d) * windows.divisor_of(1, h);
            let mut w = 0;
            while w < width {
                let (widths, x) = windows.taps(2, w);
                let counts = [depths.len(), heights.len(), widths.len()];
                let at = large.offset([n, 0, z, y, x]);
                let first = image.wrapping_add(at);
                let window = Elements { first, counts, strides: [stride_z, stride_y, stride_x] };
                let to = results.wrapping_add(small.offset([n, 0, d, h, w]));
                // SAFETY: the window's places are inside of the image and the result's is the output's, for all channels;
                // the rows are this unit's.
                unsafe {
                    match windows.mode {
                        Mode::Max { zeros } => {
                            let outside = zeros && counts != windows.window;
                            greatest(s, &window, outside, *channels, to, step);
                        }
                        Mode::Average { .. } => {
                            average(&window, of_rows * windows.divisor_of(2, w), *channels, to, step);
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
unsafe fn greatest<S: Simd>(s: S, window: &Elements, outside: bool, channels: usize, to: *mut f32, step: usize) {
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

/// Computes the sum of a window's elements over the divisor, for each channel.
///
/// # Safety
/// As [`greatest`].
#[inline(always)]
unsafe fn average(window: &Elements, divisor: f64, channels: usize, to: *mut f32, step: usize) {
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
