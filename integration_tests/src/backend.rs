//! An owner over the backend ABI, used as a client of hipDNN uses it.

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName, AttributeType, Backend, DescriptorPtr, DescriptorType, HandlePtr, Status,
};

use crate::artifacts::{Artifact, library_path};

/// A call that did not succeed: the status and the backend's last-error text.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendError {
    /// The status.
    pub status: Status,
    /// The backend's message.
    pub message: String,
}

/// An open backend library.
pub struct Client {
    table: Backend,
}

impl Client {
    /// Opens a backend library.
    ///
    /// # Panics
    /// If it can't be opened or lacks a function of the core.
    pub fn open(path: &Path) -> Arc<Client> {
        // SAFETY: the file is a backend of this project, whose exports have the signatures of the table.
        let table = unsafe { Backend::open([path]) }.unwrap_or_else(|problem| panic!("{problem}"));
        Arc::new(Client { table })
    }

    /// A copy of the backend with these files as its engine plugins, laid out as installed.
    ///
    /// The dynamic loader takes each file for a library of its own: what a backend keeps for the whole process, its plugin
    /// paths above all, is not shared between copies, so tests don't disturb each other.
    ///
    /// # Panics
    /// If the files can't be copied.
    pub fn installed(prefix: &Path, plugins: &[PathBuf]) -> Arc<Client> {
        let _ = std::fs::remove_dir_all(prefix);
        let engines = prefix.join("lib/hipdnn_plugins/engines");
        std::fs::create_dir_all(&engines).expect("the scratch directory is writable");
        for plugin in plugins {
            let name = plugin.file_name().expect("a plugin is a file");
            std::fs::copy(plugin, engines.join(name)).expect("a plugin can be copied");
        }
        let library = prefix.join("lib").join(Artifact::Backend.file_name());
        std::fs::copy(library_path(Artifact::Backend), &library).expect("the backend can be copied");
        Client::open(&library)
    }

    /// The raw functions, for tests that misuse them.
    pub fn table(&self) -> &Backend {
        &self.table
    }

    /// The directory with the library.
    ///
    /// # Panics
    /// Never: libraries are opened by path here.
    pub fn directory(&self) -> PathBuf {
        self.table.path().parent().expect("the library was opened by path").to_path_buf()
    }

    /// Success, or the status with the last-error text.
    ///
    /// # Errors
    /// As said.
    pub fn check(&self, status: Status) -> Result<(), BackendError> {
        if status == Status::SUCCESS {
            return Ok(());
        }
        Err(BackendError { status, message: self.table.take_last_error() })
    }

    /// A new handle.
    ///
    /// # Errors
    /// The backend's.
    pub fn handle(self: &Arc<Client>) -> Result<Handle, BackendError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the call.
        self.check(unsafe { (self.table.create)(&mut raw) })?;
        Ok(Handle { raw, client: Arc::clone(self) })
    }

    /// A new descriptor.
    ///
    /// # Errors
    /// The backend's.
    pub fn descriptor(self: &Arc<Client>, kind: DescriptorType) -> Result<Descriptor, BackendError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the call.
        self.check(unsafe { (self.table.create_descriptor)(kind, &mut raw) })?;
        Ok(Descriptor { raw, client: Arc::clone(self) })
    }

    /// A graph from its binary form, not finalized.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the backend lacks the function.
    pub fn graph_from_bytes(self: &Arc<Client>, bytes: &[u8]) -> Result<Descriptor, BackendError> {
        let mut raw = std::ptr::null_mut();
        let function = self.table.create_and_deserialize_graph.expect("this backend reads graphs");
        // SAFETY: `raw` is valid for the call, and so are the bytes.
        self.check(unsafe { function(&mut raw, bytes.as_ptr(), bytes.len()) })?;
        Ok(Descriptor { raw, client: Arc::clone(self) })
    }

    /// A graph from hipDNN's JSON form, not finalized.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the backend lacks the function.
    pub fn graph_from_json(self: &Arc<Client>, text: &str) -> Result<Descriptor, BackendError> {
        let mut raw = std::ptr::null_mut();
        let function = self.table.create_and_deserialize_json_graph.expect("this backend reads JSON");
        // SAFETY: `raw` is valid for the call, and so is the text, whose length is given.
        self.check(unsafe { function(&mut raw, text.as_ptr().cast::<c_char>(), text.len()) })?;
        Ok(Descriptor { raw, client: Arc::clone(self) })
    }
}

/// A backend handle.
pub struct Handle {
    raw: HandlePtr,
    client: Arc<Client>,
}

// SAFETY: a handle may move between threads; calls on one are the caller's to serialize, and the owner is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    /// The raw handle.
    pub fn raw(&self) -> HandlePtr {
        self.raw
    }

    /// The library of the handle.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Gives the graph this handle and finalizes it.
    ///
    /// # Errors
    /// The backend's.
    pub fn finalize_graph(&self, graph: &Descriptor) -> Result<(), BackendError> {
        graph.set(AttributeName::OPERATIONGRAPH_HANDLE, AttributeType::HANDLE, &[self.raw])?;
        graph.finalize()
    }

    /// The engine configurations that the heuristic offers for a finalized graph, best first, not finalized.
    ///
    /// # Errors
    /// The backend's.
    pub fn configurations(&self, graph: &Descriptor) -> Result<Vec<Descriptor>, BackendError> {
        let heuristic = self.client.descriptor(DescriptorType::ENGINEHEUR_DESCRIPTOR)?;
        let kind = AttributeType::BACKEND_DESCRIPTOR;
        heuristic.set(AttributeName::ENGINEHEUR_OPERATION_GRAPH, kind, &[graph.raw])?;
        heuristic.set(AttributeName::ENGINEHEUR_MODE, AttributeType::HEUR_MODE, &[0i32])?;
        heuristic.finalize()?;
        let count = heuristic.count(AttributeName::ENGINEHEUR_RESULTS, kind)?;
        let configurations = (0..count)
            .map(|_| self.client.descriptor(DescriptorType::ENGINECFG_DESCRIPTOR))
            .collect::<Result<Vec<_>, _>>()?;
        if count > 0 {
            // The backend fills descriptors that the caller made: the array is read, not written.
            let mut raw: Vec<DescriptorPtr> = configurations.iter().map(|one| one.raw).collect();
            let filled = heuristic.get_into(AttributeName::ENGINEHEUR_RESULTS, kind, &mut raw)?;
            assert_eq!(filled, count, "all of the counted results come");
        }
        Ok(configurations)
    }

    /// A finalized plan from its stored form.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the backend lacks the function.
    pub fn restored(&self, stored: &[u8]) -> Result<Descriptor, BackendError> {
        let mut raw = std::ptr::null_mut();
        let function = self.client.table.create_and_deserialize_execution_plan.expect("this backend restores plans");
        // SAFETY: the handle is live, `raw` is valid for the call, and so are the bytes.
        self.client.check(unsafe { function(self.raw, &mut raw, stored.as_ptr(), stored.len()) })?;
        Ok(Descriptor { raw, client: Arc::clone(&self.client) })
    }

    /// Executes a finalized plan.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// Each pointer of the variant pack points to memory for all elements of its tensor, or is null.
    pub unsafe fn execute(&self, plan: &Descriptor, pack: &Descriptor) -> Result<(), BackendError> {
        // SAFETY: handle and descriptors are live; the caller vouches for the pack.
        self.client.check(unsafe { (self.client.table.execute)(self.raw, plan.raw, pack.raw) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live and destroyed once.
        let status = unsafe { (self.client.table.destroy)(self.raw) };
        if status != Status::SUCCESS && !std::thread::panicking() {
            panic!("destroying a handle: {}", self.client.table.take_last_error());
        }
    }
}

/// A backend descriptor.
pub struct Descriptor {
    raw: DescriptorPtr,
    client: Arc<Client>,
}

impl Descriptor {
    /// The raw descriptor.
    pub fn raw(&self) -> DescriptorPtr {
        self.raw
    }

    /// Sets an attribute to these elements.
    ///
    /// # Errors
    /// The backend's.
    pub fn set<T: Copy>(&self, name: AttributeName, kind: AttributeType, elements: &[T]) -> Result<(), BackendError> {
        let count = i64::try_from(elements.len()).expect("few elements");
        // SAFETY: the descriptor is live and the array has `count` elements.
        self.client.check(unsafe {
            (self.client.table.set_attribute)(self.raw, name, kind, count, elements.as_ptr().cast::<c_void>())
        })
    }

    /// Number of elements of an attribute.
    ///
    /// # Errors
    /// The backend's.
    pub fn count(&self, name: AttributeName, kind: AttributeType) -> Result<usize, BackendError> {
        let mut count = -1i64;
        // SAFETY: the descriptor is live; a null array with room for nothing asks for the count.
        self.client.check(unsafe {
            (self.client.table.get_attribute)(self.raw, name, kind, 0, &mut count, std::ptr::null_mut())
        })?;
        Ok(usize::try_from(count).expect("a count is not negative"))
    }

    /// Reads elements of an attribute into a buffer; returns their number.
    ///
    /// # Errors
    /// The backend's.
    pub fn get_into<T: Copy>(
        &self,
        name: AttributeName,
        kind: AttributeType,
        into: &mut [T],
    ) -> Result<usize, BackendError> {
        let (requested, mut count) = (i64::try_from(into.len()).expect("few elements"), -1i64);
        // SAFETY: the descriptor is live and the array has room for `requested` elements.
        self.client.check(unsafe {
            let function = self.client.table.get_attribute;
            function(self.raw, name, kind, requested, &mut count, into.as_mut_ptr().cast::<c_void>())
        })?;
        Ok(usize::try_from(count).expect("a count is not negative"))
    }

    /// An attribute of one number.
    ///
    /// # Errors
    /// The backend's.
    pub fn number(&self, name: AttributeName) -> Result<i64, BackendError> {
        let mut value = [0i64];
        self.get_into(name, AttributeType::INT64, &mut value)?;
        Ok(value[0])
    }

    /// An attribute of text.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the text is not terminated or not UTF-8.
    pub fn text(&self, name: AttributeName) -> Result<String, BackendError> {
        let mut bytes = vec![0xffu8; self.count(name, AttributeType::CHAR)?];
        let len = self.get_into(name, AttributeType::CHAR, &mut bytes)?;
        bytes.truncate(len);
        let text = CString::from_vec_with_nul(bytes).expect("a text ends in its only NUL");
        Ok(text.into_string().expect("a text is UTF-8"))
    }

    /// An attribute that is another descriptor; the wrapper is new and owned by the caller.
    ///
    /// # Errors
    /// The backend's.
    pub fn child(&self, name: AttributeName) -> Result<Descriptor, BackendError> {
        let mut raw = [std::ptr::null_mut()];
        self.get_into(name, AttributeType::BACKEND_DESCRIPTOR, &mut raw)?;
        Ok(Descriptor { raw: raw[0], client: Arc::clone(&self.client) })
    }

    /// An attribute that is any number of other descriptors; the wrappers are new and owned by the caller.
    ///
    /// # Errors
    /// The backend's.
    pub fn children(&self, name: AttributeName) -> Result<Vec<Descriptor>, BackendError> {
        let mut raw = vec![std::ptr::null_mut(); self.count(name, AttributeType::BACKEND_DESCRIPTOR)?];
        if !raw.is_empty() {
            self.get_into(name, AttributeType::BACKEND_DESCRIPTOR, &mut raw)?;
        }
        Ok(raw.into_iter().map(|raw| Descriptor { raw, client: Arc::clone(&self.client) }).collect())
    }

    /// A graph's binary form.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the backend lacks the function.
    pub fn serialized_graph(&self) -> Result<Vec<u8>, BackendError> {
        let function = self.client.table.get_serialized_binary_graph.expect("this backend writes graphs");
        let mut size = 0;
        // SAFETY: the descriptor is live; without a place the size is asked for.
        self.client.check(unsafe { function(self.raw, 0, &mut size, std::ptr::null_mut()) })?;
        let mut bytes = vec![0; size];
        // SAFETY: the descriptor is live, and there is room for `size` bytes.
        self.client.check(unsafe { function(self.raw, size, &mut size, bytes.as_mut_ptr()) })?;
        Ok(bytes)
    }

    /// A finalized plan's stored form.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Panics
    /// If the backend lacks the function.
    pub fn stored_plan(&self) -> Result<Vec<u8>, BackendError> {
        let function = self.client.table.get_serialized_execution_plan.expect("this backend stores plans");
        let mut size = 0;
        // SAFETY: the descriptor is live; without a place the size is asked for.
        self.client.check(unsafe { function(self.raw, 0, &mut size, std::ptr::null_mut()) })?;
        let mut bytes = vec![0; size];
        // SAFETY: the descriptor is live, and there is room for `size` bytes.
        self.client.check(unsafe { function(self.raw, size, &mut size, bytes.as_mut_ptr()) })?;
        assert_eq!(size, bytes.len(), "a plan is stored in the same way twice");
        Ok(bytes)
    }

    /// Finalizes.
    ///
    /// # Errors
    /// The backend's.
    pub fn finalize(&self) -> Result<(), BackendError> {
        // SAFETY: the descriptor is live.
        self.client.check(unsafe { (self.client.table.finalize)(self.raw) })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is live and destroyed once.
        let status = unsafe { (self.client.table.destroy_descriptor)(self.raw) };
        if status != Status::SUCCESS && !std::thread::panicking() {
            panic!("destroying a descriptor: {}", self.client.table.take_last_error());
        }
    }
}
