//! `cargo xtask bench`.

use crate::Result;

/// Runs the benchmark.
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    Err("not yet".into())
}
