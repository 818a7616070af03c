//! A padded `f32` copy of the input rows that a band of output rows needs, in which every tap of the kernel is a constant
//! distance.
//!
//! With stride S, input column `q·S + s·D - pad` of output column `q` and tap `s` is column `q + s·D / S` of phase
//! `s·D mod S`, where phase `f` holds the padded columns `f, f + S, f + 2S …`; likewise for rows. So a band holds, for each
//! channel, depth tap, row phase and column phase, rows of `pitch` values, and output place `i·pitch + q` (row `i` of the
//! band) reads its tap at that index plus the tap's offset, whatever the stride, dilation and padding. Places with `q` past
//! the output's width compute nothing of use and are dropped at the store.

use super::naive::read;
use super::problem::{Element, Layout, Shape};
use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd, first};

/// Phases of an axis that some tap reads, and the position of each tap.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) phases: Vec<usize>,
    /// (Phase index, shift within the phase) of each tap.
    pub(super) taps: Vec<(usize, usize)>,
    /// Places past the output size that taps reach.
    pub(super) reach: usize,
}

impl Axis {
    pub(super) fn new(kernel: usize, stride: usize, dilation: usize) -> Axis {
        let mut axis = Axis { phases: Vec::new(), taps: Vec::new(), reach: 0 };
        for tap in 0..kernel {
            let (phase, shift) = (tap * dilation % stride, tap * dilation / stride);
            let index = axis.phases.iter().position(|p| *p == phase).unwrap_or_else(|| {
                axis.phases.push(phase);
                axis.phases.len() - 1
            });
            axis.taps.push((index, shift));
            axis.reach = axis.reach.max(shift);
        }
        axis
    }
}

/// Sizes of the input bands of a shape.
#[derive(Clone, Debug)]
pub(super) struct Band {
    shape: Shape,
    x: Layout,
    rows: Axis,
    columns: Axis,
    /// Values of a row.
    pub(super) pitch: usize,
    /// Rows of a phase.
    phase_rows: usize,
    /// Values of a channel.
    pub(super) channel: usize,
    /// Offset of each tap (depth, row, column) relative to the output place.
    pub(super) taps: Vec<usize>,
}

impl Band {
    /// Makes the band for `height` output rows and `width` output columns of an output depth.
    pub(super) fn new(shape: &Shape, x: &Layout, height: usize, width: usize) -> Band {
        let rows = Axis::new(shape.kernel[1], shape.stride[1], shape.dilation[1]);
        let columns = Axis::new(shape.kernel[2], shape.stride[2], shape.dilation[2]);
        let pitch = width + columns.reach;
        let phase_rows = height + rows.reach;
        let phase = phase_rows * pitch;
        let slice = rows.phases.len() * columns.phases.len() * phase;
        // A distance of channels that is a multiple of a page would put all of them in the same few cache sets.
        let mut channel = (shape.kernel[0] * slice).next_multiple_of(16);
        if channel.is_multiple_of(256) {
            channel += 16;
        }
        let mut taps = Vec::with_capacity(shape.taps());
        for t in 0..shape.kernel[0] {
            for (row_phase, row) in &rows.taps {
                for (column_phase, column) in &columns.taps {
                    let phase_index = row_phase * columns.phases.len() + column_phase;
                    taps.push(t * slice + phase_index * phase + row * pitch + column);
                }
            }
        }
        Band { shape: shape.clone(), x: *x, rows, columns, pitch, phase_rows, channel, taps }
    }

    /// Values of a band; reads of whole vectors may pass it by `slack`, which [`Band::fill`] zeroes.
    pub(super) fn len(&self, slack: usize) -> usize {
        self.shape.group_in() * self.channel + slack.next_multiple_of(16)
    }

    /// Copies the input of the band whose first output is at (`z`, `row`, `column`) of an image and group.
    ///
    /// # Safety
    /// `x` points to the whole input, `band` to [`Band::len`] values.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a place in five dimensions")]
    pub(super) unsafe fn fill<S: Simd>(
        &self,
        s: S,
        x: *const u8,
        image: usize,
        group: usize,
        at: [usize; 3],
        band: *mut f32,
        slack: usize,
    ) {
        s.call(Fill { plan: self, x, image, group, at, band, slack });
    }

    /// A row of the padded columns `phase`, `phase + stride` …: zeros, inputs, zeros.
    ///
    /// # Safety
    /// The input row begins at element `from` of `x`; `to` takes `pitch` values.
    #[inline(always)]
    unsafe fn fill_row<S: Simd>(&self, s: S, x: *const u8, from: usize, phase: usize, to: *mut f32) {
        let (stride, pad, width) = (self.shape.stride[2], self.shape.pad_before[2], self.shape.input[2]);
        if (self.x.element, self.x.strides[4], stride) == (Element::F32, 1, 1) {
            // Column `i` of the band is column `i + phase - pad` of the row.
            let x = x.cast::<f32>().wrapping_add(from).wrapping_add(phase).wrapping_sub(pad);
            let mut i = 0;
            while i < self.pitch {
                let lanes = (self.pitch - i).min(S::LANES);
                let low = pad.saturating_sub(phase + i).min(lanes);
                let high = (width + pad).saturating_sub(phase + i).min(lanes).max(low);
                // SAFETY: the mask names columns of the row, and there are so many places up to `pitch`.
                unsafe {
                    if high - low == S::LANES {
                        s.store(to.add(i), s.load(x.wrapping_add(i)));
                    } else {
                        let values = s.load_masked(s.mask(first(high) & !first(low)), x.wrapping_add(i));
                        s.store_first(lanes, to.add(i), values);
                    }
                }
                i += S::LANES;
            }
            return;
        }
        let columns = PhaseColumns::new(phase, stride, pad, width, self.pitch);
        // SAFETY: the row's elements are read, and `pitch` values written: the caller's duty.
        unsafe { columns.copy(s, self.x.element, x, from, self.x.strides[4], to) };
    }
}

/// Kernel of [`Band::fill`], compiled once for all callers.
struct Fill<'a> {
    plan: &'a Band,
    x: *const u8,
    image: usize,
    group: usize,
    at: [usize; 3],
    band: *mut f32,
    slack: usize,
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Fill { plan, x, image, group, at: [z, row, column], band, slack } = self;
        let shape = &plan.shape;
        let cg = shape.group_in();
        let strides = plan.x.strides;
        let source = image * strides[0] + group * cg * strides[1];
        let both_phases = shape.stride[2] == 2 && plan.columns.phases == [0, 1];
        for c in 0..cg {
            let mut to = band.wrapping_add(c * plan.channel);
            for t in 0..shape.kernel[0] {
                let depth = inside(z * shape.stride[0] + t * shape.dilation[0], shape.pad_before[0], shape.input[0]);
                for row_phase in &plan.rows.phases {
                    let phase_len = plan.phase_rows * plan.pitch;
                    if both_phases {
                        for i in 0..plan.phase_rows {
                            let place = (row + i) * shape.stride[1] + row_phase;
                            let line = inside(place, shape.pad_before[1], shape.input[1]);
                            // SAFETY: the row has `pitch` places in each phase of the band, and its source is a row of the input,
                            // of which as many columns are left out as come before the band.
                            unsafe {
                                if let (Some(depth), Some(line)) = (depth, line) {
                                    let pad = shape.pad_before[2];
                                    let skipped = (2 * column).saturating_sub(pad).min(shape.input[2]);
                                    let from = source + c * strides[1] + depth * strides[2] + line * strides[3];
                                    copy_phases(
                                        s,
                                        plan.x.element,
                                        x,
                                        from + skipped * strides[4],
                                        strides[4],
                                        shape.input[2] - skipped,
                                        pad.saturating_sub(2 * column),
                                        [to, to.wrapping_add(phase_len)],
                                        plan.pitch,
                                    );
                                } else {
                                    zero(s, to, plan.pitch);
                                    zero(s, to.wrapping_add(phase_len), plan.pitch);
                                }
                            }
                            to = to.wrapping_add(plan.pitch);
                        }
                        to = to.wrapping_add(phase_len);
                        continue;
                    }
                    for column_phase in &plan.columns.phases {
                        for i in 0..plan.phase_rows {
                            let place = (row + i) * shape.stride[1] + row_phase;
                            let line = inside(place, shape.pad_before[1], shape.input[1]);
                            // SAFETY: the row has `pitch` places in the band, and its source is a row of the input.
                            unsafe {
                                match (depth, line) {
                                    (Some(depth), Some(line)) => {
                                        let from = source + c * strides[1] + depth * strides[2] + line * strides[3];
                                        plan.fill_row(s, x, from, column * shape.stride[2] + column_phase, to);
                                    }
                                    _ => zero(s, to, plan.pitch),
                                }
                            }
                            to = to.wrapping_add(plan.pitch);
                        }
                    }
                }
            }
        }
        // SAFETY: the slack follows the channels.
        unsafe { zero(s, band.wrapping_add(cg * plan.channel), slack.next_multiple_of(16)) };
    }
}

/// Input place of a padded one; `None` in the padding.
#[inline(always)]
pub(super) fn inside(place: usize, pad: usize, size: usize) -> Option<usize> {
    place.checked_sub(pad).filter(|place| *place < size)
}

/// Phase of the columns of a padded row: every `step`th one from the phase on.
pub(super) struct PhaseColumns {
    step: usize,
    /// Number of columns of the phase.
    len: usize,
    /// Number of those before the row.
    pub(super) left: usize,
    /// First one of the row.
    pub(super) begin: usize,
    /// Number of those of the row; the rest is behind it.
    pub(super) count: usize,
}

impl PhaseColumns {
    /// `len` columns of a row of `width`, from `phase` on, counted from `pad` columns before the first.
    #[inline(always)]
    pub(super) fn new(phase: usize, step: usize, pad: usize, width: usize, len: usize) -> PhaseColumns {
        let left = pad.saturating_sub(phase).div_ceil(step).min(len);
        let begin = (left * step + phase).saturating_sub(pad);
        let count = width.saturating_sub(begin).div_ceil(step).min(len - left);
        PhaseColumns { step, len, left, begin, count }
    }

    /// Copies them as `f32`, zero outside of the row, whose columns are `stride` elements apart from `from` on.
    ///
    /// # Safety
    /// The row's elements can be read, and `len` values written at `to`.
    #[inline(always)]
    pub(super) unsafe fn copy<S: Simd>(
        &self,
        s: S,
        element: Element,
        x: *const u8,
        from: usize,
        stride: usize,
        to: *mut f32,
    ) {
        let PhaseColumns { step, len, left, begin, count } = *self;
        // SAFETY: `left + count` is at most `len`, and the last column that is read is below the row's width.
        unsafe {
            zero(s, to, left);
            copy(s, element, x, from + begin * stride, step * stride, to.add(left), count);
            zero(s, to.add(left + count), len - left - count);
        }
    }
}

/// True if the rows of a plane of so many rows and columns follow each other without a gap: its places have one stride.
pub(super) fn is_even(layout: &Layout, [rows, columns]: [usize; 2]) -> bool {
    rows == 1 || columns == 1 || layout.strides[3] == columns * layout.strides[4]
}

/// Stride between neighboring places of a plane whose rows follow each other without a gap.
#[inline(always)]
pub(super) fn place_distance(layout: &Layout, columns: usize) -> usize {
    if columns == 1 { layout.strides[3] } else { layout.strides[4] }
}

/// # Safety
/// `count` values can be written at `to`.
#[inline(always)]
pub(super) unsafe fn zero<S: Simd>(s: S, to: *mut f32, count: usize) {
    let mut i = 0;
    while i < count {
        let lanes = (count - i).min(S::LANES);
        // SAFETY: the mask ends at `count`.
        unsafe { s.store_first(lanes, to.add(i), s.splat(0.0)) };
        i += S::LANES;
    }
}

/// Copies the columns of a row of `width` into its even and its odd ones, counted from `pad` columns before the first, with
/// zeros around: `len` of each.
///
/// # Safety
/// The row's elements, `step` apart from `from` on, can be read, and `len` values written at both places.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a row with its type, place and padding, and two results")]
pub(super) unsafe fn copy_phases<S: Simd>(
    s: S,
    element: Element,
    x: *const u8,
    from: usize,
    step: usize,
    width: usize,
    pad: usize,
    to: [*mut f32; 2],
    len: usize,
) {
    // SAFETY: the caller's duty; masks name columns of the row only, and places below `len`.
    unsafe {
        if (element, step) == (Element::F32, 1) {
            let x = x.cast::<f32>().wrapping_add(from).wrapping_sub(pad);
            let inside = |begin: usize| {
                let low = pad.saturating_sub(begin).min(S::LANES);
                let high = (width + pad).saturating_sub(begin).min(S::LANES).max(low);
                first(high) & !first(low)
            };
            let mut i = 0;
            while i < len {
                let begin = 2 * i;
                let (a, b) = if begin >= pad && begin + 2 * S::LANES <= width + pad {
                    (s.load(x.wrapping_add(begin)), s.load(x.wrapping_add(begin + S::LANES)))
                } else {
                    let (a, b) = (s.mask(inside(begin)), s.mask(inside(begin + S::LANES)));
                    (s.load_masked(a, x.wrapping_add(begin)), s.load_masked(b, x.wrapping_add(begin + S::LANES)))
                };
                let (even, odd) = s.unzip(a, b);
                if i + S::LANES <= len {
                    s.store(to[0].add(i), even);
                    s.store(to[1].add(i), odd);
                } else {
                    s.store_first(len - i, to[0].add(i), even);
                    s.store_first(len - i, to[1].add(i), odd);
                }
                i += S::LANES;
            }
            return;
        }
        for (phase, to) in to.into_iter().enumerate() {
            PhaseColumns::new(phase, 2, pad, width, len).copy(s, element, x, from, step, to);
        }
    }
}

/// Copies `count` values, every `stride`th from element `from` of `x`, as `f32`.
///
/// # Safety
/// Those elements can be read and `count` values written at `to`.
#[inline(always)]
pub(super) unsafe fn copy<S: Simd>(
    s: S,
    element: Element,
    x: *const u8,
    from: usize,
    stride: usize,
    to: *mut f32,
    count: usize,
) {
    // SAFETY: the caller's duty; masks end at `count`.
    unsafe {
        match (element, stride) {
            (Element::F32, 1) => {
                let x = x.cast::<f32>().add(from);
                let mut i = 0;
                while i + S::LANES <= count {
                    s.store(to.add(i), s.load(x.add(i)));
                    i += S::LANES;
                }
                if i < count {
                    let lanes = count - i;
                    s.store_first(lanes, to.add(i), s.load_masked(s.mask(first(lanes)), x.add(i)));
                }
            }
            (Element::F32, 2) => {
                let x = x.cast::<f32>().add(from);
                let mut i = 0;
                while i < count {
                    let lanes = (count - i).min(S::LANES);
                    s.store_first(lanes, to.add(i), s.load_even(first(lanes), x.wrapping_add(2 * i)));
                    i += S::LANES;
                }
            }
            (Element::F32, _) => {
                let x = x.cast::<f32>().add(from);
                for i in 0..count {
                    *to.add(i) = *x.add(i * stride);
                }
            }
            (Element::F16 | Element::BF16, 1) => {
                let mut i = 0;
                while i < count {
                    let lanes = (count - i).min(S::LANES);
                    store_lanes(s, Element::F32, to.cast(), i, load_lanes(s, element, x, from + i, lanes), lanes);
                    i += S::LANES;
                }
            }
            (Element::F16 | Element::BF16, 2) => {
                let mut i = 0;
                while i < count {
                    let lanes = (count - i).min(S::LANES);
                    // The last of them is no element of `x` for certain.
                    let reach = 2 * lanes - 1;
                    let low = load_lanes(s, element, x, from + 2 * i, reach.min(S::LANES));
                    let rest = reach.saturating_sub(S::LANES);
                    let high = load_lanes(s, element, x, from + 2 * i + if rest == 0 { 0 } else { S::LANES }, rest);
                    store_lanes(s, Element::F32, to.cast(), i, s.unzip(low, high).0, lanes);
                    i += S::LANES;
                }
            }
            _ => {
                for i in 0..count {
                    *to.add(i) = read(element, x, from + i * stride);
                }
            }
        }
    }
}

/// Loads `lanes` neighboring values from element `from` of `p` on; zeros in the other lanes.
///
/// # Safety
/// Those elements can be read.
#[inline(always)]
pub(super) unsafe fn load_lanes<S: Simd>(s: S, element: Element, p: *const u8, from: usize, lanes: usize) -> S::V {
    // SAFETY: the caller's duty; masks end with the lanes.
    unsafe {
        match element {
            Element::F32 if lanes == S::LANES => s.load(p.cast::<f32>().add(from)),
            Element::F32 => s.load_masked(s.mask(first(lanes)), p.cast::<f32>().add(from)),
            // A constant mask of all lanes is none to the compiler.
            Element::F16 if lanes == S::LANES => s.load_f16_masked(first(S::LANES), p.cast::<u16>().add(from)),
            Element::F16 => s.load_f16_masked(first(lanes), p.cast::<u16>().add(from)),
            Element::BF16 if lanes == S::LANES => s.load_bf16_masked(first(S::LANES), p.cast::<u16>().add(from)),
            Element::BF16 => s.load_bf16_masked(first(lanes), p.cast::<u16>().add(from)),
        }
    }
}

/// Loads the values at `p` of the lanes whose bits are set; zeros in the other lanes.
///
/// # Safety
/// The elements of those lanes can be read.
#[inline(always)]
pub(super) unsafe fn load_some<S: Simd>(s: S, element: Element, p: *const u8, lanes: u32) -> S::V {
    // SAFETY: the caller's duty.
    unsafe {
        match element {
            Element::F32 => s.load_masked(s.mask(lanes), p.cast()),
            Element::F16 => s.load_f16_masked(lanes, p.cast()),
            Element::BF16 => s.load_bf16_masked(lanes, p.cast()),
        }
    }
}

/// Loads `lanes` values from element `from` of `p` on, `step` elements apart; zeros in the other lanes.
///
/// # Safety
/// Those elements can be read.
#[inline(always)]
pub(super) unsafe fn load_apart<S: Simd>(
    s: S,
    element: Element,
    p: *const u8,
    from: usize,
    step: usize,
    lanes: usize,
) -> S::V {
    // SAFETY: the caller's duty; the array takes the widest vector.
    unsafe {
        if step == 1 {
            return load_lanes(s, element, p, from, lanes);
        }
        let mut values = [0f32; MAX_LANES];
        copy(s, element, p, from, step, values.as_mut_ptr(), lanes);
        s.load(values.as_ptr())
    }
}

/// Stores the first `lanes` values to neighboring elements from element `from` of `p` on, rounded to nearest even.
///
/// # Safety
/// Those elements can be written.
#[inline(always)]
pub(super) unsafe fn store_lanes<S: Simd>(s: S, element: Element, p: *mut u8, from: usize, value: S::V, lanes: usize) {
    // SAFETY: the caller's duty; masks end with the lanes.
    unsafe {
        match element {
            Element::F32 if lanes == S::LANES => s.store(p.cast::<f32>().add(from), value),
            Element::F32 => s.store_first(lanes, p.cast::<f32>().add(from), value),
            Element::F16 if lanes == S::LANES => s.store_f16_masked(first(S::LANES), p.cast::<u16>().add(from), value),
            Element::F16 => s.store_f16_masked(first(lanes), p.cast::<u16>().add(from), value),
            Element::BF16 if lanes == S::LANES => {
                s.store_bf16_masked(first(S::LANES), p.cast::<u16>().add(from), value)
            }
            Element::BF16 => s.store_bf16_masked(first(lanes), p.cast::<u16>().add(from), value),
        }
    }
}
