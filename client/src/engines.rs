//! Engines of known names, and the memory that they work in: nothing in the engine ABI tells that.

/// The engine that works in the host's memory.
pub const HOST_ENGINE: &str = "HIPDNN_RS_CPU_ENGINE";

/// Engines that read and write a GPU's memory alone.
pub const DEVICE_ENGINES: [&str; 3] = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC"];
