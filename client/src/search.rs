//! Search for the backend library.

use std::env;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

use hipdnn_sdk_bindings::hipdnn::backend::LIBRARY_NAME;

/// File name of this project's engine plugin.
pub const PLUGIN_NAME: &str = "libhipdnn_rs_plugin.so";

/// Environment of the search; a struct, so that the search itself depends on nothing else.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `HIPDNN_RS_BACKEND`: the library.
    pub backend: Option<PathBuf>,
    /// `HIPDNN_BACKEND_LIBRARY_PATH`: the directory it is in, as hipDNN's own loader reads it.
    pub backend_directory: Option<PathBuf>,
    /// `ROCM_PATH`
    pub rocm: Option<PathBuf>,
    /// `HIPDNN_PLUGIN_DIR`: hipDNN's own; the backend reads it.
    pub plugin_directory: Option<PathBuf>,
    /// The directory of this library.
    pub beside: Option<PathBuf>,
}

impl Environment {
    /// Of this process.
    pub fn current() -> Environment {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Environment {
            backend: path("HIPDNN_RS_BACKEND"),
            backend_directory: path("HIPDNN_BACKEND_LIBRARY_PATH"),
            rocm: path("ROCM_PATH"),
            plugin_directory: path("HIPDNN_PLUGIN_DIR"),
            beside: own_directory(),
        }
    }
}

/// The candidates for the backend library in the order of trying, or only the one that the client named; and whether somebody
/// named it: then a failure is an error, not a reason to go on without.
pub fn backend_candidates(named: Option<&Path>, surroundings: &Environment) -> (Vec<PathBuf>, bool) {
    let exact = named.or(surroundings.backend.as_deref());
    if let Some(path) = exact {
        return (vec![library_at(path)], true);
    }
    let mut candidates = Vec::new();
    candidates.extend(surroundings.backend_directory.as_ref().map(|directory| directory.join(LIBRARY_NAME)));
    candidates.extend(surroundings.rocm.as_ref().map(|rocm| rocm.join("lib").join(LIBRARY_NAME)));
    candidates.push(Path::new("/opt/rocm/lib").join(LIBRARY_NAME));
    // A bare name: the dynamic loader's own search.
    candidates.push(PathBuf::from(LIBRARY_NAME));
    candidates.extend(surroundings.beside.as_ref().map(|directory| directory.join(LIBRARY_NAME)));
    let mut seen = std::collections::HashSet::new();
    candidates.retain(|candidate| seen.insert(candidate.clone()));
    (candidates, false)
}

fn library_at(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(LIBRARY_NAME) } else { path.to_path_buf() }
}

/// The directory of the library that this code is in.
fn own_directory() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = own_directory;
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is valid for the call.
    let found = unsafe { libc::dladdr(here as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name ends in a NUL and lives as long as this library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(std::str::from_utf8(name.to_bytes()).ok()?);
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    path.parent().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_backend_is_searched_in_order() {
        let surroundings = Environment {
            backend: None,
            backend_directory: Some("/env".into()),
            rocm: Some("/rocm".into()),
            plugin_directory: None,
            beside: Some("/here".into()),
        };
        let (candidates, named) = backend_candidates(None, &surroundings);
        assert_eq!(
            texts(&candidates),
            [
                "/env/libhipdnn_backend.so",
                "/rocm/lib/libhipdnn_backend.so",
                "/opt/rocm/lib/libhipdnn_backend.so",
                "libhipdnn_backend.so",
                "/here/libhipdnn_backend.so",
            ]
        );
        assert!(!named);
        let (candidates, _) =
            backend_candidates(None, &Environment { rocm: Some("/opt/rocm".into()), ..Environment::default() });
        assert_eq!(texts(&candidates), ["/opt/rocm/lib/libhipdnn_backend.so", "libhipdnn_backend.so"]);
    }

    #[test]
    fn a_named_backend_is_the_only_one() {
        let surroundings = Environment { backend: Some("/env/b.so".into()), ..Environment::default() };
        assert_eq!(backend_candidates(None, &surroundings), (vec!["/env/b.so".into()], true));
        assert_eq!(backend_candidates(Some(Path::new("/opt/b.so")), &surroundings), (vec!["/opt/b.so".into()], true));
        assert_eq!(backend_candidates(Some(Path::new("/")), &surroundings).0, [PathBuf::from("/libhipdnn_backend.so")]);
    }

    #[test]
    fn this_library_knows_where_it_is() {
        let directory = own_directory().expect("the test program is a file");
        assert!(directory.is_dir(), "{}", directory.display());
    }
}
