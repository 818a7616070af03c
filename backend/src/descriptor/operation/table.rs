//! The table of operation descriptors: the attribute of each field of each operation.
//!
//! An attribute whose field is optional in the wire format may be left out, and one with `or` has that value then. What
//! hipDNN's descriptors want to be set before finalizing is required here too.

use hipdnn_schemas as wire;
use hipdnn_schemas::{
    AttentionImplementation, ConvMode, DataType, DiagonalAlignment, MoeGroupedMatmulMode, NormFwdPhase, PaddingMode,
    PointwiseMode, ReductionMode, ResampleMode, TensorUid,
};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, DescriptorType, OperationType};

use super::{Field, Kind, Tensors, Values};
use crate::descriptor::required;
use crate::error::Result;

pub(super) struct Attribute {
    pub(super) name: AttributeName,
    pub(super) kind: Kind,
    pub(super) required: bool,
}

/// One kind of operation.
pub(super) struct Table {
    pub(super) descriptor: DescriptorType,
    pub(super) operation: OperationType,
    /// The compute type's attribute.
    pub(super) compute: Attribute,
    attributes: &'static [Attribute],
    pub(super) lower: fn(&Values) -> Result<wire::Operation>,
    /// `None` if the operation is another one.
    pub(super) raise: fn(&wire::Operation, &Tensors, &mut Values) -> Option<Result<()>>,
}

impl Table {
    /// All attributes, the compute type's included.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().chain([&self.compute])
    }
}

fn lower<T: Field>(values: &Values, name: AttributeName) -> Result<T> {
    required(T::lower(values.get(&name)), name)
}

fn raise<T: Field + Clone>(field: &T, name: AttributeName, tensors: &Tensors, values: &mut Values) -> Result<()> {
    if let Some(value) = field.clone().raise(tensors)? {
        values.insert(name, value);
    }
    Ok(())
}

macro_rules! attribute {
    ($type:ty, $name:ident) => {
        Attribute { name: AttributeName::$name, kind: <$type as Field>::KIND, required: <$type as Field>::REQUIRED }
    };
    ($type:ty, $name:ident, $default:expr) => {
        Attribute { name: AttributeName::$name, kind: <$type as Field>::KIND, required: false }
    };
}

macro_rules! lowered {
    ($type:ty, $values:ident, $name:ident) => {
        lower::<$type>($values, AttributeName::$name)?
    };
    ($type:ty, $values:ident, $name:ident, $default:expr) => {
        lower::<Option<$type>>($values, AttributeName::$name)?.unwrap_or($default)
    };
}

macro_rules! operations {
    ($($variant:ident: $descriptor:ident, $operation:ident, compute $compute:ident $($presence:ident)? {
        $($field:ident: $type:ty = $name:ident $(or $default:expr)?,)*
        $([$nested:ident: $Nested:ident] { $($member:ident: $mtype:ty = $mname:ident,)* })?
    })*) => {
        pub(super) static TABLES: &[Table] = &[$(Table {
            descriptor: DescriptorType::$descriptor,
            operation: OperationType::$operation,
            compute: Attribute {
                name: AttributeName::$compute,
                kind: <DataType as Field>::KIND,
                required: !stringify!($($presence)?).is_empty(),
            },
            attributes: &[
                $(attribute!($type, $name $(, $default)?),)*
                $($(attribute!($mtype, $mname),)*)?
            ],
            lower: |values| Ok(wire::Operation::$variant(wire::$variant {
                $($field: lowered!($type, values, $name $(, $default)?),)*
                $($nested: wire::$Nested { $($member: lowered!($mtype, values, $mname),)* },)?
            }.into())),
            raise: |operation, tensors, values| {
                let wire::Operation::$variant(operation) = operation else { return None };
                let mut all = || -> Result<()> {
                    $(raise::<$type>(&operation.$field, AttributeName::$name, tensors, values)?;)*
                    $($(raise::<$mtype>(&operation.$nested.$member, AttributeName::$mname, tensors, values)?;)*)?
                    Ok(())
                };
                Some(all())
            },
        }),*];
    };
}

operations! {
    ConvolutionFwd: OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CONVOLUTION_FORWARD_EXT,
    compute CONVOLUTION_COMP_TYPE required {
        x: TensorUid = OPERATION_CONVOLUTION_FORWARD_X,
        w: TensorUid = OPERATION_CONVOLUTION_FORWARD_W,
        y: TensorUid = OPERATION_CONVOLUTION_FORWARD_Y,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    ConvolutionBwd: OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CONVOLUTION_BACKWARD_DATA_EXT,
    compute CONVOLUTION_COMP_TYPE required {
        dy: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_DY,
        w: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_W,
        dx: TensorUid = OPERATION_CONVOLUTION_BWD_DATA_DX,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    ConvolutionWrw: OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CONVOLUTION_BACKWARD_WEIGHTS_EXT,
    compute CONVOLUTION_COMP_TYPE required {
        x: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_X,
        dy: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_DY,
        dw: TensorUid = OPERATION_CONVOLUTION_BWD_FILTER_DW,
        [convolution: Convolution] {
            pre_padding: Vec<i64> = CONVOLUTION_PRE_PADDINGS,
            post_padding: Vec<i64> = CONVOLUTION_POST_PADDINGS,
            stride: Vec<i64> = CONVOLUTION_FILTER_STRIDES,
            dilation: Vec<i64> = CONVOLUTION_DILATIONS,
            mode: ConvMode = CONVOLUTION_CONV_MODE,
        }
    }
    Pointwise: OPERATION_POINTWISE_DESCRIPTOR, POINTWISE_EXT,
    compute POINTWISE_MATH_PREC {
        mode: PointwiseMode = POINTWISE_MODE,
        in_0: TensorUid = OPERATION_POINTWISE_IN_0_EXT,
        in_1: Option<TensorUid> = OPERATION_POINTWISE_IN_1_EXT,
        in_2: Option<TensorUid> = OPERATION_POINTWISE_IN_2_EXT,
        out_0: TensorUid = OPERATION_POINTWISE_OUT_0_EXT,
        relu_lower_clip: Option<f32> = POINTWISE_RELU_LOWER_CLIP,
        relu_upper_clip: Option<f32> = POINTWISE_RELU_UPPER_CLIP,
        relu_lower_clip_slope: Option<f32> = POINTWISE_RELU_LOWER_CLIP_SLOPE,
        axis: Option<i64> = POINTWISE_AXIS,
        swish_beta: Option<f32> = POINTWISE_SWISH_BETA,
        elu_alpha: Option<f32> = POINTWISE_ELU_ALPHA,
        softplus_beta: Option<f32> = POINTWISE_SOFTPLUS_BETA,
    }
    Matmul: OPERATION_MATMUL_DESCRIPTOR, MATMUL_EXT, compute MATMUL_COMP_TYPE {
        a: TensorUid = OPERATION_MATMUL_ADESC,
        b: TensorUid = OPERATION_MATMUL_BDESC,
        c: TensorUid = OPERATION_MATMUL_CDESC,
    }
    BatchnormInference: OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT, BATCHNORM_INFERENCE_EXT,
    compute BATCHNORM_INF_COMP_TYPE_EXT {
        x: TensorUid = OPERATION_BATCHNORM_INFERENCE_X_EXT,
        mean: TensorUid = OPERATION_BATCHNORM_INFERENCE_MEAN_EXT,
        inv_variance: TensorUid = OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_INFERENCE_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_INFERENCE_BIAS_EXT,
        y: TensorUid = OPERATION_BATCHNORM_INFERENCE_Y_EXT,
    }
    BatchnormInferenceVarianceExt: OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT, BATCHNORM_INFERENCE_VARIANCE_EXT,
    compute BATCHNORM_INF_VAR_COMP_TYPE_EXT {
        x: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT,
        mean: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT,
        variance: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT,
        y: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT,
        epsilon: TensorUid = OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT,
    }
    BatchnormBackward: OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT, BATCHNORM_BACKWARD_EXT,
    compute BATCHNORM_BACKWARD_COMP_TYPE_EXT {
        dy: TensorUid = OPERATION_BATCHNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_BATCHNORM_BACKWARD_X_EXT,
        mean: Option<TensorUid> = OPERATION_BATCHNORM_BACKWARD_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_BACKWARD_SCALE_EXT,
        peer_stats: Vec<TensorUid> = OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT,
        dx: TensorUid = OPERATION_BATCHNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT,
        dbias: TensorUid = OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT,
    }
    Batchnorm: OPERATION_BATCHNORM_DESCRIPTOR_EXT, BATCHNORM_EXT,
    compute BATCHNORM_COMP_TYPE_EXT {
        x: TensorUid = OPERATION_BATCHNORM_X_EXT,
        scale: TensorUid = OPERATION_BATCHNORM_SCALE_EXT,
        bias: TensorUid = OPERATION_BATCHNORM_BIAS_EXT,
        epsilon: TensorUid = OPERATION_BATCHNORM_EPSILON_EXT,
        peer_stats: Vec<TensorUid> = OPERATION_BATCHNORM_PEER_STATS_EXT,
        prev_running_mean: Option<TensorUid> = OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT,
        prev_running_variance: Option<TensorUid> = OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT,
        momentum: Option<TensorUid> = OPERATION_BATCHNORM_MOMENTUM_EXT,
        y: TensorUid = OPERATION_BATCHNORM_Y_EXT,
        mean: Option<TensorUid> = OPERATION_BATCHNORM_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_BATCHNORM_INV_VARIANCE_EXT,
        next_running_mean: Option<TensorUid> = OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT,
        next_running_variance: Option<TensorUid> = OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT,
    }
    RmsNormBackward: OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT, RMSNORM_BACKWARD_EXT,
    compute RMSNORM_BACKWARD_COMP_TYPE_EXT {
        dy: TensorUid = OPERATION_RMSNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_RMSNORM_BACKWARD_X_EXT,
        scale: TensorUid = OPERATION_RMSNORM_BACKWARD_SCALE_EXT,
        inv_rms: TensorUid = OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT,
        dx: TensorUid = OPERATION_RMSNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_RMSNORM_BACKWARD_DSCALE_EXT,
        dbias: Option<TensorUid> = OPERATION_RMSNORM_BACKWARD_DBIAS_EXT,
    }
    LayernormBackward: OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT, LAYERNORM_BACKWARD_EXT,
    compute LAYERNORM_BACKWARD_COMP_TYPE_EXT {
        dy: TensorUid = OPERATION_LAYERNORM_BACKWARD_DY_EXT,
        x: TensorUid = OPERATION_LAYERNORM_BACKWARD_X_EXT,
        scale: TensorUid = OPERATION_LAYERNORM_BACKWARD_SCALE_EXT,
        mean: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT,
        epsilon: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT,
        dx: TensorUid = OPERATION_LAYERNORM_BACKWARD_DX_EXT,
        dscale: TensorUid = OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT,
        dbias: Option<TensorUid> = OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT,
        normalized_dim_count: i64 = LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT,
    }
    Layernorm: OPERATION_LAYERNORM_DESCRIPTOR_EXT, LAYERNORM_EXT, compute LAYERNORM_COMP_TYPE_EXT required {
        x: TensorUid = OPERATION_LAYERNORM_X_EXT,
        scale: TensorUid = OPERATION_LAYERNORM_SCALE_EXT,
        bias: TensorUid = OPERATION_LAYERNORM_BIAS_EXT,
        epsilon: TensorUid = OPERATION_LAYERNORM_EPSILON_EXT,
        y: TensorUid = OPERATION_LAYERNORM_Y_EXT,
        mean: Option<TensorUid> = OPERATION_LAYERNORM_MEAN_EXT,
        inv_variance: Option<TensorUid> = OPERATION_LAYERNORM_INV_VARIANCE_EXT,
        forward_phase: NormFwdPhase = OPERATION_LAYERNORM_FWD_PHASE_EXT,
        normalized_dim_count: i64 = OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT or 0,
    }
    RmsNorm: OPERATION_RMSNORM_DESCRIPTOR_EXT, RMSNORM_EXT, compute RMSNORM_COMP_TYPE_EXT required {
        x: TensorUid = OPERATION_RMSNORM_X_EXT,
        scale: TensorUid = OPERATION_RMSNORM_SCALE_EXT,
        epsilon: TensorUid = OPERATION_RMSNORM_EPSILON_EXT,
        y: TensorUid = OPERATION_RMSNORM_Y_EXT,
        bias: Option<TensorUid> = OPERATION_RMSNORM_BIAS_EXT,
        inv_rms: Option<TensorUid> = OPERATION_RMSNORM_INV_RMS_EXT,
        forward_phase: NormFwdPhase = OPERATION_RMSNORM_FWD_PHASE_EXT,
    }
    Reduction: OPERATION_REDUCTION_DESCRIPTOR, REDUCTION_EXT, compute REDUCTION_COMP_TYPE required {
        input: TensorUid = OPERATION_REDUCTION_XDESC,
        output: TensorUid = OPERATION_REDUCTION_YDESC,
        mode: ReductionMode = REDUCTION_OPERATOR,
        is_deterministic: bool = REDUCTION_IS_DETERMINISTIC or false,
    }
    ResampleFwd: OPERATION_RESAMPLE_FWD_DESCRIPTOR, RESAMPLE_FWD, compute RESAMPLE_COMP_TYPE required {
        x: TensorUid = OPERATION_RESAMPLE_FWD_XDESC,
        y: TensorUid = OPERATION_RESAMPLE_FWD_YDESC,
        index: Option<TensorUid> = OPERATION_RESAMPLE_FWD_IDXDESC,
        pre_padding: Vec<i64> = RESAMPLE_PRE_PADDINGS,
        post_padding: Vec<i64> = RESAMPLE_POST_PADDINGS,
        stride: Vec<i64> = RESAMPLE_STRIDES,
        window: Vec<i64> = RESAMPLE_WINDOW_DIMS,
        resample_mode: ResampleMode = RESAMPLE_MODE,
        padding_mode: PaddingMode = RESAMPLE_PADDING_MODE,
        generate_index: Option<bool> = RESAMPLE_GENERATE_INDEX_EXT,
    }
    ResampleBwd: OPERATION_RESAMPLE_BWD_DESCRIPTOR, RESAMPLE_BWD_EXT, compute RESAMPLE_COMP_TYPE required {
        dy: TensorUid = OPERATION_RESAMPLE_BWD_DYDESC,
        dx: TensorUid = OPERATION_RESAMPLE_BWD_DXDESC,
        index: Option<TensorUid> = OPERATION_RESAMPLE_BWD_IDXDESC,
        pre_padding: Vec<i64> = RESAMPLE_PRE_PADDINGS,
        post_padding: Vec<i64> = RESAMPLE_POST_PADDINGS,
        stride: Vec<i64> = RESAMPLE_STRIDES,
        window: Vec<i64> = RESAMPLE_WINDOW_DIMS,
        resample_mode: ResampleMode = RESAMPLE_MODE,
        padding_mode: PaddingMode = RESAMPLE_PADDING_MODE,
    }
    BlockScaleQuantize: OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR, BLOCK_SCALE_QUANTIZE_EXT,
    compute OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC required {
        x: TensorUid = OPERATION_BLOCK_SCALE_QUANTIZE_XDESC,
        y: TensorUid = OPERATION_BLOCK_SCALE_QUANTIZE_YDESC,
        scale: TensorUid = OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC,
        block_size: i32 = OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE,
        axis: Option<i64> = OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT,
        transpose: bool = OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT or false,
    }
    BlockScaleDequantize: OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR, BLOCK_SCALE_DEQUANTIZE_EXT,
    compute OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC required {
        x: TensorUid = OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC,
        scale: TensorUid = OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC,
        y: TensorUid = OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC,
        block_size: Vec<i32> = OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE,
        is_negative_scale: bool = OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE or false,
    }
    Sdpa: OPERATION_SDPA_FWD_DESCRIPTOR, SDPA_FORWARD_EXT, compute SDPA_FWD_COMP_TYPE_EXT required {
        q: TensorUid = OPERATION_SDPA_FWD_QDESC,
        k: TensorUid = OPERATION_SDPA_FWD_KDESC,
        v: TensorUid = OPERATION_SDPA_FWD_VDESC,
        o: TensorUid = OPERATION_SDPA_FWD_ODESC,
        attn_mask: Option<TensorUid> = OPERATION_SDPA_FWD_ATTN_MASK_EXT,
        scale: Option<TensorUid> = OPERATION_SDPA_FWD_SCALEDESC,
        seq_len_q: Option<TensorUid> = OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
        seq_len_kv: Option<TensorUid> = OPERATION_SDPA_FWD_SEQ_LEN_KVDESC,
        seed: Option<TensorUid> = OPERATION_SDPA_FWD_SEED_EXT,
        offset: Option<TensorUid> = OPERATION_SDPA_FWD_OFFSET_EXT,
        dropout_mask: Option<TensorUid> = OPERATION_SDPA_FWD_DROPOUT_MASK_EXT,
        dropout_scale: Option<TensorUid> = OPERATION_SDPA_FWD_DROPOUT_SCALE_EXT,
        page_table_k: Option<TensorUid> = OPERATION_SDPA_FWD_PAGE_TABLE_KDESC,
        page_table_v: Option<TensorUid> = OPERATION_SDPA_FWD_PAGE_TABLE_VDESC,
        block_mask: Option<TensorUid> = OPERATION_SDPA_FWD_BLOCK_MASK_DESC,
        sink_token: Option<TensorUid> = OPERATION_SDPA_FWD_SINK_TOKEN_EXT,
        descale_q: Option<TensorUid> = OPERATION_SDPA_FWD_DESCALE_Q_EXT,
        descale_k: Option<TensorUid> = OPERATION_SDPA_FWD_DESCALE_K_EXT,
        descale_v: Option<TensorUid> = OPERATION_SDPA_FWD_DESCALE_V_EXT,
        descale_s: Option<TensorUid> = OPERATION_SDPA_FWD_DESCALE_S_EXT,
        scale_s: Option<TensorUid> = OPERATION_SDPA_FWD_SCALE_S_EXT,
        scale_o: Option<TensorUid> = OPERATION_SDPA_FWD_SCALE_O_EXT,
        stats: Option<TensorUid> = OPERATION_SDPA_FWD_STATSDESC,
        max: Option<TensorUid> = OPERATION_SDPA_FWD_MAX_EXT,
        sum_exp: Option<TensorUid> = OPERATION_SDPA_FWD_SUM_EXP_EXT,
        rng_dump: Option<TensorUid> = OPERATION_SDPA_FWD_RNG_DUMP_EXT,
        amax_s: Option<TensorUid> = OPERATION_SDPA_FWD_AMAX_S_EXT,
        amax_o: Option<TensorUid> = OPERATION_SDPA_FWD_AMAX_O_EXT,
        generate_stats: Option<bool> = SDPA_FWD_GENERATE_STATS_EXT,
        alibi_mask: bool = SDPA_FWD_ALIBI_MASK_EXT or false,
        padding_mask: bool = SDPA_FWD_PADDING_MASK_EXT or false,
        causal_mask: bool = SDPA_FWD_CAUSAL_MASK_EXT or false,
        causal_mask_bottom_right: bool = SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT or false,
        dropout_probability: Option<f32> = SDPA_FWD_DROPOUT_PROBABILITY_EXT,
        attn_scale_value: Option<f32> = SDPA_FWD_ATTN_SCALE_VALUE_EXT,
        left_bound: Option<i64> = SDPA_FWD_LEFT_BOUND_EXT,
        right_bound: Option<i64> = SDPA_FWD_RIGHT_BOUND_EXT,
        max_seq_len_kv: Option<i32> = SDPA_FWD_MAX_SEQ_LEN_KV_EXT,
        diagonal_alignment: DiagonalAlignment = SDPA_FWD_DIAGONAL_ALIGNMENT_EXT or DiagonalAlignment::TopLeft,
        mma_core_mode: DataType = SDPA_FWD_MMA_CORE_MODE_EXT or DataType::Unset,
        implementation: AttentionImplementation = SDPA_FWD_IMPLEMENTATION_EXT or AttentionImplementation::Auto,
    }
    SdpaBackward: OPERATION_SDPA_BWD_DESCRIPTOR_EXT, SDPA_BACKWARD_EXT, compute SDPA_BWD_COMP_TYPE_EXT required {
        q: TensorUid = OPERATION_SDPA_BWD_Q_EXT,
        k: TensorUid = OPERATION_SDPA_BWD_K_EXT,
        v: TensorUid = OPERATION_SDPA_BWD_V_EXT,
        o: TensorUid = OPERATION_SDPA_BWD_O_EXT,
        d_o: TensorUid = OPERATION_SDPA_BWD_DO_EXT,
        stats: TensorUid = OPERATION_SDPA_BWD_STATS_EXT,
        dq: TensorUid = OPERATION_SDPA_BWD_DQ_EXT,
        dk: TensorUid = OPERATION_SDPA_BWD_DK_EXT,
        dv: TensorUid = OPERATION_SDPA_BWD_DV_EXT,
        scale: Option<TensorUid> = OPERATION_SDPA_BWD_SCALE_EXT,
        attn_mask: Option<TensorUid> = OPERATION_SDPA_BWD_ATTN_MASK_EXT,
        seq_len_q: Option<TensorUid> = OPERATION_SDPA_BWD_SEQ_LEN_Q_EXT,
        seq_len_kv: Option<TensorUid> = OPERATION_SDPA_BWD_SEQ_LEN_KV_EXT,
        seed: Option<TensorUid> = OPERATION_SDPA_BWD_SEED_EXT,
        offset: Option<TensorUid> = OPERATION_SDPA_BWD_OFFSET_EXT,
        dropout_mask: Option<TensorUid> = OPERATION_SDPA_BWD_DROPOUT_MASK_EXT,
        dropout_scale: Option<TensorUid> = OPERATION_SDPA_BWD_DROPOUT_SCALE_EXT,
        dropout_scale_inv: Option<TensorUid> = OPERATION_SDPA_BWD_DROPOUT_SCALE_INV_EXT,
        dbias: Option<TensorUid> = OPERATION_SDPA_BWD_DBIAS_EXT,
        alibi_mask: bool = SDPA_BWD_ALIBI_MASK_EXT or false,
        padding_mask: bool = SDPA_BWD_PADDING_MASK_EXT or false,
        causal_mask: bool = SDPA_BWD_CAUSAL_MASK_EXT or false,
        causal_mask_bottom_right: bool = SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT or false,
        dropout_probability: Option<f32> = SDPA_BWD_DROPOUT_PROBABILITY_EXT,
        attn_scale_value: Option<f32> = SDPA_BWD_ATTN_SCALE_VALUE_EXT,
        left_bound: Option<i64> = SDPA_BWD_LEFT_BOUND_EXT,
        right_bound: Option<i64> = SDPA_BWD_RIGHT_BOUND_EXT,
        diagonal_alignment: DiagonalAlignment = SDPA_BWD_DIAGONAL_ALIGNMENT_EXT or DiagonalAlignment::TopLeft,
    }
    MoeGroupedMatmul: OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR, MOE_GROUPED_MATMUL_EXT,
    compute OPERATION_MOE_GROUPED_MATMUL_MATH_PREC required {
        token: TensorUid = OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC,
        weight: TensorUid = OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC,
        first_token_offset: TensorUid = OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC,
        token_index: Option<TensorUid> = OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC,
        token_ks: Option<TensorUid> = OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC,
        output: TensorUid = OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC,
        mode: MoeGroupedMatmulMode = OPERATION_MOE_GROUPED_MATMUL_MODE or MoeGroupedMatmulMode::None,
        top_k: i32 = OPERATION_MOE_GROUPED_MATMUL_TOP_K or 0,
    }
    MoeGroupedMatmulBwd: OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR, MOE_GROUPED_MATMUL_BWD_EXT,
    compute OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC required {
        doutput: TensorUid = OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC,
        token: TensorUid = OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC,
        first_token_offset: TensorUid = OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC,
        dweight: TensorUid = OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC,
    }
    CustomOp: OPERATION_CUSTOM_OP_DESCRIPTOR_EXT, CUSTOM_OP_EXT,
    compute CUSTOM_OP_COMP_TYPE_EXT {
        custom_op_id: String = OPERATION_CUSTOM_OP_ID_EXT,
        inputs: Vec<TensorUid> = OPERATION_CUSTOM_OP_INPUTS_EXT,
        outputs: Vec<TensorUid> = OPERATION_CUSTOM_OP_OUTPUTS_EXT,
        data: Vec<u8> = OPERATION_CUSTOM_OP_DATA_EXT,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every number from the first operation's attribute on belongs to an operation, but these.
    const OTHERS: [AttributeName; 9] = [
        AttributeName::KNOB_INFO_SERIALIZED_VALUE,
        AttributeName::KNOB_CHOICE_SERIALIZED_VALUE,
        AttributeName::OPERATION_TYPE_EXT,
        AttributeName::OPERATION_NAME_EXT,
        AttributeName::PROFILING_HANDLE_EXT,
        AttributeName::PROFILING_START_EXT,
        AttributeName::PROFILING_STOP_EXT,
        AttributeName::PROFILING_ELAPSED_MS_EXT,
        AttributeName::PROFILING_DEVICE_SYNC_EXT,
    ];

    #[test]
    fn every_operation_and_every_attribute_of_operations_is_in_the_table() {
        assert_eq!(TABLES.len(), wire::Operation::KINDS.len());
        let descriptors: HashSet<_> = TABLES.iter().map(|table| table.descriptor).collect();
        let types: HashSet<_> = TABLES.iter().map(|table| table.operation).collect();
        assert_eq!((descriptors.len(), types.len()), (TABLES.len(), TABLES.len()));
        assert_eq!(types.len() + 1, OperationType::ALL.len(), "all but the type of none");
        let mut used = HashSet::new();
        for table in TABLES {
            let mut own = HashSet::new();
            for attribute in table.attributes() {
                assert!(own.insert(attribute.name), "{} has {} twice", table.descriptor, attribute.name);
            }
            used.extend(own);
        }
        let first = AttributeName::OPERATION_CONVOLUTION_FORWARD_W;
        let of_operations = AttributeName::ALL.iter().filter(|name| **name >= first && !OTHERS.contains(name));
        let missing: Vec<_> = of_operations.filter(|name| !used.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
