//! Steps that may follow a convolution, as pointwise nodes and in double precision.

use hipdnn_rs_integration_tests::reference::{Exact, roundoff};
use hipdnn_rs_integration_tests::tensor::{HostTensor, indices};
use hipdnn_schemas::{DataType, Pointwise, PointwiseMode};

/// A pointwise step.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) mode: PointwiseMode,
    /// The second operand, if the step has one.
    pub(crate) with: Option<Operand>,
    /// True if that operand comes first.
    pub(crate) swapped: bool,
    pub(crate) adjust: fn(&mut Pointwise),
    exact: fn(f64, f64) -> f64,
    /// Largest factor by which the step can enlarge an error of its operand.
    slope: f64,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Operand {
    /// One value a channel: [1, K, 1, 1], of this type or, without one, of the output's.
    Bias(Option<DataType>),
    /// A tensor as large as the output, with the output's layout.
    Residual,
    /// The same in the other layout.
    ResidualElsewhere,
    /// One number, fixed in the graph.
    Scalar(f32),
}

fn step(mode: PointwiseMode, with: Option<Operand>, exact: fn(f64, f64) -> f64, slope: f64) -> Step {
    Step { mode, with, swapped: false, adjust: |_| {}, exact, slope }
}

fn relu(adjust: fn(&mut Pointwise), exact: fn(f64, f64) -> f64) -> Step {
    Step { adjust, ..step(PointwiseMode::ReluFwd, None, exact, 1.0) }
}

fn plain_relu() -> Step {
    relu(|_| {}, |a, _| a.max(0.0))
}

fn bias() -> Step {
    step(PointwiseMode::Add, Some(Operand::Bias(None)), |a, b| a + b, 1.0)
}

fn residual() -> Step {
    step(PointwiseMode::Add, Some(Operand::Residual), |a, b| a + b, 1.0)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function by its series, which is good to 1e-10 where it is not ±1.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.5 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..100 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Every chain that is tested, by name.
pub(crate) fn tails() -> Vec<(&'static str, Vec<Step>)> {
    use PointwiseMode as Mode;
    let activation = |mode, exact: fn(f64, f64) -> f64, slope| step(mode, None, exact, slope);
    let tanh_gelu: fn(f64, f64) -> f64 =
        |a, _| 0.5 * a * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a)).tanh());
    vec![
        ("bias", vec![bias()]),
        ("bias first", vec![Step { swapped: true, ..bias() }]),
        ("relu", vec![plain_relu()]),
        ("bias relu", vec![bias(), plain_relu()]),
        (
            "bias relu6",
            vec![
                bias(),
                relu(|p| (p.relu_lower_clip, p.relu_upper_clip) = (Some(0.0), Some(1.5)), |a, _| a.clamp(0.0, 1.5)),
            ],
        ),
        (
            "bias clamp",
            vec![
                bias(),
                relu(
                    |p| (p.relu_lower_clip, p.relu_upper_clip) = (Some(-0.25), Some(0.75)),
                    |a, _| a.clamp(-0.25, 0.75),
                ),
            ],
        ),
        (
            "bias leaky",
            vec![bias(), relu(|p| p.relu_lower_clip_slope = Some(0.125), |a, _| if a > 0.0 { a } else { 0.125 * a })],
        ),
        (
            "bias elu",
            vec![
                bias(),
                Step {
                    adjust: |p| p.elu_alpha = Some(0.5),
                    ..activation(Mode::EluFwd, |a, _| if a > 0.0 { a } else { 0.5 * a.exp_m1() }, 1.0)
                },
            ],
        ),
        ("bias sigmoid", vec![bias(), activation(Mode::SigmoidFwd, |a, _| sigmoid(a), 0.25)]),
        ("bias tanh", vec![bias(), activation(Mode::TanhFwd, |a, _| a.tanh(), 1.0)]),
        (
            "bias swish",
            vec![
                bias(),
                Step {
                    adjust: |p| p.swish_beta = Some(1.5),
                    ..activation(Mode::SwishFwd, |a, _| a * sigmoid(1.5 * a), 1.2)
                },
            ],
        ),
        (
            "bias gelu",
            vec![
                bias(),
                activation(Mode::GeluFwd, |a, _| 0.5 * a * (1.0 + erf(a * std::f64::consts::FRAC_1_SQRT_2)), 1.13),
            ],
        ),
        ("bias tanh gelu", vec![bias(), activation(Mode::GeluApproxTanhFwd, tanh_gelu, 1.13)]),
        (
            "bias softplus",
            vec![bias(), activation(Mode::SoftplusFwd, |a, _| a.max(0.0) + (-a.abs()).exp().ln_1p(), 1.0)],
        ),
        ("residual", vec![residual()]),
        ("residual relu", vec![residual(), plain_relu()]),
        ("bias residual relu", vec![bias(), residual(), plain_relu()]),
        ("bias relu residual", vec![bias(), plain_relu(), residual()]),
        (
            "bias residual of the other layout, relu",
            vec![bias(), step(Mode::Add, Some(Operand::ResidualElsewhere), |a, b| a + b, 1.0), plain_relu()],
        ),
        ("scale", vec![step(Mode::Mul, Some(Operand::Scalar(-1.5)), |a, b| a * b, 1.5)]),
        ("scale bias relu", vec![step(Mode::Mul, Some(Operand::Scalar(0.5)), |a, b| a * b, 0.5), bias(), plain_relu()]),
        (
            "scale by channel, bias of floats",
            vec![
                step(Mode::Mul, Some(Operand::Bias(None)), |a, b| a * b, 1.0),
                step(Mode::Add, Some(Operand::Bias(Some(DataType::Float))), |a, b| a + b, 1.0),
            ],
        ),
        (
            "hard swish as a chain",
            vec![
                step(Mode::Add, Some(Operand::Scalar(3.0)), |a, b| a + b, 1.0),
                relu(|p| p.relu_upper_clip = Some(6.0), |a, _| a.clamp(0.0, 6.0)),
                step(Mode::Mul, Some(Operand::Scalar(1.0 / 6.0)), |a, b| a * b, 0.17),
            ],
        ),
        (
            "subtract, absolute, maximum",
            vec![
                Step { swapped: true, ..step(Mode::Sub, Some(Operand::Residual), |a, b| b - a, 1.0) },
                activation(Mode::Abs, |a, _| a.abs(), 1.0),
                step(Mode::Max, Some(Operand::Scalar(0.5)), |a, b| a.max(b), 1.0),
            ],
        ),
    ]
}

/// Takes the exact results through the steps; `operands` are the tensors of the steps that have one, `stored` is the type
/// that the values between the steps have.
///
/// Each step rounds its own result in fp32, an activation by a few units of its last place, and once more where it is
/// stored in a narrower type.
pub(crate) fn apply(steps: &[Step], wanted: &mut [Exact], dims: &[i64], operands: &[&HostTensor], stored: DataType) {
    let mut operands = operands.iter();
    for (at, step) in steps.iter().enumerate() {
        let tensor = match step.with {
            None | Some(Operand::Scalar(_)) => None,
            Some(_) => Some(operands.next().expect("an operand for each step that has one")),
        };
        let narrowed = if at + 1 < steps.len() && stored != DataType::Float { roundoff(stored) } else { 0.0 };
        for (index, exact) in indices(dims).zip(wanted.iter_mut()) {
            let other = match (step.with, tensor) {
                (Some(Operand::Scalar(value)), _) => f64::from(value),
                (Some(Operand::Bias(_)), Some(tensor)) => {
                    let mut channel = vec![0; dims.len()];
                    channel[1] = index[1];
                    tensor.get(&channel)
                }
                (_, Some(tensor)) => tensor.get(&index),
                _ => 0.0,
            };
            let value = (step.exact)(exact.value, other);
            let own = 8.0 * roundoff(DataType::Float) * (value.abs() + exact.value.abs() + other.abs());
            *exact = Exact { value, error: exact.error * step.slope + own + 1.01 * narrowed * value.abs() };
        }
    }
}
