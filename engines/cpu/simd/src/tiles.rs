//! Products of matrices on tiles of bf16, with sums in `f32`.
//!
//! A value is a sum of bf16 terms, each the one nearest to what the ones before it leave: one for bf16, two for f16, and three
//! for `f32`, whose 24 digits are those of three terms. A product of two values is the sum of the products of their terms. Of
//! `f32` values the three that come last, third and second terms or third ones, are left out: with u = 2⁻²⁴, terms of a value x
//! are at most |x|(1 + 2⁻⁸), 2⁻⁸|x| and 2⁻¹⁷·|x|, what is left out at most (2·2⁻²⁵ + 2⁻³⁴)|x·y| < 1.01·u|x·y|: as much as one
//! rounding. The instruction takes terms below 2⁻¹²⁶ as zeros: of a value above 2⁻¹⁰⁰ that is less than u/4. This is the
//! splitting of G. Henry, P. Tang, A. Heinecke, Leveraging the bfloat16 artificial intelligence datatype for higher-precision
//! computations (arXiv:1904.06376).
//!
//! Values that are infinite or no numbers have no such terms, and those of which all are tiny lose digits: [`Range`] tells, they are
//! split another way, and [`Multiplier`] multiplies the terms with vectors.

#[cfg(target_arch = "x86_64")]
mod dots;

#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx512Bf16, Tiles};
use crate::isa::{Isa, Kernel, MAX_LANES, Simd};
#[cfg(target_arch = "x86_64")]
use std::arch::asm;
#[cfg(target_arch = "x86_64")]
use std::mem::offset_of;

/// Rows of a tile, and columns of one of sums.
pub const TILE: usize = 16;
/// Number of places of the sum that a pair of tiles has.
pub const DEPTH: usize = 32;
/// Bytes of a tile.
pub const TILE_BYTES: usize = 1024;
/// Binary exponent, negated, below which all values have to be for terms to be lost.
const TINY: u32 = 100;
/// Maximum number of terms of a value.
pub const MAX_TERMS: usize = 3;

/// Way of splitting: each term is the nearest one.
pub const ROUNDED: u8 = 0;
/// Way of splitting [`Values::Large`].
pub const CUT: u8 = 1;
/// Way of splitting [`Values::Tiny`]: rounded, after a multiplication by 2¹⁰⁰, which [`Values::scale`] takes back.
pub const SCALED: u8 = 2;

/// Splits the lanes into `T` terms, whose lower 16 bits are zero. `CUT`: terms are cut off instead of rounded, so that the largest
/// finite values keep their digits, infinities have an infinite first term and NaN a NaN among theirs.
#[inline(always)]
pub fn split<S: Simd, const T: usize, const HOW: u8>(s: S, value: S::V) -> [S::V; T] {
    let mut rest = match HOW {
        // Quiet: what a NaN is told by may be in its lower half.
        CUT => s.add(value, s.splat(0.0)),
        SCALED => s.mul(value, s.splat(f32::from_bits((127 + TINY) << 23))),
        _ => value,
    };
    let mut terms = [rest; T];
    for term in terms.iter_mut().take(T - 1) {
        *term = if HOW == CUT { cut(s, rest) } else { s.round_to_upper(rest) };
        rest = s.sub(rest, *term);
    }
    terms[T - 1] = rest;
    terms
}

/// Lanes without their lower 16 bits.
#[inline(always)]
fn cut<S: Simd>(s: S, value: S::V) -> S::V {
    s.pair_upper(s.splat(0.0), value)
}

/// Order of the places of the sum in a tile, of [`DEPTH`] places: which two are a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// Places 2i and 2i + 1: values of a left side follow each other in memory.
    Neighbors,
    /// Places i and i + 16, the halves of the tile: a left side is paired without moving lanes.
    Halves,
}

impl Pairs {
    /// Places of pair `i` of a tile.
    #[inline(always)]
    pub fn places(self, i: usize) -> [usize; 2] {
        match self {
            Pairs::Neighbors => [2 * i, 2 * i + 1],
            Pairs::Halves => [i, i + TILE],
        }
    }

    /// Pair of a place, and which of its two it is.
    fn pair(self, place: usize) -> (usize, usize) {
        match self {
            Pairs::Neighbors => (place / 2, place % 2),
            Pairs::Halves => (place % TILE, place / TILE),
        }
    }
}

/// Largest magnitude of values that were split.
#[derive(Clone, Copy)]
pub struct Range<S: Simd>(S::V);

impl<S: Simd> Range<S> {
    /// Makes the range of no values.
    #[inline(always)]
    pub fn new(s: S) -> Range<S> {
        Range(s.splat(0.0))
    }

    /// Adds the lanes.
    #[inline(always)]
    pub fn add(&mut self, s: S, value: S::V) {
        self.0 = s.max_bits(self.0, s.abs(value));
    }

    /// Kind of the values.
    #[inline(always)]
    pub fn kind(&self, s: S) -> Values {
        /// Bits of the smallest value that is rounded to an infinite term, and of the smallest largest one whose terms are not lost.
        const TOO_LARGE: u32 = 0x7f7f_8000;
        const TOO_SMALL: u32 = (127 - TINY) << 23;
        let mut lanes = [0f32; MAX_LANES];
        // SAFETY: the array takes the widest vector.
        unsafe { s.store(lanes.as_mut_ptr(), self.0) };
        let largest = lanes.iter().take(S::LANES).map(|lane| lane.to_bits()).max().unwrap_or(0);
        match largest {
            TOO_LARGE.. => Values::Large,
            1..TOO_SMALL => Values::Tiny,
            _ => Values::Ordinary,
        }
    }
}

/// Kind of values, as far as tiles are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Their terms say it all.
    Ordinary,
    /// All of them are so small that terms are lost: they have to be [`SCALED`].
    Tiny,
    /// Some are infinite, no numbers, or rounded to infinity: terms have to be [`CUT`].
    Large,
}

impl Values {
    /// Factor of products with terms of such values.
    pub fn scale(self) -> f32 {
        if self == Values::Tiny { f32::from_bits((127 - TINY) << 23) } else { 1.0 }
    }

    /// Kind of a number that `self as u8` gave.
    pub fn of_number(number: u8) -> Values {
        [Values::Ordinary, Values::Tiny, Values::Large][usize::from(number.min(2))]
    }
}

/// Splitting of some values: a loop that is compiled for each number of terms and way of splitting. It is passed by value: behind a
/// reference its fields are read again after every store.
pub trait Splitting: Copy {
    /// Splits the values; their kind. The body has to be `#[inline(always)]`.
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values;

    /// Splits the values into `T` terms the way that their kind wants: seldom twice.
    #[inline(always)]
    fn split_by_kind<S: Simd, const T: usize>(self, s: S) -> Values {
        let kind = s.call(Way::<Self, T, ROUNDED>(self));
        match kind {
            Values::Ordinary => kind,
            Values::Large => s.call(Way::<Self, T, CUT>(self)),
            Values::Tiny => s.call(Way::<Self, T, SCALED>(self)),
        }
    }

    /// Splits the values into `terms` terms, as [`Splitting::split_by_kind`].
    #[inline(always)]
    fn split_by_terms<S: Simd>(self, s: S, terms: usize) -> Values {
        match terms {
            1 => self.split_by_kind::<S, 1>(s),
            2 => self.split_by_kind::<S, 2>(s),
            _ => self.split_by_kind::<S, MAX_TERMS>(s),
        }
    }
}

/// Kernel of a splitting into `T` terms, one way.
struct Way<P, const T: usize, const HOW: u8>(P);

impl<P: Splitting, const T: usize, const HOW: u8> Kernel for Way<P, T, HOW> {
    type Output = Values;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Values {
        self.0.split::<S, T, HOW>(s)
    }
}

/// Writes the terms of `count` values behind each other, those of a term `plane` apart from the next. Whole vectors are written, with
/// zeros behind the last value. `load` gives so many lanes from a place on, and zeros.
///
/// # Safety
/// `load` may be called for all values; `count` values, rounded up to whole vectors, can be written at each term's place.
#[inline(always)]
pub unsafe fn split_row<S: Simd, const T: usize, const HOW: u8>(
    s: S,
    range: &mut Range<S>,
    count: usize,
    load: impl Fn(usize, usize) -> S::V,
    to: *mut u16,
    plane: usize,
) {
    let mut i = 0;
    while i < count {
        let value = load(i, S::LANES.min(count - i));
        range.add(s, value);
        let terms = split::<S, T, HOW>(s, value);
        for (term, value) in terms.into_iter().enumerate() {
            // SAFETY: the caller's duty.
            unsafe { s.store_upper(S::LANES, to.add(term * plane + i), value) };
        }
        i += S::LANES;
    }
}

/// Writes the tiles of some places of the sum of a right side: for each [`DEPTH`] places, `step` bytes apart, for each term for each of
/// `columns` tiles of columns its [`TILE_BYTES`]: rows of a pair of places, of each column both. Places behind `depth` are zeros. The last
/// term comes first, as products need them. `order` says which places are pairs.
///
/// # Safety
/// `depth` rows of `columns·TILE` values, of this distance, can be read; there is room for the tiles at `to`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix, its sizes and order, and where its tiles go")]
pub unsafe fn split_right<S: Simd, const T: usize, const HOW: u8>(
    s: S,
    range: &mut Range<S>,
    order: Pairs,
    columns: usize,
    depth: usize,
    (from, pitch): (*const f32, usize),
    to: *mut u8,
    step: usize,
) {
    let width = columns * TILE;
    let mut pair = 0;
    while pair < depth.next_multiple_of(DEPTH) / 2 {
        let (tile, row) = (pair / TILE, pair % TILE);
        let to = to.wrapping_add(tile * step + row * 4 * TILE).cast::<f32>();
        let mut column = 0;
        while column < width {
            let value = |place: usize| {
                if place < depth {
                    // SAFETY: the caller's duty.
                    unsafe { s.load(from.add(place * pitch + column)) }
                } else {
                    s.splat(0.0)
                }
            };
            let [even, odd] = order.places(row);
            let (even, odd) = (value(tile * DEPTH + even), value(tile * DEPTH + odd));
            range.add(s, even);
            range.add(s, odd);
            let (even, odd) = (split::<S, T, HOW>(s, even), split::<S, T, HOW>(s, odd));
            for term in 0..T {
                let at = ((T - 1 - term) * columns + column / TILE) * TILE * TILE + column % TILE;
                // SAFETY: the caller's duty: the tile's row.
                unsafe { s.store(to.wrapping_add(at), s.pair_upper(even[term], odd[term])) };
            }
            column += S::LANES;
        }
        pair += 1;
    }
}

/// Writes the terms of [`DEPTH`] values as pairs of halves, those of a term `plane` values apart from the next. `load` gives the lanes
/// from a place on.
///
/// # Safety
/// `load` may be called for all values; [`DEPTH`] values can be written at each term's place.
#[inline(always)]
pub unsafe fn split_halves<S: Simd, const T: usize, const HOW: u8>(
    s: S,
    range: &mut Range<S>,
    load: impl Fn(usize) -> S::V,
    to: *mut u16,
    plane: usize,
) {
    let mut i = 0;
    while i < TILE {
        // SAFETY: the caller's duty.
        unsafe { split_pair::<S, T, HOW>(s, range, [load(i), load(i + TILE)], to.add(2 * i), plane as isize) };
        i += S::LANES;
    }
}

/// Writes the terms of pairs of values, those of a term `plane` values behind the one before, or before it.
///
/// # Safety
/// Two values for each lane can be written at each term's place.
#[inline(always)]
pub unsafe fn split_pair<S: Simd, const T: usize, const HOW: u8>(
    s: S,
    range: &mut Range<S>,
    pair: [S::V; 2],
    to: *mut u16,
    plane: isize,
) {
    range.add(s, pair[0]);
    range.add(s, pair[1]);
    let (even, odd) = (split::<S, T, HOW>(s, pair[0]), split::<S, T, HOW>(s, pair[1]));
    for term in 0..T {
        // SAFETY: the caller's duty.
        unsafe { s.store(to.offset(term as isize * plane).cast(), s.pair_upper(even[term], odd[term])) };
    }
}

/// Arguments of a product: `c[row][column] = sum over t, k of a[taps[t] + row][k] · b[t][k][column]`, for one or two
/// tiles of rows and of columns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TileProduct {
    /// Offsets of the taps in `a`, in bytes.
    pub taps: *const usize,
    /// Number of taps.
    pub count: usize,
    /// Number of places of the sum of a tap, and of tiles that they take: places behind them are zeros in `b`.
    pub depth: usize,
    /// Number of tiles of the sum of a tap.
    pub steps: usize,
    /// Left side: the first term of the first row's first place.
    pub a: *const u8,
    /// Bytes from a row to the next.
    pub row: usize,
    /// Bytes from the first tile of rows to the second.
    pub second: usize,
    /// Bytes from a term to the next.
    pub term: usize,
    /// Bytes from the places of the sum of a step to those of the next.
    pub step: usize,
    /// Order of both sides' places of the sum.
    pub order: Pairs,
    /// Right side: for each step for each tap its tiles, as of [`split_right`].
    pub b: *const u8,
    /// Sums.
    pub c: *mut f32,
    /// Bytes from a row of sums to the next.
    pub to: usize,
}

#[cfg(target_arch = "x86_64")]
macro_rules! left {
    (1, $term:literal) => {
        concat!("tileloadd tmm4, [{p", $term, "} + {row}]")
    };
    (2, $term:literal) => {
        concat!("tileloadd tmm4, [{p", $term, "} + {row}]\n", "tileloadd tmm5, [{q", $term, "} + {row}]")
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! right {
    (1, $term:literal) => {
        concat!("tileloadd tmm6, [{b} + {line} + 1024 * ", $term, "]")
    };
    (2, $term:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {line} + 2048 * ",
            $term,
            "]\n",
            "tileloadd tmm7, [{b} + {line} + 2048 * ",
            $term,
            " + 1024]"
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! products {
    (1, 1) => {
        "tdpbf16ps tmm0, tmm4, tmm6"
    };
    (1, 2) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7"
    };
    (2, 1) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm2, tmm5, tmm6"
    };
    (2, 2) => {
        "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7\n\
         tdpbf16ps tmm2, tmm5, tmm6\ntdpbf16ps tmm3, tmm5, tmm7"
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! stores {
    (1, 1) => {
        "tilestored [{p0} + {row}], tmm0"
    };
    (1, 2) => {
        "tilestored [{p0} + {row}], tmm0\ntilestored [{p0} + {row} + 64], tmm1"
    };
    (2, 1) => {
        "tilestored [{p0} + {row}], tmm0\ntilestored [{q0} + {row}], tmm2"
    };
    (2, 2) => {
        "tilestored [{p0} + {row}], tmm0\ntilestored [{p0} + {row} + 64], tmm1\n\
         tilestored [{q0} + {row}], tmm2\ntilestored [{q0} + {row} + 64], tmm3"
    };
}

/// Function of a product with so many tiles of rows and columns and terms of either side. Terms are loaded in the order in which fewest
/// have to be loaded again: 14 tiles for 24 products of three terms.
#[cfg(target_arch = "x86_64")]
macro_rules! product {
    ($name:ident, $m:tt, $n:tt, $terms:literal, $($step:expr),+) => {
        unsafe fn $name(job: &TileProduct) {
            let mut job = *job;
            // SAFETY: the caller's duty: tiles are configured, and the job's memory can be read and written. The job is a copy, in which the
            // steps are counted down.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "mov {b}, [{job} + {right}]",
                    "mov {row}, [{job} + {row_at}]",
                    "mov {term}, [{job} + {term_at}]",
                    "2:",
                    "mov {tap}, [{job} + {taps}]",
                    "mov {k}, [{job} + {count}]",
                    "3:",
                    "mov {p0}, [{tap}]",
                    "mov {q0}, [{job} + {second}]",
                    "add {tap}, 8",
                    "add {p0}, [{job} + {left}]",
                    "add {q0}, {p0}",
                    "lea {p1}, [{p0} + {term}]",
                    "lea {q1}, [{q0} + {term}]",
                    "lea {p2}, [{p1} + {term}]",
                    "lea {q2}, [{q1} + {term}]",
                    $($step,)+
                    concat!("add {b}, 1024 * ", $n, " * ", $terms),
                    "dec {k}",
                    "jnz 3b",
                    "mov {p0}, [{job} + {step}]",
                    "add [{job} + {left}], {p0}",
                    "dec qword ptr [{job} + {steps}]",
                    "jnz 2b",
                    "mov {p0}, [{job} + {sums}]",
                    "mov {row}, [{job} + {to}]",
                    "mov {q0}, {row}",
                    "shl {q0}, 4",
                    "add {q0}, {p0}",
                    stores!($m, $n),
                    job = in(reg) &raw mut job,
                    line = in(reg) 64usize,
                    b = out(reg) _,
                    row = out(reg) _,
                    k = out(reg) _,
                    tap = out(reg) _,
                    term = out(reg) _,
                    p0 = out(reg) _,
                    p1 = out(reg) _,
                    p2 = out(reg) _,
                    q0 = out(reg) _,
                    q1 = out(reg) _,
                    q2 = out(reg) _,
                    taps = const offset_of!(TileProduct, taps),
                    count = const offset_of!(TileProduct, count),
                    steps = const offset_of!(TileProduct, steps),
                    left = const offset_of!(TileProduct, a),
                    row_at = const offset_of!(TileProduct, row),
                    second = const offset_of!(TileProduct, second),
                    term_at = const offset_of!(TileProduct, term),
                    step = const offset_of!(TileProduct, step),
                    right = const offset_of!(TileProduct, b),
                    sums = const offset_of!(TileProduct, c),
                    to = const offset_of!(TileProduct, to),
                    out("tmm0") _,
                    out("tmm1") _,
                    out("tmm2") _,
                    out("tmm3") _,
                    out("tmm4") _,
                    out("tmm5") _,
                    out("tmm6") _,
                    out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

/// Products of each number of terms.
#[cfg(target_arch = "x86_64")]
macro_rules! product_of_terms {
    ($one:ident, $two:ident, $three:ident, $three_by_one:ident, $one_by_three:ident, $m:tt, $n:tt) => {
        product!($one, $m, $n, 1, left!($m, 0), right!($n, 0), products!($m, $n));
        product!(
            $two,
            $m,
            $n,
            2,
            left!($m, 0),
            right!($n, 0),
            products!($m, $n),
            right!($n, 1),
            products!($m, $n),
            left!($m, 1),
            products!($m, $n),
            right!($n, 0),
            products!($m, $n)
        );
        product!(
            $three,
            $m,
            $n,
            3,
            left!($m, 0),
            right!($n, 0),
            products!($m, $n),
            right!($n, 1),
            products!($m, $n),
            left!($m, 1),
            products!($m, $n),
            right!($n, 2),
            products!($m, $n),
            left!($m, 0),
            products!($m, $n),
            left!($m, 2),
            products!($m, $n)
        );
        product!(
            $three_by_one,
            $m,
            $n,
            1,
            left!($m, 0),
            right!($n, 0),
            products!($m, $n),
            left!($m, 1),
            products!($m, $n),
            left!($m, 2),
            products!($m, $n)
        );
        product!(
            $one_by_three,
            $m,
            $n,
            3,
            left!($m, 0),
            right!($n, 0),
            products!($m, $n),
            right!($n, 1),
            products!($m, $n),
            right!($n, 2),
            products!($m, $n)
        );
    };
}

#[cfg(target_arch = "x86_64")]
product_of_terms!(one_1x1, two_1x1, three_1x1, three_by_one_1x1, one_by_three_1x1, 1, 1);
#[cfg(target_arch = "x86_64")]
product_of_terms!(one_1x2, two_1x2, three_1x2, three_by_one_1x2, one_by_three_1x2, 1, 2);
#[cfg(target_arch = "x86_64")]
product_of_terms!(one_2x1, two_2x1, three_2x1, three_by_one_2x1, one_by_three_2x1, 2, 1);
#[cfg(target_arch = "x86_64")]
product_of_terms!(one_2x2, two_2x2, three_2x2, three_by_one_2x2, one_by_three_2x2, 2, 2);

/// Multiplier of terms: on the thread's matrix tiles, which are configured while it lives, with products of pairs, or with vectors, where
/// the set has neither or they lose values.
pub struct Multiplier {
    #[cfg(target_arch = "x86_64")]
    tiles: Option<Tiles>,
    #[cfg(target_arch = "x86_64")]
    pairs: Option<Avx512Bf16>,
}

impl Multiplier {
    /// Makes the multiplier of a set, and configures the thread's tiles if it has some.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "no such set has tiles"))]
    pub fn new(isa: Isa) -> Multiplier {
        Multiplier {
            #[cfg(target_arch = "x86_64")]
            tiles: isa.tiles().map(|token| token.configure()),
            #[cfg(target_arch = "x86_64")]
            pairs: isa.bf16_pairs(),
        }
    }

    /// Multiplies `size` tiles of rows and columns, one or two of each, of values of `terms` terms on the left and the right: as many, or
    /// three and one. `kinds` are those of the values of both sides.
    ///
    /// # Safety
    /// As in [`TileProduct`]: whole tiles of `a`, `b` and `c` can be read and written, and there is a tap and a step.
    #[inline(always)]
    pub unsafe fn run<S: Simd>(
        &self,
        s: S,
        job: &TileProduct,
        terms: [usize; 2],
        kinds: [Values; 2],
        size: (usize, usize),
    ) {
        // SAFETY: the caller's duty.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if kinds == [Values::Ordinary; 2] {
                if let Some(tiles) = &self.tiles {
                    return multiply(tiles, job, terms, size);
                }
                if let (Some(token), [1, 1]) = (self.pairs, terms) {
                    return dots::multiply(token, job, size);
                }
            }
            multiply_plain(s, job, terms, size, kinds[0].scale() * kinds[1].scale());
        }
    }
}

/// Multiplies on tiles: `size` tiles of rows and columns, one or two of each, of values of `terms` terms on the left and the right:
/// as many, or three and one.
///
/// # Safety
/// As in [`TileProduct`]: whole tiles of `a`, `b` and `c` can be read and written, and there is a tap and a step.
#[cfg(target_arch = "x86_64")]
unsafe fn multiply(_: &Tiles, job: &TileProduct, terms: [usize; 2], size: (usize, usize)) {
    macro_rules! of_size {
        ($one:ident, $two:ident, $three:ident, $three_by_one:ident, $one_by_three:ident) => {
            match terms {
                [1, 1] => $one,
                [2, 2] => $two,
                [3, 3] => $three,
                [3, 1] => $three_by_one,
                [1, 3] => $one_by_three,
                _ => unreachable!("expected as many terms, or three and one, got {terms:?}"),
            }
        };
    }
    let function: unsafe fn(&TileProduct) = match size {
        (1, 1) => of_size!(one_1x1, two_1x1, three_1x1, three_by_one_1x1, one_by_three_1x1),
        (1, 2) => of_size!(one_1x2, two_1x2, three_1x2, three_by_one_1x2, one_by_three_1x2),
        (2, 1) => of_size!(one_2x1, two_2x1, three_2x1, three_by_one_2x1, one_by_three_2x1),
        (2, 2) => of_size!(one_2x2, two_2x2, three_2x2, three_by_one_2x2, one_by_three_2x2),
        _ => unreachable!("expected one or two tiles of rows and of columns, got {size:?}"),
    };
    // SAFETY: the caller's duty; the configured tiles are the proof that there are such instructions.
    unsafe { function(job) }
}

/// Variant of [`multiply`] with vectors, of which the sums are multiplied by `scale`.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_plain<S: Simd>(
    s: S,
    job: &TileProduct,
    [left, right]: [usize; 2],
    (rows, columns): (usize, usize),
    scale: f32,
) {
    let width = columns * TILE;
    let mut sums = [[0f32; 2 * TILE]; 2 * TILE];
    // SAFETY: the caller's duty; any value of a tile's rows is at a multiple of two bytes.
    unsafe {
        for tap in 0..job.count {
            for k in 0..job.depth {
                let step = k / DEPTH;
                let (pair, of_pair) = job.order.pair(k % DEPTH);
                let a = job.a.wrapping_add(*job.taps.add(tap) + step * job.step + pair * 4 + of_pair * 2);
                let b = job.b.wrapping_add((step * job.count + tap) * right * columns * TILE_BYTES);
                let b = b.wrapping_add(pair * 4 * TILE + of_pair * 2);
                let mut values = [0f32; 2 * TILE];
                for (column, to) in values.iter_mut().take(width).enumerate() {
                    let distance = columns * TILE_BYTES;
                    let b = b.wrapping_add((right - 1) * distance + column / TILE * TILE_BYTES + column % TILE * 4);
                    *to = sum_of_terms(b, -(distance as isize), right);
                }
                for (row, sums) in sums.iter_mut().take(rows * TILE).enumerate() {
                    let place = row / TILE * job.second + row % TILE * job.row;
                    let factor = s.splat(sum_of_terms(a.wrapping_add(place), job.term as isize, left));
                    let mut v = 0;
                    while v < width {
                        let sum = s.fma(factor, s.load(values.as_ptr().add(v)), s.load(sums.as_ptr().add(v)));
                        s.store(sums.as_mut_ptr().add(v), sum);
                        v += S::LANES;
                    }
                }
            }
        }
        for (row, sums) in sums.iter().take(rows * TILE).enumerate() {
            let to = job.c.byte_add(row * job.to);
            for (column, sum) in sums.iter().take(width).enumerate() {
                *to.add(column) = sum * scale;
            }
        }
    }
}

/// Value that was split into the terms at `p`, `distance` bytes apart.
///
/// # Safety
/// Those can be read.
#[inline(always)]
unsafe fn sum_of_terms(p: *const u8, distance: isize, terms: usize) -> f32 {
    // SAFETY: the caller's duty.
    let term = |term: usize| unsafe {
        f32::from_bits(u32::from(p.offset(term as isize * distance).cast::<u16>().read_unaligned()) << 16)
    };
    let mut sum = term(0);
    let mut next = 1;
    // The others of an infinite value are no numbers.
    while next < terms && sum.is_finite() {
        sum += term(next);
        next += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of `rows` by `columns` tiles with the left side's taps some rows apart, computed by the set's multiplier or plainly.
    struct Case<'a, const T: usize, const HOW: u8> {
        size: (usize, usize),
        depth: usize,
        left: &'a [f32],
        right: &'a [f32],
        plain: bool,
        isa: Isa,
    }

    const TAPS: usize = 2;

    impl<const T: usize, const HOW: u8> Kernel for Case<'_, T, HOW> {
        type Output = (Vec<f32>, [Values; 2]);
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let (rows, columns) = (self.size.0 * TILE, self.size.1 * TILE);
            let steps = self.depth.div_ceil(DEPTH);
            // Rows of an odd number of values, and behind the last what a tile reads in vain.
            let plane = (rows + TAPS) * self.depth + DEPTH + MAX_LANES;
            let mut a = vec![0u16; T * plane];
            let mut b = vec![0f32; TAPS * steps * T * self.size.1 * TILE_BYTES / 4];
            let mut c = vec![f32::NAN; rows * columns];
            let (mut of_left, mut of_right) = (Range::new(s), Range::new(s));
            let taps = [self.depth * 2, 0];
            // SAFETY: masked loads end with the values, of which there are `rows + TAPS` rows; vectors have the sizes of what they take.
            unsafe {
                let load =
                    |i: usize, lanes: usize| s.load_masked(s.mask(crate::isa::first(lanes)), self.left.as_ptr().add(i));
                split_row::<S, T, HOW>(s, &mut of_left, self.left.len(), load, a.as_mut_ptr(), plane);
                for tap in 0..TAPS {
                    let from = self.right.as_ptr().add(tap * self.depth * columns);
                    let tiles = T * self.size.1 * TILE_BYTES;
                    let to = b.as_mut_ptr().cast::<u8>().add(tap * tiles);
                    split_right::<S, T, HOW>(
                        s,
                        &mut of_right,
                        Pairs::Neighbors,
                        self.size.1,
                        self.depth,
                        (from, columns),
                        to,
                        TAPS * tiles,
                    );
                }
                let job = TileProduct {
                    taps: taps.as_ptr(),
                    count: TAPS,
                    depth: self.depth,
                    steps,
                    a: a.as_ptr().cast(),
                    row: 2 * self.depth,
                    second: TILE * 2 * self.depth,
                    term: 2 * plane,
                    step: 2 * DEPTH,
                    order: Pairs::Neighbors,
                    b: b.as_ptr().cast(),
                    c: c.as_mut_ptr(),
                    to: 4 * columns,
                };
                if self.plain {
                    multiply_plain(s, &job, [T; 2], self.size, 1.0);
                } else {
                    Multiplier::new(self.isa).run(s, &job, [T; 2], [Values::Ordinary; 2], self.size);
                }
            }
            (c, [of_left.kind(s), of_right.kind(s)])
        }
    }

    fn check<const T: usize>(isa: Isa, plain: bool, digits: u32) {
        let mut random = fastrand::Rng::with_seed(7);
        for size in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            for depth in [1, 2, 31, 32, 45, 96] {
                let (rows, columns) = (size.0 * TILE, size.1 * TILE);
                let mask = u32::MAX << (24 - digits);
                let mut values = |count: usize| {
                    Vec::from_iter((0..count).map(|_| f32::from_bits((random.f32() * 2.0 - 1.0).to_bits() & mask)))
                };
                let (left, right) = (values((rows + TAPS) * depth), values(TAPS * depth * columns));
                let case = Case::<T, ROUNDED> { size, depth, left: &left, right: &right, plain, isa };
                let (got, kinds) = isa.run(case);
                assert_eq!(kinds, [Values::Ordinary; 2]);
                for row in 0..rows {
                    for column in 0..columns {
                        let (mut sum, mut magnitude) = (0.0, 0.0);
                        for (tap, first) in [1, 0].into_iter().enumerate() {
                            for k in 0..depth {
                                let a = f64::from(left[(first + row) * depth + k]);
                                let product = a * f64::from(right[(tap * depth + k) * columns + column]);
                                sum += product;
                                magnitude += product.abs();
                            }
                        }
                        // As of a sum of so many products in any order, and one rounding more.
                        let bound = (TAPS * depth + 3) as f64 * f64::from(f32::EPSILON) / 2.0 * magnitude;
                        let off = (f64::from(got[row * columns + column]) - sum).abs();
                        assert!(off <= bound, "{isa}, {T} terms, {size:?}, depth {depth}: {off:e} of {bound:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_terms_are_products_of_values() {
        for isa in Isa::available() {
            for plain in [false, true] {
                check::<1>(isa, plain, 8);
                check::<2>(isa, plain, 11);
                check::<3>(isa, plain, 24);
            }
        }
    }

    #[test]
    fn awkward_values_are_told_and_kept() {
        let signaling = f32::from_bits(0x7f80_0001);
        for isa in Isa::available() {
            for (value, kind) in [
                (f32::INFINITY, Values::Large),
                (f32::NEG_INFINITY, Values::Large),
                (signaling, Values::Large),
                (f32::MAX, Values::Large),
                (f32::MIN_POSITIVE * 1.25, Values::Tiny),
                (f32::from_bits(1), Values::Tiny),
                (0.0, Values::Ordinary),
                (1e30, Values::Ordinary),
            ] {
                let mut left = vec![0.0; (TILE + TAPS) * 3];
                left[4] = value;
                let mut right = vec![0.0; TAPS * 3 * TILE];
                right[TILE] = 1.0;
                right[3 * TILE + TILE] = 1.0;
                let size = (1, 1);
                let case = Case::<3, CUT> { size, depth: 3, left: &left, right: &right, plain: true, isa };
                let (got, [kind_of_left, _]) = isa.run(case);
                assert_eq!(kind_of_left, kind, "{isa}, {value:e}");
                // Terms have no digits below this.
                let lost = if value.is_finite() { (got[0] - value).abs() <= 2f32.powi(-133) } else { got[0] == value };
                assert!(lost || got[0].is_nan() && value.is_nan(), "{isa}: expected {value:e}, got {:e}", got[0]);
                if value.is_finite() {
                    assert!(got[TILE + 1] == 0.0, "{isa}, {value:e}: other columns are sums of zeros");
                }
            }
        }
    }
}
