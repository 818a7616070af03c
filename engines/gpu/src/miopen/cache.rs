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
    uncompiled_in(folders::kernels(), work)
}

/// The same where MIOpen's cache is in `folder`.
fn uncompiled_in<T>(folder: Option<PathBuf>, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let files = || folder.as_deref().map(|folder| files(folder, DEPTH)).unwrap_or_default();
    let (before, written) = (files(), written_bytes());
    let made = work()?;
    // Processes share the cache: it may have changed while this one wrote no kernel.
    let wrote = written.zip(written_bytes()).is_none_or(|(before, after)| after - before >= PAGE);
    if files() == before || !wrote {
        return Ok(made);
    }
    let folder = folder.unwrap_or_default();
    let text = format!(
        "serialized_context: expected the plan's kernels in MIOpen's cache, got none: it compiled them into {}",
        folder.display()
    );
    Err(Error::new(ErrorKind::Device, text))
}

/// Bytes that this process has written so far, to whatever; `None` if the system doesn't count them.
fn written_bytes() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// Bytes of the smallest page of an SQLite database, which are written at the least when a kernel is added. To open one
/// takes a few bytes of its index of shared memory.
const PAGE: u64 = 512;

/// Levels of folders that MIOpen's cache has, and one more.
const DEPTH: usize = 3;

/// Every file with contents below a folder, with its size and when it was changed last. Not among them is what an SQLite
/// database has while a process, this one or another, has it open: an index of shared memory, and a log without entries.
fn files(folder: &Path, depth: usize) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            if metadata.len() == 0 || entry.file_name().as_encoded_bytes().ends_with(b"-shm") {
                continue;
            }
            found.push((entry.path(), metadata.len(), metadata.modified().ok()));
        } else if metadata.is_dir() && depth > 0 {
            found.extend(files(&entry.path(), depth - 1));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Acceptance of a change to the folder by another program, of a database that is opened, and of a kernel that this
    /// process writes.
    fn answers(folder: &Path) -> [bool; 3] {
        let (theirs, ours) = (folder.join("theirs"), folder.join("ours"));
        let write = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).map_err(|error| Error::new(ErrorKind::Device, error.to_string()))
        };
        let by_other = uncompiled_in(Some(folder.into()), || {
            // What a child writes is counted as its parent's, once that has waited for it; the shell doesn't. The file
            // takes its name once it is whole: a copy that is still written would change the folder in the next step.
            let script = format!("(cp /proc/self/stat '{0}.part' && mv '{0}.part' '{0}') &", theirs.display());
            assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
            while !theirs.exists() {
                std::thread::yield_now();
            }
            Ok(())
        });
        let opened = uncompiled_in(Some(folder.into()), || {
            write("gfx.ukdb-wal", b"")?;
            write("gfx.ukdb-shm", &[0; 2 * PAGE as usize])
        });
        let by_us = uncompiled_in(Some(folder.into()), || write("ours", &[0; PAGE as usize]));
        assert!(std::fs::remove_file(theirs).is_ok() && std::fs::remove_file(ours).is_ok());
        if let Err(error) = &by_us {
            assert!(error.to_string().contains("expected the plan's kernels in MIOpen's cache"), "{error}");
        }
        [by_other.is_ok(), opened.is_ok(), by_us.is_ok()]
    }

    /// Names the folder to the process that the test below runs in, where no other test writes meanwhile.
    const FOLDER: &str = "HIPDNN_RS_KERNELS_TEST_CHILD";

    #[test]
    fn kernels_that_another_process_compiles_refuse_nothing() {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return assert_eq!(answers(Path::new(&folder)), [true, true, false], "of theirs, opened, of ours");
        }
        let folder = std::env::temp_dir().join(format!("hipdnn-rs-kernels-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a/b")).unwrap();
        // By name: where a loader started this program, the running executable is the loader.
        let program = std::env::args_os().next().unwrap();
        let name = "miopen::cache::tests::kernels_that_another_process_compiles_refuse_nothing";
        let ended = Command::new(program).args([name, "--exact", "--nocapture"]).env(FOLDER, &folder).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}
