//! Reasons for which an engine declines a graph.

use hipdnn_schemas::{DataType, Graph, TensorUid};

/// Reason for which an engine leaves a graph to others. An answer, not an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Declined {
    /// Engine that does not work in this process at all.
    #[error("{0}")]
    Unavailable(String),
    /// Ragged tensor, with rows of variable length.
    #[error("{tensor} is ragged")]
    Ragged {
        /// The tensor.
        tensor: TensorLabel,
    },
    /// Alignment that is promised by the graph and less than the tensor's elements need.
    #[error("{tensor}: expected an alignment to a multiple of {wanted} bytes, got {alignment}")]
    Alignment {
        /// The tensor.
        tensor: TensorLabel,
        /// Alignment that the graph promises, in bytes.
        alignment: i64,
        /// Alignment that its elements need, in bytes.
        wanted: usize,
    },
    /// Operation that the engine does not support.
    #[error("{node}: the engine does not have this operation")]
    Operation {
        /// The node.
        node: NodeLabel,
    },
    /// Pointwise mode that the engine does not support.
    #[error("{node}: the engine does not have the mode {mode}")]
    Mode {
        /// The node.
        node: NodeLabel,
        /// Pointwise mode of the node.
        mode: hipdnn_schemas::PointwiseMode,
    },
    /// Attribute with a value that the engine does not support.
    #[error("{node}: {attribute}: expected {wanted}, got {value}")]
    Attribute {
        /// The node.
        node: NodeLabel,
        /// Name of the attribute in the wire format.
        attribute: &'static str,
        /// Value in the graph, as text.
        value: String,
        /// Supported values, as text.
        wanted: &'static str,
    },
    /// Compute type that the engine does not support.
    #[error("{node}: compute_data_type: expected {wanted}, got {data_type}")]
    ComputeType {
        /// The node.
        node: NodeLabel,
        /// Type in the graph.
        data_type: DataType,
        /// Supported types, as text.
        wanted: String,
    },
    /// Element type that the engine does not support for an operand.
    #[error("{node}: {role} ({tensor}): expected {wanted}, got {data_type}")]
    ElementType {
        /// The node.
        node: NodeLabel,
        /// Name of the operand in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Type in the graph.
        data_type: DataType,
        /// Supported types, as text.
        wanted: String,
    },
    /// Number of dimensions that the engine does not support for an operand.
    #[error("{node}: {role} ({tensor}): expected {wanted} dimensions, got {rank}")]
    Rank {
        /// The node.
        node: NodeLabel,
        /// Name of the operand in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Number of dimensions.
        rank: usize,
        /// Supported numbers of dimensions, as text.
        wanted: &'static str,
    },
    /// Extents that the engine does not support for an operand.
    #[error("{node}: {role} ({tensor}): expected extents {wanted}, got {dims:?}")]
    Shape {
        /// The node.
        node: NodeLabel,
        /// Name of the operand in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Extents of the tensor.
        dims: Vec<usize>,
        /// Supported extents, as text.
        wanted: String,
    },
    /// Size of a node above a limit of the engine.
    #[error("{node}: {what}: expected at most {most}, got {came}")]
    Size {
        /// The node.
        node: NodeLabel,
        /// Name of the quantity that is too large.
        what: &'static str,
        /// Value of the quantity.
        came: u128,
        /// Largest supported value.
        most: u128,
    },
    /// Node that the library behind the engine does not support.
    #[error("{node}: {reason}")]
    Library {
        /// The node.
        node: NodeLabel,
        /// Request to the library and its answer.
        reason: String,
    },
    /// Kernel of the engine's own that is not available on this machine.
    #[error("no kernel to {purpose}: {reason}")]
    Kernel {
        /// Purpose of the kernel, a verb phrase.
        purpose: String,
        /// Missing prerequisite, or the error in making the kernel.
        reason: String,
    },
    /// Overlap: two elements of an operand share an address.
    #[error("{node}: {role} ({tensor}) has strides {strides:?} over dimensions {dims:?}, which overlap")]
    Overlap {
        /// The node.
        node: NodeLabel,
        /// Name of the operand in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Extents of the tensor.
        dims: Vec<usize>,
        /// Strides of the tensor.
        strides: Vec<usize>,
    },
}

/// Label of a node for messages: its position, kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLabel(Box<str>);

impl NodeLabel {
    /// Label of node `index`.
    pub fn of(graph: &Graph, index: usize) -> NodeLabel {
        let node = &graph.nodes()[index];
        let table = node.operation.kind();
        let kind = table.strip_suffix("Attributes").unwrap_or(table);
        NodeLabel(format!("node {index} ({kind}{})", quoted(&node.name)).into())
    }
}

impl std::fmt::Display for NodeLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Label of a tensor for messages: its uid and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorLabel(Box<str>);

impl TensorLabel {
    /// Label of a tensor with that uid and name.
    pub fn new(uid: i64, name: &str) -> TensorLabel {
        TensorLabel(format!("tensor {uid}{}", quoted(name)).into())
    }

    /// Label of a tensor of the graph.
    pub fn of(graph: &Graph, uid: TensorUid) -> TensorLabel {
        TensorLabel::new(uid.0, graph.tensor(uid).name())
    }
}

impl std::fmt::Display for TensorLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name given by the client, cut to 64 characters and quoted.
fn quoted(name: &str) -> String {
    match name {
        "" => String::new(),
        _ if name.chars().count() > 64 => format!(" {:?}…", name.chars().take(64).collect::<String>()),
        _ => format!(" {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{GraphBuilder, Matmul, Operation, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    /// A message says which node or tensor is meant: by position, kind, uid, and the client's name where it gave one.
    #[test]
    fn labels_say_which_node_and_tensor_is_meant() {
        let mut graph = GraphBuilder::new("").compute(DataType::Float);
        let tensor = |uid| TensorDef::new(uid, DataType::Float, &[2, 2]);
        let [a, b, c] = [tensor(1).named("left"), tensor(-7), tensor(3)].map(|tensor| graph.tensor(tensor));
        graph.node("product", Operation::Matmul(Matmul { a, b, c: TensorUid(4) }));
        graph.tensor(tensor(4).intermediate());
        graph.pointwise(Pointwise::unary(PointwiseMode::Neg, TensorUid(4), c));
        let graph = graph.build().unwrap();
        assert_eq!(NodeLabel::of(&graph, 0).to_string(), "node 0 (Matmul \"product\")");
        assert_eq!(NodeLabel::of(&graph, 1).to_string(), "node 1 (Pointwise)");
        assert_eq!(TensorLabel::of(&graph, a).to_string(), "tensor 1 \"left\"");
        assert_eq!(TensorLabel::of(&graph, b).to_string(), "tensor -7");
        assert_eq!(TensorLabel::new(5, "fifth").to_string(), "tensor 5 \"fifth\"");
    }

    /// Names come from outside: what would break a line of a log is escaped, and long ones are cut, by characters.
    #[test]
    fn names_are_quoted_and_cut() {
        for (name, want) in [
            (String::new(), String::new()),
            ("a \"b\"\n".into(), " \"a \\\"b\\\"\\n\"".into()),
            ("é".repeat(63), format!(" \"{}\"", "é".repeat(63))),
            ("é".repeat(64), format!(" \"{}\"", "é".repeat(64))),
            ("é".repeat(65), format!(" \"{}\"…", "é".repeat(64))),
        ] {
            assert_eq!(quoted(&name), want);
        }
    }
}
