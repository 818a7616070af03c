//! Threads that kernels run on: a pool of their own ([`Pool`]), or those that a caller lends ([`lent`]).

pub mod lent;
#[cfg(not(all(loom, test)))]
mod os_thread;
mod pool;
mod sync;

pub use pool::Pool;
