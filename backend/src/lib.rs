//! hipDNN's backend C ABI, `libhipdnn_backend.so`, for machines without ROCm's.
//!
//! A client makes a handle, describes a graph, asks which engines take it, configures one, builds a plan and executes
//! it; engines live in plugins, which are found and loaded as hipDNN does. Nothing here computes: streams are words handed
//! on to plugins, and HIP is called for the events of profiling controls and the facts of devices that engines are ranked
//! for, where the process has loaded it.
//!
//! The way in is [`exports`]: every C function, four lines each. Raw pointers end in `abi::pointer`, panics in
//! `abi::unwind`; behind them is safe code over the objects of `descriptor`, and `plugins` owns what plugins make.

mod abi;
mod buffer;
mod descriptor;
mod device;
mod engines;
mod enums;
mod error;
pub mod exports;
mod handle;
mod last_error;
mod log;
mod metric;
mod names;
mod plugins;
mod policy;
mod prediction;
mod ranking;
mod timer;

hipdnn_sdk_bindings::glibc_2_28!();

/// Cleanup at unloading of the library, and at the end of the process. While handles live nothing is touched: their
/// owner may still be using them on another thread.
extern "C" fn unload() {
    if handle::any() {
        return;
    }
    plugins::manager::shut_down();
    log::shut_down();
}

/// The dynamic loader calls what stands in this section.
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
