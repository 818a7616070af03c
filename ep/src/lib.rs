//! An ONNX Runtime plugin execution provider that runs nodes through hipDNN.
//!
//! The runtime loads this library and calls [`CreateEpFactories`]. `factory` offers the provider on a device and reads
//! `options`; `provider` claims the nodes that `claim` recognises, `translate` can write as a hipDNN graph and
//! `backend` has an engine for; `compute` runs them, with what `constants` knows of their weights. `graph` is the runtime's
//! graph, `descriptor` hipDNN's objects, `extension` what our engine plugin has beyond them; `runtime` is the border to the
//! runtime that no panic crosses.

mod backend;
mod claim;
mod compute;
mod constants;
mod descriptor;
mod device;
mod dump;
mod error;
mod extension;
mod factory;
mod graph;
mod log;
pub mod options;
mod plan_cache;
mod provider;
mod report;
mod runtime;
mod search;
mod translate;
mod workspace;

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use hipdnn_sdk_bindings::ort::{ApiBase, EpFactory, Logger, Status};

use error::Error;
use factory::Factory;
use runtime::{Runtime, caught, status_without_runtime};

/// The provider's name.
pub const NAME: &CStr = c"HipDnnRsExecutionProvider";
/// [`NAME`] for messages.
pub const NAME_TEXT: &str = "HipDnnRsExecutionProvider";

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("the version has no NUL but the last byte"),
};
const VERSION_TEXT: &str = env!("CARGO_PKG_VERSION");

/// Makes the provider's factory.
///
/// # Safety
/// The runtime calls this, with its own objects; `factories` has room for `max_factories`.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    _registered_name: *const c_char,
    base: *const ApiBase,
    _default_logger: *const Logger,
    factories: *mut *mut EpFactory,
    max_factories: usize,
    num_factories: *mut usize,
) -> *mut Status {
    // SAFETY: the runtime gives its base, or there is nothing that could be answered.
    let Some(base) = (unsafe { base.as_ref() }) else { return null_mut() };
    let made = caught(|| {
        // SAFETY: the base is the runtime's.
        let runtime = unsafe { Runtime::negotiate(base) }?;
        if max_factories == 0 || factories.is_null() || num_factories.is_null() {
            return Err(Error::invalid("there is no room for a factory"));
        }
        // SAFETY: there is room for one factory and for the number.
        unsafe {
            *factories = Factory::new(runtime).into_raw();
            *num_factories = 1;
        }
        Ok(())
    });
    match made {
        Ok(()) => null_mut(),
        // SAFETY: the base is the runtime's.
        Err(error) => unsafe { status_without_runtime(base, &error) },
    }
}

/// Takes a factory back.
///
/// # Safety
/// `factory` is null or one that [`CreateEpFactories`] gave, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn ReleaseEpFactory(factory: *mut EpFactory) -> *mut Status {
    // A panic while dropping has nowhere to go.
    let _ = caught(|| {
        // SAFETY: the caller's duty.
        unsafe { Factory::take_back(factory) };
        Ok(())
    });
    null_mut()
}
