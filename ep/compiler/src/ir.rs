//! The intermediate representation: typed SSA values over buffers, operations of hipDNN, and views.
//!
//! A [`Function`] is a partition at concrete extents. Operations are hipDNN's own ([`hipdnn_schemas::Operation`], whose
//! uids are [`ValueId`]s); they are destination-passing: each result has its place in a buffer. Data movement is either a
//! view, which costs nothing, or an identity operation over strided values.

use std::collections::HashSet;
use std::sync::Arc;

use crate::constants::Token;

use smallvec::{SmallVec, smallvec};

use hipdnn_schemas::{DataType, Extents, Operation, Pointwise, PointwiseMode, TensorUid, TensorValue, packed_strides};

/// An SSA value: index in [`Function::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The uid that stands for the value in hipDNN's operations and graphs.
    pub fn uid(self) -> TensorUid {
        TensorUid(i64::from(self.0))
    }

    /// The value that a uid of an operation of a [`Function`] stands for.
    pub fn of(uid: TensorUid) -> ValueId {
        ValueId(u32::try_from(uid.0).expect("uids of a function's operations are value ids"))
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index in [`Function::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Memory that values lie in.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Origin of the memory.
    pub source: Source,
    /// Element type.
    pub data_type: DataType,
    /// Elements.
    pub elements: i64,
    /// Token of the content, if it is the same in every run.
    pub token: Option<Token>,
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        (self.elements.max(0) as usize).saturating_mul(element_bytes(self.data_type))
    }
}

/// Origin of a buffer's memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Run-time input of that number.
    Input(usize),
    /// Content that the program holds.
    Constant(Arc<[u8]>),
    /// Run-time output of that number.
    Output(usize),
    /// The program's arena.
    Arena,
}

/// A value: a strided window of a buffer, or a scalar fixed in the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Element type in memory.
    pub data_type: DataType,
    /// Extents; 0 is allowed.
    pub dims: Extents,
    /// Distance between neighbors along each dimension, in elements; 0 repeats.
    pub strides: Extents,
    /// First element in the buffer, in elements.
    pub offset: i64,
    /// Buffer; `None` for a scalar.
    pub buffer: Option<BufferId>,
    /// Scalar fixed in the graph.
    pub scalar: Option<TensorValue>,
    /// Definition.
    pub def: Def,
    /// True if rounding to a 16-bit type is the value's meaning (a cast), not only its storage.
    pub rounds: bool,
}

impl Value {
    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.dims.iter().product()
    }

    /// True if the elements lie one after the other in row-major order.
    pub fn is_packed(&self) -> bool {
        let packed = packed_strides(&self.dims);
        let same = |axis: usize| self.dims[axis] <= 1 || self.strides[axis] == packed[axis];
        (0..self.dims.len()).all(same)
    }

    /// True if the elements are all those of a buffer of so many, in the order of any of its dimensions.
    pub fn is_whole(&self, elements: i64) -> bool {
        let mut axes: SmallVec<[(i64, i64); 6]> =
            self.dims.iter().zip(&self.strides).filter(|(dim, _)| **dim > 1).map(|(d, s)| (*s, *d)).collect();
        axes.sort_unstable();
        let covered = axes.iter().try_fold(1, |covered, (stride, dim)| (*stride == covered).then_some(covered * dim));
        covered == Some(elements)
    }

    /// True if two indices name the same element.
    pub fn overlaps(&self) -> bool {
        let mut axes: SmallVec<[(i64, i64); 6]> =
            self.dims.iter().zip(&self.strides).filter(|(dim, _)| **dim > 1).map(|(d, s)| (*s, *d)).collect();
        axes.sort_unstable();
        let mut span = 1;
        for (stride, dim) in axes {
            if stride < span {
                return true;
            }
            span += stride * (dim - 1);
        }
        false
    }
}

/// Definition of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Def {
    /// An input, a constant or a scalar.
    Source,
    /// The operation of that index.
    Op(usize),
    /// A window of another value's memory.
    View(ValueId),
    /// The memory that these values were written to, each its own part.
    Assembled(Vec<ValueId>),
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// hipDNN's operation, with value ids as uids.
    pub operation: Operation,
    /// Type of the computation.
    pub compute: DataType,
    /// The ONNX node it is for: index in [`Model::nodes`](crate::model::Model::nodes).
    pub node: usize,
}

/// An operation without its operands: its kind and types.
#[derive(PartialEq, Eq, Hash)]
struct Signature {
    kind: &'static str,
    mode: Option<PointwiseMode>,
    compute: DataType,
    /// Element types of inputs, then of outputs.
    types: Vec<DataType>,
}

/// A partition at concrete extents.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Name, for messages and dumps.
    pub name: String,
    /// Values in order of definition.
    pub values: Vec<Value>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Operations, producers before consumers.
    pub ops: Vec<Op>,
    /// The value behind each run-time output.
    pub outputs: Vec<ValueId>,
}

/// Size of an element in memory, in bytes. Only types of whole bytes occur.
pub fn element_bytes(data_type: DataType) -> usize {
    data_type.bits().unwrap_or(8).div_ceil(8) as usize
}

impl Function {
    /// The value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    fn add(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(u32::try_from(self.values.len() - 1).expect("a model has fewer than 2^32 values"))
    }

    fn add_buffer(&mut self, source: Source, data_type: DataType, elements: i64) -> BufferId {
        self.buffers.push(Buffer { source, data_type, elements, token: None });
        BufferId(u32::try_from(self.buffers.len() - 1).expect("a model has fewer than 2^32 buffers"))
    }

    /// A packed value that comes from outside.
    pub fn source(&mut self, source: Source, data_type: DataType, dims: &[i64]) -> ValueId {
        let buffer = self.add_buffer(source, data_type, dims.iter().product());
        self.packed(buffer, data_type, dims, Def::Source)
    }

    /// Notes the token of the content of a value's buffer.
    pub fn promise(&mut self, id: ValueId, token: Token) {
        if let Some(buffer) = self.value(id).buffer {
            self.buffers[buffer.0 as usize].token = Some(token);
        }
    }

    fn packed(&mut self, buffer: BufferId, data_type: DataType, dims: &[i64], def: Def) -> ValueId {
        self.add(Value {
            data_type,
            dims: dims.into(),
            strides: packed_strides(dims),
            offset: 0,
            buffer: Some(buffer),
            scalar: None,
            def,
            rounds: false,
        })
    }

    /// A scalar fixed in the graph, of as many dimensions as `rank`.
    pub fn scalar(&mut self, value: TensorValue, data_type: DataType, rank: usize) -> ValueId {
        self.add(Value {
            data_type,
            dims: smallvec![1; rank],
            strides: smallvec![1; rank],
            offset: 0,
            buffer: None,
            scalar: Some(value),
            def: Def::Source,
            rounds: false,
        })
    }

    /// A place for an operation's result: packed, in a buffer of its own. [`Function::push`] defines it.
    pub fn result(&mut self, data_type: DataType, dims: &[i64]) -> ValueId {
        let buffer = self.add_buffer(Source::Arena, data_type, dims.iter().product());
        self.packed(buffer, data_type, dims, Def::Source)
    }

    /// Adds an operation, whose results are places from [`Function::result`] or [`Function::part`].
    pub fn push(&mut self, op: Op) {
        let index = self.ops.len();
        for uid in op.operation.outputs() {
            self.values[ValueId::of(uid).index()].def = Def::Op(index);
        }
        self.ops.push(op);
    }

    /// True if an engine that takes each of these operations takes each of `other`'s as far as kinds and types go: the other
    /// has no operation of a kind, computation and element types that none of these has.
    ///
    /// At other extents the same nodes may be other operations: a slice that was a view, or empty, is a copy.
    pub fn has_operations_of(&self, other: &Function) -> bool {
        let known: HashSet<Signature> = self.signatures().collect();
        other.signatures().all(|signature| known.contains(&signature))
    }

    fn signatures(&self) -> impl Iterator<Item = Signature> {
        self.ops.iter().map(|op| {
            let mode = match &op.operation {
                Operation::Pointwise(pointwise) => Some(pointwise.mode),
                _ => None,
            };
            let operands = op.operation.inputs().into_iter().chain(op.operation.outputs());
            let types = operands.map(|uid| self.value(ValueId::of(uid)).data_type).collect();
            Signature { kind: op.operation.kind(), mode, compute: op.compute, types }
        })
    }

    /// A view: extents, strides (in elements) and the first element relative to that of `base`.
    pub fn view(&mut self, base: ValueId, dims: &[i64], strides: &[i64], offset: i64) -> ValueId {
        let value = self.value(base).clone();
        let offset = value.offset + offset;
        if let Some(same) = self.viewed_before(base, dims, strides, offset) {
            return same;
        }
        let def = if value.def == Def::Source { Def::Source } else { Def::View(base) };
        self.add(Value { dims: dims.into(), strides: strides.into(), offset, def, ..value })
    }

    /// The value among `base` and those it is a view of that has these extents and the same places: views that undo one another
    /// are none, and end no region.
    fn viewed_before(&self, base: ValueId, dims: &[i64], strides: &[i64], offset: i64) -> Option<ValueId> {
        let mut id = base;
        loop {
            let value = self.value(id);
            // The stride of a single element is free.
            let places =
                value.strides.iter().zip(strides).zip(dims).all(|((one, other), dim)| *dim == 1 || one == other);
            if *value.dims == *dims && value.offset == offset && places {
                return Some(id);
            }
            match value.def {
                Def::View(next) => id = next,
                _ => return None,
            }
        }
    }

    /// The value with other extents and the same elements in the same order; a copy only where no strides say it.
    pub fn reshape(&mut self, id: ValueId, dims: &[i64], node: usize) -> ValueId {
        let value = self.value(id);
        debug_assert_eq!(value.elements(), dims.iter().product::<i64>());
        if *value.dims == *dims {
            return id;
        }
        if let Some(scalar) = value.scalar {
            let data_type = value.data_type;
            return self.scalar(scalar, data_type, dims.len());
        }
        match reshaped_strides(&value.dims, &value.strides, dims) {
            Some(strides) => self.view(id, dims, &strides, 0),
            None => {
                let copy = self.copy(id, node);
                self.view(copy, dims, &packed_strides(dims), 0)
            }
        }
    }

    /// The value with its dimensions in another order.
    pub fn transpose(&mut self, id: ValueId, order: &[usize]) -> ValueId {
        let value = self.value(id);
        let dims: Extents = order.iter().map(|axis| value.dims[*axis]).collect();
        let strides: Extents = order.iter().map(|axis| value.strides[*axis]).collect();
        self.view(id, &dims, &strides, 0)
    }

    /// The value repeated along dimensions of extent 1, dimensions aligned at the last.
    pub fn expand(&mut self, id: ValueId, dims: &[i64]) -> ValueId {
        let value = self.value(id);
        let missing = dims.len() - value.dims.len();
        let strides: Extents = (0..dims.len())
            .map(|axis| match axis.checked_sub(missing) {
                Some(own) if value.dims[own] == dims[axis] => value.strides[own],
                _ => 0,
            })
            .collect();
        self.view(id, dims, &strides, 0)
    }

    /// Makes an operation's result a view of another value, of these extents and strides from the same place on, which is the
    /// operation's result from now on.
    pub fn result_behind(&mut self, id: ValueId, dims: &[i64], strides: &[i64]) -> ValueId {
        let value = self.value(id).clone();
        let wide = self.add(Value { dims: dims.into(), strides: strides.into(), ..value });
        self.values[id.index()].def = Def::View(wide);
        wide
    }

    /// A packed copy in a buffer of its own.
    pub fn copy(&mut self, id: ValueId, node: usize) -> ValueId {
        let value = self.value(id);
        let (data_type, dims) = (value.data_type, value.dims.clone());
        let copy = self.result(data_type, &dims);
        self.push_copy(id, copy, node);
        copy
    }

    /// An identity operation from a value to a place of the same extents.
    pub fn push_copy(&mut self, from: ValueId, to: ValueId, node: usize) {
        if self.value(to).elements() == 0 {
            return;
        }
        let operation = Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, from.uid(), to.uid()));
        let compute = copy_type(self.value(from).data_type);
        self.push(Op { operation, compute, node });
    }

    /// A place in part of the buffer of `whole`: [`Function::push`] defines it.
    pub fn part(&mut self, whole: ValueId, dims: &[i64], offset: i64) -> ValueId {
        let value = self.value(whole).clone();
        self.add(Value { dims: dims.into(), offset: value.offset + offset, def: Def::Source, rounds: false, ..value })
    }

    /// As [`Function::part`], with strides of its own.
    pub fn strided_part(&mut self, whole: ValueId, dims: &[i64], strides: &[i64], offset: i64) -> ValueId {
        let part = self.part(whole, dims, offset);
        self.values[part.index()].strides = strides.into();
        part
    }

    /// Declares that a value consists of parts that were written one by one.
    pub fn assemble(&mut self, whole: ValueId, parts: Vec<ValueId>) {
        self.values[whole.index()].def = Def::Assembled(parts);
    }

    /// Declares that rounding to the value's type is its meaning.
    pub fn rounds(&mut self, id: ValueId) {
        self.values[id.index()].rounds = true;
    }

    /// Moves a result that nothing has placed yet into another buffer: the window of `to`. The elements must lie there as
    /// they lie in the result.
    ///
    /// Returns whether that was possible.
    pub fn place(&mut self, id: ValueId, to: ValueId) -> bool {
        let (value, target) = (self.value(id), self.value(to));
        let Some(old) = value.buffer else { return false };
        let whole = matches!(value.def, Def::Op(_))
            && self.buffer(old).source == Source::Arena
            && value.offset == 0
            && value.is_packed()
            && value.elements() == self.buffer(old).elements;
        if !whole || !target.is_packed() || target.elements() != value.elements() || target.data_type != value.data_type
        {
            return false;
        }
        let (buffer, offset) = (target.buffer, target.offset);
        // Views of the result move with it.
        for other in &mut self.values {
            if other.buffer == Some(old) {
                other.buffer = buffer;
                other.offset += offset;
            }
        }
        true
    }

    /// Hands a value out as the next run-time output: in place where its memory is free to be that of the output, by a
    /// copy otherwise.
    pub fn output(&mut self, id: ValueId, node: usize) {
        let number = self.outputs.len();
        let value = self.value(id);
        let in_place = value.def != Def::Source
            && value.buffer.is_some_and(|buffer| {
                let buffer = self.buffer(buffer);
                buffer.source == Source::Arena && buffer.elements == value.elements()
            })
            && value.offset == 0
            && value.is_packed();
        let id = if in_place { id } else { self.copy(id, node) };
        let buffer = self.value(id).buffer.expect("a scalar was copied");
        self.buffers[buffer.0 as usize].source = Source::Output(number);
        self.outputs.push(id);
    }
}

/// Type that copies of values of that type are computed in.
pub fn copy_type(data_type: DataType) -> DataType {
    match data_type {
        DataType::Double => DataType::Double,
        DataType::Int64 => DataType::Int64,
        DataType::Int32 | DataType::Int8 | DataType::UInt8 => DataType::Int32,
        _ => DataType::Float,
    }
}

/// Strides that give strided elements other extents in the same order; `None` where only a copy can.
fn reshaped_strides(dims: &[i64], strides: &[i64], new: &[i64]) -> Option<Extents> {
    if dims.contains(&0) {
        return Some(packed_strides(new));
    }
    // Runs of old dimensions that are one dimension in memory: (extent, stride of the last).
    let mut runs: SmallVec<[(i64, i64); 6]> = SmallVec::new();
    for (dim, stride) in dims.iter().zip(strides).filter(|(dim, _)| **dim != 1) {
        match runs.last_mut() {
            Some((extent, last)) if *last == dim * stride => (*extent, *last) = (*extent * dim, *stride),
            _ => runs.push((*dim, *stride)),
        }
    }
    let mut result: Extents = smallvec![1; new.len()];
    let mut axis = new.len();
    for (mut extent, mut stride) in runs.into_iter().rev() {
        while extent > 1 {
            axis = axis.checked_sub(1)?;
            if extent % new[axis] != 0 {
                return None;
            }
            result[axis] = stride;
            stride *= new[axis];
            extent /= new[axis];
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_buffers_in_any_order() {
        let mut function = Function::default();
        for (dims, strides, elements, want) in [
            (&[3, 4][..], &[4, 1][..], 12, true),
            (&[4, 3], &[1, 4], 12, true),
            (&[4, 1, 3], &[1, 77, 4], 12, true),
            (&[4, 3], &[1, 5], 12, false),
            (&[4, 3], &[1, 4], 24, false),
            (&[4, 3], &[0, 1], 12, false),
        ] {
            let id = function.source(Source::Input(0), DataType::Float, dims);
            function.values[id.0 as usize].strides = strides.into();
            assert_eq!(function.value(id).is_whole(elements), want, "{dims:?} by {strides:?} of {elements}");
        }
    }

    #[test]
    fn reshapes_without_a_copy() {
        for (dims, strides, new, want) in [
            (&[2, 3, 4][..], &[12, 4, 1][..], &[6, 4][..], Some(vec![4, 1])),
            (&[6, 4], &[4, 1], &[2, 3, 2, 2], Some(vec![12, 4, 2, 1])),
            (&[2, 3], &[1, 2], &[6], None),
            (&[2, 3], &[1, 2], &[2, 1, 3], Some(vec![1, 1, 2])),
            (&[2, 3, 4], &[24, 4, 1], &[2, 12], Some(vec![24, 1])),
            (&[2, 3, 4], &[24, 8, 1], &[6, 4], Some(vec![8, 1])),
            (&[2, 3, 4], &[25, 8, 1], &[6, 4], None),
            (&[4, 1], &[0, 1], &[2, 2], Some(vec![0, 0])),
            (&[1, 1], &[5, 5], &[1], Some(vec![1])),
            (&[], &[], &[1, 1], Some(vec![1, 1])),
            (&[0, 4], &[4, 1], &[0], Some(vec![1])),
        ] {
            assert_eq!(
                reshaped_strides(dims, strides, new).map(SmallVec::into_vec),
                want,
                "{dims:?} {strides:?} to {new:?}"
            );
        }
    }

    fn relu(function: &mut Function, x: ValueId) -> ValueId {
        let (data_type, dims) = (function.value(x).data_type, function.value(x).dims.clone());
        let y = function.result(data_type, &dims);
        let operation = Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, x.uid(), y.uid()));
        function.push(Op { operation, compute: DataType::Float, node: 0 });
        y
    }

    #[test]
    fn operations_are_compared_by_kind_and_types() {
        let copies = |types: &[DataType]| {
            let mut function = Function::default();
            for data_type in types {
                let x = function.source(Source::Input(0), *data_type, &[2, 3]);
                function.copy(x, 0);
            }
            function
        };
        use DataType::{Float, Int32};
        let both = copies(&[Float, Int32]);
        assert!(both.has_operations_of(&copies(&[Int32, Int32])));
        assert!(both.has_operations_of(&copies(&[])));
        assert!(!copies(&[Float]).has_operations_of(&both));
        assert!(!copies(&[]).has_operations_of(&copies(&[Float])));
        let mut activation = copies(&[]);
        let x = activation.source(Source::Input(0), Float, &[4]);
        relu(&mut activation, x);
        assert!(!both.has_operations_of(&activation));
    }

    #[test]
    fn outputs_are_written_in_place_where_their_memory_is_free() {
        let mut f = Function::default();
        let x = f.source(Source::Input(0), DataType::Float, &[2, 3]);
        let y = relu(&mut f, x);
        let flat = f.reshape(y, &[6], 0);
        f.output(flat, 0);
        assert_eq!(f.ops.len(), 1, "the view of a whole result needs no copy");
        // The same memory cannot be two outputs, and an input is no output.
        f.output(y, 0);
        f.output(x, 0);
        assert_eq!(f.ops.len(), 3);
        let sources: Vec<_> =
            f.outputs.iter().map(|id| f.buffer(f.value(*id).buffer.unwrap()).source.clone()).collect();
        assert_eq!(sources, [Source::Output(0), Source::Output(1), Source::Output(2)]);
    }

    #[test]
    fn results_move_into_a_larger_buffer_with_their_views() {
        let mut f = Function::default();
        let x = f.source(Source::Input(0), DataType::Float, &[1, 3, 2]);
        let y = relu(&mut f, x);
        let view = f.transpose(y, &[0, 2, 1]);
        let whole = f.result(DataType::Float, &[1, 5, 2]);
        let part = f.part(whole, &[1, 3, 2], 4);
        assert!(f.place(y, part));
        assert_eq!((f.value(y).buffer, f.value(y).offset), (f.value(whole).buffer, 4));
        assert_eq!((f.value(view).buffer, f.value(view).offset), (f.value(whole).buffer, 4));
        assert!(!f.place(x, part), "an input stays where it is");
    }

    #[test]
    fn overlapping_strides() {
        let mut f = Function::default();
        let x = f.source(Source::Input(0), DataType::Float, &[4, 1]);
        let expanded = f.expand(x, &[2, 4, 3]);
        assert_eq!(*f.value(expanded).strides, [0, 1, 0]);
        assert!(f.value(expanded).overlaps() && !f.value(x).overlaps());
        let turned = f.transpose(x, &[1, 0]);
        assert!(!f.value(turned).overlaps() && f.value(turned).is_packed());
    }
}
