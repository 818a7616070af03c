//! Batch normalization: its operands, what is computed where the node leaves it open, and what is declined.

use hipdnn_schemas::{DataType, Operation};

use super::*;
use crate::ops::testing::{Tensors, assert_types, operands, reason, wanted};
use Slot::*;

/// x is 1, the result 2, the gradient 3, scalars are 20 and 21; all others have an element for each of 4 channels, in
/// the ways in which clients write that.
fn tensors() -> Tensors {
    let image: &[i64] = &[2, 4, 5, 1];
    Tensors::new(&[
        (1, image),
        (2, image),
        (3, image),
        (10, &[1, 4, 1, 1]),
        (11, &[4]),
        (12, &[1, 4]),
        (13, &[4, 1, 1]),
        (14, &[1, 4, 1, 1]),
        (15, &[4]),
        (16, &[1, 4, 1, 1]),
        (17, &[1, 4, 1, 1]),
        (20, &[1]),
        (21, &[1, 1]),
    ])
}

const X: (Slot, i64, &str) = (Slot::X, 1, "012-");
const OUT: (Slot, i64, &str) = (Out, 2, "012-");

fn inference_node() -> BatchnormInference {
    let [x, y, mean, inv_variance, scale, bias] = [1, 2, 10, 11, 12, 13].map(TensorUid);
    BatchnormInference { x, mean, inv_variance, scale, bias, y }
}

fn variance_node() -> BatchnormInferenceVarianceExt {
    let [x, y, mean, variance, scale, bias, epsilon] = [1, 2, 10, 11, 12, 13, 20].map(TensorUid);
    BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, y, epsilon }
}

/// A training step with all that it can have.
fn training_node() -> Batchnorm {
    let [x, y, scale, bias, epsilon] = [1, 2, 12, 13, 20].map(TensorUid);
    let some = |uid| Some(TensorUid(uid));
    Batchnorm {
        momentum: some(21),
        mean: some(10),
        inv_variance: some(11),
        prev_running_mean: some(14),
        prev_running_variance: some(15),
        next_running_mean: some(16),
        next_running_variance: some(17),
        ..Batchnorm::new(x, scale, bias, epsilon, y)
    }
}

fn backward_node() -> BatchnormBackward {
    let [x, dx, dy, scale, dscale, dbias] = [1, 2, 3, 12, 13, 14].map(TensorUid);
    let (mean, inv_variance) = (Some(TensorUid(10)), Some(TensorUid(11)));
    BatchnormBackward { dy, x, mean, inv_variance, scale, peer_stats: vec![], dx, dscale, dbias }
}

fn read_training(node: &Batchnorm) -> Result<Normalization, Declined> {
    training(&tensors().graph(Operation::Batchnorm(node.clone())), 0, node)
}

fn read_backward(node: &BatchnormBackward) -> Result<Normalization, Declined> {
    backward(&tensors().graph(Operation::BatchnormBackward(node.clone())), 0, node)
}

/// Statistics are over the batch and all places, and scale and bias are the channel's, whatever the node.
#[test]
fn channels_are_kept() {
    let (inference_node, variance_node) = (inference_node(), variance_node());
    for (what, task, read) in [
        (
            "inference",
            Task::Forward,
            inference(&tensors().graph(Operation::BatchnormInference(inference_node.clone())), 0, &inference_node),
        ),
        (
            "inference with the variance",
            Task::Forward,
            inference_with_variance(
                &tensors().graph(Operation::BatchnormInferenceVarianceExt(variance_node.clone())),
                0,
                &variance_node,
            ),
        ),
        ("training", Task::Forward, read_training(&training_node())),
        ("backward", Task::Backward, read_backward(&backward_node())),
    ] {
        let node = read.unwrap_or_else(|declined| panic!("{what}: {declined}"));
        assert_eq!(node.task, task, "{what}");
        assert_eq!(node.dims, [2, 4, 5, 1], "{what}");
        assert_eq!(node.reduced, [true, false, true, true], "{what}");
        assert_eq!((node.affine, node.centered), (Affine::PerGroup, true), "{what}");
    }
}

/// At inference both statistics are given: the deviation inverted already, or as the variance with its epsilon.
#[test]
fn inference_reads_its_statistics() {
    let node = inference_node();
    let read = inference(&tensors().graph(Operation::BatchnormInference(node.clone())), 0, &node).unwrap();
    assert!(read.given);
    assert_eq!(
        operands(&read, false),
        wanted(&[X, (Mean, 10, "-1--"), (Inverse, 11, "1"), (Scale, 12, "-1"), (Bias, 13, "1--")])
    );
    assert_eq!(operands(&read, true), wanted(&[OUT]));

    let node = variance_node();
    let read =
        inference_with_variance(&tensors().graph(Operation::BatchnormInferenceVarianceExt(node.clone())), 0, &node);
    let read = read.unwrap();
    assert!(read.given);
    assert_eq!(read.epsilon, Scalar::Tensor(TensorUid(20)));
    assert_eq!(
        operands(&read, false),
        wanted(&[X, (Mean, 10, "-1--"), (Variance, 11, "1"), (Scale, 12, "-1"), (Bias, 13, "1--")])
    );
    assert_eq!(operands(&read, true), wanted(&[OUT]));
}

/// Training computes the statistics, and writes them only where it has tensors for them; running ones go on from the
/// previous ones with the node's momentum, or 0.1.
#[test]
fn training_writes_the_statistics_that_are_asked_for() {
    let read = read_training(&training_node()).unwrap();
    assert!(!read.given);
    assert_eq!((read.epsilon, read.momentum), (Scalar::Tensor(TensorUid(20)), Scalar::Tensor(TensorUid(21))));
    let affine = [X, (Scale, 12, "-1"), (Bias, 13, "1--")];
    let previous = [(PrevMean, 14, "-1--"), (PrevVariance, 15, "1")];
    assert_eq!(operands(&read, false), wanted(&[&affine[..], &previous].concat()));
    let statistics = [OUT, (Mean, 10, "-1--"), (Inverse, 11, "1")];
    let next = [(NextMean, 16, "-1--"), (NextVariance, 17, "-1--")];
    assert_eq!(operands(&read, true), wanted(&[&statistics[..], &next].concat()));

    let full = training_node();
    let plain = Batchnorm::new(full.x, full.scale, full.bias, full.epsilon, full.y);
    let read = read_training(&plain).unwrap();
    assert_eq!(read.momentum, Scalar::Fixed(0.1));
    assert_eq!((operands(&read, false), operands(&read, true)), (wanted(&affine), wanted(&[OUT])));

    // Previous statistics that nothing goes on from are of no use.
    let unused = Batchnorm { next_running_mean: None, next_running_variance: None, ..training_node() };
    let read = read_training(&unused).unwrap();
    assert_eq!((operands(&read, false), operands(&read, true)), (wanted(&affine), wanted(&statistics)));
}

/// Gradients are of x, scale and bias; statistics are computed, with an epsilon of 1e-5, where they are not given.
#[test]
fn gradients_take_or_compute_the_statistics() {
    let written = wanted(&[OUT, (Dscale, 13, "1--"), (Dbias, 14, "-1--")]);
    let inputs = [X, (Dy, 3, "012-"), (Scale, 12, "-1")];
    let read = read_backward(&backward_node()).unwrap();
    assert!(read.given);
    let statistics = [(Mean, 10, "-1--"), (Inverse, 11, "1")];
    assert_eq!(operands(&read, false), wanted(&[&inputs[..], &statistics].concat()));
    assert_eq!(operands(&read, true), written);

    let read = read_backward(&BatchnormBackward { mean: None, inv_variance: None, ..backward_node() }).unwrap();
    assert!(!read.given);
    assert_eq!(read.epsilon, Scalar::Fixed(1e-5));
    assert_eq!((operands(&read, false), operands(&read, true)), (wanted(&inputs), written));
}

/// Reasons of declining: the attribute or operand that no engine computes.
#[test]
fn what_is_not_computed_is_declined() {
    let peers = vec![TensorUid(21), TensorUid(20)];
    let alone = "peer_stats_tensor_uid: expected none, got 21";
    assert_eq!(reason(read_training(&Batchnorm { peer_stats: peers.clone(), ..training_node() })), alone);
    assert_eq!(reason(read_backward(&BatchnormBackward { peer_stats: peers, ..backward_node() })), alone);

    let previous = "expected none where there is no previous one to go on from, got";
    let node = Batchnorm { prev_running_mean: None, ..training_node() };
    assert_eq!(reason(read_training(&node)), format!("next_running_mean_tensor_uid: {previous} 16"));
    let node = Batchnorm { prev_running_variance: None, ..training_node() };
    assert_eq!(reason(read_training(&node)), format!("next_running_variance_tensor_uid: {previous} 17"));

    let node = BatchnormBackward { mean: None, ..backward_node() };
    assert_eq!(reason(read_backward(&node)), "inv_variance_tensor_uid: expected none without mean, got 11");
    let node = BatchnormBackward { inv_variance: None, ..backward_node() };
    assert_eq!(reason(read_backward(&node)), "mean_tensor_uid: expected none without inv_variance, got 10");
}

/// As many elements as channels are not enough: they have to be along the channels.
#[test]
fn operands_are_along_the_channels() {
    let node = training_node();
    let names = [(12, "scale"), (13, "bias"), (10, "mean"), (11, "inv_variance")];
    let running = [
        (14, "prev_running_mean"),
        (15, "prev_running_variance"),
        (16, "next_running_mean"),
        (17, "next_running_variance"),
    ];
    for (uid, role) in names.into_iter().chain(running) {
        let graph = tensors().with(uid, DataType::Float, &[2, 2]).graph(Operation::Batchnorm(node.clone()));
        let want = format!("{role} (tensor {uid}): expected extents [4] and ones, got [2, 2]");
        assert_eq!(reason(training(&graph, 0, &node)), want);
    }
}

/// Every operand is checked for its own type.
#[test]
fn operands_have_types_that_are_computed() {
    let node = training_node();
    let numbers = [
        (1, "x"),
        (12, "scale"),
        (13, "bias"),
        (2, "y"),
        (10, "mean"),
        (11, "inv_variance"),
        (14, "prev_running_mean"),
        (15, "prev_running_variance"),
        (16, "next_running_mean"),
        (17, "next_running_variance"),
    ];
    let operation = Operation::Batchnorm(node.clone());
    assert_types(
        &tensors(),
        &operation,
        |graph| training(graph, 0, &node),
        &numbers,
        &[(20, "epsilon"), (21, "momentum")],
    );

    let node = inference_node();
    let numbers = [(1, "x"), (10, "mean"), (11, "inv_variance"), (12, "scale"), (13, "bias"), (2, "y")];
    let operation = Operation::BatchnormInference(node.clone());
    assert_types(&tensors(), &operation, |graph| inference(graph, 0, &node), &numbers, &[]);

    let node = variance_node();
    let numbers = [(1, "x"), (10, "mean"), (11, "variance"), (12, "scale"), (13, "bias"), (2, "y")];
    let operation = Operation::BatchnormInferenceVarianceExt(node.clone());
    let read = |graph: &Graph| inference_with_variance(graph, 0, &node);
    assert_types(&tensors(), &operation, read, &numbers, &[(20, "epsilon")]);

    let node = backward_node();
    let statistics = [(10, "mean"), (11, "inv_variance")];
    let numbers = [(1, "x"), (3, "dy"), (12, "scale"), (2, "dx"), (13, "dscale"), (14, "dbias")];
    let operation = Operation::BatchnormBackward(node.clone());
    assert_types(&tensors(), &operation, |graph| backward(graph, 0, &node), &[&numbers[..], &statistics].concat(), &[]);
}
