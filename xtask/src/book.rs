//! The book: `docs/`, by mdBook.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::install::layout;
use crate::summary::{Outcome, Summary};
use crate::tools::Tool;
use crate::{Result, process, workspace};

const MDBOOK: Tool =
    Tool { package: "mdbook", version: "0.5.4", options: &["--no-default-features", "--features", "search"] };

/// Builds the book and prints the path of its first page.
pub(crate) fn run() -> Result<()> {
    match build()? {
        Ok(directory) => println!("{}", directory.join("index.html").display()),
        Err(reason) => return Err(reason.into()),
    }
    Ok(())
}

/// The suite `book`: it builds without a complaint, and its links lead somewhere.
pub(crate) fn test(summary: &mut Summary) -> Result<()> {
    let outcome = match build()? {
        Ok(directory) => match dead_links(&directory)?.as_slice() {
            [] => Outcome::Passed,
            links => Outcome::Failed(format!("links that lead nowhere: {}", links.join(", "))),
        },
        Err(reason) => Outcome::Skipped(reason),
    };
    summary.record("book", outcome);
    Ok(())
}

/// The built book; the inner error is why there is no mdBook.
fn build() -> Result<Result<PathBuf, String>> {
    let mut command = match MDBOOK.command() {
        Ok(command) => command,
        Err(reason) => return Ok(Err(reason)),
    };
    let directory = workspace::target().join("book");
    command.args(["build", "docs", "--dest-dir"]).arg(&directory);
    let output = process::capture(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    // A missing include is a line of the log, and the book is built all the same.
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("ERROR") || line.contains("WARN")).collect();
    if output.status.success() && complaints.is_empty() {
        return Ok(Ok(directory));
    }
    let said = if complaints.is_empty() { process::tail(&output.stderr, 5) } else { complaints.join("\n") };
    Err(format!("mdbook: {said}").into())
}

/// Links of pages to files that the book lacks, and to headings that their page lacks.
fn dead_links(directory: &Path) -> Result<Vec<String>> {
    let link = Regex::new(r#"<a href="([^"]*)""#)?;
    let mut dead = Vec::new();
    for page in layout::files_below(directory)? {
        // The page for printing has all the others, with links from where it lies.
        if page.extension().is_none_or(|end| end != "html") || page.ends_with("print.html") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for target in link.captures_iter(&text).map(|found| found[1].to_owned()) {
            if !leads_somewhere(&page, &text, &target) {
                dead.push(format!("{} to {target}", page.strip_prefix(directory).unwrap_or(&page).display()));
            }
        }
    }
    Ok(dead)
}

fn leads_somewhere(page: &Path, text: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let is_heading = |text: &str| heading.is_empty() || text.contains(&format!("id=\"{heading}\""));
    if file.is_empty() {
        return is_heading(text);
    }
    let path = page.with_file_name("").join(file);
    let path = if path.is_dir() { path.join("index.html") } else { path };
    fs::read_to_string(path).is_ok_and(|text| is_heading(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_files_and_headings() {
        let directory = std::env::temp_dir().join(format!("hipdnn-rs-book-{}", std::process::id()));
        fs::create_dir_all(directory.join("below")).expect("a directory");
        let page = directory.join("page.html");
        let text = r#"<h2 id="here">"#;
        fs::write(&page, text).expect("a page");
        fs::write(directory.join("below/index.html"), text).expect("a page");
        for (target, good) in [
            ("https://example.org/a", true),
            ("#here", true),
            ("#there", false),
            ("below/index.html#here", true),
            ("below/index.html#there", false),
            ("below/", true),
            ("below/page.html", false),
            ("../none.html", false),
        ] {
            assert_eq!(leads_somewhere(&page, text, target), good, "{target}");
        }
        fs::remove_dir_all(directory).expect("it was made");
    }
}
