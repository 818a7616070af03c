//! Engine selection: the GPUs of this process, and so the engine that steps forward.

use std::ffi::c_int;
use std::fmt;
use std::sync::{Arc, OnceLock};

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::payload::{self, Payload};
use hipdnn_engine_core::{Applicable, Declined, Engine, Plan, Site};
use hipdnn_engine_cpu::CPU_ENGINE;
use hipdnn_engine_gpu::hip::{self, Gpu};
use hipdnn_schemas::Graph;
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;

/// Environment variable that decides for or against the CPU engine: `auto` (the default: where there is no GPU), `on`
/// or `off`.
pub const SWITCH: &str = "HIPDNN_RS_CPU_ENGINE";

/// Decision for or against the CPU engine in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The CPU engine computes graphs.
    On,
    /// The environment switches it off.
    SwitchedOff,
    /// GPUs, of this number: their engines are to have the graphs.
    Gpus(c_int),
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::On => write!(f, "the CPU engine is on"),
            Selection::SwitchedOff => write!(f, "the CPU engine is switched off by {SWITCH}=off"),
            Selection::Gpus(count) => {
                write!(
                    f,
                    "the CPU engine leaves graphs to the {count} GPU(s) of this process; {SWITCH}=on makes it take them"
                )
            }
        }
    }
}

/// Decision for or against the CPU engine, made, and logged with the state of the GPU engine, at the first question in
/// a process.
pub fn cpu_engine() -> Selection {
    static DECISION: OnceLock<Selection> = OnceLock::new();
    *DECISION.get_or_init(|| {
        let switch = switch();
        let decision = decide(&switch, || hip::gpu().map_or(0, Gpu::devices));
        match hip::gpu() {
            Ok(gpu) => {
                let missing = gpu.missing().map(|(what, reason)| format!(", without {what} ({reason})"));
                log::info!("the GPU engine is on{}; {decision}", missing.collect::<String>());
            }
            Err(reason) => log::info!("the GPU engine is off: {reason}; {decision}"),
        }
        decision
    })
}

/// Value of [`SWITCH`] in the environment; always `on` in unit tests, which are about results of the CPU engine, on
/// machines with a GPU too.
fn switch() -> String {
    if cfg!(test) { "on".into() } else { std::env::var(SWITCH).unwrap_or_default() }
}

/// Declines graphs and plans that another engine is to have.
fn admit(engine: &dyn Engine, site: Site) -> Result<(), Declined> {
    let decision = cpu_engine();
    if engine.name() != CPU_ENGINE.name() {
        return Ok(());
    }
    match decision {
        Selection::On => Ok(()),
        // Tensors that no engine for GPUs could have are not kept for one.
        Selection::Gpus(_) if site.memory != MemoryKind::UNSPECIFIED => Ok(()),
        off => Err(Declined::Unavailable(off.to_string())),
    }
}

/// Applicability of an engine ([`Engine::applicable`]), where the engine is to have the graph.
///
/// # Errors
/// As [`Engine::applicable`], or that another engine is to have it.
pub fn applicable(
    engine: &'static dyn Engine,
    graph: &Arc<Graph>,
    site: Site,
) -> Result<Arc<dyn Applicable>, Declined> {
    admit(engine, site)?;
    engine.applicable(graph, site)
}

/// Restores a plan ([`Engine::restore`]), where the engine is to have it.
///
/// # Errors
/// As [`Engine::restore`], or that another engine is to have it.
pub fn restore(engine: &'static dyn Engine, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
    admit(engine, site).map_err(|reason| payload::declined(engine, &reason))?;
    engine.restore(payload, site)
}

fn decide(switch: &str, gpus: impl FnOnce() -> c_int) -> Selection {
    match switch {
        "on" => return Selection::On,
        "off" => return Selection::SwitchedOff,
        "" | "auto" => {}
        other => log::warn!("{SWITCH}: expected auto, on or off, got {other:?}; taking auto"),
    }
    match gpus() {
        count if count > 0 => Selection::Gpus(count),
        _ => Selection::On,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_and_the_devices_decide() {
        for (switch, gpus, want) in [
            ("", 0, Selection::On),
            ("auto", 2, Selection::Gpus(2)),
            ("auto", 0, Selection::On),
            ("nonsense", 1, Selection::Gpus(1)),
            ("on", 1, Selection::On),
            ("off", 0, Selection::SwitchedOff),
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
