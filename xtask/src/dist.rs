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
    _lock: Lock,
}

/// Advisory lock on a file.
///
/// Closing the file is not enough to release it: a child process that another thread has forked and that has not called
/// `exec` yet holds a copy of the descriptor, and the lock belongs to all copies.
struct Lock(File);

impl Lock {
    /// Waits for those who hold the file of that path exclusively.
    fn shared(path: &Path) -> Result<Lock> {
        let file = File::create(path)?;
        file.lock_shared()?;
        Ok(Lock(file))
    }

    /// The file of that path, locked by this process alone.
    ///
    /// # Errors
    /// If another holds it.
    fn exclusive(path: &Path) -> Result<Lock> {
        let file = File::create(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {
                let path = path.with_extension("");
                Err(format!("expected {} to be free, got one that another xtask command uses", path.display()).into())
            }
            Err(TryLockError::Error(problem)) => Err(format!("{}: {problem}", path.display()).into()),
        }
    }

    /// The same lock, from now on shared with those who ask for [`Lock::shared`].
    fn share(self) -> Result<Lock> {
        self.0.lock_shared()?;
        Ok(self)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A failure leaves the lock to the end of the last copy, as without this call.
        let _ = self.0.unlock();
    }
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
    let lock = Lock::exclusive(&lock_file(&prefix))?;
    if prefix.exists() {
        fs::remove_dir_all(&prefix)?;
    }
    install::install(&prefix, &Component::STANDARD, &workspace::release(), &layout::Umbrella::default())?;
    let wheel = Layout::read()?.build_wheel(&workspace::release(), &prefix)?;
    Ok(Distribution { prefix, wheel, _lock: lock.share()? })
}

/// What `build` made the last time.
pub(crate) fn built() -> Result<Distribution> {
    let prefix = prefix();
    let lock = Lock::shared(&lock_file(&prefix))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_in_use_is_not_made_anew() {
        let path = workspace::target().join("dist-tests.lock");
        let reader = Lock::shared(&path).unwrap();
        let error = Lock::exclusive(&path).map(drop).unwrap_err().to_string();
        assert!(error.contains("dist-tests to be free"), "{error}");
        drop(reader);
        let alone = Lock::exclusive(&path).unwrap();
        let _first = alone.share().unwrap();
        File::create(&path).unwrap().try_lock_shared().expect("those who read share it");
    }

    #[test]
    fn a_released_lock_is_free_though_a_forked_child_has_a_copy_of_its_descriptor() {
        let path = workspace::target().join("dist-copies.lock");
        let lock = Lock::exclusive(&path).unwrap();
        let _copy = lock.0.try_clone().unwrap();
        drop(lock);
        Lock::exclusive(&path).expect("expected the lock to be free");
    }
}
