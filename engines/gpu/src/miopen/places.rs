//! Addresses that stand for those of a call's operands where nothing runs.

use hipdnn_engine_core::error::Error;

use super::record::{Addresses, OPERANDS};
use crate::hip::{DeviceMemory, Gpu};

/// Bytes between an operand's addresses in one set and in the next: no two operands have the same, so that the distance
/// tells them apart. Whatever kernels expect of alignment holds for all sets.
pub(super) const fn shift(operand: usize) -> usize {
    4096 * (operand + 1)
}

/// A little device memory, whose addresses stand for those of a call's operands where nothing runs.
#[derive(Debug)]
pub(crate) struct Places(DeviceMemory);

impl Places {
    /// Room for one operand.
    const STEP: usize = 64 << 10;

    pub(crate) fn new(gpu: &'static Gpu) -> Result<Places, Error> {
        Ok(Places(DeviceMemory::new(gpu, OPERANDS * Places::STEP)?))
    }

    /// The libraries.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.0.gpu()
    }

    /// Two sets of addresses of these operands.
    pub(super) fn sets(&self, operands: &[usize]) -> [Addresses; 2] {
        [0, 1].map(|set| {
            let mut at = [0; OPERANDS];
            for operand in operands {
                at[*operand] = self.0.at(operand * Places::STEP + set * shift(*operand)) as u64;
            }
            at
        })
    }
}
