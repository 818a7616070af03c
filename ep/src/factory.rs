//! The provider's factory: offers devices and makes a provider for each session.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use hipdnn_sdk_bindings::ort::{
    self, DataTransferImpl, Ep, EpDevice, EpFactory, HardwareDevice, HardwareDeviceType, KeyValuePairs, SessionOptions,
    Status,
};

use crate::error::Error;
use crate::log::Logger;
use crate::options::Options;
use crate::provider::Provider;
use crate::runtime::{Runtime, caught, text_of};

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
            create_data_transfer: Some(create_data_transfer),
            is_stream_aware: Some(is_stream_aware),
            ..EpFactory::default()
        };
        Box::new(Factory { callbacks, runtime })
    }

    /// The callbacks, as the runtime holds them; [`Factory::take_back`] undoes it.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut EpFactory {
        debug_assert!(self.callbacks.get_name.is_some());
        Box::into_raw(self).cast()
    }

    /// # Safety
    /// `raw` is null or came from [`Factory::into_raw`], and is not used again.
    pub(crate) unsafe fn take_back(raw: *mut EpFactory) {
        if !raw.is_null() {
            // SAFETY: the callbacks are the first member of a factory, which was boxed.
            drop(unsafe { Box::from_raw(raw.cast::<Factory>()) });
        }
    }

    /// Offers the provider on the CPU, whose memory the host engine's tensors are in. No memory is declared: they are in
    /// the runtime's own. Devices with memory of their own will be offered here, too.
    ///
    /// # Safety
    /// `devices` has `count` devices, `offers` room for `room` answers.
    unsafe fn offer(
        &self,
        this: *mut EpFactory,
        devices: *const *const HardwareDevice,
        count: usize,
        offers: *mut *mut EpDevice,
        room: usize,
    ) -> Result<usize, Error> {
        let mut offered = 0;
        for index in 0..count {
            if offered == room {
                break;
            }
            // SAFETY: there are `count` devices.
            let device = unsafe { *devices.add(index) };
            // SAFETY: the device is the runtime's.
            if unsafe { self.runtime.api.hardware_device_type()(device) } != HardwareDeviceType::CPU {
                continue;
            }
            let mut offer = null_mut();
            // SAFETY: factory and device are alive, no metadata and no options are given, `offer` is valid for the call.
            let status = unsafe { self.runtime.ep.create_ep_device()(this, device, null(), null(), &mut offer) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            // SAFETY: there is room, and the runtime takes the offer over.
            unsafe { *offers.add(offered) = offer };
            offered += 1;
        }
        Ok(offered)
    }

    /// # Safety
    /// `options` is the session's, valid for the call.
    unsafe fn options(&self, options: *const SessionOptions) -> Result<Options, Error> {
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

/// # Safety
/// `this` is a factory's callbacks, as the runtime got them.
unsafe fn factory<'a>(this: *const EpFactory) -> &'a Factory {
    // SAFETY: the callbacks are the first member of a factory, which lives until it is released.
    unsafe { &*this.cast::<Factory>() }
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
    // SAFETY: the runtime calls with what it was given.
    let factory = unsafe { factory(this) };
    factory.runtime.guard(|| {
        // SAFETY: the runtime gives arrays of these lengths.
        let count = unsafe { factory.offer(this, devices, count, offers, room) }?;
        // SAFETY: the runtime gives a place for the number.
        unsafe { *offered = count };
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
    // SAFETY: the runtime calls with what it was given.
    let factory = unsafe { factory(this) };
    factory.runtime.guard(|| {
        // SAFETY: the runtime's logger lives as long as the session.
        let logger = unsafe { Logger::new(factory.runtime, logger) };
        // SAFETY: the options are of this call.
        let options = unsafe { factory.options(options) }?;
        let provider = Provider::new(factory.runtime, logger, options)?;
        // SAFETY: the runtime gives a place for the provider; its callbacks are its first member.
        unsafe { *ep = Box::into_raw(provider).cast() };
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_this: *mut EpFactory, ep: *mut Ep) {
    if ep.is_null() {
        return;
    }
    // A panic while dropping has nowhere to go.
    let _ = caught(|| {
        // SAFETY: the runtime gives a provider back that `create_ep` gave away, and does not use it again.
        drop(unsafe { Box::from_raw(ep.cast::<Provider>()) });
        Ok(())
    });
}

unsafe extern "system" fn create_data_transfer(
    _this: *mut EpFactory,
    data_transfer: *mut *mut DataTransferImpl,
) -> *mut Status {
    // All tensors are in the runtime's own memory.
    // SAFETY: the runtime gives a place for the answer.
    unsafe { *data_transfer = null_mut() };
    null_mut()
}

unsafe extern "system" fn is_stream_aware(_this: *const EpFactory) -> bool {
    false
}
