//! Nodes that are steps of their own: each kind has a module that lowers the node and a kernel that computes it.
//!
//! A module's `lower` gives the reason why a node is declined or describes it as a [`LibraryOp`]: its inputs and
//! outputs, in an order that only the module's own kernel knows, and a [`Recipe`] that makes the kernel once the
//! settings are known.

pub mod batchnorm;
pub mod block_scale;
pub mod compiled;
pub mod convolution;
pub mod epilogue;
pub mod factors;
pub mod layernorm;
pub mod matmul;
pub mod normalization;
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

use epilogue::Epilogue;
use hipdnn_cpu_convolution::Layout;
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_threads::Pool;

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

    /// Constant input that the kernel wants prepared, and the form that it wants. Its address in
    /// [`LibraryKernel::run`] is then that of the prepared values.
    fn preparation(&self) -> Option<Preparation> {
        None
    }

    /// Writes the prepared values of an input at `from` to `to`.
    ///
    /// # Safety
    /// `from` is the input's first element, as in [`LibraryKernel::run`], and `to` has [`Preparation::len`] values.
    unsafe fn prepare(&self, from: *const u8, to: &mut [f32], pool: &Pool) {
        let _ = (from, to, pool);
        unreachable!("a kernel that asks for a preparation prepares");
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

/// Form of a constant input that a kernel works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Position of the input.
    pub input: usize,
    /// The form.
    pub form: Panels,
    /// Number of prepared values.
    pub len: usize,
}

/// Matrix in panels of columns, in `f32`: all that its prepared values depend on but its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Panels {
    /// Type of its elements.
    pub storage: Storage,
    /// Number of rows and columns.
    pub extents: [usize; 2],
    /// Strides of rows and columns.
    pub strides: [usize; 2],
    /// Number of columns of a panel.
    pub width: usize,
}

impl Panels {
    /// True if these bytes are enough for the matrix, and aligned for its elements.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let last: usize = self.extents.iter().zip(self.strides).map(|(extent, stride)| (extent - 1) * stride).sum();
        let element = self.storage.bits() / 8;
        bytes.len() >= (last + 1) * element && bytes.as_ptr().addr().is_multiple_of(element)
    }
}

/// Kernel factory: a node's shape and attributes, from which its kernel is made.
pub trait Recipe: Send + Sync + fmt::Debug {
    /// Makes the kernel, for runs on pools of any size of which at most `threads` workers take part: its scratch memory
    /// for workers is for that many.
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel>;

    /// Position of the input that kernels have prepared where its contents are constant, if there is one.
    fn constant(&self) -> Option<usize> {
        None
    }

    /// Makes the kernel where the input [`Recipe::constant`] has constant contents.
    fn kernel_of_constant(&self, threads: usize) -> Box<dyn LibraryKernel> {
        self.kernel(threads)
    }

    /// True if its kernels can compute an epilogue: see [`Recipe::with_epilogue`].
    fn takes_epilogue(&self) -> bool {
        false
    }

    /// Variant whose kernels compute element-wise functions on the node's one output before they write it, to a tensor of that
    /// layout; the epilogue's inputs come behind the node's own. `None` if they don't do that.
    fn with_epilogue(&self, epilogue: Epilogue, output: Layout) -> Option<Arc<dyn Recipe>> {
        let _ = (epilogue, output);
        None
    }
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
