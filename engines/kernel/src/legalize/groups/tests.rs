//! Memory and accesses of kernels over groups.

use std::collections::HashMap;

use hipdnn_schemas::{
    Batchnorm, ConvMode, Convolution, ConvolutionWrw, GraphBuilder, Layernorm, LayernormBackward, NormFwdPhase,
    Operation, PaddingMode, Pointwise, PointwiseMode, Reduction, ReductionMode, ResampleBwd, ResampleFwd, ResampleMode,
    TensorDef, TensorValue,
};

use super::*;
use crate::fuse::fuse;
use crate::legalize::simulate::run;
use crate::legalize::{LegalizeOptions, Legalized, legalize};
use crate::lower::lower;

const F: DataType = DataType::Float;

fn graph(tensors: &[TensorDef], operations: Vec<Operation>) -> hipdnn_schemas::Graph {
    let mut graph = GraphBuilder::new("case").compute(F);
    for tensor in tensors {
        graph.tensor(tensor.clone());
    }
    for operation in operations {
        graph.node("", operation);
    }
    graph.build().unwrap()
}

fn legalized_for(graph: &hipdnn_schemas::Graph) -> Legalized {
    legalize(graph, &fuse(graph, lower(graph).unwrap()), LegalizeOptions::default(), &|_| Ok(())).unwrap()
}

fn grouped(legalized: &Legalized) -> Vec<&KernelDispatch> {
    let dispatches = legalized.dispatches.iter().filter_map(|dispatch| match dispatch {
        Dispatch::Kernel(dispatch) => Some(dispatch),
        _ => None,
    });
    dispatches.collect()
}

fn sum(x: i64, y: i64) -> Operation {
    let (input, output) = (TensorUid(x), TensorUid(y));
    Operation::Reduction(Reduction { mode: ReductionMode::Add, input, output, is_deterministic: true })
}

/// Windows of 3×2.
fn pool(x: i64, y: i64, pre: [i64; 2], post: [i64; 2], stride: [i64; 2]) -> ResampleFwd {
    ResampleFwd {
        x: TensorUid(x),
        y: TensorUid(y),
        index: None,
        pre_padding: pre.to_vec(),
        post_padding: post.to_vec(),
        stride: stride.to_vec(),
        window: vec![3, 2],
        resample_mode: ResampleMode::MaxPool,
        padding_mode: PaddingMode::NegInf,
        generate_index: None,
    }
}

/// Access of the first tensor that a pass reads.
fn access(dispatch: &KernelDispatch) -> &Access {
    let inputs = dispatch.kernel.passes.iter().flat_map(|pass| match pass {
        grouped::Pass::Reduce { inputs, .. }
        | grouped::Pass::PerGroup { inputs, .. }
        | grouped::Pass::PerMember { inputs, .. } => inputs,
    });
    let mut tensors = inputs.filter_map(|input| match input {
        grouped::Input::Tensor { access, .. } => Some(access),
        _ => None,
    });
    tensors.next().unwrap()
}

#[test]
fn indices_are_strides_where_they_stay_within() {
    let image = TensorDef::new(0, F, &[2, 3, 7, 8]);
    let bound =
        |offset, steps: &[i64], extent, stride| Bound { offset, steps: steps.to_vec(), divisor: 1, extent, stride };
    let straight = |strides: &[i64]| Access { offset: 0, strides: strides.to_vec(), bounds: Vec::new() };
    // Loops are those of the result, then those of the window.
    let cases: [(&str, TensorDef, TensorDef, ResampleFwd, Access); 4] = [
        (
            "no padding",
            image.clone(),
            TensorDef::new(1, F, &[2, 3, 5, 7]),
            pool(0, 1, [0, 0], [0, 0], [1, 1]),
            straight(&[168, 56, 8, 1, 8, 1]),
        ),
        (
            "channels last, with strides",
            image.clone().channels_last(),
            TensorDef::new(1, F, &[2, 3, 3, 4]),
            pool(0, 1, [0, 0], [0, 0], [2, 2]),
            straight(&[168, 1, 48, 6, 24, 3]),
        ),
        (
            "padding of rows",
            image.clone(),
            TensorDef::new(1, F, &[2, 3, 7, 7]),
            pool(0, 1, [1, 0], [1, 0], [1, 1]),
            Access { bounds: vec![bound(-1, &[0, 0, 1, 0, 1, 0], 7, 8)], ..straight(&[168, 56, 0, 1, 0, 1]) },
        ),
        (
            "padding that no window reaches",
            image,
            TensorDef::new(1, F, &[2, 3, 3, 4]),
            pool(0, 1, [0, 0], [1, 1], [2, 2]),
            straight(&[168, 56, 16, 2, 8, 1]),
        ),
    ];
    for (what, x, y, node, want) in cases {
        let legalized = legalized_for(&graph(&[x, y], vec![Operation::ResampleFwd(node)]));
        let [dispatch] = &grouped(&legalized)[..] else { panic!("{what}: {legalized:?}") };
        assert_eq!(access(dispatch), &want, "{what}");
        let tensor = |uid| Value::Tensor(TensorUid(uid));
        assert_eq!((&dispatch.reads[..], &dispatch.writes[..]), (&[tensor(0)][..], &[tensor(1)][..]), "{what}");
    }
}

/// Indices that begin within a tensor, on a window of memory: `7 + 100 i + 10 j + k`.
#[test]
fn offsets_of_indices_are_offsets_in_memory() {
    let view = View { data_type: F, strides: vec![100, 10, 1], offset: 7 };
    let line = |offset, steps: [i64; 2]| AffineExpr { offset, steps: steps.as_slice().into(), divisor: 1 };
    // Loops of 3 and 4; offsets and steps of j and k.
    for (j, k, offset, strides, bounds) in [
        (line(0, [1, 0]), line(0, [0, 1]), 7, [10, 1], 0),
        (line(2, [1, 0]), line(1, [0, 2]), 7 + 20 + 1, [10, 2], 0),
        (line(9, [-1, 0]), line(6, [0, -2]), 7 + 90 + 6, [-10, -2], 0),
        (line(1, [1, 2]), line(3, [1, 0]), 7 + 10 + 3, [11, 20], 0),
        (line(8, [1, 0]), line(3, [0, 1]), 7 + 3, [0, 1], 1),
        (line(-1, [1, 0]), line(5, [0, 2]), 7, [0, 0], 2),
    ] {
        let at = [AffineExpr::fixed(2), j, k];
        let got = super::access(&view, &[5, 10, 10], &at, &[3, 4]);
        assert_eq!((got.offset, &got.strides[..], got.bounds.len()), (offset, &strides[..], bounds), "{at:?}");
        if bounds == 0 {
            assert_eq!(straight(&view, &at, 2), got, "{at:?}");
        }
    }
}

#[test]
fn steps_of_a_window_are_divisors_of_its_gradient() {
    let tensors = [TensorDef::new(0, F, &[1, 1, 9, 8]), TensorDef::new(1, F, &[1, 1, 4, 4])];
    let node = ResampleBwd {
        dy: TensorUid(1),
        dx: TensorUid(0),
        index: None,
        pre_padding: vec![0, 0],
        post_padding: vec![0, 0],
        stride: vec![2, 2],
        window: vec![3, 2],
        resample_mode: ResampleMode::AvgPoolIncludePadding,
        padding_mode: PaddingMode::Zero,
    };
    let legalized = legalized_for(&graph(&tensors, vec![Operation::ResampleBwd(node)]));
    let [dispatch] = &grouped(&legalized)[..] else { panic!("{legalized:?}") };
    let bounds: Vec<(u64, u64, i64)> =
        access(dispatch).bounds.iter().map(|b| (b.divisor, b.extent, b.stride)).collect();
    assert_eq!(bounds, [(2, 4, 4), (2, 4, 1)]);
}

#[test]
fn numbers_are_scalars_and_locals_are_temporaries() {
    let rows = |uid| TensorDef::new(uid, F, &[3, 70]);
    let norm = |epsilon: TensorDef, y: TensorDef| {
        let parameters = [1, 2].map(|uid| TensorDef::new(uid, F, &[1, 70]));
        let mut tensors = vec![rows(0), epsilon, y];
        tensors.extend(parameters);
        let node = Layernorm {
            x: TensorUid(0),
            scale: TensorUid(1),
            bias: TensorUid(2),
            epsilon: TensorUid(3),
            y: TensorUid(4),
            normalized_dim_count: 1,
            mean: None,
            inv_variance: None,
            forward_phase: NormFwdPhase::Inference,
        };
        graph(&tensors, vec![Operation::Layernorm(node)])
    };
    let known = TensorDef::new(3, F, &[1]).with_value(TensorValue::Float32(0.5));
    let mut given = TensorDef::new(3, DataType::Double, &[1]);
    given.is_runtime_pass_by_value = true;
    for (what, epsilon, want) in
        [("known", known, Number::Known(0.5)), ("given", given, Number::Host(TensorUid(3), DataType::Double))]
    {
        let legalized = legalized_for(&norm(epsilon, rows(4)));
        let [dispatch] = &grouped(&legalized)[..] else { panic!("{what}: {legalized:?}") };
        assert!(dispatch.scalars.contains(&want), "{what}: {:?}", dispatch.scalars);
        let uids = [0, 1, 2].map(|uid| Value::Tensor(TensorUid(uid)));
        assert!(
            uids.iter().all(|value| dispatch.reads.contains(value)) && dispatch.reads.len() == 3,
            "{what}: {:?}",
            dispatch.reads
        );
        assert!(legalized.temporaries.is_empty());
    }
    let short = graph(&[rows(0), TensorDef::new(1, F, &[3, 1])], vec![sum(0, 1)]);
    let legalized = legalized_for(&short);
    let [whole] = &grouped(&legalized)[..] else { panic!("{legalized:?}") };
    assert_eq!(whole.purpose, "compute node 0 (reduction)");
    // One sum of so many that it is cut into parts.
    let long = graph(&[TensorDef::new(0, F, &[1, 1 << 20]), TensorDef::new(1, F, &[1, 1])], vec![sum(0, 1)]);
    let legalized = legalized_for(&long);
    let [parts, whole] = &grouped(&legalized)[..] else { panic!("{legalized:?}") };
    let [local] = &legalized.temporaries[..] else { panic!("{legalized:?}") };
    let count: usize = parts.kernel.groups.iter().product();
    assert_eq!(
        (&parts.writes[..], &whole.reads[..], *local),
        (&[Value::Temporary(0)][..], &[Value::Temporary(0)][..], 4 * count)
    );
    assert_eq!(parts.purpose, "compute node 0 (reduction, kernel 1 of 2)");
}

#[test]
fn virtual_results_lie_as_what_they_come_from() {
    let x = || TensorDef::new(0, F, &[2, 3, 7, 8]);
    let gaps: Vec<i64> = x().strides.iter().map(|stride| stride * 2).collect();
    for (what, x, last) in [
        ("channels first", x(), false),
        ("channels last", x().channels_last(), true),
        ("channels first with gaps", x().strided(&gaps), false),
    ] {
        let tensors = [
            x,
            // What the graph says of its layout is not asked for.
            TensorDef::new(100, F, &[2, 3, 5, 7]).intermediate(),
            TensorDef::new(1, F, &[2, 3, 3, 6]),
        ];
        let pools = [(0, 100), (100, 1)].map(|(x, y)| Operation::ResampleFwd(pool(x, y, [0, 0], [0, 0], [1, 1])));
        let legalized = legalized_for(&graph(&tensors, pools.to_vec()));
        let [_, second] = &grouped(&legalized)[..] else { panic!("{what}: {legalized:?}") };
        let want = if last { [105, 1, 21, 3] } else { [105, 35, 7, 1] };
        assert_eq!(access(second).strides[..4], want, "{what}");
        assert_eq!(legalized.temporaries, [2 * 3 * 5 * 7 * 4], "{what}");
    }
}

/// A padded place of a number that the graph holds is no number.
#[test]
fn numbers_that_are_left_are_tensors() {
    let number = TensorDef::new(0, F, &[1, 1, 1, 1]).with_value(TensorValue::Float32(2.0));
    let mut node = pool(0, 1, [1, 1], [1, 0], [1, 1]);
    node.resample_mode = ResampleMode::AvgPoolIncludePadding;
    node.padding_mode = PaddingMode::Zero;
    let graph = graph(&[number, TensorDef::new(1, F, &[1, 1, 1, 1])], vec![Operation::ResampleFwd(node)]);
    let legalized = legalized_for(&graph);
    let memory = HashMap::from([(Value::Tensor(TensorUid(1)), vec![9.0])]);
    let got = run(&legalized, memory)[&Value::Tensor(TensorUid(1))][0];
    assert!((got - 2.0 / 6.0).abs() < 1e-12, "{got}");
}

/// The gradient of a flipped filter lies backwards in memory.
#[test]
fn what_a_convolution_leaves_backwards_is_read_so() {
    let dims = [[2, 3, 6, 7], [4, 3, 3, 2], [2, 4, 4, 6]];
    let sums = |is_virtual: bool| {
        let mut tensors: Vec<TensorDef> = (0..3).map(|uid| TensorDef::new(uid as i64, F, &dims[uid])).collect();
        tensors[1].is_virtual = is_virtual;
        tensors.push(TensorDef::new(3, F, &[4, 3, 3, 1]));
        let gradient = Operation::ConvolutionWrw(ConvolutionWrw {
            x: TensorUid(0),
            dw: TensorUid(1),
            dy: TensorUid(2),
            convolution: Convolution { mode: ConvMode::Convolution, ..Convolution::new(2) },
        });
        let graph = graph(&tensors, vec![gradient, sum(1, 3)]);
        let given = graph.tensors().iter().filter(|tensor| !tensor.is_virtual());
        let fill =
            |tensor: &hipdnn_schemas::Tensor| (0..tensor.span()).map(|i| ((i * 5 + i / 7) % 7) as f64 - 2.5).collect();
        let memory = given.map(|tensor| (Value::Tensor(tensor.uid()), fill(tensor))).collect();
        let legalized = legalized_for(&graph);
        let strides = &access(grouped(&legalized).last().unwrap()).strides;
        assert_eq!(strides.iter().any(|stride| *stride < 0), is_virtual, "{strides:?}");
        run(&legalized, memory).remove(&Value::Tensor(TensorUid(3))).unwrap()
    };
    assert_eq!(sums(true), sums(false));
}

/// Columns of a graph on a device of that many units: the kernels, and what the tensors without readers come to.
fn columns(graph: &hipdnn_schemas::Graph, compute_units: usize) -> (usize, HashMap<Value, Vec<f64>>) {
    let options = LegalizeOptions { compute_units, ..LegalizeOptions::default() };
    let legalized = legalize(graph, &fuse(graph, lower(graph).unwrap()), options, &|_| Ok(())).unwrap();
    let fill =
        |tensor: &hipdnn_schemas::Tensor| (0..tensor.span()).map(|i| ((i * 5 + i / 7) % 13) as f64 - 2.5).collect();
    let given = graph.tensors().iter().filter(|tensor| !tensor.is_virtual());
    let memory = given.map(|tensor| (Value::Tensor(tensor.uid()), fill(tensor))).collect();
    let mut got = run(&legalized, memory);
    got.retain(|value, _| matches!(value, Value::Tensor(_)));
    (grouped(&legalized).len(), got)
}

/// A softmax over dimension 1, node by node.
fn softmax(dims: &[i64], strides: &[i64]) -> hipdnn_schemas::Graph {
    let reduced = [&dims[..1], &[1], &dims[2..]].concat();
    let tensor = |uid: i64| TensorDef::new(uid, DataType::Half, dims).strided(strides);
    let mut tensors = vec![tensor(0), tensor(5)];
    tensors.extend([1, 3].map(|uid| TensorDef::new(uid, F, &reduced).intermediate()));
    tensors.push(TensorDef::new(2, F, dims).strided(strides).intermediate());
    let uid = TensorUid;
    let reduce = |mode, x: i64, y: i64| {
        Operation::Reduction(Reduction { mode, input: uid(x), output: uid(y), is_deterministic: true })
    };
    let binary = |mode, x: i64, y: i64, z: i64| Operation::Pointwise(Pointwise::binary(mode, uid(x), uid(y), uid(z)));
    let exp = TensorDef::new(6, F, dims).strided(strides).intermediate();
    tensors.push(exp);
    let operations = vec![
        reduce(ReductionMode::Max, 0, 1),
        binary(PointwiseMode::Sub, 0, 1, 2),
        Operation::Pointwise(Pointwise::unary(PointwiseMode::Exp, uid(2), uid(6))),
        reduce(ReductionMode::Add, 6, 3),
        binary(PointwiseMode::Div, 6, 3, 5),
    ];
    graph(&tensors, operations)
}

/// A kernel reads columns in runs of rows, so that few blocks have all of them.
#[test]
fn columns_are_cut_into_parts_where_a_device_is_large() {
    for (what, graph, units, want) in [
        ("columns", softmax(&[1, 4096, 256], &[1 << 20, 256, 1]), 16, 3),
        ("parts of several sizes", softmax(&[1, 4099, 256], &[4099 << 8, 256, 1]), 16, 5),
        ("columns of a device that is not known", softmax(&[1, 4096, 256], &[1 << 20, 256, 1]), 0, 1),
        ("few columns", softmax(&[1, 1024, 256], &[1 << 18, 256, 1]), 16, 1),
        ("rows", softmax(&[1, 4096, 256], &[1 << 20, 1, 4096]), 16, 1),
    ] {
        let (kernels, got) = columns(&graph, units);
        assert_eq!(kernels, want, "{what}");
        if kernels > 1 {
            let (_, want) = columns(&graph, 0);
            for (value, want) in want {
                for (i, (got, want)) in got[&value].iter().zip(&want).enumerate() {
                    assert!(
                        (got - want).abs() <= 1e-6 * want.abs(),
                        "{what}, {value:?}, element {i}: {got} for {want}"
                    );
                }
            }
        }
    }
}

/// Partial results are in single precision, which is not enough for a result in double.
#[test]
fn columns_of_double_results_stay_whole() {
    for (to, kernels) in [(DataType::Float, 2), (DataType::Double, 1)] {
        let tensors = [TensorDef::new(0, F, &[4096, 1024]), TensorDef::new(1, to, &[1, 1024])];
        let sum =
            Reduction { mode: ReductionMode::Add, input: TensorUid(0), output: TensorUid(1), is_deterministic: true };
        assert_eq!(columns(&graph(&tensors, vec![Operation::Reduction(sum)]), 132).0, kernels, "{to:?}");
    }
}

/// The second node's kernel reads what the first one's has written.
#[test]
fn a_work_reads_what_it_has_computed() {
    let tensor = |uid: i64, dims: &[i64]| TensorDef::new(uid, F, dims);
    let (rows, row) = (&[2, 6][..], &[1, 6][..]);
    let epsilon = |uid: i64| TensorDef::new(uid, F, &[1]).with_value(TensorValue::Float32(1e-3));
    let mut tensors = vec![tensor(0, rows), tensor(6, rows), tensor(1, row), epsilon(2), epsilon(20)];
    tensors.push(TensorDef::new(3, DataType::Half, rows).intermediate());
    tensors.push(tensor(4, row).intermediate());
    tensors.extend([5, 7, 8, 10, 11, 13, 14].map(|uid| tensor(uid, row)));
    tensors.push(tensor(9, rows));
    tensors.push(epsilon(12));
    let uid = TensorUid;
    let backward = LayernormBackward {
        dy: uid(0),
        x: uid(6),
        scale: uid(1),
        mean: None,
        inv_variance: None,
        epsilon: Some(uid(2)),
        normalized_dim_count: 1,
        dx: uid(3),
        dscale: uid(4),
        dbias: Some(uid(5)),
    };
    let training = Batchnorm {
        prev_running_mean: Some(uid(10)),
        prev_running_variance: Some(uid(11)),
        momentum: Some(uid(12)),
        next_running_mean: Some(uid(13)),
        next_running_variance: Some(uid(14)),
        ..Batchnorm::new(uid(3), uid(7), uid(8), uid(20), uid(9))
    };
    let graph = graph(&tensors, vec![Operation::LayernormBackward(backward), Operation::Batchnorm(training)]);
    assert!(!legalized_for(&graph).dispatches.is_empty());
}

/// Two folds, of which the second goes on from what the first one comes to, go through a part at once.
#[test]
fn few_long_rows_are_read_once_for_both_folds() {
    let rows = |groups: i64, members: i64| softmax(&[groups, members], &[members, 1]);
    for (what, graph, units, want) in [
        ("few rows", rows(4, 100_000), 0, 3),
        ("few rows that have no parts of one size", rows(4, 100_003), 0, 5),
        ("shorter rows, of which the last step keeps more of a device busy by itself", rows(4, 50_000), 132, 2),
        ("many rows", rows(2048, 100_000), 16, 1),
        ("many rows that no cache holds", rows(2048, 100_000), 304, 3),
    ] {
        let options = LegalizeOptions { compute_units: units, ..LegalizeOptions::default() };
        let legalized = legalize(&graph, &fuse(&graph, lower(&graph).unwrap()), options, &|_| Ok(())).unwrap();
        assert_eq!(grouped(&legalized).len(), want, "{what}");
    }
    // The variance that is wanted alone, of the mean's kernel.
    let tensors = [
        TensorDef::new(0, DataType::Half, &[2, 1 << 17]),
        TensorDef::new(1, F, &[2, 1]).intermediate(),
        TensorDef::new(2, F, &[2, 1 << 17]).intermediate(),
        TensorDef::new(3, F, &[2, 1 << 17]).intermediate(),
        TensorDef::new(4, F, &[2, 1]),
    ];
    let uid = TensorUid;
    let mean = |x: i64, y: i64| {
        let mode = ReductionMode::Average;
        Operation::Reduction(Reduction { mode, input: uid(x), output: uid(y), is_deterministic: true })
    };
    let binary = |mode, x: i64, y: i64, z: i64| Operation::Pointwise(Pointwise::binary(mode, uid(x), uid(y), uid(z)));
    let operations =
        vec![mean(0, 1), binary(PointwiseMode::Sub, 0, 1, 2), binary(PointwiseMode::Mul, 2, 2, 3), mean(3, 4)];
    assert_eq!(grouped(&legalized_for(&graph(&tensors, operations))).len(), 2);
}

/// A part of nothing but -∞ has no power that is a number.
#[test]
fn parts_without_a_finite_member_add_nothing() {
    let members = 1 << 17;
    let graph = softmax(&[3, members], &[members, 1]);
    let legalized = legalized_for(&graph);
    assert_eq!(grouped(&legalized).len(), 3);
    let least = f64::NEG_INFINITY;
    let x = (0..3 * members).map(|i| match (i / members, i % members) {
        // The second row has nothing else, and the third one +∞, from which no difference is a number.
        (0, i) if i < members - 2 => least,
        (1, _) => least,
        (2, 77) => f64::INFINITY,
        (_, i) => i as f64 - members as f64,
    });
    let [from, to] = [0, 5].map(|uid| Value::Tensor(TensorUid(uid)));
    let memory = HashMap::from([(from, x.collect()), (to, vec![0.0; 3 * members as usize])]);
    let got = &run(&legalized, memory)[&to];
    let all = members as usize;
    let (one, other) = (1.0 / (1.0 + (-1f64).exp()), 1.0 / (1.0 + 1f64.exp()));
    assert!((got[all - 1] - one).abs() < 1e-9 && (got[all - 2] - other).abs() < 1e-9, "{:?}", &got[all - 2..all]);
    assert!(got[..all - 2].iter().all(|value| *value == 0.0));
    assert!(got[all..2 * all].iter().all(|value| value.is_nan()));
    assert!(got[2 * all..].iter().all(|value| value.is_nan()));
}

/// Runs of half a kilobyte side by side, or a quarter of that, and four blocks a unit, whose threads have some members.
#[test]
fn columns_have_as_many_parts_as_keep_a_device_busy() {
    for (what, groups, members, data_type, units, want) in [
        ("parts of the least members", 1024, 4096, F, 132, 32),
        ("a smaller device", 1024, 4096, F, 16, 8),
        ("two parts", 1024, 4096, F, 4, 2),
        ("blocks enough", 1024, 4096, F, 3, 1),
        ("short runs", 16, 65_536, DataType::Half, 16, 64),
        ("less than another launch takes", 16, 65_535, DataType::Half, 16, 1),
        ("runs between these", 96, 16_384, DataType::Half, 100, 64),
        ("fewer members", 96, 12_800, DataType::Half, 100, 50),
    ] {
        let tensors = [TensorDef::new(0, data_type, &[members, groups]), TensorDef::new(1, F, &[1, groups])];
        let graph = graph(&tensors, vec![sum(0, 1)]);
        let options = LegalizeOptions { compute_units: units, ..LegalizeOptions::default() };
        let legalized = legalize(&graph, &fuse(&graph, lower(&graph).unwrap()), options, &|_| Ok(())).unwrap();
        let first: usize = grouped(&legalized)[0].kernel.groups.iter().product();
        assert_eq!(first, want * groups as usize, "{what}");
    }
}
