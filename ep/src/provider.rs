//! The provider of one session: claims nodes and compiles them.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hipdnn_schemas::KnobValue;
use hipdnn_sdk_bindings::ort::{self, Ep, EpGraphSupportInfo, NodeComputeInfo, NodeFusionOptions, Status};

use crate::backend::{Context, NoPlan, Plan, Wish};
use crate::claim::{self, Recognised};
use crate::compute::{Constant, Input, Kernel, MAX_INPUTS, Role};
use crate::constants::{Contents, Guesses, Promise, Token};
use crate::device;
use crate::dump::Dump;
use crate::error::Error;
use crate::graph::{Graph, Node, TensorType, ValueInfo};
use crate::log::Logger;
use crate::options::Options;
use crate::pointer::{Handles, Place, array};
use crate::report::{self, Entry, Report};
use crate::runtime::{Runtime, caught, status_of};
use crate::search::{self, Surroundings};
use crate::translate::{B, RESIDUAL, W, X};

/// What the runtime holds for a session: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Provider {
    callbacks: Ep,
    runtime: Runtime,
    logger: Logger,
    options: Options,
    report: Option<Report>,
    dump: Option<Arc<Dump>>,
    /// The backend, or why there is none.
    context: Result<Arc<Context>, String>,
    host_memory_only: bool,
    /// The first graph that nodes were claimed in.
    claimed_graph: OnceLock<String>,
    /// What the backend said to each question of this session: a plan that `Compile` will use, or an engine's name, or why
    /// there is none.
    answers: Mutex<HashMap<Question, Result<Answer, String>>>,
    guesses: Guesses,
}

/// A question to the backend: the graph and what is wished beyond it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    graph: Vec<u8>,
    knobs: Vec<(String, String)>,
}

#[derive(Clone)]
struct Answer {
    engine: String,
    workspace: usize,
    /// Kept if the extents are those of every run.
    plan: Option<Arc<Plan>>,
}

/// Threads of the host engine.
const THREADS_KNOB: &str = "hipdnn_rs.host.threads";
/// Whether the host engine keeps threads of its own.
const POOL_KNOB: &str = "hipdnn_rs.host.pool";
/// Whether the host engine may use Winograd's algorithm.
const WINOGRAD_KNOB: &str = "hipdnn_rs.host.winograd";

/// What stands for an unknown batch when the backend is asked about a graph.
const LIKELY_BATCH: i64 = 1;
/// What stands for an unknown spatial extent, if the window is not larger.
const LIKELY_EXTENT: i64 = 32;

impl Provider {
    /// Makes the provider of a session.
    ///
    /// # Errors
    /// If the options are wrong, or name what is not there.
    pub(crate) fn new(runtime: Runtime, logger: Logger, options: Options) -> Result<Box<Provider>, Error> {
        let report = options.report.as_deref().map(|path| Report::open(path, logger)).transpose()?;
        let dump = options.dump_graphs.as_deref().map(|path| Dump::open(path, logger)).transpose()?.map(Arc::new);
        let context = open_backend(&options)?;
        match &context {
            Ok(context) => {
                if let Some(wanted) = &options.engine
                    && !context.engines().is_empty()
                    && !context.engines().iter().any(|engine| engine.name == *wanted)
                {
                    let names: Vec<_> = context.engines().iter().map(|engine| engine.name.as_str()).collect();
                    return Err(Error::invalid(format!(
                        "{}: {} has no engine {wanted:?}; it has {}",
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
                engines: backend.into_iter().flat_map(|c| c.engines()).map(|engine| engine.name.clone()).collect(),
                reason: context.as_ref().err().cloned(),
            }]);
        }
        let callbacks = Ep {
            ort_version_supported: runtime.version(),
            get_name: Some(get_name),
            get_capability: Some(get_capability),
            compile: Some(compile),
            release_node_compute_infos: Some(release_node_compute_infos),
            is_concurrent_run_supported: Some(is_concurrent_run_supported),
            on_session_initialization_end: Some(on_session_initialization_end),
            ..Ep::default()
        };
        let host_memory_only = device::gpu_usable();
        let answers = Mutex::new(HashMap::new());
        let claimed_graph = OnceLock::new();
        Ok(Box::new(Provider {
            callbacks,
            runtime,
            logger,
            options,
            report,
            dump,
            context,
            host_memory_only,
            claimed_graph,
            answers,
            guesses: Guesses::default(),
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
        drop(unsafe { Box::from_raw(raw.cast::<Provider>()) });
        Ok(())
    }

    /// # Safety
    /// `graph` and `info` are the runtime's, of one call of `GetCapability`.
    unsafe fn claim(&self, graph: *const ort::Graph, info: *mut EpGraphSupportInfo) -> Result<(), Error> {
        // SAFETY: the graph lives during the call, and nothing below keeps it.
        let graph = unsafe { Graph::new(&self.runtime, graph) }?;
        let path = graph.path()?;
        let nodes = graph.nodes()?;
        let one_graph_only = self.runtime.confuses_fused_nodes() && self.is_second_graph(&graph, &path)?;
        let mut entries = Vec::with_capacity(nodes.len());
        let mut taken: HashMap<usize, (Answer, String)> = HashMap::new();
        let mut claims = 0;
        for node in &nodes {
            let id = node.id()?;
            let decision = if let Some((answer, _)) = taken.get(&id) {
                Ok(answer.clone())
            } else if one_graph_only && claim::begins_group(node)? {
                Err(format!("ONNX Runtime {} takes fused nodes in one graph of a model only", self.runtime.text))
            } else {
                match self.decide(node, |id| taken.contains_key(&id)) {
                    Err(reason) => Err(reason),
                    Ok((answer, members)) => {
                        // SAFETY: `info` is of this call.
                        unsafe { self.add_claim(info, &members) }?;
                        claims += 1;
                        self.claimed_graph.get_or_init(|| path.clone());
                        let first = node.label()?;
                        for member in &members {
                            taken.insert(member.id()?, (answer.clone(), first.to_string()));
                        }
                        self.logger.verbose(|| {
                            let count = members.len();
                            format!("{}: {} runs {count} nodes from {first} on", crate::NAME_TEXT, answer.engine)
                        });
                        Ok(answer)
                    }
                }
            };
            if self.report.is_some() {
                let group = taken.get(&id).map(|(_, first)| first.clone());
                entries.push(entry(node, &path, &decision, group)?);
            }
        }
        if let Some(report) = &self.report {
            report.append(&entries);
        }
        self.logger.info(|| {
            let (taken, all) = (taken.len(), nodes.len());
            format!("{} takes {taken} of {all} nodes of {path}, in {claims} groups", crate::NAME_TEXT)
        });
        Ok(())
    }

    /// Whether claims in this graph could meet claims in another one: the main graph should have them.
    fn is_second_graph(&self, graph: &Graph<'_>, path: &str) -> Result<bool, Error> {
        Ok(self.claimed_graph.get().is_some_and(|claimed| claimed != path) || graph.is_body()?)
    }

    /// Whether this provider runs a node and with which others, or why not.
    fn decide<'a>(&self, node: &Node<'a>, taken: impl Fn(usize) -> bool) -> Result<(Answer, Vec<Node<'a>>), String> {
        if self.options.disable {
            return Err("the provider is disabled by its option \"disable\"".to_string());
        }
        let owner = node.ep_name().map_err(|error| error.message)?;
        if !owner.is_empty() && owner != crate::NAME_TEXT {
            return Err(format!("{owner} has it already"));
        }
        claim::recognise(&[*node]).map_err(|declined| declined.0)?;
        let context = self.context.as_ref().map_err(Clone::clone)?;
        let mut sizes = if self.options.fuse {
            claim::grow(*node, taken).map_err(|error| error.message)?
        } else {
            vec![vec![*node]]
        };
        // The largest group that an engine takes.
        let mut refusal = String::new();
        while let Some(members) = sizes.pop() {
            let recognised = claim::recognise(&members).map_err(|declined| declined.0)?;
            let (extents, fixed) = likely_extents(&recognised);
            let (promise, contents) = self.promise(&recognised).map_err(|error| error.message)?;
            let wish = self.wish().promising(&promise);
            // A plan that is not kept would prepare weights in vain.
            let contents = if fixed { &contents[..] } else { &[] };
            match self.ask(context, &recognised, &extents, (&wish, contents), fixed) {
                Ok(answer) => return Ok((answer, members)),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// Asks the backend about the graph for these extents; keeps the plan if they are those of every run.
    fn ask(
        &self,
        context: &Arc<Context>,
        recognised: &Recognised<'_>,
        extents: &[i64],
        (wish, contents): (&Wish, &[(Token, &[u8])]),
        fixed: bool,
    ) -> Result<Answer, String> {
        let geometry = recognised.group.geometry(extents)?;
        let graph = recognised.group.graph(&geometry).to_bytes();
        let knobs = wish.knobs.iter().map(|(name, value)| (name.clone(), format!("{value:?}"))).collect();
        let question = Question { graph, knobs };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&question) {
            return answer.clone();
        }
        let plan = context.plan_with_constants(&question.graph, wish, contents);
        let refusal = |error: NoPlan| match geometry.beyond_32_bits() {
            Some(beyond) => format!("{error}: {beyond}"),
            None => error.to_string(),
        };
        let answer = plan.map_err(refusal).map(|plan| {
            let (engine, workspace) = (plan.engine().to_string(), plan.workspace());
            Answer { engine, workspace, plan: fixed.then(|| Arc::new(plan)) }
        });
        answers.insert(question, answer.clone());
        answer
    }

    /// Drops what was asked before compiling: kernels have their plans by then.
    fn forget(&self) {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        // Plans may take long to drop: not under the lock.
        drop(answers);
        self.guesses.clear();
    }

    /// The promise about the model's constants, and the bytes of those whose tokens are no guess.
    fn promise<'a>(&self, recognised: &Recognised<'a>) -> Result<(Promise, Contents<'a>), Error> {
        let (mut promise, mut contents) = (Promise::default(), Contents::new());
        for (input, uid) in recognised.inputs.iter().zip(uids(recognised)) {
            if let Some((_, bytes)) = constant(&input.value)?
                && !bytes.is_empty()
            {
                let (token, known) = self.guesses.token(bytes);
                promise.add(uid, token);
                if known {
                    contents.push((token, bytes));
                }
            }
        }
        Ok((promise, contents))
    }

    /// What is wished of the engine, by the options.
    fn wish(&self) -> Wish {
        let mut knobs = Vec::new();
        if let Some(threads) = self.options.threads {
            knobs.push((THREADS_KNOB.to_string(), KnobValue::Int(threads)));
        }
        // Runs lend it the runtime's threads.
        if self.context.as_ref().is_ok_and(|context| context.extension().is_some()) {
            knobs.push((POOL_KNOB.to_string(), KnobValue::Int(0)));
        }
        if let Some(winograd) = self.options.winograd {
            knobs.push((WINOGRAD_KNOB.to_string(), KnobValue::Int(i64::from(winograd))));
        }
        Wish { engine: self.options.engine.clone(), knobs, host_memory_only: self.host_memory_only }
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

    /// # Safety
    /// `graph` and `fused` are the runtime's, of one call of `Compile`.
    unsafe fn compile(&self, graph: *const ort::Graph, fused: *const ort::Node) -> Result<Box<Kernel>, Error> {
        // SAFETY: both live during the call, and nothing below keeps them.
        let (graph, fused) = unsafe { (Graph::new(&self.runtime, graph)?, Node::new(&self.runtime, fused)?) };
        let nodes = graph.nodes()?;
        let recognised = claim::recognise(&nodes).map_err(|declined| {
            let names: Vec<_> = nodes.iter().filter_map(|node| node.label().ok()).collect();
            Error::failed(format!("{} cannot compile {}: {}", crate::NAME_TEXT, names.join(", "), declined.0))
        })?;
        let name = recognised.group.name.clone();
        let context = self.context.as_ref().map_err(|reason| Error::failed(reason.clone()))?;
        let (wish, (promise, contents)) = (self.wish(), self.promise(&recognised)?);
        let mut indices = HashMap::new();
        for (index, value) in fused.inputs()?.into_iter().enumerate() {
            if let Some(value) = value {
                indices.entry(value.name()?).or_insert(index);
            }
        }
        let index_of = |name: &str| {
            let missing = || Error::failed(format!("{name:?} is no input of the fused node {:?}", fused.name()));
            indices.get(name).copied().ok_or_else(missing)
        };
        let mut inputs = Vec::with_capacity(recognised.inputs.len());
        let mut constants = Vec::new();
        for (input, uid) in recognised.inputs.iter().zip(uids(&recognised)) {
            let name = input.value.name()?;
            let index = index_of(name)?;
            let extents = match uid {
                W => Some(recognised.group.weights.clone()),
                B => Some(vec![recognised.group.weights[0]]),
                _ => None,
            };
            let initializer = constant(&input.value)?;
            inputs.push(Input { index, uid, name: name.to_string(), extents, constant: initializer.is_some() });
            if let Some((tensor, _)) = initializer {
                let (input, name, role) = (Some(inputs.len() - 1), name.to_string(), Role::Tensor(uid));
                constants.push(Constant { index, input, name, tensor, role });
            }
        }
        for bound in &recognised.bounds {
            let name = bound.value.name()?;
            if let Some((tensor, _)) = constant(&bound.value)? {
                let role = Role::Bound(bound.step, bound.side);
                constants.push(Constant { index: index_of(name)?, input: None, name: name.to_string(), tensor, role });
            }
        }
        let (extents, fixed) = likely_extents(&recognised);
        if let Some(dump) = self.dump.as_deref().filter(|_| fixed) {
            let geometry = recognised.group.geometry(&extents).map_err(Error::failed)?;
            dump.write(&name, None, &recognised.group.graph(&geometry).to_bytes());
        }
        let prepared = if fixed {
            let answer = self.ask(context, &recognised, &extents, (&wish.promising(&promise), &contents), true);
            answer
                .map_err(|reason| Error::failed(format!("{} cannot compile {name}: {reason}", crate::NAME_TEXT)))?
                .plan
        } else {
            None
        };
        let (engine, wired) = ((wish, promise), (inputs, constants));
        let kernel =
            Kernel::new(self.runtime, context.clone(), recognised.group, engine, wired, self.options.plan_cache)?
                .dumping(self.dump.clone().filter(|_| !fixed));
        if let Some(plan) = prepared {
            kernel.prepare(&extents, plan)?;
        }
        Ok(kernel)
    }
}

/// Forgets questions when compiling ends, however it does: not every host says that a session is complete.
struct Forgetting<'a>(&'a Provider);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// The uids of a group's inputs, in their order.
fn uids(recognised: &Recognised<'_>) -> impl Iterator<Item = i64> {
    let bias = recognised.group.bias.then_some(B);
    [X, W].into_iter().chain(bias).chain(RESIDUAL..).take(recognised.inputs.len().min(MAX_INPUTS))
}

/// Type, extents and bytes of a value that is an initializer which nothing can replace at run time.
fn constant<'a>(value: &ValueInfo<'a>) -> Result<Option<(TensorType, &'a [u8])>, Error> {
    if value.is_constant()? { value.initializer() } else { Ok(None) }
}

/// The extents of a group's input, and whether they are those of every run. Unknown ones are made up: an engine that
/// takes a convolution of these takes it of others.
fn likely_extents(recognised: &Recognised<'_>) -> (Vec<i64>, bool) {
    let group = &recognised.group;
    let rank = group.weights.len();
    let known = recognised.inputs[0].tensor.shape.clone().unwrap_or_else(|| vec![-1; rank]);
    let fixed = known.iter().all(|extent| *extent >= 0);
    let extents = known.iter().enumerate().map(|(axis, extent)| match axis {
        _ if *extent > 0 => *extent,
        0 => LIKELY_BATCH,
        1 => group.channels(),
        _ => {
            let window = group.conv.dilations[axis - 2].saturating_mul(group.weights[axis] - 1).saturating_add(1);
            LIKELY_EXTENT.max(window)
        }
    });
    (extents.collect(), fixed)
}

/// Opens the backend. That it is nowhere is an answer: the session runs without this provider's help, unless somebody
/// named a library or plugins.
fn open_backend(options: &Options) -> Result<Result<Arc<Context>, String>, Error> {
    if options.disable {
        return Ok(Err("the provider is disabled by its option \"disable\"".to_string()));
    }
    let surroundings = Surroundings::current();
    let (candidates, named) = search::backend_candidates(options, &surroundings);
    let plugins = search::plugins(options, &surroundings);
    match Context::open(&candidates, &plugins) {
        Ok(context) => Ok(Ok(context)),
        Err(error) if named || options.plugin_dir.is_some() => Err(error.at(crate::NAME_TEXT)),
        Err(error) => Ok(Err(error.message)),
    }
}

/// A node's line in the report.
fn entry(
    node: &Node<'_>,
    graph: &str,
    decision: &Result<Answer, String>,
    group: Option<String>,
) -> Result<Entry, Error> {
    let shape = match node.inputs()?.into_iter().next().flatten() {
        Some(input) => input.tensor()?.and_then(|tensor| tensor.shape),
        None => None,
    };
    Ok(Entry {
        node: node.label()?.to_string(),
        op: node.op_type()?.to_string(),
        domain: node.domain()?.to_string(),
        since_version: node.since_version()?,
        graph: graph.to_string(),
        claimed: decision.is_ok(),
        engine: decision.as_ref().ok().map(|answer| answer.engine.clone()),
        workspace: decision.as_ref().ok().map(|answer| answer.workspace),
        reason: decision.as_ref().err().cloned(),
        shape: shape.map(|shape| shape.into_iter().map(|extent| (extent >= 0).then_some(extent)).collect()),
        group,
    })
}

/// The providers of this process.
static PROVIDERS: Handles = Handles::new("provider");

/// Runs a callback's body with the provider that its callbacks belong to.
fn with_provider(this: *const Ep, body: impl FnOnce(&Provider) -> Result<(), Error>) -> *mut Status {
    if let Err(stranger) = PROVIDERS.check(this) {
        return status_of(Err(stranger));
    }
    // SAFETY: the callbacks are the first member of a provider, which lives until the runtime releases it.
    let provider = unsafe { &*this.cast::<Provider>() };
    provider.runtime.guard(|| body(provider))
}

unsafe extern "system" fn get_name(_this: *const Ep) -> *const c_char {
    crate::NAME.as_ptr()
}

unsafe extern "system" fn get_capability(
    this: *mut Ep,
    graph: *const ort::Graph,
    info: *mut EpGraphSupportInfo,
) -> *mut Status {
    with_provider(this, |provider| {
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
    _ep_context_nodes: *mut *mut ort::Node,
) -> *mut Status {
    with_provider(this, |provider| {
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
        let mut kernels = Vec::with_capacity(count);
        for (graph, fused) in graphs.iter().zip(fused_nodes) {
            // SAFETY: graph and node are of this call.
            kernels.push(unsafe { provider.compile(*graph, *fused) }?);
        }
        // Only now, when nothing can fail any more, does the runtime get them.
        for (place, kernel) in places.iter().zip(kernels) {
            place.set(kernel.into_raw());
        }
        Ok(())
    })
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
    with_provider(this, |_| {
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(supported, "the place for the answer") }?.set(true);
        Ok(())
    })
}

unsafe extern "system" fn on_session_initialization_end(this: *mut Ep) -> *mut Status {
    with_provider(this, |provider| {
        provider.forget();
        Ok(())
    })
}
