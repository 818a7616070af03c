//! Rounding of results that a kernel left in scratch memory, to tensors whose channels lie side by side.
//!
//! Microkernels store `f32`: with stores of other types in their way they were slower for `f32` by up to half.

use super::band::{load_lanes, store_lanes};
use super::epilogue::InTile;
use super::problem::{Element, Layout};
use hipdnn_cpu_simd::isa::Simd;

/// Places of a tensor whose channels lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) element: Element,
    /// Address of the tensor.
    pub(super) p: *mut u8,
    /// Element that the first place's first channel is.
    pub(super) from: usize,
    /// Elements from a place to the next.
    pub(super) distance: usize,
}

/// True if results in registers have to be rounded, or a summand to be widened: one of the two is not `f32`.
pub(super) fn is_wanted(y: &Layout, tile: &InTile) -> bool {
    let short = |layout: &Layout| layout.element != Element::F32;
    short(y) || tile.summand.as_ref().is_some_and(|(_, layout)| short(layout))
}

/// Adds a summand to rows of results, clamps them then, and rounds them to the output. `rows`: address, and distance of rows;
/// `count`: number of rows, and of channels of each.
///
/// # Safety
/// Whole vectors of so many rows' channels can be read; the output's places can be written, and the summand's read.
#[inline(always)]
pub(super) unsafe fn round<S: Simd>(
    s: S,
    (rows, pitch): (*const f32, usize),
    [count, channels]: [usize; 2],
    to: Places,
    summand: Option<Places>,
    clamp: (f32, f32),
) {
    let (low, high) = (s.splat(clamp.0), s.splat(clamp.1));
    for place in 0..count {
        let row = rows.wrapping_add(place * pitch);
        let mut channel = 0;
        while channel < channels {
            let lanes = (channels - channel).min(S::LANES);
            // SAFETY: the caller's duty.
            unsafe {
                let mut value = s.load(row.wrapping_add(channel));
                if let Some(Places { element, p, from, distance }) = summand {
                    let other = load_lanes(s, element, p, from + place * distance + channel, lanes);
                    value = s.min(high, s.max(low, s.add(value, other)));
                }
                store_lanes(s, to.element, to.p, to.from + place * to.distance + channel, value, lanes);
            }
            channel += S::LANES;
        }
    }
}
