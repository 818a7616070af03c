//! What nodes ask for, whatever the engine that computes them: their operands by role, the conventions that the wire format
//! leaves open, and the reasons for which no engine takes them.
//!
//! An engine reads a node with a function from here, and makes a kernel of what that says.

pub mod batchnorm;
pub mod layernorm;
pub mod normalization;
pub mod pooling;
pub mod reduction;
pub mod rmsnorm;
