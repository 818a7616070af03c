//! `cargo xtask architecture [--check | --lines]`: the layers of crates, their sizes, and circles of files.
//!
//! * **Arrows** are the dependencies of the workspace's crates on each other, as `cargo metadata` has them, without those of
//!   tests. Each has to be in [`ARROWS`], and `ARCHITECTURE.md` has them as they are.
//! * **Production lines** are the lines of a crate's `src/`, without generated files and without modules that are compiled for
//!   tests only (`#[cfg(test)]`, `#[cfg(any(test, feature = "testing"))]`). No crate has more than [`MOST_LINES`].
//! * **A circle** is a set of files each of which uses every other one, directly or not. A module and its submodules use each
//!   other as they like; between others no circle in `engines/` has more than [`LARGEST_CIRCLE`] files.

mod circles;
mod lines;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Result, process, workspace};

/// The permitted arrows, from the bottom up: each crate with those that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("hipdnn-schemas", &[]),
    ("hipdnn-sdk-bindings", &[]),
    ("hipdnn-capi", &[]),
    ("hipdnn-cpu-threads", &["hipdnn-sdk-bindings"]),
    ("hipdnn-cpu-simd", &[]),
    ("hipdnn-cpu-kernels", &["hipdnn-cpu-simd", "hipdnn-cpu-threads"]),
    ("hipdnn-cpu-convolution", &["hipdnn-cpu-kernels", "hipdnn-cpu-simd", "hipdnn-cpu-threads"]),
    ("hipdnn-engine-core", &["hipdnn-capi", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    (
        "hipdnn-cpu-pointwise",
        &["hipdnn-cpu-kernels", "hipdnn-cpu-simd", "hipdnn-cpu-threads", "hipdnn-engine-core", "hipdnn-schemas"],
    ),
    ("hipdnn-engine-kernel", &["hipdnn-engine-core", "hipdnn-schemas"]),
    (
        "hipdnn-engine-cpu",
        &[
            "hipdnn-capi",
            "hipdnn-cpu-convolution",
            "hipdnn-cpu-kernels",
            "hipdnn-cpu-pointwise",
            "hipdnn-cpu-simd",
            "hipdnn-cpu-threads",
            "hipdnn-engine-core",
            "hipdnn-engine-kernel",
            "hipdnn-schemas",
            "hipdnn-sdk-bindings",
        ],
    ),
    (
        "hipdnn-engine-gpu",
        &["hipdnn-capi", "hipdnn-engine-core", "hipdnn-engine-kernel", "hipdnn-schemas", "hipdnn-sdk-bindings"],
    ),
    (
        "hipdnn-rs-plugin",
        &[
            "hipdnn-capi",
            "hipdnn-cpu-threads",
            "hipdnn-engine-core",
            "hipdnn-engine-cpu",
            "hipdnn-engine-gpu",
            "hipdnn-schemas",
            "hipdnn-sdk-bindings",
        ],
    ),
    ("hipdnn-heuristics-model", &["hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-rs-heuristics", &["hipdnn-capi", "hipdnn-heuristics-model", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-rs-backend", &["hipdnn-capi", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-client", &["hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-ep-compiler", &["hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-rs-ep", &["hipdnn-capi", "hipdnn-client", "hipdnn-ep-compiler", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-python", &["hipdnn-client", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("hipdnn-conformance", &["hipdnn-schemas", "hipdnn-sdk-bindings"]),
    (
        "hipdnn-cli",
        &["hipdnn-client", "hipdnn-conformance", "hipdnn-heuristics-model", "hipdnn-schemas", "hipdnn-sdk-bindings"],
    ),
    ("hipdnn-cuda-gpu", &["hipdnn-sdk-bindings"]),
    ("hipdnn-rs-integration-tests", &["hipdnn-conformance", "hipdnn-schemas", "hipdnn-sdk-bindings"]),
    ("xtask", &[]),
];

/// The most production lines of a crate.
const MOST_LINES: usize = 15_000;

/// The most files of a circle.
const LARGEST_CIRCLE: usize = 3;

/// The crates that the former crate `plugin` was split into.
const PLUGIN: &[&str] = &[
    "hipdnn-capi",
    "hipdnn-engine-core",
    "hipdnn-engine-kernel",
    "hipdnn-cpu-threads",
    "hipdnn-cpu-simd",
    "hipdnn-cpu-kernels",
    "hipdnn-cpu-convolution",
    "hipdnn-cpu-pointwise",
    "hipdnn-engine-cpu",
    "hipdnn-engine-gpu",
    "hipdnn-rs-plugin",
];

/// The lines of `ARCHITECTURE.md` around the diagram.
const MARKS: [&str; 2] = ["<!-- crates, by `cargo xtask architecture` -->\n", "<!-- end of crates -->\n"];

/// A crate of the workspace.
struct Member {
    name: String,
    /// The folder with its manifest.
    root: PathBuf,
    /// Crates of the workspace that it depends on.
    needs: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Compare them, and check layers, sizes of crates and circles of files
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the production lines of each crate
    #[arg(long, conflicts_with = "check")]
    pub(crate) lines: bool,
}

/// Writes the diagram, or checks everything, or prints the production lines.
pub(crate) fn run(options: &Options) -> Result<()> {
    let members = members()?;
    if options.check {
        return check(&members);
    }
    if options.lines {
        print!("{}", table(&members)?);
        return Ok(());
    }
    let page = page()?;
    Ok(fs::write(workspace::root().join("ARCHITECTURE.md"), with_diagram(&page, &diagram(&members))?)?)
}

/// All violations of the architecture's rules, as one error.
fn check(members: &[Member]) -> Result<()> {
    let mut wrong = arrows(members);
    let page = page()?;
    if with_diagram(&page, &diagram(members))? != page {
        wrong.push("ARCHITECTURE.md has other arrows; `cargo xtask architecture` writes them".to_owned());
    }
    for member in members {
        let lines = lines::production(&member.root.join("src"))?;
        if lines > MOST_LINES {
            wrong.push(format!("{}: expected at most {MOST_LINES} production lines, got {lines}", member.name));
        }
    }
    let engines = workspace::root().join("engines");
    for member in members.iter().filter(|member| member.root.starts_with(&engines)) {
        for circle in circles::circles(&member.root.join("src"))? {
            if circle.len() > LARGEST_CIRCLE {
                let files = circle.join(", ");
                wrong.push(format!("{}: {} files use each other in a circle: {files}", member.name, circle.len()));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// The arrows that are not permitted.
fn arrows(members: &[Member]) -> Vec<String> {
    let mut wrong = Vec::new();
    for member in members {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.name) else {
            wrong.push(format!("{} has no place among the layers", member.name));
            continue;
        };
        let others = member.needs.iter().filter(|need| !allowed.contains(&need.as_str()));
        wrong.extend(others.map(|need| format!("{} may not depend on {need}", member.name)));
    }
    wrong
}

/// The crates of the workspace, in the order of the layers.
fn members() -> Result<Vec<Member>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        manifest_path: PathBuf,
        dependencies: Vec<Dependency>,
    }
    #[derive(Deserialize)]
    struct Dependency {
        name: String,
        kind: Option<String>,
        path: Option<PathBuf>,
    }
    let mut command = workspace::cargo();
    let output = process::capture(command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", process::tail(&output.stderr, 5)).into());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let mut members: Vec<Member> = metadata
        .packages
        .into_iter()
        .map(|package| {
            let of_tests = |dependency: &Dependency| dependency.kind.as_deref() == Some("dev");
            let ours = package.dependencies.iter().filter(|need| need.path.is_some() && !of_tests(need));
            let mut needs: Vec<String> = ours.map(|need| need.name.clone()).collect();
            needs.sort();
            needs.dedup();
            let root = package.manifest_path.parent().unwrap_or(Path::new("")).to_owned();
            Member { name: package.name, root, needs }
        })
        .collect();
    let place = |name: &str| ARROWS.iter().position(|(other, _)| *other == name).unwrap_or(usize::MAX);
    members.sort_by_key(|member| place(&member.name));
    Ok(members)
}

fn page() -> Result<String> {
    Ok(fs::read_to_string(workspace::root().join("ARCHITECTURE.md"))?)
}

/// Every crate with those that it depends on, the upper ones first.
fn diagram(members: &[Member]) -> String {
    let widest = members.iter().map(|member| member.name.len()).max().unwrap_or(0);
    let mut text = String::from("```text\n");
    for member in members.iter().rev() {
        let needs = if member.needs.is_empty() { "–".to_owned() } else { member.needs.join(", ") };
        let _ = writeln!(text, "{:widest$} ─► {needs}", member.name);
    }
    text + "```\n"
}

/// The page with that diagram between its marks.
fn with_diagram(page: &str, diagram: &str) -> Result<String> {
    let [begin, end] = MARKS;
    let parts = page.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("ARCHITECTURE.md has no lines {begin:?} and {end:?}"))?;
    Ok(format!("{before}{begin}{diagram}{end}{after}"))
}

/// Production lines by crate.
fn table(members: &[Member]) -> Result<String> {
    let mut counts = BTreeMap::new();
    for member in members {
        counts.insert(member.name.as_str(), lines::production(&member.root.join("src"))?);
    }
    let mut text = String::new();
    for (name, count) in &counts {
        let _ = writeln!(text, "{count:>6} {name}");
    }
    let of_plugin: usize = PLUGIN.iter().filter_map(|name| counts.get(name)).sum();
    let _ = writeln!(text, "{of_plugin:>6} what was plugin: {}", PLUGIN.join(", "));
    let _ = writeln!(text, "{:>6} all", counts.values().sum::<usize>());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_that_go_up_are_told() {
        let member = |name: &str, needs: &[&str]| Member {
            name: name.to_owned(),
            root: PathBuf::new(),
            needs: needs.iter().map(|need| need.to_string()).collect(),
        };
        let good = member("hipdnn-engine-kernel", &["hipdnn-engine-core", "hipdnn-schemas"]);
        let up = member("hipdnn-engine-core", &["hipdnn-engine-kernel"]);
        let stranger = member("stranger", &[]);
        assert_eq!(
            arrows(&[good, up, stranger]),
            ["hipdnn-engine-core may not depend on hipdnn-engine-kernel", "stranger has no place among the layers"]
        );
    }

    #[test]
    fn layers_go_down() {
        for (place, (name, needs)) in ARROWS.iter().enumerate() {
            for need in *needs {
                let lower = ARROWS[..place].iter().any(|(other, _)| other == need);
                assert!(lower, "{name} may depend on {need}, which is not below it");
            }
        }
    }

    #[test]
    fn the_diagram_is_replaced_between_its_marks() {
        let [begin, end] = MARKS;
        let page = format!("before\n{begin}old\n{end}after\n");
        assert_eq!(with_diagram(&page, "new\n").unwrap(), format!("before\n{begin}new\n{end}after\n"));
        assert!(with_diagram("no marks", "new").is_err());
    }
}
