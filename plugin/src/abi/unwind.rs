//! Panics out: none leaves the library.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hipdnn_sdk_bindings::hipdnn::plugin::PluginStatus;

use super::status::{set_last_error, status};
use crate::error::{Error, ErrorKind};

/// Runs the body of the exported function `name` and answers with its status; the message of an error or a panic becomes
/// the thread's last error.
pub(super) fn guard(name: &str, body: impl FnOnce() -> Result<(), Error>) -> PluginStatus {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return PluginStatus::SUCCESS,
        Ok(Err(error)) => error,
        Err(payload) => {
            let error = Error::new(ErrorKind::Internal, format!("internal error: {}", message(&*payload)));
            // A payload's destructor could panic again.
            std::mem::forget(payload);
            error
        }
    };
    set_last_error(&error.to_string());
    // The host's callback and the formatting of a message are foreign ground as well.
    let logged = catch_unwind(|| match error.kind() {
        ErrorKind::Internal | ErrorKind::AllocFailed | ErrorKind::Device | ErrorKind::Unsupported => {
            log::error!("{name}: {error}")
        }
        ErrorKind::BadParam | ErrorKind::InvalidValue => log::warn!("{name}: {error}"),
        ErrorKind::NotApplicable => log::info!("{name}: {error}"),
    });
    if let Err(payload) = logged {
        std::mem::forget(payload);
    }
    status(&error)
}

fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::last_error;
    use super::*;
    use std::ffi::CStr;

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload that panics when dropped");
        }
    }

    type Body = fn() -> Result<(), Error>;

    #[test]
    fn errors_and_panics_become_a_status_and_a_message() {
        let cases: [(Body, PluginStatus, &str); 6] = [
            (|| Ok(()), PluginStatus::SUCCESS, "before"),
            (|| Err(Error::bad_param("null")), PluginStatus::BAD_PARAM, "null"),
            (|| Err(Error::not_applicable("no")), PluginStatus::NOT_APPLICABLE, "no"),
            (|| panic!("split {}", 7), PluginStatus::INTERNAL_ERROR, "internal error: split 7"),
            (|| panic!("plain"), PluginStatus::INTERNAL_ERROR, "internal error: plain"),
            (
                || std::panic::resume_unwind(Box::new(Bomb)),
                PluginStatus::INTERNAL_ERROR,
                "internal error: a panic without a message",
            ),
        ];
        for (body, want, text) in cases {
            set_last_error("before");
            assert_eq!(guard("test", body), want);
            // SAFETY: the text ends in NUL and is this thread's own.
            assert_eq!(unsafe { CStr::from_ptr(last_error()) }.to_str(), Ok(text));
        }
    }
}
