//! `cargo xtask fuzz [--asan] [--iterations N] [--seed N]`: mutated input through both ABIs, longer than the test suite
//! does, or with an address sanitizer in the libraries.

use std::process::Command;

use crate::{Result, process, workspace};

/// Default number of inputs: a few minutes on two cores.
const ITERATIONS: u64 = 1_000_000;

/// Default number of inputs for instrumented libraries, which are many times slower.
const SANITIZED_ITERATIONS: u64 = 20_000;

/// Target that has the sanitizer's run-time library.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Outcome of a run that found nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every input was refused or served.
    Passed,
    /// The sanitizer cannot be had, for this reason.
    Skipped(String),
}

/// Runs the mutation tests. A sanitizer that cannot be had is said and is no failure.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Outcome::Skipped(reason) = fuzz(options)? {
        println!("fuzz: skipped: {reason}");
    }
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// With an address sanitizer
    #[arg(long)]
    pub(crate) asan: bool,
    /// Number of inputs [default: 1000000, with a sanitizer 20000]
    #[arg(long, value_name = "N")]
    pub(crate) iterations: Option<u64>,
    /// Seed of the inputs
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
}

/// Runs the mutation tests.
pub(crate) fn fuzz(options: &Options) -> Result<Outcome> {
    let default = if options.asan { SANITIZED_ITERATIONS } else { ITERATIONS };
    let mut test = test_command();
    test.env("HIPDNN_RS_FUZZ_ITERATIONS", options.iterations.unwrap_or(default).to_string());
    if let Some(seed) = options.seed {
        test.env("HIPDNN_RS_FUZZ_SEED", seed.to_string());
    }
    if options.asan {
        if let Err(reason) = instrument_libraries() {
            return Ok(Outcome::Skipped(reason));
        }
        instrument(&mut test);
        test.args(["--target", TARGET]);
        test.env("HIPDNN_RS_LIB_DIR", asan_target().join(TARGET).join("release"));
        // The sanitizer maps terabytes for its own use, and takes signals itself.
        test.env("HIPDNN_RS_FUZZ_NO_LIMIT", "1");
        test.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=1:detect_odr_violation=0");
    } else {
        workspace::build_release()?;
        test.env("HIPDNN_RS_LIB_DIR", workspace::release());
    }
    test.args(["--", "--nocapture"]);
    process::run(&mut test, "the mutation test")?;
    Ok(Outcome::Passed)
}

fn test_command() -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--release", "--quiet", "--package", "hipdnn-rs-integration-tests", "--test", "hostile"]);
    command
}

fn asan_target() -> std::path::PathBuf {
    workspace::target().join("asan")
}

/// Sanitizers are for nightly compilers; the stable one has them too, and takes the option when told that it builds
/// the standard toolchain.
///
/// Libraries and test program are built with the same flags, and so share what both are made of. The sanitizer's
/// run-time library is in the program, and the libraries that it opens look for it there: hence `-rdynamic`. Compiling
/// takes far longer than the inputs: no optimization is quickest on the whole.
fn instrument(command: &mut Command) {
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", asan_target());
    command.env("RUSTFLAGS", "-Zsanitizer=address -Clink-args=-rdynamic");
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
}

/// Builds the libraries with the sanitizer; the error is the reason why that is not possible.
fn instrument_libraries() -> Result<(), String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(format!("the address sanitizer is used on {TARGET} only"));
    }
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--quiet", "--target", TARGET]);
    build.args(["--package", "hipdnn-rs-plugin", "--package", "hipdnn-rs-backend"]);
    instrument(&mut build);
    let output = process::capture(&mut build).map_err(|problem| problem.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the libraries do not build with the address sanitizer:\n{}", process::tail(&output.stderr, 5)))
}
