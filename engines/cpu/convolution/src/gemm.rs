//! Implicit matrix product: vectors run over output places, weights are broadcast.
//!
//! A unit of work is a band of output rows (or a part of one) of an image and group, for some of the output channels.
//! Its input is copied once into `f32` scratch, padded (if its places don't lie as they should already); then every
//! tile of (channels × places) is summed over the whole depth in registers and finished on the way out, so nothing is
//! accumulated in memory.

use super::band::{Band, copy};
use super::epilogue::{self, Block, Epilogue, InTile, Tail};
use super::problem::{Element, Problem, Shape};
use super::tile::{self, After, MAX_VECTORS, Tile, TileFn};
use super::units::{InUnits, Unit};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Pick, Simd, first};

/// Bytes of a band's copy, so that it stays in the second-level cache beside the weights.
const BAND_BYTES: usize = 768 << 10;
/// Bytes of weights that stay in that cache while places are walked.
const WEIGHTS_BYTES: usize = 1 << 20;
/// Bytes of the places of a block, which stay in the second-level cache while tiles of channels are walked: the weights of
/// a tile are in the first-level cache meanwhile, and rows of the result are written in runs.
const BLOCK_BYTES: usize = 128 << 10;
/// Bytes of a block's places where they lie in the band itself, and maximum number of its tiles.
const FLAT_BYTES: usize = 16 << 10;
const BETWEEN: usize = 32;
/// Number of channels whose places are copied to a panel before those of the next panel.
const FILLED: usize = 16;
/// Values past the end of a buffer that whole vectors may read.
const SLACK: usize = (MAX_VECTORS + 2) * MAX_LANES;

#[derive(Debug)]
pub(super) struct Gemm {
    shape: Shape,
    x: super::Layout,
    y: super::Layout,
    isa: Isa,
    source: Source,
    /// Copy of a unit's input, for sources that have one.
    band: Option<Band>,
    finish: Epilogue,
    /// Epilogue behind bias and clamp that the kernel computes in registers, if it stores straight to the output.
    direct: Option<InTile>,
    /// Steps of that epilogue.
    steps: Vec<tile::Step>,
    /// Activation behind it, of results in the output.
    tail: Option<Activation>,
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
    /// Tiles of a block of places.
    run: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

struct Choice {
    cost: f64,
    source: Source,
    size: (usize, usize),
    height: usize,
    width: usize,
    chunks: usize,
}

/// Source of a tile's input places: the packing of operand B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// One tap and no padding: panels of (input channel × places of a tile), copied straight from the input.
    Single,
    /// Places of the padded band side by side, including those between its rows, which are dropped at the store.
    Flat,
    /// Panels of (input channel and tap × places of a tile) picked from the padded band.
    Picked,
    /// One tap, stride 1 and no padding: the input itself. The last tile is copied where it is not a whole one, and all of them
    /// where the input's address would have vectors cross the ends of cache lines.
    InPlace,
    /// Places of the padded band side by side, in tiles that begin with its rows, and end with them.
    Rows,
}

impl Source {
    /// All of them; a shape of a single tap has those without a band, any other those with one.
    pub(super) const ALL: &'static [Source] =
        &[Source::Single, Source::Flat, Source::Picked, Source::InPlace, Source::Rows];

    /// Factor of the estimate, a fit to measured times.
    fn fit(self, lanes: usize) -> f64 {
        match (self, lanes) {
            (Source::Single, _) => 1.03,
            (Source::Flat, 8) => 1.35,
            (Source::Flat, _) => 1.15,
            (Source::Picked, _) => 1.25,
            _ => 1.0,
        }
    }

    /// True if the input is copied to a band.
    fn has_band(self) -> bool {
        self.is_in_band() || self == Source::Picked
    }

    /// True if tiles read the band, in which their places begin anywhere.
    fn is_in_band(self) -> bool {
        matches!(self, Source::Flat | Source::Rows)
    }

    /// Lines of tiles of a band's rows, `pitch` apart, and places of a line.
    fn lines(self, (height, width): (usize, usize), pitch: usize) -> (usize, usize) {
        match self {
            Source::Flat => (1, (height - 1) * pitch + width),
            Source::Rows => (height, width),
            _ => (1, height * width),
        }
    }
}

/// Estimated cycles of a tile that is called by itself, beside its sums.
const TILE: f64 = 40.0;
/// Estimated cycles of a tile of a strip, of a strip, and of each input channel of such a tile's sums of several taps.
const TILE_OF_STRIP: f64 = 10.0;
const STRIP: f64 = 80.0;
const CHANNEL: f64 = 6.0;

impl Gemm {
    /// Best plan with one of the sources, if the shape has any of them.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa, sources: &[Source]) -> Option<Gemm> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let lanes = isa.lanes();
        let single = shape.taps() == 1
            && (0..3).all(|i| shape.pad_before[i] == 0 && (shape.output[i] - 1) * shape.stride[i] < shape.input[i]);
        // Channels that are so far apart share two sets of the first-level cache, those of the result as well.
        let in_place = single && problem.is_matrix() && !problem.x.strides[1].is_multiple_of(512);
        let (kg, depth) = (shape.group_out(), shape.depth());
        let finish = Epilogue::new(problem);
        let strides = problem.y.strides;
        let dense = (ow == 1 || strides[4] == 1) && (oh == 1 || strides[3] == ow);
        let in_tile = finish.in_tile().filter(|_| dense);
        // Values of 16 bits are rounded in scratch memory.
        let store = if problem.y.element == Element::F32 { 2.5 } else { 10.5 };
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
            let serves = |source: &Source| match source {
                Source::Single => single,
                Source::InPlace => in_place,
                Source::Flat | Source::Picked | Source::Rows => !single,
            };
            for source in sources.iter().copied().filter(serves) {
                // Of a single tap's input no more than a block is copied at a time.
                if 4 * band_len > BAND_BYTES && !last && !single {
                    continue;
                }
                let (lines, places) = source.lines((height, width), band.pitch);
                for size in tile::sizes(lanes) {
                    let tiles = lines as f64 * tiles(places, lanes, *size);
                    let step = match source {
                        Source::InPlace => place_cycles(*size, problem.x.strides[1], depth, lanes),
                        _ => tile::step_cycles(*size, source.is_in_band()),
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
                            Source::InPlace => places % (size.1 * lanes) * depth,
                            _ => band_len,
                        };
                        // A copy has the phases of columns that a tap looks at.
                        let value = match shape.stride[2].min(shape.kernel[2].max(2)) {
                            1 if single => 4.4,
                            // Every other column of a row is less than half of what is read, and a row is a vector at least.
                            _ if single => 20.0 * width.next_multiple_of(lanes) as f64 / width as f64,
                            1 => 2.0,
                            2 => 5.0,
                            // Columns go one by one to the rows of their phases; those of many share sets of the cache.
                            phases if phases < MANY_PHASES => 0.9 * lanes as f64,
                            _ => 2.3 * lanes as f64,
                        };
                        let widened = match problem.x.element {
                            Element::F32 => 0.0,
                            _ if single => 1.7,
                            _ => 8.0,
                        };
                        let fill = fill_len as f64 / lanes as f64 * (value + widened);
                        let picked = if source == Source::Picked { depth * size.1 } else { 0 };
                        let pick = tiles * picked as f64 * 3.5;
                        // Tiles of a strip are called together, unless they go through scratch memory.
                        let (of_tile, of_strip) = match source {
                            Source::Rows if in_tile.is_some() => {
                                let channels = if shape.taps() > 1 { shape.group_in() as f64 } else { 0.0 };
                                (TILE_OF_STRIP + CHANNEL * channels, STRIP)
                            }
                            _ => (TILE, 0.0),
                        };
                        let sums = depth as f64 * step + (size.0 * size.1) as f64 * store + of_tile;
                        let compute = chunk as f64 * (tiles * sums + lines as f64 * of_strip);
                        let weights = chunk * size.0 * depth * 4;
                        let stream = match kg * depth * 4 > WEIGHTS_BYTES {
                            true => weights as f64 / 8.0 * (tiles / run(shape, source, size.1 * lanes, tiles)).ceil(),
                            false => 0.0,
                        };
                        let unit = 500.0 + fill + pick + compute + stream;
                        let cost = source.fit(lanes) * unit * units.div_ceil(threads) as f64;
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
        // Places between rows are dropped at the store: a summand does not have them.
        let mut direct = in_tile.filter(|tile| choice.source != Source::Flat || tile.summand.is_none());
        let tail = direct.as_mut().and_then(InTile::take_tail);
        let band = Band::new(shape, &problem.x, choice.height, choice.width);
        let (lines, places) = choice.source.lines((choice.height, choice.width), band.pitch);
        let tiles = lines as f64 * tiles(places, lanes, choice.size);
        Some(Gemm {
            x: problem.x,
            y: problem.y,
            isa,
            source: choice.source,
            band: choice.source.has_band().then_some(band),
            steps: epilogue::steps(direct.as_ref(), list_len(chunk, choice.size.0)),
            direct,
            tail,
            finish,
            size: choice.size,
            height: choice.height,
            width: choice.width,
            bands: (oh.div_ceil(choice.height), ow.div_ceil(choice.width)),
            chunk,
            chunks: row_tiles.div_ceil(chunk),
            run: run(shape, choice.source, choice.size.1 * lanes, tiles) as usize,
            cost: choice.cost,
            shape: shape.clone(),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.source {
            Source::Single => "gemm",
            Source::Flat => "implicit gemm, flat",
            Source::Rows => "implicit gemm, rows",
            Source::Picked => "implicit gemm, picked",
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

    /// Values of a block's packed panels, picked or copied.
    fn panels_len(&self) -> usize {
        let tiles = match self.source {
            Source::Flat | Source::Rows => 0,
            // Places that do not fill a tile.
            Source::InPlace if !self.copies_unaligned() => 1,
            Source::Single | Source::InPlace | Source::Picked => self.run,
        };
        (tiles * self.tile_places() * self.shape.depth() + SLACK).next_multiple_of(16)
    }

    /// True if an input in place is copied where its address is not a vector's: its channels are vectors apart, so that none of
    /// them is aligned. Sixteen lanes were not measured.
    fn copies_unaligned(&self) -> bool {
        self.isa.lanes() == 8 && self.x.strides[1].is_multiple_of(8)
    }

    fn band_len(&self) -> usize {
        self.band.as_ref().map_or(0, |band| band.len(SLACK))
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

/// Number of tiles of a block among `tiles` of `width` places: blocks are as long as their bytes allow, and even.
fn run(shape: &Shape, source: Source, width: usize, tiles: f64) -> f64 {
    if source.is_in_band() {
        // Weights that stay in a cache come from there as fast as they are used: blocks are for the output's sake, whose
        // rows get longer runs. Their input stays in the first-level cache.
        let weights = 4 * shape.group_out() * shape.depth();
        let most = match weights > WEIGHTS_BYTES {
            true => BETWEEN,
            false => (FLAT_BYTES / (4 * width * shape.group_in())).clamp(1, BETWEEN),
        };
        return tiles.ceil().clamp(1.0, most as f64);
    }
    let most = (BLOCK_BYTES / (4 * width * shape.depth())).max(1) as f64;
    let blocks = (tiles / most).ceil().max(1.0);
    (tiles / blocks).ceil().max(1.0)
}

/// Number of column phases of a copy from which on their rows don't stay in the first-level cache while it is written.
const MANY_PHASES: usize = 128;

/// Cycles of a step of the sum where the input is read in place, its channels `stride` apart: tiles of fewer rows leave more
/// time for fetches from outer cache levels.
fn place_cycles((rows, vectors): (usize, usize), stride: usize, depth: usize, lanes: usize) -> f64 {
    let loads = rows as f64 + vectors as f64 * if stride.is_multiple_of(lanes) { 1.0 } else { 2.0 };
    // Of two vectors of eight lanes one crosses the end of a line.
    let crossing = if lanes == 8 && !stride.is_multiple_of(lanes) { 0.4 * vectors as f64 } else { 0.0 };
    // What eight lanes leave of the time of lines on their way.
    let arriving = if lanes == 8 { 0.3 } else { 0.0 };
    let fetches = 0.015 * loads + arriving + crossing + if evict_each_other(stride, depth, lanes) { 0.7 } else { 0.0 };
    ((rows * vectors) as f64 / 2.0).max(loads / 2.0).max(4.0) + fetches
}

/// True if the first-level cache does not have the lines of so many channels at the same time, `stride` apart, since they
/// share a few of its sets, or since two vectors of eight lanes lie in two lines where channels begin anywhere.
fn evict_each_other(stride: usize, depth: usize, lanes: usize) -> bool {
    const LINE: usize = 16;
    const SETS: usize = 64;
    const WAYS: usize = 8;
    let (shared, lines) = match stride.is_multiple_of(LINE) {
        true => (SETS.min(1 << (stride / LINE).trailing_zeros().min(31)), 1),
        false => (1, if lanes == 8 && !stride.is_multiple_of(lanes) { 2 } else { 1 }),
    };
    depth * lines > WAYS * (SETS / shared)
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
            let (x, strides) = (self.x.cast::<f32>().cast_mut(), plan.x.strides);
            let copied = match plan.source {
                Source::Single => true,
                Source::InPlace => plan.copies_unaligned() && !x.addr().is_multiple_of(4 * S::LANES),
                Source::Flat | Source::Rows | Source::Picked => false,
            };
            let width = plan.tile_places();
            let pitch = plan.band.as_ref().map_or(0, |band| band.pitch);
            let (lines, places) = plan.source.lines((at.height, at.width), pitch);
            // Address of a tile's places, distance to those of the next one, and stride between channels.
            let (mut b, mut next, mut step) = (panels, width * depth, width);
            let mut taps = &[0][..];
            if let Some(band) = &plan.band {
                band.fill(s, self.x, at.image, at.group, [at.z, at.row, at.column], band_copy, SLACK);
                if plan.source.is_in_band() {
                    (b, next, step, taps) = (band_copy, width, band.channel, &band.taps);
                }
            } else if !copied {
                let from = at.image * strides[0]
                    + at.group * plan.shape.group_in() * strides[1]
                    + at.z * strides[2]
                    + at.row * strides[3]
                    + at.column * strides[4];
                (b, next, step) = (x.wrapping_add(from), width, strides[1]);
                // Whole vectors would pass the end of the input, and what is computed of them has to be numbers.
                if places % width != 0 {
                    job.fill_rest(s, b, places / width * width, places, panels);
                }
            }
            let per_line = places.div_ceil(width);
            let tiles = lines * per_line;
            // Without gaps all tiles of a line but the last are alike.
            let (alike, last) = (job.lanes(places, 0), job.lanes(places, per_line - 1));
            // Whole tiles of a line are strips: none of them has gaps, nor goes through scratch memory.
            let strips = match (plan.source, &plan.direct) {
                (Source::Flat, _) | (_, None) => 0,
                _ => places / width,
            };
            let mut tail = Tail::new(plan.tail.as_ref());
            let mut between = [alike; BETWEEN];
            let mut begin = 0;
            while begin < tiles {
                let end = (begin + plan.run).min(tiles);
                // Panels are those of the block.
                let mut panel = 0;
                match (plan.source, &plan.band) {
                    (Source::Single | Source::InPlace, _) if copied => {
                        panel = begin;
                        job.fill_single(s, panels, begin * width, (end * width).min(places));
                    }
                    (Source::Picked, Some(band)) => {
                        panel = begin;
                        for tile in begin..end {
                            job.pick(s, band, band_copy, tile, panels.wrapping_add((tile - begin) * next));
                        }
                    }
                    (Source::Flat, _) => {
                        for tile in begin..end {
                            between[tile - begin] = job.lanes(places, tile);
                        }
                    }
                    _ => {}
                }
                for rows in at.tiles.clone() {
                    let mut row = job.row(rows, taps);
                    let (mut tile, mut from, mut to) = (begin, 0, 0);
                    while tile < end {
                        let (line, first) = if lines == 1 { (0, tile) } else { (tile / per_line, tile % per_line) };
                        let is_last = first + 1 == per_line;
                        let count = strips.saturating_sub(first).min(end - tile).max(1);
                        let mut column = Column {
                            count,
                            next,
                            first: tile == begin,
                            fetch: plan.source == Source::InPlace && !copied && rows == at.tiles.start,
                            narrow: is_last && places - first * width <= S::LANES,
                            b: b.wrapping_add(line * pitch + (first - panel) * next),
                            step,
                            begin: line * places + first * width,
                            end: line * places + ((first + count) * width).min(places),
                            lanes: if is_last { &last } else { &alike },
                        };
                        match plan.source {
                            Source::Flat => {
                                let lanes = &between[tile - begin];
                                (column.begin, column.end, column.lanes) = (lanes.begin, lanes.end, lanes);
                            }
                            Source::InPlace if !copied && is_last && places % width != 0 => {
                                (column.b, column.step) = (panels, width);
                            }
                            _ => {}
                        }
                        if tile == begin {
                            from = column.begin;
                        }
                        job.tile(s, &mut row, &column);
                        (tile, to) = (tile + count, column.end);
                    }
                    // Places of a block follow each other in the output.
                    if plan.tail.is_some() {
                        for i in 0..row.tile.rows {
                            tail.add(s, row.y.wrapping_add(from + i * row.tile.row), to - from);
                        }
                    }
                }
                begin = end;
            }
            tail.finish(s);
        }
    }
}

/// Destinations of the places of a tile.
#[derive(Clone, Copy)]
struct Lanes {
    /// Output places of the unit before the tile's and up to its end, gaps between rows left out; read of flat bands alone.
    begin: usize,
    end: usize,
    /// Offset of each vector's first place from the tile's, and lane mask of its places.
    to: [usize; MAX_VECTORS],
    keep: [u32; MAX_VECTORS],
}

/// Column of tiles, or of strips of tiles: the same places, whatever the channels.
struct Column<'a> {
    /// Number of tiles side by side, whole ones if there are several, and stride between their places.
    count: usize,
    next: usize,
    /// True for the first tile of a block.
    first: bool,
    /// True if the places are in the input and no tile of the block has read them.
    fetch: bool,
    /// True if the places fit one vector.
    narrow: bool,
    /// Address of the places, and stride between channels.
    b: *const f32,
    step: usize,
    /// Output places of the unit, gaps between rows left out.
    begin: usize,
    end: usize,
    lanes: &'a Lanes,
}

/// Row of tiles: the same output channels, whatever the places.
struct Row<'a> {
    /// Tile of the row, but for its places.
    tile: Tile<'a>,
    /// Factors of the next row.
    next: *const f32,
    /// First output channel.
    channel: usize,
    /// Address of the unit's first place in the output, and in the summand of the epilogue in registers; null where the
    /// tile is stored to scratch memory, and without a summand.
    y: *mut f32,
    summand: *const f32,
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
    /// Finds where the places of a tile go.
    #[inline(always)]
    fn lanes(&self, places: usize, tile: usize) -> Lanes {
        let (plan, ow) = (self.unit.plan, self.at.width);
        let begin = tile * plan.tile_places();
        let (mut to, mut keep) = ([0; MAX_VECTORS], [0; MAX_VECTORS]);
        match (plan.source, &plan.band) {
            // Places between rows are dropped on the way out.
            (Source::Flat, Some(band)) => {
                let pitch = band.pitch;
                let flat = |lane: usize| lane / pitch * ow + (lane % pitch).min(ow);
                let (from, end) = (flat(begin), flat((begin + plan.tile_places()).min(places)));
                for v in 0..plan.size.1 {
                    let lane = begin + v * S::LANES;
                    (to[v], keep[v]) = (flat(lane) - from, kept(lane, S::LANES, places, pitch, ow));
                }
                Lanes { begin: from, end, to, keep }
            }
            _ => {
                for v in 0..plan.size.1 {
                    // A scratch tile takes whole vectors.
                    let lanes = match plan.direct {
                        Some(_) => places.saturating_sub(begin + v * S::LANES).min(S::LANES),
                        None => S::LANES,
                    };
                    (to[v], keep[v]) = (v * S::LANES, first(lanes));
                }
                Lanes { begin, end: (begin + plan.tile_places()).min(places), to, keep }
            }
        }
    }

    /// Prepares the tiles of a row.
    #[inline(always)]
    unsafe fn row<'a>(&'a self, rows: usize, taps: &'a [usize]) -> Row<'a> {
        let (plan, at) = (self.unit.plan, self.at);
        let shape = &plan.shape;
        let (kg, depth) = (shape.group_out(), shape.depth());
        let height = plan.size.0;
        let first = rows * height;
        let panels = kg.div_ceil(height);
        let weights = self.unit.weights.wrapping_add((at.group * panels + rows) * height * depth);
        let first_row = (rows - at.tiles.start) * height;
        let channel = at.group * kg + first;
        let mut row = Row {
            tile: Tile {
                channels: if taps.len() == 1 { depth } else { shape.group_in() },
                taps,
                step: 0,
                a: weights,
                a_step: height,
                b: std::ptr::null(),
                count: 1,
                b_tile: 0,
                to_tile: plan.tile_places(),
                bias: if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(first_row) },
                clamp: plan.finish.clamp,
                to: [self.scratch; MAX_VECTORS],
                keep: [0; MAX_VECTORS],
                row: plan.tile_places(),
                rows: height.min(kg - first),
                fetch: false,
                next: std::ptr::null(),
                after: None,
            },
            next: weights.wrapping_add(height * depth),
            channel,
            y: std::ptr::null_mut(),
            summand: std::ptr::null(),
        };
        let Some(in_tile) = &plan.direct else { return row };
        let place = [at.image, channel, at.z, at.row, at.column];
        row.y = self.unit.y.cast::<f32>().wrapping_add(plan.y.offset(place));
        row.tile.row = plan.y.strides[1];
        if plan.steps.is_empty() && in_tile.summand.is_none() {
            // Two clamps are one.
            let within = |bound: f32| bound.max(in_tile.clamp.0).min(in_tile.clamp.1);
            row.tile.clamp = (within(row.tile.clamp.0), within(row.tile.clamp.1));
            return row;
        }
        let mut after = After {
            steps: &plan.steps,
            values: self.lists.wrapping_add(first_row),
            summand: [std::ptr::null(); MAX_VECTORS],
            row: 0,
            clamp: in_tile.clamp,
        };
        if let Some((operand, layout)) = &in_tile.summand {
            // SAFETY: the operands are those of the problem.
            let from = unsafe { *self.unit.operands.add(*operand) }.cast::<f32>();
            row.summand = from.wrapping_add(layout.offset(place));
            after.row = layout.strides[1];
        }
        row.tile.after = Some(after);
        row
    }

    /// Computes a tile: its sums and their epilogue.
    #[inline(always)]
    unsafe fn tile(&self, s: S, row: &mut Row<'_>, column: &Column<'_>) {
        let (plan, at) = (self.unit.plan, self.at);
        let function = if column.narrow { self.narrow } else { self.function };
        let tile = &mut row.tile;
        (tile.b, tile.step, tile.count, tile.b_tile) = (column.b, column.step, column.count, column.next);
        tile.keep = column.lanes.keep;
        tile.fetch = column.fetch;
        tile.next = if column.first { row.next } else { std::ptr::null() };
        let (from, end) = (column.begin, column.end);
        if plan.direct.is_some() {
            let offsets = column.lanes.to;
            for (to, offset) in tile.to.iter_mut().zip(offsets) {
                *to = row.y.wrapping_add(from + offset);
            }
            if let Some(after) = &mut tile.after
                && !row.summand.is_null()
            {
                for (summand, offset) in after.summand.iter_mut().zip(offsets) {
                    *summand = row.summand.wrapping_add(from + offset);
                }
            }
            // SAFETY: kept lanes are output places of the band.
            unsafe { function(s, tile) };
            return;
        }
        if from == end {
            return;
        }
        for (to, offset) in tile.to.iter_mut().zip(column.lanes.to) {
            *to = self.scratch.wrapping_add(offset);
        }
        let ow = at.width;
        let place = [at.image, row.channel, at.z, at.row + from / ow, at.column + from % ow];
        // SAFETY: the scratch tile takes all rows; kept lanes are output places of the band.
        unsafe {
            plan.finish.prefetch(s, self.unit.operands, self.unit.y, place, tile.rows, end - from);
            function(s, tile);
            let block =
                Block { at: place, values: self.scratch, channels: tile.rows, pitch: tile.row, count: end - from };
            plan.finish.run(s, self.unit.operands, self.unit.y, block);
        }
    }

    /// Copies the input at the places from `begin`, where a tile begins, to `end` into panels.
    #[inline(always)]
    unsafe fn fill_single(&self, s: S, panels: *mut f32, begin: usize, end: usize) {
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
        assert!(end <= rows * columns, "places are those of the unit");
        let (row, column) = (begin / columns, begin % columns);
        // Panels may be as far apart as lines of the caches that share a set, and rows of channels as well.
        for first in (0..cg).step_by(FILLED) {
            let (mut i, mut q, mut place) = (row, column, 0);
            while begin + place < end {
                let run = (width - place % width).min(columns - q).min(end - begin - place);
                let to = panels.wrapping_add((place / width * cg + first) * width + place % width);
                let from = start + first * strides[1] + i * row_step + q * column_step;
                // What is copied next: the places behind these, or the first ones of the next channels.
                let ahead = match begin + place + run < end {
                    true => from + run * column_step,
                    false => start + (first + FILLED) * strides[1] + row * row_step + column * column_step,
                };
                let ahead = self.unit.x.wrapping_add(ahead * element.bytes());
                for c in 0..FILLED.min(cg - first) {
                    // SAFETY: the run is inside of a panel's row and of an input row.
                    unsafe {
                        let to = to.wrapping_add(c * width);
                        s.prefetch(ahead.wrapping_add(c * strides[1] * element.bytes()).cast());
                        copy(s, element, self.unit.x, from + c * strides[1], column_step, to, run);
                    }
                }
                (q, place) = (q + run, place + run);
                if q == columns {
                    (i, q) = (i + 1, 0);
                }
            }
        }
        // Lanes past the places are computed and dropped: they have to be numbers, not what memory held.
        let tail = (end - begin) % width;
        if tail != 0 {
            let last = (end - begin) / width;
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
fn kept(lane: usize, lanes: usize, places: usize, pitch: usize, width: usize) -> u32 {
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
    fn channels_on_few_sets_evict_each_other() {
        // Of 24×160 places: 240 lines, so that every sixteenth of 64 sets is used; 32 lines fit.
        assert!(!evict_each_other(24 * 160, 32, 16) && evict_each_other(24 * 160, 33, 16));
        assert!(!evict_each_other(56 * 56, 128, 8) && evict_each_other(56 * 56, 129, 8));
        // An odd number of lines uses all sets, and so do channels that begin inside of lines.
        for places in [28 * 28, 35 * 35] {
            assert!(!evict_each_other(places, 512, 16) && evict_each_other(places, 513, 16));
        }
        // Two vectors of eight lanes that begin inside of a line end in the next one.
        assert!(!evict_each_other(35 * 35, 256, 8) && evict_each_other(35 * 35, 257, 8));
        assert!(!evict_each_other(28 * 28, 512, 8) && evict_each_other(28 * 28, 513, 8));
    }

    #[test]
    fn blocks_are_even_and_stay_in_the_cache() {
        for depth in [16, 100, 512, 9000] {
            let shape = Shape {
                batch: 1,
                groups: 1,
                in_channels: depth,
                out_channels: 64,
                input: [1, 60, 80],
                kernel: [1; 3],
                output: [1, 60, 80],
                stride: [1; 3],
                dilation: [1; 3],
                pad_before: [0; 3],
                flip: false,
            };
            for tiles in [1.0, 7.0, 300.0] {
                let run = run(&shape, Source::Single, 16, tiles);
                assert!(run == 1.0 || run * 64.0 * depth as f64 <= BLOCK_BYTES as f64, "{depth} {tiles}: {run}");
                let blocks = (tiles / run).ceil();
                assert!(run == 1.0 || blocks * run - tiles < blocks, "{depth} {tiles}: {run}");
            }
        }
    }

    #[test]
    fn kept_lanes_are_those_inside_of_the_rows() {
        for (pitch, width) in [(5, 3), (30, 28), (7, 7), (9, 1), (58, 56)] {
            for places in [1, 17, 40, 100] {
                for lane in 0..90 {
                    for lanes in [8, 16] {
                        let want = (0..lanes)
                            .filter(|i| lane + i < places && (lane + i) % pitch < width)
                            .fold(0, |bits, i| bits | 1u32 << i);
                        assert_eq!(kept(lane, lanes, places, pitch, width), want, "{pitch} {width} {places} {lane}");
                    }
                }
            }
        }
    }
}
