//! One small valid graph of each kind of node, and a few larger ones.

#![allow(dead_code, reason = "each test takes what it needs")]

use hipdnn_schemas::*;

fn uid(n: i64) -> TensorUid {
    TensorUid(n)
}

fn some(n: i64) -> Option<TensorUid> {
    Some(TensorUid(n))
}

/// A graph of one node whose tensors have the uids 0, 1, 2... in the order of `dims`.
pub(crate) fn single(operation: Operation, dims: &[&[i64]]) -> GraphDef {
    let mut graph = GraphBuilder::new(operation.kind()).compute(DataType::Float);
    for (i, dims) in dims.iter().enumerate() {
        graph.tensor(TensorDef::new(i as i64, DataType::Float, dims).named(format!("t{i}")));
    }
    graph.node("node", operation);
    graph.def().clone()
}

/// A convolution, a bias and a ReLU in half precision with the channels innermost.
pub(crate) fn conv_bias_relu() -> GraphDef {
    let mut graph = GraphBuilder::new("conv_bias_relu").compute(DataType::Float);
    let image = |uid| TensorDef::new(uid, DataType::Half, &[2, 64, 14, 14]).channels_last();
    let x = graph.tensor(TensorDef::new(1, DataType::Half, &[2, 32, 14, 14]).channels_last().named("x"));
    let w = graph.tensor(TensorDef::new(2, DataType::Half, &[64, 32, 3, 3]).channels_last().named("w"));
    let c = graph.tensor(image(3).intermediate().named("c"));
    let b = graph.tensor(TensorDef::new(4, DataType::Half, &[1, 64, 1, 1]).channels_last().named("b"));
    let s = graph.tensor(image(5).intermediate().named("s"));
    let y = graph.tensor(image(6).named("y"));
    let same = Convolution { pre_padding: vec![1, 1], post_padding: vec![1, 1], ..Convolution::new(2) };
    let node = |name: &str, operation| Node { name: name.into(), compute_data_type: DataType::Float, operation };
    let def = graph.def_mut();
    def.intermediate_data_type = DataType::Half;
    def.io_data_type = DataType::Half;
    def.nodes = vec![
        node("conv", Operation::ConvolutionFwd(ConvolutionFwd { x, w, y: c, convolution: same })),
        node("bias", Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, c, b, s))),
        node("relu", Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, s, y))),
    ];
    def.clone()
}

/// Every optional field of tensors and graphs, and each kind of value.
pub(crate) fn every_field() -> GraphDef {
    let mut graph = GraphBuilder::new("every_field").compute(DataType::Float);
    let values = [
        (DataType::Float, TensorValue::Float32(0.1)),
        (DataType::Half, TensorValue::Float16(-1.5)),
        (DataType::BFloat16, TensorValue::BFloat16(2.5)),
        (DataType::Fp8E4M3, TensorValue::Float8(200)),
        (DataType::Int32, TensorValue::Int32(-7)),
        (DataType::Double, TensorValue::Float64(0.1)),
        (DataType::Int64, TensorValue::Int64(i64::MIN)),
        (DataType::Boolean, TensorValue::Bool(true)),
    ];
    for (i, (data_type, value)) in values.into_iter().enumerate() {
        graph.tensor(TensorDef::new(10 + i as i64, data_type, &[1]).with_value(value));
    }
    graph.tensor(TensorDef::new(-3, DataType::Int64, &[3]).named("offsets"));
    graph.tensor(TensorDef { is_runtime_pass_by_value: true, ..TensorDef::new(20, DataType::Float, &[1]) });
    let ragged = Some(Ragged { offset: uid(-3), multiplier: 4 });
    let x = graph.tensor(TensorDef { ragged, alignment: 64, ..TensorDef::new(0, DataType::Float, &[2, 3]) });
    let y = graph.tensor(TensorDef::new(i64::MAX, DataType::Float, &[2, 3]));
    graph.pointwise(Pointwise {
        relu_lower_clip: Some(0.25),
        relu_upper_clip: Some(6.0),
        relu_lower_clip_slope: Some(0.1),
        axis: Some(1),
        swish_beta: Some(1.5),
        elu_alpha: Some(0.5),
        softplus_beta: Some(3.0),
        ..Pointwise::unary(PointwiseMode::ReluFwd, x, y)
    });
    let def = graph.def_mut();
    def.intermediate_data_type = DataType::Half;
    def.io_data_type = DataType::BFloat16;
    def.preferred_engine_id = Some(-5);
    def.is_override_shape_enabled = true;
    def.min_required_engine_api_version = Some(EngineApiVersion { major: 1, minor: 3, patch: 0 });
    def.id = Some(std::array::from_fn(|i| (17 * i) as u8));
    def.clone()
}

/// One valid graph for each kind of node, in the order of the wire numbers.
pub(crate) fn one_of_each() -> Vec<GraphDef> {
    let image: &[i64] = &[2, 4, 5, 6];
    let channels: &[i64] = &[1, 4, 1, 1];
    let one: &[i64] = &[1];
    let q: &[i64] = &[2, 4, 3, 8];
    let k: &[i64] = &[2, 2, 5, 8];
    let geometry = Convolution {
        pre_padding: vec![1, 0],
        post_padding: vec![0, 2],
        stride: vec![2, 1],
        dilation: vec![1, 2],
        mode: ConvMode::CrossCorrelation,
    };
    let filter: &[i64] = &[6, 2, 3, 2];
    let conv_out: &[i64] = &[2, 6, 2, 6];
    let pool = [vec![0, 0], vec![1, 1], vec![2, 2], vec![2, 2]];
    let pooled: &[i64] = &[2, 4, 3, 3];
    let [pre_padding, post_padding, stride, window] = pool;
    vec![
        single(
            Operation::BatchnormInference(BatchnormInference {
                x: uid(0),
                mean: uid(1),
                inv_variance: uid(2),
                scale: uid(3),
                bias: uid(4),
                y: uid(5),
            }),
            &[image, channels, channels, channels, channels, image],
        ),
        single(
            Operation::Pointwise(Pointwise {
                in_2: some(2),
                ..Pointwise::binary(PointwiseMode::BinarySelect, uid(0), uid(1), uid(3))
            }),
            &[image, channels, one, image],
        ),
        single(
            Operation::BatchnormBackward(BatchnormBackward {
                dy: uid(0),
                x: uid(1),
                mean: some(2),
                inv_variance: some(3),
                scale: uid(4),
                peer_stats: vec![uid(5), uid(6)],
                dx: uid(7),
                dscale: uid(8),
                dbias: uid(9),
            }),
            &[image, image, channels, channels, channels, channels, channels, image, channels, channels],
        ),
        single(
            Operation::Batchnorm(Batchnorm {
                x: uid(0),
                scale: uid(1),
                bias: uid(2),
                epsilon: uid(3),
                peer_stats: vec![],
                prev_running_mean: some(4),
                prev_running_variance: some(5),
                momentum: some(6),
                y: uid(7),
                mean: some(8),
                inv_variance: some(9),
                next_running_mean: some(10),
                next_running_variance: some(11),
            }),
            &[image, channels, channels, one, channels, channels, one, image, channels, channels, channels, channels],
        ),
        single(
            Operation::ConvolutionFwd(ConvolutionFwd {
                x: uid(0),
                w: uid(1),
                y: uid(2),
                convolution: geometry.clone(),
            }),
            &[image, filter, conv_out],
        ),
        single(
            Operation::ConvolutionBwd(ConvolutionBwd {
                dy: uid(0),
                w: uid(1),
                dx: uid(2),
                convolution: geometry.clone(),
            }),
            &[conv_out, filter, image],
        ),
        single(
            Operation::ConvolutionWrw(ConvolutionWrw { x: uid(0), dy: uid(1), dw: uid(2), convolution: geometry }),
            &[image, conv_out, filter],
        ),
        single(
            Operation::BatchnormInferenceVarianceExt(BatchnormInferenceVarianceExt {
                x: uid(0),
                mean: uid(1),
                variance: uid(2),
                scale: uid(3),
                bias: uid(4),
                y: uid(5),
                epsilon: uid(6),
            }),
            &[image, channels, channels, channels, channels, image, one],
        ),
        single(
            Operation::Matmul(Matmul { a: uid(0), b: uid(1), c: uid(2) }),
            &[&[2, 1, 3, 4], &[1, 5, 4, 6], &[2, 5, 3, 6]],
        ),
        single(
            Operation::RmsNorm(RmsNorm {
                x: uid(0),
                scale: uid(1),
                epsilon: uid(2),
                y: uid(3),
                bias: some(4),
                inv_rms: some(5),
                forward_phase: NormFwdPhase::Training,
            }),
            &[image, &[1, 4, 5, 6], one, image, &[1, 4, 5, 6], &[2, 1, 1, 1]],
        ),
        single(
            Operation::Layernorm(Layernorm {
                x: uid(0),
                scale: uid(1),
                bias: uid(2),
                epsilon: uid(3),
                y: uid(4),
                normalized_dim_count: 3,
                mean: some(5),
                inv_variance: some(6),
                forward_phase: NormFwdPhase::Training,
            }),
            &[image, &[1, 4, 5, 6], &[1, 4, 5, 6], one, image, &[2, 1, 1, 1], &[2, 1, 1, 1]],
        ),
        single(
            Operation::Sdpa(Box::new(Sdpa {
                q: uid(0),
                k: uid(1),
                v: uid(2),
                o: uid(3),
                attn_mask: some(4),
                scale: None,
                seq_len_q: None,
                seq_len_kv: None,
                seed: None,
                offset: None,
                dropout_mask: None,
                dropout_scale: None,
                page_table_k: None,
                page_table_v: None,
                block_mask: None,
                sink_token: some(6),
                descale_q: None,
                descale_k: None,
                descale_v: None,
                descale_s: None,
                scale_s: None,
                scale_o: None,
                stats: some(5),
                max: None,
                sum_exp: None,
                rng_dump: None,
                amax_s: None,
                amax_o: some(7),
                generate_stats: Some(true),
                alibi_mask: true,
                padding_mask: false,
                causal_mask: true,
                causal_mask_bottom_right: false,
                dropout_probability: Some(0.5),
                attn_scale_value: Some(0.125),
                left_bound: Some(-1),
                right_bound: None,
                max_seq_len_kv: Some(77),
                diagonal_alignment: DiagonalAlignment::BottomRight,
                mma_core_mode: DataType::Half,
                implementation: AttentionImplementation::Unified,
            })),
            &[q, k, k, q, &[1, 1, 3, 5], &[2, 4, 3, 1], &[1, 4, 1, 1], &[1, 1, 1, 1]],
        ),
        single(
            Operation::BlockScaleDequantize(BlockScaleDequantize {
                x: uid(0),
                scale: uid(1),
                y: uid(2),
                block_size: vec![1, 2],
                is_negative_scale: true,
            }),
            &[&[4, 8], &[4, 4], &[4, 8]],
        ),
        single(
            Operation::BlockScaleQuantize(BlockScaleQuantize {
                x: uid(0),
                y: uid(1),
                scale: uid(2),
                block_size: 4,
                axis: Some(1),
                transpose: true,
            }),
            &[&[4, 8], &[8, 4], &[4, 2]],
        ),
        single(
            Operation::SdpaBackward(Box::new(SdpaBackward {
                q: uid(0),
                k: uid(1),
                v: uid(2),
                o: uid(3),
                d_o: uid(4),
                stats: uid(5),
                dq: uid(6),
                dk: uid(7),
                dv: uid(8),
                scale: None,
                attn_mask: some(9),
                seq_len_q: None,
                seq_len_kv: None,
                seed: None,
                offset: None,
                dropout_mask: None,
                dropout_scale: None,
                dropout_scale_inv: None,
                dbias: some(10),
                alibi_mask: false,
                padding_mask: true,
                causal_mask: false,
                causal_mask_bottom_right: true,
                dropout_probability: None,
                attn_scale_value: Some(0.5),
                left_bound: None,
                right_bound: Some(3),
                diagonal_alignment: DiagonalAlignment::TopLeft,
            })),
            &[q, k, k, q, q, &[2, 4, 3, 1], q, k, k, &[1, 1, 3, 5], &[1, 1, 3, 5]],
        ),
        single(
            Operation::CustomOp(CustomOp {
                custom_op_id: "acme.rope".into(),
                inputs: vec![uid(0), uid(0)],
                outputs: vec![uid(1)],
                data: vec![0, 255, 3],
            }),
            &[&[4], &[4]],
        ),
        single(
            Operation::RmsNormBackward(RmsNormBackward {
                dy: uid(0),
                x: uid(1),
                scale: uid(2),
                inv_rms: uid(3),
                dx: uid(4),
                dscale: uid(5),
                dbias: some(6),
            }),
            &[image, image, &[1, 4, 5, 6], &[2, 1, 1, 1], image, &[1, 4, 5, 6], &[1, 4, 5, 6]],
        ),
        single(
            Operation::Reduction(Reduction {
                mode: ReductionMode::Average,
                input: uid(0),
                output: uid(1),
                is_deterministic: true,
            }),
            &[image, &[2, 4, 1, 1]],
        ),
        single(
            Operation::ResampleFwd(ResampleFwd {
                x: uid(0),
                y: uid(1),
                index: some(2),
                pre_padding: pre_padding.clone(),
                post_padding: post_padding.clone(),
                stride: stride.clone(),
                window: window.clone(),
                resample_mode: ResampleMode::MaxPool,
                padding_mode: PaddingMode::NegInf,
                generate_index: Some(true),
            }),
            &[image, pooled, pooled],
        ),
        single(
            Operation::LayernormBackward(LayernormBackward {
                dy: uid(0),
                x: uid(1),
                scale: uid(2),
                mean: some(3),
                inv_variance: some(4),
                epsilon: some(5),
                dx: uid(6),
                dscale: uid(7),
                dbias: some(8),
                normalized_dim_count: 1,
            }),
            &[&[4, 6], &[4, 6], &[1, 6], &[4, 1], &[4, 1], one, &[4, 6], &[1, 6], &[1, 6]],
        ),
        single(
            Operation::ResampleBwd(ResampleBwd {
                dy: uid(0),
                dx: uid(1),
                index: some(2),
                pre_padding,
                post_padding,
                stride,
                window,
                resample_mode: ResampleMode::AvgPoolIncludePadding,
                padding_mode: PaddingMode::Zero,
            }),
            &[pooled, image, pooled],
        ),
        single(
            Operation::MoeGroupedMatmul(MoeGroupedMatmul {
                token: uid(0),
                weight: uid(1),
                first_token_offset: uid(2),
                token_index: some(3),
                token_ks: None,
                output: uid(4),
                mode: MoeGroupedMatmulMode::Gather,
                top_k: 2,
            }),
            &[&[1, 8, 4], &[3, 4, 5], &[3, 1, 1], &[8, 1, 1], &[1, 8, 5]],
        ),
        single(
            Operation::MoeGroupedMatmulBwd(MoeGroupedMatmulBwd {
                doutput: uid(0),
                token: uid(1),
                first_token_offset: uid(2),
                dweight: uid(3),
            }),
            &[&[1, 8, 5], &[1, 8, 4], &[3, 1, 1], &[3, 4, 5]],
        ),
    ]
}
