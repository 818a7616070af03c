//! Registry: the engines of this plugin.

use hipdnn_engine_core::{Engine, engine_id};
use hipdnn_engine_cpu::CPU_ENGINE;
use hipdnn_engine_gpu::GPU_ENGINE;

/// A list of engines.
pub type Engines = &'static [&'static dyn Engine];

/// Every engine, whatever this machine has: hosts list engines before they look for devices.
pub const ENGINES: Engines = &[&GPU_ENGINE, &CPU_ENGINE];

/// Engine with that id.
pub fn find(engines: Engines, id: i64) -> Option<&'static dyn Engine> {
    engines.iter().copied().find(|engine| engine_id(*engine) == id)
}

/// Ids of all engines.
pub fn ids(engines: Engines) -> Vec<i64> {
    engines.iter().map(|engine| engine_id(*engine)).collect()
}
