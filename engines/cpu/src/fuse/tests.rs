//! Tests of the rules: each fires where it should, does not where it must not, and gives the numbers of the nodes one
//! by one.

use hipdnn_schemas::{
    BatchnormInference, BatchnormInferenceVarianceExt, Convolution, ConvolutionBwd, ConvolutionFwd, DataType, Extents,
    Graph, Matmul, Operation, PointwiseMode as Mode, Reduction, ReductionMode, TensorDef, TensorUid, TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use super::{Rule, fuse};
use crate::applicability::lower;
use crate::plan::CpuPlan;
use crate::resources;
use crate::schedule::Schedule;
use crate::settings::Settings;
use crate::tests::{binary, build, conv, execute, memory, pack, settings, tensor, unary};
use DataType::{BFloat16, Boolean, Double, Float, Fp4E2M1, Fp6E3M2, Fp8E4M3, Fp8E5M2, Half, Int32};

/// Tolerance between results.
#[derive(Clone, Copy)]
enum Within {
    /// Bit equality.
    Bits,
    /// Number of units in the last place of `f32`, of the largest value met.
    Of(f64),
}

struct Case<'a> {
    what: &'a str,
    tensors: Vec<TensorDef>,
    nodes: Vec<Operation>,
    /// Rules that fire, in order.
    rules: Vec<Rule>,
    /// Number of steps that are left.
    steps: usize,
    /// Part of the reason that is given for what is not fused.
    reason: &'a str,
    within: Within,
}

fn run(graph: &Graph, settings: &Settings, steps: usize, what: &str) -> Vec<(TensorUid, Vec<f64>)> {
    let fused = fuse(graph, lower(graph).unwrap(), settings);
    assert_eq!(fused.works.len(), steps, "{what}: {:?}", fused.remarks);
    let dead = fused.remarks.iter().filter(|remark| remark.rule == Rule::Dead);
    let mut nodes: Vec<usize> = fused.nodes.iter().chain(dead.map(|remark| &remark.nodes)).flatten().copied().collect();
    nodes.sort_unstable();
    assert_eq!(nodes, Vec::from_iter(0..graph.nodes().len()), "{what}: each node is in one work");
    let schedule = Schedule::new(graph, &fused, settings).unwrap();
    let text = schedule.to_string();
    for remark in &fused.remarks {
        assert!(text.contains(&remark.to_string()), "{what}: {text}");
    }
    assert!(text.starts_with(&format!("{steps} steps, ")), "{what}: {text}");
    let plan = CpuPlan::new(schedule, settings.threads, resources::get()).unwrap();
    let memory = memory(graph, 11);
    execute(&plan, &pack(&memory)).unwrap();
    let results = memory.iter().filter(|(uid, _)| graph.producer(**uid).is_some());
    let mut results: Vec<_> = results.map(|(uid, memory)| (*uid, memory.values())).collect();
    results.sort_by_key(|(uid, _)| *uid);
    results
}

fn check(case: Case<'_>) {
    let what = case.what;
    let graph = build(&case.tensors, case.nodes);
    let fused = fuse(&graph, lower(&graph).unwrap(), &settings(2));
    let fired: Vec<Rule> = fused.remarks.iter().filter(|n| n.refused.is_none()).map(|n| n.rule).collect();
    assert_eq!(fired, case.rules, "{what}");
    let reasons: Vec<&str> = fused.remarks.iter().filter_map(|remark| remark.refused).collect();
    assert!(case.reason.is_empty() || reasons.iter().any(|r| r.contains(case.reason)), "{what}: {reasons:?}");
    let dead = case.rules.iter().filter(|rule| **rule == Rule::Dead).count();
    let plain = Settings { fuse: false, ..settings(2) };
    let want = run(&graph, &plain, graph.nodes().len() - dead, what);
    for threads in [1, 2] {
        let got = run(&graph, &settings(threads), case.steps, what);
        for ((uid, want), (_, got)) in want.iter().zip(&got) {
            let largest = want.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
            for (i, (want, got)) in want.iter().zip(got).enumerate() {
                let same = match case.within {
                    Within::Bits => want.to_bits() == got.to_bits(),
                    Within::Of(units) => (want - got).abs() <= units * f64::from(f32::EPSILON) * largest,
                };
                assert!(same, "{what}, {threads} threads: tensor {uid}[{i}] is {got}, alone {want}");
            }
        }
    }
}

/// Further tensors and nodes.
type Rest = (Vec<TensorDef>, Vec<Operation>);

const D: &[i64] = &[3, 4, 50];

fn x(uid: i64) -> TensorDef {
    tensor(uid, Float, D)
}

fn v(uid: i64) -> TensorDef {
    tensor(uid, Float, D).intermediate()
}

#[test]
fn decomposed_activations_become_one_function() {
    let number = |uid, value| tensor(uid, Float, &[1, 1, 1]).with_value(TensorValue::Float32(value));
    let numbers = |scale, cube| vec![number(20, scale), number(21, 1.0), number(22, 0.5), number(23, cube)];
    // x · (f + 1) · ½ in three orders, from `x`, tensor 0, and `odd`.
    let product = |order: usize, odd: i64| {
        let tensors = vec![v(10), v(11), x(12)];
        let factors = [[0, 10, 11, 22], [0, 22, 11, 10], [10, 22, 0, 11]][order];
        let [a, b, c, d] = factors;
        (tensors, vec![binary(Mode::Add, odd, 21, 10), binary(Mode::Mul, a, b, 11), binary(Mode::Mul, c, d, 12)])
    };
    let gelu = |order, mode, scale| {
        let (mut tensors, tail) = product(order, 2);
        tensors.extend([x(0), v(1), v(2)]);
        tensors.extend(numbers(scale, 0.0));
        (tensors, [vec![binary(mode, 0, 20, 1), unary(Mode::Erf, 1, 2)], tail].concat())
    };
    let read_inside = |(mut tensors, mut nodes): Rest, uid| {
        tensors.push(x(13));
        nodes.push(unary(Mode::Neg, uid, 13));
        (tensors, nodes)
    };
    let approximation = |order, cube| {
        let (mut tensors, tail) = product(order, 6);
        tensors.extend([x(0), v(1), v(2), v(3), v(4), v(5), v(6)]);
        tensors.extend(numbers((2.0 / std::f32::consts::PI).sqrt(), cube));
        let head = vec![
            binary(Mode::Mul, 0, 0, 1),
            binary(Mode::Mul, 1, 0, 2),
            binary(Mode::Mul, 23, 2, 3),
            binary(Mode::Add, 0, 3, 4),
            binary(Mode::Mul, 4, 20, 5),
            unary(Mode::TanhFwd, 5, 6),
        ];
        (tensors, [head, tail].concat())
    };
    let swish = |tensors: Vec<TensorDef>, nodes: Vec<Operation>| ([vec![x(0)], tensors].concat(), nodes);
    let root = std::f32::consts::SQRT_2;
    let plain = || vec![unary(Mode::SigmoidFwd, 0, 1), binary(Mode::Mul, 1, 0, 2)];
    let scaled = |mode, number| {
        let nodes = vec![binary(mode, 0, 20, 1), unary(Mode::SigmoidFwd, 1, 2), binary(Mode::Mul, 0, 2, 3)];
        swish(vec![number, v(1), v(2), x(3)], nodes)
    };
    let half = |uid| tensor(uid, Half, D);
    let broadcast = || {
        let small = |uid| tensor(uid, Float, &[1, 4, 1]);
        (vec![small(0), small(1).intermediate(), x(2)], plain())
    };
    let dead = || {
        let (mut tensors, mut nodes) = swish(vec![v(1), x(2)], plain());
        tensors.push(v(3));
        nodes.push(unary(Mode::Neg, 1, 3));
        (tensors, nodes)
    };
    let behind_a_product = || {
        let tensors = [(0, &[3, 4, 6]), (1, &[3, 6, 50])].map(|(uid, dims)| tensor(uid, Float, dims));
        let product = Operation::Matmul(Matmul { a: TensorUid(0), b: TensorUid(1), c: TensorUid(2) });
        let nodes = vec![product, unary(Mode::SigmoidFwd, 2, 3), binary(Mode::Mul, 2, 3, 4), unary(Mode::Neg, 4, 5)];
        ([tensors.to_vec(), vec![v(2), v(3), v(4), x(5)]].concat(), nodes)
    };
    let activation = vec![Rule::Activation];
    let elsewhere = "readers elsewhere";
    let cases = [
        ("a swish", swish(vec![v(1), x(2)], plain()), activation.clone(), 1, ""),
        ("a swish of half", (vec![half(0), half(1).intermediate(), half(2)], plain()), activation.clone(), 1, ""),
        ("a swish, scaled", scaled(Mode::Mul, number(20, 1.702)), activation.clone(), 1, ""),
        ("a swish, scaled by a negative number", scaled(Mode::Mul, number(20, -0.5)), activation.clone(), 1, ""),
        ("a swish, divided", scaled(Mode::Div, number(20, 0.25)), activation.clone(), 1, ""),
        ("a divisor without an inverse", scaled(Mode::Div, number(20, 1e-39)), vec![Rule::Chain], 1, ""),
        (
            "a factor that is no number of the graph",
            scaled(Mode::Mul, tensor(20, Float, &[1; 3])),
            vec![Rule::Chain],
            1,
            "",
        ),
        ("a sigmoid with a dead reader", dead(), vec![Rule::Dead, Rule::Activation], 1, ""),
        ("a sigmoid that is stored", swish(vec![x(1), x(2)], plain()), vec![], 2, elsewhere),
        ("a sigmoid with another reader", read_inside(swish(vec![v(1), x(2)], plain()), 1), vec![], 3, elsewhere),
        ("a swish that is broadcast", broadcast(), vec![], 2, "other extents"),
        ("a gelu", gelu(0, Mode::Div, root), activation.clone(), 1, ""),
        ("a gelu, halved first", gelu(1, Mode::Mul, 1.0 / root), activation.clone(), 1, ""),
        ("a gelu of halved sums", gelu(2, Mode::Div, root), activation.clone(), 1, ""),
        ("a gelu of another scale", gelu(0, Mode::Mul, 0.7072), vec![Rule::Chain], 1, ""),
        (
            "a gelu whose sum has another reader",
            read_inside(gelu(0, Mode::Div, root), 10),
            vec![Rule::Chain; 2],
            3,
            elsewhere,
        ),
        ("an approximation", approximation(0, 0.044_715), activation.clone(), 1, ""),
        ("an approximation, halved first", approximation(1, 0.044_715), activation.clone(), 1, ""),
        ("an approximation of another cube", approximation(1, 0.0448), vec![Rule::Chain], 1, ""),
        (
            "behind a product, and before another function",
            behind_a_product(),
            vec![Rule::Activation, Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
    ];
    for (what, (tensors, nodes), rules, steps, reason) in cases {
        let units = if tensors[0].data_type == Half { 8192.0 } else { 4.0 };
        check(Case { what, tensors, nodes, rules, steps, reason, within: Within::Of(units) });
    }
}

#[test]
fn decomposed_activations_beside_reductions_stay_in_their_rows() {
    let row = |uid| tensor(uid, Float, &[3, 4, 1]).intermediate();
    let nodes = vec![
        binary(Mode::Mul, 0, 0, 1),
        Operation::Reduction(Reduction {
            mode: ReductionMode::Add,
            input: TensorUid(1),
            output: TensorUid(2),
            is_deterministic: true,
        }),
        unary(Mode::Rsqrt, 2, 3),
        binary(Mode::Mul, 0, 3, 4),
        unary(Mode::SigmoidFwd, 4, 5),
        binary(Mode::Mul, 4, 5, 6),
    ];
    let tensors = vec![x(0), v(1), row(2), row(3), v(4), v(5), x(6)];
    let what = "a normalization and a swish";
    check(Case { what, tensors, nodes, rules: vec![Rule::Rows], steps: 1, reason: "", within: Within::Of(4.0) });
}

#[test]
fn activations_of_infinities_are_their_limits() {
    let tensors = [x(0), v(1), x(2)].map(|tensor| TensorDef {
        dims: Extents::from_slice(&[4]),
        strides: Extents::from_slice(&[1]),
        ..tensor
    });
    let graph = build(&tensors, vec![unary(Mode::SigmoidFwd, 0, 1), binary(Mode::Mul, 0, 1, 2)]);
    let fused = fuse(&graph, lower(&graph).unwrap(), &settings(1));
    let plan = CpuPlan::new(Schedule::new(&graph, &fused, &settings(1)).unwrap(), 1, resources::get()).unwrap();
    let (x, mut y) = ([f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0], [7f32; 4]);
    let pack = [
        DeviceBuffer { uid: 0, ptr: x.as_ptr().cast_mut().cast() },
        DeviceBuffer { uid: 2, ptr: y.as_mut_ptr().cast() },
    ];
    execute(&plan, &pack).unwrap();
    assert_eq!(y[..2], [0.0, f32::INFINITY]);
    assert!(y[2].is_nan() && y[3] == 0.0, "{y:?}");
}

#[test]
fn what_nobody_reads_is_left_out() {
    let dead = || vec![x(0), v(1), v(2), x(3)];
    check(Case {
        what: "a chain to nowhere",
        tensors: dead(),
        nodes: vec![unary(Mode::Exp, 0, 1), unary(Mode::Neg, 1, 2), unary(Mode::Neg, 0, 3)],
        rules: vec![Rule::Dead, Rule::Dead],
        steps: 1,
        reason: "",
        within: Within::Bits,
    });
    check(Case {
        what: "read by one that is needed",
        tensors: dead(),
        nodes: vec![unary(Mode::Exp, 0, 1), unary(Mode::Neg, 1, 2), unary(Mode::Neg, 1, 3)],
        rules: vec![Rule::Dead, Rule::Chain],
        steps: 1,
        reason: "",
        within: Within::Bits,
    });
    check(Case {
        what: "read by nobody, but the caller's",
        tensors: vec![x(0), x(1), x(2)],
        nodes: vec![unary(Mode::Exp, 0, 1), unary(Mode::Neg, 0, 2)],
        rules: vec![],
        steps: 2,
        reason: "",
        within: Within::Bits,
    });
    check(Case {
        what: "what only an index has in its shape",
        tensors: vec![x(0), v(1), tensor(2, Int32, D)],
        nodes: vec![
            unary(Mode::Exp, 0, 1),
            Operation::Pointwise(hipdnn_schemas::Pointwise {
                axis: Some(2),
                ..hipdnn_schemas::Pointwise::unary(Mode::GenIndex, TensorUid(1), TensorUid(2))
            }),
        ],
        rules: vec![Rule::Dead],
        steps: 1,
        reason: "",
        within: Within::Bits,
    });
}

#[test]
fn element_wise_functions_are_one_pass() {
    let half = |uid| tensor(uid, Half, D).intermediate();
    let many: Vec<TensorDef> = (2..50).map(v).chain([x(0), x(1), x(50)]).collect();
    let long: Vec<Operation> =
        (1..50).map(|i| if i % 2 == 0 { unary(Mode::Neg, i, i + 1) } else { binary(Mode::Add, i, 0, i + 1) }).collect();
    let cases: Vec<(&'static str, Rest, usize, &'static str)> = vec![
        ("a chain", (vec![x(0), v(1), x(2)], vec![unary(Mode::Exp, 0, 1), unary(Mode::TanhFwd, 1, 2)]), 1, ""),
        (
            "rounded between",
            (
                vec![x(0), half(1), tensor(2, BFloat16, D).intermediate(), x(3)],
                vec![unary(Mode::Exp, 0, 1), binary(Mode::Mul, 1, 0, 2), unary(Mode::Floor, 2, 3)],
            ),
            1,
            "",
        ),
        (
            "two ways to one end",
            (
                vec![x(0), v(1), v(2), v(3), x(4)],
                vec![
                    unary(Mode::Neg, 0, 1),
                    unary(Mode::Exp, 1, 2),
                    binary(Mode::Sub, 1, 2, 3),
                    binary(Mode::Mul, 3, 2, 4),
                ],
            ),
            1,
            "",
        ),
        (
            "with scalars and a broadcast operand",
            (
                vec![
                    x(0),
                    tensor(1, Float, &[1, 4, 1]),
                    v(2),
                    tensor(3, Float, &[1]).with_value(TensorValue::Float32(1.5)),
                    x(4),
                ],
                vec![binary(Mode::Add, 1, 0, 2), binary(Mode::Max, 3, 2, 4)],
            ),
            1,
            "",
        ),
        (
            "a truth between",
            (
                vec![x(0), x(1), tensor(2, Boolean, D).intermediate(), tensor(3, Boolean, D)],
                vec![binary(Mode::CmpGt, 0, 1, 2), unary(Mode::LogicalNot, 2, 3)],
            ),
            2,
            "other numbers",
        ),
        (
            "in f64",
            (
                vec![x(0), tensor(1, Double, D).intermediate(), x(2)],
                vec![unary(Mode::Exp, 0, 1), unary(Mode::Neg, 1, 2)],
            ),
            1,
            "",
        ),
        (
            "in whole numbers",
            (
                vec![tensor(0, Int32, D), tensor(1, Int32, D).intermediate(), tensor(2, Int32, D)],
                vec![binary(Mode::Mul, 0, 0, 1), binary(Mode::Sub, 1, 0, 2)],
            ),
            1,
            "",
        ),
        (
            "a result that is read elsewhere",
            (
                vec![x(0), v(1), x(2), tensor(3, Float, &[1, 1, 1])],
                vec![
                    unary(Mode::Exp, 0, 1),
                    unary(Mode::Neg, 1, 2),
                    Operation::Reduction(hipdnn_schemas::Reduction {
                        mode: hipdnn_schemas::ReductionMode::Add,
                        input: TensorUid(1),
                        output: TensorUid(3),
                        is_deterministic: true,
                    }),
                ],
            ),
            3,
            "readers elsewhere",
        ),
        (
            "a result that the caller wants",
            (vec![x(0), x(1), x(2)], vec![unary(Mode::Exp, 0, 1), unary(Mode::Neg, 1, 2)]),
            2,
            "not virtual",
        ),
        (
            "a result that is broadcast",
            (
                vec![tensor(0, Float, &[1, 4, 1]), tensor(1, Float, &[1, 4, 1]).intermediate(), x(2), x(3)],
                vec![unary(Mode::Exp, 0, 1), binary(Mode::Add, 1, 2, 3)],
            ),
            2,
            "broadcast",
        ),
        (
            "in numbers of eight bits and less",
            (
                vec![
                    tensor(0, Fp8E4M3, D),
                    tensor(1, Fp8E5M2, D).intermediate(),
                    tensor(2, Fp4E2M1, D).intermediate(),
                    tensor(3, Fp6E3M2, D),
                ],
                vec![unary(Mode::Exp, 0, 1), binary(Mode::Sub, 1, 0, 2), binary(Mode::Add, 2, 1, 3)],
            ),
            1,
            "",
        ),
        ("more than a pass takes", (many, long), 2, "no room"),
    ];
    for (what, (tensors, nodes), steps, reason) in cases {
        let joined = graph_len(&nodes) > steps;
        let rules = match what {
            "more than a pass takes" => vec![Rule::Chain, Rule::Chain],
            _ if joined => vec![Rule::Chain],
            _ => vec![],
        };
        check(Case { what, tensors, nodes, rules, steps, reason, within: Within::Bits });
    }
}

fn graph_len(nodes: &[Operation]) -> usize {
    nodes.len()
}

#[test]
fn a_product_takes_what_follows() {
    let a = || tensor(0, Float, &[2, 7, 40]);
    let b = || tensor(1, Float, &[1, 40, 33]);
    let c = |uid, data_type| tensor(uid, data_type, &[2, 7, 33]);
    let matmul = || Operation::Matmul(Matmul { a: TensorUid(0), b: TensorUid(1), c: TensorUid(2) });
    let bias = |uid| tensor(uid, Float, &[1, 1, 33]);
    let cases: Vec<(&'static str, Rest, Vec<Rule>, usize, &'static str)> = vec![
        (
            "bias and activation",
            (
                vec![a(), b(), c(2, Float).intermediate(), bias(3), c(4, Float).intermediate(), c(5, Half)],
                vec![matmul(), binary(Mode::Add, 2, 3, 4), unary(Mode::GeluFwd, 4, 5)],
            ),
            vec![Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "divided by one number, then a mask",
            (
                vec![
                    a(),
                    b(),
                    c(2, Float).intermediate(),
                    tensor(3, Float, &[1, 1, 1]),
                    c(4, Float).intermediate(),
                    tensor(5, Float, &[1, 7, 33]),
                    c(6, Float),
                ],
                vec![matmul(), binary(Mode::Div, 2, 3, 4), binary(Mode::Add, 4, 5, 6)],
            ),
            vec![Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "times a column, times a row, plus a row",
            (
                vec![
                    a(),
                    b(),
                    c(2, Float).intermediate(),
                    tensor(3, Float, &[2, 7, 1]),
                    c(4, Float).intermediate(),
                    bias(5),
                    c(6, Float).intermediate(),
                    bias(7),
                    c(8, Float),
                ],
                vec![matmul(), binary(Mode::Mul, 3, 2, 4), binary(Mode::Mul, 4, 5, 6), binary(Mode::Add, 7, 6, 8)],
            ),
            vec![Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "a row divided by the product",
            (
                vec![a(), b(), c(2, Float).intermediate(), bias(3), c(4, Float)],
                vec![matmul(), binary(Mode::Div, 3, 2, 4)],
            ),
            vec![Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "rounded before the bias, twice read",
            (
                vec![a(), b(), c(2, Half).intermediate(), bias(3), c(4, BFloat16).intermediate(), c(5, Float)],
                vec![matmul(), binary(Mode::Add, 3, 2, 4), binary(Mode::Mul, 4, 2, 5)],
            ),
            vec![Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "in f64",
            (
                vec![
                    tensor(0, Double, &[2, 7, 40]),
                    b(),
                    c(2, Double).intermediate(),
                    c(3, Double).intermediate(),
                    c(4, Float),
                ],
                vec![matmul(), unary(Mode::Abs, 2, 3), unary(Mode::Sqrt, 3, 4)],
            ),
            vec![Rule::Chain, Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "to numbers of eight bits",
            (vec![a(), b(), c(2, Float).intermediate(), c(3, Fp8E5M2)], vec![matmul(), unary(Mode::ReluFwd, 2, 3)]),
            vec![Rule::ProductEpilogue],
            1,
            "",
        ),
        (
            "to numbers that share bytes",
            (vec![a(), b(), c(2, Float).intermediate(), c(3, Fp4E2M1)], vec![matmul(), unary(Mode::ReluFwd, 2, 3)]),
            vec![],
            2,
            "bytes that they share",
        ),
        (
            "a product that the caller wants",
            (vec![a(), b(), c(2, Float), c(3, Float)], vec![matmul(), unary(Mode::Neg, 2, 3)]),
            vec![],
            2,
            "not virtual",
        ),
        (
            "a product that is computed with other numbers",
            (
                vec![tensor(0, Double, &[2, 7, 40]), b(), c(2, Float).intermediate(), c(3, Float)],
                vec![matmul(), unary(Mode::Neg, 2, 3)],
            ),
            vec![],
            2,
            "other numbers",
        ),
        (
            "a product that is broadcast",
            (
                vec![
                    tensor(0, Float, &[1, 7, 40]),
                    b(),
                    tensor(2, Float, &[1, 7, 33]).intermediate(),
                    c(3, Float),
                    c(4, Float),
                ],
                vec![matmul(), binary(Mode::Add, 2, 3, 4)],
            ),
            vec![],
            2,
            "broadcast",
        ),
    ];
    for (what, (tensors, nodes), rules, steps, reason) in cases {
        check(Case { what, tensors, nodes, rules, steps, reason, within: Within::Bits });
    }
}

#[test]
fn a_product_stays_apart_from_a_sum_whose_result_may_be_at_a_factor() {
    let square = |uid| tensor(uid, Float, &[2, 40, 40]);
    let matmul = Operation::Matmul(Matmul { a: TensorUid(0), b: TensorUid(1), c: TensorUid(2) });
    for factor in [0, 1] {
        check(Case {
            what: "a factor is an operand of the sum",
            tensors: vec![square(0), square(1), square(2).intermediate(), square(3)],
            nodes: vec![matmul.clone(), binary(Mode::Add, 2, factor, 3)],
            rules: vec![],
            steps: 2,
            reason: "at the place of a factor",
            within: Within::Bits,
        });
    }
    check(Case {
        what: "an operand that is no factor",
        tensors: vec![square(0), square(1), square(2).intermediate(), square(4), square(3)],
        nodes: vec![matmul, binary(Mode::Add, 2, 4, 3)],
        rules: vec![Rule::ProductEpilogue],
        steps: 1,
        reason: "",
        within: Within::Bits,
    });
}

const X: &[i64] = &[2, 5, 9, 11];
const Y: &[i64] = &[2, 6, 9, 11];
const CHANNELS: &[i64] = &[1, 6, 1, 1];

/// A 3×3 convolution of tensors 0 and 1 to 2, and the statistics 10 to 13 of its channels.
fn start(between: TensorDef) -> Vec<TensorDef> {
    let mut tensors = vec![tensor(0, Float, X), tensor(1, Float, &[6, 5, 3, 3]), between];
    tensors.extend((10..14).map(|uid| tensor(uid, Float, CHANNELS)));
    tensors
}

fn normalize(x: i64, y: i64) -> Operation {
    Operation::BatchnormInference(BatchnormInference {
        x: TensorUid(x),
        mean: TensorUid(10),
        inv_variance: TensorUid(11),
        scale: TensorUid(12),
        bias: TensorUid(13),
        y: TensorUid(y),
    })
}

/// Case: name, the convolution's result, further tensors and nodes, rules, steps, reason.
type Behind<'a> = (&'a str, TensorDef, Rest, Vec<Rule>, usize, &'a str);

#[test]
fn a_normalization_becomes_a_scale_and_a_shift() {
    let y = |uid| tensor(uid, Float, Y);
    let u = |uid| tensor(uid, Float, Y).intermediate();
    // Each side rounds values of at most |x|, |mean|, each times |r·scale|, and |bias|, a few times: all of them numbers
    // below 4 but for x, whose largest bounds the products.
    let within = Within::Of(64.0);
    let cases: Vec<Behind<'static>> = vec![
        (
            "normalization",
            u(2),
            (vec![y(3)], vec![conv(0, 1, 2, 1), normalize(2, 3)]),
            vec![Rule::Normalization],
            1,
            "",
        ),
        (
            "bias, normalization, residual, activation",
            u(2),
            (
                vec![tensor(3, Float, CHANNELS), u(4), u(5), y(6), u(7), y(8)],
                vec![
                    conv(0, 1, 2, 1),
                    binary(Mode::Add, 2, 3, 4),
                    normalize(4, 5),
                    binary(Mode::Add, 6, 5, 7),
                    unary(Mode::ReluFwd, 7, 8),
                ],
            ),
            vec![Rule::Epilogue, Rule::Normalization, Rule::Epilogue, Rule::Epilogue],
            1,
            "",
        ),
        (
            "a result that the caller wants",
            y(2),
            (vec![y(3)], vec![conv(0, 1, 2, 1), normalize(2, 3)]),
            vec![],
            2,
            "not virtual",
        ),
        (
            "two readers",
            u(2),
            (vec![y(3), y(4)], vec![conv(0, 1, 2, 1), normalize(2, 3), unary(Mode::Neg, 2, 4)]),
            vec![],
            3,
            "two readers",
        ),
    ];
    for (what, between, (tensors, nodes), rules, steps, reason) in cases {
        let mut all = start(between);
        all.extend(tensors);
        check(Case { what, tensors: all, nodes, rules, steps, reason, within });
    }
    // With variances, which are not negative: squares of the statistics, plus an epsilon.
    let mut all = start(u(2));
    all.extend([tensor(20, Float, CHANNELS).intermediate(), y(3)]);
    all.push(tensor(21, Float, &[1]).with_value(TensorValue::Float32(0.125)));
    let fold = Operation::BatchnormInferenceVarianceExt(BatchnormInferenceVarianceExt {
        x: TensorUid(2),
        mean: TensorUid(10),
        variance: TensorUid(20),
        scale: TensorUid(12),
        bias: TensorUid(13),
        y: TensorUid(3),
        epsilon: TensorUid(21),
    });
    check(Case {
        what: "with variances",
        tensors: all,
        nodes: vec![binary(Mode::Mul, 11, 11, 20), conv(0, 1, 2, 1), fold],
        rules: vec![Rule::Normalization],
        steps: 2,
        reason: "",
        within,
    });
}

/// A gradient of tensors 0 (dy) and 1 (w) to 2, of windows of that size which share no place.
fn enlarge(window: &[i64]) -> Operation {
    let convolution = Convolution { stride: window.to_vec(), ..Convolution::new(window.len()) };
    let (dy, w, dx) = (TensorUid(0), TensorUid(1), TensorUid(2));
    Operation::ConvolutionBwd(ConvolutionBwd { dy, w, dx, convolution })
}

/// Case: name, type of dy and the filter, further tensors and nodes, rules, steps, reason.
type Enlarged<'a> = (&'a str, DataType, Rest, Vec<Rule>, usize, &'a str, Within);

#[test]
fn a_gradient_that_enlarges_an_image_takes_what_follows() {
    use Rule::{Epilogue, Normalization};
    // Extents of dy, channels of dx, and the window.
    let shapes: [(&[i64], i64, &[i64]); 7] = [
        (&[2, 7, 5, 9], 6, &[2, 2]),
        (&[1, 33, 18, 19], 1, &[2, 2]),
        (&[1, 4, 3, 700], 5, &[2, 2]),
        (&[1, 5, 4, 23], 7, &[3, 3]),
        (&[1, 3, 2, 131], 3, &[1, 8]),
        (&[2, 4, 17], 6, &[4]),
        (&[1, 5, 2, 3, 11], 3, &[2, 1, 3]),
    ];
    for (dy, channels, window) in shapes {
        let filter: Vec<i64> = [dy[1], channels].iter().chain(window).copied().collect();
        let image: Vec<i64> =
            [dy[0], channels].into_iter().chain(dy[2..].iter().zip(window).map(|(n, s)| n * s)).collect();
        let per_channel: Vec<i64> = (0..image.len()).map(|axis| if axis == 1 { channels } else { 1 }).collect();
        let start = |input: DataType, between: TensorDef| {
            let mut tensors = vec![tensor(0, input, dy), tensor(1, input, &filter), between];
            tensors.extend((10..14).map(|uid| tensor(uid, Float, &per_channel)));
            tensors
        };
        let y = |uid| tensor(uid, Float, &image);
        let u = |uid| y(uid).intermediate();
        let bias = |uid| tensor(uid, Float, &per_channel);
        let cases: Vec<Enlarged<'_>> = vec![
            (
                "bias, activation",
                Float,
                (
                    vec![bias(3), u(4), y(5)],
                    vec![enlarge(window), binary(Mode::Add, 2, 3, 4), unary(Mode::ReluFwd, 4, 5)],
                ),
                vec![Epilogue, Epilogue],
                1,
                "",
                Within::Bits,
            ),
            (
                "bias, activation and residuals of 16 bits",
                Half,
                (
                    vec![
                        tensor(3, Half, &per_channel),
                        u(4),
                        u(5),
                        tensor(6, Half, &image),
                        u(7),
                        tensor(8, Half, &image),
                    ],
                    vec![
                        enlarge(window),
                        binary(Mode::Sub, 3, 2, 4),
                        unary(Mode::ReluFwd, 4, 5),
                        binary(Mode::Add, 6, 5, 7),
                        binary(Mode::Mul, 7, 7, 8),
                    ],
                ),
                vec![Epilogue; 4],
                1,
                "",
                Within::Bits,
            ),
            (
                "residual that is read more than once, by functions without rows",
                Float,
                (
                    vec![y(3), u(4), u(5), y(6)],
                    vec![
                        enlarge(window),
                        binary(Mode::Max, 2, 3, 4),
                        binary(Mode::Min, 3, 4, 5),
                        binary(Mode::Sub, 5, 3, 6),
                    ],
                ),
                vec![Epilogue; 3],
                1,
                "",
                Within::Bits,
            ),
            (
                "normalization between",
                Float,
                (
                    vec![bias(3), u(4), u(5), y(6)],
                    vec![enlarge(window), binary(Mode::Add, 2, 3, 4), normalize(4, 5), unary(Mode::ReluFwd, 5, 6)],
                ),
                vec![Epilogue, Normalization, Epilogue],
                1,
                "",
                // As of convolutions' normalizations.
                Within::Of(64.0),
            ),
            (
                "normalization, then a function that takes long",
                Float,
                (vec![u(4), y(5)], vec![enlarge(window), normalize(2, 4), unary(Mode::SigmoidFwd, 4, 5)]),
                vec![Normalization],
                2,
                "longer than a pass",
                Within::Of(64.0),
            ),
            (
                "bias, then a function that takes long",
                Float,
                (
                    vec![bias(3), u(4), y(5)],
                    vec![enlarge(window), binary(Mode::Add, 2, 3, 4), unary(Mode::SigmoidFwd, 4, 5)],
                ),
                vec![Rule::Chain],
                2,
                "longer than a pass",
                Within::Bits,
            ),
            (
                "two readers",
                Float,
                (
                    vec![bias(3), u(4), y(5), y(6)],
                    vec![enlarge(window), binary(Mode::Add, 2, 3, 4), unary(Mode::Exp, 4, 5), unary(Mode::Abs, 4, 6)],
                ),
                vec![Epilogue],
                3,
                "has not one reader",
                Within::Bits,
            ),
            (
                "the result between is wanted",
                Float,
                (
                    vec![bias(3), y(4), y(5)],
                    vec![enlarge(window), binary(Mode::Add, 2, 3, 4), unary(Mode::ReluFwd, 4, 5)],
                ),
                vec![Epilogue],
                2,
                "not virtual",
                Within::Bits,
            ),
        ];
        for (what, input, (tensors, nodes), rules, steps, reason, within) in cases {
            let used: Vec<TensorUid> = nodes.iter().flat_map(|node| [node.inputs(), node.outputs()].concat()).collect();
            let mut all = start(input, u(2));
            all.extend(tensors);
            all.retain(|tensor| used.contains(&tensor.uid));
            check(Case {
                what: &format!("{what}, {window:?} of {dy:?}"),
                tensors: all,
                nodes,
                rules,
                steps,
                reason,
                within,
            });
        }
    }
    // Operands that the gradient reads, results that are rounded between, and windows that share places.
    let square = [1, 4, 6, 6];
    for (what, last, convolution, reason) in [
        ("an operand that is dy", binary(Mode::Add, 2, 0, 3), Convolution::new(2), ""),
        ("windows that overlap", unary(Mode::ReluFwd, 2, 3), Convolution::new(2), ""),
    ] {
        let (pre_padding, post_padding) = (vec![1; 2], vec![1; 2]);
        let convolution = Convolution { pre_padding, post_padding, ..convolution };
        let (dy, w, dx) = (TensorUid(0), TensorUid(1), TensorUid(2));
        let nodes = vec![Operation::ConvolutionBwd(ConvolutionBwd { dy, w, dx, convolution }), last];
        let tensors = vec![
            tensor(0, Float, &square),
            tensor(1, Float, &[4, 4, 3, 3]),
            tensor(2, Float, &square).intermediate(),
            tensor(3, Float, &square),
        ];
        check(Case { what, tensors, nodes, rules: vec![], steps: 2, reason, within: Within::Bits });
    }
}

/// A convolution and nine biases, one after the other.
fn many_summands() -> Rest {
    let tensors = (0..9).map(|i| tensor(20 + i, Float, CHANNELS));
    let sums = (0..9).map(|i| if i < 8 { tensor(30 + i, Float, Y).intermediate() } else { tensor(38, Float, Y) });
    let add = |i: i64| binary(Mode::Add, if i == 0 { 2 } else { 29 + i }, 20 + i, 30 + i);
    (tensors.chain(sums).collect(), [conv(0, 1, 2, 1)].into_iter().chain((0..9).map(add)).collect())
}

#[test]
fn a_convolution_takes_what_follows() {
    let y = |uid| tensor(uid, Float, Y);
    let u = |uid| tensor(uid, Float, Y).intermediate();
    let cases: Vec<Behind<'static>> = vec![
        (
            "bias, residual, activation",
            u(2),
            (
                vec![tensor(3, Float, CHANNELS), u(4), y(5), u(6), y(7)],
                vec![
                    conv(0, 1, 2, 1),
                    binary(Mode::Add, 2, 3, 4),
                    binary(Mode::Add, 5, 4, 6),
                    unary(Mode::ReluFwd, 6, 7),
                ],
            ),
            vec![Rule::Epilogue; 3],
            1,
            "not virtual",
        ),
        (
            "a residual with its channels innermost",
            u(2),
            (
                vec![tensor(3, Float, CHANNELS), u(4), y(5).channels_last(), u(6), y(7)],
                vec![
                    conv(0, 1, 2, 1),
                    binary(Mode::Add, 2, 3, 4),
                    binary(Mode::Add, 5, 4, 6),
                    unary(Mode::ReluFwd, 6, 7),
                ],
            ),
            vec![Rule::Epilogue, Rule::Chain],
            2,
            "no neighbors in memory",
        ),
        (
            "a factor for each channel and image, a value for each place of a plane",
            u(2),
            (
                vec![tensor(3, Float, &[2, 6, 1, 1]), u(4), tensor(5, Float, &[1, 1, 9, 11]), y(6)],
                vec![conv(0, 1, 2, 1), binary(Mode::Mul, 2, 3, 4), binary(Mode::Add, 5, 4, 6)],
            ),
            vec![Rule::Epilogue; 2],
            1,
            "",
        ),
        (
            "a value for each column",
            u(2),
            (vec![tensor(3, Float, &[1, 1, 1, 11]), y(4)], vec![conv(0, 1, 2, 1), binary(Mode::Mul, 2, 3, 4)]),
            vec![],
            2,
            "no neighbors in memory",
        ),
        (
            "a residual that nobody reads afterwards",
            u(2),
            (
                vec![y(3), u(4), u(5), y(6)],
                vec![unary(Mode::Neg, 3, 4), conv(0, 1, 2, 1), binary(Mode::Add, 2, 4, 5), binary(Mode::Div, 5, 3, 6)],
            ),
            vec![Rule::Epilogue],
            3,
            "no function that an epilogue has",
        ),
        (
            "a result of another type",
            u(2),
            (
                vec![tensor(3, Float, CHANNELS), tensor(4, Boolean, Y)],
                vec![conv(0, 1, 2, 1), binary(Mode::CmpLt, 2, 3, 4)],
            ),
            vec![],
            2,
            "no function",
        ),
        (
            "a type that convolutions do not write",
            u(2),
            (vec![tensor(3, Fp8E4M3, Y)], vec![conv(0, 1, 2, 1), unary(Mode::ReluFwd, 2, 3)]),
            vec![],
            2,
            "a type that convolutions do not write",
        ),
        (
            "a result that is broadcast",
            tensor(2, Float, &[2, 6, 1, 1]).intermediate(),
            (
                vec![y(3), y(4)],
                vec![
                    Operation::ConvolutionFwd(ConvolutionFwd {
                        x: TensorUid(0),
                        w: TensorUid(1),
                        y: TensorUid(2),
                        convolution: Convolution { stride: vec![9, 9], ..Convolution::new(2) },
                    }),
                    binary(Mode::Add, 3, 2, 4),
                ],
            ),
            vec![],
            2,
            "other extents",
        ),
        (
            "a gate",
            u(2),
            (
                vec![tensor(3, Float, CHANNELS), u(4), u(5), y(6)],
                vec![
                    conv(0, 1, 2, 1),
                    binary(Mode::Add, 2, 3, 4),
                    unary(Mode::SigmoidFwd, 4, 5),
                    binary(Mode::Mul, 4, 5, 6),
                ],
            ),
            vec![Rule::Activation, Rule::Epilogue, Rule::Epilogue],
            1,
            "",
        ),
        (
            "a gate that somebody else reads",
            u(2),
            (
                vec![u(3), y(4), y(5)],
                vec![
                    conv(0, 1, 2, 1),
                    unary(Mode::SigmoidFwd, 2, 3),
                    binary(Mode::Mul, 2, 3, 4),
                    unary(Mode::Neg, 3, 5),
                ],
            ),
            vec![],
            4,
            "no gate and its product",
        ),
        (
            "three readers",
            u(2),
            (
                vec![y(3), y(4), y(5)],
                vec![conv(0, 1, 2, 1), unary(Mode::SigmoidFwd, 2, 3), unary(Mode::Neg, 2, 4), unary(Mode::Abs, 2, 5)],
            ),
            vec![],
            4,
            "more than two readers",
        ),
        ("more operands than an epilogue has", u(2), many_summands(), vec![Rule::Epilogue; 8], 2, "no room"),
    ];
    for (what, between, (tensors, nodes), rules, steps, reason) in cases {
        let mut all = start(between);
        all.retain(|tensor| tensor.uid.0 < 10);
        all.extend(tensors);
        check(Case { what, tensors: all, nodes, rules, steps, reason, within: Within::Of(4.0) });
    }
}

#[test]
fn operands_beside_channels_last_results_are_taken_in_where_kernels_write_channels_as_vectors() {
    let last = |uid| tensor(uid, Float, Y).channels_last();
    let tensors = |residual: TensorDef| {
        let mut all = start(last(2).intermediate());
        all.retain(|tensor| tensor.uid.0 < 3);
        all.extend([tensor(3, Float, CHANNELS), last(4).intermediate(), residual, last(6)]);
        all
    };
    let nodes = || vec![conv(0, 1, 2, 1), binary(Mode::Mul, 2, 3, 4), binary(Mode::Add, 4, 5, 6)];
    for (residual, layout, steps) in [
        (last(5), true, 1),
        (last(5), false, 2),
        (tensor(5, Float, Y), true, 2),
        (tensor(5, Float, Y), false, 1),
        (tensor(5, Float, CHANNELS), true, 1),
    ] {
        let graph = build(&tensors(residual), nodes());
        let what = format!("{:?}, {layout}", graph.tensor(TensorUid(5)).strides());
        run(&graph, &Settings { layout, ..settings(2) }, steps, &what);
    }
}

fn reduce(mode: ReductionMode, x: i64, y: i64) -> Operation {
    let (input, output) = (TensorUid(x), TensorUid(y));
    Operation::Reduction(Reduction { mode, input, output, is_deterministic: true })
}

/// Tensors of a case: 0 to 9 are the caller's, of a shape or, from 5 on, of its sums; from 10 on they are virtual, and
/// from 20 on sums.
fn tensors(dims: &[i64], sums: &[i64], lay: impl Fn(TensorDef) -> TensorDef) -> Vec<TensorDef> {
    let full = (0..5).map(|uid| lay(tensor(uid, Float, dims)));
    let inner = (10..20).map(|uid| lay(tensor(uid, Float, dims)).intermediate());
    let caller = (5..10).map(|uid| lay(tensor(uid, Float, sums)));
    full.chain(inner).chain(caller).chain((20..30).map(|uid| lay(tensor(uid, Float, sums)).intermediate())).collect()
}

/// Softmax of tensor 0 to tensor 1, as nodes.
fn softmax() -> Vec<Operation> {
    vec![
        reduce(ReductionMode::Max, 0, 20),
        binary(Mode::Sub, 0, 20, 10),
        unary(Mode::Exp, 10, 11),
        reduce(ReductionMode::Add, 11, 21),
        binary(Mode::Div, 11, 21, 1),
    ]
}

#[test]
fn what_goes_through_the_same_groups_is_one_step() {
    let log_softmax = || {
        let mut nodes = softmax();
        nodes[4] = unary(Mode::Log, 21, 22);
        nodes.push(binary(Mode::Sub, 10, 22, 1));
        nodes
    };
    let variance = || {
        vec![
            reduce(ReductionMode::Average, 0, 20),
            binary(Mode::Sub, 0, 20, 10),
            binary(Mode::Mul, 10, 10, 11),
            reduce(ReductionMode::Average, 11, 5),
        ]
    };
    let rms = || {
        vec![
            binary(Mode::Mul, 0, 0, 10),
            reduce(ReductionMode::Average, 10, 20),
            unary(Mode::Rsqrt, 20, 21),
            binary(Mode::Mul, 0, 21, 11),
            binary(Mode::Add, 11, 2, 12),
            unary(Mode::ReluFwd, 12, 1),
        ]
    };
    let shapes: [(&[i64], &[i64]); 6] = [
        (&[3, 40, 128], &[3, 40, 1]),
        (&[5, 7, 1601], &[5, 7, 1]),
        (&[9, 17], &[9, 1]),
        (&[2, 21, 12, 16], &[2, 1, 12, 16]),
        (&[2, 21, 12, 16], &[1, 21, 1, 1]),
        (&[2, 3, 700], &[2, 1, 700]),
    ];
    for (what, nodes) in [
        ("softmax", softmax as fn() -> Vec<Operation>),
        ("log-softmax", log_softmax),
        ("variance", variance),
        ("RMS norm with residual and ReLU", rms),
    ] {
        for ((dims, sums), last) in shapes.iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            if last && dims.len() != 4 {
                continue;
            }
            let lay = |t: TensorDef| if last { t.channels_last() } else { t };
            let used: Vec<TensorUid> =
                nodes().iter().flat_map(|node| [node.inputs(), node.outputs()].concat()).collect();
            check(Case {
                what,
                tensors: tensors(dims, sums, lay).into_iter().filter(|tensor| used.contains(&tensor.uid)).collect(),
                nodes: nodes(),
                rules: vec![Rule::Rows],
                steps: 1,
                reason: "",
                within: Within::Of(16.0),
            });
        }
    }
}

#[test]
fn a_scale_behind_a_product_is_its_epilogue_and_not_the_softmax_s() {
    let dims: &[i64] = &[2, 20, 24];
    let full = (10..14).map(|uid| tensor(uid, Float, dims).intermediate());
    let sums = [20, 21].map(|uid| tensor(uid, Float, &[2, 20, 1]).intermediate());
    let caller = [(0, [2, 20, 8]), (2, [2, 8, 24]), (3, [1, 1, 1]), (1, [2, 20, 24])];
    let product = Matmul { a: TensorUid(0), b: TensorUid(2), c: TensorUid(10) };
    check(Case {
        what: "attention, spelled out",
        tensors: caller.map(|(uid, dims)| tensor(uid, Float, &dims)).into_iter().chain(full).chain(sums).collect(),
        nodes: vec![
            Operation::Matmul(product),
            binary(Mode::Mul, 10, 3, 11),
            reduce(ReductionMode::Max, 11, 20),
            binary(Mode::Sub, 11, 20, 12),
            unary(Mode::Exp, 12, 13),
            reduce(ReductionMode::Add, 13, 21),
            binary(Mode::Div, 13, 21, 1),
        ],
        rules: vec![Rule::Rows, Rule::ProductEpilogue],
        steps: 2,
        reason: "",
        within: Within::Of(64.0),
    });
}

#[test]
fn groups_that_threads_or_vectors_would_not_gain_by_stay_nodes() {
    for (dims, sums, reason) in [
        ([1, 300, 4], [1, 300, 1], "its rows are scattered"),
        ([1, 7, 5], [1, 7, 1], "its rows are too short"),
        ([1, 2, 40_000], [1, 2, 1], "its groups are too few"),
    ] {
        let used = [0, 1, 10, 11, 20, 21];
        check(Case {
            what: "a softmax",
            tensors: tensors(&dims, &sums, |t| t).into_iter().filter(|tensor| used.contains(&tensor.uid.0)).collect(),
            nodes: softmax(),
            rules: vec![Rule::Chain],
            steps: 4,
            reason,
            within: Within::Of(16.0),
        });
    }
}

/// Attention spelled out: queries 0, keys 2 with a number each in the last dimension, values 4, result 1; scale 3, mask 5.
struct Attention {
    /// Extents of what is in front of rows.
    lead: &'static [i64],
    /// Number of queries, of keys, and depths of keys and of values.
    sizes: [i64; 4],
    /// Operation that scales the scores, if there is one.
    scale: Option<Mode>,
    /// Extents of a mask, if there is one.
    mask: Option<&'static [i64]>,
    /// True if rows of several heads are beside each other in memory.
    interleaved: bool,
    /// True if keys lie as their tensor's dimensions, a number each in a row of memory.
    by_columns: bool,
    /// True if heads share their keys and batches their values.
    shared: bool,
    operands: DataType,
}

impl Attention {
    fn case(&self, rules: Vec<Rule>, steps: usize, reason: &'static str) -> Case<'static> {
        let Attention { lead, sizes: [queries, keys, depth, value_depth], .. } = *self;
        let of = |rows: i64, columns: i64| [lead, &[rows, columns]].concat();
        let lay = |tensor: TensorDef| {
            let [.., heads, rows, columns] = tensor.dims[..] else { return tensor };
            let strides = [&vec![heads * rows * columns; lead.len() - 1][..], &[columns, heads * columns, 1]].concat();
            if self.interleaved { tensor.strided(&strides) } else { tensor }
        };
        let shared = |which: usize, mut dims: Vec<i64>| {
            if self.shared {
                dims[which] = 1;
            }
            dims
        };
        let rank = lead.len() + 2;
        let mut turned = lay(tensor(2, self.operands, &shared(1, of(keys, depth))));
        turned.dims.swap(rank - 2, rank - 1);
        turned.strides.swap(rank - 2, rank - 1);
        if self.by_columns {
            turned = tensor(2, self.operands, &shared(1, of(depth, keys)));
        }
        let mut tensors = vec![
            lay(tensor(0, self.operands, &of(queries, depth))),
            turned,
            lay(tensor(4, self.operands, &shared(0, of(keys, value_depth)))),
            lay(tensor(1, self.operands, &of(queries, value_depth))),
        ];
        let mut nodes = vec![Operation::Matmul(Matmul { a: TensorUid(0), b: TensorUid(2), c: TensorUid(10) })];
        let mut scores = 10;
        if let Some(mode) = self.scale {
            tensors.push(tensor(3, Float, &vec![1; rank]).with_value(TensorValue::Float32(2.5)));
            nodes.push(binary(mode, scores, 3, 11));
            scores = 11;
        }
        if let Some(mask) = self.mask {
            tensors.push(tensor(5, Float, mask));
            nodes.push(binary(Mode::Add, 5, scores, 12));
            scores = 12;
        }
        nodes.extend([
            reduce(ReductionMode::Max, scores, 20),
            binary(Mode::Sub, scores, 20, 13),
            unary(Mode::Exp, 13, 14),
            reduce(ReductionMode::Add, 14, 21),
            binary(Mode::Div, 14, 21, 15),
            Operation::Matmul(Matmul { a: TensorUid(15), b: TensorUid(4), c: TensorUid(1) }),
        ]);
        let written: Vec<i64> = nodes.iter().flat_map(Operation::outputs).map(|uid| uid.0).collect();
        let inner = (10..20).map(|uid| tensor(uid, Float, &of(queries, keys)).intermediate());
        let sums = (20..22).map(|uid| tensor(uid, Float, &of(queries, 1)).intermediate());
        tensors.extend(inner.chain(sums).filter(|tensor| written.contains(&tensor.uid.0)));
        Case { what: "attention, spelled out", tensors, nodes, rules, steps, reason, within: Within::Of(64.0) }
    }
}

const ATTENTION: Attention = Attention {
    lead: &[2, 3],
    sizes: [40, 150, 24, 32],
    scale: Some(Mode::Div),
    mask: None,
    interleaved: false,
    by_columns: false,
    shared: false,
    operands: Float,
};

#[test]
fn products_with_a_softmax_between_them_are_one_attention() {
    for attention in [
        ATTENTION,
        Attention { scale: Some(Mode::Mul), mask: Some(&[1, 1, 40, 150]), interleaved: true, ..ATTENTION },
        Attention { scale: None, mask: Some(&[2, 1, 1, 150]), ..ATTENTION },
        Attention { scale: None, lead: &[5], sizes: [130, 17, 8, 9], interleaved: true, ..ATTENTION },
        Attention { lead: &[], sizes: [300, 260, 64, 64], mask: Some(&[300, 1]), ..ATTENTION },
        Attention { operands: Half, mask: Some(&[1, 1, 1, 150]), ..ATTENTION },
        Attention { by_columns: true, ..ATTENTION },
        Attention { shared: true, interleaved: true, ..ATTENTION },
        Attention { shared: true, by_columns: true, scale: Some(Mode::Mul), ..ATTENTION },
    ] {
        check(Case {
            within: Within::Of(if attention.operands == Half { 8192.0 } else { 64.0 }),
            ..attention.case(vec![Rule::Attention], 1, "")
        });
    }
}

#[test]
fn attention_of_few_queries_or_deep_heads_stays_products() {
    for (sizes, reason) in [([15, 150, 24, 32], "so few queries"), ([40, 50, 257, 32], "heads so deep")] {
        let attention = Attention { sizes, scale: None, ..ATTENTION };
        check(attention.case(vec![Rule::Rows], 3, reason));
    }
    let halves = Attention { by_columns: true, operands: Half, scale: None, ..ATTENTION };
    check(Case { within: Within::Of(8192.0), ..halves.case(vec![Rule::Rows], 3, "do not lie by rows") });
    let graph = {
        let case = Attention { lead: &[], ..ATTENTION }.case(vec![], 0, "");
        build(&case.tensors, case.nodes)
    };
    let refused = |threads: usize| {
        let fused = fuse(&graph, lower(&graph).unwrap(), &settings(threads));
        fused.remarks.iter().any(|remark| remark.rule == Rule::Attention && remark.refused.is_some())
    };
    // 40 queries are two blocks.
    assert_eq!([4, 5].map(refused), [false, true]);
    // Values that have batches of their own.
    let mut case = Attention { scale: None, ..ATTENTION }.case(vec![], 0, "");
    for tensor in case.tensors.iter_mut().filter(|tensor| ![1, 4].contains(&tensor.uid.0)) {
        tensor.dims[0] = 1;
    }
    let graph = build(&case.tensors, case.nodes);
    let fused = fuse(&graph, lower(&graph).unwrap(), &settings(2));
    let refused = fused.remarks.iter().find(|remark| remark.rule == Rule::Attention).and_then(|remark| remark.refused);
    assert!(refused.is_some_and(|reason| reason.contains("several values share")), "{:?}", fused.remarks);
    // The caller wants the weights as well.
    let mut case = ATTENTION.case(vec![Rule::Rows, Rule::ProductEpilogue], 3, "");
    case.tensors.iter_mut().filter(|tensor| tensor.uid == TensorUid(15)).for_each(|tensor| tensor.is_virtual = false);
    check(case);
    // Sums of something else than the powers; scores that are added to themselves; weights that are multiplied by themselves.
    let square = Attention { sizes: [40, 40, 24, 40], ..ATTENTION };
    for change in [
        |nodes: &mut Vec<Operation>| nodes[5] = reduce(ReductionMode::Add, 13, 21),
        |nodes: &mut Vec<Operation>| nodes[1] = binary(Mode::Add, 10, 10, 11),
        |nodes: &mut Vec<Operation>| {
            nodes[7] = Operation::Matmul(Matmul { a: TensorUid(15), b: TensorUid(15), c: TensorUid(1) });
        },
    ] {
        let mut case = square.case(vec![], 0, "");
        change(&mut case.nodes);
        let used: Vec<TensorUid> =
            case.nodes.iter().flat_map(|node| [node.inputs(), node.outputs()].concat()).collect();
        case.tensors.retain(|tensor| used.contains(&tensor.uid));
        let graph = build(&case.tensors, case.nodes);
        let fused = fuse(&graph, lower(&graph).unwrap(), &settings(2));
        assert!(fused.remarks.iter().all(|remark| remark.rule != Rule::Attention), "{:?}", fused.remarks);
    }
    // Nobody reads the result.
    let mut case = ATTENTION.case(vec![], 0, "");
    case.tensors.iter_mut().filter(|tensor| tensor.uid == TensorUid(1)).for_each(|tensor| tensor.is_virtual = true);
    let graph = build(&case.tensors, case.nodes);
    let fused = fuse(&graph, lower(&graph).unwrap(), &settings(2));
    assert!(fused.works.is_empty(), "{:?}", fused.remarks);
}

#[test]
fn an_attention_has_the_same_bits_on_more_threads_than_heads() {
    let case = Attention { lead: &[], sizes: [128, 150, 24, 32], ..ATTENTION }.case(vec![], 1, "");
    let graph = build(&case.tensors, case.nodes);
    let results = [1, 3, 8].map(|threads| run(&graph, &settings(threads), 1, case.what));
    let bits = |results: &[(TensorUid, Vec<f64>)]| -> Vec<u64> { results[0].1.iter().map(|v| v.to_bits()).collect() };
    assert_eq!(bits(&results[0]), bits(&results[1]));
    assert_eq!(bits(&results[0]), bits(&results[2]));
}

#[test]
fn queries_whose_scores_are_all_masked_have_no_numbers_as_the_softmax_says() {
    let case = Attention { mask: Some(&[1, 1, 40, 150]), ..ATTENTION }.case(vec![], 1, "");
    let graph = build(&case.tensors, case.nodes);
    let mut memory = memory(&graph, 11);
    let mut masked = (0..40 * 150).map(|i| match (i / 150, i % 150) {
        (7, _) => f64::NEG_INFINITY,
        // The whole first block of keys.
        (9, key) if key < 149 => f64::NEG_INFINITY,
        _ => 0.0,
    });
    memory.get_mut(&TensorUid(5)).unwrap().fill(|| masked.next().unwrap());
    let results = [1, 0].map(|fuse| {
        let settings = Settings { fuse: fuse == 1, ..settings(2) };
        let fused = super::fuse(&graph, lower(&graph).unwrap(), &settings);
        let plan = CpuPlan::new(Schedule::new(&graph, &fused, &settings).unwrap(), 2, resources::get()).unwrap();
        execute(&plan, &pack(&memory)).unwrap();
        memory[&TensorUid(1)].values()
    });
    for (i, (got, want)) in results[0].iter().zip(&results[1]).enumerate() {
        let query = i / 32 % 40;
        assert_eq!(want.is_nan(), query == 7, "query {query}: {want}");
        assert!(
            got.is_nan() == want.is_nan() && (got.is_nan() || (got - want).abs() <= 1e-5),
            "query {query}: {got} {want}"
        );
    }
}
