//! The log: a file or the standard error stream, and the callbacks that callers register.
//!
//! `HIPDNN_LOG_LEVEL` sets the first level; the file or stream is opened only if that is not `off`. The level governs
//! callbacks too. Messages are delivered on the thread that logs, also to callbacks registered as asynchronous: that
//! mode permits delivery at a later time and does not ask for it. A callback may call this library, but for what loads or
//! unloads plugins: while plugins are being loaded, that answers "not supported".

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hipdnn_sdk_bindings::hipdnn::backend::{LogCallbackMode, Severity};

use crate::error::{Error, Result};

/// `hipdnnUserLogCallback_t`, not null.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, Severity, *const std::ffi::c_char);

/// Log component of this library.
const BACKEND: &str = "hipdnn_backend";
/// Log component of plugins' messages.
pub(crate) const PLUGIN: &str = "hipdnn_plugin";
/// Log component of clients' messages through the exported callback.
pub(crate) const CLIENT: &str = "hipdnn_client";

enum Sink {
    None,
    Stderr,
    File(File),
}

static START: Once = Once::new();
static LEVEL: AtomicI32 = AtomicI32::new(Severity::OFF.0);
static SINK: Mutex<Sink> = Mutex::new(Sink::None);
static CALLBACKS: Mutex<Vec<Arc<Registration>>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of callbacks that are running on this thread.
    static DELIVERING: Cell<usize> = const { Cell::new(0) };
}

struct Registration {
    callback: Callback,
    /// The caller's pointer, kept as a number: we only hand it back.
    user: usize,
    min_level: Severity,
    removed: AtomicBool,
    running: AtomicUsize,
    idle: (Mutex<()>, Condvar),
}

fn start() {
    START.call_once(|| {
        let level = std::env::var("HIPDNN_LOG_LEVEL").ok().and_then(|text| parse_level(&text)).unwrap_or(Severity::OFF);
        if level == Severity::OFF {
            return;
        }
        let mut complaint = None;
        let sink = match std::env::var_os("HIPDNN_LOG_FILE").filter(|path| !path.is_empty()) {
            None => Sink::Stderr,
            Some(path) => match OpenOptions::new().create(true).append(true).open(&path) {
                Ok(file) => Sink::File(file),
                Err(error) => {
                    complaint = Some(format!("HIPDNN_LOG_FILE {}: {error}", path.display()));
                    Sink::Stderr
                }
            },
        };
        *SINK.lock().unwrap_or_else(PoisonError::into_inner) = sink;
        LEVEL.store(level.0, Ordering::Relaxed);
        if let Some(complaint) = complaint {
            deliver(Severity::WARN, BACKEND, &complaint);
        }
    });
}

fn parse_level(text: &str) -> Option<Severity> {
    Some(match text.trim().to_ascii_lowercase().as_str() {
        "off" => Severity::OFF,
        "info" => Severity::INFO,
        "warn" => Severity::WARN,
        "error" => Severity::ERROR,
        "fatal" => Severity::FATAL,
        _ => return None,
    })
}

/// Log level: messages below it are dropped.
pub(crate) fn level() -> Severity {
    start();
    Severity(LEVEL.load(Ordering::Relaxed))
}

/// Sets the level, for callbacks and, if it was opened at start, for the file or stream.
pub(crate) fn set_level(level: Severity) {
    start();
    LEVEL.store(level.0, Ordering::Relaxed);
}

/// True if messages of this severity are logged.
pub(crate) fn enabled(severity: Severity) -> bool {
    severity >= level() && severity < Severity::OFF
}

/// Logs a message of this library.
pub(crate) fn log(severity: Severity, message: Arguments<'_>) {
    log_as(BACKEND, severity, message);
}

/// Logs a message of another component.
pub(crate) fn log_as(component: &str, severity: Severity, message: Arguments<'_>) {
    if enabled(severity) {
        deliver(severity, component, &message.to_string());
    }
}

macro_rules! info { ($($arg:tt)*) => { $crate::log::log(hipdnn_sdk_bindings::hipdnn::backend::Severity::INFO, format_args!($($arg)*)) }; }
macro_rules! warning { ($($arg:tt)*) => { $crate::log::log(hipdnn_sdk_bindings::hipdnn::backend::Severity::WARN, format_args!($($arg)*)) }; }
macro_rules! error { ($($arg:tt)*) => { $crate::log::log(hipdnn_sdk_bindings::hipdnn::backend::Severity::ERROR, format_args!($($arg)*)) }; }
pub(crate) use {error, info, warning};

fn deliver(severity: Severity, component: &str, message: &str) {
    {
        let mut sink = SINK.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that cannot be written has nobody to tell.
        match &mut *sink {
            Sink::None => {}
            Sink::Stderr => {
                let _ = std::io::stderr().write_all(line(severity, component, message).as_bytes());
            }
            Sink::File(file) => {
                let _ = file.write_all(line(severity, component, message).as_bytes());
            }
        }
    }
    let wanted: Vec<Arc<Registration>> = {
        let callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.iter().filter(|registration| severity >= registration.min_level).cloned().collect()
    };
    if wanted.is_empty() {
        return;
    }
    let text = CString::new(message.replace('\0', " ")).expect("its NULs were replaced");
    for registration in wanted {
        registration.call(severity, &text);
    }
}

impl Registration {
    fn call(&self, severity: Severity, text: &CString) {
        // Counted before the flag is read: a remover sets the flag before it reads the count, so one of the two sees
        // the other.
        self.running.fetch_add(1, Ordering::SeqCst);
        if !self.removed.load(Ordering::SeqCst) {
            DELIVERING.set(DELIVERING.get() + 1);
            // SAFETY: the caller registered the pair as fit for calls from any thread until it is removed, and removal
            // waits while `running` counts this call.
            unsafe { (self.callback)(self.user as *mut c_void, severity, text.as_ptr()) };
            DELIVERING.set(DELIVERING.get() - 1);
        }
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 && self.removed.load(Ordering::SeqCst) {
            drop(self.idle.0.lock().unwrap_or_else(PoisonError::into_inner));
            self.idle.1.notify_all();
        }
    }

    /// Waits until no call is running, unless this thread is inside a callback: then it would wait for itself.
    fn retire(&self) {
        self.removed.store(true, Ordering::SeqCst);
        if DELIVERING.get() > 0 {
            return;
        }
        let mut guard = self.idle.0.lock().unwrap_or_else(PoisonError::into_inner);
        while self.running.load(Ordering::SeqCst) > 0 {
            guard = self.idle.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Registers a callback, or changes or (level off) removes the one of the same function and user pointer.
pub(crate) fn set_callback(
    callback: Option<Callback>,
    min_level: Severity,
    mode: LogCallbackMode,
    user: *mut c_void,
) -> Result<()> {
    start();
    let callback = callback.ok_or_else(|| Error::bad_param("the log callback is null"))?;
    if user.is_null() {
        return Err(Error::bad_param("the log callback's user handle is null"));
    }
    check_level(min_level)?;
    if mode != LogCallbackMode::SYNC && mode != LogCallbackMode::ASYNC {
        return Err(Error::bad_param(format!("expected a log callback mode of 0 or 1, got {}", mode.0)));
    }
    let user = user as usize;
    let old = {
        let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |registration: &Arc<Registration>| {
            registration.user == user && std::ptr::fn_addr_eq(registration.callback, callback)
        };
        let old = callbacks.iter().position(same).map(|index| callbacks.remove(index));
        if min_level != Severity::OFF {
            callbacks.push(Arc::new(Registration {
                callback,
                user,
                min_level,
                removed: AtomicBool::new(false),
                running: AtomicUsize::new(0),
                idle: (Mutex::new(()), Condvar::new()),
            }));
        }
        old
    };
    match old {
        Some(old) => old.retire(),
        None if min_level == Severity::OFF => return Err(Error::bad_param("that log callback is not registered")),
        None => {}
    }
    Ok(())
}

/// Refuses numbers that are no level.
pub(crate) fn check_level(level: Severity) -> Result<()> {
    if (Severity::INFO..=Severity::OFF).contains(&level) {
        Ok(())
    } else {
        Err(Error::bad_param(format!("expected a log level of 0 to 4, got {}", level.0)))
    }
}

/// Closes the file and forgets the callbacks; the library is about to be unloaded.
pub(crate) fn shut_down() {
    LEVEL.store(Severity::OFF.0, Ordering::Relaxed);
    if let Ok(mut sink) = SINK.try_lock() {
        *sink = Sink::None;
    }
    if let Ok(mut callbacks) = CALLBACKS.try_lock() {
        *callbacks = Vec::new();
    }
}

fn line(severity: Severity, component: &str, message: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() as libc::time_t;
    // SAFETY: all zeros is a valid `tm`, whose only pointer may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both references are valid for the call.
    unsafe { libc::localtime_r(&seconds, &mut local) };
    // SAFETY: takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() };
    let level = match severity {
        Severity::INFO => "info",
        Severity::WARN => "warning",
        Severity::ERROR => "error",
        _ => "critical",
    };
    format!(
        "[{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}] [tid {tid}] [{level}] [{component}] {message}\n",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
        since.subsec_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        for (text, want) in [
            ("off", Some(Severity::OFF)),
            ("info", Some(Severity::INFO)),
            ("WARN", Some(Severity::WARN)),
            (" error ", Some(Severity::ERROR)),
            ("fatal", Some(Severity::FATAL)),
            ("verbose", None),
            ("", None),
        ] {
            assert_eq!(parse_level(text), want, "{text:?}");
        }
        assert!(check_level(Severity(5)).is_err() && check_level(Severity(-1)).is_err());
    }

    #[test]
    fn lines_have_their_five_parts() {
        let line = line(Severity::WARN, "c", "m");
        let (date, rest) = line.split_at(25);
        let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "[0000-00-00 00:00:00.000]");
        assert!(rest.starts_with(" [tid "), "{rest}");
        assert!(rest.ends_with("] [warning] [c] m\n"), "{rest}");
    }

    unsafe extern "C" fn count(user: *mut c_void, _: Severity, _: *const std::ffi::c_char) {
        // SAFETY: the test registers an `AtomicUsize` that outlives the registration.
        unsafe { &*user.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn callbacks_see_their_level_until_removed() {
        let counter = AtomicUsize::new(0);
        let user = (&raw const counter).cast_mut().cast::<c_void>();
        set_callback(Some(count), Severity::WARN, LogCallbackMode::SYNC, user).unwrap();
        deliver(Severity::INFO, "c", "below");
        deliver(Severity::ERROR, "c", "above");
        assert_eq!(counter.load(Ordering::SeqCst), 1);
        set_callback(Some(count), Severity::OFF, LogCallbackMode::SYNC, user).unwrap();
        deliver(Severity::ERROR, "c", "after");
        assert_eq!(counter.load(Ordering::SeqCst), 1);
        for (callback, level, mode, user) in [
            (None, Severity::INFO, LogCallbackMode::SYNC, user),
            (Some(count as Callback), Severity::INFO, LogCallbackMode::SYNC, std::ptr::null_mut()),
            (Some(count as Callback), Severity(9), LogCallbackMode::SYNC, user),
            (Some(count as Callback), Severity::INFO, LogCallbackMode(2), user),
            (Some(count as Callback), Severity::OFF, LogCallbackMode::ASYNC, user),
        ] {
            assert!(set_callback(callback, level, mode, user).is_err());
        }
    }
}
