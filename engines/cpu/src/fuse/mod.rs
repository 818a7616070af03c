//! Fusion: a rewrite of the list of works, rule by rule.
//!
//! A fused work stands where the last of its nodes stood, so whatever else it reads has been computed. Each rule
//! remarks on the works that it rewrote, and on those that it left as they were, with the reason.

mod activation;
mod attention;
mod chain;
mod epilogue;
pub mod fold;
mod gradient;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt;

use hipdnn_schemas::{Graph, TensorUid};
use smallvec::{SmallVec, smallvec};

use super::settings::Settings;
use super::work::Work;

/// Nodes of a work, by their index in the graph.
pub type NodeList = SmallVec<[usize; 4]>;

/// Rule of fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Dead-code elimination.
    Dead,
    /// A decomposed activation becomes one function.
    Activation,
    /// Element-wise consumers of a convolution become its epilogue.
    Epilogue,
    /// A batch normalization behind a convolution becomes a scale and a shift of its channels.
    Normalization,
    /// Element-wise functions behind each other are computed in one pass.
    Chain,
    /// Element-wise consumers of a matrix product become its epilogue.
    ProductEpilogue,
    /// Reductions and element-wise functions over the same groups are computed row by row.
    Rows,
    /// Two matrix products with a softmax between them become one attention.
    Attention,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Dead => "dead node",
            Rule::Activation => "activation",
            Rule::Epilogue => "convolution epilogue",
            Rule::Normalization => "batch norm into convolution",
            Rule::Chain => "pointwise chain",
            Rule::ProductEpilogue => "matmul epilogue",
            Rule::Rows => "rows",
            Rule::Attention => "attention",
        })
    }
}

/// Remark of a rule: what it rewrote, or the reason why it did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Rule that makes the remark.
    pub rule: Rule,
    /// Nodes that the rule looked at, by their index in the graph.
    pub nodes: NodeList,
    /// Reason for which nothing was rewritten; `None` if something was.
    pub refused: Option<&'static str>,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remark { rule, nodes, .. } = self;
        match self.refused {
            None => write!(f, "{rule}: nodes {nodes:?}"),
            Some(reason) => write!(f, "{rule}: not from nodes {nodes:?} on: {reason}"),
        }
    }
}

/// Fused works of a graph.
#[derive(Clone, Debug)]
pub struct Fused {
    /// Works, in order.
    pub works: Vec<Work>,
    /// Nodes of each work, by their index in the graph.
    pub nodes: Vec<NodeList>,
    /// Remarks: what was rewritten, and what was not.
    pub remarks: Vec<Remark>,
}

/// Consumers of each tensor, by the index of the work.
pub struct Readers<'a> {
    graph: &'a Graph,
    /// Of each tensor, in the order of the graph.
    by_position: Vec<SmallVec<[usize; 2]>>,
}

impl Readers<'_> {
    fn new<'a>(graph: &'a Graph, works: &[Option<Work>]) -> Readers<'a> {
        let mut by_position: Vec<SmallVec<[usize; 2]>> = vec![SmallVec::new(); graph.tensors().len()];
        for (index, work) in works.iter().enumerate() {
            let Some(work) = work else { continue };
            for uid in work.reads() {
                let readers = &mut by_position[graph.position(uid)];
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
            }
        }
        Readers { graph, by_position }
    }

    /// Indices of the works that read a tensor, ascending.
    fn of(&self, uid: TensorUid) -> &[usize] {
        &self.by_position[self.graph.position(uid)]
    }
}

/// Rewrites a graph's works, of which there is one for each node, in its order. Where the settings switch fusion off
/// only dead nodes are left out.
pub fn fuse(graph: &Graph, works: Vec<Work>, settings: &Settings) -> Fused {
    let mut nodes: Vec<NodeList> = (0..works.len()).map(|index| smallvec![index]).collect();
    let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
    let mut remarks = Vec::new();
    dead(graph, &mut works, &mut remarks);
    if settings.fuse {
        for index in 0..works.len() {
            attention::apply(graph, &mut works, &mut nodes, &mut remarks, (index, settings));
        }
        let readers = activations(graph, &mut works, &mut nodes, &mut remarks, true);
        for index in 0..works.len() {
            epilogue::apply(graph, &mut works, &mut nodes, &readers, &mut remarks, (index, settings.layout));
            gradient::apply(graph, &mut works, &mut nodes, &readers, &mut remarks, index);
        }
        rows::apply(graph, &mut works, &mut nodes, &mut remarks);
        let readers = activations(graph, &mut works, &mut nodes, &mut remarks, false);
        for index in (0..works.len()).rev() {
            chain::apply(graph, &mut works, &mut nodes, &readers, &mut remarks, index);
        }
    }
    let (works, nodes) = works.into_iter().zip(nodes).filter_map(|(work, nodes)| Some((work?, nodes))).unzip();
    Fused { works, nodes, remarks }
}

/// Applies the rule "activation" to all works, and finds their readers for the next.
fn activations<'a>(
    graph: &'a Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    remarks: &mut Vec<Remark>,
    of_convolutions: bool,
) -> Readers<'a> {
    let (readers, before) = (Readers::new(graph, works), remarks.len());
    for index in 0..works.len() {
        activation::apply(graph, works, nodes, &readers, remarks, (index, of_convolutions));
    }
    if remarks.len() == before { readers } else { Readers::new(graph, works) }
}

/// Nodes of the graph that these works compute, ascending.
fn nodes_of(nodes: &[NodeList], works: &[usize]) -> NodeList {
    let mut all: NodeList = works.iter().flat_map(|work| nodes[*work].iter().copied()).collect();
    all.sort_unstable();
    all
}

/// Eliminates works that write virtual tensors only, which no work reads.
fn dead(graph: &Graph, works: &mut [Option<Work>], remarks: &mut Vec<Remark>) {
    let mut is_needed = vec![false; graph.tensors().len()];
    for (index, entry) in works.iter_mut().enumerate().rev() {
        let Some(work) = entry else { continue };
        let writes = work.writes();
        if writes.iter().any(|uid| is_needed[graph.position(*uid)] || !graph.tensor(*uid).is_virtual()) {
            work.reads().into_iter().for_each(|uid| is_needed[graph.position(uid)] = true);
        } else {
            *entry = None;
            remarks.push(Remark { rule: Rule::Dead, nodes: smallvec![index], refused: None });
        }
    }
}
