//! Kernels that pack a panel of output channels, a vector of them at a time.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::super::band::load_apart;
use super::super::naive::read;
use super::super::transforms::{Tiling, transform_kernels};
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
        let Panel { source, w, width, to, .. } = panel;
        let (first, rows) = panel.rows();
        let element = source.layout.element;
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
        let mut channel = 0;
        while channel < channels {
            let count = S::LANES.min(channels - channel);
            for tap in 0..taps {
                let begin = source.offset(first, 0, tap) + channel * stride;
                let mut row = 0;
                while row < width {
                    // SAFETY: the tensor's weights, and the panel's places.
                    unsafe {
                        let mut square = [s.splat(0.0); MAX_LANES];
                        for i in 0..S::LANES {
                            if row + i < rows {
                                let from = begin + (row + i) * source.layout.strides[0];
                                square[i] = load_apart(s, element, w, from, stride, count);
                            }
                        }
                        let square = s.transpose(square);
                        let lanes = S::LANES.min(width - row);
                        // Input channel and tap.
                        let mut at = if run { (channel / taps_of_all, channel % taps_of_all) } else { (channel, tap) };
                        for i in 0..count {
                            s.store_first(lanes, to.add(at.0 * to_channel + at.1 * to_tap + row), square[i]);
                            at = match run {
                                true if at.1 + 1 < taps_of_all => (at.0, at.1 + 1),
                                true => (at.0 + 1, 0),
                                false => (at.0 + 1, tap),
                            };
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
        let Panel { source, w, width, to, .. } = panel;
        let (first, rows) = panel.rows();
        let (element, channels) = (source.layout.element, source.sizes[1]);
        let [.., kernel_rows, kernel_columns] = source.sizes;
        for phase in 0..tiling.phases() {
            let (phase_row, phase_column) = (phase / stride, phase % stride);
            // Offsets of the phase's taps, of those that there are.
            let mut begins = [[None; R]; R];
            for r in 0..R {
                for c in 0..R {
                    let (line, column) = (r * stride + phase_row, c * stride + phase_column);
                    if line < kernel_rows && column < kernel_columns {
                        begins[r][c] = Some(source.offset(first, 0, line * kernel_columns + column));
                    }
                }
            }
            let mut row = 0;
            while row < width {
                let lanes = S::LANES.min(width - row);
                for channel in 0..channels {
                    let mut kernels = [[[0f64; MAX_LANES]; R]; R];
                    for lane in 0..lanes.min(rows.saturating_sub(row)) {
                        let at = (row + lane) * source.layout.strides[0] + channel * source.layout.strides[1];
                        for r in 0..R {
                            for c in 0..R {
                                if let Some(begin) = begins[r][c] {
                                    // SAFETY: the tensor's weights.
                                    kernels[r][c][lane] = f64::from(unsafe { read(element, w, begin + at) });
                                }
                            }
                        }
                    }
                    let frequencies = transform_kernels::<N, R, { MAX_LANES }>(&kernels);
                    for i in 0..N {
                        for j in 0..N {
                            let of_row = tiling.phases_of(j);
                            if phase_row >= tiling.phases_of(i) || phase_column >= of_row {
                                continue;
                            }
                            let product = tiling.products_before(i, j) + phase_row * of_row + phase_column;
                            let place = product * channels + channel;
                            // SAFETY: the panel's places.
                            unsafe {
                                let value = s.load(frequencies[i][j].as_ptr());
                                s.store_first(lanes, to.add(place * width + row), value);
                            }
                        }
                    }
                }
                row += S::LANES;
            }
        }
    }
}
