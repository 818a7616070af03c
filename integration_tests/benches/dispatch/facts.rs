//! Facts of the machine: libraries, versions, devices.

use std::ffi::c_int;
use std::path::PathBuf;

use hipdnn_sdk_bindings::hip::{hipDeviceAttribute_t, hipError_t};
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};

use crate::peer::Result;

/// Prints them as a list in Markdown.
pub(crate) fn print() -> Result<()> {
    // SAFETY: MIOpen's own names and places; loading it is what every user of it does.
    let rocm = unsafe { Rocm::open(places()) }?;
    let miopen = rocm.miopen.as_ref().map_err(ToString::to_string)?;
    let [major, minor, patch] = miopen.version();
    println!("* MIOpen {major}.{minor}.{patch}, {}", miopen.lookup().path().display());
    let version = rocm.hip.version().map_or_else(|status| status.to_string(), |version| version.to_string());
    println!("* HIP {version}, {}", rocm.hip.library.path().display());
    let hip = &rocm.hip.functions;
    let check = |call: &str, status: hipError_t| match status {
        hipError_t::hipSuccess => Ok(()),
        status => Err(format!("{call}: {status}")),
    };
    let mut devices: c_int = 0;
    // SAFETY: a place for one number.
    check("hipGetDeviceCount", unsafe { (hip.hipGetDeviceCount)(&mut devices) })?;
    for device in 0..devices {
        // SAFETY: `rocm` keeps the library open.
        let properties = unsafe { hip.device_properties(device) };
        let properties = properties.map_err(|status| format!("hipGetDevicePropertiesR0600: {status}"))?;
        let (name, arch) = (properties.name(), properties.arch());
        let mut units: c_int = 0;
        let attribute = hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
        // SAFETY: a place for one number.
        let status = unsafe { (hip.hipDeviceGetAttribute)(&mut units, attribute, device) };
        check("hipDeviceGetAttribute", status)?;
        println!("* device {device}: {name}, {arch}, {units} compute units");
    }
    Ok(())
}

/// Places where MIOpen may be.
pub(crate) fn places() -> Vec<PathBuf> {
    let root = std::env::var_os("ROCM_PATH").filter(|root| !root.is_empty()).map(PathBuf::from);
    candidates(root.as_deref())
}
