//! Captured runs: what a run enqueues is recorded as one graph of HIP, which later runs launch.
//!
//! All runs of a session that captures are on one stream. The first run with an id is an ordinary one, so that programs,
//! plans and memory are there; the second is recorded, and launched when it ends. Blocks that it took stay the capture's
//! until it is released: replays write where the recorded run did.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_sdk_bindings::hip::{hipGraph_t, hipGraphExec_t, hipStreamCaptureMode};

use super::Gpu;
use super::arena::SHARED;
use super::few::Few;
use super::hip::{Hip, HipError, call, checked};
use super::stream::{Kept, Stream};
use crate::error::Error;

/// The captures of a session.
pub(crate) struct Captures {
    stream: Arc<Stream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The id of the run that is being recorded.
    recording: Option<i32>,
    graphs: HashMap<i32, Stage>,
    /// Graphs that were released while a run was recorded, whose stream must not be waited for.
    retired: Vec<Captured>,
}

/// Progress of the runs with an id.
enum Stage {
    /// One was run, of so many programs.
    Warm(u64),
    Captured(Captured),
}

/// A graph that can be launched.
struct Captured {
    graph: hipGraphExec_t,
    /// Number of the blocks that it owns.
    pool: u32,
    /// The programs that were recorded: they own constants and code.
    _kept: Few<Kept>,
}

// SAFETY: HIP's graphs may be launched from any thread.
unsafe impl Send for Captured {}

/// A graph that was recorded. What is instantiated from it does not need it.
struct Recorded {
    hip: &'static Hip,
    raw: hipGraph_t,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the graph is ours, and used no more.
            let _ = unsafe { call!(self.hip, hipGraphDestroy(self.raw)) };
        }
    }
}

impl Captures {
    /// None yet.
    ///
    /// # Errors
    /// HIP's status, or that its release has no graphs.
    pub(crate) fn new(gpu: &'static Gpu, lent: Option<Arc<Stream>>) -> Result<Captures, Error> {
        let functions = gpu.hip().functions();
        if functions.hipGraphInstantiate.is_none()
            || functions.hipGraphLaunch.is_none()
            || functions.hipGraphExecDestroy.is_none()
        {
            let name = crate::NAME_TEXT;
            return Err(Error::not_implemented(format!(
                "{name}: this release of HIP has no graphs to capture runs in"
            )));
        }
        let stream = match lent {
            Some(lent) => lent,
            None => Stream::new(gpu)?,
        };
        stream.will_capture();
        Ok(Captures { stream, state: Mutex::default() })
    }

    /// The stream that all runs of the session are on.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if runs with that id are replayed.
    pub(crate) fn is_captured(&self, id: i32) -> bool {
        matches!(self.state().graphs.get(&id), Some(Stage::Captured(_)))
    }

    /// A run with that id begins; a negative one is none to be captured.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn begin(&self, id: i32) -> Result<(), Error> {
        let mut state = self.state();
        self.stream.take_calls();
        if id < 0 || state.recording.is_some() || !matches!(state.graphs.get(&id), Some(Stage::Warm(_))) {
            return Ok(());
        }
        static NUMBERS: AtomicU32 = AtomicU32::new(SHARED + 1);
        let hip = self.stream.gpu().hip();
        // What the stream did before is no part of the graph, and blocks that it used are free for it.
        self.stream.synchronize()?;
        let mode = hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
        self.stream.enter_capture(NUMBERS.fetch_add(1, Ordering::Relaxed), || {
            // SAFETY: the stream is alive.
            unsafe { call!(hip, hipStreamBeginCapture(self.stream.raw(), mode)) }
        })?;
        state.recording = Some(id);
        Ok(())
    }

    /// A run with that id ends: one that was recorded is launched, and kept if it ran as many programs as the one before; the
    /// runtime ends runs that failed, too.
    ///
    /// # Errors
    /// HIP's status: work that can't be captured was enqueued, or the launch failed.
    pub(crate) fn end(&self, id: i32) -> Result<(), Error> {
        let mut state = self.state();
        let calls = self.stream.take_calls();
        let Some(id) = state.recording.take() else {
            if id >= 0 && !matches!(state.graphs.get(&id), Some(Stage::Captured(_))) {
                state.graphs.insert(id, Stage::Warm(calls));
            }
            return Ok(());
        };
        let pool = self.stream.capture();
        let graph = self.stream.enter_capture(SHARED, || self.instantiate());
        let kept = self.stream.take_kept();
        let retired = std::mem::take(&mut state.retired);
        let ended = match graph {
            Ok(graph) => {
                let captured = Captured { graph, pool, _kept: kept };
                let launched = self.launch(&captured);
                if matches!(state.graphs.get(&id), Some(Stage::Warm(before)) if *before == calls) {
                    state.graphs.insert(id, Stage::Captured(captured));
                } else {
                    state.graphs.insert(id, Stage::Warm(calls));
                    self.destroy(&captured);
                }
                launched.map_err(Error::from)
            }
            Err(error) => {
                self.stream.gpu().memory().release(pool, &self.stream);
                // The next run is an ordinary one.
                state.graphs.remove(&id);
                Err(Error::failed(format!(
                    "{}: the run with the graph id {id} can't be captured: {error}",
                    crate::NAME_TEXT
                )))
            }
        };
        for captured in &retired {
            self.destroy(captured);
        }
        ended
    }

    /// Ends the capture that the stream is in, however that goes: a stream that stayed in one would take no run any more.
    fn end_capture(&self) -> Result<Recorded, HipError> {
        let hip = self.stream.gpu().hip();
        let mut recorded = Recorded { hip, raw: std::ptr::null_mut() };
        // SAFETY: the stream is alive, and there is a place for the graph.
        let mut end = || unsafe { call!(hip, hipStreamEndCapture(self.stream.raw(), &mut recorded.raw)) };
        end().or_else(|error| end().and(Err(error)))?;
        Ok(recorded)
    }

    fn instantiate(&self) -> Result<hipGraphExec_t, HipError> {
        let recorded = self.end_capture()?;
        let _entered = self.stream.gpu().enter()?;
        let instantiate = recorded.hip.functions().hipGraphInstantiate.expect("it was looked for");
        let mut executable = std::ptr::null_mut();
        let (node, log) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the graph is ours, and there is a place for the answer; no log is wanted.
        checked("hipGraphInstantiate", unsafe { instantiate(&mut executable, recorded.raw, node, log, 0) })?;
        Ok(executable)
    }

    fn launch(&self, captured: &Captured) -> Result<(), HipError> {
        let gpu = self.stream.gpu();
        let _entered = gpu.enter()?;
        let launch = gpu.hip().functions().hipGraphLaunch.expect("it was looked for");
        self.stream.touch();
        // SAFETY: graph and stream are alive.
        let launched = checked("hipGraphLaunch", unsafe { launch(captured.graph, self.stream.raw()) });
        self.stream.touch();
        launched
    }

    /// Launches what was captured under that id.
    ///
    /// # Errors
    /// An error if nothing was captured under the id, or HIP's status.
    pub(crate) fn replay(&self, id: i32) -> Result<(), Error> {
        match self.state().graphs.get(&id) {
            Some(Stage::Captured(captured)) => Ok(self.launch(captured)?),
            _ => Err(Error::invalid(format!("{}: no run with the graph id {id} was captured", crate::NAME_TEXT))),
        }
    }

    /// Drops what was captured under that id, if anything was.
    pub(crate) fn release(&self, id: i32) {
        let mut state = self.state();
        match state.graphs.remove(&id) {
            Some(Stage::Captured(captured)) if state.recording.is_some() => state.retired.push(captured),
            Some(Stage::Captured(captured)) => self.destroy(&captured),
            _ => {}
        }
    }

    fn destroy(&self, captured: &Captured) {
        let gpu = self.stream.gpu();
        // A replay may be under way. One that failed says so to who launched it.
        let _ = self.stream.synchronize();
        if !gpu.hip().is_foreign() {
            let destroy = gpu.hip().functions().hipGraphExecDestroy.expect("it was looked for");
            // SAFETY: the graph is ours, and runs no more.
            let _ = unsafe { destroy(captured.graph) };
        }
        gpu.memory().release(captured.pool, &self.stream);
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        let mut state = self.state();
        let graphs = std::mem::take(&mut state.graphs).into_values();
        let captured = graphs.filter_map(|stage| match stage {
            Stage::Captured(captured) => Some(captured),
            Stage::Warm(_) => None,
        });
        for captured in captured.chain(std::mem::take(&mut state.retired)) {
            self.destroy(&captured);
        }
    }
}
