//! Running other programs.

use std::io::ErrorKind;
use std::process::{Command, ExitStatus, Output, Stdio};

use crate::Result;

/// Runs to the end with the terminal's output and no input; a failure names `what`.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().map_err(|problem| start_error(command, &problem))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed ({})", describe(status)).into()) }
}

/// Runs to the end with both outputs kept, whatever the exit status.
pub(crate) fn capture(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output().map_err(|problem| start_error(command, &problem))?;
    Ok(output)
}

fn start_error(command: &Command, problem: &std::io::Error) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    match problem.kind() {
        ErrorKind::NotFound => format!("the program {program} is not installed, or not on PATH"),
        _ => format!("{program} can't be started: {problem}"),
    }
}

/// An exit status in words; a signal is worth naming.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended without a status".to_owned(),
    }
}

/// The last lines of a program's output, for an error message.
pub(crate) fn tail(bytes: &[u8], lines: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
