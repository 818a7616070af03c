//! Memory with guard pages around it, for tests of kernels.

/// Memory between two pages that can't be accessed, with its end (or its beginning) at the border.
pub struct Guarded {
    map: *mut u8,
    map_len: usize,
    /// Address of the first byte.
    pub data: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// Allocates `len` bytes, each `fill`; at the end of the opened pages, or at their beginning.
    pub fn new(len: usize, at_end: bool, fill: u8) -> Guarded {
        let inner = len.next_multiple_of(PAGE).max(PAGE);
        let map_len = inner + 2 * PAGE;
        // SAFETY: an anonymous mapping of fresh pages; its inner part is opened before use.
        let map = unsafe {
            let map =
                libc::mmap(std::ptr::null_mut(), map_len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(map.cast::<u8>().add(PAGE).cast(), inner, libc::PROT_READ | libc::PROT_WRITE), 0);
            map.cast::<u8>()
        };
        let data = map.wrapping_add(PAGE + if at_end { inner - len } else { 0 });
        // SAFETY: `len` bytes of the opened part.
        unsafe { data.write_bytes(fill, len) };
        Guarded { map, map_len, data, len }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping's opened part, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.map.cast(), self.map_len) };
    }
}
