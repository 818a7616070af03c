//! Containers in which a host stores plans.

use flatbuffers::FlatBufferBuilder;

use crate::field::Field;
use crate::generated as fb;
use crate::read::root;
use crate::write::finish;
use crate::{GraphError, TensorUid};

/// A finalised plan as a host stores it.
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
    /// The serialised [`EngineConfig`](crate::EngineConfig) that the plan was made with.
    pub engine_config: Vec<u8>,
    /// What only the plugin understands.
    pub plugin_payload: Vec<u8>,
}

impl SerializedExecutionPlan {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not a serialised plan.
    pub fn from_bytes(bytes: &[u8]) -> Result<SerializedExecutionPlan, GraphError> {
        let plan = root::<fb::SerializedExecutionPlan>(bytes)?;
        Ok(SerializedExecutionPlan {
            version: plan.version(),
            engine_id: plan.engine_id(),
            workspace_size: plan.workspace_size(),
            tensor_uids: plan.tensor_uids().into_iter().flatten().map(TensorUid).collect(),
            engine_config: blob(plan.engine_config()),
            plugin_payload: blob(plan.plugin_payload()),
        })
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let args = fb::SerializedExecutionPlanArgs {
            version: self.version,
            engine_id: self.engine_id,
            workspace_size: self.workspace_size,
            tensor_uids: self.tensor_uids.write(&mut fbb),
            engine_config: self.engine_config.write(&mut fbb),
            plugin_payload: self.plugin_payload.write(&mut fbb),
        };
        let plan = fb::SerializedExecutionPlan::create(&mut fbb, &args);
        finish(fbb, plan, None)
    }
}

/// A graph and, if there is one, the plan made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerializedGraphAndPlan {
    /// A serialised graph.
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
            return Err(GraphError::Malformed(format!("wanted the file identifier {wanted:?}, came {came:?}")));
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

/// What serialised bytes hold, as far as their identifier tells.
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
