//! The CPU engine: serves graphs in host memory, on machines without a GPU.
//!
//! [`applicability`] turns a graph into works or gives the reason why not, [`elements`] chooses the element types of
//! intermediates and [`layout`] their layouts, [`fuse`] rewrites the works, [`schedule`] gives every operand a place and
//! chooses kernels, [`plan`] runs them. An execution computes in the calling thread and its pool, and is done when the call returns: a handle's
//! stream means nothing to it.

pub mod applicability;
pub mod elements;
pub mod fuse;
pub mod geometry;
pub mod layout;
pub mod nodes;
pub mod plan;
pub mod resources;
mod rows;
pub mod schedule;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod work;

use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hipdnn_cpu_simd::isa::Isa;
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_core::payload::{self, Payload};
use hipdnn_engine_core::{Applicable, Declined, Engine, Plan, Site, Workspace, engine_id};
use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use self::plan::CpuPlan;
use self::schedule::Schedule;
use self::settings::Settings;
use self::work::Work;

/// The engine `HIPDNN_RS_CPU_ENGINE`.
#[derive(Debug)]
pub struct CpuEngine;

/// Value of the CPU engine.
pub const CPU_ENGINE: CpuEngine = CpuEngine;

/// A graph that the CPU engine takes.
struct CpuGraph {
    graph: Arc<Graph>,
    works: Vec<Work>,
    /// The graph and its works with element types and layouts of intermediates assigned, where others are faster.
    assigned: OnceLock<Option<(Graph, Vec<Work>)>>,
    /// The last schedule, until a plan is made of it: hosts ask for the workspace first.
    schedule: Mutex<Option<(Settings, Schedule)>>,
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static CStr {
        c"HIPDNN_RS_CPU_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(resources::get())
    }

    fn applicable(&self, graph: &Arc<Graph>, site: Site) -> Result<Arc<dyn Applicable>, Declined> {
        Ok(Arc::new(CpuGraph::new(graph.clone(), site)?))
    }

    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
        payload.expect_platform(&plan::platform(Isa::best()))?;
        let (graph, config) = (payload.graph()?, payload.config()?);
        let host = CpuGraph::new(Arc::new(graph), site).map_err(|reason| payload::declined(self, &reason))?;
        let settings = Settings::new(&config, &host.graph)?;
        let schedule = host.schedule(&settings)?;
        payload.expect_description(&schedule.to_string())?;
        Ok(Box::new(build(schedule, &settings)?))
    }

    fn workspace(&self, bytes: usize, _site: Site) -> Result<Box<dyn Workspace>, Error> {
        Ok(Box::new(resources::OwnWorkspace::new(bytes)?))
    }
}

/// Makes a plan on the engine's threads, or on those that are lent.
fn build(schedule: Schedule, settings: &Settings) -> Result<CpuPlan, Error> {
    let resources = resources::get();
    let pool = if settings.pool { resources.pool(settings.threads) } else { resources.lent_pool(settings.threads) };
    CpuPlan::with_pool(schedule, pool, resources)
}

impl CpuGraph {
    fn new(graph: Arc<Graph>, site: Site) -> Result<CpuGraph, Declined> {
        site.check(MemoryKind::HOST)?;
        let works = applicability::lower(&graph)?;
        Ok(CpuGraph { graph, works, assigned: OnceLock::new(), schedule: Mutex::default() })
    }

    /// The last schedule, if it is of these settings, or a new one.
    fn take_blueprint(&self, settings: &Settings) -> Result<Schedule, Error> {
        let last = self.schedule.lock().unwrap_or_else(PoisonError::into_inner).take();
        match last {
            Some((of, schedule)) if of == *settings => Ok(schedule),
            _ => self.schedule(settings),
        }
    }

    fn schedule(&self, settings: &Settings) -> Result<Schedule, Error> {
        let (graph, works) = match if settings.layout { self.assigned()? } else { None } {
            Some((graph, works)) => (graph, works),
            None => (&*self.graph, &self.works),
        };
        Schedule::new(graph, &fuse::fuse(graph, works.clone(), settings), settings)
    }

    /// Assigns element types and layouts to intermediates.
    fn assigned(&self) -> Result<Option<&(Graph, Vec<Work>)>, Error> {
        if let Some(assigned) = self.assigned.get() {
            return Ok(assigned.as_ref());
        }
        let defect =
            |of: &str, reason: String| Error::new(ErrorKind::Internal, format!("assignment of {of}: {reason}"));
        let types = elements::assign(&self.graph, Isa::best()).map_err(|error| defect("types", error.to_string()))?;
        // Nodes that take no other types keep theirs, and with them the graph.
        let types = types.and_then(|graph| applicability::lower(&graph).ok().map(|works| (graph, works)));
        let graph = types.as_ref().map_or(&*self.graph, |(graph, _)| graph);
        let assigned = match layout::assign(graph).map_err(|error| defect("layouts", error.to_string()))? {
            None => types,
            Some(graph) => {
                let works = applicability::lower(&graph).map_err(|declined| defect("layouts", declined.to_string()))?;
                Some((graph, works))
            }
        };
        Ok(self.assigned.get_or_init(|| assigned).as_ref())
    }
}

impl Applicable for CpuGraph {
    fn details(&self) -> EngineDetails {
        EngineDetails {
            engine_id: engine_id(&CPU_ENGINE),
            knobs: Settings::describe(),
            behavior_notes: vec![BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION.0],
            name: Some(CPU_ENGINE.name().to_string_lossy().into_owned()),
        }
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(Settings::new(config, &self.graph)?.settled(config))
    }

    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error> {
        let settings = Settings::new(config, &self.graph)?;
        let schedule = self.take_blueprint(&settings)?;
        let bytes = schedule.workspace_bytes();
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Some((settings, schedule));
        Ok(bytes)
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        let settings = Settings::new(config, &self.graph)?;
        Ok(Box::new(build(self.take_blueprint(&settings)?, &settings)?))
    }
}
