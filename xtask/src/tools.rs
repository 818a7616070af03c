//! Programs from crates.io that suites run, built once into `.cache/`.

use std::path::PathBuf;
use std::process::Command;

use crate::{process, workspace};

/// A program, and how it is built.
pub(crate) struct Tool {
    /// Name of the package and of its program.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    pub(crate) options: &'static [&'static str],
}

impl Tool {
    /// Path of the program, which is built now unless it is there; the error is why it can't be had.
    pub(crate) fn ensure(&self) -> Result<PathBuf, String> {
        let Tool { package, version, options } = self;
        let root = workspace::cache().join("tools").join(format!("{package}-{version}"));
        let program = root.join("bin").join(package);
        if program.is_file() {
            return Ok(program);
        }
        eprintln!("building {package} {version}, once …");
        let mut command = workspace::cargo();
        command.args(["install", package, "--version", version, "--locked", "--quiet", "--root"]).arg(&root);
        // It runs for seconds: the compiler's time is what there is to save.
        command.args(["--debug"]).env("CARGO_PROFILE_DEV_DEBUG", "0").args(*options);
        command.env_remove("CARGO_TARGET_DIR");
        let output = process::capture(&mut command).map_err(|problem| problem.to_string())?;
        if output.status.success() && program.is_file() {
            return Ok(program);
        }
        Err(format!("no {package} {version}: {}", process::tail(&output.stderr, 3)))
    }

    /// A command that runs the program at the root of the work tree.
    pub(crate) fn command(&self) -> Result<Command, String> {
        let mut command = Command::new(self.ensure()?);
        command.current_dir(workspace::root());
        Ok(command)
    }
}
