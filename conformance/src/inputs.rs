//! Contents of input tensors: seeded, and fit for the operations that read them.

use std::collections::HashMap;

use hipdnn_schemas::{DataType, Graph, Operation, PointwiseMode, ResampleMode, Tensor, TensorUid};

use crate::array::{Array, each_index};
use crate::format;

/// Distribution of a tensor's elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Uniform in a range.
    Uniform(f64, f64),
    /// One of these, each as likely.
    Choice(Vec<f64>),
    /// Places of maxima within the windows of a pooling: see [`indices`].
    Index(Window),
}

/// A pooling's geometry, as its gradient describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    image: Vec<usize>,
    window: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
}

/// Seeded numbers. The sequence is part of what reports and `CONFORMANCE.md` say: seeds name random graphs, inputs and samples,
/// in reports that are compared with earlier ones. So the generator is here, and follows no release of a library.
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
        random.bits();
        random
    }

    /// The next 64 bits (splitmix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Uniform in a range.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.bits() >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// A seed that belongs to a name.
pub fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The tensors that a run has to bring: those that no node writes and that carry no value.
pub fn needed(graph: &Graph) -> impl Iterator<Item = &Tensor> {
    graph.tensors().iter().filter(|tensor| {
        let uid = tensor.uid();
        graph.producer(uid).is_none() && tensor.value().is_none() && !graph.consumers(uid).is_empty()
    })
}

/// The bytes of every tensor that a run has to bring, with `fills` in place of what its readers ask for.
pub fn generate(graph: &Graph, seed: u64, fills: &HashMap<TensorUid, Fill>) -> HashMap<TensorUid, Vec<u8>> {
    let mut inputs = HashMap::new();
    for tensor in needed(graph) {
        let uid = tensor.uid();
        let mut random = Random::new(seed.wrapping_add((uid.0 as u64).wrapping_mul(0x2545_f491_4f6c_dd1d)));
        let fill = fills.get(&uid).cloned().unwrap_or_else(|| fill(graph, tensor));
        // Gaps between the elements hold what no engine may take for data.
        let mut bytes = vec![0xff; tensor.span_bytes()];
        let data_type = tensor.data_type();
        each_index(tensor.dims(), |at| {
            let value = match &fill {
                Fill::Uniform(low, high) => random.uniform(*low, *high),
                Fill::Choice(list) => *random.pick(list),
                Fill::Index(window) => index(&mut random, window, at),
            };
            let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
            format::store(data_type, &mut bytes, place, value);
        });
        inputs.insert(uid, bytes);
    }
    inputs
}

/// The same inputs as arrays.
pub fn arrays(graph: &Graph, inputs: &HashMap<TensorUid, Vec<u8>>) -> HashMap<TensorUid, Array> {
    inputs.iter().map(|(uid, bytes)| (*uid, Array::read(graph.tensor(*uid), bytes))).collect()
}

/// A place of the window that lies within the image.
fn index(random: &mut Random, window: &Window, at: &[usize]) -> f64 {
    let mut flat = 0;
    for (axis, extent) in window.image[2..].iter().enumerate() {
        let first = at[axis + 2] as i64 * window.stride[axis] - window.padding[axis];
        let low = first.max(0);
        let high = (first + window.window[axis]).min(*extent as i64);
        let place = if high > low { low + random.below((high - low) as usize) as i64 } else { 0 };
        flat = flat * *extent as i64 + place;
    }
    flat as f64
}

/// Distribution that suits the tensor's readers.
fn fill(graph: &Graph, tensor: &Tensor) -> Fill {
    let uid = tensor.uid();
    for &reader in graph.consumers(uid) {
        if let Some(fill) = role(&graph.nodes()[reader].operation, uid, graph) {
            return fill;
        }
    }
    match tensor.data_type() {
        DataType::Boolean => Fill::Choice(vec![0.0, 1.0]),
        DataType::UInt8 => Fill::Choice((0..=6).map(f64::from).collect()),
        DataType::Int4 => Fill::Choice((-8..=7).map(f64::from).collect()),
        DataType::Int8 | DataType::Int32 | DataType::Int64 => Fill::Choice((-6..=6).map(f64::from).collect()),
        DataType::Fp8E8M0 => Fill::Choice((-2..=2).map(|exponent| 2f64.powi(exponent)).collect()),
        _ => Fill::Uniform(-1.0, 1.0),
    }
}

/// Distribution that one reader needs, if it is special.
fn role(operation: &Operation, uid: TensorUid, graph: &Graph) -> Option<Fill> {
    let is = |candidate: TensorUid| candidate == uid;
    let maybe = |candidate: Option<TensorUid>| candidate == Some(uid);
    let small = Some(Fill::Uniform(-0.1, 0.1));
    let positive = Some(Fill::Uniform(0.5, 1.5));
    let epsilon = Some(Fill::Uniform(1e-3, 2e-3));
    match operation {
        Operation::Pointwise(node) => {
            use PointwiseMode::*;
            match node.mode {
                Sqrt | Rsqrt | Log | Reciprocal => positive,
                Div if maybe(node.in_1) => positive,
                CmpEq | CmpNeq | CmpGe | CmpGt | CmpLe | CmpLt => {
                    Some(Fill::Choice(if graph.tensor(uid).data_type() == DataType::UInt8 {
                        vec![0.0, 1.0, 2.0]
                    } else {
                        vec![-1.0, -0.0, 0.0, 1.0, 2.0]
                    }))
                }
                LogicalAnd | LogicalOr | LogicalNot => Some(Fill::Choice(vec![0.0, 1.0])),
                BinarySelect if maybe(node.in_2) => Some(Fill::Choice(vec![0.0, 1.0])),
                Ceil | Floor => Some(Fill::Uniform(-3.0, 3.0)),
                _ => None,
            }
        }
        Operation::BatchnormInference(node) if is(node.mean) => small,
        Operation::BatchnormInference(node) if is(node.inv_variance) => positive,
        Operation::BatchnormInferenceVarianceExt(node) if is(node.mean) => small,
        Operation::BatchnormInferenceVarianceExt(node) if is(node.variance) => positive,
        Operation::BatchnormInferenceVarianceExt(node) if is(node.epsilon) => epsilon,
        Operation::Batchnorm(node) if is(node.epsilon) => epsilon,
        Operation::Batchnorm(node) if maybe(node.momentum) => Some(Fill::Uniform(0.05, 0.5)),
        Operation::Batchnorm(node) if maybe(node.prev_running_mean) => small,
        Operation::Batchnorm(node) if maybe(node.prev_running_variance) => positive,
        Operation::BatchnormBackward(node) if maybe(node.mean) => small,
        Operation::BatchnormBackward(node) if maybe(node.inv_variance) => positive,
        Operation::Layernorm(node) if is(node.epsilon) => epsilon,
        Operation::LayernormBackward(node) if maybe(node.epsilon) => epsilon,
        Operation::LayernormBackward(node) if maybe(node.mean) => small,
        Operation::LayernormBackward(node) if maybe(node.inv_variance) => positive,
        Operation::RmsNorm(node) if is(node.epsilon) => epsilon,
        Operation::RmsNormBackward(node) if is(node.inv_rms) => positive,
        Operation::Reduction(node)
            if matches!(node.mode, hipdnn_schemas::ReductionMode::Mul | hipdnn_schemas::ReductionMode::MulNoZeros) =>
        {
            // Products of many numbers stay within the range of half precision, and some are 0.
            match graph.tensor(uid).data_type() {
                DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Double => {
                    let factors = [-1.25, -1.0, -0.9375, 0.9375, 1.0, 1.0625, 1.125];
                    let zero = node.mode == hipdnn_schemas::ReductionMode::MulNoZeros;
                    Some(Fill::Choice(factors.into_iter().chain(zero.then_some(0.0)).collect()))
                }
                _ => Some(Fill::Choice(vec![1.0, 1.0, 1.0, 2.0])),
            }
        }
        Operation::ResampleBwd(node) if maybe(node.index) && node.resample_mode == ResampleMode::MaxPool => {
            Some(Fill::Index(Window {
                image: graph.tensor(node.dx).dims().to_vec(),
                window: node.window.clone(),
                stride: node.stride.clone(),
                padding: node.pre_padding.clone(),
            }))
        }
        Operation::BlockScaleDequantize(node) if is(node.scale) => {
            let (float, exponent) = (vec![0.25, 0.5, 1.0, 2.0, 3.0], vec![-2.0, -1.0, 0.0, 1.0, 2.0]);
            match (graph.tensor(uid).data_type(), node.is_negative_scale) {
                (DataType::Fp8E8M0, _) => None,
                (_, true) => Some(Fill::Choice(exponent)),
                _ => Some(Fill::Choice(float)),
            }
        }
        Operation::Sdpa(node) if maybe(node.seq_len_q) => {
            Some(Fill::Choice((1..=graph.tensor(node.q).dims()[2]).map(|length| length as f64).collect()))
        }
        Operation::Sdpa(node) if maybe(node.seq_len_kv) => {
            Some(Fill::Choice((1..=graph.tensor(node.k).dims()[2]).map(|length| length as f64).collect()))
        }
        _ => None,
    }
}
