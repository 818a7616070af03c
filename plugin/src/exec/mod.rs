//! What plans of any engine are made of: steps over buffers.
//!
//! [`buffers`] finds the caller's memory for the tensors of a plan, [`workspace`] gives intermediates a place by their
//! lifetime.

pub mod buffers;
pub mod workspace;
