//! The GPU that commands run on: this machine's own, or the emulated one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::emulated_gpu::{self, Installation, Prepared};
use crate::{Result, process, workspace};

/// The kernel driver's device file: there is one where an AMD GPU can be used for computing.
const DRIVER: &str = "/dev/kfd";

/// GPU that programs run on.
pub(crate) enum Gpu {
    /// On this machine's own.
    Real,
    /// On the emulated one.
    Emulated(Installation),
}

/// GPU that the user asks for.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// On this machine's GPU: the default if there is one
    #[arg(long, overrides_with = "emulated")]
    pub(crate) real: bool,
    /// On the emulated one
    #[arg(long, overrides_with = "real")]
    pub(crate) emulated: bool,
}

impl Wanted {
    fn is_real(self) -> bool {
        self.real || !self.emulated && Path::new(DRIVER).exists()
    }
}

impl Gpu {
    /// Prepares the GPU.
    pub(crate) fn ensure(wanted: Wanted) -> Result<Gpu> {
        if wanted.is_real() {
            return Ok(Gpu::Real);
        }
        match emulated_gpu::ensure()? {
            Prepared::Ready(installation) => Ok(Gpu::Emulated(installation)),
            Prepared::Unavailable(reason) => Err(format!("no emulated GPU: {}", reason.0).into()),
        }
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Gpu::Real => "this machine's GPU",
            Gpu::Emulated(_) => "the emulated GPU",
        }
    }

    /// A command that runs `program` with this GPU, on the release build's libraries.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Gpu::Real => Command::new(program),
            Gpu::Emulated(installation) => {
                let mut command = installation.command(program);
                // Debian's build lacks these kernels, and MIOpen's own search stops at the first that doesn't compile.
                command.env("MIOPEN_DEBUG_CONV_WINOGRAD", "0");
                command.env("MIOPEN_DEBUG_CONV_IMPLICIT_GEMM", "0");
                command
            }
        };
        command.env("HIPDNN_RS_LIB_DIR", workspace::release()).stdin(Stdio::null());
        command
    }

    /// Lets a program start with empty caches, or with those that an earlier one left in this directory.
    pub(crate) fn caches(&self, command: &mut Command, directory: &Path) {
        command.env("HIPDNN_RS_CACHE_DIR", directory.join("hipdnn-rs"));
        let home = directory.join("home");
        match self {
            Gpu::Real => {
                command.env("MIOPEN_USER_DB_PATH", home.join("miopen-db"));
                command.env("MIOPEN_CUSTOM_CACHE_DIR", home.join("miopen-cache"));
            }
            Gpu::Emulated(_) => {
                command.env("HOME", home);
            }
        }
    }
}

/// A test or benchmark program of the workspace, built with optimization; gives its path.
pub(crate) fn build_program(kind: &str, name: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let mut cargo = workspace::cargo();
    cargo.args([kind, "--no-run", "--quiet", "--message-format", "json"]);
    cargo.args(["--package", "hipdnn-rs-integration-tests", if kind == "bench" { "--bench" } else { "--test" }, name]);
    let output = process::capture(&mut cargo)?;
    if !output.status.success() {
        return Err(format!("building {name} failed: {}", process::tail(&output.stderr, 20)).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let mut programs = messages.filter(|message| message.target.as_ref().is_some_and(|target| target.name == name));
    programs.find_map(|message| message.executable).ok_or_else(|| format!("cargo built no program {name}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_which_gpu() {
        let there_is_one = Path::new(DRIVER).exists();
        for (line, real) in
            [("", there_is_one), ("--real", true), ("--emulated --real", true), ("--real --emulated", false)]
        {
            assert_eq!(crate::parse::<Wanted>(line).expect("valid").is_real(), real, "{line:?}");
        }
    }
}
