//! Implicit matrix product on matrix tiles: rows are places, columns output channels.
//!
//! A unit of work is some rows of a plane of an image and group, for some panels of output channels. Its input is copied in bf16
//! terms ([`SplitImage`]), in which a tap's tiles are read with one stride; weights are prepared so. Sums go through scratch
//! memory to the epilogue, in registers where the output's channels lie side by side, else transposed.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{is_even, load_lanes, place_distance, store_lanes};
use super::epilogue::{self, Block, Epilogue, InTile};
use super::pack::TileForm;
use super::problem::{Element, Layout, Problem, Shape};
use super::rounding::Places;
use super::row_tile::{RowAfter, clamp, finish};
use super::split_image::{At, Order, SplitImage};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};
use hipdnn_cpu_simd::tiles::{MAX_TERMS, Multiplier, TILE, TILE_BYTES, TileProduct};

/// Places of a pair of tiles of rows.
const PAIR: usize = 2 * TILE;
/// Bytes of copied input, and with a panel of weights, that stay in the second-level cache.
const IMAGE_BYTES: usize = 1 << 20;
const CACHE_BYTES: usize = 7 << 18;
/// Bytes of all weights of a unit that stay there.
const BLOCK_BYTES: usize = 3 << 18;
/// Minimum number of products of a sum, of output channels and of places that tiles are worth: else most of a tile is in vain.
const LEAST: [usize; 3] = [12, 8, 8];

#[derive(Debug)]
pub(super) struct Tiled {
    shape: Shape,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp that is computed in registers, if the output's channels or its places lie side by side.
    direct: Option<InTile>,
    steps: Vec<tile::Step>,
    /// True if the output's channels lie side by side: else tiles are transposed.
    channels_beside: bool,
    /// Terms of a value of the input and of the weights.
    terms: [usize; 2],
    image: SplitImage,
    taps: Vec<usize>,
    /// True if all places of a plane are one row of the copy.
    flat: bool,
    /// Rows of a unit, or places if they are flat, and number of units of a plane.
    rows: usize,
    parts: usize,
    /// True if all panels of a unit pass a pair of tiles of places before the next one, as they stay in the second-level cache, so that
    /// outputs whose channels lie side by side are written place by place.
    whole_rows: bool,
    /// Places that pass a panel of weights before the next one: a pair of tiles, or all.
    block: usize,
    /// Tiles of columns of a panel.
    columns: usize,
    /// Panels of channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl Tiled {
    /// Makes the plan for a problem, if tiles are worth it.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<Tiled> {
        let shape = &problem.shape;
        let [_, oh, ow] = shape.output;
        let kg = shape.group_out();
        let least = [shape.depth(), kg, oh * ow];
        if least.iter().zip(LEAST).any(|(size, least)| *size < least) {
            return None;
        }
        let terms = terms_of(problem.x.element, problem.w.element);
        let epilogue = Epilogue::new(problem);
        // The places of a tile have one distance.
        let even = |layout: &Layout| is_even(layout, [oh, ow]);
        let channels_beside = problem.y.strides[1] == 1;
        let beside = |layout: &Layout| {
            let distance = if channels_beside { layout.strides[1] } else { place_distance(layout, ow) };
            even(layout) && distance == 1
        };
        let direct = epilogue.with_summand(beside).filter(|_| beside(&problem.y));
        let pointwise = shape.kernel == [1; 3] && shape.stride == [1; 3] && shape.pad_before == [0; 3];
        let flat = pointwise && even(&problem.x) && shape.input == shape.output && shape.input[0] == 1;
        let columns = if kg > TILE { 2 } else { 1 };
        let panels = kg.div_ceil(columns * TILE);
        let mut best: Option<Tiled> = None;
        let orders = [Order::AcrossRows, Order::WithinRows];
        for order in if flat { &orders[..1] } else { &orders[..] } {
            let splits = (1..=16).chain([20, 24, 28, 32, 48, 56, 64, 96, 112, 128, 192, 224, 256, 512, 1024]);
            let mut before = 0;
            for parts in splits {
                let rows = match flat {
                    true => (oh * ow).div_ceil(parts).next_multiple_of(PAIR),
                    false => oh.div_ceil(parts),
                };
                if rows == before {
                    continue;
                }
                before = rows;
                let image = match flat {
                    true => SplitImage::new(&flattened(problem, rows), &flat_layout(problem), *order, 1, terms[0]),
                    false => SplitImage::new(shape, &problem.x, *order, rows, terms[0]),
                };
                let (height, all) = if flat { (1, oh * ow) } else { (rows, oh) };
                let parts = all.div_ceil(rows);
                let panel_bytes = image.taps * image.steps() * terms[1] * columns * TILE_BYTES;
                let image_bytes = 4 * image.len();
                let fits = image_bytes <= IMAGE_BYTES && image_bytes + panel_bytes <= CACHE_BYTES;
                if !fits && rows > if flat { PAIR } else { 1 } {
                    continue;
                }
                for chunks in [1, 2, 3, 4, 6, 8, 12, 16] {
                    if chunks > panels || chunks > 4 * threads {
                        break;
                    }
                    let chunk = panels.div_ceil(chunks);
                    let chunks = panels.div_ceil(chunk);
                    let units = shape.batch * shape.groups * shape.output[0] * parts * chunks;
                    let places = if flat { rows.min(all) } else { image.places(height) };
                    let apart = if problem.x.strides[1] == 1 { 0.0 } else { 0.3 };
                    let beside = beside_products(isa);
                    let value = beside * (0.3 + 0.2 * terms[0] as f64 + apart);
                    let stage = image.len() as f64 * 2.0 / terms[0] as f64 * value;
                    let tiles = places.div_ceil(TILE);
                    let (pairs, single) = ((tiles / 2) as f64, (tiles % 2) as f64);
                    let after = beside
                        * match (&direct, channels_beside) {
                            (Some(_), true) => 0.5,
                            (Some(_), false) => 0.8,
                            (None, _) => 1.5,
                        };
                    let products =
                        pairs * product_cycles(isa, terms, 2 * columns) + single * product_cycles(isa, terms, columns);
                    let product = (image.taps * image.steps()) as f64 * products
                        + tiles as f64 * (pair_cycles(isa) + after * (TILE * columns * TILE) as f64);
                    let unit = 800.0 + stage + chunk as f64 * (product + panel_bytes as f64 / WEIGHT_BYTES);
                    // Of few channels most of a step is in vain at the ends of kernel rows: products of pairs leave it out, and of tiles
                    // more is lost than that says.
                    let few = match shape.group_in() {
                        ..8 if isa.has_bf16_pairs() => 0.7,
                        ..8 => 1.2,
                        _ => 1.0,
                    };
                    let cost = few * unit * units.div_ceil(threads) as f64;
                    if best.as_ref().is_some_and(|best| best.cost <= cost) {
                        continue;
                    }
                    let whole_rows = direct.is_some() && channels_beside && chunk * panel_bytes <= BLOCK_BYTES;
                    best = Some(Tiled {
                        shape: shape.clone(),
                        y: problem.y,
                        isa,
                        finish: epilogue.clone(),
                        direct: direct.clone(),
                        steps: epilogue::steps(direct.as_ref(), chunk * columns * TILE),
                        channels_beside,
                        terms,
                        taps: image.offsets(),
                        image: image.clone(),
                        flat,
                        rows,
                        parts,
                        whole_rows,
                        block: if whole_rows { PAIR } else { usize::MAX / 2 },
                        columns,
                        chunk,
                        chunks,
                        cost,
                    });
                }
            }
        }
        best
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.columns * TILE
    }

    /// Values from a row of sums to the next. A multiple of a page would put all rows in the same sets of the first-level cache.
    fn pitch(&self) -> usize {
        if self.whole_rows { self.list_len() + TILE } else { self.panel() }
    }

    /// Values of a per-channel list of a unit.
    fn list_len(&self) -> usize {
        self.chunk * self.panel()
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(self.direct.as_ref(), self.list_len())
    }

    /// Epilogue of a tile of places by channels, of which `list` is the first bias, up to its summand; all of it without one.
    #[inline(always)]
    fn before_summand<'a>(&'a self, tile: &InTile, list: *const f32) -> RowAfter<'a> {
        let (values, clamp) = (list.wrapping_add(self.list_len()), tile.clamp_before_summand());
        RowAfter { steps: &self.steps, values, summand: std::ptr::null(), row: 0, clamp }
    }

    /// Form of the weights.
    pub(super) fn form(&self) -> TileForm {
        TileForm { left: false, columns: self.columns, terms: self.terms[1], merged: self.image.is_merged() }
    }

    /// Size of a panel of weights, in `f32` values: as of [`super::pack::Packer::tiles`].
    fn panel_len(&self) -> usize {
        self.image.taps * self.image.steps() * self.terms[1] * self.columns * TILE_BYTES / 4 + TILE
    }
}

/// Bytes of weights that arrive in a cycle, from a cache that cores share.
pub(super) const WEIGHT_BYTES: f64 = 20.0;

/// Cycles of a step's products of so many tiles of sums. On matrix tiles a product takes 16 cycles of a clock that is slower by a third
/// than that of vectors, with operands that are not all zeros; those of fewer than four tiles wait for each other. Products of pairs
/// are 256 instructions a tile, two a cycle.
pub(super) fn product_cycles(isa: Isa, terms: [usize; 2], tiles: usize) -> f64 {
    if isa.has_bf16_pairs() {
        return 130.0 * tiles as f64;
    }
    // A single product waits for its operands.
    let count = if terms == [1, 1] { 1.2 } else { products(terms) as f64 };
    count * if tiles == 4 { 88.0 } else { 76.0 }
}

/// Cycles of what is not products, for a cycle that it was measured with beside matrix tiles: their clock is the slower one.
pub(super) fn beside_products(isa: Isa) -> f64 {
    if isa.has_bf16_pairs() { 0.65 } else { 1.0 }
}

/// Cycles of filling and emptying a pair of tiles of sums.
pub(super) fn pair_cycles(isa: Isa) -> f64 {
    if isa.has_bf16_pairs() { 0.0 } else { 350.0 }
}

/// Products of terms that a product of values is.
pub(super) fn products(terms: [usize; 2]) -> usize {
    match terms {
        [1, others] | [others, 1] => others,
        [2, 2] => 4,
        _ => 6,
    }
}

/// Terms of the values of an input and of weights, among those that there are products of.
pub(super) fn terms_of(x: Element, w: Element) -> [usize; 2] {
    match [terms(x), terms(w)] {
        [MAX_TERMS, 1] => [MAX_TERMS, 1],
        [x, w] => [x.max(w); 2],
    }
}

/// Terms of a value of the type.
fn terms(element: Element) -> usize {
    match element {
        Element::F32 => MAX_TERMS,
        Element::F16 => 2,
        Element::BF16 => 1,
    }
}

/// Shape of a pointwise convolution whose places are one row, of which a unit has `places`.
fn flattened(problem: &Problem, places: usize) -> Shape {
    let mut shape = problem.shape.clone();
    shape.input = [1, 1, shape.input[1] * shape.input[2]];
    shape.output = [1, 1, places];
    shape
}

/// Layout of the input of [`flattened`].
fn flat_layout(problem: &Problem) -> Layout {
    let mut layout = problem.x;
    layout.strides[4] = place_distance(&problem.x, problem.shape.input[2]);
    layout
}

impl InUnits for Tiled {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        let shape = &self.shape;
        shape.batch * shape.groups * shape.output[0] * self.parts * self.chunks
    }

    fn slot(&self) -> usize {
        self.lists_len().next_multiple_of(16)
            + PAIR * self.pitch()
            + MAX_LANES * self.panel()
            + self.image.len().next_multiple_of(16)
    }
}

/// Coordinates of a unit, and its parts of the slot.
struct Place {
    image: usize,
    group: usize,
    z: usize,
    /// Panels of output channels.
    panels: std::ops::Range<usize>,
    /// First place of the output plane.
    first: usize,
    /// Rows of the copy, and places of the last one.
    height: usize,
    width: usize,
    lists: *mut f32,
    sums: *mut f32,
    turned: *mut f32,
    staged: *mut f32,
}

/// Rows of sums that are finished in registers.
struct Rows<'a> {
    tile: &'a InTile,
    /// Lists of the panel's channels.
    list: *const f32,
    /// Number of channels.
    keep: usize,
    sums: *const f32,
    /// Element of the output that the first row's channels begin at, and from a row to the next.
    to: usize,
    distance: usize,
    summand: Option<Places>,
}

impl Kernel for Unit<'_, Tiled> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (part, rest) = (rest % plan.parts, rest / plan.parts);
        let (z, rest) = (rest % shape.output[0], rest / shape.output[0]);
        let [_, oh, ow] = shape.output;
        let (kg, panel) = (shape.group_out(), plan.panel());
        let panels = kg.div_ceil(panel);
        let lists = self.slot;
        let sums = lists.wrapping_add(plan.lists_len().next_multiple_of(16));
        let turned = sums.wrapping_add(PAIR * plan.pitch());
        let begin = part * plan.rows;
        let at = Place {
            image: rest / shape.groups,
            group: rest % shape.groups,
            z,
            panels: chunk * plan.chunk..((chunk + 1) * plan.chunk).min(panels),
            first: if plan.flat { begin } else { begin * ow },
            height: if plan.flat { 1 } else { plan.rows.min(oh - begin) },
            width: if plan.flat { plan.rows.min(oh * ow - begin) } else { ow },
            lists,
            sums,
            turned,
            staged: turned.wrapping_add(MAX_LANES * panel),
        };
        let (row, column) = if plan.flat { (0, begin) } else { (begin, 0) };
        let source = At { image: at.image, group: at.group, z, row, column };
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            let first = at.panels.start * panel;
            let count = (at.panels.end * panel).min(kg) - first;
            let channel = at.group * kg + first;
            plan.finish.fill_lists(
                plan.direct.as_ref(),
                self.operands,
                at.image,
                channel,
                count,
                lists,
                plan.list_len(),
            );
            let image = plan.image.fill(s, self.x, source, at.staged);
            let multiplier = Multiplier::new(plan.isa);
            let places = (at.height - 1) * plan.image.line + at.width;
            let mut block = 0;
            while block < places {
                let end = places.min(block + plan.block);
                let mut panel = at.panels.start;
                while panel < at.panels.end {
                    let weights = self.weights.wrapping_add((at.group * panels + panel) * plan.panel_len());
                    let kind = TileForm::kind(weights, plan.panel_len());
                    let mut place = block;
                    while place < end {
                        let rows = if end - place > TILE { 2 } else { 1 };
                        let first = plan.image.offset(place);
                        let column = if plan.whole_rows { (panel - at.panels.start) * plan.panel() } else { 0 };
                        let job = TileProduct {
                            taps: plan.taps.as_ptr(),
                            count: plan.taps.len(),
                            depth: plan.image.depth,
                            steps: plan.image.steps(),
                            a: at.staged.cast::<u8>().wrapping_add(first),
                            row: plan.image.row_bytes(),
                            second: plan.image.offset(place + TILE) - first,
                            term: plan.image.term_bytes(),
                            step: plan.image.step_bytes(),
                            order: plan.form().order(),
                            b: weights.cast(),
                            c: at.sums.wrapping_add(column),
                            to: 4 * plan.pitch(),
                        };
                        multiplier.run(s, &job, plan.terms, [image, kind], (rows, plan.columns));
                        if !plan.whole_rows {
                            self.finish(s, &at, panel..panel + 1, place, (rows * TILE).min(end - place));
                        }
                        place += rows * TILE;
                    }
                    panel += 1;
                }
                if plan.whole_rows {
                    self.finish(s, &at, at.panels.clone(), block, end - block);
                }
                block = end;
            }
        }
    }
}

impl Unit<'_, Tiled> {
    /// Finishes the sums of some panels of `count` places of the copy from `place` on, of which those behind the rows' ends are dropped.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, at: &Place, panels: std::ops::Range<usize>, place: usize, count: usize) {
        let plan = self.plan;
        let line = plan.image.line;
        let (mut row, mut column) = if place < line { (0, place) } else { (place / line, place % line) };
        // Rows of the sums that are outputs, which follow each other in the plane, and the first one's place.
        let (mut kept, mut len, mut first) = ([0usize; PAIR], 0, 0);
        let mut i = 0;
        // SAFETY: the sums of so many places, and theirs in the output.
        unsafe {
            while i < count && row < at.height {
                let run = at.width.saturating_sub(column).min(count - i);
                let output = at.first + row * at.width + column;
                let in_rows = plan.direct.as_ref().filter(|_| plan.channels_beside);
                match (in_rows, plan.panel() / S::LANES) {
                    (Some(tile), 1) => self.finish_rows::<S, 1>(s, at, tile, &panels, output, i..i + run),
                    (Some(tile), 2) => self.finish_rows::<S, 2>(s, at, tile, &panels, output, i..i + run),
                    (Some(tile), _) => self.finish_rows::<S, 4>(s, at, tile, &panels, output, i..i + run),
                    (None, _) => {
                        first = if len == 0 { output } else { first };
                        for place in i..i + run {
                            kept[len] = place;
                            len += 1;
                        }
                    }
                }
                i += line - column;
                (row, column) = (row + 1, 0);
            }
            let mut done = 0;
            while done < len {
                let end = len.min(done + S::LANES);
                self.transpose(s, at, panels.start, first + done, &kept[done..end]);
                done = end;
            }
        }
    }

    /// Finishes rows of sums in registers, of which the first is output place `place` of the plane.
    #[inline(always)]
    unsafe fn finish_rows<S: Simd, const V: usize>(
        &self,
        s: S,
        at: &Place,
        tile: &InTile,
        panels: &std::ops::Range<usize>,
        place: usize,
        rows: std::ops::Range<usize>,
    ) {
        let plan = self.plan;
        let (kg, ow, width) = (plan.shape.group_out(), plan.shape.output[2], plan.panel());
        let plane = [at.image, at.group * kg + panels.start * width, at.z, 0, 0];
        let distance = place_distance(&plan.y, ow);
        // SAFETY: the caller's duty.
        unsafe {
            let mut summand = None;
            if let Some((operand, layout)) = &tile.summand {
                let distance = place_distance(layout, ow);
                let from = layout.offset(plane) + place * distance;
                let p = (*self.operands.add(*operand)).cast_mut();
                summand = Some(Places { element: layout.element, p, from, distance });
            }
            let mut row = rows.start;
            while row < rows.end {
                let some = row + 4 <= rows.end;
                let done = row - rows.start;
                for panel in panels.clone() {
                    let column = (panel - panels.start) * width;
                    let part = Rows {
                        tile,
                        list: at.lists.wrapping_add((panel - at.panels.start) * width),
                        keep: (kg - panel * width).min(width),
                        sums: at.sums.wrapping_add(row * plan.pitch() + column),
                        to: plan.y.offset(plane) + (place + done) * distance + column,
                        distance,
                        summand: summand.map(|all| Places { from: all.from + done * all.distance + column, ..all }),
                    };
                    if some {
                        self.some_rows::<S, 4, V>(s, &part);
                    } else {
                        self.some_rows::<S, 1, V>(s, &part);
                    }
                }
                row += if some { 4 } else { 1 };
            }
        }
    }

    /// Finishes some rows of a panel's sums.
    #[inline(always)]
    unsafe fn some_rows<S: Simd, const R: usize, const V: usize>(&self, s: S, rows: &Rows<'_>) {
        let plan = self.plan;
        let (width, pitch) = (V * S::LANES, plan.pitch());
        // SAFETY: the caller's duty; lists have a value for each lane of a panel.
        unsafe {
            let mut sums = [[s.splat(0.0); V]; R];
            for v in 0..V {
                let bias = s.load(rows.list.add(v * S::LANES));
                for r in 0..R {
                    sums[r][v] = s.add(s.load(rows.sums.add(r * pitch + v * S::LANES)), bias);
                }
            }
            clamp(s, plan.finish.clamp, &mut sums);
            if !rows.tile.is_empty() {
                finish(s, rows.keep, &plan.before_summand(rows.tile, rows.list), &mut sums);
                if let Some(Places { element, p, from, distance }) = rows.summand {
                    for r in 0..R {
                        for v in 0..V {
                            let lanes = rows.keep.saturating_sub(v * S::LANES).min(S::LANES);
                            let from = from + r * distance + v * S::LANES;
                            sums[r][v] = s.add(sums[r][v], load_lanes(s, element, p, from, lanes));
                        }
                    }
                    clamp(s, rows.tile.clamp, &mut sums);
                }
            }
            if rows.keep == width && plan.y.element == Element::F32 {
                for r in 0..R {
                    for v in 0..V {
                        let to = rows.to + r * rows.distance + v * S::LANES;
                        s.store(self.y.cast::<f32>().add(to), sums[r][v]);
                    }
                }
            } else {
                for r in 0..R {
                    for v in 0..V {
                        let lanes = rows.keep.saturating_sub(v * S::LANES).min(S::LANES);
                        if lanes > 0 {
                            let to = rows.to + r * rows.distance + v * S::LANES;
                            store_lanes(s, plan.y.element, self.y, to, sums[r][v], lanes);
                        }
                    }
                }
            }
        }
    }

    /// Transposes the sums of at most a vector's lanes of places, and stores or finishes them.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, at: &Place, panel: usize, place: usize, kept: &[usize]) {
        let plan = self.plan;
        let (kg, ow, width) = (plan.shape.group_out(), plan.shape.output[2], plan.panel());
        let keep = (kg - panel * width).min(width);
        let list = at.lists.wrapping_add((panel - at.panels.start) * width);
        let corner = [at.image, at.group * kg + panel * width, at.z, place / ow, place % ow];
        let y = plan.y.offset(corner);
        // SAFETY: the slot has room for a vector of places of each channel; the places are the unit's.
        unsafe {
            let mut channel = 0;
            while channel < keep {
                let bias = s.load(list.add(channel));
                let mut sums = [[s.splat(0.0)]; MAX_LANES];
                for i in 0..S::LANES {
                    if i < kept.len() {
                        sums[i] = [s.add(s.load(at.sums.add(kept[i] * plan.pitch() + channel)), bias)];
                    }
                }
                clamp(s, plan.finish.clamp, &mut sums);
                if let Some(tile) = &plan.direct
                    && !tile.is_empty()
                {
                    finish(s, S::LANES, &plan.before_summand(tile, list.wrapping_add(channel)), &mut sums);
                }
                let mut square = [s.splat(0.0); MAX_LANES];
                for i in 0..S::LANES {
                    square[i] = sums[i][0];
                }
                let square = s.transpose(square);
                match &plan.direct {
                    None => {
                        for i in 0..S::LANES {
                            s.store(at.turned.wrapping_add((channel + i) * MAX_LANES), square[i]);
                        }
                    }
                    Some(tile) => {
                        for i in 0..S::LANES.min(keep - channel) {
                            let mut value = square[i];
                            if let Some((operand, layout)) = &tile.summand {
                                let from = layout.offset(corner) + (channel + i) * layout.strides[1];
                                let p = *self.operands.add(*operand);
                                value = s.add(value, load_lanes(s, layout.element, p, from, kept.len()));
                                let (low, high) = (s.splat(tile.clamp.0), s.splat(tile.clamp.1));
                                value = s.min(high, s.max(low, value));
                            }
                            let to = y + (channel + i) * plan.y.strides[1];
                            store_lanes(s, plan.y.element, self.y, to, value, kept.len());
                        }
                    }
                }
                channel += S::LANES;
            }
            if plan.direct.is_some() {
                return;
            }
            let block = Block { at: corner, values: at.turned, channels: keep, pitch: MAX_LANES, count: kept.len() };
            plan.finish.run(s, self.operands, self.y, block);
        }
    }
}
