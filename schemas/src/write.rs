//! Serialization: from a description to bytes.

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};

use crate::field::Field;
use crate::generated as fb;
use crate::read::VALUE_SLOT;
use crate::{DEFAULT_ALIGNMENT, GraphDef, Node, TensorDef, TensorValue};

/// Bytes that a tensor or a node takes, some of them less.
const ROOM: usize = 192;

impl GraphDef {
    /// The description as a FlatBuffer (no size prefix, no file identifier).
    pub fn to_bytes(&self) -> Vec<u8> {
        self.written(true)
    }

    /// The description without the names of graph, nodes and tensors: graphs of equal structure are equal bytes.
    pub fn to_bytes_without_names(&self) -> Vec<u8> {
        self.written(false)
    }

    fn written(&self, named: bool) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::with_capacity(1024 + ROOM * (self.tensors.len() + self.nodes.len()));
        let tensors: Vec<_> = self.tensors.iter().map(|t| tensor(&mut fbb, t, named)).collect();
        let nodes: Vec<_> = self.nodes.iter().map(|n| node(&mut fbb, n, named)).collect();
        let version =
            self.min_required_engine_api_version.map(|v| fb::EngineApiVersion::new(v.major, v.minor, v.patch));
        let id = self.id.map(|bytes| fb::Uuid::new(&bytes));
        let args = fb::GraphArgs {
            name: name(&mut fbb, &self.name, named),
            compute_data_type: self.compute_data_type.write(&mut fbb),
            intermediate_data_type: self.intermediate_data_type.write(&mut fbb),
            io_data_type: self.io_data_type.write(&mut fbb),
            tensors: tables(&mut fbb, &tensors),
            nodes: tables(&mut fbb, &nodes),
            preferred_engine_id: self.preferred_engine_id,
            is_override_shape_enabled: self.is_override_shape_enabled,
            min_required_engine_api_version: version.as_ref(),
            id: id.as_ref(),
        };
        let graph = fb::Graph::create(&mut fbb, &args);
        finish(fbb, graph, None)
    }
}

pub(crate) fn finish<T>(mut fbb: FlatBufferBuilder<'_>, root: WIPOffset<T>, identifier: Option<&str>) -> Vec<u8> {
    fbb.finish(root, identifier);
    fbb.finished_data().to_vec()
}

/// A list of tables or texts; empty ones are left out, as hipDNN's own writers do.
pub(crate) fn tables<'b, T>(
    fbb: &mut FlatBufferBuilder<'b>,
    tables: &[WIPOffset<T>],
) -> Option<WIPOffset<Vector<'b, ForwardsUOffset<T>>>> {
    (!tables.is_empty()).then(|| fbb.create_vector(tables))
}

/// A name, if names are written; an empty one is left out.
fn name<'b>(fbb: &mut FlatBufferBuilder<'b>, name: &str, named: bool) -> Option<WIPOffset<&'b str>> {
    (named && !name.is_empty()).then(|| fbb.create_string(name))
}

fn node<'b>(fbb: &mut FlatBufferBuilder<'b>, node: &Node, named: bool) -> WIPOffset<fb::Node<'b>> {
    let (attributes_type, attributes) = node.operation.write(fbb);
    let args = fb::NodeArgs {
        name: name(fbb, &node.name, named),
        compute_data_type: node.compute_data_type.write(fbb),
        attributes_type,
        attributes: Some(attributes),
    };
    fb::Node::create(fbb, &args)
}

/// Written slot by slot: the generated writer does not know the slot of the value (see `fbs/tensor.fbs`).
fn tensor<'b>(fbb: &mut FlatBufferBuilder<'b>, tensor: &TensorDef, named: bool) -> WIPOffset<fb::TensorAttributes<'b>> {
    use fb::TensorAttributes as Slot;
    let name = name(fbb, &tensor.name, named);
    let strides = tensor.strides.write(fbb);
    let dims = tensor.dims.write(fbb);
    // A struct written alone is its bytes; `push` aligns it, and the slot holds the offset to it.
    let value = tensor.value.map(|value| match value {
        TensorValue::Float32(v) => (1u8, fbb.push(v).value()),
        TensorValue::Float16(v) => (2, fbb.push(v).value()),
        TensorValue::BFloat16(v) => (3, fbb.push(v).value()),
        TensorValue::Float8(v) => (4, fbb.push(v).value()),
        TensorValue::Int32(v) => (5, fbb.push(v).value()),
        TensorValue::Float64(v) => (6, fbb.push(v).value()),
        TensorValue::Int64(v) => (7, fbb.push(v).value()),
        TensorValue::Bool(v) => (8, fbb.push(u8::from(v)).value()),
    });
    // Wide fields first, so that little is lost to alignment.
    let start = fbb.start_table();
    fbb.push_slot(Slot::VT_UID, tensor.uid.0, 0);
    if let Some(ragged) = tensor.ragged {
        fbb.push_slot_always(Slot::VT_RAGGED_OFFSET_TENSOR_UID, ragged.offset.0);
        fbb.push_slot(Slot::VT_RAGGED_OFFSET_MULTIPLIER, ragged.multiplier, 1);
    }
    fbb.push_slot(Slot::VT_ALIGNMENT, tensor.alignment, DEFAULT_ALIGNMENT);
    if let Some(name) = name {
        fbb.push_slot_always(Slot::VT_NAME, name);
    }
    if let Some(strides) = strides {
        fbb.push_slot_always(Slot::VT_STRIDES, strides);
    }
    if let Some(dims) = dims {
        fbb.push_slot_always(Slot::VT_DIMS, dims);
    }
    if let Some((kind, offset)) = value {
        fbb.push_slot_always(VALUE_SLOT, WIPOffset::<flatbuffers::UnionWIPOffset>::new(offset));
        fbb.push_slot_always(Slot::VT_VALUE_TYPE, kind);
    }
    fbb.push_slot(Slot::VT_DATA_TYPE, tensor.data_type.wire(), 0);
    fbb.push_slot(Slot::VT_VIRTUAL_, tensor.is_virtual, false);
    fbb.push_slot(Slot::VT_IS_RUNTIME_PASS_BY_VALUE, tensor.is_runtime_pass_by_value, false);
    let end = fbb.end_table(start);
    WIPOffset::new(end.value())
}
