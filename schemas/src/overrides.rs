//! Override shapes: the shapes of one execution in place of those that a graph declares.
//!
//! The extents that a graph declares are the largest ones of any execution, and ranks never change. A client says the
//! shapes of the tensors that it has memory for; those of intermediates follow, unless it says them too.

use std::collections::HashMap;

use crate::inference::Inference;
use crate::{Graph, GraphError, TensorDef, TensorUid};

/// Shape of a tensor at one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeOverride<'a> {
    /// Tensor of the graph.
    pub uid: TensorUid,
    /// Extents: as many as the graph declares, each of 1 to the declared one.
    pub dims: &'a [i64],
    /// Strides in elements, one for each extent.
    pub strides: &'a [i64],
}

impl Graph {
    /// The graph of one execution: with these shapes, and with those that follow from them for intermediates. It allows
    /// no further overrides.
    ///
    /// # Errors
    /// If a tensor is not of this graph, is given twice, or has another number of extents or larger ones than declared; if
    /// an intermediate's extents don't follow; and as [`Graph::new`].
    pub fn overridden(&self, overrides: &[ShapeOverride<'_>]) -> Result<Graph, GraphError> {
        let mut given = HashMap::with_capacity(overrides.len());
        for shape in overrides {
            let wrong = |reason| GraphError::Tensor { uid: shape.uid.0, reason };
            let declared = self.find(shape.uid).ok_or_else(|| wrong("the graph does not have it".to_string()))?;
            check(shape, &declared.def).map_err(wrong)?;
            if given.insert(shape.uid, shape).is_some() {
                return Err(wrong("its shape is given twice".to_string()));
            }
        }
        let mut inference = Inference::new(self, overrides);
        for (index, node) in self.nodes().iter().enumerate() {
            for uid in node.operation.outputs() {
                if self.tensor(uid).is_virtual() && !given.contains_key(&uid) {
                    inference.infer(&node.operation, uid).map_err(|reason| GraphError::Node {
                        index,
                        kind: node.operation.kind(),
                        reason,
                    })?;
                }
            }
        }
        let mut def = self.def();
        def.is_override_shape_enabled = false;
        for tensor in &mut def.tensors {
            if let Some(shape) = given.get(&tensor.uid) {
                (tensor.dims, tensor.strides) = (shape.dims.into(), shape.strides.into());
            } else if let Some(dims) = inference.changed(tensor.uid) {
                tensor.strides = strides_in_order(&dims, &tensor.strides).into();
                tensor.dims = dims.into();
            }
        }
        Graph::new(def)
    }
}

fn check(shape: &ShapeOverride<'_>, declared: &TensorDef) -> Result<(), String> {
    let rank = declared.dims.len();
    for (what, count) in [("extents", shape.dims.len()), ("strides", shape.strides.len())] {
        if count != rank {
            return Err(format!("override shape: expected {rank} {what}, as the graph declares, got {count}"));
        }
    }
    for (axis, (extent, most)) in shape.dims.iter().zip(&declared.dims).enumerate() {
        if !(1..=*most).contains(extent) {
            return Err(format!(
                "override shape: expected 1 to the declared extent {most} in dimension {axis}, got {extent}"
            ));
        }
    }
    Ok(())
}

/// Strides of a packed tensor whose dimensions lie in memory in the order of these strides. Dimensions that broadcast keep
/// doing so.
fn strides_in_order(dims: &[i64], order: &[i64]) -> Vec<i64> {
    let mut axes: Vec<usize> = (0..dims.len()).filter(|axis| order[*axis] != 0).collect();
    // The innermost first; of equal ones the last.
    axes.sort_by_key(|axis| (order[*axis], std::cmp::Reverse(*axis)));
    let mut strides = vec![0; dims.len()];
    let mut step = 1i64;
    for axis in axes {
        strides[axis] = step;
        step = step.saturating_mul(dims[axis]);
    }
    strides
}

#[cfg(test)]
mod tests;
