//! Code generation of our own kernels: everything that is not a convolution.
//!
//! A kernel reads strided tensors, computes programs of pointwise operations for groups of elements, which may depend on
//! reductions over each group, and writes the results: see [`grouped`]. Without a reduction it is element-wise: a chain of
//! pointwise nodes is one launch, and so is a copy into another layout, into or out of a padded buffer, with dimensions
//! reversed, or to another type.
//!
//! ```text
//! Grouped ─► Loops, ThreadMap ─► KernelSource (text, arguments)
//! ```
//!
//! Text is specialized for the program, the types and the number of loops; shapes are arguments.
//!
//! Arithmetic is `i64` if all inputs and outputs are integers and every operation maps integers to integers; `f64` if
//! an input has values that are not exact in `f32`, or the result is `f64`; else `f32`. Pointwise modes have the
//! semantics of the CPU engine, with its limits at infinities, and nothing is contracted or reordered.

mod arguments;
mod element;
mod expression;
pub mod grouped;
#[cfg(test)]
mod host;
mod program;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::ffi::CStr;

use hipdnn_engine_core::error::Error;

use arguments::Arguments;
pub use arguments::MOST_BYTES;
pub use element::Element;
pub use program::Op;

/// Kernel in C++ for hiprtc, and the argument of a launch: a structure that begins with a pointer for each tensor.
#[derive(Debug)]
pub struct KernelSource {
    /// Name of the kernel function.
    pub name: &'static CStr,
    /// C++ source text.
    pub text: String,
    /// Bytes of the argument structure, with room for the pointers at its beginning.
    pub arguments: Box<[u8]>,
    /// Number of pointers.
    pub pointers: usize,
    /// Offsets in the structure of the scalars that a launch may replace, in bytes.
    pub scalars: Box<[usize]>,
    /// True if the scalars are `f64`, not `f32`.
    pub double: bool,
    /// Number of blocks to launch.
    pub blocks: u32,
    /// Number of threads of a block.
    pub threads: u32,
    /// Mapping of threads to the work, as text for the log.
    pub mapping: String,
}

/// Checks that the arguments are within HIP's limit.
fn check_size(arguments: &Arguments) -> Result<(), Error> {
    let bytes = arguments.bytes.len();
    if bytes > MOST_BYTES {
        let text = format!("expected at most {MOST_BYTES} bytes of arguments, got {bytes}");
        return Err(Error::invalid_value(text));
    }
    Ok(())
}
