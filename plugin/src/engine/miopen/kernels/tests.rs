//! Kernels on a device, where the process has one, against an evaluation by their definition in `f64`.

use std::sync::Arc;

use half::{bf16, f16};
use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::engine::host::pointwise::Parameters;
use crate::engine::miopen::device::Devices;
use crate::engine::miopen::gpu::{DeviceMemory, Stream};

/// A device to run on.
struct Bench {
    device: Arc<Device>,
    stream: Stream,
    store: Store,
}

/// The process's device; says why where there is none.
fn bench(test: &str) -> Option<Bench> {
    let device = match Devices::get().current() {
        Ok(device) => device,
        Err(reason) => {
            println!("{test} skipped: {reason}");
            return None;
        }
    };
    let _entered = device.enter().unwrap();
    let stream = Stream::new(device.gpu()).unwrap();
    Some(Bench { device, stream, store: Store::disabled() })
}

impl Bench {
    /// What the kernel of `work` leaves in a buffer that held `output` before.
    fn run(&self, work: &Elementwise, inputs: &[Vec<u8>], output: &[u8]) -> Vec<u8> {
        let kernel = prepare(&self.device, work, &self.store).unwrap_or_else(|error| panic!("{work:?}: {error}"));
        self.launch(&kernel, inputs, output, &[])
    }

    fn launch(&self, kernel: &PreparedKernel, inputs: &[Vec<u8>], output: &[u8], scalars: &[f64]) -> Vec<u8> {
        let _entered = self.device.enter().unwrap();
        let memory = |bytes: &[u8]| {
            let memory = DeviceMemory::new(self.device.gpu(), bytes.len()).unwrap();
            memory.write(0, bytes, &self.stream).unwrap();
            memory
        };
        let (inputs, output) = (inputs.iter().map(|bytes| memory(bytes)).collect::<Vec<_>>(), memory(output));
        let addresses: Vec<_> = inputs.iter().map(|memory| memory.address().cast_const()).collect();
        // SAFETY: the buffers are as large as the caller made them for the work, and are read after the kernel.
        unsafe { kernel.launch_with(self.stream.raw().cast(), &addresses, output.address(), scalars) }.unwrap();
        let mut bytes = vec![0; output.bytes()];
        output.read(0, &mut bytes, &self.stream).unwrap();
        bytes
    }
}

/// A value as that type.
fn encode(element: Element, value: f64) -> Vec<u8> {
    let value = rounded(element, value);
    match element {
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
        Element::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        Element::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        Element::F64 => value.to_le_bytes().to_vec(),
        Element::I32 => (value as i32).to_le_bytes().to_vec(),
        Element::I64 => (value as i64).to_le_bytes().to_vec(),
        Element::I8 => (value as i8).to_le_bytes().to_vec(),
        Element::U8 | Element::Boolean => vec![value as u8],
    }
}

fn decode(element: Element, bytes: &[u8]) -> f64 {
    match element {
        Element::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        Element::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        Element::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        Element::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        Element::I32 => f64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
        Element::I64 => i64::from_le_bytes(bytes.try_into().unwrap()) as f64,
        Element::I8 => f64::from(bytes[0] as i8),
        Element::U8 => f64::from(bytes[0]),
        Element::Boolean => f64::from(u8::from(bytes[0] != 0)),
    }
}

fn encoded(element: Element, values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| encode(element, *value)).collect()
}

fn decoded(element: Element, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(element.bytes()).map(|bytes| decode(element, bytes)).collect()
}

/// The value of a type that is nearest, ties to even; integers saturate, and NaN is 0 there.
fn rounded(element: Element, value: f64) -> f64 {
    let integer = |low: f64, high: f64| if value.is_nan() { 0.0 } else { value.round_ties_even().clamp(low, high) };
    match element {
        Element::F64 => value,
        Element::F32 => f64::from(value as f32),
        Element::F16 => float(value, 11, -14, 15),
        Element::BF16 => float(value, 8, -126, 127),
        Element::I32 => integer(i32::MIN.into(), i32::MAX.into()),
        Element::I64 => integer(i64::MIN as f64, i64::MAX as f64),
        Element::I8 => integer(-128.0, 127.0),
        Element::U8 => integer(0.0, 255.0),
        Element::Boolean => f64::from(u8::from(value != 0.0)),
    }
}

/// Rounds to so many bits, with exponents from `least` (below it, fixed point) to `most` (beyond it, infinity).
fn float(value: f64, bits: i32, least: i32, most: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(least);
    let unit = 2f64.powi(exponent - bits + 1);
    let near = (value / unit).round_ties_even() * unit;
    if near.abs() >= 2f64.powi(most) * 2.0 { f64::INFINITY.copysign(value) } else { near }
}

/// The distance of neighbours of a type at a value; for integers 1.
fn ulp(element: Element, value: f64) -> f64 {
    let (bits, least) = match element {
        Element::F64 => (53, -1022),
        Element::F32 => (24, -126),
        Element::F16 => (11, -14),
        Element::BF16 => (8, -126),
        Element::I32 | Element::I64 | Element::I8 | Element::U8 | Element::Boolean => return 1.0,
    };
    let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(least);
    2f64.powi(exponent - bits + 1)
}

/// What a mode means, in `f64`. At infinities it is the limit.
fn defined(mode: PointwiseMode, p: &Parameters, v: &[f64]) -> f64 {
    use PointwiseMode::*;
    let (x, y) = (v[0], v.get(1).copied().unwrap_or(0.0));
    let truth = |holds: bool| f64::from(u8::from(holds));
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    // 1 - s without cancellation is the sigmoid of the other side.
    let bend = |v: f64| sigmoid(v) * sigmoid(-v);
    let cdf = |v: f64| 0.5 * libm::erfc(-v / std::f64::consts::SQRT_2);
    let density = |v: f64| (-0.5 * v * v).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // x falls slower than any weight that vanishes where x goes to infinity.
    let weighted = |x: f64, weight: f64| if weight == 0.0 { 0.0 } else { x * weight };
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let inner = |x: f64| 2.0 * root * (x + 0.044715 * x * x * x);
    let (lower, upper) = (f64::from(p.relu_lower_clip), f64::from(p.relu_upper_clip));
    let slope = f64::from(p.relu_lower_clip_slope);
    let (swish, alpha, beta) = (f64::from(p.swish_beta), f64::from(p.elu_alpha), f64::from(p.softplus_beta));
    match mode {
        Unset | GenIndex => unreachable!("no operation"),
        Identity => x,
        Abs => x.abs(),
        Ceil => x.ceil(),
        Erf => libm::erf(x),
        Exp => x.exp(),
        Floor => x.floor(),
        Log => x.ln(),
        LogicalNot => truth(x == 0.0),
        Neg => -x,
        Reciprocal => 1.0 / x,
        Rsqrt => 1.0 / x.sqrt(),
        Sin => x.sin(),
        Sqrt => x.sqrt(),
        Tan => x.tan(),
        Add => x + y,
        AddSquare => x + y * y,
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        Max if x.is_nan() || y.is_nan() => f64::NAN,
        Min if x.is_nan() || y.is_nan() => f64::NAN,
        Max => x.max(y),
        Min => x.min(y),
        CmpEq => truth(x == y),
        CmpNeq => truth(x != y),
        CmpGt => truth(x > y),
        CmpGe => truth(x >= y),
        CmpLt => truth(x < y),
        CmpLe => truth(x <= y),
        LogicalAnd => truth(x != 0.0 && y != 0.0),
        LogicalOr => truth(x != 0.0 || y != 0.0),
        BinarySelect => {
            if v[2] != 0.0 {
                x
            } else {
                y
            }
        }
        ReluFwd if x.is_nan() => x,
        ReluFwd if x <= lower => if slope == 0.0 { lower } else { slope * (x - lower) + lower }.min(upper),
        ReluFwd => x.min(upper),
        ReluBwd if x <= lower => y * slope,
        ReluBwd => y * truth(x <= upper || x.is_nan()),
        SigmoidFwd => sigmoid(x),
        SigmoidBwd => y * bend(x),
        TanhFwd => x.tanh(),
        TanhBwd => y / x.cosh().powi(2),
        EluFwd => {
            if x > 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        EluBwd => {
            if x > 0.0 {
                y
            } else {
                y * alpha * x.exp()
            }
        }
        SoftplusFwd => ((beta * x).max(0.0) + (-(beta * x).abs()).exp().ln_1p()) / if x.is_nan() { x } else { beta },
        SoftplusBwd => y * sigmoid(beta * x),
        SwishFwd => weighted(x, sigmoid(swish * x)),
        SwishBwd => y * (sigmoid(swish * x) + weighted(swish * x, bend(swish * x))),
        GeluFwd => weighted(x, cdf(x)),
        GeluBwd => y * (cdf(x) + weighted(x, density(x))),
        GeluApproxTanhFwd => weighted(x, sigmoid(inner(x))),
        GeluApproxTanhBwd => {
            let slope = weighted(2.0 * root * (1.0 + 3.0 * 0.044715 * x * x), bend(inner(x)));
            y * (sigmoid(inner(x)) + weighted(x, slope))
        }
    }
}

/// What a kernel is to leave in a buffer of `output` values: all steps by their definition, in `f64`.
fn evaluate(work: &Elementwise, inputs: &[Vec<f64>], output: &[f64]) -> Vec<f64> {
    let mut output = output.to_vec();
    for n in 0..work.dims.iter().product::<usize>() {
        let mut index = vec![0; work.dims.len()];
        let mut rest = n;
        for (i, extent) in index.iter_mut().zip(&work.dims).rev() {
            *i = rest % extent;
            rest /= extent;
        }
        let mut tensors = inputs.iter();
        let mut slots: Vec<f64> = Vec::new();
        for input in &work.inputs {
            slots.push(match input {
                Input::Scalar(value) | Input::Literal(value) => *value,
                Input::Index { axis } => index[*axis] as f64,
                Input::Tensor(view) => {
                    let values = tensors.next().unwrap();
                    let mut at = Some(view.offset);
                    for (d, i) in index.iter().enumerate() {
                        let mut i = *i as i64;
                        if let Some(Window { begin, extent, step }) = view.windows.get(d).copied().flatten() {
                            i -= begin;
                            if i < 0 || i % step as i64 != 0 || i / step as i64 >= extent as i64 {
                                at = None;
                            }
                            i /= step as i64;
                        }
                        at = at.map(|at| at + i * view.strides[d]);
                    }
                    at.map_or(0.0, |at| values[at as usize])
                }
            });
        }
        for op in &work.program {
            slots.push(match op {
                Op::Round { to, operand } => rounded(*to, slots[*operand]),
                Op::Pointwise { mode, parameters, operands } => {
                    let operands: Vec<f64> = operands.iter().map(|slot| slots[*slot]).collect();
                    defined(*mode, parameters, &operands)
                }
            });
        }
        let at = work.output.offset + index.iter().zip(&work.output.strides).map(|(i, s)| *i as i64 * s).sum::<i64>();
        output[at as usize] = *slots.last().unwrap();
    }
    output
}

fn packed(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i] as i64;
    }
    strides
}

/// Scalars of which none is a default.
const PARAMETERS: Parameters = Parameters {
    relu_lower_clip: -0.5,
    relu_upper_clip: 2.0,
    relu_lower_clip_slope: 0.25,
    swish_beta: 1.5,
    elu_alpha: 0.75,
    softplus_beta: 2.0,
};

/// A mode over as many vectors as it takes.
fn vector(mode: PointwiseMode, parameters: Parameters, element: Element, output: Element, len: usize) -> Elementwise {
    let operands: Vec<usize> = (0..mode.operands()).collect();
    Elementwise {
        dims: vec![len],
        inputs: operands.iter().map(|_| Input::Tensor(View::new(element, [1]))).collect(),
        output: Output::new(output, [1]),
        program: vec![Op::Pointwise { mode, parameters, operands }],
    }
}

fn operations() -> impl Iterator<Item = PointwiseMode> {
    let none = |mode: &PointwiseMode| matches!(mode, PointwiseMode::Unset | PointwiseMode::GenIndex);
    PointwiseMode::ALL.iter().copied().filter(move |mode| !none(mode))
}

#[test]
fn every_mode_computes_its_definition() {
    let Some(bench) = bench("every_mode_computes_its_definition") else { return };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    // Around zero in steps that miss the kinks, then far out, then what is special.
    let mut xs: Vec<f64> = (-40..=40).map(|i| f64::from(i) * 37.0 / 256.0 + 1.0 / 512.0).collect();
    xs.extend([-80.0, -20.0, -9.5, 9.5, 20.0, 80.0, 1e-6, -1e-6, 1e-30, -1e-30]);
    let mut ys: Vec<f64> = xs.iter().rev().map(|v| if v.abs() < 6.0 { v * 0.5 + 0.125 } else { 0.75 }).collect();
    for x in [0.0, -0.0, inf, -inf, nan, 1.0, -0.5, 2.0, 1e30, -1e30] {
        for y in [0.0, 1.0, -inf, nan, -2.5] {
            xs.push(x);
            ys.push(y);
        }
    }
    let ts: Vec<f64> = (0..xs.len()).map(|i| if i % 7 == 3 { nan } else { (i % 2) as f64 }).collect();
    for element in [Element::F32, Element::F64] {
        let rounded = |values: &[f64]| values.iter().map(|v| super::tests::rounded(element, *v)).collect::<Vec<_>>();
        let values = [rounded(&xs), rounded(&ys), rounded(&ts)];
        for mode in operations() {
            let (mut worst, mut place) = (0.0, 0.0);
            for parameters in [PARAMETERS, Parameters::default()] {
                let work = vector(mode, parameters, element, element, xs.len());
                let inputs: Vec<_> = values[..mode.operands()].to_vec();
                let bytes: Vec<_> = inputs.iter().map(|values| encoded(element, values)).collect();
                let want = evaluate(&work, &inputs, &vec![nan; xs.len()]);
                let got = decoded(element, &bench.run(&work, &bytes, &encoded(element, &want)));
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let operands: Vec<f64> = inputs.iter().map(|values| values[i]).collect();
                    let same = got == want || (got.is_nan() && want.is_nan());
                    let error = (got - want).abs();
                    if !same && error / ulp(element, *want) > worst {
                        (worst, place) = (error / ulp(element, *want), xs[i]);
                    }
                    let bound = bound(mode, element, &operands, *want);
                    let what = format!("{mode}{operands:?} of {element:?} = {got}, wanted {want} within {bound:e}");
                    assert!(same || error <= bound, "{what}");
                }
            }
            println!("{mode} of {element:?}: at most {worst:.1} units off, at {place}");
        }
    }
}

/// How far a result may be from the definition's.
///
/// The library's functions are within a few units in the last place, and each formula has a few roundings more. Where a
/// rounded argument is magnified (exponents of squares) or parts cancel, the error is relative to the operands.
fn bound(mode: PointwiseMode, element: Element, operands: &[f64], want: f64) -> f64 {
    use PointwiseMode::*;
    let unit = if element == Element::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let scale = operands.iter().fold(1.0, |most: f64, v| if v.is_finite() { most.max(v.abs()) } else { most });
    let exact = rounded(element, want);
    (match mode {
        Identity | Abs | Ceil | Floor | Neg | Max | Min | BinarySelect | CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt
        | CmpLe | LogicalAnd | LogicalOr | LogicalNot => 0.0,
        Add | Sub | Mul | Div | Sqrt | Reciprocal => 0.5 * ulp(element, exact),
        AddSquare | ReluFwd | ReluBwd | GeluFwd | GeluBwd | GeluApproxTanhFwd | GeluApproxTanhBwd | SwishBwd
        | TanhBwd => 4.0 * unit * scale * scale,
        _ => 6.0 * ulp(element, exact),
    }) + ulp(element, 0.0)
}
