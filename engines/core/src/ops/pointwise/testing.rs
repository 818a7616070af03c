//! Definitions of modes by the textbook's formulas in `f64`, and slopes of backward modes as differences of those: independent of
//! [`apply`](super::apply), for the tests of whoever computes them.

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

/// Modes that are the slope of a function, times the second operand.
const BACKWARD: [(PointwiseMode, PointwiseMode); 8] = [
    (ReluBwd, ReluFwd),
    (SigmoidBwd, SigmoidFwd),
    (TanhBwd, TanhFwd),
    (EluBwd, EluFwd),
    (SoftplusBwd, SoftplusFwd),
    (SwishBwd, SwishFwd),
    (GeluBwd, GeluFwd),
    (GeluApproxTanhBwd, GeluApproxTanhFwd),
];

/// Mode of which a mode is the slope, times the second operand.
pub fn forward_of(mode: PointwiseMode) -> Option<PointwiseMode> {
    BACKWARD.iter().find(|(backward, _)| *backward == mode).map(|(_, forward)| *forward)
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

/// Function of a mode by its definition, `x`, `y` and `z` being its operands; slopes by differences, so none is exact on a kink.
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
