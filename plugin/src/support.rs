//! The tables of `SUPPORT.md`, made from the tables that decide.

/// The generated part of `SUPPORT.md`.
pub fn support_markdown() -> String {
    String::new()
}
