//! RMS normalisation: see [`crate::engine::nodes::rmsnorm`].

use hipdnn_schemas::{Graph, RmsNorm, RmsNormBackward};

use super::normalization::lower;
use crate::engine::miopen::lower::Work;
use crate::engine::{Declined, nodes::rmsnorm};

/// Looks at a forward pass.
///
/// # Errors
/// Why the engine does not take it.
pub fn forward(graph: &Graph, index: usize, node: &RmsNorm) -> Result<Work, Declined> {
    lower(graph, index, &rmsnorm::forward(graph, index, node)?)
}

/// Looks at a gradient.
///
/// # Errors
/// Why the engine does not take it.
pub fn backward(graph: &Graph, index: usize, node: &RmsNormBackward) -> Result<Work, Declined> {
    lower(graph, index, &rmsnorm::backward(graph, index, node)?)
}
