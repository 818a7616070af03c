//! Implicit matrix product of channels-last tensors: vectors run over output channels, the input's values are
//! broadcast.
//!
//! A tile of places finds its input through pointers, one for each place and tap, those outside of the image to zeros:
//! the indirect convolution of M. Dukhan (arXiv:1907.02129). The input is read where it lies, whatever stride, dilation
//! and padding, unless its channels are apart: then a unit's rows are copied into padded channels-last scratch first,
//! in which the taps of a kernel row lie side by side. Where the output's channels are apart, tiles are transposed
//! before they are stored.
//!
//! A unit of work is some places of a plane of an image and group, for some panels of output channels. Where images follow each
//! other at the distance of places, as channels-last ones do, they are a single plane: a tile has places of several small images,
//! and weights pass once for all of them.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{copy, inside, is_even, load_apart, load_lanes, place_distance, store_lanes, zero};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::problem::{Element, Layout, Problem, Shape};
use super::rounding::{self, Places};
use super::row_tile::{self, MAX_ROWS, RowAfter, RowTile, RowTileFn};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};

/// Bytes of input that stay in the second-level cache while panels of weights pass.
const INPUT_BYTES: usize = 512 << 10;
/// Bytes of a unit's weights that stay in that cache while places pass.
const WEIGHTS_BYTES: usize = 768 << 10;
/// Places over which a panel of such weights passes at a time. Of a dozen, panels begin too often for short sums: 16→32 on 112×112
/// takes 196 µs on Zen 3, 168 with these. Of hundreds, an output of many channels is written in parts of lines far apart.
const NEAR_PLACES: usize = 96;
/// Distance, in bytes, at which lines compete for the same [`WAYS`] places of the first-level cache.
const ALIASED: usize = 4096;
/// Places of which all channels are turned before the next ones are: four lines or five of each channel's plane.
const TURNED: usize = 64;
/// Estimated cycles of a value that is turned.
const TURNED_VALUE: f64 = 0.4;
/// Copied columns of a multiple of so many channels are apart: squares of sixteen of them are transposed.
const FAR_COLUMNS: usize = 512;
/// Bytes of a unit's weights that it finds in the second-level cache, where another unit has used them.
const NEAR_WEIGHTS: f64 = (512 << 10) as f64;
/// Lines at that distance that stay in the first-level cache beside the weights that pass.
const WAYS: usize = 7;
/// Minimum numbers of input and output channels of a group for squares of planes to be transposed.
const PLANES: (usize, usize) = (8, 16);
/// Minimum number of terms of a kernel row of fewer input channels.
const ROW: usize = 64;
/// Factors that make the estimated cost comparable with those of algorithms of planes: for sixteen lanes, for eight, and for eight
/// with a single tap. A fit to measured times of some 500 convolutions.
const BESIDE_PLANES: [f64; 3] = [0.89, 0.86, 1.04];
/// Parts of a plane for each thread, at most, where none of its input is copied.
const PARTS: usize = 8;
/// Bytes a cycle of what another thread's core has written.
const REMOTE: f64 = 3.0;
/// Bytes a cycle of weights: a core that multiplies with all those of a network does not keep them in its caches.
const FAR: f64 = 5.0;
/// Bytes of copied input of a unit.
const STAGED_BYTES: usize = 512 << 10;

#[derive(Debug)]
pub(super) struct Indirect {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp, if the kernel computes it in registers.
    direct: Option<InTile>,
    /// True if tiles in registers go through scratch memory to the output: it, or the summand, is of 16 bits.
    rounded: bool,
    steps: Vec<tile::Step>,
    /// True if tiles are stored to the output when they are transposed: its places lie side by side.
    planar: bool,
    /// True if the input is copied.
    staged: bool,
    /// True if the places of all images are one plane's.
    pub(super) joined: bool,
    /// Outputs on each axis whose windows are inside of the input.
    interior: [std::ops::Range<usize>; 3],
    /// Distance between what neighboring places read, if each reads one tap inside of the input and all are equally far apart.
    linear: Option<usize>,
    /// Maximum tile size: places and vectors.
    size: (usize, usize),
    /// Places of a unit, and number of units of a plane.
    places: usize,
    parts: usize,
    /// Panels of channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl Indirect {
    /// True if the algorithm is worth trying without comparing it with those of planes: channels lie side by side, but for those of
    /// an input that has few.
    pub(super) fn suits(problem: &Problem) -> bool {
        let shape = &problem.shape;
        // Of few channels of one tap's sums a vector is still less work than what other algorithms transpose.
        let one_tap = shape.taps() == 1 && shape.groups == 1 && problem.x.strides[1] == 1;
        problem.y.strides[1] == 1
            && (shape.group_out() >= 8 || one_tap)
            && (problem.x.strides[1] == 1 || shape.in_channels < 8)
    }

    /// True if the algorithm is worth trying on images whose channels are apart: squares of places and channels are
    /// transposed on the way in and out, which the sums of many terms are worth.
    pub(super) fn suits_planes(problem: &Problem) -> bool {
        let shape = &problem.shape;
        let squares = problem.x.strides[4] == 1 || problem.x.strides[1] == 1;
        squares
            && (shape.pixels() * shape.taps() > 1 || problem.y.element != Element::F32)
            && (shape.group_in() >= PLANES.0 || shape.dilation[2] == 1 && shape.group_in() * shape.kernel[2] >= ROW)
            && shape.group_out() >= PLANES.1
    }

    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Indirect {
        Indirect::with_sizes(problem, threads, isa, row_tile::sizes(isa.lanes()))
    }

    /// Variant of [`Indirect::new`] with weights in panels of that many output channels; `None` if no tile has such panels.
    pub(super) fn with_panel(problem: &Problem, threads: usize, isa: Isa, panel: usize) -> Option<Indirect> {
        let mut sizes = row_tile::sizes(isa.lanes()).filter(|(_, vectors)| vectors * isa.lanes() == panel).peekable();
        sizes.peek()?;
        Some(Indirect::with_sizes(problem, threads, isa, sizes))
    }

    /// Makes the plan with the tile of these sizes, and the units, that are expected to be the fastest.
    fn with_sizes(
        problem: &Problem,
        threads: usize,
        isa: Isa,
        sizes: impl Iterator<Item = (usize, usize)>,
    ) -> Indirect {
        let sizes: Vec<(usize, usize)> = sizes.collect();
        let shape = &problem.shape;
        let lanes = isa.lanes();
        let [_, oh, ow] = shape.output;
        let (kg, depth) = (shape.group_out(), shape.depth());
        let staged =
            problem.x.element != Element::F32 || (problem.x.strides[1] != 1 && shape.in_channels > 1) || narrow(shape);
        let finish = Epilogue::new(problem);
        // The places of a tile have one distance.
        let even = |layout: &Layout| is_even(layout, [oh, ow]);
        let summand = |tile: &InTile| tile.summand.as_ref().is_none_or(|(_, layout)| even(layout));
        let side_by_side = |layout: &Layout| layout.strides[1] == 1;
        let direct = finish
            .with_summand(side_by_side)
            .filter(|tile| side_by_side(&problem.y) && even(&problem.y) && summand(tile));
        let rounded = direct.as_ref().is_some_and(|tile| rounding::is_wanted(&problem.y, tile));
        let planar = finish.is_rounding() && even(&problem.y) && place_distance(&problem.y, ow) == 1;
        let joined =
            !staged && shape.output[0] == 1 && direct.as_ref().is_some_and(|tile| joins(shape, &problem.y, tile));
        let mut plan = Indirect {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            direct,
            rounded,
            steps: Vec::new(),
            planar,
            staged,
            joined,
            interior: [0, 1, 2].map(|axis| interior(shape, axis)),
            linear: None,
            size: (1, 1),
            places: 1,
            parts: 1,
            chunk: 1,
            chunks: 1,
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        let whole = (0..3).all(|axis| plan.interior[axis] == (0..shape.output[axis]));
        plan.linear = (!staged && shape.taps() == 1 && whole && plan.is_even()).then(|| plan.input_distance());
        // Columns of places alone were not measured.
        let measured = ow > 1 || joined && oh == 1;
        let aliased = !staged && measured && (size_of::<f32>() * plan.input_distance()).is_multiple_of(ALIASED);
        let (images, plane) = (plan.images(), plan.plane());
        let mut least = f64::INFINITY;
        let mut splits: Vec<usize> = (1..=16).chain([20, 24, 28, 32, 48, 64, 96, 128, 192, 256, 384, 512]).collect();
        if staged {
            splits.retain(|parts| *parts <= oh);
            splits.push(oh);
        } else {
            // More parts only cost: nothing of the input has to fit anywhere.
            splits.retain(|parts| *parts <= PARTS * threads);
        }
        // Units are whole tiles, or whole rows of the output where the input is copied.
        let places_of = |parts: usize, rows: usize| match staged {
            true => oh.div_ceil(parts) * ow,
            false => plane.div_ceil(parts).next_multiple_of(rows),
        };
        for (i, size) in (0..splits.len()).flat_map(|i| sizes.iter().map(move |size| (i, *size))) {
            let (rows, vectors) = size;
            let parts = splits[i];
            let places = places_of(parts, rows);
            // Small images have the same units for many numbers of them.
            if i > 0 && places_of(splits[i - 1], rows) == places {
                continue;
            }
            if staged && parts < oh && 4 * plan.staged_len(places) > STAGED_BYTES {
                continue;
            }
            let parts = plane.div_ceil(places);
            let places = places.min(plane);
            let (panels, tiles) = (kg.div_ceil(vectors * lanes), places.div_ceil(rows));
            let passes = if tiles > 1 { row_tile::panel_cycles(lanes, vectors, depth) } else { 0.0 };
            let step = |rows: usize| {
                let step = tile::step_cycles((rows, vectors), false) * if aliased && rows > WAYS { 1.3 } else { 1.0 };
                step.max(passes)
            };
            // The last tile has fewer places.
            let sum = (tiles - 1) as f64 * step(rows) + step(places - (tiles - 1) * rows);
            let call = 40.0 + (rows * vectors) as f64 * 2.5;
            let panel = depth as f64 * sum + tiles as f64 * call;
            let input = (places * shape.group_in() * 4) as f64;
            let gather = match staged {
                true if shape.group_in() < 8 => input / 4.0 * 1.5,
                true => TURNED_VALUE * plan.staged_len(places) as f64,
                false => places as f64 * shape.taps() as f64,
            };
            let output = match (&plan.direct, plan.planar) {
                (Some(_), _) if rounded => 6.0 * rows as f64,
                (Some(_), _) => 0.0,
                (None, true) => 150.0,
                (None, false) => 500.0,
            } * (tiles * vectors) as f64;
            // No split of channels makes up for sums that take longer than everything does elsewhere.
            let units_of_places = images * shape.groups * shape.output[0] * parts;
            if units_of_places as f64 * panels as f64 * panel / threads as f64 >= least {
                continue;
            }
            for chunks in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] {
                if chunks > panels || chunks > 4 * threads {
                    break;
                }
                let chunk = panels.div_ceil(chunks);
                let chunks = panels.div_ceil(chunk);
                let units = units_of_places * chunks;
                let weights = (chunk * vectors * lanes * depth * 4) as f64;
                let of_panels = chunk as f64 * (panel + output);
                let near = units_of_places > shape.groups && weights <= NEAR_WEIGHTS;
                // What prefetches leave of the time in which weights arrive, a fit to measured times.
                let stream = weights / if near { 80.0 } else { 30.0 };
                let unit = 800.0 + of_panels + gather + input / 12.0 + stream;
                // Workers begin with units that follow each other, of which the last are shared.
                let run = units.div_ceil(threads);
                let remote = remote_bytes(shape, [units, run, chunks], threads) / REMOTE;
                // Of weights a worker has to read what is beyond its share of the convolution's, too.
                let all = (shape.groups * panels * vectors * lanes * depth * 4) as f64;
                let groups = run.div_ceil(parts * chunks).min(shape.groups);
                let read = weights * (groups * run.min(chunks)) as f64;
                let far = (read - all / threads.min(units) as f64).max(0.0) / FAR;
                // Other algorithms' costs are those of their units alone.
                let cost = unit * run as f64;
                if cost + remote + far < least {
                    least = cost + remote + far;
                    plan = Indirect { cost, size, places, parts, chunk, chunks, ..plan };
                }
            }
        }
        plan.steps = epilogue::steps(plan.direct.as_ref(), plan.list_len());
        plan
    }

    /// Estimated cycles of a run, beside algorithms of planes.
    pub(super) fn cost_beside_planes(&self) -> f64 {
        let [of_sixteen, of_eight, of_single] = BESIDE_PLANES;
        self.cost
            * match self.isa.lanes() {
                16 => of_sixteen,
                _ if self.shape.taps() > 1 => of_eight,
                _ => of_single,
            }
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    /// Number of images whose places are a plane of their own.
    fn images(&self) -> usize {
        if self.joined { 1 } else { self.shape.batch }
    }

    /// Number of places of a plane.
    fn plane(&self) -> usize {
        let images = if self.joined { self.shape.batch } else { 1 };
        images * self.shape.output[1] * self.shape.output[2]
    }

    /// Distance between neighboring places of a plane.
    fn distance(&self, layout: &Layout) -> usize {
        let [_, oh, ow] = self.shape.output;
        if self.joined && oh * ow == 1 { layout.strides[0] } else { place_distance(layout, ow) }
    }

    /// Distance between what neighboring places of a line read with a tap.
    fn input_distance(&self) -> usize {
        let (shape, [image, _, _, line, column]) = (&self.shape, self.x.strides);
        match (shape.output[2], shape.output[1]) {
            (1, 1) => image,
            (1, _) => shape.stride[1] * line,
            _ => shape.stride[2] * column,
        }
    }

    /// True if all places of a plane are that far apart, not those of a line alone.
    fn is_even(&self) -> bool {
        let (shape, [image, _, _, line, _], distance) = (&self.shape, self.x.strides, self.input_distance());
        let [_, oh, ow] = shape.output;
        let rows = ow == 1 || oh == 1 || shape.stride[1] * line == ow * distance;
        let images = !self.joined || oh * ow == 1 || image == oh * ow * distance;
        rows && images
    }

    /// Distance between columns of the copied input: the channels of one, and a line beside them where lines of columns would else
    /// compete for places of the first-level cache.
    fn staged_pitch(&self) -> usize {
        let channels = self.shape.group_in();
        let far = channels.is_multiple_of(FAR_COLUMNS);
        channels + if far { tile::LINE } else { 0 }
    }

    /// Number of contiguous terms of a tap, and of taps.
    fn terms(&self) -> (usize, usize) {
        let shape = &self.shape;
        // Columns of the copy are neighbors.
        match self.staged && shape.dilation[2] == 1 && self.staged_pitch() == shape.group_in() {
            true => (shape.kernel[2] * shape.group_in(), shape.kernel[0] * shape.kernel[1]),
            false => (shape.group_in(), shape.taps()),
        }
    }

    /// Distances in the input of neighboring rows and columns of the copy: those that no tap looks at are left out where that is simple.
    fn staged_steps(&self) -> [usize; 2] {
        let Shape { kernel, stride, pad_before, .. } = &self.shape;
        let apart = self.x.element == Element::F32 && self.x.strides[4] == 1 && self.shape.group_in() > 3;
        if !self.staged || !apart || kernel[1..] != [1, 1] || pad_before[1..] != [0, 0] {
            return [1, 1];
        }
        [stride[1], if stride[2] == 2 { 2 } else { 1 }]
    }

    /// Columns and rows of the copied input, for a unit of `places` places.
    fn staged_sizes(&self, places: usize) -> (usize, usize) {
        let shape = &self.shape;
        let [rows, columns] = self.staged_steps();
        let reach = |axis: usize, outputs: usize| {
            let step = [1, rows, columns][axis];
            (outputs - 1) * shape.stride[axis] / step + (shape.kernel[axis] - 1) * shape.dilation[axis] + 1
        };
        (reach(2, shape.output[2]), reach(1, places.div_ceil(shape.output[2])))
    }

    /// Values of the copied input of a unit of `places` places.
    fn staged_len(&self, places: usize) -> usize {
        if !self.staged {
            return 0;
        }
        let (columns, rows) = self.staged_sizes(places);
        (self.shape.kernel[0] * rows * columns * self.staged_pitch()).next_multiple_of(16)
    }

    /// Values of a per-channel list of a unit.
    fn list_len(&self) -> usize {
        self.chunk * self.panel()
    }

    /// Number of tiles over which panels of weights pass, one after the other: as many as have their input in the second-level
    /// cache, but fewer if the weights stay there, so that the output is written from place to place.
    fn block(&self) -> usize {
        let rows = self.size.0;
        let of_input = INPUT_BYTES / (4 * rows * self.shape.group_in());
        if 4 * self.list_len() * self.shape.depth() <= WEIGHTS_BYTES {
            return (NEAR_PLACES / rows).min(of_input).max(2);
        }
        of_input.clamp(1, 64)
    }

    /// Size of a block's pointers, in `f32` values.
    fn pointers_len(&self) -> usize {
        let pointers = self.block().min(self.places.div_ceil(self.size.0)) * self.size.0 * self.terms().1;
        (pointers * size_of::<*const f32>() / size_of::<f32>()).next_multiple_of(16)
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.list_len())
    }

    /// Values of a tile, and of the same with its places side by side.
    fn tile_len(&self) -> usize {
        if self.direct.is_some() && !self.rounded { 0 } else { 2 * MAX_LANES * self.panel() }
    }
}

/// Bytes that a worker gets from other cores' caches if it computes `run` of `units` units, of which `chunks` are of the same
/// places: of its input what is not in its share of all places, whose channels the worker with the same number computes in
/// other convolutions, and of its output what these will get from it.
fn remote_bytes(shape: &Shape, [units, run, chunks]: [usize; 3], threads: usize) -> f64 {
    let size = |sizes: [usize; 3]| (size_of::<f32>() * shape.batch * sizes.iter().product::<usize>()) as f64;
    let (input, output) =
        (size(shape.input) * shape.in_channels as f64, size(shape.output) * shape.out_channels as f64);
    let worker = 1.0 / threads.min(units) as f64;
    let places = run.div_ceil(chunks) as f64 / (units / chunks) as f64;
    let elsewhere = if run.is_multiple_of(chunks) { 0.0 } else { output * worker * (1.0 - worker) };
    input * (places - worker).max(0.0) + elsewhere
}

/// True if the places of all images have one distance in the output and in a summand, and lists of the epilogue are the same for
/// all images.
fn joins(shape: &Shape, y: &Layout, tile: &InTile) -> bool {
    let [_, oh, ow] = shape.output;
    let follow = |layout: &Layout| oh * ow == 1 || layout.strides[0] == oh * ow * place_distance(layout, ow);
    let summand = tile.summand.as_ref().is_none_or(|(_, layout)| follow(layout));
    shape.batch > 1 && follow(y) && summand && tile.images.iter().all(|stride| *stride == 0)
}

/// Outputs on an axis whose windows are inside of the input.
fn interior(shape: &Shape, axis: usize) -> std::ops::Range<usize> {
    let (pad, stride) = (shape.pad_before[axis], shape.stride[axis]);
    let reach = (shape.kernel[axis] - 1) * shape.dilation[axis];
    let end = (shape.input[axis] + pad).checked_sub(reach).map_or(0, |starts| starts.div_ceil(stride));
    pad.div_ceil(stride)..end.min(shape.output[axis])
}

/// True if a kernel row of few input channels is worth copying, so that its taps become one.
fn narrow(shape: &Shape) -> bool {
    shape.group_in() < 8 && shape.kernel[2] > 1 && shape.dilation[2] == 1
}

impl InUnits for Indirect {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.images() * self.shape.groups * self.shape.output[0] * self.parts * self.chunks
    }

    fn slot(&self) -> usize {
        let zeros = self.shape.group_in().next_multiple_of(16);
        self.lists_len().next_multiple_of(16)
            + zeros
            + self.pointers_len()
            + self.tile_len()
            + self.staged_len(self.places)
    }
}

/// Coordinates of a unit, and its parts of the slot.
struct Place {
    image: usize,
    group: usize,
    z: usize,
    /// Panels of output channels.
    panels: std::ops::Range<usize>,
    /// Places of the output plane.
    places: std::ops::Range<usize>,
    lists: *mut f32,
    zeros: *mut f32,
    pointers: *mut *const f32,
    tile: *mut f32,
    staged: *mut f32,
}

/// Tiles of one panel of channels.
struct Row<'a> {
    /// Tile, but for its places.
    tile: RowTile<'a>,
    /// Address of the plane's first place in the output, and in the summand of the epilogue in registers; null where the tile is
    /// stored to scratch memory, and without a summand.
    y: *mut f32,
    summand: *const f32,
    /// First output channel, and number of those that are kept.
    channel: usize,
    keep: usize,
}

impl Kernel for Unit<'_, Indirect> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (part, rest) = (rest % plan.parts, rest / plan.parts);
        let (z, rest) = (rest % shape.output[0], rest / shape.output[0]);
        let kg = shape.group_out();
        let width = plan.panel();
        let panels = chunk * plan.chunk..((chunk + 1) * plan.chunk).min(kg.div_ceil(width));
        let begin = part * plan.places;
        let lists = self.slot;
        let zeros = lists.wrapping_add(plan.lists_len().next_multiple_of(16));
        let pointers = zeros.wrapping_add(shape.group_in().next_multiple_of(16));
        let tile = pointers.wrapping_add(plan.pointers_len());
        let at = Place {
            image: rest / shape.groups,
            group: rest % shape.groups,
            z,
            panels,
            places: begin..(begin + plan.places).min(plan.plane()),
            lists,
            zeros,
            pointers: pointers.cast(),
            tile,
            staged: tile.wrapping_add(plan.tile_len()),
        };
        let whole = row_tile::function::<S>(plan.size);
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            self.fill_lists(&at);
            if plan.staged {
                self.stage(s, &at);
            } else {
                zero(s, zeros, shape.group_in());
            }
            let rows = plan.size.0;
            let mut first = at.places.start;
            while first < at.places.end {
                let end = (first + plan.block() * rows).min(at.places.end);
                self.find(&at, first..end);
                let mut panel = at.panels.start;
                while panel < at.panels.end {
                    let mut row = self.row(&at, panel);
                    let mut place = first;
                    while place < end {
                        let count = rows.min(end - place);
                        let function =
                            if count == rows { whole } else { row_tile::function::<S>((count, plan.size.1)) };
                        row.tile.rows = at.pointers.wrapping_add((place - first) * row.tile.taps).cast_const();
                        self.tile(s, function, &at, &mut row, place, count);
                        place += count;
                    }
                    panel += 1;
                }
                first = end;
            }
        }
    }
}

impl Unit<'_, Indirect> {
    /// Fills bias and operand lists of the steps in registers, for the unit's channels.
    #[inline(always)]
    unsafe fn fill_lists(&self, at: &Place) {
        let plan = self.plan;
        let width = plan.panel();
        let kg = plan.shape.group_out();
        let first = at.panels.start * width;
        let count = (at.panels.end * width).min(kg) - first;
        let channel = at.group * kg + first;
        // SAFETY: the slot has room for the lists; the operands are those of the problem.
        unsafe {
            let (direct, len) = (plan.direct.as_ref(), plan.list_len());
            plan.finish.fill_lists(direct, self.operands, at.image, channel, count, at.lists, len);
        }
    }

    /// Copies the input of the unit's rows, padded, its channels side by side.
    #[inline(always)]
    unsafe fn stage<S: Simd>(&self, s: S, at: &Place) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (cg, pitch, ow) = (shape.group_in(), plan.staged_pitch(), shape.output[2]);
        let (columns, rows) = plan.staged_sizes(at.places.len());
        let strides = plan.x.strides;
        let [depth, height, width] = shape.input;
        let first_row = at.places.start / ow * shape.stride[1];
        let [row_step, column_step] = plan.staged_steps();
        let pad = shape.pad_before[2];
        let left = pad.min(columns);
        let count = width.div_ceil(column_step).min(columns - left);
        let unpadded = columns == width && left == 0 && shape.pad_before[1] == 0 && first_row + rows <= height;
        let gapless = strides[3] == width && strides[4] == 1;
        // SAFETY: the slot has room for so many rows; rows and columns are the input's.
        unsafe {
            if shape.taps() == 1
                && (row_step, column_step) == (1, 1)
                && unpadded
                && gapless
                && cg > 3
                && let Some(z) = inside(at.z * shape.stride[0], shape.pad_before[0], depth)
            {
                // All rows are one.
                let from = at.image * strides[0] + at.group * cg * strides[1] + z * strides[2] + first_row * strides[3];
                for column in (0..rows * columns).step_by(TURNED) {
                    let count = (rows * columns - column).min(TURNED);
                    let to = at.staged.wrapping_add(column * pitch);
                    turn(s, &plan.x, self.x, from + column, 1, [cg, count], (to, pitch));
                }
                return;
            }
            for t in 0..shape.kernel[0] {
                let z = inside(at.z * shape.stride[0] + t * shape.dilation[0], shape.pad_before[0], depth);
                for row in 0..rows {
                    let to = at.staged.wrapping_add((t * rows + row) * columns * pitch);
                    let (Some(z), Some(line)) = (z, inside(first_row + row * row_step, shape.pad_before[1], height))
                    else {
                        zero(s, to, columns * pitch);
                        continue;
                    };
                    zero(s, to, left * pitch);
                    zero(s, to.wrapping_add((left + count) * pitch), (columns - left - count) * pitch);
                    let to = to.wrapping_add(left * pitch);
                    let from = at.image * strides[0] + at.group * cg * strides[1] + z * strides[2] + line * strides[3];
                    if cg == 1 || strides[1] == 1 && strides[4] == cg && pitch == cg {
                        copy(s, plan.x.element, self.x, from, if cg == 1 { strides[4] } else { 1 }, to, count * cg);
                    } else if strides[1] == 1 {
                        for column in 0..count {
                            let from = from + column * strides[4];
                            copy(s, plan.x.element, self.x, from, 1, to.wrapping_add(column * pitch), cg);
                        }
                    } else if cg == 3 && strides[4] == 1 {
                        interleave(s, plan.x.element, self.x, [0, 1, 2].map(|c| from + c * strides[1]), count, to);
                    } else if strides[4] == 1 {
                        turn(s, &plan.x, self.x, from, column_step, [cg, count], (to, pitch));
                    } else {
                        for c in 0..cg {
                            let from = from + c * strides[1];
                            let mut column = 0;
                            while column < count {
                                let from = from + column * strides[4];
                                *to.add(column * pitch + c) = super::naive::read(plan.x.element, self.x, from);
                                column += 1;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Writes the indirection buffer: the address of each place's terms, tile by tile, for each tap; those of a tile
    /// side by side.
    #[inline(always)]
    unsafe fn find(&self, at: &Place, places: std::ops::Range<usize>) {
        let plan = self.plan;
        let shape = &plan.shape;
        let ow = shape.output[2];
        let (_, taps) = plan.terms();
        let (cg, pitch) = (shape.group_in(), plan.staged_pitch());
        let [kt, kr, ks] = shape.kernel;
        // Distances of neighboring places' rows and columns.
        let [row_step, column_step] = plan.staged_steps();
        let (down, right) = (shape.stride[1] / row_step, shape.stride[2] / column_step);
        // Strides of planes, rows and columns, and the address of the window of the plane's first place.
        let (strides, from, across) = if plan.staged {
            let (columns, rows) = plan.staged_sizes(at.places.len());
            let first_row = at.places.start / ow * down;
            let from = at.staged.cast_const().wrapping_sub(first_row * columns * pitch);
            // In the copy a kernel row is one tap, unless its columns are apart.
            ([rows * columns * pitch, columns * pitch, pitch], from, taps / (kt * kr))
        } else {
            let [image, channel, plane, line, column] = plan.x.strides;
            let x = self.x.cast::<f32>().wrapping_add(at.image * image + at.group * cg * channel);
            let pad = shape.pad_before[1] * line + shape.pad_before[2] * column;
            let z = (at.z * shape.stride[0]) as isize - shape.pad_before[0] as isize;
            ([plane, line, column], x.wrapping_sub(pad).wrapping_offset(z * plane as isize), ks)
        };
        if let Some(distance) = plan.linear {
            for (i, place) in places.enumerate() {
                // SAFETY: the slot has room for the pointers of a block, one for the single tap of each place.
                unsafe { *at.pointers.add(i) = from.wrapping_add(place * distance) };
            }
            return;
        }
        // The copy has planes of its taps only.
        let dilation = [if plan.staged { 1 } else { shape.dilation[0] }, shape.dilation[1], shape.dilation[2]];
        let steps = [0, 1, 2].map(|axis| dilation[axis] * strides[axis]);
        let [interior_z, interior_rows, interior_columns] = &plan.interior;
        let whole_z = plan.staged || interior_z.contains(&at.z);
        let oh = shape.output[1];
        let (mut image, mut row, mut column) = (0, places.start / ow, places.start % ow);
        if plan.joined {
            (image, row) = (row / oh, row % oh);
        }
        let mut first = places.start;
        while first < places.end {
            let count = plan.size.0.min(places.end - first);
            let to = at.pointers.wrapping_add((first - places.start) * taps);
            let (mut windows, mut coordinates) = ([std::ptr::null::<f32>(); MAX_ROWS], [(0, 0); MAX_ROWS]);
            let mut whole = whole_z;
            let mut i = 0;
            while i < count {
                let place = row * down * strides[1] + column * right * strides[2];
                windows[i] = from.wrapping_add(image * plan.x.strides[0] + place);
                coordinates[i] = (row, column);
                whole &= plan.staged || interior_rows.contains(&row) && interior_columns.contains(&column);
                column += 1;
                if column == ow {
                    (row, column) = (row + 1, 0);
                    if row == oh {
                        (image, row) = (image + 1, 0);
                    }
                }
                i += 1;
            }
            let mut tap = 0;
            for t in 0..kt {
                for r in 0..kr {
                    for s in 0..across {
                        let offset = t * steps[0] + r * steps[1] + s * steps[2];
                        let mut i = 0;
                        while i < count {
                            let inside = whole || {
                                let (row, column) = coordinates[i];
                                self.inside(0, at.z, t) && self.inside(1, row, r) && self.inside(2, column, s)
                            };
                            let from = if inside { windows[i].wrapping_add(offset) } else { at.zeros.cast_const() };
                            // SAFETY: the slot has room for the pointers of a block.
                            unsafe { *to.add(tap * count + i) = from };
                            i += 1;
                        }
                        tap += 1;
                    }
                }
            }
            first += count;
        }
    }

    /// True if the input has the place that an output looks at with a tap, on an axis.
    #[inline(always)]
    fn inside(&self, axis: usize, output: usize, tap: usize) -> bool {
        let shape = &self.plan.shape;
        let place = output * shape.stride[axis] + tap * shape.dilation[axis];
        inside(place, shape.pad_before[axis], shape.input[axis]).is_some()
    }

    /// Prepares the tiles of a panel's channels.
    #[inline(always)]
    unsafe fn row(&self, at: &Place, panel: usize) -> Row<'_> {
        let plan = self.plan;
        let shape = &plan.shape;
        let (kg, width) = (shape.group_out(), plan.panel());
        let (channels, taps) = plan.terms();
        let panels = kg.div_ceil(width);
        let list = (panel - at.panels.start) * width;
        let channel = at.group * kg + panel * width;
        let keep = (kg - panel * width).min(width);
        let mut tile = RowTile {
            channels,
            taps,
            rows: std::ptr::null(),
            b: self.weights.wrapping_add((at.group * panels + panel) * width * shape.depth()),
            bias: at.lists.wrapping_add(list),
            clamp: plan.finish.clamp,
            to: at.tile,
            row: width,
            keep: width,
            after: None,
        };
        let (mut y, mut summand) = (std::ptr::null_mut(), std::ptr::null());
        // Where tiles are stored straight to the output, its places have one stride, and so do a summand's.
        let plane = [at.image, channel, at.z, 0, 0];
        if let Some(direct) = &plan.direct {
            let mut after = RowAfter {
                steps: &plan.steps,
                values: at.lists.wrapping_add(plan.list_len() + list),
                summand: std::ptr::null(),
                row: 0,
                clamp: direct.clamp_before_summand(),
            };
            if !plan.rounded {
                tile.keep = keep;
                tile.row = plan.distance(&plan.y);
                y = self.y.cast::<f32>().wrapping_add(plan.y.offset(plane));
                after.clamp = direct.clamp;
                if let Some((operand, layout)) = &direct.summand {
                    // SAFETY: the operands are those of the problem.
                    let p = unsafe { *self.operands.add(*operand) }.cast::<f32>();
                    after.row = plan.distance(layout);
                    summand = p.wrapping_add(layout.offset(plane));
                }
            }
            tile.after = (!direct.is_empty()).then_some(after);
        }
        Row { tile, y, summand, channel, keep }
    }

    /// Computes a tile of a row: `count` places from `place` on.
    #[inline(always)]
    unsafe fn tile<S: Simd>(
        &self,
        s: S,
        function: RowTileFn<S>,
        at: &Place,
        row: &mut Row<'_>,
        place: usize,
        count: usize,
    ) {
        let plan = self.plan;
        // SAFETY: the pointers of the tile's places, the weights of the panel and the lists of its channels are there;
        // what is kept are output places of the unit.
        unsafe {
            let Some(direct) = &plan.direct else {
                function(s, &row.tile);
                let ow = plan.shape.output[2];
                self.transpose(s, at.tile, [at.image, row.channel, at.z, place / ow, place % ow], count, row.keep);
                return;
            };
            if plan.rounded {
                function(s, &row.tile);
                self.round(s, direct, at.tile, [at.image, row.channel, at.z, 0, 0], place, count, row.keep);
                return;
            }
            row.tile.to = row.y.wrapping_add(place * row.tile.row);
            if let Some(after) = &mut row.tile.after
                && direct.summand.is_some()
            {
                after.summand = row.summand.wrapping_add(place * after.row);
            }
            function(s, &row.tile);
        }
    }

    /// Rounds a tile that is in scratch memory: `count` places from `place` on of the plane that begins at `plane`, of `keep` channels.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a tile is a place in two dimensions with its operands")]
    unsafe fn round<S: Simd>(
        &self,
        s: S,
        after: &InTile,
        tile: *const f32,
        plane: [usize; 5],
        place: usize,
        count: usize,
        keep: usize,
    ) {
        let plan = self.plan;
        let places = |layout: &Layout, p: *mut u8| {
            let distance = plan.distance(layout);
            Places { element: layout.element, p, from: layout.offset(plane) + place * distance, distance }
        };
        // SAFETY: the tile is computed; its places and channels are the output's, and the summand's.
        unsafe {
            let mut summand = None;
            if let Some((operand, layout)) = &after.summand {
                summand = Some(places(layout, (*self.operands.add(*operand)).cast_mut()));
            }
            let rows = (tile, plan.panel());
            rounding::round(s, rows, [count, keep], places(&plan.y, self.y), summand, after.clamp);
        }
    }

    /// Transposes a tile that is in scratch memory, and stores or finishes it: `count` places from `at` on of `keep`
    /// channels.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, tile: *mut f32, at: [usize; 5], count: usize, keep: usize) {
        let plan = self.plan;
        let width = plan.panel();
        let values = tile.wrapping_add(MAX_LANES * width);
        let y = plan.y.offset(at);
        // SAFETY: the slot has room for the tile twice, with places for whole vectors; the places are the unit's.
        unsafe {
            for channel in (0..keep).step_by(S::LANES) {
                let mut square = [s.splat(0.0); MAX_LANES];
                // A tile has no more places than a vector has lanes.
                for place in 0..S::LANES {
                    if place < count {
                        square[place] = s.load(tile.wrapping_add(place * width + channel));
                    }
                }
                let square = s.transpose(square);
                for i in 0..S::LANES {
                    if !plan.planar {
                        s.store(values.wrapping_add((channel + i) * MAX_LANES), square[i]);
                    } else if channel + i < keep {
                        store_lanes(s, plan.y.element, self.y, y + (channel + i) * plan.y.strides[1], square[i], count);
                    }
                }
            }
            if plan.planar {
                return;
            }
            let block = Block { at, values, channels: keep, pitch: MAX_LANES, count };
            plan.finish.run(s, self.operands, self.y, block);
        }
    }
}

/// Writes rows of `count` values, `step` elements apart, of each of `channels` channels, the first from element `from` of `x` on,
/// value by value: the first of each, `pitch` behind it the second of each, and so on.
///
/// # Safety
/// The rows can be read, and `channels` values be written at each of `count` times the pitch.
#[inline(always)]
pub(super) unsafe fn turn<S: Simd>(
    s: S,
    layout: &Layout,
    x: *const u8,
    from: usize,
    step: usize,
    [channels, count]: [usize; 2],
    (to, pitch): (*mut f32, usize),
) {
    let (of_row, plain) = (layout.strides[1], layout.element == Element::F32 && matches!(step, 1 | 2));
    for channel in (0..channels).step_by(S::LANES) {
        let rows = (channels - channel).min(S::LANES);
        if plain && rows == S::LANES {
            let next = (channels - channel - rows).min(S::LANES);
            let from = x.cast::<f32>().wrapping_add(from + channel * of_row);
            // SAFETY: the caller's duty.
            unsafe {
                let to = (to.wrapping_add(channel), pitch);
                match step {
                    1 => turn_vectors::<S, 1>(s, from, of_row, next, count, to),
                    _ => turn_vectors::<S, 2>(s, from, of_row, next, count, to),
                }
            }
            continue;
        }
        for column in (0..count).step_by(S::LANES) {
            let columns = (count - column).min(S::LANES);
            let mut square = [s.splat(0.0); MAX_LANES];
            // SAFETY: lanes end with the rows' values, and those that are stored with the channels.
            unsafe {
                for i in 0..S::LANES {
                    if i < rows {
                        let from = from + (channel + i) * of_row + column * step;
                        square[i] = load_apart(s, layout.element, x, from, step, columns);
                    }
                }
                let square = s.transpose(square);
                for i in 0..S::LANES {
                    if i < columns {
                        s.store_first(rows, to.wrapping_add((column + i) * pitch + channel), square[i]);
                    }
                }
            }
        }
    }
}

/// Variant of [`turn`] for as many rows of `f32` values as a vector has lanes, `of_row` apart, whose values are neighbors or, with a
/// `STEP` of 2, every second one; the first `next` of as many rows behind them are asked for.
///
/// # Safety
/// The rows can be read, and so many values be written at each of `count` times the pitch.
#[inline(always)]
unsafe fn turn_vectors<S: Simd, const STEP: usize>(
    s: S,
    from: *const f32,
    of_row: usize,
    next: usize,
    count: usize,
    (to, pitch): (*mut f32, usize),
) {
    let mut column = 0;
    while column < count {
        let columns = (count - column).min(S::LANES);
        let (lanes, mask) = (first(columns), s.mask(first(columns)));
        // A row after the other: the compiler would keep the addresses of all of them in memory.
        let (mut row, mut ahead) =
            (from.wrapping_add(STEP * column), from.wrapping_add(S::LANES * of_row + STEP * column));
        let mut square = [s.splat(0.0); MAX_LANES];
        let mut i = 0;
        // SAFETY: lanes end with the rows' values.
        unsafe {
            while i < S::LANES {
                square[i] = if STEP == 1 { s.load_masked(mask, row) } else { s.load_even(lanes, row) };
                row = row.wrapping_add(of_row);
                i += 1;
            }
            for _ in 0..next {
                s.prefetch(ahead);
                ahead = ahead.wrapping_add(of_row);
            }
            let square = s.transpose(square);
            let mut to = to.wrapping_add(column * pitch);
            let mut i = 0;
            while i < S::LANES {
                if i < columns {
                    s.store(to, square[i]);
                }
                to = to.wrapping_add(pitch);
                i += 1;
            }
        }
        column += S::LANES;
    }
}

/// Writes three rows of `count` values, from these elements of `x` on, value by value: the first of each, the second of
/// each, and so on.
///
/// # Safety
/// The rows can be read, and `3 * count` values written.
#[inline(always)]
pub(super) unsafe fn interleave<S: Simd>(
    s: S,
    element: Element,
    x: *const u8,
    rows: [usize; 3],
    count: usize,
    to: *mut f32,
) {
    // Of four neighbors the last is none.
    let keep = (0..S::LANES).fold(0, |keep, lane| if lane % 4 == 3 { keep } else { keep | 1 << lane });
    let step = S::LANES / 4 * 3;
    let mut place = 0;
    // SAFETY: whole vectors end with the rows; a quarter of the vectors' lanes is not written.
    unsafe {
        while place + S::LANES <= count {
            let [a, b, c] = rows.map(|row| load_lanes(s, element, x, row + place, S::LANES));
            let (ac, bn) = (s.zip(a, c), s.zip(b, s.splat(0.0)));
            let quarters = [s.zip(ac.0, bn.0), s.zip(ac.1, bn.1)];
            let mut to = to.wrapping_add(3 * place);
            for (low, high) in quarters {
                s.store_compressed(keep, to, low);
                s.store_compressed(keep, to.wrapping_add(step), high);
                to = to.wrapping_add(2 * step);
            }
            place += S::LANES;
        }
        while place < count {
            for (c, row) in rows.into_iter().enumerate() {
                *to.add(3 * place + c) = super::naive::read(element, x, row + place);
            }
            place += 1;
        }
    }
}
