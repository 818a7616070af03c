//! Times fused layers beside the same convolutions one after the other.
//!
//! `cargo xtask bench fused-layers [--threads 1] [--rounds 7] [--isa NAME] [--only TEXT] [--all]`
//!
//! Microseconds of the fastest run: layers one by one, channels innermost and apart, each by the plan that is chosen for it; the first
//! layers that fuse by choice, with the others behind them; with `--all`, all layers fused with bands of each number of rows.
//! Weights are constant, and each layer has a bias. Chains are those of the networks that `cargo xtask bench --models` runs, and of
//! MobileNet V2.

use std::time::{Duration, Instant};

use hipdnn_cpu_convolution::{
    Args, ConvolutionPlan, Element, EpilogueStep, FusedLayers, LayerArgs, Layout, Problem, Shape, Weights,
};
use hipdnn_cpu_simd::clock;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::AlignedBuffer;
use hipdnn_cpu_threads::Pool;

/// Layers of a chain: of each output channels (0 for one filter for each channel), size of the kernel and stride.
type Layers = &'static [[usize; 3]];

/// Chains: name, channels and extents of the input, and layers.
#[rustfmt::skip]
const CHAINS: &[(&str, [usize; 3], Layers)] = &[
    ("CenterFace, stem", [3, 480, 640], &[[32, 3, 2], [0, 3, 1], [16, 1, 1]]),
    ("CenterFace, beginning", [3, 480, 640], &[[32, 3, 2], [0, 3, 1], [16, 1, 1], [96, 1, 1], [0, 3, 2], [24, 1, 1]]),
    ("CenterFace, 16→96", [16, 240, 320], &[[96, 1, 1], [0, 3, 2], [24, 1, 1]]),
    ("CenterFace, 24→144", [24, 120, 160], &[[144, 1, 1], [0, 3, 1], [24, 1, 1]]),
    ("CenterFace, 24→144/2", [24, 120, 160], &[[144, 1, 1], [0, 3, 2], [32, 1, 1]]),
    ("CenterFace, 32→192", [32, 60, 80], &[[192, 1, 1], [0, 3, 1], [32, 1, 1]]),
    ("text detector, stem", [3, 736, 1472], &[[16, 3, 2], [0, 3, 1], [32, 1, 1], [0, 3, 2], [64, 1, 1]]),
    ("text detector, 64", [64, 184, 368], &[[0, 3, 1], [64, 1, 1], [0, 3, 2], [128, 1, 1]]),
    ("text detector, 128", [128, 92, 184], &[[0, 3, 1], [128, 1, 1], [0, 3, 2], [256, 1, 1]]),
    ("MobileNet V2, stem", [3, 224, 224], &[[32, 3, 2], [0, 3, 1], [16, 1, 1]]),
    ("MobileNet V2, 16→96", [16, 112, 112], &[[96, 1, 1], [0, 3, 2], [24, 1, 1]]),
    ("MobileNet V2, 24→144", [24, 56, 56], &[[144, 1, 1], [0, 3, 1], [24, 1, 1]]),
];

/// Most rows of a band that are timed.
const ROWS: usize = 16;

fn main() {
    let (mut threads, mut rounds, mut isa, mut only, mut all) = (1, 7, Isa::best(), String::new(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("expected a value behind {argument}, got none"));
        let number = |text: String| text.parse().unwrap_or_else(|_| panic!("expected a number, got {text:?}"));
        match argument.as_str() {
            "--bench" => {}
            "--threads" => threads = number(value()),
            "--rounds" => rounds = number(value()),
            "--only" => only = value(),
            "--all" => all = true,
            "--isa" => {
                let name = value();
                let known: Vec<Isa> = Isa::available().collect();
                let found = known.iter().find(|isa| isa.name() == name);
                isa = *found.unwrap_or_else(|| panic!("expected one of {known:?}, got {name:?}"));
            }
            _ => panic!("expected an option that there is, got {argument:?}"),
        }
    }
    let (pool, clock) = (Pool::new(threads), clock::of_threads(threads));
    println!("{isa}, {threads} thread(s), µs");
    println!("{:24} {:>9} {:>9} {:>9}", "chain", "innermost", "apart", "fused");
    for (name, input, layers) in CHAINS.iter().filter(|(name, ..)| name.contains(&only)) {
        let chain = Chain::new(*input, layers);
        let time = |run: &mut dyn FnMut()| fastest(rounds, clock, run);
        let mut apart = chain.one_by_one(&chain.problems(Layout::packed), threads, isa);
        let problems = chain.problems(Layout::channels_last);
        let mut innermost = chain.one_by_one(&problems, threads, isa);
        let microseconds = [time(&mut || innermost.run(&pool)), time(&mut || apart.run(&pool))];
        print!("{name:24} {:9.1} {:9.1}", microseconds[0], microseconds[1]);
        match FusedLayers::longest_with(problems.iter().cloned(), threads, isa) {
            Some(plan) => {
                let count = plan.count();
                let mut fused = chain.fused(plan);
                let mut rest = chain.one_by_one(&problems, threads, isa);
                rest.layers.drain(..count);
                let time = time(&mut || {
                    fused.run(&pool);
                    rest.run(&pool);
                });
                print!(" {time:9.1} ({count} layers)");
            }
            None => print!(" {:>9}", "none"),
        }
        for rows in (1..=ROWS).filter(|_| all) {
            if let Some(plan) = FusedLayers::with_rows(&problems, rows, threads, isa) {
                let mut fused = chain.fused(plan);
                print!("   {rows}: {:.1}", time(&mut || fused.run(&pool)));
            }
        }
        println!();
    }
}

/// Microseconds of the fastest run.
fn fastest(rounds: usize, clock: fn() -> Duration, run: &mut dyn FnMut()) -> f64 {
    let mut least = Duration::MAX;
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut runs = 0;
        while runs < 2 || begin.elapsed() < Duration::from_millis(5) {
            let start = clock();
            run();
            let time = clock() - start;
            if time > Duration::ZERO {
                least = least.min(time);
            }
            runs += 1;
        }
    }
    1e6 * least.as_secs_f64()
}

/// Shapes of a chain.
struct Chain {
    shapes: Vec<Shape>,
}

impl Chain {
    fn new([mut channels, mut height, mut width]: [usize; 3], layers: &[[usize; 3]]) -> Chain {
        let shapes = layers.iter().map(|&[outputs, kernel, stride]| {
            let pad = kernel / 2;
            let out = |size: usize| (size + 2 * pad - kernel) / stride + 1;
            let shape = Shape {
                batch: 1,
                groups: if outputs == 0 { channels } else { 1 },
                in_channels: channels,
                out_channels: if outputs == 0 { channels } else { outputs },
                input: [1, height, width],
                kernel: [1, kernel, kernel],
                output: [1, out(height), out(width)],
                stride: [1, stride, stride],
                dilation: [1; 3],
                pad_before: [0, pad, pad],
                flip: false,
            };
            (channels, height, width) = (shape.out_channels, shape.output[1], shape.output[2]);
            shape
        });
        Chain { shapes: shapes.collect() }
    }

    /// Problems with intermediates of a layout, and the input's channels apart where there are few.
    fn problems(&self, layout: fn(Element, [usize; 5]) -> Layout) -> Vec<Problem> {
        let unknown = Layout::packed(Element::F32, [0; 5]);
        let problem = |shape: &Shape| {
            let mut problem = Problem {
                shape: shape.clone(),
                x: unknown,
                w: unknown,
                y: unknown,
                epilogue: vec![EpilogueStep::Bias { operand: 0, element: Element::F32, channel_stride: 1 }],
                constant_weights: true,
                winograd: true,
            };
            let of_input = if shape.in_channels < 4 { Layout::packed } else { layout };
            problem.x = of_input(Element::F32, problem.x_sizes());
            problem.w = Layout::packed(Element::F32, problem.w_sizes());
            problem.y = layout(Element::F32, problem.y_sizes());
            problem
        };
        self.shapes.iter().map(problem).collect()
    }

    fn one_by_one(&self, problems: &[Problem], threads: usize, isa: Isa) -> OneByOne {
        let layer = |problem: &Problem| {
            let plan = ConvolutionPlan::with_isa(problem, threads, isa);
            let memory = Memory::new(&plan, problem);
            (plan, memory)
        };
        OneByOne { layers: problems.iter().map(layer).collect() }
    }

    fn fused(&self, plan: FusedLayers) -> Fused {
        let problems = self.problems(Layout::channels_last);
        let layers = (0..plan.count()).map(|layer| Memory::new(plan.plan(layer), &problems[layer])).collect();
        let workspace = vec![0; plan.workspace_bytes()];
        Fused { plan, layers, workspace }
    }
}

/// Memory of a convolution.
struct Memory {
    x: AlignedBuffer,
    y: AlignedBuffer,
    w: AlignedBuffer,
    prepared: AlignedBuffer,
    bias: AlignedBuffer,
    workspace: Vec<u8>,
}

impl Memory {
    fn new(plan: &ConvolutionPlan, problem: &Problem) -> Memory {
        let buffer = |count: usize| {
            let mut buffer = AlignedBuffer::new(count);
            let mut random = fastrand::Rng::with_seed(1);
            buffer.iter_mut().for_each(|value| *value = random.f32() - 0.5);
            buffer
        };
        let count = |sizes: [usize; 5]| sizes.iter().product();
        let w = buffer(count(problem.w_sizes()));
        let mut prepared = AlignedBuffer::new(plan.prepared_len());
        // SAFETY: the weights have the problem's sizes and layout.
        unsafe { plan.prepare(w.as_ptr().cast(), &mut prepared, &Pool::new(1)) };
        Memory {
            x: buffer(count(problem.x_sizes())),
            y: buffer(count(problem.y_sizes())),
            bias: buffer(problem.shape.out_channels),
            workspace: vec![0; plan.workspace_bytes()],
            w,
            prepared,
        }
    }

    fn weights(&self) -> Weights<'_> {
        if self.prepared.is_empty() { Weights::Raw(self.w.as_ptr().cast()) } else { Weights::Prepared(&self.prepared) }
    }
}

struct OneByOne {
    layers: Vec<(ConvolutionPlan, Memory)>,
}

impl OneByOne {
    fn run(&mut self, pool: &Pool) {
        let mut x = self.layers.first().map_or(std::ptr::null(), |(_, memory)| memory.x.as_ptr());
        for (plan, layer) in &mut self.layers {
            let (y, workspace) = (layer.y.as_mut_ptr(), layer.workspace.as_mut_ptr());
            let operands = [layer.bias.as_ptr().cast()];
            let args = Args { x: x.cast(), weights: layer.weights(), y: y.cast(), operands: &operands, workspace };
            // SAFETY: the tensors have the problem's sizes and layouts, the input those of the output before, and nobody else uses
            // them; the workspace is of the plan's size, and the weights are prepared by the plan, or it takes them as they lie.
            unsafe { plan.run(pool, &args) };
            x = y;
        }
    }
}

struct Fused {
    plan: FusedLayers,
    layers: Vec<Memory>,
    workspace: Vec<u8>,
}

impl Fused {
    fn run(&mut self, pool: &Pool) {
        let x = self.layers[0].x.as_ptr();
        let y = self.layers.last_mut().expect("there is a layer").y.as_mut_ptr();
        let operands: Vec<[*const u8; 1]> = self.layers.iter().map(|layer| [layer.bias.as_ptr().cast()]).collect();
        let args = self.layers.iter().zip(&operands);
        let args: Vec<LayerArgs<'_>> =
            args.map(|(layer, operands)| LayerArgs { weights: layer.weights(), operands }).collect();
        // SAFETY: the tensors have the problems' sizes and layouts, and nobody else uses them; the workspace is of the plan's size,
        // and the weights are prepared by the layers' plans, or those take them as they lie.
        unsafe { self.plan.run(pool, x.cast(), y.cast(), &args, self.workspace.as_mut_ptr()) };
    }
}
