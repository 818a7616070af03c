//! Kernels on a device, where the process has one, against an evaluation by their definition in `f64`.

use std::sync::Arc;

use half::{bf16, f16};
use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::engine::host::pointwise::Parameters;
use crate::engine::miopen::device::Devices;
use crate::engine::miopen::gpu::{DeviceMemory, Stream};
use crate::engine::miopen::testing::skip;

/// A device to run on.
pub(super) struct Bench {
    pub(super) device: Arc<Device>,
    pub(super) stream: Stream,
    pub(super) store: Store,
}

/// The process's device; says why where there is none.
pub(super) fn bench(test: &str) -> Option<Bench> {
    let device = match Devices::get().current() {
        Ok(device) => device,
        Err(reason) => {
            skip(&format_args!("{test}: {reason}"));
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
        self.run_with(work, false, inputs, output)
    }

    fn run_with(&self, work: &Elementwise, wide: bool, inputs: &[Vec<u8>], output: &[u8]) -> Vec<u8> {
        let kernel = prepare_with(&self.device, work, &self.store, wide);
        self.launch(&kernel.unwrap_or_else(|error| panic!("{work:?}: {error}")), inputs, output, &[])
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
pub(super) fn encode(element: Element, value: f64) -> Vec<u8> {
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

pub(super) fn decode(element: Element, bytes: &[u8]) -> f64 {
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

pub(super) fn encoded(element: Element, values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| encode(element, *value)).collect()
}

pub(super) fn decoded(element: Element, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(element.bytes()).map(|bytes| decode(element, bytes)).collect()
}

/// The value of a type that is nearest, ties to even; integers saturate, and NaN is 0 there.
pub(super) fn rounded(element: Element, value: f64) -> f64 {
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
pub(super) fn ulp(element: Element, value: f64) -> f64 {
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
pub(super) fn defined(mode: PointwiseMode, p: &Parameters, v: &[f64]) -> f64 {
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

pub(super) fn packed(dims: &[usize]) -> Vec<i64> {
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
    let modes: Vec<_> = operations().collect();
    for element in [Element::F32, Element::F64] {
        let inputs = [&xs, &ys, &ts].map(|values| values.iter().map(|v| rounded(element, *v)).collect::<Vec<_>>());
        let bytes = inputs.each_ref().map(|values| encoded(element, values));
        for (modes, parameters) in
            modes.chunks(12).flat_map(|modes| [(modes, PARAMETERS), (modes, Parameters::default())])
        {
            let work = rows(modes, parameters, element, xs.len());
            let want = evaluate(&work, &inputs, &vec![nan; xs.len() * modes.len()]);
            let got = decoded(element, &bench.run(&work, &bytes, &encoded(element, &want)));
            for (mode, (got, want)) in modes.iter().zip(got.chunks(xs.len()).zip(want.chunks(xs.len()))) {
                let (mut worst, mut place) = (0.0, 0.0);
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    let operands: Vec<f64> = inputs[..mode.operands()].iter().map(|values| values[i]).collect();
                    let same = got == want || (got.is_nan() && want.is_nan());
                    let units = (got - want).abs() / ulp(element, *want);
                    if !same && units > worst {
                        (worst, place) = (units, xs[i]);
                    }
                    let bound = bound(*mode, element, &operands, *want);
                    let what = format!("{mode}{operands:?} of {element:?} = {got}, wanted {want} within {bound:e}");
                    assert!(same || (got - want).abs() <= bound, "{what}");
                }
                println!("{mode} of {element:?}: at most {worst:.1} units off, at {place}");
            }
        }
    }
}

/// A kernel whose row `k` is the mode of that number, of the same operands: far fewer kernels to compile.
fn rows(modes: &[PointwiseMode], parameters: Parameters, element: Element, len: usize) -> Elementwise {
    let mut inputs = vec![Input::Tensor(View::new(element, [0, 1])); 3];
    inputs.push(Input::Index { axis: 0 });
    inputs.extend((1..modes.len()).map(|k| Input::Literal(k as f64)));
    let functions = inputs.len();
    let operation =
        |mode: &PointwiseMode| Op::Pointwise { mode: *mode, parameters, operands: (0..mode.operands()).collect() };
    let program = modes.iter().map(operation).collect();
    let mut work =
        Elementwise { dims: vec![modes.len(), len], inputs, output: Output::new(element, [len as i64, 1]), program };
    select_rows(&mut work, functions, modes.len());
    work
}

/// Ends a program with the slot `functions + k` in row `k`, which slot 3 is the index of and slot `3 + k` the number.
fn select_rows(work: &mut Elementwise, functions: usize, rows: usize) {
    let mut chosen = functions;
    for k in 1..rows {
        let equal = work.inputs.len() + work.program.len();
        work.program.push(Op::pointwise(PointwiseMode::CmpEq, &[3, 3 + k]));
        work.program.push(Op::pointwise(PointwiseMode::BinarySelect, &[functions + k, chosen, equal]));
        chosen = equal + 1;
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

/// The source and arguments of some work.
fn source(work: &Elementwise) -> Source {
    generate(work, false).unwrap().unwrap().source
}

/// x · scalar + bias of the channel, of packed `f16` tensors.
fn scaled(dims: [usize; 4], channels_last: bool, scalar: f64) -> Elementwise {
    let [_, c, h, w] = dims.map(|d| d as i64);
    let strides = if channels_last { [c * h * w, 1, w * c, c] } else { [c * h * w, h * w, w, 1] };
    Elementwise {
        dims: dims.to_vec(),
        inputs: vec![
            Input::Tensor(View::new(Element::F16, strides)),
            Input::Tensor(View::new(Element::F32, [0, 1, 0, 0])),
            Input::Scalar(scalar),
        ],
        output: Output::new(Element::F16, strides),
        program: vec![Op::pointwise(PointwiseMode::Mul, &[0, 2]), Op::pointwise(PointwiseMode::Add, &[3, 1])],
    }
}

#[test]
fn text_depends_on_the_kind_of_work_and_not_on_its_numbers() {
    let one = scaled([2, 3, 8, 8], false, 2.0);
    let text = source(&one).text;
    for (what, other, same) in [
        ("another shape", scaled([7, 64, 56, 9], false, 2.0), true),
        ("another scalar", scaled([2, 3, 8, 8], false, -1.5), true),
        ("another layout", scaled([2, 3, 8, 8], true, 2.0), false),
        ("one image, and so one loop less", scaled([1, 3, 8, 8], false, 2.0), false),
        ("rows too short for vectors", scaled([2, 3, 2, 2], false, 2.0), false),
        ("another type", Elementwise { output: Output::new(Element::F32, [192, 64, 8, 1]), ..one.clone() }, false),
        (
            "another constant",
            Elementwise { inputs: [&one.inputs[..2], &[Input::Literal(2.0)]].concat(), ..one.clone() },
            false,
        ),
        ("another operation", Elementwise { program: one.program[..1].to_vec(), ..one.clone() }, false),
    ] {
        assert_eq!(source(&other).text == text, same, "{what}:\n{text}\n{}", source(&other).text);
    }
    let parameters = |slope| Parameters { relu_lower_clip_slope: slope, ..Parameters::default() };
    let relu = |slope| source(&vector(PointwiseMode::ReluFwd, parameters(slope), Element::F32, Element::F32, 64)).text;
    assert_eq!(relu(0.25), relu(0.5), "slopes are arguments");
    assert_ne!(relu(0.25), relu(0.0), "the plain one has none");
}

#[test]
fn text_has_what_is_used_and_nothing_else() {
    for (work, with, without) in [
        (
            vector(PointwiseMode::Neg, PARAMETERS, Element::F32, Element::F32, 64),
            &["typedef float real", "load4", "const real t1 = -t0;", "typedef int index"][..],
            &["MATH(exp)", "mulhi", "sigmoid", "long index", "narrow_f16", "p0"][..],
        ),
        (
            vector(PointwiseMode::SwishFwd, PARAMETERS, Element::F16, Element::BF16, 64),
            &["real sigmoid(", "real gate(", "real MATH(exp)(real)", "widen_f16", "narrow_bf16", "a.p0", "float odd("],
            &["sigmoid_slope", "MATH(tanh)", "narrow_f16", "double"],
        ),
        (
            vector(PointwiseMode::Div, PARAMETERS, Element::I32, Element::I32, 64),
            &["typedef double real", "real MATH(rint)(real)", "narrow_i32"],
            &["load4", "odd("],
        ),
        (
            vector(PointwiseMode::Add, PARAMETERS, Element::I32, Element::I64, 64),
            &["typedef long real", "whole_add(t0, t1)", "narrow_i64"],
            &["MATH", "whole_mul"],
        ),
        (
            Elementwise {
                program: Vec::new(),
                ..vector(PointwiseMode::Identity, PARAMETERS, Element::BF16, Element::BF16, 64)
            },
            &["const unsigned short* x0", "load4"],
            &["real", "widen", "narrow"],
        ),
        (
            Elementwise {
                output: Output::new(Element::F16, [1 << 29, 1 << 23, 1 << 21, 1]),
                ..scaled([3, 9, 8, 8], false, 1.0)
            },
            &["typedef long index", "item += a.threads"],
            &["mulhi"],
        ),
    ] {
        let text = source(&work).text;
        for name in with {
            assert!(text.contains(name), "{name} is missing:\n{text}");
        }
        for name in without {
            assert!(!text.contains(name), "{name} is not used:\n{text}");
        }
    }
}

#[test]
fn arguments_lie_as_the_structure_says() {
    let source = source(&scaled([2, 3, 5, 8], false, 2.5));
    let bytes = &source.arguments.bytes;
    let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let declared = source.text.split("struct Arguments {").nth(1).unwrap().split("};").next().unwrap();
    let fields: Vec<_> = declared.split(';').filter_map(|field| field.split_whitespace().last()).collect();
    // Pointers first; then 32-bit numbers without gaps: loops over 2, 3 and 40 = 10 · 4, and the strides that are not
    // 0 or 1.
    assert_eq!(fields[..4], ["x0", "x1", "y", "items"]);
    let at = |name: &str| 24 + 4 * (fields.iter().position(|field| *field == name).unwrap() - 3);
    for (name, want) in [
        ("items", 2 * 3 * 10),
        ("d2", 10),
        ("d1", 3),
        ("inner", 40),
        ("x0_s0", 120),
        ("x0_s1", 40),
        ("x1_s1", 1),
        ("y_s0", 120),
        ("y_s1", 40),
        ("s2", 2.5f32.to_bits() as i32),
    ] {
        assert_eq!(int(at(name)), want, "{name} of {fields:?}");
    }
    assert_eq!(source.arguments.scalars, [at("s2")]);
    assert_eq!(bytes.len(), (24 + 4 * (fields.len() - 3)).next_multiple_of(8));
    assert!(bytes[..24].iter().all(|byte| *byte == 0), "pointers come at launch");
    assert_eq!(source.threads, 60);
}

#[test]
fn division_by_multiplication_is_exact() {
    for d in (1..200).chain([255, 256, 257, 1000, 65535, 65536, 65537, (1 << 29) + 1, (1 << 30) - 1, 1 << 30]) {
        let (multiplier, shift) = arguments::divisor(d);
        let divide = |n: u64| (((n * u64::from(multiplier)) >> 32) + n) >> shift;
        let near = [0, 1, 2, d, 2 * d, 3 * d, 1 << 30, (1 << 31) - 1, (1u64 << 31) - 1 - ((1u64 << 31) - 1) % d];
        for n in near.into_iter().flat_map(|n| [n.saturating_sub(1), n, n + 1]).filter(|n| *n < 1 << 31) {
            let sum = ((n * u64::from(multiplier)) >> 32) + n;
            assert!(divide(n) == n / d && sum < 1 << 32, "{n} / {d}");
        }
    }
}

#[test]
fn work_that_makes_no_sense_is_refused_with_a_reason() {
    let good = || scaled([2, 3, 5, 8], false, 1.0);
    let with = |change: fn(&mut Elementwise)| {
        let mut work = good();
        change(&mut work);
        work
    };
    assert!(generate(&good(), false).is_ok());
    for (work, want) in [
        (with(|work| work.inputs.clear()), "a kernel takes 1 to 16 inputs, this one has 0"),
        (with(|work| work.inputs = vec![Input::Scalar(0.0); 17]), "a kernel takes 1 to 16 inputs, this one has 17"),
        (
            with(|work| work.inputs[2] = Input::Index { axis: 4 }),
            "input 2 is the index along dimension 4, but there are 4",
        ),
        (with(|work| work.inputs[1] = view(Element::F16, &[1, 1], 0, None)), "input 1 has 2 strides for 4 dimensions"),
        (
            with(|work| work.inputs[0] = view(Element::F16, &[1; 4], 0, Some((1, 0, 3, 0)))),
            "input 0 has a window of step 0",
        ),
        (
            with(|work| {
                let windows = vec![None; 3];
                work.inputs[0] = Input::Tensor(View { windows, ..View::new(Element::F16, [1; 4]) });
            }),
            "input 0 has 3 windows for 4 dimensions",
        ),
        (with(|work| work.output.strides.truncate(3)), "the output has 3 strides for 4 dimensions"),
        (with(|work| work.output.strides[1] = 0), "the output has 3 elements in one place along dimension 1"),
        (with(|work| work.program.clear()), "without operations there is one input, this kernel has 3"),
        (
            with(|work| work.program[0] = Op::pointwise(PointwiseMode::Mul, &[0, 3])),
            "operation 0 reads slot 3, which comes after it: there are 3",
        ),
        (
            with(|work| work.program[0] = Op::pointwise(PointwiseMode::Mul, &[0])),
            "mul takes 2 operands, operation 0 has 1",
        ),
        (with(|work| work.program[0] = Op::pointwise(PointwiseMode::GenIndex, &[0])), "gen_index is no operation"),
        (with(|work| work.dims[0] = usize::MAX), "would reach further than addresses do"),
        (with(|work| work.output.strides[0] = i64::MIN), "would reach further than addresses do"),
        (with(|work| work.output.offset = i64::MAX), "would reach further than addresses do"),
    ] {
        let error = generate(&work, false).err().unwrap_or_else(|| panic!("wanted: {want}"));
        assert!(error.to_string().contains(want), "{error}, wanted: {want}");
    }
}

/// Values at which conversions turn: halves, ties of each type, limits and what lies beyond.
fn edges() -> Vec<f64> {
    let mut values = vec![0.0, -0.0, 0.25, 0.5, 1.5, 2.5, 3.5, 100.0, 126.5, 127.5, 128.0, 254.5, 255.5, 256.0, 300.0];
    values.extend([1.0 + 2f64.powi(-11), 1.0 + 3.0 * 2f64.powi(-11), 1.0 + 2f64.powi(-8), 1.0 + 3.0 * 2f64.powi(-8)]);
    values.extend([65504.0, 65519.0, 65520.0, 65536.0, 3.4e38, 1e-5, 2f64.powi(-24), 2f64.powi(-25), 1e-40]);
    values.extend([2147483520.0, 2147483648.0, 4e9, 9.2e18, 9223372036854775808.0, 1e30, f64::INFINITY]);
    // Digits that f32 has not: beside the middle of neighbours of f16 and bf16, and of whole numbers.
    let tiny = 2f64.powi(-40);
    values.extend([1.0 + 2f64.powi(-11) + tiny, 1.0 + 2f64.powi(-11) - tiny, 1.0 + 2f64.powi(-8) + tiny, 2.5 + tiny]);
    values.extend([2147483647.0, 2147483646.5, 16777217.0, 1e300, 1e-300, 6.1e-5 + tiny]);
    let negative: Vec<f64> = values.iter().map(|value| -value).collect();
    values.extend(negative);
    values.push(f64::NAN);
    values
}

#[test]
fn every_type_is_read_and_written_as_the_host_does() {
    let Some(bench) = bench("every_type_is_read_and_written_as_the_host_does") else { return };
    for from in [Element::F32, Element::F64] {
        let values: Vec<f64> = edges().iter().map(|value| rounded(from, *value)).collect();
        for to in Element::ALL {
            // Not only copied, so that values are computed with.
            let work = vector(PointwiseMode::Neg, Parameters::default(), from, *to, values.len());
            let got = decoded(*to, &bench.run(&work, &[encoded(from, &values)], &encoded(*to, &values)));
            for (value, got) in values.iter().zip(&got) {
                let want = decode(*to, &encode(*to, -value));
                assert!(
                    *got == want || (got.is_nan() && want.is_nan()),
                    "{value:e} of {from:?} to {to:?}: {got}, not {want}"
                );
            }
        }
    }
    for from in Element::ALL {
        for to in [Element::F32, Element::F64] {
            let values: Vec<f64> = edges().iter().map(|value| rounded(*from, *value)).collect();
            let work = vector(PointwiseMode::Neg, Parameters::default(), *from, to, values.len());
            let got = decoded(to, &bench.run(&work, &[encoded(*from, &values)], &encoded(to, &values)));
            for (value, got) in values.iter().zip(&got) {
                let want = rounded(to, -decode(*from, &encode(*from, *value)));
                assert!(
                    *got == want || (got.is_nan() && want.is_nan()),
                    "{value:e} of {from:?} to {to:?}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn whole_numbers_keep_all_their_digits_and_saturate() {
    let Some(bench) = bench("whole_numbers_keep_all_their_digits_and_saturate") else { return };
    use PointwiseMode::*;
    let (most, least) = (i64::MAX, i64::MIN);
    let one = (1i64 << 53) + 1;
    let numbers = [0, 1, -1, 7, -9, one, -one, 1 << 32, -(1 << 32), 3_037_000_500, most, least, most - 1, least + 1];
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for x in numbers {
        for y in numbers {
            xs.push(x);
            ys.push(y);
        }
    }
    type Function = fn(i64, i64) -> i64;
    let functions: [(PointwiseMode, Function); 19] = [
        (Identity, |x, _| x),
        (Abs, |x, _| x.saturating_abs()),
        (Neg, |x, _| x.saturating_neg()),
        (ReluFwd, |x, _| x.max(0)),
        (LogicalNot, |x, _| i64::from(x == 0)),
        (Add, i64::saturating_add),
        (AddSquare, |x, y| x.saturating_add(y.saturating_mul(y))),
        (Sub, i64::saturating_sub),
        (Mul, i64::saturating_mul),
        (Max, i64::max),
        (Min, i64::min),
        (CmpEq, |x, y| i64::from(x == y)),
        (CmpNeq, |x, y| i64::from(x != y)),
        (CmpGt, |x, y| i64::from(x > y)),
        (CmpGe, |x, y| i64::from(x >= y)),
        (CmpLt, |x, y| i64::from(x < y)),
        (CmpLe, |x, y| i64::from(x <= y)),
        (LogicalAnd, |x, y| i64::from(x != 0 && y != 0)),
        (LogicalOr, |x, y| i64::from(x != 0 || y != 0)),
    ];
    for mode in operations() {
        let listed = mode == BinarySelect || functions.iter().any(|(other, _)| *other == mode);
        assert_eq!(Op::pointwise(mode, &[]).keeps_whole(), listed, "{mode}");
    }
    let bytes = [&xs, &ys, &xs].map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    for functions in functions.chunks(12) {
        let modes: Vec<_> = functions.iter().map(|(mode, _)| *mode).collect();
        let work = rows(&modes, Parameters::default(), Element::I64, xs.len());
        assert!(generate(&work, false).unwrap().unwrap().source.text.contains("typedef long real"));
        let got = bench.run(&work, &bytes, &vec![0; 8 * xs.len() * modes.len()]);
        let got: Vec<i64> = got.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
        for ((mode, function), got) in functions.iter().zip(got.chunks(xs.len())) {
            for ((x, y), got) in xs.iter().zip(&ys).zip(got) {
                assert_eq!(*got, function(*x, *y), "{mode} of {x} and {y}");
            }
        }
    }
    // Shorter types take the nearest number that they have.
    for (element, low, high) in
        [(Element::I32, i64::from(i32::MIN), i64::from(i32::MAX)), (Element::I8, -128, 127), (Element::U8, 0, 255)]
    {
        let work = vector(Sub, Parameters::default(), Element::I64, element, xs.len());
        let got = decoded(element, &bench.run(&work, &bytes[..2], &vec![0; element.bytes() * xs.len()]));
        for ((x, y), got) in xs.iter().zip(&ys).zip(got) {
            assert_eq!(got as i64, x.saturating_sub(*y).clamp(low, high), "{x} - {y} of {element:?}");
        }
    }
}

#[test]
fn values_are_rounded_on_the_way() {
    let Some(bench) = bench("values_are_rounded_on_the_way") else { return };
    for from in [Element::F32, Element::F64] {
        let values: Vec<f64> = edges().iter().map(|value| rounded(from, *value)).collect();
        // Row k is what is left of the values after the type of number k.
        let rounds = Element::ALL.len();
        let mut inputs = vec![Input::Tensor(View::new(from, [0, 1])); 3];
        inputs.push(Input::Index { axis: 0 });
        inputs.extend((1..rounds).map(|k| Input::Literal(k as f64)));
        let mut work = Elementwise {
            dims: vec![rounds, values.len()],
            output: Output::new(Element::F64, [values.len() as i64, 1]),
            program: Element::ALL.iter().map(|to| Op::Round { to: *to, operand: 0 }).collect(),
            inputs,
        };
        let functions = work.inputs.len();
        select_rows(&mut work, functions, rounds);
        let total = values.len() * rounds;
        let got = decoded(Element::F64, &bench.run(&work, &vec![encoded(from, &values); 3], &vec![0; total * 8]));
        for (k, to) in Element::ALL.iter().enumerate() {
            for (i, value) in values.iter().enumerate() {
                let (got, want) = (got[k * values.len() + i], decode(*to, &encode(*to, *value)));
                assert!(got == want || (got.is_nan() && want.is_nan()), "{value:e} through {to:?}: {got}, not {want}");
            }
        }
    }
}

/// A view with an offset and a window along one dimension.
fn view(element: Element, strides: &[i64], offset: i64, window: Option<(usize, i64, u64, u64)>) -> Input {
    let mut view = View { offset, ..View::new(element, strides) };
    if let Some((dimension, begin, extent, step)) = window {
        view.windows = vec![None; strides.len()];
        view.windows[dimension] = Some(Window { begin, extent, step });
    }
    Input::Tensor(view)
}

/// Runs the work on small whole numbers, of which every sum and product is exact, and compares all of the buffer.
fn check_exactly(bench: &Bench, what: &str, work: &Elementwise) {
    // Enough for every place that a case reads or writes.
    const LEN: usize = 9000;
    let tensors = work.inputs.iter().filter_map(|input| match input {
        Input::Tensor(view) => Some(view.element),
        _ => None,
    });
    let elements: Vec<_> = tensors.collect();
    let values: Vec<Vec<f64>> =
        (0..elements.len()).map(|t| (0..LEN).map(|i| ((i * (t + 3) * 7 + i / 11) % 8) as f64).collect()).collect();
    let values: Vec<Vec<f64>> = values
        .iter()
        .zip(&elements)
        .map(|(values, element)| values.iter().map(|value| rounded(*element, *value)).collect())
        .collect();
    let before: Vec<f64> = (0..LEN).map(|i| (i % 2) as f64).collect();
    let bytes: Vec<_> = values.iter().zip(&elements).map(|(values, element)| encoded(*element, values)).collect();
    let want = evaluate(work, &values, &before);
    let want: Vec<f64> = want.iter().map(|value| rounded(work.output.element, *value)).collect();
    for wide in [false, true] {
        // Kernels with wide indices differ in nothing else: a few do for all.
        if wide && !(what.starts_with("padded") || what.contains("mixed") || what.contains("zeros")) {
            continue;
        }
        let got = bench.run_with(work, wide, &bytes, &encoded(work.output.element, &before));
        for (i, (got, want)) in decoded(work.output.element, &got).iter().zip(&want).enumerate() {
            assert_eq!(got, want, "{what}, wide {wide}: element {i}");
        }
    }
}

#[test]
fn tensors_of_any_layout_are_copied() {
    let Some(bench) = bench("tensors_of_any_layout_are_copied") else { return };
    use Element::*;
    let dims = [2usize, 3, 5, 40];
    let (first, last) = (packed(&dims), [600, 1, 120, 3]);
    for (what, dims, input, output) in [
        ("packed", &dims[..], view(F32, &first, 0, None), Output::new(F32, &first[..])),
        ("packed bytes", &dims, view(U8, &first, 5, None), Output::new(U8, &first[..])),
        ("packed words", &dims, view(I64, &first, 5, None), Output::new(I64, &first[..])),
        ("a row that four does not divide", &[37], view(F16, &[1], 1, None), Output::new(F16, [1])),
        ("one element", &[1, 1], view(F16, &[1, 1], 7, None), Output::new(F16, [1, 1])),
        ("no dimension", &[], view(F16, &[], 7, None), Output::new(F16, [])),
        ("to channels last", &dims, view(F16, &first, 0, None), Output::new(F16, last)),
        ("from channels last", &dims, view(BF16, &last, 0, None), Output::new(BF16, &first[..])),
        ("converted from channels last", &dims, view(F32, &last, 0, None), Output::new(BF16, &first[..])),
        ("flipped", &[6, 3, 3], view(F32, &[9, -3, -1], 8, None), Output::new(F32, [9, 3, 1])),
        ("flipped, long", &[6, 3, 50], view(F32, &[150, -50, -1], 149, None), Output::new(F32, [150, 50, 1])),
        (
            "into the middle",
            &[4, 6, 33],
            view(F32, &[198, 33, 1], 0, None),
            Output { element: F32, strides: vec![500, 50, 1], offset: 111 },
        ),
        ("every other", &[4, 40], view(F32, &[80, 2], 1, None), Output::new(F32, [120, 3])),
        ("a slice", &[4, 40], view(F32, &[100, 1], 30, None), Output::new(F32, [40, 1])),
        ("broadcast", &[4, 6, 40], view(F16, &[0, 1, 0], 0, None), Output::new(F32, [240, 40, 1])),
        (
            "written backwards",
            &[4, 40],
            view(F32, &[40, 1], 0, None),
            Output { element: F32, strides: vec![-40, -1], offset: 159 },
        ),
        ("padded rows", &[3, 4, 36], view(F32, &[120, 30, 1], 0, Some((2, 2, 30, 1))), Output::new(F32, [144, 36, 1])),
        (
            "padded columns",
            &[3, 8, 36],
            view(F16, &[180, 36, 1], 0, Some((1, 1, 5, 1))),
            Output::new(F32, [288, 36, 1]),
        ),
        ("padded, short rows", &[3, 4, 9], view(F32, &[24, 6, 1], 0, Some((2, 2, 6, 1))), Output::new(F32, [36, 9, 1])),
        ("cropped", &[3, 4, 20], view(F32, &[120, 30, 1], 0, Some((2, -7, 30, 1))), Output::new(F32, [80, 20, 1])),
        ("cropped and padded", &[3, 40], view(F32, &[30, 1], 0, Some((1, -7, 30, 1))), Output::new(F32, [40, 1])),
        ("padded and flipped", &[3, 40], view(F32, &[30, -1], 29, Some((1, 4, 30, 1))), Output::new(F32, [40, 1])),
        ("zeros between", &[3, 40], view(F32, &[14, 1], 0, Some((1, 1, 14, 3))), Output::new(F32, [40, 1])),
        ("zeros between rows", &[8, 40], view(BF16, &[40, 1], 0, Some((0, -1, 4, 2))), Output::new(BF16, [40, 1])),
        ("beyond everything", &[8, 40], view(F32, &[40, 1], 0, Some((0, 9, 4, 1))), Output::new(F32, [40, 1])),
        ("transposed with padding", &[40, 9], view(F32, &[1, 40], 0, Some((1, 1, 7, 1))), Output::new(F32, [9, 1])),
        ("whole numbers of other sizes", &[3, 40], view(I8, &[40, 1], 0, None), Output::new(I32, [1, 3])),
        ("truths", &[3, 40], view(Boolean, &[40, 1], 0, None), Output::new(Boolean, [40, 1])),
    ] {
        check_exactly(
            &bench,
            what,
            &Elementwise { dims: dims.to_vec(), inputs: vec![input], output, program: Vec::new() },
        );
    }
}

#[test]
fn chains_over_tensors_of_any_layout_are_one_kernel() {
    let Some(bench) = bench("chains_over_tensors_of_any_layout_are_one_kernel") else { return };
    use Element::*;
    use PointwiseMode::*;
    // relu(x + bias · 3 - residual) + index, with a scalar and a constant.
    let program = |inputs: usize| {
        vec![
            Op::pointwise(Mul, &[1, 3]),
            Op::pointwise(Add, &[0, inputs]),
            Op::pointwise(Sub, &[inputs + 1, 2]),
            Op::pointwise(ReluFwd, &[inputs + 2]),
            Op::pointwise(Add, &[inputs + 3, 4]),
            Op::pointwise(Max, &[inputs + 4, 5]),
        ]
    };
    let dims = vec![2usize, 3, 5, 40];
    let (first, last) = (packed(&dims), vec![600, 1, 120, 3]);
    for (what, x, bias, residual, axis, output) in [
        (
            "channels first",
            view(F32, &first, 0, None),
            F32,
            view(F32, &first, 0, None),
            3,
            Output::new(F32, &first[..]),
        ),
        ("channels last", view(F16, &last, 0, None), F32, view(F16, &last, 0, None), 1, Output::new(F16, &last[..])),
        ("mixed", view(F16, &last, 0, None), BF16, view(F32, &first, 0, None), 2, Output::new(BF16, &first[..])),
        (
            "padded",
            view(F32, &[600, 200, 40, 1], 0, Some((2, 1, 3, 1))),
            F32,
            view(F16, &[0, 0, 0, 1], 0, None),
            0,
            Output::new(F32, &first[..]),
        ),
        ("wide", view(F64, &first, 0, None), I32, view(F32, &last, 0, None), 3, Output::new(F64, &first[..])),
        (
            "sparse",
            view(F32, &first, 0, None),
            F32,
            view(F32, &[0, 0, 0, 0], 3, None),
            3,
            Output::new(F32, [1800, 600, 120, 3]),
        ),
    ] {
        let bias = view(bias, &[0, 1, 0, 0], 2, None);
        let inputs = vec![x, bias, residual, Input::Scalar(3.0), Input::Index { axis }, Input::Literal(2.0)];
        check_exactly(
            &bench,
            what,
            &Elementwise { dims: dims.clone(), program: program(inputs.len()), inputs, output },
        );
    }
}

/// Numbers that are the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// One below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Strides of a tensor of these extents that lies in any order, with or without gaps.
    pub(super) fn strides(&mut self, dims: &[usize]) -> Vec<i64> {
        let mut order: Vec<usize> = (0..dims.len()).collect();
        for i in (1..order.len()).rev() {
            // Mostly as it is.
            if self.one_in(3) {
                order.swap(i, self.below(i + 1));
            }
        }
        let (mut strides, mut step) = (vec![0; dims.len()], 1);
        for d in order.into_iter().rev() {
            strides[d] = step;
            step = step * dims[d] as i64 + i64::from(self.one_in(6));
        }
        strides
    }

    /// A tensor that an output of these extents reads.
    fn input(&mut self, dims: &[usize]) -> Input {
        let mut windows = vec![None; dims.len()];
        let mut own = dims.to_vec();
        for (d, extent) in own.iter_mut().enumerate() {
            if self.one_in(6) {
                let (begin, step) = (self.below(5) as i64 - 2, 1 + self.below(4) as u64 / 2);
                *extent = 1 + self.below(*extent + 1);
                windows[d] = Some(Window { begin, extent: *extent as u64, step });
            }
        }
        let (mut strides, mut offset) = (self.strides(&own), self.below(3) as i64);
        for (d, stride) in strides.iter_mut().enumerate() {
            if self.one_in(5) {
                *stride = 0;
            } else if self.one_in(6) {
                offset += *stride * (own[d] as i64 - 1);
                *stride = -*stride;
            }
        }
        if windows.iter().all(Option::is_none) {
            windows.clear();
        }
        Input::Tensor(View { element: self.of(Element::ALL), strides, offset, windows })
    }

    fn work(&mut self) -> Elementwise {
        let mut dims: Vec<usize> = (0..self.below(5)).map(|_| 1 + self.below(5)).collect();
        if let Some(inner) = dims.last_mut()
            && self.one_in(2)
        {
            *inner = 30 + self.below(20);
        }
        let mut inputs: Vec<Input> = (0..1 + self.below(4)).map(|_| self.input(&dims)).collect();
        if !dims.is_empty() && self.one_in(3) {
            inputs.push(Input::Index { axis: self.below(dims.len()) });
        }
        if self.one_in(3) {
            inputs.push(self.of(&[Input::Scalar(3.0), Input::Literal(-2.0), Input::Literal(0.5)].each_ref()).clone());
        }
        let mut program = Vec::new();
        let count = if inputs.len() == 1 { self.below(4) } else { 1 + self.below(6) };
        for i in 0..count {
            use PointwiseMode::*;
            let slots = inputs.len() + i;
            // Values stay small and exact, in halves.
            let mode =
                self.of(&[Add, Sub, Max, Min, Neg, Abs, ReluFwd, CmpLt, CmpEq, LogicalOr, BinarySelect, Identity]);
            let operands: Vec<usize> = (0..mode.operands()).map(|_| self.below(slots)).collect();
            program.push(if self.one_in(8) {
                Op::Round { to: self.of(Element::ALL), operand: operands[0] }
            } else {
                Op::pointwise(mode, &operands)
            });
        }
        let output = Output { offset: self.below(4) as i64, ..Output::new(self.of(Element::ALL), self.strides(&dims)) };
        Elementwise { dims, inputs, output, program }
    }
}

#[test]
fn random_work_computes_its_definition() {
    let Some(bench) = bench("random_work_computes_its_definition") else { return };
    let count = std::env::var("HIPDNN_RS_RANDOM_KERNELS").map_or(12, |count| count.parse().unwrap());
    for seed in 0..count {
        let work = Random(seed).work();
        check_exactly(&bench, &format!("seed {seed}: {work:?}, mixed"), &work);
    }
}

#[test]
fn one_kernel_serves_many_shapes_and_scalars() {
    let Some(bench) = bench("one_kernel_serves_many_shapes_and_scalars") else { return };
    let work = |dims: [usize; 2], scalar: f64| Elementwise {
        dims: dims.to_vec(),
        inputs: vec![Input::Tensor(View::new(Element::F32, [dims[1] as i64 + 1, 1])), Input::Scalar(scalar)],
        output: Output::new(Element::F32, [dims[1] as i64, 1]),
        program: vec![Op::pointwise(PointwiseMode::Mul, &[0, 1])],
    };
    let values: Vec<f64> = (0..4000).map(f64::from).collect();
    let mut kernels = Vec::new();
    for (dims, scalar) in [([40, 50], 2.0), ([3, 700], -1.0), ([70, 33], 0.5), ([2, 1999], 3.0)] {
        let work = work(dims, scalar);
        let kernel = prepare(&bench.device, &work, &bench.store).unwrap();
        let inputs = [encoded(Element::F32, &values)];
        let output = encoded(Element::F32, &values);
        let got = bench.launch(&kernel, &inputs, &output, &[]);
        assert_eq!(decoded(Element::F32, &got), evaluate(&work, std::slice::from_ref(&values), &values), "{dims:?}");
        let other = Elementwise { inputs: vec![work.inputs[0].clone(), Input::Scalar(7.0)], ..work };
        let got = bench.launch(&kernel, &inputs, &output, &[7.0]);
        assert_eq!(decoded(Element::F32, &got), evaluate(&other, std::slice::from_ref(&values), &values), "{dims:?}");
        kernels.push(kernel);
    }
    let function = |kernel: &PreparedKernel| kernel.kernel.as_ref().unwrap().compiled.function();
    assert!(kernels.iter().all(|kernel| function(kernel) == function(&kernels[0])), "one code object");
}

#[test]
fn nothing_is_launched_for_no_elements_and_wrong_calls_are_refused() {
    let Some(bench) = bench("nothing_is_launched_for_no_elements_and_wrong_calls_are_refused") else { return };
    let work = |dims: Vec<usize>| Elementwise {
        inputs: vec![Input::Tensor(View::new(Element::F32, packed(&dims))), Input::Scalar(1.0)],
        output: Output::new(Element::F32, packed(&dims)),
        program: vec![Op::pointwise(PointwiseMode::Add, &[0, 1])],
        dims,
    };
    let empty = prepare(&bench.device, &work(vec![3, 0, 2]), &bench.store).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: there is no element to read or write.
    unsafe { empty.launch(bench.stream.raw().cast(), &[null], null) }.unwrap();
    let kernel = prepare(&bench.device, &work(vec![3]), &bench.store).unwrap();
    // SAFETY: nothing is launched.
    let (tensors, scalars) = unsafe {
        let stream = bench.stream.raw().cast();
        (kernel.launch(stream, &[], null), kernel.launch_with(stream, &[null], null, &[1.0, 2.0]))
    };
    assert_eq!(tensors.unwrap_err().to_string(), "the kernel reads 1 tensors, came 0");
    assert_eq!(scalars.unwrap_err().to_string(), "the kernel has 1 scalars, came 2");
}

#[test]
fn a_tensor_may_be_written_where_it_is_read() {
    let Some(bench) = bench("a_tensor_may_be_written_where_it_is_read") else { return };
    let work = vector(PointwiseMode::Neg, Parameters::default(), Element::F16, Element::F16, 1001);
    let kernel = prepare(&bench.device, &work, &bench.store).unwrap();
    let values: Vec<f64> = (0..1001).map(f64::from).collect();
    let _entered = bench.device.enter().unwrap();
    let memory = DeviceMemory::new(bench.device.gpu(), 2002).unwrap();
    memory.write(0, &encoded(Element::F16, &values), &bench.stream).unwrap();
    // SAFETY: 1001 elements of two bytes, read after the kernel.
    unsafe { kernel.launch(bench.stream.raw().cast(), &[memory.address()], memory.address()) }.unwrap();
    let mut bytes = vec![0; 2002];
    memory.read(0, &mut bytes, &bench.stream).unwrap();
    assert!(decoded(Element::F16, &bytes).iter().zip(&values).all(|(got, value)| *got == -value));
}

#[test]
fn code_objects_come_from_the_store() {
    let Some(bench) = bench("code_objects_come_from_the_store") else { return };
    let directory = std::env::temp_dir().join(format!("hipdnn-rs-kernels-{}", std::process::id()));
    let store = Store::at(&directory);
    let work = vector(PointwiseMode::Add, Parameters::default(), Element::F16, Element::BF16, 100);
    let text = generate(&work, false).unwrap().unwrap().source.text;
    let files = || std::fs::read_dir(&directory).map_or(0, |files| files.count());
    // Kernels of their own each, as in a process.
    let first = Kernels::default();
    let compiled = first.get(&bench.device, FUNCTION, &text, &store).unwrap();
    assert_eq!(files(), 1);
    assert!(Arc::ptr_eq(&compiled, &first.get(&bench.device, FUNCTION, &text, &store).unwrap()), "once in a process");
    Kernels::default().get(&bench.device, FUNCTION, &text, &store).unwrap();
    assert_eq!(files(), 1);

    // What can't be loaded is compiled again and replaced.
    let key = compile::key(&bench.device, &text);
    store.put("kernel", &key, b"no code object");
    assert_eq!(store.get("kernel", &key).as_deref(), Some(&b"no code object"[..]));
    Kernels::default().get(&bench.device, FUNCTION, &text, &store).unwrap();
    assert!(store.get("kernel", &key).unwrap().starts_with(b"\x7fELF"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_the_compiler_says_is_passed_on() {
    let Some(bench) = bench("what_the_compiler_says_is_passed_on") else { return };
    let error =
        Kernels::default().get(&bench.device, FUNCTION, "int f( { return undeclared; }", &bench.store).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("hiprtcCompileProgram gave HIPRTC_ERROR_COMPILATION (6) for gfx"), "{text}");
    assert!(text.contains("hipdnn_rs.hip:1:"), "{text}");
}

#[test]
fn kernels_compile_for_other_devices_too() {
    let Some(bench) = bench("kernels_compile_for_other_devices_too") else { return };
    let modes = [PointwiseMode::GeluBwd, PointwiseMode::Tan, PointwiseMode::SoftplusFwd];
    let work = rows(&modes, PARAMETERS, Element::F16, 100);
    let wide = generate(&work, true).unwrap().unwrap().source.text;
    let narrow = source(&work).text;
    // With waves of 64 and of 32.
    for (arch, text) in [("gfx906", &narrow), ("gfx942", &wide), ("gfx1030", &wide), ("gfx1201", &narrow)] {
        let code = compile::compile(bench.device.gpu(), arch, text).unwrap();
        assert!(code.starts_with(b"\x7fELF"), "{arch}");
    }
}
