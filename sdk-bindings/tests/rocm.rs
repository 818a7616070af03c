//! The libraries of a ROCm, opened together: skipped where there is none. The emulated GPU's libraries are one, whose
//! HIP is not AMD's.

use std::path::{Path, PathBuf};

use hipdnn_sdk_bindings::library::{Lookup, file_of};
use hipdnn_sdk_bindings::miopen::miopenStatus_t;
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};

fn open() -> Option<Rocm> {
    let root = std::env::var_os("ROCM_PATH").map(PathBuf::from);
    // SAFETY: these are the libraries' own names and places.
    match unsafe { Rocm::open(candidates(root.as_deref())) } {
        Ok(rocm) => Some(rocm),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn the_libraries_belong_together() {
    let Some(rocm) = open() else { return };
    assert_eq!(rocm.miopen.version()[0], 3);
    let version = rocm.hip.version().expect("a version");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let hip_file = rocm.hip.library.address(c"hipGetDevice").and_then(file_of).expect("a file");
    assert!(name(&hip_file).starts_with("libamdhip64.so"), "{}", hip_file.display());
    let used = rocm.miopen.lookup().address(c"hipGetDevice").expect("MIOpen is linked to HIP");
    assert_eq!(file_of(used), Some(hip_file.clone()));
    println!("MIOpen {:?}, HIP {version} in {}", rocm.miopen.version(), hip_file.display());

    // SAFETY: MIOpen gives static text for any number.
    let text = unsafe { (rocm.miopen.functions.miopenGetErrorString)(miopenStatus_t::miopenStatusBadParm) };
    // SAFETY: as above.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
    assert_eq!(text, miopenStatus_t::miopenStatusBadParm.name().expect("a name"));

    match &rocm.hiprtc {
        Ok(hiprtc) => {
            let (major, _) = hiprtc.version().expect("a version");
            println!("hiprtc {major} in {}", hiprtc.library.path().display());
            assert!(major >= 6);
        }
        Err(error) => println!("no hiprtc: {error}"),
    }
    // HIP does not take being unloaded after use.
    std::mem::forget(rocm);
}
