//! Builder of kernels over groups: values have names until their slots are known.

use hipdnn_schemas::{PointwiseMode, TensorUid};

use crate::emit::Op;
use crate::emit::grouped::{Fold, ReduceOp};
use crate::ir::group::{AffineExpr, GroupKernel, IndexMap, Input, Operand, Pass, Store};

/// Value of a program, which gets a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Value that an earlier pass has left behind.
    Carried(usize),
    /// Input.
    Input(usize),
    /// Result of an operation.
    Result(usize),
}

/// Reduction over the members of a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum Combine {
    Sum(Value),
    Product(Value),
    Min(Value),
    Max(Value),
    /// Maximum; the second value is left behind too, of the first member that has it.
    ArgMax(Value, Value),
}

/// Builder of a kernel.
pub(super) struct Kernel {
    kernel: GroupKernel,
    left: usize,
}

impl Kernel {
    pub(super) fn new(groups: Vec<usize>, members: Vec<usize>) -> Kernel {
        Kernel { kernel: GroupKernel { groups, members, passes: Vec::new() }, left: 0 }
    }

    /// Adds a pass with the reductions that `build` returns; returns the values that it leaves behind.
    pub(super) fn fold(&mut self, build: impl FnOnce(&mut Body) -> Vec<Combine>) -> Vec<Value> {
        let mut body = Body::new(self.left);
        let combines = build(&mut body);
        let before = self.left;
        let mut folds = Vec::new();
        for combine in combines {
            let (value, mode) = match combine {
                Combine::Sum(value) => (value, ReduceOp::Sum),
                Combine::Product(value) => (value, ReduceOp::Product),
                Combine::Min(value) => (value, ReduceOp::Min),
                Combine::Max(value) => (value, ReduceOp::Max),
                Combine::ArgMax(value, at) => (value, ReduceOp::ArgMax { at: body.slot(at) }),
            };
            self.left += mode.leaves();
            folds.push(Fold { mode, slot: body.slot(value) });
        }
        self.kernel.passes.push(Pass::Reduce { program: body.program(), inputs: body.inputs, folds });
        (before..self.left).map(Value::Carried).collect()
    }

    /// Adds a pass that runs once for each group; returns the values that `build` returns, as they are left behind.
    pub(super) fn once<const N: usize>(&mut self, build: impl FnOnce(&mut Body) -> [Value; N]) -> [Value; N] {
        let before = self.left;
        self.once_list(|body| build(body).to_vec());
        std::array::from_fn(|i| Value::Carried(before + i))
    }

    /// [`Kernel::once`] for a number of values that is not known at compile time.
    pub(super) fn once_list(&mut self, build: impl FnOnce(&mut Body) -> Vec<Value>) -> Vec<Value> {
        let mut body = Body::new(self.left);
        let keep: Vec<usize> = build(&mut body).into_iter().map(|value| body.slot(value)).collect();
        let before = self.left;
        self.left += keep.len();
        let (program, stores) = (body.program(), body.stores());
        self.kernel.passes.push(Pass::PerGroup { inputs: body.inputs, program, keep, stores });
        (before..self.left).map(Value::Carried).collect()
    }

    /// Adds a pass that runs for every member, with the stores of `build`.
    pub(super) fn each(&mut self, build: impl FnOnce(&mut Body)) {
        let mut body = Body::new(self.left);
        build(&mut body);
        let (program, stores) = (body.program(), body.stores());
        self.kernel.passes.push(Pass::PerMember { inputs: body.inputs, program, stores });
    }

    pub(super) fn finish(self) -> GroupKernel {
        self.kernel
    }
}

/// Builder of a pass's program.
pub(super) struct Body {
    left: usize,
    inputs: Vec<Input>,
    /// Operations, and the values that their slots stand for.
    ops: Vec<(Op, Vec<Value>)>,
    stores: Vec<(Value, Operand, IndexMap)>,
}

impl Body {
    fn new(left: usize) -> Body {
        Body { left, inputs: Vec::new(), ops: Vec::new(), stores: Vec::new() }
    }

    /// Adds an input; duplicates are one.
    pub(super) fn input(&mut self, input: Input) -> Value {
        let known = self.inputs.iter().position(|known| *known == input);
        Value::Input(known.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        }))
    }

    /// Adds an element of a tensor as an input; 0 out of bounds.
    pub(super) fn element(&mut self, of: Operand, at: IndexMap) -> Value {
        self.input(Input::Element { of, at, pad_value: 0.0 })
    }

    /// Adds the only element of a tensor of that rank as an input.
    pub(super) fn only(&mut self, uid: TensorUid, rank: usize, loops: usize) -> Value {
        self.element(Operand::Tensor(uid), vec![AffineExpr::fixed(loops); rank].into())
    }

    /// Adds a constant of the definition.
    pub(super) fn literal(&mut self, number: f64) -> Value {
        self.input(Input::Literal(number))
    }

    /// Adds a number that follows from shapes.
    pub(super) fn number(&mut self, number: f64) -> Value {
        self.input(Input::Number(number))
    }

    pub(super) fn op(&mut self, mode: PointwiseMode, operands: &[Value]) -> Value {
        let slots: Vec<usize> = (0..operands.len()).collect();
        self.operation(Op::pointwise(mode, &slots), operands)
    }

    /// Adds an operation whose slots are indices in `values`.
    pub(super) fn operation(&mut self, op: Op, values: &[Value]) -> Value {
        self.ops.push((op, values.to_vec()));
        Value::Result(self.ops.len() - 1)
    }

    pub(super) fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(PointwiseMode::Add, &[a, b])
    }

    pub(super) fn sub(&mut self, a: Value, b: Value) -> Value {
        self.op(PointwiseMode::Sub, &[a, b])
    }

    pub(super) fn mul(&mut self, a: Value, b: Value) -> Value {
        self.op(PointwiseMode::Mul, &[a, b])
    }

    pub(super) fn div(&mut self, a: Value, b: Value) -> Value {
        self.op(PointwiseMode::Div, &[a, b])
    }

    /// Selects `value` where the predicate is not 0, else `other`.
    pub(super) fn select(&mut self, predicate: Value, value: Value, other: Value) -> Value {
        self.op(PointwiseMode::BinarySelect, &[value, other, predicate])
    }

    pub(super) fn store(&mut self, value: Value, to: Operand, at: IndexMap) {
        self.stores.push((value, to, at));
    }

    fn slot(&self, value: Value) -> usize {
        match value {
            Value::Carried(i) => i,
            Value::Input(i) => self.left + i,
            Value::Result(i) => self.left + self.inputs.len() + i,
        }
    }

    fn program(&self) -> Vec<Op> {
        self.ops.iter().map(|(op, values)| op.relocated(|slot| self.slot(values[slot]))).collect()
    }

    fn stores(&self) -> Vec<Store> {
        let store =
            |(value, to, at): &(Value, Operand, IndexMap)| Store { slot: self.slot(*value), to: *to, at: at.clone() };
        self.stores.iter().map(store).collect()
    }
}

/// Dimensions of a tensor that loops run over.
pub(super) struct Loops {
    axes: Vec<usize>,
}

impl Loops {
    /// Loops over these dimensions, in order.
    pub(super) fn new(axes: impl IntoIterator<Item = usize>) -> Loops {
        Loops { axes: axes.into_iter().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.axes.len()
    }

    /// Index map of a tensor, from the dimension that each of its own runs along; 0 along those that run along none.
    pub(super) fn at(&self, axes: &[Option<usize>]) -> IndexMap {
        let line = |axis: &Option<usize>| match self.axes.iter().position(|known| Some(*known) == *axis) {
            Some(which) => AffineExpr::along(self.len(), which),
            None => AffineExpr::fixed(self.len()),
        };
        axes.iter().map(line).collect()
    }
}
