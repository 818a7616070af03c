//! Reference interpreter of works over groups, in `f64`, for tests.

use std::collections::BTreeMap;

use hipdnn_schemas::{Graph, TensorUid};

use crate::emit::Op;
use crate::emit::grouped::ReduceOp;
use crate::emit::testing::defined;
use crate::ir::group::{GroupKernel, GroupWork, IndexMap, Input, Operand, Pass, Store};
use crate::legalize::simulate::indices;

/// Contents of tensors by their uids: elements in logical order.
pub(crate) type Tensors = BTreeMap<i64, Vec<f64>>;

/// Runs a work of a graph, rounding every result; adds its outputs to `tensors`.
///
/// # Panics
/// If it reads an element that was not written, writes one twice or not at all, or leaves a tensor where it must not.
pub(crate) fn interpret(graph: &Graph, work: &GroupWork, tensors: &mut Tensors, round: fn(f64) -> f64) {
    let mut memory = Memory { graph, work, tensors, locals: work.locals.iter().map(|_| None).collect(), round };
    for kernel in &work.kernels {
        let mut written: BTreeMap<Operand, Vec<Option<f64>>> = BTreeMap::new();
        for group in indices(&kernel.groups) {
            memory.group(kernel, &group, &mut written);
        }
        for (operand, elements) in written {
            let elements: Option<Vec<f64>> = elements.into_iter().collect();
            let elements = elements.unwrap_or_else(|| panic!("{operand:?} has elements that were not written"));
            match operand {
                Operand::Tensor(uid) => drop(memory.tensors.insert(uid.0, elements)),
                Operand::Local(local) => memory.locals[local] = Some(elements),
            }
        }
    }
}

struct Memory<'a> {
    graph: &'a Graph,
    work: &'a GroupWork,
    tensors: &'a mut Tensors,
    locals: Vec<Option<Vec<f64>>>,
    round: fn(f64) -> f64,
}

impl Memory<'_> {
    fn dims(&self, operand: Operand) -> &[usize] {
        match operand {
            Operand::Tensor(uid) => self.graph.tensor(uid).dims(),
            Operand::Local(local) => &self.work.locals[local].dims,
        }
    }

    fn element(&self, operand: Operand, place: usize) -> f64 {
        match operand {
            Operand::Tensor(TensorUid(uid)) => self.tensors[&uid][place],
            Operand::Local(local) => self.locals[local].as_ref().expect("a kernel before wrote it")[place],
        }
    }

    fn input(&self, input: &Input, loops: &[usize]) -> f64 {
        match input {
            Input::Element { of, at, pad_value } => {
                place(at, self.dims(*of), loops).map_or(*pad_value, |place| self.element(*of, place))
            }
            Input::InBounds { dims, at } => f64::from(u8::from(place(at, dims, loops).is_some())),
            Input::Index(which) => loops[*which] as f64,
            Input::Literal(number) | Input::Number(number) => *number,
        }
    }

    fn slots(&self, pass: &Pass, left: &[f64], loops: &[usize]) -> Vec<f64> {
        let mut slots = left.to_vec();
        slots.extend(pass.inputs().iter().map(|input| self.input(input, loops)));
        for op in pass.program() {
            slots.push((self.round)(apply(op, &slots)));
        }
        slots
    }

    fn group(&self, kernel: &GroupKernel, group: &[usize], written: &mut BTreeMap<Operand, Vec<Option<f64>>>) {
        let mut store = |stores: &[Store], slots: &[f64], loops: &[usize]| {
            for store in stores {
                let dims = self.dims(store.to);
                let place = place(&store.at, dims, loops).expect("stores stay within");
                let elements = written.entry(store.to).or_insert_with(|| vec![None; dims.iter().product()]);
                assert_eq!(elements[place].replace(slots[store.slot]), None, "{store:?} twice");
            }
        };
        let mut left = Vec::new();
        for pass in &kernel.passes {
            let members = indices(&kernel.members).map(|member| [group, &member].concat());
            match pass {
                Pass::Reduce { folds, .. } => {
                    let all: Vec<Vec<f64>> = members.map(|loops| self.slots(pass, &left, &loops)).collect();
                    for fold in folds {
                        let values = all.iter().map(|slots| slots[fold.slot]);
                        match fold.mode {
                            ReduceOp::Sum => left.push(values.fold(0.0, |sum, value| (self.round)(sum + value))),
                            ReduceOp::Product => {
                                left.push(values.fold(1.0, |product, value| (self.round)(product * value)))
                            }
                            ReduceOp::Min => left.push(values.fold(f64::INFINITY, least)),
                            ReduceOp::Max => left.push(-values.map(|value| -value).fold(f64::INFINITY, least)),
                            ReduceOp::ArgMax { at } => {
                                let greater = |a: f64, b: f64| a > b || (a.is_nan() && !b.is_nan());
                                let first = all.iter().reduce(|best, other| {
                                    if greater(other[fold.slot], best[fold.slot]) { other } else { best }
                                });
                                let first = first.expect("groups have members");
                                left.extend([first[fold.slot], first[at]]);
                            }
                        }
                    }
                }
                Pass::PerGroup { keep, stores, .. } => {
                    // Along members there is nothing to read: an index there would be a mistake.
                    let loops = [group, &vec![usize::MAX / 4; kernel.members.len()]].concat();
                    let slots = self.slots(pass, &left, &loops);
                    store(stores, &slots, &loops);
                    left.extend(keep.iter().map(|slot| slots[*slot]));
                }
                Pass::PerMember { stores, .. } => {
                    for loops in members {
                        store(stores, &self.slots(pass, &left, &loops), &loops);
                    }
                }
            }
        }
    }
}

fn least(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}

/// Result of an operation.
fn apply(op: &Op, slots: &[f64]) -> f64 {
    let Op::Pointwise { mode, parameters, operands } = op else { panic!("lowered nodes have no {op:?}") };
    let operands: Vec<f64> = operands.iter().map(|slot| slots[*slot]).collect();
    defined(*mode, parameters, &operands)
}

/// Index of an element in logical order, unless the indices leave the tensor.
fn place(at: &IndexMap, dims: &[usize], loops: &[usize]) -> Option<usize> {
    assert_eq!(at.len(), dims.len(), "an index for each dimension");
    let mut number = 0;
    for (line, extent) in at.iter().zip(dims) {
        assert_eq!(line.steps.len(), loops.len(), "a step for each loop");
        let steps = line.steps.iter().zip(loops).filter(|(step, _)| **step != 0);
        let sum = steps.fold(line.offset, |sum, (step, i)| sum + step * *i as i64);
        let divisor = i64::try_from(line.divisor).expect("small");
        if sum < 0 || sum % divisor != 0 || sum / divisor >= *extent as i64 {
            return None;
        }
        number = number * extent + (sum / divisor) as usize;
    }
    Some(number)
}
