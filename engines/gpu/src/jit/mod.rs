//! Kernels of the compiler on a device.
//!
//! ```text
//! KernelSource ─► code object ─► PreparedKernel ─► launch
//! ```
//!
//! Code objects are kept for the process and in the [`Store`].

mod compile;
#[cfg(test)]
mod grouped;
mod launch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::payload::Entry;
use hipdnn_engine_kernel::emit::KernelSource;
use hipdnn_engine_kernel::emit::grouped::Grouped;

use crate::device::Device;
use crate::hip::Queue;
use crate::store::Store;
pub use compile::{Compiled, Kernels, compiler, is_compiler_known};
use launch::Launch;

/// A kernel ready to launch from any thread on any stream of its device.
#[derive(Debug)]
pub struct PreparedKernel {
    /// `None` where there is nothing to do.
    kernel: Option<Launch>,
    device: Arc<Device>,
    mapping: String,
    reads: usize,
    writes: usize,
    scalars: usize,
}

/// Compiles a kernel, or takes it from this process's or the store's kernels, and fixes its arguments.
///
/// # Errors
/// If the work is not what its fields ask for, or the kernel does not compile or load.
pub fn prepare(kernels: &Kernels, work: &Grouped, store: &Store) -> Result<PreparedKernel, Error> {
    PreparedKernel::new(kernels, work, work.source()?, store)
}

/// Checks that [`prepare`] has what it needs: the kernel in the store, or a compiler.
///
/// # Errors
/// As [`prepare`], without compiling or loading the kernel.
pub fn can_prepare(kernels: &Kernels, work: &Grouped, store: &Store) -> Result<(), Error> {
    match work.source()? {
        Some(source) => kernels.can_get(&source.text, store),
        None => Ok(()),
    }
}

impl PreparedKernel {
    fn new(
        kernels: &Kernels,
        work: &Grouped,
        source: Option<KernelSource>,
        store: &Store,
    ) -> Result<PreparedKernel, Error> {
        let mut mapping = "nothing to do".to_owned();
        let mut kernel = None;
        if let Some(mut source) = source {
            mapping = std::mem::take(&mut source.mapping);
            kernel = Some(Launch::new(kernels.get(source.name, &source.text, store)?, source));
        }
        let (reads, writes, scalars) = (work.reads.len(), work.writes.len(), work.scalars());
        Ok(PreparedKernel { kernel, device: Arc::clone(kernels.device()), mapping, reads, writes, scalars })
    }

    /// Entry of the store that goes with a plan that launches it; `None` if there is nothing to launch.
    pub(crate) fn entry(&self) -> Option<Entry> {
        self.kernel.as_ref().map(|launch| launch.compiled.entry(&self.device))
    }

    /// Mapping of the work to threads, in words.
    pub fn mapping(&self) -> &str {
        &self.mapping
    }

    /// Launches it, with other values for every scalar that a launch may replace, in order, or with none: what is written is
    /// there when the stream gets there. Nothing is allocated and nothing waited for.
    ///
    /// # Safety
    /// `reads` has an address for each tensor that the work reads and `writes` one for each that it writes, in order. Each is
    /// memory of the device with all the elements that the work reads and writes, aligned for them, until the stream has run
    /// the kernel. What is written overlaps what is read only where both are the same tensor with the same strides, no other
    /// group of the work reads it, and nothing reads it after it is written. The stream is one of the device.
    ///
    /// # Errors
    /// If the number of addresses is wrong, the number of scalars is neither 0 nor theirs, or HIP refuses.
    pub unsafe fn launch(
        &self,
        queue: &mut Queue<'_>,
        reads: &[*const u8],
        writes: &[*mut u8],
        scalars: &[f64],
    ) -> Result<(), Error> {
        if (reads.len(), writes.len()) != (self.reads, self.writes) {
            return Err(Error::invalid_value(format!(
                "expected {} tensors to read and {} to write, got {} and {}",
                self.reads,
                self.writes,
                reads.len(),
                writes.len()
            )));
        }
        launch::check_scalars(self.scalars, scalars.len())?;
        let Some(launch) = &self.kernel else { return Ok(()) };
        let addresses = reads.iter().copied().chain(writes.iter().map(|address| address.cast_const()));
        // SAFETY: the caller's promise, with an address for each tensor.
        unsafe { launch.run(&self.device, queue, addresses, scalars) }
    }
}
