//! Shifted data: a mean and the sums of differences from it, by one pass over the members instead of two.
//!
//! A member of the group takes the mean's place as pivot, and the sums around the mean follow from those around it (see
//! [`statistics`](super::statistics)). One pass has one reduction tree, in which all lanes wait for each other.

use super::build::{Kernel, Value};
use super::split_reduction::{LoopMap, combine, member};
use super::statistics::{Pair, PairOfParts, Part, Pivot, Reference};
use crate::emit::grouped::{Fold, ReduceOp};
use crate::ir::group::{GroupKernel, Pass};

/// Kernel whose mean and sums of differences are taken in one pass; `None` if it has no such pair. Squares are off by about
/// `k²` roundings if the first member lies `k` standard deviations from the mean; `k²` is at most the number of members.
pub(crate) fn shift(kernel: &GroupKernel) -> Option<GroupKernel> {
    let pair_of = |first| Pair::of(kernel, first).filter(|pair| pair.reference == Reference::Mean);
    let (first, pair) = (0..kernel.passes.len()).find_map(|first| Some((first, pair_of(first)?)))?;
    let mut shifted = Rewriter::new(kernel);
    shifted.copy(..first);
    let head = &kernel.passes[first];
    let first_member = LoopMap::of_groups(kernel, kernel.groups.len() + kernel.members.len());
    let own = member(&mut shifted.kernel, &first_member, head, &shifted.left);
    let sums = shifted.sums(&pair, own);
    let part = Part { own, sums };
    let members = kernel.members.iter().product::<usize>() as f64;
    let pair_of_parts = PairOfParts { pivot: Pivot::Member, terms: pair.terms.clone(), members };
    let total = shifted.kernel.once(|body| [pair_of_parts.first(body, &part)]);
    shifted.left.extend(total);
    shifted.copy(first + 1..pair.second);
    let reference = shifted.left[pair.from];
    let terms = shifted.kernel.once_list(|body| pair_of_parts.terms(body, &part, reference));
    shifted.left.extend(terms);
    shifted.copy(pair.second + 1..);
    Some(shifted.kernel.finish())
}

/// Rewriter of a kernel, pass by pass.
struct Rewriter<'a> {
    from: &'a GroupKernel,
    kernel: Kernel,
    /// Identity.
    map: LoopMap,
    /// Values that the passes so far leave behind.
    left: Vec<Value>,
}

impl<'a> Rewriter<'a> {
    fn new(from: &'a GroupKernel) -> Rewriter<'a> {
        let map = LoopMap::identity(from.groups.len() + from.members.len());
        Rewriter { from, kernel: Kernel::new(from.groups.clone(), from.members.clone()), map, left: Vec::new() }
    }

    /// Adds passes as they are.
    fn copy(&mut self, passes: impl std::slice::SliceIndex<[Pass], Output = [Pass]>) {
        for pass in &self.from.passes[passes] {
            let (map, left) = (&self.map, &self.left);
            let more = match pass {
                Pass::Reduce { folds, .. } => self.kernel.fold(|body| {
                    let slots = map.program(body, pass, left);
                    folds.iter().map(|fold| combine(fold, |slot| slots[slot])).collect()
                }),
                Pass::PerGroup { keep, stores, .. } => self.kernel.once_list(|body| {
                    let slots = map.program(body, pass, left);
                    stores.iter().for_each(|store| body.store(slots[store.slot], store.to, map.at(&store.at)));
                    keep.iter().map(|slot| slots[*slot]).collect()
                }),
                Pass::PerMember { stores, .. } => {
                    self.kernel.each(|body| {
                        let slots = map.program(body, pass, left);
                        stores.iter().for_each(|store| body.store(slots[store.slot], store.to, map.at(&store.at)));
                    });
                    Vec::new()
                }
            };
            self.left.extend(more);
        }
    }

    /// Adds the second pass of a pair, with another reference; returns the sums of its terms, and of differences.
    fn sums(&mut self, pair: &Pair, reference: Value) -> Vec<Value> {
        let pass = &self.from.passes[pair.second];
        let Pass::Reduce { folds, .. } = pass else { unreachable!("a pair is one of folds") };
        // It reads nothing else of what passes leave behind from the first one of the pair on.
        let mut left = self.left.clone();
        left.resize(self.from.passes[..pair.second].iter().map(Pass::leaves).sum(), Value::Carried(0));
        left[pair.from] = reference;
        let map = &self.map;
        self.kernel.fold(|body| {
            let slots = map.program(body, pass, &left);
            let rest = pair.rest().map(|slot| Fold { mode: ReduceOp::Sum, slot });
            folds.iter().chain(&rest).map(|fold| combine(fold, |slot| slots[slot])).collect()
        })
    }
}
