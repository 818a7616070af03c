//! What can go wrong past the ABI's front.

/// Why a call did not do what it was asked. The message says what was wanted and what came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What sort of error it is; each has its status in the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// An argument that the call cannot work with: null, a stale handle, bytes that are not what they should be.
    BadParam,
    /// A well-formed argument with a value that does not fit.
    InvalidValue,
    /// There is nothing to supply.
    NotApplicable,
    /// Memory could not be had.
    AllocFailed,
    /// A device, or a library that drives it, did not do what it was asked.
    Device,
    /// A library says that it does not do this, which it will say again.
    Unsupported,
    /// A defect of this library.
    Internal,
}

impl Error {
    /// An error of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    /// See [`ErrorKind::BadParam`].
    pub fn bad_param(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadParam, message)
    }

    /// See [`ErrorKind::InvalidValue`].
    pub fn invalid_value(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidValue, message)
    }

    /// See [`ErrorKind::NotApplicable`].
    pub fn not_applicable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotApplicable, message)
    }

    /// See [`ErrorKind::AllocFailed`].
    pub fn alloc_failed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::AllocFailed, message)
    }

    /// The same error, its message behind what was being done.
    pub fn within(self, what: impl std::fmt::Display) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }

    /// What sort of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
