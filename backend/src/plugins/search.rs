//! Search for plugin files.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::log;

/// Default places of plugins of a kind.
pub(crate) struct Usual {
    /// The default directory, relative to the backend library's.
    directory: &'static str,
    /// The variable that names a directory or file in its place.
    variable: &'static str,
    /// A file of our own that is also found right beside this library when nothing is configured and the default directory
    /// does not exist: so a flat folder of the two libraries works. This is an extension of hipDNN's rules.
    beside: Option<&'static str>,
}

/// Engine plugins.
pub(crate) const ENGINES: Usual = Usual {
    directory: "hipdnn_plugins/engines",
    variable: "HIPDNN_PLUGIN_DIR",
    beside: Some("libhipdnn_rs_plugin.so"),
};

/// Heuristics plugins.
pub(crate) const HEURISTICS: Usual =
    Usual { directory: "hipdnn_plugins/heuristics", variable: "HIPDNN_HEURISTIC_PLUGIN_DIR", beside: None };

impl Usual {
    /// The value of the variable.
    pub(crate) fn environment(&self) -> Option<OsString> {
        std::env::var_os(self.variable)
    }
}

/// Search paths of a client, and their mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchPaths {
    /// The client's own files and directories.
    pub(crate) custom: BTreeSet<PathBuf>,
    /// True if the client's paths replace the default ones.
    pub(crate) absolute: bool,
}

impl SearchPaths {
    /// The files to load, canonical, each once, in the order of their paths.
    pub(crate) fn files(&self, usual: &Usual, environment: Option<&OsStr>, library_directory: &Path) -> Vec<PathBuf> {
        let mut files = BTreeSet::new();
        let environment = environment.filter(|path| !path.is_empty());
        if !self.absolute {
            let default = library_directory.join(environment.unwrap_or(OsStr::new(usual.directory)));
            let unconfigured = environment.is_none() && self.custom.is_empty() && !default.exists();
            let beside = usual.beside.map(|name| library_directory.join(name));
            match beside.filter(|beside| unconfigured && beside.is_file()) {
                Some(beside) => add_file(&beside, &mut files),
                None => add(&default, environment.is_some(), &mut files),
            }
        }
        for path in &self.custom {
            add(&library_directory.join(path), true, &mut files);
        }
        files.into_iter().collect()
    }
}

/// Adds a file, or the plugins of a directory.
fn add(path: &Path, asked_for: bool, files: &mut BTreeSet<PathBuf>) {
    if path.is_dir() {
        let entries = match path.read_dir() {
            Ok(entries) => entries,
            Err(error) => return log::warning!("plugin directory {}: {error}", path.display()),
        };
        for entry in entries.flatten() {
            let file = entry.path();
            if file.extension() == Some(OsStr::new("so")) && file.is_file() {
                add_file(&file, files);
            }
        }
        return;
    }
    if path.is_file() {
        return add_file(path, files);
    }
    // `dir/name` stands for `dir/libname.so`.
    if path.extension().is_none()
        && let (Some(directory), Some(name)) = (path.parent(), path.file_name())
    {
        let spelled_out = directory.join(OsStr::from_bytes(&[b"lib", name.as_bytes(), b".so"].concat()));
        if spelled_out.is_file() {
            return add_file(&spelled_out, files);
        }
    }
    if asked_for {
        log::warning!("no plugin file or directory at {}", path.display());
    }
}

fn add_file(path: &Path, files: &mut BTreeSet<PathBuf>) {
    match path.canonicalize() {
        Ok(path) => {
            files.insert(path);
        }
        Err(error) => log::warning!("plugin file {}: {error}", path.display()),
    }
}

/// The directory of the file that this code was loaded from.
pub(crate) fn library_directory() -> PathBuf {
    static HERE: u8 = 0;
    // SAFETY: all zeros is a valid `Dl_info`, made of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    let found = unsafe { libc::dladdr((&raw const HERE).cast(), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return PathBuf::from(".");
    }
    // SAFETY: on success the name is a text that lives as long as this library is loaded.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()));
    let name = name.canonicalize().unwrap_or_else(|_| name.to_path_buf());
    name.parent().unwrap_or(Path::new(".")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, files: &[&str]) -> Scratch {
            let root = std::env::temp_dir().join(format!("hipdnn-rs-search-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            let root = root.canonicalize().unwrap();
            for file in files {
                fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                fs::write(root.join(file), "").unwrap();
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
    fn rules() {
        let tree = Scratch::new(
            "rules",
            &[
                "lib/libhipdnn_rs_plugin.so",
                "lib/hipdnn_plugins/engines/b.so",
                "lib/hipdnn_plugins/engines/a.so",
                "lib/hipdnn_plugins/engines/a.so.1",
                "lib/hipdnn_plugins/engines/readme.txt",
                "lib/hipdnn_plugins/engines/deep/c.so",
                "lib/other/d.so",
                "flat/libhipdnn_rs_plugin.so",
                "elsewhere/libe.so",
            ],
        );
        let root = &tree.0;
        std::os::unix::fs::symlink(root.join("lib/other/d.so"), root.join("lib/other/again.so")).unwrap();
        let e = root.join("elsewhere/libe.so");
        let e = e.to_str().unwrap();
        let bare = root.join("elsewhere/e");
        let bare = bare.to_str().unwrap();
        let default = ["lib/hipdnn_plugins/engines/a.so", "lib/hipdnn_plugins/engines/b.so"];
        type Case<'a> = (&'a str, &'a str, Option<&'a str>, bool, &'a [&'a str], &'a [&'a str]);
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("the default directory", "lib", None, false, &[], &default),
            ("an empty variable is none", "lib", Some(""), false, &[], &default),
            ("the variable replaces it", "lib", Some("other"), false, &[], &["lib/other/d.so"]),
            ("the variable may name a file", "lib", Some(e), false, &[], &["elsewhere/libe.so"]),
            ("custom paths add", "lib", None, false, &["other"], &[default[0], default[1], "lib/other/d.so"]),
            ("custom paths alone", "lib", Some("other"), true, &[e], &["elsewhere/libe.so"]),
            ("a name without lib and .so", "lib", None, true, &[bare], &["elsewhere/libe.so"]),
            ("the same file twice", "lib", None, true, &["other", "other/d.so"], &["lib/other/d.so"]),
            ("nothing there", "lib", None, true, &["missing", "missing.so"], &[]),
            ("a flat folder", "flat", None, false, &[], &["flat/libhipdnn_rs_plugin.so"]),
            ("a flat folder, but configured", "flat", Some("missing"), false, &[], &[]),
            ("a flat folder, but custom", "flat", None, false, &[e], &["elsewhere/libe.so"]),
            ("no folder", "nowhere", None, false, &[], &[]),
        ];
        for (what, directory, variable, absolute, custom, want) in cases {
            let paths = SearchPaths { custom: custom.iter().map(PathBuf::from).collect(), absolute: *absolute };
            let files = paths.files(&ENGINES, variable.map(OsStr::new), &root.join(directory));
            let want: Vec<PathBuf> = want.iter().map(|file| root.join(file)).collect();
            assert_eq!(files, want, "{what}");
        }
    }

    #[test]
    fn heuristics_have_places_of_their_own() {
        let tree = Scratch::new(
            "heuristics",
            &["lib/hipdnn_plugins/engines/a.so", "lib/hipdnn_plugins/heuristics/h.so", "flat/libhipdnn_rs_plugin.so"],
        );
        for (directory, want) in [("lib", Some("lib/hipdnn_plugins/heuristics/h.so")), ("flat", None)] {
            let files = SearchPaths::default().files(&HEURISTICS, None, &tree.0.join(directory));
            assert_eq!(files, want.map(|file| tree.0.join(file)).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn this_code_is_somewhere() {
        assert!(library_directory().is_absolute());
    }
}
