//! Processes without MIOpen, without what it is linked to, without a device, or with libraries that are not what they are
//! called: the plugin loads, the CPU engine works, convolutions are declined by the GPU engine, and one line says what is
//! missing. What the GPU engine takes then is in `claims`.

use std::path::{Path, PathBuf};

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_rs_integration_tests::tensor::HostTensor;
use hipdnn_schemas::{DataType, EngineConfig};
use hipdnn_sdk_bindings::hipdnn::plugin::{Severity, engine_id};

use crate::bench::{ENGINE, plugin, told};
use crate::case::Layout;
use crate::child::{Child, Ended, library_directories};
use crate::compiler::compile;
use crate::harness::{self, Outcome, Test};
use crate::logged;
use crate::table::{conv, fused};
use crate::trace::scratch;

const HOST: &str = "HIPDNN_RS_CPU_ENGINE";

/// The role of the processes.
pub(crate) const ROLE: &str = "without a GPU";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("no HIP and no MIOpen", || says(Child::with_libraries(ROLE, None), &["libMIOpen.so"])),
        Test::new("no MIOpen", || {
            let libraries = libraries_without("no-miopen", &["libMIOpen"])?;
            says(with_device(Child::with_libraries(ROLE, Some(&[&libraries]))), &["libMIOpen.so"])
        }),
        Test::new("no hiprtc", || {
            let libraries = libraries_without("no-hiprtc", &["libhiprtc.so"])?;
            says(with_device(Child::with_libraries(ROLE, Some(&[&libraries]))), &["libMIOpen.so", "libhiprtc.so"])
        }),
        Test::new("no comgr", || {
            let libraries = libraries_without("no-comgr", &["libamd_comgr"])?;
            says(with_device(Child::with_libraries(ROLE, Some(&[&libraries]))), &["libMIOpen.so", "libamd_comgr.so"])
        }),
        Test::new("a MIOpen that is too old", || {
            const SOURCE: &str = "#include <stddef.h>\n\
                int miopenGetVersion(size_t *a, size_t *b, size_t *c) { *a = 2; *b = 19; *c = 0; return 0; }";
            let old = library("old-miopen", "libMIOpen.so.1", SOURCE)?;
            says(with_device(beside_the_real(&old)?), &["libMIOpen.so.1", "2.19.0", "3.x"])
        }),
        Test::new("no device", || says(Child::of(ROLE).env("HIPEMU_DEVICES", "0"), &["hipErrorNoDevice"])),
        Test::new("a MIOpen without functions", || {
            let broken = library("broken-miopen", "libMIOpen.so.1", "int miopenNothing(void) { return 0; }")?;
            says(with_device(beside_the_real(&broken)?), &["has no symbol miopen", "libMIOpen.so.1"])
        }),
        Test::new("a MIOpen that is no library", || {
            let broken = scratch("no-library");
            std::fs::create_dir_all(&broken)
                .and_then(|()| std::fs::write(broken.join("libMIOpen.so.1"), "text"))
                .map_err(|error| error.to_string())?;
            says(with_device(beside_the_real(&broken)?), &["libMIOpen.so.1"])
        }),
        Test::new("a HIP without functions", || {
            let broken = library("broken-hip", "libamdhip64.so.7", "int hipNothing(void) { return 0; }")?;
            says(beside_the_real(&broken)?, &["libMIOpen.so"])
        }),
        Test::new("HIP cannot start", || {
            says(Child::of(ROLE).env("HIPEMU_FAIL", "hipGetDeviceCount:1=3"), &["hipGetDeviceCount"])
        }),
    ]
}

/// A directory with all of the emulated GPU's libraries but those.
pub(crate) fn libraries_without(name: &str, left_out: &[&str]) -> Result<PathBuf, String> {
    let directory = scratch(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    for from in library_directories()? {
        for file in std::fs::read_dir(&from).map_err(|error| format!("{}: {error}", from.display()))?.flatten() {
            let name = file.file_name();
            let text = name.to_string_lossy();
            if text.contains(".so") && !left_out.iter().any(|name| text.starts_with(name)) {
                // The first directory of the path wins.
                let _ = std::os::unix::fs::symlink(file.path(), directory.join(&name));
            }
        }
    }
    Ok(directory)
}

/// A directory with one library of that name, made from this source.
fn library(directory: &str, name: &str, source: &str) -> Result<PathBuf, harness::Ended> {
    let directory = scratch(directory);
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    compile(source, &directory.join(name), &[&format!("-Wl,-soname,{name}")])?;
    Ok(directory)
}

/// Switches the CPU engine on: where HIP has a device buffers may be on it, so it leaves graphs alone unless it is told
/// that they are not.
fn with_device(child: Child) -> Child {
    child.env("HIPDNN_RS_CPU_ENGINE", "on")
}

/// The usual libraries, with a directory before them.
fn beside_the_real(first: &Path) -> Result<Child, String> {
    let usual = library_directories()?;
    let all: Vec<&Path> = [first].into_iter().chain(usual.iter().map(PathBuf::as_path)).collect();
    Ok(Child::with_libraries(ROLE, Some(&all)))
}

/// The process does its work, and of all that the plugin says, but for what it says of a graph, one line at level info
/// tells why, with these words.
fn says(child: Child, words: &[&str]) -> Outcome {
    let Ended { stdout, stderr, .. } = child.succeeds()?;
    let general = stdout.lines().filter(|line| !line.contains(" graph "));
    let about: Vec<&str> = general.filter(|line| words.iter().all(|word| line.contains(word))).collect();
    match about[..] {
        [line] if line.starts_with("info: ") => {}
        _ => return Err(format!("expected one info line with {words:?}, got:\n{stdout}").into()),
    }
    let bad: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("info: ")).collect();
    if !bad.is_empty() {
        return Err(format!("worse than info:\n{}", bad.join("\n")).into());
    }
    if !stderr.is_empty() {
        return Err(format!("on standard error:\n{stderr}").into());
    }
    Ok(())
}

/// The role: everything that a host does, several times, on host memory; then what the plugin said.
pub(crate) fn without_gpu() -> Result<(), String> {
    let plugin = plugin();
    logged::listen(&plugin, Severity::INFO)?;
    let ids = plugin.engine_ids().map_err(|error| told(&error))?;
    for engine in [HOST, ENGINE] {
        if !ids.contains(&engine_id(engine)) {
            return Err(format!("{engine} is not listed"));
        }
    }
    for _ in 0..2 {
        let handle = plugin.handle().map_err(|error| told(&error))?;
        for case in [
            conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First),
            fused("2d asymmetric", DataType::Half, Layout::Last, "bias residual relu"),
        ] {
            let graph = case.graph();
            let taken = handle.applicable(&graph).map_err(|error| told(&error))?;
            if taken != [engine_id(HOST)] {
                return Err(format!("{taken:?} take the graph"));
            }
            let refused = handle.plan(&crate::bench::config(&[]), &graph).err();
            crate::bench::is_told(&refused.ok_or("the GPU engine builds a plan")?)?;
            let config = EngineConfig { engine_id: engine_id(HOST), knobs: Vec::new() }.to_bytes();
            let plan = handle.plan(&config, &graph).map_err(|error| told(&error))?;
            let mut inputs = case.values();
            let wanted = case.wanted(&inputs, true);
            let mut y = HostTensor::blank(&case.outputs()[0]);
            let mut buffers: Vec<_> = inputs.iter_mut().map(HostTensor::buffer).collect();
            buffers.push(y.buffer());
            // SAFETY: each buffer has memory for all elements of its tensor.
            unsafe { plan.execute(&buffers) }.map_err(|error| told(&error))?;
            wanted.check(&[&y])?;
        }
    }
    for (severity, line) in logged::lines() {
        println!("{}: {line}", if severity == Severity::INFO { "info".to_owned() } else { severity.to_string() });
    }
    Ok(())
}
