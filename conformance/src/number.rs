//! Numbers with bounds on their rounding errors, and arithmetic that propagates the bounds.
//!
//! [`Number::value`] is the exact result, to double precision. [`Number::error`] bounds how far an engine that computes
//! in the node's compute type may be from it. The bound is derived while computing (a running error analysis, Higham,
//! Accuracy and Stability of Numerical Algorithms, 3.3), from these facts and no others:
//!
//! * a result of `+ - × ÷ √` is rounded once: off by u·|result|, u being the unit roundoff of the compute type;
//! * a sum of n terms in any order, with or without fused multiply-add, is off by γ(n)·Σ|terms|, γ(n) = nu/(1 − nu);
//! * a function of mathematics is off by as many ulp as OpenCL allows it in single precision (table below);
//! * an operand that is off by e moves a monotone function by what it does at the ends of the interval, and any function
//!   by at most its Lipschitz constant times e;
//! * results below the smallest normal number may be flushed to zero;
//! * a stored result is rounded once more, and a fused engine may skip that.
//!
//! If an error may decide between two branches, the bound covers both. An infinite bound means that anything goes: the
//! result depends on things that no engine promises, such as whether an intermediate of half precision overflows.

use hipdnn_schemas::DataType;

use crate::format::{Float, integer_range};

/// A value with the error bound of an engine's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The exact result.
    pub value: f64,
    /// Error bound of a right result; infinite if anything is right.
    pub error: f64,
}

impl Number {
    /// Nothing but this value is right; it may be infinite or NaN.
    pub const fn exact(value: f64) -> Number {
        Number { value, error: 0.0 }
    }

    /// Whatever an engine gives is right.
    pub const fn any() -> Number {
        Number { value: f64::NAN, error: f64::INFINITY }
    }

    /// A value with a bound; a bound that is NaN came of infinities and means that anything is right.
    pub fn new(value: f64, error: f64) -> Number {
        if !error.is_finite() || (value.is_nan() && error > 0.0) {
            return Number::any();
        }
        Number { value, error: if value.is_infinite() { 0.0 } else { error } }
    }

    /// Everything between two numbers' ends.
    pub fn hull(a: Number, b: Number) -> Number {
        if a == b {
            return a;
        }
        if a.is_any() || b.is_any() || !a.value.is_finite() || !b.value.is_finite() {
            return Number::any();
        }
        let (low, high) = (a.low().min(b.low()), a.high().max(b.high()));
        Number { value: low + (high - low) / 2.0, error: (high - low) / 2.0 * (1.0 + 2f64.powi(-50)) }
    }

    /// True if every result is right.
    pub fn is_any(self) -> bool {
        self.error.is_infinite()
    }

    /// The least value that is right.
    pub fn low(self) -> f64 {
        if self.error == 0.0 { self.value } else { self.value - self.error }
    }

    /// The greatest value that is right.
    pub fn high(self) -> f64 {
        if self.error == 0.0 { self.value } else { self.value + self.error }
    }

    /// The greatest magnitude that is right.
    pub fn magnitude(self) -> f64 {
        self.value.abs() + self.error
    }

    /// True if zero is among the right values.
    pub fn may_be_zero(self) -> bool {
        !(self.low() > 0.0 || self.high() < 0.0)
    }

    /// Value as read after being stored in that type: the rounded number, or the one that a fusing engine kept in a
    /// register.
    pub fn stored(self, data_type: DataType) -> Number {
        if self.is_any() {
            return self;
        }
        if let Some(float) = Float::of(data_type) {
            if !self.value.is_finite() {
                // The narrow formats have no infinities.
                let keeps =
                    matches!(data_type, DataType::Double | DataType::Float | DataType::Half | DataType::BFloat16);
                return if keeps { self } else { Number::any() };
            }
            let (low, high) = (float.round(self.low()), float.round(self.high()));
            return Number::new(
                self.value,
                self.error.max(high - self.value).max(self.value - low) + flush(float, self),
            );
        }
        if data_type == DataType::Boolean {
            return match (self.value == 0.0 && self.error == 0.0, self.may_be_zero()) {
                (true, _) => Number::exact(0.0),
                (_, true) => Number { value: 0.5, error: 0.5 },
                _ => Number::exact(1.0),
            };
        }
        let Some((least, most)) = integer_range(data_type) else { return Number::any() };
        if !self.value.is_finite() || self.low() < least || self.high() > most {
            return Number::any();
        }
        if self.error == 0.0 && self.value.fract() == 0.0 {
            return self;
        }
        // hipDNN does not say whether a conversion rounds or truncates.
        Number { value: self.value, error: self.error + 1.0 }
    }

    /// True if an engine's element of that type is right.
    pub fn accepts(self, data_type: DataType, got: f64) -> bool {
        if self.is_any() {
            return true;
        }
        if let Some(float) = Float::of(data_type) {
            let infinities = matches!(
                data_type,
                DataType::Double | DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Fp8E5M2
            );
            if self.value.is_nan() {
                return got.is_nan() || matches!(data_type, DataType::Fp4E2M1 | DataType::Fp6E2M3 | DataType::Fp6E3M2);
            }
            if self.value.is_infinite() {
                return !infinities || got == self.value;
            }
            // The exact value is itself known to double precision only.
            let slack = self.error + self.value.abs() * 2f64.powi(-48) + flush(float, self);
            let (low, high) = (float.round(self.value - slack), float.round(self.value + slack));
            if !infinities && (high.is_infinite() || low.is_infinite()) {
                // Past the end of a format without infinities lie its largest number and its NaN.
                return got.is_nan() || got.abs() == float.largest() || (low <= got && got <= high);
            }
            return low <= got && got <= high;
        }
        let stored = self.stored(data_type);
        if stored.is_any() {
            return true;
        }
        if stored.error == 0.0 {
            got == stored.value
        } else {
            (got - stored.value).abs() < stored.error * (1.0 + 1e-12) || got == stored.low() || got == stored.high()
        }
    }
}

/// Error of flushing subnormal results to zero. Half-precision subnormals are kept by everyone.
fn flush(float: Float, number: Number) -> f64 {
    let least = float.smallest_normal();
    if least > 2f64.powi(-100) || number.value.abs() - number.error >= least || number == Number::exact(0.0) {
        return 0.0;
    }
    least
}

/// Largest errors of functions in single precision, in ulp: the OpenCL C specification's table of relative errors.
pub mod ulp {
    /// e to the power of x.
    pub const EXP: f64 = 3.0;
    /// Natural logarithm.
    pub const LOG: f64 = 3.0;
    /// Sine.
    pub const SIN: f64 = 4.0;
    /// Tangent.
    pub const TAN: f64 = 5.0;
    /// Hyperbolic tangent.
    pub const TANH: f64 = 5.0;
    /// The error function.
    pub const ERF: f64 = 16.0;
    /// One over the square root.
    pub const RSQRT: f64 = 2.0;
    /// Square root.
    pub const SQRT: f64 = 3.0;
    /// Division.
    pub const DIVIDE: f64 = 2.5;
    /// 1 / (1 + exp(−x)): the exponential, an addition and a division.
    pub const SIGMOID: f64 = EXP + 0.5 + DIVIDE;
    /// 2 to the power of x.
    pub const EXP2: f64 = 3.0;
}

/// Arithmetic in a compute type.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    float: Float,
    data_type: DataType,
    /// Unit roundoff.
    pub u: f64,
}

impl Arithmetic {
    /// Arithmetic in that type.
    ///
    /// # Errors
    /// If nodes can't compute in it.
    pub fn new(data_type: DataType) -> Result<Arithmetic, String> {
        match data_type {
            DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Double => {
                let float = Float::of(data_type).expect("one of the floats");
                Ok(Arithmetic { float, data_type, u: float.roundoff() })
            }
            other => Err(format!("expected a float as compute type, got {other}")),
        }
    }

    /// The relative error of n roundings.
    pub fn gamma(self, n: f64) -> f64 {
        let nu = n * self.u;
        if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
    }

    /// An operand, converted to the compute type or kept as it is.
    pub fn operand(self, number: Number) -> Number {
        // The other operand types fit into any compute type that is no narrower; rounding what fits changes nothing.
        if number.error == 0.0 && self.float.round(number.value) == number.value {
            return number;
        }
        if number.value.is_nan() { number } else { number.stored(self.data_type) }
    }

    /// The result of one operation: `value`, off by `error` before it is rounded.
    fn rounded(self, value: f64, error: f64) -> Number {
        self.within(value, error, 1.0)
    }

    /// The result of an operation that is off by `units` unit roundoffs besides.
    pub fn within(self, value: f64, error: f64, units: f64) -> Number {
        if !value.is_finite() {
            return if error.is_finite() { Number::exact(value) } else { Number::any() };
        }
        if error == 0.0 && units <= 1.0 && self.float.round(value) == value {
            // IEEE operations give representable results exactly.
            return Number {
                value,
                error: if value != 0.0 && value.abs() < self.float.smallest_normal() { value.abs() } else { 0.0 },
            };
        }
        let number = Number::new(
            value,
            error + units * self.u * (value.abs() + error) + self.float.smallest_normal().min(2f64.powi(-100)),
        );
        if number.magnitude() > self.float.largest() { Number::any() } else { number }
    }

    /// a + b
    pub fn add(self, a: Number, b: Number) -> Number {
        self.rounded(a.value + b.value, a.error + b.error)
    }

    /// a − b
    pub fn sub(self, a: Number, b: Number) -> Number {
        self.rounded(a.value - b.value, a.error + b.error)
    }

    /// a × b
    pub fn mul(self, a: Number, b: Number) -> Number {
        let error = product_error(a, b);
        self.rounded(a.value * b.value, error)
    }

    /// a ÷ b
    pub fn div(self, a: Number, b: Number) -> Number {
        if a.is_any() || b.is_any() || (b.error > 0.0 && b.may_be_zero()) {
            return Number::any();
        }
        let value = a.value / b.value;
        if !value.is_finite() || !b.value.is_finite() {
            let certain = a.error == 0.0 || b.value.is_infinite() || a.value.is_infinite();
            return if certain { Number::exact(value) } else { Number::any() };
        }
        // The quotient is monotone in both operands: its extremes are at the corners.
        let corners = [a.low() / b.low(), a.low() / b.high(), a.high() / b.low(), a.high() / b.high()];
        let error = corners.iter().fold(0.0, |worst: f64, corner| worst.max((corner - value).abs()));
        let exact = error == 0.0 && self.float.round(value) == value && value * b.value == a.value;
        if exact { Number::exact(value) } else { self.within(value, error, 2.0 * ulp::DIVIDE) }
    }

    /// The sum, when each of the `n` terms went through `roundings` operations before; see [`Sum`].
    pub fn sum(self) -> Sum {
        Sum { arithmetic: self, value: 0.0, error: 0.0, magnitude: 0.0, terms: 0.0, any: false }
    }

    /// A monotone function with an error of that many ulp.
    pub fn monotone(self, x: Number, ulps: f64, f: impl Fn(f64) -> f64) -> Number {
        if x.is_any() {
            return x;
        }
        let value = f(x.value);
        if x.error == 0.0 {
            return self.within(value, 0.0, (2.0 * ulps).max(2.0));
        }
        let (low, high) = (f(x.low()), f(x.high()));
        // Outside of the function's domain at one end: nobody knows whether NaN is right.
        if low.is_nan() || high.is_nan() {
            return Number::any();
        }
        let error = (high - value).abs().max((value - low).abs());
        if error.is_nan() { Number::any() } else { self.within(value, error, 2.0 * ulps) }
    }

    /// A function with that Lipschitz constant, off by `error` where its operand is exact.
    pub fn lipschitz(self, x: Number, constant: f64, error: f64, f: impl Fn(f64) -> f64) -> Number {
        if x.is_any() {
            return x;
        }
        self.within(f(x.value), constant * x.error + error, 2.0)
    }
}

/// Error bound of a product of two numbers.
fn product_error(a: Number, b: Number) -> f64 {
    if a.is_any() || b.is_any() {
        return f64::INFINITY;
    }
    for (one, other) in [(a, b), (b, a)] {
        // An infinity times something whose sign is open may be anything; times a known sign it is an infinity.
        if !one.value.is_finite() {
            return if other.error > 0.0 && other.may_be_zero() { f64::INFINITY } else { 0.0 };
        }
    }
    a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error
}

/// A sum in any order.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    arithmetic: Arithmetic,
    value: f64,
    error: f64,
    magnitude: f64,
    terms: f64,
    any: bool,
}

impl Sum {
    /// Adds a term.
    pub fn push(&mut self, term: Number) {
        self.any |= term.is_any();
        self.value += term.value;
        self.terms += 1.0;
        if term.value.is_finite() {
            self.error += term.error;
            self.magnitude += term.magnitude();
        }
    }

    /// Adds a product, rounded or not.
    pub fn push_product(&mut self, a: Number, b: Number) {
        let value = a.value * b.value;
        self.value += value;
        self.terms += 1.0;
        if value.is_finite() {
            self.error += a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
            self.magnitude += a.magnitude() * b.magnitude();
        } else {
            self.any |= product_error(a, b) > 0.0;
        }
        self.any |= a.is_any() || b.is_any();
    }

    /// Marks the sum as undetermined: any result is right.
    pub fn spoil(&mut self) {
        self.any = true;
    }

    /// The sum of the terms' magnitudes.
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// The sum, each term of which was rounded once before.
    pub fn finish(self) -> Number {
        // A partial sum that overflows spoils the result, whatever the exact one is.
        if self.any || self.magnitude > self.arithmetic.float.largest() {
            return Number::any();
        }
        if !self.value.is_finite() {
            return Number::exact(self.value);
        }
        if self.magnitude == 0.0 {
            return Number::exact(0.0);
        }
        let tiny = self.terms * self.arithmetic.float.smallest_normal().min(2f64.powi(-100));
        Number::new(self.value, self.error + self.arithmetic.gamma(self.terms + 1.0) * self.magnitude + tiny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s() -> Arithmetic {
        Arithmetic::new(DataType::Float).expect("a compute type")
    }

    /// Single-precision arithmetic stays within the bound, and not far below it.
    #[test]
    fn the_machine_s_results_are_within_their_bounds() {
        let mut generator = fastrand::Rng::with_seed(1);
        let mut random = || 4.0 * generator.f32() - 2.0;
        let arithmetic = f32s();
        let mut worst = 0f64;
        for _ in 0..2000 {
            let terms: Vec<(f32, f32)> = (0..40).map(|_| (random(), random())).collect();
            let mut sum = arithmetic.sum();
            let mut machine = 0f32;
            for (a, b) in &terms {
                sum.push_product(Number::exact((*a).into()), Number::exact((*b).into()));
                machine += a * b;
            }
            let exact = sum.finish();
            assert!(exact.accepts(DataType::Float, machine.into()), "{machine} {exact:?}");
            worst = worst.max((f64::from(machine) - exact.value).abs() / exact.error);
            let (a, b) = terms[0];
            let (x, y) = (Number::exact(a.into()), Number::exact(b.into()));
            for (name, number, got) in [
                ("add", arithmetic.add(x, y), a + b),
                ("mul", arithmetic.mul(x, y), a * b),
                ("div", arithmetic.div(x, y), a / b),
                ("exp", arithmetic.monotone(x, ulp::EXP, f64::exp), a.exp()),
                (
                    "chain",
                    arithmetic.div(arithmetic.sub(arithmetic.mul(x, x), y), arithmetic.add(Number::exact(9.0), y)),
                    (a * a - b) / (9.0 + b),
                ),
            ] {
                assert!(number.accepts(DataType::Float, got.into()), "{name}({a}, {b}): {got} {number:?}");
            }
        }
        assert!(worst > 0.01, "a bound that nothing comes near: {worst}");
    }

    #[test]
    fn what_is_wrong_is_seen() {
        let sum = f32s().add(Number::exact(1.0), Number::exact(2f64.powi(-20) * 1.1));
        for (number, data_type, got, right) in [
            (Number::exact(1.0), DataType::Float, 1.0, true),
            (Number::exact(1.0), DataType::Float, 1.0 + 2f64.powi(-23), false),
            (Number::exact(0.1), DataType::Float, 0.1f32.into(), true),
            (Number::exact(f64::NAN), DataType::Float, 0.0, false),
            (Number::exact(f64::NAN), DataType::Float, f64::NAN, true),
            (Number::exact(f64::INFINITY), DataType::Half, f64::INFINITY, true),
            (Number::exact(f64::INFINITY), DataType::Half, f64::NEG_INFINITY, false),
            (Number::exact(70000.0), DataType::Half, f64::INFINITY, true),
            (Number::exact(70000.0), DataType::Half, 65504.0, false),
            (Number::exact(500.0), DataType::Fp8E4M3, 448.0, true),
            (Number::exact(500.0), DataType::Fp8E4M3, 400.0, false),
            (Number::exact(2.0), DataType::Int32, 2.0, true),
            (Number::exact(2.0), DataType::Int32, 3.0, false),
            (Number::exact(2.5), DataType::Int32, 3.0, true),
            (Number::exact(2.5), DataType::Int32, 2.0, true),
            (Number::exact(2.5), DataType::Int32, 4.0, false),
            (Number { value: 0.5, error: 0.5 }, DataType::Float, 1.0, true),
            (Number { value: 0.5, error: 0.5 }, DataType::Boolean, 0.0, true),
            (Number::exact(1.0), DataType::Boolean, 0.0, false),
            (Number::any(), DataType::Float, f64::NAN, true),
            (sum, DataType::Float, 1.0, false),
        ] {
            assert_eq!(number.accepts(data_type, got), right, "{number:?} {data_type} {got}");
        }
    }

    #[test]
    fn infinities_and_open_signs() {
        let arithmetic = f32s();
        let infinity = Number::exact(f64::INFINITY);
        assert_eq!(arithmetic.mul(infinity, Number::exact(-2.0)).value, f64::NEG_INFINITY);
        assert!(arithmetic.mul(infinity, Number { value: 0.0, error: 1.0 }).is_any());
        assert!(!arithmetic.mul(infinity, Number { value: 2.0, error: 1.0 }).is_any());
        assert!(arithmetic.mul(infinity, Number::exact(0.0)).value.is_nan());
        assert!(!arithmetic.mul(infinity, Number::exact(0.0)).is_any());
        assert!(arithmetic.div(Number::exact(1.0), Number { value: 0.0, error: 1e-9 }).is_any());
        assert_eq!(arithmetic.div(Number::exact(1.0), Number::exact(0.0)).value, f64::INFINITY);
        assert!(arithmetic.mul(Number::exact(1e30), Number::exact(1e30)).is_any());
    }
}
