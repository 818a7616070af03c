//! Scales and shifts of the channels of a normalization with given statistics, which the kernel before it multiplies by and adds:
//! see [`crate::fuse::fold`].

use hipdnn_schemas::Tensor;

use super::view::Walk;
use hipdnn_cpu_pointwise::Storage;

/// Tensor with a value for each channel, or one for all.
#[derive(Clone, Debug)]
pub struct Values {
    storage: Storage,
    /// Walk over its elements, in logical order.
    walk: Walk,
}

impl Values {
    /// Storage and walk of a tensor.
    pub fn new(tensor: &Tensor) -> Values {
        let storage = Storage::of(tensor.data_type()).expect("folded operands have a storage");
        let pairs = tensor.dims().iter().copied().zip(tensor.strides().iter().copied());
        Values { storage, walk: Walk::new(pairs) }
    }

    /// # Safety
    /// `base` is the tensor's first element and the tensor has an element `channel`.
    unsafe fn get(&self, base: *const u8, channel: usize) -> f64 {
        let mut value = [0f64];
        // SAFETY: the caller's promise.
        unsafe { self.storage.load_wide(base, self.walk.offset(channel), 1, &mut value) };
        value[0]
    }
}

/// Operands of a fold, in the order mean, spread, scale, bias and epsilon, if there is one.
#[derive(Clone, Debug)]
pub struct Factors {
    /// Number of channels.
    pub channels: usize,
    /// Operands.
    pub operands: Vec<Values>,
}

impl Factors {
    /// Scales and shifts by a fold's operands, for so many channels.
    pub fn new<'g>(channels: usize, operands: impl Iterator<Item = &'g Tensor>) -> Factors {
        Factors { channels, operands: operands.map(Values::new).collect() }
    }

    /// Bytes of the scales; the shifts take as many.
    pub fn bytes(&self) -> usize {
        self.channels * size_of::<f32>()
    }

    /// Computes each channel's scale and shift.
    ///
    /// # Safety
    /// `inputs` are the first elements of the operands; `factors` and `shifts` have room for a value for each channel.
    pub unsafe fn run(&self, inputs: &[*const u8], factors: *mut f32, shifts: *mut f32) {
        for channel in 0..self.channels {
            // SAFETY: the caller's promise: a value for each channel, one epsilon.
            unsafe {
                let value = |operand: usize| self.operands[operand].get(inputs[operand], channel);
                let spread = match self.operands.get(4) {
                    Some(epsilon) => (value(1) + epsilon.get(inputs[4], 0)).sqrt().recip(),
                    None => value(1),
                };
                let factor = spread * value(2);
                factors.add(channel).write(factor as f32);
                shifts.add(channel).write((value(3) - value(0) * factor) as f32);
            }
        }
    }
}
