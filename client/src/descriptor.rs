//! hipDNN's descriptors as owned objects, and its statuses as errors.

use std::ffi::c_void;
use std::ptr::null_mut;

use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName, AttributeType, Backend, DescriptorPtr, DescriptorType, HandlePtr, Status,
};

use crate::handle::Handle;

/// A call of the backend that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {status}{}", detail(text))]
pub struct BackendError {
    /// The call and its object.
    pub call: String,
    /// Status that it answered.
    pub status: Status,
    /// The backend's own words; may be empty.
    pub text: String,
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// Turns a status into a result, with the backend's own words.
pub fn check(backend: &Backend, status: Status, call: impl FnOnce() -> String) -> Result<(), BackendError> {
    if status == Status::SUCCESS {
        return Ok(());
    }
    Err(BackendError { call: call(), status, text: backend.take_last_error().trim().to_string() })
}

/// A Rust type that elements of an attribute have.
///
/// # Safety
/// The type has the layout of C's element, and any bytes that the backend writes are a value of it.
pub unsafe trait Element: Copy {
    /// The attribute type that names it.
    const KIND: AttributeType;
    /// Value that a buffer holds before the backend fills it.
    const EMPTY: Self;
}

// SAFETY: `int64_t`.
unsafe impl Element for i64 {
    const KIND: AttributeType = AttributeType::INT64;
    const EMPTY: i64 = 0;
}
// SAFETY: `double`.
unsafe impl Element for f64 {
    const KIND: AttributeType = AttributeType::DOUBLE;
    const EMPTY: f64 = 0.0;
}
// SAFETY: `hipdnnHandle_t`.
unsafe impl Element for HandlePtr {
    const KIND: AttributeType = AttributeType::HANDLE;
    const EMPTY: HandlePtr = null_mut();
}
// SAFETY: `hipdnnBackendDescriptor_t`.
unsafe impl Element for DescriptorPtr {
    const KIND: AttributeType = AttributeType::BACKEND_DESCRIPTOR;
    const EMPTY: DescriptorPtr = null_mut();
}
// SAFETY: `void*`.
unsafe impl Element for *mut c_void {
    const KIND: AttributeType = AttributeType::VOID_PTR;
    const EMPTY: *mut c_void = null_mut();
}
// SAFETY: `char`, as a byte.
unsafe impl Element for u8 {
    const KIND: AttributeType = AttributeType::CHAR;
    const EMPTY: u8 = 0;
}
// SAFETY: an `int`.
unsafe impl Element for hipdnn_sdk_bindings::hipdnn::backend::HeurMode {
    const KIND: AttributeType = AttributeType::HEUR_MODE;
    const EMPTY: Self = Self(0);
}

/// A descriptor that is destroyed on drop.
pub struct Descriptor {
    backend: &'static Backend,
    raw: DescriptorPtr,
}

// SAFETY: descriptors are not bound to the thread that made them; nothing of the backend but its last error is.
unsafe impl Send for Descriptor {}
// SAFETY: through a shared reference a descriptor is only read or executed, which the backend allows from any thread.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and not used again. A failure leaves nothing to be done.
        unsafe { (self.backend.destroy_descriptor)(self.raw) };
    }
}

impl Descriptor {
    /// Makes an empty one.
    pub fn new(backend: &'static Backend, kind: DescriptorType) -> Result<Descriptor, BackendError> {
        let mut raw = null_mut();
        // SAFETY: `raw` is valid for the call.
        let status = unsafe { (backend.create_descriptor)(kind, &mut raw) };
        check(backend, status, || format!("making a {kind}"))?;
        Descriptor::owned(backend, raw, || format!("making a {kind}"))
    }

    /// Makes a graph from its bytes; it still has to be given a handle and finalized.
    pub fn graph(backend: &'static Backend, bytes: &[u8]) -> Result<Descriptor, BackendError> {
        let call = || "reading the graph".to_string();
        let Some(deserialize) = backend.create_and_deserialize_graph else {
            let text = "the library has no hipdnnBackendCreateAndDeserializeGraph_ext".to_string();
            return Err(BackendError { call: call(), status: Status::NOT_SUPPORTED, text });
        };
        let mut raw = null_mut();
        // SAFETY: `bytes` is valid for the call, as is `raw`.
        let status = unsafe { deserialize(&mut raw, bytes.as_ptr(), bytes.len()) };
        check(backend, status, call)?;
        Descriptor::owned(backend, raw, call)
    }

    /// A finalized plan from its stored form, with the handle's plugins.
    pub fn stored_plan(handle: &Handle, bytes: &[u8]) -> Result<Descriptor, BackendError> {
        let backend = handle.backend();
        let call = || "reading the stored plan".to_string();
        let Some(deserialize) = backend.create_and_deserialize_execution_plan else {
            let text = "the library has no hipdnnBackendCreateAndDeserializeExecutionPlan_ext".to_string();
            return Err(BackendError { call: call(), status: Status::NOT_SUPPORTED, text });
        };
        let mut raw = null_mut();
        // SAFETY: the handle is alive; `bytes` is valid for the call, as is `raw`.
        let status = unsafe { deserialize(handle.as_ptr(), &mut raw, bytes.as_ptr(), bytes.len()) };
        check(backend, status, call)?;
        Descriptor::owned(backend, raw, call)
    }

    /// The stored form of a finalized plan.
    pub fn serialized_plan(&self) -> Result<Vec<u8>, BackendError> {
        let call = || "storing the plan".to_string();
        let Some(serialize) = self.backend.get_serialized_execution_plan else {
            let text = "the library has no hipdnnBackendGetSerializedExecutionPlan_ext".to_string();
            return Err(BackendError { call: call(), status: Status::NOT_SUPPORTED, text });
        };
        let mut size = 0;
        // SAFETY: the descriptor is alive, and without a place only the size is written.
        check(self.backend, unsafe { serialize(self.raw, 0, &mut size, null_mut()) }, call)?;
        let mut bytes = vec![0; size];
        // SAFETY: the descriptor is alive, and there is room for `size` bytes.
        check(self.backend, unsafe { serialize(self.raw, size, &mut size, bytes.as_mut_ptr()) }, call)?;
        bytes.truncate(size);
        Ok(bytes)
    }

    fn owned(
        backend: &'static Backend,
        raw: DescriptorPtr,
        call: impl FnOnce() -> String,
    ) -> Result<Descriptor, BackendError> {
        if raw.is_null() {
            let text = "success, but no descriptor".to_string();
            return Err(BackendError { call: call(), status: Status::INTERNAL_ERROR, text });
        }
        Ok(Descriptor { backend, raw })
    }

    /// The backend's own pointer, for attributes whose elements are descriptors.
    pub fn as_ptr(&self) -> DescriptorPtr {
        self.raw
    }

    /// Sets an attribute to these elements, of their own type.
    pub(crate) fn set<T: Element>(&self, name: AttributeName, elements: &[T]) -> Result<(), BackendError> {
        // SAFETY: `elements` is valid for the call, and its element is the type's by `Element`. Descriptors and handles
        // among them are alive: the functions of this crate that call this borrow their owners.
        let status = unsafe {
            (self.backend.set_attribute)(self.raw, name, T::KIND, elements.len() as i64, elements.as_ptr().cast())
        };
        check(self.backend, status, || format!("setting {name}"))
    }

    /// Makes the descriptor ready for use.
    pub fn finalize(&self, what: &str) -> Result<(), BackendError> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.backend.finalize)(self.raw) };
        check(self.backend, status, || format!("finalizing the {what}"))
    }

    /// Reads an attribute that is one value.
    pub fn get<T: Element>(&self, name: AttributeName) -> Result<T, BackendError> {
        let mut value = T::EMPTY;
        let mut count = 0i64;
        // SAFETY: `value` has room for the one element that is asked for.
        let status =
            unsafe { (self.backend.get_attribute)(self.raw, name, T::KIND, 1, &mut count, (&raw mut value).cast()) };
        check(self.backend, status, || format!("reading {name}"))?;
        Ok(value)
    }

    /// Number of an attribute's elements.
    pub fn count<T: Element>(&self, name: AttributeName) -> Result<usize, BackendError> {
        let mut count = 0i64;
        // SAFETY: a count query: no element is written.
        let status = unsafe { (self.backend.get_attribute)(self.raw, name, T::KIND, 0, &mut count, null_mut()) };
        check(self.backend, status, || format!("counting {name}"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Reads an attribute into `elements`, which the backend may also read; gives how many were written.
    pub fn read<T: Element>(&self, name: AttributeName, elements: &mut [T]) -> Result<usize, BackendError> {
        let mut count = 0i64;
        // SAFETY: `elements` has room for as many as we ask for.
        let status = unsafe {
            (self.backend.get_attribute)(
                self.raw,
                name,
                T::KIND,
                elements.len() as i64,
                &mut count,
                elements.as_mut_ptr().cast(),
            )
        };
        check(self.backend, status, || format!("reading {name}"))?;
        Ok(usize::try_from(count).unwrap_or(0).min(elements.len()))
    }

    /// Reads an attribute that is a text.
    pub fn text(&self, name: AttributeName) -> Result<String, BackendError> {
        let mut bytes = vec![0u8; self.count::<u8>(name)?];
        if bytes.is_empty() {
            return Ok(String::new());
        }
        let written = self.read(name, &mut bytes)?;
        bytes.truncate(written);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Reads an attribute that is descriptors; each becomes ours.
    pub fn children(&self, name: AttributeName) -> Result<Vec<Descriptor>, BackendError> {
        let mut raw = vec![null_mut(); self.count::<DescriptorPtr>(name)?];
        if raw.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.read::<DescriptorPtr>(name, &mut raw)?;
        let raw = raw.into_iter().take(written).filter(|raw| !raw.is_null());
        Ok(raw.map(|raw| Descriptor { backend: self.backend, raw }).collect())
    }

    /// Reads an attribute that is one descriptor, which becomes ours.
    pub fn child(&self, name: AttributeName) -> Result<Descriptor, BackendError> {
        let raw = self.get::<DescriptorPtr>(name)?;
        Descriptor::owned(self.backend, raw, || format!("reading {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_sentences() {
        let error = |text: &str| {
            let (call, text) = ("finalizing the execution plan".to_string(), text.to_string());
            BackendError { call, status: Status::PLUGIN_ERROR, text }.to_string()
        };
        assert_eq!(error(""), "finalizing the execution plan: HIPDNN_STATUS_PLUGIN_ERROR");
        assert_eq!(error("no room"), "finalizing the execution plan: HIPDNN_STATUS_PLUGIN_ERROR (no room)");
    }
}
