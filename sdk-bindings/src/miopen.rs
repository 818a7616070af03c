//! MIOpen's library.
//!
//! Builds of MIOpen exist whose public names only forward to hipDNN, which would call its plugins, which would call
//! MIOpen. There the implementation has the same names with `_impl` behind them, in a library of its own: those are
//! taken where they exist.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

pub use crate::generated::miopen::*;
use crate::library::{self, Library, LibraryError, Lookup, required};

/// File name of the library.
pub const LIBRARY_NAME: &str = "libMIOpen.so.1";

/// The library of a forwarding build's implementation, beside the one that forwards.
const IMPLEMENTATION_NAMES: [&str; 2] = ["libMIOpen_private.so.1", "libMIOpen_private.so"];

/// Supported major version.
pub const MAJOR_VERSION: usize = 3;

/// `miopenGetVersion`
type GetVersion = unsafe extern "C" fn(major: *mut usize, minor: *mut usize, patch: *mut usize) -> miopenStatus_t;

/// An open MIOpen of a known major version. The table is good as long as this lives.
#[derive(Debug)]
pub struct MiOpen {
    /// Its functions.
    pub functions: Functions,
    files: Files,
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
        // SAFETY: the implementation is what the library that the caller vouches for would load itself.
        let files = Files { implementation: unsafe { implementation(&library) }, library };
        // SAFETY: the signature is that of `miopen.h`, and the library is open.
        let get_version: GetVersion = unsafe { required(&files, c"miopenGetVersion") }?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three places for numbers.
        let status = unsafe { get_version(&mut major, &mut minor, &mut patch) };
        let asked = status == miopenStatus_t::miopenStatusSuccess;
        if !asked || major != MAJOR_VERSION {
            let found = if asked { format!("{major}.{minor}.{patch}") } else { status.to_string() };
            let path = files.library.path().to_path_buf();
            return Err(LibraryError::VersionMismatch { wanted: format!("{MAJOR_VERSION}.x"), found, path });
        }
        // SAFETY: it is MIOpen of a version that has these functions with these signatures; an implementation has the
        // signature of its public face.
        let functions = unsafe { Functions::load(&files) }?;
        Ok(MiOpen { functions, files, version: [major, minor, patch] })
    }

    /// Major, minor and patch version.
    pub fn version(&self) -> [usize; 3] {
        self.version
    }

    /// Lookup of its functions, and of those of the libraries that it is linked to.
    pub fn lookup(&self) -> &dyn Lookup {
        &self.files
    }
}

/// The library and, in a forwarding build, the one of the implementation.
#[derive(Debug)]
struct Files {
    library: Library,
    implementation: Option<Library>,
}

impl Lookup for Files {
    fn address(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let implementation = CString::new([name.to_bytes(), b"_impl"].concat()).expect("a C string has no NUL within");
        let private = self.implementation.as_ref();
        private
            .and_then(|library| library.address(&implementation))
            .or_else(|| self.library.address(&implementation))
            .or_else(|| self.library.address(name))
    }

    fn path(&self) -> &Path {
        self.library.path()
    }
}

/// # Safety
/// As [`Library::open`] for the library's implementation.
unsafe fn implementation(library: &Library) -> Option<Library> {
    let file = library.address(c"miopenGetVersion").and_then(library::file_of)?;
    let candidates = IMPLEMENTATION_NAMES.iter().map(|name| file.with_file_name(name)).filter(|path| path.is_file());
    // SAFETY: the caller's promise.
    unsafe { Library::open("MIOpen's implementation", candidates) }.ok()
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
