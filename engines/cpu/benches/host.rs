//! Times the CPU engine's convolutions on a table of layers.
//!
//! `cargo bench -p hipdnn-engine-cpu --bench host -- [--csv] [--threads 1,2] [--dynamic] [--fused] [--fastest]
//! [--channels-last] [--element f16|bf16] [FILTER]`
//!
//! With `--fused` a bias and a ReLU follow; with `--channels-last` input and output have their channels innermost, as
//! the engine's intermediates do where that pays; with `--element` input, weights and output have that type. Prints the
//! median time of each layer (the least with `--fastest`, for noisy machines), its rate, and this in per cent of the
//! rate that multiply-adds without memory reached just before or after; with `--csv` lines of
//! `layer,threads,weights,seconds`; with `--peak` only that rate, in GFLOP/s.

use std::hint::black_box;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use hipdnn_cpu_convolution::{Args, ConvolutionPlan, Element, EpilogueStep, Layout, Problem, Shape, Weights};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};
use hipdnn_cpu_simd::scratch::AlignedBuffer;
use hipdnn_cpu_threads::Pool;

/// Layer: name, batch, input channels, input height and width, output channels, kernel, stride, padding, dilation,
/// groups.
type Layer = (&'static str, usize, usize, [usize; 2], usize, [usize; 2], usize, [usize; 2], usize, usize);

const fn square(name: &'static str, [batch, c, size, k, kernel, stride, pad, dilation, groups]: [usize; 9]) -> Layer {
    (name, batch, c, [size, size], k, [kernel, kernel], stride, [pad, pad], dilation, groups)
}

/// Layers of ResNet-50, MobileNetV2, Inception, DeepLab and ResNeXt, and of a text detector.
const LAYERS: &[Layer] = &[
    ("wave_3x3_1_128_901x161", 1, 1, [901, 161], 128, [3, 3], 1, [1, 1], 1, 1),
    square("r50_7x7s2_3_64_224", [1, 3, 224, 64, 7, 2, 3, 1, 1]),
    square("r50_1x1_64_256_56", [1, 64, 56, 256, 1, 1, 0, 1, 1]),
    square("r50_1x1_256_64_56", [1, 256, 56, 64, 1, 1, 0, 1, 1]),
    square("r50_1x1_512_2048_7", [1, 512, 7, 2048, 1, 1, 0, 1, 1]),
    square("r50_1x1s2_256_512_56", [1, 256, 56, 512, 1, 2, 0, 1, 1]),
    square("r50_1x1_1024_256_14", [1, 1024, 14, 256, 1, 1, 0, 1, 1]),
    square("r50_1x1s2_512_1024_28", [1, 512, 28, 1024, 1, 2, 0, 1, 1]),
    square("r50_3x3s2_128_56", [1, 128, 56, 128, 3, 2, 1, 1, 1]),
    square("r50_3x3s2_512_14", [1, 512, 14, 512, 3, 2, 1, 1, 1]),
    square("r50_3x3_64_56", [1, 64, 56, 64, 3, 1, 1, 1, 1]),
    square("r50_3x3_128_28", [1, 128, 28, 128, 3, 1, 1, 1, 1]),
    square("r50_3x3_256_14", [1, 256, 14, 256, 3, 1, 1, 1, 1]),
    square("r50_3x3_512_7", [1, 512, 7, 512, 3, 1, 1, 1, 1]),
    square("mb_1x1_24_144_56", [1, 24, 56, 144, 1, 1, 0, 1, 1]),
    square("mb_dw3x3_32_112", [1, 32, 112, 32, 3, 1, 1, 1, 32]),
    square("mb_dw3x3s2_144_56", [1, 144, 56, 144, 3, 2, 1, 1, 144]),
    square("mb_dw5x5_256_14", [1, 256, 14, 256, 5, 1, 2, 1, 256]),
    square("mb_dw5x5s2_256_14", [1, 256, 14, 256, 5, 2, 2, 1, 256]),
    square("mb_dw5x5_512_7", [1, 512, 7, 512, 5, 1, 2, 1, 512]),
    square("mb_dw3x3_960_7", [1, 960, 7, 960, 3, 1, 1, 1, 960]),
    square("mb_dw3x3s2_128_28", [1, 128, 28, 128, 3, 2, 1, 1, 128]),
    square("mb_dw5x5s2_96_56", [1, 96, 56, 96, 5, 2, 2, 1, 96]),
    square("cnx_dw7x7_384_14", [1, 384, 14, 384, 7, 1, 3, 1, 384]),
    square("mb_1x1_512_512_7", [1, 512, 7, 512, 1, 1, 0, 1, 1]),
    square("mb_1x1_16_32_112", [1, 16, 112, 32, 1, 1, 0, 1, 1]),
    square("mb_dw3x3_576_14", [1, 576, 14, 576, 3, 1, 1, 1, 576]),
    square("r50_1x1_512_128_28", [1, 512, 28, 128, 1, 1, 0, 1, 1]),
    square("mb_1x1_384_64_35", [1, 384, 35, 64, 1, 1, 0, 1, 1]),
    square("mb_1x1_160_960_17", [1, 160, 17, 960, 1, 1, 0, 1, 1]),
    square("mb_1x1_18_96_130", [1, 18, 130, 96, 1, 1, 0, 1, 1]),
    square("mb_1x1_48_96_130", [1, 48, 130, 96, 1, 1, 0, 1, 1]),
    ("ocr_1x1_128_128_12x160", 1, 128, [12, 160], 128, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_64_64_24x160", 1, 64, [24, 160], 64, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_192_64_30x40", 1, 192, [30, 40], 64, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_64_384_30x40", 1, 64, [30, 40], 384, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_384_64_30x40", 1, 384, [30, 40], 64, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_192_32_60x80", 1, 192, [60, 80], 32, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_32_192_60x80", 1, 32, [60, 80], 192, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_32_64_24x160", 1, 32, [24, 160], 64, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_1x1_24_24_120x160", 1, 24, [120, 160], 24, [1, 1], 1, [0, 0], 1, 1),
    square("inc_5x5_48_64_28", [1, 48, 28, 64, 5, 1, 2, 1, 1]),
    square("dlab_3x3d2_256_28", [1, 256, 28, 256, 3, 1, 2, 2, 1]),
    square("rnxt_3x3g32_128_56", [1, 128, 56, 128, 3, 1, 1, 1, 32]),
    square("b8_7x7s2_3_64_224", [8, 3, 224, 64, 7, 2, 3, 1, 1]),
    square("b8_1x1_64_256_56", [8, 64, 56, 256, 1, 1, 0, 1, 1]),
    square("b8_3x3_128_28", [8, 128, 28, 128, 3, 1, 1, 1, 1]),
    square("b8_3x3_512_7", [8, 512, 7, 512, 3, 1, 1, 1, 1]),
    square("b8_dw3x3_32_112", [8, 32, 112, 32, 3, 1, 1, 1, 32]),
    // Text detectors: wide pages, few channels, depthwise 3×3 and 5×5.
    ("ocr_3x3s2_3_16", 1, 3, [960, 736], 16, [3, 3], 2, [1, 1], 1, 1),
    ("ocr_dw3x3_16", 1, 16, [480, 368], 16, [3, 3], 1, [1, 1], 1, 16),
    ("ocr_1x1_16_32", 1, 16, [480, 368], 32, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_dw3x3s2_32", 1, 32, [480, 368], 32, [3, 3], 2, [1, 1], 1, 32),
    ("ocr_1x1_48_48", 1, 48, [240, 184], 48, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_dw5x5_192", 1, 192, [60, 46], 192, [5, 5], 1, [2, 2], 1, 192),
    ("ocr_dw5x5s2_192", 1, 192, [60, 46], 192, [5, 5], 2, [2, 2], 1, 192),
    ("ocr_1x1_192_192", 1, 192, [60, 46], 192, [1, 1], 1, [0, 0], 1, 1),
    ("ocr_3x3_96_24", 1, 96, [240, 184], 24, [3, 3], 1, [1, 1], 1, 1),
    ("ocr_1x1_480_96_30x23", 1, 480, [30, 23], 96, [1, 1], 1, [0, 0], 1, 1),
];

fn problem(layer: &Layer, [constant_weights, fused, channels_last]: [bool; 3], element: Element) -> Problem {
    let (_, batch, c, [h, w], k, [r, s], stride, [ph, pw], dilation, groups) = *layer;
    let out = |size: usize, kernel: usize, pad: usize| (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
    let shape = Shape {
        batch,
        groups,
        in_channels: c,
        out_channels: k,
        input: [1, h, w],
        kernel: [1, r, s],
        output: [1, out(h, r, ph), out(w, s, pw)],
        stride: [1, stride, stride],
        dilation: [1, dilation, dilation],
        pad_before: [0, ph, pw],
        flip: false,
    };
    let mut problem = Problem {
        shape,
        x: Layout::packed(Element::F32, [0; 5]),
        w: Layout::packed(Element::F32, [0; 5]),
        y: Layout::packed(Element::F32, [0; 5]),
        epilogue: match fused {
            false => Vec::new(),
            true => vec![
                EpilogueStep::Bias { operand: 0, element: Element::F32, channel_stride: 1 },
                EpilogueStep::Activation(Activation::RELU),
            ],
        },
        constant_weights,
        winograd: true,
    };
    let image = |[n, c, d, h, w]: [usize; 5]| match channels_last {
        false => Layout::packed(element, [n, c, d, h, w]),
        true => Layout::channels_last(element, [n, c, d, h, w]),
    };
    problem.x = image(problem.x_sizes());
    problem.w = Layout::packed(element, problem.w_sizes());
    problem.y = image(problem.y_sizes());
    problem
}

/// Multiply-adds that need no memory: the peak rate of the CPU, at this moment.
struct Peak(usize);

impl Kernel for Peak {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let factor = s.splat(0.5);
        // Different sums: equal ones would be computed once.
        let mut sums = [factor; 12];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.splat(black_box(i as f32));
        }
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = s.fma(*sum, factor, factor);
            }
        }
        let mut lanes = [0f32; MAX_LANES];
        let mut total = factor;
        for sum in sums {
            total = s.add(total, sum);
        }
        // SAFETY: the array takes the widest vector.
        unsafe { s.store(lanes.as_mut_ptr(), total) };
        lanes[0]
    }
}

/// Peak rate of one thread, in operations a second without memory; each try is long enough for the clock to settle.
fn peak() -> f64 {
    let isa = Isa::best();
    let steps = 400_000;
    let run = |_| {
        let start = Instant::now();
        black_box(isa.run(Peak(black_box(steps))));
        (2 * 12 * steps * isa.lanes()) as f64 / start.elapsed().as_secs_f64()
    };
    (0..15).map(run).fold(0.0, f64::max)
}

/// Makes a buffer of values between -1 and 1.
fn filled(sizes: [usize; 5], seed: u32, element: Element) -> AlignedBuffer {
    let count: usize = sizes.iter().product();
    let mut buffer = AlignedBuffer::new((count * element.bytes()).div_ceil(size_of::<f32>()));
    let mut random = fastrand::Rng::with_seed(seed.into());
    let mut value = || 2.0 * random.f32() - 1.0;
    for word in buffer.iter_mut() {
        *word = match element {
            Element::F32 => value(),
            Element::F16 => pair([0; 2].map(|_| f16::from_f32(value()).to_bits())),
            Element::BF16 => pair([0; 2].map(|_| bf16::from_f32(value()).to_bits())),
        };
    }
    buffer
}

/// Word of the bits of two neighboring values.
fn pair(bits: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(bits[1]) << 16 | u32::from(bits[0]))
}

/// Median seconds of a call after a warm-up, or the least.
fn measure(fastest: bool, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(60) {
        f();
    }
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 11 || (start.elapsed() < Duration::from_millis(250) && times.len() < 2000) {
        let call = Instant::now();
        f();
        times.push(call.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[if fastest { 0 } else { times.len() / 2 }]
}

fn time(layer: &Layer, threads: usize, kind: [bool; 3], element: Element, fastest: bool) -> (f64, &'static str, f64) {
    let problem = problem(layer, kind, element);
    let [constant, ..] = kind;
    let plan = ConvolutionPlan::new(&problem, threads);
    let pool = Pool::new(threads);
    let (x, w) = (filled(problem.x_sizes(), 1, element), filled(problem.w_sizes(), 2, element));
    let mut y = filled(problem.y_sizes(), 3, element);
    let bias = filled([1, problem.shape.out_channels, 1, 1, 1], 4, Element::F32);
    let operands = [bias.as_ptr().cast::<u8>()];
    let mut workspace = AlignedBuffer::new(plan.workspace_bytes().div_ceil(4));
    let mut prepared = AlignedBuffer::new(plan.prepared_len());
    let raw = w.as_ptr().cast::<u8>();
    if constant {
        // SAFETY: the weights are as the problem says.
        unsafe { plan.prepare(raw, &mut prepared, &pool) };
    }
    let weights = if constant && !prepared.is_empty() { Weights::Prepared(&prepared) } else { Weights::Raw(raw) };
    let args = Args {
        x: x.as_ptr().cast(),
        weights,
        y: y.as_mut_ptr().cast(),
        operands: &operands,
        workspace: workspace.as_mut_ptr().cast(),
    };
    // SAFETY: the buffers have the problem's sizes and are used by this call only.
    let seconds = measure(fastest, || unsafe { plan.run(&pool, &args) });
    let shape = &problem.shape;
    let operations = 2.0 * (shape.batch * shape.out_channels * shape.pixels() * shape.depth()) as f64;
    (seconds, plan.algorithm(), operations)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.iter().any(|argument| argument == "--peak") {
        println!("{:.1}", 1e-9 * peak());
        return;
    }
    let csv = arguments.iter().any(|argument| argument == "--csv");
    let dynamic = arguments.iter().any(|argument| argument == "--dynamic");
    let fused = arguments.iter().any(|argument| argument == "--fused");
    let fastest = arguments.iter().any(|argument| argument == "--fastest");
    let mut threads = vec![1, 2];
    let mut filter = "";
    let mut element = Element::F32;
    let channels_last = arguments.iter().any(|argument| argument == "--channels-last");
    let flags = ["--csv", "--dynamic", "--fused", "--fastest", "--channels-last"];
    let mut rest = arguments.iter().filter(|argument| !flags.contains(&argument.as_str()));
    while let Some(argument) = rest.next() {
        if argument == "--threads" {
            let list = rest.next().map(String::as_str).unwrap_or_default();
            threads = list.split(',').map(|n| n.parse().expect("--threads takes numbers, as in 1,2")).collect();
        } else if argument == "--element" {
            element = match rest.next().map(String::as_str) {
                Some("f16") => Element::F16,
                Some("bf16") => Element::BF16,
                other => panic!("--element: expected f16 or bf16, got {other:?}"),
            };
        } else {
            filter = argument;
        }
    }
    if csv {
        println!("layer,threads,weights,seconds");
    } else {
        println!("{} weights, {}", if dynamic { "run-time" } else { "constant" }, Isa::best());
    }
    for layer in LAYERS.iter().filter(|layer| layer.0.contains(filter)) {
        let mut line = format!("{:22}", layer.0);
        for threads in &threads {
            let before = peak();
            let (seconds, algorithm, operations) =
                time(layer, *threads, [!dynamic, fused, channels_last], element, fastest);
            if csv {
                println!("{},{threads},{},{seconds:.9}", layer.0, if dynamic { "dynamic" } else { "constant" });
            } else {
                let rate = operations / seconds * 1e-9;
                let share = 1e11 * rate / before.max(peak()) / *threads as f64;
                line +=
                    &format!(" | {threads}T {:8.1} µs {rate:6.1} GFLOP/s {share:4.0} % {algorithm:12}", seconds * 1e6);
            }
        }
        if !csv {
            println!("{line}");
        }
    }
}
