//! Devices of the runtime for GPUs of HIP: matched by bus id, with what users want to know of them.

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use hipdnn_sdk_bindings::miopen;
use hipdnn_sdk_bindings::ort::{
    AllocatorType, DeviceMemoryType, EpDevice, EpFactory, HardwareDevice, HardwareDeviceType, KeyValuePairs,
    MemoryInfo, MemoryInfoDeviceType,
};

use super::Gpu;
use super::arena::GRANULE;
use crate::error::Error;
use crate::factory::VENDOR_ID;
use crate::runtime::{Runtime, text_of};

/// The oldest API version with which GPUs are offered: the first with registries of kernels.
pub(crate) const OLDEST: u32 = 24;

/// Key of HIP's number of a device, in an offer's metadata.
pub(crate) const ORDINAL: &CStr = c"hip_device";

/// Key of a device's bus id, in the runtime's metadata and ours.
const BUS: &CStr = c"pci_bus_id";

/// Descriptions of a GPU's memories; the runtime keeps their addresses.
pub(crate) struct Infos {
    runtime: Runtime,
    /// Its own memory.
    pub memory: *mut MemoryInfo,
    /// Host memory that it reaches.
    pub pinned: *mut MemoryInfo,
}

// SAFETY: the descriptions are constant.
unsafe impl Send for Infos {}
// SAFETY: the descriptions are constant.
unsafe impl Sync for Infos {}

impl Infos {
    /// Describes a GPU's memories.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) fn new(runtime: Runtime, gpu: &Gpu) -> Result<Infos, Error> {
        let info = |name: &CStr, memory| {
            let mut info = null_mut();
            let create = runtime.api.create_memory_info_v2();
            // SAFETY: the name is copied, and there is a place for the answer.
            let status = unsafe {
                create(
                    name.as_ptr(),
                    MemoryInfoDeviceType::GPU,
                    VENDOR_ID,
                    gpu.ordinal(),
                    memory,
                    GRANULE,
                    AllocatorType::DEVICE,
                    &mut info,
                )
            };
            // SAFETY: the status is ours.
            unsafe { runtime.check(status) }.map(|()| info)
        };
        let mut infos = Infos { runtime, memory: info(c"HipDnnRs", DeviceMemoryType::DEFAULT)?, pinned: null_mut() };
        infos.pinned = info(c"HipDnnRsPinned", DeviceMemoryType::HOST_ACCESSIBLE)?;
        Ok(infos)
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        for info in [self.memory, self.pinned] {
            if !info.is_null() {
                // SAFETY: the description is ours, and the runtime uses it no more.
                unsafe { self.runtime.api.release_memory_info()(info) };
            }
        }
    }
}

/// Pairs of texts that the runtime reads during a call.
struct Pairs {
    runtime: Runtime,
    raw: *mut KeyValuePairs,
}

impl Pairs {
    fn new(runtime: Runtime, pairs: &[(&CStr, String)]) -> Pairs {
        let mut raw = null_mut();
        // SAFETY: a place for pairs.
        unsafe { runtime.api.create_key_value_pairs()(&mut raw) };
        for (key, value) in pairs {
            let Ok(value) = CString::new(value.as_str()) else { continue };
            // SAFETY: the pairs are ours, the texts are copied.
            unsafe { runtime.api.add_key_value_pair()(raw, key.as_ptr(), value.as_ptr()) };
        }
        Pairs { runtime, raw }
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        // SAFETY: the pairs are ours, and the runtime has copied them.
        unsafe { self.runtime.api.release_key_value_pairs()(self.raw) };
    }
}

/// Properties of a GPU that users want to know.
fn metadata(gpu: &Gpu) -> Vec<(&'static CStr, String)> {
    let mut pairs = vec![
        (ORDINAL, gpu.ordinal().to_string()),
        (c"name", gpu.name.clone()),
        (c"architecture", gpu.architecture.clone()),
        (c"memory_bytes", gpu.bytes.to_string()),
    ];
    pairs.extend(gpu.bus.clone().map(|bus| (BUS, bus)));
    let (hip, driver) = gpu.versions();
    pairs.extend(hip.map(|version| (c"hip_version", version.to_string())));
    pairs.extend(driver.map(|version| (c"os_driver_version", version.to_string())));
    pairs.extend(miopen_file().map(|file| (c"miopen_library", file)));
    pairs
}

/// MIOpen's file with its version, where it can be told without loading it.
fn miopen_file() -> Option<String> {
    let root = env::var_os("ROCM_PATH").filter(|root| !root.is_empty()).map(PathBuf::from);
    let loader = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let beside = hipdnn_sdk_bindings::hip::loaded();
    let places = beside
        .iter()
        .filter_map(|hip| hip.parent().map(PathBuf::from))
        .chain(env::split_paths(&loader))
        .chain(root.into_iter().chain([PathBuf::from("/opt/rocm")]).map(|root| root.join("lib")));
    places
        .map(|place| place.join(miopen::LIBRARY_NAME))
        .find_map(|file| file.canonicalize().ok())
        .map(|file| file.display().to_string())
}

/// A text of the runtime's pairs.
///
/// # Safety
/// `pairs` is null or lives as long as `'a`.
pub(crate) unsafe fn value_of<'a>(runtime: &Runtime, pairs: *const KeyValuePairs, key: &CStr) -> Option<&'a str> {
    if pairs.is_null() {
        return None;
    }
    // SAFETY: the pairs are alive, and their texts live as long.
    unsafe { text_of(runtime.api.get_key_value()(pairs, key.as_ptr())) }
}

/// True if a hardware device of the runtime's is an AMD GPU.
///
/// # Safety
/// `device` is a living device.
unsafe fn is_amd(runtime: &Runtime, device: *const HardwareDevice) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        runtime.api.hardware_device_type()(device) == HardwareDeviceType::GPU
            && runtime.api.hardware_device_vendor_id()(device) == VENDOR_ID
    }
}

/// The bus id of a hardware device, if the runtime knows it.
///
/// # Safety
/// `device` is a living device, whose texts live as long as `'a`.
unsafe fn bus_of<'a>(runtime: &Runtime, device: *const HardwareDevice) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { value_of(runtime, runtime.api.hardware_device_metadata()(device), BUS) }
}

/// Index among the runtime's AMD GPUs of each of HIP's, by bus id; where there is one of each, they are the same.
fn matched(found: &[Option<String>], gpus: &[Option<String>]) -> Vec<Option<usize>> {
    let same = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => found.len() == 1 && gpus.len() == 1,
    };
    gpus.iter().map(|gpu| found.iter().position(|found| same(found, gpu))).collect()
}

/// The runtime's AMD GPU that HIP's of that bus id is.
///
/// # Safety
/// `devices` are living devices.
pub(crate) unsafe fn gpu_of(
    runtime: &Runtime,
    device: *const HardwareDevice,
    gpus: &[&'static Gpu],
) -> Option<&'static Gpu> {
    // SAFETY: the caller's promise.
    if device.is_null() || !unsafe { is_amd(runtime, device) } {
        return None;
    }
    // SAFETY: the caller's promise.
    let made = unsafe { value_of(runtime, runtime.api.hardware_device_metadata()(device), ORDINAL) };
    if let Some(made) = made.and_then(|ordinal| ordinal.parse::<usize>().ok()) {
        return gpus.get(made).copied();
    }
    // SAFETY: the caller's promise.
    let bus = unsafe { bus_of(runtime, device) }.map(str::to_string);
    let known: Vec<_> = gpus.iter().map(|gpu| gpu.bus.clone()).collect();
    let same = matched(std::slice::from_ref(&bus), &known).iter().position(Option::is_some);
    same.map(|index| gpus[index])
}

/// Devices that were made for the runtime, and are ours until it takes them over.
pub(crate) struct EpDevices {
    runtime: Runtime,
    made: Vec<*mut EpDevice>,
}

impl EpDevices {
    /// None yet.
    pub(crate) fn new(runtime: Runtime) -> EpDevices {
        EpDevices { runtime, made: Vec::new() }
    }

    /// Makes the offer of a hardware device.
    ///
    /// # Safety
    /// `factory` is the runtime's side of the factory, `hardware` a living device, `metadata` null or living pairs.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) unsafe fn make(
        &mut self,
        factory: *mut EpFactory,
        hardware: *const HardwareDevice,
        metadata: *const KeyValuePairs,
    ) -> Result<*mut EpDevice, Error> {
        let mut offer = null_mut();
        let create = self.runtime.ep.create_ep_device();
        // SAFETY: the caller's promise; pairs are copied, and there is a place for the answer.
        unsafe { self.runtime.check(create(factory, hardware, metadata, null(), &mut offer)) }?;
        self.made.push(offer);
        Ok(offer)
    }

    /// Number of devices that were made.
    pub(crate) fn len(&self) -> usize {
        self.made.len()
    }

    /// Hands them over.
    pub(crate) fn hand_over(mut self) -> Vec<*mut EpDevice> {
        std::mem::take(&mut self.made)
    }
}

impl Drop for EpDevices {
    fn drop(&mut self) {
        for offer in &self.made {
            // SAFETY: the offer is ours still, and not used again.
            unsafe { self.runtime.ep.release_ep_device()(*offer) };
        }
    }
}

/// Offers of a factory, with what the runtime refers to.
pub(crate) struct Offers {
    runtime: Runtime,
    infos: Vec<Infos>,
    /// Hardware devices that the runtime did not find.
    made: Vec<*mut HardwareDevice>,
}

// SAFETY: what is pointed to is constant.
unsafe impl Send for Offers {}

impl Offers {
    /// Of no device yet.
    pub(crate) fn new(runtime: Runtime) -> Offers {
        Offers { runtime, infos: Vec::new(), made: Vec::new() }
    }

    /// Adds the offers of HIP's GPUs, one each, in HIP's order.
    ///
    /// # Safety
    /// `factory` is the runtime's side of the factory; `devices` are null or living devices of the runtime.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) unsafe fn offer(
        &mut self,
        factory: *mut EpFactory,
        devices: &[*const HardwareDevice],
        gpus: &[&'static Gpu],
        offers: &mut EpDevices,
    ) -> Result<(), Error> {
        let runtime = self.runtime;
        // SAFETY: the caller's promise.
        let amd = devices.iter().filter(|device| !device.is_null() && unsafe { is_amd(&runtime, **device) });
        let amd: Vec<_> = amd.copied().collect();
        // SAFETY: the caller's promise.
        let found: Vec<_> = amd.iter().map(|device| unsafe { bus_of(&runtime, *device) }.map(str::to_string)).collect();
        let known: Vec<_> = gpus.iter().map(|gpu| gpu.bus.clone()).collect();
        for (gpu, found) in gpus.iter().zip(matched(&found, &known)) {
            let hardware = match found {
                Some(index) => amd[index],
                None => self.make(gpu)?,
            };
            let infos = Infos::new(runtime, gpu)?;
            let pairs = Pairs::new(runtime, &metadata(gpu));
            // SAFETY: factory, device and pairs are alive.
            let offer = unsafe { offers.make(factory, hardware, pairs.raw) }?;
            let add = runtime.ep.ep_device_add_allocator_info();
            let added = [infos.memory, infos.pinned].into_iter().try_for_each(|info| {
                // SAFETY: offer and description are alive; the description lives as long as the factory.
                unsafe { runtime.check(add(offer, info)) }
            });
            self.infos.push(infos);
            added?;
        }
        Ok(())
    }

    /// A hardware device for a GPU that the runtime did not find, as in containers without `/sys`.
    fn make(&mut self, gpu: &Gpu) -> Result<*const HardwareDevice, Error> {
        let create = self.runtime.ep.create_hardware_device().expect("as new as offers");
        let (number, mut device) = (gpu.ordinal() as u32, null_mut());
        let pairs = Pairs::new(self.runtime, &metadata(gpu));
        // SAFETY: texts are copied, and there is a place for the answer.
        let status = unsafe {
            let vendor: *const c_char = c"AMD".as_ptr();
            create(HardwareDeviceType::GPU, VENDOR_ID, number, vendor, pairs.raw, &mut device)
        };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        self.made.push(device);
        Ok(device)
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if let Some(release) = self.runtime.ep.release_hardware_device() {
            for device in &self.made {
                // SAFETY: the device is ours, and the runtime has released what refers to it.
                unsafe { release(*device) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_matched_by_bus() {
        let bus = |text: &str| (!text.is_empty()).then(|| text.to_string());
        for (found, gpus, want) in [
            (vec!["0000:03:00.0"], vec!["0000:03:00.0"], vec![Some(0)]),
            (vec!["0000:C3:00.0", "0000:03:00.0"], vec!["0000:03:00.0", "0000:c3:00.0"], vec![Some(1), Some(0)]),
            (vec!["0000:03:00.0"], vec!["0000:04:00.0"], vec![None]),
            (vec![""], vec!["0000:04:00.0"], vec![Some(0)]),
            (vec!["0000:03:00.0"], vec![""], vec![Some(0)]),
            (vec!["", ""], vec!["0000:04:00.0"], vec![None]),
            (vec![], vec!["0000:04:00.0", ""], vec![None, None]),
        ] {
            let found: Vec<_> = found.into_iter().map(bus).collect();
            let gpus: Vec<_> = gpus.into_iter().map(bus).collect();
            assert_eq!(matched(&found, &gpus), want, "{found:?} {gpus:?}");
        }
    }
}
