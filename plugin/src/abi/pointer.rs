//! Raw pointers in: null, length and alignment are looked at here, and what comes out is safe to use for the call. All of
//! a call's pointers are looked at, and its handles looked up, before any is followed.
//!
//! What cannot be seen from here is whether memory behind a pointer that is not null is really there: the ABI hands out
//! addresses without sizes, so a wild out-pointer or a buffer shorter than it says is undefined, as in any C library.
//! Handles and execution contexts are another matter: they are keys, never dereferenced, so null, destroyed, foreign and
//! invented ones are all refused ([`super::slots`]).

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, DeviceBuffer};

use crate::error::Error;

/// Checks that `pointer` may be dereferenced as far as its value tells.
fn checked<T>(pointer: *const T, what: &str) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::bad_param(format!("{what}: wanted a pointer, came null")));
    }
    if !pointer.is_aligned() {
        let wanted = align_of::<T>();
        return Err(Error::bad_param(format!("{what}: wanted a multiple of {wanted}, came {pointer:p}")));
    }
    Ok(())
}

/// A place that the host wants a result in.
#[derive(Clone, Copy)]
pub(super) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// # Safety
    /// A pointer that is not null and aligned is good for writing and reading a `T` until the call ends.
    ///
    /// # Errors
    /// If it is null or misaligned.
    pub(super) unsafe fn new(pointer: *mut T, what: &str) -> Result<Out<T>, Error> {
        checked(pointer, what).map(|()| Out(pointer))
    }

    /// Writes the result.
    pub(super) fn set(self, value: T) {
        // SAFETY: by `Out::new` the place is good for writing.
        unsafe { self.0.write(value) }
    }

    /// Reads what is there.
    pub(super) fn get(self) -> T {
        // SAFETY: by `Out::new` the place is good for reading.
        unsafe { self.0.read() }
    }
}

impl Out<*const c_char> {
    /// Gives static text.
    pub(super) fn set_text(self, text: &'static CStr) {
        self.set(text.as_ptr());
    }
}

/// A buffer that the host owns, not looked into yet: that waits until the call's other arguments are known to be right.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    data: *const ConstData,
    what: &'static str,
    host: PhantomData<&'a [u8]>,
}

impl<'a> Data<'a> {
    /// # Safety
    /// A pointer that is not null and aligned refers to a `ConstData` whose `size` bytes at `ptr`, if not null, stay as
    /// they are for `'a`.
    ///
    /// # Errors
    /// If it is null or misaligned.
    pub(super) unsafe fn new(data: *const ConstData, what: &'static str) -> Result<Data<'a>, Error> {
        checked(data, what).map(|()| Data { data, what, host: PhantomData })
    }

    /// The buffer's bytes.
    ///
    /// # Errors
    /// If they are null, or more than an address space holds.
    pub(super) fn bytes(self) -> Result<&'a [u8], Error> {
        // SAFETY: by `Data::new` the struct is there.
        let ConstData { ptr, size } = unsafe { *self.data };
        if ptr.is_null() || size > isize::MAX as usize {
            return Err(Error::bad_param(format!("{}: wanted bytes, came {size} at {ptr:p}", self.what)));
        }
        // SAFETY: not null, not too long, and by `Data::new` the bytes are there and stay.
        Ok(unsafe { std::slice::from_raw_parts(ptr.cast(), size) })
    }
}

/// A variant pack.
///
/// # Safety
/// `buffers`, if not null and aligned, refers to `count` entries that stay as they are for `'a`.
///
/// # Errors
/// If it is null or misaligned, whatever the count.
pub(super) unsafe fn variant_pack<'a>(buffers: *const DeviceBuffer, count: u32) -> Result<&'a [DeviceBuffer], Error> {
    checked(buffers, "device_buffers")?;
    // SAFETY: not null, aligned, and the caller answers for the entries.
    Ok(unsafe { std::slice::from_raw_parts(buffers, count as usize) })
}

/// The place for a list of engine ids, with room for `max`; null where `max` is 0.
pub(super) struct IdList {
    ids: *mut i64,
    max: u32,
    count: Out<u32>,
}

impl IdList {
    /// # Safety
    /// Pointers that are not null and aligned are good for writing `max` ids and one number until the call ends.
    ///
    /// # Errors
    /// If a pointer is null that must not be.
    pub(super) unsafe fn new(ids: *mut i64, max: u32, count: *mut u32) -> Result<IdList, Error> {
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(count, "num_engines") }?;
        if max > 0 {
            checked(ids, "engine_ids")?;
        }
        Ok(IdList { ids, max, count })
    }

    /// Writes as many ids as there is room for, and the number of all, which may be more.
    pub(super) fn set(&self, all: &[i64]) {
        for (i, id) in all.iter().take(self.max as usize).enumerate() {
            // SAFETY: `i` is below `max`, for which the caller of `new` answers.
            unsafe { self.ids.add(i).write(*id) };
        }
        self.count.set(all.len() as u32);
    }
}

/// An opaque pointer as the key that it is.
pub(super) fn key<T>(pointer: *mut T) -> u64 {
    pointer.addr() as u64
}

/// A key as the opaque pointer that the host holds.
pub(super) fn opaque<T>(key: u64) -> *mut T {
    std::ptr::without_provenance_mut(key as usize)
}

/// An address as bytes.
pub(super) fn memory(pointer: *mut c_void) -> *mut u8 {
    pointer.cast()
}
