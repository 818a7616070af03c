//! A graph ready to run on a GPU.
//!
//! [`Layout`] gives temporaries and MIOpen's workspaces their places, [`GpuPlan`] is the steps with everything compiled.

mod kernel;
mod layout;
mod portrait;
mod scalar;
mod tapes;

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, MutexGuard};

use hipdnn_capi::shared::Share;
use hipdnn_engine_core::checks::element_bytes;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Buffer, BufferTable, Place};
use hipdnn_engine_core::payload::{Entry, Portrait};
use hipdnn_engine_core::{Declined, Plan, TensorLabel};
use hipdnn_engine_kernel::legalize::{
    CONVOLUTION_ALIGNMENT, ConvolutionDispatch, Dispatch, KernelDispatch, Legalized, Number, Value,
};
use hipdnn_schemas::{Graph, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use self::kernel::KernelStep;
pub use self::layout::Layout;
pub use self::portrait::PROBLEM;
use self::scalar::Scalar;
use self::tapes::{Known, Tapes};
use super::context::{Context, Contexts};
use super::settings::Settings;
use super::store::Store;
use crate::hip::{Queue, Tape};
use crate::jit::{self, Kernels};
use crate::miopen::choice::Policy;
use crate::miopen::choose::{self, PreparedConvolution};
use crate::miopen::follow::{FusedConvolution, fused_convolution};
use crate::miopen::fused::prepare_fused;
use crate::recording;

/// Alignment of every place in the workspace, in bytes: that of HIP's own allocations.
pub const ALIGNMENT: usize = 256;

/// Alignment that the workspace's address has to have, in bytes: hipDNN expects it of any tensor, and it is the width
/// of the widest load.
pub const WORKSPACE_ALIGNMENT: usize = 16;

/// Buffers whose addresses an execution keeps on the stack; a plan with more of them allocates a table each time.
const ADDRESSES_ON_STACK: usize = 64;

/// The caller's tensor, if that is what it is.
fn tensor(value: Value) -> Option<TensorUid> {
    match value {
        Value::Tensor(uid) => Some(uid),
        Value::Temporary(_) => None,
    }
}

/// Dispatches, convolutions with their solvers, and where everything goes in the workspace.
#[derive(Debug)]
pub struct Choices {
    /// The dispatches; those that MIOpen has in one kernel with a convolution are not among them any more.
    legalized: Legalized,
    layout: Layout,
    /// For each dispatch that is a convolution, in order.
    convolutions: Vec<Chosen>,
    bytes: usize,
    settings: Settings,
}

/// A convolution that is ready.
#[derive(Debug)]
struct Chosen {
    prepared: PreparedConvolution,
    /// Dispatches behind the convolution that are one kernel with it.
    fused_convolution: Option<FusedConvolution>,
}

impl Choices {
    /// Chooses solvers that keep to the workspace limit together with the temporaries.
    ///
    /// # Errors
    /// If nothing keeps to the limit, or MIOpen has no solver that works.
    pub fn new(
        graph: &Graph,
        legalized: Legalized,
        context: &Context,
        settings: &Settings,
        store: &Store,
    ) -> Result<Choices, Error> {
        let (mut fused, mut found) = (legalized.clone(), Vec::new());
        if settings.fused_kernels {
            found = fuse(graph, &mut fused, context, settings, store)?;
        }
        if found.iter().any(Option::is_some)
            && let Some(choices) = Choices::within_limit(fused, found, context, settings, store)?
        {
            return Ok(choices);
        }
        let needed = Layout::new(&legalized)?.bytes;
        Choices::within_limit(legalized, Vec::new(), context, settings, store)?
            .ok_or_else(|| settings.too_small(needed))
    }

    /// Chooses solvers for convolutions that are not ready; `None` if what is ready, or temporaries, are above the limit.
    fn within_limit(
        legalized: Legalized,
        ready: Vec<Option<Chosen>>,
        context: &Context,
        settings: &Settings,
        store: &Store,
    ) -> Result<Option<Choices>, Error> {
        let layout = Layout::new(&legalized)?;
        let mut bytes = layout.bytes;
        if bytes > settings.workspace_limit {
            return Ok(None);
        }
        let mut ready = ready.into_iter();
        let mut convolutions = Vec::new();
        for (dispatch, end) in legalized.dispatches.iter().zip(&layout.ends) {
            let Dispatch::Convolution(dispatch) = dispatch else { continue };
            let chosen = match ready.next().flatten() {
                Some(chosen) => chosen,
                None => {
                    let prepared =
                        choose::prepare(context.miopen()?, &dispatch.problem, &policy(settings, *end), store)
                            .map_err(|error| error.within(format!("node {}", dispatch.node)))?;
                    Chosen { prepared, fused_convolution: None }
                }
            };
            if chosen.prepared.workspace_bytes() > 0 {
                bytes = bytes.max(end.saturating_add(chosen.prepared.workspace_bytes()));
            }
            convolutions.push(chosen);
        }
        Ok((bytes <= settings.workspace_limit).then(|| {
            let settings = settings.clone();
            Choices { legalized, layout, convolutions, bytes, settings }
        }))
    }

    /// Bytes of workspace.
    pub fn workspace_bytes(&self) -> usize {
        self.bytes
    }

    /// The convolutions, what was asked of each one's solver, and what was chosen.
    fn convolutions(&self) -> impl Iterator<Item = (&ConvolutionDispatch, Policy, &Chosen)> {
        let dispatches = self.legalized.dispatches.iter().zip(&self.layout.ends);
        let dispatches = dispatches.filter_map(|(dispatch, end)| match dispatch {
            Dispatch::Convolution(dispatch) => Some((dispatch, *end)),
            Dispatch::Kernel(_) => None,
        });
        dispatches.zip(&self.convolutions).map(|((dispatch, end), chosen)| {
            let policy = match chosen.fused_convolution {
                Some(_) => self.settings.policy(),
                None => policy(&self.settings, end),
            };
            (dispatch, policy, chosen)
        })
    }
}

/// Policy for the solver of a convolution, where temporaries have the workspace up to `end`.
fn policy(settings: &Settings, end: usize) -> Policy {
    let mut policy = settings.policy();
    policy.workspace_limit = policy.workspace_limit.map(|limit| limit.saturating_sub(end));
    policy
}

/// Asks MIOpen for kernels that do what follows a convolution with it. Takes those dispatches out; gives for each convolution
/// what was found.
fn fuse(
    graph: &Graph,
    legalized: &mut Legalized,
    context: &Context,
    settings: &Settings,
    store: &Store,
) -> Result<Vec<Option<Chosen>>, Error> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < legalized.dispatches.len() {
        let fused_convolution = fused_convolution(graph, legalized, index);
        if let Dispatch::Convolution(dispatch) = &mut legalized.dispatches[index] {
            let mut chosen = None;
            if let Some(fused_convolution) = fused_convolution {
                let prepared = prepare_fused(
                    context.miopen()?,
                    &dispatch.problem,
                    &fused_convolution.epilogue,
                    &settings.policy(),
                    store,
                )
                .map_err(|error| error.within(format!("node {}", dispatch.node)))?;
                chosen = prepared.map(|prepared| Chosen { prepared, fused_convolution: Some(fused_convolution) });
            }
            if let Some(fused_convolution) = chosen.as_ref().and_then(|chosen| chosen.fused_convolution.as_ref()) {
                (dispatch.y, dispatch.bias) = (fused_convolution.y, fused_convolution.bias);
                legalized.dispatches.remove(index + 1);
            }
            found.push(chosen);
        }
        index += 1;
    }
    Ok(found)
}

/// Steps, and what they work with.
#[derive(Debug)]
pub struct GpuPlan {
    steps: Vec<Step>,
    buffers: BufferTable,
    choices: Arc<Choices>,
    context: Arc<Context>,
    tapes: Tapes,
    /// Keeps what plans share; behind what came out of it.
    _contexts: Share<Contexts>,
}

/// Labels of a plan's steps, for messages about their launches.
#[derive(Debug)]
pub(crate) struct StepLabels {
    choices: Arc<Choices>,
    /// For each step, its place in [`Choices::convolutions`] if it is one.
    convolutions: Box<[Option<usize>]>,
}

impl StepLabels {
    /// Number of steps.
    pub(crate) fn len(&self) -> usize {
        self.convolutions.len()
    }

    /// An error of a step's launch, with what was launched.
    pub(crate) fn explain(&self, step: usize, error: Error) -> Error {
        match self.convolutions.get(step).copied().flatten() {
            Some(index) => self.choices.convolutions[index].prepared.explain(error),
            None => error,
        }
    }
}

/// One thing that is done.
#[derive(Debug)]
enum Step {
    Convolution(ConvolutionStep),
    Kernel(KernelStep),
}

impl Step {
    /// True if an execution reads numbers from the caller's host memory.
    fn reads_host_memory(&self) -> bool {
        let scalars = match self {
            Step::Convolution(_) => return false,
            Step::Kernel(step) => &step.scalars,
        };
        scalars.iter().any(|scalar| matches!(scalar, Scalar::Host(..)))
    }
}

/// A convolution and where its operands are.
#[derive(Debug)]
struct ConvolutionStep {
    node: usize,
    /// In [`Choices::convolutions`].
    index: usize,
    x: Place,
    w: Place,
    y: Place,
    bias: Option<Place>,
    scratch: Place,
}

/// As many entries as wanted: on the stack if there is room.
fn entries<'a, T: Copy>(stack: &'a mut [T], heap: &'a mut Vec<T>, count: usize, empty: T) -> &'a mut [T] {
    match stack.get_mut(..count) {
        Some(entries) => entries,
        None => {
            heap.resize(count, empty);
            heap
        }
    }
}

impl GpuPlan {
    /// Compiles the kernels around the convolutions.
    ///
    /// # Errors
    /// If a kernel can't be compiled.
    pub fn new(
        graph: &Graph,
        choices: Arc<Choices>,
        context: &Arc<Context>,
        contexts: Share<Contexts>,
        store: &Store,
    ) -> Result<GpuPlan, Error> {
        let legalized = &choices.legalized;
        let places = Places { buffers: table(graph, legalized), layout: &choices.layout };
        let mut steps = Vec::with_capacity(legalized.dispatches.len());
        let mut index = 0;
        for (dispatch, end) in legalized.dispatches.iter().zip(&choices.layout.ends) {
            steps.push(match dispatch {
                Dispatch::Convolution(dispatch) => {
                    index += 1;
                    Step::Convolution(places.convolution(dispatch, index - 1, *end))
                }
                Dispatch::Kernel(dispatch) => Step::Kernel(places.kernel(dispatch, context.kernels(), store)?),
            });
        }
        let buffers = places.buffers;
        let tapes = Tapes::default();
        if steps.iter().any(Step::reads_host_memory) {
            tapes.give_up();
        }
        let plan = GpuPlan { steps, buffers, choices, context: Arc::clone(context), tapes, _contexts: contexts };
        log::debug!("plan for graph {:?}:\n{plan}", graph.name());
        Ok(plan)
    }

    /// Labels of its steps.
    fn labels(&self) -> StepLabels {
        let convolution = |step: &Step| match step {
            Step::Convolution(step) => Some(step.index),
            Step::Kernel(_) => None,
        };
        StepLabels { choices: Arc::clone(&self.choices), convolutions: self.steps.iter().map(convolution).collect() }
    }

    /// Its kernels, as they are stored; some of them several times.
    fn kernels(&self) -> impl Iterator<Item = Entry> {
        self.steps.iter().filter_map(|step| match step {
            Step::Convolution(_) => None,
            Step::Kernel(step) => step.kernel.entry(),
        })
    }
}

/// Checks that the kernels around the convolutions can be had.
///
/// # Errors
/// With the first one that can't.
pub fn kernels_can_be_had(legalized: &Legalized, kernels: &Kernels, store: &Store) -> Result<(), Declined> {
    if jit::is_compiler_known() {
        return Ok(());
    }
    for dispatch in &legalized.dispatches {
        let Dispatch::Kernel(KernelDispatch { purpose, kernel, .. }) = dispatch else { continue };
        let answer = jit::can_prepare(kernels, kernel, store);
        answer.map_err(|error| Declined::Kernel { purpose: purpose.clone(), reason: error.to_string() })?;
    }
    Ok(())
}

/// The tensors that the caller gives memory for.
fn table(graph: &Graph, legalized: &Legalized) -> BufferTable {
    let mut buffers: std::collections::HashMap<TensorUid, Buffer> = std::collections::HashMap::new();
    let mut need = |uid: TensorUid, alignment: usize| {
        let buffer = buffers.entry(uid).or_insert_with(|| Buffer {
            uid,
            label: TensorLabel::of(graph, uid),
            alignment,
            required: true,
        });
        buffer.alignment = buffer.alignment.max(alignment);
    };
    // Host memory is read byte by byte.
    let host = 1;
    let element = |uid: TensorUid| element_bytes(graph.tensor(uid).data_type());
    for dispatch in &legalized.dispatches {
        match dispatch {
            Dispatch::Convolution(dispatch) => {
                for uid in [dispatch.x, dispatch.w, dispatch.y].into_iter().chain(dispatch.bias).filter_map(tensor) {
                    need(uid, element(uid).max(CONVOLUTION_ALIGNMENT));
                }
            }
            Dispatch::Kernel(dispatch) => {
                for number in &dispatch.scalars {
                    if let Number::Host(uid, _) = number {
                        need(*uid, host);
                    }
                }
                for uid in dispatch.reads.iter().chain(&dispatch.writes).copied().filter_map(tensor) {
                    need(uid, element(uid));
                }
            }
        }
    }
    BufferTable::new(buffers.into_values().collect())
}

struct Places<'a> {
    buffers: BufferTable,
    layout: &'a Layout,
}

impl Places<'_> {
    fn index(&self, uid: TensorUid) -> usize {
        self.buffers.index(uid).expect("every tensor of a dispatch is in the table")
    }

    fn of(&self, value: Value) -> Place {
        match value {
            Value::Tensor(uid) => Place::Buffer(self.index(uid)),
            Value::Temporary(index) => Place::Workspace(self.layout.offsets[index]),
        }
    }

    fn convolution(&self, dispatch: &ConvolutionDispatch, index: usize, end: usize) -> ConvolutionStep {
        let [x, w, y] = [dispatch.x, dispatch.w, dispatch.y].map(|value| self.of(value));
        let bias = dispatch.bias.map(|value| self.of(value));
        ConvolutionStep { node: dispatch.node, index, x, w, y, bias, scratch: Place::Workspace(end) }
    }
}

/// The memory of an execution.
struct Memory<'a> {
    addresses: &'a [*mut u8],
    workspace: *mut u8,
}

impl Memory<'_> {
    fn at(&self, place: Place) -> *mut u8 {
        match place {
            Place::Buffer(index) => self.addresses[index],
            Place::Workspace(offset) => self.workspace.wrapping_add(offset),
            Place::Constant(_) => unreachable!("the engine's plans have no constants in memory"),
        }
    }
}

impl GpuPlan {
    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn run(&self, mut queue: Queue<'_>, memory: &Memory<'_>) -> Result<(), Error> {
        for (index, step) in self.steps.iter().enumerate() {
            queue.begin(index);
            match step {
                Step::Convolution(step) => {
                    let [x, w, y, scratch] = [step.x, step.w, step.y, step.scratch].map(|place| memory.at(place));
                    let bias = step.bias.map_or(std::ptr::null_mut(), |place| memory.at(place));
                    let convolution = &self.choices.convolutions[step.index].prepared;
                    // SAFETY: the caller answers for stream and buffers; places in the workspace are as large as the
                    // problem's tensors and its solver's workspace, and apart from each other while both are used.
                    unsafe { convolution.launch_with_bias(&mut queue, x, w, bias, y, scratch) }?;
                }
                // SAFETY: the caller's promise.
                Step::Kernel(step) => unsafe { step.run(&mut queue, memory) }?,
            }
        }
        Ok(())
    }
}

impl GpuPlan {
    /// Executes the steps, and takes their launches down where the pack is known.
    ///
    /// # Safety
    /// As [`Plan::execute`].
    #[inline(never)]
    unsafe fn run_on(
        &self,
        stream: *mut c_void,
        workspace: *mut u8,
        pack: &[DeviceBuffer],
        mut known: Option<MutexGuard<'_, Known>>,
    ) -> Result<(), Error> {
        let Some(known) = &mut known else {
            // SAFETY: the caller's promise.
            return unsafe { self.run_in(Queue::new(stream), workspace, pack) };
        };
        // SAFETY: the caller's promise.
        unsafe { self.run_in(Queue::taped(stream, &mut known.tape), workspace, pack) }?;
        known.is_taken = known.tape.is_whole();
        if !known.is_taken {
            self.tapes.give_up();
        }
        Ok(())
    }

    /// Executes the steps on the memory of a pack.
    ///
    /// # Safety
    /// As [`Plan::execute`].
    unsafe fn run_in(&self, queue: Queue<'_>, workspace: *mut u8, pack: &[DeviceBuffer]) -> Result<(), Error> {
        let count = self.buffers.len();
        let mut on_stack = [std::ptr::null_mut(); ADDRESSES_ON_STACK];
        let mut on_heap = Vec::new();
        let addresses = entries(&mut on_stack, &mut on_heap, count, std::ptr::null_mut());
        self.buffers.resolve(pack, addresses)?;
        // SAFETY: the caller's promise, for memory that was just resolved.
        unsafe { self.run(queue, &Memory { addresses, workspace }) }
    }

    /// Executes the steps, and appends their launches to the calling thread's recording.
    ///
    /// # Safety
    /// As [`Plan::execute`].
    #[cold]
    unsafe fn run_recorded(&self, stream: *mut c_void, workspace: *mut u8, pack: &[DeviceBuffer]) -> Result<(), Error> {
        let mut tape = Tape::default();
        // SAFETY: the caller's promise.
        let ran = unsafe { self.run_in(Queue::taped(stream, &mut tape), workspace, pack) };
        let can_be_repeated = ran.is_ok() && tape.is_whole() && !self.steps.iter().any(Step::reads_host_memory);
        recording::add(&self.context, self.labels(), can_be_repeated.then_some(&tape));
        ran
    }

    /// Repeats the launches of an execution on the same memory.
    ///
    /// # Safety
    /// As [`Plan::execute`].
    unsafe fn replay(&self, stream: *mut c_void, tape: &Tape) -> Result<(), Error> {
        let _entered = self.context.device().enter_for(stream.cast())?;
        // SAFETY: the plan keeps the kernels' modules; the rest is the caller's promise.
        let replayed = unsafe { tape.replay(self.context.device().gpu(), stream) };
        replayed.map_err(|(step, error)| self.labels().explain(step, error))
    }
}

impl Plan for GpuPlan {
    fn workspace_bytes(&self) -> usize {
        self.choices.workspace_bytes()
    }

    fn portrait(&self) -> Result<Portrait, Error> {
        Ok(portrait::portrait(self))
    }

    fn make_ready(&self, stream: *mut c_void) {
        for Chosen { prepared, .. } in &self.choices.convolutions {
            if let Err(error) = prepared.make_ready(stream) {
                log::info!("left to the first execution: {error}");
            }
        }
    }

    fn enter(&self, stream: *mut c_void) -> Result<Box<dyn Any>, Error> {
        Ok(Box::new(self.context.device().enter_for(stream.cast())?))
    }

    unsafe fn execute(&self, stream: *mut c_void, workspace: *mut u8, pack: &[DeviceBuffer]) -> Result<(), Error> {
        let bytes = self.workspace_bytes();
        if bytes > 0 && (workspace.is_null() || !workspace.addr().is_multiple_of(WORKSPACE_ALIGNMENT)) {
            let came = if workspace.is_null() { "null".to_string() } else { format!("{workspace:p}") };
            return Err(Error::invalid_value(format!(
                "workspace: expected {bytes} bytes at a multiple of {WORKSPACE_ALIGNMENT}, got {came}"
            )));
        }
        if recording::is_on() {
            // SAFETY: the caller's promise.
            return unsafe { self.run_recorded(stream, workspace, pack) };
        }
        let known = self.tapes.find(workspace, pack);
        if let Some(known) = known.as_ref().filter(|known| known.is_taken) {
            // SAFETY: the caller's promise, for the addresses that the arguments were taken down with.
            return unsafe { self.replay(stream, &known.tape) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.run_on(stream, workspace, pack, known) }
    }
}

impl fmt::Display for GpuPlan {
    /// The alternate form leaves out what says how a convolution's solver was found and is launched.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |place: Place| match place {
            Place::Buffer(index) => format!("tensor {}", self.buffers.get(index).uid),
            Place::Workspace(offset) => format!("workspace+{offset}"),
            Place::Constant(index) => format!("constant {index}"),
        };
        writeln!(f, "{} steps, {} bytes of workspace", self.steps.len(), self.workspace_bytes())?;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Convolution(step) => {
                    let ConvolutionStep { node, x, w, y, bias, scratch, .. } = *step;
                    let [x, w, y, scratch] = [x, w, y, scratch].map(place);
                    write!(f, "{index}: node {node}: x {x}, w {w}, y {y}, scratch {scratch}")?;
                    if let Some(bias) = bias {
                        write!(f, ", bias {}", place(bias))?;
                    }
                    let Chosen { prepared, fused_convolution } = &self.choices.convolutions[step.index];
                    if let Some(fused_convolution) = fused_convolution {
                        write!(f, ", with{}", fused_convolution.epilogue)?;
                    }
                    match f.alternate() {
                        true => writeln!(f, ": {}", prepared.outline())?,
                        false => writeln!(f, ": {}", prepared.describe())?,
                    }
                }
                Step::Kernel(step) => {
                    let list = |places: &[Place]| places.iter().map(|at| place(*at)).collect::<Vec<_>>().join(", ");
                    let (reads, writes) = (list(&step.reads), list(&step.writes));
                    writeln!(f, "{index}: {} from {reads} to {writes}: {}", step.purpose, step.kernel.mapping())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
