//! Stage 4: destination-passing style on builtin tensors.

use std::collections::HashMap;

use super::executables::{self, Executables};
use super::text::{self, Text};
use super::values::{self, Notation};
use super::window::{self, Slice};
use super::{Linked, Step};
use crate::ir::{Buffer, Source, Value, ValueId};

/// Prints a program.
pub(super) fn print(linked: &Linked<'_>) -> String {
    let function = linked.function;
    let mut notation = Tensors {
        linked,
        text: Text::default(),
        executables: Executables::of(linked),
        helpers: Text::default(),
        known: HashMap::new(),
    };
    let outputs = values::walk(linked, &mut notation);
    let Tensors { text: body, executables, helpers, .. } = notation;
    let mut text = Text::default();
    text.line(0, format_args!("module attributes {{hipdnn.name = {}}} {{", text::quoted(&function.name)));
    executables.declare(&mut text, |step| {
        let destinations = types(step, step.results());
        let operands = step.operands().chain(step.results());
        format!("({}) -> ({destinations})", types(step, operands))
    });
    text.append(helpers);
    let inputs = values::inputs(linked).into_iter().enumerate();
    let inputs = inputs.map(|(number, id)| format!("%in{number}: {}", value_type(function.value(id))));
    let results: Vec<String> = function.outputs.iter().map(|id| value_type(function.value(*id))).collect();
    let destinations = results.iter().enumerate().map(|(number, kind)| format!("%out{number}: {kind}"));
    let arguments = text::joined(inputs.chain(destinations), ", ");
    let results = text::joined(results, ", ");
    text.line(1, format_args!("func.func @main({arguments}) -> ({results}) {{"));
    text.append(body);
    text.finish_module(outputs, &results)
}

fn value_type(value: &Value) -> String {
    text::tensor(value.data_type, &value.dims)
}

fn types(step: &Step<'_>, arguments: impl Iterator<Item = (i64, ValueId)>) -> String {
    text::joined(
        arguments.map(|(uid, _)| {
            let tensor = step.tensor(uid);
            text::tensor(tensor.data_type, &tensor.dims)
        }),
        ", ",
    )
}

struct Tensors<'a> {
    linked: &'a Linked<'a>,
    text: Text,
    executables: Executables<'a>,
    /// Private functions for windows that no slice says.
    helpers: Text,
    /// Their names by kind, signature and attributes.
    known: HashMap<String, String>,
}

impl Tensors<'_> {
    /// The private function of that signature and those attributes.
    fn helper(&mut self, kind: &str, signature: &str, attributes: &[(String, String)]) -> String {
        let attributes = text::dictionary(attributes);
        let key = format!("{kind}{signature}{attributes}");
        if let Some(name) = self.known.get(&key) {
            return name.clone();
        }
        let name = format!("@{kind}_{}", self.known.len());
        self.helpers.line(1, format_args!("func.func private {name}{signature} attributes{attributes}"));
        self.known.insert(key, name.clone());
        name
    }

    fn assign(&mut self, line: &str) -> String {
        let name = self.text.fresh();
        self.text.line(2, format_args!("{name} = {line}"));
        name
    }
}

/// `[0, 1] [2, 3] [1, 1]`
fn slice_text(slice: &Slice, dims: &[i64]) -> String {
    let list = |values: &[i64]| format!("[{}]", text::joined(values, ", "));
    format!("{} {} {}", list(&slice.starts), list(dims), list(&slice.steps))
}

/// `[[0, 1], [2]]`
fn groups_text(groups: &[Vec<usize>]) -> String {
    format!("[{}]", text::joined(groups.iter().map(|group| format!("[{}]", text::joined(group, ", "))), ", "))
}

impl Notation for Tensors<'_> {
    fn constant(&mut self, number: usize, buffer: &Buffer, dims: &[i64]) -> String {
        let Source::Constant(bytes) = &buffer.source else { unreachable!("constants have content") };
        let dense = text::dense(buffer.data_type, dims, bytes, &format!("constant_{number}"));
        let kind = text::tensor(buffer.data_type, dims);
        self.assign(&format!("arith.constant {dense} : {kind}"))
    }

    fn empty(&mut self, value: &Value) -> String {
        self.assign(&format!("tensor.empty() : {}", value_type(value)))
    }

    fn window(&mut self, base: &str, of: &Value, value: &Value, offset: i64) -> String {
        let (from, to) = (value_type(of), value_type(value));
        let slice = of.is_packed().then(|| window::slice(&of.dims, &value.dims, &value.strides, offset)).flatten();
        if let Some(slice) = slice {
            return self
                .assign(&format!("tensor.extract_slice {base}{} : {from} to {to}", slice_text(&slice, &value.dims)));
        }
        if of.is_packed() && value.is_packed() && offset == 0 && of.elements() == value.elements() {
            if let Some(groups) = window::reassociation(&value.dims, &of.dims) {
                let (groups, shape) = (groups_text(&groups), text::joined(&value.dims, ", "));
                let expanded = format!("tensor.expand_shape {base} {groups} output_shape [{shape}]");
                return self.assign(&format!("{expanded} : {from} into {to}"));
            }
            if let Some(groups) = window::reassociation(&of.dims, &value.dims) {
                return self
                    .assign(&format!("tensor.collapse_shape {base} {} : {from} into {to}", groups_text(&groups)));
            }
        }
        let mut attributes = vec![
            ("hipdnn.strides".to_string(), text::integers(&value.strides)),
            ("hipdnn.offset".to_string(), format!("{offset} : i64")),
        ];
        if !of.is_packed() {
            attributes.push(("hipdnn.base_strides".to_string(), text::integers(&of.strides)));
        }
        let view = self.helper("view", &format!("({from}) -> {to}"), &attributes);
        self.assign(&format!("func.call {view}({base}) : ({from}) -> {to}"))
    }

    fn assembled(&mut self, whole: &Value, output: Option<usize>, parts: &[(String, &Value)]) -> String {
        let kind = value_type(whole);
        let mut name = match output {
            Some(number) if value_type(self.linked.function.value(self.linked.function.outputs[number])) == kind => {
                format!("%out{number}")
            }
            _ => self.empty(whole),
        };
        for (part, value) in parts {
            let (from, offset) = (value_type(value), value.offset - whole.offset);
            name = match window::slice(&whole.dims, &value.dims, &value.strides, offset) {
                Some(slice) => self.assign(&format!(
                    "tensor.insert_slice {part} into {name}{} : {from} into {kind}",
                    slice_text(&slice, &value.dims)
                )),
                None => {
                    let attributes = [
                        ("hipdnn.strides".to_string(), text::integers(&value.strides)),
                        ("hipdnn.offset".to_string(), format!("{offset} : i64")),
                    ];
                    let write = self.helper("write", &format!("({from}, {kind}) -> {kind}"), &attributes);
                    self.assign(&format!("func.call {write}({part}, {name}) : ({from}, {kind}) -> {kind}"))
                }
            };
        }
        name
    }

    fn step(&mut self, number: usize, step: &Step<'_>, operands: &[String]) -> Vec<String> {
        let mut values = operands.to_vec();
        for (_, id) in step.results() {
            let value = self.linked.function.value(id);
            values.push(match output(self.linked, id) {
                Some(number) => format!("%out{number}"),
                None => self.empty(value),
            });
        }
        let (from, to) = (types(step, step.operands().chain(step.results())), types(step, step.results()));
        let count = step.results().count();
        let (many, to) = if count == 1 { (String::new(), to) } else { (format!(":{count}"), format!("({to})")) };
        let (callee, attributes) = (self.executables.name(number), executables::call_attributes(number, step));
        let name = self.text.fresh();
        let values = text::joined(values, ", ");
        self.text.line(2, format_args!("{name}{many} = func.call {callee}({values}){attributes} : ({from}) -> {to}"));
        if count == 1 { vec![name] } else { (0..count).map(|number| format!("{name}#{number}")).collect() }
    }
}

/// The run-time output that a result is, if it is the whole of it with its extents.
fn output(linked: &Linked<'_>, id: ValueId) -> Option<usize> {
    let function = linked.function;
    let value = function.value(id);
    let Source::Output(number) = function.buffer(value.buffer?).source else { return None };
    let whole = function.value(function.outputs[number]);
    (whole.dims == value.dims && whole.offset == value.offset && value.is_packed()).then_some(number)
}
