//! Pairs of folds that can be taken of parts of a group: the mean and sums of differences from it, the greatest member
//! and sums of powers of differences from it.
//!
//! A part is folded from its own mean or greatest member, which are known once it was read. What it comes to from that
//! of the whole group follows: of `n` members of a part, the sum `r` of their differences from a pivot `p` (from their mean,
//! what the rounding of it leaves) and the sum `q` of the squares, the differences from another number `p - d` sum up to
//! `n d + r`, and their squares to `q + d (2 r + n d)` (Chan, Golub and LeVeque). Powers `e^(x - g)` become `e^(x - h)`
//! by the factor `e^(g - h)`.
//!
//! Shifted data: any pivot will do, and a member of the part is known before the part was read, so that one pass gives both
//! sums. If it lies `k` standard deviations from the mean of the group, the squares are off by about `k²` roundings; over all
//! members `k²` is 1 on average, and at most their number.

use hipdnn_schemas::PointwiseMode;

use super::build::{Body, Value};
use crate::emit::Op;
use crate::emit::grouped::ReduceOp;
use crate::ir::group::{GroupKernel, Input, Pass};

/// What members are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Mean,
    Greatest,
}

/// What is summed over the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// Difference from the mean.
    Difference,
    /// Its square.
    Square,
    /// Power of the difference from the greatest member.
    Power,
}

/// Two folds, of which the second one is of differences from what the first one comes to.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) reference: Reference,
    /// Number, among all values that are left behind, of that from which differences are taken.
    pub(super) from: usize,
    /// Index of the second fold's pass.
    pub(super) second: usize,
    /// Terms that it sums, in order.
    pub(super) terms: Vec<Term>,
    /// Slot of the difference there.
    difference: usize,
}

impl Pair {
    /// Pair whose first fold is that pass of a kernel.
    pub(super) fn of(kernel: &GroupKernel, first: usize) -> Option<Pair> {
        let Pass::Reduce { folds, .. } = &kernel.passes[first] else { return None };
        let [fold] = &folds[..] else { return None };
        let left: usize = kernel.passes[..first].iter().map(Pass::leaves).sum();
        let once = kernel.passes.get(first + 1).filter(|pass| matches!(pass, Pass::PerGroup { .. }));
        let reference = match fold.mode {
            ReduceOp::Max => Reference::Greatest,
            ReduceOp::Sum => Reference::Mean,
            _ => return None,
        };
        let members = kernel.members.iter().product();
        let second = first + 1 + usize::from(once.is_some());
        let Pass::Reduce { folds: later, .. } = kernel.passes.get(second)? else { return None };
        let (before, behind) = (Program::of(kernel, first), Program::of(kernel, second));
        // What is subtracted, where a slot is the difference.
        let subtracted = |slot: usize| match behind.operation(slot) {
            Some((PointwiseMode::Sub, [a, b])) if before.is_same(fold.slot, &behind, *a) => Some(*b),
            _ => None,
        };
        let is_reference = |slot: usize| match reference {
            Reference::Greatest => {
                slot == left || once.is_some_and(|once| is_kept(once, left, slot, |kept| kept == left))
            }
            Reference::Mean => {
                once.is_some_and(|once| is_kept(once, left, slot, |kept| is_mean(once, left, kept, members)))
            }
        };
        let mut difference = None;
        let mut from = None;
        let mut terms = Vec::new();
        for fold in later {
            let (term, of) = match (reference, behind.operation(fold.slot)) {
                (Reference::Mean, Some((PointwiseMode::Mul, [a, b]))) if a == b => (Term::Square, *a),
                (Reference::Mean, _) => (Term::Difference, fold.slot),
                (Reference::Greatest, Some((PointwiseMode::Exp, [a]))) => (Term::Power, *a),
                (Reference::Greatest, _) => return None,
            };
            let one = subtracted(of).filter(|slot| is_reference(*slot))?;
            if fold.mode != ReduceOp::Sum || *from.get_or_insert(one) != one {
                return None;
            }
            terms.push(term);
            difference = Some(of);
        }
        Some(Pair { reference, from: from?, second, terms, difference: difference? })
    }

    /// Slot in the second pass that parts sum beside its folds: differences from a mean.
    pub(super) fn rest(&self) -> Option<usize> {
        (self.reference == Reference::Mean && !self.terms.contains(&Term::Difference)).then_some(self.difference)
    }
}

/// True if a slot is a value that a scalar pass behind a fold leaves behind, and the slot there is such as asked for. `left`
/// is the number of values that passes before the fold leave behind: what the fold comes to has that slot.
fn is_kept(once: &Pass, left: usize, slot: usize, is_it: impl Fn(usize) -> bool) -> bool {
    let Pass::PerGroup { keep, .. } = once else { return false };
    slot.checked_sub(left + 1).and_then(|which| keep.get(which)).is_some_and(|kept| is_it(*kept))
}

/// True if a slot of a scalar pass is the sum that a fold of so many members comes to, divided by their number.
fn is_mean(once: &Pass, left: usize, slot: usize, members: usize) -> bool {
    let inputs = once.inputs();
    let is_count =
        |slot: usize| slot.checked_sub(left + 1).and_then(|i| inputs.get(i)) == Some(&Input::Number(members as f64));
    match slot.checked_sub(left + 1 + inputs.len()).and_then(|i| once.program().get(i)) {
        Some(Op::Pointwise { mode: PointwiseMode::Div, operands, .. }) => operands[0] == left && is_count(operands[1]),
        _ => false,
    }
}

/// Slots of a pass.
struct Program<'a> {
    pass: &'a Pass,
    /// Number of values that passes before have left behind.
    left: usize,
    /// Extents of all loops.
    loops: Vec<usize>,
}

impl Program<'_> {
    fn of(kernel: &GroupKernel, pass: usize) -> Program<'_> {
        let left = kernel.passes[..pass].iter().map(Pass::leaves).sum();
        Program { pass: &kernel.passes[pass], left, loops: [&kernel.groups[..], &kernel.members].concat() }
    }

    /// Input without the steps along loops that have one.
    fn input(&self, slot: usize) -> Input {
        let mut input = self.pass.inputs()[slot - self.left].clone();
        if let Input::Element { at, .. } | Input::InBounds { at, .. } = &mut input {
            *at = at.iter().map(|line| line.plain(&self.loops)).collect();
        }
        input
    }

    fn op(&self, slot: usize) -> Option<&Op> {
        self.pass.program().get(slot.checked_sub(self.left + self.pass.inputs().len())?)
    }

    fn operation(&self, slot: usize) -> Option<(PointwiseMode, &[usize])> {
        match self.op(slot)? {
            Op::Pointwise { mode, operands, .. } => Some((*mode, operands)),
            Op::Round { .. } => None,
        }
    }

    /// True if a slot has the value that another one has in a later pass.
    fn is_same(&self, slot: usize, later: &Program<'_>, other: usize) -> bool {
        match (self.op(slot), later.op(other)) {
            (Some(op), Some(of)) => {
                let places = |op: &Op| op.relocated(|_| 0);
                let operands = op.operands().iter().zip(of.operands());
                places(op) == places(of) && operands.into_iter().all(|(a, b)| self.is_same(*a, later, *b))
            }
            (None, None) if slot < self.left => slot == other,
            (None, None) => other >= later.left && self.input(slot) == later.input(other),
            _ => false,
        }
    }
}

/// Pivot of a part: the number that its differences are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pivot {
    /// The part's own mean.
    Mean,
    /// Its first member, or 0 if that is no number or too large.
    Member,
    /// Its greatest member.
    Greatest,
}

/// Pair of folds by way of parts: what parts come to from pivots of their own, and how the whole group follows from that.
pub(super) struct PairOfParts {
    pub(super) pivot: Pivot,
    pub(super) terms: Vec<Term>,
    /// Number of members of a part.
    pub(super) members: f64,
}

/// Partial results of a part.
pub(super) struct Part {
    /// Its pivot.
    pub(super) own: Value,
    /// Sums of each term, and of differences from the pivot.
    pub(super) sums: Vec<Value>,
}

impl PairOfParts {
    /// Contribution of a part to the first fold: a summand, or a candidate for the greatest member.
    pub(super) fn first(&self, body: &mut Body, part: &Part) -> Value {
        if self.pivot == Pivot::Greatest {
            return part.own;
        }
        let (members, mut rest) = (body.number(self.members), self.rest(part));
        if self.pivot == Pivot::Mean {
            // No difference from an infinite mean is a number.
            let (is_number, zero) = (body.op(PointwiseMode::CmpEq, &[rest, rest]), body.literal(0.0));
            rest = body.select(is_number, rest, zero);
        }
        let sum = body.mul(part.own, members);
        body.add(sum, rest)
    }

    /// Terms of a part, of which the second fold is the sum, for a reference of the whole group.
    pub(super) fn terms(&self, body: &mut Body, part: &Part, reference: Value) -> Vec<Value> {
        let away = body.sub(part.own, reference);
        let term = |(term, sum): (&Term, &Value)| match term {
            Term::Difference => {
                let members = body.number(self.members);
                let moved = body.mul(members, away);
                body.add(moved, *sum)
            }
            Term::Square => {
                let (members, rest) = (body.number(self.members), self.rest(part));
                let (moved, twice) = (body.mul(members, away), body.add(rest, rest));
                let factor = body.add(twice, moved);
                let more = body.mul(away, factor);
                body.add(*sum, more)
            }
            Term::Power => {
                // Parts of nothing but -∞ add nothing, unless there is nothing else.
                let (least, zero) = (body.literal(f64::NEG_INFINITY), body.literal(0.0));
                let factor = body.op(PointwiseMode::Exp, &[away]);
                let scaled = body.mul(*sum, factor);
                let is_least = body.op(PointwiseMode::CmpEq, &[part.own, least]);
                let scaled = body.select(is_least, zero, scaled);
                let is_own = body.op(PointwiseMode::CmpEq, &[part.own, reference]);
                body.select(is_own, *sum, scaled)
            }
        };
        self.terms.iter().zip(&part.sums).map(term).collect()
    }

    /// Sum of the differences from a part's pivot.
    fn rest(&self, part: &Part) -> Value {
        let which = self.terms.iter().position(|term| *term == Term::Difference).unwrap_or(self.terms.len());
        part.sums[which]
    }
}

#[cfg(test)]
pub(super) mod tests;
