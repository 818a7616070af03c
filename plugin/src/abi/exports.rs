//! The exported functions.
//!
//! # What is detected
//! Handles and execution contexts are keys ([`super::slots`]): null, destroyed and foreign ones answer
//! `HIPDNN_PLUGIN_STATUS_BAD_PARAM` in every function, and destroying one waits for calls that use it. Engine details
//! are real memory, known to their handle by address: freeing them twice or through another handle answers the same.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use hipdnn_schemas::{EngineConfig, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, DeviceBuffer, ExecutionContextPtr, LogCallback, PluginHandlePtr, PluginStatus, PluginType, Severity,
    StreamPtr,
};

use super::pointer::{Data, IdList, Out, key, memory, opaque, variant_pack};
use super::slots::{Slot, Slots};
use super::status::last_error;
use super::unwind::guard;
use crate::engine::details::{DetailsBuffer, Lent};
use crate::engine::registry::{self, Engines};
use crate::engine::{Applicable, Plan, Site, engine_id, site};
use crate::error::Error;
use crate::log;

const NAME: &CStr = c"hipdnn_rs_plugin";

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version has no NUL"),
};

/// The engine ABI that this plugin keeps to: with engine names (1.4.0). Graphs with features of 1.1.0 to 1.3.0 come here
/// and are declined where an engine lacks them.
const API_VERSION: &CStr = c"1.4.0";

/// What the plugin keeps for a hipDNN handle.
struct Handle {
    engines: Engines,
    stream: AtomicPtr<c_void>,
    memory: MemoryKind,
    lent: Mutex<Lent>,
    /// What the engines share among plans, such as worker threads: kept from the first handle to the last.
    _attachments: Vec<Box<dyn Send + Sync>>,
}

impl Handle {
    fn new(engines: Engines) -> Handle {
        Handle {
            engines,
            stream: AtomicPtr::default(),
            memory: site::memory(),
            lent: Mutex::default(),
            _attachments: engines.iter().map(|engine| engine.attach()).collect(),
        }
    }

    fn lent(&self) -> std::sync::MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What executions through the handle are enqueued on; null is the default stream.
    fn stream(&self) -> StreamPtr {
        self.stream.load(Ordering::Relaxed)
    }

    /// Where the handle's tensors are and work is enqueued.
    fn site(&self) -> Site {
        Site { stream: self.stream(), memory: self.memory }
    }

    /// What the engine says to the graph.
    fn applicable<'g>(&self, id: i64, graph: &'g Graph) -> Result<Box<dyn Applicable + 'g>, Error> {
        let engine = registry::find(self.engines, id).ok_or_else(|| {
            let known = registry::ids(self.engines);
            Error::bad_param(format!("engine {id} is not of this plugin; it has {known:?}"))
        })?;
        engine.applicable(graph, self.site()).map_err(|declined| {
            let name = engine.name().to_string_lossy();
            Error::not_applicable(format!("{name} does not compute graph {:?}: {declined}", graph.name()))
        })
    }
}

/// A built plan.
struct Context {
    plan: Box<dyn Plan>,
}

static HANDLE_SLOTS: [Slot<Handle>; 4096] = [const { Slot::empty() }; 4096];
static HANDLES: Slots<Handle> = Slots::new("a plugin handle", 0x51, &HANDLE_SLOTS);

static CONTEXT_SLOTS: [Slot<Context>; 65536] = [const { Slot::empty() }; 65536];
static CONTEXTS: Slots<Context> = Slots::new("an execution context", 0x52, &CONTEXT_SLOTS);

/// Reads a graph that the host should have checked already.
fn graph(data: Data<'_>) -> Result<Graph, Error> {
    Graph::from_bytes(data.bytes()?).map_err(|error| Error::bad_param(format!("op_graph: {error}")))
}

fn config(data: Data<'_>) -> Result<EngineConfig, Error> {
    EngineConfig::from_bytes(data.bytes()?).map_err(|error| Error::bad_param(format!("engine_config: {error}")))
}

/// Gives the plugin's name.
///
/// # Safety
/// `name` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetName(name: *mut *const c_char) -> PluginStatus {
    guard("hipdnnPluginGetName", || {
        // SAFETY: the caller's promise.
        unsafe { Out::new(name, "name") }?.set_text(NAME);
        Ok(())
    })
}

/// Gives the plugin's version.
///
/// # Safety
/// `version` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetVersion(version: *mut *const c_char) -> PluginStatus {
    guard("hipdnnPluginGetVersion", || {
        // SAFETY: the caller's promise.
        unsafe { Out::new(version, "version") }?.set_text(VERSION);
        Ok(())
    })
}

/// Gives the version of the engine ABI that the plugin keeps to.
///
/// # Safety
/// `version` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetApiVersion(version: *mut *const c_char) -> PluginStatus {
    guard("hipdnnPluginGetApiVersion", || {
        // SAFETY: the caller's promise.
        unsafe { Out::new(version, "version") }?.set_text(API_VERSION);
        Ok(())
    })
}

/// Says that this is an engine plugin.
///
/// # Safety
/// `plugin_type` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetType(plugin_type: *mut PluginType) -> PluginStatus {
    guard("hipdnnPluginGetType", || {
        // SAFETY: the caller's promise.
        unsafe { Out::new(plugin_type, "type") }?.set(PluginType::ENGINE);
        Ok(())
    })
}

/// Gives the message of the calling thread's last error: never null, and valid until its next one.
///
/// # Safety
/// `error_str` is null, and then ignored, or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetLastErrorString(error_str: *mut *const c_char) {
    // SAFETY: the caller's promise.
    if let Ok(out) = unsafe { Out::new(error_str, "error_str") } {
        out.set(last_error());
    }
}

/// Sends log messages to the host.
///
/// # Safety
/// `callback` is null or may be called from any thread, until another is set or the library is unloaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginSetLoggingCallback(callback: LogCallback) -> PluginStatus {
    guard("hipdnnPluginSetLoggingCallback", || {
        log::set_callback(callback.ok_or_else(|| Error::bad_param("callback: wanted a function, came null"))?);
        Ok(())
    })
}

/// Sets the lowest severity that is logged.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginSetLogLevel(level: Severity) -> PluginStatus {
    guard("hipdnnPluginSetLogLevel", || log::set_level(level))
}

/// Lists the engines, whatever devices there are.
///
/// # Safety
/// `num_engines` is null or good for writing, `engine_ids` is null or good for writing `max_engines` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetAllEngineIds(
    engine_ids: *mut i64,
    max_engines: u32,
    num_engines: *mut u32,
) -> PluginStatus {
    guard("hipdnnEnginePluginGetAllEngineIds", || {
        // SAFETY: the caller's promise.
        let out = unsafe { IdList::new(engine_ids, max_engines, num_engines) }?;
        out.set(&registry::ids(registry::ENGINES));
        Ok(())
    })
}

/// Gives an engine's name; `HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE` for an engine of somebody else.
///
/// # Safety
/// `name` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetEngineName(engine_id: i64, name: *mut *const c_char) -> PluginStatus {
    guard("hipdnnEnginePluginGetEngineName", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(name, "name") }?;
        let engine = registry::find(registry::ENGINES, engine_id);
        out.set_text(
            engine.ok_or_else(|| Error::not_applicable(format!("engine {engine_id} is not of this plugin")))?.name(),
        );
        Ok(())
    })
}

/// Makes the plugin's side of a hipDNN handle.
///
/// # Safety
/// `handle` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreate(handle: *mut PluginHandlePtr) -> PluginStatus {
    guard("hipdnnEnginePluginCreate", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle") }?;
        out.set(opaque(HANDLES.insert(Handle::new(registry::ENGINES))?));
        Ok(())
    })
}

/// Destroys a handle, with the engine details that it lent.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginDestroy(handle: PluginHandlePtr) -> PluginStatus {
    guard("hipdnnEnginePluginDestroy", || HANDLES.remove(key(handle)).map(drop))
}

/// Sets the stream that executions through this handle are enqueued on.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginSetStream(handle: PluginHandlePtr, stream: StreamPtr) -> PluginStatus {
    guard("hipdnnEnginePluginSetStream", || {
        HANDLES.with(key(handle), |handle| {
            handle.stream.store(stream, Ordering::Relaxed);
            Ok(())
        })
    })
}

/// Lists the engines that compute a graph. A graph that none computes, or that is none, has an empty list: the reason is
/// logged.
///
/// # Safety
/// `op_graph` is null or has readable bytes; the other pointers as for [`hipdnnEnginePluginGetAllEngineIds`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetApplicableEngineIds(
    handle: PluginHandlePtr,
    op_graph: *const ConstData,
    engine_ids: *mut i64,
    max_engines: u32,
    num_engines: *mut u32,
) -> PluginStatus {
    guard("hipdnnEnginePluginGetApplicableEngineIds", || {
        // SAFETY: the caller's promise.
        let out = unsafe { IdList::new(engine_ids, max_engines, num_engines) }?;
        // SAFETY: the caller's promise.
        let graph = unsafe { Data::new(op_graph, "op_graph") }?;
        HANDLES.with(key(handle), |handle| {
            let mut ids = Vec::new();
            match Graph::from_bytes(graph.bytes()?) {
                Err(error) => ::log::info!("no engine for what is no graph: {error}"),
                Ok(graph) => {
                    for engine in handle.engines {
                        match engine.applicable(&graph, handle.site()) {
                            Ok(_) => ids.push(engine_id(*engine)),
                            Err(declined) => ::log::info!(
                                "{} does not compute graph {:?}: {declined}",
                                engine.name().to_string_lossy(),
                                graph.name()
                            ),
                        }
                    }
                }
            }
            out.set(&ids);
            Ok(())
        })
    })
}

/// Gives an engine's details for a graph that it computes.
///
/// # Safety
/// `op_graph` is null or has readable bytes; `engine_details` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetEngineDetails(
    handle: PluginHandlePtr,
    engine_id: i64,
    op_graph: *const ConstData,
    engine_details: *mut ConstData,
) -> PluginStatus {
    guard("hipdnnEnginePluginGetEngineDetails", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(engine_details, "engine_details") }?;
        // SAFETY: the caller's promise.
        let data = unsafe { Data::new(op_graph, "op_graph") }?;
        HANDLES.with(key(handle), |handle| {
            let graph = graph(data)?;
            let details = handle.applicable(engine_id, &graph)?.details();
            let (address, size) = handle.lent().lend(DetailsBuffer::new(&details)?);
            out.set(ConstData { ptr: address.cast(), size });
            Ok(())
        })
    })
}

/// Frees engine details and clears the struct.
///
/// # Safety
/// `engine_details` is null or good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroyEngineDetails(
    handle: PluginHandlePtr,
    engine_details: *mut ConstData,
) -> PluginStatus {
    guard("hipdnnEnginePluginDestroyEngineDetails", || {
        // SAFETY: the caller's promise.
        let details = unsafe { Out::new(engine_details, "engine_details") }?;
        HANDLES.with(key(handle), |handle| {
            let ConstData { ptr, size } = details.get();
            handle.lent().take_back(ptr.cast(), size)?;
            details.set(ConstData { ptr: std::ptr::null(), size: 0 });
            Ok(())
        })
    })
}

/// Gives the bytes of workspace that a plan with this configuration needs.
///
/// # Safety
/// `engine_config` and `op_graph` are null or have readable bytes; `workspace_size` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetWorkspaceSize(
    handle: PluginHandlePtr,
    engine_config: *const ConstData,
    op_graph: *const ConstData,
    workspace_size: *mut usize,
) -> PluginStatus {
    guard("hipdnnEnginePluginGetWorkspaceSize", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(workspace_size, "workspace_size") }?;
        // SAFETY: the caller's promise.
        let (config_data, graph_data) =
            unsafe { (Data::new(engine_config, "engine_config")?, Data::new(op_graph, "op_graph")?) };
        HANDLES.with(key(handle), |handle| {
            let (config, graph) = (config(config_data)?, graph(graph_data)?);
            out.set(handle.applicable(config.engine_id, &graph)?.workspace_bytes(&config)?);
            Ok(())
        })
    })
}

/// Builds a plan.
///
/// # Safety
/// `engine_config` and `op_graph` are null or have readable bytes; `execution_context` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreateExecutionContext(
    handle: PluginHandlePtr,
    engine_config: *const ConstData,
    op_graph: *const ConstData,
    execution_context: *mut ExecutionContextPtr,
) -> PluginStatus {
    guard("hipdnnEnginePluginCreateExecutionContext", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(execution_context, "execution_context") }?;
        // SAFETY: the caller's promise.
        let (config_data, graph_data) =
            unsafe { (Data::new(engine_config, "engine_config")?, Data::new(op_graph, "op_graph")?) };
        let plan = HANDLES.with(key(handle), |handle| {
            let (config, graph) = (config(config_data)?, graph(graph_data)?);
            let plan = handle.applicable(config.engine_id, &graph)?.plan(&config)?;
            // The stream that the handle has is most likely the one that it executes on.
            plan.make_ready(handle.stream());
            Ok(plan)
        })?;
        out.set(opaque(CONTEXTS.insert(Context { plan })?));
        Ok(())
    })
}

/// Destroys a plan. Plans may outlive the handle they were made with.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginDestroyExecutionContext(
    handle: PluginHandlePtr,
    execution_context: ExecutionContextPtr,
) -> PluginStatus {
    guard("hipdnnEnginePluginDestroyExecutionContext", || {
        HANDLES.with(key(handle), |_| CONTEXTS.remove(key(execution_context)).map(drop))
    })
}

/// Gives the bytes of workspace that an execution of the plan needs.
///
/// # Safety
/// `workspace_size` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    handle: PluginHandlePtr,
    execution_context: ExecutionContextPtr,
    workspace_size: *mut usize,
) -> PluginStatus {
    guard("hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(workspace_size, "workspace_size") }?;
        HANDLES.with(key(handle), |_| {
            CONTEXTS.with(key(execution_context), |context| {
                out.set(context.plan.workspace_bytes());
                Ok(())
            })
        })
    })
}

/// Runs a plan.
///
/// # Safety
/// `device_buffers` is null or refers to `num_device_buffers` entries; workspace and buffers are as
/// [`Plan::execute`] wants them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginExecuteOpGraph(
    handle: PluginHandlePtr,
    execution_context: ExecutionContextPtr,
    workspace: *mut c_void,
    device_buffers: *const DeviceBuffer,
    num_device_buffers: u32,
) -> PluginStatus {
    guard("hipdnnEnginePluginExecuteOpGraph", || {
        let stream = HANDLES.with(key(handle), |handle| Ok(handle.stream()))?;
        CONTEXTS.with(key(execution_context), |context| {
            // SAFETY: the caller's promise: null, or that many entries.
            let buffers = unsafe { variant_pack(device_buffers, num_device_buffers) }?;
            // SAFETY: the caller's promise: workspace and buffers are as the plan wants them.
            unsafe { context.plan.execute(stream, memory(workspace), buffers) }
        })
    })
}

#[cfg(test)]
mod tests;
