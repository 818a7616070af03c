//! Preconditions of code generation.

use hipdnn_engine_core::error::Error;

use super::{Access, Fold, Grouped, Input, Pass, ReduceOp, Store};
use crate::emit::program::Op;

/// Parts of a pass, whatever its kind.
pub(super) struct Parts<'a> {
    pub(super) inputs: &'a [Input],
    pub(super) program: &'a [Op],
    pub(super) folds: &'a [Fold],
    pub(super) keep: &'a [usize],
    pub(super) stores: &'a [Store],
    /// True if the program runs for every member.
    pub(super) members: bool,
}

impl Pass {
    pub(super) fn parts(&self) -> Parts<'_> {
        match self {
            Pass::Reduce { inputs, program, folds } => {
                Parts { inputs, program, folds, keep: &[], stores: &[], members: true }
            }
            Pass::PerGroup { inputs, program, keep, stores } => {
                Parts { inputs, program, folds: &[], keep, stores, members: false }
            }
            Pass::PerMember { inputs, program, stores } => {
                Parts { inputs, program, folds: &[], keep: &[], stores, members: true }
            }
        }
    }
}

impl Parts<'_> {
    /// Number of values that the pass leaves behind.
    pub(super) fn leaves(&self) -> usize {
        self.keep.len() + self.folds.iter().map(|fold| fold.mode.leaves()).sum::<usize>()
    }
}

impl ReduceOp {
    /// Number of values that it leaves behind.
    pub fn leaves(&self) -> usize {
        if matches!(self, ReduceOp::ArgMax { .. }) { 2 } else { 1 }
    }
}

/// Checks the preconditions of code generation.
pub(super) fn check(work: &Grouped) -> Result<(), Error> {
    if work.passes.is_empty() {
        return Err(Error::invalid_value("a kernel over groups has at least one pass"));
    }
    let mut kept = 0;
    for (p, pass) in work.passes.iter().enumerate() {
        let parts = pass.parts();
        check_phase(work, &parts, kept)
            .map_err(|text| Error::invalid_value(format!("pass {p} of a kernel over groups: {text}")))?;
        kept += parts.leaves();
    }
    Ok(())
}

fn check_phase(work: &Grouped, parts: &Parts<'_>, kept: usize) -> Result<(), String> {
    let (groups, loops) = (work.groups.len(), work.groups.len() + work.members.len());
    for (i, input) in parts.inputs.iter().enumerate() {
        match input {
            Input::Tensor { tensor, .. } if *tensor >= work.reads.len() => {
                return Err(format!("input {i}: expected a tensor below {}, got {tensor}", work.reads.len()));
            }
            Input::Tensor { access, .. } | Input::InBounds(access) => {
                check_access(access, loops).map_err(|text| format!("input {i} has {text}"))?;
            }
            Input::Index { axis } if *axis >= loops => {
                return Err(format!("input {i}: expected the index of a loop below {loops}, got {axis}"));
            }
            Input::Index { axis } if *axis >= groups && !parts.members => {
                return Err(format!("input {i} is the index of loop {axis}, but this runs once for all members"));
            }
            _ => {}
        }
    }
    let slots = kept + parts.inputs.len() + parts.program.len();
    let folded = parts.folds.iter().flat_map(|fold| match fold.mode {
        ReduceOp::ArgMax { at } => vec![fold.slot, at],
        _ => vec![fold.slot],
    });
    let stored = parts.stores.iter().map(|store| store.slot);
    if let Some(slot) = folded.chain(parts.keep.iter().copied()).chain(stored).find(|slot| *slot >= slots) {
        return Err(format!("its result: expected a slot below {slots}, got {slot}"));
    }
    for (s, store) in parts.stores.iter().enumerate() {
        if store.tensor >= work.writes.len() {
            return Err(format!("store {s}: expected a tensor below {}, got {}", work.writes.len(), store.tensor));
        }
        check_access(&store.access, loops).map_err(|text| format!("store {s} has {text}"))?;
        if !store.access.bounds.is_empty() {
            return Err(format!("store {s} has bounds"));
        }
        let extents = work.groups.iter().chain(if parts.members { &work.members[..] } else { &[] });
        let nothing = work.groups.contains(&0) || (parts.members && work.members.contains(&0));
        for (l, (extent, stride)) in extents.zip(&store.access.strides).enumerate() {
            if *extent > 1 && *stride == 0 && !nothing {
                return Err(format!("store {s} writes {extent} elements in one place along loop {l}"));
            }
        }
    }
    Ok(())
}

fn check_access(access: &Access, loops: usize) -> Result<(), String> {
    if access.strides.len() != loops {
        return Err(format!("{} strides for {loops} loops", access.strides.len()));
    }
    for bound in &access.bounds {
        if bound.steps.len() != loops {
            return Err(format!("a bound of {} steps for {loops} loops", bound.steps.len()));
        }
        if bound.divisor == 0 {
            return Err("a bound of divisor 0".to_owned());
        }
    }
    Ok(())
}
