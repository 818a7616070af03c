//! Features of a graph, and the engine ABI version that they require.

use crate::generated as fb;
use crate::read::root;
use crate::{DEFAULT_ALIGNMENT, EngineApiVersion, GraphDef, GraphError};

/// Verifies that bytes are a FlatBuffer of a graph, and no more: enough for a host that hands them on.
///
/// # Errors
/// If they are not.
pub fn verify_graph(bytes: &[u8]) -> Result<(), GraphError> {
    root::<fb::Graph>(bytes).map(|_| ())
}

/// Features of a graph that came after engine ABI 1.0.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphFeatures {
    /// True if shapes may be replaced at execution (ABI 1.1.0).
    pub override_shapes: bool,
    /// True if some scalar is read from the host at execution (ABI 1.2.0).
    pub runtime_pass_by_value: bool,
    /// True if some tensor has rows of variable length (ABI 1.3.0).
    pub ragged: bool,
    /// True if some tensor has an alignment other than the default (ABI 1.3.0).
    pub alignment: bool,
}

impl GraphFeatures {
    /// The features of a serialized graph, without decoding the rest.
    ///
    /// # Errors
    /// If the bytes are not a FlatBuffer of a graph.
    pub fn of(bytes: &[u8]) -> Result<GraphFeatures, GraphError> {
        let graph = root::<fb::Graph>(bytes)?;
        let mut features =
            GraphFeatures { override_shapes: graph.is_override_shape_enabled(), ..GraphFeatures::default() };
        for tensor in graph.tensors().into_iter().flatten() {
            features.runtime_pass_by_value |= tensor.is_runtime_pass_by_value();
            features.ragged |= tensor.ragged_offset_tensor_uid().is_some();
            features.alignment |= tensor.alignment() != DEFAULT_ALIGNMENT;
        }
        Ok(features)
    }

    /// The lowest engine ABI version that has all of them.
    pub fn required_api_version(self) -> EngineApiVersion {
        let minor = match self {
            _ if self.ragged || self.alignment => 3,
            _ if self.runtime_pass_by_value => 2,
            _ if self.override_shapes => 1,
            _ => 0,
        };
        EngineApiVersion { major: 1, minor, patch: 0 }
    }
}

impl From<&GraphDef> for GraphFeatures {
    fn from(def: &GraphDef) -> GraphFeatures {
        GraphFeatures {
            override_shapes: def.is_override_shape_enabled,
            runtime_pass_by_value: def.tensors.iter().any(|tensor| tensor.is_runtime_pass_by_value),
            ragged: def.tensors.iter().any(|tensor| tensor.ragged.is_some()),
            alignment: def.tensors.iter().any(|tensor| tensor.alignment != DEFAULT_ALIGNMENT),
        }
    }
}
