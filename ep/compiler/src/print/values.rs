//! Common part of the stages of values (2 to 4): inputs, windows and results get names in the order in which steps
//! need them; a stage says how each is written.

use std::collections::HashMap;

use super::{Linked, Step};
use crate::ir::{Buffer, BufferId, Def, Source, Value, ValueId};

/// Syntax of a stage. Each function appends lines and gives the new value's name.
pub(super) trait Notation {
    /// A constant of the program, of the extents that it was made with.
    fn constant(&mut self, number: usize, buffer: &Buffer, dims: &[i64]) -> String;

    /// A value without elements, or that nothing is written to.
    fn empty(&mut self, value: &Value) -> String;

    /// A window of a value: `offset` is that of its first element from the first one of `base`.
    fn window(&mut self, base: &str, of: &Value, value: &Value, offset: i64) -> String;

    /// A value whose parts were written one by one; `output` is the run-time output that it is.
    fn assembled(&mut self, whole: &Value, output: Option<usize>, parts: &[(String, &Value)]) -> String;

    /// A step. Gives the names of its results.
    fn step(&mut self, number: usize, step: &Step<'_>, operands: &[String]) -> Vec<String>;
}

/// Run-time inputs in their order: the value that is the whole of each.
pub(super) fn inputs(linked: &Linked<'_>) -> Vec<ValueId> {
    let mut inputs: Vec<(usize, ValueId)> = wholes(linked)
        .into_iter()
        .filter_map(|(buffer, id)| match linked.function.buffer(buffer).source {
            Source::Input(number) => Some((number, id)),
            _ => None,
        })
        .collect();
    inputs.sort_unstable();
    inputs.into_iter().map(|(_, id)| id).collect()
}

/// The value that was made with each buffer.
pub(super) fn wholes(linked: &Linked<'_>) -> HashMap<BufferId, ValueId> {
    let mut wholes = HashMap::new();
    for (index, value) in linked.function.values.iter().enumerate() {
        if let Some(buffer) = value.buffer {
            wholes.entry(buffer).or_insert(ValueId(index as u32));
        }
    }
    wholes
}

/// Writes a program in order of execution. Gives the names of the outputs.
pub(super) fn walk(linked: &Linked<'_>, notation: &mut dyn Notation) -> Vec<String> {
    let mut walk = Walk { linked, notation, wholes: wholes(linked), sources: HashMap::new(), names: HashMap::new() };
    for (number, id) in inputs(linked).into_iter().enumerate() {
        let buffer = linked.function.value(id).buffer.expect("an input has memory");
        walk.sources.insert(buffer, format!("%in{number}"));
    }
    for (number, step) in linked.steps.iter().enumerate() {
        let operands: Vec<String> = step.operands().map(|(_, id)| walk.name(id)).collect();
        let results = walk.notation.step(number, step, &operands);
        for ((_, id), name) in step.results().zip(results) {
            walk.names.insert(id, name);
        }
    }
    linked.function.outputs.iter().map(|id| walk.name(*id)).collect()
}

struct Walk<'a, 'n> {
    linked: &'a Linked<'a>,
    notation: &'n mut dyn Notation,
    wholes: HashMap<BufferId, ValueId>,
    /// Inputs and constants that have a name.
    sources: HashMap<BufferId, String>,
    names: HashMap<ValueId, String>,
}

impl Walk<'_, '_> {
    /// The name of a value, which is written now if it has none yet.
    fn name(&mut self, id: ValueId) -> String {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let name = self.define(id);
        self.names.insert(id, name.clone());
        name
    }

    fn define(&mut self, id: ValueId) -> String {
        let function = self.linked.function;
        let value = function.value(id);
        let buffer = value.buffer.expect("a scalar is no argument");
        match &value.def {
            Def::View(_) => {
                let root = root(self.linked, id);
                let base = self.name(root);
                self.window(&base, root, id)
            }
            Def::Assembled(parts) => {
                let parts: Vec<(String, &Value)> =
                    parts.iter().map(|part| (self.name(*part), function.value(*part))).collect();
                if parts.is_empty() {
                    return self.notation.empty(value);
                }
                let output = match function.buffer(buffer).source {
                    Source::Output(number) => Some(number),
                    _ => None,
                };
                self.notation.assembled(value, output, &parts)
            }
            Def::Source => match function.buffer(buffer).source {
                Source::Input(_) | Source::Constant(_) => {
                    let whole = self.wholes[&buffer];
                    let base = self.source(buffer, whole);
                    self.window(&base, whole, id)
                }
                Source::Arena | Source::Output(_) => self.notation.empty(value),
            },
            // Whose step was left out has no result.
            Def::Op(_) => self.notation.empty(value),
        }
    }

    fn source(&mut self, buffer: BufferId, whole: ValueId) -> String {
        if let Some(name) = self.sources.get(&buffer) {
            return name.clone();
        }
        let function = self.linked.function;
        let name =
            self.notation.constant(buffer.0 as usize, function.buffer(buffer), &function.value(whole).dims.clone());
        self.sources.insert(buffer, name.clone());
        name
    }

    fn window(&mut self, base: &str, of: ValueId, id: ValueId) -> String {
        let (of, value) = (self.linked.function.value(of), self.linked.function.value(id));
        let same = of.dims == value.dims
            && of.offset == value.offset
            && (0..of.dims.len()).all(|axis| of.dims[axis] == 1 || of.strides[axis] == value.strides[axis]);
        if same {
            return base.to_string();
        }
        self.notation.window(base, of, value, value.offset - of.offset)
    }
}

/// The value that is no view, whose memory a view looks at.
fn root(linked: &Linked<'_>, mut id: ValueId) -> ValueId {
    while let Def::View(base) = linked.function.value(id).def {
        id = base;
    }
    id
}
