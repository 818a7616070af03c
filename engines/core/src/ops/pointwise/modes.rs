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

/// Operands of a node, to which the function of a mode is applied: numbers, or rows of them.
pub trait Operands<N> {
    /// Result of a function.
    type Output;
    /// Applies a function of the first operand.
    fn unary(self, f: impl Fn(N) -> N) -> Self::Output;
    /// Applies a function of the first two operands.
    fn binary(self, f: impl Fn(N, N) -> N) -> Self::Output;
    /// Applies a function of three operands.
    fn ternary(self, f: impl Fn(N, N, N) -> N) -> Self::Output;
}

/// Application to numbers, which gives the value.
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

/// Applies a function of as many operands as it names.
///
/// It is inlined, and has its scalars by value: loops over rows are vectorized only then.
macro_rules! apply {
    ($operands:ident, |$x:ident| $value:expr) => {
        $operands.unary(
            #[inline(always)]
            move |$x| $value,
        )
    };
    ($operands:ident, |$x:ident, $y:ident| $value:expr) => {
        $operands.binary(
            #[inline(always)]
            move |$x, $y| $value,
        )
    };
    ($operands:ident, |$x:ident, $y:ident, $z:ident| $value:expr) => {
        $operands.ternary(
            #[inline(always)]
            move |$x, $y, $z| $value,
        )
    };
}

/// Applies a mode that is defined on whole numbers; `None` for other modes.
#[inline(always)]
pub fn apply_whole<N: Number, O: Operands<N>>(
    mode: PointwiseMode,
    parameters: &Parameters,
    operands: O,
) -> Option<O::Output> {
    use PointwiseMode::*;
    Some(match mode {
        Identity => apply!(operands, |x| x),
        Abs => apply!(operands, |x| x.abs()),
        Neg => apply!(operands, |x| -x),
        ReluFwd if parameters.is_plain_relu() => apply!(operands, |x| x.max(N::ZERO)),
        Add => apply!(operands, |x, y| x + y),
        AddSquare => apply!(operands, |x, y| x + y * y),
        Sub => apply!(operands, |x, y| x - y),
        Mul => apply!(operands, |x, y| x * y),
        Div => apply!(operands, |x, y| x / y),
        Max => apply!(operands, |x, y| x.max(y)),
        Min => apply!(operands, |x, y| x.min(y)),
        CmpEq => apply!(operands, |x, y| N::truth(x.equal(y))),
        CmpNeq => apply!(operands, |x, y| N::truth(x.unequal(y))),
        CmpGt => apply!(operands, |x, y| N::truth(y.less(x))),
        CmpGe => apply!(operands, |x, y| N::truth(y.at_most(x))),
        CmpLt => apply!(operands, |x, y| N::truth(x.less(y))),
        CmpLe => apply!(operands, |x, y| N::truth(x.at_most(y))),
        LogicalNot => apply!(operands, |x| N::truth(x.equal(N::ZERO))),
        LogicalAnd => apply!(operands, |x, y| N::truth(x.unequal(N::ZERO) & y.unequal(N::ZERO))),
        LogicalOr => apply!(operands, |x, y| N::truth(x.unequal(N::ZERO) | y.unequal(N::ZERO))),
        BinarySelect => apply!(operands, |x, y, predicate| N::select(predicate.unequal(N::ZERO), x, y)),
        _ => return None,
    })
}

/// Applies a mode; `None` if it is not set, or is no function of its operands: index generation.
#[inline(always)]
pub fn apply<R: Real, O: Operands<R>>(mode: PointwiseMode, parameters: &Parameters, operands: O) -> Option<O::Output> {
    use PointwiseMode::*;
    let p = *parameters;
    let [lower, upper, slope, swish_beta, elu_alpha, softplus_beta] = p.scalars::<R>();
    Some(match mode {
        Ceil => apply!(operands, |x| x.ceil()),
        Floor => apply!(operands, |x| x.floor()),
        Sqrt => apply!(operands, |x| x.sqrt()),
        Rsqrt => apply!(operands, |x| R::ONE / x.sqrt()),
        Reciprocal => apply!(operands, |x| R::ONE / x),
        Exp => apply!(operands, |x| x.exp()),
        Log => apply!(operands, |x| x.ln()),
        Erf => apply!(operands, |x| x.erf()),
        Sin => apply!(operands, |x| x.sin()),
        Tan => apply!(operands, |x| x.tan()),
        ReluFwd if !p.is_plain_relu() => apply!(operands, |x| {
            // A slope of zero is flat even at minus infinity.
            let flat = p.relu_lower_clip_slope == 0.0;
            let y = if flat { x.max(lower) } else { R::select(lower.less(x), x, slope.mul_add(x - lower, lower)) };
            if p.relu_upper_clip == f32::INFINITY { y } else { R::select(upper.less(y), upper, y) }
        }),
        ReluBwd => apply!(operands, |x, dy| {
            dy * R::select(x.at_most(lower), slope, R::select(upper.less(x), R::ZERO, R::ONE))
        }),
        SigmoidFwd => apply!(operands, |x| logistic(x).0),
        SigmoidBwd => apply!(operands, |x, dy| dy * logistic(x).1),
        TanhFwd => apply!(operands, |x| x.tanh()),
        // 1 - tanh² x = 4·σ'(2x), without the cancellation.
        TanhBwd => apply!(operands, |x, dy| dy * (R::constant(4.0) * logistic(R::constant(2.0) * x).1)),
        EluFwd => apply!(operands, |x| R::select_or(R::ZERO.less(x), x, || elu_alpha * x.exp_m1())),
        EluBwd => apply!(operands, |x, dy| R::select_or(R::ZERO.less(x), dy, || dy * elu_alpha * x.exp())),
        // ln(1 + eᵗ) = max(t, 0) + ln(1 + e^-|t|)
        SoftplusFwd => apply!(operands, |x| {
            let t = softplus_beta * x;
            (t.max(R::ZERO) + (-t.abs()).exp().ln_1p()) / softplus_beta
        }),
        SoftplusBwd => apply!(operands, |x, dy| dy * logistic(softplus_beta * x).0),
        SwishFwd => apply!(operands, |x| gate(x, logistic(swish_beta * x).0)),
        // d/dx x·σ(t) = σ(t) + t·σ'(t) with t = βx
        SwishBwd => apply!(operands, |x, dy| {
            let t = swish_beta * x;
            let (sigmoid, slope) = logistic(t);
            dy * (sigmoid + gate(t, slope))
        }),
        GeluFwd => apply!(operands, |x| gate(x, normal(x))),
        // d/dx x·Φ(x) = Φ(x) + x·φ(x), with φ the density e^(-x²/2) / √2π.
        GeluBwd => apply!(operands, |x, dy| {
            let density = (R::constant(-0.5) * x * x).exp() * R::constant(0.398_942_280_401_432_7);
            dy * (normal(x) + gate(x, density))
        }),
        // (1 + tanh u) / 2 = σ(2u) with u = √(2/π)·(x + 0.044715·x³)
        GeluApproxTanhFwd => apply!(operands, |x| gate(x, logistic(doubled(x)).0)),
        // d/dx x·σ(2u) = σ(2u) + x·σ'(2u)·2u'
        GeluApproxTanhBwd => apply!(operands, |x, dy| {
            let (sigmoid, slope) = logistic(doubled(x));
            let steepness = R::constant(TWICE_ROOT) * R::constant(3.0 * CUBIC).mul_add(x * x, R::ONE);
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
    let e = (-x.abs()).exp();
    let d = R::ONE + e;
    (R::select(x.less(R::ZERO), e, R::ONE) / d, e / (d * d))
}

/// Gated value `x · weight`, 0 for an infinite `x` of weight zero; a NaN weight comes from a NaN `x`.
#[inline(always)]
fn gate<R: Real>(x: R, weight: R) -> R {
    R::select(weight.equal(R::ZERO), R::ZERO, x * weight)
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

#[cfg(test)]
mod tests;
