//! Fusion: a rewrite of the list of works. Pointwise nodes that feed each other become one chain, which is one kernel.
//!
//! A pointwise node joins the chain that consumes its result if that is virtual and has no other reader: then it need
//! never exist in memory. The chain stands where its last node stood, so its other operands have been computed. Values
//! between the nodes keep the precision of `f32` instead of being rounded to the type of the tensor that is no more;
//! apart from that the result is the same. Dead works are eliminated.
//!
//! Chains and works over groups then join the kernels over groups that produce their operands: see [`region`].

mod blocks;
mod memory;
mod places;
mod vertical;

use hipdnn_schemas::{DataType, Graph, PointwiseMode, TensorUid, Uids};
use rustc_hash::FxHashSet;
use smallvec::smallvec;

use self::blocks::KernelBlocks;
use crate::emit::{Element, Op};
use crate::ir::elementwise::{Argument, ElementwiseOp};
use crate::ir::group::{GroupKernel, GroupWork, Input, Operand};
use crate::ir::op::{Convolution, Opaque, Work};

pub use self::memory::may_share;
pub use self::places::stays_within;

/// Limit of a chain's inputs: tensors and indices.
pub const MAX_INPUTS: usize = 16;

/// Limit of a chain's operations: a bound on the size of a kernel.
pub const MAX_OPERATIONS: usize = 64;

/// Fused group of nodes.
#[derive(Debug, Clone, PartialEq)]
pub enum FusionGroup {
    /// Convolution, or one of its gradients.
    Convolution(Convolution),
    /// Chain of pointwise nodes.
    Chain(Chain),
    /// Kernels over groups of elements.
    Groups(Groups),
    /// Operation of which only the operands are known.
    Opaque(Opaque),
}

impl FusionGroup {
    /// Input tensors.
    pub fn inputs(&self) -> Uids {
        match self {
            FusionGroup::Convolution(convolution) => convolution.inputs().as_slice().into(),
            FusionGroup::Chain(chain) => chain.tensors(),
            FusionGroup::Groups(groups) => groups.work.inputs(),
            FusionGroup::Opaque(opaque) => opaque.inputs.clone(),
        }
    }

    /// Output tensors.
    pub fn outputs(&self) -> Uids {
        match self {
            FusionGroup::Convolution(convolution) => smallvec![convolution.output()],
            FusionGroup::Chain(chain) => smallvec![chain.output()],
            FusionGroup::Groups(groups) => groups.work.outputs(),
            FusionGroup::Opaque(opaque) => opaque.outputs.clone(),
        }
    }

    /// Indices of its nodes in the graph.
    fn nodes(&self) -> Vec<usize> {
        match self {
            FusionGroup::Convolution(convolution) => vec![convolution.node],
            FusionGroup::Chain(chain) => chain.nodes().iter().map(|node| node.node).collect(),
            FusionGroup::Groups(groups) => groups.nodes.clone(),
            FusionGroup::Opaque(opaque) => vec![opaque.node],
        }
    }
}

/// Work over groups of elements, with the nodes that are fused into it.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    /// Indices of its nodes in the graph, in order.
    pub nodes: Vec<usize>,
    /// Kernels of the nodes.
    pub work: GroupWork,
}

/// Pointwise nodes in the order of the graph, of which only the last one's result is read by others.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    nodes: Vec<ElementwiseOp>,
    inputs: Vec<Argument>,
}

impl Chain {
    /// Chain of one node.
    pub(crate) fn new(node: ElementwiseOp) -> Chain {
        let mut chain = Chain { nodes: Vec::new(), inputs: Vec::new() };
        chain.inputs = chain.inputs_with(&node);
        chain.nodes.push(node);
        chain
    }

    /// Nodes, at least one.
    pub fn nodes(&self) -> &[ElementwiseOp] {
        &self.nodes
    }

    /// Result tensor.
    pub fn output(&self) -> TensorUid {
        self.nodes.last().expect("a chain has a node").output
    }

    /// Operands without duplicates; a tensor that is mapped in two ways to the result's dimensions is there twice.
    pub fn inputs(&self) -> &[Argument] {
        &self.inputs
    }

    /// Kernel of the chain by itself, over one group, of which every element of the result is a member.
    pub fn kernel(&self, graph: &Graph) -> GroupKernel {
        KernelBlocks::of_chain(graph, self).finish(|_| true).expect("a chain's result is stored")
    }

    /// Input tensors.
    fn tensors(&self) -> Uids {
        self.inputs.iter().map(|argument| argument.tensor).collect()
    }

    /// Operands of the chain with another node before it.
    fn inputs_with(&self, node: &ElementwiseOp) -> Vec<Argument> {
        let mut inputs: Vec<Argument> =
            self.inputs.iter().filter(|argument| argument.tensor != node.output).cloned().collect();
        for argument in &node.inputs {
            if !inputs.contains(argument) {
                inputs.push(argument.clone());
            }
        }
        inputs
    }
}

/// Fuses works as fusion groups. `works` has one for each node of the graph, in its order.
pub fn fuse(graph: &Graph, works: Vec<Work>) -> Vec<FusionGroup> {
    vertical::join(graph, chained(graph, works))
}

/// Fusion groups without fusion: one for each work that is not dead.
pub fn separate(graph: &Graph, works: Vec<Work>) -> Vec<FusionGroup> {
    let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
    drop_unseen(graph, &mut works);
    let fusion_group = |work: Work| match work {
        Work::Convolution(convolution) => FusionGroup::Convolution(convolution),
        Work::Pointwise(node) => FusionGroup::Chain(Chain::new(node)),
        Work::Groups(work) => FusionGroup::Groups(Groups { nodes: vec![work.node], work }),
        Work::Opaque(opaque) => FusionGroup::Opaque(opaque),
    };
    works.into_iter().flatten().map(fusion_group).collect()
}

/// Fuses pointwise nodes with each other.
fn chained(graph: &Graph, works: Vec<Work>) -> Vec<FusionGroup> {
    let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
    drop_unseen(graph, &mut works);
    // From the last node on, so that a node finds the chains of all that read its result. Chains are known by the index
    // of their last node.
    let mut chain_of: Vec<Option<usize>> = vec![None; works.len()];
    let mut chains: Vec<Option<Chain>> = vec![None; works.len()];
    for index in (0..works.len()).rev() {
        let Some(Work::Pointwise(node)) = &works[index] else { continue };
        let last = match joined(graph, &works, node, &chain_of, &chains) {
            Some((last, inputs)) => {
                let chain = chains[last].as_mut().expect("a chain that was found");
                chain.nodes.insert(0, node.clone());
                chain.inputs = inputs;
                last
            }
            None => {
                chains[index] = Some(Chain::new(node.clone()));
                index
            }
        };
        chain_of[index] = Some(last);
    }
    let fusion_groups = works.into_iter().enumerate().filter_map(|(index, work)| match work? {
        Work::Convolution(convolution) => Some(FusionGroup::Convolution(convolution)),
        Work::Pointwise(_) => chains[index].take().map(FusionGroup::Chain),
        Work::Groups(work) => Some(FusionGroup::Groups(Groups { nodes: vec![work.node], work })),
        Work::Opaque(opaque) => Some(FusionGroup::Opaque(opaque)),
    });
    fusion_groups.collect()
}

/// Dead-code elimination: removes works whose results are virtual and have no live reader, and such results of other
/// works.
fn drop_unseen(graph: &Graph, works: &mut [Option<Work>]) {
    let mut is_read = vec![false; graph.tensors().len()];
    for place in works.iter_mut().rev() {
        let is_seen = |output: TensorUid| !graph.tensor(output).is_virtual() || is_read[graph.position(output)];
        let inputs: Uids = match place {
            Some(Work::Convolution(work)) if is_seen(work.output()) => work.inputs().as_slice().into(),
            Some(Work::Opaque(work)) if work.outputs.iter().copied().any(is_seen) => work.inputs.clone(),
            Some(Work::Pointwise(work)) if is_seen(work.output) => work.inputs.iter().map(|i| i.tensor).collect(),
            Some(Work::Groups(work)) if work.outputs().into_iter().any(is_seen) => {
                tidy(work, is_seen);
                work.inputs()
            }
            _ => {
                *place = None;
                continue;
            }
        };
        inputs.into_iter().for_each(|uid| is_read[graph.position(uid)] = true);
    }
}

/// Removes dead results from a work.
fn tidy(work: &mut GroupWork, is_seen: impl Fn(TensorUid) -> bool) {
    let kernels: Vec<KernelBlocks> = work.kernels.iter().map(KernelBlocks::of).collect();
    work.kernels = finish(&kernels, is_seen);
}

/// Kernels after the elimination of dead stores, passes and values.
fn finish(blocks: &[KernelBlocks], is_seen: impl Fn(TensorUid) -> bool) -> Vec<GroupKernel> {
    let mut kernels = Vec::new();
    let mut read: FxHashSet<Operand> = FxHashSet::default();
    for blocks in blocks.iter().rev() {
        let is_seen = |operand: Operand| read.contains(&operand) || operand.tensor().is_some_and(&is_seen);
        let Some(kernel) = blocks.finish(is_seen) else { continue };
        let elements = kernel.passes.iter().flat_map(|pass| pass.inputs()).filter_map(|input| match input {
            Input::Element { of, .. } => Some(*of),
            _ => None,
        });
        read.extend(elements);
        kernels.push(kernel);
    }
    kernels.reverse();
    kernels
}

/// Chain that the node can join, and the operands of both together.
fn joined(
    graph: &Graph,
    works: &[Option<Work>],
    node: &ElementwiseOp,
    chain_of: &[Option<usize>],
    chains: &[Option<Chain>],
) -> Option<(usize, Vec<Argument>)> {
    let between = graph.tensor(node.output);
    if !between.is_virtual() || !keeps_its_value(node, between.data_type()) {
        return None;
    }
    let mut readers = graph.consumers(node.output).iter().filter(|reader| works[**reader].is_some());
    let last = chain_of[*readers.next()?]?;
    if readers.any(|reader| chain_of[*reader] != Some(last)) {
        return None;
    }
    // What stands between may write to where the node reads.
    let mut passed = chains[node.node + 1..last].iter().flatten();
    let given: Uids = node.inputs.iter().map(|argument| argument.tensor).collect();
    if passed.any(|chain| memory::overwrites(graph, &given, &[chain.output()], &chain.tensors())) {
        return None;
    }
    let chain = chains[last].as_ref()?;
    let inputs = chain.inputs_with(node);
    let nodes = || chain.nodes.iter().chain([node]);
    let fits = graph.tensor(chain.output()).dims() == between.dims()
        && chain.inputs.iter().all(|argument| argument.tensor != node.output || argument.axes.is_none())
        && nodes().map(|node| node.program.len()).sum::<usize>() <= MAX_OPERATIONS
        && inputs.len() + nodes().filter(|node| node.index.is_some()).count() <= MAX_INPUTS;
    fits.then_some((last, inputs))
}

/// True if the function's result stays the same, up to rounding, when it is not stored in that type.
fn keeps_its_value(node: &ElementwiseOp, data_type: DataType) -> bool {
    match data_type {
        DataType::Float | DataType::Half | DataType::BFloat16 => true,
        DataType::Boolean => node.program.last().is_some_and(is_truth),
        _ => false,
    }
}

/// True if an operation gives 0 or 1, the values of a tensor of booleans.
fn is_truth(op: &Op) -> bool {
    use PointwiseMode::*;
    match op {
        Op::Pointwise { mode, .. } => {
            matches!(mode, CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt | CmpLe | LogicalAnd | LogicalOr | LogicalNot)
        }
        Op::Round { to, .. } => *to == Element::Boolean,
    }
}

#[cfg(any(test, feature = "testing"))]
pub use self::vertical::tests::{Computed, examples};

#[cfg(test)]
mod tests;
