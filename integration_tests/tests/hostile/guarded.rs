//! Memory between two pages that nobody may touch: a read or write one byte past a tensor is a fault, not luck.

use std::ffi::c_void;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// Byte that fills the memory around a tensor.
const CANARY: u8 = 0xa5;

/// Pages with a guard page on either side.
pub(crate) struct Guarded {
    map: NonNull<u8>,
    capacity: usize,
}

/// Place of a tensor within its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Right behind the first guard page.
    Front,
    /// So that its last byte is as close to the last guard page as this alignment allows.
    Back(usize),
}

/// A tensor put into [`Guarded`] pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    offset: usize,
    size: usize,
}

impl Guarded {
    pub(crate) fn new(capacity: usize) -> Guarded {
        let capacity = capacity.next_multiple_of(PAGE);
        // SAFETY: a new anonymous mapping touches no memory that anyone has.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                capacity + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED, "no memory for guarded pages");
        // SAFETY: the range lies within the mapping: one page follows it and one comes before it.
        let status =
            unsafe { libc::mprotect(map.wrapping_byte_add(PAGE), capacity, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(status, 0, "the pages between the guards are ours");
        Guarded { map: NonNull::new(map.cast()).expect("mmap gives no null"), capacity }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn pages(&mut self) -> &mut [u8] {
        // SAFETY: `capacity` bytes behind the first page are mapped, readable and writable, and borrowed from `self`.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_ptr().add(PAGE), self.capacity) }
    }

    /// Takes a place for `size` bytes and fills it from `content` (repeated), and what is around it with a pattern.
    pub(crate) fn put(&mut self, size: usize, place: Place, content: &[u8]) -> Put {
        assert!(size <= self.capacity);
        let offset = match place {
            Place::Front => 0,
            Place::Back(alignment) => (self.capacity - size) & !(alignment - 1),
        };
        let put = Put { offset, size };
        let (before, after) = self.around(put);
        let pages = self.pages();
        pages[before].fill(CANARY);
        pages[after].fill(CANARY);
        match content {
            [byte] => pages[offset..offset + size].fill(*byte),
            _ => {
                for chunk in pages[offset..offset + size].chunks_mut(content.len().max(1)) {
                    chunk.copy_from_slice(&content[..chunk.len()]);
                }
            }
        }
        put
    }

    /// The bytes next to a tensor that are looked at.
    fn around(&self, put: Put) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let end = put.offset + put.size;
        (put.offset.saturating_sub(64)..put.offset, end..self.capacity.min(end + 64))
    }

    pub(crate) fn address(&self, put: Put) -> *mut c_void {
        self.map.as_ptr().wrapping_add(PAGE + put.offset).cast()
    }

    pub(crate) fn content(&mut self, put: Put) -> &mut [u8] {
        &mut self.pages()[put.offset..put.offset + put.size]
    }

    /// True if the bytes around the tensor are as [`Guarded::put`] left them.
    pub(crate) fn surroundings_untouched(&mut self, put: Put) -> bool {
        let (before, after) = self.around(put);
        let pages = self.pages();
        pages[before].iter().chain(&pages[after]).all(|byte| *byte == CANARY)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping that `new` made; no one borrows it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.capacity + 2 * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_beside_the_tensor_is_noticed() {
        let mut guarded = Guarded::new(100);
        assert_eq!(guarded.capacity(), PAGE);
        for (place, offset) in [(Place::Front, 0), (Place::Back(1), PAGE - 10), (Place::Back(16), PAGE - 16)] {
            let put = guarded.put(10, place, b"abc");
            assert_eq!(put.offset, offset, "{place:?}");
            assert_eq!(guarded.content(put), b"abcabcabca");
            guarded.content(put).fill(0);
            assert!(guarded.surroundings_untouched(put));
            for beside in [offset.checked_sub(1), Some(offset + 10).filter(|at| *at < PAGE)].into_iter().flatten() {
                let put = guarded.put(10, place, b"abc");
                guarded.pages()[beside] = 0;
                assert!(!guarded.surroundings_untouched(put), "{place:?}, byte {beside}");
            }
        }
    }

    #[test]
    fn the_pages_beside_are_a_fault() {
        let mut guarded = Guarded::new(1);
        let put = guarded.put(PAGE, Place::Front, b"x");
        let first = guarded.address(put).cast::<u8>();
        for (at, is_ours) in [(-1, false), (0, true), (PAGE as isize - 1, true), (PAGE as isize, false)] {
            // A pipe takes a byte from an address that can be read, and answers EFAULT for one that cannot.
            let mut pipe = [0; 2];
            // SAFETY: the array has room for both ends; the kernel checks the address.
            let written = unsafe {
                assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
                let written = libc::write(pipe[1], first.wrapping_offset(at).cast(), 1);
                libc::close(pipe[0]);
                libc::close(pipe[1]);
                written
            };
            assert_eq!(written == 1, is_ours, "byte {at}");
        }
    }
}
