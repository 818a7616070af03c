//! Choosing a solver for a convolution, and making it ready to launch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_kernel::convolution::ConvolutionProblem;

use super::Miopen;
use super::cache::uncompiled;
use super::choice::{Choice, Effort, KIND, Policy, Verdict};
use super::convolution::{Calls, Solution, Tensors, naive_solver};
use super::handles::{Builder, Handles};
pub use super::prepared::PreparedConvolution;
use super::prepared::{Path, Solver};
use super::record::{Addresses, operand};
use super::trial::{Outcome, Scratch, Subject};
use super::{search, trial};
use crate::hip::{Event, Queue};
use crate::store::{Store, missing};
use crate::{folders, jit};

/// Answer of MIOpen and the machine about a problem.
enum Asked {
    Taken,
    Refused(String),
    /// MIOpen has solvers, and something that they may need does not work.
    Unsure(Error),
}

/// Checks that MIOpen has a solver for the problem and the means to compile it: the policy's earlier choice, a compiler
/// that works, or else the solver that it chooses now. The answer is remembered.
///
/// # Errors
/// If there is none, with the reason. A device or a machine that does not work is a reason too, and is not remembered.
pub fn supported(miopen: &Miopen, problem: &ConvolutionProblem, policy: &Policy, store: &Store) -> Result<(), String> {
    problem.check()?;
    let key = problem.to_string();
    if let Some(answer) = miopen.memo().answer(&key) {
        return answer;
    }
    let handles = miopen.handles();
    let asked = handles.build(|builder| {
        let calls = Calls::new(handles.library(), problem, false)?;
        match calls.solutions(builder.handle()) {
            Ok(solutions) if solutions.is_empty() => Ok(Asked::Refused("MIOpen has no solution".to_string())),
            Ok(_) => {
                folders::room()?;
                Ok(match is_kept(miopen, builder, problem, policy, &calls, store) {
                    true => Asked::Taken,
                    false => compiles(handles).map_or_else(Asked::Unsure, |()| Asked::Taken),
                })
            }
            // MIOpen's answer; all other errors may be a failure behind it, and are no answer.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Asked::Refused(error.to_string())),
            Err(error) => Err(match folders::writable() {
                Ok(()) => error,
                Err(reason) => Error::new(error.kind(), format!("{error}; {reason}")),
            }),
        }
    });
    let answer = match asked.map_err(|error| error.to_string())? {
        Asked::Taken => Ok(()),
        Asked::Refused(reason) => Err(reason),
        // Nothing but building it tells.
        Asked::Unsure(reason) => match prepare(miopen, problem, policy, store) {
            Ok(_) => Ok(()),
            Err(error) => return Err(format!("{reason}; {error}")),
        },
    };
    miopen.memo().remember_answer(key, answer.clone());
    answer
}

/// True if MIOpen still has the solver that an earlier process chose: then no compiler is needed.
fn is_kept(
    miopen: &Miopen,
    builder: &Builder,
    problem: &ConvolutionProblem,
    policy: &Policy,
    calls: &Calls,
    store: &Store,
) -> bool {
    let keys = policy.effort.and_more().map(|effort| policy.key(miopen.handles().fingerprint(), problem, effort));
    let mut chosen =
        keys.filter_map(|key| miopen.memo().recall(KIND, &key, store)).map(|choice| choice.solution.solver);
    // Matrix products compile what they need when they first run.
    chosen.any(|solver| {
        !Solver(miopen.handles().library(), solver).is_product() && calls.compile(builder.handle(), solver).is_ok()
    })
}

/// Checks that MIOpen's kernels compile, as far as can be told without compiling one.
fn compiles(handles: &Handles) -> Result<(), Error> {
    folders::writable()?;
    match handles.library().loaded.has_hiprtc {
        true => jit::compiler(handles.device()),
        false => Err(Error::new(ErrorKind::Device, "MIOpen compiles by another library than hiprtc")),
    }
}

/// Chooses a solver and makes it ready.
///
/// A choice that was made before, by this process or another, is repeated without asking MIOpen what it offers.
///
/// # Errors
/// If no solver is left; the message names all that were tried, and why each was given up.
pub fn prepare(
    miopen: &Miopen,
    problem: &ConvolutionProblem,
    policy: &Policy,
    store: &Store,
) -> Result<PreparedConvolution, Error> {
    problem.check().map_err(Error::invalid_value)?;
    // Whatever the cache holds, what the policy refuses is not used.
    let usable = |choice: &Choice| policy.refuses(choice.solution).is_none();
    let known = || {
        let keys = policy.effort.and_more().map(|effort| policy.key(miopen.handles().fingerprint(), problem, effort));
        keys.filter_map(|key| miopen.memo().recall(KIND, &key, store).filter(usable).map(|choice| (key, choice)))
    };
    let found = match policy.effort {
        Effort::Tune if !store.is_sealed() && known().next().is_none() && folders::room().is_ok() => {
            search::search(miopen.handles(), problem, policy).unwrap_or_else(|error| {
                log::warn!("{problem}: MIOpen's search failed: {error}");
                Vec::new()
            })
        }
        _ => Vec::new(),
    };
    let handles = miopen.handles();
    let prepared = handles.build(|builder| {
        let work = Work { handles, builder, problem, policy, found };
        // Asked with the builder in hand: what another thread has chosen meanwhile is not chosen again.
        if store.is_sealed() {
            let (_, choice) = known().next().ok_or_else(|| missing("choice of a solver"))?;
            return uncompiled(|| work.repeat(&choice)).map(|(prepared, _)| prepared);
        }
        for (key, choice) in known() {
            match work.repeat(&choice) {
                Ok((prepared, again)) => {
                    if again != choice {
                        miopen.memo().remember(KIND, key, again, store);
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
        miopen.memo().remember(KIND, policy.key(miopen.handles().fingerprint(), problem, policy.effort), choice, store);
        Ok(prepared)
    });
    let prepared = prepared.map_err(|error| error.within(problem))?;
    log::info!("{problem}: {}", prepared.describe());
    Ok(prepared)
}

struct Work<'a> {
    handles: &'a Arc<Handles>,
    builder: &'a Arc<Builder>,
    problem: &'a ConvolutionProblem,
    policy: &'a Policy,
    /// By MIOpen's own search, best first.
    found: Vec<Solution>,
}

/// A candidate that works.
type Made = (PreparedConvolution, Choice);

impl Work<'_> {
    fn calls(&self) -> Result<Calls, Error> {
        Calls::new(self.handles.library(), self.problem, self.policy.fp16_alternative)
    }

    /// Scratch memory, or why there is none. Then launches can be neither tried nor recorded.
    fn scratch(&self) -> Result<Scratch, String> {
        Scratch::new(self.handles.device().gpu(), self.problem).map_err(|error| {
            log::warn!("{}: no memory to try solvers with, MIOpen is called at each launch: {error}", self.problem);
            error.to_string()
        })
    }

    /// Makes ready what was chosen before.
    fn repeat(&self, choice: &Choice) -> Result<Made, Error> {
        let Solution { solver, workspace } = choice.solution;
        // What MIOpen was tuned to since may change what a solver needs.
        let needed = self.calls()?.workspace(self.builder.handle(), solver)?;
        if needed > workspace {
            let text = format!("expected {workspace} bytes of workspace, as when it was chosen, got {needed}");
            return Err(Error::new(ErrorKind::Device, text));
        }
        if choice.verdict == Verdict::Same
            && self.policy.recorded
            && let Some(prepared) = self.again(choice)?
        {
            return Ok((prepared, choice.clone()));
        }
        let scratch = match &choice.verdict {
            Verdict::Refused(reason) => Err(reason.clone()),
            _ if !self.policy.recorded => Err(NOT_WANTED.to_string()),
            _ => self.scratch(),
        };
        self.make(choice.solution, choice, &scratch)
    }

    /// Makes a solver ready whose launches were tried before, if they can be recorded without scratch memory.
    fn again(&self, choice: &Choice) -> Result<Option<PreparedConvolution>, Error> {
        let Choice { solution: Solution { solver, workspace }, milliseconds, .. } = *choice;
        let (calls, handle) = (self.calls()?, self.builder.handle());
        calls.compile(handle, solver)?;
        let run = |at: &Addresses| {
            // SAFETY: it is only captured.
            unsafe { calls.run(handle, solver, &Tensors::at(at, workspace)) }
        };
        let operands: &[usize] = match workspace {
            0 => &[operand::X, operand::W, operand::Y],
            _ => &[operand::X, operand::W, operand::Y, operand::WORKSPACE],
        };
        Ok(trial::again(self.builder, operands, &run).map(|recording| PreparedConvolution {
            handles: Arc::clone(self.handles),
            problem: self.problem.clone(),
            workspace,
            solver,
            milliseconds,
            path: Path::Recorded { recording, code: Arc::clone(self.builder) },
        }))
    }

    fn choose(&self) -> Result<Made, Error> {
        let started = Instant::now();
        let mut given_up = Vec::new();
        let scratch = self.scratch();
        let candidates = self.candidates(&mut given_up);
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
                    let solver = Solver(self.handles.library(), solution.solver);
                    log::warn!("{}: {solver} is given up: {error}", self.problem);
                    given_up.push((error.kind(), format!("{solver}: {error}")));
                }
            }
        }
        best.ok_or_else(|| none_left(&given_up))
    }

    /// Solutions to try, in order.
    fn candidates(&self, given_up: &mut Vec<(ErrorKind, String)>) -> Vec<Solution> {
        let handle = self.builder.handle();
        let calls = match self.calls() {
            Ok(calls) => calls,
            Err(error) => {
                given_up.push((error.kind(), error.to_string()));
                return Vec::new();
            }
        };
        let mut all = self.found.clone();
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
        let naive = naive_solver(self.problem.direction);
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
        let handle = self.builder.handle();
        calls.compile(handle, solution.solver)?;
        let finish = |verdict: Verdict, path: Path| {
            let prepared = PreparedConvolution {
                handles: Arc::clone(self.handles),
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
            let tensors = Tensors::at(at, solution.workspace);
            // SAFETY: the addresses are those of scratch memory of the problem's sizes.
            unsafe { calls.run(handle, solution.solver, &tensors) }
        };
        let (gpu, stream) = (self.handles.device().gpu(), &self.builder.stream);
        let subject = Subject { gpu, stream, scratch, workspace: &workspace, run: &run };
        let trial = match known.verdict {
            Verdict::Same => None,
            // MIOpen's own call: a solver that can't run is found out here.
            _ => Some(subject.run()?),
        };
        if !self.policy.recorded {
            return finish(known.verdict.clone(), Path::Called { calls, reason: NOT_WANTED.to_string() });
        }
        match subject.record(trial.as_ref()) {
            Outcome::Recorded(recording) => {
                finish(Verdict::Same, Path::Recorded { recording, code: Arc::clone(self.builder) })
            }
            Outcome::Refused(reason) => {
                log::warn!("{}: solver {} is not repeated: {reason}", self.problem, solution.solver);
                finish(Verdict::Refused(reason.clone()), Path::Called { calls, reason })
            }
            Outcome::Failed(error) => degraded(calls, &error),
        }
    }

    /// Measures a candidate on scratch memory, for no longer than `left` and a little.
    fn timed(&self, made: Made, scratch: &Result<Scratch, String>, left: Duration) -> Result<Made, Error> {
        /// Enough for the smallest time to be steady.
        const MOST_RUNS: usize = 20;
        let (mut prepared, mut choice) = made;
        let Ok(scratch) = scratch else { return Ok((prepared, choice)) };
        let Ok(workspace) = scratch.workspace(prepared.workspace) else { return Ok((prepared, choice)) };
        let (gpu, stream, at) = (self.handles.device().gpu(), &self.builder.stream, scratch.place(&workspace, 0));
        let [start, stop] = [Event::new(gpu)?, Event::new(gpu)?];
        let started = Instant::now();
        // One candidate must not use up the time of all.
        let left = left.min(self.policy.search_time / 4);
        let mut least = f32::INFINITY;
        for _ in 0..MOST_RUNS {
            start.record(stream)?;
            match &prepared.path {
                Path::Recorded { recording, .. } => {
                    // SAFETY: the builder keeps the code; the addresses are those of scratch memory.
                    unsafe { recording.launch(gpu, &mut Queue::new(stream.raw().cast()), &at) }?
                }
                Path::Called { calls, .. } => {
                    let tensors = Tensors::at(&at, prepared.workspace);
                    // SAFETY: the builder's handle is on its stream; the addresses are those of scratch memory as large
                    // as the operands.
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
