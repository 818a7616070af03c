//! `cargo xtask dist`: everything a user receives, in the places where it is installed.

use std::fs;
use std::path::PathBuf;

use crate::install::layout::{self, Component, Layout};
use crate::{Result, install, workspace};

/// Output of `build`.
pub(crate) struct Distribution {
    /// The directory that is copied below an installation prefix.
    pub(crate) prefix: PathBuf,
    /// The Python wheel.
    pub(crate) wheel: PathBuf,
}

/// Builds everything and lists its files.
pub(crate) fn run() -> Result<()> {
    let made = build()?;
    for path in layout::files_below(&made.prefix)? {
        let bytes = fs::metadata(&path)?.len();
        println!("{:>10}  {}", bytes, path.strip_prefix(workspace::root()).unwrap_or(&path).display());
    }
    Ok(())
}

/// Builds the release libraries and lays out `target/dist` afresh.
pub(crate) fn build() -> Result<Distribution> {
    workspace::build_release()?;
    let prefix = workspace::target().join("dist");
    if prefix.exists() {
        fs::remove_dir_all(&prefix)?;
    }
    install::install(&prefix, &Component::STANDARD, &workspace::release(), &layout::Umbrella::default())?;
    let wheel = Layout::read()?.build_wheel(&workspace::release(), &prefix)?;
    Ok(Distribution { prefix, wheel })
}

/// What `build` made the last time.
pub(crate) fn built() -> Result<Distribution> {
    let prefix = workspace::target().join("dist");
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let wheel = fs::read_dir(&prefix)?.filter_map(|entry| Some(entry.ok()?.path())).find(is_wheel);
    let wheel = wheel.ok_or_else(|| format!("{}: expected a wheel, got none", prefix.display()))?;
    Ok(Distribution { prefix, wheel })
}
