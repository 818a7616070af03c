//! Opening the libraries, once in a process.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::OnceLock;

use hipdnn_sdk_bindings::library::file_of;
use hipdnn_sdk_bindings::rocm::{Rocm, candidates};
use hipdnn_sdk_bindings::{hip, hiprtc, miopen};

use super::hip_error;
use crate::error::Error;

/// The functions of MIOpen, and of the HIP and hiprtc that it uses. They are good until the process ends.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// HIP's.
    pub hip: hip::Functions,
    /// MIOpen's.
    pub miopen: miopen::Functions,
    /// hiprtc's, or why they can't be used.
    pub hiprtc: Result<hiprtc::Functions, Text>,
    miopen_has_hiprtc: bool,
    miopen_version: [usize; 3],
    miopen_bytes: u64,
    hip_version: c_int,
    devices: c_int,
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
    // SAFETY: these are MIOpen's own names and places; loading it is what every user of it does.
    let rocm = unsafe { Rocm::open(candidates(root.as_deref())) }.map_err(|error| error.to_string())?;
    let hiprtc = match &rocm.hiprtc {
        Ok(hiprtc) => Ok(hiprtc.functions),
        Err(error) => {
            log::info!("kernels can't be compiled: {error}");
            Err(Text::new(&error.to_string()))
        }
    };
    let miopen_has_hiprtc = rocm.miopen.lookup().address(c"hiprtcCompileProgram").is_some();
    let (hip, miopen_version) = (rocm.hip.functions, rocm.miopen.version());
    let (hip_path, miopen_path) = (rocm.hip.library.path(), rocm.miopen.lookup().path());
    let mut devices = 0;
    // SAFETY: a place for one number.
    let status = unsafe { (hip.hipGetDeviceCount)(&mut devices) };
    let answer = if status != hip::hipError_t::hipSuccess {
        Err(format!("{}: {}", hip_path.display(), hip_error(status, "hipGetDeviceCount")))
    } else if devices < 1 {
        Err(format!("{} has no device", hip_path.display()))
    } else {
        let hip_version = rocm.hip.version().unwrap_or(0);
        let [major, minor, patch] = miopen_version;
        log::info!(
            "MIOpen {major}.{minor}.{patch} ({}), HIP {hip_version} ({}), {devices} device(s)",
            miopen_path.display(),
            hip_path.display()
        );
        let miopen_file = rocm.miopen.lookup().address(c"miopenGetVersion").and_then(file_of);
        let miopen_bytes = miopen_file.and_then(|file| std::fs::metadata(file).ok()).map_or(0, |about| about.len());
        let miopen = rocm.miopen.functions;
        Ok(Gpu { hip, miopen, hiprtc, miopen_has_hiprtc, miopen_version, miopen_bytes, hip_version, devices })
    };
    // HIP does not take being unloaded after use: it keeps threads and handlers of its own.
    std::mem::forget(rocm);
    answer
}

impl Gpu {
    /// Major, minor and patch version of MIOpen.
    pub fn miopen_version(&self) -> [usize; 3] {
        self.miopen_version
    }

    /// The size of MIOpen's file: builds of one version differ in the solvers that they have.
    pub fn miopen_bytes(&self) -> u64 {
        self.miopen_bytes
    }

    /// Whether MIOpen is linked to hiprtc, and so compiles its kernels by it.
    pub fn miopen_has_hiprtc(&self) -> bool {
        self.miopen_has_hiprtc
    }

    /// HIP's version as one number, 0 if it doesn't tell.
    pub fn hip_version(&self) -> i32 {
        self.hip_version
    }

    /// How many devices there are; at least one.
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

    /// Whether a word is an address of memory that HIP knows, of a device or of the host.
    pub(in crate::engine::miopen) fn is_memory(&self, word: u64) -> bool {
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

/// A text that needs no memory of its own: what this library's statics own is lost when it is unloaded.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; 1024], len: 0 }
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

    fn as_str(&self) -> &str {
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
        for (given, want) in
            [("plain".to_string(), 5), ("é".repeat(600), 1024), (format!("a{}", "é".repeat(600)), 1023)]
        {
            assert_eq!(Text::new(&given).as_str(), &given[..want]);
        }
    }

    #[test]
    fn the_libraries_are_there_or_are_named() {
        match gpu() {
            Ok(gpu) => assert!(gpu.devices() > 0),
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("MIOpen") || reason.contains("hip"), "{reason}");
            }
        }
    }
}
