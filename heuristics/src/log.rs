//! The host's log callback. Callback and level are atomics: the host sets them from any thread at any time.

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use hipdnn_sdk_bindings::hipdnn::plugin::{LogCallback, Severity};

use crate::error::Error;

/// The callback, null for none.
static CALLBACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Minimum severity that goes to the host. Hosts that never set a level filter in their callback.
static LEVEL: AtomicI32 = AtomicI32::new(Severity::INFO.0);

/// Sends messages to `callback` from now on.
pub(crate) fn set_callback(callback: unsafe extern "C" fn(Severity, *const c_char)) {
    CALLBACK.store(callback as *mut (), Ordering::Release);
}

/// Sets the minimum severity that is logged.
pub(crate) fn set_level(level: Severity) -> Result<(), Error> {
    if !(Severity::INFO..=Severity::OFF).contains(&level) {
        return Err(Error::bad_param(format!("expected a log level of 0 to 4, got {}", level.0)));
    }
    LEVEL.store(level.0, Ordering::Relaxed);
    Ok(())
}

/// True if somebody listens to messages of that severity.
fn is_on(severity: Severity) -> bool {
    severity.0 >= LEVEL.load(Ordering::Relaxed) && !CALLBACK.load(Ordering::Relaxed).is_null()
}

/// Logs what was chosen and why; the text is made only if somebody listens.
pub(crate) fn info(text: impl FnOnce() -> String) {
    if is_on(Severity::INFO) {
        send(Severity::INFO, &text());
    }
}

/// Logs what did not work.
pub(crate) fn warning(text: &str) {
    if is_on(Severity::WARN) {
        send(Severity::WARN, text);
    }
}

fn send(severity: Severity, text: &str) {
    // SAFETY: the pointer is null or was a `LogCallback` in `set_callback`; null is `None`.
    let callback: LogCallback =
        unsafe { std::mem::transmute::<*mut (), LogCallback>(CALLBACK.load(Ordering::Acquire)) };
    let Some(callback) = callback else { return };
    let mut bytes = text.as_bytes().to_vec();
    bytes.retain(|byte| *byte != 0);
    if let Ok(text) = CString::new(bytes) {
        // SAFETY: the host vouches for its callback while the plugin is loaded; the text ends in NUL and outlives the
        // call.
        unsafe { callback(severity, text.as_ptr()) };
    }
}
