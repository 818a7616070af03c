//! Fusing: a rewrite of the list of works. A convolution takes the pointwise nodes behind it into its epilogue.
//!
//! A pointwise node joins the convolution before it if nobody else reads what lies between them, and that is virtual:
//! then it need never exist in memory. The fused work stands where its last node stood, so whatever else it reads has
//! been computed. Values between the nodes keep the precision of `f32` instead of being rounded to the type of the
//! tensor that is no more; apart from that the result is the same.

use hipdnn_schemas::{Graph, PointwiseMode, Tensor, TensorUid, TensorValue};

use super::activation::Activation;
use super::applicability::{Convolution, Elementwise, Follow, Input, Operand, Work, element};
use super::pointwise::Function;

/// Operands that the epilogue of a convolution can have.
pub const MAX_OPERANDS: usize = 8;

/// Fuses what can be fused. `works` has one for each node of the graph, in its order.
pub fn fuse(graph: &Graph, works: Vec<Work>) -> Vec<Work> {
    let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
    for index in 0..works.len() {
        let Some(Work::Convolution(convolution)) = &works[index] else { continue };
        let mut convolution = convolution.clone();
        let mut at = index;
        while let Some(next) = follower(graph, &works, &convolution) {
            for node in next.nodes {
                works[node] = None;
                at = node;
            }
            convolution.epilogue.extend(next.steps);
            convolution.output = next.output;
        }
        simplify(graph, &mut convolution.epilogue);
        works[index] = None;
        works[at] = Some(Work::Convolution(convolution));
    }
    works.into_iter().flatten().collect()
}

/// Nodes that can be taken into an epilogue, ascending, and the steps that stand for them.
struct Follower {
    nodes: Vec<usize>,
    steps: Vec<Follow>,
    output: TensorUid,
}

fn follower(graph: &Graph, works: &[Option<Work>], convolution: &Convolution) -> Option<Follower> {
    let current = convolution.output;
    let between = graph.tensor(current);
    if !between.is_virtual() {
        return None;
    }
    let pointwise = |node: usize| match &works[node] {
        Some(Work::Pointwise(pointwise)) => Some(pointwise),
        _ => None,
    };
    let fits = |output: TensorUid| {
        let output = graph.tensor(output);
        output.dims() == between.dims() && element(output.data_type()).is_some()
    };
    let (nodes, steps, output) = match *graph.consumers(current) {
        [node] => {
            let pointwise = pointwise(node)?;
            (vec![node], steps(graph, pointwise, current)?, pointwise.output)
        }
        // x · gate(x), where the gate is a sigmoid, hard or not.
        [first, product] => {
            let product_node = pointwise(product)?;
            let (mut nodes, weight, activation) = gate(graph, works, current, first)?;
            let weight = graph.tensor(weight);
            let is_gate = weight.is_virtual()
                && weight.dims() == between.dims()
                && element(weight.data_type()).is_some()
                && graph.consumers(weight.uid()) == [product];
            let is_product = matches!(product_node.single()?, Function::Mode(PointwiseMode::Mul, _))
                && [[current, weight.uid()], [weight.uid(), current]].contains(&two(&product_node.inputs)?);
            if !is_gate || !is_product {
                return None;
            }
            nodes.push(product);
            (nodes, vec![Follow::Activation(activation)], product_node.output)
        }
        _ => return None,
    };
    let operands = convolution.epilogue.iter().chain(&steps).filter(|step| !matches!(step, Follow::Activation(_)));
    (fits(output) && operands.count() <= MAX_OPERANDS).then_some(Follower { nodes, steps, output })
}

/// The nodes from `first` on that compute a gate of `current`, the gate, and what `current` times the gate is.
fn gate(
    graph: &Graph,
    works: &[Option<Work>],
    current: TensorUid,
    first: usize,
) -> Option<(Vec<usize>, TensorUid, Activation)> {
    let pointwise = |node: usize| match &works[node] {
        Some(Work::Pointwise(pointwise)) => Some(pointwise),
        _ => None,
    };
    let node = pointwise(first)?;
    if *node.single()? == Function::Activation(Activation::Sigmoid) {
        return Some((vec![first], node.output, Activation::Swish { beta: 1.0 }));
    }
    // min(max(alpha · x + beta, 0), 1)
    let dims = graph.tensor(current).dims();
    let only_reader = |tensor: TensorUid| match *graph.consumers(tensor) {
        [reader] if graph.tensor(tensor).is_virtual() && graph.tensor(tensor).dims() == dims => Some(reader),
        _ => None,
    };
    let with_constant =
        |node: &Elementwise, mode: PointwiseMode, x: TensorUid| match (node.single()?, two(&node.inputs)?) {
            (Function::Mode(found, _), [a, b]) if *found == mode && a == x => constant(graph.tensor(b)),
            (Function::Mode(found, _), [a, b]) if *found == mode && b == x => constant(graph.tensor(a)),
            _ => None,
        };
    let alpha = with_constant(node, PointwiseMode::Mul, current)?;
    let second = only_reader(node.output)?;
    let beta = with_constant(pointwise(second)?, PointwiseMode::Add, node.output)?;
    let third = only_reader(pointwise(second)?.output)?;
    let clamp = pointwise(third)?;
    let is_clamp = *clamp.single()? == Function::Activation(UNIT_CLAMP);
    is_clamp.then(|| (vec![first, second, third], clamp.output, Activation::HardSwish { alpha, beta }))
}

const UNIT_CLAMP: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: 1.0, slope: 0.0 };

/// Puts one activation in the place of the steps `min(max(alpha · x + beta, 0), 1)`.
fn simplify(graph: &Graph, epilogue: &mut Vec<Follow>) {
    let number = |operand: &Operand| match operand {
        Operand::Literal(value) => Some(*value),
        Operand::Tensor(uid) => constant(graph.tensor(*uid)),
    };
    let mut at = 0;
    while at + 3 <= epilogue.len() {
        if let [Follow::Mul(alpha), Follow::Add(beta), Follow::Activation(UNIT_CLAMP)] = &epilogue[at..at + 3]
            && let (Some(alpha), Some(beta)) = (number(alpha), number(beta))
        {
            epilogue.splice(at..at + 3, [Follow::Activation(Activation::HardSigmoid { alpha, beta })]);
        }
        at += 1;
    }
}

fn two(inputs: &[Input]) -> Option<[TensorUid; 2]> {
    match *inputs {
        [Input::Tensor(a), Input::Tensor(b)] => Some([a, b]),
        _ => None,
    }
}

/// The steps that do to the sums what the node does to `current`.
fn steps(graph: &Graph, node: &Elementwise, current: TensorUid) -> Option<Vec<Follow>> {
    use PointwiseMode::*;
    let mode = match node.single()? {
        Function::Activation(activation) => return Some(vec![Follow::Activation(*activation)]),
        Function::Mode(mode, _) => *mode,
    };
    let other = match *node.inputs {
        [_] => None,
        [Input::Tensor(a), Input::Tensor(b)] if a == current && b != current => Some((graph.tensor(b), true)),
        [Input::Tensor(a), Input::Tensor(b)] if b == current && a != current => Some((graph.tensor(a), false)),
        _ => return None,
    };
    let operand = |tensor: &Tensor| element(tensor.data_type()).map(|_| Operand::Tensor(tensor.uid()));
    let negate = Follow::Activation(Activation::Neg);
    Some(match (mode, other) {
        (Abs, None) => vec![Follow::Activation(Activation::Abs)],
        (Neg, None) => vec![negate],
        (Add, Some((other, _))) => vec![Follow::Add(operand(other)?)],
        (Mul, Some((other, _))) => vec![Follow::Mul(operand(other)?)],
        // other - x
        (Sub, Some((other, false))) => vec![negate, Follow::Add(operand(other)?)],
        // x - other = -(-x + other)
        (Sub, Some((other, true))) => match constant(other) {
            Some(value) => vec![Follow::Add(Operand::Literal(-value))],
            None => vec![negate.clone(), Follow::Add(operand(other)?), negate],
        },
        (Div, Some((other, true))) => {
            let factor = constant(other)?.recip();
            if !factor.is_normal() {
                return None;
            }
            vec![Follow::Mul(Operand::Literal(factor))]
        }
        (Max, Some((other, _))) => vec![clip(constant(other)?, f32::INFINITY)?],
        (Min, Some((other, _))) => vec![clip(f32::NEG_INFINITY, constant(other)?)?],
        _ => return None,
    })
}

fn clip(lower_clip: f32, upper_clip: f32) -> Option<Follow> {
    let ordered = lower_clip <= upper_clip;
    ordered.then_some(Follow::Activation(Activation::Relu { lower_clip, upper_clip, slope: 0.0 }))
}

/// The value of a scalar that is fixed in the graph.
fn constant(tensor: &Tensor) -> Option<f32> {
    match tensor.value()? {
        TensorValue::Float32(value) | TensorValue::Float16(value) | TensorValue::BFloat16(value) => Some(value),
        _ => None,
    }
}
