//! Programs: a partition at concrete extents as a flat list of hipDNN plans over inputs, outputs, constants and one arena.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use hipdnn_schemas::{GraphDef, Operation};

use crate::backend::{Lane, Plan};
use crate::constants::Promise;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::gpu::memory::{Account, Block};
use crate::import::Bytes;
use crate::ir::{BufferId, Function, Source, ValueId, element_bytes};
use crate::memory::{self, ALIGNMENT, Lifetime};
use crate::outline::{self, Outlined, Region, Uses};
use crate::print::{self, Linked};
use crate::profile::Clock;

/// A program that is ready to run, several times at once.
pub(crate) struct Program {
    /// Extents of each output.
    pub outputs: Vec<Vec<i64>>,
    /// Plans in order of execution.
    pub steps: Vec<Step>,
    constants: Vec<Resident>,
    arena: usize,
    workspace: usize,
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
    /// The kinds of the graph's operations.
    operations: String,
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
    pub(crate) fn operations(&self) -> &str {
        &self.operations
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
pub(crate) struct Question<'a> {
    /// The region's graph, whose nodes have the labels of ONNX's.
    pub graph: &'a GraphDef,
    /// Tensors whose contents never change.
    pub promise: &'a Promise,
}

/// Gives a plan for a region's graph, or says why there is none.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(Question<'_>) -> Result<Arc<Plan>, String>;

/// Nodes that no engine takes, with the reasons.
pub(crate) type Refused = Vec<(usize, String)>;

impl Program {
    /// Outlines a function, has each region planned, and plans memory. A region that is refused is split until it is taken.
    ///
    /// # Errors
    /// The nodes whose single operations are refused.
    pub(crate) fn build(
        function: &Function,
        labels: &dyn Fn(usize) -> String,
        ask: Ask<'_>,
    ) -> Result<Program, Refused> {
        Program::build_showing(function, labels, ask, |_| {})
    }

    /// As [`Program::build`], and shows the program as it was linked.
    ///
    /// # Errors
    /// The nodes whose single operations are refused.
    pub(crate) fn build_showing(
        function: &Function,
        labels: &dyn Fn(usize) -> String,
        ask: Ask<'_>,
        show: impl FnOnce(&Linked<'_>),
    ) -> Result<Program, Refused> {
        let uses = Uses::of(function);
        let mut open: Vec<Region> = outline::outline(function, &uses);
        open.reverse();
        let mut taken: Vec<Taken> = Vec::new();
        let mut refused = Refused::new();
        while let Some(region) = open.pop() {
            let outlined = outline::graph(function, &uses, &region, labels);
            let promise = promise(function, &outlined.arguments);
            match ask(Question { graph: &outlined.graph, promise: &promise }) {
                Ok(plan) => taken.push(Taken { region, plan, outlined }),
                Err(reason) => match region.split() {
                    Some([first, second]) => open.extend([second, first]),
                    None => {
                        let node = function.ops[region.ops[0]].node;
                        if !refused.iter().any(|(other, _)| *other == node) {
                            refused.push((node, reason));
                        }
                    }
                },
            }
        }
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
    fn link(function: &Function, regions: &[Taken], places: &Places, labels: &dyn Fn(usize) -> String) -> Program {
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
        let outputs = function.outputs.iter().map(|id| function.value(*id).dims.clone()).collect();
        let constants = constants.into_iter().map(Resident::Host).collect();
        Program { outputs, steps, constants, arena: places.arena, workspace }
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
    /// That there is no memory, or HIP's status.
    pub(crate) fn upload(&mut self, gpu: &'static Gpu, account: &Arc<Account>) -> Result<(), Error> {
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

    /// Runs the program on inputs and outputs at these addresses, or enqueues it on the lane's stream. A clock is told of each step.
    ///
    /// # Safety
    /// `inputs` and `outputs` are the addresses of the tensors that the program was built for, with their types and extents;
    /// those without elements may be null. `memory` has [`Program::memory`] bytes. Nothing else writes to them, or reads
    /// the outputs, during the call, or until the stream has passed.
    ///
    /// # Errors
    /// The backend's status.
    pub(crate) unsafe fn run(
        &self,
        lane: &mut Lane,
        inputs: &[*mut c_void],
        outputs: &[*mut c_void],
        memory: *mut c_void,
        mut clock: Option<&mut dyn Clock>,
    ) -> Result<(), Error> {
        let arena = self.arena.next_multiple_of(ALIGNMENT);
        let workspace = if self.workspace == 0 { std::ptr::null_mut() } else { memory.wrapping_byte_add(arena) };
        let mut addresses = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            addresses.clear();
            addresses.extend(step.places.iter().map(|place| match *place {
                Place::Input(number, offset) => inputs[number].wrapping_byte_add(offset),
                Place::Output(number, offset) => outputs[number].wrapping_byte_add(offset),
                Place::Constant(number, offset) => self.constants[number].address().wrapping_byte_add(offset),
                Place::Arena(offset) => memory.wrapping_byte_add(offset),
            }));
            if let Some(clock) = &mut clock {
                clock.begin(number);
            }
            // SAFETY: every tensor of the graph that is no intermediate has its place: the caller's for inputs and outputs,
            // the program's own for constants, which plans only read, and windows of the arena that nothing else lives in
            // at this step. The workspace behind the arena is as large as the largest that a plan asks for.
            let executed = unsafe { step.plan.execute_on(lane, &step.uids, &addresses, workspace) };
            executed.map_err(|error| error.at(&step.label))?;
            if let Some(clock) = &mut clock {
                clock.end(number);
            }
        }
        Ok(())
    }
}

/// The kinds of a graph's operations, of a run of equal ones once with their number.
fn operations(graph: &GraphDef) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for node in &graph.nodes {
        let kind = match &node.operation {
            Operation::Pointwise(pointwise) => format!("{:?}", pointwise.mode),
            operation => operation.kind().trim_end_matches("Attributes").to_string(),
        };
        match kinds.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => kinds.push((kind, 1)),
        }
    }
    let counted = |(kind, count)| if count == 1 { kind } else { format!("{count} {kind}") };
    kinds.into_iter().map(counted).collect::<Vec<_>>().join(", ")
}

/// A region with its graph and its plan.
struct Taken {
    region: Region,
    plan: Arc<Plan>,
    outlined: Outlined,
}

/// Places of intermediates' buffers in one arena.
pub(crate) struct Places {
    /// Size of the arena in bytes.
    pub arena: usize,
    /// First byte of each buffer that a step uses.
    pub offsets: HashMap<BufferId, usize>,
}

impl Places {
    /// Places every buffer of the arena for the steps that use it; `steps` are their arguments.
    pub(crate) fn of<'a>(function: &Function, steps: impl Iterator<Item = &'a [(i64, ValueId)]>) -> Places {
        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut numbers: HashMap<BufferId, usize> = HashMap::new();
        for (step, arguments) in steps.enumerate() {
            for (_, id) in arguments {
                let buffer = function.value(*id).buffer.expect("arguments have memory");
                if function.buffer(buffer).source != Source::Arena {
                    continue;
                }
                let number = *numbers.entry(buffer).or_insert_with(|| {
                    lifetimes.push(Lifetime { bytes: function.buffer(buffer).bytes(), first: step, last: step });
                    lifetimes.len() - 1
                });
                lifetimes[number].last = step;
            }
        }
        let layout = memory::plan(&lifetimes);
        let offsets = numbers.into_iter().map(|(buffer, number)| (buffer, layout.offsets[number])).collect();
        Places { arena: layout.bytes, offsets }
    }
}

/// Promise about arguments: those that are a whole buffer of known content, in row-major order.
fn promise(function: &Function, arguments: &[(i64, ValueId)]) -> Promise {
    let mut promise = Promise::default();
    for (uid, id) in arguments {
        let value = function.value(*id);
        let buffer = function.buffer(value.buffer.expect("arguments have memory"));
        if let Some(token) = buffer.token
            && value.is_packed()
            && value.elements() == buffer.elements
        {
            promise.add(*uid, token);
        }
    }
    promise
}
