//! RMS normalization: its rows, its operands, and what is declined.

use hipdnn_schemas::{DataType, NormFwdPhase, Operation};

use super::*;
use crate::ops::normalization::{Affine, Scalar};
use crate::ops::testing::{Tensors, assert_types, operands, reason, wanted};
use Slot::*;

/// Tensors of a node over `x` with that scale: x is 1, the result 2, the gradient 3, epsilon 20; the scale is 10, 11 to
/// 13 are like it, and the inverse 14.
fn tensors(x: &[i64], scale: &[i64], inverse: &[i64]) -> Tensors {
    let like_scale = [10, 11, 12, 13].map(|uid| (uid, scale));
    Tensors::new(&[&[(1, x), (2, x), (3, x), (14, inverse), (20, &[1])], &like_scale[..]].concat())
}

/// Rows of 3 · 4 elements.
fn rows() -> Tensors {
    tensors(&[5, 2, 3, 1, 4], &[1, 1, 3, 1, 4], &[5, 2, 1, 1, 1])
}

const X: (Slot, i64, &str) = (Slot::X, 1, "012-4");
const OUT: (Slot, i64, &str) = (Out, 2, "012-4");

fn forward_node() -> RmsNorm {
    let [x, y, scale, epsilon] = [1, 2, 10, 20].map(TensorUid);
    let (bias, inv_rms) = (Some(TensorUid(11)), Some(TensorUid(14)));
    RmsNorm { x, scale, epsilon, y, bias, inv_rms, forward_phase: NormFwdPhase::Training }
}

fn backward_node() -> RmsNormBackward {
    let [x, dx, dy, scale, dscale, inv_rms] = [1, 2, 3, 10, 12, 14].map(TensorUid);
    RmsNormBackward { dy, x, scale, inv_rms, dx, dscale, dbias: Some(TensorUid(13)) }
}

/// A row is the longest run of last dimensions in which x and scale are the same, but never all of x; where the scale
/// has anything else than ones before it, or there is no such run, no row is meant.
#[test]
fn rows_follow_from_the_scale() {
    type Case<'a> = (&'a [i64], &'a [i64], Option<usize>);
    let cases: [Case<'_>; 12] = [
        (&[2, 3, 4], &[1, 1, 4], Some(2)),
        (&[2, 3, 4], &[1, 3, 4], Some(1)),
        (&[1, 3, 4], &[1, 3, 4], Some(1)),
        (&[2, 1, 4], &[1, 1, 4], Some(1)),
        (&[2, 3, 1], &[1, 3, 1], Some(1)),
        (&[2, 3, 4, 5, 6], &[1, 1, 1, 1, 6], Some(4)),
        (&[2, 3, 4, 5, 6], &[1, 1, 1, 5, 6], Some(3)),
        (&[2, 3, 4], &[2, 3, 4], None),
        (&[2, 3, 4], &[1, 3, 1], None),
        (&[2, 3, 4], &[1, 1, 1], None),
        (&[2, 3, 4, 5], &[1, 3, 1, 5], None),
        (&[3], &[3], None),
    ];
    for (x, scale, first) in cases {
        let inverse: Vec<i64> = (0..x.len()).map(|axis| if axis < first.unwrap_or(1) { x[axis] } else { 1 }).collect();
        let tensors = tensors(x, scale, &inverse);
        let node = forward_node();
        let forward = forward(&tensors.graph(Operation::RmsNorm(node.clone())), 0, &node);
        let node = backward_node();
        let backward = backward(&tensors.graph(Operation::RmsNormBackward(node.clone())), 0, &node);
        for (read, task) in [(forward, Task::Forward), (backward, Task::Backward)] {
            let Some(first) = first else {
                let want =
                    format!("scale (tensor 10): expected extents of ones and then the last of {x:?}, got {scale:?}");
                assert_eq!(reason(read), want);
                continue;
            };
            let read = read.unwrap_or_else(|declined| panic!("{task:?} of {x:?} with {scale:?}: {declined}"));
            let reduced: Vec<bool> = (0..x.len()).map(|axis| axis >= first).collect();
            assert_eq!((read.task, read.reduced), (task, reduced), "{x:?} with {scale:?}");
            assert_eq!((read.affine, read.centered), (Affine::PerElement, false), "{x:?} with {scale:?}");
        }
    }
}

/// The inverse is computed, and written where the node has a tensor for it, whatever it says of its phase; a bias may
/// be left out.
#[test]
fn forward_writes_the_inverse_that_is_asked_for() {
    for forward_phase in [NormFwdPhase::Unset, NormFwdPhase::Inference, NormFwdPhase::Training] {
        let node = RmsNorm { forward_phase, ..forward_node() };
        let read = forward(&rows().graph(Operation::RmsNorm(node.clone())), 0, &node).unwrap();
        assert!(!read.given);
        assert_eq!(read.epsilon, Scalar::Tensor(TensorUid(20)));
        assert_eq!(operands(&read, false), wanted(&[X, (Scale, 10, "--2-4"), (Bias, 11, "--2-4")]));
        assert_eq!(operands(&read, true), wanted(&[OUT, (Inverse, 14, "01---")]));

        let node = RmsNorm { bias: None, inv_rms: None, ..node };
        let read = forward(&rows().graph(Operation::RmsNorm(node.clone())), 0, &node).unwrap();
        assert_eq!(operands(&read, false), wanted(&[X, (Scale, 10, "--2-4")]));
        assert_eq!(operands(&read, true), wanted(&[OUT]));
    }
}

/// Gradients take the inverse, and there is no mean; the gradient of a bias may be left out.
#[test]
fn gradients_take_the_inverse() {
    let node = backward_node();
    let read = backward(&rows().graph(Operation::RmsNormBackward(node.clone())), 0, &node).unwrap();
    assert!(read.given);
    let inputs = wanted(&[X, (Dy, 3, "012-4"), (Scale, 10, "--2-4"), (Inverse, 14, "01---")]);
    assert_eq!(operands(&read, false), inputs);
    assert_eq!(operands(&read, true), wanted(&[OUT, (Dscale, 12, "--2-4"), (Dbias, 13, "--2-4")]));

    let node = RmsNormBackward { dbias: None, ..node };
    let read = backward(&rows().graph(Operation::RmsNormBackward(node.clone())), 0, &node).unwrap();
    assert_eq!((operands(&read, false), operands(&read, true)), (inputs, wanted(&[OUT, (Dscale, 12, "--2-4")])));
}

/// An inverse has an element for each row, no more and no fewer.
#[test]
fn an_inverse_is_of_each_row() {
    for dims in [&[5, 1, 1, 1, 1][..], &[5, 2, 3, 1, 1], &[1, 1, 3, 1, 4]] {
        let tensors = rows().with(14, DataType::Float, dims);
        let want = format!("inv_rms (tensor 14): expected extents [5, 2] and ones, got {dims:?}");
        let node = forward_node();
        assert_eq!(reason(forward(&tensors.graph(Operation::RmsNorm(node.clone())), 0, &node)), want);
        let node = backward_node();
        assert_eq!(reason(backward(&tensors.graph(Operation::RmsNormBackward(node.clone())), 0, &node)), want);
    }
}

/// Every operand is checked for its own type.
#[test]
fn operands_have_types_that_are_computed() {
    let node = forward_node();
    let numbers = [(1, "x"), (10, "scale"), (11, "bias"), (2, "y"), (14, "inv_rms")];
    let operation = Operation::RmsNorm(node.clone());
    assert_types(&rows(), &operation, |graph| forward(graph, 0, &node), &numbers, &[(20, "epsilon")]);

    let node = backward_node();
    let numbers = [(1, "x"), (3, "dy"), (10, "scale"), (14, "inv_rms"), (2, "dx"), (12, "dscale"), (13, "dbias")];
    let operation = Operation::RmsNormBackward(node.clone());
    assert_types(&rows(), &operation, |graph| backward(graph, 0, &node), &numbers, &[]);
}
