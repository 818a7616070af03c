//! Errors to C: the status, and the thread's last message.

use std::ffi::c_char;

use hipdnn_capi::text::LastError;
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hipdnn::plugin::{ERROR_STRING_MAX_LENGTH, PluginStatus};

thread_local! {
    static LAST: LastError<ERROR_STRING_MAX_LENGTH> = const { LastError::new() };
}

/// Last message of the calling thread, empty if there was none. It stays until the thread's next error.
pub(super) fn last_error() -> *const c_char {
    LAST.with(LastError::as_ptr)
}

/// Keeps the message for the calling thread, cut to what fits.
pub(super) fn set_last_error(message: &str) {
    LAST.with(|last| last.set(message));
}

/// Status of an error.
pub(super) fn status(error: &Error) -> PluginStatus {
    match error.kind() {
        ErrorKind::BadParam => PluginStatus::BAD_PARAM,
        ErrorKind::InvalidValue => PluginStatus::INVALID_VALUE,
        ErrorKind::NotApplicable => PluginStatus::NOT_APPLICABLE,
        ErrorKind::AllocFailed => PluginStatus::ALLOC_FAILED,
        ErrorKind::Device | ErrorKind::Unsupported | ErrorKind::Internal => PluginStatus::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text ends in NUL and is this thread's own.
        unsafe { CStr::from_ptr(last_error()) }.to_str().expect("cut between characters").to_string()
    }

    #[test]
    fn messages_are_kept_by_thread() {
        assert_eq!(last(), "");
        set_last_error("mine");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(last(), "mine");
    }
}
