//! Batch normalisation: see [`crate::engine::nodes::batchnorm`].

use hipdnn_schemas::{Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, Graph};

use super::normalization::{formula, lower};
use crate::engine::miopen::lower::Work;
use crate::engine::{Declined, nodes::batchnorm};

/// Looks at an inference that is given the inverse deviation.
///
/// # Errors
/// Why the engine does not take it.
pub fn inference(graph: &Graph, index: usize, node: &BatchnormInference) -> Result<Work, Declined> {
    formula(graph, index, &batchnorm::inference(graph, index, node)?)
}

/// Looks at an inference that is given the variance.
///
/// # Errors
/// Why the engine does not take it.
pub fn inference_with_variance(
    graph: &Graph,
    index: usize,
    node: &BatchnormInferenceVarianceExt,
) -> Result<Work, Declined> {
    formula(graph, index, &batchnorm::inference_with_variance(graph, index, node)?)
}

/// Looks at a training step.
///
/// # Errors
/// Why the engine does not take it.
pub fn training(graph: &Graph, index: usize, node: &Batchnorm) -> Result<Work, Declined> {
    lower(graph, index, &batchnorm::training(graph, index, node)?)
}

/// Looks at a gradient.
///
/// # Errors
/// Why the engine does not take it.
pub fn backward(graph: &Graph, index: usize, node: &BatchnormBackward) -> Result<Work, Declined> {
    lower(graph, index, &batchnorm::backward(graph, index, node)?)
}
