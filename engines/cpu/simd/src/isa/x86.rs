//! AVX2 with FMA, and AVX-512.

use super::portable::{read_lanes, write_lanes};
use super::{Kernel, Lanewise, MAX_LANES, Pick, Simd, first};
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Proof that the CPU has AVX-512 F, BW, DQ and VL, and AVX2, FMA, F16C and BMI2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Avx512(());

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Avx2(());

impl Avx512 {
    /// Detects the set: the token, if this CPU and its system support it.
    pub fn detect() -> Option<Avx512> {
        (Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Avx512(()))
    }
}

impl Avx2 {
    /// Detects the set: the token, if this CPU and its system support it.
    pub fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"))
            .then_some(Avx2(()))
    }
}

/// Functions that a kernel is compiled in, never inlined: a kernel entered at several places is compiled once. Being the kernel's,
/// and not generic functions of this module, they are in the codegen units of the kernels' modules: a change of one kernel leaves
/// the others compiled, and units are compiled beside each other.
trait Entry: Kernel + Sized {
    /// # Safety
    /// The CPU has the instructions, as a token proves.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    unsafe fn enter_avx512(self, token: Avx512) -> Self::Output {
        if Self::ALIGNED {
            align_frame();
        }
        self.run(token)
    }

    /// # Safety
    /// The CPU has the instructions, as a token proves.
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn enter_avx2(self, token: Avx2) -> Self::Output {
        if Self::ALIGNED {
            align_frame();
        }
        self.run(token)
    }
}

impl<K: Kernel> Entry for K {}

/// Makes the frame of the function that this is inlined into begin on a cache line: the compiler aligns vectors that it puts there only
/// if it knew before it allocated registers that something has to be.
#[inline(always)]
fn align_frame() {
    let line = MaybeUninit::<Line>::uninit();
    // SAFETY: no instruction; the value's address is wanted, so that it has one.
    unsafe { asm!("/* {} */", in(reg) line.as_ptr(), options(readonly, nostack, preserves_flags)) };
}

/// A cache line.
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place matters")] [u8; 64]);

/// Register-only operations of a token.
macro_rules! operations {
    ($($name:ident($($arg:ident: $ty:ty),+) -> $out:ty = $body:expr;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $ty),+) -> $out {
                // SAFETY: the token exists only where the CPU has these instructions.
                unsafe { $body }
            }
        )+
    };
}

impl Lanewise for Avx512 {
    type V = __m512;
    type M = __mmask16;

    operations! {
        splat(value: f32) -> __m512 = _mm512_set1_ps(value);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        quotient(a: __m512, b: __m512) -> __m512 = {
            // A step of Newton's from 14 digits: a division keeps its unit busy for longer than all of it takes.
            let near = _mm512_rcp14_ps(b);
            let error = _mm512_fnmadd_ps(b, near, _mm512_set1_ps(1.0));
            _mm512_mul_ps(a, _mm512_fmadd_ps(near, error, near))
        };
        scale(a: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(a, n);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        exponent(a: __m512) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a)));
        lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        nan(a: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
        select(mask: __mmask16, yes: __m512, no: __m512) -> __m512 = _mm512_mask_blend_ps(mask, no, yes);
    }
}

impl Simd for Avx512 {
    type W = __m512d;
    const LANES: usize = 16;

    #[inline]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { kernel.enter_avx512(self) }
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> __mmask16 {
        bits as __mmask16
    }

    operations! {
        zip(a: __m512, b: __m512) -> (__m512, __m512) = {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
        };
        unzip(a: __m512, b: __m512) -> (__m512, __m512) = {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        };
        zip_three(parts: [__m512; 3]) -> [__m512; 3] = {
            // Lane `place` of the result is lane `place / 3` of part `place % 3`.
            let [a, b, c] = parts;
            [
                _mm512_permutex2var_ps(
                    _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5), b),
                    _mm512_setr_epi32(0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15),
                    c,
                ),
                _mm512_permutex2var_ps(
                    _mm512_permutex2var_ps(b, _mm512_setr_epi32(5, 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10), c),
                    _mm512_setr_epi32(0, 1, 22, 3, 4, 23, 6, 7, 24, 9, 10, 25, 12, 13, 26, 15),
                    a,
                ),
                _mm512_permutex2var_ps(
                    _mm512_permutex2var_ps(c, _mm512_setr_epi32(10, 27, 0, 11, 28, 0, 12, 29, 0, 13, 30, 0, 14, 31, 0, 15), a),
                    _mm512_setr_epi32(0, 1, 27, 3, 4, 28, 6, 7, 29, 9, 10, 30, 12, 13, 31, 15),
                    b,
                ),
            ]
        };
        unzip_three(whole: [__m512; 3]) -> [__m512; 3] = {
            // Lane `lane` of part `part` is at place `3·lane + part` of the three vectors.
            let [a, b, c] = whole;
            let two = [
                _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0),
                _mm512_setr_epi32(1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0),
                _mm512_setr_epi32(2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0),
            ];
            let three = [
                _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29),
                _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30),
                _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31),
            ];
            [
                _mm512_permutex2var_ps(_mm512_permutex2var_ps(a, two[0], b), three[0], c),
                _mm512_permutex2var_ps(_mm512_permutex2var_ps(a, two[1], b), three[1], c),
                _mm512_permutex2var_ps(_mm512_permutex2var_ps(a, two[2], b), three[2], c),
            ]
        };
        max_bits(a: __m512, b: __m512) -> __m512 =
            _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
        round_to_upper(a: __m512) -> __m512 = {
            let rounded = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
            _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-0x1_0000)))
        };
        pair_upper(even: __m512, odd: __m512) -> __m512 = {
            let lower = _mm512_srli_epi32::<16>(_mm512_castps_si512(even));
            // lower | odd & mask, as one instruction: written as shifts and masks it is compiled to a permutation of three.
            const OR_AND: i32 = 0b1111_1000;
            let upper = _mm512_set1_epi32(-0x1_0000);
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<OR_AND>(lower, _mm512_castps_si512(odd), upper))
        };
        splat_wide(value: f64) -> __m512d = _mm512_set1_pd(value);
        add_wide(a: __m512d, b: __m512d) -> __m512d = _mm512_add_pd(a, b);
        sub_wide(a: __m512d, b: __m512d) -> __m512d = _mm512_sub_pd(a, b);
        fma_wide(a: __m512d, b: __m512d, c: __m512d) -> __m512d = _mm512_fmadd_pd(a, b, c);
        widen(a: __m512) -> [__m512d; 2] =
            [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(a))];
    }

    #[inline(always)]
    unsafe fn load_wide(self, p: *const f64) -> __m512d {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm512_loadu_pd(p) }
    }

    #[inline(always)]
    unsafe fn store_wide(self, p: *mut f64, v: __m512d) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm512_storeu_pd(p, v) }
    }

    #[inline(always)]
    fn narrow(self, a: [__m512d; 2]) -> __m512 {
        // SAFETY: the token.
        unsafe {
            let [low, high] = a.map(|half| _mm256_castps_pd(_mm512_cvtpd_ps(half)));
            _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1))
        }
    }

    #[inline(always)]
    unsafe fn load_widened(self, p: *const f32) -> [__m512d; 2] {
        // SAFETY: the token, and the caller's duty: each half has half of the lanes.
        unsafe { [_mm512_cvtps_pd(_mm256_loadu_ps(p)), _mm512_cvtps_pd(_mm256_loadu_ps(p.add(Self::LANES / 2)))] }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_masked(self, mask: __mmask16, p: *const f32) -> __m512 {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe { _mm512_maskz_loadu_ps(mask, p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn store_masked(self, mask: __mmask16, p: *mut f32, v: __m512) {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe { _mm512_mask_storeu_ps(p, mask, v) }
    }

    #[inline(always)]
    fn transpose(self, square: [__m512; MAX_LANES]) -> [__m512; MAX_LANES] {
        let mut quarters = square;
        let mut turned = square;
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe {
            // Squares of four in each quarter first, which move no lane across quarters.
            for i in [0, 4, 8, 12] {
                let [a, b, c, d] = [square[i], square[i + 1], square[i + 2], square[i + 3]];
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                quarters[i] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                quarters[i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
                let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                quarters[i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                quarters[i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
            }
            // Then the square of quarters.
            const EVEN: i32 = 0b10_00_10_00;
            const ODD: i32 = 0b11_01_11_01;
            for i in 0..4 {
                let [a, b, c, d] = [quarters[i], quarters[i + 4], quarters[i + 8], quarters[i + 12]];
                let (ab, cd) = (_mm512_shuffle_f32x4::<EVEN>(a, b), _mm512_shuffle_f32x4::<EVEN>(c, d));
                turned[i] = _mm512_shuffle_f32x4::<EVEN>(ab, cd);
                turned[i + 8] = _mm512_shuffle_f32x4::<ODD>(ab, cd);
                let (ab, cd) = (_mm512_shuffle_f32x4::<ODD>(a, b), _mm512_shuffle_f32x4::<ODD>(c, d));
                turned[i + 4] = _mm512_shuffle_f32x4::<EVEN>(ab, cd);
                turned[i + 12] = _mm512_shuffle_f32x4::<ODD>(ab, cd);
            }
        }
        turned
    }

    #[inline(always)]
    unsafe fn store_compressed(self, keep: u32, p: *mut f32, v: __m512) {
        // SAFETY: the token, and the caller's duty. Compressing in the register and storing under a mask is several
        // times faster than the compressing store on some CPUs.
        unsafe {
            let packed = _mm512_maskz_compress_ps(keep as __mmask16, v);
            _mm512_mask_storeu_ps(p, first(keep.count_ones() as usize) as __mmask16, packed);
        }
    }

    #[inline(always)]
    unsafe fn pick(self, p: *const f32, pick: &Pick) -> __m512 {
        // SAFETY: the token, and the caller's duty: two vectors at the base, or every lane.
        unsafe {
            if pick.near {
                let p = p.offset(pick.base);
                let lanes = _mm512_load_si512(pick.lane.as_ptr().cast());
                _mm512_permutex2var_ps(_mm512_loadu_ps(p), lanes, _mm512_loadu_ps(p.add(MAX_LANES)))
            } else {
                _mm512_i32gather_ps::<4>(_mm512_load_si512(pick.offset.as_ptr().cast()), p)
            }
        }
    }

    #[inline(always)]
    unsafe fn load_even_unordered(self, mask: u32, p: *const f32) -> __m512 {
        // SAFETY: the token, and the caller's duty: the masks name every second place of lanes in `mask`, and
        // masked-out lanes are not accessed.
        unsafe {
            let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
            let low = _mm512_maskz_loadu_ps(_pdep_u32(mask & 0xff, 0x5555) as __mmask16, p);
            let high = _mm512_maskz_loadu_ps(_pdep_u32(mask >> 8 & 0xff, 0x5555) as __mmask16, p.wrapping_add(16));
            _mm512_permutex2var_ps(low, even, high)
        }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m512) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v)) }
    }

    #[inline(always)]
    unsafe fn load_f16_masked(self, mask: u32, p: *const u16) -> __m512 {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask as __mmask16, p.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16_masked(self, mask: u32, p: *mut u16, v: __m512) {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe {
            let bits = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v);
            _mm256_mask_storeu_epi16(p.cast(), mask as __mmask16, bits);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16_masked(self, mask: u32, p: *const u16) -> __m512 {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe {
            let bits = _mm256_maskz_loadu_epi16(mask as __mmask16, p.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16_masked(self, mask: u32, p: *mut u16, v: __m512) {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe {
            // As in `convert::round_bf16`.
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let rounded = _mm512_mask_or_epi32(rounded, self.nan(v), bits, _mm512_set1_epi32(0x40_0000));
            let upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded));
            _mm256_mask_storeu_epi16(p.cast(), mask as __mmask16, upper);
        }
    }

    #[inline(always)]
    unsafe fn store_upper(self, lanes: usize, p: *mut u16, v: __m512) {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe {
            let upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_castps_si512(v)));
            if lanes == MAX_LANES {
                _mm256_storeu_si256(p.cast(), upper);
            } else {
                _mm256_mask_storeu_epi16(p.cast(), first(lanes) as __mmask16, upper);
            }
        }
    }

    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn prefetch_far(self, p: *const f32) {
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }

    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast()) }
    }
}

impl Avx2 {
    /// Bit mask as the sign bits that the AVX2 instructions look at.
    #[inline(always)]
    fn lanes(self, bits: u32) -> __m256i {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe {
            let bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits as i32), bit), bit)
        }
    }
}

impl Lanewise for Avx2 {
    type V = __m256;
    type M = __m256i;

    operations! {
        splat(value: f32) -> __m256 = _mm256_set1_ps(value);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        exponent(a: __m256) -> __m256 = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a)));
        lt(a: __m256, b: __m256) -> __m256i = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
        nan(a: __m256) -> __m256i = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        select(mask: __m256i, yes: __m256, no: __m256) -> __m256 =
            _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask));
    }
}

impl Simd for Avx2 {
    type W = __m256d;
    const LANES: usize = 8;

    #[inline]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { kernel.enter_avx2(self) }
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> __m256i {
        self.lanes(bits)
    }

    operations! {
        zip(a: __m256, b: __m256) -> (__m256, __m256) = {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        };
        unzip(a: __m256, b: __m256) -> (__m256, __m256) = {
            let (low, high) = (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
            (_mm256_shuffle_ps::<0x88>(low, high), _mm256_shuffle_ps::<0xdd>(low, high))
        };
        max_bits(a: __m256, b: __m256) -> __m256 =
            _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
        round_to_upper(a: __m256) -> __m256 = {
            let rounded = _mm256_add_epi32(_mm256_castps_si256(a), _mm256_set1_epi32(0x8000));
            _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-0x1_0000)))
        };
        pair_upper(even: __m256, odd: __m256) -> __m256 = {
            let lower = _mm256_srli_epi32::<16>(_mm256_castps_si256(even));
            _mm256_castsi256_ps(_mm256_blend_epi16::<0b1010_1010>(lower, _mm256_castps_si256(odd)))
        };
        splat_wide(value: f64) -> __m256d = _mm256_set1_pd(value);
        add_wide(a: __m256d, b: __m256d) -> __m256d = _mm256_add_pd(a, b);
        sub_wide(a: __m256d, b: __m256d) -> __m256d = _mm256_sub_pd(a, b);
        fma_wide(a: __m256d, b: __m256d, c: __m256d) -> __m256d = _mm256_fmadd_pd(a, b, c);
        widen(a: __m256) -> [__m256d; 2] =
            [_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a))];
    }

    #[inline(always)]
    unsafe fn load_wide(self, p: *const f64) -> __m256d {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_loadu_pd(p) }
    }

    #[inline(always)]
    unsafe fn store_wide(self, p: *mut f64, v: __m256d) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_storeu_pd(p, v) }
    }

    #[inline(always)]
    fn narrow(self, a: [__m256d; 2]) -> __m256 {
        // SAFETY: the token.
        unsafe { _mm256_set_m128(_mm256_cvtpd_ps(a[1]), _mm256_cvtpd_ps(a[0])) }
    }

    #[inline(always)]
    unsafe fn load_widened(self, p: *const f32) -> [__m256d; 2] {
        // SAFETY: the token, and the caller's duty: each half has half of the lanes.
        unsafe { [_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p.add(Self::LANES / 2)))] }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_masked(self, mask: __m256i, p: *const f32) -> __m256 {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe { _mm256_maskload_ps(p, mask) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn store_masked(self, mask: __m256i, p: *mut f32, v: __m256) {
        // SAFETY: the token, and the caller's duty; masked-out lanes are not accessed.
        unsafe { _mm256_maskstore_ps(p, mask, v) }
    }

    #[inline(always)]
    unsafe fn store_first(self, lanes: usize, p: *mut f32, v: __m256) {
        // A store under a mask is some forty micro-operations on AMD's CPUs.
        // SAFETY: the token, and the caller's duty: halves, pairs and single lanes end with the `lanes`.
        unsafe {
            if lanes >= 8 {
                return _mm256_storeu_ps(p, v);
            }
            let (mut p, mut rest) = (p, _mm256_castps256_ps128(v));
            if lanes & 4 != 0 {
                _mm_storeu_ps(p, rest);
                (p, rest) = (p.wrapping_add(4), _mm256_extractf128_ps::<1>(v));
            }
            if lanes & 2 != 0 {
                _mm_storel_pd(p.cast(), _mm_castps_pd(rest));
                (p, rest) = (p.wrapping_add(2), _mm_movehl_ps(rest, rest));
            }
            if lanes & 1 != 0 {
                _mm_store_ss(p, rest);
            }
        }
    }

    #[inline(always)]
    fn transpose(self, square: [__m256; MAX_LANES]) -> [__m256; MAX_LANES] {
        let mut turned = square;
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe {
            // Squares of four in each half first, which move no lane across halves.
            for i in [0, 4] {
                let [a, b, c, d] = [square[i], square[i + 1], square[i + 2], square[i + 3]];
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                turned[i] = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
                turned[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
                let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                turned[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
                turned[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
            }
            for i in 0..4 {
                let (upper, lower) = (turned[i], turned[i + 4]);
                turned[i] = _mm256_permute2f128_ps::<0x20>(upper, lower);
                turned[i + 4] = _mm256_permute2f128_ps::<0x31>(upper, lower);
            }
        }
        turned
    }

    #[inline(always)]
    unsafe fn store_compressed(self, keep: u32, p: *mut f32, v: __m256) {
        // SAFETY: the token; the table has a row of eight bytes for each mask of eight lanes; one place for each kept
        // lane, which the caller vouches for.
        unsafe {
            let (lanes, count) = &COMPRESSED[keep as usize & 0xff];
            let lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes.as_ptr().cast()));
            self.store_first(usize::from(*count), p, _mm256_permutevar8x32_ps(v, lanes));
        }
    }

    #[inline(always)]
    unsafe fn pick(self, p: *const f32, pick: &Pick) -> __m256 {
        // A gather takes thirteen cycles on Zen 3.
        // SAFETY: the token, and the caller's duty: every lane can be read; a run's vector begins at the first picked
        // place or behind it, and ends before eight values past the last.
        unsafe {
            if pick.runs == 0 {
                return _mm256_i32gather_ps::<4>(p, _mm256_load_si256(pick.offset.as_ptr().cast()));
            }
            let mut value = _mm256_loadu_ps(p.offset(pick.loads[0]));
            let mut run = 1;
            while run < pick.runs {
                let mask = _mm256_loadu_ps(pick.masks[run - 1].as_ptr().cast());
                value = _mm256_blendv_ps(value, _mm256_loadu_ps(p.offset(pick.loads[run])), mask);
                run += 1;
            }
            value
        }
    }

    // A gather takes thirteen cycles on Zen 3, two loads and a shuffle take one.
    #[inline(always)]
    unsafe fn load_even_unordered(self, mask: u32, p: *const f32) -> __m256 {
        // SAFETY: the token, and the caller's duty: all eight even places and what lies between, in two loads of which
        // the second begins at place 7; or the masks name the even places of lanes in `mask` only.
        unsafe {
            if mask == first(8) {
                return _mm256_shuffle_ps::<0b11_01_10_00>(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(7)));
            }
            let bits = _mm256_set1_epi32(mask as i32);
            let low = _mm256_setr_epi32(1, -1, 2, -1, 4, -1, 8, -1);
            let high = _mm256_setr_epi32(16, -1, 32, -1, 64, -1, 128, -1);
            // No mask has all bits: the odd places stay out.
            let low = _mm256_cmpeq_epi32(_mm256_and_si256(bits, low), low);
            let high = _mm256_cmpeq_epi32(_mm256_and_si256(bits, high), high);
            let high = _mm256_maskload_ps(p.wrapping_add(8), high);
            _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_maskload_ps(p, low), high)
        }
    }

    #[inline(always)]
    fn unzip_unordered(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { (_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b)) }
    }

    #[inline(always)]
    fn ordered(self, v: __m256) -> __m256 {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(v))) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m256 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m256) {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v)) }
    }

    #[inline(always)]
    unsafe fn load_f16_masked(self, mask: u32, p: *const u16) -> __m256 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_cvtph_ps(load_halves(mask, p)) }
    }

    #[inline(always)]
    unsafe fn store_f16_masked(self, mask: u32, p: *mut u16, v: __m256) {
        // SAFETY: the token, and the caller's duty.
        unsafe { store_halves(mask, p, _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16_masked(self, mask: u32, p: *const u16) -> __m256 {
        // SAFETY: the token, and the caller's duty.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_halves(mask, p)))) }
    }

    #[inline(always)]
    unsafe fn store_bf16_masked(self, mask: u32, p: *mut u16, v: __m256) {
        // SAFETY: the token, and the caller's duty.
        unsafe {
            // As in `convert::round_bf16`.
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, self.nan(v)));
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(upper, upper));
            store_halves(mask, p, _mm256_castsi256_si128(packed));
        }
    }

    #[inline(always)]
    unsafe fn store_upper(self, lanes: usize, p: *mut u16, v: __m256) {
        // SAFETY: the token, and the caller's duty.
        unsafe {
            let upper = _mm256_srli_epi32::<16>(_mm256_castps_si256(v));
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(upper, upper));
            store_halves(first(lanes), p, _mm256_castsi256_si128(packed));
        }
    }

    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn prefetch_far(self, p: *const f32) {
        // SAFETY: a prefetch accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }

    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        self.prefetch(p);
    }
}

/// Lanes that each mask of eight keeps, side by side, and their number.
static COMPRESSED: [([u8; 8], u8); 256] = {
    let mut table = [([0; 8], 0); 256];
    let mut keep = 0;
    while keep < 256 {
        let mut lane = 0;
        while lane < 8 {
            if keep >> lane & 1 == 1 {
                let (lanes, count) = &mut table[keep];
                lanes[*count as usize] = lane;
                *count += 1;
            }
            lane += 1;
        }
        keep += 1;
    }
    table
};

/// Loads the lanes of `mask`; zero elsewhere.
///
/// # Safety
/// Those lanes can be read at `p`.
#[inline(always)]
unsafe fn load_halves(mask: u32, p: *const u16) -> __m128i {
    // SAFETY: the caller's duty; an array of eight lanes is a vector, which SSE2 loads, and every x86-64 CPU has that.
    unsafe {
        if mask == first(8) {
            return _mm_loadu_si128(p.cast());
        }
        let lanes: [u16; 8] = read_lanes(mask, p);
        _mm_loadu_si128(lanes.as_ptr().cast())
    }
}

/// Stores the lanes of `mask`.
///
/// # Safety
/// Those lanes can be written at `p`.
#[inline(always)]
unsafe fn store_halves(mask: u32, p: *mut u16, v: __m128i) {
    // SAFETY: the caller's duty; a vector is an array of eight lanes, and every x86-64 CPU has SSE2.
    unsafe {
        if mask == first(8) {
            return _mm_storeu_si128(p.cast(), v);
        }
        let mut lanes = [0u16; 8];
        _mm_storeu_si128(lanes.as_mut_ptr().cast(), v);
        write_lanes(mask, p, lanes);
    }
}
