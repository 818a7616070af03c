//! Descriptors of tensors and convolutions.

use std::ffi::c_int;

use hipdnn_sdk_bindings::miopen::{
    miopenConvolutionAttrib_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenDataType_t,
    miopenStatus_t, miopenTensorDescriptor_t,
};

use super::{Result, borrow, borrow_mut, give, miopen, put};

/// A tensor: elements, extents and strides.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) data_type: miopenDataType_t,
    pub(super) dims: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A convolution's parameters, each spatial one for every spatial dimension.
#[derive(Clone, Debug)]
pub(super) struct Convolution {
    pub(super) padding: Vec<c_int>,
    pub(super) stride: Vec<c_int>,
    pub(super) dilation: Vec<c_int>,
    pub(super) groups: c_int,
    /// Attributes that were set.
    attributes: Vec<(miopenConvolutionAttrib_t, c_int)>,
}

#[cfg(test)]
impl Convolution {
    /// One without dilation.
    pub(super) fn plain(padding: &[c_int], stride: &[c_int], groups: c_int) -> Convolution {
        let dilation = vec![1; padding.len()];
        Convolution { padding: padding.to_vec(), stride: stride.to_vec(), dilation, groups, attributes: Vec::new() }
    }
}

/// Value of an attribute that was not set, as MIOpen gives it.
const UNSET: c_int = -1;

/// # Safety
/// The handle is null, or a tensor's that is alive and that nobody changes meanwhile.
pub(super) unsafe fn tensor<'a>(raw: miopenTensorDescriptor_t) -> Result<&'a Tensor> {
    // SAFETY: the caller's promise.
    unsafe { borrow(raw.cast()) }
}

/// # Safety
/// The handle is null, or a convolution's that is alive and that nobody changes meanwhile.
pub(super) unsafe fn convolution<'a>(raw: miopenConvolutionDescriptor_t) -> Result<&'a Convolution> {
    // SAFETY: the caller's promise.
    unsafe { borrow(raw.cast()) }
}

/// A list of the caller's.
///
/// # Safety
/// The address is null, or of so many numbers.
unsafe fn list<T: Clone>(raw: *const T, count: c_int) -> Result<Vec<T>> {
    let count = usize::try_from(count).map_err(|_| miopenStatus_t::miopenStatusBadParm)?;
    if raw.is_null() {
        return Err(miopenStatus_t::miopenStatusBadParm);
    }
    // SAFETY: it is not null, so the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(raw, count) }.to_vec())
}

miopen! {
    fn miopenCreateTensorDescriptor(place: *mut miopenTensorDescriptor_t) {
        give(place, Tensor { data_type: miopenDataType_t::miopenFloat, dims: Vec::new(), strides: Vec::new() })
    }

    fn miopenDestroyTensorDescriptor(raw: miopenTensorDescriptor_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Tensor>())?));
        Ok(())
    }

    fn miopenSetTensorDescriptorV2(
        raw: miopenTensorDescriptor_t, data_type: miopenDataType_t, rank: c_int, dims: *const usize, strides: *const usize,
    ) {
        *borrow_mut(raw.cast::<Tensor>())? = Tensor { data_type, dims: list(dims, rank)?, strides: list(strides, rank)? };
        Ok(())
    }

    fn miopenSet4dTensorDescriptor(
        raw: miopenTensorDescriptor_t, data_type: miopenDataType_t, n: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        let extent = |value| usize::try_from(value).map_err(|_| miopenStatus_t::miopenStatusBadParm);
        let dims = vec![extent(n)?, extent(c)?, extent(h)?, extent(w)?];
        let strides = vec![dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1];
        *borrow_mut(raw.cast::<Tensor>())? = Tensor { data_type, dims, strides };
        Ok(())
    }

    fn miopenCreateConvolutionDescriptor(place: *mut miopenConvolutionDescriptor_t) {
        let (padding, stride, dilation) = (vec![0; 2], vec![1; 2], vec![1; 2]);
        give(place, Convolution { padding, stride, dilation, groups: 1, attributes: Vec::new() })
    }

    fn miopenDestroyConvolutionDescriptor(raw: miopenConvolutionDescriptor_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Convolution>())?));
        Ok(())
    }

    fn miopenInitConvolutionNdDescriptor(
        raw: miopenConvolutionDescriptor_t, rank: c_int, padding: *const c_int, stride: *const c_int, dilation: *const c_int,
        mode: miopenConvolutionMode_t,
    ) {
        if mode != miopenConvolutionMode_t::miopenConvolution || !(2..=3).contains(&rank) {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        let made = borrow_mut(raw.cast::<Convolution>())?;
        (made.padding, made.stride, made.dilation) = (list(padding, rank)?, list(stride, rank)?, list(dilation, rank)?);
        Ok(())
    }

    fn miopenSetConvolutionGroupCount(raw: miopenConvolutionDescriptor_t, groups: c_int) {
        if groups < 1 { return Err(miopenStatus_t::miopenStatusBadParm); }
        borrow_mut(raw.cast::<Convolution>())?.groups = groups;
        Ok(())
    }

    fn miopenGetConvolutionGroupCount(raw: miopenConvolutionDescriptor_t, groups: *mut c_int) {
        put(groups, convolution(raw)?.groups)
    }

    fn miopenSetConvolutionAttribute(raw: miopenConvolutionDescriptor_t, attribute: miopenConvolutionAttrib_t, value: c_int) {
        let attributes = &mut borrow_mut(raw.cast::<Convolution>())?.attributes;
        attributes.retain(|(known, _)| *known != attribute);
        attributes.push((attribute, value));
        Ok(())
    }

    fn miopenGetConvolutionAttribute(
        raw: miopenConvolutionDescriptor_t, attribute: miopenConvolutionAttrib_t, value: *mut c_int,
    ) {
        let known = convolution(raw)?.attributes.iter().find(|(known, _)| *known == attribute);
        // Determinism is off by itself, and so are solutions that give other bits each time.
        let default = if attribute == miopenConvolutionAttrib_t::MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC { 0 } else { UNSET };
        put(value, known.map_or(default, |(_, value)| *value))
    }
}
