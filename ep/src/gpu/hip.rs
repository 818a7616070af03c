//! HIP as the provider calls it: opened once in a process, never closed, every status an error that names its call.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use hipdnn_sdk_bindings::hip::{self, Functions, hipError_t, hipMemcpyKind, hipStream_t, hipStreamCaptureMode};

use crate::error::Error;

/// The process's HIP.
#[derive(Debug)]
pub(crate) struct Hip {
    library: hip::Hip,
    /// The process that opened it: HIP does not live through a fork.
    process: Process,
}

/// The process that made the value.
#[derive(Debug)]
struct Process {
    id: u32,
    /// A word that reads 1 here and 0 in processes that are forked, where the kernel has such memory: asking for the process's
    /// number is a system call.
    mark: Option<&'static AtomicU32>,
}

impl Process {
    fn current() -> Process {
        Process { id: std::process::id(), mark: Process::mark() }
    }

    fn mark() -> Option<&'static AtomicU32> {
        let (bytes, protection) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a mapping of its own, at a place that the kernel chooses.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping was made above; forks find zeros there.
        if unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: the mapping was made above, and nobody knows it.
            unsafe { libc::munmap(page, bytes) };
            return None;
        }
        // SAFETY: the page is zeros, aligned, and never unmapped from here on.
        let mark = unsafe { &*page.cast::<AtomicU32>() };
        mark.store(1, Ordering::Relaxed);
        Some(mark)
    }

    /// True in the process itself, false in one that was forked from it.
    fn is_here(&self) -> bool {
        match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed) == 1,
            None => std::process::id() == self.id,
        }
    }
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HipError {
    /// The function.
    pub call: &'static str,
    /// Status that it answered.
    pub status: hipError_t,
}

impl fmt::Display for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.status, self.status.0)
    }
}

impl From<HipError> for Error {
    fn from(error: HipError) -> Error {
        Error::failed(error.to_string())
    }
}

/// Calls a function of HIP.
macro_rules! call {
    ($hip:expr, $name:ident ( $($argument:expr),* )) => {
        if $hip.is_foreign() {
            $crate::gpu::hip::foreign(stringify!($name))
        } else {
            $crate::gpu::hip::checked(stringify!($name), ($hip.functions().$name)($($argument),*))
        }
    };
}
pub(crate) use call;

/// The result of a call in a process that was forked after HIP was opened: it is not made.
pub(crate) fn foreign(call: &'static str) -> Result<(), HipError> {
    Err(HipError { call, status: hipError_t::hipErrorNotInitialized })
}

/// A call's status as a result.
pub(crate) fn checked(call: &'static str, status: hipError_t) -> Result<(), HipError> {
    if status == hipError_t::hipSuccess { Ok(()) } else { Err(HipError { call, status }) }
}

impl Hip {
    /// The process's HIP, opened at the first call.
    ///
    /// # Errors
    /// The reason, if there is none.
    pub(crate) fn get() -> Result<&'static Hip, &'static str> {
        static HIP: OnceLock<Result<Hip, String>> = OnceLock::new();
        let opened = HIP.get_or_init(|| {
            // SAFETY: these are HIP's own names and places; loading it is what every user of it does.
            let library = unsafe { hip::Hip::open(hip::candidates()) }.map_err(|error| error.to_string())?;
            Ok(Hip { library, process: Process::current() })
        });
        opened.as_ref().map_err(String::as_str)
    }

    /// Its functions.
    pub(crate) fn functions(&self) -> &Functions {
        &self.library.functions
    }

    /// True in a process that was forked after HIP was opened.
    pub(crate) fn is_foreign(&self) -> bool {
        !self.process.is_here()
    }

    /// Fails in a process that was forked after HIP was opened, where its calls hang or crash.
    ///
    /// # Errors
    /// An error in such a process, with both processes' ids.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if !self.is_foreign() {
            return Ok(());
        }
        let here = std::process::id();
        Err(Error::failed(format!(
            "{}: HIP was opened in process {} and does not live through a fork, this is process {here}; start worker \
             processes by spawning, or fork before the provider is registered",
            crate::NAME_TEXT,
            self.process.id
        )))
    }

    /// Version of HIP's run-time library, as it says it.
    pub(crate) fn version(&self) -> Option<c_int> {
        self.library.version().ok()
    }

    /// Version of the driver, as HIP says it.
    pub(crate) fn driver_version(&self) -> Option<c_int> {
        let mut version = 0;
        // SAFETY: a place for one number.
        let asked = unsafe { call!(self, hipDriverGetVersion(&mut version)) };
        asked.ok().map(|()| version)
    }

    /// Number of devices.
    ///
    /// # Errors
    /// HIP's status: some releases have one for none.
    pub(crate) fn devices(&self) -> Result<c_int, HipError> {
        let mut count = 0;
        // SAFETY: a place for one number.
        unsafe { call!(self, hipGetDeviceCount(&mut count)) }?;
        Ok(count)
    }

    /// The calling thread's current device.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn current_device(&self) -> Result<c_int, HipError> {
        let mut device = 0;
        // SAFETY: a place for one number.
        unsafe { call!(self, hipGetDevice(&mut device)) }?;
        Ok(device)
    }

    /// Bus id of a device, as `0000:03:00.0`; `None` where HIP does not say.
    pub(crate) fn pci_bus_id(&self, device: c_int) -> Option<String> {
        let ask = self.functions().hipDeviceGetPCIBusId?;
        let mut text = [0u8; 64];
        // SAFETY: a place of 64 bytes.
        let status = unsafe { ask(text.as_mut_ptr().cast(), text.len() as c_int, device) };
        checked("hipDeviceGetPCIBusId", status).ok()?;
        let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
        (!text.is_empty()).then(|| text.to_ascii_lowercase())
    }

    /// Makes a device the calling thread's until the result is dropped.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn enter(&'static self, device: c_int) -> Result<Entered, HipError> {
        let before = self.current_device()?;
        if before != device {
            // SAFETY: the call takes a number.
            unsafe { call!(self, hipSetDevice(device)) }?;
        }
        Ok(Entered { hip: self, device, before })
    }

    /// The same for a device that is every thread's, since there is no other.
    pub(crate) fn entered(&'static self, device: c_int) -> Entered {
        Entered { hip: self, device, before: device }
    }

    /// Bytes of the current device that are free, and all.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn memory(&self) -> Result<(usize, usize), HipError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places for one number each.
        unsafe { call!(self, hipMemGetInfo(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Takes memory of the current device, or of the host for all devices to reach, also while a stream captures.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn take(&self, bytes: usize, pinned: bool) -> Result<*mut c_void, HipError> {
        // What a capture on this thread refuses is no part of it.
        let _relaxed = Relaxed::enter(self)?;
        let mut memory = std::ptr::null_mut();
        // SAFETY: a place for an address.
        unsafe {
            if pinned {
                call!(self, hipHostMalloc(&mut memory, bytes, hip::hipHostMallocPortable))
            } else {
                call!(self, hipMalloc(&mut memory, bytes))
            }
        }?;
        Ok(memory)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`Hip::take`] with the same `pinned`, and nothing uses it.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) unsafe fn give_back(&self, memory: *mut c_void, pinned: bool) -> Result<(), HipError> {
        // It is given back even if HIP then refuses because of a capture on this thread.
        let _relaxed = Relaxed::enter(self).ok();
        // SAFETY: the caller's promise.
        unsafe { if pinned { call!(self, hipHostFree(memory)) } else { call!(self, hipFree(memory)) } }
    }

    /// Has the current device read and write another's memory directly, if both can; without that HIP copies between them by way
    /// of the host.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn open_peer(&self, device: c_int, peer: c_int) -> Result<(), HipError> {
        let (Some(can), Some(enable)) =
            (self.functions().hipDeviceCanAccessPeer, self.functions().hipDeviceEnablePeerAccess)
        else {
            return Ok(());
        };
        let _relaxed = Relaxed::enter(self)?;
        let mut able = 0;
        // SAFETY: a place for one number.
        checked("hipDeviceCanAccessPeer", unsafe { can(&mut able, device, peer) })?;
        if able == 0 {
            return Ok(());
        }
        // SAFETY: the call takes numbers.
        match unsafe { enable(peer, 0) } {
            // The application may have done it.
            hipError_t::hipErrorPeerAccessAlreadyEnabled => {
                // SAFETY: the call takes nothing. HIP keeps the status for whoever asks for the last one.
                let _ = unsafe { (self.functions().hipGetLastError)() };
                Ok(())
            }
            status => checked("hipDeviceEnablePeerAccess", status),
        }
    }

    /// Enqueues a copy between any two memories.
    ///
    /// # Safety
    /// Both have so many bytes that stay until the stream has passed, and the stream is alive.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) unsafe fn copy(
        &self,
        destination: *mut c_void,
        source: *const c_void,
        bytes: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> Result<(), HipError> {
        // SAFETY: the caller's promise.
        unsafe { call!(self, hipMemcpyAsync(destination, source, bytes, kind, stream)) }
    }
}

/// A device that is the calling thread's; dropping it makes the one before that again.
#[must_use]
pub(crate) struct Entered {
    hip: &'static Hip,
    device: c_int,
    before: c_int,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.before != self.device {
            // SAFETY: the call takes a number. A failure leaves the thread on a device that exists.
            let _ = unsafe { call!(self.hip, hipSetDevice(self.before)) };
        }
    }
}

/// A stretch in which the calling thread may allocate although it captures.
struct Relaxed<'a> {
    hip: &'a Hip,
    before: hipStreamCaptureMode,
}

impl<'a> Relaxed<'a> {
    fn enter(hip: &'a Hip) -> Result<Relaxed<'a>, HipError> {
        let mut mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        // SAFETY: a place with a mode, which gets the one before.
        unsafe { call!(hip, hipThreadExchangeStreamCaptureMode(&mut mode)) }?;
        Ok(Relaxed { hip, before: mode })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let mut mode = self.before;
        // SAFETY: a place with a mode. A failure leaves the thread with the freer one.
        let _ = unsafe { call!(self.hip, hipThreadExchangeStreamCaptureMode(&mut mode)) };
    }
}
