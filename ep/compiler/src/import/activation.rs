//! Functions of each element: activations and elementary functions.

use hipdnn_schemas::{DataType, Pointwise, PointwiseMode};

use super::{Declined, Importer, Operator, computes, declined, is_float, microsoft};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    computes("Abs", |n| exact(n, PointwiseMode::Abs)),
    computes("Ceil", |n| function(n, PointwiseMode::Ceil)),
    computes("Celu", celu),
    computes("Clip", clip),
    computes("Cos", cos),
    computes("Elu", elu),
    computes("Erf", |n| function(n, PointwiseMode::Erf)),
    computes("Exp", |n| function(n, PointwiseMode::Exp)),
    computes("Floor", |n| function(n, PointwiseMode::Floor)),
    computes("Gelu", gelu),
    computes("HardSigmoid", hard_sigmoid),
    computes("HardSwish", hard_swish),
    computes("IsInf", is_inf),
    computes("IsNaN", is_nan),
    computes("LeakyRelu", leaky_relu),
    computes("Log", |n| function(n, PointwiseMode::Log)),
    computes("Mish", mish),
    computes("Neg", |n| exact(n, PointwiseMode::Neg)),
    computes("PRelu", prelu),
    computes("Reciprocal", |n| function(n, PointwiseMode::Reciprocal)),
    computes("Relu", relu),
    computes("Round", round),
    computes("Selu", selu),
    computes("Shrink", shrink),
    computes("Sigmoid", |n| function(n, PointwiseMode::SigmoidFwd)),
    computes("Sign", sign),
    computes("Sin", |n| function(n, PointwiseMode::Sin)),
    computes("Softplus", |n| function(n, PointwiseMode::SoftplusFwd)),
    computes("Softsign", softsign),
    computes("Sqrt", |n| function(n, PointwiseMode::Sqrt)),
    computes("Swish", swish),
    computes("Tan", |n| function(n, PointwiseMode::Tan)),
    computes("Tanh", |n| function(n, PointwiseMode::TanhFwd)),
    computes("ThresholdedRelu", thresholded_relu),
    microsoft("Gelu", |n| function(n, PointwiseMode::GeluFwd)),
    microsoft("FastGelu", fast_gelu),
    microsoft("QuickGelu", quick_gelu),
];

fn function(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let y = n.apply(mode, x)?;
    n.output(0, y);
    Ok(())
}

/// A function that is exact of whole numbers too.
fn exact(n: &mut Importer<'_>, mode: PointwiseMode) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    if matches!(n.data_type(x), DataType::Int8 | DataType::UInt8) {
        return declined(format!("{mode} of numbers of 8 bits wraps in ONNX Runtime and saturates in hipDNN"));
    }
    let y = n.apply(mode, x)?;
    n.output(0, y);
    Ok(())
}

fn relu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let y = if is_float(n.data_type(x)) {
        n.apply(PointwiseMode::ReluFwd, x)?
    } else {
        n.with_number(PointwiseMode::Max, x, 0.0)?
    };
    n.output(0, y);
    Ok(())
}

/// Rounding to the nearest integer, ties to even, by conversion to 32 bits and back. Above 2^23 there are no fractions.
/// Integers have one zero: what is rounded to it takes its sign from a product by it.
fn round(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let data_type = n.data_type(x);
    if data_type == DataType::Double {
        return declined("rounding of double is not imported");
    }
    let dims = n.dims(x);
    let near = n.converted(x, DataType::Int32)?;
    let near = n.converted(near, data_type)?;
    let nothing = n.number(0.0, data_type, dims.len());
    let is_zero = n.binary_to(PointwiseMode::CmpEq, near, nothing, DataType::Boolean)?;
    let zero = n.binary(PointwiseMode::Mul, x, nothing)?;
    let near = n.select(is_zero, zero, near)?;
    let size = n.apply(PointwiseMode::Abs, x)?;
    let limit = n.scalar(8_388_608.0, dims.len());
    let fractional = n.binary_to(PointwiseMode::CmpLt, size, limit, DataType::Boolean)?;
    let y = n.select_to(fractional, near, x, data_type)?;
    n.output(0, y);
    Ok(())
}

fn is_nan(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let y = n.binary_to(PointwiseMode::CmpNeq, x, x, DataType::Boolean)?;
    n.output(0, y);
    Ok(())
}

fn is_inf(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let (data_type, rank) = (n.data_type(x), n.rank(x));
    let (below, above) = (n.int("detect_negative", 1) != 0, n.int("detect_positive", 1) != 0);
    let (x, bound) = match (below, above) {
        (true, true) => (n.apply(PointwiseMode::Abs, x)?, f64::INFINITY),
        (true, false) => (x, f64::NEG_INFINITY),
        (false, true) => (x, f64::INFINITY),
        (false, false) => return declined("neither infinity is looked for"),
    };
    let bound = n.number(bound, data_type, rank);
    let y = n.binary_to(PointwiseMode::CmpEq, x, bound, DataType::Boolean)?;
    n.output(0, y);
    Ok(())
}

/// `x < -lambd ? x + bias : x > lambd ? x - bias : 0`
fn shrink(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let (bias, bound, rank) = (n.float("bias", 0.0), n.float("lambd", 0.5), n.rank(x));
    let (low, high, zero) = (n.scalar(-bound, rank), n.scalar(bound, rank), n.scalar(0.0, rank));
    let below = n.binary_to(PointwiseMode::CmpLt, x, low, DataType::Boolean)?;
    let above = n.binary_to(PointwiseMode::CmpGt, x, high, DataType::Boolean)?;
    let raised = n.with_number(PointwiseMode::Add, x, bias)?;
    let lowered = n.with_number(PointwiseMode::Sub, x, bias)?;
    let inner = n.select(above, lowered, zero)?;
    let y = n.select(below, raised, inner)?;
    n.output(0, y);
    Ok(())
}

/// A pointwise operation with parameters, whose operands [`Importer::unary`] fills in.
fn parameters(mode: PointwiseMode, x: ValueId) -> Pointwise {
    Pointwise::unary(mode, x.uid(), x.uid())
}

fn with_parameters(
    n: &mut Importer<'_>,
    mode: PointwiseMode,
    set: impl FnOnce(&mut Pointwise),
) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let mut pointwise = parameters(mode, x);
    set(&mut pointwise);
    let y = n.unary(pointwise, x)?;
    n.output(0, y);
    Ok(())
}

fn leaky_relu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let slope = n.float("alpha", 0.01);
    with_parameters(n, PointwiseMode::ReluFwd, |p| p.relu_lower_clip_slope = Some(slope))
}

fn elu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let alpha = n.float("alpha", 1.0);
    with_parameters(n, PointwiseMode::EluFwd, |p| p.elu_alpha = Some(alpha))
}

fn swish(n: &mut Importer<'_>) -> Result<(), Declined> {
    let beta = n.float("alpha", 1.0);
    with_parameters(n, PointwiseMode::SwishFwd, |p| p.swish_beta = Some(beta))
}

fn quick_gelu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let beta = n.float("alpha", 1.702);
    with_parameters(n, PointwiseMode::SwishFwd, |p| p.swish_beta = Some(beta))
}

fn gelu(n: &mut Importer<'_>) -> Result<(), Declined> {
    match n.text("approximate") {
        "" | "none" => function(n, PointwiseMode::GeluFwd),
        "tanh" => function(n, PointwiseMode::GeluApproxTanhFwd),
        other => declined(format!("expected approximate none or tanh, got {other:?}")),
    }
}

/// Gelu of `x + bias` by its approximation with tanh.
fn fast_gelu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let mut x = n.float_input(0)?;
    if n.has_input(1) {
        let bias = n.float_input(1)?;
        x = n.binary(PointwiseMode::Add, x, bias)?;
    }
    let y = n.apply(PointwiseMode::GeluApproxTanhFwd, x)?;
    n.output(0, y);
    Ok(())
}

/// `gamma · elu(x)`
fn selu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let alpha = n.float("alpha", 1.673_263_2);
    let gamma = n.float("gamma", 1.050_701);
    let elu = Pointwise { elu_alpha: Some(alpha), ..parameters(PointwiseMode::EluFwd, x) };
    let y = n.unary(elu, x)?;
    let y = n.with_number(PointwiseMode::Mul, y, gamma)?;
    n.output(0, y);
    Ok(())
}

/// `max(x, 0) + min(0, alpha·(exp(x / alpha) - 1))`, which is `alpha · elu(x / alpha)`.
fn celu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let alpha = n.float("alpha", 1.0);
    if alpha.is_nan() || alpha <= 0.0 {
        return declined(format!("expected an alpha above 0, got {alpha}"));
    }
    let scaled = n.with_number(PointwiseMode::Div, x, alpha)?;
    let elu = Pointwise { elu_alpha: Some(1.0), ..parameters(PointwiseMode::EluFwd, scaled) };
    let y = n.unary(elu, scaled)?;
    let y = n.with_number(PointwiseMode::Mul, y, alpha)?;
    n.output(0, y);
    Ok(())
}

/// `x < low ? low : x > high ? high : x`; bounds in the wrong order make the upper one the result.
fn clip(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    // Bounds were attributes before they were inputs.
    if n.since() < 11 {
        let low = n.float("min", f32::MIN);
        let high = n.float("max", f32::MAX);
        let y = clamp(n, x, Some(low), Some(high))?;
        n.output(0, y);
        return Ok(());
    }
    let mut bounds = [None, None];
    let mut known = true;
    for (index, bound) in bounds.iter_mut().enumerate() {
        if !n.has_input(index + 1) {
            continue;
        }
        match n.folded(index + 1)?.map(|folded| folded.floats()) {
            Some(number) if number.len() == 1 => *bound = Some(number[0] as f32),
            _ => known = false,
        }
    }
    if known && is_float(n.data_type(x)) && n.data_type(x) != DataType::Double {
        let y = clamp(n, x, bounds[0], bounds[1])?;
        n.output(0, y);
        return Ok(());
    }
    let mut y = x;
    for (index, mode) in [(1, PointwiseMode::Max), (2, PointwiseMode::Min)] {
        if n.has_input(index) {
            let bound = n.operand(index)?;
            y = n.binary(mode, y, bound)?;
        }
    }
    n.output(0, y);
    Ok(())
}

/// `min(max(x, low), high)`
pub(super) fn clamp(
    n: &mut Importer<'_>,
    x: ValueId,
    low: Option<f32>,
    high: Option<f32>,
) -> Result<ValueId, Declined> {
    match (low, high) {
        (None, None) => Ok(x),
        (None, Some(high)) => n.with_number(PointwiseMode::Min, x, high),
        // A clipped ReLU does not promise what bounds in the wrong order give.
        (Some(low), Some(high)) if low > high => {
            let raised = n.with_number(PointwiseMode::Max, x, low)?;
            n.with_number(PointwiseMode::Min, raised, high)
        }
        (low, high) => {
            let relu =
                Pointwise { relu_lower_clip: low, relu_upper_clip: high, ..parameters(PointwiseMode::ReluFwd, x) };
            n.unary(relu, x)
        }
    }
}

/// `min(max(alpha·x + beta, 0), 1)`
fn gate(n: &mut Importer<'_>, x: ValueId, alpha: f32, beta: f32) -> Result<ValueId, Declined> {
    let scaled = n.with_number(PointwiseMode::Mul, x, alpha)?;
    let shifted = n.with_number(PointwiseMode::Add, scaled, beta)?;
    clamp(n, shifted, Some(0.0), Some(1.0))
}

fn hard_sigmoid(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let (alpha, beta) = (n.float("alpha", 0.2), n.float("beta", 0.5));
    let y = gate(n, x, alpha, beta)?;
    n.output(0, y);
    Ok(())
}

fn hard_swish(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let gate = gate(n, x, 1.0 / 6.0, 0.5)?;
    let y = n.binary(PointwiseMode::Mul, x, gate)?;
    n.output(0, y);
    Ok(())
}

/// `x · tanh(softplus(x))`
fn mish(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let softplus = n.apply(PointwiseMode::SoftplusFwd, x)?;
    let gate = n.apply(PointwiseMode::TanhFwd, softplus)?;
    let y = n.binary(PointwiseMode::Mul, x, gate)?;
    n.output(0, y);
    Ok(())
}

/// `x / (1 + |x|)`
fn softsign(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let size = n.apply(PointwiseMode::Abs, x)?;
    let divisor = n.with_number(PointwiseMode::Add, size, 1.0)?;
    let y = n.binary(PointwiseMode::Div, x, divisor)?;
    n.output(0, y);
    Ok(())
}

/// `max(x, 0) + slope · min(x, 0)`
fn prelu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let slope = n.operand(1)?;
    let (dims, slopes) = (n.dims(x), n.dims(slope));
    if slopes.len() > dims.len() {
        return declined(format!("expected a slope of at most {} dimensions, got {}", dims.len(), slopes.len()));
    }
    let above = n.with_number(PointwiseMode::Max, x, 0.0)?;
    let below = n.with_number(PointwiseMode::Min, x, 0.0)?;
    let below = n.binary(PointwiseMode::Mul, below, slope)?;
    if n.dims(below) != dims {
        return declined(format!("expected a slope that broadcasts to {dims:?}, got extents {slopes:?}"));
    }
    let y = n.binary(PointwiseMode::Add, above, below)?;
    n.output(0, y);
    Ok(())
}

/// `x > alpha ? x : 0`
fn thresholded_relu(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let alpha = n.float("alpha", 1.0);
    let rank = n.rank(x);
    let threshold = n.scalar(alpha, rank);
    let zero = n.scalar(0.0, rank);
    let above = n.binary_to(PointwiseMode::CmpGt, x, threshold, DataType::Boolean)?;
    let y = n.select(above, x, zero)?;
    n.output(0, y);
    Ok(())
}

/// `(x > 0) - (x < 0)`
fn sign(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let data_type = n.data_type(x);
    let rank = n.rank(x);
    let zero = n.number(0.0, data_type, rank);
    let [one, minus] = [1.0, -1.0].map(|number| n.number(number, data_type, rank));
    let above = n.binary_to(PointwiseMode::CmpGt, x, zero, DataType::Boolean)?;
    let below = n.binary_to(PointwiseMode::CmpLt, x, zero, DataType::Boolean)?;
    // Whatever is neither is 0, or not a number.
    let rest = n.select_to(below, minus, x, data_type)?;
    let y = n.select_to(above, one, rest, data_type)?;
    n.output(0, y);
    Ok(())
}

/// `1 - 2·sin²(x / 2)`
fn cos(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let half = n.with_number(PointwiseMode::Mul, x, 0.5)?;
    let sin = n.apply(PointwiseMode::Sin, half)?;
    let square = n.binary(PointwiseMode::Mul, sin, sin)?;
    let twice = n.with_number(PointwiseMode::Mul, square, -2.0)?;
    let y = n.with_number(PointwiseMode::Add, twice, 1.0)?;
    n.output(0, y);
    Ok(())
}
