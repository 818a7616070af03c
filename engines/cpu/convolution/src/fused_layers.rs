//! Fused layers: convolutions behind each other, tiled by rows of the last one's output, so that the intermediates between
//! them stay in the second-level cache.
//!
//! A *band* is some rows of the last output. Backwards from it each layer has the rows that the next one looks at; those that the
//! band before has left in an intermediate's buffer are kept, so that none is computed twice. A *segment*, the unit of work, is some
//! bands of an image from top to bottom: only where a segment begins are rows of intermediates computed that its neighbor computes
//! as well. A layer of a band is a convolution of its own, with a plan: bands at the borders of the image, whose padding differs, have
//! others than those between, with weights of the same packing.

use std::ops::Range;

use super::problem::{EpilogueStep, Layout, MAX_OPERANDS, Problem, Shape};
use super::{Args, ConvolutionPlan, Send2, Weights};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::{LINE, align_up, lines};
use hipdnn_cpu_threads::Pool;

/// Bytes of an intermediate, of one image, beyond which its memory sets the pace of the layers that write and read it: such layers
/// are fused.
const FAR: usize = 4 << 20;

/// Bytes of an intermediate beyond which its layers are fused where others beside them are: the second-level cache does not hold it.
const NEAR: usize = 1 << 20;

/// Bytes of all buffers that stay in the second-level cache, beside weights, inputs and outputs that pass.
const BUFFERS: usize = 1 << 20;

/// Bytes of all weights that stay there too.
const WEIGHTS: usize = 512 << 10;

/// Most layers that are fused: a run's arguments have a place on the stack.
pub const MOST_LAYERS: usize = 8;

/// Most rows of a band: more gain nothing.
const ROWS: usize = 16;

/// Rows of a segment from which on each thread has two: what is computed twice, where one begins, is little then.
const LONG: usize = 16;

/// Bytes of an intermediate for each thread up to which a core's own cache has what it wrote when it reads it again.
const OWN: usize = 512 << 10;

/// Most input channels of a first layer of several taps that is fused: of more, transforms of whole images are faster.
const FEW_CHANNELS: usize = 4;

/// Convolutions behind each other, ready to run by bands.
#[derive(Debug)]
pub struct FusedLayers {
    layers: Vec<Layer>,
    /// Bands of the segments of an image.
    segments: Vec<Vec<Band>>,
    batch: usize,
    threads: usize,
    /// Bytes of the workspace's first part, for weights prepared at every run.
    weights: usize,
    /// Bytes of a worker's buffers, which its part of the workspace begins with, and of that part.
    buffers: usize,
    slot: usize,
}

/// A layer of a band.
#[derive(Debug)]
struct Layer {
    problem: Problem,
    /// Plans by window.
    plans: Vec<(Window, ConvolutionPlan)>,
    /// Index of the plan for most bands.
    usual: usize,
    /// Rows of the output's buffer; 0 for the last layer.
    capacity: usize,
    /// Offset of the weights in the workspace, if they are prepared at every run.
    weights: usize,
}

/// Rows of a convolution that a band computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    outputs: usize,
    inputs: usize,
    /// Rows of padding before the inputs.
    pad: usize,
}

/// Parts of a band, one for each layer.
type Band = Vec<Part>;

/// Share of a layer in a band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    /// Index of the plan; `None` if all that the next layer looks at is there.
    plan: Option<usize>,
    /// First row of the output.
    row: usize,
    /// Rows of the output's buffer that move to its beginning before: first one, and number.
    kept: (usize, usize),
    /// First row to read: of the input of the first layer, and of the buffer of others.
    from: usize,
    /// First row to write: of the output of the last layer, and of the buffer of others.
    to: usize,
}

/// Memory of a layer.
#[derive(Clone, Copy)]
pub struct LayerArgs<'a> {
    /// The weights.
    pub weights: Weights<'a>,
    /// The operands of the epilogue, whole tensors.
    pub operands: &'a [*const u8],
}

impl FusedLayers {
    /// Fuses as many of the first problems as gain by it: two at least. Each reads what the one before it writes, which nobody
    /// else reads. Problems behind the first that is not linked are not asked for.
    pub fn longest(problems: impl Iterator<Item = Problem>, threads: usize) -> Option<FusedLayers> {
        FusedLayers::longest_with(problems, threads, Isa::best())
    }

    /// Variant of [`FusedLayers::longest`] with the instruction set given.
    pub fn longest_with(mut problems: impl Iterator<Item = Problem>, threads: usize, isa: Isa) -> Option<FusedLayers> {
        let mut linked: Vec<Problem> = Vec::new();
        while linked.last().is_none_or(|before| is_intermediate(before, NEAR)) {
            let Some(problem) = problems.next().filter(|problem| is_layer(problem, linked.is_empty())) else { break };
            linked.push(problem);
        }
        let problems = &linked[..];
        let far = FAR.max(OWN * threads);
        // Of the layers from each one on: bytes of the intermediates that are left in memory, and layers and rows of the first band.
        let mut best = vec![(0, 1, 0)];
        for first in (0..problems.len()).rev() {
            let split = (first + 1..=problems.len().min(first + MOST_LAYERS)).filter_map(|end| {
                let layers = &problems[first..end];
                let is_worth_it =
                    layers.len() == 1 || layers[..layers.len() - 1].iter().any(|of| is_intermediate(of, far));
                let rows = most_rows(layers).filter(|_| is_worth_it)?;
                let after = best[best.len() - 1 - (end - first - 1)];
                let left = if end < problems.len() { intermediate_bytes(&problems[end - 1]) } else { 0 };
                Some((after.0 + left, end - first, rows))
            });
            let split = split.min_by_key(|(left, count, _)| (*left, *count)).expect("a layer alone has no buffer");
            best.push(split);
        }
        let (_, count, rows) = *best.last()?;
        if count < 2 { None } else { FusedLayers::with_rows(&problems[..count], rows, threads, isa) }
    }

    /// Fuses all these problems, with bands of `rows` rows; `None` if one of them can be no layer, or there are no plans of one packing.
    pub fn with_rows(problems: &[Problem], rows: usize, threads: usize, isa: Isa) -> Option<FusedLayers> {
        let (final_layer, inner) = problems.split_last()?;
        let serves = (0..problems.len()).all(|at| is_layer(&problems[at], at == 0)) && inner.iter().all(is_innermost);
        if !serves {
            return None;
        }
        let last = &final_layer.shape;
        let (height, threads) = (last.output[1], threads.max(1));
        let units = if last.batch * height >= 2 * threads * LONG { 2 * threads } else { threads };
        let parts = if threads == 1 { 1 } else { units.div_ceil(last.batch) };
        let segment = height.div_ceil(parts);
        let mut windows: Vec<Vec<Window>> = vec![Vec::new(); problems.len()];
        let segments: Vec<Vec<Band>> = (0..height)
            .step_by(segment)
            .map(|first| bands(problems, first..(first + segment).min(height), rows, &mut windows))
            .collect();
        let mut layers = Vec::with_capacity(problems.len());
        let mut weights = 0;
        let of_layers = problems.iter().zip(&windows).zip(capacities(problems, rows));
        for (index, ((problem, windows), capacity)) in of_layers.enumerate() {
            let uses = |plan: &usize| segments.iter().flatten().filter(|band| band[index].plan == Some(*plan)).count();
            let usual = (0..windows.len()).max_by_key(uses)?;
            let of_most = ConvolutionPlan::with_isa(&part_of(problem, &windows[usual]), 1, isa);
            let plan = |window: &Window| Some((*window, of_most.alike(&part_of(problem, window))?));
            let plans = windows.iter().map(plan).collect::<Option<Vec<_>>>()?;
            layers.push(Layer { problem: problem.clone(), plans, usual, capacity, weights });
            if !problem.constant_weights {
                weights += lines(4 * of_most.prepared_len());
            }
        }
        let buffers = layers.iter().map(Layer::buffer_bytes).sum();
        let plans = layers.iter().flat_map(|layer| &layer.plans);
        let slot = buffers + lines(plans.map(|(_, plan)| plan.workspace_bytes()).max()?);
        Some(FusedLayers { layers, segments, batch: last.batch, threads, weights, buffers, slot })
    }

    /// Number of layers.
    pub fn count(&self) -> usize {
        self.layers.len()
    }

    /// Plan of a layer for most of its bands: its algorithm, epilogue and packing of weights are those of all.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn plan(&self, layer: usize) -> &ConvolutionPlan {
        self.layers[layer].plan()
    }

    /// Number of units of work.
    pub(super) fn units(&self) -> usize {
        self.batch * self.segments.len()
    }

    /// Bytes of workspace that a run needs. It is enough for pools of any size: no more workers take part than were planned with.
    pub fn workspace_bytes(&self) -> usize {
        self.weights + self.threads * self.slot + LINE
    }

    /// Convolves: the first layer reads `x`, the last one writes `y`.
    ///
    /// # Safety
    /// As for [`ConvolutionPlan::run`], for each layer with its weights and operands; an operand may be the output only if the last
    /// layer reads it, and nothing else.
    pub unsafe fn run(&self, pool: &Pool, x: *const u8, y: *mut u8, layers: &[LayerArgs<'_>], workspace: *mut u8) {
        assert_eq!(layers.len(), self.layers.len(), "each layer has its arguments");
        let workspace = align_up(workspace);
        for (layer, args) in self.layers.iter().zip(layers) {
            if let (Weights::Raw(w), false) = (args.weights, layer.problem.constant_weights) {
                let out = workspace.wrapping_add(layer.weights).cast::<f32>();
                // SAFETY: the workspace begins with room for these weights; the tensor is the caller's duty.
                unsafe { layer.plan().prepare_at(w, out, pool, self.threads) };
            }
        }
        let tensors = Send2(x, y);
        let scratch = Send2(workspace, workspace.wrapping_add(self.weights));
        let layers = Memory(layers);
        pool.run_indexed(self.units(), self.threads, &|worker, unit| {
            let (image, segment) = (unit / self.segments.len(), unit % self.segments.len());
            let slot = scratch.y().wrapping_add(worker * self.slot);
            for band in &self.segments[segment] {
                // SAFETY: the caller's duty; bands of a segment come in order, with a slot of their worker's, and segments write rows
                // of their own.
                unsafe { self.band(pool, band, image, &tensors, layers.get(), scratch.x(), slot) };
            }
        });
    }

    /// Computes a band of an image.
    ///
    /// # Safety
    /// As for [`FusedLayers::run`]; the slot has what the band before it in its segment left there.
    #[expect(clippy::too_many_arguments, reason = "memory of a run, and where in it a band is")]
    unsafe fn band(
        &self,
        pool: &Pool,
        band: &Band,
        image: usize,
        tensors: &Send2,
        layers: &[LayerArgs<'_>],
        prepared: *const u8,
        slot: *mut u8,
    ) {
        let workspace = slot.wrapping_add(self.buffers);
        let last = self.layers.len() - 1;
        // Buffer of the layer before, and of this one.
        let (mut input, mut output) = (slot.cast_const(), slot);
        for (index, ((layer, part), args)) in self.layers.iter().zip(band).zip(layers).enumerate() {
            let problem = &layer.problem;
            let x = match index {
                0 => tensors.x().wrapping_add(offset(&problem.x, image, part.from)),
                _ => input.wrapping_add(offset(&problem.x, 0, part.from)),
            };
            let y = match index == last {
                true => tensors.y().wrapping_add(offset(&problem.y, image, part.to)),
                false => output.wrapping_add(offset(&problem.y, 0, part.to)),
            };
            let row = offset(&problem.y, 0, 1);
            let (first, rows) = part.kept;
            // SAFETY: both are rows of the buffer.
            unsafe { std::ptr::copy(output.wrapping_add(first * row), output, rows * row) };
            input = output;
            output = output.wrapping_add(layer.buffer_bytes());
            let Some(plan) = part.plan.map(|plan| &layer.plans[plan].1) else { continue };
            let mut operands = [std::ptr::null(); MAX_OPERANDS];
            operands[..args.operands.len()].copy_from_slice(args.operands);
            for step in &problem.epilogue {
                if let EpilogueStep::Add { operand, layout } | EpilogueStep::Mul { operand, layout } = step {
                    operands[*operand] = operands[*operand].wrapping_add(offset(layout, image, part.row));
                }
            }
            let weights = match args.weights {
                Weights::Raw(_) if plan.prepared_len() > 0 => {
                    let from = prepared.wrapping_add(layer.weights).cast::<f32>();
                    // SAFETY: the run prepared so many weights there, and nobody writes to them until it ends.
                    Weights::Prepared(unsafe { std::slice::from_raw_parts(from, plan.prepared_len()) })
                }
                weights => weights,
            };
            let operands = &operands[..args.operands.len()];
            // SAFETY: the rows that the plan reads are in the input, or have been computed in the buffer; those that it writes are the
            // band's, or in the buffer; operands are of these rows, the workspace is the largest plan's, and weights are of its packing.
            unsafe { plan.run(pool, &Args { x, weights, y, operands, workspace }) };
        }
    }
}

impl Layer {
    /// Plan for most bands.
    fn plan(&self) -> &ConvolutionPlan {
        &self.plans[self.usual].1
    }

    /// Bytes of the output's buffer.
    fn buffer_bytes(&self) -> usize {
        lines(self.capacity * offset(&self.problem.y, 0, 1))
    }
}

/// Arguments of a run's layers, for all its workers.
struct Memory<'a>(&'a [LayerArgs<'a>]);

// SAFETY: the pointers are copied out, which any number of threads may do; what may be done with them is said where they are
// dereferenced.
unsafe impl Sync for Memory<'_> {}

impl Memory<'_> {
    fn get(&self) -> &[LayerArgs<'_>] {
        self.0
    }
}

/// Bytes from a tensor's first element to an image's row.
fn offset(layout: &Layout, image: usize, row: usize) -> usize {
    layout.element.bytes() * (image * layout.strides[0] + row * layout.strides[3])
}

/// True if a convolution can be a layer: of two dimensions and one tap, or of one filter for each channel, or the first with few
/// channels.
fn is_layer(problem: &Problem, is_first: bool) -> bool {
    let shape = &problem.shape;
    if shape.is_empty() || shape.depth() == 0 {
        return false;
    }
    let flat =
        [&shape.input, &shape.output, &shape.kernel].iter().all(|sizes| sizes[0] == 1) && shape.pad_before[0] == 0;
    let dense = shape.groups == 1 && (shape.taps() == 1 || is_first && shape.in_channels <= FEW_CHANNELS);
    // Each row of the output looks at one of the input at least.
    let seen = shape.pad_before[1] < shape.reach(1)
        && shape.output[1].saturating_sub(1) * shape.stride[1] < shape.pad_before[1] + shape.input[1];
    flat && seen && (dense || shape.is_depthwise())
}

/// True if the output has its channels innermost, without gaps.
fn is_innermost(problem: &Problem) -> bool {
    let [_, channels, _, _, columns] = problem.y_sizes();
    [1, 3, 4].map(|axis| problem.y.strides[axis]) == [1, columns * channels, channels]
}

/// True if the output can be an intermediate, and has more than so many bytes.
fn is_intermediate(problem: &Problem, bytes: usize) -> bool {
    is_innermost(problem) && intermediate_bytes(problem) > bytes
}

/// Bytes of an image of the output, channels innermost.
fn intermediate_bytes(problem: &Problem) -> usize {
    problem.shape.output[1] * offset(&problem.y, 0, 1)
}

/// Most rows of a band whose buffers stay in the second-level cache; `None` if those of one do not, or the weights of several layers.
fn most_rows(problems: &[Problem]) -> Option<usize> {
    let weights: usize = problems.iter().map(|of| size_of::<f32>() * of.shape.out_channels * of.shape.depth()).sum();
    if problems.len() > 1 && weights > WEIGHTS {
        return None;
    }
    let buffers = |rows: usize| -> usize {
        let capacities = capacities(problems, rows).into_iter();
        problems.iter().zip(capacities).map(|(problem, rows)| rows * offset(&problem.y, 0, 1)).sum()
    };
    (1..=ROWS).rev().find(|rows| buffers(*rows) <= BUFFERS)
}

/// Rows of the input that some rows of the output look at.
fn inputs(shape: &Shape, outputs: &Range<usize>) -> Range<usize> {
    let (stride, pad) = (shape.stride[1], shape.pad_before[1]);
    let end = ((outputs.end - 1) * stride + shape.reach(1)).saturating_sub(pad);
    (outputs.start * stride).saturating_sub(pad)..end.min(shape.input[1])
}

/// Problem of a layer for a band.
fn part_of(problem: &Problem, window: &Window) -> Problem {
    let mut part = problem.clone();
    let shape = &mut part.shape;
    (shape.batch, shape.input[1], shape.output[1], shape.pad_before[1]) =
        (1, window.inputs, window.outputs, window.pad);
    part.constant_weights = true;
    part
}

/// Rows of each buffer: those of an intermediate that a band of `rows` rows, without padding, looks at; 0 for the last output.
fn capacities(problems: &[Problem], rows: usize) -> Vec<usize> {
    let mut capacities = vec![0; problems.len()];
    let mut rows = rows.min(problems.last().map_or(0, |problem| problem.shape.output[1]));
    for index in (1..problems.len()).rev() {
        let shape = &problems[index].shape;
        rows = ((rows - 1) * shape.stride[1] + shape.reach(1)).min(shape.input[1]);
        capacities[index - 1] = rows;
    }
    capacities
}

/// Bands of a segment: `rows` rows each of the last output, the last of a segment perhaps fewer. Adds the windows that they need to
/// those of each layer.
fn bands(problems: &[Problem], segment: Range<usize>, rows: usize, windows: &mut [Vec<Window>]) -> Vec<Band> {
    // Rows of each intermediate that its buffer holds.
    let mut held: Vec<Range<usize>> = vec![0..0; problems.len() - 1];
    let starts = segment.clone().step_by(rows);
    starts.map(|start| band(problems, start..(start + rows).min(segment.end), &mut held, windows)).collect()
}

/// The band that computes these rows of the last output, with what the buffers hold before it, and after.
fn band(problems: &[Problem], rows: Range<usize>, held: &mut [Range<usize>], windows: &mut [Vec<Window>]) -> Band {
    let last = problems.len() - 1;
    let mut parts = vec![Part::default(); problems.len()];
    // Rows that the layer computes, from the last layer back.
    let mut outputs = rows;
    for index in (0..=last).rev() {
        let part = &mut parts[index];
        if outputs.is_empty() {
            continue;
        }
        let shape = &problems[index].shape;
        let looked_at = inputs(shape, &outputs);
        let pad = shape.pad_before[1].saturating_sub(outputs.start * shape.stride[1]);
        let window = Window { outputs: outputs.len(), inputs: looked_at.len(), pad };
        let windows = &mut windows[index];
        let found = windows.iter().position(|known| *known == window);
        part.plan = Some(found.unwrap_or_else(|| {
            windows.push(window);
            windows.len() - 1
        }));
        part.row = outputs.start;
        part.to = if index == last { outputs.start } else { outputs.start - held[index].start };
        let Some(before) = index.checked_sub(1) else {
            part.from = looked_at.start;
            break;
        };
        let held = &mut held[before];
        let fresh = looked_at.start.max(held.end)..looked_at.end;
        if fresh.is_empty() {
            part.from = looked_at.start - held.start;
            outputs = 0..0;
        } else {
            let kept = looked_at.start.min(fresh.start)..fresh.start;
            parts[before].kept = (kept.start.saturating_sub(held.start), kept.len());
            *held = looked_at;
            outputs = fresh;
        }
    }
    parts
}
