//! Handles.

use std::sync::Arc;

use hipdnn_capi::table::{Slot, Slots};

use crate::abi::pointer::Token;
use crate::error::Result;
use crate::plugins::{Resources, manager};

/// Object behind a `hipdnnHandle_t`.
pub(crate) struct Handle {
    pub(crate) resources: Arc<Resources>,
}

static SLOTS: [Slot<Arc<Handle>>; 4096] = [const { Slot::empty() }; 4096];
static HANDLES: Slots<Arc<Handle>> = Slots::new("a handle", 0xA4, &SLOTS);

/// Makes a handle with a plugin handle of every plugin, and gives its token. It may have no plugins.
pub(crate) fn create() -> Result<usize> {
    let resources = Arc::new(Resources::new(manager::acquire()?));
    Ok(HANDLES.insert(Arc::new(Handle { resources }))? as usize)
}

/// The handle of a client's pointer.
pub(crate) fn find(token: Token) -> Result<Arc<Handle>> {
    Ok(HANDLES.get(token.get() as u64)?)
}

/// Calls `body` with the handle of a client's pointer, which stays meanwhile.
pub(crate) fn with<R>(token: Token, body: impl FnOnce(&Handle) -> Result<R>) -> Result<R> {
    HANDLES.with(token.get() as u64, |handle| body(handle))
}

/// Takes a client's handle back. Plugin handles go with the last graph or plan that uses them.
pub(crate) fn destroy(token: Token) -> Result<()> {
    drop(HANDLES.remove(token.get() as u64)?);
    Ok(())
}

/// True if any handle exists.
pub(crate) fn any() -> bool {
    !HANDLES.is_empty()
}
