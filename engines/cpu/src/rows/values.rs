//! Values of a kernel over groups: its passes' slots, numbered by what they are computed from.
//!
//! Passes of a [`GroupKernel`] compute values of members again where a pass before has computed them already. Here equal
//! values are one (value numbering over all passes), so that they can be kept from one pass to another.

use std::collections::HashSet;

use hipdnn_engine_kernel::emit::grouped::ReduceOp;
use hipdnn_engine_kernel::emit::{Element, Op};
use hipdnn_engine_kernel::fuse::stays_within;
use hipdnn_engine_kernel::ir::group::{GroupKernel, IndexMap, Input, Operand, Pass};
use hipdnn_schemas::{Graph, PointwiseMode, TensorUid};

use crate::nodes::reduction::Fold;
use hipdnn_cpu_pointwise::{Function, Storage};

/// Elements of a tensor along the loops of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    /// Index of the tensor among the inputs, or the outputs.
    pub(super) tensor: usize,
    /// True if it is one of the outputs.
    pub(super) is_written: bool,
    /// Element type in memory.
    pub(super) storage: Storage,
    /// Offset of the first element.
    pub(super) offset: usize,
    /// Stride of each loop: those of the groups, then those of the members.
    pub(super) strides: Vec<usize>,
}

/// Definition of a value. Operands come before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Value that a pass leaves behind: its number.
    Carried(usize),
    /// Element: the number of its view.
    Element(usize),
    /// Number that the kernel knows.
    Number(f64),
    /// Function of values.
    Apply(Function, Vec<usize>),
    /// Value rounded to a type.
    Round(Storage, usize),
}

/// Number of times that a pass computes its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    /// Once for each group.
    PerGroup,
    /// Once for each member of each group.
    PerMember,
}

/// Pass over values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValuePass {
    pub(super) turns: Turns,
    /// Reductions: the operator, the value, and the number of what is left behind.
    pub(super) folds: Vec<(Fold, usize, usize)>,
    /// Values that are left behind, with their numbers there.
    pub(super) keep: Vec<(usize, usize)>,
    /// Values that are stored, with the numbers of their views.
    pub(super) stores: Vec<(usize, usize)>,
}

impl ValuePass {
    /// Values that it folds, keeps or stores.
    pub(super) fn roots(&self) -> impl Iterator<Item = usize> {
        let folds = self.folds.iter().map(|(_, value, _)| *value);
        folds.chain(self.keep.iter().chain(&self.stores).map(|(value, _)| *value))
    }
}

/// Kernel over values.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// Extents of the loops: those of the groups, then those of the members.
    pub(super) loops: Vec<usize>,
    /// Number of loops that number groups.
    pub(super) groups: usize,
    pub(super) inputs: Vec<TensorUid>,
    pub(super) outputs: Vec<TensorUid>,
    pub(super) views: Vec<View>,
    pub(super) values: Vec<Value>,
    pub(super) passes: Vec<ValuePass>,
    /// Number of values that passes leave behind.
    pub(super) left: usize,
}

impl Values {
    /// Numbers the values of a kernel over the tensors of a graph.
    ///
    /// # Errors
    /// Reason for which the CPU engine has no rows for the kernel.
    pub(super) fn new(graph: &Graph, kernel: &GroupKernel) -> Result<Values, &'static str> {
        let mut values = Values {
            loops: [&kernel.groups[..], &kernel.members].concat(),
            groups: kernel.groups.len(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            views: Vec::new(),
            values: Vec::new(),
            passes: Vec::new(),
            left: 0,
        };
        let mut stored: HashSet<TensorUid> = HashSet::new();
        // For each number of a value that was left behind the one that is read for it: another where a pass only kept what an
        // earlier one had left.
        let mut first: Vec<usize> = Vec::new();
        for pass in &kernel.passes {
            let turns = if matches!(pass, Pass::PerGroup { .. }) { Turns::PerGroup } else { Turns::PerMember };
            let mut slots: Vec<usize> = first.iter().map(|left| values.add(Value::Carried(*left))).collect();
            for input in pass.inputs() {
                let value = match input {
                    Input::Literal(number) | Input::Number(number) => Value::Number(*number),
                    Input::Element { of: Operand::Tensor(uid), at, .. } => {
                        if stored.contains(uid) {
                            return Err("a pass reads what another one writes");
                        }
                        Value::Element(values.view(graph, *uid, at, turns, false)?)
                    }
                    Input::Element { of: Operand::Local(_), .. } => return Err("it has temporaries of its own"),
                    Input::InBounds { .. } | Input::Index(_) => return Err("it reads indices"),
                };
                slots.push(values.add(value));
            }
            for op in pass.program() {
                let value = match op {
                    Op::Pointwise { mode, parameters, operands } => {
                        let function = Function::new(*mode, parameters).ok_or("a function has no mode")?;
                        Value::Apply(function, operands.iter().map(|slot| slots[*slot]).collect())
                    }
                    Op::Round { to, operand } => Value::Round(storage(*to), slots[*operand]),
                };
                slots.push(values.add(value));
            }
            first.extend(values.left..values.left + pass.leaves());
            let mut numbered = ValuePass { turns, folds: Vec::new(), keep: Vec::new(), stores: Vec::new() };
            match pass {
                Pass::Reduce { folds, .. } => {
                    for fold in folds {
                        let operator = match fold.mode {
                            ReduceOp::Sum => Fold::Sum,
                            ReduceOp::Product => Fold::Product,
                            ReduceOp::Min => Fold::Least,
                            ReduceOp::Max => Fold::Greatest,
                            ReduceOp::ArgMax { .. } => return Err("it looks for an index"),
                        };
                        numbered.folds.push((operator, slots[fold.slot], values.left + numbered.folds.len()));
                    }
                }
                Pass::PerGroup { keep, .. } => {
                    for (left, slot) in (values.left..).zip(keep) {
                        match values.values[slots[*slot]] {
                            Value::Carried(before) => first[left] = before,
                            _ => numbered.keep.push((slots[*slot], left)),
                        }
                    }
                }
                Pass::PerMember { .. } => {}
            }
            for store in pass.stores() {
                let Operand::Tensor(uid) = store.to else { return Err("it has temporaries of its own") };
                stored.insert(uid);
                let view = values.view(graph, uid, &store.at, turns, true)?;
                numbered.stores.push((slots[store.slot], view));
            }
            values.left += pass.leaves();
            if numbered.roots().next().is_some() {
                values.passes.push(numbered);
            }
        }
        values.fold_squares();
        Ok(values)
    }

    /// Has sums of squares computed of what is squared, in one step.
    fn fold_squares(&mut self) {
        for (fold, value, _) in self.passes.iter_mut().flat_map(|pass| &mut pass.folds) {
            if let (Fold::Sum, Value::Apply(function, operands)) = (*fold, &self.values[*value])
                && let (PointwiseMode::Mul, [a, b]) = (function.mode(), &operands[..])
                && a == b
            {
                (*fold, *value) = (Fold::SumOfSquares, *a);
            }
        }
    }

    /// Operands `x` and `y` of a value `eˣ⁻ʸ` whose `y` is the greatest of all `x`.
    pub(super) fn falling(&self, value: usize) -> Option<&[usize]> {
        let Value::Apply(function, operands) = &self.values[value] else { return None };
        let (PointwiseMode::Exp, [difference]) = (function.mode(), &operands[..]) else { return None };
        let Value::Apply(function, operands) = &self.values[*difference] else { return None };
        let (PointwiseMode::Sub, [x, y]) = (function.mode(), &operands[..]) else { return None };
        let Value::Carried(left) = self.values[*y] else { return None };
        (self.folded(left) == Some((Fold::Greatest, *x))).then_some(&operands[..])
    }

    /// True for the sum of all `eˣ⁻ʸ` where `y` is the greatest `x`: it is at least one, unless it is no number.
    pub(super) fn is_sum_of_falling(&self, value: usize) -> bool {
        let Value::Carried(left) = self.values[value] else { return false };
        matches!(self.folded(left), Some((Fold::Sum, of)) if self.falling(of).is_some())
    }

    /// Value that a pass leaves behind under a number, if it is folded there.
    fn folded(&self, left: usize) -> Option<(Fold, usize)> {
        let mut folds = self.passes.iter().flat_map(|pass| &pass.folds);
        folds.find(|(.., of)| *of == left).map(|(fold, value, _)| (*fold, *value))
    }

    fn add(&mut self, value: Value) -> usize {
        let known = self.values.iter().position(|known| *known == value);
        known.unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        })
    }

    fn view(
        &mut self,
        graph: &Graph,
        uid: TensorUid,
        at: &IndexMap,
        turns: Turns,
        is_written: bool,
    ) -> Result<usize, &'static str> {
        let tensor = graph.tensor(uid);
        let storage = Storage::of(tensor.data_type()).ok_or("a tensor's type has no rows")?;
        let mut loops = self.loops.clone();
        if turns == Turns::PerGroup {
            loops[self.groups..].fill(1);
        }
        let (mut offset, mut strides) = (0, vec![0; loops.len()]);
        for ((line, extent), stride) in at.iter().zip(tensor.dims()).zip(tensor.strides()) {
            if !stays_within(line, &loops, *extent) || line.steps.iter().any(|step| *step < 0) {
                return Err("it reads windows");
            }
            let along = |index: i64| usize::try_from(index).map_err(|_| "it reads windows");
            offset += along(line.offset)? * stride;
            for ((to, step), extent) in strides.iter_mut().zip(&line.steps).zip(&loops) {
                if *extent > 1 {
                    *to += along(*step)? * stride;
                }
            }
        }
        let tensors = if is_written { &mut self.outputs } else { &mut self.inputs };
        let tensor = tensors.iter().position(|known| *known == uid).unwrap_or_else(|| {
            tensors.push(uid);
            tensors.len() - 1
        });
        let view = View { tensor, is_written, storage, offset, strides };
        let known = self.views.iter().position(|known| *known == view);
        Ok(known.unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        }))
    }

    /// True for each value that differs between the members of a group.
    pub(super) fn of_members(&self) -> Vec<bool> {
        let mut differs: Vec<bool> = Vec::with_capacity(self.values.len());
        for value in &self.values {
            differs.push(match value {
                Value::Carried(_) | Value::Number(_) => false,
                Value::Element(view) => self.views[*view].strides[self.groups..].iter().any(|stride| *stride != 0),
                Value::Apply(_, operands) => operands.iter().any(|operand| differs[*operand]),
                Value::Round(_, operand) => differs[*operand],
            });
        }
        differs
    }

    /// Values that the roots depend on, ascending: operands before what is computed from them. Operands of those for
    /// which `is_known` are left out.
    pub(super) fn needed(
        &self,
        roots: impl IntoIterator<Item = usize>,
        is_known: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut needed = vec![false; self.values.len()];
        roots.into_iter().for_each(|root| needed[root] = true);
        for value in (0..self.values.len()).rev() {
            if !needed[value] || is_known(value) {
                continue;
            }
            match &self.values[value] {
                Value::Apply(_, operands) => operands.iter().for_each(|operand| needed[*operand] = true),
                Value::Round(_, operand) => needed[*operand] = true,
                Value::Carried(_) | Value::Element(_) | Value::Number(_) => {}
            }
        }
        (0..needed.len()).filter(|value| needed[*value]).collect()
    }
}

/// Element type of a kernel's element.
fn storage(element: Element) -> Storage {
    match element {
        Element::F32 => Storage::F32,
        Element::F16 => Storage::F16,
        Element::BF16 => Storage::BF16,
        Element::F64 => Storage::F64,
        Element::I32 => Storage::I32,
        Element::I64 => Storage::I64,
        Element::I8 => Storage::I8,
        Element::U8 => Storage::U8,
        Element::Boolean => Storage::Boolean,
    }
}
