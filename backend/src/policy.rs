//! Heuristic policies, which rank engines. Of hipDNN's policies there are the static order, and the one that ranks as
//! clients have measured (`ranking`); it reads no file of rules, and declines as hipDNN's does without one. Unknown policies
//! are skipped, as by hipDNN: its frontend names newer ones before the static order.

use hipdnn_schemas::GraphDef;

use crate::error::{Error, Result};
use crate::plugins::Resources;
use crate::{log, names, ranking};

/// The name of the policy that ranks.
pub(crate) const STATIC_ORDERING: &str = "SelectionHeuristic::StaticOrdering";

/// The name of the policy that ranks as was measured.
const CONFIG: &str = "SelectionHeuristic::Config";

/// The policy's id: ids of policies are hashes of names, as those of engines.
pub(crate) fn static_ordering_id() -> i64 {
    names::id_of(STATIC_ORDERING)
}

/// The ids of the policies in the order in which they are asked: those of `HIPDNN_HEUR_POLICY_ORDER`, or the client's,
/// or the built-in ones.
pub(crate) fn order(chosen: Option<&[i64]>) -> Vec<i64> {
    let id = |text: &String| names::parse_id(text).unwrap_or_else(|| names::id_of(text));
    match (list_of("HIPDNN_HEUR_POLICY_ORDER"), chosen) {
        (Some(listed), _) => listed.iter().map(id).collect(),
        (None, Some(chosen)) => chosen.to_vec(),
        (None, None) => vec![names::id_of(CONFIG), static_ordering_id()],
    }
}

/// Ranks engines for the graph by the first of the policies that can; `HIPDNN_HEUR_FALLBACK_ENGINE_ORDER` drops engines
/// that it does not list; the engine that the graph prefers comes first.
///
/// # Errors
/// If no policy ranks.
pub(crate) fn rank(
    mut engines: Vec<i64>,
    graph: &GraphDef,
    policies: &[i64],
    resources: &Resources,
) -> Result<Vec<i64>> {
    let listed: Option<Vec<i64>> = list_of("HIPDNN_HEUR_FALLBACK_ENGINE_ORDER")
        .map(|order| order.iter().map(|text| engine(text, resources)).collect());
    if let Some(listed) = &listed {
        engines.retain(|id| listed.contains(id));
    }
    let (config, fixed) = (names::id_of(CONFIG), static_ordering_id());
    for &policy in policies {
        let ranked = if policy == config {
            ranking::look_up(resources, graph, &engines)
        } else if policy == fixed {
            Some(ordered(engines.clone(), listed.as_deref()))
        } else {
            log::warning!("heuristic policy {} is passed over: there is none", names::hexadecimal(policy));
            None
        };
        if let Some(ranked) = ranked {
            let ranked = preferring(ranked, graph.preferred_engine_id);
            log::info!("engines in order: {ranked:?}");
            return Ok(ranked);
        }
    }
    let got: Vec<String> = policies.iter().map(|&policy| names::hexadecimal(policy)).collect();
    Err(Error::internal(format!(
        "expected {STATIC_ORDERING} ({}) among the heuristic policies, got [{}], of which none ranks engines",
        names::hexadecimal(fixed),
        got.join(", ")
    )))
}

/// As the list has them, or in the order of names.
fn ordered(mut engines: Vec<i64>, listed: Option<&[i64]>) -> Vec<i64> {
    match listed {
        Some(listed) => engines.sort_by_key(|id| listed.iter().position(|listed| listed == id)),
        None => engines.sort_by_key(|id| names::static_rank(*id)),
    }
    engines
}

fn preferring(mut engines: Vec<i64>, preferred: Option<i64>) -> Vec<i64> {
    if let Some(preferred) = preferred {
        engines.sort_by_key(|id| *id != preferred);
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
            let ranked = preferring(ordered(all.clone(), listed.as_deref()), preferred);
            assert_eq!(ranked, want, "{preferred:?} {listed:?}");
        }
    }
}
