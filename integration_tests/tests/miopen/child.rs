//! Further processes of this program that play a role of their own: with another environment or other libraries.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use hipdnn_rs_integration_tests::program::this_program;

use crate::harness;

/// Tells a process its role.
const ROLE: &str = "HIPDNN_RS_TEST_ROLE";

/// A role that this process is to play instead of running tests.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Plays it: what went wrong goes to standard output, apart from what libraries say on standard error.
pub(crate) fn play(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// A process to be.
pub(crate) struct Child {
    command: Command,
    role: String,
}

/// End of a process, and what it wrote.
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    success: bool,
    role: String,
    status: String,
}

impl Child {
    /// This program in a role.
    pub(crate) fn of(role: &str) -> Child {
        Child::with(this_program(), role)
    }

    /// The same with these directories instead of those of the emulated GPU's loader; `None` does without that loader.
    pub(crate) fn with_libraries(role: &str, directories: Option<&[&Path]>) -> Child {
        let usual = this_program();
        let words: Vec<&OsStr> = [usual.get_program()].into_iter().chain(usual.get_args()).collect();
        let program = words.last().expect("a command has a program");
        let Some(directories) = directories else { return Child::with(Command::new(program), role) };
        let mut command = Command::new(words[0]);
        let mut path = OsString::new();
        for directory in directories {
            path.push(directory);
            path.push(":");
        }
        command.arg("--library-path").arg(path).arg(program);
        Child::with(command, role)
    }

    fn with(mut command: Command, role: &str) -> Child {
        command.env(ROLE, role).stdin(Stdio::null());
        Child { command, role: role.to_owned() }
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Child {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Child {
        self.command.env_remove(name);
        self
    }

    /// The same with a small file system at that place, without a byte to spare: in a namespace of its own, or the test is
    /// skipped.
    pub(crate) fn on_a_full_disk(self, place: &Path) -> Result<Child, harness::Ended> {
        const NAMESPACE: [&str; 4] = ["-r", "-m", "sh", "-c"];
        const FILL: &str = "mount -t tmpfs -o size=64k none \"$0\" || exit\n\
                            dd if=/dev/zero of=\"$0/full\" bs=4k 2>/dev/null\n\
                            exec \"$@\"";
        let possible = Command::new("unshare").args(NAMESPACE).arg("mount -t tmpfs none /tmp").output();
        if !possible.is_ok_and(|output| output.status.success()) {
            return Err(harness::Ended::Skipped(
                "this process may not mount a file system, even one of its own".into(),
            ));
        }
        let mut command = Command::new("unshare");
        command.args(NAMESPACE).arg(FILL).arg(place).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        Ok(Child { command, role: self.role })
    }

    /// Starts it; it runs beside this process until it is waited for.
    pub(crate) fn start(mut self) -> Running {
        let child = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running { child: child.expect("this program starts again"), role: self.role }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Ended {
        self.start().wait()
    }

    /// Runs it to its end, which must be a good one.
    pub(crate) fn succeeds(self) -> Result<Ended, String> {
        self.run().good()
    }
}

/// A process that was started.
pub(crate) struct Running {
    child: std::process::Child,
    role: String,
}

impl Running {
    pub(crate) fn wait(self) -> Ended {
        let Output { status, stdout, stderr } = self.child.wait_with_output().expect("a child can be waited for");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended {
            stdout: text(stdout),
            stderr: text(stderr),
            success: status.success(),
            role: self.role,
            status: status.to_string(),
        }
    }
}

impl Ended {
    /// Itself, or how it ended and what it said.
    pub(crate) fn good(self) -> Result<Ended, String> {
        if self.success {
            return Ok(self);
        }
        let Ended { role, status, stdout, stderr, .. } = self;
        Err(format!("the process for {role:?} ended with {status}\n{}\n{}", stdout.trim_end(), stderr.trim_end()))
    }
}

/// The directories that this process's dynamic loader was given.
pub(crate) fn library_directories() -> Result<Vec<PathBuf>, String> {
    let usual = this_program();
    let words: Vec<&OsStr> = usual.get_args().collect();
    let at = words.iter().position(|word| *word == "--library-path");
    let path =
        at.and_then(|at| words.get(at + 1)).ok_or("this process was not started by the emulated GPU's loader")?;
    Ok(std::env::split_paths(path).filter(|path| !path.as_os_str().is_empty()).collect())
}
