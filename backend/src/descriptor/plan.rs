//! Execution plans: built, stored, restored, executed.

use std::sync::Arc;

use hipdnn_schemas::{GraphDef, SerializedExecutionPlan, TensorUid};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use super::staged::Staged;
use super::{EngineConfig, Object, VariantPack, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::handle;
use crate::plugins::Resources;
use crate::plugins::resources::Context;

#[derive(Clone, Default)]
struct Draft {
    config: Option<Arc<EngineConfig>>,
}

/// What a plan is once finalised.
pub(crate) struct FinishedPlan {
    /// A restored plan has none.
    config: Option<Arc<EngineConfig>>,
    /// What the plan was configured with, serialised.
    config_bytes: Vec<u8>,
    context: Context,
    workspace_size: i64,
    uids: Vec<i64>,
    /// Uid and alignment of the tensors that need more than one byte's, ascending by uid.
    alignments: Vec<(i64, usize)>,
    is_override_shape_enabled: bool,
}

/// `HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Plan(Staged<Draft, FinishedPlan>);

/// The version of the container that plans are stored in.
const CONTAINER_VERSION: u32 = 1;

impl Plan {
    /// The finalised plan of a container.
    pub(crate) fn restored(resources: &Arc<Resources>, bytes: &[u8]) -> Result<Plan> {
        let stored = SerializedExecutionPlan::from_bytes(Buffer::new(bytes).bytes())?;
        if stored.version != CONTAINER_VERSION {
            return Err(Error::not_supported(format!(
                "wanted a stored plan of version {CONTAINER_VERSION}, came {}",
                stored.version
            )));
        }
        let context = resources.restore_context(stored.engine_id, &Buffer::new(&stored.plugin_payload))?;
        let workspace_size = context.workspace_size()?;
        Ok(Plan(Staged::finished_from(FinishedPlan {
            config: None,
            config_bytes: stored.engine_config,
            context,
            workspace_size,
            uids: stored.tensor_uids.into_iter().map(|uid| uid.0).collect(),
            // The container does not say.
            alignments: Vec::new(),
            is_override_shape_enabled: false,
        })))
    }

    /// The plan in a container that [`Plan::restored`] reads.
    pub(crate) fn serialized(&self) -> Result<Vec<u8>> {
        let finished = self.0.read()?;
        let stored = SerializedExecutionPlan {
            version: CONTAINER_VERSION,
            engine_id: finished.context.engine,
            workspace_size: finished.workspace_size,
            tensor_uids: finished.uids.iter().map(|&uid| TensorUid(uid)).collect(),
            engine_config: finished.config_bytes.clone(),
            plugin_payload: finished.context.serialize()?,
        };
        Ok(stored.to_bytes())
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::EXECUTION_PLAN_ENGINE_CONFIG => {
                let config = elements.descriptor()?.engine_config()?;
                config.referred()?;
                draft.config = Some(config);
            }
            // The handle that matters is the graph's, and at execution the executing one.
            AttributeName::EXECUTION_PLAN_HANDLE => {
                handle::find(elements.handle()?)?;
            }
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let finished = self.0.read()?;
        match name {
            AttributeName::EXECUTION_PLAN_WORKSPACE_SIZE => {
                output.strict_scalar(AttributeType::INT64, finished.workspace_size)
            }
            AttributeName::EXECUTION_PLAN_ENGINE_CONFIG => {
                let config = finished.config.as_ref();
                let config = config.ok_or_else(|| Error::null("a restored plan has no engine configuration"))?;
                output.descriptor(Object::EngineConfig(Arc::clone(config)))
            }
            AttributeName::EXECUTION_PLAN_TENSOR_UIDS_EXT => output.whole_vector(AttributeType::INT64, &finished.uids),
            AttributeName::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT => {
                output.scalar(AttributeType::INT64, finished.context.engine)
            }
            AttributeName::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT => {
                output.scalar(AttributeType::BOOLEAN, u8::from(finished.is_override_shape_enabled))
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let Draft { config } = self.0.draft().clone();
        let config = required(config, AttributeName::EXECUTION_PLAN_ENGINE_CONFIG)?;
        let configured = config.referred()?;
        let engine = configured.engine();
        let graph = engine.graph();
        let context = graph.resources.create_context(engine.id, &configured.bytes, &graph.bytes)?;
        let finished = FinishedPlan {
            workspace_size: context.workspace_size()?,
            context,
            uids: graph.def.tensors.iter().map(|tensor| tensor.uid.0).collect(),
            alignments: alignments(&graph.def),
            is_override_shape_enabled: graph.def.is_override_shape_enabled,
            config_bytes: configured.bytes.bytes().to_vec(),
            config: Some(config),
        };
        self.0.finish(finished)
    }

    /// Runs the plan with the plugins and on the stream of `resources`' handle.
    ///
    /// # Safety
    /// As [`Resources::execute`]; the pointers are those of `pack`.
    pub(crate) unsafe fn execute(&self, resources: &Resources, pack: &VariantPack) -> Result<()> {
        let plan = self.0.finished().ok_or_else(|| Error::bad_param("the execution plan is not finalised"))?;
        let pack = pack.finished().ok_or_else(|| Error::bad_param("the variant pack is not finalised"))?;
        check_alignment(pack.buffers(), &plan.alignments)?;
        if pack.overrides().is_some() && !plan.is_override_shape_enabled {
            return Err(Error::not_supported("the plan's graph does not allow overridden shapes"));
        }
        // SAFETY: the caller's duties are the same.
        unsafe { resources.execute(&plan.context, pack.workspace(), pack.buffers(), pack.overrides()) }
    }
}

/// Tensors whose address must be aligned; scalars are read from the host and owe nothing.
fn alignments(def: &GraphDef) -> Vec<(i64, usize)> {
    let mut alignments: Vec<(i64, usize)> = def
        .tensors
        .iter()
        .filter(|tensor| tensor.alignment > 1 && tensor.value.is_none() && !tensor.is_runtime_pass_by_value)
        .map(|tensor| (tensor.uid.0, tensor.alignment as usize))
        .collect();
    alignments.sort_unstable();
    alignments
}

fn check_alignment(buffers: &[DeviceBuffer], alignments: &[(i64, usize)]) -> Result<()> {
    for buffer in buffers {
        let Ok(index) = alignments.binary_search_by_key(&buffer.uid, |(uid, _)| *uid) else { continue };
        let alignment = alignments[index].1;
        if !(buffer.ptr as usize).is_multiple_of(alignment) {
            return Err(Error::bad_param(format!(
                "tensor {}: wanted an address aligned to {alignment} bytes, came {:p}",
                buffer.uid, buffer.ptr
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::{DataType, TensorDef, TensorValue};

    #[test]
    fn addresses_are_held_to_the_recorded_alignment() {
        let mut wide = TensorDef::new(5, DataType::Float, &[4]);
        wide.alignment = 64;
        let mut loose = TensorDef::new(-1, DataType::Float, &[4]);
        loose.alignment = 1;
        let mut runtime = TensorDef::new(8, DataType::Float, &[1]);
        runtime.is_runtime_pass_by_value = true;
        let fixed = TensorDef::new(9, DataType::Float, &[1]).with_value(TensorValue::Float32(1.0));
        let default = TensorDef::new(2, DataType::Float, &[4]);
        let def = GraphDef { tensors: vec![wide, loose, runtime, fixed, default], ..GraphDef::default() };
        let alignments = alignments(&def);
        for (uid, address, fits) in [
            (5, 64usize, true),
            (5, 48, false),
            (5, 0, true),
            (-1, 3, true),
            (8, 4, true),
            (9, 4, true),
            (2, 48, true),
            (2, 8, false),
            (77, 3, true),
        ] {
            let buffer = DeviceBuffer { uid, ptr: address as *mut _ };
            assert_eq!(check_alignment(&[buffer], &alignments).is_ok(), fits, "tensor {uid} at {address}");
        }
    }
}
