//! Convolutions that only need to be launched.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_kernel::convolution::ConvolutionProblem;
use hipdnn_sdk_bindings::miopen::miopenConvAlgorithm_t;

use super::convolution::{Calls, Tensors};
use super::handles::{Builder, Handles};
use super::library::Library;
use super::record::{Addresses, OPERANDS, Recording, operand};
use crate::hip::Queue;

/// A convolution that only needs to be launched.
#[derive(Debug)]
pub struct PreparedConvolution {
    pub(crate) handles: Arc<Handles>,
    pub(crate) problem: ConvolutionProblem,
    pub(crate) workspace: usize,
    pub(crate) solver: u64,
    pub(crate) milliseconds: Option<f32>,
    pub(crate) path: Path,
}

/// Way in which it is launched.
#[derive(Debug)]
pub(crate) enum Path {
    /// Without MIOpen.
    Recorded {
        recording: Recording,
        /// Owns the code.
        #[expect(dead_code, reason = "held, not used")]
        code: Arc<Builder>,
    },
    /// By MIOpen's own call.
    Called { calls: Calls, reason: String },
}

impl PreparedConvolution {
    /// Bytes of workspace that a launch uses.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    /// The solver's number in MIOpen's registry; 0 for a fused kernel.
    pub fn solver(&self) -> u64 {
        self.solver
    }

    /// True if launches are repeated without MIOpen.
    pub fn is_recorded(&self) -> bool {
        matches!(self.path, Path::Recorded { .. })
    }

    /// The solver and its workspace, in words.
    pub fn outline(&self) -> String {
        format!("{}, workspace {} bytes", Solver(self.handles.library(), self.solver), self.workspace)
    }

    /// The choice, in words.
    pub fn describe(&self) -> String {
        let mut text = self.outline();
        match &self.path {
            Path::Recorded { recording, .. } => text += &format!(", recorded in {} piece(s)", recording.len()),
            Path::Called { reason, .. } => text += &format!(", called through MIOpen ({reason})"),
        }
        if let Some(milliseconds) = self.milliseconds {
            text += &format!(", {milliseconds:.4} ms when it was chosen");
        }
        text
    }

    /// Does ahead of the first launch on a stream what it would have to do: nothing, where launches are repeated; else a
    /// MIOpen handle for the stream is made and the solver compiled for it.
    ///
    /// # Errors
    /// If MIOpen refuses.
    pub fn make_ready(&self, stream: *mut c_void) -> Result<(), Error> {
        match &self.path {
            Path::Recorded { .. } => Ok(()),
            Path::Called { calls, .. } => {
                let compile = |handle| calls.compile(handle, self.solver);
                self.handles.run(stream.cast(), compile).map_err(|error| self.explain(error))
            }
        }
    }

    /// Launches it on a stream.
    ///
    /// # Safety
    /// The stream is one of the plan's device, and the addresses are those of device memory as large as the problem's
    /// tensors and the workspace, which stays until the stream has done the work.
    ///
    /// # Errors
    /// If HIP or MIOpen refuses.
    pub unsafe fn launch(
        &self,
        stream: *mut c_void,
        x: *mut u8,
        w: *mut u8,
        y: *mut u8,
        workspace: *mut u8,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise; a launch that needs a bias refuses null.
        unsafe { self.launch_with_bias(&mut Queue::new(stream), x, w, std::ptr::null_mut(), y, workspace) }
    }

    /// Launches it with the bias that a fused convolution has.
    ///
    /// # Safety
    /// As [`PreparedConvolution::launch`], and the bias has a value for each channel of y.
    ///
    /// # Errors
    /// If HIP or MIOpen refuses.
    pub unsafe fn launch_with_bias(
        &self,
        queue: &mut Queue<'_>,
        x: *mut u8,
        w: *mut u8,
        bias: *mut u8,
        y: *mut u8,
        workspace: *mut u8,
    ) -> Result<(), Error> {
        match &self.path {
            Path::Recorded { recording, .. } => {
                let mut at: Addresses = [0; OPERANDS];
                let operands = [
                    (operand::X, x),
                    (operand::W, w),
                    (operand::Y, y),
                    (operand::BIAS, bias),
                    (operand::WORKSPACE, workspace),
                ];
                for (operand, address) in operands {
                    at[operand] = address as u64;
                }
                // SAFETY: the builder keeps the code; the rest is the caller's promise.
                let launched = unsafe { self.replay(recording, queue, &at) };
                launched.map_err(|error| self.explain(error))
            }
            Path::Called { calls, .. } => {
                let tensors = Tensors { x, w, y, workspace, workspace_bytes: self.workspace };
                // SAFETY: the caller's promise.
                let run = |handle| unsafe { calls.run(handle, self.solver, &tensors) };
                self.handles.run(queue.untaped(), run).map_err(|error| self.explain(error))
            }
        }
    }

    /// # Safety
    /// As [`Recording::launch`].
    pub(crate) unsafe fn replay(
        &self,
        recording: &Recording,
        queue: &mut Queue<'_>,
        at: &Addresses,
    ) -> Result<(), Error> {
        let _entered = self.handles.device().enter_for(queue.stream())?;
        // SAFETY: the caller's promise.
        unsafe { recording.launch(self.handles.device().gpu(), queue, at) }
    }

    /// An error of a launch, with what was launched.
    pub(crate) fn explain(&self, error: Error) -> Error {
        error.within(format!("{}: {}", self.problem, Solver(self.handles.library(), self.solver)))
    }
}

/// A solver's number and algorithm, for messages.
pub(crate) struct Solver(pub Library, pub u64);

impl Solver {
    fn algorithm(&self) -> Option<miopenConvAlgorithm_t> {
        let Solver(library, solver) = *self;
        let mut algorithm = miopenConvAlgorithm_t::miopenConvolutionAlgoGEMM;
        // SAFETY: a place for one number; MIOpen takes any solver's number.
        let status = unsafe { (library.functions.miopenGetSolverIdConvAlgorithm)(solver, &mut algorithm) };
        library.check(status, "miopenGetSolverIdConvAlgorithm").ok().map(|()| algorithm)
    }

    /// True if it is a matrix product with kernels around it.
    pub(crate) fn is_product(&self) -> bool {
        self.algorithm() == Some(miopenConvAlgorithm_t::miopenConvolutionAlgoGEMM)
    }
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 == 0 {
            return write!(f, "fused kernel");
        }
        write!(f, "solver {}", self.1)?;
        match self.algorithm() {
            Some(algorithm) => write!(f, " ({})", algorithm.to_string().trim_start_matches("miopenConvolutionAlgo")),
            None => Ok(()),
        }
    }
}
