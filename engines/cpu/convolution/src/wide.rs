//! Matrix product for small images: vectors run over output channels, and the input's values are broadcast.
//!
//! A unit of work is all places of an image, group and output depth, for some panels of output channels. The input of
//! each place is gathered once into panels of (input channel and tap × places), unless they lie like that already; then
//! each panel of weights, read from memory once, is multiplied with all of them, and the products are transposed on
//! their way to the output.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::Band;
use super::epilogue::{Block, Epilogue, InTile, Tail};
use super::problem::{Element, Layout, Problem, Shape};
use super::tile::{self, MAX_VECTORS, Tile};
use super::units::{InUnits, Unit};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Pick, Simd, first};

/// Bytes of gathered input that stay in the second-level cache.
const INPUT_BYTES: usize = 1 << 20;
/// Number of places from which on vectors of sixteen lanes read the input of a pointwise convolution in place.
const MANY: usize = 128;
/// Factors of the estimate for eight and for sixteen lanes, a fit to measured times.
const FITS: [f64; 2] = [1.06, 1.0];
/// Estimated cycles of a term that is gathered for a tile, for eight and for sixteen lanes.
const GATHERED: [f64; 2] = [2.5, 6.0];
/// Estimated cycles of a vector of columns that are a stride apart.
const PICKED: f64 = 12.0;
const SLACK: usize = 3 * MAX_LANES;

#[derive(Debug)]
pub(super) struct Wide {
    shape: Shape,
    y: Layout,
    isa: Isa,
    band: Band,
    finish: Epilogue,
    /// True if results are stored as they are, and an activation of them where they are stored, if there is one.
    native_y: bool,
    tail: Option<Activation>,
    /// True if the input is read in place, not gathered.
    in_place: bool,
    /// True if the input is gathered from where it lies, not from a padded copy: its places are side by side.
    matrix: bool,
    /// Stride between input channels.
    channel: usize,
    image: usize,
    /// Tile size: places and vectors of channels.
    size: (usize, usize),
    /// Panels of channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Offsets of the places of each panel in the band.
    picks: Vec<Pick>,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl Wide {
    /// True if this algorithm serves the shape.
    pub(super) fn applies(shape: &Shape) -> bool {
        let places = shape.output[1] * shape.output[2];
        places <= 256 && 4 * places * shape.depth() <= INPUT_BYTES
    }

    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Wide {
        let shape = &problem.shape;
        let lanes = isa.lanes();
        let [od, oh, ow] = shape.output;
        let places = oh * ow;
        let (kg, depth) = (shape.group_out(), shape.depth());
        // Rows of few places share cache lines with others, and tiles of six read less than half of a line: gathered, a tile stays in the
        // first-level cache.
        let matrix = problem.is_matrix();
        let in_place = |rows: usize| matrix && (places == 1 || places >= MANY && lanes == 16) && rows <= places;
        // A single tap's columns a stride apart are picked from each row, which is a vector at least.
        let picked = match (shape.taps(), shape.stride[2]) {
            (1, 2..) => PICKED * (shape.group_in() * oh * ow.div_ceil(lanes)) as f64,
            _ => 0.0,
        };
        let mut best = (f64::INFINITY, (1, 1), 1);
        for size in tile::sizes(lanes).iter().filter(|(rows, _)| *rows <= lanes) {
            let panels = kg.div_ceil(size.1 * lanes);
            let tiles = places.div_ceil(size.0) as f64;
            let (rows, vectors) = (size.0 as f64, size.1 as f64);
            let step = tile::step_cycles(*size, false);
            for chunks in [1, 2, 3, 4, 8] {
                if chunks > panels || chunks > 4 * threads {
                    continue;
                }
                let chunk = panels.div_ceil(chunks);
                let width = vectors * lanes as f64;
                let widened = if problem.x.element == Element::F32 { 0.0 } else { 1.7 };
                let gather = match in_place(size.0) {
                    true => 0.0,
                    false if matrix => tiles * depth as f64 * GATHERED[lanes / 16],
                    false => {
                        let copied = (shape.group_in() * places * shape.stride[2].min(2)) as f64;
                        tiles * depth as f64 * 5.0 + copied + picked
                    }
                };
                let compute = chunk as f64 * tiles * (depth as f64 * step + rows * vectors * 2.0 + 30.0);
                let output = chunk as f64 * width * places as f64 / 4.0;
                let stream = chunk as f64 * width * depth as f64 * 4.0 / 6.0;
                let units = shape.batch * shape.groups * od * panels.div_ceil(chunk);
                let unit = 500.0 + gather + widened * (shape.group_in() * places) as f64 + compute.max(stream) + output;
                let cost = FITS[lanes / 16] * unit * units.div_ceil(threads) as f64;
                if cost < best.0 {
                    best = (cost, *size, chunk);
                }
            }
        }
        let (cost, size, chunk) = best;
        let band = Band::new(shape, &problem.x, oh, ow);
        let in_place = in_place(size.0);
        let tiles = if in_place || matrix { 0..0 } else { 0..places };
        let picks = tiles
            .step_by(size.0)
            .map(|begin| {
                let offset = |place: usize| place / ow * band.pitch + place % ow;
                Pick::new(&Vec::from_iter((begin..places.min(begin + size.0)).map(offset)))
            })
            .collect();
        let finish = Epilogue::new(problem);
        let mut direct = finish.in_tile();
        let tail = direct.as_mut().and_then(InTile::take_tail);
        let sums_only = direct.is_some_and(|direct| direct.is_empty());
        let strides = problem.y.strides;
        Wide {
            y: problem.y,
            isa,
            native_y: sums_only && (ow == 1 || strides[4] == 1) && (oh == 1 || strides[3] == ow),
            tail,
            finish,
            in_place,
            matrix,
            channel: problem.x.strides[1],
            image: problem.x.strides[0],
            size,
            chunk,
            chunks: kg.div_ceil(size.1 * lanes).div_ceil(chunk),
            picks,
            cost,
            band,
            shape: shape.clone(),
        }
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    /// Number of places of an image.
    fn places(&self) -> usize {
        self.shape.output[1] * self.shape.output[2]
    }

    fn tiles(&self) -> usize {
        self.places().div_ceil(self.size.0)
    }

    /// First place of a tile: the last one begins early if all places are read in place, and computes some again.
    fn first_place(&self, tile: usize) -> usize {
        let first = tile * self.size.0;
        if self.in_place { first.min(self.places() - self.size.0) } else { first }
    }

    /// Values of the band.
    fn band_len(&self) -> usize {
        if self.in_place || self.matrix { 0 } else { self.band.len(SLACK) }
    }

    /// Values of the gathered panels; rows are stored whole vectors at a time.
    fn panels_len(&self) -> usize {
        if self.in_place { 0 } else { self.tiles() * self.size.0 * self.shape.depth() + MAX_LANES }
    }

    /// Values of a panel's products, and of these transposed.
    fn products_len(&self) -> usize {
        self.tiles() * self.size.0 * self.panel()
    }

    fn row(&self) -> usize {
        if self.places() == 1 { 1 } else { self.places().next_multiple_of(MAX_LANES) }
    }
}

impl InUnits for Wide {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.batch * self.shape.groups * self.shape.output[0] * self.chunks
    }

    fn slot(&self) -> usize {
        self.band_len()
            + self.panels_len().next_multiple_of(16)
            + self.products_len().next_multiple_of(16)
            + MAX_LANES * self.panel()
            + self.panel() * (1 + self.row())
    }
}

impl Kernel for Unit<'_, Wide> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (z, rest) = (rest % shape.output[0], rest / shape.output[0]);
        let (group, image) = (rest % shape.groups, rest / shape.groups);
        let (depth, kg) = (shape.depth(), shape.group_out());
        let (rows, width) = (plan.size.0, plan.panel());
        let panels = kg.div_ceil(width);
        let band = self.slot;
        let gathered = band.wrapping_add(plan.band_len());
        let products = gathered.wrapping_add(plan.panels_len().next_multiple_of(16));
        let bias = products.wrapping_add(plan.products_len().next_multiple_of(16) + MAX_LANES * width);
        let transposed = bias.wrapping_add(width);
        let function = tile::function::<S>(plan.size);
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            if !plan.in_place && !plan.matrix {
                plan.band.fill(s, self.x, image, group, [z, 0, 0], band, SLACK);
            }
            let x = self.x.cast::<f32>().wrapping_add(image * plan.image + group * shape.group_in() * plan.channel);
            if plan.matrix && !plan.in_place {
                self.gather(s, x, gathered);
            }
            for (panel, pick) in plan.picks.iter().enumerate() {
                let mut to = gathered.wrapping_add(panel * rows * depth);
                for c in 0..shape.group_in() {
                    let from = band.wrapping_add(c * plan.band.channel);
                    for tap in &plan.band.taps {
                        // The lanes past the rows are overwritten by what follows.
                        let mut lane = 0;
                        while lane < rows {
                            s.store(to.wrapping_add(lane), s.pick(from.wrapping_add(*tap), pick));
                            lane += S::LANES;
                        }
                        to = to.wrapping_add(rows);
                    }
                }
            }
            for panel in chunk * plan.chunk..(chunk * plan.chunk + plan.chunk).min(panels) {
                let weights = self.weights.wrapping_add((group * panels + panel) * width * depth);
                for tile in 0..plan.tiles() {
                    let place = plan.first_place(tile);
                    let to = products.wrapping_add(place * width);
                    let (a, a_step) = match plan.in_place {
                        true => (x.wrapping_add(place), plan.channel),
                        false => (gathered.wrapping_add(tile * rows * depth).cast_const(), rows),
                    };
                    let mut job = Tile {
                        channels: depth,
                        taps: &[0],
                        step: width,
                        a,
                        a_step,
                        b: weights,
                        count: 1,
                        b_tile: 0,
                        to_tile: 0,
                        bias: std::ptr::null(),
                        clamp: tile::NO_CLAMP,
                        to: [to; MAX_VECTORS],
                        keep: [first(S::LANES); MAX_VECTORS],
                        row: width,
                        rows,
                        fetch: false,
                        // The first tiles fetch the next panel, a part of it each.
                        next: if tile < plan.size.1 {
                            weights.wrapping_add(width * depth + tile * depth * 16)
                        } else {
                            std::ptr::null()
                        },
                        after: None,
                    };
                    for v in 0..plan.size.1 {
                        job.to[v] = to.wrapping_add(v * S::LANES);
                    }
                    function(s, &job);
                }
                let channels = width.min(kg - panel * width);
                let channel = group * kg + panel * width;
                plan.finish.fill_lists(None, self.operands, image, channel, channels, bias, width);
                self.transpose(s, products, bias, transposed);
                self.store(s, [image, channel, z, 0, 0], channels, transposed);
            }
        }
    }
}

impl Unit<'_, Wide> {
    /// Copies the places of each tile to its panel, from rows of places `plan.channel` apart.
    ///
    /// # Safety
    /// `x` has the places of all channels; `to` takes the panels and [`MAX_LANES`] values more.
    #[inline(always)]
    unsafe fn gather<S: Simd>(&self, s: S, x: *const f32, to: *mut f32) {
        let plan = self.plan;
        let (rows, channels, places) = (plan.size.0, plan.shape.group_in(), plan.places());
        // A tile has no more places than a vector has lanes.
        let mut to = to;
        for tile in 0..plan.tiles() {
            let first_place = tile * rows;
            let count = rows.min(places - first_place);
            let mask = s.mask(first(count));
            // Where whole vectors end inside of the image they need no mask.
            let whole = first_place + S::LANES <= places;
            let mut from = x.wrapping_add(first_place);
            for _ in 0..channels {
                // SAFETY: the channel's places; the lanes past the rows are overwritten by what follows, or end in the values
                // past the panels.
                unsafe { s.store(to, if whole { s.load(from) } else { s.load_masked(mask, from) }) };
                to = to.wrapping_add(rows);
                from = from.wrapping_add(plan.channel);
            }
        }
    }

    /// Transposes products by (place, channel) to rows of places, with bias and clamp.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, products: *const f32, bias: *const f32, to: *mut f32) {
        let plan = self.plan;
        let (width, row, places) = (plan.panel(), plan.row(), plan.places());
        let (low, high) = (s.splat(plan.finish.clamp.0), s.splat(plan.finish.clamp.1));
        // SAFETY: the products are followed by room for whole blocks of places, and rows take whole vectors.
        unsafe {
            for v in (0..width).step_by(S::LANES) {
                let bias = s.load(bias.add(v));
                if places == 1 {
                    let value = s.add(s.load(products.add(v)), bias);
                    s.store(to.add(v), s.min(high, s.max(low, value)));
                    continue;
                }
                for place in (0..places).step_by(S::LANES) {
                    let mut block = [s.splat(0.0); MAX_LANES];
                    for i in 0..S::LANES {
                        let value = s.add(s.load(products.add((place + i) * width + v)), bias);
                        block[i] = s.min(high, s.max(low, value));
                    }
                    let block = s.transpose(block);
                    for i in 0..S::LANES {
                        s.store(to.add((v + i) * row + place), block[i]);
                    }
                }
            }
        }
    }

    /// Stores rows of places of `channels` output channels from `at` on in the output.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, at: [usize; 5], channels: usize, from: *mut f32) {
        let plan = self.plan;
        let [_, oh, ow] = plan.shape.output;
        // SAFETY: the channels' places.
        unsafe {
            if !plan.native_y {
                let block = Block { at, values: from, channels, pitch: plan.row(), count: oh * ow };
                plan.finish.run(s, self.operands, self.y, block);
                return;
            }
            let [image, channel, z, ..] = at;
            if plan.places() == 1 {
                if let Some(activation) = &plan.tail {
                    tile::activate_row(s, activation, from, channels);
                }
                let to = plan.y.offset([image, channel, z, 0, 0]);
                let (to, distance) = (self.y.cast::<f32>().add(to), plan.y.strides[1]);
                for i in 0..channels {
                    *to.add(i * distance) = *from.add(i);
                }
                return;
            }
            let mut tail = Tail::new(plan.tail.as_ref());
            for i in 0..channels {
                let values = from.wrapping_add(i * plan.row()).cast_const().cast();
                let to = plan.y.offset([image, channel + i, z, 0, 0]);
                let to = self.y.cast::<f32>().add(to);
                super::band::copy(s, Element::F32, values, 0, 1, to, oh * ow);
                tail.add(s, to, oh * ow);
            }
            tail.finish(s);
        }
    }
}
