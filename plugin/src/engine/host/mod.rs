//! The CPU engine.

pub mod activation;
pub mod convert;
pub mod convolution;
pub mod isa;
pub mod scratch;
pub mod threads;
