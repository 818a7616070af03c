//! Finding, opening and checking shared libraries.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::os::unix;

/// Why a foreign library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// None of the candidates could be opened.
    #[error("{library} not found; tried {}", tried_list(tried))]
    LibraryNotFound {
        /// What was looked for.
        library: String,
        /// Each candidate in the order of trying, with the reason it failed.
        tried: Vec<(PathBuf, String)>,
    },
    /// The library was opened, but does not export a function that is needed.
    #[error("{} has no symbol {symbol}", library.display())]
    SymbolMissing {
        /// The function.
        symbol: String,
        /// The library that lacks it.
        library: PathBuf,
    },
    /// The library was opened, but its version does not fit.
    #[error("{} has version {found}, wanted {wanted}", path.display())]
    VersionMismatch {
        /// Which versions fit.
        wanted: String,
        /// What the library says.
        found: String,
        /// The library.
        path: PathBuf,
    },
}

fn tried_list(tried: &[(PathBuf, String)]) -> String {
    if tried.is_empty() {
        return "nothing".to_string();
    }
    tried.iter().map(|(path, reason)| format!("{} ({reason})", path.display())).collect::<Vec<_>>().join(", ")
}

/// An open shared library. It is closed on drop, so whoever holds a function pointer of it must hold it too.
#[derive(Debug)]
pub struct Library {
    inner: unix::Library,
    path: PathBuf,
}

impl Library {
    /// Opens the first candidate that the dynamic loader takes, with all its dependencies resolved and its symbols kept
    /// out of the global scope. A path without a slash is searched for as the dynamic loader does. `library` is the name
    /// for messages.
    ///
    /// # Safety
    /// Opening runs the library's initialisers, closing its finalisers: whatever the candidates name must be sound to
    /// load and unload.
    ///
    /// # Errors
    /// [`LibraryError::LibraryNotFound`] with every candidate and its reason.
    pub unsafe fn open<P: AsRef<Path>>(
        library: &str,
        candidates: impl IntoIterator<Item = P>,
    ) -> Result<Library, LibraryError> {
        let mut tried = Vec::new();
        for candidate in candidates {
            let path = candidate.as_ref();
            // SAFETY: the caller vouches for the initialisers and finalisers of every candidate.
            match unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) } {
                Ok(inner) => return Ok(Library { inner, path: path.to_path_buf() }),
                Err(error) => tried.push((path.to_path_buf(), loader_message(&error))),
            }
        }
        Err(LibraryError::LibraryNotFound { library: library.to_string(), tried })
    }

    /// The candidate that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The exported function `name`.
    ///
    /// # Safety
    /// `T` is the type of a function pointer that fits the function's real signature, and the result is not used after
    /// the library is dropped.
    ///
    /// # Errors
    /// [`LibraryError::SymbolMissing`].
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Result<T, LibraryError> {
        // SAFETY: the caller's duties are the same.
        unsafe { self.optional(name) }.ok_or_else(|| LibraryError::SymbolMissing {
            symbol: name.to_string_lossy().into_owned(),
            library: self.path.clone(),
        })
    }

    /// The exported function `name`, if the library has it.
    ///
    /// # Safety
    /// As [`Library::symbol`].
    pub unsafe fn optional<T: Copy>(&self, name: &CStr) -> Option<T> {
        const { assert!(size_of::<T>() == size_of::<*const ()>(), "a symbol is an address") };
        // SAFETY: the caller vouches for the signature.
        let symbol = unsafe { self.inner.get::<T>(name.to_bytes_with_nul()) }.ok()?;
        // A symbol may exist with address null (a weak one); as a function pointer that would be undefined.
        if symbol.clone().as_raw_ptr().is_null() { None } else { Some(*symbol) }
    }
}

/// The dynamic loader's own sentence; libloading keeps it as the source of its error.
fn loader_message(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_names_every_candidate() {
        // SAFETY: neither file exists, so nothing is loaded.
        let error = unsafe { Library::open("libnothing", ["/nonexistent/a.so", "/nonexistent/b.so"]) }.unwrap_err();
        let LibraryError::LibraryNotFound { library, tried } = &error else { panic!("{error}") };
        assert_eq!(library, "libnothing");
        assert_eq!(tried.len(), 2);
        let text = error.to_string();
        for part in ["libnothing", "/nonexistent/a.so", "/nonexistent/b.so", "No such file"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_first_that_opens_is_taken() {
        // SAFETY: the C library is loaded already; opening it again runs nothing.
        let library = unsafe { Library::open("libc", ["/nonexistent/a.so", "libc.so.6"]) }.expect("a C library");
        assert_eq!(library.path(), Path::new("libc.so.6"));
        // SAFETY: `abs` has this signature in every C library.
        let abs: unsafe extern "C" fn(i32) -> i32 = unsafe { library.symbol(c"abs") }.expect("abs");
        // SAFETY: `abs` is total but for i32::MIN.
        assert_eq!(unsafe { abs(-3) }, 3);
        // SAFETY: the symbol does not exist, so no pointer comes of it.
        let missing = unsafe { library.symbol::<unsafe extern "C" fn()>(c"no_such_function_here") }.unwrap_err();
        assert_eq!(missing.to_string(), "libc.so.6 has no symbol no_such_function_here");
    }
}
