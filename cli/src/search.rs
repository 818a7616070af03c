//! Search for engine plugins.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Our own plugin's file.
const OWN: &str = "libhipdnn_rs_plugin.so";

/// hipDNN's directory of plugins, below a library directory.
const DIRECTORY: &str = "hipdnn_plugins/engines";

/// Plugin files, each once.
///
/// With `named` paths, nothing else is looked at; else the first of these places that has a plugin is it:
/// `HIPDNN_PLUGIN_DIR`, beside the program, an installation that the program is part of, a development build, ROCm's.
///
/// # Errors
/// If there is none; the message says where it was looked for.
pub(crate) fn plugins(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let environment = std::env::var_os("HIPDNN_PLUGIN_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let directory = program.as_deref().and_then(Path::parent);
    find(named, environment, directory, Path::new("/opt/rocm/lib"))
}

fn find(
    named: &[PathBuf],
    environment: Option<PathBuf>,
    program: Option<&Path>,
    rocm: &Path,
) -> Result<Vec<PathBuf>, String> {
    if !named.is_empty() {
        let mut files = Vec::new();
        for path in named {
            let found = at(path);
            if found.is_empty() {
                return Err(format!(
                    "{}: expected an engine plugin or a directory with some, got none",
                    path.display()
                ));
            }
            files.extend(found);
        }
        return Ok(once(files));
    }
    if let Some(path) = environment {
        let found = at(&path);
        return match found.is_empty() {
            true => Err(format!("HIPDNN_PLUGIN_DIR: {} has no engine plugin", path.display())),
            false => Ok(found),
        };
    }
    let mut places = Vec::new();
    if let Some(directory) = program {
        // One profile's build must not hide a newer one of the other.
        if let Some(newest) = newest_build(directory) {
            return Ok(vec![newest]);
        }
        places.extend([
            directory.join(OWN),
            directory.join(DIRECTORY),
            directory.join("../lib").join(DIRECTORY),
            directory.join("../lib").join(OWN),
        ]);
    }
    places.push(rocm.join(DIRECTORY));
    match places.iter().map(|place| at(place)).find(|files| !files.is_empty()) {
        Some(files) => Ok(files),
        None => {
            let tried: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            Err(format!(
                "no engine plugin is at {}; name one with --plugin or HIPDNN_PLUGIN_DIR, \
                 or build ours with `cargo build --release -p hipdnn-rs-plugin`",
                tried.join(", ")
            ))
        }
    }
}

/// The newest plugin of the build directory that the program is in, if it is in one.
fn newest_build(program: &Path) -> Option<PathBuf> {
    let target = program.parent().filter(|target| target.join("CACHEDIR.TAG").is_file())?;
    let builds = ["release", "debug"].map(|profile| target.join(profile).join(OWN));
    let age = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    builds.into_iter().filter(|path| path.is_file()).max_by_key(age)
}

/// The plugin at a path, or the plugins of a directory in the order of their names.
fn at(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let entries = path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| file.extension() == Some(OsStr::new("so")) && file.is_file()).collect();
    files.sort();
    files
}

/// Two names of one file are one plugin.
fn once(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let is_new = |file: &PathBuf| {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        let is_new = !seen.contains(&real);
        seen.push(real);
        is_new
    };
    let mut is_new = is_new;
    files.into_iter().filter(|file| is_new(file)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, files: &[&str]) -> Scratch {
            let root = std::env::temp_dir().join(format!("hipdnn-rs-cli-{name}-{}", std::process::id()));
            for file in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
                fs::write(path, "").expect("writable");
            }
            Scratch(root)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn places_in_order() {
        let scratch = Scratch::new(
            "search",
            &[
                "named/b.so",
                "named/a.so",
                "named/readme",
                "prefix/bin/hipdnn-rs",
                "prefix/lib/hipdnn_plugins/engines/own.so",
                "flat/hipdnn-rs",
                "flat/libhipdnn_rs_plugin.so",
                "rocm/hipdnn_plugins/engines/amd.so",
                "target/CACHEDIR.TAG",
                "target/debug/hipdnn-rs",
                "target/release/libhipdnn_rs_plugin.so",
                "nothing/readme",
            ],
        );
        let at = |path: &str| scratch.0.join(path);
        let rocm = at("rocm");
        let find = |named: &[&str], environment: Option<&str>, program: &str| {
            let named: Vec<PathBuf> = named.iter().map(|path| at(path)).collect();
            let files = find(&named, environment.map(at), Some(&at(program)), &rocm)?;
            let text = |path: PathBuf| path.strip_prefix(&scratch.0).expect("inside").display().to_string();
            Ok::<_, String>(files.into_iter().map(text).collect::<Vec<_>>())
        };
        for (named, environment, program, want) in [
            (&["named"][..], Some("flat"), "flat", &["named/a.so", "named/b.so"][..]),
            (&["named/b.so", "named"], None, "flat", &["named/b.so", "named/a.so"]),
            (&[], Some("named/b.so"), "flat", &["named/b.so"]),
            (&[], None, "flat", &["flat/libhipdnn_rs_plugin.so"]),
            (&[], None, "prefix/bin", &["prefix/bin/../lib/hipdnn_plugins/engines/own.so"]),
            (&[], None, "target/debug", &["target/release/libhipdnn_rs_plugin.so"]),
            (&[], None, "nothing", &["rocm/hipdnn_plugins/engines/amd.so"]),
        ] {
            assert_eq!(find(named, environment, program).as_deref(), Ok(want.map_strings().as_slice()));
        }
        for (named, environment, want) in [
            (&["nothing"][..], None, "expected an engine plugin or a directory with some, got none"),
            (&["absent.so"], None, "absent.so: expected an engine plugin"),
            (&[], Some("nothing"), "nothing has no engine plugin"),
        ] {
            let problem = find(named, environment, "flat").unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
        let problem = super::find(&[], None, None, &at("nothing")).unwrap_err();
        assert!(problem.contains("nothing/hipdnn_plugins/engines; name one with --plugin"), "{problem}");
    }

    trait Strings {
        fn map_strings(&self) -> Vec<String>;
    }

    impl Strings for [&str] {
        fn map_strings(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_string()).collect()
        }
    }
}
