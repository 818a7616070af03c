//! Resources that plans share: worker threads and prepared weights.
//!
//! They live no longer than from the first handle or plan to the last; then threads are joined and nothing is left behind,
//! as the library may be unloaded next.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use hipdnn_capi::shared::{self, Share};
use hipdnn_cpu_convolution::Packing;
use hipdnn_cpu_simd::scratch::LINE;
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::Workspace;
use hipdnn_engine_core::error::Error;

use super::nodes::Panels;
use super::settings::Token;

/// Worker threads and prepared weights of the process.
#[derive(Default)]
pub struct Shared {
    pools: Mutex<HashMap<usize, Arc<Pool>>>,
    lent_pools: Mutex<HashMap<usize, Arc<Pool>>>,
    weights: Mutex<HashMap<(Token, Form), Weak<PreparedWeights>>>,
}

/// Form of prepared weights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A filter's.
    Filter(Packing),
    /// A matrix's.
    Matrix(Panels),
}

/// Share in the resources of the process.
pub type Resources = Share<Shared>;

static SHARED: shared::Shared<Shared> = shared::Shared::new();

/// Takes a share; the first one makes the resources.
pub fn get() -> Resources {
    SHARED.get(Shared::default)
}

impl Shared {
    /// Pool of `threads` threads. One that no plan uses any more is kept for the next plan: if that wants another size, it ends.
    pub fn pool(&self, threads: usize) -> Arc<Pool> {
        let mut pools = lock(&self.pools);
        pools.retain(|size, pool| *size == threads || Arc::strong_count(pool) > 1);
        Arc::clone(pools.entry(threads).or_insert_with(|| Arc::new(Pool::new(threads))))
    }

    /// Pool of `workers` workers that has no threads but those that callers lend.
    pub fn lent_pool(&self, workers: usize) -> Arc<Pool> {
        let mut pools = lock(&self.lent_pools);
        Arc::clone(pools.entry(workers).or_insert_with(|| Arc::new(Pool::without_threads(workers))))
    }

    /// Memory for `len` prepared weights of these contents in that form: the one that plans share already, or a new
    /// one.
    ///
    /// # Errors
    /// If memory could not be had.
    pub fn weights(&self, token: &Token, form: Form, len: usize) -> Result<Arc<PreparedWeights>, Error> {
        let mut weights = lock(&self.weights);
        let key = (token.clone(), form);
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
    /// Address of the first weight, on a cache line of `allocation`.
    first: UnsafeCell<NonNull<f32>>,
    len: usize,
    allocation: NonNull<u8>,
    layout: Layout,
    ready: OnceLock<()>,
}

// SAFETY: the memory is the value's own; it is written by the one thread that `ready` lets, and only read afterwards.
unsafe impl Send for PreparedWeights {}
// SAFETY: threads that share the value write it before `ready` is set, one of them alone, and only read it afterwards.
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

    /// Number of prepared weights.
    pub fn count(&self) -> usize {
        self.len
    }

    /// Prepared weights; `None` before they have been prepared.
    pub fn get(&self) -> Option<&[f32]> {
        // SAFETY: the allocation has `len` values, zeroed at first; once ready nobody writes them.
        self.ready.get().map(|()| unsafe { std::slice::from_raw_parts((*self.first.get()).as_ptr(), self.len) })
    }

    /// Prepared weights; the first caller prepares them with `prepare`, others wait for it. Should it panic, the next
    /// tries.
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

/// A workspace of the engine's own; plans align it themselves.
pub struct OwnWorkspace(Box<[u8]>);

impl OwnWorkspace {
    /// Allocates `bytes` zeros.
    ///
    /// # Errors
    /// If memory could not be had.
    pub fn new(bytes: usize) -> Result<OwnWorkspace, Error> {
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(bytes)
            .map_err(|_| Error::alloc_failed(format!("no memory for {bytes} bytes of workspace")))?;
        memory.resize(bytes, 0);
        Ok(OwnWorkspace(memory.into()))
    }
}

impl Workspace for OwnWorkspace {
    fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_no_plan_uses_ends_when_another_size_is_wanted() {
        let shared = Shared::default();
        let used = shared.pool(2);
        let unused = Arc::downgrade(&shared.pool(3));
        assert!(Arc::ptr_eq(&unused.upgrade().expect("it is kept for the next plan"), &shared.pool(3)));
        for other in [2, 4] {
            let unused = Arc::downgrade(&shared.pool(3));
            shared.pool(other);
            assert!(unused.upgrade().is_none(), "expected its threads to end, got an idle pool beside one of {other}");
        }
        assert!(Arc::ptr_eq(&used, &shared.pool(2)));
    }
}
