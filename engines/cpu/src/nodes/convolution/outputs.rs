//! The output's gradient as a factor of products, and what both gradients gather and store with.

use super::Forward;
use crate::nodes::view::Walk;
use hipdnn_cpu_convolution::Element;
use hipdnn_cpu_kernels::product::DEPTH;
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_simd::isa::Isa;

/// dy, by rows of places of the output's last extent.
pub(super) struct Outputs<'a> {
    pub(super) forward: &'a Forward,
    pub(super) isa: Isa,
    pub(super) rows: &'a Walk,
    pub(super) dy: *const u8,
}

// SAFETY: the tensor is only read.
unsafe impl Sync for Outputs<'_> {}

impl Outputs<'_> {
    /// Writes the values of places (first, count), of `channels` channels from element `base` on: those of neighboring places and
    /// channels the two strides of `to` apart.
    ///
    /// # Safety
    /// The places and channels are of dy, no more than [`DEPTH`] of what is not side by side in `to`, which has room for them.
    pub(super) unsafe fn gather(
        &self,
        base: usize,
        places: (usize, usize),
        channels: usize,
        to: *mut f32,
        [of_place, of_channel]: [usize; 2],
    ) {
        let Forward { shape, y, .. } = self.forward;
        let (storage, [_, channel, .., step]) = (storage(y.element), y.strides);
        let mut values = [0f32; DEPTH];
        let mut line = |from: usize, stride: usize, len: usize, to: *mut f32, pitch: usize| {
            // SAFETY: the caller's promise.
            unsafe {
                if pitch == 1 {
                    storage.load(self.isa, self.dy, from, stride, std::slice::from_raw_parts_mut(to, len));
                } else {
                    storage.load(self.isa, self.dy, from, stride, &mut values[..len]);
                    spread(&values[..len], to, pitch);
                }
            }
        };
        for_rows(places, shape.output[2], |row, first, at, len| {
            let (base, to) = (base + self.rows.offset(row) + first * step, to.wrapping_add(at * of_place));
            if channel == 1 && channels > 1 {
                (0..len).for_each(|i| line(base + i * step, 1, channels, to.wrapping_add(i * of_place), of_channel));
            } else {
                let each = |i: usize| (base + i * channel, to.wrapping_add(i * of_channel));
                (0..channels).map(each).for_each(|(from, to)| line(from, step, len, to, of_place));
            }
        });
    }
}

pub(super) fn storage(element: Element) -> Storage {
    match element {
        Element::F32 => Storage::F32,
        Element::F16 => Storage::F16,
        Element::BF16 => Storage::BF16,
    }
}

/// Calls `f(row, first, at, len)` for the parts of rows of `extent` places that the places (first, count) are made of: `len`
/// places of `row` from `first` on, which are those from `at` on of all.
pub(super) fn for_rows((start, count): (usize, usize), extent: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    let mut at = 0;
    while at < count {
        let (row, first) = ((start + at) / extent, (start + at) % extent);
        let len = (extent - first).min(count - at);
        f(row, first, at, len);
        at += len;
    }
}

/// Writes each value `pitch` after the one before it.
///
/// # Safety
/// The places can be written.
pub(super) unsafe fn spread(values: &[f32], to: *mut f32, pitch: usize) {
    for (i, value) in values.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.add(i * pitch).write(*value) };
    }
}
