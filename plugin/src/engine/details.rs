//! What an engine says of itself, as bytes that the host reads in place.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;

use hipdnn_schemas::EngineDetails;

use crate::error::Error;

/// The host dereferences scalars of the FlatBuffer where they lie.
const ALIGNMENT: usize = 16;

/// A serialised [`EngineDetails`] in memory of its own.
#[derive(Debug)]
pub struct DetailsBuffer {
    bytes: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory.
unsafe impl Send for DetailsBuffer {}

impl DetailsBuffer {
    /// Serialises.
    ///
    /// # Errors
    /// If memory could not be had.
    pub fn new(details: &EngineDetails) -> Result<DetailsBuffer, Error> {
        let bytes = details.to_bytes();
        let layout = Layout::from_size_align(bytes.len().max(1), ALIGNMENT).expect("a small power of two fits");
        // SAFETY: the layout's size is not 0.
        let memory = NonNull::new(unsafe { alloc(layout) })
            .ok_or_else(|| Error::alloc_failed(format!("{} bytes for engine details", bytes.len())))?;
        // SAFETY: the allocation has as many bytes, and is not the vector's.
        unsafe { memory.copy_from_nonoverlapping(NonNull::from(&bytes[..]).cast(), bytes.len()) };
        Ok(DetailsBuffer { bytes: memory, layout })
    }

    /// The first byte.
    pub fn address(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// How many bytes there are.
    pub fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for DetailsBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}

/// The buffers that a host has not given back, by address.
#[derive(Debug, Default)]
pub struct Lent(HashMap<usize, DetailsBuffer>);

impl Lent {
    /// Keeps a buffer until [`Lent::take_back`]; gives its address and size.
    pub fn lend(&mut self, buffer: DetailsBuffer) -> (*const u8, usize) {
        let out = (buffer.address(), buffer.size());
        self.0.insert(out.0.addr(), buffer);
        out
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// If no such buffer is lent.
    pub fn take_back(&mut self, address: *const u8, size: usize) -> Result<(), Error> {
        match self.0.remove(&address.addr()) {
            Some(buffer) if buffer.size() == size => Ok(()),
            Some(buffer) => {
                let wanted = buffer.size();
                self.0.insert(address.addr(), buffer);
                Err(Error::bad_param(format!("engine_details: wanted {wanted} bytes at {address:p}, came {size}")))
            }
            None => Err(Error::bad_param(format!("engine_details: {address:p} is not of this handle, or was freed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_readable_and_freed_once() {
        let details = EngineDetails { engine_id: -5, behavior_notes: vec![2], ..EngineDetails::default() };
        let mut lent = Lent::default();
        let (address, size) = lent.lend(DetailsBuffer::new(&details).unwrap());
        assert_eq!(address.addr() % ALIGNMENT, 0);
        // SAFETY: the buffer is lent, so it is there.
        let bytes = unsafe { std::slice::from_raw_parts(address, size) };
        assert_eq!(EngineDetails::from_bytes(bytes).unwrap(), details);
        assert!(lent.take_back(address, size + 1).is_err());
        assert!(lent.take_back(address.wrapping_add(1), size).is_err());
        lent.take_back(address, size).unwrap();
        assert!(lent.take_back(address, size).is_err());
    }
}
