//! `hipdnn-rs`: looks into hipDNN graphs, says which engine takes them and why others decline, runs and compares
//! engines, and times them.
//!
//! A command reads a file ([`content`]), asks engine plugins over their C ABI where it needs one ([`engines`]), and gives
//! back a text with a verdict; only `main` writes and ends the process.

mod arguments;
mod bench;
mod compare;
mod content;
mod convert;
mod dot;
mod engines;
mod explain;
mod inspect;
mod listing;
mod names;
mod npy;
mod run;
mod search;
mod table;
mod tensors;
mod text;
mod tune;
mod workplace;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

/// Result of a command.
pub(crate) struct Answer {
    /// For standard output.
    output: Vec<u8>,
    /// True for success: an engine takes the graph, results agree.
    good: bool,
}

impl Answer {
    fn new(output: impl Into<Vec<u8>>, good: bool) -> Answer {
        Answer { output: output.into(), good }
    }
}

/// Exit code of a negative answer; 0 is success and 2 an error.
const NOT_AS_WISHED: u8 = 1;
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Our plugin then also says what it plans.
    set_default("HIPDNN_RS_LOG", "debug");
    if matches!(arguments.command, Command::Run(_) | Command::Bench(_) | Command::Tune(_)) {
        // It hides the CPU engine beside a GPU, because hosts hand engines addresses of one kind. This one does not.
        set_default("HIPDNN_RS_CPU_ENGINE", "on");
    }
    let answer = match &arguments.command {
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Convert(arguments) => convert::convert(arguments),
        Command::Explain(arguments) => explain::explain(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Tune(arguments) => tune::tune(arguments),
    };
    match answer {
        Ok(answer) => write(&answer),
        Err(problem) => {
            // Nobody is left to be told if this fails.
            let _ = writeln!(std::io::stderr(), "hipdnn-rs: {problem}");
            ExitCode::from(ERROR)
        }
    }
}

/// Sets a variable of the environment that the user has not set.
fn set_default(variable: &str, value: &str) {
    if std::env::var_os(variable).is_none() {
        // SAFETY: this is called before any other thread runs.
        unsafe { std::env::set_var(variable, value) };
    }
}

/// Writes the answer. A reader that has seen enough and goes away is no error.
fn write(answer: &Answer) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(&answer.output).and_then(|()| out.flush()) {
        Err(problem) if problem.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "hipdnn-rs: standard output: {problem}");
            ExitCode::from(ERROR)
        }
        _ if answer.good => ExitCode::SUCCESS,
        _ => ExitCode::from(NOT_AS_WISHED),
    }
}
