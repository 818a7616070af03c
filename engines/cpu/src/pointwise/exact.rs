//! Pointwise functions in `f64` and in whole numbers, where `f32` would lose digits.

use hipdnn_schemas::PointwiseMode;

use super::{Function, Parameters};
use hipdnn_cpu_kernels::activation::Activation;

impl Function {
    /// Variant of [`Function::apply`] in `f64`.
    pub fn apply_wide(&self, a: &mut [f64], b: &[f64], c: &[f64]) {
        use PointwiseMode::*;
        let (mode, p) = match self {
            Function::Activation(activation) => return unary(a, |x| activate(activation, x)),
            Function::Mode(mode, parameters) => (*mode, *parameters),
        };
        let truth = |holds: bool| f64::from(u8::from(holds));
        match mode {
            Abs => unary(a, f64::abs),
            Ceil => unary(a, f64::ceil),
            Erf => unary(a, libm::erf),
            Exp => unary(a, f64::exp),
            Floor => unary(a, f64::floor),
            Log => unary(a, f64::ln),
            LogicalNot => unary(a, |x| truth(x == 0.0)),
            Neg => unary(a, |x| -x),
            Reciprocal => unary(a, f64::recip),
            Rsqrt => unary(a, |x| x.sqrt().recip()),
            Sin => unary(a, f64::sin),
            Sqrt => unary(a, f64::sqrt),
            Tan => unary(a, f64::tan),
            Add => binary(a, b, |x, y| x + y),
            AddSquare => binary(a, b, |x, y| x + y * y),
            Sub => binary(a, b, |x, y| x - y),
            Mul => binary(a, b, |x, y| x * y),
            Div => binary(a, b, |x, y| x / y),
            Max => binary(a, b, |x, y| if x > y || x.is_nan() { x } else { y }),
            Min => binary(a, b, |x, y| if x < y || x.is_nan() { x } else { y }),
            CmpEq => binary(a, b, |x, y| truth(x == y)),
            CmpNeq => binary(a, b, |x, y| truth(x != y)),
            CmpGt => binary(a, b, |x, y| truth(x > y)),
            CmpGe => binary(a, b, |x, y| truth(x >= y)),
            CmpLt => binary(a, b, |x, y| truth(x < y)),
            CmpLe => binary(a, b, |x, y| truth(x <= y)),
            LogicalAnd => binary(a, b, |x, y| truth(x != 0.0 && y != 0.0)),
            LogicalOr => binary(a, b, |x, y| truth(x != 0.0 || y != 0.0)),
            BinarySelect => {
                for ((x, y), t) in a.iter_mut().zip(b).zip(c) {
                    *x = if *t != 0.0 { *x } else { *y };
                }
            }
            _ => binary(a, b, |x, dy| dy * slope(mode, &p, x)),
        }
    }

    /// True if [`Function::apply_whole`] has the function.
    pub fn is_whole(&self) -> bool {
        use PointwiseMode::*;
        match self {
            Function::Activation(activation) => matches!(activation, Activation::Identity | &Activation::RELU),
            Function::Mode(mode, _) => matches!(
                mode,
                Abs | Neg
                    | LogicalNot
                    | Add
                    | AddSquare
                    | Sub
                    | Mul
                    | Div
                    | Max
                    | Min
                    | CmpEq
                    | CmpNeq
                    | CmpGt
                    | CmpGe
                    | CmpLt
                    | CmpLe
                    | LogicalAnd
                    | LogicalOr
                    | BinarySelect
            ),
        }
    }

    /// True if the function of whole numbers is always a whole number.
    pub fn keeps_whole(&self) -> bool {
        self.is_whole() && !matches!(self, Function::Mode(PointwiseMode::Div, _))
    }

    /// Variant of [`Function::apply`] in whole numbers: results out of range become the nearest number within,
    /// quotients are truncated, and a division by zero gives the largest number of the dividend's sign.
    ///
    /// # Panics
    /// If it is not [`Function::is_whole`].
    pub fn apply_whole(&self, a: &mut [i64], b: &[i64], c: &[i64]) {
        use PointwiseMode::*;
        let mode = match self {
            Function::Activation(Activation::Identity) => return,
            Function::Activation(activation) => {
                assert_eq!(*activation, Activation::RELU, "whole numbers have no {activation:?}");
                return unary(a, |x| x.max(0));
            }
            Function::Mode(mode, _) => *mode,
        };
        match mode {
            Abs => unary(a, i64::saturating_abs),
            Neg => unary(a, i64::saturating_neg),
            LogicalNot => unary(a, |x| i64::from(x == 0)),
            Add => binary(a, b, i64::saturating_add),
            AddSquare => binary(a, b, |x, y| x.saturating_add(y.saturating_mul(y))),
            Sub => binary(a, b, i64::saturating_sub),
            Mul => binary(a, b, i64::saturating_mul),
            Div => binary(a, b, |x, y| match (y, x) {
                (0, 0) => 0,
                (0, x) if x > 0 => i64::MAX,
                (0, _) => i64::MIN,
                _ => x.saturating_div(y),
            }),
            Max => binary(a, b, i64::max),
            Min => binary(a, b, i64::min),
            CmpEq => binary(a, b, |x, y| i64::from(x == y)),
            CmpNeq => binary(a, b, |x, y| i64::from(x != y)),
            CmpGt => binary(a, b, |x, y| i64::from(x > y)),
            CmpGe => binary(a, b, |x, y| i64::from(x >= y)),
            CmpLt => binary(a, b, |x, y| i64::from(x < y)),
            CmpLe => binary(a, b, |x, y| i64::from(x <= y)),
            LogicalAnd => binary(a, b, |x, y| i64::from(x != 0 && y != 0)),
            LogicalOr => binary(a, b, |x, y| i64::from(x != 0 || y != 0)),
            BinarySelect => {
                for ((x, y), t) in a.iter_mut().zip(b).zip(c) {
                    *x = if *t != 0 { *x } else { *y };
                }
            }
            _ => unreachable!("whole numbers have no {mode}"),
        }
    }
}

fn unary<T: Copy>(a: &mut [T], f: impl Fn(T) -> T) {
    for x in a {
        *x = f(*x);
    }
}

fn binary<T: Copy>(a: &mut [T], b: &[T], f: impl Fn(T, T) -> T) {
    for (x, y) in a.iter_mut().zip(b) {
        *x = f(*x, *y);
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Gated value `x · weight`, 0 where the weight is: it falls faster than x grows.
fn gate(x: f64, weight: f64) -> f64 {
    if weight == 0.0 && !x.is_nan() { 0.0 } else { x * weight }
}

/// Cumulative normal distribution Φ.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Scale √(2/π) of gelu's approximation.
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;

fn activate(activation: &Activation, x: f64) -> f64 {
    match *activation {
        Activation::Identity => x,
        Activation::Relu { lower_clip, upper_clip, slope } => {
            let (low, high, slope) = (f64::from(lower_clip), f64::from(upper_clip), f64::from(slope));
            let below = if slope == 0.0 { low } else { low + slope * (x - low) };
            let value = if x <= low { below } else { x };
            if value > high { high } else { value }
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Swish { beta } => gate(x, sigmoid(f64::from(beta) * x)),
        Activation::Gelu => gate(x, normal(x)),
        Activation::GeluTanh => gate(x, sigmoid(2.0 * GELU_SCALE * (x + 0.044715 * x * x * x))),
        Activation::Elu { alpha } => {
            if x <= 0.0 {
                f64::from(alpha) * x.exp_m1()
            } else {
                x
            }
        }
        Activation::Softplus { beta } => {
            let t = f64::from(beta) * x;
            // The larger of t and 0, and NaN if it is one.
            let large = if t < 0.0 { 0.0 } else { t };
            (large + (-t.abs()).exp().ln_1p()) / f64::from(beta)
        }
        Activation::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Activation::HardSwish { alpha, beta } => gate(x, (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0)),
        Activation::Abs => x.abs(),
        Activation::Neg => -x,
    }
}

/// Derivative at `x`, by which the gradient is multiplied.
fn slope(mode: PointwiseMode, p: &Parameters, x: f64) -> f64 {
    use PointwiseMode::*;
    match mode {
        ReluBwd if x <= f64::from(p.relu_lower_clip) => f64::from(p.relu_lower_clip_slope),
        ReluBwd if x > f64::from(p.relu_upper_clip) => 0.0,
        ReluBwd => 1.0,
        SigmoidBwd => sigmoid(x) * sigmoid(-x),
        TanhBwd => {
            let t = x.tanh();
            1.0 - t * t
        }
        EluBwd if x > 0.0 => 1.0,
        EluBwd => f64::from(p.elu_alpha) * x.exp(),
        SoftplusBwd => sigmoid(f64::from(p.softplus_beta) * x),
        SwishBwd => {
            let beta = f64::from(p.swish_beta);
            let s = sigmoid(beta * x);
            s + gate(beta * x, s * sigmoid(-beta * x))
        }
        GeluBwd => normal(x) + gate(x, (-0.5 * x * x).exp() * 0.398_942_280_401_432_7),
        GeluApproxTanhBwd => {
            let t = (GELU_SCALE * (x + 0.044715 * x * x * x)).tanh();
            let du = GELU_SCALE * (1.0 + 3.0 * 0.044715 * x * x);
            let bend = 1.0 - t * t;
            0.5 * (1.0 + t) + if bend == 0.0 { 0.0 } else { 0.5 * x * bend * du }
        }
        _ => unreachable!("{mode} is no gradient"),
    }
}
