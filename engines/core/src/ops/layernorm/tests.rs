//! Layer normalization: its rows, its operands, and what is declined.

use hipdnn_schemas::{DataType, NormFwdPhase, Operation, TensorUid};

use super::*;
use crate::ops::normalization::{Affine, Scalar};
use crate::ops::testing::{Tensors, assert_types, operands, reason, wanted};
use Slot::*;

/// x is 1, the result 2, the gradient 3, epsilon 20; of rows of 3 · 4 elements, in the ways in which clients write
/// that: scale and bias are 10 and 11, their gradients 14 and 15, statistics 12 and 13.
fn tensors() -> Tensors {
    let x: &[i64] = &[5, 2, 1, 3, 4];
    Tensors::new(&[
        (1, x),
        (2, x),
        (3, x),
        (10, &[1, 1, 1, 3, 4]),
        (11, &[3, 4]),
        (12, &[5, 2, 1, 1, 1]),
        (13, &[5, 2]),
        (14, &[3, 1, 4]),
        (15, &[3, 4]),
        (20, &[1]),
    ])
}

const X: (Slot, i64, &str) = (Slot::X, 1, "01-34");
const OUT: (Slot, i64, &str) = (Out, 2, "01-34");

fn forward_node() -> Layernorm {
    let [x, y, scale, bias, epsilon] = [1, 2, 10, 11, 20].map(TensorUid);
    let (mean, inv_variance) = (Some(TensorUid(12)), Some(TensorUid(13)));
    let forward_phase = NormFwdPhase::Training;
    Layernorm { x, scale, bias, epsilon, y, normalized_dim_count: 2, mean, inv_variance, forward_phase }
}

fn backward_node() -> LayernormBackward {
    let [x, dx, dy, scale, dscale] = [1, 2, 3, 10, 14].map(TensorUid);
    let [mean, inv_variance, epsilon, dbias] = [12, 13, 20, 15].map(|uid| Some(TensorUid(uid)));
    LayernormBackward { dy, x, scale, mean, inv_variance, epsilon, dx, dscale, dbias, normalized_dim_count: 2 }
}

fn read_forward(node: &Layernorm) -> Result<Normalization, Declined> {
    forward(&tensors().graph(Operation::Layernorm(node.clone())), 0, node)
}

fn read_backward(node: &LayernormBackward) -> Result<Normalization, Declined> {
    backward(&tensors().graph(Operation::LayernormBackward(node.clone())), 0, node)
}

/// A row is as many of the last dimensions as the node says, all of them too; what is left numbers the rows.
#[test]
fn rows_are_the_last_dimensions() {
    let dims = [2, 3, 4, 5];
    for count in 1..=4 {
        let (outer, inner) = dims.split_at(4 - count);
        let (row, rows) = ([&vec![1; 4 - count], inner].concat(), [outer, &vec![1; count]].concat());
        let tensors = Tensors::new(&[
            (1, &dims),
            (2, &dims),
            (3, &dims),
            (10, &row),
            (11, &row),
            (12, &rows),
            (13, &rows),
            (14, &row),
            (15, &row),
            (20, &[1]),
        ]);
        let normalized_dim_count = count as i64;
        let node = Layernorm { normalized_dim_count, ..forward_node() };
        let read = forward(&tensors.graph(Operation::Layernorm(node.clone())), 0, &node).unwrap();
        let reduced: Vec<bool> = (0..4).map(|axis| axis + count >= 4).collect();
        assert_eq!((read.task, &read.reduced), (Task::Forward, &reduced));
        assert_eq!((read.affine, read.centered), (Affine::PerElement, true));

        let node = LayernormBackward { normalized_dim_count, ..backward_node() };
        let read = backward(&tensors.graph(Operation::LayernormBackward(node.clone())), 0, &node).unwrap();
        assert_eq!((read.task, &read.reduced), (Task::Backward, &reduced));
        assert_eq!((read.affine, read.centered), (Affine::PerElement, true));
    }
}

/// Statistics are computed, and written where the node has tensors for them, whatever it says of its phase.
#[test]
fn forward_writes_the_statistics_that_are_asked_for() {
    let inputs = wanted(&[X, (Scale, 10, "---34"), (Bias, 11, "34")]);
    let (mean, inverse) = ((Mean, 12, "01---"), (Inverse, 13, "01"));
    for forward_phase in [NormFwdPhase::Unset, NormFwdPhase::Inference, NormFwdPhase::Training] {
        let node = Layernorm { forward_phase, ..forward_node() };
        let read = read_forward(&node).unwrap();
        assert!(!read.given);
        assert_eq!(read.epsilon, Scalar::Tensor(TensorUid(20)));
        assert_eq!((operands(&read, false), operands(&read, true)), (inputs.clone(), wanted(&[OUT, mean, inverse])));
        for (node, written) in [
            (Layernorm { mean: None, ..node.clone() }, wanted(&[OUT, inverse])),
            (Layernorm { inv_variance: None, ..node.clone() }, wanted(&[OUT, mean])),
            (Layernorm { mean: None, inv_variance: None, ..node }, wanted(&[OUT])),
        ] {
            assert_eq!(operands(&read_forward(&node).unwrap(), true), written);
        }
    }
}

/// Gradients take both statistics, or compute both with the node's epsilon; the one of the bias may be left out.
#[test]
fn gradients_take_or_compute_the_statistics() {
    let inputs = [X, (Dy, 3, "01-34"), (Scale, 10, "---34")];
    let statistics = [(Mean, 12, "01---"), (Inverse, 13, "01")];
    let read = read_backward(&backward_node()).unwrap();
    assert!(read.given);
    assert_eq!(operands(&read, false), wanted(&[&inputs[..], &statistics].concat()));
    assert_eq!(operands(&read, true), wanted(&[OUT, (Dscale, 14, "3-4"), (Dbias, 15, "34")]));

    let computed = LayernormBackward { mean: None, inv_variance: None, dbias: None, ..backward_node() };
    let read = read_backward(&computed).unwrap();
    assert!(!read.given);
    assert_eq!(read.epsilon, Scalar::Tensor(TensorUid(20)));
    assert_eq!(operands(&read, false), wanted(&inputs));
    assert_eq!(operands(&read, true), wanted(&[OUT, (Dscale, 14, "3-4")]));

    for (node, want) in [
        (
            LayernormBackward { epsilon: None, ..computed },
            "epsilon_tensor_uid: expected a tensor, as no statistics are given, got null",
        ),
        (
            LayernormBackward { mean: None, ..backward_node() },
            "inv_variance_tensor_uid: expected none without mean, got 13",
        ),
        (
            LayernormBackward { inv_variance: None, ..backward_node() },
            "mean_tensor_uid: expected none without inv_variance, got 12",
        ),
        (LayernormBackward { epsilon: None, ..backward_node() }, ""),
    ] {
        assert_eq!(reason(read_backward(&node)), want);
    }
}

/// As many elements as a row has are not enough: they have to be along its dimensions, in their order.
#[test]
fn operands_are_along_their_dimensions() {
    for (uid, role, dims, wanted) in [
        (10, "scale", &[4, 3][..], "[3, 4]"),
        (11, "bias", &[12], "[3, 4]"),
        (12, "mean", &[2, 5], "[5, 2]"),
        (13, "inv_variance", &[10], "[5, 2]"),
    ] {
        let node = forward_node();
        let graph = tensors().with(uid, DataType::Float, dims).graph(Operation::Layernorm(node.clone()));
        let want = format!("{role} (tensor {uid}): expected extents {wanted} and ones, got {dims:?}");
        assert_eq!(reason(forward(&graph, 0, &node)), want);
    }
}

/// Every operand is checked for its own type.
#[test]
fn operands_have_types_that_are_computed() {
    let node = forward_node();
    let numbers = [(1, "x"), (10, "scale"), (11, "bias"), (2, "y"), (12, "mean"), (13, "inv_variance")];
    let operation = Operation::Layernorm(node.clone());
    assert_types(&tensors(), &operation, |graph| forward(graph, 0, &node), &numbers, &[(20, "epsilon")]);

    let node = backward_node();
    let numbers = [(1, "x"), (3, "dy"), (10, "scale"), (2, "dx"), (14, "dscale"), (15, "dbias")];
    let statistics = [(12, "mean"), (13, "inv_variance")];
    let operation = Operation::LayernormBackward(node.clone());
    assert_types(&tensors(), &operation, |graph| backward(graph, 0, &node), &[&numbers[..], &statistics].concat(), &[]);

    let node = LayernormBackward { mean: None, inv_variance: None, ..node };
    let operation = Operation::LayernormBackward(node.clone());
    assert_types(&tensors(), &operation, |graph| backward(graph, 0, &node), &numbers, &[(20, "epsilon")]);
}
