//! cuDNN's convolutions: `f32` by multiply-add alone (no TF32), 16-bit types by matrix instructions that accumulate in `f32`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::OnceLock;

use cudarc::cudnn::sys::{
    self, cudnnActivationMode_t, cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
    cudnnConvolutionFwdAlgo_t as Forward, cudnnConvolutionMode_t, cudnnDataType_t, cudnnMathType_t,
    cudnnNanPropagation_t, cudnnStatus_t, cudnnTensorFormat_t,
};
use hipdnn_sdk_bindings::miopen::{miopenDataType_t, miopenStatus_t};

use super::backend::{self, Follower};
use super::descriptor::{Convolution, Tensor};
use super::handle::Handle as MiopenHandle;
use super::solution::{Addresses, Direction, Problem};
use super::{Result, naive};
use crate::hip::count_launch;

/// cuDNN's numbers of its algorithms that give the same bits each time and multiply what the convolution multiplies (no transforms),
/// faster first.
pub(super) fn algorithms(direction: Direction) -> &'static [c_int] {
    match direction {
        Direction::Forward => &[WITH_INDICES, 0],
        Direction::Data | Direction::Weights => &[1],
    }
}

/// The matrix product with indices computed ahead, forward: the one of the two that has matrix instructions and takes an epilogue.
pub(super) const WITH_INDICES: c_int = 1;

/// How cuDNN computes a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the algorithm of that number, whose kernel cuDNN chooses.
    Algorithm(c_int),
    /// Forward, by its proposal of that number for a graph.
    Engine(usize),
}

impl Way {
    /// What a search has to choose from.
    pub(super) fn all(direction: Direction) -> Vec<Way> {
        let engines = if direction == Direction::Forward { backend::MOST } else { 0 };
        let known = algorithms(direction).iter().map(|algorithm| Way::Algorithm(*algorithm));
        known.chain((0..engines).map(Way::Engine)).collect()
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
/// became zeros on the way (on an H200 with cuDNN 9): [`Widened`] copies them before.
const WHOLE_CHANNELS: usize = 8;

/// Number of an image's channels that it takes as well.
const FEW_CHANNELS: usize = 4;

/// True if what cuDNN refuses is said on standard error.
fn is_traced() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| std::env::var_os("HIPDNN_CUDA_GPU_TRACE").is_some())
}

/// cuDNN's words for the thread's last error.
fn last_error() -> String {
    let mut text = [0 as c_char; 512];
    // SAFETY: a place for so many characters, which cuDNN ends with a NUL.
    unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    }
}

/// An execution that failed is an unknown error; whatever else cuDNN refuses is left to the plain kernel, as not implemented.
pub(super) fn check(status: cudnnStatus_t) -> Result {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    if is_traced() {
        eprintln!("HIP over CUDA: cuDNN gave {status:?}: {}", last_error());
    }
    Err(match status {
        cudnnStatus_t::CUDNN_STATUS_EXECUTION_FAILED => miopenStatus_t::miopenStatusUnknownError,
        _ => miopenStatus_t::miopenStatusNotImplemented,
    })
}

/// The handle, made when it is first wanted.
fn get(handle: &MiopenHandle) -> Result<sys::cudnnHandle_t> {
    let made = handle.cudnn.get_or_init(|| {
        if !is_there() {
            return None;
        }
        let mut raw = null_mut();
        // SAFETY: cuDNN is there; a place for one handle, and the stream is the caller's.
        let status = unsafe { sys::cudnnCreate(&mut raw) };
        if status != cudnnStatus_t::CUDNN_STATUS_SUCCESS {
            eprintln!("HIP over CUDA: cuDNN gives no handle: {status:?}: the plain kernel computes all convolutions");
            return None;
        }
        let made = Handle(raw);
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
owner!(
    ActivationDescriptor,
    sys::cudnnActivationDescriptor_t,
    cudnnCreateActivationDescriptor,
    cudnnDestroyActivationDescriptor
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
        Layout::of_all(&[problem.x, problem.w, problem.y])
    }

    /// A layout that all of them have. Of 16-bit tensors that have both, as with one place each, it is the one that cuDNN's kernels for matrix
    /// instructions read: they copy the other.
    fn of_all(tensors: &[&Tensor]) -> Result<Layout> {
        let mut all = [Layout::ChannelsFirst, Layout::ChannelsLast];
        let is_whole = |tensor: &&Tensor| tensor.dims[1].is_multiple_of(WHOLE_CHANNELS);
        if tensors.iter().all(|tensor| is_narrow(tensor) && is_whole(tensor)) {
            all.reverse();
        }
        let mut fitting = all.into_iter().filter(|layout| tensors.iter().all(|tensor| layout.is_of(tensor)));
        fitting.next().ok_or(miopenStatus_t::miopenStatusNotImplemented)
    }
}

/// cuDNN's number of an element type.
fn element(tensor: &Tensor) -> Result<cudnnDataType_t> {
    Ok(match tensor.data_type {
        miopenDataType_t::miopenFloat => cudnnDataType_t::CUDNN_DATA_FLOAT,
        miopenDataType_t::miopenHalf => cudnnDataType_t::CUDNN_DATA_HALF,
        miopenDataType_t::miopenBFloat16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => return Err(miopenStatus_t::miopenStatusNotImplemented),
    })
}

fn is_narrow(tensor: &Tensor) -> bool {
    tensor.data_type != miopenDataType_t::miopenFloat
}

impl TensorDescriptor {
    /// Describes a packed tensor.
    fn set(&self, data_type: cudnnDataType_t, layout: Layout, dims: &[usize]) -> Result {
        let (dims, strides) = (numbers(dims)?, numbers(&layout.strides(dims))?);
        let rank = dims.len() as c_int;
        // SAFETY: the descriptor is alive; so many numbers each.
        check(unsafe { sys::cudnnSetTensorNdDescriptor(self.0, data_type, rank, dims.as_ptr(), strides.as_ptr()) })
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
        let data_type = element(problem.x)?;
        let math = match data_type {
            cudnnDataType_t::CUDNN_DATA_FLOAT => cudnnMathType_t::CUDNN_FMA_MATH,
            _ => cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
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
        described.x.set(data_type, layout, &problem.x.dims)?;
        described.y.set(data_type, layout, &problem.y.dims)?;
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

/// The channels that an image gets: cuDNN has kernels for networks' first layers that take [`FEW_CHANNELS`], and are 2.7 times as fast.
fn wide(channels: usize) -> usize {
    if channels <= FEW_CHANNELS { FEW_CHANNELS } else { channels.next_multiple_of(WHOLE_CHANNELS) }
}

/// True for 16-bit elements with channels last whose number is no multiple of what cuDNN takes.
fn is_copied(problem: &Problem<'_>) -> Result<bool> {
    Ok(is_narrow(problem.x) && has_rest(problem) && Layout::of(problem)? == Layout::ChannelsLast)
}

/// Alignment of what lies in a workspace behind each other, in bytes.
const ALIGNMENT: usize = 256;

/// Images and filters with as many channels as cuDNN takes, in the place of those that have fewer: zeros behind them add nothing to a sum.
struct Widened {
    x: Tensor,
    w: Tensor,
}

impl Widened {
    /// What replaces a problem's operands, if it has to be and can be: forward, with one group and a whole number of filters.
    fn new(problem: &Problem<'_>) -> Result<Option<Widened>> {
        if problem.direction != Direction::Forward || !is_copied(problem)? {
            return Ok(None);
        }
        if problem.convolution.groups != 1 || !problem.w.dims[0].is_multiple_of(WHOLE_CHANNELS) {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        if wide(problem.w.dims[1]) == problem.w.dims[1] {
            return Ok(None);
        }
        let more = |tensor: &Tensor| {
            let mut dims = tensor.dims.clone();
            dims[1] = wide(dims[1]);
            Tensor { data_type: tensor.data_type, strides: Layout::ChannelsLast.strides(&dims), dims }
        };
        naive::compile(problem)?;
        Ok(Some(Widened { x: more(problem.x), w: more(problem.w) }))
    }

    fn problem<'a>(&'a self, problem: &Problem<'a>) -> Problem<'a> {
        Problem { x: &self.x, w: &self.w, ..*problem }
    }

    /// Bytes of each copy.
    fn bytes(&self) -> [usize; 2] {
        const WIDTH: usize = 2;
        [&self.x, &self.w].map(|tensor| (tensor.dims.iter().product::<usize>() * WIDTH).next_multiple_of(ALIGNMENT))
    }

    /// Copies a problem's operands to the beginning of the workspace; gives where they are, and what is left.
    ///
    /// # Safety
    /// As for [`run`].
    unsafe fn copy(&self, handle: &MiopenHandle, problem: &Problem<'_>, at: &Addresses) -> Result<Addresses> {
        let [x_bytes, w_bytes] = self.bytes();
        let x = at.workspace;
        let w = x.wrapping_byte_add(x_bytes);
        // SAFETY: the workspace has room for both copies, and the rest is the caller's promise.
        unsafe {
            naive::widen(handle, problem.x, self.x.dims[1], at.x, x)?;
            naive::widen(handle, problem.w, self.w.dims[1], at.w, w)?;
        }
        let (workspace, workspace_bytes) = (w.wrapping_byte_add(w_bytes), at.workspace_bytes - x_bytes - w_bytes);
        Ok(Addresses { x, w, y: at.y, workspace, workspace_bytes })
    }
}

/// Bytes that cuDNN works in.
///
/// # Errors
/// If cuDNN does not have it for the problem.
pub(super) fn workspace(handle: &MiopenHandle, problem: &Problem<'_>, way: Way, follower: Follower) -> Result<usize> {
    let cudnn = get(handle)?;
    match widened(problem, way)? {
        Some(wide) => {
            Ok(wide.bytes().iter().sum::<usize>() + asked(handle, cudnn, &wide.problem(problem), way, follower)?)
        }
        None => asked(handle, cudnn, problem, way, follower),
    }
}

/// The operands with more channels, where the way needs them.
fn widened(problem: &Problem<'_>, way: Way) -> Result<Option<Widened>> {
    match way {
        Way::Algorithm(WITH_INDICES) | Way::Engine(_) => Widened::new(problem),
        Way::Algorithm(_) => Ok(None),
    }
}

/// Bytes that cuDNN wants.
fn asked(
    owner: &MiopenHandle,
    handle: sys::cudnnHandle_t,
    problem: &Problem<'_>,
    way: Way,
    follower: Follower,
) -> Result<usize> {
    let algorithm = match way {
        Way::Engine(number) => return Ok(plan(owner, handle, problem, follower, number)?.workspace),
        Way::Algorithm(WITH_INDICES) => WITH_INDICES,
        Way::Algorithm(other) if follower == Follower::Nothing => other,
        Way::Algorithm(_) => return Err(miopenStatus_t::miopenStatusNotImplemented),
    };
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

/// cuDNN's proposal of that number. They are for 16-bit elements with channels last: those of `f32` round to TF32.
fn plan(
    owner: &MiopenHandle,
    handle: sys::cudnnHandle_t,
    problem: &Problem<'_>,
    follower: Follower,
    number: usize,
) -> Result<Rc<backend::Plan>> {
    let [filters, channels] = [problem.w.dims[0], problem.w.dims[1]];
    let is_whole = filters.is_multiple_of(WHOLE_CHANNELS) && wide(channels) == channels;
    let is_taken = problem.direction == Direction::Forward && is_narrow(problem.x) && is_whole;
    if !is_taken || Layout::of(problem)? != Layout::ChannelsLast {
        return Err(miopenStatus_t::miopenStatusNotImplemented);
    }
    // Those of extents of 1 may be any.
    let packed = |tensor: &Tensor| Tensor { strides: Layout::ChannelsLast.strides(&tensor.dims), ..tensor.clone() };
    let (x, w, y) = (packed(problem.x), packed(problem.w), packed(problem.y));
    let problem = Problem { x: &x, w: &w, y: &y, ..*problem };
    owner.plans.borrow_mut().plan(handle, &problem, element(&x)?, follower, number)
}

/// What follows a forward convolution in the same call, and the bias, an element for each channel, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epilogue {
    pub(super) follower: Follower,
    pub(super) bias: *mut c_void,
}

impl Epilogue {
    pub(super) const NONE: Epilogue = Epilogue { follower: Follower::Nothing, bias: null_mut() };
}

/// # Safety
/// The addresses are of device memory as large as the tensors and what [`workspace`] says; the bias has an element for each channel of the
/// result.
pub(super) unsafe fn run(
    handle: &MiopenHandle,
    problem: &Problem<'_>,
    at: &Addresses,
    way: Way,
    epilogue: Epilogue,
) -> Result {
    let Some(wide) = widened(problem, way)? else {
        // SAFETY: the caller's promise.
        return unsafe { call(handle, problem, at, way, epilogue) };
    };
    // SAFETY: the caller's promise.
    let at = unsafe { wide.copy(handle, problem, at) }?;
    // SAFETY: the copies are as large as these tensors, the rest is the caller's promise.
    unsafe { call(handle, &wide.problem(problem), &at, way, epilogue) }
}

/// # Safety
/// As for [`run`], with what cuDNN itself wants of workspace.
unsafe fn call(owner: &MiopenHandle, problem: &Problem<'_>, at: &Addresses, way: Way, epilogue: Epilogue) -> Result {
    let handle = get(owner)?;
    let algorithm = match way {
        Way::Engine(number) => {
            let plan = plan(owner, handle, problem, epilogue.follower, number)?;
            count_launch(owner.stream);
            // SAFETY: the handle is alive, the rest is the caller's promise.
            return unsafe { plan.run(handle, at, epilogue.bias) };
        }
        Way::Algorithm(algorithm) => algorithm,
    };
    count_launch(owner.stream);
    let Described { x, w, y, convolution: c } = &Described::new(problem)?;
    let (one, zero) = (1f32, 0f32);
    let (alpha, beta): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
    let Addresses { x: x_at, w: w_at, y: y_at, workspace, workspace_bytes: bytes } = *at;
    if epilogue.follower != Follower::Nothing {
        let (bias, activation) = (TensorDescriptor::create()?, ActivationDescriptor::create()?);
        let mut dims = vec![1; problem.y.dims.len()];
        dims[1] = problem.y.dims[1];
        bias.set(element(problem.y)?, Layout::ChannelsLast, &dims)?;
        let mode = match epilogue.follower {
            Follower::BiasRelu => cudnnActivationMode_t::CUDNN_ACTIVATION_RELU,
            Follower::Bias | Follower::Nothing => cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY,
        };
        let nan = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        // SAFETY: the descriptor is alive.
        check(unsafe { sys::cudnnSetActivationDescriptor(activation.0, mode, nan, 0.0) })?;
        let (run, algorithm) = (sys::cudnnConvolutionBiasActivationForward, forward(algorithm));
        let (activation, bias_at) = (activation.0, epilogue.bias);
        // SAFETY: handle and descriptors are alive; the addresses are the caller's promise. What is added by a factor of 0 is not read.
        return check(unsafe {
            run(
                handle, alpha, x.0, x_at, w.0, w_at, c.0, algorithm, workspace, bytes, beta, y.0, y_at, bias.0,
                bias_at, activation, y.0, y_at,
            )
        });
    }
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

/// The packed result of a forward convolution, in the layout of its operands.
///
/// # Errors
/// If they do not fit each other, or have both layouts, so that the result's is not known.
pub(super) fn result(x: &Tensor, w: &Tensor, convolution: &Convolution) -> Result<Tensor> {
    let bad = miopenStatus_t::miopenStatusBadParm;
    let rank = convolution.padding.len() + 2;
    if [x, w].iter().any(|tensor| tensor.dims.len() != rank) {
        return Err(bad);
    }
    let mut dims = vec![x.dims[0], w.dims[0]];
    for axis in 0..rank - 2 {
        let extent = |value: usize| i64::try_from(value).map_err(|_| bad);
        let [padding, stride, dilation] =
            [&convolution.padding, &convolution.stride, &convolution.dilation].map(|list| i64::from(list[axis]));
        let window = dilation * (extent(w.dims[2 + axis])? - 1) + 1;
        let room = extent(x.dims[2 + axis])? + 2 * padding - window;
        if room < 0 || stride < 1 {
            return Err(bad);
        }
        dims.push(usize::try_from(room / stride + 1).map_err(|_| bad)?);
    }
    let layout = Layout::of_all(&[x, w])?;
    let y = Tensor { data_type: x.data_type, strides: layout.strides(&dims), dims };
    let fits = |layout: Layout, tensors: &[&Tensor]| tensors.iter().all(|tensor| layout.is_of(tensor));
    for other in [Layout::ChannelsFirst, Layout::ChannelsLast] {
        if fits(other, &[x, w]) && !fits(other, &[&y]) {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
    }
    Ok(y)
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

    #[test]
    fn few_channels_are_widened_where_they_come_last() {
        let tensor = |data_type, dims: &[usize], layout: Layout| Tensor {
            data_type,
            dims: dims.to_vec(),
            strides: layout.strides(dims),
        };
        let (half, float) = (miopenDataType_t::miopenHalf, miopenDataType_t::miopenFloat);
        let widened = |data_type, layout, filters: usize, groups| {
            let convolution = Convolution::plain(&[3, 3], &[2, 2], groups);
            let x = tensor(data_type, &[2, 3 * groups as usize, 9, 9], layout);
            let w = tensor(data_type, &[filters, 3, 7, 7], layout);
            let y = result(&x, &w, &convolution).unwrap();
            assert_eq!((&y.dims[..], &y.strides), (&[2, filters, 5, 5][..], &layout.strides(&y.dims)));
            let problem = Problem { direction: Direction::Forward, x: &x, w: &w, y: &y, convolution: &convolution };
            is_copied(&problem)
        };
        for (data_type, layout, filters, groups, want) in [
            (half, Layout::ChannelsLast, 16, 1, true),
            (half, Layout::ChannelsFirst, 16, 1, false),
            (float, Layout::ChannelsLast, 16, 1, false),
        ] {
            assert_eq!(widened(data_type, layout, filters, groups), Ok(want), "{data_type:?} {layout:?}");
        }
        let x = tensor(half, &[2, 3, 9, 9], Layout::ChannelsLast);
        let wide = Widened { w: tensor(half, &[16, 8, 7, 7], Layout::ChannelsLast), x };
        assert_eq!(wide.bytes(), [1024, 12544]);
    }

    #[test]
    fn a_result_whose_layout_is_not_known_is_refused() {
        let convolution = Convolution::plain(&[1, 1], &[1, 1], 1);
        let tensor = |dims: &[usize], layout: Layout| Tensor {
            data_type: miopenDataType_t::miopenHalf,
            dims: dims.to_vec(),
            strides: layout.strides(dims),
        };
        for (channels, filters, want) in [(8, 16, true), (1, 16, false), (1, 1, true)] {
            let (x, w) = (
                tensor(&[2, channels, 6, 6], Layout::ChannelsLast),
                tensor(&[filters, channels, 3, 3], Layout::ChannelsLast),
            );
            let got = result(&x, &w, &convolution);
            assert_eq!(got.is_ok(), want, "{channels} channels, {filters} filters: {got:?}");
        }
    }

    #[test]
    fn tensors_of_one_place_are_channels_last_where_matrix_instructions_read_them() {
        let tensor = |channels: usize, data_type| Tensor {
            data_type,
            dims: vec![16, channels, 1, 1],
            strides: vec![channels, 1, 1, 1],
        };
        for (channels, data_type, want) in [
            (8, miopenDataType_t::miopenHalf, Layout::ChannelsLast),
            (8, miopenDataType_t::miopenFloat, Layout::ChannelsFirst),
            (3, miopenDataType_t::miopenHalf, Layout::ChannelsFirst),
        ] {
            assert_eq!(Layout::of_all(&[&tensor(channels, data_type)]), Ok(want));
        }
    }
}
