//! Whether this process has a GPU, and so whether the host engine steps forward.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use hipdnn_sdk_bindings::hip::{Hip, LIBRARY_NAMES, hipError_t};

/// Environment variable that decides for or against the host engine: `auto` (the default: where there is no GPU), `on`
/// or `off`.
pub const SWITCH: &str = "HIPDNN_RS_HOST_ENGINE";

/// Whether the host engine computes graphs in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEngine {
    /// It does.
    On,
    /// The environment says no.
    SwitchedOff,
    /// Engines for GPUs are to have them.
    Gpus(c_int),
}

impl fmt::Display for HostEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostEngine::On => write!(f, "the host engine is on"),
            HostEngine::SwitchedOff => write!(f, "the host engine is switched off by {SWITCH}=off"),
            HostEngine::Gpus(count) => {
                write!(
                    f,
                    "the host engine leaves graphs to the {count} GPU(s) of this process; {SWITCH}=on makes it take them"
                )
            }
        }
    }
}

/// Whether the host engine computes graphs; decided, and logged, at the first question in a process.
pub fn host_engine() -> HostEngine {
    static DECISION: OnceLock<HostEngine> = OnceLock::new();
    *DECISION.get_or_init(|| {
        let switch = std::env::var(SWITCH).unwrap_or_default();
        let decision = decide(&switch, gpus);
        log::info!("{decision}");
        decision
    })
}

/// How many GPUs there are, or why none.
type Gpus = Result<c_int, String>;

fn decide(switch: &str, gpus: impl FnOnce() -> Gpus) -> HostEngine {
    match switch {
        "on" => return HostEngine::On,
        "off" => return HostEngine::SwitchedOff,
        "" | "auto" => {}
        other => log::warn!("{SWITCH}: wanted auto, on or off, came {other:?}; taking auto"),
    }
    match gpus() {
        Ok(count) if count > 0 => HostEngine::Gpus(count),
        Ok(_) => HostEngine::On,
        Err(reason) => {
            log::info!("no usable GPU: {reason}");
            HostEngine::On
        }
    }
}

/// Asks HIP for devices.
fn gpus() -> Gpus {
    // SAFETY: these are HIP's own names and places; loading it is what every user of it does.
    let hip = unsafe { Hip::open(candidates()) }.map_err(|error| error.to_string())?;
    let mut count = 0;
    // SAFETY: a place for one number.
    let status = unsafe { (hip.functions.hipGetDeviceCount)(&mut count) };
    let answer = if status == hipError_t::hipSuccess {
        log::info!("{} has {count} device(s)", hip.library.path().display());
        if count > 0 { Ok(count) } else { Err(format!("{} has no device", hip.library.path().display())) }
    } else {
        // SAFETY: HIP takes any number here.
        let text = unsafe { (hip.functions.hipGetErrorString)(status) };
        let text = if text.is_null() {
            status.to_string()
        } else {
            // SAFETY: HIP's text is static and ends in NUL.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(format!("{}: hipGetDeviceCount says {text}", hip.library.path().display()))
    };
    // HIP does not take being unloaded after use: it keeps threads and handlers of its own.
    std::mem::forget(hip);
    answer
}

/// Where HIP may be. The one that the process has loaded comes first: two of them do not know each other's memory.
fn candidates() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let root = std::env::var_os("ROCM_PATH").filter(|root| !root.is_empty());
    let places = root.into_iter().map(PathBuf::from).chain([PathBuf::from("/opt/rocm")]);
    let names = || LIBRARY_NAMES.iter().map(PathBuf::from);
    let installed = places.flat_map(|place| names().map(move |name| place.join("lib").join(name)));
    loaded(&maps).into_iter().chain(names()).chain(installed).collect()
}

/// The file of the HIP library in a list of memory maps.
fn loaded(maps: &str) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_hip = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libamdhip64.so"));
    paths.into_iter().find(is_hip).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_and_the_devices_decide() {
        for (switch, gpus, want) in [
            ("", Err("no library"), HostEngine::On),
            ("auto", Err("no device"), HostEngine::On),
            ("auto", Ok(2), HostEngine::Gpus(2)),
            ("auto", Ok(0), HostEngine::On),
            ("nonsense", Ok(1), HostEngine::Gpus(1)),
            ("on", Ok(1), HostEngine::On),
            ("off", Err("no library"), HostEngine::SwitchedOff),
        ] {
            assert_eq!(decide(switch, || gpus.map_err(str::to_string)), want, "{switch:?} {gpus:?}");
        }
        let asked = std::cell::Cell::new(false);
        decide("off", || {
            asked.set(true);
            Ok(0)
        });
        assert!(!asked.get(), "no library is opened when the switch has decided");
    }

    #[test]
    fn a_loaded_library_is_found_among_the_maps() {
        let maps = "7f0 r--p 0 08:01 1 /usr/lib/libc.so.6\n7f1 r-xp 0 08:01 2    /opt/my rocm/lib/libamdhip64.so.7.2.0\n7f2 rw-p 0 0 0 [heap]";
        assert_eq!(loaded(maps), Some(PathBuf::from("/opt/my rocm/lib/libamdhip64.so.7.2.0")));
        assert_eq!(loaded("7f0 r--p 0 08:01 1 /usr/lib/libamdhip64.so.7/other.so\n"), None);
        assert_eq!(loaded(""), None);
    }
}
