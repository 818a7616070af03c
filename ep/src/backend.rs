//! The backend library in use: opened once and never closed, with its plugins, its handles and the plans made with it.

use std::cell::LazyCell;
use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use hipdnn_capi::spare::Spare;
use hipdnn_client::engines::{DEVICE_ENGINES, HOST_ENGINE};
use hipdnn_client::handle::{EngineInfo, Handle, default_plugins, set_plugins};
use hipdnn_client::library;
use hipdnn_client::planning::{self, Candidate};
use hipdnn_ep_compiler::constants::{Promise, Token};
use hipdnn_schemas::KnobValue;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, Backend, PluginLoadingMode};
use hipdnn_sdk_bindings::hipdnn::extension::{MemoryKind, RecordingPtr};

use crate::descriptor::{BackendError, Descriptor};
use crate::error::Error;
use crate::extension::Extension;
use crate::gpu::hip::{Entered, HipError};
use crate::gpu::stream::Stream;
use crate::gpu::{self, Gpu};
use crate::search::Plugins;
use crate::workspace::Workspace;

/// The memory that the tensors of a context's plans are in.
#[derive(Clone, Copy)]
pub(crate) enum Site {
    /// The host's.
    Host,
    /// A GPU's.
    Device(&'static Gpu),
}

impl Site {
    fn same(&self, other: &Site) -> bool {
        match (self, other) {
            (Site::Host, Site::Host) => true,
            (Site::Device(one), Site::Device(other)) => one.ordinal() == other.ordinal(),
            _ => false,
        }
    }

    fn memory(&self) -> MemoryKind {
        match self {
            Site::Host => MemoryKind::HOST,
            Site::Device(_) => MemoryKind::DEVICE,
        }
    }

    /// Makes the site's device the calling thread's, if it has one.
    fn enter(&self) -> Result<Option<Entered>, HipError> {
        match self {
            Site::Host => Ok(None),
            Site::Device(gpu) => gpu.enter().map(Some),
        }
    }
}

/// A backend library with the plugins it was told to load, for tensors in one memory. Sessions of a process that want the
/// same share one.
pub(crate) struct Context {
    backend: &'static Backend,
    plugins: Plugins,
    site: Site,
    /// Directory of engines' caches, if the session names one.
    cache: Option<CString>,
    engines: Vec<EngineInfo>,
    extension: Option<Extension>,
    /// The CPU engine's knobs, once they are known.
    host_knobs: OnceLock<Vec<String>>,
    /// Handles that plans are built with, at least one. On the host there are at most as many as threads that built, stored or
    /// dropped plans at a time, and no more than `most_builders`.
    builders: Mutex<Vec<Builder>>,
    most_builders: usize,
    idle: Spare<PooledHandle>,
    /// Of a device, what plans are built on: it outlives the handle.
    _stream: Option<Arc<Stream>>,
}

/// Handle that plans are built with, which serves one caller at a time. It outlives its plans, because they hold it.
type Builder = Arc<Mutex<Handle>>;

/// Handle, stream and memory of one execution: a handle serves one caller at a time.
pub(crate) struct PooledHandle {
    handle: Handle,
    /// Stream of executions.
    stream: *mut c_void,
    workspace: Workspace,
}

// SAFETY: streams of HIP may be used from any thread; a pooled handle has one user at a time.
unsafe impl Send for PooledHandle {}

impl PooledHandle {
    /// Memory of at least that size for an arena and workspaces, with any content; null if none is wanted.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub(crate) fn memory(&mut self, bytes: usize) -> Result<*mut c_void, Error> {
        Ok(self.workspace.get(bytes)?)
    }

    /// Enqueues further executions on a stream of HIP.
    ///
    /// # Errors
    /// The backend's status.
    pub(crate) fn on(&mut self, stream: *mut c_void) -> Result<(), BackendError> {
        if self.stream != stream {
            // SAFETY: who passes the stream keeps it alive while it is used.
            unsafe { self.handle.set_stream(stream) }?;
            self.stream = stream;
        }
        Ok(())
    }
}

/// A handle for tensors in one memory, as far as an engine plugin can be told.
fn handle_at(
    backend: &'static Backend,
    extension: Option<&Extension>,
    site: &Site,
    cache: Option<&CStr>,
) -> Result<Handle, BackendError> {
    match extension {
        Some(extension) => {
            extension.with_handle_memory(site.memory(), || extension.with_handle_cache(cache, || Handle::new(backend)))
        }
        None => Handle::new(backend),
    }
}

/// The contexts that live.
static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

/// The data stays whole even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// Opens a backend library and loads its plugins, or gives what another session has.
    ///
    /// # Errors
    /// If no candidate is a usable backend, or the plugins cannot be changed because of another session.
    pub(crate) fn open(
        candidates: &[PathBuf],
        plugins: &Plugins,
        site: &Site,
        cache: Option<&CStr>,
    ) -> Result<Arc<Context>, Error> {
        let mut contexts = lock(&CONTEXTS);
        let backend = library::open(candidates).map_err(|error| Error::failed(error.to_string()))?;
        contexts.retain(|context| context.strong_count() > 0);
        let living: Vec<Arc<Context>> = contexts.iter().filter_map(Weak::upgrade).collect();
        let mut living = living.into_iter().filter(|context| std::ptr::eq(context.backend, backend)).peekable();
        let chosen = living.peek().is_some();
        // Plugins are the process's: they can be chosen only while the backend has no handles.
        if let Some(context) = living.peek()
            && context.plugins != *plugins
        {
            return Err(Error::invalid(format!(
                "{} already has its plugins in this process ({}), a session cannot have others ({})",
                backend.path().display(),
                context.plugins,
                plugins
            )));
        }
        if let Some(context) = living.find(|context| context.site.same(site) && context.cache.as_deref() == cache) {
            return Ok(context);
        }
        let context = Arc::new(Context::new(backend, plugins.clone(), *site, cache, chosen)?);
        contexts.push(Arc::downgrade(&context));
        Ok(context)
    }

    /// A context of a backend whose plugins another one has `chosen` already, or not.
    fn new(
        backend: &'static Backend,
        plugins: Plugins,
        site: Site,
        cache: Option<&CStr>,
        chosen: bool,
    ) -> Result<Context, Error> {
        let failed = |error: BackendError| Error::failed(format!("{}: {error}", backend.path().display()));
        let (first, extra) = match &plugins {
            _ if chosen => (Ok(()), None),
            Plugins::Only(path) => (set_plugins(backend, &[path], PluginLoadingMode::ABSOLUTE), None),
            // The backend keeps what an earlier session of this process chose, unless something else is named.
            Plugins::Default(extra) if CHOSEN.load(Ordering::Acquire) => {
                let default = default_plugins(backend);
                (set_plugins(backend, &[&default], PluginLoadingMode::ABSOLUTE), extra.as_deref())
            }
            Plugins::Default(extra) => (set_plugins(backend, &[], PluginLoadingMode::ADDITIVE), extra.as_deref()),
        };
        match (&plugins, first) {
            (Plugins::Only(_), first) => {
                CHOSEN.store(true, Ordering::Release);
                first.map_err(failed)?;
            }
            // A backend that lets nobody choose has its default anyway.
            (Plugins::Default(_), _) => {}
        }
        let mut builder = Handle::new(backend).map_err(failed)?;
        let mut engines = builder.engines();
        if let Some(extra) = extra
            && !engines.iter().any(|engine| engine.name == HOST_ENGINE)
        {
            // Plugins can be added only while there is no handle.
            drop(builder);
            // Without the extra plugin the backend still serves what its own plugins do.
            let _ = set_plugins(backend, &[extra], PluginLoadingMode::ADDITIVE);
            builder = Handle::new(backend).map_err(failed)?;
            engines = builder.engines();
        }
        if let Plugins::Only(path) = &plugins
            && backend.get_engine_count.is_some()
            && engines.is_empty()
        {
            return Err(Error::invalid(format!(
                "{} has no engine plugin that {} can load",
                path.display(),
                backend.path().display()
            )));
        }
        // SAFETY: the handle is this backend's.
        let extension = unsafe { Extension::find(backend, builder.as_ptr()) };
        let builder = handle_at(backend, extension.as_ref(), &site, cache).map_err(failed)?;
        let stream = match site {
            Site::Host => None,
            Site::Device(gpu) => Some(Stream::new(gpu).map_err(|error| Error::failed(error.to_string()))?),
        };
        if let Some(stream) = &stream {
            // SAFETY: the context holds the stream longer than the handle.
            unsafe { builder.set_stream(stream.raw().cast()) }.map_err(failed)?;
        }
        let most_idle = std::thread::available_parallelism().map_or(4, |cores| cores.get().clamp(4, 64));
        let most_builders = if stream.is_some() { 1 } else { most_idle };
        let (builders, idle) = (Mutex::new(vec![Arc::new(Mutex::new(builder))]), Spare::new(most_idle));
        let cache = cache.map(CStr::to_owned);
        Ok(Context {
            backend,
            plugins,
            site,
            cache,
            engines,
            extension,
            host_knobs: OnceLock::new(),
            builders,
            most_builders,
            idle,
            _stream: stream,
        })
    }

    /// The library's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.backend.path()
    }

    /// The library's version, if it says.
    pub(crate) fn version(&self) -> Option<String> {
        self.backend.version()
    }

    /// The engines that the backend lists; empty if it cannot say.
    pub(crate) fn engines(&self) -> &[EngineInfo] {
        &self.engines
    }

    /// The engine plugin's extension, if the plugin is loaded and has one.
    pub(crate) fn extension(&self) -> Option<&Extension> {
        self.extension.as_ref()
    }

    /// Takes an idle handle, or makes one; [`Context::put_back`] takes it back.
    ///
    /// # Errors
    /// If the backend gives no handle.
    pub(crate) fn pooled_handle(&self) -> Result<Box<PooledHandle>, BackendError> {
        if let Some(pooled) = self.idle.take() {
            return Ok(pooled);
        }
        let handle = handle_at(self.backend, self.extension.as_ref(), &self.site, self.cache.as_deref())?;
        Ok(Box::new(PooledHandle { handle, stream: null_mut(), workspace: Workspace::default() }))
    }

    /// Keeps a handle for the next caller, or drops it if enough are kept.
    pub(crate) fn put_back(&self, pooled: Box<PooledHandle>) {
        drop(self.idle.put(pooled));
    }

    /// [`Context::plan`] with the contents of constants at hand, for an engine that prepares them when it builds the plan.
    ///
    /// # Errors
    /// The engines' reasons, if none makes one.
    pub(crate) fn plan_with_constants(
        self: &Arc<Self>,
        graph: &[u8],
        choice: &EngineChoice,
        contents: &[(Token, &[u8])],
    ) -> Result<Plan, NoPlan> {
        self.with_constants(contents, || self.plan(graph, choice))
    }

    /// [`Context::plan_from`] with the contents of constants at hand, for an engine that prepares them when it builds the plan.
    ///
    /// # Errors
    /// The reason, if the plan is not made again.
    pub(crate) fn stored_with_constants(
        self: &Arc<Self>,
        stored: &[u8],
        choice: &EngineChoice,
        contents: &[(Token, &[u8])],
    ) -> Result<Plan, NoPlan> {
        self.with_constants(contents, || self.plan_from(stored, choice))
    }

    /// Result of `run`, and a recording of the launches of its `executions`, if they are launches alone.
    pub(crate) fn record<R>(self: &Arc<Self>, executions: usize, run: impl FnOnce() -> R) -> (R, Option<Recording>) {
        let Some(extension) = self.extension() else { return (run(), None) };
        let (ran, recorded) = extension.with_recording(run);
        let recording = recorded.map(|(count, raw)| (count, Recording { context: self.clone(), raw }));
        // Another engine or plugin may have had some of them.
        (ran, recording.filter(|(count, _)| *count == executions).map(|(_, recording)| recording))
    }

    /// Result of `build`, with the contents of constants lent to the plans that it builds, if they can be.
    fn with_constants<R>(&self, contents: &[(Token, &[u8])], build: impl FnOnce() -> R) -> R {
        match self.extension() {
            Some(extension) => extension.with_constants(contents, build),
            None => build(),
        }
    }

    /// Plan that `build` makes, its workspace's bytes and its engine's name with it, on a handle for plans: an idle one, or a new
    /// one, or the first once it is idle.
    ///
    /// # Errors
    /// Error of `build`, or the reason for which the device cannot be entered.
    fn build_plan(
        self: &Arc<Self>,
        build: impl FnOnce(&Handle) -> Result<(Descriptor, usize, String), NoPlan>,
    ) -> Result<Plan, NoPlan> {
        let _entered = self.site.enter().map_err(|error| NoPlan(error.to_string()))?;
        let build = |builder: &Builder, handle: &Handle| {
            let (plan, workspace, engine) = build(handle)?;
            Ok(Plan { plan: Some(plan), workspace, engine, builder: builder.clone(), context: self.clone() })
        };
        let known = lock(&self.builders).clone();
        for builder in &known {
            let handle = match builder.try_lock() {
                Ok(handle) => handle,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            return build(builder, &handle);
        }
        let new = || handle_at(self.backend, self.extension(), &self.site, self.cache.as_deref()).ok();
        if known.len() < self.most_builders
            && let Some(handle) = new()
        {
            let builder = Arc::new(Mutex::new(handle));
            let handle = lock(&builder);
            lock(&self.builders).push(builder.clone());
            return build(&builder, &handle);
        }
        build(&known[0], &lock(&known[0]))
    }

    /// Builds a plan for a graph with the first engine that makes one.
    ///
    /// # Errors
    /// The engines' reasons, if none does.
    pub(crate) fn plan(self: &Arc<Self>, graph: &[u8], choice: &EngineChoice) -> Result<Plan, NoPlan> {
        self.build_plan(|handle| self.first_plan(handle, graph, choice))
    }

    /// Plan of the first engine that makes one, its workspace's bytes and the engine's name.
    fn first_plan(
        &self,
        handle: &Handle,
        graph: &[u8],
        choice: &EngineChoice,
    ) -> Result<(Descriptor, usize, String), NoPlan> {
        let graph = planning::graph(handle, graph)?;
        let has_gpus = has_gpus();
        let (mut candidates, mut refusals) = self.candidates(&graph, choice, &has_gpus)?;
        candidates.sort_by_key(|candidate| choice.engine.as_ref() != Some(&candidate.name));
        for candidate in candidates {
            match self.planned(handle, &candidate, choice) {
                Ok((plan, workspace)) => return Ok((plan, workspace, candidate.name)),
                Err(error) => refusals.push(format!("{}: {error}", candidate.name)),
            }
        }
        if refusals.is_empty() {
            let possible = self.possible(choice, &has_gpus);
            let words = possible.filter_map(|info| planning::candidate_of(self.backend, &graph, info).err());
            refusals.extend(words.map(|error| error.to_string()));
        }
        Err(NoPlan(if refusals.is_empty() { "no engine takes it".to_string() } else { refusals.join("; ") }))
    }

    /// Candidate's plan with the choice's knobs, and the bytes of workspace that it wants. The CPU engine has the same knobs for
    /// every graph, and is asked for them once.
    fn planned(
        &self,
        handle: &Handle,
        candidate: &Candidate,
        choice: &EngineChoice,
    ) -> Result<(Descriptor, usize), BackendError> {
        if candidate.name != HOST_ENGINE || choice.knobs.is_empty() {
            return planning::plan(handle, candidate, &choice.knobs);
        }
        let offered = match self.host_knobs.get() {
            Some(offered) => offered,
            None => {
                let offered = planning::knobs(&candidate.engine)?;
                if offered.is_empty() {
                    // The backend could not say.
                    return planning::plan_offered(handle, candidate, &choice.knobs, &offered);
                }
                self.host_knobs.get_or_init(|| offered)
            }
        };
        planning::plan_offered(handle, candidate, &choice.knobs, offered)
    }

    /// Engines that may serve the provider.
    fn possible<'a>(
        &'a self,
        choice: &'a EngineChoice,
        has_gpus: &'a LazyCell<bool>,
    ) -> impl Iterator<Item = &'a EngineInfo> + 'a {
        self.engines.iter().filter(|engine| choice.refuses(&engine.name, &self.site, has_gpus).is_none())
    }

    /// Candidates for a graph, and the reasons against other engines. Where one engine may serve the provider and the user
    /// ranks none, there is nothing to ask the backend's heuristics.
    ///
    /// # Errors
    /// The backend's status.
    fn candidates(
        &self,
        graph: &Descriptor,
        choice: &EngineChoice,
        has_gpus: &LazyCell<bool>,
    ) -> Result<(Vec<Candidate>, Vec<String>), BackendError> {
        let mut possible = self.possible(choice, has_gpus);
        if let (Some(only), None, false) = (possible.next(), possible.next(), planning::has_user_ranking()) {
            return Ok(match planning::candidate_of(self.backend, graph, only) {
                Ok(candidate) => (vec![candidate], Vec::new()),
                Err(error) => (Vec::new(), vec![error.to_string()]),
            });
        }
        let (offered, mut refusals) = planning::candidates(self.backend, graph, &self.engines)?;
        let mut candidates = Vec::new();
        for candidate in offered {
            match choice.refuses(&candidate.name, &self.site, has_gpus) {
                Some(refusal) => refusals.push(refusal),
                None => candidates.push(candidate),
            }
        }
        Ok((candidates, refusals))
    }

    /// Makes a plan again that [`Plan::serialize`] gave, in this process or another: nothing is searched or compiled. What
    /// an engine prepares when it builds a plan it prepares here ([`Extension::with_constants`]).
    ///
    /// # Errors
    /// The reason: the bytes are of another version, another device or damaged, or of an engine that must not have the
    /// tensors.
    pub(crate) fn plan_from(self: &Arc<Self>, bytes: &[u8], choice: &EngineChoice) -> Result<Plan, NoPlan> {
        self.build_plan(|handle| {
            let plan = Descriptor::stored_plan(handle, bytes)?;
            let id = plan.get::<i64>(AttributeName::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT)?;
            let known = self.engines.iter().find(|engine| engine.id == id);
            let engine = known.map_or_else(|| format!("engine {id}"), |engine| engine.name.clone());
            if let Some(refusal) = choice.refuses(&engine, &self.site, &has_gpus()) {
                return Err(NoPlan(refusal));
            }
            let workspace = planning::workspace_of(&plan)?;
            Ok((plan, workspace, engine))
        })
    }
}

impl std::fmt::Display for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Plugins::Only(path) => write!(f, "{}", path.display()),
            Plugins::Default(_) => f.write_str("the default ones"),
        }
    }
}

/// True if a session of this process has chosen the plugins.
static CHOSEN: AtomicBool = AtomicBool::new(false);

/// True if HIP has GPUs, asked at the first engine that it matters for.
fn has_gpus() -> LazyCell<bool> {
    LazyCell::new(|| gpu::all().is_ok())
}

/// What is asked of engines beside the graph: which is tried first, and its knobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EngineChoice {
    /// The engine that is tried first.
    pub engine: Option<String>,
    /// Knobs to set on an engine that has them.
    pub knobs: Vec<(String, KnobValue)>,
}

impl EngineChoice {
    /// The same with the promise that tensors have known contents.
    pub(crate) fn promising(&self, promise: &Promise) -> EngineChoice {
        let mut choice = self.clone();
        choice.knobs.extend(promise.knob());
        choice
    }

    /// Reason against tensors in that memory for an engine; `None` if it may have them.
    fn refuses(&self, engine: &str, site: &Site, has_gpus: &LazyCell<bool>) -> Option<String> {
        match site {
            Site::Host if DEVICE_ENGINES.contains(&engine) => {
                Some(format!("{engine}: expected tensors in a GPU's memory, got the host's"))
            }
            Site::Host => {
                let known = engine == HOST_ENGINE || self.engine.as_deref() == Some(engine);
                let is_stranger = !known && **has_gpus;
                is_stranger.then(|| format!("{engine} is not known to take tensors in the host's memory"))
            }
            Site::Device(_) => {
                (engine == HOST_ENGINE).then(|| format!("{engine}: expected tensors in the host's memory, got a GPU's"))
            }
        }
    }
}

/// Reason for there being no plan, for users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPlan(pub String);

impl From<BackendError> for NoPlan {
    fn from(error: BackendError) -> NoPlan {
        NoPlan(error.to_string())
    }
}

/// The launches of a run of several plans, which one call repeats.
pub(crate) struct Recording {
    context: Arc<Context>,
    raw: RecordingPtr,
}

// SAFETY: the plugin lets recordings be replayed and destroyed by any thread.
unsafe impl Send for Recording {}
// SAFETY: a recording does not change, and may be replayed by several threads at once.
unsafe impl Sync for Recording {}

impl Recording {
    /// Enqueues the launches on a stream of HIP.
    ///
    /// # Safety
    /// The plans live, with the memory that they were executed on, and the stream is of their device.
    ///
    /// # Errors
    /// The number of the execution whose launch failed, with the plugin's words.
    pub(crate) unsafe fn replay(&self, stream: *mut c_void) -> Result<(), (usize, String)> {
        let extension = self.context.extension().expect("whoever recorded has the extension");
        // SAFETY: the recording is the extension's, and is destroyed on drop; the rest is the caller's promise.
        unsafe { extension.replay(self.raw, stream) }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(extension) = self.context.extension() {
            // SAFETY: the recording is the extension's, and not used again.
            unsafe { extension.destroy_recording(self.raw) };
        }
    }
}

/// A plan that is ready to run, on any handle of its context, several times at once.
pub(crate) struct Plan {
    /// There until the plan is dropped.
    plan: Option<Descriptor>,
    workspace: usize,
    engine: String,
    builder: Builder,
    context: Arc<Context>,
}

impl Plan {
    /// The engine that runs it.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// Bytes of memory that it works in.
    pub(crate) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Serialized form of the plan, from which [`Context::plan_from`] makes it again with the same engines for the same device.
    ///
    /// # Errors
    /// The backend's status: not every engine stores plans.
    pub(crate) fn serialize(&self) -> Result<Vec<u8>, Error> {
        // The engine gives the bytes through the handle that the plan was built with, which serves one caller at a time.
        let _builder = lock(&self.builder);
        let plan = self.plan.as_ref().expect("a plan is whole until it is dropped");
        plan.serialized_plan().map_err(|error| Error::failed(error.to_string()))
    }

    /// The context by which its executions can be recorded, if they are on a GPU.
    pub(crate) fn recorder(&self) -> Option<&Arc<Context>> {
        matches!(self.context.site, Site::Device(_)).then_some(&self.context)
    }

    /// A pack of tensors for executions: those with these uids are at these addresses.
    ///
    /// # Errors
    /// The backend's status.
    pub(crate) fn pack(
        &self,
        uids: &[i64],
        addresses: &[*mut c_void],
        workspace: *mut c_void,
    ) -> Result<Descriptor, BackendError> {
        planning::pack(self.context.backend, uids, addresses, workspace)
    }

    /// Runs the plan on a pooled handle, on the tensors of a pack.
    ///
    /// # Safety
    /// Every tensor of the graph that is not virtual is in the pack, with an address of memory of the tensor's type and
    /// extents; nothing else writes to them, or reads the outputs, during the call. The pack's workspace has
    /// [`Plan::workspace`] bytes.
    ///
    /// # Errors
    /// The backend's status.
    pub(crate) unsafe fn execute_on(&self, pooled: &mut PooledHandle, pack: &Descriptor) -> Result<(), BackendError> {
        let plan = self.plan.as_ref().expect("a plan is whole until it is dropped");
        // SAFETY: the caller vouches for the tensors and the workspace.
        unsafe { planning::execute(&pooled.handle, plan, pack, || format!("running {}", self.engine)) }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // A device that can't be entered is lost, and what was on it with it.
        let _entered = self.context.site.enter();
        // The engine destroys it by the handle that it was built with, which serves one caller at a time.
        let _builder = lock(&self.builder);
        self.plan = None;
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path, plugin_directory};
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    /// A tensor, aligned as hipDNN wants them.
    #[repr(align(16))]
    struct Aligned([f32; 5]);

    #[test]
    fn stored_plans_run_as_they_did() {
        let place = std::env::temp_dir().join(format!("hipdnn-rs-stored-plans-{}", std::process::id()));
        let plugins = Plugins::Only(plugin_directory(&place, "engines"));
        let context =
            Context::open(&[library_path(Artifact::Backend)], &plugins, &Site::Host, None).expect("our own backend");
        let mut graph = GraphBuilder::new("stored").compute(DataType::Float);
        let [a, b, c] = [1, 2, 3].map(|uid| graph.tensor(TensorDef::new(uid, DataType::Float, &[5])));
        graph.pointwise(Pointwise::binary(PointwiseMode::Sub, a, b, c));
        let graph = graph.build().expect("a right graph").def().to_bytes();
        let choice = EngineChoice::default();
        let plan = match context.plan(&graph, &choice) {
            Ok(plan) => plan,
            // The engine leaves graphs to the engines of a GPU.
            Err(NoPlan(reason)) => return assert!(reason.contains("GPU") || reason.contains("no engine"), "{reason}"),
        };
        let run = |plan: &Plan| {
            let (a, b) = ([1.5, 2.0, -3.0, 0.1, 7.0], [0.3, 2.0, 8.0, -0.1, 1.0]);
            let mut tensors = [a, b, [f32::NAN; 5]].map(Aligned);
            let addresses = tensors.each_mut().map(|tensor| (&raw mut tensor.0).cast());
            let mut pooled = context.pooled_handle().expect("a handle");
            let workspace = pooled.memory(plan.workspace()).expect("memory");
            let pack = plan.pack(&[1, 2, 3], &addresses, workspace).expect("a pack");
            // SAFETY: the tensors have five numbers each, and the workspace the plan's size.
            unsafe { plan.execute_on(&mut pooled, &pack) }.expect("an execution");
            context.put_back(pooled);
            tensors[2].0
        };
        let (wanted, stored) = (run(&plan), plan.serialize().expect("the engine stores plans"));
        assert_eq!(wanted, [1.5 - 0.3, 0.0, -11.0, 0.1 + 0.1, 6.0]);
        let again = context.plan_from(&stored, &choice).expect("it was just stored");
        assert_eq!((again.engine(), again.workspace()), (plan.engine(), plan.workspace()));
        // While the first handle is busy plans are built with another one, which is free for the next then.
        let known = lock(&context.builders).clone();
        let busy: Vec<_> = known.iter().map(|builder| lock(builder)).collect();
        let beside = context.plan(&graph, &choice).expect("a plan was built before");
        assert!(known.iter().all(|builder| !Arc::ptr_eq(builder, &beside.builder)));
        drop(busy);
        assert_eq!(run(&beside), wanted);
        assert_eq!(lock(&context.builders).len(), known.len() + 1);
        assert!(Arc::ptr_eq(&context.plan(&graph, &choice).expect("again").builder, &known[0]));
        drop((plan, beside));
        assert_eq!(run(&again), wanted);
        let mut damaged = stored.clone();
        // The engine's own bytes have a checksum; what is around them is the backend's.
        let engines = damaged.windows(7).position(|window| window == b"HDNNRSP").expect("the engine's bytes");
        damaged[engines + 40] ^= 1;
        for (what, bytes) in [("half", &stored[..stored.len() / 2]), ("another byte", &damaged), ("nothing", &[])] {
            assert!(context.plan_from(bytes, &choice).is_err_and(|reason| !reason.0.is_empty()), "{what}");
        }
        let _ = std::fs::remove_dir_all(place);
    }

    #[test]
    fn engines_of_devices_never_get_host_memory() {
        for (chosen, engine, taken) in [
            (None, HOST_ENGINE, true),
            (Some("SOME_ENGINE"), "SOME_ENGINE", true),
            (None, "HIPDNN_RS_GPU_ENGINE", false),
            (Some("HIPDNN_RS_GPU_ENGINE"), "HIPDNN_RS_GPU_ENGINE", false),
            (Some("MIOPEN_ENGINE"), "MIOPEN_ENGINE", false),
        ] {
            let choice = EngineChoice { engine: chosen.map(str::to_string), knobs: Vec::new() };
            assert_eq!(
                choice.refuses(engine, &Site::Host, &has_gpus()).is_none(),
                taken,
                "{engine}, chosen {chosen:?}"
            );
        }
    }
}
