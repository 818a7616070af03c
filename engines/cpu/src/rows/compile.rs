//! Programs of passes on rows: which values are kept between passes, and a row for each of the others.

use std::collections::HashMap;

use hipdnn_schemas::PointwiseMode;

use super::nest::{Nest, Path};
use super::values::{Turns, Value, ValuePass, Values};
use crate::nodes::reduction::Fold;
use hipdnn_cpu_pointwise::{Function, Parameters, Storage};

/// Number of elements of a row that are worked on together: the rows of a program stay in the second cache, and starting an
/// instruction takes little time beside it.
const CHUNK: usize = 4096;

/// The same where each is of another group, so that there are blocks for several threads.
const CHUNK_OF_GROUPS: usize = 1024;

/// Limit of the views of a kernel: their offsets are on the stack.
pub(super) const MAX_VIEWS: usize = 48;

/// Limit of the rows of a program.
const MAX_ROWS: usize = 24;

/// Bytes of the values that are kept for a group, or for the groups that are worked on together: they stay in the second
/// cache.
const KEPT_BYTES: usize = 64 * 1024;

/// Number of groups that are worth working on together where they are what is vectorized.
const FEWEST_TOGETHER: usize = 64;

/// Cost of a function that is no arithmetic, in loads of a row.
const TRANSCENDENTAL: usize = 16;

/// Cost of a value, in loads of a row, from which on keeping it is cheaper than computing it again.
const WORTH_KEEPING: usize = 5;

/// Place of a row of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Row of the program.
    Row(usize),
    /// Row with one element for each group, for all lanes of the group.
    Same(usize),
    /// Values that are kept for all members: their number.
    Kept(usize),
    /// Elements in memory that are what they are computed with: their view.
    Memory(usize),
    /// The same, of one group's lanes: all groups have them in common.
    Shared(usize),
    /// Elements in memory that take results as they are: their view.
    Output(usize),
}

/// Instruction on rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// Reads the elements of a view.
    Load { view: usize, to: usize },
    /// Fills a row with a number.
    Number { number: f64, to: usize },
    /// Reads what a pass left behind.
    Carried { left: usize, to: usize },
    /// Copies values to a row.
    Copy { from: At, to: usize },
    /// Applies a function; in rows of `f64` with the digits of `f32` if it is `single`.
    Apply { function: Function, operands: [Option<At>; 3], to: At, single: bool },
    /// Computes `eˣ⁻ʸ` of values `x` and `y`, none of which is below its `x`.
    Falling { operands: [At; 2], to: At },
    /// The same of one `y` for each group, and adds the results to what is left behind.
    FallingSum { operands: [At; 2], to: At, left: usize },
    /// Adds the squares of `x - y`, of one `y` for each group, to what is left behind.
    SquaresFrom { operands: [At; 2], left: usize },
    /// Computes `((x - less) · factor) · scale + summand`, of one `less` and one `factor`, or divisor, for each group.
    Normalize { x: At, less: Option<At>, factor: At, divides: bool, scale: Option<At>, summand: Option<At>, to: At },
    /// Rounds a row.
    Round { row: usize, storage: Storage },
    /// Keeps a row for later passes.
    Keep { row: usize, kept: usize },
    /// Repeats each of a row's elements, one for each group, for all lanes of the group.
    Spread { row: usize },
}

/// Pass over rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    pub(super) turns: Turns,
    /// Instructions for what is the same for all members, once for each group; for passes of one turn all. They compute one
    /// element for each group, the first ones of each row.
    pub(super) before: Vec<Move>,
    /// Instructions for each row of members.
    pub(super) body: Vec<Move>,
    /// Reductions: the operator, its operand, and the number of what is left behind. Without an operand, an instruction of
    /// the body folds what it computes.
    pub(super) folds: Vec<(Fold, Option<At>, usize)>,
    /// Values that are left behind.
    pub(super) keep: Vec<(At, usize)>,
    /// Values that are stored, with their views.
    pub(super) stores: Vec<(At, usize)>,
}

/// Passes of a kernel over rows.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) passes: Vec<Pass>,
    /// Number of rows of passes for members, and of those of one turn.
    pub(super) rows: [usize; 2],
    /// Number of values that are kept for all members.
    pub(super) kept: usize,
    /// Elements of a row.
    pub(super) chunk: Chunk,
    /// The softmax that the passes are, if they are one.
    pub(super) softmax: Option<Softmax>,
}

/// Passes that compute the softmax of the members of each group, which lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Softmax {
    /// Views of the values and of the results.
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Softmax {
    /// The softmax that these passes are: a fold, a sum of exponentials at the place of the results, and a product with its inverse.
    fn of(passes: &[Pass]) -> Option<Softmax> {
        let [greatest, exponentials, quotients] = passes else { return None };
        let stores_none = passes.iter().all(|pass| pass.stores.is_empty() && pass.keep.is_empty());
        let ([(Fold::Greatest, Some(At::Memory(from)), most)], [(Fold::Sum, None, sum)], []) =
            (&greatest.folds[..], &exponentials.folds[..], &quotients.folds[..])
        else {
            return None;
        };
        let [Move::FallingSum { operands: [x, At::Same(y)], to: At::Output(to), left }] = &exponentials.body[..] else {
            return None;
        };
        let [Move::Carried { left: carried, to: row }] = &exponentials.before[..] else { return None };
        let [
            Move::Carried { left: divisor, to: of_divisor },
            Move::Apply { function, operands: [Some(At::Row(operand)), None, None], to: At::Row(inverse), .. },
        ] = &quotients.before[..]
        else {
            return None;
        };
        let is_product = Move::Normalize {
            x: At::Output(*to),
            less: None,
            factor: At::Same(*inverse),
            divides: false,
            scale: None,
            summand: None,
            to: At::Output(*to),
        };
        let is_one = greatest.before.is_empty()
            && greatest.body.is_empty()
            && *x == At::Memory(*from)
            && (carried, row, left) == (most, y, sum)
            && (divisor, of_divisor) == (sum, operand)
            && function.mode() == PointwiseMode::Reciprocal
            && quotients.body == [is_product];
        (stores_none && is_one).then_some(Softmax { from: *from, to: *to })
    }
}

/// Elements of a row: as many lanes of neighboring groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Number of groups that are worked on together.
    pub(super) together: usize,
    /// Number of lanes of each; all of them where there are several groups.
    pub(super) lanes: usize,
}

impl Chunk {
    /// Largest row of a nest.
    fn of(nest: &Nest) -> Chunk {
        let most = if nest.lanes > 1 { CHUNK } else { CHUNK_OF_GROUPS };
        Chunk { together: (most / nest.lanes).clamp(1, nest.inner), lanes: nest.lanes.min(most) }
    }

    /// True for rows of members, of one group or several.
    fn is_of_members(self) -> bool {
        self.lanes > 1
    }

    /// Number of elements.
    pub(super) fn elements(self) -> usize {
        self.together * self.lanes
    }

    /// Stride of a row's elements along a path; `None` if they lie in no one distance from each other.
    pub(super) fn stride(self, path: &Path) -> Option<usize> {
        match self {
            Chunk { lanes: 1, .. } => Some(path.inner),
            Chunk { together: 1, .. } => Some(path.lane),
            Chunk { lanes, .. } => (path.inner == path.lane * lanes).then_some(path.lane),
        }
    }
}

/// Compiles a kernel's passes.
///
/// # Errors
/// Reason for which there is no program.
pub(super) fn compile(values: &Values, nest: &Nest) -> Result<Compiled, &'static str> {
    if values.views.len() > MAX_VIEWS {
        return Err("it has too many operands");
    }
    let of_members = values.of_members();
    let keeping = Keeping { values, nest, of_members: &of_members };
    let in_place = keeping.in_place();
    let (kept, chunk) = match in_place {
        Some((value, _)) => (vec![value], keeping.together(1)),
        None => keeping.choose(),
    };
    let number: HashMap<usize, usize> = kept.iter().enumerate().map(|(number, value)| (*value, number)).collect();
    let room = if in_place.is_some() { 0 } else { kept.len() };
    let mut compiled = Compiled { passes: Vec::new(), rows: [0; 2], kept: room, chunk, softmax: None };
    let mut computed: Vec<bool> = vec![false; kept.len()];
    for pass in &values.passes {
        let is_known =
            |value: usize| pass.turns == Turns::PerMember && number.get(&value).is_some_and(|kept| computed[*kept]);
        let needed = values.needed(pass.roots(), is_known);
        let mut program = Program::new(values, (&nest.paths, chunk), pass, needed, |v| number.contains_key(&v));
        for value in &program.needed {
            if is_known(*value) {
                program.places.insert(*value, At::Kept(number[value]));
            }
        }
        let is_early = |value: usize| pass.turns == Turns::PerGroup || !of_members[value];
        let mut before = program.instructions(is_early, &HashMap::new())?;
        let fresh: HashMap<usize, usize> = match pass.turns {
            Turns::PerGroup => HashMap::new(),
            Turns::PerMember => number.iter().filter(|(_, kept)| !computed[**kept]).map(|(v, k)| (*v, *k)).collect(),
        };
        let mut body = program.instructions(|value| !is_early(value), &fresh)?;
        let spread = program.spread(pass, is_early);
        for at in body.iter_mut().flat_map(Move::places) {
            // They are then an element for each lane.
            if let At::Same(row) = *at
                && spread.contains(&row)
            {
                *at = At::Row(row);
            }
        }
        before.extend(spread.into_iter().map(|row| Move::Spread { row }));
        let mut stores: Vec<(usize, usize)> = pass.stores.clone();
        program.store_last(&mut body, pass, &mut stores);
        if stores.is_empty() && pass.folds.is_empty() {
            join_last(&mut body);
        }
        for value in &program.needed {
            if let Some(kept) = fresh.get(value) {
                computed[*kept] = true;
            }
        }
        let rows = &mut compiled.rows[usize::from(pass.turns == Turns::PerGroup)];
        *rows = program.free.len().max(*rows);
        let place = |value: usize| program.places[&value];
        let mut folds: Vec<_> =
            pass.folds.iter().map(|(fold, value, left)| (*fold, Some(place(*value)), *left)).collect();
        fold_last(&mut body, &mut folds, pass);
        if let Some((_, view)) = in_place {
            body.iter_mut().for_each(|step| step.places().for_each(|at| at.keep_in(view)));
            folds.iter_mut().for_each(|(_, at, _)| at.iter_mut().for_each(|at| at.keep_in(view)));
        }
        compiled.passes.push(Pass {
            turns: pass.turns,
            before,
            body,
            folds,
            keep: pass.keep.iter().map(|(value, left)| (place(*value), *left)).collect(),
            stores: stores.iter().map(|(value, view)| (place(*value), *view)).collect(),
        });
    }
    compiled.softmax = Softmax::of(&compiled.passes).filter(|_| nest.members.iter().product::<usize>() == 1);
    Ok(compiled)
}

impl At {
    /// Takes what is kept to be where the results of a view go.
    fn keep_in(&mut self, view: usize) {
        if let At::Kept(_) = self {
            *self = At::Output(view);
        }
    }
}

impl Move {
    /// Places that are read and written by functions.
    fn places(&mut self) -> impl Iterator<Item = &mut At> {
        let (operands, to): (Vec<&mut At>, Option<&mut At>) = match self {
            Move::Apply { operands, to, .. } => (operands.iter_mut().flatten().collect(), Some(to)),
            Move::Falling { operands, to } | Move::FallingSum { operands, to, .. } => {
                (operands.iter_mut().collect(), Some(to))
            }
            Move::SquaresFrom { operands, .. } => (operands.iter_mut().collect(), None),
            Move::Copy { from, .. } => (vec![from], None),
            Move::Normalize { x, less, factor, scale, summand, to, .. } => {
                ([x, factor].into_iter().chain(less).chain(scale).chain(summand).collect(), Some(to))
            }
            Move::Load { .. }
            | Move::Number { .. }
            | Move::Carried { .. }
            | Move::Round { .. }
            | Move::Keep { .. }
            | Move::Spread { .. } => (Vec::new(), None),
        };
        operands.into_iter().chain(to)
    }
}

/// Has the last instruction fold what it computes, where there is one that does.
fn fold_last(body: &mut [Move], folds: &mut [(Fold, Option<At>, usize)], pass: &ValuePass) {
    let Some(last) = body.last_mut() else { return };
    let taken = |at: At| folds.iter().filter(|(_, of, _)| *of == Some(at)).count();
    let (wanted, operands, place) = match *last {
        Move::Falling { operands: [x, y @ At::Same(_)], to } => (Fold::Sum, [x, y], to),
        // Nothing else takes the differences.
        Move::Apply {
            function,
            operands: [Some(x @ (At::Row(_) | At::Memory(_))), Some(y @ At::Same(_)), None],
            to: to @ At::Row(_),
            ..
        } if function.mode() == PointwiseMode::Sub && taken(to) == 1 && pass.stores.is_empty() => {
            (Fold::SumOfSquares, [x, y], to)
        }
        _ => return,
    };
    let fold = folds.iter_mut().find(|(fold, at, _)| *fold == wanted && *at == Some(place));
    let Some((_, at, left)) = fold else { return };
    *last = match wanted {
        Fold::Sum => Move::FallingSum { operands, to: place, left: *left },
        _ => Move::SquaresFrom { operands, left: *left },
    };
    *at = None;
}

/// Makes one instruction of the last ones of a body whose last result alone is taken, if they are steps of a normalization, or
/// the one that multiplies by a factor.
fn join_last(body: &mut Vec<Move>) {
    const MOST: usize = 4;
    for count in (1..=MOST.min(body.len())).rev() {
        let first = body.len() - count;
        // By itself only a product with a factor is such a step: a quotient would be one with the divisor's inverse, and
        // rounded twice.
        if let [Move::Apply { function, .. }] = &body[first..]
            && function.mode() != PointwiseMode::Mul
        {
            return;
        }
        if let Some(joined) = joined(&body[first..]) {
            body.truncate(first);
            body.push(joined);
            return;
        }
    }
}

/// The steps of a normalization as one, if they are some.
fn joined(steps: &[Move]) -> Option<Move> {
    let (mut source, mut less, mut factor, mut scale, mut summand) = (None, None, None, None, None);
    let (mut divides, mut before) = (false, None);
    let mut computed: Vec<At> = Vec::new();
    for step in steps {
        let Move::Apply { function, operands: [Some(a), Some(b), None], to, .. } = step else { return None };
        let mode = function.mode();
        let swaps = matches!(mode, PointwiseMode::Mul | PointwiseMode::Add);
        let is_source = |at: &At| before.map_or(!matches!(at, At::Same(_) | At::Shared(_)), |before| *at == before);
        let (from, with) = match (is_source(a), is_source(b)) {
            (true, false) => (*a, *b),
            (false, true) if swaps => (*b, *a),
            _ => return None,
        };
        // What the steps before have computed is in no row then.
        if computed.contains(&with) {
            return None;
        }
        source.get_or_insert(from);
        let is_same = matches!(with, At::Same(_));
        match mode {
            PointwiseMode::Sub if before.is_none() && is_same => less = Some(with),
            PointwiseMode::Mul | PointwiseMode::Div if factor.is_none() && is_same => {
                (factor, divides) = (Some(with), mode == PointwiseMode::Div);
            }
            PointwiseMode::Mul if factor.is_some() && scale.is_none() && summand.is_none() => scale = Some(with),
            PointwiseMode::Add if factor.is_some() && summand.is_none() => summand = Some(with),
            _ => return None,
        }
        before = Some(*to);
        computed.push(*to);
    }
    Some(Move::Normalize { x: source?, less, factor: factor?, divides, scale, summand, to: before? })
}

/// Choice of the values that are kept between passes.
struct Keeping<'a> {
    values: &'a Values,
    nest: &'a Nest,
    of_members: &'a [bool],
}

impl Keeping<'_> {
    /// Values that are kept, and the rows that are worked on.
    fn choose(&self) -> (Vec<usize>, Chunk) {
        let wanted = self.used_again(|_| true);
        let fewest = if self.nest.along_members { 1 } else { self.fewest_groups() };
        let room = KEPT_BYTES / self.group_bytes().saturating_mul(fewest).max(1);
        let kept = if wanted.len() <= room { wanted } else { self.dearest(wanted, room) };
        let chunk = self.together(kept.len());
        (kept, chunk)
    }

    /// Bytes of a value for all members of a group.
    fn group_bytes(&self) -> usize {
        self.nest.members.iter().product::<usize>().saturating_mul(self.nest.lanes * size_of::<f32>())
    }

    /// Number of groups to work on together where they are what is vectorized.
    fn fewest_groups(&self) -> usize {
        Chunk::of(self.nest).together.min(FEWEST_TOGETHER)
    }

    /// Rows to work on where so many values are kept.
    fn together(&self, kept: usize) -> Chunk {
        let most = Chunk::of(self.nest);
        let room = (KEPT_BYTES / kept.max(1)).checked_div(self.group_bytes()).unwrap_or(0);
        let together = if kept == 0 { most.together } else { most.together.min(room).max(1) };
        Chunk { together, ..most }
    }

    /// The one value that is kept, if it can be where the last pass writes its result, and the view of that: lines of the
    /// result are then fetched while the value is computed, and rows of any length are kept.
    ///
    /// Memory of the result may be that of an operand: behind the pass that computes the value nothing is read but it.
    fn in_place(&self) -> Option<(usize, usize)> {
        let [value] = self.used_again(|_| true)[..] else { return None };
        let (last, before) = self.values.passes.split_last()?;
        let [(stored, view)] = last.stores[..] else { return None };
        let is_small = self.group_bytes().saturating_mul(self.fewest_groups()) <= KEPT_BYTES;
        let is_direct = is_direct(self.values, &self.nest.paths, self.together(1), view);
        if !(self.nest.along_members || is_small) {
            return None;
        }
        if last.turns != Turns::PerMember || !is_direct || !last.folds.is_empty() || stored == value {
            return None;
        }
        let computes = |pass: &ValuePass| {
            pass.turns == Turns::PerMember && self.values.needed(pass.roots(), |_| false).contains(&value)
        };
        let first = before.iter().position(computes)?;
        let is_function = matches!(&self.values.values[value], Value::Apply(function, _) if function.is_direct());
        let reads = |pass: &ValuePass| {
            let needed = self.values.needed(pass.roots(), |known| known == value);
            needed.iter().any(|needed| matches!(self.values.values[*needed], Value::Element(_)))
        };
        let stores = before.iter().any(|pass| !pass.stores.is_empty());
        let is_alone = !stores && !self.values.passes[first + 1..].iter().any(reads);
        (is_function && is_alone).then_some((value, view))
    }

    /// The dearest values for which there is room, and of these what is then used again.
    fn dearest(&self, mut wanted: Vec<usize>, room: usize) -> Vec<usize> {
        let costs = self.costs();
        wanted.sort_by_key(|value| std::cmp::Reverse(costs[*value]));
        wanted.truncate(room);
        self.used_again(|value| wanted.contains(&value))
    }

    /// Values, among the allowed ones, that a pass for members needs which an earlier one has computed, and which are
    /// worth keeping.
    fn used_again(&self, is_allowed: impl Fn(usize) -> bool) -> Vec<usize> {
        let costs = self.costs();
        let mut kept: Vec<usize> = Vec::new();
        let mut computed = vec![false; self.values.values.len()];
        for pass in self.values.passes.iter().filter(|pass| pass.turns == Turns::PerMember) {
            let is_known = |value: usize| {
                computed[value] && self.of_members[value] && costs[value] >= WORTH_KEEPING && is_allowed(value)
            };
            let needed = self.values.needed(pass.roots(), is_known);
            kept.extend(needed.iter().copied().filter(|value| is_known(*value)));
            needed.into_iter().for_each(|value| computed[value] = true);
        }
        kept.sort_unstable();
        kept.dedup();
        kept
    }

    /// Cost of each value, in loads of a row.
    fn costs(&self) -> Vec<usize> {
        let chunk = Chunk::of(self.nest);
        let mut costs: Vec<usize> = Vec::with_capacity(self.values.values.len());
        for (value, of_members) in self.values.values.iter().zip(self.of_members) {
            costs.push(match value {
                _ if !of_members => 0,
                Value::Element(view) if is_direct(self.values, &self.nest.paths, chunk, *view) => 1,
                Value::Element(_) => 4,
                Value::Apply(function, operands) => {
                    weight(function) + operands.iter().map(|operand| costs[*operand]).sum::<usize>()
                }
                Value::Round(_, operand) => 4 + costs[*operand],
                Value::Carried(_) | Value::Number(_) => 0,
            });
        }
        costs
    }
}

/// Cost of a function, in loads of a row.
fn weight(function: &Function) -> usize {
    use PointwiseMode::*;
    match function.mode() {
        Identity | Abs | Neg | Add | Sub | Mul | AddSquare | Max | Min | CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt
        | CmpLe | LogicalNot | LogicalAnd | LogicalOr | BinarySelect | ReluFwd | ReluBwd | Ceil | Floor => 2,
        Div | Reciprocal | Sqrt | Rsqrt => 4,
        _ => TRANSCENDENTAL,
    }
}

/// True for elements that rows are computed with where they lie.
fn is_direct(values: &Values, paths: &[Path], chunk: Chunk, view: usize) -> bool {
    values.views[view].storage == Storage::F32 && chunk.stride(&paths[view]) == Some(1)
}

/// Program of a pass, while rows are assigned.
struct Program<'a> {
    values: &'a Values,
    paths: &'a [Path],
    chunk: Chunk,
    turns: Turns,
    /// Values that are needed, operands first.
    needed: Vec<usize>,
    /// Values that are needed behind the program, and those of them that are stored.
    roots: Vec<usize>,
    stored: Vec<usize>,
    places: HashMap<usize, At>,
    /// Differences that only an exponential of this pass reads, which computes them itself.
    within: Vec<usize>,
    /// Sums of such exponentials whose inverse is what the pass reads.
    inverted: Vec<usize>,
    /// Rows of one element for each group that something reads for all lanes.
    spread: Vec<usize>,
    /// True for each row that has no value.
    free: Vec<bool>,
}

impl<'a> Program<'a> {
    fn new(
        values: &'a Values,
        (paths, chunk): (&'a [Path], Chunk),
        pass: &ValuePass,
        needed: Vec<usize>,
        is_kept: impl Fn(usize) -> bool,
    ) -> Program<'a> {
        let stored = pass.stores.iter().map(|(value, _)| *value).collect();
        let roots = pass.roots().collect();
        let (places, free) = (HashMap::new(), Vec::new());
        let (within, inverted, spread, turns) = (Vec::new(), Vec::new(), Vec::new(), pass.turns);
        let mut program =
            Program { values, paths, chunk, turns, needed, roots, stored, places, within, inverted, spread, free };
        if pass.turns == Turns::PerMember {
            let readers = |value: usize| -> Vec<usize> {
                let all = program.needed.iter().copied();
                all.filter(|reader| program.operands(*reader).contains(&value)).collect()
            };
            let is_inner = |value: usize| !program.roots.contains(&value) && !is_kept(value);
            let difference = |value: usize| {
                let is_computed = values.falling(value)?.iter().all(|operand| program.needed.contains(operand));
                is_computed.then(|| program.operands(value)[0])
            };
            let within = program.needed.iter().filter_map(|value| Some((*value, difference(*value)?)));
            let within = within.filter(|(value, inner)| is_inner(*inner) && readers(*inner) == [*value]);
            let within: Vec<usize> = within.map(|(_, inner)| inner).collect();
            let divides = |reader: &usize, sum: usize| match &values.values[*reader] {
                Value::Apply(function, operands) => {
                    function.mode() == PointwiseMode::Div && operands[0] != sum && operands[1] == sum
                }
                _ => false,
            };
            let inverted = program.needed.iter().copied().filter(|value| {
                values.is_sum_of_falling(*value)
                    && is_inner(*value)
                    && readers(*value).iter().all(|reader| divides(reader, *value))
            });
            (program.inverted, program.within) = (inverted.collect(), within);
        }
        program
    }

    /// True if the value is an exponential that computes the difference in its exponent itself.
    fn is_falling(&self, value: usize) -> bool {
        match &self.values.values[value] {
            Value::Apply(_, operands) => {
                operands.len() == 1 && self.within.contains(&operands[0]) && self.values.falling(value).is_some()
            }
            _ => false,
        }
    }

    /// True for elements of a view that all groups have in common, and that arithmetic alone reads, which takes them where
    /// they lie.
    fn is_shared(&self, value: usize, view: usize) -> bool {
        let path = &self.paths[view];
        let lies = self.values.views[view].storage == Storage::F32 && (path.inner, path.lane) == (0, 1);
        let takes = |reader: usize| match &self.values.values[reader] {
            Value::Apply(function, _) => function.arithmetic().is_some() && !self.is_falling(reader),
            _ => false,
        };
        let mut readers = self.needed.iter().filter(|reader| self.operands(**reader).contains(&value));
        let is_row = self.turns == Turns::PerMember && self.chunk.is_of_members();
        is_row && lies && !self.roots.contains(&value) && readers.all(|reader| takes(*reader))
    }

    fn take(&mut self) -> Result<usize, &'static str> {
        let row = self.free.iter().position(|free| *free).unwrap_or_else(|| {
            self.free.push(true);
            self.free.len() - 1
        });
        self.free[row] = false;
        if self.free.len() > MAX_ROWS { Err("it has too many values at a time") } else { Ok(row) }
    }

    fn operands(&self, value: usize) -> &'a [usize] {
        match &self.values.values[value] {
            Value::Apply(_, operands) if self.is_falling(value) => self.values.falling(value).unwrap_or(operands),
            Value::Apply(_, operands) => operands,
            Value::Round(_, operand) => std::slice::from_ref(operand),
            Value::Carried(_) | Value::Element(_) | Value::Number(_) => &[],
        }
    }

    /// Instructions for the needed values of one part of the program, and rows for them; `keep` has those that are kept
    /// for later passes. Values that the other part reads stay where they are.
    fn instructions(
        &mut self,
        is_part: impl Fn(usize) -> bool,
        keep: &HashMap<usize, usize>,
    ) -> Result<Vec<Move>, &'static str> {
        let list: Vec<usize> =
            self.needed.iter().copied().filter(|v| is_part(*v) && !self.places.contains_key(v)).collect();
        let list: Vec<usize> = list.into_iter().filter(|value| !self.within.contains(value)).collect();
        // Place in the list of the last reader of each value of this part; none where it is read later.
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (place, value) in list.iter().enumerate() {
            last.extend(self.operands(*value).iter().map(|operand| (*operand, place)));
        }
        let stays = |program: &Program<'_>, value: usize| {
            let read_later = |reader: &usize| !is_part(*reader) && program.operands(*reader).contains(&value);
            !is_part(value) || program.roots.contains(&value) || program.needed.iter().any(read_later)
        };
        let mut moves = Vec::new();
        for (place, value) in list.iter().copied().enumerate() {
            let dies =
                |program: &Program<'_>, operand: usize| last.get(&operand) == Some(&place) && !stays(program, operand);
            let at = match &self.values.values[value] {
                // What is stored as it is has to be read before the first store, which may be to the same memory.
                Value::Element(view)
                    if self.turns == Turns::PerMember
                        && !self.stored.contains(&value)
                        && is_direct(self.values, self.paths, self.chunk, *view) =>
                {
                    self.places.insert(value, At::Memory(*view));
                    continue;
                }
                Value::Element(view) if self.is_shared(value, *view) => {
                    self.places.insert(value, At::Shared(*view));
                    continue;
                }
                Value::Element(view) => {
                    let to = self.take()?;
                    moves.push(Move::Load { view: *view, to });
                    At::Row(to)
                }
                Value::Number(number) => {
                    let to = self.take()?;
                    moves.push(Move::Number { number: *number, to });
                    At::Row(to)
                }
                Value::Carried(left) => {
                    let to = self.take()?;
                    moves.push(Move::Carried { left: *left, to });
                    if self.inverted.contains(&value) {
                        let function = Function::new(PointwiseMode::Reciprocal, &Parameters::default());
                        let function = function.expect("the mode is set");
                        let operands = [Some(At::Row(to)), None, None];
                        moves.push(Move::Apply { function, operands, to: At::Row(to), single: false });
                    }
                    At::Row(to)
                }
                Value::Round(storage, operand) => {
                    let row = self.first(*operand, dies(self, *operand), &mut moves)?;
                    moves.push(Move::Round { row, storage: *storage });
                    At::Row(row)
                }
                Value::Apply(function, _) => {
                    let operands = self.operands(value);
                    let dying: Vec<usize> = operands.iter().copied().filter(|of| dies(self, *of)).collect();
                    let mut places = [None; 3];
                    for (place, operand) in places.iter_mut().zip(operands) {
                        *place = Some(self.places[operand]);
                    }
                    let (is_falling, is_direct) = (self.is_falling(value), self.turns == Turns::PerMember);
                    if is_direct && self.chunk.is_of_members() {
                        let takes_one = is_falling || function.arithmetic().is_some();
                        for (which, (place, operand)) in places.iter_mut().zip(operands).enumerate() {
                            // Values of the other part are one element for each group.
                            if let (false, Some(At::Row(row))) = (is_part(*operand), *place) {
                                match takes_one && (which == 1 || !is_falling) {
                                    true => *place = Some(At::Same(row)),
                                    false => self.spread.push(row),
                                }
                            }
                        }
                    }
                    let is_direct = is_falling || (is_direct && function.is_direct());
                    let to = match (keep.get(&value), dying.first().map(|of| self.places[of])) {
                        (Some(kept), _) => At::Kept(*kept),
                        // In the place of an operand that is not needed any more; of the first one, if others have to
                        // stay until it is computed.
                        (None, Some(row @ At::Row(_)))
                            if is_direct || (dying[0] == operands[0] && !operands[1..].contains(&dying[0])) =>
                        {
                            row
                        }
                        _ => At::Row(self.take()?),
                    };
                    if is_falling {
                        let [Some(x), Some(y), _] = places else { unreachable!("a difference has two operands") };
                        moves.push(Move::Falling { operands: [x, y], to });
                    } else {
                        let inverts = operands.get(1).is_some_and(|divisor| self.inverted.contains(divisor));
                        let factor =
                            inverts.then(|| Function::new(PointwiseMode::Mul, &Parameters::default())).flatten();
                        // A logarithm of every pixel's sum would take as long in `f64` as all that it is a sum of.
                        let single = weight(function) >= TRANSCENDENTAL;
                        let function = factor.unwrap_or(*function);
                        moves.push(Move::Apply { function, operands: places, to, single });
                    }
                    to
                }
            };
            for operand in self.operands(value) {
                if let (true, At::Row(free)) = (dies(self, *operand), self.places[operand])
                    && At::Row(free) != at
                {
                    self.free[free] = true;
                }
            }
            if let (Some(kept), At::Row(row)) = (keep.get(&value), at) {
                moves.push(Move::Keep { row, kept: *kept });
            }
            self.places.insert(value, at);
        }
        Ok(moves)
    }

    /// Rows of what is computed once that something reads for all lanes.
    fn spread(&self, pass: &ValuePass, is_early: impl Fn(usize) -> bool) -> Vec<usize> {
        if pass.turns == Turns::PerGroup || !self.chunk.is_of_members() {
            return Vec::new();
        }
        let roots = self.roots.iter().filter(|root| is_early(**root)).filter_map(|root| match self.places[root] {
            At::Row(row) => Some(row),
            _ => None,
        });
        let mut rows: Vec<usize> = self.spread.iter().copied().chain(roots).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Has the last instruction write to memory what is all that the pass is for, if it is `f32` side by side there.
    ///
    /// Memory of a result may be an operand's: nothing else reads or writes behind that instruction.
    fn store_last(&self, body: &mut [Move], pass: &ValuePass, stores: &mut Vec<(usize, usize)>) {
        let [(value, view)] = stores[..] else { return };
        let is_row = |to: &At| matches!(to, At::Row(_)) && self.places.get(&value) == Some(to);
        let is_alone = pass.turns == Turns::PerMember && pass.folds.is_empty() && pass.keep.is_empty();
        if !is_alone || !is_direct(self.values, self.paths, self.chunk, view) {
            return;
        }
        match body.last_mut() {
            Some(Move::Apply { function, to, .. }) if function.is_direct() && is_row(to) => *to = At::Output(view),
            Some(Move::Falling { to, .. }) if is_row(to) => *to = At::Output(view),
            _ => return,
        }
        stores.clear();
    }

    /// Row that has an operand, to be overwritten: its own where it is not needed any more, else a copy.
    fn first(&mut self, operand: usize, dies: bool, moves: &mut Vec<Move>) -> Result<usize, &'static str> {
        match self.places[&operand] {
            At::Row(row) if dies => Ok(row),
            from => {
                let to = self.take()?;
                moves.push(Move::Copy { from, to });
                Ok(to)
            }
        }
    }
}
