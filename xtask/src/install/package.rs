//! `cargo xtask package`: an archive and a Debian package of each component, with checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, GzBuilder};

use super::layout::{self, Component, Layout};
use super::manifest;
use crate::{Result, process, workspace};

pub(crate) const HELP: &str = "Writes target/packages: hipdnn-rs-COMPONENT-VERSION-linux-ARCHITECTURE.tar.gz, which is \
unpacked below any prefix, hipdnn-rs-COMPONENT_VERSION_ARCHITECTURE.deb, and SHA256SUMS. Archives of the same libraries have the same bytes.";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the Debian packages have their files
    #[arg(long, value_name = "DIR", default_value = "/opt/rocm")]
    prefix: PathBuf,
    /// Directory with built libraries, in place of a release build
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Maintainer of the Debian packages, as "NAME <ADDRESS>" [default: the workspace's first author]
    #[arg(long, value_name = "PERSON", value_parser = person)]
    maintainer: Option<String>,
    /// Where the packages are written [default: target/packages]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The packages of a component.
pub(crate) struct Packages {
    pub(crate) component: Component,
    pub(crate) archive: PathBuf,
    /// The error is why there is none.
    pub(crate) debian: Result<PathBuf, String>,
}

/// Makes the packages and lists them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let libraries = match &options.from {
        Some(directory) => directory.clone(),
        None => {
            workspace::build_release()?;
            workspace::release()
        }
    };
    let out = match &options.out {
        Some(out) => out.clone(),
        None => {
            let out = workspace::target().join("packages");
            if out.exists() {
                fs::remove_dir_all(&out)?;
            }
            out
        }
    };
    let prefix = std::path::absolute(&options.prefix)?;
    if prefix.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("--prefix: expected a path without .., got {}", options.prefix.display()).into());
    }
    let maintainer = options.maintainer.as_deref().unwrap_or(first_author());
    for made in build(&libraries, &prefix, &out, &Component::ALL, maintainer)? {
        println!("{}", made.archive.display());
        match made.debian {
            Ok(path) => println!("{}", path.display()),
            Err(reason) => println!("no Debian package of {}: {reason}", made.component.name()),
        }
    }
    println!("{}", out.join(SUMS).display());
    Ok(())
}

/// Name of the list of checksums.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// Makes the packages of these components in `out`, an empty directory or none.
pub(crate) fn build(
    libraries: &Path,
    prefix: &Path,
    out: &Path,
    components: &[Component],
    maintainer: &str,
) -> Result<Vec<Packages>> {
    let layout = Layout::read()?;
    fs::create_dir_all(out)?;
    if let Some(there) = fs::read_dir(out)?.next() {
        let there = there?.path();
        return Err(format!("expected an empty directory {}, got one with {}", out.display(), there.display()).into());
    }
    let stage = workspace::target().join("package-stage");
    let mut packages = Vec::new();
    for &component in components {
        if stage.exists() {
            fs::remove_dir_all(&stage)?;
        }
        // Archives hold the tree below the prefix, and so does a Debian package, below its own.
        let tree = stage.join(prefix.strip_prefix("/").unwrap_or(prefix));
        let items = layout.items_with_notices(component, libraries, &layout::Umbrella::default())?;
        manifest::install(&tree, component, &items)?;
        let name =
            format!("{}-{}-linux-{}", component.package_name(), env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
        let archive = out.join(format!("{name}.tar.gz"));
        archive_of(&tree, &archive)?;
        let debian = debian_package(&stage, out, component, layout.summary(component), maintainer);
        packages.push(Packages { component, archive, debian: debian.map_err(|problem| problem.to_string()) });
    }
    fs::remove_dir_all(&stage)?;
    let mut sums = String::new();
    for path in layout::files_below(out)? {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a package's name is not UTF-8")?;
        sums += &format!("{}  {name}\n", manifest::sha256(&fs::read(&path)?));
    }
    fs::write(out.join(SUMS), sums)?;
    Ok(packages)
}

/// Packs a tree: sorted, without owners and times.
fn archive_of(tree: &Path, archive: &Path) -> Result<()> {
    let packed = GzBuilder::new().mtime(0).write(fs::File::create(archive)?, Compression::default());
    let mut builder = tar::Builder::new(packed);
    builder.mode(tar::HeaderMode::Deterministic);
    for path in layout::files_below(tree)? {
        builder.append_path_with_name(&path, path.strip_prefix(tree)?)?;
    }
    builder.into_inner()?.finish()?;
    Ok(())
}

/// Makes a Debian package of a tree that has the files where the package is to have them.
fn debian_package(stage: &Path, out: &Path, component: Component, summary: &str, maintainer: &str) -> Result<PathBuf> {
    let architecture = architecture(std::env::consts::ARCH)?;
    let package = component.package_name();
    let documents = stage.join("usr/share/doc").join(&package);
    fs::create_dir_all(&documents)?;
    let licenses = "hipdnn-rs is licensed under either of the MIT License and the Apache License 2.0, at your option. The texts, and the \
        licenses of what is linked, are in share/doc of the package's prefix.\n";
    fs::write(documents.join("copyright"), licenses)?;
    let bytes = layout::files_below(stage)?.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?;
    let control = control(component, summary, architecture, bytes.div_ceil(1024), maintainer);
    fs::create_dir_all(stage.join("DEBIAN"))?;
    fs::write(stage.join("DEBIAN/control"), control)?;
    let path = out.join(format!("{package}_{}_{architecture}.deb", env!("CARGO_PKG_VERSION")));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]).arg(stage).arg(&path);
    // The same times whenever it is built, as in the archives.
    command.env("SOURCE_DATE_EPOCH", std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".to_owned()));
    let output = process::capture(&mut command)?;
    if !output.status.success() {
        return Err(format!("dpkg-deb: {}", process::tail(&output.stderr, 3)).into());
    }
    Ok(path)
}

/// The workspace's first author, as its packages have it.
pub(crate) fn first_author() -> &'static str {
    env!("CARGO_PKG_AUTHORS").split(':').next().unwrap_or_default()
}

/// A name with an address, as Debian's field `Maintainer` has it.
fn person(text: &str) -> Result<String, String> {
    let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
    match parts {
        Some((name, address))
            if !name.trim().is_empty()
                && address.contains('@')
                && !text.contains(['\n', ','])
                && !address.contains(['<', ' ']) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(format!("expected NAME <ADDRESS>, got {text}")),
    }
}

/// Debian's name of an architecture.
fn architecture(rust: &str) -> Result<&'static str> {
    match rust {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("expected x86_64 or aarch64, got {other}").into()),
    }
}

fn control(component: Component, summary: &str, architecture: &str, kibibytes: u64, maintainer: &str) -> String {
    // The libraries ask for no symbols that are newer, see `hipdnn_sdk_bindings::glibc_2_28!`.
    const RUNTIME: &str = "Depends: libc6 (>= 2.28), libgcc-s1\n";
    let relations = match component {
        Component::Plugin | Component::Heuristics => format!("{RUNTIME}Recommends: hipdnn | hipdnn-rs-backend\n"),
        Component::Provider => format!("{RUNTIME}Recommends: hipdnn-rs-plugin, hipdnn | hipdnn-rs-backend\n"),
        // ROCm's package has the library of the same name at the same place.
        Component::Backend => format!("{RUNTIME}Conflicts: hipdnn\nRecommends: hipdnn-rs-plugin\n"),
        Component::Dev => format!("{RUNTIME}Recommends: hipdnn | hipdnn-rs-backend\n"),
        Component::Python => "Recommends: python3-pip\n".to_owned(),
        Component::Umbrella => RUNTIME.to_owned(),
    };
    let section = if component == Component::Dev { "libdevel" } else { "libs" };
    format!(
        "Package: {}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
         Installed-Size: {kibibytes}\nSection: {section}\nPriority: optional\n{relations}Description: {summary}\n",
        component.package_name(),
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintainer_has_a_name_and_an_address() {
        assert!(person(first_author()).is_ok(), "{}", first_author());
        for wrong in
            ["", "A", "a@b", "<a@b>", " <a@b>", "A <ab>", "A <a@b> ", "A\nB <a@b>", "A <a@b>, B <c@d>", "A <a @b>"]
        {
            assert!(person(wrong).is_err(), "{wrong:?}");
        }
        let control = control(Component::Plugin, "a plugin", "amd64", 1, "A. B. <a@b>");
        assert!(control.lines().any(|line| line == "Maintainer: A. B. <a@b>"), "{control}");
    }
}
