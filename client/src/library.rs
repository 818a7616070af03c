//! The backend libraries of a process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hipdnn_sdk_bindings::hipdnn::backend::{Backend, LIBRARY_NAME};
use hipdnn_sdk_bindings::library::LibraryError;

/// The libraries that were opened. They are never closed: ROCm's cannot be safely.
static OPEN: Mutex<Vec<(PathBuf, &'static Backend)>> = Mutex::new(Vec::new());

/// The first candidate that is a usable backend; a candidate that was opened before is the same one.
///
/// # Errors
/// If none is, each candidate with its reason.
pub fn open(candidates: &[PathBuf]) -> Result<&'static Backend, LibraryError> {
    // The list stays whole even if a thread panicked while it held the lock.
    let mut libraries = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tried: Vec<(PathBuf, String)> = Vec::new();
    let mut last = None;
    for candidate in candidates {
        if let Some((_, backend)) = libraries.iter().find(|(path, _)| path == candidate) {
            return Ok(backend);
        }
        // SAFETY: what is named as a hipDNN backend is one: its user or the system's administrator says so.
        match unsafe { Backend::open([candidate]) } {
            Ok(backend) => {
                let backend: &'static Backend = Box::leak(Box::new(backend));
                libraries.push((candidate.clone(), backend));
                return Ok(backend);
            }
            // One that does not load is no reason not to try the next.
            Err(LibraryError::LibraryNotFound { tried: more, .. }) => tried.extend(more),
            Err(error) => {
                tried.push((candidate.clone(), error.to_string()));
                last = Some(error);
            }
        }
    }
    match (last, tried.len()) {
        (Some(error), 1) => Err(error),
        _ => Err(LibraryError::LibraryNotFound { library: LIBRARY_NAME.to_string(), tried }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_has_its_reason() {
        let text =
            open(&["/nonexistent/a.so".into(), "libc.so.6".into()]).expect_err("neither is a backend").to_string();
        for part in ["libhipdnn_backend.so not found", "/nonexistent/a.so", "libc.so.6 has no symbol hipdnnCreate"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let alone = open(&["libc.so.6".into()]).expect_err("no backend").to_string();
        assert_eq!(alone, "libc.so.6 has no symbol hipdnnCreate");
    }
}
