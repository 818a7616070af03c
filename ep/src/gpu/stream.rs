//! Streams of a GPU: how far they are, what they wait for, and the events between them.

use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_sdk_bindings::hip::{self, hipError_t, hipEvent_t, hipStream_t};

use super::Gpu;
use super::arena::{Consumer, SHARED, Timeline};
use super::few::Few;
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
    /// True if runs on it may be captured.
    captures: AtomicBool,
    /// Held while the stream enters or leaves a capture, and while it is asked or waited for, which would end one.
    gate: Mutex<()>,
    /// Number of times that work was enqueued, and of those known to be done.
    work: AtomicU64,
    done: AtomicU64,
    pending: Mutex<Pending>,
}

/// Work that was enqueued on a stream.
#[derive(Default)]
struct Pending {
    /// Owners of what work reads and runs that may not be done.
    kept: Few<Kept>,
    /// Programs that were enqueued since [`Stream::take_calls`].
    calls: u64,
}

/// Owner of memory and code that enqueued work needs.
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

// SAFETY: HIP's streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: what is written after the stream was made is atomic or locked.
unsafe impl Sync for Stream {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        // Two of one stream would know nothing of each other's work.
        static LENDING: Mutex<()> = Mutex::new(());
        let _lending = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(known) = gpu.stream_of(raw) {
            return Ok(known);
        }
        let mut device = -1;
        // SAFETY: the caller's promise, and a place for the answer.
        unsafe { call!(gpu.hip(), hipStreamGetDevice(raw.cast(), &mut device)) }?;
        if device != gpu.ordinal() {
            return Err(HipError { call: "hipStreamGetDevice", status: hipError_t::hipErrorInvalidDevice });
        }
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
            captures: AtomicBool::new(false),
            gate: Mutex::default(),
            work: AtomicU64::new(0),
            done: AtomicU64::new(0),
            pending: Mutex::default(),
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

    /// Enters the capture of that number, or leaves one, by `change`.
    pub(crate) fn enter_capture<R>(
        &self,
        number: u32,
        change: impl FnOnce() -> Result<R, HipError>,
    ) -> Result<R, HipError> {
        let _gate = lock(&self.gate);
        let changed = change();
        // What fails to begin has not begun; what fails to end has ended.
        if changed.is_ok() || number == SHARED {
            self.capture.store(number, Ordering::Release);
        }
        changed
    }

    /// Takes note of a program that is enqueued, and keeps it for the graph that a capture makes: its runs are told from others by
    /// their programs. Of a stream that is never captured nothing is noted, since a program that is dropped sees to its work itself.
    pub(crate) fn count_call<T: Any + Send + Sync>(&self, program: &Arc<T>) {
        if self.captures.load(Ordering::Acquire) {
            lock(&self.pending).calls += 1;
            self.keep(program);
        }
    }

    /// The stream's work is captured from now on.
    pub(crate) fn will_capture(&self) {
        self.captures.store(true, Ordering::Release);
    }

    /// Keeps what enqueued work needs until that is done.
    pub(crate) fn keep<T: Any + Send + Sync>(&self, kept: &Arc<T>) {
        let mut pending = lock(&self.pending);
        if !pending.kept.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(kept))) {
            pending.kept.push(kept.clone());
        }
    }

    /// Takes what is kept, for a graph that is replayed later.
    pub(crate) fn take_kept(&self) -> Few<Kept> {
        std::mem::take(&mut lock(&self.pending).kept)
    }

    /// Number of programs that were enqueued since the last call.
    pub(crate) fn take_calls(&self) -> u64 {
        std::mem::take(&mut lock(&self.pending).calls)
    }

    /// Takes note of work, for the calling thread's run to wait for: before it is enqueued, so that nobody passes over it, and
    /// after, since whoever waits meanwhile may have waited for less.
    pub(crate) fn touch(&self) {
        self.count_work();
        self.gpu.note(self);
    }

    /// The second half of [`Stream::touch`] for a run that has noted the stream before.
    pub(crate) fn count_work(&self) {
        self.work.fetch_add(1, Ordering::AcqRel);
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
        let _gate = lock(&self.gate);
        if self.capture() != SHARED {
            return Err(HipError {
                call: "hipStreamSynchronize",
                status: hipError_t::hipErrorStreamCaptureUnsupported,
            });
        }
        let (reached, work) = (self.timeline.reached(), self.work.load(Ordering::Acquire));
        let kept = self.take_kept();
        // SAFETY: the stream is alive.
        let wait = || unsafe { call!(self.gpu.hip(), hipStreamSynchronize(self.raw)) };
        // Whoever is told of a failure gives memory up that the stream may still write to: it is waited for once more.
        let waited = wait();
        if waited.is_ok() || wait().is_ok() {
            self.timeline.pass(reached);
            self.done.fetch_max(work, Ordering::AcqRel);
        }
        // Dropping programs takes long, and may take locks.
        drop(_gate);
        drop(kept);
        waited
    }

    /// Looks whether all that was enqueued is done, without waiting; a stream that captures is not asked.
    pub(crate) fn look(&self) {
        let _gate = lock(&self.gate);
        if self.capture() != SHARED || self.gpu.hip().is_foreign() {
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
        // Whatever fails here, nothing of this stream will ever run again.
        let _ = self.synchronize();
        if self.owned {
            // SAFETY: the stream is ours, and nobody uses it any more.
            let _ = unsafe { call!(self.gpu.hip(), hipStreamDestroy(self.raw)) };
        }
        self.timeline.pass(u64::MAX);
        self.gpu.forget(self);
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
