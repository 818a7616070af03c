//! Engine configurations: an engine and the knobs set on it.

use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_schemas as wire;
use hipdnn_schemas::PredictionKind;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType, FlatbufferData};

use super::engine::FinishedEngine;
use super::staged::Staged;
use super::{Engine, Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::metric::RankingMetric;
use crate::prediction;

/// Maximum number of knobs that one call sets.
const MAX_CHOICES: usize = 1024;

#[derive(Clone, Default)]
struct Draft {
    engine: Option<Arc<Engine>>,
    /// Knob settings in the order of the calls: a later one adds to what earlier ones set.
    knobs: Vec<(String, wire::KnobValue)>,
    /// The metric that the engine is told, if one was set or a heuristic ranked by one.
    metric: Option<RankingMetric>,
}

/// Adds all knobs, or none if one is wrong.
fn append(
    knobs: &mut Vec<(String, wire::KnobValue)>,
    more: impl Iterator<Item = Result<(String, wire::KnobValue)>>,
) -> Result<()> {
    knobs.extend(more.collect::<Result<Vec<_>>>()?);
    Ok(())
}

/// Finalized configuration.
pub(crate) struct FinishedConfig {
    engine: Arc<Engine>,
    /// FlatBuffer for plugins.
    pub(super) bytes: Buffer,
    workspace_size: i64,
}

impl FinishedConfig {
    pub(super) fn engine(&self) -> &FinishedEngine {
        self.engine.referred().expect("only finalized engines are taken")
    }
}

/// `HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct EngineConfig {
    stages: Staged<Draft, FinishedConfig>,
    /// Answers to questions of its speed: callers are given addresses into them, which hold when the configuration is
    /// changed and asked about again.
    predictions: Mutex<Vec<Buffer>>,
}

impl EngineConfig {
    /// Gives an empty configuration its engine, the knobs that were ranked with it and the metric by which, as heuristics
    /// do.
    pub(super) fn fill(
        &self,
        engine: Arc<Engine>,
        knobs: Vec<(String, wire::KnobValue)>,
        metric: RankingMetric,
    ) -> Result<()> {
        let mut draft = self.stages.edit()?;
        draft.engine = Some(engine);
        draft.knobs = knobs;
        draft.metric = Some(metric);
        Ok(())
    }

    pub(super) fn referred(&self) -> Result<&FinishedConfig> {
        self.stages.referred("engine configuration")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.stages.edit()?;
        match name {
            AttributeName::ENGINECFG_ENGINE => {
                let engine = elements.descriptor()?.engine()?;
                engine.referred()?;
                draft.engine = Some(engine);
            }
            AttributeName::ENGINECFG_KNOB_CHOICES => {
                let choices = elements.descriptors()?;
                if choices.len() > MAX_CHOICES {
                    return Err(Error::bad_param(format!(
                        "expected at most {MAX_CHOICES} knob choices, got {}",
                        choices.len()
                    )));
                }
                let knobs = choices.into_iter().map(|choice| choice.knob_choice()?.referred().cloned());
                append(&mut draft.knobs, knobs)?;
            }
            AttributeName::KNOB_CHOICE_SERIALIZED_VALUE => {
                let knobs = elements.flatbuffers()?.into_iter().map(|bytes| {
                    // The caller's bytes may lie anywhere, and a FlatBuffer is read from an aligned place.
                    wire::knob_setting_from_bytes(Buffer::new(bytes).bytes())
                        .map_err(|error| Error::bad_param(format!("expected a knob setting: {error}")))
                });
                append(&mut draft.knobs, knobs)?;
            }
            AttributeName::ENGINECFG_RANKING_METRIC_EXT => {
                draft.metric = Some(RankingMetric::parse(&elements.text()?)?);
            }
            // Nothing is evaluated in either case.
            AttributeName::ENGINECFG_PREDICTION_EVALUATE_EXT => elements.int64_within(0..=1).map(drop)?,
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        match name {
            // Both may be asked for before finalizing.
            AttributeName::ENGINECFG_RANKING_METRIC_EXT => {
                let metric = self.stages.draft().metric.unwrap_or_default();
                return output.text(metric.name());
            }
            AttributeName::ENGINECFG_PREDICTION_EXT => return output.flatbuffer(|| self.prediction()),
            _ => {}
        }
        let finished = self.stages.read()?;
        match name {
            AttributeName::ENGINECFG_ENGINE => output.descriptor(Object::Engine(Arc::clone(&finished.engine))),
            AttributeName::ENGINECFG_WORKSPACE_SIZE => {
                output.strict_scalar(AttributeType::INT64, finished.workspace_size)
            }
            _ => Err(unhandled(name)),
        }
    }

    /// The answer to a question of its speed, whether it is finalized or not.
    fn prediction(&self) -> Result<FlatbufferData> {
        let Draft { engine, knobs: _, metric } = self.stages.draft().clone();
        let engine = required(engine, AttributeName::ENGINECFG_ENGINE)?;
        let kind = PredictionKind::Configuration;
        let finished = engine.referred()?;
        let answer = prediction::of(&finished.graph().resources, finished.id, kind, metric.unwrap_or_default())?;
        let mut given = self.predictions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = given.iter().find(|given| given.bytes() == answer.bytes()) {
            return Ok(same.data());
        }
        let data = answer.data();
        given.push(answer);
        Ok(data)
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.stages.expect_unfinished()?;
        let Draft { engine, knobs, metric } = self.stages.draft().clone();
        let engine = required(engine, AttributeName::ENGINECFG_ENGINE)?;
        let finished = engine.referred()?;
        let config = wire::EngineConfig { engine_id: finished.id, knobs };
        let bytes = Buffer::new(&config.to_bytes_ranked_by(metric.map(RankingMetric::name)));
        let graph = finished.graph();
        let workspace_size = graph.resources.workspace_size(finished.id, &bytes, &graph.bytes)?;
        self.stages.finish(FinishedConfig { engine, bytes, workspace_size })
    }
}
