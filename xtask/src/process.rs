//! Running other programs.

use std::io::ErrorKind;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

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

/// Time between two looks at whether a process has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits for a process. After the limit it is ended with all that it has started, and there is no status.
pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(PAUSE);
    }
    // All at once: those whose parent has ended are nobody's, and not found any more.
    let numbers = family(child.id()).into_iter().map(|number| number.to_string());
    let _ = Command::new("sh").args(["-c", "kill -KILL \"$@\"", "sh"]).args(numbers).stderr(Stdio::null()).status();
    child.wait()?;
    Ok(None)
}

/// A process, and all that it has started and that they have.
fn family(of: u32) -> Vec<u32> {
    let parent = |number: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // Behind the name, which may have spaces and parentheses: the state, then the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers.filter_map(|number| Some((number, parent(number)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(one) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(number, _)| *number));
        at += 1;
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_waited_for_up_to_a_limit() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("there is a shell");
        let status = wait_at_most(&mut start("exit 3"), Duration::from_secs(60)).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        // The shell's own child, and a child of that.
        let mut hanging = start("(sleep 997; exit 1) & wait");
        let late = Instant::now() + Duration::from_secs(30);
        let family = loop {
            let family = family(hanging.id());
            if family.len() >= 2 || Instant::now() > late {
                break family;
            }
            std::thread::sleep(PAUSE);
        };
        assert!(family.len() >= 2, "{family:?}");
        assert_eq!(wait_at_most(&mut hanging, Duration::from_millis(100)).unwrap(), None);
        // What nobody has waited for yet is a zombie, whose command line is empty.
        let line = |number: &u32| std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let ended = || family.iter().all(|number| line(number).is_empty());
        let late = Instant::now() + Duration::from_secs(30);
        while !ended() && Instant::now() < late {
            std::thread::sleep(PAUSE);
        }
        assert!(ended(), "{family:?}");
    }
}
