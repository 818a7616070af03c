//! RMS normalization: each row is divided by the root of its mean square.
//!
//! The dimensions of a row follow from the scale, as in hipDNN's frontend (`validateScaleNormalizedShape`) and its
//! reference executor (`CpuReferenceRMSNorm` in hipDNN's test SDK): the longest run of last dimensions in which scale
//! and x have the same extents, never the first one of x; before those the scale has ones. The inverse is 1 / √(mean
//! square + epsilon) and has the dimensions that are left. The backward node follows from the formula. Statistics are
//! written where the node names a tensor for them, whatever its `forward_phase`.

use hipdnn_schemas::{Graph, RmsNorm, RmsNormBackward, TensorUid};

use super::normalization::{Normalization, Reader, Slot, Task};
use crate::{Declined, NodeLabel, TensorLabel};

/// First dimension of a row.
fn first(graph: &Graph, index: usize, x: TensorUid, scale: TensorUid) -> Result<usize, Declined> {
    let (dims, parameters) = (graph.tensor(x).dims(), graph.tensor(scale).dims());
    let rank = dims.len();
    let same = dims.iter().rev().zip(parameters.iter().rev()).take_while(|(x, scale)| x == scale).count();
    let first = (rank - same).max(1);
    if first < rank && parameters[..first].iter().all(|extent| *extent == 1) {
        return Ok(first);
    }
    Err(Declined::Shape {
        node: NodeLabel::of(graph, index),
        role: "scale",
        tensor: TensorLabel::of(graph, scale),
        dims: parameters.to_vec(),
        wanted: format!("of ones and then the last of {dims:?}"),
    })
}

/// Reads a forward node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn forward(graph: &Graph, index: usize, node: &RmsNorm) -> Result<Normalization, Declined> {
    let first = first(graph, index, node.x, node.scale)?;
    let mut reader = Reader::new(graph, index, "RMS normalization", Task::Forward, node.x, |axis| axis >= first)?;
    reader.node().centered = false;
    reader.input(Slot::Scale, "scale", node.scale, |axis| axis >= first)?;
    reader.node().epsilon = reader.scalar("epsilon", node.epsilon)?;
    if let Some(bias) = node.bias {
        reader.input(Slot::Bias, "bias", bias, |axis| axis >= first)?;
    }
    reader.output(Slot::Out, "y", node.y, |_| true)?;
    if let Some(inv_rms) = node.inv_rms {
        reader.output(Slot::Inverse, "inv_rms", inv_rms, |axis| axis < first)?;
    }
    Ok(reader.finish())
}

/// Reads a backward node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &RmsNormBackward) -> Result<Normalization, Declined> {
    let first = first(graph, index, node.x, node.scale)?;
    let name = "gradient of RMS normalization";
    let mut reader = Reader::new(graph, index, name, Task::Backward, node.x, |axis| axis >= first)?;
    reader.node().centered = false;
    reader.node().given = true;
    reader.input(Slot::Dy, "dy", node.dy, |_| true)?;
    reader.input(Slot::Scale, "scale", node.scale, |axis| axis >= first)?;
    reader.input(Slot::Inverse, "inv_rms", node.inv_rms, |axis| axis < first)?;
    reader.output(Slot::Out, "dx", node.dx, |_| true)?;
    reader.output(Slot::Dscale, "dscale", node.dscale, |axis| axis >= first)?;
    if let Some(dbias) = node.dbias {
        reader.output(Slot::Dbias, "dbias", dbias, |axis| axis >= first)?;
    }
    Ok(reader.finish())
}

#[cfg(test)]
mod tests;
