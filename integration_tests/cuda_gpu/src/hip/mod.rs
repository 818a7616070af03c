//! The functions of `libamdhip64`: each is one of the driver's, or a few.

mod device;
mod event;
mod graph;
mod grouped;
mod memory;
mod module;
mod stream;

use std::ffi::c_void;

use cudarc::driver::sys::CUdeviceptr;

pub(crate) use module::count_launch;

/// An address as the driver's type.
fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer as CUdeviceptr
}
