//! Arithmetics that pointwise modes are defined over: numbers of the machine here, text of kernels in the kernel compiler.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

/// Numbers of any kind, whole ones too, which saturate.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// Results of comparisons.
    type Truth: Copy + BitAnd<Output = Self::Truth> + BitOr<Output = Self::Truth>;

    /// Number 0.
    const ZERO: Self;

    /// Number 1.
    const ONE: Self;

    /// Constant of a function; integral where it is one of whole numbers.
    fn constant(value: f64) -> Self;

    /// Scalar of a node, the one of that place among its [`Parameters`](super::Parameters).
    fn scalar(place: usize, value: f32) -> Self;

    /// `|self|`.
    fn abs(self) -> Self;

    /// `self = other`; false for NaN.
    fn equal(self, other: Self) -> Self::Truth;

    /// `self ≠ other`; true for NaN.
    fn unequal(self, other: Self) -> Self::Truth;

    /// `self < other`; false for NaN.
    fn less(self, other: Self) -> Self::Truth;

    /// `self ≤ other`; false for NaN.
    fn at_most(self, other: Self) -> Self::Truth;

    /// First number where the condition holds, else the second one.
    fn select(holds: Self::Truth, yes: Self, no: Self) -> Self;

    /// Variant of [`Number::select`] that may spare itself the second number.
    #[inline(always)]
    fn select_or(holds: Self::Truth, yes: Self, no: impl FnOnce() -> Self) -> Self {
        Self::select(holds, yes, no())
    }

    /// 1 where the condition holds, else 0.
    #[inline(always)]
    fn truth(holds: Self::Truth) -> Self {
        Self::select(holds, Self::ONE, Self::ZERO)
    }

    /// Larger number, NaN if one is, the other one of equal zeros.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::select(other.less(self) | self.unequal(self), self, other)
    }

    /// Smaller number, NaN if one is, the other one of equal zeros.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self::select(self.less(other) | self.unequal(self), self, other)
    }
}

/// Floating-point numbers. Functions keep NaN and have their limits at infinities.
pub trait Real: Number {
    /// `self · factor + term`, with one rounding where that costs nothing.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// Next integer that is not below.
    fn ceil(self) -> Self;
    /// Next integer that is not above.
    fn floor(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `eˣ`.
    fn exp(self) -> Self;
    /// `eˣ - 1`, to the last digits near zero.
    fn exp_m1(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// `ln (1 + x)`, to the last digits near zero.
    fn ln_1p(self) -> Self;
    /// Sine.
    fn sin(self) -> Self;
    /// Tangent.
    fn tan(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Error function.
    fn erf(self) -> Self;
    /// `1 - erf x`, to the last digits far out.
    fn erfc(self) -> Self;
}

macro_rules! number {
    ($number:ty: $zero:expr, $one:expr, $constant:expr, $abs:expr, $($compare:ident $operator:tt)*) => {
        impl Number for $number {
            type Truth = bool;
            const ZERO: $number = $zero;
            const ONE: $number = $one;

            #[inline(always)]
            fn constant(value: f64) -> $number {
                $constant(value)
            }

            #[inline(always)]
            fn scalar(_: usize, value: f32) -> $number {
                $constant(value.into())
            }

            #[inline(always)]
            fn abs(self) -> $number {
                $abs(self)
            }

            $(#[inline(always)]
            fn $compare(self, other: $number) -> bool {
                self $operator other
            })*

            #[inline(always)]
            fn select(holds: bool, yes: $number, no: $number) -> $number {
                if holds { yes } else { no }
            }

            #[inline(always)]
            fn select_or(holds: bool, yes: $number, no: impl FnOnce() -> $number) -> $number {
                if holds { yes } else { no() }
            }
        }
    };
}

number!(f32: 0.0, 1.0, |value: f64| value as f32, f32::abs, equal == unequal != less < at_most <=);
number!(f64: 0.0, 1.0, |value: f64| value, f64::abs, equal == unequal != less < at_most <=);
number!(Whole: Whole(0), Whole(1), |value: f64| Whole(value as i64), |x: Whole| Whole(x.0.saturating_abs()),
    equal == unequal != less < at_most <=);

macro_rules! real {
    ($float:ident: $($function:ident = $of:path),*) => {
        impl Real for $float {
            // Not fused: an instruction set without that would call a function for it.
            #[inline(always)]
            fn mul_add(self, factor: $float, term: $float) -> $float {
                self * factor + term
            }

            $(#[inline(always)]
            fn $function(self) -> $float {
                $of(self)
            })*
        }
    };
}

real!(f32: ceil = f32::ceil, floor = f32::floor, sqrt = f32::sqrt, exp = f32::exp, exp_m1 = f32::exp_m1, ln = f32::ln,
    ln_1p = f32::ln_1p, sin = f32::sin, tan = f32::tan, tanh = f32::tanh, erf = libm::erff, erfc = libm::erfcf);
real!(f64: ceil = f64::ceil, floor = f64::floor, sqrt = f64::sqrt, exp = f64::exp, exp_m1 = f64::exp_m1, ln = f64::ln,
    ln_1p = f64::ln_1p, sin = f64::sin, tan = f64::tan, tanh = f64::tanh, erf = libm::erf, erfc = libm::erfc);

/// Whole number: results out of range become the nearest number within, quotients are truncated, and a division by zero
/// gives the largest number of the dividend's sign, or 0 for 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Whole(pub i64);

impl From<i64> for Whole {
    #[inline(always)]
    fn from(value: i64) -> Whole {
        Whole(value)
    }
}

impl From<Whole> for i64 {
    #[inline(always)]
    fn from(value: Whole) -> i64 {
        value.0
    }
}

macro_rules! saturating {
    ($($operator:ident, $function:ident = $of:expr;)*) => {$(
        impl $operator for Whole {
            type Output = Whole;
            #[inline(always)]
            fn $function(self, other: Whole) -> Whole {
                Whole($of(self.0, other.0))
            }
        }
    )*};
}

saturating! {
    Add, add = i64::saturating_add;
    Sub, sub = i64::saturating_sub;
    Mul, mul = i64::saturating_mul;
    Div, div = |x: i64, y: i64| match (y, x) {
        (0, 0) => 0,
        (0, x) if x > 0 => i64::MAX,
        (0, _) => i64::MIN,
        _ => x.saturating_div(y),
    };
}

impl Neg for Whole {
    type Output = Whole;
    #[inline(always)]
    fn neg(self) -> Whole {
        Whole(self.0.saturating_neg())
    }
}

#[cfg(test)]
mod tests;
