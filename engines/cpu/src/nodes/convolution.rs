//! Gradients of convolutions.

mod data;
mod direct;
mod disjoint;
mod outputs;
mod weights;

use std::sync::Arc;

use hipdnn_cpu_convolution::{Layout, Shape};
use hipdnn_engine_core::Declined;
use hipdnn_schemas::{Convolution, ConvolutionBwd, ConvolutionWrw, Graph, TensorUid};

use super::LibraryOp;
use crate::geometry::check_convolution_operands;
use crate::geometry::{layout, shape};
use crate::work::Work;

/// Lowers a gradient with respect to the input.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_data(graph: &Graph, index: usize, node: &ConvolutionBwd) -> Result<Work, Declined> {
    let operands = [("dx", node.dx), ("w", node.w), ("dy", node.dy)];
    let forward = forward(graph, index, operands, &node.convolution)?;
    let gradient = data::Gradient::new(graph, index, forward)?;
    Ok(Work::Node(LibraryOp {
        name: "convolution data gradient",
        inputs: vec![Some(node.dy), Some(node.w)],
        outputs: vec![Some(node.dx)],
        recipe: Arc::new(gradient),
    }))
}

/// Lowers a gradient with respect to the filter.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_weights(graph: &Graph, index: usize, node: &ConvolutionWrw) -> Result<Work, Declined> {
    let operands = [("x", node.x), ("dw", node.dw), ("dy", node.dy)];
    let forward = forward(graph, index, operands, &node.convolution)?;
    Ok(Work::Node(LibraryOp {
        name: "convolution weight gradient",
        inputs: vec![Some(node.x), Some(node.dy)],
        outputs: vec![Some(node.dw)],
        recipe: Arc::new(weights::Gradient(forward)),
    }))
}

/// Forward convolution of a gradient: its sizes, and the layouts of the three tensors.
#[derive(Clone, Debug)]
struct Forward {
    shape: Shape,
    x: Layout,
    w: Layout,
    y: Layout,
}

/// Checks the operands, named (x, w, y) as their places in the forward convolution are.
fn forward(
    graph: &Graph,
    index: usize,
    operands: [(&'static str, TensorUid); 3],
    convolution: &Convolution,
) -> Result<Forward, Declined> {
    check_convolution_operands(graph, index, operands, convolution)?;
    let [x, w, y] = operands.map(|(_, uid)| graph.tensor(uid));
    Ok(Forward { shape: shape(convolution, x, w, y), x: layout(x), w: layout(w), y: layout(y) })
}

#[cfg(test)]
mod tests;
