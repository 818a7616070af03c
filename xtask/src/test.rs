//! `cargo xtask test`: every suite that can run on this machine, and one summary.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Deserialize;

use crate::dist::Distribution;
use crate::emulated_gpu::Prepared;
use crate::python::Environment;
use crate::summary::{Outcome, Summary};
use crate::{
    Result, architecture, book, claims, codegen, conformance, dist, emulated_gpu, examples, fuzz, install, installed,
    interop, isa, process, python_module, supply, support, wheel, workspace,
};

/// The ONNX Runtime releases that are tested: the oldest supported, one between, the newest.
const ONNXRUNTIMES: [&str; 3] = ["1.31.1", "1.27.0", "1.23.2"];

/// The suites of the provider on the emulated GPU, with releases of ONNX Runtime: the first also where there is to be no device.
const DEVICE_SUITES: [(&str, &[&str]); 2] = [
    ("suite_gpu.py", &["1.31.1", "1.27.0", "1.24.1", "1.23.2"]),
    ("suite_gpu_conformance.py", &["1.31.1", "1.27.0", "1.24.1"]),
];

/// The scripts of `integration_tests/python` that are suites.
const SUITES: [&str; 14] = [
    "suite_table.py",
    "suite_compiled.py",
    "suite_onnx_cases.py",
    "suite_models.py",
    "suite_options.py",
    "suite_constants.py",
    "suite_umbrella.py",
    "suite_doctor.py",
    LOADERS_SUITE,
    SPLITTING_SUITE,
    "suite_profile.py",
    "suite_precisions.py",
    MLIR_SUITE,
    RANDOM_SUITE,
];

/// The suites that are no scripts.
const OTHER_SUITES: [&str; 20] = [
    "cargo",
    "loom",
    "architecture",
    "support",
    "book",
    "supply",
    "fuzz",
    "conformance",
    "interop",
    "emulated-gpu",
    "miopen",
    "device-units",
    "isa",
    "conformance-miopen",
    "interop-device",
    "codegen",
    "installed",
    "install",
    "wheel",
    "python-module",
];

/// The names of all suites.
fn names() -> impl Iterator<Item = &'static str> {
    OTHER_SUITES.into_iter().chain(SUITES).chain(DEVICE_SUITES.into_iter().map(|(suite, _)| suite))
}

/// The suite whose engine declines by rule.
const SPLITTING_SUITE: &str = "suite_splitting.py";

/// The suite of programs in several languages.
const LOADERS_SUITE: &str = "suite_loaders.py";

/// The suites in which another provider opens ours.
const UMBRELLA_SUITES: [&str; 2] = ["suite_umbrella.py", "suite_gpu.py"];

/// The package with the plugin of that engine, and the plugin: an example of the package.
const DECLINING_PLUGIN: [&str; 2] = ["hipdnn-rs-integration-tests", "declining_plugin"];

/// The suite that holds texts against `torch-mlir-opt`.
const MLIR_SUITE: &str = "suite_mlir.py";

/// Random models: a sample of what `ort-conformance --random` runs.
const RANDOM_SUITE: &str = "suite_random.py";

/// Suites to which the release of ONNX Runtime makes no difference, or whose reference changes with it: the newest is enough.
const NEWEST_ONLY: [&str; 2] = [MLIR_SUITE, RANDOM_SUITE];

/// The package with `torch-mlir-opt`.
const TORCH_MLIR: &str = "torch-mlir==20261001";

/// The packages with tests of interleavings.
const CHECKED: [&str; 3] = ["hipdnn-capi", "hipdnn-cpu-kernels", "hipdnn-rs-ep"];

/// Mutated inputs through the libraries with an address sanitizer: about a minute on two cores.
const SANITIZED_INPUTS: u64 = 20_000;

/// Directory of the models and pictures.
const MODELS: &str = "models";

/// Runs the suites; an error when any test failed.
pub(crate) fn run(choice: &Choice) -> Result<()> {
    choice.check()?;
    let mut summary = Summary::default();
    let built = dist::build();
    if let Err(problem) = &built {
        summary.record("release build", Outcome::Failed(problem.to_string()));
    }
    if choice.takes("cargo") {
        step("cargo test", &mut summary, cargo_tests);
    }
    if choice.takes("loom") && !choice.fast {
        step("model checking (loom)", &mut summary, interleavings);
    }
    if choice.takes("architecture") {
        step("architecture --check", &mut summary, |summary| {
            let check = architecture::run(&architecture::Options { check: true, lines: false });
            let outcome = check.map_or_else(|problem| Outcome::Failed(problem.to_string()), |()| Outcome::Passed);
            summary.record("architecture --check", outcome);
            Ok(())
        });
    }
    if choice.takes("support") {
        step("support --check", &mut summary, |summary| {
            let check = support::run(true);
            let outcome = check.map_or_else(|problem| Outcome::Failed(problem.to_string()), |()| Outcome::Passed);
            summary.record("support --check", outcome);
            Ok(())
        });
    }
    if choice.takes("book") {
        step("book", &mut summary, book::test);
    }
    if choice.takes("supply") && !choice.fast {
        step("supply", &mut summary, supply::test);
    }
    if choice.takes("fuzz") && !choice.fast {
        // `cargo test` has a longer run without a sanitizer.
        step("fuzz with an address sanitizer", &mut summary, |summary| {
            let options = fuzz::Options { asan: true, iterations: Some(SANITIZED_INPUTS), seed: None };
            let outcome = match fuzz::fuzz(&options) {
                Ok(fuzz::Outcome::Passed) => Outcome::Passed,
                Ok(fuzz::Outcome::Skipped(reason)) => Outcome::Skipped(reason),
                Err(problem) => Outcome::Failed(problem.to_string()),
            };
            summary.record("fuzz with an address sanitizer", outcome);
            Ok(())
        });
    }
    if choice.takes("conformance") {
        step("conformance of the CPU engine", &mut summary, |summary| conformance::test(choice.fast, summary));
    }
    if choice.takes("interop") {
        step("interop on host memory", &mut summary, interop::test_on_host);
    }
    if choice.takes("emulated-gpu") && !choice.fast {
        step("emulated GPU", &mut summary, emulated_gpu::test_all);
    }
    if choice.takes("miopen") && !choice.fast {
        step("GPU engine on the emulated GPU", &mut summary, miopen_tests);
    }
    if choice.takes("device-units") && !choice.fast {
        step("unit tests beside the emulated GPU", &mut summary, device_unit_tests);
    }
    if choice.takes("isa") && !choice.fast {
        step("machine code of kernels", &mut summary, isa::test);
    }
    if choice.takes("conformance-miopen") && !choice.fast {
        step("conformance of the GPU engine on the emulated GPU", &mut summary, conformance::test_on_emulated_gpu);
        step("conformance --claims --check", &mut summary, claims::test);
    }
    if choice.takes("interop-device") && !choice.fast {
        step("interop on the emulated GPU", &mut summary, interop::test_on_emulated_gpu);
    }
    if choice.takes("codegen") {
        // After the emulated GPU, whose packages bring the headers.
        step("codegen --check", &mut summary, |summary| {
            for (directory, outcome) in codegen::generate(true)? {
                let outcome = match outcome {
                    codegen::Outcome::Written | codegen::Outcome::Current => Outcome::Passed,
                    codegen::Outcome::Stale(files) => Outcome::Failed(format!("not current: {}", files.join(", "))),
                    codegen::Outcome::Skipped(reason) => Outcome::Skipped(reason),
                };
                summary.record(format!("codegen --check: {directory}"), outcome);
            }
            Ok(())
        });
    }
    if let Ok(built) = &built {
        if choice.takes("installed") {
            step("installed layout", &mut summary, |summary| installed::test(&built.prefix, summary));
        }
        if choice.takes("install") {
            step("installation", &mut summary, install::suite::test);
        }
        if choice.takes("wheel") {
            step("wheel", &mut summary, |summary| wheel::test(&built.wheel, summary));
        }
        if choice.takes("python-module") {
            step("Python module", &mut summary, |summary| python_module::run_suite(&built.prefix, summary));
        }
        for version in choice.onnxruntimes(if choice.fast { &ONNXRUNTIMES[..1] } else { &ONNXRUNTIMES }) {
            python_suites(version, built, choice, &mut summary);
        }
        for (suite, versions) in DEVICE_SUITES {
            if choice.takes(suite) && !choice.fast {
                device_suite(suite, versions, built, choice, &mut summary);
            }
        }
    }
    println!("\n{summary}");
    // The error message would follow the line of counts, which is to be the last.
    if summary.failed() > 0 { std::process::exit(1) } else { Ok(()) }
}

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Unit tests, C programs and one ONNX Runtime only
    #[arg(long)]
    fast: bool,
    /// On the emulated GPU all cases of operators and failing calls, not samples (hours); a run that was interrupted goes
    /// on, as long as the libraries are the same
    #[arg(long)]
    whole: bool,
    /// Only this release of ONNX Runtime; may be repeated
    #[arg(long = "ort", value_name = "VERSION")]
    onnxruntimes: Vec<String>,
    /// Only suites whose name contains one of these: cargo, codegen, fuzz, or a script
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
}

impl Choice {
    /// The releases of ONNX Runtime that are tested, of those given.
    fn onnxruntimes(&self, known: &[&'static str]) -> Vec<&'static str> {
        let chosen =
            |version: &&&str| self.onnxruntimes.is_empty() || self.onnxruntimes.iter().any(|one| one == **version);
        known.iter().filter(chosen).copied().collect()
    }

    /// Checks that each part is of a suite's name: one that is of none would run nothing, and pass.
    fn check(&self) -> Result<()> {
        let Some(part) = self.only.iter().find(|part| !names().any(|name| name.contains(part.as_str()))) else {
            return Ok(());
        };
        let mut known: Vec<&str> = names().collect();
        // With and without what the names of scripts have in common, which is most of a short one.
        let likeness = |name: &str| {
            let bare = name.trim_start_matches("suite_").trim_end_matches(".py");
            let part = part.to_lowercase();
            [name, bare].map(|name| strsim::normalized_damerau_levenshtein(&part, name)).into_iter().fold(0.0, f64::max)
        };
        known.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
        Err(format!("--only: expected a part of a suite's name, got {part:?}; the nearest first: {}", known.join(", "))
            .into())
    }

    fn takes(&self, suite: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| suite.contains(part.as_str()))
    }
}

/// Runs one step with its time; an error of the step itself is one failed test.
fn step(name: &str, summary: &mut Summary, body: impl FnOnce(&mut Summary) -> Result<()>) {
    println!("== {name}");
    let start = Instant::now();
    let before = (summary.passed(), summary.failed(), summary.skipped());
    if let Err(problem) = body(summary) {
        summary.record(name, Outcome::Failed(problem.to_string()));
    }
    println!(
        "   {} passed, {} failed, {} skipped in {:.0} s",
        summary.passed() - before.0,
        summary.failed() - before.1,
        summary.skipped() - before.2,
        start.elapsed().as_secs_f64()
    );
}

/// All Rust tests; those of `integration_tests` use the release libraries.
fn cargo_tests(summary: &mut Summary) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--color", "never"]);
    test_runner(command, summary)
}

/// The interleavings of threads that loom tries, with so few preemptions that it takes seconds.
fn interleavings(summary: &mut Summary) -> Result<()> {
    let of_loom = |arguments: &[&str]| {
        let mut command = workspace::cargo();
        command.args(arguments).args(CHECKED.iter().flat_map(|package| ["--package", package]));
        // Beside the other builds, whose flags are others.
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace::target().join("loom"));
        command.env("LOOM_MAX_PREEMPTIONS", "2");
        command
    };
    let tree = process::capture(&mut of_loom(&["tree", "--quiet", "--invert", "loom"]))?;
    if !tree.status.success() {
        let reason = format!("loom can't be had: {}", process::tail(&tree.stderr, 5));
        summary.record("model checking (loom)", Outcome::Skipped(reason));
        return Ok(());
    }
    // Kernels take most of the compiler's time, and are not run here.
    let kernels = "profile.dev.package.hipdnn-cpu-kernels.opt-level=0";
    let mut command = of_loom(&["test", "--config", kernels, "--no-fail-fast", "--color", "never", "--lib"]);
    command.args(["--", "interleavings::"]);
    let before = summary.passed();
    test_runner(command, summary)?;
    summary.expect_more(before, "model checking (loom)");
    Ok(())
}

/// The GPU engine of the release library on the real MIOpen and the emulated GPU.
fn miopen_tests(summary: &mut Summary) -> Result<()> {
    let package = ["--package", "hipdnn-rs-integration-tests", "--test", "miopen"];
    emulated_tests("GPU engine on the emulated GPU", &package, summary)
}

/// Unit tests of the plugin that need a device, or must not mind one. Without it `cargo test` passes over most of what the
/// first do. The whole workspace is named because its test programs are then those of `cargo test`.
fn device_unit_tests(summary: &mut Summary) -> Result<()> {
    // One by one: what a test copies or allocates ends the captures of others.
    let modules = ["jit::", "miopen::", "plan::", "hip::", "abi::", "selection::"];
    let tests = [&["--workspace", "--lib", "--", "--test-threads=1"], &modules[..]].concat();
    emulated_tests("unit tests beside the emulated GPU", &tests, summary)
}

/// Runs tests on the emulated GPU.
pub(crate) fn emulated_tests(name: &str, tests: &[&str], summary: &mut Summary) -> Result<()> {
    let installation = match emulated_gpu::ensure_with_kernels()? {
        Prepared::Ready(installation) => installation,
        Prepared::Unavailable(reason) => {
            summary.record(name, Outcome::Skipped(reason.0));
            return Ok(());
        }
    };
    let mut command = workspace::cargo();
    command.args(["test", "--color", "never"]).args(tests);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", installation.runner());
    // Debian's MIOpen lacks the sources of these kernels.
    command.env("MIOPEN_DEBUG_CONV_WINOGRAD", "0");
    command.env("MIOPEN_DEBUG_CONV_IMPLICIT_GEMM", "0");
    // Tests that need a device would skip themselves without one.
    command.env("HIPDNN_RS_TEST_DEVICE", "1");
    let before = summary.passed();
    test_runner(command, summary)?;
    summary.expect_more(before, name);
    Ok(())
}

/// Runs cargo's tests with the release libraries and counts what they report.
fn test_runner(mut command: Command, summary: &mut Summary) -> Result<()> {
    remove_settings(&mut command);
    command.env("HIPDNN_RS_LIB_DIR", workspace::release());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("cargo has no output")?;
    let mut report = LibtestReport::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if !line.ends_with(" ... ok") {
            println!("{line}");
        }
        report.read(&line);
    }
    let status = child.wait()?;
    summary.record_passed(report.passed);
    let failed = !report.failed.is_empty();
    for name in report.failed {
        summary.record(name, Outcome::Failed("see the output above".to_owned()));
    }
    for (name, reason) in report.ignored {
        summary.record(name, Outcome::Skipped(reason));
    }
    if !status.success() && !failed {
        return Err(format!(
            "a test did not build or a test process died ({}); see the output above",
            process::describe(status)
        )
        .into());
    }
    Ok(())
}

/// The lines of the standard test runner that matter.
#[derive(Default, Debug, PartialEq)]
struct LibtestReport {
    passed: usize,
    failed: Vec<String>,
    ignored: Vec<(String, String)>,
}

impl LibtestReport {
    fn read(&mut self, line: &str) {
        let Some((name, verdict)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return;
        };
        match verdict {
            "ok" => self.passed += 1,
            "FAILED" => self.failed.push(name.to_owned()),
            _ => {
                if let Some(reason) = verdict.strip_prefix("ignored") {
                    let reason = reason.trim_start_matches([',', ' ']);
                    let reason = if reason.is_empty() { "ignored" } else { reason };
                    self.ignored.push((name.to_owned(), reason.to_owned()));
                }
            }
        }
    }
}

/// One line that a Python suite reports.
#[derive(Deserialize)]
struct Reported {
    name: String,
    outcome: String,
    #[serde(default)]
    detail: String,
}

/// The Python suites with one release of ONNX Runtime.
fn python_suites(version: &str, built: &Distribution, choice: &Choice, summary: &mut Summary) {
    let here = |suite: &&str| choice.takes(suite) && (!NEWEST_ONLY.contains(suite) || version == ONNXRUNTIMES[0]);
    let suites: Vec<&str> = SUITES.into_iter().filter(here).collect();
    if suites.is_empty() {
        return;
    }
    let environment = match Environment::with_onnxruntime(version) {
        Ok(environment) => environment,
        Err(problem) => {
            for suite in suites {
                let reason = format!("no Python environment: {problem}");
                summary.record(format!("{suite} with ONNX Runtime {version}"), Outcome::Skipped(reason));
            }
            return;
        }
    };
    if let Err(problem) = environment.install_wheel(&built.wheel) {
        summary.record(
            format!("installing the wheel beside ONNX Runtime {version}"),
            Outcome::Failed(problem.to_string()),
        );
        return;
    }
    for suite in suites {
        let title = format!("{suite} with ONNX Runtime {version}");
        step(&title, summary, |summary| {
            python_suite(environment.script(suite), suite, version, &results_of(suite, version), &built.prefix, summary)
        });
    }
}

/// A suite of the provider on the emulated GPU, with releases of ONNX Runtime.
fn device_suite(suite: &str, versions: &[&'static str], built: &Distribution, choice: &Choice, summary: &mut Summary) {
    for version in choice.onnxruntimes(versions) {
        let title = format!("{suite} with ONNX Runtime {version}");
        step(&title, summary, |summary| {
            let skipped = |reason: String, summary: &mut Summary| {
                summary.record(title.as_str(), Outcome::Skipped(reason));
                Ok(())
            };
            let installation = match emulated_gpu::ensure_with_kernels()? {
                Prepared::Ready(installation) => installation,
                Prepared::Unavailable(reason) => return skipped(reason.0, summary),
            };
            let environment = match Environment::with_onnxruntime(version) {
                Ok(environment) => environment,
                Err(problem) => return skipped(format!("no Python environment: {problem}"), summary),
            };
            environment.install_wheel(&built.wheel)?;
            let mut command = environment.script_on_emulated_gpu(suite, &installation);
            emulated_gpu::remove_settings(&mut command);
            // Of further releases a thin sample: the provider's own code is the same.
            let newest = version == ONNXRUNTIMES[0];
            command.env("GPU_EXTENT", if newest { "sample" } else { "thin" });
            let mut results = results_of(suite, version);
            if choice.whole {
                command.env("GPU_EXTENT", "all").arg("--resume");
                results = results.with_extension(format!("{}.jsonl", fingerprint(&built.wheel)?));
            }
            python_suite(command, suite, version, &results, &built.prefix, summary)
        });
    }
}

/// Results file of a suite.
fn results_of(suite: &str, version: &str) -> PathBuf {
    workspace::target().join(format!("{}-{version}.jsonl", suite.trim_end_matches(".py")))
}

/// Names a build of the wheel: what passed with one is not run again when a whole run is resumed.
fn fingerprint(wheel: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    fs::read(wheel)?.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Runs a suite in Python and counts what it reports.
pub(crate) fn python_suite(
    mut command: Command,
    suite: &str,
    version: &str,
    results: &Path,
    prefix: &Path,
    summary: &mut Summary,
) -> Result<()> {
    if !command.get_args().any(|argument| argument == "--resume") {
        // The results of an earlier run must not pass for this one's.
        let _ = fs::remove_file(results);
    }
    command.arg("--results").arg(results);
    command.arg("--cache").arg(workspace::cache().join(MODELS));
    remove_settings(&mut command);
    command.env("DIST_PREFIX", prefix);
    if UMBRELLA_SUITES.contains(&suite) {
        command.env("INSTALLED_UMBRELLA", installed_umbrella()?);
    }
    if suite == LOADERS_SUITE {
        examples::describe(&mut command)?;
    }
    if suite == SPLITTING_SUITE {
        command.env("DECLINING_PLUGIN", declining_plugin()?);
    }
    if suite == MLIR_SUITE {
        // Beside ONNX Runtime's packages it might want other versions of theirs.
        match Environment::ensure("torch-mlir", &[TORCH_MLIR]) {
            Ok(tools) => command.env("TORCH_MLIR_OPT", tools.program().with_file_name("torch-mlir-opt")),
            Err(problem) => command.env("TORCH_MLIR_MISSING", format!("no {TORCH_MLIR}: {problem}")),
        };
    }
    let status = command.stdin(Stdio::null()).status()?;
    let text = fs::read_to_string(results).unwrap_or_default();
    let mut finished = false;
    for line in text.lines() {
        // A process that died may leave half a line.
        let Ok(reported) = serde_json::from_str::<Reported>(line) else { continue };
        let name = format!("{version} {}", reported.name);
        match reported.outcome.as_str() {
            "passed" => summary.record(name, Outcome::Passed),
            "skipped" => summary.record(name, Outcome::Skipped(reported.detail)),
            "finished" => finished = true,
            _ => summary.record(name, Outcome::Failed(reported.detail)),
        }
    }
    if finished && status.code() == Some(0) {
        return Ok(());
    }
    if finished && status.code() == Some(1) {
        // Its failures are recorded one by one.
        return Ok(());
    }
    Err(format!("the suite did not come to its end ({})", process::describe(status)).into())
}

/// Installs the component for AMD's umbrella provider; the library that the umbrella opens.
fn installed_umbrella() -> Result<PathBuf> {
    let prefix = workspace::target().join("umbrella");
    let umbrella = install::layout::Umbrella::default();
    install::install(&prefix, &[install::layout::Component::Umbrella], &workspace::release(), &umbrella)?;
    Ok(prefix.join(umbrella.directory).join(umbrella.library))
}

/// Builds the plugin that declines by rule.
fn declining_plugin() -> Result<PathBuf> {
    let [package, example] = DECLINING_PLUGIN;
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--quiet", "--package", package, "--example", example]);
    process::run(&mut command, "the build of the plugin that declines")?;
    Ok(workspace::release().join("examples").join(format!("lib{example}.so")))
}

/// Settings of the user's shell must not decide what a test sees.
pub(crate) fn remove_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HIPDNN_") {
            command.env_remove(name);
        }
    }
    // What somebody tuned on this machine would have engines ranked otherwise.
    command.env("HIPDNN_CACHE_DIR", workspace::target().join("tmp").join("hipdnn-cache"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_runner_s_lines_are_counted() {
        let cases = [
            ("test graph::tests::reads ... ok", (1, 0, 0)),
            ("test graph::tests::reads ... FAILED", (0, 1, 0)),
            ("test graph::tests::reads ... ignored, no device", (0, 0, 1)),
            ("test src/lib.rs - Graph (line 12) ... ok", (1, 0, 0)),
            (
                "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                (0, 0, 0),
            ),
            ("running 3 tests", (0, 0, 0)),
            ("---- graph::tests::reads stdout ----", (0, 0, 0)),
        ];
        for (line, (passed, failed, ignored)) in cases {
            let mut report = LibtestReport::default();
            report.read(line);
            assert_eq!((report.passed, report.failed.len(), report.ignored.len()), (passed, failed, ignored), "{line}");
        }
    }

    #[test]
    fn suites_are_chosen_by_a_part_of_their_name() {
        let cases = [
            ("", "fuzz", true),
            ("--fast", "fuzz", true),
            ("--only models", "suite_models.py", true),
            ("--only models", "fuzz", false),
            ("--only models fuzz --fast", "fuzz", true),
            ("--only models --fast", "--fast", false),
        ];
        for (line, suite, wanted) in cases {
            let choice = crate::parse::<Choice>(line).expect("a valid command line");
            assert_eq!(choice.takes(suite), wanted, "{line:?} and {suite}");
        }
        for line in ["--only", "--quick", "models", "--ort"] {
            assert!(crate::parse::<Choice>(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_part_of_no_name_is_refused_with_the_nearest_names() {
        for (line, wanted) in [
            ("", None),
            ("--only gpu", None),
            ("--only models fuzz", None),
            ("--only suite_gpu_conformance.py", None),
            ("--only sute_gpu.py", Some(("\"sute_gpu.py\"", "suite_gpu.py, "))),
            ("--only suite_model.py", Some(("\"suite_model.py\"", "suite_models.py, "))),
            ("--only fuzz Doctor", Some(("\"Doctor\"", "suite_doctor.py, "))),
            ("--only fuz archtecture", Some(("\"archtecture\"", "architecture, "))),
        ] {
            let choice = crate::parse::<Choice>(line).expect("a valid command line");
            let refusal = choice.check().err().map(|error| error.to_string());
            match (refusal, wanted) {
                (None, None) => {}
                (Some(text), Some((part, nearest))) => {
                    let start =
                        format!("--only: expected a part of a suite's name, got {part}; the nearest first: {nearest}");
                    assert!(text.starts_with(&start), "{line:?}: {text}");
                    assert_eq!(text.matches(", ").count(), names().count(), "{line:?}: {text}");
                }
                (refusal, wanted) => panic!("{line:?}: expected {wanted:?}, got {refusal:?}"),
            }
        }
    }

    #[test]
    fn every_suite_that_is_asked_for_has_a_name() {
        let source = include_str!("test.rs");
        let asked = regex::Regex::new(r#"choice\.takes\("([^"]+)"\)"#).expect("a pattern");
        let asked: Vec<&str> =
            asked.captures_iter(source).map(|found| found.get(1).map_or("", |name| name.as_str())).collect();
        assert_eq!(asked, OTHER_SUITES);
    }

    #[test]
    fn releases_are_chosen_by_name() {
        let cases: [(&str, &[&str]); 3] = [("", &["2", "1"]), ("--ort 1 --whole", &["1"]), ("--ort 3", &[])];
        for (line, wanted) in cases {
            let choice = crate::parse::<Choice>(line).expect("a valid command line");
            assert_eq!(choice.onnxruntimes(&["2", "1"]), wanted, "{line:?}");
        }
    }
}
