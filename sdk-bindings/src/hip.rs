//! HIP's run-time library, as far as it tells whether there is a device.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use crate::library::{Library, LibraryError};

c_enum! {
    /// `hipError_t`.
    Status, "hip" {
        Success = 0,
        ErrorInvalidValue = 1,
        ErrorOutOfMemory = 2,
        ErrorNotInitialized = 3,
        ErrorInsufficientDriver = 35,
        ErrorNoDevice = 100,
        ErrorInvalidDevice = 101,
        ErrorUnknown = 999,
    }
}

/// The names that the library has been released under, newest first. Names with a version come first: the bare one
/// belongs to development packages.
pub const LIBRARY_NAMES: &[&str] = &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];

/// Functions of `libamdhip64.so`. They are good as long as `library` is open.
#[derive(Debug)]
pub struct Hip {
    /// `hipInit`
    pub init: unsafe extern "C" fn(flags: u32) -> Status,
    /// `hipGetDeviceCount`
    pub get_device_count: unsafe extern "C" fn(count: *mut c_int) -> Status,
    /// `hipRuntimeGetVersion`
    pub runtime_get_version: unsafe extern "C" fn(version: *mut c_int) -> Status,
    /// `hipGetErrorString`
    pub get_error_string: unsafe extern "C" fn(status: Status) -> *const c_char,
    /// The open library.
    pub library: Library,
}

impl Hip {
    /// Opens the first candidate that is a HIP library.
    ///
    /// # Safety
    /// As [`Library::open`].
    ///
    /// # Errors
    /// If none opens, or the one that does lacks a function.
    pub unsafe fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<Hip, LibraryError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open("HIP (libamdhip64.so)", candidates) }?;
        // SAFETY: the signatures are those of `hip_runtime_api.h`, and the table keeps the library.
        unsafe {
            Ok(Hip {
                init: library.symbol(c"hipInit")?,
                get_device_count: library.symbol(c"hipGetDeviceCount")?,
                runtime_get_version: library.symbol(c"hipRuntimeGetVersion")?,
                get_error_string: library.symbol(c"hipGetErrorString")?,
                library,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_a_foreign_one_are_different_errors() {
        // SAFETY: the first does not exist, the second is the C library, which is loaded already.
        let (missing, foreign) =
            unsafe { (Hip::open(["/nonexistent/libamdhip64.so.7".into()]), Hip::open(["libc.so.6".into()])) };
        assert!(matches!(missing.unwrap_err(), LibraryError::LibraryNotFound { tried, .. } if tried.len() == 1));
        assert!(matches!(foreign.unwrap_err(), LibraryError::SymbolMissing { symbol, .. } if symbol == "hipInit"));
        assert_eq!(Status::ErrorNoDevice.to_string(), "hipErrorNoDevice");
    }
}
