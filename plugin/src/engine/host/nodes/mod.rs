//! Nodes that are steps of their own: each kind has a module that looks at the node and a kernel that computes it.
//!
//! A module's `lower` says why a node is declined or describes it as a [`NodeWork`]: what it reads and writes, in an order
//! that only the module's own kernel knows, and a [`Recipe`] that makes the kernel once the settings are known.

pub mod batchnorm;
pub mod block_scale;
pub mod convolution;
pub mod layernorm;
pub mod matmul;
pub mod normalization;
pub mod product;
pub mod reduction;
pub mod resample;
pub mod rmsnorm;
pub mod sdpa;
#[cfg(test)]
pub(crate) mod testing;
pub mod view;

use std::fmt;
use std::sync::Arc;

use hipdnn_schemas::TensorUid;

use super::threads::Pool;

/// The most tensors that a node may read.
pub const MAX_INPUTS: usize = 32;

/// The most tensors that a node may write.
pub const MAX_OUTPUTS: usize = 16;

/// Something that computes a node's outputs from its inputs, chosen and sized when the plan is built.
pub trait NodeKernel: Send + Sync + fmt::Debug {
    /// Bytes of scratch memory of a run; 0 for none.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Computes the outputs. Allocates nothing, and gives the same bits whatever the number of threads.
    ///
    /// # Safety
    /// `inputs` and `outputs` are in the order of the node's [`NodeWork`], each the address of the tensor's first element,
    /// aligned for its type, with the memory that the tensor's extents and strides reach; null stands for an operand that
    /// the node has not. `scratch` begins on a cache line and has [`NodeKernel::scratch_bytes`]. Outputs and scratch overlap
    /// nothing else, and nobody else uses them during the run, nor writes to the inputs.
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8);
}

/// A node's shape and attributes, from which its kernel is made.
pub trait Recipe: Send + Sync + fmt::Debug {
    /// The kernel, for runs on pools of any size of which at most `threads` workers take part: what scratch memory it wants
    /// for each worker is for so many.
    fn kernel(&self, threads: usize) -> Box<dyn NodeKernel>;
}

/// A node as its module describes it.
#[derive(Clone, Debug)]
pub struct NodeWork {
    /// What it does, for messages.
    pub name: &'static str,
    /// What it reads, in the kernel's order; `None` where an optional operand is absent.
    pub inputs: Vec<Option<TensorUid>>,
    /// What it writes, in the kernel's order; `None` where an optional result is not wanted.
    pub outputs: Vec<Option<TensorUid>>,
    /// Makes the kernel.
    pub recipe: Arc<dyn Recipe>,
}
