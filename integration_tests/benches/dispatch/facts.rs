//! What is there: libraries, versions, devices.

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use hipdnn_sdk_bindings::hip::{hipDeviceAttribute_t, hipDeviceProp_tR0600, hipError_t};
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};

use crate::peer::Result;

/// More than any release's structure of properties has.
#[repr(C)]
struct Properties {
    known: hipDeviceProp_tR0600,
    _room: [u8; 4096],
}

/// Prints them as a list in Markdown.
pub(crate) fn print() -> Result<()> {
    let root = std::env::var_os("ROCM_PATH").filter(|root| !root.is_empty()).map(PathBuf::from);
    // SAFETY: MIOpen's own names and places; loading it is what every user of it does.
    let rocm = unsafe { Rocm::open(candidates(root.as_deref())) }?;
    let [major, minor, patch] = rocm.miopen.version();
    println!("* MIOpen {major}.{minor}.{patch}, {}", rocm.miopen.lookup().path().display());
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
        let mut properties = Box::new(MaybeUninit::<Properties>::zeroed());
        // SAFETY: more room than HIP's structure needs.
        let status = unsafe { (hip.hipGetDevicePropertiesR0600)(properties.as_mut_ptr().cast(), device) };
        check("hipGetDevicePropertiesR0600", status)?;
        // SAFETY: HIP filled it, or left zeros, which are values of all its fields.
        let properties = unsafe { properties.assume_init_ref() };
        let [name, arch] = [&properties.known.name[..], &properties.known.gcnArchName[..]].map(text);
        let mut units: c_int = 0;
        let attribute = hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
        // SAFETY: a place for one number.
        let status = unsafe { (hip.hipDeviceGetAttribute)(&mut units, attribute, device) };
        check("hipDeviceGetAttribute", status)?;
        println!("* device {device}: {name}, {arch}, {units} compute units");
    }
    Ok(())
}

fn text(characters: &[std::ffi::c_char]) -> String {
    // SAFETY: characters are bytes, and the slice is borrowed for the call.
    let bytes = unsafe { std::slice::from_raw_parts(characters.as_ptr().cast::<u8>(), characters.len()) };
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| "?".to_owned(), |text| text.to_string_lossy().into_owned())
}
