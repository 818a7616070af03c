//! Element types: loads of rows of elements in memory to `f32`, `f64` or `i64`, and stores.

use half::{bf16, f16};
use hipdnn_schemas::DataType;

use super::Function;
use hipdnn_cpu_kernels::activation::Operand;
use hipdnn_cpu_kernels::spread::{spread, spread_single};
use hipdnn_cpu_simd::convert;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};
use hipdnn_cpu_simd::minifloat::{self, Code};

/// Bytes that are copied at a time: from 2 KiB on C libraries may copy by an instruction for strings. Copies of that
/// size were most of the time of a program that only adds, on a Zen 3.
const PIECE: usize = 1024;

/// Copies a row, from and to memory in the first cache.
#[inline]
pub fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len());
    let piece = PIECE / size_of::<T>().max(1);
    for (from, to) in from.chunks(piece).zip(to.chunks_mut(piece)) {
        to.copy_from_slice(from);
    }
}

/// Element type in memory that pointwise nodes can read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Storage {
    F32,
    F16,
    BF16,
    F64,
    I32,
    I64,
    I8,
    U8,
    /// One byte: zero is false, anything else is true; true is written as 1.
    Boolean,
    /// Codes of 4, 6 or 8 bits.
    Code(Code),
}

impl Storage {
    /// Element type of a data type; `None` where pointwise nodes do not serve the type.
    pub const fn of(data_type: DataType) -> Option<Storage> {
        Some(match data_type {
            DataType::Float => Storage::F32,
            DataType::Half => Storage::F16,
            DataType::BFloat16 => Storage::BF16,
            DataType::Double => Storage::F64,
            DataType::Int32 => Storage::I32,
            DataType::Int64 => Storage::I64,
            DataType::Int8 => Storage::I8,
            DataType::UInt8 => Storage::U8,
            DataType::Boolean => Storage::Boolean,
            DataType::Fp8E4M3 => Storage::Code(Code::E4M3),
            DataType::Fp8E5M2 => Storage::Code(Code::E5M2),
            DataType::Fp8E4M3Fnuz => Storage::Code(Code::E4M3Fnuz),
            DataType::Fp8E5M2Fnuz => Storage::Code(Code::E5M2Fnuz),
            DataType::Fp6E2M3 => Storage::Code(Code::E2M3),
            DataType::Fp6E3M2 => Storage::Code(Code::E3M2),
            DataType::Fp4E2M1 => Storage::Code(Code::E2M1),
            DataType::Fp8E8M0 => Storage::Code(Code::E8M0),
            _ => return None,
        })
    }

    /// Number of bits of an element.
    pub const fn bits(self) -> usize {
        match self {
            Storage::F64 | Storage::I64 => 64,
            Storage::F32 | Storage::I32 => 32,
            Storage::F16 | Storage::BF16 => 16,
            Storage::I8 | Storage::U8 | Storage::Boolean => 8,
            Storage::Code(code) => code.bits() as usize,
        }
    }

    /// True if neighboring elements share bytes: two threads must not write them at once.
    pub const fn shares_bytes(self) -> bool {
        self.bits() < 8
    }

    /// Reads `values.len()` elements from `base`, the first at `offset`, each `stride` after the one before it.
    ///
    /// # Safety
    /// Those elements are readable and `base` is aligned for this storage.
    pub unsafe fn load(self, isa: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [f32]) {
        // SAFETY: the caller answers for the elements, and each arm reads them as what they are.
        unsafe {
            match (self, stride) {
                (_, 0) => {
                    let mut one = [0f32];
                    self.load(isa, base, offset, 1, &mut one);
                    values.fill(one[0]);
                }
                (Storage::F32, 1) => copy(elements(base, offset, values.len()), values),
                (Storage::F16, 1) => convert::f16_to_f32(isa, elements(base, offset, values.len()), values),
                (Storage::BF16, 1) => convert::bf16_to_f32(isa, elements(base, offset, values.len()), values),
                (Storage::F32, _) => gather(base, offset, stride, values, |v: f32| v),
                (Storage::F16, _) => gather(base, offset, stride, values, f16::to_f32),
                (Storage::BF16, _) => gather(base, offset, stride, values, bf16::to_f32),
                (Storage::F64, _) => gather(base, offset, stride, values, |v: f64| v as f32),
                (Storage::I32, _) => gather(base, offset, stride, values, |v: i32| v as f32),
                (Storage::I64, _) => gather(base, offset, stride, values, |v: i64| v as f32),
                (Storage::I8, _) => gather(base, offset, stride, values, |v: i8| f32::from(v)),
                (Storage::U8, _) => gather(base, offset, stride, values, |v: u8| f32::from(v)),
                (Storage::Boolean, _) => gather(base, offset, stride, values, |v: u8| f32::from(u8::from(v != 0))),
                (Storage::Code(code), _) => decode(code, base, offset, stride, values, |v| v),
            }
        }
    }

    /// Writes the values to `base`, the first at `offset`, each `stride` after the one before it. Integers take the
    /// nearest value, ties to even, saturated; NaN becomes 0.
    ///
    /// # Safety
    /// Those elements are writable, `base` is aligned for this storage, and nobody else uses their bytes.
    pub unsafe fn store(self, isa: Isa, values: &[f32], base: *mut u8, offset: usize, stride: usize) {
        // SAFETY: the caller answers for the elements, and each arm writes them as what they are.
        unsafe {
            match (self, stride) {
                (Storage::F32, 1) => copy(values, elements_mut(base, offset, values.len())),
                (Storage::F16, 1) => convert::f32_to_f16(isa, values, elements_mut(base, offset, values.len())),
                (Storage::BF16, 1) => convert::f32_to_bf16(isa, values, elements_mut(base, offset, values.len())),
                (Storage::F32, _) => scatter(values, base, offset, stride, |v| v),
                (Storage::F16, _) => scatter(values, base, offset, stride, f16::from_f32),
                (Storage::BF16, _) => scatter(values, base, offset, stride, bf16::from_f32),
                (Storage::F64, _) => scatter(values, base, offset, stride, f64::from),
                (Storage::I32, _) => scatter(values, base, offset, stride, |v| v.round_ties_even() as i32),
                (Storage::I64, _) => scatter(values, base, offset, stride, |v| v.round_ties_even() as i64),
                (Storage::I8, _) => scatter(values, base, offset, stride, |v| v.round_ties_even() as i8),
                (Storage::U8, _) => scatter(values, base, offset, stride, |v| v.round_ties_even() as u8),
                (Storage::Boolean, _) => scatter(values, base, offset, stride, |v| u8::from(v != 0.0)),
                (Storage::Code(code), _) => encode(code, values, base, offset, stride, |v| v),
            }
        }
    }
}

impl Storage {
    /// Variant of [`Storage::load`] without loss for all but the largest 64-bit integers.
    ///
    /// # Safety
    /// As [`Storage::load`].
    pub unsafe fn load_wide(self, base: *const u8, offset: usize, stride: usize, values: &mut [f64]) {
        // SAFETY: the caller answers for the elements, and each arm reads them as what they are.
        unsafe {
            match (self, stride) {
                (_, 0) => {
                    let mut one = [0f64];
                    self.load_wide(base, offset, 1, &mut one);
                    values.fill(one[0]);
                }
                (Storage::F64, 1) => copy(elements(base, offset, values.len()), values),
                (Storage::F32, 1) => gather(base, offset, 1, values, |v: f32| f64::from(v)),
                (Storage::F32, _) => gather(base, offset, stride, values, |v: f32| f64::from(v)),
                (Storage::F16, _) => gather(base, offset, stride, values, f16::to_f64),
                (Storage::BF16, _) => gather(base, offset, stride, values, bf16::to_f64),
                (Storage::F64, _) => gather(base, offset, stride, values, |v: f64| v),
                (Storage::I32, _) => gather(base, offset, stride, values, |v: i32| f64::from(v)),
                (Storage::I64, _) => gather(base, offset, stride, values, |v: i64| v as f64),
                (Storage::I8, _) => gather(base, offset, stride, values, |v: i8| f64::from(v)),
                (Storage::U8, _) => gather(base, offset, stride, values, |v: u8| f64::from(v)),
                (Storage::Boolean, _) => gather(base, offset, stride, values, |v: u8| f64::from(u8::from(v != 0))),
                (Storage::Code(code), _) => decode(code, base, offset, stride, values, f64::from),
            }
        }
    }

    /// Variant of [`Storage::store`] for values that are rounded once.
    ///
    /// # Safety
    /// As [`Storage::store`].
    pub unsafe fn store_wide(self, values: &[f64], base: *mut u8, offset: usize, stride: usize) {
        // SAFETY: the caller answers for the elements, and each arm writes them as what they are.
        unsafe {
            match self {
                Storage::F64 => scatter(values, base, offset, stride, |v| v),
                Storage::F32 => scatter(values, base, offset, stride, |v| v as f32),
                Storage::F16 => scatter(values, base, offset, stride, f16_of),
                Storage::BF16 => scatter(values, base, offset, stride, bf16_of),
                Storage::I32 => scatter(values, base, offset, stride, |v| v.round_ties_even() as i32),
                Storage::I64 => scatter(values, base, offset, stride, |v| v.round_ties_even() as i64),
                Storage::I8 => scatter(values, base, offset, stride, |v| v.round_ties_even() as i8),
                Storage::U8 => scatter(values, base, offset, stride, |v| v.round_ties_even() as u8),
                Storage::Boolean => scatter(values, base, offset, stride, |v| u8::from(v != 0.0)),
                Storage::Code(code) => encode(code, values, base, offset, stride, odd),
            }
        }
    }
}

impl Storage {
    /// True if the elements are whole numbers.
    pub const fn is_whole(self) -> bool {
        matches!(self, Storage::I32 | Storage::I64 | Storage::I8 | Storage::U8 | Storage::Boolean)
    }

    /// True if every element is an `f32` value.
    pub const fn is_single(self) -> bool {
        !matches!(self, Storage::F64 | Storage::I32 | Storage::I64)
    }

    /// Variant of [`Storage::load`] for whole numbers.
    ///
    /// # Safety
    /// As [`Storage::load`].
    ///
    /// # Panics
    /// If the elements are not [`Storage::is_whole`].
    pub unsafe fn load_whole(self, base: *const u8, offset: usize, stride: usize, values: &mut [i64]) {
        // SAFETY: the caller answers for the elements, and each arm reads them as what they are.
        unsafe {
            match self {
                Storage::I32 => gather(base, offset, stride, values, |v: i32| i64::from(v)),
                Storage::I64 => gather(base, offset, stride, values, |v: i64| v),
                Storage::I8 => gather(base, offset, stride, values, |v: i8| i64::from(v)),
                Storage::U8 => gather(base, offset, stride, values, |v: u8| i64::from(v)),
                Storage::Boolean => gather(base, offset, stride, values, |v: u8| i64::from(v != 0)),
                _ => unreachable!("elements of {self:?} are no whole numbers"),
            }
        }
    }

    /// Variant of [`Storage::store`] for whole numbers, saturated.
    ///
    /// # Safety
    /// As [`Storage::store`].
    ///
    /// # Panics
    /// If the elements are not [`Storage::is_whole`].
    pub unsafe fn store_whole(self, values: &[i64], base: *mut u8, offset: usize, stride: usize) {
        let clamp = |v: i64, low: i64, high: i64| v.clamp(low, high);
        // SAFETY: the caller answers for the elements, and each arm writes them as what they are.
        unsafe {
            match self {
                Storage::I32 => {
                    scatter(values, base, offset, stride, |v| clamp(v, i32::MIN.into(), i32::MAX.into()) as i32);
                }
                Storage::I64 => scatter(values, base, offset, stride, |v: i64| v),
                Storage::I8 => scatter(values, base, offset, stride, |v| clamp(v, -128, 127) as i8),
                Storage::U8 => scatter(values, base, offset, stride, |v| clamp(v, 0, 255) as u8),
                Storage::Boolean => scatter(values, base, offset, stride, |v| u8::from(v != 0)),
                _ => unreachable!("elements of {self:?} are no whole numbers"),
            }
        }
    }
}

/// Placement of an operand's values along a row of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One for each result.
    Row,
    /// One for every so many results.
    Each(usize),
    /// So many, for every so many results again.
    Again(usize),
}

impl Placement {
    /// Operand of values that lie so.
    pub fn operand(self, values: *const f32) -> Operand {
        match self {
            Placement::Row => Operand::Row(values),
            Placement::Each(lanes) => Operand::Each(values, lanes),
            Placement::Again(lanes) => Operand::Again(values, lanes),
        }
    }
}

/// Compute type of pointwise functions.
pub trait Value: Copy + Default + 'static {
    /// Reads elements.
    ///
    /// # Safety
    /// As [`Storage::load`].
    unsafe fn load(storage: Storage, isa: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [Self]);

    /// Writes elements.
    ///
    /// # Safety
    /// As [`Storage::store`].
    unsafe fn store(storage: Storage, isa: Isa, values: &[Self], base: *mut u8, offset: usize, stride: usize);

    /// Applies a function: see [`Function::apply`].
    fn apply(function: &Function, isa: Isa, a: &mut [Self], b: &[Self], c: &[Self]);

    /// Applies a function with no more digits than `f32` has, in whose rows most functions are vectors.
    fn apply_single(function: &Function, isa: Isa, a: &mut [Self], b: &[Self], c: &[Self]) {
        Self::apply(function, isa, a, b, c);
    }

    /// Computes a row of `len` values, if the function does that: see [`Function::apply_row`].
    ///
    /// # Safety
    /// So many values can be read of each operand that the function takes as [`Placement`] says and written at `to`, which may be
    /// the row of an operand and overlaps them in no other way.
    unsafe fn apply_row(
        function: &Function,
        isa: Isa,
        to: *mut Self,
        operands: [(*const Self, Placement); 2],
        len: usize,
    ) -> bool {
        let _ = (function, isa, to, operands, len);
        false
    }

    /// Fills a row with as many parts of equal length as there are numbers, one of each.
    fn repeat(isa: Isa, numbers: &[f64], row: &mut [Self]) {
        isa.run(Repeat { numbers, row });
    }

    /// Spreads values of a row, as [`spread`] does.
    ///
    /// # Panics
    /// As [`spread`].
    fn spread(isa: Isa, row: &mut [Self], places: (usize, usize), times: usize) {
        let _ = isa;
        spread(row, places, times);
    }

    /// Value of an index.
    fn of(place: usize) -> Self;

    /// Nearest value to a number.
    fn from_wide(number: f64) -> Self;

    /// Rounds the values to those that a store and a load would give.
    fn round(storage: Storage, isa: Isa, values: &mut [Self]) {
        let mut memory = [0u64; 128];
        let base = memory.as_mut_ptr().cast::<u8>();
        for values in values.chunks_mut(8 * size_of_val(&memory) / storage.bits()) {
            // SAFETY: as many elements as the memory takes, aligned for any of them; what is read has just been written.
            unsafe {
                Self::store(storage, isa, values, base, 0, 1);
                Self::load(storage, isa, base, 0, 1, values);
            }
        }
    }
}

struct Repeat<'a, T> {
    numbers: &'a [f64],
    row: &'a mut [T],
}

impl<T: Value> Kernel for Repeat<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.row.len() / self.numbers.len();
        if len == 1 {
            // A loop of its own, which the compiler vectorizes.
            for (to, number) in self.row.iter_mut().zip(self.numbers) {
                *to = T::from_wide(*number);
            }
            return;
        }
        for (part, number) in self.row.chunks_exact_mut(len).zip(self.numbers) {
            let value = T::from_wide(*number);
            for to in part {
                *to = value;
            }
        }
    }
}

impl Value for f32 {
    unsafe fn load(storage: Storage, isa: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { storage.load(isa, base, offset, stride, values) };
    }

    unsafe fn store(storage: Storage, isa: Isa, values: &[f32], base: *mut u8, offset: usize, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { storage.store(isa, values, base, offset, stride) };
    }

    fn apply(function: &Function, isa: Isa, a: &mut [f32], b: &[f32], c: &[f32]) {
        function.apply(isa, a, b, c);
    }

    unsafe fn apply_row(
        function: &Function,
        isa: Isa,
        to: *mut f32,
        operands: [(*const f32, Placement); 2],
        len: usize,
    ) -> bool {
        if function.is_direct() {
            // SAFETY: the caller's promise.
            unsafe {
                let [a, b] = operands.map(|(at, placement)| placement.operand(at));
                function.apply_row(isa, to, [a, b], len);
            }
            return true;
        }
        false
    }

    fn spread(isa: Isa, row: &mut [f32], places: (usize, usize), times: usize) {
        spread_single(isa, row, places, times);
    }

    fn of(place: usize) -> f32 {
        place as f32
    }

    fn from_wide(number: f64) -> f32 {
        number as f32
    }
}

impl Value for f64 {
    unsafe fn load(storage: Storage, _: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [f64]) {
        // SAFETY: the caller's promise.
        unsafe { storage.load_wide(base, offset, stride, values) };
    }

    unsafe fn store(storage: Storage, _: Isa, values: &[f64], base: *mut u8, offset: usize, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { storage.store_wide(values, base, offset, stride) };
    }

    fn apply(function: &Function, isa: Isa, a: &mut [f64], b: &[f64], c: &[f64]) {
        function.apply_wide(isa, a, b, c);
    }

    fn apply_single(function: &Function, isa: Isa, a: &mut [f64], b: &[f64], c: &[f64]) {
        const LEN: usize = 64;
        let mut rows = [[0f32; LEN]; 3];
        for (piece, a) in a.chunks_mut(LEN).enumerate() {
            let operands = [&*a, rest(b, piece * LEN), rest(c, piece * LEN)];
            for (row, operand) in rows.iter_mut().zip(operands) {
                row.iter_mut().zip(operand).for_each(|(to, value)| *to = *value as f32);
            }
            let [first, second, third] = &mut rows;
            function.apply(isa, &mut first[..a.len()], &second[..a.len()], &third[..a.len()]);
            a.iter_mut().zip(&*first).for_each(|(to, value)| *to = f64::from(*value));
        }
    }

    fn of(place: usize) -> f64 {
        place as f64
    }

    fn from_wide(number: f64) -> f64 {
        number
    }
}

impl Value for i64 {
    unsafe fn load(storage: Storage, _: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [i64]) {
        // SAFETY: the caller's promise.
        unsafe { storage.load_whole(base, offset, stride, values) };
    }

    unsafe fn store(storage: Storage, _: Isa, values: &[i64], base: *mut u8, offset: usize, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { storage.store_whole(values, base, offset, stride) };
    }

    fn apply(function: &Function, isa: Isa, a: &mut [i64], b: &[i64], c: &[i64]) {
        function.apply_whole(isa, a, b, c);
    }

    fn of(place: usize) -> i64 {
        place as i64
    }

    fn from_wide(number: f64) -> i64 {
        number as i64
    }
}

/// Elements of a row from one on; none where the row has none.
fn rest(row: &[f64], from: usize) -> &[f64] {
    row.get(from..).unwrap_or_default()
}

/// Rounds to odd: on the way to a type that `f32` holds with bits to spare, so that only the last step rounds.
fn odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || value.is_nan() || near.is_infinite() || near == 0.0 {
        return near;
    }
    // Towards zero, then the last bit set: what is dropped later still knows on which side it lay.
    let towards = if f64::from(near).abs() > value.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
    f32::from_bits(towards.to_bits() | 1)
}

fn f16_of(value: f64) -> f16 {
    f16::from_f32(odd(value))
}

fn bf16_of(value: f64) -> bf16 {
    bf16::from_f32(odd(value))
}

/// # Safety
/// `len` values of type `T` lie from element `offset` on, aligned, initialized and not written meanwhile.
unsafe fn elements<'a, T>(base: *const u8, offset: usize, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(base.cast::<T>().add(offset), len) }
}

/// # Safety
/// `len` values of type `T` lie from element `offset` on, aligned, and nobody else uses them.
unsafe fn elements_mut<'a, T>(base: *mut u8, offset: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(base.cast::<T>().add(offset), len) }
}

/// # Safety
/// Each element that is read is a valid, aligned `T`.
unsafe fn gather<T: Copy, W>(base: *const u8, offset: usize, stride: usize, values: &mut [W], widen: impl Fn(T) -> W) {
    for (i, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller's promise for element i.
        *value = widen(unsafe { base.cast::<T>().add(offset + i * stride).read() });
    }
}

/// # Safety
/// Each element that is written is within a writable, aligned array of `T`.
unsafe fn scatter<T, W: Copy>(values: &[W], base: *mut u8, offset: usize, stride: usize, narrow: impl Fn(W) -> T) {
    for (i, value) in values.iter().enumerate() {
        // SAFETY: the caller's promise for element i.
        unsafe { base.cast::<T>().add(offset + i * stride).write(narrow(*value)) };
    }
}

/// # Safety
/// The bytes of each element can be read.
unsafe fn decode<W>(
    format: Code,
    base: *const u8,
    offset: usize,
    stride: usize,
    values: &mut [W],
    widen: impl Fn(f32) -> W,
) {
    for (i, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller's promise for element i.
        *value = widen(format.decode(unsafe { minifloat::read(base, offset + i * stride, format.bits()) }));
    }
}

/// # Safety
/// The bytes of each element can be read and written, and nobody else uses them.
unsafe fn encode<W: Copy>(
    format: Code,
    values: &[W],
    base: *mut u8,
    offset: usize,
    stride: usize,
    narrow: impl Fn(W) -> f32,
) {
    for (i, value) in values.iter().enumerate() {
        // SAFETY: the caller's promise for element i.
        unsafe { minifloat::write(base, offset + i * stride, format.bits(), format.encode(narrow(*value))) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_few_bits_have_their_formats() {
        for (data_type, code) in [
            (DataType::Fp8E4M3, Code::E4M3),
            (DataType::Fp8E5M2, Code::E5M2),
            (DataType::Fp8E4M3Fnuz, Code::E4M3Fnuz),
            (DataType::Fp8E5M2Fnuz, Code::E5M2Fnuz),
            (DataType::Fp6E2M3, Code::E2M3),
            (DataType::Fp6E3M2, Code::E3M2),
            (DataType::Fp4E2M1, Code::E2M1),
            (DataType::Fp8E8M0, Code::E8M0),
        ] {
            assert_eq!(Storage::of(data_type), Some(Storage::Code(code)), "{data_type}");
        }
    }

    #[test]
    fn values_survive_a_round_trip_and_integers_saturate() {
        let isa = Isa::best();
        let from = [0.0, 1.0, -1.0, 2.5, 3.5, 1e9, -1e9, f32::NAN];
        let nan = f32::NAN;
        for (storage, want) in [
            (Storage::F32, [0.0, 1.0, -1.0, 2.5, 3.5, 1e9, -1e9, nan]),
            (Storage::F64, [0.0, 1.0, -1.0, 2.5, 3.5, 1e9, -1e9, nan]),
            (Storage::F16, [0.0, 1.0, -1.0, 2.5, 3.5, f32::INFINITY, f32::NEG_INFINITY, nan]),
            // 1e9 has 30 bits; bf16 keeps 8: 0xee6b28 << 6 is rounded to 0xee << 22.
            (Storage::BF16, [0.0, 1.0, -1.0, 2.5, 3.5, 998_244_352.0, -998_244_352.0, nan]),
            (Storage::I32, [0.0, 1.0, -1.0, 2.0, 4.0, 1e9, -1e9, 0.0]),
            (Storage::I64, [0.0, 1.0, -1.0, 2.0, 4.0, 1e9, -1e9, 0.0]),
            (Storage::I8, [0.0, 1.0, -1.0, 2.0, 4.0, 127.0, -128.0, 0.0]),
            (Storage::U8, [0.0, 1.0, 0.0, 2.0, 4.0, 255.0, 0.0, 0.0]),
            (Storage::Boolean, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            (Storage::Code(Code::E4M3), [0.0, 1.0, -1.0, 2.5, 3.5, 448.0, -448.0, nan]),
            (Storage::Code(Code::E5M2), [0.0, 1.0, -1.0, 2.5, 3.5, 57344.0, -57344.0, nan]),
            (Storage::Code(Code::E4M3Fnuz), [0.0, 1.0, -1.0, 2.5, 3.5, 240.0, -240.0, nan]),
            (Storage::Code(Code::E3M2), [0.0, 1.0, -1.0, 2.5, 3.5, 28.0, -28.0, 0.0]),
            (Storage::Code(Code::E2M1), [0.0, 1.0, -1.0, 2.0, 4.0, 6.0, -6.0, 0.0]),
            (
                Storage::Code(Code::E8M0),
                [2f32.powi(-127), 1.0, 2f32.powi(-127), 2.0, 4.0, 2f32.powi(30), 2f32.powi(-127), nan],
            ),
        ] {
            for stride in [1, 3] {
                let mut memory = [0u64; 8 * 3 + 1];
                let base = memory.as_mut_ptr().cast::<u8>();
                let mut back = [0f32; 8];
                // SAFETY: element 1 + 7 * 3 of eight bytes is within the array.
                unsafe {
                    storage.store(isa, &from, base, 1, stride);
                    storage.load(isa, base, 1, stride, &mut back);
                }
                for (got, want) in back.iter().zip(want) {
                    assert!(*got == want || (got.is_nan() && want.is_nan()), "{storage:?}: {back:?}");
                }
                let (wide, mut back) = (from.map(f64::from), [0f64; 8]);
                // SAFETY: the last element is 1 + 7 * 3, of eight bytes at most, and the array has 25 words.
                unsafe {
                    storage.store_wide(&wide, base, 1, stride);
                    storage.load_wide(base, 1, stride, &mut back);
                }
                for (got, want) in back.iter().zip(want.map(f64::from)) {
                    assert!(*got == want || (got.is_nan() && want.is_nan()), "{storage:?}, wide: {back:?}");
                }
            }
        }
    }

    #[test]
    fn wide_values_are_rounded_once() {
        // Just above and below the middle of neighbors of f16 and bf16: rounding to f32 first would hit the middle.
        let tiny = 2f64.powi(-40);
        for (value, half, brain) in [
            (1.0 + 2f64.powi(-11) + tiny, 1.0 + 2f64.powi(-10), 1.0),
            (1.0 + 2f64.powi(-11) - tiny, 1.0, 1.0),
            (1.0 + 2f64.powi(-8) + tiny, 1.0 + 2f64.powi(-8), 1.0 + 2f64.powi(-7)),
            (-1.0 - 2f64.powi(-8) - tiny, -1.0 - 2f64.powi(-8), -1.0 - 2f64.powi(-7)),
            (1e300, f64::INFINITY, f64::INFINITY),
            (1e-300, 0.0, 0.0),
        ] {
            assert_eq!(f16_of(value).to_f64(), half, "f16 of {value:e}");
            assert_eq!(bf16_of(value).to_f64(), brain, "bf16 of {value:e}");
        }
        assert!(f16_of(f64::NAN).is_nan() && bf16_of(f64::NAN).is_nan());
        for (format, value, want) in [
            (Code::E4M3, 1.0 + 2f64.powi(-4) + tiny, 1.125),
            (Code::E4M3, 1.0 + 2f64.powi(-4), 1.0),
            (Code::E5M2, -1.0 - 2f64.powi(-3) - tiny, -1.25),
            (Code::E2M1, 2.5 + tiny, 3.0),
            (Code::E2M1, 1e300, 6.0),
        ] {
            let (mut memory, mut back) = ([0u64; 1], [0f64; 1]);
            let storage = Storage::Code(format);
            // SAFETY: one element of at most eight bits, in eight bytes.
            unsafe {
                storage.store_wide(&[value], memory.as_mut_ptr().cast(), 1, 1);
                storage.load_wide(memory.as_ptr().cast(), 1, 1, &mut back);
            }
            assert_eq!(back, [want], "{format:?} of {value:e}");
        }
    }
}
