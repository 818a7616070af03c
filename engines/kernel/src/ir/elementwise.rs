//! Element-wise functions: a small program for every element of a node's result.

use hipdnn_schemas::TensorUid;

use crate::emit::Op;

/// Element-wise function of tensors. Slots of its program are numbered: first its inputs, then the index if it has one,
/// then the results of its operations. The last slot is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementwiseOp {
    /// Index of the node in the graph.
    pub node: usize,
    /// Operands.
    pub inputs: Vec<Argument>,
    /// Dimension of the result whose index is an input too.
    pub index: Option<usize>,
    /// Operations in order.
    pub program: Vec<Op>,
    /// Result tensor.
    pub output: TensorUid,
}

/// Tensor operand of a formula.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// Uid of the tensor.
    pub tensor: TensorUid,
    /// Mapping of the tensor's dimensions to those of the result; `None` is the identity. Dimensions of extent 1 are
    /// broadcast, and so are tensors of one element, whatever their rank.
    pub axes: Option<Vec<usize>>,
}

impl ElementwiseOp {
    /// Program as part of a larger one, in which its inputs and its index have the slots `before` and its results the
    /// slots from `next` on.
    pub fn program_within(&self, before: &[usize], next: usize) -> Vec<Op> {
        let slot = |local: usize| before.get(local).copied().unwrap_or_else(|| next + local - before.len());
        self.program.iter().map(|op| op.relocated(slot)).collect()
    }

    /// Number of kernel inputs, the index included.
    pub fn starts(&self) -> usize {
        self.inputs.len() + usize::from(self.index.is_some())
    }
}

impl Argument {
    /// Operand whose dimensions are those of the result.
    pub fn new(tensor: TensorUid) -> Argument {
        Argument { tensor, axes: None }
    }

    /// Strides along the dimensions of a result of that rank, from the strides along the dimensions of the tensor of
    /// those extents.
    pub fn strides(&self, dims: &[usize], strides: &[i64], rank: usize) -> Vec<i64> {
        let mut along = vec![0; rank];
        if dims.iter().all(|extent| *extent == 1) {
            return along;
        }
        for (dimension, (extent, stride)) in dims.iter().zip(strides).enumerate() {
            if *extent > 1 {
                along[self.axes.as_ref().map_or(dimension, |axes| axes[dimension])] = *stride;
            }
        }
        along
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::PointwiseMode::{Add, Mul};

    #[test]
    fn strides_follow_the_axes() {
        for (axes, dims, strides, rank, want) in [
            (None, &[2, 3, 4][..], &[12, 4, 1][..], 3, vec![12, 4, 1]),
            (None, &[1, 3, 1], &[3, 1, 1], 3, vec![0, 1, 0]),
            (None, &[1], &[1], 4, vec![0; 4]),
            (Some(vec![1]), &[5], &[2], 4, vec![0, 2, 0, 0]),
            (Some(vec![1, 0, 2]), &[2, 3, 4], &[12, 4, 1], 3, vec![4, 12, 1]),
            (Some(vec![1, 1]), &[5, 1], &[1, 7], 2, vec![0, 1]),
        ] {
            let argument = Argument { tensor: TensorUid(0), axes };
            assert_eq!(argument.strides(dims, strides, rank), want, "{argument:?}");
        }
    }

    #[test]
    fn programs_are_put_into_others() {
        let formula = ElementwiseOp {
            node: 0,
            inputs: vec![Argument::new(TensorUid(0)), Argument::new(TensorUid(1))],
            index: None,
            program: vec![Op::pointwise(Add, &[0, 1]), Op::pointwise(Mul, &[2, 1])],
            output: TensorUid(2),
        };
        let want = [Op::pointwise(Add, &[3, 1]), Op::pointwise(Mul, &[9, 1])];
        assert_eq!(formula.program_within(&[3, 1], 9), want);
    }
}
