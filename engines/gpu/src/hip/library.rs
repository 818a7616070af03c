//! Opening the libraries, once in a process.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::OnceLock;

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::library::{LibraryError, file_of};
use hipdnn_sdk_bindings::miopen::MiOpen;
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};
use hipdnn_sdk_bindings::{hip, hiprtc, miopen};

use super::hip_error;

/// The functions of HIP, and of what there is beside it. They are good until the process ends.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// HIP's.
    pub hip: hip::Functions,
    /// hiprtc's, or why they can't be used.
    pub hiprtc: Result<hiprtc::Functions, Text>,
    /// MIOpen, or why it can't be used.
    pub miopen: Result<LoadedMiopen, Text>,
    hip_version: c_int,
    devices: c_int,
}

/// MIOpen as it was opened.
#[derive(Clone, Debug)]
pub struct LoadedMiopen {
    /// Its functions.
    pub functions: miopen::Functions,
    /// Major, minor and patch version.
    pub version: [usize; 3],
    /// The size of its file: builds of one version differ in the solvers that they have.
    pub bytes: u64,
    /// True if it is linked to hiprtc, and so compiles its kernels by it.
    pub has_hiprtc: bool,
}

impl LoadedMiopen {
    fn new(miopen: &MiOpen) -> LoadedMiopen {
        let file = miopen.lookup().address(c"miopenGetVersion").and_then(file_of);
        LoadedMiopen {
            functions: miopen.functions,
            version: miopen.version(),
            bytes: file.and_then(|file| std::fs::metadata(file).ok()).map_or(0, |about| about.len()),
            has_hiprtc: miopen.lookup().address(c"hiprtcCompileProgram").is_some(),
        }
    }
}

/// The libraries, opened and asked for devices at the first question in a process.
///
/// # Errors
/// With what is missing, and where it was looked for.
pub fn gpu() -> Result<&'static Gpu, &'static str> {
    static ANSWER: OnceLock<Answer> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| match open() {
        Ok(gpu) => Answer::Ready(gpu),
        Err(reason) => Answer::Missing(Text::new(&reason)),
    });
    match answer {
        Answer::Ready(gpu) => Ok(gpu),
        Answer::Missing(text) => Err(text.as_str()),
    }
}

/// Kept in a static, so it owns no memory.
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Answer {
    Ready(Gpu),
    Missing(Text),
}

fn open() -> Result<Gpu, String> {
    let root = std::env::var_os("ROCM_PATH").filter(|root| !root.is_empty()).map(PathBuf::from);
    // SAFETY: these are the libraries' own names and places; loading them is what every user of them does.
    let rocm = unsafe { Rocm::open(candidates(root.as_deref())) }.map_err(|error| error.to_string())?;
    let text = |error: &LibraryError| Text::new(&error.to_string());
    let hiprtc = rocm.hiprtc.as_ref().map(|hiprtc| hiprtc.functions).map_err(text);
    let miopen = rocm.miopen.as_ref().map(LoadedMiopen::new).map_err(text);
    let (hip, path) = (rocm.hip.functions, rocm.hip.library.path().display());
    let mut devices = 0;
    // SAFETY: a place for one number.
    let status = unsafe { (hip.hipGetDeviceCount)(&mut devices) };
    let answer = if status != hip::hipError_t::hipSuccess {
        Err(format!("{path}: {}", hip_error(status, "hipGetDeviceCount")))
    } else if devices < 1 {
        Err(format!("{path} has no device"))
    } else {
        let hip_version = rocm.hip.version().unwrap_or(0);
        log::info!("HIP {hip_version} ({path}), {devices} device(s)");
        if let Ok(miopen) = &rocm.miopen {
            let [major, minor, patch] = miopen.version();
            log::info!("MIOpen {major}.{minor}.{patch} ({})", miopen.lookup().path().display());
        }
        Ok(Gpu { hip, hiprtc, miopen, hip_version, devices })
    };
    // HIP does not take being unloaded after use: it keeps threads and handlers of its own.
    std::mem::forget(rocm);
    answer
}

impl Gpu {
    /// The libraries that can't be used: what the engine does not do without each, and why it can't be used.
    pub fn missing(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let miopen = self.miopen.as_ref().err().map(|reason| ("convolutions", reason.as_str()));
        let hiprtc = self.hiprtc.as_ref().err().map(|reason| ("compiling kernels", reason.as_str()));
        miopen.into_iter().chain(hiprtc)
    }

    /// HIP's version as one number, 0 if it doesn't tell.
    pub fn hip_version(&self) -> i32 {
        self.hip_version
    }

    /// Number of devices; at least one.
    pub fn devices(&self) -> i32 {
        self.devices
    }

    /// The calling thread's current device.
    ///
    /// # Errors
    /// If HIP doesn't tell.
    pub fn current_device(&self) -> Result<i32, Error> {
        let mut ordinal = 0;
        // SAFETY: a place for one number.
        let status = unsafe { (self.hip.hipGetDevice)(&mut ordinal) };
        self.check_hip(status, "hipGetDevice")?;
        Ok(ordinal)
    }

    /// True if the word is an address of memory that HIP knows, of a device or of the host.
    pub(crate) fn is_memory(&self, word: u64) -> bool {
        // No memory is mapped that low.
        if word < 4096 {
            return false;
        }
        let mut attributes = MaybeUninit::<hip::hipPointerAttribute_t>::zeroed();
        // SAFETY: a place for the answer; HIP takes any address.
        let status = unsafe { (self.hip.hipPointerGetAttributes)(attributes.as_mut_ptr(), word as *const c_void) };
        // SAFETY: all zeros is a value of this struct of numbers and addresses, and HIP may have filled it.
        let attributes = unsafe { attributes.assume_init() };
        status == hip::hipError_t::hipSuccess && attributes.type_ != hip::hipMemoryType::hipMemoryTypeUnregistered
    }

    /// Makes a device the calling thread's current one.
    pub(super) fn set_device(&self, ordinal: i32) -> Result<(), Error> {
        // SAFETY: HIP takes any number.
        let status = unsafe { (self.hip.hipSetDevice)(ordinal) };
        self.check_hip(status, "hipSetDevice")
    }
}

/// Room for the reasons of two libraries, with every place that was tried.
const TEXT_BYTES: usize = 4096;

/// A text that needs no memory of its own: what this library's statics own is lost when it is unloaded.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_BYTES], len: 0 }
    }
}

impl Text {
    /// As much of a text as fits.
    fn new(from: &str) -> Text {
        let mut text = Text::default();
        // Writing cuts and does not fail.
        let _ = text.write_str(from);
        text
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("cut between characters")
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(self.bytes.len() - self.len);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (given, want) in [
            ("plain".to_string(), 5),
            ("é".repeat(TEXT_BYTES), TEXT_BYTES),
            (format!("a{}", "é".repeat(TEXT_BYTES)), TEXT_BYTES - 1),
        ] {
            assert_eq!(Text::new(&given).as_str(), &given[..want]);
        }
    }

    #[test]
    fn the_libraries_are_there_or_are_named() {
        match gpu() {
            Ok(gpu) => assert!(gpu.devices() > 0),
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("hip"), "{reason}");
            }
        }
    }
}
