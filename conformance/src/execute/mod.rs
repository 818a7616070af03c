//! Any graph by plain loops in double precision, with a bound on every element.
//!
//! Nothing here is shared with an engine: the meaning of the operations is hipDNN's, as its headers, documentation and
//! reference executors give it.

mod attention;
mod batchnorm;
mod block_scale;
mod convolution;
mod layernorm;
mod matmul;
mod pointwise;
mod reduction;
mod resample;
mod rms_norm;
mod tolerance;

use std::collections::HashMap;

use hipdnn_schemas::{Graph, Operation, Tensor, TensorUid, TensorValue};

pub use tolerance::{Tolerance, has_narrow_intermediates};

use crate::array::Array;
use crate::number::{Arithmetic, Number};

/// Results of a graph: for each tensor that a node writes, its elements before they are rounded to the tensor's type.
pub type Results = HashMap<TensorUid, Array>;

/// Computes every node. `inputs` has the tensors that no node writes and that carry no value of their own.
///
/// # Errors
/// If the graph has an operation, mode or attribute whose meaning is not known here, or an input is missing.
pub fn execute(graph: &Graph, inputs: &HashMap<TensorUid, Array>) -> Result<Results, String> {
    execute_with(graph, inputs, Tolerance::default())
}

/// Computes every node, with bounds that allow what `tolerance` does.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(
    graph: &Graph,
    inputs: &HashMap<TensorUid, Array>,
    tolerance: Tolerance,
) -> Result<Results, String> {
    let mut results = Results::new();
    let mut values = HashMap::new();
    for tensor in graph.tensors() {
        if let Some(value) = tensor.value() {
            values.insert(tensor.uid(), Array::filled(tensor.dims(), scalar(tensor, value)));
        } else if let Some(array) = inputs.get(&tensor.uid()) {
            values.insert(tensor.uid(), array.clone());
        }
    }
    for (index, node) in graph.nodes().iter().enumerate() {
        let explain = |reason: String| format!("node {index} ({}): {reason}", node.operation.kind());
        let arithmetic = Arithmetic::new(node.compute_data_type).map_err(explain)?;
        let mut step = Step { graph, values: &values, arithmetic, written: Vec::new() };
        run(&mut step, &node.operation).map_err(explain)?;
        for (uid, array) in step.written {
            let data_type = graph.tensor(uid).data_type();
            let narrowed = tolerance.narrowed(graph, uid).unwrap_or(data_type);
            let stored = array.data.iter().map(|number| number.stored(data_type).stored(narrowed)).collect();
            values.insert(uid, Array { dims: array.dims.clone(), data: stored });
            results.insert(uid, array);
        }
    }
    Ok(results)
}

fn run(step: &mut Step, operation: &Operation) -> Result<(), String> {
    match operation {
        Operation::ConvolutionFwd(node) => convolution::forward(step, node),
        Operation::ConvolutionBwd(node) => convolution::backward_data(step, node),
        Operation::ConvolutionWrw(node) => convolution::backward_weights(step, node),
        Operation::Pointwise(node) => pointwise::pointwise(step, node),
        Operation::Matmul(node) => matmul::matmul(step, node),
        Operation::BatchnormInference(node) => batchnorm::inference(step, node),
        Operation::BatchnormInferenceVarianceExt(node) => batchnorm::inference_with_variance(step, node),
        Operation::Batchnorm(node) => batchnorm::training(step, node),
        Operation::BatchnormBackward(node) => batchnorm::backward(step, node),
        Operation::Layernorm(node) => layernorm::forward(step, node),
        Operation::LayernormBackward(node) => layernorm::backward(step, node),
        Operation::RmsNorm(node) => rms_norm::forward(step, node),
        Operation::RmsNormBackward(node) => rms_norm::backward(step, node),
        Operation::Reduction(node) => reduction::reduction(step, node),
        Operation::ResampleFwd(node) => resample::forward(step, node),
        Operation::ResampleBwd(node) => resample::backward(step, node),
        Operation::BlockScaleDequantize(node) => block_scale::dequantize(step, node),
        Operation::BlockScaleQuantize(node) => block_scale::quantize(step, node),
        Operation::Sdpa(node) => attention::forward(step, node),
        _ => Err("the executor does not have this operation".into()),
    }
}

/// A node at work: its operands and results.
struct Step<'a> {
    graph: &'a Graph,
    values: &'a HashMap<TensorUid, Array>,
    arithmetic: Arithmetic,
    written: Vec<(TensorUid, Array)>,
}

impl<'a> Step<'a> {
    /// An operand as it was stored.
    fn stored(&self, uid: TensorUid) -> Result<&'a Array, String> {
        self.values.get(&uid).ok_or_else(|| format!("tensor {uid} has no value"))
    }

    /// An operand, converted to the compute type.
    fn operand(&self, uid: TensorUid) -> Result<Array, String> {
        let array = self.stored(uid)?;
        let data = array.data.iter().map(|number| self.arithmetic.operand(*number)).collect();
        Ok(Array { dims: array.dims.clone(), data })
    }

    fn optional(&self, uid: Option<TensorUid>) -> Result<Option<Array>, String> {
        uid.map(|uid| self.operand(uid)).transpose()
    }

    fn tensor(&self, uid: TensorUid) -> &'a Tensor {
        self.graph.tensor(uid)
    }

    fn write(&mut self, uid: TensorUid, array: Array) {
        debug_assert_eq!(array.dims, self.tensor(uid).dims());
        self.written.push((uid, array));
    }

    /// Writes numbers that are in the order of the tensor's elements, whatever its extents are.
    fn write_list(&mut self, uid: TensorUid, data: Vec<Number>) {
        let dims = self.tensor(uid).dims().to_vec();
        self.write(uid, Array { dims, data });
    }
}

fn scalar(tensor: &Tensor, value: TensorValue) -> Number {
    Number::exact(match value {
        TensorValue::Float32(value) | TensorValue::Float16(value) | TensorValue::BFloat16(value) => value.into(),
        TensorValue::Float8(code) => crate::format::load(tensor.data_type(), &[code], 0),
        TensorValue::Int32(value) => value.into(),
        TensorValue::Float64(value) => value,
        TensorValue::Int64(value) => value as f64,
        TensorValue::Bool(value) => f64::from(u8::from(value)),
    })
}

#[cfg(test)]
mod tests;
