//! Depthwise convolution of channels-last images: vectors run over channels, each of which has taps of its own.
//!
//! A tile is some neighboring places of an output row, or of two, and passes over all channels, a vector at a time. A vector of
//! the input is loaded once for all places of the tile that look at it: with two rows, and a kernel of three, four for six.
//!
//! A unit of work is some tiles, from left to right and down the output. Values of 16 bits are widened in its scratch memory, a row of
//! the input when the first row of the output looks at it.

mod planes;
mod rows;
mod strips;
mod tiles;

pub(super) use planes::DepthwisePlanes;
pub(super) use rows::DepthwiseRows;

use super::band::{copy, inside};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::problem::{Element, Layout, Problem, Shape};
use super::rounding::{self, Places};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};
use std::ops::Range;
use tiles::Tiles;

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
    /// Number of rows of a tile, and of places of each.
    rows: usize,
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
            && (shape.input[0], shape.kernel[0], shape.output[0], shape.pad_before[0]) == (1, 1, 1, 0);
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
            rows: 1,
            places: PLACES.into_iter().min_by_key(in_vain).expect("there are some"),
            far: shape.dilation[1] == 1 && shape.image_bytes() > FAR && !widens,
            widens,
            units: 0,
            shape: shape.clone(),
        };
        let rows = tiles::rows(shape, isa);
        // Each thread has tiles, of whatever number of rows.
        if plan.in_place() && plan.tiles() >= rows * threads {
            plan.rows = rows;
        }
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

    /// True if tiles are computed from the input where it lies to the output: many by one call.
    fn in_place(&self) -> bool {
        !self.widens && !self.rounded && self.direct.is_some()
    }

    /// Number of tiles of a row of the output.
    fn row_tiles(&self) -> usize {
        self.shape.output[2].div_ceil(self.places)
    }

    /// Number of tiles of the output.
    fn tiles(&self) -> usize {
        self.shape.batch * self.shape.output[1].div_ceil(self.rows) * self.row_tiles()
    }

    /// Values of the widened rows of a unit: of one image, all that its rows of the output look at.
    fn widened_len(&self) -> usize {
        if !self.widens {
            return 0;
        }
        let [_, height, width] = self.shape.input;
        // A unit may begin and end within a row.
        let rows = (self.tiles().div_ceil(self.units).div_ceil(self.row_tiles()) + 1).min(self.shape.output[1]);
        let lines = ((rows - 1).saturating_mul(self.shape.stride[1])).saturating_add(self.shape.reach(1)).min(height);
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
        let (mut next, end) = (share(self.unit), share(self.unit + 1));
        let blocks = shape.groups / S::LANES;
        let function = |rows: usize, whole: bool| tiles::function::<S>(shape, rows, plan.places, whole);
        let [whole, rest] = [function(plan.rows, true), function(plan.rows, false)];
        let [last_whole, last_rest] = [function(1, true), function(1, false)];
        let mut listed = usize::MAX;
        let mut widened = Widened { image: usize::MAX, base: 0, end: 0 };
        let mut of_line = None;
        while next < end {
            let (line, tile) = (next / row_tiles, next % row_tiles);
            let count = if plan.in_place() { (row_tiles - tile).min(end - next) } else { 1 };
            next += count;
            let lines = oh.div_ceil(plan.rows);
            let (image, row, place) = (line / lines, line % lines * plan.rows, tile * plan.places);
            let count = (count * plan.places).min(ow - place);
            let rows = plan.rows.min(oh - row);
            // SAFETY: the slot has room for the lists, a tile and the widened rows, which the ascending rows of a unit ask for; windows,
            // channels and places are the problem's.
            unsafe {
                if listed != image {
                    let (direct, count) = (plan.direct.as_ref(), shape.groups);
                    plan.finish.fill_lists(direct, self.operands, image, 0, count, self.slot, plan.list_len());
                    listed = image;
                }
                let first = match of_line {
                    Some((of, first)) if of == line => first,
                    _ => {
                        let input =
                            if plan.widens { self.widen(s, &mut widened, image, row) } else { self.image(image) };
                        self.tiles_of(&input, image, row, rows)
                    }
                };
                of_line = Some((line, first));
                let mut tiles = first;
                self.move_to(&mut tiles, place, count);
                tiles.blocks = blocks;
                let [whole, rest] = if rows == 1 { [last_whole, last_rest] } else { [whole, rest] };
                whole(s, &tiles);
                if blocks * S::LANES < shape.groups {
                    tiles.skip(blocks * S::LANES, blocks * shape.taps() * S::LANES);
                    (tiles.blocks, tiles.keep) = (1, shape.groups - blocks * S::LANES);
                    rest(s, &tiles);
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

/// Kernel rows that are inside of the image for some rows of the output, counted from the first one's: those of a second row begin with
/// the second.
#[inline(always)]
fn kernel_rows(shape: &Shape, row: usize, rows: usize) -> Range<usize> {
    let is_inside =
        |r: usize| inside(row * shape.stride[1] + r * shape.dilation[1], shape.pad_before[1], shape.input[1]).is_some();
    let (mut begin, mut end) = (0, shape.kernel[1] + rows - 1);
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
        let rows = kernel_rows(shape, row, 1);
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

    /// Tiles of no places of `rows` rows of the output, which [`Unit::move_to`] moves to some.
    ///
    /// # Safety
    /// The operands are those of the problem.
    #[inline(always)]
    unsafe fn tiles_of(&self, input: &Image, image: usize, row: usize, rows: usize) -> Tiles<'_> {
        let plan = self.plan;
        let shape = &plan.shape;
        let at = [image, 0, 0, row, 0];
        let [_, kr, ks] = shape.kernel;
        let [_, height, _] = shape.input;
        let Range { start: begin, end } = kernel_rows(shape, row, rows);
        let line = inside(row * shape.stride[1] + begin * shape.dilation[1], shape.pad_before[1], height);
        // Rows that the next tiles look at beside those of these.
        let next = ((row + rows - 1) * shape.stride[1] + kr).saturating_sub(shape.pad_before[1]);
        let top = line.unwrap_or(0);
        let x = input.x.wrapping_add(top * input.line);
        let mut tiles = Tiles {
            x,
            line: shape.dilation[1] * input.line,
            column: input.column,
            kernel_rows: kr,
            inside_rows: (begin, end),
            columns: ks,
            stride: shape.stride[2],
            dilation: shape.dilation[2],
            ahead: x.wrapping_add((next - top.min(next)) * input.line),
            ahead_line: input.line,
            ahead_lines: if plan.far { (rows * shape.stride[1]).min(height.saturating_sub(next)) } else { 0 },
            inside: (0, 0),
            weights: self.weights,
            panel: shape.taps() * plan.panel(),
            blocks: 0,
            keep: plan.panel(),
            count: 0,
            bias: self.slot.cast_const(),
            clamp: plan.finish.clamp,
            to: self.slot.wrapping_add(plan.lists_len()),
            to_place: plan.list_len(),
            to_line: 0,
            steps: &plan.steps,
            values: self.slot.wrapping_add(plan.list_len()).cast_const(),
            summand: std::ptr::null(),
            summand_place: 0,
            summand_line: 0,
            last_clamp: tile::NO_CLAMP,
        };
        if let Some(direct) = &plan.direct {
            if plan.rounded {
                tiles.last_clamp = direct.clamp_before_summand();
                return tiles;
            }
            tiles.to = self.y.cast::<f32>().wrapping_add(plan.y.offset(at));
            (tiles.to_place, tiles.to_line) = (plan.y.strides[4], plan.y.strides[3]);
            tiles.last_clamp = direct.clamp;
            if let Some((operand, layout)) = &direct.summand {
                // SAFETY: the caller's duty.
                let p = unsafe { *self.operands.add(*operand) }.cast::<f32>();
                tiles.summand = p.wrapping_add(layout.offset(at));
                (tiles.summand_place, tiles.summand_line) = (layout.strides[4], layout.strides[3]);
            }
        }
        tiles
    }

    /// Moves the tiles of a row to `count` places from `place` on.
    #[inline(always)]
    fn move_to(&self, tiles: &mut Tiles<'_>, place: usize, count: usize) {
        let shape = &self.plan.shape;
        let left = (place * shape.stride[2]) as isize - shape.pad_before[2] as isize;
        let offset = left * tiles.column as isize;
        tiles.x = tiles.x.wrapping_offset(offset);
        tiles.ahead = tiles.ahead.wrapping_offset(offset);
        tiles.inside = (-left, shape.input[2] as isize - left);
        tiles.count = count;
        // Scratch memory has one tile.
        if self.plan.direct.is_some() && !self.plan.rounded {
            tiles.to = tiles.to.wrapping_add(place * tiles.to_place);
            if !tiles.summand.is_null() {
                tiles.summand = tiles.summand.wrapping_add(place * tiles.summand_place);
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
