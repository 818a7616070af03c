//! Addresses of elements, bounds checks and loads.

use std::ops::Range;

use super::{Slot, Writer};
use crate::emit::arguments::quotient;
use crate::emit::grouped::Bound;
use crate::emit::grouped::layout::Loops;
use crate::emit::program::literal;

/// Bounds of all places without duplicates: those that differ only in their stride are one.
pub(super) fn unique(loops: &Loops) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for bound in loops.places.iter().flat_map(|place| &place.bounds) {
        let bound = Bound { stride: 0, ..bound.clone() };
        if !bounds.contains(&bound) {
            bounds.push(bound);
        }
    }
    bounds
}

impl Writer<'_> {
    /// Declares `r<tensor>_<place>` and `w<tensor>_<place>`: addresses of a place at all indices 0.
    pub(super) fn pointers(&mut self) {
        let work = self.work;
        let mut named = Vec::new();
        let read = |slot: &Slot| match *slot {
            Slot::Tensor { tensor, place, .. } => Some(('r', tensor, place)),
            _ => None,
        };
        for part in &work.passes {
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
            let c_type = self.memory_type(element);
            self.line(format_args!("{constant}{c_type}* const {name} = a.{kind}{tensor}{at};"));
        }
    }

    /// Terms of the sum of indices times steps over some loops, with arguments `<name>_<loop>` for the steps.
    pub(super) fn sum(&mut self, name: &str, steps: &[i64], loops: Range<usize>) -> Vec<String> {
        let mut terms = Vec::new();
        for l in loops {
            match steps[l] {
                0 => {}
                1 => terms.push(format!("j{l}")),
                step => {
                    let name = format!("{name}_{l}");
                    // Several passes may come here.
                    if !self.arguments.has(&name) {
                        self.index(&name, step);
                    }
                    terms.push(format!("j{l} * a.{name}"));
                }
            }
        }
        terms
    }

    /// Declares `x<place>` and `g<bound>`: the group's contribution to a place and to the index of a bound.
    pub(super) fn group_places(&mut self) {
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

    /// Numbers of the bounds of a place.
    pub(super) fn bounds_of(&self, p: usize) -> Vec<usize> {
        let same = |bound: &Bound, other: &Bound| *other == Bound { stride: 0, ..bound.clone() };
        let number = |bound| self.bounds.iter().position(|other| same(bound, other)).expect("all bounds are there");
        self.work.loops.places[p].bounds.iter().map(number).collect()
    }

    /// Declares, for a bound, `i<bound>`, its index before the division, `b<bound>`, the index after it, and
    /// `in<bound>`, true if that is in bounds.
    pub(super) fn bound(&mut self, b: usize) {
        let (bound, name) = (self.bounds[b].clone(), format!("b{b}"));
        let mut index = vec![format!("g{b}")];
        index.extend(self.sum(&name, &bound.steps, self.members()));
        // Numbers in the text, so that equal indices of several windows are seen to be equal.
        if let Some(step) =
            self.beside().filter(|_| self.in_lane).map(|beside| bound.steps[beside]).filter(|step| *step != 0)
        {
            index.push(format!("k * {step}"));
        }
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

    /// C expression of a place's offset, which is valid only within its bounds. These are declared unless they are
    /// `known`.
    pub(super) fn locate(&mut self, p: usize, known: &mut Vec<usize>) -> String {
        let (place, bounds) = (&self.work.loops.places[p], self.bounds_of(p));
        let mut terms = vec![format!("x{p}")];
        if let Some(beside) = self.beside().filter(|_| self.in_lane) {
            match place.strides[beside] {
                0 => {}
                1 => terms.push("k".to_owned()),
                _ => terms.push(format!("k * a.x{p}_{beside}")),
            }
        }
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

    /// C expression of the offset of a place without bounds.
    pub(super) fn at(&mut self, p: usize) -> String {
        debug_assert!(self.work.loops.places[p].bounds.is_empty(), "bounds are to be declared");
        self.locate(p, &mut Vec::new())
    }

    /// Parameters of `load` and `store` for `width` elements of a place: their number, and bytes of which their
    /// distance from the beginning of the tensor is a multiple. That is the vector's size, as far as accesses have it,
    /// or the element's. `along` is the loop whose index is a multiple of the width.
    pub(super) fn vector_of(&self, place: usize, width: u64, bytes: usize, along: usize) -> String {
        let Loops { places, extents, .. } = self.work.loops;
        let place = &places[place];
        let strides = place.strides.iter().enumerate().filter(|(l, _)| *l != along && extents[*l] > 1);
        let distances = strides.map(|(_, stride)| *stride).chain(place.bounds.iter().map(|bound| bound.stride));
        let is_whole = distances.chain([place.offset]).all(|distance| distance.unsigned_abs().is_multiple_of(width));
        let at = if is_whole { (width as usize * bytes).min(16) } else { bytes };
        format!("{width}, {at}")
    }

    /// C expression of the in-bounds predicate of a place with bounds.
    pub(super) fn inside(&self, p: usize) -> String {
        let bounds: Vec<String> = self.bounds_of(p).iter().map(|b| format!("in{b}")).collect();
        bounds.join(" && ")
    }

    /// Declares `t<slot>`. Bounds in `known` have been declared; the slot's are added to it.
    pub(super) fn input(&mut self, slot: usize, input: Slot, known: &mut Vec<usize>) {
        let mut at = String::new();
        let mut bounded = false;
        if let Some(place) = input.place() {
            at = self.locate(place, known);
            bounded = !self.work.loops.places[place].bounds.is_empty();
        }
        match input {
            Slot::Tensor { tensor, place, pad_value } => {
                let widen = self.widened(tensor, &format!("r{tensor}_{place}[{at}]"));
                if bounded {
                    self.line(format_args!("real t{slot} = {};", literal(self.work.compute_type, pad_value)));
                    let inside = self.inside(place);
                    // Behind the end of the loop, an index may be in bounds.
                    let within = if self.guarded { "within && " } else { "" };
                    self.line(format_args!("if ({within}{inside}) t{slot} = {widen};"));
                } else {
                    self.line(format_args!("const real t{slot} = {widen};"));
                }
            }
            Slot::InBounds { place } if bounded => {
                let inside = self.inside(place);
                self.line(format_args!("const real t{slot} = ({inside}) ? real(1) : real(0);"));
            }
            Slot::InBounds { .. } => self.line(format_args!("const real t{slot} = real(1);")),
            Slot::Index { place } => {
                let offset = self.work.loops.places[place].offset;
                debug_assert_eq!(offset, 0, "indices begin at 0");
                self.line(format_args!("const real t{slot} = real({at});"));
            }
            Slot::Scalar(value) => {
                let name = format!("s{}", self.arguments.scalars.len());
                let offset = self.arguments.real(self.work.compute_type, &name, value);
                self.arguments.scalars.push(offset);
                self.line(format_args!("const real t{slot} = a.{name};"));
            }
            Slot::Literal(value) => {
                self.line(format_args!("const real t{slot} = {};", literal(self.work.compute_type, value)));
            }
            Slot::Kept => self.line(format_args!("const real t{slot} = e[c][k];")),
        }
    }
}

fn plus(terms: Vec<String>) -> String {
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
