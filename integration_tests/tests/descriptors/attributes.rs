//! hipDNN's operation descriptors as its headers and frontend have them: numbers, element types, and the wire format's
//! fields that they stand for. The backend's own table is another one; tests hold the two against each other.

/// Element type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element {
    Tensor,
    Tensors,
    Boolean,
    Int32,
    Int64,
    Float,
    Char,
    /// `hipdnnBackendAttributeType_t` of the enumeration.
    Enumerator(i32),
}

use Element::{Boolean, Char, Enumerator, Float, Int32, Int64, Tensor, Tensors};

/// Attributes with numbers in a row: the first one, their element type, and their fields.
type Run = (i32, Element, &'static [&'static str]);

/// One kind of operation.
pub(crate) struct Operation {
    /// The attributes table of the wire format.
    pub(crate) table: &'static str,
    pub(crate) descriptor: i32,
    pub(crate) operation: i32,
    pub(crate) runs: &'static [Run],
}

impl Operation {
    /// Number, element type and field of each attribute.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (i32, Element, &'static str)> {
        self.runs.iter().flat_map(|(first, element, fields)| {
            fields.iter().enumerate().map(move |(index, field)| (first + index as i32, *element, *field))
        })
    }
}

const DATA_TYPE: Element = Enumerator(1);
const NORM_FWD_PHASE: Element = Enumerator(22);
const CONVOLUTION_MODE: Element = Enumerator(24);
const POINTWISE_MODE: Element = Enumerator(25);
const DIAGONAL_ALIGNMENT: Element = Enumerator(26);
const ATTENTION_IMPLEMENTATION: Element = Enumerator(27);
const REDUCTION_OPERATOR: Element = Enumerator(28);
const RESAMPLE_MODE: Element = Enumerator(29);
const PADDING_MODE: Element = Enumerator(30);
const MOE_MODE: Element = Enumerator(31);

const COMPUTE: &[&str] = &["compute_data_type"];
const MASKS: &[&str] = &["alibi_mask", "padding_mask", "causal_mask", "causal_mask_bottom_right"];
const PROBABILITY_AND_SCALE: &[&str] = &["dropout_probability", "attn_scale_value"];
const BOUNDS: &[&str] = &["left_bound", "right_bound"];

macro_rules! convolution {
    ($table:literal, $descriptor:literal, $operation:literal, $first:literal, $tensors:expr) => {
        Operation {
            table: $table,
            descriptor: $descriptor,
            operation: $operation,
            runs: &[
                ($first, Tensor, $tensors),
                (1500, DATA_TYPE, COMPUTE),
                (1501, CONVOLUTION_MODE, &["conv_mode"]),
                (1502, Int64, &["dilation", "stride", "post_padding", "pre_padding"]),
            ],
        }
    };
}

macro_rules! resample {
    ($table:literal, $descriptor:literal, $operation:literal, $($run:expr),*) => {
        Operation {
            table: $table,
            descriptor: $descriptor,
            operation: $operation,
            runs: &[
                $($run,)*
                (3400, RESAMPLE_MODE, &["resample_mode"]),
                (3401, Int64, &["pre_padding", "post_padding", "stride", "window"]),
                (3405, PADDING_MODE, &["padding_mode"]),
                (3407, DATA_TYPE, COMPUTE),
            ],
        }
    };
}

/// Every operation, by descriptor type.
pub(crate) static OPERATIONS: &[Operation] = &[
    convolution!("ConvolutionFwdAttributes", 15, 1, 1400, &["w_tensor_uid", "x_tensor_uid", "y_tensor_uid"]),
    convolution!("ConvolutionWrwAttributes", 16, 3, 1600, &["x_tensor_uid", "dy_tensor_uid", "dw_tensor_uid"]),
    Operation {
        table: "BatchnormInferenceAttributes",
        descriptor: 17,
        operation: 4,
        runs: &[
            (
                1800,
                Tensor,
                &[
                    "x_tensor_uid",
                    "mean_tensor_uid",
                    "inv_variance_tensor_uid",
                    "scale_tensor_uid",
                    "bias_tensor_uid",
                    "y_tensor_uid",
                ],
            ),
            (1806, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "PointwiseAttributes",
        descriptor: 18,
        operation: 8,
        runs: &[
            (2200, Tensor, &["in_0_tensor_uid", "out_0_tensor_uid", "in_1_tensor_uid", "in_2_tensor_uid"]),
            (2300, POINTWISE_MODE, &["operation"]),
            (
                2301,
                Float,
                &[
                    "relu_lower_clip",
                    "relu_upper_clip",
                    "relu_lower_clip_slope",
                    "swish_beta",
                    "elu_alpha",
                    "softplus_beta",
                ],
            ),
            (2307, DATA_TYPE, COMPUTE),
            (2308, Int64, &["axis_tensor_uid"]),
        ],
    },
    convolution!("ConvolutionBwdAttributes", 19, 2, 1700, &["dy_tensor_uid", "w_tensor_uid", "dx_tensor_uid"]),
    Operation {
        table: "BatchnormBackwardAttributes",
        descriptor: 20,
        operation: 5,
        runs: &[
            (
                2000,
                Tensor,
                &[
                    "dy_tensor_uid",
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "dx_tensor_uid",
                    "dscale_tensor_uid",
                    "dbias_tensor_uid",
                    "mean_tensor_uid",
                    "inv_variance_tensor_uid",
                ],
            ),
            (2100, DATA_TYPE, COMPUTE),
            (2101, Tensors, &["peer_stats_tensor_uid"]),
        ],
    },
    Operation {
        table: "BatchnormInferenceAttributesVarianceExt",
        descriptor: 21,
        operation: 6,
        runs: &[
            (
                1900,
                Tensor,
                &[
                    "x_tensor_uid",
                    "mean_tensor_uid",
                    "variance_tensor_uid",
                    "scale_tensor_uid",
                    "bias_tensor_uid",
                    "y_tensor_uid",
                    "epsilon_tensor_uid",
                ],
            ),
            (1907, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "MatmulAttributes",
        descriptor: 22,
        operation: 9,
        runs: &[(2500, Tensor, &["a_tensor_uid", "b_tensor_uid", "c_tensor_uid"]), (2503, DATA_TYPE, COMPUTE)],
    },
    Operation {
        table: "RMSNormAttributes",
        descriptor: 23,
        operation: 10,
        runs: &[
            (
                2400,
                Tensor,
                &[
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "epsilon_tensor_uid",
                    "y_tensor_uid",
                    "bias_tensor_uid",
                    "inv_rms_tensor_uid",
                ],
            ),
            (2406, NORM_FWD_PHASE, &["forward_phase"]),
            (2407, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "SdpaAttributes",
        descriptor: 24,
        operation: 12,
        runs: &[
            (
                2600,
                Tensor,
                &[
                    "q_tensor_uid",
                    "k_tensor_uid",
                    "v_tensor_uid",
                    "o_tensor_uid",
                    "attn_mask_tensor_uid",
                    "scale_tensor_uid",
                    "seq_len_q_tensor_uid",
                    "seq_len_kv_tensor_uid",
                    "seed_tensor_uid",
                    "offset_tensor_uid",
                    "dropout_mask_tensor_uid",
                    "dropout_scale_tensor_uid",
                    "page_table_k_tensor_uid",
                    "page_table_v_tensor_uid",
                    "block_mask_tensor_uid",
                    "sink_token_tensor_uid",
                    "descale_q_tensor_uid",
                    "descale_k_tensor_uid",
                    "descale_v_tensor_uid",
                    "descale_s_tensor_uid",
                    "scale_s_tensor_uid",
                    "scale_o_tensor_uid",
                    "stats_tensor_uid",
                    "max_tensor_uid",
                    "sum_exp_tensor_uid",
                    "rng_dump_tensor_uid",
                    "amax_s_tensor_uid",
                    "amax_o_tensor_uid",
                ],
            ),
            (2628, Boolean, &["generate_stats"]),
            (2629, Boolean, MASKS),
            (2633, Float, PROBABILITY_AND_SCALE),
            (2635, Int64, BOUNDS),
            (2637, Int32, &["max_seq_len_kv"]),
            (2638, DIAGONAL_ALIGNMENT, &["diagonal_alignment"]),
            (2639, DATA_TYPE, &["mma_core_mode"]),
            (2640, ATTENTION_IMPLEMENTATION, &["implementation"]),
            (2641, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "LayernormAttributes",
        descriptor: 25,
        operation: 11,
        runs: &[
            (
                2700,
                Tensor,
                &[
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "bias_tensor_uid",
                    "epsilon_tensor_uid",
                    "y_tensor_uid",
                    "mean_tensor_uid",
                    "inv_variance_tensor_uid",
                ],
            ),
            (2707, NORM_FWD_PHASE, &["forward_phase"]),
            (2708, DATA_TYPE, COMPUTE),
            (2709, Int64, &["normalized_dim_count"]),
        ],
    },
    Operation {
        table: "BlockScaleQuantizeAttributes",
        descriptor: 26,
        operation: 13,
        runs: &[
            (2800, Tensor, &["x_tensor_uid", "y_tensor_uid", "scale_tensor_uid"]),
            (2803, Int32, &["block_size"]),
            (2804, Int64, &["axis"]),
            (2805, Boolean, &["transpose"]),
            (2806, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "BatchnormAttributes",
        descriptor: 27,
        operation: 7,
        runs: &[
            (
                2900,
                Tensor,
                &[
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "bias_tensor_uid",
                    "epsilon_tensor_uid",
                    "y_tensor_uid",
                    "prev_running_mean_tensor_uid",
                    "prev_running_variance_tensor_uid",
                    "momentum_tensor_uid",
                    "mean_tensor_uid",
                    "inv_variance_tensor_uid",
                    "next_running_mean_tensor_uid",
                    "next_running_variance_tensor_uid",
                ],
            ),
            (2912, DATA_TYPE, COMPUTE),
            (2913, Tensors, &["peer_stats_tensor_uid"]),
        ],
    },
    Operation {
        table: "BlockScaleDequantizeAttributes",
        descriptor: 28,
        operation: 15,
        runs: &[
            (2807, Tensor, &["x_tensor_uid", "scale_tensor_uid", "y_tensor_uid"]),
            (2810, Int32, &["block_size"]),
            (2811, Boolean, &["is_negative_scale"]),
            (2812, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "CustomOpAttributes",
        descriptor: 29,
        operation: 16,
        runs: &[
            (3000, Tensors, &["input_tensor_uids", "output_tensor_uids"]),
            (3002, Char, &["custom_op_id", "data"]),
            (3004, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "SdpaBackwardAttributes",
        descriptor: 30,
        operation: 14,
        runs: &[
            (
                3100,
                Tensor,
                &[
                    "q_tensor_uid",
                    "k_tensor_uid",
                    "v_tensor_uid",
                    "o_tensor_uid",
                    "do_tensor_uid",
                    "stats_tensor_uid",
                    "dq_tensor_uid",
                    "dk_tensor_uid",
                    "dv_tensor_uid",
                    "scale_tensor_uid",
                    "attn_mask_tensor_uid",
                    "seq_len_q_tensor_uid",
                    "seq_len_kv_tensor_uid",
                    "seed_tensor_uid",
                    "offset_tensor_uid",
                    "dropout_mask_tensor_uid",
                    "dropout_scale_tensor_uid",
                    "dropout_scale_inv_tensor_uid",
                    "dbias_tensor_uid",
                ],
            ),
            (3119, Boolean, MASKS),
            (3123, Float, PROBABILITY_AND_SCALE),
            (3125, Int64, BOUNDS),
            (3127, DIAGONAL_ALIGNMENT, &["diagonal_alignment"]),
            (3128, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "ReductionAttributes",
        descriptor: 31,
        operation: 17,
        runs: &[
            (3200, Tensor, &["in_tensor_uid", "out_tensor_uid"]),
            (3202, REDUCTION_OPERATOR, &["mode"]),
            (3203, DATA_TYPE, COMPUTE),
            (3204, Boolean, &["is_deterministic"]),
        ],
    },
    resample!(
        "ResampleFwdAttributes",
        32,
        18,
        (3300, Tensor, &["x_tensor_uid", "y_tensor_uid", "index_tensor_uid"]),
        (3406, Boolean, &["generate_index"])
    ),
    Operation {
        table: "RMSNormBackwardAttributes",
        descriptor: 33,
        operation: 19,
        runs: &[
            (
                3500,
                Tensor,
                &[
                    "dy_tensor_uid",
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "inv_rms_tensor_uid",
                    "dx_tensor_uid",
                    "dscale_tensor_uid",
                    "dbias_tensor_uid",
                ],
            ),
            (3507, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "LayernormBackwardAttributes",
        descriptor: 35,
        operation: 20,
        runs: &[
            (
                3600,
                Tensor,
                &[
                    "dy_tensor_uid",
                    "x_tensor_uid",
                    "scale_tensor_uid",
                    "mean_tensor_uid",
                    "inv_variance_tensor_uid",
                    "epsilon_tensor_uid",
                    "dx_tensor_uid",
                    "dscale_tensor_uid",
                    "dbias_tensor_uid",
                ],
            ),
            (3609, Int64, &["normalized_dim_count"]),
            (3610, DATA_TYPE, COMPUTE),
        ],
    },
    resample!("ResampleBwdAttributes", 36, 21, (3408, Tensor, &["dy_tensor_uid", "dx_tensor_uid", "index_tensor_uid"])),
    Operation {
        table: "MoeGroupedMatmulAttributes",
        descriptor: 37,
        operation: 22,
        runs: &[
            (
                3700,
                Tensor,
                &[
                    "token_tensor_uid",
                    "weight_tensor_uid",
                    "first_token_offset_tensor_uid",
                    "token_index_tensor_uid",
                    "token_ks_tensor_uid",
                    "output_tensor_uid",
                ],
            ),
            (3706, MOE_MODE, &["mode"]),
            (3707, Int32, &["top_k"]),
            (3708, DATA_TYPE, COMPUTE),
        ],
    },
    Operation {
        table: "MoeGroupedMatmulBwdAttributes",
        descriptor: 38,
        operation: 23,
        runs: &[
            (
                3800,
                Tensor,
                &["doutput_tensor_uid", "token_tensor_uid", "first_token_offset_tensor_uid", "dweight_tensor_uid"],
            ),
            (3804, DATA_TYPE, COMPUTE),
        ],
    },
];

/// The enumerators of an enumeration by hipDNN's JSON spelling, in the order of C's numbers, of which the first is given.
pub(crate) fn enumerators(element: i32) -> (i64, Vec<String>) {
    let (first, names): (i64, &[&str]) = match element {
        1 => (
            0,
            &[
                "float",
                "double",
                "half",
                "int8",
                "int32",
                "uint8",
                "bfloat16",
                "fp8_e4m3",
                "fp8_e5m2",
                "fp8_e8m0",
                "fp4_e2m1",
                "int4",
                "fp6_e2m3",
                "fp6_e3m2",
                "int64",
                "boolean",
                "fp8_e4m3_fnuz",
                "fp8_e5m2_fnuz",
            ],
        ),
        22 => (1, &["INFERENCE", "TRAINING"]),
        24 => (0, &["CONVOLUTION", "CROSS_CORRELATION"]),
        25 => return (1, pointwise_modes()),
        26 => (0, &["TOP_LEFT", "BOTTOM_RIGHT"]),
        27 => (0, &["AUTO", "COMPOSITE", "UNIFIED"]),
        28 => (1, &["add", "mul", "min", "max", "amax", "avg", "norm1", "norm2", "mul_no_zeros"]),
        29 => (1, &["maxpool", "avgpool_exclude_padding", "avgpool_include_padding"]),
        30 => (1, &["neg_inf_pad", "zero_pad"]),
        31 => (0, &["none", "gather", "scatter"]),
        other => panic!("no enumeration of type {other}"),
    };
    (first, names.iter().map(|name| name.to_string()).collect())
}

/// Modes in the order of their numbers by the table of hipDNN's own: 1, 2, ….
fn pointwise_modes() -> Vec<String> {
    let table = include_str!("../../../schemas/tests/hipdnn_numbers.txt").lines();
    let modes = table.filter_map(|line| line.strip_prefix("PointwiseMode ")?.split_once(' '));
    let modes = modes.filter(|(name, _)| *name != "UNSET").zip(1..).map(|((name, number), place)| {
        assert_eq!(number.parse(), Ok(place), "{name}");
        name.to_lowercase()
    });
    modes.collect()
}
