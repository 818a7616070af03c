//! hipDNN kernel engine plugin: a shared library that a hipDNN backend loads, and that computes graphs.
//!
//! ```text
//! bytes ─► Graph ─► Applicable ─► Plan ─► execute
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | the exported functions: raw pointers in, panics and errors out |
//! | [`registry`] | the list of engines |
//! | [`questions`] | graphs that a handle was asked about, decoded and lowered once |
//! | [`overrides`] | plans for the shapes of single executions |
//! | [`selection`] | which engine steps forward in this process |
//! | [`log`] | the host's log callback as a logger |
//!
//! Everything is unloaded with the library: worker threads end with the last handle and plan, and nothing is kept in
//! thread-locals that need a destructor.

pub mod abi;
pub mod log;
pub mod overrides;
pub mod questions;
pub mod registry;
pub mod selection;

hipdnn_sdk_bindings::glibc_2_28!();
