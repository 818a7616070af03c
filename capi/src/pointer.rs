//! Raw pointers in: checks of null and alignment.
//!
//! Memory behind a pointer that is not null can't be checked here: C hands out addresses without sizes, so a wild
//! out-pointer is undefined behavior, as in any C library. Handles are another matter: they are keys
//! ([`crate::table`]), never dereferenced.

use std::ffi::{CStr, c_char};

use crate::Error;

/// Checks that `pointer` is not null and is aligned for a `T`.
///
/// # Errors
/// If it is null or misaligned.
pub fn checked<T>(pointer: *const T, what: &'static str) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::Null { what });
    }
    if !pointer.is_aligned() {
        return Err(Error::Misaligned { what, address: pointer.addr(), wanted: align_of::<T>() });
    }
    Ok(())
}

/// Out-pointer of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// # Safety
    /// A pointer that is not null and aligned is good for writing and reading a `T` until the call ends.
    ///
    /// # Errors
    /// If it is null or misaligned.
    pub unsafe fn new(pointer: *mut T, what: &'static str) -> Result<Out<T>, Error> {
        checked(pointer, what).map(|()| Out(pointer))
    }

    /// Writes the result.
    pub fn set(self, value: T) {
        // SAFETY: by `Out::new` the place is good for writing.
        unsafe { self.0.write(value) }
    }

    /// Reads the current value.
    pub fn get(self) -> T {
        // SAFETY: by `Out::new` the place is good for reading.
        unsafe { self.0.read() }
    }
}

impl Out<*const c_char> {
    /// Writes the address of static text.
    pub fn set_text(self, text: &'static CStr) {
        self.set(text.as_ptr());
    }
}

/// Key that an opaque pointer stands for.
pub fn key<T>(pointer: *mut T) -> u64 {
    pointer.addr() as u64
}

/// Opaque pointer that a caller holds for a key.
pub fn opaque<T>(key: u64) -> *mut T {
    std::ptr::without_provenance_mut(key as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_misaligned_pointers_are_told() {
        let mut words = [0u32; 2];
        let first = words.as_mut_ptr();
        for (pointer, want) in [
            (std::ptr::null_mut(), Some("it: expected a pointer, got null".to_owned())),
            (first, None),
            (first.wrapping_byte_add(1), Some(format!("it: expected a multiple of 4, got {:#x}", first.addr() + 1))),
        ] {
            assert_eq!(checked(pointer, "it").err().map(|error| error.to_string()), want);
        }
        // SAFETY: the place is a variable of this function.
        let out = unsafe { Out::new(first, "it") }.unwrap();
        out.set(7);
        assert_eq!((out.get(), words[0]), (7, 7));
        assert_eq!(key(opaque::<u8>(1 << 62 | 5)), 1 << 62 | 5);
    }
}
