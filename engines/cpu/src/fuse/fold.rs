//! The rule "batch norm into convolution": a normalization with given statistics is a scale and a shift of each
//! channel.
//!
//! `(x - mean)·r·scale + bias = x·(r·scale) + (bias - mean·r·scale)` with r the inverse deviation. Both factors are computed
//! in `f64` when the plan runs, and rounded to `f32`: the result differs from that of the nodes one by one by a few roundings
//! of x and mean, times r·scale.

use hipdnn_schemas::{DataType, Graph, Operation, Tensor, TensorUid, Uids};

use crate::nodes::view::Walk;
use crate::pointwise::Storage;
use crate::work::Work;

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

/// Tensor with a value for each channel, or one for all.
#[derive(Clone, Debug)]
pub struct Values {
    storage: Storage,
    /// Walk over its elements, in logical order.
    walk: Walk,
}

impl Values {
    /// Storage and walk of a tensor.
    pub fn new(tensor: &Tensor) -> Values {
        let storage = Storage::of(tensor.data_type()).expect("folded operands have a storage");
        let pairs = tensor.dims().iter().copied().zip(tensor.strides().iter().copied());
        Values { storage, walk: Walk::new(pairs) }
    }

    /// # Safety
    /// `base` is the tensor's first element and the tensor has an element `channel`.
    unsafe fn get(&self, base: *const u8, channel: usize) -> f64 {
        let mut value = [0f64];
        // SAFETY: the caller's promise.
        unsafe { self.storage.load_wide(base, self.walk.offset(channel), 1, &mut value) };
        value[0]
    }
}

/// Operands of a fold, in the order mean, spread, scale, bias and epsilon, if there is one.
#[derive(Clone, Debug)]
pub struct Factors {
    /// Number of channels.
    pub channels: usize,
    /// Operands.
    pub operands: Vec<Values>,
}

impl Factors {
    /// Bytes of the scales; the shifts take as many.
    pub fn bytes(&self) -> usize {
        self.channels * size_of::<f32>()
    }

    /// Computes each channel's scale and shift.
    ///
    /// # Safety
    /// `inputs` are the first elements of the operands; `factors` and `shifts` have room for a value for each channel.
    pub unsafe fn run(&self, inputs: &[*const u8], factors: *mut f32, shifts: *mut f32) {
        for channel in 0..self.channels {
            // SAFETY: the caller's promise: a value for each channel, one epsilon.
            unsafe {
                let value = |operand: usize| self.operands[operand].get(inputs[operand], channel);
                let spread = match self.operands.get(4) {
                    Some(epsilon) => (value(1) + epsilon.get(inputs[4], 0)).sqrt().recip(),
                    None => value(1),
                };
                let factor = spread * value(2);
                factors.add(channel).write(factor as f32);
                shifts.add(channel).write((value(3) - value(0) * factor) as f32);
            }
        }
    }
}
