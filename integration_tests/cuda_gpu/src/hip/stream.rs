//! Streams and their capture.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUstreamCaptureMode, CUstreamCaptureStatus};
use hipdnn_sdk_bindings::hip::{
    hipDevice_t, hipError_t, hipEvent_t, hipGraph_t, hipHostFn_t, hipStream_t, hipStreamCaptureMode,
    hipStreamCaptureStatus,
};

use crate::device;
use crate::status::{Result, answer, check, hip, put};

hip! {
    fn hipStreamCreate(stream: *mut hipStream_t) { check(sys::cuStreamCreate(stream.cast(), 0)) }

    fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) {
        check(sys::cuStreamCreate(stream.cast(), flags))
    }

    fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int) {
        check(sys::cuStreamCreateWithPriority(stream.cast(), flags, priority))
    }

    fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        check(sys::cuCtxGetStreamPriorityRange(least, greatest))
    }

    fn hipStreamDestroy(stream: hipStream_t) {
        if stream.is_null() { return Err(hipError_t::hipErrorInvalidHandle); }
        check(sys::cuStreamDestroy_v2(stream.cast()))
    }

    fn hipStreamQuery(stream: hipStream_t) { check(sys::cuStreamQuery(stream.cast())) }

    fn hipStreamSynchronize(stream: hipStream_t) { check(sys::cuStreamSynchronize(stream.cast())) }

    fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) {
        check(sys::cuStreamWaitEvent(stream.cast(), event.cast(), flags))
    }

    fn hipStreamGetFlags(stream: hipStream_t, flags: *mut c_uint) { check(sys::cuStreamGetFlags(stream.cast(), flags)) }

    fn hipStreamGetPriority(stream: hipStream_t, priority: *mut c_int) {
        check(sys::cuStreamGetPriority(stream.cast(), priority))
    }

    fn hipStreamGetDevice(stream: hipStream_t, ordinal: *mut hipDevice_t) { put(ordinal, device_of(stream)?) }

    fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) {
        check(sys::cuLaunchHostFunc(stream.cast(), function, data))
    }

    fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) {
        check(sys::cuStreamBeginCapture_v2(stream.cast(), capture_mode(mode)?))
    }

    fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) {
        check(sys::cuStreamEndCapture(stream.cast(), graph.cast()))
    }

    fn hipStreamIsCapturing(stream: hipStream_t, status: *mut hipStreamCaptureStatus) {
        let mut is = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        check(sys::cuStreamIsCapturing(stream.cast(), &mut is))?;
        put(status, hipStreamCaptureStatus(is as c_uint))
    }

    fn hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut hipStreamCaptureStatus, id: *mut c_ulonglong) {
        let mut is = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (graph, nodes, edges, count) = (null_mut(), null_mut(), null_mut(), null_mut());
        check(sys::cuStreamGetCaptureInfo_v3(stream.cast(), &mut is, id, graph, nodes, edges, count))?;
        put(status, hipStreamCaptureStatus(is as c_uint))
    }

    fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) {
        if mode.is_null() { return Err(hipError_t::hipErrorInvalidValue); }
        let mut exchanged = capture_mode(*mode)?;
        check(sys::cuThreadExchangeStreamCaptureMode(&mut exchanged))?;
        put(mode, hipStreamCaptureMode(exchanged as c_uint))
    }
}

/// The stream's device, or -1.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetStreamDeviceId(stream: hipStream_t) -> c_int {
    let mut ordinal = -1;
    answer(|| {
        device::enter()?;
        ordinal = device_of(stream)?;
        Ok(())
    });
    ordinal
}

fn device_of(stream: hipStream_t) -> Result<c_int> {
    let mut context = null_mut();
    // SAFETY: the stream is the caller's, which the driver checks; a place for one handle.
    check(unsafe { sys::cuStreamGetCtx(stream.cast(), &mut context) })?;
    device::of_context(context)
}

fn capture_mode(mode: hipStreamCaptureMode) -> Result<CUstreamCaptureMode> {
    Ok(match mode {
        hipStreamCaptureMode::hipStreamCaptureModeGlobal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        hipStreamCaptureMode::hipStreamCaptureModeThreadLocal => {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        }
        hipStreamCaptureMode::hipStreamCaptureModeRelaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        _ => return Err(hipError_t::hipErrorInvalidValue),
    })
}
