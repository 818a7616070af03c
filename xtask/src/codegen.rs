//! `cargo xtask codegen [--check]`: generates the code that is committed: the wire format's from `schemas/fbs`, the
//! tables of HIP, hiprtc and MIOpen from their headers.

mod foreign;
mod schemas;
mod table;
mod wheel;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Result;

pub(crate) use schemas::flatbuffers;

/// Exit status of a task none of whose parts could be done, as test harnesses know it.
const SKIPPED: i32 = 77;

/// Outcome of generating or checking a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The generated code was written.
    Written,
    /// The generated code is up to date.
    Current,
    /// These files are out of date.
    Stale(Vec<String>),
    /// It could not be generated, for this reason.
    Skipped(String),
}

/// A directory of generated code.
struct Part {
    directory: &'static str,
    generate: fn(check: bool) -> Result<Outcome>,
}

const PARTS: [Part; 2] = [
    Part { directory: schemas::DIRECTORY, generate: schemas::generate },
    Part { directory: foreign::DIRECTORY, generate: foreign::generate },
];

/// Runs the task. It ends the process with status 77 if no part of it could be done.
///
/// # Errors
/// If a source is refused, or generated code is not current.
pub(crate) fn run(check: bool) -> Result<()> {
    let mut stale = Vec::new();
    let mut skipped = 0;
    for (directory, outcome) in generate(check)? {
        match outcome {
            Outcome::Written => println!("codegen: {directory} is written"),
            Outcome::Current => println!("codegen: {directory} is current"),
            Outcome::Stale(files) => stale.extend(files.into_iter().map(|file| format!("{directory}/{file}"))),
            Outcome::Skipped(reason) => {
                println!("codegen: {directory} is skipped: {reason}");
                skipped += 1;
            }
        }
    }
    if !stale.is_empty() {
        return Err(format!("codegen: not current: {}; run `cargo xtask codegen`", stale.join(", ")).into());
    }
    if skipped == PARTS.len() {
        std::process::exit(SKIPPED);
    }
    Ok(())
}

/// Generates all code, or checks that it is current: the outcome of each directory.
///
/// # Errors
/// If a source is refused or files can't be read or written.
pub(crate) fn generate(check: bool) -> Result<Vec<(&'static str, Outcome)>> {
    PARTS.iter().map(|part| Ok((part.directory, (part.generate)(check)?))).collect()
}

/// The files of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;

fn files(directory: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
    }
    Ok(files)
}

/// Compares a directory with its expected files, or writes them.
fn settle(directory: &Path, fresh: &Files, check: bool) -> Result<Outcome> {
    let mut present = files(directory)?;
    // Written by hand: it includes the rest.
    present.remove("mod.rs");
    if check {
        let names = fresh.keys().chain(present.keys()).collect::<BTreeSet<_>>();
        let stale: Vec<_> = names.into_iter().filter(|name| fresh.get(*name) != present.get(*name)).cloned().collect();
        return Ok(if stale.is_empty() { Outcome::Current } else { Outcome::Stale(stale) });
    }
    for name in present.keys().filter(|name| !fresh.contains_key(*name)) {
        fs::remove_file(directory.join(name))?;
    }
    for (name, content) in fresh {
        fs::write(directory.join(name), content)?;
    }
    Ok(Outcome::Written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_code_is_current() {
        for (directory, outcome) in generate(true).expect("the sources are taken") {
            match outcome {
                Outcome::Skipped(reason) => eprintln!("{directory} is skipped: {reason}"),
                outcome => assert_eq!(outcome, Outcome::Current, "{directory}"),
            }
        }
    }
}
