//! Outlining: the operations of a function as regions, each of which becomes one hipDNN graph.
//!
//! hipDNN's graphs have no views, so that a view of a result ends a region: its readers belong to a later level.
//! Operations of one level that hang together are a region. Regions are convex and listed in an order of execution.

use std::collections::HashMap;

use hipdnn_schemas::{DataType, GraphDef, GraphFeatures, Node, Operation, TensorDef, TensorUid};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::constants::Promise;
use crate::ir::{Def, Function, Value, ValueId, element_bytes};

/// Operations that are one hipDNN graph: indices in [`Function::ops`], ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Indices of operations.
    pub ops: Vec<usize>,
}

impl Region {
    /// Two halves, in order of execution; `None` of a single operation.
    pub fn split(&self) -> Option<[Region; 2]> {
        if self.ops.len() < 2 {
            return None;
        }
        let (first, second) = self.ops.split_at(self.ops.len() / 2);
        Some([Region { ops: first.to_vec() }, Region { ops: second.to_vec() }])
    }
}

/// Readers of values.
pub struct Uses {
    /// Operations that are needed for the outputs.
    live: Vec<bool>,
    /// Live operations that read a value as an operand.
    readers: Vec<SmallVec<[usize; 2]>>,
    /// True if a value's memory is also accessed by a view, as a part of another value, or as an output.
    escapes: Vec<bool>,
}

impl Uses {
    /// Computes liveness from the outputs.
    pub fn of(function: &Function) -> Uses {
        let mut uses = Uses {
            live: vec![false; function.ops.len()],
            readers: vec![SmallVec::new(); function.values.len()],
            escapes: vec![false; function.values.len()],
        };
        let mut seen = vec![false; function.values.len()];
        let mut open: Vec<ValueId> = function.outputs.clone();
        for output in &function.outputs {
            uses.escapes[output.0 as usize] = true;
        }
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut seen[id.0 as usize], true) {
                continue;
            }
            match &function.value(id).def {
                Def::Source => {}
                Def::View(base) => {
                    uses.escapes[base.0 as usize] = true;
                    open.push(*base);
                }
                Def::Assembled(parts) => {
                    for part in parts {
                        uses.escapes[part.0 as usize] = true;
                        open.push(*part);
                    }
                }
                Def::Op(op) => {
                    if !std::mem::replace(&mut uses.live[*op], true) {
                        for operand in function.ops[*op].operation.inputs() {
                            let operand = ValueId::of(operand);
                            uses.readers[operand.0 as usize].push(*op);
                            open.push(operand);
                        }
                    }
                }
            }
        }
        for readers in &mut uses.readers {
            readers.sort_unstable();
            readers.dedup();
        }
        uses
    }

    /// True if a contraction reads a value as one of its factors.
    fn is_factor(&self, id: ValueId, function: &Function) -> bool {
        self.readers[id.0 as usize].iter().any(|reader| match &function.ops[*reader].operation {
            Operation::ConvolutionFwd(node) => [node.x, node.w].contains(&id.uid()),
            Operation::ConvolutionBwd(node) => [node.dy, node.w].contains(&id.uid()),
            Operation::Matmul(node) => [node.a, node.b].contains(&id.uid()),
            _ => false,
        })
    }

    /// True if a value exists only within the region: no memory stands behind it.
    fn is_virtual(&self, id: ValueId, function: &Function, members: &FxHashSet<usize>) -> bool {
        let Def::Op(op) = function.value(id).def else { return false };
        members.contains(&op)
            && !self.escapes[id.0 as usize]
            && self.readers[id.0 as usize].iter().all(|reader| members.contains(reader))
    }
}

/// Regions of a function's live operations, in an order of execution.
pub fn outline(function: &Function, uses: &Uses) -> Vec<Region> {
    let mut levels = vec![0usize; function.ops.len()];
    for index in 0..function.ops.len() {
        levels[index] = level(function, &levels, index);
    }
    // Operations of a level that are connected by a value: the smallest operation names the component.
    let mut component: Vec<usize> = (0..function.ops.len()).collect();
    for (index, op) in function.ops.iter().enumerate().filter(|(index, _)| uses.live[*index]) {
        for uid in op.operation.inputs() {
            if let Def::Op(producer) = function.value(ValueId::of(uid)).def
                && levels[producer] == levels[index]
            {
                let (one, other) = (root(&mut component, producer), root(&mut component, index));
                component[one.max(other)] = one.min(other);
            }
        }
    }
    let mut regions: HashMap<usize, Vec<usize>> = HashMap::new();
    for index in (0..function.ops.len()).filter(|index| uses.live[*index]) {
        let root = root(&mut component, index);
        regions.entry(root).or_default().push(index);
    }
    let mut regions: Vec<Region> = regions.into_values().map(|ops| Region { ops }).collect();
    regions.sort_by_key(|region| (levels[region.ops[0]], region.ops[0]));
    regions
}

fn root(component: &mut [usize], mut op: usize) -> usize {
    while component[op] != op {
        component[op] = component[component[op]];
        op = component[op];
    }
    op
}

/// The level of an operation, where those of all operations before it are known.
pub(crate) fn level(function: &Function, levels: &[usize], op: usize) -> usize {
    let operands = function.ops[op].operation.inputs();
    operands.iter().map(|uid| available(function, levels, ValueId::of(*uid))).max().unwrap_or(0)
}

/// The first level whose operations can read a value.
fn available(function: &Function, levels: &[usize], id: ValueId) -> usize {
    match &function.value(id).def {
        Def::Op(op) => levels[*op],
        _ => complete(function, levels, id),
    }
}

/// The first level that finds a value in memory.
fn complete(function: &Function, levels: &[usize], id: ValueId) -> usize {
    match &function.value(id).def {
        Def::Source => 0,
        Def::Op(op) => levels[*op] + 1,
        Def::View(base) => complete(function, levels, *base),
        Def::Assembled(parts) => parts.iter().map(|part| complete(function, levels, *part)).max().unwrap_or(0),
    }
}

/// A region as a hipDNN graph.
pub struct Outlined {
    /// The graph, whose uids are those of `arguments`.
    pub graph: GraphDef,
    /// Values that the graph reads from or writes to memory, each once, with their uids in the graph.
    pub arguments: Vec<(i64, ValueId)>,
}

/// The hipDNN graph of a region. `labels` name the nodes, in messages and dumps.
pub fn graph<'a>(function: &Function, uses: &Uses, region: &Region, labels: &dyn Fn(usize) -> &'a str) -> Outlined {
    let members: FxHashSet<usize> = region.ops.iter().copied().collect();
    let mut graph = GraphDef {
        name: function.name.clone(),
        compute_data_type: DataType::Float,
        intermediate_data_type: DataType::Float,
        io_data_type: DataType::Float,
        ..GraphDef::default()
    };
    let mut arguments = Vec::new();
    // Uids count from 1 in order of appearance, so that regions of equal structure are equal graphs.
    let mut uids: FxHashMap<ValueId, i64> = FxHashMap::default();
    for op in &region.ops {
        let op = &function.ops[*op];
        for uid in op.operation.inputs().into_iter().chain(op.operation.outputs()) {
            let id = ValueId::of(uid);
            let next = uids.len() as i64 + 1;
            if *uids.entry(id).or_insert(next) != next {
                continue;
            }
            let value = function.value(id);
            let tensor = if value.scalar.is_some() {
                described(value, next)
            } else if uses.is_virtual(id, function, &members) {
                // What lies between contractions is not rounded: their factors are, which have a type that hardware multiplies.
                let short = matches!(value.data_type, DataType::Half | DataType::BFloat16);
                let wide = short && !value.rounds && !uses.is_factor(id, function);
                let data_type = if wide { DataType::Float } else { value.data_type };
                TensorDef::new(next, data_type, dims(value)).intermediate()
            } else {
                arguments.push((next, id));
                described(value, next)
            };
            graph.tensors.push(tensor);
        }
        graph.nodes.push(Node {
            name: labels(op.node).to_string(),
            compute_data_type: op.compute,
            operation: op.operation.renamed(&mut |uid| TensorUid(uids[&ValueId::of(uid)])),
        });
    }
    let features = GraphFeatures::from(&graph);
    graph.min_required_engine_api_version = Some(features.required_api_version());
    Outlined { graph, arguments }
}

/// A value's extents in a graph: hipDNN's tensors have one dimension at least.
fn dims(value: &Value) -> &[i64] {
    if value.dims.is_empty() { &[1] } else { &value.dims }
}

fn described(value: &Value, uid: i64) -> TensorDef {
    let dims = dims(value);
    let mut strides = if value.dims.is_empty() { smallvec![1] } else { value.strides.clone() };
    // The stride of a single element is free: that of a packed tensor is what engines look for.
    for axis in (0..strides.len()).rev().filter(|axis| dims[*axis] == 1) {
        strides[axis] = strides.get(axis + 1).map_or(1, |next| next * dims[axis + 1].max(1)).max(1);
    }
    let mut tensor = TensorDef { strides, ..TensorDef::new(uid, value.data_type, dims) };
    if let Some(scalar) = value.scalar {
        tensor = tensor.with_value(scalar);
    }
    // Memory comes from users' buffers too, which are aligned for their elements and nothing more.
    TensorDef { alignment: element_bytes(value.data_type) as i64, ..tensor }
}

/// Promise about arguments: those that are a whole buffer of known content, in the order of any of its dimensions.
pub fn promise(function: &Function, arguments: &[(i64, ValueId)]) -> Promise {
    let mut promise = Promise::default();
    for (uid, id) in arguments {
        let value = function.value(*id);
        let buffer = function.buffer(value.buffer.expect("arguments have memory"));
        if let Some(token) = buffer.token
            && value.is_whole(buffer.elements)
        {
            promise.add(*uid, token);
        }
    }
    promise
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{Graph, Matmul, Pointwise, PointwiseMode};

    use super::*;
    use crate::ir::{Op, Source};

    fn unary(f: &mut Function, mode: PointwiseMode, x: ValueId) -> ValueId {
        let (data_type, dims) = (f.value(x).data_type, f.value(x).dims.clone());
        let y = f.result(data_type, &dims);
        let operation = Operation::Pointwise(Pointwise::unary(mode, x.uid(), y.uid()));
        f.push(Op { operation, compute: DataType::Float, node: 0 });
        y
    }

    fn add(f: &mut Function, a: ValueId, b: ValueId) -> ValueId {
        let (data_type, dims) = (f.value(a).data_type, f.value(a).dims.clone());
        let y = f.result(data_type, &dims);
        let operation = Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, a.uid(), b.uid(), y.uid()));
        f.push(Op { operation, compute: DataType::Float, node: 0 });
        y
    }

    fn input(f: &mut Function, number: usize, dims: &[i64]) -> ValueId {
        f.source(Source::Input(number), DataType::Float, dims)
    }

    fn regions(f: &Function) -> Vec<Vec<usize>> {
        outline(f, &Uses::of(f)).into_iter().map(|region| region.ops).collect()
    }

    /// The graph of region `index`, checked, with the number of its arguments.
    fn checked(f: &Function, index: usize) -> (Graph, usize) {
        let uses = Uses::of(f);
        let outlined = graph(f, &uses, &outline(f, &uses)[index], &|node| ["n0", "n1", "n2", "n3", "n4", "n5"][node]);
        (Graph::new(outlined.graph).expect("a region is a graph"), outlined.arguments.len())
    }

    #[test]
    fn a_view_of_a_result_ends_a_region() {
        let mut f = Function::default();
        let x = input(&mut f, 0, &[2, 6]);
        let view = f.reshape(x, &[3, 4], 0);
        let y = unary(&mut f, PointwiseMode::Exp, view);
        let z = unary(&mut f, PointwiseMode::Neg, y);
        let turned = f.transpose(z, &[1, 0]);
        let w = unary(&mut f, PointwiseMode::Abs, turned);
        f.output(w, 0);
        assert_eq!(regions(&f), [vec![0, 1], vec![2]], "a view of an input does not end one");
        let (first, arguments) = checked(&f, 0);
        assert_eq!((arguments, first.tensors().iter().filter(|tensor| tensor.is_virtual()).count()), (2, 1));
        let (second, _) = checked(&f, 1);
        assert_eq!(second.tensors()[0].strides(), [1, 4], "the second region reads the view");
    }

    #[test]
    fn views_that_undo_one_another_end_no_region() {
        let mut f = Function::default();
        let x = input(&mut f, 0, &[1, 6, 1, 1]);
        let y = unary(&mut f, PointwiseMode::Exp, x);
        let flat = f.reshape(y, &[1, 6], 0);
        let turned = f.transpose(flat, &[1, 0]);
        let back = f.transpose(turned, &[1, 0]);
        assert_eq!((back, f.reshape(turned, &[6, 1], 0)), (flat, turned));
        let image = f.reshape(back, &[1, 6, 1, 1], 0);
        assert_eq!(image, y);
        let z = unary(&mut f, PointwiseMode::Neg, image);
        f.output(z, 0);
        assert_eq!(regions(&f), [vec![0, 1]]);
        // Half of it is another view, though it has as many dimensions.
        let half = f.view(flat, &[1, 3], &[6, 1], 3);
        assert_ne!(half, f.view(flat, &[1, 3], &[6, 1], 0));
        assert_eq!(f.view(half, &[1, 6], &[6, 1], -3), flat);
    }

    #[test]
    fn what_does_not_hang_together_is_apart_and_what_nobody_needs_is_gone() {
        let mut f = Function::default();
        let (a, b) = (input(&mut f, 0, &[4]), input(&mut f, 1, &[4]));
        let y = unary(&mut f, PointwiseMode::Exp, a);
        let _dead = unary(&mut f, PointwiseMode::Exp, y);
        let z = unary(&mut f, PointwiseMode::Exp, b);
        f.output(y, 0);
        f.output(z, 0);
        assert_eq!(regions(&f), [vec![0], vec![2]]);
        let mut f = Function::default();
        let (a, b) = (input(&mut f, 0, &[4]), input(&mut f, 1, &[4]));
        let (y, z) = (unary(&mut f, PointwiseMode::Exp, a), unary(&mut f, PointwiseMode::Exp, b));
        let sum = add(&mut f, y, z);
        f.output(sum, 0);
        assert_eq!(regions(&f), [vec![0, 1, 2]]);
    }

    #[test]
    fn parts_of_a_buffer_are_written_before_the_whole_is_read() {
        let mut f = Function::default();
        let (a, b) = (input(&mut f, 0, &[4]), input(&mut f, 1, &[2]));
        let y = unary(&mut f, PointwiseMode::Exp, a);
        let whole = f.result(DataType::Float, &[6]);
        let (first, second) = (f.part(whole, &[4], 0), f.part(whole, &[2], 4));
        assert!(f.place(y, first), "a result goes to its part");
        f.push_copy(b, second, 0);
        f.assemble(whole, vec![y, second]);
        let z = unary(&mut f, PointwiseMode::Neg, whole);
        f.output(z, 0);
        assert_eq!(regions(&f), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn intermediates_of_sixteen_bits_are_float_unless_rounding_is_meant() {
        for (rounds, want) in [(false, DataType::Float), (true, DataType::Half)] {
            let mut f = Function::default();
            let x = f.source(Source::Input(0), DataType::Half, &[3]);
            let y = unary(&mut f, PointwiseMode::Exp, x);
            if rounds {
                f.rounds(y);
            }
            let z = unary(&mut f, PointwiseMode::Neg, y);
            f.output(z, 0);
            let (graph, _) = checked(&f, 0);
            let middle = graph.tensors().iter().find(|tensor| tensor.is_virtual()).expect("y is virtual");
            assert_eq!(middle.data_type(), want);
        }
    }

    #[test]
    fn factors_of_contractions_keep_sixteen_bits() {
        let mut f = Function::default();
        let x = f.source(Source::Input(0), DataType::Half, &[3, 3]);
        let y = unary(&mut f, PointwiseMode::Exp, x);
        let z = unary(&mut f, PointwiseMode::Neg, y);
        let product = f.result(DataType::Half, &[3, 3]);
        let operation = Operation::Matmul(Matmul { a: x.uid(), b: z.uid(), c: product.uid() });
        f.push(Op { operation, compute: DataType::Float, node: 0 });
        let sum = unary(&mut f, PointwiseMode::Neg, product);
        f.output(sum, 0);
        let (graph, _) = checked(&f, 0);
        let within: Vec<_> = graph.tensors().iter().filter(|tensor| tensor.is_virtual()).collect();
        let types = within.iter().map(|tensor| tensor.data_type());
        assert_eq!(Vec::from_iter(types), [DataType::Float, DataType::Half, DataType::Float], "{within:?}");
    }

    #[test]
    fn scalars_are_tensors_of_one_dimension() {
        let mut f = Function::default();
        let x = input(&mut f, 0, &[]);
        let y = unary(&mut f, PointwiseMode::Exp, x);
        let z = unary(&mut f, PointwiseMode::Neg, y);
        f.output(z, 0);
        let (graph, arguments) = checked(&f, 0);
        assert_eq!(arguments, 2);
        assert!(graph.tensors().iter().all(|tensor| tensor.dims() == [1]));
    }

    #[test]
    fn a_split_keeps_the_order() {
        let region = Region { ops: vec![2, 5, 7] };
        assert_eq!(region.split(), Some([Region { ops: vec![2] }, Region { ops: vec![5, 7] }]));
        assert_eq!(Region { ops: vec![2] }.split(), None);
    }
}
