//! Executions on the same memory again: their launches are repeated with the arguments in place.
//!
//! The second execution on a variant pack is taken down, and those after it only launch. A plan keeps a few tapes, for packs
//! that take turns and for concurrent executions, which do not wait for one another.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use crate::hip::Tape;

/// Variant packs that a plan knows at a time.
const MOST_TAPES: usize = 4;

/// The tapes of a plan.
#[derive(Debug, Default)]
pub(super) struct Tapes {
    known: [Mutex<Known>; MOST_TAPES],
    /// Index of the tape that the next unknown pack replaces, modulo their number.
    next: AtomicUsize,
    /// True if no tape can have what the plan does.
    is_futile: AtomicBool,
}

/// A variant pack of an earlier execution.
#[derive(Debug)]
pub(super) struct Known {
    pack: Vec<DeviceBuffer>,
    workspace: *mut u8,
    pub(super) tape: Tape,
    /// True if the tape is of this pack.
    pub(super) is_taken: bool,
}

// SAFETY: the addresses are compared, and given to HIP; nothing here follows them.
unsafe impl Send for Known {}

impl Default for Known {
    fn default() -> Known {
        Known { pack: Vec::new(), workspace: std::ptr::null_mut(), tape: Tape::default(), is_taken: false }
    }
}

/// The bytes of a pack's entries, which are compared faster than the entries.
fn bytes(pack: &[DeviceBuffer]) -> &[u8] {
    const { assert!(size_of::<DeviceBuffer>() == size_of::<i64>() + size_of::<*mut c_void>()) };
    // SAFETY: an entry is a number and an address with nothing between them, so that each of its bytes has a value.
    unsafe { std::slice::from_raw_parts(pack.as_ptr().cast(), size_of_val(pack)) }
}

impl Known {
    fn is(&self, workspace: *mut u8, pack: &[DeviceBuffer]) -> bool {
        self.workspace == workspace && bytes(&self.pack) == bytes(pack)
    }
}

impl Tapes {
    /// Tape of a pack that is known and that nobody uses now; a pack that is not known is known from here on.
    pub(super) fn find(&self, workspace: *mut u8, pack: &[DeviceBuffer]) -> Option<MutexGuard<'_, Known>> {
        // An empty pack would be what nobody has been told.
        if self.is_futile.load(Ordering::Relaxed) || pack.is_empty() {
            return None;
        }
        for known in &self.known {
            // A thread that panicked may have left half a tape: that one is not used again.
            if let Ok(known) = known.try_lock()
                && known.is(workspace, pack)
            {
                return Some(known);
            }
        }
        let oldest = self.next.fetch_add(1, Ordering::Relaxed) % MOST_TAPES;
        if let Ok(mut known) = self.known[oldest].try_lock() {
            known.is_taken = false;
            known.workspace = workspace;
            known.pack.clear();
            known.pack.extend_from_slice(pack);
        }
        None
    }

    /// No tape can have what the plan does.
    pub(super) fn give_up(&self) {
        self.is_futile.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(addresses: &[usize]) -> Vec<DeviceBuffer> {
        let entry = |(uid, address): (usize, &usize)| DeviceBuffer {
            uid: uid as i64,
            ptr: std::ptr::without_provenance_mut(*address),
        };
        addresses.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn a_pack_is_known_the_second_time() {
        let tapes = Tapes::default();
        let (one, other) = (pack(&[16, 32]), pack(&[16, 48]));
        let workspace = std::ptr::without_provenance_mut(256);
        let known = |pack: &[DeviceBuffer]| tapes.find(workspace, pack).is_some();
        assert!(!known(&one) && known(&one), "told, then known");
        assert!(!known(&other) && known(&other) && known(&one), "two take turns");
        assert!(tapes.find(std::ptr::null_mut(), &one).is_none(), "with another workspace");
        assert!(!known(&one[..1]) && !known(&[]) && !known(&[]));
        let held = tapes.find(workspace, &other);
        assert!(held.is_some() && !known(&other), "somebody uses it");
        drop(held);
        // Those that came since have taken the places of the first ones.
        (0..MOST_TAPES).for_each(|number| assert!(!known(&pack(&[1024 + number]))));
        assert!(!known(&one));
        tapes.give_up();
        assert!(!known(&one) && !known(&one));
    }

    #[test]
    fn a_replaced_pack_has_no_tape() {
        let tapes = Tapes::default();
        let none = std::ptr::null_mut();
        let packs: Vec<_> = (0..=MOST_TAPES).map(|number| pack(&[4096 * (number + 1)])).collect();
        for pack in &packs[..MOST_TAPES] {
            assert!(tapes.find(none, pack).is_none());
            tapes.find(none, pack).expect("it was told").is_taken = true;
        }
        assert!(tapes.find(none, &packs[MOST_TAPES]).is_none());
        assert!(!tapes.find(none, &packs[MOST_TAPES]).expect("it was told").is_taken);
        assert!(tapes.find(none, &packs[1]).expect("it is still known").is_taken);
    }
}
