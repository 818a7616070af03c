//! Semantics of nodes, whatever the engine that computes them: their operands by role, the conventions that the wire
//! format leaves open, and the reasons for which no engine takes them.
//!
//! An engine reads a node with a function from here, and makes a kernel of the result.

pub mod batchnorm;
pub mod convolution;
pub mod layernorm;
pub mod normalization;
pub mod pointwise;
pub mod pooling;
#[cfg(any(test, feature = "testing"))]
pub mod pooling_cases;
pub mod reduction;
pub mod rmsnorm;
#[cfg(test)]
mod testing;

use hipdnn_schemas::DataType;

/// Types of numbers that are reduced, pooled and multiplied, in any mix: first those that every engine supports.
pub const NUMBERS_AND_FP8: &[DataType] = &[
    DataType::Float,
    DataType::Half,
    DataType::BFloat16,
    DataType::Double,
    DataType::Int32,
    DataType::Int8,
    DataType::UInt8,
    DataType::Fp8E4M3,
    DataType::Fp8E5M2,
    DataType::Fp8E4M3Fnuz,
    DataType::Fp8E5M2Fnuz,
];

/// Types of numbers that every engine supports.
pub const NUMBERS: &[DataType] = NUMBERS_AND_FP8.split_at(7).0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of operations are made of both lists: the shorter one begins the longer one, and ends before the first
    /// type of 8-bit floats.
    #[test]
    fn numbers_are_the_types_but_for_fp8() {
        assert!(NUMBERS_AND_FP8.starts_with(NUMBERS));
        assert!(NUMBERS.iter().all(|data_type| !data_type.json_name().starts_with("fp8")));
        assert!(NUMBERS_AND_FP8[NUMBERS.len()..].iter().all(|data_type| data_type.json_name().starts_with("fp8")));
    }
}
