//! Greatest and least values of rows of `f32`, in full vectors. That of values with a NaN among them is NaN.

use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};

use crate::sums::{ElementRows, ROWS};

/// Number of vectors in which extremes are kept side by side.
const VECTORS: usize = 4;

/// Greatest or least value of a row; NaN if there is one, the neutral infinity of no values.
#[inline(always)]
pub fn extreme<S: Simd, const GREATEST: bool>(s: S, row: &[f32]) -> f32 {
    let start = neutral(GREATEST);
    // Beside the extremes the sums, of which none is a number where one of the values is not: a comparison and a choice less
    // for each vector. A NaN replaces nothing.
    let mut best = [s.splat(start); VECTORS];
    let mut sums = [s.splat(0.0); VECTORS];
    let (from, len) = (row.as_ptr(), row.len());
    let mut at = 0;
    // SAFETY: as many values are left in the row; the last loads end with it.
    unsafe {
        while at + VECTORS * S::LANES <= len {
            for i in 0..VECTORS {
                let values = s.load(from.add(at + i * S::LANES));
                best[i] = better::<S, GREATEST>(s, values, best[i]);
                sums[i] = s.add(sums[i], values);
            }
            at += VECTORS * S::LANES;
        }
        for i in 0..VECTORS {
            if at < len {
                let mask = s.mask(first((len - at).min(S::LANES)));
                let values = s.load_masked(mask, from.add(at));
                best[i] = better::<S, GREATEST>(s, s.select(mask, values, s.splat(start)), best[i]);
                sums[i] = s.add(sums[i], values);
                at += S::LANES;
            }
        }
    }
    for i in 1..VECTORS {
        best[0] = better::<S, GREATEST>(s, best[i], best[0]);
        sums[0] = s.add(sums[0], sums[i]);
    }
    let (mut lanes, mut totals) = ([start; MAX_LANES], [0f32; MAX_LANES]);
    // SAFETY: the arrays take the widest vector.
    unsafe {
        s.store(lanes.as_mut_ptr(), best[0]);
        s.store(totals.as_mut_ptr(), sums[0]);
    }
    let mut len = S::LANES / 2;
    while len > 0 {
        for i in 0..len {
            lanes[i] = better_scalar::<GREATEST>(lanes[i], lanes[i + len]);
            totals[i] += totals[i + len];
        }
        len /= 2;
    }
    // Infinities of both signs have no sum either.
    if totals[0].is_nan() { row.iter().fold(start, |best, value| exact::<GREATEST>(best, *value)) } else { lanes[0] }
}

/// Replaces each value by the better one of it and of the elements of rows in its column; NaN if there is one.
///
/// # Safety
/// Each of the rows can be read, as many elements as there are values.
pub unsafe fn extremes_of_rows(isa: Isa, values: &mut [f32], rows: ElementRows, greatest: bool) {
    isa.run(OfRows { values, rows, greatest });
}

struct OfRows<'a> {
    values: &'a mut [f32],
    rows: ElementRows,
    greatest: bool,
}

impl Kernel for OfRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.greatest { self.take::<S, true>(s) } else { self.take::<S, false>(s) }
    }
}

impl OfRows<'_> {
    #[inline(always)]
    fn take<S: Simd, const GREATEST: bool>(self, s: S) {
        let OfRows { values, rows: ElementRows { first: from, stride, count }, .. } = self;
        let mut row = 0;
        while row < count {
            let rows = ROWS.min(count - row);
            let (from, mut at) = (from.wrapping_add(row * stride), 0);
            while at < values.len() {
                let lanes = S::LANES.min(values.len() - at);
                let (mask, to) = (s.mask(first(lanes)), values[at..].as_mut_ptr());
                // SAFETY: there are so many values from `to` on, and as many elements in each row, for which the caller of
                // `extremes_of_rows` answers.
                unsafe {
                    let mut best = s.load_masked(mask, to);
                    let mut element = from.wrapping_add(at);
                    for _ in 0..rows {
                        let values = if lanes == S::LANES { s.load(element) } else { s.load_masked(mask, element) };
                        // The better one, or the second where one is NaN: that before, which is wrong only where the element is.
                        best = s.select(s.nan(values), values, better::<S, GREATEST>(s, values, best));
                        element = element.wrapping_add(stride);
                    }
                    s.store_first(lanes, to, best);
                }
                at += S::LANES;
            }
            row += rows;
        }
    }
}

fn neutral(greatest: bool) -> f32 {
    if greatest { f32::NEG_INFINITY } else { f32::INFINITY }
}

/// Better one of two values; the second one if either is NaN.
#[inline(always)]
fn better<S: Simd, const GREATEST: bool>(s: S, a: S::V, b: S::V) -> S::V {
    if GREATEST { s.max(a, b) } else { s.min(a, b) }
}

/// Better one of two numbers.
#[inline(always)]
fn better_scalar<const GREATEST: bool>(a: f32, b: f32) -> f32 {
    if (GREATEST && b > a) || (!GREATEST && b < a) { b } else { a }
}

/// Better one of two values; NaN if either is.
#[inline(always)]
fn exact<const GREATEST: bool>(a: f32, b: f32) -> f32 {
    if b.is_nan() || a.is_nan() { f32::NAN } else { better_scalar::<GREATEST>(a, b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Both<'a>(&'a [f32]);

    impl Kernel for Both<'_> {
        type Output = [f32; 2];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [f32; 2] {
            [extreme::<S, true>(s, self.0), extreme::<S, false>(s, self.0)]
        }
    }

    /// Rows of finite numbers, with infinities of one or both signs, and with a NaN at either end and within.
    fn rows(len: usize) -> Vec<Vec<f32>> {
        let plain: Vec<f32> = (0..len).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        let with = |values: &[(usize, f32)]| {
            let mut row = plain.clone();
            values.iter().for_each(|(at, value)| row[at % len] = *value);
            row
        };
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        vec![
            with(&[]),
            with(&[(0, inf)]),
            with(&[(len / 2, -inf)]),
            with(&[(0, inf), (len - 1, -inf)]),
            with(&[(0, nan)]),
            with(&[(len / 2, nan)]),
            with(&[(len - 1, nan)]),
            with(&[(0, -inf), (len / 3, nan), (len - 1, inf)]),
        ]
    }

    fn expected(values: impl Iterator<Item = f32> + Clone) -> [f32; 2] {
        if values.clone().any(f32::is_nan) {
            return [f32::NAN; 2];
        }
        [values.clone().fold(f32::NEG_INFINITY, f32::max), values.fold(f32::INFINITY, f32::min)]
    }

    fn same(a: f32, b: f32) -> bool {
        a == b || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn extremes_of_a_row_are_those_of_a_loop() {
        for (isa, len) in Isa::of_vectors().flat_map(|isa| [1, 5, 8, 31, 64, 65, 127, 500].map(|len| (isa, len))) {
            for (which, row) in rows(len).iter().enumerate() {
                let (got, want) = (isa.run(Both(row)), expected(row.iter().copied()));
                assert!(same(got[0], want[0]) && same(got[1], want[1]), "{isa} {which} of {len}: {got:?}, {want:?}");
            }
            assert_eq!(isa.run(Both(&[])), [f32::NEG_INFINITY, f32::INFINITY]);
        }
    }

    #[test]
    fn extremes_of_columns_are_those_of_loops() {
        for (isa, len) in Isa::of_vectors().flat_map(|isa| [1, 7, 16, 33].map(|len| (isa, len))) {
            // Columns of the rows above side by side, of many rows and a gap between them.
            let columns: Vec<Vec<f32>> = (0..len).map(|i| rows(21).swap_remove(i % 8)).collect();
            let stride = len + 3;
            let mut matrix = vec![f32::NAN; 21 * stride];
            for (j, column) in columns.iter().enumerate() {
                column.iter().enumerate().for_each(|(k, value)| matrix[k * stride + j] = *value);
            }
            for (which, greatest) in [true, false].into_iter().enumerate() {
                let mut values = vec![neutral(greatest); len];
                let rows = ElementRows { first: matrix.as_ptr(), stride, count: 21 };
                // SAFETY: the matrix has so many rows, each of more elements.
                unsafe { extremes_of_rows(isa, &mut values, rows, greatest) };
                for (got, column) in values.iter().zip(&columns) {
                    let want = expected(column.iter().copied())[which];
                    assert!(same(*got, want), "{isa} {len}: expected {want}, got {got}");
                }
            }
        }
    }
}
