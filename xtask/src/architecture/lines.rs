//! Production lines of a crate.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Attributes of modules that are compiled for tests only.
const TESTS_ONLY: [&str; 2] = ["#[cfg(test)]", "#[cfg(any(test, feature = \"testing\"))]"];

/// The lines of the Rust files under `folder`, without generated ones and without what is compiled for tests only.
pub(super) fn production(folder: &Path) -> Result<usize> {
    let files = files(folder)?;
    let mut texts = Vec::with_capacity(files.len());
    let mut tests = HashSet::new();
    for file in &files {
        let text = fs::read_to_string(file)?;
        tests.extend(modules_of_tests(&text).into_iter().map(|module| children(file).join(module)));
        texts.push(text);
    }
    let is_test = |file: &Path| file.ancestors().any(|part| tests.contains(&part.with_extension("")));
    let of_production = files.iter().zip(&texts).filter(|(file, _)| !is_test(file));
    Ok(of_production.map(|(_, text)| without_tests(text)).sum())
}

/// The Rust files under a folder but generated ones, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    if !folder.is_dir() {
        return Ok(all);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "generated") {
                all.extend(files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// The folder with the submodules of a file.
pub(super) fn children(file: &Path) -> PathBuf {
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => file.parent().unwrap_or(Path::new("")).to_owned(),
        _ => file.with_extension(""),
    }
}

fn is_tests_only(line: &str) -> bool {
    TESTS_ONLY.contains(&line.trim())
}

/// The name in `mod name;` or `mod name {`, whatever stands before it.
fn module(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "mod").skip(1);
    words.next().map(|name| name.trim_end_matches(';'))
}

/// The modules in files of their own that are compiled for tests only.
fn modules_of_tests(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let declares = |pair: &&[&str]| is_tests_only(pair[0]) && pair[1].ends_with(';');
    lines.windows(2).filter(declares).filter_map(|pair| module(pair[1])).collect()
}

/// Number of lines outside of modules that are compiled for tests only.
fn without_tests(text: &str) -> usize {
    let mut count = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let begins = lines.peek().is_some_and(|next| module(next).is_some() && next.ends_with('{'));
        if is_tests_only(line) && begins {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            lines.by_ref().find(|line| *line == end);
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_production_lines() {
        let text = "//! A module.\n\nmod a;\n#[cfg(test)]\nmod b;\n#[cfg(any(test, feature = \"testing\"))]\npub mod c;\n\n\
                    fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\nfn h() {}\n";
        assert_eq!(modules_of_tests(text), ["b", "c"]);
        assert_eq!(without_tests(text), 11);
    }

    #[test]
    fn submodules_lie_beside_a_folder_or_in_it() {
        for (file, want) in [("src/lib.rs", "src"), ("src/a/mod.rs", "src/a"), ("src/a/b.rs", "src/a/b")] {
            assert_eq!(children(Path::new(file)), Path::new(want));
        }
    }
}
