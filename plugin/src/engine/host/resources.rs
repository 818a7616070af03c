//! What plans share: worker threads and prepared weights.
//!
//! It lives from the first handle or plan to the last; then threads are joined and nothing is left behind, as the library
//! may be unloaded next.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use super::convolution::Packing;
use super::scratch::LINE;
use super::settings::Token;
use super::threads::Pool;
use crate::error::Error;

/// A share in [`Shared`].
pub struct Resources {
    /// `None` only while dropped.
    shared: Option<Arc<Shared>>,
}

/// Worker threads and prepared weights of the process.
pub struct Shared {
    pools: Mutex<HashMap<usize, Arc<Pool>>>,
    lent_pools: Mutex<HashMap<usize, Arc<Pool>>>,
    weights: Mutex<HashMap<(Token, Packing), Weak<PreparedWeights>>>,
}

static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

impl Resources {
    /// Takes a share; the first one makes what is shared.
    pub fn get() -> Resources {
        let mut current = lock(&SHARED);
        let shared = current.upgrade().unwrap_or_else(|| {
            let shared =
                Arc::new(Shared { pools: Mutex::default(), lent_pools: Mutex::default(), weights: Mutex::default() });
            *current = Arc::downgrade(&shared);
            shared
        });
        Resources { shared: Some(shared) }
    }
}

impl Deref for Resources {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        self.shared.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let mut current = lock(&SHARED);
        let last = Arc::into_inner(shared);
        if last.is_some() {
            // Even an empty allocation would stay behind.
            *current = Weak::new();
        }
        drop(current);
        // Joining threads takes a while: whoever wants a share meanwhile gets a new one.
        drop(last);
    }
}

impl Shared {
    /// The pool of so many threads.
    pub fn pool(&self, threads: usize) -> Arc<Pool> {
        Arc::clone(lock(&self.pools).entry(threads).or_insert_with(|| Arc::new(Pool::new(threads))))
    }

    /// The pool of so many workers that has no threads but those that callers lend.
    pub fn lent_pool(&self, workers: usize) -> Arc<Pool> {
        let mut pools = lock(&self.lent_pools);
        Arc::clone(pools.entry(workers).or_insert_with(|| Arc::new(Pool::without_threads(workers))))
    }

    /// Room for `len` prepared weights of these contents in that form: the one that plans share already, or a new one.
    ///
    /// # Errors
    /// If memory could not be had.
    pub fn weights(&self, token: &Token, packing: Packing, len: usize) -> Result<Arc<PreparedWeights>, Error> {
        let mut weights = lock(&self.weights);
        let key = (token.clone(), packing);
        if let Some(prepared) = weights.get(&key).and_then(Weak::upgrade)
            && prepared.len == len
        {
            return Ok(prepared);
        }
        weights.retain(|_, prepared| prepared.strong_count() > 0);
        let prepared = Arc::new(PreparedWeights::new(len)?);
        weights.insert(key, Arc::downgrade(&prepared));
        Ok(prepared)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Weights in the form that a kernel works on, written once.
pub struct PreparedWeights {
    /// The first weight, on a cache line of `allocation`.
    first: UnsafeCell<NonNull<f32>>,
    len: usize,
    allocation: NonNull<u8>,
    layout: Layout,
    ready: OnceLock<()>,
}

// SAFETY: the memory is the value's own; it is written by the one thread that `ready` lets, and only read afterwards.
unsafe impl Send for PreparedWeights {}
// SAFETY: as above.
unsafe impl Sync for PreparedWeights {}

impl PreparedWeights {
    fn new(len: usize) -> Result<PreparedWeights, Error> {
        let too_many = || Error::alloc_failed(format!("no memory for {len} prepared weights"));
        // The system's allocator gives zeros without writing them only where nothing but its own alignment is wanted.
        let bytes = len.checked_mul(size_of::<f32>()).and_then(|bytes| bytes.checked_add(LINE)).ok_or_else(too_many)?;
        let layout = Layout::from_size_align(bytes, align_of::<f32>()).map_err(|_| too_many())?;
        // SAFETY: the layout's size is not 0.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_many)?;
        // SAFETY: the next cache line begins less than `LINE` bytes on, which the allocation has to spare.
        let first = unsafe { allocation.add(allocation.align_offset(LINE)) };
        Ok(PreparedWeights { first: UnsafeCell::new(first.cast()), len, allocation, layout, ready: OnceLock::new() })
    }

    /// The weights, if they have been prepared.
    pub fn get(&self) -> Option<&[f32]> {
        // SAFETY: the allocation has `len` values, zeroed at first; once ready nobody writes them.
        self.ready.get().map(|()| unsafe { std::slice::from_raw_parts((*self.first.get()).as_ptr(), self.len) })
    }

    /// The weights; the first caller prepares them with `prepare`, others wait for it. Should it panic, the next tries.
    pub fn get_or_prepare(&self, prepare: impl FnOnce(&mut [f32])) -> &[f32] {
        self.ready.get_or_init(|| {
            // SAFETY: the allocation has `len` values, and `ready` lets one thread at a time in here while nobody reads.
            prepare(unsafe { std::slice::from_raw_parts_mut((*self.first.get()).as_ptr(), self.len) });
        });
        self.get().expect("they are ready now")
    }
}

impl Drop for PreparedWeights {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}
