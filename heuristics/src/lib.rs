//! hipDNN heuristics plugin: a shared library that a hipDNN backend loads, and whose policies rank engines.
//!
//! | policy | ranks by |
//! |---|---|
//! | `SelectionHeuristic::HipdnnRsMeasured` | what `hipdnn-rs tune` measured of graphs like the one in question; declines where nothing was |
//! | `SelectionHeuristic::HipdnnRsCostModel` | a cost model over the device's facts; declines what is no graph |
//!
//! The arithmetic is [`hipdnn_heuristics_model`]'s; here is what lies between it and the C ABI.
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | the exported functions: raw pointers in, panics and errors out |
//! | [`error`] | errors with their statuses, and the thread's last message |
//! | [`log`] | the host's log callback |
//! | [`policy`] | a policy that is asked once: inputs, answer |
//!
//! Nothing of HIP is called, and no thread is started. Nothing is kept in thread-locals that need a destructor.

pub mod abi;
pub mod error;
pub mod log;
pub mod policy;

hipdnn_sdk_bindings::glibc_2_28!();
