//! Definitions of modes by the textbook's formulas in `f64`, and slopes of backward modes as differences of those:
//! independent of [`apply`](super::apply), for the tests of whoever computes them. With them, what a mode is of whole
//! numbers, and its limits.

use std::f64::consts::{PI, SQRT_2};

use hipdnn_schemas::PointwiseMode;
use hipdnn_schemas::PointwiseMode::*;

use super::Parameters;

/// Scalars of which none is a default, and none stands for another one.
pub const PARAMETERS: Parameters = Parameters {
    relu_lower_clip: -0.5,
    relu_upper_clip: 2.0,
    relu_lower_clip_slope: 0.25,
    swish_beta: 1.5,
    elu_alpha: 0.75,
    softplus_beta: 2.0,
};

/// Mode of which a mode is the slope, times the second operand: the forward one of the same name.
pub fn forward_of(mode: PointwiseMode) -> Option<PointwiseMode> {
    let function = mode.json_name().strip_suffix("_bwd")?;
    let forward = PointwiseMode::from_json_name(&format!("{function}_fwd"));
    Some(forward.unwrap_or_else(|| panic!("expected a forward mode of {mode}, got none")))
}

/// Error function by its series of terms of one sign: `2x/√π · e^-x² · Σ (2x²)ⁿ / (1·3·…·(2n+1))`.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..400 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 * x / PI.sqrt() * (-x * x).exp() * sum
}

/// Function of a mode by its definition, `x`, `y` and `z` being its operands; slopes by differences, so none is exact
/// on a kink.
///
/// # Panics
/// If the mode is no function of its operands.
pub fn definition(mode: PointwiseMode, p: &Parameters, [x, y, z]: [f64; 3]) -> f64 {
    let truth = |holds: bool| f64::from(u8::from(holds));
    let [lower, upper, slope, swish_beta, alpha, softplus_beta] =
        [p.relu_lower_clip, p.relu_upper_clip, p.relu_lower_clip_slope, p.swish_beta, p.elu_alpha, p.softplus_beta]
            .map(f64::from);
    match mode {
        Identity => x,
        Abs => x.abs(),
        Neg => -x,
        Ceil => x.ceil(),
        Floor => x.floor(),
        Sqrt => x.sqrt(),
        Rsqrt => x.sqrt().recip(),
        Reciprocal => x.recip(),
        Exp => x.exp(),
        Log => x.ln(),
        Erf => erf(x),
        Sin => x.sin(),
        Tan => x.tan(),
        Add => x + y,
        AddSquare => x + y.powi(2),
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        Max => x.max(y),
        Min => x.min(y),
        CmpEq => truth(x == y),
        CmpNeq => truth(x != y),
        CmpGt => truth(x > y),
        CmpGe => truth(x >= y),
        CmpLt => truth(x < y),
        CmpLe => truth(x <= y),
        LogicalNot => truth(x == 0.0),
        LogicalAnd => truth(x != 0.0 && y != 0.0),
        LogicalOr => truth(x != 0.0 || y != 0.0),
        BinarySelect => [y, x][usize::from(z != 0.0)],
        ReluFwd if x <= lower => lower + slope * (x - lower),
        ReluFwd => x.min(upper),
        SigmoidFwd => 1.0 / (1.0 + (-x).exp()),
        TanhFwd => x.tanh(),
        EluFwd if x > 0.0 => x,
        EluFwd => alpha * (x.exp() - 1.0),
        SoftplusFwd => (1.0 + (softplus_beta * x).exp()).ln() / softplus_beta,
        SwishFwd => x / (1.0 + (-swish_beta * x).exp()),
        GeluFwd => x * (1.0 + erf(x / SQRT_2)) / 2.0,
        GeluApproxTanhFwd => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Unset | GenIndex => panic!("{mode} is no function of its operands"),
        backward => {
            let forward = forward_of(backward).expect("a backward mode");
            // Central difference of fourth order.
            let f = |v: f64| definition(forward, p, [v, y, z]);
            let h = 4.8e-4;
            y * (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)
        }
    }
}

/// Function of a mode on whole numbers by its definition, beyond the range of its operands too; `None` if it has none.
/// Scalars are the defaults.
pub fn whole_definition(mode: PointwiseMode, [x, y, z]: [i64; 3]) -> Option<i128> {
    let (a, b) = (i128::from(x), i128::from(y));
    Some(match mode {
        Identity => a,
        Abs => a.abs(),
        Neg => -a,
        ReluFwd => a.max(0),
        Add => a + b,
        // A square that is out of range is brought back into it before it is added.
        AddSquare => a + (b * b).min(i64::MAX.into()),
        Sub => a - b,
        Mul => a * b,
        Div if y == 0 => a.signum() << 64,
        Div => a / b,
        Max => a.max(b),
        Min => a.min(b),
        BinarySelect => [b, a][usize::from(z != 0)],
        CmpEq => (x == y).into(),
        CmpNeq => (x != y).into(),
        CmpGt => (x > y).into(),
        CmpGe => (x >= y).into(),
        CmpLt => (x < y).into(),
        CmpLe => (x <= y).into(),
        LogicalNot => (x == 0).into(),
        LogicalAnd => (x != 0 && y != 0).into(),
        LogicalOr => (x != 0 || y != 0).into(),
        _ => return None,
    })
}

/// Limits of functions far below zero and far above, infinity for those that grow as their operand does. Scalars are
/// the defaults, and a slope is multiplied by 1.
pub const LIMITS: &[(PointwiseMode, f64, f64)] = &[
    (Exp, 0.0, f64::INFINITY),
    (Erf, -1.0, 1.0),
    (ReluFwd, 0.0, f64::INFINITY),
    (SigmoidFwd, 0.0, 1.0),
    (TanhFwd, -1.0, 1.0),
    (EluFwd, -1.0, f64::INFINITY),
    (SoftplusFwd, 0.0, f64::INFINITY),
    (SwishFwd, 0.0, f64::INFINITY),
    (GeluFwd, 0.0, f64::INFINITY),
    (GeluApproxTanhFwd, 0.0, f64::INFINITY),
    (ReluBwd, 0.0, 1.0),
    (SigmoidBwd, 0.0, 0.0),
    (TanhBwd, 0.0, 0.0),
    (EluBwd, 0.0, 1.0),
    (SoftplusBwd, 0.0, 1.0),
    (SwishBwd, 0.0, 1.0),
    (GeluBwd, 0.0, 1.0),
    (GeluApproxTanhBwd, 0.0, 1.0),
];
