//! Statements of passes whose threads work on a vector of adjacent groups: members lie in rows, and groups are columns of them.

use super::lines::Line;
use super::passes::{Inputs, Partial};
use super::{Block, Slot, Writer};
use crate::emit::grouped::{Fold, ReduceOp};
use crate::emit::program::literal;

/// Number of a lane's members that are summed in `f32` before their sum goes into the total, where nothing is computed of them; where
/// a few statements are, half as many, since each has registers of its own.
const PARTIAL: usize = 8;

/// Limit of a lane's members that are summed in `f32`, some at a time, before their sum goes into the total.
const FEW: u64 = 32;

/// Statements of a program up to which several members are under way at the same time.
const SHORT: usize = 4;

impl Writer<'_> {
    /// Emits a pass over the members of a thread's groups.
    pub(super) fn over_members_in_columns(&mut self, part: &Block<'_>, first_fold: usize) {
        let work = self.work;
        let (members, lanes, width) = (self.members(), work.schedule.mapping.lanes, self.width());
        let (fixed, varying) = self.divided(part);
        for (f, fold) in part.folds.iter().enumerate() {
            let (f, structure, neutral) = (first_fold + f, fold.mode.structure(), fold.mode.neutral());
            self.line(format_args!("{structure} f{f}[{width}];"));
            self.line(format_args!("EACH f{f}[k] = {structure}{neutral};"));
        }
        // What all members share is read once; there it is if there is a member.
        self.open(format_args!("if (begin < count(a.members)) {{"));
        let mut known = Vec::new();
        let (own, common): (Inputs<'_>, Inputs<'_>) = fixed.into_iter().partition(|(_, slot)| self.is_of_lane(slot));
        for (i, input) in common {
            self.input(part.kept + i, *input, &mut known);
        }
        let own: Vec<usize> = self.fixed_of_lanes(part, &own, &known);
        if work.schedule.is_unrolled {
            let lines: Vec<Line> = varying.iter().filter_map(|(i, slot)| self.line_of(part.kept + i, slot)).collect();
            let is_in_line = |(i, _): &(usize, &Slot)| lines.iter().any(|line| line.slot() == part.kept + i);
            let varying: Inputs<'_> = varying.into_iter().filter(|input| !is_in_line(input)).collect();
            let inner = self.members().end - 1;
            self.open_unrolled(self.members().start..inner);
            lines.iter().for_each(|line| self.load_line(line));
            self.open_unrolled(inner..inner + 1);
            self.row(&Row { part, own: &own, varying: &varying, lines: &lines, first_fold }, "0", known, None);
            self.members().for_each(|_| self.close());
            self.close();
            return;
        }
        if members.len() > 1 {
            for l in members.clone() {
                let first = if lanes > 1 { format!("l{l}") } else { "0".to_owned() };
                self.line(format_args!("index j{l} = {first};"));
            }
        }
        self.line(format_args!("count m = begin;"));
        let mut partial = 1;
        if part.folds.iter().any(|fold| matches!(fold.mode, ReduceOp::Sum)) && self.partial(&varying) == Partial::All {
            partial = match part.statements.lines().count() {
                0 => PARTIAL,
                1..=SHORT => PARTIAL / 2,
                _ => 1,
            };
        }
        let row = Row { part, own: &own, varying: &varying, lines: &[], first_fold };
        // Where a lane has few members, their sums are added in `f32`, too.
        let is_few = partial > 1 && self.steps().div_ceil(u64::from(lanes)) <= FEW;
        if is_few {
            self.declare_sums("q", part, first_fold);
        }
        if partial > 1 {
            let (ahead, step) = ((partial as u32 - 1) * lanes, partial as u32 * lanes);
            self.open(format_args!("for (; m + {ahead} < count(a.members); m += {step}) {{"));
            self.declare_sums("p", part, first_fold);
            self.open(format_args!("_Pragma(\"unroll\") for (count c = 0; c < {partial}; ++c) {{"));
            self.row(&row, &format!("m + c * {lanes}"), known.clone(), Some("p"));
            self.next_member();
            self.close();
            self.add_sums("p", is_few, part, first_fold);
            self.close();
            // The members that are left are fewer than those.
            self.open(format_args!("if (m < count(a.members)) {{"));
            if !is_few {
                self.declare_sums("q", part, first_fold);
            }
        } else if part.stores.is_empty() && part.statements.lines().count() <= SHORT {
            // The loads of several members are under way at the same time.
            self.line(format_args!("_Pragma(\"unroll 2\")"));
        }
        self.open(format_args!("for (; m < count(a.members); m += {lanes}) {{"));
        self.row(&row, "m", known, (partial > 1).then_some("q"));
        self.next_member();
        self.close();
        if partial > 1 && !is_few {
            self.add_sums("q", false, part, first_fold);
        }
        if partial > 1 {
            self.close();
        }
        if is_few {
            self.add_sums("q", false, part, first_fold);
        }
        self.close();
    }

    /// Declares sums of members in `f32` on the way to a total.
    fn declare_sums(&mut self, name: &str, part: &Block<'_>, first_fold: usize) {
        let width = self.width();
        sums(part).for_each(|(f, _)| self.line(format_args!("real {name}{}[{width}] = {{}};", first_fold + f)));
    }

    /// Emits the addition of sums of some members to those of a lane's few, or to the totals.
    fn add_sums(&mut self, name: &str, to_few: bool, part: &Block<'_>, first_fold: usize) {
        for f in sums(part).map(|(f, _)| first_fold + f) {
            let added = if to_few { format!("q{f}[k] += {name}{f}[k]") } else { format!("put(f{f}[k], {name}{f}[k])") };
            self.line(format_args!("EACH {added};"));
        }
    }

    /// True if an input is not the same for all groups of a thread.
    fn is_of_lane(&self, slot: &Slot) -> bool {
        let beside = self.beside().expect("there is a loop over groups that goes in vectors");
        slot.place().is_some_and(|place| self.work.loops.places[place].strides[beside] != 0 || self.moves(place))
    }

    /// Declares `c<slot>`, the values of inputs that all members of a group share; returns their slots.
    fn fixed_of_lanes(&mut self, part: &Block<'_>, own: &Inputs<'_>, known: &[usize]) -> Vec<usize> {
        let slots: Vec<usize> = own.iter().map(|(i, _)| part.kept + i).collect();
        if slots.is_empty() {
            return slots;
        }
        let width = self.width();
        for slot in &slots {
            self.line(format_args!("real c{slot}[{width}];"));
        }
        self.open(format_args!("EACH {{"));
        self.in_lane = true;
        let mut known = known.to_vec();
        for (slot, (_, input)) in slots.iter().zip(own) {
            self.input(*slot, **input, &mut known);
            self.line(format_args!("c{slot}[k] = t{slot};"));
        }
        self.in_lane = false;
        self.close();
        slots
    }

    /// Emits the statements for one member of each of a thread's groups: contiguous elements are loaded and stored together.
    fn row(&mut self, row: &Row<'_, '_>, member: &str, mut known: Vec<usize>, sums: Option<&str>) {
        let Row { part, own, varying, lines, first_fold } = *row;
        let (members, width) = (self.members(), self.width());
        let beside = self.beside().expect("there is a loop over groups that goes in vectors");
        if members.len() == 1 && !self.work.schedule.is_unrolled {
            self.line(format_args!("const index j{} = index({member});", members.start));
        }
        // Guards are the same for all of them.
        for (_, slot) in varying {
            for b in slot.place().map(|place| self.bounds_of(place)).unwrap_or_default() {
                if !known.contains(&b) && self.bounds[b].steps[beside] == 0 {
                    known.push(b);
                    self.bound(b);
                }
            }
        }
        let (of_lane, common): (Vec<_>, Vec<_>) = varying.iter().partition(|(_, slot)| self.is_of_lane(slot));
        let is_together = |place: usize| self.is_side_by_side(place) && !self.moves(place);
        let is_loaded = |slot: &Slot| matches!(*slot, Slot::Tensor { place, .. } if is_together(place));
        let (loaded, single): (Vec<_>, Vec<_>) = of_lane.into_iter().partition(|(_, slot)| is_loaded(slot));
        for (i, input) in common {
            self.input(part.kept + i, *input, &mut known);
        }
        for (i, input) in &loaded {
            let Slot::Tensor { tensor, place, .. } = **input else { unreachable!("only tensors are loaded") };
            let (slot, at) = (part.kept + i, self.locate(place, &mut known));
            self.line(format_args!("{} v{slot}[{width}] = {{}};", self.memory_type(self.work.reads[tensor])));
            let inside = if self.is_guarded(place) { format!("if ({}) ", self.inside(place)) } else { String::new() };
            let vector = self.vector_of(place, width, self.work.reads[tensor].bytes(), beside);
            self.line(format_args!("{inside}load<{vector}>(v{slot}, r{tensor}_{place} + ({at}));"));
        }
        let (side, apart): (Vec<_>, Vec<_>) =
            part.stores.iter().enumerate().partition(|(_, target)| self.is_side_by_side(target.place));
        for (s, target) in &side {
            self.line(format_args!("{} y{s}[{width}];", self.memory_type(self.work.writes[target.tensor])));
        }
        self.open(format_args!("EACH {{"));
        self.in_lane = true;
        self.carried(part);
        for slot in own {
            self.line(format_args!("const real t{slot} = c{slot}[k];"));
        }
        lines.iter().for_each(|line| self.value_of_line(line));
        for (i, input) in &loaded {
            let Slot::Tensor { tensor, place, pad_value } = **input else { unreachable!("only tensors are loaded") };
            let slot = part.kept + i;
            let mut value = self.widened(tensor, &format!("v{slot}[k]"));
            if self.is_guarded(place) {
                value = format!("{} ? {value} : {}", self.inside(place), literal(self.work.compute_type, pad_value));
            }
            self.line(format_args!("const real t{slot} = {value};"));
        }
        for (i, input) in &single {
            self.input(part.kept + i, **input, &mut known);
        }
        self.statements(&part.statements);
        self.results(part, first_fold, sums, &side, &apart);
        self.in_lane = false;
        self.close();
        for (s, target) in &side {
            let (tensor, place, at) = (target.tensor, target.place, self.at(target.place));
            let vector = self.vector_of(place, width, self.work.writes[tensor].bytes(), beside);
            self.line(format_args!("store<{vector}>(w{tensor}_{place} + ({at}), y{s});"));
        }
    }

    /// True if guards of a place are others for each group of a thread.
    fn moves(&self, place: usize) -> bool {
        let beside = self.beside().expect("there is a loop over groups that goes in vectors");
        self.work.loops.places[place].bounds.iter().any(|bound| bound.steps[beside] != 0)
    }

    fn is_guarded(&self, place: usize) -> bool {
        !self.work.loops.places[place].bounds.is_empty()
    }
}

/// Folds of a pass that are sums.
fn sums<'a>(part: &'a Block<'_>) -> impl Iterator<Item = (usize, &'a Fold)> {
    part.folds.iter().enumerate().filter(|(_, fold)| matches!(fold.mode, ReduceOp::Sum))
}

/// One member of each of a thread's groups: the pass, the slots of inputs that all members share, the other inputs,
/// those that are in lines, and the number of the pass's first fold.
struct Row<'a, 'b> {
    part: &'a Block<'b>,
    own: &'a [usize],
    varying: &'a Inputs<'a>,
    lines: &'a [Line],
    first_fold: usize,
}
