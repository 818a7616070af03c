//! Layer normalization: each row, of the last `normalized_dim_count` dimensions, has its mean and deviation.
//!
//! As in hipDNN's reference executor (`CpuFpReferenceLayernorm` in hipDNN's test SDK): the variance is the biased one,
//! and the inverse variance is 1 / √(variance + epsilon); scale and bias have the normalized dimensions and statistics
//! the others, with ones for those that they have not, or without them; mean and inverse variance come to the backward
//! node together or not at all. Statistics are written where the node names tensors for them, whatever its
//! `forward_phase`.

use hipdnn_schemas::{Graph, Layernorm, LayernormBackward};

use super::normalization::{Normalization, Reader, Slot, Task};
use crate::Declined;

/// First normalized dimension.
fn first(graph: &Graph, x: hipdnn_schemas::TensorUid, count: i64) -> usize {
    let count = usize::try_from(count).expect("a checked node has as many normalized dimensions as x or fewer");
    graph.tensor(x).rank() - count
}

/// Reads a forward node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn forward(graph: &Graph, index: usize, node: &Layernorm) -> Result<Normalization, Declined> {
    let first = first(graph, node.x, node.normalized_dim_count);
    let mut reader = Reader::new(graph, index, "layer normalization", Task::Forward, node.x, |axis| axis >= first)?;
    reader.input(Slot::Scale, "scale", node.scale, |axis| axis >= first)?;
    reader.input(Slot::Bias, "bias", node.bias, |axis| axis >= first)?;
    reader.node().epsilon = reader.scalar("epsilon", node.epsilon)?;
    reader.output(Slot::Out, "y", node.y, |_| true)?;
    if let Some(mean) = node.mean {
        reader.output(Slot::Mean, "mean", mean, |axis| axis < first)?;
    }
    if let Some(inv_variance) = node.inv_variance {
        reader.output(Slot::Inverse, "inv_variance", inv_variance, |axis| axis < first)?;
    }
    Ok(reader.finish())
}

/// Reads a backward node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &LayernormBackward) -> Result<Normalization, Declined> {
    let first = first(graph, node.x, node.normalized_dim_count);
    let name = "gradient of layer normalization";
    let mut reader = Reader::new(graph, index, name, Task::Backward, node.x, |axis| axis >= first)?;
    reader.input(Slot::Dy, "dy", node.dy, |_| true)?;
    reader.input(Slot::Scale, "scale", node.scale, |axis| axis >= first)?;
    if !reader.statistics(node.mean, node.inv_variance, |axis| axis < first)? {
        let Some(epsilon) = node.epsilon else {
            return Err(reader.attribute("epsilon_tensor_uid", "null", "a tensor, as no statistics are given"));
        };
        reader.node().epsilon = reader.scalar("epsilon", epsilon)?;
    }
    reader.output(Slot::Out, "dx", node.dx, |_| true)?;
    reader.output(Slot::Dscale, "dscale", node.dscale, |axis| axis >= first)?;
    if let Some(dbias) = node.dbias {
        reader.output(Slot::Dbias, "dbias", dbias, |axis| axis >= first)?;
    }
    Ok(reader.finish())
}

#[cfg(test)]
mod tests;
