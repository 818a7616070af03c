//! The Python module for graphs: its wheel, and its suite in an environment that has nothing else of this project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::layout::{self, Component};
use crate::install::notices;
use crate::python::{self, Environment};
use crate::summary::{Outcome, Summary};
use crate::{Result, process, test, wheel, workspace};

/// The distribution's name on registries.
const DISTRIBUTION: &str = "hipdnn-rs";

const SUMMARY: &str = "hipDNN graphs: built with calls like NumPy's, planned, run and explained";

/// The packages whose libraries the wheel has, and with them what they link.
const PACKAGES: [&str; 3] = ["hipdnn-python", "hipdnn-rs-backend", "hipdnn-rs-plugin"];

/// The oldest Python, as the tag of the stable ABI and as metadata have it.
const STABLE_ABI: &str = "cp311-abi3";
const PYTHON: &str = ">=3.11";

/// NumPy lends read-only arrays since this version.
const NUMPY: &str = "numpy>=2.1";

/// The environment of the suite: the oldest NumPy, its types of few bits, and the checker of type hints.
const REQUIREMENTS: [&str; 3] = ["numpy==2.1.0", "ml_dtypes==0.5.1", "mypy==1.18.2"];

/// The libraries that the wheel has beside the module, and the module itself under the name that Python looks for.
const LIBRARIES: [(&str, &str); 3] = [
    ("libhipdnn_rs_python.so", "_native.abi3.so"),
    ("libhipdnn_backend.so", "libhipdnn_backend.so"),
    ("libhipdnn_rs_plugin.so", "libhipdnn_rs_plugin.so"),
];

/// Builds the wheel and prints its path.
pub(crate) fn run() -> Result<()> {
    println!("{}", build()?.display());
    Ok(())
}

/// Builds the wheel in `target/python`.
pub(crate) fn build() -> Result<PathBuf> {
    workspace::build_release()?;
    let (root, out) = (workspace::root(), workspace::target().join("python"));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let scratch = out.join("libraries");
    fs::create_dir_all(&scratch)?;
    let mut command = Command::new(python::system()?);
    command.arg(root.join("install/python/build_wheel.py"));
    command.args(["--distribution", DISTRIBUTION, "--version", env!("CARGO_PKG_VERSION")]);
    command.args(["--summary", SUMMARY]);
    command.args(["--tag", STABLE_ABI, "--python", PYTHON, "--requires", NUMPY]);
    command.arg("--readme").arg(root.join("python/README.md")).arg("--package").arg(root.join("python/hipdnn_rs"));
    for license in notices::LICENSES {
        command.arg("--license").arg(root.join(license));
    }
    for (name, bytes) in notices::of(Component::Python, &PACKAGES, SUMMARY)? {
        if name == notices::THIRD_PARTY {
            let path = out.join(name);
            fs::write(&path, bytes)?;
            command.arg("--license").arg(path);
        }
    }
    command.arg("--out").arg(&out);
    for (from, to) in LIBRARIES {
        command.arg(layout::stripped(&workspace::release().join(from), &scratch.join(to))?);
    }
    let output = process::capture(&mut command)?;
    if !output.status.success() {
        return Err(format!("the wheel can't be built: {}", process::tail(&output.stderr, 3)).into());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Builds the wheel, installs it and runs the suite.
pub(crate) fn run_suite(prefix: &Path, summary: &mut Summary) -> Result<()> {
    let built = build()?;
    wheel::test(&built, summary)?;
    let environment = match Environment::ensure("module", &REQUIREMENTS) {
        Ok(environment) => environment,
        Err(problem) => {
            summary.record("python-module", Outcome::Skipped(format!("no Python environment: {problem}")));
            return Ok(());
        }
    };
    environment.install_wheel(&built)?;
    let mut command = environment.script("suite_python_module.py");
    command.env("MODULE_README", workspace::root().join("python/README.md"));
    let results = workspace::target().join("suite_python_module.jsonl");
    test::python_suite(command, "suite_python_module.py", "python-module", &results, prefix, summary)
}
