//! Pointers that come in through the C ABI: what can be told from their value is checked before anything follows them.
//!
//! Handles of ours are known by address ([`Handles`]), so that null, released, foreign and invented ones are refused
//! without being read. Whether memory behind another pointer is there cannot be told: the runtime answers for it.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use crate::error::Error;

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
        return Err(Error::invalid(format!("{}: {what}: {count} elements are too many", crate::NAME_TEXT)));
    }
    // SAFETY: not null, aligned and not too long; for the rest the caller answers.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The objects of one kind that were given away and not taken back.
pub(crate) struct Handles {
    what: &'static str,
    living: RwLock<Option<HashSet<usize>>>,
}

impl Handles {
    /// None; `what` is for messages.
    pub(crate) const fn new(what: &'static str) -> Handles {
        Handles { what, living: RwLock::new(None) }
    }

    /// Takes note of an object that is given away.
    pub(crate) fn add<T>(&self, object: *const T) {
        let mut living = self.living.write().unwrap_or_else(PoisonError::into_inner);
        living.get_or_insert_default().insert(object.addr());
    }

    /// True if that is one of them.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn check<T>(&self, object: *const T) -> Result<(), Error> {
        let living = self.living.read().unwrap_or_else(PoisonError::into_inner);
        if living.as_ref().is_some_and(|living| living.contains(&object.addr())) {
            Ok(())
        } else {
            Err(self.stranger(object))
        }
    }

    /// Forgets an object that is taken back.
    ///
    /// # Errors
    /// If it is none of them.
    pub(crate) fn remove<T>(&self, object: *const T) -> Result<(), Error> {
        let mut living = self.living.write().unwrap_or_else(PoisonError::into_inner);
        let known = living.as_mut().is_some_and(|living| living.remove(&object.addr()));
        if known { Ok(()) } else { Err(self.stranger(object)) }
    }

    fn stranger<T>(&self, object: *const T) -> Error {
        Error::invalid(format!("{}: {object:p} is no {} of this library's", crate::NAME_TEXT, self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lives_is_known() {
        let handles = Handles::new("thing");
        let (one, other) = (Box::new(1u64), Box::new(2u64));
        let message = |object: *const u64| handles.check(object).map_err(|error| error.message);
        assert!(message(&*one).is_err());
        handles.add(&*one);
        assert_eq!(message(&*one), Ok(()));
        for stranger in [std::ptr::null(), &raw const *other, (&raw const *one).wrapping_byte_add(1)] {
            let want = format!("HipDnnRsExecutionProvider: {stranger:p} is no thing of this library's");
            assert_eq!(message(stranger), Err(want.clone()));
            assert_eq!(handles.remove(stranger).map_err(|error| error.message), Err(want));
        }
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
                (words.as_ptr(), usize::MAX, format!("{} elements are too many", usize::MAX)),
            ] {
                let message = array(pointer, count, "words").unwrap_err().message;
                assert_eq!(message, format!("HipDnnRsExecutionProvider: words: {want}"));
                assert!(count > 1 || Place::new(pointer.cast_mut(), "word").is_err());
            }
        }
    }
}
