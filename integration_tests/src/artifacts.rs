//! The built libraries, and C programs built against the installed headers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use object::{Object, ObjectSymbol};

/// A library that this project ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifact {
    /// The engine plugin.
    Plugin,
    /// The embedded backend.
    Backend,
    /// The ONNX Runtime execution provider.
    Provider,
    /// The heuristics plugin.
    Heuristics,
}

impl Artifact {
    /// All of them.
    pub const ALL: [Artifact; 4] = [Artifact::Plugin, Artifact::Backend, Artifact::Provider, Artifact::Heuristics];

    /// The library's file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Artifact::Plugin => "libhipdnn_rs_plugin.so",
            Artifact::Backend => "libhipdnn_backend.so",
            Artifact::Provider => "libonnxruntime_providers_hipdnn_rs.so",
            Artifact::Heuristics => "libhipdnn_rs_heuristics.so",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Artifact::Plugin => "hipdnn-rs-plugin",
            Artifact::Backend => "hipdnn-rs-backend",
            Artifact::Provider => "hipdnn-rs-ep",
            Artifact::Heuristics => "hipdnn-rs-heuristics",
        }
    }
}

/// The built library: in `HIPDNN_RS_LIB_DIR` when that is set, else in the release build, which is brought up to date
/// once per process and library.
///
/// # Panics
/// If the library is not in the directory that was named, or does not build.
pub fn library_path(artifact: Artifact) -> PathBuf {
    static BUILT: [OnceLock<PathBuf>; 4] = [const { OnceLock::new() }; 4];
    if let Some(directory) = std::env::var_os("HIPDNN_RS_LIB_DIR").filter(|value| !value.is_empty()) {
        let path = Path::new(&directory).join(artifact.file_name());
        assert!(path.is_file(), "HIPDNN_RS_LIB_DIR has no {}", path.display());
        return path;
    }
    BUILT[artifact as usize].get_or_init(|| build(artifact)).clone()
}

fn build(artifact: Artifact) -> PathBuf {
    let root = workspace();
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--package", artifact.package()])
        .current_dir(&root)
        .stdin(Stdio::null())
        .status()
        .expect("cargo starts");
    assert!(status.success(), "cargo build --release --package {} failed: {status}", artifact.package());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let path = target.join("release").join(artifact.file_name());
    assert!(path.is_file(), "the build left no {}", path.display());
    path
}

/// The symbols that a built library exports, weak ones included.
///
/// # Panics
/// If the library cannot be read, or is no ELF file.
pub fn exported(artifact: Artifact) -> BTreeSet<String> {
    let bytes = std::fs::read(library_path(artifact)).expect("the library can be read");
    let file = object::File::parse(&*bytes).expect("the library is an ELF file");
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    symbols.map(|symbol| symbol.name().expect("names are UTF-8").to_string()).collect()
}

/// The root of the work tree.
///
/// # Panics
/// Never: this package lies in the work tree.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace").to_path_buf()
}

/// A directory holding nothing but the plugin, as `HIPDNN_PLUGIN_DIR` wants one. `name` tells tests apart.
///
/// # Panics
/// If the directory can't be made.
pub fn plugin_directory(scratch: &Path, name: &str) -> PathBuf {
    directory_with(Artifact::Plugin, scratch, name)
}

/// A directory holding nothing but that library, as variables that name plugins want one. `name` tells tests apart.
///
/// # Panics
/// If the directory can't be made.
pub fn directory_with(library: Artifact, scratch: &Path, name: &str) -> PathBuf {
    let directory = scratch.join(name);
    std::fs::create_dir_all(&directory).expect("the scratch directory is writable");
    let copy = directory.join(library.file_name());
    // A rename replaces the copy of an earlier run without disturbing a process that still has it mapped.
    let partial = directory.join(format!("{}.partial", std::process::id()));
    std::fs::copy(library_path(library), &partial).expect("the library can be copied");
    std::fs::rename(&partial, &copy).expect("the copy can be renamed");
    directory
}

/// Compiles a C source of `integration_tests/c` against the installed headers, warnings being errors.
///
/// # Panics
/// If it does not compile; the compiler has said why.
pub fn compile(source: &str, output: &Path, extra: &[&str]) {
    std::fs::create_dir_all(output.parent().expect("an output has a directory")).expect("the directory is writable");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"])
        .args(extra)
        .arg("-I")
        .arg(workspace().join("install/include"))
        .arg("-o")
        .arg(output)
        .arg(workspace().join("integration_tests/c").join(source))
        .args(["-ldl", "-lm"])
        .stdin(Stdio::null())
        .status()
        .unwrap_or_else(|problem| panic!("the C compiler {} can't be started: {problem}", compiler.display()));
    assert!(status.success(), "{source} does not compile: {status}");
}
