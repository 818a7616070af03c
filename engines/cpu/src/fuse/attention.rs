//! The rule "attention": two products with a softmax of the rows between them are one attention, whose scores stay in
//! the caches.
//!
//! `o = softmax(scale · q · kᵀ + mask) · v`, the softmax spelled out: maximum, difference, exponential, sum, quotient.
//! Scale and mask may be missing. What lies between the products is virtual, of type float, and read by these nodes alone.
//!
//! Left as they are: attentions of a few queries, for which products read keys and values at the speed of memory; those
//! of deep heads, of which products keep blocks in the caches, and attention whole rows; and those of fewer blocks of
//! queries than half of the threads, since products are cut along keys as well.

use hipdnn_schemas::{DataType, Graph, Matmul, Operation, PointwiseMode, Reduction, ReductionMode, TensorUid};
use smallvec::{SmallVec, smallvec};

use super::{NodeList, Remark, Rule};
use crate::nodes::sdpa::{self, Factor, Products};
use crate::settings::Settings;
use crate::work::Work;

/// Minimum number of queries.
const QUERIES: usize = 16;

/// Maximum depth of keys and of values.
const DEPTH: usize = 256;

/// Fuses the attention whose last node is that product. Works are those of single nodes.
pub(super) fn apply(
    graph: &Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    remarks: &mut Vec<Remark>,
    (last, settings): (usize, &Settings),
) {
    let mut matcher = Matcher { graph, nodes: smallvec![last] };
    let Some(products) = matcher.attention(last) else { return };
    let mut group = matcher.nodes;
    group.sort_unstable();
    // What a node of the group writes is no operand, as of a product that is added to itself; dead nodes stay dead.
    let mut producers = products.operands().filter_map(|uid| graph.producer(uid));
    if producers.any(|node| group.contains(&node)) || group.iter().any(|node| works[*node].is_none()) {
        return;
    }
    let extents = |uid: TensorUid| graph.tensor(uid).dims().last_chunk().copied().unwrap_or([0; 2]);
    let ([queries, depth], [_, value_depth]) = (extents(products.q), extents(products.o));
    let heads = graph.tensor(products.o).elements() / (queries * value_depth).max(1);
    let fused = match () {
        () if queries < QUERIES => Err("products are faster for so few queries"),
        () if depth.max(value_depth) > DEPTH => Err("products are faster for heads so deep"),
        () if 2 * sdpa::blocks(heads, queries) < settings.threads => Err("products have work for more threads"),
        () => sdpa::of_products(graph, last, &products),
    };
    let refused = match fused {
        Err(reason) => Some(reason),
        Ok(work) => {
            group.iter().for_each(|node| works[*node] = None);
            works[last] = Some(Work::Node(work));
            nodes[last].clone_from(&group);
            None
        }
    };
    remarks.push(Remark { rule: Rule::Attention, nodes: group, refused });
}

/// Matcher of the nodes of an attention, from the last one back.
struct Matcher<'a> {
    graph: &'a Graph,
    /// Nodes that have been matched.
    nodes: NodeList,
}

impl<'a> Matcher<'a> {
    fn attention(&mut self, last: usize) -> Option<Products> {
        let Operation::Matmul(Matmul { a, b: v, c: o }) = self.operation(last)? else { return None };
        let (quotient, [e, sum]) = self.pointwise(*a, PointwiseMode::Div, &[last])?;
        let (addition, summands) = self.reduction(sum, ReductionMode::Add, quotient)?;
        let (power, [difference]) = self.pointwise(e, PointwiseMode::Exp, &[addition, quotient])?;
        let (subtraction, [scores, most]) = self.pointwise(difference, PointwiseMode::Sub, &[power])?;
        let (maximum, compared) = self.reduction(most, ReductionMode::Max, subtraction)?;
        if summands != e || compared != scores {
            return None;
        }
        let extents = |uid: TensorUid| self.graph.tensor(uid).dims();
        let ([rows @ .., _], [of_sum @ .., 1], [of_most @ .., 1]) = (extents(scores), extents(sum), extents(most))
        else {
            return None;
        };
        let is_same = [*a, e, difference].into_iter().all(|uid| extents(uid) == extents(scores));
        if !is_same || of_sum != rows || of_most != rows {
            return None;
        }
        let readers = [maximum, subtraction];
        let Some((node, [a, b])) = self.pointwise(scores, PointwiseMode::Add, &readers) else {
            let (q, k, scale) = self.scaled(scores, &readers, extents(scores))?;
            return Some(Products { q, k, v: *v, o: *o, scale, mask: None });
        };
        // The mask is whichever of two summands is no product.
        let matched = self.nodes.len();
        [(a, b), (b, a)].into_iter().find_map(|(scaled, mask)| {
            self.nodes.truncate(matched);
            let (q, k, scale) = self.scaled(scaled, &[node], extents(scores))?;
            Some(Products { q, k, v: *v, o: *o, scale, mask: Some(mask) })
        })
    }

    /// Factors of a product that may be scaled by one number: left, right, and the number.
    fn scaled(
        &mut self,
        uid: TensorUid,
        readers: &[usize],
        extents: &[usize],
    ) -> Option<(TensorUid, TensorUid, Option<Factor>)> {
        if self.graph.tensor(uid).dims() != extents {
            return None;
        }
        if let Some((q, k)) = self.product(uid, readers) {
            return Some((q, k, None));
        }
        let is_number = |uid: TensorUid| self.graph.tensor(uid).elements() == 1;
        let (node, product, factor) = match self.pointwise(uid, PointwiseMode::Div, readers) {
            Some((node, [a, b])) => (node, a, Factor::Divisor(b)),
            None => {
                let (node, [a, b]) = self.pointwise(uid, PointwiseMode::Mul, readers)?;
                let (product, number) = if is_number(b) { (a, b) } else { (b, a) };
                (node, product, Factor::Multiplier(number))
            }
        };
        if !is_number(factor.tensor()) || self.graph.tensor(product).dims() != extents {
            return None;
        }
        self.product(product, &[node]).map(|(q, k)| (q, k, Some(factor)))
    }

    fn product(&mut self, uid: TensorUid, readers: &[usize]) -> Option<(TensorUid, TensorUid)> {
        match self.producer(uid, readers)? {
            (node, Operation::Matmul(Matmul { a, b, .. })) => {
                self.nodes.push(node);
                Some((*a, *b))
            }
            _ => None,
        }
    }

    /// Node and operands of an element-wise function whose result is read by those nodes alone.
    fn pointwise<const N: usize>(
        &mut self,
        uid: TensorUid,
        mode: PointwiseMode,
        readers: &[usize],
    ) -> Option<(usize, [TensorUid; N])> {
        match self.producer(uid, readers)? {
            (index, Operation::Pointwise(node)) if node.mode == mode => {
                self.nodes.push(index);
                let operands: SmallVec<[TensorUid; 3]> =
                    [Some(node.in_0), node.in_1, node.in_2].into_iter().flatten().collect();
                Some((index, operands[..].try_into().ok()?))
            }
            _ => None,
        }
    }

    /// Node and operand of a reduction whose result is read by that node alone.
    fn reduction(&mut self, uid: TensorUid, mode: ReductionMode, reader: usize) -> Option<(usize, TensorUid)> {
        match self.producer(uid, &[reader])? {
            (index, Operation::Reduction(Reduction { mode: of_node, input, .. })) if *of_node == mode => {
                self.nodes.push(index);
                Some((index, *input))
            }
            _ => None,
        }
    }

    /// Producer of a virtual tensor of type float that is read by those nodes alone.
    fn producer(&self, uid: TensorUid, readers: &[usize]) -> Option<(usize, &'a Operation)> {
        let tensor = self.graph.tensor(uid);
        let is_inner = tensor.is_virtual() && tensor.data_type() == DataType::Float;
        let is_read_here = self.graph.consumers(uid).iter().all(|reader| readers.contains(reader));
        let index = self.graph.producer(uid).filter(|_| is_inner && is_read_here)?;
        Some((index, self.operation(index)?))
    }

    /// Operation of a node that is computed in `f32`.
    fn operation(&self, index: usize) -> Option<&'a Operation> {
        let node = &self.graph.nodes()[index];
        (node.compute_data_type == DataType::Float).then_some(&node.operation)
    }
}
