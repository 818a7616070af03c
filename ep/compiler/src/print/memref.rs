//! Stage 5: the flat list of steps on memory.

use std::collections::{HashMap, HashSet};

use hipdnn_schemas::Extents;

use super::executables::{self, Executables};
use super::text::{self, Text};
use super::values;
use super::{Linked, Step};
use crate::ir::{BufferId, Source, ValueId};

/// Prints a program.
pub(super) fn print(linked: &Linked<'_>) -> String {
    let function = linked.function;
    let executables = Executables::of(linked);
    let wholes = values::wholes(linked);
    let mut text = Text::default();
    text.line(0, format_args!("module attributes {{hipdnn.name = {}}} {{", text::quoted(&function.name)));
    globals(linked, &wholes, &mut text);
    executables.declare(&mut text, |step| format!("({})", types(step)));
    let inputs = values::inputs(linked).into_iter().enumerate().map(|(number, id)| {
        let value = function.value(id);
        format!("%in{number}: {}", text::memref(value.data_type, &value.dims))
    });
    let outputs = function.outputs.iter().enumerate().map(|(number, id)| {
        let value = function.value(*id);
        format!("%out{number}: {}", text::memref(value.data_type, &value.dims))
    });
    let arena = std::iter::once(format!("%arena: memref<{}xi8>", linked.arena));
    let arguments = text::joined(inputs.chain(outputs).chain(arena), ", ");
    text.line(
        1,
        format_args!("func.func @main({arguments}) attributes {{hipdnn.workspace = {} : i64}} {{", linked.workspace),
    );
    let mut steps = Steps { linked, text, wholes, bases: HashMap::new(), windows: HashMap::new() };
    for (number, step) in linked.steps.iter().enumerate() {
        let operands: Vec<String> = ordered(step).map(|(uid, id)| steps.window(step, uid, id)).collect();
        let (callee, attributes) = (executables.name(number), executables::call_attributes(number, step));
        let operands = text::joined(operands, ", ");
        steps.text.line(2, format_args!("func.call {callee}({operands}){attributes} : ({}) -> ()", types(step)));
    }
    let mut text = steps.text;
    text.line(2, "return");
    text.line(1, "}");
    text.line(0, "}");
    text.finish()
}

/// Operands, then results.
fn ordered<'s>(step: &'s Step<'_>) -> impl Iterator<Item = (i64, ValueId)> + 's {
    step.operands().chain(step.results())
}

/// Types of a graph's tensors: their strides are the graph's, and where they begin is left to the call.
fn types(step: &Step<'_>) -> String {
    text::joined(
        ordered(step).map(|(uid, _)| {
            let tensor = step.tensor(uid);
            text::strided_memref(tensor.data_type, &tensor.dims, &tensor.strides, "?")
        }),
        ", ",
    )
}

/// The constants that steps read.
fn globals(linked: &Linked<'_>, wholes: &HashMap<BufferId, ValueId>, text: &mut Text) {
    let function = linked.function;
    let mut seen = HashSet::new();
    for (_, id) in linked.steps.iter().flat_map(|step| step.arguments) {
        let Some(buffer) = function.value(*id).buffer else { continue };
        let Source::Constant(bytes) = &function.buffer(buffer).source else { continue };
        if !seen.insert(buffer) {
            continue;
        }
        let (value, name) = (function.value(wholes[&buffer]), format!("constant_{}", buffer.0));
        let dense = text::dense(value.data_type, &value.dims, bytes, &name);
        let kind = text::memref(value.data_type, &value.dims);
        text.line(1, format_args!("memref.global \"private\" constant @{name} : {kind} = {dense}"));
    }
}

struct Steps<'a> {
    linked: &'a Linked<'a>,
    text: Text,
    wholes: HashMap<BufferId, ValueId>,
    /// Buffers that have a name: the name and its type.
    bases: HashMap<BufferId, (String, String)>,
    /// Windows that have a name: by buffer, offset, extents and strides.
    windows: HashMap<(BufferId, i64, Extents, Extents), String>,
}

impl Steps<'_> {
    /// A buffer as memory of elements.
    fn base(&mut self, id: BufferId) -> (String, String) {
        if let Some(base) = self.bases.get(&id) {
            return base.clone();
        }
        let function = self.linked.function;
        let buffer = function.buffer(id);
        let shaped = |value: ValueId| text::memref(function.value(value).data_type, &function.value(value).dims);
        let base = match buffer.source {
            Source::Input(number) => (format!("%in{number}"), shaped(self.wholes[&id])),
            Source::Output(number) => (format!("%out{number}"), shaped(function.outputs[number])),
            Source::Constant(_) => {
                let (name, kind) = (self.text.fresh(), shaped(self.wholes[&id]));
                self.text.line(2, format_args!("{name} = memref.get_global @constant_{} : {kind}", id.0));
                (name, kind)
            }
            Source::Arena => {
                let offset = self.text.fresh();
                self.text.line(2, format_args!("{offset} = arith.constant {} : index", self.linked.places[&id]));
                let (name, kind) = (self.text.fresh(), text::memref(buffer.data_type, &[buffer.elements]));
                let arena = self.linked.arena;
                self.text
                    .line(2, format_args!("{name} = memref.view %arena[{offset}][] : memref<{arena}xi8> to {kind}"));
                (name, kind)
            }
        };
        self.bases.insert(id, base.clone());
        base
    }

    /// A tensor of a step's graph as a window of its buffer.
    fn window(&mut self, step: &Step<'_>, uid: i64, id: ValueId) -> String {
        let (value, tensor) = (self.linked.function.value(id), step.tensor(uid));
        let buffer = value.buffer.expect("arguments have memory");
        let key = (buffer, value.offset, tensor.dims.clone(), tensor.strides.clone());
        if let Some(name) = self.windows.get(&key) {
            return name.clone();
        }
        let (base, kind) = self.base(buffer);
        let exact = text::strided_memref(value.data_type, &tensor.dims, &tensor.strides, value.offset);
        let open = text::strided_memref(value.data_type, &tensor.dims, &tensor.strides, "?");
        let (window, cast) = (self.text.fresh(), self.text.fresh());
        self.text.line(
            2,
            format_args!(
                "{window} = memref.reinterpret_cast {base} to offset: [{}], sizes: [{}], strides: [{}] : {kind} to {exact}",
                value.offset,
                text::joined(&tensor.dims, ", "),
                text::joined(&tensor.strides, ", ")
            ),
        );
        self.text.line(2, format_args!("{cast} = memref.cast {window} : {exact} to {open}"));
        self.windows.insert(key, cast.clone());
        cast
    }
}
