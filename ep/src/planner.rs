//! Plans for regions: asks the backend, with the session's options as knobs and the promise about constants.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_ep_compiler::constants::{Promise, Token};
use hipdnn_ep_compiler::model::Model;
use hipdnn_ep_compiler::print::{self, Linked};
use hipdnn_schemas::{GraphDef, KnobValue};
use rustc_hash::FxHashMap;

use crate::backend::{Context, EngineChoice, Plan};
use crate::compiled::{self, PlanKey};
use crate::dump::Dump;
use crate::error::Error;
use crate::extension::RuntimeThreads;
use crate::options::{Options, Tuning};
use crate::program::PlanRequest;
use crate::runtime::caught;

/// Threads of the CPU engine.
const THREADS_KNOB: &str = "hipdnn_rs.cpu.threads";
/// True if the CPU engine keeps threads of its own.
const POOL_KNOB: &str = "hipdnn_rs.cpu.pool";
/// True if the CPU engine may use Winograd's algorithm.
const WINOGRAD_KNOB: &str = "hipdnn_rs.cpu.winograd";
/// True if the GPU's engine rounds only where the graph does.
const STRICT_KNOB: &str = "hipdnn_rs.gpu.strict_fp32";
/// True if solvers are timed, of any engine.
const BENCHMARKING_KNOB: &str = "global.benchmarking";
/// Search for solvers by the GPU's engine.
const SEARCH_KNOB: &str = "hipdnn_rs.gpu.search";

/// The environment's variables by which graphs are written to a directory, or named in a log.
const LOGS: [&str; 2] = ["HIPDNN_LOG_GRAPH_DIR", "HIPDNN_LOG_LEVEL"];

/// Asks one backend for the plans of one session.
pub(crate) struct Planner {
    context: Arc<Context>,
    choice: EngineChoice,
    dumps: Dumps,
    answers: Mutex<Answers>,
    compiled: Mutex<Compiled>,
}

/// Answers of the backend.
#[derive(Default)]
struct Answers {
    /// Plans that some program holds, by the graph without names: regions of equal structure share one, whichever program,
    /// partition or extents they are of.
    plans: FxHashMap<Key, Weak<Plan>>,
    /// Entries of `plans` at which those of dropped plans are swept out.
    sweep: usize,
    /// Plans of claims, so that what `Compile` asks is what the claim was about. Its programs are dropped before.
    kept: Vec<Arc<Plan>>,
    /// Reasons of claims' refusals while a session is made, by the graph with its names: a reason may have them.
    refusals: FxHashMap<Key, String>,
}

/// Fewest entries of plans that are swept.
const LEAST_SWEPT: usize = 64;

impl Answers {
    fn share(&mut self, key: Key, plan: &Arc<Plan>) {
        if self.plans.len() >= self.sweep.max(LEAST_SWEPT) {
            self.plans.retain(|_, plan| plan.strong_count() > 0);
            self.sweep = 2 * self.plans.len();
        }
        self.plans.insert(key, Arc::downgrade(plan));
    }
}

/// Purpose of a question about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A claim: `Compile` asks the same once more.
    Claim,
    /// A program that keeps its plans.
    Program,
    /// A program that asks the same once more.
    Ahead,
}

/// Destinations of a session's dumps: its graphs and its compilation stages.
#[derive(Default)]
pub(crate) struct Dumps {
    pub graphs: Option<Dump>,
    pub stages: Option<Dump>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    graph: Vec<u8>,
    promise: Promise,
}

impl Key {
    /// Key of a region's plan.
    fn of(request: &PlanRequest<'_>) -> Key {
        Key { graph: request.nameless.to_vec(), promise: request.promise.clone() }
    }
}

/// Plans of compiled models.
#[derive(Default)]
struct Compiled {
    /// Those to be stored, since the last partition, where a compiled model is wanted.
    made: Option<HashMap<PlanKey, Arc<Plan>>>,
    /// Those that a model was compiled with.
    stored: HashMap<PlanKey, Vec<u8>>,
}

impl Planner {
    /// A planner with the session's options.
    pub(crate) fn new(context: Arc<Context>, options: &Options, dumps: Dumps) -> Planner {
        let mut knobs = Vec::new();
        if let Some(threads) = options.threads {
            knobs.push((THREADS_KNOB.to_string(), KnobValue::Int(threads)));
        }
        // Runs lend it the runtime's threads.
        if context.extension().is_some() {
            knobs.push((POOL_KNOB.to_string(), KnobValue::Int(0)));
        }
        if let Some(winograd) = options.winograd.or(options.strict.then_some(false)) {
            knobs.push((WINOGRAD_KNOB.to_string(), KnobValue::Int(i64::from(winograd))));
        }
        if options.strict {
            knobs.push((STRICT_KNOB.to_string(), KnobValue::Int(1)));
        }
        if let Some(tuning) = options.tuning {
            // hipDNN's own knob for engines that have no finer one.
            knobs.push((BENCHMARKING_KNOB.to_string(), KnobValue::Int(i64::from(tuning != Tuning::Immediate))));
            knobs.push((SEARCH_KNOB.to_string(), KnobValue::String(tuning.word().to_string())));
        }
        let choice = EngineChoice { engine: options.engine.clone(), knobs };
        let made = options.compiled.enable.then(HashMap::new);
        let compiled = Mutex::new(Compiled { made, ..Compiled::default() });
        Planner { context, choice, dumps, answers: Mutex::default(), compiled }
    }

    /// True if plans are dumped, or are those of a compiled model: then there are to be none that nobody asks for.
    pub(crate) fn keeps_plans(&self) -> bool {
        let compiled = self.compiled();
        self.dumps.graphs.is_some()
            || self.dumps.stages.is_some()
            || compiled.made.is_some()
            || !compiled.stored.is_empty()
    }

    /// The backend in use.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// A plan for a region's graph, with the contents of constants at hand for an engine that prepares them.
    ///
    /// # Errors
    /// The engines' reasons, if none takes the graph.
    pub(crate) fn plan(
        &self,
        question: &PlanRequest<'_>,
        contents: &[(Token, &[u8])],
        purpose: Purpose,
    ) -> Result<Arc<Plan>, String> {
        let is_made = purpose == Purpose::Program && self.compiled().made.is_some();
        let made_as = is_made.then(|| compiled::key(question.nameless, question.promise));
        let plan = self.find_or_build(question, contents, purpose)?;
        if let (Some(key), Some(made)) = (made_as, &mut self.compiled().made) {
            made.insert(key, plan.clone());
        }
        Ok(plan)
    }

    /// Plans for regions' graphs on the runtime's threads, the largest first: for each graph that differs from the others and
    /// has no plan yet. What is refused is left to [`Planner::plan`], which gives the reason.
    pub(crate) fn plan_ahead(
        &self,
        requests: &[PlanRequest<'_>],
        contents: &[(Token, &[u8])],
        threads: &RuntimeThreads,
    ) -> Vec<Arc<Plan>> {
        // A stored plan is tried once, and its failure told.
        if requests.len() < 2 || !self.compiled().stored.is_empty() {
            return Vec::new();
        }
        let mut wanted: FxHashMap<Key, &PlanRequest<'_>> = FxHashMap::default();
        for request in requests {
            wanted.entry(Key::of(request)).or_insert(request);
        }
        {
            let answers = self.answers();
            wanted.retain(|key, _| answers.plans.get(key).is_none_or(|plan| plan.strong_count() == 0));
        }
        if wanted.len() < 2 {
            return Vec::new();
        }
        let mut wanted: Vec<_> = wanted.into_values().collect();
        wanted.sort_by_key(|request| Reverse(request.graph.nodes.len()));
        let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        // Each thread takes one after the other: the runtime may have given it a share of the numbers.
        let build = |_| {
            while let Some(request) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let plan = self.find_or_build(request, contents, Purpose::Ahead);
                made.lock().unwrap_or_else(PoisonError::into_inner).extend(plan);
            }
        };
        // What the runtime's threads did not make is made when it is asked for.
        let _ = threads.for_each(wanted.len(), build);
        made.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of a region.
    fn find_or_build(
        &self,
        question: &PlanRequest<'_>,
        contents: &[(Token, &[u8])],
        purpose: Purpose,
    ) -> Result<Arc<Plan>, String> {
        let nameless = Key::of(question);
        {
            let mut answers = self.answers();
            if let Some(plan) = answers.plans.get(&nameless).and_then(Weak::upgrade) {
                if purpose == Purpose::Claim {
                    answers.kept.push(plan.clone());
                }
                return Ok(plan);
            }
        }
        let key = || Key { graph: question.graph.to_bytes(), promise: question.promise.clone() };
        let named = self.wants_names(purpose).then(key);
        if let Some(reason) = named.as_ref().and_then(|named| self.answers().refusals.get(named).cloned()) {
            return Err(reason);
        }
        let choice = self.choice.promising(question.promise);
        let promised: Vec<_> = contents.iter().filter(|(token, _)| question.promise.has(*token)).copied().collect();
        let stored = {
            let stored = &mut self.compiled().stored;
            if stored.is_empty() { None } else { stored.remove(&compiled::key(&nameless.graph, question.promise)) }
        };
        let plan = |graph: &[u8]| self.context.plan_with_constants(graph, &choice, &promised);
        let built = match (&stored, &named) {
            (Some(stored), _) => self.context.stored_with_constants(stored, &choice, &promised),
            (None, Some(named)) => plan(&named.graph),
            // A reason may have names, and is told where there is nothing left to split.
            (None, None) => match plan(&nameless.graph) {
                Err(_) if purpose == Purpose::Program && question.graph.nodes.len() == 1 => {
                    plan(&question.graph.to_bytes())
                }
                built => built,
            },
        };
        match built {
            Ok(plan) => {
                let plan = Arc::new(plan);
                let mut answers = self.answers();
                answers.share(nameless, &plan);
                if purpose == Purpose::Claim {
                    answers.kept.push(plan.clone());
                }
                Ok(plan)
            }
            Err(error) => {
                let reason = error.to_string();
                if let (Purpose::Claim, Some(named)) = (purpose, named) {
                    self.answers().refusals.insert(named, reason.clone());
                }
                Err(reason)
            }
        }
    }

    /// True if engines are asked about a graph with its names, by which people know it: for claims, while there are reasons of
    /// claims' refusals, and where graphs are logged. What a plan computes does not depend on them.
    fn wants_names(&self, purpose: Purpose) -> bool {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        purpose == Purpose::Claim || !self.answers().refusals.is_empty() || LOGS.iter().any(is_set)
    }

    fn compiled(&self) -> MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the plans that a partition was compiled with.
    pub(crate) fn bring(&self, plans: HashMap<PlanKey, Vec<u8>>) {
        self.compiled().stored.extend(plans);
    }

    /// The plans of programs since the last call, as engines store them; `None` where no compiled model is wanted.
    ///
    /// # Errors
    /// The engine that stores none, with the reason.
    pub(crate) fn take_made(&self) -> Result<Option<HashMap<PlanKey, Vec<u8>>>, Error> {
        let made = self.compiled().made.as_mut().map(std::mem::take);
        let Some(made) = made else { return Ok(None) };
        let store = |(key, plan): (PlanKey, Arc<Plan>)| {
            let stored = plan.serialize().map_err(|error| error.at(plan.engine()))?;
            Ok((key, stored))
        };
        made.into_iter().map(store).collect::<Result<_, Error>>().map(Some)
    }

    /// Forgets what claims were about: programs hold the plans that they need.
    pub(crate) fn settle(&self) {
        // Plans of later runs are none of a compiled model's.
        self.compiled().made = None;
        let mut answers = self.answers();
        let forgotten = (std::mem::take(&mut answers.kept), std::mem::take(&mut answers.refusals));
        drop(answers);
        // Plans may take long to drop: not under the lock.
        drop(forgotten);
    }

    /// Writes a region's graph if that is asked for, under the label of its first node. `extents` are those of the program's
    /// first input where the model leaves them open.
    pub(crate) fn dump(&self, extents: Option<&[i64]>, graph: &GraphDef) {
        if let (Some(dump), Some(first)) = (&self.dumps.graphs, graph.nodes.first()) {
            dump.write(&first.name, extents, None, &graph.to_bytes());
        }
    }

    /// Writes the stages of a program if that is asked for, under the label of its first node. `extents` are those of inputs
    /// where the model leaves them open.
    pub(crate) fn dump_stages(&self, extents: &[i64], model: &Model, linked: &Linked<'_>) {
        let (Some(dump), Some(first)) = (&self.dumps.stages, model.nodes.first()) else { return };
        let extents = (!extents.is_empty()).then_some(extents);
        // What is only to be looked at must not fail a run, whatever it meets.
        let written = caught(|| {
            for (stage, text) in print::stages(model, linked) {
                dump.write(&first.label, extents, Some(stage), text.as_bytes());
            }
            Ok(())
        });
        if let Err(error) = written {
            dump.warning(&format!("of {} is not printed: {error}", first.label));
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
