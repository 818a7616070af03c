//! Implicit matrix product: vectors run over output places, weights are broadcast.
//!
//! A unit of work is a band of output rows (or a part of one) of an image and group, for some of the output channels.
//! Its input is copied once into `f32` scratch, padded (if its places don't lie as they should already); then every
//! tile of (channels × places) is summed over the whole depth in registers and finished on the way out, so nothing is
//! accumulated in memory.

use super::band::{Band, copy};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::problem::{Element, Problem, Shape};
use super::tile::{self, After, MAX_VECTORS, Tile, TileFn};
use super::units::{InUnits, Unit};
use crate::isa::{Isa, Kernel, MAX_LANES, Pick, Simd, first};

/// Bytes of a band's copy, so that it stays in the second-level cache beside the weights.
const BAND_BYTES: usize = 768 << 10;
/// Bytes of weights that stay in that cache while places are walked.
const WEIGHTS_BYTES: usize = 1 << 20;
/// Bytes of weights from which on these are walked in the outer loop, if the input stays in the second-level cache:
/// then they come from memory once, each panel while the one before is used.
const WORTH_OUTER: usize = 128 << 10;
/// Bytes of input that stay in that cache.
const INPUT_BYTES: usize = 1 << 20;
/// Values past the end of a buffer that whole vectors may read.
const SLACK: usize = (MAX_VECTORS + 2) * MAX_LANES;

/// Source of a tile's input places: the packing of operand B.
#[derive(Clone, Debug)]
enum Source {
    /// One tap and no padding: panels of (input channel × places of a tile), copied straight from the input.
    Single,
    /// Places of the padded band side by side, including those between its rows, which are dropped at the store.
    Flat(Band),
    /// Panels of (input channel and tap × places of a tile) picked from the padded band.
    Picked(Band),
    /// One tap, stride 1 and no padding: the input itself. The last tile is copied where it is not a whole one.
    InPlace,
}

#[derive(Debug)]
pub(super) struct Gemm {
    shape: Shape,
    x: super::Layout,
    y: super::Layout,
    isa: Isa,
    source: Source,
    finish: Epilogue,
    /// Epilogue behind bias and clamp that the kernel computes in registers, if it stores straight to the output.
    direct: Option<InTile>,
    /// Steps of that epilogue.
    steps: Vec<tile::Step>,
    /// Tile size: rows and vectors.
    size: (usize, usize),
    /// Output rows and columns of a band, the latter fewer than there are only if it is one row.
    height: usize,
    width: usize,
    /// Number of bands of an output depth, down and across.
    bands: (usize, usize),
    /// Tile rows of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// True if channels are the outer loop and places the inner one.
    channels_outer: bool,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

struct Choice {
    cost: f64,
    source: u8,
    size: (usize, usize),
    height: usize,
    width: usize,
    chunks: usize,
}

/// Indices of the sources; a shape has either the first or the others.
pub(super) const SOURCES: std::ops::Range<u8> = 0..4;

impl Gemm {
    /// Best plan with a source out of `sources`, if the shape has any of them.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa, sources: std::ops::Range<u8>) -> Option<Gemm> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let lanes = isa.lanes();
        let single = shape.taps() == 1
            && (0..3).all(|i| shape.pad_before[i] == 0 && (shape.output[i] - 1) * shape.stride[i] < shape.input[i]);
        // Channels that are so far apart share a few sets of the first-level cache.
        let in_place = single && problem.is_matrix() && !problem.x.strides[1].is_multiple_of(256);
        let (kg, depth) = (shape.group_out(), shape.depth());
        let mut best: Option<Choice> = None;
        let mut bands: Vec<(usize, usize)> = (1..=oh).map(|bands| (oh.div_ceil(bands), ow)).collect();
        // Parts of a row, for rows that are long or have to be shared by the threads.
        bands.extend((1..12).map(|n| (1, ow.div_ceil(1 << n).next_multiple_of(4 * lanes))).filter(|(_, w)| *w < ow));
        bands.dedup();
        for (i, (height, width)) in bands.iter().copied().enumerate() {
            let last = i + 1 == bands.len();
            let (down, across) = (oh.div_ceil(height), ow.div_ceil(width));
            let band = Band::new(shape, &problem.x, height, width);
            let band_len = if single { shape.group_in() * height * width } else { band.len(SLACK) };
            let serves = |source: &u8| match source {
                0 => single,
                3 => in_place,
                _ => !single,
            };
            for source in sources.clone().filter(serves) {
                if 4 * band_len > BAND_BYTES && !last && source != 3 {
                    continue;
                }
                let places = if source == 1 { (height - 1) * band.pitch + width } else { height * width };
                for size in tile::sizes(lanes) {
                    let tiles = tiles(places, lanes, *size);
                    let panels = if source == 2 { 4 * depth * places } else { 0 };
                    if kg * depth * 4 > WEIGHTS_BYTES && panels > BAND_BYTES && !last {
                        continue;
                    }
                    let step = match source {
                        3 => place_cycles(*size, !problem.x.strides[1].is_multiple_of(lanes)),
                        _ => step_cycles(*size, source == 1),
                    };
                    let row_tiles = kg.div_ceil(size.0);
                    for chunks in [1, 2, 3, 4, 8] {
                        if chunks > row_tiles || chunks > 2 * threads {
                            continue;
                        }
                        let chunk = row_tiles.div_ceil(chunks);
                        let units =
                            shape.batch * shape.groups * shape.output[0] * down * across * row_tiles.div_ceil(chunk);
                        let fill_len = match source {
                            3 => places % (size.1 * lanes) * depth,
                            _ => band_len,
                        };
                        let fill = fill_len as f64 / lanes as f64 * if shape.stride[2] == 1 { 2.0 } else { 5.0 };
                        let pick = if source == 2 { tiles * (depth * size.1) as f64 * 3.5 } else { 0.0 };
                        let compute =
                            chunk as f64 * tiles * (depth as f64 * step + (size.0 * size.1) as f64 * 2.5 + 40.0);
                        let weights = chunk * size.0 * depth * 4;
                        let stream = if kg * depth * 4 > WEIGHTS_BYTES { weights as f64 / 8.0 } else { 0.0 };
                        let unit = 500.0 + fill + pick + compute + stream;
                        let cost = unit * units.div_ceil(threads) as f64;
                        if best.as_ref().is_none_or(|best| cost < best.cost) {
                            best = Some(Choice { cost, source, size: *size, height, width, chunks });
                        }
                    }
                }
            }
        }
        // The smallest band is never skipped.
        let choice = best?;
        let row_tiles = kg.div_ceil(choice.size.0);
        let chunk = row_tiles.div_ceil(choice.chunks);
        let finish = Epilogue::new(problem);
        let strides = problem.y.strides;
        let dense = (ow == 1 || strides[4] == 1) && (oh == 1 || strides[3] == ow);
        // Places between rows are dropped at the store: a summand does not have them.
        let direct = finish.in_tile().filter(|tile| dense && (choice.source != 1 || tile.summand.is_none()));
        let weights = 4 * kg * depth;
        let channels_outer = match choice.source {
            0 | 3 => weights >= WORTH_OUTER && 4 * depth * choice.height * choice.width <= INPUT_BYTES,
            _ => weights > WEIGHTS_BYTES,
        };
        let band = Band::new(shape, &problem.x, choice.height, choice.width);
        Some(Gemm {
            x: problem.x,
            y: problem.y,
            isa,
            source: match choice.source {
                0 => Source::Single,
                1 => Source::Flat(band),
                2 => Source::Picked(band),
                _ => Source::InPlace,
            },
            steps: epilogue::steps(direct.as_ref(), list_len(chunk, choice.size.0)),
            direct,
            finish,
            size: choice.size,
            height: choice.height,
            width: choice.width,
            bands: (oh.div_ceil(choice.height), ow.div_ceil(choice.width)),
            chunk,
            chunks: row_tiles.div_ceil(chunk),
            channels_outer,
            cost: choice.cost,
            shape: shape.clone(),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.source {
            Source::Single => "gemm",
            Source::Flat(_) => "implicit gemm, flat",
            Source::Picked(_) => "implicit gemm, picked",
            Source::InPlace => "gemm in place",
        }
    }

    /// Rows of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.size.0
    }

    fn tile_places(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    /// Values of a unit's packed panels, picked or copied.
    fn panels_len(&self) -> usize {
        let tiles = (self.height * self.width).div_ceil(self.tile_places());
        let tiles = match self.source {
            Source::Flat(_) => 0,
            Source::InPlace => 1,
            Source::Picked(_) if !self.channels_outer => 1,
            _ => tiles,
        };
        (tiles * self.tile_places() * self.shape.depth() + SLACK).next_multiple_of(16)
    }

    fn band_len(&self) -> usize {
        match &self.source {
            Source::Single | Source::InPlace => 0,
            Source::Flat(band) | Source::Picked(band) => band.len(SLACK),
        }
    }

    /// Values of a per-channel list of a unit.
    fn list_len(&self) -> usize {
        list_len(self.chunk, self.size.0)
    }

    /// Values of all lists; the biases come first.
    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.list_len())
    }

    fn tile_len(&self) -> usize {
        self.size.0 * self.tile_places()
    }
}

/// Values of a per-channel list for `chunk` tiles of `rows` channels.
fn list_len(chunk: usize, rows: usize) -> usize {
    (chunk * rows).next_multiple_of(16)
}

/// Number of tiles for `places` places; the last one may be narrow.
fn tiles(places: usize, lanes: usize, (rows, vectors): (usize, usize)) -> f64 {
    let rest = places % (vectors * lanes);
    let whole = (places / (vectors * lanes)) as f64;
    match rest {
        0 => whole,
        _ if rest <= lanes && vectors > 1 && tile::has_narrow(lanes, rows) => whole + 1.2 / vectors as f64,
        _ => whole + 1.0,
    }
}

/// Cycles of a step of the sum where the input is read in place: tiles of fewer rows leave more time for fetches from
/// outer cache levels.
fn place_cycles((rows, vectors): (usize, usize), unaligned: bool) -> f64 {
    let loads = rows as f64 + vectors as f64 * if unaligned { 2.0 } else { 1.0 };
    ((rows * vectors) as f64 / 2.0).max(loads / 2.0).max(4.0) + 0.015 * loads
}

/// Cycles of a step of the sum, by what limits it: multiply-adds and loads at two a cycle, and the latency of an addition.
fn step_cycles((rows, vectors): (usize, usize), unaligned: bool) -> f64 {
    let (rows, vectors) = (rows as f64, vectors as f64);
    let fmas = rows * vectors / 2.0;
    let loads = (rows + vectors * if unaligned { 2.0 } else { 1.0 }) / 2.0;
    fmas.max(loads).max(4.0) + 0.3
}

impl InUnits for Gemm {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.batch * self.shape.groups * self.shape.output[0] * self.bands.0 * self.bands.1 * self.chunks
    }

    fn slot(&self) -> usize {
        self.lists_len() + self.tile_len().next_multiple_of(16) + self.band_len() + self.panels_len()
    }
}

/// Coordinates of a unit.
struct Place {
    image: usize,
    group: usize,
    z: usize,
    /// Output rows and columns: the first of each, and the number of each.
    row: usize,
    column: usize,
    height: usize,
    width: usize,
    /// Tile rows.
    tiles: std::ops::Range<usize>,
}

impl Unit<'_, Gemm> {
    fn place(&self) -> Place {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (across, rest) = (rest % plan.bands.1, rest / plan.bands.1);
        let (down, rest) = (rest % plan.bands.0, rest / plan.bands.0);
        let (z, rest) = (rest % shape.output[0], rest / shape.output[0]);
        let (row, column) = (down * plan.height, across * plan.width);
        let last = shape.group_out().div_ceil(plan.size.0);
        Place {
            image: rest / shape.groups,
            group: rest % shape.groups,
            z,
            row,
            column,
            height: plan.height.min(shape.output[1] - row),
            width: plan.width.min(shape.output[2] - column),
            tiles: chunk * plan.chunk..(chunk * plan.chunk + plan.chunk).min(last),
        }
    }
}

impl Kernel for Unit<'_, Gemm> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let at = self.place();
        let function = tile::function::<S>(plan.size);
        let narrow = if tile::has_narrow(S::LANES, plan.size.0) { (plan.size.0, 1) } else { plan.size };
        let bias = self.slot;
        let scratch = bias.wrapping_add(plan.lists_len());
        let band_copy = scratch.wrapping_add(plan.tile_len().next_multiple_of(16));
        let panels = band_copy.wrapping_add(plan.band_len());
        let (kg, depth) = (plan.shape.group_out(), plan.shape.depth());
        let first_channel = at.tiles.start * plan.size.0;
        let channels = (at.tiles.end * plan.size.0).min(kg) - first_channel;
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            let biased =
                plan.finish.biases(self.operands, at.group * kg + first_channel, channels, bias, plan.list_len());
            let lists = bias.wrapping_add(plan.list_len());
            if let Some(tile) = &plan.direct {
                let from = at.group * kg + first_channel;
                tile.fill_lists(self.operands, at.image, from, channels, lists, plan.list_len());
            }
            let bias = if biased { bias } else { std::ptr::null_mut() };
            let narrow = tile::function::<S>(narrow);
            let job = Job { unit: &self, at: &at, function, narrow, bias, lists, scratch };
            match &plan.source {
                Source::Single => {
                    job.fill_single(s, panels);
                    let step = plan.tile_places();
                    job.tiles(s, at.height * at.width, &[0], step, |tile| panels.wrapping_add(tile * step * depth));
                }
                Source::InPlace => {
                    let (places, width) = (at.height * at.width, plan.tile_places());
                    let strides = plan.x.strides;
                    let from = at.image * strides[0]
                        + at.group * plan.shape.group_in() * strides[1]
                        + at.z * strides[2]
                        + at.row * strides[3]
                        + at.column * strides[4];
                    let x = self.x.cast::<f32>().wrapping_add(from).cast_mut();
                    // Whole vectors would pass the end of the input, and what is computed of them has to be numbers.
                    let whole = places / width;
                    if places % width != 0 {
                        job.fill_rest(s, x, whole * width, places, panels);
                    }
                    let panel = |tile: usize| match tile < whole {
                        true => (x.wrapping_add(tile * width), strides[1]),
                        false => (panels, width),
                    };
                    job.tiles_at(s, places, &[0], panel);
                }
                Source::Flat(band) => {
                    band.fill(s, self.x, at.image, at.group, [at.z, at.row, at.column], band_copy, SLACK);
                    let places = (at.height - 1) * band.pitch + at.width;
                    let step = plan.tile_places();
                    job.tiles(s, places, &band.taps, band.channel, |tile| band_copy.wrapping_add(tile * step));
                }
                Source::Picked(band) => {
                    band.fill(s, self.x, at.image, at.group, [at.z, at.row, at.column], band_copy, SLACK);
                    let places = at.height * at.width;
                    let step = plan.tile_places();
                    if plan.channels_outer {
                        for tile in 0..places.div_ceil(step) {
                            job.pick(s, band, band_copy, tile, panels.wrapping_add(tile * step * depth));
                        }
                        job.tiles(s, places, &[0], step, |tile| panels.wrapping_add(tile * step * depth));
                    } else {
                        for tile in 0..places.div_ceil(step) {
                            job.pick(s, band, band_copy, tile, panels);
                            for rows in at.tiles.clone() {
                                job.tile(s, places, tile, rows, &[0], step, panels);
                            }
                        }
                    }
                }
            }
        }
    }
}

struct Job<'a, S> {
    unit: &'a Unit<'a, Gemm>,
    at: &'a Place,
    function: TileFn<S>,
    /// Tile function for a last tile whose places fit one vector.
    narrow: TileFn<S>,
    bias: *const f32,
    /// Operand lists of the steps in registers.
    lists: *const f32,
    scratch: *mut f32,
}

impl<S: Simd> Job<'_, S> {
    /// Computes all tiles of the unit; `panel` gives the address of a tile's places.
    #[inline(always)]
    unsafe fn tiles(&self, s: S, places: usize, taps: &[usize], step: usize, panel: impl Fn(usize) -> *mut f32) {
        // SAFETY: the caller's duty.
        unsafe { self.tiles_at(s, places, taps, |tile| (panel(tile), step)) };
    }

    /// Computes all tiles of the unit; `panel` gives the address of a tile's places, and the stride between channels.
    #[inline(always)]
    unsafe fn tiles_at(&self, s: S, places: usize, taps: &[usize], panel: impl Fn(usize) -> (*mut f32, usize)) {
        let tiles = places.div_ceil(self.unit.plan.tile_places());
        // SAFETY: the caller's duty.
        unsafe {
            if self.unit.plan.channels_outer {
                for rows in self.at.tiles.clone() {
                    for tile in 0..tiles {
                        let (panel, step) = panel(tile);
                        self.tile(s, places, tile, rows, taps, step, panel);
                    }
                }
            } else {
                for tile in 0..tiles {
                    let (panel, step) = panel(tile);
                    for rows in self.at.tiles.clone() {
                        self.tile(s, places, tile, rows, taps, step, panel);
                    }
                }
            }
        }
    }

    /// Computes a tile: its sums and their epilogue.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a tile is a place in two dimensions with its operands")]
    unsafe fn tile(&self, s: S, places: usize, tile: usize, rows: usize, taps: &[usize], step: usize, b: *const f32) {
        let (plan, at) = (self.unit.plan, self.at);
        let shape = &plan.shape;
        let (kg, ow) = (shape.group_out(), at.width);
        let pitch = match &plan.source {
            Source::Flat(band) => band.pitch,
            _ => ow,
        };
        let (height, vectors) = plan.size;
        let channel = rows * height;
        let panels = kg.div_ceil(height);
        let count = height.min(kg - channel);
        let begin = tile * plan.tile_places();
        let function = if places - begin <= S::LANES { self.narrow } else { self.function };
        let first_row = (rows - at.tiles.start) * height;
        let mut job = Tile {
            channels: shape.depth() / taps.len(),
            taps,
            step,
            a: self.unit.weights.wrapping_add((at.group * panels + rows) * height * shape.depth()),
            a_step: height,
            b,
            bias: if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(first_row) },
            clamp: plan.finish.clamp,
            to: [self.scratch; MAX_VECTORS],
            keep: [0; MAX_VECTORS],
            row: 0,
            rows: count,
            next: if plan.channels_outer && tile == 0 {
                self.unit.weights.wrapping_add((at.group * panels + rows + 1) * height * shape.depth())
            } else {
                std::ptr::null()
            },
            after: None,
        };
        let channel = at.group * kg + channel;
        if let Some(in_tile) = &plan.direct {
            let first_place = epilogue::offset(&plan.y, [at.image, channel, at.z, at.row, at.column]);
            let y = self.unit.y.cast::<f32>().wrapping_add(first_place);
            job.row = plan.y.strides[1];
            for v in 0..vectors {
                let lane = begin + v * S::LANES;
                job.to[v] = y.wrapping_add(lane / pitch * ow + (lane % pitch).min(ow));
                job.keep[v] = keep(lane, S::LANES, places, pitch, ow);
            }
            if !in_tile.is_empty() {
                let mut after = After {
                    steps: &plan.steps,
                    values: self.lists.wrapping_add(first_row),
                    summand: [std::ptr::null(); MAX_VECTORS],
                    row: 0,
                    clamp: in_tile.clamp,
                };
                if let Some((operand, layout)) = &in_tile.summand {
                    let first = epilogue::offset(layout, [at.image, channel, at.z, at.row, at.column]);
                    // SAFETY: the operands are those of the problem.
                    let from = unsafe { *self.unit.operands.add(*operand) }.cast::<f32>().wrapping_add(first + begin);
                    for v in 0..vectors {
                        after.summand[v] = from.wrapping_add(v * S::LANES);
                    }
                    after.row = layout.strides[1];
                }
                job.after = Some(after);
            }
            // SAFETY: kept lanes are output places of the band.
            unsafe { function(s, &job) };
            return;
        }
        let width = plan.tile_places();
        // Output places up to a lane: those between rows are dropped on the way to the scratch tile.
        let flat = |lane: usize| lane / pitch * ow + (lane % pitch).min(ow);
        let (from, end) = (flat(begin), flat((begin + width).min(places)));
        if from == end {
            return;
        }
        job.row = width;
        for v in 0..vectors {
            let lane = begin + v * S::LANES;
            job.to[v] = self.scratch.wrapping_add(flat(lane) - from);
            job.keep[v] = if pitch == ow { first(S::LANES) } else { keep(lane, S::LANES, places, pitch, ow) };
        }
        let place = [at.image, channel, at.z, at.row + from / ow, at.column + from % ow];
        // SAFETY: the scratch tile takes all rows; kept lanes are output places of the band.
        unsafe {
            plan.finish.prefetch(s, self.unit.operands, self.unit.y, place, count, end - from);
            function(s, &job);
            let block = Block { at: place, values: self.scratch, channels: count, pitch: width, count: end - from };
            plan.finish.run(s, self.unit.operands, self.unit.y, block);
        }
    }

    /// Copies the unit's input into panels.
    #[inline(always)]
    unsafe fn fill_single(&self, s: S, panels: *mut f32) {
        let (plan, at) = (self.unit.plan, self.at);
        let shape = &plan.shape;
        let cg = shape.group_in();
        let width = plan.tile_places();
        let strides = plan.x.strides;
        let ow = at.width;
        let element = plan.x.element;
        let (row_step, column_step) = (strides[3] * shape.stride[1], strides[4] * shape.stride[2]);
        // Rows that follow each other without a gap are one.
        let (rows, columns) =
            if at.height == 1 || row_step == ow * column_step { (1, at.height * ow) } else { (at.height, ow) };
        let start = at.image * strides[0]
            + at.group * cg * strides[1]
            + at.z * shape.stride[0] * strides[2]
            + at.row * row_step
            + at.column * column_step;
        for c in 0..cg {
            for i in 0..rows {
                let mut q = 0;
                while q < columns {
                    let place = i * columns + q;
                    let run = (width - place % width).min(columns - q);
                    let to = panels.wrapping_add((place / width * cg + c) * width + place % width);
                    let from = start + c * strides[1] + i * row_step + q * column_step;
                    // SAFETY: the run is inside of a panel's row and of an input row.
                    unsafe { copy(s, element, self.unit.x, from, column_step, to, run) };
                    q += run;
                }
            }
        }
        // Lanes past the places are computed and dropped: they have to be numbers, not what memory held.
        let tail = rows * columns % width;
        if tail != 0 {
            let last = rows * columns / width;
            for c in 0..cg {
                let to = panels.wrapping_add((last * cg + c) * width + tail);
                // SAFETY: the rest of the panel's row.
                unsafe { super::band::zero(s, to, width - tail) };
            }
        }
    }

    /// Copies the places from `begin` to `end` of every channel, fewer than a tile's, into a panel.
    #[inline(always)]
    unsafe fn fill_rest(&self, s: S, x: *const f32, begin: usize, end: usize, panel: *mut f32) {
        let plan = self.unit.plan;
        let width = plan.tile_places();
        for c in 0..plan.shape.group_in() {
            let to = panel.wrapping_add(c * width);
            let from = c * plan.x.strides[1] + begin;
            // SAFETY: the places are the input's, and the panel has room for a tile's.
            unsafe {
                copy(s, Element::F32, x.cast(), from, 1, to, end - begin);
                super::band::zero(s, to.wrapping_add(end - begin), width - (end - begin));
            }
        }
    }

    /// Picks the places of a tile out of the band, for every channel and tap.
    #[inline(always)]
    unsafe fn pick(&self, s: S, band: &Band, copy: *const f32, tile: usize, panel: *mut f32) {
        let plan = self.unit.plan;
        let ow = self.at.width;
        let places = self.at.height * ow;
        let begin = tile * plan.tile_places();
        let vectors = plan.size.1;
        let picks: [Pick; MAX_VECTORS] = std::array::from_fn(|v| {
            let from = (begin + v * S::LANES).min(places - 1);
            let to = (begin + (v + 1) * S::LANES).min(places).max(from + 1);
            let mut offsets = [0; MAX_LANES];
            for (offset, place) in offsets.iter_mut().zip(from..to) {
                *offset = place / ow * band.pitch + place % ow;
            }
            Pick::new(&offsets[..to - from])
        });
        let mut to = panel;
        for c in 0..plan.shape.group_in() {
            let from = copy.wrapping_add(c * band.channel);
            for tap in &band.taps {
                for (v, pick) in picks[..vectors].iter().enumerate() {
                    // SAFETY: picked places are in the band, whose slack takes whole vectors past its end.
                    unsafe { s.store(to.wrapping_add(v * S::LANES), s.pick(from.wrapping_add(*tap), pick)) };
                }
                to = to.wrapping_add(plan.tile_places());
            }
        }
    }
}

/// Lane mask of the output places in a vector at flat place `lane`.
#[inline(always)]
fn keep(lane: usize, lanes: usize, places: usize, pitch: usize, width: usize) -> u32 {
    let end = places.saturating_sub(lane).min(lanes);
    let mut bits = first(end);
    if pitch != width {
        // Gaps are `pitch - width` wide, from `width` on in each row.
        let mut gap = (lane / pitch * pitch + width) as isize - lane as isize;
        while gap < end as isize {
            let to = gap + (pitch - width) as isize;
            if to > 0 {
                bits &= !(first(to.min(end as isize) as usize) & !first(gap.max(0) as usize));
            }
            gap += pitch as isize;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_lanes_are_those_inside_of_the_rows() {
        for (pitch, width) in [(5, 3), (30, 28), (7, 7), (9, 1), (58, 56)] {
            for places in [1, 17, 40, 100] {
                for lane in 0..90 {
                    for lanes in [8, 16] {
                        let want = (0..lanes)
                            .filter(|i| lane + i < places && (lane + i) % pitch < width)
                            .fold(0, |bits, i| bits | 1u32 << i);
                        assert_eq!(keep(lane, lanes, places, pitch, width), want, "{pitch} {width} {places} {lane}");
                    }
                }
            }
        }
    }
}
