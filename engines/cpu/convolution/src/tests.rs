//! Every algorithm against plain loops in f64, on every instruction set, in memory with guard pages around it.
//!
//! Error bound. For Winograd's algorithm see [`Magnitudes`]. Otherwise, with u = 2⁻²⁴ a sum of n products in any order,
//! fused or not, is off by at most γ·Σ|x||w| with γ = (n + 2)·u / (1 - (n + 2)·u) (Higham, Accuracy and Stability,
//! §3.1). Each later step, a bias too, scales the error it gets by its slope and adds its own rounding; storing adds
//! half a unit of the output's type.

use super::*;
use half::{bf16, f16};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::guarded::Guarded;
use hipdnn_cpu_simd::machine::Class;
use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};

mod fused_layers;

/// Random cases, the same for a seed everywhere.
struct Random(fastrand::Rng);

impl Random {
    fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    fn among<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn unit(&mut self) -> f32 {
        2.0 * self.0.f32() - 1.0
    }
}

/// Tensor: its layout, memory and values.
struct Tensor {
    layout: Layout,
    sizes: [usize; 5],
    memory: Guarded,
}

fn places(sizes: [usize; 5]) -> impl Iterator<Item = [usize; 5]> {
    let mut next = [0; 5];
    (0..sizes.iter().product()).map(move |_| {
        let at = next;
        for (place, size) in next.iter_mut().zip(sizes).rev() {
            *place += 1;
            if *place < size {
                break;
            }
            *place = 0;
        }
        at
    })
}

/// Fill of the gaps of a tensor, which nobody may change.
const GAP: u8 = 0xa5;

impl Tensor {
    fn new(layout: Layout, sizes: [usize; 5], at_end: bool) -> Tensor {
        Tensor { layout, sizes, memory: Guarded::new(layout.span(sizes) * layout.element.bytes(), at_end, GAP) }
    }

    fn random(layout: Layout, sizes: [usize; 5], at_end: bool, random: &mut Random) -> Tensor {
        let mut tensor = Tensor::new(layout, sizes, at_end);
        for at in places(sizes) {
            tensor.put(at, random.unit());
        }
        tensor
    }

    fn put(&mut self, at: [usize; 5], value: f32) {
        let i = self.layout.offset(at) * self.layout.element.bytes();
        let bytes = self.memory.bytes();
        match self.layout.element {
            Element::F32 => bytes[i..i + 4].copy_from_slice(&value.to_ne_bytes()),
            Element::F16 => bytes[i..i + 2].copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
            Element::BF16 => bytes[i..i + 2].copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
        }
    }

    fn get(&mut self, at: [usize; 5]) -> f64 {
        let i = self.layout.offset(at) * self.layout.element.bytes();
        let bytes = self.memory.bytes();
        match self.layout.element {
            Element::F32 => f64::from(f32::from_ne_bytes(bytes[i..i + 4].try_into().unwrap())),
            Element::F16 => f16::from_ne_bytes(bytes[i..i + 2].try_into().unwrap()).to_f64(),
            Element::BF16 => bf16::from_ne_bytes(bytes[i..i + 2].try_into().unwrap()).to_f64(),
        }
    }

    /// Packed values of the tensor.
    fn dense(&mut self) -> Dense {
        Dense { sizes: self.sizes, values: places(self.sizes).map(|at| self.get(at)).collect() }
    }

    /// Panics if a byte that belongs to no value was changed.
    fn check_gaps(&mut self, name: &str) {
        let size = self.layout.element.bytes();
        let mut owned = vec![false; self.memory.bytes().len()];
        for at in places(self.sizes) {
            let i = self.layout.offset(at) * size;
            owned[i..i + size].fill(true);
        }
        for (i, byte) in self.memory.bytes().iter().enumerate() {
            assert!(owned[i] || *byte == GAP, "{name}: byte {i} between the output's values was written");
        }
    }
}

/// Packed values of a tensor.
struct Dense {
    sizes: [usize; 5],
    values: Vec<f64>,
}

impl Dense {
    fn index(&self, [n, c, d, h, w]: [usize; 5]) -> usize {
        let [_, cs, ds, hs, ws] = self.sizes;
        (((n * cs + c) * ds + d) * hs + h) * ws + w
    }

    fn get(&self, at: [usize; 5]) -> f64 {
        self.values[self.index(at)]
    }

    /// Distance between the values of a place's channels.
    fn channel_stride(&self) -> usize {
        let [_, _, d, h, w] = self.sizes;
        d * h * w
    }
}

/// Memory order of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Packed,
    ChannelsLast,
    /// A window into a larger packed tensor: gaps behind every row, plane and image.
    Sliced,
    /// Every second place of a packed tensor, in each dimension.
    Spread,
    /// A window into a larger channels-last tensor.
    ChannelsLastSliced,
}

impl Order {
    const ALL: [Order; 5] =
        [Order::Packed, Order::ChannelsLast, Order::Sliced, Order::Spread, Order::ChannelsLastSliced];

    fn layout(self, element: Element, sizes: [usize; 5]) -> Layout {
        let [n, c, d, h, w] = sizes;
        match self {
            Order::Packed => Layout::packed(element, sizes),
            Order::ChannelsLast => Layout::channels_last(element, sizes),
            Order::Sliced => Layout::packed(element, [n, c + 1, d + 1, h + 1, w + 3]),
            Order::Spread => {
                let mut layout = Layout::packed(element, [2 * n, 2 * c, 2 * d, 2 * h, 2 * w]);
                layout.strides = layout.strides.map(|stride| 2 * stride);
                layout
            }
            Order::ChannelsLastSliced => Layout::channels_last(element, [n, c + 5, d, h + 1, w + 1]),
        }
    }
}

/// Case: the parts of a problem.
#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    elements: [Element; 3],
    orders: [Order; 3],
    epilogue: Vec<Then>,
}

impl Case {
    /// Problem of the case, without its epilogue.
    fn problem(&self) -> Problem {
        let [xe, we, ye] = self.elements;
        let mut problem = Problem {
            shape: self.shape.clone(),
            x: Layout::packed(xe, [0; 5]),
            w: Layout::packed(we, [0; 5]),
            y: Layout::packed(ye, [0; 5]),
            epilogue: Vec::new(),
            constant_weights: true,
            winograd: false,
        };
        problem.x = self.orders[0].layout(xe, problem.x_sizes());
        problem.w = self.orders[1].layout(we, problem.w_sizes());
        problem.y = self.orders[2].layout(ye, problem.y_sizes());
        problem
    }

    /// Appends the epilogue to the problem; returns its operands.
    fn operands(&self, problem: &mut Problem, at_end: bool, random: &mut Random) -> Vec<Tensor> {
        let mut operands = Vec::new();
        for then in &self.epilogue {
            let operand = operands.len();
            let sizes = problem.y_sizes();
            let [n, k, .., ow] = sizes;
            let mut push =
                |layout, sizes, random: &mut Random| operands.push(Tensor::random(layout, sizes, at_end, random));
            problem.epilogue.push(match *then {
                Then::Bias(element, channel_stride) => {
                    let sizes = [1, k, 1, 1, 1];
                    push(Layout { element, strides: [0, channel_stride, 0, 0, 0] }, sizes, random);
                    EpilogueStep::Bias { operand, element, channel_stride }
                }
                Then::LargeBias => {
                    let (element, channel_stride) = (Element::F32, 1);
                    let factor = if problem.y.element == Element::F16 { 3e4 } else { 1e6 };
                    let layout = Layout { element, strides: [0, channel_stride, 0, 0, 0] };
                    let mut bias = Tensor::new(layout, [1, k, 1, 1, 1], at_end);
                    (0..k).for_each(|channel| bias.put([0, channel, 0, 0, 0], factor * random.unit()));
                    operands.push(bias);
                    EpilogueStep::Bias { operand, element, channel_stride }
                }
                Then::Add(element, order) => {
                    let layout = order.layout(element, sizes);
                    push(layout, sizes, random);
                    EpilogueStep::Add { operand, layout }
                }
                Then::AddColumns => {
                    let layout = Layout { element: Element::F32, strides: [0, 0, 0, 0, 1] };
                    push(layout, [1, 1, 1, 1, ow], random);
                    EpilogueStep::Add { operand, layout }
                }
                Then::Scale => {
                    let layout = Layout { element: Element::F16, strides: [k, 1, 0, 0, 0] };
                    push(layout, [n, k, 1, 1, 1], random);
                    EpilogueStep::Mul { operand, layout }
                }
                Then::Factors(element, channel_stride) => {
                    let layout = Layout { element, strides: [0, channel_stride, 0, 0, 0] };
                    push(layout, [1, if channel_stride == 0 { 1 } else { k }, 1, 1, 1], random);
                    EpilogueStep::Mul { operand, layout }
                }
                Then::Activation(activation) => EpilogueStep::Activation(activation),
            });
        }
        operands
    }
}

/// Configuration in which a case is run.
#[derive(Clone, Copy)]
struct Way<'a> {
    isa: Isa,
    pool: &'a Pool,
    /// Threads the plan is made for, which may be more or fewer than the pool has.
    threads: usize,
    constant: bool,
    winograd: bool,
    /// True for every algorithm that serves the problem, not only the chosen one.
    every: bool,
}

/// A step of the epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Bias(Element, usize),
    /// A bias of a million times the values of the tensors, or as large as an f16 output has room for.
    LargeBias,
    /// Adds a tensor of the output's sizes.
    Add(Element, Order),
    /// Adds a value for each column.
    AddColumns,
    /// Multiplies by a value for each channel and image.
    Scale,
    /// Multiplies by a value for each channel, or by one value.
    Factors(Element, usize),
    Activation(Activation),
}

/// Largest slope and own error (relative to the result and to the argument) of the activations used here.
fn activation_error(activation: &Activation) -> (f64, f64, f64) {
    match activation {
        Activation::Relu { slope, .. } => (f64::from(slope.abs()).max(1.0), 1.2e-7, 1.2e-7),
        Activation::Gelu | Activation::GeluTanh => (1.13, 0.0, 2.4e-7),
        Activation::Swish { .. } => (1.1, 7.2e-7, 2e-7),
        _ => (1.0, 7.2e-7, 2e-7),
    }
}

fn activate(activation: &Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Relu { lower_clip, upper_clip, slope } => {
            let low = f64::from(*lower_clip);
            (if x <= low { low + f64::from(*slope) * (x - low) } else { x }).min(f64::from(*upper_clip))
        }
        Activation::Identity => x,
        Activation::Swish { beta } => x * sigmoid(f64::from(*beta) * x),
        Activation::HardSigmoid { alpha, beta } => (f64::from(*alpha) * x + f64::from(*beta)).clamp(0.0, 1.0),
        Activation::HardSwish { alpha, beta } => x * (f64::from(*alpha) * x + f64::from(*beta)).clamp(0.0, 1.0),
        _ => unreachable!("not used by the cases"),
    }
}

/// Runs a case in all ways; returns the algorithms that served it.
fn check(case: &Case, ways: &[Way<'_>], seed: u64) -> BTreeSet<&'static str> {
    let shape = &case.shape;
    let mut random = Random::new(seed);
    let at_end = random.below(4) != 0;
    let mut problem = case.problem();
    let mut x = Tensor::random(problem.x, problem.x_sizes(), at_end, &mut random);
    let mut w = Tensor::random(problem.w, problem.w_sizes(), at_end, &mut random);
    let mut y = Tensor::new(problem.y, problem.y_sizes(), at_end);
    let mut operands = case.operands(&mut problem, at_end, &mut random);
    let (dense_x, dense_w) = (x.dense(), w.dense());
    let others: Vec<Dense> = operands.iter_mut().map(Tensor::dense).collect();
    let pointers: Vec<*const u8> = operands.iter().map(|operand| operand.memory.data.cast_const()).collect();
    let sums: Vec<(f64, f64)> = places(problem.y_sizes()).map(|at| reference(shape, &dense_x, &dense_w, at)).collect();
    // Outputs and bounds by the magnitudes that roundings are relative to: the same for all plans.
    let bounds = |n: usize, of: &mut dyn FnMut([usize; 5], f64) -> f64| {
        let n = n as f64;
        let gamma = n * UNIT / (1.0 - n * UNIT);
        let each = places(problem.y_sizes()).zip(&sums).map(|(at, (sum, magnitude))| {
            let magnitude = of(at, *magnitude);
            follow(case, &others, at, *sum, magnitude, gamma)
        });
        each.collect::<Vec<(f64, f64)>>()
    };
    let direct = LazyCell::new(|| bounds(shape.depth() + 2, &mut |_, magnitude| magnitude));
    macro_rules! winograd {
        ($m:literal, $n:literal, $b:ident) => {
            LazyCell::new(|| {
                let mut magnitudes = Magnitudes::<$m, $n, { $n + 1 - $m }>::new(&$b);
                let transformed = shape.group_in() * shape.stride[1] * shape.stride[2] + 20;
                bounds(transformed, &mut |at, _| magnitudes.of(shape, &dense_x, &dense_w, at))
            })
        };
    }
    let (small, large) = (winograd!(2, 4, B4), winograd!(4, 6, B6));
    let (three_of_four, five_of_four) = (winograd!(3, 6, B6), winograd!(5, 8, B8));
    let five_of_two = winograd!(5, 6, B6);
    let (two_of_five, four_of_five, two_of_seven) = (winograd!(2, 6, B6), winograd!(4, 8, B8), winograd!(2, 8, B8));
    let mut names = BTreeSet::new();
    for (way, plan) in ways.iter().flat_map(|way| {
        let problem = Problem { constant_weights: way.constant, winograd: way.winograd, ..problem.clone() };
        let plans = if way.every {
            // Plain loops take longest, and are the same on every instruction set and wherever weights come from.
            let once = way.isa == Isa::PORTABLE && way.constant == ways[0].constant;
            let repeats = |one: &ConvolutionPlan| matches!(one.algorithm, Algorithm::Naive) && !once;
            ConvolutionPlan::all(&problem, way.threads, way.isa).filter(|one| !repeats(one)).collect()
        } else {
            vec![ConvolutionPlan::with_isa(&problem, way.threads, way.isa)]
        };
        plans.into_iter().map(move |plan| (way, plan))
    }) {
        names.insert(plan.algorithm());
        let name = format!("{} {} {} threads, seed {seed}: {case:?}", plan.algorithm(), way.isa, way.threads);
        y.memory.bytes().fill(GAP);
        // All bits set: a NaN wherever scratch is used before it is written.
        let mut workspace = Guarded::new(plan.workspace_bytes(), at_end, 0xff);
        let mut prepared = hipdnn_cpu_simd::scratch::AlignedBuffer::new(plan.prepared_len());
        prepared.fill(f32::NAN);
        let weights = if way.constant && plan.prepared_len() > 0 {
            // SAFETY: the weights are as the problem says.
            unsafe { plan.prepare(w.memory.data, &mut prepared, way.pool) };
            Weights::Prepared(&prepared)
        } else {
            Weights::Raw(w.memory.data)
        };
        let args = Args {
            x: x.memory.data,
            weights,
            y: y.memory.data,
            operands: &pointers,
            workspace: workspace.bytes().as_mut_ptr(),
        };
        // SAFETY: the tensors are as the problem says, and nobody else has them.
        unsafe { plan.run(way.pool, &args) };
        let bounds = match plan.algorithm() {
            "winograd F(5×5, 2×2)" => &*five_of_two,
            "winograd F(2×2, 3×3)" => &*small,
            "winograd" | "winograd F(4×4, 3×3)" => &*large,
            "winograd F(3×3, 4×4)" => &*three_of_four,
            "winograd F(5×5, 4×4)" => &*five_of_four,
            "winograd F(2×2, 5×5)" => &*two_of_five,
            "winograd F(4×4, 5×5)" => &*four_of_five,
            "winograd F(2×2, 7×7)" => &*two_of_seven,
            _ => &*direct,
        };
        for (at, (want, error)) in places(problem.y_sizes()).zip(bounds) {
            let got = y.get(at);
            assert!((got - want).abs() <= *error, "{name}: {got} for {want} ± {error:e} at {at:?}");
        }
        y.check_gaps(&name);
        // An operand may be the output itself.
        let Some(own) = operands.iter().position(|other| other.layout == y.layout && other.sizes == y.sizes) else {
            continue;
        };
        let apart = y.dense().values;
        y.memory.bytes().copy_from_slice(operands[own].memory.bytes());
        let mut pointers = pointers.clone();
        pointers[own] = y.memory.data;
        // SAFETY: the same memory but for one operand, which is the output in the same layout.
        unsafe { plan.run(way.pool, &Args { operands: &pointers, ..args }) };
        assert!(y.dense().values == apart, "{name}: in place of operand {own} other results than beside it");
        y.check_gaps(&name);
    }
    names
}

/// Half the distance of 1 and the next `f32`.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// Output and its error bound, from the exact sum and the magnitudes that its roundings are relative to.
fn follow(case: &Case, others: &[Dense], at: [usize; 5], sum: f64, magnitude: f64, gamma: f64) -> (f64, f64) {
    let (mut sum, mut error) = (sum, gamma * magnitude);
    let mut others = others.iter();
    for then in &case.epilogue {
        let mut other = || {
            let other = others.next().unwrap();
            other.get(std::array::from_fn(|i| if other.sizes[i] == 1 { 0 } else { at[i] }))
        };
        match then {
            Then::Bias(..) | Then::LargeBias | Then::Add(..) | Then::AddColumns => {
                sum += other();
                error += UNIT * (sum.abs() + error);
            }
            Then::Scale | Then::Factors(..) => {
                let other = other();
                sum *= other;
                error = error * other.abs() + UNIT * (sum.abs() + error);
            }
            Then::Activation(activation) => {
                let (slope, of_result, of_argument) = activation_error(activation);
                let result = activate(activation, sum);
                error = error * slope * 1.001 + of_result * result.abs() + of_argument * sum.abs() + 1e-37;
                sum = result;
            }
        }
    }
    error += match case.elements[2] {
        Element::F32 => 0.0,
        Element::F16 => 2f64.powi(-11) * (sum.abs() + error) + 2f64.powi(-25),
        Element::BF16 => 2f64.powi(-8) * (sum.abs() + error),
    };
    (sum, error)
}

/// Sum and sum of magnitudes.
fn reference(shape: &Shape, x: &Dense, w: &Dense, [n, k, z, p, q]: [usize; 5]) -> (f64, f64) {
    let (mut sum, mut magnitude) = (0.0, 0.0);
    let (x_stride, w_stride) = (x.channel_stride(), w.channel_stride());
    let first = k / shape.group_out() * shape.group_in();
    let place = |axis: usize, out: usize, tap: usize| {
        let place = (out * shape.stride[axis] + tap * shape.dilation[axis]).checked_sub(shape.pad_before[axis])?;
        (place < shape.input[axis]).then_some(place)
    };
    let of = |axis: usize, tap: usize| if shape.flip { shape.kernel[axis] - 1 - tap } else { tap };
    for t in 0..shape.kernel[0] {
        let Some(depth) = place(0, z, t) else { continue };
        for r in 0..shape.kernel[1] {
            let Some(line) = place(1, p, r) else { continue };
            for s in 0..shape.kernel[2] {
                let Some(column) = place(2, q, s) else { continue };
                let (mut i, mut j) =
                    (x.index([n, first, depth, line, column]), w.index([k, 0, of(0, t), of(1, r), of(2, s)]));
                for _ in 0..shape.group_in() {
                    let product = x.values[i] * w.values[j];
                    sum += product;
                    magnitude += product.abs();
                    i += x_stride;
                    j += w_stride;
                }
            }
        }
    }
    (sum, magnitude)
}

/// Magnitudes that the roundings of Winograd's algorithm, with tiles of M×M outputs, N×N inputs and R×R taps of a phase, are relative
/// to: its formula with the absolute values of all matrices and data. An output passes at most ten roundings in the input transform,
/// one in the kernel's, one for each term of the product, and nine in the output transform.
struct Magnitudes<'a, const M: usize, const N: usize, const R: usize> {
    a: [[f64; N]; M],
    b: &'a [[f64; N]; N],
    g: [[f64; R]; N],
    /// |Bᵀ||d||B| by (image, channel, tile row, tile column, phase of the stride).
    inputs: HashMap<[usize; 5], [[f64; N]; N]>,
    /// |G||g||Gᵀ| by (output channel, input channel, phase of the stride).
    kernels: HashMap<[usize; 3], [[f64; N]; N]>,
}

/// |Bᵀ| of tiles of 4×4, 6×6 and 8×8 inputs.
const B4: [[f64; 4]; 4] = [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]];
const B6: [[f64; 6]; 6] = [
    [4.0, 0.0, 5.0, 0.0, 1.0, 0.0],
    [0.0, 4.0, 4.0, 1.0, 1.0, 0.0],
    [0.0, 4.0, 4.0, 1.0, 1.0, 0.0],
    [0.0, 2.0, 1.0, 2.0, 1.0, 0.0],
    [0.0, 2.0, 1.0, 2.0, 1.0, 0.0],
    [0.0, 4.0, 0.0, 5.0, 0.0, 1.0],
];

const B8: [[f64; 8]; 8] = [
    [1.0, 0.0, 5.25, 0.0, 5.25, 0.0, 1.0, 0.0],
    [0.0, 1.0, 1.0, 4.25, 4.25, 1.0, 1.0, 0.0],
    [0.0, 1.0, 1.0, 4.25, 4.25, 1.0, 1.0, 0.0],
    [0.0, 0.5, 0.25, 2.5, 1.25, 2.0, 1.0, 0.0],
    [0.0, 0.5, 0.25, 2.5, 1.25, 2.0, 1.0, 0.0],
    [0.0, 2.0, 4.0, 2.5, 5.0, 0.5, 1.0, 0.0],
    [0.0, 2.0, 4.0, 2.5, 5.0, 0.5, 1.0, 0.0],
    [0.0, 1.0, 0.0, 5.25, 0.0, 5.25, 0.0, 1.0],
];

/// |Aᵀ|: powers of the points 0, ±1, ±2 and ±½, with the point at infinity in the last row.
fn output_magnitudes<const M: usize, const N: usize>() -> [[f64; N]; M] {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| match column {
            _ if column == N - 1 => f64::from(u8::from(row == M - 1)),
            0 => f64::from(u8::from(row == 0)),
            1 | 2 => 1.0,
            3 | 4 => 2f64.powi(row as i32),
            _ => 0.5f64.powi(row as i32),
        })
    })
}

/// `|l| |m| |l|ᵀ`
fn absolute<const N: usize, const D: usize>(l: &[[f64; D]; N], m: [[f64; D]; D]) -> [[f64; N]; N] {
    let mut out = [[0.0; N]; N];
    for (f, left) in l.iter().enumerate() {
        for (e, right) in l.iter().enumerate() {
            for (left, row) in left.iter().zip(m) {
                out[f][e] += left.abs() * row.iter().zip(right).map(|(m, r)| m.abs() * r.abs()).sum::<f64>();
            }
        }
    }
    out
}

impl<'a, const M: usize, const N: usize, const R: usize> Magnitudes<'a, M, N, R> {
    fn new(b: &'a [[f64; N]; N]) -> Magnitudes<'a, M, N, R> {
        let (inputs, kernels) = (HashMap::new(), HashMap::new());
        Magnitudes { a: output_magnitudes(), b, g: transforms::kernel_transform(), inputs, kernels }
    }

    fn of(&mut self, shape: &Shape, x: &Dense, w: &Dense, [n, k, _, p, q]: [usize; 5]) -> f64 {
        let first = k / shape.group_out() * shape.group_in();
        let [_, rows, columns] = shape.kernel;
        let [_, down, across] = shape.stride;
        let mut magnitude = 0.0;
        for (c, phase) in (0..shape.group_in()).flat_map(|c| (0..down * across).map(move |phase| (c, phase))) {
            let (phase_row, phase_column) = (phase / across, phase % across);
            // Of a phase of the dilation: its rows and columns are the dilation apart, and so are those of its tiles.
            let [_, by_row, by_column] = shape.dilation;
            let (tile_row, tile_column) = (p / by_row / M, q / by_column / M);
            let key = [n, first + c, tile_row * by_row + p % by_row, tile_column * by_column + q % by_column, phase];
            let input = self.inputs.entry(key).or_insert_with(|| {
                let mut d = [[0f64; N]; N];
                for (i, row) in d.iter_mut().enumerate() {
                    for (j, value) in row.iter_mut().enumerate() {
                        let line = ((tile_row * M + i) * by_row + p % by_row) * down + phase_row;
                        let column = ((tile_column * M + j) * by_column + q % by_column) * across + phase_column;
                        let line = line.wrapping_sub(shape.pad_before[1]);
                        let column = column.wrapping_sub(shape.pad_before[2]);
                        if line < shape.input[1] && column < shape.input[2] {
                            *value = x.get([n, first + c, 0, line, column]);
                        }
                    }
                }
                absolute(self.b, d)
            });
            let kernel = self.kernels.entry([k, c, phase]).or_insert_with(|| {
                let g = std::array::from_fn(|r| {
                    std::array::from_fn(|s| {
                        let (r, s) = (r * down + phase_row, s * across + phase_column);
                        if r >= rows || s >= columns {
                            return 0.0;
                        }
                        let (r, s) = if shape.flip { (rows - 1 - r, columns - 1 - s) } else { (r, s) };
                        w.get([k, c, 0, r, s])
                    })
                });
                absolute(&self.g, g)
            });
            for f in 0..N {
                for e in 0..N {
                    let outer = self.a[p / by_row % M][f] * self.a[q / by_column % M][e];
                    magnitude += outer * input[f][e] * kernel[f][e];
                }
            }
        }
        magnitude
    }
}

/// A shape from its spatial parts; the output is what stride and padding after (as before, plus `more`) give.
fn shape(
    (batch, groups, in_channels, out_channels): (usize, usize, usize, usize),
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    pad_before: [usize; 3],
    more: [isize; 3],
    dilation: [usize; 3],
) -> Shape {
    let output = std::array::from_fn(|i| {
        let padded = (input[i] + 2 * pad_before[i]) as isize + more[i];
        (padded - (dilation[i] * (kernel[i] - 1)) as isize - 1) as usize / stride[i] + 1
    });
    Shape { batch, groups, in_channels, out_channels, input, kernel, output, stride, dilation, pad_before, flip: false }
}

fn plain(shape: Shape) -> Case {
    Case { shape, elements: [Element::F32; 3], orders: [Order::Packed; 3], epilogue: Vec::new() }
}

const ONE: [usize; 3] = [1; 3];
const NO: [usize; 3] = [0; 3];

/// Shapes of every kind.
fn shapes() -> Vec<Shape> {
    let even = [0isize; 3];
    vec![
        // 1×1: wide, deep, narrow, strided, padded
        shape((1, 1, 16, 32), [1, 12, 11], ONE, ONE, NO, even, ONE),
        shape((2, 1, 70, 9), [1, 7, 7], ONE, ONE, NO, even, ONE),
        shape((1, 1, 3, 5), [1, 1, 1], ONE, ONE, NO, even, ONE),
        shape((1, 1, 24, 40), [1, 9, 2], ONE, ONE, NO, even, ONE),
        shape((1, 1, 8, 20), [1, 13, 15], ONE, [1, 2, 2], NO, even, ONE),
        shape((1, 1, 8, 20), [1, 13, 15], ONE, [1, 3, 1], NO, even, ONE),
        shape((2, 1, 37, 20), [1, 16, 38], ONE, [1, 2, 2], NO, even, ONE),
        shape((1, 1, 21, 33), [1, 10, 35], ONE, [1, 3, 2], NO, even, ONE),
        shape((1, 1, 18, 17), [1, 9, 12], ONE, [1, 2, 2], [0, 1, 1], even, ONE),
        shape((1, 1, 18, 20), [4, 9, 12], [2, 1, 1], [1, 2, 2], NO, even, ONE),
        shape((1, 2, 40, 34), [1, 8, 12], ONE, [1, 2, 2], NO, [0, 1, 1], ONE),
        shape((1, 1, 512, 18), [1, 5, 9], ONE, [1, 2, 2], NO, even, ONE),
        shape((1, 1, 20, 18), [1, 9, 13], ONE, [1, 2, 3], NO, even, ONE),
        shape((1, 1, 20, 18), [1, 9, 13], ONE, [1, 2, 1], NO, even, ONE),
        shape((1, 1, 4, 6), [1, 5, 6], ONE, ONE, [0, 2, 1], even, ONE),
        // places of channels-last images at distances at which they compete for lines of caches
        shape((1, 1, 1024, 18), [1, 3, 5], ONE, ONE, NO, even, ONE),
        shape((1, 1, 512, 17), [1, 3, 4], [1, 3, 3], [1, 2, 2], [0, 1, 1], even, ONE),
        // 3×3, square and not, asymmetric padding, strides 1 to 4
        shape((1, 1, 5, 7), [1, 14, 14], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((2, 1, 16, 30), [1, 9, 21], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((1, 1, 6, 4), [1, 10, 35], [1, 3, 3], [1, 2, 2], [0, 1, 1], even, ONE),
        shape((1, 1, 6, 4), [1, 10, 17], [1, 3, 3], [1, 1, 2], [0, 0, 1], [0, 1, -1], ONE),
        shape((1, 1, 3, 8), [1, 19, 23], [1, 3, 3], [1, 3, 3], [0, 1, 1], even, ONE),
        shape((1, 1, 3, 8), [1, 19, 23], [1, 2, 2], [1, 4, 4], NO, even, ONE),
        shape((1, 1, 4, 4), [1, 8, 8], [1, 3, 3], [1, 2, 2], NO, [0, 1, 1], ONE),
        shape((1, 1, 40, 40), [1, 17, 30], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((2, 1, 33, 50), [1, 10, 13], [1, 3, 3], ONE, [0, 2, 0], [0, -1, 1], ONE),
        shape((1, 2, 64, 34), [1, 9, 70], [1, 3, 3], ONE, [0, 0, 1], even, ONE),
        shape((1, 1, 5, 3), [1, 6, 5], [1, 2, 5], ONE, [0, 1, 0], [0, -1, 3], ONE),
        shape((1, 1, 5, 17), [1, 11, 14], [1, 7, 7], ONE, [0, 3, 2], even, ONE),
        // no padding, kernel as large as the input
        shape((1, 1, 5, 33), [1, 6, 5], [1, 6, 5], ONE, NO, even, ONE),
        // 5×5, 7×7 stride 2, dilation
        shape((1, 1, 3, 20), [1, 31, 29], [1, 7, 7], [1, 2, 2], [0, 3, 3], even, ONE),
        shape((1, 1, 4, 10), [1, 12, 12], [1, 5, 5], ONE, [0, 2, 2], even, ONE),
        shape((1, 1, 7, 8), [1, 15, 14], [1, 3, 3], ONE, [0, 2, 2], even, [1, 2, 2]),
        shape((1, 1, 2, 3), [1, 20, 20], [1, 3, 3], [1, 2, 2], [0, 3, 3], even, [1, 3, 3]),
        shape((1, 1, 5, 9), [1, 40, 13], [1, 3, 3], ONE, [0, 1, 1], even, [1, 2, 1]),
        shape((1, 1, 5, 9), [1, 9, 41], [1, 3, 3], ONE, [0, 0, 2], [0, 3, 1], [1, 1, 3]),
        // phases of one output and of none, and of more padding than a tile has
        shape((1, 1, 3, 4), [1, 10, 10], [1, 3, 3], ONE, [0, 1, 1], even, [1, 4, 4]),
        shape((1, 1, 3, 4), [1, 8, 9], [1, 3, 3], ONE, [0, 1, 0], even, [1, 4, 4]),
        shape((1, 2, 4, 8), [1, 12, 10], [1, 3, 3], ONE, [0, 11, 12], even, [1, 5, 6]),
        shape((1, 1, 2, 3), [1, 20, 20], [1, 3, 2], [1, 2, 3], [0, 4, 1], even, [1, 4, 5]),
        // groups and depthwise
        shape((1, 4, 16, 16), [1, 11, 13], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((1, 3, 6, 9), [1, 8, 8], [1, 3, 3], [1, 2, 2], [0, 1, 1], even, ONE),
        shape((1, 8, 32, 32), [1, 18, 17], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((2, 12, 12, 12), [1, 17, 33], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((1, 6, 6, 6), [1, 17, 33], [1, 3, 3], [1, 2, 2], [0, 1, 1], even, ONE),
        shape((1, 6, 6, 6), [1, 16, 40], [1, 5, 5], [1, 2, 1], [0, 2, 2], even, ONE),
        shape((1, 5, 5, 5), [1, 4, 60], [1, 5, 5], ONE, [0, 2, 2], even, ONE),
        shape((1, 5, 5, 10), [1, 9, 9], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((1, 3, 3, 12), [1, 10, 10], [1, 3, 3], [1, 2, 2], [0, 0, 0], [0, 1, 1], ONE),
        shape((1, 4, 4, 4), [1, 9, 9], [1, 3, 3], ONE, [0, 2, 2], even, [1, 2, 2]),
        shape((1, 4, 4, 4), [1, 9, 40], [1, 3, 3], [1, 3, 3], [0, 1, 1], even, ONE),
        // more small planes than are finished together, of two images; planes of one place
        shape((2, 100, 100, 100), [1, 7, 7], [1, 5, 5], ONE, [0, 2, 2], even, ONE),
        shape((1, 30, 30, 120), [1, 6, 7], [1, 3, 3], ONE, [0, 1, 1], even, ONE),
        shape((2, 9, 9, 9), [1, 3, 3], [1, 3, 3], ONE, NO, even, ONE),
        shape((1, 1, 20, 37), [1, 1, 1], ONE, ONE, NO, even, ONE),
        // one and three dimensions
        shape((1, 1, 6, 7), [1, 1, 50], [1, 1, 3], ONE, [0, 0, 1], even, ONE),
        shape((1, 1, 6, 7), [1, 1, 50], [1, 1, 5], [1, 1, 2], [0, 0, 4], [0, 0, -3], [1, 1, 2]),
        shape((1, 1, 3, 4), [5, 6, 7], [3, 3, 3], ONE, ONE, even, ONE),
        shape((2, 1, 2, 5), [7, 5, 6], [3, 2, 3], [2, 1, 2], [1, 0, 1], even, [1, 2, 1]),
        shape((1, 2, 4, 4), [4, 4, 20], [2, 2, 2], [2, 2, 2], NO, even, ONE),
        // planes of padding alone
        shape((1, 1, 12, 20), [3, 4, 5], ONE, ONE, [1, 0, 0], even, ONE),
        shape((1, 1, 12, 20), [3, 4, 5], ONE, ONE, NO, [1, 0, 0], ONE),
        // long rows
        shape((1, 1, 3, 5), [1, 1, 900], [1, 1, 5], [1, 1, 2], [0, 0, 2], even, ONE),
        shape((1, 1, 70, 4), [1, 1, 6000], ONE, ONE, NO, even, ONE),
        shape((1, 1, 40, 3), [1, 2, 9000], [1, 1, 3], ONE, [0, 0, 1], even, ONE),
        // all padding
        shape((1, 1, 2, 2), [1, 2, 2], [1, 3, 3], ONE, [0, 5, 5], even, ONE),
    ]
}

/// True if a shape is tried in all combinations with types, layouts or epilogues; of larger ones plain loops take most of a test's time.
fn is_small(shape: &Shape) -> bool {
    shape.batch * shape.out_channels * shape.pixels() * shape.depth() < 500_000
}

/// One way for each instruction set.
fn on_every_isa(pool: &Pool, constant: bool, every: bool) -> Vec<Way<'_>> {
    Isa::available().map(|isa| Way { isa, pool, threads: pool.threads(), constant, winograd: true, every }).collect()
}

#[test]
fn every_kind_of_shape() {
    let pools = [Pool::new(1), Pool::new(3)];
    let mut ways = Vec::new();
    for (pool, constant, all) in [(0, true, true), (0, false, false), (1, true, false), (1, false, true)] {
        let sets = on_every_isa(&pools[pool], constant, true);
        // The fastest set with each combination, the others with each thread count and source of weights.
        let first = if all { 0 } else { sets.len() - 1 };
        ways.extend_from_slice(&sets[first..]);
    }
    let mut names = BTreeSet::new();
    for (i, shape) in shapes().into_iter().enumerate() {
        names.extend(check(&plain(shape.clone()), &ways, i as u64));
        let orders = [Order::ChannelsLast, Order::Packed, Order::ChannelsLast];
        names.extend(check(&Case { orders, ..plain(shape) }, &ways, i as u64));
    }
    let all = [
        "depthwise, channels last",
        "depthwise, planes",
        "depthwise, rows",
        "direct",
        "dot products",
        "gemm",
        "gemm in place",
        "implicit gemm, flat",
        "implicit gemm, picked",
        "implicit gemm, rows",
        "indirect gemm",
        "matrix tiles",
        "matrix tiles, planes",
        "naive",
        "stem",
        "wide gemm",
        "winograd",
        "winograd F(2×2, 3×3)",
        "winograd F(2×2, 5×5)",
        "winograd F(2×2, 7×7)",
        "winograd F(3×3, 4×4)",
        "winograd F(4×4, 3×3)",
        "winograd F(4×4, 5×5)",
        "winograd F(5×5, 2×2)",
        "winograd F(5×5, 4×4)",
    ];
    assert_eq!(Vec::from_iter(names), all);
}

#[test]
fn every_element_and_layout() {
    let pool = Pool::new(2);
    for (i, shape) in shapes().into_iter().enumerate() {
        for (j, order) in Order::ALL.into_iter().enumerate() {
            for (k, element) in [Element::F32, Element::F16, Element::BF16].into_iter().enumerate() {
                if !is_small(&shape) && (j + k) % 3 != i % 3 {
                    continue;
                }
                let other = Order::ALL[(i + j + k) % 5];
                // As in networks of 16-bit values whose intermediates are `f32`.
                let weights = if element == Element::F32 && (i + j) % 2 == 1 { Element::BF16 } else { element };
                let case = Case {
                    elements: [element, weights, if i % 3 == 0 { Element::F32 } else { element }],
                    orders: [order, other, if i % 2 == 0 { order } else { other }],
                    ..plain(Shape { flip: (i + k) % 2 == 0, ..shape.clone() })
                };
                let ways = on_every_isa(&pool, (i + j) % 2 == 0, (i + j + k) % 3 == 0);
                check(&case, &ways, (i * 100 + j * 10 + k) as u64);
            }
        }
    }
}

const THENS: [Then; 9] = [
    Then::Bias(Element::F32, 1),
    Then::Bias(Element::F16, 3),
    Then::Add(Element::F32, Order::Packed),
    Then::Add(Element::BF16, Order::ChannelsLast),
    Then::AddColumns,
    Then::Scale,
    Then::Activation(Activation::RELU),
    Then::Activation(Activation::Relu { lower_clip: -0.25, upper_clip: 0.75, slope: 0.1 }),
    Then::Activation(Activation::Swish { beta: 1.0 }),
];

/// Epilogues of every form.
const CHAINS: &[&[Then]] = &[
    &[THENS[0]],
    &[THENS[1], THENS[6]],
    &[THENS[6]],
    &[THENS[0], THENS[2], THENS[6]],
    &[THENS[2], THENS[0], THENS[7]],
    &[THENS[0], THENS[8]],
    &[THENS[3], THENS[5], THENS[4]],
    &[THENS[0], THENS[6], THENS[5], THENS[3], THENS[8], THENS[1]],
    &[Then::Activation(Activation::Identity), THENS[0]],
    &[THENS[0], Then::Activation(Activation::HardSwish { alpha: 1.0 / 6.0, beta: 0.5 })],
    &[
        THENS[0],
        Then::Factors(Element::F32, 0),
        Then::Bias(Element::F32, 0),
        Then::Activation(Activation::HardSwish { alpha: 0.25, beta: 0.5 }),
        Then::Factors(Element::F16, 1),
        Then::Bias(Element::BF16, 2),
    ],
    &[
        Then::Factors(Element::F32, 3),
        Then::Activation(Activation::HardSigmoid { alpha: 0.25, beta: 0.5 }),
        Then::Add(Element::F32, Order::Packed),
        Then::Activation(Activation::RELU),
    ],
    // Sums that begin with the bias would lose their last digits to it.
    &[Then::LargeBias, THENS[6]],
    // Residuals of 16 bits.
    &[THENS[0], Then::Add(Element::F16, Order::Packed), THENS[6]],
    &[THENS[0], Then::Factors(Element::F32, 1), THENS[3], THENS[6]],
];

#[test]
fn every_epilogue() {
    let pool = Pool::new(2);
    for (i, shape) in shapes().into_iter().enumerate() {
        for (j, chain) in CHAINS.iter().enumerate().filter(|(j, _)| is_small(&shape) || j % 4 == i % 4) {
            let order = Order::ALL[(i + j) % 5];
            let y = [Element::F32, Element::F32, Element::F16, Element::BF16][(i + 2 * j) % 4];
            let x = if i % 2 == 0 { Element::F32 } else { y };
            let case = Case {
                epilogue: chain.to_vec(),
                elements: [x, x, y],
                orders: [Order::Packed, Order::Packed, if (i + j) % 3 == 0 { order } else { Order::Packed }],
                ..plain(shape.clone())
            };
            // Of pointwise convolutions most algorithms compute epilogues in registers.
            let every = (i + j) % 3 == 0 || shape.kernel == ONE;
            check(&case, &on_every_isa(&pool, true, every), (1000 + i * 100 + j) as u64);
        }
    }
}

/// Depthwise shapes: strides and kernels that have tiles of their own and those that have none, rows longer and shorter than
/// tiles, channels that are no whole vectors, images that do not stay in caches.
fn depthwise_shapes() -> [Shape; 10] {
    let of = |channels, size: [usize; 2], extent, stride, pad, dilation| {
        let groups = (2, channels, channels, channels);
        let [kernel, stride, pad, dilation] =
            [(extent, 1), (stride, 1), (pad, 0), (dilation, 1)].map(|(value, first)| [first, value, value]);
        shape(groups, [1, size[0], size[1]], kernel, stride, pad, [0; 3], dilation)
    };
    [
        of(37, [8, 19], 3, 2, 1, 1),
        of(16, [9, 31], 7, 1, 3, 1),
        of(24, [10, 16], 5, 2, 2, 1),
        of(33, [7, 7], 5, 1, 2, 1),
        of(8, [12, 29], 3, 1, 1, 1),
        of(20, [11, 18], 3, 1, 2, 2),
        of(9, [17, 6], 4, 3, 2, 1),
        of(16, [2, 3], 7, 1, 3, 1),
        of(40, [58, 60], 3, 2, 1, 1),
        of(8, [150, 120], 5, 1, 2, 1),
    ]
}

#[test]
fn depthwise_channels_last() {
    let pool = Pool::new(3);
    let residual: &[Then] = &[THENS[0], Then::Add(Element::F32, Order::ChannelsLast), THENS[6]];
    let short: &[Then] = &[THENS[0], Then::Add(Element::BF16, Order::ChannelsLast), THENS[6]];
    // Of the last one, rows of the output look at even or at odd rows of the input.
    let dilated = shape((2, 24, 24, 24), [1, 9, 11], [1, 3, 3], [1, 1, 2], [0, 1, 2], [0; 3], [1, 2, 3]);
    // Rows of 150 KiB, which are widened one by one.
    let wide = shape((1, 640, 640, 640), [1, 3, 60], [1, 3, 3], ONE, [0, 1, 1], [0; 3], ONE);
    for (i, shape) in depthwise_shapes().into_iter().chain([dilated, wide]).enumerate() {
        let chains = [&[] as &[Then], residual, short].into_iter().chain(CHAINS.iter().copied());
        for (j, chain) in chains.enumerate().filter(|(j, _)| i < 8 || j % 5 == i % 5) {
            let last = [Order::ChannelsLast, Order::ChannelsLastSliced];
            let elements = [Element::F32, Element::F16, Element::BF16];
            let case = Case {
                epilogue: chain.to_vec(),
                elements: [elements[(i + j) % 3], Element::F32, elements[j % 3]],
                orders: [last[i % 2], Order::Packed, last[j % 2]],
                ..plain(Shape { flip: j % 4 == 3, ..shape.clone() })
            };
            let names = check(&case, &on_every_isa(&pool, j % 2 == 0, false), (10 * i + j) as u64);
            assert_eq!(Vec::from_iter(names), ["depthwise, channels last"]);
        }
    }
}

/// Tiles of two rows: an odd number of rows, windows that are empty for one row of a tile or for both, and units that begin within a row.
#[test]
fn depthwise_tiles_of_two_rows() {
    let pools = [Pool::new(1), Pool::new(3)];
    let residual: &[Then] = &[THENS[0], Then::Add(Element::F32, Order::ChannelsLast), THENS[6]];
    let [kernel, pad, far] = [[1, 3, 3], [0, 1, 1], [0, 4, 2]];
    let shapes = [
        shape((2, 16, 16, 16), [1, 9, 19], kernel, ONE, pad, [0; 3], ONE),
        shape((1, 40, 40, 40), [1, 6, 17], kernel, ONE, far, [0; 3], ONE),
        shape((2, 32, 32, 32), [1, 1, 9], kernel, ONE, pad, [0; 3], ONE),
        shape((1, 16, 16, 16), [1, 2, 8], kernel, ONE, far, [0; 3], ONE),
        shape((1, 16, 16, 16), [1, 4, 7], [1, 2, 3], ONE, pad, [0; 3], ONE),
    ];
    for (i, shape) in shapes.iter().enumerate() {
        for (j, chain) in [&[] as &[Then], residual].into_iter().chain(CHAINS.iter().copied()).enumerate() {
            let last = if (i + j) % 2 == 0 { Order::ChannelsLast } else { Order::ChannelsLastSliced };
            let orders = [last, Order::Packed, last];
            let case = Case { epilogue: chain.to_vec(), orders, ..plain(shape.clone()) };
            let names = check(&case, &on_every_isa(&pools[j % 2], true, false), (100 + 10 * i + j) as u64);
            assert_eq!(Vec::from_iter(names), ["depthwise, channels last"]);
        }
    }
}

/// Planes in front of the image are padding: no algorithm may take the image for them.
#[test]
fn depthwise_padding_of_planes() {
    let pool = Pool::new(1);
    let shape =
        Shape { output: [1, 5, 6], ..shape((1, 16, 16, 16), [1, 5, 6], [1, 3, 3], [2, 1, 1], [1, 1, 1], [0; 3], ONE) };
    for order in [Order::ChannelsLast, Order::Packed] {
        let case = Case { orders: [order, Order::Packed, order], ..plain(shape.clone()) };
        check(&case, &on_every_isa(&pool, true, true), 7);
    }
}

/// Batches of channels-last images, of which matrix products take places of several to a tile, but where an operand has other
/// values for each, or the epilogue is not computed in registers.
#[test]
fn images_in_one_plane() {
    let pools = [Pool::new(1), Pool::new(3)];
    let even = [0isize; 3];
    let shapes = [
        shape((11, 1, 40, 37), [1, 1, 1], ONE, ONE, NO, even, ONE),
        shape((5, 2, 32, 70), [1, 2, 3], ONE, ONE, NO, even, ONE),
        shape((3, 1, 9, 33), [1, 5, 4], [1, 3, 3], [1, 2, 1], [0, 1, 1], even, ONE),
        shape((4, 1, 8, 16), [1, 6, 1], [1, 3, 1], ONE, [0, 1, 0], even, ONE),
        shape((2, 1, 8, 16), [3, 3, 3], [3, 2, 2], ONE, [0, 0, 1], even, ONE),
        shape((2, 1, 1024, 40), [1, 1, 1], ONE, ONE, NO, even, ONE),
        // Single taps at one distance in a plane, and in all or not.
        shape((4, 1, 24, 16), [1, 6, 1], ONE, [1, 2, 1], NO, even, ONE),
        shape((4, 1, 24, 16), [1, 5, 1], ONE, [1, 2, 1], NO, even, ONE),
        shape((3, 1, 24, 16), [1, 1, 5], ONE, [1, 1, 2], NO, even, ONE),
        shape((3, 1, 24, 16), [1, 4, 3], ONE, ONE, NO, even, ONE),
        shape((2, 1, 24, 16), [3, 4, 5], ONE, [2, 1, 1], NO, even, ONE),
    ];
    let summand = Then::Add(Element::F32, Order::ChannelsLast);
    let chains: [(&[Then], bool); 6] = [
        (&[], true),
        // An operand whose channels are not side by side is not added in registers.
        (&[THENS[0], THENS[4], THENS[6]], false),
        (&[THENS[0], summand, THENS[6]], true),
        (&[THENS[0], THENS[5], THENS[6]], false),
        (&[THENS[0], Then::Factors(Element::F32, 1), THENS[6]], true),
        (&[THENS[0], Then::Factors(Element::F32, 1), THENS[8]], true),
    ];
    let last = Order::ChannelsLast;
    for (i, shape) in shapes.into_iter().enumerate() {
        for (j, (chain, joined)) in chains.iter().enumerate() {
            for (x, y) in [(last, last), (Order::ChannelsLastSliced, last), (last, Order::ChannelsLastSliced)] {
                let case = Case { epilogue: chain.to_vec(), orders: [x, Order::Packed, y], ..plain(shape.clone()) };
                for pool in &pools {
                    let names = check(&case, &on_every_isa(pool, true, true), (100 * i + j) as u64);
                    assert!(names.contains("indirect gemm"));
                }
            }
            let case = Case { epilogue: chain.to_vec(), orders: [last, Order::Packed, last], ..plain(shape.clone()) };
            let mut problem = case.problem();
            case.operands(&mut problem, false, &mut Random::new(1));
            let joined = *joined && shape.output[0] == 1;
            assert_eq!(Indirect::new(&problem, 2, Isa::best()).joined, joined, "{shape:?}, {chain:?}");
        }
    }
}

/// Panels have two vectors, whose weights arrive in time for tiles of five or six places, also where threads have halves of the
/// places, 98, which tiles of two divide and those of six don't.
#[test]
fn panels_of_weights_are_as_wide_as_they_arrive() {
    let last = Order::ChannelsLast;
    for isa in Isa::available().filter(|isa| isa.lanes() == 8) {
        for (channels, threads) in [(256, 1), (256, 2), (1024, 2), (256, 4), (512, 8)] {
            let shape = shape((1, 1, channels, 256), [1, 14, 14], ONE, ONE, NO, [0; 3], ONE);
            let problem = Case { orders: [last, Order::Packed, last], ..plain(shape) }.problem();
            let panel = Indirect::new(&problem, threads, isa).panel();
            assert_eq!(panel, 2 * isa.lanes(), "{isa}, {channels} channels, {threads} threads: outputs of a panel");
        }
    }
}

/// Winograd's transforms of channels, with channels apart in the input, the output, both or neither: tiles that end at and behind the
/// output, rows of more tiles than are transposed together, channels that are no whole vectors.
#[test]
fn winograd_of_planes() {
    let pool = Pool::new(3);
    let of = |groups, size: [usize; 2], pad: [usize; 2]| {
        shape(groups, [1, size[0], size[1]], [1, 3, 3], ONE, [0, pad[0], pad[1]], [0; 3], ONE)
    };
    let shapes = [
        of((3, 1, 20, 19), [7, 7], [1, 1]),
        of((1, 1, 9, 33), [6, 75], [1, 0]),
        of((2, 2, 26, 36), [11, 18], [0, 1]),
        of((1, 1, 70, 16), [3, 41], [2, 2]),
    ];
    let orders = [Order::Packed, Order::Sliced, Order::ChannelsLast, Order::ChannelsLastSliced];
    let chains: [&[Then]; 3] = [
        &[],
        &[THENS[0], Then::Add(Element::F32, Order::Packed), THENS[6]],
        &[THENS[0], Then::Add(Element::BF16, Order::Packed), THENS[6]],
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        for (j, chain) in chains.iter().enumerate() {
            for (k, (x, y)) in orders.iter().flat_map(|x| orders.iter().map(move |y| (*x, *y))).enumerate() {
                let elements = [Element::F32, Element::F16, Element::BF16];
                let case = Case {
                    epilogue: chain.to_vec(),
                    elements: [elements[(i + j + k) % 3], Element::F32, elements[(i + k) % 3]],
                    orders: [x, Order::Packed, y],
                    ..plain(shape.clone())
                };
                let names = check(&case, &on_every_isa(&pool, true, true), (100 * i + 10 * j + k) as u64);
                // A summand lies as the output does, or the epilogue is not computed in registers.
                let served = chain.is_empty() || matches!(y, Order::Packed | Order::Sliced);
                for name in ["winograd F(2×2, 3×3)", "winograd F(4×4, 3×3)"] {
                    assert_eq!(names.contains(name), served, "{name}: {shape:?}, {x:?}, {y:?}");
                }
            }
        }
    }
    // Kernels of more taps, and strides: whole phases and those that end with taps that there are not.
    let kernels = [
        (3, 2, &["winograd F(5×5, 2×2)"][..]),
        (4, 2, &["winograd F(5×5, 2×2)"]),
        (4, 1, &["winograd F(3×3, 4×4)", "winograd F(5×5, 4×4)"]),
        (5, 1, &["winograd F(2×2, 5×5)", "winograd F(4×4, 5×5)"]),
        (7, 1, &["winograd F(2×2, 7×7)"]),
        (5, 2, &["winograd F(2×2, 3×3)", "winograd F(4×4, 3×3)"]),
        (6, 2, &["winograd F(2×2, 3×3)", "winograd F(4×4, 3×3)"]),
        (7, 2, &["winograd F(3×3, 4×4)", "winograd F(5×5, 4×4)"]),
        (7, 3, &["winograd F(2×2, 3×3)", "winograd F(4×4, 3×3)"]),
        (11, 4, &["winograd F(2×2, 3×3)", "winograd F(4×4, 3×3)"]),
        (10, 2, &["winograd F(2×2, 5×5)", "winograd F(4×4, 5×5)"]),
    ];
    for (i, (extent, stride, wanted)) in kernels.into_iter().enumerate() {
        for (j, (groups, size)) in
            [((2, 1, 3, 19), [23, 50]), ((1, 2, 26, 36), [12, 31]), ((1, 1, 17, 8), [27, 14])].into_iter().enumerate()
        {
            for (k, (x, y)) in orders.iter().flat_map(|x| orders.iter().map(move |y| (*x, *y))).enumerate() {
                if (i + j + k) % 3 > 0 {
                    continue;
                }
                let pad = [0, extent / 2, extent + 1][(i + k) % 3];
                let shape = shape(
                    groups,
                    [1, size[0], size[1]],
                    [1, extent, extent],
                    [1, stride, stride],
                    [0, pad, extent / 2],
                    [0; 3],
                    ONE,
                );
                let elements = [Element::F32, Element::F16, Element::F32, Element::BF16];
                let case = Case {
                    epilogue: chains[(i + j) % 2].to_vec(),
                    elements: [elements[(i + k) % 4], Element::F32, elements[(j + k) % 4]],
                    orders: [x, Order::ALL[k % 5], y],
                    ..plain(Shape { flip: k % 4 == 3, ..shape })
                };
                let names = check(&case, &on_every_isa(&pool, true, true), (1000 + 100 * i + 20 * j + k) as u64);
                let served = case.epilogue.is_empty() || matches!(y, Order::Packed | Order::Sliced);
                for name in wanted {
                    assert_eq!(names.contains(name), served, "{name}: {case:?}");
                }
            }
        }
    }
    // Several blocks of tiles, which begin within rows; several bundles of panels, the last of fewer.
    let blocks = plain(of((1, 1, 70, 16), [61, 90], [1, 1]));
    let bundles = |outputs| of((1, 1, 20, outputs), [20, 30], [1, 1]);
    let last_is_smaller = |isa, outputs| {
        let plan = winograd_rows::WinogradRows::of_tiles(Tiling::LARGE, &packed(bundles(outputs)), 1, isa);
        let [chunk, bundle] = plan.expect("planes of columns are served").panels();
        bundle > 1 && chunk % bundle != 0
    };
    // Estimates differ with CPUs, and bundles with them.
    let outputs = |isa| (200..1200).step_by(10).find(|outputs| last_is_smaller(isa, *outputs));
    let outputs: BTreeSet<usize> =
        Isa::available().map(|isa| outputs(isa).expect("some channels leave a smaller bundle")).collect();
    let strided = shape((1, 1, 12, 9), [1, 141, 232], [1, 7, 7], [1, 2, 2], [0, 3, 3], [0; 3], ONE);
    let last = [Order::ChannelsLast, Order::Packed, Order::ChannelsLast];
    let pool = Pool::new(1);
    for (case, name) in [
        (blocks, "winograd F(4×4, 3×3)"),
        (plain(strided.clone()), "winograd F(5×5, 4×4)"),
        (Case { orders: last, ..plain(strided) }, "winograd F(5×5, 4×4)"),
    ] {
        assert!(check(&case, &on_every_isa(&pool, true, true), 1).contains(name), "{name}: {case:?}");
    }
    for shape in outputs.into_iter().map(bundles) {
        for orders in [[Order::Packed; 3], last] {
            check(&Case { orders, ..plain(shape.clone()) }, &on_every_isa(&pool, true, true), 1);
        }
    }
}

#[test]
fn depthwise_planes() {
    let pool = Pool::new(3);
    for (i, shape) in depthwise_shapes().into_iter().enumerate() {
        for (j, chain) in CHAINS.iter().enumerate().filter(|(j, _)| i < 8 && j % 2 == i % 2 || j % 5 == i % 5) {
            let order = Order::ALL[(i + j) % 5];
            let elements = [Element::F32, Element::F32, Element::F16, Element::BF16];
            let case = Case {
                epilogue: chain.to_vec(),
                elements: [elements[j % 4], Element::F32, elements[(i + j) % 4]],
                orders: [if j % 3 == 0 { order } else { Order::Packed }, Order::Packed, Order::ALL[i % 5]],
                ..plain(Shape { flip: j % 4 == 3, ..shape.clone() })
            };
            let names = check(&case, &on_every_isa(&pool, j % 2 == 0, true), (500 + 20 * i + j) as u64);
            assert!(names.contains("depthwise, planes"), "{names:?}");
        }
    }
}

/// Every kernel and stride that strips are made for, on rows shorter and longer than a vector, with more padding than
/// one wants, of more than a vector, and with less.
#[test]
fn depthwise_rows() {
    let pool = Pool::new(3);
    let kernels = [(3, 1, 1), (3, 1, 2), (3, 2, 1), (3, 2, 2), (5, 1, 1), (5, 1, 2), (5, 2, 1), (5, 2, 2), (7, 1, 1)];
    for (i, (kernel, row, column)) in kernels.into_iter().enumerate() {
        for (j, size) in [[7, 7], [9, 18], [1, 3], [14, 8], [12, 35]].into_iter().enumerate() {
            for (k, pad) in [kernel / 2, kernel - 1, 0, 20].into_iter().enumerate() {
                if size.iter().any(|size| size + 2 * pad < kernel) {
                    continue;
                }
                let groups = (2, 9, 9, 9);
                let shape = shape(
                    groups,
                    [1, size[0], size[1]],
                    [1, kernel, kernel],
                    [1, row, column],
                    [0, pad, pad],
                    [0; 3],
                    ONE,
                );
                let chains: [&[Then]; 6] = [
                    &[],
                    &[THENS[0], THENS[6]],
                    &[THENS[0], THENS[2], THENS[6]],
                    &[THENS[0], THENS[5], THENS[8]],
                    &[THENS[8], Then::Add(Element::F32, Order::Sliced)],
                    &[THENS[5], THENS[7], THENS[2]],
                ];
                let y = [Order::Packed, Order::Sliced][(i + k) % 2];
                let case = Case {
                    epilogue: chains[(i + j + k) % 6].to_vec(),
                    orders: [Order::Packed, Order::Packed, y],
                    ..plain(Shape { flip: (i + j + k) % 4 == 3, ..shape })
                };
                let names = check(&case, &on_every_isa(&pool, j % 2 == 0, true), (900 + 100 * i + 10 * j + k) as u64);
                assert!(names.contains("depthwise, rows"), "{names:?}");
            }
        }
    }
}

/// Few input channels, strides and kernels of networks' first layers, on rows that are no whole tiles, with outputs of
/// every layout and some of every type, those of which channels lie side by side by stems; channels that are no whole vectors.
#[test]
fn stems() {
    let pool = Pool::new(3);
    let of = |channels, outputs, size: [usize; 2], extent, stride, pad, batch| {
        let [kernel, stride, pad] = [(extent, 1), (stride, 1), (pad, 0)].map(|(value, first)| [first, value, value]);
        shape((batch, 1, channels, outputs), [1, size[0], size[1]], kernel, stride, pad, [0; 3], ONE)
    };
    let shapes = [
        of(3, 64, [30, 37], 7, 2, 3, 1),
        of(3, 20, [17, 29], 3, 2, 1, 2),
        of(1, 8, [5, 3], 3, 1, 1, 2),
        of(4, 33, [9, 13], 5, 1, 4, 1),
        of(2, 16, [70, 6], 3, 2, 0, 2),
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        let mut names = BTreeSet::new();
        for (j, chain) in CHAINS.iter().enumerate() {
            let elements = [Element::F32, Element::F32, Element::F16, Element::BF16];
            let case = Case {
                epilogue: chain.to_vec(),
                elements: [elements[(i + j) % 4], Element::F32, elements[j % 4]],
                orders: [Order::ALL[j % 5], Order::Packed, Order::ALL[(i + j) % 5]],
                ..plain(Shape { flip: j % 4 == 3, ..shape.clone() })
            };
            names.extend(check(&case, &on_every_isa(&pool, j % 2 == 0, true), (2000 + 20 * i + j) as u64));
        }
        assert!(names.contains("stem") && names.contains("implicit gemm, rows"), "{names:?}");
    }
}

/// Every epilogue of stems, and of strips of output rows: rows of some whole tiles with and without a rest, shorter ones, one that is cut
/// into bands, and more weights than stay in a cache, of places in planes; of channels side by side for stems.
#[test]
fn epilogues_of_strips_and_stems() {
    let pool = Pool::new(3);
    let of = |channels, outputs, size: [usize; 2], extent: usize, pad: usize| {
        let [kernel, pad] = [(extent, 1), (pad, 0)].map(|(value, first)| [first, value, value]);
        shape((1, 1, channels, outputs), [1, size[0], size[1]], kernel, ONE, pad, [0; 3], ONE)
    };
    for (i, shape) in [
        of(8, 30, [5, 21], 3, 1),
        of(3, 20, [6, 40], 3, 1),
        of(4, 13, [4, 70], 3, 0),
        of(2, 9, [3, 9000], 3, 1),
        of(250, 130, [3, 33], 3, 1),
        of(1, 24, [7, 34], 5, 2),
    ]
    .into_iter()
    .enumerate()
    {
        for (j, chain) in CHAINS.iter().enumerate().filter(|(j, _)| is_small(&shape) || j % 4 == 3) {
            for y in [Order::Packed, [Order::ChannelsLast, Order::ChannelsLastSliced][j / 2 % 2]] {
                let case = Case {
                    epilogue: chain.to_vec(),
                    orders: [Order::Packed, Order::Packed, y],
                    ..plain(shape.clone())
                };
                let names = check(&case, &on_every_isa(&pool, j % 2 == 0, true), (3000 + 20 * i + j) as u64);
                assert!(names.contains("implicit gemm, rows"), "{names:?}");
                // Summands leave stems out.
                let summand = |then: &Then| matches!(then, Then::Add(..) | Then::AddColumns);
                let computed = !chain.iter().any(summand) && shape.in_channels <= 4;
                assert!(!computed || y == Order::Packed || names.contains("stem"), "{names:?}");
            }
        }
    }
}

/// Activations that no kernel has in registers, as the last step and before others, of places that a tail takes in several blocks, some
/// of which begin within a row, of planes with gaps between rows, and of one place.
#[test]
fn activations_in_memory() {
    let pools = [Pool::new(1), Pool::new(3)];
    let even = [0isize; 3];
    let square = |groups, size: [usize; 2], extent: usize| {
        shape(groups, [1, size[0], size[1]], [1, extent, extent], ONE, [0, extent / 2, extent / 2], even, ONE)
    };
    let shapes = [
        (square((1, 1, 64, 20), [20, 40], 3), "implicit gemm, rows"),
        (square((1, 1, 2, 5), [3, 9000], 3), "implicit gemm, rows"),
        (square((1, 1, 512, 18), [10, 20], 1), "gemm in place"),
        (square((2, 1, 40, 33), [1, 1], 1), "indirect gemm"),
        (square((1, 2, 26, 36), [11, 18], 3), "winograd F(4×4, 3×3)"),
        (square((2, 9, 9, 9), [14, 31], 5), "depthwise, rows"),
        (square((1, 20, 20, 20), [9, 12], 3), "depthwise, planes"),
        (square((1, 3, 12, 12), [70, 90], 3), "direct"),
        (square((1, 2, 2, 8), [9, 21], 3), "direct"),
        (shape((2, 3, 3, 3), [1, 1, 300], [1, 1, 9], ONE, [0, 0, 4], even, [1, 1, 1]), "direct"),
    ];
    let chains: [&[Then]; 4] = [
        &[THENS[8]],
        &[THENS[0], THENS[8]],
        &[THENS[0], THENS[8], THENS[7]],
        &[THENS[0], THENS[8], Then::Add(Element::F32, Order::Packed)],
    ];
    for (i, (shape, name)) in shapes.into_iter().enumerate() {
        for (j, chain) in chains.into_iter().enumerate() {
            for y in [Order::Packed, Order::Sliced] {
                let case = Case {
                    epilogue: chain.to_vec(),
                    orders: [Order::Packed, Order::Packed, y],
                    ..plain(shape.clone())
                };
                let names = check(&case, &on_every_isa(&pools[j % 2], true, true), (4000 + 20 * i + j) as u64);
                assert!(names.contains(name), "{name}: {names:?}");
            }
        }
    }
}

/// Problem of a shape, with packed `f32` tensors and constant weights.
fn packed(shape: Shape) -> Problem {
    let sizes = Problem {
        shape,
        x: Layout::packed(Element::F32, [0; 5]),
        w: Layout::packed(Element::F32, [0; 5]),
        y: Layout::packed(Element::F32, [0; 5]),
        epilogue: Vec::new(),
        constant_weights: true,
        winograd: true,
    };
    Problem {
        x: Layout::packed(Element::F32, sizes.x_sizes()),
        w: Layout::packed(Element::F32, sizes.w_sizes()),
        y: Layout::packed(Element::F32, sizes.y_sizes()),
        ..sizes
    }
}

/// Tilings of more taps, and strides, where a network has them and the algorithm is permitted.
#[test]
fn winograd_is_chosen_for_five_and_seven_taps_and_strides() {
    let cases = [
        ((1, 1, 48, 64), 28, 5, 1, "winograd F(4×4, 5×5)"),
        ((1, 1, 96, 256), 54, 5, 2, "winograd F(4×4, 3×3)"),
        ((1, 1, 64, 64), 56, 7, 2, "winograd F(5×5, 4×4)"),
        ((1, 1, 64, 128), 80, 3, 2, "winograd F(5×5, 2×2)"),
    ];
    for isa in Isa::available() {
        // Transforms of four phases count for more on other CPUs of sixteen lanes.
        let cases = &cases[..if Class::of(isa.lanes()) == Class::Sixteen { 3 } else { 4 }];
        for &(groups, size, extent, stride, name) in cases {
            let kernel = [1, extent, extent];
            let pad = [0, extent / 2, extent / 2];
            let shape = shape(groups, [1, size, size], kernel, [1, stride, stride], pad, [0; 3], ONE);
            let problem = packed(shape);
            let chosen = |problem: &Problem| ConvolutionPlan::with_isa(problem, 1, isa).algorithm();
            // Terms of bf16 on tiles may be faster still.
            if !multiplies_terms(Element::F32, Element::F32, isa) {
                assert_eq!(chosen(&problem), name, "{isa}, {extent}×{extent}/{stride}");
            }
            let name = chosen(&Problem { winograd: false, ..problem });
            assert!(!name.starts_with("winograd"), "{isa}, {extent}×{extent}/{stride}: {name}");
        }
        let stem = packed(shape((1, 1, 3, 64), [1, 224, 224], [1, 7, 7], [1, 2, 2], [0, 3, 3], [0; 3], ONE));
        let last = |layout: &Layout, sizes| Layout::channels_last(layout.element, sizes);
        let stem = Problem { y: last(&stem.y, stem.y_sizes()), x: last(&stem.x, stem.x_sizes()), ..stem };
        let name = ConvolutionPlan::with_isa(&Problem { winograd: false, ..stem }, 1, isa).algorithm();
        assert!(!name.starts_with("winograd"), "{isa}: {name}");
    }
}

/// Run-time weights are transformed in each run where there are many places for each, and not where there are few.
#[test]
fn run_time_weights_are_transformed_where_images_are_large() {
    for isa in Isa::available().filter(|isa| !multiplies_terms(Element::F32, Element::F32, *isa)) {
        for (channels, size, transformed) in [(32, 112, true), (1024, 4, false)] {
            let groups = (1, 1, channels, channels);
            let problem = packed(shape(groups, [1, size, size], [1, 3, 3], ONE, [0, 1, 1], [0; 3], ONE));
            let plan = ConvolutionPlan::with_isa(&Problem { constant_weights: false, ..problem }, 1, isa);
            let name = plan.algorithm();
            assert_eq!(
                name.starts_with("winograd"),
                transformed,
                "{isa}, {channels} channels on {size}×{size}: {name}"
            );
        }
    }
}

/// Run-time weights that are used for one place are multiplied where they lie, and packed where many places are multiplied with them.
#[test]
fn run_time_weights_are_packed_where_many_places_use_them() {
    for isa in Isa::available() {
        for (size, constant, in_place) in [(1, false, true), (1, true, false), (28, false, false)] {
            let groups = (1, 1, 512, 1280);
            let problem = packed(shape(groups, [1, size, size], [1; 3], ONE, [0; 3], [0; 3], ONE));
            let plan = ConvolutionPlan::with_isa(&Problem { constant_weights: constant, ..problem }, 1, isa);
            let name = plan.algorithm();
            assert_eq!(name == "dot products", in_place, "{isa}, {size}×{size}, constant {constant}: {name}");
        }
    }
}

/// Tiles of 2×2 where few tiles would wait for weights of 36 frequencies, of 4×4 elsewhere.
#[test]
fn winograd_tiles_are_chosen_by_size() {
    const SMALL: &str = "winograd F(2×2, 3×3)";
    const LARGE: &str = "winograd F(4×4, 3×3)";
    for isa in Isa::available() {
        for (channels, size, name) in [(512, 7, SMALL), (512, 28, LARGE), (64, 56, LARGE)] {
            let groups = (1, 1, channels, channels);
            let problem = packed(shape(groups, [1, size, size], [1, 3, 3], ONE, [0, 1, 1], [0; 3], ONE));
            let plan = winograd_rows::WinogradRows::new(&problem, 1, isa).expect("planes of columns are served");
            assert_eq!(plan.name(), name, "{isa}, {channels} channels on {size}×{size}");
        }
    }
}

/// An input whose vectors would cross the ends of cache lines is copied, with the same results.
#[test]
fn inputs_in_place_need_no_alignment() {
    const HALF: usize = 16;
    let pool = Pool::new(2);
    for (input, outputs, places) in [(40, 24, [4, 16]), (21, 30, [8, 11]), (300, 50, [16, 17])] {
        let [height, width] = places;
        let problem = packed(shape((1, 1, input, outputs), [1, height, width], ONE, ONE, NO, [0; 3], ONE));
        let mut random = Random::new(7);
        let x: Vec<f32> = (0..input * height * width).map(|_| random.unit()).collect();
        let weights: Vec<f32> = (0..input * outputs).map(|_| random.unit()).collect();
        for isa in Isa::available() {
            let plan = ConvolutionPlan::all(&problem, 2, isa).find(|plan| plan.algorithm() == "gemm in place");
            let plan = plan.expect("an image without padding is read in place");
            let mut prepared = hipdnn_cpu_simd::scratch::AlignedBuffer::new(plan.prepared_len());
            // SAFETY: the weights have the problem's sizes.
            unsafe { plan.prepare(weights.as_ptr().cast(), &mut prepared, &pool) };
            let results = [0, HALF].map(|behind| {
                // What is behind the input is no number.
                let memory = Guarded::new(size_of_val(&x[..]) + behind, true, 0xff);
                // SAFETY: the memory is as long as the input, or longer.
                unsafe { memory.data.cast::<f32>().copy_from_nonoverlapping(x.as_ptr(), x.len()) };
                assert_eq!(memory.data.addr().is_multiple_of(32), behind == 0);
                let mut y = vec![0.0f32; outputs * height * width];
                let mut workspace = Guarded::new(plan.workspace_bytes(), true, 0xff);
                let args = Args {
                    x: memory.data,
                    weights: Weights::Prepared(&prepared),
                    y: y.as_mut_ptr().cast(),
                    operands: &[],
                    workspace: workspace.bytes().as_mut_ptr(),
                };
                // SAFETY: the tensors are as the problem says, and nobody else has them.
                unsafe { plan.run(&pool, &args) };
                y
            });
            assert!(results[0].iter().all(|value| value.is_finite()), "{isa}, {input} channels");
            assert_eq!(results[0], results[1], "{isa}, {input} channels");
        }
    }
}

/// Small images are transposed, and the rows of large ones read where they lie.
#[test]
fn depthwise_is_chosen_by_size() {
    let of = |isa, channels, size, kernel, stride| {
        let groups = (1, channels, channels, channels);
        let [kernel, stride, pad] = [(kernel, 1), (stride, 1), (kernel / 2, 0)].map(|(value, one)| [one, value, value]);
        let problem = packed(shape(groups, [1, size, size], kernel, stride, pad, [0; 3], ONE));
        ConvolutionPlan::with_isa(&problem, 1, isa).algorithm()
    };
    const PLANES: &str = "depthwise, planes";
    const ROWS: &str = "depthwise, rows";
    for (channels, size, kernel, stride, sixteen, eight) in [
        (8, 4096, 3, 1, ROWS, ROWS),
        (256, 14, 5, 2, PLANES, PLANES),
        (512, 7, 5, 1, PLANES, PLANES),
        (960, 7, 3, 1, PLANES, PLANES),
        (128, 28, 3, 2, ROWS, ROWS),
        (768, 7, 7, 1, PLANES, PLANES),
        (64, 64, 7, 1, ROWS, ROWS),
        (96, 56, 7, 1, ROWS, ROWS),
        (32, 112, 3, 1, ROWS, ROWS),
        (16, 480, 3, 1, ROWS, ROWS),
    ] {
        for isa in Isa::available() {
            let want = if isa.lanes() == 16 { sixteen } else { eight };
            let got = of(isa, channels, size, kernel, stride);
            assert_eq!(got, want, "{isa}: {channels} on {size}, {kernel}/{stride}");
        }
    }
}

/// One or two output channels of many input channels are computed where the tensors lie, or else in parallel by another
/// algorithm.
#[test]
fn few_outputs_are_computed_in_place_or_in_bands() {
    let chosen = |isa: Isa, threads, elements: [Element; 2], layout: fn(Element, [usize; 5]) -> Layout, dilation| {
        let of =
            shape((1, 1, 24, 1), [1, 64, 64], [1, 3, 3], ONE, [0, dilation, dilation], [0; 3], [1, dilation, dilation]);
        let sizes = plain(of).problem();
        let (x, y) = (layout(elements[0], sizes.x_sizes()), layout(elements[1], sizes.y_sizes()));
        ConvolutionPlan::with_isa(&Problem { x, y, ..sizes }, threads, isa).algorithm()
    };
    const DIRECT: &str = "direct";
    let single = [Element::F32; 2];
    for isa in Isa::available().filter(|isa| !isa.splits_f32()) {
        assert_eq!(chosen(isa, 1, single, Layout::packed, 1), DIRECT, "{isa}");
        assert_ne!(chosen(isa, 1, single, Layout::channels_last, 1), DIRECT, "{isa}");
        assert_ne!(chosen(isa, 1, [Element::F16, Element::F32], Layout::packed, 1), DIRECT, "{isa}");
        assert_ne!(chosen(isa, 1, [Element::F32, Element::F16], Layout::packed, 1), DIRECT, "{isa}");
        assert_ne!(chosen(isa, 1, single, Layout::packed, 2), DIRECT, "{isa}");
        assert_ne!(chosen(isa, 64, single, Layout::packed, 1), DIRECT, "{isa}");
    }
}

fn random_case(random: &mut Random) -> Case {
    loop {
        let spatial = random.below(8);
        let size = |random: &mut Random, axis: usize, most: usize| match (axis, spatial) {
            (0, 0) => 1 + random.below(5),
            (0, _) | (1, 1) => 1,
            _ => 1 + random.below(most),
        };
        let groups = random.among(&[1, 1, 1, 2, 3, 8]);
        let (cg, kg) = match random.below(3) {
            0 => (1, 1 + random.below(2)),
            1 => (1 + random.below(8), 1 + random.below(8)),
            _ => (1 + random.below(40 / groups), 1 + random.below(80 / groups)),
        };
        let input: [usize; 3] = std::array::from_fn(|axis| size(random, axis, 36));
        let kernel: [usize; 3] = std::array::from_fn(|axis| if input[axis] == 1 { 1 } else { size(random, axis, 5) });
        let kernel = if random.below(3) == 0 && spatial > 1 { [1, 3, 3] } else { kernel };
        let stride: [usize; 3] = std::array::from_fn(|_| random.among(&[1, 1, 1, 2, 2, 3, 5]));
        let dilation: [usize; 3] = std::array::from_fn(|_| random.among(&[1, 1, 1, 2, 3]));
        let pad: [usize; 3] = std::array::from_fn(|axis| if axis == 0 && spatial != 0 { 0 } else { random.below(4) });
        let more: [isize; 3] = std::array::from_fn(|_| random.below(4) as isize - 2);
        let fits =
            (0..3).all(|i| (input[i] + 2 * pad[i]) as isize + more[i] > (dilation[i] * (kernel[i] - 1)) as isize);
        if !fits {
            continue;
        }
        let mut shape =
            shape((1 + random.below(2), groups, groups * cg, groups * kg), input, kernel, stride, pad, more, dilation);
        shape.flip = random.below(4) == 0;
        if shape.depth() * shape.pixels() * shape.out_channels * shape.batch > 1_500_000 {
            continue;
        }
        let element = random.among(&[Element::F32, Element::F32, Element::F32, Element::F16, Element::BF16]);
        let mut order = || if random.below(2) == 0 { Order::Packed } else { random.among(&Order::ALL) };
        let orders = [order(), order(), order()];
        let epilogue = (0..random.below(4)).map(|_| random.among(&THENS)).collect();
        return Case { shape, elements: [element; 3], orders, epilogue };
    }
}

#[test]
fn random_problems() {
    let pools = [Pool::new(1), Pool::new(2), Pool::new(5)];
    let mut random = Random::new(7);
    for seed in 0..600 {
        let case = random_case(&mut random);
        let (constant, winograd) = (random.below(2) == 0, random.below(2) == 0);
        let pool = &pools[seed % 3];
        let threads = 1 + seed / 3 % 4;
        let ways: Vec<Way<'_>> =
            Isa::available().map(|isa| Way { isa, pool, threads, constant, winograd, every: false }).collect();
        check(&case, &ways, seed as u64);
    }
}

/// With nothing to sum, or no output, the epilogue still runs or nothing happens.
#[test]
fn empty_problems() {
    let pool = Pool::new(2);
    for (batch, in_channels, out_channels) in [(0, 2, 3), (1, 0, 3), (1, 2, 0), (2, 0, 0)] {
        let shape = shape((batch, 1, in_channels, out_channels), [1, 4, 4], [1, 3, 3], ONE, NO, [0; 3], ONE);
        let case = Case { epilogue: vec![THENS[0], THENS[6]], ..plain(shape) };
        check(&case, &on_every_isa(&pool, true, true), 1);
    }
}

/// Values that products of bf16 terms would lose: the kinds of results, and finite ones, are those of plain loops.
#[test]
fn infinite_and_tiny_values_are_kept() {
    let pool = Pool::new(2);
    let shapes = [
        shape((1, 1, 40, 20), [1, 6, 7], [1, 3, 3], ONE, [0, 1, 1], [0; 3], ONE),
        shape((1, 1, 40, 20), [1, 6, 7], ONE, ONE, NO, [0; 3], ONE),
    ];
    let values = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE * 1.7, 1e30];
    let elements = [Element::F32, Element::BF16];
    let cases = shapes.iter().flat_map(|shape| elements.iter().map(move |element| (shape, *element)));
    for ((shape, element), value) in cases.flat_map(|case| values.map(|value| (case, value))) {
        for (of_weights, order) in [(false, Order::Packed), (false, Order::ChannelsLast), (true, Order::Packed)] {
            let mut random = Random::new(1);
            let elements = [element, element, Element::F32];
            let problem = Case { elements, orders: [order, Order::Packed, order], ..plain(shape.clone()) }.problem();
            let mut x = Tensor::random(problem.x, problem.x_sizes(), false, &mut random);
            let mut w = Tensor::random(problem.w, problem.w_sizes(), false, &mut random);
            // A tiny value is the largest of its tensor.
            let changed = if of_weights { &mut w } else { &mut x };
            let scale = if value.abs() < 1e-30 { value } else { 1.0 };
            for at in places(changed.sizes) {
                let scaled = changed.get(at) as f32 * scale;
                changed.put(at, scaled);
            }
            // The middle tap: other ones meet the padding, whose zeros are no numbers times an infinity.
            let middle = if of_weights { shape.kernel.map(|size| size / 2) } else { [0, 2, 3] };
            changed.put([0, 3, middle[0], middle[1], middle[2]], value);
            let (dense_x, dense_w) = (x.dense(), w.dense());
            for isa in Isa::available() {
                for plan in ConvolutionPlan::all(&problem, 2, isa) {
                    if !plan.algorithm().starts_with("matrix tiles") {
                        continue;
                    }
                    let mut y = Tensor::new(problem.y, problem.y_sizes(), false);
                    let mut workspace = Guarded::new(plan.workspace_bytes(), false, 0xff);
                    let mut prepared = hipdnn_cpu_simd::scratch::AlignedBuffer::new(plan.prepared_len());
                    // SAFETY: the weights are as the problem says.
                    unsafe { plan.prepare(w.memory.data, &mut prepared, &pool) };
                    let args = Args {
                        x: x.memory.data,
                        weights: Weights::Prepared(&prepared),
                        y: y.memory.data,
                        operands: &[],
                        workspace: workspace.bytes().as_mut_ptr(),
                    };
                    // SAFETY: the tensors are as the problem says, and nobody else has them.
                    unsafe { plan.run(&pool, &args) };
                    for at in places(problem.y_sizes()) {
                        let (sum, magnitude) = reference(shape, &dense_x, &dense_w, at);
                        let (got, want) = (y.get(at), f64::from(sum as f32));
                        let bound = (shape.depth() + 3) as f64 * UNIT * magnitude + f64::from(f32::from_bits(1));
                        let same = got == want || got.is_nan() && want.is_nan() || (got - sum).abs() <= bound;
                        let name = plan.algorithm();
                        assert!(same, "{name} {isa}, {value:e} of weights {of_weights}: {got} for {sum} at {at:?}");
                    }
                }
            }
        }
    }
}
