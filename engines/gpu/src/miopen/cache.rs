//! MIOpen's own cache of kernels.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hipdnn_engine_core::error::{Error, ErrorKind};

use crate::folders;

/// Has MIOpen make something ready that it has in its cache of kernels.
///
/// # Errors
/// If it had to compile.
pub(super) fn uncompiled<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let folder = folders::kernels();
    let files = || folder.as_deref().map(|folder| files(folder, DEPTH)).unwrap_or_default();
    let before = files();
    let made = work()?;
    if files() == before {
        return Ok(made);
    }
    let folder = folder.unwrap_or_default();
    let text = format!(
        "serialized_context: expected the plan's kernels in MIOpen's cache, got none: it compiled them into {}",
        folder.display()
    );
    Err(Error::new(ErrorKind::Device, text))
}

/// Levels of folders that MIOpen's cache has, and one more.
const DEPTH: usize = 3;

/// Every file below a folder, with its size and when it was changed last.
fn files(folder: &Path, depth: usize) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            found.push((entry.path(), metadata.len(), metadata.modified().ok()));
        } else if metadata.is_dir() && depth > 0 {
            found.extend(files(&entry.path(), depth - 1));
        }
    }
    found.sort();
    found
}
