//! Arithmetics against Rust's operators, and whole numbers against `i128`.

use super::*;

/// Whole numbers at which an arithmetic changes: around zero and at the ends of the range.
const WHOLES: [i64; 14] =
    [i64::MIN, i64::MIN + 1, -(1 << 62), -1000, -7, -2, -1, 0, 1, 2, 7, 1 << 62, i64::MAX - 1, i64::MAX];

/// A result that is out of range is the end of the range that it went past.
fn clamped(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Sums, differences, products and quotients are those of numbers without bounds, brought back into range.
#[test]
fn whole_numbers_saturate() {
    for x in WHOLES {
        let (a, wide) = (Whole(x), i128::from(x));
        assert_eq!(i64::from(-a), clamped(-wide), "-{x}");
        assert_eq!(i64::from(Number::abs(a)), clamped(wide.abs()), "|{x}|");
        for y in WHOLES {
            let (b, other) = (Whole::from(y), i128::from(y));
            assert_eq!(i64::from(a + b), clamped(wide + other), "{x} + {y}");
            assert_eq!(i64::from(a - b), clamped(wide - other), "{x} - {y}");
            assert_eq!(i64::from(a * b), clamped(wide * other), "{x} · {y}");
            // Where there is no quotient, it is the limit of ever smaller divisors.
            let quotient = if y == 0 { wide.signum() << 64 } else { wide / other };
            assert_eq!(i64::from(a / b), clamped(quotient), "{x} / {y}");
        }
    }
}

/// Comparisons are the operators', and a truth is 1 or 0.
fn assert_compares<N: Number<Truth = bool> + PartialOrd + std::fmt::Debug>(numbers: &[N]) {
    for &x in numbers {
        for &y in numbers {
            for (name, got, want) in [
                ("equal", x.equal(y), x == y),
                ("unequal", x.unequal(y), x != y),
                ("less", x.less(y), x < y),
                ("at most", x.at_most(y), x <= y),
            ] {
                assert_eq!(got, want, "{x:?} {name} {y:?}");
                assert_eq!(N::truth(got), if want { N::ONE } else { N::ZERO }, "{x:?} {name} {y:?}");
            }
        }
    }
}

/// A NaN is unequal to all and neither less nor more, in every arithmetic that has one.
#[test]
fn comparisons_are_those_of_the_numbers() {
    let wide = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, 2.0, f64::INFINITY, f64::NAN];
    assert_compares(&wide);
    assert_compares(&wide.map(|x| x as f32));
    assert_compares(&WHOLES.map(Whole));
}

/// The larger and the smaller of two numbers: of one that is NaN and another both are NaN, and of equal zeros it is the
/// second one, whatever their signs.
#[test]
fn extremes_keep_nan() {
    let extremes = |x: f64, y: f64| (x.max(y), Number::max(x, y), x.min(y), Number::min(x, y));
    for (x, y) in [(1.0, 2.0), (2.0, 1.0), (-3.0, -3.0), (f64::NEG_INFINITY, 5.0), (f64::INFINITY, 5.0), (-0.5, 0.0)] {
        let (greatest, max, least, min) = extremes(x, y);
        assert_eq!((max, min), (greatest, least), "{x}, {y}");
        let (x, y) = (x as f32, y as f32);
        assert_eq!((Number::max(x, y), Number::min(x, y)), (greatest as f32, least as f32), "{x}, {y} in f32");
    }
    for other in [f64::NEG_INFINITY, 0.0, 1.0, f64::INFINITY, f64::NAN] {
        for (x, y) in [(f64::NAN, other), (other, f64::NAN)] {
            assert!(Number::max(x, y).is_nan() && Number::min(x, y).is_nan(), "{x}, {y}");
            let (x, y) = (x as f32, y as f32);
            assert!(Number::max(x, y).is_nan() && Number::min(x, y).is_nan(), "{x}, {y} in f32");
        }
    }
    for (x, y) in [(0.0, -0.0), (-0.0, 0.0)] {
        let signs = [Number::max(x, y), Number::min(x, y)].map(|zero: f64| zero.is_sign_negative());
        assert_eq!(signs, [y.is_sign_negative(); 2], "{x}, {y}");
    }
    for x in WHOLES {
        for y in WHOLES {
            assert_eq!(i64::from(Number::max(Whole(x), Whole(y))), x.max(y));
            assert_eq!(i64::from(Number::min(Whole(x), Whole(y))), x.min(y));
        }
    }
}

/// A choice is one of its two numbers, and computes the second one only where it is taken.
#[test]
fn choices_compute_what_they_take() {
    fn choices<N: Number<Truth = bool> + PartialEq + std::fmt::Debug>(yes: N, no: N) {
        assert_eq!((N::select(true, yes, no), N::select(false, yes, no)), (yes, no));
        assert_eq!(N::select_or(false, yes, || no), no);
        assert_eq!(N::select_or(true, yes, || panic!("this number is not taken")), yes);
    }
    choices(1.0f32, 2.0);
    choices(1.0f64, 2.0);
    choices(Whole(1), Whole(2));
}

/// Constants and scalars are the nearest numbers that an arithmetic has.
#[test]
fn constants_are_the_nearest_numbers() {
    assert_eq!(f64::constant(0.1), 0.1);
    assert_eq!(f32::constant(0.1), 0.1);
    assert_eq!(Whole::constant(-3.0), Whole(-3));
    assert_eq!((f64::scalar(0, 0.1), f32::scalar(0, 0.1)), (f64::from(0.1f32), 0.1));
    assert_eq!(Whole::scalar(5, 7.0), Whole(7));
}
