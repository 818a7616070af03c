//! `cargo xtask rocm-interop`: ROCm's hipDNN and ours held against each other, on a machine that has ROCm's.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::layout::{Component, Umbrella};
use crate::test::remove_settings;
use crate::{Result, install, process, workspace};

pub(crate) const HELP: &str = "Loads our plugin into ROCm's hipDNN backend and into ours, runs a graph in each, builds hipDNN's samples with \
ROCm's frontend, runs those with both backends, and writes a report. What is missing is said, and what can be done without it is done.";

/// Longest output of a program that a report quotes, in lines.
const QUOTED_LINES: usize = 12;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Prefix of ROCm, such as /opt/rocm
    #[arg(long, value_name = "DIR")]
    rocm: PathBuf,
    /// Sources of hipDNN's samples: projects/hipdnn/samples of rocm-libraries
    #[arg(long, value_name = "DIR")]
    samples: Option<PathBuf>,
    /// Where the report is written [default: target/rocm-interop.md]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Something of ROCm's that steps need.
struct Need {
    what: &'static str,
    /// Places below the prefix, of which one is enough.
    places: &'static [&'static str],
}

const BACKEND: Need = Need { what: "hipDNN's backend", places: &["lib/libhipdnn_backend.so"] };

const FOR_SAMPLES: [Need; 3] = [
    Need {
        what: "hipDNN's frontend",
        places: &[
            "lib/cmake/hipdnn_frontend/hipdnn_frontendConfig.cmake",
            "lib/cmake/hipdnn_frontend/hipdnn_frontend-config.cmake",
        ],
    },
    Need { what: "HIP for CMake", places: &["lib/cmake/hip/hip-config.cmake", "lib/cmake/hip/hipConfig.cmake"] },
    Need { what: "ROCm's compiler", places: &["lib/llvm/bin/clang++", "llvm/bin/clang++"] },
];

impl Need {
    fn find(&self, rocm: &Path) -> Result<PathBuf, String> {
        let found = self.places.iter().map(|place| rocm.join(place)).find(|path| path.exists());
        found.ok_or_else(|| format!("{} ({})", self.what, self.places.join(" or ")))
    }
}

/// What became of a step.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A line of the report.
struct Step {
    name: String,
    outcome: Outcome,
}

/// Runs the steps; an error if one failed, or if there is no backend of ROCm's.
pub(crate) fn run(options: &Options) -> Result<()> {
    let theirs = BACKEND.find(&options.rocm).map_err(|backend| {
        let others = FOR_SAMPLES.iter().filter_map(|need| need.find(&options.rocm).err());
        let missing: Vec<String> = std::iter::once(backend).chain(others).collect();
        format!("expected ROCm's hipDNN below {}; missing: {}", options.rocm.display(), missing.join(", "))
    })?;
    workspace::build_release()?;
    let steps = steps(&options.rocm, &theirs, options.samples.as_deref())?;
    let path = options.report.clone().unwrap_or_else(|| workspace::target().join("rocm-interop.md"));
    fs::write(&path, report(&options.rocm, &steps))?;
    println!("{}", path.display());
    let failed: Vec<&str> =
        steps.iter().filter(|step| matches!(step.outcome, Outcome::Failed(_))).map(|step| step.name.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

fn steps(rocm: &Path, theirs: &Path, samples: Option<&Path>) -> Result<Vec<Step>> {
    let scratch = workspace::target().join("rocm-interop");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir_all(&scratch)?;
    // A prefix of its own: the suite `install` runs this command while other suites read `target/dist`.
    let prefix = scratch.join("prefix");
    install::install(&prefix, &Component::STANDARD, &workspace::release(), &Umbrella::default())?;
    let plugins = prefix.join("lib/hipdnn_plugins/engines");
    let ours = prefix.join("lib/libhipdnn_backend.so");
    let mut steps = Vec::new();

    let program = scratch.join("smoke_backend");
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-std=c11", "-D_GNU_SOURCE", "-o"]).arg(&program);
    compile.arg(workspace::root().join("integration_tests/c/smoke_backend.c"));
    process::run(compile.arg("-I").arg(prefix.join("include")).args(["-ldl", "-lm"]), "compiling a client")?;
    for (whose, backend) in [("ROCm's", theirs), ("our", &ours)] {
        let mut run = Command::new(&program);
        remove_settings(&mut run);
        run.arg(backend).arg("HIPDNN_RS_CPU_ENGINE").env("HIPDNN_PLUGIN_DIR", &plugins);
        // On host memory, whatever GPUs there are.
        run.env("HIPDNN_RS_CPU_ENGINE", "on").env("HIP_VISIBLE_DEVICES", "-1");
        steps.push(Step {
            name: format!("our plugin in {whose} backend: a graph on the CPU engine"),
            outcome: outcome(&mut run)?,
        });
    }

    let on_theirs = rocm.join("lib").into_os_string();
    let on_ours = std::env::join_paths([prefix.join("lib"), rocm.join("lib")])?;
    let built = built_samples(rocm, samples, &scratch.join("samples"));
    match built.unwrap_or_else(|problem| {
        let outcome = Outcome::Failed(problem.to_string());
        steps.push(Step { name: "building hipDNN's samples".to_owned(), outcome });
        Ok(Vec::new())
    }) {
        Err(reason) => steps.push(Step { name: "hipDNN's samples".to_owned(), outcome: Outcome::Skipped(reason) }),
        Ok(programs) => {
            for program in &programs {
                let name = program.file_name().unwrap_or_default().to_string_lossy();
                for (whose, path) in [("ROCm's", &on_theirs), ("our", &on_ours)] {
                    steps.push(Step {
                        name: format!("sample {name}: our plugin in {whose} backend"),
                        outcome: outcome(&mut sample(program, path, &plugins))?,
                    });
                }
            }
        }
    }
    Ok(steps)
}

/// A sample with the libraries on a path, and our plugin alone.
fn sample(program: &Path, path: &OsStr, plugins: &Path) -> Command {
    let mut run = Command::new(program);
    remove_settings(&mut run);
    run.env("LD_LIBRARY_PATH", path).env("HIPDNN_PLUGIN_DIR", plugins);
    run
}

fn outcome(command: &mut Command) -> Result<Outcome> {
    let output = process::capture(command)?;
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Outcome::Failed(format!("{}\n{}", process::describe(output.status), process::tail(&said, QUOTED_LINES))))
}

/// Builds the samples; their programs, or what is missing for that.
fn built_samples(rocm: &Path, samples: Option<&Path>, build: &Path) -> Result<Result<Vec<PathBuf>, String>> {
    let mut missing: Vec<String> = FOR_SAMPLES.iter().filter_map(|need| need.find(rocm).err()).collect();
    if !samples.is_some_and(|directory| directory.join("CMakeLists.txt").is_file()) {
        missing.push("the samples' sources (--samples projects/hipdnn/samples of rocm-libraries)".to_owned());
    }
    let cmake = std::env::var_os("CMAKE").unwrap_or_else(|| OsString::from("cmake"));
    if process::capture(Command::new(&cmake).arg("--version")).is_err() {
        missing.push("CMake (on PATH, or named by CMAKE)".to_owned());
    }
    let (Some(samples), []) = (samples, &missing[..]) else {
        return Ok(Err(format!("missing: {}", missing.join(", "))));
    };
    let mut configure = Command::new(&cmake);
    configure.arg("-S").arg(samples).arg("-B").arg(build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", rocm.display()));
    configure.arg(format!("-DCMAKE_CXX_COMPILER={}", FOR_SAMPLES[2].find(rocm)?.display()));
    // Which backend a program gets is said when it is started.
    configure.arg("-DCMAKE_SKIP_RPATH=ON");
    process::run(&mut configure, "configuring the samples")?;
    process::run(Command::new(&cmake).arg("--build").arg(build), "building the samples")?;
    let programs = programs_below(build)?;
    if programs.is_empty() {
        return Err(format!("expected programs below {}, got none", build.display()).into());
    }
    Ok(Ok(programs))
}

/// Executable files that CMake did not make for itself.
fn programs_below(directory: &Path) -> Result<Vec<PathBuf>> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "CMakeFiles") {
                    open.push(path);
                }
            } else if path.extension().is_none() && fs::metadata(&path)?.permissions().mode() & 0o111 != 0 {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn report(rocm: &Path, steps: &[Step]) -> String {
    let version = fs::read_to_string(rocm.join(".info/version")).unwrap_or_default();
    let version = if version.trim().is_empty() { "of an unknown version" } else { version.trim() };
    let mut text =
        format!("# hipdnn-rs {} and ROCm {version}\n\n| step | outcome |\n|---|---|\n", env!("CARGO_PKG_VERSION"));
    let mut quotes = String::new();
    for Step { name, outcome } in steps {
        // Writing to a String does not fail.
        let _ = match outcome {
            Outcome::Passed => writeln!(text, "| {name} | passed |"),
            Outcome::Skipped(reason) => writeln!(text, "| {name} | skipped: {reason} |"),
            Outcome::Failed(said) => {
                let _ = write!(quotes, "\n## {name}\n\n```text\n{said}\n```\n");
                writeln!(text, "| {name} | failed, see below |")
            }
        };
    }
    text + &quotes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_without_hipdnn_is_an_error_that_says_what_is_missing() {
        let rocm = workspace::target().join("rocm-interop-tests/empty");
        fs::create_dir_all(&rocm).expect("a directory below target");
        let options = Options { rocm, samples: None, report: None };
        let text = run(&options).expect_err("nothing is there").to_string();
        for part in [
            "hipDNN's backend (lib/libhipdnn_backend.so)",
            "hipDNN's frontend (",
            "HIP for CMake (",
            "ROCm's compiler (",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn failures_are_quoted_below_the_table() {
        let step = |name: &str, outcome| Step { name: name.to_owned(), outcome };
        let steps = [
            step("one", Outcome::Passed),
            step("two", Outcome::Failed("exit status 1\nno device".to_owned())),
            step("three", Outcome::Skipped("missing: CMake".to_owned())),
        ];
        let text = report(Path::new("/nowhere"), &steps);
        let wanted = "| one | passed |\n| two | failed, see below |\n| three | skipped: missing: CMake |\n\n## two\n\n```text\nexit status 1\nno device\n```\n";
        assert!(text.ends_with(wanted), "{text}");
    }
}
