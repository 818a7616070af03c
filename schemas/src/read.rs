//! Deserialization: from bytes to a description.

use flatbuffers::{Follow, InvalidFlatbuffer, Verifiable, VerifierOptions};

use crate::field::Field;
use crate::generated as fb;
use crate::{EngineApiVersion, GraphDef, GraphError, Node, Operation, Ragged, TensorDef, TensorUid, TensorValue};

/// Maximum number of tensors; it bounds the memory that a small hostile buffer, whose offsets all lead to the same
/// table, can make us allocate.
pub const MAX_TENSORS: usize = 1 << 17;

/// Maximum number of nodes; see [`MAX_TENSORS`].
pub const MAX_NODES: usize = 1 << 16;

/// Verifies `bytes` as a `T` and gives its root.
pub(crate) fn root<'a, T>(bytes: &'a [u8]) -> Result<T::Inner, GraphError>
where
    T: 'a + Follow<'a> + Verifiable,
{
    let options = VerifierOptions {
        // The deepest path is graph, node, attributes (details: knob, constraint, string).
        max_depth: 8,
        max_tables: 2 * (MAX_TENSORS + 2 * MAX_NODES),
        // Tables share vtables, and clients may share strings, so a tree can be larger than its buffer, but not by
        // much: a longer one is made of aliases.
        max_apparent_size: bytes.len().saturating_mul(16).saturating_add(1 << 16),
        ignore_missing_null_terminator: false,
    };
    flatbuffers::root_with_opts::<T>(&options, bytes).map_err(malformed)
}

fn malformed(error: InvalidFlatbuffer) -> GraphError {
    // The trace of the verifier has a line for each level; one sentence is asked for here.
    GraphError::Malformed(error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

impl GraphDef {
    /// Verifies and decodes a serialized graph.
    ///
    /// # Errors
    /// If the bytes are not a FlatBuffer of this schema or use members it does not have.
    pub fn from_bytes(bytes: &[u8]) -> Result<GraphDef, GraphError> {
        let graph = root::<fb::Graph>(bytes)?;
        let type_of = |field: &str, wire: fb::DataType| {
            Field::read(wire).map_err(|reason| GraphError::Unknown(format!("graph: {field}: {reason}")))
        };
        let tensors = graph.tensors();
        let nodes = graph.nodes();
        limit("tensors", tensors.map_or(0, |list| list.len()), MAX_TENSORS).map_err(GraphError::Malformed)?;
        limit("nodes", nodes.map_or(0, |list| list.len()), MAX_NODES).map_err(GraphError::Malformed)?;
        Ok(GraphDef {
            name: graph.name().unwrap_or_default().to_string(),
            compute_data_type: type_of("compute_data_type", graph.compute_data_type())?,
            intermediate_data_type: type_of("intermediate_data_type", graph.intermediate_data_type())?,
            io_data_type: type_of("io_data_type", graph.io_data_type())?,
            tensors: collected(tensors.map_or(0, |list| list.len()), tensors.into_iter().flatten().map(tensor))?,
            nodes: collected(nodes.map_or(0, |list| list.len()), nodes.into_iter().flatten().enumerate().map(node))?,
            preferred_engine_id: graph.preferred_engine_id(),
            is_override_shape_enabled: graph.is_override_shape_enabled(),
            min_required_engine_api_version: graph.min_required_engine_api_version().map(|v| EngineApiVersion {
                major: v.major(),
                minor: v.minor(),
                patch: v.patch(),
            }),
            id: graph.id().map(|id| id.0),
        })
    }
}

/// The items, of which there are `count`, or the first error. Results have no known number, and lists of them grow by copies of
/// large items.
fn collected<T>(count: usize, items: impl Iterator<Item = Result<T, GraphError>>) -> Result<Vec<T>, GraphError> {
    let mut list = Vec::with_capacity(count);
    for item in items {
        list.push(item?);
    }
    Ok(list)
}

/// The reason that there are too many of something.
pub(crate) fn limit(what: &str, count: usize, most: usize) -> Result<(), String> {
    if count > most { Err(format!("expected at most {most} {what}, got {count}")) } else { Ok(()) }
}

fn node((index, node): (usize, fb::Node<'_>)) -> Result<Node, GraphError> {
    let operation = Operation::read(index, node)?;
    let compute_data_type = Field::read(node.compute_data_type()).map_err(|reason| {
        GraphError::Unknown(format!("node {index} ({}): compute_data_type: {reason}", operation.kind()))
    })?;
    Ok(Node { name: node.name().unwrap_or_default().to_string(), compute_data_type, operation })
}

fn tensor(tensor: fb::TensorAttributes<'_>) -> Result<TensorDef, GraphError> {
    let uid = tensor.uid();
    let data_type = Field::read(tensor.data_type())
        .map_err(|reason| GraphError::Unknown(format!("tensor {uid}: data_type: {reason}")))?;
    Ok(TensorDef {
        uid: TensorUid(uid),
        name: tensor.name().unwrap_or_default().to_string(),
        data_type,
        dims: tensor.dims().into_iter().flatten().collect(),
        strides: tensor.strides().into_iter().flatten().collect(),
        is_virtual: tensor.virtual_(),
        value: value(tensor)?,
        is_runtime_pass_by_value: tensor.is_runtime_pass_by_value(),
        ragged: tensor
            .ragged_offset_tensor_uid()
            .map(|uid| Ragged { offset: TensorUid(uid), multiplier: tensor.ragged_offset_multiplier() }),
        alignment: tensor.alignment(),
    })
}

/// The vtable slot of `TensorAttributes.value`, after `value_type`.
pub(crate) const VALUE_SLOT: u16 = fb::TensorAttributes::VT_VALUE_TYPE + 2;

/// Follows the value slot, which the verifier passed over: an offset to a scalar, not to a table.
fn value(tensor: fb::TensorAttributes<'_>) -> Result<Option<TensorValue>, GraphError> {
    let kind = tensor.value_type();
    if kind == 0 {
        return Ok(None);
    }
    let uid = tensor.uid();
    let table = tensor._tab;
    let field = match table.vtable().get(VALUE_SLOT) {
        0 => {
            return Err(GraphError::Malformed(format!("tensor {uid}: expected a value of kind {kind}, got none")));
        }
        offset => table.loc() + usize::from(offset),
    };
    let scalar = table
        .buf()
        .get(field..)
        .and_then(|rest| rest.first_chunk::<4>())
        .and_then(|offset| table.buf().get(field + u32::from_le_bytes(*offset) as usize..))
        .unwrap_or_default();
    macro_rules! scalar {
        ($type:ty) => {
            scalar.first_chunk().map(|bytes| <$type>::from_le_bytes(*bytes))
        };
    }
    let value = match kind {
        1 => scalar!(f32).map(TensorValue::Float32),
        2 => scalar!(f32).map(TensorValue::Float16),
        3 => scalar!(f32).map(TensorValue::BFloat16),
        4 => scalar!(u8).map(TensorValue::Float8),
        5 => scalar!(i32).map(TensorValue::Int32),
        6 => scalar!(f64).map(TensorValue::Float64),
        7 => scalar!(i64).map(TensorValue::Int64),
        8 => scalar!(u8).map(|byte| TensorValue::Bool(byte != 0)),
        other => return Err(GraphError::Unknown(format!("tensor {uid}: value of kind {other}"))),
    };
    match value {
        Some(value) => Ok(Some(value)),
        None => {
            Err(GraphError::Malformed(format!("tensor {uid}: the value lies outside the {} bytes", table.buf().len())))
        }
    }
}
