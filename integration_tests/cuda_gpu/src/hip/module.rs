//! Modules, their functions, and launches.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute};
use hipdnn_sdk_bindings::hip::{
    HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END, hipDeviceptr_t, hipError_t,
    hipEvent_t, hipFunction_attribute, hipFunction_t, hipModule_t, hipStream_t,
};

use super::grouped::Grouped;
use crate::status::{Result, check, hip};

/// CUDA's mark of the end of a list of packed arguments. The other tags are HIP's own numbers.
pub(super) const CU_LAUNCH_PARAM_END: *mut c_void = null_mut();

hip! {
    fn hipModuleLoad(module: *mut hipModule_t, file: *const c_char) { check(sys::cuModuleLoad(module.cast(), file)) }

    fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) {
        check(sys::cuModuleLoadData(module.cast(), image))
    }

    fn hipModuleUnload(module: hipModule_t) { check(sys::cuModuleUnload(module.cast())) }

    fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) {
        check(sys::cuModuleGetFunction(function.cast(), module.cast(), name))
    }

    fn hipModuleGetGlobal(address: *mut hipDeviceptr_t, bytes: *mut usize, module: hipModule_t, name: *const c_char) {
        check(sys::cuModuleGetGlobal_v2(address.cast(), bytes, module.cast(), name))
    }

    fn hipFuncGetAttribute(value: *mut c_int, attribute: hipFunction_attribute, function: hipFunction_t) {
        let wanted = FUNCTION_ATTRIBUTES.get(attribute.0 as usize).ok_or(hipError_t::hipErrorInvalidValue)?;
        check(sys::cuFuncGetAttribute(value, *wanted, function.cast()))
    }

    fn hipModuleLaunchKernel(
        function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: hipStream_t,
        parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, stream, parameters, extra)
    }

    fn hipExtModuleLaunchKernel(
        function: hipFunction_t, threads_x: u32, threads_y: u32, threads_z: u32,
        block_x: u32, block_y: u32, block_z: u32, shared_bytes: usize, stream: hipStream_t,
        parameters: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t, _flags: u32,
    ) {
        let block = [block_x, block_y, block_z];
        if block.contains(&0) { return Err(hipError_t::hipErrorInvalidValue); }
        let grid = [threads_x.div_ceil(block_x), threads_y.div_ceil(block_y), threads_z.div_ceil(block_z)];
        if !start.is_null() {
            check(sys::cuEventRecord(start.cast(), stream.cast()))?;
        }
        launch(function, grid, block, shared_bytes as c_uint, stream, parameters, extra)?;
        if !stop.is_null() {
            check(sys::cuEventRecord(stop.cast(), stream.cast()))?;
        }
        Ok(())
    }

    fn hipModuleLaunchCooperativeKernel(
        function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: hipStream_t,
        parameters: *mut *mut c_void,
    ) {
        let (function, stream) = (function.cast(), stream.cast());
        check(sys::cuLaunchCooperativeKernel(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,
        ))
    }

    fn hipModuleOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: hipFunction_t, shared_bytes: usize, limit: c_int,
    ) {
        check(sys::cuOccupancyMaxPotentialBlockSize(grid, block, function.cast(), None, shared_bytes, limit))
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: hipFunction_t, block: c_int, shared_bytes: usize,
    ) {
        check(sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function.cast(), block, shared_bytes))
    }
}

/// In the order of HIP's numbers, which are CUDA's.
const FUNCTION_ATTRIBUTES: [CUfunction_attribute; 10] = [
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];

/// Launches since the process began, by stream.
static LAUNCHES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

/// Counts a launch, of a kernel or of a library's convolution.
pub(crate) fn count_launch(stream: hipStream_t) {
    *LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner).entry(stream.addr()).or_default() += 1;
}

/// Launches since the process began, for tests that ask whether work was on the device. Writes the streams that had some, and how many each,
/// up to `most` of them; gives the number of streams.
///
/// # Safety
/// Both lists have `most` places.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipdnn_cuda_gpu_launches(streams: *mut usize, launches: *mut u64, most: usize) -> usize {
    let all = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    for (index, (stream, count)) in all.iter().take(most).enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            streams.add(index).write(*stream);
            launches.add(index).write(*count);
        }
    }
    all.len()
}

/// Launches a kernel with its arguments by address, or packed in one piece.
///
/// # Safety
/// As for `hipModuleLaunchKernel`.
unsafe fn launch(
    function: hipFunction_t,
    [grid_x, grid_y, grid_z]: [c_uint; 3],
    [block_x, block_y, block_z]: [c_uint; 3],
    shared_bytes: c_uint,
    stream: hipStream_t,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result {
    let mut packed = [CU_LAUNCH_PARAM_END; 5];
    let extra = match extra.is_null() {
        true => null_mut(),
        false => {
            // SAFETY: the list is the caller's, which ends in its mark.
            unsafe { copy_list(extra, &mut packed) }?;
            packed.as_mut_ptr()
        }
    };
    count_launch(stream);
    if let Some(grouped) = Grouped::of(function) {
        let config = sys::CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: shared_bytes,
            hStream: stream.cast(),
            attrs: null_mut(),
            numAttrs: 0,
        };
        // SAFETY: the caller's promise; the driver reads the arguments before it returns.
        return check(unsafe { grouped.launch(config, parameters, extra) });
    }
    let (function, stream) = (function.cast(), stream.cast());
    // SAFETY: the caller's promise; the driver reads the arguments before it returns.
    check(unsafe {
        sys::cuLaunchKernel(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            parameters,
            extra,
        )
    })
}

/// Copies HIP's list of packed arguments, with CUDA's mark behind it.
///
/// # Safety
/// The list ends in HIP's mark.
unsafe fn copy_list(list: *mut *mut c_void, to: &mut [*mut c_void; 5]) -> Result {
    for (at, pair) in to.chunks_exact_mut(2).enumerate() {
        // SAFETY: no mark has come so far, so the list goes on.
        let tag = unsafe { *list.add(2 * at) };
        if tag == HIP_LAUNCH_PARAM_END {
            return Ok(());
        }
        if tag != HIP_LAUNCH_PARAM_BUFFER_POINTER && tag != HIP_LAUNCH_PARAM_BUFFER_SIZE {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        // SAFETY: behind a tag there is its value.
        pair.copy_from_slice(&[tag, unsafe { *list.add(2 * at + 1) }]);
    }
    // SAFETY: two pairs have gone by, and no mark has.
    if unsafe { *list.add(4) } == HIP_LAUNCH_PARAM_END { Ok(()) } else { Err(hipError_t::hipErrorInvalidValue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_arguments_get_cudas_mark() {
        let (mut bytes, mut arguments) = (8usize, 77u64);
        let (buffer, size): (*mut c_void, *mut c_void) = ((&raw mut arguments).cast(), (&raw mut bytes).cast());
        let (pointer_tag, size_tag) = (HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE);
        let mut list = [pointer_tag, buffer, size_tag, size, HIP_LAUNCH_PARAM_END];
        let mut to = [CU_LAUNCH_PARAM_END; 5];
        // SAFETY: the list ends in its mark.
        unsafe { copy_list(list.as_mut_ptr(), &mut to) }.unwrap();
        assert_eq!(to, [pointer_tag, buffer, size_tag, size, CU_LAUNCH_PARAM_END]);
        list[0] = 17 as *mut c_void;
        // SAFETY: the list has five entries; the first, which is no tag, is where it is refused.
        assert_eq!(unsafe { copy_list(list.as_mut_ptr(), &mut to) }, Err(hipError_t::hipErrorInvalidValue));
        list[0] = HIP_LAUNCH_PARAM_END;
        // SAFETY: the list's first entry is its end.
        assert_eq!(unsafe { copy_list(list.as_mut_ptr(), &mut to) }, Ok(()));
    }
}
