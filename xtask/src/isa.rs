//! `cargo xtask isa`: numbers of the machine code that kernels compile to, held against a committed table.

use crate::emulated_gpu::{self, Prepared};
use crate::test::emulated_tests;
use crate::{Result, process, workspace};

/// The test target; it says what the table holds.
const TARGET: [&str; 4] = ["--package", "hipdnn-rs-integration-tests", "--test", "isa"];

/// Tells the test to write the table.
const WRITE: &str = "HIPDNN_RS_ISA_WRITE";

/// Writes the table anew, or only compares.
///
/// # Errors
/// If there is no compiler for GPUs, a kernel is beyond the limits, or the committed table is another one.
pub(crate) fn run(check: bool) -> Result<()> {
    let installation = match emulated_gpu::ensure_with_kernels()? {
        Prepared::Ready(installation) => installation,
        Prepared::Unavailable(reason) => return Err(reason.0.into()),
    };
    workspace::build_release()?;
    let mut command = workspace::cargo();
    command.arg("test").args(TARGET).env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", installation.runner());
    command.env("HIPDNN_RS_LIB_DIR", workspace::release());
    if !check {
        command.env(WRITE, "1");
    }
    process::run(&mut command, "the kernels' code")
}

/// Compares, and counts in `summary`.
pub(crate) fn test(summary: &mut crate::summary::Summary) -> Result<()> {
    emulated_tests("machine code of kernels", &TARGET, summary)
}
