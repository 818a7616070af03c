//! The rule "convolution epilogue": a convolution computes its element-wise consumers on its sums before they are
//! stored.
//!
//! A node joins the convolution before it if nobody else reads the tensor between them, and that is virtual: then it
//! need never exist in memory. Values between the nodes keep the precision of `f32` instead of being rounded to the
//! type of the tensor that is no more; apart from that, and from normalizations (see [`super::fold`]), the result is
//! the same.

use hipdnn_cpu_convolution::MAX_OPERANDS;
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_schemas::{Graph, PointwiseMode, Tensor, TensorUid, TensorValue};
use smallvec::smallvec;

use super::{NodeList, Readers, Remark, Rule, fold, nodes_of};
use crate::geometry::broadcast;
use crate::geometry::element;
use crate::layout::is_channels_last;
use crate::work::{Convolution, Elementwise, EpilogueOp, Input, Operand, Work};

/// Fuses consumers into the convolution at `index`; if `by_channels`, its kernels write contiguous channels as vectors.
pub(super) fn apply(
    graph: &Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    readers: &Readers<'_>,
    remarks: &mut Vec<Remark>,
    (index, by_channels): (usize, bool),
) {
    let taken = works[index].take_if(|work| matches!(work, Work::Convolution(_)));
    let Some(Work::Convolution(mut convolution)) = taken else { return };
    let mut taken: NodeList = smallvec![index];
    loop {
        match follower(graph, works, readers, &convolution, by_channels) {
            Ok(next) => {
                for node in next.nodes {
                    works[node] = None;
                    taken.push(node);
                }
                let folded = matches!(next.steps[..], [EpilogueOp::Fold(_)]);
                remarks.push(Remark {
                    rule: if folded { Rule::Normalization } else { Rule::Epilogue },
                    nodes: nodes_of(nodes, &taken),
                    refused: None,
                });
                convolution.epilogue.extend(next.steps);
                convolution.output = next.output;
            }
            Err(reason) => {
                remarks.push(Remark { rule: Rule::Epilogue, nodes: nodes_of(nodes, &taken), refused: Some(reason) });
                break;
            }
        }
    }
    simplify(graph, &mut convolution.epilogue);
    let at = *taken.iter().max().expect("the convolution itself at least");
    works[at] = Some(Work::Convolution(convolution));
    nodes[at] = nodes_of(nodes, &taken);
}

/// Nodes that an epilogue can take in, ascending, and the steps that stand for them.
struct Follower {
    nodes: NodeList,
    steps: Vec<EpilogueOp>,
    output: TensorUid,
}

/// Next consumer of the sums so far that can be fused, or the reason why none can.
fn follower(
    graph: &Graph,
    works: &[Option<Work>],
    readers: &Readers<'_>,
    convolution: &Convolution,
    by_channels: bool,
) -> Result<Follower, &'static str> {
    let current = convolution.output;
    let between = graph.tensor(current);
    if !between.is_virtual() {
        return Err("its result is not virtual");
    }
    let unknown = "what reads its result is no function that an epilogue has";
    let pointwise = |node: usize| match &works[node] {
        Some(Work::Pointwise(pointwise)) => Some(pointwise),
        _ => None,
    };
    let (nodes, steps, output) = match *readers.of(current) {
        [node] => match pointwise(node) {
            Some(pointwise) => (smallvec![node], steps(graph, pointwise, current).ok_or(unknown)?, pointwise.output),
            None => {
                let (fold, output) = fold::normalization(graph, works, node, current).ok_or(unknown)?;
                (smallvec![node], vec![EpilogueOp::Fold(fold)], output)
            }
        },
        [first, product] => gated(graph, works, readers, current, [first, product])
            .ok_or("its result has two readers that are no gate and its product")?,
        [] => return Err("nothing reads its result"),
        _ => return Err("its result has more than two readers"),
    };
    let operands = convolution.epilogue.iter().chain(&steps).map(EpilogueOp::operands).sum::<usize>();
    if graph.tensor(output).dims() != between.dims() {
        return Err("the reader's result has other extents");
    }
    if element(graph.tensor(output).data_type()).is_none() {
        return Err("the reader's result has a type that convolutions do not write");
    }
    if operands > MAX_OPERANDS {
        return Err("the epilogue has no room for more operands");
    }
    let beside = |operand: &Tensor| {
        let result = graph.tensor(output);
        match by_channels && is_channels_last(result) {
            true => broadcast(operand, result)[1] <= 1,
            false => neighbors(operand, result),
        }
    };
    if !steps.iter().filter_map(EpilogueOp::summand).all(|uid| beside(graph.tensor(uid))) {
        return Err("the places of its other operand are no neighbors in memory: a pass of its own is faster");
    }
    Ok(Follower { nodes, steps, output })
}

/// True if an operand's places for a plane of the result follow each other in memory, or are one. Those of a tensor
/// with its channels innermost are as far apart as it has channels, and a tile of sums would gather them one by one,
/// where a pass over the whole result reads everything in order.
fn neighbors(operand: &Tensor, result: &Tensor) -> bool {
    let strides = broadcast(operand, result);
    let mut inner = result.dims().iter().zip(strides).skip(2).rev().take(2).filter(|(extent, _)| **extent != 1);
    let Some((width, column)) = inner.next() else { return true };
    column <= 1 && inner.next().is_none_or(|(_, row)| row == width * column)
}

/// Matches x · gate(x), where the gate is a hard sigmoid.
fn gated(
    graph: &Graph,
    works: &[Option<Work>],
    readers: &Readers<'_>,
    current: TensorUid,
    [first, product]: [usize; 2],
) -> Option<(NodeList, Vec<EpilogueOp>, TensorUid)> {
    let between = graph.tensor(current);
    let Some(Work::Pointwise(product_node)) = &works[product] else { return None };
    let (mut nodes, weight, activation) = gate(graph, works, readers, current, first)?;
    let weight = graph.tensor(weight);
    let is_gate = weight.is_virtual()
        && weight.dims() == between.dims()
        && element(weight.data_type()).is_some()
        && readers.of(weight.uid()) == [product];
    let is_product = product_node.single()?.mode() == PointwiseMode::Mul
        && [[current, weight.uid()], [weight.uid(), current]].contains(&two(&product_node.inputs)?);
    if !is_gate || !is_product {
        return None;
    }
    nodes.push(product);
    Some((nodes, vec![EpilogueOp::Activation(activation)], product_node.output))
}

/// Matches a gate of `current`: the nodes from `first` on that compute it, its tensor, and the activation that
/// `current` times the gate is.
fn gate(
    graph: &Graph,
    works: &[Option<Work>],
    readers: &Readers<'_>,
    current: TensorUid,
    first: usize,
) -> Option<(NodeList, TensorUid, Activation)> {
    let pointwise = |node: usize| match &works[node] {
        Some(Work::Pointwise(pointwise)) => Some(pointwise),
        _ => None,
    };
    let node = pointwise(first)?;
    // min(max(alpha · x + beta, 0), 1)
    let dims = graph.tensor(current).dims();
    let only_reader = |tensor: TensorUid| match *readers.of(tensor) {
        [reader] if graph.tensor(tensor).is_virtual() && graph.tensor(tensor).dims() == dims => Some(reader),
        _ => None,
    };
    let with_constant = |node: &Elementwise, mode: PointwiseMode, x: TensorUid| match two(&node.inputs)? {
        _ if node.single()?.mode() != mode => None,
        [a, b] if a == x => constant(graph.tensor(b)),
        [a, b] if b == x => constant(graph.tensor(a)),
        _ => None,
    };
    let alpha = with_constant(node, PointwiseMode::Mul, current)?;
    let second = only_reader(node.output)?;
    let beta = with_constant(pointwise(second)?, PointwiseMode::Add, node.output)?;
    let third = only_reader(pointwise(second)?.output)?;
    let clamp = pointwise(third)?;
    let is_clamp = clamp.single()?.activation() == Some(UNIT_CLAMP);
    is_clamp.then(|| (smallvec![first, second, third], clamp.output, Activation::HardSwish { alpha, beta }))
}

const UNIT_CLAMP: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: 1.0, slope: 0.0 };

/// Replaces the steps `min(max(alpha · x + beta, 0), 1)` by one activation.
fn simplify(graph: &Graph, epilogue: &mut Vec<EpilogueOp>) {
    let number = |operand: &Operand| match operand {
        Operand::Literal(value) => Some(*value),
        Operand::Tensor(uid) => constant(graph.tensor(*uid)),
    };
    let mut at = 0;
    while at + 3 <= epilogue.len() {
        if let [EpilogueOp::Mul(alpha), EpilogueOp::Add(beta), EpilogueOp::Activation(UNIT_CLAMP)] =
            &epilogue[at..at + 3]
            && let (Some(alpha), Some(beta)) = (number(alpha), number(beta))
        {
            epilogue.splice(at..at + 3, [EpilogueOp::Activation(Activation::HardSigmoid { alpha, beta })]);
        }
        at += 1;
    }
}

pub(super) fn two(inputs: &[Input]) -> Option<[TensorUid; 2]> {
    match *inputs {
        [Input::Tensor(a), Input::Tensor(b)] => Some([a, b]),
        _ => None,
    }
}

/// Epilogue steps that do to the sums what the node does to `current`.
fn steps(graph: &Graph, node: &Elementwise, current: TensorUid) -> Option<Vec<EpilogueOp>> {
    use PointwiseMode::*;
    let function = node.single()?;
    if let Some(activation) = function.activation() {
        return Some(vec![EpilogueOp::Activation(activation)]);
    }
    let other = match *node.inputs {
        [_] => None,
        [Input::Tensor(a), Input::Tensor(b)] if a == current && b != current => Some((graph.tensor(b), true)),
        [Input::Tensor(a), Input::Tensor(b)] if b == current && a != current => Some((graph.tensor(a), false)),
        _ => return None,
    };
    let operand = |tensor: &Tensor| element(tensor.data_type()).map(|_| Operand::Tensor(tensor.uid()));
    let negate = EpilogueOp::Activation(Activation::Neg);
    Some(match (function.mode(), other) {
        (Abs, None) => vec![EpilogueOp::Activation(Activation::Abs)],
        (Neg, None) => vec![negate],
        (Add, Some((other, _))) => vec![EpilogueOp::Add(operand(other)?)],
        (Mul, Some((other, _))) => vec![EpilogueOp::Mul(operand(other)?)],
        // other - x
        (Sub, Some((other, false))) => vec![negate, EpilogueOp::Add(operand(other)?)],
        // x - other = -(-x + other)
        (Sub, Some((other, true))) => match constant(other) {
            Some(value) => vec![EpilogueOp::Add(Operand::Literal(-value))],
            None => vec![negate.clone(), EpilogueOp::Add(operand(other)?), negate],
        },
        (Div, Some((other, true))) => {
            let factor = constant(other)?.recip();
            if !factor.is_normal() {
                return None;
            }
            vec![EpilogueOp::Mul(Operand::Literal(factor))]
        }
        (Max, Some((other, _))) => vec![clip(constant(other)?, f32::INFINITY)?],
        (Min, Some((other, _))) => vec![clip(f32::NEG_INFINITY, constant(other)?)?],
        _ => return None,
    })
}

fn clip(lower_clip: f32, upper_clip: f32) -> Option<EpilogueOp> {
    let ordered = lower_clip <= upper_clip;
    ordered.then_some(EpilogueOp::Activation(Activation::Relu { lower_clip, upper_clip, slope: 0.0 }))
}

/// Value of a scalar that is fixed in the graph.
pub(super) fn constant(tensor: &Tensor) -> Option<f32> {
    match tensor.value()? {
        TensorValue::Float32(value) | TensorValue::Float16(value) | TensorValue::BFloat16(value) => Some(value),
        _ => None,
    }
}
