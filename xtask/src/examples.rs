//! The programs of `examples/`: what the suite that runs them needs.

use std::path::PathBuf;
use std::process::Command;

use crate::emulated_gpu::{self, Prepared};
use crate::supply::STALE_LOCK;
use crate::{Result, process, workspace};

/// Debian's package with ONNX Runtime's headers; those of an older release are good for newer libraries.
const HEADERS: &str = "libonnxruntime-dev";

/// Tells the suite by environment variables where headers and programs are, or why they are missing.
pub(crate) fn describe(command: &mut Command) -> Result<()> {
    for (name, found) in [("ORT_HEADERS", headers()?), ("RUST_SESSION", rust_session()?)] {
        match found {
            Ok(path) => command.env(name, path),
            Err(reason) => command.env(format!("{name}_MISSING"), reason),
        };
    }
    Ok(())
}

fn headers() -> Result<Result<PathBuf, String>> {
    Ok(match emulated_gpu::debian_package(HEADERS)? {
        Prepared::Ready(directory) => Ok(directory.join("usr/include/onnxruntime")),
        Prepared::Unavailable(reason) => Err(format!("no package {HEADERS}: {}", reason.0)),
    })
}

/// How cargo says that the compiler is older than a package wants.
const OLD_COMPILER: &str = "is not supported by the following package";

/// Builds the program in Rust; the inner error is why its packages can't be had or built by this compiler.
fn rust_session() -> Result<Result<PathBuf, String>> {
    let target = workspace::target().join("examples");
    let cargo = |arguments: &[&str]| {
        let mut command = workspace::cargo();
        command.current_dir(workspace::root().join("examples/rust"));
        command.args(arguments).arg("--locked").env("CARGO_TARGET_DIR", &target);
        command
    };
    let fetched = process::capture(&mut cargo(&["fetch"]))?;
    if !fetched.status.success() {
        let said = format!("the packages of examples/rust can't be had: {}", process::tail(&fetched.stderr, 3));
        return if said.contains(STALE_LOCK) { Err(said.into()) } else { Ok(Err(said)) };
    }
    let built = process::capture(&mut cargo(&["build", "--quiet", "--offline"]))?;
    let said = process::tail(&built.stderr, 12);
    if built.status.success() {
        Ok(Ok(target.join("debug/session")))
    } else if said.contains(OLD_COMPILER) {
        Ok(Err(said))
    } else {
        Err(format!("examples/rust can't be built: {said}").into())
    }
}
