//! Conversions between the C enumerations and the wire format's: some numbers differ, and C has no unset values.

use hipdnn_schemas::{
    AttentionImplementation, ConvMode, DataType, DiagonalAlignment, MoeGroupedMatmulMode, NormFwdPhase, PaddingMode,
    PointwiseMode, ReductionMode, ResampleMode,
};
use hipdnn_sdk_bindings::hipdnn::backend as c;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeType;

use crate::error::{Error, Result};

const DATA_TYPES: &[(c::DataType, DataType)] = &[
    (c::DataType::FLOAT, DataType::Float),
    (c::DataType::DOUBLE, DataType::Double),
    (c::DataType::HALF, DataType::Half),
    (c::DataType::INT8, DataType::Int8),
    (c::DataType::INT32, DataType::Int32),
    (c::DataType::UINT8, DataType::UInt8),
    (c::DataType::BFLOAT16, DataType::BFloat16),
    (c::DataType::FP8_E4M3, DataType::Fp8E4M3),
    (c::DataType::FP8_E5M2, DataType::Fp8E5M2),
    (c::DataType::FP8_E8M0, DataType::Fp8E8M0),
    (c::DataType::FP4_E2M1, DataType::Fp4E2M1),
    (c::DataType::INT4, DataType::Int4),
    (c::DataType::FP6_E2M3_EXT, DataType::Fp6E2M3),
    (c::DataType::FP6_E3M2_EXT, DataType::Fp6E3M2),
    (c::DataType::INT64, DataType::Int64),
    (c::DataType::BOOLEAN, DataType::Boolean),
    (c::DataType::FP8_E4M3_FNUZ, DataType::Fp8E4M3Fnuz),
    (c::DataType::FP8_E5M2_FNUZ, DataType::Fp8E5M2Fnuz),
];

/// An enumeration of the wire format that is the element type of attributes.
pub(crate) trait Enumeration: Copy {
    const ELEMENT: AttributeType;

    /// The variant with C's number.
    fn from_c(number: i32) -> Result<Self>;

    /// C's number; `None` for a value that C lacks, above all an unset one, which C expresses by not setting the attribute.
    fn to_c(self) -> Option<i32>;
}

impl Enumeration for DataType {
    const ELEMENT: AttributeType = AttributeType::DATA_TYPE;

    fn from_c(number: i32) -> Result<DataType> {
        let found = DATA_TYPES.iter().find(|(c, _)| c.0 == number);
        found.map(|(_, wire)| *wire).ok_or_else(|| Error::bad_param(format!("no data type has number {number}")))
    }

    fn to_c(self) -> Option<i32> {
        DATA_TYPES.iter().find(|(_, wire)| *wire == self).map(|(c, _)| c.0)
    }
}

impl Enumeration for ConvMode {
    const ELEMENT: AttributeType = AttributeType::CONVOLUTION_MODE;

    fn from_c(number: i32) -> Result<ConvMode> {
        match c::ConvolutionMode(number) {
            c::ConvolutionMode::CONVOLUTION => Ok(ConvMode::Convolution),
            c::ConvolutionMode::CROSS_CORRELATION => Ok(ConvMode::CrossCorrelation),
            _ => Err(Error::bad_param(format!("no convolution mode has number {number}"))),
        }
    }

    fn to_c(self) -> Option<i32> {
        match self {
            ConvMode::Unset => None,
            ConvMode::Convolution => Some(c::ConvolutionMode::CONVOLUTION.0),
            ConvMode::CrossCorrelation => Some(c::ConvolutionMode::CROSS_CORRELATION.0),
        }
    }
}

/// Enumerations whose numbers are C's.
macro_rules! same_numbers {
    ($($wire:ident = $c:ident, $element:ident, $what:literal;)*) => { $(
        impl Enumeration for $wire {
            const ELEMENT: AttributeType = AttributeType::$element;

            fn from_c(number: i32) -> Result<$wire> {
                let known = c::$c::ALL.contains(&c::$c(number));
                let wire = i8::try_from(number).ok().filter(|_| known).and_then($wire::from_wire);
                wire.ok_or_else(|| Error::bad_param(format!(concat!("no ", $what, " has number {}"), number)))
            }

            fn to_c(self) -> Option<i32> {
                let number = i32::from(self.wire());
                c::$c::ALL.contains(&c::$c(number)).then_some(number)
            }
        }
    )* };
}

same_numbers! {
    PointwiseMode = PointwiseMode, POINTWISE_MODE, "pointwise mode";
    ReductionMode = ReduceTensorOp, REDUCTION_OPERATOR_TYPE, "reduction operator";
    ResampleMode = ResampleMode, RESAMPLE_MODE, "resample mode";
    PaddingMode = PaddingMode, PADDING_MODE, "padding mode";
    NormFwdPhase = NormFwdPhase, NORM_FWD_PHASE, "normalization phase";
    DiagonalAlignment = DiagonalAlignment, DIAGONAL_ALIGNMENT_EXT, "diagonal alignment";
    AttentionImplementation = AttentionImplementation, ATTENTION_IMPLEMENTATION_EXT, "attention implementation";
    MoeGroupedMatmulMode = MoeGroupedMatmulMode, MOE_GROUPED_MATMUL_MODE, "mixture-of-experts mode";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every variant goes to C and back, but those that C lacks.
    fn go_there_and_back<E: Enumeration + PartialEq + std::fmt::Debug>(all: &[E], c_lacks: &[E], numbers: usize) {
        for &wire in all {
            match wire.to_c() {
                Some(number) => assert_eq!(E::from_c(number).unwrap(), wire),
                None => assert!(c_lacks.contains(&wire), "{wire:?}"),
            }
        }
        assert_eq!(all.len() - c_lacks.len(), numbers, "{:?}", E::ELEMENT);
        for number in [-1, 127, 258] {
            assert!(E::from_c(number).is_err(), "{:?} {number}", E::ELEMENT);
        }
    }

    #[test]
    fn enumerations_go_there_and_back() {
        go_there_and_back(DataType::ALL, &[DataType::Unset], c::DataType::ALL.len());
        go_there_and_back(ConvMode::ALL, &[ConvMode::Unset], c::ConvolutionMode::ALL.len());
        go_there_and_back(PointwiseMode::ALL, &[PointwiseMode::Unset], c::PointwiseMode::ALL.len());
        go_there_and_back(ReductionMode::ALL, &[ReductionMode::Unset], c::ReduceTensorOp::ALL.len());
        let c_lacks = [ResampleMode::Unset, ResampleMode::Bilinear, ResampleMode::Nearest];
        go_there_and_back(ResampleMode::ALL, &c_lacks, c::ResampleMode::ALL.len());
        go_there_and_back(PaddingMode::ALL, &[PaddingMode::Unset], c::PaddingMode::ALL.len());
        go_there_and_back(NormFwdPhase::ALL, &[NormFwdPhase::Unset], c::NormFwdPhase::ALL.len());
        go_there_and_back(DiagonalAlignment::ALL, &[], c::DiagonalAlignment::ALL.len());
        go_there_and_back(AttentionImplementation::ALL, &[], c::AttentionImplementation::ALL.len());
        go_there_and_back(MoeGroupedMatmulMode::ALL, &[], c::MoeGroupedMatmulMode::ALL.len());
        assert!(DataType::from_c(18).is_err() && ConvMode::from_c(2).is_err() && PointwiseMode::from_c(0).is_err());
    }

    #[test]
    fn the_last_data_types_have_hipdnns_numbers_on_both_sides() {
        for (name, c, wire) in
            [("int64", 14, 15), ("boolean", 15, 16), ("fp8_e4m3_fnuz", 16, 17), ("fp8_e5m2_fnuz", 17, 18)]
        {
            let found = DataType::from_c(c).unwrap();
            assert_eq!((found.json_name(), found.wire()), (name, wire), "C number {c}");
        }
    }

    #[test]
    fn pointwise_numbers_coincide_by_name() {
        for mode in c::PointwiseMode::ALL {
            let name = mode.name().unwrap().strip_prefix("HIPDNN_POINTWISE_").unwrap().to_lowercase();
            assert_eq!(PointwiseMode::from_c(mode.0).unwrap().json_name().trim_end_matches("_op"), name);
        }
    }

    #[test]
    fn reduction_numbers_coincide_by_name() {
        for operator in c::ReduceTensorOp::ALL {
            let name = operator.name().unwrap().strip_prefix("HIPDNN_REDUCE_TENSOR_").unwrap().to_lowercase();
            assert_eq!(ReductionMode::from_c(operator.0).unwrap().json_name(), name);
        }
    }
}
