//! Raw pointers in: null, length and alignment are looked at here, and what comes out is safe to use for the call. All of
//! a call's pointers are looked at, and its handles looked up, before any is followed.
//!
//! Validity of memory behind a pointer that is not null cannot be checked here: the ABI hands out addresses without
//! sizes, so a wild out-pointer or a buffer shorter than it says is undefined, as in any C library. Handles and
//! execution contexts are another matter: they are keys, never dereferenced, so null, destroyed, foreign and invented
//! ones are all refused ([`hipdnn_capi::table`]).

use std::ffi::c_void;
use std::marker::PhantomData;

use hipdnn_capi::pointer::{Out, checked};
use hipdnn_engine_core::error::Error;
use hipdnn_schemas::{ShapeOverride, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, DeviceBuffer};

/// Buffer that the host owns, not looked into yet: that waits until the call's other arguments are known to be right.
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
        checked(data, what)?;
        Ok(Data { data, what, host: PhantomData })
    }

    /// Bytes of the buffer.
    ///
    /// # Errors
    /// If they are null, or more than an address space holds.
    pub(super) fn bytes(self) -> Result<&'a [u8], Error> {
        // SAFETY: by `Data::new` the struct is there.
        let ConstData { ptr, size } = unsafe { *self.data };
        if ptr.is_null() || size > isize::MAX as usize {
            return Err(Error::bad_param(format!("{}: expected bytes, got {size} at {ptr:p}", self.what)));
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

/// Addresses of the parallel lists of override shapes.
#[derive(Clone, Copy)]
pub(super) struct OverrideLists {
    pub(super) count: u32,
    pub(super) uids: *const i64,
    pub(super) lengths: *const u32,
    pub(super) shapes: *const *const i64,
    pub(super) strides: *const *const i64,
}

/// Override shapes of an execution; none if the count is 0, whatever the addresses.
///
/// # Safety
/// The lists, if not null and aligned, have `count` entries, and the address of each shape and stride, if not null and
/// aligned, has as many numbers as its length says; all of them stay as they are for `'a`.
///
/// # Errors
/// If an address is null or misaligned.
pub(super) unsafe fn overrides<'a>(lists: OverrideLists) -> Result<Vec<ShapeOverride<'a>>, Error> {
    let count = lists.count as usize;
    if count == 0 {
        return Ok(Vec::new());
    }
    checked(lists.uids, "override_unique_ids")?;
    checked(lists.lengths, "override_lengths")?;
    checked(lists.shapes, "override_shapes")?;
    checked(lists.strides, "override_strides")?;
    // SAFETY: not null, aligned, and the caller answers for the entries.
    let (uids, lengths, shapes, strides) = unsafe {
        (
            std::slice::from_raw_parts(lists.uids, count),
            std::slice::from_raw_parts(lists.lengths, count),
            std::slice::from_raw_parts(lists.shapes, count),
            std::slice::from_raw_parts(lists.strides, count),
        )
    };
    let row = |row: *const i64, length: u32, what| -> Result<&'a [i64], Error> {
        checked(row, what)?;
        // SAFETY: not null, aligned, and the caller answers for the numbers.
        Ok(unsafe { std::slice::from_raw_parts(row, length as usize) })
    };
    (0..count)
        .map(|i| {
            let dims = row(shapes[i], lengths[i], "override_shapes")?;
            let strides = row(strides[i], lengths[i], "override_strides")?;
            Ok(ShapeOverride { uid: TensorUid(uids[i]), dims, strides })
        })
        .collect()
}

/// Destination of a list of engine ids, with room for `max`; null where `max` is 0.
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

/// An address as bytes.
pub(super) fn memory(pointer: *mut c_void) -> *mut u8 {
    pointer.cast()
}
