//! Choosing a solver for a convolution, and making it ready to launch.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipdnn_sdk_bindings::hip::hipStream_t;
use hipdnn_sdk_bindings::miopen::miopenConvAlgorithm_t;

use super::convolution::{Calls, ConvolutionProblem, Solution, Tensors};
use super::device::{Builder, Device};
use super::gpu::{CaptureError, Event, Gpu};
use super::record::{Addresses, Capture, OPERANDS, Recording, operand};
use super::store::Store;
use super::trial::Scratch;
use super::{search, trial};
use crate::error::{Error, ErrorKind};

/// How much is done to find a fast solver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effort {
    /// MIOpen's own ranking is believed: its databases, else its guess.
    Immediate,
    /// What MIOpen offers is timed.
    Benchmark,
    /// MIOpen searches and tunes first, which may take minutes; then what it offers is timed.
    Tune,
}

impl Effort {
    fn name(self) -> &'static str {
        match self {
            Effort::Immediate => "immediate",
            Effort::Benchmark => "benchmark",
            Effort::Tune => "tune",
        }
    }

    /// This effort's choices and, before them, those that more effort was made for.
    fn and_more(self) -> impl Iterator<Item = Effort> {
        [Effort::Tune, Effort::Benchmark, Effort::Immediate].into_iter().filter(move |effort| *effort >= self)
    }
}

/// What a solver has to satisfy, and how it is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Bytes of workspace at most; `None` for any number.
    pub workspace_limit: Option<usize>,
    /// How much is done to find a fast solver.
    pub effort: Effort,
    /// No candidate is begun past this time, but for the first. MIOpen's own search can't be stopped.
    pub search_time: Duration,
    /// Numbers of the only solvers to use; `None` for all.
    pub allow: Option<Vec<u64>>,
    /// Numbers of solvers not to use.
    pub deny: Vec<u64>,
    /// Launches may be recorded and repeated without MIOpen.
    pub recorded: bool,
    /// Backward solvers may convert fp16 to bf16 inside, on GPUs whose matrix instructions flush small fp16 numbers.
    pub fp16_alternative: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            workspace_limit: None,
            effort: Effort::Immediate,
            search_time: Duration::from_secs(10),
            allow: None,
            deny: Vec::new(),
            recorded: true,
            fp16_alternative: false,
        }
    }
}

impl Policy {
    /// Why a solution is not to be used.
    fn refuses(&self, solution: Solution) -> Option<String> {
        let Solution { solver, workspace } = solution;
        if self.deny.contains(&solver) {
            Some("it is denied".to_string())
        } else if self.allow.as_ref().is_some_and(|allowed| !allowed.contains(&solver)) {
            Some("it is not among those allowed".to_string())
        } else {
            let limit = self.workspace_limit.filter(|limit| workspace > *limit)?;
            Some(format!("it needs {workspace} bytes of workspace, the limit is {limit}"))
        }
    }

    /// The key of a choice under this policy: all that it depends on but the effort, and the effort.
    fn key(&self, device: &Device, problem: &ConvolutionProblem, effort: Effort) -> String {
        let Policy { workspace_limit, allow, deny, fp16_alternative, .. } = self;
        let (mut allow, mut deny) = (allow.clone(), deny.clone());
        allow.iter_mut().for_each(|allow| allow.sort_unstable());
        deny.sort_unstable();
        format!(
            "{problem}; {}; workspace {workspace_limit:?} allow {allow:?} deny {deny:?} fp16 alternative {fp16_alternative} {}",
            device.fingerprint(),
            effort.name()
        )
    }
}

/// Whether a solver's launches may be repeated instead of calling MIOpen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nobody has tried.
    Untried,
    /// They gave the same bits as MIOpen's call.
    Same,
    /// They must not, for this reason.
    Refused(String),
}

/// A solver that was chosen for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub(super) solution: Solution,
    pub(super) verdict: Verdict,
    pub(super) milliseconds: Option<f32>,
}

/// The kind of the cache's entries.
const KIND: &str = "convolution";

impl Choice {
    fn encode(&self) -> Vec<u8> {
        let Choice { solution: Solution { solver, workspace }, verdict, milliseconds } = self;
        let (recorded, refused) = match verdict {
            Verdict::Untried => (None, None),
            Verdict::Same => (Some(true), None),
            Verdict::Refused(reason) => (Some(false), Some(reason)),
        };
        let value = serde_json::json!({
            "solver": solver, "workspace": workspace, "recorded": recorded, "refused": refused, "ms": milliseconds,
        });
        value.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Choice> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let refused = value["refused"].as_str().unwrap_or_default();
        let verdict = match &value["recorded"] {
            serde_json::Value::Null => Verdict::Untried,
            serde_json::Value::Bool(true) => Verdict::Same,
            serde_json::Value::Bool(false) => Verdict::Refused(refused.to_string()),
            _ => return None,
        };
        Some(Choice {
            solution: Solution {
                solver: value["solver"].as_u64()?,
                workspace: usize::try_from(value["workspace"].as_u64()?).ok()?,
            },
            verdict,
            milliseconds: value["ms"].as_f64().map(|ms| ms as f32),
        })
    }
}

/// Whether MIOpen has a solver for the problem. The answer is remembered.
///
/// # Errors
/// Why not. A device that does not work is a reason too, and is not remembered.
pub fn supported(device: &Device, problem: &ConvolutionProblem) -> Result<(), String> {
    problem.check()?;
    let key = problem.to_string();
    if let Some(answer) = device.answers.lock().ok().and_then(|answers| answers.get(&key).cloned()) {
        return answer;
    }
    let answer = device.build(|builder| {
        let calls = Calls::new(device.gpu(), problem, false)?;
        Ok(calls.solutions(builder.handle()).map(|solutions| !solutions.is_empty()))
    });
    let answer = match answer.map_err(|error| error.to_string())? {
        Ok(true) => Ok(()),
        Ok(false) => Err("MIOpen has no solution".to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Ok(mut answers) = device.answers.lock() {
        answers.insert(key, answer.clone());
    }
    answer
}

/// A convolution that only needs to be launched.
#[derive(Debug)]
pub struct PreparedConvolution {
    pub(super) device: Arc<Device>,
    pub(super) problem: ConvolutionProblem,
    pub(super) workspace: usize,
    pub(super) solver: u64,
    pub(super) milliseconds: Option<f32>,
    pub(super) path: Path,
}

/// How it is launched.
#[derive(Debug)]
pub(super) enum Path {
    /// Without MIOpen.
    Recorded {
        recording: Recording,
        /// Owns the code.
        _code: Arc<Builder>,
    },
    /// By MIOpen's own call.
    Called { calls: Calls, reason: String },
}

impl PreparedConvolution {
    /// Bytes of workspace that a launch uses.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    /// The solver's number in MIOpen's registry.
    pub fn solver(&self) -> u64 {
        self.solver
    }

    /// Whether launches are repeated without MIOpen.
    pub fn is_recorded(&self) -> bool {
        matches!(self.path, Path::Recorded { .. })
    }

    /// What was chosen, in words.
    pub fn describe(&self) -> String {
        let Solver(gpu, solver) = Solver(self.device.gpu(), self.solver);
        let mut text = format!("{}, workspace {} bytes", Solver(gpu, solver), self.workspace);
        match &self.path {
            Path::Recorded { recording, .. } => text += &format!(", recorded in {} piece(s)", recording.len()),
            Path::Called { reason, .. } => text += &format!(", called through MIOpen ({reason})"),
        }
        if let Some(milliseconds) = self.milliseconds {
            text += &format!(", {milliseconds:.4} ms when it was chosen");
        }
        text
    }

    /// Launches it on a stream.
    ///
    /// # Safety
    /// The stream is one of the plan's device, and the addresses are those of device memory as large as the problem's
    /// tensors and the workspace, which stays until the stream has done the work.
    ///
    /// # Errors
    /// If HIP or MIOpen refuses.
    pub unsafe fn launch(
        &self,
        stream: *mut c_void,
        x: *mut u8,
        w: *mut u8,
        y: *mut u8,
        workspace: *mut u8,
    ) -> Result<(), Error> {
        let stream: hipStream_t = stream.cast();
        match &self.path {
            Path::Recorded { recording, .. } => {
                let mut at: Addresses = [0; OPERANDS];
                at[operand::X] = x as u64;
                at[operand::W] = w as u64;
                at[operand::Y] = y as u64;
                at[operand::WORKSPACE] = workspace as u64;
                // SAFETY: the builder keeps the code; the rest is the caller's promise.
                let launched = unsafe { self.replay(recording, stream, &at) };
                launched.map_err(|error| self.explain(error))
            }
            Path::Called { calls, .. } => {
                let tensors = Tensors { x, w, y, workspace, workspace_bytes: self.workspace };
                // SAFETY: the caller's promise.
                let run = |handle| unsafe { calls.run(handle, self.solver, &tensors) };
                self.device.run(stream, run).map_err(|error| self.explain(error))
            }
        }
    }

    /// # Safety
    /// As [`Recording::launch`].
    pub(super) unsafe fn replay(
        &self,
        recording: &Recording,
        stream: hipStream_t,
        at: &Addresses,
    ) -> Result<(), Error> {
        let _entered = self.device.enter_for(stream)?;
        // SAFETY: the caller's promise.
        unsafe { recording.launch(self.device.gpu(), stream, at) }
    }

    fn explain(&self, error: Error) -> Error {
        error.within(format!("{}: {}", self.problem, Solver(self.device.gpu(), self.solver)))
    }
}

/// A solver's number and algorithm, for messages.
pub(super) struct Solver(pub &'static Gpu, pub u64);

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Solver(gpu, solver) = *self;
        let mut algorithm = miopenConvAlgorithm_t::miopenConvolutionAlgoGEMM;
        // SAFETY: a place for one number; MIOpen takes any solver's number.
        let status = unsafe { (gpu.miopen.miopenGetSolverIdConvAlgorithm)(solver, &mut algorithm) };
        write!(f, "solver {solver}")?;
        match gpu.check_miopen(status, "miopenGetSolverIdConvAlgorithm") {
            Ok(()) => write!(f, " ({})", algorithm.to_string().trim_start_matches("miopenConvolutionAlgo")),
            Err(_) => Ok(()),
        }
    }
}

/// Chooses a solver and makes it ready.
///
/// A choice that was made before, by this process or another, is repeated without asking MIOpen what it offers.
///
/// # Errors
/// If no solver is left; the message names all that were tried, and why each was given up.
pub fn prepare(
    device: &Arc<Device>,
    problem: &ConvolutionProblem,
    policy: &Policy,
    store: &Store,
) -> Result<PreparedConvolution, Error> {
    problem.check().map_err(Error::invalid_value)?;
    let prepared = device.build(|builder| {
        let work = Work { device, builder, problem, policy };
        for effort in policy.effort.and_more() {
            let key = policy.key(device, problem, effort);
            let Some(choice) = work.recall(&key, store) else { continue };
            match work.repeat(&choice) {
                Ok((prepared, again)) => {
                    if again != choice {
                        work.remember(key, again, store);
                    }
                    return Ok(prepared);
                }
                Err(error) => {
                    log::warn!(
                        "{problem}: the choice from before is not used: solver {}: {error}",
                        choice.solution.solver
                    );
                }
            }
        }
        let (prepared, choice) = work.choose()?;
        work.remember(policy.key(device, problem, policy.effort), choice, store);
        Ok(prepared)
    });
    let prepared = prepared.map_err(|error| error.within(problem))?;
    log::info!("{problem}: {}", prepared.describe());
    Ok(prepared)
}

struct Work<'a> {
    device: &'a Arc<Device>,
    builder: &'a Arc<Builder>,
    problem: &'a ConvolutionProblem,
    policy: &'a Policy,
}

/// A candidate that works.
type Made = (PreparedConvolution, Choice);

impl Work<'_> {
    fn recall(&self, key: &str, store: &Store) -> Option<Choice> {
        if let Some(choice) = self.device.choices.lock().ok().and_then(|choices| choices.get(key).cloned()) {
            return Some(choice);
        }
        let bytes = store.get(KIND, key)?;
        let choice = Choice::decode(&bytes);
        if choice.is_none() {
            log::info!("a cache entry is passed over, it is not a choice of a solver: {key}");
        }
        // Whatever the cache holds, what the policy refuses is not used.
        choice.filter(|choice| self.policy.refuses(choice.solution).is_none())
    }

    fn remember(&self, key: String, choice: Choice, store: &Store) {
        store.put(KIND, &key, &choice.encode());
        if let Ok(mut choices) = self.device.choices.lock() {
            choices.insert(key, choice);
        }
    }

    fn calls(&self) -> Result<Calls, Error> {
        Calls::new(self.device.gpu(), self.problem, self.policy.fp16_alternative)
    }

    /// Scratch memory, or why there is none. Then launches can be neither tried nor recorded.
    fn scratch(&self) -> Result<Scratch, String> {
        Scratch::new(self.device.gpu(), self.problem).map_err(|error| {
            log::warn!("{}: no memory to try solvers with, MIOpen is called at each launch: {error}", self.problem);
            error.to_string()
        })
    }

    /// Makes ready what was chosen before.
    fn repeat(&self, choice: &Choice) -> Result<Made, Error> {
        let scratch = match &choice.verdict {
            Verdict::Refused(reason) => Err(reason.clone()),
            _ if !self.policy.recorded => Err(NOT_WANTED.to_string()),
            _ => self.scratch(),
        };
        self.make(choice.solution, choice, &scratch)
    }

    fn choose(&self) -> Result<Made, Error> {
        let started = Instant::now();
        let mut given_up = Vec::new();
        let scratch = self.scratch();
        let candidates = self.candidates(&scratch, &mut given_up);
        let mut best: Option<Made> = None;
        for solution in candidates {
            let timed = self.policy.effort > Effort::Immediate;
            if best.is_some() && (!timed || started.elapsed() >= self.policy.search_time) {
                break;
            }
            let untried = Choice { solution, verdict: Verdict::Untried, milliseconds: None };
            let made = self.make(solution, &untried, &scratch).and_then(|made| {
                let left = self.policy.search_time.saturating_sub(started.elapsed());
                if timed { self.timed(made, &scratch, left) } else { Ok(made) }
            });
            match made {
                Ok(made) => {
                    let time = |made: &Made| made.1.milliseconds.unwrap_or(f32::INFINITY);
                    if best.as_ref().is_none_or(|best| time(&made) < time(best)) {
                        best = Some(made);
                    }
                }
                Err(error) => {
                    let solver = Solver(self.device.gpu(), solution.solver);
                    log::warn!("{}: {solver} is given up: {error}", self.problem);
                    given_up.push((error.kind(), format!("{solver}: {error}")));
                }
            }
        }
        best.ok_or_else(|| none_left(&given_up))
    }

    /// What to try, in order.
    fn candidates(&self, scratch: &Result<Scratch, String>, given_up: &mut Vec<(ErrorKind, String)>) -> Vec<Solution> {
        let handle = self.builder.handle();
        let calls = match self.calls() {
            Ok(calls) => calls,
            Err(error) => {
                given_up.push((error.kind(), error.to_string()));
                return Vec::new();
            }
        };
        let mut all = Vec::new();
        if self.policy.effort == Effort::Tune {
            match search::search(self.device, self.builder, self.problem, self.policy, &calls, scratch.as_ref().ok()) {
                Ok(found) => all.extend(found),
                Err(error) => log::warn!("{}: MIOpen's search failed: {error}", self.problem),
            }
        }
        match calls.solutions(handle) {
            Ok(offered) => {
                // A search is remembered without determinism; what MIOpen offers heeds it.
                all.retain(|found| !self.problem.deterministic || offered.iter().any(|o| o.solver == found.solver));
                all.extend(offered);
            }
            Err(error) => {
                all.retain(|_| !self.problem.deterministic);
                given_up.push((error.kind(), error.to_string()));
            }
        }
        // The last resort, which MIOpen leaves out where it thinks that it has better.
        let naive = self.problem.direction.naive_solver();
        if !all.iter().any(|solution| solution.solver == naive) {
            match calls.workspace(handle, naive) {
                Ok(workspace) => all.push(Solution { solver: naive, workspace }),
                Err(error) => given_up.push((error.kind(), format!("solver {naive}: {error}"))),
            }
        }
        let mut seen = Vec::new();
        all.retain(|solution| {
            let new = !seen.contains(&solution.solver);
            seen.push(solution.solver);
            let refused = self.policy.refuses(*solution).filter(|_| new);
            given_up.extend(
                refused
                    .iter()
                    .map(|reason| (ErrorKind::NotApplicable, format!("solver {}: {reason}", solution.solver))),
            );
            new && refused.is_none()
        });
        all
    }

    /// Compiles a solver; runs and records it where there is memory for that, and compares the two if nobody has yet.
    fn make(&self, solution: Solution, known: &Choice, scratch: &Result<Scratch, String>) -> Result<Made, Error> {
        let calls = self.calls()?;
        let (handle, stream) = (self.builder.handle(), &self.builder.stream);
        calls.compile(handle, solution.solver)?;
        let finish = |verdict: Verdict, path: Path| {
            let prepared = PreparedConvolution {
                device: Arc::clone(self.device),
                problem: self.problem.clone(),
                workspace: solution.workspace,
                solver: solution.solver,
                milliseconds: known.milliseconds,
                path,
            };
            Ok((prepared, Choice { solution, verdict, milliseconds: known.milliseconds }))
        };
        // Something failed that says nothing about the solver: the next plan tries again.
        let degraded = |calls: Calls, error: &Error| {
            log::warn!("{}: solver {} is not recorded: {error}", self.problem, solution.solver);
            finish(known.verdict.clone(), Path::Called { calls, reason: error.to_string() })
        };
        let scratch = match scratch {
            Ok(scratch) => scratch,
            Err(reason) => {
                let reason = reason.clone();
                return finish(known.verdict.clone(), Path::Called { calls, reason });
            }
        };
        let workspace = match scratch.workspace(solution.workspace) {
            Ok(workspace) => workspace,
            Err(error) => return degraded(calls, &error.within("no memory to try it with")),
        };
        let run = |at: &Addresses| {
            let tensors = Tensors {
                x: at[operand::X] as *mut u8,
                w: at[operand::W] as *mut u8,
                y: at[operand::Y] as *mut u8,
                workspace: at[operand::WORKSPACE] as *mut u8,
                workspace_bytes: solution.workspace,
            };
            // SAFETY: the addresses are those of scratch memory of the problem's sizes.
            unsafe { calls.run(handle, solution.solver, &tensors) }
        };
        let trial = match known.verdict {
            Verdict::Same => None,
            // MIOpen's own call: a solver that can't run is found out here.
            _ => Some(trial::Trial::run(scratch, &workspace, stream, &run)?),
        };
        if !self.policy.recorded {
            return finish(known.verdict.clone(), Path::Called { calls, reason: NOT_WANTED.to_string() });
        }
        let recording = match self.record(scratch, &workspace, &run) {
            Ok(recording) => recording,
            Err(CaptureError::Refused(reason)) => {
                log::warn!("{}: solver {} can't be repeated: {reason}", self.problem, solution.solver);
                return finish(Verdict::Refused(reason.clone()), Path::Called { calls, reason });
            }
            Err(CaptureError::Failed(error)) => return degraded(calls, &error),
        };
        if let Some(trial) = trial {
            let replay = |at: &Addresses| {
                // SAFETY: the builder keeps the code; the addresses are those of scratch memory.
                unsafe { recording.launch(self.device.gpu(), stream.raw(), at) }
            };
            match trial.compare(scratch, &workspace, stream, &replay) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => {
                    log::warn!("{}: solver {} is not repeated: {reason}", self.problem, solution.solver);
                    return finish(Verdict::Refused(reason.clone()), Path::Called { calls, reason });
                }
                Err(error) => return degraded(calls, &error),
            }
        }
        finish(Verdict::Same, Path::Recorded { recording, _code: Arc::clone(self.builder) })
    }

    fn record(
        &self,
        scratch: &Scratch,
        workspace: &trial::Workspace,
        run: &dyn Fn(&Addresses) -> Result<(), Error>,
    ) -> Result<Recording, CaptureError> {
        let [first, second] = [0, 1].map(|set| scratch.place(workspace, set));
        let mut captures = Vec::new();
        for at in [&first, &second] {
            captures.push(self.builder.stream.capture(|| run(at))?);
        }
        let is_memory = |word: u64| self.device.gpu().is_memory(word);
        let [first, second] = [(&captures[0], first), (&captures[1], second)].map(|(nodes, at)| Capture { nodes, at });
        Recording::new(first, second, &is_memory).map_err(CaptureError::Refused)
    }

    /// Measures a candidate on scratch memory, for no longer than `left` and a little.
    fn timed(&self, made: Made, scratch: &Result<Scratch, String>, left: Duration) -> Result<Made, Error> {
        /// Enough for the smallest time to be steady.
        const MOST_RUNS: usize = 20;
        let (mut prepared, mut choice) = made;
        let Ok(scratch) = scratch else { return Ok((prepared, choice)) };
        let Ok(workspace) = scratch.workspace(prepared.workspace) else { return Ok((prepared, choice)) };
        let (gpu, stream, at) = (self.device.gpu(), &self.builder.stream, scratch.place(&workspace, 0));
        let [start, stop] = [Event::new(gpu)?, Event::new(gpu)?];
        let started = Instant::now();
        // One candidate must not use up the time of all.
        let left = left.min(self.policy.search_time / 4);
        let mut least = f32::INFINITY;
        for _ in 0..MOST_RUNS {
            start.record(stream)?;
            match &prepared.path {
                // SAFETY: the builder keeps the code; the addresses are those of scratch memory.
                Path::Recorded { recording, .. } => unsafe { recording.launch(gpu, stream.raw(), &at) }?,
                Path::Called { calls, .. } => {
                    let [x, w, y, workspace] =
                        [operand::X, operand::W, operand::Y, operand::WORKSPACE].map(|operand| at[operand] as *mut u8);
                    let tensors = Tensors { x, w, y, workspace, workspace_bytes: prepared.workspace };
                    // SAFETY: as above.
                    unsafe { calls.run(self.builder.handle(), prepared.solver, &tensors) }?;
                }
            }
            stop.record(stream)?;
            least = least.min(start.milliseconds_to(&stop)?);
            if started.elapsed() >= left {
                break;
            }
        }
        (prepared.milliseconds, choice.milliseconds) = (Some(least), Some(least));
        log::info!("{}: solver {}: {least:.4} ms", self.problem, prepared.solver);
        Ok((prepared, choice))
    }
}

const NOT_WANTED: &str = "recording is switched off";

fn none_left(given_up: &[(ErrorKind, String)]) -> Error {
    // Only what the policy itself refused: nothing has failed.
    let unwanted = !given_up.is_empty() && given_up.iter().all(|(kind, _)| *kind == ErrorKind::NotApplicable);
    let kind = if unwanted { ErrorKind::NotApplicable } else { ErrorKind::Device };
    let reasons: Vec<&str> = given_up.iter().map(|(_, reason)| reason.as_str()).collect();
    let reasons = if reasons.is_empty() { "MIOpen offers none".to_string() } else { reasons.join("; ") };
    Error::new(kind, format!("no solver is left: {reasons}"))
}

#[cfg(test)]
mod tests;
