//! Ranking metrics: the names by which clients say what engines are to be ranked by. No plugin predicts anything to this
//! library, so no order of its own follows from a metric; it is checked, kept and told to plugins, as by hipDNN.

use crate::error::{Error, Result};

/// hipDNN's metrics: throughput in TFLOPS, which is the default, and time in milliseconds.
const METRICS: [&str; 2] = ["tflops", "time"];

/// A metric of hipDNN's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankingMetric(&'static str);

impl Default for RankingMetric {
    fn default() -> Self {
        RankingMetric(METRICS[0])
    }
}

impl RankingMetric {
    /// The metric of that name; the default without one.
    pub(crate) fn parse(name: &str) -> Result<RankingMetric> {
        if name.is_empty() {
            return Ok(RankingMetric::default());
        }
        let found = METRICS.iter().find(|metric| **metric == name).copied().map(RankingMetric);
        found.ok_or_else(|| Error::bad_param(format!("expected a ranking metric among {METRICS:?}, got {name:?}")))
    }

    /// The metric of `HIPDNN_HEUR_RANKING_METRIC`, or the client's, or the default.
    pub(crate) fn effective(chosen: Option<RankingMetric>) -> Result<RankingMetric> {
        match std::env::var("HIPDNN_HEUR_RANKING_METRIC") {
            Ok(name) if !name.is_empty() => RankingMetric::parse(&name)
                .map_err(|error| Error::bad_param(format!("HIPDNN_HEUR_RANKING_METRIC: {error}"))),
            _ => Ok(chosen.unwrap_or_default()),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, want) in [("", Some("tflops")), ("tflops", Some("tflops")), ("time", Some("time")), ("flops", None)]
        {
            assert_eq!(RankingMetric::parse(name).ok().map(RankingMetric::name), want, "{name:?}");
        }
        assert_eq!(RankingMetric::parse("flops").unwrap_err().status, crate::error::Error::bad_param("").status);
    }
}
