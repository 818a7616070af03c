//! Reductions: elements combined along the dimensions in which the output has extent 1. The greatest and the least of
//! elements with a NaN among them are NaN.

use hipdnn_schemas::{DataType, Graph, Reduction};

use crate::engine::Declined;
use crate::engine::checks::{check_compute_type, check_type};

/// Types that a reduction may ask to be computed in.
pub const COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32];

/// Looks at a reduction of tensors of these types.
///
/// # Errors
/// Why the engine does not take it.
pub fn check(graph: &Graph, index: usize, node: &Reduction, types: &[DataType]) -> Result<(), Declined> {
    check_compute_type(graph, index, COMPUTE)?;
    check_type(graph, index, "in", node.input, types)?;
    check_type(graph, index, "out", node.output, types)
}
