//! Time between two points of a stream: by HIP's events where the process works on a GPU, else by the clock, since engines
//! without a GPU are done when their call returns.

use std::ffi::c_void;
use std::time::Instant;

use hipdnn_sdk_bindings::hip::{Hip, hipEvent_t, hipEventDefault, hipStream_t};

use crate::device::{self, check};
use crate::error::{Error, Result};

/// Waits until the device of the stream has nothing left to do.
pub(crate) fn synchronize_device(stream: *mut c_void) -> Result<()> {
    let Some(hip) = device::hip() else { return Ok(()) };
    device::current_for(hip, stream, || {
        // SAFETY: the call has no arguments, and the library is open.
        check("hipDeviceSynchronize", unsafe { (hip.functions.hipDeviceSynchronize)() })
    })
}

/// An event of HIP.
struct Event {
    hip: &'static Hip,
    raw: hipEvent_t,
}

// SAFETY: HIP's events belong to no thread.
unsafe impl Send for Event {}

impl Event {
    /// An event of the current device.
    fn new(hip: &'static Hip) -> Result<Event> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the place is valid, and the library is open.
        let status = unsafe { (hip.functions.hipEventCreateWithFlags)(&mut raw, hipEventDefault) };
        check("hipEventCreateWithFlags", status)?;
        Ok(Event { hip, raw })
    }

    fn record(&self, stream: usize) -> Result<()> {
        // SAFETY: the event is live; the stream is the handle's, which its client keeps alive as long as it is used.
        check("hipEventRecord", unsafe { (self.hip.functions.hipEventRecord)(self.raw, stream as hipStream_t) })
    }

    /// Milliseconds from `start` to this event, once it has come.
    fn since(&self, start: &Event) -> Result<f32> {
        let functions = &self.hip.functions;
        // SAFETY: the event is live.
        check("hipEventSynchronize", unsafe { (functions.hipEventSynchronize)(self.raw) })?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are live, and the place is valid.
        let status = unsafe { (functions.hipEventElapsedTime)(&mut milliseconds, start.raw, self.raw) };
        check("hipEventElapsedTime", status)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is live, and this was its only owner.
        unsafe { (self.hip.functions.hipEventDestroy)(self.raw) };
    }
}

/// What tells the time.
enum Source {
    Clock([Option<Instant>; 2]),
    /// Two events of the stream's device, and the stream as a word that HIP interprets.
    Stream([Event; 2], usize),
}

/// A stop watch over a stream.
pub(crate) struct Timer {
    source: Source,
    recorded: usize,
}

impl Timer {
    /// A timer of what is done on this stream.
    pub(crate) fn new(stream: *mut c_void) -> Result<Timer> {
        let source = match device::hip() {
            // HIP records an event on streams of the event's own device only.
            Some(hip) => {
                let events = device::current_for(hip, stream, || Ok([Event::new(hip)?, Event::new(hip)?]))?;
                Source::Stream(events, stream as usize)
            }
            None => Source::Clock([None; 2]),
        };
        Ok(Timer { source, recorded: 0 })
    }

    /// The stream whose work is timed; null where none is told to HIP.
    pub(crate) fn stream(&self) -> *mut c_void {
        match &self.source {
            Source::Clock(_) => std::ptr::null_mut(),
            Source::Stream(_, stream) => *stream as *mut c_void,
        }
    }

    /// Records the start.
    pub(crate) fn start(&mut self) -> Result<()> {
        if self.recorded > 0 {
            return Err(Error::bad_param("the start has been recorded already"));
        }
        self.record()
    }

    /// Records the end.
    pub(crate) fn stop(&mut self) -> Result<()> {
        match self.recorded {
            1 => self.record(),
            0 => Err(Error::bad_param("the start has to be recorded before the end")),
            _ => Err(Error::bad_param("the end has been recorded already")),
        }
    }

    fn record(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Clock(times) => times[self.recorded] = Some(Instant::now()),
            Source::Stream(events, stream) => events[self.recorded].record(*stream)?,
        }
        self.recorded += 1;
        Ok(())
    }

    /// Milliseconds between start and end; waits for the end.
    pub(crate) fn elapsed(&self) -> Result<f32> {
        let milliseconds = match &self.source {
            Source::Clock([Some(start), Some(end)]) => (*end - *start).as_secs_f32() * 1e3,
            Source::Stream([start, end], _) if self.recorded == 2 => end.since(start)?,
            _ if self.recorded == 0 => return Err(Error::bad_param("the start was not recorded")),
            _ => return Err(Error::bad_param("the end was not recorded")),
        };
        if milliseconds.is_finite() && milliseconds >= 0.0 {
            Ok(milliseconds)
        } else {
            Err(Error::internal(format!("expected a time of at least 0 ms between the events, got {milliseconds}")))
        }
    }
}
