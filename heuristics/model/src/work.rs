//! What a graph asks for: steps, each with its operations and the bytes that it moves.
//!
//! A step is nodes that one kernel computes: chains of pointwise nodes and reductions, and those behind or in front of
//! one node of another kind. An intermediate between two nodes of a step moves no bytes.

use std::collections::{BTreeMap, HashSet};

use hipdnn_schemas::{Convolution, Graph, Operation, PointwiseMode, Tensor, TensorUid};

/// The kind of a step's work, by which devices are fast or slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Element-wise work, reductions, normalizations, pooling: memory sets the pace.
    Moving,
    /// Convolutions with few channels a group.
    Grouped,
    /// Convolutions with a filter of one tap.
    Pointlike,
    /// Convolutions of 3×3 taps in steps of one, the commonest that Winograd's algorithm computes.
    Winograd,
    /// Other convolutions.
    Convolution,
    /// Gradients of convolutions.
    Gradient,
    /// Matrix products and attention.
    Product,
}

impl Kind {
    /// All, in the order of their numbers as features.
    pub const ALL: [Kind; 7] = [
        Kind::Moving,
        Kind::Grouped,
        Kind::Pointlike,
        Kind::Winograd,
        Kind::Convolution,
        Kind::Gradient,
        Kind::Product,
    ];
}

/// What one kernel computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Kind of most of the operations.
    pub kind: Kind,
    /// Arithmetic operations: a multiply-add is two.
    pub operations: f64,
    /// Bytes that are read or written from outside of the step.
    pub bytes: f64,
    /// Bits of an element of the largest tensor.
    pub bits: u32,
    /// Number of nodes.
    pub nodes: usize,
}

/// Channels of a group from which on a convolution is no longer a grouped one, and Winograd's algorithm pays.
const CHANNELS: usize = 16;

/// The steps of a graph; `fused` for those of an engine that computes several nodes in one kernel.
pub fn steps(graph: &Graph, fused: bool) -> Vec<Step> {
    let groups = if fused { fused_nodes(graph) } else { (0..graph.nodes().len()).collect() };
    // By the first of a group's nodes, whose order is the graph's.
    let mut steps: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for (node, group) in groups.iter().enumerate() {
        let place = *places.entry(*group).or_insert_with(|| {
            steps.push((*group, Vec::new()));
            steps.len() - 1
        });
        steps[place].1.push(node);
    }
    steps.iter().map(|(group, members)| step(graph, &groups, *group, members)).collect()
}

/// The group of each node, named by one of its nodes.
fn fused_nodes(graph: &Graph) -> Vec<usize> {
    let nodes = graph.nodes();
    let mut groups: Vec<usize> = (0..nodes.len()).collect();
    let mut members: Vec<Vec<usize>> = groups.iter().map(|node| vec![*node]).collect();
    // The node of another kind in each group: two of them are never one kernel.
    let mut anchored: Vec<bool> = nodes.iter().map(|node| !is_light(&node.operation)).collect();
    for (consumer, node) in nodes.iter().enumerate() {
        for uid in node.operation.inputs() {
            let is_virtual = graph.tensor(uid).is_virtual();
            let Some(producer) = graph.producer(uid).filter(|_| is_virtual) else { continue };
            let (a, b) = (groups[producer], groups[consumer]);
            let joins = is_light(&nodes[producer].operation) || is_light(&node.operation);
            if a == b || !joins || (anchored[a] && anchored[b]) {
                continue;
            }
            // The smaller one takes the other's name, so that a node does so as often as its group doubles.
            let (into, from) = if members[a].len() < members[b].len() { (b, a) } else { (a, b) };
            anchored[into] |= anchored[from];
            let moved = std::mem::take(&mut members[from]);
            moved.iter().for_each(|node| groups[*node] = into);
            members[into].extend(moved);
        }
    }
    groups
}

/// True if a kernel of another node can compute the operation on its way.
fn is_light(operation: &Operation) -> bool {
    matches!(operation, Operation::Pointwise(_) | Operation::Reduction(_))
}

/// The step of a group with these nodes.
fn step(graph: &Graph, groups: &[usize], group: usize, members: &[usize]) -> Step {
    let mut step = Step { kind: Kind::Moving, operations: 0.0, bytes: 0.0, bits: 32, nodes: 0 };
    let (mut most, mut largest) = (0.0, 0.0);
    let mut counted: HashSet<TensorUid> = HashSet::new();
    for node in members.iter().map(|node| &graph.nodes()[*node]) {
        let (kind, operations) = work(graph, &node.operation);
        step.operations += operations;
        step.nodes += 1;
        if operations > most {
            (most, step.kind) = (operations, kind);
        }
        let outputs = node.operation.outputs();
        for uid in node.operation.inputs().into_iter().chain(outputs.iter().copied()) {
            let tensor = graph.tensor(uid);
            if !counted.insert(uid) {
                continue;
            }
            let bits = tensor.data_type().bits().unwrap_or(32);
            let bytes = bytes(tensor);
            if bytes > largest {
                (largest, step.bits) = (bytes, bits);
            }
            // What this step makes and nobody else reads stays where it is computed.
            let inner = tensor.is_virtual()
                && graph.producer(uid).is_some_and(|producer| groups[producer] == group)
                && graph.consumers(uid).iter().all(|consumer| groups[*consumer] == group);
            if !inner {
                step.bytes += bytes;
            }
        }
    }
    step
}

/// Bytes of a tensor's elements; those that a stride of 0 repeats count once.
fn bytes(tensor: &Tensor) -> f64 {
    let repeated = |(extent, stride): (&usize, &usize)| if *stride == 0 { 1.0 } else { *extent as f64 };
    let elements: f64 = tensor.dims().iter().zip(tensor.strides()).map(repeated).product();
    elements * f64::from(tensor.data_type().bits().unwrap_or(32)) / 8.0
}

/// Number of a tensor's elements.
fn elements(graph: &Graph, uid: TensorUid) -> f64 {
    product(graph.tensor(uid).dims())
}

fn product(dims: &[usize]) -> f64 {
    dims.iter().map(|extent| *extent as f64).product()
}

/// Shape of a convolution, as far as it decides about its speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Channels of the input that an output channel reads.
    pub input_channels: f64,
    /// Channels of the output in a group.
    pub output_channels: f64,
    /// Taps of the filter.
    pub taps: f64,
    /// Places of the output in one image.
    pub places: f64,
    /// Images.
    pub images: f64,
    /// Step of the window.
    pub stride: f64,
}

/// The shape of a convolution of either direction; `None` of other operations.
pub fn shape(graph: &Graph, operation: &Operation) -> Option<Shape> {
    let (x, w, y, convolution) = match operation {
        Operation::ConvolutionFwd(node) => (node.x, node.w, node.y, &node.convolution),
        Operation::ConvolutionBwd(node) => (node.dx, node.w, node.dy, &node.convolution),
        Operation::ConvolutionWrw(node) => (node.x, node.dw, node.dy, &node.convolution),
        _ => return None,
    };
    let dims = |uid| Some(graph.tensor(uid).dims()).filter(|dims| dims.len() > 2);
    let (x, w, y) = (dims(x)?, dims(w)?, dims(y)?);
    let groups = (x[1] / w[1]).max(1);
    Some(Shape {
        input_channels: w[1] as f64,
        output_channels: w[0] as f64 / groups as f64,
        taps: product(&w[2..]),
        places: product(&y[2..]),
        images: y[0] as f64,
        stride: convolution.stride.first().copied().unwrap_or(1) as f64,
    })
}

/// Kind of an operation, and its arithmetic operations.
pub fn work(graph: &Graph, operation: &Operation) -> (Kind, f64) {
    let of = |uid| elements(graph, uid);
    if let Some(shape) = shape(graph, operation) {
        let (outputs, convolution, forward) = match operation {
            Operation::ConvolutionFwd(node) => (of(node.y), &node.convolution, true),
            Operation::ConvolutionBwd(node) => (of(node.dy), &node.convolution, false),
            Operation::ConvolutionWrw(node) => (of(node.dy), &node.convolution, false),
            _ => return (Kind::Moving, 0.0),
        };
        return (kind(&shape, convolution, forward), 2.0 * outputs * shape.input_channels * shape.taps);
    }
    let last = |uid| graph.tensor(uid).dims().last().map_or(1.0, |extent| *extent as f64);
    let row = |uid| graph.tensor(uid).dims().iter().rev().nth(1).map_or(1.0, |extent| *extent as f64);
    let most = || operation.inputs().into_iter().chain(operation.outputs()).map(of).fold(0.0, f64::max);
    match operation {
        Operation::Matmul(node) => (Kind::Product, 2.0 * of(node.c) * last(node.a)),
        Operation::Sdpa(node) => (Kind::Product, 4.0 * of(node.q) * row(node.k)),
        Operation::SdpaBackward(node) => (Kind::Product, 10.0 * of(node.q) * row(node.k)),
        Operation::MoeGroupedMatmul(_) | Operation::MoeGroupedMatmulBwd(_) => {
            let inner = operation.inputs().first().map_or(1.0, |uid| last(*uid));
            (Kind::Product, 2.0 * operation.outputs().first().map_or(0.0, |uid| of(*uid)) * inner)
        }
        Operation::Pointwise(node) => (Kind::Moving, most() * operations_of(node.mode)),
        Operation::ResampleFwd(node) => (Kind::Moving, of(node.y) * window(&node.window)),
        Operation::ResampleBwd(node) => (Kind::Moving, of(node.dy) * window(&node.window)),
        Operation::Reduction(_) => (Kind::Moving, most()),
        // Normalizations and quantizations: some passes over the largest tensor.
        _ => (Kind::Moving, 8.0 * most()),
    }
}

fn window(window: &[i64]) -> f64 {
    window.iter().map(|extent| *extent as f64).product()
}

fn kind(shape: &Shape, convolution: &Convolution, forward: bool) -> Kind {
    let channels = shape.input_channels.min(shape.output_channels);
    if shape.input_channels * shape.output_channels < CHANNELS as f64 {
        return Kind::Grouped;
    }
    if !forward {
        return Kind::Gradient;
    }
    let in_steps_of_one = convolution.stride.iter().chain(&convolution.dilation).all(|step| *step == 1);
    match () {
        () if shape.taps == 1.0 => Kind::Pointlike,
        () if shape.taps == 9.0 && in_steps_of_one && channels >= CHANNELS as f64 => Kind::Winograd,
        () => Kind::Convolution,
    }
}

/// Operations of a pointwise mode for an element: those that go by series count as 16.
fn operations_of(mode: PointwiseMode) -> f64 {
    use PointwiseMode as Mode;
    match mode {
        Mode::Exp
        | Mode::Log
        | Mode::TanhFwd
        | Mode::TanhBwd
        | Mode::SigmoidFwd
        | Mode::SigmoidBwd
        | Mode::Erf
        | Mode::Sin
        | Mode::Tan
        | Mode::GeluFwd
        | Mode::GeluBwd
        | Mode::GeluApproxTanhFwd
        | Mode::GeluApproxTanhBwd
        | Mode::SwishFwd
        | Mode::SwishBwd
        | Mode::SoftplusFwd
        | Mode::SoftplusBwd
        | Mode::EluFwd
        | Mode::EluBwd => 16.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn steps_are_what_one_kernel_computes() {
        let graph = samples::convolution(1, 32, 64, 3, 56, &["relu"]);
        let fused = steps(&graph, true);
        assert_eq!(fused.len(), 1);
        let places = 56.0 * 56.0;
        assert_eq!(fused[0].operations, 2.0 * 64.0 * places * 32.0 * 9.0 + 64.0 * places);
        assert_eq!(fused[0].bytes, 4.0 * (32.0 * places + 64.0 * 32.0 * 9.0 + 64.0 * places));
        assert_eq!((fused[0].kind, fused[0].nodes, fused[0].bits), (Kind::Winograd, 2, 32));
        let single = steps(&graph, false);
        assert_eq!(single.len(), 2);
        let moved: f64 = single.iter().map(|step| step.bytes).sum();
        assert_eq!(moved, fused[0].bytes + 2.0 * 4.0 * 64.0 * places, "the intermediate is written and read");
    }

    #[test]
    fn two_convolutions_are_two_steps() {
        let graph = samples::bottleneck(1, 64, 28);
        let kinds: Vec<Kind> = steps(&graph, true).iter().map(|step| step.kind).collect();
        assert_eq!(kinds, [Kind::Pointlike, Kind::Winograd, Kind::Pointlike]);
    }

    #[test]
    fn kinds_follow_from_shapes() {
        for (graph, want) in [
            (samples::convolution(1, 3, 32, 7, 64, &[]), Kind::Convolution),
            (samples::convolution(1, 64, 64, 1, 14, &[]), Kind::Pointlike),
            (samples::depthwise(1, 64, 3, 14), Kind::Grouped),
            (samples::matmul(1, 64, 32, 48), Kind::Product),
            (samples::chain(1 << 10, &["tanh", "relu"]), Kind::Moving),
        ] {
            assert_eq!(steps(&graph, true)[0].kind, want, "{}", graph.name());
        }
        assert_eq!(steps(&samples::matmul(2, 64, 32, 48), true)[0].operations, 2.0 * 2.0 * 64.0 * 32.0 * 48.0);
    }
}
