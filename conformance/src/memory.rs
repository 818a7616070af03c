//! The memory that engines work on: host memory between inaccessible pages, or a GPU's.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use hipdnn_sdk_bindings::library::Library;

/// Memory that an engine works on.
pub enum Memory {
    /// The process's own.
    Host,
    /// A GPU's, through the HIP library of this process.
    Device(Box<Hip>),
}

/// Byte that fills the slack between the end of a buffer and the guard behind it.
const CANARY: u8 = 0xc5;

/// Room behind device buffers that must stay as it is. (Behind host buffers there is a page that can't be touched.)
const DEVICE_SLACK: usize = 4096;

/// Memory of a given size.
pub enum Buffer<'a> {
    /// On the host.
    Host(HostBuffer),
    /// On the device.
    Device(DeviceMemory<'a>),
}

impl Memory {
    /// The memory of the process's GPU.
    ///
    /// # Errors
    /// If there is no HIP library, or no device.
    pub fn device() -> Result<Memory, String> {
        Hip::open().map(|hip| Memory::Device(Box::new(hip)))
    }

    /// A buffer of `len` bytes, its end as close to the guard behind it as an address of `alignment` bytes allows.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn buffer(&self, len: usize, alignment: usize) -> Result<Buffer<'_>, String> {
        match self {
            Memory::Host => HostBuffer::new(len, alignment).map(Buffer::Host),
            Memory::Device(hip) => DeviceMemory::new(hip, len).map(Buffer::Device),
        }
    }

    /// Waits until everything that was started is done.
    ///
    /// # Errors
    /// HIP's.
    pub fn synchronize(&self) -> Result<(), String> {
        match self {
            Memory::Host => Ok(()),
            // SAFETY: the call has no arguments.
            Memory::Device(hip) => hip.check("hipDeviceSynchronize", unsafe { (hip.synchronize)() }),
        }
    }
}

impl Buffer<'_> {
    /// The address that the engine gets.
    pub fn address(&self) -> *mut c_void {
        match self {
            Buffer::Host(buffer) => buffer.start.as_ptr().cast(),
            Buffer::Device(memory) => memory.start,
        }
    }

    /// Puts these bytes in.
    ///
    /// # Errors
    /// HIP's.
    ///
    /// # Panics
    /// If they are not as many as the buffer has.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Buffer::Host(buffer) => {
                buffer.bytes_mut().copy_from_slice(bytes);
                Ok(())
            }
            Buffer::Device(memory) => memory.write(bytes),
        }
    }

    /// The bytes, if nothing beyond them was touched.
    ///
    /// # Errors
    /// If something was, or HIP's.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Buffer::Host(buffer) if buffer.slack_holds() => Ok(buffer.bytes().to_vec()),
            Buffer::Host(_) => Err("the bytes behind the end were written".into()),
            Buffer::Device(memory) => memory.read(),
        }
    }

    /// Makes host memory read-only.
    ///
    /// # Errors
    /// The system's.
    pub fn seal(&mut self) -> Result<(), String> {
        match self {
            Buffer::Host(buffer) => buffer.protect(libc::PROT_READ),
            Buffer::Device(_) => Ok(()),
        }
    }
}

/// Host memory with an inaccessible page before it and one behind it.
pub struct HostBuffer {
    /// The first inaccessible page.
    map: NonNull<u8>,
    map_len: usize,
    start: NonNull<u8>,
    len: usize,
}

const PAGE: usize = 4096;

impl HostBuffer {
    fn new(len: usize, alignment: usize) -> Result<HostBuffer, String> {
        let alignment = alignment.next_power_of_two().min(PAGE);
        let inside = len.max(1).next_multiple_of(PAGE);
        let map_len = inside.checked_add(2 * PAGE).ok_or("the buffer is too large")?;
        // SAFETY: a fresh private mapping at an address of the system's choice.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let map = NonNull::new(map.cast::<u8>())
            .filter(|map| map.as_ptr().cast() != libc::MAP_FAILED)
            .ok_or_else(|| format!("{len} bytes: {}", std::io::Error::last_os_error()))?;
        // The distance from the start to the guard is a multiple of the alignment, the guard being a page.
        let offset = PAGE + inside - len.next_multiple_of(alignment).max(alignment).min(inside);
        // SAFETY: the offset lies within the mapping.
        let start = unsafe { map.add(offset) };
        let mut buffer = HostBuffer { map, map_len, start, len };
        buffer.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        let slack = map_len - PAGE - offset;
        // SAFETY: from `start` to the guard behind are `slack` bytes, writable since the line above.
        unsafe { std::ptr::write_bytes(start.as_ptr(), CANARY, slack) };
        Ok(buffer)
    }

    fn protect(&mut self, protection: c_int) -> Result<(), String> {
        // SAFETY: the pages between the guards belong to this buffer, whose borrow is exclusive.
        let status = unsafe { libc::mprotect(self.map.as_ptr().add(PAGE).cast(), self.map_len - 2 * PAGE, protection) };
        if status == 0 { Ok(()) } else { Err(format!("mprotect: {}", std::io::Error::last_os_error())) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes from `start` belong to this buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialized bytes from `start` belong to this buffer, whose borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn slack_holds(&self) -> bool {
        let end = self.start.as_ptr().addr() + self.len;
        let guard = self.map.as_ptr().addr() + self.map_len - PAGE;
        // SAFETY: the bytes from the end to the guard were filled when the buffer was made.
        let slack = unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(self.len), guard - end) };
        slack.iter().all(|byte| *byte == CANARY)
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, unmapped once.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}

/// The functions of HIP's run-time library that copy memory.
pub struct Hip {
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    free: unsafe extern "C" fn(*mut c_void) -> c_int,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int,
    synchronize: unsafe extern "C" fn() -> c_int,
    _library: Library,
}

const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;

impl Hip {
    fn open() -> Result<Hip, String> {
        let names = hipdnn_sdk_bindings::hip::LIBRARY_NAMES.iter();
        let candidates = names.clone().map(|name| (*name).to_string());
        let installed = names.map(|name| format!("/opt/rocm/lib/{name}"));
        // SAFETY: these are HIP's own names; loading it is what every user of it does.
        let library = unsafe { Library::open("HIP (libamdhip64.so)", candidates.chain(installed)) }
            .map_err(|problem| problem.to_string())?;
        let missing = |problem: hipdnn_sdk_bindings::library::LibraryError| problem.to_string();
        // SAFETY: the signatures are those of `hip_runtime_api.h`, and the table keeps the library.
        let hip = unsafe {
            let count: unsafe extern "C" fn(*mut c_int) -> c_int =
                library.symbol(c"hipGetDeviceCount").map_err(missing)?;
            let mut devices = 0;
            let status = count(&mut devices);
            if status != 0 || devices == 0 {
                return Err(format!("HIP has no device (status {status})"));
            }
            Hip {
                malloc: library.symbol(c"hipMalloc").map_err(missing)?,
                free: library.symbol(c"hipFree").map_err(missing)?,
                copy: library.symbol(c"hipMemcpy").map_err(missing)?,
                synchronize: library.symbol(c"hipDeviceSynchronize").map_err(missing)?,
                _library: library,
            }
        };
        Ok(hip)
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), String> {
        if status == 0 { Ok(()) } else { Err(format!("{call}: hipError_t {status}")) }
    }
}

/// Device memory with room behind it that must stay as it is.
pub struct DeviceMemory<'a> {
    hip: &'a Hip,
    start: *mut c_void,
    len: usize,
}

impl<'a> DeviceMemory<'a> {
    fn new(hip: &'a Hip, len: usize) -> Result<DeviceMemory<'a>, String> {
        let mut start = std::ptr::null_mut();
        // SAFETY: `start` is valid for the call.
        hip.check("hipMalloc", unsafe { (hip.malloc)(&mut start, len + DEVICE_SLACK) })?;
        let mut memory = DeviceMemory { hip, start, len };
        memory.copy_in(0, &vec![CANARY; len + DEVICE_SLACK])?;
        Ok(memory)
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        assert!(offset + bytes.len() <= self.len + DEVICE_SLACK, "the bytes lie within the allocation");
        // SAFETY: the destination lies within the allocation, and `bytes` is readable.
        let status = unsafe {
            (self.hip.copy)(self.start.wrapping_byte_add(offset), bytes.as_ptr().cast(), bytes.len(), HOST_TO_DEVICE)
        };
        self.hip.check("hipMemcpy", status)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        assert_eq!(bytes.len(), self.len, "as many bytes as the buffer has");
        self.copy_in(0, bytes)
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.len + DEVICE_SLACK];
        // SAFETY: the source is the whole allocation, and `bytes` is as large.
        let status = unsafe { (self.hip.copy)(bytes.as_mut_ptr().cast(), self.start, bytes.len(), DEVICE_TO_HOST) };
        self.hip.check("hipMemcpy", status)?;
        if bytes[self.len..].iter().any(|byte| *byte != CANARY) {
            return Err("the bytes behind the end were written".into());
        }
        bytes.truncate(self.len);
        Ok(bytes)
    }
}

impl Drop for DeviceMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the allocation that `new` made, freed once.
        unsafe { (self.hip.free)(self.start) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_end_at_their_guards() {
        for (len, alignment) in [(0, 16), (1, 1), (16, 16), (17, 16), (4096, 256), (4097, 256), (10_000, 1)] {
            let mut buffer = Memory::Host.buffer(len, alignment).expect("memory");
            assert_eq!(buffer.address().addr() % alignment, 0, "{len}");
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            buffer.write(&bytes).expect("writable");
            assert_eq!(buffer.read().expect("untouched"), bytes);
            let Buffer::Host(host) = &buffer else { panic!("host memory") };
            let guard = host.map.as_ptr().addr() + host.map_len - PAGE;
            assert!(guard - (buffer.address().addr() + len) < alignment.max(1) + usize::from(len == 0) * alignment);
            if len % alignment != 0 {
                // SAFETY: the slack behind the end is part of the mapping.
                unsafe { host.start.as_ptr().add(len).write(0) };
                assert!(buffer.read().is_err(), "{len}");
            }
            buffer.seal().expect("the system lets us");
        }
    }
}
