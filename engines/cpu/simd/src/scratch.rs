//! Memory that begins on a cache line.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, to which every kernel buffer is aligned.
pub const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE / 4]);

/// A zeroed `f32` buffer that begins on a cache line.
pub struct AlignedBuffer {
    lines: Box<[Line]>,
    len: usize,
}

impl AlignedBuffer {
    /// Allocates a buffer of `len` zeros.
    pub fn new(len: usize) -> AlignedBuffer {
        AlignedBuffer { lines: vec![Line([0.0; LINE / 4]); len.div_ceil(LINE / 4)].into_boxed_slice(), len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: the lines are contiguous `f32` values without padding, at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: the lines are contiguous `f32` values without padding, at least `len` of them, and borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// Aligns `pointer` up to a cache line.
pub fn align_up(pointer: *mut u8) -> *mut u8 {
    pointer.wrapping_add(pointer.align_offset(LINE))
}

/// Rounds `bytes` up to whole cache lines.
pub const fn lines(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_on_a_line_and_hold_zeros() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let mut buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(LINE), 0);
            assert!(buffer.iter().all(|value| *value == 0.0));
            buffer.fill(1.0);
            assert!(buffer.iter().all(|value| *value == 1.0));
        }
    }
}
