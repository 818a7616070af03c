//! A session on a GPU: what it has there, and the callbacks that it serves beside those of every session.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::{
    self, Ep, GraphCaptureNodeAssignmentPolicy, KernelRegistry, MemoryDevice, MemoryInfo, ResourceCount, RunOptions,
    Status, SyncStreamImpl,
};

use super::Gpu;
use super::allocator::Allocator;
use super::capture::Captures;
use super::memcpy::Registry;
use super::memory::Account;
use super::offer::Infos;
use super::stream::Stream;
use super::sync::{SyncStream, failure};
use super::transfer;
use crate::error::Error;
use crate::kernel::Device;
use crate::options::Options;
use crate::pointer::Place;
use crate::provider::{PROVIDERS, Provider};
use crate::runtime::{Runtime, text_of};

/// A session's part on a GPU: kernels, streams, captures.
pub(crate) struct OnDevice {
    device: Device,
    infos: Infos,
    /// Kernels of the nodes that move tensors to and from it.
    registry: Option<Registry>,
    /// The stream that all runs are enqueued on, if the application lends one.
    lent: Option<Arc<Stream>>,
    /// Captures of runs, if the session is asked for them.
    captures: Option<Captures>,
}

/// The oldest API version that asks for captured runs.
const OLDEST_CAPTURE: u32 = 26;

impl OnDevice {
    /// Of a session with these options, in a library that was registered under that name.
    ///
    /// # Errors
    /// If an option does not fit, or HIP or the runtime refuse.
    pub(crate) fn new(
        runtime: Runtime,
        gpu: &'static Gpu,
        options: &Options,
        registered_name: &str,
    ) -> Result<OnDevice, Error> {
        gpu.check_process()?;
        let mut names = vec![crate::NAME.to_owned()];
        names.extend(CString::new(registered_name).ok().filter(|name| !name.is_empty() && **name != *crate::NAME));
        let lent = options.user_compute_stream.map(|address| {
            let raw = std::ptr::without_provenance_mut(address);
            // SAFETY: the application says that this is a stream that outlives its sessions.
            unsafe { Stream::lent(gpu, raw) }.map_err(|error| {
                let name = crate::NAME_TEXT;
                Error::invalid(format!(
                    "{name}: expected a stream of HIP in \"user_compute_stream\", got {address}: {error}"
                ))
            })
        });
        let lent = lent.transpose()?;
        if options.graph_capture && runtime.version() < OLDEST_CAPTURE {
            let (name, text) = (crate::NAME_TEXT, runtime.text);
            return Err(Error::invalid(format!(
                "{name}: \"graph_capture\": expected ONNX Runtime 1.{OLDEST_CAPTURE} or newer, got {text}"
            )));
        }
        let captures = options.graph_capture.then(|| Captures::new(gpu, lent.clone())).transpose()?;
        let account = Arc::new(Account::new(options.terms()));
        Ok(OnDevice {
            device: Device { gpu, account },
            infos: Infos::new(runtime, gpu)?,
            registry: Registry::new(runtime, gpu, &names)?,
            lent,
            captures,
        })
    }

    /// Sets the callbacks that a session on a GPU serves.
    pub(crate) fn serve(&self, callbacks: &mut Ep) {
        callbacks.create_allocator = Some(create_allocator);
        callbacks.create_sync_stream_for_device = Some(create_sync_stream_for_device);
        callbacks.get_kernel_registry = Some(get_kernel_registry);
        callbacks.get_default_memory_device = Some(get_default_memory_device);
        callbacks.sync = Some(sync);
        callbacks.get_available_resource = Some(get_available_resource);
        callbacks.on_run_start = Some(on_run_start);
        callbacks.on_run_end = Some(on_run_end);
        if self.captures_runs() {
            callbacks.is_graph_capture_enabled = Some(is_graph_capture_enabled);
            callbacks.is_graph_captured = Some(is_graph_captured);
            callbacks.replay_graph = Some(replay_graph);
            callbacks.release_captured_graph = Some(release_captured_graph);
            callbacks.get_graph_capture_node_assignment_policy = Some(get_graph_capture_node_assignment_policy);
        }
    }

    /// The GPU, and who answers for memory on it.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.device.gpu
    }

    /// True if runs are captured and replayed.
    pub(crate) fn captures_runs(&self) -> bool {
        self.captures.is_some()
    }
}

/// Runs a callback's body with what the session has on its GPU.
fn with_device(this: *const Ep, body: impl FnOnce(&Provider, &OnDevice) -> Result<(), Error>) -> *mut Status {
    PROVIDERS.with(this, |provider| match provider.on_device() {
        Some(device) => body(provider, device),
        None => Err(Error::invalid(format!("{}: the session's tensors are in the host's memory", crate::NAME_TEXT))),
    })
}

unsafe extern "system" fn create_allocator(
    this: *mut Ep,
    info: *const MemoryInfo,
    allocator: *mut *mut ort::Allocator,
) -> *mut Status {
    with_device(this, |provider, on| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(allocator, "the place for the allocator") }?;
        // SAFETY: the description is the runtime's, alive as long as the session.
        let (gpu, pinned) = unsafe { transfer::memory_of(&provider.runtime(), info) }?;
        // The session's limit is one of its device memory.
        let account = if pinned { Arc::default() } else { on.device.account.clone() };
        let captures = on.captures.as_ref().filter(|_| !pinned).map(|captures| captures.stream().clone());
        place.set(Allocator::of(
            provider.runtime(),
            provider.logger(),
            (gpu, pinned),
            info,
            (account, captures),
            false,
        ));
        Ok(())
    })
}

unsafe extern "system" fn create_sync_stream_for_device(
    this: *mut Ep,
    device: *const MemoryDevice,
    stream: *mut *mut SyncStreamImpl,
) -> *mut Status {
    with_device(this, |provider, on| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(stream, "the place for the stream") }?;
        // SAFETY: the device is the runtime's, alive during the call.
        let gpu = unsafe { transfer::gpu_of(&provider.runtime(), device) }?;
        let made = match (&on.captures, &on.lent) {
            (Some(captures), _) => captures.stream().clone(),
            (None, Some(lent)) => lent.clone(),
            (None, None) => Stream::new(gpu)?,
        };
        place.set(SyncStream::of(provider.runtime(), made));
        Ok(())
    })
}

unsafe extern "system" fn get_kernel_registry(this: *mut Ep, registry: *mut *const KernelRegistry) -> *mut Status {
    with_device(this, |_, on| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(registry, "the place for the registry") }?;
        place.set(on.registry.as_ref().map_or(std::ptr::null(), Registry::raw));
        Ok(())
    })
}

unsafe extern "system" fn get_default_memory_device(this: *const Ep, device: *mut *const MemoryDevice) -> *mut Status {
    with_device(this, |provider, on| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(device, "the place for the memory device") }?;
        // SAFETY: the description is ours, and lives as long as the provider.
        place.set(unsafe { provider.runtime().ep.memory_info_get_memory_device()(on.infos.memory) });
        Ok(())
    })
}

unsafe extern "system" fn sync(this: *mut Ep) -> *mut Status {
    with_device(this, |_, on| on.device.gpu.synchronize().map_err(|error| failure(on.device.gpu, &error)))
}

/// `OrtResourceCountKind_TotalBytes`: the resource is bytes, in the first word. 0 is no resource.
const TOTAL_BYTES: u32 = 1;

unsafe extern "system" fn get_available_resource(this: *const Ep, resource: *mut ResourceCount) -> *mut Status {
    with_device(this, |_, on| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(resource, "the place for the resource") }?;
        let free = on.device.gpu.free_memory();
        let (free, _) = free.ok_or_else(|| Error::failed("HIP does not say how much memory is free"))?;
        place.set(ResourceCount { kind: TOTAL_BYTES, reserved: 0, value: [free as u64, 0, 0, 0, 0, 0] });
        Ok(())
    })
}

/// Runs a callback's body with the session's captures.
fn with_captures(this: *const Ep, body: impl FnOnce(&Provider, &Captures) -> Result<(), Error>) -> *mut Status {
    with_device(this, |provider, on| match &on.captures {
        Some(captures) => body(provider, captures),
        None => Err(Error::invalid(format!("{}: the session captures no runs", crate::NAME_TEXT))),
    })
}

/// Id of the graph that a run is captured as; -1 for none.
///
/// # Safety
/// `options` are null or the runtime's, alive during the call.
unsafe fn graph_id(runtime: &Runtime, options: *const RunOptions) -> Result<i32, Error> {
    if options.is_null() {
        return Ok(0);
    }
    let entry = runtime.api.get_run_config_entry();
    // SAFETY: the options are alive, and so is their text.
    let Some(text) = (unsafe { text_of(entry(options, c"gpu_graph_id".as_ptr())) }) else { return Ok(0) };
    text.trim().parse().map_err(|_| {
        Error::invalid(format!("{}: expected a number in \"gpu_graph_id\", got {text:?}", crate::NAME_TEXT))
    })
}

unsafe extern "system" fn on_run_start(this: *mut Ep, options: *const RunOptions) -> *mut Status {
    with_device(this, |provider, on| {
        on.device.gpu.check_process()?;
        if let Some(captures) = &on.captures {
            // SAFETY: the options are of this call.
            captures.begin(unsafe { graph_id(&provider.runtime(), options) }?)?;
        }
        // Of a run that does not begin the end is not told.
        on.device.gpu.begin_run();
        Ok(())
    })
}

/// The runtime hears of work that failed here: it passes over what streams say.
unsafe extern "system" fn on_run_end(this: *mut Ep, options: *const RunOptions, sync_stream: bool) -> *mut Status {
    with_device(this, |provider, on| {
        let captured = match &on.captures {
            // SAFETY: the options are of this call.
            Some(captures) => unsafe { graph_id(&provider.runtime(), options) }.and_then(|id| captures.end(id)),
            None => Ok(()),
        };
        let waited = on.device.gpu.end_run(sync_stream).map_err(|error| failure(on.device.gpu, &error));
        captured.and(waited)
    })
}

unsafe extern "system" fn is_graph_capture_enabled(_this: *const Ep) -> bool {
    true
}

unsafe extern "system" fn is_graph_captured(this: *const Ep, id: c_int) -> bool {
    let mut captured = false;
    // Neither a panic nor a stranger can be told: nothing is replayed then.
    let status = with_captures(this, |_, captures| {
        captured = captures.is_captured(id);
        Ok(())
    });
    status.is_null() && captured
}

unsafe extern "system" fn replay_graph(this: *mut Ep, id: c_int) -> *mut Status {
    with_captures(this, |_, captures| captures.replay(id))
}

unsafe extern "system" fn release_captured_graph(this: *mut Ep, id: c_int) -> *mut Status {
    with_captures(this, |_, captures| {
        captures.release(id);
        Ok(())
    })
}

/// All nodes on this provider: those left to the CPU would copy at addresses of one run.
unsafe extern "system" fn get_graph_capture_node_assignment_policy(
    _this: *const Ep,
) -> GraphCaptureNodeAssignmentPolicy {
    GraphCaptureNodeAssignmentPolicy::ALL_NODES_ON_EP
}
