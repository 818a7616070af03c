//! The project's own commands, run as `cargo xtask <command>`.

mod architecture;
mod bench;
mod book;
mod claims;
mod codegen;
mod conformance;
mod cuda_gpu;
mod demo;
mod dist;
mod emulated_gpu;
mod examples;
mod fuzz;
mod gpu;
mod gpu_check;
mod hipdnn_numbers;
mod install;
mod installed;
mod interop;
mod isa;
mod ort_conformance;
mod process;
mod python;
mod python_module;
mod rocm_interop;
mod spills;
mod summary;
mod supply;
mod support;
mod test;
mod tools;
mod wheel;
mod workspace;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Errors are sentences for the person at the terminal.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds, fetches a text detector and a page, runs both on the provider and on ONNX Runtime's CPU provider
    #[command(after_help = demo::HELP)]
    Demo(Words),
    /// Runs every suite that can run here; ends with `N passed, N failed, N skipped`
    Test(test::Choice),
    /// Judges thousands of graphs, or random ones, on any engine
    #[command(after_help = conformance::HELP)]
    Conformance(Words),
    /// Runs onnx's backend tests and light models on the provider and on the CPU provider; rewrites ORT-CONFORMANCE.md
    #[command(after_help = ort_conformance::HELP)]
    OrtConformance(Words),
    /// Fills target/dist: the libraries in their installed places, headers, pkg-config file and Python wheel
    Dist,
    /// Installs components below a prefix, or removes them
    #[command(after_help = install::HELP)]
    Install(install::Options),
    /// Makes an archive and a Debian package of each component, with checksums
    #[command(after_help = install::package::HELP)]
    Package(install::package::Options),
    /// Builds the wheel of the Python module for graphs
    PythonModule,
    /// Times each convolution layer and model, beside ONNX Runtime's CPU provider
    Bench(bench::Options),
    /// Rewrites SUPPORT.md and the book's page of knobs from the tables of plugin and provider
    Support(Check),
    /// Rewrites the arrows between crates in ARCHITECTURE.md
    Architecture(architecture::Options),
    /// Builds the book of docs/ in target/book
    Book,
    /// Regenerates the committed code: FlatBuffers, pointwise modes, HIP, hiprtc, MIOpen
    Codegen(Check),
    /// Reads enumerations in hipDNN's headers and schemas anew, for the tables of its numbers that tests compare with
    HipdnnNumbers(hipdnn_numbers::Options),
    /// Runs the real MIOpen on an emulated GPU, from Debian packages and without root
    #[command(subcommand)]
    EmulatedGpu(emulated_gpu::Action),
    /// Runs everything on an NVIDIA GPU, by HIP over CUDA: a vehicle for tests and measurements
    #[command(subcommand)]
    CudaGpu(cuda_gpu::Action),
    /// Runs convolutions, conformance cases and the dispatch benchmark on a GPU and writes one report file
    GpuCheck(gpu_check::Options),
    /// Compiles kernels for several architectures and rewrites the tables of what their machine code is made of and allows
    Isa(isa::Options),
    /// Counts the CPU engine's loops of outer products that keep vectors on the stack
    Spills,
    /// Runs C++ programs that call the libraries as hipDNN's own backend and frontend do
    Interop(interop::Options),
    /// Runs our plugin in ROCm's hipDNN and hipDNN's samples on both backends; writes a report
    #[command(after_help = rocm_interop::HELP)]
    RocmInterop(rocm_interop::Options),
    /// Runs mutated graphs, configurations and JSON through the libraries, bounded and seeded
    Fuzz(fuzz::Options),
}

/// Options of the program that a command runs.
#[derive(Args)]
struct Words {
    /// Handed on to the program as they are
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Check {
    /// Only compare
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo(options) => demo::run(&options.words),
        Command::Test(choice) => test::run(&choice),
        Command::Conformance(options) => conformance::run(&options.words),
        Command::OrtConformance(options) => ort_conformance::run(&options.words),
        Command::Dist => dist::run(),
        Command::Install(options) => install::run(&options),
        Command::Package(options) => install::package::run(&options),
        Command::PythonModule => python_module::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Support(options) => support::run(options.check),
        Command::Architecture(options) => architecture::run(&options),
        Command::Book => book::run(),
        Command::Codegen(options) => codegen::run(options.check),
        Command::HipdnnNumbers(options) => hipdnn_numbers::run(&options),
        Command::EmulatedGpu(action) => emulated_gpu::run(&action),
        Command::CudaGpu(action) => cuda_gpu::run(&action),
        Command::GpuCheck(options) => gpu_check::run(&options),
        Command::Isa(options) => isa::run(&options),
        Command::Spills => spills::run(),
        Command::Interop(options) => interop::run(&options),
        Command::RocmInterop(options) => rocm_interop::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cargo xtask {}: {problem}", std::env::args().nth(1).unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// The options in a line of words.
#[cfg(test)]
fn parse<T: Args>(line: &str) -> clap::error::Result<T> {
    let command = T::augment_args(clap::Command::new("test").no_binary_name(true));
    T::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_description_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_of_other_programs_are_handed_on() {
        let line = "xtask conformance --emulated --knob a=1 --real -- --help";
        let Ok(Arguments { command: Command::Conformance(options) }) = Arguments::try_parse_from(line.split(' '))
        else {
            panic!("{line} is valid");
        };
        assert_eq!(options.words, ["--emulated", "--knob", "a=1", "--real", "--", "--help"]);
    }
}
