//! Errors on their way to ONNX Runtime.

use hipdnn_client::workspace::NoMemory;
use hipdnn_sdk_bindings::ort::{ErrorCode, MissingEntry};

/// A callback's answer when it does not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    /// The runtime's kind of error.
    pub code: ErrorCode,
    /// One sentence: `expected …, got …`.
    pub message: String,
}

impl Error {
    /// The caller gave something that cannot be used.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error { code: ErrorCode::INVALID_ARGUMENT, message: message.into() }
    }

    /// The provider could not do its work.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { code: ErrorCode::EP_FAIL, message: message.into() }
    }

    /// The error of a request that the provider does not serve.
    pub(crate) fn not_implemented(message: impl Into<String>) -> Error {
        Error { code: ErrorCode::NOT_IMPLEMENTED, message: message.into() }
    }

    /// The same error, saying first where it happened.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Error {
        Error { message: format!("{place}: {}", self.message), ..self }
    }
}

impl From<NoMemory> for Error {
    fn from(error: NoMemory) -> Error {
        Error::failed(error.to_string())
    }
}

impl From<MissingEntry> for Error {
    fn from(error: MissingEntry) -> Error {
        Error::failed(error.to_string())
    }
}
