//! Scalars of pointwise nodes.

use hipdnn_schemas::{Pointwise, PointwiseMode, TensorUid};

use super::*;

/// A node without scalars.
fn plain() -> Pointwise {
    Pointwise::unary(PointwiseMode::ReluFwd, TensorUid(1), TensorUid(2))
}

/// A scalar that a node leaves out is the one of the plain function: max(x, 0), x·σ(x), eˣ - 1, ln(1 + eˣ).
#[test]
fn scalars_that_are_left_out_are_those_of_the_plain_functions() {
    let [lower, upper, slope, swish, elu, softplus] = Parameters::of(&plain()).scalars::<f64>();
    assert_eq!([lower, upper, slope], [0.0, f64::INFINITY, 0.0]);
    assert_eq!([swish, elu, softplus], [1.0; 3]);
    assert_eq!(Parameters::of(&plain()), Parameters::default());
}

/// Each scalar of a node arrives in its own place.
#[test]
fn scalars_of_a_node_arrive_in_their_places() {
    let node = Pointwise {
        relu_lower_clip: Some(-0.5),
        relu_upper_clip: Some(6.0),
        relu_lower_clip_slope: Some(0.25),
        swish_beta: Some(1.5),
        elu_alpha: Some(0.75),
        softplus_beta: Some(2.0),
        ..plain()
    };
    let parameters = Parameters::of(&node);
    assert_eq!(parameters.scalars::<f64>(), [-0.5, 6.0, 0.25, 1.5, 0.75, 2.0]);
    assert_eq!(parameters.scalars::<f32>(), [-0.5, 6.0, 0.25, 1.5, 0.75, 2.0]);
    let swish = Parameters::of(&Pointwise { swish_beta: Some(3.0), ..plain() });
    assert_eq!(swish, Parameters { swish_beta: 3.0, ..Parameters::default() }, "the others are left out");
}

/// A ReLU is max(x, 0) only without any clip or slope of its own; scalars of other functions do not matter to it.
#[test]
fn a_relu_with_a_clip_or_slope_is_not_plain() {
    for (node, is_plain) in [
        (plain(), true),
        (Pointwise { relu_lower_clip: Some(0.0), relu_upper_clip: Some(f32::INFINITY), ..plain() }, true),
        (Pointwise { swish_beta: Some(2.0), elu_alpha: Some(2.0), softplus_beta: Some(2.0), ..plain() }, true),
        (Pointwise { relu_lower_clip: Some(1.0), ..plain() }, false),
        (Pointwise { relu_upper_clip: Some(6.0), ..plain() }, false),
        (Pointwise { relu_lower_clip_slope: Some(0.01), ..plain() }, false),
        (Pointwise { relu_lower_clip: Some(f32::NAN), ..plain() }, false),
    ] {
        assert_eq!(Parameters::of(&node).is_plain_relu(), is_plain, "{node:?}");
    }
}
