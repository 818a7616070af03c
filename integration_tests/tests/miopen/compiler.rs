//! A library called hiprtc that counts what is compiled, or refuses to, and leaves all else to the real one.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::child::{Child, library_directories};
use crate::harness::Ended;

/// Names a file that gets a line for each compilation.
pub(crate) const COMPILATIONS: &str = "HIPDNN_RS_TEST_COMPILATIONS";

/// A part of the names of programs that are not compiled.
pub(crate) const REFUSED: &str = "HIPDNN_RS_TEST_REFUSED";

/// An option that is not known.
pub(crate) const UNKNOWN: &str = "HIPDNN_RS_TEST_UNKNOWN_OPTION";

/// A library to be.
#[derive(Clone, Copy)]
pub(crate) enum Hiprtc {
    /// With all functions of the real one.
    Counting,
    /// The same but for this one.
    Lacking(&'static str),
}

/// This program in a role, with such a library, which is made in the directory.
pub(crate) fn child(role: &str, directory: &Path) -> Result<Child, Ended> {
    child_with(role, directory, Hiprtc::Counting)
}

/// The same with a library of that kind.
pub(crate) fn child_with(role: &str, directory: &Path, hiprtc: Hiprtc) -> Result<Child, Ended> {
    let shim = shim(directory, hiprtc)?;
    let usual = library_directories()?;
    let all: Vec<&Path> = [shim.as_path()].into_iter().chain(usual.iter().map(PathBuf::as_path)).collect();
    Ok(Child::with_libraries(role, Some(&all)))
}

fn shim(directory: &Path, hiprtc: Hiprtc) -> Result<PathBuf, Ended> {
    const NAME: &str = "libhiprtc.so.7";
    let directories = library_directories()?;
    let real = directories.iter().map(|directory| directory.join(NAME)).find(|path| path.exists());
    let real = real.ok_or_else(|| format!("the emulated GPU has no {NAME}"))?;
    let bytes = std::fs::read(&real).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let mut source = START.replace("REAL", &format!("{:?}", real.display().to_string()));
    source = source.replace("COMPILATIONS", COMPILATIONS).replace("REFUSED", REFUSED).replace("UNKNOWN", UNKNOWN);
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Ok(name) = symbol.name() else { continue };
        let lacks = matches!(hiprtc, Hiprtc::Lacking(lacking) if lacking == name);
        if name.starts_with("hiprtc") && !lacks {
            let before = match name {
                "hiprtcCreateProgram" => "named((const char *)c);",
                "hiprtcCompileProgram" => {
                    "if (compiled((int)b, (const char **)c)) return 6; /* HIPRTC_ERROR_COMPILATION */"
                }
                _ => "",
            };
            source += &format!("FORWARD({name}, {before})\n");
        }
    }
    let shim = directory.join("shim");
    std::fs::create_dir_all(&shim).map_err(|error| error.to_string())?;
    compile(&source, &shim.join(NAME), &[&format!("-Wl,-soname,{NAME}"), "-ldl"])?;
    Ok(shim)
}

/// A thread compiles what it created last. Eight arguments, numbers and addresses all, are more than any function has; what
/// is too much is not looked at.
const START: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *real(const char *name)
{
    static void *library;
    if (!library) library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    if (!library) abort();
    return dlsym(library, name);
}
static _Thread_local int refused;
static void named(const char *name)
{
    const char *part = getenv("REFUSED");
    refused = part && name && strstr(name, part);
}
static int compiled(int count, const char **options)
{
    const char *unknown = getenv("UNKNOWN");
    for (int i = 0; unknown && i < count; i++)
        if (!strcmp(options[i], unknown)) return 1;
    const char *path = getenv("COMPILATIONS");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file >= 0) {
        (void)!write(file, "1\n", 2);
        close(file);
    }
    return refused;
}
#define FORWARD(name, before)                                                                                         \
    long name(long a, long b, long c, long d, long e, long f, long g, long h)                                         \
    {                                                                                                                 \
        before return ((long (*)(long, long, long, long, long, long, long, long))real(#name))(a, b, c, d, e, f, g, h); \
    }
"#;

/// Compiles C to a shared library; without a compiler the test is skipped.
pub(crate) fn compile(source: &str, library: &Path, options: &[&str]) -> Result<(), Ended> {
    let file = library.with_extension("c");
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(library).arg(&file).args(options);
    let output = command.output().map_err(|problem| {
        let text = format!("{} can't be started: {problem}", compiler.display());
        if problem.kind() == std::io::ErrorKind::NotFound { Ended::Skipped(text) } else { text.into() }
    })?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned().into()) }
}
