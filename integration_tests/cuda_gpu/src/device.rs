//! The driver, its devices, and the calling thread's current one.
//!
//! HIP's current device of a thread is here, the driver's is that device's primary context, which CUDA's own runtime uses too: memory
//! and streams of other CUDA programs in the process are HIP's as well.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use hipdnn_sdk_bindings::hip::hipError_t;

use crate::status::{Result, check};

/// A device, with its primary context from its first use on.
pub(crate) struct Device {
    pub(crate) raw: CUdevice,
    context: OnceLock<Result<Context>>,
}

#[derive(Clone, Copy)]
struct Context(CUcontext);

// SAFETY: primary contexts belong to no thread, and the process never releases these.
unsafe impl Send for Context {}
// SAFETY: the handle never changes, and several threads may make a context theirs at once.
unsafe impl Sync for Context {}

thread_local! {
    /// The current device, and whether the thread has been put into its context.
    static CURRENT: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// The devices; there is at least one.
///
/// # Errors
/// `hipErrorNoDevice` without the driver or a device; standard error has the reason.
pub(crate) fn devices() -> Result<&'static [Device]> {
    static DEVICES: OnceLock<Result<Vec<Device>>> = OnceLock::new();
    DEVICES.get_or_init(open).as_deref().map_err(|status| *status)
}

fn open() -> Result<Vec<Device>> {
    let none = |reason: &str| {
        eprintln!("HIP over CUDA: {reason}");
        hipError_t::hipErrorNoDevice
    };
    // SAFETY: opening the driver's library runs its initializers, as for every user of CUDA.
    if !unsafe { sys::is_culib_present() } {
        return Err(none("the CUDA driver (libcuda.so.1) can't be opened"));
    }
    let failed = |call: &'static str| move |status: hipError_t| none(&format!("{call} gave {}", status.0));
    let mut count = 0;
    // SAFETY: the library is there; a place for one number.
    unsafe {
        check(sys::cuInit(0)).map_err(failed("cuInit"))?;
        check(sys::cuDeviceGetCount(&mut count)).map_err(failed("cuDeviceGetCount"))?;
    }
    let device = |ordinal| {
        let mut raw = 0;
        // SAFETY: the driver is initialized; a place for one handle.
        check(unsafe { sys::cuDeviceGet(&mut raw, ordinal) }).map_err(failed("cuDeviceGet"))?;
        Ok(Device { raw, context: OnceLock::new() })
    };
    match count {
        ..1 => Err(none("the CUDA driver has no device")),
        _ => (0..count).map(device).collect(),
    }
}

/// The device of that number.
pub(crate) fn device(ordinal: c_int) -> Result<&'static Device> {
    let index = usize::try_from(ordinal).map_err(|_| hipError_t::hipErrorInvalidDevice)?;
    devices()?.get(index).ok_or(hipError_t::hipErrorInvalidDevice)
}

impl Device {
    /// Its primary context, made when it is first asked for.
    pub(crate) fn context(&self) -> Result<CUcontext> {
        let made = self.context.get_or_init(|| {
            let mut context = null_mut();
            // SAFETY: the device is the driver's; a place for one handle.
            check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, self.raw) })?;
            Ok(Context(context))
        });
        made.map(|context| context.0)
    }

    /// A number that the driver has for it.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the device is the driver's; a place for one number.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.raw) })?;
        Ok(value)
    }

    /// NVIDIA's name of the architecture: `sm_90`.
    pub(crate) fn arch(&self) -> Result<String> {
        let major = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(format!("sm_{major}{minor}"))
    }
}

/// Number of the thread's current device.
pub(crate) fn current() -> c_int {
    CURRENT.get().0 as c_int
}

/// Makes a device the thread's current one.
pub(crate) fn set_current(ordinal: c_int) -> Result {
    let context = device(ordinal)?.context()?;
    // SAFETY: the context is never released.
    check(unsafe { sys::cuCtxSetCurrent(context) })?;
    CURRENT.set((ordinal as usize, true));
    Ok(())
}

/// Puts the thread into the context of its current device, unless it has been: the driver wants that, HIP does not.
pub(crate) fn enter() -> Result {
    match CURRENT.get() {
        (_, true) => Ok(()),
        (ordinal, false) => set_current(ordinal as c_int),
    }
}

/// Number of the device that a context is of.
pub(crate) fn of_context(context: CUcontext) -> Result<c_int> {
    let is_it = |device: &Device| matches!(device.context.get(), Some(Ok(known)) if known.0 == context);
    devices()?.iter().position(is_it).map(|at| at as c_int).ok_or(hipError_t::hipErrorInvalidContext)
}
