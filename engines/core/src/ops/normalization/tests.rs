//! The reader of operands, on a batch normalization's tensors.

use hipdnn_schemas::{BatchnormInference, Operation};

use super::*;
use crate::ops::testing::{Tensors, reason};
use DataType::{BFloat16, Double, Float, Half, Int8, Int32, Int64};

/// Graph whose tensor 1 has these extents and whose tensor 3 has those, which no node uses, and which computes in that
/// type.
fn graph(compute: DataType, dims: &[i64], other: &[i64]) -> Graph {
    let [x, mean, inv_variance, scale, bias, y] = [1, 10, 10, 10, 10, 2].map(TensorUid);
    let node = BatchnormInference { x, mean, inv_variance, scale, bias, y };
    let tensors = Tensors::new(&[(1, dims), (2, dims), (3, other), (10, &dims[1..2])]);
    tensors.graph_in(compute, Operation::BatchnormInference(node))
}

/// Reader of x, of which the first dimension is reduced.
fn reader(graph: &Graph) -> Result<Reader<'_>, Declined> {
    Reader::new(graph, 0, "test", Task::Forward, TensorUid(1), |axis| axis == 0)
}

/// A normalization begins with x, all of whose dimensions are its own, but for those of extent 1, which have no
/// elements to tell apart.
#[test]
fn a_normalization_begins_with_x() {
    let graph = graph(Float, &[2, 3, 1, 5], &[1]);
    let node = reader(&graph).unwrap().finish();
    let axes = vec![Some(0), Some(1), None, Some(3)];
    assert_eq!(node.operands, [Operand { slot: Slot::X, tensor: TensorUid(1), axes, is_written: false }]);
    assert_eq!((node.name, node.dims, node.reduced), ("test", vec![2, 3, 1, 5], vec![true, false, false, false]));
}

/// An operand along some dimensions of x has their extents in order, with ones wherever a client writes them, or
/// without those; it is none where any extent is missing, another one, one more, or in another order.
#[test]
fn operands_are_matched_to_dimensions_by_their_extents() {
    type Case<'a> = (&'a [usize], &'a [i64], Option<&'a [Option<usize>]>);
    let cases: [Case<'_>; 15] = [
        (&[1, 3], &[3, 5], Some(&[Some(1), Some(3)])),
        (&[1, 3], &[1, 3, 1, 5], Some(&[None, Some(1), None, Some(3)])),
        (&[1, 3], &[3, 1, 1, 5, 1], Some(&[Some(1), None, None, Some(3), None])),
        (&[1, 2, 3], &[3, 5], Some(&[Some(1), Some(3)])),
        (&[2], &[1], Some(&[None])),
        (&[], &[1, 1], Some(&[None, None])),
        (&[0, 1, 2, 3], &[2, 3, 1, 5], Some(&[Some(0), Some(1), None, Some(3)])),
        (&[1, 3], &[5, 3], None),
        (&[1, 3], &[15], None),
        (&[1, 3], &[3], None),
        (&[1, 3], &[3, 4], None),
        (&[1, 3], &[2, 3, 1, 5], None),
        (&[1], &[2], None),
        (&[], &[2], None),
        (&[0], &[1], None),
    ];
    for (along, dims, want) in cases {
        let graph = graph(Float, &[2, 3, 1, 5], dims);
        for is_written in [false, true] {
            let mut reader = reader(&graph).unwrap();
            let tensor = TensorUid(3);
            let answer = match is_written {
                false => reader.input(Slot::Scale, "scale", tensor, |axis| along.contains(&axis)),
                true => reader.output(Slot::Scale, "scale", tensor, |axis| along.contains(&axis)),
            };
            let node = reader.finish();
            let Some(axes) = want else {
                let extents: Vec<i64> =
                    along.iter().map(|axis| [2, 3, 1, 5][*axis]).filter(|extent| *extent > 1).collect();
                let want = format!("scale (tensor 3): expected extents {extents:?} and ones, got {dims:?}");
                assert_eq!(reason(answer), want);
                assert_eq!(node.operand(Slot::Scale), None, "{dims:?} along {along:?}");
                continue;
            };
            assert_eq!(answer, Ok(()), "{dims:?} along {along:?}");
            let operand = Operand { slot: Slot::Scale, tensor, axes: axes.to_vec(), is_written };
            assert_eq!(node.operand(Slot::Scale), Some(&operand), "{dims:?} along {along:?}");
        }
    }
}

/// An operand is found by its role; a role that the node has not is none.
#[test]
fn operands_are_found_by_role() {
    let graph = graph(Float, &[2, 3], &[3]);
    let mut reader = reader(&graph).unwrap();
    reader.input(Slot::Bias, "bias", TensorUid(10), |axis| axis == 1).unwrap();
    reader.output(Slot::Out, "y", TensorUid(2), |_| true).unwrap();
    let node = reader.finish();
    for (slot, uid) in [(Slot::X, 1), (Slot::Bias, 10), (Slot::Out, 2)] {
        assert_eq!(node.operand(slot).map(|operand| operand.tensor), Some(TensorUid(uid)), "{slot:?}");
    }
    assert_eq!(node.operand(Slot::Scale), None);
}

/// Floats of any size may be asked for to compute in; whole numbers have no deviation.
#[test]
fn normalizations_compute_in_floats() {
    for compute in [Float, Half, BFloat16, Double] {
        assert!(reader(&graph(compute, &[2, 3], &[1])).is_ok(), "{compute}");
    }
    for compute in [Int8, Int32, Int64] {
        let want = format!("compute_data_type: expected float, half, bfloat16 or double, got {compute}");
        assert_eq!(reason(reader(&graph(compute, &[2, 3], &[1]))), want);
    }
}

/// Statistics come together or not at all; with them the normalization is one of given statistics.
#[test]
fn statistics_come_together() {
    let graph = graph(Float, &[2, 3], &[3]);
    for (mean, inverse, want) in [
        (None, None, Ok(false)),
        (Some(3), Some(10), Ok(true)),
        (Some(3), None, Err("mean_tensor_uid: expected none without inv_variance, got 3")),
        (None, Some(10), Err("inv_variance_tensor_uid: expected none without mean, got 10")),
    ] {
        let mut reader = reader(&graph).unwrap();
        let answer = reader.statistics(mean.map(TensorUid), inverse.map(TensorUid), |axis| axis == 1);
        let node = reader.finish();
        assert_eq!(node.given, want == Ok(true));
        match want {
            Ok(are_given) => assert_eq!(answer, Ok(are_given)),
            Err(want) => assert_eq!(reason(answer), want),
        }
        for (slot, uid) in [(Slot::Mean, mean), (Slot::Inverse, inverse)] {
            let got = node.operand(slot).map(|operand| (operand.tensor.0, operand.is_written));
            assert_eq!(got, uid.filter(|_| want == Ok(true)).map(|uid| (uid, false)), "{slot:?}");
        }
    }
}
