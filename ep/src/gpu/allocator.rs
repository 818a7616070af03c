//! Allocators of a GPU's memory, and of host memory that it reaches, as the runtime holds them.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::{self, KeyValuePairs, MemoryInfo, Status};

use super::Gpu;
use super::arena::SHARED;
use super::memory::{Account, Memory};
use super::stream::Stream;
use super::sync;
use crate::error::Error;
use crate::log::Logger;
use crate::pointer::{Handles, Held, Place};
use crate::runtime::{Runtime, caught, status_of};

/// An allocator, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Allocator {
    callbacks: ort::Allocator,
    runtime: Runtime,
    logger: Logger,
    gpu: &'static Gpu,
    pinned: bool,
    info: *const MemoryInfo,
    account: Arc<Account>,
    /// The stream of a session that captures runs: what is allocated while it does is the capture's.
    captures: Option<Arc<Stream>>,
    /// The factory's: others' releases leave it alone.
    shared: bool,
}

static ALLOCATORS: Handles<Allocator> = Handles::new("allocator");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Allocator {
    type Callbacks = ort::Allocator;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Allocator {
    /// Makes an allocator for a memory, which is described by `info` as long as it lives.
    pub(crate) fn of(
        runtime: Runtime,
        logger: Logger,
        (gpu, pinned): (&'static Gpu, bool),
        info: *const MemoryInfo,
        (account, captures): (Arc<Account>, Option<Arc<Stream>>),
        shared: bool,
    ) -> *mut ort::Allocator {
        let callbacks = ort::Allocator {
            version: runtime.version(),
            alloc: Some(alloc),
            free: Some(free),
            info: Some(info_of),
            reserve: Some(alloc),
            get_stats: Some(get_stats),
            alloc_on_stream: Some(alloc_on_stream),
            shrink: Some(shrink),
        };
        let allocator = Allocator { callbacks, runtime, logger, gpu, pinned, info, account, captures, shared };
        let raw = Box::into_raw(Box::new(allocator)).cast();
        ALLOCATORS.add(raw);
        raw
    }

    /// Takes an allocator back; the factory's own only if `own`.
    ///
    /// # Safety
    /// Nobody uses it any more, unless it is the factory's.
    pub(crate) unsafe fn take_back(raw: *mut ort::Allocator, own: bool) -> Result<(), Error> {
        ALLOCATORS.check(raw)?;
        // SAFETY: the callbacks are the first member of an allocator that was not taken back.
        if unsafe { &*raw.cast::<Allocator>() }.shared && !own {
            return Ok(());
        }
        ALLOCATORS.remove(raw)?;
        // SAFETY: it was boxed, and is known no more.
        drop(unsafe { Box::from_raw(raw.cast::<Allocator>()) });
        Ok(())
    }

    fn memory(&self) -> &Memory {
        if self.pinned { self.gpu.pinned() } else { self.gpu.memory() }
    }

    /// A block; null if there is none, which is logged, and said by whatever is then given the null.
    fn take(&self, bytes: usize, stream: *mut ort::SyncStream) -> *mut c_void {
        // SAFETY: the stream is the runtime's, alive during the call, if it is one.
        let stream = (!stream.is_null()).then(|| unsafe { sync::stream_of(&self.runtime, stream) }).flatten();
        let recording = || self.captures.clone().filter(|stream| stream.capture() != SHARED);
        let stream = stream.or_else(recording);
        match self.memory().take(self.gpu, bytes, stream.as_deref(), &self.account) {
            Ok(block) => block,
            Err(error) => {
                self.logger.warning(|| error.message);
                null_mut()
            }
        }
    }
}

/// The allocator that callbacks belong to.
fn known<'a>(this: *const ort::Allocator) -> Result<&'a Allocator, Error> {
    ALLOCATORS.check(this)?;
    // SAFETY: the callbacks are the first member of an allocator, which lives until the runtime releases it.
    Ok(unsafe { &*this.cast::<Allocator>() })
}

unsafe extern "system" fn alloc(this: *mut ort::Allocator, size: usize) -> *mut c_void {
    // SAFETY: no stream is named.
    unsafe { alloc_on_stream(this, size, null_mut()) }
}

unsafe extern "system" fn alloc_on_stream(
    this: *mut ort::Allocator,
    size: usize,
    stream: *mut ort::SyncStream,
) -> *mut c_void {
    let mut block = null_mut();
    // Neither a panic nor a stranger can be told.
    let _ = caught(|| {
        if size > 0 {
            block = known(this)?.take(size, stream);
        }
        Ok(())
    });
    block
}

unsafe extern "system" fn free(this: *mut ort::Allocator, memory: *mut c_void) {
    // Neither a panic nor a stranger can be told.
    let _ = caught(|| {
        let allocator = known(this)?;
        allocator.memory().put_back(allocator.gpu, memory, &allocator.account, false);
        Ok(())
    });
}

unsafe extern "system" fn info_of(this: *const ort::Allocator) -> *const MemoryInfo {
    known(this).map_or(std::ptr::null(), |allocator| allocator.info)
}

unsafe extern "system" fn get_stats(this: *const ort::Allocator, stats: *mut *mut KeyValuePairs) -> *mut Status {
    let answer = || {
        let allocator = known(this)?;
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(stats, "the place for the numbers") }?;
        let numbers = allocator.memory().stats();
        let api = &allocator.runtime.api;
        let mut pairs = null_mut();
        // SAFETY: a place for the pairs.
        unsafe { api.create_key_value_pairs()(&mut pairs) };
        let limit = i64::try_from(allocator.account.limit()).unwrap_or(-1);
        for (key, value) in [
            (c"Limit", limit),
            (c"InUse", numbers.used as i64),
            (c"TotalAllocated", numbers.held as i64),
            (c"MaxInUse", numbers.most_used as i64),
            (c"NumAllocs", numbers.allocations as i64),
            (c"NumReserves", 0),
            (c"NumArenaExtensions", numbers.extensions as i64),
            (c"NumArenaShrinkages", numbers.shrinkages as i64),
            (c"MaxAllocSize", numbers.largest as i64),
        ] {
            let value = CString::new(value.to_string()).expect("digits alone");
            // SAFETY: the pairs are ours, the texts are copied.
            unsafe { api.add_key_value_pair()(pairs, key.as_ptr(), value.as_ptr()) };
        }
        place.set(pairs);
        Ok(())
    };
    status_of(caught(answer))
}

unsafe extern "system" fn shrink(this: *mut ort::Allocator) -> *mut Status {
    status_of(caught(|| {
        let allocator = known(this)?;
        allocator.memory().shrink(allocator.gpu);
        Ok(())
    }))
}
