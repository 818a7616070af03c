//! Depthwise convolution of channels-last images: vectors run over channels, each of which has taps of its own.
//!
//! A tile is some neighboring places of an output row, and passes over all channels, a vector at a time. A vector of
//! the input is loaded once for all places of the tile that a kernel row looks at it for.
//!
//! A unit of work is some tiles, row after row of the output. Values of 16 bits are widened in its scratch memory, a row of the input
//! when the first row of the output looks at it.

mod planes;
mod rows;
mod strips;

pub(super) use planes::DepthwisePlanes;
pub(super) use rows::DepthwiseRows;

use super::band::{copy, inside};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::problem::{Element, Layout, Problem, Shape};
use super::rounding::{self, Places};
use super::row_tile::{RowAfter, clamp, finish};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};
use std::ops::Range;

/// Numbers of places of a tile, the better one first: as many sums as hide the latency of an addition.
const PLACES: [usize; 2] = [8, 7];

/// Bytes of an image beyond which it is not in the second-level cache when its convolution begins.
const FAR: usize = 512 << 10;

/// Bytes of widened rows that stay in the second-level cache beside an output.
const WIDENED_BYTES: usize = 256 << 10;

/// Most bytes of scratch memory for 16-bit tensors that the kernel is worth, for a worker.
const MOST_SHORT_BYTES: usize = 8 << 20;

/// Minimum number of channels: of a vector of fewer most lanes would be computed in vain.
const LEAST_CHANNELS: usize = 8;

#[derive(Debug)]
pub(super) struct Depthwise {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp, if the kernel computes it in registers.
    direct: Option<InTile>,
    /// True if its results go through scratch memory all the same, since the output or the summand is not `f32`.
    rounded: bool,
    steps: Vec<tile::Step>,
    /// Number of places of a tile.
    places: usize,
    /// True if rows of the input are asked for before they are needed.
    far: bool,
    /// True if the input is not `f32`.
    widens: bool,
    /// Number of units.
    units: usize,
}

impl Depthwise {
    /// Makes the plan, if each channel is a group of its own, and the channels of images lie side by side in input and output.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<Depthwise> {
        let shape = &problem.shape;
        let applies = shape.groups >= LEAST_CHANNELS
            && shape.is_depthwise()
            && (problem.x.strides[1], problem.y.strides[1]) == (1, 1)
            && (shape.input[0], shape.kernel[0], shape.output[0]) == (1, 1, 1);
        if !applies {
            return None;
        }
        let ow = shape.output[2];
        let finish = Epilogue::new(problem);
        let direct = finish.with_summand(|layout| layout.strides[1] == 1);
        let in_vain = |places: &usize| ow.next_multiple_of(*places);
        let rounded = direct.as_ref().is_some_and(|tile| rounding::is_wanted(&problem.y, tile));
        let widens = problem.x.element != Element::F32;
        let mut plan = Depthwise {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            direct,
            rounded,
            steps: Vec::new(),
            places: PLACES.into_iter().min_by_key(in_vain).expect("there are some"),
            far: shape.dilation[1] == 1 && shape.image_bytes() > FAR && !widens,
            widens,
            units: 0,
            shape: shape.clone(),
        };
        plan.units = plan.tiles().min(4 * threads);
        // Units that share rows widen them several times.
        let rows = shape.batch * shape.output[1];
        if plan.widens && rows >= threads {
            plan.units = plan.units.min(rows);
        }
        while plan.units < rows && size_of::<f32>() * plan.widened_len() > WIDENED_BYTES {
            plan.units = (2 * plan.units).min(rows);
        }
        let short = if plan.widens || plan.rounded { plan.widened_len() + plan.tile_len() } else { 0 };
        if size_of::<f32>() * short > MOST_SHORT_BYTES {
            return None;
        }
        plan.steps = epilogue::steps(plan.direct.as_ref(), plan.list_len());
        Some(plan)
    }

    /// Number of tiles of a row of the output.
    fn row_tiles(&self) -> usize {
        self.shape.output[2].div_ceil(self.places)
    }

    /// Number of tiles of the output.
    fn tiles(&self) -> usize {
        self.shape.batch * self.shape.output[1] * self.row_tiles()
    }

    /// Values of the widened rows of a unit: of one image, all that its rows of the output look at.
    fn widened_len(&self) -> usize {
        if !self.widens {
            return 0;
        }
        let [_, height, width] = self.shape.input;
        // A unit may begin and end within a row.
        let rows = (self.tiles().div_ceil(self.units).div_ceil(self.row_tiles()) + 1).min(self.shape.output[1]);
        let reach = (self.shape.kernel[1] - 1).saturating_mul(self.shape.dilation[1]).saturating_add(1);
        let lines = ((rows - 1).saturating_mul(self.shape.stride[1])).saturating_add(reach).min(height);
        lines * width * self.shape.groups
    }

    /// Channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.isa.lanes()
    }

    /// Values of a per-channel list: whole vectors.
    fn list_len(&self) -> usize {
        self.shape.groups.next_multiple_of(self.isa.lanes())
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.list_len())
    }

    /// Values of a tile in scratch memory, and of the same with its places side by side where it is transposed.
    fn tile_len(&self) -> usize {
        match (self.direct.is_some(), self.rounded) {
            (true, false) => 0,
            (true, true) => self.places * self.list_len(),
            (false, _) => (self.places + MAX_LANES) * self.list_len(),
        }
    }
}

impl InUnits for Depthwise {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.units
    }

    fn slot(&self) -> usize {
        (self.lists_len() + self.tile_len()).next_multiple_of(16) + self.widened_len().next_multiple_of(16)
    }
}

impl Kernel for Unit<'_, Depthwise> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let [_, oh, ow] = shape.output;
        let (tiles, row_tiles) = (plan.tiles(), plan.row_tiles());
        let share = |unit: usize| tiles * unit / plan.units;
        let blocks = shape.groups / S::LANES;
        let fixed = fixed(shape);
        let whole = function::<S>(fixed, plan.places, true);
        let rest = function::<S>(fixed, plan.places, false);
        let mut listed = usize::MAX;
        let mut widened = Widened { image: usize::MAX, base: 0, end: 0 };
        let mut of_row = None;
        for tile in share(self.unit)..share(self.unit + 1) {
            let (line, place) = (tile / row_tiles, tile % row_tiles * plan.places);
            let (image, row) = (line / oh, line % oh);
            // SAFETY: the slot has room for the lists, a tile and the widened rows, which the ascending rows of a unit ask for; windows,
            // channels and places are the problem's.
            unsafe {
                if listed != image {
                    let (direct, count) = (plan.direct.as_ref(), shape.groups);
                    plan.finish.fill_lists(direct, self.operands, image, 0, count, self.slot, plan.list_len());
                    listed = image;
                }
                let count = plan.places.min(ow - place);
                let first = match of_row {
                    Some((of, first)) if of == line => first,
                    _ => {
                        let input =
                            if plan.widens { self.widen(s, &mut widened, image, row) } else { self.image(image) };
                        self.first_tile(&input, image, row)
                    }
                };
                of_row = Some((line, first));
                let mut tile = first;
                self.move_to(&mut tile, place, count);
                tile.blocks = blocks;
                whole(s, &tile);
                if blocks * S::LANES < shape.groups {
                    tile.skip(blocks * S::LANES, blocks * shape.taps() * S::LANES);
                    (tile.blocks, tile.keep) = (1, shape.groups - blocks * S::LANES);
                    rest(s, &tile);
                }
                let at = [image, 0, 0, row, place];
                match &plan.direct {
                    None => self.transpose(s, at, count),
                    Some(direct) if plan.rounded => self.round(s, direct, at, count),
                    Some(_) => {}
                }
            }
        }
    }
}

/// Kernel rows that are inside of the image for a row of the output.
#[inline(always)]
fn kernel_rows(shape: &Shape, row: usize) -> Range<usize> {
    let is_inside =
        |r: usize| inside(row * shape.stride[1] + r * shape.dilation[1], shape.pad_before[1], shape.input[1]).is_some();
    let (mut begin, mut end) = (0, shape.kernel[1]);
    while begin < end && !is_inside(begin) {
        begin += 1;
    }
    while begin < end && !is_inside(end - 1) {
        end -= 1;
    }
    begin..end
}

/// Rows of the input that are widened: of an image, those from `base` to `end`.
struct Widened {
    image: usize,
    base: usize,
    end: usize,
}

/// Image of `f32` values: address of its first row, and distances of rows and columns. Rows that a tile does not look at may not be
/// there.
struct Image {
    x: *const f32,
    line: usize,
    column: usize,
}

impl Unit<'_, Depthwise> {
    /// Image of the input where it lies.
    #[inline(always)]
    fn image(&self, image: usize) -> Image {
        let strides = self.plan.x.strides;
        Image { x: self.x.cast::<f32>().wrapping_add(image * strides[0]), line: strides[3], column: strides[4] }
    }

    /// Widens the rows that a row of the output looks at, if they are not, and gives the image of which they are.
    ///
    /// # Safety
    /// Rows of a unit come one after the other; the input can be read, and the slot is the unit's.
    #[inline(always)]
    unsafe fn widen<S: Simd>(&self, s: S, widened: &mut Widened, image: usize, row: usize) -> Image {
        let plan = self.plan;
        let shape = &plan.shape;
        let [_, height, width] = shape.input;
        let (channels, strides) = (shape.groups, plan.x.strides);
        // Rows of the output look at none before; a dilated kernel looks at some that are between those of the next row.
        let first = (row * shape.stride[1]).saturating_sub(shape.pad_before[1]);
        let rows = kernel_rows(shape, row);
        let last = row * shape.stride[1] + rows.end.saturating_sub(1) * shape.dilation[1];
        let end = if rows.is_empty() { first } else { last - shape.pad_before[1] + 1 };
        if widened.image != image {
            *widened = Widened { image, base: first, end: first };
        }
        let to = self.slot.wrapping_add((plan.lists_len() + plan.tile_len()).next_multiple_of(16));
        let to = to.wrapping_sub(widened.base * width * channels);
        let mut line = widened.end.max(first);
        while line < end.min(height) {
            let (from, to) = (image * strides[0] + line * strides[3], to.wrapping_add(line * width * channels));
            // SAFETY: a row of the input; the slot has room for those from the unit's first on.
            unsafe {
                if strides[4] == channels {
                    copy(s, plan.x.element, self.x, from, 1, to, width * channels);
                } else {
                    for column in 0..width {
                        let to = to.wrapping_add(column * channels);
                        copy(s, plan.x.element, self.x, from + column * strides[4], 1, to, channels);
                    }
                }
            }
            line += 1;
        }
        widened.end = widened.end.max(end);
        Image { x: to, line: width * channels, column: channels }
    }

    /// Tile of no places of a row of the output, which [`Unit::move_to`] moves to some.
    ///
    /// # Safety
    /// The operands are those of the problem.
    #[inline(always)]
    unsafe fn first_tile(&self, input: &Image, image: usize, row: usize) -> Tile<'_> {
        let plan = self.plan;
        let shape = &plan.shape;
        let at = [image, 0, 0, row, 0];
        let [_, kr, ks] = shape.kernel;
        let [_, height, _] = shape.input;
        let line = |r: usize| inside(row * shape.stride[1] + r * shape.dilation[1], shape.pad_before[1], height);
        let Range { start: begin, end } = kernel_rows(shape, row);
        // Rows that the next row of the output looks at beside those of this one.
        let next = (row * shape.stride[1] + kr).saturating_sub(shape.pad_before[1]);
        let top = line(begin).unwrap_or(0);
        let x = input.x.wrapping_add(top * input.line);
        let mut tile = Tile {
            x,
            line: shape.dilation[1] * input.line,
            column: input.column,
            rows: end - begin,
            columns: ks,
            stride: shape.stride[2],
            dilation: shape.dilation[2],
            ahead: x.wrapping_add((next - top.min(next)) * input.line),
            ahead_line: input.line,
            ahead_lines: if plan.far { shape.stride[1].min(height.saturating_sub(next)) } else { 0 },
            inside: (0, 0),
            weights: self.weights.wrapping_add(begin * ks * plan.panel()),
            panel: shape.taps() * plan.panel(),
            blocks: 0,
            keep: plan.panel(),
            count: 0,
            bias: self.slot.cast_const(),
            clamp: plan.finish.clamp,
            to: self.slot.wrapping_add(plan.lists_len()),
            to_place: plan.list_len(),
            steps: &plan.steps,
            values: self.slot.wrapping_add(plan.list_len()).cast_const(),
            summand: std::ptr::null(),
            summand_place: 0,
            last_clamp: tile::NO_CLAMP,
        };
        if let Some(direct) = &plan.direct {
            if plan.rounded {
                tile.last_clamp = direct.clamp_before_summand();
                return tile;
            }
            tile.to = self.y.cast::<f32>().wrapping_add(plan.y.offset(at));
            tile.to_place = plan.y.strides[4];
            tile.last_clamp = direct.clamp;
            if let Some((operand, layout)) = &direct.summand {
                // SAFETY: the caller's duty.
                let p = unsafe { *self.operands.add(*operand) }.cast::<f32>();
                tile.summand = p.wrapping_add(layout.offset(at));
                tile.summand_place = layout.strides[4];
            }
        }
        tile
    }

    /// Moves the tile of a row to `count` places from `place` on.
    #[inline(always)]
    fn move_to(&self, tile: &mut Tile<'_>, place: usize, count: usize) {
        let shape = &self.plan.shape;
        let left = (place * shape.stride[2]) as isize - shape.pad_before[2] as isize;
        let reach = ((count - 1) * shape.stride[2] + (shape.kernel[2] - 1) * shape.dilation[2] + 1) as isize;
        let offset = left * tile.column as isize;
        tile.x = tile.x.wrapping_offset(offset);
        tile.ahead = tile.ahead.wrapping_offset(offset);
        tile.inside = ((-left).max(0), (shape.input[2] as isize - left).min(reach));
        tile.count = count;
        // Scratch memory has one tile.
        if self.plan.direct.is_some() && !self.plan.rounded {
            tile.to = tile.to.wrapping_add(place * tile.to_place);
            if !tile.summand.is_null() {
                tile.summand = tile.summand.wrapping_add(place * tile.summand_place);
            }
        }
    }

    /// Rounds a tile that is in scratch memory: `count` places from `first` on.
    ///
    /// # Safety
    /// The places are those of a row of the output; the tile is computed; the operands are those of the problem.
    #[inline(always)]
    unsafe fn round<S: Simd>(&self, s: S, direct: &InTile, first: [usize; 5], count: usize) {
        let plan = self.plan;
        let places = |layout: &Layout, p: *mut u8| Places {
            element: layout.element,
            p,
            from: layout.offset(first),
            distance: layout.strides[4],
        };
        let rows = (self.slot.wrapping_add(plan.lists_len()).cast_const(), plan.list_len());
        // SAFETY: the slot has the tile, with room for whole vectors of channels; the rest is the caller's duty.
        unsafe {
            let mut summand = None;
            if let Some((operand, layout)) = &direct.summand {
                summand = Some(places(layout, (*self.operands.add(*operand)).cast_mut()));
            }
            rounding::round(s, rows, [count, plan.shape.groups], places(&plan.y, self.y), summand, direct.clamp);
        }
    }

    /// Finishes a tile that is in scratch memory: `count` places from `first` on.
    ///
    /// # Safety
    /// The places are those of a row of the output; the tile is computed.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, first: [usize; 5], count: usize) {
        let plan = self.plan;
        let (channels, len) = (plan.shape.groups, plan.list_len());
        let tile = self.slot.wrapping_add(plan.lists_len());
        let values = tile.wrapping_add(plan.places * len);
        // SAFETY: the slot has room for the tile twice, with places for whole vectors; the rest is the caller's duty.
        unsafe {
            for channel in 0..channels {
                for place in 0..count {
                    *values.add(channel * MAX_LANES + place) = *tile.add(place * len + channel);
                }
            }
            let block = Block { at: first, values, channels, pitch: MAX_LANES, count };
            plan.finish.run(s, self.operands, self.y, block);
        }
    }
}

/// Microkernel arguments: some places of an output row, with all of a range of channels.
#[derive(Clone, Copy)]
struct Tile<'a> {
    /// Address of the first place's first tap in the first of the kernel rows that are inside of the image, which may
    /// be a column outside of it; strides of kernel rows and of columns.
    x: *const f32,
    line: usize,
    column: usize,
    /// Number of kernel rows inside of the image.
    rows: usize,
    /// Number of kernel columns, stride between places and dilation between taps.
    columns: usize,
    stride: usize,
    dilation: usize,
    /// Address of the first tap's column in rows that are needed next; their stride and number.
    ahead: *const f32,
    ahead_line: usize,
    ahead_lines: usize,
    /// Columns inside of the image that the places look at, from `x` on.
    inside: (isize, isize),
    /// Weights: for each tap those of a vector of channels; stride between vectors.
    weights: *const f32,
    panel: usize,
    /// Number of vectors of channels, and of lanes of each that are kept.
    blocks: usize,
    keep: usize,
    /// Number of places to store.
    count: usize,
    /// Bias of each channel, and clamp bounds of the biased sums.
    bias: *const f32,
    clamp: (f32, f32),
    /// Destination of the first place's channels, and stride between places.
    to: *mut f32,
    to_place: usize,
    /// Epilogue behind bias and clamp, with the first channel's value in the first of its lists.
    steps: &'a [tile::Step],
    values: *const f32,
    /// Summand of the first place, added behind the steps, null for none; stride between places.
    summand: *const f32,
    summand_place: usize,
    /// Clamp bounds of the result.
    last_clamp: (f32, f32),
}

impl Tile<'_> {
    /// Moves on by so many channels, whose weights are so many values.
    #[inline(always)]
    fn skip(&mut self, channels: usize, weights: usize) {
        self.x = self.x.wrapping_add(channels);
        self.ahead = self.ahead.wrapping_add(channels);
        self.weights = self.weights.wrapping_add(weights);
        self.bias = self.bias.wrapping_add(channels);
        self.to = self.to.wrapping_add(channels);
        self.values = self.values.wrapping_add(channels);
        if !self.summand.is_null() {
            self.summand = self.summand.wrapping_add(channels);
        }
    }
}

type TileFn<S> = unsafe fn(S, &Tile<'_>);

/// Width and stride of the kernel, if there are tiles made for them, else zeros.
#[inline(always)]
fn fixed(shape: &Shape) -> (usize, usize) {
    match (shape.kernel[2], shape.stride[2]) {
        size @ ((3 | 5, 1 | 2) | (7, 1)) if shape.dilation[2] == 1 => size,
        _ => (0, 0),
    }
}

/// Function for kernels of `(width, stride)` columns without dilation, or any for (0, 0), on tiles of so many places;
/// `whole` if all lanes of its vectors are kept.
fn function<S: Simd>(fixed: (usize, usize), places: usize, whole: bool) -> TileFn<S> {
    macro_rules! among {
        ($($places:literal: $(($width:literal $stride:literal))+;)+) => {
            match (fixed, places, whole) {
                $($(
                    (($width, $stride), $places, true) => enter::<S, $width, $stride, $places, true>,
                    (($width, $stride), $places, false) => enter::<S, $width, $stride, $places, false>,
                )+)+
                _ => unreachable!("tiles are chosen among those there are"),
            }
        };
    }
    among! {
        7: (0 0) (3 1) (3 2) (5 1) (5 2) (7 1);
        8: (0 0) (3 1) (3 2) (5 1) (5 2) (7 1);
    }
}

/// # Safety
/// As in [`Tile`]: the columns inside of the image, weights and lists can be read for all kept channels, and the places
/// written.
unsafe fn enter<S: Simd, const W: usize, const SW: usize, const P: usize, const WHOLE: bool>(s: S, tile: &Tile<'_>) {
    s.call(Run::<W, SW, P, WHOLE>(tile));
}

struct Run<'a, const W: usize, const SW: usize, const P: usize, const WHOLE: bool>(&'a Tile<'a>);

impl<const W: usize, const SW: usize, const P: usize, const WHOLE: bool> Kernel for Run<'_, W, SW, P, WHOLE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.0;
        let kept = first(tile.keep);
        let (begin, end) = tile.inside;
        let all_inside = W > 0 && begin == 0 && end >= ((P - 1) * SW + W) as isize;
        let plain = tile.steps.is_empty();
        for block in 0..tile.blocks {
            let channel = block * S::LANES;
            let mut sums = [[s.splat(0.0)]; P];
            for line in 0..tile.ahead_lines {
                let mut p = tile.ahead.wrapping_add(line * tile.ahead_line + channel);
                for _ in 0..P * SW.max(1) {
                    s.prefetch_far(p);
                    p = p.wrapping_add(tile.column);
                }
            }
            // SAFETY: columns from `begin` to `end` of the rows are in the image, and the lanes of `kept` are channels
            // of it; panels of weights and lists have whole vectors; the rest is the caller's duty.
            unsafe {
                let load = |p: *const f32| if WHOLE { s.load(p) } else { s.load_masked(s.mask(kept), p) };
                let mut weights = tile.weights.wrapping_add(block * tile.panel);
                let mut line = tile.x.wrapping_add(channel);
                for _ in 0..tile.rows {
                    if W > 0 {
                        let mut factors = [s.splat(0.0); W];
                        for (tap, factor) in factors.iter_mut().enumerate() {
                            *factor = s.load(weights.add(tap * S::LANES));
                        }
                        if all_inside {
                            sum_line::<S, W, SW, P, false>(
                                s,
                                load,
                                (line, tile.column),
                                tile.inside,
                                factors,
                                &mut sums,
                            );
                        } else {
                            sum_line::<S, W, SW, P, true>(
                                s,
                                load,
                                (line, tile.column),
                                tile.inside,
                                factors,
                                &mut sums,
                            );
                        }
                        weights = weights.wrapping_add(W * S::LANES);
                    } else {
                        for tap in 0..tile.columns {
                            let factor = s.load(weights);
                            for (place, sum) in sums.iter_mut().enumerate() {
                                let t = (place * tile.stride + tap * tile.dilation) as isize;
                                if t >= begin && t < end {
                                    let value = load(line.wrapping_offset(t * tile.column as isize));
                                    sum[0] = s.fma(value, factor, sum[0]);
                                }
                            }
                            weights = weights.wrapping_add(S::LANES);
                        }
                    }
                    line = line.wrapping_add(tile.line);
                }
                // Only now: sums that begin with a large bias lose their own digits.
                let bias = s.load(tile.bias.add(channel));
                for sum in &mut sums {
                    sum[0] = s.add(sum[0], bias);
                }
                clamp(s, tile.clamp, &mut sums);
                if !plain {
                    let after = RowAfter {
                        steps: tile.steps,
                        values: tile.values.wrapping_add(channel),
                        summand: std::ptr::null(),
                        row: 0,
                        clamp: tile::NO_CLAMP,
                    };
                    finish(s, S::LANES, &after, &mut sums);
                }
                if !tile.summand.is_null() {
                    for (place, sum) in sums.iter_mut().enumerate() {
                        if place < tile.count {
                            let other = load(tile.summand.add(place * tile.summand_place + channel));
                            sum[0] = s.add(sum[0], other);
                        }
                    }
                }
                clamp(s, tile.last_clamp, &mut sums);
                for (place, [sum]) in sums.into_iter().enumerate() {
                    if place < tile.count {
                        let to = tile.to.wrapping_add(place * tile.to_place + channel);
                        if WHOLE {
                            s.store(to, sum);
                        } else {
                            s.store_first(tile.keep, to, sum);
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of a kernel row of `W` taps to the sums of `P` places, `SW` columns apart. `line` is the address
/// of the first column and the distance between columns; `CHECKED`: only columns `inside` are the image's.
///
/// # Safety
/// The columns can be loaded, those inside if `CHECKED`.
#[inline(always)]
unsafe fn sum_line<S: Simd, const W: usize, const SW: usize, const P: usize, const CHECKED: bool>(
    s: S,
    load: impl Fn(*const f32) -> S::V,
    (line, column): (*const f32, usize),
    inside: (isize, isize),
    factors: [S::V; W],
    sums: &mut [[S::V; 1]; P],
) {
    let is_inside = |t: usize| !CHECKED || (t as isize) >= inside.0 && (t as isize) < inside.1;
    // A column is loaded once for all places that look at it. Spelled out: the compiler leaves a loop of so many
    // columns as it is where each may be outside of the image, with the sums in memory.
    macro_rules! columns {
        ($($t:literal)+) => { $(
            if $t < (P - 1) * SW + W && is_inside($t) {
                let value = load(line.wrapping_add($t * column));
                for tap in 0..W {
                    if $t >= tap && ($t - tap) % SW.max(1) == 0 && ($t - tap) / SW.max(1) < P {
                        let sum = &mut sums[($t - tap) / SW.max(1)][0];
                        *sum = s.fma(value, factors[tap], *sum);
                    }
                }
            }
        )+ };
    }
    const { assert!((P - 1) * SW + W <= 19) };
    columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
}
