//! `install/layout.toml`: the files of each component, and where they lie below a prefix.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::notices;
use crate::{Result, process, python, workspace};

/// Part of the project that is installed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Component {
    /// The engine plugin, where hipDNN's backend looks for it
    Plugin,
    /// The heuristics plugin, where hipDNN's backend looks for it
    Heuristics,
    /// The execution provider of ONNX Runtime
    Provider,
    /// The embedded backend, for a prefix without ROCm's
    Backend,
    /// Headers, CMake packages, pkg-config file, schemas, templates and the program
    Dev,
    /// The Python wheel
    Python,
    /// The provider as AMD's umbrella provider opens it
    Umbrella,
}

impl Component {
    /// The components of a prefix that has nothing of ROCm's.
    pub(crate) const STANDARD: [Component; 5] =
        [Component::Plugin, Component::Heuristics, Component::Provider, Component::Backend, Component::Dev];

    /// All of them.
    pub(crate) const ALL: [Component; 7] = [
        Component::Plugin,
        Component::Heuristics,
        Component::Provider,
        Component::Backend,
        Component::Dev,
        Component::Python,
        Component::Umbrella,
    ];

    /// The word of the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Component::Plugin => "plugin",
            Component::Heuristics => "heuristics",
            Component::Provider => "provider",
            Component::Backend => "backend",
            Component::Dev => "dev",
            Component::Python => "python",
            Component::Umbrella => "umbrella",
        }
    }

    /// Name of the component's packages.
    pub(crate) fn package_name(self) -> String {
        format!("hipdnn-rs-{}", self.name())
    }
}

/// Directory of the umbrella's libraries below its prefix, by its own build.
pub(crate) const UMBRELLA_DIRECTORY: &str = "bin";

/// What the umbrella opens, and what AMD's shim of that name opens.
pub(crate) const UMBRELLA_LIBRARIES: [&str; 2] = ["libhip-backend.so", "libhipgpu.so"];

/// Place of the provider below a prefix as AMD's umbrella provider reaches it.
pub(crate) struct Umbrella {
    pub(crate) directory: PathBuf,
    /// The provider's file name there.
    pub(crate) library: &'static str,
}

impl Default for Umbrella {
    fn default() -> Umbrella {
        Umbrella { directory: UMBRELLA_DIRECTORY.into(), library: UMBRELLA_LIBRARIES[0] }
    }
}

/// `install/layout.toml`.
#[derive(Deserialize)]
pub(crate) struct Layout {
    component: BTreeMap<String, About>,
    library: Vec<Library>,
    file: Vec<File>,
    wheel: Wheel,
}

#[derive(Deserialize)]
struct About {
    summary: String,
    /// The cargo package that the component's library or program is built from.
    package: Option<String>,
}

#[derive(Deserialize)]
struct Library {
    component: Component,
    from: String,
    to: String,
}

#[derive(Deserialize)]
struct File {
    component: Component,
    from: String,
    to: String,
    #[serde(default)]
    template: bool,
}

#[derive(Deserialize)]
struct Wheel {
    distribution: String,
    package: String,
    summary: String,
    libraries: Vec<String>,
}

/// What is in an installed file.
pub(crate) enum Content {
    /// The bytes of another one.
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Content {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        match self {
            Content::File(path) => {
                Ok(fs::read(path).map_err(|problem| format!("{} can't be read: {problem}", path.display()))?)
            }
            Content::Bytes(bytes) => Ok(bytes.clone()),
        }
    }
}

/// A file of a component.
pub(crate) struct Item {
    /// Its place below the prefix.
    pub(crate) to: PathBuf,
    pub(crate) content: Content,
    pub(crate) executable: bool,
}

impl Layout {
    pub(crate) fn read() -> Result<Layout> {
        let text = fs::read_to_string(workspace::root().join("install/layout.toml"))?;
        let layout: Layout = toml::from_str(&text).map_err(|problem| format!("install/layout.toml: {problem}"))?;
        match Component::ALL.into_iter().find(|component| !layout.component.contains_key(component.name())) {
            Some(component) => Err(format!("install/layout.toml: expected [component.{}]", component.name()).into()),
            None => Ok(layout),
        }
    }

    /// What a component is, in a line.
    pub(crate) fn summary(&self, component: Component) -> &str {
        &self.component[component.name()].summary
    }

    /// The cargo packages that a component's machine code is built from.
    pub(crate) fn packages(&self, component: Component) -> Vec<&str> {
        match &self.component[component.name()].package {
            Some(package) => vec![package],
            None => workspace::LIBRARIES.to_vec(),
        }
    }

    /// Files of a component but its notices. `libraries` has the libraries and the program.
    fn items(&self, component: Component, libraries: &Path, umbrella: &Umbrella) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for library in self.library.iter().filter(|library| library.component == component) {
            let to = match library.to.strip_prefix("@UMBRELLA@/") {
                Some("@PROVIDER@") => umbrella.directory.join(umbrella.library),
                Some(name) => umbrella.directory.join(name),
                None => PathBuf::from(&library.to),
            };
            let executable = to.starts_with("bin") && to.extension().is_none();
            items.push(Item { to, content: Content::File(stripped_copy(&libraries.join(&library.from))?), executable });
        }
        for file in self.file.iter().filter(|file| file.component == component) {
            let from = workspace::root().join(&file.from);
            for path in files_below(&from)? {
                let below = path.strip_prefix(&from).unwrap_or(&path);
                let to =
                    if below.as_os_str().is_empty() { file.to.clone().into() } else { Path::new(&file.to).join(below) };
                let content = if file.template {
                    let text = fs::read_to_string(&path)?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
                    Content::Bytes(text.into_bytes())
                } else {
                    Content::File(path)
                };
                items.push(Item { to, content, executable: false });
            }
        }
        if component == Component::Python {
            let wheel = self.build_wheel(libraries, &scratch()?)?;
            let name = wheel.file_name().ok_or("the wheel has no name")?;
            let to = Path::new("share/hipdnn_rs/python").join(name);
            items.push(Item { to, content: Content::File(wheel), executable: false });
        }
        Ok(items)
    }

    /// Files of a component with its notices: licenses and bill of materials.
    pub(crate) fn items_with_notices(
        &self,
        component: Component,
        libraries: &Path,
        umbrella: &Umbrella,
    ) -> Result<Vec<Item>> {
        let mut items = self.items(component, libraries, umbrella)?;
        let documents = Path::new("share/doc").join(component.package_name());
        for (name, bytes) in notices::of(component, &self.packages(component), self.summary(component))? {
            items.push(Item { to: documents.join(name), content: Content::Bytes(bytes), executable: false });
        }
        items.sort_by(|one, other| one.to.cmp(&other.to));
        Ok(items)
    }

    /// Builds the wheel into a directory.
    pub(crate) fn build_wheel(&self, libraries: &Path, directory: &Path) -> Result<PathBuf> {
        let (root, wheel) = (workspace::root(), &self.wheel);
        let mut command = Command::new(python::system()?);
        command.arg(root.join("install/python/build_wheel.py"));
        command.args(["--distribution", &wheel.distribution, "--version", env!("CARGO_PKG_VERSION")]);
        command.args(["--summary", &wheel.summary]);
        command.arg("--package").arg(root.join("install/python").join(&wheel.package));
        for license in notices::LICENSES {
            command.arg("--license").arg(root.join(license));
        }
        let packages = self.packages(Component::Python);
        for (name, bytes) in notices::of(Component::Python, &packages, self.summary(Component::Python))? {
            if name == notices::THIRD_PARTY {
                let path = scratch()?.join(name);
                let made = unfinished(&path);
                fs::write(&made, bytes)?;
                fs::rename(made, &path)?;
                command.arg("--license").arg(path);
            }
        }
        command.arg("--out").arg(directory);
        for library in &wheel.libraries {
            command.arg(stripped_copy(&libraries.join(library))?);
        }
        let output = process::capture(&mut command)?;
        if !output.status.success() {
            return Err(format!("the wheel can't be built: {}", process::tail(&output.stderr, 3)).into());
        }
        Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
    }
}

/// Directory of files that are made on the way to installed ones.
pub(crate) fn scratch() -> Result<PathBuf> {
    let directory = workspace::target().join("stripped");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The stripped copy of a library or program in the directory of what is made on the way.
fn stripped_copy(binary: &Path) -> Result<PathBuf> {
    stripped(binary, &scratch()?.join(binary.file_name().ok_or("a library without a name")?))
}

/// A copy of a library or program without its line tables: they help in the work tree, but are nine tenths of its size.
pub(crate) fn stripped(binary: &Path, copy: &Path) -> Result<PathBuf> {
    let made = unfinished(copy);
    fs::copy(binary, &made).map_err(|problem| format!("{} can't be copied: {problem}", binary.display()))?;
    match Command::new("strip").arg("--strip-debug").arg(&made).status() {
        Ok(status) if !status.success() => return Err(format!("strip {} failed", made.display()).into()),
        // Without binutils the library is larger, and works as well.
        _ => fs::rename(&made, copy)?,
    }
    Ok(copy.to_path_buf())
}

/// Where a file is made before it takes its place by a rename: another process may be reading what is there.
fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// The files below a directory, sorted; a file is the only one below itself. What was built or is ignored stays behind.
pub(crate) fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory)
            .map_err(|problem| format!("{} can't be listed: {problem}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if !path.is_dir() || path.is_symlink() {
                found.push(path);
            } else if path.file_name().is_none_or(|name| name != "target" && name != "build") {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
