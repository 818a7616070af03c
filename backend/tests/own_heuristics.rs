//! The project's own heuristics plugin in this backend: which order its policies give, and that nothing that happens to
//! it hurts.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use hipdnn_heuristics_model::device::{Device, HOST};
use hipdnn_heuristics_model::table::Table;
use hipdnn_heuristics_model::{features, store, table};
use hipdnn_schemas::{DeviceProperties, Graph};
use hipdnn_sdk_bindings::hipdnn::backend::AttributeName as A;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeType as T;

const STATIC: &str = "SelectionHeuristic::StaticOrdering";
const MEASURED: &str = "SelectionHeuristic::HipdnnRsMeasured";
const MODELED: &str = "SelectionHeuristic::HipdnnRsCostModel";

/// The plugin, which cargo builds beside the tests of what depends on it.
fn plugin() -> PathBuf {
    // The dependency is used, so that it is linked and built.
    let names = hipdnn_rs_heuristics::policy::Policy::ALL.map(|policy| policy.name());
    assert_eq!(names.map(|name| name.to_str().unwrap()), [MEASURED, MODELED]);
    let path = std::env::current_exe().unwrap().with_file_name("libhipdnn_rs_heuristics.so");
    assert!(path.is_file(), "cargo left no {}", path.display());
    path
}

fn set_variable(name: &str, value: &str) {
    // SAFETY: this binary has one test, and nothing it loads reads variables on another thread.
    unsafe { std::env::set_var(name, value) };
}

/// The engines of a graph by these policies, the best first.
fn ranked(graph: &Desc, policies: &[&str]) -> Vec<i64> {
    let heuristic = heuristic(graph);
    let ids: Vec<i64> = policies.iter().map(|name| engine_id(name)).collect();
    heuristic.set_int64s(A::ENGINEHEUR_POLICY_ORDER_EXT, &ids);
    heuristic.finalize();
    let engine = |config: &Desc| {
        config.finalize();
        let mut id = [0i64];
        let status = config.get_desc(A::ENGINECFG_ENGINE).try_get(A::ENGINE_GLOBAL_INDEX, T::INT64, &mut id).0;
        assert_eq!(status, OK, "{}", last_error());
        id[0]
    };
    results(&heuristic).iter().map(engine).collect()
}

/// Keeps how many times as fast as the model says each engine is for the graph.
fn measure(graph: &Graph, scores: &[(i64, f64)]) -> PathBuf {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let device = Device::of(&DeviceProperties {
        device_id: HOST,
        multi_processor_count: threads as i32,
        total_global_mem: 0,
        architecture_name: std::env::consts::ARCH.to_owned(),
    });
    let mut measured = Table::default();
    let key = table::key(&features::of(graph));
    scores.iter().for_each(|(engine, score)| measured.record(key, *engine, *score));
    let folder = store::folder().unwrap();
    store::write(&folder, &device, &measured).unwrap();
    folder.join(device.name).join("table.bin")
}

#[test]
fn policies_rank_as_predicted() {
    let directory = scratch("own-heuristics");
    set_variable("HIPDNN_CACHE_DIR", directory.join("cache").to_str().unwrap());
    let names = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "HIPDNN_RS_CPU_ENGINE", "ANOTHER"];
    let engines = names.map(|name| compile(&directory, &format!("{name}.so"), &[&format!("ECHO_NAME=\"{name}\"")]));
    use_plugins(&engines.each_ref().map(PathBuf::as_path));
    let plugin = plugin();
    use_heuristics(&[&plugin as &Path]);
    let handle = OwnedHandle::new();
    let description = add_graph();
    let graph = finished_graph(&handle, &description);
    let [gpu, miopen, cpu, another] = names.map(engine_id);

    let fixed = ranked(&graph, &[STATIC]);
    assert_eq!(fixed[..2], [gpu, miopen]);
    // A few elements: the host's engine has no launches to wait for.
    assert_eq!(ranked(&graph, &[MODELED, STATIC]), [cpu, gpu, miopen, another]);
    // Nothing was measured: the next policy's turn.
    assert_eq!(ranked(&graph, &[MEASURED, STATIC]), fixed);
    assert_eq!(ranked(&graph, &[MEASURED, MODELED]), [cpu, gpu, miopen, another]);
    // Nobody who names no policy of the plugin gets another order.
    let unnamed = heuristic(&graph);
    unnamed.finalize();
    assert_eq!(unnamed.get_int64s(A::ENGINEHEUR_POLICY_ORDER_EXT).len(), 2);

    let checked = Graph::new(description.clone()).unwrap();
    let file = measure(&checked, &[(miopen, 1000.0), (another, 100.0), (gpu, 0.01)]);
    assert_eq!(ranked(&graph, &[MEASURED, STATIC]), [miopen, another, cpu, gpu]);
    // What was measured serves graphs of the family, and no others.
    let mut like = description.clone();
    like.tensors.iter_mut().for_each(|tensor| {
        tensor.dims[0] *= 2;
    });
    assert_eq!(ranked(&finished_graph(&handle, &like), &[MEASURED, STATIC]), [miopen, another, cpu, gpu]);
    like.tensors.iter_mut().for_each(|tensor| tensor.dims[0] *= 1 << 12);
    assert_eq!(ranked(&finished_graph(&handle, &like), &[MEASURED, STATIC]), fixed, "too large to be like it");
    // A client's own preference comes first, whatever was measured.
    let mut preferring = description.clone();
    preferring.preferred_engine_id = Some(gpu);
    assert_eq!(ranked(&finished_graph(&handle, &preferring), &[MEASURED, STATIC])[0], gpu);

    let good = std::fs::read(&file).unwrap();
    for bytes in [&good[..good.len() - 40], &good[..7], b"TABLTABLTABL", &[0xff; 4096]] {
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(ranked(&graph, &[MEASURED, STATIC]), fixed, "a damaged file is passed over");
    }
    std::fs::write(&file, good).unwrap();
    set_variable("HIPDNN_DISABLE_CACHE", "1");
    assert_eq!(ranked(&graph, &[MEASURED, STATIC]), fixed, "switched off");
    drop((graph, unnamed, handle));
    use_heuristics(&[]);
}
