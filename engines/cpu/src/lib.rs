//! The CPU engine: serves graphs in host memory, on machines without a GPU.
//!
//! [`applicability`] turns a graph into works or gives the reason why not, [`layout`] chooses the layouts of
//! intermediates, [`fuse`] rewrites the works, [`blueprint`] gives every operand a place and chooses kernels, [`plan`]
//! runs them. An execution computes in the calling thread and its pool, and is done when the call returns: a handle's
//! stream means nothing to it.

pub mod applicability;
pub mod blueprint;
pub mod fuse;
pub mod geometry;
pub mod layout;
pub mod nodes;
pub mod plan;
pub mod pointwise;
pub mod resources;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod work;

use std::ffi::CStr;

use hipdnn_cpu_kernels::isa::Isa;
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_core::payload::{self, Payload};
use hipdnn_engine_core::{Applicable, Declined, Engine, Plan, Site, engine_id};
use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use self::blueprint::Blueprint;
use self::plan::CpuPlan;
use self::settings::Settings;
use self::work::Work;

/// The engine `HIPDNN_RS_CPU_ENGINE`.
#[derive(Debug)]
pub struct CpuEngine;

/// Value of the CPU engine.
pub const CPU_ENGINE: CpuEngine = CpuEngine;

/// A graph that the CPU engine takes.
struct CpuGraph<'g> {
    graph: &'g Graph,
    works: Vec<Work>,
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static CStr {
        c"HIPDNN_RS_CPU_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(resources::get())
    }

    fn applicable<'g>(&self, graph: &'g Graph, site: Site) -> Result<Box<dyn Applicable + 'g>, Declined> {
        Ok(Box::new(CpuGraph::new(graph, site)?))
    }

    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
        payload.expect_platform(&plan::platform(Isa::best()))?;
        let (graph, config) = (payload.graph()?, payload.config()?);
        let host = CpuGraph::new(&graph, site).map_err(|reason| payload::declined(self, &reason))?;
        let settings = Settings::new(&config, &graph)?;
        let blueprint = host.blueprint(&settings)?;
        payload.expect_description(&blueprint.to_string())?;
        Ok(Box::new(build(blueprint, &settings)?))
    }
}

/// Makes a plan on the engine's threads, or on those that are lent.
fn build(blueprint: Blueprint, settings: &Settings) -> Result<CpuPlan, Error> {
    let resources = resources::get();
    let pool = if settings.pool { resources.pool(settings.threads) } else { resources.lent_pool(settings.threads) };
    CpuPlan::with_pool(blueprint, pool, resources)
}

impl<'g> CpuGraph<'g> {
    fn new(graph: &'g Graph, site: Site) -> Result<CpuGraph<'g>, Declined> {
        site.check(MemoryKind::HOST)?;
        Ok(CpuGraph { graph, works: applicability::lower(graph)? })
    }

    fn blueprint(&self, settings: &Settings) -> Result<Blueprint, Error> {
        let assigned = if settings.layout { self.assigned()? } else { None };
        let (graph, works) = match &assigned {
            Some((graph, works)) => (graph, works),
            None => (self.graph, &self.works),
        };
        Blueprint::new(graph, &fuse::fuse(graph, works.clone(), settings), settings)
    }

    /// Assigns layouts to intermediates: the graph and its works, where other layouts are faster.
    fn assigned(&self) -> Result<Option<(Graph, Vec<Work>)>, Error> {
        let defect = |reason: String| Error::new(ErrorKind::Internal, format!("layout assignment: {reason}"));
        let Some(graph) = layout::assign(self.graph).map_err(|error| defect(error.to_string()))? else {
            return Ok(None);
        };
        let works = applicability::lower(&graph).map_err(|declined| defect(declined.to_string()))?;
        Ok(Some((graph, works)))
    }
}

impl Applicable for CpuGraph<'_> {
    fn details(&self) -> EngineDetails {
        EngineDetails {
            engine_id: engine_id(&CPU_ENGINE),
            knobs: Settings::describe(),
            behavior_notes: vec![BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION.0],
            name: Some(CPU_ENGINE.name().to_string_lossy().into_owned()),
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
