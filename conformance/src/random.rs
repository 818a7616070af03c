//! Random graphs.

use crate::cases::{Case, Net};
use crate::run::{Engine, Outcome, timed};

/// The case of that seed.
pub fn case(seed: u64) -> Case {
    Case::new(format!("random/{seed}"), Net::new(hipdnn_schemas::DataType::Float))
}

/// Runs the graph of that seed.
pub fn run(engine: &Engine, seed: u64) -> (Outcome, f64) {
    timed(engine, &case(seed))
}
