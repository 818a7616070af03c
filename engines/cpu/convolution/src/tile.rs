//! Microkernel of the matrix-product algorithms: a tile of rows (one weight each) by vectors of places.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd, UNROLLED};
use hipdnn_cpu_simd::scratch;
use std::mem::MaybeUninit;

/// Bounds that leave all values as they are.
pub(super) const NO_CLAMP: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);
/// Maximum number of vectors of a tile.
pub(super) const MAX_VECTORS: usize = 4;
/// Maximum number of rows of a tile.
const MAX_ROWS: usize = 14;

/// Block repeated for each row of a tile, whose number is a constant in it: loops over as many rows the compiler may leave, and with
/// them the sums in memory.
macro_rules! rows {
    (|$row:ident| $count:ident, $body:block) => {{
        const { assert!($count <= MAX_ROWS && MAX_ROWS == 14) };
        rows!(@ $row, $count, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }};
    (@ $row:ident, $count:ident, $body:block, $($number:literal)+) => {
        $(if $number < $count {
            let $row = $number;
            $body
        })+
    };
}

/// Arguments of a tile: `sum over c, t of a[c][t][row] · b[c·step + tap t + place]`.
pub(super) struct Tile<'a> {
    /// Number of steps of the outer sum.
    pub(super) channels: usize,
    /// Offsets of the inner sum's values.
    pub(super) taps: &'a [usize],
    /// Stride between steps of the outer sum in `b`.
    pub(super) step: usize,
    /// Factors; those of a step side by side.
    pub(super) a: *const f32,
    /// Stride between steps' factors, the number of rows if they are packed.
    pub(super) a_step: usize,
    /// Address of the first place.
    pub(super) b: *const f32,
    /// Number of tiles with the same factors, and strides between them in `b`, and in the destination and the summand.
    pub(super) count: usize,
    pub(super) b_tile: usize,
    pub(super) to_tile: usize,
    /// Bias of each row of the tile, or null for zeros.
    pub(super) bias: *const f32,
    /// Clamp bounds of the biased sums.
    pub(super) clamp: (f32, f32),
    /// Destination of each vector of the first row.
    pub(super) to: [*mut f32; MAX_VECTORS],
    /// Lane mask of each vector; the kept lanes are stored side by side.
    pub(super) keep: [u32; MAX_VECTORS],
    /// Stride between rows of the destination.
    pub(super) row: usize,
    /// Number of rows to store.
    pub(super) rows: usize,
    /// True if the places come from behind the second-level cache, and are asked for ahead, in place of the factors at `next`.
    pub(super) fetch: bool,
    /// Prefetch address: factors needed after these tiles, as many as they have; null for none.
    pub(super) next: *const f32,
    /// Epilogue behind bias and clamp, in registers too: steps, a summand or both.
    pub(super) after: Option<After<'a>>,
}

/// Epilogue of a tile, behind bias and clamp.
#[derive(Clone, Copy)]
pub(super) struct After<'a> {
    /// Steps, in order.
    pub(super) steps: &'a [Step],
    /// Value of the first row in the first of the steps' lists of one value for each row.
    pub(super) values: *const f32,
    /// Summand of the first row of each vector, laid out as the destination and added behind the steps; null for none.
    pub(super) summand: [*const f32; MAX_VECTORS],
    /// Stride between rows of the summand.
    pub(super) row: usize,
    /// Clamp bounds of the result.
    pub(super) clamp: (f32, f32),
}

/// Step on sums. Lists are named by their offset from the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Adds a list's values.
    Add(usize),
    /// Multiplies by a list's values.
    Multiply(usize),
    /// Clamps to bounds.
    Clamp(f32, f32),
    /// `alpha · x + beta` between 0 and 1.
    HardSigmoid(f32, f32),
    /// `x` times the hard sigmoid of positive `alpha`.
    HardSwish(f32, f32),
    /// Any activation, by a call.
    Activation(Activation),
}

/// Function of a tile.
pub(super) type TileFn<S> = unsafe fn(S, &Tile<'_>);

/// Tile sizes (rows, vectors) for vectors of `lanes` lanes, best first.
pub(super) fn sizes(lanes: usize) -> &'static [(usize, usize)] {
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
        _ => &[(6, 2), (5, 2), (4, 2), (3, 3), (2, 4), (1, 4), (6, 1)],
    }
}

/// True if there is a tile of `rows` rows and one vector.
pub(super) fn has_narrow(lanes: usize, rows: usize) -> bool {
    sizes(lanes).contains(&(rows, 1))
}

/// Function of a tile size out of [`sizes`].
pub(super) fn function<S: Simd>(size: (usize, usize)) -> TileFn<S> {
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
        among!((6, 2), (5, 2), (4, 2), (3, 3), (2, 4), (1, 4), (6, 1))
    }
}

/// Cycles of a step of the sum of a tile (rows, vectors), by what limits it: multiply-adds and loads at two a cycle, and the latency of
/// an addition. `unaligned`: a vector is two loads.
pub(super) fn step_cycles((rows, vectors): (usize, usize), unaligned: bool) -> f64 {
    let (rows, vectors) = (rows as f64, vectors as f64);
    let fmas = rows * vectors / 2.0;
    let loads = (rows + vectors * if unaligned { 2.0 } else { 1.0 }) / 2.0;
    fmas.max(loads).max(4.0) + 0.3
}

/// Values of a cache line.
pub(super) const LINE: usize = scratch::LINE / size_of::<f32>();
/// Prefetch distance for places, in steps of the sum.
const AHEAD: usize = 8;

/// # Safety
/// As in [`Tile`]: `a`, `b` and `bias` can be read where the sums read them, whole vectors at a time, and the kept lanes
/// written.
unsafe fn enter<S: Simd, const R: usize, const V: usize>(s: S, tile: &Tile<'_>) {
    if S::LANES < 16 {
        s.call(Strip::<R, V>(tile));
    } else {
        // In front of a loop over tiles of many rows the compiler computes their addresses, which takes as long as a short sum.
        for number in 0..tile.count {
            s.call(Run::<R, V>(tile, number));
        }
    }
}

/// All tiles of a strip.
struct Strip<'a, const R: usize, const V: usize>(&'a Tile<'a>);

impl<const R: usize, const V: usize> Kernel for Strip<'_, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for number in 0..self.0.count {
            Run::<R, V>(self.0, number).run(s);
        }
    }
}

/// Tile of a strip, and its number.
struct Run<'a, const R: usize, const V: usize>(&'a Tile<'a>, usize);

impl<const R: usize, const V: usize> Kernel for Run<'_, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `enter` passes its caller's duty on.
        unsafe { self.tile(s) };
    }
}

impl<const R: usize, const V: usize> Run<'_, R, V> {
    /// Computes the tile.
    ///
    /// # Safety
    /// Of the tile's memory what [`enter`] asks for.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S) {
        let Run(tile, i) = *self;
        let shift = i * tile.to_tile;
        // SAFETY: the caller's duty.
        unsafe {
            for row in 0..R {
                let to = shift + row * tile.row;
                s.prefetch_write(tile.to[0].wrapping_add(to));
                if V > 1 {
                    s.prefetch_write(tile.to[V - 1].wrapping_add(to + S::LANES - 1));
                }
            }
            if let Some(after) = &tile.after
                && !after.summand[0].is_null()
            {
                for row in 0..R {
                    let from = shift + row * after.row;
                    s.prefetch(after.summand[0].wrapping_add(from));
                    if V > 1 {
                        s.prefetch(after.summand[V - 1].wrapping_add(from));
                    }
                }
            }
            let mut sums = [[s.splat(0.0); V]; R];
            let b = tile.b.wrapping_add(i * tile.b_tile);
            let next = if i > 0 { std::ptr::null() } else { tile.next };
            if tile.taps == [0] {
                add(s, tile, b, next, &mut sums);
            } else {
                add_taps(s, tile, b, next, &mut sums);
            }
            let all = hipdnn_cpu_simd::isa::first(S::LANES);
            let whole = tile.keep[..V].iter().all(|keep| *keep == all);
            // Steps are for all rows at once, whose values are more than there are registers.
            if tile.after.as_ref().is_none_or(|after| after.steps.is_empty()) {
                store_rows(s, tile, shift, whole, &sums);
                return;
            }
            let (low, high) = (s.splat(tile.clamp.0), s.splat(tile.clamp.1));
            // An array of their own: where rows are walked that may not be stored, the compiler keeps values in memory, and
            // would store these sums at every step. And only now: sums that begin with a large bias lose their own digits.
            let mut values = [[s.splat(0.0); V]; R];
            rows!(|row| R, {
                let bias = s.splat(if tile.bias.is_null() { 0.0 } else { *tile.bias.add(row) });
                for v in 0..V {
                    values[row][v] = s.min(high, s.max(low, s.add(sums[row][v], bias)));
                }
            });
            finish::<S, R, V>(s, tile, shift, whole, &mut values);
            rows!(|row| R, {
                if row < tile.rows {
                    for v in 0..V {
                        let to = tile.to[v].wrapping_add(shift + row * tile.row);
                        if whole {
                            s.store(to, values[row][v]);
                        } else {
                            s.store_compressed(tile.keep[v], to, values[row][v]);
                        }
                    }
                }
            });
        }
    }
}

/// Stores the sums with bias, clamp and summand, row by row. `whole`: all lanes are kept.
///
/// # Safety
/// The tile's rows and lanes can be stored, and those of the summand read.
#[inline(always)]
unsafe fn store_rows<S: Simd, const R: usize, const V: usize>(
    s: S,
    tile: &Tile<'_>,
    shift: usize,
    whole: bool,
    sums: &[[S::V; V]; R],
) {
    // SAFETY: the caller's duty.
    unsafe {
        match (whole, tile.rows == R, tile.clamp != NO_CLAMP, tile.after.is_some()) {
            (true, true, false, false) => store_rows_as::<S, R, V, true, true, false, false>(s, tile, shift, sums),
            (true, true, true, false) => store_rows_as::<S, R, V, true, true, true, false>(s, tile, shift, sums),
            (true, true, false, true) => store_rows_as::<S, R, V, true, true, false, true>(s, tile, shift, sums),
            (true, true, true, true) => store_rows_as::<S, R, V, true, true, true, true>(s, tile, shift, sums),
            (true, false, _, false) => store_rows_as::<S, R, V, true, false, true, false>(s, tile, shift, sums),
            (true, false, _, true) => store_rows_as::<S, R, V, true, false, true, true>(s, tile, shift, sums),
            (false, _, _, false) => store_rows_as::<S, R, V, false, false, true, false>(s, tile, shift, sums),
            (false, _, _, true) => store_rows_as::<S, R, V, false, false, true, true>(s, tile, shift, sums),
        }
    }
}

/// Stores the sums with bias, clamped if `CLAMP`, then with the epilogue's summand and clamped again if `ADD`. `WHOLE`: all lanes are
/// kept; `FULL`: so are all rows.
///
/// # Safety
/// As for [`store_rows`]; the tile is as the constants say, with a summand if `ADD`.
#[inline(always)]
unsafe fn store_rows_as<
    S: Simd,
    const R: usize,
    const V: usize,
    const WHOLE: bool,
    const FULL: bool,
    const CLAMP: bool,
    const ADD: bool,
>(
    s: S,
    tile: &Tile<'_>,
    shift: usize,
    sums: &[[S::V; V]; R],
) {
    static ZEROS: [f32; MAX_ROWS] = [0.0; MAX_ROWS];
    let bias = if tile.bias.is_null() { ZEROS.as_ptr() } else { tile.bias };
    let last = tile.after.as_ref().map_or(NO_CLAMP, |after| after.clamp);
    let (low, high) = (s.splat(tile.clamp.0), s.splat(tile.clamp.1));
    let (least, most) = (s.splat(last.0), s.splat(last.1));
    // SAFETY: the caller's duty; there is a bias, or a zero, for each row.
    unsafe {
        rows!(|row| R, {
            if FULL || row < tile.rows {
                let bias = s.splat(*bias.add(row));
                for v in 0..V {
                    let mut value = s.add(sums[row][v], bias);
                    if CLAMP {
                        value = s.min(high, s.max(low, value));
                    }
                    if let (true, Some(after)) = (ADD, &tile.after) {
                        let from = after.summand[v].wrapping_add(shift + row * after.row);
                        let other = if WHOLE { s.load(from) } else { s.load_masked(s.mask(tile.keep[v]), from) };
                        value = s.min(most, s.max(least, s.add(value, other)));
                    }
                    let to = tile.to[v].wrapping_add(shift + row * tile.row);
                    if WHOLE {
                        s.store(to, value);
                    } else {
                        s.store_compressed(tile.keep[v], to, value);
                    }
                }
            }
        });
    }
}

/// Applies the epilogue behind a tile's bias and clamp, if there is one.
///
/// # Safety
/// The lists have a value for each of the tile's rows; kept lanes of the summand can be read.
#[inline(always)]
unsafe fn finish<S: Simd, const R: usize, const V: usize>(
    s: S,
    tile: &Tile<'_>,
    shift: usize,
    whole: bool,
    sums: &mut [[S::V; V]; R],
) {
    let Some(after) = &tile.after else { return };
    // SAFETY: the caller's duty.
    unsafe {
        if after.summand[0].is_null() {
            apply(s, after.steps, after.values, after.clamp, sums);
            return;
        }
        apply(s, after.steps, after.values, NO_CLAMP, sums);
        let (low, high) = (s.splat(after.clamp.0), s.splat(after.clamp.1));
        rows!(|row| R, {
            if row < tile.rows {
                for v in 0..V {
                    let from = after.summand[v].wrapping_add(shift + row * after.row);
                    let other = if whole { s.load(from) } else { s.load_masked(s.mask(tile.keep[v]), from) };
                    sums[row][v] = s.min(high, s.max(low, s.add(sums[row][v], other)));
                }
            }
        });
    }
}

/// Applies steps, then clamps. `values` is the address of the first row's value in the first list.
///
/// # Safety
/// The lists have a value for each row.
#[inline(always)]
pub(super) unsafe fn apply<S: Simd, const R: usize, const V: usize>(
    s: S,
    steps: &[Step],
    values: *const f32,
    clamp: (f32, f32),
    sums: &mut [[S::V; V]; R],
) {
    /// Loop over the accumulators: a value of every vector and its row's number.
    macro_rules! each {
        (|$row:ident, $sum:ident| $value:expr) => {
            rows!(|$row| R, {
                for v in 0..V {
                    let $sum = sums[$row][v];
                    sums[$row][v] = $value;
                }
            })
        };
    }
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let mut i = 0;
    while i < steps.len() {
        match steps[i] {
            // SAFETY: the caller's duty.
            Step::Add(list) => each!(|row, sum| s.add(sum, s.splat(unsafe { *values.add(list + row) }))),
            // SAFETY: the caller's duty.
            Step::Multiply(list) => each!(|row, sum| s.mul(sum, s.splat(unsafe { *values.add(list + row) }))),
            Step::Clamp(low, high) => {
                let (low, high) = (s.splat(low), s.splat(high));
                each!(|row, sum| s.min(high, s.max(low, sum)));
            }
            Step::HardSigmoid(alpha, beta) => {
                let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                each!(|row, sum| s.min(one, s.max(zero, s.fma(alpha, sum, beta))));
            }
            Step::HardSwish(alpha, beta) => {
                // Minus infinity times zero is no number, and its limit zero.
                let (alpha, beta, lowest) = (s.splat(alpha), s.splat(beta), s.splat(f32::MIN));
                each!(|row, sum| s.mul(s.max(lowest, sum), s.min(one, s.max(zero, s.fma(alpha, sum, beta)))));
            }
            Step::Activation(activation) => activate(s, &activation, sums),
        }
        i += 1;
    }
    let (low, high) = (s.splat(clamp.0), s.splat(clamp.1));
    each!(|row, sum| s.min(high, s.max(low, sum)));
}

/// Maximum number of vectors of a tile.
const MAX_SUMS: usize = 32;

/// Memory that a tile's sums pass through.
#[repr(align(64))]
struct Passage(MaybeUninit<[[f32; MAX_LANES]; MAX_SUMS]>);

/// Applies an activation to the sums: in memory, by one function for all tiles. Inlined, it would be compiled for every size of every
/// algorithm.
///
/// # Panics
/// If there are more than [`MAX_SUMS`] vectors.
#[inline(always)]
pub(super) fn activate<S: Simd, const V: usize>(s: S, activation: &Activation, sums: &mut [[S::V; V]]) {
    assert!(sums.len() * V <= MAX_SUMS, "a tile has at most {MAX_SUMS} vectors");
    let mut passage = Passage(MaybeUninit::uninit());
    let values = passage.0.as_mut_ptr().cast::<f32>();
    // SAFETY: so many vectors, of at most `MAX_LANES` lanes, have their places one behind the other, and each is written before the
    // function sees them.
    unsafe {
        for (row, sums) in sums.iter().enumerate() {
            for v in 0..V {
                s.store(values.add((row * V + v) * S::LANES), sums[v]);
            }
        }
        activate_row(s, activation, values, sums.len() * V * S::LANES);
        for (row, sums) in sums.iter_mut().enumerate() {
            for v in 0..V {
                sums[v] = s.load(values.add((row * V + v) * S::LANES));
            }
        }
    }
}

/// Applies an activation to `len` values in place.
///
/// # Safety
/// So many values can be read and written.
#[inline(always)]
pub(super) unsafe fn activate_row<S: Simd>(s: S, activation: &Activation, values: *mut f32, len: usize) {
    // SAFETY: the caller's duty.
    s.call(Activate { activation, values: unsafe { std::slice::from_raw_parts_mut(values, len) } });
}

/// Kernel of [`activate_row`], compiled once for all callers.
struct Activate<'a> {
    activation: &'a Activation,
    values: &'a mut [f32],
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.activation.apply_with(s, self.values);
    }
}

/// Adds the products of a single tap, and asks for places ahead or for the factors at `next`.
///
/// # Safety
/// Factors and places can be read as [`Tile`] says.
#[inline(always)]
unsafe fn add<S: Simd, const R: usize, const V: usize>(
    s: S,
    tile: &Tile<'_>,
    mut b: *const f32,
    mut next: *const f32,
    sums: &mut [[S::V; V]; R],
) {
    let (mut a, mut left) = (tile.a, tile.channels);
    let (a_step, step_b) = (tile.a_step, tile.step);
    // SAFETY: the caller's duty.
    unsafe {
        while left >= UNROLLED {
            if tile.fetch {
                let mut i = 0;
                while i < UNROLLED {
                    // Where the places begin inside of a line, the tile before had the first one.
                    let mut end = 0;
                    while end < V * S::LANES {
                        end = (end + LINE).min(V * S::LANES);
                        s.prefetch(b.wrapping_add((AHEAD + i) * step_b + end - 1));
                    }
                    i += 1;
                }
            } else if !next.is_null() {
                next = fetch_factors::<S, R>(s, next, LINE);
            }
            let mut i = 0;
            while i < UNROLLED {
                step(s, a.wrapping_add(i * a_step), b.wrapping_add(i * step_b), sums);
                i += 1;
            }
            a = a.wrapping_add(UNROLLED * a_step);
            b = b.wrapping_add(UNROLLED * step_b);
            left -= UNROLLED;
        }
        while left > 0 {
            step(s, a, b, sums);
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(step_b);
            left -= 1;
        }
    }
}

/// Adds the products of several taps, and asks for the factors at `next`.
///
/// # Safety
/// Factors and places can be read as [`Tile`] says.
#[inline(always)]
unsafe fn add_taps<S: Simd, const R: usize, const V: usize>(
    s: S,
    tile: &Tile<'_>,
    mut b: *const f32,
    next: *const f32,
    sums: &mut [[S::V; V]; R],
) {
    let mut a = tile.a;
    // Without anything to fetch the first factors are asked for again and again, which costs nothing.
    let (mut next, line) = if next.is_null() { (a, 0) } else { (next, LINE) };
    let (taps, count) = (tile.taps.as_ptr(), tile.taps.len());
    // SAFETY: the caller's duty.
    unsafe {
        for _ in 0..tile.channels {
            let mut tap = 0;
            while tap + UNROLLED <= count {
                next = fetch_factors::<S, R>(s, next, line);
                let mut i = 0;
                while i < UNROLLED {
                    step(s, a.wrapping_add(i * tile.a_step), b.add(*taps.add(tap + i)), sums);
                    i += 1;
                }
                a = a.wrapping_add(UNROLLED * tile.a_step);
                tap += UNROLLED;
            }
            while tap < count {
                step(s, a, b.add(*taps.add(tap)), sums);
                a = a.wrapping_add(tile.a_step);
                tap += 1;
            }
            b = b.wrapping_add(tile.step);
        }
    }
}

/// Asks for as many factors as [`UNROLLED`] steps have, in lines `line` apart, and returns the address behind them.
#[inline(always)]
fn fetch_factors<S: Simd, const R: usize>(s: S, next: *const f32, line: usize) -> *const f32 {
    let lines = const { (R * UNROLLED).div_ceil(LINE) };
    let mut i = 0;
    while i < lines {
        s.prefetch_far(next.wrapping_add(i * line));
        i += 1;
    }
    next.wrapping_add(lines * line)
}

/// Computes one outer product of a column of `a` and a row of `b`.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(s: S, a: *const f32, b: *const f32, sums: &mut [[S::V; V]; R]) {
    // SAFETY: the caller's duty.
    unsafe {
        let mut places = [s.splat(0.0); V];
        for v in 0..V {
            places[v] = s.load(b.add(v * S::LANES));
        }
        rows!(|row| R, {
            let factor = s.splat(*a.add(row));
            for v in 0..V {
                sums[row][v] = s.fma(factor, places[v], sums[row][v]);
            }
        });
    }
}
