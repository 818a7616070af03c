//! Element types in memory.

use hipdnn_schemas::DataType;

/// Element type of a tensor, as kernels read and write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Element {
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
}

impl Element {
    /// All element types.
    pub const ALL: &[Element] = &[
        Element::F32,
        Element::F16,
        Element::BF16,
        Element::F64,
        Element::I32,
        Element::I64,
        Element::I8,
        Element::U8,
        Element::Boolean,
    ];

    /// Element type for a graph's data type; `None` for types that no kernel reads.
    pub const fn of(data_type: DataType) -> Option<Element> {
        Some(match data_type {
            DataType::Float => Element::F32,
            DataType::Half => Element::F16,
            DataType::BFloat16 => Element::BF16,
            DataType::Double => Element::F64,
            DataType::Int32 => Element::I32,
            DataType::Int64 => Element::I64,
            DataType::Int8 => Element::I8,
            DataType::UInt8 => Element::U8,
            DataType::Boolean => Element::Boolean,
            _ => return None,
        })
    }

    /// Size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Element::F64 | Element::I64 => 8,
            Element::F32 | Element::I32 => 4,
            Element::F16 | Element::BF16 => 2,
            Element::I8 | Element::U8 | Element::Boolean => 1,
        }
    }

    /// True if all its values are exact in `f32`.
    pub(super) const fn fits_single(self) -> bool {
        !matches!(self, Element::F64 | Element::I32 | Element::I64)
    }

    /// True if all its values are exact in `i64`.
    pub(super) const fn is_whole(self) -> bool {
        matches!(self, Element::I32 | Element::I64 | Element::I8 | Element::U8 | Element::Boolean)
    }

    /// C type of an element in memory.
    pub(super) const fn c_type(self) -> &'static str {
        match self {
            Element::F32 => "float",
            Element::F16 => "_Float16",
            Element::BF16 => "unsigned short",
            Element::F64 => "double",
            Element::I32 => "int",
            Element::I64 => "long",
            Element::I8 => "signed char",
            Element::U8 | Element::Boolean => "unsigned char",
        }
    }

    /// Suffix of the names of its C conversion functions.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::F16 => "f16",
            Element::BF16 => "bf16",
            Element::F64 => "f64",
            Element::I32 => "i32",
            Element::I64 => "i64",
            Element::I8 => "i8",
            Element::U8 => "u8",
            Element::Boolean => "bool",
        }
    }

    /// C function that converts from it to `real`.
    pub(super) const fn widen(self) -> &'static str {
        match self {
            Element::F32 => "DEVICE real widen_f32(float v) { return real(v); }",
            Element::F16 => "DEVICE real widen_f16(_Float16 v) { return real(v); }",
            Element::BF16 => {
                "DEVICE real widen_bf16(unsigned short v) { return real(__builtin_bit_cast(float, unsigned(v) << 16)); }"
            }
            Element::F64 => "DEVICE real widen_f64(double v) { return real(v); }",
            Element::I32 => "DEVICE real widen_i32(int v) { return real(v); }",
            Element::I64 => "DEVICE real widen_i64(long v) { return real(v); }",
            Element::I8 => "DEVICE real widen_i8(signed char v) { return real(v); }",
            Element::U8 => "DEVICE real widen_u8(unsigned char v) { return real(v); }",
            Element::Boolean => "DEVICE real widen_bool(unsigned char v) { return v != 0 ? real(1) : real(0); }",
        }
    }

    /// C function that converts from `real` to it: nearest, ties to even; integers saturate and NaN is 0 there.
    pub(super) const fn narrow(self) -> &'static str {
        match self {
            Element::F32 => "DEVICE float narrow_f32(real v) { return float(v); }",
            Element::F16 => "DEVICE _Float16 narrow_f16(real v) { return _Float16(odd(v)); }",
            Element::BF16 => {
                "DEVICE unsigned short narrow_bf16(real v) {
  unsigned bits = __builtin_bit_cast(unsigned, odd(v));
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}"
            }
            Element::F64 => "DEVICE double narrow_f64(real v) { return double(v); }",
            Element::I32 => {
                "DEVICE int narrow_i32(real v) {
  v = MATH(rint)(v);
  return v >= real(2147483648.0) ? 2147483647 : v >= real(-2147483648.0) ? int(v) : v != v ? 0 : -2147483647 - 1;
}"
            }
            Element::I64 => {
                "DEVICE long narrow_i64(real v) {
  v = MATH(rint)(v);
  const long least = -9223372036854775807L - 1;
  return v >= real(9223372036854775808.0) ? 9223372036854775807L : v >= real(least) ? long(v) : v != v ? 0 : least;
}"
            }
            Element::I8 => {
                "DEVICE signed char narrow_i8(real v) {
  v = MATH(rint)(v);
  return v >= real(127) ? 127 : v >= real(-128) ? int(v) : v != v ? 0 : -128;
}"
            }
            Element::U8 => {
                "DEVICE unsigned char narrow_u8(real v) {
  v = MATH(rint)(v);
  return v >= real(255) ? 255 : v >= real(0) ? int(v) : 0;
}"
            }
            Element::Boolean => "DEVICE unsigned char narrow_bool(real v) { return v != real(0); }",
        }
    }

    /// [`Element::narrow`] where `real` is an integer type.
    pub(super) const fn narrow_whole(self) -> &'static str {
        match self {
            Element::I32 => {
                "DEVICE int narrow_i32(real v) { return v > 2147483647 ? 2147483647 : v < -2147483648L ? -2147483647 - 1 : int(v); }"
            }
            Element::I64 => "DEVICE long narrow_i64(real v) { return v; }",
            Element::I8 => "DEVICE signed char narrow_i8(real v) { return v > 127 ? 127 : v < -128 ? -128 : v; }",
            Element::U8 => "DEVICE unsigned char narrow_u8(real v) { return v > 255 ? 255 : v < 0 ? 0 : v; }",
            Element::Boolean => "DEVICE unsigned char narrow_bool(real v) { return v != 0; }",
            Element::F32 | Element::F16 | Element::BF16 | Element::F64 => panic!("no whole number"),
        }
    }

    /// True if `narrow` calls the C function `odd`.
    pub(super) const fn narrows_by_odd(self) -> bool {
        matches!(self, Element::F16 | Element::BF16)
    }

    /// True if `narrow` calls the math function `rint`.
    pub(super) const fn narrows_by_rint(self) -> bool {
        matches!(self, Element::I32 | Element::I64 | Element::I8 | Element::U8)
    }
}
