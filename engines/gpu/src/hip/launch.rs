//! Launching kernels, and taking down what was launched.

use std::ffi::c_void;

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hip::{
    HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END, hipError_t, hipStream_t,
};

use super::{Function, Gpu};

/// Blocks along the second and third dimension that `hipModuleLaunchKernel` takes.
const MOST_BLOCKS: u32 = 65_535;

/// A kernel, and how many threads a launch of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLaunch {
    /// The kernel.
    pub function: Function,
    /// Blocks along each dimension. The numbers of threads fit in 32 bits.
    pub grid: [u32; 3],
    /// Threads of a block along each dimension.
    pub block: [u32; 3],
    /// Bytes of memory that a block shares, beside the kernel's own.
    pub shared_bytes: u32,
}

impl KernelLaunch {
    /// True if it has more blocks than `hipModuleLaunchKernel` takes.
    fn is_wide(&self) -> bool {
        let [_, gy, gz] = self.grid;
        gy > MOST_BLOCKS || gz > MOST_BLOCKS
    }

    /// Launches the kernel with arguments in one piece, which HIP copies before it returns.
    ///
    /// # Safety
    /// The kernel's module is loaded, the stream is of its device, and there are so many bytes of arguments, which are those of
    /// its structure: what they point to stays until the stream has run it.
    ///
    /// # Errors
    /// If HIP refuses.
    pub unsafe fn run(
        &self,
        gpu: &Gpu,
        stream: hipStream_t,
        arguments: *const c_void,
        bytes: usize,
    ) -> Result<(), Error> {
        let mut bytes = bytes;
        let mut extra: [*mut c_void; 5] = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            arguments.cast_mut(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        let (function, shared, extra) = (self.function.raw(), self.shared_bytes, extra.as_mut_ptr());
        let (parameters, event) = (std::ptr::null_mut(), std::ptr::null_mut());
        if self.is_wide() {
            // This one takes threads in place of blocks.
            let [tx, ty, tz] = [gx * bx, gy * by, gz * bz];
            let (launch, shared) = (gpu.hip.hipExtModuleLaunchKernel, shared as usize);
            // SAFETY: the caller's promise; HIP only reads the arguments.
            let status =
                unsafe { launch(function, tx, ty, tz, bx, by, bz, shared, stream, parameters, extra, event, event, 0) };
            return gpu.check_hip(status, "hipExtModuleLaunchKernel");
        }
        let launch = gpu.hip.hipModuleLaunchKernel;
        // SAFETY: the caller's promise; HIP only reads the arguments.
        let status = unsafe { launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra) };
        gpu.check_hip(status, "hipModuleLaunchKernel")
    }
}

/// A stream that work is enqueued on, and a tape of its launches where one is wanted.
#[derive(Debug)]
pub struct Queue<'a> {
    stream: hipStream_t,
    tape: Option<&'a mut Tape>,
}

impl<'a> Queue<'a> {
    /// Work on that stream; null is the default one.
    pub fn new(stream: *mut c_void) -> Queue<'a> {
        Queue { stream: stream.cast(), tape: None }
    }

    /// Work on that stream whose launches are taken down.
    pub fn taped(stream: *mut c_void, tape: &'a mut Tape) -> Queue<'a> {
        tape.clear();
        Queue { stream: stream.cast(), tape: Some(tape) }
    }

    /// The stream, for a launch.
    pub fn stream(&self) -> hipStream_t {
        self.stream
    }

    /// The stream, for work that no tape has.
    pub fn untaped(&mut self) -> hipStream_t {
        if let Some(tape) = &mut self.tape {
            tape.is_whole = false;
        }
        self.stream
    }

    /// Begins a step: the launches from here on are of it.
    pub fn begin(&mut self, step: usize) {
        if let Some(tape) = &mut self.tape {
            tape.step = step;
        }
    }

    /// As [`KernelLaunch::run`].
    ///
    /// # Safety
    /// As [`KernelLaunch::run`].
    ///
    /// # Errors
    /// As [`KernelLaunch::run`].
    pub unsafe fn launch(&mut self, gpu: &Gpu, kernel: &KernelLaunch, arguments: &[u8]) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(gpu, self.stream, arguments.as_ptr().cast(), arguments.len()) }?;
        if let Some(tape) = &mut self.tape {
            tape.add(*kernel, arguments);
        }
        Ok(())
    }
}

/// Launches with their arguments, to be repeated as they were.
#[derive(Debug, Default)]
pub struct Tape {
    launches: Vec<Taken>,
    /// Of all launches, each on a boundary of its own.
    arguments: Vec<u128>,
    /// False if there was work that is not on it.
    is_whole: bool,
    step: usize,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    kernel: KernelLaunch,
    is_wide: bool,
    /// Index of the first word of its arguments, and their bytes.
    first: usize,
    bytes: usize,
    step: usize,
}

impl Tape {
    fn clear(&mut self) {
        self.launches.clear();
        self.arguments.clear();
        (self.is_whole, self.step) = (true, 0);
    }

    fn add(&mut self, kernel: KernelLaunch, arguments: &[u8]) {
        let (first, bytes, step) = (self.arguments.len(), arguments.len(), self.step);
        self.launches.push(Taken { kernel, is_wide: kernel.is_wide(), first, bytes, step });
        self.arguments.extend(arguments.chunks(size_of::<u128>()).map(|bytes| {
            let mut word = [0; size_of::<u128>()];
            word[..bytes.len()].copy_from_slice(bytes);
            u128::from_ne_bytes(word)
        }));
    }

    /// True if all work that was enqueued is on it.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Appends the launches of another tape, whose step 0 is `first` here.
    pub fn append(&mut self, other: &Tape, first: usize) {
        let before = self.arguments.len();
        self.arguments.extend_from_slice(&other.arguments);
        let moved = |taken: &Taken| Taken { first: before + taken.first, step: first + taken.step, ..*taken };
        self.launches.extend(other.launches.iter().map(moved));
    }

    /// Repeats the launches on a stream.
    ///
    /// # Safety
    /// As for each of [`KernelLaunch::run`], with the arguments that were taken down.
    ///
    /// # Errors
    /// The step of a launch that HIP refuses, with the reason.
    pub unsafe fn replay(&self, gpu: &Gpu, stream: *mut c_void) -> Result<(), (usize, Error)> {
        // One list for all launches: what is the same in each is written once. HIP reads it before a launch returns.
        let mut size = 0;
        let size_of_arguments = &raw mut size;
        let mut extra: [*mut c_void; 5] = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            std::ptr::null_mut(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            size_of_arguments.cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        let (launch, parameters) = (gpu.hip.hipModuleLaunchKernel, std::ptr::null_mut());
        for Taken { kernel, is_wide, first, bytes, step } in &self.launches {
            let arguments = self.arguments[*first..].as_ptr().cast::<c_void>();
            if *is_wide {
                // SAFETY: so many bytes were taken down there; the rest is the caller's promise.
                unsafe { kernel.run(gpu, stream.cast(), arguments, *bytes) }.map_err(|error| (*step, error))?;
                continue;
            }
            extra[1] = arguments.cast_mut();
            // SAFETY: it is the local above, which nobody else refers to meanwhile.
            unsafe { size_of_arguments.write(*bytes) };
            let KernelLaunch { function, grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = *kernel;
            let (function, extra) = (function.raw(), extra.as_mut_ptr());
            // SAFETY: so many bytes were taken down there, which HIP only reads; the rest is the caller's promise.
            let status =
                unsafe { launch(function, gx, gy, gz, bx, by, bz, shared_bytes, stream.cast(), parameters, extra) };
            if status != hipError_t::hipSuccess {
                return gpu.check_hip(status, "hipModuleLaunchKernel").map_err(|error| (*step, error));
            }
        }
        Ok(())
    }
}
