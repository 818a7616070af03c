//! From the emulated runtime's trace: once a plan is built, executing it only launches.

use std::path::{Path, PathBuf};

use hipdnn_schemas::KnobValue;
use serde::Deserialize;

use crate::bench::{Bench, Knobs, Memory, control, plugin, told};
use crate::case::Case;
use crate::harness::{Ended, Outcome, Test};
use crate::table::sample;

/// A line of the trace: one of these says what it is about.
#[derive(Debug, Deserialize)]
pub(crate) struct Line {
    pub(crate) call: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) mark: Option<String>,
}

/// A file for a trace, gone afterwards.
pub(crate) struct Trace {
    path: PathBuf,
}

impl Trace {
    /// Writes down every call of this process from now on.
    pub(crate) fn start(name: &str) -> Trace {
        let trace = Trace { path: scratch(&format!("{name}-{}.jsonl", std::process::id())) };
        let _ = std::fs::remove_file(&trace.path);
        control().trace_to(&trace.path);
        trace
    }

    /// Lines that were written.
    pub(crate) fn finish(self) -> Vec<Line> {
        control().trace_off();
        read(&self.path)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        control().trace_off();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The lines of a trace file.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|problem| panic!("{line}: {problem}"))).collect()
}

/// A place below the build directory.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("miopen");
    std::fs::create_dir_all(&directory).expect("the build directory is writable");
    directory.join(name)
}

/// The HIP calls between two marks.
fn calls_between(lines: &[Line], from: &str, to: &str) -> Vec<String> {
    let place = |text: &str| {
        let found = lines.iter().position(|line| line.mark.as_deref() == Some(text));
        found.unwrap_or_else(|| panic!("the trace has no mark {text}"))
    };
    lines[place(from)..place(to)].iter().filter_map(|line| line.call.clone()).collect()
}

/// Calls that an execution may make: kernels of modules, and copies and fills that don't wait.
const LAUNCHES: [&str; 5] =
    ["hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyAsync", "hipMemcpyDtoDAsync", "hipMemsetAsync"];

/// Calls beside those when MIOpen is asked each time: it looks which device it is on, must not be refused what it does
/// while another thread captures, and must not change the thread's last error.
const OF_MIOPEN: [&str; 5] =
    ["hipGetDevice", "hipSetDevice", "hipThreadExchangeStreamCaptureMode", "hipPeekAtLastError", "hipGetLastError"];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for case in sample() {
        let one = case.clone();
        tests.push(Test::new(format!("launches only: {}", case.name()), move || launches_only(&one)));
        let one = case.clone();
        tests.push(Test::new(format!("capture: {}", case.name()), move || capture(&one)));
        tests.push(Test::new(format!("through MIOpen: {}", case.name()), move || through_miopen(&case)));
    }
    tests
}

/// The calls of a plan's first execution and of three later ones.
fn executions(case: &Case, knobs: Knobs) -> Result<[Vec<String>; 2], Ended> {
    let bench = Bench::new(&plugin())?;
    let plan = bench.plan(&case.graph(), knobs)?;
    let mut memory = Memory::new(case, plan.workspace_bytes())?;
    let trace = Trace::start("launches");
    control().mark(c"first");
    let first = bench.execute(&plan, &memory);
    control().mark(c"later");
    let later = (0..3).map(|_| bench.execute(&plan, &memory)).find(Result::is_err);
    control().mark(c"end");
    let lines = trace.finish();
    first.map_err(|error| format!("the first execution: {}", told(&error)))?;
    if let Some(Err(error)) = later {
        return Err(format!("a later execution: {}", told(&error)).into());
    }
    bench.stream.synchronize().map_err(|error| error.to_string())?;
    memory.check(&case.wanted(&case.values(), false))?;
    let calls = [("first", "later"), ("later", "end")].map(|(from, to)| calls_between(&lines, from, to));
    if calls.iter().any(|calls| !calls.iter().any(|call| call.ends_with("LaunchKernel"))) {
        return Err(format!("an execution launched nothing: {calls:?}").into());
    }
    Ok(calls)
}

fn launches_only(case: &Case) -> Outcome {
    let [first, later] = executions(case, &[])?;
    for calls in [&first, &later] {
        if let Some(other) = calls.iter().find(|call| !LAUNCHES.contains(&call.as_str())) {
            return Err(format!("an execution called {other}: {first:?}, then {later:?}").into());
        }
    }
    if later != [&first[..]; 3].concat() {
        return Err(format!("executions differ: {first:?}, then {later:?}").into());
    }
    Ok(())
}

fn through_miopen(case: &Case) -> Outcome {
    let [first, later] = executions(case, &[("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(0))])?;
    let usual = |call: &str| LAUNCHES.contains(&call) || OF_MIOPEN.contains(&call);
    for (when, calls) in [("the first", &first), ("a later", &later)] {
        if let Some(other) = calls.iter().find(|call| !usual(call)) {
            return Err(format!("{when} execution called {other}: {calls:?}").into());
        }
    }
    Ok(())
}

/// A plan that was never executed is captured, then its graph is launched twice.
fn capture(case: &Case) -> Outcome {
    let bench = Bench::new(&plugin())?;
    let plan = bench.plan(&case.graph(), &[])?;
    let mut memory = Memory::new(case, plan.workspace_bytes())?;
    memory.download()?;
    let blank = memory.results();
    let captured = bench.stream.capture(|| bench.execute(&plan, &memory));
    let (graph, executed) = captured.map_err(|error| error.to_string())?;
    executed.map_err(|error| format!("while capturing: {}", told(&error)))?;
    bench.stream.synchronize().map_err(|error| error.to_string())?;
    memory.download()?;
    if memory.results() != blank {
        return Err("the plan ran while it was captured".into());
    }
    let wanted = case.wanted(&case.values(), false);
    for round in 0..2 {
        memory.reset(0x3c)?;
        graph.launch(&bench.stream).map_err(|error| error.to_string())?;
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&wanted).map_err(|problem| format!("launch {round} of the graph: {problem}"))?;
    }
    // The plan still runs by itself.
    memory.reset(0xff)?;
    bench.execute(&plan, &memory).map_err(|error| told(&error))?;
    bench.stream.synchronize().map_err(|error| error.to_string())?;
    Ok(memory.check(&wanted)?)
}
