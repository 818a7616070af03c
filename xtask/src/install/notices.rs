//! What comes with machine code: licenses, those of the crates that are linked, and a bill of materials (CycloneDX).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, TargetKind};
use cyclonedx_bom::external_models::normalized_string::NormalizedString;
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::models::bom::Bom;
use cyclonedx_bom::models::component::{Classification, Component as Part, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata as Described;
use cyclonedx_bom::prelude::{Purl, Validate};

use super::layout::Component;
use crate::{Result, process, workspace};

/// The project's own licenses, in the root of the work tree.
pub(crate) const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Name of the licenses of what is linked.
pub(crate) const THIRD_PARTY: &str = "THIRD-PARTY.txt";

/// What names of files with licenses begin with.
const LICENSE_NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// License of Rust's standard library, which every one of our binaries has a part of.
const STD_LICENSE: &str = "MIT OR Apache-2.0";

/// Name and bytes of each document of a component that is built from these packages.
pub(crate) fn of(component: Component, packages: &[&str], summary: &str) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut documents = Vec::new();
    for name in LICENSES {
        documents.push((name, fs::read(workspace::root().join(name))?));
    }
    let linked = Linked::of(packages)?;
    documents.push((THIRD_PARTY, linked.licenses()?.into_bytes()));
    documents.push(("sbom.cdx.json", linked.bill(component, summary)?));
    Ok(documents)
}

/// Packages whose code is linked: those that normal dependencies lead to, without procedural macros.
struct Linked<'a> {
    /// By name and version; what they depend on among these.
    packages: BTreeMap<(String, String), (&'a Package, Vec<String>)>,
}

impl Linked<'_> {
    fn of(roots: &[&str]) -> Result<Linked<'static>> {
        let metadata = metadata()?;
        let resolve = metadata.resolve.as_ref().ok_or("cargo metadata resolved nothing")?;
        let of_package: BTreeMap<_, _> = metadata.packages.iter().map(|package| (&package.id, package)).collect();
        let node_of: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
        let mut open: Vec<_> = Vec::new();
        for root in roots {
            let found = metadata.workspace_packages().into_iter().find(|package| package.name.as_str() == *root);
            open.push(&found.ok_or_else(|| format!("expected a package {root} in the workspace"))?.id);
        }
        let (mut seen, mut packages) = (BTreeSet::new(), BTreeMap::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let (package, node) = (of_package[id], node_of[id]);
            let linked = |id: &_| {
                let of_macros = |target: &cargo_metadata::Target| target.kind.contains(&TargetKind::ProcMacro);
                !of_package[id].targets.iter().any(of_macros)
            };
            let needed = node.deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal) && linked(&dependency.pkg)
            });
            let needed: Vec<_> = needed.map(|dependency| &dependency.pkg).collect();
            let names = needed.iter().map(|id| reference(of_package[*id])).collect();
            open.extend(needed);
            packages.insert((package.name.to_string(), package.version.to_string()), (package, names));
        }
        Ok(Linked { packages })
    }

    /// The packages that are not the project's.
    fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.values().map(|(package, _)| *package).filter(|package| package.source.is_some())
    }

    /// Licenses of what is linked, with their texts.
    fn licenses(&self) -> Result<String> {
        let mut text = "Crates that are linked into this component, with their licenses.\n\n".to_owned();
        writeln!(text, "std {} ({STD_LICENSE}), the standard library of Rust", rust_version()?)?;
        for package in self.foreign() {
            let license = package.license.as_deref().unwrap_or("see the text");
            writeln!(text, "{} {} ({license})", package.name, package.version)?;
        }
        for package in self.foreign() {
            let directory = Path::new(&package.manifest_path).parent().ok_or("a manifest without a directory")?;
            let files = license_files(directory)?;
            if files.is_empty() {
                text += &without_text(package)?;
            }
            for name in files {
                let body = fs::read_to_string(directory.join(&name))?;
                write!(text, "\n---- {} {}: {name} ----\n\n{}\n", package.name, package.version, body.trim_end())?;
            }
        }
        Ok(text)
    }

    /// The bill of materials, in JSON. The same input gives the same bytes.
    fn bill(&self, component: Component, summary: &str) -> Result<Vec<u8>> {
        let version = env!("CARGO_PKG_VERSION");
        let name = component.package_name();
        let mut whole = Part::new(Classification::Library, &name, version, Some(name.clone()));
        whole.description = Some(NormalizedString::new(summary));
        whole.licenses = Some(expression("MIT OR Apache-2.0"));
        let std_version = rust_version()?;
        let std_reference = format!("std@{std_version}");
        let mut std = Part::new(Classification::Library, "std", &std_version, Some(std_reference.clone()));
        std.licenses = Some(expression(STD_LICENSE));
        let mut parts = vec![std];
        let mut dependencies = Vec::new();
        let mut roots = vec![std_reference];
        for (package, needed) in self.packages.values() {
            let version = package.version.to_string();
            let mut part = Part::new(Classification::Library, &package.name, &version, Some(reference(package)));
            part.licenses = package.license.as_deref().map(expression);
            if package.source.is_some() {
                part.purl = Some(Purl::new("cargo", &package.name, &version).map_err(|problem| problem.to_string())?);
            } else {
                roots.push(reference(package));
            }
            parts.push(part);
            dependencies.push(Dependency { dependency_ref: reference(package), dependencies: needed.clone() });
        }
        dependencies.push(Dependency { dependency_ref: name, dependencies: roots });
        let bom = Bom {
            serial_number: None,
            metadata: Some(Described {
                timestamp: None,
                tools: None,
                authors: None,
                component: Some(whole),
                manufacture: None,
                supplier: None,
                licenses: None,
                properties: None,
                lifecycles: None,
            }),
            components: Some(Components(parts)),
            dependencies: Some(Dependencies(dependencies)),
            ..Bom::default()
        };
        let verdict = bom.validate();
        if !verdict.passed() {
            return Err(format!("the bill of materials is not valid: {verdict:?}").into());
        }
        let mut bytes = Vec::new();
        bom.output_as_json_v1_5(&mut bytes)?;
        Ok(bytes)
    }
}

fn expression(text: &str) -> Licenses {
    // crates.io has some in cargo's older spelling.
    Licenses(vec![LicenseChoice::Expression(SpdxExpression::new(&text.replace('/', " OR ")))])
}

/// What is said of a package that comes without the text of its license: whose it is, and where the text is.
fn without_text(package: &Package) -> Result<String> {
    let license = package.license.as_deref().unwrap_or_default();
    let file = if license.contains("Apache-2.0") {
        "LICENSE-APACHE"
    } else if license.contains("MIT") {
        "LICENSE-MIT, with these authors in the place of that text's"
    } else {
        return Err(format!("{}: expected the text of its license ({license}), got none", reference(package)).into());
    };
    let (name, version, authors) = (&package.name, &package.version, package.authors.join(", "));
    let authors = if authors.is_empty() { "its authors".to_owned() } else { authors };
    Ok(format!("\n---- {name} {version} ----\n\n{license}, by {authors}. The terms are those of {file}.\n"))
}

fn reference(package: &Package) -> String {
    format!("{}@{}", package.name, package.version)
}

fn license_files(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let lower = name.to_lowercase();
        if entry.path().is_file() && LICENSE_NAMES.iter().any(|start| lower.starts_with(start)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The workspace's packages and what they depend on here, asked for once.
fn metadata() -> Result<&'static Metadata> {
    static ASKED: OnceLock<Metadata> = OnceLock::new();
    if let Some(metadata) = ASKED.get() {
        return Ok(metadata);
    }
    let mut command = MetadataCommand::new();
    command.current_dir(workspace::root());
    command.other_options(["--filter-platform".to_owned(), host()?]);
    let metadata = command.exec().map_err(|problem| format!("cargo metadata: {problem}"))?;
    Ok(ASKED.get_or_init(|| metadata))
}

fn host() -> Result<String> {
    Ok(rustc("host")?)
}

fn rust_version() -> Result<String> {
    Ok(rustc("release")?)
}

/// A line of what the compiler says of itself.
fn rustc(key: &str) -> Result<String, String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = process::capture(command.arg("-vV")).map_err(|problem| problem.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.map(str::to_owned).ok_or_else(|| format!("rustc -vV has no line {key:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_s_bill_has_what_it_links_and_no_tools() {
        let linked = Linked::of(&["hipdnn-rs-plugin"]).expect("cargo knows the workspace");
        let names: BTreeSet<&str> = linked.packages.keys().map(|(name, _)| name.as_str()).collect();
        for wanted in ["hipdnn-rs-plugin", "hipdnn-schemas", "flatbuffers", "libloading"] {
            assert!(names.contains(wanted), "{wanted} is not in {names:?}");
        }
        for tool in ["serde_derive", "syn", "proc-macro2", "clap", "xtask", "hipdnn-conformance"] {
            assert!(!names.contains(tool), "{tool} is in {names:?}");
        }
        let bytes = linked.bill(Component::Plugin, "a plugin").expect("a valid bill");
        let read = Bom::parse_from_json(&bytes[..]).expect("JSON of CycloneDX");
        assert_eq!(read.components.expect("components").0.len(), names.len() + 1);
        let text = linked.licenses().expect("texts of licenses");
        for package in linked.foreign() {
            let start = format!("\n---- {} {}", package.name, package.version);
            assert!(text.contains(&start), "no text of the license of {}", package.name);
        }
    }
}
