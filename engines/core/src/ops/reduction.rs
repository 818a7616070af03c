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

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{Operation, ReductionMode, TensorUid};

    use super::*;
    use crate::ops::testing::{Tensors, reason};
    use DataType::{BFloat16, Double, Float, Half, Int8, Int32, Int64};

    /// Element types of the input, of the output and of the arithmetic are checked each: the engine's own for tensors, floats and
    /// 32-bit integers for the arithmetic.
    #[test]
    fn reductions_are_of_the_engines_types() {
        let node =
            Reduction { mode: ReductionMode::Add, input: TensorUid(1), output: TensorUid(2), is_deterministic: false };
        let operation = Operation::Reduction(node.clone());
        let tensors = Tensors::new(&[(1, &[2, 3]), (2, &[2, 1])]);
        let answer = |graph: &Graph| reason(check(graph, 0, &node, &[Float, Int8]));
        for (input, output, want) in [
            (Float, Float, ""),
            (Int8, Float, ""),
            (Half, Float, "in (tensor 1): expected float or int8, got half"),
            (Float, Half, "out (tensor 2): expected float or int8, got half"),
            (Int64, Double, "in (tensor 1): expected float or int8, got int64"),
        ] {
            let graph = tensors.typed(1, input).typed(2, output).graph(operation.clone());
            assert_eq!(answer(&graph), want, "{input}, {output}");
        }
        for compute in [Float, Half, BFloat16, Double, Int32] {
            assert_eq!(answer(&tensors.graph_in(compute, operation.clone())), "", "{compute}");
        }
        let want = "compute_data_type: expected float, half, bfloat16, double or int32, got int8";
        assert_eq!(answer(&tensors.graph_in(Int8, operation)), want);
    }
}
