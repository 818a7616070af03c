//! Plans that one process stores and another runs, without a search or a compilation; and plans that are refused.

use std::path::{Path, PathBuf};

use hipdnn_conformance::cases::{Layout, Net};
use hipdnn_rs_integration_tests::emulator::GuardedMemory;
use hipdnn_rs_integration_tests::mutation::{self, mutated};
use hipdnn_rs_integration_tests::plugin::{Plan, PluginError};
use hipdnn_rs_integration_tests::tensor::AlignedBytes;
use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode, Reduction, ReductionMode};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use crate::bench::{Bench, Memory, config, control, hip, is_told, plugin, told};
use crate::case::Case;
use crate::child::{self, Child};
use crate::compiler::{self, Hiprtc};
use crate::graph_case::GraphCase;
use crate::harness::{Outcome, Test};
use crate::table;
use crate::trace::{self, scratch};

/// The role: builds plans, runs them and stores them.
pub(crate) const ROLE_STORES: &str = "stores plans";

/// The role: runs plans that were stored.
pub(crate) const ROLE_RUNS: &str = "runs stored plans";

/// The role: tries to, and tells why it can't.
pub(crate) const ROLE_REFUSED: &str = "is refused stored plans";

/// The role: tries to run plans that are damaged.
pub(crate) const ROLE_DAMAGED: &str = "is refused damaged plans";

/// The role: tries to run plans that were changed by chance.
pub(crate) const ROLE_MUTATED: &str = "meets mutated plans";

/// Number of mutations of stored plans; `HIPDNN_RS_TEST_MUTATIONS` sets another.
const MUTATIONS: u64 = 2_000;

/// Number of mutations of one process.
const MUTATIONS_OF_A_PROCESS: u64 = 2_000;

/// Variable with the first mutation of a process.
const FIRST: &str = "HIPDNN_RS_TEST_FIRST";

/// Variable with the first mutation of the next process.
const END: &str = "HIPDNN_RS_TEST_END";

/// Variable with the directory where the processes leave plans and results.
const PLACE: &str = "HIPDNN_RS_TEST_PLACE";

const CACHE: &str = "HIPDNN_RS_CACHE_DIR";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("another process runs them without a search or a compiler", travel),
        Test::new("those that need kernels that MIOpen lost are refused", lost),
        Test::new("other devices refuse them", elsewhere),
        Test::new("damaged ones are refused", || {
            let place = Place::new("damaged")?;
            place.stored()?;
            place.child(ROLE_DAMAGED).succeeds()?;
            Ok(())
        }),
        Test::new("mutated ones are refused or harmless", mutated_ones),
    ]
}

/// A fresh home, plans and the engine's cache beside it.
struct Place {
    directory: PathBuf,
}

impl Place {
    fn new(name: &str) -> Result<Place, String> {
        let directory = scratch(&format!("stored-{name}"));
        let _ = std::fs::remove_dir_all(&directory);
        for part in ["home", "other-home"] {
            std::fs::create_dir_all(directory.join(part)).map_err(|error| error.to_string())?;
        }
        Ok(Place { directory })
    }

    fn with(&self, child: Child) -> Child {
        child.env(PLACE, &self.directory).env("HOME", self.directory.join("home")).env(CACHE, "off")
    }

    fn child(&self, role: &str) -> Child {
        self.with(Child::of(role))
    }

    /// Has a process store the plans; what it wrote while it built them.
    fn stored(&self) -> Result<child::Ended, String> {
        self.child(ROLE_STORES).succeeds()
    }

    fn trace(&self) -> PathBuf {
        self.directory.join("trace.jsonl")
    }

    fn compilations(&self) -> PathBuf {
        self.directory.join("compilations")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn travel() -> Outcome {
    let place = Place::new("travel")?;
    place.stored()?;
    // Nothing compiles, and everything that is tried is counted.
    let child = compiler::child_with(ROLE_RUNS, &place.directory, Hiprtc::Counting)?;
    let child = place.with(child).env(compiler::REFUSED, "").env(compiler::COMPILATIONS, place.compilations());
    // What the environment says of a search counts when a plan is built.
    child.env("HIPEMU_TRACE", place.trace()).env("HIPDNN_FORCE_BENCHMARKING", "1").succeeds()?;
    let compilations = std::fs::read_to_string(place.compilations()).unwrap_or_default();
    if !compilations.is_empty() {
        return Err(format!("{} programs were compiled", compilations.lines().count()).into());
    }
    let lines = trace::read(&place.trace());
    let at = |text: &str| {
        let found = lines.iter().position(|line| line.mark.as_deref() == Some(text));
        found.ok_or_else(|| format!("the trace has no mark {text}"))
    };
    let built = &lines[at("build")?..at("built")?];
    let kernels = built.iter().filter(|line| line.kernel.is_some()).count();
    let calls = |name: &str| built.iter().filter(|line| line.call.as_deref() == Some(name)).count();
    if kernels != 0 || calls("hipEventElapsedTime") != 0 {
        return Err(format!(
            "{kernels} kernels ran while plans were made, {} were timed",
            calls("hipEventElapsedTime")
        )
        .into());
    }
    if calls("hipModuleLoadData") == 0 {
        return Err("no code was loaded while plans were made".into());
    }
    Ok(())
}

/// The reasons that a process gives, one for each case; those that it runs have none.
fn reasons(child: Child) -> Result<Vec<Option<String>>, String> {
    let ended = child.succeeds()?;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let of = |case: &Case| {
        let prefix = format!("{}: ", case.name());
        let line = lines.iter().find_map(|line| line.strip_prefix(&prefix));
        line.ok_or_else(|| format!("nothing was said of {}", case.name()))
            .map(|line| line.strip_prefix("refused: ").map(str::to_owned))
    };
    cases().iter().map(of).collect()
}

/// The name of the case that needs nothing of MIOpen.
const ALONE: &str = "largest of tanh";

/// A sample of convolutions with what is around them, and a graph without one.
fn cases() -> Vec<Case> {
    let mut net = Net::new(DataType::Float);
    let [x, output] = [[3, 5, 4, 6], [3, 1, 4, 6]].map(|dims| net.real("", DataType::Float, &dims, Layout::First));
    let input = net.intermediate("", DataType::Float, &[3, 5, 4, 6], Layout::First);
    net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::TanhFwd, x, input)));
    net.node(Operation::Reduction(Reduction { mode: ReductionMode::Max, input, output, is_deterministic: false }));
    let alone = GraphCase::new(ALONE.to_owned(), net);
    table::sample().into_iter().chain([alone.into()]).collect()
}

/// MIOpen's cache is a fresh one. Kernels of ours are in the plan.
fn lost() -> Outcome {
    let place = Place::new("lost")?;
    place.stored()?;
    for compiles in [false, true] {
        let home = place.directory.join("other-home");
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let child =
            place.with(compiler::child_with(ROLE_REFUSED, &place.directory, Hiprtc::Counting)?).env("HOME", &home);
        let child = if compiles { child } else { child.env(compiler::REFUSED, "") };
        let mut refused = 0;
        for (case, reason) in cases().iter().zip(reasons(child)?) {
            let name = case.name();
            match (&reason, name == ALONE) {
                (None, true) => {}
                (Some(text), false) if !compiles || text.contains("expected the plan's kernels in MIOpen's cache") => {
                    refused += 1;
                }
                // Its kernel was compiled for a case before, which was refused.
                (None, false) if compiles && refused > 0 => {}
                _ => return Err(format!("{name}: MIOpen compiles: {compiles}; refused: {reason:?}").into()),
            }
        }
        if refused == 0 {
            return Err("nothing was refused".into());
        }
    }
    Ok(())
}

/// A device that differs from the one that plans were stored for.
fn elsewhere() -> Outcome {
    let place = Place::new("elsewhere")?;
    place.stored()?;
    for (variable, value, want) in [
        ("HIPEMU_ARCH", "gfx1030", "expected a plan for \"gfx1030"),
        ("HIPEMU_CUS", "6", "6 units"),
        ("HIPEMU_DEVICES", "0", "does not compute the stored plan's graph"),
    ] {
        for reason in reasons(place.child(ROLE_REFUSED).env(variable, value))? {
            if !reason.as_ref().is_some_and(|reason| reason.contains(want)) {
                return Err(format!("{variable}={value}: expected {want:?}, got {reason:?}").into());
            }
        }
    }
    Ok(())
}

fn place() -> Result<PathBuf, String> {
    std::env::var_os(PLACE).map(PathBuf::from).ok_or_else(|| format!("{PLACE} is not set"))
}

fn plan_file(place: &Path, case: &Case) -> PathBuf {
    place.join(format!("{}.plan", case.name().replace('/', " of ")))
}

fn result_file(place: &Path, case: &Case) -> PathBuf {
    plan_file(place, case).with_extension("result")
}

/// Runs a plan, which has to compute what is right; the bits.
fn bits(bench: &Bench, plan: &Plan<'_>, case: &Case) -> Result<Vec<u8>, String> {
    let mut memory = Memory::new(case, plan.workspace_bytes())?;
    bench.execute(plan, &memory).map_err(|error| told(&error))?;
    bench.stream.synchronize().map_err(|error| error.to_string())?;
    memory.check(&case.wanted(&case.values(), false))?;
    Ok(memory.results())
}

/// The role.
pub(crate) fn stores() -> Result<(), String> {
    let (place, bench) = (place()?, Bench::new(&plugin())?);
    for case in cases() {
        let within = |problem: String| format!("{}: {problem}", case.name());
        let plan = bench.handle.plan(&config(&[]), &case.graph()).map_err(|error| within(told(&error)))?;
        let result = bits(&bench, &plan, &case).map_err(within)?;
        let stored = plan.serialized().map_err(|error| within(told(&error)))?;
        let written = std::fs::write(plan_file(&place, &case), stored);
        written.and_then(|()| std::fs::write(result_file(&place, &case), result)).map_err(|e| within(e.to_string()))?;
    }
    Ok(())
}

/// The role.
pub(crate) fn runs() -> Result<(), String> {
    let (place, bench) = (place()?, Bench::new(&plugin())?);
    let cases = cases();
    let read = |path: PathBuf| std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    control().mark(c"build");
    let plans = cases.iter().map(|case| {
        let stored = read(plan_file(&place, case))?;
        bench.handle.restored(&stored).map_err(|error| format!("{}: {}", case.name(), told(&error)))
    });
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    control().mark(c"built");
    for (case, plan) in cases.iter().zip(&plans) {
        let within = |problem: String| format!("{}: {problem}", case.name());
        if bits(&bench, plan, case).map_err(within)? != read(result_file(&place, case))? {
            return Err(within("the plan gives other bits than where it was stored".to_owned()));
        }
        if plan.serialized().map_err(|error| within(told(&error)))? != read(plan_file(&place, case))? {
            return Err(within("the plan is stored otherwise than it was".to_owned()));
        }
    }
    Ok(())
}

/// The role.
pub(crate) fn is_refused() -> Result<(), String> {
    let (place, plugin) = (place()?, plugin());
    // Without a device there is no stream either.
    let handle = plugin.handle().map_err(|error| told(&error))?;
    for case in cases() {
        let stored = std::fs::read(plan_file(&place, &case)).map_err(|error| error.to_string())?;
        match handle.restored(&stored) {
            Ok(_) => println!("{}: taken", case.name()),
            Err(error) => println!("{}: refused: {}", case.name(), error.message.replace('\n', " ")),
        }
    }
    Ok(())
}

/// The role: bytes that are flipped, cut off or added, of a plan with code of ours and of MIOpen's.
pub(crate) fn damaged() -> Result<(), String> {
    let (place, bench) = (place()?, Bench::new(&plugin())?);
    let cases = cases();
    let named = cases.iter().find(|case| case.name().contains("bias relu")).ok_or("a case with an epilogue")?;
    let stored = std::fs::read(plan_file(&place, named)).map_err(|error| error.to_string())?;
    let refused = |what: String, bytes: &[u8]| match bench.handle.restored(bytes).err() {
        Some(error) if error.message.contains("expected") && error.message.contains("got") => Ok(()),
        Some(error) => Err(format!("{what}: {}", told(&error))),
        None => Err(format!("{what}: taken")),
    };
    // Every byte of what is looked at first, and some of the code.
    let places = || (0..stored.len()).filter(|at| *at < 2048 || at % 61 == 0 || *at + 64 > stored.len());
    for at in places() {
        let mut damaged = stored.clone();
        damaged[at] ^= 1 << (at % 8);
        refused(format!("byte {at}"), &damaged)?;
        refused(format!("cut at {at}"), &stored[..at])?;
    }
    refused("longer".to_owned(), &[&stored[..], &[0]].concat())?;
    bench.handle.restored(&stored).map_err(|error| told(&error))?;
    Ok(())
}

/// A number from the environment.
fn number(name: &str, default: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}: expected a number, got {text:?}")),
        Err(_) => Ok(default),
    }
}

/// Plans that are changed by chance, some thousand in each process.
fn mutated_ones() -> Outcome {
    let place = Place::new("mutated")?;
    place.stored()?;
    let count = number("HIPDNN_RS_TEST_MUTATIONS", MUTATIONS)?;
    let (mut taken, mut executed) = (0, 0);
    for first in (0..count).step_by(usize::try_from(MUTATIONS_OF_A_PROCESS).expect("it is small")) {
        let end = count.min(first + MUTATIONS_OF_A_PROCESS);
        let child = place.child(ROLE_MUTATED).env(FIRST, first.to_string()).env(END, end.to_string());
        let said = child.succeeds()?.stdout;
        let counts: Vec<u64> = said.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[more_taken, more_executed] = &counts[..] else { return Err(format!("two counts, got {said:?}").into()) };
        (taken, executed) = (taken + more_taken, executed + more_executed);
        println!("{end} mutations: {} refused, {taken} taken, {executed} of these executed", end - taken);
    }
    if taken > count / 4 || executed == 0 || executed < taken / 2 {
        return Err(format!("of {count} mutations {taken} are taken and {executed} executed").into());
    }
    Ok(())
}

/// The role: plans that are changed by chance, by the numbers of `HIPDNN_RS_TEST_SEED`. None ends the process, none with a
/// wrong checksum is taken, and what is taken is executed and writes nothing outside of its tensors and workspace. It says
/// how many were taken, and how many of these executed.
pub(crate) fn mutations() -> Result<(), String> {
    let (first, end, seed) = (number(FIRST, 0)?, number(END, 0)?, number("HIPDNN_RS_TEST_SEED", 15)?);
    let (place, bench) = (place()?, Bench::new(&plugin())?);
    let read = |case: &Case| std::fs::read(plan_file(&place, case)).map_err(|error| error.to_string());
    let whole = cases().iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let (mut taken, mut executed) = (0, 0);
    for index in first..end {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(index));
        let stored = &whole[random.usize(..whole.len())];
        let mutation = mutated(&mut random, stored);
        let within = |problem: String| format!("mutation {index} of seed {seed}, {}: {problem}", mutation.what);
        match bench.handle.restored(&mutation.bytes) {
            Ok(_) if mutation.is_damaged => return Err(within("it is taken".to_owned())),
            Ok(plan) => {
                taken += 1;
                match tried(&bench, &plan, &mutation.bytes).map_err(within)? {
                    Some(Ok(())) => executed += 1,
                    Some(Err(error)) => is_told(&error).map_err(within)?,
                    None => {}
                }
            }
            Err(error) => is_told(&error).map_err(within)?,
        }
    }
    println!("{taken} {executed}");
    Ok(())
}

/// Executes a plan that was taken, on memory for the tensors of its own graph. The outer error is a write outside, `None`
/// that the tensors are too large to be tried.
fn tried(bench: &Bench, plan: &Plan<'_>, stored: &[u8]) -> Result<Option<Result<(), PluginError>>, String> {
    let Some(tensors) = mutation::tensors(stored) else { return Ok(None) };
    let text = |error: hipdnn_rs_integration_tests::emulator::HipError| error.to_string();
    let mut scalars = Vec::new();
    let mut guarded = Vec::new();
    for tensor in &tensors {
        let (uid, bytes) = (tensor.uid().0, tensor.span_bytes());
        match tensor.is_runtime_pass_by_value() {
            true => scalars.push((uid, AlignedBytes::filled(bytes, 0x3c))),
            false => guarded.push((uid, GuardedMemory::new(hip(), bytes, 0, 0x3c).map_err(text)?)),
        }
    }
    let workspace = GuardedMemory::new(hip(), plan.workspace_bytes(), 0, 0xff).map_err(text)?;
    let scalar = |(uid, bytes): &mut (i64, AlignedBytes)| DeviceBuffer { uid: *uid, ptr: bytes.as_mut_ptr().cast() };
    let mut buffers: Vec<DeviceBuffer> = scalars.iter_mut().map(scalar).collect();
    buffers.extend(guarded.iter().map(|(uid, memory)| DeviceBuffer { uid: *uid, ptr: memory.address().cast() }));
    // SAFETY: each tensor of the plan's graph has memory as large as that says, which stays until the stream was waited for.
    let result = unsafe { plan.execute_with(&bench.handle, workspace.address().cast(), &buffers) };
    bench.stream.synchronize().map_err(text)?;
    workspace.read().map_err(|problem| format!("workspace: {problem}"))?;
    for (uid, memory) in &guarded {
        memory.read().map_err(|problem| format!("tensor {uid}: {problem}"))?;
    }
    Ok(Some(result))
}
