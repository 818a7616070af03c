//! Rows in which each value is repeated: operands whose last dimension has a stride of 0, as images have that are enlarged to
//! their nearest neighbors.

use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};

/// Spreads the values of a row from `from` on: each comes `times` times, from `to` on, until the row ends.
///
/// # Panics
/// If `from` is larger than `to`, `to` is larger than the row's length, or `times` is 0.
pub fn spread<T: Copy>(row: &mut [T], (from, to): (usize, usize), times: usize) {
    assert!(from <= to && to <= row.len(), "expected values at or before {to} of {}, got {from}", row.len());
    let len = row.len() - to;
    // From the last to the first, as a value's first place is never before that of the value itself.
    for at in (0..len.div_ceil(times)).rev() {
        let (value, end) = (row[from + at], (at + 1) * times);
        row[to + at * times..to + end.min(len)].fill(value);
    }
}

/// Variant of [`spread`] whose values are vectors where `times` is a power of two up to eight, or three.
///
/// # Panics
/// As [`spread`].
pub fn spread_single(isa: Isa, row: &mut [f32], (from, to): (usize, usize), times: usize) {
    assert!(from <= to && to <= row.len(), "expected values at or before {to} of {}, got {from}", row.len());
    match times {
        2 => isa.run(Vectors::<2> { row, from, to }),
        3 => isa.run(Vectors::<3> { row, from, to }),
        4 => isa.run(Vectors::<4> { row, from, to }),
        8 => isa.run(Vectors::<8> { row, from, to }),
        _ => spread(row, (from, to), times),
    }
}

/// [`spread`] of `N` times each, with `from` at most `to`, and that at most the row's length.
struct Vectors<'a, const N: usize> {
    row: &'a mut [f32],
    from: usize,
    to: usize,
}

impl<const N: usize> Kernel for Vectors<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Vectors { row, from, to } = self;
        let len = row.len() - to;
        let whole = len / (N * S::LANES);
        let base = row.as_mut_ptr();
        let rest = len - whole * N * S::LANES;
        // From the last to the first: a vector is loaded before its places are written, the first of which is never before the vector's.
        if rest > 0 {
            // SAFETY: value `v` is at `from + v`, which is at most its first place `to + N·v`; those whose first place is in the row are
            // in it too, and no lanes but theirs are loaded and stored.
            unsafe {
                let mask = s.mask(first(rest.div_ceil(N)));
                let vectors = repeated::<S, N>(s, s.load_masked(mask, base.add(from + whole * S::LANES)));
                let at = base.add(to + whole * N * S::LANES);
                for (i, vector) in vectors.into_iter().enumerate() {
                    match rest.saturating_sub(i * S::LANES) {
                        0 => break,
                        lanes if lanes >= S::LANES => s.store(at.add(i * S::LANES), vector),
                        lanes => s.store_first(lanes, at.add(i * S::LANES), vector),
                    }
                }
            }
        }
        for number in (0..whole).rev() {
            // SAFETY: as above; all lanes have their places in the row.
            unsafe {
                let vectors = repeated::<S, N>(s, s.load(base.add(from + number * S::LANES)));
                let at = base.add(to + number * N * S::LANES);
                for (i, vector) in vectors.into_iter().enumerate() {
                    s.store(at.add(i * S::LANES), vector);
                }
            }
        }
    }
}

/// Each lane `N` times, in so many vectors.
#[inline(always)]
fn repeated<S: Simd, const N: usize>(s: S, v: S::V) -> [S::V; N] {
    let mut all = [v; N];
    match N {
        2 => all.copy_from_slice(&twice(s, v)),
        3 => all.copy_from_slice(&s.zip_three([v; 3])),
        4 => all.copy_from_slice(&four_times(s, v)),
        8 => {
            let [low, high] = twice(s, v);
            all[..4].copy_from_slice(&four_times(s, low));
            all[4..].copy_from_slice(&four_times(s, high));
        }
        _ => unreachable!("vectors are repeated 2, 3, 4 or 8 times"),
    }
    all
}

#[inline(always)]
fn twice<S: Simd>(s: S, v: S::V) -> [S::V; 2] {
    let (low, high) = s.zip(v, v);
    [low, high]
}

#[inline(always)]
fn four_times<S: Simd>(s: S, v: S::V) -> [S::V; 4] {
    let [low, high] = twice(s, v);
    let ([a, b], [c, d]) = (twice(s, low), twice(s, high));
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_as_often_as_it_should() {
        for (isa, times) in Isa::of_vectors().flat_map(|isa| [1, 2, 3, 4, 5, 8, 13].map(|times| (isa, times))) {
            for (len, from, to) in [
                (0, 0, 0),
                (1, 0, 0),
                (7, 0, 0),
                (64, 0, 0),
                (203, 0, 0),
                (40, 1, 1),
                (135, 1, 2),
                (200, 1, 7),
                (512, 3, 5),
            ] {
                let before: Vec<f32> = (0..len).map(|i| i as f32 - 9.5).collect();
                let want: Vec<f32> =
                    (0..len).map(|i| if i < to { before[i] } else { before[from + (i - to) / times] }).collect();
                let (mut single, mut any) = (before.clone(), before);
                spread_single(isa, &mut single, (from, to), times);
                spread(&mut any, (from, to), times);
                assert_eq!(single, want, "{isa}: {times} times, {len} values, from {from} to {to}");
                assert_eq!(any, want, "{times} times, {len} values, from {from} to {to}");
            }
        }
    }
}
