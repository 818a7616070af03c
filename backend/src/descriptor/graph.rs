//! Operation graphs: from operation descriptors, or from bytes or JSON.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hipdnn_schemas::{
    ContentKind, DataType, EngineApiVersion, GraphDef, GraphError, GraphFeatures, SerializedGraphAndPlan, TensorDef,
    TensorUid, content_kind,
};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::operation::Tensors;
use super::staged::Staged;
use super::{Object, Operation, Tensor, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::enums::Enumeration;
use crate::error::{Error, Result};
use crate::handle;
use crate::log;
use crate::plugins::Resources;
use crate::plugins::loaded::NEWEST_API;
use crate::plugins::resources::Needs;

#[derive(Clone, Default)]
struct Draft {
    resources: Option<Arc<Resources>>,
    /// The graph's own fields; its tensors and nodes are those of a deserialized graph that was not changed since.
    header: Arc<GraphDef>,
    /// Bytes that the graph was deserialized from, while they stand for the draft. They go to plugins unchanged.
    original: Option<Arc<Buffer>>,
    /// Operations of the header's nodes, made when first asked for: later calls get the same ones.
    unpacked: Vec<Arc<Operation>>,
    /// Operations that the client made.
    operations: Vec<Arc<Operation>>,
}

/// Finalized graph.
pub(crate) struct FinishedGraph {
    /// The plugins of the handle that it was finalized for.
    pub(crate) resources: Arc<Resources>,
    /// FlatBuffer for plugins.
    pub(crate) bytes: Buffer,
    pub(crate) def: Arc<GraphDef>,
    pub(crate) needs: Needs,
}

/// `HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Graph(Staged<Draft, FinishedGraph>);

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Error {
        match error {
            GraphError::Unknown(_) => Error::not_supported(error.to_string()),
            _ => Error::bad_param(error.to_string()),
        }
    }
}

impl Graph {
    /// A graph, not finalized, from a FlatBuffer or from a container with one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Graph> {
        let graph = match content_kind(bytes) {
            ContentKind::Bare => Buffer::new(bytes),
            ContentKind::GraphAndPlan => {
                // Readers want the start of a FlatBuffer aligned.
                let container = SerializedGraphAndPlan::from_bytes(Buffer::new(bytes).bytes())?;
                if container.graph.is_empty() {
                    return Err(Error::bad_param("the container holds no graph"));
                }
                Buffer::new(&container.graph)
            }
        };
        let def = GraphDef::from_bytes(graph.bytes())?;
        Graph::deserialized(def, graph)
    }

    /// A graph, not finalized, from hipDNN's JSON.
    pub(crate) fn from_json(text: &str) -> Result<Graph> {
        let def = GraphDef::from_json(text)?;
        let bytes = Buffer::new(&def.to_bytes());
        Graph::deserialized(def, bytes)
    }

    fn deserialized(def: GraphDef, bytes: Buffer) -> Result<Graph> {
        if let Some(wanted) = def.min_required_engine_api_version
            && wanted > NEWEST_API
        {
            return Err(Error::not_supported(format!(
                "expected a graph for engine API {}.{}.{} at most, got one for {}.{}.{}",
                NEWEST_API.major, NEWEST_API.minor, NEWEST_API.patch, wanted.major, wanted.minor, wanted.patch
            )));
        }
        let draft = Draft { header: Arc::new(def), original: Some(Arc::new(bytes)), ..Draft::default() };
        Ok(Graph(Staged::from_draft(draft)))
    }

    pub(crate) fn referred(&self) -> Result<&FinishedGraph> {
        self.0.referred("graph")
    }

    /// The serialized graph, finalized or not.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        if let Some(finished) = self.0.finished() {
            return Ok(finished.bytes.bytes().to_vec());
        }
        let draft = self.0.draft().clone();
        match &draft.original {
            Some(original) => Ok(original.bytes().to_vec()),
            None => Ok(draft.lower()?.to_bytes()),
        }
    }

    /// The graph in hipDNN's JSON, finalized or not.
    pub(crate) fn json(&self) -> Result<String> {
        if let Some(finished) = self.0.finished() {
            return Ok(finished.def.to_json());
        }
        let draft = self.0.draft().clone();
        match &draft.original {
            Some(_) => Ok(draft.header.to_json()),
            None => Ok(draft.lower()?.to_json()),
        }
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        if name == AttributeName::OPERATIONGRAPH_HANDLE {
            draft.resources = Some(Arc::clone(&handle::find(elements.handle()?)?.resources));
            return Ok(());
        }
        if name == AttributeName::OPERATIONGRAPH_OPS {
            let mut operations = Vec::new();
            for object in elements.descriptors()? {
                let what = object.what();
                let operation = object.operation();
                let operation =
                    operation.map_err(|_| Error::not_supported(format!("expected operations, got {what}")))?;
                operation.referred()?;
                operations.push(operation);
            }
            draft.unpack()?;
            draft.operations.extend(operations);
            return Ok(());
        }
        let mut header = draft.header.clone_header();
        let data_type = || DataType::from_c(elements.enumerator(AttributeType::DATA_TYPE)?);
        match name {
            AttributeName::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT => header.compute_data_type = data_type()?,
            AttributeName::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT => header.intermediate_data_type = data_type()?,
            AttributeName::OPERATIONGRAPH_IO_DATA_TYPE_EXT => header.io_data_type = data_type()?,
            AttributeName::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT => {
                header.preferred_engine_id = Some(elements.int64()?);
            }
            AttributeName::OPERATIONGRAPH_NAME_EXT => header.name = elements.text()?,
            AttributeName::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT => {
                header.is_override_shape_enabled = elements.boolean()?;
            }
            _ => return Err(unhandled(name)),
        }
        if header != draft.header.clone_header() {
            draft.detach();
            let old = Arc::make_mut(&mut draft.header);
            let (tensors, nodes) = (std::mem::take(&mut old.tensors), std::mem::take(&mut old.nodes));
            *old = GraphDef { tensors, nodes, ..header };
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let mut draft = self.0.draft();
        if name == AttributeName::OPERATIONGRAPH_OPS {
            let operations: Vec<Object> = draft.operations()?.into_iter().map(Object::Operation).collect();
            return output.descriptors(&operations, true);
        }
        let header = &draft.header;
        let data_type = |value: DataType, output: Output<'_>| output.optional(AttributeType::DATA_TYPE, value.to_c());
        match name {
            AttributeName::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT => data_type(header.compute_data_type, output),
            AttributeName::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT => {
                data_type(header.intermediate_data_type, output)
            }
            AttributeName::OPERATIONGRAPH_IO_DATA_TYPE_EXT => data_type(header.io_data_type, output),
            AttributeName::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT => {
                output.optional(AttributeType::INT64, header.preferred_engine_id)
            }
            AttributeName::OPERATIONGRAPH_NAME_EXT => output.text(&header.name),
            AttributeName::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT => {
                output.scalar(AttributeType::BOOLEAN, u8::from(header.is_override_shape_enabled))
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        if self.0.finished().is_some() {
            return Ok(());
        }
        let draft = self.0.draft().clone();
        let resources = required(draft.resources.clone(), AttributeName::OPERATIONGRAPH_HANDLE)?;
        let (def, bytes) = match &draft.original {
            Some(original) => (draft.header, Buffer::clone(original)),
            None => {
                let mut def = draft.lower()?;
                def.id.get_or_insert(random_id());
                def.min_required_engine_api_version = Some(GraphFeatures::from(&def).required_api_version());
                let bytes = Buffer::new(&def.to_bytes());
                (Arc::new(def), bytes)
            }
        };
        if def.nodes.is_empty() {
            return Err(Error::bad_param("the graph has no operations"));
        }
        let features = GraphFeatures::from(&*def);
        let base = EngineApiVersion { major: 1, minor: 0, patch: 0 };
        let stated = def.min_required_engine_api_version.unwrap_or(base);
        let needs =
            Needs { api_version: features.required_api_version().max(stated), overrides: features.override_shapes };
        dump(&def);
        self.0.finish(FinishedGraph { resources, bytes, def, needs })
    }
}

/// A graph's own fields, apart from its tensors and nodes.
trait Header {
    fn clone_header(&self) -> GraphDef;
}

impl Header for GraphDef {
    fn clone_header(&self) -> GraphDef {
        GraphDef {
            name: self.name.clone(),
            compute_data_type: self.compute_data_type,
            intermediate_data_type: self.intermediate_data_type,
            io_data_type: self.io_data_type,
            tensors: Vec::new(),
            nodes: Vec::new(),
            preferred_engine_id: self.preferred_engine_id,
            is_override_shape_enabled: self.is_override_shape_enabled,
            min_required_engine_api_version: self.min_required_engine_api_version,
            id: self.id,
        }
    }
}

impl Draft {
    /// The operations as descriptors; those of a deserialized graph are made here.
    fn operations(&mut self) -> Result<Vec<Arc<Operation>>> {
        if self.unpacked.len() != self.header.nodes.len() {
            let tensors = descriptors(&self.header.tensors)?;
            let nodes = self.header.nodes.iter();
            let unpacked = nodes.map(|node| Operation::from_node(node, &tensors).map(Arc::new));
            self.unpacked = unpacked.collect::<Result<_>>()?;
        }
        Ok(self.unpacked.iter().chain(&self.operations).cloned().collect())
    }

    /// The original bytes stand for the draft no longer.
    fn detach(&mut self) {
        self.original = None;
    }

    /// As [`Draft::detach`]; the nodes become operations, which others can follow.
    fn unpack(&mut self) -> Result<()> {
        if !self.header.nodes.is_empty() {
            self.operations = self.operations()?;
            self.unpacked.clear();
            let header = Arc::make_mut(&mut self.header);
            header.tensors.clear();
            header.nodes.clear();
        }
        self.detach();
        Ok(())
    }

    /// The graph that the draft describes.
    fn lower(&self) -> Result<GraphDef> {
        let mut def = GraphDef::clone(&self.header);
        let mut seen: HashMap<TensorUid, Arc<Tensor>> = HashMap::new();
        for operation in &self.operations {
            let operation = operation.referred()?;
            if let Some(uid) = operation.clash() {
                return Err(two_tensors(uid));
            }
            for tensor in operation.tensors() {
                collect(&tensor, &mut seen, &mut def.tensors)?;
            }
            def.nodes.push(operation.node.clone());
        }
        Ok(def)
    }
}

fn two_tensors(uid: TensorUid) -> Error {
    Error::bad_param(format!("two tensor descriptors carry uid {uid}: one descriptor must be used throughout"))
}

fn collect(
    tensor: &Arc<Tensor>,
    seen: &mut HashMap<TensorUid, Arc<Tensor>>,
    tensors: &mut Vec<TensorDef>,
) -> Result<()> {
    let finished = tensor.referred()?;
    if let Some(first) = seen.get(&finished.def.uid) {
        return if Arc::ptr_eq(first, tensor) { Ok(()) } else { Err(two_tensors(finished.def.uid)) };
    }
    seen.insert(finished.def.uid, Arc::clone(tensor));
    if let Some(ragged) = &finished.ragged {
        collect(ragged, seen, tensors)?;
    }
    tensors.push(finished.def.clone());
    Ok(())
}

/// Descriptors of a deserialized graph's tensors. Row offsets are tensors without row offsets of their own.
fn descriptors(defs: &[TensorDef]) -> Result<Tensors> {
    let mut tensors = Tensors::new();
    let (plain, ragged): (Vec<_>, Vec<_>) = defs.iter().partition(|def| def.ragged.is_none());
    for def in plain {
        tensors.insert(def.uid, Arc::new(Tensor::finished_from(def.clone(), None)));
    }
    let mut rows = Vec::new();
    for def in ragged {
        let offset = def.ragged.and_then(|ragged| tensors.get(&ragged.offset));
        let offset =
            offset.ok_or_else(|| Error::bad_param(format!("tensor {}: its row offsets are missing", def.uid)))?;
        rows.push(Arc::new(Tensor::finished_from(def.clone(), Some(Arc::clone(offset)))));
    }
    for (def, tensor) in defs.iter().filter(|def| def.ragged.is_some()).zip(rows) {
        tensors.insert(def.uid, tensor);
    }
    Ok(tensors)
}

/// A random UUID (version 4).
fn random_id() -> [u8; 16] {
    let mut id = [0u8; 16];
    // SAFETY: there is room for the bytes asked for.
    let came = unsafe { libc::getrandom(id.as_mut_ptr().cast(), id.len(), 0) };
    if came != 16 {
        // Unique enough to name a graph: this process, this moment, this call.
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        id[..8].copy_from_slice(&nanoseconds.to_le_bytes());
        id[8..12].copy_from_slice(&CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        id[12..].copy_from_slice(&std::process::id().to_le_bytes());
    }
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// Writes the graph to the directory that `HIPDNN_LOG_GRAPH_DIR` names, if it names one.
fn dump(def: &GraphDef) {
    let Some(directory) = std::env::var_os("HIPDNN_LOG_GRAPH_DIR").filter(|directory| !directory.is_empty()) else {
        return;
    };
    let digits = format!("{:032x}", u128::from_be_bytes(def.id.unwrap_or_else(random_id)));
    let [a, b, c, d] = [8, 12, 16, 20];
    let id = [&digits[..a], &digits[a..b], &digits[b..c], &digits[c..d], &digits[d..]].join("-");
    let path = Path::new(&directory).join(format!("graph_{id}.json"));
    if let Err(error) = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, def.to_json())) {
        log::warning!("HIPDNN_LOG_GRAPH_DIR: {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        let (a, b) = (random_id(), random_id());
        assert_ne!(a, b);
        for id in [a, b] {
            assert_eq!((id[6] >> 4, id[8] >> 6), (4, 2));
        }
    }
}
