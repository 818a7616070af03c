use super::*;
use crate::device::{Device, HOST};
use crate::engine::{CPU, THREADS};
use crate::samples;
use hipdnn_schemas::{DeviceProperties, GbdtModel, GbdtNode, GbdtTree};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

fn model() -> Model {
    let device = |device_id, architecture: &str, multi_processor_count| {
        let architecture_name = architecture.to_owned();
        Device::of(&DeviceProperties { device_id, multi_processor_count, total_global_mem: 0, architecture_name })
    };
    Model { device: device(0, "gfx1100", 96), host: device(HOST, "x86_64", 4) }
}

fn engines(order: &[Estimate]) -> Vec<i64> {
    order.iter().map(|estimate| estimate.configuration.engine).collect()
}

/// How many times as fast as the model says makes the engine take `seconds` for the graph.
fn record(known: &mut Known, graph: &Graph, configuration: &Configuration, seconds: f64) {
    let key = table::key(&features::of(graph));
    known.table.record(key, configuration.number(), model().seconds(graph, configuration) / seconds);
}

#[test]
fn unknown_engines_come_behind_in_the_order_given() {
    let graph = samples::convolution(1, 64, 64, 3, 56, &["relu"]);
    let [ours, miopen, slow] = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC"].map(engine_id);
    let order = by_model(&model(), &graph, &[9, slow, 7, miopen, ours]);
    assert_eq!(engines(&order), [ours, miopen, slow, 9, 7]);
    assert_eq!(order[3].basis, Basis::Unknown);
}

#[test]
fn measurements_overrule_the_model_and_serve_graphs_of_the_family() {
    let [ours, miopen] = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE"].map(engine_id);
    let (measured, like) =
        (samples::convolution(1, 64, 64, 3, 56, &["relu"]), samples::convolution(1, 64, 96, 3, 40, &["relu"]));
    let mut known = Known::default();
    assert_eq!(by_measurements(&model(), &known, &measured, &[ours, miopen]), None, "nothing is known");
    for (engine, seconds) in [(ours, 50e-6), (miopen, 40e-6), (7, 30e-6)] {
        record(&mut known, &measured, &Configuration::plain(engine), seconds);
    }
    let order = by_measurements(&model(), &known, &measured, &[ours, miopen, 7, 9]).unwrap();
    assert_eq!(engines(&order), [7, miopen, ours, 9], "who was measured is no longer unknown");
    assert!((order[1].seconds - 40e-6).abs() < 1e-9, "{:?}", order[1]);
    let order = by_measurements(&model(), &known, &like, &[ours, miopen, 7]).unwrap();
    assert_eq!(engines(&order), [7, miopen, ours]);
    assert!(matches!(order[0].basis, Basis::Nearby { count: 1, distance } if distance > 0.0), "{:?}", order[0]);
    assert_eq!(by_measurements(&model(), &known, &samples::softmax(64, 64), &[ours, miopen]), None, "another family");
}

#[test]
fn settings_are_taken_for_a_gain_only() {
    let cpu = engine_id(CPU);
    let graph = samples::chain(1 << 14, &["bias", "relu"]);
    let one_thread = Configuration::all(cpu).into_iter().find(|its| its.knob(THREADS) == Some(1)).unwrap();
    for (seconds, taken) in [(8.5e-6, false), (7.5e-6, true)] {
        let mut known = Known::default();
        record(&mut known, &graph, &one_thread, seconds);
        assert_eq!(by_measurements(&model(), &known, &graph, &[cpu]), None, "nothing to compare it with");
        record(&mut known, &graph, &Configuration::plain(cpu), 10e-6);
        let order = by_measurements(&model(), &known, &graph, &[cpu]).unwrap();
        assert_eq!(order[0].configuration == one_thread, taken, "{seconds}");
        // Of a graph that is only like it, one measurement is none.
        let like = samples::chain(1 << 15, &["bias", "relu"]);
        assert!(by_measurements(&model(), &known, &like, &[cpu]).unwrap()[0].configuration.is_plain());
    }
}

#[test]
fn trees_are_asked_where_nothing_near_was_measured() {
    let [ours, miopen] = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE"].map(engine_id);
    let graph = samples::softmax(64, 512);
    let split = |feature, threshold| GbdtNode::Split {
        feature,
        threshold,
        equal_left: true,
        missing_left: true,
        children: [1, 2],
    };
    // The engine with settings is four times as fast in its first setting as the model says.
    let tree = GbdtTree(vec![split(COUNT as u32, 0.5), GbdtNode::Leaf(0.0), GbdtNode::Leaf(2.0)]);
    let trees = GbdtModel {
        trees: vec![tree],
        features: crate::store::TREE_FEATURES as u32,
        features_hash: features::hash(),
        ..GbdtModel::default()
    };
    let known = Known { trees: Some(trees), ..Known::default() };
    let order = by_measurements(&model(), &known, &graph, &[miopen, ours, 7]).unwrap();
    assert_eq!(engines(&order), [ours, miopen, 7]);
    assert_eq!(order[0].basis, Basis::Trees);
    assert!(!order[0].configuration.is_plain());
}
