//! What makes graphs alike: numbers of a graph that decide about its speed.
//!
//! Kinds are codes and equal or not; sizes are logarithms to base 2, so that a distance of 1 is a factor of 2.

use std::fmt::Write as _;

use hipdnn_schemas::{Graph, Operation};
use sha2::{Digest, Sha256};

use crate::cost::VERSION;
use crate::work::{self, Kind, Shape};

/// A feature: its name, whether it is a code, and what a distance of 1 counts.
pub struct Feature {
    /// Name for the signature.
    pub name: &'static str,
    /// True for a code, which is equal or not.
    pub is_code: bool,
    /// Weight of a distance.
    pub weight: f64,
}

/// Number of features.
pub const COUNT: usize = 13;

const fn code(name: &'static str) -> Feature {
    Feature { name, is_code: true, weight: 0.0 }
}

const fn size(name: &'static str, weight: f64) -> Feature {
    Feature { name, is_code: false, weight }
}

/// The features, in their order.
pub const FEATURES: [Feature; COUNT] = [
    code("kind of the step with the most operations"),
    code("bits of an element of the largest tensor"),
    code("channels innermost in the first input"),
    code("reductions or normalizations among the nodes"),
    size("log2 operations", 1.0),
    size("log2 bytes between steps", 1.0),
    size("log2 nodes", 0.5),
    size("log2 steps", 0.5),
    size("log2 input channels of a group", 0.5),
    size("log2 output channels of a group", 0.5),
    size("log2 taps", 0.5),
    size("log2 places of an image", 0.5),
    size("log2 images", 0.25),
];

/// Hash of what the features are and of what scores are scores of, as hipDNN writes it in models.
pub fn hash() -> String {
    let mut hasher = Sha256::new();
    hasher.update(VERSION);
    for feature in &FEATURES {
        hasher.update([0]);
        hasher.update(feature.name);
    }
    let mut text = "sha256:".to_owned();
    for byte in hasher.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The features of a graph.
pub fn of(graph: &Graph) -> [f64; COUNT] {
    let steps = work::steps(graph, true);
    let total = |of: &dyn Fn(&work::Step) -> f64| steps.iter().map(of).sum::<f64>();
    let largest = steps.iter().max_by(|a, b| a.operations.total_cmp(&b.operations));
    let shapes = graph.nodes().iter().filter_map(|node| work::shape(graph, &node.operation));
    // The convolution with the most operations for each image.
    let shape = shapes.max_by(|a, b| operations(a).total_cmp(&operations(b))).unwrap_or_default();
    let light = |operation: &Operation| work::work(graph, operation).0 == Kind::Moving;
    let folds =
        graph.nodes().iter().any(|node| light(&node.operation) && !matches!(node.operation, Operation::Pointwise(_)));
    let log = |value: f64| value.max(1.0).log2();
    [
        largest.map_or(0.0, |step| f64::from(step.kind as u8)),
        largest.map_or(0.0, |step| f64::from(step.bits)),
        f64::from(u8::from(channels_innermost(graph))),
        f64::from(u8::from(folds)),
        log(total(&|step| step.operations)),
        log(total(&|step| step.bytes)),
        log(graph.nodes().len() as f64),
        log(steps.len() as f64),
        log(shape.input_channels),
        log(shape.output_channels),
        log(shape.taps),
        log(shape.places),
        log(shape.images),
    ]
}

fn operations(shape: &Shape) -> f64 {
    shape.input_channels * shape.output_channels * shape.taps * shape.places
}

/// True if the first input of rank 3 or more has its channels innermost, and more than one.
fn channels_innermost(graph: &Graph) -> bool {
    let inputs = graph.nodes().iter().flat_map(|node| node.operation.inputs());
    let mut outer = inputs.map(|uid| graph.tensor(uid)).filter(|tensor| !tensor.is_virtual() && tensor.rank() > 2);
    outer.next().is_some_and(|tensor| tensor.dims()[1] > 1 && tensor.strides()[1] == 1 && tensor.strides()[2] > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn features_tell_kinds_and_sizes() {
        let place = |name: &str| FEATURES.iter().position(|feature| feature.name == name).unwrap();
        let one = of(&samples::convolution(1, 32, 64, 3, 28, &["relu"]));
        let double = of(&samples::convolution(2, 32, 64, 3, 28, &["relu"]));
        assert_eq!(one[0], f64::from(Kind::Winograd as u8));
        assert!((double[place("log2 operations")] - one[place("log2 operations")] - 1.0).abs() < 1e-9);
        assert_eq!(double[place("log2 images")], 1.0);
        assert_eq!((one[place("log2 taps")], one[place("log2 steps")]), (9f64.log2(), 0.0));
        assert_eq!(of(&samples::softmax(8, 8))[3], 1.0);
        assert_eq!(of(&samples::chain(8, &["relu"]))[3], 0.0);
        assert_eq!(of(&samples::matmul(1, 8, 8, 8))[0], f64::from(Kind::Product as u8));
    }

    #[test]
    fn the_hash_is_of_the_features() {
        let hash = hash();
        assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64, "{hash}");
    }
}
