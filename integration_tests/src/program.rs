//! Further processes of a test program.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

/// This program, to be started once more in the same way: perhaps through a dynamic loader with its own arguments.
///
/// # Panics
/// If there is no /proc.
pub fn this_program() -> Command {
    let whole = std::fs::read("/proc/self/cmdline").expect("Linux has /proc");
    let whole: Vec<OsString> = whole
        .strip_suffix(b"\0")
        .unwrap_or(&whole)
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    // What the loader was given comes before what this program was given.
    let own = std::env::args_os().count();
    let before = &whole[..whole.len() - own + 1];
    let mut command = Command::new(&before[0]);
    command.args(&before[1..]);
    command
}
