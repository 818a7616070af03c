//! Depthwise convolution of images whose channels are apart, where they lie: vectors run over the columns of the output, and strips of
//! one walk down its rows.
//!
//! Every tap loads its own vector, with a stride of two every pair of taps two that are separated: columns outside of the image are
//! masked out of the first and the last strips, all others are loaded whole, and the last strip of a row begins early enough to be
//! whole. Rows outside of the image are not looked at.
//!
//! A unit of work is some bands of rows, of one channel after the other.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::super::direct::{mask, starts};
use super::super::epilogue::{self, Epilogue, InTile, Tail};
use super::super::problem::{Element, Layout, Problem, Shape};
use super::super::tile;
use super::super::units::{InUnits, Unit};
use super::strips::{self, LINE};
use super::{FAR, LEAST_CHANNELS};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};
use hipdnn_cpu_simd::machine::Class;

/// Vectors of sums that are finished together.
const BLOCK: usize = 8;

/// Values of the input rows that the strips of a band look at: a quarter of the first-level cache.
const BAND_VALUES: usize = 2048;

/// Minimum and maximum number of output rows of a band.
const BAND_ROWS: (usize, usize) = (4, 64);

/// Number of units of a thread.
const UNITS: usize = 8;

/// Bytes of an image beyond which rows are asked for before they are needed: less than the second-level cache holds, since the output
/// is written beside it (images of 200 to 450 KiB take 0.97 of their time with AVX2).
const AHEAD: usize = FAR / 4;

/// Maximum number of load masks of a plan.
const MOST_MASKS: usize = 1 << 16;

/// Estimated cycles.
struct Estimate {
    /// Of a plane and of a strip, beside their rows.
    plane: f64,
    strip: f64,
    /// Of two multiply-adds, and of a load.
    product: f64,
    load: f64,
    /// Of an output row of fewer columns than a vector has lanes.
    narrow: f64,
    /// Of a byte of an image beyond the second-level cache.
    byte: f64,
}

/// Estimates for vectors of eight lanes (AVX2 on Zen 3) and of sixteen (AVX-512 on Sapphire Rapids), fitted to 70 layers.
const EIGHT: Estimate = Estimate { plane: 150.0, strip: 43.0, product: 0.67, load: 0.28, narrow: 2.0, byte: 0.035 };
const SIXTEEN: Estimate = Estimate { plane: 20.0, strip: 17.0, product: 0.78, load: 0.95, narrow: 7.0, byte: 0.011 };
/// The latter for AMD's CPUs whose vectors of sixteen lanes take a cycle (Zen 5).
const SIXTEEN_OF_AMD: Estimate =
    Estimate { plane: 0.0, strip: 52.0, product: 1.15, load: 0.53, narrow: 8.4, byte: 0.015 };

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
    /// Activation behind it, of results in the output.
    tail: Option<Activation>,
    /// Masks of the loads of each strip: lanes inside of the image.
    masks: Vec<u32>,
    /// True for each strip that is loaded without masks.
    whole: Vec<bool>,
    /// True if rows of the input are asked for before they are needed.
    far: bool,
    /// Number of output rows of a band, of bands of a plane, and of units.
    height: usize,
    bands: usize,
    units: usize,
    /// Estimated cycles of a run.
    pub(in super::super) cost: f64,
}

impl DepthwiseRows {
    /// Makes the plan, if there is a microkernel for the taps and strides, and the epilogue can be computed in registers: a summand is `f32`
    /// with its columns side by side.
    pub(in super::super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<DepthwiseRows> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let (kernel, stride) = ((shape.kernel[1], shape.kernel[2]), (shape.stride[1], shape.stride[2]));
        let made = matches!((kernel, stride), ((3, 3) | (5, 5), (1 | 2, 1 | 2)) | ((7, 7), (1, 1)));
        let beside = |layout: &Layout| layout.strides[4] == 1 || ow == 1;
        let applies = shape.groups >= LEAST_CHANNELS
            && shape.is_depthwise()
            && (shape.input[0], shape.kernel[0], shape.output[0], shape.pad_before[0]) == (1, 1, 1, 0)
            && (shape.dilation[1], shape.dilation[2]) == (1, 1)
            && (problem.x.element, problem.x.strides[4]) == (Element::F32, 1)
            && (problem.y.element, beside(&problem.y)) == (Element::F32, true)
            && ow.div_ceil(isa.lanes()).saturating_mul(shape.kernel[2] + 1) <= MOST_MASKS;
        if !made || !applies {
            return None;
        }
        let finish = Epilogue::new(problem);
        let mut direct = finish.with_summand(|layout| layout.element == Element::F32 && beside(layout))?;
        let tail = direct.take_tail();
        let lanes = isa.lanes();
        let (mut masks, mut whole) = (Vec::new(), Vec::new());
        for q in starts(ow, lanes) {
            let (width, stride) = (shape.input[2] as isize, shape.stride[2]);
            let begin = (q * stride) as isize - shape.pad_before[2] as isize;
            let end = begin + ((lanes - 1) * stride + shape.kernel[2]) as isize;
            whole.push(ow >= lanes && begin >= 0 && end <= width);
            for load in strips::loads(shape.kernel[2], stride, lanes) {
                masks.push(mask(lanes, |lane| (0..width).contains(&(begin + (load + lane) as isize))));
            }
        }
        let planes = shape.batch * shape.groups;
        let (least, most) = BAND_ROWS;
        let mut height = (BAND_VALUES / (shape.stride[1] * problem.x.strides[3]).max(1)).clamp(least, most).min(oh);
        while height > least && planes * oh.div_ceil(height) < UNITS * threads {
            height = height.div_ceil(2).max(least);
        }
        let bands = oh.div_ceil(height);
        let mut plan = DepthwiseRows {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            steps: epilogue::steps(Some(&direct), 1),
            direct,
            tail,
            masks,
            whole,
            far: shape.image_bytes() > AHEAD,
            height,
            bands,
            units: (planes * bands).min(UNITS * threads),
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        plan.cost = plan.cycles(threads);
        Some(plan)
    }

    /// Estimated cycles of a run.
    fn cycles(&self, threads: usize) -> f64 {
        let shape = &self.shape;
        let lanes = self.isa.lanes();
        let estimate = match Class::of(lanes) {
            Class::Eight => &EIGHT,
            Class::Sixteen | Class::HalvesOfAmd => &SIXTEEN,
            Class::SixteenOfAmd => &SIXTEEN_OF_AMD,
        };
        let ([_, oh, ow], [_, height, width]) = (shape.output, shape.input);
        let (taps, [_, row_stride, stride]) = (shape.kernel[2] as f64, shape.stride);
        // Rows of the image that a strip of each band looks at, and what each of them costs.
        let rows = |band: usize| {
            let (begin, end) = (band * self.height, oh.min((band + 1) * self.height));
            let reach = (end - 1) * row_stride + shape.kernel[1];
            reach.min(height + shape.pad_before[1]).saturating_sub((begin * row_stride).max(shape.pad_before[1]))
        };
        let rows: usize = (0..self.bands).map(rows).sum();
        let products = taps * taps / (2 * row_stride) as f64;
        let loads = if stride == 1 { taps } else { 1.5 * taps + 1.0 };
        // More weights than there are registers are loaded; with sixteen lanes the other estimates have it.
        let weights = if lanes == 16 || taps == 3.0 { 0.0 } else { taps * taps / row_stride as f64 };
        let row = estimate.product * products + estimate.load * (loads + weights);
        let strips = ow.div_ceil(lanes) as f64 * (estimate.strip * self.bands as f64 + row * rows as f64);
        let narrow = if ow < lanes { estimate.narrow * oh as f64 } else { 0.0 };
        let bytes = if shape.image_bytes() > FAR { size_of::<f32>() * (height * width + oh * ow) } else { 0 };
        let plane = estimate.plane + strips + narrow + estimate.byte * bytes as f64;
        (shape.batch * shape.groups) as f64 * plane / threads as f64
    }

    /// Values of the sums of a band, and of a vector behind them; none where the output takes all of them.
    fn band_len(&self) -> usize {
        if self.stores_sums() { 0 } else { self.height * self.shape.output[2] + self.isa.lanes() }
    }

    /// True if strips of sums are stored to the output, whose rows have a vector.
    fn stores_sums(&self) -> bool {
        self.direct.is_empty() && self.shape.output[2] >= self.isa.lanes()
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
        let factors = self.shape.taps() * self.isa.lanes();
        (factors + self.band_len() + epilogue::lists_len(Some(&self.direct), 1)).next_multiple_of(16)
    }
}

impl Kernel for Unit<'_, DepthwiseRows> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let [_, oh, _] = shape.output;
        let all = shape.batch * shape.groups * plan.bands;
        let share = |unit: usize| all * unit / plan.units;
        let (mut band, end) = (share(self.unit), share(self.unit + 1));
        let sums = self.slot.wrapping_add(shape.taps() * S::LANES);
        let lists = sums.wrapping_add(plan.band_len());
        let function = function::<S>((shape.kernel[1], shape.stride[1], shape.stride[2]));
        let mut tail = Tail::new(plan.tail.as_ref());
        // SAFETY: the slot has vectors of the weights, the sums of a band and the lists behind them; image, channel and rows are below
        // the problem's numbers of them; the memory is the caller's, as `run` of [`InUnits`] asks.
        unsafe {
            while band < end {
                let (plane, from) = (band / plan.bands, band % plan.bands);
                let to = plan.bands.min(from + end - band);
                let (image, channel) = (plane / shape.groups, plane % shape.groups);
                plan.finish.fill_lists(Some(&plan.direct), self.operands, image, channel, 1, lists, 1);
                let input = image * plan.x.strides[0] + channel * plan.x.strides[1];
                let summand = match &plan.direct.summand {
                    Some((operand, layout)) => {
                        let p = (*self.operands.add(*operand)).cast::<f32>();
                        (p.wrapping_add(layout.offset([image, channel, 0, 0, 0])), layout.strides[3])
                    }
                    None => (std::ptr::null(), 0),
                };
                function(
                    s,
                    &mut tail,
                    &Rows {
                        plan,
                        x: self.x.cast::<f32>().wrapping_add(input),
                        weights: self.weights.wrapping_add(channel * shape.taps()),
                        lists,
                        factors: self.slot,
                        band: sums,
                        rows: (from * plan.height, oh.min(to * plan.height)),
                        to: self.y.cast::<f32>().wrapping_add(plan.y.offset([image, channel, 0, 0, 0])),
                        summand,
                    },
                );
                band += to - from;
            }
            tail.finish(s);
        }
    }
}

/// Microkernel arguments: rows of an output plane.
struct Rows<'a> {
    plan: &'a DepthwiseRows,
    /// Planes of the input and of the output.
    x: *const f32,
    to: *mut f32,
    /// Plane of the summand and stride between its rows; null for none.
    summand: (*const f32, usize),
    /// Weights of the channel.
    weights: *const f32,
    /// Room for a vector of each weight.
    factors: *mut f32,
    /// Room for the sums of a band.
    band: *mut f32,
    /// Bias, and the values of the epilogue's lists.
    lists: *const f32,
    /// First row, and the one behind the last.
    rows: (usize, usize),
}

type RowsFn<S> = unsafe fn(S, &mut Tail<'_>, &Rows<'_>);

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
/// As in [`Rows`]: the planes, weights and lists of the plan's shape are there, vectors for each weight, and room for the sums of a band.
unsafe fn enter<S: Simd, const W: usize, const SH: usize, const SW: usize>(s: S, tail: &mut Tail<'_>, rows: &Rows<'_>) {
    s.call(Run::<W, SH, SW>(rows, tail));
}

struct Run<'a, 'b, const W: usize, const SH: usize, const SW: usize>(&'a Rows<'a>, &'a mut Tail<'b>);

impl<const W: usize, const SH: usize, const SW: usize> Kernel for Run<'_, '_, W, SH, SW> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Run(rows, tail) = self;
        let plan = rows.plan;
        let [_, height, _] = plan.shape.input;
        let ow = plan.shape.output[2];
        let [_, pad, left] = plan.shape.pad_before;
        let line = plan.x.strides[3];
        // SAFETY: the list of the bias has a value.
        let bias = s.splat(unsafe { *rows.lists });
        for i in 0..W * W {
            // SAFETY: the channel has a weight for each tap, and the slot a vector.
            unsafe { s.store(rows.factors.wrapping_add(i * S::LANES), s.splat(*rows.weights.add(i))) };
        }
        let clamp = (s.splat(plan.finish.clamp.0), s.splat(plan.finish.clamp.1));
        let factors = strips::Factors { weights: rows.factors, bias, clamp };
        let beside = plan.stores_sums();
        let (mut row, end) = rows.rows;
        while row < end {
            let count = plan.height.min(end - row);
            for (vector, q) in starts(ow, S::LANES).enumerate() {
                // The rows of the next band come while this one is computed, unless the strip beside has asked for them.
                let asks = plan.far && (SW * S::LANES >= LINE || vector % 2 == 0);
                let masks = plan.masks.as_ptr().wrapping_add(vector * (W + SW - 1));
                let columns = strips::Columns {
                    at: rows.x.wrapping_add(q * SW).wrapping_sub(left),
                    line,
                    height,
                    ahead: if asks { plan.height * SH * line } else { 0 },
                    masks: if plan.whole[vector] { std::ptr::null() } else { masks },
                };
                let to = rows.to.wrapping_add(row * plan.y.strides[3] + q);
                // Of a row shorter than a vector, what is behind it is overwritten by the next one.
                let (sums, pitch) = if beside { (to, plan.y.strides[3]) } else { (rows.band.wrapping_add(q), ow) };
                let top = (row * SH) as isize - pad as isize;
                // SAFETY: masks name columns of the image, and whole strips look at no other; the output's rows have a vector from the
                // strip's first column on, or the slot has them and a vector behind the last.
                unsafe { columns.walk::<S, W, SH, SW>(s, &factors, strips::Rows { top, count, to: sums, pitch }) };
            }
            if !beside {
                s.call(Finish { rows, row, count });
            }
            // Rows that follow each other are as good as one.
            let pitch = plan.y.strides[3];
            let (runs, len) = if pitch == ow { (1, count * ow) } else { (count, ow) };
            for run in 0..runs {
                // SAFETY: the band's rows of the output.
                unsafe { tail.add(s, rows.to.wrapping_add((row + run) * pitch), len) };
            }
            row += count;
        }
    }
}

/// Epilogue of the sums of a band, `count` rows from `row` on: one function for all kernels. Who makes it vouches for what
/// [`Rows::finish`] asks.
struct Finish<'a> {
    rows: &'a Rows<'a>,
    row: usize,
    count: usize,
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the strips are the band's sums, and its rows the output's and the summand's.
        unsafe { self.rows.finish(s, self.row, self.count) };
    }
}

impl Rows<'_> {
    /// Computes the epilogue of a band's sums, `count` rows, and stores them from output row `row` on.
    ///
    /// # Safety
    /// `band` has the sums, row by row without gaps, and a vector behind them; the output's rows can be written, and those of the
    /// summand read.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, row: usize, count: usize) {
        let plan = self.plan;
        let ow = plan.shape.output[2];
        let (to_pitch, (summand, pitch)) = (plan.y.strides[3], self.summand);
        let to = self.to.wrapping_add(row * to_pitch);
        let summand = if summand.is_null() { summand } else { summand.wrapping_add(row * pitch) };
        // Rows that follow each other in all of them are as good as one.
        let as_one = to_pitch == ow && (summand.is_null() || pitch == ow);
        let (count, len) = if as_one { (1, count * ow) } else { (count, ow) };
        for row in 0..count {
            let mut at = 0;
            while at < len {
                let left = len - at;
                let from = self.band.wrapping_add(row * ow + at).cast_const();
                let to = to.wrapping_add(row * to_pitch + at);
                let summand = if summand.is_null() { summand } else { summand.wrapping_add(row * pitch + at) };
                // SAFETY: so many values are left of the sums, and of the output's and the summand's rows.
                unsafe {
                    if left >= BLOCK * S::LANES {
                        self.block::<S, BLOCK>(s, from, summand, to, BLOCK * S::LANES);
                        at += BLOCK * S::LANES;
                    } else {
                        self.block::<S, 1>(s, from, summand, to, left.min(S::LANES));
                        at += S::LANES;
                    }
                }
            }
        }
    }

    /// Computes the epilogue of `lanes` neighboring sums, which are `V` vectors unless there is only one.
    ///
    /// # Safety
    /// Whole vectors of sums can be read; so many values of the summand, if it is not null, can be read, and of the output written.
    #[inline(always)]
    unsafe fn block<S: Simd, const V: usize>(
        &self,
        s: S,
        from: *const f32,
        summand: *const f32,
        to: *mut f32,
        lanes: usize,
    ) {
        let direct = &self.plan.direct;
        let whole = lanes == V * S::LANES;
        // SAFETY: the caller's duty; there is a value behind the bias for each list that the steps name.
        unsafe {
            let mut sums = [[s.splat(0.0); V]];
            for v in 0..V {
                sums[0][v] = s.load(from.wrapping_add(v * S::LANES));
            }
            if !self.plan.steps.is_empty() || summand.is_null() {
                tile::apply(s, &self.plan.steps, self.lists.wrapping_add(1), direct.clamp_before_summand(), &mut sums);
            }
            if !summand.is_null() {
                for v in 0..V {
                    let from = summand.wrapping_add(v * S::LANES);
                    let other = if whole { s.load(from) } else { s.load_masked(s.mask(first(lanes)), from) };
                    sums[0][v] = s.add(sums[0][v], other);
                }
                tile::apply(s, &[], std::ptr::null(), direct.clamp, &mut sums);
            }
            for v in 0..V {
                let to = to.wrapping_add(v * S::LANES);
                if whole {
                    s.store(to, sums[0][v]);
                } else {
                    s.store_first(lanes, to, sums[0][v]);
                }
            }
        }
    }
}
