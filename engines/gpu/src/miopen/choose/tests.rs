//! On a device, where there is one: convolutions against a reference in double precision, and what choosing them does.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};
use hipdnn_engine_kernel::convolution::{DataType, Direction, TensorShape};
use hipdnn_sdk_bindings::library::{Library, Lookup};

use super::*;
use crate::context::{Context, Contexts};
use crate::device::Device;
use crate::hip::{DeviceMemory, OnDevice, Stream, gpu};
use crate::testing::skip;

/// Functions of the emulated HIP for tests; a real one has none of them.
struct Emulator(Library);

/// The beginning of `hipemu_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Alive {
    streams: u64,
    events: u64,
    allocations: u64,
    bytes: u64,
    host_allocations: u64,
    modules: u64,
    graphs: u64,
    graph_execs: u64,
}

impl Emulator {
    fn find() -> Option<Emulator> {
        let library = Library::loaded("libamdhip64.so.7")?;
        library.address(c"hipemu_get_counters")?;
        Some(Emulator(library))
    }

    fn function<T: Copy>(&self, name: &CStr) -> T {
        // SAFETY: callers give the type that `hipemu_control.h` declares.
        unsafe { self.0.symbol(name) }.expect("a function of the emulator")
    }

    fn alive(&self) -> Alive {
        let mut alive = Alive::default();
        let get: unsafe extern "C" fn(*mut Alive, usize) = self.function(c"hipemu_get_counters");
        // SAFETY: the emulator writes at most as many bytes as is said.
        unsafe { get(&mut alive, size_of::<Alive>()) };
        alive
    }

    /// Number of failures that were made on demand.
    fn failures(&self) -> u64 {
        const INJECTED: usize = 15;
        let mut counters = [0u64; INJECTED + 1];
        let get: unsafe extern "C" fn(*mut u64, usize) = self.function(c"hipemu_get_counters");
        // SAFETY: the emulator writes at most the array's bytes, whose number it is given.
        unsafe { get(counters.as_mut_ptr(), size_of_val(&counters)) };
        counters[INJECTED]
    }

    fn calls(&self, name: &CStr) -> u64 {
        let count: unsafe extern "C" fn(*const c_char) -> u64 = self.function(c"hipemu_call_count");
        // SAFETY: the name ends in NUL.
        unsafe { count(name.as_ptr()) }
    }

    fn fail(&self, name: &CStr, nth: u64, error: c_int) {
        let fail: unsafe extern "C" fn(*const c_char, u64, c_int) = self.function(c"hipemu_fail_call");
        // SAFETY: the name ends in NUL; the rest is numbers.
        unsafe { fail(name.as_ptr(), nth, error) };
    }

    /// Takes back failures that have not happened and those that stick.
    fn calm(&self) {
        for name in [c"hipemu_fail_clear", c"hipemu_clear_errors"] {
            let clear: unsafe extern "C" fn() = self.function(name);
            // SAFETY: the function takes nothing.
            unsafe { clear() };
        }
    }

    fn limit_memory(&self, total: u64, single: u64) {
        let limit: unsafe extern "C" fn(u64, u64) = self.function(c"hipemu_set_memory_limit");
        // SAFETY: two numbers.
        unsafe { limit(total, single) };
    }
}

/// Tests that count or fail the process's HIP calls run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current device; without one the test is skipped.
fn context() -> Option<Arc<Context>> {
    match gpu() {
        Ok(_) => Some(Contexts::get().current().expect("a device that works")),
        Err(reason) => {
            skip(&reason);
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
        let mut random = fastrand::Rng::with_seed(seed);
        for index in indices(&shape.dims) {
            *data.at(&index) = f64::from(random.i32(-8..=8)) / 8.0;
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
        Buffers::try_new(device, problem, workspace, seed).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_new(device: &Device, problem: &ConvolutionProblem, workspace: usize, seed: u64) -> Result<Buffers, Error> {
        let gpu = device.gpu();
        let _entered = device.enter()?;
        let stream = Stream::new(gpu)?;
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
        let upload = |data: Data| {
            let memory = DeviceMemory::new(gpu, data.shape.bytes())?;
            memory.write(0, &data.bytes(), &stream)?;
            Ok::<_, Error>((data, memory))
        };
        let tensors = [upload(x)?, upload(w)?, upload(y)?];
        let workspace = DeviceMemory::new(gpu, workspace)?;
        let buffers = Buffers { tensors, workspace, expected, stream };
        buffers.output(problem).1.fill(0xff, &buffers.stream)?;
        Ok(buffers)
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

fn check(context: &Context, problem: &ConvolutionProblem, policy: &Policy, store: &Store) -> PreparedConvolution {
    let prepared = prepare(context.miopen().unwrap(), problem, policy, store).unwrap_or_else(|error| panic!("{error}"));
    let buffers = Buffers::new(context.device(), problem, prepared.workspace_bytes(), 1);
    buffers.launch(&prepared).unwrap_or_else(|error| panic!("{error}"));
    buffers.compare(problem);
    prepared
}

#[test]
fn convolutions_of_all_kinds_are_recorded_and_right() {
    let Some(context) = context() else { return };
    let _alone = alone();
    type Change = fn(&mut Case);
    let kinds: [(&str, Change); 9] = [
        ("plain", |_| ()),
        ("pointwise", |case| (case.taps, case.padding) = (1, 0)),
        ("stride", |case| case.stride = 2),
        ("dilation", |case| (case.dilation, case.padding) = (2, 2)),
        ("groups", |case| case.groups = 2),
        ("depthwise", |case| (case.channels, case.filters, case.groups) = (4, 4, 4)),
        ("channels last", |case| case.channels_last = true),
        ("three dimensions", |case| case.three = true),
        ("three dimensions, channels last", |case| (case.three, case.channels_last) = (true, true)),
    ];
    let types = [DataType::Float, DataType::Half, DataType::BFloat16];
    for (row, direction) in Direction::ALL.into_iter().enumerate() {
        for (column, (name, change)) in kinds.into_iter().enumerate() {
            let mut case = Case { direction, data_type: types[(row + column) % types.len()], ..PLAIN };
            change(&mut case);
            let problem = case.problem();
            supported(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled())
                .unwrap_or_else(|reason| panic!("{name}: {problem}: {reason}"));
            let prepared = check(&context, &problem, &Policy::default(), &Store::disabled());
            assert!(prepared.is_recorded(), "{name}: {problem}: {}", prepared.describe());
        }
    }
}

/// x, w and y with 3 more elements behind each row, and 5 behind each image.
fn with_gaps(problem: &mut ConvolutionProblem) {
    for tensor in [&mut problem.x, &mut problem.w, &mut problem.y] {
        let mut step = 1;
        for axis in (0..tensor.dims.len()).rev() {
            tensor.strides[axis] = step;
            step = step * tensor.dims[axis] + if axis == tensor.dims.len() - 1 { 3 } else { 5 };
        }
    }
}

#[test]
fn unusual_convolutions_are_right_too() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let two = |x: [usize; 4], w: [usize; 4], padding: [i32; 2], stride: [i32; 2], dilation: [i32; 2]| {
        let extent = |axis: usize| {
            let taps = dilation[axis] * (w[axis + 2] as i32 - 1) + 1;
            ((x[axis + 2] as i32 + 2 * padding[axis] - taps) / stride[axis] + 1) as usize
        };
        let y = [x[0], w[0], extent(0), extent(1)];
        let [x, w, y] = [x, w, y].map(|dims| TensorShape::packed(DataType::Float, &dims));
        let [padding, stride, dilation] = [padding, stride, dilation].map(Vec::from);
        ConvolutionProblem { x, w, y, padding, stride, dilation, ..PLAIN.problem() }
    };
    let mut gaps = PLAIN.problem();
    with_gaps(&mut gaps);
    let problems = [
        ("gaps", gaps),
        ("one of everything", two([1, 1, 1, 1], [1, 1, 1, 1], [0, 0], [1, 1], [1, 1])),
        ("odd extents", two([3, 5, 7, 11], [7, 5, 3, 1], [1, 0], [1, 2], [1, 1])),
        ("one dimension", two([2, 3, 1, 9], [4, 3, 1, 3], [0, 1], [1, 1], [1, 2])),
        ("more padding than filter", two([1, 2, 3, 3], [2, 2, 2, 2], [3, 2], [2, 3], [1, 1])),
        ("stride over the filter", two([1, 2, 9, 9], [3, 2, 1, 1], [0, 0], [4, 3], [1, 1])),
        ("filter as large as the image", two([2, 3, 5, 4], [2, 3, 5, 4], [0, 0], [1, 1], [1, 1])),
        ("an image that is not used to its end", two([1, 2, 8, 8], [2, 2, 3, 3], [0, 0], [2, 3], [1, 1])),
    ];
    for (name, problem) in problems {
        for direction in Direction::ALL {
            let problem = ConvolutionProblem { direction, ..problem.clone() };
            if let Err(reason) = supported(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled())
            {
                println!("not supported: {name}: {problem}: {reason}");
                continue;
            }
            for deterministic in [false, true] {
                let problem = ConvolutionProblem { deterministic, ..problem.clone() };
                let prepared = check(&context, &problem, &Policy::default(), &Store::disabled());
                assert!(prepared.is_recorded(), "{name}: {problem}: {}", prepared.describe());
            }
        }
    }
}

#[test]
fn without_recording_miopen_is_called_and_right() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let policy = Policy { recorded: false, ..Policy::default() };
    for direction in Direction::ALL {
        let problem = Case { direction, ..PLAIN }.problem();
        let prepared = prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled()).expect("a solver");
        assert!(!prepared.is_recorded(), "{}", prepared.describe());
        let buffers = Buffers::new(context.device(), &problem, prepared.workspace_bytes(), 4);
        prepared.make_ready(buffers.stream.raw().cast()).expect("a handle for the stream");
        buffers.launch(&prepared).expect("a launch");
        buffers.compare(&problem);
    }
}

/// A directory that is removed with this.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("hipdnn-rs-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_choice_is_repeated_without_trying() {
    let (Some(_), Some(emulator)) = (context(), Emulator::find()) else { return };
    let _alone = alone();
    let directory = Directory::new("repeat");
    let launches = || emulator.calls(c"hipExtModuleLaunchKernel") + emulator.calls(c"hipModuleLaunchKernel");
    let problem = PLAIN.problem();
    let mut counts = Vec::new();
    for _ in 0..2 {
        // A device of its own knows nothing but what is in the store.
        let context = Contexts::default().current().expect("a device");
        let before = launches();
        let prepare = || {
            prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::at(&directory.0))
                .expect("a solver")
        };
        let first = prepare();
        counts.push(launches() - before);
        let [before, waits] = [c"hipMalloc", c"hipStreamSynchronize"].map(|name| emulator.calls(name));
        let second = prepare();
        assert!(first.is_recorded() && second.is_recorded());
        assert_eq!(emulator.calls(c"hipMalloc"), before, "nothing is allocated for what was tried");
        assert_eq!(emulator.calls(c"hipStreamSynchronize"), waits + 1, "nothing runs");
        let buffers = Buffers::new(context.device(), &problem, second.workspace_bytes(), 6);
        buffers.launch(&second).expect("a launch");
        buffers.compare(&problem);
    }
    // Warm: two captures of one launch. Before that one more by MIOpen and one more repeated, and what was given up.
    assert_eq!(counts[1], 2, "{counts:?}");
    assert!(counts[0] >= 4, "{counts:?}");
}

#[test]
fn what_the_store_holds_is_not_believed_blindly() {
    let Some(_) = context() else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    let policy = Policy::default();
    let values: [&[u8]; 6] = [
        b"",
        b"not json",
        b"{}",
        br#"{"solver":85,"workspace":-1,"recorded":true}"#,
        // A solver that does not exist.
        br#"{"solver":99999,"workspace":0,"recorded":true,"refused":null,"ms":null}"#,
        // One that does not compile for this problem.
        br#"{"solver":84,"workspace":0,"recorded":null,"refused":null,"ms":null}"#,
    ];
    for value in values {
        let directory = Directory::new("distrust");
        let store = Store::at(&directory.0);
        let context = Contexts::default().current().expect("a device");
        store.put(KIND, &policy.key(context.fingerprint(true), &problem, Effort::Immediate), value);
        let prepared = check(&context, &problem, &policy, &store);
        assert!(prepared.is_recorded(), "{}: {}", String::from_utf8_lossy(value), prepared.describe());
    }
}

#[test]
fn choices_are_read_as_they_were_written() {
    for verdict in [Verdict::Untried, Verdict::Same, Verdict::Refused("a \"reason\"".to_string())] {
        for milliseconds in [None, Some(0.25)] {
            let choice = Choice {
                solution: Solution { solver: 85, workspace: 1 << 40 },
                verdict: verdict.clone(),
                milliseconds,
            };
            assert_eq!(Choice::decode(&choice.encode()), Some(choice));
        }
    }
}

#[test]
fn the_policy_decides_and_says_so() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    let naive = naive_solver(problem.direction);
    let only = |solver| Policy { allow: Some(vec![solver]), ..Policy::default() };
    let prepared = check(&context, &problem, &only(naive), &Store::disabled());
    assert_eq!(prepared.solver(), naive);
    let denied = Policy { deny: vec![naive], workspace_limit: Some(0), ..Policy::default() };
    for (policy, wants) in
        [(only(4711), vec!["not among those allowed", "solver 85"]), (denied, vec!["it is denied", "solver 85"])]
    {
        let error =
            prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled()).expect_err("no solver is left");
        for want in wants.into_iter().chain(["no solver is left", "forward convolution x f32[2, 4, 7, 9]"]) {
            assert!(error.to_string().contains(want), "{error}");
        }
    }
    let limited = Policy { workspace_limit: Some(0), ..Policy::default() };
    assert_eq!(check(&context, &problem, &limited, &Store::disabled()).workspace_bytes(), 0);
}

#[test]
fn more_effort_times_what_is_offered() {
    let Some(context) = context() else { return };
    let _alone = alone();
    for effort in [Effort::Benchmark, Effort::Tune] {
        let policy = Policy { effort, search_time: Duration::from_secs(2), ..Policy::default() };
        let problem = Case { channels: 8, ..PLAIN }.problem();
        let prepared = check(&context, &problem, &policy, &Store::disabled());
        assert!(prepared.milliseconds.is_some_and(|ms| ms > 0.0), "{}", prepared.describe());
        // What took effort is good for plans that want less.
        let choices = context.miopen().unwrap().memo().choices.lock().expect("nobody panicked").len();
        prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled()).expect("a solver");
        assert_eq!(context.miopen().unwrap().memo().choices.lock().expect("nobody panicked").len(), choices);
    }
}

#[test]
fn without_memory_to_try_it_with_miopen_is_called() {
    let (Some(context), Some(emulator)) = (context(), Emulator::find()) else { return };
    let _alone = alone();
    let problem = Case { filters: 5, ..PLAIN }.problem();
    // Enough for MIOpen's own needs and for no scratch tensor with its shifted copies.
    emulator.limit_memory(0, 4096);
    let prepared = prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled());
    emulator.limit_memory(0, 0);
    let prepared = prepared.expect("a solver that compiles");
    assert!(!prepared.is_recorded(), "{}", prepared.describe());
    let buffers = Buffers::new(context.device(), &problem, prepared.workspace_bytes(), 1);
    if prepared.solver() == naive_solver(problem.direction) {
        buffers.launch(&prepared).expect("a launch");
        buffers.compare(&problem);
    }
    assert!(check(&context, &problem, &Policy::default(), &Store::disabled()).is_recorded(), "with memory it is");
}

#[test]
fn plans_launch_from_many_threads_at_once() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    for recorded in [true, false] {
        let policy = Policy { recorded, ..Policy::default() };
        let prepared = prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled()).expect("a solver");
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (prepared, context, problem) = (&prepared, &context, &problem);
                scope.spawn(move || {
                    let buffers = Buffers::new(context.device(), problem, prepared.workspace_bytes(), seed);
                    for _ in 0..3 {
                        buffers.launch(prepared).expect("a launch");
                    }
                    buffers.compare(problem);
                });
            }
        });
    }
}

#[test]
fn launches_are_captured_from_the_first_one_on() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    let hip = &context.device().gpu().hip;
    for recorded in [true, false] {
        let policy = Policy { recorded, ..Policy::default() };
        let prepared = prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled()).expect("a solver");
        let buffers = Buffers::new(context.device(), &problem, prepared.workspace_bytes(), 3);
        let stream = buffers.stream.raw();
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        let ok = hipdnn_sdk_bindings::hip::hipError_t::hipSuccess;
        // SAFETY: the stream is alive, and what comes of it is used as HIP wants.
        unsafe {
            let mode = hipdnn_sdk_bindings::hip::hipStreamCaptureMode::hipStreamCaptureModeGlobal;
            assert_eq!((hip.hipStreamBeginCapture)(stream, mode), ok);
            buffers.launch(&prepared).unwrap_or_else(|error| panic!("recorded: {recorded}: {error}"));
            assert_eq!((hip.hipStreamEndCapture)(stream, &mut graph), ok, "recorded: {recorded}");
            let instantiate = hip.hipGraphInstantiate.expect("hipGraphInstantiate");
            assert_eq!(instantiate(&mut exec, graph, std::ptr::null_mut(), std::ptr::null_mut(), 0), ok);
            assert_eq!(hip.hipGraphLaunch.expect("hipGraphLaunch")(exec, stream), ok);
            buffers.stream.synchronize().expect("the graph runs");
            assert_eq!(hip.hipGraphExecDestroy.expect("hipGraphExecDestroy")(exec), ok);
            assert_eq!((hip.hipGraphDestroy)(graph), ok);
        }
        buffers.compare(&problem);
    }
}

#[test]
fn building_disturbs_no_capture_and_leaves_no_error() {
    let Some(context) = context() else { return };
    let _alone = alone();
    let (gpu, hip) = (context.device().gpu(), &context.device().gpu().hip);
    let ok = hipdnn_sdk_bindings::hip::hipError_t::hipSuccess;
    let stream = Stream::new(gpu).expect("a stream");
    let mode = hipdnn_sdk_bindings::hip::hipStreamCaptureMode::hipStreamCaptureModeGlobal;
    // The strictest mode, in this thread and for all others.
    // SAFETY: the stream is alive.
    assert_eq!(unsafe { (hip.hipStreamBeginCapture)(stream.raw(), mode) }, ok);
    let problem = Case { filters: 7, ..PLAIN }.problem();
    let build = || {
        prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled())
            .map(|made| made.is_recorded())
    };
    let elsewhere = std::thread::scope(|scope| scope.spawn(build).join().expect("no panic"));
    let here = build();
    let contexts = Contexts::default();
    let fresh = contexts
        .current()
        .and_then(|context| prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled()));
    drop((fresh.expect("a solver"), contexts));
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive and captures; a place for the graph, which is destroyed below.
    let ended = unsafe { (hip.hipStreamEndCapture)(stream.raw(), &mut graph) };
    assert_eq!(ended, ok, "the capture is whole");
    // SAFETY: the graph is alive.
    assert_eq!(unsafe { (hip.hipGraphDestroy)(graph) }, ok);
    assert_eq!([elsewhere, here].map(|built| built.expect("a solver")), [true, true]);
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { (hip.hipGetLastError)() }, ok);
}

/// Others may call what HIP forbids while a stream captures, which ends the capture.
#[test]
fn captures_that_others_end_are_made_again() {
    let (Some(_), Some(emulator)) = (context(), Emulator::find()) else { return };
    let _alone = alone();
    const INVALIDATED: c_int = 901;
    let problem = Case { filters: 9, ..PLAIN }.problem();
    let ends = || emulator.calls(c"hipStreamEndCapture");
    for (failures, recorded) in [(&[1][..], true), (&[2, 3], true), (&[1, 2, 3, 4], false)] {
        let contexts = Contexts::default();
        let context = contexts.current().expect("a device");
        let prepare =
            || prepare(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled()).expect("a solver");
        for nth in failures {
            emulator.fail(c"hipStreamEndCapture", *nth, INVALIDATED);
        }
        let before = ends();
        let prepared = prepare();
        let captures = ends() - before;
        emulator.calm();
        assert_eq!(prepared.is_recorded(), recorded, "{failures:?}: {}", prepared.describe());
        assert_eq!(captures, if recorded { 2 + failures.len() as u64 } else { 4 }, "{failures:?}");
        drop(prepared);
        assert!(prepare().is_recorded(), "{failures:?}: that is not remembered");
    }
}

#[test]
fn nothing_is_left_when_device_and_plans_are_gone() {
    let (Some(_), Some(emulator)) = (context(), Emulator::find()) else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    let contexts = Contexts::default();
    // What MIOpen and the emulator keep for the process.
    drop(prepare(
        contexts.current().expect("a device").miopen().unwrap(),
        &problem,
        &Policy::default(),
        &Store::disabled(),
    ));
    drop(contexts);
    let before = emulator.alive();
    let contexts = Contexts::default();
    let context = contexts.current().expect("a device");
    for recorded in [true, false] {
        let policy = Policy { recorded, ..Policy::default() };
        drop(check(&context, &problem, &policy, &Store::disabled()));
    }
    let plan = check(&context, &problem, &Policy::default(), &Store::disabled());
    drop((context, contexts));
    let buffers = Buffers::new(plan.handles.device(), &problem, plan.workspace_bytes(), 5);
    buffers.launch(&plan).expect("the plan keeps what it needs");
    buffers.compare(&problem);
    drop(buffers);
    drop(plan);
    assert_eq!(emulator.alive(), before);
}

/// Every HIP call fails once: MIOpen's, and ours.
#[test]
fn any_failing_call_is_survived() {
    let (Some(_), Some(emulator)) = (context(), Emulator::find()) else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    // One solver, so that a failure is not hidden by the next.
    let policy = Policy { allow: Some(vec![naive_solver(problem.direction)]), ..Policy::default() };
    let attempt = |context: &Context| {
        let prepared = prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled())?;
        let buffers = Buffers::try_new(context.device(), &problem, prepared.workspace_bytes(), 1)?;
        buffers.launch(&prepared)?;
        buffers.stream.synchronize()
    };
    let warm = Contexts::default();
    attempt(&warm.current().expect("a device")).expect("a solver");
    drop(warm);
    let before = emulator.alive();
    let (mut failed, mut nth) = (0, 0);
    loop {
        nth += 1;
        const ERRORS: [c_int; 3] = [999, 2, 1];
        let failures = emulator.failures();
        emulator.fail(c"*", nth, ERRORS[nth as usize % ERRORS.len()]);
        let contexts = Contexts::default();
        let result = contexts.current().and_then(|context| attempt(&context));
        emulator.calm();
        if emulator.failures() == failures {
            result.expect("nothing failed");
            break;
        }
        if let Err(error) = &result {
            assert!(error.to_string().contains(" gave "), "call {nth}: {error}");
            failed += 1;
        }
        let context = contexts.current().expect("a device");
        let prepared = check(&context, &problem, &policy, &Store::disabled());
        assert!(prepared.is_recorded(), "call {nth}: {}", prepared.describe());
        drop((prepared, context, contexts));
        assert_eq!(emulator.alive(), before, "call {nth}: {result:?}");
    }
    println!("{} calls failed, {failed} of them with an error", nth - 1);
    // Kernels fail later, on their stream: MIOpen's, the repeated one, and the first launch of the plan.
    for nth in 1..=3 {
        emulator.fail(c"kernel", nth, 719);
        let contexts = Contexts::default();
        let context = contexts.current().expect("a device");
        let result = attempt(&context);
        emulator.calm();
        // A trial that fails leaves MIOpen's own call.
        assert_eq!(result.is_err(), nth != 2, "kernel {nth}: {result:?}");
        drop(check(&context, &problem, &policy, &Store::disabled()));
        drop((context, contexts));
        assert_eq!(emulator.alive(), before, "kernel {nth}: {result:?}");
    }
    assert!(nth > 60 && failed > 30, "{nth} {failed}");
}

#[test]
fn the_callers_device_stays_and_default_streams_are_the_plans() {
    let Ok(gpu) = gpu() else { return };
    if gpu.devices() < 2 {
        println!("skipped: one device");
        return;
    }
    let _alone = alone();
    let current = || gpu.current_device().expect("a device");
    let caller = current();
    let other = i32::from(caller == 0);
    let contexts = Contexts::default();
    let context = {
        let _entered = OnDevice::enter(gpu, other).expect("the other device");
        contexts.current().expect("a device")
    };
    assert_eq!((context.device().ordinal(), current()), (other, caller));
    let problem = PLAIN.problem();
    for recorded in [true, false] {
        let policy = Policy { recorded, ..Policy::default() };
        let prepared = prepare(context.miopen().unwrap(), &problem, &policy, &Store::disabled()).expect("a solver");
        assert_eq!(current(), caller, "after building");
        let mut buffers = Buffers::new(context.device(), &problem, prepared.workspace_bytes(), 2);
        buffers.launch(&prepared).expect("a launch on a stream of the other device");
        assert_eq!(current(), caller, "after a launch");
        buffers.compare(&problem);
        buffers.output(&problem).1.fill(0xff, &buffers.stream).expect("a fill");
        buffers.stream.synchronize().expect("the fill");
        let [x, w, y] = &buffers.tensors;
        // SAFETY: buffers of the problem's sizes and of the plan's workspace, waited for below.
        let launched = unsafe {
            prepared.launch(
                std::ptr::null_mut(),
                x.1.address(),
                w.1.address(),
                y.1.address(),
                buffers.workspace.address(),
            )
        };
        launched.expect("a launch on the default stream");
        assert_eq!(current(), caller, "after a launch on the default stream");
        let _entered = OnDevice::enter(gpu, other).expect("the other device");
        // SAFETY: it takes nothing.
        let waited = unsafe { (gpu.hip.hipDeviceSynchronize)() };
        assert_eq!(waited, hipdnn_sdk_bindings::hip::hipError_t::hipSuccess);
        buffers.stream = Stream::new(gpu).expect("a stream");
        buffers.compare(&problem);
    }
}

/// Stands in for libraries that do something else than they should.
mod stand_in {
    use std::ffi::{c_uint, c_void};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hipdnn_sdk_bindings::hip::{hipError_t, hipFunction_t, hipStream_t};
    use hipdnn_sdk_bindings::miopen::*;

    use hipdnn_sdk_bindings::miopen::Functions;

    use super::*;
    use crate::hip::Gpu;
    use crate::miopen::library::Library;

    unsafe extern "C" fn no_launch(
        _: hipFunction_t,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: hipStream_t,
        _: *mut *mut c_void,
        _: *mut *mut c_void,
    ) -> hipError_t {
        hipError_t::hipSuccess
    }

    unsafe extern "C" fn no_run(
        _: miopenHandle_t,
        _: miopenTensorDescriptor_t,
        _: *const c_void,
        _: miopenTensorDescriptor_t,
        _: *const c_void,
        _: miopenConvolutionDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: *mut c_void,
        _: *mut c_void,
        _: usize,
        _: u64,
    ) -> miopenStatus_t {
        miopenStatus_t::miopenStatusSuccess
    }

    unsafe extern "C" fn no_solution(
        _: miopenHandle_t,
        _: miopenTensorDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: miopenConvolutionDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: usize,
        count: *mut usize,
        _: *mut miopenConvSolution_t,
    ) -> miopenStatus_t {
        // SAFETY: the caller's place.
        unsafe { *count = 0 };
        miopenStatus_t::miopenStatusSuccess
    }

    /// MIOpen's call, part of which does not wait for being captured.
    unsafe extern "C" fn eager_run(
        handle: miopenHandle_t,
        dw: miopenTensorDescriptor_t,
        w: *const c_void,
        dx: miopenTensorDescriptor_t,
        x: *const c_void,
        convolution: miopenConvolutionDescriptor_t,
        dy: miopenTensorDescriptor_t,
        y: *mut c_void,
        workspace: *mut c_void,
        bytes: usize,
        solver: u64,
    ) -> miopenStatus_t {
        let gpu = gpu().expect("libraries");
        let other = Stream::new(gpu).expect("a stream");
        // SAFETY: the output has more bytes than that.
        let set = unsafe { (gpu.hip.hipMemsetAsync)(y, 0, 16, other.raw()) };
        assert!(set == hipError_t::hipSuccess && other.synchronize().is_ok());
        let run = Library::new(gpu).expect("MIOpen").functions.miopenConvolutionForwardImmediate;
        // SAFETY: the caller's arguments.
        unsafe { run(handle, dw, w, dx, x, convolution, dy, y, workspace, bytes, solver) }
    }

    /// Number of times that the stand-ins below were asked for solutions.
    pub(crate) static ASKED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn asked(
        handle: miopenHandle_t,
        w: miopenTensorDescriptor_t,
        x: miopenTensorDescriptor_t,
        convolution: miopenConvolutionDescriptor_t,
        y: miopenTensorDescriptor_t,
        most: usize,
        count: *mut usize,
        solutions: *mut miopenConvSolution_t,
    ) -> miopenStatus_t {
        ASKED.fetch_add(1, Ordering::Relaxed);
        let ask =
            Library::new(gpu().expect("libraries")).expect("MIOpen").functions.miopenConvolutionForwardGetSolution;
        // SAFETY: the caller's arguments.
        unsafe { ask(handle, w, x, convolution, y, most, count, solutions) }
    }

    unsafe extern "C" fn asked_and_failed(
        _: miopenHandle_t,
        _: miopenTensorDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: miopenConvolutionDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: usize,
        _: *mut usize,
        _: *mut miopenConvSolution_t,
    ) -> miopenStatus_t {
        ASKED.fetch_add(1, Ordering::Relaxed);
        miopenStatus_t::miopenStatusUnknownError
    }

    unsafe extern "C" fn asked_and_refused(
        _: miopenHandle_t,
        _: miopenTensorDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: miopenConvolutionDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: usize,
        _: *mut usize,
        _: *mut miopenConvSolution_t,
    ) -> miopenStatus_t {
        ASKED.fetch_add(1, Ordering::Relaxed);
        miopenStatus_t::miopenStatusNotImplemented
    }

    unsafe extern "C" fn more_workspace(
        _: miopenHandle_t,
        _: miopenTensorDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: miopenConvolutionDescriptor_t,
        _: miopenTensorDescriptor_t,
        _: u64,
        bytes: *mut usize,
    ) -> miopenStatus_t {
        // SAFETY: the caller's place.
        unsafe { *bytes = 1 << 30 };
        miopenStatus_t::miopenStatusSuccess
    }

    pub(crate) fn eager() -> Option<Arc<Context>> {
        context(|_, miopen| miopen.miopenConvolutionForwardImmediate = eager_run)
    }

    pub(crate) fn failing() -> Option<Arc<Context>> {
        context(|_, miopen| miopen.miopenConvolutionForwardGetSolution = asked_and_failed)
    }

    pub(crate) fn refusing() -> Option<Arc<Context>> {
        context(|_, miopen| miopen.miopenConvolutionForwardGetSolution = asked_and_refused)
    }

    pub(crate) fn counting(more: bool) -> Option<Arc<Context>> {
        context(|_, miopen| {
            miopen.miopenConvolutionForwardGetSolution = asked;
            if more {
                miopen.miopenConvolutionForwardGetSolutionWorkspaceSize = more_workspace;
            }
        })
    }

    /// A device whose libraries were changed; they stay for the process.
    fn context(change: impl FnOnce(&mut Gpu, &mut Functions)) -> Option<Arc<Context>> {
        let mut gpu = gpu().ok()?.clone();
        let mut miopen = gpu.miopen.as_ref().ok()?.functions;
        change(&mut gpu, &mut miopen);
        let gpu: &'static Gpu = Box::leak(Box::new(gpu));
        let library = Library { functions: Box::leak(Box::new(miopen)), ..Library::new(gpu).expect("MIOpen") };
        let device = Device::new(gpu, gpu.current_device().expect("a device")).expect("a device");
        Some(Arc::new(Context::new(device, Ok(library))))
    }

    pub(crate) fn without_repeating() -> Option<Arc<Context>> {
        context(|gpu, _| gpu.hip.hipModuleLaunchKernel = no_launch)
    }

    pub(crate) fn without_running() -> Option<Arc<Context>> {
        context(|_, miopen| miopen.miopenConvolutionForwardImmediate = no_run)
    }

    pub(crate) fn without_solutions() -> Option<Arc<Context>> {
        context(|_, miopen| miopen.miopenConvolutionForwardGetSolution = no_solution)
    }
}

#[test]
fn launches_that_repeat_something_else_are_not_used() {
    let Some(context) = stand_in::without_repeating() else { return };
    let _alone = alone();
    let directory = Directory::new("refused");
    let (problem, policy) = (PLAIN.problem(), Policy::default());
    for _ in 0..2 {
        let prepared = check(&context, &problem, &policy, &Store::at(&directory.0));
        assert!(!prepared.is_recorded(), "{}", prepared.describe());
        assert!(prepared.describe().contains("otherwise than MIOpen's call"), "{}", prepared.describe());
    }
    // Another process does not try again.
    let bytes = Store::at(&directory.0)
        .get(KIND, &policy.key(context.fingerprint(true), &problem, Effort::Immediate))
        .expect("an entry");
    assert!(matches!(Choice::decode(&bytes), Some(Choice { verdict: Verdict::Refused(_), .. })));
}

#[test]
fn solvers_that_compute_something_else_are_given_up() {
    let Some(context) = stand_in::without_running() else { return };
    let _alone = alone();
    let error = prepare(context.miopen().unwrap(), &PLAIN.problem(), &Policy::default(), &Store::disabled())
        .expect_err("wrong results");
    assert!(error.to_string().contains("solver 85 (Direct): expected 1 at element 0, got NaN"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn what_miopen_has_no_solution_for_is_not_supported() {
    let Some(context) = stand_in::without_solutions() else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    for _ in 0..2 {
        assert_eq!(
            supported(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled()),
            Err("MIOpen has no solution".to_string())
        );
    }
    let odd = ConvolutionProblem { groups: 3, ..problem };
    assert!(
        supported(context.miopen().unwrap(), &odd, &Policy::default(), &Store::disabled())
            .expect_err("three groups")
            .contains("expected groups that fit the 4 channels of x and the 6 by 4 of w, got 3")
    );
}

#[test]
fn only_what_miopen_refuses_is_remembered() {
    let (Some(failing), Some(refusing)) = (stand_in::failing(), stand_in::refusing()) else { return };
    let _alone = alone();
    let problem = PLAIN.problem();
    for (context, status, times) in [(failing, "UnknownError", 2), (refusing, "NotImplemented", 1)] {
        let before = stand_in::ASKED.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..2 {
            let refusal = supported(context.miopen().unwrap(), &problem, &Policy::default(), &Store::disabled())
                .expect_err("no solution");
            assert!(refusal.contains(status), "{refusal}");
        }
        assert_eq!(stand_in::ASKED.load(std::sync::atomic::Ordering::Relaxed) - before, times, "{status}");
    }
}

#[test]
fn a_choice_that_needs_more_workspace_now_is_made_again() {
    let _alone = alone();
    let (problem, policy) = (PLAIN.problem(), Policy::default());
    for (more, times) in [(false, 1), (true, 2)] {
        let Some(context) = stand_in::counting(more) else { return };
        let before = stand_in::ASKED.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..2 {
            check(&context, &problem, &policy, &Store::disabled());
        }
        assert_eq!(stand_in::ASKED.load(std::sync::atomic::Ordering::Relaxed) - before, times, "more: {more}");
    }
}

#[test]
fn what_runs_although_its_stream_captures_is_not_recorded() {
    let Some(context) = stand_in::eager() else { return };
    let _alone = alone();
    let prepared = check(&context, &PLAIN.problem(), &Policy::default(), &Store::disabled());
    assert!(prepared.describe().contains("ran although its stream captured"), "{}", prepared.describe());
}
