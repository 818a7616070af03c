//! Recordings: the launches of several plans' executions, replayed by one call.
//!
//! A client says on its thread where a recording begins and ends ([`begin`], [`end`]). In between, each execution of a plan is run with
//! a tape of its own, whose launches are appended to the recording's.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hipdnn_engine_core::error::Error;

use crate::context::Context;
use crate::hip::Tape;
use crate::plan::StepLabels;

/// The launches of several executions on one device.
#[derive(Debug)]
pub struct Recording {
    context: Arc<Context>,
    /// Its steps are those of all executions, one behind the other.
    tape: Tape,
    executions: Vec<Execution>,
}

/// An execution that was recorded.
#[derive(Debug)]
struct Execution {
    /// Number of its first step on the tape.
    first: usize,
    labels: StepLabels,
}

/// A recording that is under way.
#[derive(Debug, Default)]
struct Draft {
    context: Option<Arc<Context>>,
    tape: Tape,
    executions: Vec<Execution>,
    /// Number of their steps.
    steps: usize,
    /// True if an execution can't be repeated by launches alone.
    is_spoiled: bool,
}

/// Number of recordings under way in the process: executions of others look no further.
static DRAFTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The calling thread's draft, or null. A plain address: what a thread's end would have to drop would keep the library loaded.
    static DRAFT: Cell<*mut Draft> = const { Cell::new(null_mut()) };
}

/// The calling thread's draft, which it has no more.
fn take_draft() -> Option<Box<Draft>> {
    let draft = DRAFT.replace(null_mut());
    if draft.is_null() {
        return None;
    }
    DRAFTS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `begin` put the address of a box there, and nobody has it any more.
    Some(unsafe { Box::from_raw(draft) })
}

/// Begins to record the calling thread's executions. What it recorded before is dropped.
pub fn begin() {
    drop(take_draft());
    DRAFT.set(Box::into_raw(Box::default()));
    DRAFTS.fetch_add(1, Ordering::Relaxed);
}

/// Ends the calling thread's recording. Gives the number of executions, and the recording unless one of them can't be repeated.
pub fn end() -> (usize, Option<Recording>) {
    let Some(draft) = take_draft() else { return (0, None) };
    let Draft { context, tape, executions, is_spoiled, .. } = *draft;
    let count = executions.len();
    let recording = context.filter(|_| !is_spoiled).map(|context| Recording { context, tape, executions });
    (count, recording)
}

/// True if the calling thread's executions are recorded.
pub fn is_on() -> bool {
    // A thread sees its own additions.
    DRAFTS.load(Ordering::Relaxed) > 0 && !DRAFT.get().is_null()
}

/// Appends an execution to the calling thread's recording; without a tape it can't be repeated.
pub(crate) fn add(context: &Arc<Context>, labels: StepLabels, tape: Option<&Tape>) {
    // SAFETY: a draft lives until `take_draft`, and no other reference to it is made on this, its only thread, meanwhile.
    let Some(draft) = (unsafe { DRAFT.get().as_mut() }) else { return };
    let known = draft.context.get_or_insert_with(|| Arc::clone(context));
    match tape {
        Some(tape) if Arc::ptr_eq(known, context) => draft.tape.append(tape, draft.steps),
        _ => draft.is_spoiled = true,
    }
    let first = draft.steps;
    draft.steps += labels.len();
    draft.executions.push(Execution { first, labels });
}

impl Recording {
    /// Repeats the launches on a stream.
    ///
    /// # Safety
    /// The plans whose executions were recorded live, with the memory that these were given, and the stream is of their device.
    ///
    /// # Errors
    /// The number of the execution whose launch HIP refuses, with the reason.
    pub unsafe fn replay(&self, stream: *mut c_void) -> Result<(), (usize, Error)> {
        let device = self.context.device();
        let _entered = device.enter_for(stream.cast()).map_err(|error| (0, error))?;
        // SAFETY: the plans keep the kernels' modules; the rest is the caller's promise.
        unsafe { self.tape.replay(device.gpu(), stream) }.map_err(|(step, error)| self.explained(step, error))
    }

    /// The number of the execution that a step of the tape is of, and the error of its launch with what was launched.
    #[cold]
    fn explained(&self, step: usize, error: Error) -> (usize, Error) {
        let number = self.executions.partition_point(|execution| execution.first <= step).saturating_sub(1);
        let explained = |execution: &Execution| execution.labels.explain(step - execution.first, error.clone());
        (number, self.executions.get(number).map_or_else(|| error.clone(), explained))
    }
}
