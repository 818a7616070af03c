//! The memory that engines work in.

use std::cell::OnceCell;

use hipdnn_conformance::memory::Memory;

use crate::arguments::Place;

/// Host memory, and that of the device once an engine wants it.
pub(crate) struct Workplace {
    place: Place,
    host: Memory,
    device: OnceCell<Memory>,
}

impl Workplace {
    /// Memory of the place that the user wants.
    pub(crate) fn new(place: Place) -> Workplace {
        Workplace { place, host: Memory::Host, device: OnceCell::new() }
    }

    /// The memory for an engine. Nothing in the engine ABI tells which it works on; the CPU engine's name does.
    ///
    /// # Errors
    /// If there is no device.
    pub(crate) fn of(&self, engine: &str) -> Result<&Memory, String> {
        if self.is_on_host(engine) {
            return Ok(&self.host);
        }
        if let Some(memory) = self.device.get() {
            return Ok(memory);
        }
        let memory = Memory::device().map_err(|problem| {
            format!("{engine} works in a GPU's memory, but {problem}; --memory host is for engines that don't")
        })?;
        Ok(self.device.get_or_init(|| memory))
    }

    /// True if the engine's tensors are in the process's own memory.
    pub(crate) fn is_on_host(&self, engine: &str) -> bool {
        match self.place {
            Place::Host => true,
            Place::Device => false,
            Place::Auto => engine.contains("CPU"),
        }
    }
}
