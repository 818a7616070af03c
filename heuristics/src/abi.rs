//! The exported functions: those of any plugin, then those of heuristics plugins (`HeuristicsPluginApi.h` 0.1.0 of
//! ROCm/rocm-libraries at commit 02dc267).
//!
//! Handles and policy descriptors are keys ([`hipdnn_capi::table`]): null, destroyed and foreign ones answer
//! `HIPDNN_PLUGIN_STATUS_BAD_PARAM` in every function.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_capi::pointer::{Out, checked, key, opaque};
use hipdnn_capi::table::{Slot, Slots};
use hipdnn_schemas::{DeviceProperties, EnginePrediction, PredictionStatus};
use hipdnn_sdk_bindings::hipdnn::heuristics::{
    HeuristicHandlePtr, HostCallbacks, PolicyDescriptorPtr, PredictionKind, VERSION as API,
};
use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, LogCallback, PluginStatus, PluginType, Severity};

use crate::error::{Error, guard, last_error};
use crate::log;
use crate::policy::{self, MAX_ENGINES, Policy, Request};

const NAME: &CStr = c"hipdnn_rs_heuristics";

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version has no NUL"),
};

const API_VERSION: &CStr = c"0.1.0";
const _: () = assert!(API.len() == 5 && API.as_bytes()[2] == b'1', "the version above is that of the declarations");

/// The plugin's side of a hipDNN handle: the facts of its device.
#[derive(Default)]
struct Handle {
    device: Arc<Mutex<Option<DeviceProperties>>>,
}

/// A policy's descriptor, with the facts of its handle.
struct Descriptor {
    device: Arc<Mutex<Option<DeviceProperties>>>,
    request: Mutex<Request>,
}

static HANDLE_SLOTS: [Slot<Handle>; 4096] = [const { Slot::empty() }; 4096];
static HANDLES: Slots<Handle> = Slots::new("a handle of this plugin", 0x53, &HANDLE_SLOTS);

static DESCRIPTOR_SLOTS: [Slot<Descriptor>; 16384] = [const { Slot::empty() }; 16384];
static DESCRIPTORS: Slots<Descriptor> = Slots::new("a policy descriptor", 0x54, &DESCRIPTOR_SLOTS);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a caller.
///
/// # Safety
/// A pointer that is not null and aligned refers to a `ConstData` whose `size` bytes at `ptr`, if not null, stay as
/// they are for `'a`.
unsafe fn bytes<'a>(data: *const ConstData, what: &'static str) -> Result<&'a [u8], Error> {
    checked(data, what)?;
    // SAFETY: not null, aligned, and the caller answers for the struct.
    let ConstData { ptr, size } = unsafe { *data };
    if ptr.is_null() || size > isize::MAX as usize {
        return Err(Error::bad_param(format!("{what}: expected bytes, got {size} at {ptr:p}")));
    }
    // SAFETY: not null, not too long, and the caller answers for the bytes.
    Ok(unsafe { std::slice::from_raw_parts(ptr.cast(), size) })
}

fn with<R>(
    descriptor: PolicyDescriptorPtr,
    f: impl FnOnce(&Descriptor, &mut Request) -> Result<R, Error>,
) -> Result<R, Error> {
    DESCRIPTORS.with(key(descriptor), |descriptor| f(descriptor, &mut lock(&descriptor.request)))
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

/// Gives the version of the heuristics ABI that the plugin implements.
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

/// Gives the plugin's type: a heuristics plugin.
///
/// # Safety
/// `plugin_type` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetType(plugin_type: *mut PluginType) -> PluginStatus {
    guard("hipdnnPluginGetType", || {
        // SAFETY: the caller's promise.
        unsafe { Out::new(plugin_type, "type") }?.set(PluginType::HEURISTIC);
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

/// Lists the policies.
///
/// # Safety
/// `num_policies` is null or good for writing, `policy_ids` is null or good for writing `max_policies` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPluginGetAllPolicyIds(
    policy_ids: *mut i64,
    max_policies: u32,
    num_policies: *mut u32,
) -> PluginStatus {
    guard("hipdnnHeuristicPluginGetAllPolicyIds", || {
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(num_policies, "num_policies") }?;
        if max_policies == 0 {
            count.set(Policy::ALL.len() as u32);
            return Ok(());
        }
        checked(policy_ids, "policy_ids")?;
        let mut written = 0;
        for policy in Policy::ALL.into_iter().take(max_policies as usize) {
            // SAFETY: `written` is below `max_policies`, for which the caller answers.
            unsafe { policy_ids.add(written).write(policy.id()) };
            written += 1;
        }
        count.set(written as u32);
        Ok(())
    })
}

/// Gives a policy's name.
///
/// # Safety
/// `name` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPluginGetPolicyName(policy_id: i64, name: *mut *const c_char) -> PluginStatus {
    guard("hipdnnHeuristicPluginGetPolicyName", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(name, "name") }?;
        out.set_text(Policy::find(policy_id)?.name());
        Ok(())
    })
}

/// Makes the plugin's side of a hipDNN handle.
///
/// # Safety
/// `out_handle` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicHandleCreate(out_handle: *mut HeuristicHandlePtr) -> PluginStatus {
    guard("hipdnnHeuristicHandleCreate", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(out_handle, "out_handle") }?;
        out.set(opaque(HANDLES.insert(Handle::default())?));
        Ok(())
    })
}

/// Destroys a handle. Descriptors that were made with it keep its device's facts.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnHeuristicHandleDestroy(handle: HeuristicHandlePtr) -> PluginStatus {
    guard("hipdnnHeuristicHandleDestroy", || {
        drop(HANDLES.remove(key(handle))?);
        Ok(())
    })
}

/// Sets the facts of the device that is ranked for.
///
/// # Safety
/// `device_props_serialized` is null or has readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicHandleSetDeviceProperties(
    handle: HeuristicHandlePtr,
    device_props_serialized: *const ConstData,
) -> PluginStatus {
    guard("hipdnnHeuristicHandleSetDeviceProperties", || {
        HANDLES.with(key(handle), |handle| {
            // SAFETY: the caller's promise.
            let bytes = unsafe { bytes(device_props_serialized, "device_props_serialized") }?;
            let properties = DeviceProperties::from_bytes(bytes)
                .map_err(|error| Error::bad_param(format!("device_props_serialized: {error}")))?;
            *lock(&handle.device) = Some(properties);
            Ok(())
        })
    })
}

/// Makes a policy's descriptor.
///
/// # Safety
/// `out_desc` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyDescriptorCreate(
    plugin_handle: HeuristicHandlePtr,
    policy_id: i64,
    out_desc: *mut PolicyDescriptorPtr,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyDescriptorCreate", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(out_desc, "out_desc") }?;
        let request = Mutex::new(Request::new(Policy::find(policy_id)?));
        let device = HANDLES.with(key(plugin_handle), |handle| Ok::<_, Error>(Arc::clone(&handle.device)))?;
        out.set(opaque(DESCRIPTORS.insert(Descriptor { device, request })?));
        Ok(())
    })
}

/// Destroys a policy's descriptor, with what it lent.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnHeuristicPolicyDescriptorDestroy(desc: PolicyDescriptorPtr) -> PluginStatus {
    guard("hipdnnHeuristicPolicyDescriptorDestroy", || {
        drop(DESCRIPTORS.remove(key(desc))?);
        Ok(())
    })
}

/// Sets the candidates.
///
/// # Safety
/// `engine_ids` is null or has `engine_id_count` readable ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicySetEngineIds(
    desc: PolicyDescriptorPtr,
    engine_ids: *const i64,
    engine_id_count: usize,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicySetEngineIds", || {
        with(desc, |_, request| {
            if engine_id_count > MAX_ENGINES {
                return Err(Error::bad_param(format!("expected at most {MAX_ENGINES} engines, got {engine_id_count}")));
            }
            if engine_id_count == 0 {
                request.set_engines(&[]);
                return Ok(());
            }
            checked(engine_ids, "engine_ids")?;
            // SAFETY: not null, aligned, and the caller answers for the ids.
            request.set_engines(unsafe { std::slice::from_raw_parts(engine_ids, engine_id_count) });
            Ok(())
        })
    })
}

/// Sets the graph.
///
/// # Safety
/// `serialized_graph` is null or has readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicySetSerializedGraph(
    desc: PolicyDescriptorPtr,
    serialized_graph: *const ConstData,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicySetSerializedGraph", || {
        with(desc, |_, request| {
            // SAFETY: the caller's promise.
            request.set_graph(unsafe { bytes(serialized_graph, "serialized_graph") }?)
        })
    })
}

fn finalize(
    desc: PolicyDescriptorPtr,
    out_applied: *mut i32,
    metric: Option<&str>,
    predicted: &dyn Fn(i64) -> Option<f64>,
) -> Result<(), Error> {
    // SAFETY: the callers' promise: null or good for writing.
    let out = unsafe { Out::new(out_applied, "out_applied") }?;
    out.set(0);
    let device = DESCRIPTORS.with(key(desc), |descriptor| Ok::<_, Error>(lock(&descriptor.device).clone()))?;
    let device = device.ok_or_else(|| Error::not_initialized("expected device properties before, got none"))?;
    let Some(mut order) = with(desc, |_, request| request.rank(&device, metric))? else { return Ok(()) };
    // The host's function is foreign ground: nothing of the descriptor is held while it runs.
    policy::predict(&mut order, predicted);
    with(desc, |_, request| {
        request.answer(order, &device);
        Ok(())
    })?;
    out.set(1);
    Ok(())
}

/// Ranks; `out_applied` is 1 if the policy does, 0 if it declines.
///
/// # Safety
/// `out_applied` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyFinalize(
    desc: PolicyDescriptorPtr,
    out_applied: *mut i32,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyFinalize", || finalize(desc, out_applied, None, &|_| None))
}

/// Ranks as [`hipdnnHeuristicPolicyFinalize`], with what engines predict themselves where the host has it.
///
/// # Safety
/// `host` is null or a table of as many bytes as it says, good for the call; `out_applied` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyFinalizeWithHost(
    desc: PolicyDescriptorPtr,
    host: *const HostCallbacks,
    out_applied: *mut i32,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyFinalizeWithHost", || {
        // SAFETY: the caller's promise.
        let Some(host) = (unsafe { host_callbacks(host) })? else {
            return finalize(desc, out_applied, None, &|_| None);
        };
        // SAFETY: a table of version 2 names a metric for the length of the call, which ends in NUL.
        let metric = unsafe { CStr::from_ptr(host.ranking_metric) }.to_string_lossy();
        // A prediction in another metric than time is no time.
        let predicts_time = metric == "time";
        let predicted = |engine| predicts_time.then(|| predicted(&host, engine)).flatten();
        finalize(desc, out_applied, Some(&metric), &predicted)
    })
}

/// The host's table; `None` of hosts that lend none, or one without a metric (version 1).
///
/// # Safety
/// `host` is null or refers to a table of as many bytes as it says.
unsafe fn host_callbacks(host: *const HostCallbacks) -> Result<Option<HostCallbacks>, Error> {
    if host.is_null() {
        return Ok(None);
    }
    checked(host, "host")?;
    // SAFETY: version and size are in tables of every version; the caller answers for them.
    let (version, size) = unsafe { ((*host).version, (*host).struct_size) };
    if version < 2 || size < size_of::<HostCallbacks>() {
        return Ok(None);
    }
    // SAFETY: the table has all fields by its size.
    let host = unsafe { *host };
    Ok((!host.ranking_metric.is_null()).then_some(host))
}

/// Seconds that an engine predicts of itself; hipDNN's metric of time is in milliseconds.
fn predicted(host: &HostCallbacks, engine: i64) -> Option<f64> {
    let get_prediction = host.get_prediction?;
    let mut data = ConstData { ptr: std::ptr::null(), size: 0 };
    // SAFETY: the host's function, with the context of its table and a place that is good for writing.
    let status = unsafe { get_prediction(host.context, engine, PredictionKind::ENGINE, &mut data) };
    if status != PluginStatus::SUCCESS {
        return None;
    }
    // SAFETY: the host lends `size` bytes until the policy's call returns.
    let prediction = EnginePrediction::from_bytes(unsafe { bytes(&data, "prediction") }.ok()?).ok()?;
    match prediction.status {
        PredictionStatus::Available(milliseconds)
            if prediction.engine_id == engine && prediction.metric == "time" && milliseconds > 0.0 =>
        {
            Some(milliseconds / 1e3).filter(|seconds| seconds.is_finite())
        }
        _ => None,
    }
}

/// Gives the engines, the best first.
///
/// # Safety
/// `num_engines` is null or good for reading and writing; `engine_ids` is null or good for writing as many ids as it
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyGetSortedEngineIds(
    desc: PolicyDescriptorPtr,
    engine_ids: *mut i64,
    num_engines: *mut usize,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyGetSortedEngineIds", || {
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(num_engines, "num_engines") }?;
        let sorted = with(desc, |_, request| request.sorted())?;
        if engine_ids.is_null() {
            count.set(sorted.len());
            return Ok(());
        }
        checked(engine_ids, "engine_ids")?;
        let written = count.get().min(sorted.len());
        for (at, id) in sorted.iter().take(written).enumerate() {
            // SAFETY: `at` is below the room that the caller has.
            unsafe { engine_ids.add(at).write(*id) };
        }
        count.set(written);
        Ok(())
    })
}

/// Lends the configuration that an engine was ranked with, until the descriptor changes;
/// `HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE` for an engine that was ranked as it is.
///
/// # Safety
/// `engine_config` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyGetEngineConfig(
    desc: PolicyDescriptorPtr,
    engine_id: i64,
    engine_config: *mut ConstData,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyGetEngineConfig", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(engine_config, "engine_config") }?;
        let (address, size) = with(desc, |_, request| request.config(engine_id))?;
        out.set(ConstData { ptr: address.cast(), size });
        Ok(())
    })
}

/// Lends a text in JSON that says how an engine came to its place, until the descriptor changes.
///
/// # Safety
/// `trace_json` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnHeuristicPolicyGetTrace(
    desc: PolicyDescriptorPtr,
    engine_id: i64,
    trace_json: *mut *const c_char,
) -> PluginStatus {
    guard("hipdnnHeuristicPolicyGetTrace", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(trace_json, "trace_json") }?;
        out.set(with(desc, |_, request| request.trace(engine_id).map(CStr::as_ptr))?);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
