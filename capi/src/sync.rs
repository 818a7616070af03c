//! Atomics and locks of the handle tables: the standard ones, or loom's where interleavings are checked.

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, Ordering},
};

#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
    thread::yield_now as pause,
};

/// Lets other threads go on, for one that waits without a lock.
#[cfg(not(all(loom, test)))]
pub(crate) fn pause() {
    std::thread::sleep(std::time::Duration::from_micros(50));
}
