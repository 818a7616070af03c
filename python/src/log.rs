//! What a backend logs meanwhile.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hipdnn_sdk_bindings::hipdnn::backend::{Backend, LogCallbackMode, Severity, Status};

/// Messages since [`listen`] began. The callback is the process's, and so is this.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One listens at a time.
static LISTENING: Mutex<()> = Mutex::new(());

/// The data stays whole even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a message to those that are kept.
///
/// # Safety
/// The message is null or ends in NUL.
unsafe extern "C" fn keep(_user: *mut c_void, _severity: Severity, message: *const c_char) {
    if !message.is_null() {
        // SAFETY: it ends in NUL, and is the backend's for the call.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().trim().to_string();
        // The backend's trace of calls is about this module, and not about the graph.
        if !text.starts_with("hipdnnBackend") {
            lock(&MESSAGES).push(text);
        }
    }
}

/// Result of `work`, and what the backend and its plugins log meanwhile; nothing if the backend has no callbacks.
pub(crate) fn listen<R>(backend: &Backend, work: impl FnOnce() -> R) -> (R, Vec<String>) {
    let _listening = lock(&LISTENING);
    lock(&MESSAGES).clear();
    let heard = Heard::begin(backend);
    let result = work();
    drop(heard);
    (result, std::mem::take(&mut lock(&MESSAGES)))
}

/// Sets the level of logs to what it is: plugins read their own settings when a level is set.
pub(crate) fn refresh(backend: &Backend) {
    let mut level = Severity::OFF;
    // SAFETY: a place for the level.
    let known = backend.get_global_log_level.map(|get| unsafe { get(&mut level) });
    if let (Some(Status::SUCCESS), Some(set_level)) = (known, backend.set_global_log_level) {
        // SAFETY: the level is one that the backend gave.
        unsafe { set_level(level) };
    }
}

/// A registered callback; dropping it takes it back, with the level of before.
struct Heard<'a> {
    backend: &'a Backend,
    level: Option<Severity>,
}

impl<'a> Heard<'a> {
    fn begin(backend: &'a Backend) -> Option<Heard<'a>> {
        let set = backend.set_user_log_callback?;
        // SAFETY: the callback may be called from any thread, for as long as the process lives; the user's pointer is only
        // a name of the registration, which must not be null.
        let status = unsafe { set(Some(keep), Severity::INFO, LogCallbackMode::SYNC, user()) };
        if status != Status::SUCCESS {
            return None;
        }
        let mut level = Severity::OFF;
        // SAFETY: a place for the level.
        let known = backend.get_global_log_level.map(|get| unsafe { get(&mut level) });
        if let Some(set_level) = backend.set_global_log_level {
            // SAFETY: the function takes any level.
            unsafe { set_level(Severity::INFO) };
        }
        Some(Heard { backend, level: (known == Some(Status::SUCCESS)).then_some(level) })
    }
}

/// Name of the registration.
fn user() -> *mut c_void {
    (&raw const MESSAGES).cast_mut().cast()
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        if let (Some(level), Some(set_level)) = (self.level, self.backend.set_global_log_level) {
            // SAFETY: the level is one that the backend gave.
            unsafe { set_level(level) };
        }
        if let Some(set) = self.backend.set_user_log_callback {
            // SAFETY: the function and its name are statics of this library; this takes their registration back.
            unsafe { set(Some(keep), Severity::OFF, LogCallbackMode::SYNC, user()) };
        }
    }
}
