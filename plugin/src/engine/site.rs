//! The site of a handle: the memory that its tensors are in, and the stream that its executions are enqueued on.

use std::cell::Cell;
use std::ffi::c_void;

use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;

use super::Declined;

thread_local! {
    // Without a destructor: the library may be unloaded before the thread ends.
    static MEMORY: Cell<MemoryKind> = const { Cell::new(MemoryKind::UNSPECIFIED) };
}

/// Memory of the handles that the calling thread makes from now on; gives what it was before.
pub fn replace_memory(memory: MemoryKind) -> MemoryKind {
    MEMORY.replace(memory)
}

/// Memory of a handle that the calling thread makes now.
pub fn memory() -> MemoryKind {
    MEMORY.get()
}

/// What an engine is asked for, beside the graph.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The handle's stream, whose device plans are for; null is the default stream.
    pub stream: *mut c_void,
    /// Where its tensors are.
    pub memory: MemoryKind,
}

impl Site {
    /// The default stream of a handle whose client says nothing of its tensors' memory.
    pub const UNSPECIFIED: Site = Site { stream: std::ptr::null_mut(), memory: MemoryKind::UNSPECIFIED };

    /// Refuses an engine that reads and writes `wanted` where tensors are known to be elsewhere.
    ///
    /// # Errors
    /// That tensors are elsewhere.
    pub fn check(&self, wanted: MemoryKind) -> Result<(), Declined> {
        if self.memory == MemoryKind::UNSPECIFIED || self.memory == wanted {
            return Ok(());
        }
        Err(Declined::Unavailable(format!("expected tensors in {wanted}, the handle's are in {}", self.memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_get_tensors_in_their_memory_only() {
        for (memory, wanted, refusal) in [
            (MemoryKind::UNSPECIFIED, MemoryKind::HOST, None),
            (MemoryKind::HOST, MemoryKind::HOST, None),
            (MemoryKind::DEVICE, MemoryKind::DEVICE, None),
            (
                MemoryKind::DEVICE,
                MemoryKind::HOST,
                Some("expected tensors in host memory, the handle's are in device memory"),
            ),
            (
                MemoryKind::HOST,
                MemoryKind::DEVICE,
                Some("expected tensors in device memory, the handle's are in host memory"),
            ),
        ] {
            let got = Site { memory, ..Site::UNSPECIFIED }.check(wanted);
            let got = got.err().map(|declined| declined.to_string());
            assert_eq!(got.is_some(), refusal.is_some(), "{memory}, {wanted}");
            assert!(got.unwrap_or_default().contains(refusal.unwrap_or_default()), "{memory}, {wanted}");
        }
    }
}
