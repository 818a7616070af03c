//! The rule "batch norm into convolution": a normalisation with given statistics is a scale and a shift of each channel.
//!
//! `(x - mean)·r·scale + bias = x·(r·scale) + (bias - mean·r·scale)` with r the inverse deviation. Both factors are computed
//! in `f64` when the plan runs, and rounded to `f32`: the result differs from that of the nodes one by one by a few roundings
//! of x and mean, times r·scale.

use hipdnn_schemas::{DataType, Graph, Operation, Tensor, TensorUid};

use crate::engine::host::applicability::Work;
use crate::engine::host::nodes::view::Walk;
use crate::engine::host::pointwise::Storage;

/// A normalisation that is computed on a convolution's sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold {
    /// The mean of each channel.
    pub mean: TensorUid,
    /// The spread of each channel: the inverse deviation, or the variance if there is an epsilon.
    pub spread: TensorUid,
    /// What is added to the variance.
    pub epsilon: Option<TensorUid>,
    /// A factor for each channel.
    pub scale: TensorUid,
    /// What is added to each channel.
    pub bias: TensorUid,
}

impl Fold {
    /// The tensors that are read.
    pub fn tensors(&self) -> Vec<TensorUid> {
        [self.mean, self.spread, self.scale, self.bias].into_iter().chain(self.epsilon).collect()
    }
}

/// The normalisation of `current` that a node is, and its result.
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

/// A tensor with a value for each channel, or one for all.
#[derive(Clone, Debug)]
pub struct Values {
    storage: Storage,
    /// Its elements, in logical order.
    walk: Walk,
}

impl Values {
    /// How the elements of a tensor lie.
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

/// The operands of a fold, in the order mean, spread, scale, bias and epsilon, if there is one.
#[derive(Clone, Debug)]
pub struct Factors {
    /// How many channels there are.
    pub channels: usize,
    /// The operands.
    pub operands: Vec<Values>,
}

impl Factors {
    /// Bytes of the factors, and of the shifts.
    pub fn bytes(&self) -> usize {
        self.channels * size_of::<f32>()
    }

    /// Computes each channel's factor and shift.
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
