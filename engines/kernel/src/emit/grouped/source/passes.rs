//! Statements of the passes of a group.

use super::{Block, Slot, Target, Writer};
use crate::emit::element::Element;
use crate::emit::grouped::layout::Loops;
use crate::emit::grouped::{Fold, ReduceOp};
use crate::emit::program::ComputeType;

/// Sums of members in `f32`, on the way to a total in `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Partial {
    /// None: each member goes into the total.
    None,
    /// One for each vector; where it is no number, or infinite, each of its members goes into the total instead.
    Checked,
    /// One for all members that are under way at the same time.
    All,
}

/// Inputs of a pass with their places among its values.
pub(super) type Inputs<'a> = Vec<(usize, &'a Slot)>;

impl Writer<'_> {
    pub(super) fn pass(&mut self, number: usize, part: &Block<'_>, first_fold: usize) {
        let work = self.work;
        let neutral = if self.beside().is_some() { "{}" } else { "real(0)" };
        let width = self.of_lanes(self.width());
        for k in part.kept..part.kept + part.leaves {
            self.line(format_args!("real k{k}{width} = {neutral};"));
        }
        self.open(format_args!("{{"));
        if self.beside().is_none() {
            self.carried(part);
        }
        match (part.members, self.beside()) {
            (false, _) => self.once(number, part),
            (true, None) if work.schedule.residency.is_some() => self.over_resident_members(number, part, first_fold),
            (true, None) => self.over_members(part, first_fold),
            (true, Some(_)) => self.over_members_in_columns(part, first_fold),
        }
        if !part.folds.is_empty() {
            self.leave(number, part, first_fold);
        }
        self.close();
    }

    /// Declares the values that passes before have left behind.
    pub(super) fn carried(&mut self, part: &Block<'_>) {
        let lane = self.of_lanes("k");
        for k in 0..part.kept {
            self.line(format_args!("const real t{k} = k{k}{lane};"));
        }
    }

    /// Emits the reduction of the lanes' accumulators to what a pass leaves behind.
    fn leave(&mut self, number: usize, part: &Block<'_>, first_fold: usize) {
        if self.work.schedule.mapping.lanes > 1 {
            self.tree(number, part, first_fold);
        }
        let (each, lane) = (self.each_lane(), self.of_lanes("k"));
        let mut k = part.kept;
        for (f, fold) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            self.line(format_args!("{each}k{k}{lane} = value(f{f}{lane});"));
            if let ReduceOp::ArgMax { .. } = fold.mode {
                self.line(format_args!("{each}k{}{lane} = f{f}{lane}.at;", k + 1));
            }
            k += fold.mode.leaves();
        }
    }

    fn once(&mut self, number: usize, part: &Block<'_>) {
        let work = self.work;
        let (width, lane) = (self.of_lanes(self.width()), self.of_lanes("k"));
        for (s, target) in part.stores.iter().enumerate() {
            let c_type = self.memory_type(work.writes[target.tensor]);
            self.line(format_args!("{c_type} y{s}{width} = {{}};"));
        }
        self.open(format_args!("if (alive) {}{{", self.each_lane()));
        self.in_lane = true;
        if self.beside().is_some() {
            self.carried(part);
        }
        let mut known = Vec::new();
        for (i, input) in part.inputs.iter().enumerate() {
            self.input(part.kept + i, *input, &mut known);
        }
        self.statements(&part.statements);
        for (i, slot) in part.keep.iter().enumerate() {
            self.line(format_args!("k{}{lane} = t{slot};", part.kept + i));
        }
        for (s, target) in part.stores.iter().enumerate() {
            let value = self.narrowed(target);
            self.line(format_args!("y{s}{lane} = {value};"));
        }
        self.close();
        if !part.stores.is_empty() {
            let reads = |part: &Block<'_>| part.inputs.iter().any(|input| matches!(input, Slot::Tensor { .. }));
            // The lanes have met at the end of the last reduction.
            let met =
                work.passes[..number].iter().rposition(|before| !before.folds.is_empty()).map_or(0, |last| last + 1);
            let may_read = work.passes[met..number].iter().any(reads) || reads(part) && !part.keep.is_empty();
            if work.schedule.mapping.lanes > 1 && may_read {
                // All lanes have read before the memory is written, which may be the same.
                self.line(format_args!("barrier_of_memory();"));
            }
            self.open(format_args!("if (alive && lane == 0) {{"));
            for (s, target) in part.stores.iter().enumerate() {
                self.store_of_group(s, target);
            }
            self.close();
        }
        self.in_lane = false;
    }

    /// Emits the store of `y<s>`, which a group, or each of a vector of them, has once.
    fn store_of_group(&mut self, s: usize, target: &Target) {
        let (Target { tensor, place, .. }, width) = (target, self.width());
        if let Some(beside) = self.beside().filter(|_| self.is_side_by_side(*place)) {
            let vector = self.vector_of(*place, width, self.work.writes[*tensor].bytes(), beside);
            return self.line(format_args!("store<{vector}>(w{tensor}_{place} + x{place}, y{s});"));
        }
        let (each, lane) = (self.each_lane(), self.of_lanes("k"));
        // Along members there is one place.
        let at = self.at(*place);
        self.line(format_args!("{each}w{tensor}_{place}[{at}] = y{s}{lane};"));
    }

    fn over_members(&mut self, part: &Block<'_>, first_fold: usize) {
        let work = self.work;
        let members = self.members();
        let lanes = work.schedule.mapping.lanes;
        let (fixed, varying) = self.divided(part);
        self.accumulators(part, first_fold);
        // What all members share is read once; there it is if there is a member.
        self.open(format_args!("if (begin < count(a.members)) {{"));
        let mut known = Vec::new();
        for (i, input) in fixed {
            self.input(part.kept + i, *input, &mut known);
        }
        let bounded =
            |(_, slot): &(usize, &Slot)| slot.place().is_some_and(|place| !work.loops.places[place].bounds.is_empty());
        if work.schedule.is_unrolled {
            self.open_unrolled(self.members());
            self.member(part, &varying, first_fold, known);
            self.members().for_each(|_| self.close());
            self.close();
            return self.put_nan(part, first_fold);
        }
        if members.len() > 1 {
            for l in members.clone() {
                let (counter, first) = (self.counter(l), if lanes > 1 { format!("l{l}") } else { "0".to_owned() });
                self.line(format_args!("index {counter} = {first};"));
            }
        }
        if self.inner().is_none() && part.stores.is_empty() && !varying.iter().any(bounded) {
            // The loads of several members are under way at the same time.
            self.line(format_args!("_Pragma(\"unroll 4\")"));
        }
        self.open(format_args!("for (count m = begin; m < count(a.members); m += {lanes}) {{"));
        self.member(part, &varying, first_fold, known);
        self.next_member();
        self.close();
        self.close();
        self.put_nan(part, first_fold);
    }

    /// Declares the accumulators of a lane, and for each extreme whether a member was no number.
    pub(super) fn accumulators(&mut self, part: &Block<'_>, first_fold: usize) {
        for (f, fold) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            self.line(format_args!("{} f{f} = {};", fold.mode.structure(), fold.mode.neutral()));
            if self.is_extreme(&fold.mode) {
                self.line(format_args!("bool n{f} = false;"));
            }
        }
    }

    /// True if a lane's members go into a fold by the device's instructions for the larger or smaller of several
    /// numbers, which pass over what is no number: that is noted beside it, once for two members.
    fn is_extreme(&self, mode: &ReduceOp) -> bool {
        self.inner().is_some() && matches!(mode, ReduceOp::Min | ReduceOp::Max)
    }

    /// Emits what members that are no numbers make of an extreme.
    pub(super) fn put_nan(&mut self, part: &Block<'_>, first_fold: usize) {
        for (f, fold) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            if self.is_extreme(&fold.mode) {
                self.line(format_args!("if (n{f}) put(f{f}, __builtin_nanf(\"\"));"));
            }
        }
    }

    /// Opens loops over members, whose extents are numbers.
    pub(super) fn open_unrolled(&mut self, loops: std::ops::Range<usize>) {
        for l in loops {
            let extent = self.work.loops.extents[l];
            self.open(format_args!("_Pragma(\"unroll\") for (index j{l} = 0; j{l} < {extent}; ++j{l}) {{"));
        }
    }

    /// Emits the pass of an element-wise kernel for the step `m` of the members.
    pub(super) fn element(&mut self, part: &Block<'_>) {
        let (fixed, varying) = self.divided(part);
        let mut known = Vec::new();
        for (i, input) in fixed {
            self.input(part.kept + i, *input, &mut known);
        }
        self.member(part, &varying, 0, known);
    }

    /// Inputs of a pass that all members share, and those that each has of its own.
    pub(super) fn divided<'b>(&self, part: &'b Block<'_>) -> (Inputs<'b>, Inputs<'b>) {
        let Loops { places, split, .. } = self.work.loops;
        let is_fixed =
            |slot: &Slot| *slot != Slot::Kept && slot.place().is_none_or(|place| places[place].is_fixed(*split));
        part.inputs.iter().enumerate().partition(|(_, slot)| is_fixed(slot))
    }

    /// Emits the statements for a step of the members.
    fn member(&mut self, part: &Block<'_>, varying: &[(usize, &Slot)], first_fold: usize, mut known: Vec<usize>) {
        let members = self.members();
        if members.len() == 1 && !self.work.schedule.is_unrolled {
            let counter = self.counter(members.start);
            self.line(format_args!("const index {counter} = index(m);"));
        }
        if self.inner().is_some() {
            return self.vector_of_members(part, varying, first_fold, known);
        }
        for (i, input) in varying {
            self.input(part.kept + i, **input, &mut known);
        }
        self.statements(&part.statements);
        self.puts(part, first_fold, None);
        for target in &part.stores {
            self.store(target);
        }
    }

    /// Emits the store of one element.
    pub(super) fn store(&mut self, target: &Target) {
        let (Target { tensor, place, .. }, at) = (target, self.at(target.place));
        let value = self.narrowed(target);
        // Lanes that keep members in registers go through those of another group where they have none.
        let is_dead = self.work.schedule.residency.is_some() && self.ragged();
        let condition = match (is_dead, self.guarded) {
            (true, true) => "if (alive && within) ",
            (true, false) => "if (alive) ",
            (false, true) => "if (within) ",
            (false, false) => "",
        };
        self.line(format_args!("{condition}w{tensor}_{place}[{at}] = {value};"));
    }

    /// Emits the statements for a vector of members: contiguous elements are loaded and stored together.
    fn vector_of_members(
        &mut self,
        part: &Block<'_>,
        varying: &[(usize, &Slot)],
        first_fold: usize,
        mut known: Vec<usize>,
    ) {
        let inner = self.inner().expect("there is a loop that goes in vectors");
        let width = self.width();
        self.line(format_args!("const index first = vector * {width};"));
        let within = if self.tail() {
            self.line(format_args!("const bool all = first + {width} <= a.inner;"));
            "if (all || first + k < a.inner) "
        } else {
            ""
        };
        let is_plain = |slot: &Slot| matches!(*slot, Slot::Tensor { place, .. } if self.work.loops.places[place].bounds.is_empty());
        let (loaded, single): (Vec<_>, Vec<_>) = varying.iter().partition(|(_, slot)| is_plain(slot));
        let (mut loads, mut each, mut gathers) = (String::new(), String::new(), String::new());
        for (i, input) in &loaded {
            let Slot::Tensor { tensor, place, .. } = **input else { unreachable!("only tensors are loaded") };
            let (slot, at) = (part.kept + i, self.at(place));
            self.line(format_args!("{} v{slot}[{width}] = {{}};", self.memory_type(self.work.reads[tensor])));
            if self.tile_of(input).is_some() {
                gathers += &format!("v{slot}[k] = tile{slot}[in_tile * {width} + k][column]; ");
            } else if self.is_side_by_side(place) {
                let vector = self.vector_of(place, width, self.work.reads[tensor].bytes(), inner);
                loads += &format!("load<{vector}>(v{slot}, r{tensor}_{place} + ({at})); ");
                each += &format!("v{slot}[k] = r{tensor}_{place}[{at} + k]; ");
            } else {
                gathers += &format!("v{slot}[k] = r{tensor}_{place}[{at}]; ");
            }
        }
        let (mut stores, mut each_store) = (String::new(), String::new());
        let (side, apart): (Vec<_>, Vec<_>) =
            part.stores.iter().enumerate().partition(|(_, target)| self.is_side_by_side(target.place));
        for (s, Target { tensor, place, .. }) in &side {
            let at = self.at(*place);
            self.line(format_args!("{} y{s}[{width}] = {{}};", self.memory_type(self.work.writes[*tensor])));
            let vector = self.vector_of(*place, width, self.work.writes[*tensor].bytes(), inner);
            stores += &format!("store<{vector}>(w{tensor}_{place} + ({at}), y{s}); ");
            each_store += &format!("w{tensor}_{place}[{at} + k] = y{s}[k]; ");
        }
        self.whole_or_each(inner, &loads, &each);
        if !gathers.is_empty() {
            self.line(format_args!("EACH {within}{{ const index j{inner} = first + k; {gathers}}}"));
        }
        let partial = self.partial(varying);
        let is_partial = |f: &usize| partial != Partial::None && part.folds[*f].mode == ReduceOp::Sum;
        let sums: Vec<usize> = (0..part.folds.len()).filter(is_partial).map(|f| first_fold + f).collect();
        for f in &sums {
            self.line(format_args!("real p{f}[{width}] = {{}};"));
        }
        // What is computed behind the end of the loop is neither reduced nor stored.
        let guards = part.folds.is_empty() && !within.is_empty();
        self.open(format_args!("EACH {}{{", if guards { "" } else { within }));
        self.guarded = guards;
        if guards {
            self.line(format_args!("const bool within = all || first + k < a.inner;"));
        }
        self.line(format_args!("const index j{inner} = first + k;"));
        for (i, input) in &loaded {
            let Slot::Tensor { tensor, .. } = **input else { unreachable!("only tensors are loaded") };
            let slot = part.kept + i;
            let value = self.widened(tensor, &format!("v{slot}[k]"));
            self.line(format_args!("const real t{slot} = {value};"));
        }
        for (i, input) in &single {
            self.input(part.kept + i, **input, &mut known);
        }
        self.statements(&part.statements);
        self.results(part, first_fold, (partial != Partial::None).then_some("p"), &side, &apart);
        self.guarded = false;
        self.close();
        self.put_partial(&sums, partial);
        self.whole_or_each(inner, &stores, &each_store);
    }

    /// How members are summed in `f32` before their sum goes into the total, whose type is wider: the rounding of a
    /// few additions is far below what elements of eleven bits of precision tell, and one in `f64` costs as much as
    /// sixteen on some GPUs.
    pub(super) fn partial(&self, varying: &[(usize, &Slot)]) -> Partial {
        let elements = varying.iter().filter_map(|(_, slot)| match **slot {
            Slot::Tensor { tensor, .. } => Some(self.work.reads[tensor]),
            _ => None,
        });
        let of = |element: Element| match element {
            Element::F16 | Element::I8 | Element::U8 => Partial::All,
            Element::BF16 => Partial::Checked,
            _ => Partial::None,
        };
        match self.work.compute_type {
            ComputeType::F32 => elements.map(of).min().unwrap_or(Partial::None),
            _ => Partial::None,
        }
    }

    /// Emits a statement for the members of a vector from the index `first` on: `together` for all, or `each` for one at a
    /// time where the loop ends among them.
    fn whole_or_each(&mut self, inner: usize, together: &str, each: &str) {
        if together.is_empty() {
            return;
        }
        self.open(format_args!("{{"));
        self.line(format_args!("const index j{inner} = first;"));
        if self.tail() {
            // One branch for all of them, so that they are under way at the same time.
            self.line(format_args!("if (all) {{ {together}}}"));
            self.line(format_args!("else EACH if (first + k < a.inner) {{ {each}}}"));
        } else {
            self.line(format_args!("{}", together.trim_end()));
        }
        self.close();
    }

    /// Emits the accumulation of a member's values into the folds, or of those that are sums into partial ones of that name:
    /// along a vector of members one for each, of a vector of groups the sums of several members.
    pub(super) fn puts(&mut self, part: &Block<'_>, first_fold: usize, sums: Option<&str>) {
        let is_first = self.beside().is_none() && self.work.schedule.residency.is_none();
        let (lane, add) = (self.of_lanes("k"), if is_first { "=" } else { "+=" });
        let within = if self.guarded { "if (within) " } else { "" };
        for (f, Fold { mode, slot }) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            match (mode, sums) {
                (ReduceOp::ArgMax { at }, _) => {
                    let number = self.work.number.expect("there is a place for the number of a member");
                    let number = self.at(number);
                    self.line(format_args!("{within}put(f{f}{lane}, t{slot}, t{at}, count({number}));"));
                }
                (ReduceOp::Min | ReduceOp::Max, _) if self.is_extreme(mode) => {
                    self.line(format_args!("{within}put_number(f{f}, t{slot});"));
                    self.line(format_args!("{within}n{f} |= t{slot} != t{slot};"));
                }
                (ReduceOp::Sum, Some(name)) => self.line(format_args!("{within}{name}{f}[k] {add} t{slot};")),
                _ => self.line(format_args!("{within}put(f{f}{lane}, t{slot});")),
            }
        }
    }

    /// Emits what becomes of an element of a vector: its part of the reductions, its place in the vectors that are stored `side` by
    /// side, and the stores `apart`.
    pub(super) fn results(
        &mut self,
        part: &Block<'_>,
        first_fold: usize,
        sums: Option<&str>,
        side: &[(usize, &Target)],
        apart: &[(usize, &Target)],
    ) {
        self.puts(part, first_fold, sums);
        for (s, target) in side {
            let value = self.narrowed(target);
            self.line(format_args!("y{s}[k] = {value};"));
        }
        for (_, target) in apart {
            self.store(target);
        }
    }

    pub(super) fn statements(&mut self, statements: &str) {
        for statement in statements.lines() {
            self.line(format_args!("{}", statement.trim_start()));
        }
    }

    /// Emits the step from a member's indices to those of the lane's next one.
    pub(super) fn next_member(&mut self) {
        let members = self.members();
        if members.len() < 2 {
            return;
        }
        let lanes = self.work.schedule.mapping.lanes;
        for l in members.clone().skip(1).rev() {
            let step = if lanes > 1 { format!("a.e{l}_w") } else { "1".to_owned() };
            let counter = self.counter(l);
            if lanes > 1 || l + 1 == members.end {
                self.line(format_args!("{counter} += {step};"));
            }
            self.line(format_args!("const bool over{l} = {counter} >= a.e{l};"));
            self.line(format_args!("{counter} -= over{l} ? a.e{l} : 0;"));
            self.line(format_args!("j{} += over{l};", l - 1));
        }
        if lanes > 1 {
            self.line(format_args!("j{0} += a.e{0}_w;", members.start));
        }
    }
}

/// C expression of the sum of a list's elements, in pairs of pairs.
pub(super) fn pairwise(list: &str, range: std::ops::Range<u64>) -> String {
    if range.end - range.start == 1 {
        return format!("{list}[{}]", range.start);
    }
    let middle = range.start.midpoint(range.end);
    format!("({} + {})", pairwise(list, range.start..middle), pairwise(list, middle..range.end))
}
