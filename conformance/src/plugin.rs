//! Any engine plugin, called over its C ABI as a hipDNN backend calls it.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::Mutex;

use hipdnn_schemas::{EngineConfig, EngineDetails, ShapeOverride};
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, Create, CreateExecutionContext, Destroy, DestroyEngineDetails, DestroyExecutionContext, DeviceBuffer,
    ExecuteOpGraph, ExecuteOpGraphWithOverrides, ExecutionContextPtr, GetAllEngineIds, GetApplicableEngineIds,
    GetEngineDetails, GetEngineName, GetLastErrorString, GetText, GetWorkspaceSize,
    GetWorkspaceSizeFromExecutionContext, PluginHandlePtr, PluginStatus, SetLogLevel, SetLoggingCallback, Severity,
};
use hipdnn_sdk_bindings::library::Library;

/// The functions that a run needs, and those that it does without.
struct Functions {
    last_error: GetLastErrorString,
    engine_ids: GetAllEngineIds,
    engine_name: Option<GetEngineName>,
    create: Create,
    destroy: Destroy,
    applicable: GetApplicableEngineIds,
    details: GetEngineDetails,
    destroy_details: DestroyEngineDetails,
    workspace_size: GetWorkspaceSize,
    plan: CreateExecutionContext,
    destroy_plan: DestroyExecutionContext,
    plan_workspace_size: GetWorkspaceSizeFromExecutionContext,
    execute: ExecuteOpGraph,
    execute_with_overrides: Option<ExecuteOpGraphWithOverrides>,
}

/// An open plugin with one handle.
pub struct Plugin {
    functions: Functions,
    handle: PluginHandlePtr,
    // Last: the function pointers above must not outlive it.
    _library: Library,
}

/// Messages that the plugin has logged since they were last taken.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes the plugin's log messages.
pub fn take_log() -> Vec<String> {
    std::mem::take(&mut LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

unsafe extern "C" fn log(_: Severity, message: *const c_char) {
    if message.is_null() {
        return;
    }
    // SAFETY: a plugin passes a NUL-terminated text that lives for the call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    let mut log = LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // A plugin that logs every call must not fill the memory of a long run.
    if log.len() < 1000 {
        log.push(text);
    }
}

impl Plugin {
    /// Opens a plugin and makes a handle.
    ///
    /// # Errors
    /// If it can't be opened, lacks a function, or makes no handle.
    pub fn open(path: &Path) -> Result<Plugin, String> {
        // SAFETY: the user names the file as a plugin, which hosts load and unload.
        let library = unsafe { Library::open("the plugin", [path]) }.map_err(|problem| problem.to_string())?;
        let missing = |problem: hipdnn_sdk_bindings::library::LibraryError| problem.to_string();
        // SAFETY: the signatures are those of the plugin ABI, and `Plugin` keeps the library open.
        let functions = unsafe {
            Functions {
                last_error: library.symbol(c"hipdnnPluginGetLastErrorString").map_err(missing)?,
                engine_ids: library.symbol(c"hipdnnEnginePluginGetAllEngineIds").map_err(missing)?,
                engine_name: library.optional(c"hipdnnEnginePluginGetEngineName"),
                create: library.symbol(c"hipdnnEnginePluginCreate").map_err(missing)?,
                destroy: library.symbol(c"hipdnnEnginePluginDestroy").map_err(missing)?,
                applicable: library.symbol(c"hipdnnEnginePluginGetApplicableEngineIds").map_err(missing)?,
                details: library.symbol(c"hipdnnEnginePluginGetEngineDetails").map_err(missing)?,
                destroy_details: library.symbol(c"hipdnnEnginePluginDestroyEngineDetails").map_err(missing)?,
                workspace_size: library.symbol(c"hipdnnEnginePluginGetWorkspaceSize").map_err(missing)?,
                plan: library.symbol(c"hipdnnEnginePluginCreateExecutionContext").map_err(missing)?,
                destroy_plan: library.symbol(c"hipdnnEnginePluginDestroyExecutionContext").map_err(missing)?,
                plan_workspace_size: library
                    .symbol(c"hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext")
                    .map_err(missing)?,
                execute: library.symbol(c"hipdnnEnginePluginExecuteOpGraph").map_err(missing)?,
                execute_with_overrides: library.optional(c"hipdnnEnginePluginExecuteOpGraphWithOverrides"),
            }
        };
        // SAFETY: the signatures are those of the plugin ABI; the callback is a function of this program, which
        // outlives the plugin.
        unsafe {
            if let Some(set) = library.optional::<SetLoggingCallback>(c"hipdnnPluginSetLoggingCallback") {
                set(Some(log));
            }
            if let Some(set) = library.optional::<SetLogLevel>(c"hipdnnPluginSetLogLevel") {
                set(Severity::INFO);
            }
        }
        let mut plugin = Plugin { functions, handle: std::ptr::null_mut(), _library: library };
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the call.
        plugin.check(unsafe { (plugin.functions.create)(&mut handle) })?;
        plugin.handle = handle;
        Ok(plugin)
    }

    /// The error's status and text, as one line.
    fn check(&self, status: PluginStatus) -> Result<(), String> {
        if status == PluginStatus::SUCCESS {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: `text` is valid for the call.
        unsafe { (self.functions.last_error)(&mut text) };
        let text = if text.is_null() {
            "no text".into()
        } else {
            // SAFETY: the plugin's text is NUL-terminated and lives until the thread's next call; it is copied now.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(format!("{status}: {text}"))
    }

    /// The plugin's name, its version and that of its ABI, as far as it says.
    pub fn identity(&self) -> [Option<String>; 3] {
        [c"hipdnnPluginGetName", c"hipdnnPluginGetVersion", c"hipdnnPluginGetApiVersion"].map(|symbol| {
            let mut text = std::ptr::null();
            // SAFETY: the three have this signature, the library is open, and `text` is valid for the call.
            let status = unsafe { self._library.optional::<GetText>(symbol)?(&mut text) };
            // SAFETY: the texts are static and NUL-terminated.
            (status == PluginStatus::SUCCESS && !text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        })
    }

    /// The engines' ids and names.
    ///
    /// # Errors
    /// The plugin's.
    pub fn engines(&self) -> Result<Vec<(i64, String)>, String> {
        let mut count = 0;
        // SAFETY: a null array with room for nothing asks for the count.
        self.check(unsafe { (self.functions.engine_ids)(std::ptr::null_mut(), 0, &mut count) })?;
        let mut ids = vec![0; count as usize];
        // SAFETY: `ids` has `count` elements.
        self.check(unsafe { (self.functions.engine_ids)(ids.as_mut_ptr(), count, &mut count) })?;
        ids.truncate(count as usize);
        let name = |id: i64| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is valid for the call.
            let status = unsafe { self.functions.engine_name?(id, &mut text) };
            // SAFETY: names are static and NUL-terminated.
            (status == PluginStatus::SUCCESS && !text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        Ok(ids
            .into_iter()
            .map(|id| (id, name(id).unwrap_or_else(|| format!("{:#018x}", id.cast_unsigned()))))
            .collect())
    }

    /// The engines that take the graph.
    ///
    /// # Errors
    /// The plugin's.
    pub fn applicable(&self, graph: &[u8]) -> Result<Vec<i64>, String> {
        let mut ids = [0; 32];
        let mut count = 0;
        // SAFETY: the handle is live, the graph is readable for the call, and `ids` has room for 32.
        let status = unsafe {
            (self.functions.applicable)(self.handle, &const_data(graph), ids.as_mut_ptr(), ids.len() as u32, &mut count)
        };
        match status {
            PluginStatus::NOT_APPLICABLE => Ok(Vec::new()),
            status => self.check(status).map(|()| ids[..(count as usize).min(ids.len())].to_vec()),
        }
    }

    /// Details of the engine for the graph.
    ///
    /// # Errors
    /// The plugin's, or if the details can't be read.
    pub fn details(&self, engine_id: i64, graph: &[u8]) -> Result<EngineDetails, String> {
        let mut data = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: the handle is live, the graph is readable and `data` writable for the call.
        self.check(unsafe { (self.functions.details)(self.handle, engine_id, &const_data(graph), &mut data) })?;
        if data.ptr.is_null() || data.size == 0 {
            return Err("the details are empty".into());
        }
        // SAFETY: the plugin has just given `size` bytes at `ptr`, which live until they are destroyed below.
        let bytes = unsafe { std::slice::from_raw_parts(data.ptr.cast::<u8>(), data.size) }.to_vec();
        // SAFETY: this is the pair that the plugin gave, destroyed once.
        self.check(unsafe { (self.functions.destroy_details)(self.handle, &mut data) })?;
        EngineDetails::from_bytes(&bytes).map_err(|problem| format!("the details can't be read: {problem}"))
    }

    /// The workspace that a plan of this configuration may need.
    ///
    /// # Errors
    /// The plugin's.
    pub fn workspace_bytes(&self, config: &EngineConfig, graph: &[u8]) -> Result<usize, String> {
        let config = config.to_bytes();
        let mut bytes = usize::MAX;
        // SAFETY: the handle is live and both buffers are readable for the call.
        let status = unsafe {
            (self.functions.workspace_size)(self.handle, &const_data(&config), &const_data(graph), &mut bytes)
        };
        self.check(status).map(|()| bytes)
    }

    /// Builds a plan.
    ///
    /// # Errors
    /// The plugin's.
    pub fn plan(&self, config: &EngineConfig, graph: &[u8]) -> Result<Plan<'_>, String> {
        let config = config.to_bytes();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live and both buffers are readable for the call.
        let status = unsafe { (self.functions.plan)(self.handle, &const_data(&config), &const_data(graph), &mut raw) };
        self.check(status)?;
        let mut plan = Plan { plugin: self, raw, workspace_bytes: 0 };
        let mut bytes = usize::MAX;
        // SAFETY: handle and plan are live.
        self.check(unsafe { (self.functions.plan_workspace_size)(self.handle, raw, &mut bytes) })?;
        plan.workspace_bytes = bytes;
        Ok(plan)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is live, and plans borrow the plugin, so none is left.
            let status = unsafe { (self.functions.destroy)(self.handle) };
            if let Err(problem) = self.check(status) {
                eprintln!("destroying the handle: {problem}");
            }
        }
    }
}

fn const_data(bytes: &[u8]) -> ConstData {
    ConstData { ptr: bytes.as_ptr().cast(), size: bytes.len() }
}

/// A built plan.
pub struct Plan<'plugin> {
    plugin: &'plugin Plugin,
    raw: ExecutionContextPtr,
    /// The workspace that an execution needs.
    pub workspace_bytes: usize,
}

impl Plan<'_> {
    /// Executes.
    ///
    /// # Errors
    /// The plugin's.
    ///
    /// # Safety
    /// `workspace` has as many bytes as the plan says; each buffer has all elements of its tensor and is writable for
    /// outputs, in the memory that the engine works on.
    pub unsafe fn execute(&self, workspace: *mut c_void, buffers: &[DeviceBuffer]) -> Result<(), String> {
        let count = u32::try_from(buffers.len()).map_err(|_| "too many buffers")?;
        let plugin = self.plugin;
        // SAFETY: handle and plan are live; the caller vouches for the memory.
        let status = unsafe { (plugin.functions.execute)(plugin.handle, self.raw, workspace, buffers.as_ptr(), count) };
        plugin.check(status)
    }

    /// Executes with other shapes than the graph declares.
    ///
    /// # Errors
    /// The plugin's, or that it can't.
    ///
    /// # Safety
    /// As [`Plan::execute`], for tensors of these shapes.
    pub unsafe fn execute_with_overrides(
        &self,
        workspace: *mut c_void,
        buffers: &[DeviceBuffer],
        shapes: &[ShapeOverride<'_>],
    ) -> Result<(), String> {
        let count = |length: usize| u32::try_from(length).map_err(|_| "too many entries");
        let (buffer_count, shape_count) = (count(buffers.len())?, count(shapes.len())?);
        let plugin = self.plugin;
        let execute =
            plugin.functions.execute_with_overrides.ok_or("the plugin does not execute with override shapes")?;
        let uids: Vec<i64> = shapes.iter().map(|shape| shape.uid.0).collect();
        let lengths: Vec<u32> = shapes.iter().map(|shape| shape.dims.len() as u32).collect();
        let dims: Vec<*const i64> = shapes.iter().map(|shape| shape.dims.as_ptr()).collect();
        let strides: Vec<*const i64> = shapes.iter().map(|shape| shape.strides.as_ptr()).collect();
        // SAFETY: handle and plan are live; each list has one entry for each shape, and each shape and its strides as many
        // numbers as its length; the caller vouches for the memory.
        let status = unsafe {
            execute(
                plugin.handle,
                self.raw,
                workspace,
                buffers.as_ptr(),
                buffer_count,
                shape_count,
                uids.as_ptr(),
                lengths.as_ptr(),
                dims.as_ptr(),
                strides.as_ptr(),
            )
        };
        plugin.check(status)
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        // SAFETY: the plan is live and belongs to this handle.
        let status = unsafe { (self.plugin.functions.destroy_plan)(self.plugin.handle, self.raw) };
        if let Err(problem) = self.plugin.check(status) {
            eprintln!("destroying a plan: {problem}");
        }
    }
}
