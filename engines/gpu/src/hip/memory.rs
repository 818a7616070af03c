//! Device memory that is freed with its owner.

use std::ffi::c_void;

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hip::hipMemcpyKind;

use super::{Gpu, Stream};

/// An allocation on the device that was current when it was made.
#[derive(Debug)]
pub struct DeviceMemory {
    gpu: &'static Gpu,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: device memory belongs to no thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: the address and the size never change, and the contents are only reached by calls that name their stream.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates on the thread's current device. Nothing is allocated for no bytes.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<DeviceMemory, Error> {
        let mut address: *mut c_void = std::ptr::null_mut();
        if bytes > 0 {
            // SAFETY: a place for one address.
            let status = unsafe { (gpu.hip.hipMalloc)(&mut address, bytes) };
            gpu.check_hip(status, "hipMalloc").map_err(|error| error.within(format!("{bytes} bytes")))?;
        }
        Ok(DeviceMemory { gpu, address: address.cast(), bytes })
    }

    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The first byte's address; null if there is none.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`; null if there are no bytes.
    ///
    /// # Panics
    /// If it lies outside.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes, "{offset} is outside of {} bytes", self.bytes);
        self.address.wrapping_add(offset)
    }

    fn check(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} of {}", self.bytes);
    }

    /// Copies from the host, and waits until that is done.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn write(&self, offset: usize, data: &[u8], stream: &Stream) -> Result<(), Error> {
        self.check(offset, data.len());
        if data.is_empty() {
            return Ok(());
        }
        let to = self.at(offset).cast();
        // SAFETY: the range is inside the allocation, and `data` outlives the copy, which is waited for.
        let status = unsafe {
            (self.gpu.hip.hipMemcpyAsync)(
                to,
                data.as_ptr().cast(),
                data.len(),
                hipMemcpyKind::hipMemcpyHostToDevice,
                stream.raw(),
            )
        };
        let waited = stream.settle();
        self.gpu.check_hip(status, "hipMemcpyAsync").and(waited)
    }

    /// Copies to the host, after what the stream has to do, and waits until that is done.
    ///
    /// # Errors
    /// If HIP refuses, or something on the stream failed.
    pub fn read(&self, offset: usize, data: &mut [u8], stream: &Stream) -> Result<(), Error> {
        self.check(offset, data.len());
        if data.is_empty() {
            return Ok(());
        }
        let from: *const c_void = self.at(offset).cast();
        // SAFETY: the range is inside the allocation, and `data` is borrowed until the copy, which is waited for, is
        // done.
        let status = unsafe {
            (self.gpu.hip.hipMemcpyAsync)(
                data.as_mut_ptr().cast(),
                from,
                data.len(),
                hipMemcpyKind::hipMemcpyDeviceToHost,
                stream.raw(),
            )
        };
        let waited = stream.settle();
        self.gpu.check_hip(status, "hipMemcpyAsync").and(waited)
    }

    /// Has the stream copy within the allocation. The two ranges must not overlap.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn copy_within(&self, from: usize, to: usize, bytes: usize, stream: &Stream) -> Result<(), Error> {
        self.check(from, bytes);
        self.check(to, bytes);
        assert!(from + bytes <= to || to + bytes <= from, "the ranges overlap");
        let source: *const c_void = self.at(from).cast();
        // SAFETY: both ranges are inside the allocation.
        let status = unsafe {
            (self.gpu.hip.hipMemcpyAsync)(
                self.at(to).cast(),
                source,
                bytes,
                hipMemcpyKind::hipMemcpyDeviceToDevice,
                stream.raw(),
            )
        };
        self.gpu.check_hip(status, "hipMemcpyAsync")
    }

    /// Has the stream set all bytes to a value.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn fill(&self, value: u8, stream: &Stream) -> Result<(), Error> {
        if self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is the allocation.
        let status =
            unsafe { (self.gpu.hip.hipMemsetAsync)(self.address.cast(), i32::from(value), self.bytes, stream.raw()) };
        self.gpu.check_hip(status, "hipMemsetAsync")
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if !self.address.is_null() {
            // SAFETY: `new` allocated it, and nobody has it any more.
            let status = unsafe { (self.gpu.hip.hipFree)(self.address.cast()) };
            self.gpu.log_hip(status, "hipFree");
        }
    }
}
