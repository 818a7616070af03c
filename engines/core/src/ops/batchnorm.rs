//! Batch normalization: each channel has its mean and deviation over the batch and all places.
//!
//! Conventions that the wire format leaves open follow hipDNN's reference executor (`CpuFpReferenceBatchnorm` and its
//! plans in hipDNN's test SDK): the inverse variance is 1 / √(variance + epsilon) with the biased variance; running
//! statistics become (1 - momentum) · old + momentum · new, where the new variance is the unbiased one (biased where a
//! channel has one element); a momentum that is not given is 0.1; the backward node, which has no epsilon, takes 1e-5
//! where it has to compute statistics itself; its mean and inverse variance come together or not at all.

use hipdnn_schemas::{
    Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, Graph, TensorUid,
};

use super::normalization::{Affine, Normalization, Reader, Scalar, Slot, Task};
use crate::Declined;

/// Dimension of the channels.
const CHANNELS: usize = 1;

/// Momentum of nodes that name none.
const MOMENTUM: f64 = 0.1;

/// Epsilon of backward nodes.
const EPSILON: f64 = 1e-5;

fn begin<'g>(
    graph: &'g Graph,
    index: usize,
    name: &'static str,
    task: Task,
    x: TensorUid,
) -> Result<Reader<'g>, Declined> {
    let mut reader = Reader::new(graph, index, name, task, x, |axis| axis != CHANNELS)?;
    reader.node().affine = Affine::PerGroup;
    Ok(reader)
}

/// Declines statistics that are shared with other devices.
fn alone(reader: &Reader<'_>, peers: &[TensorUid]) -> Result<(), Declined> {
    match peers.first() {
        Some(peer) => Err(reader.attribute("peer_stats_tensor_uid", peer, "none")),
        None => Ok(()),
    }
}

fn per_channel(axis: usize) -> bool {
    axis == CHANNELS
}

fn everywhere(_: usize) -> bool {
    true
}

/// Reads an inference node that takes the inverse deviation.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn inference(graph: &Graph, index: usize, node: &BatchnormInference) -> Result<Normalization, Declined> {
    let mut reader = begin(graph, index, "batch normalization", Task::Forward, node.x)?;
    reader.node().given = true;
    reader.input(Slot::Mean, "mean", node.mean, per_channel)?;
    reader.input(Slot::Inverse, "inv_variance", node.inv_variance, per_channel)?;
    reader.input(Slot::Scale, "scale", node.scale, per_channel)?;
    reader.input(Slot::Bias, "bias", node.bias, per_channel)?;
    reader.output(Slot::Out, "y", node.y, everywhere)?;
    Ok(reader.finish())
}

/// Reads an inference node that takes the variance.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn inference_with_variance(
    graph: &Graph,
    index: usize,
    node: &BatchnormInferenceVarianceExt,
) -> Result<Normalization, Declined> {
    let mut reader = begin(graph, index, "batch normalization", Task::Forward, node.x)?;
    reader.node().given = true;
    reader.input(Slot::Mean, "mean", node.mean, per_channel)?;
    reader.input(Slot::Variance, "variance", node.variance, per_channel)?;
    reader.input(Slot::Scale, "scale", node.scale, per_channel)?;
    reader.input(Slot::Bias, "bias", node.bias, per_channel)?;
    reader.node().epsilon = reader.scalar("epsilon", node.epsilon)?;
    reader.output(Slot::Out, "y", node.y, everywhere)?;
    Ok(reader.finish())
}

/// Reads a training node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn training(graph: &Graph, index: usize, node: &Batchnorm) -> Result<Normalization, Declined> {
    let mut reader = begin(graph, index, "batch normalization in training", Task::Forward, node.x)?;
    alone(&reader, &node.peer_stats)?;
    reader.input(Slot::Scale, "scale", node.scale, per_channel)?;
    reader.input(Slot::Bias, "bias", node.bias, per_channel)?;
    reader.node().epsilon = reader.scalar("epsilon", node.epsilon)?;
    reader.node().momentum = Scalar::Fixed(MOMENTUM);
    if let Some(momentum) = node.momentum {
        reader.node().momentum = reader.scalar("momentum", momentum)?;
    }
    reader.output(Slot::Out, "y", node.y, everywhere)?;
    for (slot, role, uid) in [(Slot::Mean, "mean", node.mean), (Slot::Inverse, "inv_variance", node.inv_variance)] {
        if let Some(uid) = uid {
            reader.output(slot, role, uid, per_channel)?;
        }
    }
    let running = [
        (
            (Slot::PrevMean, "prev_running_mean", node.prev_running_mean),
            (Slot::NextMean, "next_running_mean", node.next_running_mean, "next_running_mean_tensor_uid"),
        ),
        (
            (Slot::PrevVariance, "prev_running_variance", node.prev_running_variance),
            (
                Slot::NextVariance,
                "next_running_variance",
                node.next_running_variance,
                "next_running_variance_tensor_uid",
            ),
        ),
    ];
    for ((prev_slot, prev_role, prev), (next_slot, next_role, next, attribute)) in running {
        let Some(next) = next else { continue };
        let Some(prev) = prev else {
            return Err(reader.attribute(attribute, next, "none where there is no previous one to go on from"));
        };
        reader.input(prev_slot, prev_role, prev, per_channel)?;
        reader.output(next_slot, next_role, next, per_channel)?;
    }
    Ok(reader.finish())
}

/// Reads a backward node.
///
/// # Errors
/// If no engine supports the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &BatchnormBackward) -> Result<Normalization, Declined> {
    let mut reader = begin(graph, index, "gradient of batch normalization", Task::Backward, node.x)?;
    alone(&reader, &node.peer_stats)?;
    reader.input(Slot::Dy, "dy", node.dy, everywhere)?;
    reader.input(Slot::Scale, "scale", node.scale, per_channel)?;
    reader.node().epsilon = Scalar::Fixed(EPSILON);
    reader.statistics(node.mean, node.inv_variance, per_channel)?;
    reader.output(Slot::Out, "dx", node.dx, everywhere)?;
    reader.output(Slot::Dscale, "dscale", node.dscale, per_channel)?;
    reader.output(Slot::Dbias, "dbias", node.dbias, per_channel)?;
    Ok(reader.finish())
}

#[cfg(test)]
mod tests;
