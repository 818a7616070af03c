//! The engine: what graphs it takes, and what it computes.

use crate::flatbuffer::{Malformed, Table};

/// Why the engine does not take a graph.
#[derive(Debug, PartialEq, Eq)]
pub struct Declined(pub String);

impl From<Malformed> for Declined {
    fn from(problem: Malformed) -> Declined {
        Declined(problem.0.to_owned())
    }
}

// Fields and numbers of the schemas, which are in share/hipdnn_rs/schemas.
mod graph {
    pub(super) const TENSORS: usize = 4;
    pub(super) const NODES: usize = 5;
}
mod node {
    pub(super) const ATTRIBUTES_TYPE: usize = 2;
    pub(super) const ATTRIBUTES: usize = 3;
}
mod tensor {
    pub(super) const UID: usize = 0;
    pub(super) const DATA_TYPE: usize = 2;
    pub(super) const STRIDES: usize = 3;
    pub(super) const DIMS: usize = 4;
    pub(super) const VIRTUAL: usize = 5;
    pub(super) const VALUE_TYPE: usize = 6;
}
mod pointwise {
    pub(super) const OPERATION: usize = 0;
    pub(super) const LOWER_CLIP: usize = 1;
    pub(super) const UPPER_CLIP: usize = 2;
    pub(super) const SLOPE: usize = 3;
    pub(super) const IN_0: usize = 5;
    pub(super) const OUT_0: usize = 8;
}
const POINTWISE_ATTRIBUTES: u8 = 2;
const FLOAT: i8 = 1;
const IDENTITY: i8 = 23;
const RELU_FWD: i8 = 34;

const MAX_RANK: usize = 8;
const MAX_TENSORS: usize = 2;
const MAX_NODES: usize = 64;
const MAX_ELEMENTS: i64 = 1 << 40;

/// One ReLU or identity, ready to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Relu {
    /// The tensor that is read.
    pub input: i64,
    /// The tensor that is written.
    pub output: i64,
    /// Elements of either.
    pub elements: usize,
    clips: bool,
}

impl Relu {
    /// The plan of a graph, or why there is none.
    pub fn of_graph(bytes: &[u8]) -> Result<Relu, Declined> {
        let root = Table::root(bytes)?;
        let nodes = root.tables(graph::NODES, MAX_NODES)?;
        let [node] = nodes[..] else { return Err(Declined(format!("expected 1 node, got {}", nodes.len()))) };
        let attributes = match (node.scalar::<u8>(node::ATTRIBUTES_TYPE)?, node.table(node::ATTRIBUTES)?) {
            (Some(POINTWISE_ATTRIBUTES), Some(attributes)) => attributes,
            _ => return Err(Declined("expected a pointwise node, got another one".to_owned())),
        };
        let operation = attributes.scalar::<i8>(pointwise::OPERATION)?.unwrap_or(0);
        if operation != RELU_FWD && operation != IDENTITY {
            return Err(Declined(format!("expected ReLU or identity, got pointwise mode {operation}")));
        }
        let zero = |field| Ok::<_, Malformed>(attributes.scalar::<f32>(field)?.unwrap_or(0.0) == 0.0);
        let unclipped = attributes.scalar::<f32>(pointwise::UPPER_CLIP)?.is_none();
        if !(zero(pointwise::LOWER_CLIP)? && zero(pointwise::SLOPE)? && unclipped) {
            return Err(Declined("expected a ReLU without clips and slope, got one with them".to_owned()));
        }
        let input = attributes.scalar(pointwise::IN_0)?.unwrap_or(0);
        let output = attributes.scalar(pointwise::OUT_0)?.unwrap_or(0);
        let tensors = root.tables(graph::TENSORS, MAX_TENSORS)?;
        let (x, y) = (Shape::of(&tensors, input)?, Shape::of(&tensors, output)?);
        match x.dense() {
            Some(elements) if x == y => Ok(Relu { input, output, elements, clips: operation == RELU_FWD }),
            _ => Err(Declined("expected dense tensors of equal extents and strides, got others".to_owned())),
        }
    }

    /// Computes one element. NaN stays NaN: it is not below zero.
    pub fn apply(&self, x: f32) -> f32 {
        if self.clips && x < 0.0 { 0.0 } else { x }
    }
}

#[derive(PartialEq)]
struct Shape {
    dims: Vec<i64>,
    strides: Vec<i64>,
}

impl Shape {
    /// The shape of a tensor that the engine can work on.
    fn of(tensors: &[Table<'_>], uid: i64) -> Result<Shape, Declined> {
        for found in tensors {
            if found.scalar::<i64>(tensor::UID)?.unwrap_or(0) != uid {
                continue;
            }
            if found.scalar::<i8>(tensor::DATA_TYPE)? != Some(FLOAT) {
                return Err(Declined(format!("expected float, got tensor {uid} of another type")));
            }
            for (field, kind) in [(tensor::VIRTUAL, "a virtual"), (tensor::VALUE_TYPE, "a constant")] {
                if found.scalar::<u8>(field)?.unwrap_or(0) != 0 {
                    return Err(Declined(format!("expected memory of the caller, got {kind} tensor {uid}")));
                }
            }
            let (dims, strides) = (found.longs(tensor::DIMS, MAX_RANK)?, found.longs(tensor::STRIDES, MAX_RANK)?);
            return Ok(Shape { dims, strides });
        }
        Err(Declined(format!("tensor {uid} is not in the graph")))
    }

    /// The number of elements if they fill one piece of memory, in whatever order of dimensions.
    fn dense(&self) -> Option<usize> {
        if self.dims.is_empty() || self.dims.len() != self.strides.len() || self.dims.iter().any(|extent| *extent < 1) {
            return None;
        }
        let mut order: Vec<(i64, i64)> = self.strides.iter().copied().zip(self.dims.iter().copied()).collect();
        order.retain(|(_, extent)| *extent > 1);
        order.sort_unstable();
        let mut elements = 1;
        for (stride, extent) in order {
            if stride != elements || extent > MAX_ELEMENTS / elements {
                return None;
            }
            elements *= extent;
        }
        usize::try_from(elements).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_is_one_piece_in_any_order() {
        for (dims, strides, wanted) in [
            (vec![2, 3, 4], vec![12, 4, 1], Some(24)),
            (vec![2, 3, 4], vec![12, 1, 3], Some(24)),
            (vec![1, 3, 1], vec![77, 1, 5], Some(3)),
            (vec![2, 3], vec![4, 1], None),
            (vec![2, 3], vec![0, 1], None),
            (vec![2, 3], vec![3], None),
            (vec![0, 3], vec![3, 1], None),
            (vec![i64::MAX, 3], vec![3, 1], None),
            (vec![], vec![], None),
        ] {
            let shape = Shape { dims, strides };
            assert_eq!(shape.dense(), wanted, "{:?} {:?}", shape.dims, shape.strides);
        }
    }

    #[test]
    fn relu_keeps_what_is_not_below_zero() {
        let relu = Relu { input: 1, output: 2, elements: 1, clips: true };
        for (x, wanted) in [(-1.5, 0.0), (0.0, 0.0), (2.5, 2.5), (f32::NEG_INFINITY, 0.0)] {
            assert_eq!(relu.apply(x), wanted, "{x}");
        }
        assert!(relu.apply(f32::NAN).is_nan());
        assert_eq!(Relu { clips: false, ..relu }.apply(-1.5), -1.5);
    }
}
