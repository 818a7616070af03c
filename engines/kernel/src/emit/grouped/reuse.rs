//! A value that a pass computes of each member to fold it, and that the last pass computes again: where lanes keep
//! members in registers, they keep this value too.

use hipdnn_schemas::PointwiseMode;

use super::check::Parts;
use super::{Grouped, Input, Pass, Store};
use crate::emit::program::Op;

/// Value of members that two passes compute. Slots are numbered as the passes number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reuse {
    /// Pass that folds, and the slot of the value.
    pub(super) from: (usize, usize),
    /// Pass that writes members, and the slot of the value.
    pub(super) to: (usize, usize),
}

/// Pass that gets the value instead of computing it: inputs, operations and stores that are left, where the value is an
/// input behind the others.
pub(super) struct Shortened<'a> {
    pub(super) inputs: Vec<&'a Input>,
    pub(super) program: Vec<Op>,
    pub(super) stores: Vec<Store>,
}

impl Reuse {
    /// The last value of the kind, if there is one that takes more than a few additions or multiplications.
    pub(super) fn of(work: &Grouped) -> Option<Reuse> {
        let to = work.passes.iter().rposition(|pass| matches!(pass, Pass::PerMember { .. }))?;
        let later = Slots::of(work, to);
        let folded = (0..to).filter(|pass| matches!(work.passes[*pass], Pass::Reduce { .. }));
        let folded: Vec<_> = folded.map(|pass| (pass, Slots::of(work, pass))).collect();
        later.operations().rev().filter(|slot| later.is_costly(*slot)).find_map(|slot| {
            folded.iter().find_map(|(pass, earlier)| {
                let from = earlier.operations().find(|other| earlier.is_same(*other, &later, slot))?;
                Some(Reuse { from: (*pass, from), to: (to, slot) })
            })
        })
    }

    /// The pass that writes members, whose first input has the slot `kept`, without what only the value needed.
    pub(super) fn shortened<'a>(&self, parts: &Parts<'a>, kept: usize) -> Shortened<'a> {
        let first = kept + parts.inputs.len();
        let mut live = vec![false; first + parts.program.len()];
        parts.stores.iter().for_each(|store| live[store.slot] = true);
        for (i, op) in parts.program.iter().enumerate().rev() {
            if live[first + i] && first + i != self.to.1 {
                op.operands().iter().for_each(|operand| live[*operand] = true);
            }
        }
        // Scalars are replaced by their number among all.
        let is_left = |i: &usize| live[kept + i] || matches!(parts.inputs[*i], Input::Scalar(_));
        let inputs: Vec<usize> = (0..parts.inputs.len()).filter(is_left).collect();
        let ops: Vec<usize> = (0..parts.program.len()).filter(|i| live[first + i] && first + i != self.to.1).collect();
        let value = kept + inputs.len();
        let moved = |slot: usize| {
            let place = |list: &[usize], which: usize| list.iter().position(|i| *i == which).expect("it is left");
            match slot {
                slot if slot == self.to.1 => value,
                slot if slot < kept => slot,
                slot if slot < first => kept + place(&inputs, slot - kept),
                slot => value + 1 + place(&ops, slot - first),
            }
        };
        Shortened {
            program: ops.iter().map(|i| parts.program[*i].relocated(moved)).collect(),
            stores: parts.stores.iter().map(|store| Store { slot: moved(store.slot), ..store.clone() }).collect(),
            inputs: inputs.iter().map(|i| &parts.inputs[*i]).collect(),
        }
    }
}

/// Slots of a pass.
struct Slots<'a> {
    parts: Parts<'a>,
    /// Number of values that passes before have left behind.
    kept: usize,
}

impl Slots<'_> {
    fn of(work: &Grouped, pass: usize) -> Slots<'_> {
        let kept = work.passes[..pass].iter().map(|pass| pass.parts().leaves()).sum();
        Slots { parts: work.passes[pass].parts(), kept }
    }

    /// Slots of operations.
    fn operations(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let first = self.kept + self.parts.inputs.len();
        first..first + self.parts.program.len()
    }

    fn op(&self, slot: usize) -> Option<&Op> {
        self.parts.program.get(slot.checked_sub(self.kept + self.parts.inputs.len())?)
    }

    /// True if a value takes a function that is more than a few instructions.
    fn is_costly(&self, slot: usize) -> bool {
        use PointwiseMode::*;
        let Some(op) = self.op(slot) else { return false };
        let is_function = match op {
            Op::Pointwise { mode, .. } => !matches!(
                mode,
                Abs | Add
                    | AddSquare
                    | BinarySelect
                    | Ceil
                    | CmpEq
                    | CmpGe
                    | CmpGt
                    | CmpLe
                    | CmpLt
                    | CmpNeq
                    | Floor
                    | Identity
                    | LogicalAnd
                    | LogicalNot
                    | LogicalOr
                    | Max
                    | Min
                    | Mul
                    | Neg
                    | ReluBwd
                    | ReluFwd
                    | Sub
            ),
            Op::Round { .. } => false,
        };
        // What comes later is refused where statements are written.
        is_function || op.operands().iter().any(|operand| *operand < slot && self.is_costly(*operand))
    }

    /// True if a slot has the value that another one has in a later pass.
    fn is_same(&self, slot: usize, later: &Slots<'_>, other: usize) -> bool {
        match (self.op(slot), later.op(other)) {
            (Some(op), Some(of)) => {
                let mut operands = op.operands().iter().zip(of.operands());
                op.relocated(|_| 0) == of.relocated(|_| 0)
                    && operands.all(|(a, b)| *a < slot && *b < other && self.is_same(*a, later, *b))
            }
            (None, None) if slot < self.kept => slot == other,
            (None, None) if other >= later.kept => {
                let (input, of) = (&self.parts.inputs[slot - self.kept], &later.parts.inputs[other - later.kept]);
                // Scalars of a launch may differ where those of the text are equal.
                input == of && !matches!(input, Input::Scalar(_))
            }
            _ => false,
        }
    }
}
