//! Processes that run cases, so that one that dies takes only its case with it.
//!
//! The parent writes one job a line, the worker answers with one line of JSON. Whatever else a plugin prints is passed over.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hipdnn_schemas::{Graph, GraphDef};
use serde::{Deserialize, Serialize};

use crate::cases::{self, Case};
use crate::execute::Tolerance;
use crate::random;
use crate::run::{Engine, Outcome, timed};

/// Job of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// A case of the suite, by its place.
    Case(usize),
    /// The random graph of that seed.
    Random(u64),
    /// A graph in JSON, with inputs of that seed.
    Graph(u64, String),
}

/// Result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The case's name.
    pub name: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// Outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Engine under test, its memory and its options.
#[derive(Clone, Debug)]
pub struct Target {
    /// The plugin library.
    pub plugin: PathBuf,
    /// The engine's name.
    pub engine: String,
    /// True if it works on host memory.
    pub on_host: bool,
    /// Knobs that every plan gets, by name and value.
    pub knobs: Vec<(String, String)>,
    /// Deviations that the engine is allowed beyond its graphs.
    pub tolerance: Tolerance,
    /// True if engines are only asked for their claims.
    pub claims: bool,
    /// Number of override shapes that each graph is executed with, in place of its own shape.
    pub overrides: usize,
}

impl Target {
    /// The arguments that tell a worker of it.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--worker".into(), "--plugin".into(), self.plugin.clone().into()];
        arguments.extend(
            ["--engine", &self.engine, "--memory", if self.on_host { "host" } else { "device" }].map(OsString::from),
        );
        for (name, value) in &self.knobs {
            arguments.extend(["--knob".into(), format!("{name}={value}").into()]);
        }
        if self.tolerance.narrow_intermediates {
            arguments.push("--narrow-intermediates".into());
        }
        if self.claims {
            arguments.push("--claims".into());
        }
        if self.overrides > 0 {
            arguments.extend(["--overrides".into(), self.overrides.to_string().into()]);
        }
        arguments
    }
}

/// Prefix of an answer's line.
const ANSWER: &str = "conformance-report ";

/// Timeout of a case, which only hangs exceed; compiling kernels for a GPU may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);

impl Job {
    fn text(&self) -> String {
        match self {
            Job::Case(index) => format!("case {index}"),
            Job::Random(seed) => format!("random {seed}"),
            Job::Graph(seed, json) => format!("graph {seed} {json}"),
        }
    }

    fn parse(text: &str) -> Option<Job> {
        let (kind, number) = text.trim().split_once(' ')?;
        match kind {
            "graph" => {
                let (seed, json) = number.split_once(' ')?;
                Some(Job::Graph(seed.parse().ok()?, json.to_string()))
            }
            "case" => Some(Job::Case(number.parse().ok()?)),
            "random" => Some(Job::Random(number.parse().ok()?)),
            _ => None,
        }
    }

    /// The name that reports and messages use.
    pub fn name(&self, cases: &[Case]) -> String {
        match self {
            Job::Case(index) => cases[*index].name.clone(),
            Job::Random(seed) => format!("random/{seed}"),
            Job::Graph(seed, _) => format!("graph/{seed}"),
        }
    }

    /// Case of the job.
    ///
    /// # Errors
    /// If the JSON is no graph.
    pub fn case(&self, cases: &[Case]) -> Result<Case, String> {
        match self {
            Job::Case(index) => Ok(cases[*index].clone()),
            Job::Random(seed) => Ok(random::case(*seed)),
            Job::Graph(seed, json) => {
                let graph = GraphDef::from_json(json).map_err(|problem| problem.to_string())?;
                Ok(Case { name: self.name(cases), graph, seed: *seed, fills: HashMap::new(), refused: false })
            }
        }
    }
}

/// Serves jobs from the standard input until it ends.
///
/// # Errors
/// If the engine can't be opened or a job can't be read.
pub fn serve(target: &Target) -> Result<(), String> {
    let engine = Engine::open(&target.plugin, &target.engine, target.on_host)?;
    let engine = engine.with_knobs(target.knobs.clone()).with_tolerance(target.tolerance);
    let cases = cases::all()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|problem| problem.to_string())?;
        let job = Job::parse(&line).ok_or_else(|| format!("not a job: {line:?}"))?;
        let (outcome, seconds) = match job.case(&cases) {
            Ok(case) => timed(|| match target.overrides {
                _ if target.claims => engine.claim(&case),
                0 => engine.run(&case),
                count => engine.override_shapes(&case, count),
            }),
            Err(reason) => (Outcome::Failed { reason }, 0.0),
        };
        let report = Report { name: job.name(&cases), seconds, outcome };
        let text = serde_json::to_string(&report).map_err(|problem| problem.to_string())?;
        let mut out = std::io::stdout().lock();
        // The line break before it ends what a plugin may have printed without one.
        let written = writeln!(out, "\n{ANSWER}{text}").and_then(|()| out.flush());
        written.map_err(|problem| problem.to_string())?;
    }
    Ok(())
}

/// Runs the jobs in that many processes and calls `done` with each report, in the order of finishing.
///
/// # Errors
/// If no worker can be started.
pub fn run(
    target: &Target,
    cases: &[Case],
    jobs: &[Job],
    processes: usize,
    done: impl FnMut(Report) + Send,
) -> Result<(), String> {
    let next = Mutex::new(jobs.iter());
    let done = Mutex::new(done);
    let report = |report: Report| (done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))(report);
    let take = || next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processes.clamp(1, jobs.len().max(1)))
            .map(|_| {
                scope.spawn(|| -> Result<(), String> {
                    let mut worker = None;
                    while let Some(job) = take() {
                        if worker.is_none() {
                            worker = Some(Worker::start(target)?);
                        }
                        let started = Instant::now();
                        match worker.as_mut().expect("it was just started").run(job) {
                            Ok(answer) => report(answer),
                            Err(reason) => {
                                worker = None;
                                let seconds = started.elapsed().as_secs_f64();
                                report(Report { name: job.name(cases), seconds, outcome: Outcome::Failed { reason } });
                            }
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread died".into())))
    })
}

/// The smallest graph that still fails, by steps of `random::smaller`, and its failure.
///
/// # Errors
/// If no worker can be started.
pub fn shrink(target: &Target, case: &Case) -> Result<(GraphDef, String), String> {
    let mut worker = None;
    let mut fails = |graph: &GraphDef| -> Result<Option<String>, String> {
        if worker.is_none() {
            worker = Some(Worker::start(target)?);
        }
        let job = Job::Graph(case.seed, graph.to_json());
        match worker.as_mut().expect("it was just started").run(&job) {
            Ok(Report { outcome: Outcome::Failed { reason }, .. }) => Ok(Some(reason)),
            Ok(_) => Ok(None),
            Err(reason) => {
                worker = None;
                Ok(Some(reason))
            }
        }
    };
    let mut smallest = case.graph.clone();
    let mut reason = fails(&smallest)?.unwrap_or_else(|| "it fails only together with others".into());
    'again: loop {
        for graph in random::smaller(&smallest) {
            // An operand that is now given from outside may be one that its readers can't do with.
            if Graph::new(graph.clone()).is_err() {
                continue;
            }
            if let Some(other) = fails(&graph)?.filter(|reason| !reason.contains("the executor can't tell")) {
                (smallest, reason) = (graph, other);
                continue 'again;
            }
        }
        return Ok((smallest, reason));
    }
}

/// A command that starts this program as it was started: perhaps by a dynamic loader of its own, whose arguments stand
/// before the program's in the kernel's record.
fn this_program() -> Result<Command, String> {
    let started = std::env::current_exe().map_err(|problem| problem.to_string())?;
    let record = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<&[u8]> = record.split(|byte| *byte == 0).collect();
    // The record ends in a NUL, which leaves an empty word.
    let own = std::env::args_os().count().saturating_sub(1) + 1;
    let before = words.get(1..words.len().saturating_sub(own)).unwrap_or_default();
    let mut command = Command::new(started);
    command.args(before.iter().map(|word| OsStr::from_bytes(word)));
    Ok(command)
}

/// A process that runs jobs, one at a time.
struct Worker {
    child: Child,
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    fn start(target: &Target) -> Result<Worker, String> {
        let mut command = this_program()?;
        command.args(target.arguments());
        if target.on_host {
            // An engine for host memory stands back where there is a GPU, unless it is asked to step forward.
            command.env("HIPDNN_RS_CPU_ENGINE", "on");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|problem| format!("a worker can't be started: {problem}"))?;
        let jobs = child.stdin.take().ok_or("the worker has no input")?;
        let output = child.stdout.take().ok_or("the worker has no output")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(ANSWER)
                    && sender.send(answer.to_string()).is_err()
                {
                    return;
                }
            }
        });
        Ok(Worker { child, jobs, answers })
    }

    fn run(&mut self, job: &Job) -> Result<Report, String> {
        if writeln!(self.jobs, "{}", job.text()).and_then(|()| self.jobs.flush()).is_err() {
            return Err(self.death());
        }
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => serde_json::from_str(&answer).map_err(|problem| format!("the worker's answer: {problem}")),
            Err(RecvTimeoutError::Disconnected) => Err(self.death()),
            Err(RecvTimeoutError::Timeout) => Err(format!("it was not done after {} s", PATIENCE.as_secs())),
        }
    }

    fn death(&mut self) -> String {
        use std::os::unix::process::ExitStatusExt;
        match self.child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("the process ended with exit status {code}"),
                (_, Some(libc::SIGSEGV)) => {
                    "the process was killed by signal 11: memory outside of the buffers was touched".into()
                }
                (_, Some(signal)) => format!("the process was killed by signal {signal}"),
                _ => "the process ended".into(),
            },
            Err(problem) => format!("the process ended: {problem}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker that waits for a job has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
