//! The provider's entry points with a runtime that it does not support. Real runtimes are tested from Python; the Python
//! packages before 1.23 can't register a provider at all, so a stand-in takes their place here.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_sdk_bindings::library::Library;
use hipdnn_sdk_bindings::ort::{ApiBase, ErrorCode};

/// `CreateEpFactories`, its factories, logger and status being opaque to this test.
type CreateEpFactories = unsafe extern "system" fn(
    name: *const c_char,
    base: *const ApiBase,
    logger: *const c_void,
    factories: *mut *mut c_void,
    room: usize,
    count: *mut usize,
) -> *mut FakeStatus;

/// A status as the stand-in makes it.
struct FakeStatus {
    code: ErrorCode,
    message: String,
}

unsafe extern "system" fn create_status(code: ErrorCode, message: *const c_char) -> *mut FakeStatus {
    // SAFETY: the runtime asks for a NUL-terminated text.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    Box::into_raw(Box::new(FakeStatus { code, message }))
}

static OTHER_CALLS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "system" fn any_other() -> *mut c_void {
    OTHER_CALLS.fetch_add(1, Ordering::Relaxed);
    null_mut()
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry(*const c_void);

// SAFETY: the entries are addresses of functions, which any thread may hold.
unsafe impl Sync for Entry {}

/// As long as the newest table; the first entry, which makes statuses, is the only one that an old runtime may be asked for.
static TABLE: [Entry; 428] = {
    let mut table = [Entry(any_other as *const c_void); 428];
    table[0] = Entry(create_status as *const c_void);
    table
};

static VERSION_TEXT: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static API_VERSION: AtomicU32 = AtomicU32::new(0);
static TOO_NEW_ASKED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "system" fn get_api(version: u32) -> *const c_void {
    if version <= API_VERSION.load(Ordering::Relaxed) {
        return TABLE.as_ptr().cast();
    }
    // A real runtime prints a line to standard error here.
    TOO_NEW_ASKED.fetch_add(1, Ordering::Relaxed);
    null()
}

unsafe extern "system" fn get_version_string() -> *const c_char {
    VERSION_TEXT.load(Ordering::Relaxed)
}

#[test]
fn an_unsupported_runtime_is_refused_in_one_sentence() {
    let base = ApiBase { get_api, get_version_string };
    // SAFETY: the provider's initializers do nothing.
    let library = unsafe { Library::open("the provider", [library_path(Artifact::Provider)]) }.expect("it opens");
    // SAFETY: this is the entry point's signature, and the library outlives the pointer.
    let create: CreateEpFactories = unsafe { library.symbol(c"CreateEpFactories") }.expect("it is exported");
    for (text, api_version) in [("1.22.1", 22), ("1.17.0", 17), ("1.9.0", 9), ("2.0.0", 31), ("unreadable", 31)] {
        let version = CString::new(text).expect("no NUL");
        VERSION_TEXT.store(version.as_ptr().cast_mut(), Ordering::Relaxed);
        API_VERSION.store(api_version, Ordering::Relaxed);
        let (mut factories, mut count) = ([null_mut(); 4], 0usize);
        // SAFETY: the arguments are what the runtime passes; the logger may be null.
        let status = unsafe { create(c"any name".as_ptr(), &base, null(), factories.as_mut_ptr(), 4, &mut count) };
        assert!(!status.is_null(), "{text} was accepted");
        // SAFETY: `create_status` made it, and nothing else frees it.
        let status = unsafe { Box::from_raw(status) };
        assert_ne!(status.code, ErrorCode::OK, "{text}");
        assert!(
            status.message.contains("ONNX Runtime 1.") && status.message.contains(text),
            "{text}: {}",
            status.message
        );
        assert_eq!(status.message.lines().count(), 1, "{text}: {}", status.message);
        assert_eq!(count, 0, "{text}");
    }
    assert_eq!(TOO_NEW_ASKED.load(Ordering::Relaxed), 0, "asking for a newer table prints to standard error");
    assert_eq!(OTHER_CALLS.load(Ordering::Relaxed), 0, "an old table's entries were called");
}

#[test]
fn the_second_entry_point_is_there() {
    // SAFETY: the provider's initializers do nothing.
    let library = unsafe { Library::open("the provider", [library_path(Artifact::Provider)]) }.expect("it opens");
    // SAFETY: this is the entry point's signature; it is not called.
    unsafe { library.symbol::<unsafe extern "system" fn(*mut c_void) -> *mut c_void>(c"ReleaseEpFactory") }
        .expect("it is exported");
}
