//! Rankings that clients measure: kept on disk, and what engines are ranked by from then on.

mod common;

use std::path::Path;

use common::*;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeName as A;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeType as T;

fn set_variable(name: &str, value: &str) {
    // SAFETY: this binary has one test, and nothing it loads reads variables on another thread.
    unsafe { std::env::set_var(name, value) };
}

/// The engine of a configuration that is not finalized.
fn engine_of(config: &Desc) -> i64 {
    config.finalize();
    let mut id = [0i64];
    let status = config.get_desc(A::ENGINECFG_ENGINE).try_get(A::ENGINE_GLOBAL_INDEX, T::INT64, &mut id).0;
    assert_eq!(status, OK, "{}", last_error());
    id[0]
}

/// The engines of a graph, the best first.
fn ranked(graph: &Desc) -> Vec<i64> {
    let heuristic = heuristic(graph);
    heuristic.finalize();
    results(&heuristic).iter().map(engine_of).collect()
}

fn write(handle: &OwnedHandle, graph: &Desc, order: &[i64]) -> AutotuneCacheWriteOutcome {
    let mut outcome = AutotuneCacheWriteOutcome(77);
    // SAFETY: as many ids as are said, and a place for the outcome.
    let status = unsafe {
        hipdnnBackendWriteEngineRankingResults_ext(handle.0, graph.0, order.as_ptr(), order.len(), &mut outcome)
    };
    assert_eq!(status, OK, "{}", last_error());
    outcome
}

fn records(cache: &Path) -> Vec<std::path::PathBuf> {
    let folder = cache.join("autotune-rankings/hipdnn-rs-1");
    folder.read_dir().map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
}

#[test]
fn measured_rankings_are_kept_and_followed() {
    use AutotuneCacheWriteOutcome as Outcome;
    let directory = scratch("rankings");
    let cache = directory.join("cache");
    set_variable("HIPDNN_CACHE_DIR", cache.to_str().unwrap());
    let plugins = ["ONE", "TWO", "THREE"]
        .map(|name| compile(&directory, &format!("{name}.so"), &[&format!("ECHO_NAME=\"{name}\"")]));
    use_plugins(&plugins.each_ref().map(|plugin| plugin.as_path()));
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    let fixed = ranked(&graph);
    assert_eq!(fixed.len(), 3);
    let measured = [fixed[2], fixed[0], fixed[1]];

    // What is not to be kept, and why.
    let unfinished = Desc::graph(&add_graph());
    assert_eq!(write(&handle, &unfinished, &measured), Outcome::DECLINED_UNKEYABLE_OR_UNFINALIZED);
    assert_eq!(write(&handle, &graph, &[]), Outcome::DECLINED_NO_ENGINES);
    for name in ["HIPDNN_DISABLE_CACHE", "HIPDNN_DISABLE_EXACT_ENGINE_CACHE"] {
        for word in ["1", " True ", "enabled"] {
            set_variable(name, word);
            assert_eq!(write(&handle, &graph, &measured), Outcome::DECLINED_DISABLED, "{name}={word}");
        }
        // No word of those that disable.
        set_variable(name, "off");
    }
    assert!(records(&cache).is_empty());
    assert_eq!(ranked(&graph), fixed);

    assert_eq!(write(&handle, &graph, &measured), Outcome::WRITTEN);
    assert_eq!(ranked(&graph), measured);
    assert_eq!(write(&handle, &graph, &measured), Outcome::UNCHANGED);
    assert_eq!(write(&handle, &graph, &measured[1..]), Outcome::UNCHANGED, "a part of the engines");
    assert_eq!(records(&cache).len(), 1);

    // The same content under other names, and a graph of other extents.
    let mut renamed = add_graph();
    renamed.name = "renamed".into();
    renamed.nodes[0].name = "sum".into();
    assert_eq!(ranked(&finished_graph(&handle, &renamed)), measured);
    let mut larger = add_graph();
    larger.tensors.iter_mut().for_each(|tensor| tensor.dims[0] *= 2);
    assert_eq!(ranked(&finished_graph(&handle, &larger)), fixed);

    // A client's own order of policies, its preference, and the order of the environment hold as before.
    let by_static = heuristic(&graph);
    by_static.set_int64s(A::ENGINEHEUR_POLICY_ORDER_EXT, &[engine_id("SelectionHeuristic::StaticOrdering")]);
    by_static.finalize();
    assert_eq!(engine_of(&results(&by_static)[0]), fixed[0]);
    set_variable("HIPDNN_HEUR_FALLBACK_ENGINE_ORDER", &format!("{},{}", fixed[0], fixed[2]));
    assert_eq!(ranked(&graph), [fixed[2], fixed[0]], "those that are listed, as was measured");
    set_variable("HIPDNN_HEUR_FALLBACK_ENGINE_ORDER", "");
    let mut preferring = add_graph();
    preferring.preferred_engine_id = Some(fixed[1]);
    assert_eq!(ranked(&finished_graph(&handle, &preferring)), [fixed[1], fixed[2], fixed[0]]);

    // A newer ranking replaces an older one; one that lacks an engine is kept, and not followed.
    assert_eq!(write(&handle, &graph, &[fixed[1], fixed[2], fixed[0], 99]), Outcome::WRITTEN);
    assert_eq!(ranked(&graph), [fixed[1], fixed[2], fixed[0]]);
    assert_eq!(write(&handle, &graph, &[98, 99, fixed[2]]), Outcome::WRITTEN);
    assert_eq!(ranked(&graph), fixed);

    // Damage is no error.
    let record = records(&cache).remove(0);
    for damage in [&b"{"[..], b"", b"\xff\xfe\n", br#"{"key":"another","order":[1]}"#] {
        std::fs::write(&record, damage).unwrap();
        assert_eq!(ranked(&graph), fixed);
    }
    assert_eq!(write(&handle, &graph, &measured), Outcome::WRITTEN);
    assert_eq!(ranked(&graph), measured);

    // Where nothing can be written.
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    set_variable("HIPDNN_CACHE_DIR", file.to_str().unwrap());
    assert_eq!(write(&handle, &graph, &measured), Outcome::DECLINED_DISABLED);
    assert_eq!(ranked(&graph), fixed);
    let no_outcome = std::ptr::null_mut();
    // SAFETY: as many ids as are said; the outcome may be null.
    let status =
        unsafe { hipdnnBackendWriteEngineRankingResults_ext(handle.0, graph.0, measured.as_ptr(), 3, no_outcome) };
    assert_eq!(status, OK);
    let name = heuristic(&graph);
    assert_eq!(name.try_set(A::ENGINEHEUR_POLICY_ORDER_EXT, T::INT64, &[0i64; 0]), OK);
}
