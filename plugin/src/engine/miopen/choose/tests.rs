//! On a device, where there is one: convolutions against a reference in double precision, and what choosing them does.

use half::{bf16, f16};

use super::*;
use crate::engine::miopen::convolution::{DataType, Direction, TensorShape};
use crate::engine::miopen::device::Devices;
use crate::engine::miopen::gpu::{DeviceMemory, Stream, gpu};

/// The current device; without one the test is skipped.
fn device() -> Option<Arc<Device>> {
    match gpu() {
        Ok(_) => Some(Devices::get().current().expect("a device that works")),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

/// A two-dimensional problem with equal extents; `three` adds a depth of 5 and a filter depth of 2.
#[derive(Clone, Copy)]
struct Case {
    direction: Direction,
    data_type: DataType,
    channels_last: bool,
    batch: usize,
    channels: usize,
    filters: usize,
    extent: usize,
    taps: usize,
    padding: i32,
    stride: i32,
    dilation: i32,
    groups: i32,
    three: bool,
}

const PLAIN: Case = Case {
    direction: Direction::Forward,
    data_type: DataType::Float,
    channels_last: false,
    batch: 2,
    channels: 4,
    filters: 6,
    extent: 7,
    taps: 3,
    padding: 1,
    stride: 1,
    dilation: 1,
    groups: 1,
    three: false,
};

impl Case {
    fn problem(&self) -> ConvolutionProblem {
        let Case { batch, channels, filters, extent, taps, padding, stride, dilation, groups, three, .. } = *self;
        let mut x = vec![batch, channels, extent, extent + 2];
        let mut w = vec![filters, channels / groups as usize, taps, taps];
        if three {
            x.insert(2, 5);
            w.insert(2, 2);
        }
        let spatial = x.len() - 2;
        let mut y = vec![batch, filters];
        for axis in 2..x.len() {
            let room = x[axis] as i32 + 2 * padding - dilation * (w[axis] as i32 - 1) - 1;
            y.push((room / stride + 1) as usize);
        }
        let order = if self.channels_last { TensorShape::channels_last } else { TensorShape::packed };
        ConvolutionProblem {
            direction: self.direction,
            x: order(self.data_type, &x),
            w: order(self.data_type, &w),
            y: order(self.data_type, &y),
            padding: vec![padding; spatial],
            stride: vec![stride; spatial],
            dilation: vec![dilation; spatial],
            groups,
            deterministic: false,
        }
    }
}

fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    dims.iter().fold(vec![vec![]], |all, extent| {
        all.iter().flat_map(|index| (0..*extent).map(|i| [index.as_slice(), &[i]].concat())).collect()
    })
}

/// A tensor's memory as numbers; places between elements are NaN.
#[derive(Clone)]
struct Data {
    shape: TensorShape,
    values: Vec<f64>,
}

impl Data {
    fn blank(shape: &TensorShape) -> Data {
        Data { shape: shape.clone(), values: vec![f64::NAN; shape.span()] }
    }

    /// Multiples of 1/8 from -1 to 1: exact in every type.
    fn random(shape: &TensorShape, seed: u64) -> Data {
        let mut data = Data::blank(shape);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for index in indices(&shape.dims) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *data.at(&index) = ((state >> 40) % 17) as f64 / 8.0 - 1.0;
        }
        data
    }

    fn place(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.shape.strides).map(|(i, stride)| i * stride).sum()
    }

    fn at(&mut self, index: &[usize]) -> &mut f64 {
        let place = self.place(index);
        &mut self.values[place]
    }

    fn bytes(&self) -> Vec<u8> {
        let values = self.values.iter().map(|value| *value as f32);
        match self.shape.data_type {
            DataType::Float => values.flat_map(f32::to_ne_bytes).collect(),
            DataType::Half => values.flat_map(|value| f16::from_f32(value).to_ne_bytes()).collect(),
            DataType::BFloat16 => values.flat_map(|value| bf16::from_f32(value).to_ne_bytes()).collect(),
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let two = |b: &[u8]| [b[0], b[1]];
        self.values = match self.shape.data_type {
            DataType::Float => {
                bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().expect("four bytes")).into()).collect()
            }
            DataType::Half => bytes.chunks(2).map(|b| f16::from_ne_bytes(two(b)).into()).collect(),
            DataType::BFloat16 => bytes.chunks(2).map(|b| bf16::from_ne_bytes(two(b)).into()).collect(),
        };
    }
}

/// Calls `f` with the indices of x, w and y of every product.
fn products(problem: &ConvolutionProblem, mut f: impl FnMut(&[usize], &[usize], &[usize])) {
    let ConvolutionProblem { x, w, y, padding, stride, dilation, groups, .. } = problem;
    let per_group = w.dims[0] / *groups as usize;
    for out in indices(&y.dims) {
        for tap in indices(&w.dims[1..]) {
            let mut inside = vec![out[0], out[1] / per_group * w.dims[1] + tap[0]];
            for axis in 0..padding.len() {
                let at = out[axis + 2] as i32 * stride[axis] - padding[axis] + tap[axis + 1] as i32 * dilation[axis];
                if at >= 0 && (at as usize) < x.dims[axis + 2] {
                    inside.push(at as usize);
                }
            }
            if inside.len() == x.dims.len() {
                f(&inside, &[&[out[1]], tap.as_slice()].concat(), &out);
            }
        }
    }
}

/// The tensors of a problem in device memory.
struct Buffers {
    tensors: [(Data, DeviceMemory); 3],
    workspace: DeviceMemory,
    expected: Data,
    stream: Stream,
}

impl Buffers {
    fn new(device: &Device, problem: &ConvolutionProblem, workspace: usize, seed: u64) -> Buffers {
        let gpu = device.gpu();
        let _entered = device.enter().expect("the device");
        let stream = Stream::new(gpu).expect("a stream");
        let [mut x, mut w, mut y] =
            [(&problem.x, 1), (&problem.w, 2), (&problem.y, 3)].map(|(shape, n)| Data::random(shape, seed * 8 + n));
        let output = match problem.direction {
            Direction::Forward => &mut y,
            Direction::BackwardData => &mut x,
            Direction::BackwardWeights => &mut w,
        };
        for index in indices(&output.shape.dims) {
            *output.at(&index) = 0.0;
        }
        let mut expected = output.clone();
        products(problem, |xi, wi, yi| match problem.direction {
            Direction::Forward => *expected.at(yi) += *x.at(xi) * *w.at(wi),
            Direction::BackwardData => *expected.at(xi) += *y.at(yi) * *w.at(wi),
            Direction::BackwardWeights => *expected.at(wi) += *x.at(xi) * *y.at(yi),
        });
        let tensors = [x, w, y].map(|data| {
            let memory = DeviceMemory::new(gpu, data.shape.bytes()).expect("memory");
            memory.write(0, &data.bytes(), &stream).expect("a copy");
            (data, memory)
        });
        let workspace = DeviceMemory::new(gpu, workspace).expect("memory");
        let buffers = Buffers { tensors, workspace, expected, stream };
        buffers.output(problem).1.fill(0xff, &buffers.stream).expect("a fill");
        buffers
    }

    fn output(&self, problem: &ConvolutionProblem) -> &(Data, DeviceMemory) {
        &self.tensors[match problem.direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardWeights => 1,
        }]
    }

    fn launch(&self, prepared: &PreparedConvolution) -> Result<(), Error> {
        let [x, w, y] = &self.tensors;
        // SAFETY: buffers of the problem's sizes and of the plan's workspace, waited for before they go.
        unsafe {
            prepared.launch(
                self.stream.raw().cast(),
                x.1.address(),
                w.1.address(),
                y.1.address(),
                self.workspace.address(),
            )
        }
    }

    /// Sums of multiples of 1/64 are exact in an accumulator of 24 bits; what is left is rounding once to the element
    /// type: half a unit in its last place.
    fn compare(&self, problem: &ConvolutionProblem) {
        let (data, memory) = self.output(problem);
        let mut got = data.clone();
        let mut bytes = vec![0; memory.bytes()];
        memory.read(0, &mut bytes, &self.stream).expect("a copy");
        got.read(&bytes);
        let unit = match data.shape.data_type {
            DataType::Float => 2f64.powi(-24),
            DataType::Half => 2f64.powi(-11),
            DataType::BFloat16 => 2f64.powi(-8),
        };
        for index in indices(&data.shape.dims) {
            let (got, want) = (got.values[got.place(&index)], self.expected.values[self.expected.place(&index)]);
            assert!((got - want).abs() <= unit * want.abs(), "{problem}: at {index:?} is {got}, not {want}");
        }
    }
}

fn check(device: &Arc<Device>, problem: &ConvolutionProblem, policy: &Policy, store: &Store) -> PreparedConvolution {
    let prepared = prepare(device, problem, policy, store).unwrap_or_else(|error| panic!("{error}"));
    let buffers = Buffers::new(device, problem, prepared.workspace_bytes(), 1);
    buffers.launch(&prepared).unwrap_or_else(|error| panic!("{error}"));
    buffers.compare(problem);
    prepared
}

#[test]
fn a_forward_convolution_is_recorded_and_right() {
    let Some(device) = device() else { return };
    let prepared = check(&device, &PLAIN.problem(), &Policy::default(), &Store::disabled());
    println!("{}", prepared.describe());
    assert!(prepared.is_recorded(), "{}", prepared.describe());
}
