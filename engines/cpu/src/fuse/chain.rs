//! The rules "pointwise chain" and "matmul epilogue": element-wise functions behind each other in one pass, which may
//! be the one that a matrix product is stored in.
//!
//! A node joins the node that reads it if all who read it are in the same pass, and its result is virtual and as large
//! as the pass's. Where that result had a narrower type than is computed with, it is rounded to it as if it had been
//! stored: the pass gives the very bits of the nodes one by one.

use hipdnn_engine_kernel::fuse::may_share;
use hipdnn_schemas::{Graph, TensorUid, Uids};
use smallvec::{SmallVec, smallvec};

use super::{NodeList, Readers, Remark, Rule, nodes_of};
use crate::nodes;
use crate::nodes::matmul::MatmulWork;
use crate::work::{Elementwise, Input, Work};
use hipdnn_cpu_pointwise::{Arg, ComputeType, Program, ProgramStep, Storage};

/// Maximum number of nodes of a pass: planning stays linear whatever the graph.
const MAX_NODES: usize = 32;

/// Fuses producers into the element-wise function at `last`.
pub(super) fn apply(
    graph: &Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    readers: &Readers<'_>,
    remarks: &mut Vec<Remark>,
    last: usize,
) {
    let Some(Work::Pointwise(end)) = &works[last] else { return };
    let mut group: NodeList = smallvec![last];
    let mut pass = end.clone();
    // Each tensor is tried once in a form of the group; a larger group may let a refused one in.
    let mut refused: Vec<(usize, &'static str)> = Vec::new();
    'grow: loop {
        refused.clear();
        for uid in inputs(&pass) {
            let Some(producer) = graph.producer(uid) else { continue };
            let Some(Work::Pointwise(first)) = &works[producer] else { continue };
            if let Err(reason) = fits(graph, readers, &group, uid, end, first.program.compute_type) {
                refused.push((producer, reason));
                continue;
            }
            let mut larger = group.clone();
            larger.push(producer);
            larger.sort_unstable();
            match join(graph, works, &larger) {
                Some(joined) => {
                    (group, pass) = (larger, joined);
                    continue 'grow;
                }
                None => refused.push((producer, "the pass has no room for more values")),
            }
        }
        break;
    }
    remarks.extend(refused.iter().map(|(producer, reason)| Remark {
        rule: Rule::Chain,
        nodes: smallvec![*producer, last],
        refused: Some(reason),
    }));
    if group.len() > 1 {
        remarks.push(Remark { rule: Rule::Chain, nodes: nodes_of(nodes, &group), refused: None });
    }
    let mut product = None;
    for uid in inputs(&pass) {
        let Some(producer) = graph.producer(uid) else { continue };
        let Some(Work::Matmul(work)) = &works[producer] else { continue };
        let fit = match fits(graph, readers, &group, uid, end, work.compute_type) {
            Ok(()) if work.epilogue.is_some() => Err("the product has an epilogue already"),
            Ok(()) if shares_bytes(graph, end.output) => Err("its threads would write bytes that they share"),
            Ok(()) if may_overwrite_factor(graph, work, &pass, end) => {
                Err("the result may be at the place of a factor that is read again")
            }
            // The product, and its two factors among the inputs.
            Ok(()) if pass.inputs.len() + 1 > nodes::MAX_INPUTS => Err("the product has no room for more operands"),
            other => other,
        };
        match fit {
            Err(reason) => {
                remarks.push(Remark {
                    rule: Rule::ProductEpilogue,
                    nodes: smallvec![producer, last],
                    refused: Some(reason),
                });
            }
            Ok(()) if product.is_none_or(|other| other < producer) => product = Some(producer),
            Ok(()) => {}
        }
    }
    for node in &group {
        works[*node] = None;
    }
    works[last] = match product.and_then(|producer| works[producer].take().map(|work| (producer, work))) {
        Some((producer, Work::Matmul(mut work))) => {
            work.epilogue = Some(pass);
            group.insert(0, producer);
            remarks.push(Remark { rule: Rule::ProductEpilogue, nodes: nodes_of(nodes, &group), refused: None });
            Some(Work::Matmul(work))
        }
        _ => Some(Work::Pointwise(pass)),
    };
    nodes[last] = nodes_of(nodes, &group);
}

/// True if a caller may have the result at the place of a factor, because that is also an operand of the element-wise functions:
/// some results would then be written before others read it.
fn may_overwrite_factor(graph: &Graph, work: &MatmulWork, pass: &Elementwise, end: &Elementwise) -> bool {
    let factors = work.reads();
    pass.tensors().any(|uid| factors.contains(&uid) && may_share(graph, uid, end.output))
}

fn shares_bytes(graph: &Graph, uid: TensorUid) -> bool {
    Storage::of(graph.tensor(uid).data_type()).is_some_and(Storage::shares_bytes)
}

/// Input tensors of a pass, each once.
fn inputs(pass: &Elementwise) -> Uids {
    let mut uids: Uids = pass.tensors().collect();
    uids.sort_unstable();
    uids.dedup();
    uids
}

/// Checks that the producer of `uid`, computed in that domain, may join the group that `end` ends; else the reason.
fn fits(
    graph: &Graph,
    readers: &Readers<'_>,
    group: &[usize],
    uid: TensorUid,
    end: &Elementwise,
    compute_type: ComputeType,
) -> Result<(), &'static str> {
    let tensor = graph.tensor(uid);
    if !tensor.is_virtual() {
        return Err("its result is not virtual");
    }
    if !readers.of(uid).iter().all(|reader| group.contains(reader)) {
        return Err("its result has readers elsewhere");
    }
    if tensor.dims() != graph.tensor(end.output).dims() {
        return Err("its result is broadcast");
    }
    if compute_type != end.program.compute_type {
        return Err("it is computed with other numbers");
    }
    Ok(())
}

/// Fuses these nodes, ascending, into one pass; `None` if it would have too many live values, or inputs.
fn join(graph: &Graph, works: &[Option<Work>], group: &[usize]) -> Option<Elementwise> {
    if group.len() > MAX_NODES {
        return None;
    }
    let parts: SmallVec<[&Elementwise; 4]> = group
        .iter()
        .map(|node| match &works[*node] {
            Some(Work::Pointwise(part)) => part,
            _ => unreachable!("groups are made of element-wise functions"),
        })
        .collect();
    let end = *parts.last()?;
    let mut inputs: SmallVec<[Input; 4]> = SmallVec::new();
    let mut steps: SmallVec<[ProgramStep; 1]> = SmallVec::new();
    let mut results: SmallVec<[(TensorUid, usize); 4]> = SmallVec::new();
    for part in parts {
        let base = steps.len();
        let mut arg = |arg: Arg| match arg {
            Arg::Step(step) => Arg::Step(base + step),
            Arg::Input(input) => {
                let input = part.inputs[input];
                let inner = results.iter().find(|(uid, _)| input == Input::Tensor(*uid));
                if let Some((_, step)) = inner {
                    return Arg::Step(*step);
                }
                let at = inputs.iter().position(|other| *other == input).unwrap_or_else(|| {
                    inputs.push(input);
                    inputs.len() - 1
                });
                Arg::Input(at)
            }
        };
        for step in &part.program.steps {
            let args = step.args.iter().map(|a| arg(*a)).collect();
            steps.push(ProgramStep { function: step.function, args, round: step.round });
        }
        let storage = Storage::of(graph.tensor(part.output).data_type())?;
        let exact = match end.program.compute_type {
            ComputeType::F32 => storage == Storage::F32,
            ComputeType::F64 => storage == Storage::F64,
            ComputeType::I64 => storage == Storage::I64,
        };
        if part.output != end.output
            && let Some(step) = steps.last_mut()
        {
            step.round = (!exact).then_some(storage);
        }
        results.push((part.output, steps.len() - 1));
    }
    let program = Program { compute_type: end.program.compute_type, steps };
    let room = inputs.len() <= nodes::MAX_INPUTS - 2 && program.compile().is_some();
    room.then_some(Elementwise { program, inputs, output: end.output })
}
