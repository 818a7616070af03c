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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kind, from which the status of the C ABI follows, is the constructor's, and survives what is put before the
    /// message.
    #[test]
    fn errors_keep_their_kind_and_message() {
        type Constructor = fn(&'static str) -> Error;
        let constructors: [(Constructor, ErrorKind); 4] = [
            (Error::bad_param, ErrorKind::BadParam),
            (Error::invalid_value, ErrorKind::InvalidValue),
            (Error::not_applicable, ErrorKind::NotApplicable),
            (Error::alloc_failed, ErrorKind::AllocFailed),
        ];
        for (constructor, kind) in constructors {
            let error = constructor("expected this, got that");
            assert_eq!((error.kind(), error.to_string()), (kind, "expected this, got that".to_string()));
            let error = error.within("knob 7");
            assert_eq!((error.kind(), error.to_string()), (kind, "knob 7: expected this, got that".to_string()));
        }
        assert_eq!(Error::new(ErrorKind::Device, "").kind(), ErrorKind::Device);
    }

    /// A full table is no fault of the arguments, as all other errors of a border are.
    #[test]
    fn only_a_full_table_is_no_bad_argument() {
        use hipdnn_capi::Error::{Full, Misaligned, Null, Unknown};
        for (error, kind) in [
            (Null { what: "handle" }, ErrorKind::BadParam),
            (Misaligned { what: "handle", address: 3, wanted: 8 }, ErrorKind::BadParam),
            (Unknown { what: "a handle", key: 5 }, ErrorKind::BadParam),
            (Full { what: "handles", most: 4 }, ErrorKind::AllocFailed),
        ] {
            let message = error.to_string();
            assert_eq!(Error::from(error), Error::new(kind, message));
        }
    }
}
