//! Dot products for outputs of few places: a filter, where it lies, times the input that a place reads, gathered to a row.
//!
//! Weights that are given at each run are packed for matrix products, which takes longer than these products where a weight is
//! used a few times only. A unit of work is all places, for some output channels of a group.

use super::band::inside;
use super::epilogue::{Block, Epilogue};
use super::naive::read;
use super::pack;
use super::problem::{Element, Layout, Problem, Shape};
use super::units::{InUnits, Unit};
use hipdnn_cpu_kernels::few_rows::{self, FewRows};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};

/// Maximum number of places of all images.
const MOST_PLACES: usize = 64;
/// Minimum number of output channels of a unit.
const CHANNELS: usize = 16;
/// Estimated cycles of a gathered value, of a dot product beside its terms, and of a result.
const GATHERED: f64 = 3.0;
const DOT: f64 = 12.0;
const RESULT: f64 = 4.0;
/// Bytes of weights that arrive in a cycle.
const STREAMED: f64 = 6.0;
/// Bytes of rows that stay near enough for every group of columns, and bytes of others that arrive in a cycle, with eight and with
/// sixteen lanes.
const NEAR_BYTES: usize = 128 << 10;
const REREAD: [f64; 2] = [24.0, 48.0];

#[derive(Debug)]
pub(super) struct FewPlaces {
    shape: Shape,
    x: Layout,
    isa: Isa,
    finish: Epilogue,
    /// True if the input that a place reads is one run of `f32` values in the order of the weights, for each image.
    in_place: bool,
    /// Output channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl FewPlaces {
    /// Plan for a problem of few places whose weights lie as correlation reads them.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<FewPlaces> {
        let shape = &problem.shape;
        let places = shape.batch * shape.pixels();
        if places > MOST_PLACES || !pack::Source::new(problem).plain() {
            return None;
        }
        let (kg, depth) = (shape.group_out(), shape.depth());
        let chunks = if threads == 1 { 1 } else { kg.div_ceil(CHANNELS).min(4 * threads) };
        let chunk = kg.div_ceil(chunks).next_multiple_of(few_rows::GROUP);
        let chunks = kg.div_ceil(chunk);
        let in_place = is_in_place(problem);
        let gather = if in_place { 0.0 } else { GATHERED * (places * depth) as f64 };
        // A vector of each column is loaded once for all rows of a block.
        let (blocks, steps) = (places.div_ceil(few_rows::ROWS), depth.div_ceil(isa.lanes()) as f64);
        let fmas = places as f64 * steps / 2.0;
        let loads = (blocks as f64 + places as f64 / few_rows::GROUP as f64) * steps / 2.0;
        let rows = 4 * places * depth;
        let reread =
            if rows > NEAR_BYTES { rows as f64 / few_rows::GROUP as f64 / REREAD[isa.lanes() / 16] } else { 0.0 };
        let sums = fmas.max(loads) + reread + (DOT + RESULT) * places as f64;
        let stream = (4 * depth) as f64 / STREAMED;
        let unit = 500.0 + gather + chunk.min(kg) as f64 * sums.max(stream);
        let units = shape.groups * chunks;
        Some(FewPlaces {
            shape: shape.clone(),
            x: problem.x,
            isa,
            finish: Epilogue::new(problem),
            in_place,
            chunk,
            chunks,
            cost: unit * units.div_ceil(threads) as f64,
        })
    }

    /// Number of places of all images.
    fn places(&self) -> usize {
        self.shape.batch * self.shape.pixels()
    }

    /// Values of the gathered rows.
    fn rows_len(&self) -> usize {
        if self.in_place { 0 } else { (self.places() * self.shape.depth()).next_multiple_of(16) }
    }

    /// Values of a unit's results, which are there twice: by place, and by channel.
    fn results_len(&self) -> usize {
        (self.places() * self.chunk + MAX_LANES).next_multiple_of(16)
    }
}

/// True if the input that an image's place reads is one run of `f32` values in the order of the weights.
fn is_in_place(problem: &Problem) -> bool {
    let (shape, strides) = (&problem.shape, problem.x.strides);
    let [_, channel, spatial @ ..] = Layout::packed(Element::F32, problem.x_sizes()).strides;
    let beside = |axis: usize| shape.input[axis] == 1 || strides[2 + axis] == spatial[axis];
    problem.x.element == Element::F32
        && shape.pixels() == 1
        && shape.kernel == shape.input
        && shape.pad_before == [0; 3]
        && (0..3).all(|axis| shape.dilation[axis] == 1 || shape.kernel[axis] == 1)
        && (0..3).all(beside)
        && (shape.in_channels == 1 || strides[1] == channel)
}

impl InUnits for FewPlaces {
    fn isa(&self) -> Isa {
        self.isa
    }

    fn units(&self) -> usize {
        self.shape.groups * self.chunks
    }

    fn slot(&self) -> usize {
        self.rows_len() + 2 * self.results_len() + self.chunk.next_multiple_of(16)
    }
}

impl Kernel for Unit<'_, FewPlaces> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (group, begin) = (self.unit / plan.chunks, self.unit % plan.chunks * plan.chunk);
        let (kg, depth) = (shape.group_out(), shape.depth());
        let channels = plan.chunk.min(kg - begin);
        let channel = group * kg + begin;
        let by_place = self.slot.wrapping_add(plan.rows_len());
        let by_channel = by_place.wrapping_add(plan.results_len());
        let bias = by_channel.wrapping_add(plan.results_len());
        // SAFETY: the slot has the parts' sizes, and the tensors are the problem's.
        unsafe {
            let (rows, pitch) = if plan.in_place {
                let group = group * shape.group_in() * plan.x.strides[1];
                (self.x.cast::<f32>().wrapping_add(group), plan.x.strides[0])
            } else {
                self.gather(group, self.slot);
                (self.slot.cast_const(), depth)
            };
            let weights = self.weights.wrapping_add(channel * depth);
            self.multiply(rows, pitch, weights, by_place, channels);
            plan.finish.fill_lists(None, self.operands, 0, channel, channels, bias, plan.chunk);
            self.add_biases(s, by_place, bias, channels);
            self.finish(s, channel, channels, by_place, by_channel);
        }
    }
}

impl Unit<'_, FewPlaces> {
    /// Copies the input that each place reads to a row, in the order of the weights, zero outside of the image.
    ///
    /// # Safety
    /// The input is the problem's; `to` takes the rows.
    unsafe fn gather(&self, group: usize, to: *mut f32) {
        let plan = self.plan;
        let (shape, x) = (&plan.shape, &plan.x);
        let [od, oh, ow] = shape.output;
        let (taps, depth) = (shape.taps(), shape.depth());
        let place = |axis: usize, output: usize, tap: usize| {
            let at = output * shape.stride[axis] + tap * shape.dilation[axis];
            inside(at, shape.pad_before[axis], shape.input[axis])
        };
        let mut row = to;
        for number in 0..plan.places() {
            let (q, rest) = (number % ow, number / ow);
            let (p, rest) = (rest % oh, rest / oh);
            let (z, n) = (rest % od, rest / od);
            let mut tap = row;
            for t in 0..shape.kernel[0] {
                let d = place(0, z, t);
                for r in 0..shape.kernel[1] {
                    let h = place(1, p, r);
                    for column in 0..shape.kernel[2] {
                        let at = match (d, h, place(2, q, column)) {
                            (Some(d), Some(h), Some(w)) => Some(x.offset([n, group * shape.group_in(), d, h, w])),
                            _ => None,
                        };
                        // SAFETY: the place is inside of the image, and the row has a value for each channel and tap.
                        unsafe { self.gather_channels(at, tap, taps) };
                        tap = tap.wrapping_add(1);
                    }
                }
            }
            row = row.wrapping_add(depth);
        }
    }

    /// Copies a place's input of all channels of a group from element `from` on, to every `taps`th value at `to`; zeros without one.
    ///
    /// # Safety
    /// The input has these channels, and the destination is their places'.
    #[inline(always)]
    unsafe fn gather_channels(&self, from: Option<usize>, to: *mut f32, taps: usize) {
        let (channels, x) = (self.plan.shape.group_in(), &self.plan.x);
        for c in 0..channels {
            // SAFETY: the caller's promise.
            unsafe {
                *to.add(c * taps) = match (from, x.element) {
                    (None, _) => 0.0,
                    (Some(from), Element::F32) => *self.x.cast::<f32>().add(from + c * x.strides[1]),
                    (Some(from), element) => read(element, self.x, from + c * x.strides[1]),
                };
            }
        }
    }

    /// Multiplies all rows with the filters of `channels` output channels: results by place.
    ///
    /// # Safety
    /// There are as many rows, `pitch` apart, and filters; `to` takes the results.
    unsafe fn multiply(&self, rows: *const f32, pitch: usize, weights: *const f32, to: *mut f32, channels: usize) {
        let (places, depth) = (self.plan.places(), self.plan.shape.depth());
        // SAFETY: the results.
        let sums = unsafe { std::slice::from_raw_parts_mut(to, places * channels) };
        let product = FewRows {
            a: rows,
            pitch,
            b: weights,
            stride: depth,
            rows: places,
            count: channels,
            depth,
            sums,
            sums_pitch: channels,
        };
        // SAFETY: the caller's promise.
        unsafe { product.by_columns(self.plan.isa) };
    }

    /// Adds the biases to results by place, and clamps them.
    ///
    /// # Safety
    /// The results are `channels` for each place, and so many biases can be read.
    #[inline(always)]
    unsafe fn add_biases<S: Simd>(&self, s: S, results: *mut f32, biases: *const f32, channels: usize) {
        let clamp = self.plan.finish.clamp;
        let (low, high) = (s.splat(clamp.0), s.splat(clamp.1));
        let mut row = 0;
        while row < self.plan.places() {
            let results = results.wrapping_add(row * channels);
            let mut i = 0;
            while i < channels {
                let lanes = (channels - i).min(S::LANES);
                // SAFETY: the caller's promise; the mask ends with the channels.
                unsafe {
                    let mask = s.mask(first(lanes));
                    let value = s.add(s.load_masked(mask, results.add(i)), s.load_masked(mask, biases.add(i)));
                    s.store_first(lanes, results.add(i), s.min(high, s.max(low, value)));
                }
                i += S::LANES;
            }
            row += 1;
        }
    }

    /// Computes the rest of the epilogue of results by place, and stores them in the output.
    ///
    /// # Safety
    /// The results are of `channels` output channels from `channel` on; `spare` takes as many.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, channel: usize, channels: usize, results: *mut f32, spare: *mut f32) {
        let shape = &self.plan.shape;
        let [od, oh, ow] = shape.output;
        let count = oh * ow;
        for plane in 0..shape.batch * od {
            let mut values = results.wrapping_add(plane * count * channels);
            if count > 1 {
                for i in 0..channels {
                    for place in 0..count {
                        // SAFETY: the caller's promise.
                        unsafe { *spare.add(i * count + place) = *values.add(place * channels + i) };
                    }
                }
                values = spare;
            }
            let at = [plane / od, channel, plane % od, 0, 0];
            let block = Block { at, values, channels, pitch: count, count };
            // SAFETY: the caller's promise.
            unsafe { self.plan.finish.run(s, self.operands, self.y, block) };
        }
    }
}
