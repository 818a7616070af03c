//! MIOpen's own search.

use std::ffi::c_void;

use hipdnn_sdk_bindings::miopen::{
    miopenFindOptions_t, miopenFindResultsOrder_t, miopenProblem_t, miopenSolution_t, miopenTensorArgumentId_t,
};

use super::choose::Policy;
use super::convolution::{Calls, ConvolutionProblem, Solution};
use super::device::{Device, MiopenHandle};
use super::gpu::{Gpu, Stream};
use super::record::operand;
use super::trial::Scratch;
use crate::error::Error;

/// More solutions than a search gives: one for each algorithm.
const MOST_SOLUTIONS: usize = 16;

struct Problem(&'static Gpu, miopenProblem_t);
struct Options(&'static Gpu, miopenFindOptions_t);
struct Found(&'static Gpu, miopenSolution_t);

impl Drop for Problem {
    fn drop(&mut self) {
        // SAFETY: `search` made it, and nobody has it any more.
        let status = unsafe { (self.0.miopen.miopenDestroyProblem)(self.1) };
        self.0.log_miopen(status, "miopenDestroyProblem");
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: as above.
        let status = unsafe { (self.0.miopen.miopenDestroyFindOptions)(self.1) };
        self.0.log_miopen(status, "miopenDestroyFindOptions");
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: as above.
        let status = unsafe { (self.0.miopen.miopenDestroySolution)(self.1) };
        self.0.log_miopen(status, "miopenDestroySolution");
    }
}

/// Has MIOpen search and tune; what it finds comes back best first, and stays in its databases.
///
/// That may take minutes, so it has a stream and a MIOpen handle of its own, and other plans are built meanwhile. Tuning
/// also throws compiled code out of the handle that it works with, which must not be code that launches were recorded of.
pub(super) fn search(device: &Device, problem: &ConvolutionProblem, policy: &Policy) -> Result<Vec<Solution>, Error> {
    let gpu = device.gpu();
    let _entered = device.enter()?;
    let stream = Stream::new(gpu)?;
    let handle = MiopenHandle::new(device, stream.raw())?;
    let calls = Calls::new(gpu, problem, policy.fp16_alternative)?;
    let scratch = Scratch::new(gpu, problem)?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the descriptor is alive and copied; a place for one handle.
    let status =
        unsafe { (gpu.miopen.miopenCreateConvProblem)(&mut raw, calls.convolution.raw(), problem.direction.miopen()) };
    gpu.check_miopen(status, "miopenCreateConvProblem")?;
    let wanted = Problem(gpu, raw);
    let tensors = [
        (miopenTensorArgumentId_t::miopenTensorConvolutionX, &calls.x, operand::X),
        (miopenTensorArgumentId_t::miopenTensorConvolutionW, &calls.w, operand::W),
        (miopenTensorArgumentId_t::miopenTensorConvolutionY, &calls.y, operand::Y),
    ];
    for (id, descriptor, _) in &tensors {
        // SAFETY: both are alive; MIOpen copies the descriptor.
        let status = unsafe { (gpu.miopen.miopenSetProblemTensorDescriptor)(wanted.1, *id, descriptor.raw()) };
        gpu.check_miopen(status, "miopenSetProblemTensorDescriptor")?;
    }
    let mut raw = std::ptr::null_mut();
    // SAFETY: a place for one handle.
    gpu.check_miopen(unsafe { (gpu.miopen.miopenCreateFindOptions)(&mut raw) }, "miopenCreateFindOptions")?;
    let options = Options(gpu, raw);
    let order = miopenFindResultsOrder_t::miopenFindResultsOrderByTime;
    // SAFETY: as above.
    let status = unsafe { (gpu.miopen.miopenSetFindOptionResultsOrder)(options.1, order) };
    gpu.check_miopen(status, "miopenSetFindOptionResultsOrder")?;
    if let Some(limit) = policy.workspace_limit {
        // SAFETY: as above.
        let status = unsafe { (gpu.miopen.miopenSetFindOptionWorkspaceLimit)(options.1, limit) };
        gpu.check_miopen(status, "miopenSetFindOptionWorkspaceLimit")?;
    }
    let none = scratch.workspace(0)?;
    scratch.fill(&none, 0, 0, &stream)?;
    let at = scratch.place(&none, 0);
    for (id, _, operand) in &tensors {
        let address = at[*operand] as *mut c_void;
        // SAFETY: device memory of the tensor's size, which outlives the search.
        let status = unsafe { (gpu.miopen.miopenSetFindOptionPreallocatedTensor)(options.1, *id, address) };
        gpu.check_miopen(status, "miopenSetFindOptionPreallocatedTensor")?;
    }
    let find = |tuning: i32| {
        // SAFETY: the options are alive.
        let status = unsafe { (gpu.miopen.miopenSetFindOptionTuning)(options.1, tuning) };
        gpu.check_miopen(status, "miopenSetFindOptionTuning")?;
        let mut found = [std::ptr::null_mut(); MOST_SOLUTIONS];
        let mut count = 0;
        // SAFETY: all are alive; `found` has as many places as is said.
        let status = unsafe {
            (gpu.miopen.miopenFindSolutions)(
                handle.raw(),
                wanted.1,
                options.1,
                found.as_mut_ptr(),
                &mut count,
                MOST_SOLUTIONS,
            )
        };
        let found: Vec<Found> =
            found.into_iter().take(count).filter(|raw| !raw.is_null()).map(|raw| Found(gpu, raw)).collect();
        gpu.check_miopen(status, "miopenFindSolutions").map(|()| found)
    };
    // Tuning compiles kernels on threads of its own, where one that can't be compiled ends the process: MIOpen 3.5.1 lets
    // the exception go. Without tuning the same is a status, so a search without it goes first.
    find(0)?;
    let found = find(1)?;
    let mut solutions = Vec::new();
    for Found(_, solution) in &found {
        let (mut solver, mut workspace) = (0, 0);
        // SAFETY: the solution is alive; a place for one number.
        let status = unsafe { (gpu.miopen.miopenGetSolutionSolverId)(*solution, &mut solver) };
        gpu.check_miopen(status, "miopenGetSolutionSolverId")?;
        // SAFETY: as above.
        let status = unsafe { (gpu.miopen.miopenGetSolutionWorkspaceSize)(*solution, &mut workspace) };
        gpu.check_miopen(status, "miopenGetSolutionWorkspaceSize")?;
        solutions.push(Solution { solver, workspace });
    }
    Ok(solutions)
}
