//! Whether this process has a GPU, and so which engine steps forward.

use std::ffi::c_int;
use std::fmt;
use std::sync::OnceLock;

use hipdnn_sdk_bindings::hip::{self, Hip, hipError_t};

use crate::engine::Declined;
use crate::engine::miopen::gpu::{Gpu, gpu};

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

/// Whether the host engine computes graphs; decided, and logged with what the MIOpen engine has, at the first question in
/// a process.
pub fn host_engine() -> HostEngine {
    static DECISION: OnceLock<HostEngine> = OnceLock::new();
    *DECISION.get_or_init(|| {
        let switch = switch();
        let miopen = gpu();
        let decision = decide(&switch, || miopen.map_or_else(|_| hip_devices(), Gpu::devices));
        match miopen {
            Ok(_) => log::info!("the MIOpen engine is on; {decision}"),
            Err(reason) => log::info!("the MIOpen engine is off: {reason}; {decision}"),
        }
        decision
    })
}

/// What the environment says. Unit tests are about what the host engine computes, on machines with a GPU too.
fn switch() -> String {
    if cfg!(test) { "on".into() } else { std::env::var(SWITCH).unwrap_or_default() }
}

/// Whether the MIOpen engine computes graphs.
///
/// # Errors
/// If it does not; the reason is logged once in a process.
pub fn miopen_engine() -> Result<&'static Gpu, Declined> {
    host_engine();
    gpu().map_err(|_| Declined::Unavailable("no usable GPU, for a reason that was logged at the first question".into()))
}

fn decide(switch: &str, gpus: impl FnOnce() -> c_int) -> HostEngine {
    match switch {
        "on" => return HostEngine::On,
        "off" => return HostEngine::SwitchedOff,
        "" | "auto" => {}
        other => log::warn!("{SWITCH}: wanted auto, on or off, came {other:?}; taking auto"),
    }
    match gpus() {
        count if count > 0 => HostEngine::Gpus(count),
        _ => HostEngine::On,
    }
}

/// How many devices HIP has, where there is no MIOpen: other engines may use them, and tensors are in their memory.
fn hip_devices() -> c_int {
    // SAFETY: these are HIP's own names and places; loading it is what every user of it does.
    let Ok(hip) = (unsafe { Hip::open(hip::candidates()) }) else { return 0 };
    let mut count = 0;
    // SAFETY: a place for one number.
    let status = unsafe { (hip.functions.hipGetDeviceCount)(&mut count) };
    // HIP does not take being unloaded after use: it keeps threads and handlers of its own.
    std::mem::forget(hip);
    if status == hipError_t::hipSuccess { count } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_and_the_devices_decide() {
        for (switch, gpus, want) in [
            ("", 0, HostEngine::On),
            ("auto", 2, HostEngine::Gpus(2)),
            ("auto", 0, HostEngine::On),
            ("nonsense", 1, HostEngine::Gpus(1)),
            ("on", 1, HostEngine::On),
            ("off", 0, HostEngine::SwitchedOff),
        ] {
            assert_eq!(decide(switch, || gpus), want, "{switch:?} {gpus:?}");
        }
        let asked = std::cell::Cell::new(false);
        decide("off", || {
            asked.set(true);
            0
        });
        assert!(!asked.get(), "no library is opened when the switch has decided");
    }
}
