//! Errors in a caller's arguments.

use std::fmt;

/// Invalid argument of a call, or no room for what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Null pointer.
    Null {
        /// Name of the argument.
        what: &'static str,
    },
    /// Pointer that is not a multiple of its type's alignment.
    Misaligned {
        /// Name of the argument.
        what: &'static str,
        /// Address that was passed.
        address: usize,
        /// Required alignment in bytes.
        wanted: usize,
    },
    /// Handle that its table does not hold.
    Unknown {
        /// Kind of object that the table holds.
        what: &'static str,
        /// Value of the handle; 0 for null.
        key: u64,
    },
    /// Full table: no room for another handle.
    Full {
        /// Kind of object that the table holds.
        what: &'static str,
        /// Capacity of the table.
        most: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Null { what } => write!(f, "{what}: expected a pointer, got null"),
            Error::Misaligned { what, address, wanted } => {
                write!(f, "{what}: expected a multiple of {wanted}, got {address:#x}")
            }
            Error::Unknown { what, key: 0 } => write!(f, "expected {what}, got null"),
            Error::Unknown { what, key } => {
                write!(f, "expected {what}, got {key:#x}, which is none or was destroyed")
            }
            Error::Full { what, most } => write!(f, "no room for {what}: there are {most} already"),
        }
    }
}

impl std::error::Error for Error {}
