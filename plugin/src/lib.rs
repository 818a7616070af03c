//! hipDNN kernel engine plugin: a shared library that a hipDNN backend loads, and that computes graphs.
//!
//! ```text
//! bytes ─► Graph ─► Applicable ─► Plan ─► execute
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | the exported functions: raw pointers in, panics and errors out |
//! | [`engine`] | the engines and what they have in common: the traits, the registry, knobs, details |
//! | [`engine::host`] | the CPU engine: which graphs it takes, its plans, its kernels |
//! | [`exec`] | what plans of any engine are made of: the table of the caller's buffers, the planned workspace |
//! | [`framed`] | bytes that outlive the process: cache entries, stored plans |
//! | [`device`] | whether this process has a GPU |
//! | [`support`] | the tables behind `SUPPORT.md` |
//! | [`log`] | the host's log callback as a logger |
//! | [`error`] | what can go wrong, by kind |
//!
//! Everything is unloaded with the library: worker threads end with the last handle and plan, and nothing is kept in
//! thread-locals that need a destructor.

pub mod abi;
pub mod device;
pub mod engine;
pub mod error;
pub mod exec;
pub mod framed;
pub mod log;
pub mod support;

hipdnn_sdk_bindings::glibc_2_28!();
