//! Opening the libraries of one ROCm together: two releases in one process don't know each other's memory and streams.

use std::path::{Path, PathBuf};

use crate::hip::{self, Hip};
use crate::hiprtc::Hiprtc;
use crate::library::{self, LibraryError};
use crate::miopen::{self, MiOpen};

/// MIOpen, and the HIP and hiprtc that it uses.
#[derive(Debug)]
pub struct Rocm {
    /// MIOpen.
    pub miopen: MiOpen,
    /// HIP.
    pub hip: Hip,
    /// hiprtc, or why there is none.
    pub hiprtc: Result<Hiprtc, LibraryError>,
}

impl Rocm {
    /// Opens the first MIOpen that opens, then what it is linked to.
    ///
    /// # Safety
    /// As [`library::Library::open`] for the candidates and what they are linked to.
    ///
    /// # Errors
    /// If MIOpen can't be used, has no HIP, or another HIP than the process used before.
    pub unsafe fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<Rocm, LibraryError> {
        let before = hip::loaded();
        // SAFETY: the caller's promise.
        let miopen = unsafe { MiOpen::open(candidates) }?;
        let hip = Hip::of(miopen.lookup())?;
        let file = library::Lookup::address(&hip.library, c"hipGetDevice").and_then(library::file_of);
        if let (Some(file), Some(other)) = (&file, before.first())
            && !before.contains(file)
        {
            let found = hip.version().map_or_else(|status| status.to_string(), |version| version.to_string());
            let error = LibraryError::VersionMismatch {
                wanted: format!("that of {}, which the process has loaded", other.display()),
                found,
                path: file.clone(),
            };
            // HIP may have begun to work, and can't be unloaded then.
            std::mem::forget((miopen, hip));
            return Err(error);
        }
        // SAFETY: the caller's promise.
        let hiprtc = unsafe { Hiprtc::of(miopen.lookup(), &hip) };
        Ok(Rocm { miopen, hip, hiprtc })
    }
}

/// Where MIOpen may be: what the process has loaded; beside the HIP that it has loaded; where the dynamic loader looks;
/// `root`, if given; ROCm's usual place.
pub fn candidates(root: Option<&Path>) -> Vec<PathBuf> {
    let beside = hip::loaded();
    let beside =
        beside.iter().flat_map(|hip| [miopen::LIBRARY_NAME, "libMIOpen.so"].map(|name| hip.with_file_name(name)));
    let roots = root.into_iter().chain([Path::new("/opt/rocm")]);
    let installed = roots.map(|root| root.join("lib").join(miopen::LIBRARY_NAME));
    let loaded = library::mapped("libMIOpen.so").into_iter();
    let mut all: Vec<PathBuf> = Vec::new();
    for candidate in loaded.chain(beside).chain([PathBuf::from(miopen::LIBRARY_NAME)]).chain(installed) {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_choice_comes_before_rocms_usual_place() {
        let found = candidates(Some(Path::new("/somewhere")));
        let wanted = ["libMIOpen.so.1", "/somewhere/lib/libMIOpen.so.1", "/opt/rocm/lib/libMIOpen.so.1"];
        assert!(found.ends_with(&wanted.map(PathBuf::from)), "{found:?}");
    }

    #[test]
    fn a_missing_library_is_named_with_its_places() {
        // SAFETY: the file does not exist.
        let error = unsafe { Rocm::open([PathBuf::from("/nonexistent/libMIOpen.so.1")]) }.unwrap_err();
        assert!(error.to_string().contains("/nonexistent/libMIOpen.so.1"), "{error}");
    }
}
