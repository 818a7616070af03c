//! A graph ready to run on a GPU.
//!
//! [`Layout`] gives temporaries and MIOpen's workspaces their places, [`GpuPlan`] is the steps with everything compiled.

mod grouped;
mod layout;
mod portrait;
mod scalar;
mod tapes;

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, MutexGuard};

use hipdnn_capi::shared::Share;
use hipdnn_engine_core::checks::element_bytes;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Buffer, BufferTable, Place};
use hipdnn_engine_core::payload::{Entry, Portrait};
use hipdnn_engine_core::{Declined, Plan, TensorLabel};
use hipdnn_engine_kernel::arrange::{
    Arrangement, CONVOLUTION_ALIGNMENT, ConvolutionTask, Input, MapTask, Number, Task, Value,
};
use hipdnn_engine_kernel::emit::{self, Element, Elementwise, MOST_INPUTS, Output, View, Window};
use hipdnn_schemas::{DataType, Graph, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use self::grouped::GroupedStep;
pub use self::layout::Layout;
pub use self::portrait::PROBLEM;
use self::scalar::{Scalar, scalars};
use self::tapes::{Known, Tapes};
use super::context::{Context, Contexts};
use super::settings::Settings;
use super::store::Store;
use crate::hip::{Queue, Tape};
use crate::jit::{self, Kernels, PreparedKernel};
use crate::miopen::choice::Policy;
use crate::miopen::choose::{self, PreparedConvolution};
use crate::miopen::follow::{Followed, followed};
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

fn memory(input: &Input) -> Option<Value> {
    match input {
        Input::Memory(input) => Some(input.value),
        Input::Literal(_) | Input::Scalar(..) | Input::Index(_) => None,
    }
}

/// Tasks, convolutions with their solvers, and where everything goes in the workspace.
#[derive(Debug)]
pub struct Choices {
    /// The tasks; those that MIOpen has in one kernel with a convolution are not among them any more.
    arrangement: Arrangement,
    layout: Layout,
    /// For each task that is a convolution, in order.
    convolutions: Vec<Chosen>,
    bytes: usize,
    settings: Settings,
}

/// A convolution that is ready.
#[derive(Debug)]
struct Chosen {
    prepared: PreparedConvolution,
    /// Tasks behind the convolution that are one kernel with it.
    followed: Option<Followed>,
}

impl Choices {
    /// Chooses solvers that keep to the workspace limit together with the temporaries.
    ///
    /// # Errors
    /// If nothing keeps to the limit, or MIOpen has no solver that works.
    pub fn new(
        graph: &Graph,
        arrangement: Arrangement,
        context: &Context,
        settings: &Settings,
        store: &Store,
    ) -> Result<Choices, Error> {
        let (mut fused, mut found) = (arrangement.clone(), Vec::new());
        if settings.fused_kernels {
            found = fuse(graph, &mut fused, context, settings, store)?;
        }
        if found.iter().any(Option::is_some)
            && let Some(choices) = Choices::within_limit(fused, found, context, settings, store)?
        {
            return Ok(choices);
        }
        let needed = Layout::new(&arrangement)?.bytes;
        Choices::within_limit(arrangement, Vec::new(), context, settings, store)?
            .ok_or_else(|| settings.too_small(needed))
    }

    /// Chooses solvers for convolutions that are not ready; `None` if what is ready, or temporaries, are above the limit.
    fn within_limit(
        arrangement: Arrangement,
        ready: Vec<Option<Chosen>>,
        context: &Context,
        settings: &Settings,
        store: &Store,
    ) -> Result<Option<Choices>, Error> {
        let layout = Layout::new(&arrangement)?;
        let mut bytes = layout.bytes;
        if bytes > settings.workspace_limit {
            return Ok(None);
        }
        let mut ready = ready.into_iter();
        let mut convolutions = Vec::new();
        for (task, end) in arrangement.tasks.iter().zip(&layout.ends) {
            let Task::Convolution(task) = task else { continue };
            let chosen = match ready.next().flatten() {
                Some(chosen) => chosen,
                None => {
                    let prepared = choose::prepare(context.miopen()?, &task.problem, &policy(settings, *end), store)
                        .map_err(|error| error.within(format!("node {}", task.node)))?;
                    Chosen { prepared, followed: None }
                }
            };
            if chosen.prepared.workspace_bytes() > 0 {
                bytes = bytes.max(end.saturating_add(chosen.prepared.workspace_bytes()));
            }
            convolutions.push(chosen);
        }
        Ok((bytes <= settings.workspace_limit).then(|| {
            let settings = settings.clone();
            Choices { arrangement, layout, convolutions, bytes, settings }
        }))
    }

    /// Bytes of workspace.
    pub fn workspace_bytes(&self) -> usize {
        self.bytes
    }

    /// The convolutions, what was asked of each one's solver, and what was chosen.
    fn convolutions(&self) -> impl Iterator<Item = (&ConvolutionTask, Policy, &Chosen)> {
        let tasks = self.arrangement.tasks.iter().zip(&self.layout.ends);
        let tasks = tasks.filter_map(|(task, end)| match task {
            Task::Convolution(task) => Some((task, *end)),
            Task::Map(_) | Task::Grouped(_) => None,
        });
        tasks.zip(&self.convolutions).map(|((task, end), chosen)| {
            let policy = match chosen.followed {
                Some(_) => self.settings.policy(),
                None => policy(&self.settings, end),
            };
            (task, policy, chosen)
        })
    }
}

/// Policy for the solver of a convolution, where temporaries have the workspace up to `end`.
fn policy(settings: &Settings, end: usize) -> Policy {
    let mut policy = settings.policy();
    policy.workspace_limit = policy.workspace_limit.map(|limit| limit.saturating_sub(end));
    policy
}

/// Asks MIOpen for kernels that do what follows a convolution with it. Takes those tasks out; gives for each convolution
/// what was found.
fn fuse(
    graph: &Graph,
    arrangement: &mut Arrangement,
    context: &Context,
    settings: &Settings,
    store: &Store,
) -> Result<Vec<Option<Chosen>>, Error> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < arrangement.tasks.len() {
        let followed = followed(graph, arrangement, index);
        if let Task::Convolution(task) = &mut arrangement.tasks[index] {
            let mut chosen = None;
            if let Some(followed) = followed {
                let prepared =
                    prepare_fused(context.miopen()?, &task.problem, &followed.followers, &settings.policy(), store)
                        .map_err(|error| error.within(format!("node {}", task.node)))?;
                chosen = prepared.map(|prepared| Chosen { prepared, followed: Some(followed) });
            }
            if let Some(followed) = chosen.as_ref().and_then(|chosen| chosen.followed.as_ref()) {
                (task.y, task.bias) = (followed.y, followed.bias);
                arrangement.tasks.remove(index + 1);
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
    Grouped(GroupedStep),
}

impl Step {
    /// True if an execution reads numbers from the caller's host memory.
    fn reads_host_memory(&self) -> bool {
        let scalars = match self {
            Step::Convolution(_) => return false,
            Step::Kernel(step) => &step.scalars,
            Step::Grouped(step) => &step.scalars,
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

/// A kernel and where its operands are.
#[derive(Debug)]
struct KernelStep {
    purpose: String,
    kernel: PreparedKernel,
    inputs: Box<[Place]>,
    output: Place,
    /// Values for the kernel's scalars; empty if all are known.
    scalars: Box<[Scalar]>,
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
        let arrangement = &choices.arrangement;
        let places = Places { buffers: table(graph, arrangement), layout: &choices.layout };
        let mut steps = Vec::with_capacity(arrangement.tasks.len());
        let mut index = 0;
        for (task, end) in arrangement.tasks.iter().zip(&choices.layout.ends) {
            steps.push(match task {
                Task::Convolution(task) => {
                    index += 1;
                    Step::Convolution(places.convolution(task, index - 1, *end))
                }
                Task::Map(task) => Step::Kernel(places.kernel(task, context.kernels(), store)?),
                Task::Grouped(task) => Step::Grouped(places.grouped(task, context.kernels(), store)?),
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
            Step::Kernel(_) | Step::Grouped(_) => None,
        };
        StepLabels { choices: Arc::clone(&self.choices), convolutions: self.steps.iter().map(convolution).collect() }
    }

    /// Its kernels, as they are stored; some of them several times.
    fn kernels(&self) -> impl Iterator<Item = Entry> {
        self.steps.iter().filter_map(|step| match step {
            Step::Convolution(_) => None,
            Step::Kernel(step) => step.kernel.entry(),
            Step::Grouped(step) => step.kernel.entry(),
        })
    }
}

/// Checks that the kernels around the convolutions can be had.
///
/// # Errors
/// With the first one that can't.
pub fn kernels_can_be_had(arrangement: &Arrangement, kernels: &Kernels, store: &Store) -> Result<(), Declined> {
    if jit::is_compiler_known() {
        return Ok(());
    }
    for task in &arrangement.tasks {
        let (purpose, answer) = match task {
            Task::Convolution(_) => continue,
            Task::Map(task) => (&task.purpose, jit::can_prepare(kernels, &elementwise(task), store)),
            Task::Grouped(task) => (&task.purpose, jit::can_prepare(kernels, &task.kernel, store)),
        };
        answer.map_err(|error| Declined::Kernel { purpose: purpose.clone(), reason: error.to_string() })?;
    }
    Ok(())
}

/// The tensors that the caller gives memory for.
fn table(graph: &Graph, arrangement: &Arrangement) -> BufferTable {
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
    for task in &arrangement.tasks {
        match task {
            Task::Convolution(task) => {
                for uid in [task.x, task.w, task.y].into_iter().chain(task.bias).filter_map(tensor) {
                    need(uid, element(uid).max(CONVOLUTION_ALIGNMENT));
                }
            }
            Task::Map(task) => {
                for input in &task.inputs {
                    if let Input::Scalar(uid, _) = input {
                        need(*uid, host);
                    }
                }
                for uid in task.inputs.iter().filter_map(memory).chain([task.output]).filter_map(tensor) {
                    need(uid, element(uid));
                }
            }
            Task::Grouped(task) => {
                for number in &task.scalars {
                    if let Number::Host(uid, _) = number {
                        need(*uid, host);
                    }
                }
                for uid in task.reads.iter().chain(&task.writes).copied().filter_map(tensor) {
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
        self.buffers.index(uid).expect("every tensor of a task is in the table")
    }

    fn of(&self, value: Value) -> Place {
        match value {
            Value::Tensor(uid) => Place::Buffer(self.index(uid)),
            Value::Temporary(index) => Place::Workspace(self.layout.offsets[index]),
        }
    }

    fn convolution(&self, task: &ConvolutionTask, index: usize, end: usize) -> ConvolutionStep {
        let [x, w, y] = [task.x, task.w, task.y].map(|value| self.of(value));
        let bias = task.bias.map(|value| self.of(value));
        ConvolutionStep { node: task.node, index, x, w, y, bias, scratch: Place::Workspace(end) }
    }

    fn kernel(&self, task: &MapTask, kernels: &Kernels, store: &Store) -> Result<KernelStep, Error> {
        let work = elementwise(task);
        let within = |error: Error| error.within(format!("kernel to {}", task.purpose));
        let kernel = jit::prepare(kernels, &work, store).map_err(within)?;
        let scalars = scalars(task.inputs.iter().filter_map(|input| match input {
            Input::Literal(number) => Some(Scalar::Known(*number)),
            Input::Scalar(uid, data_type) => Some(Scalar::Host(self.index(*uid), *data_type)),
            Input::Memory(_) | Input::Index(_) => None,
        }));
        Ok(KernelStep {
            purpose: task.purpose.clone(),
            kernel,
            inputs: task.inputs.iter().filter_map(memory).map(|value| self.of(value)).collect(),
            output: self.of(task.output),
            scalars,
        })
    }
}

/// A task as kernels are asked for.
fn elementwise(task: &MapTask) -> Elementwise {
    let element = |data_type: DataType| Element::of(data_type).expect("lowered types have kernels");
    let inputs = task.inputs.iter().map(|input| match input {
        Input::Memory(input) => {
            let window = |(begin, extent): &(usize, usize)| {
                Some(Window { begin: *begin as i64, extent: *extent as u64, step: 1 })
            };
            emit::Input::Tensor(View {
                element: element(input.view.data_type),
                strides: input.view.strides.clone(),
                offset: input.view.offset,
                windows: input.window.iter().flatten().map(window).collect(),
            })
        }
        Input::Literal(number) => emit::Input::Scalar(*number),
        Input::Scalar(..) => emit::Input::Scalar(0.0),
        Input::Index(axis) => emit::Input::Index { axis: *axis },
    });
    Elementwise {
        dims: task.dims.clone(),
        inputs: inputs.collect(),
        output: Output {
            element: element(task.view.data_type),
            strides: task.view.strides.clone(),
            offset: task.view.offset,
        },
        program: task.program.clone(),
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
                Step::Kernel(step) => {
                    let mut inputs = [std::ptr::null(); MOST_INPUTS];
                    for (to, place) in inputs.iter_mut().zip(&step.inputs) {
                        *to = memory.at(*place).cast_const();
                    }
                    let mut scalars = [0f64; MOST_INPUTS];
                    for (to, scalar) in scalars.iter_mut().zip(&step.scalars) {
                        // SAFETY: the caller answers for what it passes.
                        *to = unsafe { scalar.value(memory.addresses) };
                    }
                    let (inputs, scalars) = (&inputs[..step.inputs.len()], &scalars[..step.scalars.len()]);
                    // SAFETY: the caller answers for stream and buffers; the kernel was made for these views, and its
                    // result is where an input is only if both are the same view.
                    unsafe { step.kernel.launch(&mut queue, inputs, &[memory.at(step.output)], scalars) }?;
                }
                // SAFETY: the caller's promise.
                Step::Grouped(step) => unsafe { step.run(&mut queue, memory) }?,
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
                    let Chosen { prepared, followed } = &self.choices.convolutions[step.index];
                    if let Some(followed) = followed {
                        write!(f, ", with{}", followed.followers)?;
                    }
                    match f.alternate() {
                        true => writeln!(f, ": {}", prepared.outline())?,
                        false => writeln!(f, ": {}", prepared.describe())?,
                    }
                }
                Step::Kernel(step) => {
                    let inputs: Vec<String> = step.inputs.iter().map(|at| place(*at)).collect();
                    writeln!(f, "{index}: {} from {} to {}", step.purpose, inputs.join(", "), place(step.output))?;
                }
                Step::Grouped(step) => {
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
