//! Data from outside through the engine plugin's ABI.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use hipdnn_schemas::{EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, DeviceBuffer, ExecutionContextPtr, PluginHandlePtr, PluginStatus, engine_id,
};

use crate::api::PluginApi;
use crate::guarded::{Guarded, Place};
use crate::random::Random;
use crate::run::{Memory, Prepared};
use crate::stages::Stages;

/// A plugin handle with the memory to run graphs in.
pub(crate) struct ThroughPlugin {
    api: PluginApi,
    handle: PluginHandlePtr,
    engine_id: i64,
    memory: Memory,
    graph: Guarded,
    config: Guarded,
}

impl ThroughPlugin {
    pub(crate) fn new(api: PluginApi) -> ThroughPlugin {
        let (mut ids, mut count, mut handle) = ([0i64; 8], 0, null_mut());
        // SAFETY: the array has as many places as we say, and the other pointers are valid for the calls.
        let (listed, created) =
            unsafe { ((api.get_all_engine_ids)(ids.as_mut_ptr(), 8, &mut count), (api.create)(&mut handle)) };
        assert_eq!((listed, created), (PluginStatus::SUCCESS, PluginStatus::SUCCESS));
        assert!(count > 0 && !handle.is_null());
        // The CPU engine is the one that its name says; others come with a device.
        let host = engine_id("HIPDNN_RS_CPU_ENGINE");
        assert!(ids[..count as usize].contains(&host), "the plugin has the CPU engine");
        let guarded = || Guarded::new(1 << 20);
        ThroughPlugin { api, handle, engine_id: host, memory: Memory::new(), graph: guarded(), config: guarded() }
    }

    pub(crate) fn engine_id(&self) -> i64 {
        self.engine_id
    }

    /// The calling thread's error text; an error without one is a fault of its own.
    fn error(&self) -> String {
        let mut text = null();
        // SAFETY: `text` is valid for the call, and the text is copied before the next one.
        unsafe {
            (self.api.get_last_error_string)(&mut text);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }

    /// Takes a graph through every function that sees it. `config` is a configuration for it, or bytes that look like
    /// one; `config_is_right` says that an engine must take it.
    pub(crate) fn graph(
        &mut self,
        random: &mut Random,
        graph_bytes: &[u8],
        config_bytes: &[u8],
        config_is_right: bool,
        stages: &mut Stages,
    ) -> Result<(), String> {
        // Bytes end at a guard page, at any alignment: hosts do not promise one.
        let graph_put = self.graph.put(graph_bytes.len(), Place::Back(1), graph_bytes);
        let graph_data = ConstData { ptr: self.graph.address(graph_put), size: graph_bytes.len() };
        let config_put = self.config.put(config_bytes.len(), Place::Back(1), config_bytes);
        let config_data = ConstData { ptr: self.config.address(config_put), size: config_bytes.len() };
        let graph = Graph::from_bytes(graph_bytes);
        stages.reach("plugin: graph given");
        if graph.is_ok() {
            stages.reach("plugin: graph is right");
        }

        let claimed = self.is_claimed(&graph_data, graph.is_ok())?;
        if self.is_claimed(&graph_data, graph.is_ok())? != claimed {
            return Err("two answers about the same graph".into());
        }
        if !claimed {
            // Whatever else is asked of a graph that is not claimed, the answer is a status.
            self.refused(&graph_data, &config_data)?;
            return Ok(());
        }
        let graph = graph.map_err(|error| format!("a wrong graph is claimed: {error}"))?;
        stages.reach("plugin: graph is claimed");

        let details = self.details(&graph_data)?;
        stages.reach("plugin: details");
        if !details.knobs.iter().any(|knob| knob.id == "hipdnn_rs.constants") {
            return Err("the details lack a knob".into());
        }

        let Some((context, workspace_bytes)) = self.context(&graph_data, &config_data, config_is_right, &graph)? else {
            stages.reach("plugin: configuration refused");
            return Ok(());
        };
        stages.reach("plugin: context");
        // A context that still looked at these would show it from here on.
        self.graph.content(graph_put).fill(0xee);
        self.config.content(config_put).fill(0xee);

        let prepared = self.memory.prepare(random, &graph, workspace_bytes, true);
        let result = match prepared {
            Some(prepared) => self.execute(random, context, &prepared, stages),
            None => Ok(()),
        };
        // SAFETY: the context is of this handle and not used again.
        let destroyed = unsafe { (self.api.destroy_execution_context)(self.handle, context) };
        result?;
        if destroyed != PluginStatus::SUCCESS {
            return Err(format!("destroying the context: {destroyed}: {}", self.error()));
        }
        Ok(())
    }

    fn is_claimed(&self, graph: &ConstData, is_right: bool) -> Result<bool, String> {
        let (mut ids, mut count) = ([i64::MIN; 8], u32::MAX);
        // SAFETY: the handle is alive, the graph's bytes are readable, and the array has as many places as we say.
        let status =
            unsafe { (self.api.get_applicable_engine_ids)(self.handle, graph, ids.as_mut_ptr(), 8, &mut count) };
        if status != PluginStatus::SUCCESS {
            // Hosts abort the query of all plugins then: only bytes that are no graph may do that.
            return if is_right { Err(format!("a right graph fails: {status}: {}", self.error())) } else { Ok(false) };
        }
        if count > 8 || ids[count as usize..].iter().any(|id| *id != i64::MIN) {
            return Err(format!("{count} engines of 8, or more ids written than counted"));
        }
        Ok(ids[..count as usize].contains(&self.engine_id))
    }

    fn refused(&self, graph: &ConstData, config: &ConstData) -> Result<(), String> {
        let mut details = ConstData { ptr: null(), size: 0 };
        let mut context = null_mut();
        let mut bytes = 0;
        // SAFETY: the handle is alive, the bytes are readable, and the out-pointers are valid for the calls.
        unsafe {
            let status = (self.api.get_engine_details)(self.handle, self.engine_id, graph, &mut details);
            if status == PluginStatus::SUCCESS {
                let status = (self.api.destroy_engine_details)(self.handle, &mut details);
                if status != PluginStatus::SUCCESS {
                    return Err(format!("destroying details: {status}"));
                }
            } else if self.error().is_empty() {
                return Err(format!("details: {status} without a text"));
            }
            let status = (self.api.get_workspace_size)(self.handle, config, graph, &mut bytes);
            if status == PluginStatus::SUCCESS || self.error().is_empty() {
                return Err(format!("workspace size of a graph that is not claimed: {status}"));
            }
            let status = (self.api.create_execution_context)(self.handle, config, graph, &mut context);
            if status == PluginStatus::SUCCESS || !context.is_null() || self.error().is_empty() {
                return Err(format!("context of a graph that is not claimed: {status}, {context:?}"));
            }
        }
        Ok(())
    }

    fn details(&self, graph: &ConstData) -> Result<EngineDetails, String> {
        let mut data = ConstData { ptr: null(), size: 0 };
        // SAFETY: the handle is alive, the graph's bytes are readable, `data` is valid for the call.
        let status = unsafe { (self.api.get_engine_details)(self.handle, self.engine_id, graph, &mut data) };
        if status != PluginStatus::SUCCESS || data.ptr.is_null() {
            return Err(format!("details of a claimed graph: {status}: {}", self.error()));
        }
        // SAFETY: the plugin says how many bytes there are, and keeps them until they are destroyed.
        let details = EngineDetails::from_bytes(unsafe { std::slice::from_raw_parts(data.ptr.cast(), data.size) });
        // SAFETY: the details are of this handle and not used again.
        let status = unsafe { (self.api.destroy_engine_details)(self.handle, &mut data) };
        if status != PluginStatus::SUCCESS {
            return Err(format!("destroying details: {status}"));
        }
        details.map_err(|error| error.to_string())
    }

    /// A context and its workspace; `None` if the configuration is refused, which only a wrong one may be.
    fn context(
        &self,
        graph: &ConstData,
        config: &ConstData,
        config_is_right: bool,
        typed: &Graph,
    ) -> Result<Option<(ExecutionContextPtr, usize)>, String> {
        let (mut most, mut bytes, mut context) = (usize::MAX, usize::MAX, null_mut());
        // SAFETY: the handle is alive, the bytes are readable, and the out-pointers are valid for the calls.
        let (sized, created) = unsafe {
            (
                (self.api.get_workspace_size)(self.handle, config, graph, &mut most),
                (self.api.create_execution_context)(self.handle, config, graph, &mut context),
            )
        };
        if created != PluginStatus::SUCCESS {
            let error = self.error();
            if !context.is_null() || error.is_empty() {
                return Err(format!("creating a context: {created}, {error:?}, {context:?}"));
            }
            // Memory may be short for graphs of this size.
            let is_large = typed.tensors().iter().map(|tensor| tensor.span_bytes()).sum::<usize>() > 1 << 28;
            if config_is_right && !(is_large && created == PluginStatus::ALLOC_FAILED) {
                return Err(format!("no context of a claimed graph with a right configuration: {created}: {error}"));
            }
            return Ok(None);
        }
        // SAFETY: the context is of this handle, `bytes` is valid for the call.
        let status = unsafe { (self.api.get_context_workspace_size)(self.handle, context, &mut bytes) };
        if sized != PluginStatus::SUCCESS || status != PluginStatus::SUCCESS || bytes > most || most > i64::MAX as usize
        {
            return Err(format!("workspace {sized} {most}, of the context {status} {bytes}"));
        }
        Ok(Some((context, bytes)))
    }

    fn execute(
        &mut self,
        random: &mut Random,
        context: ExecutionContextPtr,
        prepared: &Prepared,
        stages: &mut Stages,
    ) -> Result<(), String> {
        let mut pack: Vec<_> = prepared.pack.iter().map(|&(uid, ptr)| DeviceBuffer { uid, ptr }).collect();
        let mut workspace = prepared.workspace_address;
        let mut must_succeed = true;
        match random.below(12) {
            // Some tensor is missing, or its memory is.
            0 if !prepared.essential.is_empty() => {
                pack.swap_remove(prepared.essential[random.below(prepared.essential.len())]);
                must_succeed = false;
            }
            1 if !prepared.essential.is_empty() => {
                let at = prepared.essential[random.below(prepared.essential.len())];
                pack[at].ptr = null_mut();
                must_succeed = false;
            }
            2 if !workspace.is_null() => {
                workspace = null_mut();
                must_succeed = false;
            }
            3 => {
                pack.push(DeviceBuffer { uid: random.next() as i64, ptr: null_mut() });
                let last = pack.len() - 1;
                pack.swap(0, last);
            }
            _ => {}
        }
        // SAFETY: each buffer has the bytes its tensor spans, the workspace those it was asked to have, or they are
        // null, which the plugin must notice.
        let status = unsafe { (self.api.execute)(self.handle, context, workspace, pack.as_ptr(), pack.len() as u32) };
        self.memory.check(prepared)?;
        if must_succeed != (status == PluginStatus::SUCCESS) {
            return Err(format!("execute: expected success {must_succeed}, got {status}: {}", self.error()));
        }
        stages.reach(if must_succeed { "plugin: executed" } else { "plugin: execution refused" });
        Ok(())
    }
}

impl Drop for ThroughPlugin {
    fn drop(&mut self) {
        // SAFETY: the handle is alive, and all of its contexts and details are destroyed.
        let status = unsafe { (self.api.destroy)(self.handle) };
        assert_eq!(status, PluginStatus::SUCCESS, "destroying the handle");
    }
}
