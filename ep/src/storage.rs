//! The application's own storage of compiled partitions: callbacks of ONNX Runtime 1.31 that take the place of files beside the
//! model, for applications that encrypt them or have no file system.

use std::ffi::{CString, c_void};
use std::ptr::{NonNull, null_mut};

use hipdnn_sdk_bindings::ort::{Allocator, EpApi, ReadNamedBuffer, SessionOptions, WriteNamedBuffer};

use crate::error::Error;
use crate::runtime::Runtime;

/// Callbacks that the provider serves, in the runtime's numbers: reading and writing.
pub(crate) const SERVED: u32 = 1 | 2;

/// A callback and the state that it is called with.
#[derive(Clone, Copy)]
struct Callback<F> {
    function: F,
    state: *mut c_void,
}

/// The callbacks of a session. Where one is set, no file takes its place.
#[derive(Clone, Copy, Default)]
pub(crate) struct Storage {
    read: Option<Callback<ReadNamedBuffer>>,
    write: Option<Callback<WriteNamedBuffer>>,
}

// SAFETY: the runtime has applications take calls from any thread, with the same state.
unsafe impl Send for Storage {}
// SAFETY: the runtime has applications take several calls at once.
unsafe impl Sync for Storage {}

impl Storage {
    /// The callbacks of a session; none where the runtime is older.
    ///
    /// # Safety
    /// `options` are the runtime's, alive during the call.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) unsafe fn of(runtime: &Runtime, options: *const SessionOptions) -> Result<Storage, Error> {
        let api: &EpApi = &runtime.ep;
        let (Some(get), Some(release), Some(reader), Some(writer)) = (
            api.session_options_get_ep_context_config(),
            api.release_ep_context_config(),
            api.ep_context_config_get_read_func(),
            api.ep_context_config_get_write_func(),
        ) else {
            return Ok(Storage::default());
        };
        let mut config = null_mut();
        // SAFETY: the options are alive, and there is a place for the answer.
        unsafe { runtime.check(get(options, &mut config)) }?;
        let (mut read, mut read_state, mut write, mut write_state) = (None, null_mut(), None, null_mut());
        // SAFETY: the configuration is ours, and the answers' places are valid for the calls.
        let asked = unsafe {
            runtime
                .check(reader(config, &mut read, &mut read_state))
                .and_then(|()| runtime.check(writer(config, &mut write, &mut write_state)))
        };
        // SAFETY: the configuration is ours; the callbacks are the application's, and stay as long as the session.
        unsafe { release(config) };
        asked?;
        Ok(Storage {
            read: read.map(|function| Callback { function, state: read_state }),
            write: write.map(|function| Callback { function, state: write_state }),
        })
    }

    /// Reads what was written under a name; `None` where the application has no callback for it.
    pub(crate) fn read(&self, runtime: &Runtime, name: &str) -> Option<Result<Vec<u8>, Error>> {
        let read = self.read?;
        Some(
            read_all(runtime, read, name).map_err(|error| error.at(format!("reading the compiled partition {name:?}"))),
        )
    }

    /// Writes under a name; `None` where the application has no callback for it.
    pub(crate) fn write(&self, runtime: &Runtime, name: &str, bytes: &[u8]) -> Option<Result<(), Error>> {
        let Callback { function, state } = self.write?;
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the function is the application's, with its state; the name ends in NUL and the bytes live during the call.
        let written = unsafe { runtime.check(function(state, text.as_ptr(), bytes.as_ptr().cast(), bytes.len())) };
        Some(written.map_err(|error| error.at(format!("writing the compiled partition {name:?}"))))
    }
}

fn read_all(runtime: &Runtime, read: Callback<ReadNamedBuffer>, name: &str) -> Result<Vec<u8>, Error> {
    let text = CString::new(name).map_err(|_| Error::invalid("expected a name without NUL"))?;
    let mut allocator: *mut Allocator = null_mut();
    // SAFETY: there is a place for the answer.
    unsafe { runtime.check(runtime.api.get_allocator_with_default_options()(&mut allocator)) }?;
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the function is the application's, with its state; the name ends in NUL, allocator and places are good.
    let status = unsafe { (read.function)(read.state, text.as_ptr(), allocator, &mut data, &mut size) };
    let buffer = Buffer { data: NonNull::new(data.cast::<u8>()), allocator };
    // SAFETY: the status is ours.
    unsafe { runtime.check(status) }?;
    match buffer.data {
        _ if size == 0 => Ok(Vec::new()),
        Some(data) if isize::try_from(size).is_ok() => {
            // SAFETY: the callback says that so many bytes are there, which are ours until the buffer is dropped.
            Ok(unsafe { std::slice::from_raw_parts(data.as_ptr(), size) }.to_vec())
        }
        _ => Err(Error::invalid(format!("expected {size} bytes of the application, got none"))),
    }
}

/// Memory that a callback took from the runtime's allocator.
struct Buffer {
    data: Option<NonNull<u8>>,
    allocator: *mut Allocator,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the default allocator lives as long as the process.
        let free = unsafe { (*self.allocator).free };
        if let (Some(data), Some(free)) = (self.data, free) {
            // SAFETY: the memory is this allocator's, and nobody uses it any more.
            unsafe { free(self.allocator, data.as_ptr().cast()) };
        }
    }
}
