//! Epilogue of an operation: pointwise nodes, one after the other.
//!
//! A tail is words with spaces between them: `bias`, `residual`, or the name of a pointwise mode (`relu` and the other
//! activations without their `_fwd`). `mode@channel`, `@full`, `@row` and `@scalar` say what a second operand looks like;
//! `^` behind the mode swaps the operands; `mode:lower=0,upper=6,slope=0.01,beta=2,alpha=0.5` sets parameters.

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode, TensorUid};

use super::Layout;
use super::net::Net;

/// The types of a tail.
#[derive(Clone, Copy)]
pub(super) struct Types {
    /// Type of intermediates.
    pub(super) intermediate: DataType,
    /// Type of further operands and of the result.
    pub(super) io: DataType,
    /// Compute type of the nodes.
    pub(super) compute: DataType,
}

/// Sets parameters written as `name=value,…`.
pub(super) fn set_parameters(node: &mut Pointwise, text: &str) -> Result<(), String> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let wanted = || format!("expected a parameter such as lower=0, got {part:?}");
        let (name, value) = part.split_once('=').ok_or_else(wanted)?;
        let number: f32 = value.parse().map_err(|_| wanted())?;
        match name {
            "lower" => node.relu_lower_clip = Some(number),
            "upper" => node.relu_upper_clip = Some(number),
            "slope" => node.relu_lower_clip_slope = Some(number),
            "alpha" => node.elu_alpha = Some(number),
            "softplus" => node.softplus_beta = Some(number),
            "beta" => node.swish_beta = Some(number),
            "axis" => node.axis = Some(number as i64),
            _ => return Err(wanted()),
        }
    }
    Ok(())
}

/// A mode by its JSON name, or by that of an activation without `_fwd`.
pub(super) fn mode(text: &str) -> Result<PointwiseMode, String> {
    PointwiseMode::from_json_name(text)
        .or_else(|| PointwiseMode::from_json_name(&format!("{text}_fwd")))
        .or_else(|| PointwiseMode::from_json_name(&format!("{text}_op")))
        .ok_or_else(|| format!("expected a pointwise mode, got {text:?}"))
}

/// Adds the nodes behind the tensor `from`, and gives the tensor that the last one writes, which has memory behind it.
pub(super) fn append(
    net: &mut Net,
    from: TensorUid,
    dims: &[i64],
    layout: Layout,
    tail: &str,
    types: Types,
) -> Result<TensorUid, String> {
    let words: Vec<&str> = tail.split_whitespace().collect();
    let mut from = from;
    for (i, word) in words.iter().enumerate() {
        let (head, parameters) = word.split_once(':').unwrap_or((word, ""));
        let (name, operand) = head.split_once('@').unwrap_or((head, ""));
        let (name, swapped) = name.strip_suffix('^').map_or((name, false), |name| (name, true));
        let (mode, operand) = match name {
            "bias" => (PointwiseMode::Add, if operand.is_empty() { "channel" } else { operand }),
            "residual" => (PointwiseMode::Add, "full"),
            other => (self::mode(other)?, if operand.is_empty() { "full" } else { operand }),
        };
        let operand_dims: Vec<i64> = match operand {
            "full" => dims.to_vec(),
            "channel" => (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect(),
            "row" => (0..dims.len()).map(|axis| if axis + 1 == dims.len() { dims[axis] } else { 1 }).collect(),
            "scalar" | "runtime" => vec![1],
            other => return Err(format!("expected @full, @channel, @row, @scalar or @runtime, got @{other}")),
        };
        let second = (mode.operands() == 2).then(|| match operand {
            "scalar" => net.scalar(name, types.io, 0.75),
            "runtime" => net.runtime_scalar(name, types.io),
            _ => net.real(name, types.io, &operand_dims, layout),
        });
        let last = i + 1 == words.len();
        let out = match last {
            true => net.real("y", types.io, dims, layout),
            false => net.intermediate(&format!("t{i}"), types.intermediate, dims, layout),
        };
        let mut node = match (second, swapped) {
            (None, _) => Pointwise::unary(mode, from, out),
            (Some(second), false) => Pointwise::binary(mode, from, second, out),
            (Some(second), true) => Pointwise::binary(mode, second, from, out),
        };
        set_parameters(&mut node, parameters)?;
        net.node_in(types.compute, Operation::Pointwise(node));
        from = out;
    }
    Ok(from)
}
