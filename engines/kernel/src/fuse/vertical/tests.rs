//! Fusion into kernels over groups, and equal results with and without it.

use std::collections::HashMap;

#[cfg(test)]
use hipdnn_schemas::Convolution;
use hipdnn_schemas::{
    Batchnorm, DataType, GraphBuilder, Layernorm, NormFwdPhase, Operation, PaddingMode, Pointwise, PointwiseMode::*,
    Reduction, ReductionMode, ResampleFwd, ResampleMode, TensorDef, TensorValue,
};

use super::*;
#[cfg(test)]
use crate::fuse::memory::may_share;
use crate::fuse::{fuse, separate};
#[cfg(test)]
use crate::ir::op::{Opaque, Work};
use crate::legalize::simulate::run;
use crate::legalize::{Dispatch, LegalizeOptions, Value, legalize};
use crate::lower::lower;

const F: DataType = DataType::Float;

/// Graph of tensors by their uids; those from 100 on are virtual.
struct Case(GraphBuilder);

impl Case {
    fn new() -> Case {
        Case(GraphBuilder::new("case").compute(F))
    }

    fn tensor(self, uid: i64, dims: &[i64]) -> Case {
        self.define(TensorDef::new(uid, F, dims))
    }

    fn define(mut self, tensor: TensorDef) -> Case {
        let is_virtual = tensor.uid.0 >= 100;
        self.0.tensor(if is_virtual { tensor.intermediate() } else { tensor });
        self
    }

    fn node(mut self, operation: Operation) -> Case {
        self.0.node("", operation);
        self
    }

    fn unary(self, mode: hipdnn_schemas::PointwiseMode, x: i64, y: i64) -> Case {
        self.node(Operation::Pointwise(Pointwise::unary(mode, TensorUid(x), TensorUid(y))))
    }

    fn binary(self, mode: hipdnn_schemas::PointwiseMode, a: i64, b: i64, y: i64) -> Case {
        self.node(Operation::Pointwise(Pointwise::binary(mode, TensorUid(a), TensorUid(b), TensorUid(y))))
    }

    fn reduce(self, mode: ReductionMode, x: i64, y: i64) -> Case {
        let (input, output) = (TensorUid(x), TensorUid(y));
        self.node(Operation::Reduction(Reduction { mode, input, output, is_deterministic: true }))
    }

    fn pool(self, x: i64, y: i64, pad: i64) -> Case {
        self.windows(x, y, pad, 1, 3)
    }

    /// Adds average pooling with square windows of that extent, padding and stride.
    fn windows(self, x: i64, y: i64, pad: i64, stride: i64, window: i64) -> Case {
        let (pre_padding, post_padding) = (vec![pad; 2], vec![pad; 2]);
        let (stride, window) = (vec![stride; 2], vec![window; 2]);
        let (resample_mode, padding_mode) = (ResampleMode::AvgPoolExcludePadding, PaddingMode::Zero);
        let (x, y, index, generate_index) = (TensorUid(x), TensorUid(y), None, None);
        self.node(Operation::ResampleFwd(ResampleFwd {
            x,
            y,
            index,
            pre_padding,
            post_padding,
            stride,
            window,
            resample_mode,
            padding_mode,
            generate_index,
        }))
    }

    /// Adds a batch normalization of x 0 with scale 10, bias 11 and epsilon 12, to `y`; the statistics are 13 and 14.
    fn batchnorm(self, y: i64) -> Case {
        let epsilon = TensorDef::new(12, F, &[1]).with_value(TensorValue::Float32(1e-3));
        let channels = [10, 11, 13, 14].iter().fold(self, |case, uid| case.tensor(*uid, &[1, 3, 1, 1]));
        channels.define(epsilon).node(Operation::Batchnorm(Batchnorm {
            mean: Some(TensorUid(13)),
            inv_variance: Some(TensorUid(14)),
            ..Batchnorm::new(TensorUid(0), TensorUid(10), TensorUid(11), TensorUid(12), TensorUid(y))
        }))
    }

    /// Adds a layer normalization of x 0 with scale 10, bias 11 and epsilon 12, to `y`, with statistics in tensors of
    /// these uids.
    fn layernorm(self, y: i64, statistics: [i64; 2]) -> Case {
        let epsilon = TensorDef::new(12, F, &[1]).with_value(TensorValue::Float32(1e-3));
        let x = self.0.def().tensors.iter().find(|tensor| tensor.uid.0 == 0).unwrap().dims.clone();
        let (row, column) = ([1, x[1]], [x[0], 1]);
        let rows = self.tensor(10, &row).tensor(11, &row).define(epsilon);
        let [mean, inverse] = statistics.map(TensorUid);
        rows.tensor(mean.0, &column).tensor(inverse.0, &column).node(Operation::Layernorm(Layernorm {
            x: TensorUid(0),
            scale: TensorUid(10),
            bias: TensorUid(11),
            epsilon: TensorUid(12),
            y: TensorUid(y),
            normalized_dim_count: 1,
            mean: Some(mean),
            inv_variance: Some(inverse),
            forward_phase: NormFwdPhase::Training,
        }))
    }

    #[cfg(test)]
    /// Summary of the fusion groups, after a comparison with the results of unfused nodes.
    fn fusion_groups(self) -> String {
        let graph = self.0.build().unwrap();
        let works = || lower(&graph).unwrap();
        let joined = fuse(&graph, works());
        let results = [&separate(&graph, works()), &joined].map(|fusion_groups| results(&graph, fusion_groups, None));
        for (uid, want) in &results[0] {
            let got = &results[1][uid];
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= 1e-9 * want.abs().max(1.0), "tensor {uid}: expected {want}, got {got}");
            }
        }
        joined.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
/// Name of a fusion group: its nodes, and for each kernel over groups its passes: fold, once, each.
fn name(fusion_group: &FusionGroup) -> String {
    let nodes: Vec<String> = fusion_group.nodes().iter().map(usize::to_string).collect();
    let FusionGroup::Groups(groups) = fusion_group else { return format!("[{}]", nodes.join(" ")) };
    let letter = |pass: &Pass| match pass {
        Pass::Reduce { .. } => 'F',
        Pass::PerGroup { .. } => 'O',
        Pass::PerMember { .. } => 'E',
    };
    let kernels: Vec<String> = groups.work.kernels.iter().map(|k| k.passes.iter().map(letter).collect()).collect();
    format!("{{{}: {}}}", nodes.join(" "), kernels.join(" "))
}

/// Results that the caller sees, who may have an operand and a result at one place.
fn results(graph: &Graph, fusion_groups: &[FusionGroup], shared: Option<(TensorUid, TensorUid)>) -> Contents {
    if fusion_groups.iter().any(|fusion_group| matches!(fusion_group, FusionGroup::Convolution(_))) {
        return HashMap::new();
    }
    let mut legalized = legalize(graph, fusion_groups, LegalizeOptions::default(), &|_| Ok(())).unwrap();
    let given = graph.tensors().iter().filter(|tensor| !tensor.is_virtual());
    let fill = |tensor: &hipdnn_schemas::Tensor| {
        (0..tensor.span()).map(|i| ((i * 5 + i / 7) % 11) as f64 / 4.0 - 1.0 + tensor.uid().0 as f64 / 32.0).collect()
    };
    let mut memory: HashMap<Value, Vec<f64>> =
        given.map(|tensor| (Value::Tensor(tensor.uid()), fill(tensor))).collect();
    if let Some((read, written)) = shared.map(|(read, written)| (Value::Tensor(read), Value::Tensor(written))) {
        let numbers = memory.remove(&read).unwrap();
        memory.insert(written, numbers);
        let values = legalized.dispatches.iter_mut().flat_map(|dispatch| match dispatch {
            Dispatch::Kernel(dispatch) => dispatch.reads.iter_mut().collect::<Vec<_>>(),
            Dispatch::Convolution(_) => Vec::new(),
        });
        values.filter(|value| **value == read).for_each(|value| *value = written);
    }
    let seen = run(&legalized, memory).into_iter().filter_map(|(value, numbers)| match value {
        Value::Tensor(uid) => Some((uid, numbers)),
        Value::Temporary(_) => None,
    });
    seen.collect()
}

const IMAGE: &[i64] = &[2, 3, 4, 5];
const ROWS: &[i64] = &[5, 9];
const SUMS: &[i64] = &[5, 1];

/// Case of the rows of tensor 0 less their maximum, as 101, and the exponential of that, as 102; 100 are the maxima.
fn exponentials(dims: &[i64], sums: &[i64]) -> Case {
    let case = [0, 1, 101, 102].iter().fold(Case::new(), |case, uid| case.tensor(*uid, dims));
    let case = case.tensor(100, sums).tensor(103, sums).tensor(104, sums).reduce(ReductionMode::Max, 0, 100);
    case.binary(Sub, 0, 100, 101).unary(Exp, 101, 102)
}

/// Name, graph, and summary of its fusion groups.
type Example = (&'static str, Case, &'static str);

fn joining() -> Vec<Example> {
    let image = |case: Case, uids: &[i64]| uids.iter().fold(case, |case, uid| case.tensor(*uid, IMAGE));
    let rows = |uids: &[i64]| uids.iter().fold(Case::new(), |case, uid| case.tensor(*uid, ROWS));
    let add = ReductionMode::Add;
    vec![
        ("alone", image(Case::new(), &[0, 1]).batchnorm(1), "{0: FOFOE}"),
        ("an activation", image(Case::new(), &[0, 1, 100]).batchnorm(100).unary(ReluFwd, 100, 1), "{0 1: FOFOE}"),
        (
            "a residual and an activation",
            image(Case::new(), &[0, 1, 2, 100, 101]).batchnorm(100).binary(Add, 100, 2, 101).unary(ReluFwd, 101, 1),
            "{0 1 2: FOFOE}",
        ),
        (
            "a residual, and what it is added to is seen",
            image(Case::new(), &[0, 1, 2, 3]).batchnorm(3).binary(Add, 3, 2, 1),
            "{0 1: FOFOE}",
        ),
        (
            "two readers",
            image(Case::new(), &[0, 1, 2, 100]).batchnorm(100).unary(ReluFwd, 100, 1).unary(TanhFwd, 100, 2),
            "{0 1 2: FOFOE}",
        ),
        ("a residual of rows", rows(&[0, 1, 2, 100]).layernorm(100, [13, 14]).binary(Add, 100, 2, 1), "{0 1: FOFOE}"),
        (
            "nobody reads the statistics",
            rows(&[0, 1, 100]).layernorm(100, [113, 114]).unary(ReluFwd, 100, 1),
            "{0 1: FOFOE}",
        ),
        (
            "the result is not wanted",
            rows(&[0, 1, 100]).tensor(2, SUMS).layernorm(100, [113, 114]).unary(Neg, 113, 2),
            "{0 1: FOFO}",
        ),
        (
            "a function of one of two statistics",
            rows(&[0, 1]).tensor(2, SUMS).layernorm(1, [113, 114]).unary(Neg, 114, 2),
            "{0 1: FOFOEO}",
        ),
        (
            "a scale behind pooling",
            image(Case::new(), &[0, 1, 100]).tensor(2, &[1, 3, 1, 1]).pool(0, 100, 1).binary(Mul, 100, 2, 1),
            "{0 1: FO}",
        ),
        (
            "a root behind a sum",
            rows(&[0]).tensor(100, SUMS).tensor(1, SUMS).reduce(add, 0, 100).unary(Sqrt, 100, 1),
            "{0 1: FO}",
        ),
        (
            "squares before a sum",
            rows(&[0, 100]).tensor(1, SUMS).binary(Mul, 0, 0, 100).reduce(add, 100, 1),
            "{0 1: FO}",
        ),
        (
            "an activation before a normalization",
            rows(&[0, 1, 2]).unary(ReluFwd, 2, 0).layernorm(1, [13, 14]),
            "[0] {1: FOFOE}",
        ),
        (
            "a function of rows and sums",
            rows(&[0, 1]).tensor(100, SUMS).reduce(add, 0, 100).binary(Div, 0, 100, 1),
            "{0 1: FOE}",
        ),
        ("a softmax", exponentials(ROWS, SUMS).reduce(add, 102, 103).binary(Div, 102, 103, 1), "{0 1 2 3 4: FOFOE}"),
        (
            "a softmax of channels",
            exponentials(IMAGE, &[2, 1, 4, 5]).reduce(add, 102, 103).binary(Div, 102, 103, 1),
            "{0 1 2 3 4: FOFOE}",
        ),
        (
            "the logarithm of a softmax",
            exponentials(ROWS, SUMS).reduce(add, 102, 103).unary(Log, 103, 104).binary(Sub, 101, 104, 1),
            "{0 1 2 3 4 5: FOFOE}",
        ),
        (
            "a normalization, spelled",
            rows(&[0, 1, 101, 102])
                .tensor(100, SUMS)
                .tensor(103, SUMS)
                .tensor(104, SUMS)
                .reduce(ReductionMode::Average, 0, 100)
                .binary(Sub, 0, 100, 101)
                .binary(Mul, 101, 101, 102)
                .reduce(ReductionMode::Average, 102, 103)
                .unary(Rsqrt, 103, 104)
                .binary(Mul, 101, 104, 1),
            "{0 1 2 3 4 5: FOFOE}",
        ),
        (
            "all readers of what is computed before",
            rows(&[0, 1, 100]).tensor(2, SUMS).unary(Exp, 0, 100).reduce(add, 100, 2).unary(Neg, 100, 1),
            "{0 1 2: FOE}",
        ),
        (
            "a row that will be cut into parts",
            [0, 1, 2, 100]
                .iter()
                .fold(Case::new(), |case, uid| case.tensor(*uid, &[1, 70_000]))
                .layernorm(100, [113, 14])
                .binary(Add, 100, 2, 1),
            "{0 1: FOFOE}",
        ),
        (
            "a sum that will be in parts, and what is before and behind it",
            Case::new()
                .tensor(0, &[70_000])
                .tensor(100, &[70_000])
                .tensor(101, &[1])
                .tensor(1, &[1])
                .binary(Mul, 0, 0, 100)
                .reduce(add, 100, 101)
                .unary(Sqrt, 101, 1),
            "{0 1 2: FO}",
        ),
        (
            "the index of a row",
            {
                let mut index = Pointwise::unary(GenIndex, TensorUid(0), TensorUid(101));
                index.axis = Some(1);
                rows(&[0, 1, 2, 101, 100])
                    .layernorm(100, [13, 14])
                    .node(Operation::Pointwise(index))
                    .binary(Mul, 100, 101, 1)
            },
            "{0 1 2: FOFOE}",
        ),
    ]
}

#[cfg(test)]
fn staying() -> Vec<Example> {
    let image = |case: Case, uids: &[i64]| uids.iter().fold(case, |case, uid| case.tensor(*uid, IMAGE));
    let rows = |uids: &[i64]| uids.iter().fold(Case::new(), |case, uid| case.tensor(*uid, ROWS));
    let add = ReductionMode::Add;
    vec![
        (
            "sums along something else",
            rows(&[0, 1]).tensor(100, SUMS).tensor(2, &[1, 9]).layernorm(1, [13, 14]).reduce(add, 0, 2),
            "{0: FOFOE} {1: FO}",
        ),
        (
            "a softmax of something else",
            exponentials(ROWS, SUMS).tensor(105, &[1, 9]).reduce(add, 102, 105).binary(Div, 102, 105, 1),
            "{0 1 2: FOE} {3 4: FOE}",
        ),
        (
            "what lies between has no fractions",
            rows(&[0, 1]).define(TensorDef::new(100, DataType::Int32, SUMS)).reduce(add, 0, 100).binary(Add, 0, 100, 1),
            "{0: FO} [1]",
        ),
        (
            "windows share what would be computed before them",
            image(Case::new(), &[0, 100]).tensor(1, IMAGE).unary(Exp, 0, 100).pool(100, 1, 1),
            "[0] {1: FO}",
        ),
        (
            // Node 2 needs elements of tensor 100 that no window has.
            "a reader of what windows leave out",
            image(Case::new(), &[0, 2, 100])
                .tensor(1, &[2, 3, 2, 2])
                .unary(Exp, 0, 100)
                .windows(100, 1, 1, 3, 2)
                .unary(Neg, 100, 2),
            "[0] {1: FO} [2]",
        ),
        (
            // Node 2 has the extents of tensor 100, which the windows' kernel computes only within windows.
            "extents of what windows leave out",
            image(Case::new(), &[0, 2, 3, 100])
                .tensor(1, &[2, 3, 1, 1])
                .unary(Exp, 0, 100)
                .windows(100, 1, 0, 4, 3)
                .binary(Add, 3, 1, 2),
            "{0 1: FO} [2]",
        ),
        (
            "others read what is computed before",
            rows(&[0, 1, 100])
                .tensor(2, SUMS)
                .tensor(3, &[1, 9])
                .unary(Exp, 0, 100)
                .reduce(add, 100, 2)
                .reduce(add, 100, 3),
            "[0] {1: FO} {2: FO}",
        ),
        (
            "the chain behind a convolution",
            image(Case::new(), &[0, 100, 101])
                .tensor(2, &[3, 3, 1, 1])
                .tensor(1, &[1, 3, 1, 1])
                .node(Operation::ConvolutionFwd(hipdnn_schemas::ConvolutionFwd {
                    x: TensorUid(0),
                    w: TensorUid(2),
                    y: TensorUid(100),
                    convolution: Convolution::new(2),
                }))
                .unary(ReluFwd, 100, 101)
                .reduce(add, 101, 1),
            "[0] [1] {2: FO}",
        ),
        (
            "one large group",
            Case::new()
                .tensor(0, &[1, 20_000])
                .tensor(1, &[1, 20_000])
                .tensor(100, &[1, 1])
                .reduce(ReductionMode::Max, 0, 100)
                .binary(Sub, 0, 100, 1),
            "{0: FO} [1]",
        ),
        (
            // The result may be at the place of tensor 0, of which other groups read neighbors.
            "a residual that is pooled",
            image(Case::new(), &[0, 1, 100]).pool(0, 100, 1).binary(Add, 100, 0, 1),
            "{0: FO} [1]",
        ),
        (
            "a residual that is not pooled",
            image(Case::new(), &[0, 1, 2, 100]).pool(0, 100, 1).binary(Add, 100, 2, 1),
            "{0 1: FO}",
        ),
        (
            // Node 1 may write to where tensor 0 is, which node 0 reads.
            "a function that may overwrite an operand",
            rows(&[0, 1, 2, 3, 100]).layernorm(100, [13, 14]).unary(Neg, 0, 1).binary(Add, 100, 2, 3),
            "{0: FOFOE} [1] [2]",
        ),
        (
            "somebody waits for another result",
            rows(&[0, 1, 100, 101])
                .tensor(2, SUMS)
                .tensor(3, &[5, 3])
                .tensor(102, &[5, 3])
                .layernorm(100, [13, 14])
                .binary(Add, 13, 3, 102)
                .reduce(add, 102, 2)
                .binary(Add, 100, 2, 1),
            "{0: FOFOE} {1 2: FO} [3]",
        ),
    ]
}

#[test]
fn chains_and_works_join_the_kernel_before_them() {
    for (what, case, want) in joining() {
        assert_eq!(case.fusion_groups(), want, "{what}");
    }
}

#[test]
fn what_would_cost_or_change_something_stays_apart() {
    for (what, case, want) in staying() {
        assert_eq!(case.fusion_groups(), want, "{what}");
    }
}

#[test]
fn opaque_works_stay_and_keep_the_chains_that_may_be_their_epilogue() {
    let case = [0, 100, 101].iter().fold(Case::new(), |case, uid| case.tensor(*uid, ROWS)).tensor(1, SUMS);
    let case = case.unary(Neg, 0, 100).unary(Exp, 100, 101).reduce(ReductionMode::Add, 101, 1);
    let graph = case.0.build().unwrap();
    for (has_epilogue, want) in [(false, "[0] {1 2: FO}"), (true, "[0] [1] {2: FO}")] {
        let mut works = lower(&graph).unwrap();
        let (inputs, outputs) = (Uids::from_slice(&[TensorUid(0)]), Uids::from_slice(&[TensorUid(100)]));
        works[0] = Work::Opaque(Opaque { node: 0, inputs, outputs, has_epilogue });
        let fusion_groups = fuse(&graph, works);
        assert!(matches!(fusion_groups[0], FusionGroup::Opaque(_)));
        assert_eq!(fusion_groups.iter().map(name).collect::<Vec<_>>().join(" "), want);
        assert!(
            legalize(&graph, &fusion_groups, LegalizeOptions::default(), &|_| Ok(())).is_err(),
            "no back end has kernels for it"
        );
    }
}

/// Contents of tensors in memory.
type Contents = HashMap<TensorUid, Vec<f64>>;

/// Graph and the results of its nodes in double precision.
pub struct Computed {
    /// Name for messages.
    pub what: String,
    /// The graph.
    pub graph: Graph,
    /// Contents of the inputs.
    pub read: Contents,
    /// Expected contents of the outputs.
    pub written: Contents,
}

/// Graphs with parts that are fused.
pub fn examples() -> Vec<Computed> {
    let mut graphs: Vec<(String, Graph)> =
        joining().into_iter().map(|(what, case, _)| (what.to_string(), case.0.build().unwrap())).collect();
    let mut numbers = Numbers(7);
    while graphs.len() < 30 {
        let graph = random_graph(&mut numbers);
        let joined = fuse(&graph, lower(&graph).unwrap());
        let joins = joined
            .iter()
            .any(|fusion_group| matches!(fusion_group, FusionGroup::Groups(groups) if groups.nodes.len() > 2));
        // What is computed in single precision differs by little then.
        if joins && graph.tensors().iter().all(|tensor| tensor.data_type() == F) {
            graphs.push((format!("random graph {}", graphs.len()), graph));
        }
    }
    let of = |(what, graph): (String, Graph)| {
        let results = results(&graph, &separate(&graph, lower(&graph).unwrap()), None);
        let (read, written) = results.into_iter().partition(|(uid, _)| graph.producer(*uid).is_none());
        Computed { what, graph, read, written }
    };
    graphs.into_iter().map(of).collect()
}

/// Deterministic random numbers: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Random graph of images and nodes over them and each other's results.
fn random_graph(numbers: &mut Numbers) -> hipdnn_schemas::Graph {
    const DIMS: [[i64; 3]; 4] = [[3, 4, 5], [3, 4, 1], [1, 4, 1], [3, 1, 5]];
    let mut graph = GraphBuilder::new("random").compute(F);
    let mut tensors: Vec<[i64; 3]> = Vec::new();
    for uid in 0..3 {
        let dims = DIMS[if uid == 0 { 0 } else { numbers.below(4) }];
        graph.tensor(TensorDef::new(uid, F, &dims));
        tensors.push(dims);
    }
    let nodes = 2 + numbers.below(7);
    for node in 0..nodes {
        let uid = tensors.len() as i64;
        // Results that were computed last are read most.
        let pick = |numbers: &mut Numbers| match numbers.below(3) {
            0 => numbers.below(tensors.len()),
            _ => tensors.len() - 1 - numbers.below(tensors.len().min(3)),
        };
        let (a, b) = (pick(numbers), pick(numbers));
        let broadcast: [i64; 3] = std::array::from_fn(|axis| tensors[a][axis].max(tensors[b][axis]));
        let (dims, operation) = match numbers.below(5) {
            0 | 1 => {
                let dims: [i64; 3] = match numbers.below(3) {
                    0 => [tensors[a][0], 1, tensors[a][2]],
                    1 => [tensors[a][0], tensors[a][1], 1],
                    _ => [1, tensors[a][1], 1],
                };
                let mode = [ReductionMode::Add, ReductionMode::Max, ReductionMode::Norm2][numbers.below(3)];
                let (input, output) = (TensorUid(a as i64), TensorUid(uid));
                (dims, Operation::Reduction(Reduction { mode, input, output, is_deterministic: true }))
            }
            2 => {
                let mode = [Neg, TanhFwd, Abs, SigmoidFwd][numbers.below(4)];
                (tensors[a], Operation::Pointwise(Pointwise::unary(mode, TensorUid(a as i64), TensorUid(uid))))
            }
            _ => {
                let mode = [Add, Mul, Sub, Max][numbers.below(4)];
                let [a, b] = [a, b].map(|uid| TensorUid(uid as i64));
                (broadcast, Operation::Pointwise(Pointwise::binary(mode, a, b, TensorUid(uid))))
            }
        };
        let data_type = if numbers.below(6) == 0 { DataType::Half } else { F };
        let tensor = TensorDef::new(uid, data_type, &dims);
        graph.tensor(if node + 1 < nodes && numbers.below(4) > 0 { tensor.intermediate() } else { tensor });
        graph.node("", operation);
        tensors.push(dims);
    }
    graph.build().unwrap()
}

#[cfg(test)]
/// Operand and result of a node that a caller may have at one place.
fn shareable(graph: &hipdnn_schemas::Graph) -> Option<(TensorUid, TensorUid)> {
    graph.nodes().iter().enumerate().find_map(|(index, node)| {
        let Operation::Pointwise(pointwise) = &node.operation else { return None };
        let is_last =
            |uid: &TensorUid| graph.producer(*uid).is_none() && graph.consumers(*uid).iter().max() == Some(&index);
        let operands = [Some(pointwise.in_0), pointwise.in_1].into_iter().flatten();
        let read = operands.filter(is_last).find(|uid| may_share(graph, *uid, pointwise.out_0))?;
        Some((read, pointwise.out_0))
    })
}

#[test]
fn random_graphs_compute_the_same_when_they_are_joined() {
    let mut numbers = Numbers(3);
    let (mut joins, mut shares) = (0, 0);
    for case in 0..1500 {
        let graph = random_graph(&mut numbers);
        let works = || lower(&graph).unwrap();
        let [apart, joined] = [separate, fuse].map(|fuse| fuse(&graph, works()));
        let joins_groups = joined
            .iter()
            .any(|fusion_group| matches!(fusion_group, FusionGroup::Groups(groups) if groups.nodes.len() > 1));
        joins += usize::from(joins_groups);
        let shared = shareable(&graph);
        shares += usize::from(shared.is_some() && joins_groups);
        let want = results(&graph, &apart, None);
        for shared in [None, shared] {
            let got = results(&graph, &joined, shared);
            for tensor in graph.tensors() {
                let uid = tensor.uid();
                if graph.producer(uid).is_none() || tensor.is_virtual() {
                    continue;
                }
                for (got, want) in got[&uid].iter().zip(&want[&uid]) {
                    let names: Vec<String> = joined.iter().map(name).collect();
                    let is_near = (got - want).abs() <= 1e-9 * want.abs().max(1.0);
                    assert!(
                        is_near,
                        "case {case}, {shared:?}, tensor {uid}: expected {want}, got {got}: {names:?} of {graph:#?}"
                    );
                }
            }
        }
    }
    assert!(joins > 300 && shares > 30, "{joins} and {shares} are too few to say anything");
}
