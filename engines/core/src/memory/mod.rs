//! Runtime memory of plans of any engine.
//!
//! [`buffers`] resolves the tensors of a plan to the caller's memory, [`workspace`] allocates intermediates by their
//! lifetime.

pub mod buffers;
pub mod workspace;
