//! The project's own commands, run as `cargo xtask <command>`.

mod architecture;
mod bench;
mod claims;
mod codegen;
mod conformance;
mod demo;
mod dist;
mod emulated_gpu;
mod fuzz;
mod gpu;
mod gpu_check;
mod installed;
mod interop;
mod ort_conformance;
mod process;
mod python;
mod summary;
mod support;
mod test;
mod wheel;
mod workspace;

use std::process::ExitCode;

/// Errors are sentences for the person at the terminal.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const USAGE: &str = "usage: cargo xtask <command>

  demo     build, fetch a text detector and a page, run both on the provider and on ONNX Runtime's CPU provider
             --model FILE.onnx [--shape NAME=1x3x224x224] [--value NAME=NUMBER]   any other model, generated input
             --image FILE                                                         any other picture for the detector
             --runs N                                                             timed runs of each (15)
  test     every suite that can run here; ends with `N passed, N failed, N skipped`
             --fast                    unit tests, C programs and one ONNX Runtime only
             --ort VERSION             only this release of ONNX Runtime; may be repeated
             --whole                   on the emulated GPU all cases of operators and failing calls, not samples (hours); a run
                                       that was interrupted goes on, as long as the libraries are the same
             --only NAME …             only suites whose name contains one of these
  conformance
           thousands of graphs, or random ones, on any engine, judged against double precision
             --plugin FILE --engine NAME         any vendor's (this project's, HIPDNN_RS_CPU_ENGINE)
             --filter TEXT | --sample N          fewer cases
             --sample covering                   a case of every rule, types and layout
             --random N [--seed S]               random graphs instead
             --knob NAME=VALUE                   a setting for every plan
             --claims [--check]                  rewrite CONFORMANCE.md, what the engines take (--check: only compare)
             --junit FILE | --json FILE          reports for programs
             --real | --emulated                 the GPU for an engine that needs one
  ort-conformance
           onnx's backend tests and light models on the provider and on the CPU provider; rewrites ORT-CONFORMANCE.md
             --only REGEX | --sample N           fewer cases, and no page
             --run coverage | defaults           one of the two runs, and no page
             --random [--nodes N --graphs N --seed S]   random nodes (20000) and graphs (5000) instead
  dist     target/dist: the libraries in their installed places, headers, pkg-config file and Python wheel
  bench    time per convolution layer and per model beside ONNX Runtime's CPU provider
             --quick                   fewer repetitions
             --layers | --models       only one of the two tables
  bench epilogues
           time of convolutions with what follows on them, fused and as a pass of its own, by the CPU engine alone
             --threads N               1 unless given
             [LAYER [TAIL]]            only names that contain these
  bench dispatch
           host time of an execution on a GPU, beside MIOpen's own calls and AMD's provider
             --real | --emulated       this machine's GPU (the default if there is one) or the emulated one
  bench claims
           what making a session of many nodes and programs costs, and whose it is
  support  rewrite SUPPORT.md from the plugin's tables (--check: only compare)
  architecture
           rewrite the arrows between crates in ARCHITECTURE.md
             --check                   compare them, and check layers, sizes of crates and circles of files
             --lines                   production lines of each crate
  codegen  regenerate the committed code: FlatBuffers, HIP, hiprtc, MIOpen (--check: only compare)
  emulated-gpu setup | build | test | run PROGRAM … | python SCRIPT … | runner
           the real MIOpen on an emulated GPU, from Debian packages and without root
  gpu-check
           run convolutions, conformance cases and the dispatch benchmark on a GPU and write one report file
             --real | --emulated       this machine's GPU (the default if there is one) or the emulated one
             --quick                   fewer cases and repetitions
             --report FILE             where to (gpu-check.md)
  interop  C++ programs that call the libraries as hipDNN's own backend and frontend do
             --device                  on the emulated GPU
             --sample | --only TEXT    fewer cases
             --large                   cases of millions of elements too
  fuzz     bounded, seeded mutation run over graphs, configurations and JSON";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return ExitCode::from(u8::from(arguments.is_empty()));
    }
    let command = arguments.remove(0);
    let outcome = match command.as_str() {
        "demo" => demo::run(&arguments),
        "test" => test::run(&arguments),
        "dist" => dist::run(&arguments),
        "bench" => bench::run(&arguments),
        "emulated-gpu" => emulated_gpu::run(&arguments),
        "codegen" => codegen::run(&arguments),
        "conformance" => conformance::run(&arguments),
        "fuzz" => fuzz::run(&arguments),
        "ort-conformance" => ort_conformance::run(&arguments),
        "gpu-check" => gpu_check::run(&arguments),
        "interop" => interop::run(&arguments),
        "support" => support::run(&arguments),
        "architecture" => architecture::run(&arguments),
        _ => Err(format!("there is no command {command:?}\n\n{USAGE}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cargo xtask {command}: {problem}");
            ExitCode::FAILURE
        }
    }
}
