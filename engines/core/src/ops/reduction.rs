//! Reductions: elements combined along the dimensions in which the output has extent 1. The greatest and the least of
//! elements with a NaN among them are NaN.

use hipdnn_schemas::{DataType, Graph, Reduction};

use crate::Declined;
use crate::checks::{check_compute_type, check_type};

/// Types that a reduction may ask to be computed in.
pub const COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32];

/// Checks a reduction of tensors of these types.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn check(graph: &Graph, index: usize, node: &Reduction, types: &[DataType]) -> Result<(), Declined> {
    check_compute_type(graph, index, COMPUTE)?;
    check_type(graph, index, "in", node.input, types)?;
    check_type(graph, index, "out", node.output, types)
}
