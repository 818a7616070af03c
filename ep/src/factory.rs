//! The provider's factory: offers devices and makes a provider for each session.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use hipdnn_sdk_bindings::ort::{
    self, Allocator, DataTransferImpl, Ep, EpDevice, EpFactory, HardwareDevice, HardwareDeviceType, KeyValuePairs,
    MemoryInfo, SessionOptions, Status,
};

use crate::error::Error;
use crate::log::Logger;
use crate::options::Options;
use crate::pointer::{Handles, Place, array};
use crate::provider::Provider;
use crate::runtime::{Runtime, caught, status_of, text_of};

/// AMD's PCI vendor number: hipDNN is AMD's.
const VENDOR_ID: u32 = 0x1002;

const VENDOR: &CStr = c"hipdnn-rs";

/// What the runtime holds for this library: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Factory {
    callbacks: EpFactory,
    runtime: Runtime,
}

impl Factory {
    /// A factory for that runtime.
    pub(crate) fn new(runtime: Runtime) -> Box<Factory> {
        let callbacks = EpFactory {
            ort_version_supported: runtime.version(),
            get_name: Some(get_name),
            get_vendor: Some(get_vendor),
            get_supported_devices: Some(get_supported_devices),
            create_ep: Some(create_ep),
            release_ep: Some(release_ep),
            get_vendor_id: Some(get_vendor_id),
            get_version: Some(get_version),
            create_allocator: Some(create_allocator),
            release_allocator: Some(release_allocator),
            create_data_transfer: Some(create_data_transfer),
            is_stream_aware: Some(is_stream_aware),
            ..EpFactory::default()
        };
        Box::new(Factory { callbacks, runtime })
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

    /// Offers the provider on the CPU, whose memory the host engine's tensors are in. No memory is declared: they are in
    /// the runtime's own. Devices with memory of their own will be offered here, too.
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
        let mut offered = 0;
        for device in devices {
            if offered == room {
                break;
            }
            if device.is_null() {
                continue;
            }
            // SAFETY: the device is the runtime's.
            if unsafe { self.runtime.api.hardware_device_type()(*device) } != HardwareDeviceType::CPU {
                continue;
            }
            // SAFETY: there is room for another one.
            let place = unsafe { Place::new(offers.wrapping_add(offered), "the array of offers") }?;
            let mut offer = null_mut();
            // SAFETY: factory and device are alive, no metadata and no options are given, `offer` is valid for the call.
            let status = unsafe { self.runtime.ep.create_ep_device()(this, *device, null(), null(), &mut offer) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            // The runtime takes the offer over.
            place.set(offer);
            offered += 1;
        }
        Ok(offered)
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

/// The factories of this process.
static FACTORIES: Handles = Handles::new("factory");

/// Runs a callback's body with the factory that its callbacks belong to.
fn with_factory(this: *const EpFactory, body: impl FnOnce(&Factory) -> Result<(), Error>) -> *mut Status {
    if let Err(stranger) = FACTORIES.check(this) {
        return status_of(Err(stranger));
    }
    // SAFETY: the callbacks are the first member of a factory, which lives until the runtime releases it.
    let factory = unsafe { &*this.cast::<Factory>() };
    factory.runtime.guard(|| body(factory))
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
    with_factory(this, |factory| {
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
    _devices: *const *const HardwareDevice,
    _metadata: *const *const KeyValuePairs,
    _count: usize,
    options: *const SessionOptions,
    logger: *const ort::Logger,
    ep: *mut *mut Ep,
) -> *mut Status {
    with_factory(this, |factory| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(ep, "the place for the provider") }?;
        // SAFETY: the runtime's logger lives as long as the session.
        let logger = unsafe { Logger::new(factory.runtime, logger) };
        // SAFETY: the options are of this call.
        let options = unsafe { factory.options(options) }?;
        place.set(Provider::new(factory.runtime, logger, options)?.into_raw());
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_this: *mut EpFactory, ep: *mut Ep) {
    // Neither a panic while dropping nor a stranger can be told.
    // SAFETY: the runtime does not use the provider again; what is none is told by its address.
    let _ = caught(|| unsafe { Provider::take_back(ep) });
}

/// Hosts ask for allocators of device memory that they declared themselves; tensors are in the runtime's own memory.
unsafe extern "system" fn create_allocator(
    this: *mut EpFactory,
    _info: *const MemoryInfo,
    _options: *const KeyValuePairs,
    allocator: *mut *mut Allocator,
) -> *mut Status {
    with_factory(this, |_| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(allocator, "the place for the allocator") }?;
        place.set(null_mut());
        Err(Error::not_implemented(format!(
            "{} has no allocators: its tensors are in the host's memory",
            crate::NAME_TEXT
        )))
    })
}

/// No allocator was ever given.
unsafe extern "system" fn release_allocator(_this: *mut EpFactory, _allocator: *mut Allocator) {}

/// All tensors are in the runtime's own memory, so there is nothing to give; an error would make registration fail.
unsafe extern "system" fn create_data_transfer(
    this: *mut EpFactory,
    data_transfer: *mut *mut DataTransferImpl,
) -> *mut Status {
    with_factory(this, |_| {
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(data_transfer, "the place for the data transfer") }?.set(null_mut());
        Ok(())
    })
}

unsafe extern "system" fn is_stream_aware(_this: *const EpFactory) -> bool {
    false
}
