//! Depthwise convolution of images whose channels are apart: planes of a vector of channels are transposed into padded
//! scratch with the channels innermost, convolved there by the tiles of channels-last images, and the sums are
//! transposed on their way out.
//!
//! Vectors over columns lose most of their lanes on small images, and half of what they load with a stride of two.
//! Transposing costs some four instructions a vector, once, whatever the kernel's size.
//!
//! A unit of work is some rows of the output of an image, for a vector of channels.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::super::band::{copy, inside, is_even, load_lanes, place_distance, store_lanes, zero};
use super::super::epilogue::{self, Block, Epilogue, InTile};
use super::super::problem::{Element, Layout, Problem, Shape};
use super::super::tile;
use super::super::units::{InUnits, Unit};
use super::tiles::{self, Tiles};
use super::{FAR, LEAST_CHANNELS, PLACES, kernel_rows};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};

/// Estimated cycles of a unit beside its values, those of a vector that is transposed, and a factor on all but the
/// first where images come from beyond the second-level cache: for vectors of sixteen lanes (AVX-512), and of eight
/// (AVX2 on Zen 3).
const SIXTEEN: (f64, f64, f64) = (400.0, 4.5, 1.1);
const EIGHT: (f64, f64, f64) = (300.0, 3.5, 1.2);
/// Factor of the estimate for inputs whose channels are apart, if they or the output are of 16 bits.
const SHORT: f64 = 1.35;

/// Estimated cycles to put a weight into its panel.
const PACKING: f64 = 8.0;

/// Bytes of scratch of a unit, which stay in the second-level cache with what passes through it.
const SCRATCH_BYTES: usize = 192 << 10;

#[derive(Debug)]
pub(in super::super) struct DepthwisePlanes {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp that the kernel computes in registers, if the sums are transposed straight to the
    /// output.
    direct: Option<InTile>,
    steps: Vec<tile::Step>,
    /// Activation behind it, of all sums of a unit.
    tail: Option<Activation>,
    /// Number of places of a tile.
    places: usize,
    /// Output rows of a unit, and number of units of a plane.
    height: usize,
    bands: usize,
    /// Kernel rows inside of the image, in the mean of the output's rows.
    kernel_rows: f64,
    /// Estimated cycles of a run.
    pub(in super::super) cost: f64,
}

impl DepthwisePlanes {
    /// True if each channel is a group of its own, on images of one or two dimensions.
    pub(in super::super) fn applies(problem: &Problem) -> bool {
        let shape = &problem.shape;
        shape.groups >= LEAST_CHANNELS
            && shape.is_depthwise()
            && (shape.input[0], shape.kernel[0], shape.output[0], shape.pad_before[0]) == (1, 1, 1, 0)
    }

    /// Makes the plan; `None` if the scratch of a single row of the output does not stay in the cache.
    pub(in super::super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<DepthwisePlanes> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let finish = Epilogue::new(problem);
        let beside = |layout: &Layout| is_even(layout, [oh, ow]) && place_distance(layout, ow) == 1;
        let mut direct = finish.with_summand(beside).filter(|_| beside(&problem.y));
        let tail = direct.as_mut().and_then(InTile::take_tail);
        let in_vain = |places: &usize| ow.next_multiple_of(*places);
        let mut plan = DepthwisePlanes {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            steps: epilogue::steps(direct.as_ref(), isa.lanes()),
            direct,
            tail,
            places: PLACES.into_iter().min_by_key(in_vain).expect("there are some"),
            height: 1,
            bands: oh,
            kernel_rows: mean_kernel_rows(shape),
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        if !plan.fits(1) {
            return None;
        }
        // Weights that are known only at a run are put into panels there, one by one.
        let packing = if problem.constant_weights { 0.0 } else { PACKING * (shape.groups * shape.taps()) as f64 };
        for bands in 1..=oh {
            let height = oh.div_ceil(bands);
            if !plan.fits(height) {
                continue;
            }
            let bands = oh.div_ceil(height);
            let units = shape.batch * bands * shape.groups.div_ceil(isa.lanes());
            let cost = packing + plan.unit_cycles(height) * units.div_ceil(threads) as f64;
            if cost < plan.cost {
                plan = DepthwisePlanes { cost, height, bands, ..plan };
            }
            if bands >= 4 * threads {
                break;
            }
        }
        Some(plan)
    }

    /// True if the scratch of a unit of `height` output rows stays in the cache.
    fn fits(&self, height: usize) -> bool {
        self.scratch_len(height) <= SCRATCH_BYTES / size_of::<f32>()
    }

    /// Estimated cycles of a unit of `height` output rows. The constants are of the layers of `benches/host.rs`.
    fn unit_cycles(&self, height: usize) -> f64 {
        let shape = &self.shape;
        let lanes = self.isa.lanes();
        let [_, _, ow] = shape.output;
        let (rows, columns) = self.staged_sizes(height);
        let width = shape.input[2];
        let input_rows = rows.min(shape.input[1]);
        let squares = match self.dense() {
            true => (input_rows * width).div_ceil(lanes),
            false => input_rows * width.div_ceil(lanes),
        } + (height * ow).div_ceil(lanes);
        let (unit, transposed, from_far) = if lanes == 16 { SIXTEEN } else { EIGHT };
        let square = lanes as f64 * if self.loaded() { transposed } else { 9.0 };
        let border = (input_rows * (columns - width.min(columns))) as f64;
        let tiles = (height * ow.div_ceil(self.places)) as f64;
        let line = match tiles::fixed(shape) {
            (0, _) => shape.kernel[2] as f64 * 1.2,
            (kernel, _) => kernel as f64 * 0.7,
        } * self.places as f64;
        let finish = if self.direct.is_some() { 0.0 } else { (lanes * (40 + height * ow / 4)) as f64 };
        let image = self.x.element.bytes() * shape.groups * shape.input[1] * width;
        let far = if image > FAR { from_far } else { 1.0 };
        let short = self.x.strides[1] != 1 && (self.x.element, self.y.element) != (Element::F32, Element::F32);
        let rest = squares as f64 * square + border + tiles * (self.kernel_rows * line + 30.0) + finish;
        unit + far * if short { SHORT * rest } else { rest }
    }

    /// Channels of a weight panel.
    pub(in super::super) fn panel(&self) -> usize {
        self.isa.lanes()
    }

    /// True if the rows of an input plane follow each other without a gap, value by value.
    fn dense(&self) -> bool {
        let [_, h, w] = self.shape.input;
        let strides = self.x.strides;
        (w == 1 || strides[4] == 1) && (h == 1 || strides[3] == w)
    }

    /// Rows and columns of the transposed input, for `height` rows of the output of whole tiles: more than any memory
    /// has where a tile has places behind the output that are a large stride apart, hence the saturating arithmetic.
    fn staged_sizes(&self, height: usize) -> (usize, usize) {
        let shape = &self.shape;
        let reach = |axis: usize, outputs: usize| {
            let outputs = (outputs - 1).saturating_mul(shape.stride[axis]);
            let taps = (shape.kernel[axis] - 1).saturating_mul(shape.dilation[axis]);
            outputs.saturating_add(taps).saturating_add(1)
        };
        (reach(1, height), reach(2, shape.output[2].next_multiple_of(self.places)))
    }

    /// Values of the transposed input.
    fn staged_len(&self, height: usize) -> usize {
        let (rows, columns) = self.staged_sizes(height);
        rows.saturating_mul(columns).saturating_mul(self.isa.lanes())
    }

    /// Values of the sums, with the channels innermost.
    fn sums_len(&self, height: usize) -> usize {
        height * self.shape.output[2] * self.isa.lanes()
    }

    /// Stride between the channels of a block that is finished.
    fn pitch(&self, height: usize) -> usize {
        (height * self.shape.output[2]).next_multiple_of(MAX_LANES)
    }

    /// Values of a row of each channel, as `f32`, of an input that vectors can't be loaded from.
    fn line_len(&self) -> usize {
        if self.loaded() || self.x.strides[1] == 1 { 0 } else { self.shape.input[2] * self.isa.lanes() }
    }

    /// True if vectors of a row can be loaded from the input.
    fn loaded(&self) -> bool {
        self.x.strides[4] == 1 || self.shape.input[2] == 1
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.isa.lanes()).next_multiple_of(MAX_LANES)
    }

    /// Values of a unit's scratch, without its lists; the largest number if there are more.
    fn scratch_len(&self, height: usize) -> usize {
        let block = if self.direct.is_some() { 0 } else { self.isa.lanes() * self.pitch(height) };
        self.staged_len(height).saturating_add(self.sums_len(height) + block + self.line_len())
    }
}

/// Kernel rows inside of the image, in the mean of the output's rows.
fn mean_kernel_rows(shape: &Shape) -> f64 {
    let (pad, stride, rows) = (shape.pad_before[1], shape.stride[1], shape.output[1]);
    // Number of output rows for which a kernel row looks at an input row before the `input`th.
    let before =
        |input: usize, r: usize| (input + pad).saturating_sub(r * shape.dilation[1]).div_ceil(stride).min(rows);
    let inside: usize = (0..shape.kernel[1]).map(|r| before(shape.input[1], r) - before(0, r)).sum();
    inside as f64 / rows as f64
}

impl InUnits for DepthwisePlanes {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.batch * self.bands * self.shape.groups.div_ceil(self.isa.lanes())
    }

    fn slot(&self) -> usize {
        (self.lists_len() + self.scratch_len(self.height)).next_multiple_of(16)
    }
}

/// Coordinates of a unit, and its parts of the slot.
struct Place {
    image: usize,
    /// First channel, and number of channels.
    channel: usize,
    channels: usize,
    /// First output row, and number of rows.
    row: usize,
    height: usize,
    /// Weights of the channels.
    weights: *const f32,
    staged: *mut f32,
    sums: *mut f32,
    block: *mut f32,
    line: *mut f32,
}

impl Kernel for Unit<'_, DepthwisePlanes> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let oh = shape.output[1];
        let (band, rest) = (self.unit % plan.bands, self.unit / plan.bands);
        let blocks = shape.groups.div_ceil(S::LANES);
        let (block, image) = (rest % blocks, rest / blocks);
        let (row, channel) = (band * plan.height, block * S::LANES);
        let staged = self.slot.wrapping_add(plan.lists_len());
        let sums = staged.wrapping_add(plan.staged_len(plan.height));
        let line = sums.wrapping_add(plan.sums_len(plan.height));
        let at = Place {
            image,
            channel,
            channels: S::LANES.min(shape.groups - channel),
            row,
            height: plan.height.min(oh - row),
            weights: self.weights.wrapping_add(block * shape.taps() * S::LANES),
            staged,
            sums,
            line,
            block: line.wrapping_add(plan.line_len()),
        };
        let rows = tiles::rows(shape, plan.isa);
        let function = |rows: usize| tiles::function::<S>(shape, rows, plan.places, true);
        let (convolve, convolve_last) = (function(rows), function(1));
        // SAFETY: the slot has the lists and `scratch_len(plan.height)` values behind them, of which these are the parts for no more rows;
        // coordinates are below the problem's extents; tiles read what `stage` has written, rows inside of the image, and all of their sums
        // are there when `store` reads them; the memory is the caller's, as `run` of [`InUnits`] asks.
        unsafe {
            let lists = (plan.direct.as_ref(), S::LANES);
            plan.finish.fill_lists(lists.0, self.operands, image, channel, at.channels, self.slot, lists.1);
            self.stage(s, &at);
            let mut tiles = self.tiles(&at);
            let mut row = 0;
            while row < at.height {
                let rows = rows.min(at.height - row);
                self.move_to(&mut tiles, &at, row, rows);
                if rows == 1 {
                    convolve_last(s, &tiles)
                } else {
                    convolve(s, &tiles)
                }
                row += rows;
            }
            self.store(s, &at);
        }
    }
}

impl Unit<'_, DepthwisePlanes> {
    /// Tiles of whole rows with all that is the same for the unit's places.
    #[inline(always)]
    fn tiles(&self, at: &Place) -> Tiles<'_> {
        let plan = self.plan;
        let shape = &plan.shape;
        let lanes = plan.isa.lanes();
        let (_, columns) = plan.staged_sizes(at.height);
        Tiles {
            x: at.staged,
            line: shape.dilation[1] * columns * lanes,
            column: lanes,
            kernel_rows: shape.kernel[1],
            inside_rows: (0, 0),
            columns: shape.kernel[2],
            stride: shape.stride[2],
            dilation: shape.dilation[2],
            ahead: at.staged,
            ahead_line: 0,
            ahead_lines: 0,
            // The copy has all columns of whole tiles.
            inside: (0, isize::MAX),
            weights: at.weights,
            panel: shape.taps() * lanes,
            blocks: 1,
            keep: lanes,
            count: shape.output[2],
            bias: self.slot.cast_const(),
            clamp: plan.finish.clamp,
            to: at.sums,
            to_place: lanes,
            to_line: shape.output[2] * lanes,
            steps: &plan.steps,
            values: self.slot.wrapping_add(lanes).cast_const(),
            summand: std::ptr::null(),
            summand_place: 0,
            summand_line: 0,
            last_clamp: plan.direct.as_ref().map_or(tile::NO_CLAMP, InTile::clamp_before_summand),
        }
    }

    /// Moves tiles to some rows of the unit.
    #[inline(always)]
    fn move_to(&self, tiles: &mut Tiles<'_>, at: &Place, row: usize, rows: usize) {
        let shape = &self.plan.shape;
        let (_, columns) = self.plan.staged_sizes(at.height);
        // Rows of the copy outside of the image add nothing.
        let inside = kernel_rows(shape, at.row + row, rows);
        let first = row * shape.stride[1] + inside.start * shape.dilation[1];
        tiles.inside_rows = (inside.start, inside.end);
        tiles.x = at.staged.wrapping_add(first * columns * tiles.column).cast_const();
        tiles.to = at.sums.wrapping_add(row * shape.output[2] * tiles.to_place);
    }

    /// Writes the unit's input, rows padded, its channels side by side.
    ///
    /// # Safety
    /// The input can be read at the image's and the channels' places; `at.staged` takes `staged_len(at.height)` values,
    /// and `at.line` takes `line_len` values.
    #[inline(always)]
    unsafe fn stage<S: Simd>(&self, s: S, at: &Place) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (rows, columns) = plan.staged_sizes(at.height);
        let [_, height, width] = shape.input;
        let strides = plan.x.strides;
        let left = shape.pad_before[2].min(columns);
        let count = width.min(columns - left);
        let top = at.row * shape.stride[1];
        // Rows of the copy that are rows of the input.
        let begin = shape.pad_before[1].saturating_sub(top).min(rows);
        let end = (height + shape.pad_before[1]).saturating_sub(top).clamp(begin, rows);
        let pitch = columns * S::LANES;
        // SAFETY: the copy has `rows` rows of `pitch` values; left border, `count` and the rest are `columns`. Rows from `begin` to `end` are the
        // input's, of which `count` columns from the first on are read, at most the width, for which `line` has room; where planes are
        // transposed their columns are neighbors, and rows too if they are `dense`.
        unsafe {
            // Rows outside of the image are not looked at.
            let first = at.staged.wrapping_add(begin * pitch);
            if count == 0 || begin == end {
                zero(s, first, (end - begin) * pitch);
                return;
            }
            zero(s, first, left * S::LANES);
            // The gap between two rows is the right border of one and the left border of the other.
            for row in begin..end {
                let gap = (columns - left - count) + if row + 1 < end { left } else { 0 };
                zero(s, at.staged.wrapping_add(row * pitch + (left + count) * S::LANES), gap * S::LANES);
            }
            let line = inside(top + begin, shape.pad_before[1], height).unwrap_or(0);
            let source = at.image * strides[0] + at.channel * strides[1] + line * strides[3];
            let to = at.staged.wrapping_add(begin * pitch + left * S::LANES);
            if !plan.loaded() {
                for row in 0..end - begin {
                    self.stage_row(s, at, source + row * strides[3], count, to.wrapping_add(row * pitch));
                }
                return;
            }
            let planes = Planes {
                x: self.x,
                element: plan.x.element,
                from: source,
                distance: strides[1],
                channels: at.channels,
            };
            if plan.dense() && count == width {
                planes.transpose(s, (end - begin) * width, width, to, pitch);
            } else {
                for row in 0..end - begin {
                    let planes = Planes { from: source + row * strides[3], ..planes };
                    planes.transpose(s, count, count, to.wrapping_add(row * pitch), pitch);
                }
            }
        }
    }

    /// Writes a row of the input from element `from` on that vectors of columns can't be loaded from.
    ///
    /// # Safety
    /// From `from` on, `count` columns of each of the unit's channels can be read; `to` takes `count` vectors and,
    /// unless channels are neighbors, `at.line` takes `count` values of each channel.
    #[inline(always)]
    unsafe fn stage_row<S: Simd>(&self, s: S, at: &Place, from: usize, count: usize, to: *mut f32) {
        let plan = self.plan;
        let strides = plan.x.strides;
        // SAFETY: values are read at the strides of columns and channels, as many as the caller says can be read; each
        // vector at `to` takes the channels of a column, at most `LANES`; the rows of `line` are `count` apart and all
        // written before they are transposed.
        unsafe {
            if strides[1] == 1 {
                for column in 0..count {
                    let to = to.wrapping_add(column * S::LANES);
                    if at.channels < S::LANES {
                        s.store(to, s.splat(0.0));
                    }
                    copy(s, plan.x.element, self.x, from + column * strides[4], 1, to, at.channels);
                }
                return;
            }
            for channel in 0..at.channels {
                let line = at.line.wrapping_add(channel * count);
                copy(s, plan.x.element, self.x, from + channel * strides[1], strides[4], line, count);
            }
            let line = at.line.cast_const().cast();
            let planes = Planes { x: line, element: Element::F32, from: 0, distance: count, channels: at.channels };
            planes.transpose(s, count, count, to, 0);
        }
    }

    /// Transposes the sums, and stores or finishes them.
    ///
    /// # Safety
    /// `at.sums` has a vector for each place of the unit's rows, and `at.block` takes `pitch(at.height)` values of each
    /// of its channels, unless the epilogue is computed in registers; the output can be written at the unit's rows and
    /// channels, and the operands are those of the problem.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, at: &Place) {
        let plan = self.plan;
        let places = at.height * plan.shape.output[2];
        let origin = [at.image, at.channel, 0, at.row, 0];
        let y = plan.y.offset(origin);
        let pitch = plan.pitch(at.height);
        let last = Last::new(self, origin);
        // SAFETY: sums are read at places below `places`; without a block the first `count` lanes are stored, at places
        // of the output that are neighbors, as `new` asks for `direct`; a block's rows take whole vectors, `pitch`
        // being a multiple of the longest, and all of its values are written before it is finished.
        unsafe {
            if let Some(activation) = &plan.tail {
                tile::activate_row(s, activation, at.sums, places * S::LANES);
            }
            for place in (0..places).step_by(S::LANES) {
                let count = (places - place).min(S::LANES);
                let from = at.sums.wrapping_add(place * S::LANES).cast_const();
                let distance = plan.y.strides[1];
                if count == S::LANES
                    && at.channels == S::LANES
                    && plan.direct.is_some()
                    && plan.y.element == Element::F32
                {
                    // Whole squares, without a branch for each row's lanes.
                    let square = s.transpose(vectors(s, from, S::LANES));
                    let to = self.y.cast::<f32>().wrapping_add(y + place);
                    for i in 0..S::LANES {
                        let value = Last::add(&last, s, square[i], [i, place], S::LANES);
                        s.store(to.wrapping_add(i * distance), value);
                    }
                    continue;
                }
                let mut square = [s.splat(0.0); MAX_LANES];
                for i in 0..S::LANES {
                    if i < count {
                        square[i] = s.load(from.wrapping_add(i * S::LANES));
                    }
                }
                let square = s.transpose(square);
                for i in 0..S::LANES {
                    if i < at.channels && plan.direct.is_some() {
                        let value = Last::add(&last, s, square[i], [i, place], count);
                        store_lanes(s, plan.y.element, self.y, y + i * distance + place, value, count);
                    } else if i < at.channels {
                        s.store(at.block.wrapping_add(i * pitch + place), square[i]);
                    }
                }
            }
            if plan.direct.is_none() {
                let block = Block { at: origin, values: at.block, channels: at.channels, pitch, count: places };
                plan.finish.run(s, self.operands, self.y, block);
            }
        }
    }
}

/// Summand of a unit's results, and clamp behind it.
struct Last {
    p: *const u8,
    element: Element,
    /// Element of the unit's first result, and stride between channels.
    from: usize,
    channel: usize,
    clamp: (f32, f32),
}

impl Last {
    /// Summand of the results from `origin` on, if there is one.
    #[inline(always)]
    fn new(unit: &Unit<'_, DepthwisePlanes>, origin: [usize; 5]) -> Option<Last> {
        let direct = unit.plan.direct.as_ref()?;
        let (operand, layout) = direct.summand.as_ref()?;
        // SAFETY: the operands are those of the problem.
        let p = unsafe { *unit.operands.add(*operand) };
        let (from, channel) = (layout.offset(origin), layout.strides[1]);
        Some(Last { p, element: layout.element, from, channel, clamp: direct.clamp })
    }

    /// Sum of the first `lanes` results of a channel from a place on with the summand, clamped; without one the results.
    ///
    /// # Safety
    /// The summand has that channel and those places.
    #[inline(always)]
    unsafe fn add<S: Simd>(last: &Option<Last>, s: S, value: S::V, [channel, place]: [usize; 2], lanes: usize) -> S::V {
        let Some(last) = last else { return value };
        let from = last.from + channel * last.channel + place;
        // SAFETY: the caller's duty.
        let other = unsafe { load_lanes(s, last.element, last.p, from, lanes) };
        s.min(s.splat(last.clamp.1), s.max(s.splat(last.clamp.0), s.add(value, other)))
    }
}

/// Rows of values of neighboring channels.
#[derive(Clone, Copy)]
struct Planes {
    /// The tensor and its type, the first value of the first channel, and the stride between channels.
    x: *const u8,
    element: Element,
    from: usize,
    distance: usize,
    /// Number of channels.
    channels: usize,
}

impl Planes {
    /// Writes `count` values of each channel value by value, a vector of channels for each, in rows of `columns` values
    /// whose starts are `pitch` apart; lanes without a channel are zeros.
    ///
    /// # Safety
    /// The values can be read, and the vectors written.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, count: usize, columns: usize, to: *mut f32, pitch: usize) {
        let (mut row, mut column) = (to, 0);
        for place in (0..count).step_by(S::LANES) {
            let values = (count - place).min(S::LANES);
            // SAFETY: the caller's duty.
            unsafe {
                if values == S::LANES && self.channels == S::LANES && self.element == Element::F32 {
                    // Whole squares, without a branch where they don't pass the end of a row.
                    let from = self.x.cast::<f32>().add(self.from + place);
                    let square = s.transpose(vectors(s, from, self.distance));
                    if column + S::LANES < columns {
                        let to = row.wrapping_add(column * S::LANES);
                        for i in 0..S::LANES {
                            s.store(to.wrapping_add(i * S::LANES), square[i]);
                        }
                        column += S::LANES;
                        continue;
                    }
                    for i in 0..S::LANES {
                        s.store(row.wrapping_add(column * S::LANES), square[i]);
                        column += 1;
                        if column == columns {
                            (row, column) = (row.wrapping_add(pitch), 0);
                        }
                    }
                    continue;
                }
                let mut square = [s.splat(0.0); MAX_LANES];
                for i in 0..S::LANES {
                    if i < self.channels {
                        square[i] = load_lanes(s, self.element, self.x, self.from + i * self.distance + place, values);
                    }
                }
                let square = s.transpose(square);
                for i in 0..S::LANES {
                    if i < values {
                        s.store(row.wrapping_add(column * S::LANES), square[i]);
                        column += 1;
                        if column == columns {
                            (row, column) = (row.wrapping_add(pitch), 0);
                        }
                    }
                }
            }
        }
    }
}

/// Loads a vector from each of `LANES` places, `distance` apart from `from` on.
///
/// # Safety
/// The vectors can be read.
#[inline(always)]
unsafe fn vectors<S: Simd>(s: S, from: *const f32, distance: usize) -> [S::V; MAX_LANES] {
    let mut square = [s.splat(0.0); MAX_LANES];
    for i in 0..S::LANES {
        // SAFETY: the caller's duty.
        square[i] = unsafe { s.load(from.wrapping_add(i * distance)) };
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_rows_are_counted_as_they_are_passed_over() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            let mut size = |range: std::ops::Range<usize>| [1, random.usize(range), 1];
            let shape = Shape {
                batch: 1,
                groups: 8,
                in_channels: 8,
                out_channels: 8,
                input: size(1..9),
                kernel: size(1..8),
                output: size(1..12),
                stride: size(1..4),
                dilation: size(1..4),
                pad_before: size(0..9),
                flip: false,
            };
            let rows = shape.output[1];
            let sum: usize = (0..rows).map(|row| kernel_rows(&shape, row, 1).len()).sum();
            assert_eq!(mean_kernel_rows(&shape), sum as f64 / rows as f64, "{shape:?}");
        }
    }
}
