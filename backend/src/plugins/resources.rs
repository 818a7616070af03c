//! One handle's view of the plugins, and the objects that plugins make for it.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use hipdnn_schemas::{EngineApiVersion, EngineDetails, PredictionKind};
use hipdnn_sdk_bindings::hipdnn::heuristics as c;
use hipdnn_sdk_bindings::hipdnn::heuristics::HeuristicHandlePtr;
use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, DeviceBuffer, ExecutionContextPtr, PluginHandlePtr};

use super::heuristics::{HeuristicPlugin, Placed, Policy, Question};
use super::loaded::{Plugin, shown};
use super::manager::PluginSet;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::metric::RankingMetric;
use crate::{device, log, prediction};

/// A plugin handle from every plugin that gave one. Graphs and plans share it: plugin handles go when the last of them
/// goes, and before their plugin.
pub(crate) struct Resources {
    /// By index of the plugin; null where the plugin gave none.
    handles: Vec<PluginHandlePtr>,
    pub(crate) set: Arc<PluginSet>,
    /// By index of the heuristics plugin; null where it gave none.
    heuristics: Vec<HeuristicHandlePtr>,
    stream: AtomicPtr<c_void>,
}

// SAFETY: the plugin ABI lets a handle be used from any thread, one call at a time, and this library's clients owe that
// one-call-at-a-time for what belongs to one `hipdnnHandle_t`, as they do with ROCm's library.
unsafe impl Send for Resources {}
// SAFETY: nothing in it changes through a shared reference; clients owe the plugin's handles one call at a time.
unsafe impl Sync for Resources {}

fn data(bytes: &[u8]) -> ConstData {
    ConstData { ptr: bytes.as_ptr().cast(), size: bytes.len() }
}

/// Replaced shapes for one execution; the four lists are parallel.
pub(crate) struct Overrides {
    pub(crate) uids: Vec<i64>,
    pub(crate) lengths: Vec<u32>,
    pub(crate) shapes: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

impl Resources {
    pub(crate) fn new(set: Arc<PluginSet>) -> Resources {
        let mut handles: Vec<PluginHandlePtr> = Vec::with_capacity(set.plugins.len());
        for plugin in &set.plugins {
            let mut handle: PluginHandlePtr = std::ptr::null_mut();
            // SAFETY: the pointer is valid for the call.
            let status = unsafe { (plugin.api.create)(&mut handle) };
            if let Err(error) = plugin.check("hipdnnEnginePluginCreate", status) {
                log::error!("{error}");
                handle = std::ptr::null_mut();
            } else if handle.is_null() {
                log::error!("plugin {}: hipdnnEnginePluginCreate gave no handle", plugin.name);
            } else if handles.contains(&handle) {
                log::error!("plugin {}: its handle is also another plugin's", plugin.name);
                // SAFETY: the plugin made this handle.
                unsafe { (plugin.api.destroy)(handle) };
                handle = std::ptr::null_mut();
            }
            handles.push(handle);
        }
        let heuristics = set.heuristics.iter().map(|plugin| {
            plugin.handle().unwrap_or_else(|reason| {
                log::error!("plugin {}: {reason}", plugin.name);
                std::ptr::null_mut()
            })
        });
        Resources { handles, heuristics: heuristics.collect(), set, stream: AtomicPtr::default() }
    }

    /// The usable plugins with their handles.
    fn plugins(&self) -> impl Iterator<Item = (&Plugin, PluginHandlePtr)> {
        self.set.plugins.iter().zip(self.handles.iter().copied()).filter(|(_, handle)| !handle.is_null())
    }

    fn of_engine(&self, engine: i64) -> Result<(&Plugin, PluginHandlePtr)> {
        let index = self.set.owner.get(&engine);
        index
            .map(|&index| (&self.set.plugins[index], self.handles[index]))
            .filter(|(_, handle)| !handle.is_null())
            .ok_or_else(|| Error::internal(format!("no loaded plugin has engine {engine}")))
    }

    /// The plugin of an engine.
    pub(crate) fn plugin_of(&self, engine: i64) -> Result<&Plugin> {
        self.of_engine(engine).map(|(plugin, _)| plugin)
    }

    /// The plugins that work for this handle.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Plugin> {
        self.plugins().map(|(plugin, _)| plugin)
    }

    /// The handle's stream, a word of the client's.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.load(Ordering::Acquire)
    }

    /// Keeps the stream and hands it to every plugin.
    pub(crate) fn set_stream(&self, stream: *mut c_void) -> Result<()> {
        self.stream.store(stream, Ordering::Release);
        for (plugin, handle) in self.plugins() {
            // SAFETY: the plugin made this handle; the stream is a word that it interprets.
            let status = unsafe { (plugin.api.set_stream)(handle, stream) };
            plugin.check("hipdnnEnginePluginSetStream", status)?;
        }
        Ok(())
    }

    /// The engines that take the graph, plugin by plugin, each plugin's ascending. Plugins whose ABI is older than the
    /// graph needs are not asked. `first` stops at the first plugin that offers one.
    pub(crate) fn applicable(&self, graph: &Buffer, needs: Needs, first: bool) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        for (plugin, handle) in self.plugins() {
            if plugin.api_version < needs.api_version || (needs.overrides && !plugin.has_overrides()) {
                log::info!(
                    "plugin {} is not asked: the graph needs engine API {}{}, it has {}",
                    plugin.name,
                    shown(needs.api_version),
                    if needs.overrides { " with overridden shapes" } else { "" },
                    shown(plugin.api_version)
                );
                continue;
            }
            found.extend(applicable_of(plugin, handle, graph)?);
            if first && !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Policies of heuristics plugins that work for this handle, each with its plugin.
    pub(crate) fn policies(&self) -> Vec<(&HeuristicPlugin, &Policy)> {
        let working = self.set.heuristics.iter().zip(&self.heuristics).filter(|(_, handle)| !handle.is_null());
        working.flat_map(|(plugin, _)| plugin.policies.iter().map(move |policy| (plugin, policy))).collect()
    }

    /// Has a plugin's policy rank engines that take the graph. `None` if there is none, or it declines; the error is why it
    /// can't.
    pub(crate) fn ranked_by(
        &self,
        policy: i64,
        candidates: &[i64],
        graph: &Buffer,
        metric: RankingMetric,
    ) -> std::result::Result<Option<Vec<Placed>>, String> {
        let of_policy = |plugin: &HeuristicPlugin| plugin.policies.iter().any(|known| known.id == policy);
        let Some((plugin, handle)) =
            self.set.heuristics.iter().zip(&self.heuristics).find(|(plugin, _)| of_policy(plugin))
        else {
            return Err("no loaded plugin has it".to_owned());
        };
        if handle.is_null() {
            return Err(format!("plugin {} gave no handle", plugin.name));
        }
        let predict = |engine: i64, kind: c::PredictionKind| {
            let kind = match kind {
                c::PredictionKind::CONFIGURATION => PredictionKind::Configuration,
                _ => PredictionKind::Engine,
            };
            prediction::of(self, engine, kind, metric).ok()
        };
        let device = Buffer::new(&device::properties(self.stream()).to_bytes());
        let question = Question { candidates, graph, device: &device, metric: metric.name(), predict: &predict };
        // SAFETY: the plugin gave the handle, which this owner destroys.
        let ranked = unsafe { plugin.rank(*handle, policy, &question) };
        ranked.map_err(|reason| format!("plugin {}: {reason}", plugin.name))
    }

    /// True if the engine takes the graph.
    pub(crate) fn is_applicable(&self, engine: i64, graph: &Buffer, needs: Needs) -> Result<bool> {
        let Ok((plugin, handle)) = self.of_engine(engine) else { return Ok(false) };
        if plugin.api_version < needs.api_version || (needs.overrides && !plugin.has_overrides()) {
            return Ok(false);
        }
        Ok(applicable_of(plugin, handle, graph)?.contains(&engine))
    }

    /// Details of the engine for the graph.
    pub(crate) fn details(&self, engine: i64, graph: &Buffer) -> Result<EngineDetails> {
        let (plugin, handle) = self.of_engine(engine)?;
        let mut out = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: the plugin made the handle; the graph and the result are valid for the call.
        let status = unsafe { (plugin.api.get_engine_details)(handle, engine, &data(graph.bytes()), &mut out) };
        plugin.check("hipdnnEnginePluginGetEngineDetails", status)?;
        if out.ptr.is_null() || out.size == 0 {
            return Err(Error::plugin(format!("plugin {}: no details of engine {engine}", plugin.name)));
        }
        // SAFETY: the plugin gave `size` bytes there, which it keeps until they are handed back below.
        let bytes = Buffer::new(unsafe { std::slice::from_raw_parts(out.ptr.cast(), out.size) });
        // SAFETY: the details that this handle lent just now, which nothing refers to any more: they were copied.
        let status = unsafe { (plugin.api.destroy_engine_details)(handle, &mut out) };
        if let Err(error) = plugin.check("hipdnnEnginePluginDestroyEngineDetails", status) {
            log::error!("{error}");
        }
        EngineDetails::from_bytes(bytes.bytes())
            .map_err(|error| Error::plugin(format!("plugin {}: details of engine {engine}: {error}", plugin.name)))
    }

    /// The workspace that a configuration may need, in bytes.
    pub(crate) fn workspace_size(&self, engine: i64, config: &Buffer, graph: &Buffer) -> Result<i64> {
        let (plugin, handle) = self.of_engine(engine)?;
        let mut size = 0usize;
        // SAFETY: the plugin made the handle; the buffers and the result are valid for the call.
        let status =
            unsafe { (plugin.api.get_workspace_size)(handle, &data(config.bytes()), &data(graph.bytes()), &mut size) };
        plugin.check("hipdnnEnginePluginGetWorkspaceSize", status)?;
        workspace(plugin, size)
    }

    /// Builds a plan.
    pub(crate) fn create_context(self: &Arc<Self>, engine: i64, config: &Buffer, graph: &Buffer) -> Result<Context> {
        const FUNCTION: &str = "hipdnnEnginePluginCreateExecutionContext";
        let (plugin, handle) = self.of_engine(engine)?;
        let mut context: ExecutionContextPtr = std::ptr::null_mut();
        // SAFETY: the plugin made the handle; the buffers and the result are valid for the call.
        let status = unsafe {
            (plugin.api.create_execution_context)(handle, &data(config.bytes()), &data(graph.bytes()), &mut context)
        };
        plugin.check(FUNCTION, status)?;
        Context::own(self, engine, context, FUNCTION)
    }

    /// Restores a plan from the bytes of [`Context::serialize`].
    pub(crate) fn restore_context(self: &Arc<Self>, engine: i64, payload: &Buffer) -> Result<Context> {
        const FUNCTION: &str = "hipdnnEnginePluginCreateExecutionContextFromSerialized";
        let (plugin, handle) = self.of_engine(engine)?;
        let restore = plugin.api.create_context_from_serialized.filter(|_| plugin.has_serialization());
        let restore =
            restore.ok_or_else(|| Error::not_supported(format!("plugin {} cannot restore plans", plugin.name)))?;
        let mut context: ExecutionContextPtr = std::ptr::null_mut();
        // SAFETY: the plugin made the handle; the payload and the result are valid for the call.
        let status = unsafe { restore(handle, &data(payload.bytes()), &mut context) };
        plugin.check(FUNCTION, status)?;
        Context::own(self, engine, context, FUNCTION)
    }

    /// Runs a plan, on the stream of this handle.
    ///
    /// # Safety
    /// The pointers are what the plan's engine expects of its caller: tensors with memory as the graph says, and a
    /// workspace of the plan's size.
    pub(crate) unsafe fn execute(
        &self,
        context: &Context,
        workspace: *mut c_void,
        buffers: &[DeviceBuffer],
        overrides: Option<&Overrides>,
    ) -> Result<()> {
        let (plugin, handle) = if Arc::ptr_eq(&self.set, &context.resources.set) {
            (&self.set.plugins[context.plugin], self.handles[context.plugin])
        } else {
            self.of_engine(context.engine)?
        };
        // Another load of the same file has the same code; another file knows nothing of this context.
        if handle.is_null() || !std::ptr::fn_addr_eq(plugin.api.execute, context.plugin().api.execute) {
            return Err(Error::bad_param(format!(
                "the plan of engine {} was made by a plugin that this handle does not have",
                context.engine
            )));
        }
        let count = u32::try_from(buffers.len()).map_err(|_| {
            Error::bad_param(format!("expected at most {} data pointers, got {}", u32::MAX, buffers.len()))
        })?;
        let Some(overrides) = overrides else {
            // SAFETY: handle and context are the plugin's; the buffers are valid for the call; the rest is the caller's
            // duty.
            let status = unsafe { (plugin.api.execute)(handle, context.context, workspace, buffers.as_ptr(), count) };
            return plugin.check("hipdnnEnginePluginExecuteOpGraph", status);
        };
        let execute = plugin.api.execute_with_overrides.ok_or_else(|| {
            Error::not_supported(format!("plugin {} cannot execute with overridden shapes", plugin.name))
        })?;
        let rows = |flat: &'_ [i64]| -> Vec<*const i64> {
            let mut rest = flat;
            let lengths = overrides.lengths.iter().map(|&length| length as usize);
            lengths
                .map(|length| {
                    let (row, after) = rest.split_at(length);
                    rest = after;
                    row.as_ptr()
                })
                .collect()
        };
        let (shapes, strides) = (rows(&overrides.shapes), rows(&overrides.strides));
        // SAFETY: handle and context are the plugin's; the buffers are valid for the call, each of the lists has one
        // entry for each override, each row as many as its length says; the rest is the caller's duty.
        let status = unsafe {
            execute(
                handle,
                context.context,
                workspace,
                buffers.as_ptr(),
                count,
                overrides.uids.len() as u32,
                overrides.uids.as_ptr(),
                overrides.lengths.as_ptr(),
                shapes.as_ptr(),
                strides.as_ptr(),
            )
        };
        plugin.check("hipdnnEnginePluginExecuteOpGraphWithOverrides", status)
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        for (plugin, handle) in self.set.heuristics.iter().zip(&self.heuristics).filter(|(_, handle)| !handle.is_null())
        {
            // SAFETY: the plugin gave the handle; policies are gone when their question is answered.
            unsafe { plugin.destroy(*handle) };
        }
        for (plugin, handle) in self.plugins() {
            // SAFETY: the plugin made the handle, and all that it made for it holds us, so is gone.
            let status = unsafe { (plugin.api.destroy)(handle) };
            if let Err(error) = plugin.check("hipdnnEnginePluginDestroy", status) {
                log::error!("{error}");
            }
        }
    }
}

/// Requirements of a graph on a plugin, checked before the plugin is asked about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) api_version: EngineApiVersion,
    pub(crate) overrides: bool,
}

fn applicable_of(plugin: &Plugin, handle: PluginHandlePtr, graph: &Buffer) -> Result<Vec<i64>> {
    const FUNCTION: &str = "hipdnnEnginePluginGetApplicableEngineIds";
    let mut ids = vec![0; plugin.offered as usize];
    let mut count = 0;
    // SAFETY: the plugin made the handle; there is room for `offered` ids, and all are valid for the call.
    let status = unsafe {
        (plugin.api.get_applicable_engine_ids)(
            handle,
            &data(graph.bytes()),
            ids.as_mut_ptr(),
            plugin.offered,
            &mut count,
        )
    };
    plugin.check(FUNCTION, status)?;
    if count > plugin.offered {
        let (name, most) = (&plugin.name, plugin.offered);
        return Err(Error::plugin(format!("plugin {name}: {FUNCTION} has room for {most} engines, gave {count}")));
    }
    ids.truncate(count as usize);
    ids.sort_unstable();
    let mut seen = HashSet::new();
    if let Some(id) = ids.iter().find(|id| !seen.insert(**id)) {
        return Err(Error::plugin(format!("plugin {}: {FUNCTION} gave engine {id} twice", plugin.name)));
    }
    ids.retain(|id| {
        let admitted = plugin.engines.iter().any(|engine| engine.id == *id);
        if !admitted {
            log::info!("plugin {} offers engine {id}, which was not admitted", plugin.name);
        }
        admitted
    });
    Ok(ids)
}

fn workspace(plugin: &Plugin, size: usize) -> Result<i64> {
    i64::try_from(size).map_err(|_| Error::internal(format!("plugin {}: a workspace of {size} bytes", plugin.name)))
}

/// A plan that a plugin has built.
pub(crate) struct Context {
    resources: Arc<Resources>,
    plugin: usize,
    pub(crate) engine: i64,
    context: ExecutionContextPtr,
}

// SAFETY: the plugin ABI ties a context to no thread; clients owe one call at a time, see `Resources`.
unsafe impl Send for Context {}
// SAFETY: nothing in it changes through a shared reference; clients owe the plugin's context one call at a time.
unsafe impl Sync for Context {}

impl Context {
    fn own(resources: &Arc<Resources>, engine: i64, context: ExecutionContextPtr, function: &str) -> Result<Context> {
        let plugin = resources.set.owner[&engine];
        if context.is_null() {
            let name = &resources.set.plugins[plugin].name;
            return Err(Error::plugin(format!("plugin {name}: {function} gave no context")));
        }
        Ok(Context { resources: Arc::clone(resources), plugin, engine, context })
    }

    pub(crate) fn plugin(&self) -> &Plugin {
        &self.resources.set.plugins[self.plugin]
    }

    fn handle(&self) -> PluginHandlePtr {
        self.resources.handles[self.plugin]
    }

    /// The workspace that the plan needs, in bytes.
    pub(crate) fn workspace_size(&self) -> Result<i64> {
        let mut size = 0usize;
        // SAFETY: handle and context are the plugin's; the result is valid for the call.
        let status = unsafe { (self.plugin().api.get_context_workspace_size)(self.handle(), self.context, &mut size) };
        self.plugin().check("hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext", status)?;
        workspace(self.plugin(), size)
    }

    /// The plan in a form that only the plugin understands.
    pub(crate) fn serialize(&self) -> Result<Vec<u8>> {
        const FUNCTION: &str = "hipdnnEnginePluginSerializeExecutionContext";
        let plugin = self.plugin();
        let (Some(serialize), Some(destroy), true) =
            (plugin.api.serialize_context, plugin.api.destroy_serialized_context, plugin.has_serialization())
        else {
            return Err(Error::not_supported(format!("plugin {} cannot serialize plans", plugin.name)));
        };
        let mut out = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: handle and context are the plugin's; the result is valid for the call.
        let status = unsafe { serialize(self.handle(), self.context, &mut out) };
        plugin.check(FUNCTION, status)?;
        if out.ptr.is_null() || out.size == 0 {
            return Err(Error::plugin(format!("plugin {}: {FUNCTION} gave nothing", plugin.name)));
        }
        // SAFETY: the plugin gave `size` bytes there, which it keeps until they are handed back below.
        let bytes = unsafe { std::slice::from_raw_parts(out.ptr.cast::<u8>(), out.size) }.to_vec();
        // SAFETY: the plan that this handle stored just now, which nothing refers to any more: it was copied.
        let status = unsafe { destroy(self.handle(), &mut out) };
        if let Err(error) = plugin.check("hipdnnEnginePluginDestroySerializedExecutionContext", status) {
            log::error!("{error}");
        }
        Ok(bytes)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: handle and context are the plugin's, and this was the context's only owner.
        let status = unsafe { (self.plugin().api.destroy_execution_context)(self.handle(), self.context) };
        if let Err(error) = self.plugin().check("hipdnnEnginePluginDestroyExecutionContext", status) {
            log::error!("{error}");
        }
    }
}
