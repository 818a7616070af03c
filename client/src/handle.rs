//! Handles of a backend, and the engine plugins that they have.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use hipdnn_sdk_bindings::hipdnn::backend::{Backend, HandlePtr, PluginLoadingMode, Status};

use crate::descriptor::{BackendError, check};

/// A handle that is destroyed on drop.
pub struct Handle {
    backend: &'static Backend,
    raw: HandlePtr,
}

// SAFETY: handles are not bound to the thread that made them; one caller at a time uses one, by ownership or a lock.
unsafe impl Send for Handle {}

impl Handle {
    /// A handle of a backend, which loads its plugins for the first one.
    ///
    /// # Errors
    /// The backend's status.
    pub fn new(backend: &'static Backend) -> Result<Handle, BackendError> {
        let mut raw = null_mut();
        // SAFETY: `raw` is valid for the call.
        let status = unsafe { (backend.create)(&mut raw) };
        check(backend, status, || "making a handle".to_string())?;
        if raw.is_null() {
            let text = "success, but no handle".to_string();
            return Err(BackendError { call: "making a handle".to_string(), status: Status::INTERNAL_ERROR, text });
        }
        Ok(Handle { backend, raw })
    }

    /// The backend's own pointer.
    pub fn as_ptr(&self) -> HandlePtr {
        self.raw
    }

    /// The handle's backend.
    pub fn backend(&self) -> &'static Backend {
        self.backend
    }

    /// Enqueues further executions on a stream of HIP.
    ///
    /// # Safety
    /// The stream lives while executions through the handle use it.
    ///
    /// # Errors
    /// The backend's status.
    pub unsafe fn set_stream(&self, stream: *mut c_void) -> Result<(), BackendError> {
        // SAFETY: the handle is alive, and the stream by the caller's promise.
        let status = unsafe { (self.backend.set_stream)(self.raw, stream) };
        check(self.backend, status, || "setting the stream".to_string())
    }

    /// The engines that the backend lists; empty if it cannot say.
    pub fn engines(&self) -> Vec<EngineInfo> {
        let (Some(count_of), Some(info_of)) = (self.backend.get_engine_count, self.backend.get_engine_info) else {
            return Vec::new();
        };
        let mut count = 0;
        // SAFETY: the handle is alive and `count` is valid for the call.
        if unsafe { count_of(self.raw, &mut count) } != Status::SUCCESS {
            return Vec::new();
        }
        let mut engines = Vec::new();
        for index in 0..count {
            let (mut id, mut sizes) = (0i64, [0usize; 4]);
            let [name, plugin, version, kind] = &mut sizes;
            // SAFETY: a size query: the four lengths and the id are valid for the call, the texts are null.
            let status = unsafe {
                info_of(
                    self.raw,
                    index,
                    &mut id,
                    null_mut(),
                    name,
                    null_mut(),
                    plugin,
                    null_mut(),
                    version,
                    null_mut(),
                    kind,
                )
            };
            if status != Status::SUCCESS {
                continue;
            }
            let mut texts = sizes.map(|size| vec![0u8; size.max(1)]);
            let [name_text, plugin_text, version_text, kind_text] = &mut texts;
            let [name, plugin, version, kind] = &mut sizes;
            // SAFETY: each text has as many bytes as its length says.
            let status = unsafe {
                info_of(
                    self.raw,
                    index,
                    &mut id,
                    name_text.as_mut_ptr().cast(),
                    name,
                    plugin_text.as_mut_ptr().cast(),
                    plugin,
                    version_text.as_mut_ptr().cast(),
                    version,
                    kind_text.as_mut_ptr().cast(),
                    kind,
                )
            };
            if status == Status::SUCCESS {
                let end = texts[0].iter().position(|byte| *byte == 0).unwrap_or(texts[0].len());
                engines.push(EngineInfo { id, name: String::from_utf8_lossy(&texts[0][..end]).into_owned() });
            }
        }
        engines
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again. A failure leaves nothing to be done.
        unsafe { (self.backend.destroy)(self.raw) };
    }
}

/// An engine that the backend has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
}

/// Directory in which a backend looks for engine plugins when none is chosen.
pub fn default_plugins(backend: &Backend) -> PathBuf {
    let named = std::env::var_os("HIPDNN_PLUGIN_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let library = backend.path();
        library.parent().unwrap_or(Path::new("/")).join("hipdnn_plugins/engines")
    })
}

/// Chooses the engine plugins of a backend, which takes that while it has no handle: files, or directories of them.
///
/// # Errors
/// The backend's status.
pub fn set_plugins(backend: &Backend, paths: &[&Path], mode: PluginLoadingMode) -> Result<(), BackendError> {
    let call = || "choosing engine plugins".to_string();
    let Some(set) = backend.set_engine_plugin_paths else {
        let text = "the library has no hipdnnSetEnginePluginPaths_ext".to_string();
        return Err(BackendError { call: call(), status: Status::NOT_SUPPORTED, text });
    };
    let texts: Vec<CString> =
        paths.iter().filter_map(|path| CString::new(path.as_os_str().as_encoded_bytes()).ok()).collect();
    let raw: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: `raw` has that many NUL-terminated texts, valid for the call.
    let status = unsafe { set(raw.len(), raw.as_ptr(), mode) };
    check(backend, status, call)
}
