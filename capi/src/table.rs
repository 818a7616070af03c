//! Tables of the objects that a caller holds.
//!
//! The opaque pointer that a caller gets is a key: the index of a slot, its generation (the number of times that it has
//! been used), and the tag of its table. Looking a key up therefore never reads memory that the key names: null, an
//! object that was destroyed, an object of another kind, another plugin's pointer and plain garbage are all recognized.
//! Keys lie outside of what a process on a 64-bit machine can address (bit 62), so they never equal a real pointer,
//! which another plugin would hand out. A key would be mistaken for a newer one only after its slot has been used 2²⁴
//! times since.
//!
//! A look-up counts itself in at its slot (not at the table) while the object is used: many threads may use one object,
//! and destroying it waits for them.

use crate::Error;
use crate::sync::{AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering, pause};

/// Bit that is set in every key.
const KEY: u64 = 1 << 62;
const TAG_SHIFT: u32 = 54;
const GENERATION_SHIFT: u32 = 30;
const GENERATION_MASK: u64 = (1 << 24) - 1;
/// The lowest bits stay 0, as in the address of an allocation.
const INDEX_SHIFT: u32 = 4;

/// State of a slot: above this bit the generation, the bit itself while an object may be looked up, below it the number
/// of users.
const LIVE: u64 = 1 << 31;
const USERS: u64 = LIVE - 1;
const STATE_GENERATION_SHIFT: u32 = 32;

/// Slot for one object.
pub struct Slot<T> {
    state: AtomicU64,
    object: AtomicPtr<T>,
}

impl<T> Slot<T> {
    /// An empty slot: all zeros, so that arrays of them take no room in the library's file.
    #[cfg(not(all(loom, test)))]
    pub const fn empty() -> Slot<T> {
        Slot { state: AtomicU64::new(0), object: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

struct Free {
    /// Free indices that have been used before.
    returned: Vec<usize>,
    /// First index that was never used.
    fresh: usize,
    live: usize,
}

impl Free {
    const NONE: Free = Free { returned: Vec::new(), fresh: 0, live: 0 };
}

/// Table of objects by key.
pub struct Slots<T: 'static> {
    /// Kind of object, for messages.
    what: &'static str,
    tag: u64,
    free: Mutex<Free>,
    slots: &'static [Slot<T>],
}

// SAFETY: the table owns objects that it hands references of to any thread (`Sync`) and gives back to any (`Send`).
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

/// Guard of a look-up: counts the user out on drop, also when it panics.
struct User<'a>(&'a AtomicU64);

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Slots<T> {
    /// An empty table over slots of its own; `what` names an object in messages, `tag` (below 256) tells its keys from
    /// those of other tables.
    #[cfg(not(all(loom, test)))]
    pub const fn new(what: &'static str, tag: u64, slots: &'static [Slot<T>]) -> Slots<T> {
        assert!(slots.len() < 1 << (GENERATION_SHIFT - INDEX_SHIFT) && tag < 1 << (62 - TAG_SHIFT));
        Slots { what, tag, free: Mutex::new(Free::NONE), slots }
    }

    fn key(&self, index: usize, state: u64) -> u64 {
        let generation = state >> STATE_GENERATION_SHIFT & GENERATION_MASK;
        KEY | self.tag << TAG_SHIFT | generation << GENERATION_SHIFT | (index as u64) << INDEX_SHIFT
    }

    /// Slot that the key names, live or not, and its index.
    fn slot(&self, key: u64) -> Result<(usize, &Slot<T>), Error> {
        let index = (key & ((1 << GENERATION_SHIFT) - 1)) >> INDEX_SHIFT;
        let index = index as usize;
        self.slots.get(index).map(|slot| (index, slot)).ok_or_else(|| self.unknown(key))
    }

    fn unknown(&self, key: u64) -> Error {
        Error::Unknown { what: self.what, key }
    }

    /// Inserts an object; returns its key.
    ///
    /// # Errors
    /// If the table is full.
    pub fn insert(&self, object: T) -> Result<u64, Error> {
        let mut free = lock(&self.free);
        let index = match free.returned.pop() {
            Some(index) => index,
            None if free.fresh < self.slots.len() => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => {
                return Err(Error::Full { what: self.what, most: self.slots.len() });
            }
        };
        free.live += 1;
        drop(free);
        let slot = &self.slots[index];
        slot.object.store(Box::into_raw(Box::new(object)), Ordering::Relaxed);
        // Publishes the object to whoever sees the bit.
        let state = slot.state.fetch_or(LIVE, Ordering::AcqRel);
        Ok(self.key(index, state))
    }

    /// Calls `f` with the object of the key, which stays alive meanwhile.
    ///
    /// # Errors
    /// If there is no such object, or the error of `f`.
    pub fn with<R, E: From<Error>>(&self, key: u64, f: impl FnOnce(&T) -> Result<R, E>) -> Result<R, E> {
        let (index, slot) = self.slot(key)?;
        slot.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                let is_it = state & LIVE != 0 && self.key(index, state) == key;
                is_it.then_some(state + 1)
            })
            .map_err(|_| self.unknown(key))?;
        let _user = User(&slot.state);
        // SAFETY: the slot was live when this user was counted in, so its object is there, and `remove` waits for
        // users.
        f(unsafe { &*slot.object.load(Ordering::Relaxed) })
    }

    /// Clone of the object of the key.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn get(&self, key: u64) -> Result<T, Error>
    where
        T: Clone,
    {
        self.with(key, |object| Ok(object.clone()))
    }

    /// True if the table holds no object.
    pub fn is_empty(&self) -> bool {
        lock(&self.free).live == 0
    }

    /// Removes the object of the key, once all its users are done.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn remove(&self, key: u64) -> Result<T, Error> {
        let (index, slot) = self.slot(key)?;
        slot.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                let is_it = state & LIVE != 0 && self.key(index, state) == key;
                is_it.then_some(state & !LIVE)
            })
            .map_err(|_| self.unknown(key))?;
        // Nobody gets in from here on. A caller that destroys what it still uses is rare, and may wait.
        while slot.state.load(Ordering::Acquire) & USERS != 0 {
            pause();
        }
        let object = slot.object.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `insert` made the pointer of a box; this call alone cleared the bit, and no user is left.
        let object = unsafe { Box::from_raw(object) };
        slot.state.fetch_add(1 << STATE_GENERATION_SHIFT, Ordering::Release);
        let mut free = lock(&self.free);
        free.returned.push(index);
        free.live -= 1;
        if free.live == 0 {
            // Nothing would free the list when the library is unloaded. Slots start over from the first one; their
            // generations stay.
            *free = Free::NONE;
        }
        Ok(*object)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_wild_keys_are_recognised() {
        static A_SLOTS: [Slot<String>; 3] = [const { Slot::empty() }; 3];
        static B_SLOTS: [Slot<String>; 3] = [const { Slot::empty() }; 3];
        static A: Slots<String> = Slots::new("an a", 1, &A_SLOTS);
        static B: Slots<String> = Slots::new("a b", 2, &B_SLOTS);
        let name = |key| A.get(key);
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
            assert!(error.to_string().starts_with("expected an a, got "), "{what}: {error}");
            assert!(A.remove(key).is_err(), "{what}");
        }
        A.insert("fourth".into()).unwrap();
        assert_eq!(A.insert("fifth".into()).unwrap_err().to_string(), "no room for an a: there are 3 already");
    }

    #[test]
    fn an_emptied_table_starts_over_with_other_keys() {
        static SLOTS: [Slot<u32>; 2] = [const { Slot::empty() }; 2];
        static T: Slots<u32> = Slots::new("a number", 3, &SLOTS);
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
        static SLOTS: [Slot<u32>; 2] = [const { Slot::empty() }; 2];
        static T: Slots<u32> = Slots::new("a number", 4, &SLOTS);
        static DONE: AtomicBool = AtomicBool::new(false);
        let key = T.insert(5).unwrap();
        let (entered, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                T.with(key, |_| {
                    entered.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    DONE.store(true, Ordering::SeqCst);
                    Ok::<(), Error>(())
                })
                .unwrap();
            });
            wait.recv().unwrap();
            T.remove(key).unwrap();
            assert!(DONE.load(Ordering::SeqCst));
        });
    }
}

#[cfg(all(loom, test))]
mod interleavings {
    use super::*;
    use loom::alloc::Track;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle};

    /// Object that a model misses if it leaks, and whose uses it misses to be before its removal.
    struct Object(Track<UnsafeCell<u32>>);

    // SAFETY: the model reports accesses of the cell that are at the same time.
    unsafe impl Sync for Object {}

    impl Object {
        fn new(value: u32) -> Object {
            Object(Track::new(UnsafeCell::new(value)))
        }

        fn read(&self) -> u32 {
            // SAFETY: nothing else refers to the cell's content here; the model reports a write at the same time.
            self.0.get_ref().with(|value| unsafe { *value })
        }

        /// The value, written over: no use may be under way or come later.
        fn destroy(self) -> u32 {
            // SAFETY: nothing else refers to the cell's content here; the model reports accesses at the same time.
            self.0.get_ref().with_mut(|value| unsafe { std::mem::replace(&mut *value, u32::MAX) })
        }
    }

    /// Table with one slot, which is given back at the end.
    struct Table {
        table: Slots<Object>,
        slots: *mut [Slot<Object>],
    }

    // SAFETY: the pointer is used by `drop` alone.
    unsafe impl Send for Table {}
    // SAFETY: `drop` has the table to itself, and nothing else follows the pointer.
    unsafe impl Sync for Table {}

    impl Table {
        fn new() -> Arc<Table> {
            let slot = Slot { state: AtomicU64::new(0), object: AtomicPtr::new(std::ptr::null_mut()) };
            let slots = Box::into_raw(Box::new([slot]));
            // SAFETY: the box lives until the table is dropped.
            let table = Slots { what: "an object", tag: 1, free: Mutex::new(Free::NONE), slots: unsafe { &*slots } };
            Arc::new(Table { table, slots })
        }
    }

    /// Looks an object up on another thread.
    fn look_up(table: &Arc<Table>, key: u64) -> JoinHandle<Option<u32>> {
        let table = table.clone();
        thread::spawn(move || table.table.with(key, |object| Ok::<_, Error>(object.read())).ok())
    }

    impl Drop for Table {
        fn drop(&mut self) {
            // SAFETY: `new` made the pointer of a box, and the table that refers to it is not used again.
            drop(unsafe { Box::from_raw(self.slots) });
        }
    }

    #[test]
    fn a_look_up_is_refused_or_done_when_the_object_is_destroyed() {
        loom::model(|| {
            let table = Table::new();
            let key = table.table.insert(Object::new(7)).unwrap();
            let readers = [look_up(&table, key), look_up(&table, key)];
            assert_eq!(table.table.remove(key).unwrap().destroy(), 7);
            for reader in readers {
                assert!(matches!(reader.join().unwrap(), None | Some(7)));
            }
            assert!(table.table.is_empty());
        });
    }

    #[test]
    fn one_of_two_destroys_an_object() {
        loom::model(|| {
            let table = Table::new();
            let key = table.table.insert(Object::new(7)).unwrap();
            let reader = look_up(&table, key);
            let other = {
                let table = table.clone();
                thread::spawn(move || table.table.remove(key).map(Object::destroy).ok())
            };
            let here = table.table.remove(key).map(Object::destroy).ok();
            let both = [here, other.join().unwrap()];
            assert!(both.contains(&Some(7)) && both.contains(&None), "{both:?}");
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_stale_key_is_never_that_of_the_next_object() {
        loom::model(|| {
            let table = Table::new();
            let first = table.table.insert(Object::new(7)).unwrap();
            let reader = look_up(&table, first);
            table.table.remove(first).unwrap().destroy();
            let second = table.table.insert(Object::new(8)).unwrap();
            let next = look_up(&table, second);
            assert!(matches!(reader.join().unwrap(), None | Some(7)));
            assert_eq!(next.join().unwrap(), Some(8));
            table.table.remove(second).unwrap().destroy();
        });
    }

    #[test]
    fn objects_that_are_inserted_at_once_have_one_slot_each() {
        loom::model(|| {
            let table = Table::new();
            let insert = |value| table.table.insert(Object::new(value));
            let other = {
                let table = table.clone();
                thread::spawn(move || match table.table.insert(Object::new(1)) {
                    Ok(key) => table.table.remove(key).unwrap().destroy() == 1,
                    Err(_) => false,
                })
            };
            let here = match insert(2) {
                Ok(key) => table.table.remove(key).unwrap().destroy() == 2,
                Err(_) => false,
            };
            // The table has room for one: who comes while it is there is refused.
            assert!(here | other.join().unwrap());
            assert!(table.table.is_empty());
        });
    }
}
