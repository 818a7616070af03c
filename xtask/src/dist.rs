//! `cargo xtask dist`: everything a user receives, in the places where it is installed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::install::layout::{self, Component, Layout};
use crate::{Result, install, workspace};

/// Output of `build`, which is not laid out anew as long as this is held.
pub(crate) struct Distribution {
    /// The directory that is copied below an installation prefix.
    pub(crate) prefix: PathBuf,
    /// The Python wheel.
    pub(crate) wheel: PathBuf,
    /// Shared lock on [`lock_file`].
    _lock: File,
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
///
/// # Errors
/// If something can't be built, or another process holds a [`Distribution`]: it would miss files in the meantime.
pub(crate) fn build() -> Result<Distribution> {
    workspace::build_release()?;
    let prefix = prefix();
    let lock = exclusive(&lock_file(&prefix))?;
    if prefix.exists() {
        fs::remove_dir_all(&prefix)?;
    }
    install::install(&prefix, &Component::STANDARD, &workspace::release(), &layout::Umbrella::default())?;
    let wheel = Layout::read()?.build_wheel(&workspace::release(), &prefix)?;
    lock.lock_shared()?;
    Ok(Distribution { prefix, wheel, _lock: lock })
}

/// What `build` made the last time.
pub(crate) fn built() -> Result<Distribution> {
    let prefix = prefix();
    let lock = File::create(lock_file(&prefix))?;
    lock.lock_shared()?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let entries = fs::read_dir(&prefix).map_err(|problem| format!("{}: {problem}", prefix.display()))?;
    let wheel = entries.filter_map(|entry| Some(entry.ok()?.path())).find(is_wheel);
    let wheel = wheel.ok_or_else(|| format!("{}: expected a wheel, got none", prefix.display()))?;
    Ok(Distribution { prefix, wheel, _lock: lock })
}

fn prefix() -> PathBuf {
    workspace::target().join("dist")
}

fn lock_file(prefix: &Path) -> PathBuf {
    prefix.with_extension("lock")
}

/// The file of that path, locked by this process alone.
fn exclusive(path: &Path) -> Result<File> {
    let file = File::create(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let path = path.with_extension("");
            Err(format!("expected {} to be free, got one that another xtask command uses", path.display()).into())
        }
        Err(TryLockError::Error(problem)) => Err(format!("{}: {problem}", path.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_in_use_is_not_made_anew() {
        let path = workspace::target().join("dist-tests.lock");
        let reader = File::create(&path).unwrap();
        reader.lock_shared().unwrap();
        let error = exclusive(&path).unwrap_err().to_string();
        assert!(error.contains("dist-tests to be free"), "{error}");
        drop(reader);
        let alone = exclusive(&path).unwrap();
        alone.lock_shared().unwrap();
        let second = File::create(&path).unwrap();
        second.try_lock_shared().expect("those who read share it");
    }
}
