//! Bytes, descriptions and JSON say the same.

mod samples;

use hipdnn_schemas::*;

#[test]
fn all_kinds_round_trip_and_check() {
    let graphs = samples::one_of_each();
    let kinds: Vec<_> = graphs.iter().map(|graph| graph.nodes[0].operation.kind()).collect();
    assert_eq!(kinds, Operation::KINDS);
    for def in graphs.into_iter().chain([samples::conv_bias_relu(), samples::every_field()]) {
        let bytes = def.to_bytes();
        verify_graph(&bytes).expect("own bytes");
        assert_eq!(GraphDef::from_bytes(&bytes), Ok(def.clone()), "{} through bytes", def.name);
        assert_eq!(GraphDef::from_json(&def.to_json()), Ok(def.clone()), "{} through JSON", def.name);
        assert_eq!(GraphDef::from_bytes(&bytes).unwrap().to_bytes(), bytes, "{}: stable bytes", def.name);
        let graph = Graph::new(def.clone()).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        let node = &graph.nodes()[0].operation;
        for uid in node.inputs() {
            assert_eq!(graph.consumers(uid), [0], "{}: tensor {uid}", def.name);
        }
        for uid in node.outputs() {
            assert_eq!(graph.producer(uid), Some(0), "{}: tensor {uid}", def.name);
        }
        let uids = |named: Vec<(&str, TensorUid)>| named.into_iter().map(|(_, uid)| uid).collect::<Vec<_>>();
        assert_eq!(*uids(node.named_inputs()), *node.inputs(), "{}", def.name);
        assert_eq!(*uids(node.named_outputs()), *node.outputs(), "{}", def.name);
        let named = node.inputs().into_iter().chain(node.outputs()).collect::<std::collections::HashSet<_>>();
        if def.nodes.len() == 1 && def.name != "every_field" {
            assert_eq!(named.len(), def.tensors.len(), "{}: every tensor is an operand", def.name);
        }
    }
}

#[test]
fn a_checked_graph_is_as_described() {
    let def = samples::every_field();
    let graph = Graph::new(def.clone()).expect("the sample is right");
    assert_eq!((graph.name(), graph.tensors().len()), (def.name.as_str(), def.tensors.len()));
    for (tensor, def) in graph.tensors().iter().zip(&def.tensors) {
        assert_eq!((tensor.uid(), tensor.name(), tensor.def()), (def.uid, def.name.as_str(), def));
        assert_eq!((tensor.value(), tensor.ragged(), tensor.alignment()), (def.value, def.ragged, def.alignment));
        let flags = (tensor.is_virtual(), tensor.is_runtime_pass_by_value());
        assert_eq!(flags, (def.is_virtual, def.is_runtime_pass_by_value), "tensor {}", def.uid);
    }
}

/// Span of a tensor in memory, in elements and in whole bytes.
#[test]
fn tensors_reach_to_their_last_element() {
    type Case<'a> = (&'a [i64], &'a [i64], DataType, usize, usize);
    let cases: [Case<'_>; 6] = [
        (&[1], &[1], DataType::Double, 1, 8),
        (&[2, 3], &[3, 1], DataType::Float, 6, 24),
        (&[2, 3], &[4, 1], DataType::Half, 7, 14),
        (&[3, 2], &[1, 5], DataType::Int8, 8, 8),
        (&[4, 1], &[0, 9], DataType::Half, 1, 2),
        (&[3], &[5], DataType::Int4, 11, 6),
    ];
    for (dims, strides, data_type, elements, bytes) in cases {
        let mut def = samples::conv_bias_relu();
        def.tensors.push(TensorDef::new(99, data_type, dims).strided(strides));
        let graph = Graph::new(def).expect("a right graph");
        let tensor = graph.tensor(TensorUid(99));
        assert_eq!((tensor.span(), tensor.span_bytes()), (elements, bytes), "{dims:?} by {strides:?} of {data_type}");
    }
}

/// A list of tensors that JSON does not mention has none.
#[test]
fn lists_of_tensors_may_be_left_out() {
    let kind = "BatchnormBackwardAttributes";
    let def = samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == kind).expect("a sample");
    let mut json: serde_json::Value = serde_json::from_str(&def.to_json()).unwrap();
    let inputs = json["nodes"][0]["inputs"].as_object_mut().expect("operands in groups");
    inputs.remove("peer_stats_tensor_uid").expect("the sample has the list");
    let read = GraphDef::from_json(&json.to_string()).unwrap();
    let Operation::BatchnormBackward(node) = &read.nodes[0].operation else { unreachable!("{kind}") };
    assert_eq!(node.peer_stats, []);
}

#[test]
fn operands_and_attributes_have_the_names_of_the_wire() {
    let mut relu = Pointwise::unary(PointwiseMode::ReluFwd, TensorUid(1), TensorUid(2));
    relu.relu_upper_clip = Some(f32::INFINITY);
    relu.axis = Some(-1);
    let relu = Operation::Pointwise(relu);
    assert_eq!(relu.named_inputs(), [("in_0_tensor_uid", TensorUid(1))]);
    assert_eq!(relu.named_outputs(), [("out_0_tensor_uid", TensorUid(2))]);
    let texts: Vec<(&str, String)> = relu.attributes();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(texts, [("operation", "relu_fwd"), ("relu_upper_clip", "inf"), ("axis_tensor_uid", "-1")]);
}

/// A graph with one tensor, written by flatc: uid 7, "eps", FLOAT, dims [1], strides [1], value Float32Value 1.5.
const ONE_TENSOR: &str = "14000000 10001400 08000700 00000000 0c001000 10000000 00000001 74000000
    0c000000 04000000 00000000 01000000 18000000 14002000 18000800 06000c00
    10000000 07001400 14000000 00000101 38000000 18000000 24000000 0c000000
    07000000 00000000 0000c03f 01000000 01000000 00000000 00000000 01000000
    01000000 00000000 03000000 65707300 01000000 67000000";

fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digits: String = hexadecimal.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn one_tensor() -> Vec<u8> {
    bytes_of(ONE_TENSOR)
}

#[test]
fn bytes_of_flatc_are_read() {
    let def = GraphDef::from_bytes(&one_tensor()).unwrap();
    let eps = TensorDef::new(7, DataType::Float, &[1]).named("eps").with_value(TensorValue::Float32(1.5));
    assert_eq!(
        def,
        GraphDef { name: "g".into(), compute_data_type: DataType::Float, tensors: vec![eps], ..GraphDef::default() }
    );
    // Our own bytes need not be the same, but mean the same.
    assert_eq!(GraphDef::from_bytes(&def.to_bytes()), Ok(def));
}

/// A graph with tensors of uids 1 to 8, written by flatc where the value is a union of structs, as hipDNN declares it:
/// one of each struct.
const VALUES: &str =
    "14000000 00000e00 08000000 00000000 00000400 0e000000 04000000 08000000 34010000 00010000 e4000000 b0000000
    7c000000 58000000 34000000 18000000 14001700 0c000000 00000000 00000000 07000800 14000000 00000008 0f000000
    08000000 00000000 00000001 74ffffff 00000007 0c000000 07000000 00000000 00000000 00000080 00000000 94ffffff
    00000006 0c000000 06000000 00000000 9a999999 9999b93f 00000000 6cffffff 00000005 10000000 05000000 00000000
    00000000 f9ffffff 14001b00 0c000000 00000000 00000000 07000800 14000000 00000004 13000000 04000000 00000000
    00000000 000000c8 14001400 0c000000 00000000 00000000 07000800 14000000 00000003 0c000000 03000000 00000000
    00004040 e4ffffff 00000002 10000000 02000000 00000000 00000000 000080be 14001800 0c000000 00000000 00000000
    07000800 14000000 00000001 10000000 01000000 00000000 00000000 0000c03f";

#[test]
fn values_of_hipdnns_union_are_read() {
    let def = GraphDef::from_bytes(&bytes_of(VALUES)).unwrap();
    let values: Vec<_> = def.tensors.iter().map(|tensor| (tensor.uid.0, tensor.value.unwrap())).collect();
    assert_eq!(
        values,
        [
            (1, TensorValue::Float32(1.5)),
            (2, TensorValue::Float16(-0.25)),
            (3, TensorValue::BFloat16(3.0)),
            (4, TensorValue::Float8(200)),
            (5, TensorValue::Int32(-7)),
            (6, TensorValue::Float64(0.1)),
            (7, TensorValue::Int64(i64::MIN)),
            (8, TensorValue::Bool(true)),
        ]
    );
    assert_eq!(GraphDef::from_bytes(&def.to_bytes()), Ok(def));
}

/// Engine details with a page of candidates in their last slot, written by flatc.
const DETAILS: &str =
    "18000000 00000000 00000e00 18001000 00000400 08000c00 0e000000 f4000000 e8000000 20000000 09000000 00000000
    14002800 04000800 0c001000 14001c00 00001800 14000000 b8000000 ac000000 a0000000 94000000 88000000 10000000
    01000000 00000000 00000000 01000000 10000000 00000a00 10000400 08000c00 0a000000 54000000 08000000 44000000
    01000000 10000000 00000a00 12000800 07000c00 0a000000 00000001 1c000000 0c000000 00000600 0c000400 06000000
    03000000 00000000 01000000 6b000000 02000000 7b7d0000 01000000 63000000 02000000 7b7d0000 02000000 7b7d0000
    01000000 61000000 01000000 64000000 01000000 67000000 01000000 45000000 01000000 02000000";

#[test]
fn details_with_a_page_of_candidates_are_read() {
    let bytes = bytes_of(DETAILS);
    let details = EngineDetails::from_bytes(&bytes).unwrap();
    let want =
        EngineDetails { engine_id: 9, behavior_notes: vec![2], name: Some("E".into()), ..EngineDetails::default() };
    assert_eq!(details, want);
    // The page is verified, though not decoded: its candidate's id may not reach past the end.
    let id = bytes.windows(5).position(|window| window == [1, 0, 0, 0, b'c']).unwrap();
    let mut wrong = bytes;
    wrong[id + 3] = 0x7F;
    assert!(EngineDetails::from_bytes(&wrong).is_err());
}

#[test]
fn a_pooling_that_says_nothing_of_its_index_generates_none() {
    let pooling =
        samples::one_of_each().into_iter().find(|def| def.nodes[0].operation.kind() == "ResampleFwdAttributes");
    let Some(Operation::ResampleFwd(node)) = pooling.as_ref().map(|def| def.nodes[0].operation.clone()) else {
        panic!("no sample")
    };
    // hipDNN's schemas have had "not given" and "no" as the slot's default; both are no bytes at all.
    for (given, index) in [(None, None), (Some(false), None), (Some(true), node.index)] {
        let mut def = pooling.clone().unwrap();
        def.nodes[0].operation = Operation::ResampleFwd(ResampleFwd { generate_index: given, index, ..node.clone() });
        let read = GraphDef::from_bytes(&def.to_bytes()).unwrap();
        assert_eq!(read, def);
        Graph::new(read).unwrap_or_else(|error| panic!("{given:?}: {error}"));
    }
}

#[test]
fn a_wrong_value_slot_is_an_error() {
    // The tag of the value is at byte 72 + 7, its slot at byte 92, the float at byte 104.
    let cases: [(&str, usize, &[u8], &str); 5] = [
        ("kind not known", 79, &[9], "not supported by this version of the format: tensor 7: value of kind 9"),
        (
            "offset outside",
            92,
            &[0xff, 0xff, 0xff, 0x7f],
            "not a hipDNN FlatBuffer: tensor 7: the value lies outside the 152 bytes",
        ),
        (
            "last byte outside",
            92,
            &[57, 0, 0, 0],
            "not a hipDNN FlatBuffer: tensor 7: the value lies outside the 152 bytes",
        ),
        ("no slot", 52 + 18, &[0, 0], "not a hipDNN FlatBuffer: tensor 7: expected a value of kind 1, got none"),
        (
            "data type not known",
            78,
            &[99],
            "not supported by this version of the format: tensor 7: data_type: number 99 is not a data type",
        ),
    ];
    for (name, at, bytes, message) in cases {
        let mut graph = one_tensor();
        graph[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(GraphDef::from_bytes(&graph).unwrap_err().to_string(), message, "{name}");
    }
    let mut none = one_tensor();
    none[79] = 0;
    assert_eq!(GraphDef::from_bytes(&none).unwrap().tensors[0].value, None, "tag 0 is no value");
}

#[test]
fn what_is_empty_or_zero_is_left_out() {
    let mut graph = GraphBuilder::new("");
    let tensor = graph.tensor(TensorDef {
        dims: Extents::new(),
        strides: Extents::new(),
        ..TensorDef::new(0, DataType::Unset, &[])
    });
    let bytes = graph.def().to_bytes();
    // Offset to the root, two vtables (the graph's up to slot 12 with a field, the tensor's without), two tables of an
    // offset each and that of the list, the list with one entry: 4 + 14 + 4 + 8 + 4 + 8, and padding.
    assert!(bytes.len() <= 48, "{} bytes for nothing but an empty tensor", bytes.len());
    let def = GraphDef::from_bytes(&bytes).unwrap();
    assert_eq!((def.tensors.len(), def.tensors[0].uid, def.nodes.len()), (1, tensor, 0));
    assert_eq!(GraphDef::from_bytes(&GraphDef::default().to_bytes()), Ok(GraphDef::default()));
}

#[test]
fn cut_bytes_are_an_error_or_a_graph_but_never_a_panic() {
    for def in samples::one_of_each().into_iter().chain([samples::every_field()]) {
        let bytes = def.to_bytes();
        // The last bytes may be padding.
        for len in 0..bytes.len() - 8 {
            assert_ne!(GraphDef::from_bytes(&bytes[..len]), Ok(def.clone()), "{} cut to {len}", def.name);
        }
    }
}

/// Little-endian words, for buffers written by hand.
fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_small_buffer_cannot_ask_for_much_memory() {
    // Every entry of the vector of tensors leads to the same tensor, whose dims are a long vector: decoded, they would
    // take entries × extents × 8 bytes.
    let (entries, extents) = (60_000u32, 4_000u32);
    let graph_table = 28;
    let vector = graph_table + 8;
    let tensor_table = vector + 4 + 4 * entries;
    // The extents are 8 bytes wide, and so aligned.
    let dims = tensor_table + 12;
    let mut bytes = words([graph_table, 0]);
    // vtable of the graph at 8: 14 bytes, table of 8 bytes, only slot 12; vtable of the tensor at 22 would be odd to
    // words, so both share one with slot 12 at offset 4 (tensors of the graph, dims of the tensor).
    bytes.extend([14u16, 8, 0, 0, 0, 0, 4, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    assert_eq!(bytes.len(), graph_table as usize);
    bytes.extend(words([graph_table - 8, vector - (graph_table + 4), entries]));
    bytes.extend(words((0..entries).map(|i| tensor_table - (vector + 4 + 4 * i))));
    bytes.extend(words([tensor_table - 8, dims - (tensor_table + 4), 0, extents]));
    bytes.extend(words((0..2 * extents).map(|_| 1)));
    let error = GraphDef::from_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("Apparent size too large"), "{error}");
}

/// The example of hipDNN's JSON form: a 3×3 convolution, a bias and a ReLU, channels innermost.
const CONV_BIAS_RELU: &str = r#"{
  "name": "conv_bias_relu", "compute_data_type": "float", "intermediate_data_type": "half", "io_data_type": "half",
  "is_override_shape_enabled": false,
  "tensors": [
    {"uid": 1, "name": "x", "data_type": "half", "dims": [2, 32, 14, 14], "strides": [6272, 1, 448, 32],
     "virtual": false, "is_runtime_pass_by_value": false, "alignment": 16},
    {"uid": 2, "name": "w", "data_type": "half", "dims": [64, 32, 3, 3], "strides": [288, 1, 96, 32],
     "virtual": false, "is_runtime_pass_by_value": false, "alignment": 16},
    {"uid": 3, "name": "c", "data_type": "half", "dims": [2, 64, 14, 14], "strides": [12544, 1, 896, 64],
     "virtual": true, "is_runtime_pass_by_value": false, "alignment": 16},
    {"uid": 4, "name": "b", "data_type": "half", "dims": [1, 64, 1, 1], "strides": [64, 1, 64, 64],
     "virtual": false, "is_runtime_pass_by_value": false, "alignment": 16},
    {"uid": 5, "name": "s", "data_type": "half", "dims": [2, 64, 14, 14], "strides": [12544, 1, 896, 64],
     "virtual": true, "is_runtime_pass_by_value": false, "alignment": 16},
    {"uid": 6, "name": "y", "data_type": "half", "dims": [2, 64, 14, 14], "strides": [12544, 1, 896, 64],
     "virtual": false, "is_runtime_pass_by_value": false, "alignment": 16}],
  "nodes": [
    {"type": "ConvolutionFwdAttributes", "name": "conv", "compute_data_type": "float",
     "inputs": {"x_tensor_uid": 1, "w_tensor_uid": 2}, "outputs": {"y_tensor_uid": 3},
     "parameters": {"conv_mode": "CROSS_CORRELATION", "pre_padding": [1, 1], "post_padding": [1, 1],
       "stride": [1, 1], "dilation": [1, 1]}},
    {"type": "PointwiseAttributes", "name": "bias", "compute_data_type": "float",
     "inputs": {"operation": "add", "in_0_tensor_uid": 3, "in_1_tensor_uid": 4, "in_2_tensor_uid": null,
       "axis_tensor_uid": null, "relu_lower_clip": null, "relu_upper_clip": null, "relu_lower_clip_slope": null,
       "swish_beta": null, "elu_alpha": null, "softplus_beta": null},
     "outputs": {"out_0_tensor_uid": 5}},
    {"type": "PointwiseAttributes", "name": "relu", "compute_data_type": "float",
     "inputs": {"operation": "relu_fwd", "in_0_tensor_uid": 5, "in_1_tensor_uid": null, "in_2_tensor_uid": null,
       "axis_tensor_uid": null, "relu_lower_clip": null, "relu_upper_clip": null, "relu_lower_clip_slope": null,
       "swish_beta": null, "elu_alpha": null, "softplus_beta": null},
     "outputs": {"out_0_tensor_uid": 6}}]
}"#;

#[test]
fn json_is_the_form_of_hipdnn() {
    let def = samples::conv_bias_relu();
    assert_eq!(GraphDef::from_json(CONV_BIAS_RELU), Ok(def.clone()));
    let written: serde_json::Value = serde_json::from_str(&def.to_json()).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(CONV_BIAS_RELU).unwrap());
    // Files from before runtime scalars lack the key.
    let older = CONV_BIAS_RELU.replace(r#""is_runtime_pass_by_value": false,"#, "");
    assert_eq!(GraphDef::from_json(&older), Ok(def));
}

#[test]
fn json_errors_name_the_place() {
    let cases = [
        (
            r#""type": "ConvolutionFwdAttributes""#,
            r#""type": "ConvolutionFwd""#,
            r#"nodes[0]: expected the name of an attributes table, got "ConvolutionFwd""#,
        ),
        (
            r#""operation": "add""#,
            r#""operation": "ADD""#,
            r#"nodes[1]: inputs.operation: expected a pointwise mode (unset, abs, add, "#,
        ),
        (r#""outputs": {"out_0_tensor_uid": 6}"#, r#""outputs": {}"#, "nodes[2]: outputs.out_0_tensor_uid is missing"),
        (
            r#""dims": [2, 64, 14, 14], "strides": [12544, 1, 896, 64],"#,
            r#""dims": [2, 64.5, 14, 14], "strides": [],"#,
            "tensors[2]: dims: expected an integer of 64 bits, got 64.5",
        ),
        (
            r#""data_type": "half""#,
            r#""data_type": "float8""#,
            r#"tensors[0]: data_type: expected a data type (unset, float, half, bfloat16, "#,
        ),
        (r#""stride": [1, 1]"#, r#""stride": 1"#, "nodes[0]: parameters.stride: expected a list of integers, got 1"),
        (r#""parameters": {"#, r#""params": {"#, "nodes[0]: parameters.pre_padding is missing"),
        (r#""name": "conv_bias_relu","#, "", "name is missing"),
        (
            r#""alignment": 16"#,
            r#""value_type": "Float9Value", "value": 1"#,
            r#"tensors[0]: value_type: expected the name of a value struct, got "Float9Value""#,
        ),
        (
            r#""alignment": 16"#,
            r#""value_type": "Float8Value", "value": 256"#,
            "tensors[0]: value: expected a byte, got 256",
        ),
        (
            r#""alignment": 16"#,
            r#""value_type": "Int32Value", "value": 2147483648"#,
            "tensors[0]: value: expected an integer of 32 bits, got 2147483648",
        ),
        (r#""alignment": 16"#, r#""value_type": "Float32Value""#, "tensors[0]: value is missing beside value_type"),
        (
            r#""is_override_shape_enabled": false"#,
            r#""id": "00112233-4455-6677-8899-aabbccddeef""#,
            r#"id: expected a UUID, got "00112233-4455-6677-8899-aabbccddeef""#,
        ),
        (
            r#""is_override_shape_enabled": false"#,
            r#""id": "0011223-34455-6677-8899-aabbccddeeff""#,
            r#"id: expected a UUID, got "0011223-34455-6677-8899-aabbccddeeff""#,
        ),
        (
            r#""is_override_shape_enabled": false"#,
            r#""id": "00112233-4455-6677-8899-aabbccddeefg""#,
            r#"id: expected a UUID, got "00112233-4455-6677-8899-aabbccddeefg""#,
        ),
        (
            r#""is_override_shape_enabled": false"#,
            r#""min_required_engine_api_version": {"major": 1, "minor": -1}"#,
            "min_required_engine_api_version: minor: expected a number of 32 bits, got -1",
        ),
    ];
    for (from, to, message) in cases {
        let text = CONV_BIAS_RELU.replacen(from, to, 1);
        assert_ne!(text, CONV_BIAS_RELU, "{from} is there");
        let error = GraphDef::from_json(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("not a hipDNN JSON graph: {message}")), "{error}");
    }
    for text in ["", "[]", "{", "null", &"[".repeat(100_000)] {
        let error = GraphDef::from_json(text).unwrap_err();
        assert!(matches!(error, GraphError::Json(_)), "{error}");
    }
}

/// A message repeats what came up to 40 characters of it, whatever their size in bytes.
#[test]
fn json_errors_cut_long_texts() {
    for (came, shown) in [
        (format!("{:?}", "é".repeat(40)), format!("{:?}", "é".repeat(40))),
        (format!("{:?}", "é".repeat(41)), format!("{:?}...", "é".repeat(40))),
        ("{}".to_string(), "an object".to_string()),
        ("null".to_string(), "null".to_string()),
    ] {
        let text = CONV_BIAS_RELU.replacen(r#""stride": [1, 1]"#, &format!(r#""stride": {came}"#), 1);
        assert_ne!(text, CONV_BIAS_RELU);
        let error = GraphDef::from_json(&text).unwrap_err().to_string();
        let want = "not a hipDNN JSON graph: nodes[0]: parameters.stride: expected a list of integers, got";
        assert_eq!(error, format!("{want} {shown}"));
    }
}

#[test]
fn configurations_details_and_plans_round_trip() {
    let config = EngineConfig {
        engine_id: -7,
        knobs: vec![
            ("a.int".into(), KnobValue::Int(i64::MIN)),
            ("a.float".into(), KnobValue::Float(0.1)),
            ("a.string".into(), KnobValue::String("1=x".into())),
            (String::new(), KnobValue::String(String::new())),
        ],
    };
    assert_eq!(EngineConfig::from_bytes(&config.to_bytes()), Ok(config.clone()));
    assert_eq!(EngineConfig::from_bytes(&EngineConfig::default().to_bytes()), Ok(EngineConfig::default()));

    let knob = |id: &str, default, constraint| Knob {
        id: id.into(),
        description: format!("{id} does"),
        default,
        constraint,
        deprecated: id == "old",
    };
    let int = KnobConstraint::Int { min: 0, max: 8, step: 2, valid: vec![0, 4] };
    let text = KnobConstraint::String { max_length: 3, valid: vec!["on".into(), String::new()] };
    let details = EngineDetails {
        engine_id: 9,
        knobs: vec![
            knob("int", KnobValue::Int(0), Some(int)),
            knob("float", KnobValue::Float(0.0), Some(KnobConstraint::Float { min: -1.0, max: 1.0 })),
            knob("text", KnobValue::String(String::new()), Some(text)),
            knob("old", KnobValue::Int(1), None),
        ],
        behavior_notes: vec![1, -2],
        name: Some("ENGINE".into()),
    };
    assert_eq!(EngineDetails::from_bytes(&details.to_bytes()), Ok(details.clone()));
    assert_eq!(EngineDetails::from_bytes(&EngineDetails::default().to_bytes()), Ok(EngineDetails::default()));

    let plan = SerializedExecutionPlan {
        version: 1,
        engine_id: 9,
        workspace_size: 4096,
        tensor_uids: vec![TensorUid(0), TensorUid(-1)],
        plugin_payload: vec![1, 2, 3],
        is_override_shape_enabled: true,
        tensor_alignments: vec![16, 1],
        ..SerializedExecutionPlan::default()
    };
    assert_eq!(SerializedExecutionPlan::from_bytes(&plan.to_bytes()), Ok(plan.clone()));
    let graph = samples::conv_bias_relu().to_bytes();
    for plan in [None, Some(plan.to_bytes())] {
        let both = SerializedGraphAndPlan { graph: graph.clone(), plan };
        let bytes = both.to_bytes();
        assert_eq!((&bytes[4..8], content_kind(&bytes)), (&b"HDGP"[..], ContentKind::GraphAndPlan));
        assert_eq!(SerializedGraphAndPlan::from_bytes(&bytes), Ok(both));
    }
    assert_eq!(content_kind(&graph), ContentKind::Bare);
    assert!(SerializedGraphAndPlan::from_bytes(&graph).is_err());
    for garbage in [&[][..], &[0; 3], &[0xff; 64], &graph[1..]] {
        assert!(EngineConfig::from_bytes(garbage).is_err(), "{garbage:?}");
        assert!(EngineDetails::from_bytes(garbage).is_err(), "{garbage:?}");
        assert!(SerializedExecutionPlan::from_bytes(garbage).is_err(), "{garbage:?}");
    }
}

/// Over the backend's ABI a knob, and a setting, travel alone.
#[test]
fn knobs_and_settings_travel_alone() {
    for value in [KnobValue::Int(-3), KnobValue::Float(0.5), KnobValue::String("on".into())] {
        let bytes = knob_setting_to_bytes("a.knob", &value);
        assert_eq!(knob_setting_from_bytes(&bytes), Ok(("a.knob".to_string(), value.clone())));
        let constraint = match value {
            KnobValue::Int(_) => Some(KnobConstraint::Int { min: -3, max: 5, step: 1, valid: vec![] }),
            KnobValue::Float(_) => Some(KnobConstraint::Float { min: 0.0, max: 1.0 }),
            KnobValue::String(_) => None,
        };
        let description = "What it does.".to_string();
        let knob = Knob { id: "a.knob".into(), description, default: value, constraint, deprecated: true };
        assert_eq!(Knob::from_bytes(&knob.to_bytes()), Ok(knob));
    }
    for garbage in [&[][..], &[0; 3], &[0xff; 64]] {
        assert!(knob_setting_from_bytes(garbage).is_err() && Knob::from_bytes(garbage).is_err(), "{garbage:?}");
    }
}

/// A host hands on what was verified: bytes that are no graph, or only a part of one, are refused.
#[test]
fn only_graphs_are_verified() {
    let bytes = samples::conv_bias_relu().to_bytes();
    assert_eq!(verify_graph(&bytes), Ok(()));
    for wrong in [&[][..], &[0; 3], &[0xff; 64], &bytes[..bytes.len() / 2], &bytes[1..]] {
        let error = verify_graph(wrong).expect_err("no graph");
        assert!(matches!(error, GraphError::Malformed(_)), "{error}");
    }
}

#[test]
fn features_ask_for_an_api_version() {
    let plain = samples::conv_bias_relu;
    let with = |change: fn(&mut GraphDef)| {
        let mut def = plain();
        change(&mut def);
        def
    };
    let cases: [(GraphDef, u32); 6] = [
        (plain(), 0),
        (with(|def| def.is_override_shape_enabled = true), 1),
        (with(|def| def.tensors[3].is_runtime_pass_by_value = true), 2),
        (with(|def| def.tensors[0].alignment = 32), 3),
        (with(|def| def.tensors[0].ragged = Some(Ragged { offset: TensorUid(4), multiplier: 1 })), 3),
        (samples::every_field(), 3),
    ];
    for (def, minor) in cases {
        let features = GraphFeatures::of(&def.to_bytes()).unwrap();
        assert_eq!(features, GraphFeatures::from(&def));
        assert_eq!(features.required_api_version(), EngineApiVersion { major: 1, minor, patch: 0 });
    }
}
