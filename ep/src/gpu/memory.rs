//! Memory of a GPU, and host memory that it reaches: an arena whose regions come from HIP.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_sdk_bindings::hip::hipError_t;

use super::Gpu;
use super::arena::{Arena, Consumer, GRANULE, Nobody, SHARED, Stats};
use super::hip::HipError;
use super::stream::Stream;
use crate::error::Error;

/// Regions are at least so large where they grow, in bytes.
const LEAST_REGION: usize = 2 << 20;

/// Regions do not grow beyond this but for what is asked for, in bytes.
const MOST_REGION: usize = 512 << 20;

/// Growth of an arena's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Growth {
    /// As much again as is held: few calls of HIP.
    #[default]
    Doubling,
    /// Bytes that are asked for, and no more.
    Exact,
}

/// Terms under which a user has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Most bytes in use at a time.
    pub limit: usize,
    /// Growth of regions for it.
    pub growth: Growth,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { limit: usize::MAX, growth: Growth::default() }
    }
}

/// A user's account: a session, or the environment.
#[derive(Debug, Default)]
pub(crate) struct Account {
    terms: Terms,
    used: AtomicUsize,
}

impl Account {
    /// An account on these terms.
    pub(crate) fn new(terms: Terms) -> Account {
        Account { terms, used: AtomicUsize::new(0) }
    }

    /// Most bytes in use at a time.
    pub(crate) fn limit(&self) -> usize {
        self.terms.limit
    }

    /// True if there is a limit: else nobody asks what is used.
    fn is_limited(&self) -> bool {
        self.terms.limit != usize::MAX
    }
}

/// Memory of one kind.
pub(crate) struct Memory {
    pinned: bool,
    arena: Mutex<Arena>,
    /// Message of the last request that could not be met: allocators can't tell it themselves.
    failure: Mutex<Option<String>>,
    /// True if there is one.
    has_failed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub(super) fn new(pinned: bool) -> Memory {
        Memory { pinned, arena: Mutex::default(), failure: Mutex::default(), has_failed: AtomicBool::new(false) }
    }

    /// Its kind, for messages.
    fn kind(&self) -> &'static str {
        if self.pinned { "pinned host memory" } else { "device memory" }
    }

    /// The arena's numbers.
    pub(crate) fn stats(&self) -> Stats {
        lock(&self.arena).stats()
    }

    /// Message of the last request that could not be met.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// A block for work on a stream, or for anything if that is `None`.
    ///
    /// # Errors
    /// If there is no memory; the message has the bytes that were asked for, are held and are free.
    pub(crate) fn take(
        &self,
        gpu: &'static Gpu,
        bytes: usize,
        stream: Option<&Stream>,
        account: &Account,
    ) -> Result<*mut c_void, Error> {
        let taken = self.try_take(gpu, bytes, stream, account);
        if taken.is_err() || self.has_failed.load(Ordering::Acquire) {
            let mut failure = lock(&self.failure);
            *failure = taken.as_ref().err().map(|error| error.message.clone());
            self.has_failed.store(taken.is_err(), Ordering::Release);
        }
        taken
    }

    fn try_take(
        &self,
        gpu: &'static Gpu,
        bytes: usize,
        stream: Option<&Stream>,
        account: &Account,
    ) -> Result<*mut c_void, Error> {
        gpu.hip().check_process()?;
        let Some(wanted) = Arena::rounded(bytes) else { return Err(self.refusal(gpu, bytes, "it is too much")) };
        let find = || self.find(gpu, bytes, wanted, stream, account.terms.growth);
        if !account.is_limited() {
            return find();
        }
        let before = account.used.fetch_add(wanted, Ordering::AcqRel);
        let found = if before.checked_add(wanted).is_none_or(|used| used > account.terms.limit) {
            let limit = account.terms.limit;
            Err(self.refusal(gpu, bytes, &format!("its user has {before} of at most {limit} bytes")))
        } else {
            find()
        };
        found.inspect_err(|_| {
            account.used.fetch_sub(wanted, Ordering::AcqRel);
        })
    }

    fn find(
        &self,
        gpu: &'static Gpu,
        bytes: usize,
        wanted: usize,
        stream: Option<&Stream>,
        growth: Growth,
    ) -> Result<*mut c_void, Error> {
        let pool = stream.map_or(SHARED, Stream::capture);
        let consumer: &dyn Consumer = match stream {
            Some(stream) => stream,
            None => &Nobody,
        };
        let mut arena = lock(&self.arena);
        let retry = |arena: &mut Arena| arena.take(bytes, pool, consumer).map(std::ptr::without_provenance_mut);
        if let Some(block) = retry(&mut arena) {
            return Ok(block);
        }
        if arena.has_waiting(bytes) {
            gpu.each_stream(|stream| stream.look());
            arena.settle();
            if let Some(block) = retry(&mut arena) {
                return Ok(block);
            }
        }
        let held = arena.stats().held;
        let region = match growth {
            Growth::Exact => wanted,
            Growth::Doubling => wanted.max(held.clamp(LEAST_REGION, MOST_REGION)).next_multiple_of(GRANULE),
        };
        let mut refused = match self.extend(gpu, &mut arena, region) {
            Ok(()) => return Ok(retry(&mut arena).expect("the region is free")),
            Err(error) => error,
        };
        // What is kept in vain may be what is missing; if not, what streams still work on.
        for wait in [false, true] {
            if wait {
                gpu.each_stream(|stream| {
                    if stream.capture() == SHARED {
                        // A stream that failed says so to who uses it.
                        let _ = stream.synchronize();
                    }
                });
                arena.settle();
                if let Some(block) = retry(&mut arena) {
                    return Ok(block);
                }
            }
            self.give_back_idle(gpu, &mut arena);
            match self.extend(gpu, &mut arena, wanted) {
                Ok(()) => return Ok(retry(&mut arena).expect("the region is free")),
                Err(error) => refused = error,
            }
        }
        let stats = arena.stats();
        drop(arena);
        let free =
            gpu.free_memory().map_or_else(String::new, |(free, total)| format!("; {free} of {total} bytes are free"));
        let why = format!("{refused}; {} bytes are held, {} of them in use{free}", stats.held, stats.used);
        Err(self.refusal(gpu, bytes, &why))
    }

    fn refusal(&self, gpu: &Gpu, bytes: usize, why: &str) -> Error {
        let (name, kind, device) = (crate::NAME_TEXT, self.kind(), gpu.ordinal());
        Error::failed(format!("{name}: expected {bytes} bytes of {kind} on device {device}, got none: {why}"))
    }

    fn extend(&self, gpu: &'static Gpu, arena: &mut Arena, bytes: usize) -> Result<(), HipError> {
        let _entered = gpu.enter()?;
        let region = gpu.hip().take(bytes, self.pinned)?;
        if region.is_null() || !region.addr().is_multiple_of(GRANULE) {
            // SAFETY: it was taken just now.
            let _ = unsafe { gpu.hip().give_back(region, self.pinned) };
            return Err(HipError { call: "hipMalloc", status: hipError_t::hipErrorInvalidValue });
        }
        arena.extend(region.addr(), bytes);
        Ok(())
    }

    fn give_back_idle(&self, gpu: &'static Gpu, arena: &mut Arena) {
        for region in arena.shrink() {
            // SAFETY: the region came from HIP, and the arena has given it up: nothing in it is used or waited for. That it
            // can't be given back, which a lost device says, can't be helped.
            let _ = unsafe { gpu.hip().give_back(std::ptr::without_provenance_mut(region), self.pinned) };
        }
    }

    /// Takes a block back, which may be used by work that is enqueued. What is none is left alone.
    /// One that is `private` no other stream than its own has used.
    pub(crate) fn put_back(&self, gpu: &'static Gpu, block: *mut c_void, account: &Account, private: bool) {
        if block.is_null() {
            return;
        }
        let (all, others) = if private { (Vec::new(), Vec::new()) } else { (gpu.timelines(), gpu.busy_timelines()) };
        let put_back = lock(&self.arena).put_back(block.addr(), &all, &others);
        if let Some(bytes) = put_back.filter(|_| account.is_limited()) {
            // Another allocator's block is no credit of this one's.
            let less = |used: usize| Some(used.saturating_sub(bytes));
            let _ = account.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Gives regions back to HIP that nobody uses.
    pub(crate) fn shrink(&self, gpu: &'static Gpu) {
        if gpu.hip().check_process().is_err() {
            return;
        }
        gpu.each_stream(|stream| stream.look());
        self.give_back_idle(gpu, &mut lock(&self.arena));
    }

    /// Gives the blocks of a capture that was replayed on a stream to everybody.
    pub(crate) fn release(&self, number: u32, stream: &Stream) {
        lock(&self.arena).release(number, stream.progress());
    }
}

/// A block of a GPU's memory, in use as long as it lives.
pub(crate) struct Block<A: Deref<Target = Account> = Arc<Account>> {
    gpu: &'static Gpu,
    account: A,
    address: *mut c_void,
    /// True if it is used on one stream only.
    private: bool,
}

// SAFETY: the memory is plain and owned.
unsafe impl Send for Block {}
// SAFETY: the host never follows the address.
unsafe impl Sync for Block {}

impl<A: Deref<Target = Account>> Block<A> {
    /// Takes a block of device memory for work on a stream, or for anything.
    ///
    /// # Errors
    /// As [`Memory::take`].
    pub(crate) fn take(
        gpu: &'static Gpu,
        bytes: usize,
        stream: Option<&Stream>,
        account: A,
    ) -> Result<Block<A>, Error> {
        let address = gpu.memory().take(gpu, bytes, stream, &account)?;
        Ok(Block { gpu, account, address, private: stream.is_some() })
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> *mut c_void {
        self.address
    }
}

impl<A: Deref<Target = Account>> Drop for Block<A> {
    fn drop(&mut self) {
        self.gpu.memory().put_back(self.gpu, self.address, &self.account, self.private);
    }
}
