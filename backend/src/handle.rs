//! Handles.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::pointer::Token;
use crate::error::{Error, Result};
use crate::plugins::{Resources, manager};
use crate::registry::Registry;

/// What a `hipdnnHandle_t` stands for.
pub(crate) struct Handle {
    stream: AtomicPtr<c_void>,
    pub(crate) resources: Arc<Resources>,
}

static HANDLES: Registry<Arc<Handle>> = Registry::new(0xA4);

/// Makes a handle with a plugin handle of every plugin, and gives its token. It may have no plugins.
pub(crate) fn create() -> Result<usize> {
    let resources = Arc::new(Resources::new(manager::acquire()?));
    Ok(HANDLES.insert(Arc::new(Handle { stream: AtomicPtr::default(), resources })))
}

/// The handle of a client's pointer.
pub(crate) fn find(token: Token) -> Result<Arc<Handle>> {
    HANDLES.get(token.get()).ok_or_else(|| unknown(token))
}

/// Takes a client's handle back. Plugin handles go with the last graph or plan that uses them.
pub(crate) fn destroy(token: Token) -> Result<()> {
    HANDLES.remove(token.get()).map(drop).ok_or_else(|| unknown(token))
}

fn unknown(token: Token) -> Error {
    Error::bad_param(format!("{token:#x} is no handle, or a destroyed one"))
}

/// Whether any handle exists.
pub(crate) fn any() -> bool {
    HANDLES.len() > 0
}

/// Gives the table's memory back; the library is about to be unloaded.
pub(crate) fn shut_down() {
    HANDLES.release_if_empty();
}

impl Handle {
    pub(crate) fn set_stream(&self, stream: *mut c_void) -> Result<()> {
        self.stream.store(stream, Ordering::Release);
        self.resources.set_stream(stream)
    }

    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.load(Ordering::Acquire)
    }
}
