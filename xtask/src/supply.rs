//! The suite `supply`: what the project depends on, by cargo-deny and `deny.toml`; and builds without a network, from vendored
//! sources.

use std::fs;
use std::process::Command;

use crate::summary::{Outcome, Summary};
use crate::tools::Tool;
use crate::{Result, process, workspace};

const CARGO_DENY: Tool = Tool { package: "cargo-deny", version: "0.20.2", options: &[] };

/// The workspace, and the packages that are workspaces of their own and that users receive.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "examples/rust/Cargo.toml", "install/templates/rust/Cargo.toml"];

/// How cargo-deny begins to say that it has no advisories.
const NO_ADVISORIES: &str = "failed to fetch advisory database";

/// Runs the suite.
pub(crate) fn test(summary: &mut Summary) -> Result<()> {
    match CARGO_DENY.ensure() {
        Ok(_) => {
            for manifest in MANIFESTS {
                summary.record(format!("cargo deny: {manifest}"), allowed(manifest)?);
            }
            summary.record("cargo deny: advisories", advisories()?);
        }
        Err(reason) => summary.record("cargo deny", Outcome::Skipped(reason)),
    }
    summary.record("a build from vendored sources", vendored()?);
    Ok(())
}

fn deny(manifest: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = CARGO_DENY.command()?;
    command.args(["--color", "never", "--log-level", "error", "--locked", "--manifest-path", manifest]);
    command.args(["--config", "deny.toml"]);
    command.args(arguments);
    Ok(command)
}

/// Licenses, sources and duplicates of what a manifest depends on.
fn allowed(manifest: &str) -> Result<Outcome> {
    // Packages for other systems may have to be fetched to know their licenses: without a registry nothing can be said.
    let mut fetch = workspace::cargo();
    let fetched = process::capture(fetch.args(["fetch", "--locked", "--manifest-path"]).arg(manifest))?;
    if !fetched.status.success() {
        let said = process::tail(&fetched.stderr, 3);
        let stale = said.contains(STALE_LOCK);
        let outcome = if stale { Outcome::Failed } else { Outcome::Skipped };
        return Ok(outcome(format!("the packages can't be had: {said}")));
    }
    let arguments = ["check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    let output = process::capture(&mut deny(manifest, &arguments)?)?;
    Ok(match output.status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(process::tail(&output.stderr, 40)),
    })
}

/// RustSec's advisories on what the workspace depends on.
fn advisories() -> Result<Outcome> {
    let output = process::capture(&mut deny(MANIFESTS[0], &["check", "--hide-inclusion-graph", "advisories"])?)?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(match text.lines().find(|line| line.contains(NO_ADVISORIES)) {
        _ if output.status.success() => Outcome::Passed,
        Some(_) => Outcome::Skipped(format!("cargo-deny {NO_ADVISORIES} of RustSec")),
        None => Outcome::Failed(process::tail(&output.stderr, 40)),
    })
}

/// How cargo says that a lock file does not have what its manifest asks for.
pub(crate) const STALE_LOCK: &str = "because --locked was passed";

/// The library that is built from vendored sources: the one with the fewest dependencies, for the sake of time.
const BUILT: &str = "hipdnn-rs-backend";

/// Vendors all sources, resolves the whole workspace with them and checks one library, with an empty directory as cargo's home, where
/// no cache of a registry can stand in.
fn vendored() -> Result<Outcome> {
    let directory = workspace::target().join("vendored");
    let (sources, home) = (directory.join("crates"), directory.join("home"));
    for made in [&sources, &home] {
        if made.exists() {
            fs::remove_dir_all(made)?;
        }
        fs::create_dir_all(made)?;
    }
    let mut vendor = workspace::cargo();
    vendor.args(["vendor", "--locked", "--versioned-dirs"]).arg(&sources);
    let output = process::capture(&mut vendor)?;
    if !output.status.success() {
        let said = process::tail(&output.stderr, 3);
        let stale = said.contains(STALE_LOCK);
        let outcome = if stale { Outcome::Failed } else { Outcome::Skipped };
        return Ok(outcome(format!("the sources can't be had: {said}")));
    }
    let settings = directory.join("config.toml");
    fs::write(&settings, output.stdout)?;
    let mut outcome = Outcome::Passed;
    for words in [&["metadata", "--format-version", "1"][..], &["check", "--package", BUILT]] {
        let mut command = workspace::cargo();
        command.arg("--config").arg(&settings).args(words).args(["--frozen", "--quiet"]);
        command.env("CARGO_HOME", &home).env("CARGO_TARGET_DIR", directory.join("target"));
        let output = process::capture(&mut command)?;
        if !output.status.success() {
            outcome = Outcome::Failed(format!("cargo {}: {}", words[0], process::tail(&output.stderr, 12)));
            break;
        }
    }
    fs::remove_dir_all(&sources)?;
    Ok(outcome)
}
