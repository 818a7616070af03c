//! `install/therock/` configured, staged and split as TheRock does it, with stand-ins for its functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde::Deserialize;

use super::{Bench, Missing, Verdict, check, command, listing, output};
use crate::install::layout::Component;
use crate::{Result, workspace};

/// Patterns of an artifact's components that hold without being written, in the order in which components take files: an earlier
/// one's are not a later one's (`build_tools/_therock_utils/artifact_builder.py` of ROCm/TheRock at 89553ce).
const DEFAULTS: [(&str, &[&str]); 6] = [
    ("lib", &["**/*.so", "**/*.so.*"]),
    ("run", &[]),
    ("dbg", &[".build-id/**/*.debug"]),
    ("dev", &["**/*.a", "**/cmake/**", "**/include/**", "**/pkgconfig/**"]),
    ("doc", &["**/share/doc/**"]),
    ("test", &[]),
];

/// `artifact-hipdnn-rs.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Artifact {
    /// Patterns by component and directory.
    components: BTreeMap<String, BTreeMap<String, Patterns>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patterns {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

fn folder() -> PathBuf {
    workspace::root().join("install/therock")
}

/// Configures the stand-in for TheRock; what CMake said.
fn configured(bench: &Bench, build: &Path, more: &[String]) -> Result<Result<String, Missing>> {
    let options = [
        format!("-DTHEROCK_HIPDNN_RS_SOURCE_DIR={}", workspace::root().display()),
        format!("-DTHEROCK_HIPDNN_RS_LIBRARIES_DIR={}", bench.libraries.display()),
        format!("-DXTASK={}", std::env::current_exe()?.display()),
    ];
    bench.configure(&folder().join("stand_ins"), build, &[&options[..], more].concat())
}

pub(super) fn configuration(bench: &Bench, directory: &Path) -> Verdict {
    let said = match configured(bench, &directory.join("build"), &[])? {
        Ok(said) => said,
        Err(missing) => return Ok(Err(missing)),
    };
    let target = format!("hipdnn-rs: cargo builds for {}-unknown-linux-gnu", std::env::consts::ARCH);
    let components = "artifact hipdnn-rs: dev;doc;lib;run;test";
    for wanted in [target.as_str(), components, "packages lib/cmake/hipdnn_rs/hipdnn_rsConfig.cmake"] {
        check(said.contains(wanted), || format!("expected {wanted:?}, got {said}"))?;
    }
    // What it depends on has to be declared before it.
    let lacking = configured(bench, &directory.join("lacking"), &["-DDEPENDENCIES=hip-clr;hipDNN".to_owned()]);
    let text = lacking.err().map(|problem| problem.to_string()).unwrap_or_default();
    check(text.contains("got") && text.contains("MIOpen"), || format!("expected an error about MIOpen, got {text:?}"))?;
    // The names agree: topology, artifact, sub-project.
    let topology: toml::Table = fs::read_to_string(folder().join("topology.toml"))?.parse()?;
    let ours = &topology["artifacts"]["hipdnn-rs"];
    check(
        ours["artifact_group"].as_str() == Some("ml-libs") && ours["type"].as_str() == Some("target-neutral"),
        || format!("{ours}"),
    )?;
    let artifact: Artifact = toml::from_str(&fs::read_to_string(folder().join("artifact-hipdnn-rs.toml"))?)?;
    let names: Vec<&str> = artifact.components.keys().map(String::as_str).collect();
    check(names.join(";") == "dev;doc;lib;run;test", || format!("{names:?}"))?;
    Ok(Ok(()))
}

pub(super) fn stage(bench: &Bench, directory: &Path) -> Verdict {
    let build = directory.join("build");
    if let Err(missing) = configured(bench, &build, &[])? {
        return Ok(Err(missing));
    }
    let place = build.join("hipdnn_rs");
    bench.build(&place.join("build"))?;
    let cmake = bench.cmake.as_ref().map_err(String::as_str)?;
    output(Command::new(cmake).arg("--install").arg(place.join("build")).env_remove("DESTDIR"))?;
    let staged = place.join("stage");
    let files: Vec<String> = listing(&staged)?.into_iter().map(|(path, _)| path.display().to_string()).collect();

    for kind in ["engines/libhipdnn_rs_plugin.so", "heuristics/libhipdnn_rs_heuristics.so"] {
        let wanted = format!("lib/hipdnn_plugins/{kind}");
        check(files.contains(&wanted), || format!("expected {wanted}, got {files:?}"))?;
    }

    let artifact: Artifact = toml::from_str(&fs::read_to_string(folder().join("artifact-hipdnn-rs.toml"))?)?;
    let mut left = files.clone();
    for (component, defaults) in DEFAULTS {
        let Some(patterns) = artifact.components.get(component) else { continue };
        let patterns = &patterns["ml-libs/hipdnn_rs/stage"];
        let all = |patterns: &mut dyn Iterator<Item = &str>| patterns.map(glob).collect::<Result<Vec<Regex>>>();
        let include = all(&mut defaults.iter().copied().chain(patterns.include.iter().map(String::as_str)))?;
        let exclude = all(&mut patterns.exclude.iter().map(String::as_str))?;
        for pattern in &patterns.include {
            let pattern = glob(pattern)?;
            check(left.iter().any(|file| pattern.is_match(file)), || format!("{component}: no file is {pattern}"))?;
        }
        let before = left.len();
        left.retain(|file| {
            !include.iter().any(|pattern| pattern.is_match(file))
                || exclude.iter().any(|pattern| pattern.is_match(file))
        });
        check(left.len() < before, || format!("{component} has no files"))?;
    }
    check(left.is_empty(), || format!("of no component: {left:?}"))?;

    // In TheRock's tree the backend is hipDNN's; here the project's own takes its place.
    bench.install(&staged, &[Component::Backend])?;
    let ctest = cmake.with_file_name("ctest");
    let tests = staged.join("bin/hipdnn_rs");
    let said = output(command(&ctest).arg("--test-dir").arg(&tests).args(["--output-on-failure", "-L", "quick"]))?;
    check(said.contains("100% tests passed") && said.contains("out of 1"), || said.clone())?;
    Ok(Ok(()))
}

/// A pattern of TheRock's descriptors: `**` is any number of directories, `*` anything within one.
fn glob(pattern: &str) -> Result<Regex> {
    let text = regex::escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*");
    Ok(Regex::new(&format!("^{text}$"))?)
}
