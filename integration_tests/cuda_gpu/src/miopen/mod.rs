//! The functions of `libMIOpen` that the engine's convolutions need: handles, descriptors, solutions, immediate mode and fusion plans. Solutions are
//! cuDNN's algorithms, and under the numbers of MIOpen's own plain kernels one of ours, which takes every problem.

mod backend;
mod cudnn;
mod descriptor;
mod find;
mod fusion;
mod handle;
mod naive;
mod solution;
mod unsupported;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hipdnn_sdk_bindings::hip::hipError_t;
use hipdnn_sdk_bindings::miopen::miopenStatus_t;

type Result<T = ()> = std::result::Result<T, miopenStatus_t>;

/// Runs the body of a function: a panic is an internal error.
fn answer(body: impl FnOnce() -> Result) -> miopenStatus_t {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(miopenStatus_t::miopenStatusInternalError)) {
        Ok(()) => miopenStatus_t::miopenStatusSuccess,
        Err(status) => status,
    }
}

/// MIOpen's status for a failed call of HIP's: an unknown error.
fn from_hip(_: hipError_t) -> miopenStatus_t {
    miopenStatus_t::miopenStatusUnknownError
}

/// Object behind a handle or an address of the caller's.
///
/// # Safety
/// The address is null, or of a `T` that lives as long as the result and that nobody changes meanwhile.
unsafe fn borrow<'a, T>(raw: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { raw.as_ref() }.ok_or(miopenStatus_t::miopenStatusBadParm)
}

/// As [`borrow`], to be changed.
///
/// # Safety
/// The address is null, or of a `T` that lives as long as the result and that nobody else uses meanwhile.
unsafe fn borrow_mut<'a, T>(raw: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { raw.as_mut() }.ok_or(miopenStatus_t::miopenStatusBadParm)
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// The address is null, or a place for a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(miopenStatus_t::miopenStatusBadParm);
    }
    // SAFETY: it is not null, so the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Gives an object to the caller, as a handle.
///
/// # Safety
/// The address is null, or a place for one handle.
unsafe fn give<T, Raw>(place: *mut *mut Raw, made: T) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { borrow_mut(place) }?;
    *place = Box::into_raw(Box::new(made)).cast();
    Ok(())
}

/// Defines exported functions of MIOpen: `unsafe` with the duties that its header names, a body of one block that may use `?`.
macro_rules! miopen {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> ::hipdnn_sdk_bindings::miopen::miopenStatus_t {
            $crate::miopen::answer(|| {
                // SAFETY: the duties of MIOpen's function of this name are the caller's: handles and descriptors are alive, and addresses
                // are of what the header says.
                #[allow(unused_unsafe, reason = "some bodies need none")]
                unsafe { $body }
            })
        }
    )*};
}
use miopen;
