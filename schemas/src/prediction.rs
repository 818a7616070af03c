//! How fast a host is told that an engine, or one of its configurations, is.

use flatbuffers::FlatBufferBuilder;

use crate::GraphError;
use crate::generated as fb;
use crate::read::root;
use crate::write::finish;

/// The subject of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictionKind {
    /// An engine, as it runs without tuning.
    Engine,
    /// One configuration of an engine.
    Configuration,
}

/// The answer to a question of speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PredictionStatus {
    /// There is no prediction.
    Unavailable,
    /// The prediction, in the metric's unit.
    Available(f64),
    /// There is one that does not fit its engine or graph.
    Invalid,
}

/// A prediction without what it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct EnginePrediction {
    /// The engine.
    pub engine_id: i64,
    /// The subject.
    pub kind: PredictionKind,
    /// The answer.
    pub status: PredictionStatus,
    /// Why there is no prediction, for people; empty where there is one.
    pub reason: String,
    /// The ranking metric that was asked for.
    pub metric: String,
}

impl EnginePrediction {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not a prediction, or one of an unknown kind or status.
    pub fn from_bytes(bytes: &[u8]) -> Result<EnginePrediction, GraphError> {
        let prediction = root::<fb::EnginePrediction>(bytes)?;
        let kind = match prediction.kind() {
            fb::PredictionKind::ENGINE => PredictionKind::Engine,
            fb::PredictionKind::CONFIGURATION => PredictionKind::Configuration,
            other => return Err(GraphError::Unknown(format!("prediction of kind {}", other.0))),
        };
        let status = match prediction.status() {
            fb::PredictionStatus::UNAVAILABLE => PredictionStatus::Unavailable,
            fb::PredictionStatus::AVAILABLE => PredictionStatus::Available(prediction.value()),
            fb::PredictionStatus::INVALID => PredictionStatus::Invalid,
            other => return Err(GraphError::Unknown(format!("prediction with status {}", other.0))),
        };
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Ok(EnginePrediction {
            engine_id: prediction.engine_id(),
            kind,
            status,
            reason: text(prediction.reason()),
            metric: text(prediction.metric()),
        })
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let (status, value) = match self.status {
            PredictionStatus::Unavailable => (fb::PredictionStatus::UNAVAILABLE, 0.0),
            PredictionStatus::Available(value) => (fb::PredictionStatus::AVAILABLE, value),
            PredictionStatus::Invalid => (fb::PredictionStatus::INVALID, 0.0),
        };
        let args = fb::EnginePredictionArgs {
            engine_id: self.engine_id,
            kind: match self.kind {
                PredictionKind::Engine => fb::PredictionKind::ENGINE,
                PredictionKind::Configuration => fb::PredictionKind::CONFIGURATION,
            },
            status,
            value,
            reason: Some(fbb.create_string(&self.reason)),
            metric: Some(fbb.create_string(&self.metric)),
            ..Default::default()
        };
        let prediction = fb::EnginePrediction::create(&mut fbb, &args);
        finish(fbb, prediction, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_round_trip() {
        for kind in [PredictionKind::Engine, PredictionKind::Configuration] {
            for status in [PredictionStatus::Unavailable, PredictionStatus::Available(1.5), PredictionStatus::Invalid] {
                let (reason, metric) = ("no model".to_owned(), "time".to_owned());
                let prediction = EnginePrediction { engine_id: -7, kind, status, reason, metric };
                assert_eq!(EnginePrediction::from_bytes(&prediction.to_bytes()), Ok(prediction));
            }
        }
        assert!(EnginePrediction::from_bytes(b"no FlatBuffer").is_err());
    }
}
