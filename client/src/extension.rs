//! The table of what an engine plugin of this project has beyond hipDNN's ABI, whatever backend loaded it.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{NonNull, null};

use hipdnn_sdk_bindings::hipdnn::backend::{Backend, HandlePtr, Status};
use hipdnn_sdk_bindings::hipdnn::extension::{Extension, GetExtension, MemoryKind, SYMBOL};
use hipdnn_sdk_bindings::hipdnn::plugin::PluginStatus;
use hipdnn_sdk_bindings::library::Library;

/// The plugin's table, and the plugin that it is part of.
pub struct Table {
    table: NonNull<Extension>,
    library: Library,
}

// SAFETY: the table is a constant of the plugin, whose functions may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: nothing is written through the pointer.
unsafe impl Sync for Table {}

impl Table {
    /// The table, of at least that version, of the plugin among those that the backend has loaded for this handle.
    ///
    /// # Safety
    /// `handle` is one of `backend`'s.
    pub unsafe fn find(backend: &Backend, handle: HandlePtr, least: u32) -> Option<Table> {
        // SAFETY: the caller's promise.
        let paths = unsafe { loaded_plugins(backend, handle) }?;
        paths.iter().filter_map(|path| path.to_str().ok()).find_map(|path| Table::of(Path::new(path), least))
    }

    fn of(path: &Path, least: u32) -> Option<Table> {
        let library = Library::loaded(path)?;
        // SAFETY: whoever exports the symbol means this function by it; the library outlives its use.
        let get = unsafe { library.optional::<GetExtension>(SYMBOL) }?;
        let mut table = null();
        // SAFETY: a place for a table.
        let status = unsafe { get(least, &mut table) };
        if status != PluginStatus::SUCCESS {
            return None;
        }
        Some(Table { table: NonNull::new(table.cast_mut())?, library })
    }

    /// The table's address, valid as long as this value lives.
    pub fn as_ptr(&self) -> *mut Extension {
        self.table.as_ptr()
    }

    /// The plugin's library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The table's version. The table of an older plugin ends where its version does: no reference to all of it is made.
    pub fn version(&self) -> u32 {
        // SAFETY: every table has its version, and is valid as long as the library is loaded, which is held here.
        unsafe { (&raw const (*self.table.as_ptr()).version).read() }
    }

    /// Result of `make`, with the handles that it makes told where their tensors are, if the plugin can be told.
    pub fn with_handle_memory<R>(&self, memory: MemoryKind, make: impl FnOnce() -> R) -> R {
        if self.version() < 2 {
            return make();
        }
        // SAFETY: a table of version 2 has the function, and is valid as long as the library is loaded, which is held here.
        let set = unsafe { (&raw const (*self.table.as_ptr()).set_handle_memory).read() };
        let mut before = MemoryKind::UNSPECIFIED;
        // SAFETY: a place for the answer.
        unsafe { set(memory, &mut before) };
        let _said = Said { set, before };
        make()
    }
}

/// Memory kind that handles were told of; dropping it tells them the earlier one again.
struct Said {
    set: unsafe extern "C" fn(MemoryKind, *mut MemoryKind) -> PluginStatus,
    before: MemoryKind,
}

impl Drop for Said {
    fn drop(&mut self) {
        // SAFETY: the function is the table's, whose library is held by the caller up the stack; no answer is wanted.
        unsafe { (self.set)(self.before, std::ptr::null_mut()) };
    }
}

/// The paths of the engine plugins that a backend has loaded, if it can say.
///
/// # Safety
/// `handle` is one of `backend`'s.
unsafe fn loaded_plugins(backend: &Backend, handle: HandlePtr) -> Option<Vec<CString>> {
    let paths_of = backend.get_loaded_engine_plugin_paths?;
    let (mut count, mut longest) = (0, 0);
    // SAFETY: the handle is the backend's; a size query, whose answers' places are valid for the call.
    if unsafe { paths_of(handle, &mut count, std::ptr::null_mut(), &mut longest) } != Status::SUCCESS {
        return None;
    }
    let mut texts = vec![vec![0u8; longest + 1]; count];
    let mut places: Vec<_> = texts.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
    // SAFETY: there are `count` places of more than `longest` bytes each.
    if unsafe { paths_of(handle, &mut count, places.as_mut_ptr(), &mut longest) } != Status::SUCCESS {
        return None;
    }
    Some(texts.iter().filter_map(|text| CStr::from_bytes_until_nul(text).ok().map(CStr::to_owned)).collect())
}
