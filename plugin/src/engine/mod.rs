//! Engines: what computes graphs.
//!
//! A graph goes one way: [`Engine::applicable`] looks at it and either says why not ([`Declined`]) or gives an
//! [`Applicable`], which alone can make a [`Plan`], which alone can execute.

mod checks;
mod declined;
pub mod host;
pub mod knobs;
pub mod miopen;
pub mod nodes;
pub mod payload;
pub mod registry;
pub mod site;

use std::ffi::{CStr, c_void};

use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

pub use declined::{Declined, NodeLabel, TensorLabel};
pub use site::Site;

use self::payload::{Payload, Portrait};
use crate::error::Error;

/// Something that computes graphs.
pub trait Engine: Send + Sync {
    /// The name, from which the id follows ([`engine_id`]).
    fn name(&self) -> &'static CStr;

    /// What the plans of this engine share, kept alive as long as any handle.
    fn attach(&self) -> Box<dyn Send + Sync>;

    /// Whether the engine computes this graph in this process, without building anything: hosts ask often. Plans are for
    /// the site of the handle.
    ///
    /// # Errors
    /// The reason why not.
    fn applicable<'g>(&self, graph: &'g Graph, site: Site) -> Result<Box<dyn Applicable + 'g>, Declined>;

    /// Makes a stored plan of this engine again, for the site of the handle: nothing is searched, timed or compiled.
    ///
    /// # Errors
    /// If the plan is of another machine or does not come out as it was stored, with what differs.
    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error>;
}

/// The id of the engine: hipDNN's hash of its name.
pub fn engine_id(engine: &dyn Engine) -> i64 {
    hipdnn_sdk_bindings::hipdnn::plugin::engine_id(engine.name().to_str().expect("engine names are ASCII"))
}

/// A graph that an engine computes.
pub trait Applicable {
    /// What the engine offers for this graph.
    fn details(&self) -> EngineDetails;

    /// The configuration with everything set that the environment or the machine decides otherwise.
    ///
    /// # Errors
    /// If settings are wrong.
    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error>;

    /// Bytes of workspace of the plan that [`Applicable::plan`] makes for the same settings.
    ///
    /// # Errors
    /// If settings are wrong.
    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error>;

    /// Chooses algorithms and prepares everything. The plan keeps nothing of the graph's memory.
    ///
    /// # Errors
    /// If settings are wrong or memory could not be had.
    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error>;
}

/// A graph ready to run any number of times, from any number of threads at once.
pub trait Plan: Send + Sync {
    /// Bytes of workspace that an execution needs.
    fn workspace_bytes(&self) -> usize;

    /// What the plan is stored with, so that [`Engine::restore`] makes it again.
    ///
    /// # Errors
    /// If it can't be stored.
    fn portrait(&self) -> Result<Portrait, Error>;

    /// Does ahead what the first execution on a stream would have to do. Failing costs nothing but that time.
    fn make_ready(&self, _stream: *mut c_void) {}

    /// Runs the graph.
    ///
    /// # Safety
    /// `workspace` is null or has [`Plan::workspace_bytes`] bytes that nobody else uses; every buffer whose uid is one of
    /// the graph's tensors is null or has the memory that the tensor's extents and strides reach, and nobody writes to it
    /// meanwhile, nor reads outputs. `stream` is the stream of the handle, null for the default one.
    ///
    /// # Errors
    /// If a buffer that is needed is missing.
    unsafe fn execute(&self, stream: *mut c_void, workspace: *mut u8, buffers: &[DeviceBuffer]) -> Result<(), Error>;
}
