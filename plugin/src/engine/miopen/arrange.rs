//! From stages to tasks, still without a device: every convolution becomes a problem that MIOpen takes, with copies around
//! it where tensors do not lie as MIOpen wants them; every chain becomes one kernel over strided views.
//!
//! MIOpen gets packed tensors of one type in one of two layouts only. It would take other strides, but its records of what
//! is fast know none, and few of its solvers do: what they save by not copying they lose many times over. Copies also
//! convert types, pad on one side, cut off and flip, since all of that is a matter of strides, offsets and windows.

use std::collections::{HashMap, HashSet};

use hipdnn_schemas::{ConvMode, DataType, Graph, PointwiseMode, Tensor, TensorUid, TensorValue};

use super::convolution::{self, ConvolutionProblem, Direction, TensorShape};
use super::formula::{Argument, Formula};
use super::fuse::{Chain, Stage};
use super::kernels::Op;
use super::lower::Convolution;
use crate::engine::checks::element_bytes;
use crate::engine::host::pointwise::Parameters;
use crate::engine::{Declined, NodeLabel};

/// Tasks in the order in which they are done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrangement {
    /// What is done.
    pub tasks: Vec<Task>,
    /// Bytes of each temporary.
    pub temporaries: Vec<usize>,
}

impl Arrangement {
    /// Whether tensors are copied for convolutions.
    pub fn copies(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task, Task::Map(map) if map.program.is_empty()))
    }
}

/// One launch, or what MIOpen makes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// A convolution.
    Convolution(ConvolutionTask),
    /// An element-wise kernel.
    Map(MapTask),
}

/// A convolution and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolutionTask {
    /// Of which node of the graph.
    pub node: usize,
    /// What MIOpen is asked for.
    pub problem: ConvolutionProblem,
    /// The input, or its gradient.
    pub x: Value,
    /// The filter, or its gradient.
    pub w: Value,
    /// The output, or its gradient.
    pub y: Value,
    /// What is added for each channel, where that is one kernel with the convolution.
    pub bias: Option<Value>,
}

/// An element-wise kernel and its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct MapTask {
    /// What it is for, for the log.
    pub purpose: String,
    /// Extents of the result.
    pub dims: Vec<usize>,
    /// What is read.
    pub inputs: Vec<Input>,
    /// What is computed; the last operation's result is written, or the first input if there is none.
    pub program: Vec<Op>,
    /// Where the result goes.
    pub output: Value,
    /// How it lies there.
    pub view: View,
}

/// Memory that tasks read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// A tensor of the caller.
    Tensor(TensorUid),
    /// A place in the workspace, by its index in [`Arrangement::temporaries`].
    Temporary(usize),
}

/// An operand of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// In memory.
    Memory(MemoryInput),
    /// A number.
    Literal(f64),
    /// A number that the caller's host memory holds when the plan is executed.
    Scalar(TensorUid, DataType),
    /// The index along that dimension of the result.
    Index(usize),
}

/// An operand of a kernel in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryInput {
    /// Where.
    pub value: Value,
    /// How it lies there, along the dimensions of the result; strides are 0 where it is broadcast.
    pub view: View,
    /// For each dimension where it begins in the result and how far it goes; it is 0 elsewhere.
    pub window: Option<Vec<(usize, usize)>>,
}

/// How elements lie in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Their type.
    pub data_type: DataType,
    /// Distance of neighbours along each dimension, in elements.
    pub strides: Vec<i64>,
    /// Where the first one is, in elements.
    pub offset: i64,
}

/// The two orders of dimensions in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The last dimension is innermost.
    ChannelsFirst,
    /// The channels are innermost.
    ChannelsLast,
}

impl Layout {
    /// Strides of a packed tensor.
    fn strides(self, dims: &[usize]) -> Vec<i64> {
        let dims: Vec<i64> = dims.iter().map(|extent| *extent as i64).collect();
        match self {
            Layout::ChannelsFirst => hipdnn_schemas::packed_strides(&dims),
            Layout::ChannelsLast => hipdnn_schemas::channels_last_strides(&dims),
        }
    }
}

/// Strides that reach the same elements; those of single places mean nothing.
pub(super) fn same_strides(dims: &[usize], a: &[i64], b: &[i64]) -> bool {
    dims.iter().zip(a.iter().zip(b)).all(|(extent, (a, b))| *extent == 1 || a == b)
}

/// What MIOpen may be asked about a problem: whether it takes it, or why not.
pub type Supported<'a> = &'a dyn Fn(&ConvolutionProblem) -> Result<(), String>;

/// What is asked of the arrangement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// Equal executions have to give equal results.
    pub deterministic: bool,
    /// What the graph calls float stays float.
    pub strict_fp32: bool,
}

/// Arranges stages.
///
/// # Errors
/// If MIOpen takes a convolution in no type and layout that it could be brought into.
pub fn arrange(
    graph: &Graph,
    stages: &[Stage],
    wishes: Wishes,
    supported: Supported<'_>,
) -> Result<Arrangement, Declined> {
    let mut readers: HashMap<TensorUid, Vec<usize>> = HashMap::new();
    for (index, stage) in stages.iter().enumerate() {
        let inputs = match stage {
            Stage::Convolution(convolution) => convolution.inputs().to_vec(),
            Stage::Chain(chain) => chain.inputs().iter().map(|argument| argument.tensor).collect(),
            Stage::Groups(groups) => groups.inputs(),
        };
        for uid in inputs {
            let readers = readers.entry(uid).or_default();
            if readers.last() != Some(&index) {
                readers.push(index);
            }
        }
    }
    let mut arranger = Arranger {
        graph,
        stages,
        wishes,
        supported,
        readers,
        stored: HashMap::new(),
        prepared: HashMap::new(),
        claimed: HashSet::new(),
        current: 0,
        arrangement: Arrangement::default(),
    };
    for (index, stage) in stages.iter().enumerate() {
        arranger.current = index;
        match stage {
            Stage::Convolution(work) => arranger.convolution(work)?,
            Stage::Chain(chain) => arranger.chain(chain),
            Stage::Groups(groups) => {
                return Err(Declined::Operation { node: NodeLabel::of(graph, groups.node) });
            }
        }
    }
    Ok(arranger.arrangement)
}

/// A tensor in memory.
#[derive(Debug, Clone)]
struct Stored {
    value: Value,
    view: View,
}

/// What a tensor is to the plan.
enum Kind {
    Literal(f64),
    Scalar,
    Memory(Stored),
}

/// Which of a convolution's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    X,
    W,
    Y,
}

impl Role {
    fn tensor(self, work: &Convolution) -> TensorUid {
        match self {
            Role::X => work.x,
            Role::W => work.w,
            Role::Y => work.y,
        }
    }

    /// The one that is computed.
    fn result(direction: Direction) -> Role {
        match direction {
            Direction::Forward => Role::Y,
            Direction::BackwardData => Role::X,
            Direction::BackwardWeights => Role::W,
        }
    }
}

/// A convolution's tensor as MIOpen gets it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Form {
    data_type: DataType,
    layout: Layout,
    /// Extents of the tensor, with two or three spatial dimensions.
    inner: Vec<usize>,
    /// Extents with paddings.
    dims: Vec<usize>,
    /// For each dimension the places in front of the tensor.
    before: Vec<usize>,
    flipped: bool,
}

struct Arranger<'a> {
    graph: &'a Graph,
    stages: &'a [Stage],
    wishes: Wishes,
    supported: Supported<'a>,
    readers: HashMap<TensorUid, Vec<usize>>,
    /// Where virtual tensors are.
    stored: HashMap<TensorUid, Stored>,
    /// Copies that were made for convolutions.
    prepared: HashMap<(TensorUid, Form), Value>,
    /// Results of chains that lie where a convolution behind them has its result: one convolution each.
    claimed: HashSet<TensorUid>,
    /// The stage that is arranged.
    current: usize,
    arrangement: Arrangement,
}

impl Arranger<'_> {
    fn temporary(&mut self, elements: usize, data_type: DataType) -> Value {
        let temporaries = &mut self.arrangement.temporaries;
        temporaries.push(elements * element_bytes(data_type));
        Value::Temporary(temporaries.len() - 1)
    }

    fn kind(&self, uid: TensorUid) -> Kind {
        let tensor = self.graph.tensor(uid);
        match tensor.value() {
            Some(value) => Kind::Literal(number(value, tensor.data_type())),
            None if tensor.is_runtime_pass_by_value() => Kind::Scalar,
            None if tensor.is_virtual() => {
                Kind::Memory(self.stored.get(&uid).expect("producers are arranged before their readers").clone())
            }
            None => Kind::Memory(Stored { value: Value::Tensor(uid), view: view(tensor) }),
        }
    }

    /// The type of a tensor in memory, which for virtual tensors need not be the graph's.
    fn data_type(&self, uid: TensorUid) -> DataType {
        self.stored.get(&uid).map_or_else(|| self.graph.tensor(uid).data_type(), |stored| stored.view.data_type)
    }

    fn convolution(&mut self, work: &Convolution) -> Result<(), Declined> {
        let data_type = self.convolution_type(work);
        let types = if data_type == DataType::Float { vec![data_type] } else { vec![data_type, DataType::Float] };
        let mut reason = None;
        for data_type in types {
            for layout in self.layouts(work, data_type) {
                let problem = self.problem(work, data_type, layout);
                match (self.supported)(&problem) {
                    Ok(()) => {
                        self.emit(work, problem, data_type, layout);
                        return Ok(());
                    }
                    Err(refusal) => {
                        reason.get_or_insert(refusal);
                    }
                }
            }
        }
        let (node, reason) = (NodeLabel::of(self.graph, work.node), reason.expect("there is a type and a layout"));
        Err(Declined::Library { node, reason })
    }

    /// The type that MIOpen computes in: the tensors' if they have one in common, else float, which has all the values.
    fn convolution_type(&self, work: &Convolution) -> DataType {
        let [a, b] = work.inputs().map(|uid| self.data_type(uid));
        let output = self.graph.tensor(work.output());
        if a != b || a == output.data_type() {
            return if a == b { a } else { DataType::Float };
        }
        // Clients often leave intermediates at float. Where all that is left in the end has the operands' type, and what
        // lies between can't bring back what rounding has lost, that is rounded twice instead of once, and MIOpen need not
        // compute with float operands.
        let readers = self.readers.get(&output.uid()).map_or(&[][..], Vec::as_slice);
        let ends_narrow = |reader: &usize| match &self.stages[*reader] {
            Stage::Chain(chain) => {
                self.graph.tensor(chain.output()).data_type() == a && chain.nodes().iter().all(keeps_range)
            }
            Stage::Convolution(_) | Stage::Groups(_) => false,
        };
        let narrow = output.is_virtual()
            && output.data_type() == DataType::Float
            && !self.wishes.strict_fp32
            && !readers.is_empty()
            && readers.iter().all(ends_narrow);
        if narrow { a } else { DataType::Float }
    }

    /// The layouts, the one that needs fewer copies first.
    fn layouts(&self, work: &Convolution, data_type: DataType) -> [Layout; 2] {
        let cost = |layout: Layout| {
            let roles = [Role::X, Role::W, Role::Y].into_iter();
            roles.map(|role| self.layout_cost(work, role, data_type, layout)).fold(0usize, usize::saturating_add)
        };
        match cost(Layout::ChannelsLast) < cost(Layout::ChannelsFirst) {
            true => [Layout::ChannelsLast, Layout::ChannelsFirst],
            false => [Layout::ChannelsFirst, Layout::ChannelsLast],
        }
    }

    /// Elements that are moved because a tensor has another layout.
    fn layout_cost(&self, work: &Convolution, role: Role, data_type: DataType, layout: Layout) -> usize {
        let uid = role.tensor(work);
        let tensor = self.graph.tensor(uid);
        let form = self.form(work, role, data_type, layout);
        let lies_so = |strides: &[i64]| same_strides(&form.inner, &lifted(strides, 0), &layout.strides(&form.inner));
        if role != Role::result(work.direction) {
            let Kind::Memory(stored) = self.kind(uid) else { return 0 };
            // What is copied in any case is read in the wrong order at most.
            let share = if stored.view.data_type == data_type && !form.differs() { 2 } else { 1 };
            return if lies_so(&stored.view.strides) { 0 } else { tensor.elements().saturating_mul(share) };
        }
        // A virtual result is put where it suits the convolution, best as its reader's result lies.
        let reader = match self.readers.get(&uid).map(Vec::as_slice) {
            Some([reader]) if tensor.is_virtual() => match &self.stages[*reader] {
                Stage::Chain(chain) => Some(self.graph.tensor(chain.output())).filter(|o| o.dims() == tensor.dims()),
                Stage::Convolution(_) | Stage::Groups(_) => None,
            },
            _ => None,
        };
        let strides = &view(reader.unwrap_or(tensor)).strides;
        if lies_so(strides) { 0 } else { tensor.elements().saturating_mul(if tensor.is_virtual() { 1 } else { 2 }) }
    }

    /// How an operand or the result has to be for MIOpen, whose paddings are the same on both sides.
    fn form(&self, work: &Convolution, role: Role, data_type: DataType, layout: Layout) -> Form {
        let inner = lifted(self.graph.tensor(role.tensor(work)).dims(), 1);
        let mut dims = inner.clone();
        let mut before = vec![0; dims.len()];
        if role == Role::X {
            for (axis, padding) in self.paddings(work).into_iter().enumerate() {
                before[2 + axis] = padding.before;
                dims[2 + axis] += padding.before + padding.after;
            }
        }
        // The only tap of a filter is its own mirror image.
        let flipped =
            role == Role::W && work.geometry.mode == ConvMode::Convolution && dims[2..].iter().any(|taps| *taps > 1);
        Form { data_type, layout, inner, dims, before, flipped }
    }

    /// For each spatial dimension, after lifting.
    fn paddings(&self, work: &Convolution) -> Vec<Padding> {
        let (x, w, y) = (self.graph.tensor(work.x), self.graph.tensor(work.w), self.graph.tensor(work.y));
        let g = &work.geometry;
        let mut paddings: Vec<Padding> = (0..x.rank() - 2)
            .map(|axis| {
                let [input, taps, output] = [x, w, y].map(|tensor| tensor.dims()[2 + axis] as i64);
                let window = g.dilation[axis] * (taps - 1) + 1;
                Padding::new(input, window, output, g.stride[axis], g.pre_padding[axis])
            })
            .collect();
        if paddings.len() == 1 {
            paddings.insert(0, Padding::default());
        }
        paddings
    }

    fn problem(&self, work: &Convolution, data_type: DataType, layout: Layout) -> ConvolutionProblem {
        let shape = |role: Role| {
            let form = self.form(work, role, data_type, layout);
            let strides = layout.strides(&form.dims).into_iter();
            TensorShape {
                data_type: miopen_type(data_type).expect("convolutions of other types are declined"),
                strides: strides.map(|stride| usize::try_from(stride).expect("packed strides are positive")).collect(),
                dims: form.dims,
            }
        };
        let small = |entry: i64| i32::try_from(entry).expect("a checked convolution has numbers of 32 bits");
        let list = |entries: &[i64]| {
            let entries = entries.iter().map(|entry| small(*entry));
            if entries.len() == 1 { [1].into_iter().chain(entries).collect() } else { entries.collect() }
        };
        let (x, w) = (self.graph.tensor(work.x), self.graph.tensor(work.w));
        ConvolutionProblem {
            direction: work.direction,
            x: shape(Role::X),
            w: shape(Role::W),
            y: shape(Role::Y),
            padding: self.paddings(work).iter().map(|padding| small(padding.both)).collect(),
            stride: list(&work.geometry.stride),
            dilation: list(&work.geometry.dilation),
            groups: small((x.dims()[1] / w.dims()[1]) as i64),
            deterministic: self.wishes.deterministic,
        }
    }

    fn emit(&mut self, work: &Convolution, problem: ConvolutionProblem, data_type: DataType, layout: Layout) {
        let output = Role::result(work.direction);
        let mut operand = |role: Role| (role != output).then(|| self.operand(work, role, data_type, layout));
        let [x, w, y] = [operand(Role::X), operand(Role::W), operand(Role::Y)];
        let (result, copy) = self.result(work, data_type, layout);
        let [x, w, y] = [x, w, y].map(|value| value.unwrap_or(result));
        self.arrangement.tasks.push(Task::Convolution(ConvolutionTask {
            node: work.node,
            problem,
            x,
            w,
            y,
            bias: None,
        }));
        self.arrangement.tasks.extend(copy.map(Task::Map));
    }

    /// An operand as MIOpen gets it: where it is, or a copy.
    fn operand(&mut self, work: &Convolution, role: Role, data_type: DataType, layout: Layout) -> Value {
        let uid = role.tensor(work);
        let tensor = self.graph.tensor(uid);
        let form = self.form(work, role, data_type, layout);
        let kind = self.kind(uid);
        if let Kind::Memory(stored) = &kind
            && !form.differs()
            && self.is_direct(tensor, stored, &form)
        {
            return stored.value;
        }
        if let Some(value) = self.prepared.get(&(uid, form.clone())) {
            return *value;
        }
        let input = match kind {
            Kind::Literal(number) => Input::Literal(number),
            Kind::Scalar => Input::Scalar(uid, tensor.data_type()),
            Kind::Memory(stored) => {
                let mut view = stored.view;
                view.strides = lifted(&view.strides, 0);
                if form.flipped {
                    flip(&mut view, &form.inner);
                }
                let places = || form.before.iter().copied().zip(form.inner.iter().copied()).collect();
                let window = form.is_padded().then(places);
                Input::Memory(MemoryInput { value: stored.value, view, window })
            }
        };
        let value = self.temporary(form.dims.iter().product(), data_type);
        let view = View { data_type, strides: layout.strides(&form.dims), offset: 0 };
        let purpose = format!("{} tensor {uid} for node {}", form.purpose(), work.node);
        let (dims, inputs) = (form.dims.clone(), vec![input]);
        let task = MapTask { purpose, dims, inputs, program: Vec::new(), output: value, view };
        self.arrangement.tasks.push(Task::Map(task));
        self.prepared.insert((uid, form), value);
        value
    }

    /// Whether MIOpen can have a tensor as it lies.
    fn is_direct(&self, tensor: &Tensor, stored: &Stored, form: &Form) -> bool {
        let aligned = match stored.value {
            Value::Tensor(_) => tensor.alignment() % CONVOLUTION_ALIGNMENT as i64 == 0,
            Value::Temporary(_) => true,
        };
        aligned
            && stored.view.data_type == form.data_type
            && stored.view.offset == 0
            && same_strides(&form.inner, &lifted(&stored.view.strides, 0), &form.layout.strides(&form.inner))
    }

    /// Where MIOpen puts the result, and how it comes from there to where it belongs.
    fn result(&mut self, work: &Convolution, data_type: DataType, layout: Layout) -> (Value, Option<MapTask>) {
        let uid = work.output();
        let tensor = self.graph.tensor(uid);
        let form = self.form(work, Role::result(work.direction), data_type, layout);
        let mut inner = View { data_type, strides: layout.strides(&form.dims), offset: 0 };
        inner.offset = form.before.iter().zip(&inner.strides).map(|(before, stride)| *before as i64 * stride).sum();
        if form.flipped {
            flip(&mut inner, &form.inner);
        }
        if tensor.is_virtual() {
            let view = View { strides: lowered(&inner.strides, tensor.rank()), ..inner };
            let value = match self.in_place(tensor, &form, &view) {
                Some(value) => value,
                None => self.temporary(form.dims.iter().product(), data_type),
            };
            self.stored.insert(uid, Stored { value, view });
            return (value, None);
        }
        let stored = Stored { value: Value::Tensor(uid), view: view(tensor) };
        if !form.differs() && self.is_direct(tensor, &stored, &form) {
            return (stored.value, None);
        }
        let value = self.temporary(form.dims.iter().product(), data_type);
        let copy = MapTask {
            purpose: format!("{} tensor {uid} of node {}", form.purpose(), work.node),
            dims: form.inner,
            inputs: vec![Input::Memory(MemoryInput { value, view: inner, window: None })],
            program: Vec::new(),
            output: stored.value,
            view: View { strides: lifted(&stored.view.strides, 0), ..stored.view },
        };
        (value, Some(copy))
    }

    /// Where the chain that alone reads a virtual result has its own result, if the two can be at one place.
    fn in_place(&mut self, tensor: &Tensor, form: &Form, view: &View) -> Option<Value> {
        // What is done in between could read memory that the caller has at the place of the result.
        if self.readers.get(&tensor.uid()).map(Vec::as_slice) != Some(&[self.current + 1]) {
            return None;
        }
        let Stage::Chain(chain) = &self.stages[self.current + 1] else { return None };
        let output = self.graph.tensor(chain.output());
        let fits = !form.differs()
            && output.dims() == tensor.dims()
            && output.data_type() == view.data_type
            && !self.claimed.contains(&output.uid());
        if !fits {
            return None;
        }
        if output.is_virtual() {
            self.claimed.insert(output.uid());
            let value = self.temporary(output.elements(), view.data_type);
            self.stored.insert(output.uid(), Stored { value, view: view.clone() });
            return Some(value);
        }
        // A caller may have another operand of the chain where its result goes: the convolution must not write there
        // before the chain has read it.
        let may_be_there = |argument: &Argument| {
            let other = self.graph.tensor(argument.tensor);
            other.uid() != tensor.uid() && !other.is_virtual() && other.elements() == output.elements()
        };
        let stored = Stored { value: Value::Tensor(output.uid()), view: self::view(output) };
        if chain.inputs().iter().any(may_be_there) || !self.is_direct(output, &stored, form) {
            return None;
        }
        self.claimed.insert(output.uid());
        Some(stored.value)
    }

    fn chain(&mut self, chain: &Chain) {
        let output = self.graph.tensor(chain.output());
        let dims = output.dims().to_vec();
        let mut inputs: Vec<Input> = chain
            .inputs()
            .iter()
            .map(|argument| {
                let tensor = self.graph.tensor(argument.tensor);
                match self.kind(argument.tensor) {
                    Kind::Literal(number) => Input::Literal(number),
                    Kind::Scalar => Input::Scalar(argument.tensor, tensor.data_type()),
                    Kind::Memory(mut stored) => {
                        stored.view.strides = argument.strides(tensor.dims(), &stored.view.strides, dims.len());
                        Input::Memory(MemoryInput { value: stored.value, view: stored.view, window: None })
                    }
                }
            })
            .collect();
        let arguments: HashMap<&Argument, usize> =
            chain.inputs().iter().enumerate().map(|(slot, argument)| (argument, slot)).collect();
        let mut indices = Vec::with_capacity(chain.nodes().len());
        for node in chain.nodes() {
            indices.push(node.index.map(|axis| {
                inputs.push(Input::Index(axis));
                inputs.len() - 1
            }));
        }
        let mut results: HashMap<TensorUid, usize> = HashMap::new();
        let mut program = Vec::new();
        for (node, index) in chain.nodes().iter().zip(indices) {
            let slot =
                |argument: &Argument| results.get(&argument.tensor).copied().unwrap_or_else(|| arguments[argument]);
            let before: Vec<usize> = node.inputs.iter().map(slot).chain(index).collect();
            program.extend(node.program_within(&before, inputs.len() + program.len()));
            let is_empty = node.program.is_empty();
            let result = if is_empty { before[before.len() - 1] } else { inputs.len() + program.len() - 1 };
            results.insert(node.output, result);
        }
        let stored = self.chain_result(chain);
        let numbers: Vec<String> = chain.nodes().iter().map(|node| node.node.to_string()).collect();
        let purpose = format!("compute node {}", numbers.join(", "));
        let (output, view) = (stored.value, stored.view);
        self.arrangement.tasks.push(Task::Map(MapTask { purpose, dims, inputs, program, output, view }));
    }

    /// Where the result of a chain goes.
    fn chain_result(&mut self, chain: &Chain) -> Stored {
        let output = self.graph.tensor(chain.output());
        if !output.is_virtual() {
            return Stored { value: Value::Tensor(output.uid()), view: view(output) };
        }
        if let Some(stored) = self.stored.get(&output.uid()) {
            return stored.clone();
        }
        // Packed, in the order that the graph has it in.
        let last = Layout::ChannelsLast.strides(output.dims());
        let strides = match same_strides(output.dims(), &view(output).strides, &last) && output.rank() > 2 {
            true => last,
            false => Layout::ChannelsFirst.strides(output.dims()),
        };
        let data_type = self.type_for_convolutions(chain).unwrap_or(output.data_type());
        let view = View { data_type, strides, offset: 0 };
        let stored = Stored { value: self.temporary(output.elements(), data_type), view };
        self.stored.insert(output.uid(), stored.clone());
        stored
    }

    /// The 16-bit type that a float intermediate may have instead, because everything else has that type: what the chain
    /// reads, and what else the convolutions read that alone read the intermediate.
    fn type_for_convolutions(&self, chain: &Chain) -> Option<DataType> {
        let output = self.graph.tensor(chain.output());
        let inputs = || chain.inputs().iter().map(|argument| argument.tensor);
        let is_memory = |uid: &TensorUid| matches!(self.kind(*uid), Kind::Memory(_));
        let mut read = inputs().filter(is_memory).map(|uid| self.data_type(uid));
        let data_type = read.next().filter(|t| matches!(t, DataType::Half | DataType::BFloat16))?;
        let has = |uid: TensorUid| match self.kind(uid) {
            Kind::Memory(_) => true,
            Kind::Literal(number) => is_value(number, data_type),
            Kind::Scalar => false,
        };
        let is_wanted = |reader: &usize| match &self.stages[*reader] {
            Stage::Convolution(work) => work
                .inputs()
                .iter()
                .all(|uid| *uid == output.uid() || (is_given(self.graph, *uid) && self.data_type(*uid) == data_type)),
            Stage::Chain(_) | Stage::Groups(_) => false,
        };
        let readers = self.readers.get(&output.uid())?;
        let may_be_narrow = output.data_type() == DataType::Float
            && !self.wishes.strict_fp32
            && read.all(|t| t == data_type)
            && inputs().all(has)
            && chain.nodes().iter().all(|node| selects(node, data_type))
            && readers.iter().all(is_wanted);
        may_be_narrow.then_some(data_type)
    }
}

/// Whether a tensor is one that the caller gives.
fn is_given(graph: &Graph, uid: TensorUid) -> bool {
    graph.producer(uid).is_none()
}

/// What MIOpen's kernels take for granted of a tensor's address, in bytes: they load 16-bit elements in pairs.
pub const CONVOLUTION_ALIGNMENT: usize = 4;

impl Form {
    fn is_padded(&self) -> bool {
        self.dims != self.inner
    }

    /// Whether the tensor has to be changed, not only laid out.
    fn differs(&self) -> bool {
        self.flipped || self.is_padded()
    }

    /// What a copy of the tensor does, for the log.
    fn purpose(&self) -> &'static str {
        match (self.is_padded(), self.flipped) {
            (true, _) => "pad",
            (false, true) => "flip",
            (false, false) => "copy",
        }
    }
}

/// Paddings of a dimension as MIOpen can have them: the same on both sides, and the rest as part of the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Padding {
    both: i64,
    before: usize,
    after: usize,
}

impl Padding {
    /// For extents of input, window (with dilation) and output, the stride and the padding in front.
    ///
    /// The output has `floor((input + pre + post - window) / stride) + 1` places, so that any padding behind from `least`
    /// to `most` is as good as the one that was asked for: what lies behind the last window is read by none.
    fn new(input: i64, window: i64, output: i64, stride: i64, pre: i64) -> Padding {
        let least = (output - 1) * stride + window - input - pre;
        let most = least + stride - 1;
        let places = |count: i64| usize::try_from(count).expect("a difference of ordered numbers");
        if pre < least {
            Padding { both: pre, before: 0, after: places(least - pre) }
        } else if pre > most {
            Padding { both: most, before: places(pre - most), after: 0 }
        } else {
            Padding { both: pre, before: 0, after: 0 }
        }
    }
}

/// Entries of a list for (batch, channel, spatial…) with one for a spatial dimension more where there is one only: MIOpen
/// has two or three.
pub(super) fn lifted<T: Copy>(list: &[T], missing: T) -> Vec<T> {
    let mut list = list.to_vec();
    if list.len() == 3 {
        list.insert(2, missing);
    }
    list
}

/// The reverse of [`lifted`].
fn lowered(list: &[i64], rank: usize) -> Vec<i64> {
    let mut list = list.to_vec();
    if list.len() > rank {
        list.remove(2);
    }
    list
}

/// Turns the spatial dimensions round.
fn flip(view: &mut View, dims: &[usize]) {
    for (extent, stride) in dims.iter().zip(&mut view.strides).skip(2) {
        view.offset += (*extent as i64 - 1) * *stride;
        *stride = -*stride;
    }
}

/// A tensor as the caller has it.
fn view(tensor: &Tensor) -> View {
    let strides = tensor.strides().iter().map(|stride| *stride as i64).collect();
    View { data_type: tensor.data_type(), strides, offset: 0 }
}

/// A scalar of the graph, as its tensor's type has it.
fn number(value: TensorValue, data_type: DataType) -> f64 {
    match value {
        TensorValue::Float32(v) => f64::from(v),
        TensorValue::Float16(v) => half::f16::from_f32(v).to_f64(),
        TensorValue::BFloat16(v) => half::bf16::from_f32(v).to_f64(),
        TensorValue::Float8(v) => match data_type {
            DataType::Int8 => f64::from(v.cast_signed()),
            DataType::Boolean => f64::from(u8::from(v != 0)),
            _ => f64::from(v),
        },
        TensorValue::Int32(v) => f64::from(v),
        TensorValue::Float64(v) => v,
        TensorValue::Int64(v) => v as f64,
        TensorValue::Bool(v) => f64::from(u8::from(v)),
    }
}

/// Whether the function's result, rounded to a 16-bit type, stands rounding its operand to that type before: it brings back
/// no value that is too large for the type, and no digits that are too small, as sums do.
fn keeps_range(node: &Formula) -> bool {
    use PointwiseMode::*;
    every_op(node, |mode, parameters| match mode {
        Identity | Abs | Neg | Max | Min | SigmoidFwd | TanhFwd | EluFwd | SoftplusFwd => true,
        ReluFwd => [0.0, 1.0].contains(&parameters.relu_lower_clip_slope),
        _ => false,
    })
}

/// Whether the result is always one of the operands, or their negative, or a bound that the 16-bit type has: if the operands
/// are of that type, it loses nothing in it.
fn selects(node: &Formula, data_type: DataType) -> bool {
    use PointwiseMode::*;
    every_op(node, |mode, parameters| match mode {
        Identity | Abs | Neg | Max | Min => true,
        ReluFwd => {
            parameters.relu_lower_clip_slope == 0.0
                && [parameters.relu_lower_clip, parameters.relu_upper_clip]
                    .iter()
                    .all(|bound| bound.abs() >= f32::MAX || is_value((*bound).into(), data_type))
        }
        _ => false,
    })
}

/// Whether the node is a function of its operands alone, and every operation of it is of that kind.
fn every_op(node: &Formula, is_so: impl Fn(PointwiseMode, &Parameters) -> bool) -> bool {
    let holds = |op: &Op| match op {
        Op::Pointwise { mode, parameters, .. } => is_so(*mode, parameters),
        Op::Round { .. } => false,
    };
    node.index.is_none() && node.program.iter().all(holds)
}

/// Whether the 16-bit type has the number.
fn is_value(number: f64, data_type: DataType) -> bool {
    match data_type {
        DataType::Half => half::f16::from_f64(number).to_f64() == number,
        _ => half::bf16::from_f64(number).to_f64() == number,
    }
}

/// The type as MIOpen's convolutions have it.
pub(super) fn miopen_type(data_type: DataType) -> Option<convolution::DataType> {
    match data_type {
        DataType::Float => Some(convolution::DataType::Float),
        DataType::Half => Some(convolution::DataType::Half),
        DataType::BFloat16 => Some(convolution::DataType::BFloat16),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
