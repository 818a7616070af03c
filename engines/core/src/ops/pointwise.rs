//! Pointwise nodes: the scalars of their functions.

use hipdnn_schemas::{Pointwise, PointwiseMode};

/// Scalars of a pointwise node, with their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// ReLU: up to here the slope holds. 0 when not given.
    pub relu_lower_clip: f32,
    /// ReLU: no value is above this. Infinity when not given.
    pub relu_upper_clip: f32,
    /// ReLU: slope below the lower clip. 0 when not given.
    pub relu_lower_clip_slope: f32,
    /// Swish: `x · sigmoid(beta · x)`. 1 when not given.
    pub swish_beta: f32,
    /// ELU: `alpha · (exp(x) - 1)` below 0. 1 when not given.
    pub elu_alpha: f32,
    /// Softplus: `ln(1 + exp(beta · x)) / beta`. 1 when not given.
    pub softplus_beta: f32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            relu_lower_clip: 0.0,
            relu_upper_clip: f32::INFINITY,
            relu_lower_clip_slope: 0.0,
            swish_beta: 1.0,
            elu_alpha: 1.0,
            softplus_beta: 1.0,
        }
    }
}

impl Parameters {
    /// Scalars of a node, with the defaults for those it does not give.
    pub fn of(node: &Pointwise) -> Parameters {
        let default = Parameters::default();
        Parameters {
            relu_lower_clip: node.relu_lower_clip.unwrap_or(default.relu_lower_clip),
            relu_upper_clip: node.relu_upper_clip.unwrap_or(default.relu_upper_clip),
            relu_lower_clip_slope: node.relu_lower_clip_slope.unwrap_or(default.relu_lower_clip_slope),
            swish_beta: node.swish_beta.unwrap_or(default.swish_beta),
            elu_alpha: node.elu_alpha.unwrap_or(default.elu_alpha),
            softplus_beta: node.softplus_beta.unwrap_or(default.softplus_beta),
        }
    }
}

/// True if the function maps integers to integers exactly: those are computed in `i64`.
pub fn keeps_whole(mode: PointwiseMode, parameters: &Parameters) -> bool {
    use PointwiseMode::*;
    match mode {
        ReluFwd => {
            let Parameters { relu_lower_clip, relu_upper_clip, relu_lower_clip_slope, .. } = *parameters;
            (relu_lower_clip, relu_upper_clip, relu_lower_clip_slope) == (0.0, f32::INFINITY, 0.0)
        }
        Identity | GenIndex | Abs | Neg | LogicalNot | Add | AddSquare | Sub | Mul | Max | Min | CmpEq | CmpNeq
        | CmpGt | CmpGe | CmpLt | CmpLe | LogicalAnd | LogicalOr | BinarySelect => true,
        _ => false,
    }
}
