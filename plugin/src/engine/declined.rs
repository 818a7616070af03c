//! Why an engine does not compute a graph.

use hipdnn_schemas::{DataType, Graph, TensorUid};

/// The reason for which an engine leaves a graph to others. An answer, not an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Declined {
    /// The engine does not work in this process at all.
    #[error("{0}")]
    Unavailable(String),
    /// Shapes may be replaced at execution.
    #[error("the graph allows other shapes at execution (override shapes)")]
    OverrideShapes,
    /// A tensor has rows of variable length.
    #[error("{tensor} is ragged")]
    Ragged {
        /// Which tensor.
        tensor: TensorLabel,
    },
    /// The graph promises less alignment than the tensor's elements have.
    #[error("{tensor} is aligned to {alignment} bytes, wanted a multiple of {wanted}")]
    Alignment {
        /// Which tensor.
        tensor: TensorLabel,
        /// What the graph promises.
        alignment: i64,
        /// What its elements need.
        wanted: usize,
    },
    /// A node of a kind that the engine does not have.
    #[error("{node}: the engine does not have this operation")]
    Operation {
        /// Which node.
        node: NodeLabel,
    },
    /// A node of a kind that another engine of this plugin has.
    #[error("{node}: the engine does not have this operation: {engine} or another plugin takes it")]
    OtherEngine {
        /// Which node.
        node: NodeLabel,
        /// The engine that has it.
        engine: &'static str,
    },
    /// A pointwise mode that the engine does not have.
    #[error("{node}: the engine does not have the mode {mode}")]
    Mode {
        /// Which node.
        node: NodeLabel,
        /// Its mode.
        mode: hipdnn_schemas::PointwiseMode,
    },
    /// An attribute with a value that the engine does not take.
    #[error("{node}: {attribute} is {value}, wanted {wanted}")]
    Attribute {
        /// Which node.
        node: NodeLabel,
        /// The attribute's name in the wire format.
        attribute: &'static str,
        /// What it is.
        value: String,
        /// What the engine takes.
        wanted: &'static str,
    },
    /// A node computes in a type that the engine does not compute in.
    #[error("{node}: compute_data_type is {data_type}, wanted {wanted}")]
    ComputeType {
        /// Which node.
        node: NodeLabel,
        /// Its type.
        data_type: DataType,
        /// The types that the engine has, as text.
        wanted: String,
    },
    /// An operand has a type that the engine does not have there.
    #[error("{node}: {role} ({tensor}) is {data_type}, wanted {wanted}")]
    ElementType {
        /// Which node.
        node: NodeLabel,
        /// The operand's name in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Its type.
        data_type: DataType,
        /// The types that the engine has, as text.
        wanted: String,
    },
    /// An operand has a number of dimensions that the engine does not have.
    #[error("{node}: {role} ({tensor}) has {rank} dimensions, wanted {wanted}")]
    Rank {
        /// Which node.
        node: NodeLabel,
        /// The operand's name in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// How many it has.
        rank: usize,
        /// The numbers that the engine has, as text.
        wanted: &'static str,
    },
    /// An operand has extents that the engine does not have there.
    #[error("{node}: {role} ({tensor}) has extents {dims:?}, wanted {wanted}")]
    Shape {
        /// Which node.
        node: NodeLabel,
        /// The operand's name in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Its extents.
        dims: Vec<usize>,
        /// The extents that the engine has, as text.
        wanted: String,
    },
    /// A node is larger than the engine's tables allow for.
    #[error("{node}: {what}: wanted at most {most}, came {came}")]
    Size {
        /// Which node.
        node: NodeLabel,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        came: u128,
        /// How large it may be.
        most: u128,
    },
    /// The library behind the engine does not take a node.
    #[error("{node}: {reason}")]
    Library {
        /// Which node.
        node: NodeLabel,
        /// What the library was asked and said.
        reason: String,
    },
    /// A kernel of the engine's own can't be had on this machine.
    #[error("no kernel to {purpose}: {reason}")]
    Kernel {
        /// What the kernel is for.
        purpose: String,
        /// What is missing.
        reason: String,
    },
    /// Two elements of an operand lie on the same place.
    #[error("{node}: {role} ({tensor}) has strides {strides:?} over dimensions {dims:?}, which overlap")]
    Overlap {
        /// Which node.
        node: NodeLabel,
        /// The operand's name in the wire format.
        role: &'static str,
        /// The tensor.
        tensor: TensorLabel,
        /// Its extents.
        dims: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
    },
}

/// A node for messages: its position, kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLabel(Box<str>);

impl NodeLabel {
    /// The label of node `index`.
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

/// A tensor for messages: its uid and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorLabel(Box<str>);

impl TensorLabel {
    /// The label of a tensor with that uid and name.
    pub fn new(uid: i64, name: &str) -> TensorLabel {
        TensorLabel(format!("tensor {uid}{}", quoted(name)).into())
    }

    /// The label of a tensor of the graph.
    pub fn of(graph: &Graph, uid: TensorUid) -> TensorLabel {
        TensorLabel::new(uid.0, graph.tensor(uid).name())
    }
}

impl std::fmt::Display for TensorLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name of the client, kept short.
fn quoted(name: &str) -> String {
    match name {
        "" => String::new(),
        _ if name.chars().count() > 64 => format!(" {:?}…", name.chars().take(64).collect::<String>()),
        _ => format!(" {name:?}"),
    }
}
