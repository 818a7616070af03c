//! Heuristic policies, which rank engines: those of heuristics plugins, and of hipDNN's own the static order and the one that
//! ranks as clients have measured (`ranking`); it reads no file of rules, and declines as hipDNN's does without one. Unknown
//! policies are skipped, as by hipDNN: its frontend names newer ones before the static order.

use std::collections::HashMap;

use hipdnn_schemas::{EngineConfig, KnobValue};
use hipdnn_sdk_bindings::hipdnn::heuristics;

use crate::buffer::Buffer;
use crate::descriptor::FinishedGraph;
use crate::error::{Error, Result};
use crate::metric::RankingMetric;
use crate::plugins::Resources;
use crate::plugins::heuristics::Placed;
use crate::{log, names, ranking};

/// The name of the policy that ranks in a fixed order.
const STATIC_ORDERING: &str = "SelectionHeuristic::StaticOrdering";

/// The name of the policy that ranks as was measured.
const CONFIG: &str = "SelectionHeuristic::Config";

/// This library's own policies, in the order in which they are asked. Ids of policies are hashes of names, as those of
/// engines.
const BUILT_IN: [&str; 2] = [CONFIG, STATIC_ORDERING];

/// hipDNN's word for the plugin of its own policies.
const BUILT_IN_PLUGIN: &str = "hipdnn-builtin";

/// The ids of the policies in the order in which they are asked: those of `HIPDNN_HEUR_POLICY_ORDER`, or the client's,
/// or the built-in ones.
pub(crate) fn order(chosen: Option<&[i64]>) -> Vec<i64> {
    let id = |text: &String| names::parse_id(text).unwrap_or_else(|| names::id_of(text));
    match (list_of("HIPDNN_HEUR_POLICY_ORDER"), chosen) {
        (Some(listed), _) => listed.iter().map(id).collect(),
        (None, Some(chosen)) => chosen.to_vec(),
        (None, None) => BUILT_IN.map(names::id_of).to_vec(),
    }
}

/// The ids of this library's own policies, each with the name of its plugin.
pub(crate) fn built_in() -> HashMap<i64, String> {
    BUILT_IN.iter().map(|name| (names::id_of(name), BUILT_IN_PLUGIN.to_owned())).collect()
}

/// A policy, as clients are told.
pub(crate) struct PolicyInfo {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) plugin: String,
    pub(crate) version: String,
    pub(crate) api_version: String,
}

/// All policies: this library's own, then those of plugins.
pub(crate) fn list(resources: &Resources) -> Vec<PolicyInfo> {
    let own = BUILT_IN.iter().map(|name| PolicyInfo {
        id: names::id_of(name),
        name: (*name).to_owned(),
        plugin: BUILT_IN_PLUGIN.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version: heuristics::VERSION.to_owned(),
    });
    let of_plugins = resources.policies().into_iter().map(|(plugin, policy)| PolicyInfo {
        id: policy.id,
        name: policy.name.clone(),
        plugin: plugin.name.clone(),
        version: plugin.version.clone(),
        api_version: plugin.api_version.clone(),
    });
    own.chain(of_plugins).collect()
}

/// An engine in its place, with the knobs that were ranked with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranked {
    pub(crate) engine: i64,
    pub(crate) knobs: Vec<(String, KnobValue)>,
}

impl From<i64> for Ranked {
    fn from(engine: i64) -> Ranked {
        Ranked { engine, knobs: Vec::new() }
    }
}

/// Ranks engines for the graph by the first of the policies that can; `HIPDNN_HEUR_FALLBACK_ENGINE_ORDER` drops engines
/// that it does not list; the engine that the graph prefers comes first.
///
/// # Errors
/// If no policy ranks.
pub(crate) fn rank(
    mut engines: Vec<i64>,
    graph: &FinishedGraph,
    policies: &[i64],
    metric: RankingMetric,
) -> Result<Vec<Ranked>> {
    let resources = &graph.resources;
    let listed: Option<Vec<i64>> = list_of("HIPDNN_HEUR_FALLBACK_ENGINE_ORDER")
        .map(|order| order.iter().map(|text| engine(text, resources)).collect());
    if let Some(listed) = &listed {
        engines.retain(|id| listed.contains(id));
    }
    let plain = |ids: Vec<i64>| ids.into_iter().map(Ranked::from).collect();
    let (config, fixed) = (names::id_of(CONFIG), names::id_of(STATIC_ORDERING));
    for &policy in policies {
        let ranked = if policy == config {
            ranking::look_up(resources, &graph.def, &engines).map(plain)
        } else if policy == fixed {
            Some(plain(ordered(engines.clone(), listed.as_deref())))
        } else {
            by_plugin(policy, &engines, graph, metric)
        };
        if let Some(ranked) = ranked {
            let ranked = preferring(ranked, graph.def.preferred_engine_id);
            log::info!("engines in order: {:?}", ranked.iter().map(|ranked| ranked.engine).collect::<Vec<_>>());
            return Ok(ranked);
        }
    }
    let got: Vec<String> = policies.iter().map(|&policy| names::hexadecimal(policy)).collect();
    Err(Error::internal(format!(
        "expected {STATIC_ORDERING} ({}) or another policy that ranks engines, got [{}], of which none does",
        names::hexadecimal(fixed),
        got.join(", ")
    )))
}

/// The ranking of a plugin's policy. One that declines or fails is passed over, as by hipDNN.
fn by_plugin(policy: i64, engines: &[i64], graph: &FinishedGraph, metric: RankingMetric) -> Option<Vec<Ranked>> {
    let shown = names::hexadecimal(policy);
    let ranked = match graph.resources.ranked_by(policy, engines, &graph.bytes, metric) {
        Ok(Some(ranked)) => ranked,
        Ok(None) => {
            log::info!("heuristic policy {shown} declines");
            return None;
        }
        Err(reason) => {
            log::warning!("heuristic policy {shown} is passed over: {reason}");
            return None;
        }
    };
    let knobs = |engine: i64, config: Option<Buffer>| {
        let Some(config) = config else { return Ok(Vec::new()) };
        let config = EngineConfig::from_bytes(config.bytes()).map_err(|error| error.to_string())?;
        match config.engine_id == engine {
            true => Ok(config.knobs),
            false => Err(format!("expected a configuration of engine {engine}, got one of {}", config.engine_id)),
        }
    };
    let with_knobs = |Placed { engine, config }| Ok(Ranked { engine, knobs: knobs(engine, config)? });
    let ranked: std::result::Result<Vec<Ranked>, String> = ranked.into_iter().map(with_knobs).collect();
    ranked.inspect_err(|reason| log::warning!("heuristic policy {shown} is passed over: {reason}")).ok()
}

/// As the list has them, or in the order of names.
fn ordered(mut engines: Vec<i64>, listed: Option<&[i64]>) -> Vec<i64> {
    match listed {
        Some(listed) => engines.sort_by_key(|id| listed.iter().position(|listed| listed == id)),
        None => engines.sort_by_key(|id| names::static_rank(*id)),
    }
    engines
}

fn preferring(mut engines: Vec<Ranked>, preferred: Option<i64>) -> Vec<Ranked> {
    if let Some(preferred) = preferred {
        engines.sort_by_key(|ranked| ranked.engine != preferred);
    }
    engines
}

/// Engine id of a text: the name of a loaded engine, else a number, else any other name.
fn engine(text: &str, resources: &Resources) -> i64 {
    let mut loaded = resources.loaded().flat_map(|plugin| &plugin.engines);
    let named = loaded.find(|engine| engine.name == text).map(|engine| engine.id);
    named.or_else(|| names::parse_id(text)).unwrap_or_else(|| names::id_of(text))
}

fn list_of(variable: &str) -> Option<Vec<String>> {
    let text = std::env::var(variable).ok()?;
    let items: Vec<String> =
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_string).collect();
    (!items.is_empty()).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders() {
        let [rs, miopen, slow, other, more] =
            ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC", "OTHER", "MORE"].map(names::id_of);
        let all = vec![slow, other, miopen, more, rs];
        for (preferred, listed, want) in [
            (None, None, vec![rs, miopen, other, more, slow]),
            (Some(more), None, vec![more, rs, miopen, other, slow]),
            (Some(123), None, vec![rs, miopen, other, more, slow]),
            (None, Some(vec![slow, other, more, rs, miopen]), vec![slow, other, more, rs, miopen]),
            (Some(other), Some(vec![slow, other, more, rs, miopen]), vec![other, slow, more, rs, miopen]),
        ] {
            let ranked = ordered(all.clone(), listed.as_deref()).into_iter().map(Ranked::from).collect();
            let ranked: Vec<i64> = preferring(ranked, preferred).into_iter().map(|ranked| ranked.engine).collect();
            assert_eq!(ranked, want, "{preferred:?} {listed:?}");
        }
    }
}
