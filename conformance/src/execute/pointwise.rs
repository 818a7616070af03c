//! Element-wise operations.
//!
//! Backward modes take the forward pass's input as `in_0` and the gradient as `in_1`; `binary_select` takes the value if
//! true, the value if false, and the predicate. Absent parameters are no clips, slope 0, and 1 for alpha and beta.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use hipdnn_schemas::{Pointwise, PointwiseMode};

use super::Step;
use crate::array::Array;
use crate::number::{Arithmetic, Number, ulp};

pub(super) fn pointwise(step: &mut Step, node: &Pointwise) -> Result<(), String> {
    let dims = step.tensor(node.out_0).dims().to_vec();
    if node.mode == PointwiseMode::GenIndex {
        let axis = node.axis.ok_or("gen_index has no axis")? as usize;
        step.write(node.out_0, Array::from_fn(&dims, |at| Number::exact(at[axis] as f64)));
        return Ok(());
    }
    let mut inputs = vec![step.operand(node.in_0)?];
    inputs.extend(step.optional(node.in_1)?);
    inputs.extend(step.optional(node.in_2)?);
    let function = Function { node, arithmetic: step.arithmetic };
    let mut operands = Vec::new();
    let mut failed = None;
    let out = Array::from_fn(&dims, |at| {
        operands.clear();
        operands.extend(inputs.iter().map(|input| input.broadcast(at)));
        function.apply(&operands).unwrap_or_else(|reason| {
            failed = Some(reason);
            Number::any()
        })
    });
    if let Some(reason) = failed {
        return Err(reason);
    }
    step.write(node.out_0, out);
    Ok(())
}

struct Function<'a> {
    node: &'a Pointwise,
    arithmetic: Arithmetic,
}

/// True, false, or open.
fn truth(certainly: bool, possibly: bool) -> Number {
    match (certainly, possibly) {
        (true, _) => Number::exact(1.0),
        (_, false) => Number::exact(0.0),
        _ => Number { value: 0.5, error: 0.5 },
    }
}

impl Function<'_> {
    fn apply(&self, operands: &[Number]) -> Result<Number, String> {
        use PointwiseMode::*;
        let a = self.arithmetic;
        let x = operands[0];
        // What a unary mode never looks at.
        let y = operands.get(1).copied().unwrap_or(Number::exact(0.0));
        let backward = |slope: Number| a.mul(y, slope);
        Ok(match self.node.mode {
            Abs => magnitude(x),
            Neg => Number { value: -x.value, error: x.error },
            Identity => x,
            Add => a.add(x, y),
            Sub => a.sub(x, y),
            Mul => a.mul(x, y),
            Div => a.div(x, y),
            AddSquare => a.add(x, a.mul(y, y)),
            Max => super::reduction::extreme([x, y].into_iter(), f64::max),
            Min => super::reduction::extreme([x, y].into_iter(), f64::min),
            Reciprocal => a.div(Number::exact(1.0), x),
            Ceil => stairs(x, f64::ceil),
            Floor => stairs(x, f64::floor),
            Sqrt => a.monotone(x, ulp::SQRT, f64::sqrt),
            Rsqrt => self.rsqrt(x),
            Exp => a.monotone(x, ulp::EXP, f64::exp),
            Log => a.monotone(x, ulp::LOG, f64::ln),
            Erf => a.monotone(x, ulp::ERF, libm::erf),
            Sin => a.lipschitz(x, 1.0, 2.0 * ulp::SIN * a.u * x.value.sin().abs(), f64::sin),
            Tan => tan(a, x),
            CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt | CmpLe => compare(self.node.mode, x, y),
            LogicalNot => logical(x, |zero| truth(zero == Some(true), zero != Some(false))),
            LogicalAnd => and(is_true(x), is_true(y)),
            LogicalOr => not(and(not(is_true(x)), not(is_true(y)))),
            BinarySelect => {
                let predicate = *operands.get(2).ok_or("binary_select has no predicate")?;
                if predicate.is_any() || (predicate.error > 0.0 && predicate.may_be_zero()) {
                    Number::hull(x, y)
                } else if predicate.value == 0.0 {
                    y
                } else {
                    x
                }
            }
            ReluFwd => self.relu(x),
            ReluBwd => backward(self.relu_slope(x)),
            EluFwd => self.elu(x),
            EluBwd => backward(self.elu_slope(x)),
            SigmoidFwd => a.monotone(x, ulp::SIGMOID, sigmoid),
            SigmoidBwd => backward(sigmoid_slope(a, x)),
            TanhFwd => a.monotone(x, ulp::TANH, f64::tanh),
            TanhBwd => {
                // 1 − t²: the subtraction leaves the error of t² behind.
                let t = x.value.tanh();
                let error = t * t * (4.0 * ulp::TANH + 1.0) * a.u;
                backward(a.lipschitz(x, 0.77, error, |x| {
                    let t = x.tanh();
                    (1.0 - t) * (1.0 + t)
                }))
            }
            SoftplusFwd => self.softplus(x),
            SoftplusBwd => {
                let beta = self.softplus_beta();
                backward(a.monotone(a.mul(beta, x), ulp::SIGMOID, sigmoid))
            }
            SwishFwd => {
                let beta = self.beta();
                if x.value.is_infinite() {
                    Number::any()
                } else {
                    a.mul(x, a.monotone(a.mul(beta, x), ulp::SIGMOID, sigmoid))
                }
            }
            SwishBwd => backward(self.swish_slope(x)),
            GeluFwd => gelu(a, x),
            GeluBwd => backward(gelu_slope(a, x)),
            GeluApproxTanhFwd => gelu_tanh(a, x),
            GeluApproxTanhBwd => backward(gelu_tanh_slope(a, x)),
            GenIndex | Unset => return Err(format!("there is no function {}", self.node.mode)),
        })
    }

    fn beta(&self) -> Number {
        Number::exact(self.node.swish_beta.unwrap_or(1.0).into())
    }

    fn softplus_beta(&self) -> Number {
        Number::exact(self.node.softplus_beta.unwrap_or(1.0).into())
    }

    fn rsqrt(&self, x: Number) -> Number {
        if x.error > 0.0 && x.low() <= 0.0 {
            return Number::any();
        }
        // A division by a square root is as good as the function of that name.
        self.arithmetic.monotone(x, ulp::SQRT + ulp::DIVIDE, |x| 1.0 / x.sqrt())
    }

    /// `lower + slope·(x − lower)` up to the lower clip, then x, then the upper clip.
    fn relu(&self, x: Number) -> Number {
        let lower: f64 = self.node.relu_lower_clip.unwrap_or(0.0).into();
        let upper = self.node.relu_upper_clip.map_or(f64::INFINITY, f64::from);
        let slope: f64 = self.node.relu_lower_clip_slope.unwrap_or(0.0).into();
        // Whether NaN passes, and whether "no clip" is infinity or the largest number, depends on the engine.
        if x.is_any() || !x.value.is_finite() {
            return if x.value == f64::INFINITY && upper.is_finite() { Number::exact(upper) } else { Number::any() };
        }
        let f = |x: f64| if x <= lower { slope * (x - lower) + lower } else { x.min(upper) };
        let mut ends = Number::hull(Number::exact(f(x.low())), Number::exact(f(x.high())));
        if x.low() < lower && lower < x.high() {
            ends = Number::hull(ends, Number::exact(f(lower)));
        }
        let error = (ends.high() - f(x.value)).max(f(x.value) - ends.low());
        let sloped = slope != 0.0 && x.low() <= lower;
        let rounding = if sloped {
            self.arithmetic.u * (3.0 * (slope * (x.magnitude() + lower.abs())).abs() + lower.abs())
        } else {
            0.0
        };
        Number::new(f(x.value), error + rounding)
    }

    /// The slope of [`Function::relu`]: at the lower clip the lower branch's, at the upper clip 1.
    fn relu_slope(&self, x: Number) -> Number {
        let lower: f64 = self.node.relu_lower_clip.unwrap_or(0.0).into();
        let upper = self.node.relu_upper_clip.map_or(f64::INFINITY, f64::from);
        let slope = Number::exact(self.node.relu_lower_clip_slope.unwrap_or(0.0).into());
        if x.is_any() || x.value.is_nan() {
            return Number::any();
        }
        let f = |x: f64| if x <= lower { slope } else { Number::exact(if x > upper { 0.0 } else { 1.0 }) };
        let ends = Number::hull(f(x.low()), f(x.high()));
        Number::hull(ends, f(x.value))
    }

    fn elu(&self, x: Number) -> Number {
        let alpha: f64 = self.node.elu_alpha.unwrap_or(1.0).into();
        // alpha·(exp(x) − 1): the subtraction leaves the error of the exponential behind, which is at most 1.
        let f = |x: f64| if x > 0.0 { x } else { alpha * x.exp_m1() };
        let below = alpha.abs() * (2.0 * ulp::EXP + 2.0) * self.arithmetic.u;
        let error = if x.low() > 0.0 { 0.0 } else { below };
        if x.value.is_nan() { x } else { Number::hull_of(f(x.value), &[f(x.low()), f(x.high())], alpha < 0.0, error) }
    }

    fn elu_slope(&self, x: Number) -> Number {
        let alpha: f64 = self.node.elu_alpha.unwrap_or(1.0).into();
        if x.is_any() || x.value.is_nan() {
            return Number::any();
        }
        let below = |x: f64| alpha * x.min(0.0).exp();
        let steep = |x: f64| if x > 0.0 { 1.0 } else { below(x) };
        if x.low() > 0.0 {
            return Number::exact(1.0);
        }
        let error = (2.0 * ulp::EXP + 1.0) * self.arithmetic.u * alpha.abs();
        let mut slope = Number::hull_of(steep(x.value), &[below(x.low()), below(x.high())], false, error);
        if x.high() > 0.0 {
            slope = Number::hull(slope, Number::exact(1.0));
        }
        slope
    }

    /// `ln(1 + exp(βx)) / β`
    fn softplus(&self, x: Number) -> Number {
        let beta = self.softplus_beta().value;
        let f = |x: f64| ((beta * x).max(0.0) + (-(beta * x).abs()).exp().ln_1p()) / beta;
        // Adding 1 to the exponential rounds to the precision of 1, whatever comes out.
        let a = self.arithmetic;
        let error = a.u * (1.0 + 2.0 * ulp::EXP + 2.0 * (beta * x.value).abs()) / beta.abs();
        let number = a.monotone(x, ulp::LOG + ulp::DIVIDE, f);
        if number.value.is_finite() { Number::new(number.value, number.error + error) } else { number }
    }

    /// σ + βx·σ·(1 − σ), whose own slope is at most |β|/2.
    fn swish_slope(&self, x: Number) -> Number {
        let beta = self.beta().value;
        let a = self.arithmetic;
        if !x.value.is_finite() {
            return Number::any();
        }
        let t = beta * x.value;
        let s = sigmoid(t);
        // σ is off by its own error and by the rounding of βx; 1 − σ keeps σ's absolute error.
        let sigma = s * 2.0 * (ulp::SIGMOID + 1.0) * a.u + t.abs() * s * (1.0 - s) * a.u;
        let error = sigma * (1.0 + 2.0 * t.abs()) + 4.0 * a.u * t.abs() * s;
        a.lipschitz(x, 0.5 * beta.abs(), error, |x| {
            let s = sigmoid(beta * x);
            s + beta * x * s * sigmoid(-beta * x)
        })
    }
}

impl Number {
    /// A value, the values at the ends of its operand's interval, and the error of computing it. `bent` says that the
    /// function may turn between the ends, at 0 where it is 0.
    fn hull_of(value: f64, ends: &[f64], bent: bool, error: f64) -> Number {
        if !value.is_finite() {
            return if ends.iter().all(|end| *end == value) { Number::exact(value) } else { Number::any() };
        }
        let mut spread = ends.iter().fold(0.0, |worst: f64, end| worst.max((end - value).abs()));
        if bent {
            spread = spread.max(value.abs());
        }
        Number::new(value, spread + error)
    }
}

fn magnitude(x: Number) -> Number {
    if x.is_any() || x.error == 0.0 || !x.may_be_zero() {
        return Number { value: x.value.abs(), error: x.error };
    }
    Number::new(x.value.abs(), x.error)
}

fn stairs(x: Number, f: fn(f64) -> f64) -> Number {
    if x.is_any() || !x.value.is_finite() {
        return x;
    }
    let value = f(x.value);
    Number::new(value, (f(x.high()) - value).max(value - f(x.low())))
}

fn tan(a: Arithmetic, x: Number) -> Number {
    if !x.value.is_finite() {
        return if x.is_any() { x } else { Number::exact(f64::NAN) };
    }
    // Between two poles the tangent is monotone.
    let branch = |x: f64| (x / PI + 0.5).floor();
    if branch(x.low()) != branch(x.high()) {
        return Number::any();
    }
    // Near a pole the operand's own representation decides: the error is relative to the slope too.
    a.monotone(x, ulp::TAN, f64::tan)
}

fn compare(mode: PointwiseMode, x: Number, y: Number) -> Number {
    use PointwiseMode::*;
    if x.is_any() || y.is_any() {
        return truth(false, true);
    }
    let unordered = x.value.is_nan() || y.value.is_nan();
    if unordered {
        return truth(mode == CmpNeq, mode == CmpNeq);
    }
    let (less, greater) = (x.high() < y.low(), x.low() > y.high());
    let exact = x.error == 0.0 && y.error == 0.0;
    let same = exact && x.value == y.value;
    let may_be_same = !less && !greater;
    match mode {
        CmpEq => truth(same, may_be_same),
        CmpNeq => truth(!may_be_same, !same),
        CmpLt => truth(less, x.low() < y.high()),
        CmpLe => truth(x.high() <= y.low(), x.low() <= y.high()),
        CmpGt => truth(greater, x.high() > y.low()),
        _ => truth(x.low() >= y.high(), x.high() >= y.low()),
    }
}

/// Calls `f` with true if a number is zero, false if it is not, `None` if that is open.
fn logical(x: Number, f: impl Fn(Option<bool>) -> Number) -> Number {
    f(match (x.is_any(), x.error == 0.0, x.may_be_zero()) {
        (true, ..) => None,
        (_, true, _) => Some(x.value == 0.0),
        (_, _, true) => None,
        _ => Some(false),
    })
}

fn is_true(x: Number) -> Number {
    logical(x, |zero| truth(zero == Some(false), zero != Some(true)))
}

fn not(x: Number) -> Number {
    Number { value: 1.0 - x.value, error: x.error }
}

fn and(x: Number, y: Number) -> Number {
    truth(x.low() >= 1.0 && y.low() >= 1.0, x.high() >= 1.0 && y.high() >= 1.0)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn sigmoid_slope(a: Arithmetic, x: Number) -> Number {
    let s = sigmoid(x.value);
    // σ·(1 − σ): σ's relative error counts in both factors, in the second one as an absolute error.
    let error = s * (1.0 - s) * (2.0 * ulp::SIGMOID + 1.0) * a.u + s * (2.0 * ulp::SIGMOID * s + 1.0) * a.u;
    a.lipschitz(x, 0.1, error, |x| sigmoid(x) * sigmoid(-x))
}

/// Φ(x) = (1 + erf(x/√2)) / 2, without cancellation.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The density of the normal distribution.
fn density(x: f64) -> f64 {
    0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * x * x).exp()
}

/// Error bound of 1 + erf(x/√2): the function, the rounding of its argument, and of the sum.
fn error_of_one_plus_erf(a: Arithmetic, x: f64) -> f64 {
    a.u * (2.0 * ulp::ERF * libm::erf(x * FRAC_1_SQRT_2).abs() + 4.0 * x.abs() * density(x) + 2.0)
}

/// `x·Φ(x)`, whose slope is at most 1.13.
fn gelu(a: Arithmetic, x: Number) -> Number {
    if !x.value.is_finite() {
        return Number::any();
    }
    a.lipschitz(x, 1.13, 0.5 * x.value.abs() * error_of_one_plus_erf(a, x.value), |x| x * normal(x))
}

/// `Φ(x) + x·φ(x)`, whose slope is at most 2φ(0).
fn gelu_slope(a: Arithmetic, x: Number) -> Number {
    if !x.value.is_finite() {
        return Number::any();
    }
    let v = x.value;
    // The exponent −x²/2 is rounded twice, which the exponential makes a relative error of x²u.
    let error = 0.5 * error_of_one_plus_erf(a, v) + (v * density(v)).abs() * (2.0 * ulp::EXP + 3.0 + v * v) * a.u;
    a.lipschitz(x, 0.8, error, |x| normal(x) + x * density(x))
}

/// The inner function of the approximation by the hyperbolic tangent: √(2/π)·(x + 0.044715·x³), and its slope.
fn inner(x: f64) -> (f64, f64) {
    let factor = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    (factor * (x + 0.044715 * x * x * x), factor * (1.0 + 3.0 * 0.044715 * x * x))
}

/// Error bound of tanh(inner(x)): the function, and the six roundings of its argument (its constants included).
fn error_of_tanh(a: Arithmetic, x: f64) -> f64 {
    let (z, _) = inner(x);
    let t = z.tanh();
    a.u * (2.0 * ulp::TANH * t.abs() + 6.0 * z.abs() * (1.0 - t) * (1.0 + t))
}

/// `x/2·(1 + tanh(inner(x)))`, whose slope is at most 1.13.
fn gelu_tanh(a: Arithmetic, x: Number) -> Number {
    if !x.value.is_finite() {
        return Number::any();
    }
    let error = 0.5 * x.value.abs() * (error_of_tanh(a, x.value) + 2.0 * a.u);
    // (1 + tanh z)/2 = σ(2z)
    a.lipschitz(x, 1.13, error, |x| x * sigmoid(2.0 * inner(x).0))
}

/// `(1 + t)/2 + x/2·(1 − t²)·inner'(x)`, t being tanh(inner(x)); its slope is below 1.
fn gelu_tanh_slope(a: Arithmetic, x: Number) -> Number {
    if !x.value.is_finite() {
        return Number::any();
    }
    let v = x.value;
    let (z, slope) = inner(v);
    let t = z.tanh();
    let error_of_t = error_of_tanh(a, v);
    let second = 0.5 * v.abs() * slope;
    let error =
        0.5 * (error_of_t + 2.0 * a.u) + second * (2.0 * error_of_t + 2.0 * a.u + 8.0 * a.u * (1.0 - t) * (1.0 + t));
    a.lipschitz(x, 1.0, error, |x| {
        let (z, slope) = inner(x);
        let s = sigmoid(2.0 * z);
        s + 2.0 * x * s * sigmoid(-2.0 * z) * slope
    })
}

#[cfg(test)]
mod tests {
    //! Values by hand, or from elsewhere: each mode has some.

    use std::collections::HashSet;

    use hipdnn_schemas::Operation;

    use super::super::tests::{Example, close};
    use super::*;
    use PointwiseMode::*;

    type Set = fn(&mut Pointwise);

    /// Results of unary modes for [`UNARY_OPERANDS`].
    const UNARY: &[(PointwiseMode, Set, [f64; 5])] = &[
        (Abs, |_| {}, [2.0, 0.5, 0.0, 0.5, 3.0]),
        (Neg, |_| {}, [2.0, 0.5, 0.0, -0.5, -3.0]),
        (Identity, |_| {}, [-2.0, -0.5, 0.0, 0.5, 3.0]),
        (Ceil, |_| {}, [-2.0, 0.0, 0.0, 1.0, 3.0]),
        (Floor, |_| {}, [-2.0, -1.0, 0.0, 0.0, 3.0]),
        (Exp, |_| {}, [0.135335, 0.606531, 1.0, 1.648721, 20.085537]),
        (Erf, |_| {}, [-0.995322, -0.520500, 0.0, 0.520500, 0.999978]),
        (Sin, |_| {}, [-0.909297, -0.479426, 0.0, 0.479426, 0.141120]),
        (Tan, |_| {}, [2.185040, -0.546302, 0.0, 0.546302, -0.142547]),
        (LogicalNot, |_| {}, [0.0, 0.0, 1.0, 0.0, 0.0]),
        (ReluFwd, |_| {}, [0.0, 0.0, 0.0, 0.5, 3.0]),
        (ReluFwd, |p| p.relu_upper_clip = Some(1.0), [0.0, 0.0, 0.0, 0.5, 1.0]),
        (ReluFwd, |p| p.relu_lower_clip_slope = Some(0.1), [-0.2, -0.05, 0.0, 0.5, 3.0]),
        (
            ReluFwd,
            |p| (p.relu_lower_clip, p.relu_lower_clip_slope) = (Some(-0.5), Some(0.5)),
            [-1.25, -0.5, 0.0, 0.5, 3.0],
        ),
        (SigmoidFwd, |_| {}, [0.119203, 0.377541, 0.5, 0.622459, 0.952574]),
        (TanhFwd, |_| {}, [-0.964028, -0.462117, 0.0, 0.462117, 0.995055]),
        (EluFwd, |_| {}, [-0.864665, -0.393469, 0.0, 0.5, 3.0]),
        (EluFwd, |p| p.elu_alpha = Some(2.0), [-1.729329, -0.786939, 0.0, 0.5, 3.0]),
        (GeluFwd, |_| {}, [-0.045500, -0.154269, 0.0, 0.345731, 2.995950]),
        (GeluApproxTanhFwd, |_| {}, [-0.045402, -0.154286, 0.0, 0.345714, 2.996363]),
        (SoftplusFwd, |_| {}, [0.126928, 0.474077, std::f64::consts::LN_2, 0.974077, 3.048587]),
        (SoftplusFwd, |p| p.softplus_beta = Some(2.0), [0.0090749, 0.156631, 0.346574, 0.656631, 3.001238]),
        (SwishFwd, |_| {}, [-0.238406, -0.188770, 0.0, 0.311230, 2.857722]),
        (SwishFwd, |p| p.swish_beta = Some(2.0), [-0.035972, -0.134471, 0.0, 0.365529, 2.992582]),
    ];

    const UNARY_OPERANDS: [f64; 5] = [-2.0, -0.5, 0.0, 0.5, 3.0];

    /// Results for [`POSITIVE_OPERANDS`] of unary modes that are not defined elsewhere.
    const POSITIVE: &[(PointwiseMode, [f64; 4])] = &[
        (Sqrt, [0.5, 1.0, std::f64::consts::SQRT_2, 3.0]),
        (Rsqrt, [2.0, 1.0, std::f64::consts::FRAC_1_SQRT_2, 0.333333]),
        (Reciprocal, [4.0, 1.0, 0.5, 0.111111]),
        (Log, [-1.386294, 0.0, std::f64::consts::LN_2, 2.197225]),
    ];

    const POSITIVE_OPERANDS: [f64; 4] = [0.25, 1.0, 2.0, 9.0];

    /// Results of binary modes for -2 and 2, for 1 and 2, and for 2 and 2.
    const BINARY: &[(PointwiseMode, [f64; 3])] = &[
        (Add, [0.0, 3.0, 4.0]),
        (Sub, [-4.0, -1.0, 0.0]),
        (Mul, [-4.0, 2.0, 4.0]),
        (Div, [-1.0, 0.5, 1.0]),
        (AddSquare, [2.0, 5.0, 6.0]),
        (Max, [2.0, 2.0, 2.0]),
        (Min, [-2.0, 1.0, 2.0]),
        (CmpEq, [0.0, 0.0, 1.0]),
        (CmpNeq, [1.0, 1.0, 0.0]),
        (CmpLt, [1.0, 1.0, 0.0]),
        (CmpLe, [1.0, 1.0, 1.0]),
        (CmpGt, [0.0, 0.0, 0.0]),
        (CmpGe, [0.0, 0.0, 1.0]),
        (LogicalAnd, [1.0, 1.0, 1.0]),
        (LogicalOr, [1.0, 1.0, 1.0]),
    ];

    /// Result of a mode for operands of one element or as many as the first one.
    fn result(mode: PointwiseMode, set: Set, operands: &[&[f64]]) -> Vec<f64> {
        let mut e = Example::new();
        let uids: Vec<_> = operands.iter().map(|values| e.input(&[values.len() as i64], values)).collect();
        let out = e.output(&[operands[0].len() as i64]);
        let mut node = Pointwise {
            in_1: uids.get(1).copied(),
            in_2: uids.get(2).copied(),
            ..Pointwise::unary(mode, uids[0], out)
        };
        set(&mut node);
        e.run(Operation::Pointwise(node))(out)
    }

    /// Mode that a backward mode is the slope of.
    fn forward_of(mode: PointwiseMode) -> Option<PointwiseMode> {
        PointwiseMode::from_json_name(&format!("{}_fwd", mode.json_name().strip_suffix("_bwd")?))
    }

    #[test]
    fn every_mode_has_values() {
        let unary = UNARY.iter().map(|(mode, ..)| *mode).chain(POSITIVE.iter().map(|(mode, _)| *mode));
        let with_values: HashSet<_> = unary.chain(BINARY.iter().map(|(mode, _)| *mode)).collect();
        for &mode in PointwiseMode::ALL {
            // A backward mode is compared with its forward one.
            let known = with_values.contains(&forward_of(mode).unwrap_or(mode));
            assert!(known || matches!(mode, Unset | GenIndex | BinarySelect), "{mode} has no values to compare with");
        }
    }

    #[test]
    fn unary_modes() {
        for (mode, set, wanted) in UNARY {
            let got = result(*mode, *set, &[&UNARY_OPERANDS]);
            for (got, wanted) in got.iter().zip(wanted) {
                assert!((got - wanted).abs() < 2e-6, "{mode}: {got} for {wanted}");
            }
        }
        for (mode, wanted) in POSITIVE {
            let got = result(*mode, |_| {}, &[&POSITIVE_OPERANDS]);
            for (got, wanted) in got.iter().zip(wanted) {
                assert!((got - wanted).abs() < 2e-6, "{mode}: {got} for {wanted}");
            }
        }
    }

    /// The slopes, times a gradient of 2, by the difference of the forward mode.
    #[test]
    fn backward_modes() {
        let set: Set = |p| {
            (p.swish_beta, p.softplus_beta, p.elu_alpha) = (Some(1.5), Some(0.5), Some(0.5));
            p.relu_lower_clip_slope = Some(0.25);
        };
        let mut compared = 0;
        for &backward in PointwiseMode::ALL {
            let Some(forward) = forward_of(backward) else { continue };
            for x in [-3.0, -0.7, 0.3, 2.5] {
                let at = |x: f64| result(forward, set, &[&[x]])[0];
                let slope = (at(x + 1e-5) - at(x - 1e-5)) / 2e-5;
                let got = result(backward, set, &[&[x], &[2.0]])[0];
                assert!((got - 2.0 * slope).abs() < 1e-7, "{backward} at {x}: {got} for {}", 2.0 * slope);
            }
            compared += 1;
        }
        assert!(compared >= 8, "{compared} backward modes");
    }

    #[test]
    fn binary_modes_and_selection() {
        for (mode, wanted) in BINARY {
            close(result(*mode, |_| {}, &[&[-2.0, 1.0, 2.0], &[2.0]]), wanted, mode.json_name());
        }
        let selected = result(BinarySelect, |_| {}, &[&[1.0, 2.0], &[3.0, 4.0], &[1.0, 0.0]]);
        close(selected, &[1.0, 4.0], "binary_select");
        // What is 0 is false, whatever its sign.
        for (mode, wanted) in [(LogicalAnd, [0.0, 0.0, 1.0]), (LogicalOr, [0.0, 1.0, 1.0])] {
            close(result(mode, |_| {}, &[&[0.0, 0.0, 2.0], &[-0.0, 1.0, 3.0]]), &wanted, mode.json_name());
        }
    }
}
