//! HIP's run-time library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::PathBuf;

pub use crate::generated::hip::*;
use crate::library::{self, Library, LibraryError, Lookup};

/// File names of the library's releases, newest first. Names with a version come first: the bare one
/// belongs to development packages.
pub const LIBRARY_NAMES: &[&str] = &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];

/// End marker of a launch's `extra`.
pub const HIP_LAUNCH_PARAM_END: *mut c_void = std::ptr::without_provenance_mut(3);

/// Tag before the address of a launch's packed arguments.
pub const HIP_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);

/// Tag before the address of the packed arguments' size in bytes.
pub const HIP_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);

/// Legacy default stream, whatever default stream the compiler was told.
#[expect(non_upper_case_globals, reason = "the header's name")]
pub const hipStreamLegacy: hipStream_t = std::ptr::without_provenance_mut(1);

/// Per-thread default stream of the calling thread.
#[expect(non_upper_case_globals, reason = "the header's name")]
pub const hipStreamPerThread: hipStream_t = std::ptr::without_provenance_mut(2);

/// An open HIP. The table is good as long as the library is open, and HIP does not take being unloaded after use: it
/// keeps threads and handlers of its own.
#[derive(Debug)]
pub struct Hip {
    /// Its functions.
    pub functions: Functions,
    /// The library.
    pub library: Library,
}

impl Hip {
    /// Opens the first candidate that opens.
    ///
    /// # Safety
    /// As [`Library::open`].
    ///
    /// # Errors
    /// If none opens, or the one that does lacks a function.
    pub unsafe fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<Hip, LibraryError> {
        // SAFETY: the caller's promise.
        Hip::new(unsafe { Library::open("HIP (libamdhip64.so)", candidates) }?)
    }

    /// Takes the HIP that another library was linked to, which may be one of several in the process. If the loader does
    /// not tell, it is the one that the process has loaded.
    ///
    /// # Errors
    /// If the process has none, or it lacks a function.
    pub fn of(user: &dyn Lookup) -> Result<Hip, LibraryError> {
        let linked = user.address(c"hipGetDevice").and_then(library::file_of);
        Hip::loaded(&format!("the HIP that {} uses", user.path().display()), linked)
    }

    /// The HIP that the process has loaded.
    ///
    /// # Errors
    /// If the process has none, or it lacks a function.
    pub fn of_process() -> Result<Hip, LibraryError> {
        Hip::loaded("the HIP of the process", None)
    }

    fn loaded(what: &str, first: Option<PathBuf>) -> Result<Hip, LibraryError> {
        let names = LIBRARY_NAMES.iter().map(PathBuf::from);
        let candidates: Vec<_> = first.into_iter().chain(names).chain(loaded()).collect();
        match candidates.iter().find_map(Library::loaded) {
            Some(library) => Hip::new(library),
            None => Err(LibraryError::LibraryNotFound {
                library: what.to_owned(),
                tried: candidates.into_iter().map(|path| (path, "not loaded".to_owned())).collect(),
            }),
        }
    }

    fn new(library: Library) -> Result<Hip, LibraryError> {
        // SAFETY: these names belong to HIP, whatever file has them.
        let functions = unsafe { Functions::load(&library) }?;
        Ok(Hip { functions, library })
    }

    /// Version from `hipRuntimeGetVersion`, for instance 70253211 for 7.2.53211.
    ///
    /// # Errors
    /// HIP's status: some releases tell nothing where there is no device.
    pub fn version(&self) -> Result<c_int, hipError_t> {
        let mut version = 0;
        // SAFETY: a place for one number, and the library is open.
        let status = unsafe { (self.functions.hipRuntimeGetVersion)(&mut version) };
        if status == hipError_t::hipSuccess { Ok(version) } else { Err(status) }
    }
}

/// Device properties in HIP's structure, with room for fields that newer releases append.
#[repr(C)]
pub struct DeviceProperties {
    /// Fields of this release of the header.
    pub known: hipDeviceProp_tR0600,
    _room: [u8; 4096],
}

impl DeviceProperties {
    /// The product's name.
    pub fn name(&self) -> String {
        text(&self.known.name)
    }

    /// The architecture and its features, such as `gfx1100` or `gfx90a:sramecc+:xnack-`.
    pub fn arch(&self) -> String {
        text(&self.known.gcnArchName)
    }
}

/// The text up to the NUL, which may be missing where HIP filled all the room.
fn text(characters: &[c_char]) -> String {
    // SAFETY: characters are bytes, and the slice is borrowed for the call.
    let bytes = unsafe { std::slice::from_raw_parts(characters.as_ptr().cast::<u8>(), characters.len()) };
    let bytes = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

impl Functions {
    /// Properties of a device.
    ///
    /// # Safety
    /// The library that the table belongs to is open.
    ///
    /// # Errors
    /// HIP's status.
    pub unsafe fn device_properties(&self, device: c_int) -> Result<Box<DeviceProperties>, hipError_t> {
        let mut properties = Box::new(MaybeUninit::<DeviceProperties>::zeroed());
        // SAFETY: more room than HIP's structure needs; the library is open.
        let status = unsafe { (self.hipGetDevicePropertiesR0600)(properties.as_mut_ptr().cast(), device) };
        if status != hipError_t::hipSuccess {
            return Err(status);
        }
        // SAFETY: HIP filled it, or left zeros, which are values of all its fields.
        Ok(unsafe { properties.assume_init() })
    }
}

/// Candidate paths of HIP: loaded in the process, since two copies do not know each other's memory; the dynamic
/// loader's search; `ROCM_PATH`; ROCm's usual place.
pub fn candidates() -> Vec<PathBuf> {
    let root = std::env::var_os("ROCM_PATH").filter(|root| !root.is_empty());
    let places = root.into_iter().map(PathBuf::from).chain([PathBuf::from("/opt/rocm")]);
    let names = || LIBRARY_NAMES.iter().map(PathBuf::from);
    let installed = places.flat_map(|place| names().map(move |name| place.join("lib").join(name)));
    loaded().into_iter().chain(names()).chain(installed).collect()
}

/// Files of HIP libraries that the process has loaded.
pub fn loaded() -> Vec<PathBuf> {
    library::mapped("libamdhip64.so")
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
    }

    #[test]
    fn texts_of_properties_end_at_a_nul_or_with_their_room() {
        let characters = |text: &str| text.bytes().map(|byte| byte as c_char).collect::<Vec<_>>();
        assert_eq!(text(&characters("gfx1100\0more")), "gfx1100");
        assert_eq!(text(&characters("gfx1100")), "gfx1100");
        assert_eq!(text(&characters("\0")), "");
    }

    #[test]
    fn numbers_without_a_name_are_shown_as_numbers() {
        assert_eq!(hipError_t::hipErrorNoDevice.to_string(), "hipErrorNoDevice");
        assert_eq!(hipError_t(4242).to_string(), "hipError_t 4242");
    }
}
