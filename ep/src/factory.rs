//! The provider's factory: offers devices and makes a provider for each session.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hipdnn_sdk_bindings::ort::{
    self, Allocator, CompiledModelCompatibility, DataTransferImpl, DeviceEpIncompatibilityDetails, Ep, EpDevice,
    EpFactory, HardwareDevice, HardwareDeviceType, IncompatibilityReason, KeyValuePairs, MemoryDevice, MemoryInfo,
    SessionOptions, Status, SyncStreamImpl,
};

use crate::compiled::Compatibility;
use crate::error::Error;
use crate::gpu::memory::{Account, Terms};
use crate::gpu::offer::{self, EpDevices, Offers};
use crate::gpu::stream::Stream;
use crate::gpu::sync::SyncStream;
use crate::gpu::transfer::{self, DataTransfer};
use crate::gpu::{self, Gpu};
use crate::log::Logger;
use crate::options::Options;
use crate::pointer::{Handles, Held, Place, array};
use crate::provider::{self, Provider};
use crate::runtime::{Runtime, caught, text_of};
use crate::storage::Storage;

/// AMD's PCI vendor number: hipDNN is AMD's.
pub(crate) const VENDOR_ID: u32 = 0x1002;

const VENDOR: &CStr = c"hipdnn-rs";

/// The runtime's object for this library: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Factory {
    callbacks: EpFactory,
    runtime: Runtime,
    logger: Logger,
    /// The name that the library was registered under.
    registered_name: String,
    offers: Mutex<Offers>,
    /// Copies tensors for as long as the factory lives; made where there is a GPU.
    transfer: OnceLock<Callback<DataTransferImpl>>,
    /// Allocators of no session, by what describes their memory. Not every host gives them back.
    allocators: Mutex<Vec<(Described, Callback<Allocator>)>>,
}

/// A memory as its description says it is, and where that is.
#[derive(PartialEq, Eq)]
struct Described {
    address: usize,
    device: i32,
    pinned: bool,
}

/// Callbacks of ours that the runtime has.
struct Callback<T>(*mut T);

// SAFETY: what callbacks belong to may be used from any thread.
unsafe impl<T> Send for Callback<T> {}
// SAFETY: what callbacks belong to may be used from any thread.
unsafe impl<T> Sync for Callback<T> {}

impl Drop for Factory {
    fn drop(&mut self) {
        for (_, allocator) in self.allocators.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: with its factory nobody uses it any more.
            let _ = unsafe { gpu::allocator::Allocator::take_back(allocator.0, true) };
        }
        if let Some(transfer) = self.transfer.take() {
            // SAFETY: with its factory nobody uses it any more.
            let _ = unsafe { DataTransfer::take_back(transfer.0) };
        }
        for gpu in self.gpus().unwrap_or_default() {
            gpu.shrink();
        }
    }
}

impl Factory {
    /// A factory for that runtime, in a library that was registered under that name.
    pub(crate) fn new(runtime: Runtime, logger: Logger, registered_name: &str) -> Box<Factory> {
        let callbacks = EpFactory {
            ort_version_supported: runtime.version(),
            get_name: Some(get_name),
            get_vendor: Some(get_vendor),
            get_supported_devices: Some(get_supported_devices),
            create_ep: Some(create_ep),
            release_ep: Some(release_ep),
            get_vendor_id: Some(get_vendor_id),
            validate_compiled_model_compatibility_info: Some(validate_compiled_model_compatibility_info),
            get_version: Some(get_version),
            create_allocator: Some(create_allocator),
            release_allocator: Some(release_allocator),
            create_data_transfer: Some(create_data_transfer),
            is_stream_aware: Some(is_stream_aware),
            create_sync_stream_for_device: Some(create_sync_stream_for_device),
            get_hardware_device_incompatibility_details: Some(get_hardware_device_incompatibility_details),
            ..EpFactory::default()
        };
        Box::new(Factory {
            callbacks,
            runtime,
            logger,
            registered_name: registered_name.to_string(),
            offers: Mutex::new(Offers::new(runtime)),
            transfer: OnceLock::new(),
            allocators: Mutex::default(),
        })
    }

    /// The callbacks, as the runtime holds them; [`Factory::take_back`] undoes it.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut EpFactory {
        debug_assert!(self.callbacks.get_name.is_some());
        let raw = Box::into_raw(self).cast();
        FACTORIES.add(raw);
        raw
    }

    /// # Safety
    /// Nobody uses the factory any more.
    ///
    /// # Errors
    /// If it did not come from [`Factory::into_raw`], or was taken back.
    pub(crate) unsafe fn take_back(raw: *mut EpFactory) -> Result<(), Error> {
        FACTORIES.remove(raw)?;
        // SAFETY: the callbacks are the first member of a factory, which was boxed and is known no more.
        drop(unsafe { Box::from_raw(raw.cast::<Factory>()) });
        Ok(())
    }

    /// GPUs that sessions of this runtime can have.
    ///
    /// # Errors
    /// The reason, if there are none.
    fn gpus(&self) -> Result<&'static [&'static Gpu], String> {
        let gpus = gpu::all()?;
        if self.runtime.version() < offer::OLDEST {
            let (oldest, text) = (offer::OLDEST, self.runtime.text);
            return Err(format!("GPUs: expected ONNX Runtime 1.{oldest} or newer, got {text}"));
        }
        Ok(gpus)
    }

    /// Offers the provider on each GPU, and on the CPU where there is none, or where that is asked for. Of the CPU no memory is
    /// declared: tensors are in the runtime's own.
    ///
    /// # Safety
    /// The devices are the runtime's, `offers` has room for `room` answers.
    unsafe fn offer(
        &self,
        this: *mut EpFactory,
        devices: &[*const HardwareDevice],
        offers: *mut *mut EpDevice,
        room: usize,
    ) -> Result<usize, Error> {
        let mut made = EpDevices::new(self.runtime);
        let gpus = self.gpus();
        match &gpus {
            Ok(gpus) => {
                let gpus = &gpus[..gpus.len().min(room)];
                // SAFETY: the caller's promise.
                unsafe { lock(&self.offers).offer(this, devices, gpus, &mut made) }?;
            }
            Err(reason) => self.logger.info(|| format!("{} offers no GPU: {reason}", crate::NAME_TEXT)),
        }
        let with_host = gpus.is_err() || host_is_wanted();
        for device in devices.iter().filter(|device| with_host && !device.is_null()) {
            // SAFETY: the device is the runtime's.
            let kind = unsafe { self.runtime.api.hardware_device_type()(*device) };
            if kind == HardwareDeviceType::CPU && made.len() < room {
                // SAFETY: factory and device are alive.
                unsafe { made.make(this, *device, null()) }?;
            }
        }
        let count = made.len();
        let places = (0..count).map(|index| {
            // SAFETY: there is room for that many.
            unsafe { Place::new(offers.wrapping_add(index), "the array of offers") }
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        // Only now, when nothing can fail any more, does the runtime take them over.
        for (place, offer) in places.iter().zip(made.hand_over()) {
            place.set(offer);
        }
        Ok(count)
    }

    /// The GPU whose memory a session's tensors are in; `None` for the host's.
    ///
    /// # Safety
    /// Devices and metadata are null or the runtime's, valid for the call.
    unsafe fn gpu(
        &self,
        devices: &[*const HardwareDevice],
        metadata: &[*const KeyValuePairs],
        options: &Options,
    ) -> Result<Option<&'static Gpu>, Error> {
        let Ok(gpus) = self.gpus() else {
            return match options.device_id {
                Some(id) => Err(Error::invalid(format!(
                    "{}: expected no \"device_id\" without a GPU, got {id}",
                    crate::NAME_TEXT
                ))),
                None => Ok(None),
            };
        };
        let named = metadata.iter().find_map(|pairs| {
            // SAFETY: the caller's promise.
            let ordinal = unsafe { offer::value_of(&self.runtime, *pairs, offer::ORDINAL) }?;
            gpus.get(ordinal.parse::<usize>().ok()?).copied()
        });
        // SAFETY: the caller's promise.
        let found = || devices.iter().find_map(|device| unsafe { offer::gpu_of(&self.runtime, *device, gpus) });
        match (named.or_else(found), options.device_id) {
            (Some(gpu), Some(id)) if gpu.ordinal() as usize != id => Err(Error::invalid(format!(
                "{}: the session's device is {}, \"device_id\" is {id}",
                crate::NAME_TEXT,
                gpu.ordinal()
            ))),
            (Some(gpu), _) => Ok(Some(gpu)),
            (None, Some(id)) if devices.is_empty() => gpu::of(id).map(Some),
            (None, Some(id)) => Err(Error::invalid(format!(
                "{}: expected no \"device_id\" in a session on the CPU, got {id}",
                crate::NAME_TEXT
            ))),
            // A host that names no device lends a session what is there.
            (None, None) if devices.is_empty() => gpu::current().map(Some),
            (None, None) => Ok(None),
        }
    }

    /// # Safety
    /// `options` is the session's, valid for the call.
    unsafe fn options(&self, options: *const SessionOptions) -> Result<Options, Error> {
        if options.is_null() {
            return Err(Error::invalid(format!("{}: the session's options are null", crate::NAME_TEXT)));
        }
        let api = &self.runtime.api;
        let mut pairs = null_mut();
        // SAFETY: the options are alive and `pairs` is valid for the call.
        let status = unsafe { api.get_session_options_config_entries()(options, &mut pairs) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        let (mut keys, mut values, mut count) = (null(), null(), 0);
        // SAFETY: the pairs are ours and alive, the answers' places are valid for the call.
        unsafe { api.get_key_value_pairs()(pairs, &mut keys, &mut values, &mut count) };
        let entries = (0..count).filter_map(|index| {
            // SAFETY: there are `count` keys and values, texts that live as long as the pairs.
            let (key, value) = unsafe { (text_of(*keys.add(index)), text_of(*values.add(index))) };
            Some((key?, value?))
        });
        let options = Options::parse(entries);
        // SAFETY: the pairs are ours, and what was read of them is copied.
        unsafe { api.release_key_value_pairs()(pairs) };
        options
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Environment variable by which the CPU is offered beside a GPU, too: `on`.
const HOST_SWITCH: &str = "HIPDNN_RS_CPU_ENGINE";

fn host_is_wanted() -> bool {
    std::env::var_os(HOST_SWITCH).is_some_and(|value| value == "on")
}

/// The factories of this process.
static FACTORIES: Handles<Factory> = Handles::new("factory");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Factory {
    type Callbacks = EpFactory;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

unsafe extern "system" fn get_name(_this: *const EpFactory) -> *const c_char {
    crate::NAME.as_ptr()
}

unsafe extern "system" fn get_vendor(_this: *const EpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn get_vendor_id(_this: *const EpFactory) -> u32 {
    VENDOR_ID
}

unsafe extern "system" fn get_version(_this: *const EpFactory) -> *const c_char {
    crate::VERSION.as_ptr()
}

unsafe extern "system" fn get_supported_devices(
    this: *mut EpFactory,
    devices: *const *const HardwareDevice,
    count: usize,
    offers: *mut *mut EpDevice,
    room: usize,
    offered: *mut usize,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let offered = unsafe { Place::new(offered, "the place for the number of offers") }?;
        offered.set(0);
        // SAFETY: the array has that length, if it is one.
        let devices = unsafe { array(devices, count, "the array of devices") }?;
        // SAFETY: the devices are the runtime's, and so is the room.
        offered.set(unsafe { factory.offer(this, devices, offers, room) }?);
        Ok(())
    })
}

unsafe extern "system" fn create_ep(
    this: *mut EpFactory,
    devices: *const *const HardwareDevice,
    metadata: *const *const KeyValuePairs,
    count: usize,
    options: *const SessionOptions,
    logger: *const ort::Logger,
    ep: *mut *mut Ep,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(ep, "the place for the provider") }?;
        // SAFETY: the runtime's logger lives as long as the session.
        let logger = unsafe { Logger::new(factory.runtime, logger) };
        // SAFETY: the options are of this call.
        let storage = unsafe { Storage::of(&factory.runtime, options) };
        // SAFETY: the options are of this call.
        let options = unsafe { factory.options(options) }?;
        let metadata = if metadata.is_null() {
            &[]
        } else {
            // SAFETY: the array has that length.
            unsafe { array(metadata, count, "the array of metadata") }?
        };
        // SAFETY: the array has that length, if it is one.
        let devices = unsafe { array(devices, count, "the array of devices") }?;
        // SAFETY: devices and metadata are of this call.
        let gpu = unsafe { factory.gpu(devices, metadata, &options) }?;
        let provider = Provider::new(factory.runtime, logger, options, storage?, gpu, &factory.registered_name)?;
        place.set(provider.into_raw());
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_this: *mut EpFactory, ep: *mut Ep) {
    // Neither a panic while dropping nor a stranger can be told.
    // SAFETY: the runtime does not use the provider again; what is none is told by its address.
    let _ = caught(|| unsafe { Provider::take_back(ep) });
}

/// Allocators of no session: the environment's, and those of hosts that ask at each session and give nothing back. Without
/// options they are the factory's, one for each description.
unsafe extern "system" fn create_allocator(
    this: *mut EpFactory,
    info: *const MemoryInfo,
    options: *const KeyValuePairs,
    allocator: *mut *mut Allocator,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(allocator, "the place for the allocator") }?;
        place.set(null_mut());
        factory.gpus().map_err(|reason| {
            Error::not_implemented(format!("{} has allocators for GPUs only: {reason}", crate::NAME_TEXT))
        })?;
        // SAFETY: the description is the runtime's, alive as long as the allocator.
        let memory = unsafe { transfer::memory_of(&factory.runtime, info) }?;
        let make = |account: Account, shared| {
            let (runtime, logger) = (factory.runtime, factory.logger);
            gpu::allocator::Allocator::of(runtime, logger, memory, info, (Arc::new(account), None), shared)
        };
        if !options.is_null() {
            // SAFETY: the options are of this call.
            let terms = unsafe { factory.terms(options) }?;
            place.set(make(Account::new(terms), false));
            return Ok(());
        }
        let mut allocators = lock(&factory.allocators);
        let described = Described { address: info.addr(), device: memory.0.ordinal(), pinned: memory.1 };
        if let Some((_, known)) = allocators.iter().find(|(known, _)| *known == described) {
            place.set(known.0);
            return Ok(());
        }
        let made = make(Account::default(), true);
        allocators.push((described, Callback(made)));
        place.set(made);
        Ok(())
    })
}

/// The factory's own stay.
unsafe extern "system" fn release_allocator(_this: *mut EpFactory, allocator: *mut Allocator) {
    // Neither a panic while dropping nor a stranger can be told.
    // SAFETY: the runtime does not use it again; what is none is told by its address.
    let _ = caught(|| unsafe { gpu::allocator::Allocator::take_back(allocator, false) });
}

/// Without a GPU all tensors are in the runtime's own memory, and there is nothing to give; an error would make registration
/// fail.
unsafe extern "system" fn create_data_transfer(
    this: *mut EpFactory,
    data_transfer: *mut *mut DataTransferImpl,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(data_transfer, "the place for the data transfer") }?;
        let made = factory
            .gpus()
            .is_ok()
            .then(|| factory.transfer.get_or_init(|| Callback(DataTransfer::of(factory.runtime))).0);
        place.set(made.unwrap_or(null_mut()));
        Ok(())
    })
}

unsafe extern "system" fn is_stream_aware(this: *const EpFactory) -> bool {
    let mut aware = false;
    // Neither a panic nor a stranger can be told: no streams are asked for then.
    let _ = caught(|| {
        aware = FACTORIES.look(this, |factory| factory.gpus().is_ok())?;
        Ok(())
    });
    aware
}

/// A stream of no session, for applications that order runs themselves.
unsafe extern "system" fn create_sync_stream_for_device(
    this: *mut EpFactory,
    device: *const MemoryDevice,
    _options: *const KeyValuePairs,
    stream: *mut *mut SyncStreamImpl,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(stream, "the place for the stream") }?;
        place.set(null_mut());
        factory.gpus().map_err(Error::not_implemented)?;
        // SAFETY: the device is the runtime's, alive during the call.
        let gpu = unsafe { transfer::gpu_of(&factory.runtime, device) }?;
        place.set(SyncStream::of(factory.runtime, Stream::new(gpu)?));
        Ok(())
    })
}

/// Compatibility of a compiled model with these devices; nothing is said of other providers' models.
unsafe extern "system" fn validate_compiled_model_compatibility_info(
    this: *mut EpFactory,
    devices: *const *const HardwareDevice,
    count: usize,
    info: *const c_char,
    compatibility: *mut CompiledModelCompatibility,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(compatibility, "the place for the compatibility") }?;
        // SAFETY: the array has that length, if it is one.
        let devices = unsafe { array(devices, count, "the array of devices") }?;
        // SAFETY: the text is the runtime's, if it is one.
        let info = unsafe { text_of(info) }.unwrap_or_default();
        let gpus = factory.gpus().unwrap_or_default();
        let same = |device: &*const HardwareDevice| {
            // SAFETY: the device is the runtime's, alive during the call, if it is one.
            let gpu = unsafe { offer::gpu_of(&factory.runtime, *device, gpus) };
            // SAFETY: the device is the runtime's, alive during the call, if it is one.
            let kind = (!device.is_null()).then(|| unsafe { factory.runtime.api.hardware_device_type()(*device) });
            let served = gpu.is_some() || kind == Some(HardwareDeviceType::CPU);
            served && provider::compatibility(gpu).0 == info
        };
        place.set(match info {
            text if !Compatibility::is_ours(text) => CompiledModelCompatibility::NOT_APPLICABLE,
            _ if devices.iter().any(same) => CompiledModelCompatibility::SUPPORTED_OPTIMAL,
            _ => CompiledModelCompatibility::UNSUPPORTED,
        });
        Ok(())
    })
}

/// Reason for not offering a hardware device; nothing is said of one that is.
unsafe extern "system" fn get_hardware_device_incompatibility_details(
    this: *mut EpFactory,
    device: *const HardwareDevice,
    details: *mut DeviceEpIncompatibilityDetails,
) -> *mut Status {
    FACTORIES.with(this, |factory| {
        let set = factory.runtime.ep.device_ep_incompatibility_details_set_details();
        let set = set.ok_or_else(|| Error::not_implemented("ONNX Runtime is too old for it"))?;
        if device.is_null() || details.is_null() {
            return Err(Error::invalid(format!("{}: the device or the place for details is null", crate::NAME_TEXT)));
        }
        // SAFETY: the device is the runtime's, alive during the call.
        let Some((reason, text)) = (unsafe { factory.incompatibility(device) }) else { return Ok(()) };
        let text = CString::new(text.replace('\0', " ")).expect("NULs were replaced");
        // SAFETY: the details are the runtime's; the text is copied.
        unsafe { factory.runtime.check(set(details, reason.0 as u32, 0, text.as_ptr())) }
    })
}

impl Factory {
    /// Reason against a hardware device; `None` if it can be used.
    ///
    /// # Safety
    /// `device` is a living device of the runtime.
    unsafe fn incompatibility(&self, device: *const HardwareDevice) -> Option<(IncompatibilityReason, String)> {
        // SAFETY: the caller's promise.
        let kind = unsafe { self.runtime.api.hardware_device_type()(device) };
        // SAFETY: the caller's promise.
        let vendor = unsafe { self.runtime.api.hardware_device_vendor_id()(device) };
        match (kind, self.gpus()) {
            (HardwareDeviceType::CPU, Ok(_)) if !host_is_wanted() => Some((
                IncompatibilityReason::DEVICE_INCOMPATIBLE,
                format!("beside a GPU the CPU is offered with {HOST_SWITCH}=on only"),
            )),
            (HardwareDeviceType::CPU, _) => None,
            (HardwareDeviceType::GPU, _) if vendor != VENDOR_ID => {
                let text = format!("expected an AMD GPU (PCI vendor {VENDOR_ID:#x}), got vendor {vendor:#x}");
                Some((IncompatibilityReason::DEVICE_INCOMPATIBLE, text))
            }
            (HardwareDeviceType::GPU, Err(reason)) => Some((IncompatibilityReason::MISSING_DEPENDENCY, reason)),
            (HardwareDeviceType::GPU, Ok(gpus)) => {
                // SAFETY: the caller's promise.
                let found = unsafe { offer::gpu_of(&self.runtime, device, gpus) };
                let text = "HIP has no device of this bus id: its driver does not serve it, or it is hidden";
                found.is_none().then(|| (IncompatibilityReason::DRIVER_INCOMPATIBLE, text.to_string()))
            }
            _ => Some((IncompatibilityReason::DEVICE_INCOMPATIBLE, "expected a GPU or a CPU".to_string())),
        }
    }

    /// The terms of an allocator that the application asks for, with the names that the provider's options have.
    ///
    /// # Safety
    /// `options` are the runtime's, alive during the call.
    unsafe fn terms(&self, options: *const KeyValuePairs) -> Result<Terms, Error> {
        let (mut keys, mut values, mut count) = (null(), null(), 0);
        // SAFETY: the pairs are alive, the answers' places are valid for the call.
        unsafe { self.runtime.api.get_key_value_pairs()(options, &mut keys, &mut values, &mut count) };
        let mut prefixed = Vec::new();
        for index in 0..count {
            // SAFETY: there are `count` keys and values, texts that live as long as the pairs.
            if let (Some(key), Some(value)) = unsafe { (text_of(*keys.add(index)), text_of(*values.add(index))) } {
                prefixed.push((format!("{}{key}", crate::options::PREFIX), value));
            }
        }
        let options = Options::parse(prefixed.iter().map(|(key, value)| (key.as_str(), *value)))?;
        Ok(options.terms())
    }
}
