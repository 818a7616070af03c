//! Every HIP call fails in turn, from the first of a handle to the last of an execution.
//!
//! A failure ends in a status with a text, or in a right result by another way. Nothing that was made is left afterwards,
//! and the same handle then does it all right.

use std::cell::Cell;

use hipdnn_rs_integration_tests::emulator::{Counters, Stream};
use hipdnn_rs_integration_tests::plugin::{Handle, Plugin, PluginError};
use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::{DataType, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::{PluginStatus, Severity, engine_id};

use crate::bench::{ENGINE, Memory, config, control, hip, is_told, plugin, told};
use crate::case::{Case, Layout, Wanted};
use crate::harness::{Outcome, Test};
use crate::logged;
use crate::mixed;
use crate::table::{conv, fused};

/// `hipErrorUnknown`, `hipErrorOutOfMemory`, `hipErrorLaunchFailure`.
const ERRORS: [i32; 3] = [999, 2, 719];

/// Number of calls that all sweeps together have to reach.
const LEAST_POINTS: u64 = 300;

/// A plan and the state that the process is in when it is built.
struct Sweep {
    name: &'static str,
    case: fn() -> Case,
    /// True if another handle has built such a plan and is alive.
    warm: bool,
    how: How,
    /// Number of tests that the calls are dealt into.
    parts: u64,
}

/// Source of a plan's launches.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// The choice is known from an earlier plan.
    Known,
    /// The solver is chosen and tried anew.
    Chosen,
    /// The same after timing.
    Timed,
    /// The choice is known, and MIOpen is asked at each execution.
    ThroughMiopen,
}

fn plain() -> Case {
    conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First)
}

fn weights() -> Case {
    conv("2d asymmetric", Direction::BackwardWeights, DataType::Half, Layout::First)
}

fn chain() -> Case {
    fused("2d asymmetric", DataType::Float, Layout::Last, "bias residual relu")
}

fn groups() -> Case {
    mixed::named("convolution, batch norm of training", DataType::Float)
}

const SWEEPS: [Sweep; 11] = [
    Sweep { name: "cold convolution", case: plain, warm: false, how: How::Known, parts: 1 },
    Sweep { name: "cold convolution, chosen", case: plain, warm: false, how: How::Chosen, parts: 3 },
    Sweep { name: "cold convolution, timed", case: plain, warm: false, how: How::Timed, parts: 4 },
    Sweep { name: "cold chain, chosen", case: chain, warm: false, how: How::Chosen, parts: 4 },
    Sweep { name: "cold gradient, through MIOpen", case: weights, warm: false, how: How::ThroughMiopen, parts: 2 },
    Sweep { name: "warm convolution", case: plain, warm: true, how: How::Known, parts: 1 },
    Sweep { name: "warm gradient, chosen", case: weights, warm: true, how: How::Chosen, parts: 2 },
    Sweep { name: "warm chain", case: chain, warm: true, how: How::Known, parts: 1 },
    Sweep { name: "cold groups, chosen", case: groups, warm: false, how: How::Chosen, parts: 4 },
    Sweep { name: "warm groups", case: groups, warm: true, how: How::Known, parts: 1 },
    Sweep { name: "warm convolution, through MIOpen", case: plain, warm: true, how: How::ThroughMiopen, parts: 1 },
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![Test::new("there are enough points", enough)];
    for sweep in &SWEEPS {
        for part in 0..sweep.parts {
            tests.push(Test::new(format!("{}, part {part}", sweep.name), move || every_call(sweep, part)));
        }
    }
    tests.push(Test::new("kernels fail", kernels_fail));
    tests.push(Test::new("memory is short", memory_is_short));
    tests
}

/// Parts of an attempt that are not the plugin's.
struct Scene {
    graph: Vec<u8>,
    how: How,
    /// Number of attempts so far.
    turn: Cell<u64>,
    stream: Stream,
    wanted: Wanted,
    /// Enough for any solver that may be chosen.
    workspace: usize,
    memory: Memory,
}

impl Scene {
    /// The plan is built and run once, so that caches on disk have what they will have.
    fn new(sweep: &Sweep) -> Result<Scene, String> {
        const ROOM: usize = 1 << 20;
        let case = (sweep.case)();
        let stream = hip().stream().map_err(|error| error.to_string())?;
        let (graph, wanted) = (case.graph(), case.wanted(&case.values(), false));
        let memory = Memory::new(&case, ROOM)?;
        let turn = Cell::new(u64::from(std::process::id()) << 20);
        let mut scene = Scene { graph, how: sweep.how, turn, stream, wanted, workspace: ROOM, memory };
        for _ in 0..2 {
            let mut handle = None;
            scene.attempt(&mut handle).map_err(|error| format!("without a failure: {}", told(&error)))?;
            scene.check()?;
        }
        Ok(scene)
    }

    fn knobs(&self) -> Vec<(&'static str, KnobValue)> {
        // A list with a number that no solver has is a new list, for which nothing is known yet.
        self.turn.set(self.turn.get() + 1);
        let anew = ("hipdnn_rs.gpu.solvers", KnobValue::String(format!("85,86,87,{}", self.turn.get())));
        match self.how {
            How::Known => Vec::new(),
            How::Chosen => vec![anew],
            How::Timed => vec![anew, ("global.benchmarking", KnobValue::Int(1))],
            How::ThroughMiopen => vec![("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(0))],
        }
    }

    /// From the first call of a handle to the last of an execution, as a host does it.
    fn attempt(&self, handle: &mut Option<Handle>) -> Result<(), PluginError> {
        if handle.is_none() {
            *handle = Some(plugin_handle()?);
        }
        let handle = handle.as_ref().expect("there is one now");
        // SAFETY: the stream outlives every attempt.
        unsafe { handle.set_stream(self.stream.raw()) }?;
        logged::lines();
        if !handle.applicable(&self.graph)?.contains(&engine_id(ENGINE)) {
            // Other engines may take the graph, so the question itself succeeds; the log has the reason.
            let told = logged::lines().into_iter().map(|(_, line)| line).find(|line| line.contains(ENGINE));
            return Err(PluginError { status: PluginStatus::NOT_APPLICABLE, message: told.unwrap_or_default() });
        }
        let config = config(&self.knobs());
        handle.workspace_size(&config, &self.graph)?;
        let plan = handle.plan(&config, &self.graph)?;
        assert!(plan.workspace_bytes() <= self.workspace, "{} bytes of workspace", plan.workspace_bytes());
        // SAFETY: the memory was made for the case and stays until the stream was waited for.
        unsafe { plan.execute_with(handle, self.memory.workspace(), &self.memory.buffers()) }?;
        // The plan goes while its work may still run.
        Ok(())
    }

    /// Checks that the attempt's result is right.
    fn check(&mut self) -> Result<(), String> {
        self.stream.synchronize().map_err(|error| error.to_string())?;
        self.memory.check(&self.wanted)?;
        self.memory.reset(0xff)
    }
}

fn plugin_handle() -> Result<Handle, PluginError> {
    thread_local! {
        static PLUGIN: std::sync::Arc<Plugin> = {
            let plugin = plugin();
            logged::listen(&plugin, Severity::INFO).expect("the plugin takes a callback");
            plugin
        };
    }
    PLUGIN.with(|plugin| plugin.handle())
}

/// Number of calls that an attempt makes when none fails.
fn calls(scene: &mut Scene) -> Result<u64, String> {
    let before = control().call_count(c"*");
    let mut handle = None;
    scene.attempt(&mut handle).map_err(|error| told(&error))?;
    drop(handle);
    let calls = control().call_count(c"*") - before;
    scene.check()?;
    Ok(calls)
}

/// A handle that has built and run the plan, for sweeps that find everything warm.
fn keeper(sweep: &Sweep, scene: &mut Scene) -> Result<Option<Handle>, String> {
    let mut handle = None;
    if sweep.warm {
        scene.attempt(&mut handle).map_err(|error| told(&error))?;
        scene.check()?;
    }
    Ok(handle)
}

fn enough() -> Outcome {
    let mut total = 0;
    let mut counts = Vec::new();
    for sweep in &SWEEPS {
        let mut scene = Scene::new(sweep)?;
        let keeper = keeper(sweep, &mut scene)?;
        let count = calls(&mut scene)?;
        drop(keeper);
        counts.push(format!("{} {count}", sweep.name));
        total += count;
    }
    println!("points where a call fails: {}", counts.join(", "));
    if total < LEAST_POINTS {
        return Err(format!("{total} calls in all: {}", counts.join(", ")).into());
    }
    Ok(())
}

fn every_call(sweep: &Sweep, part: u64) -> Outcome {
    let mut scene = Scene::new(sweep)?;
    let start = control().counters();
    let keeper = keeper(sweep, &mut scene)?;
    // Once more, so that what is made once in a process is there.
    let calls = calls(&mut scene)?;
    let mut problems = Vec::new();
    for nth in (1 + part..=calls).step_by(sweep.parts as usize) {
        let before = control().counters();
        let error = ERRORS[(nth % ERRORS.len() as u64) as usize];
        if let Err(problem) = one_failure(&mut scene, nth, error) {
            problems.push(format!("call {nth} of {calls} gives {error}: {problem}"));
        }
        let left = left_over(&before, &control().counters());
        let kept = sweep.warm && is_handle(&before, &control().counters());
        if !left.is_empty() && !kept {
            problems.push(format!("call {nth} of {calls} gives {error}: left over: {left}"));
        }
    }
    drop(keeper);
    let left = left_over(&start, &control().counters());
    if !left.is_empty() {
        problems.push(format!("left over after all: {left}"));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Objects that are alive and were not before.
fn left_over(before: &Counters, after: &Counters) -> String {
    let pairs = before.live().into_iter().zip(after.live());
    let more = pairs.filter(|((_, before), (_, after))| before != after);
    more.map(|((what, before), (_, after))| format!("{what} {before} → {after}")).collect::<Vec<_>>().join(", ")
}

/// True if no more was made than stays while the device is in use: for a stream whose executions MIOpen is asked for,
/// since recording failed, a MIOpen handle with kernels of its own; and one with its stream and scratch memory in place
/// of a handle that failed, which stays as long as launches that were recorded of it.
fn is_handle(before: &Counters, after: &Counters) -> bool {
    before.live().into_iter().zip(after.live()).all(|((what, before), (_, after))| match what {
        "streams" | "modules" | "allocations" => (before..=before + 1).contains(&after),
        "bytes" => before <= after,
        _ => before == after,
    })
}

fn one_failure(scene: &mut Scene, nth: u64, error: i32) -> Result<(), String> {
    let mut handle = None;
    let injected = control().counters().injected_failures;
    control().fail_call(c"*", nth, error);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.attempt(&mut handle)));
    control().fail_clear();
    let failed = control().counters().injected_failures - injected;
    // What failed as a call of the plugin's is not to come up in a call of ours.
    hip().take_last_error();
    control().clear_errors();
    let synchronized = scene.stream.synchronize();
    let outcome = outcome.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    })?;
    match outcome {
        Ok(()) => {
            synchronized.map_err(|error| format!("success, then {error}"))?;
            scene.check().map_err(|problem| format!("success, but {problem}"))?;
        }
        Err(_) if failed == 0 => return Err("an error although no call failed".to_owned()),
        Err(error) => is_told(&error)?,
    }
    scene.memory.reset(0xff)?;
    scene.attempt(&mut handle).map_err(|error| format!("the same handle afterwards: {}", told(&error)))?;
    scene.check().map_err(|problem| format!("the same handle afterwards: {problem}"))
}

/// A kernel that fails while candidates are tried must not lead to a plan that nobody tried.
fn kernels_fail() -> Outcome {
    for sweep in &SWEEPS {
        let mut scene = Scene::new(sweep)?;
        for nth in 1..=6 {
            let mut handle = None;
            control().fail_call(c"kernel", nth, 719);
            let before = control().counters().injected_failures;
            let outcome = scene.attempt(&mut handle);
            let synchronized = scene.stream.synchronize();
            let failed = control().counters().injected_failures - before;
            control().fail_clear();
            hip().take_last_error();
            let what = format!("{}, kernel {nth}", sweep.name);
            match (outcome, synchronized) {
                (Ok(()), Ok(())) => scene.check().map_err(|problem| format!("{what}: {problem}"))?,
                // The kernel of the execution itself: the stream tells.
                (Ok(()), Err(_)) if failed > 0 => {}
                (Ok(()), Err(error)) => return Err(format!("{what}: {error}").into()),
                (Err(error), _) => is_told(&error).map_err(|problem| format!("{what}: {problem}"))?,
            }
            scene.memory.reset(0xff)?;
            scene.attempt(&mut handle).map_err(|error| format!("{what}, afterwards: {}", told(&error)))?;
            scene.check().map_err(|problem| format!("{what}, afterwards: {problem}"))?;
        }
    }
    Ok(())
}

/// With less and less memory left on the device a plan is built and runs, or an error says so.
fn memory_is_short() -> Outcome {
    let mut scene = Scene::new(&SWEEPS[3])?;
    for room in [0, 64, 1 << 10, 16 << 10, 256 << 10, 4 << 20] {
        let before = control().counters();
        control().set_memory_limit(before.live_bytes + room, 0);
        let mut handle = None;
        let outcome = scene.attempt(&mut handle);
        control().set_memory_limit(0, 0);
        hip().take_last_error();
        match outcome {
            Ok(()) => scene.check().map_err(|problem| format!("{room} bytes left: {problem}"))?,
            Err(error) => is_told(&error).map_err(|problem| format!("{room} bytes left: {problem}"))?,
        }
        scene.stream.synchronize().map_err(|error| error.to_string())?;
        scene.attempt(&mut handle).map_err(|error| format!("{room} bytes were left, afterwards: {}", told(&error)))?;
        scene.check().map_err(|problem| format!("{room} bytes were left, afterwards: {problem}"))?;
        drop(handle);
        let left = left_over(&before, &control().counters());
        if !left.is_empty() {
            return Err(format!("{room} bytes left: left over: {left}").into());
        }
    }
    Ok(())
}
