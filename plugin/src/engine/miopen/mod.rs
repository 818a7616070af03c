//! The MIOpen engine: convolutions by libMIOpen on an AMD GPU, everything around them by kernels of our own.
//!
//! [`lower`] turns a graph into works or says why not, [`fuse`] rewrites them, [`arrange`] brings convolutions into forms
//! that MIOpen takes, and everything else to memory and strides, [`plan`] chooses, compiles and runs. Everything is chosen,
//! compiled and tried when the plan is built: an execution launches kernels on the handle's stream and does nothing else.

pub mod arrange;
pub mod choose;
pub mod convolution;
pub mod descriptor;
pub mod device;
mod folders;
pub mod follow;
pub mod formula;
pub mod fuse;
pub mod fused;
pub mod gpu;
pub mod group;
pub mod kernels;
pub mod lower;
pub mod nodes;
pub mod plan;
mod prepared;
pub mod record;
mod sample;
mod search;
pub mod settings;
pub mod shared;
pub mod store;
mod stored;
#[cfg(test)]
mod testing;
mod trial;

use std::ffi::CStr;
use std::sync::Arc;

use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use self::arrange::Arrangement;
use self::choose::supported;
use self::convolution::ConvolutionProblem;
use self::device::Device;
use self::lower::Work;
use self::plan::{Choices, MiopenPlan, kernels_can_be_had};
use self::settings::Settings;
use self::shared::Shared;
use self::store::Store;
use super::payload::{self, Payload};
use super::{Applicable, Declined, Engine, Plan, Site, engine_id};
use crate::device::miopen_engine;
use crate::error::Error;

/// `MIOPEN_RS_ENGINE`.
#[derive(Debug)]
pub struct Miopen;

/// The one MIOpen engine.
pub const MIOPEN: Miopen = Miopen;

/// A graph that the MIOpen engine takes.
struct MiopenGraph<'g> {
    graph: &'g Graph,
    works: Vec<Work>,
    /// Tensors are copied into a layout that MIOpen takes, or out of one.
    copies: bool,
    device: Arc<Device>,
    shared: Arc<Shared>,
}

impl Engine for Miopen {
    fn name(&self) -> &'static CStr {
        c"MIOPEN_RS_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(Shared::get())
    }

    fn applicable<'g>(&self, graph: &'g Graph, site: Site) -> Result<Box<dyn Applicable + 'g>, Declined> {
        site.check(MemoryKind::DEVICE)?;
        miopen_engine()?;
        let shared = Shared::get();
        let device =
            shared.devices().of(site.stream.cast()).map_err(|error| Declined::Unavailable(error.to_string()))?;
        let mut graph = MiopenGraph { graph, works: lower::lower(graph)?, copies: false, device, shared };
        let settings = Settings::new(&EngineConfig::default());
        let settings = settings.map_err(|error| Declined::Unavailable(error.to_string()))?;
        graph.copies = graph.arrange(&settings, &Store::open_default())?.copies();
        Ok(Box::new(graph))
    }

    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
        site.check(MemoryKind::DEVICE).map_err(|reason| payload::declined(self, &reason))?;
        miopen_engine().map_err(|reason| payload::declined(self, &reason))?;
        let shared = Shared::get();
        let device = shared.devices().of(site.stream.cast())?;
        Ok(Box::new(stored::restore(payload, &device, &shared)?))
    }
}

/// The works' tasks, where MIOpen takes what is `supported`.
fn arranged(
    graph: &Graph,
    works: Vec<Work>,
    settings: &Settings,
    supported: arrange::Supported<'_>,
) -> Result<Arrangement, Declined> {
    let fuse = if settings.fuse { fuse::fuse } else { fuse::separate };
    arrange::arrange(graph, &fuse(graph, works), settings.wishes(), supported)
}

impl MiopenGraph<'_> {
    fn arrange(&self, settings: &Settings, store: &Store) -> Result<Arrangement, Declined> {
        let policy = settings.policy();
        let ask = |problem: &ConvolutionProblem| supported(&self.device, problem, &policy, store);
        let arrangement = arranged(self.graph, self.works.clone(), settings, &ask)?;
        kernels_can_be_had(&arrangement, &self.device, store)?;
        Ok(arrangement)
    }

    fn choose(&self, settings: &Settings, store: &Store, to_plan: bool) -> Result<Arc<Choices>, Error> {
        self.shared.choices(self.graph, settings, &self.device, to_plan, || {
            let arrangement = self.arrange(settings, store).map_err(|declined| {
                Error::not_applicable(format!("with these knobs graph {:?} is declined: {declined}", self.graph.name()))
            })?;
            Choices::new(self.graph, arrangement, &self.device, settings, store)
        })
    }
}

impl Applicable for MiopenGraph<'_> {
    fn details(&self) -> EngineDetails {
        let mut notes = vec![
            BehaviorNote::RUNTIME_COMPILATION,
            BehaviorNote::SUPPORTS_GRAPH_CAPTURE,
            BehaviorNote::EXTERNAL_LIBRARY_DEPENDENCY,
            BehaviorNote::SUPPORTS_EXECUTION_PLAN_SERIALIZATION,
        ];
        if self.copies {
            notes.push(BehaviorNote::REQUIRES_LAYOUT_TRANSFORM);
        }
        EngineDetails {
            engine_id: engine_id(&MIOPEN),
            knobs: Settings::describe(),
            behavior_notes: notes.into_iter().map(|note| note.0).collect(),
            name: Some(MIOPEN.name().to_string_lossy().into_owned()),
        }
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(Settings::new(config)?.settled(config))
    }

    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error> {
        let settings = Settings::new(config)?;
        Ok(self.choose(&settings, &Store::open_default(), false)?.workspace_bytes())
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        let (settings, store) = (Settings::new(config)?, Store::open_default());
        let choices = self.choose(&settings, &store, true)?;
        let devices = Arc::clone(self.shared.devices());
        let plan = MiopenPlan::new(self.graph, choices, &self.device, devices, &store)?;
        Ok(Box::new(plan))
    }
}
