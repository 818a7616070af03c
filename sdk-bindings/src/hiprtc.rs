//! hiprtc, which compiles kernels at run time.

use std::ffi::c_int;
use std::path::PathBuf;

pub use crate::generated::hiprtc::*;
use crate::hip::Hip;
use crate::library::{self, Library, LibraryError, Lookup};

/// File names of the library's releases, newest first.
pub const LIBRARY_NAMES: &[&str] = &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"];

/// An open hiprtc. The table is good as long as the library is open.
#[derive(Debug)]
pub struct Hiprtc {
    /// Its functions.
    pub functions: Functions,
    /// The library.
    pub library: Library,
}

impl Hiprtc {
    /// Takes the hiprtc that another library was linked to; else one that the process has loaded; else opens the one that
    /// was released with `hip`.
    ///
    /// # Safety
    /// As [`Library::open`] for hiprtc's names, beside HIP and where the dynamic loader looks.
    ///
    /// # Errors
    /// If none opens, or the one that does lacks a function.
    pub unsafe fn of(user: &dyn Lookup, hip: &Hip) -> Result<Hiprtc, LibraryError> {
        let linked = user.address(c"hiprtcVersion").and_then(library::file_of);
        let loaded = linked.into_iter().chain(LIBRARY_NAMES.iter().map(PathBuf::from));
        let library = match loaded.into_iter().find_map(Library::loaded) {
            Some(library) => library,
            // SAFETY: the caller's promise.
            None => unsafe { Library::open("hiprtc (libhiprtc.so)", candidates(hip)) }?,
        };
        // SAFETY: these names belong to hiprtc, whatever file has them.
        let functions = unsafe { Functions::load(&library) }?;
        Ok(Hiprtc { functions, library })
    }

    /// Major and minor version.
    ///
    /// # Errors
    /// hiprtc's status.
    pub fn version(&self) -> Result<(c_int, c_int), hiprtcResult> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two places for numbers, and the library is open.
        let status = unsafe { (self.functions.hiprtcVersion)(&mut major, &mut minor) };
        if status == hiprtcResult::HIPRTC_SUCCESS { Ok((major, minor)) } else { Err(status) }
    }
}

/// Candidate paths: names with HIP's own version, then all; beside HIP's file, then the loader's search.
fn candidates(hip: &Hip) -> Vec<PathBuf> {
    let file = hip.functions.hipGetDevice as *const std::ffi::c_void;
    let file = std::ptr::NonNull::new(file.cast_mut()).and_then(library::file_of);
    let name = file.as_ref().and_then(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
    let major = name.as_deref().and_then(major);
    let names: Vec<_> = LIBRARY_NAMES.iter().filter(|name| major.is_none_or(|wanted| fits(name, wanted))).collect();
    let beside = file.iter().flat_map(|file| names.iter().map(|name| file.with_file_name(name)));
    beside.chain(names.iter().map(PathBuf::from)).collect()
}

/// The first number behind `.so.`.
fn major(file_name: &str) -> Option<&str> {
    file_name.split_once(".so.")?.1.split('.').next()
}

/// True if a library's name allows the major version.
fn fits(name: &str, wanted: &str) -> bool {
    major(name).is_none_or(|major| major == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number_of_the_name() {
        for (name, want) in
            [("libamdhip64.so.7.2.53211", Some("7")), ("libamdhip64.so.6", Some("6")), ("libamdhip64.so", None)]
        {
            assert_eq!(major(name), want, "{name}");
        }
        let fitting = |wanted| LIBRARY_NAMES.iter().copied().filter(|name| fits(name, wanted)).collect::<Vec<_>>();
        assert_eq!(fitting("6"), ["libhiprtc.so.6", "libhiprtc.so"]);
    }
}
