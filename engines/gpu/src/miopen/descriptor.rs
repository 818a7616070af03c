//! Owners of MIOpen's descriptors.

use hipdnn_engine_core::error::Error;
use hipdnn_engine_kernel::convolution::{ConvolutionProblem, TensorShape};
use hipdnn_sdk_bindings::miopen::{
    miopenConvolutionAttrib_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenFusionDirection_t,
    miopenFusionOpDescriptor_t, miopenFusionPlanDescriptor_t, miopenOperatorArgs_t, miopenStatus_t,
    miopenTensorDescriptor_t,
};

use super::convolution::data_type;
use super::library::Library;

/// Declares an owner of one of MIOpen's objects.
macro_rules! owner {
    ($(#[$meta:meta])* $name:ident, $raw:ty, $create:ident, $destroy:ident) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name {
            library: Library,
            raw: $raw,
        }

        // SAFETY: MIOpen's descriptors belong to no thread.
        unsafe impl Send for $name {}
        // SAFETY: calls that take a shared reference only read the descriptor; MIOpen allows that from any thread.
        unsafe impl Sync for $name {}

        impl $name {
            /// MIOpen's handle of it.
            pub(crate) fn raw(&self) -> $raw {
                self.raw
            }

            fn create(library: Library) -> Result<$name, Error> {
                let mut raw = std::ptr::null_mut();
                // SAFETY: a place for one handle.
                library.check(unsafe { (library.functions.$create)(&mut raw) }, stringify!($create))?;
                Ok($name { library, raw })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: `create` made it, and nobody has it any more.
                let status = unsafe { (self.library.functions.$destroy)(self.raw) };
                self.library.log(status, stringify!($destroy));
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
    pub fn new(library: Library, shape: &TensorShape) -> Result<TensorDescriptor, Error> {
        let descriptor = TensorDescriptor::create(library)?;
        let (dims, strides) = (shape.dims.as_ptr(), shape.strides.as_ptr());
        let rank = i32::try_from(shape.dims.len()).expect("tensors have a few dimensions");
        // SAFETY: both lists have `rank` numbers of 64 bits, which MIOpen copies.
        let status = unsafe {
            (library.functions.miopenSetTensorDescriptorV2)(
                descriptor.raw,
                data_type(shape.data_type),
                rank,
                dims,
                strides,
            )
        };
        library.check(status, "miopenSetTensorDescriptorV2")?;
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
        library: Library,
        problem: &ConvolutionProblem,
        fp16_alternative: bool,
    ) -> Result<ConvolutionDescriptor, Error> {
        let descriptor = ConvolutionDescriptor::create(library)?;
        let ConvolutionProblem { padding, stride, dilation, .. } = problem;
        let rank = i32::try_from(padding.len()).expect("two or three");
        // SAFETY: the three lists have `rank` numbers each (`ConvolutionProblem::check`), which MIOpen reads only.
        let status = unsafe {
            (library.functions.miopenInitConvolutionNdDescriptor)(
                descriptor.raw,
                rank,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                miopenConvolutionMode_t::miopenConvolution,
            )
        };
        library.check(status, "miopenInitConvolutionNdDescriptor")?;
        // SAFETY: the descriptor is alive.
        let status = unsafe { (library.functions.miopenSetConvolutionGroupCount)(descriptor.raw, problem.groups) };
        library.check(status, "miopenSetConvolutionGroupCount")?;
        let deterministic = (DETERMINISTIC, i32::from(problem.deterministic));
        // Left unset where it may be: then MIOpen does it for gradients only, and 1 would have it for forward too.
        let arithmetic = (!fp16_alternative).then_some((FP16_ALTERNATIVE, 0));
        for (attribute, value) in [deterministic].into_iter().chain(arithmetic) {
            // SAFETY: the descriptor is alive.
            let status = unsafe { (library.functions.miopenSetConvolutionAttribute)(descriptor.raw, attribute, value) };
            library.check(status, "miopenSetConvolutionAttribute")?;
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
    pub fn new(library: Library) -> Result<OperatorArguments, Error> {
        OperatorArguments::create(library)
    }
}

/// A `miopenFusionPlanDescriptor_t`: operations in a row that one kernel is to compute.
#[derive(Debug)]
pub struct FusionPlan {
    library: Library,
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
    pub fn new(library: Library, input: &TensorDescriptor) -> Result<FusionPlan, Error> {
        let mut raw = std::ptr::null_mut();
        let direction = miopenFusionDirection_t::miopenVerticalFusion;
        // SAFETY: a place for one handle; MIOpen copies the descriptor.
        let status = unsafe { (library.functions.miopenCreateFusionPlan)(&mut raw, direction, input.raw()) };
        library.check(status, "miopenCreateFusionPlan")?;
        Ok(FusionPlan { library, raw })
    }

    /// MIOpen's handle of it.
    pub(crate) fn raw(&self) -> miopenFusionPlanDescriptor_t {
        self.raw
    }

    /// Appends an operation by `create`, which is MIOpen's function `name`. The operation belongs to the plan.
    pub(crate) fn add(
        &mut self,
        name: &str,
        create: impl FnOnce(miopenFusionPlanDescriptor_t, *mut miopenFusionOpDescriptor_t) -> miopenStatus_t,
    ) -> Result<miopenFusionOpDescriptor_t, Error> {
        let mut operation = std::ptr::null_mut();
        self.library.check(create(self.raw, &mut operation), name)?;
        Ok(operation)
    }
}

impl Drop for FusionPlan {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.library.functions.miopenDestroyFusionPlan)(self.raw) };
        self.library.log(status, "miopenDestroyFusionPlan");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip::gpu;
    use crate::testing::skip;
    use hipdnn_engine_kernel::convolution::{DataType, Direction};

    #[test]
    fn other_arithmetic_for_fp16_is_forbidden_or_left_to_miopen() {
        let Ok(library) = gpu().and_then(Library::new).inspect_err(|reason| skip(reason)) else { return };
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
                let descriptor = ConvolutionDescriptor::new(library, &problem, allowed).unwrap();
                for (attribute, want) in [(FP16_ALTERNATIVE, want), (DETERMINISTIC, 1)] {
                    let mut value = 77;
                    // SAFETY: the descriptor is alive; a place for one number.
                    let status = unsafe {
                        (library.functions.miopenGetConvolutionAttribute)(descriptor.raw, attribute, &mut value)
                    };
                    library.check(status, "miopenGetConvolutionAttribute").unwrap();
                    assert_eq!(value, want, "{direction:?}, allowed: {allowed}, {attribute:?}");
                }
            }
        }
    }
}
