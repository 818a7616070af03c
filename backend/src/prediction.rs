//! Answers to questions of how fast an engine or a configuration is. The answer is that nobody predicts it: hipDNN publishes
//! the form of predictions, but no function of engine plugins that makes them.

use hipdnn_schemas::{EnginePrediction, PredictionKind, PredictionStatus};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::metric::RankingMetric;
use crate::plugins::Resources;

/// The answer for an engine, as a FlatBuffer.
pub(crate) fn of(resources: &Resources, engine: i64, kind: PredictionKind, metric: RankingMetric) -> Result<Buffer> {
    let plugin = resources.plugin_of(engine)?;
    let what = match kind {
        PredictionKind::Engine => "of its engines",
        PredictionKind::Configuration => "of its engines' configurations",
    };
    let prediction = EnginePrediction {
        engine_id: engine,
        kind,
        status: PredictionStatus::Unavailable,
        reason: format!("plugin {} predicts no speed {what}", plugin.name),
        metric: metric.name().to_owned(),
    };
    Ok(Buffer::new(&prediction.to_bytes()))
}
