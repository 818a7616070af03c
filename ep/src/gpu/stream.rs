//! Streams of a GPU: how far they are, what they wait for, and the events between them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_sdk_bindings::hip::{self, hipError_t, hipEvent_t, hipStream_t};

use super::Gpu;
use super::arena::{Consumer, SHARED, Timeline};
use super::hip::{HipError, call};

/// A stream, which the provider made or somebody lends.
pub(crate) struct Stream {
    gpu: &'static Gpu,
    raw: hipStream_t,
    owned: bool,
    timeline: Arc<Timeline>,
    /// Fences of other streams that this one's work comes after.
    waits: Mutex<Vec<(Arc<Timeline>, u64)>>,
    /// Number of the capture in which it is, or [`SHARED`].
    capture: AtomicU32,
    /// How often work was enqueued, and how much of that is known to be done.
    work: AtomicU64,
    done: AtomicU64,
}

// SAFETY: HIP's streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: what is written after the stream was made is atomic or locked.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream, which nothing waits for but what says so.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn new(gpu: &'static Gpu) -> Result<Arc<Stream>, HipError> {
        let _entered = gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for a stream.
        unsafe { call!(gpu.hip(), hipStreamCreateWithFlags(&mut raw, hip::hipStreamNonBlocking)) }?;
        Ok(Stream::known(gpu, raw, true))
    }

    /// Somebody's stream, who keeps it alive longer than the result.
    ///
    /// # Errors
    /// HIP's status, if it is none of this device.
    ///
    /// # Safety
    /// `raw` is a stream, and stays one as long as the result lives.
    pub(crate) unsafe fn lent(gpu: &'static Gpu, raw: *mut c_void) -> Result<Arc<Stream>, HipError> {
        let mut flags = 0;
        // SAFETY: the caller's promise, and a place for the answer.
        unsafe { call!(gpu.hip(), hipStreamGetFlags(raw.cast(), &mut flags)) }?;
        Ok(Stream::known(gpu, raw.cast(), false))
    }

    fn known(gpu: &'static Gpu, raw: hipStream_t, owned: bool) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            gpu,
            raw,
            owned,
            timeline: Arc::default(),
            waits: Mutex::default(),
            capture: AtomicU32::new(SHARED),
            work: AtomicU64::new(0),
            done: AtomicU64::new(0),
        });
        gpu.know(&stream);
        stream
    }

    /// HIP's own object.
    pub(crate) fn raw(&self) -> hipStream_t {
        self.raw
    }

    /// Its device.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Its progress.
    pub(crate) fn progress(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Number of the capture in which it is, or [`SHARED`].
    pub(crate) fn capture(&self) -> u32 {
        self.capture.load(Ordering::Acquire)
    }

    /// Takes note that it is in the capture of that number, or in none.
    pub(crate) fn set_capture(&self, number: u32) {
        self.capture.store(number, Ordering::Release);
    }

    /// Takes note that work is being enqueued, for the calling thread's run to wait for.
    pub(crate) fn touch(self: &Arc<Self>) {
        self.work.fetch_add(1, Ordering::AcqRel);
        self.gpu.note(self);
    }

    /// True if there is work that nobody has waited for.
    pub(crate) fn is_busy(&self) -> bool {
        self.work.load(Ordering::Acquire) != self.done.load(Ordering::Acquire)
    }

    /// Waits on the host for all that was enqueued.
    ///
    /// # Errors
    /// HIP's status, which may be that of a kernel that failed.
    pub(crate) fn synchronize(&self) -> Result<(), HipError> {
        let (reached, work) = (self.timeline.reached(), self.work.load(Ordering::Acquire));
        // SAFETY: the stream is alive.
        let wait = || unsafe { call!(self.gpu.hip(), hipStreamSynchronize(self.raw)) };
        // Whoever is told of a failure gives memory up that the stream may still write to: it is waited for once more.
        let waited = wait();
        if waited.is_ok() || wait().is_ok() {
            self.timeline.pass(reached);
            self.done.fetch_max(work, Ordering::AcqRel);
        }
        waited
    }

    /// Looks whether all that was enqueued is done, without waiting; a stream that captures is not asked.
    pub(crate) fn look(&self) {
        if self.capture() != SHARED {
            return;
        }
        let reached = self.timeline.reached();
        // SAFETY: the stream is alive.
        if unsafe { (self.gpu.hip().functions().hipStreamQuery)(self.raw) } == hipError_t::hipSuccess {
            self.timeline.pass(reached);
        }
    }
}

impl Consumer for Stream {
    fn timeline(&self) -> Option<&Arc<Timeline>> {
        Some(&self.timeline)
    }

    fn comes_after(&self, timeline: &Arc<Timeline>, number: u64) -> bool {
        if Arc::ptr_eq(&self.timeline, timeline) {
            return true;
        }
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.iter().any(|(other, reached)| Arc::ptr_eq(other, timeline) && number <= *reached)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.gpu.forget(self);
        // Whatever fails here, nothing of this stream will ever run again.
        let _ = self.synchronize();
        if self.owned {
            // SAFETY: the stream is ours, and nobody uses it any more.
            let _ = unsafe { call!(self.gpu.hip(), hipStreamDestroy(self.raw)) };
        }
        self.timeline.pass(u64::MAX);
    }
}

/// A point of a stream, for others to wait for.
pub(crate) struct Event {
    stream: Arc<Stream>,
    raw: hipEvent_t,
    /// The stream's last fence when it was recorded.
    reached: AtomicU64,
    /// True if the last point could not be marked: whoever waits for it waits for the stream.
    lost: AtomicBool,
}

// SAFETY: HIP's events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: what is written after the event was made is atomic.
unsafe impl Sync for Event {}

impl Event {
    /// An event of a stream, before anything.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn new(stream: Arc<Stream>) -> Result<Event, HipError> {
        let raw = stream.gpu.take_event()?;
        Ok(Event { stream, raw, reached: AtomicU64::new(0), lost: AtomicBool::new(false) })
    }

    /// Its stream.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Marks the point that the stream has come to. Where that fails the stream is waited for instead: the runtime goes on
    /// whatever it is told.
    pub(crate) fn record(&self) {
        self.reached.store(self.stream.timeline.reached(), Ordering::Release);
        // SAFETY: event and stream are alive.
        let recorded = unsafe { call!(self.stream.gpu.hip(), hipEventRecord(self.raw, self.stream.raw)) };
        self.lost.store(recorded.is_err(), Ordering::Release);
    }

    /// Makes another stream's further work wait for the point.
    ///
    /// # Errors
    /// HIP's status, where the host can't wait either.
    pub(crate) fn hold(&self, other: &Stream) -> Result<(), HipError> {
        // SAFETY: event and stream are alive.
        let held = unsafe { call!(self.stream.gpu.hip(), hipStreamWaitEvent(other.raw, self.raw, 0)) };
        if held.is_err() || self.lost.load(Ordering::Acquire) {
            return self.stream.synchronize();
        }
        let (timeline, reached) = (&self.stream.timeline, self.reached.load(Ordering::Acquire));
        let mut waits = other.waits.lock().unwrap_or_else(PoisonError::into_inner);
        // Timelines of streams that are gone are in no block's fences any more.
        waits.retain(|(other, _)| Arc::strong_count(other) > 1);
        match waits.iter_mut().find(|(other, _)| Arc::ptr_eq(other, timeline)) {
            Some((_, before)) => *before = reached.max(*before),
            None => waits.push((timeline.clone(), reached)),
        }
        Ok(())
    }

    /// Waits on the host for the point.
    ///
    /// # Errors
    /// HIP's status, which may be that of a kernel that failed.
    pub(crate) fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: the event is alive.
        let waited = unsafe { call!(self.stream.gpu.hip(), hipEventSynchronize(self.raw)) };
        if waited.is_err() || self.lost.load(Ordering::Acquire) {
            return self.stream.synchronize();
        }
        self.stream.timeline.pass(self.reached.load(Ordering::Acquire));
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.stream.gpu.put_back_event(self.raw);
    }
}
