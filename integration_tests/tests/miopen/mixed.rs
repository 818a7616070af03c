//! Graphs of convolutions with normalizations, pooling, reductions and what lies between them.

use hipdnn_conformance::cases::{Layout, Net};
use hipdnn_schemas::{
    Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, Convolution, ConvolutionBwd,
    ConvolutionFwd, ConvolutionWrw, DataType, Layernorm, NormFwdPhase, Operation, PaddingMode, Pointwise,
    PointwiseMode, Reduction, ReductionMode, ResampleBwd, ResampleFwd, ResampleMode, TensorUid,
};

use crate::case::Case;
use crate::graph_case::GraphCase;
use crate::table::TYPES;

/// Extents of the convolution's operands and of its result.
const X: [i64; 4] = [2, 4, 6, 7];
const W: [i64; 4] = [5, 4, 3, 3];
const Y: [i64; 4] = [2, 5, 6, 7];
const CHANNELS: [i64; 4] = [1, 5, 1, 1];
const POOLED: [i64; 4] = [2, 5, 3, 3];

/// A graph to be, its types and layout.
struct Draft {
    net: Net,
    data_type: DataType,
    layout: Layout,
    /// True if a convolution is computed; else its result is given.
    convolves: bool,
}

/// A graph by its name.
struct Recipe {
    name: &'static str,
    /// Gives an output that may be in the memory of an input, and the input, if there are such.
    build: fn(&mut Draft) -> Option<[TensorUid; 2]>,
}

const RECIPES: [Recipe; 11] = [
    Recipe { name: "convolution, batch norm of inference, residual in place, relu", build: inference },
    Recipe { name: "convolution, batch norm with variance and a run-time epsilon, swish", build: variance },
    Recipe { name: "convolution, batch norm of training with run-time scalars, relu", build: training },
    Recipe { name: "relu's gradient, batch norm's, convolution's both", build: gradients },
    Recipe { name: "convolution, relu, maxima with places", build: maxima },
    Recipe { name: "gradient of maxima, then of the convolution", build: maxima_gradient },
    Recipe { name: "convolution, mean of windows, tanh", build: means },
    Recipe { name: "convolution, layer norm of training, gelu, residual in place", build: layer_norm },
    Recipe { name: "convolution, bias, softmax over channels", build: softmax },
    Recipe { name: "convolution, relu, mean of images and norm of channels", build: reductions },
    Recipe { name: "batch norm, relu, convolution", build: before },
];

/// All graphs in all types and in both layouts.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for recipe in &RECIPES {
        for data_type in TYPES {
            for layout in [Layout::First, Layout::Last] {
                all.push(recipe.case(data_type, layout, true));
            }
        }
    }
    all
}

/// Each graph once, with memory of its own for each tensor: they are executed again without new inputs.
pub(crate) fn sample() -> Vec<Case> {
    let layouts = [Layout::First, Layout::Last];
    let at = |(at, recipe): (usize, &Recipe)| recipe.case(TYPES[at % 3], layouts[at % 2], false);
    RECIPES.iter().enumerate().map(at).collect()
}

/// The graph whose name begins so.
pub(crate) fn named(name: &str, data_type: DataType) -> Case {
    let found = RECIPES.iter().find(|recipe| recipe.name.starts_with(name));
    found.unwrap_or_else(|| panic!("no graph is called {name}")).case(data_type, Layout::First, false)
}

/// Nodes behind the convolution in the graph whose name begins so: the convolution's result is an input.
pub(crate) fn behind(name: &str, data_type: DataType) -> Case {
    let recipe =
        RECIPES.iter().find(|recipe| recipe.name.strip_prefix("convolution, ").is_some_and(|n| n.starts_with(name)));
    let recipe = recipe.unwrap_or_else(|| panic!("nothing behind a convolution is called {name}"));
    let mut draft = Draft { net: Net::new(DataType::Float), data_type, layout: Layout::First, convolves: false };
    (recipe.build)(&mut draft);
    GraphCase::new(format!("{name}, {data_type}"), draft.net).into()
}

impl Recipe {
    fn case(&self, data_type: DataType, layout: Layout, in_place: bool) -> Case {
        let mut draft = Draft { net: Net::new(DataType::Float), data_type, layout, convolves: true };
        let shared = (self.build)(&mut draft).filter(|_| in_place);
        let name = format!("{}, {data_type} {}", self.name, layout.name());
        let case = GraphCase::new(name, draft.net);
        match shared {
            Some([output, input]) => case.with_output_in(output, input),
            None => case,
        }
        .into()
    }
}

impl Draft {
    /// A tensor of the caller's in the graph's type and layout.
    fn real(&mut self, name: &str, dims: &[i64]) -> TensorUid {
        self.net.real(name, self.data_type, dims, self.layout)
    }

    /// One float a channel.
    fn channels(&mut self, name: &str) -> TensorUid {
        self.net.real(name, DataType::Float, &CHANNELS, Layout::First)
    }

    fn between(&mut self, dims: &[i64]) -> TensorUid {
        self.net.intermediate("", DataType::Float, dims, self.layout)
    }

    fn unary(&mut self, mode: PointwiseMode, from: TensorUid, to: TensorUid) {
        self.net.node(Operation::Pointwise(Pointwise::unary(mode, from, to)));
    }

    fn binary(&mut self, mode: PointwiseMode, a: TensorUid, b: TensorUid, to: TensorUid) {
        self.net.node(Operation::Pointwise(Pointwise::binary(mode, a, b, to)));
    }

    /// A convolution's result, which stays between nodes.
    fn convolution(&mut self) -> TensorUid {
        if !self.convolves {
            return self.real("c", &Y);
        }
        let (x, w) = (self.real("x", &X), self.real("w", &W));
        let y = self.between(&Y);
        self.net.node(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution: padded() }));
        y
    }

    fn reduction(&mut self, mode: ReductionMode, input: TensorUid, output: TensorUid) {
        self.net.node(Operation::Reduction(Reduction { mode, input, output, is_deterministic: false }));
    }

    fn pooling(&mut self, resample_mode: ResampleMode, x: TensorUid, y: TensorUid, index: Option<TensorUid>) {
        self.net.node(Operation::ResampleFwd(ResampleFwd {
            x,
            y,
            index,
            pre_padding: vec![1, 0],
            post_padding: vec![0, 0],
            stride: vec![2, 2],
            window: vec![3, 3],
            resample_mode,
            padding_mode: PaddingMode::NegInf,
            generate_index: Some(index.is_some()),
        }));
    }
}

fn padded() -> Convolution {
    Convolution { pre_padding: vec![1, 1], post_padding: vec![1, 1], ..Convolution::new(2) }
}

fn inference(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let x = draft.convolution();
    let [mean, inv_variance, scale, bias] = ["mean", "inv_variance", "scale", "bias"].map(|name| draft.channels(name));
    let (y, sum) = (draft.between(&Y), draft.between(&Y));
    draft.net.node(Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y }));
    let (residual, result) = (draft.real("residual", &Y), draft.real("result", &Y));
    draft.binary(PointwiseMode::Add, y, residual, sum);
    draft.unary(PointwiseMode::ReluFwd, sum, result);
    Some([result, residual])
}

fn variance(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let x = draft.convolution();
    let [mean, variance, scale, bias] = ["mean", "variance", "scale", "bias"].map(|name| draft.channels(name));
    let epsilon = draft.net.runtime_scalar("epsilon", DataType::Float);
    let y = draft.between(&Y);
    let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, y, epsilon };
    draft.net.node(Operation::BatchnormInferenceVarianceExt(node));
    let result = draft.real("result", &Y);
    draft.unary(PointwiseMode::SwishFwd, y, result);
    None
}

fn training(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let x = draft.convolution();
    let [epsilon, momentum] = ["epsilon", "momentum"].map(|name| draft.net.runtime_scalar(name, DataType::Float));
    let [scale, bias, old_mean, old_variance, mean, inv_variance, new_mean, new_variance] =
        ["scale", "bias", "old mean", "old variance", "mean", "inv_variance", "new mean", "new variance"]
            .map(|name| draft.channels(name));
    let y = draft.between(&Y);
    draft.net.node(Operation::Batchnorm(Batchnorm {
        x,
        scale,
        bias,
        epsilon,
        peer_stats: Vec::new(),
        prev_running_mean: Some(old_mean),
        prev_running_variance: Some(old_variance),
        momentum: Some(momentum),
        y,
        mean: Some(mean),
        inv_variance: Some(inv_variance),
        next_running_mean: Some(new_mean),
        next_running_variance: Some(new_variance),
    }));
    let result = draft.real("result", &Y);
    draft.unary(PointwiseMode::ReluFwd, y, result);
    None
}

fn gradients(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let (x, w) = (draft.real("x", &X), draft.real("w", &W));
    let (c, y, dz) = (draft.real("c", &Y), draft.real("y", &Y), draft.real("dz", &Y));
    let [mean, inv_variance, scale, dscale, dbias] =
        ["mean", "inv_variance", "scale", "dscale", "dbias"].map(|name| draft.channels(name));
    let dy = draft.between(&Y);
    draft.binary(PointwiseMode::ReluBwd, y, dz, dy);
    // What both gradients read has the operands' type, as a client that trains in it stores it.
    let dc = draft.net.intermediate("dc", draft.data_type, &Y, draft.layout);
    draft.net.node(Operation::BatchnormBackward(BatchnormBackward {
        dy,
        x: c,
        mean: Some(mean),
        inv_variance: Some(inv_variance),
        scale,
        peer_stats: Vec::new(),
        dx: dc,
        dscale,
        dbias,
    }));
    let (dx, dw) = (draft.real("dx", &X), draft.real("dw", &W));
    draft.net.node(Operation::ConvolutionBwd(ConvolutionBwd { dy: dc, w, dx, convolution: padded() }));
    draft.net.node(Operation::ConvolutionWrw(ConvolutionWrw { x, dy: dc, dw, convolution: padded() }));
    None
}

fn maxima(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let c = draft.convolution();
    // Stored, so that every engine takes the maxima of the same numbers.
    let r = draft.real("r", &Y);
    draft.unary(PointwiseMode::ReluFwd, c, r);
    let y = draft.real("result", &POOLED);
    let index = draft.net.real("index", DataType::Int32, &POOLED, draft.layout);
    draft.pooling(ResampleMode::MaxPool, r, y, Some(index));
    None
}

fn maxima_gradient(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let (dy, w) = (draft.real("dy", &POOLED), draft.real("w", &W));
    let index = draft.net.real("index", DataType::Int32, &POOLED, draft.layout);
    let dc = draft.net.intermediate("dc", draft.data_type, &Y, draft.layout);
    draft.net.node(Operation::ResampleBwd(ResampleBwd {
        dy,
        dx: dc,
        index: Some(index),
        pre_padding: vec![1, 0],
        post_padding: vec![0, 0],
        stride: vec![2, 2],
        window: vec![3, 3],
        resample_mode: ResampleMode::MaxPool,
        padding_mode: PaddingMode::NegInf,
    }));
    let dx = draft.real("dx", &X);
    draft.net.node(Operation::ConvolutionBwd(ConvolutionBwd { dy: dc, w, dx, convolution: padded() }));
    None
}

fn means(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let c = draft.convolution();
    let (pooled, y) = (draft.between(&POOLED), draft.real("result", &POOLED));
    draft.pooling(ResampleMode::AvgPoolExcludePadding, c, pooled, None);
    draft.unary(PointwiseMode::TanhFwd, pooled, y);
    None
}

fn layer_norm(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let x = draft.convolution();
    let along = [1, 5, 6, 7];
    let epsilon = draft.net.runtime_scalar("epsilon", DataType::Float);
    let [scale, bias] = ["scale", "bias"].map(|name| draft.net.real(name, DataType::Float, &along, draft.layout));
    let [mean, inv_variance] =
        ["mean", "inv_variance"].map(|name| draft.net.real(name, DataType::Float, &[2, 1, 1, 1], Layout::First));
    let (y, g) = (draft.between(&Y), draft.between(&Y));
    draft.net.node(Operation::Layernorm(Layernorm {
        x,
        scale,
        bias,
        epsilon,
        y,
        normalized_dim_count: 3,
        mean: Some(mean),
        inv_variance: Some(inv_variance),
        forward_phase: NormFwdPhase::Training,
    }));
    let (residual, result) = (draft.real("residual", &Y), draft.real("result", &Y));
    draft.unary(PointwiseMode::GeluFwd, y, g);
    draft.binary(PointwiseMode::Add, g, residual, result);
    Some([result, residual])
}

fn softmax(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let each = [2, 1, 6, 7];
    let c = draft.convolution();
    let bias = draft.channels("bias");
    let (logits, shifted, powers) = (draft.between(&Y), draft.between(&Y), draft.between(&Y));
    let (largest, sum) = (draft.between(&each), draft.between(&each));
    let y = draft.real("result", &Y);
    draft.binary(PointwiseMode::Add, c, bias, logits);
    draft.reduction(ReductionMode::Max, logits, largest);
    draft.binary(PointwiseMode::Sub, logits, largest, shifted);
    draft.unary(PointwiseMode::Exp, shifted, powers);
    draft.reduction(ReductionMode::Add, powers, sum);
    draft.binary(PointwiseMode::Div, powers, sum, y);
    None
}

fn reductions(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let c = draft.convolution();
    let r = draft.between(&Y);
    draft.unary(PointwiseMode::ReluFwd, c, r);
    let (means, norms) = (draft.real("means", &[2, 5, 1, 1]), draft.real("norms", &[2, 1, 6, 7]));
    draft.reduction(ReductionMode::Average, r, means);
    draft.reduction(ReductionMode::Norm2, r, norms);
    None
}

fn before(draft: &mut Draft) -> Option<[TensorUid; 2]> {
    let channels = [1, 4, 1, 1];
    let (x, w) = (draft.real("x", &X), draft.real("w", &W));
    let [mean, inv_variance, scale, bias] = ["mean", "inv_variance", "scale", "bias"]
        .map(|name| draft.net.real(name, DataType::Float, &channels, Layout::First));
    let n = draft.between(&X);
    draft.net.node(Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y: n }));
    let r = draft.net.intermediate("r", draft.data_type, &X, draft.layout);
    draft.unary(PointwiseMode::ReluFwd, n, r);
    let y = draft.real("result", &Y);
    draft.net.node(Operation::ConvolutionFwd(ConvolutionFwd { x: r, w, y, convolution: padded() }));
    None
}
