//! A kernel that computes every convolution, slowly: in the place of MIOpen's plain kernels. And one that copies, for cuDNN.

use std::collections::HashMap;
use std::ffi::{CStr, c_long, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUmodule};
use hipdnn_sdk_bindings::miopen::{miopenDataType_t, miopenStatus_t};

use super::descriptor::Tensor;
use super::handle::Handle;
use super::solution::{Addresses, Direction, Problem};
use super::{Result, from_hip};
use crate::device;
use crate::hip::count_launch;
use crate::rtc::code_for;
use crate::status::check;

const TEXT: &str = include_str!("naive.cu");

const THREADS: u32 = 256;

/// Of both kinds of convolutions: those of two spatial dimensions have a first one of extent 1.
const RANK: usize = 5;

/// A tensor as the kernel reads it.
#[repr(C)]
#[derive(Debug, PartialEq)]
struct Laid {
    dims: [c_long; RANK],
    strides: [c_long; RANK],
}

/// A problem as the kernel reads it.
#[repr(C)]
struct Arguments {
    x: Laid,
    w: Laid,
    y: Laid,
    groups: c_long,
    padding: [c_long; 3],
    stride: [c_long; 3],
    dilation: [c_long; 3],
}

impl Laid {
    fn new(tensor: &Tensor) -> Laid {
        let (mut dims, mut strides) = ([1; RANK], [0; RANK]);
        let spatial = RANK - (tensor.dims.len() - 2);
        for (from, to) in (0..2).zip(0..).chain((2..tensor.dims.len()).zip(spatial..)) {
            (dims[to], strides[to]) = (tensor.dims[from] as c_long, tensor.strides[from] as c_long);
        }
        Laid { dims, strides }
    }

    fn elements(&self) -> c_long {
        self.dims.iter().product()
    }
}

/// A parameter of every spatial dimension, with `missing` for the first one where there are two.
fn spatial(values: &[i32], missing: c_long) -> [c_long; 3] {
    let mut all = [missing; 3];
    for (to, value) in all[3 - values.len()..].iter_mut().zip(values) {
        *to = c_long::from(*value);
    }
    all
}

/// The lines before the kernel's text that say what elements are.
fn element(data_type: miopenDataType_t) -> Result<&'static str> {
    Ok(match data_type {
        miopenDataType_t::miopenFloat => "typedef float T;\n",
        miopenDataType_t::miopenHalf => "#define HALF\ntypedef _Float16 T;\n",
        miopenDataType_t::miopenBFloat16 => "#define BF16\n",
        _ => return Err(miopenStatus_t::miopenStatusNotImplemented),
    })
}

/// Modules by device and element type, for as long as the process lives.
static MODULES: Mutex<Option<HashMap<(i32, u32), Module>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Module(CUmodule);

// SAFETY: the driver's modules belong to no thread, and nobody unloads these.
unsafe impl Send for Module {}

/// The module for elements of that type on the thread's device.
fn module(data_type: miopenDataType_t) -> Result<CUmodule> {
    let ordinal = device::current();
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let modules = modules.get_or_insert_default();
    if let Some(module) = modules.get(&(ordinal, data_type.0)) {
        return Ok(module.0);
    }
    let text = format!("#define DEVICE static __device__ __forceinline__\n{}{TEXT}", element(data_type)?);
    let arch = device::device(ordinal).and_then(|device| device.arch()).map_err(from_hip)?;
    let code = code_for(&arch, &text).map_err(|said| {
        eprintln!("HIP over CUDA: the plain convolution does not compile: {said}");
        miopenStatus_t::miopenStatusUnknownError
    })?;
    let mut made = null_mut();
    // SAFETY: the compiler made the code; a place for one handle.
    check(unsafe { sys::cuModuleLoadData(&mut made, code.as_ptr().cast()) }).map_err(from_hip)?;
    modules.insert((ordinal, data_type.0), Module(made));
    Ok(made)
}

/// Compiles the kernels for a problem's elements.
pub(super) fn compile(problem: &Problem<'_>) -> Result {
    module(problem.x.data_type).map(|_| ())
}

/// # Safety
/// As for the immediate mode's functions: the addresses are of device memory as large as the tensors.
pub(super) unsafe fn run(handle: &Handle, problem: &Problem<'_>, at: &Addresses) -> Result {
    let Problem { direction, convolution, .. } = problem;
    let mut arguments = Arguments {
        x: Laid::new(problem.x),
        w: Laid::new(problem.w),
        y: Laid::new(problem.y),
        groups: c_long::from(convolution.groups),
        padding: spatial(&convolution.padding, 0),
        stride: spatial(&convolution.stride, 1),
        dilation: spatial(&convolution.dilation, 1),
    };
    let (name, result): (&CStr, &Laid) = match direction {
        Direction::Forward => (c"forward", &arguments.y),
        Direction::Data => (c"backward_data", &arguments.x),
        Direction::Weights => (c"backward_weights", &arguments.w),
    };
    let mut count = result.elements();
    let blocks = u32::try_from(count.unsigned_abs().div_ceil(u64::from(THREADS)))
        .map_err(|_| miopenStatus_t::miopenStatusNotImplemented)?;
    if blocks == 0 {
        return Ok(());
    }
    let Addresses { mut x, mut w, mut y, .. } = *at;
    let mut parameters: [*mut c_void; 5] = [
        (&raw mut arguments).cast(),
        (&raw mut x).cast(),
        (&raw mut w).cast(),
        (&raw mut y).cast(),
        (&raw mut count).cast(),
    ];
    // SAFETY: the parameters are the kernel's; the addresses are the caller's promise.
    unsafe { launch(handle, problem.x.data_type, name, blocks, &mut parameters) }
}

/// Channels of a piece that a thread of `widen` writes.
const PIECE: usize = 4;

/// Copies 16-bit elements whose channels come last to where each place has `wide` of them, a multiple of [`PIECE`]: those that are new are
/// zeros.
///
/// # Safety
/// The addresses are of device memory as large as the tensor, and as it with so many channels; the latter at a multiple of 8.
pub(super) unsafe fn widen(
    handle: &Handle,
    tensor: &Tensor,
    wide: usize,
    from: *mut c_void,
    to: *mut c_void,
) -> Result {
    let number = |value: usize| u32::try_from(value).map_err(|_| miopenStatus_t::miopenStatusNotImplemented);
    let places = tensor.dims.iter().product::<usize>() / tensor.dims[1];
    let (mut from, mut to) = (from, to);
    let (mut channels, mut pieces) = (number(tensor.dims[1])?, number(wide / PIECE)?);
    let mut count = number(places * (wide / PIECE))?;
    let mut parameters: [*mut c_void; 5] = [
        (&raw mut from).cast(),
        (&raw mut to).cast(),
        (&raw mut channels).cast(),
        (&raw mut pieces).cast(),
        (&raw mut count).cast(),
    ];
    // SAFETY: the parameters are the kernel's; the addresses are the caller's promise.
    unsafe { launch(handle, tensor.data_type, c"widen", count.div_ceil(THREADS), &mut parameters) }
}

/// # Safety
/// The parameters are the kernel's, and addresses among them are of device memory as large as it accesses.
unsafe fn launch(
    handle: &Handle,
    data_type: miopenDataType_t,
    name: &CStr,
    blocks: u32,
    parameters: &mut [*mut c_void],
) -> Result {
    let (module, mut function) = (module(data_type)?, null_mut());
    // SAFETY: the module is loaded for good; a place for one handle.
    check(unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) }).map_err(from_hip)?;
    let (stream, list) = (handle.stream.cast(), parameters.as_mut_ptr());
    count_launch(handle.stream);
    // SAFETY: the caller's promise; the driver copies the parameters.
    check(unsafe { sys::cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, list, null_mut()) })
        .map_err(from_hip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spatial_dimensions_are_the_last_two() {
        let data_type = miopenDataType_t::miopenFloat;
        let tensor = Tensor { data_type, dims: vec![2, 3, 4, 5], strides: vec![60, 20, 5, 1] };
        let want = Laid { dims: [2, 3, 1, 4, 5], strides: [60, 20, 0, 5, 1] };
        assert_eq!((Laid::new(&tensor).elements(), Laid::new(&tensor)), (120, want));
        assert_eq!((spatial(&[7, 8], 1), spatial(&[7, 8, 9], 1)), ([1, 7, 8], [7, 8, 9]));
    }
}
