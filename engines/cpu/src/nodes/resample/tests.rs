//! Pooling and its gradient against loops in f64.

use hipdnn_engine_core::ops::pooling_cases::{Case, MODES, case};
use hipdnn_schemas::{DataType, Operation, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode, TensorDef};

use crate::nodes::testing::{Bench, noise, unit};
use DataType::{BFloat16, Double, Float, Fp8E4M3, Half, Int8, Int32, Int64};

const CASES: &[Case] = &[
    case("2 by 2", &[2, 3, 6, 8], &[2, 2], &[2, 2], [&[0, 0], &[0, 0]], false),
    case("padded", &[1, 5, 7, 9], &[3, 3], &[2, 2], [&[1, 1], &[1, 1]], false),
    case("overlapping", &[2, 2, 5, 6], &[3, 2], &[1, 1], [&[0, 1], &[2, 0]], false),
    case("gaps", &[1, 2, 9, 11], &[2, 1], &[3, 4], [&[0, 0], &[0, 0]], false),
    case("all", &[3, 130, 4, 5], &[4, 5], &[1, 1], [&[0, 0], &[0, 0]], false),
    case("a row", &[2, 3, 300], &[3], &[1], [&[2], &[1]], false),
    case("over the end", &[1, 2, 6, 7], &[3, 2], &[2, 2], [&[0, 0], &[0, 1]], true),
    case("three dimensions", &[1, 3, 4, 5, 6], &[2, 3, 2], &[1, 2, 2], [&[1, 0, 1], &[0, 2, 1]], false),
    case("one channel", &[2, 1, 5, 6], &[3, 3], &[2, 2], [&[1, 1], &[1, 1]], false),
    case("long rows", &[1, 2, 1100], &[3], &[2], [&[1], &[1]], false),
    case("long rows, far apart", &[1, 2, 2, 700], &[2, 5], &[1, 3], [&[0, 2], &[0, 1]], false),
    case("mostly padding", &[1, 2, 2, 3], &[2, 2], &[1, 1], [&[3, 2], &[2, 4]], false),
    case("rows of two, whole vectors", &[1, 2, 5, 70], &[2, 2], &[2, 2], [&[0, 0], &[0, 0]], false),
    case("rows of three, whole vectors", &[2, 1, 6, 67], &[3, 3], &[2, 2], [&[1, 1], &[1, 1]], false),
    case("two of three columns before", &[1, 1, 5, 64], &[2, 3], &[1, 2], [&[0, 2], &[1, 2]], false),
    case("same, 3 by 3", &[1, 3, 9, 21], &[3, 3], &[1, 1], [&[1, 1], &[1, 1]], false),
    case("same, 5 by 5", &[2, 1, 7, 19], &[5, 5], &[1, 1], [&[2, 2], &[2, 2]], false),
    case("same, 2 by 4", &[1, 2, 6, 33], &[2, 4], &[1, 1], [&[1, 1], &[0, 2]], false),
    case("same, 7 columns of 7", &[1, 2, 4, 7], &[3, 7], &[2, 1], [&[1, 3], &[1, 3]], false),
    case("same, three dimensions", &[1, 1, 3, 4, 17], &[3, 3, 3], &[1, 1, 1], [&[1, 1, 1], &[1, 1, 1]], false),
    case("same, more rows than are kept", &[1, 1, 20, 300], &[3, 3], &[1, 1], [&[1, 1], &[1, 1]], false),
];

fn forward(case: &Case, mode: (ResampleMode, PaddingMode)) -> ResampleFwd {
    case.forward(mode, mode.0 == ResampleMode::MaxPool)
}

fn backward(case: &Case, mode: (ResampleMode, PaddingMode)) -> ResampleBwd {
    case.backward(mode, mode.0 == ResampleMode::MaxPool)
}

/// Value, sum of magnitudes and index of a window of a channel.
fn pool(case: &Case, (mode, padding): (ResampleMode, PaddingMode), image: &[f64], at: &[usize]) -> (f64, f64, f64) {
    let taps = case.taps(at);
    let inside: Vec<usize> = taps.iter().flatten().copied().collect();
    if mode == ResampleMode::MaxPool {
        let candidates = taps.iter().filter_map(|tap| match tap {
            Some(place) => Some((image[*place], *place as f64)),
            None => (padding == PaddingMode::Zero).then_some((0.0, -1.0)),
        });
        let best = candidates.reduce(|best, other| if other.0 > best.0 { other } else { best });
        let (value, index) = best.unwrap_or((f64::NEG_INFINITY, -1.0));
        return (value, 0.0, index);
    }
    let count = if mode == ResampleMode::AvgPoolIncludePadding { taps.len() } else { inside.len().max(1) } as f64;
    let sum: f64 = inside.iter().map(|place| image[*place]).sum();
    (sum / count, inside.iter().map(|place| image[*place].abs()).sum::<f64>() / count, 0.0)
}

/// Layouts of (image, windows' results): true for channels last.
const LAYOUTS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

fn mixed(case: &Case, types: [DataType; 3], [x, y]: [bool; 2]) -> Vec<TensorDef> {
    [&case.tensors(types, x)[..1], &case.tensors(types, y)[1..]].concat()
}

#[test]
fn windows_are_what_loops_give() {
    for case in CASES {
        for (i, mode) in MODES.iter().enumerate() {
            for types in [
                [Float, Float, Int32],
                [Half, Half, Int64],
                [BFloat16, Float, Int32],
                [Double, Half, Int32],
                [Fp8E4M3, Float, Int32],
            ] {
                for (last, indexed) in LAYOUTS.iter().flat_map(|last| [(*last, false), (*last, true)]) {
                    let mut node = forward(case, *mode);
                    if !indexed {
                        (node.index, node.generate_index) = (None, None);
                    }
                    let mut bench = Bench::new(Operation::ResampleFwd(node), mixed(case, types, last));
                    // Few different values, so that there are equal ones.
                    let x = bench.fill(0, |n| (noise(n + i) * 8.0).round() / 8.0);
                    let channels = (case.x[0] * case.x[1]) as usize;
                    let image = x.len() / channels;
                    let windows = case.windows();
                    for threads in [1, 3] {
                        let got = bench.run(threads);
                        for channel in 0..channels {
                            for (w, at) in windows.iter().enumerate() {
                                let image = &x[channel * image..][..image];
                                let (value, magnitude, index) = pool(case, *mode, image, at);
                                let n = channel * windows.len() + w;
                                let what = format!("{} {mode:?} {types:?} {last:?} at {n}", case.what);
                                let (relative, least) = if types[1] == Double { (0.0, 0.0) } else { unit(types[1]) };
                                // Sums of n values and the product with the inverse of their number, then the rounding.
                                let single = types[0] == Float && types[1] == Float;
                                let one = if single { f64::from(f32::EPSILON) / 2.0 } else { f64::EPSILON };
                                let error = (2 + case.window.iter().product::<i64>()) as f64 * one * magnitude;
                                let bound = error + relative * (value.abs() + error) + least;
                                let same = got[&1][n] == value || (got[&1][n] - value).abs() <= bound;
                                assert!(same, "{what}: expected {value}, got {}", got[&1][n]);
                                if mode.0 == ResampleMode::MaxPool && indexed {
                                    assert_eq!(got[&2][n], index, "{what}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_are_what_loops_give() {
    for case in CASES {
        for mode in MODES {
            for types in [[Float, Float, Int32], [Half, BFloat16, Int64]] {
                for last in [false, true] {
                    let node = Operation::ResampleBwd(backward(case, mode));
                    let mut bench = Bench::new(node, case.tensors(types, last));
                    let dy = bench.fill(1, noise);
                    let channels = (case.x[0] * case.x[1]) as usize;
                    let image = case.x[2..].iter().product::<i64>() as usize;
                    let windows = case.windows();
                    // Any tap of the window, inside or not, as the forward pass would choose for some image.
                    let chosen = |n: usize| {
                        let taps = case.taps(&windows[n % windows.len()]);
                        taps[n * 7 % taps.len()]
                    };
                    if mode.0 == ResampleMode::MaxPool {
                        bench.fill(2, |n| chosen(n).map_or(-1.0, |place| place as f64));
                    }
                    let mut want = vec![(0.0, 0.0); channels * image];
                    for (n, gradient) in dy.iter().enumerate() {
                        let taps = case.taps(&windows[n % windows.len()]);
                        let inside: Vec<usize> = taps.iter().flatten().copied().collect();
                        let (places, divisor) = match mode.0 {
                            ResampleMode::MaxPool => (chosen(n).into_iter().collect(), 1),
                            ResampleMode::AvgPoolIncludePadding => (inside, taps.len()),
                            _ => (inside.clone(), inside.len()),
                        };
                        for place in places {
                            let to: &mut (f64, f64) = &mut want[n / windows.len() * image + place];
                            *to = (to.0 + gradient / divisor as f64, to.1 + gradient.abs() / divisor as f64);
                        }
                    }
                    for threads in [1, 3] {
                        for (n, (got, (value, magnitude))) in bench.run(threads)[&0].iter().zip(&want).enumerate() {
                            let (relative, least) = unit(types[0]);
                            let error = windows.len() as f64 * f64::EPSILON * magnitude;
                            let bound = error + relative * (value.abs() + error) + least;
                            let what = format!("{} {mode:?} {types:?} {last} at {n}", case.what);
                            assert!((got - value).abs() <= bound, "{what}: expected {value}, got {got}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn nan_is_the_greatest_and_minus_infinity_has_a_place() {
    let case =
        Case { what: "", x: &[1, 1, 1, 4], window: &[1, 2], stride: &[1, 2], pads: [&[0, 0], &[0, 0]], over: false };
    let node = Operation::ResampleFwd(forward(&case, MODES[0]));
    let mut bench = Bench::new(node, case.tensors([Float, Float, Int32], false));
    bench.fill(0, |n| [1.0, f64::NAN, f64::NEG_INFINITY, f64::NEG_INFINITY][n]);
    let got = bench.run(1);
    assert!(got[&1][0].is_nan() && got[&1][1] == f64::NEG_INFINITY, "{got:?}");
    assert_eq!(got[&2], [1.0, 2.0]);
    let node = ResampleFwd { index: None, generate_index: None, ..forward(&case, MODES[1]) };
    let mut bench = Bench::new(Operation::ResampleFwd(node), case.tensors([Half, Float, Int32], false));
    for (x, want) in [([1.0, f64::NAN, 2.0, -1.0], 2.0), ([f64::NAN, 1.0, -2.0, -1.0], -1.0)] {
        bench.fill(0, |n| x[n]);
        let got = bench.run(1);
        assert!(got[&1][0].is_nan() && got[&1][1] == want, "{got:?}");
    }
}

#[test]
fn nan_is_the_greatest_in_every_lane_and_no_other_window_has_it() {
    for case in CASES {
        for (mode, last) in MODES.iter().flat_map(|mode| LAYOUTS.map(|last| (*mode, last))) {
            let node = ResampleFwd { index: None, generate_index: None, ..forward(case, mode) };
            let mut bench = Bench::new(Operation::ResampleFwd(node), mixed(case, [Float, Float, Int32], last));
            let x = bench.fill(0, |n| match n % 11 {
                3 => f64::NAN,
                7 => f64::NEG_INFINITY,
                _ => -1.0 - noise(n).abs(),
            });
            let (got, windows) = (bench.run(1), case.windows());
            let image = case.places() as usize;
            for (n, got) in got[&1].iter().enumerate() {
                let image = &x[n / windows.len() * image..][..image];
                let taps = case.taps(&windows[n % windows.len()]);
                let nan = taps.iter().flatten().any(|place| image[*place].is_nan());
                let what = format!("{} {mode:?} {last:?} at {n}", case.what);
                assert_eq!(got.is_nan(), nan, "{what}: {got}");
                if mode.0 == ResampleMode::MaxPool && !nan {
                    assert_eq!(*got, pool(case, mode, image, &windows[n % windows.len()]).0, "{what}");
                }
            }
        }
    }
}

#[test]
fn what_is_far_outside_costs_nothing() {
    let case = Case {
        what: "",
        x: &[1, 2, 3, 3, 3],
        window: &[1 << 30; 3],
        stride: &[1 << 30; 3],
        pads: [&[1 << 29; 3], &[(1 << 30) - (1 << 29); 3]],
        over: false,
    };
    for last in [false, true] {
        let mut bench =
            Bench::new(Operation::ResampleFwd(forward(&case, MODES[1])), case.tensors([Float, Float, Int32], last));
        bench.fill(0, |n| n as f64 - 30.0);
        let got = bench.run(1);
        assert_eq!(got[&1], [0.0, 23.0]);
        assert_eq!(got[&2], [-1.0, 26.0]);
    }
}

#[test]
fn what_is_not_there_is_declined_with_a_reason() {
    let case = &CASES[1];
    let all = |types| case.tensors(types, false);
    let with = |change: &dyn Fn(&mut ResampleFwd)| {
        let mut node = forward(case, MODES[0]);
        change(&mut node);
        Operation::ResampleFwd(node)
    };
    let plain = [Float, Float, Int32];
    for (node, types, want) in [
        (
            with(&|n| n.resample_mode = ResampleMode::Bilinear),
            plain,
            "resample_mode: expected maxpool, avgpool_exclude_padding or avgpool_include_padding, got bilinear",
        ),
        (
            with(&|n| n.padding_mode = PaddingMode::Unset),
            plain,
            "padding_mode: expected neg_inf_pad or zero_pad for padded maxpool, got not_set",
        ),
        (
            with(&|n| n.resample_mode = ResampleMode::AvgPoolIncludePadding),
            plain,
            "index_tensor_uid: expected no indices but for maxpool, got 2",
        ),
        (with(&|_| {}), [Float, Float, Int8], "index (tensor 2): expected int32 or int64, got int8"),
        (
            with(&|_| {}),
            [Float, Int64, Int32],
            "y (tensor 1): expected float, half, bfloat16, double, int32, int8, uint8, fp8_e4m3, fp8_e5m2, fp8_e4m3_fnuz or fp8_e5m2_fnuz, got int64",
        ),
        (
            Operation::ResampleBwd(ResampleBwd { index: None, ..backward(case, MODES[0]) }),
            plain,
            "index_tensor_uid: expected the indices of the forward pass for maxpool, got none",
        ),
    ] {
        let got = Bench::declined(node, all(types));
        assert!(got.contains(want), "expected {want}, got {got}");
    }
}
