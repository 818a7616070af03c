//! How engines are ranked. There is one policy, a static order; hipDNN's others decline here, as they do there when
//! they have nothing to go by.

use crate::error::{Error, Result};
use crate::log;
use crate::names;
use crate::plugins::Resources;

/// The policy's name.
pub(crate) const STATIC_ORDERING: &str = "SelectionHeuristic::StaticOrdering";

/// The policy's id: ids of policies are hashes of names, as those of engines.
pub(crate) fn static_ordering_id() -> i64 {
    names::id_of(STATIC_ORDERING)
}

/// Ranks engines: `HIPDNN_HEUR_POLICY_ORDER`, or the client's order of policies, or the built-in one, decides which
/// policy is asked; `HIPDNN_HEUR_FALLBACK_ENGINE_ORDER` drops engines that it does not list; the engine that the graph
/// prefers comes first.
pub(crate) fn rank(
    engines: Vec<i64>,
    preferred: Option<i64>,
    policies: Option<&[i64]>,
    resources: &Resources,
) -> Result<Vec<i64>> {
    let environment = list_of("HIPDNN_HEUR_POLICY_ORDER")
        .map(|order| order.iter().map(|text| names::parse_id(text).unwrap_or_else(|| names::id_of(text))).collect());
    let order: Option<Vec<i64>> = environment.or_else(|| policies.filter(|ids| !ids.is_empty()).map(<[i64]>::to_vec));
    if let Some(order) = order
        && !order.contains(&static_ordering_id())
    {
        return Err(Error::internal(format!("none of the heuristic policies {order:?} ranks engines here")));
    }
    let listed: Option<Vec<i64>> = list_of("HIPDNN_HEUR_FALLBACK_ENGINE_ORDER")
        .map(|order| order.iter().map(|text| engine(text, resources)).collect());
    let ranked = ordered(engines, preferred, listed.as_deref());
    log::info!("engines in order: {ranked:?}");
    Ok(ranked)
}

fn ordered(mut engines: Vec<i64>, preferred: Option<i64>, listed: Option<&[i64]>) -> Vec<i64> {
    match listed {
        Some(listed) => {
            let place = |id: &i64| listed.iter().position(|listed| listed == id);
            engines.retain(|id| place(id).is_some());
            engines.sort_by_key(place);
        }
        None => engines.sort_by_key(|id| names::static_rank(*id)),
    }
    if let Some(preferred) = preferred {
        engines.sort_by_key(|id| *id != preferred);
    }
    engines
}

/// The engine that a user means: the name of a loaded one, or a number, or any other name.
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
            ["MIOPEN_RS_ENGINE", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC", "OTHER", "MORE"].map(names::id_of);
        let all = vec![slow, other, miopen, more, rs];
        for (preferred, listed, want) in [
            (None, None, vec![rs, miopen, other, more, slow]),
            (Some(more), None, vec![more, rs, miopen, other, slow]),
            (Some(123), None, vec![rs, miopen, other, more, slow]),
            (None, Some(vec![slow, other]), vec![slow, other]),
            (Some(other), Some(vec![slow, other]), vec![other, slow]),
            (Some(rs), Some(vec![slow]), vec![slow]),
            (None, Some(vec![77]), vec![]),
        ] {
            assert_eq!(ordered(all.clone(), preferred, listed.as_deref()), want, "{preferred:?} {listed:?}");
        }
    }
}
