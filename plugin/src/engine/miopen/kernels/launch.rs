//! Passing arguments to a compiled kernel.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use hipdnn_sdk_bindings::hip::{HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END};

use super::arguments::{Arguments, MOST_BYTES};
use super::compile::Compiled;
use super::program::Numbers;
use crate::engine::miopen::device::Device;
use crate::error::Error;

/// A compiled kernel and what a launch passes to it.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) compiled: Arc<Compiled>,
    /// The arguments, with room for the pointers at their beginning.
    arguments: Box<[u8]>,
    /// What is added to each pointer, in bytes.
    offsets: Box<[isize]>,
    /// Where the scalars are.
    scalars: Box<[usize]>,
    double: bool,
    grid: Grid,
}

/// How many threads are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Blocks.
    pub(super) blocks: u32,
    /// Threads of each.
    pub(super) threads: u32,
}

/// Arguments of a launch, on the stack.
#[repr(align(16))]
struct Packed(MaybeUninit<[u8; MOST_BYTES]>);

/// Sees whether HIP takes so many arguments.
pub(super) fn check_size(arguments: &Arguments) -> Result<(), Error> {
    let bytes = arguments.bytes.len();
    if bytes > MOST_BYTES {
        let text = format!("a kernel has at most {MOST_BYTES} bytes of arguments, this one would have {bytes}");
        return Err(Error::invalid_value(text));
    }
    Ok(())
}

/// Sees whether a launch comes with other values for all scalars, or for none.
pub(super) fn check_scalars(wanted: usize, came: usize) -> Result<(), Error> {
    if came != 0 && came != wanted {
        return Err(Error::invalid_value(format!("the kernel has {wanted} scalars, came {came}")));
    }
    Ok(())
}

impl Launch {
    /// A launch of that kernel, whose structure of arguments begins with as many pointers as there are offsets.
    ///
    /// # Panics
    /// If [`check_size`] refuses the arguments.
    pub(super) fn new(
        compiled: Arc<Compiled>,
        arguments: Arguments,
        offsets: Vec<isize>,
        numbers: Numbers,
        grid: Grid,
    ) -> Launch {
        assert!(arguments.bytes.len() <= MOST_BYTES && 8 * offsets.len() <= arguments.bytes.len());
        Launch {
            compiled,
            arguments: arguments.bytes.into(),
            offsets: offsets.into(),
            scalars: arguments.scalars.into(),
            double: numbers == Numbers::Double,
            grid,
        }
    }

    /// Launches it. Nothing is allocated and nothing waited for.
    ///
    /// # Safety
    /// There is an address for each pointer, and behind each, after its offset, all memory that the kernel reads and writes
    /// until the stream has run it. The stream is one of the device.
    ///
    /// # Errors
    /// If HIP refuses.
    pub(super) unsafe fn run(
        &self,
        device: &Device,
        stream: *mut c_void,
        addresses: impl Iterator<Item = *const u8>,
        scalars: &[f64],
    ) -> Result<(), Error> {
        let mut packed = Packed(MaybeUninit::uninit());
        let mut bytes = self.arguments.len();
        let place = packed.0.as_mut_ptr().cast::<u8>();
        // SAFETY: `new` has seen that the arguments fit; as many bytes as are written are read.
        let place = unsafe {
            place.copy_from_nonoverlapping(self.arguments.as_ptr(), bytes);
            std::slice::from_raw_parts_mut(place, bytes)
        };
        for (i, (address, offset)) in addresses.zip(&self.offsets).enumerate() {
            let address = address.wrapping_offset(*offset).addr() as u64;
            place[8 * i..8 * i + 8].copy_from_slice(&address.to_le_bytes());
        }
        for (offset, value) in self.scalars.iter().zip(scalars) {
            if self.double {
                place[*offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            } else {
                place[*offset..offset + 4].copy_from_slice(&(*value as f32).to_le_bytes());
            }
        }
        let mut extra = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            place.as_mut_ptr().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut bytes).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        let gpu = device.gpu();
        let _entered = device.enter_for(stream.cast())?;
        // SAFETY: the module that has the function is alive; the arguments are those of its structure, and HIP copies
        // them before it returns; the caller vouches for addresses and stream.
        let status = unsafe {
            (gpu.hip.hipModuleLaunchKernel)(
                self.compiled.function().raw(),
                self.grid.blocks,
                1,
                1,
                self.grid.threads,
                1,
                1,
                0,
                stream.cast(),
                std::ptr::null_mut(),
                extra.as_mut_ptr(),
            )
        };
        gpu.check_hip(status, "hipModuleLaunchKernel")
    }
}
