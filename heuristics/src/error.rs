//! Errors to C: the status, and the thread's last message.

use std::ffi::c_char;
use std::fmt;

use hipdnn_capi::text::LastError;
use hipdnn_capi::unwind::caught;
use hipdnn_sdk_bindings::hipdnn::plugin::{ERROR_STRING_MAX_LENGTH, PluginStatus};

use crate::log;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Status that the call answers.
    pub status: PluginStatus,
    /// What was expected and what was there.
    pub message: String,
}

impl Error {
    /// A wrong argument.
    pub fn bad_param(message: impl Into<String>) -> Error {
        Error { status: PluginStatus::BAD_PARAM, message: message.into() }
    }

    /// A call before the one that makes what it asks for.
    pub fn not_initialized(message: impl Into<String>) -> Error {
        Error { status: PluginStatus::NOT_INITIALIZED, message: message.into() }
    }

    /// Something that there is not; no failure.
    pub fn not_applicable(message: impl Into<String>) -> Error {
        Error { status: PluginStatus::NOT_APPLICABLE, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<hipdnn_capi::Error> for Error {
    fn from(error: hipdnn_capi::Error) -> Error {
        let status = match error {
            hipdnn_capi::Error::Full { .. } => PluginStatus::ALLOC_FAILED,
            _ => PluginStatus::BAD_PARAM,
        };
        Error { status, message: error.to_string() }
    }
}

thread_local! {
    static LAST: LastError<ERROR_STRING_MAX_LENGTH> = const { LastError::new() };
}

/// Last message of the calling thread, empty if there was none. It stays until the thread's next error.
pub(crate) fn last_error() -> *const c_char {
    LAST.with(LastError::as_ptr)
}

/// Runs the body of the exported function `name` and answers with its status; the message of an error or a panic
/// becomes the thread's last error.
pub(crate) fn guard(name: &str, body: impl FnOnce() -> Result<(), Error>) -> PluginStatus {
    let error = match caught(body) {
        Ok(Ok(())) => return PluginStatus::SUCCESS,
        Ok(Err(error)) => error,
        Err(message) => Error { status: PluginStatus::INTERNAL_ERROR, message: format!("internal error: {message}") },
    };
    LAST.with(|last| last.set(&error.message));
    if error.status != PluginStatus::NOT_APPLICABLE {
        // The host's callback is foreign ground; a message that can't be logged is the last error still.
        let _ = caught(|| log::warning(&format!("{name}: {error}")));
    }
    error.status
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn errors_and_panics_become_a_status_and_a_message() {
        type Body = fn() -> Result<(), Error>;
        let cases: [(Body, PluginStatus, &str); 4] = [
            (|| Ok(()), PluginStatus::SUCCESS, ""),
            (|| Err(Error::bad_param("null")), PluginStatus::BAD_PARAM, "null"),
            (|| Err(Error::not_applicable("no")), PluginStatus::NOT_APPLICABLE, "no"),
            (|| panic!("split {}", 7), PluginStatus::INTERNAL_ERROR, "internal error: split 7"),
        ];
        for (body, want, text) in cases {
            assert_eq!(guard("test", body), want);
            // SAFETY: the text ends in NUL and is this thread's own.
            assert_eq!(unsafe { CStr::from_ptr(last_error()) }.to_str(), Ok(text));
        }
    }
}
