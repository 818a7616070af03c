//! From a graph's bytes to a plan: the engines that take it, their knobs, the plan and its executions.

use std::ffi::c_void;

use hipdnn_schemas::KnobValue;
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName, AutotuneCacheWriteOutcome, Backend, DescriptorPtr, DescriptorType, HeurMode, Status,
};

use crate::descriptor::{BackendError, Descriptor, check};
use crate::handle::{EngineInfo, Handle};

/// A finalized graph of a handle, from its bytes.
///
/// # Errors
/// The backend's status.
pub fn graph(handle: &Handle, bytes: &[u8]) -> Result<Descriptor, BackendError> {
    let graph = Descriptor::graph(handle.backend(), bytes)?;
    graph.set(AttributeName::OPERATIONGRAPH_HANDLE, &[handle.as_ptr()])?;
    graph.finalize("graph")?;
    Ok(graph)
}

/// Has the backend rank engines in this order, the fastest first, for graphs with the content of this finalized one on the
/// handle's device, also in other processes. The order has to have every engine that takes the graph, each once.
///
/// # Errors
/// The backend's status; a cache that takes nothing is an outcome.
pub fn keep_ranking(
    handle: &Handle,
    graph: &Descriptor,
    order: &[i64],
) -> Result<AutotuneCacheWriteOutcome, BackendError> {
    let (backend, call) = (handle.backend(), || "writing the ranking".to_string());
    let Some(write) = backend.write_engine_ranking_results else {
        let text = "the library has no hipdnnBackendWriteEngineRankingResults_ext".to_string();
        return Err(BackendError { call: call(), status: Status::NOT_SUPPORTED, text });
    };
    let mut outcome = AutotuneCacheWriteOutcome::DECLINED_NO_ENGINES;
    // SAFETY: handle and graph are alive; there are as many numbers as are said, and the place is valid for the call.
    let status = unsafe { write(handle.as_ptr(), graph.as_ptr(), order.as_ptr(), order.len(), &mut outcome) };
    check(backend, status, call)?;
    Ok(outcome)
}

/// An engine that takes a graph.
pub struct Candidate {
    /// Its finalized configuration, as the backend's heuristics left it, if they ranked it.
    pub config: Option<Descriptor>,
    /// Engine with the graph.
    pub engine: Descriptor,
    /// The engine's number.
    pub id: i64,
    /// The engine's name.
    pub name: String,
}

/// True if the user has the backend leave engines out or rank them by policies of its own, which then may set knobs, too.
pub fn has_user_ranking() -> bool {
    let variables = ["HIPDNN_HEUR_FALLBACK_ENGINE_ORDER", "HIPDNN_HEUR_POLICY_ORDER"];
    variables.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The engines that take a finalized graph, the backend's first choice first, and the words of those that fail at it.
///
/// # Errors
/// The backend's status.
pub fn candidates(
    backend: &'static Backend,
    graph: &Descriptor,
    engines: &[EngineInfo],
) -> Result<(Vec<Candidate>, Vec<String>), BackendError> {
    let heuristic = Descriptor::new(backend, DescriptorType::ENGINEHEUR_DESCRIPTOR)?;
    heuristic.set(AttributeName::ENGINEHEUR_OPERATION_GRAPH, &[graph.as_ptr()])?;
    heuristic.set(AttributeName::ENGINEHEUR_MODE, &[HeurMode::FALLBACK])?;
    heuristic.finalize("engine heuristic")?;
    let count = heuristic.count::<DescriptorPtr>(AttributeName::ENGINEHEUR_RESULTS)?;
    let configs = (0..count).map(|_| Descriptor::new(backend, DescriptorType::ENGINECFG_DESCRIPTOR));
    let configs = configs.collect::<Result<Vec<_>, _>>()?;
    let mut raw: Vec<_> = configs.iter().map(Descriptor::as_ptr).collect();
    let filled = if raw.is_empty() { 0 } else { heuristic.read(AttributeName::ENGINEHEUR_RESULTS, &mut raw)? };
    let mut candidates = Vec::new();
    let mut failures = Vec::new();
    for config in configs.into_iter().take(filled) {
        // A configuration says its engine only when it is finalized, and then takes no knobs any more.
        if let Err(error) = config.finalize("engine configuration") {
            failures.push(error.to_string());
            continue;
        }
        let engine = config.child(AttributeName::ENGINECFG_ENGINE)?;
        let id = engine.get::<i64>(AttributeName::ENGINE_GLOBAL_INDEX)?;
        let name = engine_name(engines, id, &engine);
        candidates.push(Candidate { config: Some(config), engine, id, name });
    }
    Ok((candidates, failures))
}

/// An engine's name: as listed, as it says itself, or its number.
fn engine_name(engines: &[EngineInfo], id: i64, engine: &Descriptor) -> String {
    if let Some(known) = engines.iter().find(|engine| engine.id == id) {
        return known.name.clone();
    }
    let named = engine.text(AttributeName::ENGINE_NAME_EXT).ok().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| format!("engine {id}"))
}

/// An engine as a candidate for a finalized graph. The backend ranks nothing, and builds no configuration to be asked for its
/// engine.
///
/// # Errors
/// The engine's words against the graph.
pub fn candidate_of(
    backend: &'static Backend,
    graph: &Descriptor,
    info: &EngineInfo,
) -> Result<Candidate, BackendError> {
    let engine = Descriptor::new(backend, DescriptorType::ENGINE_DESCRIPTOR)?;
    engine.set(AttributeName::ENGINE_OPERATION_GRAPH, &[graph.as_ptr()])?;
    engine.set(AttributeName::ENGINE_GLOBAL_INDEX, &[info.id])?;
    engine.finalize("engine")?;
    Ok(Candidate { config: None, engine, id: info.id, name: info.name.clone() })
}

/// A candidate's plan with these knobs set, as far as the engine has them, and the bytes of workspace that it wants.
///
/// # Errors
/// The backend's status.
pub fn plan(
    handle: &Handle,
    candidate: &Candidate,
    knobs: &[(String, KnobValue)],
) -> Result<(Descriptor, usize), BackendError> {
    let offered = if knobs.is_empty() { Vec::new() } else { self::knobs(&candidate.engine)? };
    plan_offered(handle, candidate, knobs, &offered)
}

/// [`plan`] for an engine whose knobs are known: it has those that are `offered`.
///
/// # Errors
/// The backend's status.
pub fn plan_offered(
    handle: &Handle,
    candidate: &Candidate,
    knobs: &[(String, KnobValue)],
    offered: &[String],
) -> Result<(Descriptor, usize), BackendError> {
    let backend = handle.backend();
    let choices = knob_choices(backend, offered, knobs)?;
    let own;
    let config = match &candidate.config {
        Some(ranked) if choices.is_empty() => ranked,
        _ => {
            own = Descriptor::new(backend, DescriptorType::ENGINECFG_DESCRIPTOR)?;
            own.set(AttributeName::ENGINECFG_ENGINE, &[candidate.engine.as_ptr()])?;
            if !choices.is_empty() {
                let raw: Vec<_> = choices.iter().map(Descriptor::as_ptr).collect();
                own.set(AttributeName::ENGINECFG_KNOB_CHOICES, &raw)?;
            }
            own.finalize("engine configuration")?;
            &own
        }
    };
    let plan = Descriptor::new(backend, DescriptorType::EXECUTION_PLAN_DESCRIPTOR)?;
    // Deprecated, and ignored by newer backends.
    let _ = plan.set(AttributeName::EXECUTION_PLAN_HANDLE, &[handle.as_ptr()]);
    plan.set(AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, &[config.as_ptr()])?;
    plan.finalize("execution plan")?;
    let workspace = workspace_of(&plan)?;
    Ok((plan, workspace))
}

/// The knobs that an engine has for its graph, by name; empty if the backend is too old to list them.
///
/// # Errors
/// The backend's status.
pub fn knobs(engine: &Descriptor) -> Result<Vec<String>, BackendError> {
    let Ok(infos) = engine.children(AttributeName::ENGINE_KNOB_INFO) else { return Ok(Vec::new()) };
    infos.iter().map(|info| info.text(AttributeName::KNOB_INFO_TYPE)).collect()
}

/// The wanted knobs as far as they are offered: other engines have others.
fn knob_choices(
    backend: &'static Backend,
    offered: &[String],
    wanted: &[(String, KnobValue)],
) -> Result<Vec<Descriptor>, BackendError> {
    let mut choices = Vec::new();
    for id in offered {
        let Some((_, value)) = wanted.iter().find(|(name, _)| name == id) else { continue };
        let knob = Descriptor::new(backend, DescriptorType::KNOB_CHOICE_DESCRIPTOR)?;
        knob.set(AttributeName::KNOB_CHOICE_KNOB_TYPE, id.as_bytes())?;
        match value {
            KnobValue::Int(value) => knob.set(AttributeName::KNOB_CHOICE_KNOB_VALUE, &[*value])?,
            KnobValue::Float(value) => knob.set(AttributeName::KNOB_CHOICE_KNOB_VALUE, &[*value])?,
            KnobValue::String(value) => knob.set(AttributeName::KNOB_CHOICE_KNOB_VALUE, value.as_bytes())?,
        }
        knob.finalize("knob choice")?;
        choices.push(knob);
    }
    Ok(choices)
}

/// Bytes of workspace that a finalized plan wants.
///
/// # Errors
/// The backend's status, or a size that is none.
pub fn workspace_of(plan: &Descriptor) -> Result<usize, BackendError> {
    let workspace = plan.get::<i64>(AttributeName::EXECUTION_PLAN_WORKSPACE_SIZE)?;
    usize::try_from(workspace).map_err(|_| {
        let call = "reading the workspace size".to_string();
        let text = format!("the size is {workspace}");
        BackendError { call, status: Status::INTERNAL_ERROR, text }
    })
}

/// A pack of tensors for executions: those with these uids are at these addresses.
///
/// # Errors
/// The backend's status.
pub fn pack(
    backend: &'static Backend,
    uids: &[i64],
    addresses: &[*mut c_void],
    workspace: *mut c_void,
) -> Result<Descriptor, BackendError> {
    let pack = Descriptor::new(backend, DescriptorType::VARIANT_PACK_DESCRIPTOR)?;
    pack.set(AttributeName::VARIANT_PACK_DATA_POINTERS, addresses)?;
    pack.set(AttributeName::VARIANT_PACK_UNIQUE_IDS, uids)?;
    pack.set(AttributeName::VARIANT_PACK_WORKSPACE, &[workspace])?;
    pack.finalize("variant pack")?;
    Ok(pack)
}

/// Runs a plan on the tensors of a pack.
///
/// # Safety
/// Every tensor of the graph that is not virtual is in the pack, with an address of memory of the tensor's type and extents;
/// nothing else writes to them, or reads the outputs, during the call. The pack's workspace has the plan's bytes.
///
/// # Errors
/// The backend's status.
pub unsafe fn execute(
    handle: &Handle,
    plan: &Descriptor,
    pack: &Descriptor,
    call: impl FnOnce() -> String,
) -> Result<(), BackendError> {
    let backend = handle.backend();
    // SAFETY: handle, plan and pack are alive, and the caller vouches for the tensors and the workspace.
    let status = unsafe { (backend.execute)(handle.as_ptr(), plan.as_ptr(), pack.as_ptr()) };
    check(backend, status, call)
}
