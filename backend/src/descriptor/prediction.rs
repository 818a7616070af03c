//! Questions of how fast an engine or a configuration is. The answer is that nobody predicts it: hipDNN publishes the form
//! of predictions, but no function of plugins that makes them.

use hipdnn_schemas::{EnginePrediction, PredictionKind, PredictionStatus};

use super::engine::FinishedEngine;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::metric::RankingMetric;

/// The engine's answer, as a FlatBuffer.
pub(super) fn of(engine: &FinishedEngine, kind: PredictionKind, metric: RankingMetric) -> Result<Buffer> {
    let plugin = engine.graph().resources.plugin_of(engine.id)?;
    let what = match kind {
        PredictionKind::Engine => "of its engines",
        PredictionKind::Configuration => "of its engines' configurations",
    };
    let prediction = EnginePrediction {
        engine_id: engine.id,
        kind,
        status: PredictionStatus::Unavailable,
        reason: format!("plugin {} predicts no speed {what}", plugin.name),
        metric: metric.name().to_owned(),
    };
    Ok(Buffer::new(&prediction.to_bytes()))
}
