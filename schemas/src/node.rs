//! Nodes of a graph: one operation each, its operands named by tensor uid.

use crate::{
    AttentionImplementation, ConvMode, DataType, DiagonalAlignment, MoeGroupedMatmulMode, NormFwdPhase, PaddingMode,
    PointwiseMode, ReductionMode, ResampleMode, TensorUid,
};

/// One step of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name for messages only; may be empty.
    pub name: String,
    /// The type that the operation computes in; [`DataType::Unset`] takes the graph's default.
    pub compute_data_type: DataType,
    /// Operation with its operands and attributes.
    pub operation: Operation,
}

/// Geometry of a convolution; one entry per spatial dimension in each list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Rows of padding before the image.
    pub pre_padding: Vec<i64>,
    /// Rows of padding after the image.
    pub post_padding: Vec<i64>,
    /// Steps of the window; at least 1.
    pub stride: Vec<i64>,
    /// Distance between the taps of the filter; at least 1.
    pub dilation: Vec<i64>,
    /// Convolution or cross-correlation.
    pub mode: ConvMode,
}

impl Convolution {
    /// A cross-correlation with stride and dilation 1 and no padding over `spatial` dimensions.
    pub fn new(spatial: usize) -> Convolution {
        Convolution {
            pre_padding: vec![0; spatial],
            post_padding: vec![0; spatial],
            stride: vec![1; spatial],
            dilation: vec![1; spatial],
            mode: ConvMode::CrossCorrelation,
        }
    }

    /// The output extent along spatial dimension `axis` for an input and a filter extent:
    /// `floor((in + pre + post - (dilation * (filter - 1) + 1)) / stride) + 1`; `None` if the window does not fit.
    pub fn output_extent(&self, axis: usize, input: i64, filter: i64) -> Option<i64> {
        let window = self.dilation[axis].checked_mul(filter - 1)?.checked_add(1)?;
        let room =
            input.checked_add(self.pre_padding[axis])?.checked_add(self.post_padding[axis])?.checked_sub(window)?;
        (room >= 0).then(|| room / self.stride[axis] + 1)
    }
}

/// `y = conv(x, w)`: x is [N, C, ...], w is [K, C/groups, ...], y is [N, K, ...].
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct ConvolutionFwd {
    pub x: TensorUid,
    pub w: TensorUid,
    pub y: TensorUid,
    pub convolution: Convolution,
}

/// Gradient of a convolution with respect to its input; the geometry is the forward one's.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct ConvolutionBwd {
    pub dy: TensorUid,
    pub w: TensorUid,
    pub dx: TensorUid,
    pub convolution: Convolution,
}

/// Gradient of a convolution with respect to its weights; the geometry is the forward one's.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct ConvolutionWrw {
    pub x: TensorUid,
    pub dy: TensorUid,
    pub dw: TensorUid,
    pub convolution: Convolution,
}

/// An element-wise operation. Extents of 1 broadcast; so does an operand of one element, whatever its rank.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Pointwise {
    pub mode: PointwiseMode,
    pub in_0: TensorUid,
    pub in_1: Option<TensorUid>,
    pub in_2: Option<TensorUid>,
    pub out_0: TensorUid,
    pub relu_lower_clip: Option<f32>,
    pub relu_upper_clip: Option<f32>,
    pub relu_lower_clip_slope: Option<f32>,
    pub axis: Option<i64>,
    pub swish_beta: Option<f32>,
    pub elu_alpha: Option<f32>,
    pub softplus_beta: Option<f32>,
}

/// `c = a · b` over the last two dimensions.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Matmul {
    pub a: TensorUid,
    pub b: TensorUid,
    pub c: TensorUid,
}

/// Batch normalization with given mean and inverse variance.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct BatchnormInference {
    pub x: TensorUid,
    pub mean: TensorUid,
    pub inv_variance: TensorUid,
    pub scale: TensorUid,
    pub bias: TensorUid,
    pub y: TensorUid,
}

/// Batch normalization with given mean and variance.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct BatchnormInferenceVarianceExt {
    pub x: TensorUid,
    pub mean: TensorUid,
    pub variance: TensorUid,
    pub scale: TensorUid,
    pub bias: TensorUid,
    pub y: TensorUid,
    pub epsilon: TensorUid,
}

/// Gradients of batch normalization.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct BatchnormBackward {
    pub dy: TensorUid,
    pub x: TensorUid,
    pub mean: Option<TensorUid>,
    pub inv_variance: Option<TensorUid>,
    pub scale: TensorUid,
    pub peer_stats: Vec<TensorUid>,
    pub dx: TensorUid,
    pub dscale: TensorUid,
    pub dbias: TensorUid,
}

/// Batch normalization that computes its statistics (training).
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Batchnorm {
    pub x: TensorUid,
    pub scale: TensorUid,
    pub bias: TensorUid,
    pub epsilon: TensorUid,
    pub peer_stats: Vec<TensorUid>,
    pub prev_running_mean: Option<TensorUid>,
    pub prev_running_variance: Option<TensorUid>,
    pub momentum: Option<TensorUid>,
    pub y: TensorUid,
    pub mean: Option<TensorUid>,
    pub inv_variance: Option<TensorUid>,
    pub next_running_mean: Option<TensorUid>,
    pub next_running_variance: Option<TensorUid>,
}

impl Batchnorm {
    /// A training step with nothing optional.
    pub fn new(x: TensorUid, scale: TensorUid, bias: TensorUid, epsilon: TensorUid, y: TensorUid) -> Batchnorm {
        Batchnorm {
            x,
            scale,
            bias,
            epsilon,
            peer_stats: Vec::new(),
            prev_running_mean: None,
            prev_running_variance: None,
            momentum: None,
            y,
            mean: None,
            inv_variance: None,
            next_running_mean: None,
            next_running_variance: None,
        }
    }
}

/// Layer normalization over the last `normalized_dim_count` dimensions.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Layernorm {
    pub x: TensorUid,
    pub scale: TensorUid,
    pub bias: TensorUid,
    pub epsilon: TensorUid,
    pub y: TensorUid,
    pub normalized_dim_count: i64,
    pub mean: Option<TensorUid>,
    pub inv_variance: Option<TensorUid>,
    pub forward_phase: NormFwdPhase,
}

/// Gradients of layer normalization.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct LayernormBackward {
    pub dy: TensorUid,
    pub x: TensorUid,
    pub scale: TensorUid,
    pub mean: Option<TensorUid>,
    pub inv_variance: Option<TensorUid>,
    pub epsilon: Option<TensorUid>,
    pub dx: TensorUid,
    pub dscale: TensorUid,
    pub dbias: Option<TensorUid>,
    pub normalized_dim_count: i64,
}

/// Normalization by the root mean square.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct RmsNorm {
    pub x: TensorUid,
    pub scale: TensorUid,
    pub epsilon: TensorUid,
    pub y: TensorUid,
    pub bias: Option<TensorUid>,
    pub inv_rms: Option<TensorUid>,
    pub forward_phase: NormFwdPhase,
}

/// Gradients of normalization by the root mean square.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct RmsNormBackward {
    pub dy: TensorUid,
    pub x: TensorUid,
    pub scale: TensorUid,
    pub inv_rms: TensorUid,
    pub dx: TensorUid,
    pub dscale: TensorUid,
    pub dbias: Option<TensorUid>,
}

/// Reduction along the dimensions where `output` has extent 1 and `input` has not.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Reduction {
    pub mode: ReductionMode,
    pub input: TensorUid,
    pub output: TensorUid,
    pub is_deterministic: bool,
}

/// Pooling.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct ResampleFwd {
    pub x: TensorUid,
    pub y: TensorUid,
    pub index: Option<TensorUid>,
    pub pre_padding: Vec<i64>,
    pub post_padding: Vec<i64>,
    pub stride: Vec<i64>,
    pub window: Vec<i64>,
    pub resample_mode: ResampleMode,
    pub padding_mode: PaddingMode,
    pub generate_index: Option<bool>,
}

/// Gradient of pooling.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct ResampleBwd {
    pub dy: TensorUid,
    pub dx: TensorUid,
    pub index: Option<TensorUid>,
    pub pre_padding: Vec<i64>,
    pub post_padding: Vec<i64>,
    pub stride: Vec<i64>,
    pub window: Vec<i64>,
    pub resample_mode: ResampleMode,
    pub padding_mode: PaddingMode,
}

/// Block-scale dequantization: multiplies blocks of `x` by their scales.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct BlockScaleDequantize {
    pub x: TensorUid,
    pub scale: TensorUid,
    pub y: TensorUid,
    pub block_size: Vec<i32>,
    pub is_negative_scale: bool,
}

/// Block-scale quantization: divides blocks of `x` by scales that it computes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct BlockScaleQuantize {
    pub x: TensorUid,
    pub y: TensorUid,
    pub scale: TensorUid,
    pub block_size: i32,
    pub axis: Option<i64>,
    pub transpose: bool,
}

/// Scaled dot-product attention.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct Sdpa {
    pub q: TensorUid,
    pub k: TensorUid,
    pub v: TensorUid,
    pub o: TensorUid,
    pub attn_mask: Option<TensorUid>,
    pub scale: Option<TensorUid>,
    pub seq_len_q: Option<TensorUid>,
    pub seq_len_kv: Option<TensorUid>,
    pub seed: Option<TensorUid>,
    pub offset: Option<TensorUid>,
    pub dropout_mask: Option<TensorUid>,
    pub dropout_scale: Option<TensorUid>,
    pub page_table_k: Option<TensorUid>,
    pub page_table_v: Option<TensorUid>,
    pub block_mask: Option<TensorUid>,
    pub sink_token: Option<TensorUid>,
    pub descale_q: Option<TensorUid>,
    pub descale_k: Option<TensorUid>,
    pub descale_v: Option<TensorUid>,
    pub descale_s: Option<TensorUid>,
    pub scale_s: Option<TensorUid>,
    pub scale_o: Option<TensorUid>,
    pub stats: Option<TensorUid>,
    pub max: Option<TensorUid>,
    pub sum_exp: Option<TensorUid>,
    pub rng_dump: Option<TensorUid>,
    pub amax_s: Option<TensorUid>,
    pub amax_o: Option<TensorUid>,
    pub generate_stats: Option<bool>,
    pub alibi_mask: bool,
    pub padding_mask: bool,
    pub causal_mask: bool,
    pub causal_mask_bottom_right: bool,
    pub dropout_probability: Option<f32>,
    pub attn_scale_value: Option<f32>,
    pub left_bound: Option<i64>,
    pub right_bound: Option<i64>,
    pub max_seq_len_kv: Option<i32>,
    pub diagonal_alignment: DiagonalAlignment,
    pub mma_core_mode: DataType,
    pub implementation: AttentionImplementation,
}

impl Sdpa {
    /// Attention with nothing optional.
    pub fn new(q: TensorUid, k: TensorUid, v: TensorUid, o: TensorUid) -> Sdpa {
        Sdpa {
            q,
            k,
            v,
            o,
            attn_mask: None,
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
            sink_token: None,
            descale_q: None,
            descale_k: None,
            descale_v: None,
            descale_s: None,
            scale_s: None,
            scale_o: None,
            stats: None,
            max: None,
            sum_exp: None,
            rng_dump: None,
            amax_s: None,
            amax_o: None,
            generate_stats: None,
            alibi_mask: false,
            padding_mask: false,
            causal_mask: false,
            causal_mask_bottom_right: false,
            dropout_probability: None,
            attn_scale_value: None,
            left_bound: None,
            right_bound: None,
            max_seq_len_kv: None,
            diagonal_alignment: DiagonalAlignment::TopLeft,
            mma_core_mode: DataType::Unset,
            implementation: AttentionImplementation::Auto,
        }
    }
}

/// Gradients of scaled dot-product attention. `d_o` is the wire's `do`.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct SdpaBackward {
    pub q: TensorUid,
    pub k: TensorUid,
    pub v: TensorUid,
    pub o: TensorUid,
    pub d_o: TensorUid,
    pub stats: TensorUid,
    pub dq: TensorUid,
    pub dk: TensorUid,
    pub dv: TensorUid,
    pub scale: Option<TensorUid>,
    pub attn_mask: Option<TensorUid>,
    pub seq_len_q: Option<TensorUid>,
    pub seq_len_kv: Option<TensorUid>,
    pub seed: Option<TensorUid>,
    pub offset: Option<TensorUid>,
    pub dropout_mask: Option<TensorUid>,
    pub dropout_scale: Option<TensorUid>,
    pub dropout_scale_inv: Option<TensorUid>,
    pub dbias: Option<TensorUid>,
    pub alibi_mask: bool,
    pub padding_mask: bool,
    pub causal_mask: bool,
    pub causal_mask_bottom_right: bool,
    pub dropout_probability: Option<f32>,
    pub attn_scale_value: Option<f32>,
    pub left_bound: Option<i64>,
    pub right_bound: Option<i64>,
    pub diagonal_alignment: DiagonalAlignment,
}

impl SdpaBackward {
    /// Gradients `[dq, dk, dv]` of attention, from `[q, k, v, o, d_o, stats]` and nothing optional.
    pub fn new([q, k, v, o, d_o, stats]: [TensorUid; 6], [dq, dk, dv]: [TensorUid; 3]) -> SdpaBackward {
        SdpaBackward {
            q,
            k,
            v,
            o,
            d_o,
            stats,
            dq,
            dk,
            dv,
            scale: None,
            attn_mask: None,
            seq_len_q: None,
            seq_len_kv: None,
            seed: None,
            offset: None,
            dropout_mask: None,
            dropout_scale: None,
            dropout_scale_inv: None,
            dbias: None,
            alibi_mask: false,
            padding_mask: false,
            causal_mask: false,
            causal_mask_bottom_right: false,
            dropout_probability: None,
            attn_scale_value: None,
            left_bound: None,
            right_bound: None,
            diagonal_alignment: DiagonalAlignment::TopLeft,
        }
    }
}

/// Custom operation of the plugin named in its id.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct CustomOp {
    pub custom_op_id: String,
    pub inputs: Vec<TensorUid>,
    pub outputs: Vec<TensorUid>,
    pub data: Vec<u8>,
}

/// Matmul of tokens grouped by expert.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct MoeGroupedMatmul {
    pub token: TensorUid,
    pub weight: TensorUid,
    pub first_token_offset: TensorUid,
    pub token_index: Option<TensorUid>,
    pub token_ks: Option<TensorUid>,
    pub output: TensorUid,
    pub mode: MoeGroupedMatmulMode,
    pub top_k: i32,
}

/// Weight gradient of a matmul of tokens grouped by expert.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub struct MoeGroupedMatmulBwd {
    pub doutput: TensorUid,
    pub token: TensorUid,
    pub first_token_offset: TensorUid,
    pub dweight: TensorUid,
}

/// Operation of a node, with its operands and attributes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "documented at the structs")]
pub enum Operation {
    ConvolutionFwd(ConvolutionFwd),
    ConvolutionBwd(ConvolutionBwd),
    ConvolutionWrw(ConvolutionWrw),
    Pointwise(Pointwise),
    Matmul(Matmul),
    BatchnormInference(BatchnormInference),
    BatchnormInferenceVarianceExt(BatchnormInferenceVarianceExt),
    BatchnormBackward(BatchnormBackward),
    Batchnorm(Batchnorm),
    Layernorm(Layernorm),
    LayernormBackward(LayernormBackward),
    RmsNorm(RmsNorm),
    RmsNormBackward(RmsNormBackward),
    Reduction(Reduction),
    ResampleFwd(ResampleFwd),
    ResampleBwd(ResampleBwd),
    BlockScaleDequantize(BlockScaleDequantize),
    BlockScaleQuantize(BlockScaleQuantize),
    Sdpa(Box<Sdpa>),
    SdpaBackward(Box<SdpaBackward>),
    CustomOp(CustomOp),
    MoeGroupedMatmul(MoeGroupedMatmul),
    MoeGroupedMatmulBwd(MoeGroupedMatmulBwd),
}
