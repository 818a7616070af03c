//! `cargo xtask conformance`: the conformance suite on any engine of any plugin.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::gpu::{Gpu, Wanted};
use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, process, workspace};

/// Cases of the stage in `cargo xtask test --fast`.
const FAST_SAMPLE: &str = "800";

/// Random graphs of the stage in `cargo xtask test`.
const RANDOM_GRAPHS: &str = "2000";

/// Runs the suite as the arguments ask; without `--plugin`, on this project's own.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (wanted, rest): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| Wanted::option(argument).is_some());
    let wanted = wanted.last().and_then(|argument| Wanted::option(argument));
    let engine = rest.iter().skip_while(|argument| *argument != &"--engine").nth(1);
    let on_gpu = engine.is_some_and(|name| !name.contains("HOST"));
    // Questions about the suite itself need no engine.
    let asks = ["--help", "-h", "--list", "--graph"];
    let own = !rest.iter().any(|argument| *argument == "--plugin" || asks.contains(&argument.as_str()));
    if own {
        workspace::build_release()?;
    }
    let program = build()?;
    let mut command = match wanted {
        None if !on_gpu => Command::new(program),
        wanted => Gpu::ensure(wanted.unwrap_or_default())?.command(program),
    };
    if own {
        command.arg("--plugin").arg(plugin());
    }
    process::run(command.args(rest), "the conformance suite")
}

/// The host engine's claims, as a part of `cargo xtask test`: all cases and some random graphs, or a sample of the cases.
pub(crate) fn test(fast: bool, summary: &mut Summary) -> Result<()> {
    let program = build()?;
    let runs: &[&[&str]] = if fast { &[&["--sample", FAST_SAMPLE]] } else { &[&[], &["--random", RANDOM_GRAPHS]] };
    for arguments in runs {
        let results = workspace::target().join("conformance.json");
        // The results of an earlier run must not pass for this one's.
        let _ = fs::remove_file(&results);
        let mut command = Command::new(&program);
        command.arg("--plugin").arg(plugin()).args(["--engine", "HOST_RS_ENGINE"]).args(*arguments);
        remove_settings(&mut command);
        command.arg("--json").arg(&results).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status()?;
        let text = fs::read_to_string(&results)
            .map_err(|_| format!("the suite did not come to its end ({})", process::describe(status)))?;
        record(&text, summary)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Results {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    outcome: String,
    #[serde(default)]
    reason: String,
}

fn record(text: &str, summary: &mut Summary) -> Result<()> {
    let results: Results = serde_json::from_str(text)?;
    for case in results.cases {
        let outcome = match case.outcome.as_str() {
            "passed" => Outcome::Passed,
            "declined" => Outcome::Skipped(case.reason),
            _ => Outcome::Failed(case.reason),
        };
        summary.record(case.name, outcome);
    }
    Ok(())
}

/// The plugin of the release build.
fn plugin() -> PathBuf {
    workspace::release().join("libhipdnn_rs_plugin.so")
}

/// Builds the suite; gives the program.
fn build() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "hipdnn-conformance"]);
    process::run(&mut cargo, "building the conformance suite")?;
    Ok(workspace::release().join("hipdnn-conformance"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let text = r#"{"engine":"E","counts":{},"cases":[
            {"name":"a","seconds":1.0,"outcome":"passed","worst":0.1,"vague":0.0,"workspace_bytes":0},
            {"name":"b","seconds":1.0,"outcome":"declined","reason":"no"},
            {"name":"c","seconds":1.0,"outcome":"failed","reason":"wrong"}]}"#;
        let mut summary = Summary::default();
        record(text, &mut summary).expect("valid results");
        assert_eq!((summary.passed(), summary.failed(), summary.skipped()), (1, 1, 1));
        assert!(record("{", &mut summary).is_err());
    }
}
