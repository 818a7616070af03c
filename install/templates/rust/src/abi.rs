//! Types of hipDNN's engine-plugin ABI, and its border: panics and errors that become a status.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `hipdnnPluginStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(c_int);

impl Status {
    /// The call did what it says.
    pub const SUCCESS: Status = Status(0);
    /// A null pointer, or a number that the plugin has not given out.
    pub const BAD_PARAM: Status = Status(1);
    /// Bytes or values that can't be used.
    pub const INVALID_VALUE: Status = Status(2);
    /// A defect of the plugin.
    pub const INTERNAL_ERROR: Status = Status(3);
    /// A proper question without an answer here.
    pub const NOT_APPLICABLE: Status = Status(5);
}

/// `hipdnnPluginConstData_t`: bytes, in or out.
#[repr(C)]
pub struct ConstData {
    /// The first byte.
    pub ptr: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

impl ConstData {
    /// The bytes; none where the pointer is null.
    ///
    /// # Safety
    /// The pointer is null, or `size` bytes are readable from it as long as `self` is borrowed.
    pub unsafe fn bytes(&self) -> &[u8] {
        if self.ptr.is_null() {
            return &[];
        }
        // SAFETY: the pointer is not null, and the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.size) }
    }
}

/// `hipdnnPluginDeviceBuffer_t`: an entry of a variant pack.
#[repr(C)]
pub struct Buffer {
    /// Which tensor.
    pub uid: i64,
    /// Its memory.
    pub ptr: *mut c_void,
}

/// `hipdnnCallback_t`.
pub type LogCallback = unsafe extern "C" fn(severity: c_int, message: *const c_char);

/// `HIPDNN_PLUGIN_TYPE_ENGINE`.
pub const ENGINE_PLUGIN: c_int = 1;

/// `HIPDNN_SEV_INFO`.
pub const INFO: c_int = 0;

/// A call that can't be served.
pub struct Failure(pub Status, pub String);

impl Failure {
    /// A null pointer where something was expected.
    pub fn null(expected: &str) -> Failure {
        Failure(Status::BAD_PARAM, format!("expected {expected}, got null"))
    }
}

thread_local! {
    // An array, since a value with a destructor would keep the library from being unloaded while its thread lives.
    static LAST_ERROR: RefCell<[u8; 2048]> = const { RefCell::new([0; 2048]) };
}

/// Runs the body of an exported function. An error or a panic is a status, and the thread's last error.
pub fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let Failure(status, text) = match outcome {
        Ok(Ok(())) => return Status::SUCCESS,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(Status::INTERNAL_ERROR, "the plugin panicked".to_owned()),
    };
    LAST_ERROR.with_borrow_mut(|last| {
        let kept = text.len().min(last.len() - 1);
        last[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        last[kept] = 0;
    });
    status
}

/// The thread's last error, which stays where it is until the next one.
pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.as_ptr().cast_const().cast())
}

/// Writes through a pointer that a host gave.
///
/// # Safety
/// The pointer is null, or a `T` can be written there.
pub unsafe fn put<T>(out: *mut T, value: T, expected: &str) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null(expected));
    }
    // SAFETY: the pointer is not null, and the caller promises the rest.
    unsafe { out.write(value) };
    Ok(())
}

/// A static text as hosts want it.
pub const fn text(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}
