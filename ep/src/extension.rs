//! The engine plugin's extension of hipDNN's ABI, whatever backend loaded it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

use hipdnn_client::extension::Table;
use hipdnn_ep_compiler::constants::Token;
use hipdnn_sdk_bindings::hipdnn::backend::{Backend, HandlePtr};
use hipdnn_sdk_bindings::hipdnn::extension::{Body, Constant, Constants, MemoryKind, ParallelFor, RecordingPtr};
use hipdnn_sdk_bindings::hipdnn::plugin::{GetLastErrorString, PluginStatus};
use hipdnn_sdk_bindings::ort::{self, KernelContext};

use crate::error::Error;
use crate::runtime::{Runtime, caught};

/// The oldest version that is of use; a newer table begins with what this one has.
const LEAST_VERSION: u32 = 1;

/// The plugin's table, and what the provider does with it.
pub(crate) struct Extension {
    table: Table,
}

impl Extension {
    /// The extension of the plugin among those that the backend has loaded for this handle.
    ///
    /// # Safety
    /// `handle` is one of `backend`'s.
    pub(crate) unsafe fn find(backend: &Backend, handle: HandlePtr) -> Option<Extension> {
        // SAFETY: the caller's promise.
        unsafe { Table::find(backend, handle, LEAST_VERSION) }.map(|table| Extension { table })
    }

    /// The table's version. The table of an older plugin ends where its version does: no reference to all of it is made.
    fn version(&self) -> u32 {
        self.table.version()
    }

    /// Since version 1.
    fn lend_parallel_for(&self) -> unsafe extern "C" fn(*const ParallelFor, *mut ParallelFor) -> PluginStatus {
        // SAFETY: every table has the function, and is valid as long as the library is loaded, which is held here.
        unsafe { (&raw const (*self.table.as_ptr()).lend_parallel_for).read() }
    }

    /// Since version 1.
    fn lend_constants(&self) -> unsafe extern "C" fn(*const Constants, *mut Constants) -> PluginStatus {
        // SAFETY: every table has the function, and is valid as long as the library is loaded, which is held here.
        unsafe { (&raw const (*self.table.as_ptr()).lend_constants).read() }
    }

    /// Lends executions by the calling thread the runtime's threads, until what is returned is dropped.
    pub(crate) fn lend<'a>(&'a self, threads: &'a RuntimeThreads) -> Lent<'a> {
        let lent = ParallelFor { run: Some(run), context: (&raw const *threads).cast_mut().cast() };
        let mut before = ParallelFor::NONE;
        // SAFETY: both are valid for the call; `threads` outlives the loan, which the result ends.
        unsafe { self.lend_parallel_for()(&lent, &mut before) };
        Lent { extension: self, before, _threads: threads }
    }
}

impl Extension {
    /// Result of `make`, with the handles that it makes told where their tensors are, if the plugin can be told.
    pub(crate) fn with_handle_memory<R>(&self, memory: MemoryKind, make: impl FnOnce() -> R) -> R {
        self.table.with_handle_memory(memory, make)
    }

    /// Result of `make`, with the handles that it makes told where engines keep what they find out, if the plugin can be told.
    pub(crate) fn with_handle_cache<R>(&self, directory: Option<&CStr>, make: impl FnOnce() -> R) -> R {
        let Some(directory) = directory.filter(|_| self.version() >= 3) else { return make() };
        // SAFETY: a table of version 3 has the function, and is valid as long as the library is loaded, which is held here.
        let set = unsafe { (&raw const (*self.table.as_ptr()).set_handle_cache).read() };
        let mut before = null();
        // SAFETY: the text ends in NUL, and there is a place for the answer.
        unsafe { set(directory.as_ptr(), &mut before) };
        let _named = Named { set, before };
        make()
    }

    /// Result of `run`, with the executions by the calling thread recorded, if the plugin can: their number, and what replays them.
    pub(crate) fn with_recording<R>(&self, run: impl FnOnce() -> R) -> (R, Option<(usize, RecordingPtr)>) {
        if self.version() < 4 {
            return (run(), None);
        }
        // SAFETY: a table of version 4 has the functions, and is valid as long as the library is loaded, which is held here.
        let (begin, end) = unsafe {
            let table = self.table.as_ptr();
            ((&raw const (*table).begin_recording).read(), (&raw const (*table).end_recording).read())
        };
        // SAFETY: the function asks for nothing.
        if unsafe { begin() } != PluginStatus::SUCCESS {
            return (run(), None);
        }
        let mut open = OpenRecording { extension: self, end: Some(end) };
        let ran = run();
        (ran, open.end())
    }

    /// Enqueues a recording's launches on a stream of HIP.
    ///
    /// # Safety
    /// The recording is the plugin's and not destroyed; its plans live, with the memory that they were executed on, and the stream is
    /// of their device.
    ///
    /// # Errors
    /// The number of the execution whose launch failed, with the plugin's words.
    pub(crate) unsafe fn replay(&self, recording: RecordingPtr, stream: *mut c_void) -> Result<(), (usize, String)> {
        // SAFETY: whoever made a recording has a table of version 4, which has the function, and is valid as long as the library
        // is loaded, which is held here.
        let replay = unsafe { (&raw const (*self.table.as_ptr()).replay).read() };
        let mut execution = 0;
        // SAFETY: the caller's promise, and a place for the number.
        let status = unsafe { replay(recording, stream, &mut execution) };
        if status == PluginStatus::SUCCESS {
            return Ok(());
        }
        Err((execution, format!("{status}{}", self.last_error().map_or_else(String::new, |text| format!(" ({text})")))))
    }

    /// Destroys a recording.
    ///
    /// # Safety
    /// The recording is the plugin's, and nobody uses it any more.
    pub(crate) unsafe fn destroy_recording(&self, recording: RecordingPtr) {
        // SAFETY: whoever made a recording has a table of version 4, which has the function, and is valid as long as the library
        // is loaded, which is held here.
        let destroy = unsafe { (&raw const (*self.table.as_ptr()).destroy_recording).read() };
        // SAFETY: the caller's promise. A failure leaves nothing to be done.
        unsafe { destroy(recording) };
    }

    /// The plugin's words for the calling thread's last error.
    fn last_error(&self) -> Option<String> {
        // SAFETY: hipDNN means this function by the name; the library outlives its use.
        let get = unsafe { self.table.library().optional::<GetLastErrorString>(c"hipdnnPluginGetLastErrorString") }?;
        let mut text = null();
        // SAFETY: a place for the answer.
        unsafe { get(&mut text) };
        // SAFETY: a text of hipDNN's ends in NUL, and is the thread's until its next error.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string())
    }

    /// Result of `build`, with these contents of constants lent to the plans that it builds.
    pub(crate) fn with_constants<R>(&self, contents: &[(Token, &[u8])], build: impl FnOnce() -> R) -> R {
        let tokens: Vec<_> =
            contents.iter().map(|(token, _)| CString::new(token.to_string()).expect("digits alone")).collect();
        let constants: Vec<_> = tokens
            .iter()
            .zip(contents)
            .map(|(token, (_, bytes))| Constant {
                token: token.as_ptr(),
                data: bytes.as_ptr().cast(),
                size: bytes.len(),
            })
            .collect();
        let lent = Constants { constants: constants.as_ptr(), count: constants.len() };
        let mut before = Constants::NONE;
        // SAFETY: both are valid for the call; the constants and what they point to outlive the loan, which ends below.
        unsafe { self.lend_constants()(&lent, &mut before) };
        let _loan = ConstantsLoan { extension: self, before };
        build()
    }
}

/// Directory of caches of the calling thread's handles, until it is dropped.
struct Named {
    set: unsafe extern "C" fn(*const c_char, *mut *const c_char) -> PluginStatus,
    before: *const c_char,
}

impl Drop for Named {
    fn drop(&mut self) {
        // SAFETY: the text is the plugin's own, and stays as long as that is loaded; no answer is wanted.
        unsafe { (self.set)(self.before, std::ptr::null_mut()) };
    }
}

/// Recording of the calling thread's executions, which dropping ends: a panic must not leave the thread recording ever after.
struct OpenRecording<'a> {
    extension: &'a Extension,
    /// The table's function, until it was called.
    end: Option<unsafe extern "C" fn(*mut usize, *mut RecordingPtr) -> PluginStatus>,
}

impl OpenRecording<'_> {
    /// The number of the executions and what replays them, if they can be replayed and were not asked for before.
    fn end(&mut self) -> Option<(usize, RecordingPtr)> {
        let end = self.end.take()?;
        let (mut executions, mut recording) = (0, std::ptr::null_mut());
        // SAFETY: the function is the table's, whose library the extension holds; places for the answers.
        let status = unsafe { end(&mut executions, &mut recording) };
        (status == PluginStatus::SUCCESS && !recording.is_null()).then_some((executions, recording))
    }
}

impl Drop for OpenRecording<'_> {
    fn drop(&mut self) {
        if let Some((_, recording)) = self.end() {
            // SAFETY: the recording was just made, and nobody else knows it.
            unsafe { self.extension.destroy_recording(recording) };
        }
    }
}

/// A loan of constants; dropping it lends again what was lent before.
struct ConstantsLoan<'a> {
    extension: &'a Extension,
    before: Constants,
}

impl Drop for ConstantsLoan<'_> {
    fn drop(&mut self) {
        // SAFETY: what was lent before is lent by somebody up the call stack, who ends that loan later.
        unsafe { self.extension.lend_constants()(&self.before, std::ptr::null_mut()) };
    }
}

/// The threads that the runtime runs an operator on, during one call of it.
pub(crate) struct RuntimeThreads {
    runtime: Runtime,
    context: *const KernelContext,
}

impl RuntimeThreads {
    /// Those of a call.
    ///
    /// # Safety
    /// `context` is the runtime's for a call that lasts as long as the value.
    pub(crate) unsafe fn new(runtime: Runtime, context: *const KernelContext) -> RuntimeThreads {
        RuntimeThreads { runtime, context }
    }

    /// Calls `item` for each number below `count`, in any order; all calls have returned when it does.
    ///
    /// # Errors
    /// If the runtime refuses, or an item panicked.
    pub(crate) fn for_each<F: Fn(usize) + Sync>(&self, count: usize, item: F) -> Result<(), Error> {
        let items = Items { item, panicked: AtomicBool::new(false) };
        let data = (&raw const items).cast_mut().cast();
        // SAFETY: `call_item` gets the items that it is made for, which outlive the call.
        let status = unsafe { self.parallel_for(count, call_item::<F>, data) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        match items.panicked.into_inner() {
            true => Err(Error::failed(format!("{}: internal error: an item of a loop panicked", crate::NAME_TEXT))),
            false => Ok(()),
        }
    }

    /// Calls `body(data, i)` for each `i` below `count`, in any order, one batch an item: the runtime spreads them as it sees fit.
    /// The status is the caller's to release.
    ///
    /// # Safety
    /// `data` is what `body` wants, from any thread, until the call returns.
    unsafe fn parallel_for(&self, count: usize, body: Body, data: *mut c_void) -> *mut ort::Status {
        // SAFETY: the context is of the running call, as `new` was promised; body and data are the caller's fact.
        unsafe { self.runtime.api.kernel_context_parallel_for()(self.context, body, count, 0, data) }
    }
}

/// State that the items of a loop on the runtime's threads share.
struct Items<F> {
    item: F,
    panicked: AtomicBool,
}

unsafe extern "C" fn call_item<F: Fn(usize) + Sync>(data: *mut c_void, item: usize) {
    // SAFETY: `for_each` passes its items, which are shared with all of the runtime's threads until it returns.
    let items = unsafe { &*data.cast::<Items<F>>() };
    let called = caught(|| {
        (items.item)(item);
        Ok(())
    });
    if called.is_err() {
        items.panicked.store(true, Ordering::Relaxed);
    }
}

/// Runs items on the runtime's threads; -1 if the runtime could not.
unsafe extern "C" fn run(context: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int {
    // SAFETY: `lend` passes threads that live until the loan ends.
    let threads = unsafe { &*context.cast::<RuntimeThreads>() };
    // SAFETY: the borrower of the loan gives body and data together.
    let status = unsafe { threads.parallel_for(items, body, data) };
    if status.is_null() {
        return 0;
    }
    // SAFETY: the status is ours, and not used again.
    unsafe { threads.runtime.api.release_status()(status) };
    -1
}

/// A loan; dropping it lends again what was lent before.
pub(crate) struct Lent<'a> {
    extension: &'a Extension,
    before: ParallelFor,
    _threads: &'a RuntimeThreads,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // SAFETY: what was lent before is lent by somebody up the call stack, who ends that loan later.
        unsafe { self.extension.lend_parallel_for()(&self.before, std::ptr::null_mut()) };
    }
}
