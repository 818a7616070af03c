//! Reference element-wise kernels in `f64`, and random ones, for tests.

use half::{bf16, f16};
pub use hipdnn_engine_core::ops::pointwise::testing::PARAMETERS;
use hipdnn_engine_core::ops::pointwise::{self, Parameters};
use hipdnn_schemas::PointwiseMode;
use smallvec::SmallVec;

use super::grouped::{self, Access, Bound, Grouped, Pass, Store};
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

/// Element-wise kernel: a program over every element of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// Extents of the output.
    pub dims: Vec<usize>,
    /// Inputs of the program: slots 0, 1, …
    pub inputs: Vec<Input>,
    /// Destination of the last operation's result, or of the only input if there are no operations.
    pub output: Output,
    /// Operations in order.
    pub program: Vec<Op>,
}

/// Source of a slot that is filled before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Element of a tensor.
    Tensor(View),
    /// Index along a dimension of the output.
    Index {
        /// Number of the dimension.
        axis: usize,
    },
    /// Scalar argument, which may be replaced for a launch ([`KernelSource::scalars`]).
    Scalar(f64),
    /// Constant of the program: kernels for other values are other kernels.
    Literal(f64),
}

/// Strided view of an input tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element type.
    pub element: Element,
    /// Strides along the dimensions of the output, in elements; 0 broadcasts, negative ones go backwards.
    pub strides: Vec<i64>,
    /// Offset of the element that index 0 reads, from the address given at launch, in elements.
    pub offset: i64,
    /// Windows of the dimensions, or an empty list: the indices that read an element; others read zero. With a window
    /// the stride is that of the tensor's own dimension, and `offset` is its element 0.
    pub windows: Vec<Option<Window>>,
}

/// Strided view of the output tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Element type.
    pub element: Element,
    /// Strides in elements. No two elements share an address.
    pub strides: Vec<i64>,
    /// Offset of the element of index 0 from the address given at launch, in elements.
    pub offset: i64,
}

impl View {
    /// View of a whole tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> View {
        View { element, strides: strides.into(), offset: 0, windows: Vec::new() }
    }
}

impl Output {
    /// View of a whole tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> Output {
        Output { element, strides: strides.into(), offset: 0 }
    }
}

impl Elementwise {
    /// Kernel over one group, of which every element of the output is a member.
    pub fn kernel(&self) -> Grouped {
        let (rank, mut reads, mut inputs) = (self.dims.len(), Vec::new(), Vec::new());
        for input in &self.inputs {
            inputs.push(match *input {
                Input::Scalar(value) => grouped::Input::Scalar(value),
                Input::Literal(value) => grouped::Input::Literal(value),
                Input::Index { axis } => grouped::Input::Index { axis },
                Input::Tensor(ref view) => {
                    reads.push(view.element);
                    grouped::Input::Tensor { tensor: reads.len() - 1, access: view.access(rank), pad_value: 0.0 }
                }
            });
        }
        let Output { element, ref strides, offset } = self.output;
        let access = Access { offset, strides: strides.clone(), bounds: Vec::new() };
        let store = Store { slot: self.inputs.len() + self.program.len() - 1, tensor: 0, access };
        let pass = Pass::PerMember { inputs, program: self.program.clone(), stores: vec![store] };
        let (groups, members) = (Vec::new(), self.dims.clone());
        Grouped { groups, members, reads, writes: vec![element], passes: vec![pass] }
    }
}

impl View {
    /// Access of an element by the indices of the output's dimensions.
    fn access(&self, rank: usize) -> Access {
        let mut access = Access { offset: self.offset, strides: self.strides.clone(), bounds: Vec::new() };
        for (d, window) in self.windows.iter().enumerate() {
            let Some(Window { begin, extent, step }) = *window else { continue };
            let stride = std::mem::take(&mut access.strides[d]);
            let mut steps = vec![0; rank];
            steps[d] = 1;
            access.bounds.push(Bound { offset: -begin, steps, divisor: step, extent, stride });
        }
        access
    }
}

/// Window of an input along a dimension of the output, where it is not simply strided: index `i` reads the tensor's
/// element `(i - begin) / step`, and zero where that is not a whole number from 0 to `extent - 1`.
///
/// With step 1 that is padding (or cropping, where `begin` is negative); a larger step inserts `step - 1` zeros between
/// adjacent elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Index that reads the first element.
    pub begin: i64,
    /// Extent of the tensor along this dimension.
    pub extent: u64,
    /// Distance of the indices that read adjacent elements; at least 1.
    pub step: u64,
}

/// Expected contents of the output buffer, whose values are `output` before.
pub fn evaluate(work: &Elementwise, inputs: &[Vec<f64>], output: &[f64]) -> Vec<f64> {
    grouped::testing::evaluate(&work.kernel(), inputs, &[output.to_vec()], &[]).remove(0)
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
    let operands: SmallVec<_> = (0..mode.operands()).collect();
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
