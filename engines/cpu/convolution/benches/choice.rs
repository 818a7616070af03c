//! Holds the choice of an algorithm against measurement: times every algorithm that serves a convolution.
//!
//! `cargo bench -p hipdnn-cpu-convolution --bench choice -- LIST [--threads 1] [--rounds 7] [--isa NAME] [--channels-last |
//! --channels-last-outputs] [--element f16|bf16] [--only TEXT] [--algorithm NAME]`
//!
//! The list is a file as `cargo xtask bench conv --list` takes it. Weights are constant, so that preparing them is not timed.
//! Algorithms take turns, and the fastest run of each is taken; with one thread, by the time that it computed. The regret of a
//! choice is the time of the chosen algorithm over the fastest's, less 1. Behind a time stands, after `@`, the number of cycles
//! that the plan expects for each nanosecond it takes: with estimates that are right, the frequency of the CPU in GHz everywhere.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use hipdnn_cpu_convolution::{Args, ConvolutionPlan, Element, Layout, Problem, Shape, Weights};
use hipdnn_cpu_simd::clock;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::AlignedBuffer;
use hipdnn_cpu_threads::Pool;

/// Regret below which a choice counts as right.
const CLOSE: f64 = 0.05;

/// Time of an algorithm in a turn.
const TURN: Duration = Duration::from_millis(2);

struct Options {
    list: String,
    threads: usize,
    rounds: usize,
    isa: Isa,
    /// Layouts of inputs and outputs: true if channels lie side by side.
    channels_last: [bool; 2],
    element: Element,
    only: String,
    /// Name of the one algorithm to time; of all if empty.
    algorithm: String,
    /// True if weights are prepared in each run.
    run_time: bool,
}

/// A convolution of the list.
struct Case {
    name: String,
    shape: Shape,
    /// Number of its uses in networks.
    uses: f64,
}

/// Time of an algorithm, beside its estimate.
struct Time {
    name: &'static str,
    microseconds: f64,
    cycles: Option<f64>,
}

/// Choice of an algorithm, with the times of the chosen and of the fastest one in all uses.
struct Choice<'a> {
    chosen: &'a str,
    regret: f64,
    spent: f64,
    least: f64,
}

/// An algorithm with its memory.
struct Contender {
    plan: ConvolutionPlan,
    prepared: AlignedBuffer,
    workspace: Vec<u8>,
    fastest: Duration,
}

fn main() {
    let options = options();
    let clock = clock::of_threads(options.threads);
    let pool = Pool::new(options.threads);
    let cases = read(&options.list);
    let mut all = Vec::new();
    println!("{}, {} thread(s): µs of the chosen algorithm, and of the others", options.isa, options.threads);
    for case in cases.iter().filter(|case| case.name.contains(&options.only)) {
        let problem = problem(&case.shape, &options);
        let chosen = match options.algorithm.as_str() {
            "" => ConvolutionPlan::with_isa(&problem, options.threads, options.isa).algorithm(),
            name => name,
        };
        let mut times = measured(&problem, &options, &pool, clock);
        times.sort_by(|one, other| one.microseconds.total_cmp(&other.microseconds));
        let Some(time) = times.iter().find(|time| time.name == chosen) else {
            println!("{:44} {chosen:24}, not timed", case.name);
            continue;
        };
        let (fastest, time) = (times[0].microseconds, time.microseconds);
        let regret = time / fastest - 1.0;
        print!("{:44} {chosen:24} {time:9.1} {:4.0} %", case.name, 100.0 * regret);
        for other in times.iter().filter(|other| other.microseconds < 3.0 * time) {
            print!("   {} {:.1}", other.name, other.microseconds);
            if let Some(cycles) = other.cycles {
                print!("@{:.1}", 1e-3 * cycles / other.microseconds);
            }
        }
        println!();
        all.push(Choice { chosen, regret, spent: case.uses * time, least: case.uses * fastest });
    }
    report(&all);
}

fn options() -> Options {
    let mut options = Options {
        list: String::new(),
        threads: 1,
        rounds: 7,
        isa: Isa::best(),
        channels_last: [false; 2],
        element: Element::F32,
        only: String::new(),
        algorithm: String::new(),
        run_time: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("expected a value behind {argument}, got none"));
        let number = |text: String| text.parse().unwrap_or_else(|_| panic!("expected a number, got {text:?}"));
        match argument.as_str() {
            "--bench" => {}
            "--threads" => options.threads = number(value()),
            "--rounds" => options.rounds = number(value()),
            "--only" => options.only = value(),
            "--algorithm" => options.algorithm = value(),
            "--run-time" => options.run_time = true,
            "--channels-last" => options.channels_last = [true; 2],
            "--channels-last-outputs" => options.channels_last = [false, true],
            "--element" => {
                options.element = match value().as_str() {
                    "f16" => Element::F16,
                    "bf16" => Element::BF16,
                    other => panic!("--element: expected f16 or bf16, got {other:?}"),
                }
            }
            "--isa" => {
                let name = value();
                let known: Vec<Isa> = Isa::available().collect();
                let found = known.iter().find(|isa| isa.name() == name);
                options.isa = *found.unwrap_or_else(|| panic!("expected one of {known:?}, got {name:?}"));
            }
            _ if argument.starts_with('-') => panic!("expected an option that there is, got {argument:?}"),
            _ if !options.list.is_empty() => panic!("expected one LIST, got {:?} and {argument:?}", options.list),
            _ => options.list = argument,
        }
    }
    assert!(!options.list.is_empty(), "expected a CSV file of convolutions, got none");
    assert!(options.threads > 0, "expected at least one thread, got none");
    options
}

/// Convolutions of a file, those of auto_pad left out.
fn read(path: &str) -> Vec<Case> {
    let mut file = csv::Reader::from_path(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let rows = file.deserialize().enumerate();
    let cases = rows.filter_map(|(i, row)| {
        let row = row.unwrap_or_else(|error| panic!("{path}: {error}"));
        case(&row).unwrap_or_else(|error| panic!("{path}, row {}: {error}", i + 1))
    });
    cases.collect()
}

/// Convolution of a row, if it is one of explicit padding.
fn case(row: &BTreeMap<String, String>) -> Result<Option<Case>, String> {
    let text = |column: &str| row.get(column).map_or("", String::as_str);
    if !matches!(text("op"), "" | "Conv") || !matches!(text("auto_pad"), "" | "NOTSET") {
        return Ok(None);
    }
    let numbers = |column: &str| -> Result<Vec<usize>, String> {
        let numbers = text(column).split(['x', '×', ' ']).filter(|number| !number.is_empty());
        numbers
            .map(|number| number.parse().map_err(|_| format!("expected numbers in {column}, got {number:?}")))
            .collect()
    };
    let number = |column: &str| match numbers(column)?[..] {
        [number] if number > 0 => Ok(number),
        _ => Err(format!("expected a number above 0 in {column}, got {:?}", text(column))),
    };
    let input = numbers("in_spatial")?;
    let axes = input.len();
    if !(1..=3).contains(&axes) {
        return Err(format!("expected one to three extents in in_spatial, got {:?}", text("in_spatial")));
    }
    // Sizes of the axes there are, lifted to three by the least size.
    let lifted = |column: &str, values: &[usize], least: usize| -> Result<[usize; 3], String> {
        if values.len() != axes || values.iter().any(|value| *value < least) {
            return Err(format!("expected {axes} sizes of at least {least} in {column}, got {:?}", text(column)));
        }
        Ok(std::array::from_fn(|axis| (axis + axes).checked_sub(3).map_or(least, |axis| values[axis])))
    };
    // The same, all 1 if the column is left out.
    let or_ones = |column: &str| -> Result<[usize; 3], String> {
        let values = numbers(column)?;
        lifted(column, if values.is_empty() { &[1, 1, 1][..axes] } else { &values }, 1)
    };
    let mut pads = numbers("pads_begin_end")?;
    if pads.is_empty() {
        pads = vec![0; 2 * axes];
    }
    let (before, behind) = pads.split_at(axes.min(pads.len()));
    let (before, behind) = (lifted("pads_begin_end", before, 0)?, lifted("pads_begin_end", behind, 0)?);
    let (input, kernel) = (lifted("in_spatial", &input, 1)?, lifted("kernel", &numbers("kernel")?, 1)?);
    let (stride, dilation) = (or_ones("stride")?, or_ones("dilation")?);
    let reach: [usize; 3] = std::array::from_fn(|axis| dilation[axis] * (kernel[axis] - 1) + 1);
    if (0..3).any(|axis| reach[axis] > input[axis] + before[axis] + behind[axis]) {
        return Err(format!("expected an image of at least {reach:?} with its padding, got {input:?}"));
    }
    let shape = Shape {
        batch: number("N")?,
        groups: if text("group").is_empty() { 1 } else { number("group")? },
        in_channels: number("C")?,
        out_channels: number("K")?,
        input,
        kernel,
        output: std::array::from_fn(|axis| {
            (input[axis] + before[axis] + behind[axis] - reach[axis]) / stride[axis] + 1
        }),
        stride,
        dilation,
        pad_before: before,
        flip: false,
    };
    if !shape.in_channels.is_multiple_of(shape.groups) || !shape.out_channels.is_multiple_of(shape.groups) {
        return Err(format!("expected groups that divide C and K, got {}", shape.groups));
    }
    let mut name = format!("{}→{} {}", shape.in_channels, shape.out_channels, text("kernel"));
    for (before, column, plain) in [("/", "stride", "1"), (" d", "dilation", "1")] {
        if !text(column).split('x').all(|size| size == plain || size.is_empty()) {
            name += &format!("{before}{}", text(column));
        }
    }
    if shape.groups > 1 {
        name += &format!(" g{}", shape.groups);
    }
    name += &format!(" at {}", text("in_spatial"));
    if shape.batch > 1 {
        name += &format!(", batch {}", shape.batch);
    }
    let uses = if text("nodes").is_empty() { 1 } else { number("nodes")? };
    Ok(Some(Case { name, shape, uses: uses as f64 }))
}

fn problem(shape: &Shape, options: &Options) -> Problem {
    let element = options.element;
    let [of_input, of_output] =
        options.channels_last.map(|last| if last { Layout::channels_last } else { Layout::packed });
    let unknown = Layout::packed(Element::F32, [0; 5]);
    let mut problem = Problem {
        shape: shape.clone(),
        x: unknown,
        w: unknown,
        y: unknown,
        epilogue: Vec::new(),
        constant_weights: !options.run_time,
        winograd: true,
    };
    problem.x = of_input(element, problem.x_sizes());
    problem.w = of_input(element, problem.w_sizes());
    problem.y = of_output(element, problem.y_sizes());
    problem
}

/// Times of each algorithm but plain loops.
fn measured(problem: &Problem, options: &Options, pool: &Pool, clock: fn() -> Duration) -> Vec<Time> {
    let buffer = |sizes: [usize; 5]| {
        let mut random = fastrand::Rng::with_seed(1);
        let count: usize = sizes.iter().product();
        let mut buffer = AlignedBuffer::new((count * options.element.bytes()).div_ceil(size_of::<f32>()));
        let mut value = || random.f32() - 0.5;
        for word in buffer.iter_mut() {
            *word = match options.element {
                Element::F32 => value(),
                Element::F16 => pair([0; 2].map(|_| f16::from_f32(value()).to_bits())),
                Element::BF16 => pair([0; 2].map(|_| bf16::from_f32(value()).to_bits())),
            };
        }
        buffer
    };
    let (x, w, mut y) = (buffer(problem.x_sizes()), buffer(problem.w_sizes()), buffer(problem.y_sizes()));
    let mut contenders: Vec<Contender> = ConvolutionPlan::all(problem, options.threads, options.isa)
        .filter(|plan| match options.algorithm.as_str() {
            "" => plan.algorithm() != "naive",
            name => plan.algorithm() == name,
        })
        .map(|plan| {
            let mut prepared = AlignedBuffer::new(plan.prepared_len());
            // SAFETY: the weights have the problem's sizes and layout.
            unsafe { plan.prepare(w.as_ptr().cast(), &mut prepared, pool) };
            let workspace = vec![0; plan.workspace_bytes()];
            Contender { plan, prepared, workspace, fastest: Duration::MAX }
        })
        .collect();
    for _ in 0..options.rounds {
        for contender in &mut contenders {
            let (begin, mut runs) = (Instant::now(), 0);
            while runs < 2 || begin.elapsed() < TURN {
                let prepared = if options.run_time || contender.prepared.is_empty() {
                    Weights::Raw(w.as_ptr().cast())
                } else {
                    Weights::Prepared(&contender.prepared)
                };
                let args = Args {
                    x: x.as_ptr().cast(),
                    weights: prepared,
                    y: y.as_mut_ptr().cast(),
                    operands: &[],
                    workspace: contender.workspace.as_mut_ptr(),
                };
                let start = clock();
                // SAFETY: the tensors have the problem's sizes and layouts, nobody else uses them, and the workspace is of the
                // plan's size; the weights are prepared by the plan, or it takes them as they lie.
                unsafe { contender.plan.run(pool, black_box(&args)) };
                let time = clock() - start;
                // A thread's clock has been seen to stand still over a run of microseconds.
                if time > Duration::ZERO {
                    contender.fastest = contender.fastest.min(time);
                }
                runs += 1;
            }
        }
    }
    let time = |contender: &Contender| Time {
        name: contender.plan.algorithm(),
        microseconds: 1e6 * contender.fastest.as_secs_f64(),
        cycles: contender.plan.cycles(),
    };
    contenders.iter().map(time).collect()
}

/// Word of the bits of two neighboring values.
fn pair(bits: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(bits[1]) << 16 | u32::from(bits[0]))
}

/// Prints the regret of the choices, by the chosen algorithm and of all.
fn report(all: &[Choice<'_>]) {
    let mut by_algorithm: BTreeMap<&str, Vec<&Choice<'_>>> = BTreeMap::new();
    for choice in all {
        by_algorithm.entry(choice.chosen).or_default().push(choice);
    }
    println!("\n{:24} {:>6} {:>12} {:>12} {:>14}", "chosen", "cases", "mean regret", "within 5 %", "regret by use");
    for (name, choices) in by_algorithm.into_iter().chain([("all", all.iter().collect())]) {
        let mean = choices.iter().map(|choice| choice.regret.ln_1p()).sum::<f64>() / choices.len() as f64;
        let close = choices.iter().filter(|choice| choice.regret <= CLOSE).count();
        let spent: f64 = choices.iter().map(|choice| choice.spent).sum();
        let least: f64 = choices.iter().map(|choice| choice.least).sum();
        let (mean, by_use) = (100.0 * mean.exp_m1(), 100.0 * (spent / least - 1.0));
        println!("{name:24} {:6} {mean:10.1} % {close:12} {by_use:12.1} %", choices.len());
    }
}
