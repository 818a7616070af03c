//! Execution plans: built, stored, restored, executed.

use std::sync::Arc;

use hipdnn_schemas::{SerializedExecutionPlan, TensorDef, TensorUid};
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

/// Finalized plan.
pub(crate) struct FinishedPlan {
    /// A restored plan has none.
    config: Option<Arc<EngineConfig>>,
    context: Context,
    workspace_size: i64,
    uids: Vec<i64>,
    alignments: Alignments,
    is_override_shape_enabled: bool,
}

/// `HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Plan(Staged<Draft, FinishedPlan>);

/// The version of the container that plans are stored in.
const CONTAINER_VERSION: u32 = 1;

impl Plan {
    /// The finalized plan of a container.
    pub(crate) fn restored(resources: &Arc<Resources>, bytes: &[u8]) -> Result<Plan> {
        let stored = SerializedExecutionPlan::from_bytes(Buffer::new(bytes).bytes())?;
        if stored.version != CONTAINER_VERSION {
            return Err(Error::not_supported(format!(
                "expected a stored plan of version {CONTAINER_VERSION}, got {}",
                stored.version
            )));
        }
        if stored.plugin_payload.is_empty() {
            return Err(Error::bad_param("the stored plan has no payload for the plugin"));
        }
        if stored.tensor_uids.is_empty() {
            return Err(Error::bad_param("the stored plan has no tensors"));
        }
        if stored.workspace_size < 0 {
            return Err(Error::bad_param(format!(
                "expected a workspace of at least 0 bytes, got {}",
                stored.workspace_size
            )));
        }
        let context = resources.restore_context(stored.engine_id, &Buffer::new(&stored.plugin_payload))?;
        let workspace_size = context.workspace_size()?;
        Ok(Plan(Staged::finished_from(FinishedPlan {
            config: None,
            context,
            workspace_size,
            // hipDNN's earlier container does not say, and nothing is held to what is not known.
            alignments: Alignments::new(stored.tensor_uids.iter().copied().zip(stored.tensor_alignments)),
            uids: stored.tensor_uids.into_iter().map(|uid| uid.0).collect(),
            is_override_shape_enabled: stored.is_override_shape_enabled,
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
            plugin_payload: finished.context.serialize()?,
            is_override_shape_enabled: finished.is_override_shape_enabled,
            tensor_alignments: finished.uids.iter().map(|&uid| finished.alignments.of(uid) as i64).collect(),
            ..SerializedExecutionPlan::default()
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
            alignments: Alignments::new(graph.def.tensors.iter().map(|tensor| (tensor.uid, owed_alignment(tensor)))),
            is_override_shape_enabled: graph.def.is_override_shape_enabled,
            config: Some(config),
        };
        self.0.finish(finished)
    }

    /// Runs the plan with the plugins and on the stream of `resources`' handle.
    ///
    /// # Safety
    /// As [`Resources::execute`]; the pointers are those of `pack`.
    pub(crate) unsafe fn execute(&self, resources: &Resources, pack: &VariantPack) -> Result<()> {
        let plan = self.0.finished().ok_or_else(|| Error::bad_param("the execution plan is not finalized"))?;
        let pack = pack.finished().ok_or_else(|| Error::bad_param("the variant pack is not finalized"))?;
        plan.alignments.check(pack.buffers(), pack.address_bits())?;
        if pack.overrides().is_some() && !plan.is_override_shape_enabled {
            return Err(Error::not_supported("the plan's graph does not allow overridden shapes"));
        }
        // SAFETY: the caller owes what `Resources::execute` asks, for the pointers of this pack.
        unsafe { resources.execute(&plan.context, pack.workspace(), pack.buffers(), pack.overrides()) }
    }
}

/// Bytes that a tensor's address must be a multiple of; scalars are read from the host and owe nothing.
fn owed_alignment(tensor: &TensorDef) -> i64 {
    if tensor.value.is_some() || tensor.is_runtime_pass_by_value { 1 } else { tensor.alignment }
}

/// Required alignments of a plan's tensors.
struct Alignments {
    /// Uid and bytes of the tensors that owe more than 1, ascending by uid.
    owed: Vec<(i64, usize)>,
    /// A multiple of them all, if they are powers of two.
    strictest: Option<usize>,
}

impl Alignments {
    fn new(tensors: impl Iterator<Item = (TensorUid, i64)>) -> Alignments {
        let mut owed: Vec<(i64, usize)> = tensors
            .filter(|(_, alignment)| *alignment > 1)
            .map(|(uid, alignment)| (uid.0, alignment as usize))
            .collect();
        owed.sort_unstable();
        let is_plain = owed.iter().all(|(_, alignment)| alignment.is_power_of_two());
        let strictest = is_plain.then(|| owed.iter().map(|(_, alignment)| *alignment).max().unwrap_or(1));
        Alignments { owed, strictest }
    }

    /// Bytes that a tensor's address must be a multiple of.
    fn of(&self, uid: i64) -> usize {
        self.owed.binary_search_by_key(&uid, |(uid, _)| *uid).map_or(1, |index| self.owed[index].1)
    }

    /// Checks the addresses of a pack; `bits` is the bitwise OR of all of them.
    fn check(&self, buffers: &[DeviceBuffer], bits: usize) -> Result<()> {
        // Most packs hold what the strictest tensor owes, which is one look at all of their addresses.
        if self.strictest.is_some_and(|strictest| bits.is_multiple_of(strictest)) {
            return Ok(());
        }
        for buffer in buffers {
            let alignment = self.of(buffer.uid);
            if !(buffer.ptr as usize).is_multiple_of(alignment) {
                return Err(Error::bad_param(format!(
                    "tensor {}: expected an address aligned to {alignment} bytes, got {:p}",
                    buffer.uid, buffer.ptr
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::{DataType, TensorValue};

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
        let tensors = [wide, loose, runtime, fixed, default];
        let alignments = Alignments::new(tensors.iter().map(|tensor| (tensor.uid, owed_alignment(tensor))));
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
            assert_eq!(alignments.check(&[buffer], address).is_ok(), fits, "tensor {uid} at {address}");
            // Whatever the others of the pack are.
            assert_eq!(alignments.check(&[buffer], usize::MAX).is_ok(), fits, "tensor {uid} at {address}");
        }
        let odd = Alignments::new([(TensorUid(1), 48), (TensorUid(2), 16)].into_iter());
        for (uid, address, fits) in [(1, 96usize, true), (1, 64, false), (2, 64, true), (2, 8, false)] {
            let buffer = DeviceBuffer { uid, ptr: address as *mut _ };
            assert_eq!(odd.check(&[buffer], address).is_ok(), fits, "tensor {uid} at {address}");
        }
    }
}
