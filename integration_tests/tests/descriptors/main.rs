//! Graphs as operation descriptors and as bytes: the same in content, in plans and in results, both ways.
//!
//! `HIPDNN_RS_RANDOM_GRAPHS` is the number of random graphs, 1,000 without it.

mod attributes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use hipdnn_conformance::{cases, inputs, memory, random, run};
use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::backend::{BackendError, Client, Descriptor, Handle};
use hipdnn_rs_integration_tests::tensor::AlignedBytes;
use hipdnn_schemas::{
    CustomOp, DataType, Graph, GraphBuilder, GraphDef, MoeGroupedMatmul, MoeGroupedMatmulBwd, MoeGroupedMatmulMode,
    Operation, Sdpa, SdpaBackward, SerializedExecutionPlan, TensorDef, TensorUid, TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName as Name, AttributeType as Type, DescriptorType as Kind};
use serde_json::{Map, Value};

use attributes::{Element, OPERATIONS, enumerators};

fn client(test: &str) -> Arc<Client> {
    static SETTINGS: std::sync::Once = std::sync::Once::new();
    SETTINGS.call_once(|| {
        // SAFETY: `Once` makes this the only writer, and every test calls it before it opens a library that reads the
        // environment.
        unsafe {
            // On a machine with a GPU the CPU engine would leave graphs to others.
            std::env::remove_var("HIPDNN_PLUGIN_DIR");
            std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on");
        }
    });
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("descriptors").join(test);
    Client::installed(&place, &[library_path(Artifact::Plugin)])
}

/// Elements as they lie in memory, and how many bytes each has.
#[derive(Clone, Debug, PartialEq)]
struct Elements {
    kind: Type,
    width: usize,
    bytes: Vec<u8>,
}

impl Elements {
    /// An attribute's elements; `None` if it is not set.
    fn get(descriptor: &Descriptor, name: Name, kind: Type, width: usize) -> Option<Elements> {
        let read = |count: usize| -> Result<Vec<u8>, BackendError> {
            Ok(match width {
                1 => read_all::<1>(descriptor, name, kind, count)?,
                4 => read_all::<4>(descriptor, name, kind, count)?,
                _ => read_all::<8>(descriptor, name, kind, count)?,
            })
        };
        let count = descriptor.count(name, kind).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let bytes = read(count).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        (count > 0).then_some(Elements { kind, width, bytes })
    }

    fn set(&self, descriptor: &Descriptor, name: Name) {
        let outcome = match self.width {
            1 => descriptor.set(name, self.kind, &self.bytes),
            4 => descriptor.set(name, self.kind, self.bytes.as_chunks::<4>().0),
            _ => descriptor.set(name, self.kind, self.bytes.as_chunks::<8>().0),
        };
        outcome.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }

    /// The elements as the wire format's JSON would have them.
    fn json(&self, element: Element) -> Vec<Value> {
        let int32s = || self.bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_ne_bytes(*bytes));
        match element {
            Element::Boolean => self.bytes.iter().map(|byte| Value::from(*byte != 0)).collect(),
            Element::Int32 => int32s().map(Value::from).collect(),
            Element::Float => int32s().map(|bits| Value::from(f32::from_bits(bits as u32))).collect(),
            Element::Enumerator(_) => int32s().map(Value::from).collect(),
            Element::Int64 => {
                self.bytes.as_chunks::<8>().0.iter().map(|bytes| Value::from(i64::from_ne_bytes(*bytes))).collect()
            }
            Element::Char => self.bytes.iter().map(|byte| Value::from(*byte)).collect(),
            Element::Tensor | Element::Tensors => unreachable!("tensors are descriptors"),
        }
    }
}

fn read_all<const N: usize>(
    descriptor: &Descriptor,
    name: Name,
    kind: Type,
    count: usize,
) -> Result<Vec<u8>, BackendError> {
    let mut elements = vec![[0u8; N]; count];
    if count > 0 {
        assert_eq!(descriptor.get_into(name, kind, &mut elements)?, count, "{name}");
    }
    Ok(elements.concat())
}

/// Attributes of tensors, with their element types and the bytes of an element.
const TENSOR: [(Name, Type, usize); 7] = [
    (Name::TENSOR_UNIQUE_ID, Type::INT64, 8),
    (Name::TENSOR_DATA_TYPE, Type::DATA_TYPE, 4),
    (Name::TENSOR_DIMENSIONS, Type::INT64, 8),
    (Name::TENSOR_STRIDES, Type::INT64, 8),
    (Name::TENSOR_IS_VIRTUAL, Type::BOOLEAN, 1),
    (Name::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT, Type::BOOLEAN, 1),
    (Name::TENSOR_BYTE_ALIGNMENT, Type::INT64, 8),
];

/// Attributes of graphs, in the same way.
const GRAPH: [(Name, Type, usize); 5] = [
    (Name::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT, Type::DATA_TYPE, 4),
    (Name::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT, Type::DATA_TYPE, 4),
    (Name::OPERATIONGRAPH_IO_DATA_TYPE_EXT, Type::DATA_TYPE, 4),
    (Name::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT, Type::INT64, 8),
    (Name::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT, Type::BOOLEAN, 1),
];

/// What descriptors say of a tensor.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    name: String,
    attributes: Vec<(Name, Elements)>,
}

impl Tensor {
    fn read(descriptor: &Descriptor) -> Tensor {
        let mut attributes: Vec<_> = TENSOR
            .iter()
            .filter_map(|(name, kind, width)| Some((*name, Elements::get(descriptor, *name, *kind, *width)?)))
            .collect();
        let is_by_value = Elements::get(descriptor, Name::TENSOR_IS_BY_VALUE, Type::BOOLEAN, 1).expect("a flag");
        if is_by_value.bytes[0] != 0 {
            let value = Elements::get(descriptor, Name::TENSOR_VALUE_EXT, Type::CHAR, 1).expect("a value");
            attributes.push((Name::TENSOR_VALUE_EXT, value));
        }
        Tensor { name: descriptor.text(Name::TENSOR_NAME_EXT).expect("a name"), attributes }
    }

    fn uid(&self) -> i64 {
        i64::from_ne_bytes(self.attributes[0].1.bytes[..].try_into().expect("a uid"))
    }

    fn build(&self, client: &Arc<Client>) -> Descriptor {
        let descriptor = client.descriptor(Kind::TENSOR_DESCRIPTOR).expect("a tensor");
        set_text(&descriptor, Name::TENSOR_NAME_EXT, &self.name);
        for (name, elements) in &self.attributes {
            elements.set(&descriptor, *name);
        }
        descriptor.finalize().unwrap_or_else(|error| panic!("{self:?}: {error:?}"));
        descriptor
    }
}

fn set_text(descriptor: &Descriptor, name: Name, text: &str) {
    descriptor.set(name, Type::CHAR, text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
}

/// What descriptors say of an operation: its kind by index, its attributes that are set.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    kind: usize,
    name: String,
    tensors: Vec<(Name, Vec<Tensor>)>,
    attributes: Vec<(Name, Elements)>,
}

impl Node {
    fn read(descriptor: &Descriptor) -> Node {
        let mut number = [0i32];
        descriptor.get_into(Name::OPERATION_TYPE_EXT, Type::OPERATION_TYPE_EXT, &mut number).expect("a type");
        let kind = OPERATIONS.iter().position(|operation| operation.operation == number[0]);
        let kind = kind.unwrap_or_else(|| panic!("no operation has type {}", number[0]));
        let name = descriptor.text(Name::OPERATION_NAME_EXT).expect("a name");
        let mut node = Node { kind, name, tensors: Vec::new(), attributes: Vec::new() };
        for (number, element, field) in OPERATIONS[kind].attributes() {
            let name = Name(number);
            let (kind, width) = match element {
                Element::Tensor | Element::Tensors => {
                    let found = children(descriptor, name);
                    if !found.is_empty() {
                        node.tensors.push((name, found.iter().map(Tensor::read).collect()));
                    }
                    continue;
                }
                Element::Boolean => (Type::BOOLEAN, 1),
                Element::Int32 => (Type::INT32, 4),
                Element::Int64 => (Type::INT64, 8),
                Element::Float => (Type::FLOAT, 4),
                Element::Char => (Type::CHAR, 1),
                Element::Enumerator(kind) => (Type(kind), 4),
            };
            if let Some(mut elements) = Elements::get(descriptor, name, kind, width) {
                if field == "custom_op_id" {
                    assert_eq!(elements.bytes.pop(), Some(0), "a text ends in a NUL");
                }
                node.attributes.push((name, elements));
            }
        }
        node
    }

    fn build(&self, client: &Arc<Client>, tensors: &HashMap<i64, Descriptor>) -> Descriptor {
        let kind = Kind(OPERATIONS[self.kind].descriptor);
        let descriptor = client.descriptor(kind).unwrap_or_else(|error| panic!("{kind}: {error:?}"));
        set_text(&descriptor, Name::OPERATION_NAME_EXT, &self.name);
        for (name, operands) in &self.tensors {
            let raw: Vec<_> = operands.iter().map(|tensor| tensors[&tensor.uid()].raw()).collect();
            let outcome = descriptor.set(*name, Type::BACKEND_DESCRIPTOR, &raw);
            outcome.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        for (name, elements) in &self.attributes {
            elements.set(&descriptor, *name);
        }
        descriptor.finalize().unwrap_or_else(|error| panic!("{self:?}: {error:?}"));
        descriptor
    }

    /// Holds each attribute against the field of the wire format that it stands for.
    fn expect(&self, node: &Map<String, Value>, what: &str) {
        let operation = &OPERATIONS[self.kind];
        assert_eq!(node["type"], operation.table, "{what}");
        assert_eq!(node["name"], self.name.as_str(), "{what}");
        for (number, element, field) in operation.attributes() {
            let name = Name(number);
            let groups = ["inputs", "outputs", "parameters", "attributes"];
            let places = std::iter::once(node).chain(groups.iter().filter_map(|group| node.get(*group)?.as_object()));
            let value = places.into_iter().find_map(|place| place.get(field));
            let list = match value {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(list)) => list.clone(),
                Some(other) => vec![other.clone()],
            };
            let tensors = self.tensors.iter().find(|(found, _)| *found == name);
            let elements = self.attributes.iter().find(|(found, _)| *found == name);
            let (wanted, got) = match element {
                Element::Tensor | Element::Tensors => {
                    let uids = tensors.into_iter().flat_map(|(_, tensors)| tensors);
                    (list, uids.map(|tensor| Value::from(tensor.uid())).collect())
                }
                _ => {
                    let got = elements.map(|(_, elements)| elements.json(element)).unwrap_or_default();
                    let wanted = list.iter().flat_map(|value| wanted(element, value)).collect();
                    (wanted, got)
                }
            };
            // What is left out of JSON has its type's default.
            let is_default = value.is_none() && got.iter().all(is_zero);
            assert!(wanted == got || is_default, "{what}: {name} ({field}): expected {wanted:?}, got {got:?}");
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_bool() == Some(false)
}

/// The elements that stand for a value of JSON; none for an enumerator that C lacks.
fn wanted(element: Element, value: &Value) -> Vec<Value> {
    match (element, value) {
        (Element::Enumerator(kind), Value::String(name)) => {
            let (first, names) = enumerators(kind);
            let place = names.iter().position(|known| known == name);
            place.map(|place| Value::from(first + place as i64)).into_iter().collect()
        }
        // The wire format's numbers, where JSON has numbers, are C's; zero is unset.
        (Element::Enumerator(22 | 29 | 30), Value::Number(number)) if number.as_i64() == Some(0) => Vec::new(),
        (Element::Char, Value::String(text)) => text.bytes().map(Value::from).collect(),
        (Element::Float, Value::Number(number)) => vec![Value::from(number.as_f64().expect("a number") as f32)],
        (_, value) => vec![value.clone()],
    }
}

fn children(descriptor: &Descriptor, name: Name) -> Vec<Descriptor> {
    descriptor.children(name).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

/// What descriptors say of a graph.
#[derive(Debug, PartialEq)]
struct Reading {
    name: String,
    attributes: Vec<(Name, Elements)>,
    nodes: Vec<Node>,
}

impl Reading {
    fn of(graph: &Descriptor) -> Reading {
        let attributes = GRAPH
            .iter()
            .filter_map(|(name, kind, width)| Some((*name, Elements::get(graph, *name, *kind, *width)?)))
            .collect();
        Reading {
            name: graph.text(Name::OPERATIONGRAPH_NAME_EXT).expect("a name"),
            attributes,
            nodes: children(graph, Name::OPERATIONGRAPH_OPS).iter().map(Node::read).collect(),
        }
    }

    /// A graph, not finalized, of new descriptors that say the same.
    fn build(&self, client: &Arc<Client>) -> Descriptor {
        let mut tensors = HashMap::new();
        for tensor in self.nodes.iter().flat_map(|node| node.tensors.iter().flat_map(|(_, tensors)| tensors)) {
            tensors.entry(tensor.uid()).or_insert_with(|| tensor.build(client));
        }
        let operations: Vec<_> = self.nodes.iter().map(|node| node.build(client, &tensors)).collect();
        let graph = client.descriptor(Kind::OPERATIONGRAPH_DESCRIPTOR).expect("a graph");
        set_text(&graph, Name::OPERATIONGRAPH_NAME_EXT, &self.name);
        let raw: Vec<_> = operations.iter().map(Descriptor::raw).collect();
        graph.set(Name::OPERATIONGRAPH_OPS, Type::BACKEND_DESCRIPTOR, &raw).expect("operations");
        for (name, elements) in &self.attributes {
            elements.set(&graph, *name);
        }
        graph
    }
}

/// A graph's content: tensors have no order.
fn content(mut def: GraphDef) -> GraphDef {
    def.tensors.sort_by_key(|tensor| tensor.uid);
    def
}

/// Takes a graph from bytes to descriptors and back, and gives both forms, not finalized, of the same content.
fn both_forms(client: &Arc<Client>, def: &GraphDef, what: &str) -> [Descriptor; 2] {
    // Frontends give each node the graph's type where it has none of its own, and descriptors want it.
    let mut def = def.clone();
    for node in def.nodes.iter_mut().filter(|node| node.compute_data_type == DataType::Unset) {
        node.compute_data_type = def.compute_data_type;
    }
    let bytes = def.to_bytes();
    let serialized = client.graph_from_bytes(&bytes).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let reading = Reading::of(&serialized);
    let json: Value = serde_json::from_str(&def.to_json()).expect("JSON");
    for (node, json) in reading.nodes.iter().zip(json["nodes"].as_array().expect("nodes")) {
        node.expect(json.as_object().expect("a node"), what);
    }
    let built = reading.build(client);
    assert_eq!(Reading::of(&built), reading, "{what}: descriptors that were made of descriptors");
    let lowered = GraphDef::from_bytes(&built.serialized_graph().expect("bytes")).expect("a graph");
    assert_eq!(content(lowered.clone()), content(def), "{what}: bytes of descriptors of bytes");
    let lifted = client.graph_from_bytes(&lowered.to_bytes()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(Reading::of(&lifted), reading, "{what}: descriptors of bytes of descriptors");
    [serialized, built]
}

/// What a plan is: the engine, its workspace, its tensors with the alignments that they owe.
#[derive(Debug, PartialEq)]
struct Planned {
    engine: i64,
    announced: i64,
    workspace: i64,
    tensors: BTreeMap<i64, i64>,
}

/// The plans of all engines that take a graph, the best first.
fn plans(handle: &Handle, graph: &Descriptor, what: &str) -> Vec<(Planned, Descriptor)> {
    let say = |error: BackendError| -> ! { panic!("{what}: {error:?}") };
    handle.finalize_graph(graph).unwrap_or_else(|error| say(error));
    let configurations = handle.configurations(graph).unwrap_or_else(|error| say(error));
    let plan = |configuration: Descriptor| {
        configuration.finalize().unwrap_or_else(|error| say(error));
        let engine = configuration.child(Name::ENGINECFG_ENGINE).expect("an engine");
        let plan = handle.client().descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR).expect("a plan");
        let raw = [configuration.raw()];
        plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &raw).expect("a configuration");
        plan.finalize().unwrap_or_else(|error| say(error));
        let stored = plan.stored_plan().unwrap_or_else(|error| say(error));
        let mut aligned = AlignedBytes::filled(stored.len(), 0);
        aligned.as_mut_slice().copy_from_slice(&stored);
        let stored = SerializedExecutionPlan::from_bytes(aligned.as_slice()).expect("a stored plan");
        let uids = stored.tensor_uids.iter().map(|uid| uid.0);
        let planned = Planned {
            engine: engine.number(Name::ENGINE_GLOBAL_INDEX).expect("an id"),
            announced: configuration.number(Name::ENGINECFG_WORKSPACE_SIZE).expect("a size"),
            workspace: plan.number(Name::EXECUTION_PLAN_WORKSPACE_SIZE).expect("a size"),
            tensors: uids.zip(stored.tensor_alignments.iter().copied()).collect(),
        };
        (planned, plan)
    };
    configurations.into_iter().map(plan).collect()
}

/// The bits that a plan computes from these inputs.
fn results(
    handle: &Handle,
    (planned, plan): &(Planned, Descriptor),
    graph: &Graph,
    given: &HashMap<TensorUid, Vec<u8>>,
) -> BTreeMap<TensorUid, Vec<u8>> {
    let host = memory::Memory::Host;
    let room = |uid: TensorUid| {
        let tensor = graph.tensor(uid);
        let alignment = usize::try_from(tensor.alignment()).expect("a checked alignment");
        host.buffer(tensor.span_bytes(), alignment.max(16)).expect("memory")
    };
    let mut buffers = Vec::new();
    for tensor in inputs::needed(graph) {
        let mut buffer = room(tensor.uid());
        buffer.write(&given[&tensor.uid()]).expect("inputs have the bytes of their tensors");
        buffers.push((tensor.uid(), buffer));
    }
    for tensor in run::outputs(graph) {
        let mut buffer = room(tensor.uid());
        buffer.write(&vec![0xff; tensor.span_bytes()]).expect("as many bytes");
        buffers.push((tensor.uid(), buffer));
    }
    let mut workspace = AlignedBytes::filled(usize::try_from(planned.workspace).expect("not negative"), 0xff);
    let pack = handle.client().descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a pack");
    let (uids, pointers): (Vec<i64>, Vec<_>) = buffers.iter().map(|(uid, buffer)| (uid.0, buffer.address())).unzip();
    pack.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &uids).expect("uids");
    pack.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &pointers).expect("pointers");
    pack.set(Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[workspace.as_mut_ptr()]).expect("a workspace");
    pack.finalize().expect("the pack is complete");
    // SAFETY: each buffer has the bytes of its tensor's span, and the workspace those of the plan.
    unsafe { handle.execute(plan, &pack) }.unwrap_or_else(|error| panic!("{}: {error:?}", graph.name()));
    let is_output = |uid: TensorUid| graph.producer(uid).is_some();
    let outputs = buffers.iter().filter(|(uid, _)| is_output(*uid));
    outputs.map(|(uid, buffer)| (*uid, buffer.read().expect("nothing was written behind the end"))).collect()
}

#[test]
fn random_graphs_are_the_same_in_both_forms() {
    let count: u64 = std::env::var("HIPDNN_RS_RANDOM_GRAPHS").map_or(1000, |text| text.parse().expect("a number"));
    let client = client("random");
    let handle = client.handle().expect("a handle");
    let mut taken = 0;
    for seed in 0..count {
        let case = random::case(seed);
        let what = &case.name;
        let forms = both_forms(&client, &case.graph, what);
        let [serialized, built] = forms.each_ref().map(|form| plans(&handle, form, what));
        let planned = |plans: &[(Planned, Descriptor)]| -> Vec<String> {
            plans.iter().map(|(planned, _)| format!("{planned:?}")).collect()
        };
        assert_eq!(planned(&serialized), planned(&built), "{what}");
        let graph = Graph::new(case.graph.clone()).expect("a right graph");
        let given = inputs::generate(&graph, case.seed, &case.fills);
        taken += u64::from(!serialized.is_empty());
        for (one, other) in serialized.iter().zip(&built) {
            let (wanted, got) = (results(&handle, one, &graph, &given), results(&handle, other, &graph, &given));
            assert!(wanted == got, "{what}: the plan of descriptors computes other bits");
        }
    }
    println!("{taken} of {count} random graphs were planned and run in both forms");
    assert!(taken * 10 >= count * 9, "expected engines for most of {count} graphs, got {taken}");
}

fn tensors(graph: &mut GraphBuilder, count: i64) -> Vec<TensorUid> {
    (1..=count)
        .map(|uid| graph.tensor(TensorDef::new(uid, DataType::Float, &[2, 3, 4]).named(format!("t{uid}"))))
        .collect()
}

/// Graphs of what no random graph has: each operand and each attribute of attention, products of mixtures of experts, and
/// operations of plugins; values and alignments of tensors.
fn rare() -> Vec<(&'static str, GraphDef)> {
    let mut all = Vec::new();
    let mut add = |name: &'static str, operation: &mut dyn FnMut(&[TensorUid]) -> Operation| {
        let mut graph = GraphBuilder::new(name).compute(DataType::Float);
        let uids = tensors(&mut graph, 30);
        let operation = operation(&uids);
        graph.node("node", operation.clone());
        let mut def = graph.def().clone();
        let used: BTreeSet<_> = operation.inputs().into_iter().chain(operation.outputs()).collect();
        def.tensors.retain(|tensor| used.contains(&tensor.uid));
        for node in &mut def.nodes {
            node.compute_data_type = DataType::Float;
        }
        all.push((name, def));
    };
    add("attention with everything", &mut |t| {
        Operation::Sdpa(Box::new(Sdpa {
            attn_mask: Some(t[4]),
            scale: Some(t[5]),
            seq_len_q: Some(t[6]),
            seq_len_kv: Some(t[7]),
            seed: Some(t[8]),
            offset: Some(t[9]),
            dropout_mask: Some(t[10]),
            dropout_scale: Some(t[11]),
            page_table_k: Some(t[12]),
            page_table_v: Some(t[13]),
            block_mask: Some(t[14]),
            sink_token: Some(t[15]),
            descale_q: Some(t[16]),
            descale_k: Some(t[17]),
            descale_v: Some(t[18]),
            descale_s: Some(t[19]),
            scale_s: Some(t[20]),
            scale_o: Some(t[21]),
            stats: Some(t[22]),
            max: Some(t[23]),
            sum_exp: Some(t[24]),
            rng_dump: Some(t[25]),
            amax_s: Some(t[26]),
            amax_o: Some(t[27]),
            generate_stats: Some(true),
            alibi_mask: true,
            causal_mask: true,
            dropout_probability: Some(0.25),
            attn_scale_value: Some(0.125),
            left_bound: Some(3),
            right_bound: Some(-1),
            max_seq_len_kv: Some(7),
            diagonal_alignment: hipdnn_schemas::DiagonalAlignment::BottomRight,
            mma_core_mode: DataType::Half,
            implementation: hipdnn_schemas::AttentionImplementation::Unified,
            ..Sdpa::new(t[0], t[1], t[2], t[3])
        }))
    });
    add("attention's gradient with everything", &mut |t| {
        let backward = SdpaBackward::new([t[0], t[1], t[2], t[3], t[4], t[5]], [t[6], t[7], t[8]]);
        Operation::SdpaBackward(Box::new(SdpaBackward {
            scale: Some(t[9]),
            attn_mask: Some(t[10]),
            seq_len_q: Some(t[11]),
            seq_len_kv: Some(t[12]),
            seed: Some(t[13]),
            offset: Some(t[14]),
            dropout_mask: Some(t[15]),
            dropout_scale: Some(t[16]),
            dropout_scale_inv: Some(t[17]),
            dbias: Some(t[18]),
            padding_mask: true,
            causal_mask_bottom_right: true,
            dropout_probability: Some(0.5),
            attn_scale_value: Some(0.75),
            left_bound: Some(1),
            right_bound: Some(2),
            diagonal_alignment: hipdnn_schemas::DiagonalAlignment::BottomRight,
            ..backward
        }))
    });
    for mode in MoeGroupedMatmulMode::ALL {
        add("product of a mixture of experts", &mut |t| {
            let scatters = *mode == MoeGroupedMatmulMode::Scatter;
            Operation::MoeGroupedMatmul(MoeGroupedMatmul {
                token: t[0],
                weight: t[1],
                first_token_offset: t[2],
                token_index: (*mode != MoeGroupedMatmulMode::None).then_some(t[3]),
                token_ks: scatters.then_some(t[4]),
                output: t[5],
                mode: *mode,
                top_k: if scatters { 2 } else { 0 },
            })
        });
    }
    add("gradient of a product of a mixture of experts", &mut |t| {
        Operation::MoeGroupedMatmulBwd(MoeGroupedMatmulBwd {
            doutput: t[0],
            token: t[1],
            first_token_offset: t[2],
            dweight: t[3],
        })
    });
    for data in [vec![], vec![0, 1, 255]] {
        add("operation of a plugin", &mut |t| {
            Operation::CustomOp(CustomOp {
                custom_op_id: "plugin.rope".into(),
                inputs: vec![t[0], t[1]],
                outputs: vec![t[2]],
                data: data.clone(),
            })
        });
    }
    let mut scalars = all[0].1.clone();
    scalars.tensors[4].alignment = 64;
    for (tensor, value) in scalars.tensors[5..].iter_mut().zip([
        TensorValue::Float32(0.1),
        TensorValue::Float64(-2.5),
        TensorValue::Float16(1.5),
        TensorValue::BFloat16(0.5),
        TensorValue::Int32(-7),
        TensorValue::Int64(i64::MIN),
        TensorValue::Bool(true),
        TensorValue::Float8(200),
    ]) {
        let data_type = match value {
            TensorValue::Float32(_) => DataType::Float,
            TensorValue::Float64(_) => DataType::Double,
            TensorValue::Float16(_) => DataType::Half,
            TensorValue::BFloat16(_) => DataType::BFloat16,
            TensorValue::Int32(_) => DataType::Int32,
            TensorValue::Int64(_) => DataType::Int64,
            TensorValue::Bool(_) => DataType::Boolean,
            TensorValue::Float8(_) => DataType::Fp8E4M3,
        };
        *tensor = TensorDef::new(tensor.uid.0, data_type, &[1]).with_value(value);
    }
    all.push(("tensors with values", scalars));
    all
}

#[test]
fn every_operation_is_the_same_in_both_forms() {
    let client = client("every");
    let mut seen = BTreeSet::new();
    let tables = cases::all().expect("the tables are right");
    let of_tables = tables.iter().filter(|case| !case.refused).map(|case| (case.name.as_str(), &case.graph));
    let rare = rare();
    for (what, def) in of_tables.chain(rare.iter().map(|(name, def)| (*name, def))) {
        both_forms(&client, def, what);
        seen.extend(def.nodes.iter().map(|node| node.operation.kind()));
    }
    let missing: Vec<_> = Operation::KINDS.iter().filter(|kind| !seen.contains(**kind)).collect();
    assert!(missing.is_empty(), "no graph has {missing:?}");
    assert_eq!(OPERATIONS.len(), Operation::KINDS.len());
}
