//! Events.

use std::ffi::c_uint;

use cudarc::driver::sys;
use hipdnn_sdk_bindings::hip::{hipEvent_t, hipStream_t};

use crate::status::{check, hip};

/// Flags that CUDA has too: waiting without spinning, no times, other processes. HIP's others are about coherence.
const SHARED: c_uint = 7;

hip! {
    fn hipEventCreate(event: *mut hipEvent_t) { check(sys::cuEventCreate(event.cast(), 0)) }

    fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint) {
        check(sys::cuEventCreate(event.cast(), flags & SHARED))
    }

    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) { check(sys::cuEventRecord(event.cast(), stream.cast())) }

    fn hipEventDestroy(event: hipEvent_t) { check(sys::cuEventDestroy_v2(event.cast())) }

    fn hipEventSynchronize(event: hipEvent_t) { check(sys::cuEventSynchronize(event.cast())) }

    fn hipEventQuery(event: hipEvent_t) { check(sys::cuEventQuery(event.cast())) }

    fn hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t) {
        check(sys::cuEventElapsedTime_v2(milliseconds, start.cast(), stop.cast()))
    }
}
