//! The libraries of a ROCm, opened together: skipped where there is none. The emulated GPU's libraries are one, whose
//! HIP is not AMD's.

use std::path::{Path, PathBuf};

use hipdnn_sdk_bindings::hip::Hip;
use hipdnn_sdk_bindings::hiprtc::Hiprtc;
use hipdnn_sdk_bindings::library::{LibraryError, Lookup, file_of};
use hipdnn_sdk_bindings::miopen::{MiOpen, miopenStatus_t};
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};

fn open() -> Option<(MiOpen, Hip, Result<Hiprtc, LibraryError>)> {
    let root = std::env::var_os("ROCM_PATH").map(PathBuf::from);
    // SAFETY: these are the libraries' own names and places.
    match unsafe { Rocm::open(candidates(root.as_deref())) } {
        Ok(Rocm { hip, hiprtc, miopen: Ok(miopen) }) => Some((miopen, hip, hiprtc)),
        Ok(rocm) => {
            eprintln!("skipped: {}", rocm.miopen.as_ref().unwrap_err());
            // HIP does not take being unloaded after use.
            std::mem::forget(rocm);
            None
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn the_libraries_belong_together() {
    let Some((miopen, hip, hiprtc)) = open() else { return };
    assert_eq!(miopen.version()[0], 3);
    let version = hip.version().expect("a version");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let hip_file = hip.library.address(c"hipGetDevice").and_then(file_of).expect("a file");
    assert!(name(&hip_file).starts_with("libamdhip64.so"), "{}", hip_file.display());
    let used = miopen.lookup().address(c"hipGetDevice").expect("MIOpen is linked to HIP");
    assert_eq!(file_of(used), Some(hip_file.clone()));
    println!("MIOpen {:?}, HIP {version} in {}", miopen.version(), hip_file.display());

    // SAFETY: MIOpen gives static text for any number.
    let text = unsafe { (miopen.functions.miopenGetErrorString)(miopenStatus_t::miopenStatusBadParm) };
    // SAFETY: MIOpen's text is static and ends in NUL.
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
    assert_eq!(text, miopenStatus_t::miopenStatusBadParm.name().expect("a name"));

    match &hiprtc {
        Ok(hiprtc) => {
            let (major, _) = hiprtc.version().expect("a version");
            println!("hiprtc {major} in {}", hiprtc.library.path().display());
            assert!(major >= 6);
        }
        Err(error) => println!("no hiprtc: {error}"),
    }
    // HIP does not take being unloaded after use.
    std::mem::forget((miopen, hip, hiprtc));
}
