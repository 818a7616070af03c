//! Kernels for CPUs that know no graph: convolutions over strided tensors, with their epilogues.
//!
//! [`isa`] has vectors of every instruction set as one trait, for which kernels are compiled; [`threads`] runs units of
//! work on a pool, or on threads that a caller lends ([`lent`]). [`convolution`] plans a problem, chooses an algorithm
//! by an estimate of its cycles, and runs it. [`activation`] and [`convert`] are shared by epilogues and other kernels, [`sums`],
//! [`normalize`] and [`norm_lines`] by kernels of rows and of normalizations. [`attention`] has the products and the softmax of
//! blocks that lie in the cache, [`transpose`] copies whose rows become columns.

pub mod activation;
pub mod attention;
pub mod convert;
pub mod convolution;
pub mod few_rows;
#[cfg(any(test, feature = "testing"))]
pub mod guarded;
pub mod isa;
pub mod lent;
pub mod norm_lines;
pub mod normalize;
#[cfg(not(all(loom, test)))]
mod os_thread;
pub mod scratch;
pub mod sums;
mod sync;
pub mod threads;
pub mod transpose;
