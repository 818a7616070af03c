//! Handles, the version, and statuses by name.

use std::cell::{OnceCell, RefCell};
use std::ffi::{CString, c_char};
use std::ptr::null_mut;
use std::sync::OnceLock;

use hipdnn_sdk_bindings::hip::hipStream_t;
use hipdnn_sdk_bindings::miopen::{miopenHandle_t, miopenStatus_t};

use super::{Result, backend, borrow, borrow_mut, cudnn, from_hip, give, miopen, put};
use crate::device;

/// MIOpen's release whose functions these are. The patch level is no release's: choices that MIOpen's own were made by are not taken.
const VERSION: [usize; 3] = [3, 5, 999];

/// A handle: the stream that work goes to, and cuDNN's handle once an algorithm of its is wanted, with the engines that are compiled for it.
pub(super) struct Handle {
    pub(super) stream: hipStream_t,
    /// Goes before cuDNN's handle.
    pub(super) plans: RefCell<backend::Plans>,
    pub(super) cudnn: OnceCell<Option<cudnn::Handle>>,
}

impl Handle {
    fn new(stream: hipStream_t) -> Handle {
        Handle { stream, plans: RefCell::default(), cudnn: OnceCell::new() }
    }
}

/// # Safety
/// The handle is null, or one of [`miopenCreateWithStream`] that is alive, in use by this thread alone.
pub(super) unsafe fn handle<'a>(raw: miopenHandle_t) -> Result<&'a Handle> {
    // SAFETY: the caller's promise.
    unsafe { borrow(raw.cast::<Handle>()) }
}

miopen! {
    fn miopenGetVersion(major: *mut usize, minor: *mut usize, patch: *mut usize) {
        for (place, value) in [major, minor, patch].into_iter().zip(VERSION) {
            put(place, value)?;
        }
        Ok(())
    }

    fn miopenCreate(place: *mut miopenHandle_t) { create(place, null_mut()) }

    fn miopenCreateWithStream(place: *mut miopenHandle_t, stream: hipStream_t) { create(place, stream) }

    fn miopenDestroy(raw: miopenHandle_t) {
        if !raw.is_null() {
            drop(Box::from_raw(raw.cast::<Handle>()));
        }
        Ok(())
    }

    fn miopenSetStream(raw: miopenHandle_t, stream: hipStream_t) {
        let handle = borrow_mut(raw.cast::<Handle>())?;
        // cuDNN's handle is made anew, for the new stream.
        *handle = Handle::new(stream);
        Ok(())
    }

    fn miopenGetStream(raw: miopenHandle_t, stream: *mut hipStream_t) { put(stream, handle(raw)?.stream) }
}

/// # Safety
/// The address is null, or a place for one handle.
unsafe fn create(place: *mut miopenHandle_t, stream: hipStream_t) -> Result {
    device::enter().map_err(from_hip)?;
    // SAFETY: the caller's promise.
    unsafe { give(place, Handle::new(stream)) }
}

/// The status's name.
#[unsafe(no_mangle)]
extern "C" fn miopenGetErrorString(status: miopenStatus_t) -> *const c_char {
    /// No status has a higher number.
    const STATUSES: u32 = 16;
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let name = |number| CString::new(miopenStatus_t(number).to_string()).expect("names have no NUL");
    let names = NAMES.get_or_init(|| (0..STATUSES).map(name).collect());
    names.get(status.0 as usize).map_or(c"an unknown status".as_ptr(), |name| name.as_ptr())
}
