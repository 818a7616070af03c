//! Engine heuristics: the engines that take a graph, the best first.

use std::sync::Arc;

use hipdnn_schemas::KnobValue;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType, HeurMode};

use super::staged::Staged;
use super::{Engine, Graph, Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::error::{Error, Result};
use crate::metric::RankingMetric;
use crate::policy::{self, Ranked};

#[derive(Clone, Default)]
struct Draft {
    graph: Option<Arc<Graph>>,
    mode: Option<HeurMode>,
    find_first: Option<bool>,
    policies: Option<Vec<i64>>,
    metric: Option<RankingMetric>,
}

pub(crate) struct FinishedHeuristic {
    draft: Draft,
    /// The order in which policies were asked; empty where none was.
    policies: Vec<i64>,
    metric: RankingMetric,
    results: Vec<Candidate>,
}

/// An engine with the knobs that were ranked with it.
struct Candidate {
    engine: Arc<Engine>,
    knobs: Vec<(String, KnobValue)>,
}

/// `HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Heuristic(Staged<Draft, FinishedHeuristic>);

impl Heuristic {
    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::ENGINEHEUR_OPERATION_GRAPH => {
                let graph = elements.descriptor()?.graph()?;
                graph.referred()?;
                draft.graph = Some(graph);
            }
            AttributeName::ENGINEHEUR_MODE => {
                let mode = HeurMode(elements.enumerator(AttributeType::HEUR_MODE)?);
                if mode != HeurMode::FALLBACK {
                    return Err(Error::not_supported(format!("expected mode FALLBACK (0), got {}", mode.0)));
                }
                draft.mode = Some(mode);
            }
            AttributeName::ENGINEHEUR_FIND_FIRST_EXT => draft.find_first = Some(elements.boolean()?),
            AttributeName::ENGINEHEUR_POLICY_ORDER_EXT => draft.policies = Some(elements.int64s_or_none()?),
            AttributeName::ENGINEHEUR_RANKING_METRIC_EXT => {
                draft.metric = Some(RankingMetric::parse(&elements.text()?)?);
            }
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        // This descriptor says "not finalized" where others say "not initialized".
        let finished = self.0.referred("heuristic")?;
        let draft = &finished.draft;
        match name {
            AttributeName::ENGINEHEUR_RESULTS => output.fill_descriptors(finished.results.len(), |index, object| {
                let Candidate { engine, knobs } = &finished.results[index];
                object.engine_config()?.fill(Arc::clone(engine), knobs.clone(), finished.metric)
            }),
            AttributeName::ENGINEHEUR_MODE => {
                output.strict_scalar(AttributeType::HEUR_MODE, draft.mode.unwrap_or_default().0)
            }
            AttributeName::ENGINEHEUR_OPERATION_GRAPH => {
                let graph = draft.graph.as_ref().expect("finalising checked that there is a graph");
                output.descriptor(Object::Graph(Arc::clone(graph)))
            }
            AttributeName::ENGINEHEUR_FIND_FIRST_EXT => {
                output.scalar(AttributeType::BOOLEAN, u8::from(draft.find_first.unwrap_or_default()))
            }
            AttributeName::ENGINEHEUR_POLICY_ORDER_EXT => output.vector(AttributeType::INT64, &finished.policies),
            // The one that holds, whatever was set.
            AttributeName::ENGINEHEUR_RANKING_METRIC_EXT => output.text(finished.metric.name()),
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let draft = self.0.draft().clone();
        let graph = required(draft.graph.as_ref(), AttributeName::ENGINEHEUR_OPERATION_GRAPH)?;
        required(draft.mode, AttributeName::ENGINEHEUR_MODE)?;
        let finished = graph.referred()?;
        let metric = RankingMetric::effective(draft.metric)?;
        let first = draft.find_first.unwrap_or_default();
        let found = finished.resources.applicable(&finished.bytes, finished.needs, first)?;
        let (policies, ranked) = if first || found.is_empty() {
            (Vec::new(), found.into_iter().map(Ranked::from).collect())
        } else {
            let policies = policy::order(draft.policies.as_deref());
            let ranked = policy::rank(found, finished, &policies, metric)?;
            (policies, ranked)
        };
        let candidate = |ranked: Ranked| {
            let engine = Engine::applicable(Arc::clone(graph), ranked.engine, metric)?;
            Ok(Candidate { engine, knobs: ranked.knobs })
        };
        let results = ranked.into_iter().map(candidate).collect::<Result<_>>()?;
        self.0.finish(FinishedHeuristic { draft, policies, metric, results })
    }
}
