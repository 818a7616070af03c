//! Claiming: which nodes become programs of this provider, and why the others do not.

use std::collections::{HashMap, HashSet};

use hipdnn_ep_compiler::cost::Traffic;
use hipdnn_ep_compiler::import::fold::Folded;
use hipdnn_ep_compiler::import::{self, Assumption, Declined, Importer};
use hipdnn_ep_compiler::ir::Function;
use hipdnn_ep_compiler::model::{Model, ValueIndex};
use hipdnn_ep_compiler::partition;

use crate::program::{Ask, Program};

/// Assumed extents of free dimensions when nodes are tried: of the first dimension, and of others. A node is claimed if it can be
/// imported for both of a row. Large windows need the second row, which is taken where the first one leaves more nodes out.
const ASSUMED_EXTENTS: [[[i64; 2]; 2]; 2] = [[[1, 64], [2, 96]], [[1, 640], [2, 704]]];

/// The outcome for a graph.
pub(crate) struct Claims {
    /// Partitions in an order of execution.
    pub partitions: Vec<Partition>,
    /// Reasons for leaving nodes to another provider, by node; `None` for nodes in a partition.
    pub reasons: Vec<Option<String>>,
}

/// Nodes that become one program.
pub(crate) struct Partition {
    /// Indices of nodes, ascending.
    pub nodes: Vec<usize>,
    /// The program for the extents of the model, assumed where they are free.
    pub program: Program,
}

/// Says why taking some nodes of a model as a partition would not pay.
pub(crate) type Worthwhile<'a> = &'a dyn Fn(&Model, &[usize], &Function, Traffic) -> Result<(), String>;

/// Partitions a graph into what engines take.
///
/// `reasons` has what is known already against a node. `worthwhile` says why taking a partition would not pay.
pub(crate) fn claim(
    model: &Model,
    mut reasons: Vec<Option<String>>,
    worthwhile: Worthwhile<'_>,
    ask: Ask<'_>,
) -> Claims {
    let symbolic = model.is_symbolic();
    let deciding = import::content::deciding(model);
    let mut extents = Vec::new();
    let mut best: Option<Vec<Option<String>>> = None;
    for row in ASSUMED_EXTENTS {
        let row = if symbolic { &row[..] } else { &row[..1] };
        let mut found = reasons.clone();
        let assumed: Vec<Known> = row.iter().map(|assumed| analyze(model, *assumed, &deciding, &mut found)).collect();
        let left = |reasons: &[Option<String>]| reasons.iter().flatten().count();
        if best.as_ref().is_none_or(|best| left(&found) < left(best)) {
            (best, extents) = (Some(found), assumed);
        }
        if !symbolic || best.as_ref().is_some_and(|best| left(best) == left(&reasons)) {
            break;
        }
    }
    reasons = best.expect("at least one row was tried");
    loop {
        let taken: Vec<bool> = reasons.iter().map(Option::is_none).collect();
        let attempt = attempt(model, &taken, &extents, worthwhile, ask);
        match attempt {
            Ok(partitions) => return Claims { partitions, reasons },
            Err(declined) => {
                debug_assert!(!declined.is_empty());
                for (node, reason) in declined {
                    reasons[node] = Some(reason);
                }
            }
        }
    }
}

/// Extents and contents of values, known or assumed.
#[derive(Default)]
struct Known {
    extents: HashMap<ValueIndex, Vec<i64>>,
    contents: HashMap<ValueIndex, Folded>,
}

/// Imports every node that nothing is known against, one by one, and notes the extents of all values.
fn analyze(model: &Model, assumed: [i64; 2], deciding: &[ValueIndex], reasons: &mut [Option<String>]) -> Known {
    let mut assumption = Assumption::new(assumed, model);
    let mut importer = Importer::new(model);
    let mut known = Known::default();
    for (index, node) in model.nodes.iter().enumerate() {
        for input in node.inputs.iter().flatten() {
            if importer.bound_dims(*input).is_none()
                && let Some(dims) = assumption.dims(model, *input)
            {
                // What cannot be bound is missing where it is read, which is the better reason.
                let _ = importer.bind_input(*input, 0, &dims);
            }
            if let Some(dims) = importer.bound_dims(*input) {
                known.extents.insert(*input, dims);
            }
        }
        if reasons[index].is_none() && !deciding.is_empty() {
            known.contents.extend(importer.assume_contents(index, deciding));
        }
        if reasons[index].is_none()
            && let Err(Declined(reason)) = importer.import(index)
        {
            reasons[index] = Some(reason);
        }
    }
    known
}

/// Programs for all partitions of the taken nodes, or the nodes that cannot be taken.
fn attempt(
    model: &Model,
    taken: &[bool],
    extents: &[Known],
    worthwhile: Worthwhile<'_>,
    ask: Ask<'_>,
) -> Result<Vec<Partition>, Vec<(usize, String)>> {
    let mut result = Vec::new();
    let mut declined = Vec::new();
    for nodes in partition::partitions(model, taken) {
        match build(model, &nodes, extents, worthwhile, ask) {
            Ok(program) => result.push(Partition { nodes, program }),
            Err(refused) => declined.extend(refused),
        }
    }
    if declined.is_empty() { Ok(result) } else { Err(declined) }
}

/// The program of a partition for the first of some extents, if it can be imported for all of them and engines take whatever
/// operations it has at the others.
fn build(
    model: &Model,
    nodes: &[usize],
    extents: &[Known],
    worthwhile: Worthwhile<'_>,
    ask: Ask<'_>,
) -> Result<Program, Vec<(usize, String)>> {
    let functions = extents.iter().map(|extents| import_partition(model, nodes, extents));
    let functions = functions.collect::<Result<Vec<_>, _>>()?;
    let traffic = Traffic::of(model, nodes, &extents[0].extents);
    worthwhile(model, nodes, &functions[0], traffic)
        .map_err(|reason| nodes.iter().map(|node| (*node, reason.clone())).collect::<Vec<_>>())?;
    let labels = |node: usize| model.nodes[node].label.as_str();
    let (first, others) = functions.split_first().expect("a row of extents is not empty");
    for other in others.iter().filter(|other| !first.has_operations_of(other)) {
        Program::build(other, &labels, ask)?;
    }
    Program::build(first, &labels, ask)
}

/// The function of some nodes, whose inputs have these extents and are numbered in order of first use.
fn import_partition(model: &Model, nodes: &[usize], known: &Known) -> Result<Function, Vec<(usize, String)>> {
    let members: HashSet<usize> = nodes.iter().copied().collect();
    let mut importer = Importer::new(model);
    for (number, value) in import::entering(model, &members).into_iter().enumerate() {
        if let Some(content) = known.contents.get(&value) {
            importer.bind_content(value, content);
        } else if let Some(dims) = known.extents.get(&value) {
            // What cannot be bound is missing where it is read.
            let _ = importer.bind_input(value, number, dims);
        }
    }
    for node in nodes {
        importer.import(*node).map_err(|Declined(reason)| vec![(*node, reason)])?;
    }
    let last = *nodes.last().expect("a partition has nodes");
    importer.finish(&import::escaping(model, &members)).map_err(|Declined(reason)| vec![(last, reason)])
}
