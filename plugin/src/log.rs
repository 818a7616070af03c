//! The host's log callback as a logger.
//!
//! Nothing is formatted while no callback is set or the level is too low. Callback and level are atomics: the host sets
//! them from any thread at any time.

use std::ffi::{CString, c_char};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hipdnn::plugin::{LogCallback, Severity};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// Environment variable that sends messages of level debug too, as info, which is the least that hipDNN has: `debug`.
pub const VARIABLE: &str = "HIPDNN_RS_LOG";

/// The callback, null for none.
static CALLBACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Minimum severity that goes to the host. Hosts that never set a level filter in their callback.
static LEVEL: AtomicI32 = AtomicI32::new(Severity::INFO.0);

struct HostLog;

/// Sends messages to `callback` from now on.
pub fn set_callback(callback: unsafe extern "C" fn(Severity, *const c_char)) {
    static ONCE: Once = Once::new();
    CALLBACK.store(callback as *mut (), Ordering::Release);
    // Fails where a Rust program that links this crate has a logger of its own, which then gets the messages.
    ONCE.call_once(|| drop(log::set_logger(&HostLog)));
    update_filter();
}

/// Sets the minimum severity that is logged.
///
/// # Errors
/// If the number is not a severity.
pub fn set_level(level: Severity) -> Result<(), Error> {
    if !(Severity::INFO..=Severity::OFF).contains(&level) {
        return Err(Error::invalid_value(format!("expected a log level of 0 to 4, got {}", level.0)));
    }
    LEVEL.store(level.0, Ordering::Relaxed);
    update_filter();
    Ok(())
}

/// Updates the filter of the `log` crate, which its macros look at before they format.
fn update_filter() {
    let on = !CALLBACK.load(Ordering::Relaxed).is_null();
    log::set_max_level(match Severity(LEVEL.load(Ordering::Relaxed)) {
        _ if !on => LevelFilter::Off,
        Severity::INFO => least(std::env::var(VARIABLE).as_deref().unwrap_or_default()),
        Severity::WARN => LevelFilter::Warn,
        Severity::ERROR => LevelFilter::Error,
        // Nothing here is fatal.
        _ => LevelFilter::Off,
    });
}

/// Lowest level that goes to a host that wants all.
fn least(variable: &str) -> LevelFilter {
    if variable == "debug" { LevelFilter::Debug } else { LevelFilter::Info }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::Error => Severity::ERROR,
        Level::Warn => Severity::WARN,
        Level::Info | Level::Debug | Level::Trace => Severity::INFO,
    }
}

impl Log for HostLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level() && severity(metadata.level()).0 >= LEVEL.load(Ordering::Relaxed)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let callback = CALLBACK.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was a `LogCallback` in `set_callback`; null is `None`.
        let callback: LogCallback = unsafe { std::mem::transmute::<*mut (), LogCallback>(callback) };
        let Some(callback) = callback else { return };
        let mut text = record.args().to_string().into_bytes();
        text.retain(|byte| *byte != 0);
        if let Ok(text) = CString::new(text) {
            // SAFETY: the host vouches for its callback while the plugin is loaded; the text ends in NUL and outlives
            // the call.
            unsafe { callback(severity(record.level()), text.as_ptr()) };
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::sync::Mutex;

    /// Tests that set the process-wide callback or level take turns.
    pub(crate) static TURN: Mutex<()> = Mutex::new(());
    static LINES: Mutex<Vec<(Severity, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn collect(severity: Severity, message: *const c_char) {
        // SAFETY: the logger hands out text that ends in NUL.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        LINES.lock().unwrap().push((severity, text));
    }

    /// The lines that `f` logs, and those that other tests log meanwhile.
    pub(crate) fn lines_of(level: Severity, f: impl FnOnce()) -> Vec<(Severity, String)> {
        let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        LINES.lock().unwrap().clear();
        set_callback(collect);
        set_level(level).unwrap();
        f();
        set_level(Severity::OFF).unwrap();
        std::mem::take(&mut LINES.lock().unwrap())
    }

    #[test]
    fn debug_is_for_those_who_ask() {
        for (variable, want) in [("", LevelFilter::Info), ("debug", LevelFilter::Debug), ("DEBUG", LevelFilter::Info)] {
            assert_eq!(least(variable), want, "{variable:?}");
        }
    }

    #[test]
    fn levels_let_themselves_and_worse_through() {
        for (level, want) in [
            (Severity::INFO, vec![Severity::INFO, Severity::WARN, Severity::ERROR]),
            (Severity::WARN, vec![Severity::WARN, Severity::ERROR]),
            (Severity::ERROR, vec![Severity::ERROR]),
            (Severity::FATAL, vec![]),
            (Severity::OFF, vec![]),
        ] {
            let lines = lines_of(level, || {
                log::debug!("log test: debug");
                log::info!("log test: a\0b");
                log::warn!("log test: ab");
                log::error!("log test: ab");
            });
            let lines: Vec<_> = lines.into_iter().filter(|(_, text)| text.starts_with("log test: ")).collect();
            assert_eq!(lines.iter().map(|(s, _)| *s).collect::<Vec<_>>(), want, "{level}");
            assert!(lines.iter().all(|(_, text)| text == "log test: ab"), "{lines:?}");
        }
        assert!(set_level(Severity(5)).is_err());
        assert!(set_level(Severity(-1)).is_err());
    }
}
