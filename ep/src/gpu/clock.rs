//! The clock of a stream: events of HIP around each step, read when the profile is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hipdnn_sdk_bindings::hip::{self, hipEvent_t};

use super::hip::{HipError, call};
use super::stream::Stream;
use crate::profile::{Clock, Span};

/// An event that knows its time.
struct Mark {
    stream: Arc<Stream>,
    raw: hipEvent_t,
}

// SAFETY: HIP's events may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: nothing is written after the event was recorded.
unsafe impl Sync for Mark {}

impl Mark {
    /// Marks the point that a stream has come to.
    fn here(stream: &Arc<Stream>) -> Result<Mark, HipError> {
        let gpu = stream.gpu();
        let _entered = gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for an event.
        unsafe { call!(gpu.hip(), hipEventCreateWithFlags(&mut raw, hip::hipEventDefault)) }?;
        let mark = Mark { stream: stream.clone(), raw };
        // SAFETY: event and stream are alive.
        unsafe { call!(gpu.hip(), hipEventRecord(raw, stream.raw())) }?;
        Ok(mark)
    }

    /// The time from this point to a later one, once both have passed.
    fn until(&self, later: &Mark) -> Result<Duration, HipError> {
        let hip = self.stream.gpu().hip();
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and recorded, and there is a place for the answer.
        unsafe {
            call!(hip, hipEventSynchronize(later.raw))?;
            call!(hip, hipEventElapsedTime(&mut milliseconds, self.raw, later.raw))?;
        }
        Ok(Duration::from_secs_f32((milliseconds / 1e3).max(0.0)))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the event is ours, and not used again.
        let _ = unsafe { call!(self.stream.gpu().hip(), hipEventDestroy(self.raw)) };
    }
}

/// The clock of one run on a stream. Times are the device's, counted from when the host enqueued the run.
pub(crate) struct DeviceClock {
    stream: Arc<Stream>,
    enqueued: Instant,
    origin: Option<Mark>,
    begun: Option<Mark>,
    steps: Vec<(usize, Mark, Mark)>,
}

impl DeviceClock {
    /// A clock that starts now. A step whose events fail is left out.
    pub(crate) fn new(stream: Arc<Stream>) -> DeviceClock {
        let origin = Mark::here(&stream).ok();
        DeviceClock { stream, enqueued: Instant::now(), origin, begun: None, steps: Vec::new() }
    }
}

impl Clock for DeviceClock {
    fn begin(&mut self, _step: usize) {
        self.begun = Mark::here(&self.stream).ok();
    }

    fn end(&mut self, step: usize) {
        if let (Some(begin), Ok(end)) = (self.begun.take(), Mark::here(&self.stream)) {
            self.steps.push((step, begin, end));
        }
    }

    fn spans(&self) -> Vec<Span> {
        let Some(origin) = &self.origin else { return Vec::new() };
        let span = |(step, begin, end): &(usize, Mark, Mark)| {
            let (begin, end) = (origin.until(begin).ok()?, origin.until(end).ok()?);
            Some(Span { step: *step, begin: self.enqueued + begin, end: self.enqueued + end })
        };
        self.steps.iter().filter_map(span).collect()
    }
}
