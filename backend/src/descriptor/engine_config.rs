//! Engine configurations: an engine and the knobs set on it.

use std::sync::Arc;

use hipdnn_schemas as wire;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::engine::FinishedEngine;
use super::staged::Staged;
use super::{Engine, Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::buffer::Buffer;
use crate::error::Result;

#[derive(Clone, Default)]
struct Draft {
    engine: Option<Arc<Engine>>,
    knobs: Vec<(String, wire::KnobValue)>,
}

/// What a configuration is once finalised.
pub(crate) struct FinishedConfig {
    engine: Arc<Engine>,
    /// What plugins receive.
    pub(super) bytes: Buffer,
    workspace_size: i64,
}

impl FinishedConfig {
    pub(super) fn engine(&self) -> &FinishedEngine {
        self.engine.referred().expect("only finalised engines are taken")
    }
}

/// `HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct EngineConfig(Staged<Draft, FinishedConfig>);

impl EngineConfig {
    /// Gives an empty configuration its engine, as heuristics do.
    pub(super) fn fill(&self, engine: Arc<Engine>) -> Result<()> {
        self.0.edit()?.engine = Some(engine);
        Ok(())
    }

    pub(super) fn referred(&self) -> Result<&FinishedConfig> {
        self.0.referred("engine configuration")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::ENGINECFG_ENGINE => {
                let engine = elements.descriptor()?.engine()?;
                engine.referred()?;
                draft.engine = Some(engine);
            }
            AttributeName::ENGINECFG_KNOB_CHOICES => {
                let mut knobs = Vec::new();
                for object in elements.descriptors()? {
                    knobs.push(object.knob_choice()?.referred()?.clone());
                }
                draft.knobs = knobs;
            }
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let finished = self.0.read()?;
        match name {
            AttributeName::ENGINECFG_ENGINE => output.descriptor(Object::Engine(Arc::clone(&finished.engine))),
            AttributeName::ENGINECFG_WORKSPACE_SIZE => {
                output.strict_scalar(AttributeType::INT64, finished.workspace_size)
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let Draft { engine, knobs } = self.0.draft().clone();
        let engine = required(engine, AttributeName::ENGINECFG_ENGINE)?;
        let finished = engine.referred()?;
        let bytes = Buffer::new(&wire::EngineConfig { engine_id: finished.id, knobs }.to_bytes());
        let graph = finished.graph();
        let workspace_size = graph.resources.workspace_size(finished.id, &bytes, &graph.bytes)?;
        self.0.finish(FinishedConfig { engine, bytes, workspace_size })
    }
}
