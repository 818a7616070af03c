//! MIOpen's calls for a convolution.
//!
//! The three directions have calls of their own, whose arguments come in orders of their own, and MIOpen can't tell when
//! they are mixed up. All of them are made here.

use std::ffi::c_void;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_kernel::convolution::{ConvolutionProblem, DataType, Direction};
use hipdnn_sdk_bindings::miopen::{miopenConvSolution_t, miopenDataType_t, miopenHandle_t, miopenProblemDirection_t};

use super::descriptor::{ConvolutionDescriptor, TensorDescriptor};
use super::library::Library;
use super::record::{Addresses, operand};
use crate::folders;

/// The solver that has a plain kernel for every problem of the direction, by its number in MIOpen's registry, which
/// only ever grows at its end.
pub(crate) fn naive_solver(direction: Direction) -> u64 {
    match direction {
        Direction::Forward => 85,
        Direction::BackwardData => 86,
        Direction::BackwardWeights => 87,
    }
}

/// The direction in MIOpen.
pub(crate) fn direction(direction: Direction) -> miopenProblemDirection_t {
    match direction {
        Direction::Forward => miopenProblemDirection_t::miopenProblemDirectionForward,
        Direction::BackwardData => miopenProblemDirection_t::miopenProblemDirectionBackward,
        Direction::BackwardWeights => miopenProblemDirection_t::miopenProblemDirectionBackwardWeights,
    }
}

/// The element type in MIOpen.
pub(crate) fn data_type(data_type: DataType) -> miopenDataType_t {
    match data_type {
        DataType::Half => miopenDataType_t::miopenHalf,
        DataType::Float => miopenDataType_t::miopenFloat,
        DataType::BFloat16 => miopenDataType_t::miopenBFloat16,
    }
}

/// A way to solve a problem, as MIOpen offers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Solution {
    /// Its number in MIOpen's registry.
    pub solver: u64,
    /// Bytes.
    pub workspace: usize,
}

/// Addresses of a problem's tensors and its workspace on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensors {
    pub x: *mut u8,
    pub w: *mut u8,
    pub y: *mut u8,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

impl Tensors {
    /// The tensors at an operand's addresses each.
    pub(crate) fn at(at: &Addresses, workspace_bytes: usize) -> Tensors {
        let [x, w, y, workspace] =
            [operand::X, operand::W, operand::Y, operand::WORKSPACE].map(|operand| at[operand] as *mut u8);
        Tensors { x, w, y, workspace, workspace_bytes }
    }
}

/// MIOpen's calls for one problem.
#[derive(Debug)]
pub(crate) struct Calls {
    library: Library,
    direction: Direction,
    pub x: TensorDescriptor,
    pub w: TensorDescriptor,
    pub y: TensorDescriptor,
    pub convolution: ConvolutionDescriptor,
}

/// More solutions than MIOpen has solvers for a convolution at once.
const MOST_SOLUTIONS: usize = 128;

/// Calls the direction's function with the direction's order of descriptors. Handle and places are the callers'.
macro_rules! directed {
    ($calls:ident, $handle:ident, $forward:ident, $data:ident, $weights:ident, $($rest:expr),*) => {{
        let Calls { library, direction, x, w, y, convolution: c } = $calls;
        let (x, w, y, c) = (x.raw(), w.raw(), y.raw(), c.raw());
        match direction {
            Direction::Forward => {
                // SAFETY: descriptors and handle are alive, in this function's order, and the places are good.
                let status = unsafe { (library.functions.$forward)($handle, w, x, c, y, $($rest),*) };
                library.check(status, stringify!($forward))
            }
            Direction::BackwardData => {
                // SAFETY: descriptors and handle are alive, with dy first as backward data has them, and the places are
                // good.
                let status = unsafe { (library.functions.$data)($handle, y, w, c, x, $($rest),*) };
                library.check(status, stringify!($data))
            }
            Direction::BackwardWeights => {
                // SAFETY: descriptors and handle are alive, dy and x as backward weights has them, and the places are
                // good.
                let status = unsafe { (library.functions.$weights)($handle, y, x, c, w, $($rest),*) };
                library.check(status, stringify!($weights))
            }
        }
    }};
}

impl Calls {
    /// Describes the problem to MIOpen. `fp16_alternative` allows other arithmetic inside some backward solvers of 16-bit
    /// problems.
    pub(crate) fn new(library: Library, problem: &ConvolutionProblem, fp16_alternative: bool) -> Result<Calls, Error> {
        Ok(Calls {
            library,
            direction: problem.direction,
            x: TensorDescriptor::new(library, &problem.x)?,
            w: TensorDescriptor::new(library, &problem.w)?,
            y: TensorDescriptor::new(library, &problem.y)?,
            convolution: ConvolutionDescriptor::new(library, problem, fp16_alternative)?,
        })
    }

    /// Solutions that MIOpen offers, best first. The list depends on its databases.
    pub(crate) fn solutions(&self, handle: miopenHandle_t) -> Result<Vec<Solution>, Error> {
        let mut solutions = [miopenConvSolution_t::default(); MOST_SOLUTIONS];
        let mut count = 0;
        directed!(
            self,
            handle,
            miopenConvolutionForwardGetSolution,
            miopenConvolutionBackwardDataGetSolution,
            miopenConvolutionBackwardWeightsGetSolution,
            MOST_SOLUTIONS,
            &mut count,
            solutions.as_mut_ptr()
        )?;
        let offered = solutions[..count.min(MOST_SOLUTIONS)].iter();
        Ok(offered.map(|s| Solution { solver: s.solution_id, workspace: s.workspace_size }).collect())
    }

    /// Bytes of workspace that a solver wants.
    pub(crate) fn workspace(&self, handle: miopenHandle_t, solver: u64) -> Result<usize, Error> {
        let mut bytes = 0;
        directed!(
            self,
            handle,
            miopenConvolutionForwardGetSolutionWorkspaceSize,
            miopenConvolutionBackwardDataGetSolutionWorkspaceSize,
            miopenConvolutionBackwardWeightsGetSolutionWorkspaceSize,
            solver,
            &mut bytes
        )?;
        Ok(bytes)
    }

    /// Makes a solver ready to run on that handle.
    pub(crate) fn compile(&self, handle: miopenHandle_t, solver: u64) -> Result<(), Error> {
        folders::room()?;
        directed!(
            self,
            handle,
            miopenConvolutionForwardCompileSolution,
            miopenConvolutionBackwardDataCompileSolution,
            miopenConvolutionBackwardWeightsCompileSolution,
            solver
        )
    }

    /// Launches a solver on the handle's stream.
    ///
    /// # Safety
    /// The addresses are those of device memory as large as the problem's tensors and the solver's workspace, or the
    /// stream captures.
    pub(crate) unsafe fn run(&self, handle: miopenHandle_t, solver: u64, tensors: &Tensors) -> Result<(), Error> {
        let Calls { library, direction, .. } = self;
        let (dx, dw, dy, dc) = (self.x.raw(), self.w.raw(), self.y.raw(), self.convolution.raw());
        let Tensors { x, w, y, workspace, workspace_bytes: bytes } = *tensors;
        let (x, w, y, workspace): (*mut c_void, *mut c_void, *mut c_void, *mut c_void) =
            (x.cast(), w.cast(), y.cast(), workspace.cast());
        match direction {
            Direction::Forward => {
                let run = library.functions.miopenConvolutionForwardImmediate;
                // SAFETY: descriptors and handle are alive; the addresses are the caller's promise.
                let status = unsafe { run(handle, dw, w, dx, x, dc, dy, y, workspace, bytes, solver) };
                library.check(status, "miopenConvolutionForwardImmediate")
            }
            Direction::BackwardData => {
                let run = library.functions.miopenConvolutionBackwardDataImmediate;
                // SAFETY: the addresses are the caller's promise; descriptors and handle are alive, each with its
                // tensor of backward data.
                let status = unsafe { run(handle, dy, y, dw, w, dc, dx, x, workspace, bytes, solver) };
                library.check(status, "miopenConvolutionBackwardDataImmediate")
            }
            Direction::BackwardWeights => {
                let run = library.functions.miopenConvolutionBackwardWeightsImmediate;
                // SAFETY: the addresses are the caller's promise; descriptors and handle are alive, each with its
                // tensor of backward weights.
                let status = unsafe { run(handle, dy, y, dx, x, dc, dw, w, workspace, bytes, solver) };
                library.check(status, "miopenConvolutionBackwardWeightsImmediate")
            }
        }
    }
}
