//! Nodes that are steps of their own: each kind has a module that lowers the node and a kernel that computes it.
//!
//! A module's `lower` gives the reason why a node is declined or describes it as a [`LibraryOp`]: its inputs and
//! outputs, in an order that only the module's own kernel knows, and a [`Recipe`] that makes the kernel once the
//! settings are known.

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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod view;

use std::fmt;
use std::sync::Arc;

use hipdnn_schemas::TensorUid;

use hipdnn_cpu_kernels::threads::Pool;

/// Maximum number of a node's inputs.
pub const MAX_INPUTS: usize = 32;

/// Maximum number of a node's outputs.
pub const MAX_OUTPUTS: usize = 16;

/// Kernel that computes a node's outputs from its inputs, chosen and sized when the plan is built.
pub trait LibraryKernel: Send + Sync + fmt::Debug {
    /// Scratch memory of a run in bytes; 0 for none.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Computes the outputs. Allocates nothing, and gives the same bits whatever the number of threads.
    ///
    /// # Safety
    /// `inputs` and `outputs` are in the order of the node's [`LibraryOp`], each the address of the tensor's first element,
    /// aligned for its type, with the memory that the tensor's extents and strides reach; null stands for an operand that
    /// the node has not. `scratch` begins on a cache line and has [`LibraryKernel::scratch_bytes`]. Outputs and scratch overlap
    /// nothing else, and nobody else uses them during the run, nor writes to the inputs.
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8);
}

/// Kernel factory: a node's shape and attributes, from which its kernel is made.
pub trait Recipe: Send + Sync + fmt::Debug {
    /// Makes the kernel, for runs on pools of any size of which at most `threads` workers take part: its scratch memory
    /// for workers is for that many.
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel>;
}

/// Node as its module describes it.
#[derive(Clone, Debug)]
pub struct LibraryOp {
    /// Description for messages and logs.
    pub name: &'static str,
    /// Inputs, in the kernel's order; `None` where an optional one is absent.
    pub inputs: Vec<Option<TensorUid>>,
    /// Outputs, in the kernel's order; `None` where an optional one is not wanted.
    pub outputs: Vec<Option<TensorUid>>,
    /// Factory of the kernel.
    pub recipe: Arc<dyn Recipe>,
}
