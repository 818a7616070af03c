//! Conversions between the C enumerations and the wire format's, whose numbers differ.

use hipdnn_schemas::{ConvMode, DataType, PointwiseMode};
use hipdnn_sdk_bindings::hipdnn::backend as c;

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

pub(crate) fn data_type(number: i32) -> Result<DataType> {
    let found = DATA_TYPES.iter().find(|(c, _)| c.0 == number);
    found.map(|(_, wire)| *wire).ok_or_else(|| Error::bad_param(format!("no data type has number {number}")))
}

/// `None` for an unset type, which C expresses by not setting the attribute.
pub(crate) fn c_data_type(wire: DataType) -> Option<i32> {
    DATA_TYPES.iter().find(|(_, w)| *w == wire).map(|(c, _)| c.0)
}

pub(crate) fn conv_mode(number: i32) -> Result<ConvMode> {
    match c::ConvolutionMode(number) {
        c::ConvolutionMode::CONVOLUTION => Ok(ConvMode::Convolution),
        c::ConvolutionMode::CROSS_CORRELATION => Ok(ConvMode::CrossCorrelation),
        _ => Err(Error::bad_param(format!("no convolution mode has number {number}"))),
    }
}

pub(crate) fn c_conv_mode(wire: ConvMode) -> Option<i32> {
    match wire {
        ConvMode::Unset => None,
        ConvMode::Convolution => Some(c::ConvolutionMode::CONVOLUTION.0),
        ConvMode::CrossCorrelation => Some(c::ConvolutionMode::CROSS_CORRELATION.0),
    }
}

/// The two enumerations have the same numbers.
pub(crate) fn pointwise_mode(number: i32) -> Result<PointwiseMode> {
    let wire = i8::try_from(number).ok().and_then(PointwiseMode::from_wire);
    wire.filter(|mode| *mode != PointwiseMode::Unset)
        .ok_or_else(|| Error::bad_param(format!("no pointwise mode has number {number}")))
}

pub(crate) fn c_pointwise_mode(wire: PointwiseMode) -> Option<i32> {
    (wire != PointwiseMode::Unset).then(|| i32::from(wire.wire()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_types_go_there_and_back() {
        assert_eq!(DATA_TYPES.len(), c::DataType::ALL.len());
        for wire in DataType::ALL {
            match c_data_type(*wire) {
                Some(number) => assert_eq!(data_type(number).unwrap(), *wire),
                None => assert_eq!(*wire, DataType::Unset),
            }
        }
        assert!(data_type(-1).is_err() && data_type(18).is_err());
    }

    #[test]
    fn the_last_data_types_have_hipdnns_numbers_on_both_sides() {
        for (name, c, wire) in
            [("int64", 14, 15), ("boolean", 15, 16), ("fp8_e4m3_fnuz", 16, 17), ("fp8_e5m2_fnuz", 17, 18)]
        {
            let found = data_type(c).unwrap();
            assert_eq!((found.json_name(), found.wire()), (name, wire), "C number {c}");
        }
    }

    #[test]
    fn pointwise_numbers_coincide_by_name() {
        for mode in c::PointwiseMode::ALL {
            let name = mode.name().unwrap().strip_prefix("HIPDNN_POINTWISE_").unwrap().to_lowercase();
            let wire = pointwise_mode(mode.0).unwrap();
            assert_eq!(wire.json_name().trim_end_matches("_op"), name);
            assert_eq!(c_pointwise_mode(wire), Some(mode.0));
        }
        assert!(pointwise_mode(0).is_err() && pointwise_mode(48).is_err() && pointwise_mode(258).is_err());
    }

    #[test]
    fn convolution_modes() {
        for mode in [ConvMode::Convolution, ConvMode::CrossCorrelation] {
            assert_eq!(conv_mode(c_conv_mode(mode).unwrap()).unwrap(), mode);
        }
        assert!(conv_mode(2).is_err());
    }
}
