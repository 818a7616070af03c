//! Errors to C: the status, and the thread's last message.

use std::cell::UnsafeCell;
use std::ffi::c_char;

use hipdnn_sdk_bindings::hipdnn::plugin::{ERROR_STRING_MAX_LENGTH, PluginStatus};

use crate::error::{Error, ErrorKind};

thread_local! {
    // An array without a destructor: the library may be unloaded before the thread ends.
    static LAST: UnsafeCell<[u8; ERROR_STRING_MAX_LENGTH]> = const { UnsafeCell::new([0; ERROR_STRING_MAX_LENGTH]) };
}

/// The calling thread's last message, empty if there was none. It stays until the thread's next error.
pub(super) fn last_error() -> *const c_char {
    LAST.with(|last| last.get().cast_const().cast())
}

/// Keeps the message for the calling thread, cut to what fits. A NUL within would end it early and is left out.
pub(super) fn set_last_error(message: &str) {
    let mut end = message.len().min(ERROR_STRING_MAX_LENGTH - 1);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    LAST.with(|last| {
        // SAFETY: only this thread has the array, and no reference to it lives longer than this function and
        // `last_error`, which makes none.
        let last = unsafe { &mut *last.get() };
        let mut len = 0;
        for byte in message[..end].bytes().filter(|byte| *byte != 0) {
            last[len] = byte;
            len += 1;
        }
        last[len] = 0;
    });
}

/// The status that stands for an error.
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
    fn messages_are_cut_between_characters_and_kept_by_thread() {
        assert_eq!(last(), "");
        let long = "é".repeat(2000);
        for (message, want) in [
            ("plain", "plain".to_string()),
            ("a\0b", "ab".to_string()),
            ("", String::new()),
            (&"x".repeat(2047), "x".repeat(2047)),
            (&"x".repeat(2048), "x".repeat(2047)),
            // 2047 bytes would cut the 1024th character in two.
            (&long, "é".repeat(1023)),
        ] {
            set_last_error(message);
            assert_eq!(last(), want);
        }
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }
}
