//! Kernels that pack a panel of output channels, a vector of them at a time.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::super::band::load_apart;
use super::super::problem::Element;
use super::super::transforms::{MAX_STRIDE, MAX_TAPS, Tiling, transform_kernels};
use super::Source;
use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd};

/// A panel of some output channels of a group.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) source: &'a Source,
    /// The tensor.
    pub(super) w: *const u8,
    /// Number of channels, with those past the group's that are zero.
    pub(super) width: usize,
    /// Number of the panel, among those of all groups.
    pub(super) unit: usize,
    /// Destination of the panel.
    pub(super) to: *mut f32,
}

impl Panel<'_> {
    /// First output channel, and number of those that there are.
    pub(super) fn rows(&self) -> (usize, usize) {
        let kg = self.source.group_out();
        let panels = kg.div_ceil(self.width);
        let (group, panel) = (self.unit / panels, self.unit % panels);
        (group * kg + panel * self.width, self.width.min(kg - panel * self.width))
    }
}

/// Prefetch distance for weights, in values: rows of output channels are too many streams for what a CPU finds out by itself.
const AHEAD: usize = 64;

/// Order of the terms of an output channel's sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Order {
    /// The taps of an input channel side by side.
    Channels,
    /// The input channels of a tap side by side.
    Taps,
}

/// Packing for each term of the weights of the panel's channels side by side.
pub(super) struct Terms<'a>(pub(super) Panel<'a>, pub(super) Order);

impl Kernel for Terms<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Terms(panel, order) = self;
        let Panel { source, width, to, .. } = panel;
        let (first, _) = panel.rows();
        let (channels_of_all, taps_of_all) = (source.sizes[1], source.sizes[2..].iter().product::<usize>());
        // Values from a term to that of the next input channel, and of the next tap.
        let (to_channel, to_tap) = match order {
            Order::Channels => (taps_of_all * width, width),
            Order::Taps => (width, channels_of_all * width),
        };
        // Where all terms of an output channel are one run, they are read as if they were input channels.
        let run = source.contiguous();
        let (channels, taps, stride) =
            if run { (source.depth(), 1, 1) } else { (channels_of_all, taps_of_all, source.layout.strides[1]) };
        // Terms that lie side by side do in the panel too, but for those of several taps whose channels do.
        let even = run && (taps_of_all == 1 || order == Order::Channels);
        let mut channel = 0;
        while channel < channels {
            let count = S::LANES.min(channels - channel);
            for tap in 0..taps {
                let begin = source.offset(first, 0, tap) + channel * stride;
                let mut row = 0;
                while row < width {
                    // SAFETY: the tensor's weights, and the panel's places.
                    unsafe {
                        let square = panel.square(s, row, begin, stride, count);
                        let lanes = S::LANES.min(width - row);
                        // Input channel and tap.
                        let mut at = if run { (channel / taps_of_all, channel % taps_of_all) } else { (channel, tap) };
                        if even && count == S::LANES {
                            let to = to.add(channel * width + row);
                            let mut i = 0;
                            while i < S::LANES {
                                s.store_first(lanes, to.add(i * width), square[i]);
                                i += 1;
                            }
                        } else {
                            for i in 0..count {
                                s.store_first(lanes, to.add(at.0 * to_channel + at.1 * to_tap + row), square[i]);
                                at = match run {
                                    true if at.1 + 1 < taps_of_all => (at.0, at.1 + 1),
                                    true => (at.0 + 1, 0),
                                    false => (at.0 + 1, tap),
                                };
                            }
                        }
                    }
                    row += S::LANES;
                }
            }
            channel += count;
        }
    }
}

/// Packing for each frequency of Winograd's kernel transform for tiles of N×N inputs, and each input channel of each phase that has
/// products of it, of those of the panel's channels side by side. A phase has R×R taps.
pub(super) struct Frequencies<'a, const N: usize, const R: usize> {
    pub(super) panel: Panel<'a>,
    pub(super) tiling: &'a Tiling,
}

impl<const N: usize, const R: usize> Kernel for Frequencies<'_, N, R> {
    type Output = ();
    const ALIGNED: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Frequencies { panel, tiling } = self;
        let stride = tiling.stride;
        let Panel { source, width, to, .. } = panel;
        let channels = source.sizes[1];
        let [.., kernel_rows, kernel_columns] = source.sizes;
        let taps = kernel_rows * kernel_columns;
        let mut staged = [[0f32; MAX_LANES]; STAGED];
        // Of some input channels, stored one frequency after the other: those of a channel lie so far apart that their lines compete for
        // the same places of the first-level cache.
        let mut frequencies = [[[[0f32; MAX_LANES]; MAX_LANES]; N]; N];
        let mut row = 0;
        while row < width {
            let lanes = S::LANES.min(width - row);
            let mut begin = 0;
            while begin < channels {
                let count = (STAGED / taps).clamp(1, S::LANES).min(channels - begin);
                // SAFETY: the tensor's weights.
                unsafe { panel.stage(s, row, begin, count * taps, &mut staged) };
                for phase in 0..tiling.phases() {
                    let (phase_row, phase_column) = (phase / stride, phase % stride);
                    for of_channel in 0..count {
                        let mut kernels = [[[s.splat_wide(0.0); 2]; R]; R];
                        for r in 0..R {
                            for c in 0..R {
                                // Of the phase's taps those that there are.
                                let (line, column) = (r * stride + phase_row, c * stride + phase_column);
                                if line < kernel_rows && column < kernel_columns {
                                    let values = &staged[of_channel * taps + line * kernel_columns + column];
                                    // SAFETY: a staged vector is as long as the widest one.
                                    kernels[r][c] = unsafe { s.load_widened(values.as_ptr()) };
                                }
                            }
                        }
                        let transformed = transform_kernels::<S, N, R>(s, &kernels);
                        for i in 0..N {
                            for j in 0..N {
                                let to = frequencies[i][j][of_channel].as_mut_ptr();
                                // SAFETY: a vector has room for the widest one.
                                unsafe { s.store(to, transformed[i][j]) };
                            }
                        }
                    }
                    for i in 0..N {
                        for j in 0..N {
                            let of_row = tiling.phases_of(j);
                            if phase_row >= tiling.phases_of(i) || phase_column >= of_row {
                                continue;
                            }
                            let product = tiling.products_before(i, j) + phase_row * of_row + phase_column;
                            let to = to.wrapping_add((product * channels + begin) * width + row);
                            for of_channel in 0..count {
                                // SAFETY: the panel's places.
                                unsafe {
                                    let value = s.load(frequencies[i][j][of_channel].as_ptr());
                                    s.store_first(lanes, to.add(of_channel * width), value);
                                }
                            }
                        }
                    }
                }
                begin += count;
            }
            row += S::LANES;
        }
    }
}

/// Vectors of weights that are staged for their transforms: of the largest kernel, [`MAX_STRIDE`] phases of [`MAX_TAPS`] taps along each axis.
const STAGED: usize = (MAX_STRIDE * MAX_TAPS) * (MAX_STRIDE * MAX_TAPS);

impl Panel<'_> {
    /// Stages weights of a vector of output channels, from `row` of the panel and input channel `channel` on: `count` terms of an output
    /// channel's sum, each a vector, zero where there is no output channel.
    ///
    /// # Safety
    /// The tensor can be read, and has so many terms.
    #[inline(always)]
    unsafe fn stage<S: Simd>(
        &self,
        s: S,
        row: usize,
        channel: usize,
        count: usize,
        staged: &mut [[f32; MAX_LANES]; STAGED],
    ) {
        let source = self.source;
        let taps_of_all = source.sizes[3] * source.sizes[4];
        // As of [`Terms`]: one run is read as if its terms were input channels.
        let (terms, taps, stride) = match source.contiguous() {
            true => (count, 1, 1),
            false => (count / taps_of_all, taps_of_all, source.layout.strides[1]),
        };
        for tap in 0..taps {
            let begin = source.offset(self.rows().0, channel, tap);
            let mut term = 0;
            while term < terms {
                let wide = S::LANES.min(terms - term);
                // SAFETY: the caller's promise; a staged vector has room for the widest one.
                unsafe {
                    let square = self.square(s, row, begin + term * stride, stride, wide);
                    for i in 0..wide {
                        s.store(staged[(term + i) * taps + tap].as_mut_ptr(), square[i]);
                    }
                }
                term += wide;
            }
        }
    }

    /// Square of weights: `count` vectors of output channels from `row` of the panel on, zero where there is none, of terms `stride` apart,
    /// whose first one is at `begin` for the panel's first output channel.
    ///
    /// # Safety
    /// The tensor has these terms.
    #[inline(always)]
    unsafe fn square<S: Simd>(&self, s: S, row: usize, begin: usize, stride: usize, count: usize) -> [S::V; MAX_LANES] {
        let (layout, (_, rows)) = (&self.source.layout, self.rows());
        let mut square = [s.splat(0.0); MAX_LANES];
        if (layout.element, stride, count) == (Element::F32, 1, S::LANES) {
            let from = self.w.cast::<f32>().wrapping_add(begin + row * layout.strides[0]);
            let mut i = 0;
            while i < S::LANES {
                if row + i < rows {
                    let from = from.wrapping_add(i * layout.strides[0]);
                    s.prefetch(from.wrapping_add(AHEAD));
                    // SAFETY: terms of an output channel that there is.
                    square[i] = unsafe { s.load(from) };
                }
                i += 1;
            }
            return s.transpose(square);
        }
        for i in 0..S::LANES {
            if row + i < rows {
                let from = begin + (row + i) * layout.strides[0];
                // SAFETY: terms of an output channel that there is.
                square[i] = unsafe { load_apart(s, layout.element, self.w, from, stride, count) };
            }
        }
        s.transpose(square)
    }
}
