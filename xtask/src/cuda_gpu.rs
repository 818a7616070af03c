//! `cargo xtask cuda-gpu`: the built libraries and suites on an NVIDIA GPU, by HIP over CUDA.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::install::layout;
use crate::{Result, dist, process, python, python_module, workspace};

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Builds everything and fills target/cuda-gpu, and an archive of it beside: what runs where such a GPU is
    Bundle,
    /// Bundles and runs conformance, random graphs and the provider's suites; says why where there is no such GPU
    Test {
        /// Samples
        #[arg(long)]
        quick: bool,
    },
    /// Bundles and prints the share of memory bandwidth that kernels reach, beside PyTorch's
    Bench {
        /// Options of bench.py
        #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Bundles and prints the times of a ResNet-50 as one graph, beside PyTorch's
    Network {
        /// Options of network.py
        #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// The packages beside those of the wheels.
const PACKAGES: [&str; 2] = ["hipdnn-conformance", "hipdnn-cuda-gpu"];

/// The most bytes of the archive.
const MOST_BYTES: u64 = 50 << 20;

/// Files of the vehicle's folder that run on the other machine.
const SCRIPTS: [&str; 4] = ["vehicle", "bench.py", "graphs.py", "network.py"];

/// Runs one of the commands.
pub(crate) fn run(action: &Action) -> Result<()> {
    let (command, words) = match action {
        Action::Bundle => {
            println!("{}", archive(&bundle()?)?.display());
            return Ok(());
        }
        Action::Test { quick } => ("test", if *quick { vec!["--quick".to_owned()] } else { Vec::new() }),
        Action::Bench { words } => ("bench", words.clone()),
        Action::Network { words } => ("network", words.clone()),
    };
    if !has_driver() {
        println!(
            "skipped: this machine has no CUDA driver; target/cuda-gpu/vehicle of `cargo xtask cuda-gpu bundle` runs where one is"
        );
        return Ok(());
    }
    process::run(Command::new(bundle()?.join("vehicle")).arg(command).args(words), "the vehicle")
}

/// True if the dynamic loader knows the driver's library.
fn has_driver() -> bool {
    // A user's PATH may lack the system's programs.
    ["ldconfig", "/sbin/ldconfig"].iter().any(|program| {
        let list = process::capture(Command::new(program).arg("-p"));
        list.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libcuda.so.1"))
    })
}

/// Builds all and fills the bundle's directory anew.
fn bundle() -> Result<PathBuf> {
    let wheels = [dist::build()?.wheel, python_module::build()?];
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--quiet"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", *package]));
    process::run(&mut command, "the release build of the vehicle")?;

    let (to, sources) = (workspace::target().join("cuda-gpu"), workspace::root().join("integration_tests"));
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    for directory in ["bin", "lib", "python", "suites"] {
        fs::create_dir_all(to.join(directory))?;
    }
    for (from, place) in [
        ("hipdnn-conformance", "bin/hipdnn-conformance"),
        ("hipdnn-rs", "bin/hipdnn-rs"),
        ("libhipdnn_cuda_gpu.so", "lib/libhipdnn_cuda_gpu.so"),
    ] {
        layout::stripped(&workspace::release().join(from), &to.join(place))?;
    }
    for wheel in &wheels {
        let mut command = Command::new(python::system()?);
        command.args(["-m", "zipfile", "-e"]).arg(wheel).arg(to.join("python"));
        process::run(&mut command, "unpacking a wheel")?;
    }
    for script in SCRIPTS {
        fs::copy(sources.join("cuda_gpu").join(script), to.join(script))?;
    }
    copy_scripts(&sources.join("python"), &to.join("suites"))?;
    // These take the place of those that ask for the emulated GPU.
    copy_scripts(&sources.join("cuda_gpu/suites"), &to.join("suites"))?;
    Ok(to)
}

/// Copies the Python files and tables below a directory.
fn copy_scripts(from: &Path, to: &Path) -> Result<()> {
    for path in layout::files_below(from)? {
        if path.extension().is_some_and(|extension| extension == "py" || extension == "csv") {
            let place = to.join(path.strip_prefix(from)?);
            fs::create_dir_all(place.parent().expect("a file below a directory"))?;
            fs::copy(&path, place)?;
        }
    }
    Ok(())
}

/// Packs a bundle beside itself.
///
/// # Errors
/// If it is larger than it may be.
fn archive(bundle: &Path) -> Result<PathBuf> {
    let file = bundle.with_extension("tar.gz");
    let mut packer = tar::Builder::new(GzEncoder::new(File::create(&file)?, Compression::default()));
    packer.append_dir_all("cuda-gpu", bundle)?;
    packer.into_inner()?.finish()?;
    let bytes = fs::metadata(&file)?.len();
    if bytes > MOST_BYTES {
        return Err(format!("{}: expected at most {MOST_BYTES} bytes, got {bytes}", file.display()).into());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_are_there() {
        let folder = workspace::root().join("integration_tests/cuda_gpu");
        for script in SCRIPTS.into_iter().chain(["suites/emulated_gpu.py"]) {
            assert!(folder.join(script).is_file(), "{script}");
        }
    }
}
