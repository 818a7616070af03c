//! Pointwise nodes: the scalars of their functions ([`Parameters`]), the arithmetics that those are computed in
//! ([`Number`], [`Real`]), and their one definition ([`apply`]).

mod arithmetic;
mod modes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use hipdnn_schemas::Pointwise;

pub use arithmetic::{Number, Real, Whole};
pub use modes::{Operands, apply, apply_whole, is_whole, keeps_whole};

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

    /// True if a ReLU is `max(x, 0)`.
    pub fn is_plain_relu(&self) -> bool {
        (self.relu_lower_clip, self.relu_upper_clip, self.relu_lower_clip_slope) == (0.0, f32::INFINITY, 0.0)
    }

    /// Scalars as numbers, in the order of the fields.
    #[inline(always)]
    fn scalars<N: Number>(&self) -> [N; 6] {
        let p = self;
        let relu = (p.relu_lower_clip, p.relu_upper_clip, p.relu_lower_clip_slope);
        let values = [relu.0, relu.1, relu.2, p.swish_beta, p.elu_alpha, p.softplus_beta];
        std::array::from_fn(|place| N::scalar(place, values[place]))
    }
}

#[cfg(test)]
mod tests;
