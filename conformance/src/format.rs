//! Numeric formats of element types: range, rounding, and storage in memory.

use half::{bf16, f16};
use hipdnn_schemas::DataType;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float {
    /// Bits of the significand, the hidden one included.
    digits: i32,
    /// Exponent of the smallest normal number.
    lowest: i32,
    /// The largest finite number.
    largest: f64,
}

impl Float {
    /// The format of a floating-point type; `None` for the others.
    pub fn of(data_type: DataType) -> Option<Float> {
        let (digits, lowest, largest) = match data_type {
            DataType::Double => (53, -1022, f64::MAX),
            DataType::Float => (24, -126, f64::from(f32::MAX)),
            DataType::Half => (11, -14, 65504.0),
            DataType::BFloat16 => (8, -126, f64::from(bf16::MAX)),
            DataType::Fp8E4M3 => (4, -6, 448.0),
            DataType::Fp8E5M2 => (3, -14, 57344.0),
            DataType::Fp8E4M3Fnuz => (4, -7, 240.0),
            DataType::Fp8E5M2Fnuz => (3, -15, 57344.0),
            DataType::Fp4E2M1 => (2, 0, 6.0),
            DataType::Fp6E2M3 => (4, 0, 7.5),
            DataType::Fp6E3M2 => (3, -2, 28.0),
            DataType::Fp8E8M0 => (1, -127, 2f64.powi(127)),
            _ => return None,
        };
        Some(Float { digits, lowest, largest })
    }

    /// Unit roundoff: half of the distance from 1 to the next number.
    pub fn roundoff(self) -> f64 {
        2f64.powi(-self.digits)
    }

    /// The smallest normal number.
    pub fn smallest_normal(self) -> f64 {
        2f64.powi(self.lowest)
    }

    /// The largest finite number.
    pub fn largest(self) -> f64 {
        self.largest
    }

    /// The nearest number of the format, ties to even; infinite past the largest, whether the format has infinities or not.
    pub fn round(self, value: f64) -> f64 {
        if value == 0.0 || !value.is_finite() || self.digits == 53 {
            return value;
        }
        let step = self.step(value);
        let rounded = (value / step).round_ties_even() * step;
        if rounded.abs() > self.largest { f64::INFINITY.copysign(value) } else { rounded }
    }

    /// The smallest number of the format that is not below a positive value; the largest if there is none.
    pub fn round_up(self, value: f64) -> f64 {
        if value == 0.0 || !value.is_finite() || self.digits == 53 {
            return value;
        }
        let step = self.step(value);
        ((value / step).ceil() * step).min(self.largest)
    }

    /// The distance between the neighbors of a value in the format.
    pub fn step(self, value: f64) -> f64 {
        let exponent = (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(self.lowest);
        2f64.powi(exponent - self.digits + 1)
    }
}

/// The range of an integer type; `None` for the others.
pub fn integer_range(data_type: DataType) -> Option<(f64, f64)> {
    Some(match data_type {
        DataType::Int8 => (-128.0, 127.0),
        DataType::UInt8 => (0.0, 255.0),
        DataType::Int4 => (-8.0, 7.0),
        DataType::Int32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DataType::Int64 => (i64::MIN as f64, i64::MAX as f64),
        _ => return None,
    })
}

/// Sign, exponent and mantissa bits of a narrow format, its bias, and its special codes.
struct Narrow {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

enum Special {
    /// Every code is a finite number.
    None,
    /// Only all ones, but for the sign, is NaN.
    AllOnes,
    /// The highest exponent holds infinities and NaNs.
    Ieee,
    /// Negative zero's code is the only NaN.
    NegativeZero,
}

fn narrow(data_type: DataType) -> Option<Narrow> {
    let (exponent, mantissa, bias, special) = match data_type {
        DataType::Fp8E4M3 => (4, 3, 7, Special::AllOnes),
        DataType::Fp8E5M2 => (5, 2, 15, Special::Ieee),
        DataType::Fp8E4M3Fnuz => (4, 3, 8, Special::NegativeZero),
        DataType::Fp8E5M2Fnuz => (5, 2, 16, Special::NegativeZero),
        DataType::Fp4E2M1 => (2, 1, 1, Special::None),
        DataType::Fp6E2M3 => (2, 3, 1, Special::None),
        DataType::Fp6E3M2 => (3, 2, 3, Special::None),
        _ => return None,
    };
    Some(Narrow { exponent, mantissa, bias, special })
}

impl Narrow {
    fn decode(&self, code: u8) -> f64 {
        let code = u32::from(code);
        let (mantissa_mask, exponent_mask) = ((1 << self.mantissa) - 1, (1 << self.exponent) - 1);
        let mantissa = code & mantissa_mask;
        let exponent = (code >> self.mantissa) & exponent_mask;
        let negative = (code >> (self.mantissa + self.exponent)) & 1 == 1;
        match self.special {
            Special::AllOnes if exponent == exponent_mask && mantissa == mantissa_mask => return f64::NAN,
            Special::Ieee if exponent == exponent_mask => {
                let magnitude = if mantissa == 0 { f64::INFINITY } else { f64::NAN };
                return if negative { -magnitude } else { magnitude };
            }
            Special::NegativeZero if negative && exponent == 0 && mantissa == 0 => return f64::NAN,
            _ => {}
        }
        let unit = 2f64.powi(-(self.mantissa as i32));
        let magnitude = if exponent == 0 {
            f64::from(mantissa) * unit * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + f64::from(mantissa) * unit) * 2f64.powi(exponent as i32 - self.bias)
        };
        if negative { -magnitude } else { magnitude }
    }

    fn encode(&self, value: f64) -> u8 {
        let codes = 0..1u32 << (1 + self.exponent + self.mantissa);
        codes
            .map(|code| code as u8)
            .find(|code| {
                let other = self.decode(*code);
                other == value && (value != 0.0 || other.is_sign_negative() == value.is_sign_negative())
                    || other.is_nan() && value.is_nan()
            })
            .unwrap_or(0)
    }
}

/// The element at position `at` of a tensor's memory.
///
/// # Panics
/// If the memory ends before it, or the type is unset.
pub fn load(data_type: DataType, bytes: &[u8], at: usize) -> f64 {
    macro_rules! number {
        ($type:ty) => {{
            const WIDTH: usize = size_of::<$type>();
            <$type>::from_ne_bytes(bytes[at * WIDTH..][..WIDTH].try_into().expect("as many bytes as the type has"))
        }};
    }
    match data_type {
        DataType::Double => number!(f64),
        DataType::Float => number!(f32).into(),
        DataType::Half => number!(f16).into(),
        DataType::BFloat16 => number!(bf16).into(),
        DataType::Int64 => number!(i64) as f64,
        DataType::Int32 => number!(i32).into(),
        DataType::Int8 => number!(i8).into(),
        DataType::UInt8 | DataType::Boolean => number!(u8).into(),
        DataType::Int4 => f64::from(((load_bits(4, bytes, at) << 4) as i8) >> 4),
        DataType::Fp8E8M0 if bytes[at] == 0xff => f64::NAN,
        DataType::Fp8E8M0 => 2f64.powi(i32::from(bytes[at]) - 127),
        DataType::Unset => panic!("a tensor of a checked graph has a type"),
        other => {
            let format = narrow(other).expect("the other types are narrow floats");
            format.decode(load_bits(other.bits().expect("a set type") as usize, bytes, at))
        }
    }
}

/// Rounds a value to the type and puts it at position `at`. What an integer type can't hold becomes its nearest end.
///
/// # Panics
/// If the memory ends before it, or the type is unset.
pub fn store(data_type: DataType, bytes: &mut [u8], at: usize, value: f64) {
    macro_rules! number {
        ($type:ty, $value:expr) => {{
            const WIDTH: usize = size_of::<$type>();
            bytes[at * WIDTH..][..WIDTH].copy_from_slice(&<$type>::to_ne_bytes($value))
        }};
    }
    let whole = value.round_ties_even();
    match data_type {
        DataType::Double => number!(f64, value),
        DataType::Float => number!(f32, value as f32),
        DataType::Half => number!(f16, f16::from_f64(value)),
        DataType::BFloat16 => {
            number!(bf16, bf16::from_f64(Float::of(data_type).expect("a float").round(value)))
        }
        DataType::Int64 => number!(i64, whole as i64),
        DataType::Int32 => number!(i32, whole as i32),
        DataType::Int8 => number!(i8, whole as i8),
        DataType::UInt8 => number!(u8, whole as u8),
        DataType::Boolean => number!(u8, u8::from(value != 0.0)),
        DataType::Int4 => store_bits(4, bytes, at, (whole.clamp(-8.0, 7.0) as i8 as u8) & 0xf),
        DataType::Fp8E8M0 if value.is_nan() => bytes[at] = 0xff,
        DataType::Fp8E8M0 => bytes[at] = (value.abs().log2().round() + 127.0).clamp(0.0, 254.0) as u8,
        DataType::Unset => panic!("a tensor of a checked graph has a type"),
        other => {
            let format = narrow(other).expect("the other types are narrow floats");
            let range = Float::of(other).expect("a float");
            let rounded = range.round(value);
            let rounded = if rounded.is_infinite() { range.largest.copysign(value) } else { rounded };
            store_bits(other.bits().expect("a set type") as usize, bytes, at, format.encode(rounded));
        }
    }
}

/// Elements of less than a byte follow each other without gaps, the lowest bits first.
fn load_bits(width: usize, bytes: &[u8], at: usize) -> u8 {
    let first = at * width;
    let low = u16::from(bytes[first / 8]);
    let high = bytes.get(first / 8 + 1).map_or(0, |byte| u16::from(*byte));
    (((low | high << 8) >> (first % 8)) & ((1 << width) - 1)) as u8
}

fn store_bits(width: usize, bytes: &mut [u8], at: usize, code: u8) {
    for bit in 0..width {
        let place = at * width + bit;
        let mask = 1 << (place % 8);
        if code >> bit & 1 == 1 { bytes[place / 8] |= mask } else { bytes[place / 8] &= !mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_end_where_they_should() {
        for (data_type, largest, smallest) in [
            (DataType::Fp8E4M3, 448.0, 2f64.powi(-9)),
            (DataType::Fp8E5M2, 57344.0, 2f64.powi(-16)),
            (DataType::Fp8E4M3Fnuz, 240.0, 2f64.powi(-10)),
            (DataType::Fp8E5M2Fnuz, 57344.0, 2f64.powi(-17)),
            (DataType::Fp4E2M1, 6.0, 0.5),
            (DataType::Fp6E2M3, 7.5, 0.125),
            (DataType::Fp6E3M2, 28.0, 0.0625),
        ] {
            let bits = data_type.bits().expect("a set type");
            let format = narrow(data_type).expect("a narrow type");
            let numbers: Vec<f64> = (0..1u32 << bits).map(|code| format.decode(code as u8)).collect();
            let finite = || numbers.iter().copied().filter(|number| number.is_finite());
            assert_eq!(finite().fold(0.0, f64::max), largest, "{data_type}");
            assert_eq!(finite().filter(|n| *n > 0.0).fold(f64::MAX, f64::min), smallest, "{data_type}");
            let float = Float::of(data_type).expect("a float");
            for number in finite() {
                assert_eq!(float.round(number), number, "{data_type}");
            }
        }
    }

    #[test]
    fn values_come_back_rounded() {
        for (data_type, value, wanted) in [
            (DataType::Float, 0.1, f64::from(0.1f32)),
            (DataType::Half, 0.1, 0.099_975_585_937_5),
            (DataType::BFloat16, 0.1, 0.100_097_656_25),
            (DataType::Fp8E4M3, 0.3, 0.3125),
            (DataType::Fp4E2M1, -2.6, -3.0),
            (DataType::Fp6E3M2, 100.0, 28.0),
            (DataType::Fp8E8M0, 4.0, 4.0),
            (DataType::Int4, -3.0, -3.0),
            (DataType::Int8, 300.0, 127.0),
            (DataType::UInt8, 7.0, 7.0),
            (DataType::Int32, -7.0, -7.0),
            (DataType::Int64, 1e10, 1e10),
            (DataType::Boolean, 1.0, 1.0),
        ] {
            let mut bytes = vec![0xff; 64];
            for at in 0..5 {
                store(data_type, &mut bytes, at, value);
            }
            for at in 0..5 {
                assert_eq!(load(data_type, &bytes, at), wanted, "{data_type}");
            }
        }
    }

    #[test]
    fn rounding_agrees_with_the_machine() {
        for value in [1.0 + 2f64.powi(-24), 1.0 + 3.0 * 2f64.powi(-24), 1e-40, -3.5e38, 1e-46, 65519.9, 65520.0] {
            assert_eq!(Float::of(DataType::Float).expect("a float").round(value), f64::from(value as f32), "{value:e}");
            assert_eq!(
                Float::of(DataType::Half).expect("a float").round(value),
                f64::from(f16::from_f64(value)),
                "{value:e}"
            );
        }
        let scale = Float::of(DataType::Fp8E8M0).expect("a float");
        assert_eq!((scale.round_up(0.26), scale.round_up(0.25)), (0.5, 0.25));
    }
}
