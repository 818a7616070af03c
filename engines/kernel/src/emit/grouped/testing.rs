//! Reference kernels over groups in `f64`, samples of them, and random ones, for tests.

mod interpret;

use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::emit::testing::{Random, packed};

pub use interpret::evaluate;

/// Access of elements at `offset` and further along the loops.
pub fn at(offset: i64, strides: &[i64]) -> Access {
    Access { offset, strides: strides.to_vec(), bounds: Vec::new() }
}

/// Input of a tensor's elements, from its first on.
pub fn read(tensor: usize, strides: &[i64]) -> Input {
    Input::Tensor { tensor, access: at(0, strides), pad_value: 0.0 }
}

/// Store of a slot to a tensor, from its first element on.
pub fn store(slot: usize, tensor: usize, strides: &[i64]) -> Store {
    Store { slot, tensor, access: at(0, strides) }
}

/// Mappings of different kinds.
pub const MAPPINGS: [ThreadMap; 7] = [
    ThreadMap { side: 256, lanes: 1, lanes_first: false },
    ThreadMap { side: 64, lanes: 4, lanes_first: false },
    ThreadMap { side: 8, lanes: 32, lanes_first: false },
    ThreadMap { side: 8, lanes: 128, lanes_first: false },
    ThreadMap { side: 1, lanes: 256, lanes_first: true },
    ThreadMap { side: 16, lanes: 16, lanes_first: true },
    ThreadMap { side: 1, lanes: 1024, lanes_first: true },
];

/// Kernel of every fold at once of tensor 0, products of tensor 1, both of those strides; results go to six tensors.
/// The index of the maximum is made of the members' indices.
pub fn folds(groups: &[usize], members: &[usize], strides: &[i64], from: Element, to: Element) -> Grouped {
    let mut inputs = vec![read(0, strides), read(1, strides), Input::Literal(16.0), Input::Literal(0.0)];
    let mut program: Vec<Op> = Vec::new();
    let mut at = 3;
    for l in 0..members.len() {
        inputs.push(Input::Index { axis: groups.len() + l });
    }
    for l in 0..members.len() {
        // at · 16 + index
        let next = inputs.len() + program.len();
        program.push(Op::pointwise(PointwiseMode::Mul, &[at, 2]));
        program.push(Op::pointwise(PointwiseMode::Add, &[next, 4 + l]));
        at = next + 1;
    }
    let mode = |mode: ReduceOp, slot: usize| Fold { mode, slot };
    let folds = vec![
        mode(ReduceOp::Sum, 0),
        mode(ReduceOp::Product, 1),
        mode(ReduceOp::Min, 0),
        mode(ReduceOp::Max, 0),
        mode(ReduceOp::ArgMax { at }, 0),
    ];
    let loops = [packed(groups), vec![0; members.len()]].concat();
    let stores = (0..6).map(|k| store(k, k, &loops)).collect();
    Grouped {
        groups: groups.to_vec(),
        members: members.to_vec(),
        reads: vec![from; 2],
        writes: vec![to; 6],
        passes: vec![
            Pass::Reduce { inputs, program, folds },
            Pass::PerGroup { inputs: vec![], program: vec![], keep: vec![], stores },
        ],
    }
}

/// Operation of a mode, with the default scalars.
pub fn op(mode: PointwiseMode, operands: &[usize]) -> Op {
    Op::pointwise(mode, operands)
}

/// Softmax, exp(x - max) / Σ exp(x - max), from tensor 0 to tensor 0.
pub fn softmax(groups: &[usize], members: &[usize], strides: &[i64], element: Element) -> Grouped {
    use PointwiseMode::{Div, Exp, Sub};
    let shifted = vec![op(Sub, &[1, 0]), op(Exp, &[2])];
    Grouped {
        groups: groups.to_vec(),
        members: members.to_vec(),
        reads: vec![element],
        writes: vec![element],
        passes: vec![
            Pass::Reduce {
                inputs: vec![read(0, strides)],
                program: vec![],
                folds: vec![Fold { mode: ReduceOp::Max, slot: 0 }],
            },
            Pass::Reduce {
                inputs: vec![read(0, strides)],
                program: shifted,
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 3 }],
            },
            Pass::PerMember {
                inputs: vec![read(0, strides)],
                program: vec![op(Sub, &[2, 0]), op(Exp, &[3]), op(Div, &[4, 1])],
                stores: vec![store(5, 0, strides)],
            },
        ],
    }
}

/// Layer norm of tensor 0 with scale and bias of each member in tensors 1 and 2, and ε an argument; to tensor 0, mean
/// and 1/√(variance + ε) to 1 and 2.
pub fn layer_norm(groups: &[usize], members: &[usize], strides: &[i64], element: Element) -> Grouped {
    use PointwiseMode::{Add, Div, Mul, Rsqrt, Sub};
    let count = members.iter().product::<usize>() as f64;
    let affine = [vec![0; groups.len()], packed(members)].concat();
    let statistics = [packed(groups), vec![0; members.len()]].concat();
    Grouped {
        groups: groups.to_vec(),
        members: members.to_vec(),
        reads: vec![element, Element::F32, Element::F32],
        writes: vec![element, Element::F32, Element::F32],
        passes: vec![
            Pass::Reduce {
                inputs: vec![read(0, strides)],
                program: vec![],
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 0 }],
            },
            // 1: mean
            Pass::PerGroup {
                inputs: vec![Input::Literal(count)],
                program: vec![op(Div, &[0, 1])],
                keep: vec![2],
                stores: vec![store(2, 1, &statistics)],
            },
            // 2: Σ (x - mean)²
            Pass::Reduce {
                inputs: vec![read(0, strides)],
                program: vec![op(Sub, &[2, 1]), op(Mul, &[3, 3])],
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 4 }],
            },
            // 3: 1/√(variance + ε)
            Pass::PerGroup {
                inputs: vec![Input::Literal(count), Input::Scalar(1e-3)],
                program: vec![op(Div, &[2, 3]), op(Add, &[5, 4]), op(Rsqrt, &[6])],
                keep: vec![7],
                stores: vec![store(7, 2, &statistics)],
            },
            Pass::PerMember {
                inputs: vec![read(0, strides), read(1, &affine), read(2, &affine)],
                program: vec![op(Sub, &[4, 1]), op(Mul, &[7, 3]), op(Mul, &[8, 5]), op(Add, &[9, 6])],
                stores: vec![store(10, 0, strides)],
            },
        ],
    }
}

/// Pooled dimension, in which window element `k` of output `o` is at `o · stride + k - pad`.
pub struct Window {
    /// Extent of the image.
    pub extent: usize,
    /// Extent of a window.
    pub window: usize,
    /// Stride of windows.
    pub stride: i64,
    /// Padding in front.
    pub pad: i64,
}

impl Window {
    /// Number of windows.
    pub fn outputs(&self) -> usize {
        (self.extent + 2 * self.pad as usize - self.window) / self.stride as usize + 1
    }
}

/// Average and maximum pooling, with the index of the maximum in the image, over the windows of `[2, 3, h, w]`, or channels last
/// `[2, 4, h, w]`: groups over outputs, members over window elements. Padding is left out of the average.
pub fn pooling(h: &Window, w: &Window, channels_last: bool, element: Element) -> Grouped {
    let channels = if channels_last { 4 } else { 3 };
    let groups = [2, channels as usize, h.outputs(), w.outputs()];
    let strides = |h: i64, w: i64| match channels_last {
        true => [h * w * channels, 1, w * channels, channels],
        false => [h * w * channels, h * w, w, 1],
    };
    let (image, output) = (strides(h.extent as i64, w.extent as i64), strides(groups[2] as i64, groups[3] as i64));
    let bound = |at: usize, window: &Window, stride: i64| {
        let mut steps = vec![0; 6];
        (steps[2 + at], steps[4 + at]) = (window.stride, 1);
        Bound { offset: -window.pad, steps, divisor: 1, extent: window.extent as u64, stride }
    };
    let access = |strides: [i64; 4]| Access {
        offset: 0,
        strides: vec![strides[0], strides[1], 0, 0, 0, 0],
        bounds: vec![bound(0, h, strides[2]), bound(1, w, strides[3])],
    };
    let tensor = |pad_value| Input::Tensor { tensor: 0, access: access(image), pad_value };
    let literal = |value: usize| Input::Literal(value as f64);
    let axis = |axis| Input::Index { axis };
    let inputs = vec![
        tensor(0.0),
        tensor(f64::NEG_INFINITY),
        Input::InBounds(access([0; 4])),
        axis(2),
        axis(3),
        axis(4),
        axis(5),
        literal(h.stride as usize),
        literal(w.stride as usize),
        literal(h.pad as usize),
        literal(w.pad as usize),
        literal(w.extent),
    ];
    use PointwiseMode::{Add, Mul, Sub};
    // (oh · sh + kh - ph) · w + ow · sw + kw - pw
    let program = [
        (Mul, 3, 7),
        (Add, 12, 5),
        (Sub, 13, 9),
        (Mul, 14, 11),
        (Mul, 4, 8),
        (Add, 16, 6),
        (Sub, 17, 10),
        (Add, 15, 18),
    ];
    let folds = [(ReduceOp::Sum, 0), (ReduceOp::ArgMax { at: 19 }, 1), (ReduceOp::Sum, 2)];
    let output = [&output[..], &[0, 0]].concat();
    Grouped {
        groups: groups.to_vec(),
        members: vec![h.window, w.window],
        reads: vec![element],
        writes: vec![element, element, Element::I32],
        passes: vec![
            Pass::Reduce {
                inputs,
                program: program.iter().map(|(mode, a, b)| Op::pointwise(*mode, &[*a, *b])).collect(),
                folds: folds.map(|(mode, slot)| Fold { mode, slot }).to_vec(),
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![Op::pointwise(PointwiseMode::Div, &[0, 3])],
                keep: vec![],
                stores: vec![store(4, 0, &output), store(1, 1, &output), store(2, 2, &output)],
            },
        ],
    }
}

/// Number of elements of every input tensor: more than any access reaches.
pub const LEN: usize = 6000;

impl Random {
    /// Draws an access of loops of these extents: in any order, backwards, repeating, and leaving the tensor.
    pub fn access(&mut self, extents: &[usize], groups: usize) -> Access {
        let mut strides = self.strides(extents);
        let mut offset = self.below(4) as i64;
        let mut bounds = Vec::new();
        for l in 0..extents.len() {
            if self.one_in(6) {
                strides[l] = 0;
            } else if self.one_in(6) {
                offset += strides[l] * (extents[l] as i64 - 1);
                strides[l] = -strides[l];
            }
        }
        if groups > 0 && groups < extents.len() && self.one_in(3) {
            // A window: its dimension lies beyond all others.
            let (outer, inner) = (self.below(groups), groups + self.below(extents.len() - groups));
            let mut steps = vec![0; extents.len()];
            (steps[outer], steps[inner]) = (self.of(&[1, 2, -1]), self.of(&[1, -1, 2]));
            (strides[outer], strides[inner]) = (0, 0);
            bounds.push(Bound {
                offset: self.below(7) as i64 - 2,
                steps,
                divisor: self.of(&[1, 1, 2, 3]),
                extent: 1 + self.below(6) as u64,
                stride: self.of(&[1, 300, 0]),
            });
        }
        Access { offset, strides, bounds }
    }

    /// Draws inputs, a program over them and over left-behind values, and the slots that are small integers.
    pub fn program(&mut self, work: &Grouped, kept: usize, members: bool) -> (Vec<Input>, Vec<Op>, Vec<usize>) {
        let (extents, groups) = ([&work.groups[..], &work.members].concat(), work.groups.len());
        let mut inputs = vec![Input::Literal(9.0), Input::Literal(-9.0)];
        for _ in 0..1 + self.below(3) {
            let (tensor, access) = (self.below(work.reads.len()), self.access(&extents, groups));
            inputs.push(match self.below(6) {
                0 => Input::InBounds(access),
                1 => Input::Scalar(self.below(5) as f64),
                2 if !extents.is_empty() && (members || groups > 0) => {
                    Input::Index { axis: self.below(if members { extents.len() } else { groups }) }
                }
                _ => Input::Tensor { tensor, access, pad_value: self.below(9) as f64 - 4.0 },
            });
        }
        let (mut program, mut slots): (Vec<Op>, Vec<usize>) = (Vec::new(), (kept..kept + inputs.len()).collect());
        let clamp = |program: &mut Vec<Op>, slots: &mut Vec<usize>, slot: usize| {
            let next = kept + inputs.len() + program.len();
            program.push(op(PointwiseMode::Min, &[slot, kept]));
            program.push(op(PointwiseMode::Max, &[next, kept + 1]));
            slots.push(next + 1);
        };
        for slot in 0..kept {
            clamp(&mut program, &mut slots, slot);
        }
        for _ in 0..self.below(4) {
            use PointwiseMode::{Abs, Add, Max, Min, Mul, Neg, Sub};
            let mode = self.of(&[Abs, Add, Max, Min, Mul, Neg, Sub]);
            let operands: Vec<usize> = (0..mode.operands()).map(|_| self.of(&slots)).collect();
            let slot = kept + inputs.len() + program.len();
            program.push(op(mode, &operands));
            clamp(&mut program, &mut slots, slot);
        }
        (inputs, program, slots)
    }

    /// Draws a store of a slot to a packed tensor of its own, in any order.
    pub fn target(&mut self, work: &mut Grouped, slot: usize, members: bool) -> Store {
        let mut extents = work.groups.clone();
        extents.extend(work.members.iter().map(|extent| if members { *extent } else { 1 }));
        work.writes.push(self.of(&[Element::F32, Element::I32, Element::F64]));
        Store { slot, tensor: work.writes.len() - 1, access: at(0, &self.strides(&extents)) }
    }

    /// Draws a kernel over groups.
    pub fn grouped(&mut self) -> Grouped {
        let mut extents = |most: usize| -> Vec<usize> { (0..self.below(4)).map(|_| 1 + self.below(most)).collect() };
        let (mut groups, mut members) = (extents(5), extents(4));
        if let Some(inner) = members.last_mut()
            && self.one_in(2)
        {
            *inner = 20 + self.below(20);
        }
        if let Some(inner) = groups.last_mut()
            && self.one_in(3)
        {
            *inner = 8;
        }
        while groups.iter().chain(&members).product::<usize>() > 2500 {
            *groups.iter_mut().chain(&mut members).max().expect("there are loops") /= 2;
        }
        let types = [Element::F32, Element::F16, Element::I8, Element::I32, Element::BF16];
        let reads = (0..1 + self.below(2)).map(|_| self.of(&types)).collect();
        let mut work = Grouped { groups, members, reads, writes: vec![], passes: vec![] };
        let mut kept = 0;
        for p in 0..2 + self.below(3) {
            let kind = if p == 0 { 0 } else { self.below(3) };
            let (inputs, program, slots) = self.program(&work, kept, kind != 1);
            let slot = self.of(&slots);
            let pass = match kind {
                0 => {
                    let modes = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max];
                    let mut folds = Vec::new();
                    for _ in 0..1 + self.below(2) {
                        let mode = match self.below(4) {
                            3 => ReduceOp::ArgMax { at: self.of(&slots) },
                            m => modes[m].clone(),
                        };
                        folds.push(Fold { mode, slot: self.of(&slots) });
                    }
                    Pass::Reduce { inputs, program, folds }
                }
                1 => {
                    let keep = (0..self.below(3)).map(|_| self.of(&slots)).collect();
                    Pass::PerGroup { inputs, program, keep, stores: vec![self.target(&mut work, slot, false)] }
                }
                _ => Pass::PerMember { inputs, program, stores: vec![self.target(&mut work, slot, true)] },
            };
            work.passes.push(pass);
            kept += work.passes[p].parts().leaves();
        }
        // What is left behind last can be seen.
        let stores = (0..kept).map(|slot| self.target(&mut work, slot, false)).collect();
        work.passes.push(Pass::PerGroup { inputs: vec![], program: vec![], keep: vec![], stores });
        work
    }
}
