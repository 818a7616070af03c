//! Engines: the interface of everything that computes graphs.
//!
//! Data flow: [`Engine::applicable`] checks a graph and either gives the reason why not ([`Declined`]) or an
//! [`Applicable`], which alone can make a [`Plan`], which alone can execute.
//!
//! | module | holds |
//! |---|---|
//! | [`ops`] | the meaning of nodes, whatever engine computes them |
//! | [`checks`] | the conditions that every engine puts to graphs and operands |
//! | [`memory`] | the table of the caller's buffers, the planned workspace |
//! | [`knobs`] | settings: their descriptions and values |
//! | [`payload`], [`framed`] | stored plans, and bytes that outlive the process |
//! | [`site`] | the memory and stream of a handle |
//! | [`error`] | errors by kind |

pub mod checks;
mod declined;
pub mod error;
pub mod framed;
pub mod knobs;
pub mod memory;
pub mod ops;
pub mod payload;
pub mod site;

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

pub use declined::{Declined, NodeLabel, TensorLabel};
pub use site::Site;

use self::payload::{Payload, Portrait};
use crate::error::Error;

/// Engine: checks graphs and makes plans that compute them.
pub trait Engine: Send + Sync {
    /// Name of the engine, from which its id follows ([`engine_id`]).
    fn name(&self) -> &'static CStr;

    /// Resources that the plans of this engine share, kept alive as long as any handle.
    fn attach(&self) -> Box<dyn Send + Sync>;

    /// Checks that the engine computes this graph in this process, without building anything. Plans are for the site of
    /// the handle, which keeps the answer and the graph for further questions.
    ///
    /// # Errors
    /// If it does not, with the reason.
    fn applicable(&self, graph: &Arc<Graph>, site: Site) -> Result<Arc<dyn Applicable>, Declined>;

    /// Restores a stored plan of this engine, for the site of the handle: nothing is searched, timed or compiled.
    ///
    /// # Errors
    /// If the plan is of another machine or does not come out as it was stored, with what differs.
    fn restore(&self, payload: &Payload, site: Site) -> Result<Box<dyn Plan>, Error>;

    /// Allocates a workspace of `bytes` for executions on the site's stream, where the caller's is too small.
    ///
    /// # Errors
    /// If there is not so much memory.
    fn workspace(&self, bytes: usize, site: Site) -> Result<Box<dyn Workspace>, Error>;

    /// True if what is enqueued on the site's stream is captured: it runs later, maybe often.
    fn is_capturing(&self, site: Site) -> bool {
        let _ = site;
        false
    }

    /// Waits until nothing runs any more that was enqueued on the site's device.
    ///
    /// # Errors
    /// If it can't be waited for.
    fn settle(&self, site: Site) -> Result<(), Error> {
        let _ = site;
        Ok(())
    }
}

/// Workspace that an engine has allocated, freed with its owner.
pub trait Workspace: Send {
    /// Address of the first byte, in the memory that the engine works on; null for no bytes.
    fn address(&mut self) -> *mut u8;
}

/// Id of the engine: hipDNN's hash of its name.
pub fn engine_id(engine: &dyn Engine) -> i64 {
    hipdnn_sdk_bindings::hipdnn::plugin::engine_id(engine.name().to_str().expect("engine names are ASCII"))
}

/// Graph that an engine has found applicable: lowered once, for any number of questions.
pub trait Applicable: Send + Sync {
    /// True if the engine would find the graph applicable in the same way now: where the environment or the device of a
    /// stream has a say, they may have changed since.
    fn holds(&self, site: Site) -> bool {
        let _ = site;
        true
    }

    /// Details of the engine for this graph: knobs, behavior notes.
    fn details(&self) -> EngineDetails;

    /// Settled configuration: choices of the environment and the machine are written down as settings.
    ///
    /// # Errors
    /// If settings are wrong.
    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error>;

    /// Workspace in bytes of the plan that [`Applicable::plan`] makes for the same settings.
    ///
    /// # Errors
    /// If settings are wrong.
    fn workspace_bytes(&self, config: &EngineConfig) -> Result<usize, Error>;

    /// Chooses algorithms and prepares everything. The plan keeps nothing of the graph's memory.
    ///
    /// # Errors
    /// If settings are wrong or an allocation fails.
    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error>;
}

/// Graph ready to run any number of times, from any number of threads at once.
pub trait Plan: Send + Sync {
    /// Workspace in bytes of an execution.
    fn workspace_bytes(&self) -> usize;

    /// Portrait that the plan is stored with, so that [`Engine::restore`] makes it again.
    ///
    /// # Errors
    /// If it can't be stored.
    fn portrait(&self) -> Result<Portrait, Error>;

    /// Makes the plan's device the calling thread's where the stream does not tell it, until the result is dropped: for what else
    /// is made for executions on that stream.
    ///
    /// # Errors
    /// If the device can't be used.
    fn enter(&self, stream: *mut c_void) -> Result<Box<dyn Any>, Error> {
        let _ = stream;
        Ok(Box::new(()))
    }

    /// Prepares executions on a stream ahead of the first one. Failing costs nothing but that execution's time.
    fn make_ready(&self, _stream: *mut c_void) {}

    /// Runs the graph.
    ///
    /// # Safety
    /// `workspace` is null or has [`Plan::workspace_bytes`] bytes that nobody else uses; every buffer whose uid is one
    /// of the graph's tensors is null or has the memory that the tensor's extents and strides reach, and nobody writes
    /// to it meanwhile, nor reads outputs. `stream` is the stream of the handle, null for the default one.
    ///
    /// # Errors
    /// If a buffer that is needed is missing.
    unsafe fn execute(&self, stream: *mut c_void, workspace: *mut u8, buffers: &[DeviceBuffer]) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Engine that computes nothing, and the answer of an engine that nothing has a say in.
    struct Idle;

    impl Engine for Idle {
        fn name(&self) -> &'static CStr {
            c"MIOPEN_ENGINE"
        }

        fn attach(&self) -> Box<dyn Send + Sync> {
            Box::new(())
        }

        fn applicable(&self, _: &Arc<Graph>, _: Site) -> Result<Arc<dyn Applicable>, Declined> {
            Err(Declined::Unavailable("it has no kernels".into()))
        }

        fn restore(&self, _: &Payload, _: Site) -> Result<Box<dyn Plan>, Error> {
            Err(payload::declined(self, &Declined::Unavailable("it has no kernels".into())))
        }

        fn workspace(&self, _: usize, _: Site) -> Result<Box<dyn Workspace>, Error> {
            Err(Error::not_applicable("it has no memory"))
        }
    }

    impl Applicable for Idle {
        fn details(&self) -> EngineDetails {
            EngineDetails::default()
        }

        fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
            Ok(config.clone())
        }

        fn workspace_bytes(&self, _: &EngineConfig) -> Result<usize, Error> {
            Ok(0)
        }

        fn plan(&self, _: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
            Err(Error::not_applicable("it makes no plans"))
        }
    }

    /// hipDNN finds an engine by the id that it has published for the name.
    #[test]
    fn the_id_of_an_engine_is_the_one_of_its_name() {
        assert_eq!(engine_id(&Idle), 0x15B4_6865_C717_A122);
    }

    /// Without a say of the environment or a device, an answer holds for good.
    #[test]
    fn answers_hold_unless_an_engine_says_otherwise() {
        assert!(Applicable::holds(&Idle, Site::UNSPECIFIED));
    }

    /// A stored plan whose graph is declined here is not applicable, with the engine's name and reason.
    #[test]
    fn a_stored_plan_of_a_declined_graph_is_not_applicable() {
        let graph = Vec::new();
        let payload = Payload { engine: "MIOPEN_ENGINE".into(), graph, config: vec![], portrait: Portrait::default() };
        let error = Idle.restore(&payload, Site::UNSPECIFIED).err().unwrap();
        let want = "serialized_context: MIOPEN_ENGINE does not compute the stored plan's graph: it has no kernels";
        assert_eq!(error, Error::not_applicable(want));
    }
}
