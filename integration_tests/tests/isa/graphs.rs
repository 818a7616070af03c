//! The graphs whose kernels are in the table: one of each family, at the sizes of networks.

use hipdnn_conformance::cases::{Layout, Net};
use hipdnn_schemas::DataType::{BFloat16, Float, Half};
use hipdnn_schemas::{
    Batchnorm, BatchnormInference, DataType, GraphDef, Layernorm, NormFwdPhase, Operation, PaddingMode, Pointwise,
    PointwiseMode, Reduction, ReductionMode, ResampleFwd, ResampleMode, RmsNorm, TensorUid,
};

/// A graph by its name in the table.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) graph: GraphDef,
}

/// Activations of an early layer of a network of images: N×C×H×W.
const IMAGES: [i64; 4] = [32, 64, 56, 56];

/// Activations of a layer in its middle.
const SMALL_IMAGES: [i64; 4] = [32, 256, 28, 28];

/// Rows of a transformer's activations.
const ROWS: [i64; 2] = [8192, 4096];

/// All graphs, in the table's order.
pub(crate) fn all() -> Vec<Named> {
    use Layout::{First, Last, Reversed};
    vec![
        chain("relu_f16", Half, &[PointwiseMode::ReluFwd]),
        chain("relu_f32", Float, &[PointwiseMode::ReluFwd]),
        add_relu("add_relu_bf16"),
        bias("bias_gelu_nchw_f16", PointwiseMode::GeluFwd, &IMAGES, First),
        bias("bias_gelu_nhwc_f16", PointwiseMode::GeluFwd, &IMAGES, Last),
        bias("bias_gelu_tanh_rows_f16", PointwiseMode::GeluApproxTanhFwd, &ROWS, First),
        convolution_epilogue("conv_epilogue_nchw_f16", First),
        convolution_epilogue("conv_epilogue_nhwc_f16", Last),
        copy("cast_f32_f16", &IMAGES, Float, First, Half, First),
        copy("copy_nchw_to_nhwc_f16", &IMAGES, Half, First, Half, Last),
        copy("copy_nhwc_to_nchw_f16", &IMAGES, Half, Last, Half, First),
        copy("copy_nchw_to_nhwc_f32", &IMAGES, Float, First, Float, Last),
        copy("transpose_8192_f16", &[8192, 8192], Half, First, Half, Reversed),
        layernorm("layernorm_f16_8192x4096", 4096, Half, NormFwdPhase::Training),
        layernorm("layernorm_f16_8192x768", 768, Half, NormFwdPhase::Training),
        layernorm("layernorm_inference_f16_8192x768", 768, Half, NormFwdPhase::Inference),
        layernorm("layernorm_f32_8192x4096", 4096, Float, NormFwdPhase::Training),
        rms_norm("rmsnorm_bf16_8192x4096"),
        batch_norm("bn_training_nchw_f16", &SMALL_IMAGES, First),
        batch_norm("bn_training_nhwc_f16", &SMALL_IMAGES, Last),
        batch_norm("bn_training_nchw_large_f16", &[64, 64, 112, 112], First),
        batch_norm_inference("bn_inference_nchw_f16", First),
        batch_norm_inference("bn_inference_nhwc_f16", Last),
        softmax("softmax_f16_8192x1024", 8192, 1024),
        softmax("softmax_f16_8192x128000", 8192, 128_000),
        softmax("softmax_f16_16x128000", 16, 128_000),
        sum("sum_rows_f16", ReductionMode::Add, &ROWS, Half, First, &[8192, 1], Half),
        sum("sum_columns_f16", ReductionMode::Add, &ROWS, Half, First, &[1, 4096], Half),
        sum("sum_all_f16", ReductionMode::Add, &ROWS, Half, First, &[1, 1], Half),
        sum("sum_all_f32", ReductionMode::Add, &ROWS, Float, First, &[1, 1], Float),
        sum("max_rows_f16", ReductionMode::Max, &ROWS, Half, First, &[8192, 1], Half),
        sum("bias_gradient_nchw_f16", ReductionMode::Add, &SMALL_IMAGES, Half, First, &[1, 256, 1, 1], Float),
        sum("bias_gradient_nhwc_f16", ReductionMode::Add, &SMALL_IMAGES, Half, Last, &[1, 256, 1, 1], Float),
        variance("variance_f16_8192x4096"),
        max_pool("max_pool_nchw_f16", First),
        max_pool("max_pool_nhwc_f16", Last),
        sum("global_average_nchw_f16", ReductionMode::Average, &[32, 2048, 7, 7], Half, First, &[32, 2048, 1, 1], Half),
        sum("global_average_nhwc_f16", ReductionMode::Average, &[32, 2048, 7, 7], Half, Last, &[32, 2048, 1, 1], Half),
    ]
}

fn named(name: &'static str, net: Net) -> Named {
    let mut graph = net.def;
    graph.name = name.to_owned();
    Named { name, graph }
}

/// Element-wise functions, one after the other.
fn chain(name: &'static str, data_type: DataType, modes: &[PointwiseMode]) -> Named {
    let mut net = Net::new(Float);
    let mut from = net.real("x", data_type, &IMAGES, Layout::First);
    for (place, mode) in modes.iter().enumerate() {
        let to = match place + 1 == modes.len() {
            true => net.real("y", data_type, &IMAGES, Layout::First),
            false => net.intermediate("t", Float, &IMAGES, Layout::First),
        };
        net.node(Operation::Pointwise(Pointwise::unary(*mode, from, to)));
        from = to;
    }
    named(name, net)
}

fn add_relu(name: &'static str) -> Named {
    let mut net = Net::new(Float);
    let [a, b] = ["a", "b"].map(|name| net.real(name, BFloat16, &IMAGES, Layout::First));
    let sum = net.intermediate("sum", Float, &IMAGES, Layout::First);
    let y = net.real("y", BFloat16, &IMAGES, Layout::First);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, a, b, sum)));
    net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, sum, y)));
    named(name, net)
}

/// One value for each place of dimension 1.
fn channels(dims: &[i64]) -> Vec<i64> {
    dims.iter().enumerate().map(|(axis, extent)| if axis == 1 { *extent } else { 1 }).collect()
}

/// A bias, then an activation.
fn bias(name: &'static str, mode: PointwiseMode, dims: &[i64], layout: Layout) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", Half, dims, layout);
    let b = net.real("bias", Half, &channels(dims), Layout::First);
    let sum = net.intermediate("sum", Float, dims, layout);
    let y = net.real("y", Half, dims, layout);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, x, b, sum)));
    net.node(Operation::Pointwise(Pointwise::unary(mode, sum, y)));
    named(name, net)
}

/// `relu(x · scale[c] + shift[c] + residual)`.
fn convolution_epilogue(name: &'static str, layout: Layout) -> Named {
    let mut net = Net::new(Float);
    let [x, residual] = ["x", "residual"].map(|name| net.real(name, Half, &IMAGES, layout));
    let [scale, shift] = ["scale", "shift"].map(|name| net.real(name, Float, &channels(&IMAGES), Layout::First));
    let [scaled, shifted, sum] =
        ["scaled", "shifted", "sum"].map(|name| net.intermediate(name, Float, &IMAGES, layout));
    let y = net.real("y", Half, &IMAGES, layout);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Mul, x, scale, scaled)));
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, scaled, shift, shifted)));
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Add, shifted, residual, sum)));
    net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, sum, y)));
    named(name, net)
}

fn copy(name: &'static str, dims: &[i64], from: DataType, of: Layout, to: DataType, into: Layout) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", from, dims, of);
    let y = net.real("y", to, dims, into);
    net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, x, y)));
    named(name, net)
}

fn layernorm(name: &'static str, columns: i64, data_type: DataType, phase: NormFwdPhase) -> Named {
    let mut net = Net::new(Float);
    let dims = [8192, columns];
    let parameters = if phase == NormFwdPhase::Training { Float } else { data_type };
    let x = net.real("x", data_type, &dims, Layout::First);
    let [scale, bias] = ["scale", "bias"].map(|name| net.real(name, parameters, &[1, columns], Layout::First));
    let epsilon = net.scalar("epsilon", Float, 1e-5);
    let y = net.real("y", data_type, &dims, Layout::First);
    let statistics = (phase == NormFwdPhase::Training)
        .then(|| ["mean", "inv_variance"].map(|name| net.real(name, Float, &[8192, 1], Layout::First)));
    net.node(Operation::Layernorm(Layernorm {
        x,
        scale,
        bias,
        epsilon,
        y,
        normalized_dim_count: 1,
        mean: statistics.map(|[mean, _]| mean),
        inv_variance: statistics.map(|[_, inv_variance]| inv_variance),
        forward_phase: phase,
    }));
    named(name, net)
}

fn rms_norm(name: &'static str) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", BFloat16, &ROWS, Layout::First);
    let scale = net.real("scale", BFloat16, &[1, ROWS[1]], Layout::First);
    let epsilon = net.scalar("epsilon", Float, 1e-5);
    let y = net.real("y", BFloat16, &ROWS, Layout::First);
    let forward_phase = NormFwdPhase::Inference;
    net.node(Operation::RmsNorm(RmsNorm { x, scale, epsilon, y, bias: None, inv_rms: None, forward_phase }));
    named(name, net)
}

fn batch_norm(name: &'static str, dims: &[i64], layout: Layout) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", Half, dims, layout);
    let [scale, bias, mean, inv_variance] =
        ["scale", "bias", "mean", "inv_variance"].map(|name| net.real(name, Float, &channels(dims), Layout::First));
    let epsilon = net.scalar("epsilon", Float, 1e-5);
    let y = net.real("y", Half, dims, layout);
    let statistics =
        Batchnorm { mean: Some(mean), inv_variance: Some(inv_variance), ..Batchnorm::new(x, scale, bias, epsilon, y) };
    net.node(Operation::Batchnorm(statistics));
    named(name, net)
}

fn batch_norm_inference(name: &'static str, layout: Layout) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", Half, &IMAGES, layout);
    let [mean, inv_variance, scale, bias] =
        ["mean", "inv_variance", "scale", "bias"].map(|name| net.real(name, Float, &channels(&IMAGES), Layout::First));
    let y = net.real("y", Half, &IMAGES, layout);
    net.node(Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y }));
    named(name, net)
}

fn reduce(net: &mut Net, mode: ReductionMode, input: TensorUid, output: TensorUid) {
    net.node(Operation::Reduction(Reduction { mode, input, output, is_deterministic: false }));
}

/// A softmax along rows, spelled out.
fn softmax(name: &'static str, rows: i64, columns: i64) -> Named {
    let mut net = Net::new(Float);
    let dims = [rows, columns];
    let x = net.real("x", Half, &dims, Layout::First);
    let [max, sum] = ["max", "sum"].map(|name| net.intermediate(name, Float, &[rows, 1], Layout::First));
    let [shifted, exponentials] = ["shifted", "exp"].map(|name| net.intermediate(name, Float, &dims, Layout::First));
    let y = net.real("y", Half, &dims, Layout::First);
    reduce(&mut net, ReductionMode::Max, x, max);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Sub, x, max, shifted)));
    net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::Exp, shifted, exponentials)));
    reduce(&mut net, ReductionMode::Add, exponentials, sum);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Div, exponentials, sum, y)));
    named(name, net)
}

/// A reduction over the dimensions where `to` has extent 1.
fn sum(
    name: &'static str,
    mode: ReductionMode,
    dims: &[i64],
    data_type: DataType,
    layout: Layout,
    to: &[i64],
    result: DataType,
) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", data_type, dims, layout);
    let y = net.real("y", result, to, Layout::First);
    reduce(&mut net, mode, x, y);
    named(name, net)
}

/// The variance along rows, spelled out.
fn variance(name: &'static str) -> Named {
    let mut net = Net::new(Float);
    let groups = [ROWS[0], 1];
    let x = net.real("x", Half, &ROWS, Layout::First);
    let mean = net.intermediate("mean", Float, &groups, Layout::First);
    let [centered, squared] = ["centered", "squared"].map(|name| net.intermediate(name, Float, &ROWS, Layout::First));
    let y = net.real("variance", Float, &groups, Layout::First);
    reduce(&mut net, ReductionMode::Average, x, mean);
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Sub, x, mean, centered)));
    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::Mul, centered, centered, squared)));
    reduce(&mut net, ReductionMode::Average, squared, y);
    named(name, net)
}

/// The pooling behind a stem: windows of 3×3, steps of 2, one place of padding.
fn max_pool(name: &'static str, layout: Layout) -> Named {
    let mut net = Net::new(Float);
    let x = net.real("x", Half, &[32, 64, 112, 112], layout);
    let y = net.real("y", Half, &IMAGES, layout);
    net.node(Operation::ResampleFwd(ResampleFwd {
        x,
        y,
        index: None,
        pre_padding: vec![1, 1],
        post_padding: vec![1, 1],
        stride: vec![2, 2],
        window: vec![3, 3],
        resample_mode: ResampleMode::MaxPool,
        padding_mode: PaddingMode::NegInf,
        generate_index: Some(false),
    }));
    named(name, net)
}
