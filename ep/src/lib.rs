//! An ONNX Runtime plugin execution provider that runs nodes through hipDNN.
//!
//! The runtime loads this library and calls [`CreateEpFactories`]. `factory` offers the provider on a device and reads
//! `options`; `provider` is a session's. `read` copies the runtime's `graph` into a model; `claim` forms partitions of what the
//! compiler ([`hipdnn_ep_compiler`]) can import and `backend` has engines for; `planner` and `program` make programs of them;
//! `kernel` runs them. hipDNN's objects are [`hipdnn_client`]'s; `extension` is what our engine plugin has beyond them; `runtime` is the
//! border to the runtime that no panic crosses.

mod backend;
mod claim;
mod compiled;
mod kernel;
mod profile;
mod program;
mod read;

mod dump;
mod ep_context;
mod error;
mod extension;
mod factory;
mod gpu;
mod graph;
mod log;
pub mod options;
mod plan_cache;
mod planner;
mod pointer;
mod provider;
mod report;
mod runtime;
mod search;
mod storage;

pub(crate) use hipdnn_client::{descriptor, workspace};

hipdnn_sdk_bindings::glibc_2_28!();

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use hipdnn_sdk_bindings::ort::{ApiBase, EpFactory, Logger, Status};

use error::Error;
use factory::Factory;
use pointer::Place;
use runtime::{Runtime, caught, status_of, status_without_runtime, text_of};

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
/// Each pointer is null or the runtime's own; `factories` has room for `max_factories`.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    registered_name: *const c_char,
    base: *const ApiBase,
    default_logger: *const Logger,
    factories: *mut *mut EpFactory,
    max_factories: usize,
    num_factories: *mut usize,
) -> *mut Status {
    // SAFETY: the place is the caller's, if it is one.
    let count = unsafe { Place::new(num_factories, "the place for the number of factories") };
    if let Ok(count) = &count {
        count.set(0);
    }
    // SAFETY: the base is the runtime's, if it is one. Without it there is nothing that could be answered but that there
    // are no factories.
    let Some(base) = (unsafe { base_of(base) }) else { return null_mut() };
    let made = caught(|| {
        // SAFETY: the base is the runtime's.
        let runtime = unsafe { Runtime::negotiate(base) }?;
        let count = count?;
        if max_factories == 0 {
            return Err(Error::invalid("there is no room for a factory"));
        }
        // SAFETY: there is room for one factory, if for any.
        let place = unsafe { Place::new(factories, "the array of factories") }?;
        // SAFETY: the name is the runtime's text, if it is one, and its logger lives as long as the library is registered.
        let (name, logger) = unsafe { (text_of(registered_name), log::Logger::new(runtime, default_logger)) };
        place.set(Factory::new(runtime, logger, name.unwrap_or_default()).into_raw());
        count.set(1);
        Ok(())
    });
    match made {
        Ok(()) => null_mut(),
        // SAFETY: the base is the runtime's.
        Err(error) => unsafe { status_without_runtime(base, &error) },
    }
}

/// The runtime's base, if there is one with both of its functions.
///
/// # Safety
/// A pointer that is not null and aligned refers to as many bytes as a base has, alive for `'a`.
unsafe fn base_of<'a>(base: *const ApiBase) -> Option<&'a ApiBase> {
    const WORDS: usize = size_of::<ApiBase>() / size_of::<usize>();
    // SAFETY: the caller's duty; a base is as long as its functions' addresses.
    let functions = unsafe { pointer::array(base.cast::<usize>(), WORDS, "the base") }.ok()?;
    // SAFETY: no function is null, so that this is what the caller says.
    functions.iter().all(|function| *function != 0).then(|| unsafe { &*base })
}

/// Takes a factory back.
///
/// # Safety
/// Nobody uses the factory any more.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn ReleaseEpFactory(factory: *mut EpFactory) -> *mut Status {
    if factory.is_null() {
        return null_mut();
    }
    // SAFETY: what is not ours is told by its address.
    status_of(caught(|| unsafe { Factory::take_back(factory) }))
}
