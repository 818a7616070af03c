//! Reductions, and softmax, which is made of them.

use hipdnn_schemas::{Extents, Operation, PointwiseMode, Reduction, ReductionMode};

use super::{Declined, Importer, Operator, declined, sums};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    sums("LogSoftmax", |n| softmax(n, true)),
    sums("ReduceL1", |n| plain(n, ReductionMode::Norm1)),
    sums("ReduceL2", |n| plain(n, ReductionMode::Norm2)),
    sums("ReduceLogSum", |n| {
        reduction(n, |n, x, axes| {
            let sum = n.reduce(ReductionMode::Add, x, axes)?;
            n.apply(PointwiseMode::Log, sum)
        })
    }),
    sums("ReduceLogSumExp", |n| reduction(n, log_sum_exp)),
    sums("ReduceMax", |n| plain(n, ReductionMode::Max)),
    sums("ReduceMean", |n| plain(n, ReductionMode::Average)),
    sums("ReduceMin", |n| plain(n, ReductionMode::Min)),
    sums("ReduceProd", |n| plain(n, ReductionMode::Mul)),
    sums("ReduceSum", |n| plain(n, ReductionMode::Add)),
    sums("ReduceSumSquare", |n| {
        reduction(n, |n, x, axes| {
            let square = n.binary(PointwiseMode::Mul, x, x)?;
            n.reduce(ReductionMode::Add, square, axes)
        })
    }),
    sums("Softmax", |n| softmax(n, false)),
];

impl Importer<'_> {
    /// Combines the elements along `axes`, whose extents become 1.
    pub(super) fn reduce(&mut self, mode: ReductionMode, x: ValueId, axes: &[usize]) -> Result<ValueId, Declined> {
        let mut dims = self.dims(x);
        if axes.is_empty() {
            return self.reduced_element(mode, x);
        }
        for axis in axes {
            dims[*axis] = 1;
        }
        let data_type = self.data_type(x);
        if self.function.value(x).elements() == 0 && !dims.contains(&0) {
            // The mean of nothing is 0 to ONNX Runtime.
            let number = match mode {
                ReductionMode::Mul => 1.0,
                ReductionMode::Max => f32::NEG_INFINITY,
                ReductionMode::Min => f32::INFINITY,
                _ => 0.0,
            };
            return self.filled(data_type, &dims, number);
        }
        self.emit(data_type, &dims, |y| {
            Operation::Reduction(Reduction { mode, input: x.uid(), output: y.uid(), is_deterministic: false })
        })
    }
}

impl Importer<'_> {
    /// The value of each element after a reduction along no dimension.
    fn reduced_element(&mut self, mode: ReductionMode, x: ValueId) -> Result<ValueId, Declined> {
        match mode {
            ReductionMode::Norm1 | ReductionMode::Norm2 => self.apply(PointwiseMode::Abs, x),
            _ => Ok(x),
        }
    }
}

fn plain(n: &mut Importer<'_>, mode: ReductionMode) -> Result<(), Declined> {
    let exact = matches!(mode, ReductionMode::Add | ReductionMode::Mul | ReductionMode::Min | ReductionMode::Max);
    if !exact {
        n.float_input(0)?;
    }
    reduction(n, |n, x, axes| n.reduce(mode, x, axes))
}

/// A reduction by `function` along the node's axes: an attribute at first, an input later; all where none is named.
fn reduction(
    n: &mut Importer<'_>,
    function: impl Fn(&mut Importer<'_>, ValueId, &[usize]) -> Result<ValueId, Declined>,
) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let dims = n.dims(x);
    let named = n.axes(1)?.unwrap_or_default();
    if n.declared && dims.contains(&0) && named.iter().any(|axis| *axis < 0) {
        return declined("ONNX Runtime's CPU provider passes over negative axes of tensors without elements");
    }
    let mut axes = named.iter().map(|axis| n.axis(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    if named.is_empty() {
        axes = if n.int("noop_with_empty_axes", 0) != 0 { Vec::new() } else { (0..dims.len()).collect() };
    }
    let y = function(n, x, &axes)?;
    let result: Extents = if n.int("keepdims", 1) != 0 {
        n.dims(y)
    } else {
        dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, extent)| *extent).collect()
    };
    let y = n.reshape(y, &result);
    n.output(0, y);
    Ok(())
}

/// `max + log(sum(exp(x - max)))`
fn log_sum_exp(n: &mut Importer<'_>, x: ValueId, axes: &[usize]) -> Result<ValueId, Declined> {
    let max = n.reduce(ReductionMode::Max, x, axes)?;
    let shifted = n.binary(PointwiseMode::Sub, x, max)?;
    let exp = n.apply(PointwiseMode::Exp, shifted)?;
    let sum = n.reduce(ReductionMode::Add, exp, axes)?;
    let log = n.apply(PointwiseMode::Log, sum)?;
    n.binary(PointwiseMode::Add, log, max)
}

fn softmax(n: &mut Importer<'_>, log: bool) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    if dims.contains(&0) {
        let data_type = n.data_type(x);
        let y = n.function.result(data_type, &dims);
        n.output(0, y);
        return Ok(());
    }
    let (x, axis) = n.softmax_operand(x)?;
    let y = n.softmax(x, axis, log)?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

impl Importer<'_> {
    /// The operand of softmax and its like, and the dimension that they go along.
    pub(super) fn softmax_operand(&mut self, x: ValueId) -> Result<(ValueId, usize), Declined> {
        let dims = self.dims(x);
        if dims.is_empty() {
            return declined("softmax of a scalar is not imported");
        }
        if self.since() >= 13 {
            return Ok((x, self.axis(self.int("axis", -1), dims.len())?));
        }
        // Everything from the axis on is one dimension.
        let axis = match self.int("axis", 1) {
            axis if axis == dims.len() as i64 => dims.len(),
            axis => self.axis(axis, dims.len())?,
        };
        let (outer, inner) = dims.split_at(axis);
        let (outer, inner) = (outer.iter().product(), inner.iter().product());
        Ok((self.reshape(x, &[outer, inner]), 1))
    }

    /// `exp(x - max) / sum(exp(x - max))` along `axis`, or its logarithm.
    pub(super) fn softmax(&mut self, x: ValueId, axis: usize, log: bool) -> Result<ValueId, Declined> {
        let max = self.reduce(ReductionMode::Max, x, &[axis])?;
        let shifted = self.binary(PointwiseMode::Sub, x, max)?;
        let exp = self.apply(PointwiseMode::Exp, shifted)?;
        let sum = self.reduce(ReductionMode::Add, exp, &[axis])?;
        if log {
            let log = self.apply(PointwiseMode::Log, sum)?;
            self.binary(PointwiseMode::Sub, shifted, log)
        } else {
            self.binary(PointwiseMode::Div, exp, sum)
        }
    }
}
