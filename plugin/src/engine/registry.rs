//! The engines of this plugin.

use super::{Engine, engine_id, host, miopen};

/// A list of engines.
pub type Engines = &'static [&'static dyn Engine];

/// Every engine, whatever this machine has: hosts list engines before they look for devices.
pub const ENGINES: Engines = &[&miopen::MIOPEN, &host::HOST];

/// The engine with that id.
pub fn find(engines: Engines, id: i64) -> Option<&'static dyn Engine> {
    engines.iter().copied().find(|engine| engine_id(*engine) == id)
}

/// The ids of all engines.
pub fn ids(engines: Engines) -> Vec<i64> {
    engines.iter().map(|engine| engine_id(*engine)).collect()
}
