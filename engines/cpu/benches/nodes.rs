//! Times the CPU engine on graphs of one node, and on chains with and without fusing.
//!
//! `cargo bench -p hipdnn-engine-cpu --bench nodes -- [--threads 1,2] [--fastest] [FILTER]`
//!
//! Prints the median time of each graph (the least with `--fastest`, for noisy machines) and its rate: multiply-adds of
//! products, bytes of everything else.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipdnn_engine_core::{Engine, Site};
use hipdnn_engine_cpu::CPU_ENGINE;
use hipdnn_schemas::{
    BatchnormInferenceVarianceExt, Convolution, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, DataType, EngineConfig,
    Graph, GraphBuilder, KnobValue, Layernorm, Matmul, NormFwdPhase, Operation, PaddingMode, Pointwise, PointwiseMode,
    Reduction, ReductionMode, ResampleBwd, ResampleFwd, ResampleMode, RmsNorm, Sdpa, TensorDef, TensorUid, TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

struct Case {
    name: String,
    graph: Graph,
    /// Number of multiply-adds, if the rate is counted in them.
    products: Option<f64>,
    fuse: bool,
}

fn graph(tensors: Vec<TensorDef>, nodes: Vec<Operation>) -> Graph {
    let mut graph = GraphBuilder::new("bench").compute(DataType::Float);
    for tensor in tensors {
        graph.tensor(tensor);
    }
    for node in nodes {
        graph.node("", node);
    }
    graph.build().expect("the benchmark's graphs are right")
}

fn tensor(uid: i64, data_type: DataType, dims: &[i64]) -> TensorDef {
    TensorDef::new(uid, data_type, dims)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut push = |name: String, products: Option<f64>, graph: Graph| {
        cases.push(Case { name, graph, products, fuse: true });
    };
    let (float, half) = (DataType::Float, DataType::Half);
    let [a, b, c] = [0, 1, 2].map(TensorUid);
    for (name, [batch, m, n, k], data_type) in [
        ("matmul_512", [1, 512, 512, 512], float),
        ("matmul_512_half", [1, 512, 512, 512], half),
        ("matmul_1x4096x1024", [1, 1, 4096, 1024], float),
        ("matmul_16x128x128x64", [16, 128, 128, 64], float),
        ("matmul_64x10000x64", [1, 64, 64, 10_000], float),
        ("matmul_197x384x384", [1, 197, 384, 384], float),
        ("matmul_6x197x64x197", [6, 197, 197, 64], float),
        ("matmul_8x768x3072", [1, 8, 3072, 768], float),
        ("matmul_double_256", [1, 256, 256, 256], DataType::Double),
    ] {
        let dims = [[batch, m, k], [batch, k, n], [batch, m, n]];
        let tensors = (0..3).map(|i| tensor(i as i64, data_type, &dims[i])).collect();
        let products = (batch * m * n * k) as f64;
        push(name.to_string(), Some(products), graph(tensors, vec![Operation::Matmul(Matmul { a, b, c })]));
    }
    // batch, channels, extent, filters, filter, stride, padding, groups
    for (name, [batch, channels, extent, filters, filter, stride, pad, groups]) in [
        ("r50_7x7s2_3_64_224", [1, 3, 224, 64, 7, 2, 3, 1]),
        ("r50_1x1_256_64_56", [1, 256, 56, 64, 1, 1, 0, 1]),
        ("r50_3x3_64_56", [1, 64, 56, 64, 3, 1, 1, 1]),
        ("r50_3x3_256_14", [1, 256, 14, 256, 3, 1, 1, 1]),
        ("r50_3x3s2_128_56", [1, 128, 56, 128, 3, 2, 1, 1]),
        ("mb_dw3x3_144_56", [1, 144, 56, 144, 3, 1, 1, 144]),
    ] {
        let convolution = Convolution {
            pre_padding: vec![pad; 2],
            post_padding: vec![pad; 2],
            stride: vec![stride; 2],
            ..Convolution::new(2)
        };
        let out = convolution.output_extent(0, extent, filter).expect("the filter fits");
        let x = [batch, channels, extent, extent];
        let w = [filters, channels / groups, filter, filter];
        let y = [batch, filters, out, out];
        let products = (batch * filters * out * out * channels / groups * filter * filter) as f64;
        for layout in ["nchw", "nhwc"] {
            let lay = |t: TensorDef| if layout == "nhwc" { t.channels_last() } else { t };
            let tensors = || [x, w, y].iter().enumerate().map(|(i, d)| lay(tensor(i as i64, float, d))).collect();
            for (way, node) in [
                (
                    "fwd",
                    Operation::ConvolutionFwd(ConvolutionFwd { x: a, w: b, y: c, convolution: convolution.clone() }),
                ),
                (
                    "bwd",
                    Operation::ConvolutionBwd(ConvolutionBwd { dx: a, w: b, dy: c, convolution: convolution.clone() }),
                ),
                (
                    "wrw",
                    Operation::ConvolutionWrw(ConvolutionWrw { x: a, dw: b, dy: c, convolution: convolution.clone() }),
                ),
            ] {
                push(format!("{way}_{name}_{layout}"), Some(products), graph(tensors(), vec![node]));
            }
        }
    }
    for (heads, rows, size) in [(12, 128, 64), (6, 197, 64), (16, 512, 64)] {
        let (scores, values) = ([1, heads, rows, rows], [1, heads, rows, size]);
        // Heads side by side, as projections leave them.
        let apart = |uid| tensor(uid, float, &values).strided(&[rows * heads * size, size, heads * size, 1]);
        for (way, masked) in [("", false), ("_mask", true)] {
            let mut node = Sdpa::new(a, b, c, TensorUid(3));
            let mut tensors: Vec<TensorDef> = (0..4).map(apart).collect();
            if masked {
                node.attn_mask = Some(TensorUid(4));
                tensors.push(tensor(4, float, &[1, 1, rows, rows]));
            }
            let products = 2.0 * (heads * rows * rows * size) as f64;
            let name = format!("attention_{heads}x{rows}x{size}{way}");
            push(name, Some(products), graph(tensors, vec![Operation::Sdpa(Box::new(node))]));
        }
        // Keys that lie by rows.
        let turned = tensor(1, float, &[1, heads, size, rows]).strided(&[heads * rows * size, rows * size, 1, size]);
        let tensors = vec![tensor(0, float, &values), turned, tensor(2, float, &scores)];
        let products = (heads * rows * rows * size) as f64;
        let name = format!("matmul_{heads}x{rows}x{size}x{rows}_transposed");
        push(name, Some(products), graph(tensors, vec![Operation::Matmul(Matmul { a, b, c })]));
    }
    // Copies: extents, and the strides of the input and of the output.
    for (name, dims, from, to) in [
        ("nchw_nhwc_64_112", [1, 64, 112, 112], [802_816, 12_544, 112, 1], [802_816, 1, 7168, 64]),
        ("nchw_nhwc_3_224", [1, 3, 224, 224], [150_528, 50_176, 224, 1], [150_528, 1, 672, 3]),
        ("nhwc_nchw_64_112", [1, 64, 112, 112], [802_816, 1, 7168, 64], [802_816, 12_544, 112, 1]),
        ("nhwc_nchw_3_224", [1, 3, 224, 224], [150_528, 1, 672, 3], [150_528, 50_176, 224, 1]),
        ("matrix_1024", [1, 1, 1024, 1024], [1 << 20, 1 << 20, 1024, 1], [1 << 20, 1 << 20, 1, 1024]),
        ("heads_12x128x64", [1, 128, 12, 64], [98_304, 768, 64, 1], [98_304, 64, 8192, 1]),
        ("keys_12x128x64", [1, 12, 128, 64], [98_304, 8192, 64, 1], [98_304, 8192, 1, 128]),
        ("half_of_64_56_nhwc", [1, 56, 56, 64], [200_704, 3584, 64, 1], [401_408, 7168, 128, 1]),
        ("third_of_128x2304", [1, 1, 128, 768], [294_912, 294_912, 2304, 1], [98_304, 98_304, 768, 1]),
        ("whole_2_64_56", [1, 1, 64, 3136], [200_704, 200_704, 3136, 1], [200_704, 200_704, 3136, 1]),
    ] {
        let tensors = vec![tensor(0, float, &dims).strided(&from), tensor(1, float, &dims).strided(&to)];
        let node = Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, a, b));
        push(format!("copy_{name}"), None, graph(tensors, vec![node]));
    }
    let image = [8, 64, 56, 56];
    for (name, out) in
        [("all", [1; 4]), ("channels", [1, 64, 1, 1]), ("rows", [8, 64, 56, 1]), ("batch", [1, 64, 56, 56])]
    {
        for (what, mode) in [("add", ReductionMode::Add), ("max", ReductionMode::Max)] {
            let node = Reduction { mode, input: a, output: b, is_deterministic: false };
            let tensors = vec![tensor(0, float, &image), tensor(1, float, &out)];
            push(format!("reduce_{what}_{name}"), None, graph(tensors, vec![Operation::Reduction(node)]));
        }
    }
    for (what, mode) in [("max", ResampleMode::MaxPool), ("avg", ResampleMode::AvgPoolIncludePadding)] {
        for layout in ["nchw", "nhwc"] {
            let lay = |t: TensorDef| if layout == "nhwc" { t.channels_last() } else { t };
            let index = (mode == ResampleMode::MaxPool).then_some(c);
            let tensors = || {
                let small = [8, 64, 28, 28];
                vec![
                    lay(tensor(0, float, &image)),
                    lay(tensor(1, float, &small)),
                    lay(tensor(2, DataType::Int32, &small)),
                ]
            };
            let [pre_padding, post_padding, stride, window] = [vec![1, 1], vec![0, 0], vec![2, 2], vec![3, 3]];
            let forward = ResampleFwd {
                x: a,
                y: b,
                index,
                pre_padding: pre_padding.clone(),
                post_padding: post_padding.clone(),
                stride: stride.clone(),
                window: window.clone(),
                resample_mode: mode,
                padding_mode: PaddingMode::NegInf,
                generate_index: Some(index.is_some()),
            };
            let backward = ResampleBwd {
                dy: b,
                dx: a,
                index,
                pre_padding,
                post_padding,
                stride,
                window,
                resample_mode: mode,
                padding_mode: PaddingMode::NegInf,
            };
            push(format!("pool_{what}_{layout}"), None, graph(tensors(), vec![Operation::ResampleFwd(forward)]));
            push(format!("pool_{what}_bwd_{layout}"), None, graph(tensors(), vec![Operation::ResampleBwd(backward)]));
        }
    }
    // ResNet-50's pooling and DenseNet's, then element-wise functions of images and of channels.
    for layout in ["nchw", "nhwc"] {
        let lay = |t: TensorDef| if layout == "nhwc" { t.channels_last() } else { t };
        for (name, mode, [channels, extent, window, stride, pad]) in [
            ("r50_max3x3s2_64_112", ResampleMode::MaxPool, [64, 112, 3, 2, 1]),
            ("dense_avg2x2s2_256_28", ResampleMode::AvgPoolExcludePadding, [256, 28, 2, 2, 0]),
            ("dense_max2x2s2_256_28", ResampleMode::MaxPool, [256, 28, 2, 2, 0]),
            ("inception_max3x3_192_35", ResampleMode::MaxPool, [192, 35, 3, 1, 1]),
            ("inception_avg3x3_288_35", ResampleMode::AvgPoolExcludePadding, [288, 35, 3, 1, 1]),
            ("r50_avg7x7_2048_7", ResampleMode::AvgPoolExcludePadding, [2048, 7, 7, 1, 0]),
        ] {
            let out = (extent + 2 * pad - window) / stride + 1;
            let node = ResampleFwd {
                x: a,
                y: b,
                index: None,
                pre_padding: vec![pad; 2],
                post_padding: vec![pad; 2],
                stride: vec![stride; 2],
                window: vec![window; 2],
                resample_mode: mode,
                padding_mode: PaddingMode::NegInf,
                generate_index: None,
            };
            let dims = [[1, channels, extent, extent], [1, channels, out, out]];
            let tensors = (0..2).map(|i| lay(tensor(i as i64, float, &dims[i]))).collect();
            push(format!("pool_{name}_{layout}"), None, graph(tensors, vec![Operation::ResampleFwd(node)]));
        }
        for (batch, channels, extent) in [(1, 2048, 7), (8, 2048, 7), (1, 96, 112)] {
            let dims = [[batch, channels, extent, extent], [batch, channels, 1, 1]];
            let node = Reduction { mode: ReductionMode::Average, input: a, output: b, is_deterministic: false };
            let tensors = (0..2).map(|i| lay(tensor(i as i64, float, &dims[i]))).collect();
            let name = format!("reduce_global_avg_{batch}x{channels}x{extent}_{layout}");
            push(name, None, graph(tensors, vec![Operation::Reduction(node)]));
        }
        for (channels, extent) in [(256, 56), (64, 56), (24, 56), (2048, 7)] {
            let image = [1, channels, extent, extent];
            for (name, other, mode) in [
                ("add_relu", image, PointwiseMode::Add),
                ("scale_relu", [1, channels, 1, 1], PointwiseMode::Mul),
                ("relu_scale", [1, channels, 1, 1], PointwiseMode::Mul),
            ] {
                let mut nodes = vec![
                    Operation::Pointwise(Pointwise::binary(mode, a, b, TensorUid(3))),
                    Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, TensorUid(3), c)),
                ];
                if name == "relu_scale" {
                    nodes = vec![
                        Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, a, TensorUid(3))),
                        Operation::Pointwise(Pointwise::binary(mode, TensorUid(3), b, c)),
                    ];
                }
                let tensors = vec![
                    lay(tensor(0, float, &image)),
                    lay(tensor(1, float, &other)),
                    lay(tensor(2, float, &image)),
                    lay(tensor(3, float, &image)).intermediate(),
                ];
                push(format!("pointwise_{name}_{channels}_{extent}_{layout}"), None, graph(tensors, nodes));
            }
        }
    }
    for (name, dims, nodes) in [
        ("tanh_197x1536", [1, 1, 197, 1536], vec![unary(PointwiseMode::TanhFwd, 0, 1)]),
        ("exp_197x1536", [1, 1, 197, 1536], vec![unary(PointwiseMode::Exp, 0, 1)]),
        ("sigmoid_197x1536", [1, 1, 197, 1536], vec![unary(PointwiseMode::SigmoidFwd, 0, 1)]),
        ("gelu_197x1536", [1, 1, 197, 1536], vec![unary(PointwiseMode::GeluFwd, 0, 1)]),
        (
            "silu_512x2048",
            [1, 1, 512, 2048],
            vec![unary(PointwiseMode::SigmoidFwd, 0, 2), binary(PointwiseMode::Mul, 0, 2, 1)],
        ),
        (
            "add_relu_512x2048",
            [1, 1, 512, 2048],
            vec![binary(PointwiseMode::Add, 0, 6, 2), unary(PointwiseMode::ReluFwd, 2, 1)],
        ),
        ("bias_512x2048", [1, 1, 512, 2048], vec![binary(PointwiseMode::Add, 0, 7, 1)]),
        (
            "gelu_197x1536_spelled_out",
            [1, 1, 197, 1536],
            vec![
                binary(PointwiseMode::Div, 0, 8, 2),
                unary(PointwiseMode::Erf, 2, 3),
                binary(PointwiseMode::Add, 3, 9, 4),
                binary(PointwiseMode::Mul, 0, 4, 5),
                binary(PointwiseMode::Mul, 5, 10, 1),
            ],
        ),
    ] {
        let read: Vec<i64> = nodes.iter().flat_map(|node| node.inputs()).map(|uid| uid.0).collect();
        let written = nodes.iter().flat_map(|node| node.outputs()).map(|uid| uid.0);
        let uids: std::collections::BTreeSet<i64> = written.chain(read).collect();
        let tensors = uids.into_iter().map(|uid| match uid {
            0 | 1 | 6 => tensor(uid, float, &dims),
            7 => tensor(uid, float, &[1, 1, 1, dims[3]]),
            8.. => tensor(uid, float, &[1; 4])
                .with_value(TensorValue::Float32([std::f32::consts::SQRT_2, 1.0, 0.5][uid as usize - 8])),
            _ => tensor(uid, float, &dims).intermediate(),
        });
        push(format!("pointwise_{name}"), None, graph(tensors.collect(), nodes));
    }
    for (rows, width) in [(128, 768), (197, 384), (512, 1024)] {
        let (all, row, epsilon) =
            ([rows, width], [1, width], tensor(9, float, &[1]).with_value(TensorValue::Float32(1e-5)));
        let tensors = |count: i64| -> Vec<TensorDef> {
            let of = |uid| tensor(uid, float, if uid < 2 { &all } else { &row });
            (0..count).map(of).chain([epsilon.clone()]).collect()
        };
        let [x, y, scale, bias, epsilon] = [0, 1, 2, 3, 9].map(TensorUid);
        let layer = Layernorm {
            x,
            scale,
            bias,
            epsilon,
            y,
            normalized_dim_count: 1,
            mean: None,
            inv_variance: None,
            forward_phase: NormFwdPhase::Inference,
        };
        push(format!("layernorm_{rows}x{width}"), None, graph(tensors(4), vec![Operation::Layernorm(layer)]));
        let forward_phase = NormFwdPhase::Inference;
        let rms = RmsNorm { x, scale, epsilon, y, bias: None, inv_rms: None, forward_phase };
        push(format!("rmsnorm_{rows}x{width}"), None, graph(tensors(3), vec![Operation::RmsNorm(rms)]));
    }
    for (channels, extent) in [(64, 112), (256, 28), (1024, 14)] {
        let (image, channel) = ([1, channels, extent, extent], [1, channels, 1, 1]);
        let [x, y, scale, bias, mean, variance, epsilon] = [0, 1, 2, 3, 4, 5, 9].map(TensorUid);
        let mut tensors: Vec<TensorDef> =
            (0..6).map(|uid| tensor(uid, float, if uid < 2 { &image } else { &channel })).collect();
        tensors.push(tensor(9, float, &[1]).with_value(TensorValue::Float32(1e-5)));
        let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, epsilon, y };
        let nodes = vec![Operation::BatchnormInferenceVarianceExt(node)];
        push(format!("batchnorm_{channels}x{extent}"), None, graph(tensors, nodes));
        push(format!("instance_{channels}x{extent}"), None, instance(&image));
    }
    for (what, mode) in [("add", ReductionMode::Add), ("max", ReductionMode::Max)] {
        for (which, dims, out) in [
            ("rows", [1, 1, 512, 1024], [1, 1, 512, 1]),
            ("columns", [1, 1, 512, 1024], [1, 1, 1, 1024]),
            ("planes", [1, 64, 112, 112], [1, 64, 1, 1]),
            ("channels", [1, 256, 28, 28], [1, 1, 28, 28]),
            ("places", [1, 1, 128, 768], [1, 1, 1, 768]),
        ] {
            let tensors = vec![tensor(0, float, &dims), tensor(1, float, &out)];
            push(format!("reduction_{what}_by_{which}"), None, graph(tensors, vec![reduce(mode, 0, 1)]));
        }
    }
    for fuse in [true, false] {
        let name = |what: &str| format!("{what}{}", if fuse { "_fused" } else { "" });
        let virtual_ = |uid, data_type| tensor(uid, data_type, &image).intermediate();
        let nodes = || {
            vec![
                Operation::Pointwise(Pointwise::binary(PointwiseMode::Mul, a, b, TensorUid(3))),
                Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, TensorUid(3), c, TensorUid(4))),
                Operation::Pointwise(Pointwise::unary(PointwiseMode::SwishFwd, TensorUid(4), TensorUid(5))),
            ]
        };
        for (what, data_type) in [("chain", float), ("chain_half", half)] {
            let tensors = vec![
                tensor(0, data_type, &image),
                tensor(1, data_type, &[1, 64, 1, 1]),
                tensor(2, data_type, &image),
                virtual_(3, data_type),
                virtual_(4, data_type),
                tensor(5, data_type, &image),
            ];
            cases.push(Case { name: name(what), graph: graph(tensors, nodes()), products: None, fuse });
        }
        for (what, dims, axis) in [
            ("softmax_40x6625", [1, 1, 40, 6625], 3),
            ("softmax_12x128x128", [1, 12, 128, 128], 3),
            ("softmax_channels_21x128x128", [1, 21, 128, 128], 1),
            ("softmax_1000x10", [1, 1, 1000, 10], 3),
            ("softmax_1000x20", [1, 1, 1000, 20], 3),
            ("softmax_6x197x197", [1, 6, 197, 197], 3),
            ("softmax_16x512x512", [1, 16, 512, 512], 3),
            ("softmax_4x100000", [1, 1, 4, 100_000], 3),
        ] {
            cases.push(Case { name: name(what), graph: softmax(&dims, axis), products: None, fuse });
        }
        for (what, dims) in [("norm_128x768", [1, 1, 128, 768]), ("norm_40x120", [1, 1, 40, 120])] {
            cases.push(Case { name: name(what), graph: normalization(&dims), products: None, fuse });
        }
    }
    cases
}

/// Tensors of these extents, and from 10 on of their sums along an axis; all but 0 and 1 are virtual.
fn rows(dims: &[i64], axis: usize, sums: usize) -> Vec<TensorDef> {
    let mut short = dims.to_vec();
    short[axis] = 1;
    let full = (0..6).map(|uid| tensor(uid, DataType::Float, dims));
    let all = full.chain((10..10 + sums as i64).map(|uid| tensor(uid, DataType::Float, &short)));
    all.map(|tensor| if tensor.uid.0 < 2 { tensor } else { tensor.intermediate() }).collect()
}

fn binary(mode: PointwiseMode, a: i64, b: i64, y: i64) -> Operation {
    Operation::Pointwise(Pointwise::binary(mode, TensorUid(a), TensorUid(b), TensorUid(y)))
}

fn unary(mode: PointwiseMode, x: i64, y: i64) -> Operation {
    Operation::Pointwise(Pointwise::unary(mode, TensorUid(x), TensorUid(y)))
}

fn reduce(mode: ReductionMode, x: i64, y: i64) -> Operation {
    Operation::Reduction(Reduction { mode, input: TensorUid(x), output: TensorUid(y), is_deterministic: true })
}

/// Softmax along an axis, spelled out.
fn softmax(dims: &[i64], axis: usize) -> Graph {
    let nodes = vec![
        reduce(ReductionMode::Max, 0, 10),
        binary(PointwiseMode::Sub, 0, 10, 2),
        unary(PointwiseMode::Exp, 2, 3),
        reduce(ReductionMode::Add, 3, 11),
        binary(PointwiseMode::Div, 3, 11, 1),
    ];
    let tensors = rows(dims, axis, 2).into_iter().filter(|tensor| ![4, 5].contains(&tensor.uid.0));
    graph(tensors.collect(), nodes)
}

/// Normalization of rows without scale and bias, spelled out.
fn normalization(dims: &[i64]) -> Graph {
    let nodes = vec![
        reduce(ReductionMode::Average, 0, 10),
        binary(PointwiseMode::Sub, 0, 10, 2),
        binary(PointwiseMode::Mul, 2, 2, 3),
        reduce(ReductionMode::Average, 3, 11),
        unary(PointwiseMode::Rsqrt, 11, 12),
        binary(PointwiseMode::Mul, 2, 12, 1),
    ];
    let tensors = rows(dims, 3, 3).into_iter().filter(|tensor| ![4, 5].contains(&tensor.uid.0));
    graph(tensors.collect(), nodes)
}

/// Normalization of each channel of an image, with scale and bias, as the execution provider spells it out.
fn instance(image: &[i64; 4]) -> Graph {
    let channel = [image[0], image[1], 1, 1];
    let nodes = vec![
        reduce(ReductionMode::Average, 0, 10),
        binary(PointwiseMode::Sub, 0, 10, 2),
        binary(PointwiseMode::Mul, 2, 2, 3),
        reduce(ReductionMode::Average, 3, 11),
        binary(PointwiseMode::Add, 11, 20, 12),
        unary(PointwiseMode::Rsqrt, 12, 13),
        binary(PointwiseMode::Mul, 2, 13, 4),
        binary(PointwiseMode::Mul, 4, 21, 5),
        binary(PointwiseMode::Add, 5, 22, 1),
    ];
    let of_image = (0..6).map(|uid| tensor(uid, DataType::Float, image));
    let of_image = of_image.map(|tensor| if tensor.uid.0 < 2 { tensor } else { tensor.intermediate() });
    let of_channel = (10..14).map(|uid| tensor(uid, DataType::Float, &channel).intermediate());
    let parameters = (21..23).map(|uid| tensor(uid, DataType::Float, &[1, image[1], 1, 1]));
    let epsilon = tensor(20, DataType::Float, &[1; 4]).with_value(TensorValue::Float32(1e-5));
    graph(of_image.chain(of_channel).chain(parameters).chain([epsilon]).collect(), nodes)
}

/// Memory of every caller's tensor, filled with small numbers. Those of `f32` and `f16` differ, since the time of a variance depends on
/// whether there is one.
fn memory(graph: &Graph) -> Vec<(i64, Vec<u64>)> {
    let given = graph.tensors().iter().filter(|t| !t.is_virtual() && t.value().is_none());
    given
        .map(|tensor| {
            // Every type reads the first of these words as small numbers or zeros; the second are bits of the fractions.
            let (word, fractions) = match tensor.data_type() {
                DataType::Half => (0x3800_3400_3800_3400, 0x03ff_03ff_03ff_03ff),
                DataType::Float => (0x3f00_0000_3f00_0000, 0x007f_ffff_007f_ffff),
                _ => (0x3f00_0000_3f00_0000, 0),
            };
            let mut random = fastrand::Rng::with_seed(tensor.uid().0 as u64);
            let words = (0..tensor.span_bytes().div_ceil(8)).map(|_| word | random.u64(..) & fractions);
            (tensor.uid().0, words.collect())
        })
        .collect()
}

fn time(case: &Case, threads: i64, fastest: bool) -> Duration {
    let knob = |id: &str, value: i64| (id.to_string(), KnobValue::Int(value));
    let config = EngineConfig {
        knobs: vec![knob("hipdnn_rs.cpu.threads", threads), knob("hipdnn_rs.cpu.fuse", i64::from(case.fuse))],
        ..EngineConfig::default()
    };
    let applicable = CPU_ENGINE
        .applicable(&Arc::new(case.graph.clone()), Site::UNSPECIFIED)
        .unwrap_or_else(|reason| panic!("{}: {reason}", case.name));
    let plan = applicable.plan(&config).expect("the plan is made");
    let mut workspace = vec![0u64; plan.workspace_bytes().div_ceil(8)];
    let memory = memory(&case.graph);
    let pack: Vec<DeviceBuffer> =
        memory.iter().map(|(uid, bytes)| DeviceBuffer { uid: *uid, ptr: bytes.as_ptr().cast_mut().cast() }).collect();
    let mut run = || {
        let start = Instant::now();
        // SAFETY: every tensor has its memory, and the workspace what the plan asks for.
        let result = unsafe { plan.execute(std::ptr::null_mut(), workspace.as_mut_ptr().cast(), black_box(&pack)) };
        result.expect("the plan runs");
        start.elapsed()
    };
    run();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (begin.elapsed() < Duration::from_millis(300) && times.len() < 1000) {
        times.push(run());
    }
    times.sort_unstable();
    if fastest { times[0] } else { times[times.len() / 2] }
}

fn main() {
    let (mut threads, mut fastest, mut filter) = (vec![1], false, String::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bench" => {}
            "--fastest" => fastest = true,
            "--threads" => {
                let list = args.next().expect("--threads: expected numbers");
                threads = list.split(',').map(|n| n.parse().expect("--threads: expected numbers")).collect();
            }
            other => filter = other.to_string(),
        }
    }
    for case in cases().iter().filter(|case| case.name.contains(&filter)) {
        for threads in &threads {
            let seconds = time(case, *threads, fastest).as_secs_f64();
            let given = case.graph.tensors().iter().filter(|t| !t.is_virtual());
            let bytes: usize =
                given.map(|tensor| tensor.elements() * tensor.data_type().bits().unwrap_or(0) as usize / 8).sum();
            let rate = match case.products {
                Some(products) => format!("{:8.2} G products/s", products / seconds / 1e9),
                None => format!("{:8.2} GB/s", bytes as f64 / seconds / 1e9),
            };
            println!("{:32} {threads} threads {:10.1} µs {rate}", case.name, seconds * 1e6);
        }
    }
}
