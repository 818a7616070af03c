//! Raw pointers of callers, as typed values: lengths, nulls and element types are looked at here and nowhere else.
//! An exported function makes all of its typed values first, which follows nothing, then looks its tokens up, and only
//! then reads and writes. Callers owe no alignment.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::NonNull;

use hipdnn_sdk_bindings::hipdnn::backend::{AttributeType, FlatbufferData};

use crate::descriptor::Object;
use crate::error::{Error, Result};

/// Maximum number of elements of one attribute: more are a wrong count.
const MAX_ELEMENTS: i64 = 1 << 28;

/// Element type of plain data.
///
/// # Safety
/// Every bit pattern is valid.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer; every bit pattern is a number.
unsafe impl Plain for u8 {}
// SAFETY: an integer; every bit pattern is a number.
unsafe impl Plain for i32 {}
// SAFETY: an integer; every bit pattern is a number.
unsafe impl Plain for i64 {}
// SAFETY: an integer; every bit pattern is a number.
unsafe impl Plain for usize {}
// SAFETY: a float; every bit pattern is a number or NaN.
unsafe impl Plain for f32 {}
// SAFETY: a float; every bit pattern is a number or NaN.
unsafe impl Plain for f64 {}
// SAFETY: a raw pointer and a number, of which every bit pattern is valid.
unsafe impl Plain for FlatbufferData {}

/// The elements that a caller sets an attribute to.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    kind: AttributeType,
    count: i64,
    data: *const c_void,
    caller: PhantomData<&'a ()>,
}

impl Elements<'_> {
    /// # Safety
    /// `data` is null or leads to `count` elements of the type that `kind` names, valid for the lifetime.
    pub(crate) unsafe fn new(kind: AttributeType, count: i64, data: *const c_void) -> Self {
        Elements { kind, count, data, caller: PhantomData }
    }

    pub(crate) fn kind(&self) -> AttributeType {
        self.kind
    }

    /// All elements, which must be of this type; none is not an error here.
    fn read<T: Plain>(&self, wanted: AttributeType) -> Result<Vec<T>> {
        if self.kind != wanted {
            return Err(Error::bad_param(format!("expected elements of {wanted}, got {}", self.kind)));
        }
        if !(0..=MAX_ELEMENTS).contains(&self.count) {
            return Err(Error::bad_param(format!("{} elements", self.count)));
        }
        if self.data.is_null() {
            return Err(Error::null("the array of elements is null"));
        }
        let data = self.data.cast::<T>();
        // SAFETY: there are `count` elements of this type, by `new`; callers owe no alignment.
        Ok((0..self.count as usize).map(|index| unsafe { data.add(index).read_unaligned() }).collect())
    }

    /// At least one element.
    fn some<T: Plain>(&self, wanted: AttributeType) -> Result<Vec<T>> {
        let elements = self.read(wanted)?;
        if elements.is_empty() {
            Err(Error::bad_param("expected at least one element, got none"))
        } else {
            Ok(elements)
        }
    }

    /// Exactly one element.
    fn one<T: Plain>(&self, wanted: AttributeType) -> Result<T> {
        if self.kind == wanted && self.count != 1 {
            return Err(Error::bad_param(format!("expected one element, got {}", self.count)));
        }
        Ok(self.read(wanted)?[0])
    }

    /// At least one number.
    pub(crate) fn int64s(&self) -> Result<Vec<i64>> {
        self.some(AttributeType::INT64)
    }

    /// Any count of numbers.
    pub(crate) fn int64s_or_none(&self) -> Result<Vec<i64>> {
        if self.kind == AttributeType::INT64 && self.count == 0 {
            return Ok(Vec::new());
        }
        self.read(AttributeType::INT64)
    }

    pub(crate) fn int64(&self) -> Result<i64> {
        self.one(AttributeType::INT64)
    }

    /// One number of a range.
    pub(crate) fn int64_within(&self, range: RangeInclusive<i64>) -> Result<i64> {
        let value = self.int64()?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(Error::bad_param(format!("expected a number from {} to {}, got {value}", range.start(), range.end())))
        }
    }

    /// At least one number.
    pub(crate) fn int32s(&self) -> Result<Vec<i32>> {
        self.some(AttributeType::INT32)
    }

    pub(crate) fn int32(&self) -> Result<i32> {
        self.one(AttributeType::INT32)
    }

    pub(crate) fn double(&self) -> Result<f64> {
        self.one(AttributeType::DOUBLE)
    }

    pub(crate) fn float(&self) -> Result<f32> {
        self.one(AttributeType::FLOAT)
    }

    /// A C `bool`: one byte.
    pub(crate) fn boolean(&self) -> Result<bool> {
        self.one::<u8>(AttributeType::BOOLEAN).map(|byte| byte != 0)
    }

    /// One enumerator of the type's enumeration.
    pub(crate) fn enumerator(&self, kind: AttributeType) -> Result<i32> {
        self.one(kind)
    }

    /// At least one byte.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        self.some(AttributeType::CHAR)
    }

    /// A text; its length is the count, and a NUL ends it early.
    pub(crate) fn text(&self) -> Result<String> {
        let mut bytes: Vec<u8> = self.read(AttributeType::CHAR)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        String::from_utf8(bytes).map_err(|_| Error::bad_param("the text is not UTF-8"))
    }

    /// Addresses of the caller, which may be null.
    pub(crate) fn addresses(&self) -> Result<Vec<usize>> {
        self.read(AttributeType::VOID_PTR)
    }

    /// One address of the caller, which may be null.
    pub(crate) fn address(&self) -> Result<usize> {
        self.one(AttributeType::VOID_PTR)
    }

    /// The token of a handle.
    pub(crate) fn handle(&self) -> Result<Token> {
        present(self.one(AttributeType::HANDLE)?, "the handle")
    }

    /// At least one descriptor.
    pub(crate) fn descriptors(&self) -> Result<Vec<Object>> {
        self.some(AttributeType::BACKEND_DESCRIPTOR)?.into_iter().map(object).collect()
    }

    /// One descriptor.
    pub(crate) fn descriptor(&self) -> Result<Object> {
        object(self.one(AttributeType::BACKEND_DESCRIPTOR)?)
    }

    /// At least one buffer, none of them null or empty.
    pub(crate) fn flatbuffers(&self) -> Result<Vec<&[u8]>> {
        let buffers = self.some::<FlatbufferData>(AttributeType::FLATBUFFER_DATA_STRUCT_EXT)?;
        buffers
            .into_iter()
            // SAFETY: by `new` the elements are what their type says, and that is buffers of this size.
            .map(|buffer| unsafe { bytes(buffer.ptr.cast(), buffer.size, "a buffer") })
            .collect()
    }
}

/// Destination of an attribute's elements, in the caller's memory.
pub(crate) struct Output<'a> {
    kind: AttributeType,
    requested: i64,
    count: *mut i64,
    data: *mut c_void,
    caller: PhantomData<&'a mut ()>,
}

impl Output<'_> {
    /// # Safety
    /// `count` is null or valid for a write; `data` is null or has room for `requested` elements of the type that `kind`
    /// names, initialized if that is a descriptor; both for the lifetime.
    pub(crate) unsafe fn new(kind: AttributeType, requested: i64, count: *mut i64, data: *mut c_void) -> Self {
        Output { kind, requested, count, data, caller: PhantomData }
    }

    pub(crate) fn kind(&self) -> AttributeType {
        self.kind
    }

    fn expect(&self, wanted: AttributeType) -> Result<()> {
        if self.kind != wanted {
            return Err(Error::bad_param(format!("expected {wanted}, got {}", self.kind)));
        }
        if self.requested < 0 {
            return Err(Error::bad_param(format!("{} elements are requested", self.requested)));
        }
        Ok(())
    }

    fn is_count_query(&self) -> bool {
        self.requested == 0 || self.data.is_null()
    }

    fn write_count(&self, count: usize) {
        if !self.count.is_null() {
            // SAFETY: valid for a write, by `new`.
            unsafe { self.count.write_unaligned(count as i64) };
        }
    }

    fn answer_count(&self, count: usize) -> Result<()> {
        if self.count.is_null() {
            return Err(Error::null("a query of the count has no place for it"));
        }
        self.write_count(count);
        Ok(())
    }

    fn write<T: Plain>(&self, values: &[T]) {
        debug_assert!(values.len() as i64 <= self.requested && !self.data.is_null());
        for (index, value) in values.iter().enumerate() {
            // SAFETY: there is room for `requested` elements, by `new`; callers owe no alignment.
            unsafe { self.data.cast::<T>().add(index).write_unaligned(*value) };
        }
    }

    /// One element, with the query of the count.
    pub(crate) fn scalar<T: Plain>(&self, kind: AttributeType, value: T) -> Result<()> {
        self.expect(kind)?;
        if self.is_count_query() {
            return self.answer_count(1);
        }
        self.write(&[value]);
        self.write_count(1);
        Ok(())
    }

    /// One element, which must be asked for as one.
    pub(crate) fn strict_scalar<T: Plain>(&self, kind: AttributeType, value: T) -> Result<()> {
        self.expect(kind)?;
        if self.requested != 1 {
            return Err(Error::bad_param(format!("expected a request of one element, got {}", self.requested)));
        }
        if self.data.is_null() {
            return Err(Error::null("the array of elements is null"));
        }
        self.write(&[value]);
        self.write_count(1);
        Ok(())
    }

    /// The address of one FlatBuffer, which is made when it is asked for and has to stay as long as the descriptor.
    pub(crate) fn flatbuffer(&self, data: impl FnOnce() -> Result<FlatbufferData>) -> Result<()> {
        self.expect(AttributeType::FLATBUFFER_DATA_STRUCT_EXT)?;
        match self.requested {
            0 => self.answer_count(1),
            1 if self.data.is_null() => Err(Error::null("the array of elements is null")),
            1 => {
                self.write(&[data()?]);
                self.write_count(1);
                Ok(())
            }
            more => Err(Error::bad_param(format!("expected a request of at most one element, got {more}"))),
        }
    }

    /// As [`Output::scalar`]; an unset value is a success with count 0.
    pub(crate) fn optional<T: Plain>(&self, kind: AttributeType, value: Option<T>) -> Result<()> {
        match value {
            Some(value) => self.scalar(kind, value),
            None => {
                self.expect(kind)?;
                self.write_count(0);
                Ok(())
            }
        }
    }

    /// As many elements as there is room for, with the query of the count.
    pub(crate) fn vector<T: Plain>(&self, kind: AttributeType, values: &[T]) -> Result<()> {
        self.expect(kind)?;
        if self.is_count_query() {
            return self.answer_count(values.len());
        }
        let count = values.len().min(self.requested as usize);
        self.write(&values[..count]);
        self.write_count(count);
        Ok(())
    }

    /// All elements, for which there must be room, with the query of the count.
    pub(crate) fn whole_vector<T: Plain>(&self, kind: AttributeType, values: &[T]) -> Result<()> {
        self.expect(kind)?;
        if !self.is_count_query() {
            self.expect_room(values.len())?;
        }
        self.vector(kind, values)
    }

    fn expect_room(&self, count: usize) -> Result<()> {
        if (self.requested as usize) < count {
            return Err(Error::bad_param(format!("expected room for {count} elements, got {}", self.requested)));
        }
        Ok(())
    }

    /// Elements whose array may not be null, not even to ask for the count, nor may the place of the count.
    pub(crate) fn vector_without_query<T: Plain>(&self, kind: AttributeType, values: &[T]) -> Result<()> {
        self.expect(kind)?;
        if self.count.is_null() {
            return Err(Error::null("the place for the count is null"));
        }
        if self.data.is_null() {
            return Err(Error::null("the array of elements is null"));
        }
        let count = values.len().min(self.requested as usize);
        self.write(&values[..count]);
        self.write_count(count);
        Ok(())
    }

    /// A text with its NUL, cut to the room there is.
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        self.expect(AttributeType::CHAR)?;
        if self.is_count_query() {
            return self.answer_count(text.len() + 1);
        }
        let length = text.len().min(self.requested as usize - 1);
        let mut bytes = text.as_bytes()[..length].to_vec();
        bytes.push(0);
        self.write(&bytes);
        self.write_count(bytes.len());
        Ok(())
    }

    /// One descriptor, which must be asked for as one: a new wrapper that the caller owns.
    pub(crate) fn descriptor(&self, object: Object) -> Result<()> {
        self.expect(AttributeType::BACKEND_DESCRIPTOR)?;
        if self.requested != 1 {
            return Err(Error::bad_param(format!("expected a request of one descriptor, got {}", self.requested)));
        }
        if self.data.is_null() {
            return Err(Error::null("the array of descriptors is null"));
        }
        self.write(&[object.wrap()?]);
        self.write_count(1);
        Ok(())
    }

    /// As [`Output::descriptor`], but with the query of the count; an unset one is a success with count 0.
    pub(crate) fn optional_descriptor(&self, object: Option<Object>) -> Result<()> {
        self.descriptors(object.as_slice(), false)
    }

    /// As many descriptors as there is room for, or all: new wrappers that the caller owns.
    pub(crate) fn descriptors(&self, objects: &[Object], whole: bool) -> Result<()> {
        self.expect(AttributeType::BACKEND_DESCRIPTOR)?;
        if self.is_count_query() {
            return self.answer_count(objects.len());
        }
        if whole {
            self.expect_room(objects.len())?;
        }
        let count = objects.len().min(self.requested as usize);
        let tokens: Vec<usize> = objects[..count].iter().cloned().map(Object::wrap).collect::<Result<_>>()?;
        self.write(&tokens);
        self.write_count(count);
        Ok(())
    }

    /// Fills descriptors that the caller made: `fill` is called for as many of `available` as the caller brought.
    pub(crate) fn fill_descriptors(
        &self,
        available: usize,
        mut fill: impl FnMut(usize, Object) -> Result<()>,
    ) -> Result<()> {
        self.expect(AttributeType::BACKEND_DESCRIPTOR)?;
        if self.requested == 0 {
            return self.answer_count(available);
        }
        if self.data.is_null() || self.count.is_null() {
            return Err(Error::null("the array of descriptors or the count is null"));
        }
        let count = available.min(self.requested as usize);
        for index in 0..count {
            // SAFETY: `requested` descriptors are there, by `new`.
            let token = unsafe { self.data.cast::<usize>().add(index).read_unaligned() };
            fill(index, object(token)?)?;
        }
        self.write_count(count);
        Ok(())
    }
}

/// The opaque value of a handle or a descriptor at the C ABI: never null, and never dereferenced.
pub(crate) type Token = NonZeroUsize;

/// The token that `pointer` is.
pub(crate) fn token<T>(pointer: *mut T, what: &str) -> Result<Token> {
    present(pointer as usize, what)
}

fn present(token: usize, what: &str) -> Result<Token> {
    Token::new(token).ok_or_else(|| Error::null(format!("{what} is null")))
}

fn object(token: usize) -> Result<Object> {
    Object::find(present(token, "the descriptor")?)
}

/// A place of a caller, to read from and write to. It may be misaligned.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a, T> {
    pointer: NonNull<T>,
    caller: PhantomData<&'a mut T>,
}

impl<T: Copy> Place<'_, T> {
    /// # Safety
    /// `pointer` is null or valid for reads and writes of a `T`, and nobody else writes there, for the lifetime.
    pub(crate) unsafe fn new(pointer: *mut T, what: &str) -> Result<Self> {
        let pointer = NonNull::new(pointer).ok_or_else(|| Error::null(format!("{what} is null")))?;
        Ok(Place { pointer, caller: PhantomData })
    }

    pub(crate) fn get(self) -> T {
        // SAFETY: valid for reads, by `new`.
        unsafe { self.pointer.read_unaligned() }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: valid for writes, by `new`.
        unsafe { self.pointer.write_unaligned(value) }
    }
}

/// `length` bytes of a caller.
///
/// # Safety
/// `pointer` is null or leads to `length` bytes that do not change, for the lifetime.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize, what: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(Error::null(format!("{what} is null")));
    }
    if length == 0 {
        return Err(Error::bad_param(format!("{what} is empty")));
    }
    if length > isize::MAX as usize {
        return Err(Error::bad_param(format!("{what}: {length} bytes")));
    }
    // SAFETY: the caller's duty.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// A caller's buffer for a text or blob, and the destination of its size: a null buffer asks for the size.
///
/// # Safety
/// `buffer` is null or has room for `room` bytes.
pub(crate) unsafe fn write_sized(bytes: &[u8], room: usize, size: Place<'_, usize>, buffer: *mut u8) -> Result<()> {
    size.set(bytes.len());
    if buffer.is_null() {
        return Ok(());
    }
    if room < bytes.len() {
        return Err(Error::too_small(format!("expected a buffer of {} bytes, got {room}", bytes.len())));
    }
    // SAFETY: there is room for these bytes, and a caller's buffer does not overlap ours.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
    Ok(())
}

/// A text with its NUL, for a caller's buffer whose size is known to fit.
///
/// # Safety
/// `buffer` has room for the text and a NUL.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char) {
    // SAFETY: the caller's duty.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
    }
}

/// A caller's text, not looked into yet.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    text: NonNull<c_char>,
    what: &'a str,
}

impl<'a> Text<'a> {
    /// # Safety
    /// `text` is null or a text that ends in a NUL, for the lifetime.
    pub(crate) unsafe fn new(text: *const c_char, what: &'a str) -> Result<Text<'a>> {
        let text = NonNull::new(text.cast_mut()).ok_or_else(|| Error::null(format!("{what} is null")))?;
        Ok(Text { text, what })
    }

    pub(crate) fn get(self) -> Result<&'a str> {
        // SAFETY: a text, by `new`.
        let text = unsafe { CStr::from_ptr(self.text.as_ptr()) };
        text.to_str().map_err(|_| Error::bad_param(format!("{} is not UTF-8", self.what)))
    }
}

/// A copy of a caller's numbers; null stands for none.
///
/// # Safety
/// `numbers` is null or leads to `count` numbers.
pub(crate) unsafe fn numbers(numbers: *const i64, count: usize) -> Result<Vec<i64>> {
    const MAX: usize = 1 << 16;
    if numbers.is_null() {
        return Ok(Vec::new());
    }
    if count > MAX {
        return Err(Error::bad_param(format!("expected at most {MAX} numbers, got {count}")));
    }
    // SAFETY: there are `count` numbers; callers owe no alignment.
    Ok((0..count).map(|index| unsafe { numbers.add(index).read_unaligned() }).collect())
}

/// A caller's paths.
///
/// # Safety
/// `paths` is null or leads to `count` entries, each null or a text that ends in a NUL.
pub(crate) unsafe fn paths(count: usize, paths: *const *const c_char) -> Result<Vec<PathBuf>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if paths.is_null() {
        return Err(Error::null("the array of paths is null"));
    }
    (0..count)
        .map(|index| {
            // SAFETY: there are `count` entries.
            let path = unsafe { paths.add(index).read_unaligned() };
            if path.is_null() {
                return Err(Error::null(format!("path {index} is null")));
            }
            // SAFETY: an entry that is not null is a text.
            Ok(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
        })
        .collect()
}
