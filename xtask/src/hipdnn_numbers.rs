//! `cargo xtask hipdnn-numbers FILE… --at ORIGIN`: reads enumerations in hipDNN's own headers and schemas anew, and
//! writes their numbers into the tables that tests compare with. The tables stay independent of the project's own:
//! nothing else writes them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::{Result, workspace};

/// The table of the C enumerations, and that of the wire format's.
const TABLES: [&str; 2] = ["sdk-bindings/tests/hipdnn_numbers.txt", "schemas/tests/hipdnn_numbers.txt"];

#[derive(Args)]
pub(crate) struct Options {
    /// A header or a schema of projects/hipdnn in rocm-libraries, from backend/include or flatbuffers_sdk/schemas
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The repository and commit that the files are from: `ROCm/rocm-libraries 02dc267b`
    #[arg(long, value_name = "ORIGIN")]
    at: String,
}

/// Runs the task.
///
/// # Errors
/// If a file has no enumeration that a table has, or files can't be read or written.
pub(crate) fn run(options: &Options) -> Result<()> {
    for file in &options.files {
        let text = fs::read_to_string(file).map_err(|problem| format!("{}: {problem}", file.display()))?;
        take(file, &text, &options.at).map_err(|problem| format!("{}: {problem}", file.display()))?;
    }
    Ok(())
}

/// Writes a file's numbers into the table that has it.
fn take(file: &Path, text: &str, origin: &str) -> Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for path in TABLES {
        let at = workspace::root().join(path);
        if let Some(table) = replaced(&fs::read_to_string(&at)?, &name, text, origin)? {
            fs::write(at, table)?;
            println!("hipdnn-numbers: {path} has the numbers of {name} at {origin}");
            return Ok(());
        }
    }
    Err(format!("expected a file that is named in {}", TABLES.join(" or ")).into())
}

/// The table with a file's part made anew; `None` if it has no such part.
fn replaced(table: &str, file: &str, text: &str, origin: &str) -> Result<Option<String>, String> {
    let is_heading = |line: &str| {
        line.strip_prefix("# ").and_then(|line| line.strip_prefix(file)).is_some_and(|rest| rest.starts_with(" @ "))
    };
    let parts: Vec<&str> = table.split("\n\n").collect();
    let Some(at) = parts.iter().position(|part| part.lines().next().is_some_and(is_heading)) else { return Ok(None) };
    let mut names: Vec<&str> = Vec::new();
    for line in parts[at].lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(' ').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let (mut fresh, mut lines) = (format!("# {file} @ {origin}"), String::new());
    for name in names {
        let enumerators = enumerators(text, name)?;
        let _ = write!(fresh, "\n# {} of {name}", enumerators.len());
        for (enumerator, number) in enumerators {
            let _ = write!(lines, "\n{name} {enumerator} {number}");
        }
    }
    fresh += &lines;
    if parts[at].ends_with('\n') {
        fresh.push('\n');
    }
    let parts: Vec<&str> = parts.iter().enumerate().map(|(i, part)| if i == at { &fresh } else { *part }).collect();
    Ok(Some(parts.join("\n\n")))
}

/// The enumerators of an enumeration in a C header, or of one or a union in a schema of FlatBuffers, with their
/// numbers.
fn enumerators(text: &str, enumeration: &str) -> Result<Vec<(String, i64)>, String> {
    let text = without_comments(text);
    let found = body(&text, enumeration).ok_or_else(|| format!("expected an enumeration {enumeration}, got none"))?;
    // A union's first is 1, as 0 is none of them.
    let mut next = i64::from(found.is_union);
    let mut all = Vec::new();
    for item in found.items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, number) = match item.split_once('=') {
            Some((name, number)) => (name.trim(), number.trim().parse().map_err(|_| wrong(item))?),
            None => (item, next),
        };
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(wrong(item));
        }
        next = number + 1;
        all.push((name.to_owned(), number));
    }
    if all.is_empty() { Err(format!("expected enumerators of {enumeration}, got none")) } else { Ok(all) }
}

fn wrong(item: &str) -> String {
    format!("expected an enumerator such as `NAME = 1`, got {item:?}")
}

/// What stands between the braces of an enumeration.
struct Body<'a> {
    items: &'a str,
    is_union: bool,
}

fn body<'a>(text: &'a str, enumeration: &str) -> Option<Body<'a>> {
    text.match_indices('{').find_map(|(open, _)| {
        let (items, after) = text[open + 1..].split_once('}')?;
        let before = text[..open].rsplit(['}', ';']).next()?.split_whitespace().collect::<Vec<_>>();
        let is = |words: &[&str]| before.ends_with(words);
        // C names it behind the braces; a schema in front, with its type.
        let in_c = is(&["typedef", "enum"]) && after.split(';').next().is_some_and(|name| name.trim() == enumeration);
        let is_union = is(&["union", enumeration]);
        let in_schema = before.windows(3).any(|words| *words == ["enum", enumeration, ":"]);
        (in_c || is_union || in_schema).then_some(Body { items, is_union })
    })
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(at) = rest.find('/') {
        kept += &rest[..at];
        rest = &rest[at..];
        let end = match rest.as_bytes().get(1) {
            Some(b'/') => rest.find('\n').unwrap_or(rest.len()),
            Some(b'*') => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => {
                kept.push('/');
                1
            }
        };
        rest = &rest[end..];
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/** @enum a_t { A = 9 } */\n\
                          typedef enum\n{\n    B = 1, ///< x / y, {z}\n    C, // = 7\n    D = -3\n} b_t;\n\
                          typedef enum\n{\n    A = 1\n} a_t;\n";
    const SCHEMA: &str = "namespace a;\n\
                          enum Mode : byte {\n  UNSET = 0,\n  MAX_OP = 28, // Max is reserved\n  NEXT\n}\n\
                          union Node { First, Second }\n";

    #[test]
    fn enumerators_are_read_as_compilers_read_them() {
        let read = |text, name| {
            let all = enumerators(text, name).unwrap();
            all.iter().map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(read(HEADER, "b_t"), "B 1, C 2, D -3");
        assert_eq!(read(HEADER, "a_t"), "A 1");
        assert_eq!(read(SCHEMA, "Mode"), "UNSET 0, MAX_OP 28, NEXT 29");
        assert_eq!(read(SCHEMA, "Node"), "First 1, Second 2");
    }

    #[test]
    fn what_can_not_be_read_is_refused() {
        for (text, wanted) in [
            ("typedef enum { A = 1 } c_t;", "expected an enumeration b_t, got none"),
            ("typedef enum { A = 1 << 2 } b_t;", "got \"A = 1 << 2\""),
            ("typedef enum { A B } b_t;", "got \"A B\""),
            ("typedef enum { } b_t;", "expected enumerators of b_t"),
        ] {
            let problem = enumerators(text, "b_t").unwrap_err();
            assert!(problem.contains(wanted), "{problem}");
        }
    }

    #[test]
    fn the_part_of_a_file_is_replaced_and_no_other() {
        let table =
            "# Numbers.\n\n# A.h @ old 1,\n# older 2\n# 1 of b_t\nb_t B 1\n\n# BA.h @ old 1\n# 1 of b_t\nb_t B 1\n";
        let fresh = "# Numbers.\n\n# A.h @ new 2\n# 3 of b_t\nb_t B 1\nb_t C 2\nb_t D -3\n\n\
                     # BA.h @ old 1\n# 1 of b_t\nb_t B 1\n";
        assert_eq!(replaced(table, "A.h", HEADER, "new 2").unwrap().as_deref(), Some(fresh));
        assert_eq!(replaced(fresh, "A.h", HEADER, "new 2").unwrap().as_deref(), Some(fresh));
        assert_eq!(replaced(table, "C.h", HEADER, "new 2"), Ok(None));
        let last = replaced(table, "BA.h", HEADER, "new 2").unwrap().unwrap();
        let both = "# A.h @ old 1\n# 1 of b_t\n# 1 of a_t\nb_t B 1\na_t A 1\n";
        let fresh = "# A.h @ new 2\n# 3 of b_t\n# 1 of a_t\nb_t B 1\nb_t C 2\nb_t D -3\na_t A 1\n";
        assert_eq!(replaced(both, "A.h", HEADER, "new 2").unwrap().as_deref(), Some(fresh));
        assert!(last.ends_with("# BA.h @ new 2\n# 3 of b_t\nb_t B 1\nb_t C 2\nb_t D -3\n"), "{last}");
    }
}
