//! `cargo xtask isa`: numbers of the machine code that kernels compile to, and the issue model's, held against committed tables.

use crate::emulated_gpu::{self, Prepared};
use crate::test::emulated_tests;
use crate::{Result, process, workspace};

/// The test target, of the whole workspace: packages are then those that `cargo test` has built. It says what the tables hold.
const TARGET: [&str; 3] = ["--workspace", "--test", "isa"];

/// Tells the test to write the tables.
const WRITE: &str = "HIPDNN_RS_ISA_WRITE";

/// Tells the test to print the issue model's table and no more.
const PRINT: &str = "HIPDNN_RS_ISA_PRINT";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare
    #[arg(long, conflicts_with = "issue")]
    check: bool,
    /// Only print the issue model's table: the share of memory bandwidth that instructions allow
    #[arg(long)]
    issue: bool,
}

/// Writes the tables anew, compares them, or prints the issue model's.
///
/// # Errors
/// If there is no compiler for GPUs, a kernel is beyond the limits, or the committed table is another one.
pub(crate) fn run(options: &Options) -> Result<()> {
    let installation = match emulated_gpu::ensure_with_kernels()? {
        Prepared::Ready(installation) => installation,
        Prepared::Unavailable(reason) => return Err(reason.0.into()),
    };
    workspace::build_release()?;
    let mut command = workspace::cargo();
    command.arg("test").args(TARGET).env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", installation.runner());
    command.env("HIPDNN_RS_LIB_DIR", workspace::release());
    match options {
        Options { issue: true, .. } => command.env(PRINT, "1"),
        Options { check: false, .. } => command.env(WRITE, "1"),
        Options { .. } => &mut command,
    };
    process::run(&mut command, "the kernels' code")
}

/// Compares, and counts in `summary`.
pub(crate) fn test(summary: &mut crate::summary::Summary) -> Result<()> {
    emulated_tests("machine code of kernels", &TARGET, &[], summary)
}
