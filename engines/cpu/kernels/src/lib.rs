//! Kernels for CPUs that know no graph: convolutions over strided tensors, with their epilogues.
//!
//! [`isa`] has vectors of every instruction set as one trait, for which kernels are compiled; [`threads`] runs units of
//! work on a pool, or on threads that a caller lends ([`lent`]). [`convolution`] plans a problem, chooses an algorithm
//! by an estimate of its cycles, and runs it. [`activation`] and [`convert`] are shared by epilogues and other kernels.

pub mod activation;
pub mod convert;
pub mod convolution;
#[cfg(any(test, feature = "testing"))]
pub mod guarded;
pub mod isa;
pub mod lent;
#[cfg(not(all(loom, test)))]
mod os_thread;
pub mod scratch;
mod sync;
pub mod threads;
