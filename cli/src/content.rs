//! Files: reading, and recognition of their content.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use hipdnn_schemas::{
    ContentKind, EngineConfig, EngineDetails, Graph, GraphDef, GraphError, Knob, SerializedExecutionPlan,
    SerializedGraphAndPlan, content_kind,
};

use crate::arguments::Kind;
use crate::text;

/// Content of a file.
pub(crate) enum Content {
    Graph(Box<Graph>),
    GraphAndPlan(Box<Graph>, Option<SerializedExecutionPlan>),
    Plan(SerializedExecutionPlan),
    Config(EngineConfig),
    Details(EngineDetails),
    Knob(Knob),
}

/// Maximum size of a file, larger than any graph: a device file, for instance, was not meant.
const LARGEST: u64 = 1 << 30;

/// The bytes of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let explain = |problem: std::io::Error| format!("{}: {problem}", path.display());
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes).map_err(explain)?;
    } else {
        File::open(path).map_err(explain)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(explain)?;
    }
    match bytes.len() as u64 {
        0 => Err(format!("{}: the file is empty", path.display())),
        len if len > LARGEST => {
            Err(format!("{}: expected at most {}, got more", path.display(), text::bytes(u128::from(LARGEST))))
        }
        _ => Ok(bytes),
    }
}

/// A graph as it was read and as it was checked.
pub(crate) struct Source {
    pub(crate) def: GraphDef,
    pub(crate) graph: Graph,
    /// FlatBuffer for engines: the file's own bytes if it is one.
    pub(crate) bytes: Vec<u8>,
}

/// The graph in a file, whatever form it has.
pub(crate) fn read_graph(path: &Path) -> Result<Source, String> {
    let bytes = read(path)?;
    let source = match content_kind(&bytes) {
        ContentKind::GraphAndPlan => SerializedGraphAndPlan::from_bytes(&bytes).and_then(|both| source(both.graph)),
        ContentKind::Bare => source(bytes.clone()),
    };
    source.map_err(|problem| match other_kind(&bytes) {
        Some(kind) => format!("{}: expected a graph, got {kind}", path.display()),
        None => format!("{}: {problem}", path.display()),
    })
}

fn source(bytes: Vec<u8>) -> Result<Source, GraphError> {
    let def = decode(&bytes)?;
    let graph = Graph::new(def.clone())?;
    let bytes = if is_text(&bytes) { def.to_bytes() } else { bytes };
    Ok(Source { def, graph, bytes })
}

/// Content of a file; `kind` is the user's choice, else it is guessed.
pub(crate) fn read_content(path: &Path, kind: Option<Kind>) -> Result<Content, String> {
    let bytes = read(path)?;
    let kind = kind.unwrap_or_else(|| guess(&bytes));
    content(&bytes, kind).map_err(|problem| format!("{}: {problem}", path.display()))
}

fn content(bytes: &[u8], kind: Kind) -> Result<Content, GraphError> {
    Ok(match kind {
        Kind::Graph => Content::Graph(Box::new(graph(bytes)?)),
        Kind::GraphAndPlan => {
            let both = SerializedGraphAndPlan::from_bytes(bytes)?;
            let plan = both.plan.as_deref().map(SerializedExecutionPlan::from_bytes).transpose()?;
            Content::GraphAndPlan(Box::new(graph(&both.graph)?), plan)
        }
        Kind::Plan => Content::Plan(SerializedExecutionPlan::from_bytes(bytes)?),
        Kind::Config => Content::Config(EngineConfig::from_bytes(bytes)?),
        Kind::Details => Content::Details(EngineDetails::from_bytes(bytes)?),
        Kind::Knob => Content::Knob(Knob::from_bytes(bytes)?),
    })
}

fn graph(bytes: &[u8]) -> Result<Graph, GraphError> {
    decode(bytes).and_then(Graph::new)
}

/// A graph in either form.
fn decode(bytes: &[u8]) -> Result<GraphDef, GraphError> {
    if !is_text(bytes) {
        return GraphDef::from_bytes(bytes);
    }
    let text = std::str::from_utf8(bytes).map_err(|problem| GraphError::Json(problem.to_string()))?;
    GraphDef::from_json(text.trim_start_matches('\u{feff}'))
}

/// True if the bytes can only be meant as JSON. A FlatBuffer begins with a number of 4 bytes, a small multiple of 4.
fn is_text(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_readable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    // The JSON reader says best what is wrong with other text.
    first.is_some_and(|byte| matches!(byte, b'{' | b'[' | b'"')) || bytes.iter().all(is_readable)
}

/// Kind of the bytes' content. FlatBuffers don't tell: it is the first kind that can be read and is not empty.
fn guess(bytes: &[u8]) -> Kind {
    if content_kind(bytes) == ContentKind::GraphAndPlan {
        return Kind::GraphAndPlan;
    }
    if is_text(bytes) || GraphDef::from_bytes(bytes).is_ok_and(|def| !def.nodes.is_empty() || !def.tensors.is_empty()) {
        return Kind::Graph;
    }
    // The error that the user sees is about a graph: it is what most files are meant to be.
    binary_kind(bytes).unwrap_or(Kind::Graph)
}

/// The kind of a bare FlatBuffer that is no graph.
fn binary_kind(bytes: &[u8]) -> Option<Kind> {
    // Version 1 is the only one so far, and no plan is without tensors or payload.
    if SerializedExecutionPlan::from_bytes(bytes)
        .is_ok_and(|plan| plan.version == 1 && !plan.tensor_uids.is_empty() && !plan.plugin_payload.is_empty())
    {
        return Some(Kind::Plan);
    }
    let is_named = |id: &str| !id.is_empty() && !id.contains(char::is_control);
    // The fields of the two begin alike; knob settings have a value where knobs have a description.
    if EngineDetails::from_bytes(bytes).is_ok_and(|details| {
        details.engine_id != 0
            && details.knobs.iter().all(|knob| is_named(&knob.id))
            && !(details.knobs.is_empty() && details.behavior_notes.is_empty() && details.name.is_none())
    }) {
        return Some(Kind::Details);
    }
    if EngineConfig::from_bytes(bytes)
        .is_ok_and(|config| config.engine_id != 0 && config.knobs.iter().all(|(id, _)| is_named(id)))
    {
        return Some(Kind::Config);
    }
    Knob::from_bytes(bytes).is_ok_and(|knob| is_named(&knob.id)).then_some(Kind::Knob)
}

fn other_kind(bytes: &[u8]) -> Option<&'static str> {
    if is_text(bytes) || content_kind(bytes) == ContentKind::GraphAndPlan || GraphDef::from_bytes(bytes).is_ok() {
        return None;
    }
    binary_kind(bytes).map(|kind| match kind {
        Kind::Graph | Kind::GraphAndPlan => "a graph",
        Kind::Plan => "a serialized plan",
        Kind::Config => "an engine configuration",
        Kind::Details => "engine details",
        Kind::Knob => "a knob",
    })
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{
        DataType, GraphBuilder, KnobConstraint, KnobValue, Pointwise, PointwiseMode, TensorDef, TensorUid,
    };

    use super::*;

    fn relu() -> GraphDef {
        let mut graph = GraphBuilder::new("relu").compute(DataType::Float);
        let x = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 3]));
        let y = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 3]));
        graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, x, y));
        graph.def().clone()
    }

    #[test]
    fn kinds_are_guessed() {
        let knob = Knob {
            id: "a.b.c".into(),
            description: "what it does".into(),
            default: KnobValue::Int(3),
            constraint: Some(KnobConstraint::Int { min: 0, max: 9, step: 1, valid: vec![] }),
            deprecated: false,
        };
        let engine_id = hipdnn_sdk_bindings::hipdnn::plugin::engine_id("HIPDNN_RS_CPU_ENGINE");
        let knobs = vec![
            ("a.b.c".to_string(), KnobValue::Int(5)),
            ("text".to_string(), KnobValue::String("x".into())),
            ("half".to_string(), KnobValue::Float(0.5)),
        ];
        let config = EngineConfig { engine_id, knobs };
        let details = EngineDetails { engine_id, knobs: vec![knob.clone()], behavior_notes: vec![], name: None };
        let plan = SerializedExecutionPlan {
            version: 1,
            engine_id,
            workspace_size: 77,
            tensor_uids: vec![TensorUid(1), TensorUid(2)],
            plugin_payload: vec![1, 2, 3],
            ..SerializedExecutionPlan::default()
        };
        let both = SerializedGraphAndPlan { graph: relu().to_bytes(), plan: Some(plan.to_bytes()) };
        let empty = EngineConfig { engine_id, knobs: vec![] };
        for (name, bytes, want) in [
            ("graph", relu().to_bytes(), Kind::Graph),
            ("json", relu().to_json().into_bytes(), Kind::Graph),
            ("other text", b"hello".to_vec(), Kind::Graph),
            ("both", both.to_bytes(), Kind::GraphAndPlan),
            ("plan", plan.to_bytes(), Kind::Plan),
            ("config", config.to_bytes(), Kind::Config),
            ("config without knobs", empty.to_bytes(), Kind::Config),
            ("details", details.to_bytes(), Kind::Details),
            ("knob", knob.to_bytes(), Kind::Knob),
            ("rubbish", vec![0xff; 64], Kind::Graph),
            ("zeros", vec![0; 64], Kind::Graph),
        ] {
            assert_eq!(guess(&bytes), want, "{name}");
        }
    }

    #[test]
    fn graphs_are_read_in_either_form() {
        let json = format!("\u{feff}\n {}", relu().to_json());
        for bytes in [relu().to_bytes(), json.into_bytes()] {
            assert_eq!(graph(&bytes).expect("a graph").nodes().len(), 1);
        }
        assert!(matches!(graph(b"{\"name\": \xff}"), Err(GraphError::Json(_))));
    }
}
