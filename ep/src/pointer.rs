//! Pointers that come in through the C ABI: what can be told from their value is checked before anything follows them.
//!
//! Handles of ours are known by address ([`Handles`]), so that null, released, foreign and invented ones are refused
//! without being read. Whether memory behind another pointer is there cannot be told: the runtime answers for it.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use hipdnn_sdk_bindings::ort::Status;

use crate::error::Error;
use crate::runtime::{Runtime, status_of};

/// Looks at the value of a pointer that is to be followed.
fn checked<T>(pointer: *const T, what: &str) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{}: {what}: expected a pointer, got null", crate::NAME_TEXT)));
    }
    if !pointer.is_aligned() {
        let (name, alignment) = (crate::NAME_TEXT, align_of::<T>());
        return Err(Error::invalid(format!("{name}: {what}: expected a multiple of {alignment}, got {pointer:p}")));
    }
    Ok(())
}

/// A place that the caller wants an answer in.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// # Safety
    /// A pointer that is not null and aligned is good for writing a `T` until the call ends.
    ///
    /// # Errors
    /// If it is null or misaligned.
    pub(crate) unsafe fn new(pointer: *mut T, what: &str) -> Result<Place<T>, Error> {
        checked(pointer, what).map(|()| Place(pointer))
    }

    /// Writes the answer.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: by `Place::new` the place is good for writing.
        unsafe { self.0.write(value) }
    }
}

/// An array of the caller's; of no elements it may be null.
///
/// # Safety
/// A pointer that is not null and aligned refers to `count` elements that stay as they are for `'a`.
///
/// # Errors
/// If it is null or misaligned though there are elements, or there are more than an address space holds.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    checked(pointer, what)?;
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Error::invalid(format!(
            "{}: {what}: expected elements within an address space, got {count}",
            crate::NAME_TEXT
        )));
    }
    // SAFETY: not null, aligned and not too long; for the rest the caller answers.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A hash of addresses, which nobody chooses to collide: each call of the runtime looks one up.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // Knuth's multiplicative hash (The Art of Computer Programming 3, 6.4), whose high bits are the mixed ones.
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// An object that the runtime holds as a struct of callbacks.
///
/// # Safety
/// The type is `repr(C)`, and its first member is of the type `Callbacks`.
pub(crate) unsafe trait Held {
    /// The callbacks.
    type Callbacks;

    /// The runtime that holds it.
    fn runtime(&self) -> &Runtime;
}

/// Number of places of [`Handles::seen`], a power of two.
const SEEN: usize = 64;

/// The objects of one kind that were given away and not taken back.
pub(crate) struct Handles<T> {
    what: &'static str,
    /// Objects that were looked up and live, each at the place of its hash: most calls need no lock.
    seen: [AtomicUsize; SEEN],
    living: RwLock<HashSet<usize, BuildHasherDefault<AddressHasher>>>,
    kind: PhantomData<fn(T)>,
}

impl<T: Held> Handles<T> {
    /// None; `what` is for messages.
    pub(crate) const fn new(what: &'static str) -> Handles<T> {
        let living = RwLock::new(HashSet::with_hasher(BuildHasherDefault::new()));
        Handles { what, seen: [const { AtomicUsize::new(0) }; SEEN], living, kind: PhantomData }
    }

    /// Runs the body of a callback with the object that it belongs to: a stranger, an error and a panic become a status.
    pub(crate) fn with(&self, this: *const T::Callbacks, body: impl FnOnce(&T) -> Result<(), Error>) -> *mut Status {
        match self.look(this, |object| object.runtime().guard(|| body(object))) {
            Ok(status) => status,
            Err(stranger) => status_of(Err(stranger)),
        }
    }

    /// Result of `body` with the object of these callbacks.
    ///
    /// # Errors
    /// If they are none that were given away.
    pub(crate) fn look<R>(&self, this: *const T::Callbacks, body: impl FnOnce(&T) -> R) -> Result<R, Error> {
        self.check(this)?;
        // SAFETY: the callbacks are the first member of an object of this kind, by `Held`, which lives: it was given away and not
        // taken back, and the runtime ends no object during a call of it.
        Ok(body(unsafe { &*this.cast::<T>() }))
    }

    fn place(&self, address: usize) -> &AtomicUsize {
        let mut hasher = AddressHasher::default();
        hasher.write_usize(address);
        &self.seen[hasher.finish() as usize % SEEN]
    }

    /// Takes note of an object that is given away.
    pub(crate) fn add(&self, object: *const T::Callbacks) {
        let mut living = self.living.write().unwrap_or_else(PoisonError::into_inner);
        living.insert(object.addr());
    }

    /// True if that is one of them.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn check(&self, object: *const T::Callbacks) -> Result<(), Error> {
        let (address, place) = (object.addr(), self.place(object.addr()));
        if address != 0 && place.load(Ordering::Acquire) == address {
            return Ok(());
        }
        let living = self.living.read().unwrap_or_else(PoisonError::into_inner);
        if !living.contains(&address) {
            return Err(self.stranger(object));
        }
        // Under the lock: whoever takes the object back clears the place after it.
        place.store(address, Ordering::Release);
        Ok(())
    }

    /// Forgets an object that is taken back.
    ///
    /// # Errors
    /// If it is none of them.
    pub(crate) fn remove(&self, object: *const T::Callbacks) -> Result<(), Error> {
        let mut living = self.living.write().unwrap_or_else(PoisonError::into_inner);
        let known = living.remove(&object.addr());
        let _ = self.place(object.addr()).compare_exchange(object.addr(), 0, Ordering::AcqRel, Ordering::Relaxed);
        if known { Ok(()) } else { Err(self.stranger(object)) }
    }

    fn stranger(&self, object: *const T::Callbacks) -> Error {
        Error::invalid(format!("{}: expected a living {} of this library, got {object:p}", crate::NAME_TEXT, self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Thing {
        callbacks: u64,
    }

    // SAFETY: the word is the first member.
    unsafe impl Held for Thing {
        type Callbacks = u64;

        fn runtime(&self) -> &Runtime {
            unreachable!("no runtime calls it")
        }
    }

    #[test]
    fn only_what_lives_is_known() {
        let handles: Handles<Thing> = Handles::new("thing");
        let (one, other) = (Box::new(1u64), Box::new(2u64));
        let message = |object: *const u64| handles.check(object).map_err(|error| error.message);
        assert!(message(&*one).is_err());
        handles.add(&*one);
        assert_eq!(message(&*one), Ok(()));
        assert_eq!(handles.look(&*one, |thing| thing.callbacks), Ok(1));
        assert!(handles.look(&*other, |thing| thing.callbacks).is_err());
        for stranger in [std::ptr::null(), &raw const *other, (&raw const *one).wrapping_byte_add(1)] {
            let want = format!("HipDnnRsExecutionProvider: expected a living thing of this library, got {stranger:p}");
            assert_eq!(message(stranger), Err(want.clone()));
            assert_eq!(handles.remove(stranger).map_err(|error| error.message), Err(want));
        }
        assert_eq!(message(&*one), Ok(()), "it is seen");
        assert_eq!(handles.remove(&*one), Ok(()));
        assert!(handles.check(&*one).is_err() && handles.remove(&*one).is_err());
    }

    #[test]
    fn pointers_are_looked_at_before_they_are_followed() {
        let words = [1u64, 2, 3];
        let odd = words.as_ptr().wrapping_byte_add(1);
        // SAFETY: the pointers that are not refused are to the words above.
        unsafe {
            assert_eq!(array::<u64>(std::ptr::null(), 0, "words"), Ok(&[][..]));
            assert_eq!(array(words.as_ptr(), 3, "words"), Ok(&words[..]));
            for (pointer, count, want) in [
                (std::ptr::null(), 1, "expected a pointer, got null".to_string()),
                (odd, 1, format!("expected a multiple of 8, got {odd:p}")),
                (words.as_ptr(), usize::MAX, format!("expected elements within an address space, got {}", usize::MAX)),
            ] {
                let message = array(pointer, count, "words").unwrap_err().message;
                assert_eq!(message, format!("HipDnnRsExecutionProvider: words: {want}"));
                assert!(count > 1 || Place::new(pointer.cast_mut(), "word").is_err());
            }
        }
    }
}
