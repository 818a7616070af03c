//! HIP, and the libraries beside it: opened once, and owners of what HIP gives.

mod error;
mod graph;
mod launch;
mod library;
mod memory;
mod module;
mod stream;

pub use error::hip_error;
pub use graph::{CaptureError, CopyNode, FillNode, KernelNode, MOST_ARGUMENT_BYTES, Node};
pub use launch::{KernelLaunch, Queue, Tape};
pub use library::{Gpu, LoadedMiopen, gpu};
pub use memory::DeviceMemory;
pub use module::{Function, Module};
pub use stream::{Event, LastError, OnDevice, Relaxed, Stream};
