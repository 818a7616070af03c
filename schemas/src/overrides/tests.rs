use super::*;
use crate::*;

/// A graph of one node that allows override shapes. Its tensors are numbered from 1 by their extents, without 9: that is
/// the last one, which is an intermediate.
fn graph(dims: &[&[i64]], operation: Operation) -> Graph {
    let (last, others) = dims.split_last().expect("a node writes a tensor");
    let mut tensors: Vec<TensorDef> = (1..)
        .filter(|uid| *uid != LAST.0)
        .zip(others)
        .map(|(uid, dims)| TensorDef::new(uid, DataType::Float, dims))
        .collect();
    tensors.push(TensorDef::new(LAST.0, DataType::Float, last).intermediate());
    let nodes = vec![Node { name: String::new(), compute_data_type: DataType::Float, operation }];
    let def = GraphDef { tensors, nodes, is_override_shape_enabled: true, ..GraphDef::default() };
    Graph::new(def).expect("a right graph")
}

/// The graph of an execution where these tensors have packed shapes.
fn overridden(graph: &Graph, shapes: &[(i64, &[i64])]) -> Result<Graph, String> {
    let strides: Vec<Extents> = shapes.iter().map(|(_, dims)| packed_strides(dims)).collect();
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

fn volume_gradient() -> Operation {
    let [pre_padding, post_padding] = [vec![1; 3], vec![1; 3]];
    let convolution = Convolution { pre_padding, post_padding, ..Convolution::new(3) };
    Operation::ConvolutionBwd(ConvolutionBwd { dy: X, w: W, dx: LAST, convolution })
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

/// Windows of 4 in steps of 3, with 2 elements of padding before and 3 behind.
fn padded_pooling(spatial: usize) -> Operation {
    let Operation::ResampleFwd(pooling) = pooling() else { unreachable!("pooling") };
    let [pre_padding, post_padding, stride, window] = [2, 3, 3, 4].map(|each| vec![each; spatial]);
    Operation::ResampleFwd(ResampleFwd { pre_padding, post_padding, stride, window, ..pooling })
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

/// Holds the extents of the intermediate that follow from these shapes against those wanted, or `None` if they don't.
fn follows(what: &str, graph: &Graph, shapes: &[(i64, &[i64])], want: Option<&[i64]>) {
    match (overridden(graph, shapes), want) {
        (Ok(graph), Some(want)) => {
            assert_eq!(*graph.tensor(LAST).def().dims, *want, "{what}");
            assert!(!graph.def().is_override_shape_enabled, "{what}: an execution has one shape");
        }
        (Err(reason), None) => assert!(reason.contains("don't follow"), "{what}: {reason}"),
        (got, want) => panic!("{what}: expected {want:?}, got {got:?}"),
    }
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
        ("weight gradient of groups", weight_gradient(), &[&[4, 6, 8, 8], &[4, 4, 8, 8], &[4, 3, 3, 3]], &[(1, &[4, 4, 8, 8])], Some(&[4, 2, 3, 3])),
        ("data gradient of a volume", volume_gradient(), &[&[2, 5, 4, 5, 6], &[5, 3, 3, 3, 3], &[2, 3, 4, 5, 6]], &[(1, &[1, 5, 3, 4, 2])], Some(&[1, 3, 3, 4, 2])),
        ("pooling", pooling(), &[&[2, 3, 9, 9], &[2, 3, 4, 4]], &[(1, &[1, 3, 6, 7])], Some(&[1, 3, 2, 3])),
        ("pooling that hangs over", pooling(), &[&[2, 3, 8, 8], &[2, 3, 4, 4]], &[(1, &[1, 3, 6, 7])], Some(&[1, 3, 3, 3])),
        ("pooling of too little", pooling(), &[&[2, 3, 9, 9], &[2, 3, 4, 4]], &[(1, &[2, 3, 2, 9])], None),
        ("padded pooling", padded_pooling(3), &[&[2, 3, 10, 10, 10], &[2, 3, 4, 4, 4]], &[(1, &[2, 3, 7, 6, 7])], Some(&[2, 3, 3, 3, 3])),
        ("reduction", reduction(), &[&[4, 6, 8], &[4, 1, 8]], &[(1, &[2, 5, 1])], Some(&[2, 1, 1])),
        ("broadcast sum", sum(), &[&[4, 6, 8], &[1, 6, 1], &[4, 6, 8]], &[(1, &[3, 2, 8]), (2, &[1, 2, 1])], Some(&[3, 2, 8])),
        ("sum of both ways", sum(), &[&[4, 6, 1], &[1, 6, 8], &[4, 6, 8]], &[(1, &[3, 6, 1]), (2, &[1, 6, 5])], Some(&[3, 6, 5])),
        ("product", Operation::Matmul(Matmul { a: X, b: W, c: LAST }), &[&[3, 4, 5], &[1, 5, 6], &[3, 4, 6]], &[(1, &[2, 4, 3]), (2, &[1, 3, 2])], Some(&[2, 4, 2])),
        ("statistics of rows", statistics(), &[&[4, 6, 8], &[8], &[8], &[1], &[4, 6, 8], &[4, 6, 1]], &[(1, &[2, 5, 8]), (5, &[2, 5, 8])], Some(&[2, 5, 1])),
        ("attention", attention(), &[&[2, 4, 9, 8], &[2, 4, 7, 8], &[2, 4, 7, 5], &[2, 4, 9, 5]], &[(1, &[1, 4, 3, 8]), (2, &[1, 4, 2, 8]), (3, &[1, 4, 2, 5])], Some(&[1, 4, 3, 5])),
    ];
    for (what, operation, dims, shapes, want) in cases {
        follows(what, &graph(dims, operation.clone()), shapes, *want);
    }
    // What does not follow can be said.
    let graph = graph(&[&[4, 5, 4, 4], &[5, 6, 3, 3], &[4, 6, 8, 8]], data_gradient(2));
    let said = overridden(&graph, &[(1, &[4, 5, 3, 4]), (9, &[4, 6, 5, 8])]).expect("it fits");
    assert_eq!(said.tensor(LAST).dims(), [4, 6, 5, 8]);
}

/// Tensors of an operation by their numbers.
fn uids<const N: usize>(numbers: [i64; N]) -> [TensorUid; N] {
    numbers.map(TensorUid)
}

/// Of x 1, with scale 2, bias 3 and epsilon 4.
fn batchnorm([y, mean]: [i64; 2]) -> Operation {
    let [x, scale, bias, epsilon, y, mean] = uids([1, 2, 3, 4, y, mean]);
    Operation::Batchnorm(Batchnorm {
        x,
        scale,
        bias,
        epsilon,
        peer_stats: Vec::new(),
        prev_running_mean: None,
        prev_running_variance: None,
        momentum: None,
        y,
        mean: Some(mean),
        inv_variance: None,
        next_running_mean: None,
        next_running_variance: None,
    })
}

/// Of dy 1 and x 2, with scale 3.
fn batchnorm_backward(outputs: [i64; 3]) -> Operation {
    let [dy, x, scale] = uids([1, 2, 3]);
    let [dx, dscale, dbias] = uids(outputs);
    let (mean, inv_variance, peer_stats) = (None, None, Vec::new());
    Operation::BatchnormBackward(BatchnormBackward { dy, x, mean, inv_variance, scale, peer_stats, dx, dscale, dbias })
}

/// Over the last dimension of x 1, with scale 2, bias 3 and epsilon 4.
fn layernorm([y, mean]: [i64; 2]) -> Operation {
    let [x, scale, bias, epsilon, y, mean] = uids([1, 2, 3, 4, y, mean]);
    let (normalized_dim_count, forward_phase) = (1, NormFwdPhase::Training);
    let (mean, inv_variance) = (Some(mean), None);
    Operation::Layernorm(Layernorm {
        x,
        scale,
        bias,
        epsilon,
        y,
        normalized_dim_count,
        mean,
        inv_variance,
        forward_phase,
    })
}

/// Over the last dimension of dy 1 and x 2, with scale 3.
fn layernorm_backward([dx, dscale]: [i64; 2]) -> Operation {
    let [dy, x, scale, dx, dscale] = uids([1, 2, 3, dx, dscale]);
    let (mean, inv_variance, epsilon, dbias) = (None, None, None, None);
    let normalized_dim_count = 1;
    Operation::LayernormBackward(LayernormBackward {
        dy,
        x,
        scale,
        mean,
        inv_variance,
        epsilon,
        dx,
        dscale,
        dbias,
        normalized_dim_count,
    })
}

/// Of x 1, with scale 2 and epsilon 3.
fn rms_norm([y, inv_rms]: [i64; 2]) -> Operation {
    let [x, scale, epsilon, y, inv_rms] = uids([1, 2, 3, y, inv_rms]);
    let (bias, inv_rms, forward_phase) = (None, Some(inv_rms), NormFwdPhase::Training);
    Operation::RmsNorm(RmsNorm { x, scale, epsilon, y, bias, inv_rms, forward_phase })
}

/// Of dy 1 and x 2, with scale 3 and the inverse root 4.
fn rms_norm_backward([dx, dscale]: [i64; 2]) -> Operation {
    let [dy, x, scale, inv_rms, dx, dscale] = uids([1, 2, 3, 4, dx, dscale]);
    Operation::RmsNormBackward(RmsNormBackward { dy, x, scale, inv_rms, dx, dscale, dbias: None })
}

fn pooling_gradient() -> Operation {
    Operation::ResampleBwd(ResampleBwd {
        dy: X,
        dx: LAST,
        index: None,
        pre_padding: vec![0; 2],
        post_padding: vec![0; 2],
        stride: vec![2; 2],
        window: vec![3; 2],
        resample_mode: ResampleMode::AvgPoolIncludePadding,
        padding_mode: PaddingMode::Zero,
    })
}

/// Blocks of 4 along the last dimension of x 1.
fn quantization([y, scale]: [i64; 2], transpose: bool) -> Operation {
    let [x, y, scale] = uids([1, y, scale]);
    Operation::BlockScaleQuantize(BlockScaleQuantize { x, y, scale, block_size: 4, axis: Some(1), transpose })
}

/// Of q 1, k 2 and v 3, with the result 4 and another output.
fn attention_and(set: fn(&mut Sdpa)) -> Operation {
    let [q, k, v, o] = uids([1, 2, 3, 4]);
    let mut attention = Sdpa::new(q, k, v, o);
    set(&mut attention);
    Operation::Sdpa(Box::new(attention))
}

/// Of q 1, k 2, v 3, o 4, do 5 and statistics 6.
fn attention_backward(outputs: [i64; 3], set: fn(&mut SdpaBackward)) -> Operation {
    let mut attention = SdpaBackward::new(uids([1, 2, 3, 4, 5, 6]), uids(outputs));
    set(&mut attention);
    Operation::SdpaBackward(Box::new(attention))
}

/// [`extents_of_intermediates_follow`] for operations with several outputs: what follows is one of them.
#[test]
fn extents_of_each_output_follow() {
    type Case<'a> = (&'a str, Operation, &'a [&'a [i64]], &'a [(i64, &'a [i64])], Option<&'a [i64]>);
    let channels: &[i64] = &[1, 6, 1];
    let fewer: &[(i64, &[i64])] = &[(1, &[2, 5, 8]), (2, &[2, 5, 8])];
    let [q, k, v, o]: [&[i64]; 4] = [&[2, 4, 9, 8], &[2, 2, 7, 8], &[2, 2, 7, 5], &[2, 4, 9, 5]];
    let shorter: &[(i64, &[i64])] = &[(1, &[1, 4, 3, 8]), (2, &[1, 2, 6, 8]), (3, &[1, 2, 6, 5]), (4, &[1, 4, 3, 5])];
    let rows: &[i64] = &[2, 4, 9, 1];
    let backward =
        |others: &[(i64, &'static [i64])]| [shorter, &[(5, &[1, 4, 3, 5]), (6, &[1, 4, 3, 1])], others].concat();
    let [without_dq, without_dk, without_dv] = [
        backward(&[(7, &[1, 2, 6, 8]), (8, &[1, 2, 6, 5])]),
        backward(&[(7, &[1, 4, 3, 8]), (8, &[1, 2, 6, 5])]),
        backward(&[(7, &[1, 4, 3, 8]), (8, &[1, 2, 6, 8])]),
    ];
    let all = backward(&[(7, &[1, 4, 3, 8]), (8, &[1, 2, 6, 8]), (10, &[1, 2, 6, 5]), (11, &[1, 1, 3, 6])]);
    let of_mask = || attention_backward([7, 8, 10], |a| (a.attn_mask, a.dbias) = (Some(TensorUid(11)), Some(LAST)));
    let mask: &[i64] = &[1, 1, 9, 7];
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("batch normalization", batchnorm([9, 5]), &[&[4, 6, 8], channels, channels, &[1], channels, &[4, 6, 8]], &[(1, &[2, 6, 8])], Some(&[2, 6, 8])),
        ("means of channels", batchnorm([5, 9]), &[&[4, 6, 8], channels, channels, &[1], &[4, 6, 8], channels], &[(1, &[2, 5, 8]), (2, &[1, 5, 1]), (3, &[1, 5, 1]), (5, &[2, 5, 8])], Some(&[1, 5, 1])),
        ("gradient of batch normalization", batchnorm_backward([9, 4, 5]), &[&[4, 6, 8], &[4, 6, 8], channels, channels, channels, &[4, 6, 8]], &[(1, &[2, 6, 8]), (2, &[2, 6, 8])], Some(&[2, 6, 8])),
        ("gradient of a scale", batchnorm_backward([5, 9, 4]), &[&[4, 6, 8], &[4, 6, 8], channels, channels, &[4, 6, 8], channels], &[fewer[0], fewer[1], (3, &[1, 5, 1]), (4, &[1, 5, 1]), (5, &[2, 5, 8])], Some(&[1, 5, 1])),
        ("layer normalization", layernorm([9, 5]), &[&[4, 6, 8], &[8], &[8], &[1], &[4, 6, 1], &[4, 6, 8]], &[(1, &[2, 5, 8]), (5, &[2, 5, 1])], Some(&[2, 5, 8])),
        ("means of rows in another order", layernorm([5, 9]), &[&[4, 6, 8], &[8], &[8], &[1], &[4, 6, 8], &[6, 4, 1]], &[(1, &[2, 5, 8]), (5, &[2, 5, 8])], None),
        ("gradient of layer normalization", layernorm_backward([9, 4]), &[&[4, 6, 8], &[4, 6, 8], &[8], &[8], &[4, 6, 8]], fewer, Some(&[2, 5, 8])),
        ("gradient of its scale", layernorm_backward([4, 9]), &[&[4, 6, 8], &[4, 6, 8], &[8], &[4, 6, 8], &[8]], &[(1, &[4, 6, 5]), (2, &[4, 6, 5]), (3, &[5]), (4, &[4, 6, 5])], Some(&[5])),
        ("gradient of another form than the scale", layernorm_backward([4, 9]), &[&[4, 6, 8], &[4, 6, 8], &[8], &[4, 6, 8], &[1, 8]], &[(1, &[4, 6, 5]), (2, &[4, 6, 5]), (3, &[5]), (4, &[4, 6, 5])], None),
        ("RMS normalization", rms_norm([9, 4]), &[&[4, 6, 8], &[1, 1, 8], &[1], &[4, 6, 1], &[4, 6, 8]], &[(1, &[2, 5, 8]), (4, &[2, 5, 1])], Some(&[2, 5, 8])),
        ("inverse roots of rows", rms_norm([4, 9]), &[&[4, 6, 8], &[1, 1, 8], &[1], &[4, 6, 8], &[4, 6, 1]], &[(1, &[2, 5, 8]), (4, &[2, 5, 8])], Some(&[2, 5, 1])),
        ("gradient of RMS normalization", rms_norm_backward([9, 5]), &[&[4, 6, 8], &[4, 6, 8], &[1, 1, 8], &[4, 6, 1], &[1, 1, 8], &[4, 6, 8]], &[fewer[0], fewer[1], (4, &[2, 5, 1])], Some(&[2, 5, 8])),
        ("gradient of a scale of elements", rms_norm_backward([5, 9]), &[&[4, 6, 8], &[4, 6, 8], &[1, 6, 8], &[4, 1, 1], &[4, 6, 8], &[1, 6, 8]], &[fewer[0], fewer[1], (3, &[1, 5, 8]), (4, &[2, 1, 1]), (5, &[2, 5, 8])], Some(&[1, 5, 8])),
        ("gradient of a smaller batch", pooling_gradient(), &[&[2, 3, 4, 4], &[2, 3, 9, 9]], &[(1, &[1, 3, 4, 4])], Some(&[1, 3, 9, 9])),
        ("gradient of fewer windows", pooling_gradient(), &[&[2, 3, 4, 4], &[2, 3, 9, 9]], &[(1, &[2, 3, 4, 3])], None),
        ("quantization", quantization([9, 2], false), &[&[4, 10], &[4, 3], &[4, 10]], &[(1, &[3, 8]), (2, &[3, 2])], Some(&[3, 8])),
        ("transposed quantization", quantization([9, 2], true), &[&[4, 4], &[4, 1], &[4, 4]], &[(1, &[3, 4]), (2, &[3, 1])], None),
        ("scales of blocks", quantization([2, 9], false), &[&[4, 10], &[4, 10], &[4, 3]], &[(1, &[3, 8]), (2, &[3, 8])], Some(&[3, 2])),
        ("scales of other blocks", quantization([2, 9], false), &[&[4, 10], &[4, 10], &[4, 5]], &[(1, &[3, 8]), (2, &[3, 8])], None),
        ("scales in another form", quantization([2, 9], false), &[&[4, 10], &[4, 10], &[12]], &[(1, &[3, 8]), (2, &[3, 8])], None),
        ("logarithms of attention", attention_and(|a| a.stats = Some(LAST)), &[q, k, v, o, rows], shorter, Some(&[1, 4, 3, 1])),
        ("logarithms in another form", attention_and(|a| a.stats = Some(LAST)), &[q, k, v, o, &[2, 4, 9]], shorter, None),
        ("largest result", attention_and(|a| a.amax_o = Some(LAST)), &[q, k, v, o, &[1, 1, 1, 1]], shorter, Some(&[1, 1, 1, 1])),
        ("gradient of queries", attention_backward([9, 7, 8], |_| ()), &[q, k, v, o, o, rows, k, v, q], &without_dq, Some(&[1, 4, 3, 8])),
        ("gradient of keys", attention_backward([7, 9, 8], |_| ()), &[q, k, v, o, o, rows, q, v, k], &without_dk, Some(&[1, 2, 6, 8])),
        ("gradient of values", attention_backward([7, 8, 9], |_| ()), &[q, k, v, o, o, rows, q, k, v], &without_dv, Some(&[1, 2, 6, 5])),
        ("gradient of a mask", of_mask(), &[q, k, v, o, o, rows, q, k, v, mask, mask], &all, Some(&[1, 1, 3, 6])),
        ("gradient of more than the mask", of_mask(), &[q, k, v, o, o, rows, q, k, v, mask, &[1, 4, 9, 7]], &all, None),
    ];
    for (what, operation, dims, shapes, want) in cases {
        follows(what, &graph(dims, operation.clone()), shapes, *want);
    }
}

/// An intermediate stays as it lies in memory.
#[test]
fn strides_of_intermediates_keep_their_order() {
    let mut def = graph(&[&[4, 6, 8, 8], &[5, 6, 3, 3], &[4, 5, 8, 8]], forward(1)).def();
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
