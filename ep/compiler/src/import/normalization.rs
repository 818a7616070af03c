//! Normalizations.

use hipdnn_schemas::{
    BatchnormInferenceVarianceExt, DataType, Layernorm, NormFwdPhase, Operation, PointwiseMode, ReductionMode, RmsNorm,
    TensorValue,
};

use super::arithmetic::power;
use super::{Declined, Importer, Operator, declined, sums};
use crate::ir::{Source, ValueId};

pub(super) const OPERATORS: &[Operator] = &[
    sums("BatchNormalization", batch_normalization),
    sums("GroupNormalization", group_normalization),
    sums("InstanceNormalization", instance_normalization),
    sums("LRN", local_response_normalization),
    sums("LayerNormalization", layer_normalization),
    sums("LpNormalization", lp_normalization),
    sums("MeanVarianceNormalization", mean_variance_normalization),
    sums("RMSNormalization", rms_normalization),
    sums("SimplifiedLayerNormalization", rms_normalization),
];

fn epsilon(n: &mut Importer<'_>) -> ValueId {
    let epsilon = n.float("epsilon", 1e-5);
    n.function.scalar(TensorValue::Float32(epsilon), DataType::Float, 1)
}

/// Inference: statistics are inputs.
fn batch_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    if n.int("training_mode", 0) != 0 && n.since() >= 14 && !n.has_output(3) {
        return batch_statistics(n);
    }
    if n.int("training_mode", 0) != 0 || (1..5).any(|output| n.has_output(output)) {
        return declined("batch normalization for training before operator set 14 is not imported");
    }
    if n.since() < 7 && n.int("is_test", 0) == 0 {
        return declined("batch normalization for training is not imported");
    }
    if n.int("spatial", 1) == 0 {
        return declined("statistics of single elements, as before operator set 9, are not imported");
    }
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    if dims.len() < 2 {
        return declined(format!("expected at least 2 dimensions, got {}", dims.len()));
    }
    let mut shape = vec![1; dims.len()];
    shape[1] = dims[1];
    let mut parameters = [x; 4];
    for (index, parameter) in parameters.iter_mut().enumerate() {
        let id = n.float_input(index + 1)?;
        if n.function.value(id).elements() != dims[1] {
            return declined(format!("expected {} elements of input {}, got {:?}", dims[1], index + 1, n.dims(id)));
        }
        *parameter = n.reshape(id, &shape);
    }
    let [scale, bias, mean, variance] = parameters.map(ValueId::uid);
    let epsilon = epsilon(n).uid();
    let (data_type, x) = (n.data_type(x), x.uid());
    let y = n.emit(data_type, &dims, |y| {
        let y = y.uid();
        Operation::BatchnormInferenceVarianceExt(BatchnormInferenceVarianceExt {
            x,
            mean,
            variance,
            scale,
            bias,
            y,
            epsilon,
        })
    })?;
    n.output(0, y);
    Ok(())
}

/// Training: statistics are those of the batch, and update the running statistics.
fn batch_statistics(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    if dims.len() < 2 || dims.contains(&0) {
        return declined(format!("expected [N, C, ...] with elements, got {dims:?}"));
    }
    let mut shape = vec![1; dims.len()];
    shape[1] = dims[1];
    let axes: Vec<usize> = (0..dims.len()).filter(|axis| *axis != 1).collect();
    let mean = n.reduce(ReductionMode::Average, x, &axes)?;
    let centered = n.binary(PointwiseMode::Sub, x, mean)?;
    let square = n.binary(PointwiseMode::Mul, centered, centered)?;
    let variance = n.reduce(ReductionMode::Average, square, &axes)?;
    let shifted = n.with_number(PointwiseMode::Add, variance, n.float("epsilon", 1e-5))?;
    let inverse = n.apply(PointwiseMode::Rsqrt, shifted)?;
    let y = n.binary(PointwiseMode::Mul, centered, inverse)?;
    let y = n.scaled_and_shifted(y, &shape)?;
    n.output(0, y);
    let momentum = n.float("momentum", 0.9);
    for (index, statistic) in [(1, mean), (2, variance)] {
        let known = n.float_input(index + 2)?;
        let known = per_element(n, known, &shape)?;
        let kept = n.with_number(PointwiseMode::Mul, known, momentum)?;
        let new = n.with_number(PointwiseMode::Mul, statistic, 1.0 - momentum)?;
        let moved = n.binary(PointwiseMode::Add, kept, new)?;
        let moved = n.reshape(moved, &[dims[1]]);
        n.output(index, moved);
    }
    Ok(())
}

fn layer_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (x, scale) = (n.float_input(0)?, n.float_input(1)?);
    let dims = n.dims(x);
    let axis = n.axis(n.int("axis", -1), dims.len())?;
    let inner = &dims[axis..];
    let normalized_dim_count = inner.len() as i64;
    let statistics = n.has_output(1) || n.has_output(2);
    if statistics && (dims.contains(&0) || n.int("stash_type", 1) != 1) {
        return declined("statistics of nothing, or in another type than float, are not imported");
    }
    // As many dimensions as the input, whose extents are 1 where each row has the same parameters.
    let mut shape = vec![1; axis];
    shape.extend(inner);
    let scale = per_element(n, scale, &shape)?;
    let bias = if n.has_input(2) {
        let bias = n.float_input(2)?;
        per_element(n, bias, &shape)?
    } else {
        let zeros = vec![0u8; 4 * inner.iter().product::<i64>() as usize];
        n.function.source(Source::Constant(zeros.into()), DataType::Float, &shape)
    };
    let epsilon = epsilon(n).uid();
    let (data_type, x, scale, bias) = (n.data_type(x), x.uid(), scale.uid(), bias.uid());
    let mut forward_phase = NormFwdPhase::Inference;
    let (mut mean, mut inv_variance) = (None, None);
    if statistics {
        forward_phase = NormFwdPhase::Training;
        let mut rows = dims[..axis].to_vec();
        rows.resize(dims.len(), 1);
        for (index, statistic) in [(1, &mut mean), (2, &mut inv_variance)] {
            let id = n.function.result(DataType::Float, &rows);
            *statistic = Some(id.uid());
            n.output(index, id);
        }
    }
    let y = n.emit(data_type, &dims, |y| {
        Operation::Layernorm(Layernorm {
            x,
            scale,
            bias,
            epsilon,
            y: y.uid(),
            normalized_dim_count,
            mean,
            inv_variance,
            forward_phase,
        })
    })?;
    n.output(0, y);
    Ok(())
}

/// A parameter of a normalization, one for each element of a row.
fn per_element(n: &mut Importer<'_>, id: ValueId, shape: &[i64]) -> Result<ValueId, Declined> {
    let dims = n.dims(id);
    if n.function.value(id).elements() == shape.iter().product::<i64>() {
        return Ok(n.reshape(id, shape));
    }
    // Fewer dimensions, or extents of 1, where some are the same.
    if dims.len() > shape.len() || super::broadcast(&dims, shape).as_deref() != Ok(shape) {
        return declined(format!("expected parameters for each of {shape:?}, got extents {dims:?}"));
    }
    let ranked = n.ranked(id, shape.len());
    let wide = n.function.expand(ranked, shape);
    Ok(n.function.copy(wide, n.current))
}

fn rms_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    if n.has_output(1) {
        return declined("the statistics of a normalization are not imported");
    }
    let (x, scale) = (n.float_input(0)?, n.float_input(1)?);
    let dims = n.dims(x);
    let axis = n.axis(n.int("axis", -1), dims.len())?;
    let scale = per_element(n, scale, &dims[axis..])?;
    // Rows and what is normalized: hipDNN reads from the scale's extents which dimensions are.
    let inner: i64 = dims[axis..].iter().product();
    let rows = [dims[..axis].iter().product(), inner];
    let (x, scale) = (n.reshape(x, &rows), n.reshape(scale, &[1, inner]));
    let epsilon = epsilon(n).uid();
    let (data_type, x, scale) = (n.data_type(x), x.uid(), scale.uid());
    let y = n.emit(data_type, &rows, |y| {
        Operation::RmsNorm(RmsNorm {
            x,
            scale,
            epsilon,
            y: y.uid(),
            bias: None,
            inv_rms: None,
            forward_phase: NormFwdPhase::Inference,
        })
    })?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

impl Importer<'_> {
    /// `(x - mean) / sqrt(variance + epsilon)` over `axes`.
    fn standardized(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId, Declined> {
        let epsilon = self.float("epsilon", 1e-5);
        let mean = self.reduce(ReductionMode::Average, x, axes)?;
        let centered = self.binary(PointwiseMode::Sub, x, mean)?;
        let square = self.binary(PointwiseMode::Mul, centered, centered)?;
        let variance = self.reduce(ReductionMode::Average, square, axes)?;
        let shifted = self.with_number(PointwiseMode::Add, variance, epsilon)?;
        let inverse = self.apply(PointwiseMode::Rsqrt, shifted)?;
        self.binary(PointwiseMode::Mul, centered, inverse)
    }

    /// Multiplies by a scale and adds a bias, inputs 1 and 2, both of these extents.
    fn scaled_and_shifted(&mut self, x: ValueId, shape: &[i64]) -> Result<ValueId, Declined> {
        let (scale, bias) = (self.float_input(1)?, self.float_input(2)?);
        let (scale, bias) = (per_element(self, scale, shape)?, per_element(self, bias, shape)?);
        let y = self.binary(PointwiseMode::Mul, x, scale)?;
        self.binary(PointwiseMode::Add, y, bias)
    }
}

fn instance_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    if dims.len() < 3 {
        return declined(format!("expected at least 3 dimensions, got {}", dims.len()));
    }
    let y = n.standardized(x, &(2..dims.len()).collect::<Vec<_>>())?;
    let mut shape = vec![1; dims.len()];
    shape[1] = dims[1];
    let y = n.scaled_and_shifted(y, &shape)?;
    n.output(0, y);
    Ok(())
}

/// Groups of channels are a dimension of their own; parameters are one a group at first, one a channel later.
fn group_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    let groups = n.int("num_groups", 0);
    if dims.len() < 3 || groups < 1 || dims[1] % groups != 0 {
        return declined(format!("{dims:?} cannot be split into {groups} groups of channels"));
    }
    let mut apart = vec![dims[0], groups, dims[1] / groups];
    apart.extend(&dims[2..]);
    let mut shape = vec![1; apart.len()];
    shape[1] = groups;
    if n.since() >= 21 {
        shape[2] = dims[1] / groups;
    }
    let x = n.reshape(x, &apart);
    let y = n.standardized(x, &(2..apart.len()).collect::<Vec<_>>())?;
    let y = n.scaled_and_shifted(y, &shape)?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

/// `x / (bias + alpha/size · sum(x²))^beta`, the sum over `size` neighboring channels: average pooling along them.
fn local_response_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    use hipdnn_schemas::{PaddingMode, ResampleFwd, ResampleMode};
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    let size = n.int("size", 1);
    if dims.len() < 3 || size < 1 || dims.contains(&0) {
        return declined(format!("expected at least 3 dimensions and a size of at least 1, got {dims:?} and {size}"));
    }
    let (alpha, beta, bias) = (n.float("alpha", 1e-4), n.float("beta", 0.75), n.float("bias", 1.0));
    // Channels and places of an image are the two dimensions of a picture with one channel.
    let flat = [dims[0], 1, dims[1], dims[2..].iter().product()];
    let data_type = n.data_type(x);
    let pixels = n.reshape(x, &flat);
    let square = n.binary(PointwiseMode::Mul, pixels, pixels)?;
    let before = (size - 1) / 2;
    let mean = n.emit(data_type, &flat, |y| {
        Operation::ResampleFwd(ResampleFwd {
            x: square.uid(),
            y: y.uid(),
            index: None,
            pre_padding: vec![before, 0],
            post_padding: vec![size - 1 - before, 0],
            stride: vec![1, 1],
            window: vec![size, 1],
            resample_mode: ResampleMode::AvgPoolIncludePadding,
            padding_mode: PaddingMode::Zero,
            generate_index: None,
        })
    })?;
    let scaled = n.with_number(PointwiseMode::Mul, mean, alpha)?;
    let shifted = n.with_number(PointwiseMode::Add, scaled, bias)?;
    let divisor = power(n, shifted, f64::from(beta))?;
    let y = n.binary(PointwiseMode::Div, pixels, divisor)?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

/// `x / norm(x)` along an axis; 0 where all elements are.
fn lp_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let (rank, data_type) = (n.rank(x), n.data_type(x));
    let axis = n.axis(n.int("axis", -1), rank)?;
    let mode = match n.int("p", 2) {
        1 => ReductionMode::Norm1,
        2 => ReductionMode::Norm2,
        p => return declined(format!("expected p 1 or 2, got {p}")),
    };
    let norm = n.reduce(mode, x, &[axis])?;
    let (zero, one) = (n.number(0.0, data_type, rank), n.number(1.0, data_type, rank));
    let nothing = n.binary_to(PointwiseMode::CmpEq, norm, zero, DataType::Boolean)?;
    let divisor = n.select_to(nothing, one, norm, data_type)?;
    let y = n.binary(PointwiseMode::Div, x, divisor)?;
    n.output(0, y);
    Ok(())
}

/// `(x - mean) / (sqrt(variance) + 1e-9)`
fn mean_variance_normalization(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let rank = n.rank(x);
    let axes = n.ints_of("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes = axes.iter().map(|axis| n.axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mean = n.reduce(ReductionMode::Average, x, &axes)?;
    let centered = n.binary(PointwiseMode::Sub, x, mean)?;
    let square = n.binary(PointwiseMode::Mul, centered, centered)?;
    let variance = n.reduce(ReductionMode::Average, square, &axes)?;
    let deviation = n.apply(PointwiseMode::Sqrt, variance)?;
    let divisor = n.with_number(PointwiseMode::Add, deviation, 1e-9)?;
    let y = n.binary(PointwiseMode::Div, centered, divisor)?;
    n.output(0, y);
    Ok(())
}
