//! Owners of MIOpen's descriptors.

use hipdnn_sdk_bindings::miopen::{
    miopenConvolutionAttrib_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenFusionDirection_t,
    miopenFusionOpDescriptor_t, miopenFusionPlanDescriptor_t, miopenOperatorArgs_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::convolution::{ConvolutionProblem, TensorShape};
use super::gpu::Gpu;
use crate::error::Error;

/// Declares an owner of one of MIOpen's objects.
macro_rules! owner {
    ($(#[$meta:meta])* $name:ident, $raw:ty, $create:ident, $destroy:ident) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            gpu: &'static Gpu,
            raw: $raw,
        }

        // SAFETY: MIOpen's descriptors belong to no thread.
        unsafe impl Send for $name {}
        // SAFETY: calls that take a shared reference only read the descriptor; MIOpen allows that from any thread.
        unsafe impl Sync for $name {}

        impl $name {
            /// MIOpen's handle of it.
            pub(super) fn raw(&self) -> $raw {
                self.raw
            }

            fn create(gpu: &'static Gpu) -> Result<$name, Error> {
                let mut raw = std::ptr::null_mut();
                // SAFETY: a place for one handle.
                gpu.check_miopen(unsafe { (gpu.miopen.$create)(&mut raw) }, stringify!($create))?;
                Ok($name { gpu, raw })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: `create` made it, and nobody has it any more.
                let status = unsafe { (self.gpu.miopen.$destroy)(self.raw) };
                self.gpu.log_miopen(status, stringify!($destroy));
            }
        }
    };
}

owner! {
    /// A `miopenTensorDescriptor_t`.
    TensorDescriptor, miopenTensorDescriptor_t, miopenCreateTensorDescriptor, miopenDestroyTensorDescriptor
}

impl TensorDescriptor {
    /// Describes a tensor.
    ///
    /// # Errors
    /// If MIOpen refuses.
    pub fn new(gpu: &'static Gpu, shape: &TensorShape) -> Result<TensorDescriptor, Error> {
        let descriptor = TensorDescriptor::create(gpu)?;
        let (dims, strides) = (shape.dims.as_ptr(), shape.strides.as_ptr());
        let rank = i32::try_from(shape.dims.len()).expect("tensors have a few dimensions");
        // SAFETY: both lists have `rank` numbers of 64 bits, which MIOpen copies.
        let status = unsafe {
            (gpu.miopen.miopenSetTensorDescriptorV2)(descriptor.raw, shape.data_type.miopen(), rank, dims, strides)
        };
        gpu.check_miopen(status, "miopenSetTensorDescriptorV2")?;
        Ok(descriptor)
    }
}

owner! {
    /// A `miopenConvolutionDescriptor_t`.
    ConvolutionDescriptor, miopenConvolutionDescriptor_t, miopenCreateConvolutionDescriptor, miopenDestroyConvolutionDescriptor
}

impl ConvolutionDescriptor {
    /// Describes a problem's parameters.
    ///
    /// # Errors
    /// If MIOpen refuses.
    pub fn new(
        gpu: &'static Gpu,
        problem: &ConvolutionProblem,
        fp16_alternative: bool,
    ) -> Result<ConvolutionDescriptor, Error> {
        let descriptor = ConvolutionDescriptor::create(gpu)?;
        let ConvolutionProblem { padding, stride, dilation, .. } = problem;
        let rank = i32::try_from(padding.len()).expect("two or three");
        // SAFETY: the three lists have `rank` numbers each (`ConvolutionProblem::check`), which MIOpen reads only.
        let status = unsafe {
            (gpu.miopen.miopenInitConvolutionNdDescriptor)(
                descriptor.raw,
                rank,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                miopenConvolutionMode_t::miopenConvolution,
            )
        };
        gpu.check_miopen(status, "miopenInitConvolutionNdDescriptor")?;
        // SAFETY: the descriptor is alive.
        let status = unsafe { (gpu.miopen.miopenSetConvolutionGroupCount)(descriptor.raw, problem.groups) };
        gpu.check_miopen(status, "miopenSetConvolutionGroupCount")?;
        let deterministic = (DETERMINISTIC, i32::from(problem.deterministic));
        // Left unset where it may be: then MIOpen does it for gradients only, and 1 would have it for forward too.
        let arithmetic = (!fp16_alternative).then_some((FP16_ALTERNATIVE, 0));
        for (attribute, value) in [deterministic].into_iter().chain(arithmetic) {
            // SAFETY: the descriptor is alive.
            let status = unsafe { (gpu.miopen.miopenSetConvolutionAttribute)(descriptor.raw, attribute, value) };
            gpu.check_miopen(status, "miopenSetConvolutionAttribute")?;
        }
        Ok(descriptor)
    }
}

const DETERMINISTIC: miopenConvolutionAttrib_t = miopenConvolutionAttrib_t::MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC;
const FP16_ALTERNATIVE: miopenConvolutionAttrib_t = miopenConvolutionAttrib_t::MIOPEN_CONVOLUTION_ATTRIB_FP16_ALT_IMPL;

owner! {
    /// A `miopenOperatorArgs_t`: the arguments of a fusion plan's operations.
    OperatorArguments, miopenOperatorArgs_t, miopenCreateOperatorArgs, miopenDestroyOperatorArgs
}

impl OperatorArguments {
    /// Arguments that are yet to be set.
    ///
    /// # Errors
    /// If MIOpen refuses.
    pub fn new(gpu: &'static Gpu) -> Result<OperatorArguments, Error> {
        OperatorArguments::create(gpu)
    }
}

/// A `miopenFusionPlanDescriptor_t`: operations in a row that one kernel is to compute.
#[derive(Debug)]
pub struct FusionPlan {
    gpu: &'static Gpu,
    raw: miopenFusionPlanDescriptor_t,
}

// SAFETY: MIOpen's descriptors belong to no thread.
unsafe impl Send for FusionPlan {}
// SAFETY: calls that take a shared reference only read the plan.
unsafe impl Sync for FusionPlan {}

impl FusionPlan {
    /// A plan without operations.
    ///
    /// # Errors
    /// If MIOpen refuses.
    pub fn new(gpu: &'static Gpu, input: &TensorDescriptor) -> Result<FusionPlan, Error> {
        let mut raw = std::ptr::null_mut();
        let direction = miopenFusionDirection_t::miopenVerticalFusion;
        // SAFETY: a place for one handle; MIOpen copies the descriptor.
        let status = unsafe { (gpu.miopen.miopenCreateFusionPlan)(&mut raw, direction, input.raw()) };
        gpu.check_miopen(status, "miopenCreateFusionPlan")?;
        Ok(FusionPlan { gpu, raw })
    }

    /// MIOpen's handle of it.
    pub(super) fn raw(&self) -> miopenFusionPlanDescriptor_t {
        self.raw
    }

    /// Appends an operation by `create`, which is MIOpen's function `name`. The operation belongs to the plan.
    pub(super) fn add(
        &mut self,
        name: &str,
        create: impl FnOnce(miopenFusionPlanDescriptor_t, *mut miopenFusionOpDescriptor_t) -> miopenStatus_t,
    ) -> Result<miopenFusionOpDescriptor_t, Error> {
        let mut operation = std::ptr::null_mut();
        self.gpu.check_miopen(create(self.raw, &mut operation), name)?;
        Ok(operation)
    }
}

impl Drop for FusionPlan {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.gpu.miopen.miopenDestroyFusionPlan)(self.raw) };
        self.gpu.log_miopen(status, "miopenDestroyFusionPlan");
    }
}

#[cfg(test)]
mod tests {
    use super::super::convolution::{DataType, Direction};
    use super::super::gpu::gpu;
    use super::*;
    use crate::engine::miopen::testing::skip;

    #[test]
    fn other_arithmetic_for_fp16_is_forbidden_or_left_to_miopen() {
        let Ok(gpu) = gpu().inspect_err(|reason| skip(reason)) else { return };
        for direction in Direction::ALL {
            let shape = TensorShape::packed(DataType::Half, &[4, 4, 1, 1]);
            let problem = ConvolutionProblem {
                direction,
                x: shape.clone(),
                w: shape.clone(),
                y: shape,
                padding: vec![0; 2],
                stride: vec![1; 2],
                dilation: vec![1; 2],
                groups: 1,
                deterministic: true,
            };
            for (allowed, want) in [(false, 0), (true, -1)] {
                let descriptor = ConvolutionDescriptor::new(gpu, &problem, allowed).unwrap();
                for (attribute, want) in [(FP16_ALTERNATIVE, want), (DETERMINISTIC, 1)] {
                    let mut value = 77;
                    // SAFETY: the descriptor is alive; a place for one number.
                    let status =
                        unsafe { (gpu.miopen.miopenGetConvolutionAttribute)(descriptor.raw, attribute, &mut value) };
                    gpu.check_miopen(status, "miopenGetConvolutionAttribute").unwrap();
                    assert_eq!(value, want, "{direction:?}, allowed: {allowed}, {attribute:?}");
                }
            }
        }
    }
}
