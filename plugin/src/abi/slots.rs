//! Tables of the objects that the host holds.
//!
//! What the host gets as an opaque pointer is a key: the index of a slot, how often the slot has been used, and which
//! table it belongs to. Looking a key up therefore never reads memory that the key names: null, an object that was
//! destroyed, an object of another kind, another plugin's pointer and plain garbage are all recognised. Keys lie outside
//! of what a process on a 64-bit machine can address (bit 62), so they never equal a real pointer, which another plugin
//! would hand out. A key would be mistaken for a newer one only after its slot has been used 2²⁴ times since.
//!
//! A look-up holds the slot (not the table) for reading while the object is used: many threads may use one object, and
//! destroying it waits for them.

use std::sync::{Mutex, MutexGuard, RwLock};

use crate::error::Error;

/// Bit of every key.
const KEY: u64 = 1 << 62;
const TAG_SHIFT: u32 = 54;
const GENERATION_SHIFT: u32 = 30;
const GENERATION_BITS: u64 = (1 << 24) - 1;
/// The lowest bits stay 0, as in the address of an allocation.
const INDEX_SHIFT: u32 = 4;

struct Slot<T> {
    generation: u64,
    object: Option<T>,
}

struct Free {
    /// Indices that were used and are free again.
    returned: Vec<usize>,
    /// The first index that was never used.
    fresh: usize,
    live: usize,
}

/// Up to `N` objects.
pub(super) struct Slots<T, const N: usize> {
    /// For messages.
    what: &'static str,
    tag: u64,
    free: Mutex<Free>,
    slots: [RwLock<Slot<T>>; N],
}

impl<T, const N: usize> Slots<T, N> {
    /// An empty table; `what` names an object in messages, `tag` (below 256) tells its keys from those of other tables.
    pub(super) const fn new(what: &'static str, tag: u64) -> Slots<T, N> {
        assert!(N < 1 << (GENERATION_SHIFT - INDEX_SHIFT) && tag < 1 << (62 - TAG_SHIFT));
        Slots {
            what,
            tag,
            free: Mutex::new(Free { returned: Vec::new(), fresh: 0, live: 0 }),
            slots: [const { RwLock::new(Slot { generation: 0, object: None }) }; N],
        }
    }

    fn key(&self, index: usize, generation: u64) -> u64 {
        KEY | self.tag << TAG_SHIFT | (generation & GENERATION_BITS) << GENERATION_SHIFT | (index as u64) << INDEX_SHIFT
    }

    /// The slot that the key would be of, whether or not it is, and its index.
    fn slot(&self, key: u64) -> Result<(usize, &RwLock<Slot<T>>), Error> {
        let index = (key & ((1 << GENERATION_SHIFT) - 1)) >> INDEX_SHIFT;
        let index = index as usize;
        self.slots.get(index).map(|slot| (index, slot)).ok_or_else(|| self.unknown(key))
    }

    fn unknown(&self, key: u64) -> Error {
        let what = self.what;
        Error::bad_param(match key {
            0 => format!("wanted {what}, came null"),
            _ => format!("wanted {what}, came {key:#x}, which is none or was destroyed"),
        })
    }

    /// Takes an object in and gives its key.
    ///
    /// # Errors
    /// If the table is full.
    pub(super) fn insert(&self, object: T) -> Result<u64, Error> {
        let mut free = lock(&self.free);
        let index = match free.returned.pop() {
            Some(index) => index,
            None if free.fresh < N => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return Err(Error::alloc_failed(format!("there are {N} of {} already", self.what))),
        };
        free.live += 1;
        drop(free);
        let mut slot = self.slots[index].write().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.object = Some(object);
        Ok(self.key(index, slot.generation))
    }

    /// Calls `f` with the object of the key, which stays alive meanwhile.
    ///
    /// # Errors
    /// If there is no such object, and what `f` gives.
    pub(super) fn with<R>(&self, key: u64, f: impl FnOnce(&T) -> Result<R, Error>) -> Result<R, Error> {
        let (index, slot) = self.slot(key)?;
        let slot = slot.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &slot.object {
            Some(object) if self.key(index, slot.generation) == key => f(object),
            _ => Err(self.unknown(key)),
        }
    }

    /// Takes the object of the key out, after everybody who uses it.
    ///
    /// # Errors
    /// If there is no such object.
    pub(super) fn remove(&self, key: u64) -> Result<T, Error> {
        let (index, slot) = self.slot(key)?;
        let mut slot = slot.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.key(index, slot.generation) != key {
            return Err(self.unknown(key));
        }
        let object = slot.object.take().ok_or_else(|| self.unknown(key))?;
        slot.generation += 1;
        drop(slot);
        let mut free = lock(&self.free);
        free.returned.push(index);
        free.live -= 1;
        if free.live == 0 {
            // Nothing would free the list when the library is unloaded. Slots start over from the first one; their
            // generations stay.
            *free = Free { returned: Vec::new(), fresh: 0, live: 0 };
        }
        Ok(object)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_wild_keys_are_recognised() {
        static A: Slots<String, 3> = Slots::new("an a", 1);
        static B: Slots<String, 3> = Slots::new("a b", 2);
        let name = |key| A.with(key, |text| Ok(text.clone()));
        let first = A.insert("first".into()).unwrap();
        let second = A.insert("second".into()).unwrap();
        assert_eq!(name(first).unwrap(), "first");
        assert_eq!(name(second).unwrap(), "second");
        assert_eq!(A.remove(first).unwrap(), "first");
        let third = A.insert("third".into()).unwrap();
        assert_ne!(first, third, "a slot used again has another key");
        let of_b = B.insert("b".into()).unwrap();
        let on_stack = 7u8;
        for (what, key) in [
            ("null", 0),
            ("destroyed", first),
            ("of another table", of_b),
            ("a real address", &raw const on_stack as u64),
            ("garbage", u64::MAX),
            ("a bit off", third ^ 1),
            ("an index never used", third + (2 << INDEX_SHIFT)),
        ] {
            let error = name(key).unwrap_err();
            assert!(error.to_string().starts_with("wanted an a, came "), "{what}: {error}");
            assert!(A.remove(key).is_err(), "{what}");
        }
        A.insert("fourth".into()).unwrap();
        assert_eq!(A.insert("fifth".into()).unwrap_err().to_string(), "there are 3 of an a already");
    }

    #[test]
    fn an_emptied_table_starts_over_with_other_keys() {
        static T: Slots<u32, 2> = Slots::new("a number", 3);
        let mut seen = std::collections::HashSet::new();
        for i in 0..1000 {
            let key = T.insert(i).unwrap();
            assert!(seen.insert(key));
            assert_eq!(T.remove(key).unwrap(), i);
        }
    }

    #[test]
    fn destroying_waits_for_users() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static T: Slots<u32, 2> = Slots::new("a number", 4);
        static DONE: AtomicBool = AtomicBool::new(false);
        let key = T.insert(5).unwrap();
        let (entered, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                T.with(key, |_| {
                    entered.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    DONE.store(true, Ordering::SeqCst);
                    Ok(())
                })
                .unwrap();
            });
            wait.recv().unwrap();
            T.remove(key).unwrap();
            assert!(DONE.load(Ordering::SeqCst));
        });
    }
}
