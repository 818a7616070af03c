//! Units of work: how the kernels of a plan are launched over the threads of a pool.

use super::{Args, Send2};
use hipdnn_cpu_simd::isa::{Isa, Kernel};
use hipdnn_cpu_threads::Pool;

/// Unit of a plan, as its kernel gets it.
pub(super) struct Unit<'a, P> {
    pub(super) plan: &'a P,
    pub(super) x: *const u8,
    pub(super) y: *mut u8,
    pub(super) weights: *const f32,
    pub(super) operands: *const *const u8,
    /// Scratch of the worker, [`InUnits::slot`] values.
    pub(super) slot: *mut f32,
    /// Number, below [`InUnits::units`].
    pub(super) unit: usize,
}

/// Plan whose output is computed in units, in any order and by any number of workers.
pub(super) trait InUnits: Sized + Sync + 'static
where
    for<'a> Unit<'a, Self>: Kernel<Output = ()>,
{
    /// Instruction set of the kernels.
    fn isa(&self) -> Isa;

    /// Number of units.
    fn units(&self) -> usize;

    /// Scratch of a worker, in `f32` values.
    fn slot(&self) -> usize;

    /// Computes all units.
    ///
    /// # Safety
    /// As for [`super::ConvolutionPlan::run`], with `weights` as the plan has them prepared, and `slots` scratch of `workers`
    /// slots.
    unsafe fn run(&self, pool: &Pool, workers: usize, args: &Args<'_>, weights: *const f32, slots: *mut f32) {
        let tensors = Send2(args.x, args.y);
        let scratch = Send2(weights.cast(), slots.cast());
        let operands = Send2(args.operands.as_ptr().cast(), std::ptr::null_mut());
        pool.run_indexed(self.units(), workers, &|worker, unit| {
            self.isa().run(Unit {
                plan: self,
                x: tensors.x(),
                y: tensors.y(),
                weights: scratch.x().cast(),
                operands: operands.x().cast(),
                slot: scratch.y().cast::<f32>().wrapping_add(worker * self.slot()),
                unit,
            });
        });
    }
}
