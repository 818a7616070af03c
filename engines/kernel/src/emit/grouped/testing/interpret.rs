//! Reference interpreter of kernels over groups, in `f64`.

use crate::emit::grouped::*;
use crate::emit::testing::{defined, rounded};

/// Indices of all elements of some loops, in order.
fn indices(extents: &[usize]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for extent in extents {
        all = all.iter().flat_map(|index| (0..*extent as i64).map(move |i| [&index[..], &[i]].concat())).collect();
    }
    all
}

/// Offset of an element, by the definition; `None` outside.
fn place(access: &Access, index: &[i64]) -> Option<i64> {
    let along = |steps: &[i64]| index.iter().zip(steps).map(|(i, step)| i * step).sum::<i64>();
    let mut at = access.offset + along(&access.strides);
    for bound in &access.bounds {
        let (i, divisor) = (bound.offset + along(&bound.steps), bound.divisor as i64);
        if i < 0 || i % divisor != 0 || i / divisor >= bound.extent as i64 {
            return None;
        }
        at += i / divisor * bound.stride;
    }
    Some(at)
}

/// Runs a program for an index; returns its slots.
fn run(
    kept: &[f64],
    parts: &check::Parts<'_>,
    index: &[i64],
    reads: &[Vec<f64>],
    scalars: &mut impl Iterator<Item = f64>,
) -> Vec<f64> {
    let mut slots = kept.to_vec();
    for input in parts.inputs {
        slots.push(match input {
            Input::Literal(value) => *value,
            Input::Scalar(value) => scalars.next().unwrap_or(*value),
            Input::Index { axis } => index[*axis] as f64,
            Input::InBounds(access) => f64::from(u8::from(place(access, index).is_some())),
            Input::Tensor { tensor, access, pad_value } => {
                place(access, index).map_or(*pad_value, |at| reads[*tensor][at as usize])
            }
        });
    }
    for op in parts.program {
        slots.push(match op {
            Op::Round { to, operand } => rounded(*to, slots[*operand]),
            Op::Pointwise { mode, parameters, operands } => {
                let operands: Vec<f64> = operands.iter().map(|slot| slots[*slot]).collect();
                defined(*mode, parameters, &operands)
            }
        });
    }
    slots
}

/// Values that a fold leaves behind, of the slots of all members in order.
fn fold(fold: &Fold, members: &[Vec<f64>]) -> Vec<f64> {
    let values = || members.iter().map(|slots| slots[fold.slot]);
    let pick = |better: fn(f64, f64) -> bool, none: f64| {
        values().fold(none, |a, b| if a.is_nan() || (!b.is_nan() && !better(b, a)) { a } else { b })
    };
    match fold.mode {
        ReduceOp::Sum => vec![values().sum()],
        ReduceOp::Product => vec![values().product()],
        ReduceOp::Min => vec![pick(|b, a| b < a, f64::INFINITY)],
        ReduceOp::Max => vec![pick(|b, a| b > a, f64::NEG_INFINITY)],
        ReduceOp::ArgMax { at } => {
            let greatest = pick(|b, a| b > a, f64::NEG_INFINITY);
            let same = |v: f64| v == greatest || (v.is_nan() && greatest.is_nan());
            let first = members.iter().find(|slots| same(slots[fold.slot]));
            vec![greatest, first.map_or(-1.0, |slots| slots[at])]
        }
    }
}

/// Expected contents of the output buffers, whose values are `writes` before: all steps by their definition, in `f64`.
pub fn evaluate(work: &Grouped, reads: &[Vec<f64>], writes: &[Vec<f64>], scalars: &[f64]) -> Vec<Vec<f64>> {
    let mut writes = writes.to_vec();
    for group in indices(&work.groups) {
        let mut kept: Vec<f64> = Vec::new();
        let mut rest = scalars;
        for pass in &work.passes {
            let parts = pass.parts();
            let count = parts.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count();
            let (own, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            let members = if parts.members { indices(&work.members) } else { vec![vec![0; work.members.len()]] };
            let slots: Vec<Vec<f64>> = members
                .iter()
                .map(|member| run(&kept, &parts, &[&group[..], member].concat(), reads, &mut own.iter().copied()))
                .collect();
            for (member, slots) in members.iter().zip(&slots) {
                let index = [&group[..], member].concat();
                for store in parts.stores {
                    let at = place(&store.access, &index).unwrap();
                    writes[store.tensor][at as usize] = slots[store.slot];
                }
            }
            kept.extend(parts.folds.iter().flat_map(|one| fold(one, &slots)));
            kept.extend(parts.keep.iter().map(|slot| slots[0][*slot]));
        }
    }
    writes
}
