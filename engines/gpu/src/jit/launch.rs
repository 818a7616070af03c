//! Passing arguments to a compiled kernel.

use std::mem::MaybeUninit;
use std::sync::Arc;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_kernel::emit::{KernelSource, MOST_BYTES};

use super::compile::Compiled;
use crate::device::Device;
use crate::hip::{KernelLaunch, Queue};

/// A compiled kernel and what a launch passes to it.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) compiled: Arc<Compiled>,
    /// The arguments, with room for the pointers at their beginning.
    arguments: Box<[u8]>,
    /// Places of the scalars in the arguments, in bytes.
    scalars: Box<[usize]>,
    double: bool,
    blocks: u32,
    threads: u32,
}

/// Arguments of a launch, on the stack.
#[repr(align(16))]
struct Packed(MaybeUninit<[u8; MOST_BYTES]>);

/// Sees whether a launch comes with other values for all scalars, or for none.
pub(crate) fn check_scalars(wanted: usize, came: usize) -> Result<(), Error> {
    if came != 0 && came != wanted {
        return Err(Error::invalid_value(format!("expected values for the kernel's {wanted} scalars, got {came}")));
    }
    Ok(())
}

impl Launch {
    /// A launch of that kernel.
    ///
    /// # Panics
    /// If its structure is larger than HIP takes, which the kernel's source has seen to, or lacks the pointers.
    pub(crate) fn new(compiled: Arc<Compiled>, source: KernelSource) -> Launch {
        let KernelSource { arguments, pointers, scalars, double, blocks, threads, .. } = source;
        assert!(arguments.len() <= MOST_BYTES && 8 * pointers <= arguments.len());
        Launch { compiled, arguments, scalars, double, blocks, threads }
    }

    /// Launches it. Nothing is allocated and nothing waited for.
    ///
    /// # Safety
    /// There is an address for each pointer, and behind each all memory that the kernel reads and writes
    /// until the stream has run it. The stream is one of the device.
    ///
    /// # Errors
    /// If HIP refuses.
    pub(crate) unsafe fn run(
        &self,
        device: &Device,
        queue: &mut Queue<'_>,
        addresses: impl Iterator<Item = *const u8>,
        scalars: &[f64],
    ) -> Result<(), Error> {
        let mut packed = Packed(MaybeUninit::uninit());
        let bytes = self.arguments.len();
        let place = packed.0.as_mut_ptr().cast::<u8>();
        // SAFETY: `new` has seen that the arguments fit; as many bytes as are written are read.
        let place = unsafe {
            place.copy_from_nonoverlapping(self.arguments.as_ptr(), bytes);
            std::slice::from_raw_parts_mut(place, bytes)
        };
        for (i, address) in addresses.enumerate() {
            let address = address.addr() as u64;
            place[8 * i..8 * i + 8].copy_from_slice(&address.to_le_bytes());
        }
        for (offset, value) in self.scalars.iter().zip(scalars) {
            if self.double {
                place[*offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            } else {
                place[*offset..offset + 4].copy_from_slice(&(*value as f32).to_le_bytes());
            }
        }
        let kernel = KernelLaunch {
            function: self.compiled.function(),
            grid: [self.blocks, 1, 1],
            block: [self.threads, 1, 1],
            shared_bytes: 0,
        };
        let _entered = device.enter_for(queue.stream())?;
        // SAFETY: the module that has the function is alive; the arguments are those of its structure; the caller vouches for
        // addresses and stream.
        unsafe { queue.launch(device.gpu(), &kernel, place) }
    }
}
