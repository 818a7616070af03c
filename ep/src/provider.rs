//! The provider of one session: claims nodes and compiles them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_ep_compiler::constants::{Contents, Token};
use hipdnn_ep_compiler::cost;
use hipdnn_ep_compiler::import;
use hipdnn_ep_compiler::ir::Function;
use hipdnn_ep_compiler::model::{self, Model, Target};
use hipdnn_sdk_bindings::ort::{
    self, Ep, EpGraphSupportInfo, EpProfilerImpl, NodeComputeInfo, NodeFusionOptions, Status,
};

use crate::backend::{Context, Site};
use crate::claim::{self, Claims};
use crate::compiled::{Compatibility, Compiled};
use crate::dump::{Content, Dump};
use crate::ep_context;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::gpu::session::OnDevice;
use crate::graph::{Graph, Node};
use crate::kernel::{ASSUMED_BATCH, Constants, Kernel};
use crate::log::Logger;
use crate::options::Options;
use crate::planner::{Dumps, Planner, Purpose};
use crate::pointer::{Handles, Held, Place, array};
use crate::profile::Profiler;
use crate::read;
use crate::report::{self, Report};
use crate::runtime::{Runtime, caught};
use crate::search::{self, Environment};
use crate::storage::{self, Storage};

/// The runtime's object for a session: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Provider {
    callbacks: Ep,
    runtime: Runtime,
    logger: Logger,
    options: Options,
    report: Option<Report>,
    /// Asks the backend, or says why there is none.
    planner: Result<Arc<Planner>, String>,
    /// True once nodes were claimed.
    has_claimed: AtomicBool,
    /// Names of constants whose addresses may differ between runs.
    moving: Mutex<HashSet<String>>,
    device: Option<OnDevice>,
    /// Compatibility of compiled models of this session.
    compatibility: Compatibility,
    compatibility_text: CString,
    /// Callbacks for compiled models' payloads, if the application keeps them itself.
    storage: Storage,
    /// The name that the library was registered under, by which some hosts know the provider's nodes.
    registered_name: String,
}

impl Provider {
    /// The runtime that the session is of.
    pub(crate) fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// The session's logger.
    pub(crate) fn logger(&self) -> Logger {
        self.logger
    }

    /// The session's part on a GPU, if its tensors are there.
    pub(crate) fn on_device(&self) -> Option<&OnDevice> {
        self.device.as_ref()
    }

    /// Makes the provider of a session, whose tensors are in a GPU's memory or the host's.
    ///
    /// # Errors
    /// If the options are wrong, or name what is not there.
    pub(crate) fn new(
        runtime: Runtime,
        logger: Logger,
        options: Options,
        storage: Storage,
        gpu: Option<&'static Gpu>,
        registered_name: &str,
    ) -> Result<Box<Provider>, Error> {
        let report = options.report.as_deref().map(|path| Report::open(path, logger)).transpose()?;
        let dump =
            |path: &Option<PathBuf>, content| path.as_deref().map(|path| Dump::open(path, content, logger)).transpose();
        let dumps = Dumps {
            graphs: dump(&options.dump_graphs, Content::Graphs)?,
            stages: dump(&options.dump_ir, Content::Stages)?,
        };
        let device = gpu.map(|gpu| OnDevice::new(runtime, gpu, &options, registered_name)).transpose()?;
        let context = open_backend(&options, gpu.map_or(Site::Host, Site::Device))?;
        match &context {
            Ok(context) => {
                if let Some(wanted) = &options.engine
                    && !context.engines().is_empty()
                    && !context.engines().iter().any(|engine| engine.name == *wanted)
                {
                    let names: Vec<_> = context.engines().iter().map(|engine| engine.name.as_str()).collect();
                    return Err(Error::invalid(format!(
                        "{}: expected an engine of {} among {}, got {wanted:?}",
                        crate::NAME_TEXT,
                        context.path().display(),
                        names.join(", ")
                    )));
                }
                logger.info(|| {
                    let version = context.version().unwrap_or_else(|| "unknown".to_string());
                    let engines: Vec<_> = context.engines().iter().map(|engine| engine.name.as_str()).collect();
                    let (path, engines) = (context.path(), engines.join(", "));
                    format!("{}: backend {} version {version}, engines: {engines}", crate::NAME_TEXT, path.display())
                });
            }
            Err(reason) => {
                logger.warning(|| format!("{} takes no nodes: {reason}", crate::NAME_TEXT));
            }
        }
        if let Some(report) = &report {
            let backend = context.as_ref().ok();
            report.append(&[report::Session {
                provider: crate::NAME_TEXT,
                version: crate::VERSION_TEXT,
                onnxruntime: runtime.text,
                backend: backend.map(|context| context.path().display().to_string()),
                backend_version: backend.and_then(|context| context.version()),
                device: gpu.map(|gpu| format!("{} ({})", gpu.ordinal(), gpu.name)),
                engines: backend.into_iter().flat_map(|c| c.engines()).map(|engine| engine.name.clone()).collect(),
                reason: context.as_ref().err().cloned(),
            }]);
        }
        let mut callbacks = Ep {
            ort_version_supported: runtime.version(),
            get_name: Some(get_name),
            get_capability: Some(get_capability),
            compile: Some(compile),
            release_node_compute_infos: Some(release_node_compute_infos),
            get_compiled_model_compatibility_info: Some(get_compiled_model_compatibility_info),
            is_concurrent_run_supported: Some(is_concurrent_run_supported),
            on_session_initialization_end: Some(on_session_initialization_end),
            get_ep_context_data_callback_support: Some(get_ep_context_data_callback_support),
            create_profiler: runtime.ep.create_profiling_event().map(|_| create_profiler as _),
            ..Ep::default()
        };
        if let Some(device) = &device {
            device.serve(&mut callbacks);
        }
        let planner = context.map(|context| Arc::new(Planner::new(context, &options, dumps)));
        let has_claimed = AtomicBool::new(false);
        let registered_name = registered_name.to_string();
        let compatibility = compatibility(gpu);
        let compatibility_text = CString::new(compatibility.0.as_str()).unwrap_or_default();
        Ok(Box::new(Provider {
            callbacks,
            runtime,
            logger,
            options,
            report,
            planner,
            has_claimed,
            moving: Mutex::default(),
            device,
            compatibility,
            compatibility_text,
            storage,
            registered_name,
        }))
    }

    /// The callbacks, as the runtime holds them; [`Provider::take_back`] undoes it.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut Ep {
        debug_assert!(self.callbacks.get_name.is_some());
        let raw = Box::into_raw(self).cast();
        PROVIDERS.add(raw);
        raw
    }

    /// # Safety
    /// Nobody uses the provider any more.
    ///
    /// # Errors
    /// If it did not come from [`Provider::into_raw`], or was taken back.
    pub(crate) unsafe fn take_back(raw: *mut Ep) -> Result<(), Error> {
        PROVIDERS.remove(raw)?;
        // SAFETY: the callbacks are the first member of a provider, which was boxed and is known no more.
        let provider = unsafe { Box::from_raw(raw.cast::<Provider>()) };
        let gpu = provider.device.as_ref().map(|device| device.gpu());
        drop(provider);
        // Memory that a session leaves is not kept for one that may never come.
        if let Some(gpu) = gpu {
            gpu.shrink();
        }
        Ok(())
    }

    /// # Safety
    /// `graph` and `info` are the runtime's, of one call of `GetCapability`.
    unsafe fn claim(&self, graph: *const ort::Graph, info: *mut EpGraphSupportInfo) -> Result<(), Error> {
        // SAFETY: the graph lives during the call, and nothing below keeps it.
        let graph = unsafe { Graph::new(&self.runtime, graph) }?;
        let path = graph.path()?;
        let nodes = graph.nodes()?;
        let contents = RefCell::new(Contents::new());
        let mut model = read::model(&graph, &|bytes| self.token(bytes, &contents))?;
        model.target = self.target();
        self.note_moving(&graph, &model)?;
        let mut claims = self.decide(&graph, &model, &contents.into_inner())?;
        for (index, node) in model.nodes.iter().enumerate() {
            let taken = self.planner.is_ok() && !self.options.disable && ep_context::is_ours(node);
            if taken && self.may_take(node) {
                // SAFETY: `info` is of this call.
                unsafe { self.add_claim(info, &[nodes[index]]) }?;
                claims.reasons[index] = None;
                self.has_claimed.store(true, Ordering::Relaxed);
            }
        }
        for partition in &claims.partitions {
            let members: Vec<Node<'_>> = partition.nodes.iter().map(|index| nodes[*index]).collect();
            // SAFETY: `info` is of this call.
            unsafe { self.add_claim(info, &members) }?;
            self.has_claimed.store(true, Ordering::Relaxed);
        }
        if let Some(report) = &self.report {
            report.append(&report::entries(&model, &path, &claims));
        }
        self.logger.info(|| {
            let taken: usize = claims.partitions.iter().map(|partition| partition.nodes.len()).sum();
            let (all, programs) = (nodes.len(), claims.partitions.len());
            format!("{} takes {taken} of {all} nodes of {path}, in {programs} programs", crate::NAME_TEXT)
        });
        Ok(())
    }

    /// Takes note of constants that a run may have somewhere else than the run before. The runtime hands out the session's own
    /// initializers, but for those that it copies: into the buffer of an output of the graph, and for a body that runs on another
    /// device than the graph around it.
    fn note_moving(&self, graph: &Graph<'_>, model: &Model) -> Result<(), Error> {
        let is_body = graph.is_body()?;
        let moving = model.values.iter().filter(|value| value.constant.is_some() && (is_body || value.is_output));
        self.moving().extend(moving.map(|value| value.name.clone()));
        Ok(())
    }

    fn moving(&self) -> MutexGuard<'_, HashSet<String>> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes of a graph that become programs.
    fn decide(&self, graph: &Graph<'_>, model: &Model, contents: &[(Token, &[u8])]) -> Result<Claims, Error> {
        let none = |reason: &str| Claims {
            partitions: Vec::new(),
            reasons: vec![Some(reason.to_string()); model.nodes.len()],
        };
        if self.options.disable {
            return Ok(none("the provider is disabled by its option \"disable\""));
        }
        let planner = match &self.planner {
            Ok(planner) => planner,
            Err(reason) => return Ok(none(reason)),
        };
        if self.runtime.confuses_fused_nodes() && (self.has_claimed.load(Ordering::Relaxed) || graph.is_body()?) {
            // It names those of a body, and of a graph that it offers again once it has inlined functions, like the first ones.
            let reason = format!("ONNX Runtime {} takes fused nodes in one graph of a model only", self.runtime.text);
            return Ok(none(&reason));
        }
        if graph.is_inlined()? {
            return Ok(none("ONNX Runtime takes no fused nodes in bodies of functions that it inlines"));
        }
        let owned = |node: &model::Node| {
            let stranger = !self.may_take(node);
            stranger.then(|| format!("{} has it already", node.owner))
        };
        let reasons = model.nodes.iter().map(owned).collect();
        // A plan that is not kept would prepare weights in vain.
        let entering = import::entering(model, &(0..model.nodes.len()).collect());
        let is_kept = model.dims_of_batch(&entering, ASSUMED_BATCH).is_some();
        let contents = if is_kept { contents } else { &[] };
        let worthwhile = |model: &Model, nodes: &[usize], function: &Function, traffic| {
            if self.options.cost_rule { cost::pays(model, nodes, function, traffic) } else { Ok(()) }
        };
        let claims = claim::claim(model, reasons, &worthwhile, &mut |question| {
            planner.plan(&question, contents, Purpose::Claim)
        });
        Ok(claims)
    }

    /// True if a node is no other provider's.
    fn may_take(&self, node: &model::Node) -> bool {
        ["", crate::NAME_TEXT, &self.registered_name].contains(&node.owner.as_str())
    }

    /// Kind of processor that the session's programs are for.
    fn target(&self) -> Target {
        if self.device.is_some() { Target::Gpu } else { Target::Cpu }
    }

    /// The token of an initializer's bytes, which are added to `contents` with it.
    /// Nothing is promised of what is in a GPU's memory: engines prepare no weights there.
    fn token<'a>(&self, bytes: &'a [u8], contents: &RefCell<Contents<'a>>) -> Option<Token> {
        if self.device.is_some() {
            return None;
        }
        let token = Token::of(bytes);
        contents.borrow_mut().push((token, bytes));
        Some(token)
    }

    /// Forgets what was only asked about: programs hold their plans.
    fn settle(&self) {
        if let Ok(planner) = &self.planner {
            planner.settle();
        }
    }

    /// # Safety
    /// `info` is of the running call of `GetCapability`.
    unsafe fn add_claim(&self, info: *mut EpGraphSupportInfo, nodes: &[Node<'_>]) -> Result<(), Error> {
        let raw: Vec<_> = nodes.iter().map(Node::as_ptr).collect();
        // Constants stay inputs: the runtime keeps them, and hands the same memory to every run.
        let options =
            NodeFusionOptions { ort_version_supported: self.runtime.version(), drop_constant_initializers: false };
        // SAFETY: the nodes are of this call's graph, `raw` and `options` are valid for the call.
        let status = unsafe { self.runtime.ep.add_nodes_to_fuse()(info, raw.as_ptr(), raw.len(), &options) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }
    }

    /// The compute function of a partition, and its node in a compiled model where one is wanted; null otherwise.
    ///
    /// # Safety
    /// `graph` and `node` are the runtime's, of one call of `Compile`.
    unsafe fn compile(
        &self,
        graph: *const ort::Graph,
        node: *const ort::Node,
        is_main: bool,
    ) -> Result<(Box<Kernel>, *mut ort::Node), Error> {
        // SAFETY: both live during the call, and nothing below keeps them.
        let (graph, node) = unsafe { (Graph::new(&self.runtime, graph)?, Node::new(&self.runtime, node)?) };
        let planner = self.planner.as_ref().map_err(|reason| Error::failed(reason.clone()))?;
        let contents = RefCell::new(Contents::new());
        let token = |bytes| self.token(bytes, &contents);
        let model = match ep_context::find(&graph)? {
            Some(compiled) => {
                let place = format!("{} ({})", node.name()?, crate::NAME_TEXT);
                self.compiled_model(planner, &graph, &compiled, &token).map_err(|error| error.at(place))?
            }
            None => Model { target: self.target(), ..read::fused(&graph, &node, &token)? },
        };
        let stored = self.options.compiled.enable.then(|| model.clone());
        let device = self.device.as_ref().map(|device| device.device().clone());
        let (name, capacity) = (node.name()?, self.options.plan_cache);
        let mut constants = model.inputs.iter().map(|value| &model.values[*value]);
        let is_fixed = {
            let moving = self.moving();
            !constants.any(|value| value.constant.is_some() && moving.contains(&value.name))
        };
        let contents = contents.into_inner();
        let constants = Constants { contents: &contents, is_fixed };
        let kernel = Kernel::new(self.runtime, planner.clone(), device, name, model, &constants, capacity);
        kernel.prepare(&contents)?;
        let mut context_node = std::ptr::null_mut();
        // Programs for free extents that were not assumed are built when they are known: their plans are none of the
        // compiled model's.
        if let (Some(model), Some(plans)) = (stored, planner.take_made()?) {
            let compatibility = self.compatibility.clone();
            let payload = Compiled { compatibility, model, plans }.to_bytes().map_err(Error::failed)?;
            let (to, on) = ((&self.options.compiled, &self.storage), &self.compatibility.0);
            context_node = ep_context::create(&self.runtime, &graph, &node, &payload, on, to, is_main)?;
        }
        Ok((kernel, context_node))
    }

    /// The nodes of a partition that was compiled before, whose plans the planner is given.
    fn compiled_model<'a>(
        &self,
        planner: &Planner,
        graph: &Graph<'a>,
        node: &Node<'a>,
        token: read::Naming<'_, 'a>,
    ) -> Result<Model, Error> {
        let payload = ep_context::payload(&self.runtime, graph, node, &self.options.compiled, &self.storage)?;
        let Compiled { mut model, plans, .. } =
            Compiled::parse(&payload, &self.compatibility).map_err(Error::invalid)?;
        read::bind_constants(&mut model, node, token)?;
        planner.bring(plans);
        Ok(model)
    }
}

/// Compatibility of models that are compiled for a GPU, or for the host.
pub(crate) fn compatibility(gpu: Option<&Gpu>) -> Compatibility {
    Compatibility::of(gpu.map_or("cpu", |gpu| &gpu.architecture))
}

/// Forgets questions when compiling ends, however it does: not every host says that a session is complete.
struct Forgetting<'a>(&'a Provider);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

/// Opens the backend. That it is nowhere is an answer: the session runs without this provider's help, unless somebody
/// named a library or plugins.
fn open_backend(options: &Options, site: Site) -> Result<Result<Arc<Context>, String>, Error> {
    if options.disable {
        return Ok(Err("the provider is disabled by its option \"disable\"".to_string()));
    }
    let surroundings = Environment::current();
    let (candidates, named) = search::backend_candidates(options, &surroundings);
    let plugins = search::plugins(options, &surroundings);
    match Context::open(&candidates, &plugins, &site, options.cache_dir.as_deref()) {
        Ok(context) => Ok(Ok(context)),
        Err(error) if named || options.plugin_dir.is_some() => Err(error.at(crate::NAME_TEXT)),
        Err(error) => Ok(Err(error.message)),
    }
}

/// The providers of this process.
pub(crate) static PROVIDERS: Handles<Provider> = Handles::new("provider");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Provider {
    type Callbacks = Ep;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

unsafe extern "system" fn get_name(_this: *const Ep) -> *const c_char {
    crate::NAME.as_ptr()
}

unsafe extern "system" fn get_capability(
    this: *mut Ep,
    graph: *const ort::Graph,
    info: *mut EpGraphSupportInfo,
) -> *mut Status {
    PROVIDERS.with(this, |provider| {
        if info.is_null() {
            return Err(Error::invalid(format!("{}: the place for claims is null", crate::NAME_TEXT)));
        }
        // SAFETY: graph and info are of this call.
        unsafe { provider.claim(graph, info) }
    })
}

unsafe extern "system" fn compile(
    this: *mut Ep,
    graphs: *mut *const ort::Graph,
    fused_nodes: *mut *const ort::Node,
    count: usize,
    infos: *mut *mut NodeComputeInfo,
    ep_context_nodes: *mut *mut ort::Node,
) -> *mut Status {
    PROVIDERS.with(this, |provider| {
        let _forgetting = Forgetting(provider);
        // SAFETY: the arrays have `count` elements, if they are there.
        let (graphs, fused_nodes) = unsafe {
            (array(graphs, count, "the array of graphs")?, array(fused_nodes, count, "the array of fused nodes")?)
        };
        let places = (0..count).map(|index| {
            // SAFETY: the array has `count` elements for us to write, if it is there.
            unsafe { Place::new(infos.wrapping_add(index), "the array of compute functions") }
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let context_places = if provider.options.compiled.enable {
            let place = |index| {
                // SAFETY: the array has `count` elements for us to write, if it is there.
                unsafe { Place::new(ep_context_nodes.wrapping_add(index), "the array of EPContext nodes") }
            };
            (0..count).map(place).collect::<Result<Vec<_>, _>>()?
        } else {
            Vec::new()
        };
        let mut kernels = Vec::with_capacity(count);
        for (graph, fused) in graphs.iter().zip(fused_nodes) {
            // SAFETY: graph and node are of this call.
            kernels.push(unsafe { provider.compile(*graph, *fused, kernels.is_empty()) }?);
        }
        // Only now, when nothing can fail any more, does the runtime get them.
        for (index, (place, (kernel, context_node))) in places.iter().zip(kernels).enumerate() {
            place.set(kernel.into_raw());
            // The runtime takes the node over.
            if let Some(place) = context_places.get(index).filter(|_| !context_node.is_null()) {
                place.set(context_node);
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn get_compiled_model_compatibility_info(
    this: *mut Ep,
    _graph: *const ort::Graph,
) -> *const c_char {
    PROVIDERS.look(this, |provider| provider.compatibility_text.as_ptr()).unwrap_or(std::ptr::null())
}

unsafe extern "system" fn release_node_compute_infos(_this: *mut Ep, infos: *mut *mut NodeComputeInfo, count: usize) {
    // Neither a panic while dropping nor a stranger can be told.
    let _ = caught(|| {
        // SAFETY: the array has `count` elements, if it is there.
        for info in unsafe { array(infos, count, "the array of compute functions") }? {
            // SAFETY: the runtime does not use the kernel again; what is none is told by its address.
            let _ = caught(|| unsafe { Kernel::take_back(*info) });
        }
        Ok(())
    });
}

unsafe extern "system" fn is_concurrent_run_supported(this: *mut Ep, supported: *mut bool) -> *mut Status {
    PROVIDERS.with(this, |provider| {
        // Captured runs share one stream.
        let captures = provider.device.as_ref().is_some_and(OnDevice::captures_runs);
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(supported, "the place for the answer") }?.set(!captures);
        Ok(())
    })
}

unsafe extern "system" fn on_session_initialization_end(this: *mut Ep) -> *mut Status {
    PROVIDERS.with(this, |provider| {
        provider.settle();
        Ok(())
    })
}

unsafe extern "system" fn get_ep_context_data_callback_support(this: *const Ep, flags: *mut u32) -> *mut Status {
    PROVIDERS.with(this, |_| {
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(flags, "the place for the answer") }?.set(storage::SERVED);
        Ok(())
    })
}

unsafe extern "system" fn create_profiler(this: *mut Ep, profiler: *mut *mut EpProfilerImpl) -> *mut Status {
    PROVIDERS.with(this, |provider| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(profiler, "the place for the profiler") }?;
        place.set(Profiler::create(provider.runtime).unwrap_or(std::ptr::null_mut()));
        Ok(())
    })
}
