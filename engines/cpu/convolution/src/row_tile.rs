//! Microkernel of the channels-last algorithms: a tile of places (one input value each, broadcast) by vectors of output
//! channels.

use super::tile::{self, LINE, NO_CLAMP, Step};
use hipdnn_cpu_simd::isa::{Kernel, Simd, UNROLLED, first};

/// Maximum number of places of a tile.
pub(super) const MAX_ROWS: usize = 14;
/// Prefetch distance for weights, in steps of the sum: more cycles than a cache that cores share takes to answer.
const AHEAD: usize = 64;

/// Arguments of a tile: `sum over t, c of rows[t][place][c] · b[t][c][channel]`.
pub(super) struct RowTile<'a> {
    /// Number of terms of a tap that lie side by side, in the input as in the weights.
    pub(super) channels: usize,
    /// Number of taps.
    pub(super) taps: usize,
    /// Addresses of the terms, for each tap, for each place of the tile.
    pub(super) rows: *const *const f32,
    /// Weights: `vectors · LANES` for each term.
    pub(super) b: *const f32,
    /// Bias of each channel of the tile, or null for zeros.
    pub(super) bias: *const f32,
    /// Clamp bounds of the biased sums.
    pub(super) clamp: (f32, f32),
    /// Destination of the first place's channels.
    pub(super) to: *mut f32,
    /// Stride between places of the destination.
    pub(super) row: usize,
    /// Number of channels to store.
    pub(super) keep: usize,
    /// Epilogue behind bias and clamp.
    pub(super) after: Option<RowAfter<'a>>,
}

/// Epilogue of a tile, behind bias and clamp.
pub(super) struct RowAfter<'a> {
    /// Steps, in order.
    pub(super) steps: &'a [Step],
    /// Value of the first channel in the first of the steps' lists of one value for each channel.
    pub(super) values: *const f32,
    /// Summand of the first place, its channels side by side, added behind the steps; null for none.
    pub(super) summand: *const f32,
    /// Stride between places of the summand.
    pub(super) row: usize,
    /// Clamp bounds of the result.
    pub(super) clamp: (f32, f32),
}

/// Function of a tile.
pub(super) type RowTileFn<S> = unsafe fn(S, &RowTile<'_>);

/// Tile sizes (places, vectors) worth choosing from for vectors of `lanes` lanes. There is a tile of as many vectors
/// for each smaller number of places.
pub(super) fn sizes(lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let most: &[(usize, usize)] = match lanes {
        16 => &[(14, 2), (6, 4), (14, 1)],
        // Sixteen registers, or eight lanes in two each. One place's sums wait for each other, unless there are many.
        _ => &[(6, 2), (2, 4), (8, 1)],
    };
    most.iter().flat_map(|(rows, vectors)| (rows.div_ceil(2)..=*rows).rev().map(|rows| (rows, *vectors)))
}

/// Bytes of a panel of weights that stay in the first-level cache while tiles of places pass, and bytes a cycle of larger ones, which
/// each tile gets from the second-level cache, for vectors of eight lanes: 22 on Zen 3, where a tile of two places by four vectors
/// takes 5.9 cycles a step instead of 4.3. CPUs with sixteen lanes have more of both than any tile there wants.
const NEAR_PANEL: usize = 24 << 10;
const SECOND_LEVEL: f64 = 22.0;

/// Cycles in which a step's weights arrive, of a panel of `depth` terms by `vectors` vectors of `lanes` lanes that another tile has passed
/// before; 0 where it stays in the first-level cache.
pub(super) fn panel_cycles(lanes: usize, vectors: usize, depth: usize) -> f64 {
    let line = size_of::<f32>() * vectors * lanes;
    if lanes == 8 && line * depth > NEAR_PANEL { line as f64 / SECOND_LEVEL } else { 0.0 }
}

/// Function of a tile of `size` (places, vectors).
pub(super) fn function<S: Simd>(size: (usize, usize)) -> RowTileFn<S> {
    macro_rules! among {
        ($(($vectors:literal: $($rows:literal)+))+) => {
            match size {
                $($(($rows, $vectors) => enter::<S, $rows, $vectors>,)+)+
                _ => unreachable!("tiles are chosen among the sizes there are"),
            }
        };
    }
    if S::LANES == 16 {
        among!((1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14) (2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14) (4: 1 2 3 4 5 6))
    } else {
        among!((1: 1 2 3 4 5 6 7 8) (2: 1 2 3 4 5 6) (4: 1 2))
    }
}

/// # Safety
/// As in [`RowTile`]: the terms of each tap and place, and the weights of each term, can be read; bias and lists have a
/// value for each lane of the tile; the kept channels of each place can be written, and those of the summand read.
unsafe fn enter<S: Simd, const R: usize, const V: usize>(s: S, tile: &RowTile<'_>) {
    s.call(Run::<R, V>(tile));
}

struct Run<'a, const R: usize, const V: usize>(&'a RowTile<'a>);

impl<const R: usize, const V: usize> Kernel for Run<'_, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.0;
        // SAFETY: `enter` passes its caller's duty on.
        unsafe {
            // The output is not asked for: where places follow each other the CPU sees the pattern, and so many requests at
            // once would hold up the first weights.
            if let Some(after) = &tile.after
                && !after.summand.is_null()
            {
                for row in 0..R {
                    for v in 0..V {
                        s.prefetch(after.summand.wrapping_add(row * after.row + v * S::LANES));
                    }
                }
            }
            let mut sums = [[s.splat(0.0); V]; R];
            let (mut b, mut rows) = (tile.b, tile.rows);
            for _ in 0..tile.taps {
                let mut places = [std::ptr::null::<f32>(); R];
                for (row, place) in places.iter_mut().enumerate() {
                    *place = *rows.add(row);
                }
                rows = rows.add(R);
                let mut c = 0;
                while c + UNROLLED <= tile.channels {
                    let mut i = 0;
                    while i < UNROLLED {
                        let mut v = 0;
                        while v < V {
                            let at = (i * V + v) * S::LANES;
                            if at.is_multiple_of(LINE) {
                                s.prefetch(b.wrapping_add(AHEAD * V * S::LANES + at));
                            }
                            v += 1;
                        }
                        step(s, &places, c + i, b.add(i * V * S::LANES), &mut sums);
                        i += 1;
                    }
                    b = b.add(UNROLLED * V * S::LANES);
                    c += UNROLLED;
                }
                while c < tile.channels {
                    step(s, &places, c, b, &mut sums);
                    b = b.add(V * S::LANES);
                    c += 1;
                }
            }
            if !tile.bias.is_null() {
                // Only now: sums that begin with a large bias lose their own digits.
                for v in 0..V {
                    let bias = s.load(tile.bias.add(v * S::LANES));
                    for sums in &mut sums {
                        sums[v] = s.add(sums[v], bias);
                    }
                }
                clamp(s, tile.clamp, &mut sums);
            }
            let whole = tile.keep >= V * S::LANES;
            if let Some(after) = &tile.after {
                finish(s, tile.keep, after, &mut sums);
            }
            for (row, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let to = tile.to.wrapping_add(row * tile.row + v * S::LANES);
                    if whole {
                        s.store(to, sum);
                    } else {
                        s.store_first(tile.keep.saturating_sub(v * S::LANES).min(S::LANES), to, sum);
                    }
                }
            }
        }
    }
}

/// Adds the products of term `c` of each place with its weights.
///
/// # Safety
/// The places have the term, and `b` the weights of it.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(
    s: S,
    places: &[*const f32; R],
    c: usize,
    b: *const f32,
    sums: &mut [[S::V; V]; R],
) {
    // SAFETY: the caller's duty.
    unsafe {
        let mut weights = [s.splat(0.0); V];
        for (v, weights) in weights.iter_mut().enumerate() {
            *weights = s.load(b.add(v * S::LANES));
        }
        for (place, sums) in places.iter().zip(sums) {
            let value = s.splat(*place.add(c));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = s.fma(value, weights, *sum);
            }
        }
    }
}

/// Lane mask of vector `v`: lanes among the first `keep` channels.
#[inline(always)]
fn kept(keep: usize, v: usize, lanes: usize) -> u32 {
    first(keep.saturating_sub(v * lanes).min(lanes))
}

/// Applies the epilogue behind bias and clamp to the sums of places, of whose channels the first `keep` are kept.
///
/// # Safety
/// The lists have a value for each lane; the kept channels of the summand's places can be read.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const V: usize>(s: S, keep: usize, after: &RowAfter<'_>, sums: &mut [[S::V; V]]) {
    let whole = keep >= V * S::LANES;
    /// Loop over the accumulators: a value of every vector, and for each vector the values shared by all places.
    macro_rules! each {
        ($sum:ident, $shared:ident = |$v:ident| $from:expr, $value:expr) => {
            for $v in 0..V {
                let $shared = $from;
                for sums in sums.iter_mut() {
                    let $sum = sums[$v];
                    sums[$v] = $value;
                }
            }
        };
    }
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let mut i = 0;
    // SAFETY: the caller's duty.
    unsafe {
        while i < after.steps.len() {
            match after.steps[i] {
                Step::Add(list) => {
                    each!(sum, value = |v| s.load(after.values.add(list + v * S::LANES)), s.add(sum, value))
                }
                Step::Multiply(list) => {
                    each!(sum, value = |v| s.load(after.values.add(list + v * S::LANES)), s.mul(sum, value))
                }
                Step::Clamp(low, high) => {
                    let (low, high) = (s.splat(low), s.splat(high));
                    each!(sum, _value = |v| (), s.min(high, s.max(low, sum)));
                }
                Step::HardSigmoid(alpha, beta) => {
                    let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                    each!(sum, _value = |v| (), s.min(one, s.max(zero, s.fma(alpha, sum, beta))));
                }
                Step::HardSwish(alpha, beta) => {
                    // Minus infinity times zero is no number, and its limit zero.
                    let (alpha, beta, lowest) = (s.splat(alpha), s.splat(beta), s.splat(f32::MIN));
                    each!(
                        sum,
                        _value = |v| (),
                        s.mul(s.max(lowest, sum), s.min(one, s.max(zero, s.fma(alpha, sum, beta))))
                    );
                }
                Step::Activation(activation) => tile::activate(s, &activation, sums),
            }
            i += 1;
        }
        if !after.summand.is_null() {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let from = after.summand.wrapping_add(row * after.row + v * S::LANES);
                    let other = if whole { s.load(from) } else { s.load_masked(s.mask(kept(keep, v, S::LANES)), from) };
                    *sum = s.add(*sum, other);
                }
            }
        }
    }
    clamp(s, after.clamp, sums);
}

/// Clamps the sums, unless that leaves all as they are.
#[inline(always)]
pub(super) fn clamp<S: Simd, const V: usize>(s: S, bounds: (f32, f32), sums: &mut [[S::V; V]]) {
    if bounds != NO_CLAMP {
        let (low, high) = (s.splat(bounds.0), s.splat(bounds.1));
        for v in 0..V {
            for sums in sums.iter_mut() {
                sums[v] = s.min(high, s.max(low, sums[v]));
            }
        }
    }
}
