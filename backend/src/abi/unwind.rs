//! Entry and exit of every exported function: the log, the last error, and panics, which end here.

use std::ffi::{CStr, c_char};
use std::fmt::Arguments;

use hipdnn_sdk_bindings::hipdnn::backend::{Severity, Status};

use crate::error::{Error, Result};
use crate::{last_error, log};

/// Runs the body of an exported function. Failures become the thread's last error.
pub(crate) fn enter(function: &str, arguments: Arguments<'_>, body: impl FnOnce() -> Result<()>) -> Status {
    let outcome = caught(|| {
        log::info!("{function}({arguments})");
        body()
    });
    match outcome {
        Ok(()) => {
            if log::enabled(Severity::INFO) {
                let _ = caught(|| {
                    log::info!("{function}: {}", Status::SUCCESS);
                    Ok(())
                });
            }
            Status::SUCCESS
        }
        Err(error) => {
            last_error::set(&error.message);
            let _ = caught(|| {
                log::error!("{function}: {}: {}", error.status, error.message);
                Ok(())
            });
            error.status
        }
    }
}

/// As [`enter`], for functions that leave the last error and the log alone.
pub(crate) fn enter_quietly(body: impl FnOnce() -> Result<()>) -> Status {
    match caught(body) {
        Ok(()) => Status::SUCCESS,
        Err(error) => error.status,
    }
}

/// For functions that return no status.
pub(crate) fn enter_infallible(body: impl FnOnce()) {
    let _ = caught(|| {
        body();
        Ok(())
    });
}

fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // A panic leaves no object half changed that is ever read again: locks are taken over poisoned, and what is built
    // is stored only when it is complete.
    hipdnn_capi::unwind::caught(body)
        .unwrap_or_else(|message| Err(Error::internal(format!("internal error: {message}"))))
}

/// Logs a C text for another component. A null text is nothing to say.
///
/// # Safety
/// `message` is null or a text that ends in a NUL.
pub(crate) unsafe fn log_from(component: &str, severity: i32, message: *const c_char) {
    enter_infallible(|| {
        let severity = Severity(severity.clamp(Severity::INFO.0, Severity::FATAL.0));
        if message.is_null() || !log::enabled(severity) {
            return;
        }
        // SAFETY: the caller's duty.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        log::log_as(component, severity, format_args!("{}", text.trim_end_matches('\n')));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        assert_eq!(enter("f", format_args!(""), || Ok(())), Status::SUCCESS);
        assert_eq!(enter("f", format_args!(""), || Err(Error::null("x is null"))), Status::BAD_PARAM_NULL_POINTER);
        let mut text = [0; 64];
        last_error::copy(&mut text);
        assert!(text.starts_with(b"x is null\0"));
        assert_eq!(enter("f", format_args!(""), || panic!("boom {}", 1)), Status::INTERNAL_ERROR);
        last_error::copy(&mut text);
        assert!(text.starts_with(b"internal error: boom 1\0"));
        assert_eq!(enter_quietly(|| Err(Error::bad_param(""))), Status::BAD_PARAM);
        last_error::copy(&mut text);
        assert!(text.starts_with(b"internal error: boom 1\0"), "left alone");
    }
}
