//! Profiles: when each step of a program ran, as events of ONNX Runtime's own profile. Since 1.25.
//!
//! The runtime makes a [`Profiler`] for a session's profile and one for that of each profiled run. It tells them of its own
//! events on the thread on which a partition is then run, so that a run is recorded for those profilers whose event is open
//! on its thread. Events are handed over when profiling ends: only then do clocks of devices have to know their times.

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use hipdnn_sdk_bindings::ort::{
    EpProfilerImpl, ProfilingEvent, ProfilingEventCategory, ProfilingEventsContainer, Status,
};

use crate::error::Error;
use crate::pointer::{Handles, Held};
use crate::program::{Program, Step};
use crate::runtime::{Runtime, caught};

/// A source of the times of a run's steps.
pub(crate) trait Clock: Send + Sync {
    /// A step's plan is about to be executed.
    fn begin(&mut self, step: usize);
    /// It was.
    fn end(&mut self, step: usize);
    /// The times of all steps, asked for once the run is over.
    fn spans(&self) -> Vec<Span>;
}

/// The time that a step took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub step: usize,
    pub begin: Instant,
    pub end: Instant,
}

/// The clock of engines that are done when they return.
#[derive(Default)]
pub(crate) struct HostClock {
    begun: Option<Instant>,
    spans: Vec<Span>,
}

impl Clock for HostClock {
    fn begin(&mut self, _step: usize) {
        self.begun = Some(Instant::now());
    }

    fn end(&mut self, step: usize) {
        if let Some(begin) = self.begun.take() {
            self.spans.push(Span { step, begin, end: Instant::now() });
        }
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.clone()
    }
}

/// A run that was recorded.
struct Run {
    /// The fused node's name.
    name: String,
    program: Arc<Program>,
    clock: Box<dyn Clock>,
    thread: i32,
}

/// Most events of a profile: as many as the runtime has of its own.
const MOST_EVENTS: usize = 1_000_000;

/// Runs that a profiler has recorded.
#[derive(Default)]
struct Log {
    runs: Mutex<Vec<Arc<Run>>>,
    /// Steps of those runs.
    events: AtomicUsize,
    /// Time at which profiling began, and nanoseconds from the runtime's own beginning until then.
    start: Mutex<Option<(Instant, i64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Events of the runtime that are open, with their threads and profilers. No thread-local: its destructor would keep this library
/// mapped as long as the thread lives.
static OPEN: Mutex<Vec<(ThreadId, u64, Arc<Log>)>> = Mutex::new(Vec::new());

/// Number of open events: while there is none no run locks [`OPEN`]. The runtime makes profilers for sessions without a
/// profile, too.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Opens or closes events.
fn change_open(change: impl FnOnce(&mut Vec<(ThreadId, u64, Arc<Log>)>)) {
    let mut open = lock(&OPEN);
    change(&mut open);
    OPENED.store(open.len(), Ordering::Release);
}

/// A run that is being recorded.
pub(crate) struct Recording {
    logs: Vec<Arc<Log>>,
    clock: Box<dyn Clock>,
}

impl Recording {
    /// A recording, by a clock that is made for it, for the profilers that have an event open on this thread; `None` without
    /// one.
    pub(crate) fn start(clock: impl FnOnce() -> Box<dyn Clock>) -> Option<Recording> {
        // An event of this thread was counted on it.
        if OPENED.load(Ordering::Acquire) == 0 {
            return None;
        }
        let here = std::thread::current().id();
        let mut logs: Vec<Arc<Log>> =
            lock(&OPEN).iter().filter(|(thread, ..)| *thread == here).map(|(.., log)| log.clone()).collect();
        logs.sort_by_key(|log| Arc::as_ptr(log).addr());
        logs.dedup_by(|one, other| Arc::ptr_eq(one, other));
        (!logs.is_empty()).then(|| Recording { logs, clock: clock() })
    }

    /// The clock to run the program with.
    pub(crate) fn clock(&mut self) -> &mut dyn Clock {
        &mut *self.clock
    }

    /// Hands the run over to the profilers.
    pub(crate) fn finish(self, name: &str, program: &Arc<Program>) {
        let run = Run { name: name.to_string(), program: program.clone(), clock: self.clock, thread: thread_id() };
        let run = Arc::new(run);
        for log in self.logs {
            let events = log.events.fetch_add(program.steps.len(), Ordering::Relaxed);
            if events < MOST_EVENTS {
                lock(&log.runs).push(run.clone());
            }
        }
    }
}

/// The number by which the runtime's events name a thread.
fn thread_id() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// A profiler, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Profiler {
    callbacks: EpProfilerImpl,
    runtime: Runtime,
    log: Arc<Log>,
}

impl Profiler {
    /// A profiler for the runtime to own; `None` where the runtime takes no events.
    pub(crate) fn create(runtime: Runtime) -> Option<*mut EpProfilerImpl> {
        runtime.ep.create_profiling_event()?;
        let callbacks = EpProfilerImpl {
            ort_version_supported: runtime.version(),
            release: Some(release),
            start_profiling: Some(start_profiling),
            start_event: Some(start_event),
            stop_event: Some(stop_event),
            end_profiling: Some(end_profiling),
        };
        let raw: *mut EpProfilerImpl =
            Box::into_raw(Box::new(Profiler { callbacks, runtime, log: Arc::default() })).cast();
        PROFILERS.add(raw);
        Some(raw)
    }

    /// Hands the events of the recorded runs over.
    ///
    /// # Safety
    /// `container` is the runtime's for this call.
    unsafe fn hand_over(&self, container: *mut ProfilingEventsContainer) -> Result<(), Error> {
        let runs = std::mem::take(&mut *lock(&self.log.runs));
        let Some((start, offset)) = lock(&self.log.start).take() else { return Ok(()) };
        let mut events = Events { runtime: &self.runtime, made: Vec::new() };
        for run in &runs {
            for span in run.clock.spans() {
                let step = &run.program.steps[span.step];
                events.add(run, step, span, start, offset)?;
            }
        }
        // SAFETY: the caller's duty.
        unsafe { events.hand_over(container) }
    }
}

/// Events that the runtime made for us.
struct Events<'a> {
    runtime: &'a Runtime,
    made: Vec<*const ProfilingEvent>,
}

impl Events<'_> {
    /// Makes the event of a step.
    fn add(&mut self, run: &Run, step: &Step, span: Span, start: Instant, offset: i64) -> Result<(), Error> {
        let Some(create) = self.runtime.ep.create_profiling_event() else { return Ok(()) };
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (name, number) = (text(&step.title()), span.step.to_string());
        let arguments = [
            (c"provider", text(crate::NAME_TEXT)),
            (c"program", text(&run.name)),
            (c"step", text(&number)),
            (c"graph", text(step.graph())),
            (c"operations", text(&step.operations())),
            (c"engine", text(step.engine())),
            (c"nodes", text(step.label())),
        ];
        let keys = arguments.each_ref().map(|(key, _)| key.as_ptr());
        let values: [*const c_char; 7] = arguments.each_ref().map(|(_, value)| value.as_ptr());
        let since = microseconds(span.begin.saturating_duration_since(start)) + offset / 1000;
        let duration = microseconds(span.end.saturating_duration_since(span.begin));
        let mut event = std::ptr::null_mut();
        // SAFETY: all texts end in NUL and live during the call, there are as many keys as values, and `event` is valid for
        // the call.
        let status = unsafe {
            create(
                ProfilingEventCategory::KERNEL,
                std::process::id().cast_signed(),
                run.thread,
                name.as_ptr(),
                since,
                duration,
                keys.as_ptr(),
                values.as_ptr(),
                keys.len(),
                &mut event,
            )
        };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        self.made.push(event);
        Ok(())
    }

    /// # Safety
    /// `container` is the runtime's for this call.
    unsafe fn hand_over(&self, container: *mut ProfilingEventsContainer) -> Result<(), Error> {
        let Some(add) = self.runtime.ep.add_profiling_events() else { return Ok(()) };
        if self.made.is_empty() {
            return Ok(());
        }
        // SAFETY: the container is the runtime's, and the events are ours until they are released.
        let status = unsafe { add(container, self.made.as_ptr(), self.made.len()) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }
    }
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        let Some(release) = self.runtime.ep.release_profiling_event() else { return };
        for event in &self.made {
            // SAFETY: the runtime made the event for us, copied it where it was handed over, and it is released once.
            unsafe { release(event.cast_mut()) };
        }
    }
}

fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The profilers of this process.
static PROFILERS: Handles<Profiler> = Handles::new("profiler");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Profiler {
    type Callbacks = EpProfilerImpl;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

unsafe extern "system" fn release(this: *mut EpProfilerImpl) {
    // Neither a panic while dropping nor a stranger can be told.
    let _ = caught(|| {
        PROFILERS.remove(this)?;
        // SAFETY: the callbacks are the first member of a profiler, which was boxed and is known no more.
        let profiler = unsafe { Box::from_raw(this.cast::<Profiler>()) };
        // The end of an event that failed is not told.
        change_open(|open| open.retain(|(.., log)| !Arc::ptr_eq(log, &profiler.log)));
        Ok(())
    });
}

unsafe extern "system" fn start_profiling(this: *mut EpProfilerImpl, offset_ns: i64) -> *mut Status {
    PROFILERS.with(this, |profiler| {
        *lock(&profiler.log.start) = Some((Instant::now(), offset_ns));
        Ok(())
    })
}

unsafe extern "system" fn start_event(this: *mut EpProfilerImpl, correlation: u64) -> *mut Status {
    PROFILERS.with(this, |profiler| {
        change_open(|open| open.push((std::thread::current().id(), correlation, profiler.log.clone())));
        Ok(())
    })
}

unsafe extern "system" fn stop_event(
    this: *mut EpProfilerImpl,
    correlation: u64,
    _event: *const ProfilingEvent,
) -> *mut Status {
    PROFILERS.with(this, |profiler| {
        let own =
            |(_, number, log): &(ThreadId, u64, Arc<Log>)| *number == correlation && Arc::ptr_eq(log, &profiler.log);
        change_open(|open| {
            if let Some(place) = open.iter().rposition(own) {
                open.remove(place);
            }
        });
        Ok(())
    })
}

unsafe extern "system" fn end_profiling(
    this: *mut EpProfilerImpl,
    events: *mut ProfilingEventsContainer,
) -> *mut Status {
    PROFILERS.with(this, |profiler| {
        if events.is_null() {
            return Err(Error::invalid(format!("{}: the place for events is null", crate::NAME_TEXT)));
        }
        // SAFETY: the container is of this call.
        unsafe { profiler.hand_over(events) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_recorded_for_the_profilers_that_have_an_event_open() {
        let (one, other) = (Arc::new(Log::default()), Arc::new(Log::default()));
        let open = |correlation: u64, log: &Arc<Log>| {
            change_open(|open| open.push((std::thread::current().id(), correlation, log.clone())));
        };
        let start = || Recording::start(|| Box::new(HostClock::default()));
        assert!(start().is_none());
        open(1, &one);
        open(2, &one);
        open(2, &other);
        let logs = start().map(|recording| recording.logs.len());
        assert_eq!(logs, Some(2), "each profiler once");
        let elsewhere = std::thread::spawn(|| Recording::start(|| Box::new(HostClock::default())).is_none());
        assert!(elsewhere.join().unwrap(), "no event is open on that thread");
        change_open(Vec::clear);
        assert!(start().is_none(), "all are closed");
    }

    #[test]
    fn the_host_s_clock_has_the_steps_in_their_order() {
        let mut clock = HostClock::default();
        for step in [0, 1, 2] {
            clock.begin(step);
            clock.end(step);
        }
        // A step that failed has no end.
        clock.begin(3);
        let spans = clock.spans();
        assert_eq!(spans.iter().map(|span| span.step).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(spans.iter().all(|span| span.begin <= span.end));
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    }
}
