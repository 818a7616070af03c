//! Convolution of images of few channels, as networks begin with: vectors run over output channels, and a tile is some
//! neighboring places of an output row by one or two vectors. Input values are broadcast from a padded copy of the rows
//! that a band of the output needs, in which the places' values of a tap are a constant distance apart, so that no
//! matrix of taps is made. Tiles are stored straight to the output, whose channels lie side by side.
//!
//! A unit of work is a band of output rows of an image.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{copy, inside, zero};
use super::epilogue::{self, Epilogue, InTile};
use super::problem::{Layout, Problem, Shape};
use super::row_tile::{RowAfter, clamp, finish};
use super::tile;
use super::units::{InUnits, Unit};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};

/// Places of a tile, and vectors of the wider one: with two vectors of weights and a value, fifteen registers.
const PLACES: usize = 6;
const VECTORS: usize = 2;

/// Maximum number of input channels, and minimum of output channels.
const MOST_CHANNELS: usize = 4;
const LEAST_OUTPUTS: usize = 8;

/// Maximum number of terms of a sum: the weights of a tile's channels stay in the first-level cache.
const MOST_TERMS: usize = 200;

/// Values of the copy of a band's input, which stays in the second-level cache with what passes through it.
const BAND: usize = (128 << 10) / size_of::<f32>();

/// Factors of the estimate for eight and for sixteen lanes, a fit to measured times.
const FITS: [f64; 2] = [1.0, 0.7];
/// Estimated cycles of a unit's beginning, of a tile's call and of each of its vectors of sums.
const UNIT: f64 = 400.0;
const CALL: f64 = 25.0;
const PER_SUM: f64 = 2.0;
/// Bytes a cycle of results that are written some lines of a place at a time.
const SCATTERED: f64 = 16.0;

#[derive(Debug)]
pub(super) struct Stem {
    shape: Shape,
    x: Layout,
    y: Layout,
    isa: Isa,
    finish: Epilogue,
    /// Epilogue behind bias and clamp.
    direct: InTile,
    steps: Vec<tile::Step>,
    /// Output rows of a unit, and number of units of an image.
    height: usize,
    bands: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl Stem {
    /// Makes the plan, if there are few enough input channels and terms, strides that tiles are made for, and an output that they are
    /// stored to.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<Stem> {
        let shape = &problem.shape;
        let applies = shape.groups == 1
            && shape.in_channels <= MOST_CHANNELS
            && shape.out_channels >= LEAST_OUTPUTS
            && (shape.input[0], shape.kernel[0], shape.output[0], shape.pad_before[0]) == (1, 1, 1, 0)
            && (shape.dilation[1], shape.dilation[2]) == (1, 1)
            && shape.stride[2] <= 2
            && shape.taps() > 1
            && shape.depth() <= MOST_TERMS;
        if !applies {
            return None;
        }
        let oh = shape.output[1];
        let finish = Epilogue::new(problem);
        let direct = finish.in_rows()?;
        let mut plan = Stem {
            x: problem.x,
            y: problem.y,
            isa,
            finish,
            steps: Vec::new(),
            direct,
            height: 1,
            bands: oh,
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        if plan.band_len(1) > BAND {
            return None;
        }
        plan.steps = epilogue::steps(Some(&plan.direct), plan.list_len());
        // As many rows as the copy has room for, since bands copy those that they share anew; but a few bands a thread.
        let least = (4 * threads).div_ceil(shape.batch).min(oh);
        plan.height = (1..=oh.div_ceil(least)).rev().find(|height| plan.band_len(*height) <= BAND).unwrap_or(1);
        plan.bands = oh.div_ceil(plan.height);
        plan.cost = plan.cycles(threads);
        Some(plan)
    }

    /// Estimated cycles of a run: the tiles' sums and calls, the copy, and how results get to the output. A fit to measured times.
    fn cycles(&self, threads: usize) -> f64 {
        let (shape, lanes) = (&self.shape, self.isa.lanes());
        let panels = shape.out_channels.div_ceil(lanes);
        let tile = |vectors: usize| {
            let step = tile::step_cycles((PLACES, vectors), false);
            shape.depth() as f64 * step + CALL + PER_SUM * (PLACES * vectors) as f64
        };
        let tiles = shape.output[2].div_ceil(PLACES) as f64;
        let sums = tiles * ((panels / VECTORS) as f64 * tile(VECTORS) + (panels % VECTORS) as f64 * tile(1));
        let row_bytes = (size_of::<f32>() * shape.output[2] * shape.out_channels) as f64;
        // A row of more channels is walked several times, some lines of each place at a time.
        let results = if panels > VECTORS { row_bytes / SCATTERED } else { 0.0 };
        let copy = (self.band_len(self.height) / lanes) as f64;
        let unit = UNIT + copy + self.height as f64 * (sums + results);
        FITS[lanes / 16] * unit * self.units().div_ceil(threads) as f64
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.isa.lanes()
    }

    /// Rows of the copy for `height` rows of the output, and values of one: whole tiles, of any memory saturating.
    fn band_sizes(&self, height: usize) -> (usize, usize) {
        let shape = &self.shape;
        let reach = |axis: usize, outputs: usize| (outputs - 1).saturating_mul(shape.stride[axis]) + shape.kernel[axis];
        (reach(1, height), reach(2, shape.output[2].next_multiple_of(PLACES)))
    }

    fn band_len(&self, height: usize) -> usize {
        let (rows, columns) = self.band_sizes(height);
        rows.saturating_mul(columns).saturating_mul(self.shape.in_channels)
    }

    /// Values of a per-channel list: whole vectors.
    fn list_len(&self) -> usize {
        self.shape.out_channels.next_multiple_of(self.isa.lanes())
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(Some(&self.direct), self.list_len()).next_multiple_of(MAX_LANES)
    }
}

impl InUnits for Stem {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.batch * self.bands
    }

    fn slot(&self) -> usize {
        self.lists_len() + self.band_len(self.height).next_multiple_of(MAX_LANES)
    }
}

impl Kernel for Unit<'_, Stem> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let [_, oh, ow] = shape.output;
        let (image, band) = (self.unit / plan.bands, self.unit % plan.bands);
        let first = band * plan.height;
        let copied = self.slot.wrapping_add(plan.lists_len());
        let (rows, columns) = plan.band_sizes(plan.height);
        let panels = shape.out_channels.div_ceil(S::LANES);
        // SAFETY: the slot has the lists and the copy behind each other, as long as `slot` says; image, rows
        // and channels are below the problem's numbers of them; panels have whole vectors of weights; the memory is the
        // caller's, as `run` of [`InUnits`] asks.
        unsafe {
            let (tile, channels) = (Some(&plan.direct), shape.out_channels);
            plan.finish.fill_lists(tile, self.operands, image, 0, channels, self.slot, plan.list_len());
            self.copy_band(s, image, first, copied);
            for row in first..oh.min(first + plan.height) {
                let mut panel = 0;
                while panel < panels {
                    let vectors = VECTORS.min(panels - panel);
                    let channel = panel * S::LANES;
                    let function = function::<S>(vectors, shape.stride[2]);
                    let mut tile = Tile {
                        x: copied.wrapping_add((row - first) * shape.stride[1] * columns),
                        channels: shape.in_channels,
                        channel: rows * columns,
                        kernel: (shape.kernel[1], shape.kernel[2]),
                        line: columns,
                        weights: self.weights.wrapping_add(channel * shape.depth()),
                        panel: S::LANES * shape.depth(),
                        bias: self.slot.wrapping_add(channel),
                        clamp: plan.finish.clamp,
                        after: RowAfter {
                            steps: &plan.steps,
                            values: self.slot.wrapping_add(plan.list_len() + channel),
                            summand: std::ptr::null(),
                            row: 0,
                            clamp: plan.direct.clamp,
                        },
                        to: self.y.cast::<f32>().wrapping_add(plan.y.offset([image, channel, 0, row, 0])),
                        place: plan.y.strides[4],
                        count: 0,
                        keep: (vectors * S::LANES).min(shape.out_channels - channel),
                    };
                    for place in (0..ow).step_by(PLACES) {
                        tile.count = PLACES.min(ow - place);
                        function(s, &tile);
                        tile.x = tile.x.wrapping_add(PLACES * shape.stride[2]);
                        tile.to = tile.to.wrapping_add(PLACES * tile.place);
                    }
                    panel += vectors;
                }
            }
        }
    }
}

impl Unit<'_, Stem> {
    /// Copies the input of a band whose first output row is `first`, padded.
    ///
    /// # Safety
    /// The image's input can be read, and `band_len(height)` values written at `to`.
    #[inline(always)]
    unsafe fn copy_band<S: Simd>(&self, s: S, image: usize, first: usize, to: *mut f32) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (rows, columns) = plan.band_sizes(plan.height);
        let [_, height, width] = shape.input;
        let strides = plan.x.strides;
        let left = shape.pad_before[2].min(columns);
        let count = width.min(columns - left);
        for channel in 0..shape.in_channels {
            for t in 0..rows {
                let to = to.wrapping_add((channel * rows + t) * columns);
                // SAFETY: a row of the copy is left border, `count` columns of a row of the input and the rest.
                unsafe {
                    let Some(line) = inside(first * shape.stride[1] + t, shape.pad_before[1], height) else {
                        zero(s, to, columns);
                        continue;
                    };
                    let from = image * strides[0] + channel * strides[1] + line * strides[3];
                    zero(s, to, left);
                    copy(s, plan.x.element, self.x, from, strides[4], to.wrapping_add(left), count);
                    zero(s, to.wrapping_add(left + count), columns - left - count);
                }
            }
        }
    }
}

/// Microkernel arguments: some places of an output row by one or two vectors of channels.
struct Tile<'a> {
    /// First place's first tap in the copy; number of input channels, and strides of these and of rows.
    x: *const f32,
    channels: usize,
    channel: usize,
    line: usize,
    /// Kernel rows and columns.
    kernel: (usize, usize),
    /// Weights: a vector for each input channel, kernel row and column; stride between vectors of output channels.
    weights: *const f32,
    panel: usize,
    /// Bias of each channel, and clamp bounds of the biased sums.
    bias: *const f32,
    clamp: (f32, f32),
    /// Epilogue behind bias and clamp.
    after: RowAfter<'a>,
    /// Destination of the first place's first vector, and stride of places.
    to: *mut f32,
    place: usize,
    /// Number of places and of channels to store.
    count: usize,
    keep: usize,
}

type TileFn<S> = unsafe fn(S, &Tile<'_>);

/// Function of tiles of so many vectors, with places so many columns apart.
fn function<S: Simd>(vectors: usize, stride: usize) -> TileFn<S> {
    match (vectors, stride) {
        (1, 1) => enter::<S, 1, 1>,
        (1, _) => enter::<S, 1, 2>,
        (_, 1) => enter::<S, VECTORS, 1>,
        (_, _) => enter::<S, VECTORS, 2>,
    }
}

/// # Safety
/// As in [`Tile`]: the copy has whole tiles; weights, bias and lists have whole vectors; the kept channels of the
/// counted places can be written.
unsafe fn enter<S: Simd, const V: usize, const SW: usize>(s: S, tile: &Tile<'_>) {
    s.call(Run::<V, SW>(tile));
}

struct Run<'a, const V: usize, const SW: usize>(&'a Tile<'a>);

impl<const V: usize, const SW: usize> Kernel for Run<'_, V, SW> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.0;
        let mut sums = [[s.splat(0.0); V]; PLACES];
        // SAFETY: `enter` passes its caller's duty on.
        unsafe {
            let mut weights = tile.weights;
            for channel in 0..tile.channels {
                for row in 0..tile.kernel.0 {
                    let mut x = tile.x.wrapping_add(channel * tile.channel + row * tile.line);
                    for _ in 0..tile.kernel.1 {
                        let mut factors = [s.splat(0.0); V];
                        for v in 0..V {
                            factors[v] = s.load(weights.wrapping_add(v * tile.panel));
                        }
                        for place in 0..PLACES {
                            let value = s.splat(*x.wrapping_add(place * SW));
                            for v in 0..V {
                                sums[place][v] = s.fma(value, factors[v], sums[place][v]);
                            }
                        }
                        x = x.wrapping_add(1);
                        weights = weights.wrapping_add(S::LANES);
                    }
                }
            }
            // An array of their own: where places are walked that may not be stored, the compiler keeps values in memory, and
            // would store these sums at every step. And only now: sums that begin with a large bias lose their own digits.
            let mut values = [[s.splat(0.0); V]; PLACES];
            for v in 0..V {
                let bias = s.load(tile.bias.wrapping_add(v * S::LANES));
                for place in 0..PLACES {
                    values[place][v] = s.add(sums[place][v], bias);
                }
            }
            clamp(s, tile.clamp, &mut values);
            finish(s, V * S::LANES, &tile.after, &mut values);
            for place in 0..PLACES {
                if place < tile.count {
                    for v in 0..V {
                        let to = tile.to.wrapping_add(place * tile.place + v * S::LANES);
                        let kept = tile.keep - v * S::LANES;
                        if kept >= S::LANES {
                            s.store(to, values[place][v]);
                        } else {
                            s.store_first(kept, to, values[place][v]);
                        }
                    }
                }
            }
        }
    }
}
