//! Atomics, locks and threads of the pool: the standard ones, or loom's where interleavings are checked.

#[cfg(not(all(loom, test)))]
pub(super) use {
    super::os_thread::OsThread,
    std::{
        hint::spin_loop,
        sync::{
            Arc, Condvar, Mutex, MutexGuard,
            atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
        },
        thread_local,
    },
};

#[cfg(all(loom, test))]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

/// Thread-locals of the model, whose threads are not the system's.
#[cfg(all(loom, test))]
macro_rules! model_thread_local {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $value:expr };)*) => {
        loom::thread_local! { $($(#[$attribute])* static $name: $type = $value;)* }
    };
}
#[cfg(all(loom, test))]
pub(super) use model_thread_local as thread_local;

/// A cell with loom's way of access.
#[cfg(not(all(loom, test)))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(loom, test)))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Nothing: loom's would have the other threads go first, and the slow ways behind a spin would not be taken.
#[cfg(all(loom, test))]
pub(super) fn spin_loop() {}

/// A thread of the model.
#[cfg(all(loom, test))]
pub(super) struct OsThread(loom::thread::JoinHandle<()>);

#[cfg(all(loom, test))]
impl OsThread {
    pub(super) fn start(_name: &std::ffi::CStr, body: impl FnOnce() + Send + 'static) -> std::io::Result<OsThread> {
        Ok(OsThread(loom::thread::spawn(body)))
    }

    pub(super) fn join(self) -> bool {
        self.0.join().is_ok()
    }
}
