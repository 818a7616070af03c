//! Pooling: the operands and attributes that engines read, and reasons of declining.

use hipdnn_schemas::Operation;

use super::*;
use crate::ops::pooling_cases::{Case, case};
use crate::ops::testing::{Tensors, reason};
use DataType::{BFloat16, Double, Float, Half, Int8, Int32, Int64};
use PaddingMode::{NegInf, Zero};
use ResampleMode::{AvgPoolExcludePadding, AvgPoolIncludePadding, Bilinear, MaxPool, Nearest};

const PLAIN: Case = case("not padded", &[2, 3, 6, 8], &[2, 3], &[2, 1], [&[0, 0], &[0, 0]], false);
const IN_FRONT: Case = case("padded in front", &[2, 3, 6, 8], &[2, 3], &[2, 1], [&[0, 1], &[0, 0]], false);
const BEHIND: Case = case("padded behind", &[2, 3, 6, 8], &[2, 3], &[2, 1], [&[0, 0], &[2, 0]], false);

fn tensors(case: &Case) -> Tensors {
    Tensors::new(&[(0, case.x), (1, &case.y()), (2, &case.y())]).typed(2, Int32)
}

/// Reads a case's forward node of images in `f32`.
fn read(case: &Case, mode: (ResampleMode, PaddingMode), index: bool) -> Result<Mode, Declined> {
    let node = case.forward(mode, index);
    let graph = tensors(case).graph(Operation::ResampleFwd(node.clone()));
    forward(&graph, 0, &node, &[Float]).map(|pooling| pooling.mode)
}

/// Zeros around the image count where the mode says so; a maximum that is padded has to say with what, while nothing
/// depends on it where there is no padding.
#[test]
fn padding_is_what_the_modes_say() {
    let unset = PaddingMode::Unset;
    let (greatest, average) = (|zeros| Ok(Mode::Max { zeros }), |zeros| Ok(Mode::Average { zeros }));
    let ambiguous = || Err("padding_mode: expected neg_inf_pad or zero_pad for padded maxpool, got not_set");
    for (mode, plain, padded) in [
        ((MaxPool, Zero), greatest(true), greatest(true)),
        ((MaxPool, NegInf), greatest(false), greatest(false)),
        ((MaxPool, unset), greatest(false), ambiguous()),
        ((AvgPoolIncludePadding, Zero), average(true), average(true)),
        ((AvgPoolIncludePadding, unset), average(true), average(true)),
        ((AvgPoolExcludePadding, Zero), average(false), average(false)),
        ((AvgPoolExcludePadding, unset), average(false), average(false)),
    ] {
        for (case, want) in [(&PLAIN, &plain), (&IN_FRONT, &padded), (&BEHIND, &padded)] {
            match (read(case, mode, false), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, *want, "{mode:?}, {}", case.what),
                (got, want) => assert_eq!(reason(got), want.unwrap_err(), "{mode:?}, {}", case.what),
            }
        }
    }
    for mode in [Bilinear, Nearest] {
        let want =
            format!("resample_mode: expected maxpool, avgpool_exclude_padding or avgpool_include_padding, got {mode}");
        assert_eq!(reason(read(&PLAIN, (mode, Zero), false)), want);
    }
}

/// Only a maximum is one of the elements, of which there is an index.
#[test]
fn a_maximum_is_one_of_the_elements() {
    for zeros in [false, true] {
        assert!(Mode::Max { zeros }.is_greatest() && !Mode::Average { zeros }.is_greatest());
    }
}

/// Both directions have the image on one side and a place for each window on the other; windows begin where the padding
/// in front does.
#[test]
fn both_directions_read_the_same_geometry() {
    let case = case("", &[2, 3, 6, 8], &[2, 3], &[2, 1], [&[0, 1], &[2, 0]], false);
    let mode = (MaxPool, Zero);
    for index in [None, Some(TensorUid(2))] {
        let want = Pooling {
            mode: Mode::Max { zeros: true },
            large: TensorUid(0),
            small: TensorUid(1),
            index,
            window: case.window,
            stride: case.stride,
            padding: case.pads[0],
        };
        let node = case.forward(mode, index.is_some());
        let graph = tensors(&case).graph(Operation::ResampleFwd(node.clone()));
        assert_eq!(forward(&graph, 0, &node, &[Float]), Ok(want));

        let node = case.backward(mode, index.is_some());
        let graph = tensors(&case).graph(Operation::ResampleBwd(node.clone()));
        let read = backward(&graph, 0, &node, &[Float]);
        match index {
            Some(_) => assert_eq!(read, Ok(want)),
            // Without them it is not known which of equal elements the gradient is of.
            None => {
                let want = "index_tensor_uid: expected the indices of the forward pass for maxpool, got none";
                assert_eq!(reason(read), want);
            }
        }
    }
    let node = PLAIN.backward((AvgPoolExcludePadding, Zero), false);
    let graph = tensors(&PLAIN).graph(Operation::ResampleBwd(node.clone()));
    assert_eq!(backward(&graph, 0, &node, &[Float]).map(|pooling| pooling.index), Ok(None), "an average has none");
}

/// An average has no indices, and those of a maximum are whole numbers with room for them.
#[test]
fn indices_are_of_maxima() {
    for mode in [AvgPoolIncludePadding, AvgPoolExcludePadding] {
        let want = "index_tensor_uid: expected no indices but for maxpool, got 2";
        assert_eq!(reason(read(&PLAIN, (mode, Zero), true)), want);
    }
    let node = PLAIN.forward((MaxPool, Zero), true);
    for (data_type, want) in [
        (Int32, ""),
        (Int64, ""),
        (Int8, "index (tensor 2): expected int32 or int64, got int8"),
        (Float, "index (tensor 2): expected int32 or int64, got float"),
    ] {
        let graph = tensors(&PLAIN).typed(2, data_type).graph(Operation::ResampleFwd(node.clone()));
        assert_eq!(reason(forward(&graph, 0, &node, &[Float])), want);
    }
}

/// Images are of the engine's types, both of them, and what is computed in is a float or a 32-bit integer.
#[test]
fn images_are_of_the_engines_types() {
    let mode = (MaxPool, Zero);
    let (fwd, bwd) = (PLAIN.forward(mode, true), PLAIN.backward(mode, true));
    for (large, small, is_large) in [(Half, Float, true), (Float, Half, false), (Float, Int8, false)] {
        let tensors = tensors(&PLAIN).typed(0, large).typed(1, small);
        let (uid, got) = if is_large { (0, large) } else { (1, small) };
        let graph = tensors.graph(Operation::ResampleFwd(fwd.clone()));
        let role = if is_large { "x" } else { "y" };
        let want = format!("{role} (tensor {uid}): expected float or double, got {got}");
        assert_eq!(reason(forward(&graph, 0, &fwd, &[Float, Double])), want);
        let graph = tensors.graph(Operation::ResampleBwd(bwd.clone()));
        assert_eq!(reason(backward(&graph, 0, &bwd, &[Float, Double])), format!("d{want}"));
    }
    for compute in [Float, Half, BFloat16, Double, Int32] {
        let graph = tensors(&PLAIN).graph_in(compute, Operation::ResampleFwd(fwd.clone()));
        assert!(forward(&graph, 0, &fwd, &[Float]).is_ok(), "{compute}");
    }
    let graph = tensors(&PLAIN).graph_in(Int64, Operation::ResampleFwd(fwd.clone()));
    let want = "compute_data_type: expected float, half, bfloat16, double or int32, got int64";
    assert_eq!(reason(forward(&graph, 0, &fwd, &[Float])), want);
}

/// Images have one to three spatial dimensions.
#[test]
fn images_have_up_to_three_spatial_dimensions() {
    let ones: &[i64] = &[1; 4];
    for (x, want) in [
        (&[2, 3, 4][..], ""),
        (&[2, 3, 4, 5], ""),
        (&[2, 3, 4, 5, 6], ""),
        (&[2, 3, 4, 5, 6, 7], "x (tensor 0): expected 3 to 5 dimensions, got 6"),
    ] {
        let spatial = x.len() - 2;
        let zeros = &[0; 4][..spatial];
        let case =
            Case { what: "", x, window: &ones[..spatial], stride: &ones[..spatial], pads: [zeros, zeros], over: false };
        assert_eq!(reason(read(&case, (MaxPool, Zero), false)), want);
    }
}
