//! A prefix such as /opt/rocm, in which another hipDNN backend is installed already.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bench, Verdict, check, command, ended, listing, output};
use crate::install::layout::Component;
use crate::install::manifest;
use crate::workspace;

pub(super) fn beside_its_backend(bench: &Bench, directory: &Path) -> Verdict {
    // The stand-in for ROCm's backend is our own with something behind it, so that it is another file.
    let rocm = directory.join("opt/rocm");
    let theirs = rocm.join("lib/libhipdnn_backend.so");
    fs::create_dir_all(rocm.join("lib/hipdnn_plugins/engines"))?;
    fs::create_dir_all(rocm.join("include/hipdnn"))?;
    fs::write(rocm.join("include/hipdnn/theirs.h"), "")?;
    fs::copy(bench.libraries.join("libhipdnn_backend.so"), &theirs)?;
    fs::OpenOptions::new().append(true).open(&theirs)?.write_all(b"ROCm's")?;
    fs::write(rocm.join("lib/hipdnn_plugins/engines/libmiopen_plugin.so"), "no library")?;
    let before = listing(&rocm)?;

    let refused =
        bench.install(&rocm, &Component::STANDARD).err().map(|problem| problem.to_string()).unwrap_or_default();
    check(refused.contains("got lib/libhipdnn_backend.so; nothing was written"), || format!("got {refused:?}"))?;
    check(listing(&rocm)? == before, || "something was written".to_owned())?;

    bench.install(&rocm, &[Component::Plugin, Component::Provider, Component::Dev])?;
    let program = directory.join("link_backend");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compile.arg(workspace::root().join("integration_tests/c/link_backend.c"));
    compile.arg("-I").arg(rocm.join("include")).arg("-L").arg(rocm.join("lib")).arg("-lhipdnn_backend");
    output(&mut compile)?;
    // Its backend loads our plugin beside its own, of which a broken one disturbs nobody.
    let (status, said) = ended(command(&program).env("LD_LIBRARY_PATH", rocm.join("lib")))?;
    check(status == Some(0) && said.contains("HIPDNN_RS_CPU_ENGINE"), || format!("{status:?}: {said}"))?;

    for component in [Component::Plugin, Component::Provider, Component::Dev] {
        check(manifest::uninstall(&rocm, component)?.is_empty(), || format!("{component:?} was changed"))?;
    }
    check(listing(&rocm)? == before, || "removal left something, or took something of ROCm's".to_owned())?;
    Ok(Ok(()))
}

/// `rocm-interop` on made-up prefixes: an empty one, one with a backend, and one with packages and samples.
pub(super) fn interop(bench: &Bench, directory: &Path) -> Verdict {
    let cmake = match &bench.cmake {
        Ok(cmake) => cmake.clone(),
        Err(reason) => return Ok(Err(super::Missing(reason.clone()))),
    };
    let rocm = directory.join("rocm");
    let report = directory.join("report.md");
    fs::create_dir_all(rocm.join(".info"))?;
    fs::write(rocm.join(".info/version"), "7.99\n")?;
    let call = |words: &[&str]| {
        let mut interop = Command::new(env::current_exe()?);
        interop.arg("rocm-interop").arg("--rocm").arg(&rocm).arg("--report").arg(&report).args(words);
        ended(interop.env("CMAKE", &cmake))
    };
    let (status, said) = call(&[])?;
    check(status == Some(1) && said.contains("missing: hipDNN's backend"), || format!("{status:?}: {said}"))?;

    fs::create_dir_all(rocm.join("lib"))?;
    fs::copy(bench.libraries.join("libhipdnn_backend.so"), rocm.join("lib/libhipdnn_backend.so"))?;
    let (status, said) = call(&[])?;
    check(status == Some(0), || said)?;
    let text = fs::read_to_string(&report)?;
    for wanted in [
        "and ROCm 7.99\n",
        "| our plugin in ROCm's backend: a graph on the CPU engine | passed |",
        "| our plugin in our backend: a graph on the CPU engine | passed |",
        "| hipDNN's samples | skipped: missing: hipDNN's frontend (",
    ] {
        check(text.contains(wanted), || format!("expected {wanted:?}, got {text}"))?;
    }

    // Stand-ins for the frontend, HIP and the compiler, and a sample.
    bench.install(&rocm, &[Component::Dev])?;
    let package = |name: &str, file: &str, text: &str| {
        let folder = rocm.join("lib/cmake").join(name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(file), text)
    };
    package("hip", "hip-config.cmake", "")?;
    let frontend = "find_package(hipdnn_rs CONFIG REQUIRED)\nadd_library(hipdnn_frontend INTERFACE IMPORTED)\n\
        set_target_properties(hipdnn_frontend PROPERTIES INTERFACE_LINK_LIBRARIES hipdnn_rs::backend)\n";
    package("hipdnn_frontend", "hipdnn_frontendConfig.cmake", frontend)?;
    fs::create_dir_all(rocm.join("llvm/bin"))?;
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let compiler: Vec<PathBuf> =
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|part| part.join(&compiler)).collect();
    let compiler = compiler.into_iter().find(|path| path.is_file()).ok_or("there is no C++ compiler")?;
    symlink(compiler, rocm.join("llvm/bin/clang++"))?;
    let samples = directory.join("samples");
    fs::create_dir_all(&samples)?;
    let clients = workspace::root().join("integration_tests/cmake");
    fs::copy(clients.join("list_engines.cpp"), samples.join("sample.cpp"))?;
    let project = "cmake_minimum_required(VERSION 3.16)\nproject(samples LANGUAGES CXX)\n\
        find_package(hipdnn_frontend CONFIG REQUIRED)\nadd_executable(sample sample.cpp)\n\
        target_link_libraries(sample PRIVATE hipdnn_frontend)\ntarget_compile_features(sample PRIVATE cxx_std_17)\n";
    fs::write(samples.join("CMakeLists.txt"), project)?;
    let (status, said) = call(&["--samples", &samples.display().to_string()])?;
    check(status == Some(0), || said)?;
    let text = fs::read_to_string(&report)?;
    for wanted in [
        "| sample sample: our plugin in ROCm's backend | passed |",
        "| sample sample: our plugin in our backend | passed |",
    ] {
        check(text.contains(wanted), || format!("expected {wanted:?}, got {text}"))?;
    }
    Ok(Ok(()))
}
