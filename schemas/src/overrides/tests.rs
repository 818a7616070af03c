use super::*;
use crate::*;

/// A graph of one node that allows override shapes. Its tensors are numbered from 1 by their extents; the last one, which
/// is an intermediate, is 9.
fn graph(dims: &[&[i64]], operation: Operation) -> Graph {
    let (last, others) = dims.split_last().expect("a node writes a tensor");
    let mut tensors: Vec<TensorDef> =
        (1..).zip(others).map(|(uid, dims)| TensorDef::new(uid, DataType::Float, dims)).collect();
    tensors.push(TensorDef::new(9, DataType::Float, last).intermediate());
    let nodes = vec![Node { name: String::new(), compute_data_type: DataType::Float, operation }];
    let def = GraphDef { tensors, nodes, is_override_shape_enabled: true, ..GraphDef::default() };
    Graph::new(def).expect("a right graph")
}

/// The graph of an execution where these tensors have packed shapes.
fn overridden(graph: &Graph, shapes: &[(i64, &[i64])]) -> Result<Graph, String> {
    let strides: Vec<Vec<i64>> = shapes.iter().map(|(_, dims)| packed_strides(dims)).collect();
    let shapes = shapes.iter().zip(&strides);
    let shapes: Vec<_> =
        shapes.map(|((uid, dims), strides)| ShapeOverride { uid: TensorUid(*uid), dims, strides }).collect();
    graph.overridden(&shapes).map_err(|error| error.to_string())
}

const X: TensorUid = TensorUid(1);
const W: TensorUid = TensorUid(2);
const LAST: TensorUid = TensorUid(9);

fn padded(stride: i64) -> Convolution {
    Convolution { stride: vec![stride; 2], pre_padding: vec![1; 2], post_padding: vec![1; 2], ..Convolution::new(2) }
}

fn forward(stride: i64) -> Operation {
    Operation::ConvolutionFwd(ConvolutionFwd { x: X, w: W, y: LAST, convolution: padded(stride) })
}

fn data_gradient(stride: i64) -> Operation {
    Operation::ConvolutionBwd(ConvolutionBwd { dy: X, w: W, dx: LAST, convolution: padded(stride) })
}

fn weight_gradient() -> Operation {
    Operation::ConvolutionWrw(ConvolutionWrw { x: X, dy: W, dw: LAST, convolution: padded(1) })
}

fn pooling() -> Operation {
    Operation::ResampleFwd(ResampleFwd {
        x: X,
        y: LAST,
        index: None,
        pre_padding: vec![0; 2],
        post_padding: vec![0; 2],
        stride: vec![2; 2],
        window: vec![3; 2],
        resample_mode: ResampleMode::MaxPool,
        padding_mode: PaddingMode::NegInf,
        generate_index: None,
    })
}

fn reduction() -> Operation {
    Operation::Reduction(Reduction { mode: ReductionMode::Add, input: X, output: LAST, is_deterministic: false })
}

fn sum() -> Operation {
    Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, X, W, LAST))
}

fn statistics() -> Operation {
    Operation::Layernorm(Layernorm {
        x: X,
        scale: W,
        bias: TensorUid(3),
        epsilon: TensorUid(4),
        y: TensorUid(5),
        normalized_dim_count: 1,
        mean: Some(LAST),
        inv_variance: None,
        forward_phase: NormFwdPhase::Training,
    })
}

fn attention() -> Operation {
    Operation::Sdpa(Box::new(Sdpa::new(X, W, TensorUid(3), LAST)))
}

/// Declared extents, the extents of some tensors at an execution, and those of the intermediate that follow.
#[test]
fn extents_of_intermediates_follow() {
    type Case<'a> = (&'a str, Operation, &'a [&'a [i64]], &'a [(i64, &'a [i64])], Option<&'a [i64]>);
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("convolution", forward(1), &[&[4, 6, 8, 8], &[5, 6, 3, 3], &[4, 5, 8, 8]], &[(1, &[2, 6, 7, 3])], Some(&[2, 5, 7, 3])),
        ("convolution in steps", forward(2), &[&[4, 6, 8, 8], &[5, 6, 3, 3], &[4, 5, 4, 4]], &[(1, &[1, 6, 7, 3])], Some(&[1, 5, 4, 2])),
        ("convolution by fewer filters", forward(1), &[&[4, 6, 8, 8], &[5, 6, 3, 3], &[4, 5, 8, 8]], &[(2, &[3, 6, 3, 3])], Some(&[4, 3, 8, 8])),
        ("data gradient", data_gradient(1), &[&[4, 5, 8, 8], &[5, 6, 3, 3], &[4, 6, 8, 8]], &[(1, &[2, 5, 7, 3])], Some(&[2, 6, 7, 3])),
        ("data gradient of a smaller batch", data_gradient(2), &[&[4, 5, 4, 4], &[5, 6, 3, 3], &[4, 6, 8, 8]], &[(1, &[2, 5, 4, 4])], Some(&[2, 6, 8, 8])),
        ("data gradient in steps", data_gradient(2), &[&[4, 5, 4, 4], &[5, 6, 3, 3], &[4, 6, 8, 8]], &[(1, &[4, 5, 3, 4])], None),
        ("weight gradient", weight_gradient(), &[&[4, 6, 8, 8], &[4, 5, 8, 8], &[5, 6, 3, 3]], &[(1, &[2, 4, 7, 8]), (2, &[2, 5, 7, 8])], Some(&[5, 4, 3, 3])),
        ("pooling", pooling(), &[&[2, 3, 9, 9], &[2, 3, 4, 4]], &[(1, &[1, 3, 6, 7])], Some(&[1, 3, 2, 3])),
        ("pooling that hangs over", pooling(), &[&[2, 3, 8, 8], &[2, 3, 4, 4]], &[(1, &[1, 3, 6, 7])], Some(&[1, 3, 3, 3])),
        ("pooling of too little", pooling(), &[&[2, 3, 9, 9], &[2, 3, 4, 4]], &[(1, &[2, 3, 2, 9])], None),
        ("reduction", reduction(), &[&[4, 6, 8], &[4, 1, 8]], &[(1, &[2, 5, 1])], Some(&[2, 1, 1])),
        ("broadcast sum", sum(), &[&[4, 6, 8], &[1, 6, 1], &[4, 6, 8]], &[(1, &[3, 2, 8]), (2, &[1, 2, 1])], Some(&[3, 2, 8])),
        ("sum of both ways", sum(), &[&[4, 6, 1], &[1, 6, 8], &[4, 6, 8]], &[(1, &[3, 6, 1]), (2, &[1, 6, 5])], Some(&[3, 6, 5])),
        ("product", Operation::Matmul(Matmul { a: X, b: W, c: LAST }), &[&[3, 4, 5], &[1, 5, 6], &[3, 4, 6]], &[(1, &[2, 4, 3]), (2, &[1, 3, 2])], Some(&[2, 4, 2])),
        ("statistics of rows", statistics(), &[&[4, 6, 8], &[8], &[8], &[1], &[4, 6, 8], &[4, 6, 1]], &[(1, &[2, 5, 8]), (5, &[2, 5, 8])], Some(&[2, 5, 1])),
        ("attention", attention(), &[&[2, 4, 9, 8], &[2, 4, 7, 8], &[2, 4, 7, 5], &[2, 4, 9, 5]], &[(1, &[1, 4, 3, 8]), (2, &[1, 4, 2, 8]), (3, &[1, 4, 2, 5])], Some(&[1, 4, 3, 5])),
    ];
    for (what, operation, dims, shapes, want) in cases {
        let got = overridden(&graph(dims, operation.clone()), shapes);
        match (got, want) {
            (Ok(graph), Some(want)) => {
                assert_eq!(graph.tensor(LAST).def().dims, *want, "{what}");
                assert!(!graph.def().is_override_shape_enabled, "{what}: an execution has one shape");
            }
            (Err(reason), None) => assert!(reason.contains("don't follow"), "{what}: {reason}"),
            (got, want) => panic!("{what}: expected {want:?}, got {got:?}"),
        }
    }
    // What does not follow can be said.
    let graph = graph(&[&[4, 5, 4, 4], &[5, 6, 3, 3], &[4, 6, 8, 8]], data_gradient(2));
    let said = overridden(&graph, &[(1, &[4, 5, 3, 4]), (9, &[4, 6, 5, 8])]).expect("it fits");
    assert_eq!(said.tensor(LAST).dims(), [4, 6, 5, 8]);
}

/// An intermediate stays as it lies in memory.
#[test]
fn strides_of_intermediates_keep_their_order() {
    let mut def = graph(&[&[4, 6, 8, 8], &[5, 6, 3, 3], &[4, 5, 8, 8]], forward(1)).def().clone();
    def.tensors[2] = def.tensors[2].clone().channels_last();
    let smaller = overridden(&Graph::new(def).expect("a right graph"), &[(1, &[2, 6, 7, 3])]).expect("it fits");
    assert_eq!(smaller.tensor(LAST).def().strides, channels_last_strides(&[2, 5, 7, 3]));
    assert_eq!(strides_in_order(&[3, 1, 5], &[10, 0, 1]), [5, 0, 1], "what broadcasts goes on to");
    assert_eq!(strides_in_order(&[1, 2, 3], &[1, 1, 1]), [6, 3, 1], "the last is the innermost of equal ones");
}

/// Shapes that a graph can't have are refused, with what was wanted.
#[test]
fn wrong_shapes_are_refused() {
    let graph = graph(&[&[4, 6, 8], &[1, 6, 1], &[4, 6, 8]], sum());
    type Case<'a> = (&'a [(i64, &'a [i64])], &'a str);
    let cases: &[Case] = &[
        (&[(7, &[4, 6, 8])], "tensor 7: the graph does not have it"),
        (&[(1, &[4, 6])], "tensor 1: override shape: expected 3 extents, as the graph declares, got 2"),
        (&[(1, &[4, 6, 9])], "expected 1 to the declared extent 8 in dimension 2, got 9"),
        (&[(1, &[0, 6, 8])], "expected 1 to the declared extent 4 in dimension 0, got 0"),
        (&[(1, &[4, -6, 8])], "expected 1 to the declared extent 6 in dimension 1, got -6"),
        (&[(1, &[3, 6, 8]), (1, &[3, 6, 8])], "tensor 1: its shape is given twice"),
        (&[(2, &[1, 5, 1])], "in_1 (tensor 2): expected extents of 1 or those of out_0, [4, 6, 8], got [1, 5, 1]"),
    ];
    for (shapes, want) in cases {
        let reason = overridden(&graph, shapes).expect_err(want);
        assert!(reason.contains(want), "expected {want:?}, got {reason:?}");
    }
    let strides = ShapeOverride { uid: X, dims: &[4, 6, 8], strides: &[48, 8] };
    let reason = graph.overridden(&[strides]).expect_err("too few strides").to_string();
    assert!(reason.contains("expected 3 strides, as the graph declares, got 2"), "{reason}");
    let strides = ShapeOverride { uid: X, dims: &[4, 6, 8], strides: &[48, 8, -1] };
    assert!(graph.overridden(&[strides]).is_err(), "a negative stride");
}
