//! `cargo xtask ort-conformance`: onnx's backend tests on the execution provider, beside ONNX Runtime's CPU provider.

use std::process::Stdio;

use crate::demo::ONNXRUNTIME;
use crate::python::Environment;
use crate::test::remove_settings;
use crate::{Result, dist, process, workspace};

/// The release of onnx whose cases are run.
const ONNX: &str = "onnx==1.21.0";

/// Random nodes and graphs of `--random` without numbers of its own.
const RANDOM: [&str; 4] = ["--nodes", "20000", "--graphs", "5000"];

/// Options of the scripts.
pub(crate) const HELP: &str = "Options of the scripts:
  --only REGEX | --sample N    fewer cases, and no page
  --run coverage | defaults    one of the two runs, and no page
  --random [--nodes N --graphs N --seed S]
                               random nodes (20000) and graphs (5000) instead";

/// Builds, installs into a Python environment, runs the script and writes `ORT-CONFORMANCE.md`. With arguments they are the
/// script's, and the page stays as it is.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let [random, rest @ ..] = arguments
        && random == "--random"
    {
        let mut command = environment("building the libraries and the wheel (release) …")?.script("suite_random.py");
        remove_settings(&mut command);
        command.args(if rest.is_empty() { RANDOM.map(str::to_string).to_vec() } else { rest.to_vec() });
        return process::run(&mut command, "the random suite");
    }
    let mut command = environment("building the libraries and the wheel (release) …")?.script("ort_conformance.py");
    command.arg("--json").arg(workspace::target().join("ort-conformance.json"));
    if arguments.is_empty() {
        command.arg("--page").arg(workspace::root().join("ORT-CONFORMANCE.md"));
    }
    remove_settings(&mut command);
    let status = command.args(arguments).stdin(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(_) => Err("the provider fails where ONNX Runtime's CPU provider does not (see above)".into()),
        None => Err(format!("the suite was {}", process::describe(status)).into()),
    }
}

/// A Python environment with the wheel of this tree.
fn environment(announcement: &str) -> Result<Environment> {
    eprintln!("{announcement}");
    let wheel = dist::build()?.wheel;
    let runtime = format!("onnxruntime=={ONNXRUNTIME}");
    let environment = Environment::ensure("ort-conformance", &[&runtime, ONNX, "numpy>=2,<3"])?;
    environment.install_wheel(&wheel)?;
    Ok(environment)
}
