//! Convolution, bias and activation in one kernel, where MIOpen has one that compiles.
//!
//! A kernel's existence depends on the GPU and on how MIOpen was built, and asking costs a compilation and, where the
//! answer is no, a line on standard error. So the answer is kept with the choices of solvers. A fused kernel is used
//! only if its launches can be repeated; where they can't, the parts do as well.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_core::payload::Entry;
use hipdnn_engine_kernel::convolution::{ConvolutionProblem, Direction, TensorShape};
use hipdnn_sdk_bindings::miopen::{
    miopenActivationMode_t, miopenConvFwdAlgorithm_t, miopenFusionOpDescriptor_t, miopenHandle_t,
};

use super::Miopen;
use super::cache::uncompiled;
use super::choice::{Choice, Policy, Verdict};
use super::convolution::{Calls, Solution};
use super::descriptor::{FusionPlan, OperatorArguments, TensorDescriptor};
use super::handles::{Builder, Handles};
use super::library::Library;
use super::prepared::{Path, PreparedConvolution};
use super::record::{Addresses, Recording, operand};
use super::trial::{self, Outcome, Scratch, Subject};
use crate::folders;
use crate::store::Store;

/// A function of each element, as MIOpen's fused kernels know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// max(0, v)
    Relu,
    /// min(upper, max(0, v))
    ClippedRelu {
        /// The largest value.
        upper: f64,
    },
    /// v above 0, else slope · v
    LeakyRelu {
        /// Of values below 0.
        slope: f64,
    },
    /// max(lower, min(upper, v))
    Clamp {
        /// The smallest value.
        lower: f64,
        /// The largest value.
        upper: f64,
    },
    /// 1 / (1 + exp(−v))
    Logistic,
    /// tanh(v)
    Tanh,
    /// v above 0, else alpha · (exp(v) − 1)
    Elu {
        /// Limit below 0, negated.
        alpha: f64,
    },
    /// |v|
    Abs,
}

impl Activation {
    /// MIOpen's mode, alpha and beta.
    fn miopen(self) -> (miopenActivationMode_t, f64, f64) {
        match self {
            Activation::Relu => (miopenActivationMode_t::miopenActivationRELU, 0.0, 0.0),
            Activation::ClippedRelu { upper } => (miopenActivationMode_t::miopenActivationCLIPPEDRELU, upper, 0.0),
            Activation::LeakyRelu { slope } => (miopenActivationMode_t::miopenActivationLEAKYRELU, slope, 0.0),
            Activation::Clamp { lower, upper } => (miopenActivationMode_t::miopenActivationCLAMP, lower, upper),
            Activation::Logistic => (miopenActivationMode_t::miopenActivationLOGISTIC, 0.0, 0.0),
            Activation::Tanh => (miopenActivationMode_t::miopenActivationTANH, 1.0, 1.0),
            Activation::Elu { alpha } => (miopenActivationMode_t::miopenActivationELU, alpha, 0.0),
            Activation::Abs => (miopenActivationMode_t::miopenActivationABS, 0.0, 0.0),
        }
    }

    fn of(self, v: f64) -> f64 {
        match self {
            Activation::Relu => v.max(0.0),
            Activation::ClippedRelu { upper } => v.max(0.0).min(upper),
            Activation::LeakyRelu { slope } => v.max(0.0) + slope * v.min(0.0),
            Activation::Clamp { lower, upper } => v.min(upper).max(lower),
            Activation::Logistic => 1.0 / (1.0 + (-v).exp()),
            Activation::Tanh => v.tanh(),
            Activation::Elu { alpha } => v.max(0.0) + alpha * v.min(0.0).exp_m1(),
            Activation::Abs => v.abs(),
        }
    }
}

/// Bias and activation behind a forward convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// A value for each channel of y, of the convolution's element type, is added.
    pub bias: bool,
    /// Then a function is applied.
    pub activation: Option<Activation>,
}

impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bias = if self.bias { " + bias" } else { "" };
        match self.activation {
            Some(activation) => write!(f, "{bias} + {activation:?}"),
            None => write!(f, "{bias}"),
        }
    }
}

/// The kind of the cache's entries.
const KIND: &str = "fusion";

/// Makes a forward convolution ready with what follows it; `None` where MIOpen has no fused kernel that can be used.
/// [`PreparedConvolution::launch_with_bias`] launches it.
///
/// # Errors
/// If the device does not work.
pub fn prepare_fused(
    miopen: &Miopen,
    problem: &ConvolutionProblem,
    epilogue: &Epilogue,
    policy: &Policy,
    store: &Store,
) -> Result<Option<PreparedConvolution>, Error> {
    problem.check().map_err(Error::invalid_value)?;
    let plain = !epilogue.bias && epilogue.activation.is_none();
    // MIOpen does not tell which solver it takes, nor does it promise the same bits.
    let free = policy.allow.is_none() && policy.deny.is_empty() && !problem.deterministic;
    if plain || !free || !policy.recorded || problem.direction != Direction::Forward {
        return Ok(None);
    }
    let (handles, memo) = (miopen.handles(), miopen.memo());
    let key = key(handles, problem, epilogue, policy);
    let fits = |bytes: usize| policy.workspace_limit.is_none_or(|limit| bytes <= limit);
    let known = memo.recall(KIND, &key, store);
    if let Some(Choice { verdict, solution, .. }) = &known
        && (matches!(verdict, Verdict::Refused(_)) || !fits(solution.workspace))
    {
        return Ok(None);
    }
    let tried = known.is_some_and(|choice| choice.verdict == Verdict::Same);
    handles.build(|builder| {
        let fused = Fused { handles, builder, problem, epilogue, policy };
        if store.is_sealed() {
            // A stored plan without this kernel has its parts.
            let make = || fused.make(true, &fits).map_err(|refusal| Error::new(ErrorKind::Device, refusal.reason));
            return tried.then(|| uncompiled(make)).transpose();
        }
        let made = match fused.make(tried, &fits) {
            Ok(made) => made,
            Err(refusal) => {
                let Refusal { reason, lasts, workspace } = refusal;
                let nowhere = Store::disabled();
                let store = match lasts {
                    Lasts::OnMachine => Some(store),
                    Lasts::InProcess => Some(&nowhere),
                    Lasts::No => None,
                };
                log::info!("{problem}{epilogue}: the parts are computed one by one: {reason}");
                if let Some(store) = store {
                    let solution = Solution { solver: 0, workspace };
                    let verdict = Verdict::Refused(reason);
                    memo.remember(KIND, key, Choice { solution, verdict, milliseconds: None }, store);
                }
                return Ok(None);
            }
        };
        let solution = Solution { solver: 0, workspace: made.workspace };
        if !tried {
            memo.remember(KIND, key, Choice { solution, verdict: Verdict::Same, milliseconds: None }, store);
        }
        log::info!("{problem}{epilogue}: {}", made.describe());
        Ok(Some(made))
    })
}

/// Key of the answer in the cache: all that it depends on.
fn key(handles: &Handles, problem: &ConvolutionProblem, epilogue: &Epilogue, policy: &Policy) -> String {
    let alternative = policy.fp16_alternative;
    format!("{problem}{epilogue}; {}; fp16 alternative {alternative}", handles.fingerprint())
}

/// Entry of the store that [`prepare_fused`] leaves for a stored plan, so that it repeats the choice.
pub(crate) fn entry(prepared: &PreparedConvolution, epilogue: &Epilogue, policy: &Policy) -> Entry {
    let key = key(&prepared.handles, &prepared.problem, epilogue, policy);
    Entry { kind: KIND.to_string(), key, value: Choice::of(prepared).encode() }
}

/// Reason for there being no fused kernel.
struct Refusal {
    reason: String,
    lasts: Lasts,
    workspace: usize,
}

/// Validity of a refusal.
enum Lasts {
    /// It depends on the policy, or on what memory is free.
    No,
    /// A failure of the device: it may be none the next time, but is not tried again at each plan.
    InProcess,
    /// It is a property of the libraries and the device.
    OnMachine,
}

impl Refusal {
    fn new(error: &Error, workspace: usize) -> Refusal {
        let lasts = match error.kind() {
            ErrorKind::AllocFailed => Lasts::No,
            ErrorKind::Unsupported => Lasts::OnMachine,
            _ => Lasts::InProcess,
        };
        Refusal { reason: error.to_string(), lasts, workspace }
    }
}

struct Fused<'a> {
    handles: &'a Arc<Handles>,
    builder: &'a Arc<Builder>,
    problem: &'a ConvolutionProblem,
    epilogue: &'a Epilogue,
    policy: &'a Policy,
}

impl Fused<'_> {
    fn make(&self, tried: bool, fits: &dyn Fn(usize) -> bool) -> Result<PreparedConvolution, Refusal> {
        let (library, gpu) = (self.handles.library(), self.handles.device().gpu());
        let handle = self.builder.handle();
        let refuse = |error: Error| Refusal::new(&error, 0);
        let plan = Plan::new(library, self.problem, self.epilogue, self.policy.fp16_alternative).map_err(refuse)?;
        folders::room().map_err(refuse)?;
        // SAFETY: both are alive.
        let status = unsafe { (library.functions.miopenCompileFusionPlan)(handle, plan.plan.raw()) };
        library.check(status, "miopenCompileFusionPlan").map_err(refuse)?;
        let bytes = plan.workspace(handle).map_err(refuse)?;
        let refused = |reason: String, lasts: Lasts| Refusal { reason, lasts, workspace: bytes };
        if bytes > 0 && library.functions.miopenExecuteFusionPlan_v2.is_none() {
            let reason = "this MIOpen gives fused kernels no workspace".to_string();
            return Err(refused(reason, Lasts::OnMachine));
        }
        if !fits(bytes) {
            return Err(refused(format!("it needs {bytes} bytes of workspace"), Lasts::No));
        }
        let run = |at: &Addresses| {
            // SAFETY: the addresses are those of scratch memory of the problem's sizes, or the stream captures.
            unsafe { plan.run(handle, at, bytes) }
        };
        let ready = |recording: Recording| PreparedConvolution {
            handles: Arc::clone(self.handles),
            problem: self.problem.clone(),
            workspace: bytes,
            solver: 0,
            milliseconds: None,
            path: Path::Recorded { recording, code: Arc::clone(self.builder) },
        };
        if tried {
            let mut operands = vec![operand::X, operand::W, operand::Y];
            operands.extend(self.epilogue.bias.then_some(operand::BIAS));
            operands.extend((bytes > 0).then_some(operand::WORKSPACE));
            if let Some(recording) = trial::again(self.builder, &operands, &run) {
                return Ok(ready(recording));
            }
        }
        let activation = self.epilogue.activation;
        let function = |value: f64| activation.map_or(value, |activation| activation.of(value));
        let bias = self.epilogue.bias.then(|| bias_of(self.problem));
        let scratch = Scratch::fused_convolution(gpu, self.problem, bias.as_ref(), &function).map_err(refuse)?;
        let workspace = scratch.workspace(bytes).map_err(refuse)?;
        let subject =
            Subject { gpu, stream: &self.builder.stream, scratch: &scratch, workspace: &workspace, run: &run };
        let trial = if tried { None } else { Some(subject.run().map_err(refuse)?) };
        match subject.record(trial.as_ref()) {
            Outcome::Recorded(recording) => Ok(ready(recording)),
            Outcome::Refused(reason) => Err(refused(reason, Lasts::OnMachine)),
            Outcome::Failed(error) => Err(refuse(error)),
        }
    }
}

/// A value for each channel of y, described with as many dimensions.
fn bias_of(problem: &ConvolutionProblem) -> TensorShape {
    let mut dims = vec![1; problem.y.dims.len()];
    dims[1] = problem.y.dims[1];
    TensorShape::packed(problem.y.data_type, &dims)
}

/// MIOpen's calls for a convolution and what follows it.
struct Plan {
    library: Library,
    calls: Calls,
    plan: FusionPlan,
    arguments: OperatorArguments,
    convolution: miopenFusionOpDescriptor_t,
    bias: Option<miopenFusionOpDescriptor_t>,
    activation: Option<(miopenFusionOpDescriptor_t, Activation)>,
}

/// Factors of a result and of what was there before, which MIOpen wants to be these.
static ONE: f32 = 1.0;
static ZERO: f32 = 0.0;

impl Plan {
    fn new(
        library: Library,
        problem: &ConvolutionProblem,
        epilogue: &Epilogue,
        fp16_alternative: bool,
    ) -> Result<Plan, Error> {
        let calls = Calls::new(library, problem, fp16_alternative)?;
        let mut plan = FusionPlan::new(library, &calls.x)?;
        // SAFETY: plan and descriptors are alive, and MIOpen copies the descriptors; a place for one handle.
        let convolution = plan.add("miopenCreateOpConvForward", |plan, place| unsafe {
            (library.functions.miopenCreateOpConvForward)(plan, place, calls.convolution.raw(), calls.w.raw())
        })?;
        let bias = match epilogue.bias {
            false => None,
            true => {
                let shape = TensorDescriptor::new(library, &bias_of(problem))?;
                // SAFETY: the plan and the bias's descriptor are alive, and MIOpen copies the descriptor; a place for
                // one handle.
                Some(plan.add("miopenCreateOpBiasForward", |plan, place| unsafe {
                    (library.functions.miopenCreateOpBiasForward)(plan, place, shape.raw())
                })?)
            }
        };
        let activation = match epilogue.activation {
            None => None,
            Some(activation) => {
                let (mode, ..) = activation.miopen();
                // SAFETY: the plan is alive; a place for one handle.
                let operation = plan.add("miopenCreateOpActivationForward", |plan, place| unsafe {
                    (library.functions.miopenCreateOpActivationForward)(plan, place, mode)
                })?;
                Some((operation, activation))
            }
        };
        Ok(Plan { library, calls, plan, arguments: OperatorArguments::new(library)?, convolution, bias, activation })
    }

    /// Bytes that the compiled plan wants.
    fn workspace(&self, handle: miopenHandle_t) -> Result<usize, Error> {
        let mut bytes = 0;
        let algorithm = miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoImplicitGEMM;
        // SAFETY: both are alive; a place for one number.
        let status = unsafe {
            (self.library.functions.miopenFusionPlanGetWorkSpaceSize)(handle, self.plan.raw(), &mut bytes, algorithm)
        };
        self.library.check(status, "miopenFusionPlanGetWorkSpaceSize")?;
        Ok(bytes)
    }

    /// Launches it on the handle's stream.
    ///
    /// # Safety
    /// The addresses are those of device memory as large as the operands, or the stream captures.
    unsafe fn run(&self, handle: miopenHandle_t, at: &Addresses, workspace_bytes: usize) -> Result<(), Error> {
        let Plan { library, calls, plan, arguments, .. } = self;
        let (one, zero): (*const c_void, *const c_void) = ((&raw const ONE).cast(), (&raw const ZERO).cast());
        let [x, w, y, bias, workspace] =
            [operand::X, operand::W, operand::Y, operand::BIAS, operand::WORKSPACE].map(|o| at[o] as *mut c_void);
        // SAFETY: arguments and operations are alive, and the factors are never gone.
        let status =
            unsafe { (library.functions.miopenSetOpArgsConvForward)(arguments.raw(), self.convolution, one, zero, w) };
        library.check(status, "miopenSetOpArgsConvForward")?;
        if let Some(operation) = self.bias {
            // SAFETY: arguments and the bias's operation are alive, and the factors are never gone.
            let status =
                unsafe { (library.functions.miopenSetOpArgsBiasForward)(arguments.raw(), operation, one, zero, bias) };
            library.check(status, "miopenSetOpArgsBiasForward")?;
        }
        if let Some((operation, activation)) = self.activation {
            let (_, alpha, beta) = activation.miopen();
            let set = library.functions.miopenSetOpArgsActivForward;
            // SAFETY: arguments and the activation's operation are alive, and the factors are never gone.
            let status = unsafe { set(arguments.raw(), operation, one, zero, alpha, beta, 0.0) };
            library.check(status, "miopenSetOpArgsActivForward")?;
        }
        let (plan, arguments, dx, dy) = (plan.raw(), arguments.raw(), calls.x.raw(), calls.y.raw());
        match library.functions.miopenExecuteFusionPlan_v2 {
            Some(execute) => {
                // SAFETY: all are alive; the addresses are the caller's promise.
                let status = unsafe { execute(handle, plan, dx, x, dy, y, arguments, workspace, workspace_bytes) };
                library.check(status, "miopenExecuteFusionPlan_v2")
            }
            None => {
                // SAFETY: handle, plan, descriptors and arguments are alive; the addresses are the caller's promise.
                let status =
                    unsafe { (library.functions.miopenExecuteFusionPlan)(handle, plan, dx, x, dy, y, arguments) };
                library.check(status, "miopenExecuteFusionPlan")
            }
        }
    }
}

#[cfg(test)]
mod tests;
