//! Programs: a partition at concrete extents as a flat list of hipDNN plans over inputs, outputs, constants and one arena.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_ep_compiler::constants::Promise;
use hipdnn_ep_compiler::import::Bytes;
use hipdnn_ep_compiler::ir::{Function, Source, ValueId, element_bytes};
use hipdnn_ep_compiler::memory::{ALIGNMENT, Places};
use hipdnn_ep_compiler::outline::{self, Outlined, Region, Uses};
use hipdnn_ep_compiler::print::{self, Linked};
use hipdnn_schemas::{GraphDef, Operation, PointwiseMode};

use crate::backend::{Plan, PooledHandle, Recording};
use crate::descriptor::{BackendError, Descriptor};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::gpu::memory::{Account, Block};
use crate::profile::Clock;

/// A program that is ready to run, several times at once.
pub(crate) struct Program {
    /// Packs of earlier runs that no run uses now, the last one's last. They go before the plans, whose launches they have.
    packs: Mutex<Vec<Packs>>,
    /// Extents of each output.
    pub outputs: Vec<Vec<i64>>,
    /// Plans in order of execution.
    pub steps: Vec<Step>,
    constants: Vec<Resident>,
    arena: usize,
    workspace: usize,
    /// The GPU whose memory its tensors are in, if they are in one's.
    gpu: Option<&'static Gpu>,
}

/// Enqueued work may use plans and constants when the last run has long returned: streams that have work keep them until it is done.
impl Drop for Program {
    fn drop(&mut self) {
        let Some(gpu) = self.gpu else { return };
        let packs = std::mem::take(self.packs.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Packs go before the plans whose launches they have; what streams keep is to be shared, and packs alone are not.
        gpu.keep(&Arc::new((Mutex::new(packs), std::mem::take(&mut self.steps), std::mem::take(&mut self.constants))));
    }
}

/// Most packs that a program keeps: those of as many concurrent runs, or of as many inputs and outputs that take turns.
const MOST_PACKS: usize = 8;

/// The steps' packs for tensors and memory at certain addresses.
pub(crate) struct Packs {
    /// Addresses of inputs, outputs and memory.
    tensors: Box<[usize]>,
    memory: usize,
    packs: Box<[Descriptor]>,
    /// The run's launches, if runs on a GPU have been recorded.
    recorded: Recorded,
}

/// Recording of a program's run.
enum Recorded {
    /// None is there yet.
    NotYet,
    /// It did what no launch repeats, or the plugin can't record.
    Never,
    Done(Recording),
}

impl Packs {
    /// Recording of the program's launches on these tensors and memory.
    pub(crate) fn recording(&self, tensors: &[usize], memory: *mut c_void) -> Option<&Recording> {
        match &self.recorded {
            Recorded::Done(recording) if self.are_of(tensors, memory) => Some(recording),
            _ => None,
        }
    }

    fn are_of(&self, tensors: &[usize], memory: *mut c_void) -> bool {
        self.memory == memory.addr() && *self.tensors == *tensors
    }
}

/// A constant that the program itself holds, in the memory of its tensors.
enum Resident {
    Host(Bytes),
    Device(Arc<Block>),
}

impl Resident {
    fn address(&self) -> *mut c_void {
        match self {
            Resident::Host(bytes) => bytes.as_ptr().cast_mut().cast(),
            Resident::Device(block) => block.address(),
        }
    }
}

/// A hipDNN plan and where its tensors are.
pub(crate) struct Step {
    plan: Arc<Plan>,
    uids: Vec<i64>,
    places: Vec<Place>,
    /// The ONNX nodes that it computes, each once.
    pub nodes: Vec<usize>,
    /// Their names, for messages and profiles.
    label: String,
    /// The name of the graph's first node, by which dumps name the graph.
    graph: String,
    /// The kinds of the graph's operations, of a run of equal ones once with their number.
    operations: Box<[(OperationKind, usize)]>,
}

/// Kind of an operation, for people: the attributes that it has, or the function that a pointwise node computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperationKind {
    Pointwise(PointwiseMode),
    Other(&'static str),
}

impl OperationKind {
    fn of(operation: &Operation) -> OperationKind {
        match operation {
            Operation::Pointwise(pointwise) => OperationKind::Pointwise(pointwise.mode),
            operation => OperationKind::Other(operation.kind().trim_end_matches("Attributes")),
        }
    }
}

impl std::fmt::Display for OperationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OperationKind::Pointwise(mode) => write!(f, "{mode:?}"),
            OperationKind::Other(kind) => f.write_str(kind),
        }
    }
}

impl Step {
    /// The engine that runs the step.
    pub(crate) fn engine(&self) -> &str {
        self.plan.engine()
    }

    /// The names of the nodes.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The graph, as dumps name it.
    pub(crate) fn graph(&self) -> &str {
        &self.graph
    }

    /// The kinds of the graph's operations, in their order.
    pub(crate) fn operations(&self) -> String {
        let counted = |(kind, count): &(OperationKind, usize)| match count {
            1 => kind.to_string(),
            count => format!("{count} {kind}"),
        };
        self.operations.iter().map(counted).collect::<Vec<_>>().join(", ")
    }

    fn failure(&self, error: &BackendError) -> Error {
        Error::failed(error.to_string()).at(&self.label)
    }

    /// A short name: the graph's, and how many further nodes it computes.
    pub(crate) fn title(&self) -> String {
        match self.nodes.len() {
            0 | 1 => self.graph.clone(),
            nodes => format!("{} and {} more", self.graph, nodes - 1),
        }
    }
}

/// Memory of a tensor, as an offset in bytes into something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Input(usize, usize),
    Output(usize, usize),
    Constant(usize, usize),
    Arena(usize),
}

/// A region that is asked about.
pub(crate) struct PlanRequest<'a> {
    /// The region's graph, whose nodes have the labels of ONNX's.
    pub graph: &'a GraphDef,
    /// Its bytes without names, by which plans are shared.
    pub nameless: &'a [u8],
    /// Tensors whose contents never change.
    pub promise: &'a Promise,
}

/// Gives a plan for a region's graph, or says why there is none.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(PlanRequest<'_>) -> Result<Arc<Plan>, String>;

/// Gives plans for some of these graphs, so that an [`Ask`] for them finds what is made already.
pub(crate) type Ahead<'a> = &'a mut dyn FnMut(&[PlanRequest<'_>]) -> Vec<Arc<Plan>>;

/// Nodes that no engine takes, with the reasons.
pub(crate) type Refused = Vec<(usize, String)>;

impl Program {
    /// Outlines a function, has each region planned, and plans memory. A region that is refused is split until it is taken.
    ///
    /// # Errors
    /// The nodes whose single operations are refused.
    pub(crate) fn build<'l>(
        function: &Function,
        labels: &dyn Fn(usize) -> &'l str,
        ask: Ask<'_>,
    ) -> Result<Program, Refused> {
        Program::build_showing(function, labels, &mut |_| Vec::new(), ask, |_| {})
    }

    /// As [`Program::build`], with plans that are made `ahead`, and shows the program as it was linked.
    ///
    /// # Errors
    /// The nodes whose single operations are refused.
    pub(crate) fn build_showing<'l>(
        function: &Function,
        labels: &dyn Fn(usize) -> &'l str,
        ahead: Ahead<'_>,
        ask: Ask<'_>,
        show: impl FnOnce(&Linked<'_>),
    ) -> Result<Program, Refused> {
        let uses = Uses::of(function);
        let described = |region: Region| {
            let outlined = outline::graph(function, &uses, &region, labels);
            let promise = outline::promise(function, &outlined.arguments);
            let nameless = outlined.graph.to_bytes_without_names();
            Described { region, outlined, promise, nameless }
        };
        let mut open: Vec<_> = outline::outline(function, &uses).into_iter().map(described).collect();
        let made = ahead(&open.iter().map(Described::request).collect::<Vec<_>>());
        open.reverse();
        let mut taken: Vec<Taken> = Vec::new();
        let mut refused = Refused::new();
        while let Some(next) = open.pop() {
            let answer = ask(next.request());
            let Described { region, outlined, .. } = next;
            match answer {
                Ok(plan) => taken.push(Taken { region, plan, outlined }),
                Err(reason) => match region.split() {
                    Some([first, second]) => open.extend([second, first].map(described)),
                    None => {
                        let node = function.ops[region.ops[0]].node;
                        if !refused.iter().any(|(other, _)| *other == node) {
                            refused.push((node, reason));
                        }
                    }
                },
            }
        }
        drop(made);
        if !refused.is_empty() {
            return Err(refused);
        }
        let places = Places::of(function, taken.iter().map(|taken| &taken.outlined.arguments[..]));
        let program = Program::link(function, &taken, &places, labels);
        let steps = taken.iter().map(|taken| print::Step {
            graph: &taken.outlined.graph,
            arguments: &taken.outlined.arguments,
            engine: taken.plan.engine(),
            workspace: taken.plan.workspace(),
        });
        let Places { arena, offsets } = &places;
        show(&Linked {
            function,
            steps: steps.collect(),
            places: offsets,
            arena: *arena,
            workspace: program.workspace,
        });
        Ok(program)
    }

    /// Binds the plans' tensors to their places.
    fn link<'l>(function: &Function, regions: &[Taken], places: &Places, labels: &dyn Fn(usize) -> &'l str) -> Program {
        let mut constants: Vec<Bytes> = Vec::new();
        let mut place = |id: ValueId| {
            let value = function.value(id);
            let buffer = value.buffer.expect("arguments have memory");
            let offset =
                usize::try_from(value.offset).expect("offsets are not negative") * element_bytes(value.data_type);
            match &function.buffer(buffer).source {
                Source::Input(number) => Place::Input(*number, offset),
                Source::Output(number) => Place::Output(*number, offset),
                Source::Arena => Place::Arena(places.offsets[&buffer] + offset),
                Source::Constant(bytes) => {
                    let known = constants.iter().position(|other| Arc::ptr_eq(other, bytes));
                    let number = known.unwrap_or_else(|| {
                        constants.push(bytes.clone());
                        constants.len() - 1
                    });
                    Place::Constant(number, offset)
                }
            }
        };
        let mut steps = Vec::with_capacity(regions.len());
        for Taken { region, plan, outlined } in regions {
            let arguments = &outlined.arguments;
            let mut nodes: Vec<usize> = region.ops.iter().map(|op| function.ops[*op].node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            steps.push(Step {
                graph: outlined.graph.nodes.first().map(|node| node.name.clone()).unwrap_or_default(),
                operations: operations(&outlined.graph),
                label: nodes.iter().map(|node| labels(*node)).collect::<Vec<_>>().join(", "),
                plan: plan.clone(),
                uids: arguments.iter().map(|(uid, _)| *uid).collect(),
                places: arguments.iter().map(|(_, id)| place(*id)).collect(),
                nodes,
            });
        }
        let workspace = steps.iter().map(|step| step.plan.workspace()).max().unwrap_or(0);
        let outputs = function.outputs.iter().map(|id| function.value(*id).dims.to_vec()).collect();
        let constants = constants.into_iter().map(Resident::Host).collect();
        Program { outputs, steps, constants, arena: places.arena, workspace, packs: Mutex::default(), gpu: None }
    }

    /// Bytes of intermediates that are alive between plans, at most at a time.
    pub(crate) fn arena(&self) -> usize {
        self.arena
    }

    /// Bytes that the plans work in, beside the arena.
    pub(crate) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Moves the program's own constants to a GPU, where its tensors are.
    ///
    /// # Errors
    /// If there is no memory, or HIP's status.
    pub(crate) fn upload(&mut self, gpu: &'static Gpu, account: &Arc<Account>) -> Result<(), Error> {
        self.gpu = Some(gpu);
        for constant in &mut self.constants {
            if let Resident::Host(bytes) = constant {
                *constant = Resident::Device(gpu.constant(bytes, account)?);
            }
        }
        Ok(())
    }

    /// Bytes of memory that a run needs for itself.
    pub(crate) fn memory(&self) -> usize {
        self.arena.next_multiple_of(ALIGNMENT).saturating_add(self.workspace)
    }

    /// Runs the program on inputs and outputs at these addresses, or enqueues it on the handle's stream. A clock is told of each step.
    /// `held` are packs of the caller's earlier run, if there was one, and become those of this one.
    ///
    /// # Safety
    /// `tensors` are the exposed addresses of the inputs and then the outputs that the program was built for, with their types and
    /// extents; those without elements may be 0. `memory` has [`Program::memory`] bytes. Nothing else writes to them, or
    /// reads the outputs, during the call, or until the stream has passed.
    ///
    /// # Errors
    /// The backend's status.
    pub(crate) unsafe fn run(
        &self,
        pooled: &mut PooledHandle,
        tensors: &[usize],
        memory: *mut c_void,
        held: &mut Option<Packs>,
        clock: Option<&mut dyn Clock>,
    ) -> Result<(), Error> {
        let (mut packs, is_new) = match held.take() {
            Some(packs) if packs.are_of(tensors, memory) => (packs, false),
            others => {
                if let Some(others) = others {
                    self.keep_packs(others);
                }
                self.take_packs(tensors, memory)?
            }
        };
        // Of packs that are used again, by a run whose steps nobody times.
        if !is_new
            && clock.is_none()
            && matches!(packs.recorded, Recorded::NotYet)
            && let Some(context) = self.steps.first().and_then(|step| step.plan.recorder())
        {
            // SAFETY: the caller's promise.
            let (ran, recording) = context.record(self.steps.len(), || unsafe { self.execute(pooled, &packs, None) });
            ran?;
            packs.recorded = recording.map_or(Recorded::Never, Recorded::Done);
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.execute(pooled, &packs, clock) }?;
        }
        *held = Some(packs);
        Ok(())
    }

    /// Executes the steps with their packs.
    ///
    /// # Safety
    /// As for [`Program::run`], for the tensors and the memory of the packs.
    unsafe fn execute(
        &self,
        pooled: &mut PooledHandle,
        packs: &Packs,
        mut clock: Option<&mut dyn Clock>,
    ) -> Result<(), Error> {
        for (number, (step, pack)) in self.steps.iter().zip(&packs.packs).enumerate() {
            if let Some(clock) = &mut clock {
                clock.begin(number);
            }
            // SAFETY: every tensor of the graph that is no intermediate has its place: the caller's for inputs and outputs,
            // the program's own for constants, which plans only read, and windows of the arena that nothing else lives in
            // at this step. The workspace behind the arena is as large as the largest that a plan asks for.
            let executed = unsafe { step.plan.execute_on(pooled, pack) };
            executed.map_err(|error| step.failure(&error))?;
            if let Some(clock) = &mut clock {
                clock.end(number);
            }
        }
        Ok(())
    }

    /// Repeats a run of the program on a stream, as it was recorded.
    ///
    /// # Safety
    /// As for [`Program::run`], for the tensors and the memory of the recorded run; the stream is of the program's device.
    ///
    /// # Errors
    /// The plugin's words, with the step.
    pub(crate) unsafe fn replay(&self, recording: &Recording, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: the recording is of this program, whose plans are its own; the rest is the caller's promise.
        let replayed = unsafe { recording.replay(stream) };
        replayed.map_err(|(number, text)| match self.steps.get(number) {
            Some(step) => Error::failed(format!("running {}: {text}", step.engine())).at(&step.label),
            None => Error::failed(text),
        })
    }

    /// The packs of an earlier run at these addresses, or new ones, and whether they are new.
    fn take_packs(&self, tensors: &[usize], memory: *mut c_void) -> Result<(Packs, bool), Error> {
        let mut kept = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().rposition(|packs| packs.are_of(tensors, memory)) {
            return Ok((kept.remove(index), false));
        }
        drop(kept);
        let (inputs, outputs) = tensors.split_at(tensors.len() - self.outputs.len());
        let arena = self.arena.next_multiple_of(ALIGNMENT);
        let workspace = if self.workspace == 0 { std::ptr::null_mut() } else { memory.wrapping_byte_add(arena) };
        let at = std::ptr::with_exposed_provenance_mut::<c_void>;
        let pack = |step: &Step| {
            let addresses = step.places.iter().map(|place| match *place {
                Place::Input(number, offset) => at(inputs[number]).wrapping_byte_add(offset),
                Place::Output(number, offset) => at(outputs[number]).wrapping_byte_add(offset),
                Place::Constant(number, offset) => self.constants[number].address().wrapping_byte_add(offset),
                Place::Arena(offset) => memory.wrapping_byte_add(offset),
            });
            let addresses: Vec<_> = addresses.collect();
            step.plan.pack(&step.uids, &addresses, workspace).map_err(|error| step.failure(&error))
        };
        let packs = self.steps.iter().map(pack).collect::<Result<_, Error>>()?;
        Ok((Packs { tensors: tensors.into(), memory: memory.addr(), packs, recorded: Recorded::NotYet }, true))
    }

    /// Keeps packs for runs at the same addresses, in the place of those that were not used for longest.
    fn keep_packs(&self, packs: Packs) {
        let mut kept = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (kept.len() >= MOST_PACKS).then(|| kept.remove(0));
        kept.push(packs);
        drop(kept);
        // The backend destroys them: not under the lock.
        drop(oldest);
    }
}

/// The kinds of a graph's operations, of a run of equal ones once with their number.
fn operations(graph: &GraphDef) -> Box<[(OperationKind, usize)]> {
    let mut kinds: Vec<(OperationKind, usize)> = Vec::new();
    for kind in graph.nodes.iter().map(|node| OperationKind::of(&node.operation)) {
        match kinds.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => kinds.push((kind, 1)),
        }
    }
    kinds.into()
}

/// A region as it is asked about.
struct Described {
    region: Region,
    outlined: Outlined,
    promise: Promise,
    nameless: Vec<u8>,
}

impl Described {
    fn request(&self) -> PlanRequest<'_> {
        PlanRequest { graph: &self.outlined.graph, nameless: &self.nameless, promise: &self.promise }
    }
}

/// A region with its graph and its plan.
struct Taken {
    region: Region,
    plan: Arc<Plan>,
    outlined: Outlined,
}
