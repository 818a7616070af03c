//! The register kernel of the matrix-product algorithms: a tile of rows (one weight each) by vectors of places.

use crate::engine::host::isa::{Kernel, Simd};
use std::marker::PhantomData;

/// Most vectors of a tile.
pub(in crate::engine::host) const MAX_VECTORS: usize = 4;

/// A tile to compute: `sum over c, t of a[c][t][row] · b[c·step + tap t + place]`.
pub(in crate::engine::host) struct Tile<'a> {
    /// Steps of the outer sum.
    pub(in crate::engine::host) channels: usize,
    /// Distances of the inner sum's values.
    pub(in crate::engine::host) taps: &'a [usize],
    /// Distance of two steps of the outer sum in `b`.
    pub(in crate::engine::host) step: usize,
    /// `channels · taps · rows` factors, those of a step side by side.
    pub(in crate::engine::host) a: *const f32,
    /// The first place.
    pub(in crate::engine::host) b: *const f32,
    /// A value for each row, added to its sums, or null for zeros.
    pub(in crate::engine::host) bias: *const f32,
    /// Bounds of the result.
    pub(in crate::engine::host) clamp: (f32, f32),
    /// Where each vector goes in the first row.
    pub(in crate::engine::host) to: [*mut f32; MAX_VECTORS],
    /// Lanes of each vector to keep; they are stored side by side.
    pub(in crate::engine::host) keep: [u32; MAX_VECTORS],
    /// Distance of two rows of the result.
    pub(in crate::engine::host) row: usize,
    /// Rows to store.
    pub(in crate::engine::host) rows: usize,
    /// Factors needed after this tile, fetched at a cache line a step; null for none.
    pub(in crate::engine::host) next: *const f32,
}

/// A tile's function.
pub(in crate::engine::host) type TileFn<S> = unsafe fn(S, &Tile<'_>);

/// (rows, vectors) of the tiles there are for vectors of `lanes` lanes, best first.
pub(in crate::engine::host) fn sizes(lanes: usize) -> &'static [(usize, usize)] {
    match lanes {
        16 => &[
            (14, 2),
            (13, 2),
            (12, 2),
            (11, 2),
            (10, 2),
            (9, 3),
            (8, 3),
            (7, 3),
            (6, 4),
            (5, 4),
            (4, 4),
            (3, 4),
            (2, 4),
            (1, 4),
            (14, 1),
            (8, 1),
        ],
        // Sixteen registers, or eight lanes in two each.
        _ => &[(6, 2), (5, 2), (4, 2), (3, 3), (2, 4), (1, 4)],
    }
}

/// The function of a size out of [`sizes`].
pub(in crate::engine::host) fn function<S: Simd>(size: (usize, usize)) -> TileFn<S> {
    macro_rules! among {
        ($(($rows:literal, $vectors:literal)),+) => {
            match size {
                $(($rows, $vectors) => enter::<S, $rows, $vectors>,)+
                _ => unreachable!("tiles are chosen among the sizes there are"),
            }
        };
    }
    if S::LANES == 16 {
        among!(
            (14, 2),
            (13, 2),
            (12, 2),
            (11, 2),
            (10, 2),
            (9, 3),
            (8, 3),
            (7, 3),
            (6, 4),
            (5, 4),
            (4, 4),
            (3, 4),
            (2, 4),
            (1, 4),
            (14, 1),
            (8, 1)
        )
    } else {
        among!((6, 2), (5, 2), (4, 2), (3, 3), (2, 4), (1, 4))
    }
}

/// # Safety
/// As in [`Tile`]: `a`, `b` and `bias` can be read where the sums read them, whole vectors at a time, and the kept lanes
/// written.
unsafe fn enter<S: Simd, const R: usize, const V: usize>(s: S, tile: &Tile<'_>) {
    s.call(Run::<R, V>(tile, PhantomData));
}

struct Run<'a, const R: usize, const V: usize>(&'a Tile<'a>, PhantomData<*const f32>);

impl<const R: usize, const V: usize> Kernel for Run<'_, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.0;
        // SAFETY: `enter` passes its caller's duty on.
        unsafe {
            for row in 0..R {
                let to = tile.to[0].wrapping_add(row * tile.row);
                s.prefetch_write(to);
                if V > 1 {
                    s.prefetch_write(tile.to[V - 1].wrapping_add(row * tile.row + S::LANES - 1));
                }
            }
            let mut sums = [[s.splat(0.0); V]; R];
            let mut a = tile.a;
            let mut b = tile.b;
            // Without anything to fetch the first factors are asked for again and again, which costs nothing.
            let (mut next, line) = if tile.next.is_null() { (a, 0) } else { (tile.next, 16) };
            if let [0] = tile.taps {
                for _ in 0..tile.channels {
                    s.prefetch_far(next);
                    next = next.wrapping_add(line);
                    step::<S, R, V, true>(s, a, b, &mut sums);
                    a = a.wrapping_add(R);
                    b = b.wrapping_add(tile.step);
                }
            } else {
                for _ in 0..tile.channels {
                    for tap in tile.taps {
                        s.prefetch_far(next);
                        next = next.wrapping_add(line);
                        step::<S, R, V, false>(s, a, b.add(*tap), &mut sums);
                        a = a.wrapping_add(R);
                    }
                    b = b.wrapping_add(tile.step);
                }
            }
            let (low, high) = (s.splat(tile.clamp.0), s.splat(tile.clamp.1));
            let all = crate::engine::host::isa::first(S::LANES);
            let whole = tile.keep[..V].iter().all(|keep| *keep == all);
            for (row, sums) in sums.into_iter().enumerate() {
                if row < tile.rows {
                    // Only now: sums that begin with a large bias lose their own digits.
                    let bias = s.splat(if tile.bias.is_null() { 0.0 } else { *tile.bias.add(row) });
                    for (v, sum) in sums.into_iter().enumerate() {
                        let to = tile.to[v].wrapping_add(row * tile.row);
                        let sum = s.min(high, s.max(low, s.add(sum, bias)));
                        if whole {
                            s.store(to, sum);
                        } else {
                            s.store_compressed(tile.keep[v], to, sum);
                        }
                    }
                }
            }
        }
    }
}

/// One product of a column of `a` and a row of `b`.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize, const AHEAD: bool>(
    s: S,
    a: *const f32,
    b: *const f32,
    sums: &mut [[S::V; V]; R],
) {
    // SAFETY: the caller's duty.
    unsafe {
        let mut places = [s.splat(0.0); V];
        for (v, places) in places.iter_mut().enumerate() {
            *places = s.load(b.add(v * S::LANES));
            if AHEAD {
                s.prefetch(b.wrapping_add((v + 8 * V) * S::LANES));
            }
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let factor = s.splat(*a.add(row));
            for (sum, places) in sums.iter_mut().zip(places) {
                *sum = s.fma(factor, places, *sum);
            }
        }
    }
}
