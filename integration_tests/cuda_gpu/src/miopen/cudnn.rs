//! cuDNN's convolutions: `f32` by multiply-add alone (no TF32), 16-bit types by matrix instructions that accumulate in `f32`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use cudarc::cudnn::sys::{
    self, cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Forward, cudnnConvolutionMode_t, cudnnDataType_t, cudnnMathType_t, cudnnStatus_t,
    cudnnTensorFormat_t,
};
use hipdnn_sdk_bindings::miopen::{miopenDataType_t, miopenStatus_t};

use super::Result;
use super::descriptor::Tensor;
use super::handle::Handle as MiopenHandle;
use super::solution::{Addresses, Direction, Problem};
use crate::hip::count_launch;

/// cuDNN's numbers of its algorithms that give the same bits each time and multiply what the convolution multiplies (no transforms),
/// faster first.
pub(super) fn algorithms(direction: Direction) -> &'static [c_int] {
    match direction {
        Direction::Forward => &[1, 0],
        Direction::Data | Direction::Weights => &[1],
    }
}

/// The longest window, in taps of a dimension, of the gradients of 16-bit data: cuDNN cuts longer ones into pieces whose sums it rounds to 16
/// bits, as it does where channels are no multiple of [`WHOLE_CHANNELS`] (both missed the bounds of an `f32` sum, on an H200 with cuDNN 9).
const LONGEST_WINDOW: usize = 5;

fn forward(algorithm: c_int) -> Forward {
    match algorithm {
        0 => Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
        _ => Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
    }
}

const DATA: Data = Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
const FILTER: Filter = Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/// cuDNN's handle, for the stream of MIOpen's.
pub(super) struct Handle(sys::cudnnHandle_t);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `get` made it, and nobody has it any more. There is nobody to tell an error.
        let _ = unsafe { sys::cudnnDestroy(self.0) };
    }
}

fn is_there() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: opening cuDNN runs its initializers, as for every user of it.
        let there = unsafe { sys::is_culib_present() };
        if !there {
            eprintln!("HIP over CUDA: cuDNN (libcudnn) can't be opened: the plain kernel computes all convolutions");
        }
        there
    })
}

/// Multiple of channels that cuDNN's faster algorithm takes as they are. Others of 16 bits it copies where channels come last, and infinities
/// became zeros on the way (on an H200 with cuDNN 9).
const WHOLE_CHANNELS: usize = 8;

/// An execution that failed is an unknown error; whatever else cuDNN refuses is left to the plain kernel, as not implemented.
fn check(status: cudnnStatus_t) -> Result {
    match status {
        cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        cudnnStatus_t::CUDNN_STATUS_EXECUTION_FAILED => Err(miopenStatus_t::miopenStatusUnknownError),
        _ => Err(miopenStatus_t::miopenStatusNotImplemented),
    }
}

/// The handle, made when it is first wanted.
fn get(handle: &MiopenHandle) -> Result<sys::cudnnHandle_t> {
    let made = handle.cudnn.get_or_init(|| {
        let mut raw = null_mut();
        // SAFETY: cuDNN is there; a place for one handle, and the stream is the caller's.
        let made = is_there() && unsafe { check(sys::cudnnCreate(&mut raw)) }.is_ok();
        let made = made.then(|| Handle(raw))?;
        // SAFETY: the handle is alive, and the stream is the caller's.
        unsafe { check(sys::cudnnSetStream(made.0, handle.stream.cast())) }.ok().map(|()| made)
    });
    made.as_ref().map(|made| made.0).ok_or(miopenStatus_t::miopenStatusNotImplemented)
}

/// Declares the owner of one of cuDNN's descriptors.
macro_rules! owner {
    ($name:ident, $raw:ty, $create:ident, $destroy:ident) => {
        struct $name($raw);

        impl $name {
            fn create() -> Result<$name> {
                let mut raw = null_mut();
                // SAFETY: a place for one descriptor.
                check(unsafe { sys::$create(&mut raw) })?;
                Ok($name(raw))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: `create` made it, and nobody has it any more. There is nobody to tell an error.
                let _ = unsafe { sys::$destroy(self.0) };
            }
        }
    };
}

owner!(TensorDescriptor, sys::cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);
owner!(FilterDescriptor, sys::cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor);
owner!(
    ConvolutionDescriptor,
    sys::cudnnConvolutionDescriptor_t,
    cudnnCreateConvolutionDescriptor,
    cudnnDestroyConvolutionDescriptor
);

/// Order of the dimensions in memory, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

impl Layout {
    /// Strides of packed elements.
    fn strides(self, dims: &[usize]) -> Vec<usize> {
        let rank = dims.len();
        let order: Vec<usize> = match self {
            Layout::ChannelsFirst => (0..rank).collect(),
            Layout::ChannelsLast => [0].into_iter().chain(2..rank).chain([1]).collect(),
        };
        let (mut strides, mut step) = (vec![0; rank], 1);
        for dimension in order.into_iter().rev() {
            strides[dimension] = step;
            step *= dims[dimension];
        }
        strides
    }

    /// True if a tensor is packed in it, whatever the strides of extents of 1.
    fn is_of(self, tensor: &Tensor) -> bool {
        let packed = self.strides(&tensor.dims);
        tensor
            .dims
            .iter()
            .zip(tensor.strides.iter().zip(&packed))
            .all(|(extent, (is, want))| *extent == 1 || is == want)
    }

    /// The layout of all three tensors.
    fn of(problem: &Problem<'_>) -> Result<Layout> {
        let all = [Layout::ChannelsFirst, Layout::ChannelsLast].into_iter();
        let mut fitting =
            all.filter(|layout| [problem.x, problem.w, problem.y].iter().all(|tensor| layout.is_of(tensor)));
        fitting.next().ok_or(miopenStatus_t::miopenStatusNotImplemented)
    }
}

/// A problem as cuDNN has it.
struct Described {
    x: TensorDescriptor,
    w: FilterDescriptor,
    y: TensorDescriptor,
    convolution: ConvolutionDescriptor,
}

fn numbers(values: &[usize]) -> Result<Vec<c_int>> {
    let number = |value: &usize| c_int::try_from(*value).map_err(|_| miopenStatus_t::miopenStatusNotImplemented);
    values.iter().map(number).collect()
}

impl Described {
    fn new(problem: &Problem<'_>) -> Result<Described> {
        let (data_type, math) = match problem.x.data_type {
            miopenDataType_t::miopenFloat => (cudnnDataType_t::CUDNN_DATA_FLOAT, cudnnMathType_t::CUDNN_FMA_MATH),
            miopenDataType_t::miopenHalf => (cudnnDataType_t::CUDNN_DATA_HALF, cudnnMathType_t::CUDNN_TENSOR_OP_MATH),
            miopenDataType_t::miopenBFloat16 => {
                (cudnnDataType_t::CUDNN_DATA_BFLOAT16, cudnnMathType_t::CUDNN_TENSOR_OP_MATH)
            }
            _ => return Err(miopenStatus_t::miopenStatusNotImplemented),
        };
        let is_cut = problem.w.dims[2..].iter().any(|taps| *taps > LONGEST_WINDOW);
        let is_cut = is_cut || has_rest(problem);
        if problem.direction == Direction::Data && data_type != cudnnDataType_t::CUDNN_DATA_FLOAT && is_cut {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        let layout = Layout::of(problem)?;
        let described = Described {
            x: TensorDescriptor::create()?,
            w: FilterDescriptor::create()?,
            y: TensorDescriptor::create()?,
            convolution: ConvolutionDescriptor::create()?,
        };
        for (descriptor, tensor) in [(&described.x, problem.x), (&described.y, problem.y)] {
            let (dims, strides) = (numbers(&tensor.dims)?, numbers(&layout.strides(&tensor.dims))?);
            let rank = dims.len() as c_int;
            // SAFETY: the descriptor is alive; so many numbers each.
            check(unsafe {
                sys::cudnnSetTensorNdDescriptor(descriptor.0, data_type, rank, dims.as_ptr(), strides.as_ptr())
            })?;
        }
        let format = match layout {
            Layout::ChannelsFirst => cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
            Layout::ChannelsLast => cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
        };
        let dims = numbers(&problem.w.dims)?;
        let c = problem.convolution;
        let (cross, single) = (cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION, cudnnDataType_t::CUDNN_DATA_FLOAT);
        let (padding, stride, dilation) = (c.padding.as_ptr(), c.stride.as_ptr(), c.dilation.as_ptr());
        let (raw, rank) = (described.convolution.0, c.padding.len() as c_int);
        // SAFETY: the descriptors are alive; so many numbers each.
        unsafe {
            let set = sys::cudnnSetFilterNdDescriptor;
            check(set(described.w.0, data_type, format, dims.len() as c_int, dims.as_ptr()))?;
            check(sys::cudnnSetConvolutionNdDescriptor(raw, rank, padding, stride, dilation, cross, single))?;
            check(sys::cudnnSetConvolutionGroupCount(raw, c.groups))?;
            check(sys::cudnnSetConvolutionMathType(raw, math))?;
        }
        Ok(described)
    }
}

/// True if a number of channels is no multiple of what cuDNN takes.
fn has_rest(problem: &Problem<'_>) -> bool {
    problem.w.dims[..2].iter().any(|channels| channels % WHOLE_CHANNELS != 0)
}

/// True for 16-bit elements with channels last whose number is no multiple of what cuDNN takes.
fn is_copied(problem: &Problem<'_>) -> Result<bool> {
    let is_narrow = problem.x.data_type != miopenDataType_t::miopenFloat;
    Ok(is_narrow && has_rest(problem) && Layout::of(problem)? == Layout::ChannelsLast)
}

/// Bytes that an algorithm works in.
///
/// # Errors
/// If cuDNN does not have it for the problem.
pub(super) fn workspace(handle: &MiopenHandle, problem: &Problem<'_>, algorithm: c_int) -> Result<usize> {
    let handle = get(handle)?;
    if problem.direction == Direction::Forward && algorithm == 1 && is_copied(problem)? {
        return Err(miopenStatus_t::miopenStatusNotImplemented);
    }
    let Described { x, w, y, convolution: c } = &Described::new(problem)?;
    let mut bytes = 0;
    // SAFETY: handle and descriptors are alive, in the order of each function; a place for one number.
    check(unsafe {
        match problem.direction {
            Direction::Forward => {
                sys::cudnnGetConvolutionForwardWorkspaceSize(handle, x.0, w.0, c.0, y.0, forward(algorithm), &mut bytes)
            }
            Direction::Data => {
                sys::cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w.0, y.0, c.0, x.0, DATA, &mut bytes)
            }
            Direction::Weights => {
                sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x.0, y.0, c.0, w.0, FILTER, &mut bytes)
            }
        }
    })?;
    Ok(bytes)
}

/// # Safety
/// The addresses are of device memory as large as the tensors and what [`workspace`] says.
pub(super) unsafe fn run(handle: &MiopenHandle, problem: &Problem<'_>, at: &Addresses, algorithm: c_int) -> Result {
    let handle = get(handle)?;
    count_launch();
    let Described { x, w, y, convolution: c } = &Described::new(problem)?;
    let (one, zero) = (1f32, 0f32);
    let (alpha, beta): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
    let Addresses { x: x_at, w: w_at, y: y_at, workspace, workspace_bytes: bytes } = *at;
    // SAFETY: handle and descriptors are alive, in the order of each function; the addresses are the caller's promise.
    check(unsafe {
        match problem.direction {
            Direction::Forward => {
                let algorithm = forward(algorithm);
                let run = sys::cudnnConvolutionForward;
                run(handle, alpha, x.0, x_at, w.0, w_at, c.0, algorithm, workspace, bytes, beta, y.0, y_at)
            }
            Direction::Data => {
                let run = sys::cudnnConvolutionBackwardData;
                run(handle, alpha, w.0, w_at, y.0, y_at, c.0, DATA, workspace, bytes, beta, x.0, x_at)
            }
            Direction::Weights => {
                let run = sys::cudnnConvolutionBackwardFilter;
                run(handle, alpha, x.0, x_at, y.0, y_at, c.0, FILTER, workspace, bytes, beta, w.0, w_at)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_told_by_strides_that_matter() {
        let tensor = |dims: &[usize], strides: &[usize]| Tensor {
            data_type: miopenDataType_t::miopenHalf,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
        };
        for (dims, strides, first, last) in [
            (&[2, 3, 4, 5][..], &[60, 20, 5, 1][..], true, false),
            (&[2, 3, 4, 5], &[60, 1, 15, 3], false, true),
            (&[2, 3, 1, 1], &[3, 1, 77, 77], true, true),
            (&[2, 3, 4, 5], &[64, 20, 5, 1], false, false),
            (&[2, 3, 2, 4, 5], &[120, 1, 60, 15, 3], false, true),
        ] {
            let tensor = tensor(dims, strides);
            assert_eq!(
                (Layout::ChannelsFirst.is_of(&tensor), Layout::ChannelsLast.is_of(&tensor)),
                (first, last),
                "{tensor:?}"
            );
        }
    }
}
