//! Heuristics plugins: which are loaded, what their policies are asked, and what becomes of their answers.

mod common;

use std::ffi::c_char;
use std::path::{Path, PathBuf};

use common::*;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeName as A;
use hipdnn_sdk_bindings::hipdnn::backend::AttributeType as T;

/// Calls that the plugin has counted; the layout is that of the C file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Asked {
    handles: i64,
    policies: i64,
    graph_bytes: i64,
    device_bytes: i64,
    predictions: i64,
    foreign_predictions: i64,
    metric: [c_char; 32],
}

fn asked(plugin: &Path) -> Asked {
    // SAFETY: the symbol is that structure.
    unsafe { global(plugin, c"heuristic_calls") }.expect("the plugin is loaded")
}

fn policy_plugin(directory: &Path, macros: &[&str]) -> PathBuf {
    // The loader takes a file that was loaded once for the same library again.
    let name = format!("policy-{}.so", macros.join("-").replace(|letter: char| !letter.is_alphanumeric(), "_"));
    compile_source("heuristic_plugin.c", &directory.join(name), macros)
}

/// The policies that clients are told: name, plugin, version, ABI version.
fn policies(handle: &OwnedHandle) -> Vec<[String; 4]> {
    let mut count = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { hipdnnGetHeuristicPolicyCount_ext(handle.0, &mut count) }, OK);
    let one = |index| {
        let mut id = 0;
        let mut texts = [[0u8; 64]; 4];
        let mut lengths = [64usize; 4];
        let [a, b, c, d] = texts.each_mut().map(|text| text.as_mut_ptr().cast::<c_char>());
        let [k, l, m, n] = lengths.each_mut().map(|length| &raw mut *length);
        // SAFETY: the places are valid, the texts as large as is said.
        let status = unsafe { hipdnnGetHeuristicPolicyInfo_ext(handle.0, index, &mut id, a, k, b, l, c, m, d, n) };
        assert_eq!(status, OK, "{}", last_error());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap()).into_owned();
        let texts = texts.map(|bytes| text(&bytes));
        assert_eq!(id, engine_id(&texts[0]), "ids are hashes of names");
        texts
    };
    (0..count).map(one).collect()
}

/// The engines of a graph by these policies, the best first; their configurations are finalized.
fn ranked(graph: &Desc, policies: &[&str], metric: Option<&str>) -> Vec<i64> {
    let heuristic = heuristic(graph);
    let ids: Vec<i64> = policies.iter().map(|name| engine_id(name)).collect();
    heuristic.set_int64s(A::ENGINEHEUR_POLICY_ORDER_EXT, &ids);
    if let Some(metric) = metric {
        heuristic.set_text(A::ENGINEHEUR_RANKING_METRIC_EXT, metric);
    }
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

fn engines(directory: &Path) -> [PathBuf; 3] {
    ["ONE", "TWO", "THREE"].map(|name| compile(directory, &format!("{name}.so"), &[&format!("ECHO_NAME=\"{name}\"")]))
}

const STATIC: &str = "SelectionHeuristic::StaticOrdering";

#[test]
fn policies_of_plugins_rank() {
    let _turn = turn();
    let directory = scratch("heuristics");
    let engines = engines(&directory);
    let plain = policy_plugin(&directory, &[]);
    let with_host = policy_plugin(&directory, &["HEURISTIC_HOST", "HEURISTIC_NAME=\"HOSTED\""]);
    use_plugins(&engines.each_ref().map(PathBuf::as_path));
    for (plugin, name) in [(&plain, "REVERSE"), (&with_host, "HOSTED")] {
        use_heuristics(&[plugin]);
        let handle = OwnedHandle::new();
        let own = |name: &str| [name, "hipdnn-builtin", env!("CARGO_PKG_VERSION"), "0.1.0"].map(str::to_owned);
        let mut told = policies(&handle);
        let mut wanted = vec![own("SelectionHeuristic::Config"), own(STATIC)];
        wanted.extend([name, "NEVER"].map(|policy| [policy, "reversing", "3.2.1", "0.1.0"].map(str::to_owned)));
        told.sort();
        wanted.sort();
        assert_eq!(told, wanted);
        let graph = finished_graph(&handle, &add_graph());
        let fixed = ranked(&graph, &[STATIC], None);
        // What a policy is given is in the order of plugins; it turns that round.
        let reversed = ranked(&graph, &[name, STATIC], Some("time"));
        let mut by_path = ["ONE", "THREE", "TWO"].map(engine_id);
        by_path.reverse();
        assert_eq!(reversed, by_path);
        let calls = asked(plugin);
        assert_eq!((calls.handles, calls.policies), (1, 0), "{calls:?}");
        assert!(calls.graph_bytes > 0 && calls.device_bytes > 0, "{calls:?}");
        if name == "HOSTED" {
            assert_eq!((calls.predictions, calls.foreign_predictions), (6, 2), "two kinds for each, and no others'");
            assert_eq!(calls.metric.map(|byte| byte as u8)[..5], *b"time\0");
        }
        // One that declines, and one that nobody has, leave the turn to the next.
        assert_eq!(ranked(&graph, &["NEVER", "NOBODY", STATIC], None), fixed);
        assert_eq!(ranked(&graph, &["NEVER", name], None), by_path);
        // Without being named, no policy of a plugin is asked.
        let heuristic = heuristic(&graph);
        heuristic.finalize();
        assert_eq!(heuristic.get_int64s(A::ENGINEHEUR_POLICY_ORDER_EXT).len(), 2);
        let one = [c"x".as_ptr()];
        // SAFETY: one path.
        let status = unsafe { hipdnnSetHeuristicPluginPaths_ext(1, one.as_ptr(), PluginLoadingMode::ADDITIVE) };
        assert_eq!(status, Status::NOT_SUPPORTED, "not while a handle lives");
        drop((graph, heuristic, handle));
        assert_eq!(asked(plugin).handles, 0);
    }
    use_heuristics(&[]);
}

#[test]
fn plugins_that_are_not_taken_and_answers_that_are_not() {
    let _turn = turn();
    let directory = scratch("heuristics-wrong");
    let engines = engines(&directory);
    use_plugins(&engines.each_ref().map(PathBuf::as_path));
    for (macros, why) in [
        ("HEURISTIC_API=\"1.0.0\"", Some("does not match expected heuristic API major version 0")),
        ("HEURISTIC_API=\"1\"", Some("expected an API version")),
        ("HEURISTIC_TYPE=HIPDNN_PLUGIN_TYPE_ENGINE", Some("expected a plugin of type HEURISTIC")),
        ("HEURISTIC_WRONG_ID", Some("its name's hash")),
        ("HEURISTIC_NAME=\"SelectionHeuristic::Config\"", Some("hipdnn-builtin's already")),
        ("HEURISTIC_NAME=\"NEVER\"", Some("given twice")),
        ("HEURISTIC_FAILS", None),
        ("HEURISTIC_FOREIGN", None),
        ("HEURISTIC_TWICE", None),
        ("HEURISTIC_NO_HANDLE", None),
    ] {
        let plugin = policy_plugin(&directory, &[macros]);
        use_heuristics(&[&plugin]);
        let handle = OwnedHandle::new();
        let text = last_error();
        match why {
            Some(why) => assert!(text.contains(why), "{macros}: {text}"),
            None => assert_eq!(text, "", "{macros}"),
        }
        let count = if why.is_some() || macros == "HEURISTIC_NO_HANDLE" { 2 } else { 4 };
        assert_eq!(policies(&handle).len(), count, "{macros}");
        let graph = finished_graph(&handle, &add_graph());
        let fixed = ranked(&graph, &[STATIC], None);
        assert_eq!(ranked(&graph, &["REVERSE", STATIC], None), fixed, "{macros}");
    }
    // An engine plugin beside one with policies.
    let plugin = policy_plugin(&directory, &["HEURISTIC_HOST"]);
    use_heuristics(&[&engines[0], &plugin]);
    let handle = OwnedHandle::new();
    let text = last_error();
    assert!(text.contains("hipdnnHeuristicPluginGetAllPolicyIds"), "{text}");
    assert_eq!(policies(&handle).len(), 4);
    drop(handle);
    use_heuristics(&[]);
}

/// Knobs that were ranked with an engine are its configuration's, and only if that is the engine's own.
#[test]
fn configurations_of_policies() {
    let _turn = turn();
    let directory = scratch("heuristics-config");
    let engines = engines(&directory);
    use_plugins(&engines.each_ref().map(PathBuf::as_path));
    let knobs = vec![("echo.int".to_owned(), hipdnn_schemas::KnobValue::Int(4))];
    for (engine, name, taken) in [("TWO", "CONFIGURED", true), ("ONE", "MISTAKEN", false)] {
        let config = hipdnn_schemas::EngineConfig { engine_id: engine_id(engine), knobs: knobs.clone() };
        let bytes: String = config.to_bytes().iter().map(|byte| format!("{byte},")).collect();
        let included = directory.join(format!("{name}.inc"));
        std::fs::write(&included, bytes).unwrap();
        let macros = [format!("HEURISTIC_CONFIG=\"{}\"", included.display()), format!("HEURISTIC_NAME=\"{name}\"")];
        let plugin = directory.join(format!("{name}.so"));
        compile_source("heuristic_plugin.c", &plugin, &macros.each_ref().map(String::as_str));
        use_heuristics(&[&plugin]);
        let handle = OwnedHandle::new();
        let graph = finished_graph(&handle, &add_graph());
        let order = ranked(&graph, &[name, STATIC], None);
        if taken {
            assert_eq!(order[0], engine_id("TWO"), "the last one of the candidates");
            assert_eq!(config_of(&engines[1]).knobs, knobs, "the engine has its knobs");
        } else {
            assert_eq!(order, ranked(&graph, &[STATIC], None), "a configuration of another engine");
        }
        assert_eq!(config_of(&engines[0]).knobs, [], "engines without a configuration have none");
    }
    use_heuristics(&[]);
}
