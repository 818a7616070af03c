//! Legalization of convolutions: problems that MIOpen takes, with copies around them where a tensor's layout is not
//! MIOpen's.

use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_schemas::{ConvMode, DataType, Tensor, TensorUid};

use super::chain::keeps_range;
use super::dispatch::Source;
use super::{
    ConvolutionDispatch, Dispatch, KernelDispatch, Kind, Layout, Legalizer, Number, Stored, Value, View, same_strides,
    view,
};
use crate::convolution::{self, ConvolutionProblem, Direction, TensorShape};
use crate::fuse::FusionGroup;
use crate::ir::elementwise::Argument;
use crate::ir::op::Convolution;

/// Role of a tensor in a convolution.
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

    /// Role of the result.
    fn result(direction: Direction) -> Role {
        match direction {
            Direction::Forward => Role::Y,
            Direction::BackwardData => Role::X,
            Direction::BackwardWeights => Role::W,
        }
    }
}

/// Type, layout, padding and orientation in which MIOpen gets a convolution's tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    data_type: DataType,
    layout: Layout,
    /// Extents of the tensor, with two or three spatial dimensions.
    inner: Vec<usize>,
    /// Extents with paddings.
    dims: Vec<usize>,
    /// Padding in front of the tensor in each dimension.
    before: Vec<usize>,
    flipped: bool,
}

impl Legalizer<'_> {
    pub(super) fn convolution(&mut self, work: &Convolution) -> Result<(), Declined> {
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

    /// Element type of the problem: the tensors' if they have one in common, else float, which has all the values.
    fn convolution_type(&self, work: &Convolution) -> DataType {
        let [a, b] = work.inputs().map(|uid| self.data_type(uid));
        let output = self.graph.tensor(work.output());
        if a != b || a == output.data_type() {
            return if a == b { a } else { DataType::Float };
        }
        // Clients often leave intermediates at float. Where all that is left in the end has the operands' type, and
        // what lies between can't bring back what rounding has lost, that is rounded twice instead of once, and MIOpen
        // need not compute with float operands.
        let readers = self.readers.get(&output.uid()).map_or(&[][..], Vec::as_slice);
        let ends_narrow = |reader: &usize| match &self.fusion_groups[*reader] {
            FusionGroup::Chain(chain) => {
                self.graph.tensor(chain.output()).data_type() == a && chain.nodes().iter().all(keeps_range)
            }
            FusionGroup::Convolution(_) | FusionGroup::Groups(_) | FusionGroup::Opaque(_) => false,
        };
        let narrow = output.is_virtual()
            && output.data_type() == DataType::Float
            && !self.options.strict_fp32
            && !readers.is_empty()
            && readers.iter().all(ends_narrow);
        if narrow { a } else { DataType::Float }
    }

    /// Layouts to try, the one that needs fewer copies first.
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

    /// Number of elements that are copied because a tensor has another layout.
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
            Some([reader]) if tensor.is_virtual() => match &self.fusion_groups[*reader] {
                FusionGroup::Chain(chain) => {
                    Some(self.graph.tensor(chain.output())).filter(|o| o.dims() == tensor.dims())
                }
                FusionGroup::Convolution(_) | FusionGroup::Groups(_) | FusionGroup::Opaque(_) => None,
            },
            _ => None,
        };
        let strides = &view(reader.unwrap_or(tensor)).strides;
        if lies_so(strides) { 0 } else { tensor.elements().saturating_mul(if tensor.is_virtual() { 1 } else { 2 }) }
    }

    /// Form of an operand or the result for MIOpen, whose paddings are the same on both sides.
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

    /// Paddings of the spatial dimensions, after lifting.
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
                data_type: library_type(data_type).expect("convolutions of other types are declined"),
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
            deterministic: self.options.deterministic,
        }
    }

    fn emit(&mut self, work: &Convolution, problem: ConvolutionProblem, data_type: DataType, layout: Layout) {
        let output = Role::result(work.direction);
        let mut operand = |role: Role| (role != output).then(|| self.operand(work, role, data_type, layout));
        let [x, w, y] = [operand(Role::X), operand(Role::W), operand(Role::Y)];
        let (result, copy) = self.result(work, data_type, layout);
        let [x, w, y] = [x, w, y].map(|value| value.unwrap_or(result));
        self.legalized.dispatches.push(Dispatch::Convolution(ConvolutionDispatch {
            node: work.node,
            problem,
            x,
            w,
            y,
            bias: None,
        }));
        self.legalized.dispatches.extend(copy.map(Dispatch::Kernel));
    }

    /// Memory of an operand for MIOpen: its own, or a copy.
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
        let from = match kind {
            Kind::Literal(number) => Source::Number(Number::Known(number)),
            Kind::Scalar => Source::Number(Number::Host(uid, tensor.data_type())),
            Kind::Memory(stored) => {
                let mut view = stored.view;
                view.strides = lifted(&view.strides, 0);
                if form.flipped {
                    flip(&mut view, &form.inner);
                }
                let window = form.before.iter().copied().zip(form.inner.iter().copied());
                let access = if form.is_padded() { view.access_within(window) } else { view.access() };
                Source::Memory(stored.value, view.data_type, access)
            }
        };
        let value = self.temporary(form.dims.iter().product(), data_type);
        let view = View { data_type, strides: layout.strides(&form.dims).to_vec(), offset: 0 };
        let purpose = format!("{} tensor {uid} for node {}", form.purpose(), work.node);
        let copy = KernelDispatch::copy(purpose, form.dims.clone(), from, Stored { value, view });
        self.legalized.dispatches.push(Dispatch::Kernel(copy));
        self.prepared.insert((uid, form), value);
        value
    }

    /// True if MIOpen can read or write the tensor in place: alignment, type, offset and strides match the form.
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

    /// Destination of MIOpen's result, and the copy from there to the caller's tensor, if one is needed.
    fn result(&mut self, work: &Convolution, data_type: DataType, layout: Layout) -> (Value, Option<KernelDispatch>) {
        let uid = work.output();
        let tensor = self.graph.tensor(uid);
        let form = self.form(work, Role::result(work.direction), data_type, layout);
        let mut inner = View { data_type, strides: layout.strides(&form.dims).to_vec(), offset: 0 };
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
        let purpose = format!("{} tensor {uid} of node {}", form.purpose(), work.node);
        let from = Source::Memory(value, data_type, inner.access());
        let view = View { strides: lifted(&stored.view.strides, 0), ..stored.view };
        let copy = KernelDispatch::copy(purpose, form.inner, from, Stored { view, ..stored });
        (value, Some(copy))
    }

    /// Output memory of the chain that is the only reader of a virtual result, if the convolution can write there and
    /// the chain compute in place.
    fn in_place(&mut self, tensor: &Tensor, form: &Form, view: &View) -> Option<Value> {
        // What is done in between could read memory that the caller has at the place of the result.
        if self.readers.get(&tensor.uid()).map(Vec::as_slice) != Some(&[self.current + 1]) {
            return None;
        }
        let FusionGroup::Chain(chain) = &self.fusion_groups[self.current + 1] else { return None };
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
        let stored = Stored { value: Value::Tensor(output.uid()), view: super::view(output) };
        if chain.inputs().iter().any(may_be_there) || !self.is_direct(output, &stored, form) {
            return None;
        }
        self.claimed.insert(output.uid());
        Some(stored.value)
    }
}

/// Alignment in bytes that MIOpen's kernels assume of a tensor's address: they load 16-bit elements in pairs.
pub const CONVOLUTION_ALIGNMENT: usize = 4;

impl Form {
    fn is_padded(&self) -> bool {
        self.dims != self.inner
    }

    /// True if the tensor is padded or flipped, not only laid out.
    fn differs(&self) -> bool {
        self.flipped || self.is_padded()
    }

    /// Purpose of a copy of the tensor, for the log.
    fn purpose(&self) -> &'static str {
        match (self.is_padded(), self.flipped) {
            (true, _) => "pad",
            (false, true) => "flip",
            (false, false) => "copy",
        }
    }
}

/// Padding of a dimension as MIOpen takes it: the same on both sides, and the rest as part of the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Padding {
    both: i64,
    before: usize,
    after: usize,
}

impl Padding {
    /// Padding for extents of input, window (with dilation) and output, the stride and the padding in front.
    ///
    /// The output has `floor((input + pre + post - window) / stride) + 1` places, so that any padding behind from
    /// `least` to `most` is as good as the one that was asked for: what lies behind the last window is read by none.
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

/// List of (batch, channel, spatial…) entries with `missing` inserted as a second spatial one where there is a single
/// one: MIOpen has two or three spatial dimensions.
pub fn lifted<T: Copy>(list: &[T], missing: T) -> Vec<T> {
    let mut list = list.to_vec();
    if list.len() == 3 {
        list.insert(2, missing);
    }
    list
}

/// Inverse of [`lifted`].
fn lowered(list: &[i64], rank: usize) -> Vec<i64> {
    let mut list = list.to_vec();
    if list.len() > rank {
        list.remove(2);
    }
    list
}

/// Reverses the spatial dimensions.
fn flip(view: &mut View, dims: &[usize]) {
    for (extent, stride) in dims.iter().zip(&mut view.strides).skip(2) {
        view.offset += (*extent as i64 - 1) * *stride;
        *stride = -*stride;
    }
}

/// Element type of MIOpen's convolutions for a tensor's type.
pub fn library_type(data_type: DataType) -> Option<convolution::DataType> {
    match data_type {
        DataType::Float => Some(convolution::DataType::Float),
        DataType::Half => Some(convolution::DataType::Half),
        DataType::BFloat16 => Some(convolution::DataType::BFloat16),
        _ => None,
    }
}
