//! The suite `install`: what a user does with installed files, each time from an empty folder.

mod cmake;
mod packages;
mod rocm;
mod therock;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::layout::{self, Component};
use crate::python::Environment;
use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, process, workspace};

/// The package with CMake where the machine has none.
const CMAKE: &str = "cmake==4.4.4";

/// What every part of the suite needs.
struct Bench {
    /// An empty folder for each part.
    scratch: PathBuf,
    /// The release build.
    libraries: PathBuf,
    /// CMake, or why there is none.
    cmake: Result<PathBuf, String>,
}

/// A part that can't run here is skipped with this reason.
struct Missing(String);

/// A part's verdict: the outer error is a defect of the suite or the machine.
type Verdict = Result<Result<(), Missing>>;

/// Runs the suite.
pub(crate) fn test(summary: &mut Summary) -> Result<()> {
    let scratch = workspace::target().join("install-suite");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    let bench = Bench { scratch, libraries: workspace::release(), cmake: find_cmake() };
    type Part = fn(&Bench, &Path) -> Verdict;
    let parts: [(&str, Part); 15] = [
        ("CMake clients in C and C++, and again where the prefix was moved", cmake::clients),
        ("packages by hipDNN's names, never before ROCm's", cmake::forwarders),
        ("the template in C++", cmake::template_in_cpp),
        ("the template in Rust", cmake::template_in_rust),
        ("the template of a heuristics plugin", cmake::template_of_heuristics),
        ("DESTDIR, components and removal by the command", packages::by_command),
        ("libraries name no directories", packages::relocatable),
        ("archives", packages::archives),
        ("Debian packages", packages::debian),
        ("a prefix with ROCm's backend", rocm::beside_its_backend),
        ("rocm-interop on made-up prefixes", rocm::interop),
        ("the bill of materials and licenses of each component", packages::notices),
        ("TheRock's configuration, by stand-ins for its functions", therock::configuration),
        ("TheRock's sub-project builds, stages, splits into components and tests itself", therock::stage),
        ("AMD's umbrella finds the provider by its name", packages::umbrella),
    ];
    for (at, (name, part)) in parts.into_iter().enumerate() {
        let directory = bench.scratch.join(format!("{at:02}"));
        fs::create_dir_all(&directory)?;
        let outcome = match part(&bench, &directory) {
            Ok(Ok(())) => Outcome::Passed,
            Ok(Err(Missing(reason))) => Outcome::Skipped(reason),
            Err(problem) => Outcome::Failed(problem.to_string()),
        };
        summary.record(format!("install: {name}"), outcome);
    }
    Ok(())
}

fn find_cmake() -> Result<PathBuf, String> {
    let runs = |program: &Path, option: &str| {
        process::capture(Command::new(program).arg(option)).is_ok_and(|output| output.status.success())
    };
    if !runs(Path::new("make"), "--version") {
        return Err("there is no make".to_owned());
    }
    let program = PathBuf::from("cmake");
    if runs(&program, "--version") {
        return Ok(program);
    }
    let environment =
        Environment::ensure("cmake", &[CMAKE]).map_err(|problem| format!("no CMake, and no {CMAKE}: {problem}"))?;
    Ok(environment.program().with_file_name("cmake"))
}

impl Bench {
    /// Installs components into a new prefix.
    fn install(&self, prefix: &Path, components: &[Component]) -> Result<()> {
        super::install(prefix, components, &self.libraries, &layout::Umbrella::default()).map(|_| ())
    }

    /// Configures a project; what CMake said.
    fn configure(&self, source: &Path, build: &Path, options: &[String]) -> Result<Result<String, Missing>> {
        let cmake = match &self.cmake {
            Ok(cmake) => cmake,
            Err(reason) => return Ok(Err(Missing(reason.clone()))),
        };
        let mut command = Command::new(cmake);
        command.arg("-S").arg(source).arg("-B").arg(build).args(options);
        // A search path of the user's must not stand in for the one under test.
        for name in ["CMAKE_PREFIX_PATH", "ROCM_PATH", "DESTDIR"] {
            command.env_remove(name);
        }
        Ok(Ok(self::output(&mut command)?))
    }

    /// Builds a configured project, and runs further steps of CMake's on it.
    fn build(&self, build: &Path) -> Result<()> {
        let cmake = self.cmake.as_ref().map_err(String::as_str)?;
        output(Command::new(cmake).arg("--build").arg(build)).map(|_| ())
    }
}

/// A command in which the user's settings do not count.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    remove_settings(&mut command);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs a command that is to succeed; its standard output and error.
fn output(command: &mut Command) -> Result<String> {
    let (status, text) = ended(command)?;
    if status == Some(0) {
        return Ok(text);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(format!("{program}: status {status:?}: {}", process::tail(text.as_bytes(), 12)).into())
}

/// Runs a command; its exit status, and its standard output and error.
fn ended(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = process::capture(command)?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((output.status.code(), text))
}

/// Fails with a sentence unless a condition holds.
fn check(holds: bool, problem: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(problem().into()) }
}

/// The files below a directory with their contents' checksums.
fn listing(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    layout::files_below(directory)?
        .into_iter()
        .map(|path| {
            let sum = super::manifest::sha256(&fs::read(&path)?);
            Ok((path.strip_prefix(directory)?.to_path_buf(), sum))
        })
        .collect()
}
