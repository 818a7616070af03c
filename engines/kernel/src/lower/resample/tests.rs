//! Pooling and its gradient as the CPU engine computes them.

use hipdnn_engine_core::ops::pooling_cases::{Case, MODES, case};
use hipdnn_engine_cpu::nodes::testing::noise;
use hipdnn_schemas::{DataType, Operation, PaddingMode, ResampleMode};

use crate::ir::group::Pass;
use crate::lower::testing::{compare, declined, work};
use DataType::{BFloat16, Double, Float, Half, Int8, Int32, Int64, UInt8};

const CASES: &[Case] = &[
    case("2 by 2", &[2, 3, 6, 8], &[2, 2], &[2, 2], [&[0, 0], &[0, 0]], false),
    case("padded", &[1, 5, 7, 9], &[3, 3], &[2, 2], [&[1, 1], &[1, 1]], false),
    case("padded on sides that differ", &[2, 2, 5, 6], &[3, 2], &[1, 1], [&[0, 1], &[2, 0]], false),
    case("gaps", &[1, 2, 9, 11], &[2, 1], &[3, 4], [&[0, 0], &[0, 0]], false),
    case("all", &[3, 7, 4, 5], &[4, 5], &[1, 1], [&[0, 0], &[0, 0]], false),
    case("a row", &[2, 3, 30], &[3], &[1], [&[2], &[1]], false),
    case("over the end", &[1, 2, 6, 7], &[3, 2], &[2, 2], [&[0, 0], &[0, 1]], true),
    case("three dimensions", &[1, 3, 4, 5, 6], &[2, 3, 2], &[1, 2, 2], [&[1, 0, 1], &[0, 2, 1]], false),
    case("one window, with a long stride", &[2, 3, 4, 5], &[3, 5], &[i32::MAX as i64, 7], [&[0, 1], &[0, 1]], false),
    case("few large windows", &[2, 2, 7, 9], &[6, 5], &[3, 4], [&[2, 1], &[0, 3]], false),
    case("large windows along one dimension, over the end", &[1, 2, 8, 9], &[7, 2], &[4, 2], [&[1, 0], &[1, 0]], true),
    case("mostly padding", &[1, 2, 2, 3], &[2, 2], &[1, 1], [&[3, 2], &[2, 4]], false),
];

/// Values of an image, of which some are equal.
fn image(i: usize) -> f64 {
    (noise(i) * 8.0).round() / 4.0
}

#[test]
fn pooling_is_what_the_host_engine_computes() {
    for (turn, case) in CASES.iter().enumerate() {
        for mode in MODES {
            let is_greatest = mode.0 == ResampleMode::MaxPool;
            for (types, last, index) in [
                ([Float, Float, Int32], false, false),
                ([Half, Float, Int64], true, is_greatest),
                ([Float, BFloat16, Int32], turn % 2 == 0, is_greatest),
                ([Double, Double, Int64], false, false),
            ] {
                let what = format!("{}, {mode:?}, {types:?}", case.what);
                compare(&what, Operation::ResampleFwd(case.forward(mode, index)), case.tensors(types, last), |_, i| {
                    image(i)
                });
            }
        }
    }
}

#[test]
fn taps_are_counted_where_windows_leave_the_image() {
    let is_counted = |case: &Case| {
        let node = Operation::ResampleFwd(case.forward(MODES[2], false));
        let kernels = work(&node, &case.tensors([Float, Float, Int32], false)).kernels;
        let Pass::Reduce { folds, .. } = &kernels[0].passes[0] else { panic!("{kernels:?}") };
        folds.len() > 1
    };
    let all: Vec<&str> = CASES.iter().filter(|case| is_counted(case)).map(|case| case.what).collect();
    // Not those that end with the image, or before it.
    let none = ["2 by 2", "gaps", "all"];
    assert_eq!(all, CASES.iter().map(|case| case.what).filter(|what| !none.contains(what)).collect::<Vec<_>>());
    let within = case("padding that no window reaches", &[1, 1, 7, 7], &[3, 3], &[2, 2], [&[0, 0], &[1, 1]], false);
    assert!(!is_counted(&within));
    let beyond = case("padding that one reaches", &[1, 1, 6, 7], &[3, 3], &[2, 2], [&[0, 0], &[1, 0]], false);
    assert!(is_counted(&beyond));
}

#[test]
fn whole_numbers_are_pooled() {
    for (from, to) in [(Int8, Int8), (UInt8, UInt8), (Int32, Int32), (Int8, Float)] {
        for mode in [MODES[0], MODES[1]] {
            compare(
                CASES[1].what,
                Operation::ResampleFwd(CASES[1].forward(mode, true)),
                CASES[1].tensors([from, to, Int32], false),
                |_, i| (noise(i) * 60.0 + if from == UInt8 { 61.0 } else { 0.0 }).round(),
            );
        }
    }
}

#[test]
fn what_is_no_number_has_a_place() {
    type Value = fn(usize) -> f64;
    let values: [(&str, Value); 3] = [
        ("a NaN here and there", |i| if i % 11 == 4 { f64::NAN } else { image(i) }),
        ("minus infinities", |_| f64::NEG_INFINITY),
        ("infinities", |i| [f64::INFINITY, f64::NEG_INFINITY, 1.0][i % 3]),
    ];
    for ((what, value), case) in values.iter().flat_map(|values| CASES.iter().map(move |case| (values, case))) {
        for mode in [MODES[0], MODES[1]] {
            let what = format!("{what}, {}, {mode:?}", case.what);
            let tensors = case.tensors([Float, Float, Int32], false);
            compare(&what, Operation::ResampleFwd(case.forward(mode, true)), tensors, |_, i| value(i));
        }
    }
}

#[test]
fn gradients_are_what_the_host_engine_computes() {
    for (turn, case) in CASES.iter().enumerate() {
        for mode in MODES {
            let index = mode.0 == ResampleMode::MaxPool;
            for (types, last) in [([Float, Float, Int32], turn % 2 == 0), ([BFloat16, Half, Int64], turn % 2 == 1)] {
                // Indices that windows have, and some that they have not.
                let fill = |uid, i: usize| {
                    if uid == 2 { (i * 5 % (case.places() as usize + 1)) as f64 - 1.0 } else { noise(i) }
                };
                let what = format!("{}, {mode:?}, {types:?}", case.what);
                compare(&what, Operation::ResampleBwd(case.backward(mode, index)), case.tensors(types, last), fill);
            }
        }
    }
}

#[test]
fn what_is_not_served_is_declined_by_name() {
    let (plain, padded) = (CASES[0], CASES[1]);
    let wide = case("", &[1, 1, 8192, 4096], &[1, 1], &[1, 1], [&[0, 0], &[0, 0]], false);
    let deep = case("", &[1, 1, 2, 2, 2, 2], &[1; 4], &[1; 4], [&[0; 4], &[0; 4]], false);
    let far = case("", &[1, 1, 2, 2], &[4097, 4096], &[1, 1], [&[4096, 4095], &[0, 0]], false);
    let dense = case("", &[1, 1, 8194, 8194], &[4097, 4096], &[1, 1], [&[0, 0], &[0, 0]], false);
    let row = case("", &[1, 1, (1 << 24) + 1], &[3], &[1], [&[1], &[0]], false);
    let max = MODES[0];
    let average = MODES[2];
    let floats = [Float, Float, Int32];
    let cases = [
        (
            Operation::ResampleFwd(plain.forward((ResampleMode::Bilinear, PaddingMode::Zero), false)),
            plain,
            floats,
            Float,
            "resample_mode: expected maxpool, avgpool_exclude_padding or avgpool_include_padding, got bilinear",
        ),
        (
            Operation::ResampleBwd(plain.backward((ResampleMode::Nearest, PaddingMode::Zero), false)),
            plain,
            floats,
            Float,
            "resample_mode: expected maxpool, avgpool_exclude_padding or avgpool_include_padding, got nearest",
        ),
        (
            Operation::ResampleFwd(padded.forward((ResampleMode::MaxPool, PaddingMode::Unset), false)),
            padded,
            floats,
            Float,
            "padding_mode: expected neg_inf_pad or zero_pad for padded maxpool, got not_set",
        ),
        (
            Operation::ResampleBwd(plain.backward(max, false)),
            plain,
            floats,
            Float,
            "index_tensor_uid: expected the indices of the forward pass for maxpool, got none",
        ),
        (
            Operation::ResampleFwd(plain.forward(average, true)),
            plain,
            floats,
            Float,
            "index_tensor_uid: expected no indices but for maxpool, got 2",
        ),
        (
            Operation::ResampleFwd(plain.forward(max, true)),
            plain,
            [Float, Float, Float],
            Float,
            "index (tensor 2): expected int32 or int64, got float",
        ),
        (
            Operation::ResampleFwd(plain.forward(max, false)),
            plain,
            [Int64, Float, Int32],
            Float,
            "x (tensor 0): expected float, half, bfloat16, double, int32, int8 or uint8, got int64",
        ),
        (
            Operation::ResampleBwd(plain.backward(average, false)),
            plain,
            [Float, Int64, Int32],
            Float,
            "dy (tensor 1): expected float, half, bfloat16, double, int32, int8 or uint8, got int64",
        ),
        (
            Operation::ResampleFwd(plain.forward(average, false)),
            plain,
            floats,
            Double,
            "compute_data_type: expected float for operands of these types, got double",
        ),
        (
            Operation::ResampleFwd(plain.forward(average, false)),
            plain,
            floats,
            Int64,
            "compute_data_type: expected float, half, bfloat16, double or int32, got int64",
        ),
        (
            Operation::ResampleFwd(deep.forward(max, false)),
            deep,
            floats,
            Float,
            "x (tensor 0): expected 3 to 5 dimensions, got 6",
        ),
        (
            Operation::ResampleFwd(far.forward(average, false)),
            far,
            floats,
            Float,
            "taps of a window: expected at most 16777216, got 16781312",
        ),
        (
            Operation::ResampleBwd(dense.backward(average, false)),
            dense,
            floats,
            Float,
            "taps of a window: expected at most 16777216, got 16781312",
        ),
        (
            Operation::ResampleBwd(row.backward(average, false)),
            row,
            floats,
            Float,
            "to be counted: expected at most 16777216, got 16777217",
        ),
        (
            Operation::ResampleFwd(wide.forward(max, true)),
            wide,
            floats,
            Float,
            "to be numbered: expected at most 16777216",
        ),
    ];
    for (operation, case, types, compute, want) in cases {
        let reason = declined(&operation, &case.tensors(types, false), compute);
        assert!(reason.starts_with("node 0 (Resample") && reason.contains(want), "{reason}");
    }
}
