//! f16 and bf16 to and from f32, rounded to nearest even; NaN stays NaN.

use super::isa::{Isa, Kernel, Simd};
use half::{bf16, f16};

/// Widens `from` into `to`, which has the same length.
pub fn f16_to_f32(isa: Isa, from: &[f16], to: &mut [f32]) {
    isa.run(FromF16(from, to));
}

/// Rounds `from` into `to`, which has the same length.
pub fn f32_to_f16(isa: Isa, from: &[f32], to: &mut [f16]) {
    isa.run(ToF16(from, to));
}

/// Widens `from` into `to`, which has the same length.
pub fn bf16_to_f32(isa: Isa, from: &[bf16], to: &mut [f32]) {
    isa.run(FromBf16(from, to));
}

/// Rounds `from` into `to`, which has the same length.
pub fn f32_to_bf16(isa: Isa, from: &[f32], to: &mut [bf16]) {
    isa.run(ToBf16(from, to));
}

struct FromF16<'a>(&'a [f16], &'a mut [f32]);
struct ToF16<'a>(&'a [f32], &'a mut [f16]);
struct FromBf16<'a>(&'a [bf16], &'a mut [f32]);
struct ToBf16<'a>(&'a [f32], &'a mut [bf16]);

/// Widens a bf16, which is the upper half of an f32.
#[inline(always)]
fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// Rounds to bf16: adds half a unit of the kept part, less one where it is even, and truncates; a NaN is truncated with
/// its quiet bit set.
#[inline(always)]
pub(crate) fn round_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x40;
    bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
}

impl Kernel for FromF16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        assert_eq!(self.0.len(), self.1.len());
        let mut i = 0;
        while i + S::LANES <= self.0.len() {
            // SAFETY: `i + LANES` values are in both slices; f16 has the bits of a u16.
            unsafe { simd.store(self.1.as_mut_ptr().add(i), simd.load_f16(self.0.as_ptr().add(i).cast())) };
            i += S::LANES;
        }
        for (to, from) in self.1[i..].iter_mut().zip(&self.0[i..]) {
            *to = from.to_f32();
        }
    }
}

impl Kernel for ToF16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        assert_eq!(self.0.len(), self.1.len());
        let mut i = 0;
        while i + S::LANES <= self.0.len() {
            // SAFETY: `i + LANES` values are in both slices; f16 has the bits of a u16.
            unsafe { simd.store_f16(self.1.as_mut_ptr().add(i).cast(), simd.load(self.0.as_ptr().add(i))) };
            i += S::LANES;
        }
        for (to, from) in self.1[i..].iter_mut().zip(&self.0[i..]) {
            *to = f16::from_f32(*from);
        }
    }
}

impl Kernel for FromBf16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        assert_eq!(self.0.len(), self.1.len());
        for (to, from) in self.1.iter_mut().zip(self.0) {
            *to = widen_bf16(*from);
        }
    }
}

impl Kernel for ToBf16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        assert_eq!(self.0.len(), self.1.len());
        for (to, from) in self.1.iter_mut().zip(self.0) {
            *to = round_bf16(*from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All f16 and bf16 values, and f32 values on, beside and between the places where rounding turns.
    fn singles() -> Vec<f32> {
        let halves = (0..=u16::MAX).flat_map(|bits| [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()]);
        let mut values: Vec<f32> = halves.filter(|v| !v.is_nan()).collect();
        for i in 0..values.len() {
            let bits = values[i].to_bits();
            values.extend(
                [0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|add| f32::from_bits(bits.wrapping_add(add))),
            );
        }
        values.extend([f32::INFINITY, f32::NEG_INFINITY, 65519.9, 65520.0, f32::MAX, f32::MIN_POSITIVE, 1e-45]);
        values
    }

    #[test]
    fn widening_is_exact() {
        let halves: Vec<u16> = (0..=u16::MAX).collect();
        for isa in Isa::of_vectors() {
            let mut out = vec![0f32; halves.len()];
            let from: Vec<f16> = halves.iter().map(|b| f16::from_bits(*b)).collect();
            f16_to_f32(isa, &from, &mut out);
            for (from, to) in from.iter().zip(&out) {
                assert!(from.to_f32().to_bits() == to.to_bits() || (from.is_nan() && to.is_nan()), "{isa} f16 {from}");
            }
            let from: Vec<bf16> = halves.iter().map(|b| bf16::from_bits(*b)).collect();
            bf16_to_f32(isa, &from, &mut out);
            for (from, to) in from.iter().zip(&out) {
                assert!(from.to_f32().to_bits() == to.to_bits() || (from.is_nan() && to.is_nan()), "{isa} bf16 {from}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_and_keeps_nan() {
        let mut from = singles();
        from.extend([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffbf_ffff)]);
        for isa in Isa::of_vectors() {
            let mut half = vec![f16::ZERO; from.len()];
            f32_to_f16(isa, &from, &mut half);
            let mut brain = vec![bf16::ZERO; from.len()];
            f32_to_bf16(isa, &from, &mut brain);
            for (i, value) in from.iter().enumerate() {
                if value.is_nan() {
                    assert!(half[i].is_nan() && brain[i].is_nan(), "{isa} {value:?}");
                } else {
                    assert_eq!(half[i].to_bits(), f16::from_f32(*value).to_bits(), "{isa} f16 of {value:?}");
                    assert_eq!(brain[i].to_bits(), bf16::from_f32(*value).to_bits(), "{isa} bf16 of {value:?}");
                }
            }
        }
    }

    #[test]
    fn every_length_is_served() {
        for isa in Isa::of_vectors() {
            for len in 0..40 {
                let from: Vec<f32> = (0..len).map(|i| i as f32 + 0.5).collect();
                let (mut half, mut back) = (vec![f16::ZERO; len], vec![0f32; len]);
                f32_to_f16(isa, &from, &mut half);
                f16_to_f32(isa, &half, &mut back);
                assert_eq!(from, back);
                let mut brain = vec![bf16::ZERO; len];
                f32_to_bf16(isa, &from, &mut brain);
                bf16_to_f32(isa, &brain, &mut back);
                assert_eq!(from, back);
            }
        }
    }
}
