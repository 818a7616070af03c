//! `cargo xtask bench dispatch`: the host's time for an execution on a GPU, and the time to a first result, beside
//! MIOpen's own calls and those of AMD's provider.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::gpu::{self, Gpu, Wanted};
use crate::{Result, emulated_gpu, process, workspace};

const CASES: [&str; 2] = ["conv", "conv+bias+relu"];

/// Processes of each kind whose median is the time to a first result.
const PROCESSES: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    wanted: Wanted,
    /// Fewer repetitions
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub(super) fn run(options: &Options) -> Result<()> {
    let text = tables(&Gpu::ensure(options.wanted)?, options.quick)?;
    print!("{text}");
    if text.contains("NOT held") { Err("an execution costs more than it may".into()) } else { Ok(()) }
}

/// Both tables in Markdown.
pub(crate) fn tables(gpu: &Gpu, quick: bool) -> Result<String> {
    workspace::build_release()?;
    let program = gpu::build_program("bench", "dispatch")?;
    let mut command = gpu.command(&program);
    command.args(["--batches", if quick { "31" } else { "201" }]);
    let scratch = workspace::target().join("bench-dispatch");
    // A leftover of a run that was stopped.
    let _ = fs::remove_dir_all(&scratch);
    gpu.caches(&mut command, &scratch.join("dispatch"));
    let mut text = format!("Host time of one execution on {}:\n\n", gpu.name());
    text += &text_of(&mut command, "the dispatch benchmark")?;
    let _ = writeln!(
        text,
        "\nMilliseconds to a first result, from the first question to the end of the stream's work;\nthe first process finds all caches empty:\n"
    );
    text += "| case | process | HIPDNN_RS_GPU_ENGINE | AMD's provider | ratio |\n|---|---|---|---|---|\n";
    for case in CASES {
        let processes = if quick { 1 } else { PROCESSES };
        // By process on the same caches, which the first finds empty, then by who (ours, provider).
        let mut times = [[(); 2]; 3].map(|row| row.map(|()| Vec::new()));
        for round in 0..processes {
            for (who, name) in ["ours", "provider"].into_iter().enumerate() {
                let caches = scratch.join(format!("{case}-{name}-{round}"));
                for row in &mut times {
                    row[who].push(first_result(gpu, &program, name, case, &caches)?);
                }
            }
        }
        for (process, [ours, provider]) in ["first", "second", "third"].into_iter().zip(&times) {
            let (ours, provider) = (median(ours), median(provider));
            let _ = writeln!(text, "| {case} | {process} | {ours:.1} | {provider:.1} | {:.2} |", ours / provider);
        }
    }
    fs::remove_dir_all(&scratch)?;
    if let Gpu::Emulated(installation) = gpu {
        text += "\nHost time of a run of the execution provider, with memory bound on the device. The program is from the entry of\n\
                 the provider's Compute to its return, the ratio that of it to the bare launches of its kernels; ONNX Runtime's own\n\
                 part is the rest of the run, with the application's call:\n\n";
        text += &emulated_gpu::programs(installation)?;
    }
    Ok(text)
}

fn first_result(gpu: &Gpu, program: &Path, who: &str, case: &str, caches: &Path) -> Result<f64> {
    fs::create_dir_all(caches.join("home"))?;
    let mut command = gpu.command(program);
    gpu.caches(&mut command, caches);
    command.args(["--first-result", who, "--case", case]);
    let text = text_of(&mut command, "the measurement of a first result")?;
    text.trim().parse().map_err(|_| format!("the benchmark printed {text:?}, not a number").into())
}

fn text_of(command: &mut std::process::Command, what: &str) -> Result<String> {
    let output = process::capture(command)?;
    if !output.status.success() {
        let (status, tail) = (process::describe(output.status), process::tail(&output.stderr, 5));
        return Err(format!("{what} failed ({status}): {tail}").into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
