//! `cargo xtask support [--check]`: `SUPPORT.md`, printed by the tables of the plugin and the execution provider.

use std::fs;

use crate::{Result, process, workspace};

/// Writes the page, or checks that it is current.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err(format!("support takes nothing or --check, got {}", arguments.join(" ")).into()),
    };
    let mut page = Vec::new();
    for package in ["hipdnn-rs-plugin", "hipdnn-rs-ep"] {
        let mut command = workspace::cargo();
        command.args(["run", "--quiet", "--package", package, "--example", "support"]);
        let output = process::capture(&mut command)?;
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
