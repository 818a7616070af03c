//! The files of measurements: `FOLDER/DEVICE/table.bin`, and `trees.bin` of somebody else, in hipDNN's cache folder.
//!
//! A folder is made for its owner alone (mode 0700). One that is there already is used only if it is this user's or
//! root's and nobody else can write into it, as are files in it. What is damaged, too large, newer or another's is
//! passed over with a reason.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hipdnn_schemas::{GbdtModel, TableModel};

use crate::device::Device;
use crate::features::{self, COUNT};
use crate::table::Table;

/// Folder of measurements, below hipDNN's cache folder. The name changes with the form of the files.
const FOLDER: &str = "heuristics/hipdnn-rs-1";

/// Names of the files of a device.
const TABLE: &str = "table.bin";
const TREES: &str = "trees.bin";

/// Name of the empty file that is locked while measurements are changed.
const LOCK: &str = "lock";

/// Largest file that is read, in bytes.
const LARGEST: u64 = 8 << 20;

/// Flags for opening: no link is followed, and a pipe is not waited for.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// What is known of a device, and why the rest is not.
#[derive(Debug, Default)]
pub struct Known {
    /// Measurements.
    pub table: Table,
    /// Trees.
    pub trees: Option<GbdtModel>,
    /// Files that were passed over, each with the reason.
    pub passed_over: Vec<String>,
    /// True if there are measurements that could not be read: another version's, or damaged ones. They are not to be
    /// written over.
    pub unread: bool,
}

/// The folder of measurements by the environment: below `HIPDNN_CACHE_DIR`, else `~/.cache/hipdnn`; none if caches are
/// switched off (`HIPDNN_DISABLE_CACHE`).
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let disables = |value: OsString| {
        let word = value.to_string_lossy().trim().to_ascii_lowercase();
        ["1", "true", "on", "yes", "enable", "enabled"].contains(&word.as_str())
    };
    if set("HIPDNN_DISABLE_CACHE").is_some_and(disables) {
        return None;
    }
    let home = || set("HOME").map(|home| Path::new(&home).join(".cache/hipdnn"));
    set("HIPDNN_CACHE_DIR").map(PathBuf::from).or_else(home).map(|root| root.join(FOLDER))
}

/// Reads what is known of a device.
pub fn read(folder: &Path, device: &Device) -> Known {
    let folder = folder.join(&device.name);
    let mut known = Known::default();
    let mut pass_over = |name: &str, reason: String| known.passed_over.push(format!("{name}: {reason}"));
    match fs::symlink_metadata(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return known,
        _ => {}
    }
    if let Err(error) = check_folder(&folder) {
        pass_over(&folder.display().to_string(), error.to_string());
        return known;
    }
    let table = file(&folder.join(TABLE), |bytes| {
        let model = TableModel::from_bytes(bytes).map_err(|error| error.to_string())?;
        Table::from_model(&model, &device.architecture)
    });
    match table {
        Ok(table) => known.table = table.unwrap_or_default(),
        Err(reason) => {
            pass_over(TABLE, reason);
            known.unread = true;
        }
    }
    match file(&folder.join(TREES), |bytes| trees(bytes, &device.architecture)) {
        Ok(trees) => known.trees = trees,
        Err(reason) => pass_over(TREES, reason),
    }
    known
}

/// Number of features of trees: the graph's, then those of a candidate: which of its engine's configurations, and
/// whether it is on the host.
pub const TREE_FEATURES: usize = COUNT + 2;

fn trees(bytes: &[u8], architecture: &str) -> Result<GbdtModel, String> {
    let model = GbdtModel::from_bytes(bytes).map_err(|error| error.to_string())?;
    if model.features_hash != features::hash() || model.features as usize != TREE_FEATURES {
        let (hash, got) = (features::hash(), &model.features_hash);
        let count = model.features;
        return Err(format!("expected {TREE_FEATURES} features with hash {hash}, got {count} with {got:?}"));
    }
    if !model.architectures.is_empty() && !model.architectures.iter().any(|its| its == architecture) {
        return Err(format!("expected trees of {architecture}, got those of {:?}", model.architectures));
    }
    Ok(model)
}

/// Changes the measurements of a device and returns what is known then. One process does so at a time, so that none
/// loses what another adds; where a file system has no locks, the last one's word counts.
///
/// # Errors
/// If the folder is not to be trusted or can't be written, or if there are measurements that can't be read.
pub fn update(folder: &Path, device: &Device, change: impl FnOnce(&mut Table)) -> io::Result<Known> {
    let place = folder.join(&device.name);
    make(&place)?;
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false).mode(0o600).custom_flags(FLAGS);
    let lock = open.open(place.join(LOCK))?;
    // It ends with the file.
    let _ = lock.lock();
    let mut known = read(folder, device);
    if known.unread {
        let reasons = known.passed_over.join("; ");
        return Err(io::Error::other(format!("move the file away to begin a new one: {reasons}")));
    }
    change(&mut known.table);
    write(folder, device, &known.table)?;
    Ok(known)
}

/// Writes the measurements of a device: another process reads the old ones or the new ones.
///
/// # Errors
/// If the folder is not to be trusted or can't be written.
pub fn write(folder: &Path, device: &Device, table: &Table) -> io::Result<()> {
    let folder = folder.join(&device.name);
    make(&folder)?;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let new = folder.join(format!("{TABLE}.{}-{call}.new", std::process::id()));
    let bytes = table.to_model(&device.architecture).to_bytes();
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, folder.join(TABLE))).inspect_err(|_| {
        // Nothing more can be done about it.
        let _ = fs::remove_file(&new);
    })
}

/// Makes a folder unless it is there, and checks it.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_folder(folder)
}

/// The user that this process acts for.
fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

fn check_owner(what: &str, owner: u32) -> io::Result<()> {
    let user = user()?;
    if owner == user || owner == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("expected {what} of user {user}, got one of user {owner}")))
}

/// Checks that nobody but this user and root can put files there: what is read decides what runs.
fn check_folder(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() {
        return Err(io::Error::other("expected a folder, got something else"));
    }
    check_owner("a folder", metadata.uid())?;
    let mode = metadata.mode() & 0o7777;
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("expected a folder that its owner alone can write, got mode {mode:04o}"))),
    }
}

/// What a file is decoded to; `None` if there is no file.
fn file<T>(path: &Path, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<Option<T>, String> {
    let file = match OpenOptions::new().read(true).custom_flags(FLAGS).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| error.to_string())?,
    };
    let bytes = contents(file).map_err(|error| error.to_string())?;
    decode(&bytes).map(Some)
}

fn contents(file: File) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("expected a file, got something else"));
    }
    check_owner("a file", metadata.uid())?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!("expected a file that its owner alone can write, got mode {mode:04o}")));
    }
    if metadata.len() > LARGEST {
        return Err(io::Error::other(format!("expected at most {LARGEST} bytes, got {}", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
