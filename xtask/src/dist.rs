//! `cargo xtask dist`: everything a user receives, in the places where it is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::{Result, process, python, workspace};

/// `install/layout.toml`: the destination of each file.
#[derive(Deserialize)]
struct Layout {
    library: Vec<Library>,
    file: Vec<File>,
    wheel: Wheel,
}

/// A library of the release build.
#[derive(Deserialize)]
struct Library {
    from: String,
    to: String,
}

/// A file of the work tree, its `@VERSION@` replaced when it is a template.
#[derive(Deserialize)]
struct File {
    from: String,
    to: String,
    #[serde(default)]
    template: bool,
}

#[derive(Deserialize)]
struct Wheel {
    distribution: String,
    package: String,
    summary: String,
    libraries: Vec<String>,
}

/// Output of `build`.
pub(crate) struct Distribution {
    /// The directory that is copied below an installation prefix.
    pub(crate) prefix: PathBuf,
    /// The Python wheel.
    pub(crate) wheel: PathBuf,
}

/// Builds everything and lists its files.
pub(crate) fn run() -> Result<()> {
    let made = build()?;
    for path in files_below(&made.prefix)? {
        let bytes = fs::metadata(&path)?.len();
        println!("{:>10}  {}", bytes, path.strip_prefix(workspace::root()).unwrap_or(&path).display());
    }
    Ok(())
}

/// Builds the release libraries and lays out `target/dist` afresh.
pub(crate) fn build() -> Result<Distribution> {
    workspace::build_release()?;
    let root = workspace::root();
    let text = fs::read_to_string(root.join("install/layout.toml"))?;
    let layout: Layout = toml::from_str(&text).map_err(|problem| format!("install/layout.toml: {problem}"))?;
    let prefix = workspace::target().join("dist");
    if prefix.exists() {
        fs::remove_dir_all(&prefix)?;
    }
    for library in &layout.library {
        let to = prefix.join(&library.to);
        copy(&workspace::release().join(&library.from), &to)?;
        strip(&to)?;
    }
    for file in &layout.file {
        let (from, to) = (root.join(&file.from), prefix.join(&file.to));
        if file.template {
            let filled = fs::read_to_string(&from)?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
            fs::create_dir_all(to.parent().ok_or("a layout entry without a directory")?)?;
            fs::write(to, filled)?;
        } else {
            copy(&from, &to)?;
        }
    }
    let wheel = build_wheel(&layout.wheel, &prefix)?;
    Ok(Distribution { prefix, wheel })
}

fn build_wheel(wheel: &Wheel, prefix: &Path) -> Result<PathBuf> {
    let root = workspace::root();
    let mut command = Command::new(python::system()?);
    command.arg(root.join("install/python/build_wheel.py"));
    command.args([
        "--distribution",
        &wheel.distribution,
        "--version",
        env!("CARGO_PKG_VERSION"),
        "--summary",
        &wheel.summary,
    ]);
    command.arg("--package").arg(root.join("install/python").join(&wheel.package));
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        command.arg("--license").arg(root.join(licence));
    }
    command.arg("--out").arg(prefix);
    command.args(wheel.libraries.iter().map(|library| prefix.join(library)));
    let output = process::capture(&mut command)?;
    if !output.status.success() {
        return Err(format!("the wheel can't be built: {}", process::tail(&output.stderr, 3)).into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().ok_or("a layout entry without a directory")?)?;
    fs::copy(from, to).map_err(|problem| format!("{} can't be copied: {problem}", from.display()))?;
    Ok(())
}

/// Line tables help in the work tree, but an installed library is a tenth of the size without them.
fn strip(library: &Path) -> Result<()> {
    match Command::new("strip").arg("--strip-debug").arg(library).status() {
        Ok(status) if !status.success() => Err(format!("strip {} failed", library.display()).into()),
        // Without binutils the library is larger, and works as well.
        _ => Ok(()),
    }
}

fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}
