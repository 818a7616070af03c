//! The exported functions.
//!
//! # Detected misuse
//! Handles and execution contexts are keys ([`hipdnn_capi::table`]): null, destroyed and foreign ones answer
//! `HIPDNN_PLUGIN_STATUS_BAD_PARAM` in every function, and destroying one waits for calls that use it. Engine details
//! and stored plans are real memory, known to their handle by address: freeing them twice or through another handle answers
//! the same.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_capi::pointer::{Out, key, opaque};
use hipdnn_capi::table::{Slot, Slots};
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::payload::Payload;
use hipdnn_engine_core::{Applicable, Engine, Plan, Site, engine_id, site};
use hipdnn_schemas::{EngineConfig, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, DeviceBuffer, ExecutionContextPtr, LogCallback, PluginHandlePtr, PluginStatus, PluginType, Severity,
    StreamPtr,
};

use super::lent::{Lent, LentBytes};
use super::pointer::{Data, IdList, OverrideLists, memory, overrides, variant_pack};
use super::status::last_error;
use super::unwind::guard;
use crate::overrides::Overrides;
use crate::questions::{Question, Questions};
use crate::registry::{self, Engines};
use crate::{log, selection};

const NAME: &CStr = c"hipdnn_rs_plugin";

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version has no NUL"),
};

/// Version of the engine ABI that this plugin implements: with engine names (1.4.0). Graphs with features of 1.2.0 and
/// 1.3.0 come here and are declined where an engine lacks them.
const API_VERSION: &CStr = c"1.4.0";

/// The plugin's side of a hipDNN handle.
struct Handle {
    engines: Engines,
    stream: AtomicPtr<c_void>,
    memory: MemoryKind,
    cache: Option<&'static CStr>,
    details: Mutex<Lent>,
    stored: Mutex<Lent>,
    questions: Questions,
    /// Resources that the engines share among plans, such as worker threads: kept from the first handle to the last.
    _attachments: Vec<Box<dyn Send + Sync>>,
}

impl Handle {
    fn new(engines: Engines) -> Handle {
        Handle {
            engines,
            stream: AtomicPtr::default(),
            memory: site::memory(),
            cache: site::cache(),
            details: Mutex::default(),
            stored: Mutex::default(),
            questions: Questions::default(),
            _attachments: engines.iter().map(|engine| engine.attach()).collect(),
        }
    }

    /// Stream on which executions through the handle are enqueued; null is the default stream.
    fn stream(&self) -> StreamPtr {
        self.stream.load(Ordering::Relaxed)
    }

    /// Site of the handle: the memory of its tensors, its stream, and the engines' cache.
    fn site(&self) -> Site {
        Site { stream: self.stream(), memory: self.memory, cache: self.cache }
    }

    fn engine(&self, id: i64) -> Result<&'static dyn Engine, Error> {
        registry::find(self.engines, id).ok_or_else(|| {
            let known = registry::ids(self.engines);
            Error::bad_param(format!("expected an engine among {known:?}, got {id}"))
        })
    }

    /// A graph that the host should have checked already, and the engines' answers about it.
    fn question(&self, graph: Data<'_>) -> Result<Arc<Question>, Error> {
        let question = self.questions.about(graph.bytes()?);
        question.map_err(|error| Error::bad_param(format!("op_graph: {error}")))
    }

    /// The checked graph.
    fn graph(&self, graph: Data<'_>) -> Result<Arc<Graph>, Error> {
        Ok(Arc::clone(self.question(graph)?.shared_graph()))
    }

    /// Applicability of an engine to a graph that the host should have checked already.
    fn applicable(&self, id: i64, graph: Data<'_>) -> Result<Arc<dyn Applicable>, Error> {
        let question = self.question(graph)?;
        let engine = self.engine(id)?;
        question.applicable(engine, self.site()).map_err(|declined| {
            let (name, graph) = (engine.name().to_string_lossy(), question.graph().name());
            Error::not_applicable(format!("{name} does not compute graph {graph:?}: {declined}"))
        })
    }
}

/// A built plan, and its inputs.
struct Context {
    plan: Box<dyn Plan>,
    engine: &'static CStr,
    /// Serialized graph.
    graph: Box<[u8]>,
    /// Settled and serialized configuration.
    config: Box<[u8]>,
    /// Plans for other shapes, if the graph allows them.
    overrides: Option<Overrides>,
}

impl Context {
    fn payload(&self) -> Result<Payload, Error> {
        Ok(Payload {
            engine: self.engine.to_string_lossy().into_owned(),
            graph: self.graph.to_vec(),
            config: self.config.to_vec(),
            portrait: self.plan.portrait()?,
        })
    }
}

fn lock(lent: &Mutex<Lent>) -> MutexGuard<'_, Lent> {
    lent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lends the host a copy of the bytes.
fn lend(lent: &Mutex<Lent>, bytes: &[u8]) -> Result<ConstData, Error> {
    let (address, size) = lock(lent).lend(LentBytes::new(bytes)?);
    Ok(ConstData { ptr: address.cast(), size })
}

/// Frees a lent buffer, and clears the struct that names its address.
fn take_back(lent: &Mutex<Lent>, data: Out<ConstData>, what: &str) -> Result<(), Error> {
    let ConstData { ptr, size } = data.get();
    lock(lent).take_back(ptr.cast(), size, what)?;
    data.set(ConstData { ptr: std::ptr::null(), size: 0 });
    Ok(())
}

static HANDLE_SLOTS: [Slot<Handle>; 4096] = [const { Slot::empty() }; 4096];
static HANDLES: Slots<Handle> = Slots::new("a plugin handle", 0x51, &HANDLE_SLOTS);

static CONTEXT_SLOTS: [Slot<Context>; 65536] = [const { Slot::empty() }; 65536];
static CONTEXTS: Slots<Context> = Slots::new("an execution context", 0x52, &CONTEXT_SLOTS);

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

/// Gives the version of the engine ABI that the plugin implements.
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

/// Gives the plugin's type: an engine plugin.
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
        log::set_callback(callback.ok_or_else(|| Error::bad_param("callback: expected a function, got null"))?);
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
            engine
                .ok_or_else(|| Error::not_applicable(format!("expected an engine of this plugin, got {engine_id}")))?
                .name(),
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
    guard("hipdnnEnginePluginDestroy", || {
        drop(HANDLES.remove(key(handle))?);
        Ok(())
    })
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
            match handle.questions.about(graph.bytes()?) {
                Err(error) => ::log::info!("no engine for what is no graph: {error}"),
                Ok(question) => {
                    for engine in handle.engines {
                        match question.applicable(*engine, handle.site()) {
                            Ok(_) => ids.push(engine_id(*engine)),
                            Err(declined) => ::log::info!(
                                "{} does not compute graph {:?}: {declined}",
                                engine.name().to_string_lossy(),
                                question.graph().name()
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
            let details = handle.applicable(engine_id, data)?.details();
            out.set(lend(&handle.details, &details.to_bytes())?);
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
        HANDLES.with(key(handle), |handle| take_back(&handle.details, details, "engine_details"))
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
            let config = config(config_data)?;
            out.set(handle.applicable(config.engine_id, graph_data)?.workspace_bytes(&config)?);
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
        let context = HANDLES.with(key(handle), |handle| -> Result<_, Error> {
            let config = config(config_data)?;
            let applicable = handle.applicable(config.engine_id, graph_data)?;
            let config = applicable.settled(&config)?;
            let (engine, plan) = (handle.engine(config.engine_id)?, applicable.plan(&config)?);
            let graph = handle.graph(graph_data)?;
            let context = Context {
                engine: engine.name(),
                graph: graph_data.bytes()?.into(),
                config: config.to_bytes().into(),
                overrides: Overrides::new(engine, graph, config, plan.workspace_bytes()),
                plan,
            };
            // The stream that the handle has is most likely the one that it executes on.
            context.plan.make_ready(handle.stream());
            Ok(context)
        })?;
        out.set(opaque(CONTEXTS.insert(context)?));
        Ok(())
    })
}

/// Stores a plan: the bytes make it again in another process, for the same device and by the same version of this plugin.
/// They are the plugin's until [`hipdnnEnginePluginDestroySerializedExecutionContext`].
///
/// # Safety
/// `serialized_context` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginSerializeExecutionContext(
    handle: PluginHandlePtr,
    execution_context: ExecutionContextPtr,
    serialized_context: *mut ConstData,
) -> PluginStatus {
    guard("hipdnnEnginePluginSerializeExecutionContext", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(serialized_context, "serialized_context") }?;
        HANDLES.with(key(handle), |handle| {
            CONTEXTS.with(key(execution_context), |context| {
                out.set(lend(&handle.stored, &context.payload()?.to_bytes())?);
                Ok(())
            })
        })
    })
}

/// Frees a stored plan and clears the struct.
///
/// # Safety
/// `serialized_context` is null or good for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroySerializedExecutionContext(
    handle: PluginHandlePtr,
    serialized_context: *mut ConstData,
) -> PluginStatus {
    guard("hipdnnEnginePluginDestroySerializedExecutionContext", || {
        // SAFETY: the caller's promise.
        let stored = unsafe { Out::new(serialized_context, "serialized_context") }?;
        HANDLES.with(key(handle), |handle| take_back(&handle.stored, stored, "serialized_context"))
    })
}

/// Makes a stored plan again. Nothing is searched, timed or compiled for it; one that is damaged, of another version, for
/// another device or of a graph that is planned otherwise here is refused with the reason.
///
/// Hosts of an earlier state of this ABI pass a configuration in the second place and the plan in the third, where this
/// function has its result: they are refused before anything is written, since no configuration is a stored plan.
///
/// # Safety
/// `serialized_context` is null or has readable bytes, which come from this plugin: a stored plan is code, and a checksum
/// tells damage, not malice. `execution_context` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreateExecutionContextFromSerialized(
    handle: PluginHandlePtr,
    serialized_context: *const ConstData,
    execution_context: *mut ExecutionContextPtr,
) -> PluginStatus {
    guard("hipdnnEnginePluginCreateExecutionContextFromSerialized", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(execution_context, "execution_context") }?;
        // SAFETY: the caller's promise.
        let stored = unsafe { Data::new(serialized_context, "serialized_context") }?;
        let context = HANDLES.with(key(handle), |handle| -> Result<_, Error> {
            let payload = Payload::from_bytes(stored.bytes()?)?;
            let engine = handle.engines.iter().find(|engine| engine.name().to_bytes() == payload.engine.as_bytes());
            let engine = engine.ok_or_else(|| {
                let known: Vec<_> = handle.engines.iter().map(|engine| engine.name().to_string_lossy()).collect();
                let (known, got) = (known.join(", "), &payload.engine);
                Error::bad_param(format!("serialized_context: expected a plan of {known}, got one of {got:?}"))
            })?;
            let plan = selection::restore(*engine, &payload, handle.site())?;
            plan.make_ready(handle.stream());
            let (graph, config) = (Arc::new(payload.graph()?), payload.config()?);
            let overrides = Overrides::new(*engine, graph, config, plan.workspace_bytes());
            let Payload { graph, config, .. } = payload;
            Ok(Context { plan, engine: engine.name(), graph: graph.into(), config: config.into(), overrides })
        })?;
        out.set(opaque(CONTEXTS.insert(context)?));
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
        HANDLES.with(key(handle), |_| {
            drop(CONTEXTS.remove(key(execution_context))?);
            Ok(())
        })
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
        let stream = HANDLES.with(key(handle), |handle| Ok::<_, Error>(handle.stream()))?;
        CONTEXTS.with(key(execution_context), |context| {
            // SAFETY: the caller's promise: null, or that many entries.
            let buffers = unsafe { variant_pack(device_buffers, num_device_buffers) }?;
            // SAFETY: the caller's promise: workspace and buffers are as the plan wants them.
            unsafe { context.plan.execute(stream, memory(workspace), buffers) }
        })
    })
}

/// Runs a plan's graph with other shapes than it declares. What is new is planned at its first execution, and the plans that
/// came last are kept. Without overrides this is [`hipdnnEnginePluginExecuteOpGraph`].
///
/// # Safety
/// `device_buffers` is null or refers to `num_device_buffers` entries; the other lists are null or have `num_overrides`
/// entries, and each shape and stride is null or has as many numbers as its length. Workspace and buffers are as
/// [`Plan::execute`] wants them, with the override shapes; the workspace is of the plan's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginExecuteOpGraphWithOverrides(
    handle: PluginHandlePtr,
    execution_context: ExecutionContextPtr,
    workspace: *mut c_void,
    device_buffers: *const DeviceBuffer,
    num_device_buffers: u32,
    num_overrides: u32,
    override_unique_ids: *const i64,
    override_lengths: *const u32,
    override_shapes: *const *const i64,
    override_strides: *const *const i64,
) -> PluginStatus {
    guard("hipdnnEnginePluginExecuteOpGraphWithOverrides", || {
        let site = HANDLES.with(key(handle), |handle| Ok::<_, Error>(handle.site()))?;
        CONTEXTS.with(key(execution_context), |context| {
            // SAFETY: the caller's promise: null, or that many entries.
            let buffers = unsafe { variant_pack(device_buffers, num_device_buffers) }?;
            let lists = OverrideLists {
                count: num_overrides,
                uids: override_unique_ids,
                lengths: override_lengths,
                shapes: override_shapes,
                strides: override_strides,
            };
            // SAFETY: the caller's promise: null, or that many entries with as many numbers as they say.
            let shapes = unsafe { overrides(lists) }?;
            if shapes.is_empty() {
                // SAFETY: the caller's promise: workspace and buffers are as the plan wants them.
                return unsafe { context.plan.execute(site.stream, memory(workspace), buffers) };
            }
            let overrides = context.overrides.as_ref().ok_or_else(|| {
                Error::invalid_value("expected a graph that allows override shapes, got one that does not")
            })?;
            // SAFETY: the caller's promise: workspace and buffers are as the plan wants them, with these shapes.
            unsafe { overrides.execute(&*context.plan, site, memory(workspace), buffers, &shapes) }
        })
    })
}

#[cfg(test)]
mod tests;
