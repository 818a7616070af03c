//! MIOpen's library: opening it and asking for its version.
//!
//! Builds of MIOpen exist whose public names only forward to hipDNN, which would call its plugins, which would call
//! MIOpen. There the implementation has the same names with `_impl` behind them: [`MiOpen::symbol`] prefers those.

use std::ffi::{CStr, CString};
use std::path::PathBuf;

use crate::library::{Library, LibraryError};

c_enum! {
    /// `miopenStatus_t`.
    Status, "miopenStatus" {
        Success = 0,
        NotInitialized = 1,
        InvalidValue = 2,
        BadParm = 3,
        AllocFailed = 4,
        InternalError = 5,
        NotImplemented = 6,
        UnknownError = 7,
        UnsupportedOp = 8,
        GpuOperationsSkipped = 9,
        VersionMismatch = 10,
    }
}

/// The name that the library has been released under.
pub const LIBRARY_NAME: &str = "libMIOpen.so.1";

/// The major version whose functions are known here.
pub const MAJOR_VERSION: usize = 3;

/// `miopenGetVersion`
type GetVersion = unsafe extern "C" fn(major: *mut usize, minor: *mut usize, patch: *mut usize) -> Status;

/// An open MIOpen of a known major version.
#[derive(Debug)]
pub struct MiOpen {
    library: Library,
    version: [usize; 3],
}

impl MiOpen {
    /// Opens the first candidate that opens, and asks for its version. MIOpen brings the HIP that it was built for, so it
    /// is opened before HIP is.
    ///
    /// # Safety
    /// As [`Library::open`].
    ///
    /// # Errors
    /// If none opens, the one that does is not MIOpen, or its major version is not [`MAJOR_VERSION`].
    pub unsafe fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<MiOpen, LibraryError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open("MIOpen (libMIOpen.so.1)", candidates) }?;
        // SAFETY: the signature is that of `miopen.h`, and the library is open.
        let get_version: GetVersion = unsafe { symbol(&library, c"miopenGetVersion") }?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three places for numbers.
        let status = unsafe { get_version(&mut major, &mut minor, &mut patch) };
        if status != Status::Success || major != MAJOR_VERSION {
            let found = if status == Status::Success { format!("{major}.{minor}.{patch}") } else { status.to_string() };
            let path = library.path().to_path_buf();
            return Err(LibraryError::VersionMismatch { wanted: format!("{MAJOR_VERSION}.x"), found, path });
        }
        Ok(MiOpen { library, version: [major, minor, patch] })
    }

    /// Major, minor and patch version.
    pub fn version(&self) -> [usize; 3] {
        self.version
    }

    /// The function of that name, or rather of its implementation.
    ///
    /// # Safety
    /// As [`Library::symbol`].
    ///
    /// # Errors
    /// If the library has neither.
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Result<T, LibraryError> {
        // SAFETY: the caller's promise.
        unsafe { symbol(&self.library, name) }
    }
}

/// # Safety
/// As [`Library::symbol`].
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, LibraryError> {
    let implementation = CString::new([name.to_bytes(), b"_impl"].concat()).expect("a C string has no NUL within");
    // SAFETY: the caller's promise; an implementation has the signature of its public face.
    match unsafe { library.optional(&implementation) } {
        Some(function) => Ok(function),
        // SAFETY: as above.
        None => unsafe { library.symbol(name) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_miopen_is_named() {
        // SAFETY: the C library is loaded already.
        let error = unsafe { MiOpen::open(["libc.so.6".into()]) }.unwrap_err();
        assert_eq!(error.to_string(), "libc.so.6 has no symbol miopenGetVersion");
    }
}
