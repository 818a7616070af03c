//! `cargo xtask gpu-check`: everything that can be asked of a GPU, in one file to attach to a report.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bench::dispatch;
use crate::gpu::{Gpu, Wanted, build_program};
use crate::{Result, conformance, process, workspace};

const ENGINE: &str = conformance::MIOPEN;

/// Lines of a failing suite that the report keeps.
const MOST_LINES: usize = 200;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    wanted: Wanted,
    /// Fewer cases and repetitions
    #[arg(long)]
    quick: bool,
    /// File of the report
    #[arg(long, value_name = "FILE", default_value = "gpu-check.md")]
    report: PathBuf,
}

/// Runs the command. The report is written whatever fails; the exit code tells.
pub(crate) fn run(options: &Options) -> Result<()> {
    let gpu = Gpu::ensure(options.wanted)?;
    println!("checking {ENGINE} on {}; this takes a while", gpu.name());
    let mut report = Report::new(&gpu);
    let built = workspace::build_release();
    report.section("Release build", built.as_ref().map(|()| String::new()).map_err(ToString::to_string));
    if built.is_ok() {
        report.section("Libraries and devices", facts(&gpu).map_err(|problem| problem.to_string()));
        report.section("Convolutions", convolutions(&gpu).map_err(|problem| problem.to_string()));
        report.section("Conformance", claims_hold(&gpu, options.quick).map_err(|problem| problem.to_string()));
        report.section("Dispatch", dispatch::tables(&gpu, options.quick).map_err(|problem| problem.to_string()));
    }
    fs::write(&options.report, &report.text).map_err(|problem| format!("{}: {problem}", options.report.display()))?;
    println!("the report is {}", options.report.display());
    match report.failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("failed: {}", failed.join(", ")).into()),
    }
}

struct Report {
    text: String,
    failed: Vec<&'static str>,
    since: Instant,
}

impl Report {
    fn new(gpu: &Gpu) -> Report {
        let mut text = format!("# {ENGINE} on {}\n\n", gpu.name());
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let _ = writeln!(text, "* seconds since 1970: {seconds}");
        let _ = writeln!(text, "* hipdnn-rs {}", env!("CARGO_PKG_VERSION"));
        for (what, program, arguments) in [
            ("commit", "git", ["describe", "--always", "--dirty", "--abbrev=12"].as_slice()),
            ("system", "uname", ["-srm"].as_slice()),
            ("compiler", "rustc", ["--version"].as_slice()),
        ] {
            let output = process::capture(Command::new(program).args(arguments).current_dir(workspace::root()));
            let answer = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            let _ = writeln!(text, "* {what}: {}", answer.unwrap_or_else(|problem| problem.to_string()));
        }
        if let Ok(version) = fs::read_to_string("/opt/rocm/.info/version") {
            let _ = writeln!(text, "* ROCm {}", version.trim());
        }
        Report { text, failed: Vec::new(), since: Instant::now() }
    }

    fn section(&mut self, title: &'static str, result: Result<String, String>) {
        let seconds = self.since.elapsed().as_secs();
        self.since = Instant::now();
        let (verdict, body) = match result {
            Ok(body) => ("passed", body),
            Err(problem) => {
                self.failed.push(title);
                ("FAILED", problem)
            }
        };
        println!("{title}: {verdict}, {seconds} s");
        let _ = write!(self.text, "\n## {title}: {verdict} ({seconds} s)\n\n{}\n", body.trim_end());
    }
}

fn facts(gpu: &Gpu) -> Result<String> {
    let output = process::capture(gpu.command(build_program("bench", "dispatch")?).arg("--facts"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{text}{}", process::tail(&output.stderr, 20)).into()) }
}

/// The table of convolutions that `cargo xtask test` runs on the emulated GPU.
fn convolutions(gpu: &Gpu) -> Result<String> {
    suite(gpu.command(build_program("test", "miopen")?).arg("cases"))
}

/// The conformance suite: every claim of the engine, whatever the operation.
fn claims_hold(gpu: &Gpu, quick: bool) -> Result<String> {
    let mut command = gpu.command(conformance::program());
    command.arg("--plugin").arg(conformance::plugin()).args(["--engine", ENGINE]);
    // As the engine does by default; `hipdnn_rs.gpu.strict_fp32` does without.
    command.arg("--narrow-intermediates");
    match (quick, gpu) {
        (true, _) => command.args(["--sample", "100"]),
        (false, Gpu::Emulated(_)) => command.args(["--sample", "covering"]),
        (false, Gpu::Real) => &mut command,
    };
    suite(&mut command)
}

/// Runs a program that reports on standard output.
fn suite(command: &mut Command) -> Result<String> {
    let started = Instant::now();
    let output = process::capture(command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter(|line| !line.ends_with("... ok")).collect();
    let kept = &lines[lines.len().saturating_sub(MOST_LINES)..];
    let mut body = format!("```text\n{}\n```\n", kept.join("\n").trim());
    match (output.status.success(), passed(&text)) {
        (true, Some(1..)) => return Ok(body),
        (true, _) => return Err(format!("{body}\nnothing ran").into()),
        (false, _) => {}
    }
    let spent: Duration = started.elapsed();
    let _ = write!(body, "{} after {} s", process::describe(output.status), spent.as_secs());
    let _ = write!(body, "\n\n```text\n{}\n```\n", process::tail(&output.stderr, 40));
    Err(body.into())
}

/// Number of passed tests, from the last line of a program's output that tells it.
fn passed(text: &str) -> Option<usize> {
    let line = text.lines().rev().find(|line| line.contains(" passed"))?;
    line.split(" passed").next()?.rsplit(' ').next()?.parse().ok()
}

/// True if a path is that of a report that git is told to ignore.
#[cfg(test)]
fn is_ignored(path: &std::path::Path) -> bool {
    let ignored = fs::read_to_string(workspace::root().join(".gitignore")).unwrap_or_default();
    ignored.lines().any(|line| line.trim_start_matches('/') == path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_not_committed_by_accident() {
        assert!(is_ignored(&crate::parse::<Options>("").expect("valid").report));
    }

    #[test]
    fn a_program_that_ran_nothing_is_recognised() {
        for (text, wanted) in [
            ("running 3 tests\ntest result: ok. 3 passed; 0 failed; 0 ignored\n", Some(3)),
            ("test result: ok. 0 passed; 0 failed", Some(0)),
            ("family  passed  failed\nconv  1  0\n12 passed, 0 failed, 2 declined\n", Some(12)),
            ("nothing", None),
        ] {
            assert_eq!(passed(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_report_says_what_failed() {
        let mut report = Report::new(&Gpu::Real);
        report.section("Good", Ok("fine".to_owned()));
        report.section("Bad", Err("no device".to_owned()));
        assert_eq!(report.failed, ["Bad"]);
        for wanted in ["# HIPDNN_RS_GPU_ENGINE on this machine's GPU", "## Good: passed", "## Bad: FAILED", "no device"]
        {
            assert!(report.text.contains(wanted), "{wanted:?} in {}", report.text);
        }
    }
}
