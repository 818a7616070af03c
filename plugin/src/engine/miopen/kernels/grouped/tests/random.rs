//! Random work over groups.

use super::*;
use crate::engine::miopen::kernels::tests::Random;

/// Elements of every tensor that is read: more than any access reaches.
const LEN: usize = 6000;

impl Random {
    /// An access of loops of these extents: in any order, backwards, repeating, and leaving the tensor.
    fn access(&mut self, extents: &[usize], groups: usize) -> Access {
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

    /// Inputs, a program over them and what was left behind, and the slots that are small whole numbers.
    fn program(&mut self, work: &Grouped, kept: usize, members: bool) -> (Vec<Input>, Vec<Op>, Vec<usize>) {
        let (extents, groups) = ([&work.groups[..], &work.members].concat(), work.groups.len());
        let mut inputs = vec![Input::Literal(9.0), Input::Literal(-9.0)];
        for _ in 0..1 + self.below(3) {
            let (tensor, access) = (self.below(work.reads.len()), self.access(&extents, groups));
            inputs.push(match self.below(6) {
                0 => Input::Inside(access),
                1 => Input::Scalar(self.below(5) as f64),
                2 if !extents.is_empty() && (members || groups > 0) => {
                    Input::Index { axis: self.below(if members { extents.len() } else { groups }) }
                }
                _ => Input::Tensor { tensor, access, outside: self.below(9) as f64 - 4.0 },
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

    /// A packed tensor of its own, in any order, that a slot is written to.
    fn target(&mut self, work: &mut Grouped, slot: usize, members: bool) -> Store {
        let mut extents = work.groups.clone();
        extents.extend(work.members.iter().map(|extent| if members { *extent } else { 1 }));
        work.writes.push(self.of(&[Element::F32, Element::I32, Element::F64]));
        Store { slot, tensor: work.writes.len() - 1, access: at(0, &self.strides(&extents)) }
    }

    fn grouped(&mut self) -> Grouped {
        let mut extents = |most: usize| -> Vec<usize> { (0..self.below(4)).map(|_| 1 + self.below(most)).collect() };
        let (mut groups, mut members) = (extents(5), extents(4));
        if let Some(inner) = members.last_mut()
            && self.one_in(2)
        {
            *inner = 20 + self.below(20);
        }
        while groups.iter().chain(&members).product::<usize>() > 2500 {
            *groups.iter_mut().chain(&mut members).max().expect("there are loops") /= 2;
        }
        let types = [Element::F32, Element::F16, Element::I8, Element::I32, Element::BF16];
        let reads = (0..1 + self.below(2)).map(|_| self.of(&types)).collect();
        let mut work = Grouped { groups, members, reads, writes: vec![], phases: vec![] };
        let mut kept = 0;
        for p in 0..2 + self.below(3) {
            let kind = if p == 0 { 0 } else { self.below(3) };
            let (inputs, program, slots) = self.program(&work, kept, kind != 1);
            let slot = self.of(&slots);
            let phase = match kind {
                0 => {
                    let modes = [FoldMode::Sum, FoldMode::Least, FoldMode::Greatest];
                    let mut folds = Vec::new();
                    for _ in 0..1 + self.below(2) {
                        let mode = match self.below(4) {
                            3 => FoldMode::FirstGreatest { at: self.of(&slots) },
                            m => modes[m].clone(),
                        };
                        folds.push(Fold { mode, slot: self.of(&slots) });
                    }
                    Phase::Fold { inputs, program, folds }
                }
                1 => {
                    let keep = (0..self.below(3)).map(|_| self.of(&slots)).collect();
                    Phase::Once { inputs, program, keep, stores: vec![self.target(&mut work, slot, false)] }
                }
                _ => Phase::Each { inputs, program, stores: vec![self.target(&mut work, slot, true)] },
            };
            work.phases.push(phase);
            kept += work.phases[p].parts().leaves();
        }
        // What is left behind last can be seen.
        let stores = (0..kept).map(|slot| self.target(&mut work, slot, false)).collect();
        work.phases.push(Phase::Once { inputs: vec![], program: vec![], keep: vec![], stores });
        work
    }
}

#[test]
fn random_work_computes_its_definition() {
    let Some(bench) = bench("random_work_computes_its_definition") else { return };
    let count = std::env::var("HIPDNN_RS_RANDOM_KERNELS").map_or(12, |count| count.parse().unwrap());
    for seed in 0..count {
        let work = Random(seed).grouped();
        let reads: Vec<_> = (0..work.reads.len()).map(|t| small(LEN, t)).collect();
        let lens = vec![LEN; work.writes.len()];
        check(&bench, &format!("seed {seed}: {work:?}"), &work, &several(seed as usize), &reads, &lens, EXACT);
    }
}
