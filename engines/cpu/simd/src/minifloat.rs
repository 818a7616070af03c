//! Minifloats of 4, 6 and 8 bits: decoding, and encoding of the nearest number.
//!
//! The formats are those of the OCP specifications for 8-bit floating point and for microscaling formats, and AMD's two
//! FNUZ formats. As hipDNN's types do it (`hipdnn_data_sdk/types` in its data SDK): numbers too large become the largest
//! finite one, infinities too; NaN becomes 0 where a format has none.
//!
//! Elements of less than 8 bits lie one after the other without gaps, first ones in the low bits, as in hipDNN's packed types
//! (`fp4x2_e2m1`, `fp6x4_e2m3`): element `i` begins at bit `i · bits`.

/// Format of 4, 6 or 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the formats")]
pub enum Code {
    E4M3,
    E5M2,
    E4M3Fnuz,
    E5M2Fnuz,
    E2M3,
    E3M2,
    E2M1,
    /// Powers of two, for scales: no sign, no zero.
    E8M0,
}

/// Bit layout of a format.
#[derive(Clone, Copy)]
struct Format {
    bits: u32,
    /// Number of fraction bits.
    fraction: u32,
    /// Exponent bias.
    bias: i32,
    /// Code of the largest finite number.
    largest: u8,
    nan: Nan,
}

/// Encoding of NaN and infinity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nan {
    /// Neither exists.
    None,
    /// NaN is the code above the largest number; there is no infinity.
    Above,
    /// As in larger formats: infinity above the largest number, and NaN above that.
    Ieee,
    /// Code of negative zero.
    NegativeZero,
}

/// Table of the numbers of all codes, by format; codes of less than eight bits repeat.
static NUMBERS: [[f32; 256]; Code::ALL.len()] = {
    let mut numbers = [[0.0; 256]; Code::ALL.len()];
    let mut format = 0;
    while format < Code::ALL.len() {
        let mut code = 0;
        while code < 256 {
            numbers[format][code] = Code::ALL[format].number(code as u8);
            code += 1;
        }
        format += 1;
    }
    numbers
};

impl Code {
    /// All formats, in their order.
    const ALL: [Code; 8] =
        [Code::E4M3, Code::E5M2, Code::E4M3Fnuz, Code::E5M2Fnuz, Code::E2M3, Code::E3M2, Code::E2M1, Code::E8M0];

    #[inline]
    const fn format(self) -> Format {
        let (bits, fraction, bias, largest, nan) = match self {
            Code::E4M3 => (8, 3, 7, 0x7E, Nan::Above),
            Code::E5M2 => (8, 2, 15, 0x7B, Nan::Ieee),
            Code::E4M3Fnuz => (8, 3, 8, 0x7F, Nan::NegativeZero),
            Code::E5M2Fnuz => (8, 2, 16, 0x7F, Nan::NegativeZero),
            Code::E2M3 => (6, 3, 1, 0x1F, Nan::None),
            Code::E3M2 => (6, 2, 3, 0x1F, Nan::None),
            Code::E2M1 => (4, 1, 1, 0x07, Nan::None),
            Code::E8M0 => (8, 0, 127, 0xFE, Nan::Above),
        };
        Format { bits, fraction, bias, largest, nan }
    }

    /// Number of bits of an element.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.format().bits
    }

    /// Largest finite number.
    pub fn largest(self) -> f32 {
        self.decode(self.format().largest)
    }

    /// Number that a code stands for.
    #[inline]
    pub fn decode(self, code: u8) -> f32 {
        NUMBERS[self as usize][usize::from(code)]
    }

    const fn number(self, code: u8) -> f32 {
        if let Code::E8M0 = self {
            return match code {
                0xFF => f32::NAN,
                // Half of the smallest normal number of f32.
                0 => f32::from_bits(1 << 22),
                code => f32::from_bits((code as u32) << 23),
            };
        }
        let format = self.format();
        let sign_bit = 1u8 << (format.bits - 1);
        let magnitude = code & (sign_bit - 1);
        let negative = code & sign_bit != 0;
        if matches!(format.nan, Nan::NegativeZero) && negative && magnitude == 0 {
            return f32::NAN;
        }
        let value = if magnitude > format.largest {
            let infinite = matches!(format.nan, Nan::Ieee) && magnitude == format.largest + 1;
            if infinite { f32::INFINITY } else { f32::NAN }
        } else {
            let fraction = (magnitude & ((1 << format.fraction) - 1)) as i32;
            let (digits, exponent) = match (magnitude >> format.fraction) as i32 {
                0 => (fraction, 1),
                exponent => (fraction + (1 << format.fraction), exponent),
            };
            digits as f32 * power(exponent - format.bias - format.fraction as i32)
        };
        if negative { -value } else { value }
    }

    /// Code of the nearest number, of two at the same distance the one with an even code.
    #[inline]
    pub fn encode(self, value: f32) -> u8 {
        let Format { bits, fraction, bias, largest, nan } = self.format();
        if self == Code::E8M0 {
            return match value {
                value if value.is_nan() => 0xFF,
                // The middle of the two smallest, of which the first is even.
                value if value <= f32::from_bits(0x60_0000) => 0,
                value => (round_fraction(value) as u8).min(largest),
            };
        }
        let sign_bit = 1u8 << (bits - 1);
        let sign = if value.is_sign_negative() { sign_bit } else { 0 };
        if value.is_nan() {
            return match nan {
                Nan::None => 0,
                Nan::Above | Nan::Ieee => sign | 0x7F,
                Nan::NegativeZero => sign_bit,
            };
        }
        let magnitude = value.abs();
        // The exponent of the number, or of the smallest normal one, in whose steps smaller ones are.
        let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
        let fraction = fraction as i32;
        let code = if exponent > 126 {
            largest
        } else {
            // Steps of the number's last bit: the product is exact, at most 16, and the sum with 2²³ has whole numbers as its
            // last bits, so that this is the only rounding. A carry out of the fraction goes where it belongs, as the fields
            // lie beside each other.
            let steps = ((magnitude * power(fraction - exponent) + 8_388_608.0).to_bits() & 0x7F_FFFF) as i32;
            let code = ((exponent + bias - 1) << fraction) + steps;
            code.min(i32::from(largest)) as u8
        };
        if nan == Nan::NegativeZero && code == 0 { 0 } else { sign | code }
    }

    /// Code of the smallest number that is not below `value`, or of the largest number; for `value` not negative.
    #[inline]
    pub fn encode_up(self, value: f64) -> u8 {
        let (mut low, mut high) = (0, self.format().largest);
        // Codes of numbers that are not negative ascend with them.
        while low < high {
            let middle = low + (high - low) / 2;
            if f64::from(self.decode(middle)) < value { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Exponent field of a positive number rounded to a power of two, ties to even fields.
fn round_fraction(value: f32) -> u32 {
    let bits = value.to_bits();
    (bits + 0x3F_FFFF + (bits >> 23 & 1)) >> 23
}

/// Power of two 2ⁿ for n from -126 to 127.
const fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// Reads the code of the element at `offset`.
///
/// # Safety
/// The bytes of the element can be read.
#[inline]
pub unsafe fn read(base: *const u8, offset: usize, bits: u32) -> u8 {
    if bits == 8 {
        // SAFETY: the caller's promise.
        return unsafe { base.add(offset).read() };
    }
    let first = offset * bits as usize;
    let (byte, shift) = (first / 8, (first % 8) as u32);
    // SAFETY: the caller's promise; the second byte is read only if the element reaches into it.
    let both = unsafe {
        let low = u16::from(base.add(byte).read());
        if shift + bits > 8 { low | u16::from(base.add(byte + 1).read()) << 8 } else { low }
    };
    (both >> shift) as u8 & ((1 << bits) - 1)
}

/// Writes the code of the element at `offset`; other bits of its bytes stay.
///
/// # Safety
/// The bytes of the element can be read and written, and nobody else uses them.
#[inline]
pub unsafe fn write(base: *mut u8, offset: usize, bits: u32, code: u8) {
    if bits == 8 {
        // SAFETY: the caller's promise.
        unsafe { base.add(offset).write(code) };
        return;
    }
    let first = offset * bits as usize;
    let (byte, shift) = (first / 8, (first % 8) as u32);
    let (mask, value) = (((1u16 << bits) - 1) << shift, u16::from(code) << shift);
    // SAFETY: the caller's promise; the second byte is used only if the element reaches into it.
    unsafe {
        let low = base.add(byte);
        low.write(low.read() & !(mask as u8) | value as u8);
        if shift + bits > 8 {
            let high = base.add(byte + 1);
            high.write(high.read() & !((mask >> 8) as u8) | (value >> 8) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: [Code; 7] =
        [Code::E4M3, Code::E5M2, Code::E4M3Fnuz, Code::E5M2Fnuz, Code::E2M3, Code::E3M2, Code::E2M1];

    #[test]
    fn codes_stand_for_the_numbers_of_the_specifications() {
        let nan = f32::NAN;
        for (format, code, want) in [
            (Code::E4M3, 0x7E, 448.0),
            (Code::E4M3, 0x7F, nan),
            (Code::E4M3, 0xFF, nan),
            (Code::E4M3, 0x08, 0.015625),
            (Code::E4M3, 0x01, 0.001953125),
            (Code::E4M3, 0xB8, -1.0),
            (Code::E5M2, 0x7B, 57344.0),
            (Code::E5M2, 0x7C, f32::INFINITY),
            (Code::E5M2, 0xFC, f32::NEG_INFINITY),
            (Code::E5M2, 0x7D, nan),
            (Code::E5M2, 0x01, 2f32.powi(-16)),
            (Code::E4M3Fnuz, 0x7F, 240.0),
            (Code::E4M3Fnuz, 0x80, nan),
            (Code::E4M3Fnuz, 0x01, 2f32.powi(-10)),
            (Code::E5M2Fnuz, 0x7F, 57344.0),
            (Code::E5M2Fnuz, 0x80, nan),
            (Code::E5M2Fnuz, 0x01, 2f32.powi(-17)),
            (Code::E2M3, 0x1F, 7.5),
            (Code::E2M3, 0x01, 0.125),
            (Code::E2M3, 0x28, -1.0),
            (Code::E3M2, 0x1F, 28.0),
            (Code::E3M2, 0x01, 0.0625),
            (Code::E2M1, 0x07, 6.0),
            (Code::E2M1, 0x01, 0.5),
            (Code::E2M1, 0x0B, -1.5),
            (Code::E8M0, 0x00, 2f32.powi(-127)),
            (Code::E8M0, 0x7F, 1.0),
            (Code::E8M0, 0xFE, 2f32.powi(127)),
            (Code::E8M0, 0xFF, nan),
        ] {
            let got = format.decode(code);
            assert!(got == want || (got.is_nan() && want.is_nan()), "{format:?} {code:#x}: {got} for {want}");
        }
    }

    /// All finite numbers of a format with their codes.
    fn numbers(code: Code) -> Vec<(f64, u8)> {
        let codes = 0..=(((1u16 << code.bits()) - 1) as u8);
        codes.map(|c| (f64::from(code.decode(c)), c)).filter(|(value, _)| value.is_finite()).collect()
    }

    #[test]
    fn encoding_finds_the_nearest_number() {
        for code in SIGNED {
            let numbers = numbers(code);
            let mut values: Vec<f32> = Vec::new();
            for (value, own) in &numbers {
                assert_eq!(code.decode(code.encode(*value as f32)), *value as f32, "{code:?} {own:#x}");
                for (other, _) in &numbers {
                    let middle = ((value + other) / 2.0) as f32;
                    values.extend([middle, middle.next_up(), middle.next_down()]);
                }
            }
            values.extend([0.0, -0.0, 1e-45, 1e-38, -1e-20, 1e5, -3e38, f32::MAX]);
            for value in values {
                let got = code.encode(value);
                let distance = |number: f64| (number - f64::from(value)).abs();
                let least = numbers.iter().map(|(number, _)| distance(*number)).fold(f64::INFINITY, f64::min);
                let nearest: Vec<u8> = numbers.iter().filter(|(n, _)| distance(*n) == least).map(|(_, c)| *c).collect();
                assert!(nearest.contains(&got), "{code:?} of {value}: {got:#x} of {nearest:?}");
                if nearest.len() == 2 && f64::from(code.decode(nearest[0])) != f64::from(code.decode(nearest[1])) {
                    assert_eq!(got & 1, 0, "{code:?} of {value}, between two: {got:#x}");
                }
                let zero = code.decode(got) == 0.0 && code.format().nan == Nan::NegativeZero;
                assert!(zero || code.decode(got).is_sign_negative() == value.is_sign_negative(), "{code:?} {value}");
            }
            assert_eq!(code.decode(code.encode(f32::INFINITY)), code.largest(), "{code:?}");
            assert_eq!(code.decode(code.encode(f32::NEG_INFINITY)), -code.largest(), "{code:?}");
            let nan = code.decode(code.encode(f32::NAN));
            assert!(if code.format().nan == Nan::None { nan == 0.0 } else { nan.is_nan() }, "{code:?}: {nan}");
        }
    }

    #[test]
    fn scales_are_rounded_up() {
        for code in [Code::E8M0, Code::E4M3, Code::E5M2] {
            let numbers: Vec<(f64, u8)> =
                numbers(code).into_iter().filter(|(v, _)| *v >= 0.0 && !v.is_sign_negative()).collect();
            for (number, _) in &numbers {
                for value in [*number, number.next_up(), number * 1.3, number.next_down().max(0.0)] {
                    let above =
                        numbers.iter().filter(|(n, _)| *n >= value).map(|(n, _)| *n).fold(f64::INFINITY, f64::min);
                    let want = if above.is_finite() { above } else { f64::from(code.largest()) };
                    assert_eq!(f64::from(code.decode(code.encode_up(value))), want, "{code:?} of {value}");
                }
            }
            assert_eq!(code.encode_up(f64::INFINITY), code.format().largest);
        }
    }

    #[test]
    fn elements_lie_without_gaps() {
        for bits in [4, 6, 8] {
            let mut memory = [0xA5u8; 16];
            let codes: Vec<u8> = (0..15).map(|i| (i * 37 + 11) as u8 & ((1u16 << bits) - 1) as u8).collect();
            for i in (0..15).rev() {
                // SAFETY: fifteen elements are at most fifteen bytes.
                unsafe { write(memory.as_mut_ptr(), i, bits, codes[i]) };
            }
            let mut stream = 0u128;
            for (i, code) in codes.iter().enumerate() {
                stream |= u128::from(*code) << (i as u32 * bits);
                // SAFETY: the array has sixteen bytes, and fifteen elements are at most fifteen.
                assert_eq!(unsafe { read(memory.as_ptr(), i, bits) }, *code, "{bits} bits");
            }
            let all = (1u128 << (15 * bits)) - 1;
            let gaps = u128::from_le_bytes([0xA5; 16]);
            assert_eq!(u128::from_le_bytes(memory), stream | gaps & !all, "{bits} bits");
        }
    }
}
