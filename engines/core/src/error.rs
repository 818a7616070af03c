//! Errors past the ABI's front.

/// Failure of a call. The message gives the expected and the actual value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// Kind of an [`Error`]; each has its status in the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Invalid argument: null, a stale handle, malformed bytes.
    BadParam,
    /// Well-formed argument with a value that does not fit.
    InvalidValue,
    /// There is nothing to supply.
    NotApplicable,
    /// Allocation failed.
    AllocFailed,
    /// Failure of a device, or of a library that drives it.
    Device,
    /// Not supported by a library, for good: asked again, it gives the same answer.
    Unsupported,
    /// Defect of this library.
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

    /// Prefixes the message with the operation that failed.
    pub fn within(self, what: impl std::fmt::Display) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<hipdnn_capi::Error> for Error {
    fn from(error: hipdnn_capi::Error) -> Error {
        let kind = match error {
            hipdnn_capi::Error::Full { .. } => ErrorKind::AllocFailed,
            _ => ErrorKind::BadParam,
        };
        Error::new(kind, error.to_string())
    }
}
