//! CUDA's results as HIP's statuses, the thread's last error, and the border that no panic crosses.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::sys::CUresult;
use hipdnn_sdk_bindings::hip::hipError_t;

/// Result of the body of a HIP function.
pub(crate) type Result<T = ()> = std::result::Result<T, hipError_t>;

thread_local! {
    static LAST: Cell<hipError_t> = const { Cell::new(hipError_t::hipSuccess) };
}

/// A result of the driver. HIP took CUDA's numbers for what both can say.
pub(crate) fn check(result: CUresult) -> Result {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(hipError_t(other as u32)),
    }
}

/// Runs the body of a HIP function: its error becomes the thread's last one, and a panic is an unknown error.
pub(crate) fn answer(body: impl FnOnce() -> Result) -> hipError_t {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(hipError_t::hipErrorUnknown)) {
        Ok(()) => hipError_t::hipSuccess,
        Err(status) => {
            // That work is not done yet is an answer, and not kept.
            if status != hipError_t::hipErrorNotReady {
                LAST.set(status);
            }
            status
        }
    }
}

/// The thread's last error, which is success afterwards.
pub(crate) fn take_last() -> hipError_t {
    LAST.replace(hipError_t::hipSuccess)
}

/// The thread's last error.
pub(crate) fn peek_last() -> hipError_t {
    LAST.get()
}

/// A place that a caller gave for an answer.
///
/// # Safety
/// The address is null, or a place for a `T` that the caller may write.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    // SAFETY: it is not null, so the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Defines exported functions of HIP. A body may use `?` on [`Result`]; the calling thread is on its device before it runs, unless
/// the function is marked `free`.
///
/// The functions are `unsafe` with the duties that HIP's headers name; each body is one block, in which every call of the driver has
/// that contract: addresses and handles are the caller's, the driver checks handles.
macro_rules! hip {
    ($($(#[$free:ident])? fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> ::hipdnn_sdk_bindings::hip::hipError_t {
            $crate::status::answer(|| {
                $crate::status::hip!(@enter $($free)?);
                // SAFETY: the duties of HIP's function of this name are the caller's, and those of the driver's functions in the body.
                #[allow(unused_unsafe, reason = "some bodies need none")]
                unsafe { $body }
            })
        }
    )*};
    (@enter) => { $crate::device::enter()?; };
    (@enter free) => {};
}
pub(crate) use hip;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_kept_until_they_are_taken() {
        let _ = take_last();
        assert_eq!(answer(|| Err(hipError_t::hipErrorNotReady)), hipError_t::hipErrorNotReady);
        assert_eq!(peek_last(), hipError_t::hipSuccess);
        assert_eq!(answer(|| check(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), hipError_t::hipErrorOutOfMemory);
        assert_eq!(answer(|| panic!("planned")), hipError_t::hipErrorUnknown);
        assert_eq!([take_last(), take_last()], [hipError_t::hipErrorUnknown, hipError_t::hipSuccess]);
    }

    #[test]
    fn the_numbers_of_both_are_the_same() {
        for (cuda, hip) in [
            (CUresult::CUDA_ERROR_INVALID_VALUE, hipError_t::hipErrorInvalidValue),
            (CUresult::CUDA_ERROR_NO_DEVICE, hipError_t::hipErrorNoDevice),
            (CUresult::CUDA_ERROR_NOT_READY, hipError_t::hipErrorNotReady),
            (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, hipError_t::hipErrorIllegalAddress),
            (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, hipError_t::hipErrorStreamCaptureUnsupported),
            (CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, hipError_t::hipErrorStreamCaptureInvalidated),
            (CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, hipError_t::hipErrorStreamCaptureWrongThread),
        ] {
            assert_eq!(check(cuda), Err(hip));
        }
    }
}
