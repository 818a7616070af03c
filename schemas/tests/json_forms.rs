//! The JSON form of every operation, as hipDNN reads and writes it, and as this project wrote it before.

mod samples;

use hipdnn_schemas::*;
use serde_json::{Map, Value, json};

fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

/// A node of each kind in hipDNN's form, by kind.
fn hipdnn() -> Map<String, Value> {
    object(include_str!("forms/hipdnn.json"))
}

/// The same nodes in the form in which every operation had its fields in `inputs`, `outputs` and `parameters`.
fn earlier() -> Map<String, Value> {
    object(include_str!("forms/earlier.json"))
}

/// The sample of that kind as JSON, with another node.
fn with_node(def: &GraphDef, node: &Value) -> String {
    let mut graph = object(&def.to_json());
    graph["nodes"] = json!([node]);
    Value::Object(graph).to_string()
}

fn node_of(json: &str) -> Value {
    object(json)["nodes"][0].clone()
}

#[test]
fn every_operation_has_hipdnns_form_and_is_read_in_the_earlier_one() {
    let (hipdnn, earlier) = (hipdnn(), earlier());
    assert_eq!((hipdnn.len(), earlier.len()), (Operation::KINDS.len(), Operation::KINDS.len()));
    for def in samples::one_of_each() {
        let kind = def.nodes[0].operation.kind();
        assert_eq!(node_of(&def.to_json()), hipdnn[kind], "{kind} as written");
        for (form, nodes) in [("hipDNN's", &hipdnn), ("the earlier", &earlier)] {
            assert_eq!(GraphDef::from_json(&with_node(&def, &nodes[kind])), Ok(def.clone()), "{kind} in {form} form");
        }
    }
}

#[test]
fn hipdnns_graphs_are_read_and_written_again() {
    let graphs = object(include_str!("forms/graphs.json"));
    assert_eq!(graphs.len(), 12);
    for (name, graph) in graphs {
        let def = GraphDef::from_json(&graph.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(node_of(&def.to_json()), graph["nodes"][0], "{name}");
        assert_eq!(GraphDef::from_json(&def.to_json()), Ok(def.clone()), "{name}");
        Graph::new(def).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn what_hipdnn_leaves_out_is_not_written_and_what_it_may_leave_out_may_miss() {
    // Kind, fields to remove from its node, and whether the node is written without them again.
    let cases: [(&str, &[&str], bool); 10] = [
        ("RMSNormAttributes", &["forward_phase", "inputs.bias_tensor_uid", "outputs.inv_rms_tensor_uid"], true),
        ("RMSNormBackwardAttributes", &["outputs.dbias_tensor_uid"], true),
        ("BlockScaleQuantizeAttributes", &["block_size", "axis"], true),
        ("BlockScaleQuantizeAttributes", &["transpose"], false),
        ("BlockScaleDequantizeAttributes", &["block_size", "is_negative_scale"], false),
        ("ResampleFwdAttributes", &["index_tensor_uid", "generate_index"], true),
        ("ResampleBwdAttributes", &["index_tensor_uid"], true),
        ("MoeGroupedMatmulAttributes", &["inputs.token_index_tensor_uid"], true),
        ("LayernormAttributes", &["forward_phase"], false),
        ("ReductionAttributes", &["is_deterministic"], false),
    ];
    for (kind, fields, left_out) in cases {
        let def = samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == kind).unwrap();
        let mut node = hipdnn()[kind].clone();
        for field in fields {
            let (group, key) = field.split_once('.').map_or((None, *field), |(group, key)| (Some(group), key));
            let holder = match group {
                Some(group) => &mut node[group],
                None => &mut node,
            };
            assert!(holder.as_object_mut().unwrap().remove(key).is_some(), "{kind} has {field}");
        }
        let read = GraphDef::from_json(&with_node(&def, &node)).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_ne!(read, def, "{kind} without {fields:?}");
        assert_eq!(node_of(&read.to_json()) == node, left_out, "{kind} without {fields:?}: {}", read.to_json());
        assert_eq!(GraphDef::from_json(&read.to_json()), Ok(read), "{kind} without {fields:?}");
    }
}

#[test]
fn enumerations_are_read_by_number_where_hipdnn_writes_numbers_and_by_name_everywhere() {
    for (kind, field, values, wrong) in [
        ("ResampleFwdAttributes", "/resample_mode", &[json!("maxpool")][..], json!(9)),
        ("ResampleFwdAttributes", "/padding_mode", &[json!("neg_inf_pad")], json!(-1)),
        ("LayernormAttributes", "/forward_phase", &[json!("TRAINING"), json!("training")], json!(258)),
        ("RMSNormAttributes", "/forward_phase", &[json!(2), json!("training")], json!("train")),
        ("ReductionAttributes", "/mode", &[], json!(6)),
        ("SdpaAttributes", "/attributes/mma_core_mode", &[], json!("float16")),
    ] {
        let def = samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == kind).unwrap();
        let mut node = hipdnn()[kind].clone();
        for value in values {
            *node.pointer_mut(field).unwrap() = value.clone();
            assert_eq!(GraphDef::from_json(&with_node(&def, &node)), Ok(def.clone()), "{kind} {field} {value}");
        }
        *node.pointer_mut(field).unwrap() = wrong.clone();
        assert!(GraphDef::from_json(&with_node(&def, &node)).is_err(), "{kind} {field} {wrong}");
    }
    for (other, now) in [("min_op", ReductionMode::Min), ("max_op", ReductionMode::Max)] {
        assert_eq!(ReductionMode::from_json_name(other), Some(now));
        assert_eq!(now.json_name(), other.trim_end_matches("_op"));
    }
}

#[test]
fn errors_name_the_place_in_the_form_that_came_and_what_is_expected() {
    let reductions = "not_set, add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros";
    let cases: [(&str, &str, Option<Value>, String); 12] = [
        (
            "ReductionAttributes",
            "mode",
            Some(json!("sum")),
            format!("mode: expected a reduction mode ({reductions}), got \"sum\""),
        ),
        ("ReductionAttributes", "mode", None, "mode is missing".into()),
        (
            "ReductionAttributes",
            "in_tensor_uid",
            Some(json!("x")),
            "in_tensor_uid: expected an integer of 64 bits, got \"x\"".into(),
        ),
        (
            "ResampleFwdAttributes",
            "padding_mode",
            Some(json!(3)),
            "padding_mode: expected a padding mode (not_set, neg_inf_pad, zero_pad), got 3".into(),
        ),
        ("ResampleBwdAttributes", "window", None, "window is missing".into()),
        ("LayernormAttributes", "normalized_dim_count", None, "normalized_dim_count is missing".into()),
        ("LayernormAttributes", "inputs", None, "inputs.x_tensor_uid is missing".into()),
        (
            "RMSNormAttributes",
            "forward_phase",
            Some(json!("BOTH")),
            "forward_phase: expected a normalization phase (NOT_SET, INFERENCE, TRAINING), got \"BOTH\"".into(),
        ),
        ("SdpaAttributes", "attributes", None, "attributes.alibi_mask is missing".into()),
        ("SdpaAttributes", "attributes", Some(json!([])), "expected an object attributes, got a list".into()),
        ("CustomOpAttributes", "data", Some(json!([256])), "data: expected a number of type u8, got 256".into()),
        (
            "MoeGroupedMatmulAttributes",
            "mode",
            Some(json!("Gather")),
            "mode: expected a mixture-of-experts mode (none, gather, scatter), got \"Gather\"".into(),
        ),
    ];
    for (kind, field, value, message) in cases {
        let def = samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == kind).unwrap();
        let mut node = hipdnn()[kind].as_object().unwrap().clone();
        match value {
            Some(value) => node.insert(field.into(), value),
            None => node.remove(field),
        };
        let error = GraphDef::from_json(&with_node(&def, &Value::Object(node))).unwrap_err().to_string();
        assert_eq!(error, format!("not a hipDNN JSON graph: nodes[0]: {message}"));
    }
    // In the earlier form, the earlier place.
    let def =
        samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == "ReductionAttributes").unwrap();
    let mut node = earlier()["ReductionAttributes"].clone();
    node["parameters"].as_object_mut().unwrap().remove("mode");
    let error = GraphDef::from_json(&with_node(&def, &node)).unwrap_err().to_string();
    assert_eq!(error, "not a hipDNN JSON graph: nodes[0]: parameters.mode is missing");
}
