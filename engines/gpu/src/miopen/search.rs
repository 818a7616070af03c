//! MIOpen's own search.

use std::ffi::c_void;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_kernel::convolution::ConvolutionProblem;
use hipdnn_sdk_bindings::miopen::{
    miopenFindOptions_t, miopenFindResultsOrder_t, miopenProblem_t, miopenSolution_t, miopenTensorArgumentId_t,
};

use super::choice::Policy;
use super::convolution::{Calls, Solution, direction};
use super::handles::{Handles, MiopenHandle};
use super::library::Library;
use super::record::operand;
use super::trial::Scratch;
use crate::hip::Stream;

/// More solutions than a search gives: one for each algorithm.
const MOST_SOLUTIONS: usize = 16;

struct Problem(Library, miopenProblem_t);
struct Options(Library, miopenFindOptions_t);
struct Found(Library, miopenSolution_t);

impl Drop for Problem {
    fn drop(&mut self) {
        // SAFETY: `search` made it, and nobody has it any more.
        let status = unsafe { (self.0.functions.miopenDestroyProblem)(self.1) };
        self.0.log(status, "miopenDestroyProblem");
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: `search` made the options, and nobody has them any more.
        let status = unsafe { (self.0.functions.miopenDestroyFindOptions)(self.1) };
        self.0.log(status, "miopenDestroyFindOptions");
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: MIOpen's search gave the solution to this value alone, which is gone.
        let status = unsafe { (self.0.functions.miopenDestroySolution)(self.1) };
        self.0.log(status, "miopenDestroySolution");
    }
}

/// Has MIOpen search and tune; what it finds comes back best first, and stays in its databases.
///
/// The search may take minutes, so it has a stream and a MIOpen handle of its own, and other plans are built meanwhile.
/// Tuning
/// also throws compiled code out of the handle that it works with, which must not be code that launches were recorded of.
pub(crate) fn search(handles: &Handles, problem: &ConvolutionProblem, policy: &Policy) -> Result<Vec<Solution>, Error> {
    let (library, gpu) = (handles.library(), handles.device().gpu());
    let _entered = handles.device().enter()?;
    let stream = Stream::new(gpu)?;
    let handle = MiopenHandle::new(library, stream.raw())?;
    let calls = Calls::new(library, problem, policy.fp16_alternative)?;
    let scratch = Scratch::new(gpu, problem)?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the descriptor is alive and copied; a place for one handle.
    let status = unsafe {
        (library.functions.miopenCreateConvProblem)(&mut raw, calls.convolution.raw(), direction(problem.direction))
    };
    library.check(status, "miopenCreateConvProblem")?;
    let wanted = Problem(library, raw);
    let tensors = [
        (miopenTensorArgumentId_t::miopenTensorConvolutionX, &calls.x, operand::X),
        (miopenTensorArgumentId_t::miopenTensorConvolutionW, &calls.w, operand::W),
        (miopenTensorArgumentId_t::miopenTensorConvolutionY, &calls.y, operand::Y),
    ];
    for (id, descriptor, _) in &tensors {
        // SAFETY: both are alive; MIOpen copies the descriptor.
        let status = unsafe { (library.functions.miopenSetProblemTensorDescriptor)(wanted.1, *id, descriptor.raw()) };
        library.check(status, "miopenSetProblemTensorDescriptor")?;
    }
    let mut raw = std::ptr::null_mut();
    // SAFETY: a place for one handle.
    library.check(unsafe { (library.functions.miopenCreateFindOptions)(&mut raw) }, "miopenCreateFindOptions")?;
    let options = Options(library, raw);
    let order = miopenFindResultsOrder_t::miopenFindResultsOrderByTime;
    // SAFETY: the options are alive.
    let status = unsafe { (library.functions.miopenSetFindOptionResultsOrder)(options.1, order) };
    library.check(status, "miopenSetFindOptionResultsOrder")?;
    if let Some(limit) = policy.workspace_limit {
        // SAFETY: the options are alive; the limit is a number.
        let status = unsafe { (library.functions.miopenSetFindOptionWorkspaceLimit)(options.1, limit) };
        library.check(status, "miopenSetFindOptionWorkspaceLimit")?;
    }
    let none = scratch.workspace(0)?;
    scratch.fill(&none, 0, 0, &stream)?;
    let at = scratch.place(&none, 0);
    for (id, _, operand) in &tensors {
        let address = at[*operand] as *mut c_void;
        // SAFETY: device memory of the tensor's size, which outlives the search.
        let status = unsafe { (library.functions.miopenSetFindOptionPreallocatedTensor)(options.1, *id, address) };
        library.check(status, "miopenSetFindOptionPreallocatedTensor")?;
    }
    let find = |tuning: i32| {
        // SAFETY: the options are alive.
        let status = unsafe { (library.functions.miopenSetFindOptionTuning)(options.1, tuning) };
        library.check(status, "miopenSetFindOptionTuning")?;
        let mut found = [std::ptr::null_mut(); MOST_SOLUTIONS];
        let mut count = 0;
        // SAFETY: all are alive; `found` has as many places as is said.
        let status = unsafe {
            (library.functions.miopenFindSolutions)(
                handle.raw(),
                wanted.1,
                options.1,
                found.as_mut_ptr(),
                &mut count,
                MOST_SOLUTIONS,
            )
        };
        let found: Vec<Found> =
            found.into_iter().take(count).filter(|raw| !raw.is_null()).map(|raw| Found(library, raw)).collect();
        library.check(status, "miopenFindSolutions").map(|()| found)
    };
    // Tuning compiles kernels on threads of its own, where one that can't be compiled ends the process: MIOpen 3.5.1 lets
    // the exception go. Without tuning the same is a status, so a search without it goes first.
    find(0)?;
    let found = find(1)?;
    let mut solutions = Vec::new();
    for Found(_, solution) in &found {
        let (mut solver, mut workspace) = (0, 0);
        // SAFETY: the solution is alive; a place for one number.
        let status = unsafe { (library.functions.miopenGetSolutionSolverId)(*solution, &mut solver) };
        library.check(status, "miopenGetSolutionSolverId")?;
        // SAFETY: the solution is alive; a place for the size.
        let status = unsafe { (library.functions.miopenGetSolutionWorkspaceSize)(*solution, &mut workspace) };
        library.check(status, "miopenGetSolutionWorkspaceSize")?;
        solutions.push(Solution { solver, workspace });
    }
    Ok(solutions)
}
