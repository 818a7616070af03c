//! Finding, opening and checking shared libraries.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix;

/// Reason why a foreign library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// None of the candidates could be opened.
    #[error("{library} not found; tried {}", tried_list(tried))]
    LibraryNotFound {
        /// Name of the library.
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
    #[error("{}: expected version {wanted}, got {found}", path.display())]
    VersionMismatch {
        /// Required version.
        wanted: String,
        /// Version that the library reports.
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

/// An open shared library. It is closed on drop, so a holder of its function pointers must hold it too.
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
    /// Opening runs the library's initializers, closing its finalizers: whatever the candidates name must be sound to
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
            // SAFETY: the caller vouches for the initializers and finalizers of every candidate.
            match unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) } {
                Ok(inner) => return Ok(Library { inner, path: path.to_path_buf() }),
                Err(error) => tried.push((path.to_path_buf(), loader_message(&error))),
            }
        }
        Err(LibraryError::LibraryNotFound { library: library.to_string(), tried })
    }

    /// Opens a library if the process has it already: of that file, or of that soname.
    pub fn loaded(path: impl AsRef<Path>) -> Option<Library> {
        // <dlfcn.h> of Linux and its C libraries.
        const RTLD_NOLOAD: c_int = 4;
        let path = path.as_ref();
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL | RTLD_NOLOAD;
        // SAFETY: nothing is loaded, so no initializer runs; whoever loaded it keeps it, or this handle does.
        let inner = unsafe { unix::Library::open(Some(path), flags) }.ok()?;
        Some(Library { inner, path: path.to_path_buf() })
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
        // SAFETY: the caller promises that `T` is the function's type, and that the library outlives its use.
        unsafe { required(self, name) }
    }

    /// The exported function `name`, if the library has it.
    ///
    /// # Safety
    /// As [`Library::symbol`].
    pub unsafe fn optional<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: the caller promises that `T` is the function's type if there is one, and that the library outlives
        // its use.
        unsafe { optional(self, name) }
    }
}

/// Source of the addresses for a function table.
pub trait Lookup {
    /// The address of the exported function `name`.
    fn address(&self, name: &CStr) -> Option<NonNull<c_void>>;

    /// The library, for messages.
    fn path(&self) -> &Path;
}

impl Lookup for Library {
    /// Dependencies are asked too: the address may be in one of them.
    fn address(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the address is only looked at.
        let symbol = unsafe { self.inner.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        // A symbol may exist with address null (a weak one).
        NonNull::new(symbol.as_raw_ptr())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The function `name`, if there is one.
///
/// # Safety
/// As [`Library::symbol`].
pub unsafe fn optional<T: Copy>(lookup: &dyn Lookup, name: &CStr) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<*const ()>(), "a function pointer is an address") };
    let address = lookup.address(name)?;
    // SAFETY: the sizes are equal, the address isn't null, and the caller vouches for the signature.
    Some(unsafe { std::mem::transmute_copy(&address) })
}

/// The function `name`.
///
/// # Safety
/// As [`Library::symbol`].
///
/// # Errors
/// [`LibraryError::SymbolMissing`].
pub unsafe fn required<T: Copy>(lookup: &dyn Lookup, name: &CStr) -> Result<T, LibraryError> {
    // SAFETY: the caller promises that `T` is the function's type, and that the source of addresses outlives its use.
    unsafe { optional(lookup, name) }.ok_or_else(|| LibraryError::SymbolMissing {
        symbol: name.to_string_lossy().into_owned(),
        library: lookup.path().to_path_buf(),
    })
}

/// The file that the process has mapped at an address.
pub fn file_of(address: NonNull<c_void>) -> Option<PathBuf> {
    file_at(&maps(), address.as_ptr() as usize)
}

/// The files that the process has mapped whose names start so, in the order of their addresses.
pub fn mapped(prefix: &str) -> Vec<PathBuf> {
    files_named(&maps(), prefix)
}

fn maps() -> String {
    // Paths need not be UTF-8; such a one doesn't name a library that is looked for.
    String::from_utf8_lossy(&std::fs::read("/proc/self/maps").unwrap_or_default()).into_owned()
}

fn file_at(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16));
        let holds = start.ok()? <= address && address < end.ok()?;
        holds.then(|| mapped_path(line)).flatten().map(PathBuf::from)
    })
}

fn files_named(maps: &str, prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in maps.lines().filter_map(mapped_path) {
        let named = path.rsplit('/').next().is_some_and(|name| name.starts_with(prefix));
        if named && files.last().is_none_or(|last| last != Path::new(path)) {
            files.push(PathBuf::from(path));
        }
    }
    files
}

/// The path in a line of memory maps, the last of its fields.
fn mapped_path(line: &str) -> Option<&str> {
    line.find('/').map(|at| &line[at..])
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

    #[test]
    fn a_library_that_is_not_loaded_is_not_opened() {
        let library = Library::loaded("libc.so.6").expect("the C library is loaded");
        assert!(Library::loaded("/nonexistent/a.so").is_none());
        let abs = library.address(c"abs").expect("abs");
        let file = file_of(abs).expect("a file");
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("libc"), "{name}");
        assert!(mapped(&name).contains(&file));
        let opened = Library::loaded(&file).expect("the same library");
        assert_eq!(opened.address(c"abs"), Some(abs));
    }

    #[test]
    fn libraries_are_found_among_the_maps() {
        let maps = "7f0000-7f1000 r--p 0 08:01 1 /usr/lib/libc.so.6\n\
                    7f1000-7f2000 r-xp 0 08:01 2    /opt/my rocm/lib/libamdhip64.so.7.2.0\n\
                    7f2000-7f3000 rw-p 0 08:01 2    /opt/my rocm/lib/libamdhip64.so.7.2.0\n\
                    7f3000-7f4000 rw-p 0 0 0 [heap]";
        let hip = PathBuf::from("/opt/my rocm/lib/libamdhip64.so.7.2.0");
        assert_eq!(files_named(maps, "libamdhip64.so"), std::slice::from_ref(&hip));
        assert!(
            files_named("7f0-7f1 r--p 0 08:01 1 /usr/lib/libamdhip64.so.7/other.so\n", "libamdhip64.so").is_empty()
        );
        for (address, want) in
            [(0x7f1000, Some(&hip)), (0x7f2fff, Some(&hip)), (0x7f3000, None), (0x7f4000, None), (0, None)]
        {
            assert_eq!(file_at(maps, address).as_ref(), want, "{address:x}");
        }
    }
}
