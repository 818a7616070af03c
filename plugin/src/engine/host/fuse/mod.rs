//! Fusing: a rewrite of the list of works, rule by rule.
//!
//! A fused work stands where the last of its nodes stood, so whatever else it reads has been computed. Each rule says what
//! it did, and for works that it left as they were why.

mod chain;
mod epilogue;
pub mod fold;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use hipdnn_schemas::{Graph, TensorUid};

use super::applicability::{Follow, Operand, Work};

/// Operands that the epilogue of a convolution can have.
pub const MAX_OPERANDS: usize = 8;

/// A rule of fusing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// What nobody reads is not computed.
    Dead,
    /// Functions behind a convolution are computed on its sums.
    Epilogue,
    /// A batch normalisation behind a convolution becomes a scale and a shift of its channels.
    Normalization,
    /// Element-wise functions behind each other are computed in one pass.
    Chain,
    /// Element-wise functions behind a matrix product are computed on its sums.
    ProductEpilogue,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Dead => "dead node",
            Rule::Epilogue => "convolution epilogue",
            Rule::Normalization => "batch norm into convolution",
            Rule::Chain => "pointwise chain",
            Rule::ProductEpilogue => "matmul epilogue",
        })
    }
}

/// What a rule did, or why it did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The rule.
    pub rule: Rule,
    /// The nodes that it looked at, by their index in the graph.
    pub nodes: Vec<usize>,
    /// Why it did nothing, if it did not.
    pub refused: Option<&'static str>,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note { rule, nodes, .. } = self;
        match self.refused {
            None => write!(f, "{rule}: nodes {nodes:?}"),
            Some(reason) => write!(f, "{rule}: not from nodes {nodes:?} on: {reason}"),
        }
    }
}

/// What is to be done for a graph.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// In order.
    pub works: Vec<Work>,
    /// For each work the nodes that it does, by their index in the graph.
    pub nodes: Vec<Vec<usize>>,
    /// What was rewritten, and what was not.
    pub notes: Vec<Note>,
}

/// Which works read a tensor.
pub struct Readers(HashMap<TensorUid, Vec<usize>>);

impl Readers {
    fn new(works: &[Option<Work>]) -> Readers {
        let mut readers: HashMap<TensorUid, Vec<usize>> = HashMap::new();
        for (index, work) in works.iter().enumerate() {
            let Some(work) = work else { continue };
            for uid in work.reads() {
                let readers = readers.entry(uid).or_default();
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
            }
        }
        Readers(readers)
    }

    /// Their indices, ascending.
    fn of(&self, uid: TensorUid) -> &[usize] {
        self.0.get(&uid).map_or(&[], Vec::as_slice)
    }
}

/// Rewrites a graph's works, of which there is one for each node, in its order. Without `fuse` only nodes that nobody needs
/// are left out.
pub fn fuse(graph: &Graph, works: Vec<Work>, fuse: bool) -> Rewritten {
    let mut nodes: Vec<Vec<usize>> = (0..works.len()).map(|index| vec![index]).collect();
    let mut works: Vec<Option<Work>> = works.into_iter().map(Some).collect();
    let mut notes = Vec::new();
    dead(graph, &mut works, &mut notes);
    if fuse {
        let readers = Readers::new(&works);
        for index in 0..works.len() {
            epilogue::apply(graph, &mut works, &mut nodes, &readers, &mut notes, index);
        }
        let readers = Readers::new(&works);
        for index in (0..works.len()).rev() {
            chain::apply(graph, &mut works, &mut nodes, &readers, &mut notes, index);
        }
    }
    let (works, nodes) = works.into_iter().zip(nodes).filter_map(|(work, nodes)| Some((work?, nodes))).unzip();
    Rewritten { works, nodes, notes }
}

/// Leaves out what writes virtual tensors only, which no work reads.
fn dead(graph: &Graph, works: &mut [Option<Work>], notes: &mut Vec<Note>) {
    let mut needed: std::collections::HashSet<TensorUid> = Default::default();
    for (index, entry) in works.iter_mut().enumerate().rev() {
        let Some(work) = entry else { continue };
        let writes = work.writes();
        if writes.iter().any(|uid| needed.contains(uid) || !graph.tensor(*uid).is_virtual()) {
            needed.extend(work.reads());
        } else {
            *entry = None;
            notes.push(Note { rule: Rule::Dead, nodes: vec![index], refused: None });
        }
    }
}

impl Follow {
    /// Operands that it takes.
    fn operands(&self) -> usize {
        match self {
            Follow::Activation(_) => 0,
            Follow::Add(_) | Follow::Mul(_) => 1,
            Follow::Fold(_) => 2,
        }
    }

    /// The tensor that is added or multiplied with.
    pub fn summand(&self) -> Option<TensorUid> {
        match self {
            Follow::Add(Operand::Tensor(uid)) | Follow::Mul(Operand::Tensor(uid)) => Some(*uid),
            _ => None,
        }
    }

    /// The tensors that it reads.
    pub fn tensors(&self) -> Vec<TensorUid> {
        match self {
            Follow::Add(Operand::Tensor(uid)) | Follow::Mul(Operand::Tensor(uid)) => vec![*uid],
            Follow::Fold(fold) => fold.tensors(),
            _ => Vec::new(),
        }
    }
}
