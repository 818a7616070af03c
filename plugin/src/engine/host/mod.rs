//! The CPU engine: serves graphs in host memory, on machines without a GPU.
//!
//! [`applicability`] turns a graph into works or says why not, [`fuse`] rewrites them, [`blueprint`] gives every operand a
//! place and chooses kernels, [`plan`] runs them. An execution computes in the calling thread and its pool, and is done
//! when the call returns: a handle's stream means nothing to it.

pub mod activation;
pub mod applicability;
pub mod blueprint;
pub mod convert;
pub mod convolution;
pub mod fuse;
pub mod isa;
pub mod lent;
pub mod nodes;
mod os_thread;
pub mod plan;
pub mod pointwise;
pub mod resources;
pub mod scratch;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod threads;

use std::ffi::CStr;

use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use self::applicability::Work;
use self::blueprint::Blueprint;
use self::isa::Isa;
use self::plan::HostPlan;
use self::resources::Resources;
use self::settings::Settings;
use super::payload::{self, Payload};
use super::{Applicable, Declined, Engine, Plan, Site, engine_id};
use crate::device::{self, HostEngine};
use crate::error::Error;

/// `HOST_RS_ENGINE`.
#[derive(Debug)]
pub struct Host;

/// The one host engine.
pub const HOST: Host = Host;

/// A graph that the host engine takes.
struct HostGraph<'g> {
    graph: &'g Graph,
    works: Vec<Work>,
}

impl Engine for Host {
    fn name(&self) -> &'static CStr {
        c"HOST_RS_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(Resources::get())
    }

    fn applicable<'g>(&self, graph: &'g Graph, site: Site) -> Result<Box<dyn Applicable + 'g>, Declined> {
        Ok(Box::new(HostGraph::new(graph, site)?))
    }

    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
        payload.expect_platform(&plan::platform(Isa::best()))?;
        let (graph, config) = (payload.graph()?, payload.config()?);
        let host = HostGraph::new(&graph, site).map_err(|reason| payload::declined(self, &reason))?;
        let settings = Settings::new(&config, &graph)?;
        let blueprint = host.blueprint(&settings)?;
        payload.expect_description(&blueprint.to_string())?;
        Ok(Box::new(build(blueprint, &settings)?))
    }
}

/// A plan on the engine's threads, or on those that are lent.
fn build(blueprint: Blueprint, settings: &Settings) -> Result<HostPlan, Error> {
    let resources = Resources::get();
    let pool = if settings.pool { resources.pool(settings.threads) } else { resources.lent_pool(settings.threads) };
    HostPlan::with_pool(blueprint, pool, resources)
}

impl<'g> HostGraph<'g> {
    fn new(graph: &'g Graph, site: Site) -> Result<HostGraph<'g>, Declined> {
        site.check(MemoryKind::HOST)?;
        match device::host_engine() {
            HostEngine::On => Ok(HostGraph { graph, works: applicability::lower(graph)? }),
            // Tensors that no engine for GPUs could have are not kept for one.
            HostEngine::Gpus(_) if site.memory == MemoryKind::HOST => {
                Ok(HostGraph { graph, works: applicability::lower(graph)? })
            }
            off => Err(Declined::Unavailable(off.to_string())),
        }
    }

    fn blueprint(&self, settings: &Settings) -> Result<Blueprint, Error> {
        Blueprint::new(self.graph, &fuse::fuse(self.graph, self.works.clone(), settings.fuse), settings)
    }
}

impl Applicable for HostGraph<'_> {
    fn details(&self) -> EngineDetails {
        EngineDetails {
            engine_id: engine_id(&HOST),
            knobs: Settings::describe(),
            behavior_notes: vec![BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION.0],
            name: Some(HOST.name().to_string_lossy().into_owned()),
        }
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(Settings::new(config, self.graph)?.settled(config))
    }

    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error> {
        Ok(self.blueprint(&Settings::new(config, self.graph)?)?.workspace_bytes())
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        let settings = Settings::new(config, self.graph)?;
        Ok(Box::new(build(self.blueprint(&settings)?, &settings)?))
    }
}
