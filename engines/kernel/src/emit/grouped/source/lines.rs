//! Lines of windows: where a thread has several windows side by side, it loads what they have of a row once, in
//! vectors.

use super::{Slot, Writer};
use crate::emit::program::literal;

/// Bytes of a thread's widest access.
const WIDEST: u64 = 16;

/// What several windows have of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    slot: usize,
    tensor: usize,
    place: usize,
    pad_value: f64,
    /// Which guard of the place the row runs along, unless windows never leave it.
    bound: Option<usize>,
    /// Steps in the row from a window to the next one, and from a member to the next one.
    steps: [u64; 2],
    /// Number of elements.
    length: u64,
    /// Number of elements of a vector, and the first element that is loaded in one.
    width: u64,
    first: u64,
    /// True if vectors lie at multiples of their size from the beginning of the tensor.
    is_whole: bool,
}

impl Line {
    /// Slot of the input.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }
}

impl Writer<'_> {
    /// Line of an input, if its windows have one.
    pub(super) fn line_of(&self, slot: usize, input: &Slot) -> Option<Line> {
        let work = self.work;
        let (beside, inner) = (self.beside()?, self.members().next_back()?);
        let Slot::Tensor { tensor, place, pad_value } = *input else { return None };
        let (at, extents) = (&work.loops.places[place], &work.loops.extents);
        let moves = |steps: &[i64]| steps[beside] != 0 || steps[inner] != 0;
        let mut moving = at.bounds.iter().enumerate().filter(|(_, bound)| moves(&bound.steps));
        let (bound, offset, steps) = match (moving.next(), moving.next(), moves(&at.strides)) {
            (None, None, true) => (None, 0, &at.strides),
            (Some((which, bound)), None, false) if bound.stride == 1 && bound.divisor == 1 => {
                (Some(which), bound.offset, &bound.steps)
            }
            _ => return None,
        };
        let others = |l: &usize| ![beside, inner].contains(l) && extents[*l] > 1;
        if bound.is_some() && (0..extents.len()).filter(others).any(|l| steps[l] != 0) {
            return None;
        }
        let steps = [u64::try_from(steps[beside]).ok()?, u64::try_from(steps[inner]).ok()?];
        let (windows, members) = (self.width(), extents[inner]);
        let length = steps[0] * (windows - 1) + steps[1] * (members - 1) + 1;
        let bytes = work.reads[tensor].bytes() as u64;
        // A vector of windows begins at a multiple of this.
        let period = steps[0] * windows;
        let width = (WIDEST / bytes).min(1 << period.checked_ilog2().map_or(0, |_| period.trailing_zeros()));
        let first = (-offset).rem_euclid(width as i64) as u64;
        let is_even = bound.is_none_or(|which| at.bounds[which].extent.is_multiple_of(width));
        // What no window has is not loaded.
        if steps.contains(&0) || length > windows * members || width < 2 || first + width > length || !is_even {
            return None;
        }
        let strides = (0..extents.len()).filter(others).map(|l| at.strides[l]);
        let guarded = at.bounds.iter().enumerate().filter(|(which, _)| Some(*which) != bound);
        let mut distances = strides.chain(guarded.map(|(_, bound)| bound.stride)).chain([at.offset]);
        let is_whole = distances.all(|distance| distance.unsigned_abs().is_multiple_of(width));
        Some(Line { slot, tensor, place, pad_value, bound, steps, length, width, first, is_whole })
    }

    /// Declares `line<slot>`, the elements of a line as values, padding included, for the members of all loops but the
    /// innermost one.
    pub(super) fn load_line(&mut self, line: &Line) {
        let Line { slot, tensor, place, bound, length, width, first, .. } = *line;
        let at = self.work.loops.places[place].clone();
        let bounds = self.bounds_of(place);
        self.line(format_args!("real line{slot}[{length}];"));
        let pad = literal(self.work.compute_type, line.pad_value);
        self.line(format_args!("_Pragma(\"unroll\") for (int t = 0; t < {length}; ++t) line{slot}[t] = {pad};"));
        self.open(format_args!("{{"));
        let (mut inside, mut terms) = (Vec::new(), vec![format!("x{place}")]);
        let outer = self.members().start..self.work.loops.extents.len() - 1;
        terms.extend(self.sum(&format!("x{place}"), &at.strides, outer));
        for (which, (b, guard)) in bounds.iter().zip(&at.bounds).enumerate() {
            if Some(which) == bound {
                terms.push(format!("g{b}"));
                continue;
            }
            self.bound(*b);
            inside.push(format!("in{b}"));
            if guard.stride != 0 {
                terms.push(format!("index(b{b}) * a.x{place}_s{which}"));
            }
        }
        if !inside.is_empty() {
            self.open(format_args!("if ({}) {{", inside.join(" && ")));
        }
        let from = format!("r{tensor}_{place} + ({})", terms.join(" + "));
        // Vectors begin at multiples of their width, as the row ends at one: all of one are within it, or none.
        let within = |t: u64| match bound {
            Some(which) => format!("if (count(g{0} + {t}) < count(a.b{0}_e)) ", bounds[which]),
            None => String::new(),
        };
        let bytes = self.work.reads[tensor].bytes();
        let apart = if line.is_whole { width as usize * bytes } else { bytes };
        let c_type = self.memory_type(self.work.reads[tensor]);
        let mut t = 0;
        while t < length {
            let within = within(t);
            if t >= first && t + width <= length {
                let value = self.widened(tensor, "v[i]");
                self.open(format_args!("{within}{{"));
                self.line(format_args!("{c_type} v[{width}];"));
                self.line(format_args!("load<{width}, {apart}>(v, {from} + {t});"));
                let each = format!("_Pragma(\"unroll\") for (int i = 0; i < {width}; ++i)");
                self.line(format_args!("{each} line{slot}[{t} + i] = {value};"));
                self.close();
                t += width;
            } else {
                let value = self.widened(tensor, &format!("({from})[{t}]"));
                self.line(format_args!("{within}line{slot}[{t}] = {value};"));
                t += 1;
            }
        }
        if !inside.is_empty() {
            self.close();
        }
        self.close();
    }

    /// Declares `t<slot>`, the value of one of a thread's windows for a member.
    pub(super) fn value_of_line(&mut self, line: &Line) {
        let (Line { slot, steps: [window, member], .. }, inner) = (*line, self.members().end - 1);
        self.line(format_args!("const real t{slot} = line{slot}[k * {window} + j{inner} * {member}];"));
    }
}
