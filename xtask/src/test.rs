//! `cargo xtask test`: every suite that can run on this machine, and one summary.

mod lanes;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use serde::Deserialize;

use crate::dist::Distribution;
use crate::emulated_gpu::Prepared;
use crate::python::Environment;
use crate::summary::{Outcome, Summary};
use crate::{
    Result, architecture, book, claims, codegen, conformance, dist, emulated_gpu, examples, fuzz, install, installed,
    interop, isa, process, python_module, spills, supply, support, wheel, workspace,
};

/// The ONNX Runtime releases that are tested: the oldest supported, one between, the newest.
const ONNXRUNTIMES: [&str; 3] = ["1.31.1", "1.27.0", "1.23.2"];

/// The suites of the provider on the emulated GPU, with releases of ONNX Runtime: the first also where there is to be no device. Operators
/// are the same with all releases: the newest and the oldest with devices are enough.
const DEVICE_SUITES: [(&str, &[&str]); 2] =
    [("suite_gpu.py", &["1.31.1", "1.24.1", "1.23.2"]), ("suite_gpu_conformance.py", &["1.31.1", "1.24.1"])];

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

/// How a suite runs that is no script.
type Run = fn(&Distribution, &Choice, &mut Summary) -> Result<()>;

/// The suites that are no scripts, in the order in which they run. The first ones are alone on the machine: they use all of its
/// cores, or make what others read.
const OTHER_SUITES: [(&str, Run); 21] = [
    ("architecture", |_, _, summary| {
        let check = architecture::run(&architecture::Options { check: true, lines: false });
        summary.record("architecture --check", Outcome::of(check));
        Ok(())
    }),
    ("support", |_, _, summary| {
        summary.record("support --check", Outcome::of(support::run(true)));
        Ok(())
    }),
    ("cargo", |_, _, summary| cargo_tests(summary)),
    ("emulated-gpu", |_, _, summary| emulated_gpu::test_all(summary)),
    ("codegen", |_, _, summary| current_code(summary)),
    ("interop", |_, _, summary| interop::test_on_host(summary)),
    // Those that are beside each other, the longest first.
    ("miopen", |_, choice, summary| miopen_tests(choice.whole, summary)),
    ("conformance-miopen", |_, choice, summary| {
        conformance::test_on_emulated_gpu(choice.whole, summary)?;
        claims::test(summary)
    }),
    ("device-units", |_, _, summary| device_unit_tests(summary)),
    ("fuzz", |_, _, summary| sanitized(summary)),
    ("loom", |_, _, summary| interleavings(summary)),
    ("supply", |_, _, summary| supply::test(summary)),
    ("conformance", |_, choice, summary| conformance::test(choice.fast, summary)),
    ("install", |_, _, summary| install::suite::test(summary)),
    ("python-module", |built, _, summary| python_module::run_suite(&built.prefix, summary)),
    ("book", |_, _, summary| book::test(summary)),
    ("isa", |_, _, summary| isa::test(summary)),
    ("spills", |_, _, summary| spills::test(summary)),
    ("interop-device", |_, _, summary| interop::test_on_emulated_gpu(summary)),
    ("installed", |built, _, summary| installed::test(&built.prefix, summary)),
    ("wheel", |built, _, summary| wheel::test(&built.wheel, summary)),
];

/// How many of [`OTHER_SUITES`] are alone on the machine.
const ALONE: usize = 6;

/// The suites that `--fast` leaves out, beside those of [`DEVICE_SUITES`].
const SLOW: [&str; 9] =
    ["loom", "supply", "fuzz", "emulated-gpu", "miopen", "device-units", "isa", "conformance-miopen", "interop-device"];

/// The names of all suites.
fn names() -> impl Iterator<Item = &'static str> {
    OTHER_SUITES
        .into_iter()
        .map(|(suite, _)| suite)
        .chain(SUITES)
        .chain(DEVICE_SUITES.into_iter().map(|(suite, _)| suite))
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
const CHECKED: [&str; 2] = ["hipdnn-capi", "hipdnn-cpu-threads"];

/// Mutated inputs through the libraries with an address sanitizer: about a minute on two cores.
const SANITIZED_INPUTS: u64 = 20_000;

/// Directory of the models and pictures.
const MODELS: &str = "models";

/// Runs the suites; ends the process with 1 when any test failed.
pub(crate) fn run(choice: &Choice) -> Result<()> {
    choice.check()?;
    let mut summary = Summary::default();
    match if choice.report.is_some() { dist::built() } else { dist::build() } {
        Ok(built) => run_all(&jobs(choice), &built, choice, &mut summary),
        Err(problem) => summary.record("release build", Outcome::Failed(problem.to_string())),
    }
    if let Some(report) = &choice.report {
        return Ok(fs::write(report, serde_json::to_string(&summary)?)?);
    }
    println!("\n{summary}");
    // The error message would follow the line of counts, which is to be the last.
    if summary.failed() > 0 { std::process::exit(1) } else { Ok(()) }
}

/// Runs jobs: those that are alone on the machine, then the others beside each other where there are several.
fn run_all(jobs: &[Job], built: &Distribution, choice: &Choice, summary: &mut Summary) {
    let (alone, others): (Vec<Job>, Vec<Job>) =
        jobs.iter().partition(|job| OTHER_SUITES[..ALONE].iter().any(|(suite, _)| *suite == job.suite));
    for job in alone {
        job.run(built, choice, summary);
    }
    // What several read is made before; jobs without it tell why they skip, one after the other.
    let (beside, others): (Vec<Job>, Vec<Job>) =
        if others.len() > 1 { others.into_iter().partition(|job| prepared(job, built)) } else { (Vec::new(), others) };
    lanes::run(&beside, choice, summary);
    for job in others {
        job.run(built, choice, summary);
    }
}

/// A suite, and the release of ONNX Runtime that it runs with.
#[derive(Clone, Copy)]
struct Job {
    suite: &'static str,
    version: Option<&'static str>,
}

impl Job {
    fn title(self) -> String {
        match self.version {
            None => self.suite.to_owned(),
            Some(version) => format!("{} with ONNX Runtime {version}", self.suite),
        }
    }

    /// Runs the suite in this process.
    fn run(self, built: &Distribution, choice: &Choice, summary: &mut Summary) {
        step(&self.title(), summary, |summary| match self.version {
            Some(version) if DEVICE_SUITES.iter().any(|(suite, _)| *suite == self.suite) => {
                device_suite(self, version, built, choice, summary)
            }
            Some(version) => host_suite(self, version, built, summary),
            None => {
                let found = OTHER_SUITES.into_iter().find(|(suite, _)| *suite == self.suite);
                let (_, run) = found.ok_or_else(|| format!("expected a suite, got {:?}", self.suite))?;
                run(built, choice, summary)
            }
        });
    }
}

/// The jobs of a choice, in the order in which they begin.
fn jobs(choice: &Choice) -> Vec<Job> {
    let wanted = |suite: &str| choice.takes(suite) && !(choice.fast && SLOW.contains(&suite));
    let mut jobs: Vec<Job> = OTHER_SUITES
        .into_iter()
        .filter(|(suite, _)| wanted(suite))
        .map(|(suite, _)| Job { suite, version: None })
        .collect();
    let devices = if choice.fast { &[][..] } else { &DEVICE_SUITES };
    for (suite, versions) in devices.iter().filter(|(suite, _)| choice.takes(suite)) {
        jobs.extend(choice.onnxruntimes(versions).into_iter().map(|version| Job { suite, version: Some(version) }));
    }
    for version in choice.onnxruntimes(if choice.fast { &ONNXRUNTIMES[..1] } else { &ONNXRUNTIMES }) {
        let here = |suite: &&str| choice.takes(suite) && (!NEWEST_ONLY.contains(suite) || version == ONNXRUNTIMES[0]);
        jobs.extend(SUITES.into_iter().filter(here).map(|suite| Job { suite, version: Some(version) }));
    }
    jobs
}

/// Makes what a job reads and others read too; whether it is there.
fn prepared(job: &Job, built: &Distribution) -> bool {
    let runtime =
        |version: &str| Environment::with_onnxruntime(version).and_then(|made| made.install_wheel(&built.wheel));
    if job.version.is_some_and(|version| runtime(version).is_err()) {
        return false;
    }
    let device = ["miopen", "device-units", "isa", "conformance-miopen", "interop-device"].contains(&job.suite)
        || DEVICE_SUITES.iter().any(|(suite, _)| *suite == job.suite);
    if device && !matches!(emulated_gpu::ensure_with_kernels(), Ok(Prepared::Ready(_))) {
        return false;
    }
    job.suite != LOADERS_SUITE || examples::describe(&mut Command::new("true")).is_ok()
}

#[derive(clap::Args)]
pub(crate) struct Choice {
    /// Unit tests, C programs and one ONNX Runtime only
    #[arg(long)]
    fast: bool,
    /// On the emulated GPU all cases of the table, of conformance's strata, of operators and of failing calls, not samples
    /// (hours); a run of operators that was interrupted goes on, as long as the libraries are the same
    #[arg(long)]
    whole: bool,
    /// Only this release of ONNX Runtime; may be repeated
    #[arg(long = "ort", value_name = "VERSION")]
    onnxruntimes: Vec<String>,
    /// Only suites whose name contains one of these: cargo, codegen, fuzz, or a script
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Only the suites that `--only` names in full, from what is built; the outcomes are written to a file
    #[arg(long, value_name = "FILE", hide = true)]
    report: Option<PathBuf>,
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
        let names = |part: &String| if self.report.is_some() { suite == part } else { suite.contains(part.as_str()) };
        self.only.is_empty() || self.only.iter().any(names)
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
    if before == (summary.passed(), summary.failed(), summary.skipped()) {
        // A suite that tests nothing would pass.
        summary.record(name, Outcome::Failed("expected outcomes of the suite's tests, got none".to_owned()));
    }
    println!(
        "   {} passed, {} failed, {} skipped in {:.0} s",
        summary.passed() - before.0,
        summary.failed() - before.1,
        summary.skipped() - before.2,
        start.elapsed().as_secs_f64()
    );
}

/// Mutated inputs through the libraries with an address sanitizer; `cargo test` has a longer run without one.
fn sanitized(summary: &mut Summary) -> Result<()> {
    let options = fuzz::Options { asan: true, iterations: Some(SANITIZED_INPUTS), seed: None };
    let outcome = match fuzz::fuzz(&options) {
        Ok(fuzz::Outcome::Passed) => Outcome::Passed,
        Ok(fuzz::Outcome::Skipped(reason)) => Outcome::Skipped(reason),
        Err(problem) => Outcome::Failed(problem.to_string()),
    };
    summary.record("fuzz with an address sanitizer", outcome);
    Ok(())
}

/// Whether generated code is what its sources give; the headers come with the emulated GPU's packages.
fn current_code(summary: &mut Summary) -> Result<()> {
    for (directory, outcome) in codegen::generate(true)? {
        let outcome = match outcome {
            codegen::Outcome::Written | codegen::Outcome::Current => Outcome::Passed,
            codegen::Outcome::Stale(files) => Outcome::Failed(format!("not current: {}", files.join(", "))),
            codegen::Outcome::Skipped(reason) => Outcome::Skipped(reason),
        };
        summary.record(format!("codegen --check: {directory}"), outcome);
    }
    Ok(())
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
    let mut command = of_loom(&["test", "--no-fail-fast", "--color", "never", "--lib"]);
    command.args(["--", "interleavings::"]);
    let before = summary.passed();
    test_runner(command, summary)?;
    summary.expect_more(before, "model checking (loom)");
    Ok(())
}

/// Tells the suite `miopen` that a sample of its table is enough.
const SAMPLE: (&str, &str) = ("HIPDNN_RS_TEST_SAMPLE", "1");

/// The GPU engine of the release library on the real MIOpen and the emulated GPU.
fn miopen_tests(whole: bool, summary: &mut Summary) -> Result<()> {
    // Of the whole workspace, whose packages are those that `cargo test` has built.
    let target = ["--workspace", "--test", "miopen"];
    emulated_tests("GPU engine on the emulated GPU", &target, if whole { &[] } else { &[SAMPLE] }, summary)
}

/// Unit tests of the plugin that need a device, or must not mind one. Without it `cargo test` passes over most of what the
/// first do. The whole workspace is named because its test programs are then those of `cargo test`.
fn device_unit_tests(summary: &mut Summary) -> Result<()> {
    // One by one: what a test copies or allocates ends the captures of others.
    let modules = ["jit::", "miopen::", "plan::", "hip::", "abi::", "selection::"];
    let tests = [&["--workspace", "--lib", "--", "--test-threads=1"], &modules[..]].concat();
    emulated_tests("unit tests beside the emulated GPU", &tests, &[], summary)
}

/// Runs tests on the emulated GPU, with these settings.
pub(crate) fn emulated_tests(
    name: &str,
    tests: &[&str],
    settings: &[(&str, &str)],
    summary: &mut Summary,
) -> Result<()> {
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
    command.env("HIPDNN_RS_TEST_DEVICE", "1").envs(settings.iter().copied());
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

/// A suite of the provider without a device, with a release of ONNX Runtime.
fn host_suite(job: Job, version: &str, built: &Distribution, summary: &mut Summary) -> Result<()> {
    let environment = match Environment::with_onnxruntime(version) {
        Ok(environment) => environment,
        Err(problem) => {
            summary.record(job.title(), Outcome::Skipped(format!("no Python environment: {problem}")));
            return Ok(());
        }
    };
    environment.install_wheel(&built.wheel)?;
    let results = results_of(job.suite, version);
    python_suite(environment.script(job.suite), job.suite, version, &results, &built.prefix, summary)
}

/// A suite of the provider on the emulated GPU, with a release of ONNX Runtime.
fn device_suite(job: Job, version: &str, built: &Distribution, choice: &Choice, summary: &mut Summary) -> Result<()> {
    let skipped = |reason: String, summary: &mut Summary| {
        summary.record(job.title(), Outcome::Skipped(reason));
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
    let mut command = environment.script_on_emulated_gpu(job.suite, &installation);
    emulated_gpu::remove_settings(&mut command);
    // Of further releases a thin sample: the provider's own code is the same.
    let newest = version == ONNXRUNTIMES[0];
    command.env("GPU_EXTENT", if newest { "sample" } else { "thin" });
    let mut results = results_of(job.suite, version);
    if choice.whole {
        command.env("GPU_EXTENT", "all").arg("--resume");
        results = results.with_extension(format!("{}.jsonl", fingerprint(&built.wheel)?));
    }
    python_suite(command, job.suite, version, &results, &built.prefix, summary)
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
        command.env("INSTALLED_UMBRELLA", installed_umbrella(suite, version)?);
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
    let (mut finished, before) = (false, summary.failed());
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
    ended(finished, summary.failed() > before, status)
}

/// Checks how a suite in Python ended: 0 if it came to its end, 1 where it has reported failures.
fn ended(finished: bool, failed: bool, status: ExitStatus) -> Result<()> {
    match (finished, status.code()) {
        (true, Some(0)) => Ok(()),
        // They are recorded one by one.
        (true, Some(1)) if failed => Ok(()),
        (true, _) => Err(format!("the suite came to its end, but then: {}", process::describe(status)).into()),
        (false, _) => Err(format!("the suite did not come to its end ({})", process::describe(status)).into()),
    }
}

/// Installs the component for AMD's umbrella provider where a suite alone reads it; the library that the umbrella opens.
fn installed_umbrella(suite: &str, version: &str) -> Result<PathBuf> {
    let prefix = workspace::target().join("umbrella").join(format!("{suite}-{version}"));
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
    // What somebody tuned on this machine, or a suite beside this one, would have engines ranked otherwise; so would what an
    // earlier run's process of that number has measured.
    static RANKINGS: LazyLock<PathBuf> = LazyLock::new(|| {
        let rankings = workspace::target().join("tmp").join(format!("hipdnn-cache-{}", std::process::id()));
        let _ = fs::remove_dir_all(&rankings);
        rankings
    });
    command.env("HIPDNN_CACHE_DIR", &*RANKINGS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

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
    fn a_step_without_outcomes_fails() {
        type Body = fn(&mut Summary) -> Result<()>;
        let cases: [(&str, Body, (usize, usize, usize)); 4] = [
            ("nothing", |_| Ok(()), (0, 1, 0)),
            ("an error", |_| Err("no compiler".into()), (0, 1, 0)),
            (
                "a pass",
                |summary| {
                    summary.record_passed(2);
                    Ok(())
                },
                (2, 0, 0),
            ),
            (
                "a skip",
                |summary| {
                    summary.record("it", Outcome::Skipped("no network".to_owned()));
                    Ok(())
                },
                (0, 0, 1),
            ),
        ];
        for (name, body, wanted) in cases {
            let mut summary = Summary::default();
            step(name, &mut summary, body);
            assert_eq!((summary.passed(), summary.failed(), summary.skipped()), wanted, "{name}");
        }
    }

    #[test]
    fn suites_end_as_they_report() {
        // (came to its end, has reported failures, wait status, is right)
        for (finished, failed, raw, right) in [
            (true, false, 0, true),
            (true, true, 1 << 8, true),
            (true, false, 1 << 8, false),
            (true, true, 2 << 8, false),
            (true, false, 11, false),
            (false, false, 0, false),
            (false, true, 1 << 8, false),
        ] {
            let got = ended(finished, failed, ExitStatus::from_raw(raw));
            assert_eq!(got.is_ok(), right, "{finished} {failed} {raw}: {got:?}");
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
    fn releases_are_chosen_by_name() {
        let cases: [(&str, &[&str]); 3] = [("", &["2", "1"]), ("--ort 1 --whole", &["1"]), ("--ort 3", &[])];
        for (line, wanted) in cases {
            let choice = crate::parse::<Choice>(line).expect("a valid command line");
            assert_eq!(choice.onnxruntimes(&["2", "1"]), wanted, "{line:?}");
        }
    }
}
