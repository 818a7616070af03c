//! Which devices there are.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::OnceLock;

use hipdnn_sdk_bindings::library::Library;

/// True if this process can use an AMD GPU: HIP's library loads and counts at least one device.
///
/// The provider's tensors are in the host's memory so far. Where a GPU is usable, engines for it may be loaded, and
/// must not be given such tensors.
pub(crate) fn gpu_usable() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let names = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"];
        let rocm = std::env::var_os("ROCM_PATH").filter(|path| !path.is_empty());
        let rocm = rocm.map_or_else(|| PathBuf::from("/opt/rocm"), PathBuf::from);
        let candidates = names.iter().map(PathBuf::from).chain(names.iter().map(|name| rocm.join("lib").join(name)));
        // SAFETY: this is HIP's library by its name.
        let Ok(library) = (unsafe { Library::open("libamdhip64", candidates) }) else { return false };
        // Closing it would run its finalisers under whoever else uses it.
        let library = Box::leak(Box::new(library));
        // SAFETY: the function has this signature in every version of HIP.
        let count = unsafe { library.optional::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"hipGetDeviceCount") };
        let Some(count) = count else { return false };
        let mut devices = 0;
        // SAFETY: `devices` is valid for the call.
        let status = unsafe { count(&mut devices) };
        status == 0 && devices > 0
    })
}
