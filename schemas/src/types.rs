//! The enumerations of the wire format, with their wire numbers and their spelling in hipDNN's JSON.

/// Declares an enumeration whose variants carry a wire number, a JSON name, and other JSON names that are read.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $number:literal, $json:literal $(| $other:literal)*;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i8)]
        pub enum $name { $($(#[$vmeta])* $variant = $number),* }

        impl $name {
            /// Every variant, in the order of the wire numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number that stands for this variant on the wire.
            pub const fn wire(self) -> i8 {
                self as i8
            }

            /// The variant with this wire number, if this version of the format has one.
            pub const fn from_wire(number: i8) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// The spelling in hipDNN's JSON form.
            pub const fn json_name(self) -> &'static str {
                match self { $($name::$variant => $json),* }
            }

            /// The variant with this JSON spelling, or with another one that hipDNN or this project has written.
            pub fn from_json_name(name: &str) -> Option<Self> {
                match name {
                    $($json $(| $other)* => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.json_name())
            }
        }
    };
}

wire_enum! {
    /// Element type of a tensor, or the type a node computes in.
    #[derive(Default)]
    DataType {
        /// Not given: the graph's default applies.
        #[default]
        Unset = 0, "unset";
        /// IEEE 754 binary32.
        Float = 1, "float";
        /// IEEE 754 binary16.
        Half = 2, "half";
        /// bfloat16.
        BFloat16 = 3, "bfloat16";
        /// IEEE 754 binary64.
        Double = 4, "double";
        /// Unsigned 8-bit integer.
        UInt8 = 5, "uint8";
        /// Signed 32-bit integer.
        Int32 = 6, "int32";
        /// Signed 8-bit integer.
        Int8 = 7, "int8";
        /// 8-bit float, 4 exponent bits.
        Fp8E4M3 = 8, "fp8_e4m3";
        /// 8-bit float, 5 exponent bits.
        Fp8E5M2 = 9, "fp8_e5m2";
        /// 8-bit scale: exponent only.
        Fp8E8M0 = 10, "fp8_e8m0";
        /// 4-bit float.
        Fp4E2M1 = 11, "fp4_e2m1";
        /// 6-bit float, 2 exponent bits.
        Fp6E2M3 = 12, "fp6_e2m3";
        /// 6-bit float, 3 exponent bits.
        Fp6E3M2 = 13, "fp6_e3m2";
        /// Signed 4-bit integer.
        Int4 = 14, "int4";
        /// Signed 64-bit integer.
        Int64 = 15, "int64";
        /// One byte, zero or one.
        Boolean = 16, "boolean";
        /// 8-bit float, 4 exponent bits, finite with one zero.
        Fp8E4M3Fnuz = 17, "fp8_e4m3_fnuz";
        /// 8-bit float, 5 exponent bits, finite with one zero.
        Fp8E5M2Fnuz = 18, "fp8_e5m2_fnuz";
    }
}

impl DataType {
    /// Bits of one element; `None` for [`DataType::Unset`].
    pub const fn bits(self) -> Option<u32> {
        Some(match self {
            DataType::Unset => return None,
            DataType::Double | DataType::Int64 => 64,
            DataType::Float | DataType::Int32 => 32,
            DataType::Half | DataType::BFloat16 => 16,
            DataType::UInt8
            | DataType::Int8
            | DataType::Fp8E4M3
            | DataType::Fp8E5M2
            | DataType::Fp8E8M0
            | DataType::Fp8E4M3Fnuz
            | DataType::Fp8E5M2Fnuz
            | DataType::Boolean => 8,
            DataType::Fp6E2M3 | DataType::Fp6E3M2 => 6,
            DataType::Fp4E2M1 | DataType::Int4 => 4,
        })
    }
}

wire_enum! {
    /// Convolution or cross-correlation.
    ConvMode {
        /// Not given.
        Unset = 0, "UNSET";
        /// The mathematical convolution: the filter is flipped along every spatial dimension.
        Convolution = 1, "CONVOLUTION";
        /// Cross-correlation, the convolution of deep-learning frameworks: no flip.
        CrossCorrelation = 2, "CROSS_CORRELATION";
    }
}

// Made from `fbs/pointwise.fbs`.
#[path = "generated/pointwise_mode.rs"]
mod pointwise_mode;

pub use pointwise_mode::PointwiseMode;

wire_enum! {
    /// Combining operation of a reduction.
    #[expect(missing_docs, reason = "the names are the operations")]
    ReductionMode {
        Unset = 0, "not_set";
        Add = 1, "add";
        Mul = 2, "mul";
        Min = 3, "min" | "min_op";
        Max = 4, "max" | "max_op";
        AbsMax = 5, "amax";
        Average = 6, "avg";
        Norm1 = 7, "norm1";
        Norm2 = 8, "norm2";
        MulNoZeros = 9, "mul_no_zeros";
    }
}

wire_enum! {
    /// Pooling or interpolation mode of a resample node: the combination of its window's elements.
    #[expect(missing_docs, reason = "the names are the operations")]
    ResampleMode {
        Unset = 0, "not_set";
        MaxPool = 1, "maxpool";
        AvgPoolExcludePadding = 2, "avgpool_exclude_padding";
        AvgPoolIncludePadding = 3, "avgpool_include_padding";
        Bilinear = 4, "bilinear";
        Nearest = 5, "nearest";
    }
}

wire_enum! {
    /// Padding value of a resample node.
    PaddingMode {
        /// Not given.
        Unset = 0, "not_set" | "padding_not_set";
        /// Minus infinity.
        NegInf = 1, "neg_inf_pad";
        /// Zero.
        Zero = 2, "zero_pad";
    }
}

wire_enum! {
    /// Phase of a normalization: training also returns the statistics.
    #[derive(Default)]
    NormFwdPhase {
        /// Not given.
        #[default]
        Unset = 0, "NOT_SET" | "not_set";
        /// Only the result.
        Inference = 1, "INFERENCE" | "inference";
        /// The result and the statistics the backward pass needs.
        Training = 2, "TRAINING" | "training";
    }
}

wire_enum! {
    /// Corner of the attention matrix that its diagonal starts from.
    DiagonalAlignment {
        /// Query 0 is aligned with key 0.
        TopLeft = 0, "TOP_LEFT" | "top_left";
        /// The last query is aligned with the last key.
        BottomRight = 1, "BOTTOM_RIGHT" | "bottom_right";
    }
}

wire_enum! {
    /// Requested implementation of attention.
    AttentionImplementation {
        /// The engine decides.
        Auto = 0, "AUTO" | "auto";
        /// As separate operations.
        Composite = 1, "COMPOSITE" | "composite";
        /// As one kernel.
        Unified = 2, "UNIFIED" | "unified";
    }
}

wire_enum! {
    /// Indexed side of a mixture-of-experts matmul.
    MoeGroupedMatmulMode {
        /// Tokens are already ordered by expert.
        None = 0, "none";
        /// Tokens are gathered.
        Gather = 1, "gather";
        /// Results are scattered.
        Scatter = 2, "scatter";
    }
}
