//! Reference element-wise kernels in `f64`, and random ones, for tests.

use half::{bf16, f16};
pub use hipdnn_engine_core::ops::pointwise::testing::PARAMETERS;
use hipdnn_engine_core::ops::pointwise::{self, Parameters};
use hipdnn_schemas::PointwiseMode;

use super::*;

/// Encodes a value as an element.
pub fn encode(element: Element, value: f64) -> Vec<u8> {
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

/// Decodes an element.
pub fn decode(element: Element, bytes: &[u8]) -> f64 {
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

/// Encodes values as elements.
pub fn encoded(element: Element, values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| encode(element, *value)).collect()
}

/// Decodes elements.
pub fn decoded(element: Element, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(element.bytes()).map(|bytes| decode(element, bytes)).collect()
}

/// Nearest value of a type, ties to even; integers saturate, and NaN is 0 there.
pub fn rounded(element: Element, value: f64) -> f64 {
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

/// Rounds to a significand of `bits` bits, with exponents from `least` (below it, fixed point) to `most` (beyond it,
/// infinity).
fn float(value: f64, bits: i32, least: i32, most: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(least);
    let unit = 2f64.powi(exponent - bits + 1);
    let near = (value / unit).round_ties_even() * unit;
    if near.abs() >= 2f64.powi(most) * 2.0 { f64::INFINITY.copysign(value) } else { near }
}

/// Unit in the last place of a type at a value; for integers 1.
pub fn ulp(element: Element, value: f64) -> f64 {
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

/// Value of a mode, in `f64`.
pub fn defined(mode: PointwiseMode, p: &Parameters, v: &[f64]) -> f64 {
    pointwise::apply(mode, p, v).unwrap_or_else(|| panic!("{mode} is no operation"))
}

/// Expected contents of the output buffer, whose values are `output` before: all steps by their definition, in `f64`.
pub fn evaluate(work: &Elementwise, inputs: &[Vec<f64>], output: &[f64]) -> Vec<f64> {
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

/// Strides of a packed tensor.
pub fn packed(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i] as i64;
    }
    strides
}

/// Kernel of a mode over as many vectors as it takes.
pub fn vector(
    mode: PointwiseMode,
    parameters: Parameters,
    element: Element,
    output: Element,
    len: usize,
) -> Elementwise {
    let operands: Vec<usize> = (0..mode.operands()).collect();
    Elementwise {
        dims: vec![len],
        inputs: operands.iter().map(|_| Input::Tensor(View::new(element, [1]))).collect(),
        output: Output::new(output, [1]),
        program: vec![Op::Pointwise { mode, parameters, operands }],
    }
}

/// Kernel whose row `k` is the mode of that number, of the same operands: far fewer kernels to compile.
pub fn rows(modes: &[PointwiseMode], parameters: Parameters, element: Element, len: usize) -> Elementwise {
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

/// Ends a program with the slot `functions + k` in row `k`; slot 3 is the row index, slot `3 + k` the constant `k`.
pub fn select_rows(work: &mut Elementwise, functions: usize, rows: usize) {
    let mut chosen = functions;
    for k in 1..rows {
        let equal = work.inputs.len() + work.program.len();
        work.program.push(Op::pointwise(PointwiseMode::CmpEq, &[3, 3 + k]));
        work.program.push(Op::pointwise(PointwiseMode::BinarySelect, &[functions + k, chosen, equal]));
        chosen = equal + 1;
    }
}

/// Kernel of x · scalar + bias of the channel, over packed `f16` tensors.
pub fn scaled(dims: [usize; 4], channels_last: bool, scalar: f64) -> Elementwise {
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

/// Random kernels, the same for a seed in every run.
pub struct Random(fastrand::Rng);

impl Random {
    /// The kernels of a seed.
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    /// True with a probability of 1/`n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Draws one of the list.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Draws strides of a tensor of these extents in any order, with or without gaps.
    pub fn strides(&mut self, dims: &[usize]) -> Vec<i64> {
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

    /// Draws an input for an output of these extents.
    pub fn input(&mut self, dims: &[usize]) -> Input {
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

    /// Draws an element-wise kernel.
    pub fn work(&mut self) -> Elementwise {
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
