//! Winograd's F(4×4, 3×3): for 3×3 kernels of stride 1, 36 products where the plain sum has 144.
//!
//! The formula is that of [`super::transforms`]. A unit of work is a band of tile rows of an image and group, for some of the output
//! channels: its input is transformed into V[frequency][panel][channel][place], then, for each panel of output channels, 36 products
//! go to a scratch panel and from there through the output transform to the output.
//!
//! With dilations the kernel meets each phase of the image's rows and columns by itself: every phase is a convolution without
//! dilation, whose units copy every `dilation`th row and column.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{PhaseColumns, copy, inside, load_some, zero};
use super::epilogue::{Block, Epilogue};
use super::pack::transform_cycles;
use super::problem::{Element, Layout, Problem, Shape};
use super::tile::{self, MAX_VECTORS, Tile, TileFn};
use super::transforms::{Tiling, load_products, store_frequencies, transform_input, transform_output};
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Pick, Simd, first};

/// Outputs of a tile, per axis.
const OUT: usize = 4;
/// Inputs of a tile, per axis.
const IN: usize = 6;
const FREQUENCIES: usize = IN * IN;

/// Bytes of transformed input that stay in the second-level cache.
const INPUT_BYTES: usize = 768 << 10;
/// Bytes of transformed weights that stay in that cache.
const WEIGHTS_BYTES: usize = 768 << 10;
/// Factors of the estimate for eight and for sixteen lanes, a fit to measured times.
const FITS: [f64; 2] = [1.26, 1.2];
const SLACK: usize = 3 * MAX_LANES;

#[derive(Debug)]
pub(super) struct Winograd {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    native_y: bool,
    /// Microkernel tile of the products: rows and vectors.
    size: (usize, usize),
    /// Number of tiles of a phase of the output, down and across.
    down: usize,
    across: usize,
    /// Tile rows of a band, and number of bands of a phase.
    height: usize,
    bands: usize,
    /// Panels of output channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Offset of each vector of a band's tiles in the copied input.
    picks: Vec<Pick>,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl Winograd {
    /// True if this algorithm serves the problem: phases are stored straight to the output.
    pub(super) fn applies(problem: &Problem) -> bool {
        let shape = &problem.shape;
        let is_native = || is_native(problem, &Epilogue::new(problem));
        Winograd::serves(shape) && (shape.dilation[1..] == [1, 1] || is_native())
    }

    /// True if the formula serves the shape, and each phase has outputs.
    fn serves(shape: &Shape) -> bool {
        shape.kernel == [1, 3, 3]
            && shape.stride == [1; 3]
            && (1..3).all(|axis| shape.dilation[axis] <= shape.output[axis])
            && shape.input[0] == 1
            && shape.output[0] == 1
            && shape.pad_before[0] == 0
    }

    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Winograd {
        let shape = &problem.shape;
        let lanes = isa.lanes();
        let [_, dilation_rows, dilation_columns] = shape.dilation;
        let down = shape.output[1].div_ceil(dilation_rows).div_ceil(OUT);
        let across = shape.output[2].div_ceil(dilation_columns).div_ceil(OUT);
        // Cycles of copying an input, and of transforming and storing a vector of tiles: columns that are apart go one by one.
        let (copied, stored) =
            if dilation_columns == 1 { (1.0 / 6.0, 170.0) } else { (1.0, 170.0 + 256.0 * 5.0 / 6.0) };
        let (cg, kg) = (shape.group_in(), shape.group_out());
        let finish = Epilogue::new(problem);
        let mut plan = Winograd {
            x: problem.x,
            y: problem.y,
            isa,
            native_y: is_native(problem, &finish),
            finish,
            size: (1, 1),
            down,
            across,
            height: 1,
            bands: 1,
            chunk: 1,
            chunks: 1,
            picks: Vec::new(),
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        let mut heights: Vec<usize> = (1..=down).map(|bands| down.div_ceil(bands)).collect();
        heights.dedup();
        for height in heights {
            for size in tile::sizes(lanes) {
                let width = size.1 * lanes;
                let panels = (height * across).div_ceil(width);
                if height > 1 && 4 * FREQUENCIES * cg * panels * width > INPUT_BYTES {
                    continue;
                }
                let rows = kg.div_ceil(size.0);
                for chunks in [1, 2, 4] {
                    if chunks > rows || chunks > 2 * threads {
                        continue;
                    }
                    let chunk = rows.div_ceil(chunks);
                    let chunks = rows.div_ceil(chunk);
                    let bands = down.div_ceil(height);
                    let vectors = (height * across).div_ceil(lanes) as f64;
                    let input = cg as f64 * vectors * 190.0 + (cg * height * across * OUT * OUT) as f64 * copied;
                    let output = (chunk * size.0) as f64 * vectors * stored;
                    let step = tile::step_cycles(*size, false);
                    let call = cg as f64 * step + (size.0 * size.1) as f64 + 40.0;
                    let products = FREQUENCIES as f64 * (chunk * panels) as f64 * call;
                    let weights = (FREQUENCIES * chunk * size.0 * cg * 4) as f64;
                    let stream = if chunks as f64 * weights > WEIGHTS_BYTES as f64 { weights / 7.0 } else { 0.0 };
                    let unit = 500.0 + input + output + products.max(stream) + 0.3 * products.min(stream);
                    let units = shape.batch * shape.groups * phases(shape) * bands * chunks;
                    let cost = FITS[lanes / 16] * unit * units.div_ceil(threads) as f64;
                    if cost < plan.cost {
                        plan = Winograd { cost, size: *size, height, bands, chunk, chunks, ..plan };
                    }
                }
            }
        }
        plan.cost += transform_cycles(problem, &Tiling::LARGE, threads, isa);
        let tiles = plan.height * plan.across;
        plan.picks = (0..tiles)
            .step_by(lanes)
            .map(|begin| Pick::new(&Vec::from_iter((begin..tiles.min(begin + lanes)).map(|tile| plan.offset(tile)))))
            .collect();
        plan
    }

    /// Offset of a tile of a band in the copied input.
    #[inline(always)]
    fn offset(&self, tile: usize) -> usize {
        tile / self.across * OUT * OUT * self.pitch() + tile % self.across
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.size.0
    }

    /// Places of a microkernel tile of the products.
    fn width(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    fn panels(&self) -> usize {
        (self.height * self.across).div_ceil(self.width())
    }

    /// Stride between frequencies of V: not a multiple of a page, as that would put all of them in the same cache sets.
    fn frequency(&self) -> usize {
        self.panels() * self.shape.group_in() * self.width() + 16
    }

    /// Values of a row of a column phase of the copied input.
    fn pitch(&self) -> usize {
        self.across + 1
    }

    /// Values of the copied input of a channel: rows of four column phases.
    fn plane(&self) -> usize {
        (self.height * OUT + 2) * OUT * self.pitch() + SLACK
    }

    fn bias_len(&self) -> usize {
        (self.chunk * self.size.0).next_multiple_of(16)
    }

    /// Stride between frequencies of the products.
    fn product(&self) -> usize {
        self.panels() * self.size.0 * self.width() + 16
    }

    /// Values of a channel's output rows of a band, where these are finished before they are stored.
    fn rows_len(&self) -> usize {
        if self.native_y { 0 } else { (self.height * OUT * self.shape.output[2]).next_multiple_of(16) }
    }
}

impl InUnits for Winograd {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.batch * self.shape.groups * phases(&self.shape) * self.bands * self.chunks
    }

    fn slot(&self) -> usize {
        self.bias_len()
            + self.plane().next_multiple_of(16)
            + FREQUENCIES * (self.frequency() + self.product())
            + OUT * OUT * MAX_LANES
            + self.rows_len()
    }
}

/// Number of phases of the rows and columns.
fn phases(shape: &Shape) -> usize {
    shape.dilation[1] * shape.dilation[2]
}

/// True if tiles are stored straight to the output.
fn is_native(problem: &Problem, finish: &Epilogue) -> bool {
    finish.in_registers() && (problem.y.strides[4] == 1 || problem.shape.output[2] == 1)
}

/// Coordinates of a unit, and its parts of the slot.
struct Place {
    image: usize,
    group: usize,
    /// Phase of the dilations: its first row and column.
    phase: [usize; 2],
    /// First tile row, tile rows, tiles.
    row: usize,
    height: usize,
    tiles: usize,
    plane: *mut f32,
    input: *mut f32,
    product: *mut f32,
    out: *mut f32,
    rows: *mut f32,
}

impl Kernel for Unit<'_, Winograd> {
    type Output = ();
    const ALIGNED: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (chunk, rest) = (self.unit % plan.chunks, self.unit / plan.chunks);
        let (band, rest) = (rest % plan.bands, rest / plan.bands);
        let [_, dilation_rows, dilation_columns] = shape.dilation;
        let (phase_column, rest) = (rest % dilation_columns, rest / dilation_columns);
        let (phase_row, rest) = (rest % dilation_rows, rest / dilation_rows);
        let row = band * plan.height;
        let height = plan.height.min(plan.down - row);
        let bias = self.slot;
        let plane = bias.wrapping_add(plan.bias_len());
        let input = plane.wrapping_add(plan.plane().next_multiple_of(16));
        let product = input.wrapping_add(FREQUENCIES * plan.frequency());
        let at = Place {
            image: rest / shape.groups,
            group: rest % shape.groups,
            phase: [phase_row, phase_column],
            row,
            height,
            tiles: height * plan.across,
            plane,
            input,
            product,
            out: product.wrapping_add(FREQUENCIES * plan.product()),
            rows: product.wrapping_add(FREQUENCIES * plan.product() + OUT * OUT * MAX_LANES),
        };
        let (cg, kg) = (shape.group_in(), shape.group_out());
        let rows = plan.size.0;
        let channel_panels = kg.div_ceil(rows);
        let channel_range = chunk * plan.chunk..(chunk * plan.chunk + plan.chunk).min(channel_panels);
        let first_channel = channel_range.start * rows;
        let count = (channel_range.end * rows).min(kg) - first_channel;
        let function = tile::function::<S>(plan.size);
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            let biased = plan.finish.biases(self.operands, at.group * kg + first_channel, count, bias, plan.bias_len());
            if !biased {
                zero(s, bias, plan.bias_len());
            }
            self.transform_band(s, &at);
            for panel in channel_range {
                let weights = (at.group * channel_panels + panel) * FREQUENCIES * cg * rows;
                self.products(s, function, &at, self.weights.wrapping_add(weights), rows.min(kg - panel * rows));
                for i in 0..rows.min(kg - panel * rows) {
                    let bias = *bias.add(panel * rows - first_channel + i);
                    self.output(s, &at, at.group * kg + panel * rows + i, i, bias);
                }
            }
        }
    }
}

impl Unit<'_, Winograd> {
    /// Transforms the band's input, channel by channel, to V.
    #[inline(always)]
    unsafe fn transform_band<S: Simd>(&self, s: S, at: &Place) {
        let plan = self.plan;
        // Sizes are computed once: the compiler would compute them again after each store.
        let (cg, width, pitch) = (plan.shape.group_in(), plan.width(), plan.pitch());
        let (vectors, stride) = (at.tiles.div_ceil(S::LANES), plan.frequency());
        let all_vectors = at.tiles.div_ceil(width) * plan.size.1;
        // SAFETY: the slot has the parts' sizes.
        unsafe {
            for c in 0..cg {
                self.copy_plane(s, at, c);
                for vector in 0..vectors {
                    let begin = vector * S::LANES;
                    let end = (begin + S::LANES).min(at.tiles);
                    let side_by_side = begin / plan.across == (end - 1) / plan.across;
                    let pick = &plan.picks[vector];
                    let from = at.plane.wrapping_add(plan.offset(begin)).cast_const();
                    let mut d = [[s.splat(0.0); IN]; IN];
                    for column in 0..IN {
                        let mut values = [s.splat(0.0); IN];
                        for row in 0..IN {
                            let place = (row * OUT + column % OUT) * pitch + column / OUT;
                            values[row] =
                                if side_by_side { s.load(from.add(place)) } else { s.pick(at.plane.add(place), pick) };
                        }
                        let values = transform_input(s, values);
                        for row in 0..IN {
                            d[row][column] = values[row];
                        }
                    }
                    let to = at.input.wrapping_add((begin / width * cg + c) * width + begin % width);
                    store_frequencies(s, d, to, stride);
                }
                // The rest of the last panel is computed and dropped: it has to be numbers.
                for vector in vectors..all_vectors {
                    let begin = vector * S::LANES;
                    let to = at.input.wrapping_add((begin / width * cg + c) * width + begin % width);
                    for frequency in 0..FREQUENCIES {
                        s.store(to.add(frequency * stride), s.splat(0.0));
                    }
                }
            }
        }
    }

    /// Copies a channel's input rows, padded, with each row split into its four column phases.
    #[inline(always)]
    unsafe fn copy_plane<S: Simd>(&self, s: S, at: &Place, c: usize) {
        let plan = self.plan;
        let shape = &plan.shape;
        let strides = plan.x.strides;
        let source = at.image * strides[0] + (at.group * shape.group_in() + c) * strides[1];
        let pitch = plan.pitch();
        let [_, h, w] = shape.input;
        let [_, dilation_rows, dilation_columns] = shape.dilation;
        let pad = shape.pad_before[2];
        let (element, bytes) = (plan.x.element, plan.x.element.bytes());
        // SAFETY: rows of the input and of the copied plane.
        unsafe {
            for row in 0..at.height * OUT + 2 {
                let to = at.plane.wrapping_add(row * OUT * pitch);
                let line = (at.row * OUT + row) * dilation_rows + at.phase[0];
                let Some(line) = inside(line, shape.pad_before[1], h) else {
                    zero(s, to, OUT * pitch);
                    continue;
                };
                let from = source + line * strides[3];
                if strides[4] == 1 && dilation_columns == 1 {
                    let x = self.x.wrapping_add(from * bytes).wrapping_sub(pad * bytes);
                    let mut place = 0;
                    while place < pitch {
                        // Four vectors of padded columns, those outside of the row zero.
                        let mut columns = [s.splat(0.0); OUT];
                        for v in 0..OUT {
                            let left = place * OUT + v * S::LANES;
                            let low = pad.saturating_sub(left).min(S::LANES);
                            let high = (pad + w).saturating_sub(left).min(S::LANES).max(low);
                            let lanes = first(high) & !first(low);
                            columns[v] = load_some(s, element, x.wrapping_add(left * bytes), lanes);
                        }
                        let (even0, odd0) = s.unzip(columns[0], columns[1]);
                        let (even1, odd1) = s.unzip(columns[2], columns[3]);
                        let (phase0, phase2) = s.unzip(even0, even1);
                        let (phase1, phase3) = s.unzip(odd0, odd1);
                        let lanes = (pitch - place).min(S::LANES);
                        let phases = [phase0, phase1, phase2, phase3];
                        for phase in 0..OUT {
                            s.store_first(lanes, to.add(phase * pitch + place), phases[phase]);
                        }
                        place += S::LANES;
                    }
                } else {
                    for phase in 0..OUT {
                        let to = to.wrapping_add(phase * pitch);
                        let (step, phase) = (OUT * dilation_columns, phase * dilation_columns + at.phase[1]);
                        let columns = PhaseColumns::new(phase, step, pad, w, pitch);
                        columns.copy(s, element, self.x, from, strides[4], to);
                    }
                }
            }
            // Whole vectors read past the last row.
            zero(s, at.plane.wrapping_add((at.height * OUT + 2) * OUT * pitch), SLACK);
        }
    }

    /// Computes the 36 products of a panel of output channels.
    #[inline(always)]
    unsafe fn products<S: Simd>(&self, s: S, function: TileFn<S>, at: &Place, weights: *const f32, count: usize) {
        let plan = self.plan;
        let (cg, width) = (plan.shape.group_in(), plan.width());
        let (rows, panels) = (plan.size.0, at.tiles.div_ceil(width));
        let (of_input, of_product) = (plan.frequency(), plan.product());
        for frequency in 0..FREQUENCIES {
            let to = at.product.wrapping_add(frequency * of_product);
            let job = Tile {
                channels: cg,
                taps: &[0],
                step: width,
                a: weights.wrapping_add(frequency * cg * rows),
                a_step: rows,
                b: at.input.wrapping_add(frequency * of_input),
                count: panels,
                b_tile: cg * width,
                to_tile: rows * width,
                bias: std::ptr::null(),
                clamp: tile::NO_CLAMP,
                to: std::array::from_fn(|v| to.wrapping_add(v * S::LANES)),
                keep: [first(S::LANES); MAX_VECTORS],
                row: width,
                rows: count,
                fetch: false,
                // The weights of the next frequency or panel follow.
                next: weights.wrapping_add((frequency + 1) * cg * rows),
                after: None,
            };
            // SAFETY: the weights' panel, V's and the products' places.
            unsafe { function(s, &job) };
        }
    }

    /// Transforms output channel `channel`, row `i` of the products, to the output.
    #[inline(always)]
    unsafe fn output<S: Simd>(&self, s: S, at: &Place, channel: usize, i: usize, bias: f32) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (width, stride) = (plan.width(), plan.product());
        let [_, oh, ow] = shape.output;
        let [_, dilation_rows, dilation_columns] = shape.dilation;
        let phase_width = ow.saturating_sub(at.phase[1]).div_ceil(dilation_columns);
        let (low, high) = (s.splat(plan.finish.clamp.0), s.splat(plan.finish.clamp.1));
        let bias = s.splat(bias);
        for vector in 0..at.tiles.div_ceil(S::LANES) {
            let begin = vector * S::LANES;
            let from = at.product.wrapping_add((begin / width * plan.size.0 + i) * width + begin % width);
            // SAFETY: the products' places; `out` takes sixteen vectors; the rows and columns are the output's.
            unsafe {
                let half: [[S::V; IN]; OUT] = load_products(s, from, stride);
                for row in 0..OUT {
                    let mut columns: [S::V; OUT] = transform_output(s, half[row]);
                    for column in 0..OUT {
                        columns[column] = s.min(high, s.max(low, s.add(columns[column], bias)));
                    }
                    let (low02, high02) = s.zip(columns[0], columns[2]);
                    let (low13, high13) = s.zip(columns[1], columns[3]);
                    let (first, second) = s.zip(low02, low13);
                    let (third, fourth) = s.zip(high02, high13);
                    let values = [first, second, third, fourth];
                    for v in 0..OUT {
                        s.store(at.out.add((row * OUT + v) * S::LANES), values[v]);
                    }
                }
                let end = (begin + S::LANES).min(at.tiles);
                let mut tile = begin;
                while tile < end {
                    let (tile_row, tile_column) = (tile / plan.across, tile % plan.across);
                    let run = (plan.across - tile_column).min(end - tile);
                    let column = tile_column * OUT;
                    let columns = (run * OUT).min(phase_width.saturating_sub(column));
                    for row in 0..OUT {
                        let line = ((at.row + tile_row) * OUT + row) * dilation_rows + at.phase[0];
                        if line >= oh {
                            break;
                        }
                        let values = at.out.add(row * OUT * S::LANES + (tile - begin) * OUT);
                        if dilation_columns > 1 {
                            let place = [at.image, channel, 0, line, at.phase[1]];
                            let to = self.y.cast::<f32>().wrapping_add(plan.y.offset(place));
                            for i in 0..columns {
                                *to.add((column + i) * dilation_columns) = *values.add(i);
                            }
                            continue;
                        }
                        let to = if plan.native_y {
                            let place = [at.image, channel, 0, line, column];
                            self.y.cast::<f32>().add(plan.y.offset(place))
                        } else {
                            at.rows.add((line - at.row * OUT) * ow + column)
                        };
                        copy(s, Element::F32, values.cast_const().cast(), 0, 1, to, columns);
                    }
                    tile += run;
                }
            }
        }
        if !plan.native_y {
            let first_row = at.row * OUT;
            let count = (at.height * OUT).min(oh - first_row) * ow;
            let place = [at.image, channel, 0, first_row, 0];
            let block = Block { at: place, values: at.rows, channels: 1, pitch: count, count };
            // SAFETY: the loop above wrote all of the band's rows of the channel.
            unsafe { plan.finish.run(s, self.operands, self.y, block) };
        }
    }
}
