//! A graph as a drawing in Graphviz's language.

use std::fmt::Write;

use hipdnn_schemas::{Graph, TensorUid};

use crate::listing;
use crate::text;

/// Nodes are boxes, tensors ellipses, dashed where no memory of the caller stands behind them.
pub(crate) fn graph(graph: &Graph) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "digraph {} {{", quoted(&[graph.name().to_string()]));
    text.push_str("  node [fontname=\"Helvetica\", fontsize=11];\n  edge [fontname=\"Helvetica\", fontsize=9];\n");
    for tensor in graph.tensors() {
        let uid = tensor.uid();
        let mut lines = vec![
            format!("{uid} {}", text::name(tensor.name())).trim_end().to_string(),
            format!("{} {}", tensor.data_type(), text::list(tensor.dims())),
        ];
        if let Some(value) = tensor.value() {
            lines.push(format!("= {}", text::value(value)));
        }
        let style = match listing::role(graph, tensor) {
            "virtual" | "virtual, unused" => "style=dashed",
            "constant" | "host scalar" => "shape=plaintext",
            "output" => "style=bold",
            _ => "style=solid",
        };
        let _ = writeln!(text, "  {} [label={}, {style}];", tensor_id(uid), quoted(&lines));
    }
    for (index, node) in graph.nodes().iter().enumerate() {
        let heading = format!("{index}: {}", listing::title(&node.operation));
        let mut lines = vec![heading];
        if !node.name.is_empty() {
            lines.push(text::name(&node.name));
        }
        let attributes = listing::attributes(&node.operation);
        lines.extend(attributes.iter().map(|(name, value)| format!("{name} {value}")));
        let _ = writeln!(
            text,
            "  n{index} [label={}, shape=box, style=\"rounded,filled\", fillcolor=\"#e8eef7\"];",
            quoted(&lines)
        );
        for (name, uid) in node.operation.named_inputs() {
            let label = quoted(&[listing::operand_name(name).to_string()]);
            let _ = writeln!(text, "  {} -> n{index} [label={label}];", tensor_id(uid));
        }
        for (name, uid) in node.operation.named_outputs() {
            let label = quoted(&[listing::operand_name(name).to_string()]);
            let _ = writeln!(text, "  n{index} -> {} [label={label}];", tensor_id(uid));
        }
    }
    text.push_str("}\n");
    text
}

/// Uids may be negative, which bare words of the language may not be.
fn tensor_id(uid: TensorUid) -> String {
    format!("\"t{uid}\"")
}

/// Lines as one quoted text. A backslash begins an escape there, so one that is meant is doubled.
fn quoted(lines: &[String]) -> String {
    let escaped: Vec<String> =
        lines.iter().map(|line| text::printable(line).replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", escaped.join("\\n"))
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    #[test]
    fn nodes_edges_and_hostile_names() {
        let mut builder = GraphBuilder::new("a\"b\\\n").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(-1, DataType::Float, &[4]).named("in\"; }"));
        let y = builder.tensor(TensorDef::new(2, DataType::Float, &[4]));
        builder.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, x, y));
        let text = graph(&builder.build().expect("a graph"));
        for line in [
            r#"digraph "a\"b\\\\n" {"#,
            r#"  "t-1" [label="-1 \"in\\\"; }\"\nfloat [4]", style=solid];"#,
            r#"  "t2" [label="2\nfloat [4]", style=bold];"#,
            r#"  "t-1" -> n0 [label="in_0"];"#,
            r#"  n0 -> "t2" [label="out_0"];"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("n0 [label=\"0: Pointwise relu_fwd\", shape=box"), "{text}");
    }
}
