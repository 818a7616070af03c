//! Activation functions on `f32` slices.
//!
//! Every one keeps NaN and has its limits at the infinities. Stated errors are in units in the last place of the exact
//! result (tested against f64); results below the smallest normal number may be zero.

use super::isa::{Isa, Kernel, Simd, first};

/// An activation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Identity,
    /// `lower_clip + slope · (x - lower_clip)` up to `lower_clip`, above it `x`; never above `upper_clip`.
    Relu {
        /// Threshold from which on the function is the identity.
        lower_clip: f32,
        /// The largest result; infinity for none.
        upper_clip: f32,
        /// The slope below `lower_clip`.
        slope: f32,
    },
    /// `1 / (1 + e⁻ˣ)`, within 4 ulp.
    Sigmoid,
    /// `tanh x`, within 6 ulp.
    Tanh,
    /// `x · sigmoid(beta · x)`, within 6 ulp of the result for the rounded `beta · x`.
    Swish {
        /// Scale of the sigmoid's argument.
        beta: f32,
    },
    /// GELU: `x · (1 + erf(x / √2)) / 2`, within 2⁻²²·|x|.
    Gelu,
    /// Tanh approximation of GELU, within 2⁻²²·|x|.
    GeluTanh,
    /// `alpha · (eˣ - 1)` below zero, above it `x`; within 4 ulp.
    Elu {
        /// Scale of the negative side.
        alpha: f32,
    },
    /// `ln(1 + e^(beta·x)) / beta`, within 6 ulp for the rounded `beta · x`.
    Softplus {
        /// Sharpness of the bend; not zero.
        beta: f32,
    },
    /// `alpha · x + beta` between 0 and 1.
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Value at zero.
        beta: f32,
    },
    /// `x` times the hard sigmoid.
    HardSwish {
        /// Slope of the hard sigmoid.
        alpha: f32,
        /// Value of the hard sigmoid at zero.
        beta: f32,
    },
    /// `|x|`.
    Abs,
    /// `-x`.
    Neg,
}

impl Activation {
    /// The plain ReLU, `max(x, 0)`.
    pub const RELU: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: f32::INFINITY, slope: 0.0 };

    /// Replaces each value by its activation.
    pub fn apply(&self, isa: Isa, values: &mut [f32]) {
        isa.run(Apply { activation: *self, values });
    }

    /// Bounds `(low, high)` of the clamp that the activation is, if it is one that keeps NaN.
    pub fn as_clamp(&self) -> Option<(f32, f32)> {
        match *self {
            Activation::Identity => Some((f32::NEG_INFINITY, f32::INFINITY)),
            Activation::Relu { lower_clip, upper_clip, slope } if slope == 0.0 && lower_clip <= upper_clip => {
                Some((lower_clip, upper_clip))
            }
            _ => None,
        }
    }

    /// [`Activation::apply`] inside of a kernel.
    #[inline(always)]
    pub fn apply_with<S: Simd>(&self, s: S, values: &mut [f32]) {
        match *self {
            Activation::Identity => {}
            Activation::Relu { lower_clip, upper_clip, slope: 0.0 } => {
                let (low, high) = (s.splat(lower_clip), s.splat(upper_clip));
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| s.min(high, s.max(low, x)),
                );
            }
            Activation::Relu { lower_clip, upper_clip, slope } => {
                let (low, high, slope) = (s.splat(lower_clip), s.splat(upper_clip), s.splat(slope));
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| {
                        let leaky = s.fma(slope, s.sub(x, low), low);
                        s.min(high, s.select(s.lt(low, x), x, leaky))
                    },
                );
            }
            Activation::Sigmoid => map(
                s,
                values,
                #[inline(always)]
                |x| sigmoid(s, x),
            ),
            Activation::Tanh => map(
                s,
                values,
                #[inline(always)]
                |x| tanh(s, x),
            ),
            Activation::Swish { beta } => {
                let beta = s.splat(beta);
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| gate(s, x, sigmoid(s, s.mul(beta, x))),
                );
            }
            Activation::Gelu => map(
                s,
                values,
                #[inline(always)]
                |x| {
                    let half_erfc = s.mul(s.splat(0.5), erfc(s, s.mul(x, s.splat(-std::f32::consts::FRAC_1_SQRT_2))));
                    gate(s, x, half_erfc)
                },
            ),
            Activation::GeluTanh => map(
                s,
                values,
                #[inline(always)]
                |x| {
                    // (1 + tanh u) / 2 = sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³)
                    let cube = s.mul(s.mul(x, x), x);
                    let u2 = s.mul(s.splat(1.595_769), s.fma(s.splat(0.044715), cube, x));
                    gate(s, x, sigmoid(s, u2))
                },
            ),
            Activation::Elu { alpha } => {
                let alpha = s.splat(alpha);
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| {
                        let below = s.mul(alpha, expm1(s, s.min(s.splat(0.0), x)));
                        s.select(s.lt(s.splat(0.0), x), x, below)
                    },
                );
            }
            Activation::Softplus { beta } => {
                let (beta, scale) = (s.splat(beta), s.splat(1.0 / beta));
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| {
                        let t = s.mul(beta, x);
                        let tail = log1p_unit(s, exp(s, s.sub(s.splat(0.0), s.abs(t))));
                        s.mul(scale, s.add(s.max(s.splat(0.0), t), tail))
                    },
                );
            }
            Activation::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| hard_sigmoid(s, alpha, beta, x),
                );
            }
            Activation::HardSwish { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                map(
                    s,
                    values,
                    #[inline(always)]
                    |x| gate(s, x, hard_sigmoid(s, alpha, beta, x)),
                );
            }
            Activation::Abs => map(
                s,
                values,
                #[inline(always)]
                |x| s.abs(x),
            ),
            Activation::Neg => map(
                s,
                values,
                #[inline(always)]
                |x| s.mul(s.splat(-1.0), x),
            ),
        }
    }
}

struct Apply<'a> {
    activation: Activation,
    values: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.activation.apply_with(simd, self.values);
    }
}

/// Replaces each value by `eˣ`, within 2 ulp.
pub fn exponential(isa: Isa, values: &mut [f32]) {
    isa.run(Exponential(values));
}

struct Exponential<'a>(&'a mut [f32]);

impl Kernel for Exponential<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map(
            s,
            self.0,
            #[inline(always)]
            |x| exp(s, x),
        );
    }
}

/// Replaces each value by its error function, as precise as [`Activation::Gelu`]'s.
pub fn error_function(isa: Isa, values: &mut [f32]) {
    isa.run(ErrorFunction(values));
}

struct ErrorFunction<'a>(&'a mut [f32]);

impl Kernel for ErrorFunction<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map(
            s,
            self.0,
            #[inline(always)]
            |x| {
                // Near zero without the difference from one, which would leave no digits.
                let near = s.mul(x, polynomial(s, s.mul(x, x), NEAR_ERF));
                let far = s.with_sign(s.sub(s.splat(1.0), far_erfc(s, s.abs(x))), x);
                s.select(s.nan(x), x, s.select(s.lt(s.abs(x), s.splat(1.0)), near, far))
            },
        );
    }
}

/// Maps `f` over all values, whole vectors at a time.
#[inline(always)]
fn map<S: Simd>(s: S, values: &mut [f32], f: impl Fn(S::V) -> S::V) {
    let mut at = 0;
    while at < values.len() {
        let lanes = (values.len() - at).min(S::LANES);
        let p = values.as_mut_ptr().wrapping_add(at);
        // SAFETY: so many lanes are left in the slice.
        unsafe {
            if lanes == S::LANES {
                s.store(p, f(s.load(p)));
            } else {
                s.store_first(lanes, p, f(s.load_masked(s.mask(first(lanes)), p)));
            }
        }
        at += S::LANES;
    }
}

/// Gated value `x · weight`; zero rather than NaN for an infinite `x` of weight zero.
#[inline(always)]
fn gate<S: Simd>(s: S, x: S::V, weight: S::V) -> S::V {
    let some = s.lt(s.splat(0.0), weight);
    // A NaN weight comes from a NaN `x`.
    let nan = s.nan(weight);
    let product = s.mul(x, weight);
    s.select(nan, weight, s.select(some, product, s.splat(0.0)))
}

#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, alpha: S::V, beta: S::V, x: S::V) -> S::V {
    s.min(s.splat(1.0), s.max(s.splat(0.0), s.fma(alpha, x, beta)))
}

/// `c[0] + c[1]·x + …` by Horner's rule.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[N - 1]);
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = s.fma(sum, x, s.splat(c[i]));
    }
    sum
}

/// The integer n and remainder r of x = n·ln 2 + r with |r| ≤ ln 2 / 2; ln 2 is subtracted in two parts, the first short
/// enough that its multiples are exact.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    (n, s.fma(n, s.splat(2.121_944_4e-4), r))
}

/// `(eʳ - 1 - r) / r²` for |r| ≤ ln 2 / 2: the next term of the series is below 10⁻⁸ of eʳ.
#[inline(always)]
fn exp_tail<S: Simd>(s: S, r: S::V) -> S::V {
    polynomial(s, r, [1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0])
}

/// `eˣ`, within 2 ulp.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // Beyond these the result is infinite or zero; `x` second keeps NaN.
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.5), x));
    let (n, r) = reduce(s, x);
    let p = s.add(s.fma(s.mul(r, r), exp_tail(s, r), r), s.splat(1.0));
    // Two factors, as 2ⁿ itself may be out of range.
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(p, s.exp2i(half)), s.exp2i(s.sub(n, half)))
}

/// `eˣ - 1` for x ≤ 64, within 3 ulp.
#[inline(always)]
fn expm1<S: Simd>(s: S, x: S::V) -> S::V {
    let x = s.max(s.splat(-40.0), x);
    let (n, r) = reduce(s, x);
    let p = s.fma(s.mul(r, r), exp_tail(s, r), r);
    // 2ⁿ·(1 + p) - 1
    let scale = s.exp2i(n);
    s.fma(scale, p, s.sub(scale, s.splat(1.0)))
}

#[inline(always)]
fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    // e^-|x| never overflows, and the quotient keeps its precision on both sides.
    let e = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let top = s.select(s.lt(x, s.splat(0.0)), e, s.splat(1.0));
    s.div(top, s.add(s.splat(1.0), e))
}

#[inline(always)]
fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // Past 15 the result rounds to one.
    let e = expm1(s, s.min(s.splat(30.0), s.mul(s.splat(2.0), s.abs(x))));
    s.with_sign(s.div(e, s.add(e, s.splat(2.0))), x)
}

/// `ln(1 + t)` for t from 0 to 1: 2·artanh(z) with z = t / (2 + t) ≤ 1/3, whose series' next term is below 10⁻⁸ of it.
#[inline(always)]
fn log1p_unit<S: Simd>(s: S, t: S::V) -> S::V {
    let z = s.div(t, s.add(t, s.splat(2.0)));
    let c = [1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0];
    let square = s.mul(z, z);
    let tail = s.mul(square, polynomial(s, square, c));
    let z2 = s.add(z, z);
    s.fma(z2, tail, z2)
}

/// `1 - erf x`, within 2⁻²³ absolutely.
///
/// Up to 1 an odd polynomial fitted to erf, from there to 4.2 the exponential of one fitted to ln erfc (in x - 2), both by
/// least squares on Chebyshev nodes; further out erfc is below 3·10⁻⁹ and taken as zero.
#[inline(always)]
fn erfc<S: Simd>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    let inner = s.sub(s.splat(1.0), s.mul(x, polynomial(s, s.mul(x, x), NEAR_ERF)));
    let tail = far_erfc(s, magnitude);
    let outer = s.select(s.lt(x, s.splat(0.0)), s.sub(s.splat(2.0), tail), tail);
    s.select(s.lt(magnitude, s.splat(1.0)), inner, outer)
}

/// `erf(x) / x` in powers of x² up to 1.
const NEAR_ERF: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_97,
    -0.026_854_329,
    0.005_189_312,
    -0.000_801_885_5,
    7.882_497e-5,
];

/// `erfc` of a magnitude from 1 on.
#[inline(always)]
fn far_erfc<S: Simd>(s: S, magnitude: S::V) -> S::V {
    let far = [
        -5.364_941,
        -4.418_161,
        -0.923_750_76,
        -0.016_464_716,
        0.003_570_590_6,
        -0.000_733_428_6,
        0.000_135_570_55,
        -1.980_544_2e-5,
        1.578_701_4e-6,
    ];
    let clamped = s.min(s.splat(4.2), magnitude);
    let tail = exp(s, polynomial(s, s.sub(clamped, s.splat(2.0)), far));
    s.select(s.lt(s.splat(4.2), magnitude), s.splat(0.0), tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// erf in f64: its series near zero, the continued fraction of erfc further out.
    fn erf(x: f64) -> f64 {
        if x.abs() < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / n as f64;
                sum += term / (2 * n + 1) as f64;
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        } else {
            let fraction = (1..200).rev().fold(0.0, |f, n| n as f64 / 2.0 / (x.abs() + f));
            let erfc = (-x * x).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt();
            (1.0 - erfc).copysign(x)
        }
    }

    fn sigmoid64(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn exact(activation: Activation, value: f32) -> f64 {
        let x = f64::from(value);
        match activation {
            Activation::Identity => x,
            Activation::Relu { lower_clip, upper_clip, slope } => {
                let (low, high) = (f64::from(lower_clip), f64::from(upper_clip));
                // A slope of zero is flat even at -∞.
                let below = if slope == 0.0 { low } else { low + f64::from(slope) * (x - low) };
                (if x <= low { below } else { x }).min(high)
            }
            Activation::Sigmoid => sigmoid64(x),
            Activation::Tanh => x.tanh(),
            Activation::Swish { beta } => x * sigmoid64(f64::from(beta * value)),
            Activation::Gelu => x * 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Activation::GeluTanh => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::Elu { alpha } => {
                if x <= 0.0 {
                    f64::from(alpha) * x.exp_m1()
                } else {
                    x
                }
            }
            Activation::Softplus { beta } => {
                let t = f64::from(beta * value);
                (t.max(0.0) + (-t.abs()).exp().ln_1p()) / f64::from(beta)
            }
            Activation::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
            Activation::HardSwish { alpha, beta } => x * (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
            Activation::Abs => x.abs(),
            Activation::Neg => -x,
        }
    }

    fn ulp(value: f64) -> f64 {
        let v = (value.abs() as f32).max(f32::MIN_POSITIVE);
        f64::from(f32::from_bits(v.to_bits() + 1)) - f64::from(v)
    }

    const RELU6: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: 6.0, slope: 0.0 };
    const LEAKY: Activation = Activation::Relu { lower_clip: -0.5, upper_clip: 3.0, slope: 0.25 };

    /// (activation, bound in ulp of the result, bound relative to |x|)
    const CASES: &[(Activation, f64, f64)] = &[
        (Activation::Identity, 0.0, 0.0),
        (Activation::RELU, 0.0, 0.0),
        (RELU6, 0.0, 0.0),
        // The sum may cancel: its parts are about |x|.
        (LEAKY, 1.0, 1.2e-7),
        (Activation::Sigmoid, 4.0, 0.0),
        (Activation::Tanh, 6.0, 0.0),
        (Activation::Swish { beta: 1.0 }, 6.0, 0.0),
        (Activation::Swish { beta: 1.7 }, 6.0, 0.0),
        (Activation::Gelu, 0.0, 2.4e-7),
        (Activation::GeluTanh, 0.0, 2.4e-7),
        (Activation::Elu { alpha: 1.0 }, 4.0, 0.0),
        (Activation::Elu { alpha: 0.3 }, 4.0, 0.0),
        (Activation::Softplus { beta: 1.0 }, 6.0, 0.0),
        (Activation::Softplus { beta: 4.0 }, 6.0, 0.0),
        // One rounding of a sum of parts up to |x| and 1, without fma two.
        (Activation::HardSigmoid { alpha: 0.2, beta: 0.5 }, 4.0, 6e-8),
        (Activation::HardSwish { alpha: 1.0 / 6.0, beta: 0.5 }, 4.0, 6e-7),
        (Activation::Abs, 0.0, 0.0),
        (Activation::Neg, 0.0, 0.0),
    ];

    fn samples() -> Vec<f32> {
        let mut values: Vec<f32> = (-20_000..=20_000).map(|i| i as f32 * 0.005_01).collect();
        let mut x = 1e-30f32;
        while x < 1e30 {
            values.extend([x, -x]);
            x *= 1.0173;
        }
        values
    }

    #[test]
    fn errors_stay_within_the_stated_bounds() {
        let from = samples();
        for isa in Isa::available() {
            for (activation, ulps, relative) in CASES {
                let mut got = from.clone();
                activation.apply(isa, &mut got);
                for (x, got) in from.iter().zip(&got) {
                    let want = exact(*activation, *x);
                    let bound = ulps * ulp(want) + relative * f64::from(x.abs()) + f64::from(f32::MIN_POSITIVE);
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error <= bound,
                        "{isa} {activation:?}({x:e}): {got:e} for {want:e}, {} ulp",
                        error / ulp(want)
                    );
                }
            }
        }
    }

    #[test]
    fn error_functions_stay_within_four_units() {
        let values = samples();
        for isa in Isa::available() {
            let mut got = values.clone();
            error_function(isa, &mut got);
            for (x, got) in values.iter().zip(got) {
                let want = erf(f64::from(*x));
                // Products of numbers below the normal ones may be rounded to zero.
                let bound = 4.0 * ulp(want) + f64::from(f32::MIN_POSITIVE);
                let error = (f64::from(got) - want).abs();
                assert!(error <= bound, "{isa} erf({x:e}): {got:e} for {want:e}, {} ulp", error / ulp(want));
            }
            let mut limits = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            error_function(isa, &mut limits);
            assert!(limits[0].is_nan() && limits[1..] == [1.0, -1.0, 0.0, -0.0], "{isa} {limits:?}");
        }
    }

    #[test]
    fn exponentials_stay_within_two_units() {
        let values = samples();
        for isa in Isa::available() {
            let mut got = values.clone();
            exponential(isa, &mut got);
            for (x, got) in values.iter().zip(got) {
                let want = f64::from(*x).exp();
                if want > f64::from(f32::MAX) {
                    assert_eq!(got, f32::INFINITY, "{isa} e^{x:e}");
                    continue;
                }
                let error = (f64::from(got) - want).abs();
                assert!(error <= 2.0 * ulp(want), "{isa} e^{x:e}: {got:e} for {want:e}, {} ulp", error / ulp(want));
            }
            let mut limits = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            exponential(isa, &mut limits);
            assert!(limits[0].is_nan() && limits[1..] == [f32::INFINITY, 0.0, 1.0, 1.0], "{isa}: {limits:?}");
        }
    }

    #[test]
    fn nan_stays_and_infinities_have_their_limits() {
        for isa in Isa::available() {
            for (activation, ..) in CASES {
                let mut values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
                activation.apply(isa, &mut values);
                assert!(values[0].is_nan() && values[3].is_nan(), "{isa} {activation:?} of NaN: {values:?}");
                let limit = |x: f32| match exact(*activation, x) {
                    // 0 · ∞: x falls slower than its weight.
                    limit if limit.is_nan() => 0.0,
                    limit => limit as f32,
                };
                assert_eq!(values[1], limit(f32::INFINITY), "{isa} {activation:?} of ∞");
                assert_eq!(values[2], limit(f32::NEG_INFINITY), "{isa} {activation:?} of -∞");
            }
        }
    }

    #[test]
    fn a_value_does_not_depend_on_its_place() {
        for isa in Isa::available() {
            for (activation, ..) in CASES {
                for len in 0..40 {
                    let from: Vec<f32> = (0..len).map(|i| i as f32 * 0.37 - 5.0).collect();
                    let mut got = from.clone();
                    activation.apply(isa, &mut got);
                    for (x, got) in from.iter().zip(&got) {
                        let mut one = [*x];
                        activation.apply(isa, &mut one);
                        assert_eq!(one[0].to_bits(), got.to_bits(), "{isa} {activation:?}({x}) among {len}");
                    }
                }
            }
        }
    }
}
