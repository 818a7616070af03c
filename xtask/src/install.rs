//! `cargo xtask install`: components below a prefix, with a manifest of each; and their removal.

pub(crate) mod layout;
pub(crate) mod manifest;
pub(crate) mod notices;
pub(crate) mod package;
pub(crate) mod suite;

use std::path::{Path, PathBuf};

use layout::{Component, Layout, UMBRELLA_LIBRARIES, Umbrella};

use crate::{Result, workspace};

pub(crate) const HELP: &str = "Files that no manifest of hipdnn-rs lists are never overwritten: beside ROCm's backend, say which \
components (plugin, provider, dev). DESTDIR in the environment is put in front of the prefix. Installed files name no prefix, so the \
tree can be moved.";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory such as /usr/local or /opt/rocm
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// What to install; may be repeated [default: plugin, heuristics, provider, backend and dev; with --uninstall all
    /// that are there]
    #[arg(long = "component", value_enum, value_name = "COMPONENT")]
    components: Vec<Component>,
    /// Removes what an earlier call installed
    #[arg(long)]
    uninstall: bool,
    /// Directory with built libraries, in place of a release build
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Directory of AMD's umbrella provider below the prefix
    #[arg(long, value_name = "DIR", default_value = layout::UMBRELLA_DIRECTORY)]
    umbrella_dir: PathBuf,
    /// Names the provider libhipgpu.so there, as AMD's shim libhip-backend.so opens it
    #[arg(long)]
    umbrella_shim: bool,
}

/// Installs or removes components.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = below_destdir(std::env::var_os("DESTDIR").map(PathBuf::from).as_deref(), &options.prefix)?;
    let umbrella = Umbrella {
        directory: below_prefix(&options.umbrella_dir)?,
        library: UMBRELLA_LIBRARIES[usize::from(options.umbrella_shim)],
    };
    if options.uninstall {
        return remove(&root, &options.components);
    }
    let libraries = match &options.from {
        Some(directory) => directory.clone(),
        None => {
            workspace::build_release()?;
            workspace::release()
        }
    };
    let components = if options.components.is_empty() { &Component::STANDARD[..] } else { &options.components };
    for (component, count) in install(&root, components, &libraries, &umbrella)? {
        println!("{}: {count} files below {}", component.name(), root.display());
    }
    Ok(())
}

/// Installs components below `root`; the number of files of each. Where a foreign file is in the way nothing is
/// written.
pub(crate) fn install(
    root: &Path,
    components: &[Component],
    libraries: &Path,
    umbrella: &Umbrella,
) -> Result<Vec<(Component, usize)>> {
    let layout = Layout::read()?;
    let mut staged = Vec::new();
    let mut in_the_way = Vec::new();
    for &component in components {
        let items = layout.items_with_notices(component, libraries, umbrella)?;
        in_the_way.extend(manifest::foreign(root, component, &items)?);
        staged.push((component, items));
    }
    if !in_the_way.is_empty() {
        let files: Vec<String> = in_the_way.iter().map(|file| file.display().to_string()).collect();
        let (root, files) = (root.display(), files.join(", "));
        return Err(format!(
            "expected no files below {root} but those of an earlier installation, got {files}; nothing was written"
        )
        .into());
    }
    staged
        .into_iter()
        .map(|(component, items)| {
            let (manifest, changed) = manifest::install(root, component, &items)?;
            for file in changed {
                println!("  {} of an earlier version stays: it was changed since", file.display());
            }
            Ok((component, manifest.files.len()))
        })
        .collect()
}

fn remove(root: &Path, components: &[Component]) -> Result<()> {
    let there = |component: &Component| root.join(manifest::place(*component)).exists();
    let components = match components {
        [] => Component::ALL.into_iter().filter(there).collect(),
        chosen => chosen.to_vec(),
    };
    if components.is_empty() {
        return Err(format!("expected manifests below {}, got none", root.display()).into());
    }
    for component in components {
        let changed = manifest::uninstall(root, component)?;
        println!("{}: removed from {}", component.name(), root.display());
        for file in changed {
            println!("  {} stays: it was changed since", file.display());
        }
    }
    Ok(())
}

/// The directory that files go to: the prefix, below `DESTDIR` where that is set.
fn below_destdir(destination: Option<&Path>, prefix: &Path) -> Result<PathBuf> {
    let prefix = std::path::absolute(prefix)?;
    Ok(match destination.filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => std::path::absolute(directory)?.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix,
    })
}

/// A directory below the prefix; `.` is the prefix itself.
fn below_prefix(directory: &Path) -> Result<PathBuf> {
    use std::path::Component::{CurDir, Normal};
    let mut found = PathBuf::new();
    for part in directory.components() {
        match part {
            Normal(name) => found.push(name),
            CurDir => {}
            _ => {
                let got = directory.display();
                return Err(format!("--umbrella-dir: expected a directory below the prefix, got {got}").into());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_is_put_in_front_of_the_prefix() {
        for (destination, prefix, wanted) in [
            (None, "/opt/rocm", "/opt/rocm"),
            (Some(""), "/opt/rocm", "/opt/rocm"),
            (Some("/tmp/stage"), "/opt/rocm", "/tmp/stage/opt/rocm"),
            (Some("/tmp/stage/"), "/usr/", "/tmp/stage/usr/"),
        ] {
            let got = below_destdir(destination.map(Path::new), Path::new(prefix)).expect("absolute paths");
            assert_eq!(got, Path::new(wanted), "{destination:?} {prefix}");
        }
    }

    #[test]
    fn directories_stay_below_the_prefix() {
        for (directory, wanted) in
            [("bin", Some("bin")), (".", Some("")), ("./a/b", Some("a/b")), ("/bin", None), ("a/../..", None)]
        {
            assert_eq!(below_prefix(Path::new(directory)).ok(), wanted.map(PathBuf::from), "{directory}");
        }
    }

    #[test]
    fn components_are_words_of_the_command_line() {
        let options =
            crate::parse::<Options>("--prefix /p --component plugin --component dev").expect("a command line");
        assert_eq!(options.components, [Component::Plugin, Component::Dev]);
        for line in ["", "--prefix", "--prefix /p --component everything"] {
            assert!(crate::parse::<Options>(line).is_err(), "{line:?}");
        }
        assert_eq!(
            Component::ALL.map(Component::name),
            ["plugin", "heuristics", "provider", "backend", "dev", "python", "umbrella"]
        );
    }
}
