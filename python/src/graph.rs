//! Graphs, checked.

use hipdnn_schemas::{PointwiseMode, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::GraphError;

/// A checked graph, which never changes.
#[pyclass(frozen, module = "hipdnn_rs._native")]
pub(crate) struct Graph {
    pub(crate) graph: hipdnn_schemas::Graph,
    pub(crate) bytes: Vec<u8>,
}

impl Graph {
    fn new(checked: Result<hipdnn_schemas::Graph, hipdnn_schemas::GraphError>) -> PyResult<Graph> {
        let graph = checked.map_err(|error| GraphError::new_err(error.to_string()))?;
        let bytes = graph.def().to_bytes();
        Ok(Graph { graph, bytes })
    }

    /// What a client has to do with a tensor: it gives an `input`, a `scalar` in the host's memory, or the memory of an
    /// `output`; nothing with a `constant` of the graph or a `virtual` tensor.
    pub(crate) fn role(&self, tensor: &Tensor) -> &'static str {
        if tensor.is_virtual() {
            "virtual"
        } else if tensor.is_runtime_pass_by_value() {
            "scalar"
        } else if tensor.value().is_some() {
            "constant"
        } else if self.graph.producer(tensor.uid()).is_some() {
            "output"
        } else {
            "input"
        }
    }
}

/// Uid, name, type, extents, strides in elements, alignment in bytes, and role of a tensor.
type Row = (i64, String, &'static str, Vec<i64>, Vec<i64>, i64, &'static str);

#[pymethods]
impl Graph {
    /// Reads and checks a graph in hipDNN's JSON form.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Graph> {
        Graph::new(hipdnn_schemas::Graph::from_json(text))
    }

    /// Reads and checks a serialized graph.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Graph> {
        Graph::new(hipdnn_schemas::Graph::from_bytes(bytes))
    }

    /// The graph in hipDNN's JSON form.
    fn to_json(&self) -> String {
        self.graph.def().to_json()
    }

    /// The graph as hipDNN serializes it.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// The tensors.
    fn tensors(&self) -> Vec<Row> {
        let row = |tensor: &Tensor| {
            let def = tensor.def();
            let (dims, strides) = (def.dims.to_vec(), def.strides.to_vec());
            let kind = def.data_type.json_name();
            (def.uid.0, def.name.clone(), kind, dims, strides, def.alignment, self.role(tensor))
        };
        self.graph.tensors().iter().map(row).collect()
    }

    /// The kinds of the nodes' operations, in order.
    fn nodes(&self) -> Vec<&'static str> {
        self.graph.nodes().iter().map(|node| node.operation.kind()).collect()
    }
}

/// The names of the pointwise modes, each with its number of operands.
#[pyfunction]
pub(crate) fn pointwise_modes() -> Vec<(&'static str, usize)> {
    let modes = PointwiseMode::ALL.iter().filter(|mode| **mode != PointwiseMode::Unset);
    modes.map(|mode| (mode.json_name(), mode.operands())).collect()
}
