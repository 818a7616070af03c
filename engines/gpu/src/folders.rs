//! Folders that MIOpen and the kernel compiler write to. Where MIOpen can't, its calls fail without their status saying so;
//! where the compiler runs out of room, it ends the process.

use std::ffi::{CString, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hipdnn_engine_core::error::{Error, ErrorKind};

/// Bytes that have to be free for a compilation: four times what the largest of MIOpen's direct kernels was seen to take.
const ROOM: u64 = 16 << 20;

/// A folder: the variables that name it, the first of them that is set, and where it is otherwise.
struct Folder {
    what: &'static str,
    variables: &'static [&'static str],
    otherwise: Otherwise,
    /// True if the libraries fail where they can't make files in it.
    is_needed: bool,
}

enum Otherwise {
    /// Under the home directory.
    AtHome(&'static str),
    /// In the user's folder for caches.
    Cached(&'static str),
    At(&'static str),
}

/// The index of MIOpen's kernels.
const KERNELS: usize = 1;

const FOLDERS: [Folder; 4] = [
    Folder {
        what: "MIOpen's records",
        variables: &["MIOPEN_USER_DB_PATH"],
        otherwise: Otherwise::AtHome(".config/miopen"),
        is_needed: true,
    },
    Folder {
        what: "MIOpen's kernels",
        variables: &["MIOPEN_CUSTOM_CACHE_DIR"],
        otherwise: Otherwise::AtHome(".cache/miopen"),
        is_needed: true,
    },
    Folder {
        what: "temporary files",
        variables: &["TMPDIR", "TMP", "TEMP", "TEMPDIR"],
        otherwise: Otherwise::At("/tmp"),
        is_needed: true,
    },
    Folder {
        what: "the compiler's cache",
        variables: &["AMD_COMGR_CACHE_DIR"],
        otherwise: Otherwise::Cached("comgr"),
        is_needed: false,
    },
];

/// Checks that files can be made where MIOpen and the compiler make them.
///
/// # Errors
/// With the first folder in which they can't, and the variable that may name another.
pub(super) fn writable() -> Result<(), Error> {
    check_writable(|name| std::env::var_os(name)).map_err(|reason| Error::new(ErrorKind::Device, reason))
}

/// Checks that the disk and the limit on files have room for a compilation.
///
/// # Errors
/// With the folder on a file system that is full, or the limit on the process's files.
pub(super) fn room() -> Result<(), Error> {
    check_room(|name| std::env::var_os(name), ROOM, file_limit())
        .map_err(|reason| Error::new(ErrorKind::Device, format!("kernels can't be compiled: {reason}")))
}

/// The folder that MIOpen keeps compiled kernels in.
pub(super) fn kernels() -> Option<PathBuf> {
    FOLDERS[KERNELS].path(&|name| std::env::var_os(name))
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn check_writable(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), String> {
    for folder in FOLDERS.iter().filter(|folder| folder.is_needed) {
        let Folder { what, variables, .. } = folder;
        let Some(path) = folder.path(&variable) else {
            return Err(format!("there is no folder for {what}: neither {} nor HOME is set", variables[0]));
        };
        if !takes_files(&path) {
            return Err(format!("{what} can't be written to {}; {} can name a folder", path.display(), variables[0]));
        }
    }
    Ok(())
}

fn check_room(variable: impl Fn(&str) -> Option<OsString>, wanted: u64, limit: u64) -> Result<(), String> {
    if limit < wanted {
        return Err(format!(
            "expected a limit of the process's files (RLIMIT_FSIZE) of at least {wanted} bytes, got {limit}"
        ));
    }
    for folder in &FOLDERS {
        let Some(path) = folder.path(&variable) else { continue };
        // What is not needed and can't be written is done without.
        if !folder.is_needed && !takes_files(&path) {
            continue;
        }
        if let Some(free) = there(&path).and_then(|there| free_bytes(&there))
            && free < wanted
        {
            let Folder { what, variables, .. } = folder;
            let path = path.display();
            return Err(format!(
                "expected {wanted} bytes free for {what} in {path}, got {free}; {} can name a folder",
                variables[0]
            ));
        }
    }
    Ok(())
}

impl Folder {
    fn path(&self, variable: Variables<'_>) -> Option<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.variables.iter().find_map(|name| set(name)).or_else(|| match self.otherwise {
            Otherwise::AtHome(place) => Some(set("HOME")?.join(place)),
            Otherwise::Cached(place) => {
                Some(set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?.join(place))
            }
            Otherwise::At(place) => Some(place.into()),
        })
    }
}

/// The folder, or the one above it that is there: in which it would be made.
fn there(folder: &Path) -> Option<CString> {
    let parts = folder.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part });
    let part = parts.into_iter().find(|part| part.symlink_metadata().is_ok())?;
    CString::new(part.as_os_str().as_bytes()).ok()
}

/// True if files can be made in the folder.
fn takes_files(folder: &Path) -> bool {
    let Some(there) = there(folder) else { return false };
    // With a dot behind it a file that is no folder is refused.
    let inside = CString::new([there.as_bytes(), b"/."].concat()).expect("a C string has no NUL within");
    // SAFETY: a text that ends in NUL.
    unsafe { libc::faccessat(libc::AT_FDCWD, inside.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Bytes that this user has free on the file system of a folder; `None` if it doesn't tell.
fn free_bytes(there: &CString) -> Option<u64> {
    let mut about = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a text that ends in NUL, and a place for the answer.
    let status = unsafe { libc::statvfs(there.as_ptr(), about.as_mut_ptr()) };
    // SAFETY: all zeros is a value of this struct of numbers, and the call may have filled it.
    let about = unsafe { about.assume_init() };
    (status == 0 && about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

/// Bytes that the process may write to one file.
fn file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a place for the answer, which stays as it is where there is none.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLIMITED: u64 = u64::MAX;

    /// A home for a test, removed at its end.
    struct Home(PathBuf);

    impl Home {
        fn new(name: &str) -> Home {
            let path = std::env::temp_dir().join(format!("hipdnn-rs-folders-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Home(path)
        }

        fn at(&self, name: &str) -> OsString {
            self.0.join(name).into_os_string()
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn named<'a>(variables: &'a [(&'a str, OsString)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn folders_that_take_no_files_are_named() {
        let home = Home::new("writable");
        std::fs::write(home.at("file"), "").unwrap();
        let no = || OsString::from("/dev/null/miopen");
        for (what, variables, want) in [
            ("at home", vec![("HOME", home.at(""))], None),
            ("in folders that are not there yet", vec![("HOME", home.at("a/b/c"))], None),
            ("a file", vec![("HOME", home.at("file"))], Some("MIOPEN_USER_DB_PATH")),
            ("no home", vec![], Some("HOME")),
            ("named records", vec![("HOME", home.at("")), ("MIOPEN_USER_DB_PATH", no())], Some("MIOPEN_USER_DB_PATH")),
            (
                "named kernels",
                vec![("HOME", home.at("")), ("MIOPEN_CUSTOM_CACHE_DIR", no())],
                Some("MIOPEN_CUSTOM_CACHE_DIR"),
            ),
            ("an empty name", vec![("HOME", home.at("")), ("MIOPEN_CUSTOM_CACHE_DIR", OsString::new())], None),
            ("temporary files", vec![("HOME", home.at("")), ("TMPDIR", no())], Some("TMPDIR")),
            ("the first of several", vec![("HOME", home.at("")), ("TMPDIR", home.at("")), ("TMP", no())], None),
            ("what is not needed", vec![("HOME", home.at("")), ("AMD_COMGR_CACHE_DIR", no())], None),
            (
                "both named, no home",
                vec![("MIOPEN_USER_DB_PATH", home.at("x")), ("MIOPEN_CUSTOM_CACHE_DIR", home.at("y"))],
                None,
            ),
        ] {
            match (check_writable(named(&variables)), want) {
                (Ok(()), None) => {}
                (Err(text), Some(word)) => assert!(text.contains(word), "{what}: {text}"),
                (answer, _) => panic!("{what}: {answer:?}"),
            }
        }
    }

    #[test]
    fn what_is_free_is_compared_with_what_is_wanted() {
        let home = Home::new("room");
        let variables = [("HOME", home.at("not/there/yet"))];
        assert_eq!(check_room(named(&variables), 1, UNLIMITED), Ok(()));
        let full = check_room(named(&variables), u64::MAX, UNLIMITED).unwrap_err();
        assert!(full.contains("bytes free for ") && full.contains("MIOPEN_USER_DB_PATH"), "{full}");
        let limited = check_room(named(&variables), 1 << 20, 4096).unwrap_err();
        assert!(limited.contains("RLIMIT_FSIZE") && limited.contains("4096"), "{limited}");
        // Not a file system that counts.
        assert_eq!(check_room(named(&[("TMPDIR", "/proc".into())]), 1, UNLIMITED), Ok(()));
    }
}
