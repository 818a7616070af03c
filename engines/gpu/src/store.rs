//! Cache on disk for the next process: choices of solvers and compiled kernels.
//!
//! One file an entry, in one directory. A file appears under its name only when it is complete (it is written beside and
//! renamed), so any number of processes may share the directory. A file says what it is an entry of, in full, and ends in
//! a checksum; one that is damaged, cut, of another version or another user's is passed over, with a line in the log. A
//! directory that can't be made or written, or into which others than this user and root can write, costs the cache and
//! nothing else.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::framed::{Reader, Writer, fnv128};
use hipdnn_engine_core::payload::Entry;

/// Names the directory; `off` keeps nothing.
pub const DIRECTORY_VARIABLE: &str = "HIPDNN_RS_CACHE_DIR";

/// Name of no directory, for a cache that keeps nothing.
const OFF: &CStr = c"off";

/// First bytes of an entry.
const MAGIC: &[u8; 8] = b"HDNNRSC\n";

/// Version of the library: entries of different ones live side by side.
const LIBRARY: &str = env!("CARGO_PKG_VERSION");

/// Stamp that an entry must have to be read: the version of entries, and this version of the library. Version 2 has the
/// wire format's numbers of element types as hipDNN assigns them; version 1 had 16 to 18 in another order.
const STAMP: &str = concat!("2 ", env!("CARGO_PKG_VERSION"));

/// Bytes of all entries together, past which the oldest are removed.
const DEFAULT_LIMIT: u64 = 256 << 20;

/// Bytes of the largest entry: a code object is well below one megabyte.
const LARGEST_ENTRY: u64 = 32 << 20;

/// Entries that are used are marked as new no more often than this.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that was begun and not finished by then is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Extension of entries.
const EXTENSION: &str = "entry";

/// Extension of files that are being written.
const UNFINISHED: &str = "tmp";

/// The persistent cache, or what came with a stored plan.
#[derive(Debug)]
pub struct Store {
    directory: Option<PathBuf>,
    /// Of a stored plan: there is nothing else, and nothing is added.
    sealed: Option<Vec<Entry>>,
    limit: u64,
    /// A failure to write, or a directory that is not used, was logged: the next time says nothing new.
    complained: AtomicBool,
}

impl Store {
    /// The cache in the directory that `HIPDNN_RS_CACHE_DIR` names, else in `hipdnn-rs` under `XDG_CACHE_HOME` or
    /// `~/.cache`; one that keeps nothing where the variable is `off` or there is no such place.
    ///
    /// The directory is made by the first entry.
    pub fn open_default() -> Store {
        Store::new(directory(|name| std::env::var_os(name)))
    }

    /// The cache of a handle: in the directory that its client names, none where that is `off`, and [`Store::open_default`] where it
    /// names none.
    pub fn of(directory: Option<&CStr>) -> Store {
        match directory {
            None => Store::open_default(),
            Some(name) if name == OFF => Store::disabled(),
            Some(name) => Store::at(OsStr::from_bytes(name.to_bytes())),
        }
    }

    /// The cache in that directory.
    pub fn at(directory: impl Into<PathBuf>) -> Store {
        Store::new(Some(directory.into()))
    }

    /// A cache that keeps nothing.
    pub fn disabled() -> Store {
        Store::new(None)
    }

    /// Store with the entries that came with a stored plan: nothing else must be looked for or compiled.
    pub fn sealed(entries: Vec<Entry>) -> Store {
        Store { sealed: Some(entries), ..Store::disabled() }
    }

    /// True if it came with a stored plan.
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    fn new(directory: Option<PathBuf>) -> Store {
        Store { directory, sealed: None, limit: DEFAULT_LIMIT, complained: AtomicBool::new(false) }
    }

    /// The same cache with another bound of its size in bytes.
    pub fn with_limit(self, bytes: u64) -> Store {
        Store { limit: bytes, ..self }
    }

    /// Directory of the entries; `None` for a cache that keeps nothing.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The value put under that key, by this process or another.
    pub fn get(&self, kind: &str, key: &str) -> Option<Vec<u8>> {
        if let Some(entries) = &self.sealed {
            let found = entries.iter().find(|entry| entry.kind == kind && entry.key == key);
            return found.map(|entry| entry.value.clone());
        }
        let directory = self.directory.as_ref()?;
        if let Err(error) = check_directory(directory) {
            if !nothing_there(&error) && !self.complained.swap(true, Ordering::Relaxed) {
                log::warn!("the cache in {} is not used: {error}", directory.display());
            }
            return None;
        }
        let path = directory.join(file_name(kind, key));
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if nothing_there(&error) => return None,
            Err(error) => {
                log::info!("cache entry {} is passed over: {error}", path.display());
                return None;
            }
        };
        match decode(&bytes, kind, key) {
            Ok(value) => Some(value.to_vec()),
            Err(reason) => {
                log::info!("cache entry {} is passed over: {reason}", path.display());
                None
            }
        }
    }

    /// Keeps a value under that key, in place of one that is there.
    pub fn put(&self, kind: &str, key: &str, value: &[u8]) {
        let Some(directory) = &self.directory else { return };
        let entry = encode(kind, key, value);
        if entry.len() as u64 > LARGEST_ENTRY.min(self.limit) {
            log::info!("a cache entry of {} bytes is not kept: {kind}", entry.len());
            return;
        }
        match write(directory, &file_name(kind, key), &entry) {
            Ok(()) => self.shrink(directory),
            Err(error) if !self.complained.swap(true, Ordering::Relaxed) => {
                log::warn!("the cache in {} can't be written, work on: {error}", directory.display());
            }
            Err(_) => {}
        }
    }

    /// Removes the oldest entries while there are more bytes than the limit, and files that were never finished.
    fn shrink(&self, directory: &Path) {
        let Ok(files) = fs::read_dir(directory) else { return };
        let now = SystemTime::now();
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for file in files.flatten() {
            let path = file.path();
            let Ok(metadata) = file.metadata() else { continue };
            let Ok(modified) = metadata.modified() else { continue };
            match path.extension().and_then(|e| e.to_str()) {
                Some(EXTENSION) => entries.push((modified, metadata.len(), path)),
                Some(UNFINISHED) if now.duration_since(modified).is_ok_and(|age| age > ABANDONED) => {
                    // Whoever removes it first is right.
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.limit {
            return;
        }
        entries.sort();
        // Room for a while, so that not every entry that comes removes one.
        let target = self.limit - self.limit / 4;
        for (_, bytes, path) in entries {
            if total <= target {
                break;
            }
            // Another process may have removed it already.
            let _ = fs::remove_file(path);
            total -= bytes;
        }
    }
}

/// The error of a stored plan that lacks something.
pub(super) fn missing(what: &str) -> Error {
    Error::not_applicable(format!("serialized_context: expected every {what} of the plan, got one that lacks a {what}"))
}

/// Directory of the entries, by the environment.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(named) = set(DIRECTORY_VARIABLE) {
        return (named.as_bytes() != OFF.to_bytes()).then(|| named.into());
    }
    // A relative path there is to be ignored, says the XDG base directory specification.
    let absolute = |name| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("hipdnn-rs"))
}

/// The name of an entry's file; two keys may share one, so an entry holds its key.
fn file_name(kind: &str, key: &str) -> String {
    // The version of entries is left out, so that an older entry is met, passed over with its reason and replaced.
    let hash = fnv128([LIBRARY.as_bytes(), b"\0", kind.as_bytes(), b"\0", key.as_bytes()]);
    format!("{hash:032x}.{EXTENSION}")
}

/// Stamp, kind, key and value.
fn encode(kind: &str, key: &str, value: &[u8]) -> Vec<u8> {
    let mut entry = Writer::new(MAGIC);
    for field in [STAMP.as_bytes(), kind.as_bytes(), key.as_bytes(), value] {
        entry.field(field);
    }
    entry.finish()
}

/// The value of an entry, or why it is none of that key.
fn decode<'a>(entry: &'a [u8], kind: &str, key: &str) -> Result<&'a [u8], String> {
    let mut fields = Reader::new(entry, MAGIC).ok_or("it is no cache entry")?;
    let stamp = fields.field()?;
    if stamp != STAMP.as_bytes() {
        let stamp = String::from_utf8_lossy(&stamp[..stamp.len().min(40)]);
        return Err(format!("expected an entry of version {STAMP:?}, got {stamp:?}"));
    }
    let (its_kind, its_key, value) = (fields.field()?, fields.field()?, fields.field()?);
    fields.finish()?;
    if its_kind != kind.as_bytes() || its_key != key.as_bytes() {
        return Err("it is of another key".into());
    }
    Ok(value)
}

fn nothing_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks that this user or root owns what is found.
fn check_owner(what: &str, owner: u32) -> io::Result<()> {
    // SAFETY: it has no precondition.
    let user = unsafe { libc::geteuid() };
    if owner == user || owner == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("expected {what} of user {user}, got one of user {owner}")))
}

/// Checks that nobody but this user and root can put entries there: kernels are run as they are found.
fn check_directory(directory: &Path) -> io::Result<()> {
    let metadata = fs::metadata(directory)?;
    if !metadata.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    check_owner("a directory", metadata.uid())?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "expected a directory that its owner alone can write, got mode {mode:04o}"
        )));
    }
    Ok(())
}

/// All of a file, if it is a plain one that this user or root wrote: kernels are run as they are found here.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without O_NONBLOCK a pipe of that name would be waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    check_owner("a file", metadata.uid())?;
    if metadata.len() > LARGEST_ENTRY {
        return Err(io::Error::other(format!("it has {} bytes", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    (&mut file).take(LARGEST_ENTRY).read_to_end(&mut bytes)?;
    if metadata.modified().is_ok_and(|then| then.elapsed().is_ok_and(|age| age > FRESH)) {
        // Only what is not used gets old. Refused for root's files, which is as well.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(bytes)
}

/// Makes the file appear with all its bytes or not at all.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check_directory(directory)?;
    let (unfinished, mut file) = begin(directory)?;
    let done = file.write_all(bytes).and_then(|()| fs::rename(&unfinished, directory.join(name)));
    if done.is_err() {
        // Nothing more can be done about it; the next sweep takes it.
        let _ = fs::remove_file(&unfinished);
    }
    done
}

/// A new file under a name that nobody else uses.
fn begin(directory: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        // Processes of two containers may have the same number.
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{}-{count}-{time:x}.{UNFINISHED}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return Ok((path, done?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// A directory of the test, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("hipdnn-rs-store-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn store(&self) -> Store {
            Store::at(self.0.join("cache"))
        }

        fn files(&self) -> Vec<PathBuf> {
            let files = fs::read_dir(self.0.join("cache")).into_iter().flatten();
            files.map(|file| file.unwrap().path()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::set_permissions(self.0.join("cache"), fs::Permissions::from_mode(0o700));
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_directory_is_found_in_the_environment() {
        for (what, variables, want) in [
            ("ours", &[("HIPDNN_RS_CACHE_DIR", "/c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")][..], Some("/c")),
            ("relative", &[("HIPDNN_RS_CACHE_DIR", "c"), ("HOME", "/h")], Some("c")),
            ("off", &[("HIPDNN_RS_CACHE_DIR", "off"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], None),
            ("empty", &[("HIPDNN_RS_CACHE_DIR", ""), ("XDG_CACHE_HOME", "/x")], Some("/x/hipdnn-rs")),
            ("XDG", &[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], Some("/x/hipdnn-rs")),
            ("relative XDG", &[("XDG_CACHE_HOME", "x"), ("HOME", "/h")], Some("/h/.cache/hipdnn-rs")),
            ("home", &[("HOME", "/h")], Some("/h/.cache/hipdnn-rs")),
            ("nothing", &[], None),
        ] {
            let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            assert_eq!(directory(variable).as_deref(), want.map(Path::new), "{what}");
        }
    }

    #[test]
    fn values_come_back_to_another_owner() {
        let scratch = Scratch::new("back");
        let store = scratch.store();
        assert_eq!(store.get("choice", "a"), None);
        assert!(!scratch.0.join("cache").exists(), "the directory is made by the first entry");
        let large = vec![7; 100_000];
        for (kind, key, value) in
            [("choice", "a", &b"one"[..]), ("choice", "", b""), ("code", "a", &large), ("choice", "a", b"two")]
        {
            store.put(kind, key, value);
            assert_eq!(scratch.store().get(kind, key).as_deref(), Some(value), "{kind} {key:?}");
        }
        assert_eq!(scratch.store().get("code", "a"), Some(large), "kinds are apart");
        assert_eq!(store.get("choice", "b"), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&scratch.0.join("cache")), 0o700);
        let files = scratch.files();
        assert_eq!(files.len(), 3, "nothing unfinished is left: {files:?}");
        assert!(files.iter().all(|path| mode(path) == 0o600));
    }

    #[test]
    fn a_disabled_store_keeps_nothing() {
        let store = Store::disabled();
        store.put("choice", "a", b"one");
        assert_eq!((store.get("choice", "a"), store.directory()), (None, None));
    }

    #[test]
    fn what_is_not_the_entry_is_passed_over_and_replaced() {
        let scratch = Scratch::new("damaged");
        let store = scratch.store();
        store.put("choice", "key", b"the value");
        let path = scratch.files().pop().unwrap();
        let good = fs::read(&path).unwrap();
        let mut bad: Vec<(String, Vec<u8>)> = Vec::new();
        for length in 0..good.len() {
            bad.push((format!("cut to {length} bytes"), good[..length].to_vec()));
        }
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            bad.push((format!("a bit of byte {at} flipped"), bytes));
        }
        bad.push(("longer".into(), [&good[..], b"x"].concat()));
        bad.push(("zeros".into(), vec![0; good.len()]));
        bad.push(("another key's".into(), encode("choice", "other", b"the value")));
        bad.push(("another kind's".into(), encode("code", "key", b"the value")));
        for (what, bytes) in bad {
            fs::write(&path, bytes).unwrap();
            assert_eq!(store.get("choice", "key"), None, "{what}");
        }
        store.put("choice", "key", b"the value");
        assert_eq!(fs::read(&path).unwrap(), good);
    }

    #[test]
    fn entries_of_other_versions_are_passed_over_with_the_reason() {
        let written_by = |stamp: &str| {
            let mut entry = MAGIC.to_vec();
            for field in [stamp, "choice", "key", "value"] {
                entry.extend((field.len() as u64).to_le_bytes());
                entry.extend(field.as_bytes());
            }
            let checksum = fnv128([&entry[..]]);
            entry.extend(checksum.to_le_bytes());
            entry
        };
        let scratch = Scratch::new("versions");
        let store = scratch.store();
        store.put("choice", "key", b"value");
        let path = scratch.files().pop().unwrap();
        let long = "9".repeat(100);
        // The first is what the version before this one wrote: its key may hold numbers that mean other element types.
        for stamp in [concat!("1 ", env!("CARGO_PKG_VERSION")), "2 0.0.1", "3", "", &long] {
            let entry = written_by(stamp);
            let shown = &stamp[..stamp.len().min(40)];
            let reason = format!("expected an entry of version {STAMP:?}, got {shown:?}");
            assert_eq!(decode(&entry, "choice", "key"), Err(reason));
            fs::write(&path, &entry).unwrap();
            assert_eq!(store.get("choice", "key"), None, "{stamp}");
        }
        assert_eq!(decode(&written_by(STAMP), "choice", "key"), Ok(&b"value"[..]));
    }

    #[test]
    fn other_things_under_an_entrys_name_are_survived() {
        let scratch = Scratch::new("things");
        let store = scratch.store();
        store.put("choice", "key", b"value");
        let path = scratch.files().pop().unwrap();
        let elsewhere = scratch.0.join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();

        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(store.get("choice", "key"), None, "a link");
        store.put("choice", "key", b"new");
        assert_eq!(store.get("choice", "key").as_deref(), Some(&b"new"[..]));
        assert!(elsewhere.exists(), "the link was replaced, not what it names");

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(store.get("choice", "key"), None, "a directory");
        store.put("choice", "key", b"value");
        assert_eq!(store.get("choice", "key"), None, "a directory stays");
        fs::remove_dir(&path).unwrap();

        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(store.get("choice", "key"), None, "a pipe is not waited for");
    }

    #[test]
    fn a_directory_that_cannot_be_is_survived() {
        let scratch = Scratch::new("nowhere");
        fs::write(scratch.0.join("file"), b"").unwrap();
        for place in [scratch.0.join("file"), scratch.0.join("file/below"), "/proc/self/none".into()] {
            let store = Store::at(&place);
            for _ in 0..2 {
                store.put("choice", "key", b"value");
                assert_eq!(store.get("choice", "key"), None, "{}", place.display());
            }
        }
    }

    #[test]
    fn a_read_only_directory_is_read() {
        let scratch = Scratch::new("read-only");
        let store = scratch.store();
        store.put("choice", "key", b"value");
        fs::set_permissions(scratch.0.join("cache"), fs::Permissions::from_mode(0o500)).unwrap();
        store.put("choice", "other", b"value");
        assert_eq!(store.get("choice", "key").as_deref(), Some(&b"value"[..]));
        // Root may write there all the same.
        let other = store.get("choice", "other");
        assert!(other.is_none() || other.as_deref() == Some(b"value"));
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let scratch = Scratch::new("writable");
        let (store, directory) = (scratch.store(), scratch.0.join("cache"));
        store.put("choice", "key", b"value");
        let set = |mode| fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        for (mode, used) in [(0o700, true), (0o755, true), (0o770, false), (0o702, false), (0o1777, false)] {
            set(mode);
            assert_eq!(scratch.store().get("choice", "key").is_some(), used, "{mode:o}");
            scratch.store().put("choice", &mode.to_string(), b"value");
            let reason = check_directory(&directory).err().map(|error| error.to_string());
            let wanted = format!("expected a directory that its owner alone can write, got mode {mode:04o}");
            assert_eq!(reason, (!used).then_some(wanted));
            set(0o700);
            assert_eq!(store.get("choice", &mode.to_string()).is_some(), used, "{mode:o}");
        }
    }

    #[test]
    fn what_another_user_owns_is_not_used() {
        // SAFETY: it has no precondition.
        let user = unsafe { libc::geteuid() };
        for (owner, good) in [(user, true), (0, true), (user + 1, false)] {
            assert_eq!(check_owner("a directory", owner).is_ok(), good, "{owner}");
        }
        let scratch = Scratch::new("foreign");
        scratch.store().put("choice", "key", b"value");
        // Root alone can give a directory away.
        if std::os::unix::fs::chown(scratch.0.join("cache"), Some(user + 1), None).is_ok() {
            assert_eq!(scratch.store().get("choice", "key"), None);
            scratch.store().put("choice", "other", b"value");
            assert_eq!(scratch.files().len(), 1);
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let scratch = Scratch::new("limit");
        let store = scratch.store().with_limit(20_000);
        let old = |key: &str, hours: u64| {
            let path = scratch.0.join("cache").join(file_name("code", key));
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        };
        for (key, hours) in [("a", 4), ("b", 2), ("c", 3), ("d", 1)] {
            store.put("code", key, &[1; 4000]);
            old(key, hours);
        }
        let left = |store: &Store| ["a", "b", "c", "d", "e"].map(|key| store.get("code", key).is_some());
        assert_eq!(left(&store), [true, true, true, true, false]);
        store.put("code", "e", &[1; 4000]);
        // Five of a bit over 4000 bytes are too many; three are within three quarters of the limit.
        assert_eq!(left(&store), [false, true, false, true, true]);
        store.put("code", "huge", &[1; 30_000]);
        assert_eq!(store.get("code", "huge"), None, "larger than everything together may be");
        assert_eq!(left(&store), [false, true, false, true, true]);
    }

    #[test]
    fn what_is_used_does_not_get_old_and_what_was_abandoned_goes() {
        let scratch = Scratch::new("fresh");
        let store = scratch.store();
        store.put("code", "a", b"value");
        let path = scratch.files().pop().unwrap();
        let days = |n: u64| SystemTime::now() - Duration::from_secs(n * 24 * 3600);
        let touch = |path: &Path, time| OpenOptions::new().write(true).open(path).unwrap().set_modified(time).unwrap();
        touch(&path, days(9));
        assert!(store.get("code", "a").is_some());
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > days(1));

        let (abandoned, recent) = (path.with_file_name("1-0-0.tmp"), path.with_file_name("1-1-0.tmp"));
        let foreign = path.with_file_name("README");
        for file in [&abandoned, &recent, &foreign] {
            fs::write(file, b"").unwrap();
        }
        touch(&abandoned, days(1));
        touch(&foreign, days(99));
        store.put("code", "b", b"value");
        assert_eq!((abandoned.exists(), recent.exists(), foreign.exists()), (false, true, true));
    }

    /// Value that a writer of the tests below puts: long enough to take several writes, and known by its first byte.
    fn value(writer: u8) -> Vec<u8> {
        let mut value = vec![writer; 50_000];
        value.extend(0..=writer);
        value
    }

    fn is_a_value(bytes: &[u8]) -> bool {
        bytes == value(bytes[0])
    }

    /// Puts and gets a few keys, over and over.
    fn hammer(directory: &Path, writer: u8, rounds: usize) {
        // So small that entries are removed all the time.
        let store = Store::at(directory).with_limit(180_000);
        for round in 0..rounds {
            let key = format!("key {}", round % 5);
            store.put("code", &key, &value(writer));
            if let Some(got) = store.get("code", &key) {
                assert!(is_a_value(&got), "a mixture under {key}");
            }
        }
    }

    #[test]
    fn threads_see_whole_values() {
        let scratch = Scratch::new("threads");
        let cache = scratch.0.join("cache");
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let cache = &cache;
                scope.spawn(move || hammer(cache, writer, 60));
            }
        });
        assert!(scratch.files().iter().all(|path| path.extension().is_some_and(|e| e == EXTENSION)));
    }

    const CHILD: &str = "HIPDNN_RS_STORE_TEST_CHILD";

    #[test]
    fn processes_see_whole_values() {
        if let Some(cache) = std::env::var_os(CHILD) {
            return hammer(Path::new(&cache), std::process::id() as u8, 60);
        }
        let scratch = Scratch::new("processes");
        let cache = scratch.0.join("cache");
        // By name: where a loader started this program, the running executable is the loader.
        let program = std::env::args_os().next().unwrap();
        let name = "store::tests::processes_see_whole_values";
        let mut children: Vec<_> = (0..4)
            .map(|_| Command::new(&program).args([name, "--exact"]).env(CHILD, &cache).spawn().unwrap())
            .collect();
        for child in &mut children {
            assert!(child.wait().unwrap().success());
        }
        let store = Store::at(&cache);
        let found = (0..5).filter_map(|i| store.get("code", &format!("key {i}")));
        let found: Vec<_> = found.inspect(|got| assert!(is_a_value(got))).collect();
        assert!(!found.is_empty());
        assert!(scratch.files().iter().all(|path| path.extension().is_some_and(|e| e == EXTENSION)));
    }
}
