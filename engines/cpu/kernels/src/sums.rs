//! Sums of rows of `f32` in `f64`, in full vectors.
//!
//! Sums are kept side by side, as many for all instruction sets: the order of a sum follows from the number of its terms
//! alone, but for squares of differences, also from whether they are in the range of `f32`. Loops over iterators that add `f64` of `f32` are compiled to vectors of two `f64`, whatever the set.

use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};

/// Number of sums of each term side by side; fewer where there are several terms, so that registers hold them.
const SIDE: usize = 32;

/// Vectors that these are, of the fewest lanes.
const VECTORS: usize = SIDE / 8;

/// Sum of the values.
#[inline(always)]
pub fn sum<S: Simd>(s: S, values: &[f32]) -> f64 {
    let [sum] = fold(
        s,
        values,
        0.0,
        identity::<S>,
        #[inline(always)]
        |[sum], value| [s.add_wide(sum, value)],
    );
    sum
}

/// Sum of the squares of the values. A square has all its digits.
#[inline(always)]
pub fn sum_of_squares<S: Simd>(s: S, values: &[f32]) -> f64 {
    let [sum] = fold(
        s,
        values,
        0.0,
        identity::<S>,
        #[inline(always)]
        |[sum], value| [s.fma_wide(value, value, sum)],
    );
    sum
}

/// Sum of the squares of `value - from`, each difference rounded to `f32`.
///
/// In whole blocks of [`BLOCK`] values squares are rounded too, and added by fours, before they are widened: an error of at most 3 units
/// of `f32` in the last place of the sum, whose terms have one sign. Where they are beyond the range of `f32`, all are `f64`.
#[inline(always)]
pub fn sum_of_squares_from<S: Simd>(s: S, values: &[f32], from: f32) -> f64 {
    let by = s.splat(from);
    let squares = |values: &[f32]| {
        let [sum] = fold(
            s,
            values,
            0.0,
            #[inline(always)]
            |value| s.sub(value, by),
            #[inline(always)]
            |[sum], difference| [s.fma_wide(difference, difference, sum)],
        );
        sum
    };
    let (whole, rest) = values.split_at(values.len() / BLOCK * BLOCK);
    let sum = blocks_of_squares(s, whole, by) + squares(rest);
    // Beyond these bounds squares, of which single precision has too few or none, may be in the sum.
    if whole.is_empty() || (SINGLE_SQUARE * values.len() as f64..f64::from(f32::MAX)).contains(&sum) {
        return sum;
    }
    squares(values)
}

/// Mean square from which on those that are lost in single precision don't count.
const SINGLE_SQUARE: f64 = 1e-29;

/// Number of squares of which one in [`SIDE`] is added to the same sum.
const FOURS: usize = 4;

/// Number of values of a block of squares.
const BLOCK: usize = FOURS * SIDE;

/// Sum of the squares of differences from `by`, of whole blocks.
#[inline(always)]
fn blocks_of_squares<S: Simd>(s: S, values: &[f32], by: S::V) -> f64 {
    let vectors = const { SIDE / S::LANES };
    let mut sums = [[s.splat_wide(0.0); 2]; VECTORS];
    for block in (0..values.len()).step_by(BLOCK) {
        for (vector, sums) in sums.iter_mut().enumerate().take(vectors) {
            let mut squares = [by; FOURS];
            for (four, square) in squares.iter_mut().enumerate() {
                // SAFETY: a vector of the block, of which there are whole ones.
                let value = unsafe { s.load(values.as_ptr().add(block + four * SIDE + vector * S::LANES)) };
                let difference = s.sub(value, by);
                *square = s.mul(difference, difference);
            }
            let [a, b, c, d] = squares;
            *sums = add_widened(s, *sums, s.add(s.add(a, b), s.add(c, d)));
        }
    }
    total_of_vectors(s, sums, vectors)
}

/// Adds the squares of the differences of values from a number to a sum, of as many groups of values, one after the other, as
/// there are sums and numbers: [`sum_of_squares_from`].
///
/// # Panics
/// If there are not as many sums and numbers.
pub fn add_squares_from(isa: Isa, values: &[f32], from: &[f32], sums: &mut [f64]) {
    assert_eq!(from.len(), sums.len(), "a number for each sum");
    isa.run(AddSquaresFrom { values, from, sums });
}

struct AddSquaresFrom<'a> {
    values: &'a [f32],
    from: &'a [f32],
    sums: &'a mut [f64],
}

impl Kernel for AddSquaresFrom<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.values.len() / self.sums.len().max(1);
        for (group, sum) in self.sums.iter_mut().enumerate() {
            *sum += sum_of_squares_from(s, &self.values[group * len..(group + 1) * len], self.from[group]);
        }
    }
}

/// Rows of elements, of which each has one for each of some results.
#[derive(Clone, Copy)]
pub struct ElementRows {
    /// First element of the first row.
    pub first: *const f32,
    /// Stride between rows, in elements.
    pub stride: usize,
    /// Number of rows.
    pub count: usize,
}

/// Adds the elements of rows, or their squares, to the sums of their columns, in the order of rows.
///
/// # Safety
/// Each of the rows can be read, as many elements as there are sums.
pub unsafe fn add_rows(isa: Isa, sums: &mut [f64], rows: ElementRows, squares: bool) {
    isa.run(AddRows { sums, rows, squares });
}

/// Number of columns that are added together: those of a cache line, of which every row's is then read once.
const LINE: usize = 16;

/// Vectors that these are, of the fewest lanes.
const LINE_VECTORS: usize = LINE / 8;

/// Number of rows that are read side by side: memory is fetched ahead of long runs, of as many as these.
pub(crate) const ROWS: usize = 8;

struct AddRows<'a> {
    sums: &'a mut [f64],
    rows: ElementRows,
    squares: bool,
}

impl Kernel for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.squares { self.add::<S, true>(s) } else { self.add::<S, false>(s) }
    }
}

impl AddRows<'_> {
    #[inline(always)]
    fn add<S: Simd, const SQUARES: bool>(self, s: S) {
        let AddRows { sums, rows: ElementRows { first, stride, count }, .. } = self;
        for row in (0..count).step_by(ROWS) {
            let rows = ElementRows { first: first.wrapping_add(row * stride), stride, count: ROWS.min(count - row) };
            AddRows::some::<S, SQUARES>(s, sums, rows);
        }
    }

    /// Adds rows that are read side by side.
    #[inline(always)]
    fn some<S: Simd, const SQUARES: bool>(s: S, sums: &mut [f64], ElementRows { first, stride, count }: ElementRows) {
        let vectors = const { LINE / S::LANES };
        let mut at = 0;
        while at + LINE <= sums.len() {
            let to = sums[at..at + LINE].as_mut_ptr();
            // SAFETY: there are so many sums from `to` on, and as many elements in each row, for which the caller of `add_rows` answers.
            unsafe {
                let half = S::LANES / 2;
                let mut lanes = [[s.splat_wide(0.0); 2]; LINE_VECTORS];
                for (vector, [low, high]) in lanes.iter_mut().enumerate().take(vectors) {
                    let from = to.add(vector * S::LANES);
                    (*low, *high) = (s.load_wide(from), s.load_wide(from.add(half)));
                }
                let mut row = first.wrapping_add(at);
                for _ in 0..count {
                    for (vector, [low, high]) in lanes.iter_mut().enumerate().take(vectors) {
                        let [a, b] = s.load_widened(row.add(vector * S::LANES));
                        if SQUARES {
                            (*low, *high) = (s.fma_wide(a, a, *low), s.fma_wide(b, b, *high));
                        } else {
                            (*low, *high) = (s.add_wide(*low, a), s.add_wide(*high, b));
                        }
                    }
                    row = row.wrapping_add(stride);
                }
                for (vector, [low, high]) in lanes.iter().enumerate().take(vectors) {
                    let to = to.add(vector * S::LANES);
                    s.store_wide(to, *low);
                    s.store_wide(to.add(half), *high);
                }
            }
            at += LINE;
        }
        for (column, sum) in sums.iter_mut().enumerate().skip(at) {
            for k in 0..count {
                // SAFETY: the row has an element of this column, for which the caller of `add_rows` answers.
                let value = f64::from(unsafe { first.wrapping_add(k * stride + column).read() });
                *sum += if SQUARES { value * value } else { value };
            }
        }
    }
}

/// Sums of the differences of the values from a finite number, and of the squares of these.
#[inline(always)]
pub fn sums_around<S: Simd>(s: S, values: &[f32], base: f32) -> [f64; 2] {
    let wide = s.splat_wide(f64::from(base));
    fold(
        s,
        values,
        base,
        identity::<S>,
        #[inline(always)]
        |[sum, squares], value| {
            let difference = s.sub_wide(value, wide);
            [s.add_wide(sum, difference), s.fma_wide(difference, difference, squares)]
        },
    )
}

#[inline(always)]
fn identity<S: Simd>(value: S::V) -> S::V {
    value
}

/// Adds up `N` terms of each value: `prepare` maps vectors of values, and `add` adds half of such a vector to the sums, which
/// it leaves as they are for `none`.
#[inline(always)]
fn fold<S: Simd, const N: usize>(
    s: S,
    values: &[f32],
    none: f32,
    prepare: impl Fn(S::V) -> S::V,
    add: impl Fn([S::W; N], S::W) -> [S::W; N],
) -> [f64; N] {
    let vectors = const { SIDE / N / S::LANES };
    let (from, len) = (values.as_ptr(), values.len());
    let mut sums = [[[s.splat_wide(0.0); N]; 2]; VECTORS];
    let mut at = 0;
    // SAFETY: so many values are left in the row.
    unsafe {
        while at + vectors * S::LANES <= len {
            for (vector, halves) in sums.iter_mut().enumerate().take(vectors) {
                let [low, high] = s.widen(prepare(s.load(from.add(at + vector * S::LANES))));
                *halves = [add(halves[0], low), add(halves[1], high)];
            }
            at += vectors * S::LANES;
        }
        for halves in sums.iter_mut().take(vectors) {
            if at < len {
                let mask = s.mask(first((len - at).min(S::LANES)));
                let value = prepare(s.load_masked(mask, from.add(at)));
                let [low, high] = s.widen(s.select(mask, value, s.splat(none)));
                *halves = [add(halves[0], low), add(halves[1], high)];
                at += S::LANES;
            }
        }
    }
    let mut results = [0f64; N];
    for (term, result) in results.iter_mut().enumerate() {
        let mut of_term = [[s.splat_wide(0.0); 2]; VECTORS];
        for (halves, sums) in of_term.iter_mut().zip(&sums).take(vectors) {
            *halves = [sums[0][term], sums[1][term]];
        }
        *result = total_of_vectors(s, of_term, vectors);
    }
    results
}

/// Sum of the lanes of the first `count` vectors, a power of two, each in halves.
#[inline(always)]
fn total_of_vectors<S: Simd>(s: S, mut sums: [[S::W; 2]; VECTORS], mut count: usize) -> f64 {
    while count > 1 {
        count /= 2;
        for vector in 0..count {
            let [low, high] = sums[vector + count];
            sums[vector] = [s.add_wide(sums[vector][0], low), s.add_wide(sums[vector][1], high)];
        }
    }
    total(s, sums[0])
}

/// Adds the lanes of a vector to sums beside each other: those of its halves.
#[inline(always)]
pub fn add_widened<S: Simd>(s: S, sums: [S::W; 2], value: S::V) -> [S::W; 2] {
    let [low, high] = s.widen(value);
    [s.add_wide(sums[0], low), s.add_wide(sums[1], high)]
}

/// Sum of the lanes of two halves.
#[inline(always)]
pub fn total<S: Simd>(s: S, [low, high]: [S::W; 2]) -> f64 {
    let mut lanes = [0f64; MAX_LANES / 2];
    // SAFETY: the array takes the widest vector.
    unsafe { s.store_wide(lanes.as_mut_ptr(), s.add_wide(low, high)) };
    let mut len = S::LANES / 4;
    while len > 0 {
        for i in 0..len {
            lanes[i] += lanes[i + len];
        }
        len /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of a row, by name.
    struct Everything<'a>(&'a [f32], f32);

    impl Kernel for Everything<'_> {
        type Output = [(&'static str, f64); 5];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let Everything(values, base) = self;
            let [differences, squares] = sums_around(s, values, base);
            [
                ("sum", sum(s, values)),
                ("squares", sum_of_squares(s, values)),
                ("squares of rounded differences", sum_of_squares_from(s, values, base)),
                ("differences", differences),
                ("squares of differences", squares),
            ]
        }
    }

    const LENGTHS: [usize; 18] = [0, 1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 40, 63, 65, 128, 197, 256, 5001];

    #[test]
    fn sums_are_those_of_a_loop_within_roundings_of_f64() {
        for (isa, len) in Isa::of_vectors().flat_map(|isa| LENGTHS.map(|len| (isa, len))) {
            let values: Vec<f32> = (0..len).map(|i| (i * 37 % 101) as f32 * 0.37 - 9.0).collect();
            let base = 3.3f32;
            let terms: [fn(f32, f32) -> f64; 5] = [
                |x, _| f64::from(x),
                |x, _| f64::from(x) * f64::from(x),
                |x, base| f64::from(x - base) * f64::from(x - base),
                |x, base| f64::from(x) - f64::from(base),
                |x, base| (f64::from(x) - f64::from(base)).powi(2),
            ];
            for ((what, got), term) in isa.run(Everything(&values, base)).into_iter().zip(terms) {
                let (mut want, mut size) = (0.0, 0.0);
                for x in &values {
                    want += term(*x, base);
                    size += term(*x, base).abs();
                }
                let unit = if what == "squares of rounded differences" { 3.0 * f64::from(f32::EPSILON) } else { 0.0 };
                let bound = (2.0 * len as f64 * f64::EPSILON + unit) * size;
                assert!((got - want).abs() <= bound, "{what} of {len}, {isa}: expected {want}, got {got}");
            }
        }
    }

    #[test]
    fn sums_have_the_same_order_for_all_sets() {
        for len in LENGTHS {
            let values: Vec<f32> = (0..len).map(|i| ((i * 7919 % 1009) as f32 - 500.0).powi(5) * 1e-3).collect();
            let want = Isa::PORTABLE.run(Everything(&values, 0.5));
            for isa in Isa::of_vectors() {
                for ((what, got), (_, want)) in isa.run(Everything(&values, 0.5)).into_iter().zip(want) {
                    // Squares of differences in `f64` are rounded, if not by a fused operation.
                    if what != "squares of differences" {
                        assert_eq!(got.to_bits(), want.to_bits(), "{what} of {len}, {isa}: {got} and {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_beyond_a_row_is_no_term_of_it() {
        for (isa, len) in Isa::of_vectors().flat_map(|isa| [1, 5, 17, 33].map(|len| (isa, len))) {
            let mut values = vec![f32::NAN; len + 40];
            values[..len].fill(2.0);
            for (what, got) in isa.run(Everything(&values[..len], -1.0)) {
                let each = match what {
                    "sum" => 2.0,
                    "squares" => 4.0,
                    "differences" => 3.0,
                    _ => 9.0,
                };
                assert_eq!(got, each * len as f64, "{what} of {len}, {isa}");
            }
        }
    }

    #[test]
    fn squares_that_single_precision_has_not_are_summed() {
        for (isa, size) in
            Isa::of_vectors().flat_map(|isa| [1e-30f32, 1e-22, 1e-17, 1e19, 1e25].map(|size| (isa, size)))
        {
            let values: Vec<f32> = (0..700).map(|i| (i % 11) as f32 * size).collect();
            let want: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            let got = isa.run(Everything(&values, 0.0))[2].1;
            assert!((got - want).abs() <= 4e-7 * want, "{isa}, {size}: expected {want}, got {got}");
        }
    }

    #[test]
    fn sums_are_wider_than_their_terms_and_keep_what_is_no_number() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (isa, len) in Isa::of_vectors().flat_map(|isa| [3, 11, 37, 70].map(|len| (isa, len))) {
            for place in [0, len / 2, len - 1] {
                let row = |value: f32| {
                    let mut values = vec![3e30f32; len];
                    values[place] = value;
                    values
                };
                let of = |value: f32, which: usize| isa.run(Everything(&row(value), 0.0))[which].1;
                for which in 0..5 {
                    assert!(of(nan, which).is_nan(), "{isa}, {place} of {len}, {which}");
                    assert_eq!(of(inf, which), f64::INFINITY, "{isa}, {place} of {len}, {which}");
                    assert!(of(1.0, which).is_finite(), "{isa}, {place} of {len}, {which}");
                }
                assert_eq!(of(-inf, 0), f64::NEG_INFINITY, "{isa}, {place} of {len}");
            }
        }
    }
}
