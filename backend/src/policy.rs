//! Heuristic policies, which rank engines. Of hipDNN's policies there is the static order; the one that reads a
//! configuration file declines here, as it does there without one. Unknown policies are skipped, as by hipDNN: its
//! frontend names newer ones before the static order.

use crate::error::{Error, Result};
use crate::log;
use crate::names;
use crate::plugins::Resources;

/// The name of the policy that ranks.
pub(crate) const STATIC_ORDERING: &str = "SelectionHeuristic::StaticOrdering";

/// The name of the policy that declines.
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

/// Ranks engines by the first of the policies that can; `HIPDNN_HEUR_FALLBACK_ENGINE_ORDER` drops engines that it does
/// not list; the engine that the graph prefers comes first.
///
/// # Errors
/// If no policy ranks.
pub(crate) fn rank(
    engines: Vec<i64>,
    preferred: Option<i64>,
    policies: &[i64],
    resources: &Resources,
) -> Result<Vec<i64>> {
    let ranking = static_ordering_id();
    for &policy in policies.iter().take_while(|policy| **policy != ranking) {
        if policy != names::id_of(CONFIG) {
            log::warning!("heuristic policy {} is passed over: there is none", names::hexadecimal(policy));
        }
    }
    if !policies.contains(&ranking) {
        let got: Vec<String> = policies.iter().map(|&policy| names::hexadecimal(policy)).collect();
        return Err(Error::internal(format!(
            "expected {STATIC_ORDERING} ({}) among the heuristic policies, got [{}], of which none ranks engines",
            names::hexadecimal(ranking),
            got.join(", ")
        )));
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
            (None, Some(vec![slow, other]), vec![slow, other]),
            (Some(other), Some(vec![slow, other]), vec![other, slow]),
            (Some(rs), Some(vec![slow]), vec![slow]),
            (None, Some(vec![77]), vec![]),
        ] {
            assert_eq!(ordered(all.clone(), preferred, listed.as_deref()), want, "{preferred:?} {listed:?}");
        }
    }
}
