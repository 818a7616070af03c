//! The rule "batch norm into convolution": a normalization with given statistics is a scale and a shift of each
//! channel.
//!
//! `(x - mean)·r·scale + bias = x·(r·scale) + (bias - mean·r·scale)` with r the inverse deviation. Both factors are computed
//! in `f64` when the plan runs, and rounded to `f32`: the result differs from that of the nodes one by one by a few roundings
//! of x and mean, times r·scale.

use hipdnn_schemas::{DataType, Graph, Operation, TensorUid, Uids};

use crate::work::Work;
use hipdnn_cpu_pointwise::Storage;

/// Normalization that is computed on a convolution's sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold {
    /// Mean of each channel.
    pub mean: TensorUid,
    /// Spread of each channel: the inverse deviation, or the variance if there is an epsilon.
    pub spread: TensorUid,
    /// Epsilon, added to the variance.
    pub epsilon: Option<TensorUid>,
    /// Scale of each channel.
    pub scale: TensorUid,
    /// Bias of each channel.
    pub bias: TensorUid,
}

impl Fold {
    /// Operand tensors.
    pub fn tensors(&self) -> Uids {
        [self.mean, self.spread, self.scale, self.bias].into_iter().chain(self.epsilon).collect()
    }
}

/// Matches a node that is a normalization of `current`: the normalization, and its result.
pub(super) fn normalization(
    graph: &Graph,
    works: &[Option<Work>],
    node: usize,
    current: TensorUid,
) -> Option<(Fold, TensorUid)> {
    let Some(Work::Node(_)) = works[node] else { return None };
    let (x, fold, y) = match &graph.nodes()[node].operation {
        Operation::BatchnormInference(n) => {
            let (mean, spread, scale, bias) = (n.mean, n.inv_variance, n.scale, n.bias);
            (n.x, Fold { mean, spread, epsilon: None, scale, bias }, n.y)
        }
        Operation::BatchnormInferenceVarianceExt(n) => {
            let (mean, spread, epsilon) = (n.mean, n.variance, Some(n.epsilon));
            (n.x, Fold { mean, spread, epsilon, scale: n.scale, bias: n.bias }, n.y)
        }
        _ => return None,
    };
    let single = graph.nodes()[node].compute_data_type == DataType::Float;
    let others = fold.tensors();
    let known = others.iter().all(|uid| Storage::of(graph.tensor(*uid).data_type()).is_some());
    (single && known && x == current && !others.contains(&current)).then_some((fold, y))
}
