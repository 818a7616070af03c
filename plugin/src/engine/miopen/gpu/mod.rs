//! HIP and MIOpen: opened once, and owners of what they give.

mod error;
mod graph;
mod library;
mod memory;
mod module;
mod stream;

pub use error::{hip_error, miopen_error};
pub use graph::{CaptureError, CopyNode, FillNode, KernelNode, MOST_ARGUMENT_BYTES, Node};
pub use library::{Gpu, gpu};
pub use memory::DeviceMemory;
pub use module::{Function, Module};
pub use stream::{Event, LastError, OnDevice, Relaxed, Stream};
