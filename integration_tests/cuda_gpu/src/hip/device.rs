//! The library, its devices and their numbers, and the thread's errors.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice_attribute as Cuda};
use hipdnn_sdk_bindings::hip::{hipDevice_t, hipDeviceAttribute_t as Hip, hipDeviceProp_tR0600, hipError_t, hipUUID};

use crate::device::{self, Device, device};
use crate::rtc::prelude_fingerprint;
use crate::status::{Result, check, hip, peek_last, put, take_last};

/// HIP's release whose functions these are: 7.2, with the driver's CUDA version as its patch level.
const RELEASE: c_int = 70_200_000;

hip! {
    fn hipInit(_flags: c_uint) { Ok(()) }

    #[free]
    fn hipDriverGetVersion(version: *mut c_int) { put(version, release()?) }

    #[free]
    fn hipRuntimeGetVersion(version: *mut c_int) { put(version, release()?) }

    #[free]
    fn hipGetDeviceCount(count: *mut c_int) {
        match device::devices() {
            Ok(devices) => put(count, devices.len() as c_int),
            Err(status) => { put(count, 0)?; Err(status) }
        }
    }

    #[free]
    fn hipGetDevice(ordinal: *mut c_int) { device::devices()?; put(ordinal, device::current()) }

    #[free]
    fn hipSetDevice(ordinal: c_int) { device::set_current(ordinal) }

    fn hipDeviceSynchronize() { check(sys::cuCtxSynchronize()) }

    #[free]
    fn hipDeviceGetAttribute(value: *mut c_int, attribute: Hip, ordinal: c_int) {
        let device = device(ordinal)?;
        let (_, cuda) = ATTRIBUTES.iter().find(|(hip, _)| *hip == attribute).ok_or(hipError_t::hipErrorInvalidValue)?;
        put(value, device.attribute(*cuda)?)
    }

    #[free]
    fn hipGetDevicePropertiesR0600(properties: *mut hipDeviceProp_tR0600, ordinal: c_int) {
        let mut all: hipDeviceProp_tR0600 = std::mem::zeroed();
        fill(&mut all, device(ordinal)?)?;
        put(properties, all)
    }

    #[free]
    fn hipDeviceGetUuid(uuid: *mut hipUUID, ordinal: hipDevice_t) {
        if uuid.is_null() { return Err(hipError_t::hipErrorInvalidValue); }
        check(sys::cuDeviceGetUuid_v2(uuid.cast(), device(ordinal)?.raw))
    }

    #[free]
    fn hipDeviceGetPCIBusId(text: *mut c_char, len: c_int, ordinal: c_int) {
        check(sys::cuDeviceGetPCIBusId(text, len, device(ordinal)?.raw))
    }

    #[free]
    fn hipDeviceTotalMem(bytes: *mut usize, ordinal: hipDevice_t) {
        check(sys::cuDeviceTotalMem_v2(bytes, device(ordinal)?.raw))
    }

    #[free]
    fn hipDeviceCanAccessPeer(answer: *mut c_int, ordinal: c_int, peer: c_int) {
        check(sys::cuDeviceCanAccessPeer(answer, device(ordinal)?.raw, device(peer)?.raw))
    }

    fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        check(sys::cuCtxEnablePeerAccess(device(peer)?.context()?, flags))
    }
}

/// Number of the release.
fn release() -> Result<c_int> {
    device::devices()?;
    let mut cuda = 0;
    // SAFETY: the driver is there; a place for one number.
    check(unsafe { sys::cuDriverGetVersion(&mut cuda) })?;
    Ok(RELEASE + cuda)
}

/// Numbers that both have.
const ATTRIBUTES: [(Hip, Cuda); 24] = [
    (Hip::hipDeviceAttributeMultiprocessorCount, Cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    (Hip::hipDeviceAttributePhysicalMultiProcessorCount, Cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    (Hip::hipDeviceAttributeWarpSize, Cuda::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
    (Hip::hipDeviceAttributeL2CacheSize, Cuda::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    (Hip::hipDeviceAttributeMaxThreadsPerBlock, Cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    (Hip::hipDeviceAttributeMaxThreadsPerMultiProcessor, Cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    (Hip::hipDeviceAttributeMaxBlocksPerMultiProcessor, Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
    (Hip::hipDeviceAttributeMaxBlockDimX, Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
    (Hip::hipDeviceAttributeMaxBlockDimY, Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
    (Hip::hipDeviceAttributeMaxBlockDimZ, Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
    (Hip::hipDeviceAttributeMaxGridDimX, Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
    (Hip::hipDeviceAttributeMaxGridDimY, Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
    (Hip::hipDeviceAttributeMaxGridDimZ, Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
    (Hip::hipDeviceAttributeMaxRegistersPerBlock, Cuda::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
    (Hip::hipDeviceAttributeMaxSharedMemoryPerBlock, Cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
    (
        Hip::hipDeviceAttributeMaxSharedMemoryPerMultiprocessor,
        Cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    ),
    (Hip::hipDeviceAttributeTotalConstantMemory, Cuda::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
    (Hip::hipDeviceAttributeComputeCapabilityMajor, Cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    (Hip::hipDeviceAttributeComputeCapabilityMinor, Cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    (Hip::hipDeviceAttributeMemoryBusWidth, Cuda::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    (Hip::hipDeviceAttributePciBusId, Cuda::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
    (Hip::hipDeviceAttributePciDeviceId, Cuda::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    (Hip::hipDeviceAttributeIntegrated, Cuda::CU_DEVICE_ATTRIBUTE_INTEGRATED),
    (Hip::hipDeviceAttributeMemoryPoolsSupported, Cuda::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
];

/// Fills what HIP's clients read of a device's properties; the rest is zero.
fn fill(all: &mut hipDeviceProp_tR0600, device: &Device) -> Result {
    // SAFETY: the device is the driver's; places for a text of that length and for a number.
    unsafe {
        check(sys::cuDeviceGetName(all.name.as_mut_ptr(), all.name.len() as c_int, device.raw))?;
        check(sys::cuDeviceTotalMem_v2(&mut all.totalGlobalMem, device.raw))?;
    }
    let arch = format!("{}:{}", device.arch()?, prelude_fingerprint());
    for (place, byte) in all.gcnArchName.iter_mut().zip(arch.bytes()) {
        *place = byte as c_char;
    }
    let number = |attribute| device.attribute(attribute);
    all.major = number(Cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    all.minor = number(Cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    all.multiProcessorCount = number(Cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    all.warpSize = number(Cuda::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    all.maxThreadsPerBlock = number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    all.maxThreadsPerMultiProcessor = number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    all.regsPerBlock = number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?;
    all.sharedMemPerBlock = number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)? as usize;
    all.sharedMemPerMultiprocessor = number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? as usize;
    all.l2CacheSize = number(Cuda::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    all.memoryBusWidth = number(Cuda::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
    all.pciBusID = number(Cuda::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    all.pciDeviceID = number(Cuda::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    all.pciDomainID = number(Cuda::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    all.concurrentKernels = 1;
    all.maxGridSize = [
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
    ];
    all.maxThreadsDim = [
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
        number(Cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
    ];
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> hipError_t {
    take_last()
}

#[unsafe(no_mangle)]
extern "C" fn hipExtGetLastError() -> hipError_t {
    take_last()
}

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> hipError_t {
    peek_last()
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(status: hipError_t) -> *const c_char {
    name(status).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(status: hipError_t) -> *const c_char {
    name(status).as_ptr()
}

/// HIP's name of a status.
fn name(status: hipError_t) -> &'static CStr {
    /// No status has a higher number.
    const STATUSES: u32 = 1100;
    static NAMES: OnceLock<Vec<Option<CString>>> = OnceLock::new();
    let known = |number| hipError_t(number).name().map(|name| CString::new(name).expect("names have no NUL"));
    let names = NAMES.get_or_init(|| (0..STATUSES).map(known).collect());
    names.get(status.0 as usize).and_then(Option::as_deref).unwrap_or(c"an unknown status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_hips_names() {
        for (status, want) in [
            (hipError_t::hipSuccess, c"hipSuccess"),
            (hipError_t::hipErrorUnknown, c"hipErrorUnknown"),
            (hipError_t(77_777), c"an unknown status"),
        ] {
            assert_eq!(name(status), want);
        }
    }
}
