//! Split reductions: where there are few groups of many members, each part of a group is a group of its own, and a
//! second kernel combines the partial results.
//!
//! A kernel gives each group to one block of threads at most. Devices want some hundreds of blocks, several for each of
//! their compute units, so that 64 channels of a million places would leave most of them idle. Where there are enough
//! groups, or so few members that another launch costs more than it saves, works stay as they are.

use std::ops::Range;

use hipdnn_schemas::{DataType, PointwiseMode};
use smallvec::{SmallVec, smallvec};

use super::build::{Body, Combine, Kernel, Value};
use super::statistics::{Pair, PairOfParts, Part, Pivot, Reference};
use crate::emit::grouped::{Fold, ReduceOp};
use crate::ir::group::{AffineExpr, GroupKernel, GroupWork, IndexMap, Input, Local, Operand, Pass};

/// Thresholds of splitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Number of groups from which on nothing is split.
    pub(super) groups: usize,
    /// Number of members of a group up to which nothing is split.
    pub(super) members: usize,
    /// Minimum number of members of a part.
    pub(super) part: usize,
}

/// With a thousand groups every compute unit has a block. A block goes through some ten thousand members in the time
/// that another launch takes. A part has enough members that each thread of its block reads several.
const LIMITS: Limits = Limits { groups: 1024, members: 64 * 1024, part: 4096 };

/// Members of a part that a few waves keep in registers, so that several passes over a part read it once. Where more
/// waves wait for each other, memory does too: parts of four times as many take a fifth longer.
const RESIDENT: usize = 4 * 1024;

/// Members of all groups that blocks of a device go through at the same time, one block a compute unit, from which on
/// a second pass finds little of them in caches.
const UNCACHED: usize = 1 << 24;

/// Splits the kernels beyond the thresholds.
pub(super) fn split(work: GroupWork) -> GroupWork {
    split_by(work, LIMITS, false)
}

pub(super) fn split_by(work: GroupWork, limits: Limits, is_shifted: bool) -> GroupWork {
    let sums = work.partial;
    split_where(work, &|kernel| {
        let parts = limits.parts(count(&kernel.groups), count(&kernel.members))?;
        Some(Cut { parts, sums, is_shifted })
    })
}

impl Limits {
    /// Number of parts of groups that are so few that they are to be cut.
    fn parts(&self, groups: usize, members: usize) -> Option<usize> {
        let wanted = self.groups.div_ceil(groups.max(1)).min(members / self.part);
        (groups < self.groups && members > self.members && wanted >= 2).then_some(wanted)
    }
}

/// True if so few groups of so many members are cut into parts, whatever the device.
pub(crate) fn is_cut(groups: usize, members: usize) -> bool {
    LIMITS.parts(groups, members).is_some()
}

/// Number of parts of a kernel's groups on a device of that many compute units (0: not known), if they are to be cut:
/// where they are few, or where several passes over each would read it from memory as often.
pub(crate) fn parts(kernel: &GroupKernel, compute_units: usize) -> Option<usize> {
    let (groups, members) = (count(&kernel.groups), count(&kernel.members));
    let few = LIMITS.parts(groups, members);
    let is_pair = (0..kernel.passes.len()).any(|first| Pair::of(kernel, first).is_some());
    let is_uncached = members.saturating_mul(compute_units) >= UNCACHED;
    if !is_pair || (few.is_none() && !is_uncached) {
        return few;
    }
    let wanted = few.unwrap_or(0).max(members.div_ceil(RESIDENT));
    // Parts of several sizes would be read for each fold.
    let is_even = wanted >= 2 && Parts::new(kernel, wanted).hangs_over.is_none();
    if is_even { Some(wanted) } else { few }
}

/// Partition of a kernel's groups into parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Number of parts of each group, about.
    pub(crate) parts: usize,
    /// Type in which partial results are stored.
    pub(crate) sums: DataType,
    /// True if differences from a mean and their squares are summed in one pass over a part, from its first member: for types
    /// whose own rounding hides what that loses (see [`super::statistics`]).
    pub(crate) is_shifted: bool,
}

/// Splits each group of the kernels for which there is a cut.
pub(crate) fn split_where(mut work: GroupWork, cut: &dyn Fn(&GroupKernel) -> Option<Cut>) -> GroupWork {
    let kernels = std::mem::take(&mut work.kernels);
    for kernel in kernels {
        let Some(cut) = cut(&kernel) else {
            work.kernels.push(kernel);
            continue;
        };
        let parts = Parts::new(&kernel, cut.parts);
        let mut splitter = Splitter { kernel: &kernel, parts, cut, work: &mut work, places: Vec::new() };
        splitter.run();
    }
    work
}

fn count(extents: &[usize]) -> usize {
    extents.iter().fold(1, |product: usize, extent| product.saturating_mul(*extent))
}

/// Affine map of a kernel's loop indices to those of another kernel: a sum of (loop, factor) terms for each loop.
pub(super) struct LoopMap {
    /// Number of loops of the other kernel.
    loops: usize,
    /// Terms of each loop of the first kernel.
    terms: Vec<Vec<(usize, i64)>>,
}

impl LoopMap {
    /// Map of so many loops to those of the same numbers.
    pub(super) fn identity(loops: usize) -> LoopMap {
        LoopMap { loops, terms: (0..loops).map(|which| vec![(which, 1)]).collect() }
    }

    /// Map of the loops over groups to those of the same numbers among `loops`, and of the loops over members to none: along
    /// members there is one place.
    pub(super) fn of_groups(kernel: &GroupKernel, loops: usize) -> LoopMap {
        let groups = (0..kernel.groups.len()).map(|which| vec![(which, 1)]);
        LoopMap { loops, terms: groups.chain(kernel.members.iter().map(|_| Vec::new())).collect() }
    }

    pub(super) fn at(&self, at: &IndexMap) -> IndexMap {
        at.iter().map(|line| self.line(line)).collect()
    }

    fn line(&self, line: &AffineExpr) -> AffineExpr {
        let mut steps: SmallVec<_> = smallvec![0; self.loops];
        for (terms, step) in self.terms.iter().zip(&line.steps) {
            for (which, factor) in terms {
                steps[*which] += step * factor;
            }
        }
        AffineExpr { steps, ..*line }
    }

    fn input(&self, body: &mut Body, input: &Input) -> Value {
        match input {
            Input::Element { of, at, pad_value } => {
                body.input(Input::Element { of: *of, at: self.at(at), pad_value: *pad_value })
            }
            Input::InBounds { dims, at } => body.input(Input::InBounds { dims: dims.clone(), at: self.at(at) }),
            Input::Index(which) => {
                let mut sum = None;
                for (which, factor) in &self.terms[*which] {
                    let mut term = body.input(Input::Index(*which));
                    if *factor != 1 {
                        let factor = body.number(*factor as f64);
                        term = body.mul(term, factor);
                    }
                    sum = Some(sum.map_or(term, |sum| body.add(sum, term)));
                }
                sum.unwrap_or_else(|| body.literal(0.0))
            }
            Input::Literal(_) | Input::Number(_) => body.input(input.clone()),
        }
    }

    /// Adds a pass's program; returns the values of its slots. `left` are the values that earlier passes have left
    /// behind.
    pub(super) fn program(&self, body: &mut Body, pass: &Pass, left: &[Value]) -> Vec<Value> {
        let mut slots = left.to_vec();
        slots.extend(pass.inputs().iter().map(|input| self.input(body, input)));
        for op in pass.program() {
            let result = body.operation(op.clone(), &slots);
            slots.push(result);
        }
        slots
    }
}

/// Partition of members into parts: whole outer loops number parts, and then one loop is split into pieces.
struct Parts {
    /// Extents of the loops that number parts.
    outer: Vec<usize>,
    /// Extents of the loops that number a part's members.
    inner: Vec<usize>,
    /// Map of the original loops to those of a part.
    map: LoopMap,
    /// Extent and index of the split loop, where the last piece is not full.
    hangs_over: Option<(usize, AffineExpr)>,
}

impl Parts {
    fn new(kernel: &GroupKernel, wanted: usize) -> Parts {
        let (groups, members) = (kernel.groups.len(), &kernel.members);
        let mut missing = wanted;
        let whole = members.iter().take_while(|extent| {
            let fits = **extent <= missing;
            missing = if fits { missing / (**extent).max(1) } else { missing };
            fits
        });
        let whole = whole.count();
        let (mut outer, mut inner) = (members[..whole].to_vec(), members[whole..].to_vec());
        let cut = inner.first().copied().filter(|_| missing > 1);
        let mut terms: Vec<Vec<(usize, i64)>> = (0..groups + whole).map(|which| vec![(which, 1)]).collect();
        let Some(extent) = cut else {
            terms.extend((groups + whole..groups + members.len()).map(|which| vec![(which, 1)]));
            return Parts { outer, inner, map: LoopMap { loops: groups + members.len(), terms }, hangs_over: None };
        };
        let piece = piece(extent, missing);
        outer.push(extent.div_ceil(piece));
        inner[0] = piece;
        let loops = groups + members.len() + 1;
        terms.push(vec![(groups + whole, piece as i64), (groups + whole + 1, 1)]);
        terms.extend((groups + whole + 2..loops).map(|which| vec![(which, 1)]));
        let map = LoopMap { loops, terms };
        let index = map.line(&AffineExpr::along(groups + members.len(), groups + whole));
        let hangs_over = (extent % piece != 0).then_some((extent, index));
        Parts { outer, inner, map, hangs_over }
    }

    /// The map of the original loops to the first member of a part.
    fn first_members(&self) -> LoopMap {
        let LoopMap { loops, terms } = &self.map;
        let inner = loops - self.inner.len();
        let first = |terms: &Vec<(usize, i64)>| terms.iter().copied().filter(|(which, _)| *which < inner).collect();
        LoopMap { loops: *loops, terms: terms.iter().map(first).collect() }
    }
}

/// Length of the pieces of a loop that is cut into `parts` (two or more). A last piece that is not full would be guarded, and
/// so would be all others: rather up to a third more parts, or up to nine twentieths fewer.
fn piece(extent: usize, parts: usize) -> usize {
    let near = (11 * parts).div_ceil(20).max(2)..=(4 * parts / 3).min(extent);
    let nearest = near.filter(|pieces| extent.is_multiple_of(*pieces)).min_by_key(|pieces| pieces.abs_diff(parts));
    nearest.map_or(extent.div_ceil(parts), |pieces| extent / pieces)
}

/// Limit of pivots: squares of differences from one do not leave the range of `f32`, however many are summed.
const MOST_PIVOT: f64 = 1e15;

/// Adds a pass with the slot that the only fold of another one sums, of a group's first member; 0 if it is no number or beyond
/// [`MOST_PIVOT`].
pub(super) fn member(kernel: &mut Kernel, first: &LoopMap, head: &Pass, left: &[Value]) -> Value {
    let Pass::Reduce { folds, .. } = head else { unreachable!("a pair is one of folds") };
    let [member] = kernel.once(|body| {
        let member = first.program(body, head, left)[folds[0].slot];
        let (square, most) = (body.mul(member, member), body.literal(MOST_PIVOT * MOST_PIVOT));
        let (is_within, zero) = (body.op(PointwiseMode::CmpLt, &[square, most]), body.literal(0.0));
        [body.select(is_within, member, zero)]
    });
    member
}

struct Splitter<'a> {
    kernel: &'a GroupKernel,
    parts: Parts,
    cut: Cut,
    work: &'a mut GroupWork,
    /// Memory of each value that passes have left behind so far; `None` if no later kernel reads it.
    places: Vec<Option<Operand>>,
}

impl Splitter<'_> {
    fn run(&mut self) {
        let passes = &self.kernel.passes;
        let mut next = 0;
        while next < passes.len() {
            if let Pass::PerMember { .. } = &passes[next] {
                self.each(&passes[next]);
                next += 1;
                continue;
            }
            // What a fold comes to by itself in a part may differ from what it comes to in the whole group, so that a
            // second fold that depends on it is another; with parts of one size there is a way between them.
            let pair = Pair::of(self.kernel, next).filter(|_| self.parts.hangs_over.is_none());
            // A fold, and what is done once with what it comes to.
            let last = pair.as_ref().map_or(next, |pair| pair.second);
            let once = passes[last + 1..].iter().take_while(|pass| matches!(pass, Pass::PerGroup { .. })).count();
            let end = last + 1 + once;
            match pair {
                Some(pair) => self.pair(&pair, next..end),
                None => self.head(next..end),
            }
            next = end;
        }
    }

    /// Adds the kernels of two folds, of which the second goes on from what the first one comes to, and of the scalar
    /// passes behind each: the first kernel goes through a part for both, from what the first fold comes to in the part,
    /// and the second one combines the parts.
    fn pair(&mut self, pair: &Pair, passes: Range<usize>) {
        let (kernel, groups) = (self.kernel, self.kernel.groups.len());
        let before = self.left_before(passes.start);
        let (parts, places) = self.pair_of_parts(pair, passes.start);
        let members = self.parts.outer.clone();
        let loops = groups + members.len();
        let all: IndexMap = (0..loops).map(|which| AffineExpr::along(loops, which)).collect();
        let mut whole = Kernel::new(kernel.groups.clone(), members);
        let load = |body: &mut Body| {
            let mut values = places.iter().map(|place| body.element(*place, all.clone()));
            let own = values.next().expect("a part has a pivot");
            Part { own, sums: values.collect() }
        };
        let total = whole.fold(|body| {
            let part = load(body);
            let first = parts.first(body, &part);
            vec![if parts.pivot == Pivot::Greatest { Combine::Max(first) } else { Combine::Sum(first) }]
        })[0];
        let mut own = vec![total];
        self.once(&mut whole, passes.start + 1..pair.second, &mut own, loops);
        let reference = own[pair.from - before];
        own.extend(whole.fold(|body| {
            let part = load(body);
            let terms = parts.terms(body, &part, reference);
            terms.into_iter().map(Combine::Sum).collect()
        }));
        self.once(&mut whole, pair.second + 1..passes.end, &mut own, loops);
        self.leave(whole, &own, before, passes.end, loops);
    }

    /// Adds the kernel that goes through parts for both folds of a pair; returns the memory of what parts come to: pivots, then
    /// each of the sums.
    fn pair_of_parts(&mut self, pair: &Pair, first: usize) -> (PairOfParts, Vec<Operand>) {
        let (kernel, map) = (self.kernel, &self.parts.map);
        let groups = [&kernel.groups[..], &self.parts.outer].concat();
        let (head, second) = (&kernel.passes[first], &kernel.passes[pair.second]);
        let (Pass::Reduce { folds: of_head, .. }, Pass::Reduce { folds, .. }) = (head, second) else {
            unreachable!("a pair is one of folds")
        };
        let mut part = Kernel::new(groups.clone(), self.parts.inner.clone());
        let left = self.load(&mut part, head, map.loops);
        let members = count(&self.parts.inner) as f64;
        let pivot = match pair.reference {
            Reference::Greatest => Pivot::Greatest,
            Reference::Mean if self.cut.is_shifted => Pivot::Member,
            Reference::Mean => Pivot::Mean,
        };
        let fold = |part: &mut Kernel| {
            part.fold(|body| {
                let slots = map.program(body, head, &left);
                vec![combine(&of_head[0], |slot| slots[slot])]
            })[0]
        };
        let reference = match pivot {
            Pivot::Greatest => fold(&mut part),
            Pivot::Mean => {
                let sum = fold(&mut part);
                let [mean] = part.once(|body| {
                    let members = body.number(members);
                    [body.div(sum, members)]
                });
                mean
            }
            Pivot::Member => member(&mut part, &self.parts.first_members(), head, &left),
        };
        // The second fold reads nothing else of what is left behind.
        let mut values = left;
        values.resize(self.left_before(pair.second), Value::Carried(0));
        values[pair.from] = reference;
        let sums = part.fold(|body| {
            let slots = map.program(body, second, &values);
            let rest = pair.rest().map(|slot| Combine::Sum(slots[slot]));
            folds.iter().map(|fold| combine(fold, |slot| slots[slot])).chain(rest).collect()
        });
        let at: IndexMap = (0..groups.len()).map(|which| AffineExpr::along(map.loops, which)).collect();
        let values = [&[reference][..], &sums].concat();
        let places: Vec<Operand> = values.iter().map(|_| self.local(&groups)).collect();
        part.once(|body| {
            for (value, place) in values.iter().zip(&places) {
                body.store(*value, *place, at.clone());
            }
            []
        });
        self.work.kernels.push(part.finish());
        (PairOfParts { pivot, terms: pair.terms.clone(), members }, places)
    }

    fn local(&mut self, dims: &[usize]) -> Operand {
        self.work.locals.push(Local { dims: dims.to_vec(), data_type: self.cut.sums });
        Operand::Local(self.work.locals.len() - 1)
    }

    /// Number of values that passes before that one have left behind.
    fn left_before(&self, pass: usize) -> usize {
        self.kernel.passes[..pass].iter().map(Pass::leaves).sum()
    }

    /// True if a pass from that one on reads a value that was left behind.
    fn is_read_from(&self, pass: usize, value: usize) -> bool {
        self.kernel.passes[pass..].iter().any(|pass| pass.reads_slot(value))
    }

    /// Index map of a tensor of the groups' extents.
    fn of_group(&self, loops: usize) -> IndexMap {
        (0..self.kernel.groups.len()).map(|which| AffineExpr::along(loops, which)).collect()
    }

    /// Loads the left-behind values that a pass reads; others get the value 0, which it does not read.
    fn load(&self, kernel: &mut Kernel, pass: &Pass, loops: usize) -> Vec<Value> {
        let read: Vec<usize> = (0..self.places.len()).filter(|value| pass.reads_slot(*value)).collect();
        if read.is_empty() {
            return vec![Value::Carried(0); self.places.len()];
        }
        let loaded = kernel.once_list(|body| {
            let load = |value: &usize| {
                let place = self.places[*value].expect("what is read later was written");
                body.element(place, self.of_group(loops))
            };
            read.iter().map(load).collect()
        });
        let mut left = vec![Value::Carried(0); self.places.len()];
        for (value, loaded) in read.into_iter().zip(loaded) {
            left[value] = loaded;
        }
        left
    }

    /// Adds the kernel of a pass that runs for every member: each member is a group. It is element-wise: values that
    /// were left behind are operands like all others.
    fn each(&mut self, pass: &Pass) {
        let all = [&self.kernel.groups[..], &self.kernel.members].concat();
        let map = LoopMap::identity(all.len());
        let mut kernel = Kernel::new(all, Vec::new());
        kernel.each(|body| {
            let load = |(value, place): (usize, &Option<Operand>)| match place {
                Some(place) if pass.reads_slot(value) => body.element(*place, self.of_group(map.loops)),
                _ => Value::Carried(0),
            };
            let left: Vec<Value> = self.places.iter().enumerate().map(load).collect();
            let slots = map.program(body, pass, &left);
            for store in pass.stores() {
                body.store(slots[store.slot], store.to, map.at(&store.at));
            }
        });
        self.work.kernels.push(kernel.finish());
    }

    /// Adds the kernels of a fold, if the first of these passes is one, and of the scalar passes behind it.
    fn head(&mut self, passes: Range<usize>) {
        let first = &self.kernel.passes[passes.start];
        let partial = match first {
            Pass::Reduce { folds, .. } => Some((folds.clone(), self.partial(first, folds))),
            _ => None,
        };
        let members = if partial.is_some() { self.parts.outer.clone() } else { Vec::new() };
        let groups = self.kernel.groups.len();
        let loops = groups + members.len();
        let all: IndexMap = (0..loops).map(|which| AffineExpr::along(loops, which)).collect();
        let once = passes.start + usize::from(partial.is_some());
        let mut kernel = Kernel::new(self.kernel.groups.clone(), members);
        // What was left behind in this kernel.
        let mut own: Vec<Value> = Vec::new();
        let before = self.left_before(passes.start);
        if let Some((folds, places)) = partial {
            own = kernel.fold(|body| {
                let values: Vec<Value> = places.iter().map(|place| body.element(*place, all.clone())).collect();
                let mut values = values.into_iter();
                let mut next = || values.next().expect("every value of the parts was written");
                folds.iter().map(|fold| combine(fold, |_| next())).collect()
            });
        }
        self.once(&mut kernel, once..passes.end, &mut own, loops);
        self.leave(kernel, &own, before, passes.end, loops);
    }

    /// Adds scalar passes to a kernel, and what they leave behind to what was left behind in this kernel.
    fn once(&self, kernel: &mut Kernel, passes: Range<usize>, own: &mut Vec<Value>, loops: usize) {
        let map = LoopMap::of_groups(self.kernel, loops);
        for pass in &self.kernel.passes[passes] {
            let Pass::PerGroup { keep, stores, .. } = pass else { unreachable!("only such follow a fold here") };
            let kept = kernel.once_list(|body| {
                let earlier = |(value, place): (usize, &Option<Operand>)| match place {
                    Some(place) if pass.reads_slot(value) => body.element(*place, self.of_group(loops)),
                    _ => Value::Carried(0),
                };
                let mut left: Vec<Value> = self.places.iter().enumerate().map(earlier).collect();
                left.extend(own.iter());
                let slots = map.program(body, pass, &left);
                for store in stores {
                    body.store(slots[store.slot], store.to, map.at(&store.at));
                }
                keep.iter().map(|slot| slots[*slot]).collect()
            });
            own.extend(kept);
        }
    }

    /// Adds a kernel of groups, which stores what it leaves behind for passes from `end` on: the first of its values is
    /// number `before` of all.
    fn leave(&mut self, mut kernel: Kernel, own: &[Value], before: usize, end: usize, loops: usize) {
        let dims = self.kernel.groups.clone();
        let places: Vec<Option<Operand>> =
            (0..own.len()).map(|value| self.is_read_from(end, before + value).then(|| self.local(&dims))).collect();
        if places.iter().any(Option::is_some) {
            kernel.once(|body| {
                for (value, place) in own.iter().zip(&places) {
                    if let Some(place) = place {
                        body.store(*value, *place, self.of_group(loops));
                    }
                }
                []
            });
        }
        self.places.extend(places);
        self.work.kernels.push(kernel.finish());
    }

    /// Adds the kernel that folds parts; returns the temporaries of the partial results.
    fn partial(&mut self, pass: &Pass, folds: &[Fold]) -> Vec<Operand> {
        let groups = [&self.kernel.groups[..], &self.parts.outer].concat();
        let values: usize = folds.iter().map(|fold| fold.mode.leaves()).sum();
        let places: Vec<Operand> = (0..values).map(|_| self.local(&groups)).collect();
        let map = &self.parts.map;
        let at: IndexMap = (0..groups.len()).map(|which| AffineExpr::along(map.loops, which)).collect();
        let mut kernel = Kernel::new(groups, self.parts.inner.clone());
        let left = self.load(&mut kernel, pass, map.loops);
        let results = kernel.fold(|body| {
            let slots = map.program(body, pass, &left);
            let Some((extent, index)) = &self.parts.hangs_over else {
                return folds.iter().map(|fold| combine(fold, |slot| slots[slot])).collect();
            };
            let inside = body.input(Input::InBounds { dims: vec![*extent], at: [index.clone()].into() });
            let within = |fold: &Fold| {
                let neutral = body.literal(neutral(&fold.mode));
                let value = body.select(inside, slots[fold.slot], neutral);
                combine(fold, |slot| if slot == fold.slot { value } else { slots[slot] })
            };
            folds.iter().map(within).collect()
        });
        kernel.once(|body| {
            for (value, place) in results.iter().zip(&places) {
                body.store(*value, *place, at.clone());
            }
            []
        });
        self.work.kernels.push(kernel.finish());
        places
    }
}

/// Fold over the values that its slots have become.
pub(super) fn combine(fold: &Fold, mut value: impl FnMut(usize) -> Value) -> Combine {
    let of = value(fold.slot);
    match fold.mode {
        ReduceOp::Sum => Combine::Sum(of),
        ReduceOp::Product => Combine::Product(of),
        ReduceOp::Min => Combine::Min(of),
        ReduceOp::Max => Combine::Max(of),
        ReduceOp::ArgMax { at } => Combine::ArgMax(of, value(at)),
    }
}

/// Neutral element of a fold. For the first maximum it comes last, so that real members win.
fn neutral(mode: &ReduceOp) -> f64 {
    match mode {
        ReduceOp::Sum => 0.0,
        ReduceOp::Product => 1.0,
        ReduceOp::Min => f64::INFINITY,
        ReduceOp::Max | ReduceOp::ArgMax { .. } => f64::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_equal_where_few_parts_are_lost() {
        for (extent, parts, want) in [
            (3, 2, 2),
            (7, 2, 4),
            (33, 2, 17),
            (49, 16, 4),
            (100, 7, 20),
            (4096, 37, 128),
            (64, 8, 8),
            (784, 6, 112),
            (28, 12, 2),
        ] {
            assert_eq!(piece(extent, parts), want, "{extent} in {parts}");
        }
    }

    #[test]
    fn parts_are_as_many_as_keep_a_device_busy() {
        for (groups, members, want) in [
            (64, 1 << 20, Some(16)),
            (600, 1 << 20, Some(2)),
            (1023, 1 << 20, Some(2)),
            (1024, 1 << 20, None),
            (1, 65_536, None),
            (1, 65_537, Some(16)),
            (1, 1 << 23, Some(1024)),
            (1, 4096 * 100 - 1, Some(99)),
        ] {
            assert_eq!(LIMITS.parts(groups, members), want, "{groups} groups of {members}");
            assert_eq!(is_cut(groups, members), want.is_some(), "{groups} groups of {members}");
        }
        let softmax = crate::lower::statistics::tests::softmax;
        for (what, kernel, units, want) in [
            ("few groups, in parts that stay in registers", softmax(600, 1 << 17), 0, Some(32)),
            ("few groups, in more parts than that", softmax(1, 1 << 17), 0, Some(32)),
            ("few groups that have no parts of one size", softmax(4, 100_003), 0, Some(24)),
            ("groups that a cache has no room for", softmax(2048, 1 << 17), 128, Some(32)),
            ("groups that it has room for", softmax(2048, 1 << 17), 127, None),
            ("groups that one part has room for", softmax(2048, 4096), 1 << 13, None),
            ("groups of two parts", softmax(2048, 8192), 1 << 13, Some(2)),
        ] {
            assert_eq!(parts(&kernel, units), want, "{what}");
            // One fold alone reads its members once.
            let alone = GroupKernel { passes: kernel.passes[..1].to_vec(), ..kernel };
            let (groups, members) = (alone.groups[0], alone.members[0]);
            assert_eq!(parts(&alone, units), LIMITS.parts(groups, members), "{what}, alone");
        }
    }

    #[test]
    fn pieces_are_of_one_size_where_they_can_be() {
        for (extent, parts, want) in [
            (100, 10, 10),
            (1000, 16, 50),
            (97, 4, 25),
            (12, 2, 6),
            (9, 2, 5),
            (15, 3, 5),
            (14, 3, 7),
            (6, 5, 1),
            (20, 9, 2),
            (77, 20, 7),
            (26, 20, 1),
            (27, 20, 2),
            (1 << 20, 20, 1 << 16),
            (70, 20, 5),
        ] {
            assert_eq!(piece(extent, parts), want, "{extent} in about {parts}");
        }
    }
}
