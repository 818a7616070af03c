//! The stages of a small partition, as text.

use hipdnn_sdk_bindings::ort::ElementType;

use super::{Linked, Step, stages};
use crate::import;
use crate::memory::Places;
use crate::model::{Attribute, Constant, Extent, Model, Node, Value, ValueIndex};
use crate::outline::{self, Outlined, Uses};

/// Makes models.
#[derive(Default)]
struct Builder(Model);

impl Builder {
    fn value(&mut self, name: &str, element: ElementType, shape: &[&str]) -> ValueIndex {
        let extents = shape.iter().map(|extent| match extent.parse() {
            Ok(known) => Extent::Known(known),
            Err(_) => Extent::Symbol((*extent).to_string()),
        });
        self.0.values.push(Value {
            name: name.to_string(),
            element: Some(element),
            shape: Some(extents.collect()),
            constant: None,
            is_output: false,
        });
        self.0.values.len() - 1
    }

    fn input(&mut self, name: &str, shape: &[&str]) -> ValueIndex {
        let value = self.value(name, ElementType::FLOAT, shape);
        self.0.inputs.push(value);
        value
    }

    fn list(&mut self, name: &str, items: &[i64]) -> ValueIndex {
        let value = self.value(name, ElementType::INT64, &[&items.len().to_string()]);
        let bytes: Vec<u8> = items.iter().flat_map(|item| item.to_ne_bytes()).collect();
        let dims = vec![items.len() as i64];
        self.0.values[value].constant = Some(Constant { dims, bytes: Some(bytes.into()), token: None });
        self.0.inputs.push(value);
        value
    }

    fn node(
        &mut self,
        op_type: &str,
        inputs: &[ValueIndex],
        attributes: &[(&str, Attribute)],
        shape: &[&str],
    ) -> ValueIndex {
        let label = format!("the_{}", op_type.to_lowercase());
        let output = self.value(&label, ElementType::FLOAT, shape);
        self.0.nodes.push(Node {
            label,
            op_type: op_type.to_string(),
            since_version: 13,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            attributes: attributes.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect(),
            ..Node::default()
        });
        output
    }

    fn output(&mut self, value: ValueIndex) {
        self.0.values[value].is_output = true;
        self.0.outputs.push(value);
    }
}

/// A convolution and a Relu; the result joined with the input, a part of which is negated; and the result transposed.
fn partition() -> Model {
    let mut b = Builder(Model { name: "small".into(), ..Model::default() });
    let x = b.input("x", &["n", "3", "4", "5"]);
    let w = b.input("w", &["2", "3", "1", "1"]);
    b.0.values[w].constant = Some(Constant { dims: vec![2, 3, 1, 1], bytes: None, token: None });
    let (starts, ends, axes) = (b.list("starts", &[1]), b.list("ends", &[4]), b.list("axes", &[2]));
    let geometry = [("pads", Attribute::Ints(vec![0; 4])), ("auto_pad", Attribute::String("NOTSET".into()))];
    let c = b.node("Conv", &[x, w], &geometry, &["n", "2", "4", "5"]);
    let r = b.node("Relu", &[c], &[], &["n", "2", "4", "5"]);
    let k = b.node("Concat", &[r, x], &[("axis", Attribute::Int(1))], &["n", "5", "4", "5"]);
    let s = b.node("Slice", &[k, starts, ends, axes], &[], &["n", "5", "3", "5"]);
    let e = b.node("Neg", &[s], &[], &["n", "5", "3", "5"]);
    let t = b.node("Transpose", &[r], &[("perm", Attribute::Ints(vec![0, 2, 3, 1]))], &["n", "4", "5", "2"]);
    b.output(e);
    b.output(t);
    b.0
}

/// The stages for that many images.
fn printed(model: &Model, images: i64) -> [(&'static str, String); 5] {
    let dims: Vec<Vec<i64>> = model
        .inputs
        .iter()
        .map(|input| model.values[*input].known_dims().unwrap_or_else(|| vec![images, 3, 4, 5]))
        .collect();
    let dims: Vec<&[i64]> = dims.iter().map(Vec::as_slice).collect();
    let function = import::import_model(model, &dims).unwrap();
    let uses = Uses::of(&function);
    let labels = |node: usize| model.nodes[node].label.as_str();
    let regions = outline::outline(&function, &uses);
    let graphs: Vec<Outlined> =
        regions.iter().map(|region| outline::graph(&function, &uses, region, &labels)).collect();
    let places = Places::of(&function, graphs.iter().map(|graph| &graph.arguments[..]));
    let steps = graphs
        .iter()
        .map(|graph| Step { graph: &graph.graph, arguments: &graph.arguments, engine: "ENGINE", workspace: 64 })
        .collect();
    let linked = Linked { function: &function, steps, places: &places.offsets, arena: places.arena, workspace: 64 };
    stages(model, &linked)
}

/// With `UPDATE_EXPECTED=1` the expected texts are written instead.
#[test]
fn the_stages_of_a_small_partition() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/print/expected");
    for (stage, text) in printed(&partition(), 2) {
        let path = format!("{directory}/{stage}.mlir");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{stage} is\n{text}");
    }
}

#[test]
fn texts_are_the_same_each_time() {
    // Maps of the standard library have an order of their own in every process, and in every map.
    assert_eq!(printed(&partition(), 3), printed(&partition(), 3));
}

#[test]
fn equal_graphs_are_one_executable() {
    let mut b = Builder::default();
    let shape = ["4", "4"];
    let mut x = b.input("x", &shape);
    for _ in 0..3 {
        // A transposition ends a region.
        x = b.node("Transpose", &[x], &[("perm", Attribute::Ints(vec![1, 0]))], &shape);
        x = b.node("Relu", &[x], &[], &shape);
    }
    b.output(x);
    for (stage, text) in printed(&b.0, 2) {
        let (functions, calls) =
            (text.matches("func.func private @graph_").count(), text.matches("func.call @graph_").count());
        let graphs = text.matches("\"hipdnn.graph\"").count();
        match stage {
            "1-import" => assert_eq!((functions, calls, graphs), (0, 0, 0)),
            "2-outlined" => assert_eq!((functions, calls, graphs), (0, 0, 3), "{text}"),
            _ => assert_eq!((functions, calls, graphs), (1, 3, 0), "{stage}: {text}"),
        }
    }
}
