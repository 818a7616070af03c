//! The rule "activation": a decomposed activation becomes one function.
//!
//! `x · σ(x)`, or with a scaled `x` in the sigmoid, is a swish; `x · (erf(x / √2) + 1) · ½` a GELU, and with
//! `tanh((x + (x·x)·x·0.044715) · √(2/π))` for the error function its approximation. Factors and summands may come in any order, and
//! the three factors of a GELU be associated either way; numbers are scalars of the graph and precise to two digits of
//! `f32`. What lies between is virtual, as large as `x`, and read by these nodes alone.
//!
//! Values between the nodes keep the precision of `f32`, and an infinite `x` whose weight is zero gives zero, its limit, where
//! the functions one by one give NaN.
//!
//! Behind a convolution the rule comes before the one for its epilogue, which has activations; elsewhere behind the one
//! for rows, whose kernels have the functions.

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use hipdnn_schemas::{Graph, PointwiseMode, TensorUid};
use smallvec::smallvec;

use super::epilogue::{constant, two};
use super::{NodeList, Readers, Remark, Rule};
use crate::geometry::element;
use crate::work::{Elementwise, Input, Work};
use hipdnn_cpu_pointwise::{ComputeType, Function, Parameters, Program};

/// √(2/π)
const TANH_SCALE: f32 = 0.797_884_6;

/// Coefficient of x³ in the approximation of a GELU.
const TANH_CUBE: f32 = 0.044_715;

/// Number of element-wise functions between a convolution and an activation that its epilogue may have.
const MAX_BETWEEN: usize = 8;

/// Fuses the activation whose last node is that product; if `of_convolutions`, only one that may join a convolution's
/// epilogue.
pub(super) fn apply(
    graph: &Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    readers: &Readers<'_>,
    remarks: &mut Vec<Remark>,
    (last, of_convolutions): (usize, bool),
) {
    let Some(Work::Pointwise(product)) = &works[last] else { return };
    let matcher = Matcher { graph, works, readers };
    let Some(((x, function), mut group)) = matcher.activation(product) else { return };
    group.push(last);
    group.sort_unstable();
    if of_convolutions && !matcher.follows_convolution(x, &group, MAX_BETWEEN) {
        return;
    }
    let output = product.output;
    let refused = match () {
        () if group.iter().any(|node| *node != last && !matcher.is_inner(*node, output, &group)) => {
            Some("a result between its nodes is not virtual, has other extents or readers elsewhere")
        }
        () if graph.tensor(x).dims() != graph.tensor(output).dims() => Some("its operand is broadcast"),
        () => {
            group.iter().for_each(|node| works[*node] = None);
            let program = Program::single(ComputeType::F32, function);
            works[last] = Some(Work::Pointwise(Elementwise { program, inputs: smallvec![Input::Tensor(x)], output }));
            nodes[last].clone_from(&group);
            None
        }
    };
    // What is refused before other rules is tried again behind them.
    if refused.is_none() || !of_convolutions {
        remarks.push(Remark { rule: Rule::Activation, nodes: group, refused });
    }
}

struct Matcher<'a> {
    graph: &'a Graph,
    works: &'a [Option<Work>],
    readers: &'a Readers<'a>,
}

/// Operand of an activation, and the function.
type Activation = (TensorUid, Function);

impl Matcher<'_> {
    /// The activation that ends with that product, and the other nodes that compute it.
    fn activation(&self, product: &Elementwise) -> Option<(Activation, NodeList)> {
        let factors = operands(product, PointwiseMode::Mul)?;
        self.swish(factors).or_else(|| self.gelu(factors))
    }

    fn swish(&self, factors: [TensorUid; 2]) -> Option<(Activation, NodeList)> {
        either(factors, |x, gate| {
            let (node, work) = self.producer(gate)?;
            let inner = operand(work, PointwiseMode::SigmoidFwd)?;
            let (beta, mut nodes) = if inner == x { (1.0, NodeList::new()) } else { self.scaled(inner, x)? };
            nodes.push(node);
            let parameters = Parameters { swish_beta: beta, ..Parameters::default() };
            Some(((x, Function::new(PointwiseMode::SwishFwd, &parameters)?), nodes))
        })
    }

    fn gelu(&self, factors: [TensorUid; 2]) -> Option<(Activation, NodeList)> {
        either(factors, |other, inner| {
            let (node, work) = self.producer(inner)?;
            let [a, b] = operands(work, PointwiseMode::Mul)?;
            // One of the three is a half, one of the others x.
            let [one, two] =
                [[a, b, other], [a, other, b], [b, other, a]].into_iter().find_map(|[one, two, half]| {
                    let is_half = self.number(half) == Some(0.5);
                    is_half.then_some([one, two])
                })?;
            either([one, two], |x, sum| {
                let (added, work) = self.producer(sum)?;
                let odd = either(operands(work, PointwiseMode::Add)?, |odd, number| {
                    (self.number(number)? == 1.0).then_some(odd)
                })?;
                let (mode, mut nodes) = self.normal(odd, x).or_else(|| self.approximation(odd, x))?;
                nodes.extend([added, node]);
                Some(((x, Function::new(mode, &Parameters::default())?), nodes))
            })
        })
    }

    /// `erf(x / √2)`
    fn normal(&self, odd: TensorUid, x: TensorUid) -> Option<(PointwiseMode, NodeList)> {
        let (node, work) = self.producer(odd)?;
        let (scale, mut nodes) = self.scaled(operand(work, PointwiseMode::Erf)?, x)?;
        nodes.push(node);
        is_near(scale, FRAC_1_SQRT_2).then_some((PointwiseMode::GeluFwd, nodes))
    }

    /// `tanh(√(2/π) · (x + 0.044715·x³))`
    fn approximation(&self, odd: TensorUid, x: TensorUid) -> Option<(PointwiseMode, NodeList)> {
        let (node, work) = self.producer(odd)?;
        let argument = operand(work, PointwiseMode::TanhFwd)?;
        let (scaled, work) = self.producer(argument)?;
        let (sum, scale) = self.with_number(work, PointwiseMode::Mul)?;
        let (added, work) = self.producer(sum)?;
        let tail = either(operands(work, PointwiseMode::Add)?, |tail, base| (base == x).then_some(tail))?;
        let (multiplied, work) = self.producer(tail)?;
        let (cube, coefficient) = self.with_number(work, PointwiseMode::Mul)?;
        let (cubed, work) = self.producer(cube)?;
        let square = either(operands(work, PointwiseMode::Mul)?, |square, base| (base == x).then_some(square))?;
        let (squared, work) = self.producer(square)?;
        let fits = operands(work, PointwiseMode::Mul)? == [x, x]
            && is_near(scale, TANH_SCALE)
            && is_near(coefficient, TANH_CUBE);
        let nodes = smallvec![node, scaled, added, multiplied, cubed, squared];
        fits.then_some((PointwiseMode::GeluApproxTanhFwd, nodes))
    }

    /// True if the result of a node of the group may be left out.
    fn is_inner(&self, node: usize, output: TensorUid, group: &[usize]) -> bool {
        let Some(Work::Pointwise(work)) = &self.works[node] else { return false };
        let tensor = self.graph.tensor(work.output);
        tensor.is_virtual()
            && tensor.dims() == self.graph.tensor(output).dims()
            && element(tensor.data_type()).is_some()
            && self.readers.of(work.output).iter().all(|reader| group.contains(reader))
    }

    /// True if a tensor that nodes of `readers` alone read is a convolution's result, or becomes it through at most so many
    /// element-wise functions.
    fn follows_convolution(&self, uid: TensorUid, readers: &[usize], between: usize) -> bool {
        let is_between =
            self.graph.tensor(uid).is_virtual() && self.readers.of(uid).iter().all(|reader| readers.contains(reader));
        let Some(node) = self.graph.producer(uid).filter(|_| is_between) else { return false };
        match &self.works[node] {
            Some(Work::Convolution(_)) => true,
            Some(Work::Pointwise(work)) if between > 0 => {
                work.tensors().any(|operand| self.follows_convolution(operand, &[node], between - 1))
            }
            _ => false,
        }
    }

    /// The number `value` is `x` times, and the node that multiplies.
    fn scaled(&self, value: TensorUid, x: TensorUid) -> Option<(f32, NodeList)> {
        let (node, work) = self.producer(value)?;
        let (base, number) = self.with_number(work, PointwiseMode::Mul).or_else(|| {
            let [base, divisor] = operands(work, PointwiseMode::Div)?;
            // For √2 the number that is multiplied by instead: its reciprocal has another last digit.
            let divisor = self.number(divisor)?;
            let factor = if is_near(divisor, SQRT_2) { FRAC_1_SQRT_2 } else { divisor.recip() };
            factor.is_normal().then_some((base, factor))
        })?;
        (base == x).then_some((number, smallvec![node]))
    }

    /// The operand of a commutative function whose other one is a number, and that.
    fn with_number(&self, work: &Elementwise, mode: PointwiseMode) -> Option<(TensorUid, f32)> {
        either(operands(work, mode)?, |operand, number| Some((operand, self.number(number)?)))
    }

    fn number(&self, uid: TensorUid) -> Option<f32> {
        constant(self.graph.tensor(uid))
    }

    /// The element-wise function that computes a tensor.
    fn producer(&self, uid: TensorUid) -> Option<(usize, &Elementwise)> {
        let node = self.graph.producer(uid)?;
        match &self.works[node] {
            Some(Work::Pointwise(work)) => Some((node, work)),
            _ => None,
        }
    }
}

/// The operands of a function of two.
fn operands(work: &Elementwise, mode: PointwiseMode) -> Option<[TensorUid; 2]> {
    (work.single()?.mode() == mode).then(|| two(&work.inputs)).flatten()
}

/// The operand of a function of one.
fn operand(work: &Elementwise, mode: PointwiseMode) -> Option<TensorUid> {
    match work.inputs[..] {
        [Input::Tensor(uid)] if work.single()?.mode() == mode => Some(uid),
        _ => None,
    }
}

/// Match of two operands, in their order or the other one.
fn either<R>([a, b]: [TensorUid; 2], of: impl Fn(TensorUid, TensorUid) -> Option<R>) -> Option<R> {
    of(a, b).or_else(|| of(b, a))
}

/// True for numbers that differ in their last two digits at most.
fn is_near(a: f32, b: f32) -> bool {
    (a - b).abs() <= 2.0 * f32::EPSILON * b.abs()
}
