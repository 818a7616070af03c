//! Fusion plans: a forward convolution with a bias for each channel and perhaps max(0, v), which cuDNN has in one call. Plans of anything
//! else do not compile, as MIOpen's of which there is no kernel.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use hipdnn_sdk_bindings::miopen::{
    miopenActivationMode_t, miopenConvFwdAlgorithm_t, miopenConvolutionDescriptor_t, miopenFusionDirection_t,
    miopenFusionOpDescriptor_t, miopenFusionPlanDescriptor_t, miopenHandle_t, miopenOperatorArgs_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::backend::Follower;
use super::cudnn::{self, Epilogue, Way};
use super::descriptor::{Convolution, Tensor, convolution, tensor};
use super::find::fastest_fused;
use super::handle::{Handle, handle};
use super::solution::{Addresses, Direction, Problem};
use super::{Result, borrow, borrow_mut, from_hip, give, miopen, put};
use crate::device;

/// A plan under construction, or whole.
#[derive(Debug)]
struct Plan {
    x: Tensor,
    operations: Vec<Operation>,
    /// What was found fastest when it was compiled.
    chosen: Option<Way>,
}

#[derive(Debug)]
enum Operation {
    Convolution(Convolution, Tensor),
    Bias(Tensor),
    Activation(miopenActivationMode_t),
}

/// Addresses that operations get, by the operations' handles.
type Arguments = Vec<(usize, *mut c_void)>;

/// A plan that cuDNN has.
struct Fused<'a> {
    convolution: &'a Convolution,
    w: &'a Tensor,
    follower: Follower,
}

impl Plan {
    /// Appends an operation. Its handle is its number: plans have their operations at the same places.
    ///
    /// # Safety
    /// The address is null, or a place for one handle.
    unsafe fn add(&mut self, place: *mut miopenFusionOpDescriptor_t, operation: Operation) -> Result {
        self.operations.push(operation);
        // SAFETY: the caller's promise.
        unsafe { put(place, without_provenance_mut(self.operations.len())) }
    }

    /// The plan as cuDNN has it.
    fn fused(&self) -> Result<Fused<'_>> {
        let (convolution, w, bias, follower) = match &self.operations[..] {
            [Operation::Convolution(convolution, w), Operation::Bias(bias)] => (convolution, w, bias, Follower::Bias),
            [Operation::Convolution(convolution, w), Operation::Bias(bias), Operation::Activation(mode)]
                if *mode == miopenActivationMode_t::miopenActivationRELU =>
            {
                (convolution, w, bias, Follower::BiasRelu)
            }
            _ => return Err(miopenStatus_t::miopenStatusUnsupportedOp),
        };
        let channels = w.dims.first().copied().unwrap_or(0);
        let is_per_channel = bias.dims.get(1) == Some(&channels) && bias.dims.iter().product::<usize>() == channels;
        if !is_per_channel || bias.data_type != self.x.data_type {
            return Err(miopenStatus_t::miopenStatusUnsupportedOp);
        }
        Ok(Fused { convolution, w, follower })
    }

    /// Has cuDNN's ways timed, as MIOpen times its solvers when it compiles a plan.
    fn compile(&mut self, handle: &Handle) -> Result {
        let Fused { convolution, w, follower } = self.fused()?;
        let y = cudnn::result(&self.x, w, convolution)?;
        self.chosen = Some(fastest_fused(handle, &self.problem(convolution, w, &y)?, follower)?);
        Ok(())
    }

    /// The way that was chosen.
    fn way(&self) -> Result<Way> {
        self.chosen.ok_or(miopenStatus_t::miopenStatusBadParm)
    }

    /// Bytes that cuDNN works in.
    fn workspace(&self, handle: &Handle) -> Result<usize> {
        let Fused { convolution, w, follower } = self.fused()?;
        let y = cudnn::result(&self.x, w, convolution)?;
        cudnn::workspace(handle, &self.problem(convolution, w, &y)?, self.way()?, follower)
    }

    fn problem<'a>(&'a self, convolution: &'a Convolution, w: &'a Tensor, y: &'a Tensor) -> Result<Problem<'a>> {
        Problem::new(Direction::Forward, &self.x, w, y, convolution)
    }

    /// # Safety
    /// The addresses are of device memory as large as the tensors and [`Plan::workspace`], the arguments' are of this plan's operations.
    unsafe fn run(&self, handle: &Handle, y: &Tensor, mut at: Addresses, arguments: &Arguments) -> Result {
        let Fused { convolution, w, follower } = self.fused()?;
        let argument = |operation: usize| {
            let mut found = arguments.iter().filter(|(of, _)| *of == operation).map(|(_, address)| *address);
            found.next().ok_or(miopenStatus_t::miopenStatusBadParm)
        };
        // The convolution is the first operation, the bias the second.
        at.w = argument(1)?;
        let epilogue = Epilogue { follower, bias: argument(2)? };
        let (problem, way) = (self.problem(convolution, w, y)?, self.way()?);
        if cudnn::workspace(handle, &problem, way, follower)? > at.workspace_bytes {
            return Err(miopenStatus_t::miopenStatusUnknownError);
        }
        // SAFETY: the caller's promise; the workspace is large enough.
        unsafe { cudnn::run(handle, &problem, &at, way, epilogue) }
    }
}

/// # Safety
/// The handle is null, or a plan's that is alive and that nobody changes meanwhile.
unsafe fn plan<'a>(raw: miopenFusionPlanDescriptor_t) -> Result<&'a Plan> {
    // SAFETY: the caller's promise.
    unsafe { borrow(raw.cast::<Plan>()) }
}

/// Sets what an operation gets.
///
/// # Safety
/// The handle is null, or that of arguments that are alive and that nobody else uses meanwhile.
unsafe fn set(raw: miopenOperatorArgs_t, operation: miopenFusionOpDescriptor_t, address: *mut c_void) -> Result {
    // SAFETY: the caller's promise.
    let arguments = unsafe { borrow_mut(raw.cast::<Arguments>()) }?;
    arguments.retain(|(of, _)| *of != operation.addr());
    arguments.push((operation.addr(), address));
    Ok(())
}

miopen! {
    fn miopenCreateFusionPlan(
        place: *mut miopenFusionPlanDescriptor_t, direction: miopenFusionDirection_t, x: miopenTensorDescriptor_t,
    ) {
        if direction != miopenFusionDirection_t::miopenVerticalFusion {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        give(place, Plan { x: tensor(x)?.clone(), operations: Vec::new(), chosen: None })
    }

    fn miopenDestroyFusionPlan(raw: miopenFusionPlanDescriptor_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Plan>())?));
        Ok(())
    }

    fn miopenCreateOpConvForward(
        raw: miopenFusionPlanDescriptor_t, place: *mut miopenFusionOpDescriptor_t, c: miopenConvolutionDescriptor_t,
        w: miopenTensorDescriptor_t,
    ) {
        let operation = Operation::Convolution(convolution(c)?.clone(), tensor(w)?.clone());
        borrow_mut(raw.cast::<Plan>())?.add(place, operation)
    }

    fn miopenCreateOpBiasForward(
        raw: miopenFusionPlanDescriptor_t, place: *mut miopenFusionOpDescriptor_t, bias: miopenTensorDescriptor_t,
    ) {
        borrow_mut(raw.cast::<Plan>())?.add(place, Operation::Bias(tensor(bias)?.clone()))
    }

    fn miopenCreateOpActivationForward(
        raw: miopenFusionPlanDescriptor_t, place: *mut miopenFusionOpDescriptor_t, mode: miopenActivationMode_t,
    ) {
        borrow_mut(raw.cast::<Plan>())?.add(place, Operation::Activation(mode))
    }

    fn miopenCompileFusionPlan(raw: miopenHandle_t, of: miopenFusionPlanDescriptor_t) {
        device::enter().map_err(from_hip)?;
        borrow_mut(of.cast::<Plan>())?.compile(handle(raw)?)
    }

    fn miopenFusionPlanGetWorkSpaceSize(
        raw: miopenHandle_t, of: miopenFusionPlanDescriptor_t, bytes: *mut usize, _algorithm: miopenConvFwdAlgorithm_t,
    ) {
        device::enter().map_err(from_hip)?;
        put(bytes, plan(of)?.workspace(handle(raw)?)?)
    }

    fn miopenCreateOperatorArgs(place: *mut miopenOperatorArgs_t) { give(place, Arguments::new()) }

    fn miopenDestroyOperatorArgs(raw: miopenOperatorArgs_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Arguments>())?));
        Ok(())
    }

    fn miopenSetOpArgsConvForward(
        raw: miopenOperatorArgs_t, operation: miopenFusionOpDescriptor_t, _alpha: *const c_void, _beta: *const c_void,
        w: *const c_void,
    ) {
        set(raw, operation, w.cast_mut())
    }

    fn miopenSetOpArgsBiasForward(
        raw: miopenOperatorArgs_t, operation: miopenFusionOpDescriptor_t, _alpha: *const c_void, _beta: *const c_void,
        bias: *const c_void,
    ) {
        set(raw, operation, bias.cast_mut())
    }

    fn miopenSetOpArgsActivForward(
        raw: miopenOperatorArgs_t, operation: miopenFusionOpDescriptor_t, _alpha: *const c_void, _beta: *const c_void,
        _first: f64, _second: f64, _third: f64,
    ) {
        // The one activation that there is has no parameters.
        set(raw, operation, null_mut())
    }

    fn miopenExecuteFusionPlan(
        raw: miopenHandle_t, of: miopenFusionPlanDescriptor_t, _x: miopenTensorDescriptor_t, x_at: *const c_void,
        y: miopenTensorDescriptor_t, y_at: *mut c_void, arguments: miopenOperatorArgs_t,
    ) {
        device::enter().map_err(from_hip)?;
        let (null, x) = (null_mut(), x_at.cast_mut());
        let at = Addresses { x, w: null, y: y_at, workspace: null, workspace_bytes: 0 };
        plan(of)?.run(handle(raw)?, tensor(y)?, at, borrow(arguments.cast())?)
    }

    fn miopenExecuteFusionPlan_v2(
        raw: miopenHandle_t, of: miopenFusionPlanDescriptor_t, _x: miopenTensorDescriptor_t, x_at: *const c_void,
        y: miopenTensorDescriptor_t, y_at: *mut c_void, arguments: miopenOperatorArgs_t, workspace: *mut c_void,
        workspace_bytes: usize,
    ) {
        device::enter().map_err(from_hip)?;
        let at = Addresses { x: x_at.cast_mut(), w: null_mut(), y: y_at, workspace, workspace_bytes };
        plan(of)?.run(handle(raw)?, tensor(y)?, at, borrow(arguments.cast())?)
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_sdk_bindings::miopen::miopenDataType_t;

    use super::*;

    #[test]
    fn a_bias_and_a_relu_are_all_that_follows() {
        let (half, float) = (miopenDataType_t::miopenHalf, miopenDataType_t::miopenFloat);
        let relu = || Operation::Activation(miopenActivationMode_t::miopenActivationRELU);
        let tanh = || Operation::Activation(miopenActivationMode_t::miopenActivationTANH);
        let tensor = |data_type, dims: &[usize]| {
            let strides = vec![dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]];
            Tensor { data_type, dims: dims.to_vec(), strides }
        };
        let convolution =
            || Operation::Convolution(Convolution::plain(&[1, 1], &[1, 1], 1), tensor(half, &[16, 8, 3, 3]));
        let bias = || Operation::Bias(tensor(half, &[1, 16, 1, 1]));
        for (operations, want) in [
            (vec![convolution(), bias()], Some(Follower::Bias)),
            (vec![convolution(), bias(), relu()], Some(Follower::BiasRelu)),
            (vec![convolution()], None),
            (vec![convolution(), relu()], None),
            (vec![convolution(), bias(), tanh()], None),
            (vec![bias(), convolution()], None),
            (vec![convolution(), Operation::Bias(tensor(float, &[1, 16, 1, 1]))], None),
            (vec![convolution(), Operation::Bias(tensor(half, &[1, 1, 1, 16]))], None),
        ] {
            let plan = Plan { x: tensor(half, &[2, 8, 5, 5]), operations, chosen: None };
            let unsupported = miopenStatus_t::miopenStatusUnsupportedOp;
            assert_eq!(plan.fused().map(|fused| fused.follower), want.ok_or(unsupported), "{:?}", plan.operations);
        }
    }
}
