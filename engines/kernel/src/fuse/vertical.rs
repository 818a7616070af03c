//! Vertical fusion: chains and works that go through the same groups and members become part of the kernel that
//! produces their operands, so that a softmax or a normalization that a graph spells out is one kernel.
//!
//! A region begins with a work and grows along the consumers of its results. Consumers get these results without
//! memory: values of a group are left behind by the passes that compute them, values of members are recomputed where
//! they are read. Chains that only the region reads are recomputed where they are read too. A region stands where the
//! last of its fusion groups stood, so its other operands have been computed; it must be safe to move its fusion groups past those
//! that stand between.

use std::collections::HashSet;

use hipdnn_schemas::{DataType, Graph, TensorUid, Uids};
use smallvec::SmallVec;

use super::blocks::{Block, KernelBlocks, Kind};
use super::memory::{is_apart, may_share, overwrites};
use super::places::is_whole;
use super::{Chain, FusionGroup, Groups, finish};
use crate::emit::Op;
use crate::ir::elementwise::Argument;
use crate::ir::group::{AffineExpr, GroupKernel, GroupWork, IndexMap, Input, Operand, Pass, Store};
use crate::lower::split_reduction::is_cut;

/// Limit of the values in all programs of a kernel that fusion groups are joined to: a bound on its size.
const MAX_VALUES: usize = 256;

/// Limit of the elements that its programs read or write: each is described by arguments of the kernel.
const MAX_ELEMENTS: usize = 32;

/// Limit of the scalars of its operations: these are arguments too. With nine loops, the most that nodes have, and
/// numbers of 64 bits an element takes some 90 bytes of the 4096 that all arguments may have.
const MAX_SCALARS: usize = 96;

/// Number of groups below which a chain of its own keeps more of a device busy than one behind a work over groups ...
const FEW_GROUPS: usize = 64;

/// ... unless it has at most this number of members, so that a launch takes longer.
const FEW_MEMBERS: usize = 8192;

/// Limit of the distance between the first and the last fusion group of a region: a bound on the work of looking for fusion groups.
const MAX_SPAN: usize = 128;

/// Joins fusion groups vertically. The order stays topological: operands are computed before they are read.
pub(super) fn join(graph: &Graph, fusion_groups: Vec<FusionGroup>) -> Vec<FusionGroup> {
    let mut row = Row::new(graph, fusion_groups);
    for start in 0..row.fusion_groups.len() {
        if !matches!(row.fusion_groups[start], Some(FusionGroup::Groups(_))) || !Region::may_grow(graph, &row, start) {
            continue;
        }
        let mut kept: HashSet<TensorUid> = HashSet::new();
        // A chain that somebody else reads too is not taken, which is known in the end.
        let region = loop {
            let region = Region::grown(graph, &row, start, &kept);
            let seen: Vec<TensorUid> = region.taken.iter().copied().filter(|uid| region.is_seen(*uid)).collect();
            if seen.is_empty() {
                break region;
            }
            kept.extend(seen);
        };
        if region.joined.len() > 1 {
            let (joined, fusion_group) = (region.joined.clone(), region.fusion_group());
            row.replace(&joined, fusion_group);
        }
    }
    row.fusion_groups.into_iter().flatten().collect()
}

/// Fusion groups in order, with the readers and producers of tensors.
struct Row<'a> {
    graph: &'a Graph,
    fusion_groups: Vec<Option<FusionGroup>>,
    /// Inputs and outputs of each fusion group; none where it was replaced.
    operands: Vec<[Uids; 2]>,
    /// Readers and producers of tensors, in the order of the graph.
    readers: Vec<SmallVec<[usize; 2]>>,
    producers: Vec<Option<usize>>,
}

impl<'a> Row<'a> {
    fn new(graph: &'a Graph, fusion_groups: Vec<FusionGroup>) -> Row<'a> {
        let tensors = graph.tensors().len();
        let mut row = Row {
            graph,
            fusion_groups: Vec::with_capacity(fusion_groups.len()),
            operands: Vec::with_capacity(fusion_groups.len()),
            readers: vec![SmallVec::new(); tensors],
            producers: vec![None; tensors],
        };
        for (place, fusion_group) in fusion_groups.into_iter().enumerate() {
            row.fusion_groups.push(None);
            row.operands.push([Uids::new(), Uids::new()]);
            row.put(place, fusion_group);
        }
        row
    }

    fn put(&mut self, place: usize, fusion_group: FusionGroup) {
        let (inputs, outputs) = (fusion_group.inputs(), fusion_group.outputs());
        for uid in &inputs {
            self.readers[self.graph.position(*uid)].push(place);
        }
        for uid in &outputs {
            self.producers[self.graph.position(*uid)] = Some(place);
        }
        self.operands[place] = [inputs, outputs];
        self.fusion_groups[place] = Some(fusion_group);
    }

    /// Replaces several fusion groups by one, where the last of them was.
    fn replace(&mut self, places: &[usize], fusion_group: FusionGroup) {
        for place in places {
            self.fusion_groups[*place] = None;
            let [inputs, _] = std::mem::take(&mut self.operands[*place]);
            for uid in inputs {
                self.readers[self.graph.position(uid)].retain(|reader| *reader != *place);
            }
        }
        self.put(*places.iter().max().expect("something is replaced"), fusion_group);
    }

    fn readers(&self, uid: TensorUid) -> &[usize] {
        &self.readers[self.graph.position(uid)]
    }

    fn producer(&self, uid: TensorUid) -> Option<(usize, &FusionGroup)> {
        let place = self.producers[self.graph.position(uid)]?;
        Some((place, self.fusion_groups[place].as_ref()?))
    }
}

/// Fusion groups that are fused.
#[derive(Clone)]
struct Region<'a> {
    graph: &'a Graph,
    row: &'a Row<'a>,
    /// Indices of the fusion groups, the first work first.
    joined: Vec<usize>,
    /// Results of the producer chains that are fused into it.
    taken: Vec<TensorUid>,
    /// Results of chains that stay in memory.
    kept: &'a HashSet<TensorUid>,
    /// Kernels; fusion groups are joined to the last one.
    drafts: Vec<KernelBlocks>,
    /// First work; its kernels are those above.
    work: GroupWork,
}

impl<'a> Region<'a> {
    /// True if a region that begins there may become larger: a chain lies before its work, or a chain or work reads a result.
    fn may_grow(graph: &Graph, row: &Row<'_>, start: usize) -> bool {
        let joins = |place: &usize| {
            let fusion_group = row.fusion_groups[*place].as_ref();
            matches!(fusion_group, Some(FusionGroup::Chain(_) | FusionGroup::Groups(_)))
        };
        let [inputs, outputs] = &row.operands[start];
        let is_chain = |uid: &TensorUid| {
            graph.tensor(*uid).is_virtual() && matches!(row.producer(*uid), Some((_, FusionGroup::Chain(_))))
        };
        inputs.iter().any(is_chain) || outputs.iter().flat_map(|uid| row.readers(*uid)).any(joins)
    }

    fn grown(graph: &'a Graph, row: &'a Row<'a>, start: usize, kept: &'a HashSet<TensorUid>) -> Region<'a> {
        let Some(FusionGroup::Groups(groups)) = &row.fusion_groups[start] else {
            unreachable!("regions begin with works over groups")
        };
        let mut work = groups.work.clone();
        let kernels = std::mem::take(&mut work.kernels);
        let mut region = Region { graph, row, joined: vec![start], taken: Vec::new(), kept, drafts: Vec::new(), work };
        region.begin(start, &kernels);
        let mut place = start;
        while let Some(next) = region.next_reader(place).filter(|next| next - start <= MAX_SPAN) {
            let fusion_group = row.fusion_groups[next].as_ref().expect("who reads is there");
            match region.with(next, fusion_group) {
                Some(larger) => region = larger,
                None => break,
            }
            place = next;
        }
        region
    }

    /// First fusion group after that place that reads a result of the region.
    fn next_reader(&self, place: usize) -> Option<usize> {
        let outputs = self.joined.iter().flat_map(|place| &self.row.operands[*place][1]);
        let readers = outputs.flat_map(|uid| self.row.readers(*uid));
        readers.copied().filter(|reader| *reader > place).min()
    }

    /// Begins with the first work, and the producer chains that can be fused into it.
    fn begin(&mut self, start: usize, kernels: &[GroupKernel]) {
        let chains = self.chains_before(start, kernels);
        for kernel in kernels {
            let mut draft = KernelBlocks::new(&kernel.groups, &kernel.members);
            self.prepend(&mut draft, &chains, kernel);
            if draft.append(self.graph, kernel, 0).is_none() {
                draft = KernelBlocks::of(kernel);
            }
            self.drafts.push(draft);
        }
        self.take(&chains);
        // Without chains these are the work's own kernels, and nothing was moved.
        if !chains.is_empty() && !self.is_sound() {
            self.drafts = kernels.iter().map(KernelBlocks::of).collect();
            self.joined.truncate(1);
            self.taken.clear();
        }
    }

    fn take(&mut self, chains: &[usize]) {
        for place in chains {
            self.joined.push(*place);
            self.taken.extend(self.row.fusion_groups[*place].iter().flat_map(FusionGroup::outputs));
        }
    }

    /// Producer chains that these kernels may recompute where they read the results.
    fn chains_before(&self, start: usize, kernels: &[GroupKernel]) -> Vec<usize> {
        let mut chains = Vec::new();
        for (uid, _) in kernels.iter().flat_map(elements) {
            let tensor = self.graph.tensor(uid);
            let Some((place, FusionGroup::Chain(chain))) = self.row.producer(uid) else { continue };
            let is_known = self.joined.contains(&place) || chains.contains(&place) || self.kept.contains(&uid);
            if is_known || !tensor.is_virtual() || start - place > MAX_SPAN {
                continue;
            }
            // The back end may have the chain in one kernel with what computes its operand: MIOpen behind a convolution.
            let follows = chain.inputs().iter().any(|argument| self.has_epilogue(argument.tensor));
            let is_large = |argument: &&Argument| self.graph.tensor(argument.tensor).elements() == tensor.elements();
            let large = chain.inputs().iter().filter(is_large).count();
            let reads: Vec<usize> = kernels.iter().flat_map(|kernel| reads_of(kernel, uid)).collect();
            // What is moved when each reader computes it, and when it lies in memory.
            let pays = reads.len() * large <= large + 1 + reads.len()
                && reads.iter().all(|turns| *turns <= 2 * tensor.elements());
            if pays && !follows {
                chains.push(place);
            }
        }
        chains
    }

    /// True if a tensor is computed by what may have chains behind it in one kernel with it.
    fn has_epilogue(&self, uid: TensorUid) -> bool {
        let producer = self.row.producer(uid).map(|(_, fusion_group)| fusion_group);
        self.graph.tensor(uid).is_virtual()
            && match producer {
                Some(FusionGroup::Convolution(_)) => true,
                Some(FusionGroup::Opaque(opaque)) => opaque.has_epilogue,
                _ => false,
            }
    }

    /// Prepends chains to a kernel that reads them: it then finds their results at the indices where it reads them.
    fn prepend(&self, draft: &mut KernelBlocks, chains: &[usize], kernel: &GroupKernel) {
        for place in chains {
            let Some(FusionGroup::Chain(chain)) = &self.row.fusion_groups[*place] else { continue };
            if let Some(at) = elements(kernel).find(|(uid, _)| *uid == chain.output()).map(|(_, at)| at.clone()) {
                // If it can't be, the kernel reads it from memory, and it stays.
                let _ = draft.append_chain(self.graph, chain, &at, false);
            }
        }
    }

    /// Region with another fusion group, if that can be part of it.
    fn with(&self, place: usize, fusion_group: &FusionGroup) -> Option<Region<'a>> {
        let mut larger = self.clone();
        match fusion_group {
            FusionGroup::Convolution(_) | FusionGroup::Opaque(_) => return None,
            FusionGroup::Chain(chain) => larger.add_chain(chain)?,
            FusionGroup::Groups(groups) => {
                let chains = larger.add_work(place, groups)?;
                larger.take(&chains);
            }
        }
        larger.joined.push(place);
        larger.is_sound().then_some(larger)
    }

    fn add_chain(&mut self, chain: &Chain) -> Option<()> {
        // Later kernels have nothing that it reads.
        let is_read =
            |draft: &KernelBlocks| chain.inputs().iter().any(|argument| draft.store_of(argument.tensor).is_some());
        let kernel = self.drafts.iter().rposition(is_read)?;
        let (at, once) = self.places_of(chain, &self.drafts[kernel])?;
        self.drafts[kernel].append_chain(self.graph, chain, &at, once)
    }

    /// Index map of a chain's result in a kernel's loops, and true if it is computed once for each group.
    fn places_of(&self, chain: &Chain, draft: &KernelBlocks) -> Option<(IndexMap, bool)> {
        let dims = self.graph.tensor(chain.output()).dims();
        let is_plain =
            |argument: &&Argument| argument.axes.is_none() && self.graph.tensor(argument.tensor).dims() == dims;
        let is_once = |part: &Block| matches!(part.kind, Kind::PerGroup { .. });
        for argument in chain.inputs().iter().filter(is_plain) {
            let stored = draft.store_of(argument.tensor);
            if let Some((part, store)) = stored.filter(|(_, store)| self.is_complete(store, draft)) {
                return Some((store.at.clone(), is_once(&draft.parts[part])));
            }
        }
        // Something else that has the result's extents.
        let has_extents = |operand: Operand| operand.tensor().is_some_and(|uid| self.graph.tensor(uid).dims() == dims);
        for part in &draft.parts {
            let mut stores = part.stores().iter();
            if let Some(store) = stores.find(|store| has_extents(store.to) && self.is_complete(store, draft)) {
                let busy = is_once(part) || is_busy(draft);
                return busy.then(|| (store.at.clone(), is_once(part)));
            }
        }
        let loops = draft.loops();
        let members = draft.parts.iter().filter(|part| !is_once(part));
        let mut read = members.flat_map(|part| part.elements());
        let at = read.find(|(operand, at)| has_extents(*operand) && is_whole(at, dims, &loops))?.1;
        is_busy(draft).then(|| (at.clone(), false))
    }

    /// True if a store covers all elements of its tensor. Works and the chains that consume their results store whole
    /// results, but a producer chain is computed where the work reads it: windows leave elements out, have some several
    /// times, and reach into padding.
    fn is_complete(&self, store: &Store, draft: &KernelBlocks) -> bool {
        match store.to {
            Operand::Tensor(uid) if self.taken.contains(&uid) => {
                is_whole(&store.at, self.graph.tensor(uid).dims(), &draft.loops())
            }
            _ => true,
        }
    }

    /// Joins a work over the same groups and members; returns the producer chains that were fused with it.
    fn add_work(&mut self, place: usize, groups: &Groups) -> Option<Vec<usize>> {
        let [kernel] = &groups.work.kernels[..] else { return None };
        let before = self.drafts.pop().expect("a work has a kernel");
        if before.groups != kernel.groups || before.members != kernel.members {
            return None;
        }
        let locals = self.work.locals.len();
        let appended = |chains: &[usize]| {
            let mut draft = before.clone();
            self.prepend(&mut draft, chains, kernel);
            draft.append(self.graph, kernel, locals)?;
            Some(draft)
        };
        let mut chains = self.chains_before(place, &groups.work.kernels);
        let draft = appended(&chains).or_else(|| {
            chains.clear();
            appended(&[])
        })?;
        self.drafts.push(draft);
        self.work.locals.extend(groups.work.locals.iter().cloned());
        if self.work.partial != groups.work.partial {
            // It has what the others have, but integers beyond 2⁵³.
            self.work.partial = DataType::Double;
        }
        Some(chains)
    }

    /// True if a result is needed in memory: it is not virtual, or has a reader outside of the region, or one of the
    /// region's kernels reads it from memory.
    fn is_seen(&self, uid: TensorUid) -> bool {
        !self.graph.tensor(uid).is_virtual()
            || self.row.readers(uid).iter().any(|reader| !self.joined.contains(reader))
            || self.drafts.iter().flat_map(|draft| &draft.parts).any(|part| {
                let mut elements = part.elements();
                elements.any(|(operand, _)| operand == Operand::Tensor(uid))
            })
    }

    fn kernels(&self) -> Vec<GroupKernel> {
        finish(&self.drafts, |uid| self.is_seen(uid))
    }

    /// True if the kernels can stand where the last of the fusion groups stood, and are within the limits.
    fn is_sound(&self) -> bool {
        let last = *self.joined.iter().max().expect("a region has a fusion group");
        let between = |place: usize| {
            let others = (place + 1..last).filter(|other| !self.joined.contains(other));
            others.map(|other| &self.row.operands[other])
        };
        let waits = self.joined.iter().all(|place| {
            let [inputs, outputs] = &self.row.operands[*place];
            let is_read = |uid: &TensorUid| between(*place).any(|[reads, _]| reads.contains(uid));
            outputs.iter().all(|uid| self.taken.contains(uid) || !is_read(uid))
                && !between(*place).any(|[reads, writes]| overwrites(self.graph, inputs, writes, reads))
        });
        waits
            && (self.is_surely_sound() || {
                let kernels = self.kernels();
                kernels.iter().all(is_small) && is_apart(self.graph, &kernels)
            })
    }

    /// True if the kernels are within the limits even with what is dead in them, and no buffer of a caller may be both read
    /// and written.
    fn is_surely_sound(&self) -> bool {
        let operands = |side: usize| self.joined.iter().flat_map(move |place| &self.row.operands[*place][side]);
        self.drafts.iter().all(KernelBlocks::is_small)
            && operands(1).all(|written| !operands(0).any(|read| may_share(self.graph, *read, *written)))
    }

    fn fusion_group(self) -> FusionGroup {
        let mut nodes: Vec<usize> = self
            .joined
            .iter()
            .filter_map(|place| self.row.fusion_groups[*place].as_ref())
            .flat_map(FusionGroup::nodes)
            .collect();
        nodes.sort_unstable();
        let kernels = self.kernels();
        FusionGroup::Groups(Groups { nodes, work: GroupWork { kernels, ..self.work } })
    }
}

/// True if a chain over a kernel's members keeps a device as busy as one of its own: where groups are cut into parts, it
/// is one of its own.
fn is_busy(draft: &KernelBlocks) -> bool {
    let [groups, members] = [&draft.groups, &draft.members].map(|extents| extents.iter().product::<usize>());
    groups >= FEW_GROUPS || members <= FEW_MEMBERS || is_cut(groups, members)
}

/// Tensors that a kernel reads, with their index maps.
fn elements(kernel: &GroupKernel) -> impl Iterator<Item = (TensorUid, &IndexMap)> {
    kernel.passes.iter().flat_map(elements_of)
}

/// Number of reads of a tensor in each pass that reads it.
fn reads_of(kernel: &GroupKernel, uid: TensorUid) -> impl Iterator<Item = usize> {
    let reads = kernel.passes.iter().filter_map(move |pass| {
        let is_it = |input: &Input| matches!(input, Input::Element { of, .. } if *of == Operand::Tensor(uid));
        let members = match pass {
            Pass::PerGroup { .. } => 1,
            Pass::Reduce { .. } | Pass::PerMember { .. } => kernel.members.iter().product(),
        };
        pass.inputs().iter().any(is_it).then(|| kernel.groups.iter().product::<usize>().saturating_mul(members))
    });
    reads.collect::<Vec<usize>>().into_iter()
}

fn is_small(kernel: &GroupKernel) -> bool {
    let inputs = kernel.passes.iter().flat_map(Pass::inputs);
    let operations = kernel.passes.iter().flat_map(Pass::program);
    fits(inputs, operations, kernel.passes.iter().map(|pass| pass.stores().len()).sum())
}

/// True if a kernel with these inputs, operations and number of stores is within the limits.
pub(super) fn fits<'k>(
    inputs: impl Iterator<Item = &'k Input> + Clone,
    operations: impl Iterator<Item = &'k Op> + Clone,
    stores: usize,
) -> bool {
    // A dimension that may be left has arguments of its own.
    let is_bent = |line: &&AffineExpr| {
        line.offset != 0 || line.divisor != 1 || line.steps.iter().filter(|step| **step != 0).count() > 1
    };
    let arguments = inputs.clone().map(|input| match input {
        Input::Element { at, .. } | Input::InBounds { at, .. } => 1 + 2 * at.iter().filter(is_bent).count(),
        Input::Index(_) | Input::Literal(_) | Input::Number(_) => 0,
    });
    arguments.sum::<usize>() + stores <= MAX_ELEMENTS
        && inputs.count() + operations.clone().count() <= MAX_VALUES
        && operations.map(Op::scalars).sum::<usize>() <= MAX_SCALARS
}

/// Tensors that a pass reads, with their index maps.
pub(super) fn elements_of(pass: &Pass) -> impl Iterator<Item = (TensorUid, &IndexMap)> {
    pass.inputs().iter().filter_map(|input| match input {
        Input::Element { of: Operand::Tensor(uid), at, .. } => Some((*uid, at)),
        _ => None,
    })
}

#[cfg(any(test, feature = "testing"))]
pub(super) mod tests;
