//! Text forms of words and numbers.

use hipdnn_schemas::TensorValue;

/// Names come from files that anybody may have written: nothing of them may steer a terminal, or fill it.
const LONGEST_NAME: usize = 60;

/// A name in quotes, cut where it is long, or nothing for an empty one.
pub(crate) fn name(name: &str) -> String {
    if name.is_empty() { String::new() } else { quoted(name) }
}

/// A text in quotes, cut where it is long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A list of numbers without blanks, such as `[1,3,8,8]`.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(","))
}

/// A number of bytes with its unit; small ones to the byte.
pub(crate) fn bytes(count: u128) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 4096 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// A count with its noun.
pub(crate) fn count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A scalar of a graph, such as `float 0.5`.
pub(crate) fn value(value: TensorValue) -> String {
    match value {
        TensorValue::Float32(v) | TensorValue::Float16(v) | TensorValue::BFloat16(v) => v.to_string(),
        TensorValue::Float8(byte) => format!("{byte:#04x}"),
        TensorValue::Int32(v) => v.to_string(),
        TensorValue::Float64(v) => v.to_string(),
        TensorValue::Int64(v) => v.to_string(),
        TensorValue::Bool(v) => v.to_string(),
    }
}

/// A text that may have several lines, each indented by that many blanks. What could steer a terminal is spelled out.
pub(crate) fn indented(text: &str, blanks: usize) -> String {
    let blanks = " ".repeat(blanks);
    text.lines().map(|line| format!("{blanks}{}\n", printable(line))).collect()
}

/// One line of foreign text, control characters spelled out.
pub(crate) fn printable(line: &str) -> String {
    line.chars().flat_map(|c| if c.is_control() && c != '\t' { c.escape_debug().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_their_line() {
        for (raw, want) in [("", ""), ("x", "\"x\""), ("a\"b\n\x1b[2J", "\"a\\\"b\\n\\u{1b}[2J\"")] {
            assert_eq!(name(raw), want);
        }
        let long = "é".repeat(100);
        assert_eq!(name(&long).chars().count(), LONGEST_NAME + 3);
        assert_eq!(indented("a\n\x1b[1mb", 2), "  a\n  \\u{1b}[1mb\n");
    }

    #[test]
    fn sizes() {
        for (size, want) in [
            (0, "0 B"),
            (4095, "4095 B"),
            (4096, "4.0 KiB"),
            (1536 * 1024, "1.5 MiB"),
            (u128::from(u64::MAX), "16384.0 PiB"),
        ] {
            assert_eq!(bytes(size), want);
        }
        assert_eq!((count(1, "node"), count(2, "node")), ("1 node".into(), "2 nodes".into()));
        assert_eq!(list(&[1, -2]), "[1,-2]");
    }
}
