//! Lowering of normalizations to kernels over groups.
//!
//! The variance is computed in a second pass, from differences from the mean, which finds a group that is not too large
//! in the device's cache. The mean of many numbers that are large beside their deviation is off by more than a
//! rounding, since `f32` has not the digits of their sum. The second pass measures this *shift*, and takes it out of
//! variance and result: a large mean costs no digits.

use hipdnn_engine_core::Declined;
use hipdnn_engine_core::ops::normalization::{Affine, Normalization, Scalar, Slot, Task};
use hipdnn_schemas::{DataType, Graph, PointwiseMode};

use super::build::{Body, Combine, Kernel, Loops, Value};
use super::check_digits;
use crate::emit::Op;
use crate::ir::elementwise::{Argument, ElementwiseOp};
use crate::ir::group::{GroupKernel, GroupWork, IndexMap, Local, Operand};
use crate::ir::op::Work;

/// Lowers a normalization by given statistics to an element-wise function.
///
/// # Errors
/// If its compute type is not supported.
pub(super) fn formula(graph: &Graph, index: usize, node: &Normalization) -> Result<Work, Declined> {
    check_node(graph, index, node)?;
    let mut inputs = Vec::new();
    let mut input = |slot: Slot| {
        let operand = node.operand(slot)?;
        let rank = graph.tensor(operand.tensor).rank();
        // Dimensions of one place run along any: they are never followed.
        let is_plain =
            rank == node.dims.len() && operand.axes.iter().enumerate().all(|(d, a)| a.is_none_or(|a| a == d));
        let axes = (!is_plain).then(|| operand.axes.iter().map(|axis| axis.unwrap_or(0)).collect());
        inputs.push(Argument { tensor: operand.tensor, axes });
        Some(inputs.len() - 1)
    };
    let [x, mean, inverse, variance, scale, bias] =
        [Slot::X, Slot::Mean, Slot::Inverse, Slot::Variance, Slot::Scale, Slot::Bias].map(&mut input);
    let epsilon = match node.epsilon {
        Scalar::Tensor(uid) if variance.is_some() => {
            inputs.push(Argument::new(uid));
            Some(inputs.len() - 1)
        }
        _ => None,
    };
    let present = "a node with given statistics has this operand";
    let mut program = Vec::new();
    let mut op = |mode: PointwiseMode, operands: &[usize]| {
        program.push(Op::pointwise(mode, operands));
        inputs.len() + program.len() - 1
    };
    let inverse = inverse.unwrap_or_else(|| {
        let sum = op(PointwiseMode::Add, &[variance.expect(present), epsilon.expect(present)]);
        op(PointwiseMode::Rsqrt, &[sum])
    });
    let centered = op(PointwiseMode::Sub, &[x.expect(present), mean.expect(present)]);
    let normal = op(PointwiseMode::Mul, &[centered, inverse]);
    let scaled = op(PointwiseMode::Mul, &[normal, scale.expect(present)]);
    op(PointwiseMode::Add, &[scaled, bias.expect(present)]);
    let output = node.operand(Slot::Out).expect("a normalization has a result").tensor;
    Ok(Work::Pointwise(ElementwiseOp { node: index, inputs, index: None, program, output }))
}

/// Lowers a normalization to kernels over groups.
///
/// # Errors
/// If its compute type is not supported.
pub(super) fn lower(graph: &Graph, index: usize, node: &Normalization) -> Result<Work, Declined> {
    check_node(graph, index, node)?;
    let mut lowering = Lowering { graph, node, locals: Vec::new() };
    let kernels = match (node.task, node.affine) {
        (Task::Forward, _) => vec![lowering.forward()],
        (Task::Backward, Affine::PerGroup) => vec![lowering.backward_per_group()],
        (Task::Backward, Affine::PerElement) => lowering.backward_per_element(),
    };
    let (locals, partial) = (lowering.locals, DataType::Float);
    Ok(Work::Groups(GroupWork { node: index, name: node.name, locals, kernels, partial }))
}

fn check_node(graph: &Graph, index: usize, node: &Normalization) -> Result<(), Declined> {
    let reads = node.operands.iter().filter(|operand| !operand.is_written).map(|operand| operand.tensor);
    check_digits(graph, index, reads, node.operand(Slot::Out).expect("a normalization has a result").tensor)
}

struct Lowering<'a> {
    graph: &'a Graph,
    node: &'a Normalization,
    locals: Vec<Local>,
}

/// Index maps of the operands in a kernel's loops.
struct Frame<'a> {
    graph: &'a Graph,
    node: &'a Normalization,
    loops: Loops,
}

/// Terms that are subtracted from elements one after the other (mean and shift), and the inverse deviation.
#[derive(Clone, Debug)]
struct Moments {
    center: Vec<Value>,
    inverse: Value,
}

impl Frame<'_> {
    fn has(&self, slot: Slot) -> bool {
        self.node.operand(slot).is_some()
    }

    fn place(&self, slot: Slot) -> (Operand, IndexMap) {
        let operand = self.node.operand(slot).expect("the node has this operand");
        (Operand::Tensor(operand.tensor), self.loops.at(&operand.axes))
    }

    fn load(&self, body: &mut Body, slot: Slot) -> Value {
        let (of, at) = self.place(slot);
        body.element(of, at)
    }

    /// Stores an operand if the node has it.
    fn store(&self, body: &mut Body, slot: Slot, value: Value) {
        if self.has(slot) {
            let (to, at) = self.place(slot);
            body.store(value, to, at);
        }
    }

    fn scalar(&self, body: &mut Body, scalar: Scalar) -> Value {
        match scalar {
            Scalar::Fixed(value) => body.literal(value),
            Scalar::Tensor(uid) => body.only(uid, self.graph.tensor(uid).rank(), self.loops.len()),
        }
    }

    /// Normalized element: `(x - mean) · inverse`.
    fn normal(&self, body: &mut Body, moments: &Moments) -> Value {
        let x = self.load(body, Slot::X);
        let centered = moments.center.iter().fold(x, |centered, away| body.sub(centered, *away));
        body.mul(centered, moments.inverse)
    }

    /// Statistics that the node reads, the inverse deviation last.
    fn given(&self, body: &mut Body) -> Vec<Value> {
        let slots = if self.node.centered { &[Slot::Mean, Slot::Inverse][..] } else { &[Slot::Inverse] };
        slots.iter().map(|slot| self.load(body, *slot)).collect()
    }

    fn extents(&self, reduced: bool) -> Vec<usize> {
        let dims = self.node.dims.iter().zip(&self.node.reduced);
        dims.filter(|(_, is_reduced)| **is_reduced == reduced).map(|(extent, _)| *extent).collect()
    }

    /// Number of elements of a group.
    fn count(&self) -> f64 {
        self.extents(true).iter().product::<usize>() as f64
    }
}

impl<'a> Lowering<'a> {
    fn axes(&self, reduced: bool) -> impl Iterator<Item = usize> {
        let kinds = self.node.reduced.iter().enumerate();
        kinds.filter(move |(_, is_reduced)| **is_reduced == reduced).map(|(axis, _)| axis)
    }

    /// Kernel whose groups are the node's.
    fn rows(&self) -> (Frame<'a>, Kernel) {
        let loops = Loops::new(self.axes(false).chain(self.axes(true)));
        let frame = Frame { graph: self.graph, node: self.node, loops };
        let kernel = Kernel::new(frame.extents(false), frame.extents(true));
        (frame, kernel)
    }

    /// Kernel with a group for each place in the node's groups: its members are the elements at that place.
    fn columns(&self) -> (Frame<'a>, Kernel) {
        let loops = Loops::new(self.axes(true).chain(self.axes(false)));
        let frame = Frame { graph: self.graph, node: self.node, loops };
        let kernel = Kernel::new(frame.extents(true), frame.extents(false));
        (frame, kernel)
    }

    /// Moments of a kernel's groups: computed and, where the node has results for them, written; or read.
    fn moments(&self, frame: &Frame<'_>, kernel: &mut Kernel) -> Moments {
        if self.node.given {
            return self.given_moments(frame, kernel);
        }
        let count = frame.count();
        let center = if self.node.centered { vec![self.mean(frame, kernel)] } else { Vec::new() };
        let sums = kernel.fold(|body| {
            let x = frame.load(body, Slot::X);
            let centered = center.iter().fold(x, |centered, away| body.sub(centered, *away));
            let squares = Combine::Sum(body.mul(centered, centered));
            if self.node.centered { vec![squares, Combine::Sum(centered)] } else { vec![squares] }
        });
        let left = kernel.once_list(|body| {
            let elements = body.number(count);
            let mut variance = body.div(sums[0], elements);
            let mut left = Vec::new();
            if let (Some(mean), Some(rest)) = (center.first(), sums.get(1)) {
                let shift = body.div(*rest, elements);
                let (square, zero) = (body.mul(shift, shift), body.literal(0.0));
                let difference = body.sub(variance, square);
                variance = body.op(PointwiseMode::Max, &[difference, zero]);
                // The mean of an infinity is infinite, though no difference from it is a number.
                let (exact, is_number) = (body.add(*mean, shift), body.op(PointwiseMode::CmpEq, &[shift, shift]));
                let mean = body.select(is_number, exact, *mean);
                frame.store(body, Slot::Mean, mean);
                self.blend(frame, body, Slot::PrevMean, Slot::NextMean, mean);
                left.push(shift);
            }
            let epsilon = frame.scalar(body, self.node.epsilon);
            let sum = body.add(variance, epsilon);
            let inverse = body.op(PointwiseMode::Rsqrt, &[sum]);
            frame.store(body, Slot::Inverse, inverse);
            if frame.has(Slot::NextVariance) {
                // The unbiased one, where there is such.
                let correction = body.number(if count > 1.0 { count / (count - 1.0) } else { 1.0 });
                let unbiased = body.mul(variance, correction);
                self.blend(frame, body, Slot::PrevVariance, Slot::NextVariance, unbiased);
            }
            left.push(inverse);
            left
        });
        let (inverse, shift) = left.split_last().expect("there is an inverse");
        Moments { center: [&center[..], shift].concat(), inverse: *inverse }
    }

    /// Mean, up to the rounding error of its sum.
    fn mean(&self, frame: &Frame<'_>, kernel: &mut Kernel) -> Value {
        let sum = kernel.fold(|body| vec![Combine::Sum(frame.load(body, Slot::X))])[0];
        let [mean] = kernel.once(|body| {
            let count = body.number(frame.count());
            [body.div(sum, count)]
        });
        mean
    }

    fn given_moments(&self, frame: &Frame<'_>, kernel: &mut Kernel) -> Moments {
        let mut left = kernel.once_list(|body| frame.given(body));
        let inverse = left.pop().expect("there is an inverse");
        Moments { center: left, inverse }
    }

    /// Updates running statistics: `(1 - momentum) · previous + momentum · current`.
    fn blend(&self, frame: &Frame<'_>, body: &mut Body, previous: Slot, next: Slot, current: Value) {
        if !frame.has(next) {
            return;
        }
        let momentum = frame.scalar(body, self.node.momentum);
        let one = body.literal(1.0);
        let keep = body.sub(one, momentum);
        let previous = frame.load(body, previous);
        let (old, new) = (body.mul(keep, previous), body.mul(momentum, current));
        let blended = body.add(old, new);
        frame.store(body, next, blended);
    }

    fn forward(&mut self) -> GroupKernel {
        let (frame, mut kernel) = self.rows();
        let mut moments = self.moments(&frame, &mut kernel);
        // A scale of the group is one factor with the inverse deviation.
        let is_joint = self.node.affine == Affine::PerGroup;
        if is_joint {
            [moments.inverse] = kernel.once(|body| {
                let scale = frame.load(body, Slot::Scale);
                [body.mul(scale, moments.inverse)]
            });
        }
        kernel.each(|body| {
            let mut y = frame.normal(body, &moments);
            if !is_joint {
                let scale = frame.load(body, Slot::Scale);
                y = body.mul(y, scale);
            }
            if frame.has(Slot::Bias) {
                let bias = frame.load(body, Slot::Bias);
                y = body.add(y, bias);
            }
            frame.store(body, Slot::Out, y);
        });
        kernel.finish()
    }

    /// Kernel of the gradient with one scale for a group: the sums of the scale's gradient are those that the input's
    /// gradient needs.
    fn backward_per_group(&mut self) -> GroupKernel {
        let (frame, mut kernel) = self.rows();
        let moments = self.moments(&frame, &mut kernel);
        let sums = kernel.fold(|body| {
            let dy = frame.load(body, Slot::Dy);
            let normal = frame.normal(body, &moments);
            vec![Combine::Sum(dy), Combine::Sum(body.mul(dy, normal))]
        });
        let [plain, dot, factor] = kernel.once(|body| {
            frame.store(body, Slot::Dbias, sums[0]);
            frame.store(body, Slot::Dscale, sums[1]);
            let count = body.number(frame.count());
            let scale = frame.load(body, Slot::Scale);
            [body.div(sums[0], count), body.div(sums[1], count), body.mul(scale, moments.inverse)]
        });
        kernel.each(|body| {
            let dy = frame.load(body, Slot::Dy);
            let normal = frame.normal(body, &moments);
            let (away, along) = (body.sub(dy, plain), body.mul(normal, dot));
            let difference = body.sub(away, along);
            let dx = body.mul(difference, factor);
            frame.store(body, Slot::Out, dx);
        });
        kernel.finish()
    }

    /// Kernels of the gradient with a scale that groups share: its gradient sums over groups, in a kernel of its own.
    fn backward_per_element(&mut self) -> Vec<GroupKernel> {
        let (frame, mut kernel) = self.rows();
        let moments = self.moments(&frame, &mut kernel);
        // What the second kernel does not find in the graph.
        let kept: Vec<Option<usize>> = self.axes(false).map(Some).collect();
        let mut places: Vec<Operand> = Vec::new();
        if !self.node.given {
            let dims = frame.extents(false);
            kernel.once(|body| {
                for value in moments.center.iter().chain([&moments.inverse]) {
                    places.push(Operand::Local(self.locals.len()));
                    self.locals.push(Local { dims: dims.clone(), data_type: DataType::Float });
                    body.store(*value, *places.last().expect("it was just put there"), frame.loops.at(&kept));
                }
                []
            });
        }
        let gradient = |body: &mut Body| {
            let (dy, scale) = (frame.load(body, Slot::Dy), frame.load(body, Slot::Scale));
            (body.mul(dy, scale), frame.normal(body, &moments))
        };
        let sums = kernel.fold(|body| {
            let (gradient, normal) = gradient(body);
            let dot = Combine::Sum(body.mul(gradient, normal));
            if self.node.centered { vec![dot, Combine::Sum(gradient)] } else { vec![dot] }
        });
        let averages = kernel.once_list(|body| {
            let count = body.number(frame.count());
            sums.iter().map(|sum| body.div(*sum, count)).collect()
        });
        kernel.each(|body| {
            let (gradient, normal) = gradient(body);
            let away = averages.get(1).map_or(gradient, |plain| body.sub(gradient, *plain));
            let along = body.mul(normal, averages[0]);
            let difference = body.sub(away, along);
            let dx = body.mul(difference, moments.inverse);
            frame.store(body, Slot::Out, dx);
        });
        let rows = kernel.finish();

        let (frame, mut kernel) = self.columns();
        let sums = kernel.fold(|body| {
            let mut found: Vec<Value> = match self.node.given {
                true => frame.given(body),
                false => places.iter().map(|place| body.element(*place, frame.loops.at(&kept))).collect(),
            };
            let inverse = found.pop().expect("there is an inverse");
            let moments = Moments { center: found, inverse };
            let dy = frame.load(body, Slot::Dy);
            let normal = frame.normal(body, &moments);
            let dot = Combine::Sum(body.mul(dy, normal));
            if frame.has(Slot::Dbias) { vec![dot, Combine::Sum(dy)] } else { vec![dot] }
        });
        kernel.once(|body| {
            frame.store(body, Slot::Dscale, sums[0]);
            if frame.has(Slot::Dbias) {
                frame.store(body, Slot::Dbias, sums[1]);
            }
            []
        });
        vec![rows, kernel.finish()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::interpret::{Tensors, interpret};
    use crate::lower::testing::{graph, work};
    use hipdnn_schemas::{Batchnorm, Operation, TensorDef, TensorUid, TensorValue};

    /// Number of elements of a channel.
    const COUNT: usize = 3000;

    #[test]
    fn a_large_mean_costs_no_digits() {
        let float = DataType::Float;
        let node = Operation::Batchnorm(Batchnorm {
            mean: Some(TensorUid(5)),
            inv_variance: Some(TensorUid(6)),
            ..Batchnorm::new(TensorUid(0), TensorUid(1), TensorUid(2), TensorUid(3), TensorUid(4))
        });
        let mut tensors: Vec<TensorDef> = [1, 2, 5, 6].iter().map(|uid| TensorDef::new(*uid, float, &[1, 1])).collect();
        tensors.extend([0, 4].map(|uid| TensorDef::new(uid, float, &[COUNT as i64, 1])));
        tensors.push(TensorDef::new(3, float, &[1]).with_value(TensorValue::Float32(0.0)));
        let (graph, work) = (graph(&node, &tensors, float), work(&node, &tensors));
        // Neighboring f32 numbers far from zero: all of the variance is in the last bits.
        let x: Vec<f64> = (0..COUNT).map(|i| 4_194_304.0 + (i * 7 % 11) as f64 * 0.5).collect();
        let mut values = Tensors::from([(0, x.clone()), (1, vec![1.0]), (2, vec![0.0]), (3, vec![0.0])]);
        interpret(&graph, &work, &mut values, |value| f64::from(value as f32));
        let mean = x.iter().sum::<f64>() / COUNT as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64;
        // Sums of so many numbers one after the other are off by 2⁻²⁴ · COUNT of their size at most, those of
        // differences from a mean that is off by no more than 2⁻²⁴ · COUNT of itself.
        let bound = 2f64.powi(-24) * COUNT as f64 * 4.0;
        let inverse = values[&6][0] * variance.sqrt();
        assert!((inverse - 1.0).abs() < bound, "{inverse}");
        assert!((values[&5][0] - mean).abs() <= 0.25, "{} for {mean}", values[&5][0]);
        for (y, x) in values[&4].iter().zip(&x) {
            let want = (x - mean) / variance.sqrt();
            assert!((y - want).abs() < bound * 2.0, "{y} for {want}");
        }
    }
}
