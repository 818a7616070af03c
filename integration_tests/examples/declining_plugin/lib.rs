//! An engine plugin that declines by a rule, and leaves everything else to another plugin.
//!
//! It stands between a hipDNN backend and the plugin that `DECLINING_PLUGIN_BASE` names, whose handles, plans, engine names
//! and numbers are passed on as they are. `decliningPluginSetRule` says what is declined from then on ([`rule::Rule`]), which
//! a test may change at any time: between the making of a session and its runs, for one.

mod rule;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hipdnn_rs_integration_tests::plugin::Plugin;
use hipdnn_schemas::Graph;
use hipdnn_sdk_bindings::hipdnn::extension::Extension;
use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, DeviceBuffer, ExecutionContextPtr, LogCallback, PluginHandlePtr, PluginStatus, PluginType, Severity,
    StreamPtr,
};
use rule::{Rule, Stage};

/// Names the plugin that does the work.
const BASE: &str = "DECLINING_PLUGIN_BASE";

/// The rule, and what came of it since it was set.
#[derive(Default)]
struct State {
    rule: Rule,
    /// Reasons for declining graphs, by their bytes: an engine does not change its mind.
    answers: HashMap<Vec<u8>, Option<String>>,
    declined: u64,
    /// Plans that fail when they are executed, with the reason.
    failing: HashMap<usize, String>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Plans that were built and not destroyed.
static PLANS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The reason of the thread's last call, if it was declined here.
    static REASON: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin that does the work.
fn base() -> &'static Arc<Plugin> {
    static OPEN: OnceLock<Arc<Plugin>> = OnceLock::new();
    OPEN.get_or_init(|| {
        let path = std::env::var_os(BASE).unwrap_or_else(|| panic!("{BASE} names no plugin"));
        Plugin::open(Path::new(&path))
    })
}

/// Runs a call; a panic becomes a status.
fn guard(body: impl FnOnce() -> PluginStatus) -> PluginStatus {
    REASON.with_borrow_mut(|reason| *reason = None);
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(PluginStatus::INTERNAL_ERROR)
}

fn declined(reason: &str) -> PluginStatus {
    let text = CString::new(format!("declining_plugin: {reason}")).unwrap_or_default();
    REASON.with_borrow_mut(|reason| *reason = Some(text));
    PluginStatus::NOT_APPLICABLE
}

/// Reason for declining a graph at `stage`; `None` if it is not declined.
///
/// # Safety
/// `graph` is null or has readable bytes.
unsafe fn refusal(graph: *const ConstData, stage: Stage) -> Option<String> {
    if graph.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let ConstData { ptr, size } = unsafe { *graph };
    if ptr.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), size) };
    let mut state = state();
    let state = state.get_or_insert_default();
    if state.rule.stage != stage {
        return None;
    }
    if let Some(answer) = state.answers.get(bytes) {
        return answer.clone();
    }
    let graph = Graph::from_bytes(bytes).ok()?;
    let answer = state.rule.declines(&graph, state.answers.len() as u64 + 1);
    state.declined += u64::from(answer.is_some());
    state.answers.insert(bytes.to_vec(), answer.clone());
    answer
}

/// Sets the rule; `INVALID_VALUE` if the text is none.
///
/// # Safety
/// `text` is null, which declines nothing, or a text that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn decliningPluginSetRule(text: *const c_char) -> PluginStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
        match Rule::parse(&text.to_string_lossy()) {
            Ok(rule) => {
                let mut state = state();
                let failing = state.take().map(|state| state.failing).unwrap_or_default();
                *state = Some(State { rule, failing, ..State::default() });
                PluginStatus::SUCCESS
            }
            Err(problem) => {
                declined(&problem);
                PluginStatus::INVALID_VALUE
            }
        }
    })
}

/// Number of graphs that were declined since the rule was set.
#[unsafe(no_mangle)]
pub extern "C" fn decliningPluginDeclined() -> u64 {
    state().as_ref().map_or(0, |state| state.declined)
}

/// Number of plans that were built and not destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn decliningPluginPlans() -> u64 {
    PLANS.load(Ordering::Relaxed)
}

/// Exports functions that pass their arguments on.
macro_rules! pass_on {
    ($($symbol:ident => $field:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($symbol), "` of the plugin behind this one.")]
        ///
        /// # Safety
        /// As that function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> PluginStatus {
            // SAFETY: the caller's promise, and handles and plans are those of the plugin behind this one.
            guard(|| unsafe { (base().functions().$field)($($argument),*) })
        }
    )*};
}

pass_on! {
    hipdnnPluginGetName => get_name(name: *mut *const c_char);
    hipdnnPluginGetVersion => get_version(version: *mut *const c_char);
    hipdnnPluginGetApiVersion => get_api_version(version: *mut *const c_char);
    hipdnnPluginGetType => get_type(kind: *mut PluginType);
    hipdnnPluginSetLoggingCallback => set_logging_callback(callback: LogCallback);
    hipdnnPluginSetLogLevel => set_log_level(level: Severity);
    hipdnnEnginePluginGetAllEngineIds => get_all_engine_ids(ids: *mut i64, most: u32, count: *mut u32);
    hipdnnEnginePluginGetEngineName => get_engine_name(id: i64, name: *mut *const c_char);
    hipdnnEnginePluginCreate => create(handle: *mut PluginHandlePtr);
    hipdnnEnginePluginDestroy => destroy(handle: PluginHandlePtr);
    hipdnnEnginePluginSetStream => set_stream(handle: PluginHandlePtr, stream: StreamPtr);
    hipdnnEnginePluginDestroyEngineDetails => destroy_engine_details(handle: PluginHandlePtr, details: *mut ConstData);
    hipdnnEnginePluginGetWorkspaceSize => get_workspace_size(
        handle: PluginHandlePtr, config: *const ConstData, graph: *const ConstData, bytes: *mut usize);
    hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext => get_workspace_size_from_execution_context(
        handle: PluginHandlePtr, context: ExecutionContextPtr, bytes: *mut usize);
}

/// The reason of this plugin where it declined, else the text of the one behind it.
///
/// # Safety
/// `text` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetLastErrorString(text: *mut *const c_char) {
    let own = REASON.with_borrow(|reason| reason.as_ref().map(|reason| reason.as_ptr()));
    match own {
        // SAFETY: the caller's promise; the text lives until the thread's next call.
        Some(own) if !text.is_null() => unsafe { text.write(own) },
        Some(_) => {}
        // SAFETY: the caller's promise.
        None => unsafe { base().last_error_function()(text) },
    }
}

/// The extension of the plugin behind this one.
///
/// # Safety
/// `extension` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnRsGetExtension(version: u32, extension: *mut *const Extension) -> PluginStatus {
    // SAFETY: the caller's promise.
    guard(|| unsafe { base().get_extension()(version, extension) })
}

/// No engine for what is declined.
///
/// # Safety
/// `graph` is null or has readable bytes; `ids` is null or has room for `most` numbers, `count` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetApplicableEngineIds(
    handle: PluginHandlePtr,
    graph: *const ConstData,
    ids: *mut i64,
    most: u32,
    count: *mut u32,
) -> PluginStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        if unsafe { refusal(graph, Stage::Applicable) }.is_some() && !count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { count.write(0) };
            return PluginStatus::SUCCESS;
        }
        // SAFETY: the caller's promise.
        unsafe { (base().functions().get_applicable_engine_ids)(handle, graph, ids, most, count) }
    })
}

/// No details of what is declined.
///
/// # Safety
/// `graph` is null or has readable bytes; `details` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetEngineDetails(
    handle: PluginHandlePtr,
    engine: i64,
    graph: *const ConstData,
    details: *mut ConstData,
) -> PluginStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        if let Some(reason) = unsafe { refusal(graph, Stage::Applicable) } {
            return declined(&reason);
        }
        // SAFETY: the caller's promise.
        unsafe { (base().functions().get_engine_details)(handle, engine, graph, details) }
    })
}

/// No plan for what is declined.
///
/// # Safety
/// `config` and `graph` are null or have readable bytes; `context` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreateExecutionContext(
    handle: PluginHandlePtr,
    config: *const ConstData,
    graph: *const ConstData,
    context: *mut ExecutionContextPtr,
) -> PluginStatus {
    guard(|| {
        for stage in [Stage::Applicable, Stage::Plan] {
            // SAFETY: the caller's promise.
            if let Some(reason) = unsafe { refusal(graph, stage) } {
                return declined(&reason);
            }
        }
        // SAFETY: the caller's promise.
        let failing = unsafe { refusal(graph, Stage::Execute) };
        // SAFETY: the caller's promise.
        let status = unsafe { (base().functions().create_execution_context)(handle, config, graph, context) };
        PLANS.fetch_add(u64::from(status == PluginStatus::SUCCESS), Ordering::Relaxed);
        if let (PluginStatus::SUCCESS, Some(reason)) = (status, failing) {
            // SAFETY: after success the caller's place has the plan.
            let plan = unsafe { *context }.addr();
            state().get_or_insert_default().failing.insert(plan, reason);
        }
        status
    })
}

/// Destroys a plan.
///
/// # Safety
/// The plan is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroyExecutionContext(
    handle: PluginHandlePtr,
    context: ExecutionContextPtr,
) -> PluginStatus {
    guard(|| {
        state().get_or_insert_default().failing.remove(&context.addr());
        // SAFETY: the caller's promise.
        let status = unsafe { (base().functions().destroy_execution_context)(handle, context) };
        PLANS.fetch_sub(u64::from(status == PluginStatus::SUCCESS), Ordering::Relaxed);
        status
    })
}

/// Fails for plans of what is declined at execution.
///
/// # Safety
/// The workspace has the plan's size, and the buffers, of which there are `count`, are those of its tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginExecuteOpGraph(
    handle: PluginHandlePtr,
    context: ExecutionContextPtr,
    workspace: *mut c_void,
    buffers: *const DeviceBuffer,
    count: u32,
) -> PluginStatus {
    guard(|| {
        let failing = state().as_ref().and_then(|state| state.failing.get(&context.addr()).cloned());
        if let Some(reason) = failing {
            declined(&reason);
            return PluginStatus::INTERNAL_ERROR;
        }
        // SAFETY: the caller's promise.
        unsafe { (base().functions().execute_op_graph)(handle, context, workspace, buffers, count) }
    })
}
