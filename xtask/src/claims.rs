//! `cargo xtask conformance --claims [--check]`: `CONFORMANCE.md`, the cases of the suite that each engine takes.

use std::fs;
use std::path::PathBuf;

use crate::emulated_gpu::{self, Prepared};
use crate::gpu::Gpu;
use crate::summary::{Outcome, Summary};
use crate::test::remove_settings;
use crate::{Result, conformance, process, workspace};

/// Command that makes and checks the page.
const COMMAND: &str = "cargo xtask conformance --claims";

/// Engines, with true for those that need a GPU.
const ENGINES: [(&str, bool); 2] = [(conformance::HOST, false), (conformance::MIOPEN, true)];

const HEAD: &str = "# What the engines take of the conformance suite

Each case is a graph of operations in some types, layout and extents; `conformance/README.md` says what is asked of an engine
that takes one. The tables count claims by family of cases and element type (*mixed*: several floating-point types of 16 bits
and more in one graph; *other*: integers, booleans, doubles and formats of 8 bits and fewer): one number where all cases are
claimed, `claimed of cases` elsewhere. Below each table stand the reasons that the engine gives for what it leaves to
others, most frequent first, each with an example; `#` stands for numbers that differ from case to case.

HIPDNN_RS_GPU_ENGINE was asked with the real MIOpen on the emulated GPU (gfx1100). `cargo xtask conformance --claims` writes this
page, and `cargo xtask test` checks it.
";

/// Prefix of the page's line that names the MIOpen; its version follows.
const MIOPEN_LINE: &str = "The MIOpen was Debian's ";

/// Writes the page, or checks that it is current.
pub(crate) fn run(check: bool) -> Result<()> {
    workspace::build_release()?;
    match page()? {
        Prepared::Ready(text) if check => compare(&written(), &text),
        Prepared::Ready(text) => Ok(fs::write(path(), text)?),
        Prepared::Unavailable(reason) => Err(format!("no emulated GPU: {}", reason.0).into()),
    }
}

/// The check as a part of `cargo xtask test`, with libraries that are built.
pub(crate) fn test(summary: &mut Summary) -> Result<()> {
    let outcome = match page()? {
        Prepared::Ready(text) => {
            let page = written();
            match (miopen_of(&page), miopen_of(&text)) {
                (Some(asked), Some(here)) if asked != here => Outcome::Skipped(format!(
                    "CONFORMANCE.md tells of {asked}, and here is {here}; `{COMMAND}` writes it"
                )),
                _ => compare(&page, &text)
                    .map_or_else(|problem| Outcome::Failed(problem.to_string()), |()| Outcome::Passed),
            }
        }
        Prepared::Unavailable(reason) => Outcome::Skipped(reason.0),
    };
    summary.record("conformance --claims --check", outcome);
    Ok(())
}

fn path() -> PathBuf {
    workspace::root().join("CONFORMANCE.md")
}

/// The line of the page that names the MIOpen: others may take other graphs.
fn miopen_line(version: &str) -> String {
    format!("{MIOPEN_LINE}{version}.\n")
}

/// The MIOpen that a page tells of.
fn miopen_of(page: &str) -> Option<&str> {
    page.lines().find(|line| line.starts_with(MIOPEN_LINE))
}

/// The page as it is; nothing where there is none.
fn written() -> String {
    fs::read_to_string(path()).unwrap_or_default()
}

fn compare(page: &str, text: &str) -> Result<()> {
    if page == text {
        return Ok(());
    }
    Err(format!("CONFORMANCE.md is not what the engines claim; `{COMMAND}` writes it").into())
}

fn page() -> Result<Prepared<String>> {
    let (gpu, miopen) = match emulated_gpu::ensure_with_kernels()? {
        Prepared::Ready(installation) => {
            let version = installation.miopen()?;
            (Gpu::Emulated(installation), version)
        }
        Prepared::Unavailable(reason) => return Ok(Prepared::Unavailable(reason)),
    };
    let program = conformance::program();
    let mut text = format!("{HEAD}\n{}", miopen_line(&miopen));
    for (engine, on_gpu) in ENGINES {
        let mut command = if on_gpu { gpu.command(&program) } else { std::process::Command::new(&program) };
        command.arg("--plugin").arg(conformance::plugin()).args(["--engine", engine, "--claims"]);
        remove_settings(&mut command);
        let output = process::capture(&mut command)?;
        if !output.status.success() {
            return Err(format!("{engine} can't be asked: {}", process::tail(&output.stderr, 20)).into());
        }
        text.push('\n');
        text.push_str(&String::from_utf8(output.stdout)?);
    }
    Ok(Prepared::Ready(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_miopen_that_was_asked() {
        let page = format!("{HEAD}\n{}\n## An engine\n", miopen_line("7.2.4-1"));
        assert_eq!(miopen_of(&page), Some("The MIOpen was Debian's 7.2.4-1."));
        assert_eq!(miopen_of(HEAD), None);
    }

    /// Asking the engines takes a build and the emulated GPU; that the page is one of these takes nothing.
    #[test]
    fn the_page_has_a_section_for_every_engine() {
        let page = fs::read_to_string(path()).expect("the page is there");
        assert!(page.starts_with(HEAD), "`{COMMAND}` writes the page");
        assert!(miopen_of(&page).is_some(), "`{COMMAND}` writes which MIOpen was asked");
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, ENGINES.map(|(engine, _)| engine));
    }
}
