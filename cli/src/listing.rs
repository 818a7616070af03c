//! A graph as a readable listing.

use std::fmt::Write;

use hipdnn_schemas::{DEFAULT_ALIGNMENT, Graph, Operation, Tensor, TensorUid, channels_last_strides, packed_strides};

use crate::names;
use crate::table::Table;
use crate::text;

/// Heading, tensors, nodes and bytes.
pub(crate) fn graph(graph: &Graph) -> String {
    let mut text = heading(graph);
    text.push_str("\ntensors\n");
    text.push_str(&tensors(graph));
    text.push_str("\nnodes\n");
    text.push_str(&nodes(graph));
    text.push('\n');
    text.push_str(&memory(graph));
    text
}

fn heading(graph: &Graph) -> String {
    let def = graph.def();
    let mut text = format!(
        "graph {}: {}, {}\n",
        text::quoted(graph.name()),
        text::count(graph.nodes().len(), "node"),
        text::count(graph.tensors().len(), "tensor")
    );
    let _ = writeln!(
        text,
        "default types: compute {}, intermediate {}, input and output {}",
        def.compute_data_type, def.intermediate_data_type, def.io_data_type
    );
    if let Some(id) = def.preferred_engine_id {
        let _ = writeln!(text, "preferred engine: {}", names::engine_name(id));
    }
    if def.is_override_shape_enabled {
        text.push_str("shapes may be replaced at execution\n");
    }
    if let Some(v) = def.min_required_engine_api_version {
        let _ = writeln!(text, "engine API needed: {}.{}.{}", v.major, v.minor, v.patch);
    }
    if let Some(id) = def.id {
        let _ = writeln!(text, "id: {:032x}", u128::from_be_bytes(id));
    }
    text
}

/// Role of a tensor in the graph.
pub(crate) fn role(graph: &Graph, tensor: &Tensor) -> &'static str {
    let (read, written) = (!graph.consumers(tensor.uid()).is_empty(), graph.producer(tensor.uid()).is_some());
    match (tensor.is_virtual(), written, read) {
        _ if tensor.value().is_some() => "constant",
        _ if tensor.is_runtime_pass_by_value() => "host scalar",
        (true, true, true) => "virtual",
        (true, true, false) => "virtual, unused",
        (false, true, _) => "output",
        (false, false, true) => "input",
        (_, false, _) if is_row_offset(graph, tensor.uid()) => "row offsets",
        (_, false, _) => "unused",
    }
}

fn is_row_offset(graph: &Graph, uid: TensorUid) -> bool {
    graph.tensors().iter().any(|other| other.ragged().is_some_and(|ragged| ragged.offset == uid))
}

fn tensors(graph: &Graph) -> String {
    let mut table =
        Table::new(&[">uid", "name", "type", "dims", "strides", "role", ">bytes", "written by", "read by", "notes"]);
    for tensor in graph.tensors() {
        let uid = tensor.uid();
        let bytes = tensor.span_bytes();
        table.row(vec![
            uid.to_string(),
            text::name(tensor.name()),
            tensor.data_type().to_string(),
            text::list(tensor.dims()),
            strides(tensor),
            role(graph, tensor).to_string(),
            if tensor.value().is_some() { String::new() } else { text::bytes(bytes as u128) },
            graph.producer(uid).map(|node| format!("node {node}")).unwrap_or_default(),
            readers(graph.consumers(uid)),
            notes(tensor),
        ]);
    }
    table.lines(2)
}

fn readers(nodes: &[usize]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = nodes.iter().take(SHOWN).map(usize::to_string).collect();
    match nodes {
        [] => String::new(),
        [node] => format!("node {node}"),
        _ if nodes.len() <= SHOWN => format!("nodes {}", shown.join(", ")),
        _ => format!("nodes {}, … ({})", shown.join(", "), nodes.len()),
    }
}

/// The strides, with the usual name of their layout.
fn strides(tensor: &Tensor) -> String {
    let def = tensor.def();
    let list = text::list(&def.strides);
    let kind = if tensor.elements() == 1 {
        return list;
    } else if def.strides == packed_strides(&def.dims) {
        " packed"
    } else if tensor.rank() > 2 && def.strides == channels_last_strides(&def.dims) {
        " channels last"
    } else if tensor.dims().iter().zip(tensor.strides()).any(|(dim, stride)| *dim > 1 && *stride == 0) {
        " repeated"
    } else if tensor.span() > tensor.elements() {
        " with gaps"
    } else if tensor.span() == tensor.elements() {
        " permuted"
    } else {
        " overlapping"
    };
    list + kind
}

fn notes(tensor: &Tensor) -> String {
    let mut notes = Vec::new();
    if let Some(value) = tensor.value() {
        notes.push(format!("value {}", text::value(value)));
    }
    if let Some(ragged) = tensor.ragged() {
        notes.push(format!("rows start at tensor {} times {}", ragged.offset, ragged.multiplier));
    }
    if tensor.alignment() != DEFAULT_ALIGNMENT {
        notes.push(format!("aligned to {} bytes", tensor.alignment()));
    }
    notes.join(", ")
}

fn nodes(graph: &Graph) -> String {
    let mut text = String::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        let _ = writeln!(
            text,
            "  {index}: {} {}",
            title(&node.operation),
            [text::name(&node.name), format!("in {}", node.compute_data_type)].join(" ").trim_start()
        );
        let operands = |list: Vec<(&'static str, TensorUid)>| {
            let operand =
                |(name, uid): (&'static str, TensorUid)| format!("{} = {}", operand_name(name), label(graph, uid));
            list.into_iter().map(operand).collect::<Vec<_>>().join(", ")
        };
        let (reads, writes) = (operands(node.operation.named_inputs()), operands(node.operation.named_outputs()));
        if !reads.is_empty() {
            let _ = writeln!(text, "       reads  {reads}");
        }
        let _ = writeln!(text, "       writes {writes}");
        let attributes = attributes(&node.operation);
        if !attributes.is_empty() {
            let list: Vec<String> = attributes.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let _ = writeln!(text, "       with   {}", list.join(", "));
        }
    }
    text
}

/// The operation with its mode, such as `Pointwise relu_fwd`.
pub(crate) fn title(operation: &Operation) -> String {
    let kind = operation.kind().replace("Attributes", "");
    match mode(operation) {
        Some((_, mode)) => format!("{kind} {mode}"),
        None => kind,
    }
}

/// The mode attribute of the operation, if it has one.
fn mode(operation: &Operation) -> Option<(&'static str, String)> {
    let names: &[&str] = match operation {
        Operation::Pointwise(_) => &["operation"],
        Operation::Reduction(_) | Operation::MoeGroupedMatmul(_) => &["mode"],
        Operation::ResampleFwd(_) | Operation::ResampleBwd(_) => &["resample_mode"],
        _ => return None,
    };
    operation.attributes().into_iter().find(|(name, _)| names.contains(name))
}

/// The name of an operand without the common suffix.
pub(crate) fn operand_name(wire: &str) -> &str {
    wire.strip_suffix("_tensor_uid").or(wire.strip_suffix("_tensor_uids")).unwrap_or(wire)
}

/// A tensor's number and name.
fn label(graph: &Graph, uid: TensorUid) -> String {
    format!("{uid} {}", text::name(graph.tensor(uid).name())).trim_end().to_string()
}

/// The attributes except the mode and defaults.
pub(crate) fn attributes(operation: &Operation) -> Vec<(&'static str, String)> {
    let mode = mode(operation).map(|(name, _)| name);
    let says_something = |(name, value): &(&'static str, String)| Some(*name) != mode && !is_default(name, value);
    let attributes = operation.attributes().into_iter().filter(says_something);
    attributes.map(|(name, value)| (operand_name(name), shortened(value))).collect()
}

/// True if the value is the operation's default.
fn is_default(name: &str, value: &str) -> bool {
    let all = |digit: char| value.chars().all(|c| c == digit || "[],".contains(c));
    match name {
        "pre_padding" | "post_padding" => all('0'),
        "stride" | "dilation" => all('1'),
        "conv_mode" => value == "CROSS_CORRELATION",
        "diagonal_alignment" => value == "TOP_LEFT",
        "implementation" => value == "AUTO",
        "mma_core_mode" => value == "unset",
        "data" => value == "[]",
        _ => value == "false",
    }
}

/// The value, shortened: attributes of custom operations may be long.
fn shortened(value: String) -> String {
    const LONGEST: usize = 120;
    let value = text::printable(&value);
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}

/// Bytes of the inputs, outputs and intermediates.
fn memory(graph: &Graph) -> String {
    let (mut inputs, mut outputs, mut intermediates) = (0u128, 0u128, 0u128);
    for tensor in graph.tensors().iter().filter(|tensor| tensor.value().is_none()) {
        let bytes = tensor.span_bytes() as u128;
        match (graph.producer(tensor.uid()), tensor.is_virtual()) {
            (None, _) => inputs += bytes,
            (Some(_), true) => intermediates += bytes,
            (Some(_), false) => outputs += bytes,
        }
    }
    format!(
        "memory: inputs {}, outputs {}, intermediates {} if none were fused\n",
        text::bytes(inputs),
        text::bytes(outputs),
        text::bytes(intermediates)
    )
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{
        Convolution, DataType, GraphBuilder, Pointwise, PointwiseMode, Ragged, TensorDef, TensorValue,
    };

    use super::*;

    #[test]
    fn everything_that_matters_is_listed() {
        let mut builder = GraphBuilder::new("block").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, DataType::Half, &[1, 3, 8, 8]).channels_last().named("x"));
        let w = builder.tensor(TensorDef::new(2, DataType::Half, &[4, 3, 3, 3]).named("w\n"));
        let c = builder.tensor(TensorDef::new(3, DataType::Float, &[1, 4, 8, 8]).intermediate());
        let s = builder.tensor(TensorDef::new(4, DataType::Float, &[1]).with_value(TensorValue::Float32(0.5)));
        let y = builder.tensor(TensorDef::new(5, DataType::Float, &[1, 4, 8, 8]).strided(&[512, 128, 16, 2]));
        let padded = Convolution { pre_padding: vec![1, 1], post_padding: vec![1, 1], ..Convolution::new(2) };
        builder.convolution_fwd(x, w, c, padded);
        builder.pointwise(Pointwise::binary(PointwiseMode::Mul, c, s, y));
        let graph = builder.build().expect("a graph");
        let text = super::graph(&graph);
        assert_eq!(
            text,
            "\
graph \"block\": 2 nodes, 5 tensors
default types: compute float, intermediate unset, input and output unset

tensors
  uid  name   type   dims       strides                     role       bytes  written by  read by  notes
    1  \"x\"    half   [1,3,8,8]  [192,1,24,3] channels last  input      384 B              node 0
    2  \"w\\n\"  half   [4,3,3,3]  [27,9,3,1] packed           input      216 B              node 0
    3         float  [1,4,8,8]  [256,64,8,1] packed         virtual   1024 B  node 0      node 1
    4         float  [1]        [1]                         constant                      node 1   value 0.5
    5         float  [1,4,8,8]  [512,128,16,2] with gaps    output    2044 B  node 1

nodes
  0: ConvolutionFwd in float
       reads  x = 1 \"x\", w = 2 \"w\\n\"
       writes y = 3
       with   pre_padding [1,1], post_padding [1,1]
  1: Pointwise mul in float
       reads  in_0 = 3, in_1 = 4
       writes out_0 = 5

memory: inputs 600 B, outputs 2044 B, intermediates 1024 B if none were fused
"
        );
    }

    #[test]
    fn strides_have_names() {
        let tensor = |dims: &[i64], strides: &[i64]| {
            let mut builder = GraphBuilder::new("").compute(DataType::Float);
            let offsets = builder.tensor(TensorDef::new(3, DataType::Int32, &[1]));
            let mut x = TensorDef::new(1, DataType::Float, dims).strided(strides);
            x.ragged = Some(Ragged { offset: offsets, multiplier: 4 });
            x.alignment = 64;
            let x = builder.tensor(x);
            let y = builder.tensor(TensorDef::new(2, DataType::Float, dims));
            builder.pointwise(Pointwise::unary(PointwiseMode::Identity, x, y));
            let graph = builder.build().expect("a graph");
            assert_eq!(role(&graph, graph.tensor(offsets)), "row offsets");
            (super::strides(graph.tensor(x)), notes(graph.tensor(x)))
        };
        for (dims, strides, want) in [
            (&[2, 3][..], &[3, 1][..], "[3,1] packed"),
            (&[2, 3], &[1, 2], "[1,2] permuted"),
            (&[2, 3], &[8, 1], "[8,1] with gaps"),
            (&[2, 3], &[0, 1], "[0,1] repeated"),
            (&[2, 3], &[1, 1], "[1,1] overlapping"),
            (&[1, 1], &[9, 9], "[9,9]"),
            (&[2, 3, 4], &[12, 1, 3], "[12,1,3] channels last"),
        ] {
            let (text, notes) = tensor(dims, strides);
            assert_eq!(text, want);
            assert_eq!(notes, "rows start at tensor 3 times 4, aligned to 64 bytes");
        }
    }
}
