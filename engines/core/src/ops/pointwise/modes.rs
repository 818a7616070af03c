//! Definitions of the modes: one entry each, over any arithmetic.
//!
//! Operands by place: backward modes take the forward input first and the gradient second, as hipDNN's reference does;
//! selection takes "if true", "if false" and the predicate, as cuDNN does.
//!
//! NaN stays NaN. At infinities functions have their limits: x · weight(x) is 0 where the weight vanishes ([`gate`]), since
//! it falls faster than x grows. Forms are those that neither overflow nor cancel.

use std::f64::consts::FRAC_1_SQRT_2;

use hipdnn_schemas::PointwiseMode;

use super::Parameters;
use super::arithmetic::{Number, Real, Whole};

/// Operands of a node, which take a function of as many as they are read.
pub trait Operands<N> {
    /// What comes of a function.
    type Output;
    /// Applies a function of the first operand.
    fn unary(self, f: impl Fn(N) -> N) -> Self::Output;
    /// Applies a function of the first two operands.
    fn binary(self, f: impl Fn(N, N) -> N) -> Self::Output;
    /// Applies a function of three operands.
    fn ternary(self, f: impl Fn(N, N, N) -> N) -> Self::Output;
}

/// Values are operands for which a function's value comes out.
impl<N: Copy> Operands<N> for &[N] {
    type Output = N;

    fn unary(self, f: impl Fn(N) -> N) -> N {
        f(self[0])
    }

    fn binary(self, f: impl Fn(N, N) -> N) -> N {
        f(self[0], self[1])
    }

    fn ternary(self, f: impl Fn(N, N, N) -> N) -> N {
        f(self[0], self[1], self[2])
    }
}

/// Applies a mode that is defined on whole numbers; `None` for other modes.
pub fn apply_whole<N: Number, O: Operands<N>>(
    mode: PointwiseMode,
    parameters: &Parameters,
    operands: O,
) -> Option<O::Output> {
    use PointwiseMode::*;
    let zero = N::constant(0.0);
    Some(match mode {
        Identity => operands.unary(|x| x),
        Abs => operands.unary(N::abs),
        Neg => operands.unary(|x| -x),
        ReluFwd if parameters.is_plain_relu() => operands.unary(|x| x.max(zero)),
        Add => operands.binary(|x, y| x + y),
        AddSquare => operands.binary(|x, y| x + y * y),
        Sub => operands.binary(|x, y| x - y),
        Mul => operands.binary(|x, y| x * y),
        Div => operands.binary(|x, y| x / y),
        Max => operands.binary(N::max),
        Min => operands.binary(N::min),
        CmpEq => operands.binary(|x, y| N::truth(x.equal(y))),
        CmpNeq => operands.binary(|x, y| N::truth(x.unequal(y))),
        CmpGt => operands.binary(|x, y| N::truth(y.less(x))),
        CmpGe => operands.binary(|x, y| N::truth(y.at_most(x))),
        CmpLt => operands.binary(|x, y| N::truth(x.less(y))),
        CmpLe => operands.binary(|x, y| N::truth(x.at_most(y))),
        LogicalNot => operands.unary(|x| N::truth(x.equal(zero))),
        LogicalAnd => operands.binary(|x, y| N::truth(x.unequal(zero) & y.unequal(zero))),
        LogicalOr => operands.binary(|x, y| N::truth(x.unequal(zero) | y.unequal(zero))),
        BinarySelect => operands.ternary(|x, y, predicate| N::select(predicate.unequal(zero), x, y)),
        _ => return None,
    })
}

/// Applies a mode; `None` if it is not set, or is no function of its operands: index generation.
pub fn apply<R: Real, O: Operands<R>>(mode: PointwiseMode, parameters: &Parameters, operands: O) -> Option<O::Output> {
    use PointwiseMode::*;
    let one = R::constant(1.0);
    let [lower, upper, slope, swish_beta, elu_alpha, softplus_beta] = parameters.scalars::<R>();
    Some(match mode {
        Ceil => operands.unary(R::ceil),
        Floor => operands.unary(R::floor),
        Sqrt => operands.unary(R::sqrt),
        Rsqrt => operands.unary(|x| one / x.sqrt()),
        Reciprocal => operands.unary(|x| one / x),
        Exp => operands.unary(R::exp),
        Log => operands.unary(R::ln),
        Erf => operands.unary(R::erf),
        Sin => operands.unary(R::sin),
        Tan => operands.unary(R::tan),
        ReluFwd if !parameters.is_plain_relu() => operands.unary(|x| {
            // A slope of zero is flat even at minus infinity.
            let flat = parameters.relu_lower_clip_slope == 0.0;
            let y = if flat { x.max(lower) } else { R::select(lower.less(x), x, slope.mul_add(x - lower, lower)) };
            if parameters.relu_upper_clip == f32::INFINITY { y } else { R::select(upper.less(y), upper, y) }
        }),
        ReluBwd => operands.binary(|x, dy| {
            let above = R::select(upper.less(x), R::constant(0.0), one);
            dy * R::select(x.at_most(lower), slope, above)
        }),
        SigmoidFwd => operands.unary(|x| logistic(x).0),
        SigmoidBwd => operands.binary(|x, dy| dy * logistic(x).1),
        TanhFwd => operands.unary(R::tanh),
        // 1 - tanh² x = 4·σ'(2x), without the cancellation.
        TanhBwd => operands.binary(|x, dy| dy * (R::constant(4.0) * logistic(R::constant(2.0) * x).1)),
        EluFwd => operands.unary(|x| R::select(R::constant(0.0).less(x), x, elu_alpha * x.exp_m1())),
        EluBwd => operands.binary(|x, dy| R::select(R::constant(0.0).less(x), dy, dy * elu_alpha * x.exp())),
        // ln(1 + eᵗ) = max(t, 0) + ln(1 + e^-|t|)
        SoftplusFwd => operands.unary(|x| {
            let t = softplus_beta * x;
            (t.max(R::constant(0.0)) + (-t.abs()).exp().ln_1p()) / softplus_beta
        }),
        SoftplusBwd => operands.binary(|x, dy| dy * logistic(softplus_beta * x).0),
        SwishFwd => operands.unary(|x| gate(x, logistic(swish_beta * x).0)),
        // d/dx x·σ(t) = σ(t) + t·σ'(t) with t = βx
        SwishBwd => operands.binary(|x, dy| {
            let t = swish_beta * x;
            let (sigmoid, slope) = logistic(t);
            dy * (sigmoid + gate(t, slope))
        }),
        GeluFwd => operands.unary(|x| gate(x, normal(x))),
        // d/dx x·Φ(x) = Φ(x) + x·φ(x), with φ the density e^(-x²/2) / √2π.
        GeluBwd => operands.binary(|x, dy| {
            let density = (R::constant(-0.5) * x * x).exp() * R::constant(0.398_942_280_401_432_7);
            dy * (normal(x) + gate(x, density))
        }),
        // (1 + tanh u) / 2 = σ(2u) with u = √(2/π)·(x + 0.044715·x³)
        GeluApproxTanhFwd => operands.unary(|x| gate(x, logistic(doubled(x)).0)),
        // d/dx x·σ(2u) = σ(2u) + x·σ'(2u)·2u'
        GeluApproxTanhBwd => operands.binary(|x, dy| {
            let (sigmoid, slope) = logistic(doubled(x));
            let steepness = R::constant(TWICE_ROOT) * R::constant(3.0 * CUBIC).mul_add(x * x, one);
            dy * (sigmoid + gate(x * steepness, slope))
        }),
        _ => return apply_whole(mode, parameters, operands),
    })
}

/// True if the mode is defined on whole numbers.
pub fn is_whole(mode: PointwiseMode, parameters: &Parameters) -> bool {
    apply_whole(mode, parameters, &[Whole(1); 3][..]).is_some()
}

/// True if the function maps whole numbers to whole numbers exactly: those are computed in `i64`.
pub fn keeps_whole(mode: PointwiseMode, parameters: &Parameters) -> bool {
    mode != PointwiseMode::Div && is_whole(mode, parameters)
}

/// Sigmoid σ(x) = 1 / (1 + e⁻ˣ) and its slope σ·(1 - σ).
///
/// e^-|x| never overflows, the quotients keep their precision on both sides, and nothing cancels as 1 - σ does.
#[inline(always)]
fn logistic<R: Real>(x: R) -> (R, R) {
    let one = R::constant(1.0);
    let e = (-x.abs()).exp();
    let d = one + e;
    (R::select(x.less(R::constant(0.0)), e, one) / d, e / (d * d))
}

/// Gated value `x · weight`, 0 for an infinite `x` of weight zero; a NaN weight comes from a NaN `x`.
#[inline(always)]
fn gate<R: Real>(x: R, weight: R) -> R {
    let zero = R::constant(0.0);
    R::select(weight.equal(zero), zero, x * weight)
}

/// Cumulative normal distribution Φ(x) = (1 + erf(x/√2)) / 2, without the cancellation.
#[inline(always)]
fn normal<R: Real>(x: R) -> R {
    R::constant(0.5) * (x * R::constant(-FRAC_1_SQRT_2)).erfc()
}

/// Scale 2·√(2/π), and cubic coefficient, of the approximation of gelu by a hyperbolic tangent.
const TWICE_ROOT: f64 = 1.595_769_121_605_730_8;
const CUBIC: f64 = 0.044_715;

/// `2·√(2/π)·(x + 0.044715·x³)`.
#[inline(always)]
fn doubled<R: Real>(x: R) -> R {
    R::constant(TWICE_ROOT) * R::constant(CUBIC).mul_add(x * x * x, x)
}
