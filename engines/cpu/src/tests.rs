//! Whole graphs against a reference in f64 that bounds the error of each result.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Barrier};

use half::{bf16, f16};
use hipdnn_cpu_threads::{Pool, lent};
use hipdnn_schemas::{
    ConvMode, Convolution, ConvolutionFwd, DataType, EngineConfig, Extents, Graph, GraphBuilder, KnobValue, Operation,
    Pointwise, PointwiseMode, Reduction, ReductionMode, ResampleFwd, ResampleMode, Tensor, TensorDef, TensorUid,
    TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::extension::{Body, Constant, Constants, ParallelFor};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use super::schedule::{Schedule, Step};
use super::settings::Settings;
use super::*;
use DataType::{BFloat16, Boolean, Float, Half, Int32, UInt8};
use PointwiseMode as Mode;
use hipdnn_cpu_pointwise::Storage;

/// Result with its error bound.
#[derive(Clone, Copy, Debug)]
struct Approx {
    value: f64,
    error: f64,
}

/// Half the distance of neighboring numbers around 1.
fn unit(data_type: DataType) -> f64 {
    match data_type {
        Half => 2f64.powi(-11),
        BFloat16 => 2f64.powi(-8),
        _ => 2f64.powi(-24),
    }
}

/// A tensor's memory, aligned for any type.
pub(super) struct Memory {
    tensor: Tensor,
    bytes: Vec<u64>,
}

impl Memory {
    pub(super) fn new(tensor: &Tensor) -> Memory {
        Memory { tensor: tensor.clone(), bytes: vec![0; tensor.span_bytes().div_ceil(8)] }
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.bytes.as_ptr().cast_mut().cast()
    }

    /// Offset of every element, in logical order.
    fn offsets(&self) -> Vec<usize> {
        let (dims, strides) = (self.tensor.dims(), self.tensor.strides());
        (0..self.tensor.elements())
            .map(|mut n| {
                let mut offset = 0;
                for (extent, stride) in dims.iter().zip(strides).rev() {
                    offset += n % extent * stride;
                    n /= extent;
                }
                offset
            })
            .collect()
    }

    pub(super) fn fill(&mut self, mut next: impl FnMut() -> f64) {
        let base = self.bytes.as_mut_ptr();
        for offset in self.offsets() {
            let value = next();
            // SAFETY: `offset` is within the tensor's span, which the vector holds.
            unsafe {
                match self.tensor.data_type() {
                    Float => base.cast::<f32>().add(offset).write(value as f32),
                    Half => base.cast::<f16>().add(offset).write(f16::from_f64(value)),
                    BFloat16 => base.cast::<bf16>().add(offset).write(bf16::from_f64(value)),
                    DataType::Double => base.cast::<f64>().add(offset).write(value),
                    Int32 => base.cast::<i32>().add(offset).write((value * 4.0) as i32),
                    UInt8 => base.cast::<u8>().add(offset).write((value * 4.0) as u8),
                    Boolean => base.cast::<u8>().add(offset).write(u8::from(value > 0.0)),
                    other => storage(other).store_wide(&[value], base.cast(), offset, 1),
                }
            }
        }
    }

    pub(super) fn values(&self) -> Vec<f64> {
        let base = self.bytes.as_ptr();
        let read = |offset: usize| {
            // SAFETY: `offset` is within the tensor's span, which the vector holds.
            unsafe {
                match self.tensor.data_type() {
                    Float => f64::from(base.cast::<f32>().add(offset).read()),
                    Half => base.cast::<f16>().add(offset).read().to_f64(),
                    BFloat16 => base.cast::<bf16>().add(offset).read().to_f64(),
                    DataType::Double => base.cast::<f64>().add(offset).read(),
                    Int32 => f64::from(base.cast::<i32>().add(offset).read()),
                    UInt8 | Boolean => f64::from(base.cast::<u8>().add(offset).read()),
                    other => {
                        let mut value = [0.0];
                        storage(other).load_wide(base.cast(), offset, 1, &mut value);
                        value[0]
                    }
                }
            }
        };
        self.offsets().into_iter().map(read).collect()
    }
}

fn storage(data_type: DataType) -> Storage {
    Storage::of(data_type).unwrap_or_else(|| panic!("the tests have no {data_type}"))
}

/// Numbers between -2 and 2, of as many digits as a float has.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || f64::from(4.0 * random.f32() - 2.0)
}

/// Memory of every caller's tensor, inputs filled.
pub(super) fn memory(graph: &Graph, seed: u64) -> HashMap<TensorUid, Memory> {
    let mut next = numbers(seed);
    let given = graph.tensors().iter().filter(|t| !t.is_virtual() && t.value().is_none());
    given
        .map(|tensor| {
            let mut memory = Memory::new(tensor);
            if graph.producer(tensor.uid()).is_none() {
                memory.fill(&mut next);
            }
            (tensor.uid(), memory)
        })
        .collect()
}

pub(super) fn pack(memory: &HashMap<TensorUid, Memory>) -> Vec<DeviceBuffer> {
    memory.iter().map(|(uid, memory)| DeviceBuffer { uid: uid.0, ptr: memory.address() }).collect()
}

/// Index into a tensor that is broadcast along `dims`, for the `n`th element.
fn broadcast_index(tensor: &Tensor, dims: &[usize], mut n: usize) -> usize {
    if tensor.elements() == 1 {
        return 0;
    }
    let (mut index, mut step) = (0, 1);
    for (mine, whole) in tensor.dims().iter().zip(dims).rev() {
        index += if *mine == 1 { 0 } else { n % whole * step };
        step *= mine;
        n /= whole;
    }
    index
}

/// Results of a graph in f64.
///
/// Errors: a sum of n products of floats, in any order, is within (n + 1)·u·Σ|x·w|. Each function adds its rounding, at
/// most 8 u of its value (16 for an exponential), to what it makes of its operands' errors. A tensor that exists in memory
/// adds the rounding of its type; one that may be fused away does so in the worst case.
fn reference(graph: &Graph, memory: &HashMap<TensorUid, Memory>) -> HashMap<TensorUid, Vec<Approx>> {
    let mut values: HashMap<TensorUid, Vec<Approx>> = HashMap::new();
    for tensor in graph.tensors() {
        let exact = |value| Approx { value, error: 0.0 };
        if let Some(value) = tensor.value() {
            let value = match value {
                TensorValue::Float32(v) | TensorValue::Float16(v) | TensorValue::BFloat16(v) => f64::from(v),
                TensorValue::Int32(v) => f64::from(v),
                other => panic!("the tests have no {other:?}"),
            };
            values.insert(tensor.uid(), vec![exact(value)]);
        } else if graph.producer(tensor.uid()).is_none() {
            values.insert(tensor.uid(), memory[&tensor.uid()].values().into_iter().map(exact).collect());
        }
    }
    for node in graph.nodes() {
        let (uid, mut result) = match &node.operation {
            Operation::ConvolutionFwd(c) => (c.y, convolve(graph, c, &values)),
            Operation::Pointwise(p) => (p.out_0, pointwise(graph, p, &values)),
            Operation::ResampleFwd(r) => (r.y, pool(graph, r, &values)),
            Operation::Reduction(r) => (r.output, reduce(graph, r, &values)),
            other => panic!("the tests have no {}", other.kind()),
        };
        let data_type = graph.tensor(uid).data_type();
        for approx in &mut result {
            if [Float, Half, BFloat16].contains(&data_type) {
                // Below the normal numbers of f16 the distance of neighbors stays 2⁻²⁴.
                approx.error += unit(data_type) * (approx.value.abs() + approx.error) + 2f64.powi(-25);
            } else {
                approx.value = approx.value.round_ties_even();
            }
        }
        values.insert(uid, result);
    }
    values
}

fn convolve(graph: &Graph, c: &ConvolutionFwd, values: &HashMap<TensorUid, Vec<Approx>>) -> Vec<Approx> {
    let [x, w, y] = [c.x, c.w, c.y].map(|uid| graph.tensor(uid));
    let spatial = x.rank() - 2;
    let (per_group_in, per_group_out) = (w.dims()[1], w.dims()[0] / (x.dims()[1] / w.dims()[1]));
    let taps: usize = w.dims()[1..].iter().product();
    (0..y.elements())
        .map(|n| {
            let at = coordinates(n, y.dims());
            let (mut sum, mut magnitude, mut carried) = (0.0, 0.0, 0.0);
            for tap in 0..taps {
                let t = coordinates(tap, &w.dims()[1..]);
                let mut from = vec![at[0], at[1] / per_group_out * per_group_in + t[0]];
                for axis in 0..spatial {
                    let g = &c.convolution;
                    let place = at[2 + axis] as i64 * g.stride[axis] + t[1 + axis] as i64 * g.dilation[axis]
                        - g.pre_padding[axis];
                    if (0..x.dims()[2 + axis] as i64).contains(&place) {
                        from.push(place as usize);
                    }
                }
                if from.len() < x.rank() {
                    continue;
                }
                let mut filter = vec![at[1], t[0]];
                for axis in 0..spatial {
                    let flip = c.convolution.mode == ConvMode::Convolution;
                    filter.push(if flip { w.dims()[2 + axis] - 1 - t[1 + axis] } else { t[1 + axis] });
                }
                let a = values[&c.x][number(&from, x.dims())];
                let b = values[&c.w][number(&filter, w.dims())];
                sum += a.value * b.value;
                magnitude += (a.value.abs() + a.error) * (b.value.abs() + b.error);
                carried += a.error * (b.value.abs() + b.error) + b.error * a.value.abs();
            }
            Approx { value: sum, error: carried + (taps + 1) as f64 * 2f64.powi(-24) * magnitude }
        })
        .collect()
}

fn pointwise(graph: &Graph, p: &Pointwise, values: &HashMap<TensorUid, Vec<Approx>>) -> Vec<Approx> {
    let dims = graph.tensor(p.out_0).dims();
    let elements = graph.tensor(p.out_0).elements();
    let operand = |uid: Option<TensorUid>, n: usize| {
        uid.map_or(Approx { value: 0.0, error: 0.0 }, |uid| values[&uid][broadcast_index(graph.tensor(uid), dims, n)])
    };
    let u = 2f64.powi(-24);
    (0..elements)
        .map(|n| {
            let (a, b) = (operand(Some(p.in_0), n), operand(p.in_1, n));
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            // Value, and the error that comes from the operands.
            let (value, error) = match p.mode {
                Mode::Identity => (a.value, a.error),
                Mode::Abs => (a.value.abs(), a.error),
                Mode::Neg => (-a.value, a.error),
                Mode::Add => (a.value + b.value, a.error + b.error),
                Mode::Sub => (a.value - b.value, a.error + b.error),
                Mode::Mul => (a.value * b.value, a.error * (b.value.abs() + b.error) + b.error * a.value.abs()),
                Mode::Div => (a.value / b.value, (a.error + a.value.abs() * u) / b.value.abs()),
                Mode::Max => (a.value.max(b.value), a.error.max(b.error)),
                Mode::Min => (a.value.min(b.value), a.error.max(b.error)),
                Mode::CmpGt => (f64::from(u8::from(a.value > b.value)), 0.0),
                Mode::ReluFwd => {
                    let low = f64::from(p.relu_lower_clip.unwrap_or(0.0));
                    let slope = f64::from(p.relu_lower_clip_slope.unwrap_or(0.0));
                    let high = f64::from(p.relu_upper_clip.unwrap_or(f32::INFINITY));
                    let bent = if a.value > low { a.value } else { low + slope * (a.value - low) };
                    // The bend rounds twice at the size of its operands.
                    (bent.min(high), a.error + 2.0 * u * (a.value.abs() + low.abs()))
                }
                Mode::SigmoidFwd => (sigmoid(a.value), a.error / 4.0),
                Mode::TanhFwd => (a.value.tanh(), a.error),
                // The slope of x·sigmoid(βx) stays below 1.1, whatever β.
                Mode::SwishFwd => {
                    let beta = f64::from(p.swish_beta.unwrap_or(1.0));
                    (a.value * sigmoid(beta * a.value), 1.1 * a.error + 8.0 * u * (beta * a.value * a.value).abs())
                }
                Mode::GeluFwd => {
                    let cdf = 0.5 * libm::erfc(-a.value * std::f64::consts::FRAC_1_SQRT_2);
                    (a.value * cdf, 1.2 * a.error + 8.0 * u * a.value.abs())
                }
                Mode::EluFwd => (if a.value > 0.0 { a.value } else { a.value.exp_m1() }, a.error),
                other => panic!("the tests have no {other}"),
            };
            Approx { value, error: error + 16.0 * u * value.abs() + 1e-30 }
        })
        .collect()
}

/// Coordinates of the `n`th element.
fn coordinates(mut n: usize, dims: &[usize]) -> Vec<usize> {
    let mut at = vec![0; dims.len()];
    for i in (0..dims.len()).rev() {
        at[i] = n % dims[i];
        n /= dims[i];
    }
    at
}

/// Number of the element with these coordinates, in logical order.
fn number(at: &[usize], dims: &[usize]) -> usize {
    at.iter().zip(dims).fold(0, |n, (i, extent)| n * extent + i)
}

/// Mean of these, or their maximum: its error is no larger than the largest of them.
fn combined(elements: &[Approx], greatest: bool, divisor: f64) -> Approx {
    let error = elements.iter().map(|element| element.error).fold(0.0, f64::max);
    if greatest {
        return Approx { value: elements.iter().map(|element| element.value).fold(f64::NEG_INFINITY, f64::max), error };
    }
    let magnitude: f64 = elements.iter().map(|element| element.value.abs() + element.error).sum();
    let value = elements.iter().map(|element| element.value).sum::<f64>() / divisor;
    Approx { value, error: error + (elements.len() + 1) as f64 * 2f64.powi(-24) * magnitude / divisor }
}

fn pool(graph: &Graph, r: &ResampleFwd, values: &HashMap<TensorUid, Vec<Approx>>) -> Vec<Approx> {
    let [x, y] = [r.x, r.y].map(|uid| graph.tensor(uid));
    let window: Vec<usize> = r.window.iter().map(|extent| *extent as usize).collect();
    let greatest = r.resample_mode == ResampleMode::MaxPool;
    let taps: usize = window.iter().product();
    (0..y.elements())
        .map(|n| {
            let at = coordinates(n, y.dims());
            let mut inside = Vec::new();
            for tap in 0..taps {
                let tap = coordinates(tap, &window);
                let mut from = at[..2].to_vec();
                for axis in 0..window.len() {
                    let place = at[2 + axis] as i64 * r.stride[axis] + tap[axis] as i64 - r.pre_padding[axis];
                    from.extend((0..x.dims()[2 + axis] as i64).contains(&place).then_some(place as usize));
                }
                inside.extend((from.len() == x.rank()).then(|| values[&r.x][number(&from, x.dims())]));
            }
            let excluded = r.resample_mode == ResampleMode::AvgPoolExcludePadding;
            combined(&inside, greatest, if excluded { inside.len() } else { taps } as f64)
        })
        .collect()
}

fn reduce(graph: &Graph, r: &Reduction, values: &HashMap<TensorUid, Vec<Approx>>) -> Vec<Approx> {
    let [input, output] = [r.input, r.output].map(|uid| graph.tensor(uid));
    let mut groups = vec![Vec::new(); output.elements()];
    for (n, element) in values[&r.input].iter().enumerate() {
        let at: Vec<usize> = coordinates(n, input.dims())
            .into_iter()
            .zip(output.dims())
            .map(|(i, extent)| if *extent == 1 { 0 } else { i })
            .collect();
        groups[number(&at, output.dims())].push(*element);
    }
    let greatest = match r.mode {
        ReductionMode::Max => true,
        ReductionMode::Average => false,
        other => panic!("the tests have no {other}"),
    };
    groups.iter().map(|group| combined(group, greatest, group.len() as f64)).collect()
}

/// Definition of a tensor: uid, type and dimensions.
pub(super) fn tensor(uid: i64, data_type: DataType, dims: &[i64]) -> TensorDef {
    TensorDef::new(uid, data_type, dims)
}

pub(super) fn build(tensors: &[TensorDef], nodes: Vec<Operation>) -> Graph {
    let mut graph = GraphBuilder::new("test").compute(Float);
    for tensor in tensors {
        graph.tensor(tensor.clone());
    }
    for (i, node) in nodes.into_iter().enumerate() {
        graph.node(format!("n{i}"), node);
    }
    graph.build().unwrap()
}

pub(super) fn conv(x: i64, w: i64, y: i64, pad: i64) -> Operation {
    let convolution = Convolution { pre_padding: vec![pad; 2], post_padding: vec![pad; 2], ..Convolution::new(2) };
    Operation::ConvolutionFwd(ConvolutionFwd { x: TensorUid(x), w: TensorUid(w), y: TensorUid(y), convolution })
}

pub(super) fn unary(mode: Mode, x: i64, y: i64) -> Operation {
    Operation::Pointwise(Pointwise::unary(mode, TensorUid(x), TensorUid(y)))
}

pub(super) fn binary(mode: Mode, a: i64, b: i64, y: i64) -> Operation {
    Operation::Pointwise(Pointwise::binary(mode, TensorUid(a), TensorUid(b), TensorUid(y)))
}

pub(super) fn settings(threads: usize) -> Settings {
    Settings {
        threads,
        pool: true,
        winograd: true,
        fuse: true,
        layout: false,
        workspace_limit: usize::MAX,
        constants: Vec::new(),
    }
}

pub(super) fn schedule(graph: &Graph, settings: &Settings) -> Schedule {
    CpuGraph::new(Arc::new(graph.clone()), Site::UNSPECIFIED).unwrap().schedule(settings).unwrap()
}

/// Letters for the steps: c for a convolution, p for a pointwise function.
fn letters(schedule: &Schedule) -> String {
    schedule
        .steps
        .iter()
        .map(|step| match step {
            Step::Convolution(_) => 'c',
            Step::FusedLayers(_) => 'l',
            Step::Pointwise(_) => 'p',
            Step::Node(_) => 'n',
        })
        .collect()
}

/// Executes with a workspace at an odd address, filled with NaN, and a canary behind it.
pub(super) fn execute(plan: &dyn Plan, pack: &[DeviceBuffer]) -> Result<(), Error> {
    let bytes = plan.workspace_bytes();
    let mut workspace = vec![0xffu8; bytes + 65];
    // SAFETY: the workspace has as many bytes from its second on; the buffers are the tests' own memory.
    let result = unsafe { plan.execute(std::ptr::null_mut(), workspace.as_mut_ptr().add(1), pack) };
    assert!(workspace[bytes + 1..].iter().all(|byte| *byte == 0xff), "something was written behind the workspace");
    result
}

pub(super) fn check(graph: &Graph, memory: &HashMap<TensorUid, Memory>, what: &str) {
    let want = reference(graph, memory);
    for (uid, memory) in memory {
        if graph.producer(*uid).is_none() {
            continue;
        }
        for (i, (got, want)) in memory.values().iter().zip(&want[uid]).enumerate() {
            let off = (got - want.value).abs();
            assert!(off <= want.error, "{what}: tensor {uid}[{i}]: expected {want:?}, got {got}");
        }
    }
}

/// A 3×3 convolution of 5 channels to 6 that everything below starts from: x is 0, w is 1, its result is 2.
fn start(data_type: DataType) -> Vec<TensorDef> {
    vec![
        tensor(0, data_type, &[2, 5, 9, 11]),
        tensor(1, data_type, &[6, 5, 3, 3]),
        tensor(2, data_type, Y).intermediate(),
    ]
}

const Y: &[i64] = &[2, 6, 9, 11];
const PER_CHANNEL: &[i64] = &[1, 6, 1, 1];

#[test]
fn fused_and_plain_graphs_compute_the_same() {
    let y = |uid| tensor(uid, Float, Y);
    let v = |uid| tensor(uid, Float, Y).intermediate();
    let scalar = |uid, value| tensor(uid, Float, &[1]).with_value(TensorValue::Float32(value));
    let activation =
        |mode| (vec![v(3), tensor(4, Float, PER_CHANNEL), y(5)], vec![binary(Mode::Add, 2, 4, 3), unary(mode, 3, 5)]);
    let relu = |x, y, lower, upper, slope| {
        Operation::Pointwise(Pointwise {
            relu_lower_clip: lower,
            relu_upper_clip: upper,
            relu_lower_clip_slope: slope,
            ..Pointwise::unary(Mode::ReluFwd, TensorUid(x), TensorUid(y))
        })
    };
    type Rest = (Vec<TensorDef>, Vec<Operation>);
    // (what, further tensors and nodes, steps that are left)
    let mut cases: Vec<(&str, Rest, &str)> = vec![
        ("bias", (vec![tensor(3, Float, PER_CHANNEL), y(4)], vec![binary(Mode::Add, 2, 3, 4)]), "c"),
        ("bias first", (vec![tensor(3, Float, PER_CHANNEL), y(4)], vec![binary(Mode::Add, 3, 2, 4)]), "c"),
        ("residual", (vec![y(3), y(4)], vec![binary(Mode::Add, 3, 2, 4)]), "c"),
        ("channels-last residual", (vec![y(3).channels_last(), y(4)], vec![binary(Mode::Add, 3, 2, 4)]), "cp"),
        (
            "bias, residual, ReLU",
            (
                vec![tensor(3, Float, PER_CHANNEL), v(4), y(5), v(6), y(7)],
                vec![binary(Mode::Add, 2, 3, 4), binary(Mode::Add, 5, 4, 6), unary(Mode::ReluFwd, 6, 7)],
            ),
            "c",
        ),
        (
            "scale and shift per channel",
            (
                vec![tensor(3, Float, PER_CHANNEL), v(4), tensor(5, Float, PER_CHANNEL), y(6)],
                vec![binary(Mode::Mul, 2, 3, 4), binary(Mode::Sub, 4, 5, 6)],
            ),
            "c",
        ),
        ("subtracted from a bias", (vec![tensor(3, Float, PER_CHANNEL), y(4)], vec![binary(Mode::Sub, 3, 2, 4)]), "c"),
        ("less a scalar", (vec![scalar(3, 0.75), y(4)], vec![binary(Mode::Sub, 2, 3, 4)]), "c"),
        ("divided by a scalar", (vec![scalar(3, 3.0), y(4)], vec![binary(Mode::Div, 2, 3, 4)]), "c"),
        ("divided by a tensor", (vec![tensor(3, Float, PER_CHANNEL), y(4)], vec![binary(Mode::Div, 2, 3, 4)]), "cp"),
        (
            "clipped by two scalars",
            (
                vec![scalar(3, -1.5), v(4), scalar(5, 2.5), y(6)],
                vec![binary(Mode::Max, 2, 3, 4), binary(Mode::Min, 5, 4, 6)],
            ),
            "c",
        ),
        ("ReLU6", (vec![y(3)], vec![relu(2, 3, None, Some(6.0), None)]), "c"),
        ("leaky ReLU", (vec![y(3)], vec![relu(2, 3, None, None, Some(0.125))]), "c"),
        ("bent ReLU", (vec![y(3)], vec![relu(2, 3, Some(-0.5), Some(3.0), Some(0.25))]), "c"),
        ("x·sigmoid(x)", (vec![v(3), y(4)], vec![unary(Mode::SigmoidFwd, 2, 3), binary(Mode::Mul, 3, 2, 4)]), "c"),
        (
            "hard swish as a chain",
            (
                vec![scalar(3, 3.0), v(4), v(5), v(6), scalar(7, 1.0 / 6.0), y(8)],
                vec![
                    binary(Mode::Add, 2, 3, 4),
                    relu(4, 5, None, Some(6.0), None),
                    binary(Mode::Mul, 5, 2, 6),
                    binary(Mode::Mul, 6, 7, 8),
                ],
            ),
            "cp",
        ),
        (
            "a result that is read as well as written",
            (vec![y(3), y(4)], vec![unary(Mode::ReluFwd, 2, 3), unary(Mode::Neg, 3, 4)]),
            "cp",
        ),
        ("squared", (vec![y(3)], vec![binary(Mode::Mul, 2, 2, 3)]), "cp"),
        ("two readers", (vec![y(3), y(4)], vec![unary(Mode::ReluFwd, 2, 3), unary(Mode::Neg, 2, 4)]), "cpp"),
        ("compared, to bytes", (vec![scalar(3, 0.5), tensor(4, Boolean, Y)], vec![binary(Mode::CmpGt, 2, 3, 4)]), "cp"),
        (
            "an operand that is computed between",
            (vec![y(3), v(4), y(5)], vec![unary(Mode::TanhFwd, 3, 4), binary(Mode::Add, 2, 4, 5)]),
            "pc",
        ),
        (
            "two convolutions",
            (
                vec![v(3), tensor(4, Float, &[6, 6, 3, 3]), v(5), tensor(6, Float, PER_CHANNEL), y(7)],
                vec![unary(Mode::ReluFwd, 2, 3), conv(3, 4, 5, 1), binary(Mode::Add, 5, 6, 7)],
            ),
            "cc",
        ),
    ];
    for (name, mode) in [
        ("bias, sigmoid", Mode::SigmoidFwd),
        ("bias, tanh", Mode::TanhFwd),
        ("bias, swish", Mode::SwishFwd),
        ("bias, gelu", Mode::GeluFwd),
        ("bias, elu", Mode::EluFwd),
        ("bias, abs", Mode::Abs),
        ("bias, neg", Mode::Neg),
        ("bias, identity", Mode::Identity),
    ] {
        cases.push((name, activation(mode), "c"));
    }
    for (what, (tensors, nodes), steps) in cases {
        let mut all = start(Float);
        all.extend(tensors);
        let nodes: Vec<_> = [conv(0, 1, 2, 1)].into_iter().chain(nodes).collect();
        let graph = build(&all, nodes);
        for threads in [1, 2] {
            let schedule = schedule(&graph, &settings(threads));
            assert_eq!(letters(&schedule), steps, "{what}");
            let plan = CpuPlan::new(schedule, threads, resources::get()).unwrap();
            let memory = memory(&graph, 7);
            // Divisors near 0 would have no useful bound.
            execute(&plan, &pack(&memory)).unwrap();
            check(&graph, &memory, what);
        }
    }
}

#[test]
fn types_mix() {
    for (x, w, y, bias, intermediate) in [
        (Half, Half, Half, Half, Float),
        (Half, Half, Half, Half, Half),
        (BFloat16, BFloat16, BFloat16, BFloat16, BFloat16),
        (Float, Half, BFloat16, Float, Float),
        (BFloat16, Float, Float, Half, Float),
        (Float, Float, UInt8, Int32, Float),
    ] {
        let tensors = [
            tensor(0, x, &[1, 4, 6, 7]),
            tensor(1, w, &[3, 4, 3, 3]).channels_last(),
            tensor(2, intermediate, &[1, 3, 6, 7]).intermediate(),
            tensor(3, bias, &[1, 3, 1, 1]),
            tensor(4, intermediate, &[1, 3, 6, 7]).intermediate(),
            tensor(5, y, &[1, 3, 6, 7]).channels_last(),
        ];
        let nodes = vec![conv(0, 1, 2, 1), binary(Mode::Add, 2, 3, 4), unary(Mode::ReluFwd, 4, 5)];
        let graph = build(&tensors, nodes);
        let memory = memory(&graph, 3);
        let plan = CpuPlan::new(schedule(&graph, &settings(2)), 2, resources::get()).unwrap();
        execute(&plan, &pack(&memory)).unwrap();
        if y == UInt8 {
            // A sum next to the middle of two integers may round either way.
            let (got, want) = (memory[&TensorUid(5)].values(), &reference(&graph, &memory)[&TensorUid(5)]);
            assert!(got.iter().zip(want).all(|(g, w)| (g - w.value).abs() <= 1.0 && *g >= 0.0));
        } else {
            check(&graph, &memory, &format!("{x} * {w} -> {intermediate} + {bias} -> {y}"));
        }
    }
}

#[test]
fn every_rank_and_both_modes_run() {
    for mode in [ConvMode::Convolution, ConvMode::CrossCorrelation] {
        for (x, w, y) in [
            (&[2, 4, 9][..], &[6, 2, 3][..], &[2, 6, 4][..]),
            (&[1, 4, 7, 8], &[4, 1, 3, 2], &[1, 4, 3, 4]),
            (&[1, 2, 5, 6, 7], &[3, 2, 2, 3, 1], &[1, 3, 3, 3, 4]),
        ] {
            let spatial = x.len() - 2;
            let convolution = Convolution {
                pre_padding: vec![0; spatial],
                post_padding: vec![1; spatial],
                stride: vec![2; spatial],
                mode,
                ..Convolution::new(spatial)
            };
            let mut y = y.to_vec();
            for axis in 0..spatial {
                y[2 + axis] = convolution.output_extent(axis, x[2 + axis], w[2 + axis]).unwrap();
            }
            let [x, w, y] = [(0, x), (1, w), (2, &y)].map(|(uid, dims)| tensor(uid, Float, dims));
            let conv = ConvolutionFwd { x: TensorUid(0), w: TensorUid(1), y: TensorUid(2), convolution };
            let graph = build(&[x, w, y], vec![Operation::ConvolutionFwd(conv)]);
            let memory = memory(&graph, 11);
            let plan = CpuPlan::new(schedule(&graph, &settings(1)), 1, resources::get()).unwrap();
            execute(&plan, &pack(&memory)).unwrap();
            check(&graph, &memory, &format!("{mode} rank {}", spatial + 2));
        }
    }
}

/// Runs each item on a thread of its own; counts its calls.
unsafe extern "C" fn run_on_threads(calls: *mut c_void, items: usize, body: Body, data: *mut c_void) -> i32 {
    struct Data(*mut c_void);
    // SAFETY: bodies may be called from any thread.
    unsafe impl Sync for Data {}
    // SAFETY: the test lends its counter.
    unsafe { *calls.cast::<usize>() += 1 };
    let data = &Data(data);
    std::thread::scope(|scope| {
        for item in 0..items {
            // SAFETY: body and data come together.
            scope.spawn(move || unsafe { body(data.0, item) });
        }
    });
    0
}

#[test]
fn lent_threads_compute_the_bits_of_the_engines_own() {
    let sizes = [16, 24, 16, 16, 8];
    let mut tensors = vec![tensor(0, Float, &[2, sizes[0], 12, 12])];
    let mut nodes = Vec::new();
    for (layer, pair) in sizes.windows(2).enumerate() {
        let (x, w, y) = (2 * layer as i64, 2 * layer as i64 + 1, 2 * layer as i64 + 2);
        // 1×1 and padded 3×3 filters keep the extents.
        let pad = layer as i64 % 2;
        tensors.push(tensor(w, Float, &[pair[1], pair[0], 1 + 2 * pad, 1 + 2 * pad]));
        let result = tensor(y, Float, &[2, pair[1], 12, 12]);
        tensors.push(if layer + 2 == sizes.len() { result } else { result.intermediate() });
        nodes.push(conv(x, w, y, pad));
    }
    let graph = build(&tensors, nodes);
    let (memory, output) = (memory(&graph, 21), TensorUid(2 * (sizes.len() as i64 - 1)));
    let plan = |pool: Pool| {
        let schedule = schedule(&graph, &settings(3));
        assert_eq!(letters(&schedule), "cccc");
        CpuPlan::with_pool(schedule, Arc::new(pool), resources::get()).unwrap()
    };
    execute(&plan(Pool::new(3)), &pack(&memory)).unwrap();
    check(&graph, &memory, "threads of the engine's");
    let want = memory[&output].values();
    let (mut calls, plan) = (0usize, plan(Pool::without_threads(3)));
    for round in 1..=20 {
        let before = lent::replace(ParallelFor { run: Some(run_on_threads), context: (&raw mut calls).cast() });
        let result = execute(&plan, &pack(&memory));
        lent::replace(before);
        result.unwrap();
        assert_eq!(calls, 3 * round, "for packing and convolving of the first step, and once for all others");
        assert!(memory[&output].values() == want, "round {round}");
    }
}

/// A chain of pointwise nodes 0 → 1 → … → n, all between virtual.
fn chain(nodes: i64) -> Graph {
    let mut tensors = vec![tensor(0, Float, &[100])];
    tensors.extend((1..nodes).map(|uid| tensor(uid, Float, &[100]).intermediate()));
    tensors.push(tensor(nodes, Float, &[100]));
    build(&tensors, (0..nodes).map(|i| unary(Mode::Neg, i, i + 1)).collect())
}

#[test]
fn intermediates_share_the_workspace_by_their_lifetime() {
    // Node by node; each result but the first takes the place of what it was made of.
    let plain = Settings { fuse: false, ..settings(1) };
    for (nodes, live) in [(1, 0), (2, 1), (3, 1), (20, 1)] {
        let graph = chain(nodes);
        let schedule = schedule(&graph, &plain);
        // 100 floats are 400 bytes, on lines 448.
        assert_eq!(schedule.aligned_bytes, live * 448, "{nodes} nodes");
        let memory = memory(&graph, 1);
        let plan = CpuPlan::new(schedule, 1, resources::get()).unwrap();
        execute(&plan, &pack(&memory)).unwrap();
        check(&graph, &memory, "chain");
    }
    // A first result that is read last keeps its place.
    let mut tensors = vec![tensor(0, Float, &[100])];
    tensors.extend((1..6).map(|uid| tensor(uid, Float, &[100]).intermediate()));
    tensors.push(tensor(6, Float, &[100]));
    let mut nodes: Vec<_> = (0..5).map(|i| unary(Mode::TanhFwd, i, i + 1)).collect();
    nodes.push(binary(Mode::Add, 5, 1, 6));
    let graph = build(&tensors, nodes);
    let memory = memory(&graph, 2);
    let plan = CpuPlan::new(schedule(&graph, &plain), 1, resources::get()).unwrap();
    assert_eq!(plan.schedule().aligned_bytes, 2 * 448);
    execute(&plan, &pack(&memory)).unwrap();
    check(&graph, &memory, "early result");
}

#[test]
fn a_residual_gives_its_place_to_the_result() {
    let v = |uid| tensor(uid, Float, Y).intermediate();
    let mut tensors = start(Float);
    tensors.extend([tensor(3, Float, Y), v(4), v(5), tensor(6, Float, Y)]);
    let nodes = vec![unary(Mode::Neg, 3, 4), conv(0, 1, 2, 1), binary(Mode::Add, 2, 4, 5), binary(Mode::Div, 5, 3, 6)];
    let graph = build(&tensors, nodes);
    let schedule = schedule(&graph, &settings(2));
    let text = schedule.to_string();
    for line in ["tensor 4 (workspace + 0)\n", "-> tensor 5 (workspace + 0)", "tensor 5 (workspace + 0), tensor 3 ->"] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    let memory = memory(&graph, 3);
    let plan = CpuPlan::new(schedule, 2, resources::get()).unwrap();
    execute(&plan, &pack(&memory)).unwrap();
    let got = memory[&TensorUid(6)].values();
    let again = CpuPlan::new(self::schedule(&graph, &Settings { fuse: false, ..settings(2) }), 2, resources::get());
    execute(&again.unwrap(), &pack(&memory)).unwrap();
    // Sums of 45 products below 4 and a residual, divided by the residual's own operand: a few roundings of each.
    let operand = memory[&TensorUid(3)].values();
    for (i, (got, want)) in got.iter().zip(memory[&TensorUid(6)].values()).enumerate() {
        let bound = 50.0 * unit(Float) * 182.0 / operand[i].abs();
        assert!((got - want).abs() <= bound, "place {i}: expected {want}, got {got}");
    }
}

#[test]
fn fused_layers_compute_the_same_and_keep_what_their_first_one_reads() {
    let image = |uid, channels| tensor(uid, Float, &[2, channels, 120, 120]);
    let per_channel = |uid, channels| tensor(uid, Float, &[1, channels, 1, 1]);
    // An inverted residual of an intermediate, which is what is added too, and so may not give its place to the sum.
    let tensors = [
        image(0, 16),
        image(1, 16).intermediate(),
        tensor(2, Float, &[80, 16, 1, 1]),
        image(3, 80).intermediate(),
        per_channel(4, 80),
        image(5, 80).intermediate(),
        tensor(6, Float, &[80, 1, 3, 3]),
        image(7, 80).intermediate(),
        image(8, 80).intermediate(),
        tensor(9, Float, &[16, 80, 1, 1]),
        image(10, 16).intermediate(),
        image(11, 16).intermediate(),
        image(12, 16),
    ];
    let nodes = vec![
        unary(Mode::ReluFwd, 0, 1),
        conv(1, 2, 3, 0),
        binary(Mode::Add, 3, 4, 5),
        conv(5, 6, 7, 1),
        unary(Mode::ReluFwd, 7, 8),
        conv(8, 9, 10, 0),
        binary(Mode::Add, 10, 1, 11),
        unary(Mode::Neg, 11, 12),
    ];
    let graph = build(&tensors, nodes);
    let filters = [2, 6, 9].map(|uid| (TensorUid(uid), format!("fused-layers-{uid}").into()));
    // Sums of small integers are exact in any order.
    let mut memory = memory(&graph, 5);
    let mut random = fastrand::Rng::with_seed(5);
    for tensor in graph.tensors() {
        if let Some(memory) = memory.get_mut(&tensor.uid()) {
            memory.fill(|| f64::from(random.i32(-2..=2)));
        }
    }
    let mut results = Vec::new();
    for (fuse, constants, threads) in
        [(false, vec![], 1), (true, vec![], 1), (true, filters.to_vec(), 1), (true, filters.to_vec(), 3)]
    {
        let settings = Settings { layout: true, fuse, constants, ..settings(threads) };
        let schedule = schedule(&graph, &settings);
        assert_eq!(letters(&schedule), if fuse { "pl" } else { "pcpcpcpp" }, "{schedule}");
        let plan = CpuPlan::new(schedule, threads, resources::get()).unwrap();
        execute(&plan, &pack(&memory)).unwrap();
        results.push(memory[&TensorUid(12)].values());
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "expected the results of layers one after the other");
}

#[test]
fn many_buffers_find_their_addresses_in_the_workspace() {
    // A sum of 40 inputs: more addresses than fit the stack.
    let mut tensors: Vec<_> = (0..41).map(|uid| tensor(uid, Float, &[7])).collect();
    tensors.extend((41..80).map(|uid| tensor(uid, Float, &[7]).intermediate()));
    tensors.push(tensor(80, Float, &[7]));
    let nodes = (0..40).map(|i| binary(Mode::Add, if i == 0 { 0 } else { 40 + i }, i + 1, 41 + i)).collect();
    let graph = build(&tensors, nodes);
    let memory = memory(&graph, 5);
    let plan = CpuPlan::new(schedule(&graph, &settings(1)), 1, resources::get()).unwrap();
    assert!(plan.schedule().addresses.is_some());
    execute(&plan, &pack(&memory)).unwrap();
    check(&graph, &memory, "forty sums");
}

#[test]
fn scalars_come_from_the_graph_or_the_host() {
    let runtime = |value: Option<TensorValue>| {
        let mut scalar = tensor(1, Half, &[1]);
        (scalar.is_runtime_pass_by_value, scalar.value) = (true, value);
        scalar
    };
    let fixed = tensor(1, Half, &[1]).with_value(TensorValue::Float16(0.5));
    let given = f16::from_f32(-2.0);
    for (what, scalar, want) in [
        ("fixed", fixed, 1.5f32),
        ("with a default", runtime(Some(TensorValue::Float16(4.0))), 5.0),
        ("from the host", runtime(None), -1.0),
    ] {
        let tensors = [tensor(0, Float, &[3]), scalar, tensor(2, Float, &[3])];
        let graph = build(&tensors, vec![binary(Mode::Add, 0, 1, 2)]);
        let plan = CpuPlan::new(schedule(&graph, &settings(1)), 1, resources::get()).unwrap();
        let (x, mut y) = ([1f32; 3], [0f32; 3]);
        let mut pack = vec![
            DeviceBuffer { uid: 0, ptr: x.as_ptr().cast_mut().cast() },
            DeviceBuffer { uid: 2, ptr: y.as_mut_ptr().cast() },
        ];
        let without = execute(&plan, &pack);
        // An entry for a scalar that has a value is ignored.
        pack.push(DeviceBuffer { uid: 1, ptr: (&raw const given).cast_mut().cast() });
        execute(&plan, &pack).unwrap();
        assert_eq!(y, [want; 3], "{what}");
        assert_eq!(without.is_err(), want == -1.0, "{what}: {without:?}");
    }
}

fn conv_graph(batch: i64) -> Graph {
    let tensors = [
        tensor(0, Float, &[batch, 16, 10, 10]),
        tensor(1, Float, &[24, 16, 3, 3]),
        tensor(2, Float, &[batch, 24, 10, 10]),
    ];
    build(&tensors, vec![conv(0, 1, 2, 1)])
}

fn constant(token: &str, winograd: bool) -> Settings {
    Settings { constants: vec![(TensorUid(1), token.into())], winograd, ..settings(2) }
}

#[test]
fn constant_filters_are_prepared_once_and_shared() {
    let resources = resources::get();
    let plan = |batch, token: &str| {
        let graph = conv_graph(batch);
        let plan = CpuPlan::new(schedule(&graph, &constant(token, false)), 2, resources::get()).unwrap();
        (graph, plan)
    };
    let (first_graph, first) = plan(1, "shared-1");
    let (other_graph, other) = plan(3, "shared-1");
    let (_, stranger) = plan(1, "shared-2");
    let prepared = |plan: &CpuPlan| plan.weights(0).expect("a prepared filter").clone();
    assert!(Arc::ptr_eq(&prepared(&first), &prepared(&other)), "other shapes share the filter");
    assert!(!Arc::ptr_eq(&prepared(&first), &prepared(&stranger)), "another token is another filter");
    assert!(prepared(&first).get().is_none(), "nothing is prepared before the first execution");

    // Nobody has seen the filter yet, so it is needed.
    let mut memory_of_other = memory(&other_graph, 9);
    let missing: Vec<_> = pack(&memory_of_other).into_iter().filter(|buffer| buffer.uid != 1).collect();
    let error = execute(&other, &missing).unwrap_err();
    assert_eq!(error.to_string(), "tensor 1: expected a buffer, got no entry with its uid");

    let memory_of_first = memory(&first_graph, 9);
    execute(&first, &pack(&memory_of_first)).unwrap();
    check(&first_graph, &memory_of_first, "first");
    assert!(prepared(&first).get().is_some());

    // From here on it is not, for any plan that shares it.
    execute(&other, &missing).unwrap();
    let filter = Memory {
        tensor: memory_of_first[&TensorUid(1)].tensor.clone(),
        bytes: memory_of_first[&TensorUid(1)].bytes.clone(),
    };
    memory_of_other.insert(TensorUid(1), filter);
    check(&other_graph, &memory_of_other, "other");

    // The last plan takes the filter with it.
    drop((first, other));
    let (_, late) = plan(1, "shared-1");
    assert!(prepared(&late).get().is_none());
    drop(resources);
}

#[test]
fn filters_are_prepared_with_the_plan_if_their_contents_are_lent() {
    let graph = conv_graph(1);
    let memory = memory(&graph, 9);
    let filter = memory[&TensorUid(1)].bytes.as_ptr().cast::<c_void>();
    let bytes = 24 * 16 * 3 * 3 * size_of::<f32>();
    for (what, token, data, size, winograd, want) in [
        ("the filter", c"lent", filter, bytes, false, true),
        ("the filter for Winograd", c"lent", filter, bytes, true, true),
        ("more than the filter", c"lent", filter, bytes + 4, false, true),
        ("less than the filter", c"lent", filter, bytes - 1, false, false),
        ("a misaligned filter", c"lent", filter.wrapping_byte_add(1), bytes, false, false),
        ("null", c"lent", std::ptr::null(), bytes, false, false),
        ("another token", c"lent-2", filter, bytes, false, false),
        ("a longer token", c"lent.", filter, bytes, false, false),
    ] {
        let plan = CpuPlan::new(schedule(&graph, &constant("lent", winograd)), 2, resources::get()).unwrap();
        let ready = || plan.weights(0).expect("a prepared filter").get().is_some();
        let constants = [
            Constant { token: std::ptr::null(), data: filter, size: bytes },
            Constant { token: c"stranger".as_ptr(), data: std::ptr::null(), size: 0 },
            Constant { token: token.as_ptr(), data, size },
        ];
        // SAFETY: none are lent, then tokens and bytes that outlive the loan; plans do not read what is too short.
        unsafe {
            let before = hipdnn_cpu_threads::lent::replace_constants(Constants::NONE);
            plan.make_ready(std::ptr::null_mut());
            assert!(!ready(), "{what}: nothing is lent");
            hipdnn_cpu_threads::lent::replace_constants(Constants {
                constants: constants.as_ptr(),
                count: constants.len(),
            });
            plan.make_ready(std::ptr::null_mut());
            hipdnn_cpu_threads::lent::replace_constants(before);
        }
        assert_eq!(ready(), want, "{what}");
        if want && !winograd {
            let without: Vec<_> = pack(&memory).into_iter().filter(|buffer| buffer.uid != 1).collect();
            execute(&plan, &without).unwrap();
            check(&graph, &memory, what);
        }
    }
}

#[test]
fn filters_that_are_not_constant_are_read_at_every_execution() {
    let graph = conv_graph(1);
    let plan = CpuPlan::new(schedule(&graph, &settings(2)), 2, resources::get()).unwrap();
    for seed in [1, 2] {
        let memory = memory(&graph, seed);
        execute(&plan, &pack(&memory)).unwrap();
        check(&graph, &memory, "changed filter");
    }
}

#[test]
fn one_plan_runs_on_many_threads_at_once() {
    let tensors = {
        let mut all = start(Float);
        all.extend([tensor(3, Float, PER_CHANNEL), tensor(4, Float, Y).intermediate(), tensor(5, Float, Y)]);
        all
    };
    let nodes = vec![conv(0, 1, 2, 1), binary(Mode::Div, 2, 3, 4), unary(Mode::SigmoidFwd, 4, 5)];
    let graph = build(&tensors, nodes);
    let plan = CpuPlan::new(schedule(&graph, &constant("many-threads", true)), 2, resources::get()).unwrap();
    let barrier = Barrier::new(6);
    let filter = memory(&graph, 1)[&TensorUid(1)].bytes.clone();
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (graph, plan, barrier, filter) = (&graph, &plan, &barrier, &filter);
            scope.spawn(move || {
                let mut memory = memory(graph, seed);
                memory.get_mut(&TensorUid(1)).unwrap().bytes.clone_from(filter);
                barrier.wait();
                for _ in 0..10 {
                    execute(plan, &pack(&memory)).unwrap();
                    // Winograd's transforms amplify rounding; four channels more than cover it here.
                    let want = reference(graph, &memory);
                    for (got, want) in memory[&TensorUid(5)].values().iter().zip(&want[&TensorUid(5)]) {
                        assert!((got - want.value).abs() <= 64.0 * want.error, "{got} {want:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_workspace_limit_is_kept_or_refused() {
    let graph = conv_graph(2);
    let free = schedule(&graph, &settings(4)).workspace_bytes();
    assert!(free > 0);
    let works = fuse::fuse(&graph, applicability::lower(&graph).unwrap(), &settings(2));
    let limited = |limit| Schedule::new(&graph, &works, &Settings { workspace_limit: limit, ..settings(4) });
    assert_eq!(limited(free).unwrap().workspace_bytes(), free);
    let smaller = limited(free - 1).unwrap();
    assert!(smaller.workspace_bytes() < free);
    let error = limited(1).unwrap_err().to_string();
    assert!(error.starts_with("knob global.workspace_size_limit: expected at least "), "{error}");
}

#[test]
fn graphs_of_any_size_are_declined_or_planned() {
    const M: i64 = 1 << 20;
    /// The largest padding, stride and dilation of the format.
    const MOST: i64 = i32::MAX as i64;
    // (what, x, w, padding, stride, dilation, whether it is taken)
    type Case<'a> = (&'a str, &'a [i64], &'a [i64], i64, i64, i64, bool);
    let cases: [Case<'_>; 17] = [
        ("a long row", &[1, 1, 1 << 24], &[1, 1, 3], 0, 1, 1, true),
        ("a longer row", &[1, 1, 1 << 40], &[1, 1, 3], 0, 1, 1, false),
        ("a large image", &[1, 3, 1 << 19, 1 << 19], &[8, 3, 3, 3], 0, 1, 1, true),
        ("a larger image", &[1, 3, M, M], &[8, 3, 3, 3], 0, 1, 1, false),
        ("many images", &[1 << 36, 3, 4, 4], &[8, 3, 3, 3], 0, 1, 1, true),
        ("a large filter", &[1, 1, 2048, 2048], &[1, 1, 1024, 1024], 0, 1, 1, true),
        ("a larger filter", &[1, 1, M, M], &[1, 1, M, M], 0, 1, 1, false),
        ("many channels", &[1, 1 << 18, 4, 4], &[1 << 18, 1 << 18, 3, 3], 0, 1, 1, true),
        ("more channels", &[1, M, 4, 4], &[M, M, 3, 3], 0, 1, 1, false),
        ("many groups", &[1, 1 << 30, 1, 1], &[1 << 30, 1, 1, 1], 0, 1, 1, true),
        ("a large volume", &[1, 1, 1 << 13, 1 << 13, 1 << 14], &[1, 1, 3, 3, 3], 0, 1, 1, true),
        ("all padding", &[1, 1, 1, 1], &[1, 1, 2, 2], MOST, MOST, MOST, false),
        ("much padding", &[1, 1, 1, 1], &[1, 1, 2, 2], 1 << 18, MOST, 1 << 18, true),
        ("few channels in a group, a long row and filter", &[1, 2, M], &[2, 1, 1 << 13], 0, 1, 1, true),
        ("far apart", &[1, 1, 1 << 19, 1 << 19], &[1, 1, 2, 2], 0, 1, 1 << 18, true),
        ("depthwise, far strides", &[1, 8, 4, 4], &[8, 1, 3, 3], 0, MOST, 1, true),
        ("depthwise, far apart", &[1, 8, 1 << 18, 1 << 18], &[8, 1, 2, 2], 0, 1, 1 << 17, true),
    ];
    for (what, x, w, padding, stride, dilation, taken) in cases {
        let spatial = x.len() - 2;
        let convolution = Convolution {
            pre_padding: vec![padding; spatial],
            post_padding: vec![padding; spatial],
            stride: vec![stride; spatial],
            dilation: vec![dilation; spatial],
            mode: ConvMode::CrossCorrelation,
        };
        let mut y = vec![x[0], w[0]];
        y.extend((0..spatial).map(|axis| convolution.output_extent(axis, x[2 + axis], w[2 + axis]).unwrap()));
        let tensors = [
            tensor(0, Half, x),
            tensor(1, Half, w),
            tensor(2, Half, &y).intermediate(),
            tensor(3, Half, &y).intermediate(),
            tensor(4, Half, &y),
        ];
        let conv = ConvolutionFwd { x: TensorUid(0), w: TensorUid(1), y: TensorUid(2), convolution };
        let nodes = vec![Operation::ConvolutionFwd(conv), unary(Mode::Sin, 2, 3), unary(Mode::Tan, 3, 4)];
        let graph = build(&tensors, nodes);
        let works = applicability::lower(&graph);
        assert_eq!(works.is_ok(), taken, "{what}: {works:?}");
        let Ok(works) = works else { continue };
        let works = fuse::fuse(&graph, works, &settings(2));
        let all: usize = (0..5).map(|uid| graph.tensor(TensorUid(uid)).span_bytes()).sum();
        for settings in [settings(2), settings(64), constant(&format!("huge-{what}").replace(' ', "-"), true)] {
            let schedule = Schedule::new(&graph, &works, &settings).unwrap();
            let plain: usize = graph.tensor(TensorUid(3)).span_bytes();
            assert!(schedule.workspace_bytes() >= plain, "{what}: the size has not overflowed");
            // Intermediates and filters as `f32`, all tensors twice at most, and for each thread copies of parts of them.
            let most = 2 * all + settings.threads * (all / 2 + (1 << 20));
            assert!(schedule.workspace_bytes() <= most, "{what}: {} of {most}", schedule.workspace_bytes());
            // Filters too large for memory are an error; the plan of others could be had, but is not run.
            if let Err(error) = CpuPlan::new(schedule, 2, resources::get()) {
                assert_eq!(error.kind(), hipdnn_engine_core::error::ErrorKind::AllocFailed, "{what}: {error}");
            }
        }
    }
}

#[test]
fn settings_are_read_strictly() {
    let graph = conv_graph(1);
    let text = |value: &str| KnobValue::String(value.to_string());
    let constants = "hipdnn_rs.constants";
    let long = format!("1={}", "a".repeat(65));
    for (id, value, want) in [
        ("hipdnn_rs.cpu.threads", KnobValue::Int(3), Ok(())),
        ("hipdnn_rs.cpu.threads", KnobValue::Int(-1), Err("knob hipdnn_rs.cpu.threads: expected 0 to 1024, got -1")),
        (
            "hipdnn_rs.cpu.threads",
            text("3"),
            Err("knob hipdnn_rs.cpu.threads: expected a whole number, got String(\"3\")"),
        ),
        ("hipdnn_rs.cpu.winograd", KnobValue::Int(2), Err("knob hipdnn_rs.cpu.winograd: expected 0 to 1, got 2")),
        ("hipdnn_rs.cpu.fuse", KnobValue::Int(0), Ok(())),
        ("hipdnn_rs.cpu.fuse", KnobValue::Int(2), Err("knob hipdnn_rs.cpu.fuse: expected 0 to 1, got 2")),
        ("global.deterministic", KnobValue::Int(7), Err("knob global.deterministic: expected 0 to 1, got 7")),
        (
            "global.workspace_size_limit",
            KnobValue::Int(-5),
            Err("knob global.workspace_size_limit: expected 0 to 9223372036854775807, got -5"),
        ),
        ("somebody.elses", KnobValue::Float(0.5), Ok(())),
        (constants, text(""), Ok(())),
        (constants, text("1=ab-C_9.z,0=x"), Ok(())),
        (constants, KnobValue::Int(1), Err("knob hipdnn_rs.constants: expected text, got Int(1)")),
        (constants, text("1"), Err("knob hipdnn_rs.constants: expected uid=token, got \"1\"")),
        (constants, text("1=a,"), Err("knob hipdnn_rs.constants: expected uid=token, got \"\"")),
        (constants, text("w=a"), Err("knob hipdnn_rs.constants: expected a uid, got \"w\"")),
        (constants, text(" 1=a"), Err("knob hipdnn_rs.constants: expected a uid, got \" 1\"")),
        (constants, text("1="), Err("got \"\"")),
        (constants, text("1=a b"), Err("got \"a b\"")),
        (constants, text("1=a=b"), Err("got \"a=b\"")),
        (constants, text(&long), Err("expected a token of 1 to 64 characters")),
        (constants, text("9=a"), Err("knob hipdnn_rs.constants: tensor 9: the graph has no such tensor")),
        (constants, text("2=a"), Err("knob hipdnn_rs.constants: tensor 2: node 0 writes it, so it is no constant")),
        (constants, text("1=a,1=a"), Err("knob hipdnn_rs.constants: tensor 1: expected one token, got two")),
    ] {
        let config = EngineConfig { engine_id: 0, knobs: vec![(id.to_string(), value.clone())] };
        let got = Settings::new(&config, &graph).map(|_| ()).map_err(|error| error.to_string());
        match want {
            Ok(()) => assert_eq!(got, Ok(()), "{id}={value:?}"),
            Err(part) => assert!(got.as_ref().is_err_and(|text| text.contains(part)), "{id}={value:?}: {got:?}"),
        }
    }
}

#[test]
fn graphs_are_declined_with_a_reason() {
    let pointwise = |mode, data_type: DataType| {
        let tensors = [tensor(0, data_type, &[4]).named("in"), tensor(1, data_type, &[4])];
        build(&tensors, vec![unary(mode, 0, 1)])
    };
    let with = |change: &dyn Fn(&mut hipdnn_schemas::GraphDef)| {
        let mut def = conv_graph(1).def();
        change(&mut def);
        Graph::new(def).unwrap()
    };
    let softplus = |beta| {
        let node =
            Pointwise { softplus_beta: Some(beta), ..Pointwise::unary(Mode::SoftplusFwd, TensorUid(0), TensorUid(1)) };
        build(&[tensor(0, Float, &[4]), tensor(1, Float, &[4])], vec![Operation::Pointwise(node)])
    };
    let whole = {
        let mut def = pointwise(Mode::Exp, Int32).def();
        def.nodes[0].compute_data_type = Int32;
        Graph::new(def).unwrap()
    };
    let custom = {
        let (custom_op_id, data) = ("mine".to_string(), Vec::new());
        let (inputs, outputs) = (vec![TensorUid(0)], vec![TensorUid(1)]);
        let node = hipdnn_schemas::CustomOp { custom_op_id, inputs, outputs, data };
        build(&[0, 1].map(|uid| tensor(uid, Float, &[2, 2])), vec![Operation::CustomOp(node)])
    };
    let deep = {
        let tensors = [&[1, 1, 1, 1, 1, 2][..], &[1; 6], &[1, 1, 1, 1, 1, 2]];
        let [x, w, y] = [0, 1, 2].map(|i: i64| tensor(i, Float, tensors[i as usize]));
        let conv =
            ConvolutionFwd { x: TensorUid(0), w: TensorUid(1), y: TensorUid(2), convolution: Convolution::new(4) };
        build(&[x, w, y], vec![Operation::ConvolutionFwd(conv)])
    };
    for (graph, want) in [
        (with(&|def| def.tensors[0].alignment = 2), "tensor 0: expected an alignment to a multiple of 4 bytes, got 2"),
        (
            with(&|def| {
                def.tensors.push(tensor(9, Int32, &[2]));
                def.tensors[0].ragged = Some(hipdnn_schemas::Ragged { offset: TensorUid(9), multiplier: 1 });
            }),
            "tensor 0 is ragged",
        ),
        (
            with(&|def| def.nodes[0].compute_data_type = Half),
            "node 0 (ConvolutionFwd \"n0\"): compute_data_type: expected float, got half",
        ),
        (
            with(&|def| def.tensors[1].data_type = DataType::Double),
            "node 0 (ConvolutionFwd \"n0\"): w (tensor 1): expected float, half or bfloat16, got double",
        ),
        (
            with(&|def| def.tensors[0].strides = Extents::from_slice(&[1600, 100, 10, 0])),
            "x (tensor 0) has strides [1600, 100, 10, 0] over dimensions [1, 16, 10, 10], which overlap",
        ),
        (
            with(&|def| def.tensors[0].strides = Extents::from_slice(&[1600, 91, 10, 1])),
            "x (tensor 0) has strides [1600, 91, 10, 1] over dimensions [1, 16, 10, 10], which overlap",
        ),
        (deep, "x (tensor 0): expected 3 to 5 dimensions, got 6"),
        (custom, "node 0 (CustomOp \"n0\"): the engine does not have this operation"),
        (
            whole,
            "node 0 (Pointwise \"n0\"): compute_data_type: expected a floating-point type for exp of these operands, got int32",
        ),
        (softplus(0.0), "node 0 (Pointwise \"n0\"): softplus_beta: expected a finite number other than 0, got 0"),
        (
            pointwise(Mode::Abs, DataType::Int4),
            "in_0 (tensor 0 \"in\"): expected float, half, bfloat16, double, int32, int64, int8, uint8, boolean, fp8_e4m3, fp8_e5m2, fp8_e4m3_fnuz, fp8_e5m2_fnuz, fp6_e2m3, fp6_e3m2, fp4_e2m1 or fp8_e8m0, got int4",
        ),
        (
            pointwise(Mode::Abs, DataType::Fp8E8M0),
            "out_0 (tensor 1): expected float, half, bfloat16, double, int32, int64, int8, uint8, boolean, fp8_e4m3, fp8_e5m2, fp8_e4m3_fnuz, fp8_e5m2_fnuz, fp6_e2m3, fp6_e3m2 or fp4_e2m1, got fp8_e8m0",
        ),
    ] {
        let got = applicability::lower(&graph).map(|_| ()).unwrap_err().to_string();
        assert!(got.contains(want), "expected {want}\ngot {got}");
    }
    for (kind, want) in [("MatmulAttributes", true), ("RMSNormAttributes", true), ("Attributes", false)] {
        assert_eq!(applicability::has_operation(kind), want, "{kind}");
    }
    for graph in [conv_graph(1), softplus(-2.0), pointwise(Mode::LogicalNot, Boolean), pointwise(Mode::Neg, Int32)] {
        assert_eq!(applicability::lower(&graph).map(|_| ()), Ok(()));
    }
}

#[test]
fn a_plan_is_made_of_the_blueprint_that_its_workspace_was_asked_of() {
    let graph = CpuGraph::new(Arc::new(chain(3)), Site::UNSPECIFIED).unwrap();
    let config = |fuse: i64| EngineConfig {
        engine_id: engine_id(&CPU_ENGINE),
        knobs: vec![("hipdnn_rs.cpu.fuse".to_string(), KnobValue::Int(fuse))],
    };
    let kept = || {
        let kept = graph.schedule.lock().unwrap();
        kept.as_ref().map(|(settings, schedule)| (settings.fuse, schedule.steps.as_ptr().addr()))
    };
    let bytes = graph.workspace_bytes(&config(1)).unwrap();
    let first = kept();
    assert_eq!((graph.workspace_bytes(&config(1)).unwrap(), kept()), (bytes, first), "it is asked twice");
    assert_eq!(first.map(|(fuse, _)| fuse), Some(true));
    assert!(graph.workspace_bytes(&config(0)).unwrap() > 0);
    assert_eq!(kept().map(|(fuse, _)| fuse), Some(false), "with other settings it is another one");
    assert_eq!(graph.plan(&config(0)).unwrap().workspace_bytes(), graph.workspace_bytes(&config(0)).unwrap());
    graph.plan(&config(0)).unwrap();
    assert_eq!(kept(), None, "the plan has it");
}

#[test]
fn threads_and_memory_end_with_the_last_share() {
    let first = resources::get();
    let pool = first.pool(2);
    assert!(Arc::ptr_eq(&pool, &resources::get().pool(2)));
    assert!(!Arc::ptr_eq(&pool, &first.pool(3)));
}
