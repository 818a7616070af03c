//! Times convolutions with an epilogue: computed on their sums, and as a pass of its own.
//!
//! `cargo bench -p hipdnn-engine-cpu --bench epilogues -- [--threads 1] [--rounds 25] [--channels-last] [LAYER [TAIL]]`
//!
//! Both plans are built of the same nodes by the CPU engine. In the first, everything between convolution and result is
//! virtual, so that the engine may fuse what it likes; in the second the sums with their bias are the caller's memory, which
//! no fusing crosses. They take turns, so a slow spell of the machine meets both; the median of the turns' fastest runs is
//! printed; with one thread, of the time that it computed.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipdnn_cpu_simd::clock;
use hipdnn_engine_core::{Engine, Plan, Site};
use hipdnn_engine_cpu::CPU_ENGINE;
use hipdnn_schemas::{
    Convolution, ConvolutionFwd, DataType, EngineConfig, Graph, GraphBuilder, KnobValue, Operation, Pointwise,
    PointwiseMode, TensorDef, TensorUid, TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

/// Layer: name, channels, extent, filters, filter, stride, padding, groups.
type Layer = (&'static str, [i64; 7]);

/// Layers of ResNet-50, MobileNet and EfficientNet: pointwise and dense ones, then depthwise ones.
const LAYERS: &[Layer] = &[
    ("r50_1x1_64_256_56", [64, 56, 256, 1, 1, 0, 1]),
    ("r50_1x1_256_1024_14", [256, 14, 1024, 1, 1, 0, 1]),
    ("r50_1x1_512_2048_7", [512, 7, 2048, 1, 1, 0, 1]),
    ("r50_3x3_64_56", [64, 56, 64, 3, 1, 1, 1]),
    ("r50_3x3_256_14", [256, 14, 256, 3, 1, 1, 1]),
    ("r50_3x3_512_7", [512, 7, 512, 3, 1, 1, 1]),
    ("r50_3x3s2_128_56", [128, 56, 128, 3, 2, 1, 1]),
    ("r50_7x7s2_3_64_224", [3, 224, 64, 7, 2, 3, 1]),
    ("mb_1x1_16_64_112", [16, 112, 64, 1, 1, 0, 1]),
    ("mb_1x1_24_144_56", [24, 56, 144, 1, 1, 0, 1]),
    ("mb_1x1_96_576_14", [96, 14, 576, 1, 1, 0, 1]),
    ("mb_1x1_160_960_7", [160, 7, 960, 1, 1, 0, 1]),
    ("mb_dw3x3_32_112", [32, 112, 32, 3, 1, 1, 32]),
    ("mb_dw3x3s2_144_56", [144, 56, 144, 3, 2, 1, 144]),
    ("mb_dw3x3_576_14", [576, 14, 576, 3, 1, 1, 576]),
    ("mb_dw5x5_512_7", [512, 7, 512, 5, 1, 2, 512]),
    ("ef_dw5x5_240_28", [240, 28, 240, 5, 1, 2, 240]),
    ("se_1x1_960_240_1", [960, 1, 240, 1, 1, 0, 1]),
];

/// Epilogue of the sums and their bias.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    Modes(&'static [PointwiseMode]),
    /// A ReLU with these lower clip, upper clip and slope.
    Relu(f32, f32, f32),
    HardSwish,
    HardSigmoid,
    /// The gate of a sigmoid, as two nodes.
    Silu,
    /// A sum with a tensor of the result's extents, and a ReLU.
    Residual,
    /// A factor for each channel.
    Scale,
}

const INFINITE: f32 = f32::INFINITY;

const TAILS: &[(&str, Tail)] = &[
    ("bias", Tail::Modes(&[])),
    ("relu", Tail::Relu(0.0, INFINITE, 0.0)),
    ("clip", Tail::Relu(0.0, 6.0, 0.0)),
    ("leaky relu", Tail::Relu(0.0, INFINITE, 0.1)),
    ("residual, relu", Tail::Residual),
    ("scale", Tail::Scale),
    ("hard sigmoid", Tail::HardSigmoid),
    ("hard swish", Tail::HardSwish),
    ("sigmoid", Tail::Modes(&[PointwiseMode::SigmoidFwd])),
    ("silu", Tail::Silu),
    ("tanh", Tail::Modes(&[PointwiseMode::TanhFwd])),
    ("gelu", Tail::Modes(&[PointwiseMode::GeluFwd])),
    ("softplus", Tail::Modes(&[PointwiseMode::SoftplusFwd])),
];

/// Makes a convolution with bias and tail; unless `virtual_sums`, the biased sums are the caller's.
fn graph(layer: &Layer, tail: Tail, data_type: DataType, channels_last: bool, virtual_sums: bool) -> Graph {
    let (_, [c, extent, k, filter, stride, pad, groups]) = layer;
    let lay = |tensor: TensorDef| if channels_last { tensor.channels_last() } else { tensor };
    let convolution = Convolution {
        pre_padding: vec![*pad; 2],
        post_padding: vec![*pad; 2],
        stride: vec![*stride; 2],
        ..Convolution::new(2)
    };
    let out = convolution.output_extent(0, *extent, *filter).expect("the filter fits");
    let y = [1, *k, out, out];
    let mut graph = GraphBuilder::new("bench").compute(DataType::Float);
    let mut count = 0;
    let mut tensor = |graph: &mut GraphBuilder, dims: &[i64]| {
        count += 1;
        graph.tensor(lay(TensorDef::new(count, data_type, dims)));
        TensorUid(count)
    };
    let x = tensor(&mut graph, &[1, *c, *extent, *extent]);
    let w = tensor(&mut graph, &[*k, c / groups, *filter, *filter]);
    let bias = tensor(&mut graph, &[1, *k, 1, 1]);
    let channel = tensor(&mut graph, &[1, *k, 1, 1]);
    let residual = tensor(&mut graph, &y);
    let result = TensorUid(100);
    graph.tensor(lay(TensorDef::new(result.0, data_type, &y)));
    let mut intermediate = 10;
    let mut next = |graph: &mut GraphBuilder| {
        intermediate += 1;
        graph.tensor(lay(TensorDef::new(intermediate, data_type, &y)).intermediate());
        TensorUid(intermediate)
    };
    let sums = next(&mut graph);
    graph.node("conv", Operation::ConvolutionFwd(ConvolutionFwd { x, w, y: sums, convolution }));
    let mut constants = 50;
    let mut constant = |graph: &mut GraphBuilder, value: f32| {
        constants += 1;
        graph.tensor(TensorDef::new(constants, DataType::Float, &[1]).with_value(TensorValue::Float32(value)));
        TensorUid(constants)
    };
    let biased = match tail {
        Tail::Modes([]) => result,
        _ if virtual_sums => next(&mut graph),
        _ => {
            graph.tensor(lay(TensorDef::new(10, data_type, &y)));
            TensorUid(10)
        }
    };
    let binary = |graph: &mut GraphBuilder, mode, a, b, out| {
        graph.node("", Operation::Pointwise(Pointwise::binary(mode, a, b, out)));
    };
    let relu = |graph: &mut GraphBuilder, [low, high, slope]: [f32; 3], from, to| {
        let node = Pointwise {
            relu_lower_clip: Some(low),
            relu_upper_clip: high.is_finite().then_some(high),
            relu_lower_clip_slope: (slope != 0.0).then_some(slope),
            ..Pointwise::unary(PointwiseMode::ReluFwd, from, to)
        };
        graph.node("", Operation::Pointwise(node));
    };
    binary(&mut graph, PointwiseMode::Add, sums, bias, biased);
    match tail {
        Tail::Modes([]) => {}
        Tail::Modes(modes) => {
            let mut from = biased;
            for (i, mode) in modes.iter().enumerate() {
                let to = if i + 1 == modes.len() { result } else { next(&mut graph) };
                graph.node("", Operation::Pointwise(Pointwise::unary(*mode, from, to)));
                from = to;
            }
        }
        Tail::Relu(low, high, slope) => relu(&mut graph, [low, high, slope], biased, result),
        Tail::HardSwish | Tail::HardSigmoid => {
            let (alpha, beta) = (constant(&mut graph, 1.0 / 6.0), constant(&mut graph, 0.5));
            let (scaled, shifted) = (next(&mut graph), next(&mut graph));
            let gate = if tail == Tail::HardSwish { next(&mut graph) } else { result };
            binary(&mut graph, PointwiseMode::Mul, biased, alpha, scaled);
            binary(&mut graph, PointwiseMode::Add, scaled, beta, shifted);
            relu(&mut graph, [0.0, 1.0, 0.0], shifted, gate);
            if tail == Tail::HardSwish {
                binary(&mut graph, PointwiseMode::Mul, biased, gate, result);
            }
        }
        Tail::Silu => {
            let gate = next(&mut graph);
            graph.node("", Operation::Pointwise(Pointwise::unary(PointwiseMode::SigmoidFwd, biased, gate)));
            binary(&mut graph, PointwiseMode::Mul, biased, gate, result);
        }
        Tail::Residual => {
            let sum = next(&mut graph);
            binary(&mut graph, PointwiseMode::Add, biased, residual, sum);
            relu(&mut graph, [0.0, INFINITE, 0.0], sum, result);
        }
        Tail::Scale => binary(&mut graph, PointwiseMode::Mul, biased, channel, result),
    }
    graph.build().expect("the benchmark's graphs are right")
}

/// Plan with its memory.
struct Contender {
    plan: Box<dyn Plan>,
    workspace: Vec<u64>,
    pack: Vec<DeviceBuffer>,
    times: Vec<Duration>,
    _memory: Vec<Vec<u64>>,
}

impl Contender {
    fn new(graph: &Graph, name: &str, threads: i64) -> Contender {
        let config = EngineConfig {
            knobs: vec![
                ("hipdnn_rs.cpu.threads".to_string(), KnobValue::Int(threads)),
                // The filter's contents do not change; layers of a name share them.
                ("hipdnn_rs.constants".to_string(), KnobValue::String(format!("2={name}"))),
            ],
            ..EngineConfig::default()
        };
        let applicable = CPU_ENGINE
            .applicable(&Arc::new(graph.clone()), Site::UNSPECIFIED)
            .unwrap_or_else(|reason| panic!("{reason}"));
        let plan = applicable.plan(&config).expect("the plan is made");
        let (mut memory, mut pack) = (Vec::new(), Vec::new());
        for tensor in graph.tensors().iter().filter(|tensor| !tensor.is_virtual() && tensor.value().is_none()) {
            let mut bytes = vec![0u64; tensor.span_bytes().div_ceil(8)];
            fill(&mut bytes, tensor.data_type(), tensor.uid().0);
            pack.push(DeviceBuffer { uid: tensor.uid().0, ptr: bytes.as_mut_ptr().cast() });
            memory.push(bytes);
        }
        let workspace = vec![0; plan.workspace_bytes().div_ceil(8)];
        Contender { plan, workspace, pack, times: Vec::new(), _memory: memory }
    }

    fn run(&mut self) {
        let workspace = self.workspace.as_mut_ptr().cast();
        // SAFETY: every tensor has its memory, and the workspace what the plan asks for.
        let result = unsafe { self.plan.execute(std::ptr::null_mut(), workspace, black_box(&self.pack)) };
        result.expect("the plan runs");
    }

    /// Runs for about two milliseconds, and keeps the time of the fastest run: interruptions by other processes fall on
    /// other runs.
    fn turn(&mut self, clock: fn() -> Duration) {
        self.run();
        let (begin, mut fastest) = (Instant::now(), Duration::MAX);
        let mut runs = 0;
        while runs < 3 || begin.elapsed() < Duration::from_millis(2) {
            let start = clock();
            self.run();
            fastest = fastest.min(clock() - start);
            runs += 1;
        }
        self.times.push(fastest);
    }

    fn median(&mut self) -> f64 {
        self.times.sort_unstable();
        self.times[self.times.len() / 2].as_secs_f64() * 1e6
    }
}

/// Fills with numbers between -1 and 1 that are no powers of two.
fn fill(words: &mut [u64], data_type: DataType, seed: i64) {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    for word in words {
        let bits = random.u64(..);
        // Signs and fractions are random; exponents are those of 0.5 and 0.25.
        *word = match data_type {
            DataType::BFloat16 => 0x3e80_3e80_3e80_3e80 | (bits & 0x80ff_80ff_80ff_80ff),
            DataType::Half => 0x3400_3400_3400_3400 | (bits & 0x87ff_87ff_87ff_87ff),
            _ => 0x3e80_0000_3e80_0000 | (bits & 0x80ff_ffff_80ff_ffff),
        };
    }
}

fn main() {
    let (mut threads, mut rounds, mut channels_last, mut filters) = (1, 25, false, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number =
            || arguments.next().and_then(|n| n.parse().ok()).expect("--threads and --rounds take a number");
        match argument.as_str() {
            "--bench" => {}
            "--threads" => threads = number(),
            "--rounds" => rounds = number(),
            "--channels-last" => channels_last = true,
            _ => filters.push(argument),
        }
    }
    let clock = clock::of_threads(threads as usize);
    let filter = |at: usize, name: &str| filters.get(at).is_none_or(|filter: &String| name.contains(filter));
    println!(
        "{threads} threads, medians of the fastest runs of {rounds} turns, µs; apart: the convolution with its bias, and a pass over the result"
    );
    println!("{:22} {:15} {:8} {:>9} {:>9} {:>12}", "layer", "tail", "type", "apart", "fused", "fused/apart");
    let mut ratios = Vec::new();
    for layer in LAYERS.iter().filter(|layer| filter(0, layer.0)) {
        for (what, tail) in TAILS.iter().filter(|tail| filter(1, tail.0)) {
            for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
                let token = format!("{}-{data_type}-{channels_last}", layer.0);
                let contender = |virtual_sums| {
                    Contender::new(&graph(layer, *tail, data_type, channels_last, virtual_sums), &token, threads)
                };
                let (mut apart, mut fused) = (contender(false), contender(true));
                for _ in 0..rounds {
                    apart.turn(clock);
                    fused.turn(clock);
                }
                let (apart, fused) = (apart.median(), fused.median());
                println!("{:22} {what:15} {data_type:8} {apart:9.1} {fused:9.1} {:12.2}", layer.0, fused / apart);
                if *tail != Tail::Modes(&[]) {
                    ratios.push(fused / apart);
                }
            }
        }
    }
    if ratios.is_empty() {
        return;
    }
    let mean = (ratios.iter().map(|ratio: &f64| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let slower = ratios.iter().filter(|ratio| **ratio > 1.05).count();
    println!("geometric mean {mean:.2}, worst {worst:.2}; {slower} of {} are more than 5 % slower fused", ratios.len());
}
