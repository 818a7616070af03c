//! `cargo xtask interop`: programs in C++ that call the libraries as hipDNN's own backend and frontend call theirs.
//!
//! They are compiled with the headers that flatc makes of the schemas, so the wire format is read and written by other code
//! than ours. Expected refusals are listed here: both a new one and a missing one fail.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::emulated_gpu::{self, Installation, Prepared};
use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, codegen, process, workspace};

/// Kind of memory.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Host,
    Device,
}

/// A program, and its refused cases by name.
struct Driver {
    name: &'static str,
    /// Cases refused on any memory.
    refused: &'static [&'static str],
    /// Further cases refused on the device.
    refused_on_device: &'static [&'static str],
    /// Sampling interval of the cases on the device.
    device_sample: u32,
}

const DRIVERS: [Driver; 4] = [
    Driver {
        name: "plugin_loader",
        refused: &[],
        refused_on_device: &[
            "matmul",
            "FP8_E4M3 (8) to float",
            "FP8_E5M2 (9) to float",
            "FP8_E4M3_FNUZ (17) to float",
            "FP8_E5M2_FNUZ (18) to float",
        ],
        device_sample: 1,
    },
    Driver {
        name: "frontend_sequences",
        refused: &[
            // Operations that no engine computes.
            "mixture-of-experts product",
        ],
        refused_on_device: &["matmul", "sdpa fwd", "sdpa bwd", "block scale quantize and dequantize"],
        device_sample: 1,
    },
    Driver { name: "json_graphs", refused: &[], refused_on_device: &[], device_sample: 1 },
    Driver { name: "miopen_cases", refused: &[], refused_on_device: &[], device_sample: 12 },
];

/// Options of a run.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// On the emulated GPU
    #[arg(long)]
    device: bool,
    /// The cases that `cargo xtask test` runs there
    #[arg(long)]
    sample: bool,
    /// Cases of millions of elements too
    #[arg(long)]
    large: bool,
    /// Cases whose name contains the text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs the programs as the options ask.
pub(crate) fn run(options: &Options) -> Result<()> {
    workspace::build_release()?;
    let mut summary = Summary::default();
    run_all(options, &mut summary)?;
    println!("\n{summary}");
    if summary.failed() > 0 { std::process::exit(1) } else { Ok(()) }
}

/// All of them on host memory, as a part of `cargo xtask test`.
pub(crate) fn test_on_host(summary: &mut Summary) -> Result<()> {
    run_all(&Options::default(), summary)
}

/// A sample on the emulated GPU, as a part of `cargo xtask test`.
pub(crate) fn test_on_emulated_gpu(summary: &mut Summary) -> Result<()> {
    run_all(&Options { device: true, sample: true, ..Options::default() }, summary)
}

fn run_all(options: &Options, summary: &mut Summary) -> Result<()> {
    let (what, place) = match options.device {
        true => ("interop on the emulated GPU", Place::Device),
        false => ("interop", Place::Host),
    };
    let installation = match options.device.then(emulated_gpu::ensure_with_kernels).transpose()? {
        Some(Prepared::Unavailable(reason)) => {
            summary.record(what, Outcome::Skipped(reason.0));
            return Ok(());
        }
        Some(Prepared::Ready(installation)) => Some(installation),
        None => None,
    };
    let programs = match build()? {
        Ok(programs) => programs,
        Err(reason) => {
            summary.record(what, Outcome::Skipped(reason));
            return Ok(());
        }
    };
    for driver in &DRIVERS {
        println!("-- {}", driver.name);
        let mut command = driver.command(&programs, installation.as_ref());
        if options.device {
            command.arg("--device");
        }
        if options.sample {
            command.arg("--every").arg(driver.device_sample.to_string());
        }
        if options.large {
            command.arg("--large");
        }
        if let Some(only) = &options.only {
            command.arg("--only").arg(only);
        }
        let output = process::capture(&mut command)?;
        let report = Report::of(&String::from_utf8_lossy(&output.stdout));
        // A part of the cases says nothing about what is not refused any more.
        let whole = options.only.is_none() && (!options.sample || driver.device_sample == 1);
        report.judge(&format!("{what}: {}", driver.name), &driver.expected(place), whole, summary);
        // 1 stands for failed cases, which are counted already.
        if !matches!(output.status.code(), Some(0 | 1)) || (report.is_empty() && options.only.is_none()) {
            let how = process::describe(output.status);
            let reason = format!("it did not come to its end ({how}): {}", process::tail(&output.stderr, 10));
            summary.record(format!("{what}: {}", driver.name), Outcome::Failed(reason));
        }
    }
    Ok(())
}

impl Driver {
    fn expected(&self, place: Place) -> BTreeSet<&'static str> {
        let more = if place == Place::Device { self.refused_on_device } else { &[] };
        self.refused.iter().chain(more).copied().collect()
    }

    /// The program with the libraries of the release build, the plugin alone in a folder.
    fn command(&self, programs: &Path, installation: Option<&Installation>) -> Command {
        let program = programs.join(self.name);
        let mut command = match installation {
            Some(installation) => installation.command(&program),
            None => Command::new(&program),
        };
        remove_settings(&mut command);
        match installation {
            // Debian's MIOpen lacks the sources of these kernels.
            Some(_) => command.env("MIOPEN_DEBUG_CONV_WINOGRAD", "0"),
            None => command.env("HIPDNN_RS_CPU_ENGINE", "on"),
        };
        let plugins = programs.join("plugins");
        command.env("HIPDNN_PLUGIN_DIR", &plugins).env("HIPDNN_RS_CACHE_DIR", programs.join("cache"));
        command.env("HIPDNN_CACHE_DIR", programs.join("rankings"));
        match self.name {
            "plugin_loader" => command.arg(plugins.join(PLUGIN)),
            "json_graphs" => command.arg(sources().join("json")),
            _ => &mut command,
        };
        command.stdin(Stdio::null());
        command
    }
}

const PLUGIN: &str = "libhipdnn_rs_plugin.so";

fn sources() -> PathBuf {
    workspace::root().join("integration_tests/cpp/interop")
}

/// Report of a program on its cases.
#[derive(Default, Debug, PartialEq)]
struct Report {
    passed: usize,
    failed: Vec<(String, String)>,
    refused: Vec<(String, String)>,
}

impl Report {
    fn of(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            let Some((verdict, rest)) = line.split_once(' ') else { continue };
            let (name, reason) = rest.split_once('\t').unwrap_or((rest, ""));
            match verdict {
                "PASS" => report.passed += 1,
                "FAIL" => report.failed.push((name.to_owned(), reason.to_owned())),
                "REFUSED" => report.refused.push((name.to_owned(), reason.to_owned())),
                _ => {}
            }
        }
        report
    }

    fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed.is_empty() && self.refused.is_empty()
    }

    /// Counts expected outcomes, and records others. Where the run was `whole`, each expected refusal has to occur.
    fn judge(&self, what: &str, expected: &BTreeSet<&str>, whole: bool, summary: &mut Summary) {
        let mut record =
            |name: &str, problem: String| summary.record(format!("{what}: {name}"), Outcome::Failed(problem));
        for (name, reason) in &self.failed {
            record(name, reason.clone());
        }
        let refused: BTreeSet<&str> = self.refused.iter().map(|(name, _)| name.as_str()).collect();
        for (name, reason) in self.refused.iter().filter(|(name, _)| !expected.contains(name.as_str())) {
            record(name, format!("it is refused: {reason}"));
        }
        for name in expected.difference(&refused).filter(|_| whole) {
            record(name, "it is not refused any more: take it off the list in xtask/src/interop.rs".to_owned());
        }
        summary.record_passed(self.passed + expected.intersection(&refused).count());
    }
}

/// Compiles what is out of date; returns the folder of the programs. The inner error is the reason why there are none.
fn build() -> Result<Result<PathBuf, String>> {
    let compiler = std::env::var_os("CXX").filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".into());
    if let Err(problem) = process::capture(Command::new(&compiler).arg("--version")) {
        return Ok(Err(format!("no C++ compiler: {} can't be started: {problem}", compiler.display())));
    }
    let flatbuffers = match codegen::flatbuffers() {
        Ok(flatbuffers) => flatbuffers,
        Err(reason) => return Ok(Err(reason)),
    };
    let programs = workspace::target().join("interop");
    let generated = programs.join("include");
    fs::create_dir_all(programs.join("plugins"))?;
    fs::create_dir_all(&generated)?;
    // By rename: a process that has the old file mapped keeps it.
    fs::copy(workspace::release().join(PLUGIN), programs.join("plugin.new"))?;
    fs::rename(programs.join("plugin.new"), programs.join("plugins").join(PLUGIN))?;
    fs::write(generated.join("hipdnn_numbers.h"), numbers()?)?;
    let mut flatc = Command::new(&flatbuffers.flatc);
    flatc.args(["--cpp", "--scoped-enums", "-o"]).arg(&generated);
    for entry in fs::read_dir(workspace::root().join("schemas/fbs"))? {
        flatc.arg(entry?.path());
    }
    process::run(&mut flatc, "flatc")?;
    let release = workspace::release();
    let flags: Vec<OsString> = vec![
        "-std=c++17".into(),
        "-O1".into(),
        "-Wall".into(),
        "-Wextra".into(),
        "-Werror".into(),
        "-isystem".into(),
        flatbuffers.headers.into(),
        "-isystem".into(),
        generated.clone().into(),
        "-I".into(),
        workspace::root().join("install/include/hipdnn_rs").into(),
    ];
    let mut children = Vec::new();
    for Driver { name, .. } in &DRIVERS {
        let source = sources().join(name).with_extension("cpp");
        let (target, stamp) = (programs.join(name), programs.join(format!("{name}.state")));
        let state = state(&flags, &[&source], &[&sources(), &generated])?.to_string();
        if target.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == state) {
            continue;
        }
        let mut command = Command::new(&compiler);
        command.args(&flags).arg(&source).arg("-o").arg(&target);
        if *name != "plugin_loader" {
            let mut path = OsString::from("-Wl,-rpath,");
            path.push(&release);
            command.arg("-L").arg(&release).arg("-lhipdnn_backend").arg(path);
        }
        // The libraries are those of the machine that they are used on.
        command.args(["-Wl,--allow-shlib-undefined", "-ldl"]).stdin(Stdio::null());
        children.push((name, command.spawn()?, stamp, state));
    }
    for (name, mut child, stamp, state) in children {
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("{name} does not compile ({})", process::describe(status)).into());
        }
        fs::write(stamp, state)?;
    }
    Ok(Ok(programs))
}

/// Fingerprint of the flags, the sources and the headers of these folders.
fn state(flags: &[OsString], sources: &[&Path], folders: &[&Path]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    let mut files: Vec<PathBuf> = sources.iter().map(|source| source.to_path_buf()).collect();
    for folder in folders {
        let headers = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        files.extend(headers.filter(|path| path.extension().is_some_and(|end| end == "h" || end == "hpp")));
    }
    files.sort();
    for file in files {
        (file.file_name(), fs::read(&file)?).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// hipDNN's enumerations as C, from the table that the bindings are compared with.
fn numbers() -> Result<String> {
    let table = fs::read_to_string(workspace::root().join("sdk-bindings/tests/hipdnn_numbers.txt"))?;
    enumerations(&table).ok_or_else(|| "sdk-bindings/tests/hipdnn_numbers.txt has a line that is no enumerator".into())
}

/// C of lines `enumeration name number`, those of an enumeration together.
fn enumerations(table: &str) -> Option<String> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [enumeration, name, number] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let number: i64 = number.parse().ok()?;
        let part = match parts.iter().position(|(known, _)| *known == enumeration) {
            Some(at) => &mut parts[at].1,
            None => {
                parts.push((enumeration, String::new()));
                &mut parts.last_mut()?.1
            }
        };
        let _ = writeln!(part, "    {name} = {number},");
    }
    let mut text = "#pragma once\n".to_owned();
    for (enumeration, members) in parts {
        let _ = write!(text, "typedef enum\n{{\n{members}}} {enumeration};\n");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_becomes_c() {
        let table = "# hipDNN's\n\na_t A 1\nb_t C -3\na_t B 2\n";
        let wanted =
            "#pragma once\ntypedef enum\n{\n    A = 1,\n    B = 2,\n} a_t;\ntypedef enum\n{\n    C = -3,\n} b_t;\n";
        assert_eq!(enumerations(table).as_deref(), Some(wanted));
        for wrong in ["a_t A", "a_t A one", "a_t A 1 2"] {
            assert_eq!(enumerations(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn refusals_are_compared_with_the_list() {
        let text = "noise\nPASS a: b\nFAIL c\tno\nREFUSED d: e\tnot supported\nREFUSED f\tnot supported\n";
        let report = Report::of(text);
        assert_eq!((report.passed, report.failed.len(), report.refused.len()), (1, 1, 2));
        for (expected, whole, passed, failed) in [
            (vec!["d: e", "f"], true, 3, 1),
            (vec![], true, 1, 3),
            (vec!["d", "f"], true, 2, 3),
            (vec!["d: e", "f", "g"], true, 3, 2),
            (vec!["d: e", "f", "g"], false, 3, 1),
        ] {
            let mut summary = Summary::default();
            report.judge("t", &expected.iter().copied().collect(), whole, &mut summary);
            assert_eq!((summary.passed(), summary.failed()), (passed, failed), "{expected:?} {whole}");
        }
    }
}
