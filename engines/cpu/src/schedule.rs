//! Planning: from works to steps, with algorithms chosen, a place for every operand, and the workspace planned.

use std::collections::HashMap;
use std::fmt;

use hipdnn_cpu_convolution::{ConvolutionPlan, Element, EpilogueStep, FusedLayers, Layout, Problem};
use hipdnn_engine_core::TensorLabel;
use hipdnn_engine_core::checks::element_bytes;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Buffer, BufferTable, Place};
use hipdnn_engine_core::memory::workspace::{ALIGNMENT, Block, Planner};
use hipdnn_schemas::{Graph, Tensor, TensorUid, TensorValue, Uids};
use smallvec::SmallVec;

use super::fuse::fold::Fold;
use super::fuse::{Fused, NodeList, Remark};
use super::geometry::{broadcast, element, layout, lift, shape};
use super::layout::is_channels_last;
use super::nodes::factors::Factors;
use super::nodes::{LibraryKernel, LibraryOp, MAX_INPUTS, MAX_OUTPUTS};
use super::settings::{Settings, Token};
use super::work::{Convolution, Elementwise, EpilogueOp, Input, Operand, Work};
use hipdnn_cpu_pointwise::{InputView, PointwiseKernel, Storage, View};

/// Number of buffers whose addresses an execution keeps on the stack; more of them get room in the workspace.
pub const ADDRESSES_ON_STACK: usize = 32;

/// Scalar of the graph: its bytes in memory order, first ones first, aligned for any type.
pub type Constant = u64;

/// A CPU plan before its memory and threads are bound.
#[derive(Debug)]
pub struct Schedule {
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// The caller's tensors.
    pub buffers: BufferTable,
    /// Scalars fixed in the graph.
    pub constants: Vec<Constant>,
    /// Workspace offset of the table of buffer addresses, if that is not on the stack.
    pub addresses: Option<usize>,
    /// Bytes of workspace, counted from an address that is a multiple of [`ALIGNMENT`].
    pub aligned_bytes: usize,
    /// Outline of each step.
    outlines: Vec<Outline>,
    /// Remarks of fusion: what was fused, and what was not.
    remarks: Vec<Remark>,
}

/// Operands and scratch of a step, for messages and logs.
#[derive(Debug)]
struct Outline {
    name: &'static str,
    nodes: NodeList,
    reads: SmallVec<[Located; 4]>,
    writes: SmallVec<[Located; 1]>,
    scratch_bytes: usize,
}

/// A tensor and its place, for messages.
#[derive(Debug)]
struct Located {
    uid: TensorUid,
    place: Option<Place>,
    channels_last: bool,
}

/// Step of an execution.
#[derive(Debug)]
pub enum Step {
    /// A convolution with its epilogue.
    Convolution(Box<ConvolutionStep>),
    /// Convolutions behind each other with their epilogues, by bands of rows.
    FusedLayers(Box<FusedLayersStep>),
    /// An element-wise function.
    Pointwise(PointwiseStep),
    /// A node of any other kind.
    Node(NodeStep),
}

/// A convolution and the places of its operands.
#[derive(Debug)]
pub struct ConvolutionStep {
    /// Plan of the kernel.
    pub plan: ConvolutionPlan,
    /// The input.
    pub x: Place,
    /// The output.
    pub y: Place,
    /// The other operands.
    pub layer: Layer,
    /// Scratch memory.
    pub scratch: Place,
}

/// Convolutions behind each other, and the places of their operands.
#[derive(Debug)]
pub struct FusedLayersStep {
    /// Plan of the kernels.
    pub plan: FusedLayers,
    /// Input of the first layer.
    pub x: Place,
    /// Output of the last layer.
    pub y: Place,
    /// The other operands of each layer.
    pub layers: Vec<Layer>,
    /// Scratch memory.
    pub scratch: Place,
}

/// Places of a convolution's operands beside its input and output.
#[derive(Debug)]
pub struct Layer {
    /// The filter.
    pub w: Place,
    /// Operands of the epilogue.
    pub operands: Vec<Place>,
    /// Scale and shift computations that run before the convolution.
    pub folds: Vec<FoldStep>,
    /// Token of the filter's contents, if they are constant and the kernel wants them prepared.
    pub token: Option<Token>,
}

/// Scales and shifts of a normalization, and the places of their operands.
#[derive(Debug)]
pub struct FoldStep {
    /// Kernel of the scales and shifts.
    pub factors: Factors,
    /// Places of its operands.
    pub inputs: Vec<Place>,
    /// Destination of the scales.
    pub to: Place,
    /// Destination of the shifts.
    pub shifts: Place,
}

/// A pointwise kernel and the places of its operands.
#[derive(Debug)]
pub struct PointwiseStep {
    /// The kernel.
    pub kernel: PointwiseKernel,
    /// Inputs; `None` for those that have no memory.
    pub inputs: Vec<Option<Place>>,
    /// Output.
    pub output: Place,
}

/// A node's kernel and the places of its operands.
#[derive(Debug)]
pub struct NodeStep {
    /// Description for messages and logs.
    pub name: &'static str,
    /// The kernel.
    pub kernel: Box<dyn LibraryKernel>,
    /// Inputs, in the kernel's order; `None` where an optional one is absent.
    pub inputs: Vec<Option<Place>>,
    /// Outputs, in the kernel's order; `None` where an optional one is absent.
    pub outputs: Vec<Option<Place>>,
    /// Scratch memory.
    pub scratch: Place,
    /// Token of the contents of the input that the kernel has prepared, if they are constant.
    pub token: Option<Token>,
}

impl Schedule {
    /// Bytes of workspace, enough for any address that the caller gives.
    pub fn workspace_bytes(&self) -> usize {
        if self.aligned_bytes == 0 { 0 } else { self.aligned_bytes + ALIGNMENT }
    }

    /// Plans a fused graph. Where a workspace limit is set, faster choices give way to smaller ones.
    ///
    /// # Errors
    /// If no choice keeps the limit, or no address space is large enough.
    pub fn new(graph: &Graph, fused: &Fused, settings: &Settings) -> Result<Schedule, Error> {
        let works = &fused.works;
        let limit = settings.workspace_limit;
        let mut least = usize::MAX;
        for (winograd, threads) in [(settings.winograd, settings.threads), (false, settings.threads), (false, 1)] {
            let choice = Choice { winograd, threads, settings };
            let schedule = Builder::new(graph, works, &choice).build(fused)?;
            let bytes = schedule.workspace_bytes();
            if bytes <= limit {
                return Ok(schedule);
            }
            least = least.min(bytes);
        }
        Err(Error::invalid_value(format!(
            "knob global.workspace_size_limit: expected at least {least} bytes for this graph, got {limit}"
        )))
    }
}

struct Choice<'a> {
    winograd: bool,
    threads: usize,
    settings: &'a Settings,
}

impl Choice<'_> {
    fn token(&self, uid: TensorUid) -> Option<&Token> {
        let constants = &self.settings.constants;
        constants.binary_search_by_key(&uid, |(uid, _)| *uid).ok().map(|at| &constants[at].1)
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    choice: &'a Choice<'a>,
    buffers: BufferTable,
    constants: Vec<Constant>,
    /// Places of scalars among the constants, in the order of the graph's tensors.
    constant_of: Vec<Option<usize>>,
    planner: Planner,
    /// Memory of intermediates that live, in the order of the graph's tensors.
    live: Vec<Option<Block>>,
    /// Last use of each intermediate, in the order of the graph's tensors: the work that reads (or, for results that nobody
    /// reads, writes) it.
    last_use: Vec<Option<usize>>,
    /// Places of tensors in the order of the graph, for messages.
    place_of: Vec<Option<Place>>,
    /// Index of the work that is planned.
    now: usize,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, works: &[Work], choice: &'a Choice<'a>) -> Builder<'a> {
        let mut last_use = vec![None; graph.tensors().len()];
        let mut buffers: HashMap<TensorUid, Buffer> = HashMap::new();
        for (index, work) in works.iter().enumerate() {
            // A filter that is prepared once is not needed once it is: whoever shares it may leave it out.
            let spare = match work {
                Work::Convolution(c) if choice.token(c.node.w).is_some() => Some(c.node.w),
                Work::Matmul(m) => m.constant(graph).filter(|uid| choice.token(*uid).is_some()),
                _ => None,
            };
            for (role, uid) in operands(work).into_iter().enumerate() {
                let tensor = graph.tensor(uid);
                match kind(tensor) {
                    Kind::Constant(_) => {}
                    Kind::Intermediate => {
                        last_use[graph.position(uid)] = Some(index);
                    }
                    Kind::Caller => {
                        let buffer = buffers.entry(uid).or_insert_with(|| Buffer {
                            uid,
                            label: TensorLabel::of(graph, uid),
                            alignment: element_bytes(tensor.data_type()),
                            required: false,
                        });
                        buffer.required |= !(role == FILTER && Some(uid) == spare);
                    }
                }
            }
        }
        Builder {
            graph,
            choice,
            buffers: BufferTable::new(buffers.into_values().collect()),
            constants: Vec::new(),
            constant_of: vec![None; graph.tensors().len()],
            planner: Planner::default(),
            live: vec![None; graph.tensors().len()],
            last_use,
            place_of: vec![None; graph.tensors().len()],
            now: 0,
        }
    }

    fn build(mut self, fused: &Fused) -> Result<Schedule, Error> {
        let works = &fused.works;
        let table = match self.buffers.len() {
            count if count > ADDRESSES_ON_STACK => Some(self.planner.take(count * size_of::<*mut u8>())?.offset),
            _ => None,
        };
        let mut steps = Vec::with_capacity(works.len());
        let mut outlines = Vec::with_capacity(works.len());
        let mut next = 0;
        while next < works.len() {
            let fused_layers = self.fusible_layers(&works[next..], next);
            let first = next;
            next += fused_layers.as_ref().map_or(1, FusedLayers::count);
            self.now = next - 1;
            let of_step = &works[first..next];
            let step = match (fused_layers, &works[first]) {
                (Some(plan), _) => Step::FusedLayers(Box::new(self.fused_layers(plan, of_step)?)),
                (None, Work::Convolution(work)) => Step::Convolution(Box::new(self.convolution(work)?)),
                (None, Work::Pointwise(work)) => Step::Pointwise(self.pointwise(work)?),
                (None, Work::Matmul(work)) => Step::Node(self.node(&work.node(self.graph))?),
                (None, Work::Node(work)) => Step::Node(self.node(work)?),
            };
            outlines.push(self.outline(&step, of_step, fused.nodes[first..next].concat().into()));
            steps.push(step);
            for uid in of_step.iter().flat_map(operands) {
                let position = self.graph.position(uid);
                if self.last_use[position].is_some_and(|last| last < next)
                    && let Some(block) = self.live[position].take()
                {
                    self.planner.give_back(block);
                }
            }
        }
        Ok(Schedule {
            steps,
            buffers: self.buffers,
            constants: self.constants,
            addresses: table,
            aligned_bytes: self.planner.bytes(),
            outlines,
            remarks: fused.remarks.clone(),
        })
    }

    /// Outline of a step of these works, which compute these nodes.
    fn outline(&self, step: &Step, works: &[Work], nodes: NodeList) -> Outline {
        let written: Uids = works.iter().flat_map(Work::writes).collect();
        let last = works.last().expect("a step is of works");
        let locate = |uid: TensorUid| Located {
            uid,
            place: self.place_of[self.graph.position(uid)],
            channels_last: is_channels_last(self.graph.tensor(uid)),
        };
        let read = works.iter().flat_map(Work::reads).filter(|uid| !written.contains(uid));
        Outline {
            name: last.name(),
            nodes,
            reads: read.map(locate).collect(),
            writes: last.writes().into_iter().map(locate).collect(),
            scratch_bytes: match step {
                Step::Convolution(step) => step.plan.workspace_bytes(),
                Step::FusedLayers(step) => step.plan.workspace_bytes(),
                Step::Pointwise(_) => 0,
                Step::Node(step) => step.kernel.scratch_bytes(),
            },
        }
    }

    /// Place of a step's result, which may be that of an intermediate that nobody reads after this step, if it is one
    /// of `donors`: those have the result's layout, and each of their elements is read before the result's is written.
    fn result(&mut self, uid: TensorUid, donors: &[TensorUid]) -> Result<Place, Error> {
        let position = self.graph.position(uid);
        let is_new = matches!(kind(self.graph.tensor(uid)), Kind::Intermediate) && self.live[position].is_none();
        if is_new {
            for donor in donors {
                let given = matches!(kind(self.graph.tensor(*donor)), Kind::Intermediate)
                    && self.last_use[self.graph.position(*donor)] == Some(self.now);
                if given && let Some(block) = self.live[self.graph.position(*donor)].take() {
                    self.live[position] = Some(block);
                    break;
                }
            }
        }
        self.place(uid)
    }

    /// Place of a tensor that a work reads or writes.
    fn place(&mut self, uid: TensorUid) -> Result<Place, Error> {
        let place = self.find_place(uid)?;
        self.place_of[self.graph.position(uid)] = Some(place);
        Ok(place)
    }

    fn find_place(&mut self, uid: TensorUid) -> Result<Place, Error> {
        let position = self.graph.position(uid);
        let tensor = &self.graph.tensors()[position];
        match kind(tensor) {
            Kind::Constant(value) => {
                let constants = &mut self.constants;
                let index = *self.constant_of[position].get_or_insert_with(|| {
                    constants.push(encode(value));
                    constants.len() - 1
                });
                Ok(Place::Constant(index))
            }
            Kind::Caller => Ok(Place::Buffer(self.buffers.index(uid).expect("every tensor of a work is in the table"))),
            Kind::Intermediate => {
                if let Some(block) = &self.live[position] {
                    return Ok(Place::Workspace(block.offset));
                }
                let block = self.planner.take(tensor.span_bytes())?;
                self.live[position] = Some(block);
                Ok(Place::Workspace(block.offset))
            }
        }
    }

    fn literal(&mut self, value: f32) -> Place {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&value.to_ne_bytes());
        self.constants.push(u64::from_ne_bytes(bytes));
        Place::Constant(self.constants.len() - 1)
    }

    fn convolution(&mut self, work: &Convolution) -> Result<ConvolutionStep, Error> {
        let plan = ConvolutionPlan::new(&self.problem(work), self.choice.threads);
        let mut taken = Vec::new();
        let layer = self.layer(work, &plan, &mut taken)?;
        let x = self.place(work.node.x)?;
        let y = self.convolved(&[work])?;
        let scratch = self.scratch(plan.workspace_bytes(), taken)?;
        Ok(ConvolutionStep { plan, x, y, layer, scratch })
    }

    /// Plan for the first of these works, where fusing them gains; they stand at `index` and behind it.
    fn fusible_layers(&self, works: &[Work], index: usize) -> Option<FusedLayers> {
        if !self.choice.settings.fuse {
            return None;
        }
        let mut layers: SmallVec<[&Convolution; 4]> = SmallVec::new();
        for work in works {
            let Work::Convolution(work) = work else { break };
            if let Some(before) = layers.last() {
                let (output, read) = (before.output, work.epilogue.iter().flat_map(EpilogueOp::tensors));
                let is_between = matches!(kind(self.graph.tensor(output)), Kind::Intermediate)
                    && self.last_use[self.graph.position(output)] == Some(index + layers.len());
                if !is_between || work.node.x != output || read.chain([work.node.w]).any(|uid| uid == output) {
                    break;
                }
            }
            layers.push(work);
        }
        if layers.len() < 2 {
            return None;
        }
        FusedLayers::longest(layers.into_iter().map(|work| self.problem(work)), self.choice.threads)
    }

    fn fused_layers(&mut self, plan: FusedLayers, works: &[Work]) -> Result<FusedLayersStep, Error> {
        let works: SmallVec<[&Convolution; 4]> = works
            .iter()
            .map(|work| match work {
                Work::Convolution(work) => work,
                _ => unreachable!("layers that fuse are convolutions"),
            })
            .collect();
        let mut taken = Vec::new();
        let mut layers = Vec::with_capacity(works.len());
        for (index, work) in works.iter().enumerate() {
            layers.push(self.layer(work, plan.plan(index), &mut taken)?);
        }
        let x = self.place(works[0].node.x)?;
        let y = self.convolved(&works)?;
        let scratch = self.scratch(plan.workspace_bytes(), taken)?;
        Ok(FusedLayersStep { plan, x, y, layers, scratch })
    }

    /// Problem of a convolution: the epilogue's operands are numbered in its order.
    fn problem(&self, work: &Convolution) -> Problem {
        let graph = self.graph;
        let [x, w, y] = [work.node.x, work.node.w, work.output].map(|uid| graph.tensor(uid));
        let mut epilogue = Vec::with_capacity(work.epilogue.len());
        let mut operand = 0;
        for op in &work.epilogue {
            match op {
                EpilogueOp::Activation(activation) => epilogue.push(EpilogueStep::Activation(*activation)),
                EpilogueOp::Add(summand) => {
                    let layout = self.layout_along(summand, y);
                    let [n, channel_stride, rest @ ..] = layout.strides;
                    epilogue.push(if n == 0 && rest == [0; 3] {
                        EpilogueStep::Bias { operand, element: layout.element, channel_stride }
                    } else {
                        EpilogueStep::Add { operand, layout }
                    });
                }
                EpilogueOp::Mul(factor) => {
                    epilogue.push(EpilogueStep::Mul { operand, layout: self.layout_along(factor, y) });
                }
                EpilogueOp::Fold(_) => {
                    let layout = Layout { element: Element::F32, strides: [0, 1, 0, 0, 0] };
                    epilogue.push(EpilogueStep::Mul { operand, layout });
                    let operand = operand + 1;
                    epilogue.push(EpilogueStep::Bias { operand, element: Element::F32, channel_stride: 1 });
                }
            }
            operand += op.operands();
        }
        let token = self.choice.token(work.node.w);
        Problem {
            shape: shape(&work.node.convolution, x, w, y),
            x: layout(x),
            w: layout(w),
            y: layout(y),
            epilogue,
            constant_weights: token.is_some(),
            // Weights that the graph computes are dequantized ones as a rule: with plain sums of their products outputs round to the
            // same 8 bits as elsewhere.
            winograd: self.choice.winograd && (token.is_some() || !w.is_virtual()),
        }
    }

    /// Layout of an operand of the epilogue along the output.
    fn layout_along(&self, operand: &Operand, output: &Tensor) -> Layout {
        match operand {
            Operand::Literal(_) => Layout { element: Element::F32, strides: [0; 5] },
            Operand::Tensor(uid) => {
                let tensor = self.graph.tensor(*uid);
                let strides = lift(&broadcast(tensor, output), 0);
                Layout { element: element(tensor.data_type()).expect("fused operands have such a type"), strides }
            }
        }
    }

    /// Places of a convolution's operands beside input and output, in the order of [`Builder::problem`]'s; adds the blocks of
    /// workspace that are only the step's to `taken`.
    fn layer(&mut self, work: &Convolution, plan: &ConvolutionPlan, taken: &mut Vec<Block>) -> Result<Layer, Error> {
        let (mut operands, mut folds) = (Vec::new(), Vec::new());
        for op in &work.epilogue {
            match op {
                EpilogueOp::Activation(_) => {}
                EpilogueOp::Add(Operand::Literal(value)) | EpilogueOp::Mul(Operand::Literal(value)) => {
                    operands.push(self.literal(*value));
                }
                EpilogueOp::Add(Operand::Tensor(uid)) | EpilogueOp::Mul(Operand::Tensor(uid)) => {
                    operands.push(self.place(*uid)?);
                }
                EpilogueOp::Fold(fold) => {
                    let channels = self.graph.tensor(work.output).dims()[1];
                    let step = self.fold(fold, channels, taken)?;
                    operands.extend([step.to, step.shifts]);
                    folds.push(step);
                }
            }
        }
        let token = self.choice.token(work.node.w).filter(|_| plan.prepared_len() > 0).cloned();
        Ok(Layer { w: self.place(work.node.w)?, operands, folds, token })
    }

    /// Place of the output of a convolution, or of the last of several layers. A residual that lies as it does is read, place by
    /// place, before the output is written: it may be in the same place.
    fn convolved(&mut self, layers: &[&Convolution]) -> Result<Place, Error> {
        let graph = self.graph;
        let (last, others) = layers.split_last().expect("there is a layer");
        let y = graph.tensor(last.output);
        let mut kept: Uids =
            others.iter().flat_map(|work| work.epilogue.iter().flat_map(EpilogueOp::tensors)).collect();
        kept.extend(layers.iter().flat_map(|work| [work.node.x, work.node.w]));
        for op in &last.epilogue {
            if let EpilogueOp::Fold(fold) = op {
                kept.extend(fold.tensors());
            }
        }
        let lies_alike = |uid: &TensorUid| {
            let donor = graph.tensor(*uid);
            donor.dims() == y.dims() && layout(donor) == layout(y) && !kept.contains(uid)
        };
        let donors: Uids = last.epilogue.iter().filter_map(EpilogueOp::summand).filter(lies_alike).collect();
        self.result(last.output, &donors)
    }

    /// Place of a step's scratch memory, which is free again behind it, as are the blocks taken for it.
    fn scratch(&mut self, bytes: usize, taken: Vec<Block>) -> Result<Place, Error> {
        let scratch = self.planner.take(bytes)?;
        for block in taken.into_iter().chain([scratch]) {
            self.planner.give_back(block);
        }
        Ok(Place::Workspace(scratch.offset))
    }

    /// Plans the scales and shifts of a normalization of `channels` channels, in the workspace while the step runs.
    fn fold(&mut self, fold: &Fold, channels: usize, taken: &mut Vec<Block>) -> Result<FoldStep, Error> {
        let tensors = fold.tensors();
        let inputs = tensors.iter().map(|uid| self.place(*uid)).collect::<Result<_, _>>()?;
        let factors = Factors::new(channels, tensors.iter().map(|uid| self.graph.tensor(*uid)));
        let [to, shifts] = [self.planner.take(factors.bytes())?, self.planner.take(factors.bytes())?];
        taken.extend([to, shifts]);
        Ok(FoldStep { factors, inputs, to: Place::Workspace(to.offset), shifts: Place::Workspace(shifts.offset) })
    }

    fn pointwise(&mut self, work: &Elementwise) -> Result<PointwiseStep, Error> {
        let graph = self.graph;
        let output = graph.tensor(work.output);
        let storage = |tensor: &Tensor| Storage::of(tensor.data_type()).expect("applicable pointwise types have one");
        let views: Vec<InputView> = work
            .inputs
            .iter()
            .map(|input| match input {
                Input::Tensor(uid) => {
                    let tensor = graph.tensor(*uid);
                    InputView::Memory(View { storage: storage(tensor), strides: broadcast(tensor, output) })
                }
                Input::Index(axis) => InputView::Count((0..output.rank()).map(|i| usize::from(i == *axis)).collect()),
            })
            .collect();
        let view = View { storage: storage(output), strides: output.strides().to_vec() };
        let kernel = PointwiseKernel::new(&work.program, output.dims(), &views, &view);
        let place = |input: &Input| match input {
            Input::Tensor(uid) => self.place(*uid).map(Some),
            Input::Index(_) => Ok(None),
        };
        let inputs = work.inputs.iter().map(place).collect::<Result<_, _>>()?;
        let alike = |uid: &TensorUid| {
            let donor = graph.tensor(*uid);
            donor.dims() == output.dims()
                && donor.strides() == output.strides()
                && storage(donor).bits() == storage(output).bits()
        };
        let donors: Uids = work.tensors().filter(alike).collect();
        Ok(PointwiseStep { kernel, inputs, output: self.result(work.output, &donors)? })
    }

    fn node(&mut self, work: &LibraryOp) -> Result<NodeStep, Error> {
        assert!(work.inputs.len() <= MAX_INPUTS && work.outputs.len() <= MAX_OUTPUTS, "a node's operands are few");
        let constant = work.recipe.constant().and_then(|input| work.inputs[input]);
        let token = constant.and_then(|uid| self.choice.token(uid)).cloned();
        let kernel = match token {
            Some(_) => work.recipe.kernel_of_constant(self.choice.threads),
            None => work.recipe.kernel(self.choice.threads),
        };
        let mut places = |uids: &[Option<TensorUid>]| -> Result<Vec<Option<Place>>, Error> {
            uids.iter().map(|uid| uid.map(|uid| self.place(uid)).transpose()).collect()
        };
        let (inputs, outputs) = (places(&work.inputs)?, places(&work.outputs)?);
        let scratch = self.planner.take(kernel.scratch_bytes())?;
        self.planner.give_back(scratch);
        Ok(NodeStep { name: work.name, kernel, inputs, outputs, scratch: Place::Workspace(scratch.offset), token })
    }
}

/// Position of the filter in [`operands`] of a convolution, and of the right side in those of a matrix product.
const FILTER: usize = 1;

/// Operands of a work: every tensor that it reads or writes, those that it reads first.
fn operands(work: &Work) -> Uids {
    let mut uids = work.reads();
    uids.extend(work.writes());
    uids
}

impl fmt::Display for Schedule {
    /// Steps, places of their operands, and remarks of fusion.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = (self.steps.len(), self.workspace_bytes());
        write!(f, "{count} steps, {bytes} bytes of workspace at most")?;
        for (index, (step, outline)) in self.steps.iter().zip(&self.outlines).enumerate() {
            write!(f, "\n  {index}: {}", outline.name)?;
            match step {
                Step::Convolution(step) => algorithm(f, &step.plan)?,
                Step::FusedLayers(step) => {
                    f.write_str(", fused layers")?;
                    (0..step.plan.count()).try_for_each(|layer| algorithm(f, step.plan.plan(layer)))?;
                }
                Step::Pointwise(step) => write!(f, " ({})", step.kernel)?,
                Step::Node(_) => {}
            }
            write!(f, ", nodes {:?}: ", outline.nodes)?;
            list(f, &outline.reads)?;
            f.write_str(" -> ")?;
            list(f, &outline.writes)?;
            if outline.scratch_bytes > 0 {
                write!(f, ", {} bytes of scratch memory", outline.scratch_bytes)?;
            }
        }
        self.remarks.iter().try_for_each(|remark| write!(f, "\n  {remark}"))
    }
}

/// Writes a convolution's algorithm and epilogue.
fn algorithm(f: &mut fmt::Formatter<'_>, plan: &ConvolutionPlan) -> fmt::Result {
    write!(f, " ({})", plan.algorithm())?;
    plan.epilogue().iter().try_for_each(|step| write!(f, ", {step}"))
}

fn list(f: &mut fmt::Formatter<'_>, tensors: &[Located]) -> fmt::Result {
    for (i, Located { uid, place, channels_last }) in tensors.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}tensor {uid}")?;
        let layout = if *channels_last { ", channels last" } else { "" };
        match place {
            Some(Place::Buffer(_)) => {}
            Some(Place::Workspace(offset)) => write!(f, " (workspace + {offset}{layout})")?,
            Some(Place::Constant(_)) => f.write_str(" (constant)")?,
            None => f.write_str(" (never in memory)")?,
        }
    }
    Ok(())
}

enum Kind {
    Constant(TensorValue),
    Intermediate,
    Caller,
}

fn kind(tensor: &Tensor) -> Kind {
    match tensor.value() {
        Some(value) => Kind::Constant(value),
        None if tensor.is_virtual() && !tensor.is_runtime_pass_by_value() => Kind::Intermediate,
        None => Kind::Caller,
    }
}

/// Encodes a scalar in its tensor's type, in memory order.
fn encode(value: TensorValue) -> Constant {
    let mut bytes = [0; 8];
    let mut put = |value: &[u8]| bytes[..value.len()].copy_from_slice(value);
    match value {
        TensorValue::Float32(v) => put(&v.to_ne_bytes()),
        TensorValue::Float16(v) => put(&half::f16::from_f32(v).to_ne_bytes()),
        TensorValue::BFloat16(v) => put(&half::bf16::from_f32(v).to_ne_bytes()),
        TensorValue::Float8(v) => put(&[v]),
        TensorValue::Int32(v) => put(&v.to_ne_bytes()),
        TensorValue::Float64(v) => put(&v.to_ne_bytes()),
        TensorValue::Int64(v) => put(&v.to_ne_bytes()),
        TensorValue::Bool(v) => put(&[u8::from(v)]),
    }
    u64::from_ne_bytes(bytes)
}
