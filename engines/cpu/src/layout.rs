//! Layout assignment: intermediates whose channels become innermost in memory.
//!
//! Nobody but the engine looks at intermediates, so their strides are its own. Kernels of convolutions are fastest
//! where the channels are contiguous; element-wise functions, normalizations with given statistics, and pooling are as
//! fast in either layout, as long as all that they read and write has the same. So images that such nodes link are
//! given one layout together: channels last, where that pays by [`Bytes`]. Operands of any other node stay as they are,
//! and so does the caller's memory: there a node reads one layout and writes the other.

use hipdnn_schemas::{ConvolutionFwd, Graph, GraphError, Operation, Tensor, TensorUid, Uids, channels_last_strides};
use smallvec::{SmallVec, smallvec};

use crate::geometry::element;

/// Minimum number of channels, on both sides, with which a convolution gains from contiguous ones.
const MANY_CHANNELS: usize = 16;

/// Maximum number of channels of an image that keeps its planes: first layers read those faster than places of few values.
const FEW_CHANNELS: usize = 4;

/// Minimum number of such convolutions of images that are linked.
const CONVOLUTIONS: usize = 2;

/// Cost of a byte that a node other than a dense convolution reads or writes in another layout than the rest: that
/// packs its input in either case.
const REORDERED: usize = 4;

/// Cost of such a byte of an image of more than [`FAR`] bytes, of which each line comes from memory several times.
const REORDERED_FAR: usize = 16;

/// Bytes of an image beyond which memory sets the pace of a depthwise convolution, which then reads planes faster.
const FAR: usize = 4 << 20;

/// Assigns the fastest layouts to a graph's intermediates; `None` if those are the layouts that it has.
///
/// # Errors
/// None for checked graphs: channels-last tensors are as large as packed ones.
pub fn assign(graph: &Graph) -> Result<Option<Graph>, GraphError> {
    let chosen = channels_last(graph);
    if chosen.is_empty() {
        return Ok(None);
    }
    let strides = chosen.into_iter().map(|uid| (uid, channels_last_strides(&graph.tensor(uid).def().dims)));
    graph.with_strides(strides).map(Some)
}

/// Intermediates that become channels last, in the order of the graph's tensors.
fn channels_last(graph: &Graph) -> Vec<TensorUid> {
    let members: Vec<bool> = graph.nodes().iter().map(|node| is_member(graph, &node.operation)).collect();
    let mut linked = Linked::new(graph, &members);
    for (node, member) in graph.nodes().iter().zip(&members) {
        if *member {
            linked.join(images(graph, &node.operation));
        }
    }
    let mut bytes = vec![Bytes::default(); graph.tensors().len()];
    for (node, member) in graph.nodes().iter().zip(&members) {
        let (inside, outside): (Images<'_>, Images<'_>) =
            images(graph, &node.operation).partition(|tensor| linked.has(tensor.uid()));
        if let (true, Some(first)) = (*member, inside.first()) {
            bytes[linked.root(first.uid())].add(graph, &node.operation, &inside, &outside);
        }
    }
    let mut pays = |uid| linked.has(uid) && bytes[linked.root(uid)].pay();
    graph.tensors().iter().map(Tensor::uid).filter(|uid| pays(*uid)).collect()
}

/// Gain and cost of a layout, in bytes, for nodes whose images are linked.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    /// Number of convolutions of [`MANY_CHANNELS`].
    convolutions: usize,
    /// Bytes of these images that those convolutions read and write.
    gained: usize,
    /// Bytes that nodes read and write in another layout than these images have.
    reordered: usize,
}

impl Bytes {
    /// Counts a node of which some images are among the linked ones and some are not.
    fn add(&mut self, graph: &Graph, operation: &Operation, inside: &[&Tensor], outside: &[&Tensor]) {
        let sum = |tensors: &[&Tensor]| tensors.iter().map(|tensor| tensor.span_bytes()).sum::<usize>();
        match operation {
            Operation::ConvolutionFwd(node) => {
                let narrow = [node.x, node.y].map(|uid| graph.tensor(uid).dims()[1]).into_iter().min();
                if narrow.is_some_and(|channels| channels >= MANY_CHANNELS) {
                    self.convolutions += 1;
                    self.gained += sum(inside);
                }
                let cost = if is_depthwise(graph, node) { REORDERED } else { 1 };
                self.reordered += cost * sum(outside);
            }
            _ => {
                let cost = |tensor: &&Tensor| if is_far(tensor) { REORDERED_FAR } else { REORDERED };
                self.reordered += outside.iter().map(|tensor| cost(tensor) * tensor.span_bytes()).sum::<usize>();
            }
        }
    }

    /// True if more is gained than lost.
    fn pay(&self) -> bool {
        self.convolutions >= CONVOLUTIONS && self.gained > self.reordered
    }
}

/// Images of a node.
type Images<'a> = SmallVec<[&'a Tensor; 4]>;

/// Sets of images that have one layout: a forest with a root for each set.
struct Linked<'a> {
    graph: &'a Graph,
    /// Parent of each tensor, by position in the graph; `None` of those that are in no set.
    forest: Vec<Option<usize>>,
}

impl<'a> Linked<'a> {
    /// Makes a set of each intermediate whose layout is free: only members read and write it, as an image.
    fn new(graph: &'a Graph, members: &[bool]) -> Linked<'a> {
        let is_free = |tensor: &Tensor| is_free(tensor) && graph.producer(tensor.uid()).is_some();
        let tensors = graph.tensors().iter().enumerate();
        let mut forest: Vec<Option<usize>> =
            tensors.map(|(position, tensor)| is_free(tensor).then_some(position)).collect();
        for (node, member) in graph.nodes().iter().zip(members) {
            let taken = match &node.operation {
                Operation::ConvolutionFwd(node) if *member => smallvec![node.w],
                _ if *member => Uids::new(),
                operation => operands(operation),
            };
            for uid in taken {
                forest[graph.position(uid)] = None;
            }
        }
        Linked { graph, forest }
    }

    fn has(&self, uid: TensorUid) -> bool {
        self.forest[self.graph.position(uid)].is_some()
    }

    fn parent(&self, position: usize) -> usize {
        self.forest[position].expect("parents of what is in a set are in it")
    }

    /// Position of the image that stands for the set.
    ///
    /// # Panics
    /// If the image is none of these.
    fn root(&mut self, uid: TensorUid) -> usize {
        let mut at = self.graph.position(uid);
        while self.parent(at) != at {
            // Each step halves the way of the next search.
            let next = self.parent(self.parent(at));
            self.forest[at] = Some(next);
            at = next;
        }
        at
    }

    fn join<'t>(&mut self, images: impl Iterator<Item = &'t Tensor>) {
        let mut first = None;
        for image in images {
            if !self.has(image.uid()) {
                continue;
            }
            let root = self.root(image.uid());
            let first = *first.get_or_insert(root);
            self.forest[root] = Some(first);
        }
    }
}

/// True if a tensor is an image for which layouts differ: those of single places, and of single channels, are all the
/// same.
fn is_image(tensor: &Tensor) -> bool {
    matches!(tensor.dims(), [_, channels, height, width] if *channels > 1 && height * width > 1)
}

/// True if the channels of an image are innermost in memory, without gaps.
pub fn is_channels_last(tensor: &Tensor) -> bool {
    let strides = channels_last_strides(&tensor.def().dims);
    let used = |axis: &usize| tensor.dims()[*axis] > 1;
    is_image(tensor) && (0..4).filter(used).all(|axis| tensor.def().strides[axis] == strides[axis])
}

/// True if an image's layout is the engine's to choose.
fn is_free(tensor: &Tensor) -> bool {
    let whole_bytes = tensor.data_type().bits().is_some_and(|bits| bits % 8 == 0);
    let constant = tensor.value().is_some() || tensor.is_runtime_pass_by_value() || tensor.ragged().is_some();
    let few = tensor.dims().get(1).is_some_and(|channels| *channels <= FEW_CHANNELS);
    tensor.is_virtual() && is_image(tensor) && whole_bytes && !constant && !few
}

/// Tensors that a node reads and writes.
fn operands(operation: &Operation) -> Uids {
    let mut uids = operation.inputs();
    uids.extend(operation.outputs());
    uids
}

/// Images that a node reads and writes, each once.
fn images<'g>(graph: &'g Graph, operation: &Operation) -> impl Iterator<Item = &'g Tensor> {
    let mut uids = match operation {
        Operation::ConvolutionFwd(node) => smallvec![node.x, node.y],
        other => operands(other),
    };
    uids.sort_unstable();
    uids.dedup();
    uids.into_iter().map(|uid| graph.tensor(uid)).filter(|tensor| is_image(tensor))
}

/// True if a node may read and write images channels last.
fn is_member(graph: &Graph, operation: &Operation) -> bool {
    let dims = |uid: TensorUid| graph.tensor(uid).dims();
    match operation {
        Operation::ConvolutionFwd(node) => is_convolution(graph, node),
        Operation::Pointwise(node) => images(graph, operation).all(|image| image.dims() == dims(node.out_0)),
        Operation::BatchnormInference(node) => images(graph, operation).all(|image| image.dims() == dims(node.x)),
        Operation::BatchnormInferenceVarianceExt(node) => {
            images(graph, operation).all(|image| image.dims() == dims(node.x))
        }
        Operation::ResampleFwd(node) => node.index.is_none(),
        Operation::Reduction(node) => {
            matches!((dims(node.input), dims(node.output)), ([_, from, ..], [_, to, 1, 1]) if from == to)
        }
        _ => false,
    }
}

fn is_convolution(graph: &Graph, node: &ConvolutionFwd) -> bool {
    let [x, w, y] = [node.x, node.w, node.y].map(|uid| graph.tensor(uid));
    let computed = [x, w, y].iter().all(|tensor| element(tensor.data_type()).is_some());
    let dense = x.dims()[1] == w.dims()[1];
    // Layers that are fused have their intermediates in a cache, whatever the size.
    let near = || !is_far(x) && !is_far(y) || is_of_layer(graph, node.x);
    computed && x.rank() == 4 && (dense || is_depthwise(graph, node) && near()) && node.w != node.x && node.w != node.y
}

/// True if an image comes, through element-wise functions, from a convolution that is fused with the next one where it is large.
fn is_of_layer(graph: &Graph, mut uid: TensorUid) -> bool {
    while let Some(producer) = graph.producer(uid).filter(|_| graph.tensor(uid).is_virtual()) {
        uid = match &graph.nodes()[producer].operation {
            Operation::ConvolutionFwd(node) => {
                let [channels, taps @ ..] = &graph.tensor(node.w).dims()[1..] else { return false };
                return *channels <= FEW_CHANNELS || taps.iter().all(|taps| *taps == 1);
            }
            Operation::Pointwise(node) => {
                let dims = graph.tensor(uid).dims();
                let is_image =
                    |input: &TensorUid| graph.tensor(*input).dims() == dims && graph.producer(*input).is_some();
                match [Some(node.in_0), node.in_1].into_iter().flatten().find(is_image) {
                    Some(image) => image,
                    None => return false,
                }
            }
            Operation::BatchnormInference(node) => node.x,
            Operation::BatchnormInferenceVarianceExt(node) => node.x,
            _ => return false,
        };
    }
    false
}

/// True if an image is so large that caches do not hold it between two nodes.
fn is_far(image: &Tensor) -> bool {
    image.span_bytes() > FAR
}

/// True if each channel is convolved with one filter of its own.
fn is_depthwise(graph: &Graph, node: &ConvolutionFwd) -> bool {
    let [x, w] = [node.x, node.w].map(|uid| graph.tensor(uid).dims());
    x[1] > 1 && w[..2] == [x[1], 1]
}

#[cfg(test)]
mod tests;
