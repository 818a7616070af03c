//! The GPU engine: convolutions by libMIOpen on an AMD GPU, everything around them by kernels of our own.
//!
//! The kernel compiler turns a graph into dispatches or says why not; [`plan`] chooses, compiles and runs. Everything is chosen,
//! compiled and tried when the plan is built: an execution launches kernels on the handle's stream and does nothing else.
//!
//! | module | holds |
//! |---|---|
//! | [`hip`] | HIP: libraries, streams, memory, modules, captured graphs |
//! | [`jit`] | compiled kernels: by hiprtc, or from the [`store`] |
//! | [`miopen`] | convolutions by MIOpen: solvers, fusion plans, recorded launches |
//! | [`plan`] | plans: buffers, steps, executions |
//! | [`recording`] | the launches of several plans' executions, replayed by one call |
//! | [`device`] | devices of HIP |
//! | [`context`], [`shared`] | what plans share on a device and in a process |

pub mod context;
pub mod device;
mod folders;
pub mod hip;
pub mod jit;
pub mod miopen;
pub mod plan;
pub mod recording;
pub mod settings;
pub mod shared;
pub mod store;
mod stored;
#[cfg(test)]
mod testing;

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_capi::shared::Share;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::payload::{self, Payload};
use hipdnn_engine_core::{Applicable, Declined, Engine, Plan, Site, Workspace, engine_id};
use hipdnn_engine_kernel::convolution::ConvolutionProblem;
use hipdnn_engine_kernel::ir::op::Work;
use hipdnn_engine_kernel::legalize::{self, Legalized};
use hipdnn_engine_kernel::{fuse, lower};
use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hip::{hipError_t, hipStreamCaptureStatus};
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use self::context::Context;
use self::device::Device;
use self::hip::{DeviceMemory, Gpu, gpu};
use self::plan::{Choices, GpuPlan, kernels_can_be_had};
use self::settings::Settings;
use self::shared::Shared;
use self::store::Store;
use crate::miopen::choose::supported;

/// `HIPDNN_RS_GPU_ENGINE`.
#[derive(Debug)]
pub struct GpuEngine;

/// Value of the GPU engine.
pub const GPU_ENGINE: GpuEngine = GpuEngine;

/// The libraries and devices that the engine needs, or why it computes nothing in this process.
fn usable() -> Result<&'static Gpu, Declined> {
    gpu().map_err(|_| Declined::Unavailable("no usable GPU, for a reason that was logged at the first question".into()))
}

/// A graph that the GPU engine takes.
struct GpuGraph {
    graph: Arc<Graph>,
    works: Vec<Work>,
    /// Settings without a configuration, which the answer depends on, and the legalized graph by them until it is chosen for.
    defaults: Settings,
    legalized: Mutex<Option<Legalized>>,
    /// Tensors are copied into a layout that MIOpen takes, or out of one.
    copies: bool,
    /// Directory of the handle's cache, if its client names one.
    cache: Option<&'static CStr>,
    context: Arc<Context>,
    shared: Share<Shared>,
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static CStr {
        c"HIPDNN_RS_GPU_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(Shared::get())
    }

    fn applicable(&self, graph: &Arc<Graph>, site: Site) -> Result<Arc<dyn Applicable>, Declined> {
        site.check(MemoryKind::DEVICE)?;
        usable()?;
        let shared = Shared::get();
        let context =
            shared.contexts().of(site.stream.cast()).map_err(|error| Declined::Unavailable(error.to_string()))?;
        let works = lower::lower(graph)?;
        let defaults = Settings::new(&EngineConfig::default());
        let defaults = defaults.map_err(|error| Declined::Unavailable(error.to_string()))?;
        let (graph, legalized, cache) = (graph.clone(), Mutex::default(), site.cache);
        let mut graph = GpuGraph { graph, works, defaults, legalized, copies: false, cache, context, shared };
        let legalized = graph.legalize(&graph.defaults, &graph.store())?;
        graph.copies = legalized.copies();
        graph.legalized = Mutex::new(Some(legalized));
        Ok(Arc::new(graph))
    }

    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error> {
        site.check(MemoryKind::DEVICE).map_err(|reason| payload::declined(self, &reason))?;
        usable().map_err(|reason| payload::declined(self, &reason))?;
        let shared = Shared::get();
        let context = shared.contexts().of(site.stream.cast())?;
        Ok(Box::new(stored::restore(payload, &context, &shared)?))
    }

    fn workspace(&self, bytes: usize, site: Site) -> Result<Box<dyn Workspace>, Error> {
        let shared = Shared::get();
        let context = shared.contexts().of(site.stream.cast())?;
        let device = context.device();
        let _entered = device.enter()?;
        Ok(Box::new(OwnWorkspace { memory: DeviceMemory::new(device.gpu(), bytes)?, _shared: shared }))
    }

    fn is_capturing(&self, site: Site) -> bool {
        let Ok(gpu) = gpu() else { return false };
        let mut status = hipStreamCaptureStatus::hipStreamCaptureStatusNone;
        // SAFETY: the stream is the handle's, which its owner keeps alive; a place for one number.
        let asked = unsafe { (gpu.hip.hipStreamIsCapturing)(site.stream.cast(), &mut status) };
        asked == hipError_t::hipSuccess && status != hipStreamCaptureStatus::hipStreamCaptureStatusNone
    }

    fn settle(&self, site: Site) -> Result<(), Error> {
        let context = Shared::get().contexts().of(site.stream.cast())?;
        let device = context.device();
        let _entered = device.enter()?;
        // SAFETY: the function asks for nothing.
        let status = unsafe { (device.gpu().hip.hipDeviceSynchronize)() };
        device.gpu().check_hip(status, "hipDeviceSynchronize")
    }
}

/// A workspace in device memory; the libraries are in use as long as it lives.
struct OwnWorkspace {
    memory: DeviceMemory,
    _shared: Share<Shared>,
}

impl Workspace for OwnWorkspace {
    fn address(&mut self) -> *mut u8 {
        self.memory.address()
    }
}

/// The works' dispatches for a device, where MIOpen takes what is `supported`.
fn legalized_for(
    graph: &Graph,
    works: Vec<Work>,
    settings: &Settings,
    device: &Device,
    supported: legalize::Supported<'_>,
) -> Result<Legalized, Declined> {
    let fuse = if settings.fuse { fuse::fuse } else { fuse::separate };
    legalize::legalize(graph, &fuse(graph, works), settings.options(device.compute_units()), supported)
}

impl GpuGraph {
    fn store(&self) -> Store {
        Store::of(self.cache)
    }

    fn legalize(&self, settings: &Settings, store: &Store) -> Result<Legalized, Declined> {
        let policy = settings.policy();
        let ask = |problem: &ConvolutionProblem| {
            let miopen = self.context.miopen().map_err(|error| error.to_string())?;
            supported(miopen, problem, &policy, store)
        };
        let legalized = legalized_for(&self.graph, self.works.clone(), settings, self.context.device(), &ask)?;
        kernels_can_be_had(&legalized, self.context.kernels(), store)?;
        Ok(legalized)
    }

    fn choose(&self, settings: &Settings, store: &Store, to_plan: bool) -> Result<Arc<Choices>, Error> {
        self.shared.choices(&self.graph, settings, &self.context, to_plan, || {
            let known = (*settings == self.defaults)
                .then(|| self.legalized.lock().unwrap_or_else(PoisonError::into_inner).take());
            let legalized = match known.flatten() {
                Some(legalized) => legalized,
                None => self.legalize(settings, store).map_err(|declined| {
                    let name = self.graph.name();
                    Error::not_applicable(format!("with these knobs graph {name:?} is declined: {declined}"))
                })?,
            };
            Choices::new(&self.graph, legalized, &self.context, settings, store)
        })
    }
}

impl Applicable for GpuGraph {
    fn holds(&self, site: Site) -> bool {
        Settings::new(&EngineConfig::default()).is_ok_and(|settings| settings == self.defaults)
            && self.shared.contexts().of(site.stream.cast()).is_ok_and(|context| Arc::ptr_eq(&context, &self.context))
    }

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
            engine_id: engine_id(&GPU_ENGINE),
            knobs: Settings::describe(),
            behavior_notes: notes.into_iter().map(|note| note.0).collect(),
            name: Some(GPU_ENGINE.name().to_string_lossy().into_owned()),
        }
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(Settings::new(config)?.settled(config))
    }

    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error> {
        let settings = Settings::new(config)?;
        Ok(self.choose(&settings, &self.store(), false)?.workspace_bytes())
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        let (settings, store) = (Settings::new(config)?, self.store());
        let choices = self.choose(&settings, &store, true)?;
        let contexts = self.shared.contexts().clone();
        let plan = GpuPlan::new(&self.graph, choices, &self.context, contexts, &store)?;
        Ok(Box::new(plan))
    }
}
