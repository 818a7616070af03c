//! `cargo xtask conformance`: the conformance suite on any engine of any plugin.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::emulated_gpu::{self, Prepared};
use crate::gpu::{Gpu, Wanted};
use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, claims, process, workspace};

/// The engine for CPUs.
pub(crate) const HOST: &str = "HIPDNN_RS_CPU_ENGINE";

/// The engine for GPUs.
pub(crate) const MIOPEN: &str = "HIPDNN_RS_GPU_ENGINE";

/// Cases of the stage in `cargo xtask test --fast`.
const FAST_SAMPLE: &str = "800";

/// Random graphs of the stage in `cargo xtask test`.
const RANDOM_GRAPHS: &str = "2000";

/// Random graphs of that stage that are executed with override shapes, and the shapes of each.
const OVERRIDDEN: [&str; 4] = ["--random", "502", "--overrides", "20"];

/// The same on the emulated GPU.
const EMULATED_OVERRIDDEN: [&str; 4] = ["--random", "12", "--overrides", "2"];

/// Random graphs of the stage on the emulated GPU.
const EMULATED_RANDOM_GRAPHS: &str = "100";

/// Cases of the stage on the emulated gfx942.
const EMULATED_CDNA_SAMPLE: &str = "60";

/// Random graphs there.
const EMULATED_CDNA_RANDOM_GRAPHS: &str = "30";

/// Options of the suite, and those of this command.
pub(crate) const HELP: &str = "Options of the suite and this command:
  --plugin FILE --engine NAME     any vendor's (this project's, HIPDNN_RS_CPU_ENGINE)
  --filter TEXT | --sample N      fewer cases
  --sample covering | rules       a case of every rule, types and layout, or of every rule
  --random N [--seed S]           random graphs instead
  --overrides N                   executions with N override shapes, beside plans for these shapes
  --knob NAME=VALUE               a setting for every plan
  --claims [--check]              rewrite CONFORMANCE.md, what the engines take, or compare
  --junit FILE | --json FILE      reports for programs
  --real | --emulated             the GPU for an engine that needs one
  -- --help                       all options of the suite";

/// Runs the suite as the arguments ask; without `--plugin`, on this project's own.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (gpus, rest): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| matches!(*word, "--real" | "--emulated"));
    let wanted = gpus.last().map(|word| Wanted { real: *word == "--real", emulated: *word == "--emulated" });
    if let [claims, check @ ..] = &rest[..]
        && *claims == "--claims"
        && check.iter().all(|word| *word == "--check")
    {
        return claims::run(!check.is_empty());
    }
    let engine = rest.iter().skip_while(|word| **word != "--engine").nth(1);
    let on_gpu = engine.is_some_and(|name| !name.contains("CPU"));
    // Questions about the suite itself need no engine.
    let asks = ["--help", "-h", "--list", "--graph"];
    let own = !rest.iter().any(|word| *word == "--plugin" || asks.contains(word));
    if own {
        workspace::build_release()?;
    } else {
        // Another's plugin needs none of the libraries.
        workspace::build_optimized(["hipdnn-conformance"])?;
    }
    let program = program();
    let mut command = match wanted {
        None if !on_gpu => Command::new(program),
        wanted => Gpu::ensure(wanted.unwrap_or_default())?.command(program),
    };
    if own {
        command.arg("--plugin").arg(plugin());
    }
    process::run(command.args(rest), "the conformance suite")
}

/// The CPU engine's claims, as a part of `cargo xtask test`: all cases and some random graphs, also with override shapes, or a
/// sample of the cases.
pub(crate) fn test(fast: bool, summary: &mut Summary) -> Result<()> {
    let program = program();
    let runs: &[&[&str]] = if fast { &[&["--sample", FAST_SAMPLE]] } else { &[&[], &["--random", RANDOM_GRAPHS]] };
    for arguments in runs {
        for case in results(Command::new(&program), HOST, arguments)? {
            summary.record(case.name.clone(), case.outcome());
        }
    }
    if !fast {
        overridden(Command::new(&program), HOST, &OVERRIDDEN, summary)?;
    }
    Ok(())
}

/// Records random graphs that were executed with override shapes. Few have no other shape that fits; that is no skipped test.
fn overridden(command: Command, engine: &str, arguments: &[&str], summary: &mut Summary) -> Result<()> {
    let before = summary.passed();
    for case in results(command, engine, arguments)? {
        match case.outcome() {
            Outcome::Skipped(_) => {}
            outcome => summary.record(format!("{engine}: override shapes: {}", case.name), outcome),
        }
    }
    summary.expect_more(before, format!("{engine}: {}", arguments.join(" ")));
    Ok(())
}

/// The GPU engine's claims on the emulated GPU, as a part of `cargo xtask test`: a case of every rule, or of every rule, types
/// and layout on both devices (`whole`), and some random graphs, with intermediates as narrow as the engine likes; then as wide
/// as graphs say, where that matters.
pub(crate) fn test_on_emulated_gpu(whole: bool, summary: &mut Summary) -> Result<()> {
    let gpu = match emulated_gpu::ensure_with_kernels()? {
        Prepared::Ready(installation) => Gpu::Emulated(installation),
        Prepared::Unavailable(reason) => {
            summary.record(format!("conformance of {MIOPEN}"), Outcome::Skipped(reason.0));
            return Ok(());
        }
    };
    let program = program();
    let (sample, on_cdna) = if whole { ("covering", "covering") } else { ("rules", EMULATED_CDNA_SAMPLE) };
    let runs: [(&str, &[&str]); 3] = [
        ("", &["--sample", sample, "--narrow-intermediates"]),
        ("strict: ", &["--sample", sample, "--where-narrow", "--knob", "hipdnn_rs.gpu.strict_fp32=1"]),
        ("", &["--random", EMULATED_RANDOM_GRAPHS, "--narrow-intermediates"]),
    ];
    let mut left = 0;
    for (what, arguments) in runs {
        let before = summary.passed();
        for case in results(gpu.command(&program), MIOPEN, arguments)? {
            match case.outcome() {
                Outcome::Skipped(_) => left += 1,
                outcome => summary.record(format!("{MIOPEN}: {what}{}", case.name), outcome),
            }
        }
        summary.expect_more(before, format!("{MIOPEN}: {}", arguments.join(" ")));
    }
    overridden(gpu.command(&program), MIOPEN, &EMULATED_OVERRIDDEN, summary)?;
    // Waves of 64 lanes.
    let cdna = || {
        let mut command = gpu.command(&program);
        command.env("HIPEMU_ARCH", emulated_gpu::CDNA);
        command
    };
    let before = summary.passed();
    for arguments in [["--sample", on_cdna], ["--random", EMULATED_CDNA_RANDOM_GRAPHS]] {
        for case in results(cdna(), MIOPEN, &[&arguments[..], &["--narrow-intermediates"]].concat())? {
            match case.outcome() {
                Outcome::Skipped(_) => {}
                outcome => summary.record(format!("{MIOPEN} on {}: {}", emulated_gpu::CDNA, case.name), outcome),
            }
        }
    }
    summary.expect_more(before, format!("{MIOPEN} on {}", emulated_gpu::CDNA));
    if left > 0 {
        let reason = format!("{left} graphs are left to other engines; CONFORMANCE.md says why");
        summary.record(format!("conformance of {MIOPEN}"), Outcome::Skipped(reason));
    }
    Ok(())
}

/// Runs the suite on an engine of the release build; returns the result of each case.
fn results(mut command: Command, engine: &str, arguments: &[&str]) -> Result<Vec<Case>> {
    let results = workspace::target().join(format!("conformance-{engine}.json"));
    // The results of an earlier run must not pass for this one's.
    let _ = fs::remove_file(&results);
    command.arg("--plugin").arg(plugin()).args(["--engine", engine]).args(arguments);
    remove_settings(&mut command);
    // Libraries talk on standard error; what is wrong is in the results.
    command.arg("--json").arg(&results).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output()?;
    let text = fs::read_to_string(&results).map_err(|_| {
        let how = process::describe(output.status);
        format!("the suite did not come to its end ({how}): {}", process::tail(&output.stderr, 10))
    })?;
    parse(&text)
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

impl Case {
    fn outcome(&self) -> Outcome {
        match self.outcome.as_str() {
            "passed" => Outcome::Passed,
            "declined" => Outcome::Skipped(self.reason.clone()),
            _ => Outcome::Failed(self.reason.clone()),
        }
    }
}

fn parse(text: &str) -> Result<Vec<Case>> {
    let results: Results = serde_json::from_str(text)?;
    Ok(results.cases)
}

/// The plugin of the release build.
pub(crate) fn plugin() -> PathBuf {
    workspace::release().join("libhipdnn_rs_plugin.so")
}

/// The suite of the release build.
pub(crate) fn program() -> PathBuf {
    workspace::release().join("hipdnn-conformance")
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
        let outcomes: Vec<Outcome> = parse(text).expect("valid results").iter().map(Case::outcome).collect();
        let wanted = [Outcome::Passed, Outcome::Skipped("no".to_owned()), Outcome::Failed("wrong".to_owned())];
        assert_eq!(outcomes, wanted);
        assert!(parse("{").is_err());
    }
}
