//! The backend library's C ABI: its types, its enumerations, and the table of its functions.
//!
//! The library is `libhipdnn_backend.so`, ROCm's or ours. Older ones lack functions that newer ones have: whatever ends
//! in `_ext` is optional in [`Backend`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

use crate::library::{Library, LibraryError};

/// Pointee of `hipdnnHandle_t`.
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// Pointee of `hipdnnBackendDescriptor_t`.
#[repr(C)]
pub struct Descriptor {
    _opaque: [u8; 0],
}

/// `hipdnnHandle_t`: one client's view of the plugins, with a stream.
pub type HandlePtr = *mut Handle;
/// `hipdnnBackendDescriptor_t`: an object with attributes.
pub type DescriptorPtr = *mut Descriptor;
/// `hipStream_t`, which the backend only passes on.
pub type StreamPtr = *mut c_void;

/// The longest last-error text, its NUL included.
pub const ERROR_STRING_MAX_LENGTH: usize = 2048;

/// The library's file name.
pub const LIBRARY_NAME: &str = "libhipdnn_backend.so";

/// The major version whose ABI this module describes.
pub const MAJOR_VERSION: u32 = 1;

c_enum! {
    /// `hipdnnStatus_t`.
    Status, "HIPDNN_STATUS_" {
        SUCCESS = 0,
        NOT_INITIALIZED = 1,
        BAD_PARAM = 2,
        BAD_PARAM_NULL_POINTER = 3,
        BAD_PARAM_NOT_FINALIZED = 4,
        BAD_PARAM_OUT_OF_BOUND = 5,
        BAD_PARAM_SIZE_INSUFFICIENT = 6,
        BAD_PARAM_STREAM_MISMATCH = 7,
        NOT_SUPPORTED = 8,
        INTERNAL_ERROR = 9,
        ALLOC_FAILED = 10,
        INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 11,
        INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 12,
        EXECUTION_FAILED = 13,
        PLUGIN_ERROR = 14,
    }
}

c_enum! {
    /// `hipdnnBackendAttributeType_t`: element type of an attribute.
    AttributeType, "HIPDNN_TYPE_" {
        HANDLE = 0,
        DATA_TYPE = 1,
        BOOLEAN = 2,
        INT64 = 3,
        FLOAT = 4,
        DOUBLE = 5,
        VOID_PTR = 6,
        HEUR_MODE = 7,
        KNOB_TYPE = 8,
        NAN_PROPOGATION = 9,
        NUMERICAL_NOTE = 10,
        LAYOUT_TYPE = 11,
        ATTRIB_NAME = 12,
        BACKEND_DESCRIPTOR = 13,
        GENSTATS_MODE = 14,
        BN_FINALIZE_STATS_MODE = 15,
        BEHAVIOR_NOTE = 16,
        TENSOR_REORDERING_MODE = 17,
        INT32 = 18,
        CHAR = 19,
        SIGNAL_MODE = 20,
        FRACTION = 21,
        NORM_FWD_PHASE = 22,
        RNG_DISTRIBUTION = 23,
        CONVOLUTION_MODE = 24,
        POINTWISE_MODE = 25,
        DIAGONAL_ALIGNMENT_EXT = 26,
        ATTENTION_IMPLEMENTATION_EXT = 27,
        REDUCTION_OPERATOR_TYPE = 28,
        RESAMPLE_MODE = 29,
        PADDING_MODE = 30,
        MOE_GROUPED_MATMUL_MODE = 31,
        FLATBUFFER_DATA_STRUCT_EXT = 10000,
        OPERATION_TYPE_EXT = 10001,
    }
}

c_enum! {
    /// `hipdnnBackendDescriptorType_t`. Numbers above 17 shifted between branches before mid-2026.
    DescriptorType, "HIPDNN_BACKEND_" {
        INVALID_TYPE_EXT = 0 => "HIPDNN_INVALID_TYPE_EXT",
        ENGINE_DESCRIPTOR = 1,
        ENGINECFG_DESCRIPTOR = 2,
        ENGINEHEUR_DESCRIPTOR = 3,
        EXECUTION_PLAN_DESCRIPTOR = 4,
        INTERMEDIATE_INFO_DESCRIPTOR = 5,
        KNOB_CHOICE_DESCRIPTOR = 6,
        KNOB_INFO_DESCRIPTOR = 7,
        LAYOUT_INFO_DESCRIPTOR = 8,
        OPERATION_GEN_STATS_DESCRIPTOR = 9,
        OPERATIONGRAPH_DESCRIPTOR = 10,
        VARIANT_PACK_DESCRIPTOR = 11,
        KERNEL_CACHE_DESCRIPTOR = 12,
        OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR = 13,
        TENSOR_DESCRIPTOR = 14,
        OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 15,
        OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 16,
        OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT = 17,
        OPERATION_POINTWISE_DESCRIPTOR = 18,
        OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 19,
        OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT = 20,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT = 21,
        OPERATION_MATMUL_DESCRIPTOR = 22,
        OPERATION_RMSNORM_DESCRIPTOR_EXT = 23,
        OPERATION_SDPA_FWD_DESCRIPTOR = 24,
        OPERATION_LAYERNORM_DESCRIPTOR_EXT = 25,
        OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR = 26,
        OPERATION_BATCHNORM_DESCRIPTOR_EXT = 27,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR = 28,
        OPERATION_CUSTOM_OP_DESCRIPTOR_EXT = 29,
        OPERATION_SDPA_BWD_DESCRIPTOR_EXT = 30,
        OPERATION_REDUCTION_DESCRIPTOR = 31,
        OPERATION_RESAMPLE_FWD_DESCRIPTOR = 32,
        OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT = 33,
        PROFILING_CONTROL_EXT = 34,
        OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT = 35,
        OPERATION_RESAMPLE_BWD_DESCRIPTOR = 36,
        OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR = 37,
        OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR = 38,
    }
}

c_enum! {
    /// `hipdnnBackendAttributeName_t`.
    AttributeName, "HIPDNN_ATTR_" {
        ENGINEHEUR_MODE = 100,
        ENGINEHEUR_OPERATION_GRAPH = 101,
        ENGINEHEUR_RESULTS = 102,
        ENGINEHEUR_SM_COUNT_TARGET = 103,
        ENGINEHEUR_DEVICEPROP = 104,
        ENGINEHEUR_FIND_FIRST_EXT = 105,
        ENGINEHEUR_POLICY_ORDER_EXT = 106,
        ENGINEHEUR_RANKING_METRIC_EXT = 107,
        ENGINECFG_ENGINE = 200,
        ENGINECFG_INTERMEDIATE_INFO = 201,
        ENGINECFG_KNOB_CHOICES = 202,
        ENGINECFG_WORKSPACE_SIZE = 203,
        ENGINECFG_PREDICTION_EVALUATE_EXT = 204,
        ENGINECFG_PREDICTION_EXT = 205,
        ENGINECFG_RANKING_METRIC_EXT = 206,
        EXECUTION_PLAN_HANDLE = 300,
        EXECUTION_PLAN_ENGINE_CONFIG = 301,
        EXECUTION_PLAN_WORKSPACE_SIZE = 302,
        EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS = 303,
        EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS = 304,
        EXECUTION_PLAN_JSON_REPRESENTATION = 305,
        EXECUTION_PLAN_KERNEL_CACHE = 306,
        EXECUTION_PLAN_DEVICEPROP = 307,
        EXECUTION_PLAN_TENSOR_UIDS_EXT = 308,
        EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT = 309,
        EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT = 310,
        INTERMEDIATE_INFO_UNIQUE_ID = 400,
        INTERMEDIATE_INFO_SIZE = 401,
        INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS = 402,
        INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES = 403,
        KNOB_CHOICE_KNOB_TYPE = 500,
        KNOB_CHOICE_KNOB_VALUE = 501,
        OPERATIONGRAPH_HANDLE = 600,
        OPERATIONGRAPH_OPS = 601,
        OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 602,
        OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED = 603,
        OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT = 604,
        OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT = 605,
        OPERATIONGRAPH_IO_DATA_TYPE_EXT = 606,
        OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT = 607,
        OPERATIONGRAPH_NAME_EXT = 608,
        OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT = 609,
        VARIANT_PACK_UNIQUE_IDS = 700,
        VARIANT_PACK_DATA_POINTERS = 701,
        VARIANT_PACK_INTERMEDIATES = 702,
        VARIANT_PACK_WORKSPACE = 703,
        VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT = 704,
        VARIANT_PACK_OVERRIDE_SHAPES_EXT = 705,
        VARIANT_PACK_OVERRIDE_STRIDES_EXT = 706,
        VARIANT_PACK_OVERRIDE_LENGTHS_EXT = 707,
        LAYOUT_INFO_TENSOR_UID = 800,
        LAYOUT_INFO_TYPES = 801,
        KNOB_INFO_TYPE = 900,
        KNOB_INFO_MAXIMUM_VALUE = 901,
        KNOB_INFO_MINIMUM_VALUE = 902,
        KNOB_INFO_STRIDE = 903,
        KNOB_INFO_DESCRIPTION = 904,
        KNOB_INFO_DEFAULT_VALUE = 905,
        KNOB_INFO_DEPRECATED = 906,
        KNOB_INFO_VALID_VALUES_INT = 907,
        KNOB_INFO_VALID_VALUES_STRING = 908,
        KNOB_INFO_STRING_MAX_LENGTH = 909,
        KNOB_INFO_DEFAULT_VALUE_TYPE = 910,
        ENGINE_OPERATION_GRAPH = 1000,
        ENGINE_GLOBAL_INDEX = 1001,
        ENGINE_KNOB_INFO = 1002,
        ENGINE_NUMERICAL_NOTE = 1003,
        ENGINE_LAYOUT_INFO = 1004,
        ENGINE_BEHAVIOR_NOTE = 1005,
        ENGINE_CU_COUNT_TARGET_EXT = 1006,
        ENGINE_DEVICEPROP = 1007,
        ENGINE_NAME_EXT = 1008,
        ENGINE_PREDICTION_EVALUATE_EXT = 1009,
        ENGINE_PREDICTION_EXT = 1010,
        ENGINE_CANDIDATE_OFFSET_EXT = 1011,
        ENGINE_CANDIDATE_LIMIT_EXT = 1012,
        ENGINE_CANDIDATE_SCOPE_EXT = 1013,
        ENGINE_CANDIDATES_EXT = 1014,
        ENGINE_PREDICTION_METRIC_EXT = 1015,
        KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED = 1100,
        DEVICEPROP_DEVICE_ID = 1200,
        DEVICEPROP_HANDLE = 1201,
        DEVICEPROP_JSON_REPRESENTATION = 1202,
        TENSOR_UNIQUE_ID = 1300,
        TENSOR_NAME_EXT = 1301,
        TENSOR_DATA_TYPE = 1302,
        TENSOR_DIMENSIONS = 1303,
        TENSOR_STRIDES = 1304,
        TENSOR_IS_VIRTUAL = 1305,
        TENSOR_VALUE_EXT = 1306,
        TENSOR_IS_BY_VALUE = 1307,
        TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT = 1308,
        TENSOR_BYTE_ALIGNMENT = 1309,
        TENSOR_RAGGED_OFFSET_DESC = 1310,
        TENSOR_RAGGED_OFFSET_MULTIPLIER = 1311,
        OPERATION_CONVOLUTION_FORWARD_W = 1400,
        OPERATION_CONVOLUTION_FORWARD_X = 1401,
        OPERATION_CONVOLUTION_FORWARD_Y = 1402,
        CONVOLUTION_COMP_TYPE = 1500,
        CONVOLUTION_CONV_MODE = 1501,
        CONVOLUTION_DILATIONS = 1502,
        CONVOLUTION_FILTER_STRIDES = 1503,
        CONVOLUTION_POST_PADDINGS = 1504,
        CONVOLUTION_PRE_PADDINGS = 1505,
        OPERATION_CONVOLUTION_BWD_FILTER_X = 1600,
        OPERATION_CONVOLUTION_BWD_FILTER_DY = 1601,
        OPERATION_CONVOLUTION_BWD_FILTER_DW = 1602,
        OPERATION_CONVOLUTION_BWD_DATA_DY = 1700,
        OPERATION_CONVOLUTION_BWD_DATA_W = 1701,
        OPERATION_CONVOLUTION_BWD_DATA_DX = 1702,
        OPERATION_BATCHNORM_INFERENCE_X_EXT = 1800,
        OPERATION_BATCHNORM_INFERENCE_MEAN_EXT = 1801,
        OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT = 1802,
        OPERATION_BATCHNORM_INFERENCE_SCALE_EXT = 1803,
        OPERATION_BATCHNORM_INFERENCE_BIAS_EXT = 1804,
        OPERATION_BATCHNORM_INFERENCE_Y_EXT = 1805,
        BATCHNORM_INF_COMP_TYPE_EXT = 1806,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_X_EXT = 1900,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_MEAN_EXT = 1901,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_VARIANCE_EXT = 1902,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_SCALE_EXT = 1903,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_BIAS_EXT = 1904,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_Y_EXT = 1905,
        OPERATION_BATCHNORM_INFERENCE_VARIANCE_EPSILON_EXT = 1906,
        BATCHNORM_INF_VAR_COMP_TYPE_EXT = 1907,
        OPERATION_BATCHNORM_BACKWARD_DY_EXT = 2000,
        OPERATION_BATCHNORM_BACKWARD_X_EXT = 2001,
        OPERATION_BATCHNORM_BACKWARD_SCALE_EXT = 2002,
        OPERATION_BATCHNORM_BACKWARD_DX_EXT = 2003,
        OPERATION_BATCHNORM_BACKWARD_DSCALE_EXT = 2004,
        OPERATION_BATCHNORM_BACKWARD_DBIAS_EXT = 2005,
        OPERATION_BATCHNORM_BACKWARD_MEAN_EXT = 2006,
        OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT = 2007,
        BATCHNORM_BACKWARD_COMP_TYPE_EXT = 2100,
        OPERATION_BATCHNORM_BACKWARD_PEER_STATS_EXT = 2101,
        OPERATION_POINTWISE_IN_0_EXT = 2200,
        OPERATION_POINTWISE_OUT_0_EXT = 2201,
        OPERATION_POINTWISE_IN_1_EXT = 2202,
        OPERATION_POINTWISE_IN_2_EXT = 2203,
        POINTWISE_MODE = 2300,
        POINTWISE_RELU_LOWER_CLIP = 2301,
        POINTWISE_RELU_UPPER_CLIP = 2302,
        POINTWISE_RELU_LOWER_CLIP_SLOPE = 2303,
        POINTWISE_SWISH_BETA = 2304,
        POINTWISE_ELU_ALPHA = 2305,
        POINTWISE_SOFTPLUS_BETA = 2306,
        POINTWISE_MATH_PREC = 2307,
        POINTWISE_AXIS = 2308,
        OPERATION_RMSNORM_X_EXT = 2400,
        OPERATION_RMSNORM_SCALE_EXT = 2401,
        OPERATION_RMSNORM_EPSILON_EXT = 2402,
        OPERATION_RMSNORM_Y_EXT = 2403,
        OPERATION_RMSNORM_BIAS_EXT = 2404,
        OPERATION_RMSNORM_INV_RMS_EXT = 2405,
        OPERATION_RMSNORM_FWD_PHASE_EXT = 2406,
        RMSNORM_COMP_TYPE_EXT = 2407,
        OPERATION_MATMUL_ADESC = 2500,
        OPERATION_MATMUL_BDESC = 2501,
        OPERATION_MATMUL_CDESC = 2502,
        MATMUL_COMP_TYPE = 2503,
        OPERATION_SDPA_FWD_QDESC = 2600,
        OPERATION_SDPA_FWD_KDESC = 2601,
        OPERATION_SDPA_FWD_VDESC = 2602,
        OPERATION_SDPA_FWD_ODESC = 2603,
        OPERATION_SDPA_FWD_ATTN_MASK_EXT = 2604,
        OPERATION_SDPA_FWD_SCALEDESC = 2605,
        OPERATION_SDPA_FWD_SEQ_LEN_QDESC = 2606,
        OPERATION_SDPA_FWD_SEQ_LEN_KVDESC = 2607,
        OPERATION_SDPA_FWD_SEED_EXT = 2608,
        OPERATION_SDPA_FWD_OFFSET_EXT = 2609,
        OPERATION_SDPA_FWD_DROPOUT_MASK_EXT = 2610,
        OPERATION_SDPA_FWD_DROPOUT_SCALE_EXT = 2611,
        OPERATION_SDPA_FWD_PAGE_TABLE_KDESC = 2612,
        OPERATION_SDPA_FWD_PAGE_TABLE_VDESC = 2613,
        OPERATION_SDPA_FWD_BLOCK_MASK_DESC = 2614,
        OPERATION_SDPA_FWD_SINK_TOKEN_EXT = 2615,
        OPERATION_SDPA_FWD_DESCALE_Q_EXT = 2616,
        OPERATION_SDPA_FWD_DESCALE_K_EXT = 2617,
        OPERATION_SDPA_FWD_DESCALE_V_EXT = 2618,
        OPERATION_SDPA_FWD_DESCALE_S_EXT = 2619,
        OPERATION_SDPA_FWD_SCALE_S_EXT = 2620,
        OPERATION_SDPA_FWD_SCALE_O_EXT = 2621,
        OPERATION_SDPA_FWD_STATSDESC = 2622,
        OPERATION_SDPA_FWD_MAX_EXT = 2623,
        OPERATION_SDPA_FWD_SUM_EXP_EXT = 2624,
        OPERATION_SDPA_FWD_RNG_DUMP_EXT = 2625,
        OPERATION_SDPA_FWD_AMAX_S_EXT = 2626,
        OPERATION_SDPA_FWD_AMAX_O_EXT = 2627,
        SDPA_FWD_GENERATE_STATS_EXT = 2628,
        SDPA_FWD_ALIBI_MASK_EXT = 2629,
        SDPA_FWD_PADDING_MASK_EXT = 2630,
        SDPA_FWD_CAUSAL_MASK_EXT = 2631,
        SDPA_FWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT = 2632,
        SDPA_FWD_DROPOUT_PROBABILITY_EXT = 2633,
        SDPA_FWD_ATTN_SCALE_VALUE_EXT = 2634,
        SDPA_FWD_LEFT_BOUND_EXT = 2635,
        SDPA_FWD_RIGHT_BOUND_EXT = 2636,
        SDPA_FWD_MAX_SEQ_LEN_KV_EXT = 2637,
        SDPA_FWD_DIAGONAL_ALIGNMENT_EXT = 2638,
        SDPA_FWD_MMA_CORE_MODE_EXT = 2639,
        SDPA_FWD_IMPLEMENTATION_EXT = 2640,
        SDPA_FWD_COMP_TYPE_EXT = 2641,
        OPERATION_LAYERNORM_X_EXT = 2700,
        OPERATION_LAYERNORM_SCALE_EXT = 2701,
        OPERATION_LAYERNORM_BIAS_EXT = 2702,
        OPERATION_LAYERNORM_EPSILON_EXT = 2703,
        OPERATION_LAYERNORM_Y_EXT = 2704,
        OPERATION_LAYERNORM_MEAN_EXT = 2705,
        OPERATION_LAYERNORM_INV_VARIANCE_EXT = 2706,
        OPERATION_LAYERNORM_FWD_PHASE_EXT = 2707,
        LAYERNORM_COMP_TYPE_EXT = 2708,
        OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT = 2709,
        OPERATION_BLOCK_SCALE_QUANTIZE_XDESC = 2800,
        OPERATION_BLOCK_SCALE_QUANTIZE_YDESC = 2801,
        OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC = 2802,
        OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE = 2803,
        OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT = 2804,
        OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT = 2805,
        OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC = 2806,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC = 2807,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC = 2808,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC = 2809,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE = 2810,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE = 2811,
        OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC = 2812,
        OPERATION_BATCHNORM_X_EXT = 2900,
        OPERATION_BATCHNORM_SCALE_EXT = 2901,
        OPERATION_BATCHNORM_BIAS_EXT = 2902,
        OPERATION_BATCHNORM_EPSILON_EXT = 2903,
        OPERATION_BATCHNORM_Y_EXT = 2904,
        OPERATION_BATCHNORM_PREV_RUNNING_MEAN_EXT = 2905,
        OPERATION_BATCHNORM_PREV_RUNNING_VARIANCE_EXT = 2906,
        OPERATION_BATCHNORM_MOMENTUM_EXT = 2907,
        OPERATION_BATCHNORM_MEAN_EXT = 2908,
        OPERATION_BATCHNORM_INV_VARIANCE_EXT = 2909,
        OPERATION_BATCHNORM_NEXT_RUNNING_MEAN_EXT = 2910,
        OPERATION_BATCHNORM_NEXT_RUNNING_VARIANCE_EXT = 2911,
        BATCHNORM_COMP_TYPE_EXT = 2912,
        OPERATION_BATCHNORM_PEER_STATS_EXT = 2913,
        OPERATION_CUSTOM_OP_INPUTS_EXT = 3000,
        OPERATION_CUSTOM_OP_OUTPUTS_EXT = 3001,
        OPERATION_CUSTOM_OP_ID_EXT = 3002,
        OPERATION_CUSTOM_OP_DATA_EXT = 3003,
        CUSTOM_OP_COMP_TYPE_EXT = 3004,
        OPERATION_SDPA_BWD_Q_EXT = 3100,
        OPERATION_SDPA_BWD_K_EXT = 3101,
        OPERATION_SDPA_BWD_V_EXT = 3102,
        OPERATION_SDPA_BWD_O_EXT = 3103,
        OPERATION_SDPA_BWD_DO_EXT = 3104,
        OPERATION_SDPA_BWD_STATS_EXT = 3105,
        OPERATION_SDPA_BWD_DQ_EXT = 3106,
        OPERATION_SDPA_BWD_DK_EXT = 3107,
        OPERATION_SDPA_BWD_DV_EXT = 3108,
        OPERATION_SDPA_BWD_SCALE_EXT = 3109,
        OPERATION_SDPA_BWD_ATTN_MASK_EXT = 3110,
        OPERATION_SDPA_BWD_SEQ_LEN_Q_EXT = 3111,
        OPERATION_SDPA_BWD_SEQ_LEN_KV_EXT = 3112,
        OPERATION_SDPA_BWD_SEED_EXT = 3113,
        OPERATION_SDPA_BWD_OFFSET_EXT = 3114,
        OPERATION_SDPA_BWD_DROPOUT_MASK_EXT = 3115,
        OPERATION_SDPA_BWD_DROPOUT_SCALE_EXT = 3116,
        OPERATION_SDPA_BWD_DROPOUT_SCALE_INV_EXT = 3117,
        OPERATION_SDPA_BWD_DBIAS_EXT = 3118,
        SDPA_BWD_ALIBI_MASK_EXT = 3119,
        SDPA_BWD_PADDING_MASK_EXT = 3120,
        SDPA_BWD_CAUSAL_MASK_EXT = 3121,
        SDPA_BWD_CAUSAL_MASK_BOTTOM_RIGHT_EXT = 3122,
        SDPA_BWD_DROPOUT_PROBABILITY_EXT = 3123,
        SDPA_BWD_ATTN_SCALE_VALUE_EXT = 3124,
        SDPA_BWD_LEFT_BOUND_EXT = 3125,
        SDPA_BWD_RIGHT_BOUND_EXT = 3126,
        SDPA_BWD_DIAGONAL_ALIGNMENT_EXT = 3127,
        SDPA_BWD_COMP_TYPE_EXT = 3128,
        OPERATION_REDUCTION_XDESC = 3200,
        OPERATION_REDUCTION_YDESC = 3201,
        REDUCTION_OPERATOR = 3202,
        REDUCTION_COMP_TYPE = 3203,
        REDUCTION_IS_DETERMINISTIC = 3204,
        OPERATION_RESAMPLE_FWD_XDESC = 3300,
        OPERATION_RESAMPLE_FWD_YDESC = 3301,
        OPERATION_RESAMPLE_FWD_IDXDESC = 3302,
        RESAMPLE_MODE = 3400,
        RESAMPLE_PRE_PADDINGS = 3401,
        RESAMPLE_POST_PADDINGS = 3402,
        RESAMPLE_STRIDES = 3403,
        RESAMPLE_WINDOW_DIMS = 3404,
        RESAMPLE_PADDING_MODE = 3405,
        RESAMPLE_GENERATE_INDEX_EXT = 3406,
        RESAMPLE_COMP_TYPE = 3407,
        OPERATION_RESAMPLE_BWD_DYDESC = 3408,
        OPERATION_RESAMPLE_BWD_DXDESC = 3409,
        OPERATION_RESAMPLE_BWD_IDXDESC = 3410,
        OPERATION_RMSNORM_BACKWARD_DY_EXT = 3500,
        OPERATION_RMSNORM_BACKWARD_X_EXT = 3501,
        OPERATION_RMSNORM_BACKWARD_SCALE_EXT = 3502,
        OPERATION_RMSNORM_BACKWARD_INV_RMS_EXT = 3503,
        OPERATION_RMSNORM_BACKWARD_DX_EXT = 3504,
        OPERATION_RMSNORM_BACKWARD_DSCALE_EXT = 3505,
        OPERATION_RMSNORM_BACKWARD_DBIAS_EXT = 3506,
        RMSNORM_BACKWARD_COMP_TYPE_EXT = 3507,
        OPERATION_LAYERNORM_BACKWARD_DY_EXT = 3600,
        OPERATION_LAYERNORM_BACKWARD_X_EXT = 3601,
        OPERATION_LAYERNORM_BACKWARD_SCALE_EXT = 3602,
        OPERATION_LAYERNORM_BACKWARD_MEAN_EXT = 3603,
        OPERATION_LAYERNORM_BACKWARD_INV_VARIANCE_EXT = 3604,
        OPERATION_LAYERNORM_BACKWARD_EPSILON_EXT = 3605,
        OPERATION_LAYERNORM_BACKWARD_DX_EXT = 3606,
        OPERATION_LAYERNORM_BACKWARD_DSCALE_EXT = 3607,
        OPERATION_LAYERNORM_BACKWARD_DBIAS_EXT = 3608,
        LAYERNORM_BACKWARD_NORMALIZED_DIM_COUNT_EXT = 3609,
        LAYERNORM_BACKWARD_COMP_TYPE_EXT = 3610,
        OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC = 3700,
        OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC = 3701,
        OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC = 3702,
        OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC = 3703,
        OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC = 3704,
        OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC = 3705,
        OPERATION_MOE_GROUPED_MATMUL_MODE = 3706,
        OPERATION_MOE_GROUPED_MATMUL_TOP_K = 3707,
        OPERATION_MOE_GROUPED_MATMUL_MATH_PREC = 3708,
        OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC = 3800,
        OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC = 3801,
        OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC = 3802,
        OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC = 3803,
        OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC = 3804,
        KNOB_INFO_SERIALIZED_VALUE = 60000,
        KNOB_CHOICE_SERIALIZED_VALUE = 60100,
        OPERATION_TYPE_EXT = 60200,
        OPERATION_NAME_EXT = 60300,
        PROFILING_HANDLE_EXT = 60400,
        PROFILING_START_EXT = 60401,
        PROFILING_STOP_EXT = 60402,
        PROFILING_ELAPSED_MS_EXT = 60403,
        PROFILING_DEVICE_SYNC_EXT = 60404,
    }
}

c_enum! {
    /// `hipdnnDataType_t`. These are not the wire format's numbers.
    DataType, "HIPDNN_DATA_" {
        FLOAT = 0,
        DOUBLE = 1,
        HALF = 2,
        INT8 = 3,
        INT32 = 4,
        UINT8 = 5,
        BFLOAT16 = 6,
        FP8_E4M3 = 7,
        FP8_E5M2 = 8,
        FP8_E8M0 = 9,
        FP4_E2M1 = 10,
        INT4 = 11,
        FP6_E2M3_EXT = 12,
        FP6_E3M2_EXT = 13,
        INT64 = 14,
        BOOLEAN = 15,
        FP8_E4M3_FNUZ = 16,
        FP8_E5M2_FNUZ = 17,
    }
}

c_enum! {
    /// `hipdnnConvolutionMode_t`. These are not the wire format's numbers.
    ConvolutionMode, "HIPDNN_" {
        CONVOLUTION = 0,
        CROSS_CORRELATION = 1,
    }
}

// Made from the wire format's `pointwise.fbs`, whose numbers these are.
#[path = "generated/pointwise_mode.rs"]
mod pointwise_mode;

pub use pointwise_mode::PointwiseMode;

c_enum! {
    /// `hipdnnOperationType_ext_t`: type of an operation descriptor.
    OperationType, "HIPDNN_OPERATION_TYPE_" {
        NOT_SET_EXT = 0,
        CONVOLUTION_FORWARD_EXT = 1,
        CONVOLUTION_BACKWARD_DATA_EXT = 2,
        CONVOLUTION_BACKWARD_WEIGHTS_EXT = 3,
        BATCHNORM_INFERENCE_EXT = 4,
        BATCHNORM_BACKWARD_EXT = 5,
        BATCHNORM_INFERENCE_VARIANCE_EXT = 6,
        BATCHNORM_EXT = 7,
        POINTWISE_EXT = 8,
        MATMUL_EXT = 9,
        RMSNORM_EXT = 10,
        LAYERNORM_EXT = 11,
        SDPA_FORWARD_EXT = 12,
        BLOCK_SCALE_QUANTIZE_EXT = 13,
        SDPA_BACKWARD_EXT = 14,
        BLOCK_SCALE_DEQUANTIZE_EXT = 15,
        CUSTOM_OP_EXT = 16,
        REDUCTION_EXT = 17,
        RESAMPLE_FWD = 18,
        RMSNORM_BACKWARD_EXT = 19,
        LAYERNORM_BACKWARD_EXT = 20,
        RESAMPLE_BWD_EXT = 21,
        MOE_GROUPED_MATMUL_EXT = 22,
        MOE_GROUPED_MATMUL_BWD_EXT = 23,
    }
}

c_enum! {
    /// `hipdnnReduceTensorOp_t`: combining operation of a reduction.
    ReduceTensorOp, "HIPDNN_REDUCE_TENSOR_" {
        ADD = 1,
        MUL = 2,
        MIN = 3,
        MAX = 4,
        AMAX = 5,
        AVG = 6,
        NORM1 = 7,
        NORM2 = 8,
        MUL_NO_ZEROS = 9,
    }
}

c_enum! {
    /// `hipdnnResampleMode_t`: combining operation of a pooling window.
    ResampleMode, "HIPDNN_RESAMPLE_" {
        MAXPOOL = 1,
        AVGPOOL_EXCLUDE_PADDING = 2,
        AVGPOOL_INCLUDE_PADDING = 3,
    }
}

c_enum! {
    /// `hipdnnPaddingMode_t`: padding value of a pooling.
    PaddingMode, "HIPDNN_PADDING_" {
        NEG_INF_PAD = 1,
        ZERO_PAD = 2,
    }
}

c_enum! {
    /// `hipdnnNormFwdPhase_t`: phase of a normalization; training also returns the statistics.
    NormFwdPhase, "HIPDNN_NORM_FWD_" {
        INFERENCE = 1,
        TRAINING = 2,
    }
}

c_enum! {
    /// `hipdnnDiagonalAlignment_t`: the corner that the diagonal of an attention matrix starts from.
    DiagonalAlignment, "HIPDNN_DIAGONAL_ALIGNMENT_" {
        TOP_LEFT_EXT = 0,
        BOTTOM_RIGHT_EXT = 1,
    }
}

c_enum! {
    /// `hipdnnAttentionImplementation_t`: requested implementation of attention.
    AttentionImplementation, "HIPDNN_ATTENTION_IMPLEMENTATION_" {
        AUTO_EXT = 0,
        COMPOSITE_EXT = 1,
        UNIFIED_EXT = 2,
    }
}

c_enum! {
    /// `hipdnnMoeGroupedMatmulMode_t`: the side of a mixture-of-experts matrix product that is indexed.
    MoeGroupedMatmulMode, "HIPDNN_MOE_GROUPED_MATMUL_MODE_" {
        NONE = 0,
        GATHER = 1,
        SCATTER = 2,
    }
}

c_enum! {
    /// `hipdnnBackendHeurMode_t`.
    HeurMode, "HIPDNN_HEUR_MODE_" {
        FALLBACK = 0,
    }
}

c_enum! {
    /// `hipdnnBackendBehaviorNote_t`.
    BehaviorNote, "HIPDNN_BEHAVIOR_NOTE_" {
        RUNTIME_COMPILATION = 0,
        REQUIRES_LAYOUT_TRANSFORM = 1,
        SUPPORTS_GRAPH_CAPTURE = 2,
        EXTERNAL_LIBRARY_DEPENDENCY = 3,
        SUPPORTS_EXECUTION_PLAN_SERIALIZATION = 4,
    }
}

c_enum! {
    /// `hipdnnPluginLoadingMode_ext_t`.
    PluginLoadingMode, "HIPDNN_PLUGIN_LOADING_" {
        ADDITIVE = 0,
        ABSOLUTE = 1,
    }
}

c_enum! {
    /// `hipdnnAutotuneCacheWriteOutcome_ext_t`.
    AutotuneCacheWriteOutcome, "HIPDNN_AUTOTUNE_CACHE_WRITE_" {
        WRITTEN = 0,
        DECLINED_DISABLED = 1,
        DECLINED_UNKEYABLE_OR_UNFINALIZED = 2,
        DECLINED_NO_ENGINES = 3,
        UNCHANGED = 4,
    }
}

c_enum! {
    /// `hipdnnPluginUnloadingMode_ext_t`.
    PluginUnloadingMode, "HIPDNN_PLUGIN_UNLOAD_" {
        LAZY = 0,
        EAGER = 1,
    }
}

c_enum! {
    /// `hipdnnSeverity_t`: a larger number is more severe.
    Severity, "HIPDNN_SEV_" {
        INFO = 0,
        WARN = 1,
        ERROR = 2,
        FATAL = 3,
        OFF = 4,
    }
}

c_enum! {
    /// `hipdnnLogCallbackMode_t`.
    LogCallbackMode, "HIPDNN_LOG_CALLBACK_" {
        SYNC = 0,
        ASYNC = 1,
    }
}

/// Bit of `hipdnnBackendGetSerializedBinaryContents_ext`: a graph is inside.
pub const SERIALIZED_CONTENT_GRAPH: c_int = 1;
/// Bit of `hipdnnBackendGetSerializedBinaryContents_ext`: an execution plan is inside.
pub const SERIALIZED_CONTENT_EXECUTION_PLAN: c_int = 2;

/// `hipdnnBackendFlatbufferData_t`: the element of [`AttributeType::FLATBUFFER_DATA_STRUCT_EXT`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FlatbufferData {
    /// First byte.
    pub ptr: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

/// `hipdnnUserLogCallback_t`, which may be null.
pub type UserLogCallback = Option<unsafe extern "C" fn(user: *mut c_void, severity: Severity, message: *const c_char)>;

/// Declares the types of the functions and the table that holds them, required ones and optional ones.
macro_rules! backend_table {
    (
        required { $($(#[$rmeta:meta])* $rfield:ident $rsymbol:literal: fn($($rarg:ident: $rtype:ty),*) $(-> $rret:ty)?;)* }
        optional { $($(#[$ometa:meta])* $ofield:ident $osymbol:literal: fn($($oarg:ident: $otype:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        /// The functions of one backend library; a field is the symbol without its prefix. Those of an older library
        /// than the newest may be `None`.
        #[derive(Debug)]
        pub struct Backend {
            $($(#[$rmeta])* pub $rfield: unsafe extern "C" fn($($rarg: $rtype),*) $(-> $rret)?,)*
            $($(#[$ometa])* pub $ofield: Option<unsafe extern "C" fn($($oarg: $otype),*) $(-> $oret)?>,)*
            library: Library,
        }

        impl Backend {
            /// Every symbol of the ABI: the required ones first.
            pub const SYMBOLS: &'static [&'static str] = &[$($rsymbol,)* $($osymbol,)*];

            fn resolve(library: Library) -> Result<Backend, LibraryError> {
                Ok(Backend {
                    // SAFETY: the field has the function's signature, and the table keeps the library open.
                    $($rfield: unsafe { library.symbol(symbol(concat!($rsymbol, "\0"))) }?,)*
                    // SAFETY: the field has the optional function's signature, and the table keeps the library open.
                    $($ofield: unsafe { library.optional(symbol(concat!($osymbol, "\0"))) },)*
                    library,
                })
            }
        }
    };
}

fn symbol(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("symbols are written with one NUL at the end")
}

backend_table! {
    required {
        /// `hipdnnCreate`
        create "hipdnnCreate": fn(handle: *mut HandlePtr) -> Status;
        /// `hipdnnDestroy`
        destroy "hipdnnDestroy": fn(handle: HandlePtr) -> Status;
        /// `hipdnnSetStream`
        set_stream "hipdnnSetStream": fn(handle: HandlePtr, stream: StreamPtr) -> Status;
        /// `hipdnnGetStream`
        get_stream "hipdnnGetStream": fn(handle: HandlePtr, stream: *mut StreamPtr) -> Status;
        /// `hipdnnBackendCreateDescriptor`
        create_descriptor "hipdnnBackendCreateDescriptor":
            fn(kind: DescriptorType, descriptor: *mut DescriptorPtr) -> Status;
        /// `hipdnnBackendDestroyDescriptor`
        destroy_descriptor "hipdnnBackendDestroyDescriptor": fn(descriptor: DescriptorPtr) -> Status;
        /// `hipdnnBackendFinalize`
        finalize "hipdnnBackendFinalize": fn(descriptor: DescriptorPtr) -> Status;
        /// `hipdnnBackendSetAttribute`
        set_attribute "hipdnnBackendSetAttribute": fn(
            descriptor: DescriptorPtr, name: AttributeName, kind: AttributeType, count: i64, elements: *const c_void
        ) -> Status;
        /// `hipdnnBackendGetAttribute`
        get_attribute "hipdnnBackendGetAttribute": fn(
            descriptor: DescriptorPtr, name: AttributeName, kind: AttributeType, requested: i64, count: *mut i64,
            elements: *mut c_void
        ) -> Status;
        /// `hipdnnBackendExecute`
        execute "hipdnnBackendExecute": fn(handle: HandlePtr, plan: DescriptorPtr, pack: DescriptorPtr) -> Status;
        /// `hipdnnGetErrorString`
        get_error_string "hipdnnGetErrorString": fn(status: Status) -> *const c_char;
        /// `hipdnnGetLastErrorString`
        get_last_error_string "hipdnnGetLastErrorString": fn(message: *mut c_char, max_size: usize);
    }
    optional {
        /// `hipdnnPeekLastErrorString_ext`
        peek_last_error_string "hipdnnPeekLastErrorString_ext": fn(message: *mut c_char, max_size: usize);
        /// `hipdnnBackendCreateAndDeserializeGraph_ext`
        create_and_deserialize_graph "hipdnnBackendCreateAndDeserializeGraph_ext":
            fn(descriptor: *mut DescriptorPtr, bytes: *const u8, size: usize) -> Status;
        /// `hipdnnBackendGetSerializedBinaryGraph_ext`
        get_serialized_binary_graph "hipdnnBackendGetSerializedBinaryGraph_ext":
            fn(descriptor: DescriptorPtr, requested: usize, size: *mut usize, bytes: *mut u8) -> Status;
        /// `hipdnnBackendGetSerializedJsonGraph_ext`
        get_serialized_json_graph "hipdnnBackendGetSerializedJsonGraph_ext":
            fn(descriptor: DescriptorPtr, requested: usize, size: *mut usize, text: *mut c_char) -> Status;
        /// `hipdnnBackendCreateAndDeserializeJsonGraph_ext`
        create_and_deserialize_json_graph "hipdnnBackendCreateAndDeserializeJsonGraph_ext":
            fn(descriptor: *mut DescriptorPtr, text: *const c_char, size: usize) -> Status;
        /// `hipdnnBackendGetSerializedExecutionPlan_ext`
        get_serialized_execution_plan "hipdnnBackendGetSerializedExecutionPlan_ext":
            fn(descriptor: DescriptorPtr, requested: usize, size: *mut usize, bytes: *mut u8) -> Status;
        /// `hipdnnBackendCreateAndDeserializeExecutionPlan_ext`
        create_and_deserialize_execution_plan "hipdnnBackendCreateAndDeserializeExecutionPlan_ext":
            fn(handle: HandlePtr, descriptor: *mut DescriptorPtr, bytes: *const u8, size: usize) -> Status;
        /// `hipdnnBackendGetSerializedBinaryGraphAndPlan_ext`
        get_serialized_binary_graph_and_plan "hipdnnBackendGetSerializedBinaryGraphAndPlan_ext": fn(
            graph: DescriptorPtr, plan: DescriptorPtr, requested: usize, size: *mut usize, bytes: *mut u8
        ) -> Status;
        /// `hipdnnBackendGetSerializedBinaryContents_ext`
        get_serialized_binary_contents "hipdnnBackendGetSerializedBinaryContents_ext":
            fn(bytes: *const u8, size: usize, flags: *mut c_int) -> Status;
        /// `hipdnnSetEnginePluginPaths_ext`
        set_engine_plugin_paths "hipdnnSetEnginePluginPaths_ext":
            fn(count: usize, paths: *const *const c_char, mode: PluginLoadingMode) -> Status;
        /// `hipdnnSetHeuristicPluginPaths_ext`
        set_heuristic_plugin_paths "hipdnnSetHeuristicPluginPaths_ext":
            fn(count: usize, paths: *const *const c_char, mode: PluginLoadingMode) -> Status;
        /// `hipdnnSetPluginUnloadMode_ext`
        set_plugin_unload_mode "hipdnnSetPluginUnloadMode_ext": fn(mode: PluginUnloadingMode) -> Status;
        /// `hipdnnGetLoadedEnginePluginPaths_ext`
        get_loaded_engine_plugin_paths "hipdnnGetLoadedEnginePluginPaths_ext":
            fn(handle: HandlePtr, count: *mut usize, paths: *mut *mut c_char, max_length: *mut usize) -> Status;
        /// `hipdnnGetEngineCount_ext`
        get_engine_count "hipdnnGetEngineCount_ext": fn(handle: HandlePtr, count: *mut usize) -> Status;
        /// `hipdnnGetEngineInfo_ext`
        get_engine_info "hipdnnGetEngineInfo_ext": fn(
            handle: HandlePtr, index: usize, id: *mut i64, name: *mut c_char, name_length: *mut usize,
            plugin: *mut c_char, plugin_length: *mut usize, version: *mut c_char, version_length: *mut usize,
            kind: *mut c_char, kind_length: *mut usize
        ) -> Status;
        /// `hipdnnGetEngineIdByName_ext`
        get_engine_id_by_name "hipdnnGetEngineIdByName_ext":
            fn(handle: HandlePtr, name: *const c_char, id: *mut i64) -> Status;
        /// `hipdnnGetEngineNameById_ext`
        get_engine_name_by_id "hipdnnGetEngineNameById_ext":
            fn(handle: HandlePtr, id: i64, name: *mut c_char, name_length: *mut usize) -> Status;
        /// `hipdnnGetHeuristicPolicyCount_ext`
        get_heuristic_policy_count "hipdnnGetHeuristicPolicyCount_ext":
            fn(handle: HandlePtr, count: *mut usize) -> Status;
        /// `hipdnnGetHeuristicPolicyInfo_ext`
        get_heuristic_policy_info "hipdnnGetHeuristicPolicyInfo_ext": fn(
            handle: HandlePtr, index: usize, id: *mut i64, name: *mut c_char, name_length: *mut usize,
            plugin: *mut c_char, plugin_length: *mut usize, version: *mut c_char, version_length: *mut usize,
            api_version: *mut c_char, api_version_length: *mut usize
        ) -> Status;
        /// `hipdnnBackendWriteEngineRankingResults_ext`
        write_engine_ranking_results "hipdnnBackendWriteEngineRankingResults_ext": fn(
            handle: HandlePtr, graph: DescriptorPtr, ids: *const i64, count: usize,
            outcome: *mut AutotuneCacheWriteOutcome
        ) -> Status;
        /// `hipdnnLoggingCallback_ext`
        logging_callback "hipdnnLoggingCallback_ext": fn(severity: Severity, message: *const c_char);
        /// `hipdnnSetUserLogCallback_ext`
        set_user_log_callback "hipdnnSetUserLogCallback_ext":
            fn(callback: UserLogCallback, min_level: Severity, mode: LogCallbackMode, user: *mut c_void) -> Status;
        /// `hipdnnBackendSetGlobalLogLevel_ext`
        set_global_log_level "hipdnnBackendSetGlobalLogLevel_ext": fn(level: Severity) -> Status;
        /// `hipdnnBackendGetGlobalLogLevel_ext`
        get_global_log_level "hipdnnBackendGetGlobalLogLevel_ext": fn(level: *mut Severity) -> Status;
        /// `hipdnnGetVersion_ext`
        get_version "hipdnnGetVersion_ext": fn(version: *mut *const c_char) -> Status;
        /// `hipdnnVersionString_ext`
        version_string "hipdnnVersionString_ext": fn() -> *const c_char;
    }
}

impl Backend {
    /// Opens the first candidate that loads, resolves its functions and checks its version.
    ///
    /// # Safety
    /// As [`Library::open`]; and the candidates are hipDNN backends: their exports have the signatures of this table.
    ///
    /// # Errors
    /// No candidate opens, a core function is missing, or the major version is not [`MAJOR_VERSION`].
    pub unsafe fn open<P: AsRef<std::path::Path>>(
        candidates: impl IntoIterator<Item = P>,
    ) -> Result<Backend, LibraryError> {
        // SAFETY: the caller promises what `Library::open` asks of the candidates.
        let library = unsafe { Library::open(LIBRARY_NAME, candidates) }?;
        let backend = Backend::resolve(library)?;
        match backend.version() {
            // The oldest libraries do not say; their core is the same.
            None => Ok(backend),
            Some(version) if major(&version) == Some(MAJOR_VERSION) => Ok(backend),
            Some(found) => Err(LibraryError::VersionMismatch {
                wanted: format!("{MAJOR_VERSION}.x"),
                found,
                path: backend.library.path().to_path_buf(),
            }),
        }
    }

    /// The library's version text, `MAJOR.MINOR.PATCH` or with a fourth field; the oldest libraries have none.
    pub fn version(&self) -> Option<String> {
        let text = if let Some(version_string) = self.version_string {
            // SAFETY: the function takes nothing.
            unsafe { version_string() }
        } else {
            let mut text = std::ptr::null();
            // SAFETY: `text` is valid for the call.
            let status = unsafe { self.get_version?(&mut text) };
            if status != Status::SUCCESS {
                return None;
            }
            text
        };
        if text.is_null() {
            return None;
        }
        // SAFETY: the text ends in a NUL and lives as long as the library, which `self` keeps open.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// The candidate that was opened.
    pub fn path(&self) -> PathBuf {
        self.library.path().to_path_buf()
    }

    /// The calling thread's last error text, which this call clears; empty if there is none.
    pub fn take_last_error(&self) -> String {
        let mut text = [0u8; ERROR_STRING_MAX_LENGTH];
        // SAFETY: `text` has as many bytes as we say.
        unsafe { (self.get_last_error_string)(text.as_mut_ptr().cast(), text.len()) };
        text[text.len() - 1] = 0;
        let end = text.iter().position(|b| *b == 0).expect("the last byte is NUL");
        String::from_utf8_lossy(&text[..end]).into_owned()
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majors() {
        for (text, want) in [("1.3.0.0", Some(1)), ("2.0.0", Some(2)), ("1", Some(1)), ("", None), ("v1.2", None)] {
            assert_eq!(major(text), want, "{text:?}");
        }
    }

    #[test]
    fn names_come_with_their_prefix() {
        assert_eq!(Status::BAD_PARAM.name(), Some("HIPDNN_STATUS_BAD_PARAM"));
        assert_eq!(AttributeName(608).to_string(), "HIPDNN_ATTR_OPERATIONGRAPH_NAME_EXT");
        assert_eq!(AttributeName(99).name(), None);
        assert_eq!(Status(-5).to_string(), "HIPDNN_STATUS_-5");
    }

    #[test]
    fn no_number_is_given_twice() {
        fn unique<T: std::hash::Hash + Eq>(all: &[T]) -> bool {
            all.iter().collect::<std::collections::HashSet<_>>().len() == all.len()
        }
        assert!(unique(AttributeName::ALL));
        assert!(unique(AttributeType::ALL));
        assert!(unique(DescriptorType::ALL));
        assert!(unique(Backend::SYMBOLS));
    }

    #[test]
    fn a_library_that_is_no_backend_lacks_a_symbol() {
        // SAFETY: the C library is loaded already, and no symbol of the table is in it.
        let error = unsafe { Backend::open(["libc.so.6"]) }.unwrap_err();
        assert_eq!(error.to_string(), "libc.so.6 has no symbol hipdnnCreate");
    }
}
