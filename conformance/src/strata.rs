//! Strata of the suite: cases that ask the same of an engine, but for extents, numbers and the like.
//!
//! A stratum is a rule × types × layout: the nodes in their order (pointwise ones by their class and the broadcast of
//! their operands), the element types of real tensors and of intermediates, and the layout of the largest tensor. A
//! trait is a property that matters too, but not in every combination with these: ranks, modes, compute types, unusual
//! values, and that a convolution is grouped, flipped or padded on one side. A covering sample has a case of every
//! stratum and of every trait; a sample of rules has one of every rule, in whatever types and layout, of every first node
//! in all its types and layouts, and of every trait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use hipdnn_schemas::{
    ConvMode, Convolution, GraphDef, Node, Operation, Pointwise, PointwiseMode, TensorDef, TensorUid,
};

use crate::cases::{Case, Layout};
use crate::inputs::Random;

/// Properties of a graph of which a sample has every combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combinations {
    /// Rule × types × layout.
    RuleTypesLayout,
    /// Rules alone, and first node × types × layout.
    Rule,
}

/// Cases that cover all combinations.
#[derive(Debug)]
pub struct Covering {
    /// Places of the chosen cases.
    pub chosen: Vec<usize>,
    /// Number of strata, or of rules.
    pub strata: usize,
    /// Number of traits.
    pub traits: usize,
}

/// Cost, in operations, up to which cases count as equally cheap: the overhead of an execution is larger.
const FREE: u64 = 20_000;

/// A seeded choice that has a case of every combination and of every trait, cheap cases first.
pub fn covering(cases: &[Case], among: &[usize], combinations: Combinations, choice: u64) -> Covering {
    let mut random = Random::new(choice);
    let mut strata: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &index in among {
        let name = match combinations {
            Combinations::RuleTypesLayout => stratum(&cases[index]),
            Combinations::Rule => rule(&cases[index]),
        };
        strata.entry(name).or_default().push(index);
    }
    let costs: HashMap<usize, u64> = among.iter().map(|&index| (index, cost(&cases[index]))).collect();
    let traits: HashMap<usize, BTreeSet<String>> =
        among.iter().map(|&index| (index, traits(&cases[index], combinations))).collect();
    let mut open: BTreeSet<&String> = traits.values().flatten().collect();
    let count = open.len();
    let mut candidates: Vec<Vec<usize>> = strata.into_values().map(|members| cheap(members, &costs)).collect();
    for list in &mut candidates {
        shuffle(list, &mut random);
    }
    // Where there is no choice there is nothing to lose by going first.
    candidates.sort_by_key(Vec::len);
    let gain = |index: &usize, open: &BTreeSet<&String>| traits[index].iter().filter(|one| open.contains(one)).count();
    let mut chosen = Vec::new();
    for list in &candidates {
        let best = list.iter().copied().max_by_key(|index| (gain(index, &open), Reverse(costs[index].max(FREE))));
        let best = best.expect("a stratum has members");
        open.retain(|one| !traits[&best].contains(*one));
        chosen.push(best);
    }
    // Of the rest always one that has the most of what is missing, as few cases as can easily be had.
    let mut rest = among.to_vec();
    shuffle(&mut rest, &mut random);
    rest.sort_by_key(|index| costs[index].max(FREE));
    while !open.is_empty() {
        let gains = rest.iter().map(|index| (gain(index, &open), *index)).filter(|(gain, _)| *gain > 0);
        let gains: Vec<(usize, usize)> = gains.collect();
        let Some((_, best)) = gains.iter().copied().rev().max_by_key(|(gain, _)| *gain) else { break };
        rest = gains.into_iter().map(|(_, index)| index).collect();
        open.retain(|one| !traits[&best].contains(*one));
        chosen.push(best);
    }
    chosen.sort_unstable();
    Covering { chosen, strata: candidates.len(), traits: count }
}

/// The cases that cost no more than twice the cheapest.
fn cheap(mut members: Vec<usize>, costs: &HashMap<usize, u64>) -> Vec<usize> {
    let least = members.iter().map(|index| costs[index]).min().unwrap_or_default();
    members.retain(|index| costs[index] <= least.max(FREE).saturating_mul(2));
    members
}

fn shuffle(list: &mut [usize], random: &mut Random) {
    for i in (1..list.len()).rev() {
        list.swap(i, random.below(i + 1));
    }
}

/// The tensors of a graph by uid.
struct Tensors<'a>(HashMap<TensorUid, &'a TensorDef>);

impl<'a> Tensors<'a> {
    fn of(graph: &'a GraphDef) -> Tensors<'a> {
        Tensors(graph.tensors.iter().map(|tensor| (tensor.uid, tensor)).collect())
    }

    fn elements(&self, uid: TensorUid) -> u64 {
        self.dims(uid).iter().fold(1, |product, extent| product.saturating_mul(u64::try_from(*extent).unwrap_or(0)))
    }

    fn dims(&self, uid: TensorUid) -> &'a [i64] {
        self.0.get(&uid).map_or(&[], |tensor| &tensor.dims)
    }
}

/// Estimated number of multiplications and additions of a graph.
fn cost(case: &Case) -> u64 {
    if case.refused {
        return 0;
    }
    let tensors = Tensors::of(&case.graph);
    let spatial = |list: &[i64]| list.iter().skip(2).map(|extent| *extent as u64).product::<u64>();
    let work = |node: &Node| {
        let moved: u64 =
            node.operation.inputs().iter().chain(&node.operation.outputs()).map(|uid| tensors.elements(*uid)).sum();
        // For each place of the output the channels and taps of a filter.
        let convolution = |y: TensorUid, w: TensorUid| {
            let filters = tensors.dims(w).first().map_or(1, |filters| *filters as u64);
            tensors.elements(y) * (tensors.elements(w) / filters.max(1))
        };
        let rest = match &node.operation {
            Operation::ConvolutionFwd(node) => convolution(node.y, node.w),
            Operation::ConvolutionBwd(node) => convolution(node.dy, node.w),
            Operation::ConvolutionWrw(node) => convolution(node.dy, node.dw),
            Operation::Matmul(node) => {
                tensors.elements(node.c) * tensors.dims(node.a).last().map_or(1, |depth| *depth as u64)
            }
            Operation::ResampleFwd(node) => tensors.elements(node.y) * node.window.iter().product::<i64>() as u64,
            Operation::ResampleBwd(node) => tensors.elements(node.dx) * node.window.iter().product::<i64>() as u64,
            Operation::Sdpa(node) => {
                tensors.elements(node.q) * spatial(tensors.dims(node.k)) + tensors.elements(node.o)
            }
            _ => 0,
        };
        moved.saturating_add(rest)
    };
    case.graph.nodes.iter().map(work).fold(0, u64::saturating_add)
}

/// Stratum of a case: rule, types and layout, as text.
pub fn stratum(case: &Case) -> String {
    if case.refused {
        return "refused".into();
    }
    format!("{}; {}", rule(case), types_and_layout(&case.graph))
}

/// Rule of a case: its nodes in their order.
fn rule(case: &Case) -> String {
    if case.refused {
        return "refused".into();
    }
    let tensors = Tensors::of(&case.graph);
    case.graph.nodes.iter().map(|node| kind(node, &tensors)).collect::<Vec<_>>().join(" → ")
}

fn types_and_layout(graph: &GraphDef) -> String {
    let types = |is_virtual: bool| -> BTreeSet<&str> {
        let tensors = graph.tensors.iter().filter(|tensor| tensor.is_virtual == is_virtual);
        tensors.map(|tensor| tensor.data_type.json_name()).collect()
    };
    let list = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(" ");
    let size = |tensor: &&TensorDef| tensor.dims.iter().filter(|extent| **extent != 1).product::<i64>();
    let largest = graph.tensors.iter().filter(|tensor| !tensor.is_virtual).max_by_key(size);
    let between = types(true);
    let between = if between.is_empty() { String::new() } else { format!(" with {}", list(between)) };
    format!("{}{between}; {}", list(types(false)), largest.and_then(layout).unwrap_or("any layout"))
}

/// Traits of a case: for a sample of rules also its first node's kind with the graph's types and layout, and properties of a
/// convolution without these.
fn traits(case: &Case, combinations: Combinations) -> BTreeSet<String> {
    let mut traits = BTreeSet::new();
    if case.refused {
        return traits;
    }
    let (graph, tensors) = (&case.graph, Tensors::of(&case.graph));
    let written: BTreeSet<TensorUid> = graph.nodes.iter().flat_map(|node| node.operation.outputs()).collect();
    for node in &graph.nodes {
        let name = node.operation.kind();
        let behind = node.operation.inputs().iter().any(|uid| written.contains(uid));
        let mode = match &node.operation {
            Operation::Pointwise(node) => Some(node.mode.json_name()),
            Operation::Reduction(node) => Some(node.mode.json_name()),
            Operation::ResampleFwd(node) => Some(node.resample_mode.json_name()),
            Operation::ResampleBwd(node) => Some(node.resample_mode.json_name()),
            _ => None,
        };
        if let Some(mode) = mode {
            traits.insert(format!("{name} {mode}{}", if behind { " behind a node" } else { "" }));
        }
        let place = match &node.operation {
            Operation::ConvolutionFwd(node) => place(&node.convolution, tensors.dims(node.w), tensors.dims(node.x)),
            Operation::ConvolutionBwd(node) => place(&node.convolution, tensors.dims(node.w), tensors.dims(node.dx)),
            Operation::ConvolutionWrw(node) => place(&node.convolution, tensors.dims(node.dw), tensors.dims(node.x)),
            _ => String::new(),
        };
        if !place.is_empty() {
            traits.insert(match combinations {
                Combinations::RuleTypesLayout => format!("{name}{place}; {}", types_and_layout(graph)),
                Combinations::Rule => format!("{name}{place}"),
            });
        }
        traits.insert(format!("{name} in {}", node.compute_data_type));
    }
    let head = graph.nodes.first().map_or("nothing", |node| node.operation.kind());
    if combinations == Combinations::Rule {
        traits.insert(format!("{head} first; {}", types_and_layout(graph)));
    }
    let rank = graph.tensors.iter().map(|tensor| tensor.dims.len()).max().unwrap_or(0);
    let types = graph.tensors.iter().map(|tensor| tensor.data_type.json_name()).collect::<BTreeSet<_>>();
    traits.insert(format!("{head} of rank {rank} and {types:?}"));
    if !case.fills.is_empty() {
        let family = case.name.split('/').next().unwrap_or_default();
        traits.insert(format!("{head}: values of {family}, {types:?}"));
    }
    traits
}

/// Properties of a convolution that most lack: depthwise, grouped, asymmetric, flipped.
fn place(convolution: &Convolution, w: &[i64], x: &[i64]) -> String {
    let mut text = String::new();
    match (x.get(1), w.get(1)) {
        (Some(channels), Some(1)) if *channels > 1 => text += " depthwise",
        (Some(channels), Some(each)) if channels != each => text += " grouped",
        _ => {}
    }
    if convolution.pre_padding != convolution.post_padding {
        text += " asymmetric";
    }
    if convolution.mode == ConvMode::Convolution {
        text += " flipped";
    }
    text
}

/// Layout of a tensor; `None` if its extents do not tell.
fn layout(tensor: &TensorDef) -> Option<&'static str> {
    let extended: Vec<usize> = (0..tensor.dims.len()).filter(|axis| tensor.dims[*axis] != 1).collect();
    // A channel vector lies as it does in any layout.
    if extended.len() < 2 {
        return None;
    }
    let lies = |layout: Layout| {
        let strides = layout.strides(&tensor.dims);
        extended.iter().all(|axis| strides[*axis] == tensor.strides[*axis])
    };
    let span: i64 = 1 + extended.iter().map(|axis| (tensor.dims[*axis] - 1) * tensor.strides[*axis]).sum::<i64>();
    Some(match () {
        () if lies(Layout::First) => "first",
        () if lies(Layout::Last) => "last",
        () if span == tensor.dims.iter().product::<i64>() => "permuted",
        () => "gaps",
    })
}

/// A node without its extents and numbers.
fn kind(node: &Node, tensors: &Tensors) -> String {
    match &node.operation {
        Operation::Pointwise(node) => pointwise(node, tensors),
        Operation::ConvolutionFwd(_) | Operation::ConvolutionBwd(_) | Operation::ConvolutionWrw(_) => {
            node.operation.kind().to_string()
        }
        // Operands that may be missing are what these differ in.
        operation => {
            let named = |list: Vec<(&'static str, TensorUid)>| {
                list.into_iter().map(|(name, _)| name.trim_end_matches("_tensor_uid")).collect::<Vec<_>>().join(" ")
            };
            format!("{} ({} > {})", operation.kind(), named(operation.named_inputs()), named(operation.named_outputs()))
        }
    }
}

/// Class of a pointwise node, and the broadcast of its second operand.
fn pointwise(node: &Pointwise, tensors: &Tensors) -> String {
    use PointwiseMode::*;
    let class = match node.mode {
        ReluFwd => match (node.relu_lower_clip, node.relu_upper_clip, node.relu_lower_clip_slope) {
            (None | Some(0.0), None, None) => "relu",
            (_, None, _) => "leaky",
            _ => "clip",
        },
        Add => "add",
        CmpEq | CmpNeq | CmpGe | CmpGt | CmpLe | CmpLt => "compare",
        LogicalAnd | LogicalOr | LogicalNot => "logic",
        BinarySelect => "select",
        GenIndex => "index",
        mode if mode.json_name().ends_with("_bwd") => "backward",
        mode if mode.operands() == 2 => "binary",
        mode if mode.json_name().ends_with("_fwd") => "activation",
        _ => "unary",
    };
    let whole = tensors.elements(node.out_0);
    let goes = |uid: TensorUid| match tensors.0.get(&uid) {
        Some(tensor) if tensor.value.is_some() => "literal",
        Some(tensor) if tensor.is_runtime_pass_by_value => "scalar",
        _ if tensors.elements(uid) == whole => "full",
        _ if tensors.dims(uid).iter().filter(|extent| **extent != 1).count() <= 1 => "row",
        _ => "broadcast",
    };
    let others: Vec<&str> = [Some(node.in_0), node.in_1, node.in_2].into_iter().flatten().map(goes).collect();
    match others[..] {
        [] | ["full"] => class.to_string(),
        _ => format!("{class} {}", others.join("·")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn everything() -> (Vec<Case>, Vec<usize>) {
        let cases = cases::all().expect("the tables are right");
        let all = (0..cases.len()).collect();
        (cases, all)
    }

    fn traits_of(cases: &[Case], list: &[usize], combinations: Combinations) -> BTreeSet<String> {
        list.iter().flat_map(|index| traits(&cases[*index], combinations)).collect()
    }

    #[test]
    fn every_stratum_and_every_trait_is_covered() {
        let (cases, all) = everything();
        let covering = covering(&cases, &all, Combinations::RuleTypesLayout, 7);
        let of = |list: &[usize]| list.iter().map(|index| stratum(&cases[*index])).collect::<BTreeSet<_>>();
        let traits_of = |list: &[usize]| traits_of(&cases, list, Combinations::RuleTypesLayout);
        assert_eq!(of(&covering.chosen), of(&all));
        assert_eq!(traits_of(&covering.chosen), traits_of(&all));
        assert_eq!((covering.strata, covering.traits), (of(&all).len(), traits_of(&all).len()));
        assert!(covering.chosen.len() * 4 < cases.len(), "{} cases", covering.chosen.len());
        let again = |choice| super::covering(&cases, &all, Combinations::RuleTypesLayout, choice).chosen;
        assert_ne!(covering.chosen, again(8), "a seed makes another choice");
        assert_eq!(covering.chosen, again(7), "a choice can be made again");
    }

    #[test]
    fn a_sample_of_rules_has_every_rule_trait_and_first_node_in_fewer_cases() {
        let (cases, all) = everything();
        let chosen = covering(&cases, &all, Combinations::Rule, 7).chosen;
        let rules = |list: &[usize]| list.iter().map(|index| rule(&cases[*index])).collect::<BTreeSet<_>>();
        assert_eq!(rules(&chosen), rules(&all));
        let traits_of = |list: &[usize]| traits_of(&cases, list, Combinations::Rule);
        assert_eq!(traits_of(&chosen), traits_of(&all));
        let first = |text: &String| text.starts_with("ConvolutionBwdAttributes first; ");
        assert!(traits_of(&chosen).iter().filter(|text| first(text)).count() > 3, "types and layouts of a first node");
        let whole = covering(&cases, &all, Combinations::RuleTypesLayout, 7).chosen;
        assert!(
            chosen.len() * 2 < whole.len(),
            "expected less than half of {} cases, got {}",
            whole.len(),
            chosen.len()
        );
    }

    /// All cases of one kind of convolution in one type and layout are one stratum, and its cheapest is taken.
    #[test]
    fn cheap_cases_stand_for_dear_ones() {
        let (cases, _) = everything();
        let conv = |name: &str| cases.iter().position(|case| case.name == name).expect("a case of that name");
        let [small, large] = ["1x16x16x16-by-1x16x1x1", "8x16x16x16-by-1x16x1x1"]
            .map(|shape| conv(&format!("conv-fwd/first/float/{shape}")));
        assert_eq!(stratum(&cases[small]), stratum(&cases[large]));
        let covering = |among: &[usize]| covering(&cases, among, Combinations::RuleTypesLayout, 0);
        assert_eq!(covering(&[large, small]).chosen, [small]);
        let other = conv("conv-fwd/last/float/1x16x16x16-by-1x16x1x1");
        assert_eq!(covering(&[large, small, other]).strata, 2);
    }
}
