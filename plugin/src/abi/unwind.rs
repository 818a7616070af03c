//! Panics out: none leaves the library.

use hipdnn_capi::unwind::caught;
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hipdnn::plugin::PluginStatus;

use super::status::{set_last_error, status};

/// Runs the body of the exported function `name` and answers with its status; the message of an error or a panic becomes
/// the thread's last error.
pub(super) fn guard(name: &str, body: impl FnOnce() -> Result<(), Error>) -> PluginStatus {
    let error = match caught(body) {
        Ok(Ok(())) => return PluginStatus::SUCCESS,
        Ok(Err(error)) => error,
        Err(message) => Error::new(ErrorKind::Internal, format!("internal error: {message}")),
    };
    set_last_error(&error.to_string());
    // The host's callback and the formatting of a message are foreign ground as well.
    let logged = caught(|| match error.kind() {
        ErrorKind::Internal | ErrorKind::AllocFailed | ErrorKind::Device | ErrorKind::Unsupported => {
            log::error!("{name}: {error}")
        }
        ErrorKind::BadParam | ErrorKind::InvalidValue => log::warn!("{name}: {error}"),
        ErrorKind::NotApplicable => log::info!("{name}: {error}"),
    });
    if let Err(message) = logged {
        set_last_error(&format!("{error}; logging it failed: {message}"));
    }
    status(&error)
}

#[cfg(test)]
mod tests {
    use super::super::status::last_error;
    use super::*;
    use std::ffi::CStr;

    type Body = fn() -> Result<(), Error>;

    #[test]
    fn errors_and_panics_become_a_status_and_a_message() {
        let cases: [(Body, PluginStatus, &str); 5] = [
            (|| Ok(()), PluginStatus::SUCCESS, "before"),
            (|| Err(Error::bad_param("null")), PluginStatus::BAD_PARAM, "null"),
            (|| Err(Error::not_applicable("no")), PluginStatus::NOT_APPLICABLE, "no"),
            (|| panic!("split {}", 7), PluginStatus::INTERNAL_ERROR, "internal error: split 7"),
            (|| panic!("plain"), PluginStatus::INTERNAL_ERROR, "internal error: plain"),
        ];
        for (body, want, text) in cases {
            set_last_error("before");
            assert_eq!(guard("test", body), want);
            // SAFETY: the text ends in NUL and is this thread's own.
            assert_eq!(unsafe { CStr::from_ptr(last_error()) }.to_str(), Ok(text));
        }
    }
}
