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

use self::applicability::Work;
use self::blueprint::Blueprint;
use self::plan::HostPlan;
use self::resources::Resources;
use self::settings::Settings;
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
        site.check(MemoryKind::HOST)?;
        match device::host_engine() {
            HostEngine::On => Ok(Box::new(HostGraph { graph, works: applicability::lower(graph)? })),
            // Tensors that no engine for GPUs could have are not kept for one.
            HostEngine::Gpus(_) if site.memory == MemoryKind::HOST => {
                Ok(Box::new(HostGraph { graph, works: applicability::lower(graph)? }))
            }
            off => Err(Declined::Unavailable(off.to_string())),
        }
    }
}

impl HostGraph<'_> {
    fn blueprint(&self, settings: &Settings) -> Result<Blueprint, Error> {
        Blueprint::new(self.graph, &fuse::fuse(self.graph, self.works.clone(), settings.fuse), settings)
    }
}

impl Applicable for HostGraph<'_> {
    fn details(&self) -> EngineDetails {
        EngineDetails {
            engine_id: engine_id(&HOST),
            knobs: Settings::describe(),
            behavior_notes: Vec::new(),
            name: Some(HOST.name().to_string_lossy().into_owned()),
        }
    }

    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error> {
        Ok(self.blueprint(&Settings::new(config, self.graph)?)?.workspace_bytes())
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        let settings = Settings::new(config, self.graph)?;
        let (blueprint, resources) = (self.blueprint(&settings)?, Resources::get());
        let pool = if settings.pool { resources.pool(settings.threads) } else { resources.lent_pool(settings.threads) };
        Ok(Box::new(HostPlan::with_pool(blueprint, pool, resources)?))
    }
}
