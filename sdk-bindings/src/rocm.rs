//! Opening the libraries of one ROCm together: two releases in one process don't know each other's memory and streams.

use std::path::{Path, PathBuf};

use crate::hip::{self, Hip};
use crate::hiprtc::Hiprtc;
use crate::library::{self, LibraryError, Lookup};
use crate::miopen::{self, MiOpen};

/// HIP, with hiprtc and MIOpen if they can be used.
#[derive(Debug)]
pub struct Rocm {
    /// HIP: the one that MIOpen uses, if there is MIOpen.
    pub hip: Hip,
    /// hiprtc, or the reason why there is none.
    pub hiprtc: Result<Hiprtc, LibraryError>,
    /// MIOpen, or the reason why it can't be used.
    pub miopen: Result<MiOpen, LibraryError>,
}

/// There is no HIP that can be used, and so no MIOpen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{hip}; {miopen}")]
pub struct NoHip {
    /// Reason why there is no HIP.
    pub hip: LibraryError,
    /// Reason why there is no MIOpen.
    pub miopen: LibraryError,
}

impl Rocm {
    /// Opens the first MIOpen that opens, and the libraries that it is linked to; without MIOpen, HIP and hiprtc alone.
    ///
    /// # Safety
    /// As [`library::Library::open`] for the candidates, HIP's and hiprtc's names, and the dependencies of all these.
    ///
    /// # Errors
    /// If no HIP can be used.
    pub unsafe fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<Rocm, Box<NoHip>> {
        let before = hip::loaded();
        // SAFETY: the caller's promise.
        let opened = unsafe { MiOpen::open(candidates) };
        let (hip, miopen) = match opened.and_then(|miopen| with_hip(miopen, &before)) {
            Ok((miopen, hip)) => (hip, Ok(miopen)),
            Err(miopen) => {
                // SAFETY: the caller's promise.
                let hip = unsafe { Hip::open(before.into_iter().chain(hip::candidates())) };
                (hip.map_err(|hip| Box::new(NoHip { hip, miopen: miopen.clone() }))?, Err(miopen))
            }
        };
        let user = miopen.as_ref().map_or(&hip.library as &dyn Lookup, MiOpen::lookup);
        // SAFETY: the caller's promise.
        let hiprtc = unsafe { Hiprtc::of(user, &hip) };
        Ok(Rocm { hip, hiprtc, miopen })
    }
}

/// MIOpen with the HIP that it is linked to.
///
/// # Errors
/// If it has no HIP, or another than those that the process used before.
fn with_hip(miopen: MiOpen, before: &[PathBuf]) -> Result<(MiOpen, Hip), LibraryError> {
    let hip = Hip::of(miopen.lookup())?;
    let file = hip.library.address(c"hipGetDevice").and_then(library::file_of);
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
    Ok((miopen, hip))
}

/// Candidate paths of MIOpen: loaded in the process; beside the HIP that is loaded; the dynamic loader's search;
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
        // SAFETY: the file does not exist; HIP's names and places are its own.
        let error = match unsafe { Rocm::open([PathBuf::from("/nonexistent/libMIOpen.so.1")]) } {
            Ok(rocm) => {
                let error = rocm.miopen.as_ref().unwrap_err().to_string();
                // HIP does not take being unloaded after use.
                std::mem::forget(rocm);
                error
            }
            Err(error) => error.to_string(),
        };
        assert!(error.contains("/nonexistent/libMIOpen.so.1"), "{error}");
    }
}
