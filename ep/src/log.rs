//! The runtime's logger.

use std::ffi::CString;

use hipdnn_sdk_bindings::ort::{self, LoggingLevel, PathChar};

use crate::runtime::Runtime;

/// A logger of the runtime, with the level below which it wants nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logger {
    /// `None` where nothing is wanted at all.
    sink: Option<(Runtime, *const ort::Logger)>,
    level: LoggingLevel,
}

// SAFETY: the runtime's loggers may be called from any thread.
unsafe impl Send for Logger {}
// SAFETY: the runtime's loggers may be called from several threads at once.
unsafe impl Sync for Logger {}

impl Logger {
    /// A logger that wants nothing.
    pub(crate) const fn none() -> Logger {
        Logger { sink: None, level: LoggingLevel::FATAL }
    }

    /// Takes a logger of the runtime; null is one that wants nothing.
    ///
    /// # Safety
    /// `raw` is null or a logger that outlives the result's uses.
    pub(crate) unsafe fn new(runtime: Runtime, raw: *const ort::Logger) -> Logger {
        if raw.is_null() {
            return Logger::none();
        }
        let mut level = LoggingLevel::WARNING;
        // SAFETY: `raw` is a logger and `level` is valid for the call; the status is ours.
        let asked = unsafe { runtime.check(runtime.api.logger_get_logging_severity_level()(raw, &mut level)) };
        if asked.is_err() {
            level = LoggingLevel::WARNING;
        }
        Logger { sink: Some((runtime, raw)), level }
    }

    /// Logs a message that is made only if it is wanted.
    pub(crate) fn log(&self, level: LoggingLevel, message: impl FnOnce() -> String) {
        let Some((runtime, raw)) = self.sink else { return };
        if level < self.level {
            return;
        }
        let Ok(message) = CString::new(message().replace('\0', " ")) else { return };
        const FILE: [PathChar; 3] = [b'e' as PathChar, b'p' as PathChar, 0];
        let log = runtime.api.logger_log_message();
        // SAFETY: the texts are NUL-terminated and are copied during the call.
        let status = unsafe { log(raw, level, message.as_ptr(), FILE.as_ptr(), 0, c"hipdnn-rs".as_ptr()) };
        // SAFETY: the status is ours. That a message could not be logged cannot be said anywhere.
        let _ = unsafe { runtime.check(status) };
    }

    /// Something the user should know.
    pub(crate) fn warning(&self, message: impl FnOnce() -> String) {
        self.log(LoggingLevel::WARNING, message);
    }

    /// Logs a choice that was made.
    pub(crate) fn info(&self, message: impl FnOnce() -> String) {
        self.log(LoggingLevel::INFO, message);
    }
}
