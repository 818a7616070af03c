//! Places without a device; executions where the process has one.

use hipdnn_capi::shared::Share;
use hipdnn_engine_core::{Engine, Site};
use hipdnn_engine_kernel::emit::grouped::Grouped;
use hipdnn_engine_kernel::fuse::{Computed, examples};
use hipdnn_schemas::{
    Convolution, DataType, EngineConfig, GraphBuilder, KnobValue, Layernorm, NormFwdPhase, Operation, Pointwise,
    PointwiseMode, Reduction, ReductionMode, TensorDef, TensorUid, TensorValue,
};

use super::scalar::read;
use super::*;
use crate::GPU_ENGINE;
use crate::hip::{DeviceMemory, Stream};
use crate::shared::Shared;
use crate::testing::skip;

const F: DataType = DataType::Float;

/// A dispatch that reads some temporaries and writes another; `None` is the caller's memory.
fn map(inputs: &[Option<usize>], output: Option<usize>) -> Dispatch {
    kernel(inputs, &[output])
}

/// A dispatch with several results, likewise.
fn kernel(reads: &[Option<usize>], writes: &[Option<usize>]) -> Dispatch {
    let values = |list: &[Option<usize>]| -> Vec<Value> {
        list.iter().map(|at| at.map_or(Value::Tensor(TensorUid(0)), Value::Temporary)).collect()
    };
    let list = Vec::new;
    let kernel = Grouped { groups: list(), members: list(), reads: Vec::new(), writes: Vec::new(), passes: Vec::new() };
    let (purpose, scalars) = (String::new(), Vec::new());
    Dispatch::Kernel(KernelDispatch { purpose, kernel, reads: values(reads), writes: values(writes), scalars })
}

#[test]
fn temporaries_share_places_when_they_are_not_alive_together() {
    // Temporaries' bytes; dispatches; wanted: places, where they end at each dispatch, bytes.
    type Case<'a> = (&'a str, &'a [usize], Vec<Dispatch>, &'a [usize], &'a [usize], usize);
    let cases: [Case<'_>; 6] = [
        ("none", &[], vec![map(&[None], None)], &[], &[0], 0),
        ("one", &[100], vec![map(&[None], Some(0)), map(&[Some(0)], None)], &[0], &[256, 256], 256),
        (
            "a row of three",
            &[300, 256, 10],
            vec![
                map(&[None], Some(0)),
                map(&[Some(0)], Some(1)),
                map(&[Some(1)], Some(2)),
                map(&[Some(2)], None),
                map(&[None], None),
            ],
            &[0, 512, 0],
            &[512, 768, 768, 256, 0],
            768,
        ),
        (
            "in place",
            &[256],
            vec![map(&[None], Some(0)), map(&[Some(0)], Some(0)), map(&[Some(0)], None)],
            &[0],
            &[256, 256, 256],
            256,
        ),
        (
            "several results",
            &[256, 100, 256],
            vec![
                kernel(&[None], &[Some(0), Some(1)]),
                kernel(&[Some(1)], &[None, Some(2)]),
                map(&[Some(0), Some(2)], None),
            ],
            &[0, 256, 512],
            &[512, 768, 768],
            768,
        ),
        (
            "a result that is never read",
            &[256, 256],
            vec![map(&[None], Some(0)), map(&[None], Some(1))],
            &[0, 0],
            &[256, 256],
            256,
        ),
    ];
    for (what, temporaries, dispatches, offsets, ends, bytes) in cases {
        let legalized = Legalized { dispatches, temporaries: temporaries.to_vec() };
        let layout = Layout::new(&legalized).unwrap();
        assert_eq!((&layout.offsets[..], &layout.ends[..], layout.bytes), (offsets, ends, bytes), "{what}");
    }
    let huge = Legalized { dispatches: vec![map(&[Some(1)], Some(0))], temporaries: vec![usize::MAX / 2; 2] };
    assert!(Layout::new(&huge).is_err());
}

#[test]
fn host_scalars_are_read_wherever_they_lie() {
    let mut bytes = [0u8; 16];
    let cases: [(DataType, Vec<u8>, f64); 9] = [
        (F, 1.5f32.to_ne_bytes().to_vec(), 1.5),
        (DataType::Half, half::f16::from_f32(0.1).to_ne_bytes().to_vec(), half::f16::from_f32(0.1).to_f64()),
        (DataType::BFloat16, half::bf16::from_f32(3.0).to_ne_bytes().to_vec(), 3.0),
        (DataType::Double, 1e-300f64.to_ne_bytes().to_vec(), 1e-300),
        (DataType::Int32, (-7i32).to_ne_bytes().to_vec(), -7.0),
        (DataType::Int64, (1i64 << 40).to_ne_bytes().to_vec(), (1u64 << 40) as f64),
        (DataType::Int8, vec![0x80], -128.0),
        (DataType::UInt8, vec![0x80], 128.0),
        (DataType::Boolean, vec![9], 1.0),
    ];
    for (data_type, value, want) in cases {
        for at in 0..8 {
            bytes[at..at + value.len()].copy_from_slice(&value);
            // SAFETY: the value's bytes are there.
            assert_eq!(unsafe { read(bytes[at..].as_ptr(), data_type) }, want, "{data_type} at {at}");
        }
    }
}

/// Context and stream that plans of this process run with, where it has a GPU.
struct Bench {
    context: Arc<Context>,
    stream: Stream,
    _shared: Share<Shared>,
}

fn bench(test: &str) -> Option<Bench> {
    let shared = Shared::get();
    match shared.contexts().current() {
        Ok(context) => {
            let stream = Stream::new(context.device().gpu()).unwrap();
            Some(Bench { context, stream, _shared: shared })
        }
        Err(reason) => {
            skip(&format_args!("{test}: {reason}"));
            None
        }
    }
}

fn plan(graph: GraphBuilder, knobs: &[(&str, KnobValue)]) -> Result<Box<dyn Plan>, Error> {
    let graph = Arc::new(graph.build().unwrap());
    let knobs = knobs.iter().map(|(id, value)| (id.to_string(), value.clone())).collect();
    let config = EngineConfig { engine_id: 0, knobs };
    let applicable = GPU_ENGINE.applicable(&graph, Site::UNSPECIFIED).unwrap_or_else(|declined| panic!("{declined}"));
    let bytes = applicable.workspace_bytes(&config)?;
    let plan = applicable.plan(&config)?;
    assert_eq!(plan.workspace_bytes(), bytes, "the workspace is known before the plan");
    Ok(plan)
}

impl Bench {
    fn memory(&self, values: &[f32]) -> DeviceMemory {
        let memory = DeviceMemory::new(self.context.device().gpu(), values.len() * 4).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        memory.write(0, &bytes, &self.stream).unwrap();
        memory
    }

    fn values(&self, memory: &DeviceMemory) -> Vec<f32> {
        let mut bytes = vec![0; memory.bytes()];
        memory.read(0, &mut bytes, &self.stream).unwrap();
        bytes.chunks_exact(4).map(|value| f32::from_ne_bytes(value.try_into().unwrap())).collect()
    }

    /// Executes a plan on memory of these uids.
    fn execute(&self, plan: &dyn Plan, buffers: &[(i64, *mut u8)]) -> Result<(), Error> {
        let workspace = DeviceMemory::new(self.context.device().gpu(), plan.workspace_bytes()).unwrap();
        let pack: Vec<_> = buffers.iter().map(|(uid, at)| DeviceBuffer { uid: *uid, ptr: at.cast() }).collect();
        // SAFETY: tests pass buffers as large as the tensors, which stay until the stream is done.
        let answer = unsafe { plan.execute(self.stream.raw().cast(), workspace.address(), &pack) };
        self.stream.synchronize().unwrap();
        answer
    }
}

#[test]
fn scalars_come_from_the_graph_and_from_the_host() {
    let Some(bench) = bench("scalars") else { return };
    let mut graph = GraphBuilder::new("scalars").compute(F);
    let x = graph.tensor(TensorDef::new(0, F, &[2, 3]));
    let two = graph.tensor(TensorDef::new(1, F, &[1]).with_value(TensorValue::Float32(2.0)));
    let given = graph.tensor(TensorDef::new(2, DataType::Double, &[1]));
    let product = graph.tensor(TensorDef::new(3, F, &[2, 3]).intermediate());
    let y = graph.tensor(TensorDef::new(4, F, &[2, 3]));
    graph.def_mut().tensors[2].is_runtime_pass_by_value = true;
    graph.pointwise(Pointwise::binary(PointwiseMode::Mul, two, x, product));
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, product, given, y));
    let plan = plan(graph, &[]).unwrap();
    assert_eq!(plan.workspace_bytes(), 0);
    let (x, y) = (bench.memory(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), bench.memory(&[9.0; 6]));
    // At an odd address, and other values each time.
    let mut host = [0u8; 9];
    for given in [0.5f64, -8.0, 3.0, 0.0] {
        host[1..].copy_from_slice(&given.to_ne_bytes());
        let buffers = [(0, x.address()), (2, host[1..].as_mut_ptr()), (4, y.address())];
        bench.execute(&*plan, &buffers).unwrap();
        let want: Vec<f32> = (0..6).map(|i| 2.0 * i as f32 + given as f32).collect();
        assert_eq!(bench.values(&y), want);
    }
    let error = bench.execute(&*plan, &[(0, x.address()), (4, y.address())]).unwrap_err();
    assert!(error.to_string().contains("tensor 2: expected a buffer"), "{error}");
}

#[test]
fn indices_and_wide_integers() {
    let Some(bench) = bench("indices") else { return };
    let mut graph = GraphBuilder::new("indices").compute(F);
    let x = graph.tensor(TensorDef::new(0, F, &[2, 3]));
    let index = graph.tensor(TensorDef::new(1, DataType::Int64, &[2, 3]).intermediate());
    let y = graph.tensor(TensorDef::new(2, F, &[2, 3]));
    let mut node = Pointwise::unary(PointwiseMode::GenIndex, x, index);
    node.axis = Some(1);
    graph.pointwise(node);
    graph.pointwise(Pointwise::binary(PointwiseMode::Mul, index, x, y));
    let plan = plan(graph, &[]).unwrap();
    let (x, y) = (bench.memory(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), bench.memory(&[9.0; 6]));
    bench.execute(&*plan, &[(0, x.address()), (2, y.address())]).unwrap();
    assert_eq!(bench.values(&y), [0.0, 2.0, 6.0, 0.0, 5.0, 12.0]);
}

/// The softmax of two rows of three, times what the host says.
#[test]
fn a_softmax_is_one_step() {
    let Some(bench) = bench("softmax") else { return };
    let mut graph = GraphBuilder::new("softmax").compute(F);
    let rows = |uid| TensorDef::new(uid, F, &[2, 3]);
    let sums = |uid| TensorDef::new(uid, F, &[2, 1]);
    for tensor in [
        rows(0),
        sums(1).intermediate(),
        rows(2).intermediate(),
        rows(3).intermediate(),
        sums(4).intermediate(),
        rows(5).intermediate(),
        TensorDef::new(6, F, &[1]),
        rows(7),
    ] {
        graph.tensor(tensor);
    }
    graph.def_mut().tensors[6].is_runtime_pass_by_value = true;
    let reduce = |mode, input, output| {
        let (input, output) = (TensorUid(input), TensorUid(output));
        Operation::Reduction(Reduction { mode, input, output, is_deterministic: true })
    };
    let binary = |mode, a, b, y| Pointwise::binary(mode, TensorUid(a), TensorUid(b), TensorUid(y));
    graph.node("", reduce(ReductionMode::Max, 0, 1));
    graph.pointwise(binary(PointwiseMode::Sub, 0, 1, 2));
    graph.pointwise(Pointwise::unary(PointwiseMode::Exp, TensorUid(2), TensorUid(3)));
    graph.node("", reduce(ReductionMode::Add, 3, 4));
    graph.pointwise(binary(PointwiseMode::Div, 3, 4, 5));
    graph.pointwise(binary(PointwiseMode::Mul, 5, 6, 7));
    let plan = plan(graph, &[]).unwrap();
    assert_eq!(plan.workspace_bytes(), 0, "nothing lies between the nodes");
    let values = [0.0f32, 1.0, 2.0, -1.0, -1.0, 500.0];
    let (x, y) = (bench.memory(&values), bench.memory(&[9.0; 6]));
    for mut scale in [1.0f32, -8.0] {
        let host = std::ptr::from_mut(&mut scale).cast();
        bench.execute(&*plan, &[(0, x.address()), (6, host), (7, y.address())]).unwrap();
        for (row, got) in values.chunks(3).zip(bench.values(&y).chunks(3)) {
            let whole: f32 = row.iter().map(|x| (x - row[2]).exp()).sum();
            for (x, got) in row.iter().zip(got) {
                let want = scale * (x - row[2]).exp() / whole;
                assert!((got - want).abs() <= 1e-6 * scale.abs(), "{row:?}: expected {want}, got {got}");
            }
        }
    }
}

#[test]
fn joined_graphs_compute_what_their_nodes_do() {
    let Some(bench) = bench("joined graphs") else { return };
    for Computed { what, graph, read, written } in examples() {
        let graph = Arc::new(graph);
        let applicable = GPU_ENGINE.applicable(&graph, Site::UNSPECIFIED).unwrap_or_else(|d| panic!("{what}: {d}"));
        let plan = applicable.plan(&EngineConfig::default()).unwrap();
        let memory = |(uid, values): (&TensorUid, &Vec<f64>)| {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            (uid.0, bench.memory(&values))
        };
        let memory: Vec<(i64, DeviceMemory)> = read.iter().chain(&written).map(memory).collect();
        let buffers: Vec<_> = memory.iter().map(|(uid, memory)| (*uid, memory.address())).collect();
        for (uid, memory) in &memory {
            if written.contains_key(&TensorUid(*uid)) {
                memory.write(0, &vec![0xff; memory.bytes()], &bench.stream).unwrap();
            }
        }
        bench.execute(&*plan, &buffers).unwrap();
        for (uid, memory) in &memory {
            let Some(want) = written.get(&TensorUid(*uid)) else { continue };
            let largest = want.iter().fold(1.0f64, |largest, want| largest.max(want.abs()));
            for (got, want) in bench.values(memory).iter().zip(want) {
                let near = (f64::from(*got) - want).abs() <= 1e-4 * largest;
                assert!(near, "{what}, tensor {uid}: expected {want}, got {got} of {graph:#?}");
            }
        }
    }
}

/// A sum with a normalized tensor may be where its other operand was, also if that is what was normalized.
#[test]
fn a_residual_may_be_where_the_result_goes() {
    let Some(bench) = bench("residual") else { return };
    for residual in [0, 5] {
        let mut graph = GraphBuilder::new("residual").compute(F);
        let rows = |uid| TensorDef::new(uid, F, &[2, 4]);
        for tensor in [rows(0), rows(4).intermediate(), rows(5), rows(6)] {
            graph.tensor(tensor);
        }
        graph.tensor(TensorDef::new(1, F, &[1, 4]));
        graph.tensor(TensorDef::new(2, F, &[1, 4]));
        graph.tensor(TensorDef::new(3, F, &[1]).with_value(TensorValue::Float32(0.0)));
        let [x, scale, bias, epsilon, y] = [0, 1, 2, 3, 4].map(TensorUid);
        let (mean, inv_variance, forward_phase) = (None, None, NormFwdPhase::Inference);
        let normalized_dim_count = 1;
        graph.node(
            "",
            Operation::Layernorm(Layernorm {
                x,
                scale,
                bias,
                epsilon,
                y,
                normalized_dim_count,
                mean,
                inv_variance,
                forward_phase,
            }),
        );
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, y, TensorUid(residual), TensorUid(6)));
        if residual == 0 {
            graph.def_mut().tensors.retain(|tensor| tensor.uid.0 != 5);
        }
        let plan = plan(graph, &[]).unwrap();
        assert_eq!(plan.workspace_bytes(), 0, "nothing lies between the nodes");
        let values = [3.0, 1.0, 3.0, 1.0, -1.0, 1.0, 1.0, -1.0];
        let (x, other) = (bench.memory(&values), bench.memory(&[10.0; 8]));
        let (scale, bias) = (bench.memory(&[2.0; 4]), bench.memory(&[0.5; 4]));
        let to = if residual == 0 { &x } else { &other };
        let buffers =
            [(0, x.address()), (1, scale.address()), (2, bias.address()), (5, other.address()), (6, to.address())];
        bench.execute(&*plan, &buffers).unwrap();
        let signs = [1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0];
        for ((got, sign), value) in bench.values(to).iter().zip(signs).zip(values) {
            let want = 2.0 * sign + 0.5 + if residual == 0 { value } else { 10.0 };
            assert!((got - want).abs() < 1e-5, "residual {residual}: expected {want}, got {got}");
        }
    }
}

/// One more than the addresses that fit on the stack: sums of pairs, each a result.
#[test]
fn any_number_of_buffers() {
    let Some(bench) = bench("buffers") else { return };
    let count = ADDRESSES_ON_STACK as i64;
    let mut graph = GraphBuilder::new("buffers").compute(F);
    let x = graph.tensor(TensorDef::new(0, F, &[3]));
    for uid in 1..=count {
        let y = graph.tensor(TensorDef::new(uid, F, &[3]));
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, TensorUid(uid - 1), x, y));
    }
    let plan = plan(graph, &[]).unwrap();
    let memory: Vec<_> = (0..=count).map(|_| bench.memory(&[1.0, 2.0, -3.0])).collect();
    let buffers: Vec<_> = memory.iter().enumerate().map(|(uid, memory)| (uid as i64, memory.address())).collect();
    bench.execute(&*plan, &buffers).unwrap();
    for (uid, memory) in memory.iter().enumerate() {
        assert_eq!(bench.values(memory), [1.0, 2.0, -3.0].map(|x| x * (uid + 1) as f32), "tensor {uid}");
    }
}

/// A convolution whose input has to be padded.
fn padded() -> GraphBuilder {
    let mut graph = GraphBuilder::new("padded").compute(F);
    let x = graph.tensor(TensorDef::new(0, F, &[1, 1, 4, 4]));
    let w = graph.tensor(TensorDef::new(1, F, &[1, 1, 3, 3]));
    let y = graph.tensor(TensorDef::new(2, F, &[1, 1, 2, 4]));
    graph.convolution_fwd(x, w, y, Convolution { post_padding: vec![0, 2], ..Convolution::new(2) });
    graph
}

#[test]
fn executions_on_the_same_memory_see_what_is_there_now() {
    let Some(bench) = bench("the same memory") else { return };
    let plan = plan(padded(), &[]).unwrap();
    let workspace = DeviceMemory::new(bench.context.device().gpu(), plan.workspace_bytes()).unwrap();
    let w = bench.memory(&[1.0; 9]);
    let places = [(); 2].map(|()| (bench.memory(&[0.0; 16]), bench.memory(&[9.0; 8])));
    // Each place often enough to be known, taken down and repeated, then in turn, on two streams.
    let streams = [&bench.stream, &Stream::new(bench.context.device().gpu()).unwrap()];
    for (turn, place) in [0, 0, 0, 0, 1, 1, 1, 0, 1, 0].into_iter().enumerate() {
        let (x, y) = &places[place];
        let value = turn as f32 + 1.0;
        x.write(0, &[value; 16].map(f32::to_ne_bytes).concat(), &bench.stream).unwrap();
        bench.stream.synchronize().unwrap();
        let pack = [(0, x), (1, &w), (2, y)].map(|(uid, at)| DeviceBuffer { uid, ptr: at.address().cast() });
        let stream = streams[turn % 2];
        // SAFETY: the buffers are as large as the tensors, and stay.
        unsafe { plan.execute(stream.raw().cast(), workspace.address(), &pack) }.unwrap();
        stream.synchronize().unwrap();
        let want = [9.0, 9.0, 6.0, 3.0, 9.0, 9.0, 6.0, 3.0].map(|sum| sum * value);
        assert_eq!(bench.values(y), want, "turn {turn}");
    }
}

/// y = 2·x, where the host or the graph has the 2.
fn doubled(is_from_host: bool) -> GraphBuilder {
    let mut graph = GraphBuilder::new("doubled").compute(F);
    let x = graph.tensor(TensorDef::new(2, F, &[1, 1, 2, 4]));
    let mut two = TensorDef::new(3, F, &[1]);
    match is_from_host {
        true => two.is_runtime_pass_by_value = true,
        false => two = two.with_value(TensorValue::Float32(2.0)),
    }
    let two = graph.tensor(two);
    let y = graph.tensor(TensorDef::new(4, F, &[1, 1, 2, 4]));
    graph.pointwise(Pointwise::binary(PointwiseMode::Mul, x, two, y));
    graph
}

#[test]
fn recorded_executions_are_repeated_in_their_order() {
    let Some(bench) = bench("recordings") else { return };
    let plans = [padded(), doubled(false), doubled(true)].map(|graph| plan(graph, &[]).unwrap());
    let workspace = DeviceMemory::new(bench.context.device().gpu(), plans[0].workspace_bytes()).unwrap();
    let (x, w) = (bench.memory(&[0.0; 16]), bench.memory(&[1.0; 9]));
    let (sums, y) = (bench.memory(&[0.0; 8]), bench.memory(&[0.0; 8]));
    let mut two = 2.0f32;
    let host = (3, (&raw mut two).cast::<u8>());
    let convolution = [(0, x.address()), (1, w.address()), (2, sums.address())];
    let doubling = [(2, sums.address()), (4, y.address())];
    let execute = |number: usize, buffers: &[(i64, *mut u8)]| {
        let pack: Vec<_> = buffers.iter().map(|(uid, at)| DeviceBuffer { uid: *uid, ptr: at.cast() }).collect();
        // SAFETY: the buffers are as large as the tensors, and stay until the stream is done; or the call is refused.
        unsafe { plans[number].execute(bench.stream.raw().cast(), workspace.address(), &pack) }
    };
    recording::begin();
    execute(0, &convolution).unwrap();
    execute(1, &doubling).unwrap();
    let (count, recording) = recording::end();
    let recording = recording.expect("both are launches alone");
    assert_eq!(count, 2);
    let other = Stream::new(bench.context.device().gpu()).unwrap();
    for (turn, stream) in [&bench.stream, &other, &bench.stream].into_iter().enumerate() {
        let value = turn as f32 - 3.0;
        x.write(0, &[value; 16].map(f32::to_ne_bytes).concat(), &bench.stream).unwrap();
        bench.stream.synchronize().unwrap();
        // SAFETY: plans and memory are there, and the stream is of their device.
        unsafe { recording.replay(stream.raw().cast()) }.unwrap();
        stream.synchronize().unwrap();
        let want = [9.0, 9.0, 6.0, 3.0, 9.0, 9.0, 6.0, 3.0].map(|sum| 2.0 * sum * value);
        assert_eq!(bench.values(&y), want, "turn {turn}");
    }
    // What is not recorded leaves nothing, and a thread records its own executions only.
    execute(1, &doubling).unwrap();
    assert!(matches!(recording::end(), (0, None)));
    recording::begin();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(matches!(recording::end(), (0, None))));
    });
    assert!(matches!(recording::end(), (0, None)), "nothing was executed");
    // What launches alone can't repeat is counted.
    recording::begin();
    execute(1, &doubling).unwrap();
    execute(2, &[doubling[0], host, doubling[1]]).unwrap();
    assert!(matches!(recording::end(), (2, None)), "the host's number may be another one");
    recording::begin();
    execute(1, &doubling[..1]).unwrap_err();
    execute(1, &doubling).unwrap();
    assert!(matches!(recording::end(), (2, None)), "one has failed");
    // Beginning again drops what was recorded.
    recording::begin();
    execute(2, &[doubling[0], host, doubling[1]]).unwrap();
    recording::begin();
    execute(1, &doubling).unwrap();
    assert!(matches!(recording::end(), (1, Some(_))));
    bench.stream.synchronize().unwrap();
}

#[test]
fn what_an_execution_needs_is_asked_for() {
    let Some(bench) = bench("needs") else { return };
    let plan = plan(padded(), &[]).unwrap();
    assert!(plan.workspace_bytes() > 0);
    let [x, w, y] = [16, 9, 8].map(|count| bench.memory(&vec![1.0; count]));
    let workspace = DeviceMemory::new(bench.context.device().gpu(), plan.workspace_bytes() + 256).unwrap();
    let execute = |workspace: *mut u8, buffers: &[(i64, *mut u8)]| {
        let pack: Vec<_> = buffers.iter().map(|(uid, at)| DeviceBuffer { uid: *uid, ptr: at.cast() }).collect();
        // SAFETY: the buffers are as large as the tensors, or the call is refused.
        let answer = unsafe { plan.execute(bench.stream.raw().cast(), workspace, &pack) };
        bench.stream.synchronize().unwrap();
        answer.map_err(|error| error.to_string())
    };
    let null = std::ptr::null_mut();
    let all = [(0, x.address()), (1, w.address()), (2, y.address())];
    for (what, workspace, buffers, want) in [
        ("all", workspace.address(), all.to_vec(), Ok(())),
        ("no workspace", null, all.to_vec(), Err("workspace: expected")),
        ("a crooked workspace", workspace.at(8), all.to_vec(), Err("at a multiple of 16")),
        ("a workspace that is aligned enough", workspace.at(16), all.to_vec(), Ok(())),
        ("no filter", workspace.address(), vec![all[0], all[2]], Err("tensor 1: expected a buffer, got no entry")),
        ("null", workspace.address(), vec![all[0], (1, null), all[2]], Err("tensor 1: expected a buffer, got null")),
        ("crooked", workspace.address(), vec![all[0], (1, w.at(2)), all[2]], Err("tensor 1: expected a multiple of 4")),
    ] {
        match (execute(workspace, &buffers), want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(want)) => assert!(error.contains(want), "{what}: {error}"),
            (got, want) => panic!("{what}: expected {want:?}, got {got:?}"),
        }
    }
    // Three rows of the filter fit; columns beyond the input are zero.
    assert_eq!(bench.values(&y), [9.0, 9.0, 6.0, 3.0, 9.0, 9.0, 6.0, 3.0]);
}

#[test]
fn limits_name_what_is_needed() {
    let Some(_bench) = bench("limits") else { return };
    let needed = plan(padded(), &[]).unwrap().workspace_bytes() as i64;
    let limit = |bytes: i64| plan(padded(), &[("global.workspace_size_limit", KnobValue::Int(bytes))]);
    assert_eq!(limit(needed).unwrap().workspace_bytes() as i64, needed);
    let error = limit(255).err().expect("the padded input has no room").to_string();
    assert!(error.contains("global.workspace_size_limit: expected at least 256 bytes"), "{error}");
}
