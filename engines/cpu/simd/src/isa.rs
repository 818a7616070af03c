//! Instruction sets of the CPU kernels.
//!
//! A kernel is written once, over [`Simd`], as a [`Kernel`] value; [`Isa::run`] enters it compiled for an instruction
//! set. A token of a set ([`Avx512`], [`Avx2`]) comes only out of [`Isa`], which exists only where the CPU has that set,
//! so holding one is the proof that its instructions may be used.
//!
//! Every function between [`Isa::run`] and the vector operations has to be `#[inline(always)]`: code outside of the
//! entered function is compiled without the instruction set.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
mod portable;
mod several;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use amx::{Amx, Tiles};
#[cfg(target_arch = "x86_64")]
pub use avx512_bf16::Avx512Bf16;
pub use portable::Portable;
pub use several::Several;
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

use std::fmt;
use std::sync::OnceLock;

/// Environment variable that names another instruction set than the fastest: `amx`, `avx512_bf16`, `avx512`, `avx2` or `portable`.
pub const ISA_VARIABLE: &str = "HIPDNN_RS_CPU_ISA";

/// Instruction set that this CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa(Set);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// Beside vectors of AVX-512 products of pairs of bf16.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512Bf16),
    /// Beside vectors of AVX-512 matrix tiles, for values of 16 bits or, if the flag is set, for `f32` too.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx, bool),
}

impl Isa {
    /// The portable set, which needs nothing of the CPU.
    pub const PORTABLE: Isa = Isa(Set::Portable);

    /// Instruction sets that this CPU has, each with those before it; of two the latter is the faster one, unless products of pairs
    /// are slow.
    pub fn available() -> impl Iterator<Item = Isa> {
        #[cfg(target_arch = "x86_64")]
        let fast = [
            Avx2::detect().map(Set::Avx2),
            Avx512::detect().map(Set::Avx512),
            Avx512Bf16::detect().map(Set::Avx512Bf16),
            Amx::detect().map(|token| Set::Amx(token, true)),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let fast: [Option<Set>; 0] = [];
        std::iter::once(Set::Portable).chain(fast.into_iter().flatten()).map(Isa)
    }

    /// Variant of [`Isa::available`] without sets that differ from another one by products of bf16 alone.
    pub fn of_vectors() -> impl Iterator<Item = Isa> {
        Isa::available().filter(|isa| !isa.has_tiles() && !isa.has_bf16_pairs())
    }

    /// True if the set has products of pairs of bf16 in its vectors.
    pub fn has_bf16_pairs(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Set::Avx512Bf16(_));
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Token of the products of pairs of bf16, if the set has them.
    #[cfg(target_arch = "x86_64")]
    pub fn bf16_pairs(self) -> Option<Avx512Bf16> {
        if let Set::Avx512Bf16(token) = self.0 { Some(token) } else { None }
    }

    /// True if the set has matrix tiles beside its vectors.
    pub fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Set::Amx(..));
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// True if products of `f32` values are computed on the matrix tiles too, as sums of products of their terms.
    ///
    /// Six products for one leave an advantage of two over vectors where a core is one thread's, and a loss where its other thread is
    /// busy: the two share the unit that multiplies tiles. So it is done only where the environment names the set.
    pub fn splits_f32(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Set::Amx(_, true));
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Token of the matrix tiles, if the set has them.
    #[cfg(target_arch = "x86_64")]
    pub fn tiles(self) -> Option<Amx> {
        if let Set::Amx(token, _) = self.0 { Some(token) } else { None }
    }

    /// False if the CPU is slower with the set than with one that comes before it.
    fn pays(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.bf16_pairs().is_none_or(|token| token.is_fast());
        #[cfg(not(target_arch = "x86_64"))]
        return true;
    }

    /// Fastest set, unless the environment asks for a slower one; decided once in a process.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let wanted = std::env::var(ISA_VARIABLE).unwrap_or_default();
            Isa::chosen(&wanted)
        })
    }

    fn chosen(wanted: &str) -> Isa {
        let best = || match Isa::available().filter(|isa| isa.pays()).last().unwrap_or(Isa::PORTABLE) {
            #[cfg(target_arch = "x86_64")]
            Isa(Set::Amx(token, _)) => Isa(Set::Amx(token, false)),
            isa => isa,
        };
        if wanted.is_empty() {
            return best();
        }
        Isa::available().find(|isa| isa.name() == wanted).unwrap_or_else(|| {
            log::warn!(
                "{ISA_VARIABLE}: expected one of {:?}, which this CPU has, got {wanted:?}; taking {}",
                Vec::from_iter(Isa::available()),
                best()
            );
            best()
        })
    }

    /// Name of the set in the environment variable.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Bf16(_) => "avx512_bf16",
            #[cfg(target_arch = "x86_64")]
            Set::Amx(..) => "amx",
        }
    }

    /// Number of `f32` values in a vector.
    pub fn lanes(self) -> usize {
        match self.0 {
            Set::Portable => Portable::LANES,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) | Set::Avx512Bf16(_) | Set::Amx(..) => Avx512::LANES,
        }
    }

    /// Runs a kernel with this set's instructions.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Portable => Portable.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(token) => token.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(token) => token.call(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Bf16(token) => token.vectors().call(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Amx(token, _) => token.vectors().call(kernel),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Code that is written once and compiled for each instruction set; `run` has to be `#[inline(always)]`.
pub trait Kernel {
    /// Result of the kernel.
    type Output;
    /// True if the function that the kernel is compiled in has its frame begin on a cache line, for kernels of many more vectors than
    /// there are registers: else the compiler puts vectors where the caller's frame ends, in most processes across the ends of lines.
    /// It costs a register, and some cycles for each call. Kernels that have arrays of vectors are aligned without it. On x86.
    const ALIGNED: bool = false;
    /// Body of the kernel.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Steps of a product's sum in a round of its loop. Where another thread shares the core, a loop takes as long as its instructions
/// are decoded: those that count, and those that ask for memory, are for several steps.
pub const UNROLLED: usize = 4;

/// Maximum number of lanes of any set.
pub const MAX_LANES: usize = 16;

/// Adding this rounds to a whole number, which the lowest bits then are: one and a half times the number from which on the
/// last digit is one.
pub const WHOLE: f32 = 12_582_912.0;

/// [`WHOLE`] with the bias of exponents: the lowest bits of its sum with `n` are the exponent of 2ⁿ, for
/// [`Lanewise::exponent`].
pub const EXPONENT: f32 = WHOLE + 127.0;

/// Lanes of three vectors in another order: each comes from the place that `from` gives of its own, places counted on from
/// vector to vector.
#[inline(always)]
fn rearranged<S: Simd>(s: S, vectors: [S::V; 3], from: impl Fn(usize) -> usize) -> [S::V; 3] {
    let (mut before, mut after) = ([0f32; 3 * MAX_LANES], [0f32; 3 * MAX_LANES]);
    for (i, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the array has as many values as three of the widest vectors.
        unsafe { s.store(before.as_mut_ptr().add(i * S::LANES), vector) };
    }
    for place in 0..3 * S::LANES {
        after[place] = before[from(place)];
    }
    // SAFETY: the array has as many values as three of the widest vectors.
    [0, 1, 2].map(|i| unsafe { s.load(after.as_ptr().add(i * S::LANES)) })
}

/// Operations on vectors lane by lane: what functions of numbers are written in, for one vector or for [`Several`].
pub trait Lanewise: Copy {
    /// A vector of `f32` values.
    type V: Copy;
    /// A mask of its lanes.
    type M: Copy;

    /// Vector with `value` in all lanes.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b` within 2 ulp, where `b` and its reciprocal are normal numbers, or NaN.
    #[inline(always)]
    fn quotient(self, a: Self::V, b: Self::V) -> Self::V {
        self.div(a, b)
    }
    /// `a · b + c`, rounded once where the CPU can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a · 2ⁿ` for whole numbers `n` from -252 to 252, rounded once where it is a normal number.
    #[inline(always)]
    fn scale(self, a: Self::V, n: Self::V) -> Self::V {
        let exponent = self.splat(EXPONENT);
        // Two factors, as 2ⁿ itself may be out of range.
        let half = self.fma(n, self.splat(0.5), exponent);
        let rest = self.add(self.sub(n, self.sub(half, exponent)), exponent);
        self.mul(self.mul(a, self.exponent(half)), self.exponent(rest))
    }
    /// Minimum; `b` if either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Maximum; `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a` with its sign cleared.
    fn abs(self, a: Self::V) -> Self::V;
    /// Lanes whose sign and exponent are the lowest nine bits of those of `a`, and whose fraction is zero.
    fn exponent(self, a: Self::V) -> Self::V;
    /// Lanes where `a < b`.
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// Lanes where `a` is NaN.
    fn nan(self, a: Self::V) -> Self::M;
    /// `yes` in the lanes of `mask`, `no` elsewhere.
    fn select(self, mask: Self::M, yes: Self::V, no: Self::V) -> Self::V;
}

/// The vector operations kernels are written in; lane `i` of a mask is bit `i` of its `u32`.
pub trait Simd: Lanewise + Send + Sync + 'static {
    /// A vector of half as many `f64` values.
    type W: Copy;
    /// Number of lanes of a vector.
    const LANES: usize;

    /// Enters `kernel` in a function compiled for this set.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;

    /// Mask with the low `LANES` bits of `bits`.
    fn mask(self, bits: u32) -> Self::M;
    /// The maximum of the lanes' bits as unsigned numbers.
    fn max_bits(self, a: Self::V, b: Self::V) -> Self::V;
    /// Lanes rounded to the nearest value whose lower 16 bits are zero, to the larger magnitude if two are as near.
    fn round_to_upper(self, a: Self::V) -> Self::V;
    /// Lanes of which the lower 16 bits are the upper ones of `even`, and the upper ones those of `odd`.
    fn pair_upper(self, even: Self::V, odd: Self::V) -> Self::V;

    /// Interleaves the lanes of `a` and `b`: (`a₀ b₀ a₁ b₁ …`, the rest of it).
    fn zip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// Deinterleaves the lanes of `a` followed by `b`: the even and the odd ones.
    fn unzip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);

    /// Interleaves the lanes of three vectors: `a₀ b₀ c₀ a₁ b₁ c₁ …`.
    #[inline(always)]
    fn zip_three(self, parts: [Self::V; 3]) -> [Self::V; 3] {
        rearranged(self, parts, |place| place % 3 * Self::LANES + place / 3)
    }
    /// Deinterleaves the lanes of three vectors that follow each other: those from the first one on, from the second, from the
    /// third, every third one.
    #[inline(always)]
    fn unzip_three(self, whole: [Self::V; 3]) -> [Self::V; 3] {
        rearranged(self, whole, |place| place % Self::LANES * 3 + place / Self::LANES)
    }

    /// Wide vector with `value` in all lanes.
    fn splat_wide(self, value: f64) -> Self::W;
    /// `a + b`.
    fn add_wide(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a - b`.
    fn sub_wide(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a · b + c`, rounded once where the CPU can.
    fn fma_wide(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// The lanes of `a` in `f64`: the first half, and the second one.
    fn widen(self, a: Self::V) -> [Self::W; 2];
    /// The lanes of both halves in `f32`, rounded.
    fn narrow(self, a: [Self::W; 2]) -> Self::V;

    /// Loads a wide vector.
    ///
    /// # Safety
    /// `LANES / 2` values can be read at `p`.
    unsafe fn load_wide(self, p: *const f64) -> Self::W;
    /// Stores a wide vector.
    ///
    /// # Safety
    /// `LANES / 2` values can be written at `p`.
    unsafe fn store_wide(self, p: *mut f64, v: Self::W);
    /// Loads a vector and widens it: [`Simd::widen`] of [`Simd::load`], without moving halves of registers.
    ///
    /// # Safety
    /// `LANES` values can be read at `p`.
    unsafe fn load_widened(self, p: *const f32) -> [Self::W; 2];

    /// Loads a vector.
    ///
    /// # Safety
    /// `LANES` values can be read at `p`.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// Loads the lanes of the mask; zero elsewhere.
    ///
    /// # Safety
    /// The lanes of `mask` can be read at `p`; nothing else is touched.
    unsafe fn load_masked(self, mask: Self::M, p: *const f32) -> Self::V;
    /// Stores a vector.
    ///
    /// # Safety
    /// `LANES` values can be written at `p`.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// Stores the lanes of the mask.
    ///
    /// # Safety
    /// The lanes of `mask` can be written at `p`; nothing else is touched.
    unsafe fn store_masked(self, mask: Self::M, p: *mut f32, v: Self::V);
    /// Stores the first `lanes` lanes, at most `LANES`.
    ///
    /// # Safety
    /// So many values can be written at `p`; nothing else is touched.
    #[inline(always)]
    unsafe fn store_first(self, lanes: usize, p: *mut f32, v: Self::V) {
        // SAFETY: the mask names the lanes that the caller vouches for.
        unsafe { self.store_masked(self.mask(first(lanes)), p, v) }
    }
    /// Transposes a square: the first `LANES` vectors. The others are left as they are, or lost.
    #[inline(always)]
    fn transpose(self, mut square: [Self::V; MAX_LANES]) -> [Self::V; MAX_LANES] {
        // Zipping the halves of the rows log₂ times transposes a square.
        let mut stages = Self::LANES;
        while stages > 1 {
            let mut zipped = square;
            for i in 0..Self::LANES / 2 {
                (zipped[2 * i], zipped[2 * i + 1]) = self.zip(square[i], square[i + Self::LANES / 2]);
            }
            square = zipped;
            stages /= 2;
        }
        square
    }
    /// Writes the lanes of `keep` one after the other at `p`.
    ///
    /// # Safety
    /// As many values as `keep` has lanes can be written at `p`; nothing else is touched.
    unsafe fn store_compressed(self, keep: u32, p: *mut f32, v: Self::V);
    /// Gathers the values at `p + pick.offset[lane]`.
    ///
    /// # Safety
    /// `2·MAX_LANES` values can be read at `p + pick.base`, and all from the first picked one to `MAX_LANES` values past the
    /// last.
    unsafe fn pick(self, p: *const f32, pick: &Pick) -> Self::V;
    /// Loads the values at every second place from `p` on, lane masks as in [`Simd::load_masked`].
    ///
    /// # Safety
    /// `p + 2·lane` can be read for the lanes of `mask`, and what is between two of them; nothing else is touched.
    #[inline(always)]
    unsafe fn load_even(self, mask: u32, p: *const f32) -> Self::V {
        // SAFETY: the caller's duty is the same.
        self.ordered(unsafe { self.load_even_unordered(mask, p) })
    }
    /// Loads what [`Simd::load_even`] does, with the lanes in an order of the set's own, which [`Simd::ordered`]
    /// undoes: sums of such vectors are brought in order once.
    ///
    /// # Safety
    /// As for [`Simd::load_even`].
    unsafe fn load_even_unordered(self, mask: u32, p: *const f32) -> Self::V;
    /// Lanes of even places of `a` followed by `b`, and those of odd places, in the order of [`Simd::load_even_unordered`].
    #[inline(always)]
    fn unzip_unordered(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        self.unzip(a, b)
    }
    /// Lanes of [`Simd::load_even_unordered`] in the order of their places.
    #[inline(always)]
    fn ordered(self, v: Self::V) -> Self::V {
        v
    }
    /// Widens f16 values given by their bits.
    ///
    /// # Safety
    /// `LANES` values can be read at `p`.
    unsafe fn load_f16(self, p: *const u16) -> Self::V;
    /// Rounds to the bits of f16 values, to nearest even.
    ///
    /// # Safety
    /// `LANES` values can be written at `p`.
    unsafe fn store_f16(self, p: *mut u16, v: Self::V);
    /// Widens the f16 values of the lanes of `mask`, given by their bits; zero elsewhere.
    ///
    /// # Safety
    /// The lanes of `mask` can be read at `p`; nothing else is touched.
    unsafe fn load_f16_masked(self, mask: u32, p: *const u16) -> Self::V;
    /// Rounds to the bits of f16 values, to nearest even, and stores the lanes of `mask`.
    ///
    /// # Safety
    /// The lanes of `mask` can be written at `p`; nothing else is touched.
    unsafe fn store_f16_masked(self, mask: u32, p: *mut u16, v: Self::V);
    /// Widens the bf16 values of the lanes of `mask`, given by their bits; zero elsewhere.
    ///
    /// # Safety
    /// The lanes of `mask` can be read at `p`; nothing else is touched.
    unsafe fn load_bf16_masked(self, mask: u32, p: *const u16) -> Self::V;
    /// Rounds to the bits of bf16 values, to nearest even, a NaN to a NaN, and stores the lanes of `mask`.
    ///
    /// # Safety
    /// The lanes of `mask` can be written at `p`; nothing else is touched.
    unsafe fn store_bf16_masked(self, mask: u32, p: *mut u16, v: Self::V);
    /// Stores the upper 16 bits of the first `lanes` lanes, at most `LANES`.
    ///
    /// # Safety
    /// So many values can be written at `p`; nothing else is touched.
    unsafe fn store_upper(self, lanes: usize, p: *mut u16, v: Self::V);
    /// Prefetches the cache line at `p`, which may be any address.
    fn prefetch(self, p: *const f32);
    /// Prefetches the cache line at `p` into the second-level cache.
    fn prefetch_far(self, p: *const f32);
    /// Prefetches the cache line at `p` for writing.
    fn prefetch_write(self, p: *const f32);
}

/// Maximum number of runs of neighbors that are loaded one by one: more take as long as a gather.
const MOST_RUNS: usize = 4;

/// Lanes of vectors that are loaded run by run.
const RUN_LANES: usize = 8;

/// Offsets of a vector's lanes relative to a pointer that moves.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Pick {
    offset: [i32; MAX_LANES],
    /// `offset - base`, meaningful if `near`.
    lane: [i32; MAX_LANES],
    /// All bits set from the lane on with which each run but the first begins.
    masks: [[i32; RUN_LANES]; MOST_RUNS - 1],
    /// Offset, for each run of neighbors, of a vector that has them in their lanes.
    loads: [isize; MOST_RUNS],
    /// Number of runs; 0 if there are too many, or the offsets descend.
    runs: usize,
    base: isize,
    near: bool,
}

impl Pick {
    /// Makes the offsets of the lanes, at most [`MAX_LANES`]; what missing ones hold is of no use to anybody.
    pub fn new(offsets: &[usize]) -> Pick {
        let base = offsets.iter().copied().min().unwrap_or(0);
        let far = offsets.iter().copied().max().unwrap_or(0);
        let first = offsets.first().copied().unwrap_or(0);
        let offset: [usize; MAX_LANES] = std::array::from_fn(|i| offsets.get(i).copied().unwrap_or(first));
        let mut pick = Pick {
            offset: offset.map(|o| o as i32),
            lane: offset.map(|o| (o - base) as i32),
            masks: [[0; RUN_LANES]; MOST_RUNS - 1],
            loads: [0; MOST_RUNS],
            runs: 0,
            base: base as isize,
            near: far - base < 2 * MAX_LANES,
        };
        pick.find_runs(&offsets[..offsets.len().min(RUN_LANES)]);
        pick
    }

    /// Finds the runs of neighbors among ascending offsets; lanes behind the last are part of its run.
    fn find_runs(&mut self, offsets: &[usize]) {
        for (lane, offset) in offsets.iter().enumerate() {
            let before = lane.checked_sub(1).map(|before| offsets[before]);
            if before.is_some_and(|before| *offset <= before) {
                self.runs = 0;
                return;
            }
            if before.is_none_or(|before| *offset != before + 1) {
                if self.runs == MOST_RUNS {
                    self.runs = 0;
                    return;
                }
                // Ascending offsets are at least the lane's number more than the first.
                self.loads[self.runs] = (offset - lane) as isize;
                if self.runs > 0 {
                    self.masks[self.runs - 1][lane..].fill(-1);
                }
                self.runs += 1;
            }
        }
    }
}

/// Bit mask of the first `n` lanes.
#[inline(always)]
pub const fn first(n: usize) -> u32 {
    ((1u64 << n) - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_chosen_by_name_and_an_unknown_one_ignored() {
        for isa in Isa::available() {
            assert_eq!(Isa::chosen(isa.name()), isa);
        }
        for unknown in ["mmx", ""] {
            let (chosen, fastest) = (Isa::chosen(unknown), Isa::available().filter(|isa| isa.pays()).last().unwrap());
            assert_eq!(chosen.name(), fastest.name());
            assert!(!chosen.splits_f32(), "only where it is asked for");
            assert_eq!(fastest.splits_f32(), fastest.has_tiles());
        }
    }

    /// Runs each operation on lanes of awkward values and gives back all results.
    struct Everything;
    impl Kernel for Everything {
        type Output = Vec<(&'static str, Vec<u32>)>;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let a: Vec<f32> = (0..64)
                .map(|i| [1.5, -2.5, 0.0, -0.0, 3.25, f32::INFINITY, -7.5, 0.5][i % 8] + (i / 8) as f32)
                .collect();
            let b: Vec<f32> = (0..64).map(|i| [2.0, -2.5, 1.0, 4.0, -8.0, 0.25, 16.0, 1.0][i % 8]).collect();
            let n: Vec<f32> = (0..64).map(|i| (i as f32 - 30.0) * 4.0).collect();
            let mut results = Vec::new();
            let mut put = |name, f: &dyn Fn(usize) -> S::V| {
                let mut out = vec![0f32; 48];
                for i in (0..48).step_by(S::LANES) {
                    // SAFETY: `i + LANES` is at most 48.
                    unsafe { s.store(out.as_mut_ptr().add(i), f(i)) };
                }
                results.push((name, out.into_iter().map(f32::to_bits).collect()));
            };
            // SAFETY: loads begin at 48 at most and the arrays have 64 values.
            let at = |v: &[f32], i: usize| unsafe { s.load(v.as_ptr().add(i)) };
            put("add", &|i| s.add(at(&a, i), at(&b, i)));
            put("sub", &|i| s.sub(at(&a, i), at(&b, i)));
            put("mul", &|i| s.mul(at(&a, i), at(&b, i)));
            put("div", &|i| s.div(at(&a, i), at(&b, i)));
            put("fma", &|i| s.fma(at(&b, i), at(&b, i), s.splat(0.5)));
            put("min", &|i| s.min(at(&a, i), at(&b, i)));
            put("max", &|i| s.max(at(&a, i), at(&b, i)));
            put("min nan", &|i| s.min(s.splat(f32::NAN), at(&b, i)));
            put("max nan", &|i| s.max(s.splat(f32::NAN), at(&b, i)));
            put("abs", &|i| s.abs(at(&b, i)));
            put("max_bits", &|i| s.max_bits(at(&a, i), at(&b, i)));
            put("round_to_upper", &|i| s.round_to_upper(s.div(at(&a, i), s.splat(7.0))));
            put("pair_upper", &|i| s.pair_upper(at(&a, i), s.round_to_upper(at(&b, i))));
            put("store_upper of some lanes_masked", &|i| {
                let mut t = [7u16; 2 * MAX_LANES];
                // SAFETY: a vector has at most `MAX_LANES` lanes, and two of 16-bit values are one of `f32`.
                unsafe {
                    s.store_upper(S::LANES, t.as_mut_ptr(), at(&a, i));
                    s.store_upper(5, t.as_mut_ptr(), at(&b, i));
                    s.load_bf16_masked(first(S::LANES), t.as_ptr())
                }
            });
            put("scale", &|i| s.scale(at(&b, i), at(&n, i)));
            // Powers that are no numbers of their own, of values that bring them back into range.
            let (far, back): (Vec<f32>, Vec<f32>) = (0..64)
                .map(|i| {
                    [(252.0, 1.5e-38), (-252.0, 2.5e38), (200.0, -1.25e-30), (-180.0, 3e30), (128.0, 1e-38)][i % 5]
                })
                .unzip();
            put("scale by far", &|i| s.scale(at(&back, i), at(&far, i)));
            put("exponent", &|i| s.exponent(s.add(at(&n, i), s.splat(EXPONENT))));
            put("select", &|i| s.select(s.lt(at(&a, i), at(&b, i)), at(&a, i), s.splat(9.0)));
            put("nan", &|i| s.select(s.nan(s.sub(at(&a, i), at(&a, i))), s.splat(1.0), s.splat(0.0)));
            put("unzip of zip", &|i| {
                let (low, high) = s.zip(at(&a, i), at(&b, i));
                let (even, odd) = s.unzip(low, high);
                s.sub(s.mul(even, s.splat(3.0)), odd)
            });
            put("wide ones", &|i| {
                let [one, third, zero] = [1.0, 1.0 / 3.0, 0.0].map(|value| s.splat_wide(value));
                let widened = s.widen(at(&a, i));
                // SAFETY: loads begin below 48 and the array has 64 values.
                let others = unsafe { s.load_widened(b.as_ptr().add(i)) };
                let mut rounded = [0f32; MAX_LANES];
                for half in 0..2 {
                    let product = s.fma_wide(s.add_wide(widened[half], one), others[half], zero);
                    let mut memory = [0f64; MAX_LANES];
                    // SAFETY: the array takes the widest vector, and its first half is read again.
                    unsafe {
                        s.store_wide(memory.as_mut_ptr(), s.fma_wide(product, third, s.sub_wide(others[half], one)));
                        s.store_wide(memory.as_mut_ptr(), s.load_wide(memory.as_ptr()));
                    }
                    for (lane, value) in memory[..S::LANES / 2].iter().enumerate() {
                        rounded[half * (S::LANES / 2) + lane] = *value as f32;
                    }
                }
                // SAFETY: the array has as many values as the widest vector.
                unsafe { s.load(rounded.as_ptr()) }
            });
            put("narrow", &|i| {
                let third = s.splat_wide(1.0 / 3.0);
                s.narrow(s.widen(at(&a, i)).map(|half| s.fma_wide(half, third, third)))
            });
            put("first of zip", &|i| {
                let mut t = [0f32; 2 * MAX_LANES];
                let (low, high) = s.zip(at(&a, i), at(&b, i));
                // SAFETY: the array takes two of the widest vectors.
                unsafe {
                    s.store(t.as_mut_ptr(), low);
                    s.store(t.as_mut_ptr().add(S::LANES), high);
                }
                for (lane, pair) in t.chunks(2).take(S::LANES).enumerate() {
                    assert_eq!([pair[0].to_bits(), pair[1].to_bits()], [a[i + lane].to_bits(), b[i + lane].to_bits()]);
                }
                low
            });
            for bits in [0u32, 1, 0x5a, 0xff] {
                // SAFETY: loads begin below 48, have at most 16 lanes, and the array has 64 values.
                put("load_masked", &|i| unsafe { s.load_masked(s.mask(bits), a.as_ptr().add(i)) });
                let wide = [a.clone(), b.clone()].concat();
                // SAFETY: even places are below 48 + 32, of 128.
                put("load_even", &|i| unsafe { s.load_even(if i % 16 == 0 { bits } else { 0 }, wide.as_ptr().add(i)) });
                put("load_even_unordered", &|i| {
                    let bits = if i % 16 == 0 { bits } else { 0 };
                    // SAFETY: even places are below 48 + 32, of 128.
                    s.ordered(unsafe { s.load_even_unordered(bits, wide.as_ptr().add(i)) })
                });
                put("unzip_unordered", &|i| {
                    let (even, odd) = s.unzip_unordered(at(&a, i), at(&a, i + S::LANES));
                    let (even, odd) = (s.ordered(even), s.ordered(odd));
                    let mut t = [0f32; 2 * MAX_LANES];
                    let (low, high) = s.zip(even, odd);
                    // SAFETY: the array takes two of the widest vectors.
                    unsafe {
                        s.store(t.as_mut_ptr(), low);
                        s.store(t.as_mut_ptr().add(S::LANES), high);
                    }
                    let bits = |values: &[f32]| Vec::from_iter(values.iter().map(|value| value.to_bits()));
                    assert_eq!(bits(&t[..2 * S::LANES]), bits(&a[i..i + 2 * S::LANES]));
                    even
                });
                put("store_masked", &|i| {
                    let mut t = [7f32; MAX_LANES];
                    // SAFETY: a vector has at most `MAX_LANES` lanes.
                    unsafe {
                        s.store_masked(s.mask(bits), t.as_mut_ptr(), at(&a, i));
                        s.load(t.as_ptr())
                    }
                });
                put("store_compressed", &|i| {
                    let mut t = [7f32; MAX_LANES];
                    // SAFETY: a vector has at most `MAX_LANES` lanes.
                    unsafe {
                        s.store_compressed(bits, t.as_mut_ptr(), at(&a, i));
                        s.load(t.as_ptr())
                    }
                });
            }
            let halves: Vec<u16> =
                (0..64).map(|i| [0x3c00, 0xc155, 0x0001, 0x7f80, 0x8000, 0x3fff, 0x7bff, 0xff80][i % 8]).collect();
            let wide: Vec<f32> = a.iter().map(|a| a * 1.003_906_3 + 1e-3).chain([f32::NAN; 32]).collect();
            for bits in [0u32, 1, 0x5a, 0x1f, 0xff] {
                // SAFETY: loads begin below 48, have at most 16 lanes, and the array has 64 values.
                put("load_f16_masked", &|i| unsafe { s.load_f16_masked(bits, halves.as_ptr().add(i)) });
                // SAFETY: loads begin below 48, have at most 16 lanes, and the array has 64 values.
                put("load_bf16_masked", &|i| unsafe { s.load_bf16_masked(bits, halves.as_ptr().add(i)) });
                put("store_f16_masked", &|i| {
                    let mut t = [7u16; MAX_LANES];
                    // SAFETY: a vector has at most `MAX_LANES` lanes, and two of 16-bit values are one of `f32`.
                    unsafe {
                        s.store_f16_masked(bits, t.as_mut_ptr(), at(&wide, i));
                        s.load_bf16_masked(first(S::LANES), t.as_ptr())
                    }
                });
                put("store_bf16_masked", &|i| {
                    let mut t = [7u16; MAX_LANES];
                    // SAFETY: a vector has at most `MAX_LANES` lanes, and two of 16-bit values are one of `f32`.
                    unsafe {
                        s.store_bf16_masked(bits, t.as_mut_ptr(), at(&wide, i + 32));
                        s.load_bf16_masked(first(S::LANES), t.as_ptr())
                    }
                });
            }
            for (name, far) in [("pick near", 1), ("pick far", 5)] {
                let wide: Vec<f32> = (0..256).map(|i| i as f32).collect();
                put(name, &|i| {
                    let offsets: Vec<usize> = (i..i + S::LANES).map(|l| l % 16 * far + 3).collect();
                    // SAFETY: places are below 80 + 32, of 256.
                    unsafe { s.pick(wide.as_ptr(), &Pick::new(&offsets)) }
                });
            }
            for (name, run, gap) in
                [("two runs", 5, 7), ("two runs far apart", 4, 20), ("runs of two", 2, 3), ("of one", 1, 2)]
            {
                let wide: Vec<f32> = (0..512).map(|i| i as f32).collect();
                put(name, &|i| {
                    let offsets: Vec<usize> = (i..i + S::LANES).map(|l| l + l / run * gap + 1).collect();
                    // SAFETY: places are below 64 + 20 · 16 and 47 · 3 + 2, of 512, and so are 32 from there on.
                    unsafe { s.pick(wide.as_ptr(), &Pick::new(&offsets)) }
                });
            }
            results
        }
    }

    /// Largest error of quotients, in ulp.
    struct Quotients;
    impl Kernel for Quotients {
        type Output = f64;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f64 {
            let mut largest: f64 = 0.0;
            for i in 0..20_000u32 {
                let random = |k: u32| i.wrapping_mul(16).wrapping_add(k).wrapping_mul(2_654_435_761);
                // Fractions of any bits; powers whose quotients stay normal.
                let value = |bits: u32, power: u32| f32::from_bits(bits >> 9 | (127u32.wrapping_add(power)) << 23);
                let power = i % 248;
                let a: [f32; MAX_LANES] =
                    std::array::from_fn(|lane| value(random(lane as u32), (power / 2).wrapping_sub(62)));
                let b: [f32; MAX_LANES] =
                    std::array::from_fn(|lane| value(random(!lane as u32), power.wrapping_sub(124)));
                let mut got = [0f32; MAX_LANES];
                // SAFETY: the arrays have `MAX_LANES` values.
                unsafe { s.store(got.as_mut_ptr(), s.quotient(s.load(a.as_ptr()), s.load(b.as_ptr()))) };
                for lane in 0..S::LANES {
                    let want = f64::from(a[lane]) / f64::from(b[lane]);
                    let ulp = f64::from(f32::from_bits((want as f32).to_bits() & 0x7f80_0000)) / f64::from(1 << 23);
                    largest = largest.max((f64::from(got[lane]) - want).abs() / ulp);
                }
            }
            let nan = s.quotient(s.splat(1.0), s.splat(f32::NAN));
            let mut lanes = [0f32; MAX_LANES];
            // SAFETY: the array has `MAX_LANES` values.
            unsafe { s.store(lanes.as_mut_ptr(), nan) };
            assert!(lanes[..S::LANES].iter().all(|lane| lane.is_nan()));
            largest
        }
    }

    #[test]
    fn quotients_stay_within_two_units() {
        for isa in Isa::available() {
            let largest = isa.run(Quotients);
            assert!((0.25..=2.0).contains(&largest), "{isa}: {largest} ulp");
        }
    }

    /// Compares stores of the first lanes, transposed squares, and three interleaved vectors with loops over lanes.
    struct FirstLanesSquaresAndThrees;
    impl Kernel for FirstLanesSquaresAndThrees {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            const OLD: f32 = -1.0;
            let values: [f32; MAX_LANES] = std::array::from_fn(|lane| lane as f32);
            for count in 0..=S::LANES {
                let mut stored = [OLD; MAX_LANES];
                // SAFETY: both arrays have `MAX_LANES` values, and a vector no more lanes.
                unsafe { s.store_first(count, stored.as_mut_ptr(), s.load(values.as_ptr())) };
                let expected = std::array::from_fn(|lane| if lane < count { lane as f32 } else { OLD });
                assert_eq!(stored, expected, "the first {count} lanes");
            }
            let mut square = [s.splat(0.0); MAX_LANES];
            for (row, vector) in square.iter_mut().enumerate() {
                let values: [f32; MAX_LANES] = std::array::from_fn(|column| (row * MAX_LANES + column) as f32);
                // SAFETY: the array has `MAX_LANES` values.
                *vector = unsafe { s.load(values.as_ptr()) };
            }
            for (column, vector) in s.transpose(square).into_iter().take(S::LANES).enumerate() {
                let mut values = [OLD; MAX_LANES];
                // SAFETY: the array has `MAX_LANES` values.
                unsafe { s.store(values.as_mut_ptr(), vector) };
                for (row, value) in values.into_iter().take(S::LANES).enumerate() {
                    assert_eq!(value, (row * MAX_LANES + column) as f32, "row {row}, column {column}");
                }
            }
            let part = |part: usize, lane: usize| (100 * part + lane) as f32;
            let parts: [[f32; MAX_LANES]; 3] = std::array::from_fn(|of| std::array::from_fn(|lane| part(of, lane)));
            let mut interleaved = [OLD; 3 * MAX_LANES];
            for lane in 0..S::LANES {
                for of in 0..3 {
                    interleaved[3 * lane + of] = part(of, lane);
                }
            }
            let (mut zipped, mut unzipped) = ([OLD; 3 * MAX_LANES], [[OLD; MAX_LANES]; 3]);
            // SAFETY: the arrays have as many values as one or three of the widest vectors.
            unsafe {
                let loaded = [0, 1, 2].map(|of| s.load(parts[of].as_ptr()));
                for (i, vector) in s.zip_three(loaded).into_iter().enumerate() {
                    s.store(zipped.as_mut_ptr().add(i * S::LANES), vector);
                }
                let loaded = [0, 1, 2].map(|i| s.load(interleaved.as_ptr().add(i * S::LANES)));
                for (of, vector) in s.unzip_three(loaded).into_iter().enumerate() {
                    s.store(unzipped[of].as_mut_ptr(), vector);
                }
            }
            assert_eq!(zipped, interleaved);
            for (got, want) in unzipped.iter().zip(&parts) {
                assert_eq!(got[..S::LANES], want[..S::LANES]);
            }
        }
    }

    /// Compares masked accesses of 16-bit values, with masks that reach lanes of any vector, with loops over lanes.
    struct MaskedHalves;
    impl Kernel for MaskedHalves {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            const OLD: u16 = 7;
            let bits: [u16; MAX_LANES] =
                std::array::from_fn(|i| [0x3c00, 0xc155, 0x0001, 0x7f80, 0x8000][i % 5] + i as u16);
            let values: [f32; MAX_LANES] = std::array::from_fn(|i| (i as f32 - 6.5) * 1.003_906_3);
            for mask in [0x1ff, 0x7fff, 0xa5a5, 0xff00, 0x8001].map(|mask| mask & first(S::LANES)) {
                let lanes = |of: &dyn Fn(usize) -> u32, or: u32| {
                    Vec::from_iter((0..S::LANES).map(|lane| if mask >> lane & 1 == 1 { of(lane) } else { or }))
                };
                let mut loaded = [[f32::NAN; MAX_LANES]; 2];
                let mut stored = [[OLD; MAX_LANES]; 2];
                // SAFETY: the arrays have `MAX_LANES` values, of which a vector has no more.
                unsafe {
                    s.store(loaded[0].as_mut_ptr(), s.load_f16_masked(mask, bits.as_ptr()));
                    s.store(loaded[1].as_mut_ptr(), s.load_bf16_masked(mask, bits.as_ptr()));
                    s.store_f16_masked(mask, stored[0].as_mut_ptr(), s.load(values.as_ptr()));
                    s.store_bf16_masked(mask, stored[1].as_mut_ptr(), s.load(values.as_ptr()));
                }
                let loaded = loaded.map(|row| Vec::from_iter(row[..S::LANES].iter().map(|value| value.to_bits())));
                let f16 = |lane: usize| half::f16::from_bits(bits[lane]).to_f32().to_bits();
                assert_eq!(loaded[0], lanes(&f16, 0), "f16 loaded, {mask:#x}");
                assert_eq!(loaded[1], lanes(&|lane| u32::from(bits[lane]) << 16, 0), "bf16 loaded, {mask:#x}");
                let stored = stored.map(|row| row.map(u32::from));
                let f16 = |lane: usize| u32::from(half::f16::from_f32(values[lane]).to_bits());
                assert_eq!(stored[0][..S::LANES], lanes(&f16, OLD.into()), "f16 stored, {mask:#x}");
                let bf16 = |lane: usize| u32::from(half::bf16::from_f32(values[lane]).to_bits());
                assert_eq!(stored[1][..S::LANES], lanes(&bf16, OLD.into()), "bf16 stored, {mask:#x}");
                assert!(stored.iter().all(|row| row[S::LANES..].iter().all(|value| *value == OLD.into())), "{mask:#x}");
            }
        }
    }

    #[test]
    fn masks_of_halves_name_any_lane() {
        for isa in Isa::available() {
            isa.run(MaskedHalves);
            isa.run(FirstLanesSquaresAndThrees);
        }
    }

    #[test]
    fn the_sets_agree_with_the_portable_one() {
        let want = Isa::PORTABLE.run(Everything);
        for isa in Isa::available() {
            let got = isa.run(Everything);
            for ((name, want), (_, got)) in want.iter().zip(&got) {
                // Masks name up to eight lanes here, which begin each vector: compare the vectors all sets share.
                let shared = |v: &[u32]| Vec::from_iter(v.chunks(16).flat_map(|c| c[..8].to_vec()));
                let masked = name.ends_with("_masked")
                    || ["load_even", "load_even_unordered", "unzip_unordered", "store_compressed", "first of zip"]
                        .contains(name);
                if masked {
                    assert_eq!(shared(want), shared(got), "{isa} {name}");
                } else {
                    assert_eq!(want, got, "{isa} {name}");
                }
            }
        }
    }
}
