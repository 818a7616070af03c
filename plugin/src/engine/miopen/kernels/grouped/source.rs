//! The source of a kernel over groups and the arguments it is launched with.
//!
//! As for element-wise kernels the text depends on what is computed, the types, the number of loops, how threads share the
//! work and on which strides are zero or one; extents, strides, offsets and scalars are arguments.

use std::ops::Range;

use super::layout::Loops;
use super::mapping::Mapping;
use super::{Bound, Fold, FoldMode, folds};
use crate::engine::miopen::kernels::arguments::{self, Arguments, quotient};
use crate::engine::miopen::kernels::element::Element;
use crate::engine::miopen::kernels::program::{Numbers, Text, literal};

/// The name of the function.
pub(super) const FUNCTION: &std::ffi::CStr = c"grouped";

/// Work for a kernel, checked and simplified.
pub(super) struct Work<'a> {
    pub(super) loops: &'a Loops,
    pub(super) reads: &'a [Element],
    pub(super) writes: &'a [Element],
    pub(super) phases: Vec<Part<'a>>,
    /// The place whose offset is the number of a member, where there is one that asks for it.
    pub(super) number: Option<usize>,
    pub(super) numbers: Numbers,
    pub(super) mapping: Mapping,
    /// Whether a thread takes four neighbours of the innermost loop of the members at a time.
    pub(super) fours: bool,
    /// The number of groups, and of a group's members.
    pub(super) groups: u64,
    pub(super) members: u64,
    pub(super) wide: bool,
}

/// A phase.
pub(super) struct Part<'a> {
    pub(super) inputs: Vec<Slot>,
    pub(super) statements: String,
    /// Slots before the inputs: what phases before have left behind.
    pub(super) kept: usize,
    pub(super) folds: &'a [Fold],
    pub(super) keep: &'a [usize],
    pub(super) stores: Vec<Target>,
    /// Whether the program runs for every member.
    pub(super) members: bool,
}

/// What fills a slot before a program runs. Places are those of the loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slot {
    /// The element of a tensor, or the number if the place is outside.
    Tensor { tensor: usize, place: usize, outside: f64 },
    /// Whether the place is inside.
    Inside { place: usize },
    /// The offset of the place itself.
    Index { place: usize },
    /// An argument.
    Scalar(f64),
    /// A constant in the source.
    Literal(f64),
}

impl Slot {
    fn place(self) -> Option<usize> {
        match self {
            Slot::Tensor { place, .. } | Slot::Inside { place } | Slot::Index { place } => Some(place),
            Slot::Scalar(_) | Slot::Literal(_) => None,
        }
    }
}

/// A slot that is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) slot: usize,
    pub(super) tensor: usize,
    pub(super) place: usize,
}

/// A kernel in C, and the arguments of one launch of it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) arguments: Arguments,
    /// Blocks to launch.
    pub(super) blocks: u32,
}

/// The most blocks that are launched: enough for any device. Each then goes on to other groups.
const MOST_BLOCKS: u64 = 1 << 14;

/// Arguments and text grow together: what the text reads is what the arguments hold.
struct Writer<'a> {
    work: &'a Work<'a>,
    arguments: Arguments,
    /// The bounds of all places, without doubles and strides.
    bounds: Vec<Bound>,
    body: String,
    /// Spaces before a line.
    indent: usize,
}

/// Places that are the same but for strides have the same bounds.
fn unique(loops: &Loops) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for bound in loops.places.iter().flat_map(|place| &place.bounds) {
        let bound = Bound { stride: 0, ..bound.clone() };
        if !bounds.contains(&bound) {
            bounds.push(bound);
        }
    }
    bounds
}

impl Source {
    /// The kernel of that work. There is a group, and the caller has seen that everything can be counted.
    pub(super) fn new(work: &Work<'_>, mut program: Text) -> Source {
        let blocks = work.groups.div_ceil(u64::from(work.mapping.side));
        let launched = blocks.min(MOST_BLOCKS);
        let mut writer = Writer {
            work,
            arguments: Arguments::default(),
            bounds: unique(work.loops),
            body: String::new(),
            indent: 2,
        };
        writer.write(blocks, launched, &program);
        let text = writer.text(&mut program);
        Source { text, arguments: writer.arguments, blocks: launched as u32 }
    }
}

impl Writer<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.body += &format!("{:1$}{line}\n", "", self.indent);
    }

    fn open(&mut self, line: std::fmt::Arguments<'_>) {
        self.line(line);
        self.indent += 2;
    }

    fn close(&mut self) {
        self.indent -= 2;
        self.line(format_args!("}}"));
    }

    fn index(&mut self, name: &str, value: i64) {
        self.arguments.index(self.work.wide, name, value);
    }

    fn groups(&self) -> Range<usize> {
        0..self.work.loops.split
    }

    fn members(&self) -> Range<usize> {
        self.work.loops.split..self.work.loops.extents.len()
    }

    /// The loop that goes in fours, if one does.
    fn inner(&self) -> Option<usize> {
        self.work.fours.then(|| self.work.loops.extents.len() - 1)
    }

    /// Whether the innermost loop ends within four.
    fn tail(&self) -> bool {
        self.inner().is_some_and(|inner| !self.work.loops.extents[inner].is_multiple_of(4))
    }

    /// Steps of a loop.
    fn extent(&self, l: usize) -> u64 {
        let extent = self.work.loops.extents[l];
        if self.inner() == Some(l) { extent.div_ceil(4) } else { extent }
    }

    /// Steps that the lanes of a group share.
    fn steps(&self) -> u64 {
        let Work { members, .. } = *self.work;
        self.inner().map_or(members, |inner| members / self.work.loops.extents[inner] * self.extent(inner))
    }

    /// The step of a loop.
    fn counter(&self, l: usize) -> String {
        if self.inner() == Some(l) { "four".to_owned() } else { format!("j{l}") }
    }

    /// Whether four members lie side by side in a place without bounds.
    fn is_side_by_side(&self, place: usize) -> bool {
        let place = &self.work.loops.places[place];
        self.inner().is_some_and(|inner| place.strides[inner] == 1 && place.bounds.is_empty())
    }

    /// Whether groups go on beyond the last one.
    fn ragged(&self) -> bool {
        self.work.mapping.side > 1
    }

    fn write(&mut self, blocks: u64, launched: u64, program: &Text) {
        let work = self.work;
        for (t, element) in work.reads.iter().enumerate() {
            self.arguments.pointer(&format!("const {}", element.c_type()), &format!("r{t}"));
        }
        for (t, element) in work.writes.iter().enumerate() {
            self.arguments.pointer(element.c_type(), &format!("w{t}"));
        }
        self.pointers();
        self.index("members", self.steps() as i64);
        if let Some(inner) = self.inner().filter(|_| self.tail()) {
            self.index("inner", work.loops.extents[inner] as i64);
        }
        self.index("blocks", blocks as i64);
        self.index("step", launched as i64);
        let Mapping { side, lanes, lanes_first } = work.mapping;
        let thread = "count(__builtin_amdgcn_workitem_id_x())";
        let (lane, place) = match (lanes, side, lanes_first) {
            (1, _, _) => ("0".to_owned(), thread.to_owned()),
            (_, 1, _) => (thread.to_owned(), "0".to_owned()),
            (_, _, true) => (format!("{thread} % {lanes}"), format!("{thread} / {lanes}")),
            (_, _, false) => (format!("{thread} / {side}"), format!("{thread} % {side}")),
        };
        self.line(format_args!("const count lane = {lane}, place = {place};"));
        self.steps_of_lanes();
        self.open(format_args!(
            "for (count block = __builtin_amdgcn_workgroup_id_x(); block < count(a.blocks); block += count(a.step)) {{"
        ));
        if self.ragged() {
            self.index("groups", work.groups as i64);
            self.line(format_args!("const bool alive = block * {side} + place < count(a.groups);"));
            self.line(format_args!("const count group = alive ? block * {side} + place : 0;"));
            self.line(format_args!("const count begin = alive ? lane : count(a.members);"));
        } else {
            self.line(format_args!("const bool alive = true;"));
            self.line(format_args!("const count group = block, begin = lane;"));
        }
        self.group_indices();
        self.group_places();
        let mut fold = 0;
        for part in &work.phases {
            self.phase(part, fold);
            fold += part.folds.len();
        }
        if lanes > 1 && fold > 0 {
            // The next groups' values go where these ones' are still read.
            self.line(format_args!("barrier();"));
        }
        self.close();
        for (i, value) in program.scalars.iter().enumerate() {
            self.arguments.real(work.numbers, &format!("p{i}"), f64::from(*value));
        }
        self.arguments.finish();
    }

    /// Declares `r<tensor>_<place>` and `w<tensor>_<place>`: where the indices 0 of a place lie.
    fn pointers(&mut self) {
        let work = self.work;
        let mut named = Vec::new();
        let read = |slot: &Slot| match *slot {
            Slot::Tensor { tensor, place, .. } => Some(('r', tensor, place)),
            _ => None,
        };
        for part in &work.phases {
            named.extend(part.inputs.iter().filter_map(read));
            named.extend(part.stores.iter().map(|target| ('w', target.tensor, target.place)));
        }
        named.sort_unstable();
        named.dedup();
        for (kind, tensor, place) in named {
            let offset = work.loops.places[place].offset;
            let element = if kind == 'r' { work.reads[tensor] } else { work.writes[tensor] };
            let constant = if kind == 'r' { "const " } else { "" };
            let name = format!("{kind}{tensor}_{place}");
            let mut at = String::new();
            if offset != 0 {
                self.arguments.field("long", &format!("{name}_o"), &offset.to_le_bytes());
                at = format!(" + a.{name}_o");
            }
            let c_type = element.c_type();
            self.line(format_args!("{constant}{c_type}* const {name} = a.{kind}{tensor}{at};"));
        }
    }

    /// Declares `l<loop>`, the indices of the first member of this lane, and arguments to go on from there.
    fn steps_of_lanes(&mut self) {
        let (work, members) = (self.work, self.members());
        if members.len() < 2 {
            return;
        }
        let lanes = u64::from(work.mapping.lanes);
        if lanes > 1 {
            self.line(format_args!("count n = lane;"));
        }
        let mut rest = lanes;
        for l in members.clone().skip(1).rev() {
            let extent = self.extent(l);
            self.arguments.divisor(work.wide, &format!("e{l}"), extent);
            if lanes > 1 {
                self.index(&format!("e{l}_w"), (rest % extent) as i64);
                rest /= extent;
                let quotient = quotient(work.wide, "n", &format!("e{l}"));
                self.line(format_args!("const count n{l} = {quotient};"));
                self.line(format_args!("const index l{l} = index(n - n{l} * count(a.e{l}));"));
                self.line(format_args!("n = n{l};"));
            }
        }
        if lanes > 1 {
            self.index(&format!("e{}_w", members.start), rest as i64);
            self.line(format_args!("const index l{} = index(n);", members.start));
        }
    }

    /// Declares `j<loop>` for the groups.
    fn group_indices(&mut self) {
        let (work, groups) = (self.work, self.groups());
        if groups.is_empty() {
            return;
        }
        if groups.len() == 1 {
            return self.line(format_args!("const index j0 = index(group);"));
        }
        self.line(format_args!("count n = group;"));
        for l in groups.skip(1).rev() {
            self.arguments.divisor(work.wide, &format!("e{l}"), work.loops.extents[l]);
            self.line(format_args!("const count n{l} = {};", quotient(work.wide, "n", &format!("e{l}"))));
            self.line(format_args!("const index j{l} = index(n - n{l} * count(a.e{l}));"));
            self.line(format_args!("n = n{l};"));
        }
        self.line(format_args!("const index j0 = index(n);"));
    }

    /// The sum of indices times steps over some loops, with arguments `<name>_<loop>` for the steps.
    fn sum(&mut self, name: &str, steps: &[i64], loops: Range<usize>) -> Vec<String> {
        let mut terms = Vec::new();
        for l in loops {
            match steps[l] {
                0 => {}
                1 => terms.push(format!("j{l}")),
                step => {
                    let name = format!("{name}_{l}");
                    // Several phases may come here.
                    if !self.arguments.has(&name) {
                        self.index(&name, step);
                    }
                    terms.push(format!("j{l} * a.{name}"));
                }
            }
        }
        terms
    }

    /// Declares `x<place>` and `g<bound>`: what the group adds to a place and to the index of a bound.
    fn group_places(&mut self) {
        let work = self.work;
        for (p, place) in work.loops.places.iter().enumerate() {
            let terms = self.sum(&format!("x{p}"), &place.strides, self.groups());
            self.line(format_args!("const index x{p} = {};", plus(terms)));
            for (b, bound) in place.bounds.iter().enumerate().filter(|(_, bound)| bound.stride != 0) {
                self.index(&format!("x{p}_s{b}"), bound.stride);
            }
        }
        for (b, bound) in self.bounds.clone().iter().enumerate() {
            let name = format!("b{b}");
            let mut terms = self.sum(&name, &bound.steps, self.groups());
            if bound.offset != 0 {
                self.index(&format!("{name}_o"), bound.offset);
                terms.push(format!("a.{name}_o"));
            }
            self.index(&format!("{name}_e"), bound.extent.min(i64::MAX as u64) as i64);
            if bound.divisor > 1 {
                self.arguments.divisor(work.wide, &format!("{name}_d"), bound.divisor);
            }
            self.line(format_args!("const index g{b} = {};", plus(terms)));
        }
    }

    /// The bounds of a place: their numbers.
    fn bounds_of(&self, p: usize) -> Vec<usize> {
        let same = |bound: &Bound, other: &Bound| *other == Bound { stride: 0, ..bound.clone() };
        let number = |bound| self.bounds.iter().position(|other| same(bound, other)).expect("all bounds are there");
        self.work.loops.places[p].bounds.iter().map(number).collect()
    }

    /// Declares, for a bound, `i<bound>`, its index in front of the division, `b<bound>`, the one behind it, and `in<bound>`,
    /// whether that is inside.
    fn bound(&mut self, b: usize) {
        let (bound, name) = (self.bounds[b].clone(), format!("b{b}"));
        let mut index = vec![format!("g{b}")];
        index.extend(self.sum(&name, &bound.steps, self.members()));
        self.line(format_args!("const index i{b} = {};", index.join(" + ")));
        if bound.divisor > 1 {
            let n = format!("count(i{b})");
            let quotient = quotient(self.work.wide, &n, &format!("{name}_d"));
            self.line(format_args!("const count b{b} = {quotient};"));
            // The quotient of what is below zero means nothing.
            let divides = format!("i{b} >= 0 && b{b} * count(a.{name}_d) == {n}");
            self.line(format_args!("const bool in{b} = {divides} && b{b} < count(a.{name}_e);"));
        } else {
            self.line(format_args!("const count b{b} = count(i{b});"));
            self.line(format_args!("const bool in{b} = b{b} < count(a.{name}_e);"));
        }
    }

    /// The expression of a place, which means something only within its bounds. These are declared unless they are `known`.
    fn locate(&mut self, p: usize, known: &mut Vec<usize>) -> String {
        let (place, bounds) = (&self.work.loops.places[p], self.bounds_of(p));
        let mut terms = vec![format!("x{p}")];
        terms.extend(self.sum(&format!("x{p}"), &place.strides, self.members()));
        for (i, (b, bound)) in bounds.into_iter().zip(&place.bounds).enumerate() {
            if !known.contains(&b) {
                known.push(b);
                self.bound(b);
            }
            if bound.stride != 0 {
                terms.push(format!("index(b{b}) * a.x{p}_s{i}"));
            }
        }
        terms.join(" + ")
    }

    /// The expression of a place without bounds.
    fn at(&mut self, p: usize) -> String {
        debug_assert!(self.work.loops.places[p].bounds.is_empty(), "bounds are to be declared");
        self.locate(p, &mut Vec::new())
    }

    /// Whether a place with bounds is inside.
    fn inside(&self, p: usize) -> String {
        let bounds: Vec<String> = self.bounds_of(p).iter().map(|b| format!("in{b}")).collect();
        bounds.join(" && ")
    }

    /// Declares `t<slot>`. The bounds of `known` have been declared; the slot's then are too.
    fn input(&mut self, slot: usize, input: Slot, known: &mut Vec<usize>) {
        let mut at = String::new();
        let mut bounded = false;
        if let Some(place) = input.place() {
            at = self.locate(place, known);
            bounded = !self.work.loops.places[place].bounds.is_empty();
        }
        match input {
            Slot::Tensor { tensor, place, outside } => {
                let widen = format!("widen_{}(r{tensor}_{place}[{at}])", self.work.reads[tensor].suffix());
                if bounded {
                    self.line(format_args!("real t{slot} = {};", literal(self.work.numbers, outside)));
                    let inside = self.inside(place);
                    self.line(format_args!("if ({inside}) t{slot} = {widen};"));
                } else {
                    self.line(format_args!("const real t{slot} = {widen};"));
                }
            }
            Slot::Inside { place } if bounded => {
                let inside = self.inside(place);
                self.line(format_args!("const real t{slot} = TRUTH({inside});"));
            }
            Slot::Inside { .. } => self.line(format_args!("const real t{slot} = real(1);")),
            Slot::Index { place } => {
                let offset = self.work.loops.places[place].offset;
                debug_assert_eq!(offset, 0, "indices begin at 0");
                self.line(format_args!("const real t{slot} = real({at});"));
            }
            Slot::Scalar(value) => {
                let name = format!("s{}", self.arguments.scalars.len());
                let offset = self.arguments.real(self.work.numbers, &name, value);
                self.arguments.scalars.push(offset);
                self.line(format_args!("const real t{slot} = a.{name};"));
            }
            Slot::Literal(value) => {
                self.line(format_args!("const real t{slot} = {};", literal(self.work.numbers, value)));
            }
        }
    }

    fn phase(&mut self, part: &Part<'_>, first_fold: usize) {
        for k in part.kept..part.kept + leaves(part) {
            self.line(format_args!("real k{k} = real(0);"));
        }
        self.open(format_args!("{{"));
        for k in 0..part.kept {
            self.line(format_args!("const real t{k} = k{k};"));
        }
        if part.members {
            self.over_members(part, first_fold)
        } else {
            self.once(part)
        }
        self.close();
    }

    fn once(&mut self, part: &Part<'_>) {
        let work = self.work;
        for (s, target) in part.stores.iter().enumerate() {
            self.line(format_args!("{} y{s} = 0;", work.writes[target.tensor].c_type()));
        }
        self.open(format_args!("if (alive) {{"));
        let mut known = Vec::new();
        for (i, input) in part.inputs.iter().enumerate() {
            self.input(part.kept + i, *input, &mut known);
        }
        self.statements(&part.statements);
        for (i, slot) in part.keep.iter().enumerate() {
            self.line(format_args!("k{} = t{slot};", part.kept + i));
        }
        for (s, target) in part.stores.iter().enumerate() {
            let value = self.narrowed(target);
            self.line(format_args!("y{s} = {value};"));
        }
        self.close();
        if part.stores.is_empty() {
            return;
        }
        let reads = part.inputs.iter().any(|input| matches!(input, Slot::Tensor { .. }));
        if work.mapping.lanes > 1 && reads && !part.keep.is_empty() {
            // All lanes have read before the memory is written, which may be the same.
            self.line(format_args!("barrier();"));
        }
        self.open(format_args!("if (alive && lane == 0) {{"));
        for (s, Target { tensor, place, .. }) in part.stores.iter().enumerate() {
            self.line(format_args!("w{tensor}_{place}[x{place}] = y{s};"));
        }
        self.close();
    }

    fn over_members(&mut self, part: &Part<'_>, first_fold: usize) {
        let work = self.work;
        let members = self.members();
        let lanes = work.mapping.lanes;
        let fixed = |slot: &Slot| slot.place().is_none_or(|place| work.loops.places[place].is_fixed(members.start));
        let (fixed, varying): (Vec<_>, Vec<_>) = part.inputs.iter().enumerate().partition(|(_, slot)| fixed(slot));
        for (f, fold) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            self.line(format_args!("{} f{f} = {};", fold.mode.structure(), fold.mode.neutral()));
        }
        // What all members share is read once; there it is if there is a member.
        self.open(format_args!("if (begin < count(a.members)) {{"));
        let mut known = Vec::new();
        for (i, input) in fixed {
            self.input(part.kept + i, *input, &mut known);
        }
        if members.len() > 1 {
            for l in members.clone() {
                let (counter, first) = (self.counter(l), if lanes > 1 { format!("l{l}") } else { "0".to_owned() });
                self.line(format_args!("index {counter} = {first};"));
            }
        }
        let bounded =
            |(_, slot): &(usize, &Slot)| slot.place().is_some_and(|place| !work.loops.places[place].bounds.is_empty());
        if self.inner().is_none() && part.stores.is_empty() && !varying.iter().any(bounded) {
            // The loads of several members are under way at the same time.
            self.line(format_args!("_Pragma(\"unroll 4\")"));
        }
        self.open(format_args!("for (count m = begin; m < count(a.members); m += {lanes}) {{"));
        if members.len() == 1 {
            let counter = self.counter(members.start);
            self.line(format_args!("const index {counter} = index(m);"));
        }
        if self.inner().is_some() {
            self.four_members(part, &varying, first_fold, known);
        } else {
            for (i, input) in varying {
                self.input(part.kept + i, *input, &mut known);
            }
            self.statements(&part.statements);
            self.puts(part, first_fold);
            for target in &part.stores {
                let (Target { tensor, place, .. }, at) = (target, self.at(target.place));
                let value = self.narrowed(target);
                self.line(format_args!("w{tensor}_{place}[{at}] = {value};"));
            }
        }
        self.next_member();
        self.close();
        self.close();
        if part.folds.is_empty() {
            return;
        }
        if lanes > 1 {
            self.tree(part, first_fold);
        }
        let mut k = part.kept;
        for (f, fold) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            self.line(format_args!("k{k} = value(f{f});"));
            if let FoldMode::FirstGreatest { .. } = fold.mode {
                self.line(format_args!("k{} = f{f}.at;", k + 1));
            }
            k += fold.mode.leaves();
        }
    }

    /// Four members: what lies side by side is loaded and stored together.
    fn four_members(&mut self, part: &Part<'_>, varying: &[(usize, &Slot)], first_fold: usize, mut known: Vec<usize>) {
        let inner = self.inner().expect("there is a loop that goes in fours");
        self.line(format_args!("const index first = four * 4;"));
        let within = if self.tail() {
            self.line(format_args!("const bool all = first + 4 <= a.inner;"));
            "if (all || first + k < a.inner) "
        } else {
            ""
        };
        let together = |slot: &Slot| matches!(*slot, Slot::Tensor { place, .. } if self.is_side_by_side(place));
        let (together, single): (Vec<_>, Vec<_>) = varying.iter().partition(|(_, slot)| together(slot));
        let (mut loads, mut each) = (String::new(), String::new());
        for (i, input) in &together {
            let Slot::Tensor { tensor, place, .. } = **input else { unreachable!("only tensors lie side by side") };
            let (slot, at) = (part.kept + i, self.at(place));
            self.line(format_args!("{} v{slot}[4] = {{}};", self.work.reads[tensor].c_type()));
            loads += &format!("load4(v{slot}, r{tensor}_{place} + ({at})); ");
            each += &format!("v{slot}[k] = r{tensor}_{place}[{at} + k]; ");
        }
        let (mut stores, mut each_store) = (String::new(), String::new());
        let (side, apart): (Vec<_>, Vec<_>) =
            part.stores.iter().enumerate().partition(|(_, target)| self.is_side_by_side(target.place));
        for (s, Target { tensor, place, .. }) in &side {
            let at = self.at(*place);
            self.line(format_args!("{} y{s}[4] = {{}};", self.work.writes[*tensor].c_type()));
            stores += &format!("store4(w{tensor}_{place} + ({at}), y{s}); ");
            each_store += &format!("w{tensor}_{place}[{at} + k] = y{s}[k]; ");
        }
        self.fours(inner, &loads, &each);
        self.open(format_args!("EACH {within}{{"));
        self.line(format_args!("const index j{inner} = first + k;"));
        for (i, input) in &together {
            let Slot::Tensor { tensor, .. } = **input else { unreachable!("only tensors lie side by side") };
            let (slot, suffix) = (part.kept + i, self.work.reads[tensor].suffix());
            self.line(format_args!("const real t{slot} = widen_{suffix}(v{slot}[k]);"));
        }
        for (i, input) in &single {
            self.input(part.kept + i, **input, &mut known);
        }
        self.statements(&part.statements);
        self.puts(part, first_fold);
        for (s, target) in &side {
            let value = self.narrowed(target);
            self.line(format_args!("y{s}[k] = {value};"));
        }
        for (_, target) in &apart {
            let (Target { tensor, place, .. }, at) = (target, self.at(target.place));
            let value = self.narrowed(target);
            self.line(format_args!("w{tensor}_{place}[{at}] = {value};"));
        }
        self.close();
        self.fours(inner, &stores, &each_store);
    }

    /// Does something for four members that begin at the index `first`: together, or for each on its own where the loop ends
    /// among them.
    fn fours(&mut self, inner: usize, together: &str, each: &str) {
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

    /// Takes the member's values into the folds.
    fn puts(&mut self, part: &Part<'_>, first_fold: usize) {
        for (f, Fold { mode, slot }) in part.folds.iter().enumerate() {
            let f = first_fold + f;
            match mode {
                FoldMode::FirstGreatest { at } => {
                    let number = self.work.number.expect("there is a place for the number of a member");
                    let number = self.at(number);
                    self.line(format_args!("put(f{f}, t{slot}, t{at}, count({number}));"));
                }
                _ => self.line(format_args!("put(f{f}, t{slot});")),
            }
        }
    }

    /// What is written to a target.
    fn narrowed(&self, target: &Target) -> String {
        format!("narrow_{}(t{})", self.work.writes[target.tensor].suffix(), target.slot)
    }

    fn statements(&mut self, statements: &str) {
        for statement in statements.lines() {
            self.line(format_args!("{}", statement.trim_start()));
        }
    }

    /// From the indices of a member to those of the lane's next one.
    fn next_member(&mut self) {
        let members = self.members();
        if members.len() < 2 {
            return;
        }
        let lanes = self.work.mapping.lanes;
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

    /// Combines what the lanes of a group have: halves of them, pair by pair.
    fn tree(&mut self, part: &Part<'_>, first_fold: usize) {
        let Mapping { side, lanes, .. } = self.work.mapping;
        let folds = first_fold..first_fold + part.folds.len();
        for (f, fold) in folds.clone().zip(part.folds) {
            let (structure, threads) = (fold.mode.structure(), side * lanes);
            self.line(format_args!("static __attribute__((shared)) {structure} shared{f}[{threads}];"));
        }
        self.line(format_args!("const count own = lane * {side} + place;"));
        for f in folds.clone() {
            self.line(format_args!("shared{f}[own] = f{f};"));
        }
        self.line(format_args!("barrier();"));
        self.open(format_args!("for (count half = {}; half > 0; half /= 2) {{", lanes / 2));
        self.open(format_args!("if (lane < half) {{"));
        for f in folds.clone() {
            self.line(format_args!("join(f{f}, shared{f}[own + half * {side}]);"));
            self.line(format_args!("shared{f}[own] = f{f};"));
        }
        self.close();
        self.line(format_args!("barrier();"));
        self.close();
        for f in folds {
            self.line(format_args!("f{f} = shared{f}[place];"));
        }
    }

    fn text(&self, program: &mut Text) -> String {
        let work = self.work;
        let mut definitions: Vec<&FoldMode> = Vec::new();
        for fold in work.phases.iter().flat_map(|part| part.folds) {
            if !definitions.iter().any(|mode| mode.structure() == fold.mode.structure()) {
                definitions.push(&fold.mode);
            }
        }
        let definitions: String = definitions.iter().map(|mode| mode.definition(program)).collect();
        let mut text = arguments::DEVICE.to_owned();
        text += arguments::index_types(work.wide);
        text += &program.prelude();
        if self.body.contains("mulhi(") {
            text += arguments::MULHI;
        }
        if !definitions.is_empty() {
            text += folds::limits(work.numbers);
        }
        text += &definitions;
        if work.mapping.lanes > 1 {
            text += BARRIER;
        }
        if work.fours {
            text += arguments::FOUR;
            text += "#define EACH _Pragma(\"unroll\") for (int k = 0; k < 4; ++k)\n";
        }
        let threads = work.mapping.threads();
        text += &format!("struct Arguments {{\n{}}};\n", self.arguments.declarations);
        text += &format!("extern \"C\" __attribute__((global, amdgpu_flat_work_group_size({threads}, {threads})))\n");
        text += "void grouped(const Arguments a) {\n";
        text += &self.body;
        text += "}\n";
        text
    }
}

fn plus(terms: Vec<String>) -> String {
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

fn leaves(part: &Part<'_>) -> usize {
    part.keep.len() + part.folds.iter().map(|fold| fold.mode.leaves()).sum::<usize>()
}

/// All threads of the block get here before one goes on, and what they have written is seen.
const BARRIER: &str = "DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
}
";
