//! Engines as descriptors: one engine, for one graph.

use std::sync::{Arc, OnceLock};

use hipdnn_schemas::{EngineDetails, PredictionKind};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType, FlatbufferData};

use super::graph::FinishedGraph;
use super::staged::Staged;
use super::{Graph, KnobInfo, Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::metric::RankingMetric;
use crate::{names, prediction};

/// Maximum number of candidates that one call may ask for, hipDNN's.
const MAX_CANDIDATES: i64 = 10_000;

#[derive(Clone, Default)]
struct Draft {
    graph: Option<Arc<Graph>>,
    id: Option<i64>,
    metric: RankingMetric,
}

/// Finalized engine: one that takes its graph.
pub(crate) struct FinishedEngine {
    pub(super) graph: Arc<Graph>,
    pub(super) id: i64,
    metric: RankingMetric,
    /// Details of the engine for the graph, from the plugin.
    details: OnceLock<EngineDetails>,
    /// Each knob as a FlatBuffer: callers are given addresses into these.
    knobs: OnceLock<Vec<Buffer>>,
    /// The answer to a question of its speed: callers are given an address into it.
    prediction: OnceLock<Buffer>,
}

impl FinishedEngine {
    fn new(graph: Arc<Graph>, id: i64, metric: RankingMetric) -> FinishedEngine {
        FinishedEngine {
            graph,
            id,
            metric,
            details: OnceLock::new(),
            knobs: OnceLock::new(),
            prediction: OnceLock::new(),
        }
    }

    pub(super) fn graph(&self) -> &FinishedGraph {
        self.graph.referred().expect("only finalized graphs are taken")
    }

    /// Details of the engine, asked of the plugin at first use.
    fn details(&self) -> Result<&EngineDetails> {
        if let Some(details) = self.details.get() {
            return Ok(details);
        }
        let graph = self.graph();
        let details = graph.resources.details(self.id, &graph.bytes)?;
        Ok(self.details.get_or_init(|| details))
    }

    /// Knobs in serialized form, made at first use.
    fn knobs(&self) -> Result<&[Buffer]> {
        let details = self.details()?;
        let serialized = || details.knobs.iter().map(|knob| Buffer::new(&knob.to_bytes())).collect();
        Ok(self.knobs.get_or_init(serialized))
    }

    /// The engine's prediction, asked for at first use.
    fn prediction(&self) -> Result<FlatbufferData> {
        if self.prediction.get().is_none() {
            // Another thread's answer is the same.
            let _ = self.prediction.set(prediction::of(
                &self.graph().resources,
                self.id,
                PredictionKind::Engine,
                self.metric,
            )?);
        }
        Ok(self.prediction.get().expect("it was set above").data())
    }
}

/// Reason why an attribute is not served, where hipDNN serves it.
fn refused(name: AttributeName) -> Error {
    match name {
        AttributeName::ENGINE_CANDIDATES_EXT => {
            Error::not_supported("engines of this library enumerate no candidate configurations")
        }
        AttributeName::ENGINE_CU_COUNT_TARGET_EXT => {
            Error::not_supported("engines of this library are not limited to a number of compute units")
        }
        AttributeName::ENGINE_NUMERICAL_NOTE => {
            Error::not_supported("the plugin ABI has behavior notes, but no numerical ones")
        }
        _ => unhandled(name),
    }
}

/// `HIPDNN_BACKEND_ENGINE_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Engine(Staged<Draft, FinishedEngine>);

impl Engine {
    /// An engine that was just found to take the graph, ranked by this metric.
    pub(super) fn applicable(graph: Arc<Graph>, id: i64, metric: RankingMetric) -> Result<Arc<Engine>> {
        graph.referred()?;
        Ok(Arc::new(Engine(Staged::finished_from(FinishedEngine::new(graph, id, metric)))))
    }

    pub(super) fn referred(&self) -> Result<&FinishedEngine> {
        self.0.referred("engine")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::ENGINE_OPERATION_GRAPH => {
                let graph = elements.descriptor()?.graph()?;
                graph.referred()?;
                draft.graph = Some(graph);
            }
            AttributeName::ENGINE_GLOBAL_INDEX => draft.id = Some(elements.int64()?),
            AttributeName::ENGINE_PREDICTION_METRIC_EXT => draft.metric = RankingMetric::parse(&elements.text()?)?,
            // Nothing is evaluated in either case.
            AttributeName::ENGINE_PREDICTION_EVALUATE_EXT => elements.int64_within(0..=1).map(drop)?,
            // Questions of candidates may be prepared, as with hipDNN; the answer is that there are none.
            AttributeName::ENGINE_CANDIDATE_OFFSET_EXT => elements.int64_within(0..=i64::MAX).map(drop)?,
            AttributeName::ENGINE_CANDIDATE_LIMIT_EXT => elements.int64_within(1..=MAX_CANDIDATES).map(drop)?,
            AttributeName::ENGINE_CANDIDATE_SCOPE_EXT => {
                for choice in elements.descriptors()? {
                    choice.knob_choice()?.referred()?;
                }
            }
            _ => return Err(refused(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let finished = self.0.read()?;
        match name {
            AttributeName::ENGINE_OPERATION_GRAPH => output.descriptor(Object::Graph(Arc::clone(&finished.graph))),
            AttributeName::ENGINE_GLOBAL_INDEX => output.strict_scalar(AttributeType::INT64, finished.id),
            AttributeName::ENGINE_KNOB_INFO => {
                let knobs = finished.details()?.knobs.iter();
                let objects: Vec<Object> =
                    knobs.map(|knob| Object::KnobInfo(Arc::new(KnobInfo::of(knob.clone())))).collect();
                output.descriptors(&objects, false)
            }
            AttributeName::KNOB_INFO_SERIALIZED_VALUE => {
                let data: Vec<FlatbufferData> = finished.knobs()?.iter().map(Buffer::data).collect();
                output.vector(AttributeType::FLATBUFFER_DATA_STRUCT_EXT, &data)
            }
            AttributeName::ENGINE_BEHAVIOR_NOTE => {
                output.vector(AttributeType::BEHAVIOR_NOTE, &finished.details()?.behavior_notes)
            }
            AttributeName::ENGINE_PREDICTION_METRIC_EXT => output.text(finished.metric.name()),
            AttributeName::ENGINE_PREDICTION_EXT => output.flatbuffer(|| finished.prediction()),
            AttributeName::ENGINE_NAME_EXT => {
                let plugin = finished.graph().resources.plugin_of(finished.id)?;
                let engine = plugin.engines.iter().find(|engine| engine.id == finished.id);
                output.text(&engine.ok_or_else(|| Error::internal("the engine left its plugin"))?.name)
            }
            _ => Err(refused(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let Draft { graph, id, metric } = self.0.draft().clone();
        let graph = required(graph, AttributeName::ENGINE_OPERATION_GRAPH)?;
        let id = required(id, AttributeName::ENGINE_GLOBAL_INDEX)?;
        let finished = graph.referred()?;
        if !finished.resources.is_applicable(id, &finished.bytes, finished.needs)? {
            // The engine says why where it is asked for more.
            let reason = finished.resources.details(id, &finished.bytes).err();
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            return Err(Error::bad_param(format!(
                "Engine id is not in a valid range of engine IDs: {} does not take this graph{reason}",
                names::fallback_name(id)
            )));
        }
        self.0.finish(FinishedEngine::new(graph, id, metric))
    }
}
