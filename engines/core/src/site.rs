//! Site of a handle: the memory of its tensors, the stream of its executions, and the directory of its engines' caches.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;

use super::Declined;

thread_local! {
    // Without a destructor: the library may be unloaded before the thread ends.
    static MEMORY: Cell<MemoryKind> = const { Cell::new(MemoryKind::UNSPECIFIED) };
    static CACHE: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

/// Sets the memory of the handles that the calling thread makes from now on; returns the previous one.
pub fn replace_memory(memory: MemoryKind) -> MemoryKind {
    MEMORY.replace(memory)
}

/// Memory of a handle that the calling thread makes now.
pub fn memory() -> MemoryKind {
    MEMORY.get()
}

/// Sets the cache directory of the handles that the calling thread makes from now on; returns the previous one.
pub fn replace_cache(directory: Option<&'static CStr>) -> Option<&'static CStr> {
    CACHE.replace(directory)
}

/// Cache directory of a handle that the calling thread makes now.
pub fn cache() -> Option<&'static CStr> {
    CACHE.get()
}

/// Interned name of a directory, which lives as long as the library; one for each name, of which a process has few.
pub fn interned(name: &CStr) -> &'static CStr {
    static NAMES: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static CStr = Box::leak(name.into());
    names.push(name);
    name
}

/// Site of a handle: the context of a request to an engine, beside the graph.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Stream of the handle, whose device plans are for; null is the default stream.
    pub stream: *mut c_void,
    /// Memory that its tensors are in.
    pub memory: MemoryKind,
    /// Directory of its engines' caches, or `off`; `None` leaves it to the environment.
    pub cache: Option<&'static CStr>,
}

impl Site {
    /// Site of the default stream, with memory that the client has not specified.
    pub const UNSPECIFIED: Site = Site { stream: std::ptr::null_mut(), memory: MemoryKind::UNSPECIFIED, cache: None };

    /// Checks that tensors may be in `wanted`, the memory that an engine reads and writes.
    ///
    /// # Errors
    /// If they are known to be elsewhere.
    pub fn check(&self, wanted: MemoryKind) -> Result<(), Declined> {
        if self.memory == MemoryKind::UNSPECIFIED || self.memory == wanted {
            return Ok(());
        }
        Err(Declined::Unavailable(format!("expected tensors in {wanted}, got the handle's in {}", self.memory)))
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
                Some("expected tensors in host memory, got the handle's in device memory"),
            ),
            (
                MemoryKind::HOST,
                MemoryKind::DEVICE,
                Some("expected tensors in device memory, got the handle's in host memory"),
            ),
        ] {
            let got = Site { memory, ..Site::UNSPECIFIED }.check(wanted);
            let got = got.err().map(|declined| declined.to_string());
            assert_eq!(got.is_some(), refusal.is_some(), "{memory}, {wanted}");
            assert!(got.unwrap_or_default().contains(refusal.unwrap_or_default()), "{memory}, {wanted}");
        }
    }

    /// Handles of one thread get what that thread asked for, and no other thread's do.
    #[test]
    fn what_is_set_for_new_handles_is_the_threads_own() {
        let here = || (memory(), cache());
        let before = (MemoryKind::UNSPECIFIED, None);
        assert_eq!(here(), before);
        assert_eq!((replace_memory(MemoryKind::HOST), replace_cache(Some(c"/a"))), before);
        assert_eq!(here(), (MemoryKind::HOST, Some(c"/a")));
        assert_eq!(std::thread::spawn(here).join().unwrap(), before, "another thread");
        assert_eq!((replace_memory(MemoryKind::DEVICE), replace_cache(Some(c"/b"))), (MemoryKind::HOST, Some(c"/a")));
        assert_eq!((replace_memory(before.0), replace_cache(before.1)), (MemoryKind::DEVICE, Some(c"/b")));
        assert_eq!(here(), before);
    }

    /// Names are leaked, so each is kept only once.
    #[test]
    fn a_name_is_interned_once() {
        let [first, other] = [c"/some/directory", c"/some/other"].map(interned);
        assert_eq!((first, other), (c"/some/directory", c"/some/other"));
        for _ in 0..3 {
            let again = std::ffi::CString::new("/some/directory").unwrap();
            assert!(std::ptr::eq(interned(&again), first));
        }
        assert!(std::ptr::eq(interned(c"/some/other"), other));
    }
}
