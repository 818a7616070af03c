//! The ONNX Runtime that loaded this library: version negotiation, statuses and the border that panics do not cross.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::{PoisonError, RwLock};

use hipdnn_sdk_bindings::ort::{Api, ApiBase, EpApi, ErrorCode, MAXIMUM_VERSION, MINIMUM_VERSION, Status};

use crate::error::Error;

/// The runtime's function tables, of the newest version that both sides know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runtime {
    /// `OrtApi`
    pub api: Api,
    /// `OrtEpApi`
    pub ep: EpApi,
    /// `1.31.1` and the like.
    pub text: &'static str,
}

impl Runtime {
    /// Asks for the tables.
    ///
    /// # Safety
    /// `base` is the runtime's own.
    ///
    /// # Errors
    /// If the runtime is too old, in a sentence for its user.
    pub(crate) unsafe fn negotiate(base: &ApiBase) -> Result<Runtime, Error> {
        // SAFETY: the caller vouches for `base`.
        let text = unsafe { base.version_string() }.unwrap_or("of unknown version");
        let version = negotiated_version(text)?;
        // SAFETY: the version is one that the runtime has.
        let table = unsafe { (base.get_api)(version) };
        let table = NonNull::new(table.cast_mut())
            .ok_or_else(|| Error::failed(format!("ONNX Runtime {text} does not give its API version {version}")))?;
        // SAFETY: this is the runtime's `OrtApi` of that version.
        let api = unsafe { Api::new(table, version) }?;
        // SAFETY: the entry takes nothing.
        let table = unsafe { api.get_ep_api()() };
        let table = NonNull::new(table.cast_mut())
            .ok_or_else(|| Error::failed(format!("this build of ONNX Runtime {text} has no API for providers")))?;
        // SAFETY: this is the same runtime's `OrtEpApi`.
        let ep = unsafe { EpApi::new(table, version) }?;
        let runtime = Runtime { api, ep, text };
        *LATEST.write().unwrap_or_else(PoisonError::into_inner) = Some(runtime);
        Ok(runtime)
    }

    /// The version word for structs that are handed to the runtime.
    pub(crate) fn version(&self) -> u32 {
        self.api.version()
    }

    /// True if the runtime gives fused nodes of different graphs of a model the same name, and then fails to load the
    /// model: mended in 1.24.4.
    pub(crate) fn confuses_fused_nodes(&self) -> bool {
        confuses_fused_nodes(self.text)
    }

    /// Turns a status of the runtime into a result, and releases it.
    ///
    /// # Safety
    /// `status` is null or a status that the caller owns.
    ///
    /// # Errors
    /// The status, if it is one.
    #[inline]
    pub(crate) unsafe fn check(&self, status: *mut Status) -> Result<(), Error> {
        // SAFETY: the caller's duty.
        if status.is_null() { Ok(()) } else { Err(unsafe { self.failure(status) }) }
    }

    /// The error that a status says, which is released.
    ///
    /// # Safety
    /// It is a status that the caller owns.
    #[cold]
    unsafe fn failure(&self, status: *mut Status) -> Error {
        // SAFETY: `status` is a living status.
        let code = unsafe { self.api.get_error_code()(status) };
        // SAFETY: the status is alive, and its text lives as long.
        let message = unsafe { text_of(self.api.get_error_message()(status)) }.unwrap_or("no message").to_string();
        // SAFETY: the caller owned the status, and it is not used again.
        unsafe { self.api.release_status()(status) };
        Error { code, message }
    }

    /// A result as the runtime takes it.
    pub(crate) fn status(&self, result: Result<(), Error>) -> *mut Status {
        match result {
            Ok(()) => null_mut(),
            // SAFETY: the entry is the table's.
            Err(error) => unsafe { make_status(self.api.create_status(), &error) },
        }
    }

    /// Runs a callback's body: an error becomes a status, and so does a panic.
    pub(crate) fn guard(&self, body: impl FnOnce() -> Result<(), Error>) -> *mut Status {
        self.status(caught(body))
    }
}

/// The runtime that opened this library last: it makes the statuses of calls that name no object of ours.
static LATEST: RwLock<Option<Runtime>> = RwLock::new(None);

/// A result as the runtime takes it, where it is not known which one calls.
pub(crate) fn status_of(result: Result<(), Error>) -> *mut Status {
    let latest = *LATEST.read().unwrap_or_else(PoisonError::into_inner);
    latest.map_or(null_mut(), |runtime| runtime.status(result))
}

/// Runs `body`; a panic becomes an error.
pub(crate) fn caught(body: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().copied().map(str::to_string);
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Error::failed(format!("{}: internal error: {}", crate::NAME_TEXT, what.as_deref().unwrap_or("a panic"))))
    })
}

type CreateStatus = unsafe extern "system" fn(ErrorCode, *const c_char) -> *mut Status;

/// # Safety
/// `create` is the runtime's.
unsafe fn make_status(create: CreateStatus, error: &Error) -> *mut Status {
    let message = CString::new(error.message.replace('\0', " ")).expect("NULs were replaced");
    // SAFETY: the runtime copies the text during the call.
    unsafe { create(error.code, message.as_ptr()) }
}

/// An error as a status, for a runtime whose tables were not taken. Every version of the table begins with the entry
/// that makes statuses.
///
/// # Safety
/// `base` is the runtime's own.
pub(crate) unsafe fn status_without_runtime(base: &ApiBase, error: &Error) -> *mut Status {
    // SAFETY: every runtime has version 1.
    let table = unsafe { (base.get_api)(1) }.cast::<*const c_void>();
    if table.is_null() {
        return null_mut();
    }
    // SAFETY: the first entry of `OrtApi` is `CreateStatus`.
    let create = unsafe { std::mem::transmute::<*const c_void, Option<CreateStatus>>(*table) };
    match create {
        // SAFETY: it is the runtime's.
        Some(create) => unsafe { make_status(create, error) },
        None => null_mut(),
    }
}

/// The API version to ask for, by the runtime's version text.
fn negotiated_version(text: &str) -> Result<u32, Error> {
    let mut parts = text.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let minor = match (parts.next().flatten(), parts.next().flatten()) {
        (Some(1), Some(minor)) => minor,
        (Some(major), Some(_)) if major > 1 => {
            return Err(Error::failed(format!("{}: expected ONNX Runtime 1.x, got {text}", crate::NAME_TEXT)));
        }
        _ => 0,
    };
    if minor < MINIMUM_VERSION {
        return Err(Error::failed(format!(
            "{}: expected ONNX Runtime 1.{MINIMUM_VERSION} or newer, got {text}",
            crate::NAME_TEXT
        )));
    }
    Ok(minor.min(MAXIMUM_VERSION))
}

fn confuses_fused_nodes(text: &str) -> bool {
    let mut parts = text.split(['.', '-', '+']).skip(1).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (24, 4)
}

/// A C text, if it is there and is UTF-8.
///
/// # Safety
/// `text` is null or a NUL-terminated text that lives as long as `'a`.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's duty.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, want) in [
            ("1.23.2", Ok(23)),
            ("1.31.1", Ok(31)),
            ("1.40.0", Ok(31)),
            ("1.27.0-dev", Ok(27)),
            ("1.22.1", Err("HipDnnRsExecutionProvider: expected ONNX Runtime 1.23 or newer, got 1.22.1")),
            ("2.0.0", Err("HipDnnRsExecutionProvider: expected ONNX Runtime 1.x, got 2.0.0")),
            ("new", Err("HipDnnRsExecutionProvider: expected ONNX Runtime 1.23 or newer, got new")),
        ] {
            assert_eq!(negotiated_version(text).map_err(|e| e.message), want.map_err(str::to_string), "{text}");
        }
    }

    #[test]
    fn runtimes_that_confuse_fused_nodes() {
        for (text, want) in
            [("1.23.2", true), ("1.24.1", true), ("1.24.4", false), ("1.25.0", false), ("1.31.1", false)]
        {
            assert_eq!(confuses_fused_nodes(text), want, "{text}");
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = caught(|| panic!("seven is not even")).unwrap_err();
        assert_eq!(error.code, ErrorCode::EP_FAIL);
        assert!(error.message.ends_with("internal error: seven is not even"), "{error}");
    }
}
