//! Streams that run later, several at once, and plans that several handles, threads and devices use.

use std::sync::{Arc, Barrier};

use hipdnn_rs_integration_tests::plugin::{Handle, Plugin};
use hipdnn_schemas::{DataType, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::PluginStatus;

use crate::bench::{Bench, Memory, config, control, hip, plugin, told};
use crate::case::{Case, Layout};
use crate::child::Child;
use crate::harness::{Outcome, Test};
use crate::table::{fused, sample};

/// The longest delay before a piece of work, in microseconds.
const DELAY_US: u64 = 1500;

/// The role: works on two devices.
pub(crate) const ROLE: &str = "two devices";

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for seed in [1, 2, 3, 4] {
        tests.push(Test::new(format!("delayed, seed {seed}"), move || delayed(seed)));
        tests.push(Test::new(format!("eight threads with their own handles, seed {seed}"), move || threads(seed)));
        tests.push(Test::new(format!("plans shared by four streams, seed {seed}"), move || shared(seed)));
    }
    tests.push(Test::new("held streams: execute does not wait", held));
    tests.push(Test::new("a plan outlives its handle", outlives));
    tests.push(Test::new("plans are built while another thread captures", built_while_capturing));
    tests.push(Test::new("the default stream", default_stream));
    tests.push(Test::new("a handle changes its stream", changed_stream));
    tests.push(Test::new("many streams leave no more than a few handles of MIOpen", many_streams));
    tests.push(Test::new("the host may not touch device memory", || match std::env::var_os("HIPEMU_HOST_ACCESS") {
        None => Ok(()),
        Some(value) => Err(format!("HIPEMU_HOST_ACCESS is {}", value.display()).into()),
    }));
    tests.push(Test::new("two devices", || {
        Child::of(ROLE).env("HIPEMU_DEVICES", "2").succeeds()?;
        Ok(())
    }));
    tests
}

/// Delays while it lives.
struct Delays;

impl Delays {
    fn new(seed: u64) -> Delays {
        control().set_delay(DELAY_US, seed);
        Delays
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        control().set_delay(0, 1);
    }
}

/// Plans are built, tried and run while every piece of work comes late.
fn delayed(seed: u64) -> Outcome {
    let bench = Bench::new(&plugin())?;
    let _delays = Delays::new(seed);
    for case in sample() {
        bench.run(&case, &[]).map_err(|problem| format!("{}: {problem}", case.name()))?;
    }
    Ok(())
}

fn threads(seed: u64) -> Outcome {
    const THREADS: usize = 8;
    let plugin = plugin();
    let _delays = Delays::new(seed);
    let (cases, barrier) = (sample(), Barrier::new(THREADS));
    let run = |thread: usize| -> Result<(), String> {
        let bench = Bench::new(&plugin);
        barrier.wait();
        let bench = bench?;
        for turn in 0..4 {
            // Equal problems meet, and different ones too.
            let case = &cases[(thread / 2 * 4 + turn + seed as usize) % cases.len()];
            bench.run(case, &[]).map_err(|problem| format!("thread {thread}, {}: {problem}", case.name()))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        all.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })?;
    Ok(())
}

/// One plan, executed at once by four threads, each with a handle, a stream and memory of its own.
fn shared(seed: u64) -> Outcome {
    const STREAMS: usize = 4;
    let plugin = plugin();
    let builder = Bench::new(&plugin)?;
    let _delays = Delays::new(seed);
    for case in sample().into_iter().skip(seed as usize % 2).step_by(2) {
        let plan = builder.plan(&case.graph(), &[])?;
        let (function, raw) = (plugin.functions().execute_op_graph, SharedPlan(plan.raw()));
        let (wanted, workspace) = (case.wanted(&case.values(), false), plan.workspace_bytes());
        let barrier = Barrier::new(STREAMS);
        let run = || -> Result<(), String> {
            let ready = Bench::new(&plugin).and_then(|bench| Ok((bench, Memory::new(&case, workspace)?)));
            barrier.wait();
            let (bench, mut memory) = ready?;
            let buffers = memory.buffers();
            for _ in 0..3 {
                // SAFETY: plan and handle are live, and the memory was made for the case.
                let status = unsafe {
                    function(bench.handle.raw(), raw.get(), memory.workspace(), buffers.as_ptr(), buffers.len() as u32)
                };
                if status != PluginStatus::SUCCESS {
                    return Err(format!("{status}: {}", plugin.last_error()));
                }
            }
            bench.stream.synchronize().map_err(|error| error.to_string())?;
            memory.check(&wanted)
        };
        std::thread::scope(|scope| {
            let run = &run;
            let all: Vec<_> = (0..STREAMS).map(|_| scope.spawn(run)).collect();
            all.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        })
        .map_err(|problem| format!("{}: {problem}", case.name()))?;
    }
    Ok(())
}

/// A context, which the ABI lets any thread execute.
#[derive(Clone, Copy)]
struct SharedPlan(hipdnn_sdk_bindings::hipdnn::plugin::ExecutionContextPtr);

// SAFETY: it is a key for the plugin, never dereferenced.
unsafe impl Send for SharedPlan {}
// SAFETY: the key never changes, and the ABI lets any thread execute its context.
unsafe impl Sync for SharedPlan {}

impl SharedPlan {
    fn get(self) -> hipdnn_sdk_bindings::hipdnn::plugin::ExecutionContextPtr {
        self.0
    }
}

/// While streams are held nothing runs, and a call that would wait fails: execute must neither.
fn held() -> Outcome {
    let bench = Bench::new(&plugin())?;
    for case in sample() {
        let told_of = |problem: String| format!("{}: {problem}", case.name());
        let plan = bench.plan(&case.graph(), &[]).map_err(told_of)?;
        let mut memory = Memory::new(&case, plan.workspace_bytes())?;
        let before = control().counters();
        control().hold_streams(true);
        let executed: Vec<_> = (0..2).map(|_| bench.execute(&plan, &memory)).collect();
        let after = control().counters();
        // What the host gave is read when execute returns, although nothing has run.
        memory.spoil_scalars();
        control().hold_streams(false);
        for result in executed {
            result.map_err(|error| told_of(told(&error)))?;
        }
        if (after.waits, after.violations) != (before.waits, before.violations) {
            return Err(told_of("execute waited".to_owned()).into());
        }
        if after.kernels_run != before.kernels_run || after.launches == before.launches {
            return Err(told_of("the streams were not held, or nothing was launched".to_owned()).into());
        }
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&case.wanted(&case.values(), false)).map_err(told_of)?;
    }
    Ok(())
}

/// The handle that built a plan is destroyed; another executes it.
fn outlives() -> Outcome {
    let plugin = plugin();
    let f = plugin.functions();
    for case in sample() {
        let (graph, config) = (case.graph(), config(&[]));
        let (mut builder, mut context, mut workspace) = (std::ptr::null_mut(), std::ptr::null_mut(), usize::MAX);
        // SAFETY: places for one handle, one context and one number; the bytes are readable for the calls.
        let statuses = unsafe {
            let data = hipdnn_rs_integration_tests::plugin::const_data;
            [
                (f.create)(&mut builder),
                (f.create_execution_context)(builder, &data(&config), &data(&graph), &mut context),
                (f.get_workspace_size_from_execution_context)(builder, context, &mut workspace),
                (f.destroy)(builder),
            ]
        };
        if statuses != [PluginStatus::SUCCESS; 4] {
            return Err(format!("{}: {statuses:?}: {}", case.name(), plugin.last_error()).into());
        }
        let bench = Bench::new(&plugin)?;
        let mut memory = Memory::new(&case, workspace)?;
        let buffers = memory.buffers();
        // SAFETY: the context was not destroyed, and the memory was made for its case.
        let status = unsafe {
            let handle = bench.handle.raw();
            (f.execute_op_graph)(handle, context, memory.workspace(), buffers.as_ptr(), buffers.len() as u32)
        };
        if status != PluginStatus::SUCCESS {
            return Err(format!("{}: {status}: {}", case.name(), plugin.last_error()).into());
        }
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&case.wanted(&case.values(), false)).map_err(|problem| format!("{}: {problem}", case.name()))?;
        // SAFETY: the context is live, and the handle is one of the plugin's.
        let status = unsafe { (f.destroy_execution_context)(bench.handle.raw(), context) };
        if status != PluginStatus::SUCCESS {
            return Err(format!("destroying the plan: {status}: {}", plugin.last_error()).into());
        }
    }
    Ok(())
}

/// A capture in global mode has HIP refuse what allocates or loads, from any thread, and ends in an error then; an engine
/// that builds plans meanwhile has to know.
fn built_while_capturing() -> Outcome {
    const ROOM: usize = 1 << 20;
    let plugin = plugin();
    let capturing = Bench::new(&plugin)?;
    for (turn, case) in sample().into_iter().enumerate() {
        let plan = capturing.plan(&case.graph(), &[])?;
        let mut captured = Memory::new(&case, plan.workspace_bytes())?;
        let building = Bench::new(&plugin)?;
        let mut built = Memory::new(&case, ROOM)?;
        // Solvers that nobody has asked for together yet: the choice has to be tried.
        let solvers = format!("85,86,87,{}", (u64::from(std::process::id()) << 20) + turn as u64);
        let knobs = [("hipdnn_rs.gpu.solvers", KnobValue::String(solvers))];
        let capture = capturing.stream.capture(|| {
            let build = |bench: &Bench| -> Result<(), String> {
                let plan = bench.plan(&case.graph(), &knobs)?;
                if plan.workspace_bytes() > ROOM {
                    return Err(format!("{} bytes of workspace", plan.workspace_bytes()));
                }
                bench.execute(&plan, &built).map_err(|error| told(&error))
            };
            // The handle goes to the other thread and comes back.
            let other = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let bench = building;
                    (build(&bench), bench)
                });
                thread.join().map_err(|_| "the thread panicked".to_owned())
            });
            (other, capturing.execute(&plan, &captured))
        });
        let told_of = |problem: String| format!("{}: {problem}", case.name());
        let (graph, (other, executed)) = capture.map_err(|error| told_of(error.to_string()))?;
        let (other, building) = other.map_err(told_of)?;
        other.map_err(|problem| told_of(format!("building: {problem}")))?;
        executed.map_err(|error| told_of(told(&error)))?;
        graph.launch(&capturing.stream).map_err(|error| told_of(error.to_string()))?;
        let wanted = case.wanted(&case.values(), false);
        for (bench, memory) in [(&capturing, &mut captured), (&building, &mut built)] {
            bench.stream.synchronize().map_err(|error| told_of(error.to_string()))?;
            memory.check(&wanted).map_err(told_of)?;
        }
    }
    Ok(())
}

/// A handle that was not told of a stream.
fn default_stream() -> Outcome {
    let bench = Bench::new(&plugin())?;
    // SAFETY: null stands for the default stream.
    unsafe { bench.handle.set_stream(std::ptr::null_mut()) }.map_err(|error| told(&error))?;
    let _delays = Delays::new(1);
    for case in sample() {
        let plan = bench.plan(&case.graph(), &[])?;
        let mut memory = Memory::new(&case, plan.workspace_bytes())?;
        bench.execute(&plan, &memory).map_err(|error| told(&error))?;
        hip().synchronize().map_err(|error| error.to_string())?;
        memory.check(&case.wanted(&case.values(), false)).map_err(|problem| format!("{}: {problem}", case.name()))?;
    }
    Ok(())
}

/// Work goes to the stream that the handle has when it executes, not to the one that it had when the plan was built.
fn changed_stream() -> Outcome {
    for recorded in [1, 0] {
        let bench = Bench::new(&plugin())?;
        let others = [0, 1].map(|_| hip().stream().map_err(|error| error.to_string()));
        for case in sample() {
            let knobs = [("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(recorded))];
            let plan = bench.plan(&case.graph(), &knobs)?;
            let mut memory = Memory::new(&case, plan.workspace_bytes())?;
            let wanted = case.wanted(&case.values(), false);
            for stream in &others {
                let stream = stream.as_ref().map_err(Clone::clone)?;
                memory.reset(0xff)?;
                // SAFETY: the stream outlives the handle's next change.
                unsafe { bench.handle.set_stream(stream.raw()) }.map_err(|error| told(&error))?;
                bench.execute(&plan, &memory).map_err(|error| told(&error))?;
                stream.synchronize().map_err(|error| error.to_string())?;
                memory.check(&wanted).map_err(|problem| format!("{}: {problem}", case.name()))?;
            }
        }
        // SAFETY: the handle goes back to its own stream before the others go.
        unsafe { bench.handle.set_stream(bench.stream.raw()) }.map_err(|error| told(&error))?;
    }
    Ok(())
}

/// Each stream on which MIOpen is asked has a MIOpen handle; streams that are gone must not pile them up.
fn many_streams() -> Outcome {
    const STREAMS: usize = 150;
    const MOST_MODULES: u64 = 80;
    let plugin = plugin();
    let case = &sample()[0];
    let wanted = case.wanted(&case.values(), false);
    let keeper = Bench::new(&plugin)?;
    let before = control().counters();
    for _ in 0..STREAMS {
        let bench = Bench::new(&plugin)?;
        let plan = bench.plan(&case.graph(), &[("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(0))])?;
        let mut memory = Memory::new(case, plan.workspace_bytes())?;
        bench.execute(&plan, &memory).map_err(|error| told(&error))?;
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&wanted)?;
    }
    let modules = control().counters().live_modules - before.live_modules;
    drop(keeper);
    if modules > MOST_MODULES {
        return Err(format!("{modules} modules are left of {STREAMS} streams").into());
    }
    Ok(())
}

/// In a process with two devices: each handle works on its stream's device, whichever is current in the thread that builds
/// and executes, and the calling thread's device stays what it was.
pub(crate) fn two_devices() -> Result<(), String> {
    const ROOM: usize = 1 << 20;
    let plugin: Arc<Plugin> = plugin();
    let text = |error: hipdnn_rs_integration_tests::emulator::HipError| error.to_string();
    if hip().device_count().map_err(text)? != 2 {
        return Err("there are not two devices".to_owned());
    }
    let cases: Vec<Case> = sample()
        .into_iter()
        .take(4)
        .chain([fused("2d asymmetric", DataType::Half, Layout::Last, "bias residual relu")])
        .collect();
    for device in [1, 0, 1] {
        hip().set_device(device).map_err(text)?;
        let bench = Bench::new(&plugin)?;
        for case in &cases {
            bench.run(case, &[]).map_err(|problem| format!("device {device}, {}: {problem}", case.name()))?;
            if hip().device().map_err(text)? != device {
                return Err(format!("{} left the thread on another device than {device}", case.name()));
            }
        }
        drop::<Handle>(bench.handle);
    }
    // A thread that has not chosen a device is on the first one.
    for device in [1, 0] {
        hip().set_device(device).map_err(text)?;
        let mut bench = Bench::new(&plugin)?;
        for (case, recorded) in cases.iter().flat_map(|case| [(case, 1), (case, 0)]) {
            let knobs = [("hipdnn_rs.gpu.recorded_launches", KnobValue::Int(recorded))];
            let mut memory = Memory::new(case, ROOM)?;
            let elsewhere = |bench: &Bench| -> Result<(), String> {
                let plan = bench.plan(&case.graph(), &knobs)?;
                if plan.workspace_bytes() > ROOM {
                    return Err(format!("{} bytes of workspace", plan.workspace_bytes()));
                }
                bench.execute(&plan, &memory).map_err(|error| told(&error))?;
                match hip().device().map_err(text)? {
                    0 => Ok(()),
                    other => Err(format!("the thread is left on device {other}")),
                }
            };
            // The handle goes to the other thread and comes back.
            let other = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let bench = bench;
                    (elsewhere(&bench), bench)
                });
                thread.join().map_err(|_| "the thread panicked".to_owned())
            });
            let worked;
            (worked, bench) = other?;
            let told_of = |problem: String| format!("a fresh thread, device {device}, {}: {problem}", case.name());
            worked.map_err(told_of)?;
            bench.stream.synchronize().map_err(|error| told_of(text(error)))?;
            memory.check(&case.wanted(&case.values(), false)).map_err(told_of)?;
        }
    }
    // Handles of both devices alive, used in turn.
    let mut both = Vec::new();
    for device in [0, 1] {
        hip().set_device(device).map_err(text)?;
        both.push(Bench::new(&plugin)?);
    }
    for case in &cases {
        for (device, bench) in both.iter().enumerate() {
            hip().set_device(device as i32).map_err(text)?;
            bench.run(case, &[]).map_err(|problem| format!("in turn, device {device}, {}: {problem}", case.name()))?;
        }
    }
    Ok(())
}
