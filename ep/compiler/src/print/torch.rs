//! Stages 2 and 3: the function in the torch dialect, its graphs as regions or as calls.

use std::collections::HashMap;

use hipdnn_schemas::{Operation, TensorDef};

use super::executables::{self, Executables};
use super::text::{self, Text};
use super::values::{self, Notation};
use super::{Linked, Step};
use crate::ir::{Buffer, Source, Value};

/// Form of the function's graphs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As operators with a region.
    Regions,
    /// As calls of executables.
    Calls,
}

/// Prints a program.
pub(super) fn print(linked: &Linked<'_>, form: Form) -> String {
    let function = linked.function;
    let executables = Executables::of(linked);
    let mut text = Text::default();
    text.line(0, format_args!("module attributes {{hipdnn.name = {}}} {{", text::quoted(&function.name)));
    if form == Form::Calls {
        executables.declare(&mut text, |step| {
            let (operands, results) = (types(step, step.operands()), types(step, step.results()));
            format!("({operands}) -> ({results})")
        });
    }
    let inputs = values::inputs(linked).into_iter().enumerate();
    let arguments = inputs.map(|(number, id)| format!("%in{number}: {}", value_type(function.value(id))));
    let arguments = text::joined(arguments, ", ");
    let results = text::joined(function.outputs.iter().map(|id| value_type(function.value(*id))), ", ");
    text.line(1, format_args!("func.func @main({arguments}) -> ({results}) {{"));
    let mut notation = Torch { text, form, executables, integers: HashMap::new() };
    let outputs = values::walk(linked, &mut notation);
    notation.text.finish_module(outputs, &results)
}

fn value_type(value: &Value) -> String {
    text::vtensor(value.data_type, &value.dims)
}

fn tensor_type(tensor: &TensorDef) -> String {
    text::vtensor(tensor.data_type, &tensor.dims)
}

fn types(step: &Step<'_>, arguments: impl Iterator<Item = (i64, crate::ir::ValueId)>) -> String {
    text::joined(arguments.map(|(uid, _)| tensor_type(step.tensor(uid))), ", ")
}

struct Torch<'a> {
    text: Text,
    form: Form,
    executables: Executables<'a>,
    /// Names of whole numbers.
    integers: HashMap<i64, String>,
}

impl Torch<'_> {
    fn integer(&mut self, value: i64) -> String {
        if let Some(name) = self.integers.get(&value) {
            return name.clone();
        }
        let name = self.text.fresh();
        self.text.line(2, format_args!("{name} = torch.constant.int {value}"));
        self.integers.insert(value, name.clone());
        name
    }

    fn list(&mut self, values: &[i64]) -> String {
        let items: Vec<String> = values.iter().map(|value| self.integer(*value)).collect();
        let kinds = text::joined(items.iter().map(|_| "!torch.int"), ", ");
        let name = self.text.fresh();
        let items = text::joined(items, ", ");
        self.text.line(2, format_args!("{name} = torch.prim.ListConstruct {items} : ({kinds}) -> !torch.list<int>"));
        name
    }

    fn literal(&mut self, level: usize, dense: &str, torch_tensor: &str, kind: &str) -> String {
        let name = self.text.fresh();
        self.text.line(level, format_args!("{name} = torch.vtensor.literal({dense} : {torch_tensor}) : {kind}"));
        name
    }

    /// The nodes of a step's graph, and its results.
    fn region(&mut self, step: &Step<'_>) {
        let mut names: HashMap<i64, String> = HashMap::new();
        let arguments = step.operands().map(|(uid, _)| {
            let name = self.text.fresh();
            let argument = format!("{name}: {}", tensor_type(step.tensor(uid)));
            names.insert(uid, name);
            argument
        });
        let arguments = text::joined(arguments, ", ");
        self.text.line(2, if arguments.is_empty() { "^bb0:".to_string() } else { format!("^bb0({arguments}):") });
        for tensor in &step.graph.tensors {
            if let Some(value) = tensor.value {
                let (data_type, dims) = (tensor.data_type, &tensor.dims);
                let kind = text::torch_tensor(data_type, dims);
                let name = self.literal(3, &text::scalar(value), &kind, &tensor_type(tensor));
                names.insert(tensor.uid.0, name);
            }
        }
        for node in &step.graph.nodes {
            let operands: Vec<i64> = node.operation.inputs().into_iter().map(|uid| uid.0).collect();
            let results: Vec<i64> = node.operation.outputs().into_iter().map(|uid| uid.0).collect();
            let kinds = |uids: &[i64]| text::joined(uids.iter().map(|uid| tensor_type(step.tensor(*uid))), ", ");
            let operator = text::quoted(&format!("hipdnn.{}", operator(&node.operation)));
            let values = text::joined(operands.iter().map(|uid| names[uid].as_str()), ", ");
            let attributes = attributes(&node.operation, &node.compute_data_type.to_string());
            let name = self.text.fresh();
            let (count, result_types) = match &results[..] {
                [_] => (String::new(), kinds(&results)),
                _ => (format!(":{}", results.len()), format!("({})", kinds(&results))),
            };
            self.text.line(
                3,
                format_args!(
                    "{name}{count} = torch.operator {operator}({values}){} : ({}) -> {result_types}{}",
                    text::dictionary(&attributes),
                    kinds(&operands),
                    text::location(&node.name)
                ),
            );
            for (number, uid) in results.iter().enumerate() {
                names.insert(*uid, if results.len() == 1 { name.clone() } else { format!("{name}#{number}") });
            }
        }
        let (values, kinds) =
            (text::joined(step.results().map(|(uid, _)| names[&uid].clone()), ", "), types(step, step.results()));
        self.text.line(3, format_args!("torch.operator_terminator {values} : {kinds}"));
    }
}

/// `convolution_fwd` of `ConvolutionFwdAttributes`.
fn operator(operation: &Operation) -> String {
    let mut name = String::new();
    for letter in operation.kind().trim_end_matches("Attributes").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The attributes of an operation, the names of its operands and the type that it computes in.
fn attributes(operation: &Operation, compute: &str) -> Vec<(String, String)> {
    let plain = |name: &str| name.trim_end_matches("_uid").trim_end_matches("_tensor").to_string();
    let operands: Vec<String> = operation.named_inputs().iter().map(|(name, _)| plain(name)).collect();
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let mut attributes = vec![
        ("hipdnn.compute".to_string(), text::quoted(compute)),
        ("hipdnn.operands".to_string(), text::strings(&operands)),
    ];
    attributes
        .extend(operation.attributes().into_iter().map(|(name, value)| (format!("hipdnn.{name}"), attribute(&value))));
    attributes
}

/// An attribute from its text: JSON, or the name of an enumerator.
fn attribute(value: &str) -> String {
    use serde_json::Value;
    match serde_json::from_str(value) {
        Ok(Value::Bool(value)) => value.to_string(),
        Ok(Value::Number(number)) => match number.as_i64() {
            Some(number) => format!("{number} : i64"),
            None => format!("{} : f64", text::double(number.as_f64().unwrap_or_default())),
        },
        Ok(Value::Array(items)) if items.iter().all(Value::is_i64) => {
            text::integers(&items.iter().filter_map(Value::as_i64).collect::<Vec<_>>())
        }
        _ => text::quoted(value),
    }
}

impl Notation for Torch<'_> {
    fn constant(&mut self, number: usize, buffer: &Buffer, dims: &[i64]) -> String {
        let Source::Constant(bytes) = &buffer.source else { unreachable!("constants have content") };
        let dense = text::dense(buffer.data_type, dims, bytes, &format!("constant_{number}"));
        let (kind, vtensor) = (text::torch_tensor(buffer.data_type, dims), text::vtensor(buffer.data_type, dims));
        self.literal(2, &dense, &kind, &vtensor)
    }

    fn empty(&mut self, value: &Value) -> String {
        let zero = vec![0; crate::ir::element_bytes(value.data_type)];
        let dense = text::dense(value.data_type, &value.dims, &zero, "");
        let kind = text::torch_tensor(value.data_type, &value.dims);
        self.literal(2, &dense, &kind, &value_type(value))
    }

    fn window(&mut self, base: &str, of: &Value, value: &Value, offset: i64) -> String {
        let (from, to) = (value_type(of), value_type(value));
        if of.is_packed() {
            let (sizes, strides) = (self.list(&value.dims), self.list(&value.strides));
            let offset = self.integer(offset);
            let name = self.text.fresh();
            self.text.line(
                2,
                format_args!(
                    "{name} = torch.aten.as_strided {base}, {sizes}, {strides}, {offset} : {from}, !torch.list<int>, \
                     !torch.list<int>, !torch.int -> {to}"
                ),
            );
            return name;
        }
        // A part of a larger tensor: `as_strided` looks at memory, and this one's has gaps.
        let name = self.text.fresh();
        let attributes = text::dictionary(&[
            ("hipdnn.base_strides".to_string(), text::integers(&of.strides)),
            ("hipdnn.strides".to_string(), text::integers(&value.strides)),
            ("hipdnn.offset".to_string(), format!("{offset} : i64")),
        ]);
        self.text
            .line(2, format_args!("{name} = torch.operator \"hipdnn.view\"({base}){attributes} : ({from}) -> {to}"));
        name
    }

    fn assembled(&mut self, whole: &Value, _output: Option<usize>, parts: &[(String, &Value)]) -> String {
        let offsets: Vec<i64> = parts.iter().map(|(_, part)| part.offset - whole.offset).collect();
        let strides = text::joined(parts.iter().map(|(_, part)| text::integers(&part.strides)), ", ");
        let attributes = text::dictionary(&[
            ("hipdnn.offsets".to_string(), text::integers(&offsets)),
            ("hipdnn.strides".to_string(), format!("[{strides}]")),
        ]);
        let names = text::joined(parts.iter().map(|(name, _)| name), ", ");
        let kinds = text::joined(parts.iter().map(|(_, part)| value_type(part)), ", ");
        let name = self.text.fresh();
        self.text.line(
            2,
            format_args!(
                "{name} = torch.operator \"hipdnn.assemble\"({names}){attributes} : ({kinds}) -> {}",
                value_type(whole)
            ),
        );
        name
    }

    fn step(&mut self, number: usize, step: &Step<'_>, operands: &[String]) -> Vec<String> {
        let values = text::joined(operands, ", ");
        let (from, to) = (types(step, step.operands()), types(step, step.results()));
        let count = step.results().count();
        let name = self.text.fresh();
        let (many, to) = if count == 1 { (String::new(), to) } else { (format!(":{count}"), format!("({to})")) };
        let attributes = executables::call_attributes(number, step);
        match self.form {
            Form::Regions => {
                self.text.line(
                    2,
                    format_args!(
                        "{name}{many} = torch.operator \"hipdnn.graph\"({values}){attributes} : ({from}) -> {to} {{"
                    ),
                );
                self.region(step);
                self.text.line(2, "}");
            }
            Form::Calls => {
                let callee = self.executables.name(number);
                self.text.line(
                    2,
                    format_args!("{name}{many} = func.call {callee}({values}){attributes} : ({from}) -> {to}"),
                );
            }
        }
        if count == 1 { vec![name] } else { (0..count).map(|number| format!("{name}#{number}")).collect() }
    }
}
