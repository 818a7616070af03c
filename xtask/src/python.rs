//! Python environments under `.cache/`, one for each set of packages.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::emulated_gpu::Installation;
use crate::{Result, process, workspace};

/// The oldest Python that the scripts are written for.
const MINIMUM: (u32, u32) = (3, 11);

/// The interpreter that environments are made from: `PYTHON`, else `python3`.
pub(crate) fn system() -> Result<PathBuf> {
    let program = PathBuf::from(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    let version = version(&program)?;
    if version < MINIMUM {
        let ((major, minor), (wanted_major, wanted_minor)) = (version, MINIMUM);
        let program = program.display();
        return Err(format!(
            "{program}: expected Python {wanted_major}.{wanted_minor} or newer, got {major}.{minor}; set PYTHON to another one"
        )
        .into());
    }
    Ok(program)
}

fn version(program: &Path) -> Result<(u32, u32)> {
    let output = process::capture(
        Command::new(program).args(["-c", "import sys; print(sys.version_info[0], sys.version_info[1])"]),
    )?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => {
            Err(format!("{} does not tell its version: {}", program.display(), process::tail(&output.stderr, 1)).into())
        }
    }
}

/// An environment with packages from the registry.
pub(crate) struct Environment {
    directory: PathBuf,
}

impl Environment {
    /// The environment called `name` with exactly these requirements; made now unless it is there.
    pub(crate) fn ensure(name: &str, requirements: &[&str]) -> Result<Environment> {
        let system = system()?;
        let (major, minor) = version(&system)?;
        let directory = workspace::cache().join(format!("python{major}.{minor}-{name}"));
        let environment = Environment { directory };
        let stamp = environment.directory.join("requirements.txt");
        let _lock = environment.lock()?;
        let wanted = requirements.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && environment.program().exists() {
            return Ok(environment);
        }
        if environment.directory.exists() {
            fs::remove_dir_all(&environment.directory)?;
        }
        let made = process::capture(Command::new(&system).args(["-m", "venv"]).arg(&environment.directory))?;
        if !made.status.success() {
            return Err(format!(
                "{} -m venv failed, is Python's venv module installed?\n{}",
                system.display(),
                process::tail(if made.stderr.is_empty() { &made.stdout } else { &made.stderr }, 4)
            )
            .into());
        }
        environment.pip(requirements)?;
        fs::write(stamp, wanted)?;
        Ok(environment)
    }

    /// Keeps other processes from making the environment or installing into it, until the file is closed: suites beside
    /// each other have some in common.
    fn lock(&self) -> Result<fs::File> {
        fs::create_dir_all(workspace::cache())?;
        let mut name = self.directory.clone().into_os_string();
        name.push(".lock");
        let file = fs::File::create(name)?;
        file.lock()?;
        Ok(file)
    }

    /// The environment of the suites with this release of ONNX Runtime.
    pub(crate) fn with_onnxruntime(version: &str) -> Result<Environment> {
        let runtime = format!("onnxruntime=={version}");
        Environment::ensure(&format!("ort-{version}"), &[&runtime, "onnx==1.21.0", "numpy>=2,<3", "pillow>=11"])
    }

    /// The interpreter of the environment.
    pub(crate) fn program(&self) -> PathBuf {
        self.directory.join("bin/python")
    }

    /// Installs a wheel file in the place of any other build of it, without asking a registry. One whose bytes are installed
    /// already stays untouched: another process may be using it.
    pub(crate) fn install_wheel(&self, wheel: &Path) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        fs::read(wheel)?.hash(&mut hasher);
        let name = wheel.file_name().and_then(|name| name.to_str()).ok_or("the wheel's name is not UTF-8")?;
        // One stamp for each distribution, whose name ends at the first hyphen of a wheel's.
        let distribution = name.split('-').next().unwrap_or(name);
        let stamp = self.directory.join(format!("{distribution}.installed"));
        let wanted = format!("{name} {:016x}", hasher.finish());
        let _lock = self.lock()?;
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        let wheel = wheel.to_str().ok_or("the wheel's path is not UTF-8")?;
        // The stamp of another build must not stand for one that was installed in part.
        let _ = fs::remove_file(&stamp);
        self.pip(&["--no-deps", "--no-index", "--force-reinstall", wheel])?;
        Ok(fs::write(stamp, wanted)?)
    }

    fn pip(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.program());
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--only-binary",
            ":all:",
        ]);
        let output = process::capture(command.args(arguments))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("pip install {} failed: {}", arguments.join(" "), process::tail(&output.stderr, 2)).into())
    }

    /// A command that runs one of the project's scripts.
    pub(crate) fn script(&self, name: &str) -> Command {
        let mut command = self.python(None);
        command.arg(workspace::root().join("integration_tests/python").join(name));
        command.current_dir(workspace::root());
        command
    }

    /// The same, in a process that has the emulated GPU.
    pub(crate) fn script_on_emulated_gpu(&self, name: &str, installation: &Installation) -> Command {
        let mut command = self.python(Some(installation));
        command.arg(workspace::root().join("integration_tests/python").join(name));
        command.current_dir(workspace::root());
        command
    }

    /// A command that is the interpreter without arguments, on the emulated GPU where one is given.
    pub(crate) fn python(&self, device: Option<&Installation>) -> Command {
        let mut command = match device {
            None => Command::new(self.program()),
            Some(installation) => {
                let mut command = installation.command(self.program());
                // For the interpreters that a script starts: each one has to be started this way.
                command.env("HIPEMU_RUNNER", installation.runner());
                // Debian's MIOpen lacks the sources of these kernels.
                command.env("MIOPEN_DEBUG_CONV_WINOGRAD", "0");
                command
            }
        };
        // Cargo shows the programs it runs its own build directories. Scripts are to find what a user's loader finds.
        if let Some(path) = library_path(std::env::var_os("LD_LIBRARY_PATH"), &workspace::target()) {
            command.env("LD_LIBRARY_PATH", path);
        } else {
            command.env_remove("LD_LIBRARY_PATH");
        }
        command
    }
}

/// The search path without the directories below the build directory; `None` if nothing is left.
fn library_path(path: Option<OsString>, target: &Path) -> Option<OsString> {
    let path = path?;
    let kept: Vec<PathBuf> = std::env::split_paths(&path).filter(|entry| !entry.starts_with(target)).collect();
    if kept.is_empty() { None } else { std::env::join_paths(kept).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_do_not_see_build_directories() {
        let target = Path::new("/project/target");
        for (path, want) in [
            (None, None),
            (Some("/project/target/debug/deps"), None),
            (Some("/project/target/debug/deps:/opt/rocm/lib:/project/target/debug"), Some("/opt/rocm/lib")),
            (Some("/a:/b"), Some("/a:/b")),
        ] {
            assert_eq!(library_path(path.map(OsString::from), target), want.map(OsString::from), "{path:?}");
        }
    }
}
