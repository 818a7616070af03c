//! Memory: allocating, copying, filling, and whose an address is.

use std::ffi::{c_int, c_uint, c_ushort, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUmemorytype, CUpointer_attribute as Attribute, CUstream};
use hipdnn_sdk_bindings::hip::{
    hipDeviceptr_t, hipError_t, hipMemPool_t, hipMemPoolAttr, hipMemcpyKind, hipMemoryType, hipPointerAttribute_t,
    hipStream_t, hipStreamLegacy,
};

use super::address;
use crate::device::device;
use crate::status::{check, hip, put};

/// Flags of pinned memory that CUDA has too: portable, mapped, write-combined. HIP's others are about coherence.
const PINNED: c_uint = 7;

/// The default stream, whatever default stream the compiler was told: both have it under this number.
const LEGACY_STREAM: CUstream = hipStreamLegacy.cast();

hip! {
    fn hipMalloc(place: *mut *mut c_void, bytes: usize) {
        let mut made = 0;
        if bytes > 0 {
            check(sys::cuMemAlloc_v2(&mut made, bytes))?;
        }
        put(place, made as *mut c_void)
    }

    fn hipFree(memory: *mut c_void) {
        if memory.is_null() { return Ok(()); }
        check(sys::cuMemFree_v2(address(memory)))
    }

    fn hipHostMalloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) {
        let mut made = null_mut();
        if bytes > 0 {
            check(sys::cuMemHostAlloc(&mut made, bytes, flags & PINNED))?;
        }
        put(place, made)
    }

    fn hipHostFree(memory: *mut c_void) {
        if memory.is_null() { return Ok(()); }
        check(sys::cuMemFreeHost(memory))
    }

    fn hipMallocAsync(place: *mut *mut c_void, bytes: usize, stream: hipStream_t) {
        let mut made = 0;
        if bytes > 0 {
            check(sys::cuMemAllocAsync(&mut made, bytes, stream.cast()))?;
        }
        put(place, made as *mut c_void)
    }

    fn hipFreeAsync(memory: *mut c_void, stream: hipStream_t) {
        if memory.is_null() { return Ok(()); }
        check(sys::cuMemFreeAsync(address(memory), stream.cast()))
    }

    fn hipDeviceGetDefaultMemPool(pool: *mut hipMemPool_t, ordinal: c_int) {
        check(sys::cuDeviceGetDefaultMemPool(pool.cast(), device(ordinal)?.raw))
    }

    fn hipMemPoolTrimTo(pool: hipMemPool_t, least: usize) { check(sys::cuMemPoolTrimTo(pool.cast(), least)) }

    fn hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void) {
        if attribute != hipMemPoolAttr::hipMemPoolAttrReleaseThreshold { return Err(hipError_t::hipErrorNotSupported); }
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        check(sys::cuMemPoolSetAttribute(pool.cast(), threshold, value))
    }

    fn hipMemGetInfo(free: *mut usize, total: *mut usize) { check(sys::cuMemGetInfo_v2(free, total)) }

    fn hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        if bytes == 0 { return Ok(()); }
        check(sys::cuMemcpy(address(to), address(from), bytes))?;
        if kind == hipMemcpyKind::hipMemcpyDeviceToDevice { return Ok(()); }
        // The driver returns from a copy of pageable memory when it has read that, HIP when the copy is there.
        check(sys::cuStreamSynchronize(LEGACY_STREAM))
    }

    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, _kind: hipMemcpyKind, stream: hipStream_t) {
        if bytes == 0 { return Ok(()); }
        check(sys::cuMemcpyAsync(address(to), address(from), bytes, stream.cast()))
    }

    fn hipMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        _kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let mut copy: sys::CUDA_MEMCPY2D = std::mem::zeroed();
        (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (unified, address(from), from_pitch);
        (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (unified, address(to), to_pitch);
        (copy.WidthInBytes, copy.Height) = (width, height);
        check(sys::cuMemcpy2DAsync_v2(&copy, stream.cast()))
    }

    fn hipMemset(to: *mut c_void, value: c_int, bytes: usize) {
        if bytes == 0 { return Ok(()); }
        check(sys::cuMemsetD8_v2(address(to), value as u8, bytes))
    }

    fn hipMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) {
        if bytes == 0 { return Ok(()); }
        check(sys::cuMemsetD8Async(address(to), value as u8, bytes, stream.cast()))
    }

    fn hipMemsetD16Async(to: hipDeviceptr_t, value: c_ushort, count: usize, stream: hipStream_t) {
        if count == 0 { return Ok(()); }
        check(sys::cuMemsetD16Async(address(to), value, count, stream.cast()))
    }

    fn hipMemsetD32Async(to: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t) {
        if count == 0 { return Ok(()); }
        check(sys::cuMemsetD32Async(address(to), value as c_uint, count, stream.cast()))
    }

    fn hipMemGetAddressRange(base: *mut hipDeviceptr_t, bytes: *mut usize, within: hipDeviceptr_t) {
        check(sys::cuMemGetAddressRange_v2(base.cast(), bytes, address(within)))
    }

    fn hipPointerGetAttributes(place: *mut hipPointerAttribute_t, pointer: *const c_void) {
        // What the driver does not know leaves zeros.
        let (mut kind, mut ordinal, mut managed) = (0 as c_uint, 0 as c_int, 0 as c_uint);
        let (mut on_device, mut on_host) = (null_mut::<c_void>(), null_mut::<c_void>());
        let mut wanted = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
        ];
        let mut places: [*mut c_void; 5] = [
            (&raw mut kind).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast(),
            (&raw mut on_device).cast(), (&raw mut on_host).cast(),
        ];
        let count = wanted.len() as c_uint;
        check(sys::cuPointerGetAttributes(count, wanted.as_mut_ptr(), places.as_mut_ptr(), address(pointer)))?;
        let type_ = match kind {
            _ if managed != 0 => hipMemoryType::hipMemoryTypeManaged,
            1 => hipMemoryType::hipMemoryTypeHost,
            2 => hipMemoryType::hipMemoryTypeDevice,
            _ => hipMemoryType::hipMemoryTypeUnregistered,
        };
        put(place, hipPointerAttribute_t {
            type_, device: ordinal, devicePointer: on_device, hostPointer: on_host,
            isManaged: (managed != 0).into(), allocationFlags: 0,
        })
    }
}
