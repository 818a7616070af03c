//! Heuristics plugins: libraries with policies that rank engines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;

use hipdnn_sdk_bindings::hipdnn::heuristics::{
    GetAllPolicyIds, GetPolicyName, HOST_CALLBACKS_VERSION, HandleCreate, HandleDestroy, HandleSetDeviceProperties,
    HeuristicHandlePtr, HostCallbacks, MAJOR_VERSION, PolicyDescriptorCreate, PolicyDescriptorDestroy,
    PolicyDescriptorPtr, PolicyFinalize, PolicyFinalizeWithHost, PolicyGetEngineConfig, PolicyGetSortedEngineIds,
    PolicySetEngineIds, PolicySetSerializedGraph, PredictionKind,
};
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, GetLastErrorString, GetText, GetType, PluginStatus, PluginType, SetLogLevel, SetLoggingCallback,
    Severity,
};
use hipdnn_sdk_bindings::library::{Library, LibraryError};

use super::api::plugin_api;
use super::loaded::{check, expect_type, pass_log_level, plugin_log, shown, text, version_of};
use crate::buffer::Buffer;
use crate::log;
use crate::names;

plugin_api! {
    /// The functions of one heuristics plugin, good as long as the library they came from is open.
    struct Api;
    required {
        get_name: GetText = "PluginGetName",
        get_version: GetText = "PluginGetVersion",
        get_api_version: GetText = "PluginGetApiVersion",
        get_type: GetType = "PluginGetType",
        set_logging_callback: SetLoggingCallback = "PluginSetLoggingCallback",
        get_last_error_string: GetLastErrorString = "PluginGetLastErrorString",
        get_all_policy_ids: GetAllPolicyIds = "HeuristicPluginGetAllPolicyIds",
        get_policy_name: GetPolicyName = "HeuristicPluginGetPolicyName",
        handle_create: HandleCreate = "HeuristicHandleCreate",
        handle_destroy: HandleDestroy = "HeuristicHandleDestroy",
        set_device_properties: HandleSetDeviceProperties = "HeuristicHandleSetDeviceProperties",
        policy_create: PolicyDescriptorCreate = "HeuristicPolicyDescriptorCreate",
        policy_destroy: PolicyDescriptorDestroy = "HeuristicPolicyDescriptorDestroy",
        set_engine_ids: PolicySetEngineIds = "HeuristicPolicySetEngineIds",
        set_serialized_graph: PolicySetSerializedGraph = "HeuristicPolicySetSerializedGraph",
        finalize: PolicyFinalize = "HeuristicPolicyFinalize",
        get_sorted_engine_ids: PolicyGetSortedEngineIds = "HeuristicPolicyGetSortedEngineIds",
    }
    optional {
        set_log_level: SetLogLevel = "PluginSetLogLevel",
        finalize_with_host: PolicyFinalizeWithHost = "HeuristicPolicyFinalizeWithHost",
        get_engine_config: PolicyGetEngineConfig = "HeuristicPolicyGetEngineConfig",
    }
}

/// A policy that a plugin offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) id: i64,
    pub(crate) name: String,
}

/// A loaded plugin. Dropping it unloads it.
pub(crate) struct HeuristicPlugin {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) api_version: String,
    /// Ascending by id.
    pub(crate) policies: Vec<Policy>,
    api: Api,
    // Last: the pointers above lead into it.
    _library: Library,
}

/// Maximum number of policies of one plugin: more are a wrong count.
const MAX_POLICIES: u32 = 1 << 10;

impl HeuristicPlugin {
    /// Loads a plugin, all of whose policies have to be new: `taken` has the ids of the others with their plugins' names.
    pub(crate) fn load(path: &Path, taken: &mut HashMap<i64, String>) -> Result<HeuristicPlugin, String> {
        // SAFETY: plugins are code that the user installed or named for loading into this process.
        let library = unsafe { Library::open("heuristics plugin", [path]) }.map_err(|error| error.to_string())?;
        let api = Api::resolve(&library).map_err(|error| format!("Failed to get symbol: {error}"))?;
        let last_error = api.get_last_error_string;
        expect_type(last_error, api.get_type, PluginType::HEURISTIC, "HEURISTIC")?;
        let name = text(last_error, "hipdnnPluginGetName", api.get_name)?;
        if name.is_empty() {
            return Err("expected a plugin with a name, got an empty one".to_owned());
        }
        let version = text(last_error, "hipdnnPluginGetVersion", api.get_version)?;
        // SAFETY: the callback lives as long as this library, which unloads plugins before it goes.
        unsafe { (api.set_logging_callback)(Some(plugin_log)) };
        if let Some(set_log_level) = api.set_log_level {
            // SAFETY: takes a number.
            unsafe { set_log_level(log::level()) };
        }
        let api_version = text(last_error, "hipdnnPluginGetApiVersion", api.get_api_version)?;
        let parsed = version_of(&api_version)?;
        if parsed.major != MAJOR_VERSION {
            return Err(format!(
                "its API version {} does not match expected heuristic API major version {MAJOR_VERSION}",
                shown(parsed)
            ));
        }
        let policies = policies(&api)?;
        if let Some((policy, owner)) = policies.iter().find_map(|policy| Some((policy, taken.get(&policy.id)?))) {
            return Err(format!("policy {:?} is {owner}'s already", policy.name));
        }
        taken.extend(policies.iter().map(|policy| (policy.id, name.clone())));
        Ok(HeuristicPlugin { name, version, api_version, policies, api, _library: library })
    }

    fn check(&self, function: &str, status: PluginStatus) -> Result<(), String> {
        check(self.api.get_last_error_string, function, status)
    }

    /// Passes the log level on.
    pub(crate) fn set_log_level(&self, level: Severity) {
        pass_log_level(&self.name, self.api.set_log_level, level);
    }

    /// The plugin's handle for a new handle of hipDNN.
    pub(super) fn handle(&self) -> Result<HeuristicHandlePtr, String> {
        const FUNCTION: &str = "hipdnnHeuristicHandleCreate";
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (self.api.handle_create)(&mut handle) };
        self.check(FUNCTION, status)?;
        if handle.is_null() { Err(format!("{FUNCTION} gave no handle")) } else { Ok(handle) }
    }

    /// # Safety
    /// The handle is one of [`HeuristicPlugin::handle`], and nothing uses it any more.
    pub(super) unsafe fn destroy(&self, handle: HeuristicHandlePtr) {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.api.handle_destroy)(handle) };
        if let Err(reason) = self.check("hipdnnHeuristicHandleDestroy", status) {
            log::error!("plugin {}: {reason}", self.name);
        }
    }

    /// Has a policy rank engines, the best first; `None` if it declines.
    ///
    /// # Safety
    /// The handle is one of [`HeuristicPlugin::handle`].
    pub(super) unsafe fn rank(
        &self,
        handle: HeuristicHandlePtr,
        policy: i64,
        question: &Question<'_>,
    ) -> Result<Option<Vec<Placed>>, String> {
        let properties = data(question.device);
        // SAFETY: the plugin made the handle; the bytes are valid for the call.
        let status = unsafe { (self.api.set_device_properties)(handle, &properties) };
        self.check("hipdnnHeuristicHandleSetDeviceProperties", status)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the plugin made the handle and names the policy; the pointer is valid for the call.
        let status = unsafe { (self.api.policy_create)(handle, policy, &mut raw) };
        self.check("hipdnnHeuristicPolicyDescriptorCreate", status)?;
        if raw.is_null() {
            return Err("hipdnnHeuristicPolicyDescriptorCreate gave no policy".to_owned());
        }
        Asked { plugin: self, raw }.rank(question)
    }
}

/// An engine in its place in a policy's answer.
pub(crate) struct Placed {
    pub(crate) engine: i64,
    /// The configuration that was ranked, serialized, if the policy gives one.
    pub(crate) config: Option<Buffer>,
}

/// Request of a ranking.
pub(super) struct Question<'a> {
    /// The engines that take the graph.
    pub(super) candidates: &'a [i64],
    pub(super) graph: &'a Buffer,
    /// Device properties, serialized.
    pub(super) device: &'a Buffer,
    /// Name of the metric by which to rank.
    pub(super) metric: &'a str,
    /// Answers what a policy asks about the speed of a candidate.
    pub(super) predict: &'a dyn Fn(i64, PredictionKind) -> Option<Buffer>,
}

/// A policy's descriptor.
struct Asked<'p> {
    plugin: &'p HeuristicPlugin,
    raw: PolicyDescriptorPtr,
}

impl Asked<'_> {
    fn rank(self, question: &Question<'_>) -> Result<Option<Vec<Placed>>, String> {
        let (plugin, api) = (self.plugin, &self.plugin.api);
        // SAFETY: the plugin made the descriptor; there are as many ids as are said.
        let status = unsafe { (api.set_engine_ids)(self.raw, question.candidates.as_ptr(), question.candidates.len()) };
        plugin.check("hipdnnHeuristicPolicySetEngineIds", status)?;
        let graph = data(question.graph);
        // SAFETY: the plugin made the descriptor; the bytes are valid for the call.
        let status = unsafe { (api.set_serialized_graph)(self.raw, &graph) };
        plugin.check("hipdnnHeuristicPolicySetSerializedGraph", status)?;
        if !self.finalize(question)? {
            return Ok(None);
        }
        let ids = self.sorted(question.candidates)?;
        let placed = ids.into_iter().map(|engine| Ok(Placed { engine, config: self.config(engine)? }));
        placed.collect::<Result<_, String>>().map(Some)
    }

    /// True if the policy ranks.
    fn finalize(&self, question: &Question<'_>) -> Result<bool, String> {
        let api = &self.plugin.api;
        let mut applied = 0;
        let Some(finalize) = api.finalize_with_host else {
            // SAFETY: the plugin made the descriptor; the place is valid for the call.
            let status = unsafe { (api.finalize)(self.raw, &mut applied) };
            self.plugin.check("hipdnnHeuristicPolicyFinalize", status)?;
            return Ok(applied != 0);
        };
        let lent = Lent { question, given: RefCell::default() };
        let metric = CString::new(question.metric).map_err(|error| error.to_string())?;
        let host = HostCallbacks {
            version: HOST_CALLBACKS_VERSION,
            struct_size: size_of::<HostCallbacks>(),
            context: (&raw const lent).cast_mut().cast(),
            get_prediction: Some(get_prediction),
            ranking_metric: metric.as_ptr(),
        };
        // SAFETY: the plugin made the descriptor; the table, what it leads to and the place are valid for the call.
        let status = unsafe { finalize(self.raw, &host, &mut applied) };
        self.plugin.check("hipdnnHeuristicPolicyFinalizeWithHost", status)?;
        Ok(applied != 0)
    }

    /// The engines in the policy's order: some of the candidates, each once.
    fn sorted(&self, candidates: &[i64]) -> Result<Vec<i64>, String> {
        const FUNCTION: &str = "hipdnnHeuristicPolicyGetSortedEngineIds";
        let (plugin, get) = (self.plugin, self.plugin.api.get_sorted_engine_ids);
        let mut count = 0;
        // SAFETY: the plugin made the descriptor; no ids are asked for, and the count is valid for the call.
        let status = unsafe { get(self.raw, std::ptr::null_mut(), &mut count) };
        plugin.check(FUNCTION, status)?;
        if count > candidates.len() {
            return Err(format!("{FUNCTION}: expected at most {} engines, got {count}", candidates.len()));
        }
        let mut ids = vec![0; count];
        let mut written = count;
        if count > 0 {
            // SAFETY: the plugin made the descriptor; there is room for `count` ids.
            let status = unsafe { get(self.raw, ids.as_mut_ptr(), &mut written) };
            plugin.check(FUNCTION, status)?;
        }
        if written > count {
            return Err(format!("{FUNCTION}: expected at most {count} engines, got {written}"));
        }
        ids.truncate(written);
        for (index, id) in ids.iter().enumerate() {
            if !candidates.contains(id) {
                return Err(format!("{FUNCTION}: engine {} is no candidate", names::hexadecimal(*id)));
            }
            if ids[..index].contains(id) {
                return Err(format!("{FUNCTION}: engine {} is there twice", names::hexadecimal(*id)));
            }
        }
        Ok(ids)
    }

    /// A copy of the configuration that the policy has ranked for the engine, if it has.
    fn config(&self, engine: i64) -> Result<Option<Buffer>, String> {
        const FUNCTION: &str = "hipdnnHeuristicPolicyGetEngineConfig";
        let Some(get) = self.plugin.api.get_engine_config else { return Ok(None) };
        let mut config = ConstData { ptr: std::ptr::null(), size: 0 };
        // SAFETY: the plugin made the descriptor; the place is valid for the call.
        let status = unsafe { get(self.raw, engine, &mut config) };
        if status == PluginStatus::NOT_APPLICABLE {
            return Ok(None);
        }
        self.plugin.check(FUNCTION, status)?;
        if config.ptr.is_null() || config.size == 0 {
            return Err(format!("{FUNCTION} gave nothing"));
        }
        // SAFETY: the plugin gave `size` bytes there, which its policy keeps until the next call.
        Ok(Some(Buffer::new(unsafe { std::slice::from_raw_parts(config.ptr.cast::<u8>(), config.size) })))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // SAFETY: the plugin made the descriptor, and this was its only owner.
        let status = unsafe { (self.plugin.api.policy_destroy)(self.raw) };
        if let Err(reason) = self.plugin.check("hipdnnHeuristicPolicyDescriptorDestroy", status) {
            log::error!("plugin {}: {reason}", self.plugin.name);
        }
    }
}

/// Context of the host callbacks while a policy is finalized.
struct Lent<'a> {
    question: &'a Question<'a>,
    /// Answers whose addresses the policy has.
    given: RefCell<Vec<Buffer>>,
}

/// `hipdnnHeuristicHostCallbacks_t::get_prediction`
unsafe extern "C" fn get_prediction(
    context: *mut c_void,
    engine: i64,
    kind: PredictionKind,
    prediction: *mut ConstData,
) -> PluginStatus {
    if context.is_null() || prediction.is_null() {
        return PluginStatus::BAD_PARAM;
    }
    // SAFETY: the context is what `Asked::finalize` passed, which lives until the policy's call returns; policies call on
    // the thread of that call.
    let lent = unsafe { &*context.cast_const().cast::<Lent<'_>>() };
    // SAFETY: the policy's place for an answer.
    unsafe { prediction.write(ConstData { ptr: std::ptr::null(), size: 0 }) };
    if !PredictionKind::ALL.contains(&kind) || !lent.question.candidates.contains(&engine) {
        return PluginStatus::BAD_PARAM;
    }
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (lent.question.predict)(engine, kind)));
    let Ok(Some(answer)) = answer else { return PluginStatus::INTERNAL_ERROR };
    // SAFETY: the policy's place for an answer, which was not null; the answer's bytes stay where they are when it is moved.
    unsafe { prediction.write(data(&answer)) };
    lent.given.borrow_mut().push(answer);
    PluginStatus::SUCCESS
}

fn data(buffer: &Buffer) -> ConstData {
    ConstData { ptr: buffer.bytes().as_ptr().cast(), size: buffer.bytes().len() }
}

fn policies(api: &Api) -> Result<Vec<Policy>, String> {
    const FUNCTION: &str = "hipdnnHeuristicPluginGetAllPolicyIds";
    let last_error = api.get_last_error_string;
    let mut count = 0;
    // SAFETY: no ids are asked for; the count is valid for the call.
    let status = unsafe { (api.get_all_policy_ids)(std::ptr::null_mut(), 0, &mut count) };
    check(last_error, FUNCTION, status)?;
    if !(1..=MAX_POLICIES).contains(&count) {
        return Err(format!("expected 1 to {MAX_POLICIES} policies, got {count}"));
    }
    let mut ids = vec![0; count as usize];
    let mut written = count;
    // SAFETY: there is room for `count` ids.
    let status = unsafe { (api.get_all_policy_ids)(ids.as_mut_ptr(), count, &mut written) };
    check(last_error, FUNCTION, status)?;
    if written != count {
        return Err(format!("{FUNCTION} counted {count} policies, then gave {written}"));
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("policy id {} is given twice", names::hexadecimal(pair[0])));
    }
    let named = |id: i64| {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (api.get_policy_name)(id, &mut name) };
        check(last_error, "hipdnnHeuristicPluginGetPolicyName", status)?;
        if name.is_null() {
            return Err(format!("policy {} has no name", names::hexadecimal(id)));
        }
        // SAFETY: the plugin's texts end in a NUL and live as long as it is loaded.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let wanted = names::id_of(&name);
        if wanted != id || name.is_empty() {
            let (wanted, got) = (names::hexadecimal(wanted), names::hexadecimal(id));
            return Err(format!("policy {name:?}: expected id {wanted}, its name's hash, got {got}"));
        }
        Ok(Policy { id, name })
    };
    ids.into_iter().map(named).collect()
}
