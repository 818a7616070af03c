//! Copies of tensors between the host, GPUs and pinned memory, as the runtime asks for them.

use std::ffi::c_void;
use std::sync::Arc;

use hipdnn_sdk_bindings::hip::hipMemcpyKind;
use hipdnn_sdk_bindings::ort::{
    DataTransferImpl, DeviceMemoryType, MemoryDevice, MemoryInfo, MemoryInfoDeviceType, Status, SyncStream, Value,
};

use super::Gpu;
use super::stream::Stream;
use super::sync::{failure, stream_of};
use crate::error::Error;
use crate::factory::VENDOR_ID;
use crate::pointer::{Handles, Held, array};
use crate::runtime::{Runtime, caught};

/// The copier of a factory, as the runtime holds it: its callbacks, then ours.
///
/// A factory has one, whose release does nothing: not every host releases what it asks for, and some ask once a session.
#[repr(C)]
pub(crate) struct DataTransfer {
    callbacks: DataTransferImpl,
    runtime: Runtime,
}

static TRANSFERS: Handles<DataTransfer> = Handles::new("data transfer");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for DataTransfer {
    type Callbacks = DataTransferImpl;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl DataTransfer {
    /// Makes one.
    pub(crate) fn of(runtime: Runtime) -> *mut DataTransferImpl {
        let callbacks = DataTransferImpl {
            ort_version_supported: runtime.version(),
            release: Some(release),
            can_copy: Some(can_copy),
            copy_tensors: Some(copy_tensors),
        };
        let raw = Box::into_raw(Box::new(DataTransfer { callbacks, runtime })).cast();
        TRANSFERS.add(raw);
        raw
    }

    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn take_back(raw: *mut DataTransferImpl) -> Result<(), Error> {
        TRANSFERS.remove(raw)?;
        // SAFETY: it was boxed, and is known no more.
        drop(unsafe { Box::from_raw(raw.cast::<DataTransfer>()) });
        Ok(())
    }
}

/// A memory of the runtime.
#[derive(Clone, Copy)]
pub(crate) enum Site {
    /// The host's.
    Host,
    /// The host's, pinned for that device.
    Pinned(usize),
    /// A GPU's.
    Device(usize),
}

impl Site {
    /// The memory that a device of the runtime's is; `None` of others' devices.
    ///
    /// # Safety
    /// `device` is a living memory device.
    pub(crate) unsafe fn of(runtime: &Runtime, device: *const MemoryDevice) -> Option<Site> {
        let api = &runtime.ep;
        // SAFETY: the caller's promise.
        let (kind, memory, vendor, id) = unsafe {
            (
                api.memory_device_get_device_type()(device),
                api.memory_device_get_memory_type()(device),
                api.memory_device_get_vendor_id()(device),
                api.memory_device_get_device_id()(device),
            )
        };
        match (kind, memory, vendor) {
            (MemoryInfoDeviceType::CPU, _, _) => Some(Site::Host),
            (MemoryInfoDeviceType::GPU, DeviceMemoryType::HOST_ACCESSIBLE, VENDOR_ID) => {
                Some(Site::Pinned(id as usize))
            }
            (MemoryInfoDeviceType::GPU, DeviceMemoryType::DEFAULT, VENDOR_ID) => Some(Site::Device(id as usize)),
            _ => None,
        }
    }
}

/// The GPU whose memory a device of the runtime's is.
///
/// # Safety
/// `device` is null or a living memory device.
///
/// # Errors
/// If it is none.
pub(crate) unsafe fn gpu_of(runtime: &Runtime, device: *const MemoryDevice) -> Result<&'static Gpu, Error> {
    // SAFETY: the caller's promise.
    match (!device.is_null()).then(|| unsafe { Site::of(runtime, device) }).flatten() {
        Some(Site::Device(gpu) | Site::Pinned(gpu)) => super::of(gpu),
        _ => Err(Error::invalid(format!("{}: expected the memory of an AMD GPU, got another", crate::NAME_TEXT))),
    }
}

/// The GPU that a described memory is of, and whether it is host memory pinned for it.
///
/// # Safety
/// `info` is null or a living description.
///
/// # Errors
/// If it is neither.
pub(crate) unsafe fn memory_of(runtime: &Runtime, info: *const MemoryInfo) -> Result<(&'static Gpu, bool), Error> {
    if info.is_null() {
        return Err(Error::invalid(format!("{}: the description of a memory is null", crate::NAME_TEXT)));
    }
    // SAFETY: the caller's promise.
    let device = unsafe { runtime.ep.memory_info_get_memory_device()(info) };
    // SAFETY: the device lives as long as the description.
    let pinned = matches!(unsafe { Site::of(runtime, device) }, Some(Site::Pinned(_)));
    // SAFETY: the device lives as long as the description.
    Ok((unsafe { gpu_of(runtime, device) }?, pinned))
}

unsafe extern "system" fn release(_this: *mut DataTransferImpl) {}

unsafe extern "system" fn can_copy(
    this: *const DataTransferImpl,
    source: *const MemoryDevice,
    destination: *const MemoryDevice,
) -> bool {
    let mut can = false;
    // Neither a panic nor a stranger can be told: nothing can be copied then.
    let _ = caught(|| {
        if !source.is_null() && !destination.is_null() {
            let runtime = TRANSFERS.look(this, |transfer| transfer.runtime)?;
            // SAFETY: both are the runtime's, alive during the call.
            let sites = unsafe { (Site::of(&runtime, source), Site::of(&runtime, destination)) };
            can = matches!(sites, (Some(source), Some(destination)) if !both_host(source, destination));
        }
        Ok(())
    });
    can
}

/// Copies between two memories of the host's own are the runtime's.
fn both_host(source: Site, destination: Site) -> bool {
    matches!((source, destination), (Site::Host, Site::Host))
}

unsafe extern "system" fn copy_tensors(
    this: *mut DataTransferImpl,
    sources: *mut *const Value,
    destinations: *mut *mut Value,
    streams: *mut *mut SyncStream,
    count: usize,
) -> *mut Status {
    TRANSFERS.with(this, |transfer| {
        let runtime = transfer.runtime;
        // SAFETY: the arrays have `count` elements, if they are there.
        let (sources, destinations) = unsafe {
            (array(sources, count, "the array of sources")?, array(destinations, count, "the destinations")?)
        };
        let streams = if streams.is_null() {
            &[]
        } else {
            // SAFETY: the array has `count` elements.
            unsafe { array(streams, count, "the array of streams") }?
        };
        let mut awaited: Vec<Arc<Stream>> = Vec::new();
        let copied = sources.iter().zip(destinations).enumerate().try_for_each(|(index, (source, destination))| {
            let stream = streams.get(index).copied().unwrap_or(std::ptr::null_mut());
            // SAFETY: the stream is the runtime's, alive during the call, if it is one.
            let stream = (!stream.is_null()).then(|| unsafe { stream_of(&runtime, stream) }).flatten();
            // SAFETY: the tensors are the runtime's, alive during the call, and on devices as long as the stream uses them.
            let stream = unsafe { copy(&runtime, *source, *destination, stream) }?;
            awaited.extend(stream.filter(|stream| !awaited.iter().any(|known| Arc::ptr_eq(known, stream))));
            Ok(())
        });
        let waited =
            awaited.iter().try_for_each(|stream| stream.synchronize().map_err(|error| failure(stream.gpu(), &error)));
        copied.and(waited)
    })
}

/// Copies a tensor on a stream, or at once. Gives the stream where the caller has to wait for it: memory of the host's own
/// may be gone as soon as the caller returns, to success or to an error of somebody else.
///
/// # Safety
/// Both are null or living tensors of the runtime, which stay until the stream has passed.
pub(crate) unsafe fn copy(
    runtime: &Runtime,
    source: *const Value,
    destination: *mut Value,
    stream: Option<Arc<Stream>>,
) -> Result<Option<Arc<Stream>>, Error> {
    if source.is_null() || destination.is_null() {
        return Err(Error::invalid(format!("{}: expected a tensor to copy, got null", crate::NAME_TEXT)));
    }
    let (mut from_bytes, mut to_bytes) = (0, 0);
    let (mut from, mut to): (*const c_void, *mut c_void) = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: the tensors are alive, and the answers' places are valid for the calls.
    let (source_site, destination_site) = unsafe {
        runtime.check(runtime.api.get_tensor_size_in_bytes()(source, &mut from_bytes))?;
        runtime.check(runtime.api.get_tensor_size_in_bytes()(destination, &mut to_bytes))?;
        runtime.check(runtime.api.get_tensor_data()(source, &mut from))?;
        runtime.check(runtime.api.get_tensor_mutable_data()(destination, &mut to))?;
        let site = |value| Site::of(runtime, runtime.ep.value_get_memory_device()(value));
        (site(source), site(destination))
    };
    if from_bytes != to_bytes {
        let name = crate::NAME_TEXT;
        return Err(Error::invalid(format!("{name}: expected a destination of {from_bytes} bytes, got {to_bytes}")));
    }
    if from_bytes == 0 {
        return Ok(None);
    }
    let (kind, gpu) = match (source_site, destination_site) {
        (Some(Site::Device(from)), Some(Site::Device(_))) => (hipMemcpyKind::hipMemcpyDeviceToDevice, from),
        (Some(Site::Device(gpu)), Some(_)) => (hipMemcpyKind::hipMemcpyDeviceToHost, gpu),
        (Some(_), Some(Site::Device(gpu))) => (hipMemcpyKind::hipMemcpyHostToDevice, gpu),
        (Some(Site::Pinned(gpu)), Some(_)) | (Some(_), Some(Site::Pinned(gpu))) => {
            (hipMemcpyKind::hipMemcpyHostToHost, gpu)
        }
        _ => {
            return Err(Error::invalid(format!(
                "{}: a tensor to copy is on another provider's device",
                crate::NAME_TEXT
            )));
        }
    };
    let gpu = super::of(gpu)?;
    let kind = match (source_site, destination_site) {
        (Some(Site::Device(from)), Some(Site::Device(to))) if from != to => {
            // The stream's device copies, and reaches the memory of both by itself if it may.
            let copier = stream.as_ref().map_or(gpu, |stream| stream.gpu());
            copier.reach(gpu);
            copier.reach(super::of(to)?);
            // HIP looks for itself what the addresses are.
            hipMemcpyKind::hipMemcpyDefault
        }
        _ => kind,
    };
    for (address, what) in [(from, "source"), (to.cast_const(), "destination")] {
        if address.is_null() {
            // An allocator has no other way to say that there was no memory.
            let why = gpu.memory().failure().or_else(|| gpu.pinned().failure());
            let why = why.unwrap_or_else(|| format!("{}: the {what} of a copy has no memory", crate::NAME_TEXT));
            return Err(Error::failed(why));
        }
    }
    gpu.check_process()?;
    let awaited = stream.clone().filter(|_| matches!(destination_site, Some(Site::Host)));
    // SAFETY: both have so many bytes, as the runtime says, which stay until the stream has passed or this returns.
    unsafe { enqueue(gpu, to, from, from_bytes, kind, stream) }?;
    Ok(awaited)
}

/// Copies on a stream; where there is none, behind all that is enqueued on the device, done on return.
///
/// # Safety
/// Both have so many bytes, which stay until the stream has passed.
pub(crate) unsafe fn enqueue(
    gpu: &'static Gpu,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: Option<Arc<Stream>>,
) -> Result<(), Error> {
    let _entered = gpu.enter()?;
    if let Some(stream) = stream {
        stream.touch();
        // SAFETY: the caller's promise.
        let copied = unsafe { gpu.hip().copy(to, from, bytes, kind, stream.raw()) };
        stream.touch();
        return Ok(copied?);
    }
    // What is read may still be written by work that nobody waits for; what is written was free before.
    if kind != hipMemcpyKind::hipMemcpyHostToDevice {
        gpu.synchronize().map_err(|error| failure(gpu, &error))?;
    }
    let stream = gpu.transfers()?;
    stream.touch();
    // SAFETY: the caller's promise.
    unsafe { gpu.hip().copy(to, from, bytes, kind, stream.raw()) }?;
    stream.synchronize().map_err(|error| failure(gpu, &error))
}
