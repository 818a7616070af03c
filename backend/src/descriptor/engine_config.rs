//! Engine configurations: an engine and the knobs set on it.

use std::sync::Arc;

use hipdnn_schemas as wire;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::engine::FinishedEngine;
use super::staged::Staged;
use super::{Engine, Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::metric::RankingMetric;

/// Maximum number of knobs that one call sets.
const MAX_CHOICES: usize = 1024;

#[derive(Clone, Default)]
struct Draft {
    engine: Option<Arc<Engine>>,
    /// Knob settings in the order of the calls: a later one adds to what earlier ones set.
    knobs: Vec<(String, wire::KnobValue)>,
    metric: RankingMetric,
}

/// Adds all knobs, or none if one is wrong.
fn append(
    knobs: &mut Vec<(String, wire::KnobValue)>,
    more: impl Iterator<Item = Result<(String, wire::KnobValue)>>,
) -> Result<()> {
    knobs.extend(more.collect::<Result<Vec<_>>>()?);
    Ok(())
}

fn no_predictions() -> Error {
    Error::not_supported("engines of this library predict no speed of a configuration")
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
pub(crate) struct EngineConfig(Staged<Draft, FinishedConfig>);

impl EngineConfig {
    /// Gives an empty configuration its engine, and the metric that the engine was ranked by, as heuristics do.
    pub(super) fn fill(&self, engine: Arc<Engine>, metric: RankingMetric) -> Result<()> {
        let mut draft = self.0.edit()?;
        draft.engine = Some(engine);
        draft.metric = metric;
        Ok(())
    }

    pub(super) fn referred(&self) -> Result<&FinishedConfig> {
        self.0.referred("engine configuration")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
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
            AttributeName::ENGINECFG_RANKING_METRIC_EXT => draft.metric = RankingMetric::parse(&elements.text()?)?,
            // Nothing is evaluated in either case.
            AttributeName::ENGINECFG_PREDICTION_EVALUATE_EXT => elements.int64_within(0..=1).map(drop)?,
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        match name {
            // Both may be asked for before finalizing.
            AttributeName::ENGINECFG_RANKING_METRIC_EXT => return output.text(self.0.draft().metric.name()),
            AttributeName::ENGINECFG_PREDICTION_EXT => return Err(no_predictions()),
            _ => {}
        }
        let finished = self.0.read()?;
        match name {
            AttributeName::ENGINECFG_ENGINE => output.descriptor(Object::Engine(Arc::clone(&finished.engine))),
            AttributeName::ENGINECFG_WORKSPACE_SIZE => {
                output.strict_scalar(AttributeType::INT64, finished.workspace_size)
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let Draft { engine, knobs, metric: _ } = self.0.draft().clone();
        let engine = required(engine, AttributeName::ENGINECFG_ENGINE)?;
        let finished = engine.referred()?;
        let bytes = Buffer::new(&wire::EngineConfig { engine_id: finished.id, knobs }.to_bytes());
        let graph = finished.graph();
        let workspace_size = graph.resources.workspace_size(finished.id, &bytes, &graph.bytes)?;
        self.0.finish(FinishedConfig { engine, bytes, workspace_size })
    }
}
