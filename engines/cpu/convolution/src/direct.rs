//! Direct convolution for groups of few output channels: these × output rows × a vector of columns are summed in
//! registers, every loaded input row serving all of them. Borders are masked loads, so nothing is copied or padded.

use super::band::copy;
use super::epilogue::{self, BLOCK, Block, Epilogue, InTile, Tail, list};
use super::problem::{Element, Layout, MAX_OPERANDS, Problem, Shape};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};
use std::marker::PhantomData;

#[derive(Debug)]
pub(super) struct Direct {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// True if the input is `f32` with neighboring columns side by side; otherwise its planes are copied first.
    native_x: bool,
    /// Epilogue behind bias and clamp that the kernel computes in registers, if it stores straight to the output.
    native_y: Option<InTile>,
    /// Activation behind that epilogue, of rows of results in the output.
    tail: Option<Activation>,
    /// Steps of that epilogue, for lists of a block's channels.
    steps: Vec<tile::Step>,
    /// Register block: output channels and output rows.
    block: (usize, usize),
    /// Load masks: lanes of each (vector of columns, kernel column) whose input is inside of the row.
    masks: Vec<u32>,
    /// Number of blocks of a group's output channels, and of rows.
    channel_blocks: usize,
    row_blocks: usize,
    /// Number of output planes finished together; 0 where a block of rows is finished by itself.
    planes: usize,
    /// True if the next block's rows are asked for before they are needed.
    far: bool,
    units: usize,
    /// Estimated cycles of a run, of depthwise convolutions alone.
    pub(super) cost: Option<f64>,
}

/// Key of a specialization: output channels, output rows, kernel rows (0 for any) and row stride, column stride.
type Size = (usize, usize, (usize, usize), usize);

/// Maximum number of column masks of a plan: they grow with the product of output columns and kernel columns, which no
/// other algorithm's tables do.
const MOST_MASKS: usize = 1 << 18;

/// Bytes of an image beyond which it is not in the second-level cache when its convolution begins.
const FAR: usize = 512 << 10;

/// Maximum number of input rows that a block with reuse looks at: seven output rows, two apart, of five kernel rows.
const MOST_ROWS: usize = 17;

/// Maximum number of channels of a block.
const MOST_CHANNELS: usize = 4;

impl Direct {
    /// True if this algorithm serves the shape.
    pub(super) fn applies(shape: &Shape) -> bool {
        shape.kernel[2].saturating_mul(shape.output[2]) <= MOST_MASKS
            && shape.input[0] == 1
            && shape.kernel[0] == 1
            && shape.output[0] == 1
            && shape.pad_before[0] == 0
            && shape.stride[2] <= 2
    }

    /// True if the algorithm is worth trying: the output channels of a group are so few that of a tile of places and channels
    /// most would be computed in vain.
    pub(super) fn suits(shape: &Shape) -> bool {
        if shape.groups > 1 { shape.group_out() < 8 } else { shape.group_out() <= 2 && shape.taps() > 1 }
    }

    /// True if the plan is at its best: tensors are read and written where they lie, in blocks whose rows share loads, enough of
    /// them for all threads. A single group is the whole image, which one worker would copy and finish.
    pub(super) fn is_in_place(&self, threads: usize) -> bool {
        let blocks = self.shape.batch * self.channel_blocks * self.row_blocks;
        let columns = self.shape.output[2] >= self.isa.lanes() && self.shape.kernel[2] <= 7;
        self.native_x && self.native_y.is_some() && self.reuse() != (0, 0) && columns && blocks >= 2 * threads
    }

    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Direct {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let lanes = isa.lanes();
        let kg = shape.group_out();
        let channels = match kg {
            _ if lanes == 16 && kg.is_multiple_of(4) => 4,
            _ if kg.is_multiple_of(2) => 2,
            _ => 1,
        };
        let rows = match channels {
            // With sixteen registers four rows of sums leave none for the kernel's column. Portable vectors take two registers each,
            // and don't fit either way: there they are faster.
            2 if lanes == 8 && isa != Isa::PORTABLE => 3,
            // As many as leave the fewest rows over; more rows share more loads.
            1 if oh.div_ceil(7) * 7 <= oh.div_ceil(4) * 4 || oh > 40 => 7,
            _ => 4,
        };
        let mut masks = Vec::new();
        for q in starts(ow, lanes) {
            for column in 0..shape.kernel[2] {
                let inside = |lane: usize| {
                    let place = (q + lane) * shape.stride[2] + column * shape.dilation[2];
                    q + lane < ow && super::band::inside(place, shape.pad_before[2], shape.input[2]).is_some()
                };
                masks.push(mask(lanes, inside));
            }
        }
        let finish = Epilogue::new(problem);
        let row_blocks = oh.div_ceil(rows);
        let channel_blocks = kg / channels;
        let pieces = shape.batch * shape.groups * channel_blocks * row_blocks;
        // Planes that are copied first should serve all of their rows.
        let native_x = problem.x.element == Element::F32 && (problem.x.strides[4] == 1 || shape.input[2] == 1);
        let beside = problem.y.strides[4] == 1 || ow == 1;
        let mut native_y = finish.in_tile().filter(|tile| beside && tile.summand.is_none());
        let tail = native_y.as_mut().and_then(InTile::take_tail);
        // Calls for the few vectors of a block take longer than a pass over blocks of results.
        let native_y = native_y.filter(|tile| !tile.calls());
        let tail = tail.filter(|_| native_y.is_some());
        let planes = if native_y.is_some() { 0 } else { BLOCK / (oh * ow) / channels * channels };
        let whole = match (native_x, planes) {
            (true, 0) => pieces,
            (true, _) => pieces / row_blocks,
            (false, _) => shape.batch * shape.groups,
        };
        let mut plan = Direct {
            x: problem.x,
            y: problem.y,
            isa,
            native_x,
            steps: epilogue::steps(native_y.as_ref(), MOST_CHANNELS),
            tail,
            native_y,
            finish,
            planes,
            block: (channels, rows),
            masks,
            channel_blocks,
            row_blocks,
            far: shape.image_bytes() > FAR,
            units: whole.min(8 * threads),
            cost: None,
            shape: shape.clone(),
        };
        plan.cost = shape.is_depthwise().then(|| plan.depthwise_cycles(threads));
        plan
    }

    /// Kernel rows and row stride, if there are blocks made for them, else zeros.
    fn reuse(&self) -> (usize, usize) {
        let (rows, stride) = (self.shape.kernel[1], self.shape.stride[1]);
        let made = rows == 3 || (rows == 5 && self.block.0 == 1);
        if made && self.shape.dilation[1] == 1 && stride <= 2 { (rows, stride) } else { (0, 0) }
    }

    /// Estimated cycles of a run with groups of one input and one output channel. The constants are of the layers of
    /// `benches/host.rs` on AVX-512: every second column takes two loads, two masks and a permutation.
    fn depthwise_cycles(&self, threads: usize) -> f64 {
        let shape = &self.shape;
        let [_, h, w] = shape.input;
        let lanes = self.isa.lanes();
        let rows = self.block.1;
        let load = match (shape.stride[2], rows) {
            (1, _) => 1.0,
            (_, 4) => 3.3,
            _ => 7.0,
        };
        let column = match self.reuse() {
            (0, _) => (shape.kernel[1] * rows) as f64 * (1.6 + load),
            (kernel, stride) => ((rows - 1) * stride + kernel) as f64 * load + (kernel * rows) as f64 / 2.0,
        };
        let block = 60.0 + shape.kernel[2] as f64 * column;
        let copied = match (self.native_x, self.x.strides[4]) {
            (true, _) => 0.0,
            (false, 1 | 2) => (h * w) as f64 * 3.0 / lanes as f64,
            (false, _) => (h * w) as f64 * 2.5,
        };
        let finished = if self.native_y.is_some() { 0.0 } else { (40 + shape.pixels() / 4) as f64 };
        let blocks = (self.row_blocks * shape.output[2].div_ceil(lanes)) as f64;
        // Channels are shared by the threads.
        (shape.batch * shape.groups) as f64 * (blocks * block + copied + finished) / threads as f64
    }

    fn planes_len(&self) -> usize {
        let [_, h, w] = self.shape.input;
        if self.native_x { 0 } else { (self.shape.group_in() * h * w).next_multiple_of(16) }
    }
}

impl InUnits for Direct {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.units
    }

    fn slot(&self) -> usize {
        let [_, oh, ow] = self.shape.output;
        let results = match self.planes {
            _ if self.native_y.is_some() => 0,
            0 => self.block.0 * self.block.1 * ow,
            planes => planes * oh * ow,
        };
        self.planes_len() + results.next_multiple_of(16) + 16
    }
}

impl Kernel for Unit<'_, Direct> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let per_group = plan.channel_blocks * plan.row_blocks;
        let pieces = shape.batch * shape.groups * per_group;
        let granule = match (plan.native_x, plan.planes) {
            (true, 0) => 1,
            (true, _) => plan.row_blocks,
            (false, _) => per_group,
        };
        let share = |unit: usize| pieces / granule * unit / plan.units * granule;
        let (channels, rows) = plan.block;
        let (kh, kw) = (shape.kernel[1], shape.kernel[2]);
        let function = function::<S>((channels, rows, plan.reuse(), shape.stride[2]));
        let (cg, kg) = (shape.group_in(), shape.group_out());
        let mut bias = [0f32; MOST_CHANNELS];
        let mut lists = [[0f32; MOST_CHANNELS]; MAX_OPERANDS];
        let mut listed = usize::MAX;
        let scratch = self.slot.wrapping_add(plan.planes_len());
        let [_, oh, ow] = shape.output;
        // Results that wait to be finished.
        let mut block = Block { at: [0; 5], values: scratch, channels: 0, pitch: 0, count: 0 };
        let mut tail = Tail::new(plan.tail.as_ref());
        // Rows of the channels whose activation waits.
        let mut waiting = 0;
        let last = share(self.unit + 1);
        for piece in share(self.unit)..last {
            let (row_block, rest) = (piece % plan.row_blocks, piece / plan.row_blocks);
            let (channel_block, rest) = (rest % plan.channel_blocks, rest / plan.channel_blocks);
            let (group, image) = (rest % shape.groups, rest / shape.groups);
            let k = group * kg + channel_block * channels;
            let row = row_block * rows;
            let source = image * plan.x.strides[0] + group * cg * plan.x.strides[1];
            // SAFETY: the plan's places, for which the caller vouches; the slot has the parts' sizes. Results that wait for the tail are this
            // unit's, and nobody looks at them before its end.
            unsafe {
                if listed != k {
                    plan.finish.biases(self.operands, k, channels, bias.as_mut_ptr(), channels);
                    if let Some(tile) = &plan.native_y {
                        let mut i = 0;
                        while i < tile.lists.len() {
                            list(self.operands, tile.lists[i], k, channels, lists[i].as_mut_ptr(), channels);
                            i += 1;
                        }
                    }
                    listed = k;
                }
                let (x, channel, line) = if plan.native_x {
                    (self.x.cast::<f32>().wrapping_add(source), plan.x.strides[1], plan.x.strides[3])
                } else {
                    if piece % per_group == 0 {
                        self.copy_planes(s, source);
                    }
                    (self.slot.cast_const(), shape.input[1] * shape.input[2], shape.input[2])
                };
                let count = rows.min(oh - row);
                let (to, to_channel, to_row) = if plan.native_y.is_some() {
                    let first = plan.y.offset([image, k, 0, row, 0]);
                    (self.y.cast::<f32>().wrapping_add(first), plan.y.strides[1], plan.y.strides[3])
                } else if plan.planes == 0 {
                    block = Block { at: [image, k, 0, row, 0], channels, pitch: rows * ow, count: count * ow, ..block };
                    (scratch, rows * ow, ow)
                } else {
                    if row_block == 0 {
                        if block.channels == 0 {
                            block = Block { at: [image, k, 0, 0, 0], pitch: oh * ow, count: oh * ow, ..block };
                        }
                        block.channels += channels;
                    }
                    (scratch.wrapping_add((block.channels - channels) * oh * ow + row * ow), oh * ow, ow)
                };
                function(
                    s,
                    &Rows {
                        plan,
                        x,
                        channel,
                        line,
                        weights: self.weights.wrapping_add(k * cg * kh * kw),
                        bias,
                        lists: &lists,
                        row,
                        to,
                        to_channel,
                        to_row,
                        count,
                    },
                );
                waiting += count;
                if plan.tail.is_some()
                    && (row_block + 1 == plan.row_blocks || piece + 1 == last || waiting * ow >= BLOCK)
                {
                    let first = to.wrapping_sub((waiting - count) * to_row);
                    self.activate(s, &mut tail, (first, to_channel, to_row), [channels, waiting]);
                    waiting = 0;
                }
                let full = match plan.planes {
                    _ if plan.native_y.is_some() => false,
                    0 => true,
                    // Planes of the same image follow each other.
                    planes => {
                        row_block + 1 == plan.row_blocks
                            && (block.channels + channels > planes
                                || piece + 1 == last
                                || k + channels == shape.out_channels)
                    }
                };
                if full {
                    plan.finish.run(s, self.operands, self.y, block.take());
                }
            }
        }
        // SAFETY: what waits are results of this unit, which nobody else looks at.
        unsafe { tail.finish(s) };
    }
}

impl Unit<'_, Direct> {
    /// Hands `rows` rows of results of each of `channels` channels to the tail.
    ///
    /// # Safety
    /// The results are this unit's, complete but for the activation, and nobody looks at them before [`Tail::finish`].
    #[inline(always)]
    unsafe fn activate<S: Simd>(
        &self,
        s: S,
        tail: &mut Tail<'_>,
        (to, to_channel, to_row): (*mut f32, usize, usize),
        [channels, rows]: [usize; 2],
    ) {
        let ow = self.plan.shape.output[2];
        // Rows without gaps are one.
        let (lines, len) = if to_row == ow { (1, rows * ow) } else { (rows, ow) };
        for (channel, line) in (0..channels).flat_map(|channel| (0..lines).map(move |line| (channel, line))) {
            // SAFETY: the caller's promise.
            unsafe { tail.add(s, to.wrapping_add(channel * to_channel + line * to_row), len) };
        }
    }

    /// Copies the input planes of the group that begins at element `source`.
    #[inline(always)]
    unsafe fn copy_planes<S: Simd>(&self, s: S, source: usize) {
        let x = &self.plan.x;
        let [_, h, w] = self.plan.shape.input;
        for c in 0..self.plan.shape.group_in() {
            for row in 0..h {
                let from = source + c * x.strides[1] + row * x.strides[3];
                let to = self.slot.wrapping_add((c * h + row) * w);
                // SAFETY: a row of the input and of the slot's planes.
                unsafe { copy(s, x.element, self.x, from, x.strides[4], to, w) };
            }
        }
    }
}

/// Microkernel arguments: output rows of a block of channels.
struct Rows<'a> {
    plan: &'a Direct,
    /// First input plane of the group, and the strides of planes and rows.
    x: *const f32,
    channel: usize,
    line: usize,
    weights: *const f32,
    bias: [f32; MOST_CHANNELS],
    /// Operand lists of the steps in registers.
    lists: &'a [[f32; MOST_CHANNELS]; MAX_OPERANDS],
    /// First output row.
    row: usize,
    to: *mut f32,
    to_channel: usize,
    to_row: usize,
    /// Number of rows to store.
    count: usize,
}

type RowsFn<S> = unsafe fn(S, &Rows<'_>);

fn function<S: Simd>((channels, rows, reuse, stride): Size) -> RowsFn<S> {
    macro_rules! among {
        ($($channels:literal $rows:literal: $(($kernel:literal $step:literal))+;)+) => {
            match (channels, rows, reuse, stride) {
                $($(
                    ($channels, $rows, ($kernel, $step), 1) => enter::<S, $channels, $rows, $kernel, $step, 1>,
                    ($channels, $rows, ($kernel, $step), _) => enter::<S, $channels, $rows, $kernel, $step, 2>,
                )+)+
                _ => unreachable!("blocks are chosen among those there are"),
            }
        };
    }
    among! {
        1 4: (0 0) (3 1) (3 2) (5 1) (5 2);
        1 7: (0 0) (3 1) (3 2) (5 1) (5 2);
        2 3: (0 0) (3 1) (3 2);
        2 4: (0 0) (3 1) (3 2);
        4 4: (0 0) (3 1) (3 2);
    }
}

/// # Safety
/// As in [`Rows`]: the planes, weights and output rows of the plan's shape are there.
unsafe fn enter<S: Simd, const K: usize, const P: usize, const R: usize, const SH: usize, const SW: usize>(
    s: S,
    rows: &Rows<'_>,
) {
    s.call(Run::<K, P, R, SH, SW>(rows, PhantomData));
}

struct Run<'a, const K: usize, const P: usize, const R: usize, const SH: usize, const SW: usize>(
    &'a Rows<'a>,
    PhantomData<*const f32>,
);

impl<const K: usize, const P: usize, const R: usize, const SH: usize, const SW: usize> Kernel
    for Run<'_, K, P, R, SH, SW>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.0;
        let shape = &rows.plan.shape;
        let [_, h, _] = shape.input;
        let [_, kh, kw] = shape.kernel;
        let (cg, taps, ow) = (shape.group_in(), kh * kw, shape.output[2]);
        let (low, high) = (s.splat(rows.plan.finish.clamp.0), s.splat(rows.plan.finish.clamp.1));
        let top = (rows.row * shape.stride[1]) as isize - shape.pad_before[1] as isize;
        for (block, q) in starts(ow, S::LANES).enumerate() {
            let mut sums = [[s.splat(0.0); P]; K];
            for c in 0..cg {
                for column in 0..kw {
                    let bits = rows.plan.masks[block * kw + column];
                    let left = (q * SW + column * shape.dilation[2]) as isize - shape.pad_before[2] as isize;
                    let plane = rows.x.wrapping_add(c * rows.channel).wrapping_offset(left);
                    let weights = rows.weights.wrapping_add(c * taps + column);
                    // SAFETY: lanes of the mask are columns of the row, rows are checked, and the weights are the plan's.
                    unsafe {
                        let at = |iy: isize| plane.wrapping_offset(iy * rows.line as isize);
                        // A cache line has two vectors of eight lanes.
                        if column == 0 && rows.plan.far && (SW > 1 || S::LANES == 16 || block % 2 == 0) {
                            // The rows of the next block come while this one is computed.
                            for t in 0..P * SH.max(1) {
                                let next = at(top + ((P - 1) * SH + R + t) as isize);
                                s.prefetch(next);
                                if SW > 1 && S::LANES == 16 {
                                    s.prefetch(next.wrapping_add(S::LANES));
                                }
                            }
                        }
                        if R > 0 {
                            let mut factors = [[s.splat(0.0); R]; K];
                            for (k, factors) in factors.iter_mut().enumerate() {
                                for (r, factor) in factors.iter_mut().enumerate() {
                                    *factor = s.splat(*weights.wrapping_add(k * cg * taps + r * kw));
                                }
                            }
                            let input = Column { plane, line: rows.line, top, height: h };
                            sum_column::<S, K, P, R, SH, SW>(s, &input, bits, &factors, &mut sums);
                        } else {
                            for r in 0..kh {
                                for p in 0..P {
                                    let iy = top + (p * shape.stride[1] + r * shape.dilation[1]) as isize;
                                    if iy < 0 || iy as usize >= h {
                                        continue;
                                    }
                                    let values = load::<S, SW>(s, bits, at(iy));
                                    for (k, sums) in sums.iter_mut().enumerate() {
                                        let factor = s.splat(*weights.wrapping_add(k * cg * taps + r * kw));
                                        sums[p] = s.fma(values, factor, sums[p]);
                                    }
                                }
                            }
                        }
                    }
                }
            }
            for (k, sums) in sums.iter_mut().enumerate() {
                let bias = s.splat(rows.bias[k]);
                for sum in sums {
                    *sum = s.min(high, s.max(low, s.add(*sum, bias)));
                }
            }
            if let Some(tile) = &rows.plan.native_y
                && !tile.is_empty()
            {
                // SAFETY: there is a list for each that the steps name, and a block has no more channels than these.
                unsafe { tile::apply(s, &rows.plan.steps, rows.lists.as_ptr().cast(), tile.clamp, &mut sums) };
            }
            for (k, sums) in sums.into_iter().enumerate() {
                for (p, sum) in sums.into_iter().enumerate() {
                    if p < rows.count {
                        let to = rows.to.wrapping_add(k * rows.to_channel + p * rows.to_row + q);
                        let sum = if SW == 1 { sum } else { s.ordered(sum) };
                        // SAFETY: the lanes are columns of an output row.
                        unsafe {
                            if ow >= S::LANES {
                                s.store(to, sum);
                            } else {
                                s.store_first(ow, to, sum);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// First columns of the vectors of a row of `columns` outputs. The last vector begins early enough to be whole, and
/// computes some columns again, unless the row is shorter than a vector.
#[inline(always)]
pub(super) fn starts(columns: usize, lanes: usize) -> impl Iterator<Item = usize> {
    let last = columns.saturating_sub(lanes);
    (0..columns.div_ceil(lanes)).map(move |block| (block * lanes).min(last))
}

/// Mask of the lanes, of a vector of so many, for which `is_kept` is true.
pub(super) fn mask(lanes: usize, is_kept: impl Fn(usize) -> bool) -> u32 {
    (0..lanes).filter(|lane| is_kept(*lane)).fold(0, |mask, lane| mask | 1 << lane)
}

/// Column of an input channel, from which a vector of neighbors or of every second ones is loaded.
struct Column {
    /// Address in the first row of the image, distance between rows, and their number.
    plane: *const f32,
    line: usize,
    height: usize,
    /// First row that is looked at, which may be outside of the image.
    top: isize,
}

/// Adds a kernel column's products to the sums.
///
/// # Safety
/// The columns of `bits` can be read in those of the first `(P - 1) · SH + R` rows that are inside of the image.
#[inline(always)]
unsafe fn sum_column<S: Simd, const K: usize, const P: usize, const R: usize, const SH: usize, const SW: usize>(
    s: S,
    input: &Column,
    bits: u32,
    factors: &[[S::V; R]; K],
    sums: &mut [[S::V; P]; K],
) {
    // Spelled out: the compiler leaves a loop of so many rows as it is, with the sums in memory.
    macro_rules! rows {
        ($($t:literal)+) => { $(
            let row = input.top + $t;
            if $t < (P - 1) * SH + R && row >= 0 && (row as usize) < input.height {
                // SAFETY: the caller's duty.
                let values = unsafe { load::<S, SW>(s, bits, input.plane.wrapping_offset(row * input.line as isize)) };
                for r in 0..R {
                    if $t >= r && ($t - r) % SH.max(1) == 0 && ($t - r) / SH.max(1) < P {
                        for k in 0..K {
                            let sum = &mut sums[k][($t - r) / SH.max(1)];
                            *sum = s.fma(values, factors[k][r], *sum);
                        }
                    }
                }
            }
        )+ };
    }
    const { assert!(MOST_ROWS == 17 && (P - 1) * SH + R <= MOST_ROWS) };
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

/// Loads the columns of `bits` from every `SW`th place from `p` on; every second ones in the set's order.
///
/// # Safety
/// Those places, and those between them, can be read.
#[inline(always)]
unsafe fn load<S: Simd, const SW: usize>(s: S, bits: u32, p: *const f32) -> S::V {
    // SAFETY: the caller's duty.
    unsafe {
        match (SW, bits == first(S::LANES)) {
            (1, _) => s.load_masked(s.mask(bits), p),
            (_, true) => s.load_even_unordered(first(S::LANES), p),
            (_, false) => s.load_even_unordered(bits, p),
        }
    }
}
