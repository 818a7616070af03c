//! Stage 1: the partition as it came from ONNX.

use std::collections::HashMap;

use super::text::{self, Text};
use crate::import;
use crate::model::{Attribute, Extent, Model, Node, Value, ValueIndex};

/// Prints a model.
pub(super) fn print(model: &Model) -> String {
    let mut text = Text::default();
    let mut names: HashMap<ValueIndex, String> = HashMap::new();
    let arguments = model.inputs.iter().enumerate().map(|(number, index)| {
        let value = &model.values[*index];
        names.insert(*index, format!("%in{number}"));
        let mut attributes = vec![("hipdnn.name".to_string(), text::quoted(&value.name))];
        if let Some(constant) = &value.constant {
            let token = constant.token.map_or(String::new(), |token| text::quoted(&token.to_string()));
            attributes.push(("hipdnn.constant".to_string(), token));
        }
        format!("%in{number}: {}{}", value_type(value), text::dictionary(&attributes))
    });
    let arguments = text::joined(arguments, ", ");
    let results = text::joined(model.outputs.iter().map(|index| value_type(&model.values[*index])), ", ");
    text.line(0, format_args!("module attributes {{hipdnn.name = {}}} {{", text::quoted(&model.name)));
    text.line(
        1,
        format_args!(
            "func.func @main({arguments}) -> ({results}) attributes {{torch.onnx_meta.opset_version = {} : si64}} {{",
            opset_version(model)
        ),
    );
    bind_symbols(model, &names, &mut text);
    literals(model, &mut names, &mut text);
    let reads_none = |node: &Node| node.inputs.iter().any(Option::is_none);
    if model.nodes.iter().any(reads_none) {
        text.line(2, "%none = torch.constant.none");
    }
    for node in &model.nodes {
        operator(model, node, &mut names, &mut text);
    }
    text.finish_module(model.outputs.iter().map(|index| &names[index]), &results)
}

/// The operator set in which every operator has the definition that it has here.
fn opset_version(model: &Model) -> i32 {
    let nodes = model.nodes.iter().filter(|node| node.domain.is_empty());
    nodes.map(|node| node.since_version).max().unwrap_or(1)
}

/// A value as a tensor; free extents are `?`.
fn value_type(value: &Value) -> String {
    let element = value.element.and_then(|element| import::data_type(element).ok());
    let element = element.map_or("unk", text::torch_element);
    match (&value.constant, &value.shape) {
        (Some(constant), _) => format!("!torch.vtensor<[{}],{element}>", text::joined(&constant.dims, ",")),
        (None, Some(shape)) => {
            let extents = shape.iter().map(|extent| match extent {
                Extent::Known(extent) => extent.to_string(),
                Extent::Symbol(_) => "?".to_string(),
            });
            format!("!torch.vtensor<[{}],{element}>", text::joined(extents, ","))
        }
        (None, None) => format!("!torch.vtensor<*,{element}>"),
    }
}

/// Says which extents of inputs are equal in every run.
fn bind_symbols(model: &Model, names: &HashMap<ValueIndex, String>, text: &mut Text) {
    let mut symbols: HashMap<&str, String> = HashMap::new();
    for index in &model.inputs {
        let value = &model.values[*index];
        let Some(shape) = value.shape.as_ref().filter(|_| value.constant.is_none()) else { continue };
        let mut own: Vec<&str> = Vec::new();
        let mut extents = Vec::new();
        for extent in shape {
            match extent {
                Extent::Known(extent) => extents.push(extent.to_string()),
                Extent::Symbol(symbol) => {
                    let position = own.iter().position(|other| other == symbol).unwrap_or(own.len());
                    if position == own.len() {
                        own.push(symbol);
                    }
                    extents.push(format!("s{position}"));
                }
            }
        }
        if own.is_empty() {
            continue;
        }
        for symbol in &own {
            if !symbols.contains_key(symbol) {
                let name = format!("%symbol{}", symbols.len());
                let bounds = format!("min_val = 0, max_val = {}", i64::MAX);
                text.line(
                    2,
                    format_args!("{name} = torch.symbolic_int {} {{{bounds}}} : !torch.int", text::quoted(symbol)),
                );
                symbols.insert(symbol, name);
            }
        }
        let (operands, places) = (own.iter().map(|symbol| &symbols[symbol]), (0..own.len()).map(|n| format!("s{n}")));
        let (operands, places) = (text::joined(operands, ", "), text::joined(places, ", "));
        let (name, extents, kind) = (&names[index], extents.join(", "), value_type(value));
        text.line(
            2,
            format_args!(
                "torch.bind_symbolic_shape {name}, [{operands}], affine_map<()[{places}] -> ({extents})> : {kind}"
            ),
        );
    }
}

/// Constants whose content the compiler looks at, in the place of the arguments.
fn literals(model: &Model, names: &mut HashMap<ValueIndex, String>, text: &mut Text) {
    for (index, value) in model.values.iter().enumerate() {
        let (Some(constant), Some(element)) = (&value.constant, value.element) else { continue };
        let (Some(bytes), Ok(data_type)) = (&constant.bytes, import::data_type(element)) else { continue };
        let dense = text::dense(data_type, &constant.dims, bytes, &format!("constant_{index}"));
        if dense.starts_with("dense_resource") && names.contains_key(&index) {
            continue;
        }
        let name = text.fresh();
        let kind = text::torch_tensor(data_type, &constant.dims);
        text.line(
            2,
            format_args!(
                "{name} = torch.vtensor.literal({dense} : {kind}) : {}{}",
                text::vtensor(data_type, &constant.dims),
                text::location(&value.name)
            ),
        );
        names.insert(index, name);
    }
}

fn operator(model: &Model, node: &Node, names: &mut HashMap<ValueIndex, String>, text: &mut Text) {
    let none = "!torch.none".to_string();
    let operands = node.inputs.iter().map(|input| input.map_or("%none", |input| names[&input].as_str()));
    let operands = text::joined(operands, ", ");
    let kind = |value: &Option<ValueIndex>| value.map_or(none.clone(), |value| value_type(&model.values[value]));
    let operand_types = text::joined(node.inputs.iter().map(kind), ", ");
    let results: Vec<String> = node.outputs.iter().map(kind).collect();
    let result_types = if let [one] = &results[..] { one.clone() } else { format!("({})", results.join(", ")) };
    let mut attributes: Vec<(String, String)> = node
        .attributes
        .iter()
        .map(|(name, attribute)| (format!("torch.onnx.{name}"), attribute_text(attribute)))
        .collect();
    attributes.sort();
    if !node.domain.is_empty() {
        attributes.push(("hipdnn.domain".to_string(), text::quoted(&node.domain)));
    }
    let result = text.fresh();
    let count = if results.len() == 1 { String::new() } else { format!(":{}", results.len()) };
    for (number, output) in node.outputs.iter().enumerate() {
        if let Some(output) = output {
            names.insert(*output, if results.len() == 1 { result.clone() } else { format!("{result}#{number}") });
        }
    }
    text.line(
        2,
        format_args!(
            "{result}{count} = torch.operator {}({operands}){} : ({operand_types}) -> {result_types}{}",
            text::quoted(&format!("onnx.{}", node.op_type)),
            text::dictionary(&attributes),
            text::location(&node.label)
        ),
    );
}

fn attribute_text(attribute: &Attribute) -> String {
    match attribute {
        Attribute::Int(value) => format!("{value} : si64"),
        Attribute::Ints(values) => {
            format!("[{}]", text::joined(values.iter().map(|value| format!("{value} : si64")), ", "))
        }
        Attribute::Float(value) => format!("{} : f32", text::float(*value)),
        Attribute::Floats(values) => {
            format!("[{}]", text::joined(values.iter().map(|value| format!("{} : f32", text::float(*value))), ", "))
        }
        Attribute::String(value) => text::quoted(value),
        Attribute::Graph => text::quoted("a body"),
        Attribute::Other => text::quoted("not read"),
    }
}
