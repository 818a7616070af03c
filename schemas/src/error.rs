//! Errors in graphs.

/// Error in bytes or a description of a graph. The message names the tensor or node, what was wanted and what came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The bytes are not a FlatBuffer of this schema.
    #[error("not a hipDNN FlatBuffer: {0}")]
    Malformed(String),
    /// The text is not hipDNN's JSON form.
    #[error("not a hipDNN JSON graph: {0}")]
    Json(String),
    /// A tensor is described wrongly.
    #[error("tensor {uid}: {reason}")]
    Tensor {
        /// Uid of the tensor.
        uid: i64,
        /// Expected and actual property.
        reason: String,
    },
    /// A node is described wrongly.
    #[error("node {index} ({kind}): {reason}")]
    Node {
        /// Position in the graph.
        index: usize,
        /// Its operation.
        kind: &'static str,
        /// Expected and actual property.
        reason: String,
    },
    /// There is nothing to compute.
    #[error("the graph has no nodes")]
    NoNodes,
    /// The graph uses something this version of the format does not have.
    #[error("not supported by this version of the format: {0}")]
    Unknown(String),
}
