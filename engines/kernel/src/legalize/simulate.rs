//! Interpreter of legalized graphs in `f64`, dispatch by dispatch, for tests.

use std::collections::HashMap;

use super::{Dispatch, KernelDispatch, Legalized, Number, Value};
use crate::convolution::{ConvolutionProblem, Direction};
use crate::emit::Op;
use crate::emit::grouped::{Access, Input, Pass, ReduceOp, Store};
use crate::emit::testing::defined;

/// Iterator over every index within extents.
pub fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..dims.iter().product::<usize>()).map(move |mut n| {
        let mut index = vec![0; dims.len()];
        for (i, extent) in index.iter_mut().zip(dims).rev() {
            (*i, n) = (n % extent, n / extent);
        }
        index
    })
}

/// Offset of an index: the sum of indices times strides.
pub fn at(index: &[usize], strides: &[i64]) -> i64 {
    index.iter().zip(strides).map(|(i, stride)| *i as i64 * stride).sum()
}

/// Reference convolution; `x`, `w` and `y` are (extents, strides).
pub(super) struct Definition<'a> {
    pub(super) direction: Direction,
    pub(super) tensors: [(&'a [usize], Vec<i64>); 3],
    pub(super) pre: Vec<i64>,
    pub(super) stride: Vec<i64>,
    pub(super) dilation: Vec<i64>,
    pub(super) flip: bool,
}

impl Definition<'_> {
    pub(super) fn run(&self, [x, w, y]: [&[f64]; 3]) -> Vec<f64> {
        let [(xd, xs), (wd, ws), (yd, ys)] = &self.tensors;
        let mut result = match self.direction {
            Direction::Forward => vec![0.0; y.len()],
            Direction::BackwardData => vec![0.0; x.len()],
            Direction::BackwardWeights => vec![0.0; w.len()],
        };
        let filters_of_group = wd[0] / (xd[1] / wd[1]);
        for yi in indices(yd) {
            for tap in indices(&wd[1..]) {
                let mut xi = vec![yi[0], yi[1] / filters_of_group * wd[1] + tap[0]];
                let mut wi = vec![yi[1], tap[0]];
                for axis in 0..self.pre.len() {
                    let place = yi[2 + axis] as i64 * self.stride[axis] + tap[1 + axis] as i64 * self.dilation[axis];
                    let place = place - self.pre[axis];
                    xi.extend(usize::try_from(place).ok().filter(|place| *place < xd[2 + axis]));
                    wi.push(if self.flip { wd[2 + axis] - 1 - tap[1 + axis] } else { tap[1 + axis] });
                }
                if xi.len() < xd.len() {
                    continue;
                }
                let [xa, wa, ya] = [at(&xi, xs), at(&wi, ws), at(&yi, ys)].map(|place| place as usize);
                match self.direction {
                    Direction::Forward => result[ya] += x[xa] * w[wa],
                    Direction::BackwardData => result[xa] += y[ya] * w[wa],
                    Direction::BackwardWeights => result[wa] += x[xa] * y[ya],
                }
            }
        }
        result
    }
}

/// Runs an legalized graph; returns the memory afterwards.
pub fn run(legalized: &Legalized, mut memory: HashMap<Value, Vec<f64>>) -> HashMap<Value, Vec<f64>> {
    for (index, bytes) in legalized.temporaries.iter().enumerate() {
        // Half as many elements as there may be: reading what nobody wrote gives NaN.
        memory.insert(Value::Temporary(index), vec![f64::NAN; bytes / 2]);
    }
    for dispatch in &legalized.dispatches {
        match dispatch {
            Dispatch::Convolution(dispatch) => {
                let ConvolutionProblem { direction, x, w, y, padding, stride, dilation, groups, .. } =
                    &dispatch.problem;
                dispatch.problem.check().unwrap();
                assert_eq!(x.dims[1] / w.dims[1], *groups as usize);
                let list = |list: &[i32]| list.iter().map(|entry| i64::from(*entry)).collect();
                let definition = Definition {
                    direction: *direction,
                    tensors: [x, w, y].map(|t| (&t.dims[..], t.strides.iter().map(|s| *s as i64).collect())),
                    pre: list(padding),
                    stride: list(stride),
                    dilation: list(dilation),
                    flip: false,
                };
                let result = definition.run([dispatch.x, dispatch.w, dispatch.y].map(|value| &memory[&value][..]));
                let output = match direction {
                    Direction::Forward => dispatch.y,
                    Direction::BackwardData => dispatch.x,
                    Direction::BackwardWeights => dispatch.w,
                };
                let elements = dispatch.problem.output().elements();
                memory.get_mut(&output).unwrap()[..elements].copy_from_slice(&result[..elements]);
            }
            Dispatch::Kernel(dispatch) => groups(dispatch, &mut memory),
        }
    }
    memory
}

/// Appends the results of a program to its slots; nothing is rounded.
fn compute(program: &[Op], slots: &mut Vec<f64>) {
    for op in program {
        let result = match op {
            Op::Round { operand, .. } => slots[*operand],
            Op::Pointwise { mode, parameters, operands } => {
                let operands: Vec<f64> = operands.iter().map(|slot| slots[*slot]).collect();
                defined(*mode, parameters, &operands)
            }
        };
        slots.push(result);
    }
}

/// Runs a kernel over groups: group by group, pass by pass.
fn groups(dispatch: &KernelDispatch, memory: &mut HashMap<Value, Vec<f64>>) {
    let kernel = &dispatch.kernel;
    for group in indices(&kernel.groups) {
        // A scalar has a number for each place in the passes where it stands.
        let mut scalars = dispatch.scalars.iter().map(|number| match number {
            Number::Known(number) => *number,
            Number::Host(uid, _) => memory[&Value::Tensor(*uid)][0],
        });
        let mut left: Vec<f64> = Vec::new();
        let mut written: Vec<(Value, i64, f64)> = Vec::new();
        for pass in &kernel.passes {
            let (inputs, program) = match pass {
                Pass::Reduce { inputs, program, .. }
                | Pass::PerGroup { inputs, program, .. }
                | Pass::PerMember { inputs, program, .. } => (inputs, program),
            };
            let numbers: Vec<f64> =
                inputs.iter().filter(|i| matches!(i, Input::Scalar(_))).map(|_| scalars.next().unwrap()).collect();
            let slots_of = |index: &[usize]| {
                let mut numbers = numbers.iter();
                let mut slots = left.clone();
                slots.extend(inputs.iter().map(|input| match input {
                    Input::Tensor { tensor, access, pad_value } => match place(access, index) {
                        Some(place) => memory[&dispatch.reads[*tensor]][usize::try_from(place).unwrap()],
                        None => *pad_value,
                    },
                    Input::InBounds(access) => f64::from(u8::from(place(access, index).is_some())),
                    Input::Index { axis } => index[*axis] as f64,
                    Input::Scalar(_) => *numbers.next().unwrap(),
                    Input::Literal(number) => *number,
                }));
                compute(program, &mut slots);
                slots
            };
            let members = || indices(&kernel.members).map(|member| [&group[..], &member].concat());
            let mut store = |stores: &[Store], index: &[usize], slots: &[f64]| {
                for store in stores {
                    let place = place(&store.access, index).unwrap();
                    written.push((dispatch.writes[store.tensor], place, slots[store.slot]));
                }
            };
            match pass {
                Pass::Reduce { folds, .. } => {
                    let all: Vec<Vec<f64>> = members().map(|index| slots_of(&index)).collect();
                    for fold in folds {
                        let values = all.iter().map(|slots| slots[fold.slot]);
                        match fold.mode {
                            ReduceOp::Sum => left.push(values.sum()),
                            ReduceOp::Product => left.push(values.product()),
                            ReduceOp::Min => left.push(values.fold(f64::INFINITY, f64::min)),
                            ReduceOp::Max => left.push(values.fold(f64::NEG_INFINITY, f64::max)),
                            ReduceOp::ArgMax { at } => {
                                let better = |a: &Vec<f64>, b: &Vec<f64>| a[fold.slot] >= b[fold.slot];
                                let best = all.iter().reduce(|a, b| if better(a, b) { a } else { b }).unwrap();
                                left.extend([best[fold.slot], best[at]]);
                            }
                        }
                    }
                }
                Pass::PerGroup { keep, stores, .. } => {
                    let index: Vec<usize> = group.iter().copied().chain(kernel.members.iter().map(|_| 0)).collect();
                    let slots = slots_of(&index);
                    store(stores, &index, &slots);
                    left.extend(keep.iter().map(|slot| slots[*slot]));
                }
                Pass::PerMember { stores, .. } => {
                    for index in members() {
                        store(stores, &index, &slots_of(&index));
                    }
                }
            }
        }
        for (value, place, number) in written {
            memory.get_mut(&value).unwrap()[usize::try_from(place).unwrap()] = number;
        }
    }
}

/// Offset of an access, unless it leaves the tensor.
fn place(access: &Access, index: &[usize]) -> Option<i64> {
    assert_eq!(access.strides.len(), index.len());
    let mut place = access.offset + at(index, &access.strides);
    for bound in &access.bounds {
        let line = bound.offset + at(index, &bound.steps);
        let divisor = bound.divisor as i64;
        if line < 0 || line % divisor != 0 || line / divisor >= bound.extent as i64 {
            return None;
        }
        place += line / divisor * bound.stride;
    }
    Some(place)
}
