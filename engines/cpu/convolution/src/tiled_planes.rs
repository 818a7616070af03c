//! Pointwise convolutions of images whose channels are apart as products on matrix tiles: rows are output channels, columns places.
//!
//! So neither input nor output is transposed: rows of two input channels are paired in the right side's tiles, and rows of sums are
//! runs of the output. A unit of work is some places of a plane of an image and group, for some panels of output channels; its input
//! is copied in bf16 terms, all that a pair of tiles of columns is multiplied with in one run.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{copy, is_even, load_lanes, place_distance, store_lanes};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::pack::TileForm;
use super::problem::{Element, Layout, Problem, Shape};
use super::tile;
use super::tiled::{WEIGHT_BYTES, beside_products, pair_cycles, product_cycles, terms_of};
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};
use hipdnn_cpu_simd::tiles::{
    DEPTH, Multiplier, Pairs, Range, Splitting, TILE, TILE_BYTES, TileProduct, Values, split_pair,
};

/// Places of a pair of tiles of columns.
const PAIR: usize = 2 * TILE;
/// Bytes of copied input and of a panel of weights that stay in the second-level cache.
const CACHE_BYTES: usize = 1 << 20;
/// Minimum number of products of a sum, of output channels and of places that tiles are worth: else most of a tile is in vain.
const LEAST: [usize; 3] = [12, 12, 8];

#[derive(Debug)]
pub(super) struct TiledPlanes {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp that is computed in registers, if the output's places lie side by side.
    direct: Option<InTile>,
    steps: Vec<tile::Step>,
    /// Terms of a value of the input and of the weights.
    terms: [usize; 2],
    /// True if the places of a plane are one run of the input.
    flat: bool,
    /// Places of a unit, and number of units of a plane.
    places: usize,
    parts: usize,
    /// Tiles of rows of a panel.
    rows: usize,
    /// Panels of channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl TiledPlanes {
    /// Makes the plan for a problem, if tiles are worth it.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<TiledPlanes> {
        let shape = &problem.shape;
        let [od, oh, ow] = shape.output;
        let (cg, kg, all) = (shape.group_in(), shape.group_out(), oh * ow);
        let one_tap = shape.kernel == [1; 3] && shape.pad_before == [0; 3];
        let inside = (0..3).all(|axis| (shape.output[axis] - 1) * shape.stride[axis] < shape.input[axis]);
        if !one_tap || !inside || [cg, kg, all].iter().zip(LEAST).any(|(size, least)| *size < least) {
            return None;
        }
        let terms = terms_of(problem.x.element, problem.w.element);
        let [of_image, of_weights] = terms;
        let epilogue = Epilogue::new(problem);
        let beside = |layout: &Layout| is_even(layout, [oh, ow]) && place_distance(layout, ow) == 1;
        // Calls for few vectors take longer than one for a block of results in scratch memory.
        let direct = epilogue.with_summand(beside).filter(|direct| beside(&problem.y) && !direct.calls());
        let same = shape.stride == [1; 3] && shape.input == shape.output;
        let flat = same && beside(&problem.x);
        let rows = if kg > TILE { 2 } else { 1 };
        let panels = kg.div_ceil(rows * TILE);
        let blocks = cg.div_ceil(DEPTH);
        let panel_bytes = blocks * of_weights * rows * TILE_BYTES;
        let mut best: Option<TiledPlanes> = None;
        let splits = (1..=16).chain([20, 24, 28, 32, 48, 56, 64, 96, 112, 128, 192, 224, 256, 512, 1024]);
        for parts in splits {
            let places = match flat {
                true => all.div_ceil(parts).next_multiple_of(PAIR),
                false => oh.div_ceil(parts) * ow,
            };
            let least = if flat { PAIR } else { ow };
            let image_bytes = places.next_multiple_of(PAIR) * blocks * DEPTH * of_image * 2;
            if image_bytes + panel_bytes > CACHE_BYTES && places > least {
                continue;
            }
            let parts = all.div_ceil(places);
            for chunks in [1, 2, 3, 4, 6, 8, 12, 16] {
                if chunks > panels || chunks > 4 * threads {
                    break;
                }
                let chunk = panels.div_ceil(chunks);
                let chunks = panels.div_ceil(chunk);
                let units = shape.batch * shape.groups * od * parts * chunks;
                let beside = beside_products(isa);
                let stage = image_bytes as f64 / 2.0 / of_image as f64 * beside * (0.3 + 0.2 * of_image as f64);
                let pairs = places.min(all).div_ceil(PAIR);
                let after = beside * if direct.is_some() { 0.5 } else { 1.0 } * (rows * TILE * PAIR) as f64;
                let products = blocks as f64 * product_cycles(isa, terms, 2 * rows);
                let product = pairs as f64 * (products + pair_cycles(isa) + after);
                let unit = 800.0 + stage + chunk as f64 * (product + panel_bytes as f64 / WEIGHT_BYTES);
                let cost = unit * units.div_ceil(threads) as f64;
                if best.as_ref().is_some_and(|best| best.cost <= cost) {
                    continue;
                }
                best = Some(TiledPlanes {
                    shape: shape.clone(),
                    x: problem.x,
                    y: problem.y,
                    isa,
                    finish: epilogue.clone(),
                    direct: direct.clone(),
                    steps: epilogue::steps(direct.as_ref(), chunk * rows * TILE),
                    terms,
                    flat,
                    places,
                    parts,
                    rows,
                    chunk,
                    chunks,
                    cost,
                });
            }
        }
        best
    }

    /// Form of the weights.
    pub(super) fn form(&self) -> TileForm {
        TileForm { left: true, columns: self.rows, terms: self.terms[1], merged: false }
    }

    /// Size of a panel of weights, in `f32` values: as of [`super::pack::Packer::tiles`].
    fn panel_len(&self) -> usize {
        self.blocks() * self.terms[1] * self.rows * TILE_BYTES / 4 + TILE
    }

    /// Blocks of input channels.
    fn blocks(&self) -> usize {
        self.shape.group_in().div_ceil(DEPTH)
    }

    /// Bytes of the copied input of a pair of tiles.
    fn pair_bytes(&self) -> usize {
        self.blocks() * self.terms[0] * 2 * TILE_BYTES
    }

    /// Output channels of a panel.
    fn panel(&self) -> usize {
        self.rows * TILE
    }

    /// Values of a per-channel list of a unit.
    fn list_len(&self) -> usize {
        self.chunk * self.panel()
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.list_len())
    }

    /// Values of the rows of a block of channels, which are brought side by side unless they lie so.
    fn buffer_len(&self) -> usize {
        if self.flat { 0 } else { DEPTH * self.places.next_multiple_of(PAIR) }
    }
}

impl InUnits for TiledPlanes {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        let shape = &self.shape;
        shape.batch * shape.groups * shape.output[0] * self.parts * self.chunks
    }

    fn slot(&self) -> usize {
        self.lists_len().next_multiple_of(16)
            + PAIR * PAIR
            + self.places.div_ceil(PAIR) * self.pair_bytes() / 4
            + self.buffer_len()
    }
}

/// Coordinates of a unit, and its parts of the slot.
struct Place {
    image: usize,
    group: usize,
    z: usize,
    /// Panels of output channels.
    panels: std::ops::Range<usize>,
    /// First place of the output plane, and number of them.
    first: usize,
    count: usize,
    lists: *mut f32,
    sums: *mut f32,
    copied: *mut f32,
    buffer: *mut f32,
}

impl Kernel for Unit<'_, TiledPlanes> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (part, rest) = (rest % plan.parts, rest / plan.parts);
        let (z, rest) = (rest % shape.output[0], rest / shape.output[0]);
        let (kg, width) = (shape.group_out(), plan.panel());
        let panels = kg.div_ceil(width);
        let lists = self.slot;
        let sums = lists.wrapping_add(plan.lists_len().next_multiple_of(16));
        let copied = sums.wrapping_add(PAIR * PAIR);
        let first = part * plan.places;
        let at = Place {
            image: rest / shape.groups,
            group: rest % shape.groups,
            z,
            panels: chunk * plan.chunk..((chunk + 1) * plan.chunk).min(panels),
            first,
            count: plan.places.min(shape.output[1] * shape.output[2] - first),
            lists,
            sums,
            copied,
            buffer: copied.wrapping_add(plan.places.div_ceil(PAIR) * plan.pair_bytes() / 4),
        };
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            let first = at.panels.start * width;
            let (count, channel) = ((at.panels.end * width).min(kg) - first, at.group * kg + first);
            let (direct, len) = (plan.direct.as_ref(), plan.list_len());
            plan.finish.fill_lists(direct, self.operands, at.image, channel, count, lists, len);
            let image = CopyTerms { unit: &self, at: &at }.split_by_terms(s, plan.terms[0]);
            let multiplier = Multiplier::new(plan.isa);
            let no_offset = 0;
            let mut panel = at.panels.start;
            while panel < at.panels.end {
                let weights = self.weights.wrapping_add((at.group * panels + panel) * plan.panel_len());
                let kind = TileForm::kind(weights, plan.panel_len());
                let mut place = 0;
                while place < at.count {
                    let job = TileProduct {
                        taps: &raw const no_offset,
                        count: 1,
                        depth: shape.group_in(),
                        steps: plan.blocks(),
                        a: weights.cast(),
                        row: 2 * DEPTH,
                        second: TILE_BYTES,
                        term: plan.rows * TILE_BYTES,
                        step: plan.terms[1] * plan.rows * TILE_BYTES,
                        order: Pairs::Halves,
                        b: at.copied.cast::<u8>().wrapping_add(place / PAIR * plan.pair_bytes()),
                        c: at.sums,
                        to: 4 * PAIR,
                    };
                    let [of_image, of_weights] = plan.terms;
                    multiplier.run(s, &job, [of_weights, of_image], [kind, image], (plan.rows, 2));
                    self.finish(s, &at, panel, place);
                    place += PAIR;
                }
                panel += 1;
            }
        }
    }
}

impl Unit<'_, TiledPlanes> {
    /// Finishes the sums of a pair of tiles of columns, from `place` of the unit on.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, at: &Place, panel: usize, place: usize) {
        let plan = self.plan;
        let (kg, width) = (plan.shape.group_out(), plan.panel());
        let keep = (kg - panel * width).min(width);
        let mut channel = 0;
        // SAFETY: the caller's duty: sums of a panel's channels and a pair of tiles' places, and their places in the output.
        unsafe {
            while channel < keep {
                match (keep - channel, S::LANES) {
                    (4.., 16) => self.some_channels::<S, 4, 2>(s, at, panel, channel, place),
                    (4.., _) => self.some_channels::<S, 4, 4>(s, at, panel, channel, place),
                    (_, 16) => self.some_channels::<S, 1, 2>(s, at, panel, channel, place),
                    _ => self.some_channels::<S, 1, 4>(s, at, panel, channel, place),
                }
                channel += if keep - channel >= 4 { 4 } else { 1 };
            }
            if plan.direct.is_none() {
                let (first, ow) = (at.first + place, plan.shape.output[2]);
                let corner = [at.image, at.group * kg + panel * width, at.z, first / ow, first % ow];
                let count = PAIR.min(at.count - place);
                let block = Block { at: corner, values: at.sums, channels: keep, pitch: PAIR, count };
                plan.finish.run(s, self.operands, self.y, block);
            }
        }
    }

    /// Adds biases and clamps; what can be computed in registers is stored, the rest put back.
    #[inline(always)]
    unsafe fn some_channels<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        at: &Place,
        panel: usize,
        channel: usize,
        place: usize,
    ) {
        let plan = self.plan;
        let (kg, ow, width) = (plan.shape.group_out(), plan.shape.output[2], plan.panel());
        let list = at.lists.wrapping_add((panel - at.panels.start) * width + channel);
        let from = at.sums.wrapping_add(channel * PAIR);
        let corner = [at.image, at.group * kg + panel * width + channel, at.z, 0, 0];
        let first = at.first + place;
        // SAFETY: the caller's duty; lists have a value for each channel of a panel.
        unsafe {
            let mut sums = [[s.splat(0.0); V]; R];
            for r in 0..R {
                let bias = s.splat(*list.add(r));
                for v in 0..V {
                    sums[r][v] = s.add(s.load(from.add(r * PAIR + v * S::LANES)), bias);
                }
            }
            tile::apply(s, &[], std::ptr::null(), plan.finish.clamp, &mut sums);
            let Some(tile) = &plan.direct else {
                for r in 0..R {
                    for v in 0..V {
                        s.store(from.add(r * PAIR + v * S::LANES), sums[r][v]);
                    }
                }
                return;
            };
            let lanes = |v: usize| (at.count - place).saturating_sub(v * S::LANES).min(S::LANES);
            if !tile.is_empty() {
                tile::apply(s, &plan.steps, list.add(plan.list_len()), tile.clamp_before_summand(), &mut sums);
                if let Some((operand, layout)) = &tile.summand {
                    let p = *self.operands.add(*operand);
                    let from = layout.offset(corner) + first * place_distance(layout, ow);
                    for r in 0..R {
                        for v in 0..V {
                            let from = from + r * layout.strides[1] + v * S::LANES;
                            sums[r][v] = s.add(sums[r][v], load_lanes(s, layout.element, p, from, lanes(v)));
                        }
                    }
                    tile::apply(s, &[], std::ptr::null(), tile.clamp, &mut sums);
                }
            }
            let to = plan.y.offset(corner) + first;
            for r in 0..R {
                for v in 0..V {
                    if lanes(v) > 0 {
                        let to = to + r * plan.y.strides[1] + v * S::LANES;
                        store_lanes(s, plan.y.element, self.y, to, sums[r][v], lanes(v));
                    }
                }
            }
        }
    }
}

/// Splitting of a unit's input.
#[derive(Clone, Copy)]
struct CopyTerms<'a> {
    unit: &'a Unit<'a, TiledPlanes>,
    at: &'a Place,
}

impl Splitting for CopyTerms<'_> {
    #[inline(always)]
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values {
        let (unit, at) = (self.unit, self.at);
        let plan = unit.plan;
        let shape = &plan.shape;
        let (cg, ow, strides, element) = (shape.group_in(), shape.output[2], plan.x.strides, plan.x.element);
        let plane = at.image * strides[0] + at.group * cg * strides[1] + at.z * shape.stride[0] * strides[2];
        let mut range = Range::new(s);
        let pitch = plan.places.next_multiple_of(PAIR);
        // SAFETY: channels below `cg`, places of the input's plane, of which the unit has `count`, and the slot's room for their terms.
        unsafe {
            for block in 0..plan.blocks() {
                if !plan.flat {
                    for channel in 0..DEPTH.min(cg - block * DEPTH) {
                        let plane = plane + (block * DEPTH + channel) * strides[1];
                        for row in 0..at.count / ow {
                            let line = (at.first / ow + row) * shape.stride[1];
                            let to = at.buffer.add(channel * pitch + row * ow);
                            let step = shape.stride[2] * strides[4];
                            copy(s, element, unit.x, plane + line * strides[3], step, to, ow);
                        }
                    }
                }
                // A pair of tiles before the next one: what is written lies in few pages then.
                let mut first = 0;
                while first < at.count {
                    // The last term comes first.
                    let tiles = (first / PAIR * plan.blocks() + block) * T * 2 + (T - 1) * 2;
                    let to = at.copied.cast::<u8>().add(tiles * TILE_BYTES).cast::<u16>();
                    for pair in 0..TILE {
                        let channels = [block * DEPTH + pair, block * DEPTH + pair + TILE];
                        let mut place = 0;
                        while place < PAIR {
                            let lanes = S::LANES.min(at.count.saturating_sub(first + place));
                            let mut values = [s.splat(0.0); 2];
                            for (half, value) in values.iter_mut().enumerate() {
                                if channels[half] < cg && lanes > 0 {
                                    *value = if plan.flat {
                                        let from = plane + channels[half] * strides[1] + at.first + first + place;
                                        load_lanes(s, element, unit.x, from, lanes)
                                    } else {
                                        let from = (pair + half * TILE) * pitch + first + place;
                                        load_lanes(s, Element::F32, at.buffer.cast(), from, lanes)
                                    };
                                }
                            }
                            let to = to.add(place / TILE * TILE_BYTES / 2 + pair * DEPTH + place % TILE * 2);
                            let term = (TILE_BYTES as isize).wrapping_neg();
                            split_pair::<S, T, HOW>(s, &mut range, values, to, term);
                            place += S::LANES;
                        }
                    }
                    first += PAIR;
                }
            }
        }
        range.kind(s)
    }
}
