//! Layer normalisation: see [`crate::engine::nodes::layernorm`].

use hipdnn_schemas::{Graph, Layernorm, LayernormBackward};

use super::normalization::lower;
use crate::engine::miopen::lower::Work;
use crate::engine::{Declined, nodes::layernorm};

/// Looks at a forward pass.
///
/// # Errors
/// Why the engine does not take it.
pub fn forward(graph: &Graph, index: usize, node: &Layernorm) -> Result<Work, Declined> {
    lower(graph, index, &layernorm::forward(graph, index, node)?)
}

/// Looks at a gradient.
///
/// # Errors
/// Why the engine does not take it.
pub fn backward(graph: &Graph, index: usize, node: &LayernormBackward) -> Result<Work, Declined> {
    lower(graph, index, &layernorm::backward(graph, index, node)?)
}
