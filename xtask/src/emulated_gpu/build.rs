//! Compiling the HIP runtime, the emulator, the stand-in for rocBLAS and the test programs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Installation, Lock, Prepared, Unavailable, is_installed, sources};
use crate::{Result, process};

const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O2",
    "-g1",
    "-fPIC",
    "-fvisibility=hidden",
    // What a kernel computes must not depend on how the emulator is compiled.
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
];

/// Builds what is out of date.
pub(super) fn ensure(installation: &Installation) -> Result<Prepared<()>> {
    let Some(compiler) = compiler() else {
        let reason = "no C++ compiler: neither CXX names one nor is there g++ or clang++";
        return Ok(Prepared::Unavailable(Unavailable(reason.to_owned())));
    };
    let _lock = Lock::take("build.lock")?;
    fs::create_dir_all(installation.libraries())?;
    fs::create_dir_all(installation.programs())?;
    fs::create_dir_all(installation.home())?;
    let build =
        Build { installation, compiler, miopen: fs::read(installation.system_libraries().join("libMIOpen.so.1"))? };
    let hip = build.needed("libamdhip64.so.")?;
    let rocblas = build.needed("librocblas.so.")?;
    let map = format!("-Wl,--version-script={}", sources().join("runtime/hip.map").display());
    build.library(&hip, "runtime", &[&map, &format!("-Wl,-soname,{hip}"), "-ldl", "-pthread"])?;
    build.library("libgfxemu.so", "emulator", &["-ldl", "-pthread"])?;
    build.library(&rocblas, "rocblas", &[&format!("-Wl,-soname,{rocblas}")])?;
    // hiprtc asks the runtime for the device's architecture, and opens it by this name.
    link(&installation.libraries().join("libamdhip64.so"), &hip)?;
    for source in files(&sources().join("tests"), "cpp")? {
        build.program(&source, &hip)?;
    }
    write_runner(installation)?;
    Ok(Prepared::Ready(()))
}

fn write_runner(installation: &Installation) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let (path, text) = (installation.runner(), installation.runner_script());
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let unfinished = unfinished(&path);
    fs::write(&unfinished, text)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(unfinished, path)?)
}

fn compiler() -> Option<String> {
    match std::env::var("CXX") {
        Ok(program) if !program.is_empty() => Some(program),
        _ => ["g++", "clang++"].into_iter().find(|program| is_installed(program)).map(str::to_owned),
    }
}

struct Build<'a> {
    installation: &'a Installation,
    compiler: String,
    miopen: Vec<u8>,
}

impl Build<'_> {
    /// The name with its number by which MIOpen asks for a library.
    fn needed(&self, beginning: &str) -> Result<String> {
        needed(&self.miopen, beginning)
            .ok_or_else(|| format!("libMIOpen.so.1 does not ask for any {beginning}*").into())
    }

    fn command(&self) -> Command {
        // Lower priority: a machine in use stays usable.
        let mut command = if is_installed("nice") {
            let mut nice = Command::new("nice");
            nice.arg(&self.compiler);
            nice
        } else {
            Command::new(&self.compiler)
        };
        command.args(FLAGS).arg("-isystem").arg(self.installation.headers());
        command
    }

    /// A library from all sources of a directory.
    fn library(&self, name: &str, directory: &str, link: &[&str]) -> Result<()> {
        let sources = files(&sources().join(directory), "cpp")?;
        let target = self.installation.libraries().join(name);
        let state = self.state(&[&sources_of(directory)?, &sources_of("include")?], link)?;
        if is_current(&target, state) {
            return Ok(());
        }
        eprintln!("compiling {name} …");
        let objects = self.installation.directory.join("objects").join(directory);
        fs::create_dir_all(&objects)?;
        let mut compiled = Vec::new();
        for source in sources {
            let object = objects.join(source.file_name().unwrap_or_default()).with_extension("o");
            let state =
                self.state(&[std::slice::from_ref(&source), &headers_of(directory)?, &sources_of("include")?], &[])?;
            if !is_current(&object, state) {
                process::run(
                    self.command().arg("-c").arg(&source).arg("-o").arg(&object),
                    &source.display().to_string(),
                )?;
                stamp(&object, state)?;
            }
            compiled.push(object);
        }
        let unfinished = unfinished(&target);
        process::run(self.command().arg("-shared").arg("-o").arg(&unfinished).args(compiled).args(link), name)?;
        // By rename: a process that has the old file mapped keeps it.
        fs::rename(unfinished, &target)?;
        stamp(&target, state)
    }

    /// A test program, linked against our runtime and the real MIOpen.
    fn program(&self, source: &Path, hip: &str) -> Result<()> {
        let target = self.installation.programs().join(source.file_stem().unwrap_or_default());
        let source_alone = [source.to_path_buf()];
        // A program remembers the versions that symbols had when it was linked.
        let versions = files(&sources().join("runtime"), "map")?;
        let state = self.state(&[&source_alone, &headers_of("tests")?, &sources_of("include")?, &versions], &[hip])?;
        if is_current(&target, state) {
            return Ok(());
        }
        eprintln!("compiling the test program {} …", target.file_name().unwrap_or_default().to_string_lossy());
        let unfinished = unfinished(&target);
        let mut command = self.command();
        command.arg("-o").arg(&unfinished).arg(source);
        command.arg(self.installation.system_libraries().join("libMIOpen.so.1"));
        command.arg(self.installation.libraries().join(hip));
        command.arg(self.installation.system_libraries().join("libhiprtc.so"));
        // They need a newer C library than this system's, and get it from the packages' loader.
        command.args(["-Wl,--allow-shlib-undefined", "-pthread", "-ldl"]);
        process::run(&mut command, &source.display().to_string())?;
        fs::rename(unfinished, &target)?;
        stamp(&target, state)
    }

    /// Fingerprint of the compiler, the flags and the contents of the files.
    fn state(&self, groups: &[&[PathBuf]], more: &[&str]) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        (&self.compiler, FLAGS, more).hash(&mut hasher);
        for file in groups.iter().flat_map(|group| group.iter()) {
            (file.file_name(), fs::read(file)?).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}

fn sources_of(directory: &str) -> Result<Vec<PathBuf>> {
    let mut all = headers_of(directory)?;
    all.extend(files(&sources().join(directory), "cpp")?);
    all.extend(files(&sources().join(directory), "map")?);
    Ok(all)
}

fn headers_of(directory: &str) -> Result<Vec<PathBuf>> {
    files(&sources().join(directory), "h")
}

/// The files of a directory with this extension, in order.
fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|problem| format!("{}: {problem}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn unfinished(target: &Path) -> PathBuf {
    target.with_file_name(format!(".{}.new", target.file_name().unwrap_or_default().to_string_lossy()))
}

fn stamp_of(target: &Path) -> PathBuf {
    target.with_file_name(format!(".{}.state", target.file_name().unwrap_or_default().to_string_lossy()))
}

fn is_current(target: &Path, state: u64) -> bool {
    target.exists() && fs::read_to_string(stamp_of(target)).is_ok_and(|found| found == state.to_string())
}

fn stamp(target: &Path, state: u64) -> Result<()> {
    Ok(fs::write(stamp_of(target), state.to_string())?)
}

fn link(path: &Path, to: &str) -> Result<()> {
    if fs::read_link(path).is_ok_and(|found| found == Path::new(to)) {
        return Ok(());
    }
    let _ = fs::remove_file(path);
    Ok(std::os::unix::fs::symlink(to, path)?)
}

/// Reason why this MIOpen can't compile its kernels here; `None` if it can.
///
/// Debian's builds up to ROCm 6 don't use the kernel compiler's library but start its program, by a fixed path.
pub(super) fn no_kernels(installation: &Installation) -> Result<Option<String>> {
    const PROGRAM: &[u8] = b"/usr/bin/clang++";
    let miopen = fs::read(installation.system_libraries().join("libMIOpen.so.1"))?;
    if needed(&miopen, "libhiprtc.so.").is_some() {
        return Ok(None);
    }
    let Some(at) = find(&miopen, PROGRAM) else {
        return Ok(None);
    };
    let path: Vec<u8> = miopen[at..].iter().copied().take_while(|byte| byte.is_ascii_graphic()).collect();
    let path = String::from_utf8_lossy(&path).into_owned();
    let missing = !Path::new(&path).exists();
    Ok(missing.then(|| format!("this MIOpen compiles its kernels with {path}, which is not installed")))
}

/// The first string in a library's bytes that begins so and ends with a number.
fn needed(library: &[u8], beginning: &str) -> Option<String> {
    let mut from = 0;
    while let Some(at) = find(&library[from..], beginning.as_bytes()) {
        let start = from + at;
        let digits = library[start + beginning.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = start + beginning.len() + digits;
        if digits > 0 && library.get(end) == Some(&0) {
            return Some(String::from_utf8_lossy(&library[start..end]).into_owned());
        }
        from = start + beginning.len();
    }
    None
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_s_number_is_found() {
        let cases: [(&[u8], Option<&str>); 5] = [
            (b"", None),
            (b"libx.so.", None),
            (b"libx.so.7\0", Some("libx.so.7")),
            (b"libx.so.\0libx.so.12\0", Some("libx.so.12")),
            (b"libx.so.7.1\0", None),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(needed(bytes, "libx.so.").as_deref(), wanted, "{bytes:?}");
        }
    }
}
