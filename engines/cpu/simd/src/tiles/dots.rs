//! Products of tiles with AVX512-BF16, whose instruction adds to each lane the products of a pair of values.
//!
//! A register has a row of a tile of the right side: a pair of places of sixteen columns. What it is multiplied with is one pair of
//! the left side, in all lanes. Half a tile of rows is computed at a time: with two tiles of columns its sums are sixteen registers,
//! more than the twelve that two units with a latency of six cycles want. Of one tile of columns every other pair has sums of its own.

use super::{DEPTH, Pairs, TILE, TILE_BYTES, TileProduct};
use crate::isa::Avx512Bf16;
use std::arch::x86_64::*;

/// Rows that are computed at a time.
const ROWS: usize = TILE / 2;

/// Multiplies `size` tiles of rows and columns, one or two of each, of values of one term.
///
/// # Safety
/// As in [`TileProduct`]: whole tiles of `a`, `b` and `c` can be read and written.
pub(super) unsafe fn multiply(_: Avx512Bf16, job: &TileProduct, (rows, columns): (usize, usize)) {
    for first in (0..rows * TILE).step_by(ROWS) {
        // SAFETY: the token proves that the CPU has the instructions; the rest is the caller's duty.
        unsafe {
            match columns {
                1 => multiply_rows::<1, 2>(job, first),
                _ => multiply_rows::<2, 1>(job, first),
            }
        }
    }
}

/// Computes [`ROWS`] rows of sums from the row `first` on, of `N` tiles of columns, each sum in `C` parts.
///
/// # Safety
/// As of [`multiply`], for `N` tiles of columns and tiles of rows that have these; the CPU has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn multiply_rows<const N: usize, const C: usize>(job: &TileProduct, first: usize) {
    let mut sums = [[[_mm512_setzero_ps(); N]; ROWS]; C];
    let mut a = job.a.wrapping_add(first / TILE * job.second + first % TILE * job.row);
    let mut b = job.b;
    for step in 0..job.steps {
        let pairs = pairs_of(job.depth - step * DEPTH, job.order).next_multiple_of(C);
        for tap in 0..job.count {
            // SAFETY: the caller's duty: the taps' offsets.
            let a = a.wrapping_add(unsafe { *job.taps.add(tap) });
            let rows: [*const u8; ROWS] = std::array::from_fn(|row| a.wrapping_add(row * job.row));
            let mut pair = 0;
            while pair < pairs {
                for sums in &mut sums {
                    let mut right = [_mm512_setzero_si512(); N];
                    for (tile, right) in right.iter_mut().enumerate() {
                        // SAFETY: the caller's duty: a row of a tile of the right side.
                        *right = unsafe { _mm512_loadu_si512(b.add(tile * TILE_BYTES + pair * 4 * TILE).cast()) };
                    }
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        // SAFETY: the caller's duty: a pair of a row of the left side.
                        let left = _mm512_set1_epi32(unsafe { row.add(4 * pair).cast::<i32>().read_unaligned() });
                        for (sum, right) in sums.iter_mut().zip(right) {
                            // SAFETY: a vector of 512 bits is one, whatever its lanes are.
                            let [left, right] = [left, right].map(|lanes| unsafe { std::mem::transmute(lanes) });
                            *sum = _mm512_dpbf16_ps(*sum, left, right);
                        }
                    }
                    pair += 1;
                }
            }
            b = b.wrapping_add(N * TILE_BYTES);
        }
        a = a.wrapping_add(job.step);
    }
    for row in 0..ROWS {
        for tile in 0..N {
            let mut sum = sums[0][row][tile];
            for part in &sums[1..] {
                sum = _mm512_add_ps(sum, part[row][tile]);
            }
            // SAFETY: the caller's duty: a tile's row of sums.
            unsafe { _mm512_storeu_ps(job.c.byte_add((first + row) * job.to).add(tile * TILE), sum) };
        }
    }
}

/// Pairs of a step that have some of the `left` places that are left of the sum.
fn pairs_of(left: usize, order: Pairs) -> usize {
    match order {
        Pairs::Neighbors => left.div_ceil(2).min(TILE),
        Pairs::Halves => left.min(TILE),
    }
}
