//! Statements of passes whose lanes keep their members in registers: each takes a number of steps that the text knows,
//! loads what several passes read once, and goes through it without a branch where there is no member missing.

use super::passes::{Inputs, Partial, pairwise};
use super::{Block, Slot, Target, Writer};
use crate::emit::grouped::ReduceOp;
use crate::emit::grouped::layout::Loops;
use crate::emit::grouped::schedule::Residency;

/// Operands, by tensor and place, of which several passes read an element for each member, or one that reduces: its
/// loads are then all under way before the first is waited for.
pub(in crate::emit::grouped) fn resident(loops: &Loops, passes: &[Block<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (p, part) in passes.iter().enumerate() {
        for slot in &part.inputs {
            let Slot::Tensor { tensor, place, .. } = *slot else { continue };
            let is_read = |part: &Block<'_>| part.members && part.reads(tensor, place);
            let is_shared = is_read(part) && (!part.folds.is_empty() || passes[p + 1..].iter().any(is_read));
            if is_shared && !loops.places[place].is_fixed(loops.split) && !found.contains(&(tensor, place)) {
                found.push((tensor, place));
            }
        }
    }
    found
}

impl Block<'_> {
    fn reads(&self, tensor: usize, place: usize) -> bool {
        self.inputs
            .iter()
            .any(|slot| matches!(*slot, Slot::Tensor { tensor: t, place: p, .. } if (t, p) == (tensor, place)))
    }
}

impl Writer<'_> {
    /// Declares `h<tensor>_<place>`, the members of a group that a lane keeps, and `e`, a value of each.
    pub(super) fn residents(&mut self) {
        let work = self.work;
        let Some(Residency { turns, is_whole }) = work.schedule.residency else { return };
        for (tensor, place) in resident(work.loops, &work.passes) {
            let (c_type, width) = (self.memory_type(work.reads[tensor]), self.width());
            let zeros = if is_whole { "" } else { " = {}" };
            self.line(format_args!("{c_type} h{tensor}_{place}[{turns}][{width}]{zeros};"));
        }
        if work.passes.iter().any(|part| part.remembered.is_some()) {
            self.line(format_args!("real e[{turns}][{}];", self.width()));
        }
    }

    /// Emits a pass over the members of a group.
    pub(super) fn over_resident_members(&mut self, number: usize, part: &Block<'_>, first_fold: usize) {
        let work = self.work;
        let (fixed, varying) = self.divided(part);
        self.accumulators(part, first_fold);
        let mut known = Vec::new();
        for (i, input) in fixed {
            self.input(part.kept + i, *input, &mut known);
        }
        let before = &work.passes[..number];
        let is_new = |(tensor, place): &(usize, usize)| {
            part.reads(*tensor, *place) && !before.iter().any(|before| before.members && before.reads(*tensor, *place))
        };
        let resident = resident(work.loops, &work.passes);
        let new: Vec<_> = resident.iter().copied().filter(is_new).collect();
        if !new.is_empty() {
            // All of them are under way before the first is waited for.
            self.open_turns();
            for (tensor, place) in new {
                self.load_step(&format!("h{tensor}_{place}[c]"), tensor, place);
            }
            self.close_turns();
        }
        let partial = self.partial(&varying);
        let sums: Vec<usize> = match partial {
            Partial::None => Vec::new(),
            _ => {
                (0..part.folds.len()).filter(|f| part.folds[*f].mode == ReduceOp::Sum).map(|f| first_fold + f).collect()
            }
        };
        if partial == Partial::All {
            self.declare_partial(&sums);
        }
        self.open_turns();
        if partial == Partial::Checked {
            self.declare_partial(&sums);
        }
        self.step(part, &varying, first_fold, partial, &resident);
        if partial == Partial::Checked {
            self.put_partial(&sums, partial);
        }
        self.close_turns();
        if partial == Partial::All {
            self.put_partial(&sums, partial);
        }
        self.put_nan(part, first_fold);
    }

    fn declare_partial(&mut self, sums: &[usize]) {
        for f in sums {
            self.line(format_args!("real p{f}[{}] = {{}};", self.width()));
        }
    }

    /// Emits the accumulation of partial sums, of which there is one for each member of a vector.
    pub(super) fn put_partial(&mut self, sums: &[usize], partial: Partial) {
        for f in sums {
            let sum = pairwise(&format!("p{f}"), 0..self.width());
            match partial {
                // What leaves the range of `f32` may come back to it.
                Partial::Checked => {
                    self.line(format_args!("const real s{f} = {sum};"));
                    self.line(format_args!("if (s{f} - s{f} == real(0)) put(f{f}, s{f});"));
                    self.line(format_args!("else EACH put(f{f}, p{f}[k]);"));
                }
                _ => self.line(format_args!("put(f{f}, {sum});")),
            }
        }
    }

    /// Opens the loop over a lane's steps, with the indices of each: `first` is that of a vector's first member.
    /// `is_there` is true if the lane has the step, and `all` if it has all members of it.
    fn open_turns(&mut self) {
        let (members, work) = (self.members(), self.work);
        let Residency { turns, is_whole } = work.schedule.residency.expect("lanes keep members in registers");
        let lanes = work.schedule.mapping.lanes;
        self.open(format_args!("{{"));
        if members.len() > 1 {
            for l in members.clone() {
                let (counter, first) = (self.counter(l), if lanes > 1 { format!("l{l}") } else { "0".to_owned() });
                self.line(format_args!("index {counter} = {first};"));
            }
        }
        self.open(format_args!("_Pragma(\"unroll\") for (count c = 0; c < {turns}; ++c) {{"));
        if !is_whole || members.len() == 1 {
            self.line(format_args!("const count m = lane + c * {lanes};"));
        }
        if !is_whole {
            self.line(format_args!("const bool is_there = c + 1 < {turns} || m < count(a.members);"));
        }
        if members.len() == 1 {
            self.line(format_args!("const index {} = index(m);", self.counter(members.start)));
        }
        self.line(format_args!("const index first = vector * {};", self.width()));
        if self.tail() {
            self.line(format_args!("const bool all = is_there && first + {} <= a.inner;", self.width()));
        }
    }

    fn close_turns(&mut self) {
        self.next_member();
        self.close();
        self.close();
    }

    /// C condition for one member of a vector, or for all of them; `None` if there is no member missing.
    fn is_there(&self, one: bool) -> Option<&'static str> {
        let residency = self.work.schedule.residency.expect("lanes keep members in registers");
        match (self.tail(), one) {
            (true, true) => Some("is_there && (all || first + k < a.inner)"),
            (true, false) => Some("all"),
            (false, _) => (!residency.is_whole).then_some("is_there"),
        }
    }

    /// Emits the load of a step's elements into a list.
    fn load_step(&mut self, to: &str, tensor: usize, place: usize) {
        let inner = self.inner().expect("there is a loop that goes in vectors");
        let (width, at) = (self.width(), self.at(place));
        let from = format!("r{tensor}_{place}");
        let each = |condition: Option<&str>| condition.map_or(String::new(), |condition| format!("if ({condition}) "));
        let (all, one) = (each(self.is_there(false)), each(self.is_there(true)));
        self.open(format_args!("{{"));
        if self.is_side_by_side(place) {
            let vector = self.vector_of(place, width, self.work.reads[tensor].bytes(), inner);
            self.line(format_args!("const index j{inner} = first;"));
            self.line(format_args!("{all}load<{vector}>({to}, {from} + ({at}));"));
            if self.tail() {
                self.line(format_args!("else EACH {one}{to}[k] = {from}[{at} + k];"));
            }
        } else {
            self.line(format_args!("EACH {one}{{ const index j{inner} = first + k; {to}[k] = {from}[{at}]; }}"));
        }
        self.close();
    }

    /// Emits the statements for a step of the members.
    fn step(
        &mut self,
        part: &Block<'_>,
        varying: &Inputs<'_>,
        first_fold: usize,
        partial: Partial,
        resident: &[(usize, usize)],
    ) {
        let inner = self.inner().expect("there is a loop that goes in vectors");
        let (loaded, single): (Vec<_>, Vec<_>) =
            varying.iter().partition(|(_, slot)| matches!(slot, Slot::Tensor { .. }));
        // C list of an operand's elements.
        let list = |i: usize, slot: &Slot| match *slot {
            Slot::Tensor { tensor, place, .. } if resident.contains(&(tensor, place)) => {
                format!("h{tensor}_{place}[c]")
            }
            _ => format!("v{}", part.kept + i),
        };
        for (i, slot) in &loaded {
            let Slot::Tensor { tensor, place, .. } = **slot else { unreachable!("only tensors are loaded") };
            if !resident.contains(&(tensor, place)) {
                let (c_type, width) = (self.memory_type(self.work.reads[tensor]), self.width());
                self.line(format_args!("{c_type} v{}[{width}] = {{}};", part.kept + i));
                self.load_step(&list(*i, slot), tensor, place);
            }
        }
        let (side, apart): (Vec<_>, Vec<_>) =
            part.stores.iter().enumerate().partition(|(_, target)| self.is_side_by_side(target.place));
        for (s, Target { tensor, .. }) in &side {
            self.line(format_args!("{} y{s}[{}];", self.memory_type(self.work.writes[*tensor]), self.width()));
        }
        self.open(format_args!("EACH {{"));
        if let Some(condition) = self.is_there(true) {
            self.line(format_args!("const bool within = {condition};"));
            self.guarded = true;
        }
        self.line(format_args!("const index j{inner} = first + k;"));
        for (i, slot) in &loaded {
            let Slot::Tensor { tensor, .. } = **slot else { unreachable!("only tensors are loaded") };
            let value = self.widened(tensor, &format!("{}[k]", list(*i, slot)));
            self.line(format_args!("const real t{} = {value};", part.kept + i));
        }
        let mut known = Vec::new();
        for (i, slot) in &single {
            self.input(part.kept + i, **slot, &mut known);
        }
        self.statements(&part.statements);
        if let Some(slot) = part.remembered {
            self.line(format_args!("e[c][k] = t{slot};"));
        }
        self.results(part, first_fold, (partial != Partial::None).then_some("p"), &side, &apart);
        self.guarded = false;
        self.close();
        self.store_step(&side);
    }

    /// Emits the stores of a step's elements that lie side by side, from the lists `y<store>`.
    fn store_step(&mut self, stores: &[(usize, &Target)]) {
        if stores.is_empty() {
            return;
        }
        let inner = self.inner().expect("there is a loop that goes in vectors");
        let alive = if self.ragged() { "if (alive) " } else { "" };
        let condition = |condition: Option<&str>| condition.map_or(String::new(), |c| format!("if ({c}) "));
        let (all, one) = (condition(self.is_there(false)), condition(self.is_there(true)));
        self.open(format_args!("{alive}{{"));
        self.line(format_args!("const index j{inner} = first;"));
        for (s, target) in stores {
            let (tensor, place, at) = (target.tensor, target.place, self.at(target.place));
            let vector = self.vector_of(place, self.width(), self.work.writes[tensor].bytes(), inner);
            self.line(format_args!("{all}store<{vector}>(w{tensor}_{place} + ({at}), y{s});"));
            if self.tail() {
                self.line(format_args!("else EACH {one}w{tensor}_{place}[{at} + k] = y{s}[k];"));
            }
        }
        self.close();
    }
}
