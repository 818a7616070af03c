//! Planning: from works to steps, with algorithms chosen, a place for every operand, and the workspace planned.

use std::collections::HashMap;
use std::fmt;

use hipdnn_cpu_convolution::{ConvolutionPlan, Element, EpilogueStep, Layout, Problem};
use hipdnn_engine_core::TensorLabel;
use hipdnn_engine_core::checks::element_bytes;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Buffer, BufferTable, Place};
use hipdnn_engine_core::memory::workspace::{ALIGNMENT, Block, Planner};
use hipdnn_schemas::{Graph, Tensor, TensorUid, TensorValue, Uids};
use smallvec::SmallVec;

use super::fuse::fold::{Factors, Fold, Values};
use super::fuse::{Fused, NodeList, Remark};
use super::geometry::{broadcast, element, layout, lift, shape};
use super::layout::is_channels_last;
use super::nodes::{LibraryKernel, LibraryOp, MAX_INPUTS, MAX_OUTPUTS};
use super::pointwise::{InputView, PointwiseKernel, Storage, View};
use super::settings::{Settings, Token};
use super::work::{Convolution, Elementwise, EpilogueOp, Input, Operand, Work};

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
    /// The filter.
    pub w: Place,
    /// The output.
    pub y: Place,
    /// Operands of the epilogue.
    pub operands: Vec<Place>,
    /// Scale and shift computations that run before the convolution.
    pub folds: Vec<FoldStep>,
    /// Scratch memory.
    pub scratch: Place,
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
        for (index, work) in works.iter().enumerate() {
            self.now = index;
            let step = match work {
                Work::Convolution(work) => Step::Convolution(Box::new(self.convolution(work)?)),
                Work::Pointwise(work) => Step::Pointwise(self.pointwise(work)?),
                Work::Matmul(work) => Step::Node(self.node(&work.node(self.graph))?),
                Work::Node(work) => Step::Node(self.node(work)?),
            };
            let locate = |uid: TensorUid| Located {
                uid,
                place: self.place_of[self.graph.position(uid)],
                channels_last: is_channels_last(self.graph.tensor(uid)),
            };
            outlines.push(Outline {
                name: work.name(),
                nodes: fused.nodes[index].clone(),
                reads: work.reads().into_iter().map(locate).collect(),
                writes: work.writes().into_iter().map(locate).collect(),
                scratch_bytes: match &step {
                    Step::Convolution(step) => step.plan.workspace_bytes(),
                    Step::Pointwise(_) => 0,
                    Step::Node(step) => step.kernel.scratch_bytes(),
                },
            });
            steps.push(step);
            for uid in operands(work) {
                if self.last_use[self.graph.position(uid)] == Some(index)
                    && let Some(block) = self.live[self.graph.position(uid)].take()
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
        let graph = self.graph;
        let (x, w) = (graph.tensor(work.node.x), graph.tensor(work.node.w));
        let y = graph.tensor(work.output);
        let mut operands = Vec::new();
        let (mut folds, mut taken) = (Vec::new(), Vec::new());
        let mut epilogue = Vec::with_capacity(work.epilogue.len());
        for follow in &work.epilogue {
            let step = match follow {
                EpilogueOp::Activation(activation) => EpilogueStep::Activation(*activation),
                EpilogueOp::Add(operand) => {
                    let (operand, layout) = self.operand(operand, y, &mut operands)?;
                    let [n, channel_stride, rest @ ..] = layout.strides;
                    if n == 0 && rest == [0; 3] {
                        EpilogueStep::Bias { operand, element: layout.element, channel_stride }
                    } else {
                        EpilogueStep::Add { operand, layout }
                    }
                }
                EpilogueOp::Mul(operand) => {
                    let (operand, layout) = self.operand(operand, y, &mut operands)?;
                    EpilogueStep::Mul { operand, layout }
                }
                EpilogueOp::Fold(fold) => {
                    let step = self.fold(fold, y.dims()[1], &mut taken)?;
                    operands.extend([step.to, step.shifts]);
                    let layout = Layout { element: Element::F32, strides: [0, 1, 0, 0, 0] };
                    folds.push(step);
                    epilogue.push(EpilogueStep::Mul { operand: operands.len() - 2, layout });
                    let operand = operands.len() - 1;
                    EpilogueStep::Bias { operand, element: Element::F32, channel_stride: 1 }
                }
            };
            epilogue.push(step);
        }
        let token = self.choice.token(work.node.w);
        let problem = Problem {
            shape: shape(&work.node.convolution, x, w, y),
            x: layout(x),
            w: layout(w),
            y: layout(y),
            epilogue,
            constant_weights: token.is_some(),
            // Weights that the graph computes are dequantized ones as a rule: with plain sums of their products outputs round to the
            // same 8 bits as elsewhere.
            winograd: self.choice.winograd && (token.is_some() || !w.is_virtual()),
        };
        let plan = ConvolutionPlan::new(&problem, self.choice.threads);
        let token = token.filter(|_| plan.prepared_len() > 0).cloned();
        // A residual that lies as the output does is read, place by place, before that is written.
        let donors: Uids = work.epilogue.iter().filter_map(EpilogueOp::summand).collect();
        let donors: Uids = donors
            .into_iter()
            .filter(|uid| {
                let (donor, inner) = (graph.tensor(*uid), [work.node.x, work.node.w]);
                let folded =
                    work.epilogue.iter().any(|f| matches!(f, EpilogueOp::Fold(fold) if fold.tensors().contains(uid)));
                donor.dims() == y.dims() && layout(donor) == problem.y && !inner.contains(uid) && !folded
            })
            .collect();
        let (x, w) = (self.place(work.node.x)?, self.place(work.node.w)?);
        let y = self.result(work.output, &donors)?;
        let scratch = self.planner.take(plan.workspace_bytes())?;
        for block in taken.into_iter().chain([scratch]) {
            self.planner.give_back(block);
        }
        Ok(ConvolutionStep { plan, x, w, y, operands, folds, scratch: Place::Workspace(scratch.offset), token })
    }

    /// Plans the scales and shifts of a normalization of `channels` channels, in the workspace while the step runs.
    fn fold(&mut self, fold: &Fold, channels: usize, taken: &mut Vec<Block>) -> Result<FoldStep, Error> {
        let tensors = fold.tensors();
        let operands = tensors.iter().map(|uid| Values::new(self.graph.tensor(*uid))).collect();
        let inputs = tensors.iter().map(|uid| self.place(*uid)).collect::<Result<_, _>>()?;
        let factors = Factors { channels, operands };
        let [to, shifts] = [self.planner.take(factors.bytes())?, self.planner.take(factors.bytes())?];
        taken.extend([to, shifts]);
        Ok(FoldStep { factors, inputs, to: Place::Workspace(to.offset), shifts: Place::Workspace(shifts.offset) })
    }

    /// Index of an operand of the epilogue, and its layout along the output.
    fn operand(
        &mut self,
        operand: &Operand,
        output: &Tensor,
        places: &mut Vec<Place>,
    ) -> Result<(usize, Layout), Error> {
        let layout = match operand {
            Operand::Literal(value) => {
                places.push(self.literal(*value));
                Layout { element: Element::F32, strides: [0; 5] }
            }
            Operand::Tensor(uid) => {
                places.push(self.place(*uid)?);
                let tensor = self.graph.tensor(*uid);
                let strides = lift(&broadcast(tensor, output), 0);
                Layout { element: element(tensor.data_type()).expect("fused operands have such a type"), strides }
            }
        };
        Ok((places.len() - 1, layout))
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
                Step::Convolution(step) => {
                    write!(f, " ({})", step.plan.algorithm())?;
                    step.plan.epilogue().iter().try_for_each(|step| write!(f, ", {step}"))?;
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
