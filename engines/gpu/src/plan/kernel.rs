//! Steps that launch kernels.

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::Place;
use hipdnn_engine_kernel::legalize::{KernelDispatch, Number};

use super::scalar::{Scalar, scalars};
use super::{Memory, Places, entries};
use crate::hip::Queue;
use crate::jit::{Kernels, PreparedKernel, prepare};
use crate::store::Store;

/// Operands whose addresses, and scalars whose values, are on the stack during a launch.
const ON_STACK: usize = 32;

/// A kernel and where its operands are.
#[derive(Debug)]
pub(super) struct KernelStep {
    pub(super) purpose: String,
    pub(super) kernel: PreparedKernel,
    pub(super) reads: Box<[Place]>,
    pub(super) writes: Box<[Place]>,
    /// Values for the kernel's scalars; empty if all are known.
    pub(super) scalars: Box<[Scalar]>,
}

impl Places<'_> {
    pub(super) fn kernel(
        &self,
        dispatch: &KernelDispatch,
        kernels: &Kernels,
        store: &Store,
    ) -> Result<KernelStep, Error> {
        let within = |error: Error| error.within(format!("kernel to {}", dispatch.purpose));
        Ok(KernelStep {
            purpose: dispatch.purpose.clone(),
            kernel: prepare(kernels, &dispatch.kernel, store).map_err(within)?,
            reads: dispatch.reads.iter().map(|value| self.of(*value)).collect(),
            writes: dispatch.writes.iter().map(|value| self.of(*value)).collect(),
            scalars: scalars(dispatch.scalars.iter().map(|number| match number {
                Number::Known(number) => Scalar::Known(*number),
                Number::Host(uid, data_type) => Scalar::Host(self.index(*uid), *data_type),
            })),
        })
    }
}

impl KernelStep {
    /// # Safety
    /// As [`Plan::execute`](hipdnn_engine_core::Plan::execute), for memory that was resolved.
    pub(super) unsafe fn run(&self, queue: &mut Queue<'_>, memory: &Memory<'_>) -> Result<(), Error> {
        let mut stacks = ([std::ptr::null(); ON_STACK], [std::ptr::null_mut(); ON_STACK], [0f64; ON_STACK]);
        let mut heaps = (Vec::new(), Vec::new(), Vec::new());
        let reads = entries(&mut stacks.0, &mut heaps.0, self.reads.len(), std::ptr::null());
        for (to, place) in reads.iter_mut().zip(&self.reads) {
            *to = memory.at(*place).cast_const();
        }
        let writes = entries(&mut stacks.1, &mut heaps.1, self.writes.len(), std::ptr::null_mut());
        for (to, place) in writes.iter_mut().zip(&self.writes) {
            *to = memory.at(*place);
        }
        let scalars = entries(&mut stacks.2, &mut heaps.2, self.scalars.len(), 0.0);
        for (to, scalar) in scalars.iter_mut().zip(&self.scalars) {
            // SAFETY: the caller answers for what it passes.
            *to = unsafe { scalar.value(memory.addresses) };
        }
        // SAFETY: the caller answers for stream and buffers; places in the workspace are as large as what lies there, and
        // apart from each other while both are used. What is written is where something is read only if each element is
        // read by the group that writes it, before.
        unsafe { self.kernel.launch(queue, reads, writes, scalars) }
    }
}
