//! Paths in the work tree, and building of its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, process};

/// The root of the work tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

/// Downloads and Python environments; ignored by git, safe to delete.
pub(crate) fn cache() -> PathBuf {
    root().join(".cache")
}

/// The directory that cargo builds into.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        // Cargo resolves a relative value against the directory it was started in, as `absolute` does.
        Some(directory) if !directory.is_empty() => {
            std::path::absolute(&directory).unwrap_or_else(|_| PathBuf::from(&directory))
        }
        _ => root().join("target"),
    }
}

/// Output directory of the release build.
pub(crate) fn release() -> PathBuf {
    target().join("release")
}

/// The packages whose libraries are shipped.
pub(crate) const LIBRARIES: [&str; 4] =
    ["hipdnn-rs-plugin", "hipdnn-rs-heuristics", "hipdnn-rs-backend", "hipdnn-rs-ep"];

/// The packages that are built with them: the program and the Python module, which are shipped too, and the conformance suite. In one
/// build each dependency has one set of features, and is compiled once.
const BESIDE: [&str; 3] = ["hipdnn-cli", "hipdnn-python", "hipdnn-conformance"];

/// A cargo command in the root of the work tree, by the cargo that started this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds everything that is shipped, and the conformance suite, with optimization.
///
/// Not incrementally, whatever the environment says: that cuts crates into pieces between which nothing is inlined, and a
/// network of small layers takes 2.5 times as long.
pub(crate) fn build_release() -> Result<()> {
    build_optimized(LIBRARIES.into_iter().chain(BESIDE))
}

/// Builds packages with optimization, as [`build_release`] does.
pub(crate) fn build_optimized(packages: impl IntoIterator<Item = &'static str>) -> Result<()> {
    let mut command = cargo();
    command.env("CARGO_INCREMENTAL", "0");
    command.args(["build", "--release", "--quiet"]);
    for package in packages {
        command.args(["--package", package]);
    }
    process::run(&mut command, "the release build")
}
