//! The enumerations of pointwise modes, made from the one in `schemas/fbs/pointwise.fbs`: the wire format's, and that
//! of hipDNN's C ABI, which has the same numbers.

use std::fmt::Write as _;
use std::fs;

use super::{Files, MARK, Outcome, settle};
use crate::{Result, workspace};

/// Directory of the C ABI's enumeration.
pub(super) const DIRECTORY: &str = "sdk-bindings/src/hipdnn/generated";

/// File name of both enumerations.
pub(super) const FILE: &str = "pointwise_mode.rs";

const SOURCE: &str = "schemas/fbs/pointwise.fbs";

/// A line of the enumeration.
#[derive(Debug, PartialEq, Eq)]
struct Mode {
    /// Name in capitals, as hipDNN's schema has it.
    name: String,
    number: i8,
    operands: usize,
}

impl Mode {
    /// Name without the ending that keeps the schema's from being a macro of C.
    fn c_name(&self) -> &str {
        self.name.strip_suffix("_OP").unwrap_or(&self.name)
    }

    /// Name in Rust.
    fn variant(&self) -> String {
        let capitalized = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
        self.c_name().split('_').map(capitalized).collect()
    }
}

/// Generates the C ABI's enumeration, or checks that it is current.
///
/// # Errors
/// If the schema has a line that is no mode, or files can't be read or written.
pub(super) fn generate(check: bool) -> Result<Outcome> {
    let fresh = Files::from([(FILE.to_owned(), c(&read()?).into_bytes())]);
    settle(&workspace::root().join(DIRECTORY), &fresh, check)
}

/// The wire format's enumeration.
///
/// # Errors
/// If the schema has a line that is no mode, or can't be read.
pub(super) fn wire() -> Result<String> {
    Ok(rust(&read()?))
}

fn read() -> Result<Vec<Mode>> {
    let text = fs::read_to_string(workspace::root().join(SOURCE))?;
    modes(&text).map_err(|problem| format!("{SOURCE}: {problem}").into())
}

/// The modes of a schema, in the order of their numbers.
fn modes(schema: &str) -> Result<Vec<Mode>, String> {
    let body = schema.split_once("enum PointwiseMode : byte {").and_then(|(_, rest)| rest.split_once('}'));
    let (body, _) = body.ok_or("expected an enumeration PointwiseMode of bytes, got none")?;
    let mut modes: Vec<Mode> = Vec::new();
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mode = mode(line).ok_or_else(|| format!("expected `NAME = number (operands: count)`, got {line:?}"))?;
        if modes.last().is_some_and(|last| last.number >= mode.number) {
            return Err(format!("expected numbers in ascending order, got {line:?}"));
        }
        modes.push(mode);
    }
    Ok(modes)
}

fn mode(line: &str) -> Option<Mode> {
    let (name, rest) = line.split_once(" = ")?;
    let (number, operands) = rest.trim_end_matches(',').strip_suffix(')')?.split_once(" (operands: ")?;
    let is_word = |word: &str| word.starts_with(|c: char| c.is_ascii_uppercase());
    let is_name = name.split('_').all(is_word) && name.chars().all(|c| c == '_' || c.is_ascii_uppercase());
    let (number, operands) = (number.parse().ok()?, operands.parse().ok()?);
    is_name.then(|| Mode { name: name.to_owned(), number, operands })
}

/// The wire format's enumeration in Rust.
fn rust(modes: &[Mode]) -> String {
    let mut variants = String::new();
    let mut arms = String::new();
    for mode in modes {
        let (variant, word) = (mode.variant(), mode.name.to_lowercase());
        let _ = writeln!(variants, "        {variant} = {}, \"{word}\";", mode.number);
        let _ = writeln!(arms, "            PointwiseMode::{variant} => {},", mode.operands);
    }
    format!(
        "{MARK}
wire_enum! {{
    /// Element-wise operation of a pointwise node.
    #[expect(missing_docs, reason = \"the names are the operations\")]
    PointwiseMode {{
{variants}    }}
}}

impl PointwiseMode {{
    /// Number of tensor operands of the operation; 0 for [`PointwiseMode::Unset`].
    pub const fn operands(self) -> usize {{
        match self {{
{arms}        }}
    }}
}}
"
    )
}

/// The C ABI's enumeration in Rust. C has no unset mode.
fn c(modes: &[Mode]) -> String {
    let mut variants = String::new();
    for mode in modes.iter().filter(|mode| mode.number != 0) {
        let _ = writeln!(variants, "        {} = {},", mode.c_name(), mode.number);
    }
    format!(
        "{MARK}
c_enum! {{
    /// `hipdnnPointwiseMode_t`.
    PointwiseMode, \"HIPDNN_POINTWISE_\" {{
{variants}    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "// Modes.\nenum PointwiseMode : byte {\n  UNSET = 0 (operands: 0),\n  \
                          MAX_OP = 28 (operands: 2),\n  TANH_FWD = 47 (operands: 1)\n}\n";

    #[test]
    fn a_line_of_the_schema_is_a_mode_of_both_enumerations() {
        let modes = modes(SCHEMA).unwrap();
        assert_eq!(modes[1], Mode { name: "MAX_OP".to_owned(), number: 28, operands: 2 });
        let (rust, c) = (rust(&modes), c(&modes));
        for line in ["Unset = 0, \"unset\";", "Max = 28, \"max_op\";", "TanhFwd = 47, \"tanh_fwd\";"] {
            assert!(rust.contains(&format!("\n        {line}\n")), "{line} in {rust}");
        }
        for line in ["Unset => 0,", "Max => 2,", "TanhFwd => 1,"] {
            assert!(rust.contains(&format!("\n            PointwiseMode::{line}\n")), "{line} in {rust}");
        }
        assert!(c.contains("{\n        MAX = 28,\n        TANH_FWD = 47,\n    }"), "{c}");
    }

    #[test]
    fn what_is_no_mode_is_refused_with_its_line() {
        for (from, to, wanted) in [
            ("28 (operands: 2)", "28", "got \"MAX_OP = 28,\""),
            ("MAX_OP", "Max", "got \"Max = 28 (operands: 2),\""),
            ("= 28", "= 200", "got \"MAX_OP = 200"),
            ("= 28", "= 0", "expected numbers in ascending order, got \"MAX_OP = 0"),
            ("PointwiseMode", "ReductionMode", "expected an enumeration PointwiseMode"),
        ] {
            let problem = modes(&SCHEMA.replace(from, to)).unwrap_err();
            assert!(problem.contains(wanted), "{problem}");
        }
    }
}
