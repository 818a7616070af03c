//! `cargo xtask support [--check]`: the pages that are printed by the tables of the plugin and the execution provider.

use std::fs;
use std::process::Command;

use crate::{Result, process, workspace};

/// Each page with the examples that print its parts, in order.
const PAGES: [(&str, &[&str]); 2] =
    [("SUPPORT.md", &["support_of_engines", "support_of_operators"]), ("docs/src/knobs.md", &["knobs_of_engines"])];

/// Writes the pages, or checks that they are current.
pub(crate) fn run(check: bool) -> Result<()> {
    // Of the whole workspace, since its crates are then those that `cargo test` has built.
    let mut build = workspace::cargo();
    build.args(["build", "--quiet", "--workspace"]);
    build.args(PAGES.iter().flat_map(|(_, programs)| *programs).flat_map(|program| ["--example", program]));
    process::run(&mut build, "the build of the tables")?;
    for (name, programs) in PAGES {
        let mut page = Vec::new();
        for program in programs {
            let output = process::capture(&mut Command::new(workspace::target().join("debug/examples").join(program)))?;
            if !output.status.success() {
                return Err(format!("{name} can't be made: {}", process::tail(&output.stderr, 5)).into());
            }
            page.extend(output.stdout);
        }
        let path = workspace::root().join(name);
        if !check {
            fs::write(path, page)?;
        } else if fs::read(path).unwrap_or_default() != page {
            return Err(format!("{name} is not what the tables say; `cargo xtask support` writes it").into());
        }
    }
    Ok(())
}
