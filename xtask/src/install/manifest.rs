//! Manifests: what an installation put below a prefix, so that it can be replaced and removed, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::layout::{Component, Item};
use crate::Result;

/// The files of an installed component.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) component: Component,
    pub(crate) version: String,
    /// SHA-256 of each file in hexadecimal digits, by its place below the prefix.
    pub(crate) files: BTreeMap<String, String>,
    /// Directories below the prefix that the installation made, or that of another component.
    #[serde(default)]
    pub(crate) directories: BTreeSet<String>,
}

/// Place of a component's manifest below the prefix.
pub(crate) fn place(component: Component) -> PathBuf {
    Path::new("share/hipdnn_rs/manifests").join(format!("{}.json", component.name()))
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Manifest {
    /// The manifest of a component below `root`, if it is installed there.
    pub(crate) fn read(root: &Path, component: Component) -> Result<Option<Manifest>> {
        let path = root.join(place(component));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(problem) => return Err(format!("{} can't be read: {problem}", path.display()).into()),
        };
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|problem| format!("{}: {problem}", path.display()))?;
        if manifest.component != component || !manifest.files.keys().all(|file| is_below(Path::new(file))) {
            return Err(format!("{}: expected files of {} below the prefix", path.display(), component.name()).into());
        }
        Ok(Some(manifest))
    }
}

/// Whether a relative path stays in the directory that it starts from.
fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// The manifests of the other components below `root`.
fn others(root: &Path, component: Component) -> Result<Vec<Manifest>> {
    let others = Component::ALL.into_iter().filter(|other| *other != component);
    others.filter_map(|other| Manifest::read(root, other).transpose()).collect()
}

/// Files that an installation would have to overwrite though nothing says that they are the component's: those that are another
/// component's, those that are not in its manifest, or were changed since, unless they have the very content that would be written.
pub(crate) fn foreign(root: &Path, component: Component, items: &[Item]) -> Result<Vec<PathBuf>> {
    let installed = Manifest::read(root, component)?.map(|manifest| manifest.files).unwrap_or_default();
    let others = others(root, component)?;
    let mut found = Vec::new();
    for item in items {
        let path = root.join(&item.to);
        if path.symlink_metadata().is_err() {
            continue;
        }
        let name = text(&item.to)?;
        if others.iter().any(|other| other.files.contains_key(name)) {
            found.push(item.to.clone());
            continue;
        }
        let known = installed.get(name);
        let same = path.is_file() && !path.is_symlink() && {
            let present = sha256(&fs::read(&path)?);
            known == Some(&present) || present == sha256(&item.content.bytes()?)
        };
        if !same {
            found.push(item.to.clone());
        }
    }
    Ok(found)
}

/// Writes a component below `root`, and removes what an earlier version of it had and this one has not. Nothing here looks for
/// foreign files: that is done for all components before the first is written. What has the content already and is in no manifest is
/// somebody else's, and stays so. The answer has the manifest, and the earlier version's files that were changed since: they stay.
pub(crate) fn install(root: &Path, component: Component, items: &[Item]) -> Result<(Manifest, Vec<PathBuf>)> {
    let before = Manifest::read(root, component)?;
    let known_directories: BTreeSet<String> = others(root, component)?
        .into_iter()
        .chain(Manifest::read(root, component)?)
        .flat_map(|one| one.directories)
        .collect();
    let (mut files, mut directories) = (BTreeMap::new(), BTreeSet::new());
    let listing_place = place(component);
    let all = items.iter().map(|item| item.to.as_path()).chain([listing_place.as_path()]);
    for directory in all.flat_map(|file| file.ancestors().skip(1)).filter(|directory| !directory.as_os_str().is_empty())
    {
        let name = text(directory)?;
        if known_directories.contains(name) || !root.join(directory).exists() {
            directories.insert(name.to_owned());
        }
    }
    for item in items {
        let (bytes, name) = (item.content.bytes()?, text(&item.to)?.to_owned());
        let is_known = before.as_ref().is_some_and(|before| before.files.contains_key(&name));
        if is_known || !root.join(&item.to).exists() {
            files.insert(name, sha256(&bytes));
            write(&root.join(&item.to), &bytes, item.executable)?;
        }
    }
    let manifest = Manifest { component, version: env!("CARGO_PKG_VERSION").to_owned(), files, directories };
    let mut changed = Vec::new();
    if let Some(mut before) = before {
        before.files.retain(|file, _| !manifest.files.contains_key(file));
        changed = remove(root, &before)?;
    }
    let mut listing = serde_json::to_vec_pretty(&manifest)?;
    listing.push(b'\n');
    write(&root.join(listing_place), &listing, false)?;
    Ok((manifest, changed))
}

/// Removes a component, and the directories that installations made and that are empty then. The answer is the files that were changed since it was installed:
/// they stay.
pub(crate) fn uninstall(root: &Path, component: Component) -> Result<Vec<PathBuf>> {
    let Some(manifest) = Manifest::read(root, component)? else {
        let place = root.join(place(component));
        return Err(format!("expected the manifest {}, got no such file", place.display()).into());
    };
    let changed = remove(root, &manifest)?;
    delete(root, &place(component), &manifest.directories)?;
    Ok(changed)
}

fn remove(root: &Path, manifest: &Manifest) -> Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for (file, sum) in &manifest.files {
        let path = root.join(file);
        match fs::read(&path) {
            Ok(bytes) if sha256(&bytes) == *sum => delete(root, Path::new(file), &manifest.directories)?,
            Ok(_) => changed.push(PathBuf::from(file)),
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => {}
            Err(problem) => return Err(format!("{} can't be read: {problem}", path.display()).into()),
        }
    }
    Ok(changed)
}

/// Deletes a file, and each of these directories above it that has nothing else.
fn delete(root: &Path, file: &Path, directories: &BTreeSet<String>) -> Result<()> {
    let path = root.join(file);
    fs::remove_file(&path).map_err(|problem| format!("{} can't be removed: {problem}", path.display()))?;
    for directory in file.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty()) {
        // An error means that it is not empty.
        if !directories.contains(text(directory)?) || fs::remove_dir(root.join(directory)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes a file beside its place and renames it: processes that have an earlier one mapped keep that.
fn write(path: &Path, bytes: &[u8], executable: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let directory = path.parent().ok_or("a file without a directory")?;
    let failed = |problem: std::io::Error| format!("{} can't be written: {problem}", path.display());
    fs::create_dir_all(directory).map_err(failed)?;
    let partial = directory.join(format!(".hipdnn-rs-{}.partial", std::process::id()));
    let mode = if executable { 0o755 } else { 0o644 };
    let written = fs::write(&partial, bytes)
        .and_then(|()| fs::set_permissions(&partial, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&partial, path));
    Ok(written.inspect_err(|_| drop(fs::remove_file(&partial))).map_err(failed)?)
}

fn text(path: &Path) -> Result<&str> {
    Ok(path.to_str().ok_or("an installed path is not UTF-8")?)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Content;
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = crate::workspace::target().join("install-tests").join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory below target");
        directory
    }

    fn items(files: &[(&str, &str)]) -> Vec<Item> {
        let item = |(to, text): &(&str, &str)| Item {
            to: PathBuf::from(to),
            content: Content::Bytes(text.as_bytes().to_vec()),
            executable: false,
        };
        files.iter().map(item).collect()
    }

    fn there(root: &Path) -> Vec<String> {
        let files = super::super::layout::files_below(root).expect("a directory");
        files.iter().map(|file| file.strip_prefix(root).expect("below").display().to_string()).collect()
    }

    #[test]
    fn a_newer_version_replaces_an_older_one_and_uninstalling_leaves_foreign_files() {
        let root = scratch("replace");
        for directory in ["lib", "empty/inner"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        fs::write(root.join("lib/other.so"), "theirs").expect("a file");
        let component = Component::Plugin;
        install(&root, component, &items(&[("empty/inner/y", "1"), ("lib/a/x.so", "1"), ("share/old", "1")]))
            .expect("a first version");
        let newer = items(&[("lib/a/x.so", "2"), ("share/new", "2")]);
        assert!(foreign(&root, component, &newer).expect("readable files").is_empty());
        install(&root, component, &newer).expect("a second version");
        let manifest = place(component).display().to_string();
        assert_eq!(there(&root), ["lib/a/x.so", "lib/other.so", manifest.as_str(), "share/new"]);
        assert!(uninstall(&root, component).expect("an installed component").is_empty());
        assert_eq!(there(&root), ["lib/other.so"]);
        assert!(!root.join("share").exists() && !root.join("lib/a").exists());
        assert!(root.join("empty/inner").exists(), "a directory that was there before");
        let refused = uninstall(&root, component).expect_err("nothing is installed").to_string();
        assert!(refused.starts_with("expected the manifest "), "{refused}");
    }

    #[test]
    fn foreign_files_are_found_and_changed_ones_stay() {
        let root = scratch("foreign");
        fs::create_dir_all(root.join("lib")).expect("a directory");
        fs::write(root.join("lib/b.so"), "ROCm's").expect("a file");
        fs::write(root.join("lib/same.so"), "same").expect("a file");
        let ours = items(&[("lib/b.so", "ours"), ("lib/c.so", "ours"), ("lib/same.so", "same")]);
        assert_eq!(foreign(&root, Component::Backend, &ours).expect("readable files"), [PathBuf::from("lib/b.so")]);
        install(&root, Component::Dev, &ours[2..]).expect("a file that is there");
        assert!(uninstall(&root, Component::Dev).expect("a manifest").is_empty());
        assert!(root.join("lib/same.so").exists(), "it was somebody else's");
        install(&root, Component::Backend, &ours[1..2]).expect("one file");
        let found = foreign(&root, Component::Umbrella, &ours[1..2]).expect("readable files");
        assert_eq!(found, [PathBuf::from("lib/c.so")], "another component's");
        fs::write(root.join("lib/c.so"), "another package's").expect("a file");
        let found = foreign(&root, Component::Backend, &ours[1..2]).expect("readable files");
        assert_eq!(found, [PathBuf::from("lib/c.so")]);
        assert_eq!(uninstall(&root, Component::Backend).expect("a manifest"), [PathBuf::from("lib/c.so")]);
        assert_eq!(fs::read_to_string(root.join("lib/c.so")).expect("a file"), "another package's");
    }

    #[test]
    fn a_manifest_does_not_lead_out_of_the_prefix() {
        let root = scratch("outside/prefix");
        let victim = root.join("../victim");
        fs::write(&victim, "v").expect("a file");
        for file in ["../victim", "/etc/hostname", "lib/../../victim"] {
            let files = BTreeMap::from([(file.to_owned(), sha256(b"v"))]);
            let manifest =
                Manifest { component: Component::Dev, version: "1".to_owned(), files, directories: BTreeSet::new() };
            let text = serde_json::to_vec(&manifest).expect("a manifest");
            write(&root.join(place(Component::Dev)), &text, false).expect("a file");
            assert!(uninstall(&root, Component::Dev).is_err(), "{file}");
            assert!(victim.exists(), "{file}");
        }
    }
}
