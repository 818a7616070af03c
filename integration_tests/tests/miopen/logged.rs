//! Lines that the plugin logs to its host.

use std::ffi::{CStr, c_char};
use std::sync::Mutex;

use hipdnn_rs_integration_tests::plugin::Plugin;
use hipdnn_sdk_bindings::hipdnn::plugin::{PluginStatus, Severity};

static LINES: Mutex<Vec<(Severity, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn collect(severity: Severity, message: *const c_char) {
    // SAFETY: the plugin hands out text that ends in NUL.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    LINES.lock().expect("no thread panics here").push((severity, text));
}

/// From now on lines of this level and worse are collected.
pub(crate) fn listen(plugin: &Plugin, level: Severity) -> Result<(), String> {
    let f = plugin.functions();
    // SAFETY: the callback is a function of this process.
    let statuses = unsafe { [(f.set_logging_callback)(Some(collect)), (f.set_log_level)(level)] };
    if statuses == [PluginStatus::SUCCESS; 2] { Ok(()) } else { Err(format!("{statuses:?}")) }
}

/// Lines that were collected since the last time.
pub(crate) fn lines() -> Vec<(Severity, String)> {
    std::mem::take(&mut *LINES.lock().expect("no thread panics here"))
}
