//! Time between two points of a stream: by HIP's events where the process works on a GPU, else by the clock, since engines
//! without a GPU are done when their call returns.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Instant;

use hipdnn_sdk_bindings::hip::{Hip, hipError_t, hipEvent_t, hipEventDefault, hipStream_t};

use crate::error::{Error, Result};

/// The process's HIP, if an engine or the application has loaded one and it has a device.
fn hip() -> Option<&'static Hip> {
    static HIP: OnceLock<Hip> = OnceLock::new();
    if HIP.get().is_none() {
        // It may be loaded later than the first handle: what is not there is looked for again.
        let found = Hip::of_process().ok()?;
        let mut devices = 0;
        // SAFETY: the place is valid, and the library is open.
        let status = unsafe { (found.functions.hipGetDeviceCount)(&mut devices) };
        if status != hipError_t::hipSuccess || devices < 1 {
            return None;
        }
        let _ = HIP.set(found);
    }
    HIP.get()
}

fn check(function: &str, status: hipError_t) -> Result<()> {
    if status == hipError_t::hipSuccess { Ok(()) } else { Err(Error::internal(format!("{function}: {status}"))) }
}

/// Waits until the current device has nothing left to do.
pub(crate) fn synchronize_device() -> Result<()> {
    // SAFETY: the call has no arguments, and the library is open.
    hip().map_or(Ok(()), |hip| check("hipDeviceSynchronize", unsafe { (hip.functions.hipDeviceSynchronize)() }))
}

/// An event of HIP.
struct Event {
    hip: &'static Hip,
    raw: hipEvent_t,
}

// SAFETY: HIP's events belong to no thread.
unsafe impl Send for Event {}

impl Event {
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
    /// Two events, and the stream as a word that HIP interprets.
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
        let source = match hip() {
            Some(hip) => Source::Stream([Event::new(hip)?, Event::new(hip)?], stream as usize),
            None => Source::Clock([None; 2]),
        };
        Ok(Timer { source, recorded: 0 })
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
