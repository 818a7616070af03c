//! Choices of solvers: what is asked of one, and what was chosen, kept for this process and the next.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use hipdnn_engine_core::payload::Entry;
use hipdnn_engine_kernel::convolution::ConvolutionProblem;

use super::convolution::Solution;
use super::prepared::{Path, PreparedConvolution};
use crate::store::Store;

/// Effort of the search for a fast solver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effort {
    /// MIOpen's own ranking is believed: its databases, else its guess.
    Immediate,
    /// Solvers that MIOpen offers are timed.
    Benchmark,
    /// MIOpen searches and tunes first, which may take minutes; then what it offers is timed.
    Tune,
}

impl Effort {
    /// The knob's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Effort::Immediate => "immediate",
            Effort::Benchmark => "benchmark",
            Effort::Tune => "tune",
        }
    }

    /// This effort's choices and, before them, those that more effort was made for.
    pub(super) fn and_more(self) -> impl Iterator<Item = Effort> {
        [Effort::Tune, Effort::Benchmark, Effort::Immediate].into_iter().filter(move |effort| *effort >= self)
    }
}

/// Conditions that a solver has to satisfy, and the search for one.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Bytes of workspace at most; `None` for any number.
    pub workspace_limit: Option<usize>,
    /// Effort of the search for a fast solver.
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
    /// Reason against a solution; `None` if it may be used.
    pub(super) fn refuses(&self, solution: Solution) -> Option<String> {
        let Solution { solver, workspace } = solution;
        if self.deny.contains(&solver) {
            Some("it is denied".to_string())
        } else if self.allow.as_ref().is_some_and(|allowed| !allowed.contains(&solver)) {
            Some("it is not among those allowed".to_string())
        } else {
            let limit = self.workspace_limit.filter(|limit| workspace > *limit)?;
            Some(format!("expected at most {limit} bytes of workspace, got {workspace}"))
        }
    }

    /// The key of a choice under this policy: all that it depends on but the effort, and the effort.
    pub(super) fn key(&self, fingerprint: &str, problem: &ConvolutionProblem, effort: Effort) -> String {
        let Policy { workspace_limit, allow, deny, fp16_alternative, .. } = self;
        let (mut allow, mut deny) = (allow.clone(), deny.clone());
        allow.iter_mut().for_each(|allow| allow.sort_unstable());
        deny.sort_unstable();
        format!(
            "{problem}; {}; workspace {workspace_limit:?} allow {allow:?} deny {deny:?} fp16 alternative {fp16_alternative} {}",
            fingerprint,
            effort.name()
        )
    }
}

/// Verdict on repeating a solver's launches instead of calling MIOpen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
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
    pub(crate) solution: Solution,
    pub(crate) verdict: Verdict,
    pub(crate) milliseconds: Option<f32>,
}

/// The kind of the cache's entries.
pub(super) const KIND: &str = "convolution";

impl Choice {
    /// The choice that a convolution came from, with what came of recording it.
    pub(crate) fn of(prepared: &PreparedConvolution) -> Choice {
        let PreparedConvolution { solver, workspace, milliseconds, .. } = *prepared;
        let verdict = match &prepared.path {
            Path::Recorded { .. } => Verdict::Same,
            Path::Called { reason, .. } => Verdict::Refused(reason.clone()),
        };
        Choice { solution: Solution { solver, workspace }, verdict, milliseconds }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
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

    pub(super) fn decode(bytes: &[u8]) -> Option<Choice> {
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

impl Policy {
    /// Entry of the store that `prepare` leaves for a stored plan, so that it repeats the choice.
    pub(crate) fn entry(&self, prepared: &PreparedConvolution) -> Entry {
        let key = self.key(prepared.handles.fingerprint(), &prepared.problem, self.effort);
        Entry { kind: KIND.to_string(), key, value: Choice::of(prepared).encode() }
    }
}

/// Choices and answers of one device in this process.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// Choices that were made or read from the cache, by key.
    pub(super) choices: Mutex<HashMap<String, Choice>>,
    /// MIOpen's answers to whether it has solutions, by problem.
    answers: Mutex<HashMap<String, Result<(), String>>>,
}

impl Memo {
    /// The choice that was made under that key, by this process or another; from a stored plan only that plan's.
    pub(crate) fn recall(&self, kind: &str, key: &str, store: &Store) -> Option<Choice> {
        if store.is_sealed() {
            return Choice::decode(&store.get(kind, key)?);
        }
        let own = format!("{kind} {key}");
        if let Some(choice) = self.choices.lock().ok().and_then(|choices| choices.get(&own).cloned()) {
            return Some(choice);
        }
        let Some(choice) = Choice::decode(&store.get(kind, key)?) else {
            log::info!("a cache entry is passed over, it is not a choice of a solver: {key}");
            return None;
        };
        if let Ok(mut choices) = self.choices.lock() {
            bounded(&mut choices).insert(own, choice.clone());
        }
        Some(choice)
    }

    /// Keeps a choice for this process and the next; not one that came with a stored plan.
    pub(crate) fn remember(&self, kind: &str, key: String, choice: Choice, store: &Store) {
        if store.is_sealed() {
            return;
        }
        store.put(kind, &key, &choice.encode());
        if let Ok(mut choices) = self.choices.lock() {
            bounded(&mut choices).insert(format!("{kind} {key}"), choice);
        }
    }

    /// The remembered answer to whether MIOpen has a solution.
    pub(super) fn answer(&self, problem: &str) -> Option<Result<(), String>> {
        self.answers.lock().ok().and_then(|answers| answers.get(problem).cloned())
    }

    /// Remembers whether MIOpen has a solution.
    pub(super) fn remember_answer(&self, problem: String, answer: Result<(), String>) {
        if let Ok(mut answers) = self.answers.lock() {
            bounded(&mut answers).insert(problem, answer);
        }
    }
}

/// The map, with room for one more: problems of ever new shapes must not fill the memory.
fn bounded<T>(map: &mut HashMap<String, T>) -> &mut HashMap<String, T> {
    const MOST: usize = 10_000;
    if map.len() >= MOST {
        map.clear();
    }
    map
}
