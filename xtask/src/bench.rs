//! `cargo xtask bench`: time per layer and per model, beside ONNX Runtime's CPU provider in the same run (`bench.py`);
//! `bench --precisions`: models of 16-bit tensors beside the same in float and that provider (`bench_precisions.py`).
//! `bench conv`: single convolutions by class, beside that provider and oneDNN; `bench nodes`: the same of other nodes,
//! beside that provider; `bench epilogues`: convolutions with epilogues, fused and apart; `bench choice`: all algorithms of
//! a convolution; `bench dispatch`: the host's time of a GPU plan.

pub(crate) mod dispatch;

use std::ffi::{OsStr, OsString};
use std::{fs, path};

use clap::{Args, Subcommand};

use crate::demo::ONNXRUNTIME;
use crate::python::Environment;
use crate::{Result, Words, dist, process, workspace};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// Fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Only the table of layers
    #[arg(long, conflicts_with = "models")]
    layers: bool,
    /// Only the table of models
    #[arg(long)]
    models: bool,
    /// Only the table of models of 16-bit tensors
    #[arg(long, conflicts_with_all = ["layers", "models"])]
    precisions: bool,
    #[command(subcommand)]
    other: Option<Other>,
}

/// The other benchmarks.
#[derive(Subcommand)]
enum Other {
    /// Times single convolutions beside ONNX Runtime's CPU provider and oneDNN, by class; `--help` tells the options
    #[command(disable_help_flag = true)]
    Conv(Words),
    /// Times other nodes and small graphs of them beside ONNX Runtime's CPU provider, by class; `--help` tells the
    /// options
    #[command(disable_help_flag = true)]
    Nodes(Words),
    /// Times convolutions with what follows on them, fused and as a pass of its own, by the CPU engine alone
    #[command(
        after_help = "Options of the benchmark:\n  --threads N      1 unless given\n  [LAYER [TAIL]]   only names that contain these"
    )]
    Epilogues(Words),
    /// Times every algorithm that serves a convolution, beside the one that is chosen, by the CPU engine alone
    #[command(
        after_help = "Options of the benchmark:\n  LIST             a CSV file as `conv --list` takes it\n  --threads N      1 unless given\n  --rounds N       7 unless given\n  --isa NAME       the fastest of this CPU unless given\n  --channels-last  images with the channels innermost\n  --channels-last-outputs  outputs alone\n  --element TYPE   f16 or bf16, float unless given\n  --run-time       weights that are prepared in each run\n  --only TEXT      convolutions whose names contain this"
    )]
    Choice(Words),
    /// Times fused layers beside the same convolutions one after the other
    #[command(
        after_help = "Options of the benchmark:\n  --threads N      1 unless given\n  --rounds N       7 unless given\n  --isa NAME       the fastest of this CPU unless given\n  --only TEXT      chains whose names contain this\n  --all            bands of each number of rows, too"
    )]
    FusedLayers(Words),
    /// Times an execution on a GPU on the host, beside MIOpen's own calls and AMD's provider
    Dispatch(dispatch::Options),
    /// Times making a session of many nodes and programs, and whose time it is
    Claims,
}

/// Runs the engine's own benchmark, then the script that compares; or another one.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.other {
        Some(Other::Dispatch(options)) => return dispatch::run(options),
        Some(Other::Conv(options)) => {
            let cache = workspace::cache().join("models");
            return by_class("bench_conv.py", &["--cache".into(), cache.into()], &options.words);
        }
        Some(Other::Nodes(options)) => return by_class("bench_nodes.py", &[], &options.words),
        Some(Other::Epilogues(options)) => return engine("hipdnn-engine-cpu", "epilogues", &options.words),
        Some(Other::Choice(options)) => {
            // Cargo runs benchmarks in their package's directory.
            let absolute = |word: &String| path::absolute(word).ok().filter(|path| path.is_file());
            let words: Vec<OsString> =
                options.words.iter().map(|word| absolute(word).map_or_else(|| word.into(), OsString::from)).collect();
            return engine("hipdnn-cpu-convolution", "choice", &words);
        }
        Some(Other::FusedLayers(options)) => return engine("hipdnn-cpu-convolution", "fused_layers", &options.words),
        Some(Other::Claims) => {
            return process::run(&mut environment()?.script("bench_claims.py"), "the measurement");
        }
        None => {}
    }
    let environment = environment()?;
    let mut command = environment.script(if options.precisions { "bench_precisions.py" } else { "bench.py" });
    command
        .arg("--cache")
        .arg(workspace::cache().join("models"))
        .args(["--turns", if options.quick { "3" } else { "9" }]);
    if options.precisions {
        return process::run(&mut command, "the comparison");
    }
    if options.layers {
        command.args(["--skip", "models"]);
    }
    if options.models {
        command.args(["--skip", "layers"]);
    } else {
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

/// Single cases by class, beside the peak of this machine; the options of the script alone where these are asked for.
fn by_class(script: &str, options: &[OsString], arguments: &[String]) -> Result<()> {
    let environment = environment()?;
    let mut command = environment.script(script);
    if !arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        command.args(["--peak", &peak()?]);
    }
    process::run(command.args(options).args(arguments), "the comparison")
}

/// Rate of multiply-adds of this machine just now, as the engine's benchmark prints it.
fn peak() -> Result<String> {
    let mut engine = workspace::cargo();
    engine.args(["bench", "--quiet", "--package", "hipdnn-engine-cpu", "--bench", "host", "--", "--peak"]);
    let output = process::capture(&mut engine)?;
    if !output.status.success() {
        return Err(format!("the engine's benchmark failed: {}", process::tail(&output.stderr, 5)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A benchmark of the CPU engine alone.
fn engine(package: &str, bench: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "--package", package, "--bench", bench, "--"]);
    process::run(command.args(arguments), &format!("the benchmark {bench}"))
}
