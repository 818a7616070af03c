//! Winograd's F(M×M, R×R) with vectors of channels in every transform.
//!
//! The formula is that of [`super::transforms`]: the terms of a product are the input channels of each phase of the stride that has it.
//! Tiles of all images are numbered through, and blocks of them go through two parallel loops: the first transforms the input into
//! V[frequency][tile][term], which all workers share; in the second a unit multiplies some of the tiles with some panels of output
//! channels, frequency by frequency, and transforms the products into the output. Where the channels of the input are apart, a unit
//! transposes what its tiles look at; where those of the output are, neighboring tiles' results are transposed on their way.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{inside, load_lanes, store_lanes, zero};
use super::epilogue::{self, Epilogue, InTile};
use super::indirect::{interleave, turn};
use super::pack::transform_cycles;
use super::problem::{Element, Layout, Problem, Shape};
use super::row_tile::{self, RowAfter, RowTile};
use super::transforms::{MAX_STRIDE, Tiling, load_products, store_frequencies, transform_input, transform_output};
use super::{Args, Send2, rounding, tile};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};
use hipdnn_cpu_simd::machine::{self, Class};
use hipdnn_cpu_threads::Pool;

/// Bytes of transformed input of a block, for each worker.
const INPUT_BYTES: usize = 1 << 20;
/// Bytes of an image's input and output beyond which planes come from memory.
const LARGE_IMAGE: f64 = 8e6;

/// Fits of the estimate to measured times.
struct Fits {
    /// Factors for inputs of planes, and for planes of a large image.
    planes: f64,
    large: f64,
    /// Factor for F(5×5, 2×2), for whose four phases there are four times as many transforms for a product as for F(4×4, 3×3).
    two_taps: f64,
    /// Cycles of the transforms of a tile of 8×8 inputs, in those of F(4×4, 3×3).
    squares: f64,
}

impl Fits {
    const fn of(class: Class) -> Fits {
        match class {
            Class::Eight => Fits { planes: 1.1, large: 1.0, two_taps: 0.85, squares: 2.0 },
            Class::Sixteen => Fits { planes: 1.1, large: 1.3, two_taps: 1.4, squares: 1.9 },
            Class::SixteenOfAmd => Fits { planes: 1.0, large: 1.0, two_taps: 1.0, squares: 1.9 },
            // The products take two cycles there, too.
            Class::HalvesOfAmd => Fits { planes: 1.0, large: 1.0, two_taps: 1.0, squares: 1.5 },
        }
    }
}

/// Bytes of transposed input of a unit.
const STAGED_BYTES: usize = 256 << 10;
/// Bytes of products of a unit that wait for their transforms: with fewer 512→512 3×3 on 30×30 takes 1.15 times as long on Zen 3.
const PRODUCT_BYTES: usize = 512 << 10;
/// Bytes of transformed weights that stay in the second-level cache.
const WEIGHTS_BYTES: usize = 768 << 10;
/// Bytes of transformed weights that arrive in a cycle from behind that cache: from a cache that the cores of a die share, as on
/// AMD's CPUs, for weights of up to so many bytes; for CPUs of eight and of sixteen lanes. Of the former, Zen 3 has 32 MiB for eight cores,
/// some of which may be other virtual machines'.
const FROM_DIE: [[(usize, f64); 2]; 2] = [[(10 << 20, 24.0), (24 << 20, 6.0)], [(12 << 20, 24.0), (24 << 20, 12.0)]];
/// The same from memory behind that cache, for CPUs of eight and of sixteen lanes, which have slower and faster memory.
const FROM_MEMORY: [f64; 2] = [5.0, 9.0];
/// The same where caches are across a mesh and a core's own has some 2 MiB, as on Intel's CPUs, and from what is behind.
const FROM_MESH: [(usize, f64); 2] = [(2 << 20, 24.0), (8 << 20, 10.0)];
const FROM_BEHIND_MESH: f64 = 5.0;
/// Estimated cycles of the transforms of a tile of F(2×2, 3×3), in those of F(4×4, 3×3).
const SMALL: f64 = 0.4;
/// Estimated cycles of the output transform of M×M outputs of 6×6 products, in those of 4×4: at least so many, and more for each M.
const OUTPUTS: (f64, f64) = (0.4, 0.15);
/// Maximum number of tiles of a unit.
const MAX_TILES: usize = 56;

#[derive(Debug)]
pub(super) struct WinogradRows {
    shape: Shape,
    x: Layout,
    y: Layout,
    /// True for an input, and an output, whose channels are apart.
    planes: [bool; 2],
    isa: Isa,
    finish: Epilogue,
    follow: InTile,
    steps: Vec<tile::Step>,
    /// Activation behind them, of all results of neighboring tiles; where they are not transposed, it is a step.
    tail: Option<Activation>,
    tiling: Tiling,
    /// Maximum microkernel tile of the products: places and vectors.
    size: (usize, usize),
    /// Number of tiles of an image, down and across.
    down: usize,
    across: usize,
    /// Number of tiles of a block.
    block: usize,
    /// Number of tiles of a unit of the first loop.
    inputs: usize,
    /// Number of tiles of a unit of the second loop.
    tiles: usize,
    /// Panels of channels of a unit, and number of units of channels.
    chunk: usize,
    chunks: usize,
    /// Panels whose products with the tiles' terms of a frequency are computed one after the other.
    bundle: usize,
    /// Estimated cycles of a run.
    pub(super) cost: f64,
}

impl WinogradRows {
    /// Makes the plan for a problem, with the tiles that are expected to be the fastest, if the algorithm serves it: channels or columns
    /// lie side by side in the input, and either in the output and its summand.
    pub(super) fn new(problem: &Problem, threads: usize, isa: Isa) -> Option<WinogradRows> {
        let plans =
            Tiling::of(&problem.shape).filter_map(|tiling| WinogradRows::of_tiles(tiling, problem, threads, isa));
        plans.min_by(|one, other| one.cost.total_cmp(&other.cost))
    }

    /// Makes the plan with tiles that serve the problem's shape.
    pub(super) fn of_tiles(tiling: Tiling, problem: &Problem, threads: usize, isa: Isa) -> Option<WinogradRows> {
        let outputs = tiling.outputs;
        let frequencies = tiling.frequencies();
        let shape = &problem.shape;
        let planes = [&problem.x, &problem.y].map(|layout| layout.strides[1] != 1);
        let beside = |planes: bool, layout: &Layout| layout.strides[if planes { 4 } else { 1 }] == 1;
        let served = beside(planes[0], &problem.x) && beside(planes[1], &problem.y);
        if !served {
            return None;
        }
        let lanes = isa.lanes();
        let (down, across) = (shape.output[1].div_ceil(outputs), shape.output[2].div_ceil(outputs));
        let (cg, kg) = (shape.group_in(), shape.group_out());
        let terms = tiling.phases() * cg;
        // Products of a tile for an output channel, and weights of one.
        let of_channel = tiling.products() * cg;
        let all_weights = size_of::<f32>() * shape.groups * of_channel * kg;
        let (near, behind) = match machine::is_amd() {
            true => (FROM_DIE[lanes / 16], FROM_MEMORY[lanes / 16]),
            false => (FROM_MESH, FROM_BEHIND_MESH),
        };
        let rate = near.iter().find(|(bytes, _)| all_weights <= *bytes).map_or(behind, |(_, rate)| *rate);
        // Rows of many planes are far apart in memory.
        let bytes = |channels: usize, sizes: [usize; 3]| (size_of::<f32>() * channels * sizes[1] * sizes[2]) as f64;
        let image = bytes(shape.in_channels, shape.input) + bytes(shape.out_channels, shape.output);
        let fits = Fits::of(Class::of(lanes));
        let far = match planes[0] {
            true if image > LARGE_IMAGE => fits.planes * fits.large,
            true => fits.planes,
            false => 1.0,
        };
        let fit = far * if tiling.taps() == 2 { fits.two_taps } else { 1.0 };
        let finish = Epilogue::new(problem);
        let mut follow = finish.with_summand(|layout| beside(planes[1], layout))?;
        let tail = if planes[1] { follow.take_tail() } else { None };
        let all = shape.batch * down * across;
        let tile_bytes = 4 * frequencies * terms.next_multiple_of(lanes);
        let block = (INPUT_BYTES * threads / tile_bytes).clamp(MAX_TILES.min(all), all);
        // Of planes, no more neighboring tiles than those whose transposed input stays in the cache: so many bytes for each column of
        // a phase.
        let columns_bytes = size_of::<f32>() * tiling.side() * terms;
        let near = match planes[0] {
            true => ((STAGED_BYTES / columns_bytes).saturating_sub(tiling.taps() - 1) / outputs).max(1),
            false => block,
        };
        let mut plan = WinogradRows {
            x: problem.x,
            y: problem.y,
            planes,
            isa,
            finish,
            follow,
            steps: Vec::new(),
            tail,
            tiling,
            size: (1, 1),
            down,
            across,
            block,
            inputs: block.div_ceil(2 * threads).min(8).min(near),
            tiles: 1,
            chunk: 1,
            chunks: 1,
            bundle: 1,
            cost: f64::INFINITY,
            shape: shape.clone(),
        };
        // Cycles of a vector's transforms: of the input's tiles, and of the output's.
        let (input, output) = match tiling.side() {
            4 => (SMALL, SMALL),
            6 => (1.0, OUTPUTS.0 + OUTPUTS.1 * outputs as f64),
            _ => (fits.squares, fits.squares * (OUTPUTS.0 + OUTPUTS.1 * outputs as f64)),
        };
        let input = input * if planes[0] { 270.0 } else { 190.0 };
        let output = output * if planes[1] { 240.0 } else { 170.0 };
        let input_vectors = plan.runs() * plan.run_len().div_ceil(lanes);
        for size in row_tile::sizes(lanes) {
            let (rows, vectors) = size;
            let panels = kg.div_ceil(vectors * lanes);
            let passes = row_tile::panel_cycles(lanes, vectors, of_channel / frequencies);
            for groups in 1..=MAX_TILES.div_ceil(rows) {
                let tiles = (groups * rows).min(block);
                let passes = if groups > 1 { passes } else { 0.0 };
                let step = |rows: usize| tile::step_cycles((rows, vectors), false).max(passes);
                for chunks in [1, 2, 3, 4, 6, 8, 12, 16, 32] {
                    if chunks > panels || chunks > 4 * threads {
                        break;
                    }
                    let chunk = panels.div_ceil(chunks);
                    let chunks = panels.div_ceil(chunk);
                    let rest = tiles - (tiles - 1) / rows * rows;
                    let sum = of_channel as f64 * (((tiles - 1) / rows) as f64 * step(rows) + step(rest));
                    let call = tiles.div_ceil(rows) as f64 * (40.0 + (rows * vectors) as f64 * 1.5);
                    let products = chunk as f64 * (sum + frequencies as f64 * call);
                    let output = (tiles * chunk * vectors) as f64 * output;
                    let weights = (of_channel * chunk * vectors * lanes * 4) as f64;
                    let stream = if chunks as f64 * weights > WEIGHTS_BYTES as f64 { weights / rate } else { 0.0 };
                    let unit = 800.0 + output + products.max(stream) + 0.3 * products.min(stream);
                    let of_block = |tiles_of_block: usize| {
                        let units = tiles_of_block.div_ceil(tiles) * chunks;
                        let input = (tiles_of_block * input_vectors) as f64 * input / threads as f64;
                        2000.0 + input + unit * units.div_ceil(threads) as f64
                    };
                    let rest = if all.is_multiple_of(block) { 0.0 } else { of_block(all % block) };
                    let of_group = (all / block) as f64 * of_block(block) + rest;
                    let cost = fit * shape.groups as f64 * of_group;
                    if cost < plan.cost {
                        plan = WinogradRows { cost, size, tiles, chunk, chunks, ..plan };
                    }
                }
            }
        }
        plan.cost += transform_cycles(problem, &tiling, threads, isa);
        let of_panel = size_of::<f32>() * frequencies * plan.tiles * plan.panel();
        plan.bundle = (PRODUCT_BYTES / of_panel).clamp(1, plan.chunk);
        plan.steps = epilogue::steps(Some(&plan.follow), plan.list_len());
        Some(plan)
    }

    /// Numbers of panels of a chunk and of a bundle.
    #[cfg(test)]
    pub(super) fn panels(&self) -> [usize; 2] {
        [self.chunk, self.bundle]
    }

    /// Name of the algorithm.
    pub(super) fn name(&self) -> &'static str {
        match (self.tiling.outputs, self.tiling.taps()) {
            (5, 2) => "winograd F(5×5, 2×2)",
            (2, 3) => "winograd F(2×2, 3×3)",
            (4, 3) => "winograd F(4×4, 3×3)",
            (3, 4) => "winograd F(3×3, 4×4)",
            (5, 4) => "winograd F(5×5, 4×4)",
            (2, 5) => "winograd F(2×2, 5×5)",
            (4, 5) => "winograd F(4×4, 5×5)",
            (2, 7) => "winograd F(2×2, 7×7)",
            _ => unreachable!("tilings are chosen among those that there are"),
        }
    }

    /// Tiles of the plan.
    pub(super) fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// Number of frequencies.
    fn frequencies(&self) -> usize {
        self.tiling.frequencies()
    }

    /// Number of a tile's terms: input channels of each phase.
    fn terms(&self) -> usize {
        self.tiling.phases() * self.shape.group_in()
    }

    /// Number of runs of terms that lie side by side in the input: where it is transposed, those of neighboring columns do.
    fn runs(&self) -> usize {
        self.terms() / self.run_len()
    }

    /// Number of terms of a run.
    fn run_len(&self) -> usize {
        self.shape.group_in() * if self.planes[0] { self.tiling.stride } else { 1 }
    }

    /// Output channels of a weight panel.
    pub(super) fn panel(&self) -> usize {
        self.size.1 * self.isa.lanes()
    }

    /// Values of a tile's terms in V: whole vectors, the last run's too.
    fn row(&self) -> usize {
        let (lanes, run) = (self.isa.lanes(), self.run_len());
        (self.terms() - run + run.next_multiple_of(lanes)).next_multiple_of(lanes)
    }

    /// Stride between frequencies of V: not a multiple of a page, as that would put all of them in the same cache sets.
    fn frequency(&self) -> usize {
        self.block * self.row() + 16
    }

    /// Scratch that the workers share, in `f32` values.
    pub(super) fn shared(&self) -> usize {
        self.frequencies() * self.frequency()
    }

    /// Values of a per-channel list of a unit.
    fn list_len(&self) -> usize {
        self.chunk * self.panel()
    }

    fn lists_len(&self) -> usize {
        epilogue::lists_len(Some(&self.follow), self.list_len()).next_multiple_of(16)
    }

    /// Stride between frequencies of the products.
    fn product(&self) -> usize {
        self.bundle * self.tiles * self.panel() + 16
    }

    /// Columns of the padded input that neighboring tiles look at.
    fn columns(&self, tiles: usize) -> usize {
        self.tiling.stride * (self.tiling.outputs * tiles + self.tiling.taps() - 1)
    }

    /// Values of the transposed input of a unit.
    fn staged_len(&self) -> usize {
        let lines = self.tiling.stride * self.tiling.side();
        if self.planes[0] { lines * self.columns(self.inputs) * self.shape.group_in() } else { 0 }
    }

    /// Maximum number of neighboring tiles whose results are transposed together: a row of theirs is whole vectors.
    fn neighbors(&self) -> usize {
        let mut tiles = 1;
        while !(tiles * self.tiling.outputs).is_multiple_of(self.isa.lanes()) {
            tiles *= 2;
        }
        tiles
    }

    /// Values of these results: rows of places, each of a vector of channels; squares of them reach past the last row.
    fn strip_len(&self) -> usize {
        let (outputs, lanes) = (self.tiling.outputs, self.isa.lanes());
        if self.planes[1] { (outputs * self.neighbors() * outputs + lanes) * lanes } else { 0 }
    }

    /// Scratch of a worker, in `f32` values: that of a unit of either loop.
    pub(super) fn slot(&self) -> usize {
        let output = self.lists_len() + self.frequencies() * self.product() + self.strip_len();
        output.max(self.staged_len())
    }

    /// # Safety
    /// As for [`super::ConvolutionPlan::run`], with transformed `weights`, `shared` scratch and scratch of `workers` slots.
    pub(super) unsafe fn run(
        &self,
        pool: &Pool,
        workers: usize,
        args: &Args<'_>,
        weights: *const f32,
        shared: *mut f32,
        slots: *mut f32,
    ) {
        let tensors = Send2(args.x, args.y);
        let scratch = Send2(weights.cast(), slots.cast());
        let operands = Send2(args.operands.as_ptr().cast(), shared.cast());
        let all = self.shape.batch * self.down * self.across;
        for group in 0..self.shape.groups {
            for begin in (0..all).step_by(self.block) {
                let block = begin..(begin + self.block).min(all);
                let part = |worker: usize| Part {
                    plan: self,
                    x: tensors.x(),
                    y: tensors.y(),
                    weights: scratch.x().cast(),
                    operands: operands.x().cast(),
                    v: operands.y().cast(),
                    slot: scratch.y().cast::<f32>().wrapping_add(worker * self.slot()),
                    group,
                    block: block.clone(),
                };
                // SAFETY: the caller's duty.
                unsafe {
                    match (self.tiling.outputs, self.tiling.side()) {
                        (2, 4) => self.run_block::<2, 4>(pool, workers, &part),
                        (2, 6) => self.run_block::<2, 6>(pool, workers, &part),
                        (3, 6) => self.run_block::<3, 6>(pool, workers, &part),
                        (4, 6) => self.run_block::<4, 6>(pool, workers, &part),
                        (2, 8) => self.run_block::<2, 8>(pool, workers, &part),
                        (4, 8) => self.run_block::<4, 8>(pool, workers, &part),
                        (5, 6) => self.run_block::<5, 6>(pool, workers, &part),
                        (5, 8) => self.run_block::<5, 8>(pool, workers, &part),
                        _ => unreachable!("tilings are chosen among those that there are"),
                    }
                }
            }
        }
    }

    /// Runs both loops for a block, with tiles of M×M outputs and N×N inputs; `part`: the block, as a worker sees it.
    ///
    /// # Safety
    /// As of [`WinogradRows::run`], with the addresses of `part`.
    unsafe fn run_block<'a, const M: usize, const N: usize>(
        &self,
        pool: &Pool,
        workers: usize,
        part: &(dyn Fn(usize) -> Part<'a> + Sync),
    ) {
        let tiles = part(0).block.len();
        pool.run_indexed(tiles.div_ceil(self.inputs), workers, &|worker, unit| {
            self.isa.run(Input::<N>(part(worker), unit));
        });
        pool.run_indexed(tiles.div_ceil(self.tiles) * self.chunks, workers, &|worker, unit| {
            self.isa.run(Output::<M, N>(part(worker), unit));
        });
    }
}

/// Work of a block, as one worker sees it.
struct Part<'a> {
    plan: &'a WinogradRows,
    x: *const u8,
    y: *mut u8,
    weights: *const f32,
    operands: *const *const u8,
    v: *mut f32,
    slot: *mut f32,
    group: usize,
    /// Tiles of the block.
    block: std::ops::Range<usize>,
}

/// A unit of the first loop, for tiles of N×N inputs.
struct Input<'a, const N: usize>(Part<'a>, usize);

impl<const N: usize> Kernel for Input<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Input(part, unit) = self;
        let plan = part.plan;
        let begin = part.block.start + unit * plan.inputs;
        let end = (begin + plan.inputs).min(part.block.end);
        let mut tile = begin;
        while tile < end {
            // Tiles of a row share columns.
            let row_end = end.min((tile / plan.across + 1) * plan.across);
            // SAFETY: the tiles are some of the block's, whose V has room for them; the slot is the unit's.
            unsafe {
                let staged = match plan.planes[0] {
                    true => Some(part.stage(s, tile..row_end)),
                    false => None,
                };
                while tile < row_end {
                    match (&staged, plan.x.element) {
                        (None, Element::F32) => part.transform::<S, N, true>(s, tile, &part.image(tile)),
                        (None, _) => part.transform::<S, N, false>(s, tile, &part.image(tile)),
                        (Some(staged), _) => part.transform::<S, N, true>(s, tile, staged),
                    }
                    tile += 1;
                }
            }
        }
    }
}

/// A unit of the second loop, for tiles of M×M outputs and N×N inputs.
struct Output<'a, const M: usize, const N: usize>(Part<'a>, usize);

impl<const M: usize, const N: usize> Kernel for Output<'_, M, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Output(part, unit) = self;
        let plan = part.plan;
        let (chunk, group_of_tiles) = (unit % plan.chunks, unit / plan.chunks);
        let begin = part.block.start + group_of_tiles * plan.tiles;
        let tiles = begin..(begin + plan.tiles).min(part.block.end);
        let width = plan.panel();
        let kg = plan.shape.group_out();
        let panels = chunk * plan.chunk..((chunk + 1) * plan.chunk).min(kg.div_ceil(width));
        let products = part.slot.wrapping_add(plan.lists_len());
        let float = !rounding::is_wanted(&plan.y, &plan.follow);
        let (vectors, neighbors) = (plan.size.1, plan.neighbors());
        let mut panel = panels.start;
        // SAFETY: the slot has the parts' sizes; the rest is the caller's duty.
        unsafe {
            let mut image = usize::MAX;
            while panel < panels.end {
                let number = (panel - panels.start) % plan.bundle;
                if number == 0 {
                    part.multiply(s, &tiles, panel..panels.end.min(panel + plan.bundle), products);
                }
                let products = products.wrapping_add(number * plan.tiles * width);
                let list = part.slot.wrapping_add((panel - panels.start) * width);
                let mut tile = tiles.start;
                while tile < tiles.end {
                    let of = tile / (plan.down * plan.across);
                    if of != image {
                        part.fill_lists(&panels, of);
                        image = of;
                    }
                    let neighbors = match plan.planes[1] {
                        true => neighbors.min(tiles.end - tile).min(plan.across - tile % plan.across),
                        false => 1,
                    };
                    let place = part.place(tile);
                    for vector in 0..vectors {
                        let lane = vector * S::LANES;
                        let channel = panel * width + lane;
                        if channel < kg {
                            let from = products.wrapping_add((tile - tiles.start) * width + lane);
                            let list = list.wrapping_add(lane);
                            match (plan.planes[1], float) {
                                (false, true) => part.output::<S, M, N, true>(s, place, channel, from, list),
                                (false, false) => part.output::<S, M, N, false>(s, place, channel, from, list),
                                (true, true) => {
                                    part.output_planes::<S, M, N, true>(s, place, neighbors, channel, from, list)
                                }
                                (true, false) => {
                                    part.output_planes::<S, M, N, false>(s, place, neighbors, channel, from, list)
                                }
                            }
                        }
                    }
                    tile += neighbors;
                }
                panel += 1;
            }
        }
    }
}

impl Part<'_> {
    /// Coordinates of a tile's outputs: image, first row and first column.
    #[inline(always)]
    fn place(&self, tile: usize) -> (usize, usize, usize) {
        let plan = self.plan;
        let (image, tile) = (tile / (plan.down * plan.across), tile % (plan.down * plan.across));
        (image, tile / plan.across * plan.tiling.outputs, tile % plan.across * plan.tiling.outputs)
    }

    /// The input, as tiles of an image look at it.
    #[inline(always)]
    fn image(&self, tile: usize) -> Image {
        let plan = self.plan;
        let (image, _, _) = self.place(tile);
        let [of_image, _, _, line, column] = plan.x.strides;
        let from = image * of_image + self.group * plan.shape.group_in();
        let Shape { pad_before, input, .. } = &plan.shape;
        Image {
            element: plan.x.element,
            x: self.x,
            from,
            first: [0; 2],
            pad: pad_before[2],
            width: input[2],
            line,
            column,
        }
    }

    /// Transposes what neighboring tiles of a row look at: a row of the input has a row of scratch memory, padded, with the channels of a
    /// column side by side.
    ///
    /// # Safety
    /// The input can be read; the slot is the unit's.
    #[inline(always)]
    unsafe fn stage<S: Simd>(&self, s: S, tiles: std::ops::Range<usize>) -> Image {
        let plan = self.plan;
        let shape = &plan.shape;
        let stride = plan.tiling.stride;
        let (image, row, column) = self.place(tiles.start);
        let [_, height, width] = shape.input;
        let [_, pad_rows, pad_columns] = shape.pad_before;
        let [of_image, of_channel, _, of_line, _] = plan.x.strides;
        let (cg, columns) = (shape.group_in(), plan.columns(tiles.len()));
        let top = (stride * row).saturating_sub(pad_rows);
        let bottom = (stride * (row + plan.tiling.side())).saturating_sub(pad_rows).min(height);
        // Columns before the input's, and those of the input.
        let left = stride * column;
        let before = pad_columns.saturating_sub(left).min(columns);
        let begin = left.saturating_sub(pad_columns).min(width);
        let real = (left + columns).saturating_sub(pad_columns).min(width).saturating_sub(begin);
        let first = image * of_image + self.group * cg * of_channel + begin;
        let mut line = top;
        while line < bottom {
            let [to, inner, behind] =
                [0, before, before + real].map(|column| self.slot.wrapping_add(((line - top) * columns + column) * cg));
            let from = first + line * of_line;
            // SAFETY: columns of a row of the input; the slot has as many rows of as many columns.
            unsafe {
                zero(s, to, before * cg);
                match cg {
                    3 => interleave(s, plan.x.element, self.x, [0, 1, 2].map(|c| from + c * of_channel), real, inner),
                    _ => turn(s, &plan.x, self.x, from, 1, [cg, real], (inner, cg)),
                }
                zero(s, behind, (columns - before - real) * cg);
            }
            line += 1;
        }
        let (line, column) = (columns * cg, cg);
        let x = self.slot.cast_const().cast();
        Image { element: Element::F32, x, from: 0, first: [top, left], pad: 0, width: columns, line, column }
    }

    /// Transforms a tile's input to V; `FLOAT`: the input is `f32`.
    #[inline(always)]
    unsafe fn transform<S: Simd, const N: usize, const FLOAT: bool>(&self, s: S, tile: usize, input: &Image) {
        let plan = self.plan;
        let shape = &plan.shape;
        let (_, row, column) = self.place(tile);
        // Once: the compiler would compute them again after each store.
        let (run, runs, stride, frequency) = (plan.run_len(), plan.runs(), plan.tiling.stride, plan.frequency());
        let (x, element, from) = (input.x, input.element, input.from);
        let to = self.v.wrapping_add((tile - self.block.start) * plan.row());
        // Runs of a row of phases: one where neighboring columns are one run, else each phase's.
        let across = runs / stride;
        // A run's last vector may reach into the next one's places, which is written then.
        for number in 0..runs {
            let (phase_row, phase_column) = (number / across, number % across);
            let mut rows = [None; N];
            let mut columns = [None; N];
            for i in 0..N {
                rows[i] = inside(stride * (row + i) + phase_row, shape.pad_before[1], shape.input[1])
                    .map(|line| (line - input.first[0]) * input.line);
                columns[i] = inside(stride * (column + i) + phase_column - input.first[1], input.pad, input.width)
                    .map(|place| place * input.column);
            }
            let mut c = 0;
            while c < run {
                let lanes = (run - c).min(S::LANES);
                let mask = s.mask(first(lanes));
                let mut d = [[s.splat(0.0); N]; N];
                for j in 0..N {
                    let mut values = [s.splat(0.0); N];
                    if let Some(place) = columns[j] {
                        for i in 0..N {
                            if let Some(line) = rows[i] {
                                let from = from + line + place + c;
                                // SAFETY: the place is the input's, the lanes are its channels.
                                values[i] = unsafe {
                                    match FLOAT {
                                        true => s.load_masked(mask, x.cast::<f32>().wrapping_add(from)),
                                        false => load_lanes(s, element, x, from, lanes),
                                    }
                                };
                            }
                        }
                    }
                    let values = transform_input(s, values);
                    for i in 0..N {
                        d[i][j] = values[i];
                    }
                }
                // SAFETY: the last run's last vector ends within the tile's terms in V, those before it too.
                unsafe { store_frequencies(s, d, to.wrapping_add(number * run + c), frequency) };
                c += S::LANES;
            }
        }
    }

    /// Channels of some panels: the first one and their number.
    #[inline(always)]
    fn channels(&self, panels: &std::ops::Range<usize>) -> (usize, usize) {
        let kg = self.plan.shape.group_out();
        let width = self.plan.panel();
        (self.group * kg + panels.start * width, (panels.end * width).min(kg) - panels.start * width)
    }

    /// Fills bias and operand lists of the steps in registers, for an image.
    #[inline(always)]
    unsafe fn fill_lists(&self, panels: &std::ops::Range<usize>, image: usize) {
        let plan = self.plan;
        let (channel, count) = self.channels(panels);
        let (follow, len) = (Some(&plan.follow), plan.list_len());
        // SAFETY: the operands are those of the problem; the slot begins with the lists.
        unsafe { plan.finish.fill_lists(follow, self.operands, image, channel, count, self.slot, len) };
    }

    /// Computes the products of some tiles with a bundle of panels of weights, for all frequencies.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(
        &self,
        s: S,
        tiles: &std::ops::Range<usize>,
        bundle: std::ops::Range<usize>,
        products: *mut f32,
    ) {
        let plan = self.plan;
        let (width, rows) = (plan.panel(), plan.size.0);
        // Once: the compiler would compute them again for each tile.
        let (frequencies, of_frequency, row) = (plan.frequencies(), plan.frequency(), plan.row());
        let of_products = plan.product();
        let panels = plan.shape.group_out().div_ceil(width);
        let channels = plan.shape.group_in();
        let of_panel = plan.tiling.products() * channels * width;
        let weights = self.weights.wrapping_add((self.group * panels + bundle.start) * of_panel);
        let (bundle, of_tiles) = (bundle.len(), plan.tiles * width);
        let (side, stride) = (plan.tiling.side(), plan.tiling.stride);
        let first_tile = tiles.start - self.block.start;
        let whole = row_tile::function::<S>(plan.size);
        let mut pointers = [std::ptr::null::<f32>(); MAX_STRIDE * row_tile::MAX_ROWS];
        for frequency in 0..frequencies {
            let v = self.v.wrapping_add(frequency * of_frequency + first_tile * row);
            // Phases that have products of the frequency: those of a row of them lie side by side, and whole rows do.
            let (i, j) = (frequency / side, frequency % side);
            let (down, across) = (plan.tiling.phases_of(i), plan.tiling.phases_of(j));
            let (taps, run) = if across == stride { (1, down * across) } else { (down, across) };
            let b_frequency = weights.wrapping_add(plan.tiling.products_before(i, j) * channels * width);
            let to = products.wrapping_add(frequency * of_products);
            let (mut panel, mut tile) = (0, 0);
            while panel < bundle {
                let b = b_frequency.wrapping_add(panel * of_panel);
                let count = rows.min(tiles.len() - tile);
                for tap in 0..taps {
                    for i in 0..count {
                        pointers[tap * count + i] = v.wrapping_add((tile + i) * row + tap * stride * channels);
                    }
                }
                let job = RowTile {
                    channels: run * channels,
                    taps,
                    rows: pointers.as_ptr(),
                    b,
                    bias: std::ptr::null(),
                    clamp: tile::NO_CLAMP,
                    to: to.wrapping_add(panel * of_tiles + tile * width),
                    row: width,
                    keep: width,
                    after: None,
                };
                let function = if count == rows { whole } else { row_tile::function::<S>((count, plan.size.1)) };
                // SAFETY: V has the tiles, the weights the frequency, and the slot room for the products.
                unsafe { function(s, &job) };
                tile += count;
                if tile == tiles.len() {
                    (panel, tile) = (panel + 1, 0);
                }
            }
        }
    }

    /// Transforms a vector of channels of a tile's products, and computes the epilogue up to its summand. `list` is the address of the
    /// first channel's bias; the lists of steps follow.
    ///
    /// # Safety
    /// The products of the tile from `from` on, and the lists, can be read.
    #[inline(always)]
    unsafe fn results<S: Simd, const M: usize, const N: usize>(
        &self,
        s: S,
        keep: usize,
        from: *const f32,
        list: *const f32,
    ) -> [[[S::V; 1]; M]; M] {
        let plan = self.plan;
        // SAFETY: the products' places; the lists' values.
        unsafe {
            let half: [[S::V; N]; M] = load_products(s, from, plan.product());
            let (low, high) = (s.splat(plan.finish.clamp.0), s.splat(plan.finish.clamp.1));
            let bias = s.load(list);
            let mut sums = [[[s.splat(0.0); 1]; M]; M];
            for i in 0..M {
                let values: [S::V; M] = transform_output(s, half[i]);
                for j in 0..M {
                    sums[i][j] = [s.min(high, s.max(low, s.add(values[j], bias)))];
                }
            }
            if !plan.follow.is_empty() {
                let after = RowAfter {
                    steps: &plan.steps,
                    values: list.wrapping_add(plan.list_len()),
                    summand: std::ptr::null(),
                    row: 0,
                    clamp: plan.follow.clamp_before_summand(),
                };
                row_tile::finish(s, keep, &after, sums.as_flattened_mut());
            }
            sums
        }
    }

    /// Elements of output and summand at `place`.
    #[inline(always)]
    fn corners(&self, place: [usize; 5]) -> [Corner; 2] {
        let plan = self.plan;
        let of = |layout: &Layout| Corner { first: layout.offset(place), strides: layout.strides };
        [of(&plan.y), plan.follow.summand.as_ref().map_or(Corner::default(), |(_, layout)| of(layout))]
    }

    /// Adds the summand, if there is one, to `lanes` neighboring results, clamps them then, and stores them. `to`, `from`: elements of
    /// output and summand. `FLOAT`: both are `f32`.
    ///
    /// # Safety
    /// Those are elements of the output, and of the summand.
    #[inline(always)]
    unsafe fn store<S: Simd, const FLOAT: bool>(&self, s: S, [to, from]: [usize; 2], value: S::V, lanes: usize) {
        let plan = self.plan;
        let mut value = value;
        // SAFETY: the caller's duty: elements of the output, and of the summand.
        unsafe {
            if let Some((operand, layout)) = &plan.follow.summand {
                let p = *self.operands.add(*operand);
                let other = match FLOAT {
                    true if lanes == S::LANES => s.load(p.cast::<f32>().wrapping_add(from)),
                    true => s.load_masked(s.mask(first(lanes)), p.cast::<f32>().wrapping_add(from)),
                    false => load_lanes(s, layout.element, p, from, lanes),
                };
                let (low, high) = (s.splat(plan.follow.clamp.0), s.splat(plan.follow.clamp.1));
                value = s.min(high, s.max(low, s.add(value, other)));
            }
            match FLOAT {
                true => s.store_first(lanes, self.y.cast::<f32>().wrapping_add(to), value),
                false => store_lanes(s, plan.y.element, self.y, to, value, lanes),
            }
        }
    }

    /// Transforms a vector of channels, from `channel` of the group on, of a tile's products to the output. The tile is that at an image's
    /// row and column.
    ///
    /// # Safety
    /// As of [`Part::results`]; output and summand can be accessed.
    #[inline(always)]
    unsafe fn output<S: Simd, const M: usize, const N: usize, const FLOAT: bool>(
        &self,
        s: S,
        (image, row, column): (usize, usize, usize),
        channel: usize,
        from: *const f32,
        list: *const f32,
    ) {
        let shape = &self.plan.shape;
        let kg = shape.group_out();
        let keep = (kg - channel).min(S::LANES);
        let [_, oh, ow] = shape.output;
        let corners = self.corners([image, self.group * kg + channel, 0, row, column]);
        // SAFETY: the caller's duty; rows and columns below the output's sizes are its places.
        unsafe {
            let sums = self.results::<S, M, N>(s, keep, from, list);
            for i in 0..M.min(oh - row) {
                for j in 0..M.min(ow - column) {
                    self.store::<S, FLOAT>(s, corners.map(|corner| corner.at(0, i, j)), sums[i][j][0], keep);
                }
            }
        }
    }

    /// Variant of [`Part::output`] for `count` neighboring tiles of a row, whose places are vectors of each channel.
    ///
    /// # Safety
    /// As of [`Part::output`] for each of the tiles; the slot is the unit's.
    #[inline(always)]
    unsafe fn output_planes<S: Simd, const M: usize, const N: usize, const FLOAT: bool>(
        &self,
        s: S,
        (image, row, column): (usize, usize, usize),
        count: usize,
        channel: usize,
        from: *const f32,
        list: *const f32,
    ) {
        let plan = self.plan;
        let shape = &plan.shape;
        let kg = shape.group_out();
        let keep = (kg - channel).min(S::LANES);
        let [_, oh, ow] = shape.output;
        let corners = self.corners([image, self.group * kg + channel, 0, row, column]);
        let strip = self.slot.wrapping_add(plan.lists_len() + plan.frequencies() * plan.product());
        // Once: the compiler would compute them again after each store.
        let (panel, pitch) = (plan.panel(), count * M);
        // SAFETY: the slot has room for the results; rows and columns below the output's sizes are its places.
        unsafe {
            for t in 0..count {
                let sums = self.results::<S, M, N>(s, keep, from.wrapping_add(t * panel), list);
                for i in 0..M {
                    for j in 0..M {
                        let to = strip.wrapping_add((i * pitch + t * M + j) * S::LANES);
                        s.store(to, sums[i][j][0]);
                    }
                }
            }
            if let Some(activation) = &plan.tail {
                tile::activate_row(s, activation, strip, M * pitch * S::LANES);
            }
            let places = pitch.min(ow - column);
            for i in 0..M.min(oh - row) {
                let mut begin = 0;
                while begin < places {
                    let lanes = (places - begin).min(S::LANES);
                    let mut square = [s.splat(0.0); MAX_LANES];
                    for place in 0..S::LANES {
                        square[place] = s.load(strip.wrapping_add((i * pitch + begin + place) * S::LANES));
                    }
                    let square = s.transpose(square);
                    for c in 0..S::LANES {
                        if c < keep {
                            let to = corners.map(|corner| corner.at(c, i, begin));
                            self.store::<S, FLOAT>(s, to, square[c], lanes);
                        }
                    }
                    begin += lanes;
                }
            }
        }
    }
}

/// Element of a tensor at a tile's first channel, row and column.
#[derive(Clone, Copy, Default)]
struct Corner {
    first: usize,
    strides: [usize; 5],
}

impl Corner {
    /// Offset of the element so many channels, rows and columns further.
    #[inline(always)]
    fn at(self, channel: usize, row: usize, column: usize) -> usize {
        self.first + channel * self.strides[1] + row * self.strides[3] + column * self.strides[4]
    }
}

/// Input as tiles look at it: rows and columns from the first ones there are on, whose channels lie side by side.
struct Image {
    element: Element,
    x: *const u8,
    /// Element that the first channel of the first row's first column is.
    from: usize,
    /// First row, and first column of the padded input.
    first: [usize; 2],
    /// Columns of padding before the columns there are, and the number of these.
    pad: usize,
    width: usize,
    /// Elements from a row, and a column, to the next.
    line: usize,
    column: usize,
}
