//! Depthwise convolution of images whose channels are apart, where they lie: vectors run over the columns of some
//! output rows, and every loaded vector of an input row serves all of them.
//!
//! Rows outside of the image are a row of zeros in scratch memory. With vectors of sixteen lanes, of which nearly every
//! unaligned one crosses a cache line, a row of the input is loaded once, and the vectors of its taps are windows over two
//! neighboring ones. With fewer, every tap loads its own: columns outside of the image are masked out of the first and the
//! last vectors, all others are loaded whole, and the last vector of a row begins early enough to be whole.
//!
//! A unit of work is some blocks of rows, of one channel after the other.

use super::super::band::{inside, zero};
use super::super::direct;
use super::super::epilogue::{self, Epilogue, InTile};
use super::super::problem::{Element, Layout, Problem, Shape};
use super::super::tile;
use super::super::units::{InUnits, Unit};
use super::windows::{Lines, Vectors};
use super::{FAR, LEAST_CHANNELS};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};
use hipdnn_cpu_simd::scratch;

/// Output rows of a block.
pub(super) const BLOCK: usize = 4;

/// Maximum number of input rows of a block: those of 5×5 with a stride of two.
pub(super) const MOST_LINES: usize = (BLOCK - 1) * 2 + 5;

/// Values of a cache line.
const LINE: usize = scratch::LINE / size_of::<f32>();

/// Maximum number of column masks of a plan.
const MOST_MASKS: usize = 1 << 16;

#[derive(Debug)]
pub(in super::super) struct DepthwiseRows {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp, and its steps for lists of one value.
    direct: InTile,
    steps: Vec<tile::Step>,
    /// Load masks: lanes of each (vector of columns, kernel column) whose input is inside of the row. None where vectors of
    /// taps are windows.
    masks: Vec<u32>,
    /// Vectors of a row that are loaded without masks.
    whole: std::ops::Range<usize>,
    /// True if rows of the input are asked for before they are needed.
    far: bool,
    /// Number of blocks of rows of a plane, and of units.
    blocks: usize,
    units: usize,
    /// Estimated cycles of a run.
    pub(in super::super) cost: f64,
}

impl DepthwiseRows {
    /// Makes the plan, if there are blocks made for the kernel, and the epilogue can be computed in registers.
    pub(in super::super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<DepthwiseRows> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let (kernel, stride) = ((shape.kernel[1], shape.kernel[2]), (shape.stride[1], shape.stride[2]));
        // With sixteen lanes planes are faster for five taps and a stride of two: a row's vectors are pairs, more than there are
        // registers, or each is in few sums.
        let made = match (kernel, stride) {
            ((3, 3), (1 | 2, 1 | 2)) | ((5, 5) | (7, 7), (1, 1)) => true,
            ((5, 5), (1 | 2, 1 | 2)) => !in_windows(isa.lanes()),
            _ => false,
        };
        let applies = shape.groups >= LEAST_CHANNELS
            && shape.is_depthwise()
            && (shape.input[0], shape.kernel[0], shape.output[0], shape.pad_before[0]) == (1, 1, 1, 0)
            && (shape.dilation[1], shape.dilation[2]) == (1, 1)
            && (problem.x.element, problem.x.strides[4]) == (Element::F32, 1)
            && (problem.y.strides[4] == 1 || ow == 1)
            && (in_windows(isa.lanes()) || shape.kernel[2].saturating_mul(ow) <= MOST_MASKS);
        if !made || !applies {
            return None;
        }
        let finish = Epilogue::new(problem);
        let direct = finish.in_tile().filter(|direct| direct.summand.is_none())?;
        let lanes = isa.lanes();
        let mut masks = Vec::new();
        for q in starts(ow, lanes).filter(|_| !in_windows(lanes)) {
            for column in 0..shape.kernel[2] {
                let is_inside = |lane: usize| {
                    let place = (q + lane) * shape.stride[2] + column;
                    q + lane < ow && inside(place, shape.pad_before[2], shape.input[2]).is_some()
                };
                masks.push((0..lanes).filter(|lane| is_inside(*lane)).fold(0, |mask, lane| mask | 1 << lane));
            }
        }
        let vectors = ow.div_ceil(lanes);
        let is_whole = |vector: &usize| {
            let masks = masks.chunks_exact(shape.kernel[2]).nth(*vector);
            masks.is_some_and(|masks| masks.iter().all(|mask| *mask == first(lanes)))
        };
        let begin = (0..vectors).find(is_whole).unwrap_or(vectors);
        let whole = begin..(begin..vectors).find(|vector| !is_whole(vector)).unwrap_or(vectors);
        let blocks = oh.div_ceil(BLOCK);
        let mut plan = DepthwiseRows {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            steps: epilogue::steps(Some(&direct), 1),
            direct,
            masks,
            whole,
            far: size_of::<f32>() * shape.groups * shape.input[1] * shape.input[2] > FAR,
            blocks,
            units: (shape.batch * shape.groups * blocks).min(8 * threads),
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        plan.cost = plan.cycles(threads);
        Some(plan)
    }

    /// Estimated cycles of a run.
    fn cycles(&self, threads: usize) -> f64 {
        let plane = if in_windows(self.isa.lanes()) { self.plane_of_windows() } else { self.plane_of_loads() };
        (self.shape.batch * self.shape.groups) as f64 * plane / threads as f64
    }

    /// Estimated cycles of a plane whose taps are windows. The constants are of 60 layers on AVX-512 (Zen 5): the windows of
    /// a loaded vector pass the shuffles while the multiply-adds are computed.
    fn plane_of_windows(&self) -> f64 {
        let shape = &self.shape;
        let vectors = shape.output[2].div_ceil(self.isa.lanes()) as f64;
        let loads = (((BLOCK - 1) * shape.stride[1] + shape.kernel[1]) * shape.stride[2]) as f64;
        // The vectors of seven columns are more than there are registers.
        let product = if shape.kernel[2] == 7 { 0.63 } else { 0.5 };
        let products = product * (shape.taps() * BLOCK) as f64;
        55.0 + self.blocks as f64 * (0.9 * loads + vectors * (products + 3.3 * loads))
    }

    /// Estimated cycles of a plane whose taps are loaded. The constants are of layers of five networks on AVX2 (Zen 3): a
    /// vector's loads and multiply-adds don't overlap, and every second column takes two loads, half of which cross a line,
    /// and a shuffle.
    fn plane_of_loads(&self) -> f64 {
        let shape = &self.shape;
        let vectors = shape.output[2].div_ceil(self.isa.lanes());
        let taps = shape.taps() as f64;
        let lines = ((BLOCK - 1) * shape.stride[1] + shape.kernel[1]) as f64;
        let load = if shape.stride[2] == 1 { 0.5 } else { 1.7 };
        let sums = (taps * BLOCK as f64 + taps) / 2.0 + lines * shape.kernel[2] as f64 * load;
        let masked = (vectors - self.whole.len()) as f64 * taps / 2.0;
        55.0 + self.blocks as f64 * (10.0 + masked + vectors as f64 * (8.0 + sums))
    }

    /// Values of a row of zeros, which stands for rows outside of the image.
    fn zeros_len(&self) -> usize {
        self.shape.input[2].next_multiple_of(MAX_LANES)
    }
}

impl InUnits for DepthwiseRows {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.units
    }

    fn slot(&self) -> usize {
        (self.zeros_len() + epilogue::lists_len(Some(&self.direct), 1)).next_multiple_of(16)
    }
}

impl Kernel for Unit<'_, DepthwiseRows> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let [_, oh, _] = shape.output;
        let all = shape.batch * shape.groups * plan.blocks;
        let share = |unit: usize| all * unit / plan.units;
        let (mut block, end) = (share(self.unit), share(self.unit + 1));
        let lists = self.slot.wrapping_add(plan.zeros_len());
        let function = function::<S>((shape.kernel[1], shape.stride[1], shape.stride[2]));
        // SAFETY: the slot has the zeros and the lists behind them; image, channel and rows are below the problem's
        // numbers of them; the memory is the caller's, as `run` of [`InUnits`] asks.
        unsafe {
            zero(s, self.slot, plan.zeros_len());
            while block < end {
                let (plane, from) = (block / plan.blocks, block % plan.blocks);
                let to = plan.blocks.min(from + end - block);
                let (image, channel) = (plane / shape.groups, plane % shape.groups);
                plan.finish.fill_lists(Some(&plan.direct), self.operands, image, channel, 1, lists, 1);
                let input = image * plan.x.strides[0] + channel * plan.x.strides[1];
                function(
                    s,
                    &Rows {
                        plan,
                        x: self.x.cast::<f32>().wrapping_add(input),
                        weights: self.weights.wrapping_add(channel * shape.taps()),
                        zeros: self.slot,
                        lists,
                        rows: (from * BLOCK, oh.min(to * BLOCK)),
                        to: self.y.cast::<f32>().wrapping_add(plan.y.offset([image, channel, 0, 0, 0])),
                    },
                );
                block += to - from;
            }
        }
    }
}

/// Microkernel arguments: rows of an output plane.
struct Rows<'a> {
    plan: &'a DepthwiseRows,
    /// Planes of the input and of the output.
    x: *const f32,
    to: *mut f32,
    /// Weights of the channel.
    weights: *const f32,
    /// Zeros, as many as a row of the input has columns.
    zeros: *const f32,
    /// Bias, and the values of the epilogue's lists.
    lists: *const f32,
    /// First row, and the one behind the last.
    rows: (usize, usize),
}

type RowsFn<S> = unsafe fn(S, &Rows<'_>);

/// Function for square kernels of `(size, row stride, column stride)`.
fn function<S: Simd>(size: (usize, usize, usize)) -> RowsFn<S> {
    macro_rules! among {
        ($($kernel:literal $rows:literal $columns:literal;)+) => {
            match size {
                $(($kernel, $rows, $columns) => enter::<S, $kernel, $rows, $columns>,)+
                _ => unreachable!("plans are made for the kernels there are"),
            }
        };
    }
    among!(3 1 1; 3 1 2; 3 2 1; 3 2 2; 5 1 1; 5 1 2; 5 2 1; 5 2 2; 7 1 1;)
}

/// # Safety
/// As in [`Rows`]: the planes, weights and lists of the plan's shape are there.
unsafe fn enter<S: Simd, const W: usize, const SH: usize, const SW: usize>(s: S, rows: &Rows<'_>) {
    s.call(Run::<W, SH, SW>(rows));
}

struct Run<'a, const W: usize, const SH: usize, const SW: usize>(&'a Rows<'a>);

impl<const W: usize, const SH: usize, const SW: usize> Kernel for Run<'_, W, SH, SW> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.0;
        let plan = rows.plan;
        let [_, height, width] = plan.shape.input;
        let ow = plan.shape.output[2];
        let [_, pad, left] = plan.shape.pad_before;
        let line = plan.x.strides[3];
        let (low, high) = (s.splat(plan.finish.clamp.0), s.splat(plan.finish.clamp.1));
        // SAFETY: the list of the bias has a value.
        let bias = s.splat(unsafe { *rows.lists });
        let mut factors = [[s.splat(0.0); W]; W];
        for (i, factor) in factors.as_flattened_mut().iter_mut().enumerate() {
            // SAFETY: the channel has a weight for each tap.
            *factor = s.splat(unsafe { *rows.weights.add(i) });
        }
        let (mut row, end) = rows.rows;
        while row < end {
            let mut at = [rows.zeros; MOST_LINES];
            for (t, p) in at.iter_mut().enumerate().take((BLOCK - 1) * SH + W) {
                if let Some(t) = inside(row * SH + t, pad, height) {
                    *p = rows.x.wrapping_add(t * line);
                }
            }
            let lines = Lines { at: &at, width, left };
            let mut before: Vectors<S::V> = [[s.splat(0.0); 2]; MOST_LINES];
            if in_windows(S::LANES) {
                // SAFETY: lines are rows of the image or of zeros.
                before = unsafe { lines.before::<S, W, SH, SW>(s) };
            }
            let next = rows.x.wrapping_add((row * SH + (BLOCK - 1) * SH + W).saturating_sub(pad) * line);
            let count = BLOCK.min(end - row);
            for (vector, q) in starts(ow, S::LANES).enumerate() {
                let columns = SW * S::LANES;
                if plan.far && (columns >= LINE || vector % 2 == 0) {
                    // The rows of the next block come while this one is computed.
                    for t in 0..BLOCK * SH {
                        for column in (0..columns).step_by(LINE) {
                            s.prefetch(next.wrapping_add(t * line + q * SW + column));
                        }
                    }
                }
                let mut sums = [[s.splat(0.0); BLOCK]];
                // SAFETY: masks name columns of the row, whole vectors have no other; lines are rows of the image or of
                // zeros; the weights are the channel's.
                unsafe {
                    if in_windows(S::LANES) {
                        sums[0] = lines.sum::<S, W, SH, SW>(s, q, rows.weights, &factors, &mut before);
                    } else {
                        let is_whole = plan.whole.contains(&vector);
                        let masks = (!is_whole).then(|| plan.masks.as_ptr().wrapping_add(vector * W));
                        sum::<S, W, SH, SW>(s, &lines, q * SW, rows.weights, masks, &mut sums[0]);
                    }
                }
                for sum in &mut sums[0] {
                    *sum = s.min(high, s.max(low, s.add(*sum, bias)));
                }
                if !plan.direct.is_empty() {
                    // SAFETY: there is a value behind the bias for each list that the steps name.
                    unsafe { tile::apply(s, &plan.steps, rows.lists.wrapping_add(1), plan.direct.clamp, &mut sums) };
                }
                for (i, sum) in sums[0].into_iter().enumerate() {
                    if i < count {
                        let to = rows.to.wrapping_add((row + i) * plan.y.strides[3] + q);
                        let sum = if SW == 1 || in_windows(S::LANES) { sum } else { s.ordered(sum) };
                        // SAFETY: the lanes are columns of an output row.
                        unsafe {
                            if ow - q >= S::LANES {
                                s.store(to, sum);
                            } else {
                                s.store_first(ow - q, to, sum);
                            }
                        }
                    }
                }
            }
            row += BLOCK;
        }
    }
}

/// True if vectors of taps are windows over a line's, where vectors have so many lanes.
const fn in_windows(lanes: usize) -> bool {
    lanes == MAX_LANES
}

/// First columns of the vectors of a row of `columns` outputs.
#[inline(always)]
fn starts(columns: usize, lanes: usize) -> impl Iterator<Item = usize> {
    // Windows move on by a vector: the last one of a row is partly behind it.
    let whole = if in_windows(lanes) { columns.next_multiple_of(lanes) } else { columns };
    direct::starts(whole, lanes)
}

/// Adds the products of a kernel of `W` by `W` taps to the sums of a vector of columns of each row, the first tap's
/// column being `column` of the lines.
///
/// # Safety
/// In each of the first `(BLOCK - 1) · SH + W` lines the columns of the masks, all without any, can be read; there are
/// `W` masks and `W²` weights.
#[inline(always)]
unsafe fn sum<S: Simd, const W: usize, const SH: usize, const SW: usize>(
    s: S,
    lines: &Lines<'_>,
    column: usize,
    weights: *const f32,
    masks: Option<*const u32>,
    sums: &mut [S::V; BLOCK],
) {
    for tap in 0..W {
        // SAFETY: the caller's duty.
        unsafe {
            let mask = masks.map(|masks| *masks.wrapping_add(tap));
            let mut factors = [s.splat(0.0); W];
            for (r, factor) in factors.iter_mut().enumerate() {
                *factor = s.splat(*weights.add(r * W + tap));
            }
            // Spelled out: the compiler leaves a loop of so many rows as it is, with the sums in memory.
            macro_rules! lines {
                ($($t:literal)+) => { $(
                    if $t < (BLOCK - 1) * SH + W {
                        let value = load::<S, SW>(s, lines.at[$t].wrapping_add(column + tap).wrapping_sub(lines.left), mask);
                        for r in 0..W {
                            if $t >= r && ($t - r) % SH == 0 && ($t - r) / SH < BLOCK {
                                sums[($t - r) / SH] = s.fma(value, factors[r], sums[($t - r) / SH]);
                            }
                        }
                    }
                )+ };
            }
            lines!(0 1 2 3 4 5 6 7 8 9 10);
        }
    }
}

/// Loads the columns of the mask, all without one, from every `SW`th place on; every second ones in the set's order.
///
/// # Safety
/// Those places, and those between them, can be read.
#[inline(always)]
unsafe fn load<S: Simd, const SW: usize>(s: S, p: *const f32, mask: Option<u32>) -> S::V {
    // SAFETY: the caller's duty.
    unsafe {
        match (mask, SW) {
            (None, 1) => s.load(p),
            (None, _) => s.load_even_unordered(first(S::LANES), p),
            (Some(mask), 1) => s.load_masked(s.mask(mask), p),
            (Some(mask), _) => s.load_even_unordered(mask, p),
        }
    }
}
