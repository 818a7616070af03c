//! An owner over the engine-plugin ABI, which calls a plugin as a hipDNN backend does.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use hipdnn_sdk_bindings::hipdnn::extension::{self, GetExtension};
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, DeviceBuffer, ExecutionContextPtr, LogCallback, PluginHandlePtr, PluginStatus, PluginType, Severity,
};
use hipdnn_sdk_bindings::library::Library;

/// A call that did not succeed: the status and the plugin's last-error text.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginError {
    /// The status.
    pub status: PluginStatus,
    /// The plugin's message.
    pub message: String,
}

macro_rules! functions {
    ($($field:ident $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions that return a status, by the names of the ABI without their prefix.
        #[expect(missing_docs, reason = "the names are the ABI's")]
        pub struct Functions { $(pub $field: unsafe extern "C" fn($($argument),*) -> PluginStatus,)* }

        impl Functions {
            /// The symbols behind the fields.
            pub const SYMBOLS: &'static [&'static str] = &[$($symbol),*];

            fn resolve(library: &Library) -> Functions {
                Functions { $(
                    // SAFETY: the signature is the one that the plugin ABI gives this symbol, and `Plugin` keeps the library open.
                    $field: unsafe {
                        library.symbol(const {
                            match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                                Ok(name) => name,
                                Err(_) => panic!("a symbol has no NUL inside"),
                            }
                        })
                    }
                    .unwrap_or_else(|problem| panic!("{problem}")),
                )* }
            }
        }
    };
}

functions! {
    get_name "hipdnnPluginGetName" (*mut *const c_char);
    get_version "hipdnnPluginGetVersion" (*mut *const c_char);
    get_api_version "hipdnnPluginGetApiVersion" (*mut *const c_char);
    get_type "hipdnnPluginGetType" (*mut PluginType);
    set_logging_callback "hipdnnPluginSetLoggingCallback" (LogCallback);
    set_log_level "hipdnnPluginSetLogLevel" (Severity);
    get_all_engine_ids "hipdnnEnginePluginGetAllEngineIds" (*mut i64, u32, *mut u32);
    get_engine_name "hipdnnEnginePluginGetEngineName" (i64, *mut *const c_char);
    create "hipdnnEnginePluginCreate" (*mut PluginHandlePtr);
    destroy "hipdnnEnginePluginDestroy" (PluginHandlePtr);
    set_stream "hipdnnEnginePluginSetStream" (PluginHandlePtr, *mut c_void);
    get_applicable_engine_ids "hipdnnEnginePluginGetApplicableEngineIds"
        (PluginHandlePtr, *const ConstData, *mut i64, u32, *mut u32);
    get_engine_details "hipdnnEnginePluginGetEngineDetails" (PluginHandlePtr, i64, *const ConstData, *mut ConstData);
    destroy_engine_details "hipdnnEnginePluginDestroyEngineDetails" (PluginHandlePtr, *mut ConstData);
    get_workspace_size "hipdnnEnginePluginGetWorkspaceSize"
        (PluginHandlePtr, *const ConstData, *const ConstData, *mut usize);
    create_execution_context "hipdnnEnginePluginCreateExecutionContext"
        (PluginHandlePtr, *const ConstData, *const ConstData, *mut ExecutionContextPtr);
    destroy_execution_context "hipdnnEnginePluginDestroyExecutionContext" (PluginHandlePtr, ExecutionContextPtr);
    get_workspace_size_from_execution_context "hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext"
        (PluginHandlePtr, ExecutionContextPtr, *mut usize);
    execute_op_graph "hipdnnEnginePluginExecuteOpGraph"
        (PluginHandlePtr, ExecutionContextPtr, *mut c_void, *const DeviceBuffer, u32);
    execute_op_graph_with_overrides "hipdnnEnginePluginExecuteOpGraphWithOverrides"
        (PluginHandlePtr, ExecutionContextPtr, *mut c_void, *const DeviceBuffer, u32, u32, *const i64, *const u32,
         *const *const i64, *const *const i64);
    serialize_execution_context "hipdnnEnginePluginSerializeExecutionContext"
        (PluginHandlePtr, ExecutionContextPtr, *mut ConstData);
    destroy_serialized_execution_context "hipdnnEnginePluginDestroySerializedExecutionContext"
        (PluginHandlePtr, *mut ConstData);
    create_execution_context_from_serialized "hipdnnEnginePluginCreateExecutionContextFromSerialized"
        (PluginHandlePtr, *const ConstData, *mut ExecutionContextPtr);
}

/// An open plugin.
pub struct Plugin {
    functions: Functions,
    last_error: unsafe extern "C" fn(*mut *const c_char),
    get_extension: Option<GetExtension>,
    // Last: the function pointers above must not outlive it.
    _library: Library,
}

impl Plugin {
    /// Opens the library and finds every function of the ABI.
    ///
    /// # Panics
    /// If it can't be opened or lacks a function.
    pub fn open(path: &Path) -> Arc<Plugin> {
        // SAFETY: the file is a plugin of this project or of its tests, whose initializers do nothing.
        let library = unsafe { Library::open("the plugin", [path]) }.unwrap_or_else(|problem| panic!("{problem}"));
        // SAFETY: this is the signature in the plugin ABI; `Plugin` keeps the library open.
        let last_error = unsafe { library.symbol(c"hipdnnPluginGetLastErrorString") };
        let last_error = last_error.unwrap_or_else(|problem| panic!("{problem}"));
        // SAFETY: whoever exports the symbol means this function by it; `Plugin` keeps the library open.
        let get_extension = unsafe { library.optional(extension::SYMBOL) };
        Arc::new(Plugin { functions: Functions::resolve(&library), last_error, get_extension, _library: library })
    }

    /// The raw functions, for tests that misuse them.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// `hipdnnPluginGetLastErrorString`, for tests that misuse it.
    pub fn last_error_function(&self) -> unsafe extern "C" fn(*mut *const c_char) {
        self.last_error
    }

    /// `hipdnnRsGetExtension`.
    ///
    /// # Panics
    /// If it is another project's plugin.
    pub fn get_extension(&self) -> GetExtension {
        self.get_extension.expect("a plugin of this project")
    }

    /// The calling thread's last-error text.
    ///
    /// # Panics
    /// If the plugin leaves the pointer null, which would crash a real host.
    pub fn last_error(&self) -> String {
        let mut text = std::ptr::null();
        // SAFETY: `text` is valid for the call.
        unsafe { (self.last_error)(&mut text) };
        assert!(!text.is_null(), "the last-error text must never be null");
        // SAFETY: the plugin gives a NUL-terminated text that lives until the thread's next call, and it is copied now.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Asks for the last-error text with a null pointer, which must be ignored.
    pub fn ask_last_error_with_null(&self) {
        // SAFETY: the ABI has the plugin ignore a null argument.
        unsafe { (self.last_error)(std::ptr::null_mut()) };
    }

    fn check(&self, status: PluginStatus) -> Result<(), PluginError> {
        if status == PluginStatus::SUCCESS {
            return Ok(());
        }
        Err(PluginError { status, message: self.last_error() })
    }

    /// One of the functions that give a static text.
    ///
    /// # Errors
    /// The plugin's.
    pub fn text(
        &self,
        function: unsafe extern "C" fn(*mut *const c_char) -> PluginStatus,
    ) -> Result<String, PluginError> {
        let mut text = std::ptr::null();
        // SAFETY: `function` is one of this plugin's, and `text` is valid for the call.
        self.check(unsafe { function(&mut text) })?;
        assert!(!text.is_null(), "a successful call gives a text");
        // SAFETY: texts of a plugin are static and NUL-terminated.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// The ids of all engines.
    ///
    /// # Errors
    /// The plugin's.
    pub fn engine_ids(&self) -> Result<Vec<i64>, PluginError> {
        let mut count = 0;
        // SAFETY: a null array with room for nothing asks for the count.
        self.check(unsafe { (self.functions.get_all_engine_ids)(std::ptr::null_mut(), 0, &mut count) })?;
        let mut ids = vec![0; count as usize];
        // SAFETY: `ids` has `count` elements.
        self.check(unsafe { (self.functions.get_all_engine_ids)(ids.as_mut_ptr(), count, &mut count) })?;
        assert_eq!(count as usize, ids.len(), "both answers have the same count");
        Ok(ids)
    }

    /// A new handle.
    ///
    /// # Errors
    /// The plugin's.
    pub fn handle(self: &Arc<Plugin>) -> Result<Handle, PluginError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the call.
        self.check(unsafe { (self.functions.create)(&mut raw) })?;
        assert!(!raw.is_null(), "a successful Create gives a handle");
        Ok(Handle { raw, plugin: Arc::clone(self) })
    }
}

/// Bytes as the ABI passes them.
pub fn const_data(bytes: &[u8]) -> ConstData {
    ConstData { ptr: bytes.as_ptr().cast(), size: bytes.len() }
}

/// A plugin's handle.
pub struct Handle {
    raw: PluginHandlePtr,
    plugin: Arc<Plugin>,
}

// SAFETY: the ABI lets a handle move between threads; calls on one handle are the caller's to serialize, and the owner is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    /// The raw handle, for tests that misuse it.
    pub fn raw(&self) -> PluginHandlePtr {
        self.raw
    }

    /// Tells the handle which stream to execute on.
    ///
    /// # Errors
    /// The plugin's.
    ///
    /// # Safety
    /// The stream is null, or live as long as this handle executes.
    pub unsafe fn set_stream(&self, stream: *mut c_void) -> Result<(), PluginError> {
        // SAFETY: the handle is live; the caller vouches for the stream.
        self.plugin.check(unsafe { (self.plugin.functions.set_stream)(self.raw, stream) })
    }

    /// The plugin of the handle.
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    /// The engines that take the graph.
    ///
    /// # Errors
    /// The plugin's.
    pub fn applicable(&self, graph: &[u8]) -> Result<Vec<i64>, PluginError> {
        let mut ids = [0; 16];
        let mut count = 0;
        // SAFETY: the handle is live, the graph's bytes are readable for the call, and `ids` has room for 16.
        let status = unsafe {
            let function = self.plugin.functions.get_applicable_engine_ids;
            function(self.raw, &const_data(graph), ids.as_mut_ptr(), ids.len() as u32, &mut count)
        };
        self.plugin.check(status)?;
        Ok(ids[..count as usize].to_vec())
    }

    /// The engine's details for the graph, as bytes.
    ///
    /// # Errors
    /// The plugin's.
    pub fn details(&self, engine_id: i64, graph: &[u8]) -> Result<Vec<u8>, PluginError> {
        let mut data = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: the handle is live, the graph's bytes are readable for the call, and `data` is valid for the call.
        let status =
            unsafe { (self.plugin.functions.get_engine_details)(self.raw, engine_id, &const_data(graph), &mut data) };
        self.plugin.check(status)?;
        assert!(!data.ptr.is_null() && data.size > 0, "successful details are not empty");
        // SAFETY: the plugin has just given `size` bytes at `ptr`, which live until they are destroyed below.
        let bytes = unsafe { std::slice::from_raw_parts(data.ptr.cast::<u8>(), data.size) }.to_vec();
        // SAFETY: this is the pair that the plugin gave, destroyed once.
        self.plugin.check(unsafe { (self.plugin.functions.destroy_engine_details)(self.raw, &mut data) })?;
        Ok(bytes)
    }

    /// The workspace that a plan of this configuration may need, in bytes.
    ///
    /// # Errors
    /// The plugin's.
    pub fn workspace_size(&self, config: &[u8], graph: &[u8]) -> Result<usize, PluginError> {
        let mut size = usize::MAX;
        // SAFETY: the handle is live and both buffers are readable for the call.
        let status = unsafe {
            (self.plugin.functions.get_workspace_size)(self.raw, &const_data(config), &const_data(graph), &mut size)
        };
        self.plugin.check(status)?;
        Ok(size)
    }

    /// Builds a plan.
    ///
    /// # Errors
    /// The plugin's.
    pub fn plan(&self, config: &[u8], graph: &[u8]) -> Result<Plan<'_>, PluginError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live and both buffers are readable for the call.
        let status = unsafe {
            let function = self.plugin.functions.create_execution_context;
            function(self.raw, &const_data(config), &const_data(graph), &mut raw)
        };
        self.own(status, raw)
    }

    /// Restores a plan from the bytes of [`Plan::serialized`].
    ///
    /// # Errors
    /// The plugin's.
    pub fn restored(&self, stored: &[u8]) -> Result<Plan<'_>, PluginError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live and the buffer is readable for the call.
        let status = unsafe {
            let function = self.plugin.functions.create_execution_context_from_serialized;
            function(self.raw, &const_data(stored), &mut raw)
        };
        assert!(status == PluginStatus::SUCCESS || raw.is_null(), "a refused plan leaves its place alone");
        self.own(status, raw)
    }

    /// The plan of a context that a call with that status has made.
    fn own(&self, status: PluginStatus, raw: ExecutionContextPtr) -> Result<Plan<'_>, PluginError> {
        self.plugin.check(status)?;
        assert!(!raw.is_null(), "a successful call gives a context");
        let mut workspace_bytes = usize::MAX;
        let mut plan = Plan { raw, workspace_bytes: 0, handle: self };
        // SAFETY: handle and context are live.
        let status = unsafe {
            let function = self.plugin.functions.get_workspace_size_from_execution_context;
            function(self.raw, raw, &mut workspace_bytes)
        };
        self.plugin.check(status)?;
        plan.workspace_bytes = workspace_bytes;
        Ok(plan)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and plans borrow it, so none is left.
        let status = unsafe { (self.plugin.functions.destroy)(self.raw) };
        if status != PluginStatus::SUCCESS && !std::thread::panicking() {
            panic!("destroying a handle: {}", self.plugin.last_error());
        }
    }
}

/// A built plan.
pub struct Plan<'handle> {
    raw: ExecutionContextPtr,
    workspace_bytes: usize,
    handle: &'handle Handle,
}

impl Plan<'_> {
    /// The raw context, for tests that misuse it.
    pub fn raw(&self) -> ExecutionContextPtr {
        self.raw
    }

    /// Bytes of workspace that the plan needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Serialized plan.
    ///
    /// # Errors
    /// The plugin's.
    pub fn serialized(&self) -> Result<Vec<u8>, PluginError> {
        let Handle { raw, plugin } = self.handle;
        let mut data = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: handle and context are live, and `data` is valid for the call.
        plugin.check(unsafe { (plugin.functions.serialize_execution_context)(*raw, self.raw, &mut data) })?;
        assert!(!data.ptr.is_null() && data.size > 0, "a stored plan is not empty");
        // SAFETY: the plugin has just given `size` bytes at `ptr`, which live until they are destroyed below.
        let bytes = unsafe { std::slice::from_raw_parts(data.ptr.cast::<u8>(), data.size) }.to_vec();
        // SAFETY: this is the pair that the plugin gave, destroyed once.
        plugin.check(unsafe { (plugin.functions.destroy_serialized_execution_context)(*raw, &mut data) })?;
        Ok(bytes)
    }

    /// Executes with a fresh workspace.
    ///
    /// # Errors
    /// The plugin's.
    ///
    /// # Safety
    /// Each pointer is null, or points to memory for all elements of the tensor of its uid, writable for outputs.
    pub unsafe fn execute(&self, buffers: &[DeviceBuffer]) -> Result<(), PluginError> {
        // Bytes of ones: a plan must not hope for zeros.
        let mut workspace = crate::tensor::AlignedBytes::filled(self.workspace_bytes, 0xff);
        let pointer = if self.workspace_bytes == 0 { std::ptr::null_mut() } else { workspace.as_mut_ptr().cast() };
        // SAFETY: the workspace is as large as the plan said, the caller vouches for the buffers.
        unsafe { self.execute_with(self.handle, pointer, buffers) }
    }

    /// Executes on a handle, which need not be the one that built the plan, with this workspace.
    ///
    /// # Errors
    /// The plugin's.
    ///
    /// # Safety
    /// As [`Plan::execute`]; and the workspace is null, or has as many bytes as the plan asks for. Memory that the engine
    /// uses later than this call, on the handle's stream, stays until then.
    pub unsafe fn execute_with(
        &self,
        handle: &Handle,
        workspace: *mut c_void,
        buffers: &[DeviceBuffer],
    ) -> Result<(), PluginError> {
        let count = u32::try_from(buffers.len()).expect("few buffers");
        let function = handle.plugin.functions.execute_op_graph;
        // SAFETY: handle and context are live, the caller vouches for the memory.
        handle.plugin.check(unsafe { function(handle.raw, self.raw, workspace, buffers.as_ptr(), count) })
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is live and belongs to this handle.
        let status = unsafe { (self.handle.plugin.functions.destroy_execution_context)(self.handle.raw, self.raw) };
        if status != PluginStatus::SUCCESS && !std::thread::panicking() {
            panic!("destroying a plan: {}", self.handle.plugin.last_error());
        }
    }
}
