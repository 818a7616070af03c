//! Every mode against its [`definition`]; limits and precision where the plain formulas have neither.

use std::f64::consts::PI;

use super::*;
use crate::ops::pointwise::testing::{LIMITS, PARAMETERS, definition, forward_of, whole_definition};
use PointwiseMode::*;

/// Scalars of ReLUs with each of their special cases: the plain one, clipped at 6, leaky, flat up to a clip.
const RELUS: [Parameters; 4] =
    [relu(0.0, f32::INFINITY, 0.0), relu(0.0, 6.0, 0.0), relu(0.0, f32::INFINITY, 0.125), relu(1.0, 3.0, 0.0)];

const fn relu(relu_lower_clip: f32, relu_upper_clip: f32, relu_lower_clip_slope: f32) -> Parameters {
    Parameters { relu_lower_clip, relu_upper_clip, relu_lower_clip_slope, ..PARAMETERS }
}

/// Result of a mode in `f32`.
fn narrow(mode: PointwiseMode, p: &Parameters, operands: [f64; 3]) -> f64 {
    let operands = operands.map(|x| x as f32);
    apply(mode, p, &operands[..]).unwrap_or_else(|| panic!("{mode} is not computed in f32")).into()
}

/// Result of a mode in `f64`.
fn wide(mode: PointwiseMode, p: &Parameters, operands: [f64; 3]) -> f64 {
    apply(mode, p, &operands[..]).unwrap_or_else(|| panic!("{mode} is not computed in f64"))
}

/// Operands of all modes, exact in `f32`: some 80 values around zero, none on a kink of a function nor next to one
/// (where slopes are a matter of definition), against others of either sign.
fn operands() -> impl Iterator<Item = [f64; 3]> {
    let x = |i: i32| f64::from(i) * 37.0 / 256.0 + 1.0 / 512.0;
    (-40..=40).map(move |i| [x(i), x(-i) * 0.5 + 0.125, f64::from(i % 2)])
}

/// Holds the results of a mode in `f32` and `f64` against its definition.
fn assert_is_its_definition(mode: PointwiseMode, p: &Parameters) {
    for operands in operands() {
        let want = definition(mode, p, operands);
        // A few roundings, of half a unit in the last place each, of values that are no larger than these. The
        // definitions of backward modes are differences: h⁴/30 times the fifth derivative, and 18/12h times the
        // function's roundings.
        let scale = operands.iter().fold(want.abs().max(1.0), |most, x| most.max(x.abs()));
        let difference = if forward_of(mode).is_some() { 1e-11 * scale } else { 0.0 };
        for (arithmetic, got, epsilon) in [
            ("f32", narrow(mode, p, operands), f64::from(f32::EPSILON)),
            ("f64", wide(mode, p, operands), f64::EPSILON),
        ] {
            let bound = 16.0 * epsilon * scale + difference;
            let same = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= bound;
            assert!(same, "{mode} in {arithmetic} of {operands:?}, {p:?}: expected {want} within {bound:e}, got {got}");
        }
    }
}

#[test]
fn every_mode_computes_its_definition() {
    for &mode in PointwiseMode::ALL {
        if matches!(mode, Unset | GenIndex) {
            assert_eq!(apply::<f32, _>(mode, &PARAMETERS, &[1.0; 3][..]), None, "{mode} is no function");
        } else {
            assert_is_its_definition(mode, &PARAMETERS);
            assert_is_its_definition(mode, &Parameters::default());
        }
    }
}

/// The slope, the clips, and their absence are one function each.
#[test]
fn every_relu_computes_its_definition() {
    for p in RELUS {
        assert_is_its_definition(ReluFwd, &p);
        assert_is_its_definition(ReluBwd, &p);
    }
}

/// On a kink, where there is no slope, a gradient is the one from below, as frameworks have it for `max(x, 0)`.
#[test]
fn kinks_have_the_slope_from_below() {
    for (mode, p, x, slope) in [
        (ReluBwd, Parameters::default(), 0.0, 0.0),
        (ReluBwd, PARAMETERS, -0.5, 0.25),
        (ReluBwd, PARAMETERS, 2.0, 1.0),
        (EluBwd, PARAMETERS, 0.0, 0.75),
    ] {
        let got = [narrow(mode, &p, [x, 3.0, 0.0]), wide(mode, &p, [x, 3.0, 0.0])];
        assert_eq!(got, [slope * 3.0; 2], "{mode} of {x}");
    }
}

/// Whole numbers are computed as such: what `f64` would round is exact, and what is out of range is the end of the
/// range.
#[test]
fn whole_numbers_are_exact() {
    let numbers =
        [i64::MIN, i64::MIN + 1, -(1 << 53) - 1, -7, -2, -1, 0, 1, 2, 7, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
    let p = Parameters::default();
    for &mode in PointwiseMode::ALL.iter().filter(|mode| whole_definition(**mode, [1; 3]).is_some()) {
        for (x, y) in numbers.into_iter().flat_map(|x| numbers.map(|y| (x, y))) {
            for z in [-3, 0, 1] {
                let want = whole_definition(mode, [x, y, z]).expect("as of other numbers");
                let want = want.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                let got = apply_whole(mode, &p, &[x, y, z].map(Whole)[..]);
                let got = got.unwrap_or_else(|| panic!("{mode} is not computed in whole numbers"));
                assert_eq!(i64::from(got), want, "{mode} of {x}, {y}, {z}");
            }
        }
    }
}

/// Only modes that have a definition there are defined on whole numbers, a ReLU only where it has no scalars, which are
/// fractions; and only where every result is whole, `i64` may stand for an arithmetic of fractions.
#[test]
fn modes_of_whole_numbers_are_known() {
    let p = Parameters::default();
    let halves = |mode| (-9..=9).any(|x| definition(mode, &p, [f64::from(x), 2.0, 0.0]).fract() != 0.0);
    for &mode in PointwiseMode::ALL {
        let is_defined = whole_definition(mode, [1; 3]).is_some();
        assert_eq!(is_whole(mode, &p), is_defined, "{mode}");
        assert_eq!(keeps_whole(mode, &p), is_defined && !halves(mode), "{mode}");
    }
    for p in RELUS {
        assert_eq!((is_whole(ReluFwd, &p), keeps_whole(ReluFwd, &p)), (p.is_plain_relu(), p.is_plain_relu()), "{p:?}");
    }
    assert!(is_whole(Add, &PARAMETERS), "scalars of other functions do not matter");
}

/// A function has its limits at infinities, its slope too, and is as good where e^x is out of range.
#[test]
fn functions_have_their_limits() {
    let (inf, p) = (f64::INFINITY, Parameters::default());
    for &mode in
        PointwiseMode::ALL.iter().filter(|mode| mode.json_name().ends_with("_fwd") || forward_of(**mode).is_some())
    {
        assert!(LIMITS.iter().any(|(known, ..)| *known == mode), "{mode} has no limits");
    }
    for &(mode, below, above) in LIMITS {
        for far in [1e3, 1e20, inf] {
            for (x, want) in [(-far, below), (far, above)] {
                let want = if want == inf && mode != Exp { x } else { want };
                for got in [narrow(mode, &p, [x, 1.0, 0.0]), wide(mode, &p, [x, 1.0, 0.0])] {
                    let bound = 2.0 * f64::from(f32::EPSILON) * want.abs();
                    assert!(got == want || (got - want).abs() <= bound, "{mode} of {x}: expected {want}, got {got}");
                }
            }
        }
    }
    assert_eq!(narrow(ReluFwd, &RELUS[2], [-inf, 0.0, 0.0]), -inf, "a leaky one");
    assert_eq!(narrow(ReluFwd, &RELUS[3], [-inf, 0.0, 0.0]), 1.0, "a flat one");
    assert_eq!(narrow(ReluFwd, &RELUS[3], [inf, 0.0, 0.0]), 3.0, "a clipped one");
}

/// Results that are small next to what they are the difference of keep their relative precision: leading terms of the
/// functions' series at zero and far out.
#[test]
fn small_results_are_precise() {
    let p = Parameters::default();
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
    // Mills' ratio: Φ(x) ≈ φ(x)/|x| · (1 - 1/x² + 3/x⁴ - 15/x⁶ + 105/x⁸) for x far below zero.
    let mills = |x: f64| 1.0 - x.powi(-2) + 3.0 * x.powi(-4) - 15.0 * x.powi(-6) + 105.0 * x.powi(-8);
    for (mode, x, want) in [
        (SigmoidFwd, -40.0, (-40f64).exp()),
        (SigmoidBwd, -40.0, (-40f64).exp()),
        (SigmoidBwd, 40.0, (-40f64).exp()),
        (TanhFwd, 1e-9, 1e-9),
        (TanhBwd, 20.0, 4.0 * (-40f64).exp()),
        (EluFwd, -1e-9, -1e-9),
        (EluBwd, -40.0, (-40f64).exp()),
        (SoftplusFwd, -40.0, (-40f64).exp()),
        (SoftplusBwd, -40.0, (-40f64).exp()),
        (SwishFwd, -40.0, -40.0 * (-40f64).exp()),
        (SwishBwd, -40.0, -39.0 * (-40f64).exp()),
        (GeluFwd, -9.0, -density(9.0) * mills(9.0)),
        (GeluBwd, -9.0, density(9.0) * (mills(9.0) / 9.0 - 9.0)),
    ] {
        // Rounding of the argument of an exponential, 40 at most, is multiplied by that; the series of Mills' ratio
        // ends at 945/x¹⁰, which is 3e-7.
        for (got, bound) in [(narrow(mode, &p, [x, 1.0, 0.0]), 1e-5), (wide(mode, &p, [x, 1.0, 0.0]), 4e-7)] {
            assert!((got / want - 1.0).abs() <= bound, "{mode} of {x}: expected {want:e}, got {got:e}");
        }
    }
}

/// NaN stays NaN, but for functions whose result is a truth, for which it is unequal to all numbers, 0 too; a gradient
/// of what is piecewise linear is the second operand's.
#[test]
fn nan_stays_nan() {
    let truths = [
        (CmpEq, 0.0),
        (CmpNeq, 1.0),
        (CmpGt, 0.0),
        (CmpGe, 0.0),
        (CmpLt, 0.0),
        (CmpLe, 0.0),
        (LogicalNot, 0.0),
        (LogicalAnd, 1.0),
        (LogicalOr, 1.0),
    ];
    for p in [Parameters::default(), PARAMETERS] {
        for &mode in PointwiseMode::ALL {
            if matches!(mode, Unset | GenIndex) {
                continue;
            }
            let truth = truths.iter().find(|(truth, _)| *truth == mode).map(|(_, want)| *want);
            let places = if mode.operands() == 1 { &[0][..] } else { &[0, 1] };
            for &place in places {
                let mut operands = [1.0; 3];
                operands[place] = f64::NAN;
                if (mode, place) == (BinarySelect, 1) {
                    operands[2] = 0.0;
                }
                for got in [narrow(mode, &p, operands), wide(mode, &p, operands)] {
                    match truth {
                        Some(want) => assert_eq!(got, want, "{mode} of {operands:?}"),
                        None if (mode, place) == (ReluBwd, 0) => assert_eq!(got, 1.0, "{mode} of {operands:?}"),
                        None => assert!(got.is_nan(), "{mode} of {operands:?}: expected NaN, got {got}"),
                    }
                }
            }
        }
    }
    let operands = [1.0, 2.0, f64::NAN];
    let chosen = [narrow(BinarySelect, &PARAMETERS, operands), wide(BinarySelect, &PARAMETERS, operands)];
    assert_eq!(chosen, [1.0; 2], "a predicate that is NaN is not 0");
}
