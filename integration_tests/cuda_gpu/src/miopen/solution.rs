//! Solutions of a convolution and their immediate mode, in three directions. Every solution gives the same bits each time.

use std::ffi::c_void;

use hipdnn_sdk_bindings::miopen::{
    miopenConvAlgorithm_t, miopenConvSolution_t, miopenConvolutionDescriptor_t, miopenHandle_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::backend::Follower;
use super::cudnn::{self, Epilogue, Way};
use super::descriptor::{Convolution, Tensor, convolution, tensor};
use super::handle::{Handle, handle};
use super::{Result, from_hip, miopen, naive, put};
use crate::device;

/// What is computed of the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// y
    Forward,
    /// The gradient of x.
    Data,
    /// The gradient of w.
    Weights,
}

impl Direction {
    /// MIOpen's number of its plain kernel.
    fn naive(self) -> u64 {
        match self {
            Direction::Forward => 85,
            Direction::Data => 86,
            Direction::Weights => 87,
        }
    }

    /// A solver's number, beyond those that MIOpen has.
    pub(super) fn number(self, way: Way) -> u64 {
        let algorithms = match self {
            Direction::Forward => 1000,
            Direction::Data => 1100,
            Direction::Weights => 1200,
        };
        match way {
            Way::Algorithm(algorithm) => algorithms + algorithm as u64,
            Way::Engine(number) => ENGINES + number as u64,
        }
    }
}

/// A convolution as described to MIOpen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem<'a> {
    pub(super) direction: Direction,
    pub(super) x: &'a Tensor,
    pub(super) w: &'a Tensor,
    pub(super) y: &'a Tensor,
    pub(super) convolution: &'a Convolution,
}

/// Addresses of a problem's tensors, and the memory to work in.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) x: *mut c_void,
    pub(super) w: *mut c_void,
    pub(super) y: *mut c_void,
    pub(super) workspace: *mut c_void,
    pub(super) workspace_bytes: usize,
}

/// A way to compute a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Solver {
    Naive,
    Cudnn(Way),
}

/// What is added to the number of an engine of cuDNN's: beyond those of all algorithms.
const ENGINES: u64 = 2000;

impl<'a> Problem<'a> {
    /// # Errors
    /// If the tensors do not fit each other.
    pub(super) fn new(
        direction: Direction,
        x: &'a Tensor,
        w: &'a Tensor,
        y: &'a Tensor,
        convolution: &'a Convolution,
    ) -> Result<Problem<'a>> {
        let rank = convolution.padding.len() + 2;
        let fits = |tensor: &Tensor| tensor.dims.len() == rank && tensor.data_type == x.data_type;
        let divides =
            w.dims.len() == rank && w.dims[1] * convolution.groups as usize == x.dims.get(1).copied().unwrap_or(0);
        if ![x, w, y].into_iter().all(fits) || !divides {
            return Err(miopenStatus_t::miopenStatusBadParm);
        }
        Ok(Problem { direction, x, w, y, convolution })
    }
}

impl Problem<'_> {
    /// The solver of that number.
    fn solver(&self, id: u64) -> Result<Solver> {
        if id == self.direction.naive() {
            return Ok(Solver::Naive);
        }
        let mut all = Way::all(self.direction).into_iter();
        let known = all.find(|way| self.direction.number(*way) == id);
        known.map(Solver::Cudnn).ok_or(miopenStatus_t::miopenStatusBadParm)
    }

    fn workspace(&self, handle: &Handle, solver: Solver) -> Result<usize> {
        match solver {
            Solver::Naive => Ok(0),
            Solver::Cudnn(way) => cudnn::workspace(handle, self, way, Follower::Nothing),
        }
    }

    /// What can compute it: number and bytes of workspace, cuDNN's first. Its engines are left to a search: asking for one compiles it.
    fn solutions(&self, handle: &Handle) -> Vec<(u64, usize)> {
        let by_cudnn = cudnn::algorithms(self.direction).iter().filter_map(|algorithm| {
            let way = Way::Algorithm(*algorithm);
            let bytes = cudnn::workspace(handle, self, way, Follower::Nothing).ok()?;
            Some((self.direction.number(way), bytes))
        });
        by_cudnn.chain([(self.direction.naive(), 0)]).collect()
    }

    fn compile(&self, handle: &Handle, id: u64) -> Result {
        match self.solver(id)? {
            Solver::Naive => naive::compile(self),
            Solver::Cudnn(way) => cudnn::workspace(handle, self, way, Follower::Nothing).map(|_| ()),
        }
    }

    /// # Safety
    /// The addresses are of device memory as large as the tensors and the workspace, on the handle's device.
    unsafe fn run(&self, handle: &Handle, at: &Addresses, id: u64) -> Result {
        let solver = self.solver(id)?;
        if self.workspace(handle, solver)? > at.workspace_bytes {
            return Err(miopenStatus_t::miopenStatusUnknownError);
        }
        match solver {
            // SAFETY: the caller's promise.
            Solver::Naive => unsafe { naive::run(handle, self, at) },
            // SAFETY: the caller's promise; the workspace is large enough.
            Solver::Cudnn(way) => unsafe { cudnn::run(handle, self, at, way, Epilogue::NONE) },
        }
    }
}

/// Defines a direction's functions. Each has its own order of descriptors: `first` and `second` are named as they come, before the
/// convolution, `result` behind it.
macro_rules! directed {
    ($direction:ident($x:ident, $w:ident, $y:ident): $first:ident, $second:ident, $result:ident; $count:ident, $solutions:ident, $workspace:ident, $compile:ident) => {
        miopen! {
            fn $count(
                raw: miopenHandle_t, $first: miopenTensorDescriptor_t, $second: miopenTensorDescriptor_t,
                c: miopenConvolutionDescriptor_t, $result: miopenTensorDescriptor_t, count: *mut usize,
            ) {
                device::enter().map_err(from_hip)?;
                let problem = problem(Direction::$direction, $x, $w, $y, c)?;
                put(count, problem.solutions(handle(raw)?).len())
            }

            fn $solutions(
                raw: miopenHandle_t, $first: miopenTensorDescriptor_t, $second: miopenTensorDescriptor_t,
                c: miopenConvolutionDescriptor_t, $result: miopenTensorDescriptor_t, most: usize, count: *mut usize,
                solutions: *mut miopenConvSolution_t,
            ) {
                device::enter().map_err(from_hip)?;
                let all = problem(Direction::$direction, $x, $w, $y, c)?.solutions(handle(raw)?);
                let given = all.len().min(most);
                for (at, (solution_id, workspace_size)) in all.into_iter().take(given).enumerate() {
                    // Their order is all that is known of their times.
                    let (time, algorithm) = (at as f32, algorithm(solution_id));
                    put(solutions.add(at), miopenConvSolution_t { time, workspace_size, solution_id, algorithm })?;
                }
                put(count, given)
            }

            fn $workspace(
                raw: miopenHandle_t, $first: miopenTensorDescriptor_t, $second: miopenTensorDescriptor_t,
                c: miopenConvolutionDescriptor_t, $result: miopenTensorDescriptor_t, id: u64, bytes: *mut usize,
            ) {
                device::enter().map_err(from_hip)?;
                let problem = problem(Direction::$direction, $x, $w, $y, c)?;
                put(bytes, problem.workspace(handle(raw)?, problem.solver(id)?)?)
            }

            fn $compile(
                raw: miopenHandle_t, $first: miopenTensorDescriptor_t, $second: miopenTensorDescriptor_t,
                c: miopenConvolutionDescriptor_t, $result: miopenTensorDescriptor_t, id: u64,
            ) {
                device::enter().map_err(from_hip)?;
                problem(Direction::$direction, $x, $w, $y, c)?.compile(handle(raw)?, id)
            }
        }
    };
}

directed! { Forward(x, w, y): w, x, y;
    miopenConvolutionForwardGetSolutionCount, miopenConvolutionForwardGetSolution,
    miopenConvolutionForwardGetSolutionWorkspaceSize, miopenConvolutionForwardCompileSolution
}
directed! { Data(x, w, y): y, w, x;
    miopenConvolutionBackwardDataGetSolutionCount, miopenConvolutionBackwardDataGetSolution,
    miopenConvolutionBackwardDataGetSolutionWorkspaceSize, miopenConvolutionBackwardDataCompileSolution
}
directed! { Weights(x, w, y): y, x, w;
    miopenConvolutionBackwardWeightsGetSolutionCount, miopenConvolutionBackwardWeightsGetSolution,
    miopenConvolutionBackwardWeightsGetSolutionWorkspaceSize, miopenConvolutionBackwardWeightsCompileSolution
}

miopen! {
    fn miopenConvolutionForwardImmediate(
        raw: miopenHandle_t, w: miopenTensorDescriptor_t, w_at: *const c_void, x: miopenTensorDescriptor_t, x_at: *const c_void,
        c: miopenConvolutionDescriptor_t, y: miopenTensorDescriptor_t, y_at: *mut c_void, workspace: *mut c_void,
        workspace_bytes: usize, id: u64,
    ) {
        device::enter().map_err(from_hip)?;
        let at = Addresses { x: x_at.cast_mut(), w: w_at.cast_mut(), y: y_at, workspace, workspace_bytes };
        problem(Direction::Forward, x, w, y, c)?.run(handle(raw)?, &at, id)
    }

    fn miopenConvolutionBackwardDataImmediate(
        raw: miopenHandle_t, y: miopenTensorDescriptor_t, y_at: *const c_void, w: miopenTensorDescriptor_t, w_at: *const c_void,
        c: miopenConvolutionDescriptor_t, x: miopenTensorDescriptor_t, x_at: *mut c_void, workspace: *mut c_void,
        workspace_bytes: usize, id: u64,
    ) {
        device::enter().map_err(from_hip)?;
        let at = Addresses { x: x_at, w: w_at.cast_mut(), y: y_at.cast_mut(), workspace, workspace_bytes };
        problem(Direction::Data, x, w, y, c)?.run(handle(raw)?, &at, id)
    }

    fn miopenConvolutionBackwardWeightsImmediate(
        raw: miopenHandle_t, y: miopenTensorDescriptor_t, y_at: *const c_void, x: miopenTensorDescriptor_t, x_at: *const c_void,
        c: miopenConvolutionDescriptor_t, w: miopenTensorDescriptor_t, w_at: *mut c_void, workspace: *mut c_void,
        workspace_bytes: usize, id: u64,
    ) {
        device::enter().map_err(from_hip)?;
        let at = Addresses { x: x_at.cast_mut(), w: w_at, y: y_at.cast_mut(), workspace, workspace_bytes };
        problem(Direction::Weights, x, w, y, c)?.run(handle(raw)?, &at, id)
    }

    fn miopenGetSolverIdConvAlgorithm(id: u64, place: *mut miopenConvAlgorithm_t) { put(place, algorithm(id)) }
}

/// The kind of algorithm of a solver's number.
fn algorithm(id: u64) -> miopenConvAlgorithm_t {
    match id {
        ..1000 => miopenConvAlgorithm_t::miopenConvolutionAlgoDirect,
        _ => miopenConvAlgorithm_t::miopenConvolutionAlgoImplicitGEMM,
    }
}

/// # Safety
/// The descriptors are null, or alive for as long as the result.
unsafe fn problem<'a>(
    direction: Direction,
    x: miopenTensorDescriptor_t,
    w: miopenTensorDescriptor_t,
    y: miopenTensorDescriptor_t,
    c: miopenConvolutionDescriptor_t,
) -> Result<Problem<'a>> {
    // SAFETY: the caller's promise.
    let (x, w, y, convolution) = unsafe { (tensor(x)?, tensor(w)?, tensor(y)?, convolution(c)?) };
    Problem::new(direction, x, w, y, convolution)
}
