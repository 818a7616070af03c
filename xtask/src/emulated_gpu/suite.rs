//! The emulated GPU's own tests.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::{Installation, build};
use crate::summary::{Outcome, Summary};
use crate::{Result, process};

/// Programs whose every line `PASS name`, `FAIL name: reason` or `SKIP name: reason` is a test, and whether they
/// need kernels of MIOpen; with the architecture of the device.
const PROGRAMS: [(&str, bool, &str); 11] = [
    ("streams", false, RDNA),
    ("capture", false, RDNA),
    ("memory", false, RDNA),
    ("devices", false, RDNA),
    ("faults", false, RDNA),
    ("instructions", false, RDNA),
    ("convolutions", true, RDNA),
    ("operations", true, RDNA),
    ("wave64", false, CDNA),
    ("instructions", false, CDNA),
    ("convolutions", true, CDNA),
];

/// Waves of 32 lanes.
const RDNA: &str = "gfx1100";

/// Waves of 64 lanes, and matrix instructions.
pub(crate) const CDNA: &str = "gfx942";

/// Timeout of a silent program: the longest test takes seconds.
const SILENCE: Duration = Duration::from_secs(600);

/// Runs them all.
pub(super) fn run(installation: &Installation, summary: &mut Summary) -> Result<()> {
    let no_kernels = build::no_kernels(installation)?;
    for (program, kernels, architecture) in PROGRAMS {
        println!("-- {program} on {architecture}");
        if let (true, Some(reason)) = (kernels, &no_kernels) {
            summary.record(program, Outcome::Skipped(reason.clone()));
            continue;
        }
        let path = installation.programs().join(program);
        let mut command = installation.command(&path);
        command.env("HIPEMU_ARCH", architecture);
        remove_settings(&mut command);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the test program has no output")?;
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut count = 0;
        let before = summary.failed();
        let mut silent = false;
        loop {
            match receiver.recv_timeout(SILENCE) {
                Ok(line) => match verdict(&line) {
                    Some((name, outcome)) => {
                        if outcome != Outcome::Passed {
                            println!("{line}");
                        }
                        count += 1;
                        summary.record(format!("{program} on {architecture}: {name}"), outcome);
                    }
                    None => println!("{line}"),
                },
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    silent = true;
                    child.kill()?;
                    break;
                }
            }
        }
        let status = child.wait()?;
        // Ends with the child, which has the other end of the pipe.
        let _ = reader.join();
        if silent {
            let reason = format!("nothing happened for {} s after {count} tests", SILENCE.as_secs());
            summary.record(program, Outcome::Failed(reason));
            continue;
        }
        if !is_as_reported(status.code(), count, summary.failed() - before) {
            let reason = format!("ended after {count} tests: {}", process::describe(status));
            summary.record(program, Outcome::Failed(reason));
        }
    }
    Ok(())
}

/// True if a program of so many tests ended as these did: with 1 if there are failed ones, which are counted already.
fn is_as_reported(code: Option<i32>, tests: usize, failed: usize) -> bool {
    tests > 0 && code == Some(i32::from(failed > 0))
}

/// Settings of the user's shell must not decide what a test sees; those that the command has of its own stay.
pub(super) fn remove_settings(command: &mut Command) {
    let own: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in std::env::vars_os() {
        let of_device = ["HIPEMU_", "GFXEMU_", "MIOPEN_"].iter().any(|start| name.to_string_lossy().starts_with(start));
        if of_device && !own.contains(&name) {
            command.env_remove(name);
        }
    }
}

/// The name and outcome that a line reports.
fn verdict(line: &str) -> Option<(String, Outcome)> {
    let (verdict, rest) = line.split_once(' ')?;
    let (name, reason) = rest.split_once(": ").unwrap_or((rest, ""));
    let outcome = match verdict {
        "PASS" => return Some((rest.to_owned(), Outcome::Passed)),
        "FAIL" => Outcome::Failed(reason.to_owned()),
        "SKIP" => Outcome::Skipped(reason.to_owned()),
        _ => return None,
    };
    Some((name.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_as_its_tests_did() {
        // (exit status, tests, failed tests, is right)
        for (code, tests, failed, right) in [
            (Some(0), 3, 0, true),
            (Some(1), 3, 1, true),
            (Some(1), 3, 0, false),
            (Some(0), 0, 0, false),
            (Some(134), 3, 1, false),
            (None, 3, 0, false),
        ] {
            assert_eq!(is_as_reported(code, tests, failed), right, "{code:?} after {tests}, {failed} failed");
        }
    }

    #[test]
    fn verdicts_are_read() {
        let cases = [
            ("PASS a b", Some(("a b", Outcome::Passed))),
            ("FAIL a: off by one: 3", Some(("a", Outcome::Failed("off by one: 3".to_owned())))),
            ("SKIP a: no kernels", Some(("a", Outcome::Skipped("no kernels".to_owned())))),
            ("something else", None),
            ("", None),
        ];
        for (line, wanted) in cases {
            let wanted = wanted.map(|(name, outcome)| (name.to_owned(), outcome));
            assert_eq!(verdict(line), wanted, "{line:?}");
        }
    }
}
