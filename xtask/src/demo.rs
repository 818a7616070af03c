//! `cargo xtask demo`: a real network on the provider and on ONNX Runtime's CPU provider, side by side.

use std::process::Stdio;

use crate::python::Environment;
use crate::{Result, dist, process, workspace};

/// The ONNX Runtime that the demo and the benchmark use.
pub(crate) const ONNXRUNTIME: &str = "1.31.1";

/// Options of the script.
pub(crate) const HELP: &str = "Options of the script:
  --model FILE.onnx    any other model, generated input
  --shape NAME=1x3x224x224, --value NAME=NUMBER
                       shape or value of an input of that model; may be repeated
  --image FILE         any other picture for the detector
  --runs N             timed runs of each (15)";

/// Builds, installs into a Python environment, runs the script.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let environment = environment()?;
    let mut command = environment.script("demo.py");
    command.arg("--cache").arg(workspace::cache().join("models"));
    command.arg("--output").arg(workspace::root().join("demo-output"));
    // Paths on the command line are meant from where the user stands, not from the root.
    command.current_dir(std::env::current_dir()?);
    let status = command.args(arguments).stdin(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(()),
        // The script has said what was wrong.
        Some(_) => {
            Err("the provider and ONNX Runtime's CPU provider don't agree, or the run failed (see above)".into())
        }
        None => Err(format!("the demo was {}", process::describe(status)).into()),
    }
}

fn environment() -> Result<Environment> {
    eprintln!("building the libraries and the wheel (release) …");
    let wheel = dist::build()?.wheel;
    eprintln!("preparing a Python environment with ONNX Runtime {ONNXRUNTIME} in .cache/ …");
    let environment =
        Environment::ensure("demo", &[&format!("onnxruntime=={ONNXRUNTIME}"), "numpy>=2,<3", "pillow>=11"])?;
    environment.install_wheel(&wheel)?;
    Ok(environment)
}
