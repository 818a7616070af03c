//! Projects that use the CMake packages: clients, forwarders, templates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Bench, Missing, Verdict, check, command, ended, output};
use crate::install::layout::{self, Component};
use crate::{Result, workspace};

/// The engine that serves host memory when it is asked to.
const ENGINE: &str = "HIPDNN_RS_CPU_ENGINE";

/// Unwraps a step that may be impossible here.
macro_rules! possible {
    ($step:expr) => {
        match $step {
            Ok(value) => value,
            Err(missing) => return Ok(Err(missing)),
        }
    };
}

/// Copies a directory to an empty place.
fn copied(from: &Path, to: PathBuf) -> Result<PathBuf> {
    for file in layout::files_below(from)? {
        let place = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(place.parent().ok_or("a file without a directory")?)?;
        fs::copy(&file, place)?;
    }
    Ok(to)
}

/// Builds the clients against a prefix; the directory with the programs.
pub(super) fn built_clients(
    bench: &Bench,
    directory: &Path,
    options: &[String],
) -> Result<Result<(PathBuf, String), Missing>> {
    let source = copied(&workspace::root().join("integration_tests/cmake"), directory.join("clients"))?;
    let build = directory.join("clients-build");
    let said = possible!(bench.configure(&source, &build, options)?);
    bench.build(&build)?;
    Ok(Ok((build, said)))
}

fn prefix_path(prefix: &Path) -> String {
    format!("-DCMAKE_PREFIX_PATH={}", prefix.display())
}

/// Runs both clients with the plugin that lies beside the backend.
fn run_clients(build: &Path) -> Result<()> {
    output(command(&build.join("run_engine")).args([ENGINE, "sin"]).env(ENGINE, "on"))?;
    let names = output(&mut command(&build.join("list_engines")))?;
    check(names.lines().any(|name| name == ENGINE), || format!("expected {ENGINE} among the engines, got {names:?}"))
}

pub(super) fn clients(bench: &Bench, directory: &Path) -> Verdict {
    let first = directory.join("first");
    bench.install(&first, &Component::STANDARD)?;
    let options = [prefix_path(&first), "-DCMAKE_INSTALL_PREFIX=/somewhere".to_owned()];
    let (build, said) = possible!(built_clients(bench, &directory.join("one"), &options)?);
    run_clients(&build)?;
    let own = format!("HIPDNN_FULL_INSTALL_PLUGIN_ENGINE_DIR: {}/lib/hipdnn_plugins/engines", first.display());
    for wanted in [
        "HIPDNN_PLUGIN_ENGINE_SUBDIR: hipdnn_plugins/engines",
        "HIPDNN_INSTALL_PLUGIN_ENGINE_DIR: lib/hipdnn_plugins/engines",
        "HIPDNN_RELATIVE_INSTALL_PLUGIN_ENGINE_DIR: lib/hipdnn_plugins/engines",
        "HIPDNN_PLUGIN_ENGINE_INSTALL_PATH: /somewhere/lib/hipdnn_plugins/engines",
        &own,
    ] {
        let line = format!("-- {wanted}");
        check(said.lines().any(|found| found == line), || format!("expected {line:?}, got {said}"))?;
    }
    let moved = directory.join("moved to/another place");
    fs::create_dir_all(moved.parent().ok_or("no parent")?)?;
    fs::rename(&first, &moved)?;
    // The loader ends the old program, which was linked with the library where that was.
    let (status, said) = ended(&mut command(&build.join("list_engines")))?;
    let missing = "libhipdnn_backend.so: cannot open shared object file";
    check(status == Some(127) && said.contains(missing), || {
        format!("expected status 127 and {missing:?}, got {status:?} and {said:?}")
    })?;
    let (build, _) = possible!(built_clients(bench, &directory.join("two"), &[prefix_path(&moved)])?);
    run_clients(&build)?;
    // Without the backend there are headers, and asking for more is an error that says what is missing.
    let bare = directory.join("bare");
    bench.install(&bare, &[Component::Dev])?;
    let source = directory.join("asks");
    fs::create_dir_all(&source)?;
    let asks = "cmake_minimum_required(VERSION 3.16)\nproject(asks LANGUAGES NONE)\n\
        find_package(hipdnn_rs 0.1 CONFIG REQUIRED COMPONENTS ${PARTS})\n";
    fs::write(source.join("CMakeLists.txt"), asks)?;
    for (parts, wanted) in [
        ("plugin_sdk", None),
        ("plugin_sdk;backend", Some("which ROCm's hipDNN or the component backend of hipdnn-rs installs")),
        ("frontend", Some("expected a component plugin_sdk or backend, got frontend")),
    ] {
        let options = [prefix_path(&bare), format!("-DPARTS={parts}")];
        let outcome = bench.configure(&source, &directory.join(format!("asks {parts}")), &options);
        match (wanted, outcome) {
            (None, Ok(said)) => drop(possible!(said)),
            (Some(wanted), Err(said)) => {
                // CMake breaks lines.
                let said = said.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                check(said.contains(wanted), || format!("{parts}: expected {wanted:?}, got {said}"))?;
            }
            (wanted, Err(said)) => return Err(format!("{parts}: expected {wanted:?}, got {said}").into()),
            (wanted, Ok(_)) => return Err(format!("{parts}: expected {wanted:?}, got no error").into()),
        }
    }
    Ok(Ok(()))
}

pub(super) fn forwarders(bench: &Bench, directory: &Path) -> Verdict {
    let prefix = directory.join("prefix");
    bench.install(&prefix, &Component::STANDARD)?;
    let compat = prefix.join("lib/cmake/hipdnn_rs/compat");
    let names = ["-DPACKAGE=hipdnn_backend".to_owned(), "-DTARGET_NAME=hipdnn_backend".to_owned()];
    // Beside hipdnn_rs they are not found.
    let source = copied(&workspace::root().join("integration_tests/cmake"), directory.join("source"))?;
    let hidden = bench.configure(&source, &directory.join("hidden"), &[&names[..], &[prefix_path(&prefix)]].concat());
    if let Ok(Err(missing)) = hidden {
        return Ok(Err(missing));
    }
    let is_named = hidden.as_ref().err().is_some_and(|said| said.to_string().contains("hipdnn_backend"));
    check(is_named, || "hipdnn_backend was found without the folder of forwarders".to_owned())?;
    let options = [&names[..], &[prefix_path(&compat)]].concat();
    let (build, _) = possible!(built_clients(bench, &directory.join("forwarded"), &options)?);
    run_clients(&build)?;

    let source = directory.join("both");
    fs::create_dir_all(&source)?;
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(both LANGUAGES C)\n\
        find_package(hipdnn_sdk ${WANTED} CONFIG REQUIRED)\nfind_package(hipdnn_backend ${WANTED} CONFIG REQUIRED)\n\
        message(STATUS \"versions ${hipdnn_sdk_VERSION} ${hipdnn_backend_VERSION}\")\n\
        message(STATUS \"sdk ${hipdnn_sdk_ORIGIN}, plugins ${HIPDNN_INSTALL_PLUGIN_ENGINE_DIR}\")\n\
        add_library(both STATIC both.c)\ntarget_link_libraries(both PRIVATE hipdnn_sdk hipdnn_backend)\n";
    fs::write(source.join("CMakeLists.txt"), text)?;
    fs::write(
        source.join("both.c"),
        "#include <hipdnn_backend.h>\n#include <hipdnn_plugin_sdk/EnginePluginApi.h>\nint both(void) { return HIPDNN_PLUGIN_STATUS_SUCCESS; }\n",
    )?;
    let said = possible!(bench.configure(&source, &directory.join("both-build"), &[prefix_path(&compat)])?);
    check(said.contains("-- sdk , plugins lib/hipdnn_plugins/engines\n"), || said.clone())?;
    bench.build(&directory.join("both-build"))?;
    // The version is the embedded backend's, of hipDNN.
    let version = hipdnn_version()?;
    check(said.contains(&format!("-- versions {version} {version}\n")), || format!("expected {version}, got {said}"))?;
    for (wanted, found) in [("1", true), (version.as_str(), true), ("1.99", false), ("2", false), ("0.1", false)] {
        let options = [prefix_path(&compat), format!("-DWANTED={wanted}")];
        let outcome = bench.configure(&source, &directory.join(format!("both-{wanted}")), &options);
        check(outcome.is_ok() == found, || format!("version {wanted}: expected {found}, got {:?}", outcome.err()))?;
    }

    // ROCm's packages, by stand-ins, come first wherever they are in the search path.
    let rocm = directory.join("rocm");
    for name in ["hipdnn_sdk", "hipdnn_backend"] {
        let package = rocm.join("lib/cmake").join(name);
        fs::create_dir_all(&package)?;
        let text = format!(
            "set({name}_ORIGIN \"ROCm, asked for ${{{name}_FIND_VERSION}}.\")\nset(HIPDNN_INSTALL_PLUGIN_ENGINE_DIR theirs)\nadd_library({name} INTERFACE IMPORTED)\n"
        );
        fs::write(package.join(format!("{name}Config.cmake")), text)?;
        let version = "set(PACKAGE_VERSION 1.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
            if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)\nset(PACKAGE_VERSION_COMPATIBLE FALSE)\nendif()\n";
        fs::write(package.join(format!("{name}ConfigVersion.cmake")), version)?;
    }
    for (at, paths) in [[&compat, &rocm], [&rocm, &compat]].into_iter().enumerate() {
        let path = format!("-DCMAKE_PREFIX_PATH={};{}", paths[0].display(), paths[1].display());
        let build = directory.join(format!("first-{at}"));
        // Twice: the second time CMake knows where the packages were.
        for _ in 0..2 {
            let said = possible!(bench.configure(&source, &build, std::slice::from_ref(&path))?);
            check(said.contains("-- sdk ROCm, asked for ., plugins theirs\n"), || format!("{path}: {said}"))?;
        }
        // Forwarders ask for the version that they are asked for.
        for (wanted, line) in [
            ("1.0", "-- sdk ROCm, asked for 1.0., plugins theirs\n"),
            ("1.1", "-- sdk , plugins lib/hipdnn_plugins/engines\n"),
        ] {
            let options = [path.clone(), format!("-DWANTED={wanted}")];
            let said =
                possible!(bench.configure(&source, &directory.join(format!("first-{at}-{wanted}")), &options)?);
            check(said.contains(line), || format!("{path} {wanted}: {said}"))?;
        }
    }
    Ok(Ok(()))
}

/// The version of hipDNN that the embedded backend says it has: its first three numbers.
fn hipdnn_version() -> Result<String> {
    let text = fs::read_to_string(workspace::root().join("backend/src/exports.rs"))?;
    let line = text.lines().find(|line| line.starts_with("const VERSION: &CStr")).ok_or("no VERSION of the backend")?;
    let numbers = line.split('"').nth(1).ok_or("the backend's VERSION is no text")?;
    Ok(numbers.split('.').take(3).collect::<Vec<_>>().join("."))
}

/// Runs the clients on a template's engine: it takes what it says, computes that right, and declines the rest with a
/// reason.
fn try_engine(clients: &Path, plugins: &Path, engine: &str) -> Result<()> {
    let names = output(command(&clients.join("list_engines")).arg(plugins))?;
    check(names.trim() == engine, || format!("expected {engine} alone, got {names:?}"))?;
    for operation in ["relu_fwd", "identity"] {
        let mut run = command(&clients.join("run_engine"));
        output(run.args([engine, operation]).env("HIPDNN_PLUGIN_DIR", plugins))?;
    }
    let mut run = command(&clients.join("run_engine"));
    run.args([engine, "sin"]).env("HIPDNN_PLUGIN_DIR", plugins).env("HIPDNN_LOG_LEVEL", "info");
    let (status, said) = ended(&mut run)?;
    let reason = format!("{engine} declines: expected ReLU or identity, got pointwise mode 38");
    check(status == Some(3) && said.contains(&reason), || {
        format!("expected status 3 and {reason:?}, got {status:?}: {said}")
    })
}

pub(super) fn template_in_cpp(bench: &Bench, directory: &Path) -> Verdict {
    let prefix = directory.join("prefix");
    bench.install(&prefix, &Component::STANDARD)?;
    let source = copied(&prefix.join("share/hipdnn_rs/templates/cpp"), directory.join("cpp"))?;
    let build = directory.join("cpp-build");
    let target = directory.join("elsewhere");
    let options = [
        prefix_path(&prefix),
        format!("-DCMAKE_INSTALL_PREFIX={}", target.display()),
        "-DCMAKE_CXX_FLAGS=-Werror".to_owned(),
    ];
    possible!(bench.configure(&source, &build, &options)?);
    bench.build(&build)?;
    let cmake = bench.cmake.as_ref().map_err(String::as_str)?;
    output(Command::new(cmake).arg("--install").arg(&build).env_remove("DESTDIR"))?;
    let plugins = target.join("lib/hipdnn_plugins/engines");
    only_hipdnn_s_functions(&plugins.join("libexample_relu_plugin.so"))?;
    let (clients, _) = possible!(built_clients(bench, directory, &[prefix_path(&prefix)])?);
    try_engine(&clients, &plugins, "EXAMPLE_CPP_RELU_ENGINE")?;
    Ok(Ok(()))
}

pub(super) fn template_in_rust(bench: &Bench, directory: &Path) -> Verdict {
    let prefix = directory.join("prefix");
    bench.install(&prefix, &Component::STANDARD)?;
    let source = copied(&prefix.join("share/hipdnn_rs/templates/rust"), directory.join("rust"))?;
    let target = directory.join("rust-target");
    for words in [&["build", "--release"][..], &["test"]] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(words).args(["--offline", "--quiet"]).current_dir(&source).env("CARGO_TARGET_DIR", &target);
        output(cargo.env("RUSTFLAGS", "-Dwarnings"))?;
    }
    let plugins = directory.join("plugins");
    fs::create_dir_all(&plugins)?;
    let library = "libexample_rust_relu_plugin.so";
    fs::copy(target.join("release").join(library), plugins.join(library))?;
    only_hipdnn_s_functions(&plugins.join(library))?;
    let (clients, _) = possible!(built_clients(bench, directory, &[prefix_path(&prefix)])?);
    try_engine(&clients, &plugins, "EXAMPLE_RUST_RELU_ENGINE")?;
    Ok(Ok(()))
}

/// The heuristics plugin of the prefix, then the template's: each is found, and each has its policies.
pub(super) fn template_of_heuristics(bench: &Bench, directory: &Path) -> Verdict {
    let prefix = directory.join("prefix");
    bench.install(&prefix, &Component::STANDARD)?;
    let source = copied(&prefix.join("share/hipdnn_rs/templates/heuristics"), directory.join("heuristics"))?;
    let build = directory.join("heuristics-build");
    let target = directory.join("elsewhere");
    let options = [
        prefix_path(&prefix),
        format!("-DCMAKE_INSTALL_PREFIX={}", target.display()),
        "-DCMAKE_C_FLAGS=-Werror".to_owned(),
    ];
    possible!(bench.configure(&source, &build, &options)?);
    bench.build(&build)?;
    let cmake = bench.cmake.as_ref().map_err(String::as_str)?;
    output(Command::new(cmake).arg("--install").arg(&build).env_remove("DESTDIR"))?;
    let plugins = target.join("lib/hipdnn_plugins/heuristics");
    only_hipdnn_s_functions(&plugins.join("libexample_heuristics_plugin.so"))?;
    only_hipdnn_s_functions(&prefix.join("lib/hipdnn_plugins/heuristics/libhipdnn_rs_heuristics.so"))?;
    let (clients, _) = possible!(built_clients(bench, directory, &[prefix_path(&prefix)])?);
    let own = ["SelectionHeuristic::HipdnnRsCostModel", "SelectionHeuristic::HipdnnRsMeasured"];
    for (place, wanted) in [(None, &own[..]), (Some(&plugins), &["EXAMPLE_ORDER_OF_NAMES"])] {
        let mut list = command(&clients.join("list_policies"));
        list.args(place);
        let said = output(&mut list)?;
        let is_there = |name: &&str| said.lines().any(|line| line == *name);
        // hipDNN has two of its own.
        check(wanted.iter().all(is_there) && said.lines().count() == wanted.len() + 2, || {
            format!("expected {wanted:?} and two of hipDNN's, got {said:?}")
        })?;
    }
    // The template's policy ranks what it is told to, and leaves the turn to others else.
    for (order, said) in [(ENGINE, "ranks 1 of 1 engines"), ("NOBODY", "declines: none of 1 engines is in")] {
        let mut run = command(&clients.join("run_engine"));
        run.args([ENGINE, "sin"]).env(ENGINE, "on").env("HIPDNN_LOG_LEVEL", "info");
        run.env("HIPDNN_HEURISTIC_PLUGIN_DIR", &plugins).env("EXAMPLE_ENGINE_ORDER", order);
        run.env("HIPDNN_HEUR_POLICY_ORDER", "EXAMPLE_ORDER_OF_NAMES,SelectionHeuristic::StaticOrdering");
        let (status, log) = ended(&mut run)?;
        check(status == Some(0) && log.contains(said), || format!("expected {said:?}, got {status:?}: {log}"))?;
    }
    Ok(Ok(()))
}

/// Checks that a plugin shows nothing but hipDNN's functions.
fn only_hipdnn_s_functions(library: &Path) -> Result<()> {
    let symbols = output(Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(library))?;
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let others: Vec<&&str> = names.iter().filter(|name| !name.starts_with("hipdnn")).collect();
    check(names.len() > 15 && others.is_empty(), || format!("expected hipDNN's functions, got {names:?}"))
}
