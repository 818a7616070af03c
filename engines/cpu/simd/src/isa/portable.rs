//! The portable set: plain Rust on arrays, and the reference for the others.

use super::{Kernel, Lanewise, Pick, Simd};
use crate::convert::round_bf16;

const LANES: usize = 8;

/// Token of eight lanes in plain Rust, which the compiler turns into what every CPU of the target has.
#[derive(Clone, Copy)]
pub struct Portable;

/// The function that a kernel is compiled in, never inlined: a kernel entered at several places is compiled once. Being the
/// kernel's, it is in the codegen unit of the kernel's module.
trait Entry: Kernel + Sized {
    #[inline(never)]
    fn enter(self, token: Portable) -> Self::Output {
        self.run(token)
    }
}

impl<K: Kernel> Entry for K {}

macro_rules! wide_lanewise {
    ($($name:ident($($arg:ident),+) = $body:expr;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: Self::W),+) -> Self::W {
                std::array::from_fn(|i| {
                    $(let $arg = $arg[i];)+
                    $body
                })
            }
        )+
    };
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident),+) = $body:expr;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: Self::V),+) -> Self::V {
                std::array::from_fn(|i| {
                    $(let $arg = $arg[i];)+
                    $body
                })
            }
        )+
    };
}

impl Lanewise for Portable {
    type V = [f32; LANES];
    type M = u32;

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    lanewise! {
        add(a, b) = a + b;
        sub(a, b) = a - b;
        mul(a, b) = a * b;
        div(a, b) = a / b;
        // Two roundings: without the instruction a fused one costs a library call a lane.
        fma(a, b, c) = a * b + c;
        min(a, b) = if a < b { a } else { b };
        max(a, b) = if a > b { a } else { b };
        abs(a) = a.abs();
        exponent(a) = f32::from_bits(a.to_bits() << 23);
    }

    #[inline(always)]
    fn lt(self, a: [f32; LANES], b: [f32; LANES]) -> u32 {
        (0..LANES).fold(0, |m, i| m | u32::from(a[i] < b[i]) << i)
    }

    #[inline(always)]
    fn nan(self, a: [f32; LANES]) -> u32 {
        (0..LANES).fold(0, |m, i| m | u32::from(a[i].is_nan()) << i)
    }

    #[inline(always)]
    fn select(self, mask: u32, yes: [f32; LANES], no: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| if mask >> i & 1 == 1 { yes[i] } else { no[i] })
    }
}

impl Simd for Portable {
    type W = [f64; LANES / 2];
    const LANES: usize = LANES;

    #[inline]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.enter(self)
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> u32 {
        bits
    }

    lanewise! {
        max_bits(a, b) = f32::from_bits(a.to_bits().max(b.to_bits()));
        round_to_upper(a) = f32::from_bits(a.to_bits().wrapping_add(0x8000) & 0xffff_0000);
        pair_upper(even, odd) = f32::from_bits(even.to_bits() >> 16 | odd.to_bits() & 0xffff_0000);
    }

    wide_lanewise! {
        add_wide(a, b) = a + b;
        sub_wide(a, b) = a - b;
        // As for `fma`.
        fma_wide(a, b, c) = a * b + c;
    }

    #[inline(always)]
    fn splat_wide(self, value: f64) -> Self::W {
        [value; LANES / 2]
    }

    #[inline(always)]
    fn widen(self, a: [f32; LANES]) -> [Self::W; 2] {
        let half = |first: usize| std::array::from_fn(|i| f64::from(a[first + i]));
        [half(0), half(LANES / 2)]
    }

    #[inline(always)]
    fn narrow(self, a: [Self::W; 2]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i / (LANES / 2)][i % (LANES / 2)] as f32)
    }

    #[inline(always)]
    unsafe fn load_wide(self, p: *const f64) -> Self::W {
        // SAFETY: the caller's duty.
        unsafe { p.cast::<Self::W>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_wide(self, p: *mut f64, v: Self::W) {
        // SAFETY: the caller's duty.
        unsafe { p.cast::<Self::W>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_widened(self, p: *const f32) -> [Self::W; 2] {
        // SAFETY: the caller's duty.
        self.widen(unsafe { self.load(p) })
    }

    #[inline(always)]
    fn zip(self, a: [f32; LANES], b: [f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
        let at = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
        (std::array::from_fn(at), std::array::from_fn(|i| at(i + LANES)))
    }

    #[inline(always)]
    fn unzip(self, a: [f32; LANES], b: [f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
        let at = |i: usize| if i < LANES { a[i] } else { b[i - LANES] };
        (std::array::from_fn(|i| at(2 * i)), std::array::from_fn(|i| at(2 * i + 1)))
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> [f32; LANES] {
        // SAFETY: the caller's duty; an array of `f32` has no alignment beyond theirs.
        unsafe { p.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_masked(self, mask: u32, p: *const f32) -> [f32; LANES] {
        // SAFETY: only masked lanes are read, which the caller vouches for.
        std::array::from_fn(|i| if mask >> i & 1 == 1 { unsafe { p.wrapping_add(i).read() } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: [f32; LANES]) {
        // SAFETY: the caller's duty.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn store_masked(self, mask: u32, p: *mut f32, v: [f32; LANES]) {
        for (i, value) in v.into_iter().enumerate() {
            if mask >> i & 1 == 1 {
                // SAFETY: only masked lanes are written, which the caller vouches for.
                unsafe { p.wrapping_add(i).write(value) };
            }
        }
    }

    #[inline(always)]
    unsafe fn store_compressed(self, keep: u32, p: *mut f32, v: [f32; LANES]) {
        let mut p = p;
        for (i, value) in v.into_iter().enumerate() {
            if keep >> i & 1 == 1 {
                // SAFETY: one place for each kept lane, which the caller vouches for.
                unsafe { p.write(value) };
                p = p.wrapping_add(1);
            }
        }
    }

    #[inline(always)]
    unsafe fn pick(self, p: *const f32, pick: &Pick) -> [f32; LANES] {
        // SAFETY: the caller vouches for every picked place.
        std::array::from_fn(|i| unsafe { p.offset(pick.offset[i] as isize).read() })
    }

    #[inline(always)]
    unsafe fn load_even_unordered(self, mask: u32, p: *const f32) -> [f32; LANES] {
        // SAFETY: only masked lanes are read, which the caller vouches for.
        std::array::from_fn(|i| if mask >> i & 1 == 1 { unsafe { p.wrapping_add(2 * i).read() } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> [f32; LANES] {
        // SAFETY: the caller's duty.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| half::f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: [f32; LANES]) {
        let bits = v.map(|value| half::f16::from_f32(value).to_bits());
        // SAFETY: the caller's duty.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    #[inline(always)]
    unsafe fn load_f16_masked(self, mask: u32, p: *const u16) -> [f32; LANES] {
        // SAFETY: the caller's duty.
        unsafe { read_lanes(mask, p) }.map(|bits| half::f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn store_f16_masked(self, mask: u32, p: *mut u16, v: [f32; LANES]) {
        // SAFETY: the caller's duty.
        unsafe { write_lanes(mask, p, v.map(|value| half::f16::from_f32(value).to_bits())) };
    }

    #[inline(always)]
    unsafe fn load_bf16_masked(self, mask: u32, p: *const u16) -> [f32; LANES] {
        // SAFETY: the caller's duty.
        unsafe { read_lanes(mask, p) }.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    unsafe fn store_bf16_masked(self, mask: u32, p: *mut u16, v: [f32; LANES]) {
        // SAFETY: the caller's duty.
        unsafe { write_lanes(mask, p, v.map(|value| round_bf16(value).to_bits())) };
    }

    #[inline(always)]
    unsafe fn store_upper(self, lanes: usize, p: *mut u16, v: [f32; LANES]) {
        for (lane, value) in v.iter().enumerate().take(lanes) {
            // SAFETY: the caller's duty.
            unsafe { *p.add(lane) = (value.to_bits() >> 16) as u16 };
        }
    }

    #[inline(always)]
    fn prefetch(self, _p: *const f32) {}

    #[inline(always)]
    fn prefetch_far(self, _p: *const f32) {}

    #[inline(always)]
    fn prefetch_write(self, _p: *const f32) {}
}

/// Reads the lanes of `mask`; zero elsewhere.
///
/// # Safety
/// Those lanes can be read at `p`.
#[inline(always)]
pub(super) unsafe fn read_lanes<const N: usize>(mask: u32, p: *const u16) -> [u16; N] {
    let mut lanes = [0; N];
    for (lane, value) in lanes.iter_mut().enumerate() {
        if mask >> lane & 1 == 1 {
            // SAFETY: the caller's duty.
            *value = unsafe { p.add(lane).read_unaligned() };
        }
    }
    lanes
}

/// Writes the lanes of `mask`.
///
/// # Safety
/// Those lanes can be written at `p`.
#[inline(always)]
pub(super) unsafe fn write_lanes<const N: usize>(mask: u32, p: *mut u16, lanes: [u16; N]) {
    for (lane, value) in lanes.into_iter().enumerate() {
        if mask >> lane & 1 == 1 {
            // SAFETY: the caller's duty.
            unsafe { p.add(lane).write_unaligned(value) };
        }
    }
}
