//! Bytes that the host reads in place until it gives them back: engine details, stored plans.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;

use hipdnn_engine_core::error::Error;

/// Alignment of lent buffers: the host dereferences scalars of FlatBuffers in place.
const ALIGNMENT: usize = 16;

/// Bytes in memory of their own.
#[derive(Debug)]
pub(super) struct LentBytes {
    bytes: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory.
unsafe impl Send for LentBytes {}

impl LentBytes {
    /// Copies the bytes into memory of at least one byte.
    ///
    /// # Errors
    /// If memory could not be had.
    pub(super) fn new(bytes: &[u8]) -> Result<LentBytes, Error> {
        let wanted = || Error::alloc_failed(format!("{} bytes for the host", bytes.len()));
        let layout = Layout::from_size_align(bytes.len().max(1), ALIGNMENT).map_err(|_| wanted())?;
        // SAFETY: the layout's size is not 0.
        let memory = NonNull::new(unsafe { alloc(layout) }).ok_or_else(wanted)?;
        // SAFETY: the allocation has as many bytes, and is not the slice's.
        unsafe { memory.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(LentBytes { bytes: memory, layout })
    }

    /// Address of the first byte.
    fn address(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// Number of bytes.
    fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}

/// Buffers of one kind that a host has not given back, by address.
#[derive(Debug, Default)]
pub(super) struct Lent(HashMap<usize, LentBytes>);

impl Lent {
    /// Keeps a buffer until [`Lent::take_back`]; returns its address and size.
    pub(super) fn lend(&mut self, buffer: LentBytes) -> (*const u8, usize) {
        let out = (buffer.address(), buffer.size());
        self.0.insert(out.0.addr(), buffer);
        out
    }

    /// Frees a buffer; `what` names it in messages.
    ///
    /// # Errors
    /// If no such buffer is lent.
    pub(super) fn take_back(&mut self, address: *const u8, size: usize, what: &str) -> Result<(), Error> {
        match self.0.remove(&address.addr()) {
            Some(buffer) if buffer.size() == size => Ok(()),
            Some(buffer) => {
                let expected = buffer.size();
                self.0.insert(address.addr(), buffer);
                Err(Error::bad_param(format!("{what}: expected {expected} bytes at {address:p}, got {size}")))
            }
            None => Err(Error::bad_param(format!(
                "{what}: expected memory of this handle, got {address:p}, which is none or was freed"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_readable_and_freed_once() {
        for content in [&b"some bytes"[..], b""] {
            let mut lent = Lent::default();
            let (address, size) = lent.lend(LentBytes::new(content).unwrap());
            assert_eq!((address.addr() % ALIGNMENT, size), (0, content.len().max(1)));
            // SAFETY: the buffer is lent, so it is there.
            assert_eq!(unsafe { std::slice::from_raw_parts(address, content.len()) }, content);
            assert!(lent.take_back(address, size + 1, "it").is_err());
            assert!(lent.take_back(address.wrapping_add(1), size, "it").is_err());
            lent.take_back(address, size, "it").unwrap();
            assert!(lent.take_back(address, size, "it").is_err());
        }
    }
}
