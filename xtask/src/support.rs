//! `cargo xtask support [--check]`: `SUPPORT.md`, printed by the tables of the plugin and the execution provider.

use std::fs;
use std::process::Command;

use crate::{Result, process, workspace};

/// The examples that print the page's parts, in order.
const PROGRAMS: [&str; 2] = ["support_of_engines", "support_of_operators"];

/// Writes the page, or checks that it is current.
pub(crate) fn run(check: bool) -> Result<()> {
    // Of the whole workspace, since its crates are then those that `cargo test` has built.
    let mut build = workspace::cargo();
    build.args(["build", "--quiet", "--workspace"]).args(PROGRAMS.iter().flat_map(|program| ["--example", program]));
    process::run(&mut build, "the build of the tables")?;
    let mut page = Vec::new();
    for program in PROGRAMS {
        let output = process::capture(&mut Command::new(workspace::target().join("debug/examples").join(program)))?;
        if !output.status.success() {
            return Err(format!("the page can't be made: {}", process::tail(&output.stderr, 5)).into());
        }
        page.extend(output.stdout);
    }
    let path = workspace::root().join("SUPPORT.md");
    if !check {
        return Ok(fs::write(path, page)?);
    }
    if fs::read(path).unwrap_or_default() == page {
        return Ok(());
    }
    Err("SUPPORT.md is not what the tables say; `cargo xtask support` writes it".into())
}
