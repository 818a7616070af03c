//! The conformance suite as a program; see `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match hipdnn_conformance::command::main() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("conformance: {problem}");
            ExitCode::from(2)
        }
    }
}
