//! The graph: as described ([`GraphDef`]) and as checked ([`Graph`]).

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{DataType, Extents, GraphError, Node, Tensor, TensorDef, TensorUid};

/// The engine ABI version that a graph says it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "a version number")]
pub struct EngineApiVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// A graph as a client describes it: decoded, but not checked. [`Graph::new`] checks it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphDef {
    /// Name for messages only; may be empty.
    pub name: String,
    /// Default for the nodes' compute type.
    pub compute_data_type: DataType,
    /// Default type of intermediates.
    pub intermediate_data_type: DataType,
    /// Default type of the other tensors.
    pub io_data_type: DataType,
    /// All tensors, in any order.
    pub tensors: Vec<TensorDef>,
    /// All nodes, producers before consumers.
    pub nodes: Vec<Node>,
    /// Engine that the client prefers; a matter of the host, not of engines.
    pub preferred_engine_id: Option<i64>,
    /// True if shapes may be replaced at execution.
    pub is_override_shape_enabled: bool,
    /// The engine ABI version needed; absent means 1.0.0.
    pub min_required_engine_api_version: Option<EngineApiVersion>,
    /// UUID of the logical graph across serializations; no hash of its content.
    pub id: Option<[u8; 16]>,
}

/// A checked graph. Every uid that a node names is a tensor, every tensor has at most one producer, which comes
/// before its consumers; shapes, strides, types and attribute lengths fit the operations. It never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    /// Description and topology, shared by graphs with other tensors in the same places.
    pub(crate) shared: Arc<Shared>,
}

/// A graph without its tensors.
#[derive(Debug, PartialEq)]
pub(crate) struct Shared {
    /// Description without tensors, with defaults of types filled in.
    pub(crate) def: GraphDef,
    pub(crate) index: Index,
    pub(crate) edges: Edges,
}

/// Producers and consumers of tensors, by the tensors' positions.
#[derive(Debug, PartialEq)]
pub(crate) struct Edges {
    pub(crate) producers: Vec<Option<usize>>,
    pub(crate) consumers: Vec<SmallVec<[usize; 2]>>,
}

/// Positions of tensors by uid.
#[derive(Debug, PartialEq)]
pub(crate) enum Index {
    /// The uids are numbers in the order of the tensors, as most clients give them: from the first on, so many.
    Consecutive(TensorUid, usize),
    /// The uids are any numbers.
    Hashed(HashMap<TensorUid, usize>),
}

impl Index {
    /// Positions of these tensors.
    ///
    /// # Errors
    /// If two have the same uid: the first such uid.
    pub(crate) fn new(tensors: &[TensorDef]) -> Result<Index, TensorUid> {
        let first = tensors.first().map_or(TensorUid(0), |tensor| tensor.uid);
        let consecutive = Index::Consecutive(first, tensors.len());
        if tensors.iter().enumerate().all(|(position, tensor)| consecutive.get(tensor.uid) == Some(position)) {
            return Ok(consecutive);
        }
        let mut positions = HashMap::with_capacity(tensors.len());
        for (position, tensor) in tensors.iter().enumerate() {
            if positions.insert(tensor.uid, position).is_some() {
                return Err(tensor.uid);
            }
        }
        Ok(Index::Hashed(positions))
    }

    pub(crate) fn get(&self, uid: TensorUid) -> Option<usize> {
        match self {
            Index::Consecutive(first, count) => {
                let position = uid.0.checked_sub(first.0).and_then(|position| usize::try_from(position).ok());
                position.filter(|position| position < count)
            }
            Index::Hashed(positions) => positions.get(&uid).copied(),
        }
    }
}

impl Graph {
    /// Checks a description.
    ///
    /// # Errors
    /// The error names the tensor or node, what was wanted and what came.
    pub fn new(def: GraphDef) -> Result<Graph, GraphError> {
        crate::check::check(def)
    }

    /// Reads and checks a serialized graph (a bare FlatBuffer, no size prefix, no file identifier).
    ///
    /// # Errors
    /// As [`GraphDef::from_bytes`] and [`Graph::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Graph, GraphError> {
        Graph::new(GraphDef::from_bytes(bytes)?)
    }

    /// Reads and checks a graph in hipDNN's JSON form.
    ///
    /// # Errors
    /// As [`GraphDef::from_json`] and [`Graph::new`].
    pub fn from_json(text: &str) -> Result<Graph, GraphError> {
        Graph::new(GraphDef::from_json(text)?)
    }

    /// The same graph with other strides, in elements, for some of its intermediates: no memory of the caller stands behind
    /// them.
    ///
    /// # Errors
    /// If one of these tensors is no intermediate of this graph, and as [`Graph::new`].
    pub fn with_strides(&self, strides: impl IntoIterator<Item = (TensorUid, Extents)>) -> Result<Graph, GraphError> {
        self.with_intermediates(strides, |tensor, strides| tensor.strides = strides)
    }

    /// The same graph with other element types for some of its intermediates.
    ///
    /// # Errors
    /// If one of these tensors is no intermediate of this graph, and as [`Graph::new`].
    pub fn with_data_types(&self, types: impl IntoIterator<Item = (TensorUid, DataType)>) -> Result<Graph, GraphError> {
        self.with_intermediates(types, |tensor, data_type| tensor.data_type = data_type)
    }

    fn with_intermediates<T>(
        &self,
        changes: impl IntoIterator<Item = (TensorUid, T)>,
        set: impl Fn(&mut TensorDef, T),
    ) -> Result<Graph, GraphError> {
        let mut graph = self.clone();
        let mut changed = Vec::new();
        for (uid, change) in changes {
            let position = self.shared.index.get(uid);
            let Some(position) = position.filter(|position| self.tensors[*position].is_virtual()) else {
                let reason = "expected an intermediate of the graph, whose strides and type are free".to_string();
                return Err(GraphError::Tensor { uid: uid.0, reason });
            };
            let tensor = &mut graph.tensors[position].def;
            set(tensor, change);
            if tensor.data_type == DataType::Unset {
                tensor.data_type = self.shared.def.intermediate_data_type;
            }
            changed.push(position);
        }
        graph.recheck(&changed)?;
        Ok(graph)
    }

    /// Copy of the description that this graph was made from, with defaults of types filled in.
    pub fn def(&self) -> GraphDef {
        let tensors = self.tensors.iter().map(|tensor| tensor.def.clone()).collect();
        GraphDef { tensors, ..self.shared.def.clone() }
    }

    /// True if shapes may be replaced at execution.
    pub fn allows_override_shapes(&self) -> bool {
        self.shared.def.is_override_shape_enabled
    }

    /// Name for messages only; may be empty.
    pub fn name(&self) -> &str {
        &self.shared.def.name
    }

    /// All tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// All nodes, producers before consumers.
    pub fn nodes(&self) -> &[Node] {
        &self.shared.def.nodes
    }

    /// The position of the tensor of that uid among [`Graph::tensors`].
    ///
    /// # Panics
    /// As [`Graph::tensor`].
    pub fn position(&self, uid: TensorUid) -> usize {
        self.shared.index.get(uid).unwrap_or_else(|| panic!("expected a tensor of the graph, got uid {}", uid.0))
    }

    /// The tensor of that uid.
    ///
    /// # Panics
    /// If no node or tensor of this graph has that uid.
    pub fn tensor(&self, uid: TensorUid) -> &Tensor {
        &self.tensors[self.position(uid)]
    }

    /// The tensor of that uid, if the graph has it.
    pub fn find(&self, uid: TensorUid) -> Option<&Tensor> {
        self.shared.index.get(uid).map(|position| &self.tensors[position])
    }

    /// The index of the node that writes the tensor; `None` for inputs of the graph.
    pub fn producer(&self, uid: TensorUid) -> Option<usize> {
        self.shared.edges.producers[self.position(uid)]
    }

    /// The indices of the nodes that read the tensor, ascending, each once.
    pub fn consumers(&self, uid: TensorUid) -> &[usize] {
        &self.shared.edges.consumers[self.position(uid)]
    }
}
