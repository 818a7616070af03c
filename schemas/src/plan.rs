//! Containers in which a host stores plans.

use flatbuffers::FlatBufferBuilder;

use crate::field::Field;
use crate::generated as fb;
use crate::read::root;
use crate::write::finish;
use crate::{EngineConfig, GraphError, TensorUid};

/// A finalized plan as a host stores it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SerializedExecutionPlan {
    /// Version of the envelope.
    pub version: u32,
    /// The engine whose plan this is.
    pub engine_id: i64,
    /// Bytes of workspace that the plan needs.
    pub workspace_size: i64,
    /// The tensors that a caller supplies.
    pub tensor_uids: Vec<TensorUid>,
    /// Opaque data of the plugin.
    pub plugin_payload: Vec<u8>,
    /// True if shapes may be overridden at execution.
    pub is_override_shape_enabled: bool,
    /// Alignment of each tensor's address in bytes, in the order of the tensors; empty if it was not stored.
    pub tensor_alignments: Vec<i64>,
    /// The serialized [`EngineConfig`] of the plan, which hipDNN's earlier form holds. It is not written.
    pub engine_config: Vec<u8>,
}

impl SerializedExecutionPlan {
    /// Verifies and decodes either form that hipDNN has had.
    ///
    /// The earlier one is recognized by all of these: a list of bytes in the slot where the other has a flag of one
    /// byte, nothing in the slot after it, and a configuration of the plan's engine in the slot before it. A flag that
    /// is set is no offset to a list, since offsets to lists are multiples of four.
    ///
    /// # Errors
    /// If the bytes are a serialized plan in neither form.
    pub fn from_bytes(bytes: &[u8]) -> Result<SerializedExecutionPlan, GraphError> {
        if let Some(earlier) = earlier(bytes) {
            return Ok(earlier);
        }
        let plan = root::<fb::SerializedExecutionPlan>(bytes)?;
        let flag = slot(plan._tab, fb::SerializedExecutionPlan::VT_IS_OVERRIDE_SHAPE_ENABLED)
            .and_then(|at| bytes.get(at))
            .copied()
            .unwrap_or_default();
        if flag > 1 {
            let expected = "a flag, or a list of bytes beside a configuration of the plan's engine";
            return Err(GraphError::Malformed(format!("slot 5 of a plan: expected {expected}, got {flag}")));
        }
        let tensor_uids: Vec<_> = plan.tensor_uids().into_iter().flatten().map(TensorUid).collect();
        let tensor_alignments: Vec<_> = plan.tensor_alignments().into_iter().flatten().collect();
        if !tensor_alignments.is_empty() && tensor_alignments.len() != tensor_uids.len() {
            let (expected, got) = (tensor_uids.len(), tensor_alignments.len());
            return Err(GraphError::Malformed(format!(
                "expected an alignment for each of {expected} tensors, got {got}"
            )));
        }
        if let Some(alignment) = tensor_alignments.iter().find(|alignment| **alignment < 1) {
            return Err(GraphError::Malformed(format!("expected an alignment of at least 1 byte, got {alignment}")));
        }
        Ok(SerializedExecutionPlan {
            version: plan.version(),
            engine_id: plan.engine_id(),
            workspace_size: plan.workspace_size(),
            tensor_uids,
            plugin_payload: blob(plan.plugin_payload()),
            is_override_shape_enabled: flag == 1,
            tensor_alignments,
            engine_config: Vec::new(),
        })
    }

    /// As a FlatBuffer of hipDNN's newest form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let args = fb::SerializedExecutionPlanArgs {
            version: self.version,
            engine_id: self.engine_id,
            workspace_size: self.workspace_size,
            tensor_uids: self.tensor_uids.write(&mut fbb),
            plugin_payload: self.plugin_payload.write(&mut fbb),
            is_override_shape_enabled: self.is_override_shape_enabled,
            tensor_alignments: self.tensor_alignments.write(&mut fbb),
        };
        let plan = fb::SerializedExecutionPlan::create(&mut fbb, &args);
        finish(fbb, plan, None)
    }
}

/// Position of a table's slot in the buffer, if it is there.
fn slot(table: flatbuffers::Table<'_>, slot: u16) -> Option<usize> {
    match table.vtable().get(slot) {
        0 => None,
        offset => Some(table.loc() + usize::from(offset)),
    }
}

/// The plan, if the bytes are one in hipDNN's earlier form.
fn earlier(bytes: &[u8]) -> Option<SerializedExecutionPlan> {
    let plan = root::<fb::EarlierExecutionPlan>(bytes).ok()?;
    let payload = plan.plugin_payload().filter(|payload| !payload.is_empty())?;
    let is_newest = slot(plan._tab, fb::SerializedExecutionPlan::VT_TENSOR_ALIGNMENTS).is_some();
    let engine_config = blob(plan.engine_config());
    let is_config = || EngineConfig::from_bytes(&engine_config).is_ok_and(|c| c.engine_id == plan.engine_id());
    if is_newest || !(engine_config.is_empty() || is_config()) {
        return None;
    }
    Some(SerializedExecutionPlan {
        version: plan.version(),
        engine_id: plan.engine_id(),
        workspace_size: plan.workspace_size(),
        tensor_uids: plan.tensor_uids().into_iter().flatten().map(TensorUid).collect(),
        plugin_payload: payload.bytes().to_vec(),
        is_override_shape_enabled: false,
        tensor_alignments: Vec::new(),
        engine_config,
    })
}

/// A graph and, if there is one, the plan made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerializedGraphAndPlan {
    /// A serialized graph.
    pub graph: Vec<u8>,
    /// A [`SerializedExecutionPlan`]; `None` for the graph alone.
    pub plan: Option<Vec<u8>>,
}

impl SerializedGraphAndPlan {
    /// The file identifier that stands at bytes 4 to 8.
    pub const IDENTIFIER: &'static str = "HDGP";

    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the identifier is missing, or the bytes are not this container.
    pub fn from_bytes(bytes: &[u8]) -> Result<SerializedGraphAndPlan, GraphError> {
        if content_kind(bytes) != ContentKind::GraphAndPlan {
            let came = String::from_utf8_lossy(bytes.get(4..8).unwrap_or_default()).into_owned();
            let wanted = Self::IDENTIFIER;
            return Err(GraphError::Malformed(format!("expected the file identifier {wanted:?}, got {came:?}")));
        }
        let container = root::<fb::SerializedGraphAndPlan>(bytes)?;
        Ok(SerializedGraphAndPlan {
            graph: blob(container.graph_blob()),
            plan: container.plan_blob().map(|plan| plan.bytes().to_vec()).filter(|plan| !plan.is_empty()),
        })
    }

    /// As a FlatBuffer with its identifier.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let args = fb::SerializedGraphAndPlanArgs {
            graph_blob: self.graph.write(&mut fbb),
            plan_blob: self.plan.as_ref().and_then(|plan| plan.write(&mut fbb)),
        };
        let container = fb::SerializedGraphAndPlan::create(&mut fbb, &args);
        finish(fbb, container, Some(Self::IDENTIFIER))
    }
}

fn blob(vector: Option<flatbuffers::Vector<'_, u8>>) -> Vec<u8> {
    vector.map(|vector| vector.bytes().to_vec()).unwrap_or_default()
}

/// Kind of serialized bytes, as far as their identifier tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// A [`SerializedGraphAndPlan`].
    GraphAndPlan,
    /// Anything without that identifier: a bare graph, or a bare plan.
    Bare,
}

/// Looks for the identifier of [`SerializedGraphAndPlan`]; verifies nothing.
pub fn content_kind(bytes: &[u8]) -> ContentKind {
    if bytes.get(4..8) == Some(SerializedGraphAndPlan::IDENTIFIER.as_bytes()) {
        ContentKind::GraphAndPlan
    } else {
        ContentKind::Bare
    }
}
