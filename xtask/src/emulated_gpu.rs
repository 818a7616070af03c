//! `cargo xtask emulated-gpu`: the real MIOpen on a machine without a GPU.

mod build;
mod packages;
mod suite;

pub(crate) use packages::single as debian_package;
pub(crate) use suite::CDNA;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;

use crate::demo::ONNXRUNTIME;
use crate::python::Environment;
use crate::summary::{Outcome, Summary};
use crate::{Result, dist, process, workspace};

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Fetches MIOpen, the compiler it uses and the C library from Debian into .cache/emulated-gpu
    Setup(packages::Wanted),
    /// Does setup, then compiles the HIP runtime, the emulator and their tests
    Build(packages::Wanted),
    /// Builds, then runs the tests; what can't be had is counted as skipped
    Test(packages::Wanted),
    /// Builds, then runs a program with the emulated GPU's libraries
    Run {
        program: String,
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Builds, then runs Python with ONNX Runtime, the provider's wheel of this tree and the emulated GPU
    Python {
        /// The release of ONNX Runtime
        #[arg(long, value_name = "VERSION", default_value = ONNXRUNTIME)]
        ort: String,
        /// Arguments of python: a file, -c or -m, and arguments
        #[arg(value_name = "SCRIPT", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Builds, then prints the path of a script that does what run does, for cargo's test runner
    Runner(packages::Wanted),
}

/// Names the home directory that programs see, where MIOpen and the kernel compiler keep their caches.
const HOME: &str = "HIPEMU_HOME";

/// Reason why there is no emulated GPU on this machine: the tests are skipped, and have not failed.
pub(crate) struct Unavailable(pub(crate) String);

/// Outcome of a step of the preparation.
pub(crate) enum Prepared<T> {
    Ready(T),
    Unavailable(Unavailable),
}

/// An unpacked set of packages, and the directory of the builds on it.
pub(crate) struct Installation {
    directory: PathBuf,
}

impl Installation {
    fn new(directory: PathBuf) -> Installation {
        Installation { directory }
    }

    /// The unpacked packages.
    fn system(&self) -> PathBuf {
        self.directory.join("system")
    }

    /// The packages' libraries.
    fn system_libraries(&self) -> PathBuf {
        self.system().join("usr/lib/x86_64-linux-gnu")
    }

    /// The C headers of HIP and MIOpen.
    pub(crate) fn headers(&self) -> PathBuf {
        self.system().join("usr/include")
    }

    /// Our libraries, which replace those of the same name.
    fn libraries(&self) -> PathBuf {
        self.directory.join("lib")
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn programs(&self) -> PathBuf {
        self.directory.join("bin")
    }

    fn record(&self) -> PathBuf {
        self.directory.join("packages.json")
    }

    fn loader(&self) -> PathBuf {
        self.system_libraries().join("ld-linux-x86-64.so.2")
    }

    /// A script that runs a program as `command` does. Cargo can't be a test runner of cargo: rustup takes it for
    /// endless recursion.
    pub(crate) fn runner(&self) -> PathBuf {
        self.directory.join("run")
    }

    /// The text of that script.
    fn runner_script(&self) -> String {
        let command = self.command("");
        let mut text = "#!/bin/sh\n".to_owned();
        text += &format!("export HOME={}\n", quoted(self.home().as_os_str()));
        text += &format!("if [ -n \"${HOME}\" ]; then HOME=\"${HOME}\"; fi\n");
        for (name, value) in command.get_envs().filter(|(name, _)| *name != "HOME") {
            let name = name.to_string_lossy();
            match value {
                Some(value) => text += &format!("export {name}={}\n", quoted(value)),
                None => text += &format!("unset {name}\n"),
            }
        }
        let mut words = vec![quoted(command.get_program())];
        words.extend(command.get_args().filter(|argument| !argument.is_empty()).map(quoted));
        text + &format!("exec {} \"$@\"\n", words.join(" "))
    }

    /// A command that runs `program` with the packages' C library, MIOpen and the emulated device.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.loader());
        let mut path = self.libraries().into_os_string();
        path.push(":");
        path.push(self.system_libraries());
        command.arg("--library-path").arg(path).arg(program);
        command.env("HIPEMU_EMULATOR", self.libraries().join("libgfxemu.so"));
        // MIOpen's choices, its kernels and the compiler's cache: apart from the user's own.
        let home = std::env::var_os(HOME).filter(|home| !home.is_empty());
        command.env("HOME", home.unwrap_or_else(|| self.home().into_os_string()));
        command.env_remove("XDG_CACHE_HOME");
        command.env_remove("XDG_CONFIG_HOME");
        command
    }
}

/// A word of a shell script.
fn quoted(text: &OsStr) -> String {
    format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"))
}

/// Cache directory of the emulated GPU.
fn cache() -> PathBuf {
    workspace::cache().join("emulated-gpu")
}

/// The C++ sources.
fn sources() -> PathBuf {
    workspace::root().join("integration_tests/emulated_gpu")
}

/// The packages, if they have been fetched.
pub(crate) fn fetched() -> Option<Installation> {
    packages::present(packages::Wanted::default())
}

/// Settings of the user's shell must not decide what a test sees.
pub(crate) fn remove_settings(command: &mut Command) {
    suite::remove_settings(command);
}

/// Everything fetched and built, ready to run programs.
pub(crate) fn ensure() -> Result<Prepared<Installation>> {
    prepare(packages::Wanted::default())
}

/// The same, if MIOpen can compile its kernels here.
pub(crate) fn ensure_with_kernels() -> Result<Prepared<Installation>> {
    let installation = match ensure()? {
        Prepared::Ready(installation) => installation,
        unavailable => return Ok(unavailable),
    };
    Ok(match build::no_kernels(&installation)? {
        None => Prepared::Ready(installation),
        Some(reason) => Prepared::Unavailable(Unavailable(reason)),
    })
}

fn prepare(wanted: packages::Wanted) -> Result<Prepared<Installation>> {
    let installation = match packages::ensure(wanted)? {
        Prepared::Ready(installation) => installation,
        unavailable => return Ok(unavailable),
    };
    Ok(match build::ensure(&installation)? {
        Prepared::Ready(()) => Prepared::Ready(installation),
        Prepared::Unavailable(reason) => Prepared::Unavailable(reason),
    })
}

/// Runs one of the commands.
pub(crate) fn run(action: &Action) -> Result<()> {
    match action {
        Action::Setup(wanted) => {
            let installation = available(packages::ensure(*wanted)?)?;
            println!("packages are unpacked in {}", installation.directory.display());
            Ok(())
        }
        Action::Build(wanted) => {
            println!("built in {}", available(prepare(*wanted)?)?.libraries().display());
            Ok(())
        }
        Action::Test(wanted) => {
            let mut summary = Summary::default();
            test(*wanted, &mut summary)?;
            println!("\n{summary}");
            if summary.failed() > 0 { std::process::exit(1) } else { Ok(()) }
        }
        Action::Run { program, arguments } => finish(available(ensure()?)?.command(program).args(arguments), program),
        Action::Python { ort, arguments } => finish(python(&available(ensure()?)?, ort)?.args(arguments), "python"),
        Action::Runner(wanted) => {
            println!("{}", available(prepare(*wanted)?)?.runner().display());
            Ok(())
        }
    }
}

/// Prepared installation, or the reason for which it cannot be had as an error.
fn available<T>(prepared: Prepared<T>) -> Result<T> {
    match prepared {
        Prepared::Ready(ready) => Ok(ready),
        Prepared::Unavailable(reason) => Err(reason.0.into()),
    }
}

/// The emulated GPU's own tests, counted in `summary`; without packages or a compiler they are skipped.
pub(crate) fn test_all(summary: &mut Summary) -> Result<()> {
    test(packages::Wanted::default(), summary)
}

fn test(wanted: packages::Wanted, summary: &mut Summary) -> Result<()> {
    match prepare(wanted)? {
        Prepared::Ready(installation) => suite::run(&installation, summary),
        Prepared::Unavailable(reason) => {
            summary.record("emulated GPU", Outcome::Skipped(reason.0));
            Ok(())
        }
    }
}

/// Python with a release of ONNX Runtime, the wheel and the emulated GPU.
fn python(installation: &Installation, version: &str) -> Result<Command> {
    let environment = Environment::with_onnxruntime(version)?;
    environment.install_wheel(&dist::build()?.wheel)?;
    Ok(environment.python(Some(installation)))
}

/// The table of the host's time for runs of the execution provider's programs.
///
/// # Errors
/// If it can't be measured.
pub(crate) fn programs(installation: &Installation) -> Result<String> {
    let mut command = python(installation, ONNXRUNTIME)?;
    command.arg(workspace::root().join("integration_tests/python/bench_program.py"));
    let output = process::capture(&mut command)?;
    if !output.status.success() {
        return Err(format!("bench_program.py failed: {}", process::tail(&output.stderr, 5)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| format!("{line}\n"))
        .collect())
}

/// Runs to the end, and ends this program as that ended.
fn finish(command: &mut Command, name: &str) -> Result<()> {
    let status = command.status()?;
    match status.code() {
        Some(code) => std::process::exit(code),
        None => Err(format!("{name} was {}", process::describe(status)).into()),
    }
}

/// Holds the lock of the cache until dropped, so that two runs don't fetch or build the same thing at once.
struct Lock {
    _file: std::fs::File,
}

impl Lock {
    fn take(name: &str) -> Result<Lock> {
        std::fs::create_dir_all(cache())?;
        let file = std::fs::File::create(cache().join(name))?;
        file.lock()?;
        Ok(Lock { _file: file })
    }
}

/// True if a program is on the path.
fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| is_program(&directory.join(program))))
}

fn is_program(path: &Path) -> bool {
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_script_are_quoted() {
        let cases = [("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$HOME", "'$HOME'")];
        for (text, wanted) in cases {
            assert_eq!(quoted(OsStr::new(text)), wanted);
        }
    }
}
