//! The device of a handle's stream: HIP's, if the process works on a GPU, else the host.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use hipdnn_schemas::DeviceProperties;
use hipdnn_sdk_bindings::hip::{Hip, hipError_t, hipStream_t};

use crate::error::{Error, Result};
use crate::log;

/// The number of the host among devices.
pub(crate) const HOST: i32 = -1;

/// The process's HIP, if an engine or the application has loaded one and it has a device.
pub(crate) fn hip() -> Option<&'static Hip> {
    static HIP: OnceLock<Hip> = OnceLock::new();
    if HIP.get().is_none() {
        // It may be loaded later than the first handle: what is not there is looked for again.
        let found = Hip::of_process().ok()?;
        let mut devices = 0;
        // SAFETY: the place is valid, and the library is open.
        let status = unsafe { (found.functions.hipGetDeviceCount)(&mut devices) };
        if status != hipError_t::hipSuccess || devices < 1 {
            return None;
        }
        let _ = HIP.set(found);
    }
    HIP.get()
}

/// A failed call of HIP's as an error.
pub(crate) fn check(function: &str, status: hipError_t) -> Result<()> {
    if status == hipError_t::hipSuccess { Ok(()) } else { Err(Error::internal(format!("{function}: {status}"))) }
}

/// The device of a stream; of a null one, which belongs to whatever device is current, the thread's current device.
fn of_stream(hip: &Hip, stream: *mut c_void) -> Result<c_int> {
    let mut device = 0;
    // SAFETY: the place is valid; the stream is the handle's, which its client keeps alive as long as it is used.
    let status = unsafe { (hip.functions.hipStreamGetDevice)(stream as hipStream_t, &mut device) };
    check("hipStreamGetDevice", status)?;
    Ok(device)
}

/// Calls `body` with the stream's device as the thread's current one, and puts back the one that was.
pub(crate) fn current_for<R>(hip: &Hip, stream: *mut c_void, body: impl FnOnce() -> Result<R>) -> Result<R> {
    let set = |device: c_int| {
        // SAFETY: takes a number, and the library is open.
        check("hipSetDevice", unsafe { (hip.functions.hipSetDevice)(device) })
    };
    let device = of_stream(hip, stream)?;
    let mut before = 0;
    // SAFETY: the place is valid, and the library is open.
    check("hipGetDevice", unsafe { (hip.functions.hipGetDevice)(&mut before) })?;
    if device == before {
        return body();
    }
    set(device)?;
    let result = body();
    set(before)?;
    result
}

/// Facts of the stream's device, or of the host where the process works on no GPU.
pub(crate) fn properties(stream: *mut c_void) -> DeviceProperties {
    let Some(hip) = hip() else { return host() };
    of_gpu(hip, stream).unwrap_or_else(|error| {
        log::warning!("engines are ranked for the host: the device of stream {stream:p} is unknown: {error}");
        host()
    })
}

fn of_gpu(hip: &Hip, stream: *mut c_void) -> Result<DeviceProperties> {
    let device = of_stream(hip, stream)?;
    // SAFETY: the library is open.
    let properties = unsafe { hip.functions.device_properties(device) };
    let properties = properties.map_err(|status| Error::internal(format!("hipGetDeviceProperties: {status}")))?;
    Ok(DeviceProperties {
        device_id: device,
        multi_processor_count: properties.known.multiProcessorCount,
        total_global_mem: properties.known.totalGlobalMem as u64,
        architecture_name: properties.arch(),
    })
}

fn host() -> DeviceProperties {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: takes a number each.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    DeviceProperties {
        device_id: HOST,
        multi_processor_count: i32::try_from(threads).unwrap_or(i32::MAX),
        total_global_mem: pages.max(0) as u64 * size.max(0) as u64,
        architecture_name: std::env::consts::ARCH.to_owned(),
    }
}

/// The widest vectors of the host's CPU, by which engines take other kernels.
pub(crate) fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        return "avx512";
    } else if std::arch::is_x86_feature_detected!("avx2") {
        return "avx2";
    }
    "baseline"
}
