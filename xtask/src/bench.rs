//! `cargo xtask bench`: time per layer and per model, beside ONNX Runtime's CPU provider in the same run.
//! `bench epilogues`: convolutions with epilogues, fused and apart; `bench dispatch`: the host's time of a GPU plan.

pub(crate) mod dispatch;

use std::fs;

use crate::demo::ONNXRUNTIME;
use crate::python::Environment;
use crate::{Result, dist, process, workspace};

/// Runs the engine's own benchmark, then the script that compares.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("dispatch", rest)) => return dispatch::run(rest),
        Some(("epilogues", rest)) => return epilogues(rest),
        _ => {}
    }
    if arguments == ["claims"] {
        return process::run(&mut environment()?.script("bench_claims.py"), "the measurement");
    }
    let (mut turns, mut skip) = ("9", None);
    for argument in arguments {
        match argument.as_str() {
            "--quick" => turns = "3",
            "--layers" => skip = Some("models"),
            "--models" => skip = Some("layers"),
            other => {
                let wanted = "dispatch, epilogues, claims, --quick, --layers and --models";
                return Err(format!("bench: expected {wanted}, got {other:?}").into());
            }
        }
    }
    let environment = environment()?;
    let mut command = environment.script("bench.py");
    command.arg("--cache").arg(workspace::cache().join("models")).args(["--turns", turns]);
    if let Some(table) = skip {
        command.args(["--skip", table]);
    }
    if skip != Some("layers") {
        let mut engine = workspace::cargo();
        engine.args(["bench", "--quiet", "--package", "hipdnn-engine-cpu", "--bench", "host"]);
        let output = process::capture(engine.args(["--", "--csv", "--threads", "1,2"]))?;
        if !output.status.success() {
            return Err(format!("the engine's benchmark failed: {}", process::tail(&output.stderr, 5)).into());
        }
        let csv = workspace::target().join("bench-layers.csv");
        fs::write(&csv, output.stdout)?;
        command.arg("--direct").arg(csv);
    }
    process::run(&mut command, "the comparison")
}

/// The environment of the comparisons, with the wheel of this tree.
fn environment() -> Result<Environment> {
    let wheel = dist::build()?.wheel;
    let runtime = format!("onnxruntime=={ONNXRUNTIME}");
    let environment = Environment::ensure("bench", &[&runtime, "onnx==1.21.0", "numpy>=2,<3", "pillow>=11"])?;
    environment.install_wheel(&wheel)?;
    Ok(environment)
}

/// Convolutions with their epilogues, fused and apart, by the engine alone.
fn epilogues(arguments: &[String]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "--package", "hipdnn-engine-cpu", "--bench", "epilogues", "--"]);
    process::run(command.args(arguments), "the benchmark of epilogues")
}
