//! Host time of one execution, beside what other callers of MIOpen spend for the same kernels.
//!
//! On the emulated GPU launches succeed and run nothing while the clock runs, so what is left is the host's work; on a
//! real device the stream is drained between batches, outside of the measured time. All variants take turns in one
//! process; a figure is the median of the batches.
//!
//! `--first-result ours|provider --case conv|conv+bias+relu` measures, in a process of its own, the time from the first
//! question to the first finished result instead, and prints it in milliseconds. Caches are where the environment says.
//! `--facts` lists libraries and devices.

mod facts;
mod peer;
mod shape;

use std::hint::black_box;
use std::time::{Duration, Instant};

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::emulator::{Hip, Stream};
use hipdnn_rs_integration_tests::plugin::{Handle, Plugin};
use hipdnn_schemas::{EngineConfig, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::{DeviceBuffer, engine_id};

use self::peer::{Peer, Result};
use self::shape::Case;

const ENGINE: &str = "HIPDNN_RS_GPU_ENGINE";

/// Executions between two looks at the clock.
const BATCH: u32 = 64;

/// Limits of an execution's cost: so many times MIOpen's bare calls, and so many times AMD's provider.
const LIMITS: [f64; 2] = [1.15, 0.5];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => dispatch(101),
        ["--batches", batches] => match batches.parse() {
            Ok(batches) => dispatch(batches),
            Err(_) => Err(format!("--batches: expected a number, got {batches:?}").into()),
        },
        ["--facts"] => facts::print(),
        ["--first-result", who, "--case", case] => first_result(who, case),
        other => Err(format!("unknown arguments {other:?}").into()),
    };
    if let Err(error) = outcome {
        eprintln!("dispatch: {error}");
        std::process::exit(1);
    }
}

/// A plan of ours and the buffers that it needs.
struct Ours<'handle> {
    plan: hipdnn_rs_integration_tests::plugin::Plan<'handle>,
    workspace: Option<hipdnn_rs_integration_tests::emulator::DeviceMemory>,
    buffers: Vec<DeviceBuffer>,
}

impl<'handle> Ours<'handle> {
    fn new(
        hip: &'static Hip,
        handle: &'handle Handle,
        case: Case,
        knobs: &[(&str, KnobValue)],
        buffers: &[DeviceBuffer],
    ) -> Result<Ours<'handle>> {
        let graph = case.graph();
        let id = engine_id(ENGINE);
        if !handle.applicable(&graph).map_err(text)?.contains(&id) {
            return Err(format!("{ENGINE} does not take the graph; its reason is in the log").into());
        }
        handle.details(id, &graph).map_err(text)?;
        let knobs = knobs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let config = EngineConfig { engine_id: id, knobs }.to_bytes();
        handle.workspace_size(&config, &graph).map_err(text)?;
        let plan = handle.plan(&config, &graph).map_err(text)?;
        let workspace = (plan.workspace_bytes() > 0).then(|| hip.memory(plan.workspace_bytes())).transpose()?;
        Ok(Ours { plan, workspace, buffers: buffers.to_vec() })
    }

    fn execute(&self, handle: &Handle) -> Result<()> {
        let workspace = self.workspace.as_ref().map_or(std::ptr::null_mut(), |memory| memory.address().cast());
        // SAFETY: the buffers have the sizes of the case's tensors, and the workspace that of the plan; both live.
        Ok(unsafe { self.plan.execute_with(handle, workspace, &self.buffers) }.map_err(text)?)
    }
}

fn text(error: hipdnn_rs_integration_tests::plugin::PluginError) -> String {
    format!("status {:?}: {}", error.status, error.message)
}

/// One way to run a case.
struct Variant<'a> {
    name: String,
    run: Box<dyn Fn() -> Result<()> + 'a>,
    micros: Vec<f64>,
}

impl<'a> Variant<'a> {
    fn new(name: impl Into<String>, run: impl Fn() -> Result<()> + 'a) -> Variant<'a> {
        Variant { name: name.into(), run: Box::new(run), micros: Vec::new() }
    }

    fn batch(&mut self, stream: &Stream) -> Result<()> {
        let start = Instant::now();
        for _ in 0..BATCH {
            (self.run)()?;
        }
        let spent = start.elapsed();
        stream.synchronize()?;
        self.micros.push(spent.as_secs_f64() * 1e6 / f64::from(BATCH));
        Ok(())
    }

    fn median(&self) -> f64 {
        median(&self.micros)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn dispatch(batches: usize) -> Result<()> {
    let hip = Hip::get()?;
    let stream = hip.stream()?;
    let mut peer = Peer::new(hip, &stream)?;
    let solution = peer.solution(hip, &stream)?;
    let found = peer.find(solution)?;
    let buffers = peer.memory.buffers();
    let plugin = Plugin::open(&library_path(Artifact::Plugin));
    let handle = plugin.handle().map_err(text)?;
    // SAFETY: the stream lives as long as the handle.
    unsafe { handle.set_stream(stream.raw()) }.map_err(text)?;

    let mut held = true;
    println!("| case | host time per execution, µs | × the bare calls | × AMD's provider |");
    println!("|---|---|---|---|");
    for case in Case::ALL {
        let solvers = ("hipdnn_rs.gpu.solvers", KnobValue::String(solution.to_string()));
        let ours = Ours::new(hip, &handle, case, std::slice::from_ref(&solvers), &buffers)?;
        let called = ("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(0));
        let called = Ours::new(hip, &handle, case, &[solvers, called], &buffers)?;
        let mut variants = vec![
            Variant::new(ENGINE, || ours.execute(&handle)),
            Variant::new(format!("{ENGINE}, without recorded launches"), || called.execute(&handle)),
        ];
        let (peer, buffers) = (&peer, &buffers);
        let bare = match (case, found) {
            (Case::Convolution, true) => {
                variants.push(Variant::new("bare `miopenRunSolution`", || peer.run(&peer.memory.sums)));
                2
            }
            (Case::Convolution, false) => 2,
            (Case::Fused, true) => {
                let name = "bare `miopenRunSolution`, `miopenOpTensor`, `miopenActivationForward`";
                variants.push(Variant::new(name, || peer.run_fused()));
                2
            }
            (Case::Fused, false) => return Err("MIOpen's search gave no solution of the same solver".into()),
        };
        if case == Case::Convolution {
            let name = "bare `miopenConvolutionForwardImmediate`";
            variants.push(Variant::new(name, move || peer.immediate(solution, &peer.memory.sums)));
        }
        let provider = variants.len();
        variants.push(match case {
            Case::Convolution => Variant::new("AMD's provider: its calls", move || peer.provider_convolution(buffers)),
            Case::Fused => {
                Variant::new("AMD's provider: its calls, of three plans", move || peer.provider_fused(buffers))
            }
        });
        // Once with kernels: what a first call builds is not what is measured.
        for variant in &mut variants {
            (variant.run)()?;
            stream.synchronize()?;
        }
        let skip = |skip| hip.control().into_iter().for_each(|control| control.skip_launches(skip));
        skip(true);
        for _ in 0..batches {
            for variant in &mut variants {
                variant.batch(&stream)?;
            }
        }
        skip(false);
        let (bare, provider) = (variants[bare].median(), variants[provider].median());
        held &= variants[0].median() <= LIMITS[0] * bare && variants[0].median() <= LIMITS[1] * provider;
        for variant in &variants {
            let median = variant.median();
            println!(
                "| {}: {} | {median:.2} | {:.2} | {:.2} |",
                case.name(),
                variant.name,
                median / bare,
                median / provider
            );
        }
    }
    let ([bare, provider], verdict) = (LIMITS, if held { "held" } else { "NOT held" });
    println!("\nLimits for {ENGINE}, {bare} × the bare calls and {provider} × AMD's provider: {verdict}.");
    Ok(())
}

fn first_result(who: &str, case: &str) -> Result<()> {
    let case = Case::ALL.into_iter().find(|known| known.name() == case).ok_or_else(|| format!("no case {case:?}"))?;
    let hip = Hip::get()?;
    let stream = hip.stream()?;
    let mut peer = Peer::new(hip, &stream)?;
    let buffers = peer.memory.buffers();
    let spent: Duration = match who {
        "ours" => {
            let plugin = Plugin::open(&library_path(Artifact::Plugin));
            let start = Instant::now();
            let handle = plugin.handle().map_err(text)?;
            // SAFETY: the stream lives as long as the handle.
            unsafe { handle.set_stream(stream.raw()) }.map_err(text)?;
            let ours = Ours::new(hip, &handle, case, &[], &buffers)?;
            ours.execute(&handle)?;
            stream.synchronize()?;
            start.elapsed()
        }
        "provider" => {
            let start = Instant::now();
            peer.provider_prepare(hip)?;
            match case {
                Case::Convolution => peer.provider_convolution(black_box(&buffers))?,
                Case::Fused => peer.provider_fused(black_box(&buffers))?,
            }
            stream.synchronize()?;
            start.elapsed()
        }
        other => return Err(format!("--first-result: expected ours or provider, got {other:?}").into()),
    };
    println!("{:.1}", spent.as_secs_f64() * 1e3);
    Ok(())
}
