//! Suites beside each other: each is a process of `cargo xtask test` of its own, whose output is printed when it ends.
//!
//! Most suites keep one core busy: the emulator, a Python script, a program that is called again and again. What several of them read
//! is made before they begin ([`super::prepared`]), and each writes files of its own.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Choice, Job};
use crate::summary::{Outcome, Summary};
use crate::{Result, process, workspace};

/// The most suites at a time, for the memory that they need: one on the emulated GPU may take two GiB.
const MOST: usize = 4;

/// Time after which a suite's processes are ended, unless all cases are run: the longest ones take tens of minutes, and
/// some times that where other work is on the machine.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Runs jobs in the order given, as many at a time as there are cores, and adds their outcomes.
pub(super) fn run(jobs: &[Job], choice: &Choice, summary: &mut Summary) {
    let lanes = std::thread::available_parallelism().map_or(1, NonZero::get).clamp(1, MOST);
    let waiting = Mutex::new(jobs.iter().copied().enumerate());
    let summary = Mutex::new(summary);
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                // A lane that panics ends the run when the scope joins it, so locks are never seen poisoned with work left.
                while let Some((number, job)) = waiting.lock().ok().and_then(|mut waiting| waiting.next()) {
                    let outcomes = one(number, job, choice).unwrap_or_else(|problem| {
                        let mut failed = Summary::default();
                        failed.record(job.title(), Outcome::Failed(problem.to_string()));
                        failed
                    });
                    if let Ok(mut summary) = summary.lock() {
                        summary.append(outcomes);
                    }
                }
            });
        }
    });
}

/// Runs a job in a process of its own, and prints what it printed.
fn one(number: usize, job: Job, choice: &Choice) -> Result<Summary> {
    let directory = workspace::target().join("lanes");
    fs::create_dir_all(&directory)?;
    let (output, report) = (directory.join(format!("{number}.log")), directory.join(format!("{number}.json")));
    // An earlier run's outcomes must not pass for this one's.
    let _ = fs::remove_file(&report);
    let start = Instant::now();
    let limit = if choice.whole { Duration::MAX } else { LIMIT };
    let ended = process::wait_at_most(&mut command(job, choice, &output, &report)?.spawn()?, limit)?;
    let seconds = start.elapsed().as_secs_f64();
    // In one piece: other lanes print too.
    print!("{}", String::from_utf8_lossy(&fs::read(&output)?));
    let Some(status) = ended else {
        return Err(format!("the suite's process was ended: it took more than {seconds:.0} s").into());
    };
    let report = fs::read_to_string(&report).ok();
    outcomes(&job.title(), status, report).map_err(|problem| format!("{problem} after {seconds:.0} s").into())
}

/// The outcomes that a job's process has written; it ends with 0 whatever they are.
fn outcomes(title: &str, status: ExitStatus, report: Option<String>) -> Result<Summary> {
    let report =
        report.ok_or_else(|| format!("the suite's process ended without outcomes ({})", process::describe(status)))?;
    let mut outcomes: Summary =
        serde_json::from_str(&report).map_err(|problem| format!("the suite's outcomes can't be read: {problem}"))?;
    if !status.success() {
        let problem = format!("the suite's process ended behind its outcomes ({})", process::describe(status));
        outcomes.record(title, Outcome::Failed(problem));
    }
    if outcomes.passed() + outcomes.failed() + outcomes.skipped() == 0 {
        return Err("expected outcomes of the suite's tests, got none".into());
    }
    Ok(outcomes)
}

/// The command of a job's process.
fn command(job: Job, choice: &Choice, output: &Path, report: &PathBuf) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["test", "--only", job.suite]).arg("--report").arg(report);
    if let Some(version) = job.version {
        command.args(["--ort", version]);
    }
    for (flag, given) in [("--fast", choice.fast), ("--whole", choice.whole)] {
        if given {
            command.arg(flag);
        }
    }
    let output = File::create(output)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn a_suite_passes_by_its_outcomes_alone() {
        let mut good = Summary::default();
        good.record_passed(2);
        good.record("one", Outcome::Failed("bad".to_owned()));
        let text = |summary: &Summary| serde_json::to_string(summary).unwrap();
        let got = outcomes("suite", ExitStatus::from_raw(0), Some(text(&good))).unwrap();
        assert_eq!((got.passed(), got.failed(), got.skipped()), (2, 1, 0));
        let got = outcomes("suite", ExitStatus::from_raw(11), Some(text(&good))).unwrap();
        assert_eq!((got.passed(), got.failed(), got.skipped()), (2, 2, 0), "it died behind its last test");
        for (raw, report, why) in [
            (101 << 8, None, "without outcomes (exit status 101)"),
            (9, None, "without outcomes (killed by signal 9)"),
            (0, Some(text(&good)[..9].to_owned()), "can't be read"),
            (0, Some(text(&Summary::default())), "got none"),
        ] {
            let error = outcomes("suite", ExitStatus::from_raw(raw), report).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{why}: {error:?}");
        }
    }
}
