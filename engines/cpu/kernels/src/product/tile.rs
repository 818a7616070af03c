//! Microkernel of matrix products: a tile of the result in registers, rows of the left side as they lie or in panels,
//! the right side in panels or as it lies.

use std::marker::PhantomData;

use hipdnn_cpu_simd::isa::{Kernel, Simd, UNROLLED, first};
use hipdnn_cpu_simd::scratch;

/// Number of vectors of a panel of the right side.
pub(super) const PANEL: usize = 2;

/// Number of values of a cache line.
pub(super) const LINE: usize = scratch::LINE / size_of::<f32>();

/// Arguments of a tile: `c[r][n] = Σ a[r·row + k] · b[panel of n + k·pitch]`, added to `c` if `add`; of a packed side the factors of a
/// place are side by side, `a[r + k·rows]`.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// Number of products of a sum.
    pub(super) depth: usize,
    pub(super) a: *const f32,
    /// Stride between rows of `a`, unless it is packed.
    pub(super) row: usize,
    pub(super) b: *const f32,
    /// Stride between places of the sum in `b`, and from one panel to the next.
    pub(super) pitch: usize,
    pub(super) panel: usize,
    pub(super) c: *mut f32,
    /// Stride between rows of `c`.
    pub(super) to: usize,
    /// Number of columns to store.
    pub(super) columns: usize,
    pub(super) add: bool,
    /// Prefetch address: values of the right side needed behind this tile's, fetched at a cache line a step; null for none.
    pub(super) next: *const f32,
}

/// Function of a tile.
pub(super) type TileFn<S> = unsafe fn(S, &Job);

/// Most rows of a tile, for vectors of `lanes` lanes.
pub(super) fn tallest(lanes: usize) -> usize {
    if lanes == 16 { 14 } else { 6 }
}

/// Most rows of a tile of two panels: as many registers as the tallest one of a panel, about.
pub(super) fn tallest_of_two(lanes: usize) -> usize {
    if lanes == 16 { 6 } else { 3 }
}

/// True if tiles have more rows, on vectors of `lanes` lanes, than the first-level cache has ways: rows that lie so that they share
/// sets of it are then gathered into panels.
pub(super) fn wants_panels(lanes: usize) -> bool {
    lanes == 16
}

/// True if rows of the left side, `stride` apart, may be read as they lie.
pub(super) fn takes_rows(lanes: usize, stride: usize) -> bool {
    /// Values of a page: rows so far apart have their lines in one set.
    const PAGE: usize = 4096 / size_of::<f32>();
    !wants_panels(lanes) || !stride.is_multiple_of(PAGE)
}

/// Width of a tile in panels of the right side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The first vector of a panel: the last columns of a result.
    Half,
    One,
    Two,
}

/// Function of a tile of `rows` rows; `packed` if the rows of the left side are side by side.
pub(super) fn function<S: Simd>(rows: usize, width: Width, packed: bool) -> TileFn<S> {
    macro_rules! among {
        ($vectors:literal, $($rows:literal),+) => {
            match (rows, packed) {
                $(
                    ($rows, true) => enter::<S, $rows, $vectors, true>,
                    ($rows, false) => enter::<S, $rows, $vectors, false>,
                )+
                _ => unreachable!("tiles are at most as tall as `tallest` says"),
            }
        };
    }
    match (S::LANES == 16, width) {
        (true, Width::Two) => among!(4, 1, 2, 3, 4, 5, 6),
        (true, Width::One) => among!(2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
        (true, Width::Half) => among!(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
        (false, Width::Two) => among!(4, 1, 2, 3),
        (false, Width::One) => among!(2, 1, 2, 3, 4, 5, 6),
        (false, Width::Half) => among!(1, 1, 2, 3, 4, 5, 6),
    }
}

/// # Safety
/// All elements that the job's extents and strides reach can be read, whole panels of `b`, and those of `c`
/// that it stores be written.
unsafe fn enter<S: Simd, const R: usize, const V: usize, const PACKED: bool>(s: S, job: &Job) {
    s.call(Run::<R, V, PACKED>(job, PhantomData));
}

struct Run<'a, const R: usize, const V: usize, const PACKED: bool>(&'a Job, PhantomData<*const f32>);

impl<const R: usize, const V: usize, const PACKED: bool> Kernel for Run<'_, R, V, PACKED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let job = *self.0;
        let mut sums = [[s.splat(0.0); V]; R];
        // SAFETY: `enter` passes its caller's duty on; the lanes of a mask are columns to store.
        unsafe {
            let mut rows = [job.a; R];
            for (r, row) in rows.iter_mut().enumerate() {
                *row = job.a.wrapping_add(r * job.row);
            }
            let mut k = 0;
            if !job.next.is_null() {
                while k + unrolled::<S, PACKED>() <= job.depth {
                    steps::<S, R, V, PACKED, true>(s, &job, &rows, k, &mut sums);
                    k += unrolled::<S, PACKED>();
                }
            }
            while k + unrolled::<S, PACKED>() <= job.depth {
                steps::<S, R, V, PACKED, false>(s, &job, &rows, k, &mut sums);
                k += unrolled::<S, PACKED>();
            }
            while k < job.depth {
                step::<S, R, V, PACKED>(s, &job, &rows, k, &mut sums);
                k += 1;
            }
            if job.columns >= V * S::LANES {
                for (r, sums) in sums.iter().enumerate() {
                    for (v, sum) in sums.iter().enumerate() {
                        let to = job.c.add(r * job.to + v * S::LANES);
                        s.store(to, if job.add { s.add(s.load(to), *sum) } else { *sum });
                    }
                }
                return;
            }
            /// Stores the columns of some vectors, whose numbers are constants: were one of the sums picked by a variable, all of them
            /// would be stored in the loop above.
            macro_rules! store {
                ($($v:literal)+) => { $(
                    if $v < V && $v * S::LANES < job.columns {
                        let lanes = (job.columns - $v * S::LANES).min(S::LANES);
                        let mask = s.mask(first(lanes));
                        for (r, sums) in sums.iter().enumerate() {
                            let to = job.c.add(r * job.to + $v * S::LANES);
                            let sum = if job.add { s.add(s.load_masked(mask, to), sums[$v]) } else { sums[$v] };
                            s.store_first(lanes, to, sum);
                        }
                    }
                )+ };
            }
            store!(0 1 2 3);
        }
    }
}

/// Places of the sum in a round of the loop. Of rows as they lie the compiler loads the values of all places of a round at once, which
/// for as many rows as vectors of sixteen lanes have are more than there are registers.
#[inline(always)]
const fn unrolled<S: Simd, const PACKED: bool>() -> usize {
    if S::LANES == 16 && !PACKED { 1 } else { UNROLLED }
}

/// Adds the products of a round's places of the sum from `k` on. `FETCH`: asks for as many lines of what is needed next.
///
/// # Safety
/// Rows and panels have these places.
#[inline(always)]
unsafe fn steps<S: Simd, const R: usize, const V: usize, const PACKED: bool, const FETCH: bool>(
    s: S,
    job: &Job,
    rows: &[*const f32; R],
    k: usize,
    sums: &mut [[S::V; V]; R],
) {
    // A loop over a range is not unrolled.
    let mut i = 0;
    while i < unrolled::<S, PACKED>() {
        if FETCH {
            s.prefetch_far(job.next.wrapping_add((k + i) * LINE));
        }
        // SAFETY: the caller's duty.
        unsafe { step::<S, R, V, PACKED>(s, job, rows, k + i, sums) };
        i += 1;
    }
}

/// Adds the products of place `k` of the sum.
///
/// # Safety
/// Rows and panels have the place.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize, const PACKED: bool>(
    s: S,
    job: &Job,
    rows: &[*const f32; R],
    k: usize,
    sums: &mut [[S::V; V]; R],
) {
    // SAFETY: the caller's duty.
    unsafe {
        let value = |v: usize| job.b.add(k * job.pitch + v / PANEL * job.panel + v % PANEL * S::LANES);
        // Tiles of vectors of 16 lanes have more rows than there are registers for addresses: one index for all.
        let factor = |r: usize| match (PACKED, S::LANES) {
            (true, _) => job.a.add(k * R + r),
            (false, 16) => rows[r].add(k),
            (false, _) => job.a.add(r * job.row + k),
        };
        // What there is fewer of is in registers beside the sums, the other one by one.
        if V > R {
            let mut factors = [s.splat(0.0); R];
            for (r, kept) in factors.iter_mut().enumerate() {
                *kept = s.splat(*factor(r));
            }
            for v in 0..V {
                let value = s.load(value(v));
                for (sums, factor) in sums.iter_mut().zip(factors) {
                    sums[v] = s.fma(factor, value, sums[v]);
                }
            }
            return;
        }
        let mut values = [s.splat(0.0); V];
        for (v, kept) in values.iter_mut().enumerate() {
            *kept = s.load(value(v));
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let factor = s.splat(*factor(r));
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = s.fma(factor, value, *sum);
            }
        }
    }
}
